/* permute_test.c - permute's cases, rejects and costs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operators/permute/permute_lab.h"

/* Reads "32x64x56" or "0,2,1"; returns how many numbers there are, -1 if it is no such list. */
static int read_list(const char *list, char separator, int64_t out[MODES_MAX])
{
    int count = 0;
    while (*list) {
        char *end;
        errno = 0;
        long long number = strtoll(list, &end, 10);
        if (end == list || errno || count == MODES_MAX || (*end && *end != separator) || (*end && !end[1]))
            return -1;
        out[count++] = number;
        list = *end ? end + 1 : end;
    }
    return count;
}

static ckl_status read_numbers(const char *name, const char *list, int rank, int64_t out[MODES_MAX])
{
    if (*list && read_list(list, ',', out) != rank)
        FAIL(CKL_INVALID, "permute: %s=%s is not a list of %d integers", name, list, rank);
    return CKL_OK;
}

/* Strides without gaps, as the operator gives them where none are given. */
static void set_default(const char *given, int rank, const int64_t *shape, int64_t *stride)
{
    int64_t next = 1;
    for (int i = rank - 1; i >= 0 && !*given; i--) {
        stride[i] = next;
        next *= shape[i];
    }
}

static ckl_status prepare(void *problem)
{
    permute_problem *p = problem;
    permute_lists *l = &p->lists;
    *l = (permute_lists){ 0 };
    l->rank = read_list(p->shape, 'x', l->shape);
    if (l->rank < 1)
        FAIL(CKL_INVALID, "permute: shape=%s is not a list of 1 to %d sizes with x between them", p->shape, MODES_MAX);
    for (int i = 0; i < l->rank; i++)
        l->order[i] = l->rank - 1 - i;
    TRY(read_numbers("order", p->order, l->rank, l->order));
    TRY(read_numbers("stride_x", p->stride_x, l->rank, l->stride_x));
    TRY(read_numbers("stride_y", p->stride_y, l->rank, l->stride_y));
    for (int i = 0; i < l->rank; i++)
        l->shape_y[i] = l->order[i] >= 0 && l->order[i] < l->rank ? l->shape[l->order[i]] : 0;
    set_default(p->stride_x, l->rank, l->shape, l->stride_x);
    set_default(p->stride_y, l->rank, l->shape_y, l->stride_y);
    return CKL_OK;
}

static void desc_of(const void *problem, void *desc)
{
    const permute_problem *p = problem;
    const permute_lists *l = &p->lists;
    ckl_permute_desc d = { .dtype = p->dtype, .rank = l->rank };
    for (int i = 0; i < l->rank; i++) {
        d.shape[i] = l->shape[i];
        d.order[i] = (int)l->order[i];
        d.stride_x[i] = l->stride_x[i];
        d.stride_y[i] = l->stride_y[i];
    }
    *(permute_desc *)desc = permute_desc_of(&d);
}

static int operands(const void *problem, operand *out)
{
    const permute_problem *p = problem;
    const permute_lists *l = &p->lists;
    out[0] = (operand){ .name = "x", .role = OPERAND_IN, .dtype = p->dtype, .rank = l->rank };
    out[1] = (operand){ .name = "y", .role = OPERAND_OUT, .dtype = p->dtype, .rank = l->rank };
    memcpy(out[0].shape, l->shape, sizeof l->shape);
    memcpy(out[0].stride, l->stride_x, sizeof l->stride_x);
    memcpy(out[1].shape, l->shape_y, sizeof l->shape_y);
    memcpy(out[1].stride, l->stride_y, sizeof l->stride_y);
    return 2;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    (void)problem;
    return ckl_permute_run(plan, &(ckl_permute_args){ pointers[0], pointers[1] }, stream);
}

static int64_t slices(const void *problem, int output)
{
    (void)output;
    const permute_lists *l = &((const permute_problem *)problem)->lists;
    int64_t count = 1;
    for (int i = 0; i < l->rank - 1; i++)
        count *= l->shape_y[i];
    return count;
}

static int64_t slice_elements(const void *problem, int output)
{
    (void)output;
    const permute_lists *l = &((const permute_problem *)problem)->lists;
    return l->shape_y[l->rank - 1];
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    const permute_lists *l = &((const permute_problem *)problem)->lists;
    int64_t index = j * l->stride_y[l->rank - 1];
    (void)output;
    for (int i = l->rank - 2; i >= 0; i--) {
        index += slice % l->shape_y[i] * l->stride_y[i];
        slice /= l->shape_y[i];
    }
    return index;
}

static double terms(const void *problem)
{
    (void)problem;
    return 1;
}

static double none(const void *problem)
{
    (void)problem;
    return 0;
}

static double bytes(const void *problem)
{
    const permute_problem *p = problem;
    return 2 * (double)slices(p, 0) * (double)slice_elements(p, 0) * (double)ckl_dtype_bytes(p->dtype);
}

static const field fields[] = { PERMUTE_PROBLEM(FIELD_ROW) };

