/*
 * tune_trial.c - the worker that runs candidates on the device: right with three seeds, then timed against the plan's
 * choice.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "bench/entrant.h"
#include "bench/tune_parts.h"
#include "device/nvml.h"
#include "lab/check.h"
#include "lab/clock.h"
#include "lab/worker.h"

enum { SEEDS = 3, FIRST_LOOKS = 2 };

// A screening pass separates candidates that differ by some percent; the final one waits until medians are sure
// (measure.c).
static const double TRIAL_SECONDS = 0.03, FINAL_SECONDS = 2, FINAL_WARM_SECONDS = 1;
static const double LARGE_BYTES = 1 << 28;
static const double SLOW = 3; // times the plan's choice: not worth more than a first look

/* The problem on the device, with each of the seeds. */
typedef struct trials {
    const tune_work *work;
    ckl_device *device;
    ckl_stream stream;
    test_case cases[SEEDS];
    check checks[SEEDS];
    rotation memory;
    own_entrant choice; // the plan's: of checks[0]
    double choice_seconds;
} trials;

/* Opening */

/* The seeds differ in what they fill with, too, unless the line says it. */
static ckl_status open_check(trials *t, int i)
{
    static const int fills[SEEDS] = { FILL_UNIFORM, FILL_INTEGERS, FILL_HARD };
    check_result result;
    test_case *c = &t->cases[i];
    *c = *t->work->c;
    c->keys.seed += i;
    if (!c->fill_given)
        c->keys.fill = fills[i];
    TRY(check_open(c, t->device, t->stream, &t->checks[i]));
    t->checks[i].images.keep_references = true;
    TRY(check_run(&t->checks[i], &result));
    if (!result.passed)
        FAIL(CKL_INTERNAL, "tune: the plan's own choice is wrong with seed %" PRId64 ": %s", c->keys.seed,
             result.fault);
    return CKL_OK;
}

/* Seconds of the fastest of a few runs, seen from the host. */
static ckl_status first_look(const trials *t, const own_entrant *e, double *seconds)
{
    *seconds = INFINITY;
    contestant own = own_contestant(e);
    for (int i = 0; i < FIRST_LOOKS; i++) {
        double begin = clock_seconds();
        TRY(own.run(own.self, t->memory.sets[0].pointer, t->stream));
        TRY(ckl_stream_synchronize(t->device, t->stream));
        *seconds = fmin(*seconds, clock_seconds() - begin);
    }
    return CKL_OK;
}

static ckl_status open_device(trials *t)
{
    const tune_options *o = t->work->options;
    TRY(o->open(o->device_id, &t->device));
    if (!t->device->ops->event_create && o->measure == measure)
        FAIL(CKL_UNSUPPORTED,
             "tune: %s has no meaningful time: the emulator counts, it does not measure; run this on a machine with an "
             "NVIDIA GPU",
             t->device->info.id);
    return CKL_OK;
}

/* Operands, references and the plan's choice take seconds, in which others prepare the first candidates. */
static ckl_status open_problem(trials *t)
{
    TRY(ckl_stream_create(t->device, &t->stream));
    for (int i = 0; i < SEEDS; i++)
        TRY(open_check(t, i));
    TRY(rotation_create(&t->checks[0], false, &t->memory));
    t->choice = (own_entrant){ t->checks[0].c, t->checks[0].plan };
    return first_look(t, &t->choice, &t->choice_seconds);
}

/* Trials */

/* With the first of the seeds. CKL_OK also where a result is wrong: the reply says it. */
static ckl_status check_seeds(trials *t, const ckl_plan *plan, int seeds, tune_reply *reply)
{
    for (int i = 0; i < seeds && reply->outcome == TUNE_TIMED; i++) {
        check_result result;
        TRY(check_run_plan(&t->checks[i], plan, &result));
        if (!result.passed)
            tune_refuse(reply, TUNE_WRONG, result.fault);
    }
    return CKL_OK;
}

static ckl_status race(trials *t, const own_entrant *candidates, int count, const measure_limits *limits,
                       tune_reply *reply)
{
    contestant contestants[TUNE_FINALISTS_MAX + 1];
    conditions seen;
    for (int i = 0; i < count; i++)
        contestants[i] = own_contestant(&candidates[i]);
    contestants[count] = own_contestant(&t->choice);
    TRY(t->work->options->measure(&t->memory, t->stream, limits, contestants, count + 1, &seen));
    for (int i = 0; i <= count; i++)
        reply->time[i] = contestants[i].time_us;
    reply->graphs = seen.launches > 1;
    return CKL_OK;
}

/* Does comparing take the host longer than all else? Then only finalists are checked with all seeds. */
static bool is_large(const trials *t)
{
    return adapter_bytes(t->checks[0].c->test, t->checks[0].c->problem) > LARGE_BYTES;
}

