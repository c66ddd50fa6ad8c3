/* unit_results.c - statistics, limits, results on disk, and the arguments of ckl bench. */
#include <math.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "bench/limit_kernels.h"
#include "bench/limits.h"
#include "bench/results.h"
#include "bench/statistics.h"
#include "cli/cli.h"
#include "device/device.h"
#include "device/nvml.h"

/* Statistics */

TEST(summary)
{
    double few[] = { 3, 1, 2 };
    summary s = summarize(few, 3);
    assert_true(s.median == 2 && s.n == 3 && s.half_width == 1 && fabs(s.p20 - 1.4) < 1e-12);
    double many[101];
    for (int i = 0; i < 101; i++)
        many[i] = 1000 + (i * 37) % 101; // 1000..1100 in some order
    s = summarize(many, 101);
    assert_true(s.median == 1050 && s.p20 == 1020 && s.p80 == 1080);
    assert_true(s.half_width > 0.009 && s.half_width < 0.011); // ranks 40..61 of 101
    assert_true(summarize(NULL, 0).n == 0);
}

TEST(geometric_mean)
{
    const double values[] = { 0.5, 2, 4 };
    assert_true(fabs(geometric_mean(values, 3) - cbrt(4)) < 1e-12);
    assert_true(geometric_mean(values, 0) == 0);
}

TEST(spread)
{
    double values[] = { 9, 4, 2, 0.5, 9 }; // of the three in the middle
    spread s = spread_of(values + 1, 3);
    assert_true(fabs(s.mean - cbrt(4)) < 1e-12 && fabs(s.low - 0.65) < 1e-12 && s.least == 0.5 && s.n == 3);
    s = spread_of(values + 1, 0);
    assert_true(s.mean == 0 && s.low == 0 && s.least == 0 && s.n == 0);
}

/* Results on disk */

static void fabricate(results *r)
{
    result_set(r->header.gpu, "a \"GPU\"");
    r->header.copy_gbs = 4225.5;
    result_row *row = results_add(r);
    result_set(row->line, "gemm m=1, n=2");
    row->median_us = 12.25;
    row->samples = 77;
    row->beyond_limit = true;
    row->peer_count = 1;
    result_set(row->peers[0].name, "cublaslt");
    result_set(row->peers[0].role, "best");
    row->peers[0].median_us = 24.5;
    row->peers[0].ratio = 2;
}

TEST(json)
{
    char path[] = "/tmp/ckl_bench_XXXXXX";
    results made = { 0 }, read;
    close(mkstemp(path));
    fabricate(&made);
    char beside[64];
    snprintf(beside, sizeof beside, "%s.new", path);
    assert_ok(results_write_json(&made, path));
    assert_int_not_equal(access(beside, F_OK), 0);
    assert_ok(results_read_json(path, &read));
    assert_int_equal(read.row_count, 1);
    assert_string_equal(read.header.gpu, "a \"GPU\"");
    assert_true(read.header.copy_gbs == 4225.5);
    assert_memory_equal(&read.rows[0], &made.rows[0], sizeof(result_row));
    assert_ok(results_write_csv(&made, path));
    results_free(&read);
    assert_int_equal(results_read_json(path, &read), CKL_INVALID);
    unlink(path);
    results_free(&made);
}

TEST(clock_reasons)
{
    assert_string_equal(nvml_clock_reason(2), "power cap");
    assert_string_equal(nvml_clock_reason(6), "hardware thermal slowdown");
    assert_null(nvml_clock_reason(0)); // an idle GPU
    assert_null(nvml_clock_reason(63));
}

/* Arguments */

/* The command keeps pointers to its options: words stay where they are. */
static int bench(const char *a, const char *b, const char *c)
{
    static char words[16][64];
    static int used;
    char *argv[5] = { NULL };
    const char *given[] = { "bench", a, b, c };
    int argc = 0;
    for (; argc < COUNT_OF(given) && given[argc]; argc++)
        argv[argc] = strncpy(words[used++ % 16], given[argc], sizeof words[0] - 1);
    return cli_run(&cmd_bench, argc, argv);
}

