/* add.c - y = alpha*a + beta*b: validation, choice of kernel, launch. */
#include "cutekernellib/operators/add.h"

#include <string.h>

#include "operators/add/add_config.h"
#include "operators/operators.h"

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

/* Bytes from the first to past the last element of a tensor. */
static int64_t extent(const ckl_add_desc *d, int64_t ld)
{
    return ((d->rows - 1) * ld + d->n) * (int64_t)ckl_dtype_bytes(d->dtype);
}

static ckl_status check_pointer(const ckl_add_desc *d, const char *name, const void *pointer)
{
    if (!pointer)
        FAIL(CKL_INVALID, "add: %s is NULL", name);
    if ((uintptr_t)pointer % ckl_dtype_bytes(d->dtype))
        FAIL(CKL_INVALID, "add: %s=%p is not aligned to its %zu-byte elements", name, pointer,
             ckl_dtype_bytes(d->dtype));
    return CKL_OK;
}

/* In place is fine, element by element; any other overlap would read what was already written. */
static ckl_status check_overlap(const ckl_add_desc *d, const char *name, const void *x, int64_t ldx, const void *y)
{
    if ((x != y || ldx != d->ldy) && plan_overlap(x, extent(d, ldx), y, extent(d, d->ldy)))
        FAIL(CKL_INVALID, "add: y overlaps %s without being the same tensor", name);
    return CKL_OK;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_add_desc *d = desc;
    const ckl_add_args *x = args;
    if (d->n == 0)
        return CKL_OK;
    TRY(check_pointer(d, "a", x->a));
    TRY(check_pointer(d, "b", x->b));
    TRY(check_pointer(d, "y", x->y));
    TRY(check_overlap(d, "a", x->a, d->lda, x->y));
    return check_overlap(d, "b", x->b, d->ldb, x->y);
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

/* Launch */

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_add_args *x = args;
    map_shape s = shape_of(plan->desc);
    map_kernel k = add_kernel(plan->config);
    if (s.count == 0)
        return CKL_OK;
    const float one = 1;
    const void *pointers[] = { x->a, x->b, x->alpha ? x->alpha : &one, x->beta ? x->beta : &one, x->y };
    void *params[MAP_PARAMS_MAX];
    map_params(&k, &s, pointers, params);
    device_launch l = { .grid = { ceil_div(s.count, map_tile(&k)), 1, 1 },
                        .params = params,
                        .overlap_prologue = plan->impl->target == IR_SM90A };
    return plan->device->ops->launch(plan->device, plan->kernels[map_aligned(&k, pointers) ? 0 : 1].loaded, &l, stream);
}

static const field add_fields[] = { ADD_CONFIG(FIELD_ROW) };

#define VECTOR(called, says, lowest)                                                                                \
    {                                                                                                               \
        .name = called, .summary = says, .config_bytes = sizeof(add_config), .config = FIELD_TABLE(add_fields),     \
        .choose = choose, .admit = admit, .describe = add_vector, .kernels = 2, .target = lowest, .launch = launch, \
    }

/* The same kernel twice: only sm_90 knows launches that overlap. */
static const implementation sm90 =
    VECTOR("sm90", "the same; its start overlaps the end of the kernel before", IR_SM90A);
static const implementation vector =
    VECTOR("vector", "one tile of vectors a CTA; single elements where they end, have gaps or a pointer is not aligned",
           IR_SM80);

static const implementation *const implementations[] = { &sm90, &vector, NULL };

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
