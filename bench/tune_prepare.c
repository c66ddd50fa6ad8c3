/* tune_prepare.c - a worker that takes candidates as far as the device: described, assembled, emulated, compiled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "bench/tune_parts.h"
#include "device/emulator/emulator.h"
#include "lab/assemble.h"
#include "lab/check.h"
#include "lab/planned.h"
#include "lab/small_problem.h"
#include "lab/worker.h"

/* One worker's devices. */
typedef struct preparing {
    const tune_work *work;
    ckl_device *planned, *emulator;
    ckl_device *device; // whose driver compiles; NULL on an emulated one
} preparing;

void tune_refuse(tune_reply *reply, tune_outcome outcome, const char *reason)
{
    reply->outcome = outcome;
    snprintf(reply->reason, sizeof reply->reason, "%s", reason);
}

/* Calls visit() with each kernel of the config, described for the device. */
static ckl_status each_kernel(const preparing *p, const test_case *c,
                              ckl_status (*visit)(const preparing *p, const ir_kernel *kernel))
{
    const implementation *impl;
    const operator_info *op = c->test->op;
    arena memory = { 0 };
    void *config;
    ckl_status status = case_choose(c, p->work->device, &memory, &impl, &config);
    for (int which = 0; status == CKL_OK && which < plan_kernels(op, impl, config); which++) {
        ir_kernel *kernel;
        status = plan_describe(op, impl, config, which, plan_target(p->work->device), &kernel);
        if (status != CKL_OK)
            break;
        status = visit(p, kernel);
        ir_kernel_free(kernel);
    }
    arena_clear(&memory);
    return status;
}

static ckl_status assemble(const preparing *p, const ir_kernel *kernel)
{
    (void)p;
    assembled result;
    TRY(assemble_kernel(kernel, &result));
    if (!result.good)
        FAIL(CKL_UNSUPPORTED, "%s", result.complaint);
    return CKL_OK;
}

/* The driver keeps what it compiles in its own cache, where the process that runs the kernel finds it. */
static ckl_status compile(const preparing *p, const ir_kernel *kernel)
{
    device_kernel *loaded;
    TRY(p->device->ops->load(p->device, kernel, &loaded));
    p->device->ops->unload(p->device, loaded);
    return CKL_OK;
}

/*
 * Is it right on a small problem? What cannot be made small, or does not fit the emulated GPU, is left to the device.
 */
static ckl_status emulate(const preparing *p, const char *config)
{
    test_case small;
    check k = { 0 };
    check_result result = { .passed = true };
    if (!small_problem(p->work->c, &p->emulator->info, config, &small))
        return CKL_OK;
    ckl_status status = check_open(&small, p->emulator, NULL, &k);
    if (status == CKL_OK)
        status = check_run(&k, &result);
    check_close(&k);
    case_clear(&small);
    if (status == CKL_OK && !result.passed)
        FAIL(CKL_INTERNAL, "%s", result.fault);
    return status == CKL_UNSUPPORTED ? CKL_OK : status;
}

static void describe(const preparing *p, const test_case *c, tune_reply *reply)
{
    if (planned_digest(p->planned, c, &reply->digest) != CKL_OK)
        tune_refuse(reply, TUNE_NOT_DESCRIBED, ckl_error());
}

static void build(const preparing *p, const test_case *c, const char *config, tune_reply *reply)
{
    if (assemble_tool() && each_kernel(p, c, assemble) != CKL_OK)
        tune_refuse(reply, TUNE_NOT_ASSEMBLED, ckl_error());
    else if (emulate(p, config) != CKL_OK)
        tune_refuse(reply, TUNE_WRONG_EMULATED, ckl_error());
    else if (p->device && each_kernel(p, c, compile) != CKL_OK)
        tune_refuse(reply, TUNE_NOT_COMPILED, ckl_error());
}

static ckl_status open_devices(preparing *p)
{
    const ckl_device_info *info = p->work->device;
    emulator_options options = emulator_options_default();
    options.threads = 1;
    TRY(planned_open(info, &p->planned));
    TRY(emulator_open_with(info->has_wgmma ? "h200" : info->has_tma ? "b200" : "a100", &options, &p->emulator));
    if (!info->emulated && p->work->options->open(p->work->options->device_id, &p->device) != CKL_OK)
        p->device = NULL; // a GPU that takes one process alone: the one that runs kernels compiles them, too
    return CKL_OK;
}

void tune_serve_preparing(int channel, void *user)
{
    preparing p = { .work = user };
    tune_request request;
    setenv("CKL_TUNED", "off", 1);
    omp_set_num_threads(1); // there are as many of these processes as cores
    ckl_status opened = open_devices(&p);
    while (worker_receive(channel, &request, sizeof request)) {
        tune_reply reply = { .outcome = TUNE_TIMED };
        test_case c = { 0 };
        ckl_status status = opened == CKL_OK ? case_copy(p.work->c, request.config[0], &c) : opened;
        if (status != CKL_OK)
            tune_refuse(&reply, TUNE_NOT_DESCRIBED, ckl_error());
        else if (request.job == JOB_DESCRIBE)
            describe(&p, &c, &reply);
        else
            build(&p, &c, request.config[0], &reply);
        case_clear(&c);
        worker_send(channel, &reply, sizeof reply);
    }
}
