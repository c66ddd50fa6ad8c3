/* soak.c - phases of threads that run random problems through their streams, and the memory that is left after each. */
#include "lab/soak.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "base/threads.h"
#include "lab/clock.h"
#include "lab/cores.h"
#include "lab/host_memory.h"
#include "lab/soak_stream.h"
#include "plan/kernel_cache.h"

enum { PHASES = 20 };
static const double PHASE_SECONDS_MAX = 30;

typedef struct soak {
    const soak_options *options;
    ckl_device *device;
    pthread_mutex_t lock;
    pthread_cond_t ended; // a thread of the phase
    soak_sums sums;
    double begin, phase_end;
    int64_t next; // number of the next problem
    int working;  // threads of this phase
    int64_t device_base, host_base;
    soak_stream streams[SOAK_STREAMS_MAX];
} soak;

typedef struct soak_thread {
    soak *s;
    pthread_t thread;
    int index;
} soak_thread;

/* Is there nothing more to begin, with that end of time? */
static bool is_over(const soak *s, double end)
{
    const soak_options *o = s->options;
    bool all = o->problems && s->next - o->first >= o->problems;
    return all || s->sums.lost || s->sums.stuck || clock_seconds() >= end;
}

static bool phase_goes_on(soak *s)
{
    pthread_mutex_lock(&s->lock);
    bool on = !is_over(s, s->phase_end);
    pthread_mutex_unlock(&s->lock);
    return on;
}

/* The number of a problem that is still to be done; -1: the phase is over. */
static int64_t draw(soak *s)
{
    pthread_mutex_lock(&s->lock);
    int64_t number = is_over(s, s->phase_end) ? -1 : s->next++;
    pthread_mutex_unlock(&s->lock);
    return number;
}

/* A lost device is reported by whoever calls it next: the kernel that broke it may be any that was under way. */
static void report_beside(const soak *s, const soak_stream *reported)
{
    for (int i = 0; i < s->options->streams; i++) {
        const soak_stream *stream = &s->streams[i];
        if (stream != reported && soak_stream_stage(stream))
            s->options->beside(stream->line, stream->number);
    }
}

/* Takes over what a stream did; tells of what went wrong. */
static void account(soak *s, soak_stream *stream)
{
    pthread_mutex_lock(&s->lock);
    s->sums.problems += stream->done.problems;
    s->sums.refused += stream->done.refused;
    s->sums.rounds += stream->done.rounds;
    s->sums.runs += stream->done.runs;
    s->sums.graphs += stream->done.graphs;
    if (stream->run_seconds > s->sums.run_seconds_max) {
        s->sums.run_seconds_max = stream->run_seconds;
        snprintf(s->sums.slowest, sizeof s->sums.slowest, "%s", stream->line);
    }
    if (*stream->fault && !s->sums.lost) {
        s->sums.wrong++;
        s->sums.lost = stream->lost;
        s->options->failed(stream->line, stream->number, stream->plan, stream->fault);
        if (stream->lost)
            report_beside(s, stream);
    }
    pthread_mutex_unlock(&s->lock);
    stream->done = (soak_done){ 0 };
    *stream->fault = '\0';
}

/* One round of every stream of a thread: all are enqueued before any is waited for. False: no stream has a problem. */
static bool round_of(soak *s, soak_stream *streams, int count)
{
    bool busy = false;
    for (int i = 0; i < count; i++) {
        int64_t number = streams[i].open || streams[i].broken ? -1 : draw(s);
        if (number >= 0)
            soak_stream_take(&streams[i], s->options, number);
        account(s, &streams[i]);
    }
    for (int i = 0; i < count; i++)
        if (streams[i].open)
            soak_stream_enqueue(&streams[i]);
    for (int i = 0; i < count; i++) {
        if (streams[i].open)
            soak_stream_settle(&streams[i]);
        account(s, &streams[i]);
        busy |= streams[i].open;
    }
    return busy;
}

