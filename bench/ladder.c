/* ladder.c - the implementations of an operator from simplest to best, on the same memory. */
#include "bench/ladder.h"

#include <stdio.h>

#include "base/heap.h"
#include "bench/entrant.h"
#include "bench/limits.h"

enum { RUNGS_MAX = 16 };

static const double SECONDS_MIN = 3; // of sampling: many share it

typedef struct rung {
    ckl_plan *plan;
    own_entrant own;
} rung;

typedef struct ladder {
    test_case *c;
    check k; // its plan is lent by the rung under check
    rotation memory;
    rung rungs[RUNGS_MAX];
    int count;
    results *out;
} ladder;

/* Adds an implementation that takes the case; a wrong result is reported and keeps it off. */
static ckl_status add_rung(ladder *l, const implementation *impl)
{
    ckl_plan *own = l->k.plan, *plan = NULL;
    check_result result = { 0 };
    l->c->keys.impl = impl->name;
    l->c->keys.config = "";
    if (case_plan(l->c, l->k.device, &plan) != CKL_OK) {
        printf("skipped  %s: %s\n", impl->name, ckl_error());
        return CKL_OK;
    }
    l->k.plan = plan;
    ckl_status status = check_run(&l->k, &result);
    l->k.plan = own;
    if (status == CKL_OK && result.passed) {
        l->rungs[l->count++] = (rung){ plan, { l->c, plan } };
        return CKL_OK;
    }
    ckl_plan_free(plan);
    if (status == CKL_OK)
        printf("skipped  %s: %s\n", impl->name, result.fault);
    return status;
}

static ckl_status add_rungs(ladder *l)
{
    const implementation *const *impl = l->c->test->op->implementations;
    int count = 0;
    while (impl[count])
        count++;
    for (int i = count - 1; i >= 0 && l->count < RUNGS_MAX; i--)
        TRY(add_rung(l, impl[i]));
    if (l->count == 0)
        FAIL(CKL_UNSUPPORTED, "ladder: no implementation of %s can be measured", l->c->test->op->name);
    return CKL_OK;
}

/* The line that repeats a rung alone. */
static void describe_line(ladder *l, const rung *r, result_row *row)
{
    text line = { 0 };
    l->c->keys.impl = r->plan->impl->name;
    case_print(l->c, &line);
    result_set(row->line, text_data(&line));
    text_free(&line);
}

static void add_row(ladder *l, const rung *r, const summary *t, const conditions *seen)
{
    result_row *row = results_add(l->out);
    describe_line(l, r, row);
    result_set(row->op, l->c->test->op->name);
    result_set(row->config, ckl_plan_text(r->plan));
    result_set(row->method, seen->graphs ? "graphs" : "events");
    result_set(row->l2, l->memory.count > 1 ? "cold" : "hot");
    row->sets = l->memory.count;
    row->launches = seen->launches;
    row->median_us = t->median;
    row->p20_us = t->p20;
    row->p80_us = t->p80;
    row->half_width = t->half_width;
    row->samples = t->n;
    row->input_bits = race_input_bits(l->c);
    row->flops = check_flops(&l->k);
    row->bytes = adapter_bytes(l->c->test, l->c->problem);
    row->bytes_written = adapter_bytes_written(l->c->test, l->c->problem);
    row->tflops = row->flops / t->median / 1e6;
    row->gbs = row->bytes / t->median / 1e3;
    row->clock_mhz = seen->gpu.clock_mhz;
    row->power_w = seen->gpu.power_w;
    limits_apply(&l->out->header, row);
}

/* The rows of this ladder are the last ones. */
static void print_rungs(const ladder *l)
{
    const result_row *rows = l->out->rows + l->out->row_count - l->count;
    printf("%10s %9s %9s  %-19s %9s %9s  plan   (SM %.0f MHz, %.0f W)\n", "median us", "TFLOP/s", "GB/s", "[p20 - p80]",
           "x before", "x first", rows->clock_mhz, rows->power_w);
    for (int i = 0; i < l->count; i++) {
        const result_row *row = &rows[i];
        char range[32];
        snprintf(range, sizeof range, "[%.2f - %.2f]", row->p20_us, row->p80_us);
        printf("%10.2f %9.1f %9.1f  %-19s %9.2f %9.2f  %s\n", row->median_us, row->tflops, row->gbs, range,
               rows[i ? i - 1 : 0].median_us / row->median_us, rows[0].median_us / row->median_us, row->config);
    }
}

static ckl_status race_rungs(ladder *l, const race_options *options)
{
    contestant contestants[RUNGS_MAX];
    conditions seen;
    for (int i = 0; i < l->count; i++)
        contestants[i] = own_contestant(&l->rungs[i].own);
    measure_limits limits = options->limits;
    if (limits.seconds_max < SECONDS_MIN)
        limits.seconds_max = SECONDS_MIN;
    TRY(measure(&l->memory, l->k.stream, &limits, contestants, l->count, &seen));
    for (int i = 0; i < l->count; i++)
        add_row(l, &l->rungs[i], &contestants[i].time_us, &seen);
    print_rungs(l);
    return CKL_OK;
}

static ckl_status run(ladder *l, ckl_device *device, const race_options *options)
{
    check_result first;
    TRY(check_open(l->c, device, options->stream, &l->k));
    l->k.images.keep_references = true;
    TRY(check_run(&l->k, &first)); // also puts the inputs where the rotation copies them from
    TRY(rotation_create(&l->k, options->hot, &l->memory));
    TRY(add_rungs(l));
    return race_rungs(l, options);
}

ckl_status ladder_run(test_case *c, ckl_device *device, const race_options *options, results *out)
{
    ladder *l = heap_alloc(1, sizeof *l);
    l->c = c;
    l->out = out;
    ckl_status status = run(l, device, options);
    for (int i = 0; i < l->count; i++)
        ckl_plan_free(l->rungs[i].plan);
    rotation_free(&l->memory);
    check_close(&l->k);
    heap_free(l);
    return status;
}
