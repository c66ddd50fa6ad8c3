/* launch.c - a launch: parameters, clusters over the host's cores, the first fault. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "device/emulator/machine.h"
#include "device/emulator/tma.h"

enum { SHARED_RESERVED = 1024 }; // of every CTA, by the hardware

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
            memcpy(&l->scalar[i], params[i], (size_t)memory_bytes_of(p->type));
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
static void keep_fault(launch_state *l, const cluster *c)
{
#pragma omp critical(emulator_fault)
    if (l->fault_cluster < 0 || c->index < l->fault_cluster) {
        l->fault_cluster = c->index;
        memcpy(l->fault, c->fault, sizeof l->fault);
    }
}

static void run_clusters(launch_state *l, int64_t clusters, int threads)
{
    int stop = 0;
#pragma omp parallel num_threads(threads)
    {
        cluster *c = cluster_new(l);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < clusters; i++) {
            int stopped;
#pragma omp atomic read
            stopped = stop;
            if (stopped || cluster_run(c, i))
                continue;
            keep_fault(l, c);
#pragma omp atomic write
            stop = 1;
        }
        counters_add(l->kernel->device, c);
        cluster_free(c);
    }
}

static int thread_count(const emulator *e, int64_t clusters)
{
    int threads = e->options.threads > 0 ? e->options.threads : omp_get_max_threads();
    return (int)min_i64(threads, clusters);
}

ckl_status kernel_launch(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s)
{
    (void)s;
    emulator *e = (emulator *)d;
    TRY(check_grid(kernel, launch->grid));
    launch_state *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    *l = (launch_state){ .device = e, .kernel = kernel, .fault_cluster = -1 };
    memcpy(l->grid, launch->grid, sizeof l->grid);
    ckl_status status = read_params(l, launch->params);
    if (status == CKL_OK) {
        int64_t clusters = launch->grid[0] / kernel->ir.cluster * launch->grid[1] * launch->grid[2];
        pthread_rwlock_rdlock(&e->memory.lock);
        run_clusters(l, clusters, thread_count(e, clusters));
        pthread_rwlock_unlock(&e->memory.lock);
    }
    if (l->fault_cluster >= 0)
        status = status_fail(CKL_DEVICE_FAULT, "%s", l->fault);
    pthread_mutex_lock(&e->counting);
    e->totals.value[COUNT_LAUNCHES]++;
    pthread_mutex_unlock(&e->counting);
    free(l);
    return status;
}

ckl_status kernel_clusters_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    const emulator *e = (const emulator *)d;
    int64_t by_smem = d->info.smem_per_sm_bytes / (kernel->ir.smem_bytes + SHARED_RESERVED);
    int64_t by_threads = e->threads_per_sm / kernel->ir.threads;
    int64_t per_sm = min_i64(min_i64(by_smem, by_threads), e->ctas_per_sm_max);
    *count = (int)(d->info.sm_count / kernel->ir.cluster * per_sm);
    return CKL_OK;
}
