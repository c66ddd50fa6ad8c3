/*
 * overlap.c - launches that overlap: a kernel with GRID_WAIT begins while those before it in its stream may still run.
 *
 * Here they run one after another. So an access looks whether the bytes are those of a launch that could still run:
 * before the GRID_WAIT any from `running` on, after it those up to `unawaited`, which the launch before did not wait
 * for.
 */
#include "device/emulator/machine.h"

static bool has(const device_kernel *k, ir_op op)
{
    for (int i = 0; i < k->ir.inst_count; i++)
        if (k->ir.insts[i].op == op)
            return true;
    return false;
}

void overlap_begin(launch_state *l, ckl_stream s)
{
    const emulator *e = l->device;
    const uint32_t running = __atomic_load_n(&e->running, __ATOMIC_RELAXED);
    const bool early = running && e->stream == s && l->kernel->ir.target != IR_SM80 && has(l->kernel, IR_GRID_WAIT);
    l->running = early ? running : l->first_epoch;
    l->unawaited = early ? e->unawaited : l->first_epoch;
}

/* Without LAUNCH_DEPENDENTS the next launch begins when the CTAs of this one end. */
void overlap_end(const launch_state *l, ckl_stream s)
{
    emulator *e = l->device;
    const bool late = l->awaited_first || (l->awaited && !has(l->kernel, IR_LAUNCH_DEPENDENTS));
    const uint32_t running = late ? l->first_epoch : l->running;
    e->stream = s;
    e->unawaited = l->awaited ? running : l->first_epoch;
    __atomic_store_n(&e->running, running, __ATOMIC_RELAXED);
}

void overlap_none(emulator *e)
{
    __atomic_store_n(&e->running, 0, __ATOMIC_RELAXED);
}

/* Does the warp know of a wait, its own or another one's of its cluster? */
static bool has_waited(const warp *w)
{
    const cluster *c = w->cluster;
    for (int i = 0; i < c->warp_count; i++)
        if (c->warps[i].grid_wait && c->warps[i].grid_wait <= w->knows.seen[i])
            return true;
    return false;
}

bool overlap_may_run(const warp *w, uint32_t number)
{
    const launch_state *l = w->cluster->launch;
    return number >= l->running && number < l->first_epoch && (number < l->unawaited || !has_waited(w));
}

outcome run_grid_wait(warp *w, const step *s)
{
    (void)s;
    const uint32_t clock = ++w->knows.seen[w->agent]; // what came before it is not covered
    w->grid_wait = w->grid_wait ? w->grid_wait : clock;
    __atomic_store_n(&w->cluster->launch->awaited, true, __ATOMIC_RELAXED);
    return ADVANCE;
}

outcome run_launch_dependents(warp *w, const step *s)
{
    (void)s;
    if (has_waited(w))
        __atomic_store_n(&w->cluster->launch->awaited_first, true, __ATOMIC_RELAXED);
    return ADVANCE;
}
