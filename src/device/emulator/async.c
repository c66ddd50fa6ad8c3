/* async.c - work that is done later: TMA and bulk copies, cp.async, and the groups that are waited for. */
#include <stdlib.h>
#include <string.h>

#include "device/emulator/machine.h"
#include "device/emulator/tma.h"

enum { CHUNK = 16, BULK_ALIGNMENT = 16, TMA_ALIGNMENT = 128, POISON = 0xff };

typedef struct cp_async_lanes {
    lane_mask active;
    uint32_t offset[LANES], valid[LANES];
    uintptr_t global[LANES];
} cp_async_lanes;

/* The queue */

static bool complete(cluster *c, transfer *t);

static bool is_eager(const cluster *c)
{
    return c->kernel->device->options.completion == COMPLETION_EAGER;
}

static transfer *enqueue(cluster *c, transfer t)
{
    if (c->queue_count == c->queue_capacity) {
        c->queue_capacity = c->queue_capacity ? 2 * c->queue_capacity : 64;
        c->queue = realloc(c->queue, (size_t)c->queue_capacity * sizeof *c->queue);
        if (!c->queue)
            abort();
    }
    c->queue[c->queue_count] = t;
    return &c->queue[c->queue_count++];
}

/* Takes a transfer out of the queue, in whose order the others stay, and does it. */
static bool complete_at(cluster *c, int i)
{
    transfer t = c->queue[i];
    c->queue_count--;
    memmove(c->queue + i, c->queue + i + 1, (size_t)(c->queue_count - i) * sizeof t);
    c->progress++;
    bool done = complete(c, &t);
    free(t.lanes);
    return done;
}

bool transfer_complete_one(cluster *c, bool any_order)
{
    if (!c->queue_count)
        return false;
    int i = any_order ? (int)(cluster_random(c) % (uint64_t)c->queue_count) : 0;
    return complete_at(c, i);
}

/* Does all transfers of a kind and queue up to a group. False after a fault. */
static bool complete_groups(warp *w, transfer_kind kind, int lane, uint32_t groups)
{
    cluster *c = w->cluster;
    for (int i = 0; i < c->queue_count;) {
        const transfer *t = &c->queue[i];
        bool wanted = t->kind == kind && t->w == w && (lane < 0 || t->lane == lane) && t->group < groups;
        if (!wanted)
            i++;
        else if (!complete_at(c, i))
            return false;
    }
    return true;
}

/* Asynchronous work starts: at once if it is eager. */
static outcome begin(cluster *c, transfer t)
{
    enqueue(c, t);
    if (!is_eager(c))
        return ADVANCE;
    return complete_at(c, c->queue_count - 1) ? ADVANCE : FAULTED;
}

/* Copying. Shared memory was checked when the copy began, global memory is checked as it is done. */

typedef struct walk {
    const transfer *t;
    cta *c;
    int span; // of the swizzle
    bool ok;
    const access *touch; // a store's: note what is read; NULL: move the data
} walk;

static uint32_t shared_place(const walk *x, uint32_t offset)
{
    return shared_offset(swizzle_address(SHARED_BASE + x->t->offset + offset, x->span));
}

static void load_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    walk *x = user;
    if (!x->ok)
        return;
    if (global && !global_check(x->t->w, x->t->s, x->t->lane, (uintptr_t)global, bytes, 1, false)) {
        x->ok = false;
        return;
    }
    for (uint32_t at = 0, part; at < bytes; at += part) {
        part = CHUNK - (offset + at) % CHUNK;
        part = part < bytes - at ? part : bytes - at;
        unsigned char *to = x->c->shared + shared_place(x, offset + at);
        if (global)
            memcpy(to, global + at, part);
        else
            memset(to, 0, part);
    }
}

/* f32, f16, bf16 and integers: what cp.reduce.async.bulk.tensor adds. */
static bool add_run(const transfer *t, unsigned char *global, const unsigned char *from, uint32_t bytes)
{
    ir_type type = t->map->dtype;
    ir_inst add = { .op = IR_RED, .type = type, .mode = IR_RED_ADD };
    uint32_t size = (uint32_t)ckl_dtype_bytes(type);
    if (!global_check(t->w, t->s, t->lane, (uintptr_t)global, bytes, 1, false))
        return false;
    for (uint32_t at = 0; at < bytes; at += size) {
        uint64_t value = 0;
        memcpy(&value, from + at, size);
        move_atomic(&add, global + at, value, 0);
    }
    return true;
}

