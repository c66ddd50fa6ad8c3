/* plan.c - choosing an implementation and its config, building the plan, running it. */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "base/problem.h"
#include "ir/build.h"
#include "plan/cache.h"
#include "plan/desc.h"
#include "plan/kernel_cache.h"
#include "plan/tuned.h"

/* A plan and what only this file knows of it. */
typedef struct built_plan {
    ckl_plan plan; // first: a ckl_plan is cast back to this
    arena memory;
    kernel_set *kernels;
} built_plan;

/* What a caller forces: an implementation by name and some fields of its config. */
typedef problem_line choice_line;

const implementation *plan_find_implementation(const operator_info *op, const char *name)
{
    for (const implementation *const *impl = op->implementations; *impl; impl++)
        if (strcmp((*impl)->name, name) == 0)
            return *impl;
    return NULL;
}

static ckl_status parse_force(const operator_info *op, const char *force, arena *memory, choice_line *line)
{
    *line = (choice_line){ 0 };
    if (!force || !*force)
        return CKL_OK;
    TRY(problem_split(memory, force, line));
    if (line->op && plan_find_implementation(op, line->op))
        return CKL_OK;
    const char *names[32];
    int count = 0;
    for (const implementation *const *impl = op->implementations; *impl && count < COUNT_OF(names); impl++)
        names[count++] = (*impl)->name;
    text list = { 0 };
    for (int i = 0; i < count; i++)
        text_printf(&list, " %s", names[i]);
    const char *near = nearest_word(line->op ? line->op : "", names, count);
    status_fail(CKL_INVALID, "%s: no implementation '%s'%s%s%s There are:%s", op->name, line->op ? line->op : force,
                near ? ", did you mean '" : ".", near ? near : "", near ? "'?" : "", text_data(&list));
    text_free(&list);
    return CKL_INVALID;
}

bool plan_candidate_config(const ckl_device_info *device, const implementation *impl, const void *desc, int i,
                           void *config)
{
    memset(config, 0, impl->config_bytes);
    fields_default(impl->config, config);
    return impl->candidate(desc, device, i, config);
}

int plan_rank(const ckl_device_info *device, const implementation *impl, const void *desc, void *config, int most,
              plan_candidate *out)
{
    int count = 0;
    for (int i = 0; plan_candidate_config(device, impl, desc, i, config); i++) {
        if (impl->admit && impl->admit(desc, device, config) != CKL_OK)
            continue;
        plan_candidate added = { i, impl->cost(desc, device, config) };
        int at = count < most ? count++ : most;
        for (; at > 0 && added.cost.us < out[at - 1].cost.us; at--)
            if (at < most)
                out[at] = out[at - 1];
        if (at < most)
            out[at] = added;
    }
    return count;
}

/* The cheapest candidate, or the reason why the last one may not. */
static ckl_status choose_cheapest(const ckl_device_info *device, const implementation *impl, const void *desc,
                                  void *config)
{
    plan_candidate best;
    if (plan_rank(device, impl, desc, config, 1, &best) == 0)
        return CKL_UNSUPPORTED;
    plan_candidate_config(device, impl, desc, best.number, config);
    return CKL_OK;
}

/* A config for the desc: the implementation's own choice, with the forced fields over it. */
static ckl_status configure(const ckl_device_info *device, const operator_info *op, const implementation *impl,
                            const void *desc, const choice_line *forced, void *config)
{
    if (impl->target > plan_target(device))
        FAIL(CKL_UNSUPPORTED, "%s %s: the kernel is for sm_90a, %s is sm_%d", op->name, impl->name, device->id,
             device->compute_capability);
    fields_default(impl->config, config);
    ckl_status chosen = impl->choose ? impl->choose(desc, device, config) : choose_cheapest(device, impl, desc, config);
    if (chosen != CKL_OK) {
        if (forced->count == 0)
            return chosen;
        memset(config, 0, impl->config_bytes); // a forced config may suit where the choice declines
        fields_default(impl->config, config);
    }
    char what[64];
    snprintf(what, sizeof what, "%s %s", op->name, impl->name);
    for (int i = 0; i < forced->count; i++)
        TRY(fields_set(impl->config, what, forced->pairs[i].key, forced->pairs[i].value, config));
    return impl->admit ? impl->admit(desc, device, config) : CKL_OK;
}

static ckl_status launch_nothing(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    (void)plan, (void)args, (void)stream;
    return CKL_OK;
}

/* What takes a problem without elements, whatever is forced. */
static const implementation nothing = { .name = "nothing",
                                        .summary = "no elements, no kernel",
                                        .launch = launch_nothing };

/* A desc that was checked. */
typedef struct checked_desc {
    const void *desc;
    const void *view; // the desc itself, where the operator has no other view of it
    plan_tensor tensors[PLAN_TENSORS_MAX];
    int tensor_count;
    bool empty; // nothing to compute: then every pointer may be NULL
} checked_desc;

/* What a problem gets, and why. */
typedef struct choice_made {
    const implementation *impl;
    void *config;
    const tuned_entry *tuned; // whose config it is; NULL: the implementation's own choice, or the caller's
    bool near;                // it is one of another problem of about the same sizes
} choice_made;

