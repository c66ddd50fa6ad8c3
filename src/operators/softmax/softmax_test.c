/* softmax_test.c - the definition of softmax and its gradient in double, its cases and rejects. */
#include "cutekernellib/operators/softmax.h"

#include <float.h>
#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"
#include "operators/softmax/softmax_config.h"

enum { X, MASK, Y, DY, DX }; // operands

/* The y of a backward problem is probabilities, or their logarithms. */
static int operands(const void *problem, operand *all)
{
    const ckl_softmax_desc *d = problem;
    for (int i = X; i <= DX; i++)
        all[i] = operand_along(all[i], 1u << 1);
    if (d->direction == CKL_DIRECTION_BACKWARD)
        all[Y] = operand_range(all[Y], d->log ? -8 : 0, d->log ? -1 : 1);
    return 0;
}

/* The definition */

/* Where element i of a row is; rows may lie across memory. */
static int64_t index_of(const ckl_softmax_desc *d, int64_t ld, int64_t row, int64_t i)
{
    return d->inner == 1 ? row * ld + i : (row / d->inner * d->n + i) * ld + row % d->inner;
}

/* Relative error of the exponential, per unit of 1 + |x - max|. */
#define ERROR 0x1p-20

/* The error of results below the smallest normal f32, which kernels flush to zero. */
static const double FLUSHED = 0x1p-126 / ERROR;

/* t[i] = scale * x[i] + mask[i] of a row; *rounded: |scale * x[i]|. */
static double score(const ckl_softmax_desc *d, void *const *host, int64_t row, int64_t i, double *rounded)
{
    double t = d->scale * dtype_read(d->dtype, host[X], index_of(d, d->ldx, row, i));
    *rounded = fabs(t);
    int64_t at = d->mask ? row / d->mask_repeat % d->mask_rows * d->n + i : 0;
    if (d->mask == CKL_SOFTMAX_MASK_ADD)
        t += dtype_read(d->dtype, host[MASK], at);
    if (d->mask == CKL_SOFTMAX_MASK_BOOL && dtype_read(CKL_BOOL, host[MASK], at) == 0)
        return -INFINITY;
    return fabs(t) > FLT_MAX ? copysign(INFINITY, t) : t;
}

static void forward(const ckl_softmax_desc *d, void *const *host, int64_t row, reference_slice out)
{
    const bool computed = d->scale != 1 || d->mask;
    double max = -INFINITY, sum = 0, rounded;
    for (int64_t i = 0; i < d->n; i++)
        max = fmax(max, score(d, host, row, i, &rounded));
    max = max > -INFINITY ? max : 0;
    for (int64_t i = 0; i < d->n; i++)
        sum += exp(score(d, host, row, i, &rounded) - max); // NaN if a score is NaN or +inf, 0 if all are -inf
    for (int64_t i = 0; i < d->n; i++) {
        double t = score(d, host, row, i, &rounded), y = d->log ? -INFINITY : 0;
        if (sum != 0)
            y = d->log ? t - max - log(sum) : exp(t - max) / sum;
        double error = isfinite(t) ? 1 + fabs(t - max) + (computed ? rounded + fabs(max) : 0) : 1;
        out.value[i] = y;
        out.magnitude[i] = d->log ? error + fabs(log(sum)) : y * error + FLUSHED;
    }
}

static void backward(const ckl_softmax_desc *d, void *const *host, int64_t row, reference_slice out)
{
    double sum = 0, terms = 0;
    for (int64_t i = 0; i < d->n; i++) {
        int64_t at = index_of(d, d->ldy, row, i);
        double y = dtype_read(d->dtype, host[Y], at), dy = dtype_read(d->dtype, host[DY], at);
        sum += d->log ? dy : y * dy;
        terms += fabs(d->log ? dy : y * dy);
    }
    for (int64_t i = 0; i < d->n; i++) {
        int64_t at = index_of(d, d->ldy, row, i);
        double y = dtype_read(d->dtype, host[Y], at), dy = dtype_read(d->dtype, host[DY], at), e = exp(y);
        out.value[i] = d->scale * (d->log ? dy - e * sum : y * (dy - sum));
        out.magnitude[i] = d->scale * (d->log ? fabs(dy) + e * (1 + fabs(y)) * terms : fabs(y) * (fabs(dy) + terms));
    }
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_softmax_desc *d = problem;
    (d->direction == CKL_DIRECTION_FORWARD ? forward : backward)(d, host, out.row, out);
}

