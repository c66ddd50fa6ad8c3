/* measure.c - queueing samples ahead of the GPU, warm-up, and the rule that ends a race. */
#include "bench/measure.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "lab/clock.h"

enum {
    GRAPH_LAUNCHES = 64,     // each bears a part of the graph's start, about 0.1 us, as the empty kernel does
    GRAPH_US = 1600,         // or so long: of longer launches a graph has fewer
    GRAPH_BRIEF_US = 400,    // where a rough order will do
    SECOND_ROUNDS = 2,       // of each second look
    BATCH_SAMPLES_MAX = 256, // queued before the host waits
    SAMPLES_LEAST = 10,      // so that there is an interval, even if that takes OVERTIME times the time given
    OVERTIME = 10,
    SAMPLES_MIN = 20,       // of each contestant before the interval of its median is believed
    WARM_LAUNCHES_MIN = 50, // of each contestant
    PROBES = 3,             // to estimate the time of a launch: the shortest counts
    PROBES_OF_GRAPHS = 1,   // one uploads it, one is timed
    STEADY_READINGS = 3,    // of the clock, within STEADY_SPREAD
    WARM_READINGS = 40,     // of the clock, or more, in the time that warming up may take
    LEAD_IN_US = 100        // of work before a batch, while the host gets ahead of the GPU
};

static const double BATCH_US = 10e3, STEADY_SPREAD = 0.02, WIDTH_GOAL = 0.005, HOST_SHARE_MAX = 0.5;
// NOTE: under the power cap an H200's clock swings within seconds; a sure median of a few milliseconds is luck.
static const double SECONDS_MIN = 0.3;

/* The samples of one contestant. */
typedef struct samples {
    double *us;
    int n, capacity;
    int launches;     // of a sample
    double us_before; // of a sample: an estimate
    void *graph;      // NULL: events around a launch
    void *chain;      // the same launches, each waiting for the one before; NULL: graph is that already
} samples;

typedef struct race {
    const rotation *memory;
    ckl_device *device;
    const device_ops *ops;
    ckl_stream stream;
    contestant *contestants;
    int count;
    int set;             // that the next launch uses
    double pass_us;      // of a pass, one sample of every contestant: an estimate
    double pass_host_us; // the same of the caller's thread
    double overwrite_us; // of overwriting the scratch memory: an estimate
    int rounds;          // of A B B A in a batch
    bool graphs;
    int graph_us;              // that the launches of a graph take, about
    int probes;                // of each contestant's time
    samples *samples;          // of each contestant
    device_event *begin, *end; // of each sample of a batch
    gpu_state gpu;
} race;

static void keep(samples *s, double us)
{
    if (s->n == s->capacity) {
        s->capacity = 2 * s->capacity + 64;
        s->us = heap_resize(s->us, (size_t)s->capacity, sizeof *s->us);
    }
    s->us[s->n++] = us;
}

static ckl_status launch_next(race *r, int who)
{
    const contestant *c = &r->contestants[who];
    const operand_set *set = &r->memory->sets[r->set];
    r->set = (r->set + 1) % r->memory->count;
    return c->run(c->self, set->pointer, r->stream);
}

/* One sample without its events. */
static ckl_status work(race *r, int who)
{
    if (r->samples[who].graph)
        return r->ops->graph_launch(r->device, r->samples[who].graph, r->stream);
    return launch_next(r, who);
}

static ckl_status overwrite(race *r)
{
    return r->ops->fill(r->device, r->memory->scratch, 0, r->memory->scratch_bytes, r->stream);
}

static ckl_status enqueue_sample(race *r, int who, int place)
{
    if (r->memory->flush)
        TRY(overwrite(r));
    TRY(r->ops->event_record(r->device, r->begin[place], r->stream));
    TRY(work(r, who));
    return r->ops->event_record(r->device, r->end[place], r->stream);
}

/* Untimed work of about `us` microseconds, the contestants interleaved. */
static ckl_status enqueue_untimed(race *r, double us)
{
    double each = r->pass_us / r->count;
    for (int i = 0; i * each < us; i++)
        TRY(work(r, i % r->count));
    return CKL_OK;
}

/*
 * Work before a batch that takes the GPU long and the host no time. The GPU must not catch up with the host before the
 * last sample, or the sample would include a wait. Where the host may be slower (Python enqueues torch's kernels) it
 * gets all the time that it needs.
 */
