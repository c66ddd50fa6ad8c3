/* bench_rows.c - the rows of ckl bench: limits first, then row after row while other cores work ahead. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/math.h"
#include "base/threads.h"
#include "bench/limits.h"
#include "bench/peers/python.h"
#include "bench/sweep.h"
#include "bench/warm_ahead.h"
#include "cli/bench.h"
#include "device/nvml.h"
#include "lab/clock.h"
#include "lab/cores.h"
#include "lab/host_memory.h"

#ifndef CKL_COMMIT
#define CKL_COMMIT ""
#endif

/* Memory of a few of the largest rows: to pin it again takes longer than to draw operands. */
static const size_t HOST_MEMORY_KEPT = (size_t)16 << 30;

enum { LIMIT_LINES_MAX = 8 };

/* Longer than the time that a reading of NVML's utilization covers. */
enum { BUSY_READING_US = 1200000 };

/* Between two writings of a suite's results: many rows take only tens of milliseconds. */
static const double WRITE_SECONDS = 10;

static nvml_reading read_gpu(const bench *b)
{
    nvml_reading now = { 0 };
    const char *colon = b->device_id ? strchr(b->device_id, ':') : NULL;
    (void)nvml_sample(colon ? atoi(colon + 1) : 0, &now);
    return now;
}

int bench_busy_percent(const bench *b)
{
    int busy = read_gpu(b).busy_percent;
    if (busy)
        usleep(BUSY_READING_US);
    return busy ? read_gpu(b).busy_percent : 0;
}

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
        b->race.hot ? "hot" : "cold by rotating over twice its size or overwriting it", MEASURE_GRAPH_BELOW_US);
}

static bool is_matrix_bound(const test_case *c)
{
    return adapter_flops(c->test, c->problem) > LIMITS_MATRIX_INTENSITY * adapter_bytes(c->test, c->problem);
}

/* Is any row bound by the matrix units, in 8 bits or in more? */
static bool has_matrix_row(const bench *b, bool narrow)
{
    bool has = false;
    for (int i = 0; i < b->work.row_count; i++) {
        const test_case *c = &b->work.rows[i].c;
        has |= is_matrix_bound(c) && (race_input_bits(c) == 8) == narrow;
    }
    return has;
}

static ckl_status measure_limits_of(bench *b)
{
    double begin = clock_seconds();
    TRY(limits_measure_memory(b->device, b->race.stream, &b->header));
    if (has_matrix_row(b, false))
        TRY(limits_measure_matrix(b->device, b->race.stream, &b->header));
    if (has_matrix_row(b, true))
        TRY(limits_measure_matrix8(b->device, b->race.stream, &b->header));
    b->header.limits_s = clock_seconds() - begin;
    b->header.processes = read_gpu(b).processes;
    b->header.threads = omp_get_max_threads();
    for (int i = 0; i < b->work.suite_count; i++)
        b->work.suites[i].results.header = b->header;
    return CKL_OK;
}

static void show_progress(const bench *b, int done)
{
    if (b->work.row_count < 2 || !isatty(STDERR_FILENO))
        return;
    double elapsed = clock_seconds() - b->begin;
    fprintf(stderr, "\r\033[K");
    if (done < b->work.row_count)
        fprintf(stderr, "case %d of %d, %.0f s, about %.0f s left", done + 1, b->work.row_count, elapsed,
                done ? elapsed / done * (b->work.row_count - done) : 0.0);
}

/* A row that fails is reported, and the next one runs unless the device is lost. */
static ckl_status run_row(bench *b, const bench_row *r)
{
    result_row *row = results_add(&b->work.suites[r->suite].results);
    operand_images images;
    double waited;
    ckl_status status = ahead_take(b->ahead, &images, &waited);
    if (status == CKL_OK)
        status = race_run(&r->c, b->device, &b->race, &images, row);
    else {
        race_describe(&r->c, &b->race, row);
        operand_images_free(&images);
    }
    row->wait_s = waited;
    if (status != CKL_OK)
        result_set(row->fault, ckl_error());
    if (*row->fault && b->status == CKL_OK)
        b->status = status == CKL_OK ? CKL_INTERNAL : status;
    limits_apply(&b->header, row);
    report_row(row);
    return status == CKL_DEVICE_FAULT ? status : CKL_OK;
}

static ckl_status write_as(const char *given, const bench_suite *s, const char *extension,
                           ckl_status (*write)(const results *r, const char *path))
{
    text path = { 0 };
    if (!given)
        return CKL_OK;
    suites_name_output(given, s->path, extension, &path);
    ckl_status status = write(&s->results, text_data(&path));
    text_free(&path);
    return status;
}

static ckl_status write_results(const bench *b, bench_suite *s)
{
    s->written = clock_seconds();
    TRY(write_as(b->json, s, "json", results_write_json));
    return write_as(b->csv, s, "csv", results_write_csv);
}

static ckl_status finish_suites(bench *b)
{
    for (int i = 0; i < b->work.suite_count; i++) {
        TRY(write_results(b, &b->work.suites[i]));
        if (b->work.suite_count > 1)
            printf("\n%s:", b->work.suites[i].path);
        report_end(&b->work.suites[i].results);
    }
    return CKL_OK;
}

static const test_case *case_of(const void *rows, int i)
{
    const bench_suites *work = rows;
    return i < work->row_count ? &work->rows[i].c : NULL;
}

static volatile sig_atomic_t stopped; // by a signal: the row under way is the last

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

/* Only the first signal: a second one ends the process. */
static void heed_signals(void)
{
    const struct sigaction once = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART };
    sigaction(SIGTERM, &once, NULL);
    sigaction(SIGINT, &once, NULL);
}

