/* transpose_test.c - the definition of transpose, its cases and rejects. */
#include "cutekernellib/operators/transpose.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"
#include "operators/permute/permute_plan.h"

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_transpose_desc *d = problem;
    int64_t start = out.row / d->cols * d->stride_x + out.row % d->cols * d->incx;
    for (int64_t i = 0; i < out.count; i++) {
        out.value[i] = dtype_read(d->dtype, host[0], start + (out.first + i) * d->ldx);
        out.magnitude[i] = fabs(out.value[i]);
    }
}

static const char *const cases[] = {
    "rows=256 cols=128 dtype=f32                       # whole tiles",
    "rows=128 cols=256 dtype=f16",
    "rows=256 cols=384 dtype=u8",
    "rows=96 cols=64 dtype=f64",
    "rows=200 cols=120 dtype=f32                       # tiles that end outside",
    "rows=136 cols=72 dtype=bf16",
    "rows=144 cols=304 dtype=e4m3",
    "rows=50 cols=42 dtype=i64",
    "rows=15 cols=37 dtype=f16                         # odd everything: no TMA",
    "rows=127 cols=129 dtype=f32",
    "rows=131 cols=193 dtype=f16                       # rows that start inside a word, on both sides",
    "rows=129 cols=257 dtype=i8",
    "rows=131 cols=259 dtype=u8",
    "rows=67 cols=33 dtype=f64",
    "rows=257 cols=130 dtype=u8                        # more than a tile: windows of whole sectors, the last one "
    "short",
    "rows=300 cols=37 dtype=f16",
    "rows=131 cols=131 dtype=f32",
    "rows=601 cols=33 dtype=u8 misalign=5",
    "rows=135 cols=65 dtype=f64 batch=2",
    "rows=1 cols=1000 dtype=f32                        # a row becomes a column: a copy",
    "rows=1000 cols=1 dtype=f16",
    "rows=3 cols=1000 dtype=f16                        # less than a tile is wide",
    "rows=64 cols=72 dtype=f16 batch=3                 # batches",
    "rows=33 cols=47 dtype=u8 batch=4",
    "rows=64 cols=64 dtype=f32 batch=2 stride_x=5000 stride_y=4104 ldx=68 ldy=64",
    "rows=120 cols=60 dtype=f16 ldx=64 ldy=128         # padded rows by TMA: columns past the end of x are not zero",
    "rows=100 cols=60 dtype=f16 ldx=104 ldy=128        # padded rows, which stay as they are",
    "rows=65 cols=70 dtype=u8 ldx=73 ldy=81",
    "rows=5 cols=1001 dtype=f16 ldx=1008 ldy=8         # vectors in the pitch, none in the length",
    "rows=40 cols=50 dtype=f32 incx=2 incy=3           # neither side contiguous",
    "rows=40 cols=50 dtype=f16 incx=40 ldx=1           # x is stored by columns: a copy",
    "rows=256 cols=192 dtype=f16 misalign=1            # pointers aligned to the element only",
    "rows=128 cols=256 dtype=u8 misalign=3",
    "rows=64 cols=64 dtype=f32 misalign=1",
    "rows=15 cols=37 dtype=f32                         # less than a tile, of odd sides",
    "rows=15 cols=37 dtype=bf16",
    "rows=70 cols=33 dtype=u8 batch=2",
    "rows=1 cols=70 dtype=f64",
    "rows=40 cols=50 dtype=f16 ldx=57 ldy=43",
    "rows=0 cols=64 dtype=f16                          # nothing to do",
    "rows=64 cols=0 dtype=f32",
    "rows=256 cols=256 dtype=f16 impl=sm90 config='tile_r=128 tile_c=64'",
    "rows=256 cols=256 dtype=u8 impl=sm90 config='tile_r=256 tile_c=128'",
    "rows=256 cols=256 dtype=f32 impl=sm90 config='tile_r=32 tile_c=128'",
    "rows=200 cols=40 dtype=f16 batch=3 impl=sm90 config='across=1' # half-empty tiles",
    "rows=200 cols=32 dtype=f32 impl=sm90 config='tile_r=64 tile_c=32'",
    "rows=130 cols=258 dtype=u8 impl=sm80 config='tile_r=64 tile_c=64'",
    "rows=130 cols=258 dtype=f16 impl=sm80 config='tile_r=128 tile_c=128'",
    "rows=131 cols=70 dtype=u8 impl=sm80 config='tile_r=64 align=16'",
    "rows=131 cols=70 dtype=f32 impl=sm80 config='tile_r=32 tile_c=32 align=128'",
    "rows=77 cols=1 dtype=u8 batch=5 stride_x=83 stride_y=90 impl=gather config='cut=1 bytes=16 steps=1' # a copy of "
    "columns that start anywhere",
    "rows=300 cols=140 dtype=u8 batch=2 impl=sm80 config='lanes=8 align=32' # groups of eight lanes",
    "rows=150 cols=90 dtype=f16 misalign=1 impl=sm80 config='lanes=8 tile_c=32 align=32'",
    "rows=100 cols=66 dtype=f32 impl=sm80 config='lanes=8 tile_r=32 tile_c=64 align=32'",
    "rows=270 cols=100 dtype=u8 misalign=3 impl=sm80 config='lanes=16 tile_r=64 align=16'",
    "rows=128 cols=256 dtype=u8 impl=gather config='bytes=16 turned=4 block=8 rank=4 steps=1' # squares in "
    "blocks",
    "rows=100 cols=72 dtype=u8 batch=2 impl=gather config='bytes=8 turned=4 block=8 rank=5 steps=2' # that reach "
    "beyond",
    "rows=64 cols=96 dtype=f16 batch=2 impl=gather config='bytes=16 turned=2 block=4 rank=5 steps=2'",
    "rows=24 cols=32 dtype=u8 batch=5 ldy=120 stride_y=24 impl=gather config='bytes=4 turned=4 block=16 rank=4 "
    "steps=1' "
    "# the batch goes on where rows end",
    "rows=300 cols=3 dtype=f16 impl=narrow config='bytes=2 short_x=1 tile_r=64 tile_c=4'",
    "rows=2500 cols=5 dtype=f16 batch=2 misalign=1 impl=narrow config='tile_r=1024' # words far apart",
    "rows=3003 cols=3 dtype=u8 impl=narrow config='tile_r=2048'",
    "rows=1700 cols=3 impl=narrow config='tile_r=512'",
    "rows=1001 cols=16 dtype=f16 batch=2 misalign=1 impl=narrow # padded lines",
    "rows=701 cols=24 dtype=bf16 batch=2 misalign=1 impl=narrow config='tile_r=256 padded=1'",
    "rows=523 cols=32 dtype=u8 misalign=3 impl=narrow   # the most columns",
    "rows=1301 cols=8 dtype=u8 impl=narrow config='tile_r=2048 padded=1' # several words of a thread",
    "rows=777 cols=4 dtype=f64 impl=narrow config='padded=1'",
    "rows=16 cols=1001 dtype=u8 batch=2 impl=narrow config='tile_c=1024' # short rows of y of whole words",
    "rows=8 cols=700 dtype=f16 misalign=2 impl=narrow config='tile_c=1024'",
    "rows=5 cols=700 dtype=u8 batch=2 impl=narrow config='bytes=1 outer=1 short_x=0 tile_r=16 tile_c=256'",
    NULL,
};

