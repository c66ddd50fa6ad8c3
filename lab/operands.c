/* operands.c - images of operands on the host and their copies on the device. */
#include "lab/operands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/heap.h"
#include "base/math.h"
#include "device/device.h"
#include "lab/fill.h"
#include "lab/host_memory.h"

enum {
    RUN_ELEMENTS = 1 << 16,
    BLOCK_BYTES = 1 << 20, // what a thread sets at a time
    CANARY_BYTES = 256,
    CANARY = 0xff,
    POISON = 0xff // NaN in every float type: what reads it shows it
};

ckl_dtype operand_result(const operand *o)
{
    return o->result != CKL_DTYPE_DEFAULT ? o->result : o->dtype;
}

int64_t operand_row_start(const operand_image *o, int64_t row)
{
    int64_t index = 0;
    for (int d = o->info.rank - 2; d >= 0; d--) {
        index += row % o->info.shape[d] * o->info.stride[d];
        row /= o->info.shape[d];
    }
    return index;
}

size_t operand_byte(const operand_image *o, int64_t row, int64_t column)
{
    int64_t index = operand_row_start(o, row) + column * o->info.stride[o->info.rank - 1];
    return o->start + (size_t)index * ckl_dtype_bytes(o->info.dtype);
}

static int64_t longest_run(const operand_image *o)
{
    return o->info.stride[o->info.rank - 1] == 1 ? RUN_ELEMENTS : 1;
}

int64_t operand_run_count(const operand_image *o)
{
    return o->rows * ceil_div(o->columns, longest_run(o));
}

operand_run operand_run_at(const operand_image *o, int64_t i)
{
    int64_t longest = longest_run(o), of_row = ceil_div(o->columns, longest), first = i % of_row * longest;
    return (operand_run){ operand_byte(o, i / of_row, first), min_i64(longest, o->columns - first) };
}

static void measure(operand_image *o, size_t misalign, size_t canary)
{
    const operand *info = &o->info;
    int64_t last = 0;
    o->rows = 1;
    o->columns = info->shape[info->rank - 1];
    for (int d = 0; d < info->rank; d++) {
        last = sum_i64(last, product_i64(info->shape[d] - 1, info->stride[d]));
        if (d < info->rank - 1)
            o->rows = product_i64(o->rows, info->shape[d]);
    }
    size_t element = ckl_dtype_bytes(info->dtype);
    o->span = o->rows && o->columns ? last + 1 : 0; // else the sizes may be beyond all limits
    if (o->span == 0)
        o->rows = o->columns = 0;
    o->start = canary + misalign * element;
    o->bytes = o->start + (size_t)o->span * element + canary;
}

