/*
 * describe.c - what a binding asks once: operators, problems and their tensors, plans, devices. Functions of the TVM
 * FFI whose results are strings of JSON or text, so that a binding needs none of the library's structs.
 *
 *     ckl_version()                         as ckl_version()
 *     ckl_operators()                       [{"name", "summary", "fields": [...], "tensors": [...], "numbers": [...]}]
 *     ckl_problem(operator, line)           the bytes of the desc of a problem line without the operator's name
 *     ckl_tensors(operator, problem)        [{"name", "dtype", "shape", "stride", "output", "optional", "absent"}]
 *     ckl_plan(operator, problem, device type, device id)       the text of its plan
 *     ckl_explain(operator, problem, device type, device id)    a line for each implementation: its config, or why not
 *     ckl_device(device type, device id)    {"id", "name", "compute_capability", "sm_count", "memory_bytes"}
 *     ckl_synchronize(device type, device id)                   waits for the default stream
 *     ckl_prepare(device type, device id, lines)                ckl_warm() of problem lines, a line each
 *     ckl_leave()                           before the caller's interpreter goes: calls of other threads never return
 */
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "ffi/device.h"
#include "ffi/leave.h"
#include "ffi/problem.h"
#include "operators/line.h"
#include "plan/cache.h"

/* JSON */

static void print_member(text *out, const char *name, const char *value)
{
    text_printf(out, "\"%s\": ", name);
    text_json(out, value);
    text_append(out, ", ", 2);
}

static void print_sizes(text *out, const char *name, const int64_t *sizes, int count)
{
    text_printf(out, "\"%s\": [", name);
    for (int i = 0; i < count; i++)
        text_printf(out, "%s%" PRId64, i ? ", " : "", sizes[i]);
    text_printf(out, "], ");
}

static void separate(text *out, int i)
{
    if (i)
        text_append(out, ", ", 2);
}

/* Operators */

static void print_field(text *out, const field *f)
{
    static const char *const kinds[] = {
        [FIELD_int] = "int",       [FIELD_int64_t] = "int", [FIELD_float] = "float",    [FIELD_bool] = "bool",
        [FIELD_choice] = "choice", [FIELD_quoted] = "text", [FIELD_ckl_dtype] = "dtype"
    };
    text choices = { 0 };
    field_choices(f, &choices);
    text_append(out, "{", 1);
    print_member(out, "name", f->name);
    print_member(out, "kind", kinds[f->kind]);
    print_member(out, "value", f->value);
    print_member(out, "choices", text_data(&choices));
    text_printf(out, "\"help\": ");
    text_json(out, f->help);
    text_append(out, "}", 1);
    text_free(&choices);
}

static void print_tensor(text *out, const plan_tensor *t)
{
    text_append(out, "{", 1);
    print_member(out, "name", t->name);
    print_member(out, "dtype", ckl_dtype_name(t->dtype));
    print_sizes(out, "shape", t->shape, t->rank);
    print_sizes(out, "stride", t->stride, t->rank);
    if (t->absent)
        print_member(out, "absent", t->absent);
    text_printf(out, "\"optional\": %s, \"output\": %s}", t->optional ? "true" : "false", t->output ? "true" : "false");
}

static void print_tensors(text *out, const operator_info *op, const void *desc)
{
    plan_tensor list[PLAN_TENSORS_MAX] = { 0 };
    int count = op->tensors(desc, list);
    text_append(out, "[", 1);
    for (int i = 0; i < count; i++) {
        separate(out, i);
        print_tensor(out, &list[i]);
    }
    text_append(out, "]", 1);
}

/* The names of an operator's tensors are the same in all its problems. */
static ckl_status print_operator(text *out, const operator_line *of)
{
    arena memory = { 0 };
    void *problem = arena_alloc(&memory, 1, of->problem_bytes);
    fields_default(of->problem, problem);
    ckl_status status = line_prepare(of, problem);
    text_append(out, "{", 1);
    print_member(out, "name", of->op->name);
    print_member(out, "summary", of->op->summary);
    print_member(out, "numbers", of->op->numbers ? of->op->numbers : "");
    text_printf(out, "\"fields\": [");
    for (int i = 0; i < of->problem.count; i++) {
        separate(out, i);
        print_field(out, &of->problem.rows[i]);
    }
    text_printf(out, "], \"tensors\": ");
    if (status == CKL_OK)
        print_tensors(out, of->op, problem);
    text_append(out, "}", 1);
    arena_clear(&memory);
    return status;
}

/* Questions: each reads its arguments and writes its answer. */

typedef struct question {
    const TVMFFIAny *args;
    TVMFFIAny *result;
    const operator_info *op;
    ffi_desc desc;
    ckl_device *device;
    text answer;
} question;

static ckl_status take_operator(question *q, const TVMFFIAny *value)
{
    TVMFFIByteArray name;
    char terminated[64] = "";
    const operator_line *of;
    if (!value_text(value, &name) || name.size >= sizeof terminated)
        FAIL(CKL_INVALID, "the name of an operator is missing");
    memcpy(terminated, name.data, name.size);
    TRY(line_operator(terminated, &of));
    q->op = of->op;
    return CKL_OK;
}

static ckl_status take_problem(question *q)
{
    TRY(take_operator(q, &q->args[0]));
    TRY(ffi_problem(q->op, &q->args[1], &q->desc));
    return plan_check_desc(q->op, q->desc.bytes);
}

