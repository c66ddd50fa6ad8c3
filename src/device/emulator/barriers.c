/* barriers.c - named barriers, the cluster barrier, mbarriers, and the registers that warps hand to each other. */
#include "device/emulator/machine.h"

enum {
    REGISTERS_MIN = 24,
    REGISTERS_MAX = 256,
    REGISTERS_STEP = 8,
    ARRIVALS_MAX = (1 << 20) - 1,
    BYTES_MAX = (1 << 20) - 1
};

static outcome block(warp *w, wait_kind kind, uint32_t at, uint32_t value)
{
    w->cluster->count[COUNT_BARRIER_WAITS] += w->waits == WAIT_NONE; // later tries are the same wait
    w->waits = kind;
    w->wait_at = at;
    w->wait_for = value;
    return BLOCKED;
}

/* Named barriers */

static void named_complete(cta *c, named_barrier *b)
{
    for (int i = 0; i < c->cluster->kernel->warps; i++)
        if (b->waiting >> i & 1)
            warp_acquire(&c->warps[i], &b->gather);
    b->waiting = 0;
    b->threads = b->arrived = 0;
    b->generation++;
    knowledge_clear(c->cluster, &b->gather);
}

/* Counts the warp in; the barrier, or NULL after a fault. */
static named_barrier *named_arrive(warp *w, const step *s, uint32_t *id, bool wait)
{
    if (!warp_converges(w, s))
        return NULL;
    int threads = s->inst->n, first = first_lane(w->active);
    *id = u32_of(w, s->in[0], first);
    if (*id >= NAMED_BARRIERS || threads % LANES || threads < LANES || threads > w->cluster->kernel->ir.threads) {
        fault(w, s, -1, "misused barrier",
              "barrier %u of %d threads; there are %d barriers, for multiples of %d threads", *id, threads,
              NAMED_BARRIERS, LANES);
        return NULL;
    }
    named_barrier *b = &w->cta->named[*id];
    if (b->arrived && b->threads != threads) {
        fault(w, s, -1, "misused barrier", "barrier %u is used for %d threads here and for %d by those who came before",
              *id, threads, b->threads);
        return NULL;
    }
    if (wait && b->waiting && b->at != s) { // an aligned barrier, by the PTX ISA, is one instruction of the CTA
        fault(w, s, -1, "misused barrier", "at barrier %u others wait by another instruction, at %s:%d", *id,
              b->at->inst->file, b->at->inst->line);
        return NULL;
    }
    if (!b->gather.seen)
        b->gather = knowledge_new(w->cluster);
    b->threads = threads;
    b->arrived += LANES;
    warp_release_whole(w, &b->gather);
    if (wait) {
        b->waiting |= 1U << w->index;
        b->at = s;
    }
    w->named_generation = b->generation;
    if (b->arrived == threads)
        named_complete(w->cta, b);
    return b;
}

outcome run_bar_sync(warp *w, const step *s)
{
    uint32_t id;
    if (!w->arrived) {
        if (!named_arrive(w, s, &id, true))
            return FAULTED;
        w->arrived = true;
    }
    id = u32_of(w, s->in[0], first_lane(w->active));
    if (w->cta->named[id].generation == w->named_generation)
        return block(w, WAIT_NAMED, id, 0);
    w->arrived = false;
    return ADVANCE;
}

outcome run_bar_arrive(warp *w, const step *s)
{
    uint32_t id;
    return named_arrive(w, s, &id, false) ? ADVANCE : FAULTED;
}

/* The cluster barrier */

void cluster_barrier_check(cluster *c)
{
    int arrived = 0;
    for (int i = 0; i < c->warp_count; i++) {
        const warp *w = &c->warps[i];
        bool here = w->cluster_arrived && w->cluster_generation == c->cluster_generation;
        if (!here && !w->done)
            return;
        arrived += here;
    }
    if (!arrived)
        return;
    knowledge_copy(c, &c->cluster_done, &c->cluster_gather);
    knowledge_clear(c, &c->cluster_gather);
    c->cluster_generation++;
    c->cluster_arrived = 0;
}