/* The gradient of softmax is sums and products: exact on small integers. */
static double approximation(const void *problem)
{
    const ckl_softmax_desc *d = problem;
    return d->direction == CKL_DIRECTION_BACKWARD && !d->log ? 0 : ERROR;
}

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
    "shape=1x150001 dtype=f16                      # longer than the registers of a cluster: by tiles",
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
    "shape=3x11008 dtype=bf16                      # half the threads, twice the vectors",
    "shape=90x64                                   # lanes that share a line of memory",
    "shape=4x20000 dtype=f16 misalign=1            # not for bulk copies",
    "shape=7x1000 impl=pipeline config='threads=32 row_threads=32 cluster=2 vec=4 steps=2 stages=2 residence=ring "
    "exact=0'",
    "shape=300x1792 fill=uniform impl=pipeline config='threads=32 row_threads=32 cluster=1 vec=4 steps=14 stages=30 "
    "residence=ring lookahead=0 exact=1' # an SM has room for one CTA, whose rows behind the first are drawn",
    "shape=150x2504 dtype=bf16 fill=uniform impl=pipeline config='threads=64 row_threads=64 cluster=2 vec=8 steps=4 "
    "stages=30 residence=ring lookahead=0 exact=0' # and of clusters",
    "shape=9x2048 dtype=bf16 log=1 impl=pipeline config='threads=64 row_threads=64 cluster=2 vec=8 steps=1 stages=3 "
    "residence=registers chunks=2 exact=1'",
    "shape=17x4104 dtype=bf16 fill=uniform impl=pipeline config='threads=32 row_threads=32 cluster=8 vec=8 steps=2 "
    "stages=24 residence=ring lookahead=1 exact=0' # with lookahead",
    "shape=26x8192 direction=backward fill=uniform impl=pipeline config='threads=32 row_threads=32 cluster=16 vec=4 "
    "steps=2 stages=24 residence=ring lookahead=1 chunks=2 exact=1'",
    "shape=20x2 mask=bool # rows of nothing but -inf",
    "shape=20x2 mask=bool log=1 dtype=bf16",
    "shape=12x96 scale=0.5 mask=bool mask_rows=3 dtype=bf16 # a mask for several heads",
    "shape=12x640 mask=add mask_rows=2 mask_repeat=3",
    "shape=6x77 mask=bool misalign=1               # odd masks",
    "shape=8x32 axis=0                             # columns: several warps of one CTA",
    "shape=37x15 axis=0 dtype=bf16                 # odd lines: single elements",
    "shape=577x37 axis=0 dtype=bf16 fill=hard      # the same, two CTAs an SM",
    "shape=37x15 axis=0 direction=backward",
    "shape=5x33x64 axis=1 dtype=f16 log=1          # batched columns",
    "shape=2x24x96 axis=1 impl=column config='threads=32 lanes=8 vec=4 steps=6 early=0' # waits first",
    "shape=5x33x64 axis=-2 dtype=bf16 direction=backward log=1",
    "shape=3x700x40 axis=1                         # a full CTA, a strip cut short",
    "shape=512x64 axis=0 direction=backward        # whole columns",
    "shape=2048x32 axis=0 dtype=bf16               # a cluster a strip",
    "shape=3x300x1509 axis=1 fill=uniform           # two CTAs of 512 threads an SM: single elements",
    "shape=3x400x1500 axis=1 fill=uniform           # whole vectors",
    "shape=2x200x37 axis=1 direction=backward",
    "shape=1030x24 axis=0 direction=backward",
    "shape=9001x12 axis=0",
    "shape=9001x12 axis=0 dtype=f16 direction=backward # longer than the registers of a cluster: small, but in chunks",
    "shape=6632x40 axis=0 dtype=bf16 direction=backward # the same, whole vectors",
    "shape=9001x12 axis=0 dtype=f16 ldx=13 ldy=14 direction=backward # and by tiles",
    "shape=100x128 axis=0 dtype=bf16 impl=column_held config='dtype=bf16 threads=64 lanes=8 vec=8 steps=2 tiles=1' # "
    "in chunks, which stay in shared memory",
    "shape=3x300x136 axis=1 dtype=f16 direction=backward impl=column_held config='dtype=f16 direction=backward "
    "threads=64 lanes=8 vec=8 steps=2 tiles=3'     # the last strip and chunk are cut short",
    "shape=2x1000x40 axis=1 log=1 scale=0.5 impl=column_held config='log=1 scaled=1 threads=128 lanes=4 vec=4 steps=1 "
    "tiles=2'                                      # more chunks than are merged at once",
    "shape=300x77 axis=0 impl=column_held config='threads=128 lanes=16 vec=1 steps=5 tiles=4' # copies of 4 bytes",
    "shape=3x300x26 axis=1 dtype=bf16 direction=backward impl=column_held config='dtype=bf16 direction=backward "
    "threads=64 lanes=8 vec=2 steps=4 tiles=10 fold=1'",
    "shape=5x40x64 axis=1 impl=column_held config='threads=64 lanes=8 vec=4 steps=2 tiles=3' # one chunk a strip",
    "shape=130x320 axis=0 fill=hard impl=column_held config='threads=128 lanes=16 vec=4 steps=3 tiles=1'",
    "shape=130x320 axis=0 ldx=328 ldy=336 direction=backward log=1 impl=column_held config='direction=backward log=1 "
    "threads=32 lanes=8 vec=4 steps=2 tiles=2'     # strided lines, a warp",
    "shape=100x600 axis=0 dtype=bf16 impl=column_held config='dtype=bf16 threads=64 lanes=8 vec=8 steps=2 tiles=3 "
    "loading=1'                                    # CTAs load one by one",
    "shape=2x300x136 axis=1 impl=column_held config='threads=64 lanes=16 vec=4 steps=1 tiles=5 loading=3' # parts of "
    "one tile and of two",
    "shape=2x300x136 axis=1 fill=hard impl=column_held config='threads=64 lanes=16 vec=4 steps=1 tiles=5 kept=4 "
    "loading=3' # the last tiles in registers",
    "shape=600x72 axis=0 impl=column_held config='threads=32 lanes=16 vec=4 steps=1 tiles=1 kept=1' # and of chunks "
    "whose CTAs gave up",
    "shape=3x300x136 axis=1 dtype=f16 direction=backward impl=column_held config='dtype=f16 direction=backward "
    "threads=64 lanes=8 vec=8 steps=1 tiles=3 kept=3'",
    "shape=300x136 axis=0 dtype=bf16 misalign=1 impl=column_held config='dtype=bf16 threads=64 lanes=8 vec=8 steps=2 "
    "tiles=2'                                      # not for copies of 16 bytes",
    "shape=3x300x133 axis=1 direction=backward ldx=137 ldy=141 log=1 impl=column_held config='direction=backward log=1 "
    "threads=256 lanes=32 vec=4 steps=5 tiles=3 ragged=1' # lines that begin anywhere, by vectors; strided, in phase",
    "shape=200x515 axis=0 dtype=bf16 scale=0.5 impl=column_held config='dtype=bf16 scaled=1 threads=256 lanes=8 vec=8 "
    "steps=1 tiles=2 ragged=1'",
    "shape=3x301x77 axis=1 dtype=bf16 log=1 impl=column_held config='dtype=bf16 log=1 threads=128 lanes=16 vec=8 "
    "steps=2 tiles=3 loading=3 ragged=1'",
    "shape=3x300x262 axis=1 dtype=f16 direction=backward impl=column_held config='dtype=f16 direction=backward "
    "threads=256 lanes=32 vec=8 steps=1 tiles=5 ragged=1'",
    "shape=3x301x77 axis=1 dtype=f16 impl=column_held config='dtype=f16 threads=128 lanes=16 vec=4 steps=4 tiles=3 "
    "ragged=1'                                     # halves of vectors",
    "shape=333x77 axis=0 dtype=f16 misalign=1 impl=column_held config='dtype=f16 threads=128 lanes=16 vec=8 steps=2 "
    "tiles=3 ragged=1'                             # not where tensors begin at no boundary",
    "shape=130x321 axis=0 fill=hard impl=column_held config='threads=256 lanes=16 vec=4 steps=3 tiles=1 ragged=1'",
    "shape=130x321 axis=0 fill=hard dtype=bf16 impl=column_held config='dtype=bf16 threads=128 lanes=16 vec=8 steps=2 "
    "tiles=2 ragged=1'",
    "shape=5x400x136 axis=1 dtype=bf16 fill=hard impl=column_held config='dtype=bf16 threads=128 lanes=4 vec=8 steps=4 "
    "tiles=4 loading=0'                              # whole strips, in the shared memory of a CTA",
    "shape=5x400x136 axis=1 impl=column_held config='threads=128 lanes=4 vec=4 steps=4 tiles=2 kept=2 loading=0'",
    "shape=3x300x136 axis=1 dtype=f16 log=1 direction=backward impl=column_held config='dtype=f16 log=1 "
    "direction=backward threads=64 lanes=8 vec=8 steps=2 tiles=20 loading=0'",
    "shape=3x301x77 axis=1 dtype=f16 impl=column_held config='dtype=f16 threads=128 lanes=16 vec=4 steps=4 tiles=11 "
    "ragged=1 loading=0'",
    "shape=5x48x136 axis=1 dtype=f16 fill=hard impl=column_held config='dtype=f16 ctas_per_sm=24 threads=32 lanes=8 "
    "vec=8 steps=4 tiles=3 loading=0'              # of a warp",
    "shape=3x300x1200 axis=1 dtype=f16 impl=column_held config='dtype=f16 threads=256 lanes=64 vec=2 steps=8 tiles=3' "
    "# lanes of two warps",
    "shape=300x600 axis=0 dtype=bf16 impl=column_held config='dtype=bf16 threads=256 lanes=64 vec=8 steps=2 tiles=2' "
    "# and of vectors of theirs",
    "shape=3x300x136 axis=1 misalign=1 impl=column_held config='threads=64 lanes=8 vec=4 steps=4 tiles=1 kept=1' # by "
    "single elements, of all tiles",
    "shape=5x400x3 axis=1 dtype=bf16 fill=hard impl=column_held config='dtype=bf16 threads=64 lanes=4 vec=8 steps=2 "
    "tiles=2 fold=8 loading=0'", // several lines as one: whole strips
    "shape=5x400x7 axis=1 log=1 impl=column_held config='log=1 threads=64 lanes=8 vec=4 steps=1 tiles=2 fold=4 "
    "loading=4'", // and in chunks
    "shape=5x400x3 axis=1 dtype=bf16 direction=backward impl=column_held config='dtype=bf16 direction=backward "
    "threads=32 lanes=4 vec=8 steps=1 tiles=1 kept=1 fold=8 loading=4'",
    "shape=3x500x20 axis=1 dtype=bf16 misalign=1 impl=column_held config='dtype=bf16 threads=64 lanes=8 vec=8 steps=1 "
    "tiles=2 fold=2 loading=4'", // by the kernels of single elements
    "shape=5x300x8 axis=1 dtype=bf16 direction=backward impl=column_held config='dtype=bf16 direction=backward "
    "threads=64 lanes=1 vec=8 steps=2 tiles=1 kept=2 loading=0'", // all columns are one lane's
    "shape=5x300x4 axis=1 fill=hard impl=column_held config='threads=32 lanes=1 vec=4 steps=2 tiles=1'",
    "shape=3x1324 fill=hard impl=column_held config='threads=32 lanes=1 vec=4 steps=2 tiles=1 kept=2 fold=4' # rows",
    "shape=3x6000 dtype=bf16 direction=backward impl=column_held config='dtype=bf16 direction=backward threads=64 "
    "lanes=1 vec=8 steps=1 tiles=3 fold=8'",
    "shape=5x3000 dtype=f16 log=1 misalign=1 impl=column_held config='dtype=f16 log=1 threads=64 lanes=1 vec=8 steps=2 "
    "tiles=3 fold=8 loading=0'",
    "shape=1000x248 axis=0 dtype=bf16 direction=backward impl=column_long config='dtype=bf16 direction=backward "
    "threads=64 lanes=32 vec=8 steps=2 tiles=9'    # read twice: more tiles than are on their way",
    "shape=3x900x77 axis=1 dtype=f16 fill=hard impl=column_long config='dtype=f16 threads=128 lanes=16 vec=4 steps=4 "
    "tiles=3 ragged=1'                             # fewer; lines that begin anywhere",
    "shape=2x300x37 axis=1 dtype=f16 log=1 impl=column_long config='dtype=f16 log=1 threads=64 lanes=16 vec=1 steps=4 "
    "tiles=3'                                      # too small for cp.async",
    "shape=300x40 axis=0 misalign=1 scale=0.5 impl=column_long config='scaled=1 threads=64 lanes=8 vec=4 steps=2 "
    "tiles=2'",
    "shape=3x1280x77 axis=1 dtype=bf16 fill=hard impl=column_long config='threads=128 lanes=16 tiles=2 fold=16' # "
    "lines that follow each other, taken as one",
    "shape=1288x33 axis=0 direction=backward log=1 impl=column_long config='threads=64 lanes=8 steps=4 tiles=3 fold=4'",
    "shape=1024x5 axis=0 dtype=f16 impl=column_long config='lanes=32 tiles=1 fold=8' # columns of several in a vector",
    "shape=5x600x40 axis=1 dtype=f16 misalign=1 impl=column_long config='threads=64 lanes=4 tiles=2 fold=2'",
    "shape=2x1001x137 axis=1 dtype=f16 impl=column_long config='fold=1' # vectors that begin before their line",
    "shape=130x1320 fill=hard impl=column_long config='threads=64 lanes=1 vec=4 steps=2 tiles=2 fold=4' # rows, folded",
    "shape=3x6000 dtype=bf16 direction=backward impl=column_long config='lanes=1 steps=1 tiles=2 fold=8'",
    "shape=3x5000 misalign=1 log=1 impl=column_long config='threads=64 lanes=2 steps=2 tiles=3 fold=8'",
    "shape=3x48x1200 axis=1 dtype=f16 log=1 impl=column config='dtype=f16 log=1 threads=256 lanes=64 vec=2 steps=12'",
    "shape=7x24x132 axis=1 dtype=f16 fill=hard      # short columns, each in a thread",
    "shape=7x5x300 axis=1 direction=backward misalign=1",
    "shape=300x24 axis=0 dtype=f16 misalign=1      # pointers aligned to the element only",
    "shape=300x24 axis=0 misalign=1 direction=backward",
    "shape=64x40 axis=0 dtype=f16 ldx=48 ldy=56 scale=2 # strided lines",
    "shape=2x3x4x5 axis=1                          # axis in the middle of four",
    "shape=320x130 fill=hard # one NaN, infinity or peak a row, at every place of a warp",
    "shape=130x130 fill=hard scale=0.5 # finite scores up to FLT_MAX / 2",
    "shape=130x320 axis=0 fill=hard scale=0.5",
    "shape=130x320 axis=0 fill=hard # and a column",
    "shape=9x77                                    # ragged rows: vectors and ends, of some lanes",
    "shape=9x513 dtype=bf16 misalign=2             # and of a warp, boundaries elsewhere",
    "shape=9x513 dtype=bf16 stagger=1              # inputs out of phase",
    "shape=3x4097 dtype=f16 stagger=3 log=1",
    "shape=9x514 dtype=bf16 ldx=515 ldy=521 stagger=1 direction=backward",
    "shape=5x515 ldx=517 ldy=518 direction=backward # phases that change from row to row",
    "shape=8x512 dtype=f16 stagger=1 direction=backward # whole vectors, but not where they are",
    "shape=5x1001 mask=add dtype=f16 mask_rows=2   # rows of a mask out of phase",
    "shape=5x1001 mask=bool dtype=bf16 scale=0.5",
    "shape=6x77 mask=bool stagger=1",
    "shape=3x18305 dtype=f16 log=1                 # of 16 bits: longer rows in registers",
    "shape=3x21001 dtype=bf16                      # ragged rows that flow",
    "shape=3x20001 dtype=bf16 misalign=3 direction=backward",
    "shape=3x20001 ldx=20003 ldy=20007 log=1       # in phase, of other pitches",
    "shape=3x20001 dtype=f16 ldx=20003 ldy=20004   # out of phase: by tiles",
    "shape=3x18001 dtype=f16 stagger=5 mask=add",
    "shape=9x2051 dtype=bf16 log=1 impl=pipeline config='threads=64 row_threads=64 cluster=2 vec=8 steps=1 stages=3 "
    "residence=registers chunks=2 exact=0 ragged=1'",
    "shape=17x4107 dtype=bf16 fill=uniform impl=pipeline config='threads=32 row_threads=32 cluster=8 vec=8 steps=2 "
    "stages=24 residence=ring lookahead=1 exact=0 ragged=1'",
    "shape=26x8197 direction=backward fill=uniform impl=pipeline config='threads=32 row_threads=32 cluster=16 vec=4 "
    "steps=2 stages=24 residence=ring lookahead=1 chunks=3 exact=0 ragged=1'",
    "shape=7x9 impl=row config='threads=32 row_threads=8 vec=4 steps=1 exact=0 ragged=1' # hardly a vector",
    "shape=7x2 impl=row config='threads=32 row_threads=8 vec=4 steps=1 exact=0 ragged=1' # nothing but ends",
    "shape=7x1 dtype=f16 impl=row config='threads=32 row_threads=16 vec=8 steps=1 exact=0 ragged=1' misalign=7",
    "shape=320x131 fill=hard # hard values in every place of ragged rows",
    "shape=3x1001 dtype=f16 ldx=1008 ldy=1008      # vectors in the pitch, none in the length",
    "shape=3x1001 dtype=f16 ldx=1008 ldy=1008 direction=backward",
    "shape=7503 direction=backward fill=normal     # y that is no probability",
    "shape=0x8                                     # no rows",
    "shape=8x0                                     # rows of no length",
    NULL,
};