static ckl_status run_candidate(trials *t, const own_entrant *e, tune_reply *reply)
{
    static const measure_limits BRIEFLY = { .seconds_max = TRIAL_SECONDS };
    double seconds;
    TRY(check_seeds(t, e->plan, is_large(t) ? 1 : SEEDS, reply));
    if (reply->outcome != TUNE_TIMED)
        return CKL_OK;
    TRY(first_look(t, e, &seconds));
    if (t->device->ops->event_create && seconds > SLOW * t->choice_seconds) { // an emulator's speed is not the GPU's
        char reason[TUNE_REASON_BYTES];
        snprintf(reason, sizeof reason, "a run takes some %.0f us of the host's clock, the plan's choice %.0f",
                 seconds * 1e6, t->choice_seconds * 1e6);
        tune_refuse(reply, TUNE_SLOW, reason);
        return CKL_OK;
    }
    return race(t, e, 1, &BRIEFLY, reply);
}

/* Checks again from the start: inputs are unchanged, and a repetition has the same bits. */
static ckl_status check_whole(trials *t, const ckl_plan *plan, tune_reply *reply)
{
    check *k = &t->checks[0];
    ckl_plan *own = k->plan;
    check_result result;
    k->plan = (ckl_plan *)(uintptr_t)plan;
    ckl_status status = check_run(k, &result);
    if (status == CKL_OK && result.passed)
        status = check_run_again(k, &result);
    k->plan = own;
    if (status == CKL_OK && !result.passed)
        tune_refuse(reply, TUNE_WRONG, result.fault);
    return status;
}

/* Right with all seeds, then timed together; the fastest is checked once more. */
static ckl_status run_final(trials *t, const own_entrant *candidates, int count, tune_reply *reply)
{
    static const measure_limits LONG = { .seconds_max = FINAL_SECONDS, .warm_seconds_max = FINAL_WARM_SECONDS };
    for (int i = 0; i < count; i++)
        TRY(check_seeds(t, candidates[i].plan, SEEDS, reply));
    if (reply->outcome != TUNE_TIMED)
        return CKL_OK;
    TRY(race(t, candidates, count, &LONG, reply));
    int fastest = 0;
    for (int i = 1; i < count; i++)
        if (reply->time[i].median < reply->time[fastest].median)
            fastest = i;
    return check_whole(t, candidates[fastest].plan, reply);
}

static void serve(trials *t, const tune_request *request, tune_reply *reply)
{
    test_case cases[TUNE_FINALISTS_MAX] = { 0 };
    ckl_plan *plans[TUNE_FINALISTS_MAX] = { 0 };
    own_entrant candidates[TUNE_FINALISTS_MAX];
    ckl_status status = CKL_OK;
    for (int i = 0; i < request->count && status == CKL_OK; i++) {
        status = case_copy(t->checks[0].c, request->config[i], &cases[i]);
        if (status == CKL_OK)
            status = case_plan(&cases[i], t->device, &plans[i]);
        if (status != CKL_OK)
            tune_refuse(reply, TUNE_NOT_COMPILED, ckl_error());
        candidates[i] = (own_entrant){ &cases[i], plans[i] };
    }
    if (status == CKL_OK) {
        status = request->job == JOB_FINAL ? run_final(t, candidates, request->count, reply)
                                           : run_candidate(t, candidates, reply);
        if (status != CKL_OK)
            tune_refuse(reply, TUNE_FAULTY, ckl_error());
    }
    for (int i = 0; i < request->count; i++) {
        ckl_plan_free(plans[i]);
        case_clear(&cases[i]);
    }
}

static void say_hello(const trials *t, int channel, ckl_status status)
{
    tune_hello hello = { .status = status };
    if (status != CKL_OK)
        snprintf(hello.sentence, sizeof hello.sentence, "%s", ckl_error());
    if (t->device)
        hello.device = t->device->info;
    if (!nvml_driver_version(hello.driver, sizeof hello.driver))
        snprintf(hello.driver, sizeof hello.driver, "unknown");
    worker_send(channel, &hello, sizeof hello);
}

void tune_serve_trials(int channel, void *user)
{
    trials t = { .work = user };
    ckl_status status = open_device(&t);
    say_hello(&t, channel, status);
    if (status == CKL_OK) {
        status = open_problem(&t);
        say_hello(&t, channel, status);
    }
    tune_request request;
    while (status == CKL_OK && worker_receive(channel, &request, sizeof request)) {
        tune_reply reply = { .outcome = TUNE_TIMED };
        serve(&t, &request, &reply);
        worker_send(channel, &reply, sizeof reply);
        if (reply.outcome == TUNE_FAULTY) // the context may be lost: a new process takes its place
            return;
    }
}