static bool store_part(const walk *x, unsigned char *global, uint32_t place, uint32_t bytes)
{
    const transfer *t = x->t;
    if (x->touch)
        return shared_touch(x->c, x->touch, place, bytes);
    if (t->map && t->s->inst->mode == 1)
        return add_run(t, global, x->c->shared + place, bytes);
    if (!global_check(t->w, t->s, t->lane, (uintptr_t)global, bytes, 1, true))
        return false;
    memcpy(global, x->c->shared + place, bytes);
    return true;
}

static void store_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    walk *x = user;
    for (uint32_t at = 0, part; global && x->ok && at < bytes; at += part) {
        part = CHUNK - (offset + at) % CHUNK;
        part = part < bytes - at ? part : bytes - at;
        x->ok = store_part(x, global + at, shared_place(x, offset + at), part);
    }
}

static bool walk_transfer(walk *x, tma_run *run)
{
    const transfer *t = x->t;
    x->ok = true;
    if (t->map) {
        x->span = (int)t->map->swizzle;
        tma_walk(t->map, t->coordinates, run, x);
    } else {
        run(x, 0, (unsigned char *)t->global, t->bytes); // NOLINT: device addresses are host addresses
    }
    return x->ok;
}

static bool complete_load(cluster *c, const transfer *t)
{
    for (int r = 0; r < c->cta_count; r++) {
        if (!(t->to_ctas >> r & 1))
            continue;
        cta *to = &c->ctas[r];
        if (to->warps_left == 0) {
            fault(t->w, t->s, t->lane, "access to an exited CTA", "the copy arrives in CTA rank %d, which has left", r);
            return false;
        }
        mbarrier *b = &to->barriers[to->barrier_of[t->barrier / MBARRIER_BYTES] - 1];
        if (!walk_transfer(&(walk){ .t = t, .c = to }, load_run) ||
            !mbarrier_transferred(t->w, t->s, t->lane, b, t->bytes, t->phase[r]))
            return false;
    }
    c->count[COUNT_TMA_LOAD_BYTES] += t->bytes;
    return true;
}

static bool complete_store(cluster *c, const transfer *t)
{
    c->count[COUNT_TMA_STORE_BYTES] += t->bytes;
    return walk_transfer(&(walk){ .t = t, .c = t->w->cta }, store_run);
}

static bool complete_cp_async(const transfer *t)
{
    const cp_async_lanes *l = t->lanes;
    unsigned char *shared = t->w->cta->shared;
    EACH_ACTIVE (i, l->active) {
        memcpy(shared + l->offset[i], (const void *)l->global[i], l->valid[i]);
        memset(shared + l->offset[i] + l->valid[i], 0, t->bytes - l->valid[i]);
    }
    return true;
}

static bool complete(cluster *c, transfer *t)
{
    switch (t->kind) {
    case TRANSFER_LOAD:
        return complete_load(c, t);
    case TRANSFER_STORE:
        return complete_store(c, t);
    case TRANSFER_CP_ASYNC:
        return complete_cp_async(t);
    }
    return false;
}

/* Loads: bulk and TMA */

/* Bytes of shared memory that a box covers, gaps of the swizzle included. */
static uint32_t box_extent(const tensor_map_desc *map)
{
    int64_t rows = tma_box_bytes(map) / (map->box[0] * (int64_t)ckl_dtype_bytes(map->dtype));
    int64_t pitch = map->swizzle ? (int64_t)map->swizzle : map->box[0] * (int64_t)ckl_dtype_bytes(map->dtype);
    return (uint32_t)(rows * pitch);
}

/* Notes the destination as being written by the mbarrier's transfers, and spoils what was there. */
static bool begin_load_into(transfer *t, cta *to, uint32_t extent, mbarrier *b)
{
    t->phase[to->rank] = b->phase;
    if (b->transfer_phase < b->phase + 1)
        b->transfer_phase = b->phase + 1;
    access a = warp_access(t->w, t->s, t->lane, true);
    a.async = true;
    a.agent = b->agent;
    a.clock = b->phase + 1;
    if (!shared_touch(to, &a, t->offset, extent))
        return false;
    memset(to->shared + t->offset, POISON, extent);
    return true;
}

