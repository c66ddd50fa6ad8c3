/* bulk.c - bulk copies, TMA and values for peers: loads that complete on mbarriers, stores waited for in groups. */
#include <inttypes.h>
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"
#include "device/emulator/tma.h"

enum { BULK_ALIGNMENT = 16, TMA_ALIGNMENT = 128, TMA_SWIZZLE_128_ALIGNMENT = 1024 };

/* One thread issues a copy: two lanes that issue the same one are a mistake. False after a fault. */
static bool is_issued_once(warp *w, const step *s)
{
    int first = first_lane(w->active);
    EACH_ACTIVE(i, w->active & ~(1U << first)) {
        bool same = true;
        for (int j = 0; j < s->inst->in_count && same; j++) {
            const unsigned char *lanes = lanes_of(w, s->in[j]);
            size_t bytes = (size_t)s->in[j].bytes;
            same = memcmp(lanes + (size_t)first * bytes, lanes + (size_t)i * bytes, bytes) == 0;
        }
        if (same)
            return fault(w, s, i, "copy issued by several lanes",
                         "lanes %d and %d issue the same %s; one thread must, in IF(elect()) or by its number", first,
                         i, ir_op_text(s->inst->op));
    }
    return true;
}

/* Loads */

/* Bytes of shared memory that a box covers, gaps of the swizzle included. */
static uint32_t box_extent(const tensor_map_desc *map)
{
    int64_t rows = tma_box_bytes(map) / (map->box[0] * (int64_t)ckl_dtype_bytes(map->dtype));
    int64_t pitch = map->swizzle ? (int64_t)map->swizzle : map->box[0] * (int64_t)ckl_dtype_bytes(map->dtype);
    return (uint32_t)(rows * pitch);
}

/* Marks the destination as being written by the mbarrier's transfers, and poisons it. */
static bool begin_load_into(transfer *t, cta *to, uint32_t extent, mbarrier *b)
{
    t->phase[to->rank] = b->phase;
    if (b->transfer_phase < b->phase + 1)
        b->transfer_phase = b->phase + 1;
    access a = warp_access(t->w, t->s, t->lane, true);
    a.async = t->kind == TRANSFER_LOAD; // values for peers are ordinary stores, done later
    a.agent = b->agent;
    a.clock = b->phase + 1;
    const bool dense = extent == t->bytes; // else rows leave part of their swizzle's span as it was
    if (dense ? !shared_touch(to, &a, t->offset, extent) : !transfer_touch_destination(t, to, &a))
        return false;
    access from = a;
    from.write = false;
    if (t->kind == TRANSFER_LOAD && !transfer_touch_global(t, &from))
        return false;
    if (dense)
        memset(to->shared + t->offset, SHARED_POISON, extent);
    return true;
}

static bool begin_load(transfer t, uint32_t address, uint32_t bar_address, uint32_t align, uint32_t extent)
{
    warp *w = t.w;
    if (!shared_find(w, t.s, t.lane, IR_SHARED, address, extent, align, &t.offset) ||
        !shared_find(w, t.s, t.lane, IR_SHARED, bar_address, IR_MBARRIER_BYTES, IR_MBARRIER_BYTES, &t.barrier))
        return false;
    EACH_ACTIVE(r, t.to_ctas) {
        uint32_t peer = (uint32_t)(r + 1) << CLUSTER_RANK_SHIFT | bar_address, unused;
        cta *to = shared_find(w, t.s, t.lane, IR_SHARED_CLUSTER, peer, IR_MBARRIER_BYTES, IR_MBARRIER_BYTES, &unused);
        mbarrier *b = to ? mbarrier_find(w, t.s, t.lane, to, t.barrier, true) : NULL;
        if (!b || !begin_load_into(&t, to, extent, b))
            return false;
    }
    return transfer_begin(w->cluster, t);
}

static bool is_aligned(warp *w, const step *s, int lane, uint32_t bytes, const char *way, uint64_t global)
{
    if (bytes % BULK_ALIGNMENT == 0 && global % BULK_ALIGNMENT == 0)
        return true;
    return fault(w, s, lane, "misaligned bulk copy", "%u bytes %s 0x%zx are not all multiples of %d", bytes, way,
                 (size_t)global, BULK_ALIGNMENT);
}