static ckl_status enqueue_lead_in(race *r, int passes)
{
    bool slow = r->pass_host_us > HOST_SHARE_MAX * r->pass_us;
    double us = LEAD_IN_US + (slow ? passes * r->pass_host_us : 0);
    for (double queued = 0; queued < us; queued += r->overwrite_us)
        TRY(overwrite(r));
    return r->memory->count == 1 ? enqueue_untimed(r, r->pass_us) : CKL_OK; // a hot set is to be in L2 again
}

/* Who runs at a place of the order A B C C B A A B C ... */
static int who_runs(const race *r, int place)
{
    int at = place % (2 * r->count);
    return at < r->count ? at : 2 * r->count - 1 - at;
}

static ckl_status run_batch(race *r)
{
    int places = r->rounds * 2 * r->count;
    TRY(enqueue_lead_in(r, 2 * r->rounds));
    for (int i = 0; i < places; i++)
        TRY(enqueue_sample(r, who_runs(r, i), i));
    gpu_read(r->device, &r->gpu);
    for (int i = 0; i < places; i++) {
        double us;
        TRY(r->ops->event_elapsed_us(r->device, r->begin[i], r->end[i], &us));
        samples *s = &r->samples[who_runs(r, i)];
        keep(s, us / s->launches);
    }
    return CKL_OK;
}

/* Estimates the time of a sample on the GPU, behind other work, and on the host; the first launches may load code. */
static ckl_status probe(race *r, int who, int probes, double *us, double *host_us)
{
    *us = *host_us = INFINITY;
    for (int i = 0; i < probes; i++) {
        double now;
        TRY(work(r, who));
        double begin = clock_seconds();
        TRY(enqueue_sample(r, who, 0));
        *host_us = fmin(*host_us, (clock_seconds() - begin) * 1e6);
        TRY(r->ops->event_elapsed_us(r->device, r->begin[0], r->end[0], &now));
        *us = fmin(*us, now);
    }
    *us = fmax(*us, 1);
    return CKL_OK;
}

/* Such that every set is used equally often. */
static int launches_of_graph(const race *r, double us)
{
    int64_t launches = min_i64(GRAPH_LAUNCHES, (int64_t)ceil(r->graph_us / us));
    return (int)round_up(launches, r->memory->count);
}

static void drop_graph(race *r, void **graph)
{
    if (*graph)
        r->ops->graph_destroy(r->device, *graph);
    *graph = NULL;
}

/* A graph of as many launches as a sample has. */
static ckl_status capture(race *r, int who, void **graph)
{
    ckl_status status = CKL_OK;
    r->set = 0;
    TRY(r->ops->graph_begin(r->device, r->stream));
    for (int i = 0; i < r->samples[who].launches && status == CKL_OK; i++)
        status = launch_next(r, who);
    ckl_status ended = r->ops->graph_end(r->device, r->stream, graph);
    return status == CKL_OK ? ended : status;
}

/* Contestants whose launches never start early need no second graph. */
static ckl_status capture_chain(race *r, int who)
{
    if (r->contestants[who].chained || !r->ops->allow_overlap)
        return CKL_OK;
    r->ops->allow_overlap(r->device, false);
    ckl_status status = capture(r, who, &r->samples[who].chain);
    r->ops->allow_overlap(r->device, true);
    return status;
}

/* Estimates what a sample of each contestant takes; the shortest one. */
static ckl_status probe_all(race *r, int probes, double *shortest)
{
    *shortest = INFINITY;
    r->pass_us = r->pass_host_us = 0;
    for (int i = 0; i < r->count; i++) {
        double host_us, *us = &r->samples[i].us_before;
        TRY(probe(r, i, probes, us, &host_us));
        r->pass_us += *us;
        r->pass_host_us += host_us;
        *shortest = fmin(*shortest, *us);
    }
    return CKL_OK;
}

static ckl_status probe_overwrite(race *r)
{
    r->overwrite_us = INFINITY;
    for (int i = 0; i < PROBES; i++) {
        double now;
        TRY(r->ops->event_record(r->device, r->begin[0], r->stream));
        TRY(overwrite(r));
        TRY(r->ops->event_record(r->device, r->end[0], r->stream));
        TRY(r->ops->event_elapsed_us(r->device, r->begin[0], r->end[0], &now));
        r->overwrite_us = fmin(r->overwrite_us, now);
    }
    r->overwrite_us = fmax(r->overwrite_us, 1);
    return CKL_OK;
}

