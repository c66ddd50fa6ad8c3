/* order.c - vector clocks: what has happened before what. */
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"

struct clock_block {
    past *past;
    uint32_t clocks[]; // two clocks and a mask of every warp, then three clocks of every agent
};

/* Memory of a knowledge, reused from cluster to cluster. */
static clock_block *draw(cluster *c)
{
    if (c->pool_used == c->pool_count) {
        c->pool_count = c->pool_count ? 2 * c->pool_count : 64;
        c->pool = heap_resize(c->pool, (size_t)c->pool_count, sizeof(clock_block *));
        for (int i = c->pool_used; i < c->pool_count; i++)
            c->pool[i] = NULL;
    }
    const size_t kinds = c->launch->ordered ? 3 : 2; // in other launches global memory has no clocks
    const size_t of_warps = 3 * (size_t)c->warp_count;
    clock_block **k = &c->pool[c->pool_used++];
    if (!*k)
        return *k = heap_alloc(1, sizeof(clock_block) + (of_warps + kinds * (size_t)c->agent_max) * sizeof(uint32_t));
    past_drop(&(*k)->past);
    memset((*k)->clocks, 0, of_warps * sizeof(uint32_t));
    for (size_t kind = 0; kind < kinds; kind++) // there were never more agents
        memset((*k)->clocks + of_warps + kind * (size_t)c->agent_max, 0, (size_t)c->agent_peak * sizeof(uint32_t));
    return *k;
}

void knowledge_free(cluster *c)
{
    for (int i = 0; i < c->pool_count; i++) {
        if (c->pool[i])
            past_drop(&c->pool[i]->past);
        heap_free(c->pool[i]);
    }
    heap_free(c->pool);
}

knowledge knowledge_new(cluster *c)
{
    clock_block *k = draw(c);
    uint32_t *of_agents = k->clocks + 3 * c->warp_count;
    return (knowledge){ .seen = of_agents,
                        .visible = of_agents + c->agent_max,
                        .global = of_agents + 2 * c->agent_max,
                        .whole = k->clocks,
                        .read = k->clocks + c->warp_count,
                        .lanes = k->clocks + 2 * c->warp_count,
                        .past = &k->past };
}

/* One loop for joins (the later of two clocks) and one for meets (the earlier). */
WIDE static void later(uint32_t *to, const uint32_t *from, int count)
{
    EACH_OF(i, count)
        to[i] = to[i] > from[i] ? to[i] : from[i];
}

WIDE static void earlier(uint32_t *to, const uint32_t *from, int count)
{
    EACH_OF(i, count)
        to[i] = to[i] < from[i] ? to[i] : from[i];
}

/* Before the clocks are joined: who knows of a lane says so where it knows more than all lanes. */
static void join_lanes(knowledge *to, const knowledge *from, int warps)
{
    for (int i = 0; i < warps; i++) {
        const uint32_t whole = to->whole[i] > from->whole[i] ? to->whole[i] : from->whole[i];
        to->lanes[i] = (to->seen[i] > whole ? to->lanes[i] : 0) | (from->seen[i] > whole ? from->lanes[i] : 0);
        to->whole[i] = whole;
    }
}

void knowledge_join(const cluster *c, knowledge *to, const knowledge *from)
{
    join_lanes(to, from, c->warp_count);
    later(to->read, from->read, c->warp_count);
    later(to->seen, from->seen, c->agent_count);
    later(to->visible, from->visible, c->agent_count);
    if (!c->launch->ordered)
        return;
    later(to->global, from->global, c->agent_count);
    past_add(to->past, *from->past);
}

void knowledge_meet(const cluster *c, knowledge *to, const knowledge *from)
{
    earlier(to->seen, from->seen, c->agent_count);
    earlier(to->visible, from->visible, c->agent_count); // what WGMMAs read is in shared memory
    earlier(to->whole, from->whole, c->warp_count);
    earlier(to->read, from->read, c->warp_count);
    for (int i = 0; i < c->warp_count; i++)
        to->lanes[i] |= from->lanes[i];
}

