/* plan.c - describing kernels, building plans and running them. */
#include "plan/plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "base/math.h"
#include "ir/build.h"
#include "plan/cache.h"
#include "plan/choose.h"
#include "plan/desc.h"
#include "plan/kernel_cache.h"

/* A plan and what only this file knows of it. */
typedef struct built_plan {
    ckl_plan plan; // first: a ckl_plan is cast back to this
    arena memory;
    kernel_set *kernels;
} built_plan;

static void print_choice(const operator_info *op, const implementation *impl, const void *config, text *out)
{
    text_printf(out, "%s %s%s", op->name, impl->name, impl->config.count ? " " : "");
    fields_print(impl->config, config, false, out);
}

ir_target plan_target(const ckl_device_info *device)
{
    return device->has_wgmma ? IR_SM90A : device->has_tma ? IR_SM90 : IR_SM80;
}

static int own_kernels(const implementation *impl, const void *config)
{
    if (impl->kernels_of)
        return impl->kernels_of(config);
    return !impl->describe ? 0 : impl->kernels ? impl->kernels : 1;
}

static bool wants(const plan_step *step, const implementation *impl, const void *config)
{
    return step && own_kernels(impl, config) > 0 && step->wanted(config);
}

int plan_kernels(const operator_info *op, const implementation *impl, const void *config)
{
    return own_kernels(impl, config) + wants(op->before, impl, config) + wants(op->after, impl, config);
}

const plan_step *plan_step_at(const operator_info *op, const implementation *impl, const void *config, int which)
{
    const int number = which - own_kernels(impl, config);
    return number < 0 ? NULL : number == 0 && wants(op->before, impl, config) ? op->before : op->after;
}

ckl_status plan_describe(const operator_info *op, const implementation *impl, const void *config, int which,
                         ir_target target, ir_kernel **kernel)
{
    char name[64];
    const plan_step *step = plan_step_at(op, impl, config, which);
    const char *shared = step ? step->name : which == 0 ? impl->first : NULL;
    snprintf(name, sizeof name, impl->kernels > 1 && !shared ? "%s_%s_%d" : "%s_%s", op->name,
             shared ? shared : impl->name, which);
    text note = { 0 };
    print_choice(op, impl, config, &note);

    ir_describe_begin(name, target);
    char *kept = ir_alloc(note.length + 1, 1);
    ir_current()->note = memcpy(kept, text_data(&note), note.length + 1);
    if (step)
        step->describe(config);
    else
        impl->describe(config, which);
    ir_kernel *described = NULL;
    ckl_status status = ir_describe_end(&described);
    if (status == CKL_OK) {
        ir_drop_unused_params(described);
        status = ir_verify(described);
    }
    if (status != CKL_OK) {
        status_fail(status, "%s: %s", text_data(&note), ckl_error());
        ir_kernel_free(described);
    } else
        *kernel = described;
    text_free(&note);
    return status;
}

/*
 * Waits for the end: the first run may come on any stream. The stream is one of its own, because the default one must
 * not be used while another is being captured.
 */
static ckl_status clear_workspace(ckl_plan *plan)
{
    const device_ops *ops = plan->device->ops;
    ckl_stream stream;
    TRY(ops->stream_create(plan->device, &stream));
    ckl_status status = ops->fill(plan->device, plan->workspace, 0, (size_t)plan->workspace_bytes, stream);
    if (status == CKL_OK)
        status = ops->synchronize(plan->device, stream);
    ops->stream_destroy(plan->device, stream);
    return status;
}

static const plan_step *step_of(const ckl_plan *plan, int kernel)
{
    return plan_step_at(plan->op, plan->impl, plan->config, kernel);
}

