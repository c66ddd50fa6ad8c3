/* norm_test.c - the definition of the norms in double, their problem lines, cases and rejects. */
#include "cutekernellib/operators/norm.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"

typedef struct norm_problem {
    ckl_norm_desc desc;
    bool stats;
    float offset;
    bool centred; // layernorm: the mean is subtracted, and there is a beta
} norm_problem;

#define NORM_DESC(X, owner)                                                                           \
    X(owner, int64_t, rows, "64", "", "rows")                                                         \
    X(owner, int64_t, cols, "1024", "", "elements of a row")                                          \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")       \
    X(owner, choice, direction, "forward", "forward backward", "the norm or its gradients")           \
    X(owner, bool, affine, "1", "0 1", "with gamma, and beta where there is one")                     \
    X(owner, bool, residual, "0", "0 1", "forward adds a residual first, backward its gradient last") \
    X(owner, float, eps, "0", "", "forward: added to the variance; 0: 1e-5")                          \
    X(owner, int64_t, ldx, "0", "", "elements between rows of x, residual, dy and dsum; 0: cols")     \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y, sum and dx; 0: cols")

static const field fields[] = {
    NORM_DESC(FIELD_NESTED, (norm_problem, desc))                                   //
    FIELD_ROW(norm_problem, bool, stats, "1", "0 1", "forward saves mean and rstd") //
    FIELD_ROW(norm_problem, float, offset, "0", "",                                 //
              "x is random in offset-1..offset+1: a large mean is cancellation")    //
};

static ckl_status prepare_layernorm(void *problem)
{
    ((norm_problem *)problem)->centred = true;
    return layernorm_operator.check(problem);
}

/* Operands and outputs of both directions. */
enum { FORWARD_X, FORWARD_RESIDUAL, FORWARD_GAMMA, FORWARD_BETA, FORWARD_Y, FORWARD_SUM, FORWARD_MEAN, FORWARD_RSTD };
enum { BACKWARD_X, BACKWARD_DY, BACKWARD_DSUM, BACKWARD_GAMMA, BACKWARD_MEAN, BACKWARD_RSTD, BACKWARD_DX };
enum { OUTPUT_Y, OUTPUT_SUM, OUTPUT_MEAN, OUTPUT_RSTD };
enum { OUTPUT_DX, OUTPUT_DGAMMA, OUTPUT_DBETA };

static operand rows_operand(const norm_problem *p, const char *name, operand_role role, bool present)
{
    const ckl_norm_desc *d = &p->desc;
    return operand_matrix(name, role, present ? d->dtype : CKL_DTYPE_DEFAULT, d->rows, d->cols,
                          role == OPERAND_IN ? d->ldx : d->ldy);
}

/* An output is a matrix of one column: a slice of it is one element. */
static operand vector_operand(const char *name, operand_role role, ckl_dtype dtype, int64_t elements, bool present)
{
    dtype = present ? dtype : CKL_DTYPE_DEFAULT;
    return role == OPERAND_IN ? operand_vector(name, role, dtype, elements)
                              : operand_matrix(name, role, dtype, elements, 1, 1);
}

static int forward_operands(const norm_problem *p, operand *out)
{
    out[FORWARD_X] = rows_operand(p, "x", OPERAND_IN, true);
    out[FORWARD_RESIDUAL] = rows_operand(p, "residual", OPERAND_IN, p->desc.residual);
    out[FORWARD_GAMMA] = vector_operand("gamma", OPERAND_IN, p->desc.dtype, p->desc.cols, p->desc.affine);
    out[FORWARD_BETA] = vector_operand("beta", OPERAND_IN, p->desc.dtype, p->desc.cols, p->desc.affine && p->centred);
    out[FORWARD_Y] = rows_operand(p, "y", OPERAND_OUT, true);
    out[FORWARD_SUM] = rows_operand(p, "sum", OPERAND_OUT, p->desc.residual);
    out[FORWARD_MEAN] = vector_operand("mean", OPERAND_OUT, CKL_F32, p->desc.rows, p->stats && p->centred);
    out[FORWARD_RSTD] = vector_operand("rstd", OPERAND_OUT, CKL_F32, p->desc.rows, p->stats);
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
    out[BACKWARD_DSUM] = rows_operand(p, "dsum", OPERAND_IN, p->desc.residual);
    out[BACKWARD_GAMMA] = vector_operand("gamma", OPERAND_IN, p->desc.dtype, p->desc.cols, p->desc.affine);
    out[BACKWARD_MEAN] = vector_operand("mean", OPERAND_IN, CKL_F32, p->desc.rows, p->centred);
    out[BACKWARD_RSTD] = vector_operand("rstd", OPERAND_IN, CKL_F32, p->desc.rows, true);
    out[BACKWARD_DX] = rows_operand(p, "dx", OPERAND_OUT, true);
    out[BACKWARD_DX + OUTPUT_DGAMMA] =
        vector_operand("dgamma", OPERAND_OUT, p->desc.dtype, p->desc.cols, p->desc.affine);
    out[BACKWARD_DX + OUTPUT_DBETA] =
        vector_operand("dbeta", OPERAND_OUT, p->desc.dtype, p->desc.cols, p->desc.affine && p->centred);
    out[BACKWARD_MEAN].low = -1;
    out[BACKWARD_MEAN].high = 1;
    out[BACKWARD_RSTD].low = 0.5F;
    out[BACKWARD_RSTD].high = 2;
    return BACKWARD_DX + OUTPUT_DBETA + 1;
}