/* The choice that an entry of the store forces; false if it may not be used here. */
static bool take_tuned(const ckl_device_info *device, const operator_info *op, const void *desc, const tuned_entry *e,
                       arena *memory, choice_made *made)
{
    choice_line forced;
    if (parse_force(op, e->force, memory, &forced) != CKL_OK)
        return false;
    const implementation *impl = plan_find_implementation(op, forced.op);
    void *config = arena_alloc(memory, 1, impl->config_bytes);
    if (configure(device, op, impl, desc, &forced, config) != CKL_OK)
        return false;
    *made = (choice_made){ impl, config, e, false };
    return true;
}

/* The first entry of this very problem that may be used. */
static bool find_tuned(const ckl_device_info *device, const operator_info *op, const checked_desc *checked,
                       const tuned_table *table, arena *memory, choice_made *made)
{
    void *key = arena_alloc(memory, 1, op->desc_bytes);
    plan_desc_key(op, checked->desc, key);
    for (const tuned_entry *e = table->entries; e < table->entries + table->count; e++) {
        if (memcmp(e->key, key, op->desc_bytes) != 0 || !tuned_is_for(e, device))
            continue;
        if (take_tuned(device, op, checked->view, e, memory, made))
            return true;
        log_say("tuned", "%s:%d: %s; the entry is not used", e->source, e->line, ckl_error());
    }
    return false;
}

/*
 * How far another problem's sizes may be, as a power of 2, some 7 %: farther away another number of tiles, or of turns of them,
 * decides. Its config is taken if the model believes it to cost at most so much more than its own choice: what is closer than
 * the model's own loss against a sweep (bench/notes/gemm.md: 2 % in the mean), measurements decide.
 */
static const double NEAR_MAX = 0.1, COST_MARGIN = 1.02;

/* The nearest entry whose config the model agrees with, in place of the implementation's own choice. */
static void find_near(const ckl_device_info *device, const operator_info *op, const checked_desc *checked,
                      const tuned_table *table, arena *memory, choice_made *made)
{
    const implementation *impl = made->impl;
    double nearest = NEAR_MAX, most = impl->cost(checked->view, device, made->config).us * COST_MARGIN;
    for (const tuned_entry *e = table->entries; e < table->entries + table->count; e++) {
        choice_made other;
        double distance = plan_desc_distance(op, e->key, checked->desc);
        if (distance >= nearest || !tuned_is_for(e, device) ||
            !take_tuned(device, op, checked->view, e, memory, &other) || other.impl != impl ||
            impl->cost(checked->view, device, other.config).us > most)
            continue;
        *made = other;
        made->near = true;
        nearest = distance;
    }
}

/* The first implementation that takes the problem, or the one that is forced. */
static ckl_status choose_implementation(const ckl_device_info *device, const operator_info *op, const void *desc,
                                        const choice_line *forced, arena *memory, choice_made *made, text *declines)
{
    ckl_status status = CKL_UNSUPPORTED;
    for (const implementation *const *each = op->implementations; *each && status == CKL_UNSUPPORTED; each++) {
        if (forced->op && strcmp((*each)->name, forced->op) != 0)
            continue;
        void *candidate = arena_alloc(memory, 1, (*each)->config_bytes);
        status = configure(device, op, *each, desc, forced, candidate);
        if (status == CKL_OK)
            *made = (choice_made){ .impl = *each, .config = candidate };
        else if (status == CKL_UNSUPPORTED)
            text_printf(declines, "\n%s", ckl_error());
    }
    return status;
}

/* plan_choose() for a desc that was checked; table: NULL for none. */
static ckl_status choose(const ckl_device_info *device, const operator_info *op, const checked_desc *checked,
                         const char *force, const tuned_table *table, arena *memory, choice_made *made, text *notes)
{
    choice_line forced;
    if (checked->empty) {
        *made = (choice_made){ .impl = &nothing };
        return CKL_OK;
    }
    TRY(parse_force(op, force, memory, &forced));
    bool use_table = !forced.op && table->count;
    if (use_table && find_tuned(device, op, checked, table, memory, made))
        return CKL_OK;
    text declines = { 0 };
    ckl_status status = choose_implementation(device, op, checked->view, &forced, memory, made, &declines);
    if (status == CKL_OK && use_table && made->impl->cost)
        find_near(device, op, checked, table, memory, made);
    if (notes && declines.length)
        text_printf(notes, "%s\n", text_data(&declines) + 1);
    if (status == CKL_UNSUPPORTED && !forced.op) // else the one reason says it all
        status_fail(status, "%s: no implementation takes this problem on %s%s", op->name, device->id,
                    text_data(&declines));
    text_free(&declines);
    return status;
}

ckl_status plan_check_desc(const operator_info *op, void *desc)
{
    plan_tensor tensors[PLAN_TENSORS_MAX];
    TRY(fields_check(op->desc, op->name, desc));
    if (op->check)
        TRY(op->check(desc));
    return op->tensors ? plan_check_extents(op->name, tensors, op->tensors(desc, tensors)) : CKL_OK;
}

