/*
 * residents.c - an ordered launch: clusters that may wait for each other, as many at once as the device holds.
 *
 * A cluster runs until it has ended or all its warps wait. Then the one that has waited longest goes on if global
 * memory has changed since, else the next one starts. So a launch in which nobody waits holds one cluster at a time,
 * and one in which all wait for the last holds them all. When as many wait as the device holds, or all that are left,
 * it is a deadlock. Other kernels may leave less room: with the option `resident` so many clusters run at once.
 */
#include <limits.h>

#include "base/heap.h"
#include "base/math.h"
#include "base/random.h"
#include "device/emulator/machine.h"

enum {
    PATIENCE = 3200,  // times that all waiting clusters go on though memory has not changed: a loop may count its tries
    MIXED_MAX = 8,    // clusters that a random schedule interleaves although none waits
    SLICE_ROUNDS = 8, // of a cluster in a random schedule
};

typedef struct resident {
    cluster *c;
    uint64_t seen; // changes of memory before it last ran
} resident;

typedef struct residents {
    launch_state *l;
    resident *live; // those that wait, the longest first
    int count, max;
    cluster **spare; // memory of clusters that have ended
    int spare_count;
    int64_t started, next, step; // the clusters that start are `step` apart
    uint64_t random;
} residents;

static bool is_random(const residents *r)
{
    return r->l->device->options.schedule == SCHEDULE_RANDOM;
}

static uint64_t draw(residents *r)
{
    return random_next(&r->random);
}

static int64_t gcd(int64_t x, int64_t y)
{
    return y ? gcd(y, x % y) : x;
}

/* The order in which clusters start: by number, as GPUs begin them, or a random one that visits all of them. */
static void choose_order(residents *r)
{
    int64_t n = r->l->clusters;
    r->step = 1;
    if (!is_random(r) || r->l->device->options.resident)
        return;
    r->next = (int64_t)(draw(r) % (uint64_t)n);
    r->step = 1 + (int64_t)(draw(r) % (uint64_t)n);
    while (gcd(r->step, n) != 1)
        r->step++;
}

static cluster *start_next(residents *r)
{
    cluster *c = r->spare_count ? r->spare[--r->spare_count] : cluster_new(r->l);
    cluster_start(c, r->next);
    r->started++;
    r->next = (r->next + r->step) % r->l->clusters;
    return c;
}

static bool may_start(const residents *r)
{
    return r->started < r->l->clusters && r->count < r->max;
}

/* Takes a cluster out of those that wait. */
static cluster *resume(residents *r, int i)
{
    cluster *c = r->live[i].c;
    r->count--;
    for (; i < r->count; i++)
        r->live[i] = r->live[i + 1];
    return c;
}

/* The cluster that runs next; NULL: all have ended. */
static cluster *choose(residents *r)
{
    if (is_random(r) && r->count && (!may_start(r) || r->count >= MIXED_MAX) && draw(r) % 4)
        return resume(r, (int)(draw(r) % (uint64_t)r->count));
    if (is_random(r) && may_start(r) && r->count < MIXED_MAX && draw(r) % 2)
        return start_next(r);
    if (r->count && r->live[0].seen != r->l->changes)
        return resume(r, 0);
    if (may_start(r))
        return start_next(r);
    return r->count ? resume(r, 0) : NULL;
}

static void deadlock(residents *r, cluster *c)
{
    r->l->waiting = r->count;
    fault_deadlock(c);
    if (r->l->fault_cluster < 0) // of nobody who might have ended the wait
        keep_fault(r->l, c);
}

static void finish(residents *r, cluster *c)
{
    r->l->ended++;
    r->l->changes++;
    r->spare[r->spare_count++] = c;
}

/*
 * A fault ends the launch. After an endless loop the others go on all the same: it may be a poll by ordinary loads, and
 * then the race with what it polls says more.
 */
static bool goes_on(residents *r, cluster *c)
{
    launch_state *l = r->l;
    if (!c->endless)
        l->fault_cluster = -1;
    keep_fault(l, c);
    r->spare[r->spare_count++] = c;
    return c->endless;
}

/* Runs all clusters until one has a fault. */
static void run_all(residents *r)
{
    launch_state *l = r->l;
    int64_t idle = 0; // runs of clusters that polled to no avail since memory changed or a transfer was completed
    for (cluster *c = choose(r); c; c = choose(r)) {
        uint64_t before = l->changes, stores = c->stores, completed = c->completed, yields = c->yields;
        int rounds = is_random(r) ? 1 + (int)(draw(r) % SLICE_ROUNDS) : INT_MAX;
        cluster_state state = cluster_run(c, rounds);
        l->changes += c->stores - stores;
        bool still = l->changes == before && c->completed == completed && !c->busy;
        idle = still ? idle + (c->yields != yields) : 0; // without a poll warps have moved, or nothing can
        if (state == CLUSTER_ENDED) {
            finish(r, c);
            continue;
        }
        if (state == CLUSTER_FAULTED && !goes_on(r, c))
            return;
        if (state == CLUSTER_FAULTED)
            continue;
        r->live[r->count++] = (resident){ c, before };
        if (!may_start(r) && idle > (int64_t)PATIENCE * r->count) {
            deadlock(r, c);
            return;
        }
    }
}

void run_residents(launch_state *l, int64_t clusters)
{
    residents r = { .l = l, .random = l->device->options.seed };
    l->clusters = clusters;
    l->resident_max = max_i64(1, clusters_resident(l->kernel));
    if (l->device->options.resident)
        l->resident_max = min_i64(l->resident_max, l->device->options.resident);
    r.max = (int)min_i64(clusters, l->resident_max);
    r.live = heap_alloc((size_t)r.max + 1, sizeof *r.live);
    r.spare = heap_alloc((size_t)r.max + 1, sizeof *r.spare);
    choose_order(&r);
    run_all(&r);
    for (int i = 0; i < r.count; i++)
        r.spare[r.spare_count++] = r.live[i].c;
    for (int i = 0; i < r.spare_count; i++) {
        counters_add(l->device, r.spare[i]);
        cluster_free(r.spare[i]);
    }
    heap_free(r.live);
    heap_free(r.spare);
}