static int operands(const void *problem, operand *out)
{
    const norm_problem *p = problem;
    return p->desc.direction == CKL_DIRECTION_FORWARD ? forward_operands(p, out) : backward_operands(p, out);
}

static ckl_norm_args args_of(const norm_problem *p, void *const *m)
{
    if (p->desc.direction == CKL_DIRECTION_FORWARD)
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

typedef struct statistics {
    double mean, rstd;
    double deviation; // mean of |h - mean|: the scale of the mean's error
} statistics;

/* What is normalised: x, or x + residual as it is rounded to sum. */
static double normalised(const norm_problem *p, void *const *host, int64_t row, int64_t column)
{
    int64_t i = row * p->desc.ldx + column;
    double x = dtype_read(p->desc.dtype, host[FORWARD_X], i), rounded = 0;
    if (!p->desc.residual)
        return x;
    dtype_write(p->desc.dtype, &rounded, 0, (float)x + (float)dtype_read(p->desc.dtype, host[FORWARD_RESIDUAL], i));
    return dtype_read(p->desc.dtype, &rounded, 0);
}

static statistics statistics_of(const norm_problem *p, void *const *host, int64_t row)
{
    double n = (double)p->desc.cols;
    statistics s = { 0 };
    for (int64_t c = 0; c < p->desc.cols; c++)
        s.mean += p->centred ? normalised(p, host, row, c) : 0;
    s.mean /= n;
    double squares = 0, differences = 0;
    for (int64_t c = 0; c < p->desc.cols; c++) {
        double x = normalised(p, host, row, c) - s.mean;
        squares += x * x;
        differences += x;
        s.deviation += p->centred ? fabs(x) / n : 0;
    }
    s.mean += p->centred ? differences / n : 0; // of a row with an infinity: NaN
    s.rstd = 1 / sqrt(squares / n + p->desc.eps);
    return s;
}

static void forward(const norm_problem *p, void *const *host, int output, reference_slice out)
{
    statistics s = statistics_of(p, host, out.row);
    if (output == OUTPUT_MEAN || output == OUTPUT_RSTD) {
        out.value[0] = output == OUTPUT_MEAN ? s.mean : s.rstd;
        out.magnitude[0] = output == OUTPUT_MEAN ? fabs(s.mean) + s.deviation : s.rstd;
        return;
    }
    for (int64_t c = 0; c < p->desc.cols; c++) {
        double h = normalised(p, host, out.row, c);
        double scale = p->desc.affine ? s.rstd * dtype_read(p->desc.dtype, host[FORWARD_GAMMA], c) : s.rstd;
        double beta = p->desc.affine && p->centred ? dtype_read(p->desc.dtype, host[FORWARD_BETA], c) : 0;
        bool sum = output == OUTPUT_SUM;
        out.value[c] = sum ? h : (h - s.mean) * scale + beta;
        out.magnitude[c] = sum ? fabs(h) : (fabs(h - s.mean) + s.deviation) * fabs(scale) + fabs(beta);
    }
}

/* One element of the backward pass. */
typedef struct element {
    double dy, g;
    double n, n_magnitude; // the normalised x, and the sum of its terms
} element;

static element element_at(const norm_problem *p, void *const *host, int64_t row, int64_t column)
{
    double mean = p->centred ? dtype_read(CKL_F32, host[BACKWARD_MEAN], row) : 0;
    double rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], row);
    double x = dtype_read(p->desc.dtype, host[BACKWARD_X], row * p->desc.ldx + column);
    double dy = dtype_read(p->desc.dtype, host[BACKWARD_DY], row * p->desc.ldx + column);
    double gamma = p->desc.affine ? dtype_read(p->desc.dtype, host[BACKWARD_GAMMA], column) : 1;
    return (element){ dy, dy * gamma, (x - mean) * rstd, (fabs(x) + fabs(mean)) * fabs(rstd) };
}

