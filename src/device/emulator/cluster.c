/* cluster.c - one cluster of CTAs from start to end: its memory, its warps one after another, its end. */
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/random.h"
#include "device/emulator/machine.h"

enum {
    QUANTUM = 256,        // instructions a warp may run before the next one
    POLL_LOOP_MAX = 1024, // instructions after a poll to no avail that count as waiting
    LAZY_ROUNDS_MAX = 64, // of polling warps until lazy work is done after all
    WRITER_ROUNDS_MAX = 256,
};

uint64_t cluster_random(cluster *c)
{
    return random_next(&c->random);
}

size_t cluster_shared_bytes(const cluster *c)
{
    return (size_t)round_up(c->kernel->ir.smem_bytes, TIER_SPAN[TIER_CHUNK]);
}

static bool uses_wgmma(const ir_kernel *ir)
{
    for (int i = 0; i < ir->inst_count; i++)
        if (ir->insts[i].op == IR_WGMMA || ir->insts[i].op == IR_WGMMA_RS)
            return true;
    return false;
}

static void build_warp(cluster *c, int number, bool wgmma)
{
    const device_kernel *k = c->kernel;
    warp *w = &c->warps[number];
    w->cluster = c;
    w->cta = &c->ctas[number / k->warps];
    w->index = number % k->warps;
    w->agent = (uint16_t)number;
    w->bank[BANK_REGISTERS] = heap_alloc(1, k->register_bytes);
    w->bank[BANK_CONSTANTS] = k->constants;
    w->stack = heap_alloc((size_t)k->depth_max + 1, sizeof *w->stack);
    w->polled = heap_alloc((size_t)k->poll_count, sizeof *w->polled);
    if (wgmma) {
        w->in_flight = heap_alloc((size_t)k->ir.reg_count, sizeof *w->in_flight);
        w->unfenced = heap_alloc((size_t)k->ir.reg_count, sizeof *w->unfenced);
    }
}

static void build_cta(cluster *c, int rank)
{
    const device_kernel *k = c->kernel;
    size_t bytes = cluster_shared_bytes(c);
    c->ctas[rank] = (cta){
        .cluster = c,
        .rank = rank,
        .warps = c->warps + rank * k->warps,
        .shared = heap_alloc(bytes, 1),
        .touched = heap_alloc(bytes / SHARED_BLOCK + 1, sizeof(bool)),
        .barrier_of = heap_alloc(bytes / IR_MBARRIER_BYTES, sizeof(uint16_t)),
        .barriers = heap_alloc((size_t)c->agent_max, sizeof(mbarrier)),
        .groups = heap_alloc((size_t)k->warps / WARPS_PER_GROUP + 1, sizeof(warpgroup)),
        .visitors = heap_alloc((size_t)c->warp_count, sizeof(visitor)),
    };
    c->ctas[rank].cells[TIER_CHUNK] = heap_alloc(bytes / TIER_SPAN[TIER_CHUNK], sizeof(cell));
    memset(c->ctas[rank].shared, SHARED_POISON, bytes);
}

cluster *cluster_new(launch_state *launch)
{
    const device_kernel *k = launch->kernel;
    cluster *c = heap_alloc(1, sizeof *c);
    c->launch = launch;
    c->kernel = k;
    c->cta_count = k->ir.cluster;
    c->warp_count = c->cta_count * k->warps;
    c->agent_peak = c->warp_count;
    c->agent_max = 2 * c->warp_count + c->cta_count * ASYNC_AGENTS_PER_CTA;
    c->agents = heap_alloc((size_t)c->agent_max, sizeof *c->agents);
    c->executed = heap_alloc((size_t)k->step_count, sizeof *c->executed);
    c->conflicts = heap_alloc((size_t)k->step_count, sizeof *c->conflicts);
    c->warps = heap_alloc((size_t)c->warp_count, sizeof *c->warps);
    bool wgmma = uses_wgmma(&k->ir);
    for (int r = 0; r < c->cta_count; r++)
        build_cta(c, r);
    for (int i = 0; i < c->warp_count; i++)
        build_warp(c, i, wgmma);
    return c;
}

static void free_cta(cluster *c, cta *x)
{
    for (int i = 0; i <= c->kernel->warps / WARPS_PER_GROUP; i++)
        heap_free(x->groups[i].ops);
    heap_free(x->shared);
    for (int tier = 0; tier < TIERS; tier++)
        heap_free(x->cells[tier]);
    heap_free(x->touched);
    heap_free(x->barrier_of);
    heap_free(x->barriers);
    heap_free(x->groups);
    heap_free(x->visitors);
    heap_free(x->bulk);
}

