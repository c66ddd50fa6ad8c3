/* report.c - the sentence that ends a launch: what, in which kernel, CTA, warp and lane, at which line of C. */
#include <stdio.h>
#include <string.h>

#include "device/emulator/machine.h"

enum { WAITS_LISTED_MAX = 12 };

const char *agent_name(const ir_kernel *ir, const agent *a, char *room, size_t bytes)
{
    switch (a->kind) {
    case AGENT_WARP:
        snprintf(room, bytes, "warp %d", a->warp);
        break;
    case AGENT_TRANSFER:
        snprintf(room, bytes, "the async copy on %s", shared_text(ir, a->offset, (char[PLACE_BYTES]){ 0 }));
        break;
    case AGENT_WGMMA:
        snprintf(room, bytes, "wgmma of warps %d to %d", a->warp, a->warp + WARPS_PER_GROUP - 1);
        break;
    case AGENT_BULK:
    case AGENT_BULK_WRITE:
        snprintf(room, bytes, "the bulk store of warp %d", a->warp);
        break;
    case AGENT_CP_ASYNC:
        snprintf(room, bytes, "cp_async of warp %d", a->warp);
        break;
    }
    return room;
}

const char *agent_text(const cluster *c, uint16_t number, char *room, size_t bytes)
{
    const agent *a = &c->agents[number];
    agent_name(&c->kernel->ir, a, room, bytes);
    size_t length = strlen(room);
    if (a->kind == AGENT_WARP && c->cta_count > 1)
        snprintf(room + length, bytes - length, " of CTA rank %d", a->cta);
    return room;
}

static text place_of(const warp *w, const step *s, int lane)
{
    text t = { 0 };
    const cta *c = w->cta;
    text_printf(&t, "in %s, CTA (%" PRId64 ",%" PRId64 ",%" PRId64 "), warp %d", w->cluster->kernel->ir.name, c->at[0],
                c->at[1], c->at[2], w->index);
    if (lane >= 0)
        text_printf(&t, ", lane %d", lane);
    text_printf(&t, ", at %s:%d (%s)", s->inst->file, s->inst->line, ir_op_text(s->inst->op));
    return t;
}

outcome fault(warp *w, const step *s, int lane, const char *kind, const char *format, ...)
{
    cluster *c = w->cluster;
    if (c->faulted)
        return FAULTED;
    char detail[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    text place = place_of(w, s, lane);
    snprintf(c->fault, sizeof c->fault, "%s %s: %s", kind, text_data(&place), detail);
    text_free(&place);
    c->faulted = true;
    return FAULTED;
}

/* Deadlock */

static void describe_mbarrier(const warp *w, text *t)
{
    const cta *c = w->cta;
    uint16_t number = c->barrier_of[w->wait_at / IR_MBARRIER_BYTES];
    const mbarrier *b = &c->barriers[number - 1];
    text_printf(t, "the mbarrier %s to complete a phase of parity %u (it is in phase %u, %d of %d arrivals missing",
                PLACE(w, b->offset), w->wait_for, b->phase, b->pending, b->count);
    if (b->tx)
        text_printf(t, ", %" PRId64 " bytes pending", b->tx);
    text_printf(t, ")");
}

static void describe_global(const warp *w, text *t)
{
    const launch_state *l = w->cluster->launch;
    const allocation *a = memory_find(&l->device->memory, w->poll_at, 1);
    text_printf(t, "%s to change", global_text(l, a, w->poll_at, (char[PLACE_BYTES]){ 0 }));
}

static void describe_wait(const warp *w, text *t)
{
    switch (w->waits) {
    case WAIT_NONE:
        text_printf(t, "its turn");
        break;
    case WAIT_NAMED:
        text_printf(t, "barrier %u (%d of %d threads arrived)", w->wait_at, w->cta->named[w->wait_at].arrived,
                    w->cta->named[w->wait_at].threads);
        break;
    case WAIT_MBARRIER:
        describe_mbarrier(w, t);
        break;
    case WAIT_CLUSTER:
        text_printf(t, "the cluster barrier (%d of %d warps arrived)", w->cluster->cluster_arrived,
                    w->cluster->warp_count);
        break;
    case WAIT_WGMMA:
        text_printf(t, "wgmma that not all warps of its warpgroup have issued");
        break;
    case WAIT_GLOBAL:
        describe_global(w, t);
        break;
    case WAIT_REGISTERS:
        text_printf(t, "%u registers per thread (%d are free in the CTA)", w->wait_for, w->cta->registers_free);
        break;
    }
}

static bool waits_alike(const warp *x, const warp *y)
{
    return x->cta == y->cta && x->pc == y->pc && x->waits == y->waits && x->wait_at == y->wait_at &&
           x->wait_for == y->wait_for && !y->done;
}

/* "CTA rank 0 warps 4-7 at gemm.c:88 wait for ..."; returns the number of warps described. */
static int describe_waiters(const cluster *c, int first, text *t)
{
    const warp *w = &c->warps[first];
    int last = first;
    while (last + 1 < c->warp_count && waits_alike(w, &c->warps[last + 1]))
        last++;
    const ir_inst *inst = c->kernel->steps[w->pc].inst;
    text_printf(t, "; CTA (%" PRId64 ",%" PRId64 ",%" PRId64 ") warp%s %d", w->cta->at[0], w->cta->at[1], w->cta->at[2],
                last > first ? "s" : "", w->index);
    if (last > first)
        text_printf(t, "-%d wait at %s:%d for ", w->index + last - first, inst->file, inst->line);
    else
        text_printf(t, " waits at %s:%d for ", inst->file, inst->line);
    describe_wait(w, t);
    return last - first + 1;
}

static void describe_residents(const launch_state *l, text *t)
{
    int64_t ctas = l->kernel->ir.cluster;
    if (l->waiting)
        text_printf(t,
                    "; %" PRId64 " of %" PRId64 " CTAs have ended, %" PRId64 " more wait like this one, and %" PRId64
                    " have not started: the device holds %" PRId64 " at once",
                    l->ended * ctas, l->clusters * ctas, (l->waiting - 1) * ctas,
                    (l->clusters - l->ended - l->waiting) * ctas, l->resident_max * ctas);
}

void fault_deadlock(cluster *c)
{
    text t = { 0 };
    text_printf(&t, "deadlock in %s, %d of %d warps have ended", c->kernel->ir.name, c->warp_count - c->warps_left,
                c->warp_count);
    int listed = 0;
    for (int i = 0; i < c->warp_count && listed < WAITS_LISTED_MAX;) {
        if (c->warps[i].done) {
            i++;
            continue;
        }
        i += describe_waiters(c, i, &t);
        listed++;
    }
    describe_residents(c->launch, &t);
    snprintf(c->fault, sizeof c->fault, "%s", text_data(&t));
    text_free(&t);
    c->faulted = true;
}
