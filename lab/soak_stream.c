/* soak_stream.c - a problem in a soak: taken, run in rounds over poison, compared bit for bit, given back. */
#include "lab/soak_stream.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "lab/clock.h"
#include "base/random.h"
#include "lab/compare.h"

enum { ROUNDS_MAX = 16, GRAPH_ONE_IN = 2, FIRST_POISON = 0xff };
enum { BURST_MAX_EMULATED = 4, BURST_MAX_GPU = 32 }; // runs of a round: on a GPU streams should overlap

/*
 * Problems with long runs have fewer of them. NOTE: a kernel of a thread a row, attention's naive one of 164 rows and
 * 2101 keys of d=640, may take a second of a GPU; a graph of 27 such runs was taken for a kernel that never ends.
 */
static const double ROUND_SECONDS_MAX = 0.25, PROBLEM_SECONDS_MAX = 2;

/* Of a problem: the emulator runs millions of operations a second, a GPU is to be kept busy for microseconds. */
static const random_problem_limits emulated_limits = { .flops = 2e6, .bytes = 1 << 20 };
static const random_problem_limits gpu_limits = { .flops = 2e9, .bytes = 64 << 20 };

/* Stages in which its thread does nothing for it. */
static const char enqueued[] = "enqueued", between_rounds[] = "between two rounds";

static void begin_stage(soak_stream *s, const char *stage)
{
    double now = clock_seconds();
    __atomic_store(&s->since, &now, __ATOMIC_RELAXED);
    __atomic_store_n(&s->stage, stage, __ATOMIC_RELEASE);
}

const char *soak_stream_stage(const soak_stream *s)
{
    return __atomic_load_n(&s->stage, __ATOMIC_ACQUIRE);
}

double soak_stream_busy_seconds(const soak_stream *s)
{
    const char *stage = soak_stream_stage(s);
    double since;
    __atomic_load(&s->since, &since, __ATOMIC_RELAXED);
    return stage && stage != enqueued && stage != between_rounds ? clock_seconds() - since : 0;
}

static void note_status(soak_stream *s, ckl_status status)
{
    if (status == CKL_OK || *s->fault)
        return;
    snprintf(s->fault, sizeof s->fault, "%s: %.900s", ckl_status_name(status), ckl_error());
    s->lost = status == CKL_DEVICE_FAULT && !s->device->info.emulated; // a CUDA fault is for ever
}

static void note_result(soak_stream *s, const check_result *result)
{
    if (!result->passed && !*s->fault)
        snprintf(s->fault, sizeof s->fault, "%.1000s", result->fault);
}

void soak_stream_open(soak_stream *s, ckl_device *device)
{
    *s = (soak_stream){ .device = device };
    begin_stage(s, "making a stream");
    ckl_status status = ckl_stream_create(device, &s->stream);
    s->broken = status != CKL_OK;
    note_status(s, status);
    begin_stage(s, NULL);
}

/* After a fault some of its runs may still be under way. */
static void give_back(soak_stream *s)
{
    begin_stage(s, "waiting before its memory is given back");
    note_status(s, ckl_stream_synchronize(s->device, s->stream));
    begin_stage(s, "giving back");
    if (s->graph)
        s->device->ops->graph_destroy(s->device, s->graph);
    s->graph = NULL;
    check_close(&s->k);
    case_clear(&s->c);
    s->open = false;
    begin_stage(s, NULL);
}

void soak_stream_close(soak_stream *s)
{
    if (s->open)
        give_back(s);
    ckl_stream_destroy(s->device, s->stream);
    s->stream = NULL;
}

static void draw_line(soak_stream *s, const soak_options *options)
{
    text line = { 0 };
    random_problem(options->only, &s->device->info, random_next(&s->random),
                   s->device->info.emulated ? emulated_limits : gpu_limits, &line);
    snprintf(s->line, sizeof s->line, "%s", text_data(&line));
    text_free(&line);
}

/* check_run() in stages. */
static ckl_status run_first(soak_stream *s, check_result *result)
{
    begin_stage(s, "writing its operands");
    operand_images_poison(&s->k.images, FIRST_POISON);
    TRY(operand_set_write(s->device, &s->k.images, &s->k.set, OPERANDS_ALL, s->stream));
    begin_stage(s, "enqueueing its first run");
    double begin = clock_seconds();
    TRY(check_enqueue(&s->k));
    begin_stage(s, "waiting for its first run");
    TRY(ckl_stream_synchronize(s->device, s->stream));
    s->run_seconds = clock_seconds() - begin;
    begin_stage(s, "reading what its first run left");
    TRY(operand_set_read(s->device, &s->k.images, &s->k.set, OPERANDS_ALL, s->stream));
    begin_stage(s, "comparing its first run with the reference");
    check_compare(&s->k, result);
    return CKL_OK;
}

/* How many fit into the time; at least one, at most `max`. */
static int64_t count_within(double seconds, double each, int64_t max)
{
    return seconds < each ? 1 : seconds < each * (double)max ? (int64_t)(seconds / each) : max;
}