static outcome begin_load(transfer t, uint32_t address, uint32_t bar_address, uint32_t align, uint32_t extent)
{
    warp *w = t.w;
    cluster *c = w->cluster;
    if (!shared_find(w, t.s, t.lane, IR_SHARED, address, extent, align, &t.offset) ||
        !shared_find(w, t.s, t.lane, IR_SHARED, bar_address, MBARRIER_BYTES, MBARRIER_BYTES, &t.barrier))
        return FAULTED;
    for (int r = 0; r < c->cta_count; r++) {
        if (!(t.to_ctas >> r & 1))
            continue;
        uint32_t peer = (uint32_t)(r + 1) << CLUSTER_RANK_SHIFT | bar_address, unused;
        cta *to = shared_find(w, t.s, t.lane, IR_SHARED_CLUSTER, peer, MBARRIER_BYTES, MBARRIER_BYTES, &unused);
        mbarrier *b = to ? mbarrier_find(w, t.s, t.lane, to, t.barrier, true) : NULL;
        if (!b || !begin_load_into(&t, to, extent, b))
            return FAULTED;
    }
    return begin(c, t);
}

outcome run_bulk_load(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active) {
        transfer t = { .kind = TRANSFER_LOAD, .w = w, .s = s, .lane = i, .global = u64_of(w, s->in[1], i),
                       .bytes = u32_of(w, s->in[2], i), .to_ctas = 1U << w->cta->rank };
        if (t.bytes % BULK_ALIGNMENT || t.global % BULK_ALIGNMENT)
            return fault(w, s, i, "misaligned bulk copy", "%u bytes from 0x%zx are not all multiples of %d", t.bytes,
                         (size_t)t.global, BULK_ALIGNMENT);
        outcome o = begin_load(t, u32_of(w, s->in[0], i) + (uint32_t)s->inst->offset, u32_of(w, s->in[3], i),
                               BULK_ALIGNMENT, t.bytes);
        if (o != ADVANCE)
            return o;
    }
    return ADVANCE;
}

/* The tensor map parameter at an address; NULL after a fault. */
static const tensor_map_desc *find_map(warp *w, const step *s, int lane, uint64_t address)
{
    const launch_state *l = w->cluster->launch;
    for (int i = 0; i < l->kernel->ir.param_count; i++)
        if (l->kernel->ir.params[i].tensor_map && l->scalar[i] == address)
            return &l->map[i];
    fault(w, s, lane, "no tensor map", "the address 0x%zx is no tensor map parameter", (size_t)address);
    return NULL;
}

static uint32_t tma_alignment(const tensor_map_desc *map)
{
    return map->swizzle == SWIZZLE_128 ? 1024 : TMA_ALIGNMENT;
}

static bool read_coordinates(transfer *t, const operand *in)
{
    const warp *w = t->w;
    if (t->s->inst->n != t->map->rank) {
        fault(t->w, t->s, t->lane, "wrong rank", "%d coordinates for a tensor map of rank %d", t->s->inst->n, t->map->rank);
        return false;
    }
    for (int i = 0; i < t->map->rank; i++)
        t->coordinates[i] = (int32_t)u32_of(w, in[i], t->lane);
    return true;
}

outcome run_tma_load(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active) {
        uint32_t mask = u32_of(w, s->in[3], i), all = (1U << w->cluster->cta_count) - 1;
        transfer t = { .kind = TRANSFER_LOAD, .w = w, .s = s, .lane = i, .to_ctas = mask ? mask : 1U << w->cta->rank };
        t.map = find_map(w, s, i, u64_of(w, s->in[1], i));
        if (!t.map || !read_coordinates(&t, s->in + 4))
            return FAULTED;
        if (mask & ~all)
            return fault(w, s, i, "no such CTA", "multicast mask 0x%x in a cluster of %d CTAs", mask, w->cluster->cta_count);
        t.bytes = (uint32_t)tma_box_bytes(t.map);
        outcome o = begin_load(t, u32_of(w, s->in[0], i) + (uint32_t)s->inst->offset, u32_of(w, s->in[2], i),
                               tma_alignment(t.map), box_extent(t.map));
        if (o != ADVANCE)
            return o;
    }
    return ADVANCE;
}

outcome run_tma_prefetch(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active)
        if (!find_map(w, s, i, u64_of(w, s->in[0], i)))
            return FAULTED;
    return ADVANCE;
}

/* Stores */

