/* cuda.c - an NVIDIA GPU through its driver: the primary context, memory, streams, launches. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "device/cuda_call.h"

enum {
    CAPABILITY_MIN = 80,
    CLUSTER_PORTABLE = 8,              // CTAs; larger clusters must be allowed
    CARVEOUT_SMEM_BYTES_MIN = 32 << 10 // below it the driver may give the SM's memory to the L1 cache
};

struct device_kernel {
    cuda_code code;
    cu_function function;
    char *name;
    int threads, cluster;
    unsigned smem_bytes;
    bool may_overlap; // has GRID_WAIT: may start before the previous kernel has ended
};

static cu_pointer address_of(const void *memory)
{
    return (cu_pointer)(uintptr_t)memory;
}

/* Memory and streams */

static ckl_status cuda_alloc(ckl_device *d, size_t bytes, void **memory)
{
    cu_pointer pointer = 0;
    ckl_status status = PLAN_CALL(d, cuMemAlloc_v2, &pointer, bytes);
    if (status == CKL_NO_MEMORY) {
        size_t free_bytes = 0, all_bytes = 0;
        TRY(CALL(d, cuMemGetInfo_v2, &free_bytes, &all_bytes));
        FAIL(CKL_NO_MEMORY, "%s: %zu bytes cannot be allocated, %zu of %zu are free", d->info.id, bytes, free_bytes,
             all_bytes);
    }
    if (status == CKL_OK)
        *memory = (void *)(uintptr_t)pointer;
    return status;
}

static void cuda_release(ckl_device *d, void *memory)
{
    RELEASE(d, cuMemFree_v2, address_of(memory));
}

/* The driver would refuse, too, but the capture would be lost. */
static ckl_status check_waiting(ckl_device *d, ckl_stream s)
{
    int captured = 0;
    TRY(CALL(d, cuStreamIsCapturing, s, &captured));
    if (captured)
        FAIL(CKL_INVALID, "%s: the stream is being captured, its work cannot be waited for", d->info.id);
    return CKL_OK;
}

static ckl_status cuda_synchronize(ckl_device *d, ckl_stream s)
{
    TRY(check_waiting(d, s));
    return PLAN_CALL(d, cuStreamSynchronize, s);
}

static ckl_status cuda_stream_idle(ckl_device *d, ckl_stream s, bool *idle)
{
    enum { NOT_READY = 600 };
    TRY(check_waiting(d, s));
    cuda_enter(d);
    cu_result result = cuda.cuStreamQuery(s);
    TRY(cuda_leave(d, result == NOT_READY ? 0 : result, "cuStreamQuery"));
    *idle = result == 0;
    return CKL_OK;
}

static ckl_status cuda_copy_in(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    TRY(check_waiting(d, s));
    TRY(CALL(d, cuMemcpyHtoDAsync_v2, address_of(to), from, bytes, s));
    return PLAN_CALL(d, cuStreamSynchronize, s);
}

static ckl_status cuda_copy_out(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    TRY(check_waiting(d, s));
    TRY(CALL(d, cuMemcpyDtoHAsync_v2, to, address_of(from), bytes, s));
    return PLAN_CALL(d, cuStreamSynchronize, s);
}

static ckl_status cuda_copy(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    return CALL(d, cuMemcpyDtoDAsync_v2, address_of(to), address_of(from), bytes, s);
}

static ckl_status cuda_fill(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s)
{
    return CALL(d, cuMemsetD8Async, address_of(to), byte, bytes, s);
}

static ckl_status cuda_memory_used(ckl_device *d, size_t *bytes)
{
    size_t free_bytes = 0, all_bytes = 0;
    TRY(CALL(d, cuMemGetInfo_v2, &free_bytes, &all_bytes));
    *bytes = all_bytes - free_bytes;
    return CKL_OK;
}

static ckl_status cuda_pin(ckl_device *d, void *memory, size_t bytes)
{
    return PLAN_CALL(d, cuMemHostRegister_v2, memory, bytes, 0);
}

