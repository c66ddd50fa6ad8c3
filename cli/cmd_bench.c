/* cmd_bench.c - ckl bench: measured time against peers and against what the hardware allows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/plan_time.h"
#include "bench/sweep.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "lab/clock.h"

/* For a row: measuring the limits has warmed the GPU already, and brief sampling needs no long warm-up. */
static const double WARM_SECONDS_MAX = 1, WARM_OF_SAMPLING = 8;
static const double SECONDS_DEFAULT = 1.5, SECONDS_MAX = 1e9;

static const char *device_id, *suites, *peer_name, *config, *json, *csv, *hot, *rounds, *seconds, *within, *plan_only,
    *configs, *ladder, *peers_ahead;
static const cli_option options[] = {
    { "--suite", "FILE,..", &suites,
      "problem lines to measure, instead of LINE: those of several files in turn; A,,B: B's after A's; - is stdin" },
    { "--device", "D", &device_id, "cuda, cuda:1; the best present if not given" },
    { "--peer", "P", &peer_name, "this peer alone, or none; all of the operator if not given" },
    { "--config", "TEXT", &config, "force our plan: 'sm90 tile_m=128 stages=4', or all that a plan prints" },
    { "--json", "FILE", &json, "write the results as JSON; DIR/ gets a file for each suite" },
    { "--csv", "FILE", &csv, "write the results as CSV; DIR/ likewise" },
    { "--hot", NULL, &hot, "one set of memory, which stays in L2; cold if not given" },
    { "--rounds", "N", &rounds, "exactly N rounds A B B A; until the medians are sure if not given" },
    { "--seconds", "S", &seconds, "of sampling a row at most, more if ten samples take longer; 1.5 if not given" },
    { "--within", "S", &within, "begin no row after so many seconds" },
    { "--plan", NULL, &plan_only, "what planning and calling cost on the host, instead of the kernel's time" },
    { "--configs", "FILE", &configs, "time every config of FILE, a line each, for LINE (a sweep)" },
    { "--peers-ahead", NULL, &peers_ahead,
      "run the peers once and measure nothing: what they keep on disk serves later runs" },
    { "--ladder", NULL, &ladder, "every implementation that takes the problem, each against the one before" },
};

/* Arguments */

static ckl_status read_options(bench *b)
{
    race_options *race = &b->race;
    int64_t turns = 0;
    race->limits.seconds_max = SECONDS_DEFAULT;
    b->seconds_max = SECONDS_MAX;
    TRY(cli_integer("--rounds", rounds, 1, 1000000, &turns));
    TRY(cli_number("--seconds", seconds, 0.01, 600, &race->limits.seconds_max));
    TRY(cli_number("--within", within, 1, SECONDS_MAX, &b->seconds_max));
    race->limits.rounds = (int)turns;
    race->limits.warm_seconds_max = fmin(WARM_SECONDS_MAX, WARM_OF_SAMPLING * race->limits.seconds_max);
    race->hot = hot != NULL;
    b->device_id = device_id;
    b->json = json;
    b->csv = csv;
    if (peer_name)
        TRY(peer_get(peer_name, &race->only));
    race->no_peer = peer_name && !race->only;
    return CKL_OK;
}

static ckl_status add_line(const char *line, void *b)
{
    return suites_read_line(line, config, &((bench *)b)->work);
}

static ckl_status read_cases(bench *b, int argc, char **argv)
{
    if (suites && (configs || plan_only))
        FAIL(CKL_INVALID, "bench: %s takes a problem LINE, not a suite", configs ? "--configs" : "--plan");
    if (suites && argc == 1)
        TRY(suites_read(suites, config, &b->work));
    else
        TRY(cli_lines(argc, argv, suites, add_line, b));
    if (b->work.suite_count > 1 && ((json && !suites_is_folder(json)) || (csv && !suites_is_folder(csv))))
        FAIL(CKL_INVALID, "bench: the results of several suites go to a folder: --json DIR/");
    return CKL_OK;
}

static ckl_status open_device(bench *b)
{
    if (plan_only) { // kernels of earlier processes on disk: the driver's, and ours where no folder is asked for
        setenv("CUDA_CACHE_DISABLE", "1", 1);
        setenv("CKL_CACHE", "off", 0);
    }
    b->header.busy_percent = bench_busy_percent(b);
    TRY(ckl_device_open(device_id, &b->device));
    if (!plan_only && !b->device->ops->event_create)
        FAIL(
            CKL_UNSUPPORTED,
            "bench: %s has no meaningful time: the emulator counts, it does not measure; run this on a machine with an "
            "NVIDIA GPU",
            b->device->info.id);
    return plan_only ? CKL_OK : ckl_stream_create(b->device, &b->race.stream);
}

static ckl_status run_plan(bench *b)
{
    plan_time t;
    TRY(plan_time_measure(&b->work.rows[0].c, b->device, &t));
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
    b->begin = clock_seconds();
    TRY(read_options(b));
    TRY(read_cases(b, argc, argv));
    TRY(open_device(b));
    if (plan_only)
        return run_plan(b);
    if (peers_ahead)
        return bench_peers(b);
    if (ladder)
        return bench_ladders(b);
    if (configs)
        return sweep_run(&b->work.rows[0].c, b->device, &b->race, configs);
    return bench_rows(b);
}

static int command(int argc, char **argv)
{
    bench b = { 0 };
    ckl_status status = run(&b, argc, argv);
    int exit_status = status != CKL_OK ? cli_exit(status) : b.status != CKL_OK ? cli_exit_of(b.status) : EXIT_PASSED;
    if (b.cut_short) { // what those threads use is not freed: the process ends with them
        fflush(NULL);
        _exit(exit_status);
    }
    suites_free(&b.work);
    if (b.race.stream)
        ckl_stream_destroy(b.device, b.race.stream);
    ckl_device_close(b.device);
    return exit_status;
}

CLI_COMMAND(
    bench, "LINE | --suite FILE [options]", "measured time against peers and against what the hardware allows",
    "Measures problems: ours and the peers interleaved (A B B A) in one process, on the same random data, with a\n"
    "cold L2 cache, after the clock has settled. Every result is compared with the reference first; a wrong one\n"
    "is not timed. The limit is the larger of FLOP / measured matrix rate and compulsory bytes / measured\n"
    "bandwidth.\n"
    "Example: ckl bench gemm m=4096 n=4096 k=4096 a=bf16");
