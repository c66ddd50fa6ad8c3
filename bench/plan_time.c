/* plan_time.c - the stages of a plan one by one, then a plan as a user makes it. */
#include "bench/plan_time.h"

#include <math.h>

#include "base/math.h"
#include "bench/statistics.h"
#include "lab/clock.h"

enum {
    PLAN_SAMPLES = 9,
    RUNS_MAX = 200, // the driver queues about a thousand launches before callers wait
    RUNS_MIN = 10,
    RUNS_US = 5000 // of the GPU, which has to end them
};

/* Milliseconds since *since, which moves to now. */
static double lap_ms(double *since)
{
    double now = clock_seconds(), ms = (now - *since) * 1e3;
    *since = now;
    return ms;
}

static ckl_status time_kernel(const test_case *c, ckl_device *device, const implementation *impl, const void *config,
                              int number, plan_time *out)
{
    ir_kernel *kernel;
    device_kernel *loaded;
    text ptx = { 0 };
    double clock = clock_seconds();
    TRY(plan_describe(c->test->op, impl, config, number, plan_target(&device->info), &kernel));
    out->describe_ms += lap_ms(&clock);
    ckl_status status = ir_print_ptx(kernel, &ptx);
    out->print_ms += lap_ms(&clock);
    text_free(&ptx);
    clock = clock_seconds();
    if (status == CKL_OK)
        status = device->ops->load(device, kernel, &loaded);
    out->load_ms += lap_ms(&clock);
    if (status == CKL_OK)
        device->ops->unload(device, loaded);
    ir_kernel_free(kernel);
    return status;
}

static ckl_status time_stages(const test_case *c, ckl_device *device, arena *memory, plan_time *out)
{
    const implementation *impl;
    void *config;
    double clock = clock_seconds();
    TRY(case_choose(c, &device->info, memory, &impl, &config));
    out->choose_ms = lap_ms(&clock);
    for (int number = 0; number < plan_kernels(c->test->op, impl, config); number++)
        TRY(time_kernel(c, device, impl, config, number, out));
    if (!device->info.emulated)
        out->load_ms -= out->print_ms; // loading prints once more
    return CKL_OK;
}

ckl_status plan_time_again(const check *k, double kernel_us, double *plan_us, double *run_us)
{
    double us[PLAN_SAMPLES];
    const int64_t runs = max_i64(RUNS_MIN, min_i64(RUNS_MAX, (int64_t)(RUNS_US / fmax(kernel_us, 1))));
    for (int i = 0; i < PLAN_SAMPLES; i++) {
        ckl_plan *plan;
        double clock = clock_seconds();
        TRY(case_plan(k->c, k->device, &plan));
        us[i] = lap_ms(&clock) * 1e3;
        ckl_plan_free(plan);
    }
    *plan_us = summarize(us, PLAN_SAMPLES).median;
    double clock = clock_seconds();
    for (int i = 0; i < runs; i++)
        TRY(check_enqueue(k));
    *run_us = lap_ms(&clock) * 1e3 / (double)runs;
    return ckl_stream_synchronize(k->device, k->stream);
}

static ckl_status time_warm(const test_case *c, ckl_device *device, plan_time *out)
{
    check k;
    ckl_status status = check_open(c, device, NULL, &k);
    if (status == CKL_OK)
        status = check_enqueue(&k);
    if (status == CKL_OK)
        status = ckl_stream_synchronize(device, k.stream);
    if (status == CKL_OK)
        status = plan_time_again(&k, 0, &out->second_us, &out->run_us);
    check_close(&k);
    return status;
}

ckl_status plan_time_measure(const test_case *c, ckl_device *device, plan_time *out)
{
    arena memory = { 0 };
    ckl_plan *plan = NULL;
    *out = (plan_time){ 0 };
    ckl_status status = time_stages(c, device, &memory, out);
    arena_clear(&memory);
    double clock = clock_seconds();
    if (status == CKL_OK)
        status = case_plan(c, device, &plan);
    out->first_ms = lap_ms(&clock);
    if (status == CKL_OK && !device->info.emulated)
        status = time_warm(c, device, out);
    ckl_plan_free(plan);
    return status;
}