static void cuda_unpin(ckl_device *d, void *memory)
{
    RELEASE(d, cuMemHostUnregister, memory);
}

static ckl_status cuda_stream_create(ckl_device *d, ckl_stream *s)
{
    return PLAN_CALL(d, cuStreamCreate, s, CU_STREAM_NON_BLOCKING);
}

static void cuda_stream_destroy(ckl_device *d, ckl_stream s)
{
    RELEASE(d, cuStreamDestroy_v2, s);
}

/* Kernels */

static ckl_status set_attributes(ckl_device *d, const device_kernel *loaded)
{
    cu_function f = loaded->function;
    TRY(PLAN_CALL(d, cuFuncSetAttribute, f, CU_FUNCTION_SMEM_BYTES_MAX, (int)loaded->smem_bytes));
    if (loaded->smem_bytes >= CARVEOUT_SMEM_BYTES_MIN)
        TRY(PLAN_CALL(d, cuFuncSetAttribute, f, CU_FUNCTION_SMEM_CARVEOUT, 100));
    if (loaded->cluster > CLUSTER_PORTABLE)
        TRY(PLAN_CALL(d, cuFuncSetAttribute, f, CU_FUNCTION_LARGE_CLUSTERS, 1));
    return CKL_OK;
}

static void cuda_unload(ckl_device *d, device_kernel *kernel)
{
    cuda_module_unload(d, &kernel->code);
    heap_free(kernel->name);
    heap_free(kernel);
}

/* What is kept on disk goes by its text but the first line, which is for people: many configs have the same kernels. */
static const char *code_of(const text *ptx)
{
    return strchr(text_data(ptx), '\n') + 1;
}

static ckl_status load_ptx(ckl_device *d, const ir_kernel *kernel, const char *ptx, device_kernel *loaded)
{
    TRY(cuda_module_load(d, kernel->name, ptx, &loaded->code));
    TRY(PLAN_CALL(d, cuModuleGetFunction, &loaded->function, loaded->code.module, kernel->name));
    return set_attributes(d, loaded);
}

/* A kernel that waits for the one before it may start while that one still runs (programmatic dependent launch). */
static bool may_overlap(const ir_kernel *kernel)
{
    if (kernel->target == IR_SM80)
        return false;
    for (int i = 0; i < kernel->inst_count; i++)
        if (kernel->insts[i].op == IR_GRID_WAIT)
            return true;
    return false;
}

static ckl_status cuda_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    TRY(device_check_limits(&d->info, kernel));
    device_kernel *k = heap_alloc(1, sizeof *k);
    *k = (device_kernel){ .name = heap_text(kernel->name),
                          .threads = kernel->threads,
                          .cluster = kernel->cluster,
                          .smem_bytes = (unsigned)kernel->smem_bytes,
                          .may_overlap = may_overlap(kernel) };
    text ptx = { 0 };
    ckl_status status = ir_print_ptx(kernel, &ptx);
    if (status == CKL_OK)
        status = load_ptx(d, kernel, code_of(&ptx), k);
    text_free(&ptx);
    if (status == CKL_OK)
        *loaded = k;
    else
        cuda_unload(d, k);
    return status;
}

/* The launch attributes of a kernel; returns how many. */
static unsigned launch_attributes(const device_kernel *kernel, bool overlaps, cu_launch_attribute attributes[2])
{
    unsigned count = 0;
    if (kernel->cluster > 1)
        attributes[count++] =
            (cu_launch_attribute){ .id = CU_LAUNCH_CLUSTER, .value.dims = { (unsigned)kernel->cluster, 1, 1 } };
    if (overlaps)
        attributes[count++] = (cu_launch_attribute){ .id = CU_LAUNCH_OVERLAP_PROLOGUE, .value.flag = 1 };
    return count;
}