void cluster_free(cluster *c)
{
    for (int i = 0; i < c->warp_count; i++) {
        warp_forget(&c->warps[i]);
        heap_free(c->warps[i].polled);
        heap_free(c->warps[i].bank[BANK_REGISTERS]);
        heap_free(c->warps[i].stack);
        heap_free(c->warps[i].in_flight);
        heap_free(c->warps[i].unfenced);
    }
    for (int r = 0; r < c->cta_count; r++)
        free_cta(c, &c->ctas[r]);
    knowledge_free(c);
    for (uint32_t i = 0; i < c->set_capacity; i++) {
        heap_free(c->sets[i].clock);
        heap_free(c->sets[i].lanes);
    }
    heap_free(c->sets);
    heap_free(c->queue);
    heap_free(c->agents);
    heap_free(c->executed);
    heap_free(c->conflicts);
    heap_free(c->warps);
    heap_free(c);
}

/* Start */

static void start_warp(cluster *c, warp *w)
{
    const device_kernel *k = c->kernel;
    c->agents[w->agent] = (agent){ .kind = AGENT_WARP, .cta = w->cta->rank, .warp = w->index };
    warp_forget(w);
    memset(w->polled, 0, (size_t)k->poll_count * sizeof *w->polled);
    *w = (warp){
        .bank = { w->bank[0], w->bank[1] },
        .active = ALL_LANES,
        .stack = w->stack,
        .near = w->near,
        .cluster = c,
        .cta = w->cta,
        .index = w->index,
        .agent = w->agent,
        .knows = knowledge_new(c),
        .cp_agent = NO_AGENT,
        .in_flight = w->in_flight,
        .unfenced = w->unfenced,
        .registers = k->registers,
        .polled = w->polled,
    };
    w->knows.seen[w->agent] = 1;
    if (w->in_flight) {
        memset(w->in_flight, 0, (size_t)k->ir.reg_count * sizeof *w->in_flight);
        memset(w->unfenced, 0, (size_t)k->ir.reg_count * sizeof *w->unfenced);
    }
}

void cta_place(const launch_state *l, int64_t index, int rank, int64_t at[3])
{
    int64_t ctas = l->kernel->ir.cluster, columns = l->grid[0] / ctas, row = index / columns;
    at[0] = index % columns * ctas + rank;
    at[1] = row % l->grid[1];
    at[2] = row / l->grid[1];
}

/* Shared memory is as the first CTA found it. Small problems touch little of what large ones need. */
static void clear_shared(cta *x, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SHARED_BLOCK) {
        size_t count = bytes - at < SHARED_BLOCK ? bytes - at : SHARED_BLOCK;
        if (!x->touched[at / SHARED_BLOCK])
            continue;
        x->touched[at / SHARED_BLOCK] = false;
        memset(x->shared + at, SHARED_POISON, count);
        memset(x->cells[TIER_CHUNK] + at / TIER_SPAN[TIER_CHUNK], 0, count / TIER_SPAN[TIER_CHUNK] * sizeof(cell));
        memset(x->barrier_of + at / IR_MBARRIER_BYTES, 0, count / IR_MBARRIER_BYTES * sizeof(uint16_t));
    }
}

static void start_cta(cluster *c, cta *x)
{
    const device_kernel *k = c->kernel;
    cta_place(c->launch, c->index, x->rank, x->at);
    x->warps_left = k->warps;
    x->barrier_count = x->bulk_count = 0;
    x->visited = false;
    x->registers_free = 0; // what the SM has beyond threads * registers is not the CTA's
    clear_shared(x, cluster_shared_bytes(c));
    memset(x->visitors, 0, (size_t)c->warp_count * sizeof(visitor));
    memset(x->named, 0, sizeof x->named);
    for (int i = 0; i < k->warps / WARPS_PER_GROUP; i++) {
        warpgroup *g = &x->groups[i];
        *g = (warpgroup){ .agent = NO_AGENT, .ops = g->ops, .capacity = g->capacity };
        if (g->capacity)
            memset(g->ops, 0, g->capacity * sizeof *g->ops);
    }
}

