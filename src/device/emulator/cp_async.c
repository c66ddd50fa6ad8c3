/* cp_async.c - the copies of single threads into shared memory, in groups of the whole warp. */
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"

/*
 * Rows that begin anywhere are copied in aligned vectors, which may hold other bytes, too, that nobody has written:
 * those are undefined in shared memory, and no fault unless they are read there. A vector of nothing else is a fault at
 * once.
 */
static bool check_source(warp *w, const step *s, int lane, uintptr_t global, uint32_t bytes, uint32_t *undefined)
{
    const allocation *a = memory_find(&w->cluster->kernel->device->memory, global, bytes);
    *undefined = 0;
    for (uint32_t i = 0; i < bytes && a && !a->all_written; i++)
        *undefined |= memory_is_written(a, global + i, 1) ? 0 : 1U << i;
    if (*undefined && *undefined != (1U << bytes) - 1)
        return true;
    return global_check(w, s, lane, global, bytes, 1, false);
}

static bool begin_cp_async(transfer *t, int lane)
{
    warp *w = t->w;
    const step *s = t->s;
    cp_async_lanes *l = t->lanes;
    uint32_t address = u32_of(w, s->in[0], lane) + (uint32_t)s->inst->offset, undefined = 0;
    l->global[lane] = u64_of(w, s->in[1], lane);
    l->valid[lane] = u32_of(w, s->in[2], lane);
    if (l->valid[lane] > t->bytes)
        return fault(w, s, lane, "misused cp_async", "%u bytes of %u are to be read", l->valid[lane], t->bytes);
    if (l->valid[lane] && !check_source(w, s, lane, l->global[lane], l->valid[lane], &undefined))
        return false;
    if (l->valid[lane] && l->global[lane] % t->bytes)
        return fault(w, s, lane, "misaligned global access", "address 0x%zx is no multiple of %u",
                     (size_t)l->global[lane], t->bytes);
    if (!shared_find(w, s, lane, IR_SHARED, address, t->bytes, t->bytes, &l->offset[lane]))
        return false;
    access a = warp_access(w, s, lane, true);
    a.agent = w->cp_agent;
    a.clock = w->cp_groups + 1;
    access from = a;
    from.write = false;
    if (!shared_touch(w->cta, &a, l->offset[lane], t->bytes) ||
        (l->valid[lane] && !global_note(&from, l->global[lane], l->valid[lane])))
        return false;
    shared_undefine(w->cta, l->offset[lane], undefined);
    memset(w->cta->shared + l->offset[lane], SHARED_POISON, t->bytes);
    return true;
}

outcome run_cp_async(warp *w, const step *s)
{
    if (w->cp_agent == NO_AGENT)
        w->cp_agent = agent_new(w, s, (agent){ .kind = AGENT_CP_ASYNC, .cta = w->cta->rank, .warp = w->index });
    if (w->cp_agent == NO_AGENT)
        return FAULTED;
    transfer t = { .kind = TRANSFER_CP_ASYNC,
                   .w = w,
                   .s = s,
                   .bytes = (uint32_t)s->inst->n,
                   .group = w->cp_groups,
                   .lanes = heap_alloc(1, sizeof(cp_async_lanes)) };
    t.lanes->active = w->active;
    EACH_ACTIVE(i, w->active)
        if (!begin_cp_async(&t, i)) {
            heap_free(t.lanes);
            return FAULTED;
        }
    uintptr_t global[LANES];
    for (int i = 0; i < LANES; i++)
        global[i] = t.lanes->global[w->active >> i & 1 ? i : first_lane(w->active)];
    count_global(w, global, s->inst->n, false);
    return transfer_begin(w->cluster, t) ? ADVANCE : FAULTED;
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
    if (!transfer_complete_groups(w, TRANSFER_CP_ASYNC, -1, groups))
        return FAULTED;
    if (w->knows.seen[w->cp_agent] < groups)
        w->knows.seen[w->cp_agent] = groups;
    return ADVANCE;
}
