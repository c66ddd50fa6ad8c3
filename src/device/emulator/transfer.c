/* transfer.c - asynchronous copies: queued when they begin, done later, in an order that the settings choose. */
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"
#include "device/emulator/tma.h"

enum { CHUNK = 16 }; // what the swizzles move as one

/* Copying. Shared memory was checked when the copy began, global memory is checked as it is done. */

typedef struct walk {
    const transfer *t;
    cta *c;
    int span; // of the swizzle
    bool ok;
    int64_t moved;       // bytes in global memory: of a box those that its tensor has
    const access *touch; // a store's: note what is read; NULL: move the data
    access *global;      // of global memory
} walk;

static uint32_t shared_place(const walk *x, uint32_t offset)
{
    return shared_offset(swizzle_address(SHARED_BASE + x->t->offset + offset, x->span));
}

/* The bytes from an offset to the end of its chunk, or as many as are left. */
static uint32_t chunk_length(uint32_t offset, uint32_t left)
{
    uint32_t length = CHUNK - offset % CHUNK;
    return length < left ? length : left;
}

static void load_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    walk *x = user;
    if (!x->ok)
        return;
    x->moved += global ? bytes : 0;
    if (global && !global_check(x->t->w, x->t->s, x->t->lane, (uintptr_t)global, bytes, 1, false)) {
        x->ok = false;
        return;
    }
    for (uint32_t at = 0, length; at < bytes; at += length) {
        length = chunk_length(offset + at, bytes - at);
        unsigned char *to = x->c->shared + shared_place(x, offset + at);
        if (global)
            memcpy(to, global + at, length);
        else
            memset(to, 0, length);
    }
}

/* Of f32: cp.reduce.async.bulk.tensor. */
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
        move_atomic(&add, global + at, value);
    }
    return true;
}

static bool store_chunk(const walk *x, unsigned char *global, uint32_t place, uint32_t bytes)
{
    const transfer *t = x->t;
    if (x->touch)
        return shared_touch(x->c, x->touch, place, bytes);
    if (t->map && t->s->inst->mode == IR_TMA_ADD)
        return add_run(t, global, x->c->shared + place, bytes);
    if (!global_check(t->w, t->s, t->lane, (uintptr_t)global, bytes, 1, true))
        return false;
    memcpy(global, x->c->shared + place, bytes);
    return true;
}

static void store_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    walk *x = user;
    x->moved += global ? bytes : 0;
    for (uint32_t at = 0, length; global && x->ok && at < bytes; at += length) {
        length = chunk_length(offset + at, bytes - at);
        x->ok = store_chunk(x, global + at, shared_place(x, offset + at), length);
    }
}

static bool walk_transfer(walk *x, tma_run *run)
{
    const transfer *t = x->t;
    x->ok = true;
    if (t->map) {
        tensor_map_desc map = t->kind == TRANSFER_STORE ? tma_as_stored(t->map) : *t->map;
        x->span = (int)map.swizzle;
        tma_walk(&map, t->coordinates, run, x);
    } else {
        run(x, 0, (unsigned char *)t->global, t->bytes); // NOLINT: device addresses are host addresses
    }
    return x->ok;
}

/* Where a box comes to: noted as written, and poisoned until it is there. The rest of the swizzle's span keeps its. */
static void poison_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    (void)global;
    walk *x = user;
    for (uint32_t at = 0, length; x->ok && at < bytes; at += length) {
        length = chunk_length(offset + at, bytes - at);
        const uint32_t place = shared_place(x, offset + at);
        x->ok = shared_touch(x->c, x->touch, place, length);
        memset(x->c->shared + place, SHARED_POISON, length);
    }
}

bool transfer_touch_destination(const transfer *t, cta *to, const access *a)
{
    return walk_transfer(&(walk){ .t = t, .c = to, .touch = a }, poison_run);
}

bool transfer_touch_source(const transfer *t, const access *a)
{
    return walk_transfer(&(walk){ .t = t, .c = t->w->cta, .touch = a }, store_run);
}

/* What is in no allocation is found when the copy is done. */
static void touch_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    walk *x = user;
    uintptr_t address = (uintptr_t)global;
    allocation *a = NULL;
    if (global && x->ok)
        a = memory_find(&x->t->w->cluster->kernel->device->memory, address, bytes);
    const bool same = a && x->t->map && x->t->kind == TRANSFER_STORE &&
                      x->t->s->inst->mode == IR_TMA_WRITE_SAME; // as other CTAs' bits
    for (uint32_t at = 0, length; same && x->ok && at < bytes; at += length) {
        length = chunk_length(offset + at, bytes - at);
        x->global->bits = x->t->w->cta->shared + shared_place(x, offset + at);
        x->global->bit_bytes = length;
        x->ok = global_touch(x->global, a, address + at, length);
    }
    if (a && !same)
        x->ok = global_touch(x->global, a, address, bytes);
}

