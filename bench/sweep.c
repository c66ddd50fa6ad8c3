/* sweep.c - plans of one problem on the same memory: configs of a file, or all implementations of the operator. */
#include "bench/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/heap.h"
#include "base/math.h"
#include "bench/entrant.h"
#include "bench/limits.h"

enum { CONFIGS_MAX = 512 };

/* Of sampling: what each config has at least, and what implementations share. */
static const double SECONDS_EACH = 0.03, SECONDS_OF_LADDER = 3;

/* One row of the result: a config of ours or a variant of the peer. */
typedef struct trial {
    const char *label; // in the sweep's memory
    ckl_plan *plan;
    own_entrant own;
    peer_entrant peer;
    contestant measured;
} trial;

typedef struct sweep {
    test_case *c;
    const char *impl; // of configs that name none
    check k;
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

/* Plans with a config, or an implementation's name; keeps the trial only if its result is right. */
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
    double x = ((const trial *)a)->measured.time_us.median, y = ((const trial *)b)->measured.time_us.median;
    return (x > y) - (x < y);
}

static void print_trials(sweep *s, const conditions *seen)
{
    qsort(s->trials, (size_t)s->count, sizeof s->trials[0], by_time);
    double flops = check_flops(&s->k), bytes = adapter_bytes(s->c->test, s->c->problem);
    printf("%10s %9s %9s  %-19s  config   (SM %.0f MHz, %.0f W)\n", "median us", "TFLOP/s", "GB/s", "[p20 - p80]",
           seen->gpu.clock_mhz, seen->gpu.power_w);
    for (int i = 0; i < s->count; i++) {
        const summary *t = &s->trials[i].measured.time_us;
        char range[32];
        snprintf(range, sizeof range, "[%.2f - %.2f]", t->p20, t->p80);
        printf("%10.2f %9.1f %9.1f  %-19s  %s\n", t->median, flops / t->median / 1e6, bytes / t->median / 1e3, range,
               s->trials[i].label);
    }
}

static ckl_status race_trials(sweep *s, const race_options *options, double seconds_min, conditions *seen)
{
    contestant *contestants = heap_alloc((size_t)s->count, sizeof *contestants);
    for (int i = 0; i < s->count; i++)
        contestants[i] = s->trials[i].plan ? own_contestant(&s->trials[i].own) : peer_contestant(&s->trials[i].peer);
    measure_limits limits = options->limits;
    limits.seconds_max = fmax(limits.seconds_max, seconds_min);
    ckl_status status = measure(&s->memory, s->k.stream, &limits, contestants, s->count, seen);
    for (int i = 0; i < s->count; i++)
        s->trials[i].measured = contestants[i];
    heap_free(contestants);
    return status;
}

static ckl_status open_sweep(sweep *s, ckl_device *device, const race_options *options)
{
    check_result first;
    TRY(check_open(s->c, device, options->stream, &s->k));
    s->impl = s->k.plan->impl->name;
    s->k.images.keep_references = true;
    TRY(check_run(&s->k, &first)); // also puts the inputs where the rotation copies them from
    return rotation_create(&s->k, options->hot, &s->memory);
}

static void close_sweep(sweep *s)
{
    for (int i = 0; i < s->count; i++)
        ckl_plan_free(s->trials[i].plan);
    if (s->problem)
        s->owner->release(s->problem);
    rotation_free(&s->memory);
    check_close(&s->k);
    heap_free(s);
}

static ckl_status run_configs(sweep *s, ckl_device *device, const race_options *options, const char *path)
{
    conditions seen;
    TRY(open_sweep(s, device, options));
    TRY(suite_read(path, try_config, s));
    TRY(add_peer(s, options));
    if (s->count == 0)
        FAIL(CKL_UNSUPPORTED, "sweep: no config of %s can be measured", path);
    TRY(race_trials(s, options, s->count * SECONDS_EACH, &seen));
    print_trials(s, &seen);
    return CKL_OK;
}

ckl_status sweep_run(test_case *c, ckl_device *device, const race_options *options, const char *path)
{
    sweep *s = heap_alloc(1, sizeof *s);
    s->c = c;
    ckl_status status = run_configs(s, device, options, path);
    close_sweep(s);
    return status;
}

/* Ladders */

/* From the last of the operator's list to the first. */
static ckl_status try_implementations(sweep *s)
{
    const operator_info *op = s->c->test->op;
    int count = 0;
    while (op->implementations[count])
        count++;
    for (int i = count - 1; i >= 0; i--)
        TRY(try_config(op->implementations[i]->name, s));
    if (s->count == 0)
        FAIL(CKL_UNSUPPORTED, "ladder: no implementation of %s can be measured", op->name);
    return CKL_OK;
}

static void add_row(sweep *s, const trial *of, const race_options *options, const conditions *seen, results *out)
{
    result_row *row = results_add(out);
    s->c->keys.impl = of->label; // the line repeats it alone
    s->c->keys.config = "";
    race_describe(s->c, options, row);
    result_set(row->config, ckl_plan_text(of->plan));
    row->flops = check_flops(&s->k);
    race_note(&s->memory, seen, &of->measured, row);
    limits_apply(&out->header, row);
}

static void print_rungs(const result_row *rows, int count)
{
    printf("%10s %9s %9s  %-19s %9s %9s  plan   (SM %.0f MHz, %.0f W)\n", "median us", "TFLOP/s", "GB/s", "[p20 - p80]",
           "x before", "x first", rows->clock_mhz, rows->power_w);
    for (int i = 0; i < count; i++) {
        const result_row *row = &rows[i];
        char range[32];
        snprintf(range, sizeof range, "[%.2f - %.2f]", row->p20_us, row->p80_us);
        printf("%10.2f %9.1f %9.1f  %-19s %9.2f %9.2f  %s\n", row->median_us, row->tflops, row->gbs, range,
               rows[i ? i - 1 : 0].median_us / row->median_us, rows->median_us / row->median_us, row->config);
    }
}

static ckl_status run_ladder(sweep *s, ckl_device *device, const race_options *options, results *out)
{
    conditions seen;
    TRY(open_sweep(s, device, options));
    TRY(try_implementations(s));
    TRY(race_trials(s, options, SECONDS_OF_LADDER, &seen));
    for (int i = 0; i < s->count; i++)
        add_row(s, &s->trials[i], options, &seen, out);
    print_rungs(out->rows + out->row_count - s->count, s->count);
    return CKL_OK;
}

ckl_status ladder_run(test_case *c, ckl_device *device, const race_options *options, results *out)
{
    sweep *s = heap_alloc(1, sizeof *s);
    s->c = c;
    ckl_status status = run_ladder(s, device, options, out);
    close_sweep(s);
    return status;
}
