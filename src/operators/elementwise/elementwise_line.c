/* elementwise_line.c - the problem lines of elementwise: types, shapes and strides in the order of the names. */
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "base/number.h"
#include "base/shape.h"
#include "operators/elementwise/elementwise_lab.h"

static const field fields[] = { ELEMENTWISE_PROBLEM(FIELD_ROW) };

typedef struct item {
    char text[128];
} item;

/* The next item of a list with commas; "" if it is left out or the list has ended. */
static item next_item(const char **list)
{
    item i = { 0 };
    size_t length = strcspn(*list, ",");
    memcpy(i.text, *list, length < sizeof i.text ? length : sizeof i.text - 1);
    *list += length + ((*list)[length] == ',');
    return i;
}

/* Strides of a dense tensor whose sizes are aligned to the right of the problem's; sizes of 1 are broadcast. */
static ckl_status dense_strides(const ckl_elementwise_desc *d, const char *list, int64_t *stride)
{
    sizes s;
    int64_t next = 1;
    TRY(sizes_parse("elementwise", "shapes", list, d->rank, &s));
    for (int i = d->rank - 1; i >= 0; i--) {
        int from = i - (d->rank - s.rank);
        int64_t size = from < 0 ? 1 : s.of[from];
        if (size != 1 && size != d->shape[i])
            FAIL(CKL_INVALID, "elementwise: shapes=%s does not broadcast to the problem's shape", list);
        stride[i] = size == 1 ? 0 : next;
        next = product_i64(next, size);
    }
    return CKL_OK;
}

static ckl_status parse_operand(elementwise_problem *p, ckl_elementwise_operand *o, ckl_dtype dtype, const char *shape,
                                const char *strides)
{
    o->dtype = dtype ? dtype : p->dtype;
    TRY(dense_strides(&p->desc, *shape ? shape : p->shape, o->stride));
    return list_parse("elementwise", "strides", strides, p->desc.rank, o->stride);
}

static ckl_status parse_operands(elementwise_problem *p)
{
    const char *dtypes = p->in, *shapes = p->shapes, *strides = p->strides;
    for (int i = 0; i < p->expression.inputs; i++) {
        item name = next_item(&dtypes);
        ckl_dtype dtype = CKL_DTYPE_DEFAULT;
        if (*name.text && !dtype_find(name.text, &dtype))
            FAIL(CKL_INVALID, "elementwise: in=%s is not a list of element types", p->in);
        TRY(parse_operand(p, &p->desc.in[i], dtype, next_item(&shapes).text, next_item(&strides).text));
    }
    return parse_operand(p, &p->desc.out, p->out, "", next_item(&strides).text);
}

/* "a=0.5,b=-2" */
static ckl_status parse_scalars(elementwise_problem *p)
{
    for (const char *at = p->scalars; *at;) {
        item name = next_item(&at);
        char *value = strchr(name.text, '=');
        int i = 0;
        if (value)
            *value++ = 0;
        while (i < p->expression.inputs && strcmp(p->expression.names[i], name.text) != 0)
            i++;
        if (i == p->expression.inputs || !value)
            FAIL(CKL_INVALID, "elementwise: scalars=%s: %s is not the name of an operand and its value", p->scalars,
                 name.text);
        const char *from = value;
        if (!number_float(&from, &p->scalar[i]) || *from)
            FAIL(CKL_INVALID, "elementwise: scalars=%s: %s=%s is not a number", p->scalars, name.text, value);
        p->desc.in[i] = (ckl_elementwise_operand){ .scalar = true };
    }
    return CKL_OK;
}

static ckl_status prepare(void *problem)
{
    elementwise_problem *p = problem;
    ckl_elementwise_desc *d = &p->desc;
    TRY(expr_parse(p->expr, &p->expression));
    strcpy(d->expr, p->expr);
    TRY(extents_parse("elementwise", p->shape, CKL_ELEMENTWISE_RANK_MAX, &d->rank, d->shape));
    TRY(parse_operands(p));
    TRY(parse_scalars(p));
    if (p->inplace < 0 || p->inplace > p->expression.inputs)
        FAIL(CKL_INVALID, "elementwise: inplace=%d is not in 0..%d", p->inplace, p->expression.inputs);
    return CKL_OK;
}

OPERATOR_LINE(elementwise, elementwise_problem, prepare);
