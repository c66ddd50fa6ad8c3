/*
 * call.c - every operator as a function of the TVM FFI, __tvm_ffi_ckl_softmax(problem, x, mask, y, dy, dx), and several
 * in one call.
 *
 * The problem is a line or the bytes of a desc (problem.h). Then comes what the operator's args hold, in their order:
 * tensors of DLPack, None where the problem has none, and numbers; a workspace is the plan's own. A tensor needs the
 * problem's element type and enough memory: shape and strides are the problem's, and what is seen to lie otherwise is
 * refused. All lie on one device. On a GPU the call enqueues on the stream that the FFI knows as current, and returns;
 * for memory of the host it runs on the emulated H200 and waits.
 *
 * __tvm_ffi_ckl_sequence(steps, tensors...) makes several calls, one behind the other. It saves a caller that knows its
 * problems ahead, such as a block of a model, the way to the library and back for each. steps: bytes, see step below.
 *
 * Errors are ValueError, NotImplementedError, MemoryError or RuntimeError with the sentence of ckl_error(). Any thread.
 */
#include <string.h>

#include "base/math.h"
#include "ffi/device.h"
#include "ffi/host.h"
#include "ffi/leave.h"
#include "ffi/problem.h"
#include "operators/operators.h"
#include "plan/cache.h"

enum { ARGS_MAX = PLAN_TENSORS_MAX + 8 };

typedef struct call {
    const operator_info *op;
    const char *name;       // the operator's, or of the sequence
    const TVMFFIAny *given; // the values of the args
    int count;
    DLDevice place;
    ckl_device *device;
    ckl_stream stream;
    const ckl_plan *plan;
    void *args[ARGS_MAX]; // the operator's args are pointers throughout
    float numbers[ARGS_MAX];
    const char *step_arguments; // of a step of a sequence
    int step_count;
} call;

/* The device of all tensors. */
static ckl_status find_device(call *c)
{
    for (int i = 0; i < c->count; i++) {
        const DLTensor *tensor = value_tensor(&c->given[i]);
        if (!tensor)
            continue;
        if (!c->place.device_type)
            c->place = tensor->device;
        if (tensor->device.device_type != c->place.device_type || tensor->device.device_id != c->place.device_id)
            FAIL(CKL_INVALID, "%s: argument %d lies on another device than those before it", c->name, i + 1);
    }
    if (!c->place.device_type)
        FAIL(CKL_INVALID, "%s: there is no tensor among the arguments", c->name);
    if (c->place.device_type == kDLCUDA)
        c->stream = TVMFFIEnvGetStream(c->place.device_type, c->place.device_id);
    return ffi_device(c->place, &c->device);
}

/* Bytes and flags are as good as each other. */
static bool is_same_type(ckl_dtype x, ckl_dtype y)
{
    return x == y || ((x == CKL_BOOL || x == CKL_U8) && (y == CKL_BOOL || y == CKL_U8));
}

/* Has a tensor, which spans so many bytes, gaps between elements that the problem has side by side? */
static bool has_gaps(const DLTensor *tensor, int64_t span, const plan_tensor *t)
{
    int64_t given = 1, wanted = 1, bytes = plan_tensor_bytes(t);
    if (span == bytes)
        return false;
    for (int i = 0; i < tensor->ndim; i++)
        given = product_i64(given, tensor->shape[i]);
    for (int i = 0; i < t->rank; i++)
        wanted = product_i64(wanted, t->shape[i]);
    return given == wanted && product_i64(wanted, tensor->dtype.bits / 8) == bytes;
}

/*
 * Do the same modes lie otherwise? Modes are told apart by their sizes: where two are equal, or in another order,
 * nothing is known.
 */
static bool has_other_strides(const DLTensor *tensor, const plan_tensor *t)
{
    bool other = false;
    if (tensor->ndim != t->rank || !tensor->strides || plan_tensor_bytes(t) == 0)
        return false;
    for (int i = 0; i < t->rank; i++) {
        if (tensor->shape[i] != t->shape[i])
            return false;
        for (int j = 0; j < i; j++)
            if (t->shape[i] == t->shape[j] && t->shape[i] > 1)
                return false;
        other |= t->shape[i] > 1 && tensor->strides[i] != t->stride[i];
    }
    return other;
}

