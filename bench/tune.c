/* tune.c - the search: generations of candidates through the gates, the best raced at the end. */
#include "bench/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/heap.h"
#include "base/math.h"
#include "bench/tune_crew.h"
#include "lab/clock.h"

enum { ELITE = 8 }; // candidates that may have children

typedef enum trial_state { STATE_NEW, STATE_BUSY, STATE_DESCRIBED, STATE_BUILT, STATE_DONE } trial_state;

/* A candidate in the gates; `record` is its line in the evidence. */
typedef struct trial {
    tune_candidate candidate;
    trial_state state;
    bool left; // the time was over before it was timed
    tune_outcome outcome;
    tune_trial record;
} trial;

typedef struct search {
    const test_case *c;
    const tune_options *options;
    tune_crew crew;
    tune_space space;
    tune_evidence evidence;
    text line;
    trial *trials;
    int count, done;
    double begin, opened; // when the device got its first candidate; 0: it has none yet
    tune_result *result;
} search;

/* Results of trials */

static double seconds_of(const search *s)
{
    return clock_seconds() - s->begin;
}

static bool is_late(const search *s)
{
    return s->options->seconds > 0 && s->opened > 0 && clock_seconds() - s->opened >= s->options->seconds;
}

/* Time relative to the plan's choice in the same race: races at different times compare by it. */
static double score(const trial *t)
{
    return t->state == STATE_DONE && !t->left && t->outcome == TUNE_TIMED ? t->record.median_us / t->record.choice_us
                                                                          : INFINITY;
}

static const trial *best_of(const search *s)
{
    const trial *best = NULL;
    for (const trial *t = s->trials; t < s->trials + s->count; t++)
        if (isfinite(score(t)) && (!best || score(t) < score(best)))
            best = t;
    return best;
}

static void show(const search *s)
{
    const trial *best = best_of(s);
    tune_progress p = { .done = s->done, .candidates = s->options->candidates, .seconds = seconds_of(s) };
    if (best) {
        p.best = best->candidate.config;
        p.best_us = best->record.median_us;
        p.choice_us = best->record.choice_us;
    }
    if (s->options->progress)
        s->options->progress(&p);
}

static void set_time(tune_trial *record, const summary *time, const summary *plans, bool graphs)
{
    result_set(record->timing, graphs ? "graphs" : "events");
    record->median_us = time->median;
    record->p20_us = time->p20;
    record->p80_us = time->p80;
    record->half_width = time->half_width;
    record->samples = time->n;
    record->choice_us = plans->median;
}

/* Ends a trial; writes it down unless it was known. */
static ckl_status finish(search *s, trial *t, tune_outcome outcome, const char *reason)
{
    t->state = STATE_DONE;
    t->outcome = outcome;
    s->done++;
    s->result->count[outcome]++;
    result_set(t->record.outcome, tune_outcome_names[outcome]);
    result_set(t->record.reason, reason);
    show(s);
    return tune_evidence_add(&s->evidence, &t->record);
}

/* Leaves a trial unwritten: the next search begins with it. */
static void leave(trial *t)
{
    t->state = STATE_DONE;
    t->left = true;
}

/* Gates */

static tune_outcome outcome_named(const char *name)
{
    int i = 0;
    while (i < TUNE_OUTCOME_COUNT - 1 && strcmp(tune_outcome_names[i], name) != 0)
        i++;
    return (tune_outcome)i;
}

/* Reuses what the evidence has on the same config and kernels. */
static bool reuse(search *s, trial *t)
{
    const tune_trial *known = tune_evidence_find(&s->evidence, t->record.config, t->record.digest);
    if (!known)
        return false;
    t->record = *known;
    t->outcome = outcome_named(known->outcome);
    t->state = STATE_DONE;
    s->done++;
    s->result->reused++;
    show(s);
    return true;
}

/* The first trial with the same kernels and launches; NULL if there is none. */
static const trial *twin_of(const search *s, const trial *t)
{
    for (const trial *other = s->trials; other < t; other++)
        if (*other->record.digest && strcmp(other->record.digest, t->record.digest) == 0)
            return other;
    return NULL;
}

