/* softmax_test.c - softmax's cases, rejects and costs. */
#include "base/shape.h"
#include "operators/softmax/softmax_lab.h"

static ckl_status prepare(void *problem)
{
    softmax_problem *p = problem;
    sizes shape;
    int axis;
    TRY(shape_parse("softmax", p->shape, &shape));
    TRY(shape_axis("softmax", &shape, p->axis, &axis));
    p->outer = shape_elements(&shape, 0, axis);
    p->n = shape.of[axis];
    p->inner = shape_elements(&shape, axis + 1, shape.rank);
    if (p->inner == 0) // no rows at all
        p->outer = 0, p->inner = 1;
    int64_t line = p->inner == 1 ? p->n : p->inner;
    p->ldx = p->ldx ? p->ldx : line;
    p->ldy = p->ldy ? p->ldy : line;
    p->mask_rows = p->mask_rows ? p->mask_rows : p->outer > 0 ? p->outer : 1;
    p->mask_repeat = p->mask_repeat ? p->mask_repeat : 1;
    return CKL_OK;
}

static void desc_of(const void *problem, void *desc)
{
    const softmax_problem *p = problem;
    *(ckl_softmax_desc *)desc = (ckl_softmax_desc){
        .direction = (ckl_direction)p->direction,
        .dtype = p->dtype,
        .outer = p->outer,
        .n = p->n,
        .inner = p->inner,
        .ldx = p->ldx,
        .ldy = p->ldy,
        .log = p->log,
        .scale = p->scale,
        .mask = (ckl_softmax_mask)p->mask,
        .mask_rows = p->mask_rows,
        .mask_repeat = p->mask_repeat,
    };
}

/* A tensor of the problem: rank 2 along memory, rank 3 across it. */
static operand tensor_of(const softmax_problem *p, const char *name, operand_role role, int64_t ld)
{
    if (p->inner == 1)
        return (operand){ name, role, p->dtype, 2, { p->outer, p->n }, { ld, 1 }, 0, 0 };
    return (operand){ name, role, p->dtype, 3, { p->outer, p->n, p->inner }, { p->n * ld, ld, 1 }, 0, 0 };
}

static int operands(const void *problem, operand *out)
{
    const softmax_problem *p = problem;
    if (p->direction == CKL_DIRECTION_FORWARD) {
        out[SOFTMAX_X] = tensor_of(p, "x", OPERAND_IN, p->ldx);
        if (p->mask != CKL_SOFTMAX_MASK_NONE)
            out[SOFTMAX_MASK] = (operand){ "mask",
                                           OPERAND_IN,
                                           p->mask == CKL_SOFTMAX_MASK_BOOL ? CKL_BOOL : p->dtype,
                                           2,
                                           { p->mask_rows, p->n },
                                           { p->n, 1 },
                                           0,
                                           0 };
        out[SOFTMAX_Y] = tensor_of(p, "y", OPERAND_OUT, p->ldy);
    } else {
        out[SOFTMAX_Y] = tensor_of(p, "y", OPERAND_IN, p->ldy);
        out[SOFTMAX_Y].low = p->log ? -8 : 0; // probabilities, or their logarithms
        out[SOFTMAX_Y].high = p->log ? -1 : 1;
        out[SOFTMAX_DY] = tensor_of(p, "dy", OPERAND_IN, p->ldy);
        out[SOFTMAX_DX] = tensor_of(p, "dx", OPERAND_OUT, p->ldx);
    }
    return SOFTMAX_OPERANDS;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    (void)problem;
    ckl_softmax_args args = { .x = pointers[SOFTMAX_X],
                              .mask = pointers[SOFTMAX_MASK],
                              .y = pointers[SOFTMAX_Y],
                              .dy = pointers[SOFTMAX_DY],
                              .dx = pointers[SOFTMAX_DX] };
    return ckl_softmax_run(plan, &args, stream);
}

static int64_t slices(const void *problem, int output)
{
    const softmax_problem *p = problem;
    (void)output;
    return p->outer * p->inner;
}