static ckl_status open_problem(soak_stream *s)
{
    begin_stage(s, "planning");
    TRY(case_parse(s->line, &s->c));
    TRY(check_open(&s->c, s->device, s->stream, &s->k));
    snprintf(s->plan, sizeof s->plan, "%s", ckl_plan_text(s->k.plan));
    return CKL_OK;
}

void soak_stream_take(soak_stream *s, const soak_options *options, int64_t number)
{
    s->number = number;
    s->random = random_at(options->seed, (uint64_t)number);
    s->run_seconds = 0;
    s->burst = 1;
    s->by_graph = false;
    *s->plan = '\0';
    draw_line(s, options);
    check_result result = { 0 };
    s->open = true;
    ckl_status status = open_problem(s);
    if (status == CKL_OK)
        status = run_first(s, &result);
    if (status == CKL_INVALID || status == CKL_UNSUPPORTED) { // what a desc alone does not tell
        s->done.refused++;
        give_back(s);
        return;
    }
    note_status(s, status);
    if (status == CKL_OK)
        note_result(s, &result);
    s->done.problems++;
    s->done.runs++;
    s->digest = operand_images_digest(&s->k.images);
    s->rounds = 1 + random_below(&s->random, count_within(PROBLEM_SECONDS_MAX, s->run_seconds, ROUNDS_MAX));
    begin_stage(s, between_rounds);
    if (*s->fault)
        give_back(s);
}

/* An operand that is read and written makes each run depend on the one before. */
static bool may_repeat(const soak_stream *s)
{
    for (int i = 0; i < s->k.images.count; i++)
        if (s->k.images.host[i] && s->k.images.each[i].info.role == OPERAND_IN_OUT)
            return false;
    return true;
}

static ckl_status enqueue_runs(const soak_stream *s, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        TRY(check_enqueue(&s->k));
    return CKL_OK;
}

/* The graph of this problem: captured once, launched in many rounds. */
static ckl_status capture(soak_stream *s)
{
    const device_ops *ops = s->device->ops;
    TRY(ops->graph_begin(s->device, s->stream));
    ckl_status status = enqueue_runs(s, s->burst), ended = ops->graph_end(s->device, s->stream, &s->graph);
    s->graph_runs = s->burst;
    return status ? status : ended;
}

static ckl_status enqueue(soak_stream *s)
{
    begin_stage(s, "writing its operands");
    operand_images_poison(&s->k.images, (unsigned char)random_next(&s->random));
    TRY(operand_set_write(s->device, &s->k.images, &s->k.set, OPERANDS_ALL, s->stream));
    begin_stage(s, s->by_graph ? "enqueueing a graph" : "enqueueing runs");
    if (!s->by_graph)
        return enqueue_runs(s, s->burst);
    if (!s->graph)
        TRY(capture(s));
    s->burst = s->graph_runs;
    return s->device->ops->graph_launch(s->device, s->graph, s->stream);
}

void soak_stream_enqueue(soak_stream *s)
{
    int64_t burst_max =
        count_within(ROUND_SECONDS_MAX, s->run_seconds, s->device->info.emulated ? BURST_MAX_EMULATED : BURST_MAX_GPU);
    s->burst = may_repeat(s) ? 1 + random_below(&s->random, burst_max) : 1;
    s->by_graph = s->device->ops->graph_begin && random_below(&s->random, GRAPH_ONE_IN) == 0;
    note_status(s, enqueue(s));
    begin_stage(s, enqueued);
}

/* Checks what a round left: the first run's bits, and nothing else changed. */
static void judge(soak_stream *s)
{
    check_result result = { .passed = true };
    for (int i = 0; i < s->k.images.count; i++) {
        const operand_image *o = &s->k.images.each[i];
        if (s->k.images.host[i])
            result.passed &= o->info.role == OPERAND_IN ? compare_untouched(o, &result) : compare_padding(o, &result);
    }
    if (operand_images_digest(&s->k.images) != s->digest && !*result.fault) {
        result.passed = false;
        snprintf(result.fault, sizeof result.fault,
                 "after %" PRId64 " runs%s the bits are not those of the first run, which the reference admitted",
                 s->burst, s->by_graph ? " by a graph" : "");
    }
    note_result(s, &result);
}

void soak_stream_settle(soak_stream *s)
{
    begin_stage(s, s->by_graph ? "waiting for a graph" : "waiting for runs");
    ckl_status status = *s->fault ? CKL_OK : ckl_stream_synchronize(s->device, s->stream);
    begin_stage(s, "reading and judging what is left");
    if (status == CKL_OK && !*s->fault)
        status = operand_set_read(s->device, &s->k.images, &s->k.set, OPERANDS_ALL, s->stream);
    note_status(s, status);
    if (!*s->fault)
        judge(s);
    s->done.rounds++;
    s->done.runs += s->burst;
    s->done.graphs += s->by_graph ? s->burst : 0;
    begin_stage(s, between_rounds);
    if (*s->fault || --s->rounds == 0)
        give_back(s);
}