static ckl_status take_tensor(call *c, int i, const plan_tensor *t, const DLTensor *tensor)
{
    int64_t span = value_span(tensor);
    ckl_dtype dtype = value_dtype(tensor->dtype);
    if (t->absent) {
        c->args[i] = tensor->data; // the plan refuses it with its reason
        return CKL_OK;
    }
    if (t->host && c->place.device_type != kDLCPU)
        FAIL(CKL_UNSUPPORTED, "%s: %s lies on the host in this problem, tensors of a call all lie on one device",
             c->op->name, t->name);
    if (!is_same_type(dtype, t->dtype))
        FAIL(CKL_INVALID, "%s: %s is of %s, the problem says %s", c->op->name, t->name,
             dtype ? ckl_dtype_name(dtype) : "a type that is not known here", ckl_dtype_name(t->dtype));
    if (span < 0)
        FAIL(CKL_INVALID, "%s: %s has negative strides", c->op->name, t->name);
    if (span < plan_tensor_bytes(t))
        FAIL(CKL_INVALID, "%s: %s has memory of %" PRId64 " bytes, the problem needs %" PRId64, c->op->name, t->name,
             span, plan_tensor_bytes(t));
    if (has_gaps(tensor, span, t))
        FAIL(CKL_INVALID, "%s: %s has gaps between its elements, the problem has none", c->op->name, t->name);
    if (has_other_strides(tensor, t))
        FAIL(CKL_INVALID, "%s: %s has the shape that the problem says, and other strides", c->op->name, t->name);
    c->args[i] = (char *)tensor->data + tensor->byte_offset;
    return CKL_OK;
}

static ckl_status take_number(call *c, int i, const TVMFFIAny *given, const char *name)
{
    double number;
    if (!value_number(given, &number))
        FAIL(CKL_INVALID, "%s: %s is not a number", c->op->name, name);
    c->numbers[i] = (float)number;
    c->args[i] = &c->numbers[i];
    return CKL_OK;
}

/* An input without modes is a number. */
static ckl_status take_argument(call *c, int i, const TVMFFIAny *given)
{
    const plan_tensor *t = i < c->plan->tensor_count ? &c->plan->tensors[i] : NULL;
    const DLTensor *tensor = value_tensor(given);
    if (given->type_index == kTVMFFINone)
        return CKL_OK;
    if (!t || (t->rank == 0 && !t->output && !t->absent))
        return take_number(c, i, given, t ? t->name : "an argument after the tensors");
    if (!tensor)
        FAIL(CKL_INVALID, "%s: %s is not a tensor", c->op->name, t->name);
    return take_tensor(c, i, t, tensor);
}

static ckl_status run(call *c)
{
    if (c->place.device_type == kDLCPU)
        return host_run(c->plan, c->args);
    return plan_run(c->plan, c->op, c->args, c->stream);
}

static ckl_status take_and_run(const ckl_plan *plan, void *user)
{
    call *c = user;
    c->plan = plan;
    for (int i = 0; i < c->count; i++)
        TRY(take_argument(c, i, &c->given[i]));
    return run(c);
}

/* How many arguments an operator takes. */
static int slots_of(const operator_info *op)
{
    return (int)((op->workspace ? op->workspace : op->args_bytes) / sizeof(void *));
}

static ckl_status call_operator(const operator_info *op, const TVMFFIAny *given, int count)
{
    call c = { .op = op, .name = op->name, .given = given + 1, .count = count - 1 };
    ffi_desc desc;
    if (count < 1 || count > slots_of(op) + 1)
        FAIL(CKL_INVALID, "%s: takes a problem and up to %d arguments, not %d", op->name, slots_of(op), count - 1);
    TRY(ffi_problem(op, &given[0], &desc));
    TRY(find_device(&c));
    return plan_cached(c.device, op, desc.bytes, c.stream, take_and_run, &c);
}

/* Sequences */

#define X(op) +1
enum { OPERATOR_COUNT = OPERATORS(X) };
#undef X

/* What the bytes of a sequence hold of each call: this, the desc, and the arguments. All begin at whole 8 bytes. */
typedef struct step {
    int32_t op; // its place in the list of operators
    int32_t count;
} step;

typedef struct step_argument {
    enum { STEP_NONE, STEP_TENSOR, STEP_MEMORY, STEP_NUMBER } kind;
    int32_t tensor; // of the sequence's
    union {
        int64_t offset; // MEMORY: the problem's tensor lies so many bytes behind the beginning of this one
        double number;
    };
} step_argument;

