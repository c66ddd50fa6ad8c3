/* device.c - the emulated GPU in the table of devices: its models, its settings, its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "base/math.h"
#include "device/emulator/machine.h"
#include "device/emulator/tma.h"

typedef struct model {
    const char *id, *name;
    int compute_capability, sm_count, clock_mhz;
    int64_t memory_gib, l2_mib, smem_per_sm, smem_per_cta;
    int threads_per_sm, ctas_per_sm_max;
    bool tma, wgmma; // TMA and clusters
} model;

/* NVIDIA's data sheets and the CUDA programming guide, table of technical specifications per compute capability. */
static const model models[] = {
    { "h200", "NVIDIA H200", 90, 132, 1980, 141, 60, 233472, 232448, 2048, 32, true, true },
    { "h100", "NVIDIA H100", 90, 132, 1980, 80, 50, 233472, 232448, 2048, 32, true, true },
    { "b200", "NVIDIA B200", 100, 148, 1965, 180, 126, 233472, 232448, 2048, 32, true, false },
    { "a100", "NVIDIA A100", 80, 108, 1410, 80, 40, 167936, 166912, 2048, 32, false, false },
    { "a10", "NVIDIA A10", 86, 72, 1695, 24, 6, 102400, 101376, 1536, 16, false, false },
    { "l4", "NVIDIA L4", 89, 58, 2040, 24, 48, 102400, 101376, 1536, 24, false, false },
};

enum { THREADS_PER_CTA_MAX = 1024, REGISTERS_PER_SM = 65536 };

/* Settings */

static const field option_fields[] = {
    FIELD_ROW(emulator_options, int64_t, seed, "1", "", "of everything random")                                    //
    FIELD_ROW(emulator_options, choice, schedule, "rounds", "rounds random", "which warp runs next")               //
    FIELD_ROW(emulator_options, choice, completion, "lazy", "eager lazy random", "when asynchronous work is done") //
    FIELD_ROW(emulator_options, int64_t, budget, "400000000", "", "instructions of a warp, then it is endless")    //
    FIELD_ROW(emulator_options, int, threads, "0", "", "of the host; 0: as many as OpenMP gives")                  //
    FIELD_ROW(emulator_options, int, resident, "0", "", "clusters at once; 0: as many as the device holds")        //
};
static const field_table option_table = FIELD_TABLE(option_fields);

emulator_options emulator_options_default(void)
{
    emulator_options options;
    fields_default(option_table, &options);
    return options;
}

ckl_status emulator_options_parse(const char *line, emulator_options *options)
{
    emulator_options read = *options;
    char copy[512], *rest;
    if (snprintf(copy, sizeof copy, "%s", line) >= (int)sizeof copy)
        FAIL(CKL_INVALID, "CKL_EMULATOR is longer than %zu characters", sizeof copy - 1);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        if (!equals || !equals[1])
            FAIL(CKL_INVALID, "CKL_EMULATOR: \"%s\" is not key=value", word);
        *equals = '\0';
        TRY(fields_set(option_table, "CKL_EMULATOR", word, equals + 1, &read));
    }
    TRY(fields_check(option_table, "CKL_EMULATOR", &read));
    *options = read;
    return CKL_OK;
}

/* Memory */

static emulator *emulator_of(ckl_device *d)
{
    return (emulator *)d;
}

static ckl_status device_alloc(ckl_device *d, size_t bytes, void **memory)
{
    return memory_alloc(&emulator_of(d)->memory, bytes, memory);
}

static void device_release(ckl_device *d, void *memory)
{
    overlap_none(emulator_of(d));
    memory_release(&emulator_of(d)->memory, memory);
}

static void device_name_memory(ckl_device *d, const void *at, const char *name)
{
    memory_name(&emulator_of(d)->memory, (uintptr_t)at, name);
}