outcome run_bulk_load(warp *w, const step *s)
{
    if (!is_issued_once(w, s))
        return FAULTED;
    EACH_ACTIVE(i, w->active) {
        transfer t = { .kind = TRANSFER_LOAD,
                       .w = w,
                       .s = s,
                       .lane = i,
                       .global = u64_of(w, s->in[1], i),
                       .bytes = u32_of(w, s->in[2], i),
                       .to_ctas = 1U << w->cta->rank };
        if (!is_aligned(w, s, i, t.bytes, "from", t.global) ||
            !begin_load(t, u32_of(w, s->in[0], i) + (uint32_t)s->inst->offset, u32_of(w, s->in[3], i), BULK_ALIGNMENT,
                        t.bytes))
            return FAULTED;
    }
    return ADVANCE;
}

/* The CTA of a value and its mbarrier, which lie in the same one; NULL after a fault. */
static cta *find_receiver(transfer *t, uint32_t address, uint32_t bar_address)
{
    warp *w = t->w;
    cta *to = shared_find(w, t->s, t->lane, IR_SHARED_CLUSTER, address, t->bytes, t->bytes, &t->offset);
    cta *guard = shared_find(w, t->s, t->lane, IR_SHARED_CLUSTER, bar_address, IR_MBARRIER_BYTES, IR_MBARRIER_BYTES,
                             &t->barrier);
    if (to && guard && to != guard)
        fault(w, t->s, t->lane, "misused st_async", "the value goes to CTA rank %d, its mbarrier is in rank %d",
              to->rank, guard->rank);
    return to == guard ? to : NULL;
}

static bool store_async(warp *w, const step *s, int lane)
{
    transfer t = { .kind = TRANSFER_VALUE, .w = w, .s = s, .lane = lane, .bytes = (uint32_t)s->in[2].bytes };
    memcpy(&t.global, (const unsigned char *)lanes_of(w, s->in[2]) + (size_t)lane * t.bytes, t.bytes);
    cta *to = find_receiver(&t, u32_of(w, s->in[0], lane) + (uint32_t)s->inst->offset, u32_of(w, s->in[1], lane));
    mbarrier *b = to ? mbarrier_find(w, s, lane, to, t.barrier, true) : NULL;
    if (!b || !begin_load_into(&t, to, t.bytes, b))
        return false;
    shared_visit(w, s, to);
    warp_release(w, 1U << lane, &b->gather);
    t.to_ctas = 1U << to->rank;
    return transfer_begin(w->cluster, t);
}

outcome run_store_async(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active)
        if (!store_async(w, s, i))
            return FAULTED;
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
    return map->swizzle == SWIZZLE_128 ? TMA_SWIZZLE_128_ALIGNMENT : TMA_ALIGNMENT;
}

outcome run_prefetch(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active)
        if (!global_check(w, s, i, u64_of(w, s->in[0], i), 1, 1, false))
            return FAULTED;
    return ADVANCE;
}

/* What is lost reads as all ones. */
outcome run_discard(warp *w, const step *s)
{
    enum { LINE_BYTES = 128, LOST = 0xff };
    EACH_ACTIVE(i, w->active) {
        const uint64_t line = u64_of(w, s->in[0], i);
        access a = warp_access(w, s, i, true);
        if (!global_check(w, s, i, line, LINE_BYTES, LINE_BYTES, true) || !global_touch(&a, w->near, line, LINE_BYTES))
            return FAULTED;
        memset((void *)(uintptr_t)line, LOST, LINE_BYTES);
    }
    return ADVANCE;
}

/* NOTE: an H200 answers with an illegal instruction (ckl fuzz, with boxes loaded from any column). */
static bool begins_with_chunk(const transfer *t)
{
    const int64_t bytes = t->coordinates[0] * (int64_t)ckl_dtype_bytes(t->map->dtype);
    if (bytes % BULK_ALIGNMENT == 0)
        return true;
    return fault(t->w, t->s, t->lane, "misaligned box",
                 "it begins at element %d of a row, %" PRId64 " bytes in, no multiple of %d", t->coordinates[0], bytes,
                 BULK_ALIGNMENT);
}

