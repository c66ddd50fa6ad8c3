/* elementwise.c - y = expression of inputs: validation, choice of kernel, launch. */
#include "cutekernellib/operators/elementwise.h"

#include <stdio.h>
#include <string.h>

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

/* As the skeleton sees it */

/* Values are integers where everything is. */
static ckl_dtype compute_type(const ckl_elementwise_desc *d)
{
    expr e;
    bool integers = is_integer(d->out.dtype) && expr_parse(d->expr, &e) == CKL_OK && expr_suits_integers(&e);
    for (int i = 0; i < CKL_ELEMENTWISE_INPUTS_MAX; i++)
        integers &= d->in[i].dtype == CKL_DTYPE_DEFAULT || is_integer(d->in[i].dtype);
    return integers ? CKL_I32 : CKL_F32;
}

static ckl_status view(const void *desc, void *out)
{
    const ckl_elementwise_desc *d = desc;
    map_problem *p = out;
    map_shape *s = &p->shape;
    *p = (map_problem){ .op = "elementwise",
                        .shape = { .rank = d->rank },
                        .kernel = { .compute = compute_type(d), .config.expr = d->expr } };
    memcpy(s->size, d->shape, sizeof s->size);
    for (int i = 0; i < CKL_ELEMENTWISE_INPUTS_MAX && d->in[i].dtype != CKL_DTYPE_DEFAULT; i++) {
        p->kernel.dtype[i] = d->in[i].dtype;
        p->kernel.scalar[i] = d->in[i].scalar;
        memcpy(s->stride[s->operands++], d->in[i].stride, sizeof s->stride[0]);
    }
    p->kernel.inputs = s->operands;
    p->kernel.dtype[s->operands] = d->out.dtype;
    memcpy(s->stride[s->operands++], d->out.stride, sizeof s->stride[0]);
    map_simplify(s);
    return CKL_OK;
}

static void pointers_of(const void *args, const void **pointers)
{
    const ckl_elementwise_args *x = args;
    int inputs = 0;
    for (; inputs < CKL_ELEMENTWISE_INPUTS_MAX && x->in[inputs]; inputs++)
        pointers[inputs] = x->in[inputs];
    pointers[inputs] = x->out;
}

MAP_IMPLEMENTATIONS(elementwise_vector);

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
              .check = check, .members = members, .tensors = tensors, .view = view, .view_bytes = sizeof(map_problem),
              .implementations = implementations);