/* After the first gate, in order, so that it does not matter which worker was faster. */
static ckl_status sort_out(search *s, trial *t)
{
    char reason[64];
    if (t->state != STATE_DESCRIBED)
        return CKL_OK;
    const trial *twin = twin_of(s, t);
    if (twin) {
        snprintf(reason, sizeof reason, "the kernels and launches of trial %d", (int)(twin - s->trials));
        return finish(s, t, TUNE_DUPLICATE, reason);
    }
    reuse(s, t);
    return CKL_OK;
}

static ckl_status take_answer(search *s, trial *t, bool runner, const tune_reply *reply, double seconds)
{
    bool described = !*t->record.digest;
    t->record.seconds += runner ? seconds : 0;
    if (reply->outcome != TUNE_TIMED)
        return finish(s, t, reply->outcome, reply->reason);
    if (runner) {
        set_time(&t->record, &reply->time[0], &reply->time[1], reply->graphs);
        return finish(s, t, TUNE_TIMED, "");
    }
    if (described)
        snprintf(t->record.digest, sizeof t->record.digest, "%016" PRIx64, reply->digest);
    t->state = described ? STATE_DESCRIBED : STATE_BUILT;
    return CKL_OK;
}

static void note_first(search *s)
{
    if (s->opened > 0)
        return;
    s->opened = clock_seconds();
    s->result->opening_seconds = seconds_of(s);
}

/* Gives every idle worker the first trial that waits for its step. `until`: the state in which trials are done. */
static void hand_out(search *s, int first, trial_state until)
{
    static const tune_job jobs[] = {
        [STATE_NEW] = JOB_DESCRIBE, [STATE_DESCRIBED] = JOB_BUILD, [STATE_BUILT] = JOB_TRIAL
    };
    for (int i = first; i < s->count; i++) {
        trial *t = &s->trials[i];
        if (t->state >= until || t->state == STATE_BUSY)
            continue;
        int member = tune_crew_idle(&s->crew, t->state == STATE_BUILT);
        if (member < 0)
            continue;
        if (is_late(s)) {
            leave(t);
            continue;
        }
        if (t->state == STATE_BUILT)
            note_first(s);
        tune_request request = { .job = jobs[t->state], .count = 1 };
        snprintf(request.config[0], TUNE_CONFIG_BYTES, "%s", t->candidate.config);
        t->state = STATE_BUSY;
        tune_crew_ask(&s->crew, member, i, &request);
    }
}

/* Works until nothing is in progress and nothing can be handed out. */
static ckl_status work(search *s, int first, trial_state until)
{
    for (;;) {
        int i;
        bool runner;
        double seconds;
        tune_reply reply;
        hand_out(s, first, until);
        TRY(tune_crew_wait(&s->crew, &i, &runner, &reply, &seconds));
        if (i == TUNE_NOBODY)
            return CKL_OK;
        if (i == TUNE_OPENED)
            continue;
        TRY(take_answer(s, &s->trials[i], runner, &reply, seconds));
    }
}

/* All trials from `first` on through the gates. */
static ckl_status try_all(search *s, int first)
{
    for (int i = first; i < s->count; i++)
        if (!s->trials[i].candidate.legal)
            TRY(finish(s, &s->trials[i], TUNE_ILLEGAL, s->trials[i].candidate.reason));
    TRY(work(s, first, STATE_DESCRIBED));
    for (int i = first; i < s->count; i++)
        TRY(sort_out(s, &s->trials[i]));
    return work(s, first, STATE_DONE);
}

/* Generations */

static void add_trial(search *s, const tune_candidate *candidate, int generation)
{
    trial *t = &s->trials[s->count];
    *t = (trial){ .candidate = *candidate };
    tune_trial *r = &t->record;
    result_set(r->line, text_data(&s->line));
    result_set(r->config, candidate->config);
    result_set(r->changed, candidate->changed);
    r->seed = (int64_t)s->options->seed;
    r->trial = s->count++;
    r->generation = generation;
    r->parent = candidate->parent;
}

