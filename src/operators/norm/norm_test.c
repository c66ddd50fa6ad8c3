/* norm_test.c - the norms' cases, rejects and costs. */
#include "cutekernellib/operators/norm.h"

#include "operators/norm/norm_lab.h"

static ckl_status prepare(norm_problem *p, bool centred)
{
    p->centred = centred;
    if (p->eps == 0)
        p->eps = 1e-5f;
    if (p->ld_in == 0)
        p->ld_in = p->cols;
    if (p->ld_out == 0)
        p->ld_out = p->cols;
    return CKL_OK;
}

static ckl_status prepare_layernorm(void *problem)
{
    return prepare(problem, true);
}

static ckl_status prepare_rmsnorm(void *problem)
{
    return prepare(problem, false);
}

static void desc_of(const void *problem, void *desc)
{
    const norm_problem *p = problem;
    *(ckl_norm_desc *)desc = (ckl_norm_desc){ .direction = (ckl_direction)p->direction,
                                              .dtype = p->dtype,
                                              .rows = p->rows,
                                              .cols = p->cols,
                                              .ld_in = p->ld_in,
                                              .ld_out = p->ld_out,
                                              .eps = p->eps,
                                              .affine = p->affine,
                                              .residual = p->residual };
}

static operand rows_operand(const norm_problem *p, const char *name, operand_role role, bool present)
{
    int64_t ld = role == OPERAND_IN ? p->ld_in : p->ld_out;
    return (operand){ name, role, present ? p->dtype : CKL_DTYPE_DEFAULT, 2, { p->rows, p->cols }, { ld, 1 }, 0, 0 };
}

static operand vector_operand(const norm_problem *p, const char *name, operand_role role, bool present)
{
    return (operand){ name, role, present ? p->dtype : CKL_DTYPE_DEFAULT, 1, { p->cols }, { 1 }, 0, 0 };
}

static operand statistic(const norm_problem *p, const char *name, operand_role role, bool present)
{
    return (operand){ name, role, present ? CKL_F32 : CKL_DTYPE_DEFAULT, 1, { p->rows }, { 1 }, 0, 0 };
}

static int forward_operands(const norm_problem *p, operand *out)
{
    out[FORWARD_X] = rows_operand(p, "x", OPERAND_IN, true);
    out[FORWARD_RESIDUAL] = rows_operand(p, "residual", OPERAND_IN, p->residual);
    out[FORWARD_GAMMA] = vector_operand(p, "gamma", OPERAND_IN, p->affine);
    out[FORWARD_BETA] = vector_operand(p, "beta", OPERAND_IN, p->affine && p->centred);
    out[FORWARD_Y] = rows_operand(p, "y", OPERAND_OUT, true);
    out[FORWARD_SUM] = rows_operand(p, "sum", OPERAND_OUT, p->residual);
    out[FORWARD_MEAN] = statistic(p, "mean", OPERAND_OUT, p->stats && p->centred);
    out[FORWARD_RSTD] = statistic(p, "rstd", OPERAND_OUT, p->stats);
    if (p->offset != 0) {
        out[FORWARD_X].low = p->offset - 1;
        out[FORWARD_X].high = p->offset + 1;
    }
    return FORWARD_RSTD + 1;
}

/* The statistics are inputs like any other: gradients are a function of all of them. */
static int backward_operands(const norm_problem *p, operand *out)
{
    out[BACKWARD_X] = rows_operand(p, "x", OPERAND_IN, true);
    out[BACKWARD_DY] = rows_operand(p, "dy", OPERAND_IN, true);
    out[BACKWARD_DSUM] = rows_operand(p, "dsum", OPERAND_IN, p->residual);
    out[BACKWARD_GAMMA] = vector_operand(p, "gamma", OPERAND_IN, p->affine);
    out[BACKWARD_MEAN] = statistic(p, "mean", OPERAND_IN, p->centred);
    out[BACKWARD_RSTD] = statistic(p, "rstd", OPERAND_IN, true);
    out[BACKWARD_DX] = rows_operand(p, "dx", OPERAND_OUT, true);
    out[BACKWARD_DX + OUTPUT_DGAMMA] = vector_operand(p, "dgamma", OPERAND_OUT, p->affine);
    out[BACKWARD_DX + OUTPUT_DBETA] = vector_operand(p, "dbeta", OPERAND_OUT, p->affine && p->centred);
    out[BACKWARD_MEAN].low = -1;
    out[BACKWARD_MEAN].high = 1;
    out[BACKWARD_RSTD].low = 0.5F;
    out[BACKWARD_RSTD].high = 2;
    return BACKWARD_DX + OUTPUT_DBETA + 1;
}