static void size_batch(race *r)
{
    double rounds = fmin(BATCH_US / (2 * r->pass_us), BATCH_SAMPLES_MAX / (2.0 * r->count));
    r->rounds = (int)fmax(rounds, 1);
}

/* Captures all graphs before the first sample: meanwhile the GPU rests, and cools. */
static ckl_status capture_all(race *r, bool chains)
{
    double unused;
    for (int i = 0; i < r->count; i++)
        TRY(capture(r, i, &r->samples[i].graph));
    for (int i = 0; i < r->count && chains; i++)
        TRY(capture_chain(r, i));
    TRY(probe_all(r, PROBES_OF_GRAPHS, &unused));
    size_batch(r);
    return CKL_OK;
}

/* Decides how samples are taken and how many make a batch. */
static ckl_status prepare(race *r, bool chains)
{
    double shortest;
    for (int i = 0; i < r->count; i++)
        r->samples[i].launches = 1;
    TRY(probe_overwrite(r));
    TRY(probe_all(r, r->probes, &shortest));
    size_batch(r);
    r->graphs = shortest < MEASURE_GRAPH_BELOW_US;
    for (int i = 0; i < r->count && r->graphs; i++)
        r->samples[i].launches = launches_of_graph(r, r->samples[i].us_before);
    return r->graphs ? capture_all(r, chains) : CKL_OK;
}

/*
 * The clock has settled when a few readings in a row are alike and nothing keeps it down: after a heavy row it is low
 * for a light one. Without NVML the time alone counts.
 */
static ckl_status warm_up(race *r, double seconds_max)
{
    double begin = clock_seconds(), recent[STEADY_READINGS] = { 0 };
    double between = fmin(GPU_READING_SECONDS, seconds_max / WARM_READINGS);
    bool held = false;
    if (seconds_max <= 0)
        return CKL_OK;
    TRY(enqueue_untimed(r, fmin(WARM_LAUNCHES_MIN * r->pass_us / r->samples[0].launches, seconds_max * 1e6 / 4)));
    for (int readings = 0; clock_seconds() - begin < seconds_max;) {
        TRY(enqueue_untimed(r, fmin(2 * BATCH_US, between * 1e6)));
        if (clock_seconds() - begin > (readings + 1) * between)
            recent[readings++ % STEADY_READINGS] = gpu_clock_mhz(r->device, &held);
        TRY(ckl_stream_synchronize(r->device, r->stream));
        double low = recent[0], high = recent[0];
        for (int i = 1; i < STEADY_READINGS; i++) {
            low = fmin(low, recent[i]);
            high = fmax(high, recent[i]);
        }
        if (low > 0 && high - low <= STEADY_SPREAD * high && !held)
            break;
    }
    return ckl_stream_synchronize(r->device, r->stream);
}

static bool all_are_sure(race *r)
{
    bool sure = true;
    for (int i = 0; i < r->count; i++) {
        r->contestants[i].time_us = summarize(r->samples[i].us, r->samples[i].n);
        const summary *s = &r->contestants[i].time_us;
        sure = sure && s->n >= SAMPLES_MIN && s->half_width < WIDTH_GOAL;
    }
    return sure;
}

static int fewest_samples(const race *r)
{
    int fewest = r->samples[0].n;
    for (int i = 1; i < r->count; i++)
        fewest = r->samples[i].n < fewest ? r->samples[i].n : fewest;
    return fewest;
}

static ckl_status sample(race *r, const measure_limits *limits)
{
    double begin = clock_seconds();
    bool done = false;
    if (limits->rounds)
        r->rounds = (int)min_i64(r->rounds, limits->rounds);
    for (int rounds = 0; !done;) {
        TRY(run_batch(r));
        rounds += r->rounds;
        double seconds = clock_seconds() - begin;
        bool sure = all_are_sure(r) && seconds >= SECONDS_MIN, known = fewest_samples(r) >= SAMPLES_LEAST;
        bool late = seconds >= limits->seconds_max * (known ? 1 : OVERTIME);
        done = limits->rounds ? rounds >= limits->rounds : sure || late;
    }
    return CKL_OK;
}

