/* shared.c - shared memory and its shadow: addresses, initialisation, races, the proxy of every access. */
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "device/emulator/machine.h"

enum { READ_SET = 0xfffe }; // read_agent of a cell with several unordered readers

/* Addresses */

static cta *find_cta(warp *w, const step *s, int lane, ir_space space, uint32_t address)
{
    uint32_t rank = address >> CLUSTER_RANK_SHIFT;
    if (space != IR_SHARED_CLUSTER || rank == 0)
        return w->cta;
    if (rank > (uint32_t)w->cluster->cta_count) {
        fault(w, s, lane, "out-of-bounds shared access", "0x%x is no address of this cluster of %d CTAs", address,
              w->cluster->cta_count);
        return NULL;
    }
    return &w->cluster->ctas[rank - 1];
}

/* Shared memory of another CTA may be used after a cluster barrier with it, and before it leaves. */
static bool is_there(warp *w, const step *s, int lane, const cta *c)
{
    bool met = c == w->cta;
    if (c->warps_left == 0)
        return fault(w, s, lane, "access to an exited CTA",
                     "CTA rank %d of the cluster has left; a cluster barrier must keep it", c->rank);
    for (int i = 0; i < w->cluster->kernel->warps && !met; i++)
        met = w->knows.seen[c->warps[i].agent] > 0;
    if (!met)
        fault(w, s, lane, "access to a CTA that may not have started",
              "no cluster barrier lies between the start of CTA rank %d and this access", c->rank);
    return met;
}

void shared_visit(const warp *w, const step *s, cta *c)
{
    if (c == w->cta)
        return;
    c->visitors[w->agent] = (visitor){ warp_clock(w), s };
    c->visited = true;
}

cta *shared_find(warp *w, const step *s, int lane, ir_space space, uint32_t address, uint32_t bytes, uint32_t align,
                 uint32_t *offset)
{
    cta *c = find_cta(w, s, lane, space, address);
    if (!c)
        return NULL;
    uint32_t local = space == IR_SHARED_CLUSTER ? address & ((1U << CLUSTER_RANK_SHIFT) - 1) : address;
    uint64_t size = (uint64_t)w->cluster->kernel->ir.smem_bytes;
    if (local < SHARED_BASE || local - SHARED_BASE + (uint64_t)bytes > size) {
        fault(w, s, lane, "out-of-bounds shared access",
              "%u bytes at %s, offset %" PRId64 " of the kernel's %" PRIu64 " bytes of shared memory", bytes,
              local < SHARED_BASE ? "no allocation" : PLACE(w, shared_offset(local)), (int64_t)local - SHARED_BASE,
              size);
        return NULL;
    }
    if (local % align) {
        fault(w, s, lane, "misaligned shared access", "%s, address 0x%x, is no multiple of %u",
              PLACE(w, shared_offset(local)), address, align);
        return NULL;
    }
    *offset = shared_offset(local);
    return is_there(w, s, lane, c) ? c : NULL;
}

access warp_access(warp *w, const step *s, int lane, bool write)
{
    return (access){
        .w = w, .s = s, .lane = lane, .knows = &w->knows, .agent = w->agent, .clock = warp_clock(w), .write = write
    };
}

/* Faults */

static const char *source_of(const cluster *c, uint32_t index, char *room, size_t bytes)
{
    const ir_inst *inst = c->kernel->steps[index].inst;
    snprintf(room, bytes, "%s:%d", inst->file, inst->line);
    return room;
}

static bool race(const access *a, uint32_t offset, uint16_t other, uint32_t other_step, const char *what)
{
    static const char *const advice[] = {
        [AGENT_WARP] = "no barrier orders them",
        [AGENT_TRANSFER] = "the mbarrier of that copy was not waited for",
        [AGENT_WGMMA] = "no wgmma_wait lies between them",
        [AGENT_BULK] = "no bulk_wait lies between them",
        [AGENT_CP_ASYNC] = "no cp_async_wait lies between them",
    };
    cluster *c = a->w->cluster;
    char who[AGENT_TEXT_BYTES], where[WHERE_BYTES];
    agent_kind kind = c->agents[other].kind;
    const char *name =
        kind == AGENT_TRANSFER && !a->write ? "read of a copy that has not arrived" : "shared-memory race";
    return fault(a->w, a->s, access_lane(a, offset), name, "%s of %s meets the %s by %s at %s; %s",
                 a->write ? "write" : "read", PLACE(a->w, offset), what, agent_text(c, other, who, sizeof who),
                 source_of(c, other_step, where, sizeof where), advice[kind]);
}

