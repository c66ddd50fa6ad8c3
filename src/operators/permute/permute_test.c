/* permute_test.c - the definition of permute, its cases and rejects. */
#include "cutekernellib/operators/permute.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"
#include "operators/permute/permute_plan.h"

/* A row of y: all modes but the last, the outermost changes slowest. */
static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_permute_desc *d = problem;
    int64_t row = out.row, last = d->rank - 1, start = 0;
    for (int i = d->rank - 2; i >= 0; i--) {
        start += row % d->shape[d->order[i]] * d->stride_x[d->order[i]];
        row /= d->shape[d->order[i]];
    }
    for (int64_t i = 0; i < out.count; i++) {
        out.value[i] = dtype_read(d->dtype, host[0], start + (out.first + i) * d->stride_x[d->order[last]]);
        out.magnitude[i] = fabs(out.value[i]);
    }
}

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
    "shape=2x7x7x401 order=0,3,1,2 dtype=u8",
    "shape=2x700x3x3 order=0,2,3,1 dtype=f64",
    "shape=3x5x7 order=2,1,0 dtype=f16",
    "shape=2x40x3x48 order=3,2,1,0 dtype=f16 # a matrix with two modes round it",
    "shape=2x3x40x2x32 order=4,1,3,2,0 dtype=f32       # and none that is one",
    "shape=2x3x32x2x40 order=1,0,4,3,2 dtype=u8        # three modes round it",
    "shape=32x2x3x2x48 order=4,2,1,3,0 dtype=f16",
    "shape=4x6x8x16 order=0,2,1,3 dtype=f16            # the innermost mode stays: vectors",
    "shape=4x6x5x12 order=1,0,2,3 dtype=f16            # of 8 bytes",
    "shape=5x7x3 order=1,0,2 dtype=u8                  # of single elements",
    "shape=16x3x2x16x8 order=3,2,1,0,4 dtype=f16       # vectors of 16 bytes change places: in squares of them",
    "shape=16x3x2x16x8 order=3,2,1,0,4 dtype=f16 misalign=1",
    "shape=2x9x7x511 order=0,2,1,3 dtype=f16           # odd rows change places: many in a box",
    "shape=3x25x11x25 order=0,2,1,3 dtype=bf16         # short ones: runs along several modes",
    "shape=3x70x5x5 order=0,2,1,3 dtype=f32 misalign=1",
    "shape=3x25x11x65 order=0,2,1,3 dtype=u8 misalign=3 impl=gather config='cut=1 bytes=16 steps=1' # windows",
    "shape=3x70x5x33 order=0,2,1,3 misalign=1 impl=gather config='cut=1 bytes=16 steps=1'",
    "shape=5x4x3x6x41 order=3,2,1,0,4 dtype=f16 impl=gather config='cut=1 bytes=16 steps=1'",
    "shape=12345 order=0 dtype=bf16 impl=gather config='cut=1 bytes=16 steps=1'",
    "shape=4x5x77 order=0,1,2 dtype=u8 stride_x=801,83,1 stride_y=500,90,1 impl=gather config='cut=1 bytes=16 steps=1'",
    "shape=3x61x31x17 order=0,3,1,2 dtype=u8 impl=gather # rows too short for tiles",
    "shape=2x33x40x16 order=0,3,1,2 dtype=u8 impl=gather config='bytes=16 turned=4 block=1 rank=3 steps=1' # in "
    "squares",
    "shape=2x32x24x28 order=0,3,1,2 dtype=u8 impl=gather config='bytes=4 turned=4 block=1 rank=3 steps=3'",
    "shape=3x8x12x24 order=3,0,2,1 dtype=i8 misalign=4 impl=gather config='bytes=8 turned=4 block=1 rank=4 steps=1'",
    "shape=3x44x36x12 order=0,3,1,2 dtype=i8 misalign=1 impl=gather config='bytes=4 turned=4 block=4 rank=5 steps=1'",
    "shape=9x3x2x10x8 order=3,2,1,0,4 dtype=f16 impl=gather",
    "shape=2x48x5x64 order=3,2,0,1 dtype=bf16 impl=gather config='bytes=8 turned=2 block=8 rank=5 steps=2'",
    "shape=7x40x3x24 order=2,0,3,1 dtype=f16           # a short row of y, then a mode that is far in x",
    "shape=3x11x24x8 order=3,2,1,0 dtype=f16 # nothing long innermost on either side",
    "shape=3x8x12x70 order=3,2,1,0 dtype=f16 impl=boxes config='abreast=4' # words of four runs of y at once",
    "shape=19x13x9x51 order=3,2,1,0 dtype=u8 impl=boxes config='abreast=2' misalign=1",
    "shape=3x4x3x30x7 order=4,2,0,3,1 dtype=u8 misalign=1",
    "shape=2x3x30x70 order=1,3,0,2 dtype=f64",
    "shape=2x3x4x5x6 order=0,1,2,3,4 dtype=f64         # a copy: one mode",
    "shape=1x1x1 order=2,0,1 dtype=f32                 # one element",
    "shape=4x5 order=0,1 dtype=f16 stride_x=8,1 stride_y=7,1   # rows of different pitch",
    "shape=9x16 order=0,1 dtype=u8 stride_x=32,1 stride_y=17,1 # vectors in the pitch of x alone",
    "shape=9x16 order=0,1 dtype=u8 stride_x=17,1 stride_y=32,1 # and of y alone",
    "shape=6x10 order=0,1 dtype=u8 stride_x=100,3 stride_y=64,2",
    "shape=6x10x4 order=0,1,2 dtype=f32 stride_x=0,4,1 # x repeated",
    "shape=3x2 order=0,1 stride_y=2,3 # modes of y that do not nest",
    "shape=3x3x2 order=1,0,2 dtype=u8 stride_y=15,10,6",
    "shape=8x64x40 order=0,2,1 dtype=f16 stride_x=2624,41,1",
    "shape=4x8x16 order=0,1,2 dtype=f16 misalign=1     # a copy whose pointers are not aligned to vectors",
    "shape=2x64x64 order=0,2,1 dtype=f16 misalign=1",
    "shape=0x2147483647 order=1,0",
    "shape=2^10x2^3 order=1,0",
    "shape=3x1001 order=1,0 dtype=f16 stride_x=1008,1  # vectors in the pitch, none in the length",
    "shape=3x0x4 order=2,1,0                           # nothing to do",
    "shape=20x30 order=1,0 dtype=f32",
    "shape=3x20x30 order=0,2,1 dtype=u8",
    NULL,
};

