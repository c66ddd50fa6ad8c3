/* crossentropy_test.c - crossentropy's cases, rejects and costs. */
#include "operators/crossentropy/crossentropy_lab.h"

static ckl_status prepare(void *problem)
{
    crossentropy_problem *p = problem;
    p->ldx = p->ldx ? p->ldx : p->cols;
    p->lddx = p->lddx ? p->lddx : p->cols;
    return CKL_OK;
}

static void desc_of(const void *problem, void *desc)
{
    const crossentropy_problem *p = problem;
    *(ckl_crossentropy_desc *)desc = (ckl_crossentropy_desc){
        .direction = (ckl_direction)p->direction,
        .dtype = p->dtype,
        .target = p->target,
        .rows = p->rows,
        .cols = p->cols,
        .ldx = p->ldx,
        .lddx = p->lddx,
        .reduction = (ckl_loss_reduction)p->reduction,
        .ignore_index = p->ignore_index,
    };
}

/* Losses, or their mean. */
static int64_t losses(const crossentropy_problem *p)
{
    return p->reduction == CKL_LOSS_MEAN ? 1 : p->rows;
}

static int operands(const void *problem, operand *out)
{
    const crossentropy_problem *p = problem;
    bool is_forward = p->direction == CKL_DIRECTION_FORWARD, reduced = p->reduction == CKL_LOSS_MEAN;
    operand_role made = is_forward ? OPERAND_OUT : OPERAND_IN;
    out[CROSSENTROPY_X] = (operand){ "x", OPERAND_IN, p->dtype, 2, { p->rows, p->cols }, { p->ldx, 1 }, 0, 0 };
    out[CROSSENTROPY_TARGET] =
        (operand){ "target", OPERAND_IN, p->target, 1, { p->rows }, { 1 }, (float)p->target_low, (float)(p->cols - 1) };
    out[CROSSENTROPY_LSE] = (operand){ "lse", made, CKL_F32, 1, { p->rows }, { 1 }, 1, 4 };
    if (reduced)
        out[CROSSENTROPY_COUNT] = (operand){ "count", made, CKL_F32, 1, { 1 }, { 1 }, 1, 2 };
    if (is_forward) {
        out[CROSSENTROPY_LOSS] = (operand){ "loss", OPERAND_OUT, CKL_F32, 1, { losses(p) }, { 1 }, 0, 0 };
    } else {
        out[CROSSENTROPY_DLOSS] = (operand){ "dloss", OPERAND_IN, CKL_F32, 1, { losses(p) }, { 1 }, 0, 0 };
        out[CROSSENTROPY_DX] = (operand){ "dx", OPERAND_OUT, p->dtype, 2, { p->rows, p->cols }, { p->lddx, 1 }, 0, 0 };
    }
    return CROSSENTROPY_OPERANDS;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    (void)problem;
    ckl_crossentropy_args args = { pointers[CROSSENTROPY_X],     pointers[CROSSENTROPY_TARGET],
                                   pointers[CROSSENTROPY_LOSS],  pointers[CROSSENTROPY_LSE],
                                   pointers[CROSSENTROPY_COUNT], pointers[CROSSENTROPY_DLOSS],
                                   pointers[CROSSENTROPY_DX] };
    return ckl_crossentropy_run(plan, &args, stream);
}

/* Outputs forward: loss, lse, count; backward: dx. */
static int64_t slices(const void *problem, int output)
{
    const crossentropy_problem *p = problem;
    if (p->direction == CKL_DIRECTION_BACKWARD || output == 1)
        return p->rows;
    return output == 0 ? losses(p) : 1;
}

static int64_t slice_elements(const void *problem, int output)
{
    const crossentropy_problem *p = problem;
    (void)output;
    return p->direction == CKL_DIRECTION_BACKWARD ? p->cols : 1;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    const crossentropy_problem *p = problem;
    (void)output;
    return p->direction == CKL_DIRECTION_BACKWARD ? slice * p->lddx + j : slice;
}

