/* add_test.c - the definition of add in double, its problem line, cases and rejects. */
#include "cutekernellib/operators/add.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"

typedef struct add_problem {
    ckl_add_desc desc;
    float alpha, beta;
} add_problem;

#define ADD_DESC(X, owner)                                                  \
    X(owner, int64_t, n, "4096", "", "elements of a row")                   \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of a, b and y") \
    X(owner, int64_t, rows, "1", "", "rows")                                \
    X(owner, int64_t, lda, "0", "", "elements between rows of a; 0: n")     \
    X(owner, int64_t, ldb, "0", "", "elements between rows of b; 0: n")     \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y; 0: n")

static const field fields[] = {
    ADD_DESC(FIELD_NESTED, (add_problem, desc))                  //
    FIELD_ROW(add_problem, float, alpha, "1", "", "factor of a") //
    FIELD_ROW(add_problem, float, beta, "1", "", "factor of b")  //
};

static int operands(const void *problem, operand *out)
{
    const ckl_add_desc *d = problem;
    out[0] = operand_matrix("a", OPERAND_IN, d->dtype, d->rows, d->n, d->lda);
    out[1] = operand_matrix("b", OPERAND_IN, d->dtype, d->rows, d->n, d->ldb);
    out[2] = operand_matrix("y", OPERAND_OUT, d->dtype, d->rows, d->n, d->ldy);
    out[0].hard_max = out[1].hard_max = 0x1p125; // products with small factors stay in f32
    return 3;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    const add_problem *p = problem;
    ckl_add_args args = { pointers[0], pointers[1], pointers[2], &p->alpha, &p->beta };
    return ckl_add_run(plan, &args, stream);
}

static void reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const add_problem *p = problem;
    (void)output, (void)slice;
    for (int64_t i = 0; i < out.count; i++) {
        double a = p->alpha * dtype_read(p->desc.dtype, host[0], out.row * p->desc.lda + out.first + i);
        double b = p->beta * dtype_read(p->desc.dtype, host[1], out.row * p->desc.ldb + out.first + i);
        out.value[i] = a + b;
        out.magnitude[i] = fabs(a) + fabs(b);
    }
}

static const char *const cases[] = {
    "n=1 dtype=f32                                # one element",
    "n=1 dtype=f16",
    "n=1 dtype=bf16",
    "n=31 dtype=f32                               # less than a vector of every thread",
    "n=31 dtype=f16",
    "n=31 dtype=bf16",
    "n=4097 dtype=f32                             # a tail of one",
    "n=4097 dtype=f16",
    "n=4097 dtype=bf16",
    "n=2^20+3 dtype=f32                           # many CTAs",
    "n=2^20+3 dtype=f16",
    "n=2^20+3 dtype=bf16",
    "n=2^17+3 dtype=bf16 misalign=1               # and all of them by single elements",
    "n=4099 dtype=f16 misalign=1                  # pointers aligned to the element only",
    "n=1024 dtype=f32 misalign=3",
    "n=1000 rows=7 dtype=f16 lda=1008 ldy=1016    # strided rows, vectors kept",
    "n=129 rows=33 dtype=bf16 lda=131 ldb=130     # odd pitches: single elements",
    "n=1001 rows=3 dtype=f16 lda=1008 ldb=1008 ldy=1008 # vectors in the pitch, none in the length",
    "n=4096 rows=3 dtype=f32                      # dense rows: one long row",
    "n=513 dtype=f32 alpha=0.5 beta=-2            # scaled",
    "n=777 dtype=bf16 alpha=0 beta=1",
    "n=0 dtype=f32                                # nothing to do",
    NULL,
};

static const test_reject rejects[] = {
    { "n=-1 dtype=f32", CKL_INVALID, "add: n=-1 is negative" },
    { "n=8 rows=-2 dtype=f32", CKL_INVALID, "add: rows=-2 is negative" },
    { "n=8 dtype=i32", CKL_INVALID, "add: dtype=i32 is none of f32, f16, bf16" },
    { "n=8 rows=2 lda=7 dtype=f32", CKL_INVALID, "add: lda=7 is smaller than n=8" },
    { "n=8 rows=2 ldb=7 dtype=f32", CKL_INVALID, "add: ldb=7 is smaller than n=8" },
    { "n=8 rows=2 ldy=7 dtype=f32", CKL_INVALID, "add: ldy=7 is smaller than n=8" },
    { "n=8 dtype=f32 impl=vector config='vec=3'", CKL_INVALID, "add vector: vec=3 must be a power of two" },
    { "n=8 dtype=f32 impl=vector config='threads=100'", CKL_INVALID,
      "add vector: threads=100 must be a multiple of 32" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(add, .run = run, .elements_alone = true, .reference = reference, .terms = 2);
