/* add.c - y = alpha*a + beta*b: the fields of a problem, its tensors, and what an element is. */
#include "cute/kernel.h"
#include "operators/add/add_problem.h"
#include "operators/operators.h"
#include "skeletons/map_launch.h"

#define ADD_DESC(X, owner)                                                  \
    X(owner, int64_t, n, "4096", "", "elements of a row")                   \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of a, b and y") \
    X(owner, int64_t, rows, "1", "?1..", "rows")                            \
    X(owner, int64_t, lda, "0", "", "elements between rows of a; 0: n")     \
    X(owner, int64_t, ldb, "0", "", "elements between rows of b; 0: n")     \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y; 0: n")

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
static ckl_status view(const void *desc, void *out)
{
    const ckl_add_desc *d = desc;
    map_problem *p = out;
    *p = (map_problem){ .op = "add",
                        .shape = { .rank = 2,
                                   .operands = 5,
                                   .size = { d->rows, d->n },
                                   .stride = { { d->lda, 1 }, { d->ldb, 1 }, { 0 }, { 0 }, { d->ldy, 1 } } },
                        .kernel = { .inputs = 4,
                                    .dtype = { d->dtype, d->dtype, F32, F32, d->dtype },
                                    .scalar = { [2] = true, [3] = true },
                                    .compute = F32,
                                    .config.expr = "" } };
    map_simplify(&p->shape);
    return CKL_OK;
}

static val combine(const val *inputs, void *user)
{
    val a = inputs[0], b = inputs[1], alpha = inputs[2], beta = inputs[3];
    (void)user;
    return fma(alpha, a, mul(beta, b));
}

static void describe(const void *config, int kernel)
{
    map_describe(map_kernel_of(config), kernel, combine, NULL);
}

static void pointers_of(const void *args, const void **pointers)
{
    static const float one = 1;
    const ckl_add_args *x = args;
    pointers[0] = x->a;
    pointers[1] = x->b;
    pointers[2] = x->alpha ? x->alpha : &one;
    pointers[3] = x->beta ? x->beta : &one;
    pointers[4] = x->y;
}

static const field desc_fields[] = { ADD_DESC(FIELD_ROW, ckl_add_desc) };
static const field fields[] = {
    ADD_DESC(FIELD_NESTED, (add_problem, desc))                  //
    FIELD_ROW(add_problem, float, alpha, "1", "", "factor of a") //
    FIELD_ROW(add_problem, float, beta, "1", "", "factor of b")  //
};
MAP_IMPLEMENTATIONS(describe);

OPERATOR_OF_VIEW(add, add, map_problem, "y = alpha*a + beta*b", .numbers = "alpha beta");
OPERATOR_LINE(add, add_problem, NULL);