/* im2col: the offsets, for which the hardware has 16, 8 or 5 bits (PTX ISA, tensor copies), and the first place. */
static bool read_offsets(transfer *t, const operand *in)
{
    const int rank = t->map->rank, most = 1 << (rank == 3 ? 16 : rank == 4 ? 8 : 5);
    for (int i = 0; i < rank - 2; i++) {
        const uint32_t offset = u32_of(t->w, in[i], t->lane);
        t->coordinates[rank + i] = (int32_t)offset;
        if (offset < (uint32_t)most)
            continue;
        return fault(t->w, t->s, t->lane, "misused im2col load", "offset %d is %u, %d modes take less than %d", i,
                     offset, rank, most);
    }
    if (tma_is_place(t->map, t->coordinates))
        return true;
    return fault(t->w, t->s, t->lane, "misused im2col load",
                 "it begins at column %d, row %d: no place between the map's corners", t->coordinates[1],
                 rank > 3 ? t->coordinates[2] : 0);
}

static bool read_coordinates(transfer *t, const operand *in)
{
    const warp *w = t->w;
    const bool im2col = t->kind == TRANSFER_LOAD && t->s->inst->mode == 1;
    if (t->map->im2col != im2col)
        return fault(t->w, t->s, t->lane, "wrong mode of a tensor map", "%s through a map of %s mode",
                     im2col ? "an im2col load" : "a box", t->map->im2col ? "im2col" : "tiled");
    if (t->s->inst->n != t->map->rank)
        return fault(t->w, t->s, t->lane, "wrong rank", "%d coordinates for a tensor map of rank %d", t->s->inst->n,
                     t->map->rank);
    for (int i = 0; i < t->map->rank; i++)
        t->coordinates[i] = (int32_t)u32_of(w, in[i], t->lane);
    return begins_with_chunk(t) && (!im2col || read_offsets(t, in - (t->map->rank - 2)));
}

/* Has the box no element of its tensor? */
static bool is_beyond(const transfer *t)
{
    for (int i = 0; i < t->map->rank; i++) {
        const int64_t first = t->coordinates[i],
                      last = first + (t->map->box[i] - 1) * (int64_t)tensor_map_step(t->map, i);
        if (last < 0 || first >= t->map->size[i])
            return true;
    }
    return false;
}

/*
 * NOTE: by maps of all memory, which begin at address 16, an H200 loads boxes that reach beyond rows and columns, and
 * ends with an illegal address where a box lies beyond them wholly; by other maps such a box is zeros. So it may touch
 * the tensor's own address.
 */
static bool may_be_beyond(const transfer *t)
{
    const uintptr_t address = (uintptr_t)t->map->address;
    if (t->map->im2col || !is_beyond(t) || memory_find(&t->w->cluster->kernel->device->memory, address, 1))
        return true;
    return fault(t->w, t->s, t->lane, "box beyond its tensor",
                 "no element of it is in the tensor, whose address 0x%zx is no memory", (size_t)address);
}

outcome run_tma_load(warp *w, const step *s)
{
    if (!is_issued_once(w, s))
        return FAULTED;
    EACH_ACTIVE(i, w->active) {
        uint32_t mask = u32_of(w, s->in[3], i), all = (1U << w->cluster->cta_count) - 1;
        transfer t = { .kind = TRANSFER_LOAD, .w = w, .s = s, .lane = i, .to_ctas = mask ? mask : 1U << w->cta->rank };
        t.map = find_map(w, s, i, u64_of(w, s->in[1], i));
        if (!t.map || !read_coordinates(&t, s->in + s->inst->in_count - s->inst->n) || !may_be_beyond(&t))
            return FAULTED;
        if (mask & ~all)
            return fault(w, s, i, "no such CTA", "multicast mask 0x%x in a cluster of %d CTAs", mask,
                         w->cluster->cta_count);
        t.bytes = (uint32_t)tma_box_bytes(t.map);
        if (!begin_load(t, u32_of(w, s->in[0], i) + (uint32_t)s->inst->offset, u32_of(w, s->in[2], i),
                        tma_alignment(t.map), box_extent(t.map)))
            return FAULTED;
    }
    return ADVANCE;
}

outcome run_tma_prefetch(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active)
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
        c->bulk = heap_resize(c->bulk, (size_t)c->bulk_capacity, sizeof *c->bulk);
    }
    bulk_queue q = { .agent = number, .writer = NO_AGENT, .warp = w->index, .lane = lane };
    if (w->cluster->launch->ordered)
        q.writer = agent_new(w, s, (agent){ .kind = AGENT_BULK_WRITE, .cta = c->rank, .warp = w->index });
    c->bulk[c->bulk_count] = q;
    return &c->bulk[c->bulk_count++];
}

