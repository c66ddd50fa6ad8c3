/* cmd_run.c - ckl run: one problem, checked. */
#include <stdio.h>

#include "base/math.h"
#include "bench/statistics.h"
#include "lab/check.h"
#include "cli/cli.h"
#include "lab/clock.h"

enum { WARM_RUNS = 3, TIMED_RUNS = 21 };

static const char *device_id, *save;
static const cli_option options[] = {
    { "--device", "D", &device_id, "cuda, cuda:1, emulator:h200, emulator:l4; the best present if not given" },
    { "--save", "PREFIX", &save, "write every operand after the run to PREFIX.<name>.bin, raw, rows without padding" },
};

/* Median time of warm runs by events of the device. */
static ckl_status time_runs(const check *k, double *median_us)
{
    const device_ops *ops = k->device->ops;
    device_event begin, end;
    double us[TIMED_RUNS] = { 0 };
    TRY(ops->event_create(k->device, &begin));
    TRY(ops->event_create(k->device, &end));
    ckl_status status = CKL_OK;
    for (int i = -WARM_RUNS; i < TIMED_RUNS && status == CKL_OK; i++) {
        status = ops->event_record(k->device, begin, k->stream);
        if (status == CKL_OK)
            status = check_enqueue(k);
        if (status == CKL_OK)
            status = ops->event_record(k->device, end, k->stream);
        if (status == CKL_OK)
            status = ops->event_elapsed_us(k->device, begin, end, &us[max_i64(i, 0)]);
    }
    ops->event_destroy(k->device, begin);
    ops->event_destroy(k->device, end);
    *median_us = summarize(us, TIMED_RUNS).median;
    return status;
}

static ckl_status print_time(const check *k)
{
    double us;
    TRY(time_runs(k, &us));
    const operator_test *test = k->c->test;
    printf("time      %.2f us, median of %d warm runs; %.1f GFLOP/s, %.1f GB/s (L2 warm; `ckl bench` measures with "
           "care)\n",
           us, TIMED_RUNS, adapter_flops(test, k->c->problem) / us / 1e3,
           adapter_bytes(test, k->c->problem) / us / 1e3);
    return CKL_OK;
}

static void print_counters(const check *k)
{
    device_counter counters[64];
    int count = k->device->ops->counters(k->device, counters, COUNT_OF(counters));
    for (int i = 0; i < count; i++)
        if (counters[i].value)
            printf("  %-28s %14" PRId64 "  %s\n", counters[i].name, counters[i].value, counters[i].where);
}

static void print_result(const check_result *r)
{
    printf("compared  %" PRId64 " elements in %" PRId64 " of %" PRId64 " slices, ", r->elements, r->slices_compared,
           r->slices);
    if (r->elements_open)
        printf("%" PRId64 " of them left open, ", r->elements_open);
    if (r->exact)
        printf("each must be equal\n");
    else
        printf("largest difference %.3g, at most %.3f of its bound\n", r->error_max, r->ratio_max);
    if (!r->passed)
        printf("wrong     %s\n", r->fault);
    printf("%s\n", r->passed ? "PASSED" : "FAILED");
}

static ckl_status save_operand(const operand_image *o)
{
    text path = { 0 };
    text_printf(&path, "%s.%s.bin", save, o->info.name);
    FILE *file = fopen(text_data(&path), "wb");
    bool good = file != NULL;
    for (int64_t row = 0; good && row < o->rows; row++)
        good = fwrite(o->after + operand_byte(o, row, 0), ckl_dtype_bytes(o->info.dtype), (size_t)o->columns, file) ==
               (size_t)o->columns;
    if (file && fclose(file))
        good = false;
    if (!good)
        status_fail(CKL_INVALID, "run: %s cannot be written", text_data(&path));
    text_free(&path);
    return good ? CKL_OK : CKL_INVALID;
}

static ckl_status save_operands(const operand_images *images)
{
    for (int i = 0; i < images->count; i++)
        if (images->each[i].span)
            TRY(save_operand(&images->each[i]));
    return CKL_OK;
}

static ckl_status run(check *k, check_result *result)
{
    const device_ops *ops = k->device->ops;
    printf("plan      %s\n", ckl_plan_text(k->plan));
    if (ops->counters_reset)
        ops->counters_reset(k->device);
    double begin = clock_seconds();
    TRY(check_run(k, result));
    double seconds = clock_seconds() - begin;
    if (ops->counters) {
        printf("emulated  in %.2f s\n", seconds);
        print_counters(k);
    }
    if (save)
        TRY(save_operands(&k->images));
    if (result->passed)
        TRY(check_run_again(k, result));
    if (ops->event_create)
        TRY(print_time(k));
    print_result(result);
    return CKL_OK;
}

static ckl_status run_line(const char *line, void *result)
{
    test_case c;
    ckl_device *device = NULL;
    check k = { 0 };
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = ckl_device_open(device_id, &device);
    if (status == CKL_OK) {
        const ckl_device_info *info = ckl_device_properties(device);
        printf("device    %s (%s)\n", info->id, info->name);
        double begin = clock_seconds();
        status = check_open(&c, device, NULL, &k);
        if (status == CKL_OK)
            printf("prepared  in %.1f ms: plan and inputs\n", (clock_seconds() - begin) * 1e3);
    }
    if (status == CKL_OK)
        status = run(&k, result);
    check_close(&k);
    ckl_device_close(device);
    case_clear(&c);
    return status;
}

static int command(int argc, char **argv)
{
    check_result result = { 0 };
    ckl_status status = cli_lines(argc, argv, NULL, run_line, &result);
    return status != CKL_OK ? cli_exit(status) : result.passed ? EXIT_PASSED : EXIT_FAILED;
}

CLI_COMMAND(
    run, "LINE [options]", "one problem: plan, run, compare with the reference",
    "Plans one problem, runs it twice on a device, and compares the whole result with the reference.\n"
    "Keys of every operator: impl= config='tile_m=128' fill=integers|uniform|normal|hard seed= misalign= stagger=\n"
    "Example: ckl run gemm m=333 n=64 k=64 a=f16 impl=sm90");