/* The best so far, best first; returns how many. */
static int elite_of(const search *s, const trial *elite[ELITE])
{
    int count = 0;
    for (const trial *t = s->trials; t < s->trials + s->count; t++) {
        int at = count;
        if (!isfinite(score(t)))
            continue;
        for (; at > 0 && score(t) < score(elite[at - 1]); at--)
            if (at < ELITE)
                elite[at] = elite[at - 1];
        if (at < ELITE) {
            elite[at] = t;
            count = (int)min_i64(count + 1, ELITE);
        }
    }
    return count;
}

/* Adds `wanted` children of the best, each of a random one. */
static void add_children(search *s, int generation, int wanted)
{
    const trial *elite[ELITE];
    int parents = elite_of(s, elite);
    for (int i = 0; i < wanted && parents; i++) {
        tune_candidate child;
        const trial *parent = elite[random_below(&s->space.random, parents)];
        if (tune_child(&s->space, parent->candidate.config, (int)parent->record.trial, &child))
            add_trial(s, &child, generation);
    }
}

static ckl_status search_all(search *s)
{
    const tune_options *o = s->options;
    int first_count = (int)ceil_div(o->candidates, o->generations + 1), count;
    tune_candidate *first = heap_alloc((size_t)o->candidates, sizeof *first);
    s->trials = heap_alloc((size_t)o->candidates, sizeof *s->trials);
    ckl_status status = tune_first(&s->space, o->given, first_count, first, &count);
    for (int i = 0; status == CKL_OK && i < count; i++)
        add_trial(s, &first[i], 0);
    heap_free(first);
    TRY(status);
    result_set(s->result->choice, s->trials[0].candidate.config);
    TRY(try_all(s, 0));
    for (int generation = 1; generation <= o->generations && !is_late(s); generation++) {
        int begin = s->count;
        add_children(s, generation, (int)ceil_div(o->candidates - begin, o->generations + 1 - generation));
        TRY(try_all(s, begin));
    }
    return CKL_OK;
}

/* The end */

static int by_median(const void *a, const void *b)
{
    double x = ((const tune_trial *)a)->median_us, y = ((const tune_trial *)b)->median_us;
    return (x > y) - (x < y);
}

// Less is not kept: on an H200 the first time and the final one of the same config, relative to the plan's choice,
// differed by 0.9 % (1536^3) and 1.3 % (1280x5120x5120).
static const double GAIN_MIN = 0.01;

/* Is the final's interval below that of the plan's choice, and its median worth the change? */
static bool is_faster(const tune_trial *t, const summary *plans)
{
    return t->median_us * (1 + t->half_width) < plans->median * (1 - plans->half_width) &&
           t->median_us < plans->median * (1 - GAIN_MIN);
}

/* The best of all trials against the plan's choice, until their medians are sure. */
static ckl_status race_best(search *s)
{
    const trial *elite[ELITE];
    tune_request request = { .job = JOB_FINAL };
    tune_result *r = s->result;
    for (int i = 0, count = elite_of(s, elite); i < count && request.count < TUNE_FINALISTS_MAX; i++)
        if (elite[i] != s->trials) // which is the plan's choice
            snprintf(request.config[request.count++], TUNE_CONFIG_BYTES, "%s", elite[i]->candidate.config);
    if (!request.count)
        return CKL_OK;
    int unused;
    bool runner;
    double seconds;
    tune_reply reply;
    while (tune_crew_idle(&s->crew, true) < 0) // it crashed at the last trial, and opens the problem again
        TRY(tune_crew_wait(&s->crew, &unused, &runner, &reply, &seconds));
    tune_crew_ask(&s->crew, TUNE_RUNNER, 0, &request);
    TRY(tune_crew_wait(&s->crew, &unused, &runner, &reply, &seconds));
    if (reply.outcome != TUNE_TIMED)
        FAIL(CKL_INTERNAL, "tune: the last race: %s: %s", tune_outcome_names[reply.outcome], reply.reason);
    const summary *plans = &reply.time[request.count];
    for (int i = 0; i < request.count; i++) {
        tune_trial *t = &r->finals[r->final_count++];
        for (const trial *from = s->trials; from < s->trials + s->count; from++)
            if (strcmp(from->candidate.config, request.config[i]) == 0)
                *t = from->record;
        set_time(t, &reply.time[i], plans, reply.graphs);
        result_set(t->outcome, tune_outcome_names[TUNE_FINAL]);
        t->seconds = seconds / request.count;
        TRY(tune_evidence_add(&s->evidence, t));
    }
    qsort(r->finals, (size_t)r->final_count, sizeof *r->finals, by_median);
    r->won = is_faster(&r->finals[0], plans);
    return CKL_OK;
}