/* The allocation around device memory that the host names; NULL with the sentence written. */
static allocation *host_find(emulator *e, const char *what, const void *at, size_t bytes)
{
    allocation *a = memory_find(&e->memory, (uintptr_t)at, bytes);
    if (a)
        return a;
    char why[160];
    memory_explain(&e->memory, (uintptr_t)at, bytes, why, sizeof why);
    status_fail(CKL_INVALID, "%s: %zu bytes at %p are not device memory: %s", what, bytes, at, why);
    return NULL;
}

/* Writes bytes that the host gives, or the same byte everywhere. */
static ckl_status host_write(ckl_device *d, const char *what, void *to, const void *from, unsigned char byte,
                             size_t bytes)
{
    emulator *e = emulator_of(d);
    overlap_none(e);
    pthread_rwlock_rdlock(&e->memory.lock);
    allocation *a = bytes ? host_find(e, what, to, bytes) : NULL;
    if (a && from)
        memcpy(to, from, bytes);
    else if (a)
        memset(to, byte, bytes);
    if (a)
        memory_mark(a, (uintptr_t)to, bytes);
    pthread_rwlock_unlock(&e->memory.lock);
    return a || !bytes ? CKL_OK : CKL_INVALID;
}

static ckl_status device_copy_in(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    (void)s;
    return host_write(d, "copy to the device", to, from, 0, bytes);
}

static ckl_status device_copy_out(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    (void)s;
    emulator *e = emulator_of(d);
    overlap_none(e);
    pthread_rwlock_rdlock(&e->memory.lock);
    allocation *a = bytes ? host_find(e, "copy from the device", from, bytes) : NULL;
    if (a)
        memcpy(to, from, bytes);
    pthread_rwlock_unlock(&e->memory.lock);
    return a || !bytes ? CKL_OK : CKL_INVALID;
}

/* What was not written at the source is not written at the destination either. */
static void copy_shadow(allocation *to, uintptr_t to_at, const allocation *from, uintptr_t from_at, size_t bytes)
{
    if (memory_is_written(from, from_at, bytes)) {
        memory_mark(to, to_at, bytes);
        return;
    }
    if (to->all_written)
        memset(to->written, 1, to->bytes);
    to->all_written = false;
    memmove(to->written + (to_at - to->base), from->written + (from_at - from->base), bytes);
}

static ckl_status device_copy(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    (void)s;
    emulator *e = emulator_of(d);
    overlap_none(e);
    pthread_rwlock_rdlock(&e->memory.lock);
    allocation *source = bytes ? host_find(e, "copy on the device", from, bytes) : NULL;
    allocation *target = source ? host_find(e, "copy on the device", to, bytes) : NULL;
    if (target) {
        memmove(to, from, bytes);
        copy_shadow(target, (uintptr_t)to, source, (uintptr_t)from, bytes);
    }
    pthread_rwlock_unlock(&e->memory.lock);
    return target || !bytes ? CKL_OK : CKL_INVALID;
}

static ckl_status device_fill(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s)
{
    (void)s;
    return host_write(d, "fill", to, NULL, byte, bytes);
}

static ckl_status device_memory_used(ckl_device *d, size_t *bytes)
{
    emulator *e = emulator_of(d);
    pthread_rwlock_rdlock(&e->memory.lock);
    *bytes = e->memory.bytes;
    pthread_rwlock_unlock(&e->memory.lock);
    return CKL_OK;
}

/* Streams: everything runs at once and in the caller's thread, so a stream is only a name. */

static ckl_status device_stream_create(ckl_device *d, ckl_stream *s)
{
    (void)d;
    char *name = malloc(1);
    if (!name)
        FAIL(CKL_NO_MEMORY, "emulator: no host memory for a stream");
    *s = name;
    return CKL_OK;
}

static void device_stream_destroy(ckl_device *d, ckl_stream s)
{
    (void)d;
    free(s);
}

static ckl_status device_synchronize(ckl_device *d, ckl_stream s)
{
    (void)s;
    overlap_none(emulator_of(d));
    return CKL_OK;
}