static ckl_status take_memory(call *c, int i, const DLTensor *memory, int64_t offset)
{
    const plan_tensor *t = i < c->plan->tensor_count ? &c->plan->tensors[i] : NULL;
    int64_t span = value_span(memory), bytes = t ? plan_tensor_bytes(t) : 0;
    if (t && bytes == 0)
        return CKL_OK;
    if (!t || offset < 0 || span < 0 || bytes > span - offset)
        FAIL(CKL_INVALID, "%s: %s does not fit behind byte %" PRId64 " of memory of %" PRId64, c->op->name,
             t ? t->name : "a tensor that the problem does not have", offset, span);
    c->args[i] = (char *)memory->data + memory->byte_offset + offset;
    return CKL_OK;
}

static ckl_status take_step_argument(call *c, int i, const step_argument *a)
{
    TVMFFIAny number = { .type_index = kTVMFFIFloat, .v_float64 = a->number };
    if (a->kind == STEP_NONE)
        return CKL_OK;
    if (a->kind == STEP_NUMBER)
        return take_argument(c, i, &number);
    if (a->tensor < 0 || a->tensor >= c->count || !value_tensor(&c->given[a->tensor]))
        FAIL(CKL_INVALID, "sequence: argument %d of %s is tensor %d, which was not given", i + 1, c->op->name,
             (int)a->tensor);
    if (a->kind == STEP_TENSOR)
        return take_argument(c, i, &c->given[a->tensor]);
    return take_memory(c, i, value_tensor(&c->given[a->tensor]), a->offset);
}

static ckl_status take_step_and_run(const ckl_plan *plan, void *user)
{
    call *c = user;
    c->plan = plan;
    memset(c->args, 0, sizeof c->args);
    for (int i = 0; i < c->step_count; i++) {
        step_argument a;
        memcpy(&a, c->step_arguments + (size_t)i * sizeof a, sizeof a);
        TRY(take_step_argument(c, i, &a));
    }
    return run(c);
}

/* Runs the step at the beginning of the bytes, and goes behind it. */
static ckl_status run_step(call *c, TVMFFIByteArray *bytes)
{
    step s = { .op = -1 };
    if (bytes->size >= sizeof s)
        memcpy(&s, bytes->data, sizeof s);
    if (s.op < 0 || s.op >= OPERATOR_COUNT || s.count < 0 || s.count > slots_of(operators[s.op]))
        FAIL(CKL_INVALID, "sequence: a step begins with neither an operator nor as many arguments as it has");
    c->op = operators[s.op];
    size_t desc_bytes = (size_t)round_up((int64_t)c->op->desc_bytes, 8);
    size_t size = sizeof s + desc_bytes + (size_t)s.count * sizeof(step_argument);
    if (bytes->size < size)
        FAIL(CKL_INVALID, "sequence: a step of %s ends behind %zu of %zu bytes", c->op->name, bytes->size, size);
    ffi_desc desc;
    memcpy(desc.bytes, bytes->data + sizeof s, c->op->desc_bytes);
    c->step_arguments = bytes->data + sizeof s + desc_bytes;
    c->step_count = s.count;
    *bytes = (TVMFFIByteArray){ bytes->data + size, bytes->size - size };
    return plan_cached(c->device, c->op, desc.bytes, c->stream, take_step_and_run, c);
}

static ckl_status call_sequence(const TVMFFIAny *given, int count)
{
    call c = { .name = "sequence", .given = given + 1, .count = count - 1 };
    TVMFFIByteArray bytes;
    if (count < 1 || !value_bytes(&given[0], &bytes))
        FAIL(CKL_INVALID, "sequence: the first argument is not the bytes of its steps");
    TRY(find_device(&c));
    while (bytes.size)
        TRY(run_step(&c, &bytes));
    return CKL_OK;
}

static int answer(const operator_info *op, const TVMFFIAny *args, int count)
{
    ffi_stay_if_leaving();
    int answered = value_status(op ? call_operator(op, args, count) : call_sequence(args, count));
    ffi_stay_if_leaving();
    return answered;
}

FFI_EXPORT(ckl_sequence);
FFI_EXPORT(ckl_sequence)
{
    (void)handle;
    (void)result;
    return answer(NULL, args, count);
}

#define X(op)                                       \
    FFI_EXPORT(ckl_##op);                           \
    FFI_EXPORT(ckl_##op)                            \
    {                                               \
        (void)handle;                               \
        (void)result;                               \
        return answer(&op##_operator, args, count); \
    }
OPERATORS(X)
#undef X
