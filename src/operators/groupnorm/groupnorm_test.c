/* groupnorm_test.c - the cases and rejects of group norm. */
#include "operators/groupnorm/groupnorm_config.h"
#include "operators/norm_lab.h"

static ckl_status prepare(void *problem)
{
    norm_problem *p = problem;
    const ckl_groupnorm_desc *d = &p->images;
    bool planes = d->layout == CKL_IMAGE_NCHW;
    int64_t pixels = product_i64(d->h, d->w);
    p->view = (norm_view){ .direction = d->direction,
                           .dtype = d->dtype,
                           .images = product_i64(d->c, pixels) > 0 ? d->n : 0,
                           .groups = d->groups,
                           .channels = d->c,
                           .pixels = pixels,
                           .image_stride = product_i64(d->c, pixels),
                           .channel_stride = planes ? pixels : 1,
                           .pixel_stride = planes ? 1 : d->c,
                           .affine = d->affine,
                           .centred = true,
                           .eps = d->eps };
    return CKL_OK;
}

/* Operands: what they are to the norms, and outputs in order. */
enum { X, DY, GAMMA, BETA, Y, DX, DGAMMA, DBETA, MEAN, RSTD, OPERANDS_COUNT };
static const int norm_of[] = { NORM_X,  NORM_DY,     NORM_GAMMA, NORM_BETA, NORM_Y,
                               NORM_DX, NORM_DGAMMA, NORM_DBETA, NORM_MEAN, NORM_RSTD };
enum { OUT_DX = DX - Y, OUT_MEAN = MEAN - Y };

/* In a backward pass gamma is finite, as groupnorm.h asks. */
static int operands(const void *problem, operand *all)
{
    const norm_problem *p = problem;
    norm_operands(p, all, &all[X], &all[MEAN], &all[RSTD]);
    all[X].along = all[DY].along = p->images.layout == CKL_IMAGE_NCHW ? 1u << 2 | 1u << 3 : 1u << 1 | 1u << 3;
    if (p->view.direction == CKL_DIRECTION_BACKWARD)
        all[GAMMA] = operand_range(all[GAMMA], -1, 1);
    return 0;
}

/* Slices are groups of images; of dgamma and dbeta they are channels. */
static int64_t slices(const void *problem, int output)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    return output <= OUT_DX || output >= OUT_MEAN ? v->images * v->groups : v->channels;
}

static int64_t slice_elements(const void *problem, int output)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    return output <= OUT_DX ? v->channels / v->groups * v->pixels : 1;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    return output <= OUT_DX ? norm_index(&((const norm_problem *)problem)->view, slice, j) : slice;
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    void *all[NORM_OPERANDS] = { 0 };
    for (int i = 0; i < OPERANDS_COUNT; i++)
        all[norm_of[i]] = host[i];
    out.output = norm_of[Y + out.output] - NORM_Y;
    norm_reference(problem, all, out);
}

/* Of both directions: bundles in shared memory, and slices of bundles. */
#define SHAPES(also)                                                                                    \
    "n=1 c=1 h=1 w=1 groups=1" also,                              /* one element */                     \
        "n=3 c=24 h=5 w=7 groups=6" also,                         /* odd images: single elements */     \
        "n=3 c=24 h=5 w=7 groups=6 layout=nhwc" also,             /* four groups a bundle */            \
        "n=2 c=64 h=8 w=8 groups=8 dtype=f16" also,               /* vectors */                         \
        "n=2 c=64 h=8 w=8 groups=8 dtype=f16 layout=nhwc" also,   /* vectors */                         \
        "n=2 c=30 h=6 w=6 groups=10 dtype=bf16 layout=nhwc" also, /* vectors of two groups */           \
        "n=2 c=40 h=5 w=5 groups=4 dtype=f16 layout=nhwc" also,   /* ten channels a group */            \
        "n=2 c=30 h=6 w=6 groups=10 dtype=bf16" also,             /* three channels a group */          \
        "n=1 c=32 h=28 w=28 groups=2 offset=1000" also,           /* a mean of a thousand deviations */ \
        "n=1 c=32 h=28 w=28 groups=2 offset=1000 layout=nhwc affine=0" also,                            \
        "n=2 c=16 h=9 w=9 groups=1 affine=0" also, /* layer norm of images */                           \
        "n=2 c=16 h=9 w=9 groups=1 layout=nhwc dtype=bf16" also,                                        \
        "n=2 c=16 h=8 w=9 groups=16" also, /* instance norm */                                          \
        "n=2 c=16 h=8 w=9 groups=16 layout=nhwc dtype=f16" also,                                        \
        "n=2 c=64 h=8 w=8 groups=8 dtype=f16 misalign=1" also, /* aligned to the element only */        \
        "n=2 c=64 h=8 w=8 groups=8 dtype=bf16 layout=nhwc misalign=1" also,                             \
        "n=2 c=96 h=3 w=3 groups=2 layout=nhwc misalign=1" also,                                        \
        "n=2 c=512 h=1 w=2 groups=1 layout=nhwc" also,               /* pixels wider than a warp */     \
        "n=1 c=4096 h=2 w=2 groups=1 layout=nhwc fill=uniform" also, /* wider than a CTA */             \
        "n=0 c=32 h=8 w=8" also,                                     /* nothing to do */                \
        "n=2 c=32 h=0 w=8" also