/* Of a cell that lanes side by side use together: the first in 5 bits, above them the logarithm of how many. */
enum { LANE_BITS = 5 };

static uint8_t lanes_at(const access *a, uint32_t offset, uint32_t bytes)
{
    const int first = access_lane(a, offset), more = access_lane(a, offset + bytes - 1) - first;
    const int log2 = more ? log2_i64(more) + 1 : 0;
    return (uint8_t)((first & (LANES - 1)) | log2 << LANE_BITS);
}

static int first_of(uint8_t lanes)
{
    return lanes & ((1 << LANE_BITS) - 1);
}

static lane_mask mask_of_lanes(uint8_t lanes)
{
    return (lane_mask)(((UINT64_C(1) << (1 << (lanes >> LANE_BITS))) - 1) << first_of(lanes));
}

/* The lanes of one of `parts` equal parts of such a cell. */
static uint8_t lanes_of_part(uint8_t lanes, int part, int parts)
{
    const int log2 = lanes >> LANE_BITS, less = log2 - log2_i64(parts);
    const int first = first_of(lanes) + ((part << log2) >> log2_i64(parts));
    return (uint8_t)(first | (less > 0 ? less : 0) << LANE_BITS);
}

/* What a warp's lane did is known where it arrived by itself, or met the lane that did. */
static bool knows_lane(const access *a, uint16_t who, uint32_t clock, uint8_t lanes)
{
    const knowledge *k = a->knows;
    return who >= a->w->cluster->warp_count || who == a->w->agent || clock <= k->whole[who] ||
           !(mask_of_lanes(lanes) & ~k->lanes[who]);
}

static bool knows_reader(const access *a, uint16_t who, uint32_t clock, uint8_t lanes)
{
    return knows_lane(a, who, clock, lanes) || clock <= a->knows->read[who];
}

static bool lane_race(const access *a, uint32_t offset, uint16_t other, uint32_t other_step, uint8_t lanes,
                      const char *what)
{
    cluster *c = a->w->cluster;
    const int lane = first_lane(mask_of_lanes(lanes) & ~a->knows->lanes[other]);
    char who[AGENT_TEXT_BYTES], where[WHERE_BYTES];
    return fault(
        a->w, a->s, access_lane(a, offset), "shared-memory race",
        "%s of %s meets the %s by lane %d of %s at %s; another lane arrived: a warp_sync before that is missing",
        a->write ? "write" : "read", PLACE(a->w, offset), what, lane, agent_text(c, other, who, sizeof who),
        source_of(c, other_step, where, sizeof where));
}

static bool missing_fence(const access *a, uint32_t offset, uint16_t other, uint32_t other_step, bool wrote)
{
    cluster *c = a->w->cluster;
    char who[AGENT_TEXT_BYTES], where[WHERE_BYTES];
    return fault(a->w, a->s, access_lane(a, offset), "missing fence_proxy_async",
                 "the async proxy %s %s, which %s %s at %s with an ordinary %s; fence_proxy_async must follow the %s",
                 a->write ? "overwrites" : "reads", PLACE(a->w, offset), agent_text(c, other, who, sizeof who),
                 wrote ? "wrote" : "read", source_of(c, other_step, where, sizeof where), wrote ? "store" : "load",
                 wrote ? "store" : "load");
}

/* Reads before writes */

void shared_unwritten(warp *w, cta *c, uint32_t offset)
{
    w->cluster->stopped = w;
    w->cluster->unwritten = c;
    w->cluster->unwritten_at = offset;
}