static ckl_status allocate_workspace(ckl_plan *plan)
{
    const device_ops *ops = plan->device->ops;
    plan->own_workspace_bytes = plan->impl->workspace_bytes ? plan->impl->workspace_bytes(plan) : 0;
    plan->workspace_bytes = plan->own_workspace_bytes;
    for (int i = own_kernels(plan->impl, plan->config); i < plan_kernels(plan->op, plan->impl, plan->config); i++)
        plan->workspace_bytes =
            round_up(plan->workspace_bytes, PLAN_WORKSPACE_ALIGNMENT) + step_of(plan, i)->workspace_bytes(plan);
    if (plan->workspace_bytes == 0)
        return CKL_OK;
    TRY(ops->alloc(plan->device, (size_t)plan->workspace_bytes, &plan->workspace));
    return clear_workspace(plan);
}

/* What a plan is to be built of. */
typedef struct plan_request {
    built_plan *built;
    const void *desc;
    const char *force;
    const tuned_table *table;
} plan_request;

/* The problem as a line of the store has it, and what it gets. */
static void log_choice(const ckl_plan *plan, const checked_desc *checked, const choice_made *made)
{
    text problem = { 0 }, origin = { 0 };
    plan_desc_print(plan->op, checked->desc, &problem);
    choose_print_origin(made, &origin);
    log_say("plan", "%s: %s%s%s", text_data(&problem), plan->text, origin.length ? ", tuned: " : "",
            text_data(&origin));
    text_free(&problem);
    text_free(&origin);
}

/* The part of building that needs only memory: desc, choice and text. */
static ckl_status settle(void *user)
{
    const plan_request *request = user;
    built_plan *built = request->built;
    ckl_plan *plan = &built->plan;
    choice_made made = { 0 };
    checked_desc *checked = NULL;
    TRY(plan_desc_checked(plan->op, request->desc, &built->memory, &checked));
    TRY(choose_config(&plan->device->info, plan->op, checked, request->force, request->table, &built->memory, &made));
    plan->impl = made.impl;
    plan->config = made.config;
    plan->desc = checked->view;
    plan->tensors = checked->tensors;
    plan->tensor_count = checked->tensor_count;

    text line = { 0 };
    print_choice(plan->op, plan->impl, plan->config, &line);
    plan->text = arena_text(&built->memory, text_data(&line));
    text_free(&line);
    if (log_wants("plan"))
        log_choice(plan, checked, &made);
    return CKL_OK;
}

static ckl_status settle_guarded(built_plan *built, const void *desc, const char *force)
{
    const tuned_table *table;
    TRY(tuned_table_of(built->plan.op, &table));
    ckl_status status = heap_guard(built->plan.op->name, settle, &(plan_request){ built, desc, force, table });
    if (status == CKL_NO_MEMORY)
        built->memory = (arena){ 0 }; // it is freed already
    return status;
}

/* Fills a plan; what it acquired is released by ckl_plan_free(), also after a failure. */
static ckl_status build(built_plan *built, const void *desc, const char *force)
{
    ckl_plan *plan = &built->plan;
    TRY(settle_guarded(built, desc, force));
    if (!plan->impl->describe)
        return CKL_OK;
    TRY(kernel_cache_get(plan->device, plan->op, plan->impl, plan->config, plan->text, true, &built->kernels));
    plan->kernels = kernel_cache_kernels(built->kernels);
    return allocate_workspace(plan);
}

ckl_status plan_build(ckl_device *device, const operator_info *op, const void *desc, const char *force, ckl_plan **plan)
{
    if (!device || !plan)
        FAIL(CKL_INVALID, "%s: %s is NULL", op->name, device ? "plan" : "device");
    built_plan *built = calloc(1, sizeof *built);
    if (!built)
        FAIL(CKL_NO_MEMORY, "%s: no memory for a plan", op->name);
    built->plan.device = device;
    built->plan.op = op;
    ckl_status status = build(built, desc, force);
    if (status == CKL_OK)
        *plan = &built->plan;
    else
        ckl_plan_free(&built->plan);
    return status;
}