static bulk_queue *find_bulk(warp *w, const step *s, int lane, bool create)
{
    cta *c = w->cta;
    for (int i = 0; i < c->bulk_count; i++)
        if (c->bulk[i].warp == w->index && c->bulk[i].lane == lane)
            return &c->bulk[i];
    if (!create)
        return NULL;
    uint16_t number = agent_new(w, s, (agent){ .kind = AGENT_BULK, .cta = c->rank, .warp = w->index });
    if (number == NO_AGENT)
        return NULL;
    if (c->bulk_count == c->bulk_capacity) {
        c->bulk_capacity = c->bulk_capacity ? 2 * c->bulk_capacity : 8;
        c->bulk = realloc(c->bulk, (size_t)c->bulk_capacity * sizeof *c->bulk);
        if (!c->bulk)
            abort();
    }
    c->bulk[c->bulk_count] = (bulk_queue){ .agent = number, .warp = w->index, .lane = lane };
    return &c->bulk[c->bulk_count++];
}

/* The source is read from now until the thread has waited for the group. */
static outcome begin_store(transfer t, uint32_t address, uint32_t align, uint32_t extent)
{
    warp *w = t.w;
    bulk_queue *q = find_bulk(w, t.s, t.lane, true);
    if (!q || !shared_find(w, t.s, t.lane, IR_SHARED, address, extent, align, &t.offset))
        return FAULTED;
    q->open = true;
    t.group = q->groups;
    access a = warp_access(w, t.s, t.lane, false);
    a.async = true;
    a.agent = q->agent;
    a.clock = q->groups + 1;
    if (!walk_transfer(&(walk){ .t = &t, .c = w->cta, .touch = &a }, store_run))
        return FAULTED;
    return begin(w->cluster, t);
}

outcome run_bulk_store(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active) {
        transfer t = { .kind = TRANSFER_STORE, .w = w, .s = s, .lane = i, .global = u64_of(w, s->in[0], i),
                       .bytes = u32_of(w, s->in[2], i) };
        if (t.bytes % BULK_ALIGNMENT || t.global % BULK_ALIGNMENT)
            return fault(w, s, i, "misaligned bulk copy", "%u bytes to 0x%zx are not all multiples of %d", t.bytes,
                         (size_t)t.global, BULK_ALIGNMENT);
        outcome o = begin_store(t, u32_of(w, s->in[1], i) + (uint32_t)s->inst->offset, BULK_ALIGNMENT, t.bytes);
        if (o != ADVANCE)
            return o;
    }
    return ADVANCE;
}

outcome run_tma_store(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active) {
        transfer t = { .kind = TRANSFER_STORE, .w = w, .s = s, .lane = i };
        t.map = find_map(w, s, i, u64_of(w, s->in[0], i));
        if (!t.map || !read_coordinates(&t, s->in + 2))
            return FAULTED;
        t.bytes = (uint32_t)tma_box_bytes(t.map);
        outcome o = begin_store(t, u32_of(w, s->in[1], i) + (uint32_t)s->inst->offset, tma_alignment(t.map),
                                box_extent(t.map));
        if (o != ADVANCE)
            return o;
    }
    return ADVANCE;
}

outcome run_bulk_commit(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active) {
        bulk_queue *q = find_bulk(w, s, i, true);
        if (!q)
            return FAULTED;
        q->groups++;
        q->open = false;
    }
    return ADVANCE;
}

outcome run_bulk_wait(warp *w, const step *s)
{
    EACH_ACTIVE (i, w->active) {
        bulk_queue *q = find_bulk(w, s, i, false);
        if (!q || q->groups <= (uint32_t)s->inst->n)
            continue;
        uint32_t groups = q->groups - (uint32_t)s->inst->n;
        if (!complete_groups(w, TRANSFER_STORE, i, groups))
            return FAULTED;
        q->waited = groups > q->waited ? groups : q->waited;
        w->knows.seen[q->agent] = q->waited;
        w->knows.visible[q->agent] = q->waited;
    }
    return ADVANCE;
}

/* cp.async: groups are those of the whole warp */

static bool begin_cp_async(transfer *t, int lane)
{
    warp *w = t->w;
    const step *s = t->s;
    cp_async_lanes *l = t->lanes;
    uint32_t address = u32_of(w, s->in[0], lane) + (uint32_t)s->inst->offset;
    l->global[lane] = u64_of(w, s->in[1], lane);
    l->valid[lane] = u32_of(w, s->in[2], lane);
    if (l->valid[lane] > t->bytes) {
        fault(w, s, lane, "misused cp_async", "%u bytes of %u are to be read", l->valid[lane], t->bytes);
        return false;
    }
    if (l->valid[lane] && !global_check(w, s, lane, l->global[lane], l->valid[lane], 1, false))
        return false;
    if (l->valid[lane] && l->global[lane] % t->bytes) {
        fault(w, s, lane, "misaligned global access", "address 0x%zx is no multiple of %u", (size_t)l->global[lane], t->bytes);
        return false;
    }
    if (!shared_find(w, s, lane, IR_SHARED, address, t->bytes, t->bytes, &l->offset[lane]))
        return false;
    access a = warp_access(w, s, lane, true);
    a.agent = w->cp_agent;
    a.clock = w->cp_groups + 1;
    if (!shared_touch(w->cta, &a, l->offset[lane], t->bytes))
        return false;
    memset(w->cta->shared + l->offset[lane], POISON, t->bytes);
    return true;
}

