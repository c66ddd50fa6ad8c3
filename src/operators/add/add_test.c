/* add_test.c - the definition of add in double, its cases and rejects. */
#include <math.h>

#include "base/dtype.h"
#include "operators/add/add_problem.h"
#include "operators/operators.h"

/* Products with small factors stay in f32. */
static int operands(const void *problem, operand *all)
{
    const add_problem *p = problem;
    all[0].hard_max = all[1].hard_max = 0x1p125;
    all[3] = operand_number("alpha", &p->alpha);
    all[4] = operand_number("beta", &p->beta);
    return 5;
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const add_problem *p = problem;
    for (int64_t i = 0; i < out.count; i++) {
        double a = p->alpha * dtype_read(p->desc.dtype, host[0], out.row * p->desc.lda + out.first + i);
        double b = p->beta * dtype_read(p->desc.dtype, host[1], out.row * p->desc.ldb + out.first + i);
        out.value[i] = a + b;
        out.magnitude[i] = fabs(a) + fabs(b);
    }
}

static const char *const cases[] = {
    "n=1 dtype=f32                                # one element",
    "n=1 dtype=bf16",
    "n=31 dtype=f32                               # less than a vector of every thread",
    "n=4097 dtype=f32                             # a tail of one",
    "n=4097 dtype=f16",
    "n=4097 dtype=bf16",
    "n=2^18+3 dtype=f32 # many CTAs",
    "n=2^17+3 dtype=bf16 misalign=1               # and all of them by single elements",
    "n=4099 dtype=f16 misalign=1                  # pointers aligned to the element only",
    "n=1024 dtype=f32 misalign=3",
    "n=1000 rows=7 dtype=f16 lda=1008 ldy=1016    # strided rows, vectors kept",
    "n=129 rows=33 dtype=bf16 lda=131 ldb=130     # odd pitches: cut vectors, rows of half a warp",
    "n=31 rows=33 dtype=bf16 lda=33 ldb=35        # less than four vectors: single elements",
    "n=264 rows=37 dtype=f16 lda=265 ldy=272      # one input is cut",
    "n=1152 rows=9 dtype=bf16 lda=1153 ldb=1155 ldy=1157 # rows of a warp",
    "n=1000 rows=5 dtype=f16 lda=1001 misalign=5  # of a CTA; all pointers off by as much",
    "n=5003 rows=3 dtype=f16 lda=5004 ldb=5005    # several tiles a row",
    "n=700 rows=3 dtype=f16 lda=701 ldb=702 misalign=1 stagger=1 # each pointer off by something else",
    "n=1001 rows=3 dtype=f16 lda=1008 ldb=1008 ldy=1008 # vectors in the pitch, none in the length",
    "n=4096 rows=3 dtype=f32                      # dense rows: one long row",
    "n=513 dtype=f32 alpha=0.5 beta=-2            # scaled",
    "n=777 dtype=bf16 alpha=0 beta=1",
    "n=0 dtype=f32                                # nothing to do",
    "n=0 rows=2^62 ldy=2^62",
    NULL,
};

static const char *const population[] = {
    "n={length} dtype={f32|f16|bf16}{|| alpha=0.5 beta=-2}",
    "n={c:hidden} rows={tokens} lda={c}+{0|8|64|1} ldy={c}+{0|0|8} dtype={f32|f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "n=-1 dtype=f32", CKL_INVALID, "add: n=-1 is negative" },
    { "n=8 rows=0", CKL_INVALID, "add: rows=0 is as if it were not given: leave it out" },
    { "n=8 rows=-2 dtype=f32", CKL_INVALID, "add: rows=-2 is negative" },
    { "n=8 dtype=i32", CKL_INVALID, "add: dtype=i32 is none of f32, f16, bf16" },
    { "n=8 rows=2 lda=7 dtype=f32", CKL_INVALID, "add: lda=7 is smaller than n=8" },
    { "n=8 rows=2 ldb=7 dtype=f32", CKL_INVALID, "add: ldb=7 is smaller than n=8" },
    { "n=8 rows=2 ldy=7 dtype=f32", CKL_INVALID, "add: ldy=7 is smaller than n=8" },
    { "n=2^62 rows=4", CKL_INVALID,
      "add: a of 4x4611686018427387904 elements, strides 4611686018427387904x1, spans more" },
    { "n=8 rows=2 ldy=2^62", CKL_INVALID,
      "add: y of 2x8 elements, strides 4611686018427387904x1, spans more than 2^56" },
    { "n=8 alpha=", CKL_INVALID, "add: alpha= is not a number" },
    { "n=8 alpha=1e400", CKL_INVALID, "add: alpha=1e400 is not a number" },
    { "n=99999999999999999999", CKL_INVALID, "add: n=99999999999999999999 is not an integer" },
    { "n=8 dtype=f32 impl=vector config='threads=100'", CKL_INVALID, "add vector: threads=100 is no multiple of 32" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(add, .operands = operands, .elements_alone = true, .reference = reference, .terms = 2);