/* A checked copy of a desc, in memory. */
static ckl_status check_desc(const operator_info *op, const void *desc, arena *memory, checked_desc **checked)
{
    if (!desc)
        FAIL(CKL_INVALID, "%s: desc is NULL", op->name);
    void *copy = arena_alloc(memory, 1, op->desc_bytes);
    memcpy(copy, desc, op->desc_bytes);
    TRY(plan_check_desc(op, copy));
    checked_desc *made = arena_alloc(memory, 1, sizeof *made);
    made->tensor_count = op->tensors ? op->tensors(copy, made->tensors) : 0;
    made->empty = plan_is_empty(made->tensors, made->tensor_count);
    for (int i = 0; i < made->tensor_count; i++)
        made->tensors[i].optional |= made->empty;
    void *view = op->view ? arena_alloc(memory, 1, op->view_bytes) : copy;
    if (op->view)
        TRY(op->view(copy, view));
    made->desc = copy;
    made->view = view;
    *checked = made;
    return CKL_OK;
}

ckl_status plan_desc(const operator_info *op, const void *desc, arena *memory, const void **view)
{
    checked_desc *checked = NULL;
    TRY(check_desc(op, desc, memory, &checked));
    *view = checked->view;
    return CKL_OK;
}

/* "tuned.txt:3", with a mark where it is of another problem; nothing without an entry. */
static void print_origin(const choice_made *made, text *out)
{
    if (made->tuned)
        text_printf(out, "%s%s:%d", made->near ? "a near problem's entry, " : "", made->tuned->source,
                    made->tuned->line);
}

static ckl_status choose_for(const ckl_device_info *device, const operator_info *op, const void *desc,
                             const char *force, arena *memory, choice_made *made, text *notes)
{
    checked_desc *checked = NULL;
    const tuned_table *table;
    TRY(check_desc(op, desc, memory, &checked));
    TRY(tuned_table_of(op, &table));
    return choose(device, op, checked, force, table, memory, made, notes);
}

ckl_status plan_choose(const ckl_device_info *device, const operator_info *op, const void *desc, const char *force,
                       arena *memory, const implementation **impl, void **config, text *notes)
{
    choice_made made = { 0 };
    TRY(choose_for(device, op, desc, force, memory, &made, notes));
    *impl = made.impl;
    *config = made.config;
    return CKL_OK;
}

ckl_status plan_origin(const ckl_device_info *device, const operator_info *op, const void *desc, arena *memory,
                       text *out)
{
    choice_made made = { 0 };
    TRY(choose_for(device, op, desc, NULL, memory, &made, NULL));
    print_origin(&made, out);
    return CKL_OK;
}

static void print_choice(const operator_info *op, const implementation *impl, const void *config, text *out)
{
    text_printf(out, "%s %s%s", op->name, impl->name, impl->config.count ? " " : "");
    fields_print(impl->config, config, false, out);
}

ir_target plan_target(const ckl_device_info *device)
{
    return device->has_wgmma ? IR_SM90A : IR_SM80;
}

ckl_status plan_describe(const operator_info *op, const implementation *impl, const void *config, int which,
                         ir_target target, ir_kernel **kernel)
{
    char name[64];
    snprintf(name, sizeof name, impl->kernels > 1 ? "%s_%s_%d" : "%s_%s", op->name, impl->name, which);
    text note = { 0 };
    print_choice(op, impl, config, &note);

    ir_describe_begin(name, target);
    char *kept = ir_alloc(note.length + 1, 1);
    ir_current()->note = memcpy(kept, text_data(&note), note.length + 1);
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
 * Waits for the end: the first run may come on any stream. The stream is one of its own, because the default one must not be
 * used while another is being captured.
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

static ckl_status allocate_workspace(ckl_plan *plan)
{
    const device_ops *ops = plan->device->ops;
    plan->workspace_bytes = plan->impl->workspace_bytes ? plan->impl->workspace_bytes(plan) : 0;
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
    print_origin(made, &origin);
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
    TRY(check_desc(plan->op, request->desc, &built->memory, &checked));
    TRY(choose(&plan->device->info, plan->op, checked, request->force, request->table, &built->memory, &made, NULL));
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
    TRY(kernel_cache_get(plan->device, plan->op, plan->impl, plan->config, plan->text, &built->kernels));
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
    ckl_status status = settle_guarded(&built, desc, force);
    *busy = false;
    if (status == CKL_OK && built.plan.impl->describe)
        status = kernel_cache_warm(device, op, built.plan.impl, built.plan.config, built.plan.text, wait, busy);
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

ckl_status plan_run(const ckl_plan *plan, const operator_info *op, const void *args, ckl_stream stream)
{
    if (!plan || !args)
        FAIL(CKL_INVALID, "%s: %s is NULL", op->name, plan ? "args" : "plan");
    if (plan->op != op)
        FAIL(CKL_INVALID, "%s: plan is one of %s", op->name, plan->op->name);
    TRY(check_args(plan, args));
    return plan->impl->launch(plan, args, stream);
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