outcome run_cluster_arrive(warp *w, const step *s)
{
    cluster *c = w->cluster;
    if (!warp_converges(w, s))
        return FAULTED;
    if (w->cluster_arrived)
        return fault(w, s, -1, "misused barrier", "cluster_arrive for the second time without cluster_wait");
    w->cluster_arrived = true;
    w->cluster_generation = c->cluster_generation;
    c->cluster_arrived++;
    warp_release_whole(w, &c->cluster_gather);
    cluster_barrier_check(c);
    return ADVANCE;
}

outcome run_cluster_wait(warp *w, const step *s)
{
    cluster *c = w->cluster;
    if (!warp_converges(w, s))
        return FAULTED;
    if (!w->cluster_arrived)
        return fault(w, s, -1, "misused barrier", "cluster_wait without cluster_arrive");
    if (w->cluster_generation == c->cluster_generation)
        return block(w, WAIT_CLUSTER, 0, 0);
    w->cluster_arrived = false;
    warp_acquire(w, &c->cluster_done);
    return ADVANCE;
}

/* mbarriers */

mbarrier *mbarrier_find(warp *w, const step *s, int lane, cta *c, uint32_t offset, bool async)
{
    uint16_t number = c->barrier_of[offset / IR_MBARRIER_BYTES];
    if (number == 0) {
        fault(w, s, lane, "mbarrier used before its initialisation", "there is no mbarrier at %s", PLACE(w, offset));
        shared_unwritten(w, c, offset);
        return NULL;
    }
    mbarrier *b = &c->barriers[number - 1];
    char who[AGENT_TEXT_BYTES];
    if (b->init_clock > w->knows.seen[b->init_agent]) {
        fault(w, s, lane, "mbarrier used before its initialisation",
              "no barrier lies between the mbarrier_init of %s by %s and this use", PLACE(w, offset),
              agent_text(w->cluster, b->init_agent, who, sizeof who));
        return NULL;
    }
    if ((async || c != w->cta) && !b->fenced) {
        fault(w, s, lane, "missing fence_mbarrier_init", "%s uses the mbarrier %s, whose mbarrier_init was not fenced",
              async ? "the async proxy" : "another CTA", PLACE(w, offset));
        return NULL;
    }
    return b;
}

static void mbarrier_complete(const cluster *c, mbarrier *b)
{
    b->phase++;
    b->pending = b->count;
    knowledge_join(c, &b->done, &b->gather);
    knowledge_clear(c, &b->gather);
    b->done.seen[b->agent] = b->phase;
    b->done.visible[b->agent] = b->phase;
}

static bool mbarrier_settle(warp *w, const step *s, int lane, mbarrier *b)
{
    if (b->pending > 0 || b->tx > 0)
        return true;
    if (b->tx == 0) {
        mbarrier_complete(w->cluster, b);
        return true;
    }
    return fault(w, s, lane, "wrong transaction count",
                 "%" PRId64 " bytes more arrived at the mbarrier %s than phase %u expects", -b->tx, PLACE(w, b->offset),
                 b->phase);
}

static bool count_arrival(warp *w, const step *s, int lane, mbarrier *b)
{
    if (b->pending == 0)
        return fault(w, s, lane, "mbarrier over-arrival",
                     "all %d arrivals of phase %u of the mbarrier %s have come, it waits for %" PRId64 " bytes only",
                     b->count, b->phase, PLACE(w, b->offset), b->tx);
    b->pending--;
    return mbarrier_settle(w, s, lane, b);
}

static bool mbarrier_arrive(warp *w, const step *s, int lane, mbarrier *b)
{
    warp_release(w, 1U << lane, &b->gather);
    return count_arrival(w, s, lane, b);
}

bool mbarrier_transferred(warp *w, const step *s, int lane, mbarrier *b, int64_t bytes, uint32_t phase)
{
    if (b->phase != phase)
        return fault(w, s, lane, "wrong transaction count",
                     "%" PRId64
                     " bytes arrive at the mbarrier %s after phase %u has completed: it expected fewer bytes",
                     bytes, PLACE(w, b->offset), phase);
    b->tx -= bytes;
    return mbarrier_settle(w, s, lane, b);
}