static const char *const population[] = {
    "shape={batch}x{channels}x{s:image}x{s} order=0,2,3,1 dtype={u8|f32|f16|bf16}",
    "shape={batch}x{s:image}x{s}x{channels} order=0,3,1,2 dtype={u8|f32|f16|bf16}",
    "shape={batch}x{sequence}x{heads}x{head_dim} order={0,2,1,3|0,2,3,1} dtype={f16|bf16}",
    "shape={channels}x{channels}x{channels} order={2,1,0|1,0,2|0,2,1|1,2,0|2,0,1} dtype={u8|f16|f32|f64}",
    "shape={batch}x{image}x{channels}x{image} order={3,2,1,0|2,0,3,1|1,3,0,2|0,2,1,3} dtype={f16|f32}",
    NULL,
};

static const test_reject rejects[] = {
    { "shape=4x-1", CKL_INVALID, "permute: shape[1]=-1 is negative" },
    { "shape=4xa", CKL_INVALID, "permute: shape=4xa is not up to 5 sizes" },
    { "shape=2x2x2x2x2x2", CKL_INVALID, "is not up to 5 sizes" },
    { "shape=4x4 order=0,2", CKL_INVALID, "permute: order[1]=2 is not in 0..1" },
    { "shape=4x4 order=1,1", CKL_INVALID, "permute: order[1]=1 names a mode twice" },
    { "shape=4x4 order=0", CKL_INVALID, "permute: order=0 is not a list of 2 integers" },
    { "shape=4x4 order=0,1 stride_y=3,1", CKL_INVALID,
      "permute: y has a stride of 3 elements that others make up: elements share memory" },
    { "shape=3x3 order=0,1 stride_y=4,2", CKL_INVALID, "elements share memory" },
    { "shape=3x3x3 order=0,1,2 stride_y=5,4,3", CKL_INVALID, "elements share memory" },
    { "shape=2x2 order=0,1 stride_y=0,1", CKL_INVALID, "elements share memory" },
    { "shape=4x4 dtype=default", CKL_INVALID, "permute: dtype=default is not an element type" },
    { "shape=4x4 stride_x=-4,1", CKL_INVALID, "permute: stride_x[0]=-4 is negative" },
    { "shape=2^40x2^40", CKL_INVALID, "permute: x of 1099511627776x1099511627776 elements" },
    { "shape=4x4 impl=gather config='steps=17'", CKL_INVALID, "permute gather: steps=17 is not in 1..16" },
    { "shape=32x18 order=1,0 dtype=u8 impl=gather config='bytes=4 turned=4'", CKL_INVALID,
      "permute gather: bytes=4 turned=4 cannot be moved at once" }, // squares that are not whole
    { "shape=32x16 order=1,0 dtype=u8 impl=gather config='bytes=8 turned=2'", CKL_INVALID,
      "permute gather: bytes=8 turned=2 cannot be moved at once" },
    { "shape=32x16 order=1,0 impl=gather config='bytes=4 turned=1 rank=2'", CKL_INVALID,
      "permute gather: bytes=4 turned=1 cannot be moved at once" },
    { "shape=32x4 order=1,0 dtype=u8 impl=gather config='bytes=8 turned=4'", CKL_INVALID,
      "permute gather: bytes=8 turned=4 cannot be moved at once" },
    { "shape=100x64 order=1,0 dtype=u8 impl=gather config='bytes=4 turned=4 block=8 rank=3'", CKL_INVALID,
      "permute gather: block=8 rank=3 do not fit the problem" },
    { "shape=64x64 order=1,0 impl=gather config='block=8'", CKL_INVALID, "block=8 rank=2 do not fit" },
    { "shape=2x32x16 order=0,2,1 stride_x=514,16,1 dtype=u8 impl=gather config='bytes=4 turned=4'", CKL_INVALID,
      "permute gather: bytes=4 turned=4 cannot be moved at once" }, // words that are not
    { "shape=6x10 order=0,1 stride_y=30,3 impl=boxes", CKL_UNSUPPORTED, "permute boxes: no mode is contiguous in y" },
    { "shape=4x4x4 order=1,0,2 impl=boxes config='run_x=16'", CKL_INVALID, "permute boxes: run_x=16 run_y=" },
    { "shape=4x4x4 order=1,0,2 impl=boxes config='across=3'", CKL_INVALID, "permute boxes: such a box has bytes=4" },
    { "shape=19x13x9x51 order=3,2,1,0 dtype=u8 impl=boxes config='abreast=3'", CKL_INVALID, "lanes=64 abreast=2" },
    { "shape=1024x8 order=1,0 impl=boxes config='run_y=2048 shared=1 lanes=512 smem_kb=17'", CKL_INVALID,
      "permute boxes: lanes=512 are more than the 256 threads" },
    { "shape=8x4x15 order=1,0,2 impl=gather config='cut=1 bytes=16 steps=1'", CKL_UNSUPPORTED,
      "permute gather: cut=1: no mode is a run of 64 bytes" },
    { "shape=8x4x32 order=1,0,2 impl=gather config='cut=1 bytes=16 steps=1'", CKL_UNSUPPORTED,
      "permute gather: cut=1: whole vectors divide all runs" },
    { "shape=8x4x33 order=1,0,2 dtype=f64 impl=gather config='cut=1 bytes=16 steps=1'", CKL_UNSUPPORTED,
      "permute gather: cut=1: whole vectors divide" },
    { "shape=2^31+1 order=0 dtype=u8 impl=gather config='cut=1 bytes=16 steps=1'", CKL_UNSUPPORTED,
      "permute gather: cut=1: 1 runs have too many windows" },
    { "shape=8x4x33 order=1,0,2 impl=gather config='cut=1 bytes=16 steps=1 rank=2'", CKL_INVALID,
      "permute gather: block=1 rank=2 do not fit" },
    { "shape=300x65 order=1,0 impl=narrow", CKL_UNSUPPORTED,
      "permute narrow: there is no side of up to 32 columns or 64 rows without gaps" },
    { "shape=4x4 order=0,1 impl=sm90", CKL_UNSUPPORTED,
      "permute sm90: there are not two modes, one contiguous in x and the other in y" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(permute, .elements_alone = true, .reference = reference);
