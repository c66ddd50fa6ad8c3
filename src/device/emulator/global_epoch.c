/*
 * global_epoch.c - epochs, which cells of global memory remember, and the races between CTAs that they tell.
 *
 * In a launch without strong accesses nothing can order its clusters, so an epoch is a cluster, and two of them that
 * share a byte which one writes are a race. In an ordered launch an epoch is an agent of a cluster at one of its
 * clocks, and the accessing warp must know that clock. Numbers grow from launch to launch: what is below those of this
 * launch happened before it, so nothing is cleared.
 */
#include <stdio.h>

#include "base/heap.h"
#include "device/emulator/global.h"

enum { KNOWN_READERS_MAX = 64, SET_SLOTS_MIN = 256, SEVERAL = -1 };

static uint32_t epoch_add(launch_state *l, epoch x)
{
    if (l->epoch_count == l->epoch_capacity) {
        l->epoch_capacity = l->epoch_capacity ? 2 * l->epoch_capacity : 1024;
        l->epochs = heap_resize(l->epochs, l->epoch_capacity, sizeof *l->epochs);
    }
    l->epochs[l->epoch_count] = x;
    return l->first_epoch + l->epoch_count++;
}

/* Number 0 of an unordered launch: more than one cluster has read the cell. The clusters follow. */
uint32_t epoch_own(const access *a)
{
    cluster *c = a->w->cluster;
    launch_state *l = c->launch;
    if (!l->ordered)
        return l->first_epoch + 1 + (uint32_t)c->index;
    recent_epoch *r = &c->recent[(a->agent * 8U + a->strong * 4U + a->scope) % COUNT_OF(c->recent)];
    if (r->number && r->agent == a->agent && r->clock == a->clock && r->strong == a->strong && r->scope == a->scope)
        return r->number;
    *r = (recent_epoch){ .agent = a->agent, .clock = a->clock, .strong = a->strong, .scope = a->scope };
    r->number = epoch_add(l, (epoch){ .cluster = c->index,
                                      .clock = a->clock,
                                      .agent = a->agent,
                                      .rank = a->w->cta->rank,
                                      .who = c->agents[a->agent],
                                      .strong = a->strong,
                                      .async = a->async,
                                      .scope = a->scope });
    return r->number;
}

void epochs_clear(launch_state *l)
{
    heap_free(l->epochs);
    heap_free(l->set_slots);
}

/* What an access knows */

static bool knows(const access *a, const epoch *e)
{
    if (e->cluster == a->w->cluster->index)
        return a->knows->seen[e->agent] >= e->clock;
    return past_clock(*a->knows->past, e->cluster, e->agent, false) >= e->clock;
}

static bool is_visible(const access *a, const epoch *e)
{
    if (!a->async || e->async)
        return true;
    if (e->cluster == a->w->cluster->index)
        return a->knows->global[e->agent] >= e->clock;
    return past_clock(*a->knows->past, e->cluster, e->agent, true) >= e->clock;
}

static bool includes(ir_scope scope, const access *a, const epoch *e)
{
    return scope >= IR_SCOPE_GPU ||
           (a->w->cluster->index == e->cluster && (scope == IR_SCOPE_CLUSTER || a->w->cta->rank == e->rank));
}

/* Two strong accesses whose scopes include each other are no race. */
static bool may_meet(const access *a, const epoch *e)
{
    return knows(a, e) || (a->strong && e->strong && includes(a->scope, a, e) && includes(e->scope, a, e));
}

/* Faults */

typedef struct place {
    uintptr_t address;
    const char *what; // the other one did
    uint16_t step;
} place;

