/* cmd_bench.c - ckl bench: measured time against peers and against what the hardware allows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/math.h"
#include "bench/ladder.h"
#include "bench/limits.h"
#include "bench/plan_time.h"
#include "bench/race.h"
#include "bench/sweep.h"
#include "cli/cli.h"
#include "device/nvml.h"
#include "lab/clock.h"

#ifndef CKL_COMMIT
#define CKL_COMMIT ""
#endif

/* For a row: measuring the limits has warmed the GPU already, and brief sampling needs no long warm-up. */
static const double WARM_SECONDS_MAX = 1, WARM_OF_SAMPLING = 4;
static const char *const SECONDS_DEFAULT = "1.5";

static const char *device_id, *suite, *peer_name, *config, *json, *csv, *hot, *rounds, *seconds, *plan_only, *configs,
    *ladder;
static const cli_option options[] = {
    { "--suite", "FILE", &suite, "problem lines to measure, instead of LINE; - reads them from standard input" },
    { "--device", "D", &device_id, "cuda, cuda:1; the best present if not given" },
    { "--peer", "P", &peer_name, "this peer alone, or none; all of the operator if not given" },
    { "--config", "TEXT", &config, "force our plan: 'sm90 tile_m=128 stages=4', or all that a plan prints" },
    { "--json", "FILE", &json, "write the results as JSON" },
    { "--csv", "FILE", &csv, "write the results as CSV" },
    { "--hot", NULL, &hot, "one set of memory, which stays in L2; cold if not given" },
    { "--rounds", "N", &rounds, "exactly N rounds A B B A; until the medians are sure if not given" },
    { "--seconds", "S", &seconds, "of sampling a row at most; 1.5 if not given" },
    { "--plan", NULL, &plan_only, "what planning and calling cost on the host, instead of the kernel's time" },
    { "--configs", "FILE", &configs, "time every config of FILE, a line each, for LINE (a sweep)" },
    { "--ladder", NULL, &ladder, "every implementation that takes the problem, each against the one before" },
};
static const cli_usage usage = {
    "bench", "LINE | --suite FILE [options]",
    "Measures problems: ours and the peers interleaved (A B B A) in one process, on the same random data, with a cold "
    "L2\n"
    "cache, after the clock has settled. Every result is compared with the reference first; a wrong one is not timed.\n"
    "The limit is the larger of FLOP / measured matrix rate and compulsory bytes / measured bandwidth.\n"
    "Example: ckl bench gemm m=4096 n=4096 k=4096 a=bf16",
    options, COUNT_OF(options)
};

/* One run of the command. */
typedef struct bench {
    ckl_device *device;
    race_options race;
    test_case *cases;
    int case_count;
    results results;
    ckl_status status; // the first failure of a row
} bench;

/* Arguments */

static ckl_status add_case(const char *line, void *user)
{
    bench *b = user;
    b->cases = realloc(b->cases, (size_t)(b->case_count + 1) * sizeof *b->cases);
    if (!b->cases)
        abort();
    test_case *c = &b->cases[b->case_count++];
    TRY(case_parse(line, c));
    return config ? case_config(c, config) : CKL_OK;
}

static ckl_status parse_number(const char *option, const char *given, double low, double high, double *value)
{
    char *end;
    *value = strtod(given, &end);
    if (end == given || *end || !(*value >= low && *value <= high))
        FAIL(CKL_INVALID, "bench: %s=%s is not a number from %g to %g", option, given, low, high);
    return CKL_OK;
}

static ckl_status read_options(race_options *race)
{
    double turns;
    TRY(parse_number("--rounds", rounds ? rounds : "0", rounds ? 1 : 0, 1e6, &turns));
    TRY(parse_number("--seconds", seconds ? seconds : SECONDS_DEFAULT, 0.01, 600, &race->limits.seconds_max));
    race->limits.rounds = (int)turns;
    race->limits.warm_seconds_max = fmin(WARM_SECONDS_MAX, WARM_OF_SAMPLING * race->limits.seconds_max);
    race->hot = hot != NULL;
    if (peer_name)
        TRY(peer_get(peer_name, &race->only));
    race->no_peer = peer_name && !race->only;
    return CKL_OK;
}

static ckl_status read_cases(bench *b, int argc, char **argv)
{
    if (suite ? argc > 1 : argc < 2)
        FAIL(CKL_INVALID, "bench: give either a problem LINE or --suite FILE");
    if (suite && (configs || plan_only))
        FAIL(CKL_INVALID, "bench: %s takes a problem LINE, not a suite", configs ? "--configs" : "--plan");
    if (suite)
        return suite_read(suite, add_case, b);
    text line = { 0 };
    cli_join(argc - 1, argv + 1, &line);
    ckl_status status = add_case(text_data(&line), b);
    text_free(&line);
    return status;
}

static ckl_status open_device(bench *b)
{
    if (plan_only) { // kernels of earlier processes on disk: the driver's, and ours where no folder is asked for
        setenv("CUDA_CACHE_DISABLE", "1", 1);
        setenv("CKL_CACHE", "off", 0);
    }
    TRY(ckl_device_open(device_id, &b->device));
    if (!plan_only && !b->device->ops->event_create)
        FAIL(
            CKL_UNSUPPORTED,
            "bench: %s has no meaningful time: the emulator counts, it does not measure; run this on a machine with an "
            "NVIDIA GPU",
            b->device->info.id);
    return plan_only ? CKL_OK : ckl_stream_create(b->device, &b->race.stream);
}