ckl_status plan_warm(ckl_device *device, const operator_info *op, const void *desc, const char *force, bool wait,
                     bool *busy)
{
    built_plan built = { .plan = { .device = device, .op = op } };
    const ckl_plan *plan = &built.plan;
    ckl_status status = settle_guarded(&built, desc, force);
    bool described = status == CKL_OK && plan->impl->describe;
    if (described) // and never released
        status = kernel_cache_get(device, op, plan->impl, plan->config, plan->text, wait, &built.kernels);
    *busy = described && status == CKL_OK && !built.kernels;
    arena_clear(&built.memory);
    return status;
}

static ckl_status check_args(const ckl_plan *plan, const void *args)
{
    const operator_info *op = plan->op;
    if (op->workspace)
        TRY(plan_check_workspace(op->name, *(void *const *)((const char *)args + op->workspace)));
    TRY(plan_check_pointers(op->name, plan->tensors, plan->tensor_count, args));
    return op->check_args ? op->check_args(plan->desc, args) : CKL_OK;
}

/* The kernels of the implementation between the operator's steps. */
static ckl_status launch_all(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const operator_info *op = plan->op;
    const int own = own_kernels(plan->impl, plan->config), count = plan_kernels(op, plan->impl, plan->config);
    if (count == own)
        return plan->impl->launch(plan, args, stream);
    union {
        char bytes[PLAN_ARGS_BYTES_MAX];
        void *aligned;
    } copy;
    assert(op->args_bytes <= sizeof copy);
    memcpy(&copy, args, op->args_bytes);
    char *workspace = plan_workspace(plan, *(void *const *)((const char *)args + op->workspace));
    int64_t at = plan->own_workspace_bytes;
    bool launched = false;
    for (int i = own; i < count; i++) {
        const plan_step *step = step_of(plan, i);
        if (step == op->after && !launched) {
            TRY(plan->impl->launch(plan, &copy, stream));
            launched = true;
        }
        at = round_up(at, PLAN_WORKSPACE_ALIGNMENT);
        TRY(step->launch(plan, i, workspace + at, &copy, stream));
        at += step->workspace_bytes(plan);
    }
    return launched ? CKL_OK : plan->impl->launch(plan, &copy, stream);
}

ckl_status plan_run(const ckl_plan *plan, const operator_info *op, const void *args, ckl_stream stream)
{
    if (!plan || !args)
        FAIL(CKL_INVALID, "%s: %s is NULL", op->name, plan ? "args" : "plan");
    if (plan->op != op)
        FAIL(CKL_INVALID, "%s: plan is one of %s", op->name, plan->op->name);
    TRY(check_args(plan, args));
    return launch_all(plan, args, stream);
}

void ckl_plan_free(ckl_plan *plan)
{
    if (!plan)
        return;
    built_plan *built = (built_plan *)plan;
    if (plan->workspace)
        plan->device->ops->release(plan->device, plan->workspace);
    if (built->kernels)
        kernel_cache_release(built->kernels);
    arena_clear(&built->memory);
    free(built);
}

const char *ckl_plan_text(const ckl_plan *plan)
{
    if (plan)
        return plan->text;
    status_fail(CKL_INVALID, "plan_text: plan is NULL");
    return "";
}

int64_t ckl_plan_workspace_bytes(const ckl_plan *plan)
{
    if (plan)
        return plan->workspace_bytes;
    status_fail(CKL_INVALID, "plan_workspace_bytes: plan is NULL");
    return 0;
}

void plan_forget_device(ckl_device *device)
{
    plan_cache_forget(device);
    kernel_cache_forget(device);
}

bool plan_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    uintptr_t a_begin = (uintptr_t)a, b_begin = (uintptr_t)b;
    return a && b && a_bytes > 0 && b_bytes > 0 && a_begin < b_begin + (uintptr_t)b_bytes &&
           b_begin < a_begin + (uintptr_t)a_bytes;
}