static const char *advice(const access *a, const epoch *e)
{
    const launch_state *l = a->w->cluster->launch;
    if (!l->ordered)
        return "the kernel has no release and acquire by which CTAs could be ordered";
    if (e->who.kind == AGENT_BULK_WRITE)
        return "the bulk_wait for that store's completion, and a release after it, must come first";
    for (int i = 0; i < COUNT_OF(a->w->observed); i++)
        if (past_clock(a->w->observed[i], e->cluster, e->agent, false) >= e->clock)
            return "its release was read, but not acquired: an acquire, or a fence after the relaxed read, is missing";
    if (e->strong || a->strong)
        return "one is an ordinary access: both must be strong, or a release and an acquire must order them";
    if (e->cluster == a->w->cluster->index)
        return "no barrier, and no release and acquire, orders them";
    return "no release that follows it has been acquired: a fence or a release before the flag is missing, or the "
           "acquire";
}

static void describe_other(const access *a, const epoch *e, char room[AGENT_TEXT_BYTES])
{
    const launch_state *l = a->w->cluster->launch;
    char name[AGENT_TEXT_BYTES / 2];
    int64_t at[3];
    if (e->cluster == SEVERAL) {
        snprintf(room, AGENT_TEXT_BYTES, "other CTAs");
        return;
    }
    cta_place(l, e->cluster, e->rank, at);
    int length = 0;
    if (l->ordered)
        length = snprintf(room, AGENT_TEXT_BYTES, "%s of ", agent_name(&l->kernel->ir, &e->who, name, sizeof name));
    snprintf(room + length, (size_t)(AGENT_TEXT_BYTES - length), "%s (%" PRId64 ",%" PRId64 ",%" PRId64 ")",
             l->ordered || l->kernel->ir.cluster == 1 ? "CTA" : "the cluster of CTA", at[0], at[1], at[2]);
}

static bool race(const access *a, place at, const epoch *e)
{
    char who[AGENT_TEXT_BYTES], name[PLACE_BYTES], where[WHERE_BYTES] = "an unknown line";
    const launch_state *l = a->w->cluster->launch;
    describe_other(a, e, who);
    if (at.step != UINT16_MAX)
        snprintf(where, sizeof where, "%s:%d", l->kernel->steps[at.step].inst->file,
                 l->kernel->steps[at.step].inst->line);
    return fault(a->w, a->s, access_lane(a, at.address), "global-memory race", "%s of %s meets the %s by %s at %s; %s",
                 a->write ? "write" : "read", global_text(l, a->memory, at.address, name), at.what, who, where,
                 advice(a, e));
}

static bool missing_fence(const access *a, place at, const epoch *e)
{
    char who[AGENT_TEXT_BYTES], name[PLACE_BYTES];
    const launch_state *l = a->w->cluster->launch;
    describe_other(a, e, who);
    return fault(
        a->w, a->s, access_lane(a, at.address), "missing fence_proxy_async",
        "the async proxy %s %s, which %s wrote with an ordinary store; fence_proxy_async_gmem must follow the store",
        a->write ? "overwrites" : "reads", global_text(l, a->memory, at.address, name), who);
}

/* Readers: one epoch, or a set as a list that begins with the last. Sets are shared: equal steps give equal sets. */

static uint32_t *slot_of(launch_state *l, uint32_t newest, uint32_t others)
{
    uint32_t at = (newest * 0x9e3779b1U ^ others * 0x85ebca6bU) >> 4 & (l->set_capacity - 1);
    for (; l->set_slots[at]; at = (at + 1) & (l->set_capacity - 1)) {
        const epoch *e = epoch_of(l, l->set_slots[at]);
        if (e->newest == newest && e->others == others)
            break;
    }
    return &l->set_slots[at];
}

static void grow_sets(launch_state *l)
{
    uint32_t *old = l->set_slots, before = l->set_capacity;
    l->set_capacity = before ? 2 * before : SET_SLOTS_MIN;
    l->set_slots = heap_alloc(l->set_capacity, sizeof *l->set_slots);
    for (uint32_t i = 0; i < before; i++)
        if (old[i])
            *slot_of(l, epoch_of(l, old[i])->newest, epoch_of(l, old[i])->others) = old[i];
    heap_free(old);
}

