/*
 * call.c - every operator as a function of the TVM FFI: __tvm_ffi_ckl_softmax(problem, x, mask, y, dy, dx).
 *
 * The problem is a line or the bytes of a desc (problem.h). Then come what the operator's args hold, in their order: tensors of
 * DLPack, None where the problem has none, and numbers; a workspace is the plan's own. A tensor needs the problem's element type
 * and enough memory: shape and strides are the problem's, and what is seen to lie otherwise is refused. All lie on one device. On a GPU the call enqueues on the stream that
 * the FFI knows as current, and returns; for memory of the host it runs on the emulated H200 and waits.
 *
 * Errors are ValueError, NotImplementedError, MemoryError or RuntimeError with the sentence of ckl_error(). Any thread.
 */
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
    const TVMFFIAny *given; // the values of the args
    int count;
    DLDevice place;
    ckl_device *device;
    ckl_stream stream;
    const ckl_plan *plan;
    void *args[ARGS_MAX]; // the operator's args are pointers throughout
    float numbers[ARGS_MAX];
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
            FAIL(CKL_INVALID, "%s: argument %d lies on another device than those before it", c->op->name, i + 1);
    }
    if (!c->place.device_type)
        FAIL(CKL_INVALID, "%s: there is no tensor among the arguments", c->op->name);
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

/* Do the same modes lie otherwise? Modes are told apart by their sizes: where two are equal, or in another order, nothing is known. */
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

static ckl_status take_number(call *c, int i, const char *name)
{
    double number;
    if (!value_number(&c->given[i], &number))
        FAIL(CKL_INVALID, "%s: %s is not a number", c->op->name, name);
    c->numbers[i] = (float)number;
    c->args[i] = &c->numbers[i];
    return CKL_OK;
}

/* An input without modes is a number. */
static ckl_status take_arguments(call *c)
{
    for (int i = 0; i < c->count; i++) {
        const plan_tensor *t = i < c->plan->tensor_count ? &c->plan->tensors[i] : NULL;
        const DLTensor *tensor = value_tensor(&c->given[i]);
        if (c->given[i].type_index == kTVMFFINone)
            continue;
        if (!t || (t->rank == 0 && !t->output && !t->absent))
            TRY(take_number(c, i, t ? t->name : "an argument after the tensors"));
        else if (tensor)
            TRY(take_tensor(c, i, t, tensor));
        else
            FAIL(CKL_INVALID, "%s: %s is not a tensor", c->op->name, t->name);
    }
    return CKL_OK;
}

static ckl_status run(call *c)
{
    TRY(take_arguments(c));
    if (c->place.device_type == kDLCPU)
        return host_run(c->plan, c->args);
    return plan_run(c->plan, c->op, c->args, c->stream);
}

static ckl_status call_operator(const operator_info *op, const TVMFFIAny *given, int count)
{
    call c = { .op = op, .given = given + 1, .count = count - 1 };
    int slots = (int)((op->workspace ? op->workspace : op->args_bytes) / sizeof(void *));
    ffi_desc desc;
    if (count < 1 || count > slots + 1)
        FAIL(CKL_INVALID, "%s: takes a problem and up to %d arguments, not %d", op->name, slots, count - 1);
    TRY(ffi_problem(op, &given[0], &desc));
    TRY(find_device(&c));
    plan_use *use;
    TRY(plan_borrow(c.device, op, desc.bytes, c.stream, &use));
    c.plan = plan_borrowed(use);
    ckl_status status = run(&c);
    plan_return(use);
    return status;
}

static int answer(const operator_info *op, const TVMFFIAny *args, int count)
{
    ffi_stay_if_leaving();
    int answered = value_status(call_operator(op, args, count));
    ffi_stay_if_leaving();
    return answered;
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