static double terms(const void *problem)
{
    const crossentropy_problem *p = problem;
    return (double)p->cols + (p->reduction == CKL_LOSS_MEAN ? (double)p->rows : 0);
}

static double approximation(const void *problem)
{
    (void)problem;
    return CROSSENTROPY_ERROR;
}

static double elements(const crossentropy_problem *p)
{
    return (double)p->rows * (double)p->cols;
}

static double flops(const void *problem)
{
    return 4 * elements(problem);
}

static double bytes(const void *problem)
{
    const crossentropy_problem *p = problem;
    double of_rows = (double)p->rows * (double)(ckl_dtype_bytes(p->target) + 2 * sizeof(float));
    return (p->direction == CKL_DIRECTION_FORWARD ? 1 : 2) * elements(p) * (double)ckl_dtype_bytes(p->dtype) + of_rows;
}

static const field fields[] = { CROSSENTROPY_PROBLEM(FIELD_ROW) };

static const char *const cases[] = {
    "rows=4 cols=8",
    "rows=9 cols=10 ignore_index=3                  # some rows do not count",
    "rows=9 cols=10 ignore_index=3 direction=backward",
    "rows=33 cols=1000 dtype=bf16 target=i32        # a warp a row",
    "rows=33 cols=1000 dtype=f16 direction=backward target=i32",
    "rows=5 cols=4096 dtype=f16                     # a CTA a row",
    "rows=3 cols=30001                              # odd rows, in pieces",
    "rows=3 cols=30001 dtype=bf16 direction=backward",
    "rows=2 cols=70000 dtype=bf16                   # pieces of a cluster",
    "rows=2 cols=70000 dtype=bf16 direction=backward",
    "rows=33 cols=130 reduction=mean dtype=bf16",
    "rows=2000 cols=5 reduction=mean ignore_index=2 # the mean of more rows than it has threads",
    "rows=7 cols=9 reduction=mean direction=backward ignore_index=1",
    "rows=3 cols=9 reduction=mean ignore_index=0",
    "rows=17 cols=12 target_low=-3                  # targets that are no classes",
    "rows=17 cols=12 target_low=-3 direction=backward",
    "rows=5 cols=515 dtype=bf16 misalign=1          # pointers aligned to the element only",
    "rows=5 cols=520 dtype=f16 misalign=1 direction=backward",
    "rows=9 cols=200 dtype=f16 ldx=208 lddx=216 direction=backward # strided rows, vectors kept",
    "rows=0 cols=8                                  # no rows",
    "rows=0 cols=8 reduction=mean                   # the mean of nothing",
    NULL,
};

static const test_reject rejects[] = {
    { "rows=-1 cols=8", CKL_INVALID, "crossentropy: rows=-1 is negative" },
    { "rows=4 cols=0", CKL_INVALID, "crossentropy: cols=0 is less than 1" },
    { "rows=4 cols=8 dtype=i32", CKL_INVALID, "crossentropy: dtype=i32 is none of f32, f16, bf16" },
    { "rows=4 cols=8 target=f32", CKL_INVALID, "crossentropy: target=f32 is neither i64 nor i32" },
    { "rows=4 cols=8 ldx=7", CKL_INVALID, "crossentropy: ldx=7 is smaller than cols=8" },
    { "rows=4 cols=8 impl=row config='cluster=2'", CKL_INVALID, "crossentropy row: cluster=2, a cluster has" },
    { "rows=4 cols=8 impl=row config='threads=96'", CKL_INVALID, "crossentropy row: threads=96 is no power of two" },
    { NULL, CKL_OK, NULL },
};

const operator_test crossentropy_test = {
    .op = &crossentropy_operator,
    .problem_bytes = sizeof(crossentropy_problem),
    .problem = FIELD_TABLE(fields),
    .prepare = prepare,
    .desc = desc_of,
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = crossentropy_reference,
    .terms_of = terms,
    .approximation_of = approximation,
    .flops = flops,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