static int operands(const void *problem, operand *out)
{
    const norm_problem *p = problem;
    return p->direction == CKL_DIRECTION_FORWARD ? forward_operands(p, out) : backward_operands(p, out);
}

static ckl_norm_args args_of(const norm_problem *p, void *const *m)
{
    if (p->direction == CKL_DIRECTION_FORWARD)
        return (ckl_norm_args){ .x = m[FORWARD_X],
                                .residual = m[FORWARD_RESIDUAL],
                                .gamma = m[FORWARD_GAMMA],
                                .beta = m[FORWARD_BETA],
                                .y = m[FORWARD_Y],
                                .sum = m[FORWARD_SUM],
                                .mean = m[FORWARD_MEAN],
                                .rstd = m[FORWARD_RSTD] };
    return (ckl_norm_args){ .x = m[BACKWARD_X],
                            .dy = m[BACKWARD_DY],
                            .dsum = m[BACKWARD_DSUM],
                            .gamma = m[BACKWARD_GAMMA],
                            .mean = m[BACKWARD_MEAN],
                            .rstd = m[BACKWARD_RSTD],
                            .dx = m[BACKWARD_DX],
                            .dgamma = m[BACKWARD_DX + OUTPUT_DGAMMA],
                            .dbeta = m[BACKWARD_DX + OUTPUT_DBETA] };
}

static ckl_status run_layernorm(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    ckl_norm_args args = args_of(problem, pointers);
    return ckl_layernorm_run(plan, &args, stream);
}

static ckl_status run_rmsnorm(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    ckl_norm_args args = args_of(problem, pointers);
    return ckl_rmsnorm_run(plan, &args, stream);
}

/* Slices: rows; of a vector over columns or rows its elements. */
static bool is_matrix(const norm_problem *p, int output)
{
    return p->direction == CKL_DIRECTION_FORWARD ? output == OUTPUT_Y || output == OUTPUT_SUM : output == OUTPUT_DX;
}

static int64_t slices(const void *problem, int output)
{
    const norm_problem *p = problem;
    return p->direction == CKL_DIRECTION_FORWARD || is_matrix(p, output) ? p->rows : p->cols;
}

static int64_t slice_elements(const void *problem, int output)
{
    const norm_problem *p = problem;
    return is_matrix(p, output) ? p->cols : 1;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    const norm_problem *p = problem;
    return is_matrix(p, output) ? slice * p->ld_out + j : slice;
}

/* Sums are trees over threads: the longest chain of additions is a thread's own, over the elements it holds. */
static double terms(const void *problem)
{
    (void)problem;
    return 64;
}

/* rsqrt.approx: 2^-22.9 */
static double approximation(const void *problem)
{
    (void)problem;
    return 0x1p-22;
}

static double elements(const norm_problem *p)
{
    return (double)p->rows * (double)p->cols;
}

static double flops(const void *problem)
{
    const norm_problem *p = problem;
    return (p->direction == CKL_DIRECTION_FORWARD ? 8 : 14) * elements(p);
}

/* Forward x, y and, with a residual, residual and sum; backward x, dy, dx and dsum; gamma and the rest. */
static double bytes(const void *problem)
{
    const norm_problem *p = problem;
    bool forward = p->direction == CKL_DIRECTION_FORWARD;
    double matrices = forward ? (p->residual ? 4 : 2) : (p->residual ? 4 : 3);
    double vectors = (forward ? 1 : 2) * (p->affine ? (p->centred ? 2 : 1) : 0) * (double)p->cols;
    if (!forward && p->affine && p->centred)
        vectors -= (double)p->cols; // beta is not read
    double statistics = (forward && !p->stats ? 0 : (p->centred ? 2 : 1)) * (double)p->rows;
    return (matrices * elements(p) + vectors) * (double)ckl_dtype_bytes(p->dtype) + 4 * statistics;
}

static const field fields[] = { NORM_PROBLEM(FIELD_ROW) };

