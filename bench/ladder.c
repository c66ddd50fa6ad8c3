/* ladder.c - the implementations of an operator from simplest to best, on the same memory. */
#include "bench/ladder.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/entrant.h"

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
} ladder;

/* Adds an implementation that takes the case; a wrong result keeps it off, and is said. */
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

static void print_rungs(const ladder *l, const contestant *contestants, const conditions *seen)
{
    double flops = l->c->test->flops(l->c->problem), bytes = l->c->test->bytes(l->c->problem);
    printf("%10s %9s %9s  %-19s %9s %9s  plan   (SM %.0f MHz, %.0f W)\n", "median us", "TFLOP/s", "GB/s", "[p20 - p80]",
           "x before", "x first", seen->gpu.clock_mhz, seen->gpu.power_w);
    for (int i = 0; i < l->count; i++) {
        const summary *t = &contestants[i].time_us;
        char range[32];
        snprintf(range, sizeof range, "[%.2f - %.2f]", t->p20, t->p80);
        printf("%10.2f %9.1f %9.1f  %-19s %9.2f %9.2f  %s\n", t->median, flops / t->median / 1e6,
               bytes / t->median / 1e3, range, contestants[i ? i - 1 : 0].time_us.median / t->median,
               contestants[0].time_us.median / t->median, ckl_plan_text(l->rungs[i].plan));
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
    print_rungs(l, contestants, &seen);
    return CKL_OK;
}

static ckl_status run(ladder *l, ckl_device *device, const race_options *options)
{
    check_result first;
    TRY(check_open(l->c, device, &l->k));
    l->k.images.keep_references = true;
    TRY(check_run(&l->k, &first)); // also puts the inputs where the rotation copies them from
    TRY(rotation_create(&l->k, options->hot, &l->memory));
    TRY(add_rungs(l));
    return race_rungs(l, options);
}

ckl_status ladder_run(test_case *c, ckl_device *device, const race_options *options)
{
    ladder *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    l->c = c;
    ckl_status status = run(l, device, options);
    for (int i = 0; i < l->count; i++)
        ckl_plan_free(l->rungs[i].plan);
    rotation_free(&l->memory);
    check_close(&l->k);
    free(l);
    return status;
}