outcome run_cp_async(warp *w, const step *s)
{
    if (w->cp_agent == NO_AGENT)
        w->cp_agent = agent_new(w, s, (agent){ .kind = AGENT_CP_ASYNC, .cta = w->cta->rank, .warp = w->index });
    if (w->cp_agent == NO_AGENT)
        return FAULTED;
    transfer t = { .kind = TRANSFER_CP_ASYNC, .w = w, .s = s, .bytes = (uint32_t)s->inst->n, .group = w->cp_groups,
                   .lanes = calloc(1, sizeof(cp_async_lanes)) };
    if (!t.lanes)
        abort();
    t.lanes->active = w->active;
    EACH_ACTIVE (i, w->active)
        if (!begin_cp_async(&t, i)) {
            free(t.lanes);
            return FAULTED;
        }
    uintptr_t global[LANES];
    for (int i = 0; i < LANES; i++)
        global[i] = t.lanes->global[w->active >> i & 1 ? i : first_lane(w->active)];
    count_global(w, global, s->inst->n, false);
    return begin(w->cluster, t);
}

outcome run_cp_async_commit(warp *w, const step *s)
{
    (void)s;
    w->cp_groups++;
    return ADVANCE;
}

outcome run_cp_async_wait(warp *w, const step *s)
{
    uint32_t pending = (uint32_t)s->inst->n;
    if (w->cp_groups <= pending || w->cp_agent == NO_AGENT)
        return ADVANCE;
    uint32_t groups = w->cp_groups - pending;
    if (!complete_groups(w, TRANSFER_CP_ASYNC, -1, groups))
        return FAULTED;
    if (w->knows.seen[w->cp_agent] < groups)
        w->knows.seen[w->cp_agent] = groups;
    return ADVANCE;
}

/* Copies issued so far, committed or not, are done first. */
outcome run_cp_async_arrive(warp *w, const step *s)
{
    uint32_t groups = w->cp_groups + 1;
    if (!complete_groups(w, TRANSFER_CP_ASYNC, -1, groups))
        return FAULTED;
    EACH_ACTIVE (i, w->active)
        if (!mbarrier_arrive_async(w, s, i, groups))
            return FAULTED;
    return ADVANCE;
}

/* Leaving */

bool warp_may_leave(warp *w, const step *s)
{
    if (w->wgmma_issued && w->wgmma_waited < w->wgmma_groups + 1U * w->wgmma_open) {
        fault(w, s, -1, "exit with work under way", "wgmma was issued and not waited for");
        return false;
    }
    for (int i = 0; i < w->cta->bulk_count; i++) {
        const bulk_queue *q = &w->cta->bulk[i];
        if (q->warp == w->index && (q->open || q->waited < q->groups)) {
            fault(w, s, q->lane, "exit with work under way",
                  "a bulk store may still read the CTA's shared memory; bulk_wait must come before the end");
            return false;
        }
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

bool cta_may_leave(warp *w, const step *s)
{
    cta *c = w->cta;
    for (int i = 0; i < c->barrier_count; i++) {
        const mbarrier *b = &c->barriers[i];
        if (was_seen(c, b->agent, b->transfer_phase))
            continue;
        fault(w, s, -1, "exit with work under way",
              "the CTA leaves without having waited for a copy into its shared memory on the mbarrier at offset %u", b->offset);
        return false;
    }
    for (uint16_t i = 0; c->visited && i < c->cluster->warp_count; i++) {
        const visitor *v = &c->visitors[i];
        if (was_seen(c, i, v->clock))
            continue;
        char who[AGENT_TEXT_BYTES];
        fault(w, s, -1, "access to an exited CTA",
              "CTA rank %d leaves, and nothing orders its end after the access of %s to its shared memory at %s:%d", c->rank,
              agent_text(c->cluster, i, who, sizeof who), v->s->inst->file, v->s->inst->line);
        return false;
    }
    return true;
}