bool transfer_touch_global(const transfer *t, access *a)
{
    return walk_transfer(&(walk){ .t = t, .global = a }, touch_run);
}

/* What a load brings into one CTA, and how much of it comes from global memory. */
static bool move_load_into(cta *to, const transfer *t, int64_t *moved)
{
    walk x = { .t = t, .c = to };
    bool ok = true;
    if (t->kind != TRANSFER_VALUE)
        ok = walk_transfer(&x, load_run);
    else
        memcpy(to->shared + t->offset, &t->global, t->bytes);
    *moved = x.moved;
    return ok;
}

static bool complete_load(cluster *c, const transfer *t)
{
    int64_t moved = 0; // once, into however many CTAs
    EACH_ACTIVE(r, t->to_ctas) {
        cta *to = &c->ctas[r];
        if (to->warps_left == 0)
            return fault(t->w, t->s, t->lane, "access to an exited CTA",
                         "the copy arrives in CTA rank %d, which has left", r);
        mbarrier *b = &to->barriers[to->barrier_of[t->barrier / IR_MBARRIER_BYTES] - 1];
        if (!move_load_into(to, t, &moved) || !mbarrier_transferred(t->w, t->s, t->lane, b, t->bytes, t->phase[r]))
            return false;
    }
    c->count[COUNT_TMA_LOAD_BYTES] += moved;
    return true;
}

static bool complete_store(cluster *c, const transfer *t)
{
    walk x = { .t = t, .c = t->w->cta };
    bool ok = walk_transfer(&x, store_run);
    c->count[COUNT_TMA_STORE_BYTES] += x.moved;
    c->stores++;
    return ok;
}

static bool complete_cp_async(const transfer *t)
{
    const cp_async_lanes *l = t->lanes;
    unsigned char *shared = t->w->cta->shared;
    EACH_ACTIVE(i, l->active) {
        memcpy(shared + l->offset[i], (const void *)l->global[i], l->valid[i]);
        memset(shared + l->offset[i] + l->valid[i], 0, t->bytes - l->valid[i]);
    }
    return true;
}

static bool complete(cluster *c, const transfer *t)
{
    switch (t->kind) {
    case TRANSFER_LOAD:
    case TRANSFER_VALUE:
        return complete_load(c, t);
    case TRANSFER_STORE:
        return complete_store(c, t);
    case TRANSFER_CP_ASYNC:
        return complete_cp_async(t);
    }
    return false;
}

/* The queue */

static bool is_eager(const cluster *c)
{
    return c->kernel->device->options.completion == COMPLETION_EAGER;
}

/* Moves the queue to the start of its room if that moves less than has left, else the room doubles. */
static void make_room(cluster *c)
{
    if (c->queue_first > c->queue_count) {
        memcpy(c->queue, c->queue + c->queue_first, (size_t)c->queue_count * sizeof *c->queue);
        c->queue_first = 0;
    } else {
        c->queue_capacity = c->queue_capacity ? 2 * c->queue_capacity : 64;
        c->queue = heap_resize(c->queue, (size_t)c->queue_capacity, sizeof *c->queue);
    }
}

static void enqueue(cluster *c, transfer t)
{
    if (c->queue_first + c->queue_count == c->queue_capacity)
        make_room(c);
    c->queue[c->queue_first + c->queue_count++] = t;
}

/* Takes a transfer out of the queue, the others stay in order. Nothing moves for the oldest one: thousands may wait. */
static transfer take(cluster *c, int i)
{
    transfer *at = c->queue + c->queue_first + i, t = *at;
    c->queue_count--;
    if (i == 0)
        c->queue_first++;
    else
        memmove(at, at + 1, (size_t)(c->queue_count - i) * sizeof t);
    return t;
}

static bool complete_at(cluster *c, int i)
{
    transfer t = take(c, i);
    c->progress++;
    c->completed++;
    bool done = complete(c, &t);
    heap_free(t.lanes);
    return done;
}

bool transfer_complete_one(cluster *c, bool any_order)
{
    if (!c->queue_count)
        return false;
    int i = any_order ? (int)(cluster_random(c) % (uint64_t)c->queue_count) : 0;
    return complete_at(c, i);
}

void transfers_drop(cluster *c)
{
    for (int i = 0; i < c->queue_count; i++)
        heap_free(c->queue[c->queue_first + i].lanes);
    c->queue_count = 0;
}

bool transfer_complete_groups(warp *w, transfer_kind kind, int lane, uint32_t groups)
{
    cluster *c = w->cluster;
    for (int i = 0; i < c->queue_count;) {
        const transfer *t = &c->queue[c->queue_first + i];
        bool wanted = t->kind == kind && t->w == w && (lane < 0 || t->lane == lane) && t->group < groups;
        if (!wanted)
            i++;
        else if (!complete_at(c, i))
            return false;
    }
    return true;
}

bool transfer_begin(cluster *c, transfer t)
{
    enqueue(c, t);
    return !is_eager(c) || complete_at(c, c->queue_count - 1);
}