/* The run */

static void describe_run(const bench *b, result_header *h)
{
    const ckl_device_info *info = &b->device->info;
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(h->date, sizeof h->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    result_set(h->gpu, info->name);
    if (!nvml_driver_version(h->driver, sizeof h->driver))
        result_set(h->driver, "unknown");
    h->sm_count = info->sm_count;
    h->clock_max_mhz = info->clock_mhz;
    h->l2_bytes = info->l2_bytes;
    result_set(h->ckl_version, ckl_version());
    result_set(h->commit, CKL_COMMIT);
    snprintf(
        h->protocol, sizeof h->protocol,
        "One process, one stream, same memory, interleaved A B B A, L2 %s, clocks not locked, warmed up; events around "
        "a launch or, where one takes less than %d us, CUDA graphs of many; median; each peer's best is the fastest "
        "measured",
        hot ? "hot" : "cold by rotating over twice its size or overwriting it", MEASURE_GRAPH_BELOW_US);
}

static ckl_status measure_limits_of(bench *b)
{
    bool matrix = false;
    for (int i = 0; i < b->case_count; i++) {
        const test_case *c = &b->cases[i];
        matrix |= adapter_flops(c->test, c->problem) > LIMITS_MATRIX_INTENSITY * adapter_bytes(c->test, c->problem);
    }
    TRY(limits_measure_memory(b->device, b->race.stream, &b->results.header));
    return matrix ? limits_measure_matrix(b->device, b->race.stream, &b->results.header) : CKL_OK;
}

static void show_progress(const bench *b, int done, double begin)
{
    if (b->case_count < 2 || !isatty(STDERR_FILENO))
        return;
    double elapsed = clock_seconds() - begin;
    fprintf(stderr, "\r\033[K");
    if (done < b->case_count)
        fprintf(stderr, "case %d of %d, %.0f s, about %.0f s left", done + 1, b->case_count, elapsed,
                done ? elapsed / done * (b->case_count - done) : 0.0);
}

/* A row that fails is reported, and the next one runs unless the device is lost. */
static ckl_status run_row(bench *b, const test_case *c)
{
    result_row *row = results_add(&b->results);
    ckl_status status = race_run(c, b->device, &b->race, row);
    if (status != CKL_OK)
        result_set(row->fault, ckl_error());
    if (*row->fault && b->status == CKL_OK)
        b->status = status == CKL_OK ? CKL_INTERNAL : status;
    limits_apply(&b->results.header, row);
    report_row(row);
    return status == CKL_DEVICE_FAULT ? status : CKL_OK;
}

/* After every row: a run that is stopped keeps what it has measured. */
static ckl_status write_results(const bench *b)
{
    if (json)
        TRY(results_write_json(&b->results, json));
    return csv ? results_write_csv(&b->results, csv) : CKL_OK;
}

static ckl_status run_rows(bench *b)
{
    describe_run(b, &b->results.header);
    TRY(measure_limits_of(b));
    report_header(&b->results.header);
    double begin = clock_seconds();
    ckl_status status = CKL_OK;
    for (int i = 0; i < b->case_count && status == CKL_OK; i++) {
        show_progress(b, i, begin);
        status = run_row(b, &b->cases[i]);
        TRY(write_results(b));
    }
    show_progress(b, b->case_count, begin);
    report_end(&b->results);
    return status;
}

static ckl_status run_ladders(bench *b)
{
    describe_run(b, &b->results.header);
    TRY(measure_limits_of(b));
    for (int i = 0; i < b->case_count; i++) {
        TRY(ladder_run(&b->cases[i], b->device, &b->race, &b->results));
        TRY(write_results(b));
    }
    return CKL_OK;
}

static ckl_status run_plan(bench *b)
{
    plan_time t;
    TRY(plan_time_measure(&b->cases[0], b->device, &t));
    printf("new plan     %8.2f ms\n", t.first_ms);
    printf("  ours       %8.2f ms: choose %.2f, describe and check %.2f, print %.2f\n",
           t.choose_ms + t.describe_ms + t.print_ms, t.choose_ms, t.describe_ms, t.print_ms);
    printf("  device     %8.2f ms: compile and load\n", t.load_ms);
    if (b->device->info.emulated) // the rest would be the emulator's own time
        return CKL_OK;
    printf("second plan  %8.2f us\n", t.second_us);
    printf("one run      %8.2f us of the caller's thread\n", t.run_us);
    return CKL_OK;
}

static ckl_status run(bench *b, int argc, char **argv)
{
    TRY(read_options(&b->race));
    TRY(read_cases(b, argc, argv));
    TRY(open_device(b));
    if (plan_only)
        return run_plan(b);
    if (ladder)
        return run_ladders(b);
    if (configs)
        return sweep_run(&b->cases[0], b->device, &b->race, configs);
    return run_rows(b);
}

int cmd_bench(int argc, char **argv)
{
    int done = cli_parse(&usage, &argc, argv);
    if (done != CLI_GO_ON)
        return done;
    bench b = { 0 };
    ckl_status status = run(&b, argc, argv);
    for (int i = 0; i < b.case_count; i++)
        case_clear(&b.cases[i]);
    free(b.cases);
    results_free(&b.results);
    if (b.race.stream)
        ckl_stream_destroy(b.device, b.race.stream);
    ckl_device_close(b.device);
    if (status != CKL_OK)
        return cli_fail(status);
    return b.status == CKL_OK ? EXIT_PASSED : cli_exit_of(b.status);
}