/* The mbarrier that a lane addresses. */
static mbarrier *mbarrier_of_lane(warp *w, const step *s, int lane, ir_space space)
{
    uint32_t offset, address = u32_of(w, s->in[0], lane) + (uint32_t)s->inst->offset;
    cta *c = shared_find(w, s, lane, space, address, IR_MBARRIER_BYTES, IR_MBARRIER_BYTES, &offset);
    if (!c)
        return NULL;
    shared_visit(w, s, c);
    return mbarrier_find(w, s, lane, c, offset, false);
}

static bool mbarrier_init(warp *w, const step *s, int lane)
{
    cta *c = w->cta;
    uint32_t offset, address = u32_of(w, s->in[0], lane) + (uint32_t)s->inst->offset, count = u32_of(w, s->in[1], lane);
    if (!shared_find(w, s, lane, IR_SHARED, address, IR_MBARRIER_BYTES, IR_MBARRIER_BYTES, &offset))
        return false;
    if (count < 1 || count > ARRIVALS_MAX || c->barrier_of[offset / IR_MBARRIER_BYTES])
        return fault(w, s, lane, "misused mbarrier_init", "%u arrivals (1 to %d) at %s, which %s", count, ARRIVALS_MAX,
                     PLACE(w, offset),
                     c->barrier_of[offset / IR_MBARRIER_BYTES] ? "is an mbarrier already" : "is free");
    access a = warp_access(w, s, lane, true);
    uint16_t number = shared_touch(c, &a, offset, IR_MBARRIER_BYTES)
                          ? agent_new(w, s, (agent){ .kind = AGENT_TRANSFER, .cta = c->rank, .offset = offset })
                          : NO_AGENT;
    if (number == NO_AGENT)
        return false;
    shared_mark_mbarrier(c, offset);
    mbarrier *b = &c->barriers[c->barrier_count++];
    *b = (mbarrier){ .offset = offset,
                     .count = (int)count,
                     .pending = (int)count,
                     .agent = number,
                     .init_agent = w->agent,
                     .init_clock = warp_clock(w),
                     .gather = knowledge_new(w->cluster),
                     .done = knowledge_new(w->cluster) };
    b->releases = ring_of_empty(&w->cluster->kernel->ir, offset, &b->filled);
    c->barrier_of[offset / IR_MBARRIER_BYTES] = (uint16_t)c->barrier_count;
    return true;
}

outcome run_mbarrier_init(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active)
        if (!mbarrier_init(w, s, i))
            return FAULTED;
    return ADVANCE;
}

/* A stage is released as often as it was filled in the CTA that releases it. */
static bool is_release_of_filled(warp *w, const step *s, int lane, const mbarrier *b)
{
    uint16_t number = b->releases ? w->cta->barrier_of[b->filled / IR_MBARRIER_BYTES] : 0;
    if (number == 0 || w->cta->barriers[number - 1].phase > b->phase)
        return true;
    return fault(w, s, lane, "mbarrier over-arrival",
                 "%s is released once more, but %s has completed %u phases only: more releases than fillings",
                 PLACE(w, b->offset), PLACE(w, b->filled), w->cta->barriers[number - 1].phase);
}

outcome run_mbarrier_arrive(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active) {
        mbarrier *b = mbarrier_of_lane(w, s, i, s->inst->space);
        if (!b || !is_release_of_filled(w, s, i, b) || !mbarrier_arrive(w, s, i, b))
            return FAULTED;
    }
    return ADVANCE;
}