static uint32_t set_of(launch_state *l, uint32_t newest, uint32_t others)
{
    if (2 * (l->set_count + 1) > l->set_capacity)
        grow_sets(l);
    uint32_t *slot = slot_of(l, newest, others);
    if (!*slot) {
        *slot = epoch_add(l, (epoch){ .newest = newest, .others = others });
        l->set_count++;
    }
    return *slot;
}

/* The reader of a cell after one more read: only this one, if all before are known. Polls would make endless sets. */
uint32_t epoch_reader(const access *a, uint32_t own, uint32_t reader)
{
    launch_state *l = a->w->cluster->launch;
    if (reader < l->first_epoch || reader == own)
        return own;
    if (!l->ordered)
        return l->first_epoch;
    bool all_known = true;
    uint32_t rest = reader;
    for (int i = 0; rest && i < KNOWN_READERS_MAX; i++) {
        const epoch *e = epoch_of(l, rest);
        uint32_t one = e->newest ? e->newest : rest;
        if (one == own)
            return reader;
        const epoch *other = epoch_of(l, one);
        all_known = all_known && knows(a, other) && (other->strong || !a->strong);
        rest = e->others;
    }
    if (all_known && !rest)
        return own;
    return a->strong ? reader : set_of(l, own, reader);
}

/* Checks */

/* A store of bits that other CTAs may store, too? */
static bool stores_same(const step *s)
{
    return s->inst->op == IR_TMA_STORE && s->inst->mode == IR_TMA_WRITE_SAME;
}

/* Does it store what lies there from `address` on? */
static bool check_bits(const access *a, uintptr_t address)
{
    const size_t before = address - a->start;
    char name[PLACE_BYTES];
    if (memcmp((const void *)address, a->bits + before, a->bit_bytes - before) == 0) // NOLINT: as on the device
        return true;
    return fault(a->w, a->s, access_lane(a, address), "other bits",
                 "the store to %s brings other bits than another CTA's",
                 global_text(a->w->cluster->launch, a->memory, address, name));
}

bool epoch_check_writer(const access *a, uint32_t writer, uintptr_t address, uint16_t by)
{
    const launch_state *l = a->w->cluster->launch;
    if (stores_same(a->s) && by != UINT16_MAX && stores_same(&l->kernel->steps[by]))
        return check_bits(a, address);
    const place at = { address, "write", by };
    if (!l->ordered)
        return race(a, at, &(epoch){ .cluster = writer - l->first_epoch - 1 });
    const epoch *e = epoch_of(l, writer);
    if (!may_meet(a, e))
        return race(a, at, e);
    return is_visible(a, e) || missing_fence(a, at, e);
}

bool epoch_check_readers(const access *a, uint32_t reader, uintptr_t address, uint16_t by)
{
    const launch_state *l = a->w->cluster->launch;
    const place at = { address, "read", by };
    if (!l->ordered) {
        bool several = reader == l->first_epoch;
        return race(a, at, &(epoch){ .cluster = several ? SEVERAL : (int64_t)(reader - l->first_epoch - 1) });
    }
    while (reader) {
        const epoch *e = epoch_of(l, reader), *one = e->newest ? epoch_of(l, e->newest) : e;
        if (!may_meet(a, one))
            return race(a, at, one);
        reader = e->others;
    }
    return true;
}

bool epoch_check_overlap(const access *a, uint32_t writer, uint32_t reader, uintptr_t address)
{
    char name[PLACE_BYTES];
    const bool is_hint = a->strong && !a->write; // a relaxed load may be one, of what is old
    const bool meets_write = !is_hint && overlap_may_run(a->w, writer);
    if (!meets_write && !(a->write && overlap_may_run(a->w, reader)))
        return true;
    return fault(a->w, a->s, access_lane(a, address), "global-memory race",
                 "%s of %s meets the %s by a launch that may still run; grid_wait() must come before",
                 a->write ? "write" : "read", global_text(a->w->cluster->launch, a->memory, address, name),
                 meets_write ? "write" : "read");
}
