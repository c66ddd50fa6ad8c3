/* add.c - y = alpha*a + beta*b: validation, choice of kernel, launch. */
#include "cutekernellib/operators/add.h"

#include <string.h>

#include "operators/add/add_config.h"
#include "skeletons/map_launch.h"
#include "operators/operators.h"
#include "plan/tensors.h"

/* Validation */

static ckl_status check_pitch(const char *name, int64_t *ld, int64_t n)
{
    if (*ld == 0)
        *ld = n;
    if (*ld < n)
        FAIL(CKL_INVALID, "add: %s=%" PRId64 " is smaller than n=%" PRId64, name, *ld, n);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_add_desc *d = desc;
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "add: dtype=%s is none of f32, f16, bf16", ckl_dtype_name(d->dtype));
    if (d->n < 0)
        FAIL(CKL_INVALID, "add: n=%" PRId64 " is negative", d->n);
    if (d->rows < 0)
        FAIL(CKL_INVALID, "add: rows=%" PRId64 " is negative", d->rows);
    if (d->rows == 0)
        d->rows = 1;
    TRY(check_pitch("lda", &d->lda, d->n));
    TRY(check_pitch("ldb", &d->ldb, d->n));
    return check_pitch("ldy", &d->ldy, d->n);
}

/* In place is fine, element by element: where distances between rows are equal. */
static plan_tensor piece(const ckl_add_desc *d, const char *name, const void *pointer, int64_t ld)
{
    int64_t element = (int64_t)ckl_dtype_bytes(d->dtype), elements = d->n ? (d->rows - 1) * ld + d->n : 0;
    return (
        plan_tensor){ .name = name, .pointer = pointer, .bytes = elements * element, .align = element, .layout = ld };
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_add_desc *d = desc;
    const ckl_add_args *x = args;
    plan_tensor pieces[] = { piece(d, "a", x->a, d->lda), piece(d, "b", x->b, d->ldb), piece(d, "y", x->y, d->ldy) };
    pieces[2].output = true;
    return plan_check_tensors("add", pieces, COUNT_OF(pieces));
}

/* Choice */

/* The rows as an element-wise problem: rows that follow each other without gaps become one dimension. */
static map_shape shape_of(const ckl_add_desc *d)
{
    map_shape s = { .rank = 2,
                    .operands = 5,
                    .size = { d->rows, d->n },
                    .stride = { { d->lda, 1 }, { d->ldb, 1 }, { 0 }, { 0 }, { d->ldy, 1 } } };
    map_simplify(&s);
    return s;
}

static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    add_config *c = config;
    c->dtype = ((const ckl_add_desc *)desc)->dtype;
    map_shape s = shape_of(desc);
    map_kernel k = add_kernel(c);
    map_choose(&k, &s, device);
    memcpy(c, &k.config, sizeof k.config);
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const add_config *c = config;
    if (c->dtype != ((const ckl_add_desc *)desc)->dtype)
        FAIL(CKL_INVALID, "add vector: dtype=%s is not that of the problem", ckl_dtype_name(c->dtype));
    map_shape s = shape_of(desc);
    map_kernel k = add_kernel(c);
    return map_admit("add vector", &k, &s, device);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    static const float one = 1;
    const ckl_add_args *x = args;
    map_shape s = shape_of(plan->desc);
    map_kernel k = add_kernel(plan->config);
    const void *pointers[] = { x->a, x->b, x->alpha ? x->alpha : &one, x->beta ? x->beta : &one, x->y };
    return map_launch(plan, &k, &s, pointers, stream);
}

static const field config_fields[] = { ADD_CONFIG(FIELD_ROW) };
MAP_IMPLEMENTATIONS(add_config, add_vector);

const operator_info add_operator = {
    .name = "add",
    .summary = "y = alpha*a + beta*b",
    .desc_bytes = sizeof(ckl_add_desc),
    .args_bytes = sizeof(ckl_add_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_add_plan(ckl_device *device, const ckl_add_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &add_operator, desc, NULL, plan);
}

ckl_status ckl_add_run(const ckl_plan *plan, const ckl_add_args *args, ckl_stream stream)
{
    return plan_run(plan, &add_operator, args, stream);
}

ckl_status ckl_add(ckl_device *device, const ckl_add_desc *desc, const ckl_add_args *args, ckl_stream stream)
{
    return plan_once(device, &add_operator, desc, args, stream);
}
