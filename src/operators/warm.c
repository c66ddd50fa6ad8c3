/* warm.c - kernels of problem lines, prepared on several threads. */
#define _GNU_SOURCE // sched_getaffinity

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "operators/line.h"

enum { THREADS_MAX = 256, THREADS_DEFAULT_MAX = 16 };

/* What became of a line. */
typedef struct outcome {
    bool busy; // another thread was loading its kernels
    ckl_status status;
    char *sentence; // NULL where there was no memory for it
} outcome;

typedef struct work {
    ckl_device *device;
    const char *const *lines;
    outcome *outcomes;
    int count;
    int next;    // the first line that nobody has taken yet
    bool second; // the pass for lines whose kernels were busy
} work;

/* A line, read. */
typedef struct request {
    const char *line;
    arena memory;
    line_problem read;
    const char *force;
} request;

static ckl_status read_line(void *user)
{
    request *r = user;
    TRY(line_read(&r->memory, r->line, &r->read));
    r->force = line_force(&r->read.keys, &r->memory);
    return line_prepare(r->read.of, r->read.problem);
}

static ckl_status warm_line(ckl_device *device, const char *line, bool wait, bool *busy)
{
    request r = { .line = line };
    ckl_status status = heap_guard("warm", read_line, &r);
    if (status == CKL_NO_MEMORY)
        r.memory = (arena){ 0 }; // it is freed already
    if (status == CKL_OK)
        status = plan_warm(device, r.read.of->op, r.read.problem, r.force, wait, busy);
    arena_clear(&r.memory);
    return status;
}

static void *take_lines(void *argument)
{
    work *w = argument;
    for (int i; (i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->count;) {
        outcome *o = &w->outcomes[i];
        if (w->second && !o->busy)
            continue;
        o->status = warm_line(w->device, w->lines[i], w->second, &o->busy);
        if (o->status != CKL_OK)
            o->sentence = strdup(ckl_error());
    }
    return NULL;
}

/* The caller's thread works too; where no other can be had, alone. */
static void take_all(work *w, int threads)
{
    pthread_t others[THREADS_MAX];
    int started = 0;
    w->next = 0;
    while (started < threads - 1 && pthread_create(&others[started], NULL, take_lines, w) == 0)
        started++;
    take_lines(w);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}

static int default_threads(void)
{
    cpu_set_t mine;
    int count = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
    return count < THREADS_DEFAULT_MAX ? count : THREADS_DEFAULT_MAX;
}

/* Tells of each line that failed; the status of the first. */
static ckl_status report(const work *w, ckl_warm_failure failed, void *user)
{
    int count = 0, first = 0;
    for (int i = w->count - 1; i >= 0; i--)
        if (w->outcomes[i].status != CKL_OK) {
            first = i;
            count++;
        }
    for (int i = first; i < w->count && failed && count; i++)
        if (w->outcomes[i].status != CKL_OK)
            failed(i, w->outcomes[i].status, w->outcomes[i].sentence ? w->outcomes[i].sentence : "", user);
    if (count)
        FAIL(w->outcomes[first].status, "warm: %d of %d lines failed, the first of them lines[%d]: %s", count, w->count,
             first, w->outcomes[first].sentence ? w->outcomes[first].sentence : "");
    return CKL_OK;
}

/*
 * In the first pass no thread waits for another, as many lines share a kernel: it goes on to the next line. The second
 * pass finds the kernels of skipped lines loaded, or the reason why not.
 */
ckl_status ckl_warm(ckl_device *device, const char *const *lines, int count, int threads, ckl_warm_failure failed,
                    void *user)
{
    if (!device || (!lines && count > 0))
        FAIL(CKL_INVALID, "warm: %s is NULL", device ? "lines" : "device");
    if (count < 0)
        FAIL(CKL_INVALID, "warm: count=%d is negative", count);
    if (threads < 0 || threads > THREADS_MAX)
        FAIL(CKL_INVALID, "warm: threads=%d is not in 0..%d", threads, THREADS_MAX);
    for (int i = 0; i < count; i++)
        if (!lines[i])
            FAIL(CKL_INVALID, "warm: lines[%d] is NULL", i);
    work w = { .device = device, .lines = lines, .count = count };
    w.outcomes = calloc((size_t)count + 1, sizeof *w.outcomes);
    if (!w.outcomes)
        FAIL(CKL_NO_MEMORY, "warm: no memory for %d lines", count);
    take_all(&w, threads ? threads : default_threads());
    w.second = true;
    take_all(&w, threads ? threads : default_threads());
    ckl_status status = report(&w, failed, user);
    for (int i = 0; i < count; i++)
        free(w.outcomes[i].sentence);
    free(w.outcomes);
    return status;
}