static ckl_status cuda_clusters_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    if (kernel->cluster <= 1) {
        int per_sm = 0;
        TRY(PLAN_CALL(d, cuOccupancyMaxActiveBlocksPerMultiprocessor, &per_sm, kernel->function, kernel->threads,
                      kernel->smem_bytes));
        *count = per_sm * d->info.sm_count;
        return CKL_OK;
    }
    cu_launch_attribute attributes[2];
    cu_launch_config config = {
        .grid = { (unsigned)kernel->cluster, 1, 1 },
        .block = { (unsigned)kernel->threads, 1, 1 },
        .smem_bytes = kernel->smem_bytes,
        .attributes = attributes,
    };
    config.attribute_count = launch_attributes(kernel, false, attributes);
    return PLAN_CALL(d, cuOccupancyMaxActiveClusters, count, kernel->function, &config);
}

static ckl_status cuda_launch(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s)
{
    const bool overlaps = kernel->may_overlap && !((const cuda_device *)d)->no_overlap;
    cu_launch_attribute attributes[2];
    cu_launch_config config = {
        .grid = { (unsigned)launch->grid[0], (unsigned)launch->grid[1], (unsigned)launch->grid[2] },
        .block = { (unsigned)kernel->threads, 1, 1 },
        .smem_bytes = kernel->smem_bytes,
        .stream = s,
        .attributes = attributes,
        .attribute_count = launch_attributes(kernel, overlaps, attributes),
    };
    void **params = (void **)(uintptr_t)launch->params;
    ckl_status status = CALL(d, cuLaunchKernelEx, &config, kernel->function, params, NULL);
    if (status != CKL_OK)
        FAIL(status, "kernel %s: grid %u x %u x %u: %s", kernel->name, config.grid[0], config.grid[1], config.grid[2],
             ckl_error());
    return CKL_OK;
}

/* CUtensorMapDataType; 8-bit types of any kind are copied as bytes. */
static const int map_types[CKL_DTYPE_COUNT] = {
    [CKL_F64] = 8, [CKL_F32] = 7, [CKL_F16] = 6, [CKL_BF16] = 9, [CKL_E4M3] = 0, [CKL_E5M2] = 0,
    [CKL_I64] = 5, [CKL_I32] = 3, [CKL_I16] = 1, [CKL_I8] = 0,   [CKL_U8] = 0,   [CKL_BOOL] = 0,
};

/*
 * NOTE: promotion of L2 fills to 256 bytes gives 779 instead of 713 TFLOP/s (8192^3 f16 GEMM). What lies outside the
 * tensor reads as zero.
 */
static ckl_status cuda_encode_tensor_map(const ckl_device *d, const tensor_map_desc *desc, tensor_map *map)
{
    enum { INTERLEAVE_NONE = 0, L2_PROMOTION_256 = 3, FILL_ZERO = 0 };
    TRY(tensor_map_check(desc));
    uint64_t sizes[TENSOR_MAP_RANK_MAX], strides[TENSOR_MAP_RANK_MAX];
    uint32_t box[TENSOR_MAP_RANK_MAX], steps[TENSOR_MAP_RANK_MAX];
    for (int i = 0; i < desc->rank; i++) {
        sizes[i] = (uint64_t)desc->size[i];
        strides[i] = (uint64_t)desc->stride[i];
        steps[i] = (uint32_t)tensor_map_step(desc, i);
        box[i] = ((uint32_t)desc->box[i] - 1) * steps[i] + 1; // what it spans
    }
    int swizzle = desc->swizzle == SWIZZLE_NONE ? 0 : log2_i64((int64_t)desc->swizzle) - 4; // 32, 64, 128: 1, 2, 3
    const int promotion =
        desc->l2_promotion ? log2_i64(desc->l2_promotion) - 5 : L2_PROMOTION_256; // 64, 128, 256: 1, 2, 3
    int lower[TENSOR_MAP_PIXEL_MODES], upper[TENSOR_MAP_PIXEL_MODES];
    for (int i = 0; i < TENSOR_MAP_PIXEL_MODES; i++) {
        lower[i] = desc->lower[i];
        upper[i] = desc->upper[i];
    }
    if (desc->im2col)
        return CALL(d, cuTensorMapEncodeIm2col, map, map_types[desc->dtype], (uint32_t)desc->rank, desc->address, sizes,
                    strides + 1, lower, upper, (uint32_t)desc->box[0], (uint32_t)desc->box[1], steps, INTERLEAVE_NONE,
                    swizzle, promotion, FILL_ZERO);
    return CALL(d, cuTensorMapEncodeTiled, map, map_types[desc->dtype], (uint32_t)desc->rank, desc->address, sizes,
                strides + 1, box, steps, INTERLEAVE_NONE, swizzle, promotion, FILL_ZERO);
}