TEST(arguments)
{
    assert_int_equal(bench("--rounds=x", "gemm", NULL), EXIT_USAGE);
    assert_says(ckl_error(), "--rounds=x");
    assert_int_equal(bench("--rounds=3", "--peer=cublas", "gemm"), EXIT_USAGE);
    assert_says(ckl_error(), "cublaslt");
    assert_int_equal(bench("--peer=none", "gmem m=4", NULL), EXIT_USAGE);
    assert_int_equal(bench("--peer=none", "--device=emulator", "gemm"), EXIT_UNSUPPORTED);
    assert_says(ckl_error(), "no meaningful time");
    assert_int_equal(bench("--suite=/dev/null,/dev/null", "--json=out.json", NULL), EXIT_USAGE);
    assert_says(ckl_error(), "--json DIR/");
}

/* Limits */

/* Others that come to the GPU while a row is measured. */
TEST(shared_gpu)
{
    result_header header = { .copy_gbs = 4000, .processes = 2 };
    result_row row = { .bytes = 4e8, .median_us = 1250, .l2 = "cold", .processes = 2 };
    limits_apply(&header, &row);
    assert_false(row.shared);
    row.processes = 3;
    limits_apply(&header, &row);
    assert_true(row.shared);
    header.processes = 0; // unknown
    limits_apply(&header, &row);
    assert_false(row.shared);
}

TEST(matrix_limit)
{
    const result_header header = { .copy_gbs = 4000, .matrix_tflops = 800 };
    result_row row = { .flops = 8e11, .bytes = 4e8, .median_us = 1250, .l2 = "cold" };
    limits_apply(&header, &row);
    assert_string_equal(row.limit, "matrix");
    assert_true(fabs(row.limit_us - 1000) < 1e-6 && fabs(row.of_limit - 0.8) < 1e-9 && !row.beyond_limit);
    row.median_us = 900;
    limits_apply(&header, &row);
    assert_true(row.beyond_limit);
}

/* Types of other rates than that which was measured in 16 bits. */
TEST(matrix_rate)
{
    const result_header header = { .copy_gbs = 4000, .matrix_tflops = 700 };
    result_row row = { .flops = 7e10, .median_us = 50, .l2 = "cold" };
    limits_apply(&header, &row);
    assert_true(fabs(row.limit_us - 100) < 1e-9 && row.beyond_limit);
    row.matrix_rate = 2;
    limits_apply(&header, &row);
    assert_true(fabs(row.limit_us - 50) < 1e-9 && !row.beyond_limit);
}

/* Operands of 8 bits have a limit of their own; where it is not known, memory is. */
TEST(matrix_limit_of_8_bits)
{
    result_header header = { .copy_gbs = 4000, .matrix_tflops = 800, .matrix8_tflops = 1600 };
    result_row row = { .input_bits = 8, .flops = 8e11, .bytes = 4e8, .median_us = 625, .l2 = "cold" };
    limits_apply(&header, &row);
    assert_true(fabs(row.limit_us - 500) < 1e-6 && fabs(row.of_limit - 0.8) < 1e-9);
    header.matrix8_tflops = 0;
    limits_apply(&header, &row);
    assert_string_equal(row.limit, "memory");
}

/* As many bytes as are written count at the rate of copying, the rest at that of reading or writing alone. */
TEST(memory_limit)
{
    const result_header header = { .copy_gbs = 4000, .read_gbs = 4400, .write_gbs = 4200 };
    static const struct {
        double written, limit_us;
    } rows[] = { { 0, 4e5 / 4400 }, { 1e8, 2e5 / 4000 + 2e5 / 4400 }, { 2e8, 100 }, { 4e8, 4e5 / 4200 } };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        result_row row = { .bytes = 4e8, .bytes_written = rows[i].written, .median_us = 110, .l2 = "cold" };
        limits_apply(&header, &row);
        assert_string_equal(row.limit, "memory");
        assert_true(fabs(row.limit_us - rows[i].limit_us) < 1e-6 &&
                    fabs(row.of_limit - rows[i].limit_us / 110) < 1e-9 && !row.beyond_limit);
    }
}

