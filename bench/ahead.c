/* ahead.c - a window of rows: some threads fill its front, the measuring thread empties its back. */
#define _GNU_SOURCE // gettid

#include "bench/ahead.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/heap.h"
#include "base/math.h"
#include "base/threads.h"
#include "lab/clock.h"
#include "lab/compare.h"
#include "lab/cores.h"

/* Rows are many, so of a large problem fewer slices are compared than by `ckl verify`. */
static const double COMPARISON_EFFORT = 1.0 / 64;

/* A share of free memory, and enough for the largest rows: more would be new pages, which take time. */
static const double MEMORY_SHARE = 0.25, MEMORY_MAX = 8e9;

enum {
    WINDOW = 64,           // rows that are ready or being made
    WALKERS_MAX = 4,       // several: some rows have one slice, whose reference keeps one thread busy
    WALKER_NICE = 10,      // below everything else of the process
    SENTENCE_BYTES = 1024, // of a failure
};

/* A row of the window. */
typedef struct ahead_row {
    operand_images images;
    double bytes; // of them
    bool ready;   // and not yet taken
    ckl_status status;
    char sentence[SENTENCE_BYTES];
} ahead_row;

struct ahead {
    ahead_case of;
    const void *rows;
    const ckl_device_info *device;
    double bytes_max, bytes; // of the window's images, those that are being made among them
    int begun, taken;        // rows taken .. begun - 1 are the window
    bool closing;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ahead_row window[WINDOW];
    pthread_t walkers[WALKERS_MAX];
    int walker_count, threads_each;
};

static ckl_status make(const test_case *c, const ckl_device_info *device, double effort, operand_images *images)
{
    *images = (operand_images){ 0 };
    TRY(operand_images_fit(c, device));
    TRY(operand_images_create(c, device, images));
    images->keep_references = true;
    images->effort = effort;
    compare_prepare(c, images);
    return CKL_OK;
}

ckl_status ahead_make(const test_case *c, const ckl_device_info *device, operand_images *images)
{
    return make(c, device, COMPARISON_EFFORT, images);
}

/* Waits until the next row has room in the window, and takes it; NULL: there is no other one, or none is wanted. */
static const test_case *begin_row(ahead *a, ahead_row **row)
{
    const test_case *c;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        c = a->closing ? NULL : a->of(a->rows, a->begun);
        double bytes = c ? operand_images_bytes(c) : 0;
        bool has_room = a->begun - a->taken < WINDOW && (a->bytes == 0 || a->bytes + bytes <= a->bytes_max);
        if (c && !has_room) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        if (c) {
            *row = &a->window[a->begun++ % WINDOW];
            **row = (ahead_row){ .bytes = bytes };
            a->bytes += bytes;
        }
        break;
    }
    pthread_mutex_unlock(&a->lock);
    return c;
}

static void *walk(void *argument)
{
    ahead *a = argument;
    ahead_row *row;
    setpriority(PRIO_PROCESS, (id_t)gettid(), WALKER_NICE); // of this thread and those that it starts
    omp_set_num_threads(a->threads_each);
    for (const test_case *c; (c = begin_row(a, &row));) {
        double effort =
            COMPARISON_EFFORT * cores_available() / a->threads_each; // the slices that all threads would compare
        row->status = make(c, a->device, effort, &row->images);
        if (row->status != CKL_OK)
            snprintf(row->sentence, sizeof row->sentence, "%s", ckl_error());
        pthread_mutex_lock(&a->lock);
        row->ready = true;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->lock);
    }
    return NULL;
}

ahead *ahead_open(ahead_case of, const void *rows, const ahead_options *options)
{
    ahead *a = heap_alloc(1, sizeof *a);
    int cores = options->cores ? options->cores : (int)max_i64(cores_available() - 1, 1);
    int walkers = (int)min_i64(cores, WALKERS_MAX);
    a->of = of;
    a->rows = rows;
    a->device = options->device;
    a->bytes_max = options->bytes_max > 0 ? options->bytes_max : fmin(MEMORY_MAX, MEMORY_SHARE * operand_room());
    a->threads_each = cores / walkers;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    for (; a->walker_count < walkers; a->walker_count++)
        if (pthread_create(&a->walkers[a->walker_count], NULL, walk, a) != 0)
            break;
    if (a->walker_count == 0)
        abort();
    return a;
}

ckl_status ahead_take(ahead *a, operand_images *images, double *seconds)
{
    double begin = clock_seconds();
    ahead_row *row = &a->window[a->taken % WINDOW];
    pthread_mutex_lock(&a->lock);
    while (a->taken == a->begun || !row->ready)
        pthread_cond_wait(&a->changed, &a->lock);
    *images = row->images;
    ckl_status status = row->status;
    if (status != CKL_OK)
        status_fail(status, "%s", row->sentence);
    row->ready = false;
    a->bytes -= row->bytes;
    a->taken++;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    *seconds = clock_seconds() - begin;
    return status;
}

void ahead_close(ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->walker_count; i++)
        pthread_join(a->walkers[i], NULL);
    for (int i = a->taken; i < a->begun; i++)
        operand_images_free(&a->window[i % WINDOW].images);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    heap_free(a);
}
