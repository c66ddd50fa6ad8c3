/* elementwise.c - y = expression of inputs: validation, choice of kernel, launch. */
#include "cutekernellib/operators/elementwise.h"

#include <stdio.h>
#include <string.h>

#include "operators/elementwise/elementwise_config.h"
#include "operators/elementwise/elementwise_expr.h"
#include "operators/operators.h"
#include "skeletons/map_launch.h"

/* Validation */

static bool is_integer(ckl_dtype dtype)
{
    return dtype == CKL_I32 || dtype == CKL_U8 || dtype == CKL_BOOL;
}

static ckl_status check_operand(const ckl_elementwise_desc *d, const char *name, const ckl_elementwise_operand *o)
{
    char strides[64];
    if (!is_integer(o->dtype) && o->dtype != CKL_F32 && o->dtype != CKL_F16 && o->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "elementwise: %s=%s is none of f32, f16, bf16, i32, u8, bool", name,
             ckl_dtype_name(o->dtype));
    snprintf(strides, sizeof strides, "%s.stride", name);
    return plan_check_sizes("elementwise", strides, o->stride, d->rank, CKL_ELEMENTWISE_RANK_MAX);
}

static ckl_status check_input(const ckl_elementwise_desc *d, const expr *e, int i, ckl_elementwise_operand *o)
{
    if (o->scalar)
        *o = (ckl_elementwise_operand){ .dtype = CKL_F32, .scalar = true };
    if (o->dtype == CKL_DTYPE_DEFAULT)
        o->dtype = CKL_F32;
    return check_operand(d, e->names[i], o);
}

/* An operand that the expression does not mention. */
static ckl_status check_unused(const ckl_elementwise_desc *d, const expr *e, int i)
{
    bool set = d->in[i].dtype != CKL_DTYPE_DEFAULT || d->in[i].scalar;
    for (int mode = 0; mode < d->rank; mode++)
        set |= d->in[i].stride[mode] != 0;
    if (set)
        FAIL(CKL_INVALID, "elementwise: in[%d] is not part of an expression of %d operands", i, e->inputs);
    return CKL_OK;
}

/* Every dimension of more than one element steps over all that smaller steps reach, in order of their strides. */
static ckl_status check_injective(const ckl_elementwise_desc *d)
{
    const int64_t *stride = d->out.stride;
    for (int i = 0; i < d->rank; i++) {
        int64_t reach = 0;
        for (int j = 0; j < d->rank; j++)
            if (stride[j] < stride[i] || (stride[j] == stride[i] && j > i))
                reach = sum_i64(reach, product_i64(d->shape[j] - 1, stride[j]));
        if (d->shape[i] > 1 && stride[i] <= reach)
            FAIL(CKL_INVALID, "elementwise: stride[%d]=%" PRId64 " of out lets its elements share memory", i,
                 stride[i]);
    }
    return CKL_OK;
}

static bool is_empty(const ckl_elementwise_desc *d)
{
    for (int i = 0; i < d->rank; i++)
        if (d->shape[i] == 0)
            return true;
    return false;
}

static ckl_status check(void *desc)
{
    ckl_elementwise_desc *d = desc;
    expr e;
    if (!memchr(d->expr, '\0', sizeof d->expr))
        FAIL(CKL_INVALID, "elementwise: expr has no end");
    TRY(expr_parse(d->expr, &e));
    if (d->rank < 0 || d->rank > CKL_ELEMENTWISE_RANK_MAX)
        FAIL(CKL_INVALID, "elementwise: rank=%d is not in 0..%d", d->rank, CKL_ELEMENTWISE_RANK_MAX);
    TRY(plan_check_sizes("elementwise", "shape", d->shape, d->rank, CKL_ELEMENTWISE_RANK_MAX));
    for (int i = 0; i < e.inputs; i++)
        TRY(check_input(d, &e, i, &d->in[i]));
    for (int i = e.inputs; i < CKL_ELEMENTWISE_INPUTS_MAX; i++)
        TRY(check_unused(d, &e, i));
    if (d->out.dtype == CKL_DTYPE_DEFAULT)
        d->out.dtype = e.inputs ? d->in[0].dtype : CKL_F32;
    d->out.scalar = false;
    TRY(check_operand(d, "out", &d->out));
    return is_empty(d) ? CKL_OK : check_injective(d);
}

/* A scalar is a tensor of one element. */
static plan_tensor tensor_of(const ckl_elementwise_desc *d, const char *name, const ckl_elementwise_operand *o)
{
    plan_tensor t = plan_strided(name, o->dtype, o->scalar ? 0 : d->rank, d->shape, o->stride);
    t.place = !o->scalar;
    return plan_absent(t, o->dtype ? NULL : "this expression");
}