static const char *const cases[] = {
    SHAPES(""),
    SHAPES(" direction=backward"),
    "n=2 c=16 h=9 w=9 groups=1 stats=0",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 fill=uniform impl=forward config='cluster=4 parts=1 threads=256 steps=4 "
    "column_threads=16' # a cluster",
    "n=1 c=64 h=32 w=64 groups=2 layout=nhwc fill=uniform impl=forward config='cluster=8 threads=256 column_threads=32 "
    "steps=8'",
    "n=2 c=32 h=9 w=9 groups=8 layout=nhwc impl=forward config='bundle=4 cluster=4 threads=128 column_threads=32 "
    "steps=1' # an idle CTA",
    "n=2 c=32 h=16 w=16 groups=8 layout=nhwc impl=forward_split config='bundle=4 threads=128 column_threads=32 steps=1 "
    "'",
    "n=1 c=2 h=64 w=128 groups=1 impl=forward_split config='vec=1 threads=32 column_threads=16 steps=1' # hundreds of "
    "them",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 direction=backward fill=uniform impl=backward config='cluster=4 parts=1 "
    "threads=256 steps=4 column_threads=16'",
    "n=2 c=32 h=9 w=9 groups=8 direction=backward layout=nhwc impl=backward config='bundle=4 cluster=4 threads=128 "
    "column_threads=32 steps=1'",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward layout=nhwc impl=backward_split config='bundle=4 "
    "threads=128 column_threads=32 steps=1'",
    "n=1 c=2 h=64 w=128 groups=1 direction=backward impl=backward_split config='vec=1 threads=32 column_threads=16 "
    "steps=1'",
    "n=2 c=32 h=16 w=16 groups=8 impl=forward_split config='threads=64 column_threads=16 steps=1' # slices, by one "
    "kernel",
    "n=3 c=32 h=16 w=16 groups=8 layout=nhwc impl=forward_split config='bundle=4 threads=128 column_threads=32 steps=1 "
    "vec=4'",
    "n=2 c=5 h=16 w=16 groups=1 layout=nhwc impl=forward_split config='fold=4 vec=4 threads=64 column_threads=12 "
    "steps=1'",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward impl=backward_split config='threads=64 column_threads=16 steps=1'",
    "n=3 c=32 h=16 w=16 groups=8 layout=nhwc direction=backward impl=backward_split config='bundle=4 threads=128 "
    "column_threads=32 steps=1 vec=4'",
    "n=1 c=2 h=64 w=128 groups=1 direction=backward misalign=1 impl=backward_split config='vec=2 threads=32 "
    "column_threads=16 steps=1'",
    "n=2 c=66 h=3 w=3 groups=2 layout=nhwc dtype=f16 # more single channels side by side than a warp has lanes, twice",
    "n=2 c=66 h=3 w=3 groups=2 layout=nhwc dtype=f16 direction=backward",
    "n=1 c=128 h=40 w=40 groups=128 layout=nhwc dtype=bf16 fill=uniform # a warp has several groups",
    "n=2 c=96 h=5 w=5 groups=48 layout=nhwc dtype=f16 impl=forward config='bundle=48 threads=192 column_threads=4 "
    "cluster=4 vec=2 steps=2'",
    "n=2 c=96 h=16 w=16 groups=48 layout=nhwc impl=forward_split config='bundle=24 threads=128 column_threads=10 "
    "steps=1 vec=4'",
    "n=2 c=93 h=9 w=9 groups=93 layout=nhwc # the last bundle has fewer groups",
    "n=2 c=616 h=5 w=7 groups=8 layout=nhwc dtype=bf16 # 77 vectors of several groups",
    "n=1 c=312 h=9 w=25 groups=312 layout=nhwc impl=forward_split # vectors of several groups, read again",
    "n=3 c=104 h=9 w=5 groups=104 layout=nhwc dtype=f16",
    "n=3 c=104 h=9 w=59 groups=104 layout=nhwc dtype=f16 fill=hard seed=215131 # 89 values of a thread, the first far "
    "away",
    "n=17 c=58 h=188 w=3 groups=58 fill=hard seed=663919       # the first of a group far away",
    "n=7 c=192 h=29 w=3 groups=192 dtype=f16 fill=hard seed=15838 # a thread of two values, one far away",
    "n=2 c=16 h=7 w=7 groups=2 dtype=f16       # channels of nchw that begin anywhere",
    "n=2 c=24 h=3 w=3 groups=2 dtype=bf16 affine=0 fill=uniform",
    "n=2 c=5 h=32 w=32 groups=1 layout=nhwc direction=backward fill=uniform impl=backward_held config='layout=nhwc "
    "channels=5 fold=4 vec=4 threads=64 column_threads=12 steps=4' # gradients of folded pixels of one group",
    "n=3 c=1 h=43 w=51 groups=1 layout=nhwc dtype=bf16 fill=hard",
    "n=3 c=1 h=43 w=51 groups=1 layout=nhwc dtype=bf16 direction=backward",
    "n=1 c=12 h=11 w=9 groups=2 impl=forward_split fill=hard",
    "n=8 c=256 h=5 w=3 groups=32 dtype=bf16    # the same, of groups that share a CTA",
    "n=14 c=104 h=3 w=59 groups=104 layout=nhwc dtype=f16 fill=hard seed=254545",
    "n=2 c=150 h=24 w=95 groups=50 layout=nhwc dtype=bf16 fill=hard seed=800681",
    "n=2 c=150 h=24 w=24 groups=50 layout=nhwc dtype=bf16 fill=uniform",
    "n=3 c=40 h=9 w=5 groups=20 layout=nhwc impl=forward config='bundle=12 cut_short=1 threads=64 column_threads=10 "
    "cluster=2 vec=4 channels=2 steps=3'",
    "n=2 c=1152 h=3 w=3 groups=3 layout=nhwc fill=hard seed=880317 # subnormal products of rstd and gamma",
    "n=1 c=32 h=64 w=64 groups=2 offset=1000 fill=hard seed=8 # x is the mean as f32 has it, gamma infinite",
    "n=3 c=31 h=12 w=8 groups=31 layout=nhwc dtype=f16 # pixels are folded: vectors of the last channel and the first",
    "n=2 c=31 h=12 w=9 groups=31 layout=nhwc dtype=bf16 direction=backward fill=uniform",
    "n=2 c=75 h=16 w=8 groups=1 layout=nhwc dtype=bf16 fill=hard",
    "n=2 c=75 h=16 w=8 groups=1 layout=nhwc dtype=bf16 direction=backward",
    "n=2 c=30 h=8 w=6 groups=10 layout=nhwc dtype=f16 misalign=1",
    "n=2 c=5 h=16 w=16 groups=1 layout=nhwc impl=forward_split config='fold=4 vec=4 threads=64 column_threads=12 "
    "steps=2'",
    "n=2 c=33 h=8 w=16 groups=11 layout=nhwc impl=forward_split config='fold=4 vec=4 bundle=11 threads=160 "
    "column_threads=4 steps=2'",
    "n=2 c=33 h=8 w=16 groups=11 layout=nhwc direction=backward impl=backward_split config='fold=4 vec=4 bundle=11 "
    "threads=160 column_threads=4 steps=2'",
    "n=2 c=33 h=8 w=16 groups=33 layout=nhwc direction=backward impl=backward config='fold=4 vec=4 bundle=33 "
    "threads=160 column_threads=4 cluster=4 steps=2'",
    "n=2 c=58 h=9 w=4 groups=58 impl=forward config='bundle=16 cut_short=1 threads=128 column_threads=8 steps=2 vec=4' "
    "# planes together, the last ones fewer",
    "n=2 c=58 h=9 w=4 groups=29 direction=backward dtype=f16 impl=backward config='bundle=8 cut_short=1 threads=128 "
    "column_threads=8 steps=2 vec=4'",
    "n=2 c=58 h=9 w=4 groups=29 direction=backward dtype=f16 impl=backward config='bundle=8 cut_short=1 cluster=2 "
    "threads=64 column_threads=4 steps=2 vec=4'",
    "n=130 c=48 h=7 w=8 groups=48 dtype=bf16 fill=hard impl=forward # planes together",
    "n=130 c=48 h=7 w=8 groups=48 dtype=bf16 direction=backward fill=uniform impl=backward",
    "n=128 c=9 h=2 w=2 groups=3 layout=nhwc direction=backward fill=integers # as many lines as are few",
    "n=3 c=104 h=9 w=5 groups=104 layout=nhwc dtype=f16 direction=backward # a warp has several groups",
    "n=2 c=616 h=3 w=7 groups=8 layout=nhwc dtype=bf16 direction=backward # 77 vectors of several groups",
    "n=3 c=7 h=9 w=11 groups=7 dtype=f16 fill=hard # ragged planes: all phases, ends of several for a thread",
    "n=3 c=7 h=9 w=11 groups=7 fill=uniform misalign=1",
    "n=300 c=49 h=7 w=13 groups=49 dtype=bf16 # ragged planes together, the last ones fewer",
    "n=2 c=9 h=9 w=9 groups=3 dtype=f16 fill=hard impl=forward config='ragged=1 vec=8 channels=3 threads=64 "
    "column_threads=64 steps=1' # threads of ends alone, of several columns",
    "n=3 c=8 h=3 w=3 groups=8 offset=1000 impl=forward config='ragged=1 vec=4 channels=1 threads=64 column_threads=64 "
    "steps=1' # a thread of one value, an end",
    "n=2 c=9 h=37 w=29 groups=3 offset=1000 impl=forward config='ragged=1 vec=4 channels=3 cluster=4 threads=96 "
    "column_threads=32 steps=3' # each CTA of a cluster has ends",
    "n=2 c=6 h=37 w=29 groups=6 fill=hard impl=forward_split config='ragged=1 vec=4 threads=64 column_threads=64 "
    "steps=1'",
    "n=3 c=7 h=9 w=11 groups=7 dtype=f16 direction=backward",
    "n=3 c=14 h=9 w=11 groups=7 direction=backward fill=hard misalign=1",
    "n=2 c=112 h=7 w=7 groups=2 dtype=f16 direction=backward # some threads a plane of single elements",
    "n=2 c=96 h=9 w=9 groups=2 direction=backward impl=backward config='channels=48 ragged=0 vec=1 threads=64 "
    "column_threads=32 steps=3' # a thread has columns of one group",
    "n=2 c=32 h=19 w=16 groups=8 direction=backward layout=nhwc impl=backward_split config='bundle=4 vec=4 threads=128 "
    "column_threads=32 channels=4 steps=10' # vectors loaded ahead, four at once, the last ones",
    "n=2 c=32 h=19 w=16 groups=8 direction=backward impl=backward_split fill=hard config='threads=64 column_threads=16 "
    "channels=4 vec=4 steps=3'",
    "n=1 c=32 h=17 w=16 groups=8 direction=backward layout=nhwc impl=backward_split config='bundle=4 vec=4 threads=128 "
    "column_threads=32 channels=4 steps=1' # the last threads have no vector, and none lies ahead",
    "n=2 c=32 h=16 w=16 groups=8 impl=forward_held config='channels=4 threads=64 column_threads=16 steps=1' # slices "
    "that are held",
    "n=2 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 impl=forward_held config='dtype=bf16 layout=nhwc channels=8 "
    "bundle=8 threads=64 column_threads=8 vec=8 steps=8'    # the last slice is cut short",
    "n=1 c=2 h=37 w=29 groups=2 fill=hard impl=forward_held config='ragged=1 vec=4 threads=64 column_threads=64 "
    "steps=2'",
    "n=3 c=5 h=16 w=16 groups=1 layout=nhwc misalign=1 impl=forward_held config='channels=5 layout=nhwc fold=4 vec=4 "
    "threads=64 column_threads=12 steps=3'",
    "n=2 c=96 h=16 w=16 groups=48 layout=nhwc affine=0 impl=forward_held config='layout=nhwc affine=0 channels=2 "
    "bundle=24 threads=128 column_threads=10 vec=4 steps=8'  # vectors of two groups",
    "n=2 c=48 h=12 w=16 groups=48 layout=nhwc dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 layout=nhwc "
    "bundle=48 threads=96 column_threads=16 vec=8 steps=5' # all groups, more than warps",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward impl=backward_held config='channels=4 threads=64 column_threads=16 "
    "steps=1'",
    "n=3 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 direction=backward impl=backward_held config='dtype=bf16 "
    "layout=nhwc channels=8 bundle=8 threads=64 column_threads=8 vec=8 steps=8'",
    "n=1 c=96 h=32 w=32 groups=32 layout=nhwc direction=backward fill=hard impl=backward_held config='layout=nhwc "
    "channels=3 bundle=8 threads=64 column_threads=10 vec=4 steps=8' # vectors of two groups",
    "n=2 c=4 h=37 w=29 groups=2 direction=backward misalign=1 impl=backward_held config='channels=2 ragged=0 vec=1 "
    "threads=64 column_threads=32 steps=4'",
    "n=2 c=4 h=37 w=29 groups=2 direction=backward fill=hard impl=backward_held config='channels=2 ragged=1 vec=4 "
    "threads=64 column_threads=32 steps=3'",
    "n=3 c=20 h=16 w=9 groups=20 layout=nhwc fill=hard impl=forward_held config='layout=nhwc channels=1 bundle=8 "
    "cut_short=1 threads=64 column_threads=32 vec=4 steps=2' # the last bundle that is held has fewer groups",
    "n=3 c=40 h=16 w=9 groups=40 layout=nhwc dtype=bf16 direction=backward fill=hard impl=backward_held "
    "config='dtype=bf16 layout=nhwc channels=1 bundle=16 cut_short=1 threads=64 column_threads=32 vec=8 steps=2'",
    "n=1 c=40 h=96 w=32 groups=40 layout=nhwc dtype=bf16 direction=backward impl=backward_held config='dtype=bf16 "
    "layout=nhwc channels=1 bundle=32 cut_short=1 threads=64 column_threads=16 vec=8 steps=2 early=8' # 96 slices",
    "n=2 c=76 h=16 w=9 groups=4 layout=nhwc fill=hard impl=forward_held config='layout=nhwc channels=19 bundle=4 "
    "threads=64 column_threads=3 vec=4 steps=8' # vectors of two groups of many channels",
    "n=2 c=6 h=37 w=29 groups=2 dtype=f16 direction=backward fill=hard impl=backward_split config='dtype=f16 "
    "channels=3 ragged=1 vec=8 threads=96 column_threads=32 steps=2' # ragged planes, read twice",
    "n=2 c=4 h=37 w=29 groups=2 direction=backward misalign=1 impl=backward_split config='channels=2 ragged=1 vec=4 "
    "threads=64 column_threads=32 steps=3'",
    "n=3 c=128 h=8 w=8 groups=128 layout=nhwc dtype=f16 # a lane a group",
    "n=2 c=64 h=16 w=24 groups=64 layout=nhwc dtype=bf16 fill=hard seed=3 impl=forward config='dtype=bf16 layout=nhwc "
    "bundle=64 threads=64 column_threads=8 vec=8 steps=12 cluster=4' # pivots are its own",
    "n=2 c=64 h=16 w=24 groups=64 layout=nhwc dtype=bf16 fill=hard impl=forward_split config='dtype=bf16 layout=nhwc "
    "bundle=64 threads=64 column_threads=8 vec=8 steps=9'",
    "n=3 c=128 h=8 w=12 groups=128 layout=nhwc fill=hard",
    "n=2 c=100 h=6 w=7 groups=100 layout=nhwc direction=backward fill=hard",
    "n=1 c=12 h=30 w=64 groups=6 dtype=f16 direction=backward layout=nhwc impl=backward_split config='bundle=2 fold=1 "
    "threads=96 column_threads=96 channels=2 vec=4 steps=9' # vectors of two groups",
    "n=2 c=9 h=37 w=29 groups=3 dtype=bf16 direction=backward fill=uniform impl=backward config='ragged=1 vec=8 "
    "channels=3 cluster=4 threads=64 column_threads=64 steps=1'",
    "n=2 c=24 h=16 w=9 groups=2 dtype=bf16 fill=hard impl=forward config='cluster=4 parts=2 vec=8 threads=64 "
    "column_threads=8 steps=2' # channels of a group shared out",
    "n=2 c=24 h=16 w=9 groups=2 fill=hard direction=backward impl=backward config='cluster=4 parts=4 vec=4 threads=96 "
    "column_threads=32 steps=2'",
    "n=2 c=24 h=16 w=9 groups=2 impl=forward_split config='parts=3 vec=4 threads=64 column_threads=16 steps=2'",
    "n=2 c=24 h=16 w=9 groups=2 dtype=f16 fill=hard direction=backward impl=backward_split config='parts=6 vec=8 "
    "threads=64 column_threads=8 steps=2'",
    "n=2 c=24 h=16 w=9 groups=2 dtype=bf16 impl=forward_held config='dtype=bf16 channels=12 parts=12 vec=8 threads=64 "
    "column_threads=8 steps=1' # a CTA may take other channels",
    "n=2 c=24 h=16 w=9 groups=2 dtype=bf16 fill=hard direction=backward impl=backward_held config='dtype=bf16 "
    "channels=12 parts=6 vec=8 threads=64 column_threads=8 steps=1'",
    "n=2 c=8 h=37 w=29 groups=2 dtype=bf16 fill=hard direction=backward impl=backward config='cluster=4 parts=2 "
    "ragged=1 vec=8 threads=64 column_threads=32 steps=3'",
    "n=2 c=65 h=8 w=9 groups=65 layout=nhwc dtype=bf16 fill=hard # pixels are folded, and added up one by one",
    "n=3 c=107 h=8 w=8 groups=107 layout=nhwc dtype=f16 fill=uniform",
    "n=3 c=107 h=8 w=8 groups=107 layout=nhwc dtype=f16 direction=backward fill=uniform # a lane a group",
    "n=1 c=127 h=24 w=16 groups=127 layout=nhwc fill=hard impl=forward",
    "n=1 c=127 h=48 w=16 groups=127 layout=nhwc fill=hard impl=forward_split # folded, of more than 64 groups",
    "n=2 c=107 h=30 w=32 groups=107 layout=nhwc dtype=bf16 direction=backward fill=uniform impl=backward_split",
    "n=2 c=136 h=37 w=24 groups=136 layout=nhwc fill=hard impl=forward_split # whole pixels, entries merged early",
    "n=2 c=64 h=67 w=67 groups=32 layout=nhwc dtype=f16 direction=backward fill=uniform impl=backward_split",
    "n=2 c=231 h=8 w=9 groups=33 layout=nhwc dtype=bf16 fill=hard impl=forward # more channels than vectors of a group",
    "n=2 c=231 h=8 w=9 groups=33 layout=nhwc dtype=bf16 direction=backward fill=uniform impl=backward",
    "n=2 c=231 h=32 w=33 groups=33 layout=nhwc dtype=bf16 fill=hard impl=forward_split",
    "n=2 c=231 h=32 w=33 groups=33 layout=nhwc direction=backward misalign=1 impl=backward_split",
    "n=2 c=462 h=8 w=9 groups=22 layout=nhwc dtype=bf16 fill=hard impl=forward # of vectors of one element each",
    "n=2 c=66 h=16 w=33 groups=33 layout=nhwc dtype=f16 fill=hard impl=forward_held config='dtype=f16 layout=nhwc "
    "channels=2 bundle=33 fold=4 vec=8 threads=192 column_threads=5 steps=5' # of two elements",
    "n=2 c=66 h=16 w=33 groups=33 layout=nhwc dtype=f16 fill=uniform direction=backward impl=backward_held "
    "config='dtype=f16 layout=nhwc channels=2 bundle=33 fold=4 vec=8 threads=192 column_threads=5 steps=5'",
    "n=2 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 impl=forward_held config='dtype=bf16 layout=nhwc channels=8 "
    "bundle=8 threads=64 column_threads=8 vec=8 steps=8 loading=1' # CTAs load one by one",
    "n=3 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 direction=backward fill=uniform impl=backward_held "
    "config='dtype=bf16 layout=nhwc channels=8 bundle=8 threads=64 column_threads=8 vec=8 steps=8 loading=3'",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=hard impl=forward_held config='dtype=f16 layout=nhwc "
    "channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=4' # each lane merges 50 slices",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=uniform direction=backward impl=backward_held "
    "config='dtype=f16 layout=nhwc channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=4'",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=hard impl=forward_held config='dtype=f16 layout=nhwc "
    "channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=4 early=8' # entries of eight slices become one",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=uniform direction=backward impl=backward_held "
    "config='dtype=f16 layout=nhwc channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=4 early=8'",
    "n=1 c=64 h=7 w=13 groups=64 layout=nhwc dtype=f16 impl=forward_held config='dtype=f16 layout=nhwc channels=1 "
    "bundle=64 vec=8 threads=64 column_threads=8 steps=1 early=8' # so few that a quick run repeats it: early counters",
    "n=1 c=64 h=7 w=13 groups=64 layout=nhwc dtype=f16 direction=backward impl=backward_held config='dtype=f16 "
    "layout=nhwc channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=1 early=8'",
    "n=2 c=79 h=23 w=128 groups=79 layout=nhwc fill=hard impl=forward_held config='layout=nhwc channels=1 bundle=79 "
    "fold=4 vec=4 threads=256 column_threads=3 steps=3 early=8' # of folded pixels",
    "n=2 c=75 h=16 w=16 groups=1 dtype=f16 direction=backward fill=uniform impl=backward_held config='dtype=f16 "
    "channels=75 parts=75 vec=8 threads=64 column_threads=32 steps=1'",
    "n=9 c=40 h=32 w=33 groups=8 layout=nhwc direction=backward fill=uniform impl=backward_split config='layout=nhwc "
    "channels=5 bundle=4 vec=4 threads=160 column_threads=32 steps=1' # 297 lines of sums",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=hard impl=forward_held config='dtype=f16 layout=nhwc "
    "channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=9 loading=3' # half a slice is added up "
    "early",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=uniform direction=backward impl=backward_held "
    "config='dtype=f16 layout=nhwc channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=9'",
    "n=1 c=64 h=32 w=63 groups=2 dtype=bf16 fill=hard impl=forward config='cluster=4 parts=1 threads=256 steps=16 "
    "column_threads=4' # threads without a second half",
    "n=1 c=64 h=32 w=63 groups=2 dtype=bf16 fill=uniform direction=backward impl=backward config='cluster=4 parts=1 "
    "threads=256 steps=16 column_threads=4'",
    "n=2 c=265 h=9 w=8 groups=265 layout=nhwc dtype=f16 # more groups than threads of eight warps",
    "n=2 c=137 h=9 w=7 groups=137 layout=nhwc dtype=bf16 fill=hard misalign=1 # single elements, the last bundle has "
    "fewer",
    "n=1 c=199 h=1 w=1 groups=199 layout=nhwc fill=hard",
    "n=1 c=32 h=28 w=28 groups=16 offset=1000 layout=nhwc affine=0 # pivots of channels",
    "n=2 c=32 h=9 w=12 groups=16 layout=nhwc affine=0 direction=backward fill=uniform",
    "n=2 c=32 h=8 w=8 groups=4 layout=nhwc fill=hard impl=forward config='layout=nhwc channels=8 bundle=4 fold=2 vec=4 "
    "threads=64 column_threads=4 steps=8' # folded, though vectors are of one group each",
    "n=3 c=174 h=8 w=9 groups=58 layout=nhwc dtype=f16 fill=hard # three channels a group",
    "n=1 c=265 h=16 w=33 groups=265 layout=nhwc dtype=f16 fill=hard impl=forward_held config='dtype=f16 layout=nhwc "
    "channels=1 bundle=265 fold=8 vec=8 threads=288 column_threads=1 steps=1 early=12' # a lane merges twelve "
    "slices early",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=hard impl=forward_split config='dtype=f16 layout=nhwc "
    "channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=4 early=12'",
    "n=2 c=64 h=48 w=33 groups=64 layout=nhwc dtype=f16 fill=uniform direction=backward impl=backward_split "
    "config='dtype=f16 layout=nhwc channels=1 bundle=64 vec=8 threads=128 column_threads=16 steps=2 early=10'",
    "n=2 c=107 h=30 w=32 groups=107 layout=nhwc dtype=bf16 fill=hard misalign=1 impl=forward # lines take turns",
    "n=2 c=33 h=8 w=64 groups=11 layout=nhwc impl=forward config='layout=nhwc channels=3 fold=4 vec=4 bundle=11 "
    "threads=160 column_threads=4 steps=10 cluster=4'",
    "n=2 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 layout=nhwc "
    "channels=8 bundle=8 vec=8 threads=64 column_threads=8 steps=10 kept=3 loading=3' # vectors in registers",
    "n=2 c=64 h=64 w=33 groups=64 layout=nhwc dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 layout=nhwc "
    "channels=1 bundle=64 vec=8 threads=64 column_threads=8 steps=40 kept=16' # of several groups, and two slices' "
    "rest",
    "n=2 c=15 h=64 w=33 groups=5 layout=nhwc dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 layout=nhwc "
    "channels=3 bundle=5 fold=8 vec=8 threads=64 column_threads=4 steps=13 kept=7' # of folded pixels",
    "n=2 c=24 h=17 w=13 groups=2 dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 channels=12 parts=12 vec=8 "
    "ragged=1 threads=64 column_threads=8 steps=5 kept=2' # of ragged columns",
    "n=2 c=40 h=32 w=33 groups=4 layout=nhwc dtype=bf16 fill=hard direction=backward impl=backward_held "
    "config='dtype=bf16 layout=nhwc channels=10 bundle=4 vec=8 threads=64 column_threads=12 steps=10 kept=2'",
    "n=2 c=64 h=32 w=33 groups=8 layout=nhwc dtype=f16 fill=uniform misalign=2 direction=backward impl=backward_held "
    "config='dtype=f16 layout=nhwc channels=8 bundle=8 vec=8 threads=64 column_threads=8 steps=8 kept=5'",
    "n=2 c=24 h=17 w=13 groups=2 dtype=bf16 fill=hard direction=backward impl=backward_held config='dtype=bf16 "
    "channels=12 parts=6 vec=8 ragged=1 threads=64 column_threads=8 steps=5 kept=2 loading=3'",
    "n=3 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 layout=nhwc "
    "channels=8 bundle=2 vec=8 threads=64 column_threads=32 steps=10 alone=1 loading=3' # loads that fill L2 "
    "with no more",
    "n=2 c=150 h=2 w=4 groups=1 impl=forward config='channels=150 vec=4 threads=64 column_threads=2 steps=1' # scales "
    "of more channels than threads",
    "n=2 c=150 h=2 w=4 groups=1 direction=backward impl=backward config='channels=150 vec=4 threads=64 "
    "column_threads=1 steps=2'",
    "n=2 c=1040 h=1 w=2 groups=1 dtype=f16 impl=forward config='dtype=f16 channels=1040 vec=2 threads=64 "
    "column_threads=1 steps=1' # of more than have scales",
    "n=2 c=1040 h=1 w=2 groups=1 dtype=f16 direction=backward impl=backward config='dtype=f16 channels=1040 vec=2 "
    "threads=64 column_threads=1 steps=1'",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 fill=hard impl=forward config='cluster=4 parts=1 threads=256 steps=8 "
    "kept=3 "
    "column_threads=8' # vectors in registers of a cluster",
    "n=2 c=12 h=16 w=18 groups=4 fill=uniform direction=backward impl=backward config='channels=3 vec=4 threads=96 "
    "column_threads=8 steps=9 kept=4' # and of a CTA, whose last columns do not exist",
    "n=2 c=16 h=48 w=64 groups=8 dtype=f16 fill=hard impl=forward_held config='dtype=f16 channels=2 vec=8 threads=64 "
    "column_threads=32 steps=8 kept=1 again=3 loading=3' # vectors that are read again",
    "n=2 c=15 h=64 w=33 groups=5 layout=nhwc dtype=bf16 fill=hard impl=forward_held config='dtype=bf16 layout=nhwc "
    "channels=3 bundle=5 fold=8 vec=8 threads=64 column_threads=4 steps=13 kept=3 again=5'",
    "n=2 c=64 h=32 w=33 groups=8 layout=nhwc dtype=bf16 fill=hard direction=backward impl=backward_held "
    "config='dtype=bf16 layout=nhwc channels=8 bundle=8 vec=8 threads=64 column_threads=8 steps=12 kept=3 again=6'",
    "n=2 c=40 h=32 w=33 groups=4 layout=nhwc dtype=bf16 misalign=1 direction=backward impl=backward_held "
    "config='dtype=bf16 layout=nhwc channels=10 bundle=4 vec=8 threads=64 column_threads=12 steps=10 kept=2 again=4'",
    "n=2 c=24 h=17 w=13 groups=2 dtype=bf16 fill=hard direction=backward impl=backward_held config='dtype=bf16 "
    "channels=12 parts=6 vec=8 ragged=1 threads=64 column_threads=8 steps=6 again=3 loading=3'",
    "n=3 c=21 h=873 groups=21 layout=nhwc dtype=f16 fill=hard # whole images of what no cluster holds",
    NULL,
};

