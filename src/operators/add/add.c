/* add.c - y = alpha*a + beta*b: validation, choice of kernel, launch. */
#include "cutekernellib/operators/add.h"

#include "operators/add/add_config.h"
#include "operators/operators.h"
#include "skeletons/map_launch.h"

static ckl_status check(void *desc)
{
    ckl_add_desc *d = desc;
    TRY(plan_check_pitch("add", "lda", &d->lda, "n", d->n));
    TRY(plan_check_pitch("add", "ldb", &d->ldb, "n", d->n));
    return plan_check_pitch("add", "ldy", &d->ldy, "n", d->n);
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_add_desc *d = desc;
    t[0] = plan_matrix("a", d->dtype, d->rows, d->n, d->lda);
    t[1] = plan_matrix("b", d->dtype, d->rows, d->n, d->ldb);
    t[2] = plan_output(plan_matrix("y", d->dtype, d->rows, d->n, d->ldy));
    return 3;
}

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

static ckl_status describe_problem(const void *desc, add_config *c)
{
    c->dtype = ((const ckl_add_desc *)desc)->dtype;
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const add_config *c = config;
    if (c->dtype != ((const ckl_add_desc *)desc)->dtype)
        FAIL(CKL_INVALID, "add vector: dtype=%s is not that of the problem", ckl_dtype_name(c->dtype));
    return map_admit("add vector", add_kernel(c), shape_of(desc), device);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    static const float one = 1;
    const ckl_add_args *x = args;
    const void *pointers[] = { x->a, x->b, x->alpha ? x->alpha : &one, x->beta ? x->beta : &one, x->y };
    return map_launch(plan, add_kernel(plan->config), shape_of(plan->desc), pointers, stream);
}

static const field desc_fields[] = { ADD_DESC(FIELD_ROW, ckl_add_desc) };
static const field fields[] = {
    ADD_DESC(FIELD_NESTED, (add_problem, desc))                  //
    FIELD_ROW(add_problem, float, alpha, "1", "", "factor of a") //
    FIELD_ROW(add_problem, float, beta, "1", "", "factor of b")  //
};
static const field config_fields[] = { MAP_CONFIG(FIELD_NESTED, (add_config, map)) ADD_CONFIG(FIELD_ROW, add_config) };
MAP_IMPLEMENTATIONS(add, add_describe);

OPERATOR(add, add, "y = alpha*a + beta*b", .numbers = "alpha beta");
OPERATOR_LINE(add, add_problem, NULL);