static void *work(void *argument)
{
    soak_thread *t = argument;
    soak *s = t->s;
    int count = s->options->streams / s->options->threads;
    soak_stream *streams = &s->streams[t->index * count];
    omp_set_num_threads((int)max_i64(1, cores_available() / s->options->threads)); // of this thread's references
    for (int i = 0; i < count; i++) {
        soak_stream_open(&streams[i], s->device);
        account(s, &streams[i]);
    }
    while (round_of(s, streams, count) || phase_goes_on(s))
        ;
    for (int i = 0; i < count; i++)
        soak_stream_close(&streams[i]);
    pthread_mutex_lock(&s->lock);
    s->working--;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* What is still in use when nothing should be. */
static ckl_status measure_memory(soak *s)
{
    size_t used = 0;
    s->sums.kernel_sets = kernel_cache_count(s->device).sets;
    s->sums.image_bytes = (int64_t)host_memory_kept();
    plan_forget_device(s->device);
    host_memory_forget();
    malloc_trim(0);
    if (s->device->ops->memory_used)
        TRY(s->device->ops->memory_used(s->device, &used));
    soak_sums *sums = &s->sums;
    sums->device_bytes = (int64_t)used;
    struct mallinfo2 heap = mallinfo2();
    sums->host_bytes = resident_bytes();
    sums->heap_bytes = (int64_t)(heap.uordblks + heap.hblkhd);
    sums->phases++;
    bool settling = clock_seconds() - s->begin < s->options->seconds / 3;
    if (settling || sums->phases == 1) {
        s->device_base = max_i64(s->device_base, sums->device_bytes);
        s->host_base = max_i64(s->host_base, sums->host_bytes);
        return CKL_OK;
    }
    sums->device_growth = max_i64(0, sums->device_bytes - s->device_base);
    sums->host_growth = max_i64(0, sums->host_bytes - s->host_base);
    return CKL_OK;
}

static const char *work_of(soak *s, ckl_stream stream)
{
    bool idle = true;
    if (s->device->ops->stream_idle && s->device->ops->stream_idle(s->device, stream, &idle) != CKL_OK)
        return ckl_error();
    return idle ? "its work is done" : "its work is not done";
}

/* First what the host knows; a driver that hangs may not answer. */
static void report_stuck(soak *s)
{
    s->sums.stuck = true;
    int per_thread = s->options->streams / s->options->threads;
    for (int asks = 0; asks < 2; asks++)
        for (int i = 0; i < s->options->streams; i++) {
            soak_stream *stream = &s->streams[i];
            const char *stage = soak_stream_stage(stream);
            if (!stage)
                continue;
            s->options->waiting(&(soak_wait){ .thread = i / per_thread,
                                              .stream = i,
                                              .number = stream->number,
                                              .line = stream->line,
                                              .plan = stream->plan,
                                              .stage = stage,
                                              .seconds = clock_seconds() - stream->since,
                                              .run_seconds = stream->run_seconds,
                                              .runs = stream->burst,
                                              .by_graph = stream->by_graph,
                                              .work = asks ? work_of(s, stream->stream) : NULL });
        }
}

/* Is a thread at one thing for longer than anything takes? */
static bool is_stuck(const soak *s)
{
    for (int i = 0; i < s->options->streams; i++)
        if (soak_stream_busy_seconds(&s->streams[i]) > s->options->stuck_seconds)
            return true;
    return false;
}

/* Waits for the threads of a phase, tells of progress, and notices when there is none. */
static void watch(soak *s, double *next_progress)
{
    pthread_mutex_lock(&s->lock);
    while (s->working && !s->sums.stuck) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&s->ended, &s->lock, &until);
        double now = clock_seconds();
        s->sums.seconds = now - s->begin;
        if (now >= *next_progress) {
            s->options->progress(&s->sums);
            *next_progress = now + s->options->progress_seconds;
        }
        if (is_stuck(s))
            report_stuck(s);
    }
    pthread_mutex_unlock(&s->lock);
}

static ckl_status run_phase(soak *s, soak_thread *threads, double *next_progress)
{
    int started = 0;
    double seconds = s->options->seconds / PHASES;
    s->phase_end = clock_seconds() + (seconds < PHASE_SECONDS_MAX ? seconds : PHASE_SECONDS_MAX);
    s->working = s->options->threads;
    for (; started < s->options->threads; started++) {
        threads[started] = (soak_thread){ .s = s, .index = started };
        if (pthread_create(&threads[started].thread, NULL, work, &threads[started]))
            break;
    }
    pthread_mutex_lock(&s->lock);
    s->working -= s->options->threads - started;
    pthread_mutex_unlock(&s->lock);
    watch(s, next_progress);
    for (int i = 0; i < started && !s->sums.stuck; i++)
        pthread_join(threads[i].thread, NULL);
    if (started < s->options->threads)
        FAIL(CKL_NO_MEMORY, "soak: thread %d cannot be started", started);
    return CKL_OK;
}

/*
 * glibc keeps up to 64 MiB on top of every thread's arena, and as a rule there are 8 arenas for a core: after minutes a
 * gigabyte, none of it in use. With fixed thresholds what is freed goes back, so that a leak would show.
 */
static void give_memory_back(void)
{
    enum { TRIM_BYTES = 1 << 20, MMAP_BYTES = 1 << 23 };
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
}

ckl_status soak_run(ckl_device *device, const soak_options *options, soak_sums *sums)
{
    give_memory_back();
    soak *s = calloc(1, sizeof *s); // stays behind where threads do
    soak_thread *threads = calloc((size_t)options->threads, sizeof *threads);
    if (!s || !threads) {
        free(s);
        free(threads);
        FAIL(CKL_NO_MEMORY, "soak: no host memory for %d threads", options->threads);
    }
    *s = (soak){ .options = options, .device = device, .begin = clock_seconds(), .next = options->first };
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->ended, NULL);
    double next_progress = s->begin + options->progress_seconds;
    ckl_status status = CKL_OK;
    while (status == CKL_OK && !is_over(s, s->begin + options->seconds)) {
        status = run_phase(s, threads, &next_progress);
        if (status != CKL_OK || s->sums.lost || s->sums.stuck)
            break;
        status = measure_memory(s);
        options->phase(&s->sums);
    }
    s->sums.seconds = clock_seconds() - s->begin;
    *sums = s->sums;
    if (!sums->stuck) {
        pthread_cond_destroy(&s->ended);
        pthread_mutex_destroy(&s->lock);
        free(threads);
        free(s);
    }
    return status;
}

bool soak_passed(const soak_sums *sums)
{
    return sums->wrong == 0 && !sums->lost && !sums->stuck && sums->device_growth <= SOAK_DEVICE_GROWTH_MAX &&
           sums->host_growth <= SOAK_HOST_GROWTH_MAX;
}