/* Changed alone, did the field ever change a kernel? 0: it was not changed alone, 1: never, 2: it did. */
static int effect_of(const search *s, const char *name)
{
    int effect = 0;
    for (const trial *t = s->trials; t < s->trials + s->count; t++) {
        if (t->candidate.parent < 0 || strcmp(t->candidate.changed, name) != 0 || !*t->record.digest)
            continue;
        bool same = strcmp(t->record.digest, s->trials[t->candidate.parent].record.digest) == 0;
        effect = (int)max_i64(effect, same ? 1 : 2);
    }
    return effect;
}

static void find_dead_fields(search *s)
{
    text names = { 0 };
    for (const trial *t = s->trials; t < s->trials + s->count; t++) {
        const char *name = t->candidate.changed;
        if (!*name || strchr(name, ' ') || effect_of(s, name) != 1)
            continue;
        bool told = false;
        for (const trial *before = s->trials; before < t; before++)
            told |= strcmp(before->candidate.changed, name) == 0;
        if (!told)
            text_printf(&names, "%s%s", names.length ? " " : "", name);
    }
    snprintf(s->result->dead_fields, sizeof s->result->dead_fields, "%s", text_data(&names));
    text_free(&names);
}

static void describe_run(const search *s, tune_header *h)
{
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    *h = (tune_header){ 0 };
    strftime(h->date, sizeof h->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    result_set(h->gpu, s->crew.device.name);
    result_set(h->driver, s->crew.driver);
    result_set(h->ckl_version, ckl_version());
    result_set(h->commit, s->options->commit ? s->options->commit : "");
    result_set(
        h->method,
        "interleaved with the plan's choice, cold L2, clocks not locked; graphs under 20 us, else events; medians");
}

static ckl_status run(search *s)
{
    tune_header header;
    TRY(tune_crew_open(s->c, s->options, &s->crew));
    s->result->device = s->crew.device;
    describe_run(s, &header);
    TRY(tune_evidence_open(s->options->evidence, &header, text_data(&s->line), &s->evidence));
    TRY(tune_space_open(s->c, &s->crew.device, s->options->seed, &s->space));
    TRY(search_all(s));
    find_dead_fields(s);
    return race_best(s);
}

ckl_status tune_run(const test_case *c, const tune_options *options, tune_result *result)
{
    tune_options all = *options;
    all.open = all.open ? all.open : ckl_device_open;
    all.measure = all.measure ? all.measure : measure;
    *result = (tune_result){ 0 };
    if (*c->keys.impl)
        FAIL(CKL_INVALID,
             "tune: impl= and config= say what the search is to find; --configs FILE has configs to begin with");
    search s = { .c = c, .options = &all, .begin = clock_seconds(), .result = result };
    case_print(c, &s.line);
    ckl_status status = run(&s);
    result->illegal = s.space.illegal;
    result->seconds = seconds_of(&s);
    tune_crew_close(&s.crew);
    tune_space_close(&s.space);
    tune_evidence_close(&s.evidence);
    text_free(&s.line);
    heap_free(s.trials);
    return status;
}