/* The source is read, and global memory written, from now until the thread has waited for the group. */
static bool begin_store(transfer t, uint32_t address, uint32_t align, uint32_t extent)
{
    warp *w = t.w;
    bulk_queue *q = find_bulk(w, t.s, t.lane, true);
    if (!q || !shared_find(w, t.s, t.lane, IR_SHARED, address, extent, align, &t.offset))
        return false;
    q->open = true;
    t.group = q->groups;
    access a = warp_access(w, t.s, t.lane, false);
    a.async = true;
    a.agent = q->agent;
    a.clock = q->groups + 1;
    access to = a;
    to.write = true;
    to.agent = q->writer;
    to.strong = t.map && t.s->inst->mode == IR_TMA_ADD; // adds are relaxed atomics of the GPU
    to.scope = IR_SCOPE_GPU;
    return transfer_touch_source(&t, &a) && transfer_touch_global(&t, &to) && transfer_begin(w->cluster, t);
}

outcome run_bulk_store(warp *w, const step *s)
{
    if (!is_issued_once(w, s))
        return FAULTED;
    EACH_ACTIVE(i, w->active) {
        transfer t = { .kind = TRANSFER_STORE,
                       .w = w,
                       .s = s,
                       .lane = i,
                       .global = u64_of(w, s->in[0], i),
                       .bytes = u32_of(w, s->in[2], i) };
        if (!is_aligned(w, s, i, t.bytes, "to", t.global) ||
            !begin_store(t, u32_of(w, s->in[1], i) + (uint32_t)s->inst->offset, BULK_ALIGNMENT, t.bytes))
            return FAULTED;
    }
    return ADVANCE;
}

/* Moves nothing, but the memory must exist. */
outcome run_bulk_prefetch(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active) {
        uint64_t from = u64_of(w, s->in[0], i);
        uint32_t bytes = u32_of(w, s->in[1], i);
        if (!is_aligned(w, s, i, bytes, "from", from) || !global_check(w, s, i, from, bytes, 1, false))
            return FAULTED;
    }
    return ADVANCE;
}

/* NOTE: an H200 answers with an illegal instruction (CUDA programming guide, bulk tensor copies: out of bounds). */
static bool begins_inside(const transfer *t)
{
    for (int i = 0; i < t->map->rank; i++)
        if (t->coordinates[i] < 0)
            return fault(
                t->w, t->s, t->lane, "misused tma_store",
                "coordinate %d of the box is %d; a box that is stored may end outside of the tensor, not begin "
                "before it",
                i, t->coordinates[i]);
    return true;
}

outcome run_tma_store(warp *w, const step *s)
{
    if (!is_issued_once(w, s))
        return FAULTED;
    EACH_ACTIVE(i, w->active) {
        transfer t = { .kind = TRANSFER_STORE, .w = w, .s = s, .lane = i };
        t.map = find_map(w, s, i, u64_of(w, s->in[0], i));
        if (!t.map || !read_coordinates(&t, s->in + 2) || !begins_inside(&t))
            return FAULTED;
        t.bytes = (uint32_t)tma_box_bytes(t.map);
        if (!begin_store(t, u32_of(w, s->in[1], i) + (uint32_t)s->inst->offset, tma_alignment(t.map),
                         box_extent(t.map)))
            return FAULTED;
    }
    return ADVANCE;
}

outcome run_bulk_commit(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active) {
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
    EACH_ACTIVE(i, w->active) {
        bulk_queue *q = find_bulk(w, s, i, false);
        if (!q || q->groups <= (uint32_t)s->inst->n)
            continue;
        uint32_t groups = q->groups - (uint32_t)s->inst->n;
        if (!transfer_complete_groups(w, TRANSFER_STORE, i, groups))
            return FAULTED;
        q->waited = groups > q->waited ? groups : q->waited;
        w->knows.seen[q->agent] = q->waited;
        w->knows.visible[q->agent] = q->waited;
        if (s->inst->mode == 0 && q->writer != NO_AGENT)
            w->knows.seen[q->writer] = w->knows.global[q->writer] = q->waited;
    }
    return ADVANCE;
}