static const char *const cases[] = {
    "rows=3 cols=1                                       # one element: variance 0",
    "rows=5 cols=7 dtype=bf16                            # less than a vector of every lane",
    "rows=7 cols=115 dtype=bf16                          # hard: a row of one value, whose mean is rounded",
    "rows=37 cols=128                                    # several rows a warp, and rows missing in the last CTA",
    "rows=9 cols=768",
    "rows=9 cols=768 dtype=f16 affine=0",
    "rows=5 cols=1024 dtype=bf16 residual=1",
    "rows=5 cols=1024 residual=1 affine=0 stats=0",
    "rows=3 cols=4096 offset=1000                        # a mean of a thousand deviations",
    "rows=3 cols=4096 dtype=bf16",
    "rows=2 cols=8192 offset=1000 affine=0",
    "rows=2 cols=8192 dtype=f16",
    "rows=3 cols=8191 dtype=f16                          # odd rows: single elements",
    "rows=7 cols=1001 residual=1",
    "rows=4 cols=1000 dtype=f16 ld_in=1008 ld_out=1016   # strided rows, vectors kept",
    "rows=4 cols=1000 ld_in=1001                         # odd distance",
    "rows=6 cols=520 dtype=bf16 residual=1 misalign=1    # pointers aligned to the element only",
    "rows=2 cols=40000 dtype=bf16                        # a cluster",
    "rows=1 cols=300000 offset=1000 fill=uniform         # longer than the registers of a cluster",
    "rows=1 cols=400001 fill=uniform                     # more than that: tile by tile",
    "rows=1 cols=600000 dtype=f16 residual=1 fill=uniform",
    "rows=2 cols=300 residual=1 impl=forward config='threads=128 row_threads=128 steps=1 tiled=1'    # tile by tile",
    "rows=3 cols=3001 offset=1000 impl=forward config='threads=128 row_threads=128 vec=1 steps=4 tiled=1'",
    "rows=2 cols=5000 offset=1000 residual=1 impl=forward config='threads=512 row_threads=512 cluster=2 steps=1 "
    "tiled=1'",
    "rows=7 cols=512 impl=forward config='threads=128 row_threads=128 steps=1 exact=1'",
    "rows=2 cols=4096 impl=forward config='threads=256 row_threads=256 cluster=4 steps=1'",
    "rows=3 cols=700 impl=forward config='threads=32 row_threads=32 cluster=4 steps=2' # a cluster of warps",
    "rows=5 cols=20000 dtype=bf16                  # rows that flow: in a loop, the last piece cut short",
    "rows=7 cols=23032 dtype=bf16 residual=1       # hard: a row of one value, which the residual rounds",
    "rows=3 cols=12000 residual=1                  # with the residual's row beside",
    "rows=4 cols=20000 dtype=f16 misalign=1        # not for bulk copies",
    "rows=9 cols=2048 dtype=bf16 residual=1 impl=forward config='threads=64 row_threads=64 cluster=2 vec=8 steps=1 "
    "stages=3 "
    "residence=registers chunks=2 exact=1'",
    "rows=9 cols=1000 impl=forward config='threads=32 row_threads=32 cluster=2 vec=4 steps=2 stages=2 residence=reload "
    "exact=0'",
    "rows=20 cols=8200 dtype=bf16 residual=1 impl=forward config='threads=32 row_threads=32 cluster=16 vec=8 steps=2 "
    "stages=40 residence=ring lookahead=1 exact=0' # the next row is seen before one is written, in a loop",
    "rows=4 cols=64 eps=0.5 dtype=bf16",
    "rows=3 cols=1 direction=backward",
    "rows=300 cols=8 direction=backward                  # more rows than CTAs",
    "rows=37 cols=128 direction=backward dtype=bf16",
    "rows=19 cols=768 direction=backward residual=1",
    "rows=9 cols=768 direction=backward dtype=f16 affine=0",
    "rows=5 cols=4096 direction=backward dtype=bf16",
    "rows=3 cols=8192 direction=backward residual=1 affine=0",
    "rows=7 cols=1001 direction=backward dtype=f16",
    "rows=4 cols=1000 direction=backward dtype=f16 ld_in=1008 ld_out=1016",
    "rows=6 cols=520 direction=backward dtype=bf16 residual=1 misalign=1",
    "rows=3 cols=40000 direction=backward dtype=bf16     # a cluster",
    "rows=1 cols=300000 direction=backward fill=uniform  # longer than the registers of a cluster",
    "rows=5 cols=300 direction=backward residual=1 impl=backward config='threads=128 row_threads=128 steps=1 tiled=1'",
    "rows=700 cols=64 direction=backward impl=backward config='threads=32 row_threads=32 turns=2 early=1' # rows in "
    "turn",
    "rows=600 cols=512 direction=backward dtype=bf16 impl=backward config='turns=1 early=1'",
    "rows=4 cols=4096 direction=backward impl=backward config='threads=256 row_threads=256 cluster=4 steps=1 early=1 "
    "exact=1 "
    "stages=0 residence=reload chunks=0 ctas_per_sm=0'",
    "rows=300 cols=2000 direction=backward dtype=bf16 # rows that flow, held in registers",
    "rows=5 cols=9000 direction=backward residual=1   # held in the ring, a cluster",
    "rows=33 cols=2000 direction=backward dtype=f16 misalign=1 # not for bulk copies",
    "rows=20 cols=520 direction=backward dtype=bf16 residual=1 impl=backward config='threads=32 row_threads=32 "
    "cluster=2 "
    "vec=8 steps=1 stages=4 residence=ring chunks=2 exact=0 early=1 column_threads=128'",
    "rows=150 cols=520 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 cluster=2 vec=8 "
    "steps=1 stages=4 residence=ring chunks=2 exact=0 early=0 sums=shared turns=1' # sums in shared memory, rows in "
    "turn",
    "rows=300 cols=520 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 cluster=2 vec=8 "
    "steps=1 stages=4 residence=ring lookahead=1 chunks=2 exact=0 early=1 turns=1' # the next row is seen before one "
    "is written",
    "rows=300 cols=512 direction=backward residual=1 impl=backward config='threads=64 row_threads=64 vec=4 steps=1 "
    "stages=5 residence=ring lookahead=1 chunks=2 exact=1 sums=shared turns=1' # the same in a CTA alone",
    "rows=2 cols=200000 direction=backward dtype=f16 fill=uniform # such sums by choice",
    "rows=2 cols=262144 direction=backward fill=uniform # the same, a row in the whole ring",
    "rows=3 cols=140000 direction=backward residual=1 fill=uniform # no room for them: x and dy are read again",
    "rows=70 cols=1500 direction=backward              # CTAs of half the threads",
    "rows=0 cols=64 direction=backward                   # gradients of no rows are zero",
    "rows=0 cols=64                                      # nothing to do",
    "rows=3 cols=0                                       # no elements: statistics of nothing are NaN",
    NULL,
};