static int64_t slice_elements(const void *problem, int output)
{
    (void)output;
    return ((const softmax_problem *)problem)->n;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    const softmax_problem *p = problem;
    (void)output;
    return softmax_index(p, p->direction == CKL_DIRECTION_FORWARD ? p->ldy : p->ldx, slice, j);
}

static double terms(const void *problem)
{
    return (double)((const softmax_problem *)problem)->n;
}

/* The gradient of softmax is sums and products: exact on small integers. */
static double approximation(const void *problem)
{
    const softmax_problem *p = problem;
    return p->direction == CKL_DIRECTION_BACKWARD && !p->log ? 0 : SOFTMAX_ERROR;
}

static double elements(const softmax_problem *p)
{
    return (double)p->outer * (double)p->n * (double)p->inner;
}

static double flops(const void *problem)
{
    return 5 * elements(problem);
}

static double bytes(const void *problem)
{
    const softmax_problem *p = problem;
    double size = (double)ckl_dtype_bytes(p->dtype), mask = (double)p->mask_rows * (double)p->n;
    double masked = p->mask == CKL_SOFTMAX_MASK_NONE ? 0 : p->mask == CKL_SOFTMAX_MASK_BOOL ? mask : mask * size;
    return (p->direction == CKL_DIRECTION_FORWARD ? 2 : 3) * elements(p) * size + masked;
}

static const field fields[] = { SOFTMAX_PROBLEM(FIELD_ROW) };

static const char *const cases[] = {
    "shape=4x8                                     # a few lanes a row",
    "shape=2x128 dtype=bf16                        # whole rows of a warp",
    "shape=16x128 dtype=f16",
    "shape=32x256 log=1",
    "shape=15x37                                   # odd rows: single elements",
    "shape=15x37 dtype=bf16 direction=backward",
    "shape=3x1                                     # rows of one element",
    "shape=9x1000 dtype=f16                        # a tail of vectors",
    "shape=5x4096                                  # a CTA a row",
    "shape=5x4096 direction=backward",
    "shape=7x3000 dtype=bf16 log=1 direction=backward",
    "shape=3x20000 dtype=bf16                      # more steps of a CTA",
    "shape=2x65536 dtype=bf16                      # a cluster a row",
    "shape=1x40000 direction=backward              # a cluster, guarded",
    "shape=1x150001 dtype=f16                      # longer than the registers of a cluster: in pieces",
    "shape=1x100001 direction=backward log=1",
    "shape=4x515 dtype=bf16 misalign=1             # pointers aligned to the element only",
    "shape=9x1024 dtype=f16 misalign=3",
    "shape=33x200 dtype=f16 ldx=208 ldy=216        # strided rows, vectors kept",
    "shape=5x129 ldx=131 ldy=130 direction=backward # odd pitches: single elements",
    "shape=2x3x5x64 dtype=bf16                     # batched",
    "shape=12x96 scale=0.125 dtype=f16             # scores of attention",
    "shape=5x20000 dtype=bf16                      # rows that flow through shared memory by clusters",
    "shape=3x20000 direction=backward log=1",
    "shape=2x18000 scale=0.5 mask=bool dtype=f16   # masked",
    "shape=4x20000 dtype=f16 misalign=1            # not for bulk copies",
    "shape=7x1000 impl=pipeline config='threads=32 row_threads=32 cluster=2 vec=4 steps=2 stages=2 residence=reload "
    "exact=0'",
    "shape=9x2048 dtype=bf16 log=1 impl=pipeline config='threads=64 row_threads=64 cluster=2 vec=8 steps=1 stages=3 "
    "residence=registers chunks=2 exact=1'",
    "shape=20x8200 dtype=bf16 impl=pipeline config='threads=32 row_threads=32 cluster=8 vec=8 steps=4 stages=40 "
    "residence=ring lookahead=1 exact=0'                    # the next row is seen before one is written",
    "shape=20x8192 direction=backward impl=pipeline config='threads=32 row_threads=32 cluster=16 vec=4 steps=2 "
    "stages=40 residence=ring lookahead=1 chunks=2 exact=1'",
    "shape=64x2 mask=bool                          # rows of nothing but -inf",
    "shape=64x2 mask=bool log=1 dtype=bf16",
    "shape=12x96 scale=0.5 mask=bool mask_rows=3 dtype=bf16 # a mask for several heads",
    "shape=12x640 mask=add mask_rows=2 mask_repeat=3",
    "shape=6x77 mask=bool misalign=1               # odd masks",
    "shape=8x32 axis=0                             # columns: several warps of one CTA",
    "shape=37x15 axis=0 dtype=bf16                 # odd lines: single elements",
    "shape=37x15 axis=0 direction=backward",
    "shape=5x33x64 axis=1 dtype=f16 log=1          # batched columns",
    "shape=5x33x64 axis=-2 dtype=bf16 direction=backward log=1",
    "shape=3x700x40 axis=1                         # a full CTA, a strip cut short",
    "shape=512x64 axis=0 direction=backward        # whole columns",
    "shape=2048x32 axis=0 dtype=bf16               # a cluster a strip",
    "shape=1030x24 axis=0 direction=backward",
    "shape=9001x12 axis=0                          # longer than the registers of a cluster: in pieces",
    "shape=9001x12 axis=0 dtype=f16 direction=backward",
    "shape=300x24 axis=0 dtype=f16 misalign=1      # pointers aligned to the element only",
    "shape=300x24 axis=0 misalign=1 direction=backward",
    "shape=64x40 axis=0 dtype=f16 ldx=48 ldy=56 scale=2 # strided lines",
    "shape=2x3x4x5 axis=1                          # axis in the middle of four",
    "shape=0x8                                     # no rows",
    "shape=8x0                                     # rows of no length",
    NULL,
};