/* A few more samples, of which only the medians are kept. */
static ckl_status sample_again(race *r, double *medians)
{
    for (int i = 0; i < r->count; i++)
        r->samples[i].n = 0;
    for (int rounds = 0; rounds < SECOND_ROUNDS; rounds += r->rounds) {
        r->rounds = (int)min_i64(r->rounds, SECOND_ROUNDS);
        TRY(run_batch(r));
    }
    for (int i = 0; i < r->count; i++)
        medians[i] = summarize(r->samples[i].us, r->samples[i].n).median;
    return CKL_OK;
}

/* A chain takes the place of the other graph, which is not needed any more. */
static ckl_status look_at_chains(race *r, double *medians)
{
    if (!r->ops->allow_overlap)
        return CKL_OK;
    for (int i = 0; i < r->count; i++) {
        samples *s = &r->samples[i];
        if (!s->chain)
            continue;
        drop_graph(r, &s->graph);
        s->graph = s->chain;
        s->chain = NULL;
        TRY(work(r, i)); // its first launch uploads it
    }
    return sample_again(r, medians);
}

static ckl_status look_at_events(race *r, double *medians)
{
    double unused;
    for (int i = 0; i < r->count; i++) {
        drop_graph(r, &r->samples[i].graph);
        r->samples[i].launches = 1;
    }
    TRY(probe_all(r, PROBES_OF_GRAPHS, &unused));
    size_batch(r);
    return sample_again(r, medians);
}

static ckl_status look_again(race *r)
{
    double *medians = heap_alloc((size_t)(2 * r->count), sizeof *medians), *of_events = medians + r->count;
    memset(medians, 0, (size_t)(2 * r->count) * sizeof *medians);
    ckl_status status = look_at_chains(r, medians);
    if (status == CKL_OK)
        status = look_at_events(r, of_events);
    for (int i = 0; i < r->count; i++) {
        r->contestants[i].chain_us = medians[i];
        r->contestants[i].event_us = of_events[i];
    }
    heap_free(medians);
    return status;
}

static ckl_status open_events(race *r)
{
    int count = (int)max_i64(BATCH_SAMPLES_MAX, 2 * r->count);
    r->begin = heap_alloc((size_t)count, sizeof *r->begin);
    r->end = heap_alloc((size_t)count, sizeof *r->end);
    r->samples = heap_alloc((size_t)r->count, sizeof *r->samples);
    for (int i = 0; i < count; i++) {
        TRY(r->ops->event_create(r->device, &r->begin[i]));
        TRY(r->ops->event_create(r->device, &r->end[i]));
    }
    return CKL_OK;
}

static void close_race(race *r)
{
    int count = (int)max_i64(BATCH_SAMPLES_MAX, 2 * r->count);
    for (int i = 0; i < count; i++) {
        if (r->begin[i])
            r->ops->event_destroy(r->device, r->begin[i]);
        if (r->end[i])
            r->ops->event_destroy(r->device, r->end[i]);
    }
    for (int i = 0; i < r->count; i++) {
        drop_graph(r, &r->samples[i].graph);
        drop_graph(r, &r->samples[i].chain);
        heap_free(r->samples[i].us);
    }
    heap_free(r->begin);
    heap_free(r->end);
    heap_free(r->samples);
}

ckl_status measure(const rotation *memory, ckl_stream stream, const measure_limits *limits, contestant *contestants,
                   int count, conditions *out)
{
    race r = { .memory = memory,
               .device = memory->device,
               .ops = memory->device->ops,
               .stream = stream,
               .contestants = contestants,
               .count = count,
               .graph_us = limits->brief ? GRAPH_BRIEF_US : GRAPH_US,
               .probes = limits->brief ? 1 : PROBES };
    conditions seen = { 0 };
    double clock = clock_seconds();
    ckl_status status = open_events(&r);
    if (status == CKL_OK)
        status = prepare(&r, limits->twice);
    seen.prepare_s = clock_lap(&clock);
    if (status == CKL_OK)
        status = warm_up(&r, limits->warm_seconds_max);
    seen.warm_s = clock_lap(&clock);
    if (status == CKL_OK)
        status = sample(&r, limits);
    seen.sample_s = clock_lap(&clock);
    seen.launches = r.samples[0].launches;
    seen.graphs = r.graphs;
    seen.gpu = r.gpu;
    if (status == CKL_OK && limits->twice && r.graphs)
        status = look_again(&r);
    seen.again_s = clock_lap(&clock);
    *out = seen;
    ckl_status idle = ckl_stream_synchronize(r.device, stream); // nothing may still run on memory that the caller frees
    close_race(&r);
    return status == CKL_OK ? idle : status;
}
