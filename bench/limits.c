/* limits.c - what everything is measured against: moving memory, an empty kernel, a large product. */
#include "bench/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "bench/limit_kernels.h"
#include "bench/race.h"

static const double TOLERANCE = 0.03; // by which a sound row may seem faster than its limit
static const measure_limits MEMORY_LIMITS = { .warm_seconds_max = 0.5, .seconds_max = 0.5 };
static const measure_limits MATRIX_LIMITS = { .warm_seconds_max = 1, .seconds_max = 0.5 };
const char *const limits_matrix_lines[] = { "gemm m=8192 n=8192 k=8192 a=bf16", "gemm m=8192 n=8192 k=8192 a=f16",
                                            NULL };
const char *const limits_matrix8_lines[] = { "gemm m=8192 n=8192 k=8192 a=e4m3", "gemm m=8192 n=8192 k=8192 a=i8",
                                             NULL };

/* Copying them takes an H200 less than MEASURE_GRAPH_BELOW_US: the limits are timed as most rows are. */
enum { MEMORY_BYTES_MAX = 3 << 28 };

/* Memory and a launch */

/* What is timed: the driver's copy between two buffers, or a kernel on the first. */
typedef struct exercise {
    ckl_device *device;
    int64_t bytes;         // of a buffer
    device_kernel *loaded; // NULL: the copy
    int64_t ctas;
    bool cold; // overwrite L2 before each sample, for the kernel's parameters: the buffers exceed L2 anyway
} exercise;

static ckl_status run_exercise(const void *self, void *const *pointers, ckl_stream stream)
{
    const exercise *e = self;
    if (!e->loaded)
        return e->device->ops->copy(e->device, pointers[0], pointers[1], (size_t)e->bytes, stream);
    void *params[] = { (void *)&pointers[0] };
    const device_launch launch = { .grid = { e->ctas, 1, 1 }, .params = params };
    return e->device->ops->launch(e->device, e->loaded, &launch, stream);
}

static ckl_status time_exercise(const exercise *e, operand_set *set, ckl_stream stream, double *us)
{
    contestant c = { .run = run_exercise, .self = e };
    rotation memory = { .device = e->device,
                        .sets = set,
                        .count = 1,
                        .flush = e->cold,
                        .scratch = set->pointer[1],
                        .scratch_bytes = (size_t)min_i64(e->bytes, 2 * e->device->info.l2_bytes) };
    conditions unused;
    TRY(measure(&memory, stream, &MEMORY_LIMITS, &c, 1, &unused));
    *us = c.time_us.median;
    return CKL_OK;
}

static ckl_status time_kernel(exercise e, limit_kernel which, operand_set *set, ckl_stream stream, double *us)
{
    ir_kernel *kernel;
    TRY(limit_kernel_describe(which, e.device->info.has_wgmma ? IR_SM90A : IR_SM80, &kernel));
    ckl_status status = e.device->ops->load(e.device, kernel, &e.loaded);
    ir_kernel_free(kernel);
    if (status != CKL_OK)
        return status;
    const int64_t of_cta[] = {
        [LIMIT_READ] = LIMIT_READ_BYTES, [LIMIT_WRITE] = LIMIT_WRITE_BYTES, [LIMIT_EMPTY] = e.bytes
    };
    e.ctas = e.bytes / of_cta[which];
    e.cold = which == LIMIT_EMPTY;
    status = time_exercise(&e, set, stream, us);
    e.device->ops->unload(e.device, e.loaded);
    return status;
}

static ckl_status measure_all(const exercise *e, operand_set *set, ckl_stream stream, result_header *header)
{
    double copy_us, again_us, read_us, write_us;
    for (int i = 0; i < 2; i++) {
        TRY(ckl_malloc(e->device, (size_t)e->bytes, &set->allocation[i]));
        set->pointer[i] = set->allocation[i];
    }
    TRY(time_exercise(e, set, stream, &copy_us));
    TRY(time_kernel(*e, LIMIT_READ, set, stream, &read_us));
    TRY(time_kernel(*e, LIMIT_WRITE, set, stream, &write_us));
    TRY(time_kernel(*e, LIMIT_EMPTY, set, stream, &header->launch_us));
    TRY(time_exercise(e, set, stream, &again_us)); // one run had 3591 GB/s here, its neighbours 4280
    header->copy_gbs = 2 * (double)e->bytes / fmin(copy_us, again_us) / 1e3;
    header->read_gbs = (double)e->bytes / read_us / 1e3;
    header->write_gbs = (double)e->bytes / write_us / 1e3;
    return CKL_OK;
}

ckl_status limits_measure_memory(ckl_device *device, ckl_stream stream, result_header *header)
{
    int64_t bytes = min_i64(MEMORY_BYTES_MAX, device->info.memory_bytes / 8);
    const exercise copy = { .device = device, .bytes = round_up(bytes, LIMIT_READ_BYTES) };
    operand_set set = { 0 };
    ckl_status status = measure_all(&copy, &set, stream, header);
    operand_set_free(device, &set);
    return status;
}