bool shared_was_written(const cta *c, uint32_t offset, char *by, size_t by_bytes)
{
    static const char *const missing[] = {
        [AGENT_WARP] = "a barrier between them is missing",
        [AGENT_TRANSFER] = "the wait for that mbarrier is missing",
        [AGENT_CP_ASYNC] = "cp_async_wait and a barrier are missing",
    };
    const cell *x = &c->cells[TIER_CHUNK][offset / TIER_SPAN[TIER_CHUNK]];
    for (int tier = 1; x->flags & CELL_SPLIT; tier++)
        x = &c->cells[tier][offset / TIER_SPAN[tier]];
    if (x->write_clock == 0)
        return false;
    char who[AGENT_TEXT_BYTES], where[WHERE_BYTES];
    agent_kind kind = c->cluster->agents[x->write_agent].kind;
    if (by)
        snprintf(by, by_bytes, "%s writes it later, at %s: %s", agent_text(c->cluster, x->write_agent, who, sizeof who),
                 source_of(c->cluster, x->write_step, where, sizeof where), missing[kind]);
    return true;
}

/* Several readers */

static uint32_t set_draw(cluster *c)
{
    if (c->set_free) {
        uint32_t index = c->set_free;
        c->set_free = c->sets[index].next_free;
        return index;
    }
    if (c->set_count == c->set_capacity) {
        uint32_t before = c->set_capacity;
        c->set_capacity = before ? 2 * before : 256;
        c->sets = heap_resize(c->sets, c->set_capacity, sizeof *c->sets);
    }
    if (c->set_count == 0)
        c->set_count = 1; // index 0 means none
    return c->set_count++;
}

static uint32_t set_new(cluster *c)
{
    uint32_t index = set_draw(c);
    reader_set *set = &c->sets[index];
    if (!set->clock) {
        set->clock = heap_alloc((size_t)c->agent_max, sizeof *set->clock);
        set->lanes = heap_alloc((size_t)c->warp_count, sizeof *set->lanes);
    }
    memset(set->clock, 0, (size_t)c->agent_peak * sizeof *set->clock);
    return index;
}

static void set_free(cluster *c, uint32_t index)
{
    c->sets[index].next_free = c->set_free;
    c->set_free = index;
}

/* The first agent of a set that read later than those clocks; NO_AGENT if none did. */
static uint16_t set_beyond(const cluster *c, uint32_t index, const uint32_t *known)
{
    const uint32_t *clock = c->sets[index].clock;
    for (int i = 0; i < c->agent_count; i++)
        if (clock[i] > known[i])
            return (uint16_t)i;
    return NO_AGENT;
}

/* The agent reads, too. Of asynchronous ones there are no lanes. */
static void set_add(cluster *c, uint32_t index, uint16_t who, uint32_t clock, uint8_t lanes)
{
    c->sets[index].clock[who] = clock;
    if (who < c->warp_count)
        c->sets[index].lanes[who] = lanes;
}

/* One cell */

static bool check_write_before(const access *a, const cell *x, uint32_t offset)
{
    if (x->write_clock == 0)
        return true;
    if (x->write_clock > a->knows->seen[x->write_agent])
        return race(a, offset, x->write_agent, x->write_step, "write");
    if (!knows_lane(a, x->write_agent, x->write_clock, x->write_lanes))
        return lane_race(a, offset, x->write_agent, x->write_step, x->write_lanes, "write");
    if (a->async && !(x->flags & CELL_ASYNC) && x->write_clock > a->knows->visible[x->write_agent])
        return missing_fence(a, offset, x->write_agent, x->write_step, true);
    return true;
}

/* An agent that read the cell later than those clocks; NO_AGENT if none did. */
static uint16_t reader_beyond(const access *a, const cell *x, const uint32_t *known)
{
    if (x->read_agent == READ_SET)
        return set_beyond(a->w->cluster, x->read_clock, known);
    return x->read_clock > known[x->read_agent] ? x->read_agent : NO_AGENT;
}

/* The first reader of which another lane has arrived; NO_AGENT: there is none. */
static uint16_t reader_by_lane(const access *a, const cell *x, uint8_t *lanes)
{
    const cluster *c = a->w->cluster;
    *lanes = x->read_lanes;
    if (x->read_agent != READ_SET)
        return knows_reader(a, x->read_agent, x->read_clock, x->read_lanes) ? NO_AGENT : x->read_agent;
    const reader_set *set = &c->sets[x->read_clock];
    for (int i = 0; i < c->warp_count; i++)
        if (!knows_reader(a, (uint16_t)i, set->clock[i], set->lanes[i])) {
            *lanes = set->lanes[i];
            return (uint16_t)i;
        }
    return NO_AGENT;
}

