/* sweep.c - plans that differ in their config alone, on the same memory. */
#include "bench/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/heap.h"
#include "base/math.h"
#include "bench/entrant.h"

enum { CONFIGS_MAX = 512 };

static const double SECONDS_EACH = 0.03; // of sampling, that each config has at least

/* One row of the result: a config of ours or a variant of the peer. */
typedef struct trial {
    const char *label; // in the sweep's memory
    ckl_plan *plan;
    own_entrant own;
    peer_entrant peer;
    summary time_us;
} trial;

typedef struct sweep {
    test_case *c;
    const char *impl; // of configs that name none
    check k;          // its plan is lent by the trial under check
    rotation memory;
    trial trials[CONFIGS_MAX + PEER_FINALISTS + 1];
    int count;
    const peer *owner;
    peer_problem *problem;
} sweep;

static void report_skipped(const char *config, const char *why)
{
    printf("skipped  %s: %s\n", config, why);
}

/* Plans with a config; keeps the trial only if its result is right. */
static ckl_status try_config(const char *config, void *user)
{
    sweep *s = user;
    ckl_plan *plan = NULL;
    check_result result = { 0 };
    if (s->count == CONFIGS_MAX)
        FAIL(CKL_INVALID, "sweep: more than %d configs", CONFIGS_MAX);
    s->c->keys.impl = s->impl;
    TRY(case_config(s->c, config));
    if (case_plan(s->c, s->k.device, &plan) != CKL_OK) {
        report_skipped(config, ckl_error());
        return CKL_OK;
    }
    ckl_status status = check_run_plan(&s->k, plan, &result);
    if (status == CKL_OK && result.passed) {
        s->trials[s->count++] =
            (trial){ .label = arena_text(&s->c->memory, config), .plan = plan, .own = { s->c, plan } };
        return CKL_OK;
    }
    ckl_plan_free(plan);
    if (status == CKL_OK)
        report_skipped(config, result.fault);
    return status;
}

static ckl_status add_peer_variant(sweep *s, int variant)
{
    peer_entrant entrant = { s->owner, s->problem, variant };
    check_result result = { 0 };
    text label = { 0 };
    TRY(peer_check(&s->k, &entrant, &result));
    s->owner->describe(s->problem, variant, &label);
    if (result.passed)
        s->trials[s->count++] = (trial){ .label = arena_text(&s->c->memory, text_data(&label)), .peer = entrant };
    else
        report_skipped(text_data(&label), result.fault);
    text_free(&label);
    return CKL_OK;
}

static ckl_status add_peer(sweep *s, const race_options *options)
{
    peer_finalists chosen;
    s->owner = options->no_peer ? NULL : peer_of(s->c->test->op->name, options->only);
    if (!s->owner)
        return CKL_OK;
    ckl_status status = s->owner->find();
    if (status == CKL_OK)
        status = s->owner->prepare(s->c, s->k.device, s->k.set.pointer, &s->problem);
    if (status == CKL_UNSUPPORTED) {
        report_skipped(s->owner->name, ckl_error());
        return CKL_OK;
    }
    TRY(status);
    TRY(peer_choose_finalists(s->owner, s->problem, &s->memory, s->k.stream, options->limits.seconds_max, &chosen));
    for (int i = 0; i < chosen.count; i++)
        TRY(add_peer_variant(s, chosen.variants[i]));
    return CKL_OK;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const trial *)a)->time_us.median, y = ((const trial *)b)->time_us.median;
    return (x > y) - (x < y);
}

static void print_trials(sweep *s, const conditions *seen)
{
    qsort(s->trials, (size_t)s->count, sizeof s->trials[0], by_time);
    double flops = check_flops(&s->k), bytes = adapter_bytes(s->c->test, s->c->problem);
    printf("%10s %9s %9s  %-19s  config   (SM %.0f MHz, %.0f W)\n", "median us", "TFLOP/s", "GB/s", "[p20 - p80]",
           seen->gpu.clock_mhz, seen->gpu.power_w);
    for (int i = 0; i < s->count; i++) {
        const summary *t = &s->trials[i].time_us;
        char range[32];
        snprintf(range, sizeof range, "[%.2f - %.2f]", t->p20, t->p80);
        printf("%10.2f %9.1f %9.1f  %-19s  %s\n", t->median, flops / t->median / 1e6, bytes / t->median / 1e3, range,
               s->trials[i].label);
    }
}

static ckl_status race_trials(sweep *s, const race_options *options)
{
    contestant *contestants = heap_alloc((size_t)s->count, sizeof *contestants);
    for (int i = 0; i < s->count; i++)
        contestants[i] = s->trials[i].plan ? own_contestant(&s->trials[i].own) : peer_contestant(&s->trials[i].peer);
    measure_limits limits = options->limits;
    limits.seconds_max = fmax(limits.seconds_max, s->count * SECONDS_EACH);
    conditions seen;
    ckl_status status = measure(&s->memory, s->k.stream, &limits, contestants, s->count, &seen);
    for (int i = 0; i < s->count; i++)
        s->trials[i].time_us = contestants[i].time_us;
    heap_free(contestants);
    if (status == CKL_OK)
        print_trials(s, &seen);
    return status;
}

static ckl_status run(sweep *s, ckl_device *device, const race_options *options, const char *path)
{
    check_result first;
    TRY(check_open(s->c, device, options->stream, &s->k));
    s->impl = s->k.plan->impl->name;
    s->k.images.keep_references = true;
    TRY(check_run(&s->k, &first)); // also puts the inputs where the rotation copies them from
    TRY(rotation_create(&s->k, options->hot, &s->memory));
    TRY(suite_read(path, try_config, s));
    TRY(add_peer(s, options));
    if (s->count == 0)
        FAIL(CKL_UNSUPPORTED, "sweep: no config of %s can be measured", path);
    return race_trials(s, options);
}

ckl_status sweep_run(test_case *c, ckl_device *device, const race_options *options, const char *path)
{
    sweep *s = heap_alloc(1, sizeof *s);
    s->c = c;
    ckl_status status = run(s, device, options, path);
    for (int i = 0; i < s->count; i++)
        ckl_plan_free(s->trials[i].plan);
    if (s->problem)
        s->owner->release(s->problem);
    rotation_free(&s->memory);
    check_close(&s->k);
    heap_free(s);
    return status;
}