static const char *const population[] = {
    "n={batch} c={channels} h={s:image} w={s} groups={1|4|8|16|32|32|32|32} layout={nchw|nhwc} dtype={f32|f16|bf16} "
    "direction={forward|backward}",
    "n={batch} c={c:channels} h={image} w={image} groups={c} layout={nchw|nhwc} dtype={f32|f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "n=-1", CKL_INVALID, "groupnorm: n=-1 is negative" },
    { "h=-3 direction=backward", CKL_INVALID, "groupnorm: h=-3 is negative" },
    { "groups=1 c=1 n=1 h=1 w=2^55", CKL_INVALID, "spans more than 2^56 bytes" },
    { "c=32 groups=5", CKL_INVALID, "groupnorm: groups=5 does not divide c=32" },
    { "groups=0", CKL_INVALID, "groupnorm: groups=0 is less than 1" },
    { "dtype=i8", CKL_INVALID, "groupnorm: dtype=i8 is none of f32, f16, bf16" },
    { "groups=9 c=81 n=3 h=1 w=2^61", CKL_INVALID, "groupnorm: x of 3x9x9x2305843009213693952 elements" },
    { "eps=inf", CKL_INVALID, "groupnorm: eps=inf is not finite" },
    { "eps=-1", CKL_INVALID, "groupnorm: eps=-1 is negative" },
    { "impl=backward", CKL_UNSUPPORTED, "groupnorm backward: direction is forward" },
    { "impl=forward config='bundle=2'", CKL_INVALID, "are not those of the channels of bundle=2" },
    { "layout=nhwc impl=forward config='fold=3'", CKL_INVALID, "fold=3 is for whole pixels of nhwc" },
    { "impl=forward_split config='cut_short=1 bundle=3 channels=4'", CKL_INVALID,
      "cut_short=1 is for slices that are kept" },
    { "layout=nhwc impl=forward config='bundle=3 column_threads=1'", CKL_INVALID, "bundle=3 does not divide groups=8" },
    { "layout=nhwc impl=forward config='column_threads=3'", CKL_INVALID, "the threads of a vector of channels" },
    { "c=8 h=3 w=5 impl=forward config='vec=4'", CKL_UNSUPPORTED, "groupnorm forward: vec=4 does not divide h*w" },
    { "h=5 w=5 impl=forward config='fold=5'", CKL_INVALID, "fold=5 is for whole pixels of nhwc" },
    { "h=9 w=9 impl=forward config='ragged=1 vec=2'", CKL_INVALID, "ragged=1 is for vectors of 16 bytes of nchw" },
    { "layout=nhwc impl=forward config='ragged=1 vec=4'", CKL_INVALID, "ragged=1 is for vectors of 16 bytes of nchw" },
    { "impl=forward config='cluster=2 parts=3'", CKL_INVALID, "parts=3 do not divide the channels" },
    { "layout=nhwc impl=forward config='cluster=2 parts=2 bundle=1'", CKL_INVALID, "of a group of nchw" },
    { "impl=forward config='cluster=2 parts=4'", CKL_INVALID, "or the cluster" },
    { "impl=forward config='loading=132'", CKL_INVALID, "loading=132 is for slices that are held" },
    { "impl=forward config='alone=1'", CKL_INVALID, "alone=1 is for held slices of vectors of 16 bytes" },
    { "impl=backward direction=backward config='prefetch=1'", CKL_INVALID,
      "prefetch=1 is for slices that are read once" },
    { "impl=forward config='threads=64 column_threads=16 steps=4 again=1'", CKL_INVALID, "again=1 is for held slices" },
    { "impl=forward_held config='threads=64 column_threads=16 steps=4 again=2'", CKL_INVALID, "all but 3 vectors" },
    { "impl=forward config='ctas_per_sm=-1'", CKL_INVALID, "or ctas_per_sm=-1 less than 0" },
    { "impl=forward_split config='channels=4 early=33'", CKL_INVALID, "early=33 is no multiple of 32" },
    { "impl=forward_held config='channels=4 threads=64 column_threads=16 parts=2 early=2'", CKL_INVALID,
      "early=2 is for slices of whole vectors" },
    { "impl=forward config='threads=64 column_threads=16 steps=3 kept=1'", CKL_INVALID,
      "kept=1 is for slices read once" },
    { "impl=forward_held config='channels=4 threads=64 column_threads=16 vec=4 steps=4 kept=2'", CKL_INVALID,
      "all but 3" },
    { "impl=forward config='steps=1000'", CKL_UNSUPPORTED, "bytes of shared memory" },
    { "c=16 h=64 w=112 groups=16 layout=nhwc dtype=f16 impl=forward config='dtype=f16 layout=nhwc channels=1 bundle=16 "
      "vec=8 threads=64 column_threads=32 steps=224'",
      CKL_UNSUPPORTED, "adds up more values of a group than leave its statistics exact" },
    { "h=64 impl=backward direction=backward config='steps=1'", CKL_INVALID, "units of a channel" },
    { "impl=forward_split config='threads=100'", CKL_INVALID, "threads=100 is no multiple of 32" },
    { "direction=backward eps=0.5", CKL_INVALID, "groupnorm: eps=0.5 is not part of a backward problem" },
    { NULL, CKL_OK, NULL },
};

NORM_TEST(groupnorm, .prepare = prepare, .operands = operands, .reference = reference, .slices = slices,
          .slice_elements = slice_elements, .output_index = output_index, .rejects = rejects);