static const char *const population[] = {
    "rows={hidden} cols={hidden} dtype={u8|f16|bf16|f32|f64}",
    "rows={tokens} cols={hidden} dtype={u8|f16|bf16|f32}",
    "rows={sequence} cols={head_dim} batch={heads} dtype={f16|bf16}",
    "rows={tokens} cols={experts} dtype={f32|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "rows=64 cols=65 dtype=f64 impl=sm80 config='lanes=8'", CKL_INVALID, "transpose sm80: lanes=8 are for words" },
    { "rows=64 cols=65 dtype=u8 impl=sm80 config='lanes=4'", CKL_INVALID, "transpose sm80: lanes=4 is not a power" },
    { "rows=-1 cols=8", CKL_INVALID, "transpose: rows=-1 is negative" },
    { "rows=8 cols=8 ldx=7", CKL_INVALID, "transpose: ldx=7 is smaller than cols=8" },
    { "rows=8 cols=4 ldy=7", CKL_INVALID, "transpose: ldy=7 is smaller than rows=8" },
    { "rows=1099511627776 cols=1099511627776 batch=3 dtype=u8", CKL_INVALID,
      "transpose: x of 3x1099511627776x1099511627776 elements" },
    { "rows=8 cols=8 ldx=2^62", CKL_INVALID, "transpose: x of 1x8x8 elements, strides" },
    { "rows=8 cols=8 batch=2 stride_y=63", CKL_INVALID,
      "transpose: y has a stride of 63 elements that others make up: elements share memory" },
    { "rows=8 cols=8 incy=2 ldy=8", CKL_INVALID, "elements share memory" },
    { "rows=64 cols=65 dtype=f16 impl=sm90", CKL_UNSUPPORTED,
      "transpose sm90: ldx=65 elements of 2 bytes are not a positive multiple of 16 bytes" },
    { "rows=100 cols=64 ldy=104 dtype=f16 impl=sm90", CKL_UNSUPPORTED,
      "transpose sm90: rows=100 elements of 2 bytes are not a positive multiple of 16 bytes" },
    { "rows=64 cols=64 incx=2 impl=sm80", CKL_UNSUPPORTED,
      "transpose sm80: there are not two modes, one contiguous in x and the other in y" },
    { "rows=64 cols=64 impl=sm90 config='tile_r=48'", CKL_INVALID,
      "transpose sm90: tile_r=48 is not a power of two from 32 to 256" },
    { "rows=64 cols=64 impl=sm80 config='tile_c=48'", CKL_INVALID,
      "transpose sm80: tile_c=48 is not a power of two from 8 to 512" },
    { "rows=64 cols=512 dtype=f64 impl=sm80 config='tile_c=512'", CKL_INVALID,
      "transpose sm80: 256 threads do not cover the chunks of a row" },
    { "rows=64 cols=64 impl=gather config='element=2'", CKL_INVALID,
      "transpose gather: element=2 is not the problem's 4" },
    { "rows=700 cols=5 impl=narrow config='tile_c=2^20'", CKL_UNSUPPORTED,
      "transpose narrow: a tile of 64x1048576 is beyond any shared memory" },
    { "rows=700 cols=5 impl=narrow config='tile_c=1048577'", CKL_INVALID,
      "transpose narrow: tile_c=1048577 is more than 1048576, as no config has it" },
    { "rows=5 cols=700 dtype=f16 impl=narrow config='padded=1'", CKL_INVALID,
      "transpose narrow: padded=1 is for short rows of x" },
    { "rows=5 cols=700 impl=narrow config='bytes=4 short_x=1 tile_r=64 tile_c=4'", CKL_INVALID,
      "transpose narrow: short_x=1 tile 64x4 do not fit the short side of 5x700" },
    { "rows=64 cols=64 incx=-1", CKL_INVALID, "transpose: incx=-1 is negative" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(transpose, .elements_alone = true, .reference = reference);