static void backward_row(const norm_problem *p, void *const *host, reference_slice out)
{
    const int64_t row = out.row;
    double rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], row), cols = (double)p->desc.cols;
    double gn = 0, g = 0, gn_magnitude = 0, g_magnitude = 0;
    for (int64_t c = 0; c < p->desc.cols; c++) {
        element e = element_at(p, host, row, c);
        gn += e.g * e.n / cols;
        gn_magnitude += fabs(e.g) * e.n_magnitude / cols;
        g += p->centred ? e.g / cols : 0;
        g_magnitude += p->centred ? fabs(e.g) / cols : 0;
    }
    for (int64_t c = 0; c < p->desc.cols; c++) {
        element e = element_at(p, host, row, c);
        double dsum = p->desc.residual ? dtype_read(p->desc.dtype, host[BACKWARD_DSUM], row * p->desc.ldx + c) : 0;
        out.value[c] = (e.g - e.n * gn - g) * rstd + dsum;
        out.magnitude[c] = (fabs(e.g) + e.n_magnitude * gn_magnitude + g_magnitude) * fabs(rstd) + fabs(dsum);
    }
}

static void backward_column(const norm_problem *p, void *const *host, int output, reference_slice out)
{
    out.value[0] = out.magnitude[0] = 0;
    for (int64_t r = 0; r < p->desc.rows; r++) {
        element e = element_at(p, host, r, out.row);
        out.value[0] += output == OUTPUT_DGAMMA ? e.dy * e.n : e.dy;
        out.magnitude[0] += fabs(e.dy) * (output == OUTPUT_DGAMMA ? e.n_magnitude : 1);
    }
}

/* A slice is a row of a matrix, or an element of a vector. */
static void reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const norm_problem *p = problem;
    (void)slice;
    if (p->desc.direction == CKL_DIRECTION_FORWARD)
        forward(p, host, output, out);
    else if (output == OUTPUT_DX)
        backward_row(p, host, out);
    else
        backward_column(p, host, output, out);
}

/* 8 or 14 operations an element, which is what the reference costs too. */
static double flops(const void *problem)
{
    const ckl_norm_desc *d = problem;
    return (d->direction == CKL_DIRECTION_FORWARD ? 8 : 14) * (double)d->rows * (double)d->cols;
}

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
    "rows=4 cols=1000 dtype=f16 ldx=1008 ldy=1016   # strided rows, vectors kept",
    "rows=4 cols=1000 ldx=1001                         # odd distance",
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
    "rows=5 cols=20000 dtype=bf16                  # rows that flow: in a loop, the last chunk cut short",
    "rows=7 cols=23032 dtype=bf16 residual=1       # hard: a row of one value, which the residual rounds",
    "rows=3 cols=12000 residual=1                  # with the residual's row beside",
    "rows=4 cols=20000 dtype=f16 misalign=1        # not for bulk copies",
    "rows=9 cols=2048 dtype=bf16 residual=1 impl=forward config='threads=64 row_threads=64 cluster=2 vec=8 steps=1 "
    "stages=3 residence=registers chunks=2 exact=1'",
    "rows=9 cols=1000 impl=forward config='threads=32 row_threads=32 cluster=2 vec=4 steps=2 stages=2 "
    "residence=reload exact=0'",
    "rows=20 cols=8200 dtype=bf16 residual=1 impl=forward config='threads=32 row_threads=32 cluster=16 vec=8 "
    "steps=2 stages=40 residence=ring lookahead=1 exact=0' # the next row is read before one is written, in a loop",
    "rows=4 cols=64 eps=0.5 dtype=bf16",
    "rows=3 cols=1 direction=backward",
    "rows=300 cols=8 direction=backward                  # more rows than CTAs",
    "rows=37 cols=128 direction=backward dtype=bf16",
    "rows=19 cols=768 direction=backward residual=1",
    "rows=9 cols=768 direction=backward dtype=f16 affine=0",
    "rows=5 cols=4096 direction=backward dtype=bf16",
    "rows=3 cols=8192 direction=backward residual=1 affine=0",
    "rows=7 cols=1001 direction=backward dtype=f16",
    "rows=4 cols=1000 direction=backward dtype=f16 ldx=1008 ldy=1016",
    "rows=6 cols=520 direction=backward dtype=bf16 residual=1 misalign=1",
    "rows=3 cols=40000 direction=backward dtype=bf16     # a cluster",
    "rows=1 cols=300000 direction=backward fill=uniform  # longer than the registers of a cluster",
    "rows=5 cols=300 direction=backward residual=1 impl=backward config='threads=128 row_threads=128 steps=1 tiled=1'",
    "rows=700 cols=64 direction=backward impl=backward config='threads=32 row_threads=32 persistent_ctas=2 "
    "prefetch=1' # persistent CTAs",
    "rows=600 cols=512 direction=backward dtype=bf16 impl=backward config='persistent_ctas=1 prefetch=1'",
    "rows=4 cols=4096 direction=backward impl=backward config='threads=256 row_threads=256 cluster=4 steps=1 "
    "prefetch=1 exact=1 stages=0 residence=reload chunks=0 ctas_per_sm=0'",
    "rows=300 cols=2000 direction=backward dtype=bf16 # rows that flow, held in registers",
    "rows=5 cols=9000 direction=backward residual=1   # held in the ring, a cluster",
    "rows=33 cols=2000 direction=backward dtype=f16 misalign=1 # not for bulk copies",
    "rows=20 cols=520 direction=backward dtype=bf16 residual=1 impl=backward config='threads=32 row_threads=32 "
    "cluster=2 vec=8 steps=1 stages=4 residence=ring chunks=2 exact=0 hold_gamma=1 column_threads=128'",
    "rows=150 cols=520 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 cluster=2 "
    "vec=8 steps=1 stages=4 residence=ring chunks=2 exact=0 hold_gamma=0 dgamma_in_smem=1 persistent_ctas=1' # "
    "sums in shared memory, persistent CTAs",
    "rows=300 cols=520 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 cluster=2 "
    "vec=8 steps=1 stages=4 residence=ring lookahead=1 chunks=2 exact=0 hold_gamma=1 persistent_ctas=1' # the next "
    "row is read before one is written",
    "rows=300 cols=512 direction=backward residual=1 impl=backward config='threads=64 row_threads=64 vec=4 steps=1 "
    "stages=5 residence=ring lookahead=1 chunks=2 exact=1 dgamma_in_smem=1 persistent_ctas=1' # the same in a CTA "
    "alone",
    "rows=2 cols=200000 direction=backward dtype=f16 fill=uniform # such sums by choice",
    "rows=2 cols=262144 direction=backward fill=uniform # the same, a row fills the ring",
    "rows=3 cols=140000 direction=backward residual=1 fill=uniform # no room for them: x and dy are read again",
    "rows=70 cols=1500 direction=backward              # CTAs of half the threads",
    "rows=0 cols=64 direction=backward                   # gradients of no rows are zero",
    "rows=0 cols=64                                      # nothing to do",
    "rows=3 cols=0                                       # no elements: statistics of nothing are NaN",
    NULL,
};

