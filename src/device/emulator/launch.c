/* launch.c - a launch: parameters, clusters over the host's cores, the first fault. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/threads.h"
#include "device/emulator/machine.h"
#include "device/emulator/tma.h"

enum { SHARED_RESERVED = 1024, ORDERED_EPOCHS_MAX = 1 << 30 }; // shared memory of every CTA for the hardware

static ckl_status check_grid(const device_kernel *k, const int64_t *grid)
{
    static const int64_t max[3] = { INT32_MAX, 65535, 65535 };
    for (int i = 0; i < 3; i++)
        if (grid[i] < 1 || grid[i] > max[i])
            FAIL(CKL_INVALID, "%s: grid[%d]=%" PRId64 " is not in 1 to %" PRId64, k->ir.name, i, grid[i], max[i]);
    if (grid[0] % k->ir.cluster)
        FAIL(CKL_INVALID, "%s: grid[0]=%" PRId64 " is no multiple of the cluster of %d CTAs", k->ir.name, grid[0],
             k->ir.cluster);
    return CKL_OK;
}

static ckl_status read_params(launch_state *l, void *const *params)
{
    for (int i = 0; i < l->kernel->ir.param_count; i++) {
        const ir_param *p = &l->kernel->ir.params[i];
        if (!p->tensor_map) {
            memcpy(&l->scalar[i], params[i], (size_t)ir_memory_bytes(p->type));
            continue;
        }
        memcpy(l->map_bytes[i], params[i], IR_TENSOR_MAP_BYTES);
        l->scalar[i] = (uint64_t)(uintptr_t)l->map_bytes[i];
        if (!tma_decode(l->map_bytes[i], &l->map[i]))
            FAIL(CKL_INVALID, "%s: parameter %s is no tensor map of this device", l->kernel->ir.name, p->name);
    }
    return CKL_OK;
}

/* Keeps the fault of the lowest cluster, so that a run with several faults reports the same one more often. */
void keep_fault(launch_state *l, const cluster *c)
{
#pragma omp critical(emulator_fault)
    if (l->fault_cluster < 0 || c->index < l->fault_cluster) {
        l->fault_cluster = c->index;
        memcpy(l->fault, c->fault, sizeof l->fault);
    }
}

/* What the host's threads share of a launch without order between clusters. */
typedef struct work {
    launch_state *l;
    int64_t clusters, next; // next: that nobody has taken
    bool out_of_memory;
    char sentence[256]; // that says so
} work;

static int64_t take_cluster(work *w)
{
    return __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);
}

static void stop(work *w)
{
    __atomic_store_n(&w->next, w->clusters, __ATOMIC_RELAXED);
}

/* One thread's clusters, one after the other in the same memory. */
static ckl_status run_some(void *user)
{
    work *w = user;
    cluster *c = cluster_new(w->l);
    for (int64_t i = take_cluster(w); i < w->clusters; i = take_cluster(w)) {
        cluster_start(c, i);
        if (cluster_run(c, INT_MAX) == CLUSTER_ENDED)
            continue;
        keep_fault(w->l, c);
        stop(w);
    }
    counters_add(w->l->device, c);
    cluster_free(c);
    return CKL_OK;
}

/* Every thread has a guard of its own, and with it the memory that it allocates. */
static ckl_status run_clusters(launch_state *l, int64_t clusters)
{
    work w = { .l = l, .clusters = clusters };
#pragma omp parallel num_threads(l->host_threads)
    if (heap_guard(l->kernel->ir.name, run_some, &w) != CKL_OK) {
        stop(&w);
#pragma omp critical(emulator_fault)
        {
            w.out_of_memory = true;
            snprintf(w.sentence, sizeof w.sentence, "%s", ckl_error());
        }
    }
    if (w.out_of_memory)
        FAIL(CKL_NO_MEMORY, "%s", w.sentence);
    return CKL_OK;
}

/* One thread runs all clusters of a launch that orders them. */
static ckl_status run_ordered(void *user)
{
    work *w = user;
    run_residents(w->l, w->clusters);
    epochs_clear(w->l);
    flags_clear(&w->l->flags);
    return CKL_OK;
}

static int thread_count(const emulator *e, int64_t clusters)
{
    int threads = e->options.threads > 0 ? e->options.threads : omp_get_max_threads();
    return (int)min_i64(threads, clusters);
}

/* Numbers for the epochs of a launch. When all have been used, no shadow may remember any. */
static uint32_t first_epoch(emulator *e, int64_t count)
{
    if (e->epochs > UINT32_MAX - 2 - count) {
        e->epochs = 0;
        overlap_none(e);
        global_shadows_clear(&e->memory);
    }
    return e->epochs + 1;
}

static ckl_status run(launch_state *l, int64_t clusters, ckl_stream s)
{
    emulator *e = l->device;
    ckl_status status;
    pthread_mutex_lock(&e->launching);
    pthread_rwlock_rdlock(&e->memory.lock);
    l->ordered = l->kernel->ordered;
    l->host_threads = l->ordered ? 1 : thread_count(e, clusters);
    l->first_epoch = first_epoch(e, l->ordered ? ORDERED_EPOCHS_MAX : clusters);
    overlap_begin(l, s);
    if (l->ordered)
        status = heap_guard(l->kernel->ir.name, run_ordered, &(work){ .l = l, .clusters = clusters });
    else
        status = run_clusters(l, clusters);
    overlap_end(l, s);
    e->epochs = l->first_epoch + (l->ordered ? l->epoch_count : (uint32_t)clusters);
    pthread_rwlock_unlock(&e->memory.lock);
    pthread_mutex_unlock(&e->launching);
    return status;
}

ckl_status kernel_launch(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s)
{
    emulator *e = (emulator *)d;
    TRY(check_grid(kernel, launch->grid));
    launch_state *l = calloc(1, sizeof *l);
    if (!l)
        FAIL(CKL_NO_MEMORY, "%s: no host memory for %zu bytes", kernel->ir.name, sizeof *l);
    *l = (launch_state){ .device = e, .kernel = kernel, .fault_cluster = -1 };
    memcpy(l->grid, launch->grid, sizeof l->grid);
    ckl_status status = read_params(l, launch->params);
    if (status == CKL_OK) {
        int64_t clusters = launch->grid[0] / kernel->ir.cluster * launch->grid[1] * launch->grid[2];
        status = run(l, clusters, s);
    }
    if (l->fault_cluster >= 0)
        status = status_fail(CKL_DEVICE_FAULT, "%s", l->fault);
    pthread_mutex_lock(&e->counting);
    e->totals.value[COUNT_LAUNCHES]++;
    pthread_mutex_unlock(&e->counting);
    free(l);
    return status;
}

int clusters_resident(const device_kernel *k)
{
    const emulator *e = k->device;
    int64_t by_smem = e->base.info.smem_per_sm_bytes / (k->ir.smem_bytes + SHARED_RESERVED);
    int64_t by_threads = e->threads_per_sm / k->ir.threads;
    int64_t per_sm = min_i64(min_i64(by_smem, by_threads), e->ctas_per_sm_max);
    return (int)(e->base.info.sm_count / k->ir.cluster * per_sm);
}

ckl_status kernel_clusters_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    (void)d;
    *count = clusters_resident(kernel);
    return CKL_OK;
}