static bool check_reads_before(const access *a, const cell *x, uint32_t offset)
{
    uint8_t lanes;
    if (x->read_clock == 0)
        return true;
    uint16_t reader = reader_beyond(a, x, a->knows->seen);
    if (reader != NO_AGENT)
        return race(a, offset, reader, x->read_step, "read");
    reader = reader_by_lane(a, x, &lanes);
    if (reader != NO_AGENT)
        return lane_race(a, offset, reader, x->read_step, lanes, "read");
    reader = a->async ? reader_beyond(a, x, a->knows->visible) : NO_AGENT;
    return reader == NO_AGENT || missing_fence(a, offset, reader, x->read_step, false);
}

static void note_write(const access *a, cell *x, uint8_t lanes)
{
    if (x->read_agent == READ_SET && x->read_clock)
        set_free(a->w->cluster, x->read_clock);
    x->read_clock = 0;
    x->read_agent = 0;
    x->write_clock = a->clock;
    x->write_agent = a->agent;
    x->write_step = (uint32_t)a->s->index;
    x->write_lanes = lanes;
    x->flags = (uint8_t)(CELL_WRITTEN | (a->async ? CELL_ASYNC : 0));
}

static void note_read(const access *a, cell *x, uint8_t lanes)
{
    cluster *c = a->w->cluster;
    a->w->has_read = true;
    x->read_step = (uint32_t)a->s->index;
    if (x->read_agent == READ_SET && x->read_clock) {
        set_add(c, x->read_clock, a->agent, a->clock, lanes);
        return;
    }
    bool ordered = x->read_agent == a->agent || x->read_clock <= a->knows->seen[x->read_agent];
    if (!ordered) {
        uint32_t index = set_new(c);
        set_add(c, index, x->read_agent, x->read_clock, x->read_lanes);
        set_add(c, index, a->agent, a->clock, lanes);
        x->read_agent = READ_SET;
        x->read_clock = index;
        return;
    }
    x->read_agent = a->agent;
    x->read_clock = a->clock;
    x->read_lanes = lanes;
}

static bool undefined_read(const access *a, const cell *x, uint32_t offset)
{
    char where[WHERE_BYTES];
    return fault(a->w, a->s, access_lane(a, offset), "read of uninitialised shared memory",
                 "%s came by cp_async at %s from global memory that was never written", PLACE(a->w, offset),
                 source_of(a->w->cluster, x->write_step, where, sizeof where));
}

static bool touch_cell(cta *c, const access *a, cell *x, uint32_t offset, uint32_t bytes)
{
    if (x->flags & CELL_MBARRIER)
        return fault(a->w, a->s, access_lane(a, offset), "access to an mbarrier",
                     "%s belongs to an mbarrier that is in use", PLACE(a->w, offset));
    if (x->flags & CELL_UNDEFINED && !a->write)
        return undefined_read(a, x, offset);
    if (!(x->flags & CELL_WRITTEN) && !a->write) {
        fault(a->w, a->s, access_lane(a, offset), "read of uninitialised shared memory",
              "%s is read before it was written", PLACE(a->w, offset));
        shared_unwritten(a->w, c, offset);
        return false;
    }
    if (!check_write_before(a, x, offset))
        return false;
    if (!a->write) {
        note_read(a, x, lanes_at(a, offset, bytes));
        return true;
    }
    if (!check_reads_before(a, x, offset))
        return false;
    note_write(a, x, lanes_at(a, offset, bytes));
    return true;
}

/* Parts of a cell */