static const char *const population[] = {
    "shape={tokens}x{hidden} dtype={f32|f16|bf16} direction={forward|forward|backward} log={0|1}",
    "shape={tokens}x{vocabulary} dtype={f32|f16|bf16|bf16} direction={forward|backward} log={0|0|1}",
    "shape={tokens}x{experts} dtype={f32|bf16}",
    "shape={heads}x{s:sequence}x{s} scale=0.125 mask={none|add|bool} dtype={f16|bf16}",
    "shape={batch}x{channels}x{image}x{image} axis=1 dtype={f32|f16|bf16} direction={forward|backward}",
    "shape={tokens}x{hidden} axis=0 dtype={f32|bf16} direction={forward|backward}",
    NULL,
};

static const test_reject rejects[] = {
    { "shape=64x64 impl=long config='steps=2^20'", CKL_INVALID, "steps=1048576 is less than 1 or takes more than" },
    { "shape=4x", CKL_INVALID, "softmax: shape=4x is not up to 8 sizes like 4096x1024" },
    { "shape=99999999999999999999x0x4", CKL_INVALID, "is not up to 8 sizes like 4096x1024" },
    { "shape=2^31x2^31", CKL_INVALID, "softmax: x of 2147483648x2147483648 elements" },
    { "shape=4x8 axis=2", CKL_INVALID, "softmax: axis=2 is not in -2..1" },
    { "shape=4x8 dtype=i32", CKL_INVALID, "softmax: dtype=i32 is none of f32, f16, bf16" },
    { "shape=4x8 ldx=7", CKL_INVALID, "softmax: ldx=7 is smaller than n=8" },
    { "shape=4x8x6 axis=1 ldy=5", CKL_INVALID, "softmax: ldy=5 is smaller than inner=6" },
    { "shape=4x8 scale=0", CKL_INVALID, "softmax: scale=0 is as if it were not given: leave it out" },
    { "shape=4x8 scale=-1", CKL_INVALID, "softmax: scale=-1 is negative" },
    { "shape=4x8 mask=bool direction=backward", CKL_INVALID, "softmax: the backward direction takes no mask" },
    { "shape=4x8 mask_rows=-3", CKL_INVALID, "softmax: mask_rows=-3 is negative" },
    { "shape=4x8 mask_rows=2", CKL_INVALID,
      "softmax: mask_rows=2 mask_repeat=0 are not part of a problem without mask" },
    { "shape=4x8 mask_repeat=2", CKL_INVALID, "mask_rows=0 mask_repeat=2 are not part of a problem without mask" },
    { "shape=4x8 impl=row config='threads=48'", CKL_INVALID, "softmax row: threads=48 is no multiple of 32 up to" },
    { "shape=4x8 impl=row config='vec=8'", CKL_INVALID, "softmax row: vec=8 is no power of two of at most 16 bytes" },
    { "shape=8x8 axis=0 mask=bool", CKL_UNSUPPORTED, "softmax column: masks are for the last axis" },
    { "shape=300x7 axis=0 impl=column config='threads=32 lanes=16 vec=4 ragged=1'", CKL_INVALID,
      "softmax column: ragged=1 wants vectors, 4 lanes" },
    { "shape=300x77 axis=0 ldx=79 impl=column_held config='threads=256 lanes=16 vec=4 steps=4 tiles=2 ragged=1'",
      CKL_UNSUPPORTED, "ragged=1, but lines of ldx=79 and ldy=77 begin differently" },
    { "shape=300x77 axis=0 impl=column config='threads=256 lanes=16 vec=4 steps=19 ragged=1'", CKL_INVALID,
      "softmax column: ragged=1 is for chunks with kept=0" },
    { "shape=8x8 axis=0 impl=column config='lanes=3'", CKL_INVALID, "softmax column: lanes=3 is no power of two" },
    { "shape=64x8 axis=0 impl=column_held config='tiles=65'", CKL_INVALID,
      "softmax column_held: tiles=65 is not in 1..64" },
    { "shape=640x8 axis=0 impl=column config='threads=32 lanes=2 vec=4 steps=4'", CKL_INVALID,
      "softmax column: columns of 640 elements, room for 64" },
    { "shape=64x8 axis=0 dtype=f16 impl=column_held config='dtype=f16 threads=32 lanes=2 vec=1 steps=4 tiles=2'",
      CKL_UNSUPPORTED, "softmax column_held: vec=1 is less than 4 bytes" },
    { "shape=8192x64 axis=0 impl=column_held config='threads=1024 lanes=2 vec=4 steps=4 tiles=4'", CKL_UNSUPPORTED,
      "softmax column_held: tiles=4 take" },
    { "shape=64x8 axis=0 impl=column_held config='threads=32 lanes=2 vec=4 steps=3 loading=0'", CKL_INVALID,
      "softmax column_held: loading=0 wants chunks of all n=64 lines" },
    { "shape=64x8 axis=0 impl=column_held config='threads=64 lanes=2 cluster=2 vec=4'", CKL_INVALID,
      "softmax column_held: cluster=2 exact=0, a chunk is a CTA's" },
    { "shape=64x8 axis=0 impl=column_long config='tiles=0'", CKL_INVALID,
      "softmax column_long: tiles=0 is not in 1.." },
    { "shape=100x77 axis=0 impl=column_long config='fold=8 vec=4'", CKL_INVALID,
      "softmax column_long: fold=8 is less than 1, or n=100 lines" },
    { "shape=8x512 ldx=520 impl=column_long config='fold=4 vec=4'", CKL_INVALID,
      "softmax column_long: fold=4 is less than 1, or n=512 lines" },
    { "shape=128x77 axis=0 ldx=80 ldy=80 impl=column_long config='fold=4 vec=4'", CKL_INVALID,
      "softmax column_long: fold=4 is less than 1, or n=128 lines" },
    { "shape=64x5 axis=0 impl=column_held config='fold=3 vec=1'", CKL_INVALID,
      "softmax column_held: fold=3 is less than 1, or n=64 lines" },
    { "shape=64x8 axis=0 impl=column_held config='threads=64 lanes=2 vec=4 steps=2 fold=4'", CKL_INVALID,
      "softmax column_held: fold=4 wants all columns of lanes=2" },
    { "shape=64x8 axis=0 impl=column_held config='kept=9'", CKL_INVALID, "softmax column_held: kept=9 is not in 0..8" },
    { "shape=4x4096 impl=pipeline config='cluster=8'", CKL_INVALID, "cluster=8, but rows have only 1 chunks" },
    { "shape=4x64 impl=row config='row_threads=4 vec=4 steps=8 ragged=1'", CKL_INVALID, "softmax row: ragged=1 wants" },
    { "shape=4x20001 ldy=20002 impl=pipeline", CKL_UNSUPPORTED,
      "rows of x and y lie differently to 16-byte boundaries" },
    { "shape=4x64 impl=row config='row_threads=1 steps=1'", CKL_INVALID,
      "softmax row: rows of 64 elements, room for 4" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(softmax, .operands = operands, .slice_mode = 1, .reference = reference, .terms_along = true,
              .approximation_of = approximation, .flops_each = 5);
