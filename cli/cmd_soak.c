/* cmd_soak.c - ckl soak: random problems on several streams and threads for minutes, results and memory watched. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/math.h"
#include "cli/cli.h"
#include "lab/soak.h"

/*
 * The longest reference of a random problem takes 4 s on one core, the longest compilation less, a run by one GPU
 * thread half a minute. ThreadSanitizer slows runs tenfold.
 */
#ifdef __SANITIZE_THREAD__
enum { STUCK_SECONDS = 300 };
#else
enum { STUCK_SECONDS = 60 };
#endif
enum { PROGRESS_SECONDS = 10, ANSWER_SECONDS = 10 };

static const double MINUTES_MIN = 1e-4;

static const char *device_id, *minutes, *seed, *first, *problems, *threads, *streams;
static const cli_option options[] = {
    { "--device", "D", &device_id, "cuda, cuda:1, emulator:h200, emulator:l4; the best present if not given" },
    { "--minutes", "M", &minutes, "how long; 10 if not given, 0.1 is six seconds" },
    { "--seed", "N", &seed, "of the problems; the same seed draws the same ones" },
    { "--first", "N", &first, "number of the first problem: repeats from there" },
    { "--problems", "N", &problems, "stop after so many" },
    { "--threads", "N", &threads, "4 if not given" },
    { "--streams", "N", &streams, "8 if not given; a multiple of the threads" },
};

static const char *device_name;

static void print_failed(const char *line, int64_t number, const char *plan, const char *what)
{
    printf("FAILED problem %" PRId64
           ": %s\n  %s, %s\n  plan:   %s\n  alone:  ckl run \"%s\" --device %s\n  repeat: ckl soak --seed %s "
           "--first %" PRId64 " --problems 1 --device %s\n",
           number, line, device_name, what, plan, line, device_name, seed, number, device_name);
    fflush(stdout);
}

static void print_beside(const char *line, int64_t number)
{
    printf("  or problem %" PRId64 ", which ran beside it: ckl run \"%s\" --device %s\n", number, line, device_name);
    fflush(stdout);
}

static void print_progress(const soak_sums *s)
{
    printf("%6.0f s: %" PRId64 " problems, %" PRId64 " rounds, %" PRId64 " runs (%" PRId64 " by graphs), %" PRId64
           " wrong, %" PRId64 " refused\n",
           s->seconds, s->problems, s->rounds, s->runs, s->graphs, s->wrong, s->refused);
    fflush(stdout);
}

static void print_phase(const soak_sums *s)
{
    printf("%6.0f s: after %" PRId64 " phases %.1f MiB on the device, %.1f MiB in the process, %.1f of them by malloc; "
           "given back: %" PRId64 " sets of kernels, %.1f MiB of images\n",
           s->seconds, s->phases, (double)s->device_bytes / 0x1p20, (double)s->host_bytes / 0x1p20,
           (double)s->heap_bytes / 0x1p20, s->kernel_sets, (double)s->image_bytes / 0x1p20);
    fflush(stdout);
}

static void print_waiting(const soak_wait *w)
{
    if (w->work)
        printf("stream %d: %s\n", w->stream, w->work);
    else
        printf("STANDSTILL thread %d, stream %d: %s for %.0f s, problem %" PRId64
               ": %s\n  plan: %s; its first run took %.4f s, this round has %" PRId64 " runs%s\n",
               w->thread, w->stream, w->stage, w->seconds, w->number, w->line, w->plan, w->run_seconds, w->runs,
               w->by_graph ? " by a graph" : "");
    fflush(stdout);
    alarm(ANSWER_SECONDS); // a driver that hangs may not return from the next call
}

static ckl_status read_options(soak_options *o)
{
    double duration = 10;
    seed = seed ? seed : "1";
    int64_t seed_number = 1, thread_count = 4, stream_count = 8;
    TRY(cli_number("--minutes", minutes, MINUTES_MIN, 1e5, &duration));
    TRY(cli_integer("--seed", seed, 0, INT64_MAX, &seed_number));
    TRY(cli_integer("--first", first, 0, INT32_MAX, &o->first));
    TRY(cli_integer("--problems", problems, 0, INT32_MAX, &o->problems));
    TRY(cli_integer("--threads", threads, 1, SOAK_STREAMS_MAX, &thread_count));
    TRY(cli_integer("--streams", streams, thread_count, SOAK_STREAMS_MAX, &stream_count));
    o->seconds = duration * 60;
    o->seed = (uint64_t)seed_number;
    o->threads = (int)thread_count;
    o->streams = (int)(stream_count / thread_count * thread_count);
    return CKL_OK;
}

static void print_end(const soak_sums *s)
{
    print_progress(s);
    printf("memory grew by %.1f MiB on the device (%.0f allowed), %.1f MiB in the process (%.0f allowed)%s\n",
           (double)s->device_growth / 0x1p20, (double)SOAK_DEVICE_GROWTH_MAX / 0x1p20, (double)s->host_growth / 0x1p20,
           (double)SOAK_HOST_GROWTH_MAX / 0x1p20, s->phases < 3 ? "; too few phases to tell" : "");
    printf("the longest first run took %.3f s: %s\n", s->run_seconds_max, s->slowest);
    if (s->lost)
        printf("the device is lost\n");
    if (s->stuck)
        printf("a thread was at one thing for %d s\n", STUCK_SECONDS);
    bool otherwise = !soak_passed(s) && s->wrong == 0; // a leak, or a device that hangs
    printf("%" PRId64 " passed, %" PRId64 " failed\n", s->problems - s->wrong, s->wrong + otherwise);
    fflush(stdout);
}

static ckl_status soak_on(ckl_device *device, const soak_options *o, soak_sums *sums)
{
    device_name = ckl_device_properties(device)->id;
    printf("%s (%s): seed %s, %d threads, %d streams, %.1f minutes\n", device_name, ckl_device_properties(device)->name,
           seed, o->threads, o->streams, o->seconds / 60);
    TRY(soak_run(device, o, sums));
    print_end(sums);
    if (sums->stuck)
        _exit(EXIT_DEVICE); // threads wait in the driver, which would wait for them
    return CKL_OK;
}

static int command(int argc, char **argv)
{
    soak_options o = { .progress_seconds = PROGRESS_SECONDS,
                       .stuck_seconds = STUCK_SECONDS,
                       .failed = print_failed,
                       .beside = print_beside,
                       .progress = print_progress,
                       .phase = print_phase,
                       .waiting = print_waiting };
    soak_sums sums = { 0 };
    ckl_device *device = NULL;
    ckl_status status = read_options(&o);
    if (status == CKL_OK && argc > 1)
        status = case_operator(argv[1], &o.only);
    if (status == CKL_OK)
        status = ckl_device_open(device_id, &device);
    if (status == CKL_OK)
        status = soak_on(device, &o, &sums);
    ckl_device_close(device);
    if (status != CKL_OK)
        return cli_exit(status);
    return sums.lost ? EXIT_DEVICE : soak_passed(&sums) ? EXIT_PASSED : EXIT_FAILED;
}

CLI_COMMAND(
    soak, "[OPERATOR] [options]",
    "random problems on several streams and threads for minutes; results and memory watched",
    "Draws problems of every operator at random and runs them on several streams and threads at once, plainly and\n"
    "as graphs. The first run of each is compared with the reference, every later one bit for bit with the first;\n"
    "outputs are poisoned between, inputs, padding and canaries must stay. Memory of device and process must not\n"
    "grow. Progress every 10 s, memory after each of its phases. The last line is 'N passed, N failed', in\n"
    "problems.");