void knowledge_copy(const cluster *c, knowledge *to, const knowledge *from)
{
    memcpy(to->seen, from->seen, (size_t)c->agent_count * sizeof(uint32_t));
    memcpy(to->visible, from->visible, (size_t)c->agent_count * sizeof(uint32_t));
    memcpy(to->whole, from->whole, (size_t)c->warp_count * sizeof(uint32_t));
    memcpy(to->read, from->read, (size_t)c->warp_count * sizeof(uint32_t));
    memcpy(to->lanes, from->lanes, (size_t)c->warp_count * sizeof(lane_mask));
    if (!c->launch->ordered)
        return;
    memcpy(to->global, from->global, (size_t)c->agent_count * sizeof(uint32_t));
    past_drop(to->past);
    past_add(to->past, *from->past);
}

void knowledge_clear(const cluster *c, knowledge *k)
{
    memset(k->seen, 0, (size_t)c->agent_count * sizeof(uint32_t));
    memset(k->visible, 0, (size_t)c->agent_count * sizeof(uint32_t));
    memset(k->whole, 0, (size_t)c->warp_count * sizeof(uint32_t));
    memset(k->read, 0, (size_t)c->warp_count * sizeof(uint32_t));
    memset(k->lanes, 0, (size_t)c->warp_count * sizeof(lane_mask));
    if (!c->launch->ordered)
        return;
    memset(k->global, 0, (size_t)c->agent_count * sizeof(uint32_t));
    past_drop(k->past);
}

uint16_t agent_new(warp *w, const step *s, agent a)
{
    cluster *c = w->cluster;
    if (c->agent_count == c->agent_max) {
        fault(w, s, -1, "emulator limit", "more than %d mbarriers and asynchronous queues in a cluster",
              c->agent_max - c->warp_count);
        return NO_AGENT;
    }
    c->agents[c->agent_count] = a;
    c->agent_peak = c->agent_peak > c->agent_count ? c->agent_peak : c->agent_count + 1;
    return (uint16_t)c->agent_count++;
}

uint32_t warp_clock(const warp *w)
{
    return w->knows.seen[w->agent];
}

/* Lanes of its own that the warp has heard of through a barrier are passed on, too. */
void warp_release(warp *w, lane_mask lanes, knowledge *to)
{
    lane_mask *own = &w->knows.lanes[w->agent], heard = *own;
    *own |= lanes;
    knowledge_join(w->cluster, to, &w->knows);
    *own = heard;
    w->knows.seen[w->agent]++;
}

static void forget_lanes(warp *w)
{
    w->knows.whole[w->agent] = w->knows.seen[w->agent];
    w->knows.lanes[w->agent] = 0;
}

void warp_release_whole(warp *w, knowledge *to)
{
    forget_lanes(w);
    warp_release(w, 0, to);
}

void warp_lanes_meet(warp *w)
{
    forget_lanes(w);
    w->knows.seen[w->agent]++; // what follows is not covered
}

void warp_acquire(warp *w, const knowledge *from)
{
    knowledge_join(w->cluster, &w->knows, from);
}

/* A shuffle orders no memory, but a lane takes part once its loads have come: nobody overwrites what they read. */
void warp_lanes_exchange(warp *w)
{
    if (!w->has_read)
        return;
    w->knows.read[w->agent] = w->knows.seen[w->agent]++;
    w->has_read = false;
}

/* Fences */

static void fence_barriers(warp *w)
{
    for (int r = 0; r < w->cluster->cta_count; r++) {
        cta *c = &w->cluster->ctas[r];
        for (int i = 0; i < c->barrier_count; i++)
            if (c->barriers[i].init_clock <= w->knows.seen[c->barriers[i].init_agent])
                c->barriers[i].fenced = true;
    }
}

outcome run_fence_proxy(warp *w, const step *s)
{
    bool global = s->inst->mode == 1;
    if (global && !w->cluster->launch->ordered)
        return ADVANCE;
    memcpy(global ? w->knows.global : w->knows.visible, w->knows.seen,
           (size_t)w->cluster->agent_count * sizeof(uint32_t));
    w->knows.seen[w->agent]++; // what follows is not covered
    if (global)
        past_make_visible(w->knows.past);
    else
        fence_barriers(w);
    return ADVANCE;
}

outcome run_fence_init(warp *w, const step *s)
{
    (void)s;
    fence_barriers(w);
    return ADVANCE;
}
