/* add_test.c - add's cases, rejects and costs. */
#include "cutekernellib/operators/add.h"

#include "operators/add/add_lab.h"

enum { SLICE = 4096 }; // elements compared at a time where rows are multiples of it

static ckl_status prepare(void *problem)
{
    add_problem *p = problem;
    int64_t *pitches[] = { &p->lda, &p->ldb, &p->ldy };
    for (int i = 0; i < COUNT_OF(pitches); i++)
        if (*pitches[i] == 0)
            *pitches[i] = p->n;
    p->slice = p->n > SLICE && p->n % SLICE == 0 ? SLICE : p->n;
    return CKL_OK;
}

static void desc_of(const void *problem, void *desc)
{
    const add_problem *p = problem;
    *(ckl_add_desc *)desc =
        (ckl_add_desc){ .dtype = p->dtype, .n = p->n, .rows = p->rows, .lda = p->lda, .ldb = p->ldb, .ldy = p->ldy };
}

static int operands(const void *problem, operand *out)
{
    const add_problem *p = problem;
    out[0] = (operand){ "a", OPERAND_IN, p->dtype, 2, { p->rows, p->n }, { p->lda, 1 }, 0, 0 };
    out[1] = (operand){ "b", OPERAND_IN, p->dtype, 2, { p->rows, p->n }, { p->ldb, 1 }, 0, 0 };
    out[2] = (operand){ "y", OPERAND_OUT, p->dtype, 2, { p->rows, p->n }, { p->ldy, 1 }, 0, 0 };
    return 3;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    const add_problem *p = problem;
    ckl_add_args args = { pointers[0], pointers[1], pointers[2], &p->alpha, &p->beta };
    return ckl_add_run(plan, &args, stream);
}

static int64_t slices(const void *problem, int output)
{
    const add_problem *p = problem;
    (void)output;
    return p->n ? p->rows * (p->n / p->slice) : 0;
}

static int64_t slice_elements(const void *problem, int output)
{
    (void)output;
    return ((const add_problem *)problem)->slice;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    const add_problem *p = problem;
    (void)output;
    return add_slice_start(p, slice, p->ldy) + j;
}

static double terms(const void *problem)
{
    (void)problem;
    return 2;
}

static double exact(const void *problem)
{
    (void)problem;
    return 0;
}

static double elements(const void *problem)
{
    const add_problem *p = problem;
    return (double)p->rows * (double)p->n;
}

static double flops(const void *problem)
{
    return 3 * elements(problem);
}

static double bytes(const void *problem)
{
    return 3 * elements(problem) * (double)ckl_dtype_bytes(((const add_problem *)problem)->dtype);
}

static const field fields[] = { ADD_PROBLEM(FIELD_ROW) };

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
    { "n=8 dtype=f32 impl=vector config='vec=3'", CKL_INVALID, "add vector: vec=3 must be a power of two" },
    { "n=8 dtype=f32 impl=vector config='threads=100'", CKL_INVALID,
      "add vector: threads=100 must be a multiple of 32" },
    { NULL, CKL_OK, NULL },
};

const operator_test add_test = {
    .op = &add_operator,
    .problem_bytes = sizeof(add_problem),
    .problem = FIELD_TABLE(fields),
    .prepare = prepare,
    .desc = desc_of,
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = add_reference,
    .terms_of = terms,
    .approximation_of = exact,
    .flops = flops,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