#define REJECTS(op)                                                                                       \
    {                                                                                                     \
        { "rows=-1", CKL_INVALID, op ": rows=-1 is negative" },                                           \
            { "cols=-2", CKL_INVALID, op ": cols=-2 is negative" },                                       \
            { "dtype=i32", CKL_INVALID, op ": dtype=i32 is none of f32, f16, bf16" },                     \
            { "eps=-0.5", CKL_INVALID, op ": eps=-0.5 is negative" },                                     \
            { "cols=8 ld_in=7", CKL_INVALID, op ": ld_in=7 is smaller than cols=8" },                     \
            { "cols=8 ld_out=7", CKL_INVALID, op ": ld_out=7 is smaller than cols=8" },                   \
            { "cols=8 impl=forward config='affine=0'", CKL_INVALID,                                       \
              "affine and residual must be those of the problem" },                                       \
            { "cols=8 impl=forward config='threads=96'", CKL_INVALID, "norm forward: threads=96" },       \
            { "cols=4096 impl=forward config='stages=4 residence=reload lookahead=1'", CKL_INVALID,       \
              "lookahead=1 needs residence=ring" },                                                       \
            { "cols=8192 impl=forward config='steps=1 stages=3 residence=ring lookahead=1'", CKL_INVALID, \
              "2 times 8 chunks do not fit 3 stages" },                                                   \
            { NULL, CKL_OK, NULL },                                                                       \
    }

static const test_reject layernorm_rejects[] = REJECTS("layernorm");
static const test_reject rmsnorm_rejects[] = REJECTS("rmsnorm");

#define NORM_TEST(name)                        \
    const operator_test name##_test = {        \
        .op = &name##_operator,                \
        .problem_bytes = sizeof(norm_problem), \
        .problem = FIELD_TABLE(fields),        \
        .prepare = prepare_##name,             \
        .desc = desc_of,                       \
        .operands = operands,                  \
        .run = run_##name,                     \
        .slices = slices,                      \
        .slice_elements = slice_elements,      \
        .output_index = output_index,          \
        .reference = norm_reference,           \
        .terms_of = terms,                        \
        .approximation_of = approximation,        \
        .flops = flops,                        \
        .bytes = bytes,                        \
        .cases = cases,                        \
        .rejects = name##_rejects,             \
    }

NORM_TEST(layernorm);
NORM_TEST(rmsnorm);