/* The matrix units */

/* A rate and who reached it; 0 until one is known. */
typedef struct matrix_rate {
    double *tflops;
    char *source; // result_text
} matrix_rate;

/* Keeps the better of what is known and of a row. */
static void note_matrix(const result_row *row, matrix_rate rate)
{
    const result_peer *best = result_find_peer(row, "best");
    bool ours = !best || row->median_us <= best->median_us;
    double tflops = row->flops / (ours ? row->median_us : best->median_us) / 1e6;
    if (tflops <= *rate.tflops)
        return;
    *rate.tflops = tflops;
    snprintf(rate.source, sizeof(result_text), "%.100s by %.480s", row->line, ours ? row->config : best->config);
}

static ckl_status measure_line(ckl_device *device, const char *line, const race_options *options, matrix_rate rate)
{
    result_row row = { 0 };
    test_case c;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = race_run(&c, device, options, NULL, &row);
    case_clear(&c);
    if (status == CKL_OK && !*row.fault)
        note_matrix(&row, rate);
    else if (*rate.tflops == 0)
        snprintf(rate.source, sizeof(result_text), "unknown, %s failed: %.500s", line,
                 status == CKL_OK ? row.fault : ckl_error());
    return status == CKL_DEVICE_FAULT ? status : CKL_OK;
}

static ckl_status measure_lines(ckl_device *device, ckl_stream stream, const char *const *lines, matrix_rate rate)
{
    const race_options options = { .stream = stream, .only = &cublaslt_peer, .limits = MATRIX_LIMITS };
    for (; *lines; lines++)
        TRY(measure_line(device, *lines, &options, rate));
    return CKL_OK;
}

ckl_status limits_measure_matrix(ckl_device *device, ckl_stream stream, result_header *header)
{
    return measure_lines(device, stream, limits_matrix_lines,
                         (matrix_rate){ &header->matrix_tflops, header->matrix_source });
}

ckl_status limits_measure_matrix8(ckl_device *device, ckl_stream stream, result_header *header)
{
    return measure_lines(device, stream, limits_matrix8_lines,
                         (matrix_rate){ &header->matrix8_tflops, header->matrix8_source });
}

/* Rows */

static double over(double amount, double rate)
{
    return rate > 0 ? amount / rate : 0;
}

/*
 * Reading alone is faster than copying: the bus need not turn. So the common part of reads and writes counts as copied,
 * and the rest of either as alone.
 */
static double memory_us(const result_header *h, const result_row *row)
{
    double read = row->bytes - row->bytes_written, copied = 2 * fmin(read, row->bytes_written);
    double alone_gbs = read > row->bytes_written ? h->read_gbs : h->write_gbs;
    return over(copied, h->copy_gbs * 1e3) + over(row->bytes - copied, (alone_gbs > 0 ? alone_gbs : h->copy_gbs) * 1e3);
}

/* A bound for every row: all its reads and then all its writes. */
static double least_memory_us(const result_header *h, const result_row *row)
{
    double apart =
        over(row->bytes - row->bytes_written, h->read_gbs * 1e3) + over(row->bytes_written, h->write_gbs * 1e3);
    return apart > 0 ? fmin(memory_us(h, row), apart) : memory_us(h, row);
}

static bool is_too_fast(const result_row *row, double least_us, double us)
{
    return us > 0 && least_us > (1 + TOLERANCE) * us && strcmp(row->l2, "cold") == 0;
}

/* A peer may do less than the problem: return a view instead of a copy, say. */
static void doubt_peers(result_row *row, double least_us)
{
    for (int i = 0; i < row->peer_count; i++) {
        result_peer *p = &row->peers[i];
        if (*p->fault || !is_too_fast(row, least_us, p->median_us))
            continue;
        snprintf(p->fault, sizeof p->fault, "%.2f us are less than the hardware takes: it has not done all of the work",
                 p->median_us);
        p->ratio = 0;
    }
}

void limits_apply(const result_header *header, result_row *row)
{
    double factor = row->matrix_rate > 0 ? row->matrix_rate : 1;
    double rate = row->input_bits == 8 ? header->matrix8_tflops : factor * header->matrix_tflops;
    double matrix = over(row->flops, rate * 1e6), memory = memory_us(header, row);
    double launch = strcmp(row->method, "graphs") == 0 ? header->launch_us : 0;
    row->shared = header->processes > 0 && row->processes > header->processes;
    row->limit_us = fmax(fmax(matrix, memory), launch);
    result_set(row->limit, row->limit_us == launch ? "launch" : row->limit_us == matrix ? "matrix" : "memory");
    if (row->median_us <= 0)
        return;
    row->of_limit = row->limit_us / row->median_us;
    double least = fmax(matrix, least_memory_us(header, row));
    row->beyond_limit = is_too_fast(row, least, row->median_us);
    doubt_peers(row, least);
}