void cluster_start(cluster *c, int64_t index)
{
    c->index = index;
    c->random = c->kernel->device->options.seed * 0x9e3779b97f4a7c15 + (uint64_t)index;
    c->agent_count = c->warps_left = c->warp_count;
    c->pool_used = 0;
    c->set_count = c->set_free = 0;
    c->cluster_arrived = 0;
    c->cluster_generation = 0;
    c->stopped = NULL;
    c->unwritten = NULL;
    c->faulted = c->endless = false;
    c->rounds = 0;
    memset(c->recent, 0, sizeof c->recent);
    c->cluster_gather = knowledge_new(c);
    c->cluster_done = knowledge_new(c);
    for (int r = 0; r < c->cta_count; r++)
        start_cta(c, &c->ctas[r]);
    for (int i = 0; i < c->warp_count; i++)
        start_warp(c, &c->warps[i]);
    c->count[COUNT_CTAS] += c->cta_count;
    c->count[COUNT_WARPS] += c->warp_count;
}

/* Leaving */

static bool warp_may_leave(warp *w, const step *s)
{
    if (w->wgmma_issued && w->wgmma_waited < w->wgmma_groups + 1U * w->wgmma_open)
        return fault(w, s, -1, "exit with work under way", "wgmma was issued and not waited for");
    const step *missed = setmaxnreg_missed(w);
    if (missed)
        return fault(w, missed, -1, "misused setmaxnreg",
                     "only some warps of the warpgroup execute it, this one leaves");
    for (int i = 0; i < w->cta->bulk_count; i++) {
        const bulk_queue *q = &w->cta->bulk[i];
        if (q->warp == w->index && (q->open || q->waited < q->groups))
            return fault(w, s, q->lane, "exit with work under way",
                         "a bulk store may still read the CTA's shared memory; bulk_wait must come before the end");
    }
    return true;
}

/* What all warps of a CTA knew when they left. */
static bool was_seen(const cta *c, uint16_t who, uint32_t clock)
{
    for (int i = 0; i < c->cluster->kernel->warps; i++)
        if (c->warps[i].knows.seen[who] >= clock)
            return true;
    return false;
}

/* The mbarrier of a copy into the CTA that nobody has waited for, or that is not even done; NULL if there is none. */
static const mbarrier *find_open_load(const cta *c)
{
    const cluster *all = c->cluster;
    for (int i = 0; i < c->barrier_count; i++)
        if (!was_seen(c, c->barriers[i].agent, c->barriers[i].transfer_phase))
            return &c->barriers[i];
    for (int i = 0; i < all->queue_count; i++) {
        const transfer *t = &all->queue[all->queue_first + i];
        if (t->to_ctas >> c->rank & 1)
            return &c->barriers[c->barrier_of[t->barrier / IR_MBARRIER_BYTES] - 1];
    }
    return NULL;
}

static bool cta_may_leave(warp *w, const step *s)
{
    cta *c = w->cta;
    const mbarrier *b = find_open_load(c);
    if (b)
        return fault(w, s, -1, "exit with work under way",
                     "the CTA leaves without having waited for a copy into its shared memory on %s",
                     PLACE(w, b->offset));
    for (uint16_t i = 0; c->visited && i < c->cluster->warp_count; i++) {
        const visitor *v = &c->visitors[i];
        if (was_seen(c, i, v->clock))
            continue;
        char who[AGENT_TEXT_BYTES];
        return fault(
            w, s, -1, "access to an exited CTA",
            "CTA rank %d leaves, and nothing orders its end after the access of %s to its shared memory at %s:%d",
            c->rank, agent_text(c->cluster, i, who, sizeof who), v->s->inst->file, v->s->inst->line);
    }
    return true;
}

static bool leave(warp *w, const step *s)
{
    cluster *c = w->cluster;
    if (!warp_may_leave(w, s))
        return false;
    c->warps_left--;
    w->cta->warps_left--;
    if (w->cta->warps_left == 0 && !cta_may_leave(w, s))
        return false;
    cluster_barrier_check(c);
    return true;
}

/* Running */

/* What a warp did in a round: instructions soon after a poll to no avail count as polling. */
static void note_work(const warp *w, bool moved)
{
    cluster *c = w->cluster;
    bool waits = w->executed < w->idle_until;
    c->polls = c->polls || (moved && waits);
    c->busy = c->busy || (moved && !waits);
}