static ckl_status take_device(question *q, const TVMFFIAny *args)
{
    if (args[0].type_index != kTVMFFIInt || args[1].type_index != kTVMFFIInt)
        FAIL(CKL_INVALID, "a device is two numbers, DLPack's type and the id");
    return ffi_device((DLDevice){ (int32_t)args[0].v_int64, (int32_t)args[1].v_int64 }, &q->device);
}

static ckl_status ask_version(question *q)
{
    text_printf(&q->answer, "%s", ckl_version());
    return CKL_OK;
}

static ckl_status ask_operators(question *q)
{
    text_append(&q->answer, "[", 1);
    for (int i = 0; operator_lines[i]; i++) {
        separate(&q->answer, i);
        TRY(print_operator(&q->answer, operator_lines[i]));
    }
    text_append(&q->answer, "]", 1);
    return CKL_OK;
}

static ckl_status ask_problem(question *q)
{
    TRY(take_problem(q));
    return value_give_bytes(q->desc.bytes, q->op->desc_bytes, q->result);
}

static ckl_status ask_tensors(question *q)
{
    TRY(take_problem(q));
    print_tensors(&q->answer, q->op, q->desc.bytes);
    return CKL_OK;
}

static ckl_status print_plan(const ckl_plan *plan, void *user)
{
    text_printf(user, "%s", ckl_plan_text(plan));
    return CKL_OK;
}

static ckl_status ask_plan(question *q)
{
    TRY(take_problem(q));
    TRY(take_device(q, q->args + 2));
    return plan_cached(q->device, q->op, q->desc.bytes, NULL, print_plan, &q->answer);
}

/* What the plan takes comes first. */
static void print_choice(question *q, const char *force, arena *memory)
{
    const implementation *impl;
    void *config;
    const ckl_device_info *device = ckl_device_properties(q->device);
    if (plan_choose(device, q->op, q->desc.bytes, force, memory, &impl, &config) != CKL_OK) {
        text_printf(&q->answer, "%s: %s\n", force ? force : "nothing", ckl_error());
        return;
    }
    text_printf(&q->answer, "%s%s ", force ? "" : "taken: ", impl->name);
    fields_print_brief(impl->config, config, &q->answer);
    text_append(&q->answer, "\n", 1);
}

static ckl_status ask_explain(question *q)
{
    arena memory = { 0 };
    TRY(take_problem(q));
    TRY(take_device(q, q->args + 2));
    print_choice(q, NULL, &memory);
    for (const implementation *const *impl = q->op->implementations; *impl; impl++)
        print_choice(q, (*impl)->name, &memory);
    arena_clear(&memory);
    return CKL_OK;
}

static ckl_status ask_device(question *q)
{
    TRY(take_device(q, q->args));
    const ckl_device_info *d = ckl_device_properties(q->device);
    text_append(&q->answer, "{", 1);
    print_member(&q->answer, "id", d->id);
    print_member(&q->answer, "name", d->name);
    text_printf(&q->answer, "\"compute_capability\": %d, \"sm_count\": %d, \"memory_bytes\": %" PRId64 "}",
                d->compute_capability, d->sm_count, d->memory_bytes);
    return CKL_OK;
}

/* Lines are separated by ends of lines. */
static ckl_status ask_prepare(question *q)
{
    TVMFFIByteArray given;
    TRY(take_device(q, q->args));
    if (!value_text(&q->args[2], &given))
        FAIL(CKL_INVALID, "prepare: the lines are no text");
    char *copy = heap_alloc(given.size + 1, 1), *rest = copy;
    const char **lines = heap_alloc(given.size + 1, sizeof *lines);
    memcpy(copy, given.data, given.size);
    int count = 0;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line)
            lines[count++] = line;
    ckl_status status = count ? ckl_warm(q->device, lines, count, 0, NULL, NULL) : CKL_OK;
    heap_free(lines);
    heap_free(copy);
    return status;
}

static ckl_status ask_synchronize(question *q)
{
    TRY(take_device(q, q->args));
    return ckl_stream_synchronize(q->device, NULL);
}

static ckl_status ask_leave(question *q)
{
    (void)q;
    ffi_leave();
    return CKL_OK;
}

/* Exports */

typedef struct asking {
    question question;
    ckl_status (*ask)(question *q);
} asking;

static ckl_status ask(void *user)
{
    asking *a = user;
    ckl_status status = a->ask(&a->question);
    if (status == CKL_OK && a->question.answer.length)
        status = value_give_text(&a->question.answer, a->question.result);
    text_free(&a->question.answer);
    return status;
}

static ckl_status answer(const char *name, ckl_status (*of)(question *q), int wanted, const TVMFFIAny *args, int count,
                         TVMFFIAny *result)
{
    asking a = { .question = { .args = args, .result = result }, .ask = of };
    if (count != wanted)
        FAIL(CKL_INVALID, "%s: takes %d arguments, not %d", name, wanted, count);
    ffi_stay_if_leaving();
    ckl_status status = heap_guard(name, ask, &a);
    ffi_stay_if_leaving();
    return status;
}

#define X(name, wanted)                                                                     \
    FFI_EXPORT(ckl_##name);                                                                 \
    FFI_EXPORT(ckl_##name)                                                                  \
    {                                                                                       \
        (void)handle;                                                                       \
        return value_status(answer("ckl_" #name, ask_##name, wanted, args, count, result)); \
    }
X(version, 0)
X(operators, 0)
X(problem, 2)
X(tensors, 2)
X(plan, 4)
X(explain, 4)
X(device, 2)
X(prepare, 3)
X(synchronize, 2)
X(leave, 0)
#undef X