static int tensors(const void *desc, plan_tensor *t)
{
    static const char *const names[] = { "in[0]", "in[1]", "in[2]", "in[3]" };
    const ckl_elementwise_desc *d = desc;
    for (int i = 0; i < CKL_ELEMENTWISE_INPUTS_MAX; i++)
        t[i] = tensor_of(d, names[i], &d->in[i]);
    t[CKL_ELEMENTWISE_INPUTS_MAX] = plan_output(tensor_of(d, "out", &d->out));
    return CKL_ELEMENTWISE_INPUTS_MAX + 1;
}

/* Choice */

static map_shape shape_of(const ckl_elementwise_desc *d)
{
    map_shape s = { .rank = d->rank };
    memcpy(s.size, d->shape, sizeof s.size);
    for (; s.operands < CKL_ELEMENTWISE_INPUTS_MAX && d->in[s.operands].dtype != CKL_DTYPE_DEFAULT; s.operands++)
        memcpy(s.stride[s.operands], d->in[s.operands].stride, sizeof s.stride[0]);
    memcpy(s.stride[s.operands++], d->out.stride, sizeof s.stride[0]);
    map_simplify(&s);
    return s;
}

/* Values are integers where everything is. */
static ckl_dtype compute_type(const ckl_elementwise_desc *d, const expr *e)
{
    bool integers = is_integer(d->out.dtype) && expr_suits_integers(e);
    for (int i = 0; i < e->inputs; i++)
        integers &= is_integer(d->in[i].dtype);
    return integers ? CKL_I32 : CKL_F32;
}

/* What of a config follows from the problem alone. */
static ckl_status describe_problem(const ckl_elementwise_desc *d, elementwise_config *c)
{
    expr e;
    TRY(expr_parse(d->expr, &e));
    ckl_dtype *const in[] = { &c->in0, &c->in1, &c->in2, &c->in3 };
    c->scalars = 0;
    for (int i = 0; i < COUNT_OF(in); i++) {
        *in[i] = d->in[i].dtype;
        c->scalars |= d->in[i].scalar << i;
    }
    c->expr = d->expr;
    c->out = d->out.dtype;
    c->compute = compute_type(d, &e);
    return CKL_OK;
}

static bool same_problem(const elementwise_config *a, const elementwise_config *b)
{
    return strcmp(a->expr, b->expr) == 0 && a->in0 == b->in0 && a->in1 == b->in1 && a->in2 == b->in2 &&
           a->in3 == b->in3 && a->out == b->out && a->compute == b->compute && a->scalars == b->scalars;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    elementwise_config right;
    TRY(describe_problem(desc, &right));
    if (!same_problem(&right, config))
        FAIL(CKL_INVALID, "elementwise vector: expr and types of the config are not those of the problem");
    return map_admit("elementwise vector", elementwise_kernel(config), shape_of(desc), device);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_elementwise_args *x = args;
    map_kernel k = elementwise_kernel(plan->config);
    const void *pointers[MAP_OPERANDS_MAX] = { x->in[0], x->in[1], x->in[2], x->in[3] };
    pointers[k.inputs] = x->out;
    return map_launch(plan, k, shape_of(plan->desc), pointers, stream);
}

static const field config_fields[] = { MAP_CONFIG(FIELD_NESTED, (elementwise_config, map)) //
                                       ELEMENTWISE_CONFIG(FIELD_ROW) };
MAP_IMPLEMENTATIONS(elementwise, elementwise_vector);

#define OPERAND_MEMBERS(operand)                                    \
    DESC_MEMBER(ckl_elementwise_desc, ckl_dtype, operand.dtype),    \
        DESC_MEMBER(ckl_elementwise_desc, int64_t, operand.stride), \
        DESC_MEMBER(ckl_elementwise_desc, bool, operand.scalar)
static const desc_member members[] = { DESC_MEMBER(ckl_elementwise_desc, quoted, expr),
                                       DESC_MEMBER(ckl_elementwise_desc, int, rank),
                                       DESC_MEMBER(ckl_elementwise_desc, int64_t, shape),
                                       OPERAND_MEMBERS(in[0]),
                                       OPERAND_MEMBERS(in[1]),
                                       OPERAND_MEMBERS(in[2]),
                                       OPERAND_MEMBERS(in[3]),
                                       OPERAND_MEMBERS(out),
                                       { 0 } };

OPERATOR_WITH(elementwise, elementwise, .summary = "y = an expression of up to four tensors, element by element",
              .check = check, .members = members, .tensors = tensors, .implementations = implementations);