/* Measuring */

static ckl_status cuda_event_create(ckl_device *d, device_event *event)
{
    return CALL(d, cuEventCreate, event, 0);
}

static void cuda_event_destroy(ckl_device *d, device_event event)
{
    RELEASE(d, cuEventDestroy_v2, event);
}

static ckl_status cuda_event_record(ckl_device *d, device_event event, ckl_stream s)
{
    return CALL(d, cuEventRecord, event, s);
}

static ckl_status cuda_event_elapsed_us(ckl_device *d, device_event begin, device_event end, double *us)
{
    float ms = 0;
    TRY(CALL(d, cuEventSynchronize, end));
    TRY(CALL(d, cuEventElapsedTime, &ms, begin, end));
    *us = (double)ms * 1e3;
    return CKL_OK;
}

static ckl_status cuda_graph_begin(ckl_device *d, ckl_stream s)
{
    return CALL(d, cuStreamBeginCapture_v2, s, CU_CAPTURE_RELAXED);
}

static ckl_status cuda_graph_end(ckl_device *d, ckl_stream s, void **graph)
{
    cu_graph captured = NULL;
    TRY(CALL(d, cuStreamEndCapture, s, &captured));
    ckl_status status = CALL(d, cuGraphInstantiateWithFlags, graph, captured, 0);
    RELEASE(d, cuGraphDestroy, captured);
    return status;
}

static ckl_status cuda_graph_launch(ckl_device *d, void *graph, ckl_stream s)
{
    return CALL(d, cuGraphLaunch, graph, s);
}

static void cuda_graph_destroy(ckl_device *d, void *graph)
{
    RELEASE(d, cuGraphExecDestroy, graph);
}

static void cuda_allow_overlap(ckl_device *d, bool allowed)
{
    ((cuda_device *)d)->no_overlap = !allowed;
}

/* Opening */

static void cuda_close(ckl_device *d)
{
    cubin_cache_close(cuda_of(d)->cache);
    if (cuda_of(d)->context)
        cuda.cuDevicePrimaryCtxRelease_v2(cuda_of(d)->ordinal);
    free(cuda_of(d));
}

static const device_ops ops = {
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .memory_used = cuda_memory_used,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .synchronize = cuda_synchronize,
    .stream_idle = cuda_stream_idle,
    .load = cuda_load,
    .unload = cuda_unload,
    .clusters_resident = cuda_clusters_resident,
    .encode_tensor_map = cuda_encode_tensor_map,
    .launch = cuda_launch,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_elapsed_us = cuda_event_elapsed_us,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .allow_overlap = cuda_allow_overlap,
};

/* A failure stays in *failed. */
static int attribute(cu_device device, int which, cu_result *failed)
{
    int value = 0;
    cu_result result = cuda.cuDeviceGetAttribute(&value, which, device);
    if (result)
        *failed = result;
    return value;
}