/* From now on its parts are tracked one by one. A set of readers has one owner: the other parts copy it. */
static void split(cta *on, int tier, uint32_t offset)
{
    cluster *c = on->cluster;
    uint32_t span = TIER_SPAN[tier], part = TIER_SPAN[tier + 1];
    cell *whole = &on->cells[tier][offset / span], *parts;
    if (whole->flags & CELL_SPLIT)
        return;
    if (!on->cells[tier + 1])
        on->cells[tier + 1] = heap_alloc(cluster_shared_bytes(c) / part, sizeof(cell));
    parts = &on->cells[tier + 1][offset / span * (span / part)];
    for (uint32_t i = 0; i < span / part; i++) {
        parts[i] = *whole;
        parts[i].write_lanes = lanes_of_part(whole->write_lanes, (int)i, (int)(span / part));
        parts[i].read_lanes = lanes_of_part(whole->read_lanes, (int)i, (int)(span / part));
        if (i && whole->read_agent == READ_SET && whole->read_clock) {
            parts[i].read_clock = set_new(c);
            memcpy(c->sets[parts[i].read_clock].clock, c->sets[whole->read_clock].clock,
                   (size_t)c->agent_count * sizeof(uint32_t));
            for (int w = 0; w < c->warp_count; w++)
                c->sets[parts[i].read_clock].lanes[w] =
                    lanes_of_part(c->sets[whole->read_clock].lanes[w], (int)i, (int)(span / part));
        }
    }
    *whole = (cell){ .flags = CELL_SPLIT };
}

/* The cell of a byte, which counts from now on. */
static cell *byte_cell(cta *c, uint32_t offset)
{
    for (int coarser = TIER_CHUNK; coarser < TIER_BYTE; coarser++)
        split(c, coarser, offset);
    return &c->cells[TIER_BYTE][offset];
}

/* Bytes from .. to, of which this tier has whole cells or parts. After a write of all its parts a cell is one again. */
static bool touch_tier(cta *c, const access *a, int tier, uint32_t from, uint32_t to)
{
    const uint32_t span = TIER_SPAN[tier];
    for (uint32_t at = from, next; at < to; at = next) {
        next = at - at % span + span < to ? at - at % span + span : to;
        cell *x = &c->cells[tier][at / span];
        bool whole = next - at == span;
        if (tier == TIER_BYTE || (whole && !(x->flags & CELL_SPLIT))) {
            if (!touch_cell(c, a, x, at, next - at))
                return false;
            continue;
        }
        split(c, tier, at);
        if (!touch_tier(c, a, tier + 1, at, next))
            return false;
        if (a->write && whole) {
            *x = c->cells[tier + 1][at / TIER_SPAN[tier + 1]];
            x->write_lanes = lanes_at(a, at, span);
        }
    }
    return true;
}

bool shared_touch(cta *c, const access *a, uint32_t offset, uint32_t bytes)
{
    for (uint32_t block = offset / SHARED_BLOCK; block * SHARED_BLOCK < offset + bytes; block++)
        c->touched[block] = true;
    return touch_tier(c, a, TIER_CHUNK, offset, offset + bytes);
}

void shared_undefine(cta *c, uint32_t offset, uint32_t bytes)
{
    for (uint32_t at = offset; bytes; at++, bytes >>= 1) {
        if (!(bytes & 1))
            continue;
        cell *x = byte_cell(c, at);
        x->flags = (uint8_t)((x->flags & ~CELL_WRITTEN) | CELL_UNDEFINED);
    }
}

void shared_mark_mbarrier(cta *c, uint32_t offset)
{
    for (uint32_t at = offset; at < offset + IR_MBARRIER_BYTES; at++)
        byte_cell(c, at)->flags = CELL_MBARRIER;
}

outcome run_mapa(warp *w, const step *s)
{
    result aside;
    lane_u32 *d = result_begin(w, s->out[0], &aside);
    const lane_u32 *address = lanes_of(w, s->in[0]), *rank = lanes_of(w, s->in[1]);
    EACH_ACTIVE(i, w->active)
        if (rank[i] >= (uint32_t)w->cluster->cta_count)
            return fault(w, s, i, "no such CTA", "mapa of rank %u in a cluster of %d CTAs", rank[i],
                         w->cluster->cta_count);
    EACH_LANE(i)
        d[i] = (address[i] & ((1U << CLUSTER_RANK_SHIFT) - 1)) | (rank[i] + 1) << CLUSTER_RANK_SHIFT;
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}