static const char *const cases[] = {
    "shape=4x64x10x12 order=0,2,3,1 dtype=f16          # NCHW to NHWC: one transpose a image",
    "shape=4x10x12x64 order=0,3,1,2 dtype=f16          # and back",
    "shape=2x64x14x14 order=0,2,3,1 dtype=f32",
    "shape=2x48x7x7 order=0,2,3,1 dtype=bf16           # rows of an odd length",
    "shape=2x3x17x19 order=0,2,3,1 dtype=u8            # three channels: too few for tiles",
    "shape=2x17x19x3 order=0,3,1,2 dtype=f32",
    "shape=2x3x17x119 order=0,2,3,1 dtype=u8           # many pixels: channels come together",
    "shape=2x3x57x59 order=0,2,3,1 dtype=f16 misalign=1",
    "shape=2x17x119x3 order=0,3,1,2 dtype=u8 misalign=1 # and apart",
    "shape=2x57x59x3 order=0,3,1,2 dtype=f32",
    "shape=2x7x7x300 order=0,3,1,2 dtype=f16           # small images",
    "shape=2x300x7x7 order=0,2,3,1 dtype=f16",
    "shape=2x300x3x5 order=0,2,3,1 dtype=bf16",
    "shape=2x7x5x300 order=0,3,1,2 dtype=f64",
    "shape=2x7x7x1301 order=0,3,1,2 dtype=u8",
    "shape=2x700x3x3 order=0,2,3,1 dtype=f64",
    "shape=3x5x7 order=2,1,0 dtype=f16",
    "shape=3x40x5x48 order=3,2,1,0 dtype=f16           # a matrix with two modes round it",
    "shape=2x3x40x2x32 order=4,1,3,2,0 dtype=f32       # and none that is one",
    "shape=2x3x32x2x40 order=1,0,4,3,2 dtype=u8        # three modes round it",
    "shape=32x2x3x2x48 order=4,2,1,3,0 dtype=f16",
    "shape=4x6x8x16 order=0,2,1,3 dtype=f16            # the innermost mode stays: vectors",
    "shape=4x6x5x12 order=1,0,2,3 dtype=f16            # of 8 bytes",
    "shape=5x7x3 order=1,0,2 dtype=u8                  # of single elements",
    "shape=16x3x2x16x8 order=3,2,1,0,4 dtype=f16       # vectors of 16 bytes change places: in squares of them",
    "shape=16x3x2x16x8 order=3,2,1,0,4 dtype=f16 misalign=1",
    "shape=2x3x4x5x6 order=0,1,2,3,4 dtype=f64         # a copy: one mode",
    "shape=1x1x1 order=2,0,1 dtype=f32                 # one element",
    "shape=4x5 order=0,1 dtype=f16 stride_x=8,1 stride_y=7,1   # rows of different pitch",
    "shape=6x10 order=0,1 dtype=u8 stride_x=100,3 stride_y=64,2",
    "shape=6x10x4 order=0,1,2 dtype=f32 stride_x=0,4,1 # x repeated",
    "shape=8x64x40 order=0,2,1 dtype=f16 stride_x=2624,41,1",
    "shape=4x8x16 order=0,1,2 dtype=f16 misalign=1     # a copy whose pointers are not aligned to vectors",
    "shape=2x64x64 order=0,2,1 dtype=f16 misalign=1",
    "shape=3x0x4 order=2,1,0                           # nothing to do",
    "shape=20x30 order=1,0 dtype=f32 impl=naive        # the ladder, by name",
    "shape=3x20x30 order=0,2,1 dtype=u8 impl=tiled",
    NULL,
};

static const test_reject rejects[] = {
    { "shape=4x-1", CKL_INVALID, "permute: shape[1]=-1 is negative" },
    { "shape=4xa", CKL_INVALID, "permute: shape=4xa is not a list of 1 to 5 sizes" },
    { "shape=2x2x2x2x2x2", CKL_INVALID, "is not a list of 1 to 5 sizes" },
    { "shape=4x4 order=0,2", CKL_INVALID, "permute: order[1]=2 is not in 0..1" },
    { "shape=4x4 order=1,1", CKL_INVALID, "permute: order[1]=1 names a mode twice" },
    { "shape=4x4 order=0", CKL_INVALID, "permute: order=0 is not a list of 2 integers" },
    { "shape=4x4 order=0,1 stride_y=3,1", CKL_INVALID,
      "permute: y has a stride of 3 elements round parts of 4: elements share memory" },
    { "shape=300x65 order=1,0 impl=narrow", CKL_UNSUPPORTED,
      "permute narrow: there is no side of up to 16 columns or 64 rows without gaps" },
    { "shape=4x4 order=0,1 impl=sm90", CKL_UNSUPPORTED,
      "permute sm90: there are not two modes, one contiguous in x and the other in y" },
    { NULL, CKL_OK, NULL },
};

const operator_test permute_test = {
    .op = &permute_operator,
    .problem_bytes = sizeof(permute_problem),
    .problem = FIELD_TABLE(fields),
    .prepare = prepare,
    .desc = desc_of,
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = permute_reference,
    .terms_of = terms,
    .approximation_of = none,
    .flops = none,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
