/*
 * strong.c - strong accesses to global memory, by which CTAs wait for each other: what they release, acquire and poll.
 *
 * PTX's memory model: a release, or a fence and a strong store or atomic after it, publishes at its address all that
 * the warp knows. An acquire, or a strong load or atomic and a fence after it, takes over what was published there, if
 * the scopes of both include each other. An atomic passes on what it finds; a store replaces it.
 */
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"

/* An address that strong accesses have written. */
struct flag {
    uintptr_t address; // 0: free
    past *chain;       // published at the scope of the GPU, through any number of atomics
    past *last;        // the last one published at any scope, by a warp of this CTA:
    ir_scope scope;
    int64_t cluster;
    int rank;
};

/* Scopes as indices: the emulated system is one GPU. */
static ir_scope narrow(ir_scope scope)
{
    return scope < IR_SCOPE_GPU ? scope : IR_SCOPE_GPU;
}

/* The table of flags */

static flag *probe(flag *table, uint32_t capacity, uintptr_t address)
{
    uint32_t at = (uint32_t)(address * 0x9e3779b97f4a7c15 >> 32) & (capacity - 1);
    while (table[at].address && table[at].address != address)
        at = (at + 1) & (capacity - 1);
    return &table[at];
}

static void grow(flags *f)
{
    uint32_t capacity = f->capacity ? 2 * f->capacity : 64;
    flag *table = heap_alloc(capacity, sizeof *table);
    for (uint32_t i = 0; i < f->capacity; i++)
        if (f->table[i].address)
            *probe(table, capacity, f->table[i].address) = f->table[i];
    heap_free(f->table);
    f->table = table;
    f->capacity = capacity;
}

static flag *find_flag(flags *f, uintptr_t address, bool create)
{
    if (create && 2 * (f->count + 1) > f->capacity)
        grow(f);
    flag *x = f->capacity ? probe(f->table, f->capacity, address) : NULL;
    if (x && !x->address && create) {
        x->address = address;
        f->count++;
    }
    return x && x->address ? x : NULL;
}

static void forget(flag *x)
{
    past_drop(&x->chain);
    past_drop(&x->last);
}

void flags_forget(flags *f, uintptr_t address, size_t bytes)
{
    for (uintptr_t at = address; at < address + bytes; at++) {
        flag *x = find_flag(f, at, false);
        if (x)
            forget(x);
    }
}

void flags_clear(flags *f)
{
    for (uint32_t i = 0; i < f->capacity; i++)
        forget(&f->table[i]);
    heap_free(f->table);
    *f = (flags){ 0 };
}

/* Publishing and taking over */

static bool includes(ir_scope scope, const warp *w, int64_t index, int rank)
{
    return scope == IR_SCOPE_GPU || (w->cluster->index == index && (scope == IR_SCOPE_CLUSTER || w->cta->rank == rank));
}

/* What a strong write publishes: all the warp knows if it releases, else what its fences covered; NULL: nothing. */
static past *published(warp *w, const ir_inst *inst, ir_scope *scope)
{
    past *p = NULL;
    *scope = narrow(inst->scope);
    if (inst->order == IR_ORDER_RELEASE || inst->order == IR_ORDER_ACQ_REL)
        return past_release(w);
    while (!w->fenced[*scope] && *scope > IR_SCOPE_CTA)
        (*scope)--;
    past_add(&p, w->fenced[*scope]);
    return p;
}

static void publish(warp *w, uintptr_t address, past *p, ir_scope scope, bool atomic)
{
    flag *x = find_flag(&w->cluster->launch->flags, address, p != NULL);
    if (x && !atomic)
        forget(x);
    if (!p)
        return;
    if (scope == IR_SCOPE_GPU)
        past_add(&x->chain, p);
    past_drop(&x->last);
    past_add(&x->last, p);
    x->scope = scope;
    x->cluster = w->cluster->index;
    x->rank = w->cta->rank;
}

static void observe(warp *w, const ir_inst *inst, uintptr_t address)
{
    const flag *x = find_flag(&w->cluster->launch->flags, address, false);
    ir_scope scope = narrow(inst->scope);
    past *found = NULL;
    if (x && scope == IR_SCOPE_GPU)
        past_add(&found, x->chain);
    if (x && x->last && includes(scope, w, x->cluster, x->rank) && includes(x->scope, w, x->cluster, x->rank))
        past_add(&found, x->last);
    if (inst->order == IR_ORDER_ACQUIRE || inst->order == IR_ORDER_ACQ_REL)
        past_acquire(w, found);
    else
        past_add(&w->observed[scope], found);
    past_drop(&found);
}

/* Polling */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x9e3779b97f4a7c15;
}

/* A read that brings what it brought the last time has nothing new: the warp gives way to others. */
static outcome poll(warp *w, const step *s, const uintptr_t *address)
{
    uint64_t hash = w->active | 1;
    size_t bytes = (size_t)ir_memory_bytes(s->inst->type);
    EACH_ACTIVE(i, w->active) {
        uint64_t value = 0;
        memcpy(&value, (const void *)address[i], bytes);
        hash = mix(mix(hash, address[i]), value);
    }
    bool same = w->polled[s->poll] == hash;
    w->polled[s->poll] = hash;
    if (!same)
        return ADVANCE;
    w->waits = WAIT_GLOBAL;
    w->poll_at = address[first_lane(w->active)];
    return YIELDED;
}

/* The instructions */

outcome run_load_strong(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!global_request(w, s, address, false))
        return FAULTED;
    move_load(w, s, address);
    EACH_ACTIVE(i, w->active)
        observe(w, s->inst, address[i]);
    return poll(w, s, address);
}

outcome run_store_strong(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!global_request(w, s, address, true))
        return FAULTED;
    ir_scope scope;
    past *p = published(w, s->inst, &scope);
    move_store(w, s, address);
    EACH_ACTIVE(i, w->active)
        publish(w, address[i], p, scope, false);
    past_drop(&p);
    return ADVANCE;
}

outcome run_atomic(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!global_request(w, s, address, false))
        return FAULTED;
    ir_scope scope;
    past *p = published(w, s->inst, &scope);
    EACH_ACTIVE(i, s->inst->op == IR_ATOM ? w->active : 0)
        observe(w, s->inst, address[i]);
    bool changed = move_atomics(w, s, address);
    EACH_ACTIVE(i, w->active)
        publish(w, address[i], p, scope, true);
    past_drop(&p);
    if (!changed)
        return poll(w, s, address);
    w->cluster->launch->changes++;
    return ADVANCE;
}

outcome run_fence(warp *w, const step *s)
{
    if (!w->cluster->launch->ordered)
        return ADVANCE;
    ir_scope scope = narrow(s->inst->scope);
    for (int i = IR_SCOPE_CTA; i <= (int)scope; i++)
        past_acquire(w, w->observed[i]);
    past *p = past_release(w);
    for (int i = IR_SCOPE_CTA; i <= (int)scope; i++) {
        past_drop(&w->fenced[i]);
        past_add(&w->fenced[i], p);
    }
    past_drop(&p);
    return ADVANCE;
}

void warp_forget(warp *w)
{
    for (int i = 0; i < COUNT_OF(w->fenced); i++) {
        past_drop(&w->fenced[i]);
        past_drop(&w->observed[i]);
    }
}
