/* limits.c - the copy and the product that everything is measured against. */
#include "bench/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "bench/race.h"

static const double TOLERANCE = 0.03; // by which a sound row may seem faster than its limit
static const measure_limits COPY_LIMITS = { .warm_seconds_max = 0.5, .seconds_max = 0.5 };
static const measure_limits MATRIX_LIMITS = { .warm_seconds_max = 3, .seconds_max = 1 };
static const char MATRIX_LINE[] = "gemm m=8192 n=8192 k=8192 a=bf16";

enum { COPY_BYTES_MAX = 1 << 30 };

typedef struct large_copy {
    ckl_device *device;
    size_t bytes;
} large_copy;

static ckl_status run_copy(const void *self, void *const *pointers, ckl_stream stream)
{
    const large_copy *copy = self;
    return copy->device->ops->copy(copy->device, pointers[0], pointers[1], copy->bytes, stream);
}

static ckl_status measure_copy(const large_copy *copy, operand_set *set, ckl_stream stream, double *us)
{
    contestant c = { .run = run_copy, .self = copy };
    rotation memory = { .device = copy->device, .sets = set, .count = 1 };
    conditions unused;
    for (int i = 0; i < 2; i++) {
        TRY(ckl_malloc(copy->device, copy->bytes, &set->allocation[i]));
        set->pointer[i] = set->allocation[i];
    }
    TRY(measure(&memory, stream, &COPY_LIMITS, &c, 1, &unused));
    *us = c.time_us.median;
    return CKL_OK;
}

ckl_status limits_measure_copy(ckl_device *device, result_header *header)
{
    large_copy copy = { device, (size_t)min_i64(COPY_BYTES_MAX, device->info.memory_bytes / 8) };
    operand_set set = { 0 };
    ckl_stream stream;
    double us;
    TRY(ckl_stream_create(device, &stream));
    ckl_status status = measure_copy(&copy, &set, stream, &us);
    operand_set_free(device, &set);
    ckl_stream_destroy(device, stream);
    if (status == CKL_OK)
        header->copy_gbs = 2 * (double)copy.bytes / us / 1e3;
    return status;
}

static void note_matrix(const result_row *row, result_header *header)
{
    const result_peer *best = result_find_peer(row, "best");
    bool ours = !best || row->median_us <= best->median_us;
    header->matrix_tflops = row->flops / (ours ? row->median_us : best->median_us) / 1e6;
    snprintf(header->matrix_source, sizeof header->matrix_source, "%s by %.480s", MATRIX_LINE,
             ours ? row->config : best->config);
}

ckl_status limits_measure_matrix(ckl_device *device, result_header *header)
{
    const race_options options = { .limits = MATRIX_LIMITS };
    result_row row = { 0 };
    test_case c;
    ckl_status status = case_parse(MATRIX_LINE, &c);
    if (status == CKL_OK)
        status = race_run(&c, device, &options, &row);
    case_clear(&c);
    if (status == CKL_OK && !*row.fault)
        note_matrix(&row, header);
    else
        snprintf(header->matrix_source, sizeof header->matrix_source, "unknown, %s failed: %.500s", MATRIX_LINE,
                 status == CKL_OK ? row.fault : ckl_error());
    return status == CKL_DEVICE ? status : CKL_OK;
}

void limits_apply(const result_header *header, result_row *row)
{
    double matrix = header->matrix_tflops > 0 ? row->flops / header->matrix_tflops / 1e6 : 0;
    double memory = header->copy_gbs > 0 ? row->bytes / header->copy_gbs / 1e3 : 0;
    row->limit_us = fmax(matrix, memory);
    result_set(row->limit, matrix > memory ? "matrix" : "memory");
    if (row->median_us <= 0)
        return;
    row->of_limit = row->limit_us / row->median_us;
    row->beyond_limit = row->of_limit > 1 + TOLERANCE && strcmp(row->l2, "cold") == 0;
}