static const test_reject rejects[] = {
    { "shape=4x", CKL_INVALID, "softmax: shape=4x is not up to 8 sizes like 4096x1024" },
    { "shape=4x8 axis=2", CKL_INVALID, "softmax: axis=2 is not in -2..1" },
    { "shape=4x8 dtype=i32", CKL_INVALID, "softmax: dtype=i32 is none of f32, f16, bf16" },
    { "shape=4x8 ldx=7", CKL_INVALID, "softmax: ldx=7 is smaller than a line of 8 elements" },
    { "shape=4x8 scale=-1", CKL_INVALID, "softmax: scale=-1 is not a positive number" },
    { "shape=4x8 mask=bool direction=backward", CKL_INVALID, "softmax: the backward direction takes no mask" },
    { "shape=4x8 mask_rows=-3", CKL_INVALID, "softmax: mask_rows=-3 is negative" },
    { "shape=4x8 impl=row config='threads=48'", CKL_INVALID, "softmax row: threads=48 is no power of two from 32" },
    { "shape=4x8 impl=row config='vec=8'", CKL_INVALID, "softmax row: vec=8 is no power of two of at most 16 bytes" },
    { "shape=8x8 axis=0 mask=bool", CKL_UNSUPPORTED, "softmax column: masks are for the last axis" },
    { "shape=8x8 axis=0 impl=column config='lanes=3'", CKL_INVALID, "softmax column: lanes=3 is no power of two" },
    { "shape=4x4096 impl=pipeline config='cluster=8'", CKL_INVALID, "cluster=8, but rows have only 1 chunks" },
    { "shape=4x64 impl=row config='row_threads=1 steps=1'", CKL_INVALID,
      "softmax row: rows of 64 elements, room for 4" },
    { NULL, CKL_OK, NULL },
};

const operator_test softmax_test = {
    .op = &softmax_operator,
    .problem_bytes = sizeof(softmax_problem),
    .problem = FIELD_TABLE(fields),
    .prepare = prepare,
    .desc = desc_of,
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = softmax_reference,
    .terms_of = terms,
    .approximation_of = approximation,
    .flops = flops,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