static cu_result read_info(cu_device device, ckl_device_info *info)
{
    size_t memory = 0;
    cu_result failed = cuda.cuDeviceTotalMem_v2(&memory, device), unnamed;
    unnamed = cuda.cuDeviceGetName(info->name, sizeof info->name, device);
    if (unnamed)
        failed = unnamed;
    info->compute_capability = attribute(device, CU_ATTRIBUTE_CAPABILITY_MAJOR, &failed) * 10 +
                               attribute(device, CU_ATTRIBUTE_CAPABILITY_MINOR, &failed);
    info->sm_count = attribute(device, CU_ATTRIBUTE_SM_COUNT, &failed);
    info->clock_mhz = attribute(device, CU_ATTRIBUTE_CLOCK_KHZ, &failed) / 1000;
    info->threads_per_cta_max = attribute(device, CU_ATTRIBUTE_THREADS_PER_CTA, &failed);
    info->registers_per_sm = attribute(device, CU_ATTRIBUTE_REGISTERS_PER_SM, &failed);
    info->memory_bytes = (int64_t)memory;
    info->l2_bytes = attribute(device, CU_ATTRIBUTE_L2_BYTES, &failed);
    info->smem_per_sm_bytes = attribute(device, CU_ATTRIBUTE_SMEM_PER_SM, &failed);
    info->smem_per_cta_bytes = attribute(device, CU_ATTRIBUTE_SMEM_PER_CTA_OPTIN, &failed);
    info->has_tma = info->compute_capability >= 90;
    info->has_wgmma = info->compute_capability == 90; // sm_90a code runs on 9.0 alone
    return failed;
}

/* "" is 0. */
static ckl_status parse_ordinal(const char *which, int *ordinal)
{
    char *end;
    long number = *which ? strtol(which, &end, 10) : 0;
    if (*which && (*end || end == which || number < 0 || number > INT_MAX))
        FAIL(CKL_INVALID, "device: cuda:%s is not the number of a GPU", which);
    int count = 0;
    cu_result result = cuda.cuDeviceGetCount(&count);
    if (result)
        FAIL(CKL_DEVICE_FAULT, "device: cuDeviceGetCount fails with error %d of the driver", result);
    if (number >= count)
        FAIL(CKL_INVALID, "device: cuda:%ld does not exist, the driver finds %d GPU%s", number, count,
             count == 1 ? "" : "s");
    *ordinal = (int)number;
    return CKL_OK;
}

/* Without a cache kernels are compiled in every process. */
static void open_cache(cuda_device *device)
{
    if (cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &device->cache) == CKL_OK)
        return;
    log_say("cache", "%s", ckl_error());
    status_clear();
}

/* Fills in a device that is all zeros. */
static ckl_status open_ordinal(cuda_device *device, int ordinal)
{
    ckl_device *d = &device->base;
    d->ops = &ops;
    snprintf(d->info.id, sizeof d->info.id, "cuda:%d", ordinal);
    cu_result result = cuda.cuDeviceGet(&device->ordinal, ordinal);
    if (result)
        return cuda_explain(d, result, "cuDeviceGet");
    result = read_info(device->ordinal, &d->info);
    if (result)
        return cuda_explain(d, result, "reading its properties");
    if (d->info.compute_capability < CAPABILITY_MIN)
        FAIL(CKL_UNSUPPORTED, "device: %s is a %s of sm_%d, sm_%d or later is needed", d->info.id, d->info.name,
             d->info.compute_capability, CAPABILITY_MIN);
    result = cuda.cuDevicePrimaryCtxRetain(&device->context, device->ordinal);
    return result ? cuda_explain(d, result, "cuDevicePrimaryCtxRetain") : CKL_OK;
}

ckl_status cuda_open(const char *which, ckl_device **device)
{
    int ordinal = 0;
    TRY(cuda_driver_load());
    TRY(parse_ordinal(which, &ordinal));
    cuda_device *opened = calloc(1, sizeof *opened);
    if (!opened)
        FAIL(CKL_NO_MEMORY, "device: no host memory for cuda:%d", ordinal);
    ckl_status status = open_ordinal(opened, ordinal);
    if (status != CKL_OK) {
        cuda_close(&opened->base);
        return status;
    }
    open_cache(opened);
    *device = &opened->base;
    return CKL_OK;
}