/* False after the report of an endless loop. */
static bool has_budget(warp *w)
{
    const int64_t budget = w->cluster->kernel->device->options.budget;
    if (w->executed <= budget)
        return true;
    w->cluster->endless = true;
    return fault(w, &w->cluster->kernel->steps[w->pc], -1, "endless loop",
                 "the warp has executed %" PRId64 " instructions, its budget; CKL_EMULATOR=\"budget=%" PRId64
                 "\" gives it ten times as many",
                 w->executed, 10 * budget);
}

/* Runs a warp until it is blocked, has nothing new to do, has ended or has had its time. False after a fault. */
static bool run_warp(warp *w, int quantum)
{
    cluster *c = w->cluster;
    if (!has_budget(w))
        return false;
    const step *steps = c->kernel->steps;
    for (int i = 0; i < quantum; i++) {
        const step *s = &steps[w->pc];
        outcome o = s->run(w, s);
        if (o == ADVANCE) {
            w->pc++;
        } else if (o == BLOCKED) {
            note_work(w, i > 0);
            return true;
        } else if (o == FAULTED) {
            return false;
        } else if (o == YIELDED) {
            w->pc++;
            w->idle_until = w->executed + POLL_LOOP_MAX;
            c->polls = true;
            c->yields++;
            return true;
        }
        c->executed[s->index]++;
        c->progress++;
        w->executed++;
        w->waits = WAIT_NONE;
        if (w->done) {
            c->busy = true;
            return leave(w, s);
        }
    }
    note_work(w, true);
    return true;
}

/* Lets every warp run once; without `all`, a random schedule skips half of them. */
static bool run_round(cluster *c, bool all)
{
    bool random = c->kernel->device->options.schedule == SCHEDULE_RANDOM;
    int first = random ? (int)(cluster_random(c) % (uint64_t)c->warp_count) : 0;
    for (int i = 0; i < c->warp_count; i++) {
        warp *w = &c->warps[(first + i) % c->warp_count];
        if (w->done || w == c->stopped || (random && !all && cluster_random(c) & 1))
            continue;
        if (!run_warp(w, random ? 1 + (int)(cluster_random(c) % QUANTUM) : QUANTUM))
            return false;
    }
    return true;
}

/* Asynchronous work that is done although warps could still run. */
static void complete_early(cluster *c)
{
    emulator_completion completion = c->kernel->device->options.completion;
    if (completion == COMPLETION_RANDOM && cluster_random(c) & 1)
        transfer_complete_one(c, true);
    if (completion == COMPLETION_LAZY && ++c->rounds > LAZY_ROUNDS_MAX) {
        transfer_complete_one(c, false);
        c->rounds = 0;
    }
}

/*
 * A warp has read bytes that nobody had written. The others run on for a while: if one of them writes these bytes, it
 * is their order that is wrong, and the report says so.
 */
static void look_for_writer(cluster *c)
{
    char fault[sizeof c->fault], by[AGENT_TEXT_BYTES + WHERE_BYTES];
    memcpy(fault, c->fault, sizeof fault);
    c->faulted = false;
    for (int round = 0; round < WRITER_ROUNDS_MAX && !shared_was_written(c->unwritten, c->unwritten_at, NULL, 0);
         round++) {
        uint64_t before = c->progress;
        if (!run_round(c, true) || (c->progress == before && !transfer_complete_one(c, false)))
            break;
    }
    memcpy(c->fault, fault, sizeof fault);
    c->faulted = true;
    size_t length = strlen(c->fault);
    if (shared_was_written(c->unwritten, c->unwritten_at, by, sizeof by))
        snprintf(c->fault + length, sizeof c->fault - length, "; %s", by);
}

static cluster_state end(cluster *c)
{
    if (c->unwritten)
        look_for_writer(c);
    transfers_drop(c);
    return c->faulted ? CLUSTER_FAULTED : CLUSTER_ENDED;
}

cluster_state cluster_run(cluster *c, int rounds_max)
{
    bool stuck = false;
    for (int round = 0; c->warps_left && !c->faulted && round < rounds_max; round++) {
        c->busy = c->polls = false;
        if (!run_round(c, stuck))
            break;
        if (c->busy) {
            stuck = false;
            complete_early(c);
        } else if (!stuck) {
            stuck = true; // once more, with every warp
        } else if (transfer_complete_one(c, c->kernel->device->options.completion == COMPLETION_RANDOM)) {
            c->rounds = 0;
        } else if (c->polls) {
            return CLUSTER_WAITS;
        } else if (!c->faulted) {
            fault_deadlock(c);
        }
    }
    return c->warps_left && !c->faulted ? CLUSTER_WAITS : end(c);
}