/* Bytes that the system has for new memory; those of the machine where it does not tell. */
static double free_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    long kib = -1;
    while (file && kib < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %ld kB", &kib) != 1)
            kib = -1;
    if (file)
        fclose(file);
    return kib >= 0 ? (double)kib * 1024 : (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/*
 * Copies of each operand: two images. An emulated device also has its memory here, and as much again to track writes.
 */
enum { GPU_COPIES = 2, EMULATOR_COPIES = 4 };

double operand_images_bytes(const test_case *c)
{
    operand infos[OPERANDS_MAX];
    double bytes = 0;
    for (int i = 0, count = adapter_operands(c->test, c->problem, infos); i < count; i++) {
        operand_image o = { .info = infos[i] };
        if (o.info.dtype == CKL_DTYPE_DEFAULT)
            continue;
        measure(&o, 0, 0);
        bytes += (double)o.bytes * GPU_COPIES;
    }
    return bytes;
}

double operand_room(void)
{
    return free_bytes() + (double)host_memory_kept();
}

ckl_status operand_images_fit(const test_case *c, const ckl_device_info *device)
{
    double times = device->emulated ? EMULATOR_COPIES / GPU_COPIES : 1;
    double bytes = times * operand_images_bytes(c), room = operand_room();
    if (bytes > room)
        FAIL(CKL_NO_MEMORY, "%s: the operands want %.3g GB of host memory, %.3g GB are free", c->test->op->name,
             bytes / 1e9, room / 1e9);
    return CKL_OK;
}

/* With all threads, as touching a new page takes time. */
static void set_bytes(unsigned char *to, unsigned char byte, size_t bytes)
{
#pragma omp parallel for
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES)
        memset(to + at, byte, bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES);
}

static ckl_status create_image(const test_case *c, int number, operand_image *o, size_t canary)
{
    int64_t shift = c->keys.misalign + (int64_t)number * c->keys.stagger;
    if (o->info.align)
        shift -= shift % (o->info.align / (int64_t)ckl_dtype_bytes(o->info.dtype));
    measure(o, (size_t)shift, canary);
    o->image = host_memory_take(o->bytes);
    o->after = host_memory_take(o->bytes);
    if (!o->image || !o->after)
        FAIL(CKL_NO_MEMORY, "%s: no host memory for operand %s of %zu bytes", c->test->op->name, o->info.name,
             o->bytes);
    set_bytes(o->image, CANARY, o->bytes);
    double terms = adapter_terms(c->test, c->problem);
    if (o->info.role != OPERAND_OUT)
        fill_operand(o, number, (operand_fill)c->keys.fill, (uint64_t)c->keys.seed, terms);
    return CKL_OK;
}

ckl_status operand_images_create(const test_case *c, const ckl_device_info *device, operand_images *images)
{
    *images = (operand_images){ 0 };
    operand infos[OPERANDS_MAX];
    images->count = adapter_operands(c->test, c->problem, infos);
    for (int i = 0; i < images->count; i++) {
        operand_image *o = &images->each[i];
        o->info = infos[i];
        if (c->test->elements_alone)
            o->info.along = 0;
        if (o->info.dtype == CKL_DTYPE_DEFAULT)
            continue;
        TRY(create_image(c, i, o, device->emulated ? 0 : CANARY_BYTES));
        images->host[i] = o->image + o->start;
    }
    images->poison = CANARY;
    operand_images_poison(images, POISON);
    return CKL_OK;
}

void operand_images_free(operand_images *images)
{
    for (int i = 0; i < images->count; i++) {
        host_memory_give(images->each[i].image, images->each[i].bytes);
        host_memory_give(images->each[i].after, images->each[i].bytes);
        for (int64_t s = 0; images->references[i] && s < images->reference_count[i]; s++) {
            heap_free(images->references[i][s].value);
            heap_free(images->references[i][s].magnitude);
        }
        heap_free(images->references[i]);
    }
    *images = (operand_images){ 0 };
}

static void poison(operand_image *o, unsigned char byte)
{
    size_t element = ckl_dtype_bytes(o->info.dtype);
#pragma omp parallel for
    for (int64_t i = 0; i < operand_run_count(o); i++) {
        operand_run run = operand_run_at(o, i);
        memset(o->image + run.byte, byte, element * (size_t)run.count);
    }
}

void operand_images_poison(operand_images *images, unsigned char byte)
{
    if (images->poison == byte)
        return;
    images->poison = byte;
    for (int i = 0; i < images->count; i++)
        if (images->host[i] && images->each[i].info.role == OPERAND_OUT)
            poison(&images->each[i], byte);
}

/* Reports of an emulated device speak of operands. */
static void name_operand(ckl_device *device, const operand_image *o, const void *pointer)
{
    char name[64];
    snprintf(name, sizeof name, "operand %s", o->info.name);
    if (device->ops->name_memory && pointer)
        device->ops->name_memory(device, pointer, name);
}

ckl_status operand_set_create(ckl_device *device, const operand_images *images, operand_set *set)
{
    *set = (operand_set){ 0 };
    for (int i = 0; i < images->count; i++) {
        const operand_image *o = &images->each[i];
        if (!images->host[i])
            continue;
        TRY(ckl_malloc(device, o->bytes, &set->allocation[i]));
        if (set->allocation[i])
            set->pointer[i] = (unsigned char *)set->allocation[i] + o->start;
        name_operand(device, o, set->pointer[i]);
    }
    for (int i = 0; i < images->count; i++)
        adapter_pointer(&images->each[i].info, i, set->pointer);
    return CKL_OK;
}

void operand_set_free(ckl_device *device, operand_set *set)
{
    for (int i = 0; i < OPERANDS_MAX; i++)
        ckl_free(device, set->allocation[i]);
    *set = (operand_set){ 0 };
}

static bool is_part(const operand_images *images, const operand_set *set, int i, operand_part part)
{
    const operand_part own = images->each[i].info.role == OPERAND_IN ? OPERANDS_INPUTS : OPERANDS_OUTPUTS;
    return set->allocation[i] && (part == OPERANDS_ALL || part == own);
}

bool operand_is_dense(const operand_image *o)
{
    return o->span == o->rows * o->columns;
}

/* Addresses are those of this set. */
static void fill_table(const operand_image *o, const operand_set *set)
{
    for (int64_t i = 0; i < o->columns && o->info.table_of; i++) {
        const char *at = (const char *)set->pointer[o->info.table_of - 1] + i * o->info.table_step;
        memcpy(o->image + o->start + (size_t)i * sizeof at, &at, sizeof at);
    }
}

/*
 * Writes an image to the device. An output without gaps is one byte between the canaries, which the device sets by
 * itself.
 */
static ckl_status write_operand(ckl_device *device, const operand_images *images, const operand_set *set, int i,
                                ckl_stream stream)
{
    const operand_image *o = &images->each[i];
    size_t elements = (size_t)o->span * ckl_dtype_bytes(o->info.dtype);
    fill_table(o, set);
    if (o->info.role != OPERAND_OUT || !operand_is_dense(o))
        return ckl_copy_in(device, set->allocation[i], o->image, o->bytes, stream);
    TRY(device->ops->fill(device, set->allocation[i], CANARY, o->bytes, stream));
    return elements ? device->ops->fill(device, set->pointer[i], images->poison, elements, stream) : CKL_OK;
}

ckl_status operand_set_write(ckl_device *device, const operand_images *images, const operand_set *set,
                             operand_part part, ckl_stream stream)
{
    for (int i = 0; i < images->count; i++)
        if (is_part(images, set, i, part))
            TRY(write_operand(device, images, set, i, stream));
    return CKL_OK;
}

ckl_status operand_set_read(ckl_device *device, operand_images *images, const operand_set *set, operand_part part,
                            ckl_stream stream)
{
    for (int i = 0; i < images->count; i++)
        if (is_part(images, set, i, part))
            TRY(ckl_copy_out(device, images->each[i].after, set->allocation[i], images->each[i].bytes, stream));
    return CKL_OK;
}

uint64_t operand_images_digest(const operand_images *images)
{
    uint64_t digest = HASH_START;
    for (int i = 0; i < images->count; i++) {
        const operand_image *o = &images->each[i];
        size_t row_bytes = (size_t)o->columns * ckl_dtype_bytes(o->info.dtype);
        for (int64_t row = 0; o->info.role != OPERAND_IN && row < o->rows && row_bytes; row++)
            digest = hash_bytes(digest, o->after + operand_byte(o, row, 0), row_bytes);
    }
    return digest;
}