static bool goes_on(const bench *b)
{
    return b->done < b->work.row_count && !stopped && clock_seconds() - b->begin < b->seconds_max;
}

/* Results are written every few seconds, so that a run that is killed keeps them. */
static ckl_status run_each(bench *b)
{
    ckl_status status = CKL_OK;
    for (; goes_on(b) && status == CKL_OK; b->done++) {
        const bench_row *row = &b->work.rows[b->done];
        bench_suite *s = &b->work.suites[row->suite];
        show_progress(b, b->done);
        status = run_row(b, row);
        if (clock_seconds() - s->written > WRITE_SECONDS)
            TRY(write_results(b, s));
    }
    show_progress(b, b->work.row_count);
    TRY(finish_suites(b));
    return status;
}

/* Pins a host image, which a GPU then copies several times as fast; where that fails it is copied unpinned. */
static void pin(void *memory, size_t bytes, void *device)
{
    ckl_device *d = device;
    (void)!d->ops->pin(d, memory, bytes);
}

static void unpin(void *memory, void *device)
{
    ckl_device *d = device;
    d->ops->unpin(d, memory);
}

static void pin_host_memory(ckl_device *device)
{
    if (!device->ops->pin)
        return;
    host_memory_forget();
    host_memory_keep(HOST_MEMORY_KEPT);
    host_memory_listen(&(host_memory_listener){ pin, unpin, device });
}

static void unpin_host_memory(void)
{
    host_memory_forget();
    host_memory_listen(NULL);
}

/* Does any row or limit need the peer? */
static bool is_needed(const bench *b, const peer *p)
{
    bool needed = p == &cublaslt_peer && (has_matrix_row(b, false) || has_matrix_row(b, true));
    for (int i = 0; i < b->work.row_count && !b->race.no_peer; i++)
        needed |= peer_competes(p, b->work.rows[i].c.test->op->name, b->race.only);
    return needed;
}

/* Finds cuBLASLt, then torch, which takes seconds: limits are measured meanwhile. Whoever needs one early waits. */
static void *find_peers(void *user)
{
    const bench *b = user;
    for (const peer *const *p = peers; *p; p++)
        if (*p != &cub_peer && is_needed(b, *p))
            (void)!(*p)->find(); // the row says what is missing
    return NULL;
}

static bool start_finding(bench *b, pthread_t *thread)
{
    for (const peer *const *p = peers; *p; p++)
        if (strcmp((*p)->name, "torch") == 0 && is_needed(b, *p)) {
            (void)!python_start(); // by the thread that will use it
            break;
        }
    return pthread_create(thread, NULL, find_peers, b) == 0;
}

/* Lines that run before the rows, ended by NULL. */
static void list_limits(const bench *b, const char *lines[LIMIT_LINES_MAX])
{
    int count = 0;
    for (int narrow = 0; narrow <= 1; narrow++) {
        const char *const *line = narrow ? limits_matrix8_lines : limits_matrix_lines;
        for (; has_matrix_row(b, narrow) && *line && count < LIMIT_LINES_MAX - 1; line++)
            lines[count++] = *line;
    }
    lines[count] = NULL;
}

static pid_t start_warming(const bench *b, int threads)
{
    const char *limits[LIMIT_LINES_MAX];
    list_limits(b, limits);
    return warm_ahead_start(limits, &b->work, b->device->info.id, threads);
}

/*
 * While rows are measured, other cores make operands and references of later rows; at first half of them compile
 * kernels. All at low priority, except for the thread that measures.
 */
ckl_status bench_rows(bench *b)
{
    const int others = (int)max_i64(cores_available() - 1, 2);
    const ahead_options crew = { .device = ckl_device_properties(b->device), .cores = others };
    heed_signals();
    describe_run(b, &b->header);
    pin_host_memory(b->device);
    pid_t warmer = b->work.row_count > 1 ? start_warming(b, others / 2) : 0;
    pthread_t finder;
    bool finds = start_finding(b, &finder);
    b->ahead = ahead_open(case_of, &b->work, &crew);
    double begin = clock_seconds(), opened = begin;
    ckl_status status = measure_limits_of(b);
    if (status == CKL_OK) {
        report_header(&b->header);
        begin = clock_seconds();
        status = run_each(b);
    }
    printf("%.1f s in all, %.1f of them for %d rows, %.1f for the limits\n", clock_seconds() - b->begin,
           clock_seconds() - begin, b->done, begin - opened);
    warm_ahead_end(warmer);
    b->cut_short = b->done < b->work.row_count;
    if (b->cut_short) // threads at later rows may take many more seconds
        return status;
    if (finds)
        pthread_join(finder, NULL);
    ahead_close(b->ahead);
    unpin_host_memory();
    return status;
}

ckl_status bench_ladders(bench *b)
{
    describe_run(b, &b->header);
    TRY(measure_limits_of(b));
    for (int i = 0; i < b->work.row_count; i++) {
        bench_suite *s = &b->work.suites[b->work.rows[i].suite];
        TRY(ladder_run(&b->work.rows[i].c, b->device, &b->race, &s->results));
        TRY(write_results(b, s));
    }
    return CKL_OK;
}

/* Errors are left to the row, where the peer fails again. */
ckl_status bench_peers(bench *b)
{
    int ran = 0;
    heed_signals();
    for (; goes_on(b); b->done++) {
        ckl_status status = race_run_peers(&b->work.rows[b->done].c, b->device, &b->race);
        if (status == CKL_DEVICE_FAULT)
            return status;
        ran += status == CKL_OK;
    }
    printf("%d of %d rows' peers ran in %.1f s\n", ran, b->work.row_count, clock_seconds() - b->begin);
    return CKL_OK;
}
