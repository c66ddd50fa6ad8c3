/*
 * past.c - what a cluster knows of other clusters: the clocks that they had when they released.
 *
 * Both structs are shared and counted; one with several users is never changed. Only ordered launches have any, and
 * those run in one host thread.
 */
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"

/* The clocks of a cluster's agents as one of its warps knew them: seen, then seen by the async proxy. */
typedef struct snapshot {
    int users, count;
    int64_t cluster;
    uint32_t clock[];
} snapshot;

struct past {
    int users, count;
    snapshot *of[]; // by cluster
};

static snapshot *snapshot_new(int64_t index, int count)
{
    snapshot *s = heap_alloc(1, sizeof *s + 2 * (size_t)count * sizeof(uint32_t));
    s->users = 1;
    s->count = count;
    s->cluster = index;
    return s;
}

static snapshot *snapshot_use(snapshot *s)
{
    s->users++;
    return s;
}

static void snapshot_drop(snapshot *s)
{
    if (--s->users == 0)
        heap_free(s);
}

static uint32_t clock_of(const snapshot *s, int who, bool async)
{
    return who < s->count ? s->clock[who + (async ? s->count : 0)] : 0;
}

static bool covers(const snapshot *s, const snapshot *other)
{
    for (int i = 0; i < other->count; i++)
        if (clock_of(s, i, false) < clock_of(other, i, false) || clock_of(s, i, true) < clock_of(other, i, true))
            return false;
    return true;
}

/* The later of all clocks of two snapshots of one cluster. */
static snapshot *snapshot_join(snapshot *x, snapshot *y)
{
    if (x == y || covers(x, y))
        return snapshot_use(x);
    if (covers(y, x))
        return snapshot_use(y);
    snapshot *s = snapshot_new(x->cluster, x->count > y->count ? x->count : y->count);
    for (int i = 0; i < 2 * s->count; i++) {
        int who = i % s->count;
        bool async = i >= s->count;
        uint32_t a = clock_of(x, who, async), b = clock_of(y, who, async);
        s->clock[i] = a > b ? a : b;
    }
    return s;
}

static past *past_new(int capacity)
{
    past *p = heap_alloc(1, sizeof *p + (size_t)capacity * sizeof(snapshot *));
    p->users = 1;
    return p;
}

void past_drop(past **p)
{
    past *old = *p;
    *p = NULL;
    if (!old || --old->users)
        return;
    for (int i = 0; i < old->count; i++)
        snapshot_drop(old->of[i]);
    heap_free(old);
}

static past *past_join(const past *x, const past *y)
{
    past *p = past_new(x->count + y->count);
    for (int i = 0, j = 0; i < x->count || j < y->count;) {
        int64_t a = i < x->count ? x->of[i]->cluster : INT64_MAX, b = j < y->count ? y->of[j]->cluster : INT64_MAX;
        if (a == b)
            p->of[p->count++] = snapshot_join(x->of[i++], y->of[j++]);
        else
            p->of[p->count++] = snapshot_use(a < b ? x->of[i++] : y->of[j++]);
    }
    return p;
}

/* The common case: what a poll brings is known already. */
static bool has_all(const past *p, const past *from)
{
    int at = 0;
    for (int i = 0; i < from->count; i++) {
        while (at < p->count && p->of[at]->cluster < from->of[i]->cluster)
            at++;
        if (at == p->count || p->of[at] != from->of[i])
            return false;
    }
    return true;
}

void past_add(past **to, past *from)
{
    if (!from || from == *to || (*to && has_all(*to, from)))
        return;
    past *sum = from;
    if (*to)
        sum = past_join(*to, from);
    else
        from->users++;
    past_drop(to);
    *to = sum;
}

static const snapshot *find(const past *p, int64_t index)
{
    int low = 0, high = p ? p->count : 0;
    while (low < high) {
        int middle = (low + high) / 2;
        if (p->of[middle]->cluster < index)
            low = middle + 1;
        else
            high = middle;
    }
    return p && low < p->count && p->of[low]->cluster == index ? p->of[low] : NULL;
}

uint32_t past_clock(const past *p, int64_t index, uint16_t who, bool async)
{
    const snapshot *s = find(p, index);
    return s ? clock_of(s, who, async) : 0;
}

void past_make_visible(past **p)
{
    if (!*p)
        return;
    past *visible = past_new((*p)->count);
    visible->count = (*p)->count;
    for (int i = 0; i < visible->count; i++) {
        const snapshot *s = (*p)->of[i];
        visible->of[i] = snapshot_new(s->cluster, s->count);
        memcpy(visible->of[i]->clock, s->clock, (size_t)s->count * sizeof(uint32_t));
        memcpy(visible->of[i]->clock + s->count, s->clock, (size_t)s->count * sizeof(uint32_t));
    }
    past_drop(p);
    *p = visible;
}

past *past_release(warp *w)
{
    const cluster *c = w->cluster;
    size_t bytes = (size_t)c->agent_count * sizeof(uint32_t);
    past *own = past_new(1), *all = NULL;
    own->count = 1;
    own->of[0] = snapshot_new(c->index, c->agent_count);
    memcpy(own->of[0]->clock, w->knows.seen, bytes);
    memcpy(own->of[0]->clock + c->agent_count, w->knows.global, bytes);
    past_add(&all, *w->knows.past);
    past_add(&all, own);
    past_drop(&own);
    w->knows.seen[w->agent]++; // what follows is not covered
    return all;
}

static uint32_t later(uint32_t x, uint32_t y)
{
    return x > y ? x : y;
}

/* Of another warp of the same cluster, the clocks become the warp's own knowledge: of all its lanes. */
void past_acquire(warp *w, past *p)
{
    const snapshot *own = find(p, w->cluster->index);
    for (int i = 0; own && i < own->count; i++) {
        const uint32_t seen = clock_of(own, i, false);
        w->knows.seen[i] = later(seen, w->knows.seen[i]);
        w->knows.global[i] = later(clock_of(own, i, true), w->knows.global[i]);
        if (i < w->cluster->warp_count)
            w->knows.whole[i] = later(seen, w->knows.whole[i]);
    }
    past_add(w->knows.past, p);
}