static ckl_status device_encode_tensor_map(const ckl_device *d, const tensor_map_desc *desc, tensor_map *map)
{
    if (!d->info.has_tma)
        FAIL(CKL_UNSUPPORTED, "tensor map: %s has no TMA", d->info.id);
    return tma_encode(desc, map);
}

static void device_close(ckl_device *d)
{
    emulator *e = emulator_of(d);
    memory_clear(&e->memory);
    pthread_mutex_destroy(&e->counting);
    pthread_mutex_destroy(&e->launching);
    free(e);
}

static const device_ops ops = {
    .close = device_close,
    .alloc = device_alloc,
    .release = device_release,
    .copy_in = device_copy_in,
    .copy_out = device_copy_out,
    .copy = device_copy,
    .fill = device_fill,
    .memory_used = device_memory_used,
    .stream_create = device_stream_create,
    .stream_destroy = device_stream_destroy,
    .synchronize = device_synchronize,
    .load = kernel_load,
    .unload = kernel_unload,
    .clusters_resident = kernel_clusters_resident,
    .encode_tensor_map = device_encode_tensor_map,
    .launch = kernel_launch,
    .name_memory = device_name_memory,
    .counters = counters_read,
    .conflicts = counters_conflicts,
    .counters_reset = counters_clear,
};

/* Opening */

static const model *find_model(const char *which)
{
    for (int i = 0; i < COUNT_OF(models); i++)
        if (strcmp(models[i].id, *which ? which : "h200") == 0)
            return &models[i];
    char known[64] = "";
    for (int i = 0; i < COUNT_OF(models); i++) {
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "", models[i].id);
    }
    status_fail(CKL_INVALID, "emulator:%s is not known; there are %s", which, known);
    return NULL;
}

static ckl_device_info info_of(const model *m)
{
    ckl_device_info info = {
        .emulated = true,
        .compute_capability = m->compute_capability,
        .sm_count = m->sm_count,
        .clock_mhz = m->clock_mhz,
        .threads_per_cta_max = THREADS_PER_CTA_MAX,
        .registers_per_sm = REGISTERS_PER_SM,
        .memory_bytes = m->memory_gib << 30,
        .l2_bytes = m->l2_mib << 20,
        .smem_per_sm_bytes = m->smem_per_sm,
        .smem_per_cta_bytes = m->smem_per_cta,
        .has_tma = m->tma,
        .has_wgmma = m->wgmma,
    };
    snprintf(info.id, sizeof info.id, "emulator:%s", m->id);
    snprintf(info.name, sizeof info.name, "emulated %s", m->name);
    return info;
}

ckl_status emulator_open_with(const char *which, const emulator_options *options, ckl_device **device)
{
    const model *m = find_model(which);
    if (!m)
        return CKL_INVALID;
    emulator *e = aligned_alloc(_Alignof(emulator), sizeof *e);
    if (!e)
        FAIL(CKL_NO_MEMORY, "device: no host memory for emulator:%s", m->id);
    *e = (emulator){ .base = { .ops = &ops, .info = info_of(m) },
                     .options = *options,
                     .ctas_per_sm_max = m->ctas_per_sm_max,
                     .threads_per_sm = m->threads_per_sm,
                     // NOTE: how Blackwell's mma.sync cuts sums has not been measured: Hopper's way
                     .core = m->tma ? &TENSOR_CORE_HOPPER : &TENSOR_CORE_AMPERE };
    memory_init(&e->memory, (size_t)e->base.info.memory_bytes);
    pthread_mutex_init(&e->counting, NULL);
    pthread_mutex_init(&e->launching, NULL);
    *device = &e->base;
    return CKL_OK;
}

ckl_status emulator_open(const char *which, ckl_device **device)
{
    emulator_options options = emulator_options_default();
    const char *line = getenv("CKL_EMULATOR");
    if (line)
        TRY(emulator_options_parse(line, &options));
    return emulator_open_with(which, &options, device);
}