/* A row is believed down to all its reads and then all its writes. */
TEST(beyond_limit)
{
    const result_header header = { .copy_gbs = 4000, .read_gbs = 4400, .write_gbs = 4200 };
    result_row row = { .bytes = 4e8, .bytes_written = 2e8, .median_us = 91, .l2 = "cold" };
    limits_apply(&header, &row);
    assert_false(row.beyond_limit);
    row.median_us = 90;
    limits_apply(&header, &row);
    assert_true(row.beyond_limit);
    result_set(row.l2, "hot");
    limits_apply(&header, &row);
    assert_false(row.beyond_limit);
}

/* 0.02 us is an empty graph; 95 us may be read and written apart. */
TEST(idle_peer)
{
    const result_header header = { .copy_gbs = 4000, .read_gbs = 4400, .write_gbs = 4200 };
    result_row row = { .bytes = 4e8, .bytes_written = 2e8, .median_us = 110, .l2 = "cold", .peer_count = 2 };
    row.peers[0] = (result_peer){ .role = "best", .median_us = 0.02, .ratio = 0.0002 };
    row.peers[1] = (result_peer){ .role = "first", .median_us = 95, .ratio = 0.86 };
    limits_apply(&header, &row);
    assert_says(row.peers[0].fault, "0.02 us are less");
    assert_true(row.peers[0].ratio == 0 && !*row.peers[1].fault && row.peers[1].ratio > 0.8);
    assert_null(result_find_peer(&row, "best"));
}

TEST(launch_limit)
{
    const result_header header = { .copy_gbs = 4000, .launch_us = 1.5 };
    result_row row = { .bytes = 4e3, .median_us = 2, .l2 = "cold", .method = "graphs" };
    limits_apply(&header, &row);
    assert_string_equal(row.limit, "launch");
    assert_true(fabs(row.of_limit - 0.75) < 1e-9 && !row.beyond_limit);
    result_set(row.method, "events");
    limits_apply(&header, &row);
    assert_string_equal(row.limit, "memory");
}

static int64_t counted(ckl_device *device, const char *name)
{
    device_counter counters[64];
    int count = device->ops->counters(device, counters, COUNT_OF(counters));
    for (int i = 0; i < count; i++)
        if (strcmp(counters[i].name, name) == 0)
            return counters[i].value;
    return 0;
}

/* The kernels behind the limits touch every byte of their memory once, and nothing else. */
TEST(limit_kernels)
{
    enum { BYTES = 3 * LIMIT_READ_BYTES };
    static const struct {
        limit_kernel which;
        int64_t ctas;
        const char *counter;
        int64_t sectors;
    } kernels[] = { { LIMIT_READ, BYTES / LIMIT_READ_BYTES, "global read sectors", BYTES / 32 },
                    { LIMIT_WRITE, BYTES / LIMIT_WRITE_BYTES, "global write sectors", BYTES / 32 },
                    { LIMIT_EMPTY, 1, "global read sectors", 0 } };
    ckl_device *device;
    ckl_stream stream;
    void *memory;
    assert_ok(ckl_device_open("emulator:h200", &device));
    assert_ok(ckl_stream_create(device, &stream));
    assert_ok(ckl_malloc(device, BYTES, &memory));
    assert_ok(device->ops->fill(device, memory, 7, BYTES, stream));
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        ir_kernel *kernel;
        device_kernel *loaded;
        assert_ok(limit_kernel_describe(kernels[i].which, IR_SM90A, &kernel));
        assert_ok(device->ops->load(device, kernel, &loaded));
        device->ops->counters_reset(device);
        const device_launch launch = { .grid = { kernels[i].ctas, 1, 1 }, .params = (void *[]){ &memory } };
        assert_ok(device->ops->launch(device, loaded, &launch, stream));
        assert_ok(ckl_stream_synchronize(device, stream));
        assert_true(counted(device, kernels[i].counter) == kernels[i].sectors);
        device->ops->unload(device, loaded);
        ir_kernel_free(kernel);
    }
    ckl_free(device, memory);
    ckl_stream_destroy(device, stream);
    ckl_device_close(device);
}

RUN_TESTS(NULL, NULL)