outcome run_mbarrier_expect(warp *w, const step *s)
{
    EACH_ACTIVE(i, w->active) {
        mbarrier *b = mbarrier_of_lane(w, s, i, IR_SHARED);
        if (!b)
            return FAULTED;
        uint32_t bytes = u32_of(w, s->in[1], i);
        if (b->tx + bytes > BYTES_MAX)
            return fault(w, s, i, "wrong transaction count",
                         "phase %u of the mbarrier %s is to expect %u bytes beside %" PRId64 ", it can count %d",
                         b->phase, PLACE(w, b->offset), bytes, b->tx, BYTES_MAX);
        b->tx += bytes;
        if (!mbarrier_arrive(w, s, i, b))
            return FAULTED;
    }
    return ADVANCE;
}

static bool has_completed(const mbarrier *b, uint32_t parity)
{
    return (b->phase & 1) != (parity & 1);
}

/* The warp has asked before, and what it waited for then has not come. */
static bool still_waits(const warp *w)
{
    return w->waits == WAIT_MBARRIER &&
           !has_completed(&w->cta->barriers[w->cta->barrier_of[w->wait_at / IR_MBARRIER_BYTES] - 1], w->wait_for);
}

outcome run_mbarrier_wait(warp *w, const step *s)
{
    if (still_waits(w))
        return BLOCKED;
    mbarrier *before = NULL;
    EACH_ACTIVE(i, w->active) {
        mbarrier *b = mbarrier_of_lane(w, s, i, IR_SHARED);
        if (!b)
            return FAULTED;
        uint32_t parity = u32_of(w, s->in[1], i);
        if (!has_completed(b, parity))
            return block(w, WAIT_MBARRIER, b->offset, parity);
        if (b != before)
            warp_acquire(w, &b->done);
        before = b;
    }
    return ADVANCE;
}

/* Registers */

/* All four warps of a warpgroup execute each SETMAXNREG, and none a second one before the others. */
static bool registers_together(warp *w, const step *s)
{
    int group = w->index / WARPS_PER_GROUP;
    warpgroup *g = &w->cta->groups[group];
    lane_mask own = 1U << w->index % WARPS_PER_GROUP, all = (1U << WARPS_PER_GROUP) - 1;
    const warp *warps = w->cta->warps + group * WARPS_PER_GROUP;
    bool gone = false;
    for (int i = 0; i < WARPS_PER_GROUP; i++)
        gone = gone || (warps[i].done && !(g->registers_done >> i & 1));
    if (gone || (g->registers_done & own) || (g->registers_done && g->registers_at != s))
        return fault(w, s, -1, "misused setmaxnreg", "only some warps of the warpgroup execute %s",
                     gone || !(g->registers_done & own) ? "it" : "the one before");
    g->registers_at = s;
    g->registers_done = (g->registers_done | own) == all ? 0 : g->registers_done | own;
    return true;
}

/* A warp leaves while its warpgroup waits for it to execute SETMAXNREG: the step; NULL: it does not. */
const step *setmaxnreg_missed(const warp *w)
{
    const warpgroup *g = &w->cta->groups[w->index / WARPS_PER_GROUP];
    return g->registers_done && !(g->registers_done >> w->index % WARPS_PER_GROUP & 1) ? g->registers_at : NULL;
}

outcome run_setmaxnreg(warp *w, const step *s)
{
    int n = s->inst->n, more = (n - w->registers) * LANES;
    bool grows = s->inst->mode == 1;
    if (!warp_converges(w, s))
        return FAULTED;
    if (n < REGISTERS_MIN || n > REGISTERS_MAX || n % REGISTERS_STEP)
        return fault(w, s, -1, "misused setmaxnreg", "%d registers are no multiple of %d in %d to %d", n,
                     REGISTERS_STEP, REGISTERS_MIN, REGISTERS_MAX);
    if (grows ? more < 0 : more > 0)
        return fault(w, s, -1, "misused setmaxnreg", "the warp has %d registers per thread, %d are not %s",
                     w->registers, n, grows ? "more" : "fewer");
    if (grows && more > w->cta->registers_free)
        return block(w, WAIT_REGISTERS, 0, (uint32_t)n);
    if (!registers_together(w, s))
        return FAULTED;
    w->cta->registers_free -= more;
    w->registers = n;
    return ADVANCE;
}