#define REJECTS(op)                                                                                          \
    {                                                                                                        \
        { "rows=-1", CKL_INVALID, op ": rows=-1 is negative" },                                              \
            { "cols=-2", CKL_INVALID, op ": cols=-2 is negative" },                                          \
            { "dtype=i32", CKL_INVALID, op ": dtype=i32 is none of f32, f16, bf16" },                        \
            { "eps=-0.5", CKL_INVALID, op ": eps=-0.5 is negative" },                                        \
            { "cols=8 ldx=7", CKL_INVALID, op ": ldx=7 is smaller than cols=8" },                            \
            { "cols=8 ldy=7", CKL_INVALID, op ": ldy=7 is smaller than cols=8" },                            \
            { "cols=8 impl=forward config='affine=0'", CKL_INVALID,                                          \
              "affine and residual must be those of the problem" },                                          \
            { "cols=8 impl=forward config='threads=96'", CKL_INVALID, "norm forward: threads=96" },          \
            { "cols=4096 impl=forward config='stages=4 residence=reload lookahead=1'", CKL_INVALID,          \
              "lookahead=1 needs residence=ring" },                                                          \
            { "cols=8192 impl=forward config='steps=1 stages=3 residence=ring lookahead=1'", CKL_INVALID,    \
              "2 times 8 chunks do not fit 3 stages" },                                                      \
            { "direction=backward eps=0.5", CKL_INVALID, op ": eps=0.5 is not part of a backward problem" }, \
            { "cols=20000 direction=backward impl=backward config='chunks=0 residence=reload lookahead=0'",  \
              CKL_INVALID, "hold_gamma=1 and dgamma_in_smem=1 need chunks=" },                               \
            { NULL, CKL_OK, NULL },                                                                          \
    }

static const test_reject layernorm_rejects[] = REJECTS("layernorm");
static const test_reject rmsnorm_rejects[] = REJECTS("rmsnorm");

/* Sums are trees over threads: the longest chain of additions is a thread's own. rsqrt.approx: 2^-22.9. */
#define NORM_TEST(name, prepares)              \
    const operator_test name##_test = {        \
        .op = &name##_operator,                \
        .problem_bytes = sizeof(norm_problem), \
        .problem = FIELD_TABLE(fields),        \
        .prepare = prepares,                   \
        .operands = operands,                  \
        .run = run_##name,                     \
        .reference = reference,                \
        .terms = 64,                           \
        .approximation = 0x1p-22,              \
        .flops = flops,                        \
        .cases = cases,                        \
        .rejects = name##_rejects,             \
    }

NORM_TEST(layernorm, prepare_layernorm);
NORM_TEST(rmsnorm, NULL);
