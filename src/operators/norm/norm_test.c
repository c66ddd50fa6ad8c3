/* norm_test.c - cases and rejects of layer norm and RMS norm. */
#include "operators/norm/norm_config.h"
#include "operators/norm_lab.h"

static norm_view view_of(const ckl_norm_desc *d, bool centred)
{
    return (norm_view){ .direction = d->direction,
                        .dtype = d->dtype,
                        .images = d->rows,
                        .groups = 1,
                        .channels = d->cols,
                        .pixels = 1,
                        .image_stride = d->ldx,
                        .channel_stride = 1,
                        .affine = d->affine,
                        .residual = d->residual,
                        .centred = centred,
                        .eps = d->eps };
}

static ckl_status prepare_layernorm(void *problem)
{
    norm_problem *p = problem;
    p->view = view_of(&p->rows, true);
    return CKL_OK;
}

static ckl_status prepare_rmsnorm(void *problem)
{
    norm_problem *p = problem;
    p->view = view_of(&p->rows, false);
    return CKL_OK;
}

static int operands(const void *problem, operand *all)
{
    norm_operands(problem, all, &all[NORM_X], &all[NORM_MEAN], &all[NORM_RSTD]);
    return 0;
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
    "rows=1 cols=600002 offset=1000 fill=integers # roundings of squares that do not cancel",
    "rows=1 cols=600000 dtype=f16 residual=1 fill=uniform",
    "rows=2 cols=300 residual=1 impl=forward config='threads=128 row_threads=128 steps=1 tiled=1'    # tile by tile",
    "rows=3 cols=3001 offset=1000 impl=forward config='threads=128 row_threads=128 vec=1 steps=4 tiled=1 ragged=0'",
    "rows=2 cols=5000 offset=1000 residual=1 impl=forward config='threads=512 row_threads=512 cluster=2 steps=1 "
    "tiled=1'",
    "rows=7 cols=512 impl=forward config='threads=128 row_threads=128 steps=1 exact=1'",
    "rows=2 cols=4096 impl=forward config='threads=256 row_threads=256 cluster=4 steps=1'",
    "rows=3 cols=700 impl=forward config='threads=32 row_threads=32 cluster=4 steps=2' # a cluster of warps",
    "rows=19 cols=9000 ldx=9001 ldy=9000           # out of phase: single elements, or tiles",
    "rows=19 cols=9001 ldx=9001 ldy=9002 residual=1",
    "rows=19 cols=17001 ldx=17001 ldy=17008 dtype=f16",
    "rows=7 cols=40000 ldx=40000 ldy=40003 dtype=bf16 misalign=1",
    "rows=5 cols=40001 ldx=40008 ldy=40009 dtype=bf16 affine=0",
    "rows=19 cols=9001 ldx=9004 ldy=9009 fill=hard",
    "rows=5 cols=20000 dtype=bf16                  # rows that flow: in a loop, the last chunk cut short",
    "rows=7 cols=23032 dtype=bf16 residual=1       # hard: a row of one value, which the residual rounds",
    "rows=3 cols=12000 residual=1                  # with the residual's row beside",
    "rows=5 cols=12296 dtype=f16 residual=1 offset=10 # by 512 threads, some of which have one vector less",
    "rows=4 cols=20000 dtype=f16 misalign=1        # not for bulk copies",
    "rows=9 cols=2048 dtype=bf16 residual=1 impl=forward config='threads=64 row_threads=64 cluster=2 vec=8 steps=1 "
    "stages=3 residence=registers chunks=2 exact=1'",
    "rows=9 cols=1000 impl=forward config='threads=32 row_threads=32 cluster=2 vec=4 steps=2 stages=2 residence=ring "
    "exact=0'",
    "rows=17 cols=8200 dtype=bf16 residual=1 impl=forward config='threads=32 row_threads=32 cluster=16 vec=8 steps=2 "
    "stages=24 residence=ring lookahead=1 exact=0' # the next row is read before one is written, in a loop",
    "rows=320 cols=130 fill=hard # one NaN, infinity or peak a row",
    "rows=9 cols=77 affine=0                             # ragged rows: vectors and ends, of some lanes",
    "rows=9 cols=77                                      # too short to be ragged with gamma",
    "rows=1200 cols=77 direction=backward dtype=bf16     # gradients, rows of a CTA in phase",
    "rows=9 cols=1001 direction=backward residual=1      # ragged rows that flow",
    "rows=40 cols=1403 direction=backward dtype=bf16 affine=0 fill=uniform # what lies outside of them is not dy",
    "rows=150 cols=1003 direction=backward dtype=bf16 ldx=1006 ldy=1014 misalign=1",
    "rows=9 cols=1001 direction=backward ldx=1002 ldy=1003 dtype=f16 # out of phase: single elements",
    "rows=30 cols=3456 dtype=f16 ldx=3457                      # y is aligned, x is not: it is cut",
    "rows=37 cols=1024 dtype=bf16 ldx=1027 ldy=1032 residual=1 stagger=1 fill=uniform",
    "rows=9 cols=4992 dtype=bf16 ldx=4993                      # by half the threads, few of which have nothing to do",
    "rows=130 cols=136 dtype=bf16 ldx=137 misalign=1",
    "rows=19 cols=4096 direction=backward ldx=4097 dtype=bf16  # dx lies otherwise: x and dy are cut",
    "rows=19 cols=1003 direction=backward ldx=1004 ldy=1009 dtype=f16 residual=1 fill=uniform",
    "rows=9 cols=2048 direction=backward ldy=2049                # rows of dx alone are ragged",
    "rows=9 cols=20001 direction=backward ldx=20003 ldy=20006 dtype=f16",
    "rows=70 cols=2601 direction=backward dtype=bf16             # ragged rows of three chunks",
    "rows=40 cols=519 direction=backward dtype=bf16 fill=uniform impl=backward config='threads=32 row_threads=32 "
    "cluster=1 vec=8 steps=1 ragged=1 exact=0 stages=4 residence=ring lookahead=1 chunks=2 cut=0' # full or not",
    "rows=40 cols=521 direction=backward dtype=f16 fill=uniform impl=backward config='threads=32 row_threads=32 "
    "cluster=1 vec=8 steps=1 ragged=1 exact=0 stages=6 residence=ring lookahead=1 chunks=3 cut=0' # of two or three",
    "rows=9 cols=521 dtype=f16 offset=100 impl=forward config='threads=32 row_threads=32 cluster=2 vec=8 steps=1 "
    "ragged=1 exact=0 stages=4 residence=registers lookahead=0 chunks=2 shared_weights=1' # in a pair",
    "rows=5 cols=1301 dtype=bf16 offset=100 misalign=1 impl=forward config='threads=32 row_threads=32 cluster=1 vec=8 "
    "steps=2 ragged=1 exact=0 stages=4 residence=registers lookahead=0 chunks=3 shared_weights=1' # gamma and beta "
    "from any address on",
    "rows=5 cols=1801 dtype=f16 offset=100 stagger=4 impl=forward config='threads=64 row_threads=64 cluster=2 vec=8 "
    "steps=1 ragged=1 exact=0 stages=4 residence=registers lookahead=0 chunks=2 shared_weights=1' # beta alone",
    "rows=3 cols=4001 offset=100 impl=forward config='threads=32 row_threads=32 cluster=1 vec=4 steps=4 ragged=1 "
    "exact=0 stages=8 residence=registers lookahead=0 chunks=8 shared_weights=1' # several turns of vectors",
    "rows=9 cols=45001 direction=backward dtype=bf16             # of four chunks, which look ahead",
    "rows=40 cols=6520 direction=backward dtype=bf16 residual=1 impl=backward config='threads=416 row_threads=416 "
    "cluster=1 vec=8 steps=1 stages=5 residence=ring lookahead=1 chunks=2 exact=0'",
    "rows=290 cols=768 direction=backward dtype=bf16 residual=1 fill=uniform impl=backward config='threads=96 "
    "row_threads=96 cluster=1 vec=8 steps=1 exact=1 stages=3 residence=ring lookahead=1 chunks=1 persistent_ctas=1' "
    "# a chunk a row, with a residual: two and three rows a CTA",
    "rows=290 cols=1000 direction=backward dtype=f16 residual=1 impl=backward config='threads=128 row_threads=128 "
    "cluster=1 vec=8 steps=1 exact=0 stages=3 residence=ring lookahead=1 chunks=1 persistent_ctas=1'",
    "rows=21 cols=640 dtype=bf16 ldx=641 misalign=1             # cut by 16 lanes, none of which is idle",
    "rows=9 cols=5001 direction=backward ldy=5002 dtype=f16 residual=1 fill=uniform",
    "rows=9 cols=2055 direction=backward ldx=2055 ldy=2056 dtype=bf16 stagger=1",
    "rows=70 cols=1280 direction=backward ldx=1283 ldy=1288 dtype=f16 # x and dy are cut out of the ring",
    "rows=21 cols=1536 direction=backward ldx=1537 dtype=bf16 residual=1 fill=hard",
    "rows=41 cols=1 direction=backward fill=hard seed=176028 # products with gamma are subnormal",
    "rows=19 cols=5000 direction=backward ldx=5001 ldy=5008 dtype=bf16 affine=0 # the last element is read alone",
    "rows=21 cols=1032 direction=backward ldx=1035 fill=uniform",
    "rows=9 cols=1032 direction=backward ldx=1033 dtype=f16 misalign=1",
    "rows=9 cols=1032 direction=backward ldx=1033 dtype=f16 stagger=2 # no row but the first is aligned to a vector",
    "rows=11 cols=5000 ldx=5003 ldy=5000 dtype=f16 residual=1 offset=100 impl=forward config='threads=128 "
    "row_threads=128 cluster=2 vec=8 steps=2 exact=0 stages=4 residence=ring cut=1'",
    "rows=9 cols=2056 ldx=2058 ldy=2056 impl=forward config='threads=64 row_threads=64 vec=4 steps=1 exact=0 stages=9 "
    "residence=ring cut=1'",
    "rows=9 cols=520 direction=backward dtype=bf16 stagger=1",
    "rows=9 cols=513 dtype=bf16 misalign=2 residual=1    # and of a warp, boundaries elsewhere",
    "rows=9 cols=513 dtype=bf16 stagger=1 residual=1     # everything out of phase",
    "rows=3 cols=4097 dtype=f16 stagger=3",
    "rows=5 cols=515 ldx=517 ldy=518 residual=1          # phases that change from row to row",
    "rows=8 cols=512 dtype=f16 stagger=1 residual=1      # whole vectors, but not where they are",
    "rows=2 cols=20001 dtype=bf16 offset=100             # ragged rows that flow",
    "rows=3 cols=12003 residual=1 misalign=3",
    "rows=3 cols=12003 residual=1 stagger=10 # sum is read again, beside a row that is being written",
    "rows=3 cols=20001 ldx=20003 ldy=20007 dtype=bf16    # in phase, of other pitches for f32 alone",
    "rows=2 cols=301 dtype=f16 offset=1000 impl=forward config='threads=32 row_threads=32 cluster=2 vec=8 steps=1 "
    "tiled=1 ragged=1 exact=0' # tile by tile",
    "rows=2 cols=18 dtype=f16 offset=1000 residual=1 impl=forward config='threads=64 row_threads=64 vec=8 steps=1 "
    "tiled=1 ragged=1 exact=0' # most threads have nothing, or an element of the ends",
    "rows=17 cols=8203 dtype=bf16 residual=1 impl=forward config='threads=32 row_threads=32 cluster=16 vec=8 steps=2 "
    "stages=24 residence=ring lookahead=1 exact=0 ragged=1'",
    "rows=320 cols=131 fill=hard",
    "rows=3 cols=1001 dtype=f16 ldx=1008 ldy=1008        # vectors in the pitch, none in the length",
    "rows=3 cols=1001 dtype=f16 ldx=1008 ldy=1008 direction=backward",
    "rows=300 cols=1277 direction=backward ldx=1278 ldy=1279 # single elements, twelve a thread or eleven",
    "rows=30 cols=3001 direction=backward ldx=3002 ldy=3003 residual=1 fill=hard",
    "rows=9 cols=9001 direction=backward ldx=9002 ldy=9004 fill=hard # x and dx start anywhere, each differently",
    "rows=33 cols=1333 dtype=f16 direction=backward # in phase with dx, four CTAs an SM",
    "rows=300 cols=1283 dtype=f16 direction=backward ldx=1347 ldy=1291 impl=backward config='persistent_ctas=1' # held "
    "in registers, several of a CTA in phase",
    "rows=21 cols=9003 dtype=bf16 direction=backward # and of a cluster",
    "rows=300 cols=1283 dtype=f16 direction=backward residual=1 ldx=1347 ldy=1291 impl=backward "
    "config='persistent_ctas=1' # with a residual",
    "rows=9 cols=33955 dtype=bf16 direction=backward residual=1 fill=hard # in a cluster of eight",
    "rows=30 cols=8679 direction=backward # f32, held in registers or, of longer rows, the ring",
    "rows=9 cols=20001 direction=backward fill=hard",
    "rows=21 cols=5120 dtype=f16 direction=backward ldx=5121 ldy=5120 # cut and held",
    "rows=150 cols=1001 dtype=bf16 offset=100 impl=forward config='shared_weights=1 persistent_ctas=1' # gamma and "
    "beta shared",
    "rows=150 cols=1003 dtype=f16 residual=1 stagger=1 impl=forward config='shared_weights=1 persistent_ctas=1'",
    "rows=150 cols=4095 impl=forward config='shared_weights=1 persistent_ctas=1' # of f32",
    "rows=2500 cols=77 impl=forward config='shared_weights=1 persistent_ctas=1' # several rows a CTA",
    "rows=70 cols=1001 dtype=bf16 fill=hard impl=forward config='threads=192 row_threads=64 steps=2 ragged=1 exact=0 "
    "shared_weights=1 ctas_per_sm=2 persistent_ctas=1' # of two warps each, and ends",
    "rows=2500 cols=79 dtype=bf16 misalign=1 ldx=80 ldy=83 impl=forward config='threads=64 row_threads=16 vec=8 "
    "steps=1 ragged=1 shared_weights=1 persistent_ctas=1'",
    "rows=1200 cols=128 dtype=f16 impl=forward config='shared_weights=1 persistent_ctas=1' # whole vectors",
    "rows=4 cols=20001 dtype=bf16 residual=1 fill=uniform impl=forward config='threads=256 row_threads=256 cluster=4 "
    "steps=1 stages=6 chunks=3 lookahead=0 shared_weights=1' # and of rows that flow",
    "rows=4 cols=17003 fill=uniform impl=forward config='threads=256 row_threads=256 cluster=4 steps=2 "
    "stages=6 chunks=3 shared_weights=1 residence=ring lookahead=1'",
    "rows=40 cols=17003 stagger=1 impl=forward config='threads=256 row_threads=256 cluster=4 steps=2 "
    "stages=6 chunks=3 shared_weights=1 residence=ring lookahead=1' # tiled where pointers want it, which nothing "
    "stays for",
    "rows=300 cols=1001 dtype=bf16 residual=1 impl=forward config='threads=32 row_threads=32 cluster=1 vec=8 steps=2 "
    "stages=8 residence=ring lookahead=1 chunks=0 ragged=1 persistent_ctas=1' # rows behind a CTA's first are drawn",
    "rows=99 cols=2048 dtype=bf16 impl=forward config='threads=64 row_threads=64 cluster=4 steps=1 chunks=1 stages=2 "
    "residence=registers persistent_ctas=1' # a row in registers, two in the ring, one waits, and the next is known",
    "rows=9 cols=9001 dtype=f16 offset=100           # the same, held in registers",
    "rows=9 cols=14001 offset=100 fill=uniform impl=forward config='threads=224 row_threads=224 cluster=4 vec=4 "
    "steps=1 "
    "ragged=1 stages=4 residence=registers chunks=4 shared_weights=1 ctas_per_sm=3' # of f32, 16 elements a thread",
    "rows=9 cols=17003 stagger=1 fill=uniform",
    "rows=5 cols=17003 ldx=17004 ldy=17011 fill=uniform # outputs start anywhere, inputs elsewhere: cut out of the "
    "ring",
    "rows=9 cols=1003 ldx=1004 ldy=1011 dtype=bf16 residual=1 fill=hard impl=forward config='threads=64 row_threads=64 "
    "cluster=2 vec=8 steps=1 ragged=1 exact=0 stages=4 residence=ring chunks=0 cut=1'",
    "rows=9 cols=1003 ldx=1009 ldy=1011 dtype=f16 offset=100 impl=forward config='threads=64 row_threads=64 cluster=1 "
    "vec=8 steps=1 ragged=1 exact=0 stages=4 residence=registers lookahead=0 chunks=2 cut=1 shared_weights=1'",
    "rows=9 cols=1003 ldx=1009 ldy=1011 dtype=f16 stagger=1 impl=forward config='threads=64 row_threads=64 cluster=1 "
    "vec=8 steps=1 ragged=1 exact=0 stages=8 residence=ring lookahead=1 chunks=2 cut=1' # single elements where "
    "pointers want it",
    "rows=40 cols=1003 direction=backward ldx=1009 ldy=1011 dtype=f16 fill=hard impl=backward config='threads=64 "
    "row_threads=64 cluster=1 vec=8 steps=2 ragged=1 exact=0 stages=3 residence=registers lookahead=0 chunks=1 cut=1'",
    "rows=3 cols=1283 direction=backward dtype=f16    # fewer rows than phases",
    "rows=1203 cols=1003 direction=backward dtype=bf16 # CTAs that go from one phase to the next one",
    "rows=250 cols=4301 direction=backward residual=1 fill=uniform # the same of clusters, or of f32",
    "rows=700 cols=1003 direction=backward ldx=1010 ldy=1003 dtype=bf16 impl=backward config='threads=64 "
    "row_threads=64 cluster=1 vec=8 steps=2 ragged=1 exact=0 stages=3 residence=registers lookahead=0 chunks=1 cut=1 "
    "persistent_ctas=1' # rows of a CTA end alike where they are written",
    "rows=40 cols=1003 direction=backward ldx=1003 ldy=1010 residual=1 impl=backward config='threads=64 row_threads=64 "
    "cluster=2 vec=4 steps=1 ragged=1 exact=0 stages=6 residence=ring lookahead=1 chunks=2 cut=1'",
    "rows=9 cols=2480 ldx=2481 ldy=2488 dtype=f16    # cut, by two warps",
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
    "rows=1 cols=265000 direction=backward fill=uniform # longer than the registers of a cluster",
    "rows=5 cols=300 direction=backward residual=1 impl=backward config='threads=128 row_threads=128 steps=1 tiled=1 "
    "alone=0'",
    "rows=700 cols=64 direction=backward impl=backward config='threads=32 row_threads=32 steps=1 exact=0 "
    "persistent_ctas=2' # persistent CTAs",
    "rows=600 cols=512 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 persistent_ctas=1 "
    "ctas_per_sm=12'",
    "rows=2501 cols=112 direction=backward dtype=bf16 impl=backward config='threads=128 row_threads=16 steps=1 "
    "persistent_ctas=1' # several rows a CTA, of which the last one has few",
    "rows=2510 cols=120 direction=backward dtype=f16 residual=1 impl=backward config='threads=64 row_threads=8 steps=2 "
    "persistent_ctas=1'",
    "rows=1203 cols=64 direction=backward misalign=1 impl=backward config='threads=96 row_threads=16 steps=1 "
    "persistent_ctas=1' # by single elements",
    "rows=1500 cols=100 direction=backward affine=0 impl=backward config='threads=64 row_threads=16 steps=2'",
    "rows=4 cols=4096 direction=backward impl=backward config='threads=256 row_threads=256 cluster=4 steps=1 "
    "exact=1 stages=0 residence=ring chunks=0 ctas_per_sm=0'",
    "rows=60 cols=1272 direction=backward dtype=bf16  # three chunks of few threads; some have none of the last",
    "rows=701 cols=1024 direction=backward dtype=bf16 impl=backward config='threads=192 row_threads=64 ctas_per_sm=2 "
    "persistent_ctas=1' # three rows of two warps a CTA, the last one has one",
    "rows=900 cols=841 direction=backward dtype=bf16 fill=uniform # single elements of two warps, three rows a CTA",
    "rows=300 cols=1021 direction=backward dtype=f16 residual=1 ldx=1022 ldy=1023 fill=hard # a row a CTA",
    "rows=40 cols=1283 direction=backward dtype=f16 residual=1 fill=hard # vectors in one chunk, and ends",
    "rows=40 cols=2136 direction=backward dtype=f16 residual=1",
    "rows=40 cols=1400 direction=backward dtype=f16 residual=1 fill=uniform # flows by 96 threads",
    "rows=9 cols=3536 direction=backward dtype=bf16 fill=uniform # and 224",
    "rows=600 cols=128 direction=backward dtype=f16 ldx=129 ldy=128 fill=uniform # single elements by a warp a row",
    "rows=90 cols=301 direction=backward dtype=bf16 residual=1 # the same of rows in phase",
    "rows=19 cols=29001 direction=backward dtype=bf16 # four chunks of three CTAs an SM in clusters of eight",
    "rows=9 cols=22192 direction=backward dtype=f16 ldx=22193 ldy=22192 # cut, in clusters of eight",
    "rows=3 cols=13312 ldx=13313 ldy=13320           # single elements of long f32 rows",
    "rows=20 cols=12600 direction=backward dtype=bf16 fill=uniform # and 416 in clusters of two",
    "rows=9 cols=27000 direction=backward fill=uniform # 224 of f32 in clusters of eight",
    "rows=70 cols=640 direction=backward",
    "rows=150 cols=2000 direction=backward dtype=bf16 # rows that flow, held in registers",
    "rows=5 cols=9000 direction=backward residual=1   # held in the ring, a cluster",
    "rows=33 cols=2000 direction=backward dtype=f16 misalign=1 # not for bulk copies",
    "rows=20 cols=520 direction=backward dtype=bf16 residual=1 impl=backward config='threads=32 row_threads=32 "
    "cluster=2 vec=8 steps=1 stages=4 residence=ring chunks=2 exact=0'",
    "rows=150 cols=520 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 cluster=2 vec=8 "
    "steps=1 stages=4 residence=ring chunks=2 exact=0 dgamma_in_smem=1 persistent_ctas=1' # sums in "
    "shared memory, persistent CTAs",
    "rows=300 cols=520 direction=backward dtype=bf16 impl=backward config='threads=32 row_threads=32 cluster=2 vec=8 "
    "steps=1 stages=4 residence=ring lookahead=1 chunks=2 exact=0 persistent_ctas=1' # the next row is "
    "read before one is written",
    "rows=300 cols=512 direction=backward residual=1 impl=backward config='threads=64 row_threads=64 vec=4 steps=1 "
    "stages=5 residence=ring lookahead=1 chunks=2 exact=1 dgamma_in_smem=1 persistent_ctas=1' # the same in a CTA "
    "alone",
    "rows=1 cols=150000 direction=backward dtype=f16 fill=uniform # such sums by choice",
    "rows=1 cols=262144 direction=backward fill=uniform # the same, a row fills the ring",
    "rows=1 cols=140000 direction=backward residual=1 fill=uniform # no room for them: x and dy are read again",
    "rows=70 cols=1500 direction=backward              # CTAs of half the threads",
    "rows=300 cols=768 direction=backward dtype=bf16 impl=backward config='threads=96 row_threads=96 steps=1 stages=4 "
    "residence=registers chunks=1 exact=0 persistent_ctas=1' # three warps",
    "rows=70 cols=8960 direction=backward dtype=bf16 impl=backward config='threads=96 row_threads=96 cluster=4 steps=1 "
    "stages=7 residence=ring lookahead=1 chunks=3 exact=0 ctas_per_sm=4' # twelve in a cluster",
    "rows=20 cols=17000 direction=backward dtype=f16 impl=backward config='threads=96 row_threads=96 cluster=16 "
    "steps=1 stages=5 residence=ring lookahead=1 chunks=2 exact=0 ctas_per_sm=4' # 48 in a cluster",
    "rows=9 cols=1240 dtype=bf16 residual=1 impl=forward config='threads=160 row_threads=160 steps=1 exact=0'",
    "rows=9 cols=3000 impl=forward config='threads=224 row_threads=224 cluster=2 steps=2 exact=0 ctas_per_sm=0'",
    "rows=3 cols=3072 direction=backward dtype=bf16 # so few rows that one CTA stores dgamma and dbeta",
    "rows=4 cols=22192 direction=backward dtype=f16 residual=1 fill=hard # a cluster",
    "rows=8 cols=512 direction=backward dtype=f16 residual=1 # of several rows",
    "rows=19 cols=72 direction=backward dtype=bf16 # of several rows a warp, in two turns",
    "rows=5 cols=391 direction=backward # by single elements",
    "rows=1 cols=5291 direction=backward dtype=f16 fill=hard # a ragged row",
    "rows=1 cols=20003 direction=backward dtype=bf16 misalign=1 stagger=1",
    "rows=2 cols=2048 direction=backward dtype=bf16 misalign=1 # pointers aligned to the element only",
    "rows=3 cols=640 direction=backward dtype=f16 ldx=641 stagger=1",
    "rows=0 cols=64 direction=backward                   # gradients of no rows are zero",
    "rows=0 cols=64                                      # nothing to do",
    "rows=3 cols=0                                       # no elements: statistics of nothing are NaN",
    NULL,
};

static const char *const population[] = {
    "rows={tokens} cols={hidden} dtype={f32|f16|bf16|bf16} direction={forward|forward|backward}{|| residual=1}",
    "rows={tokens} cols={c:hidden} ldx={c}+{8|64|1} ldy={c}+{0|8} dtype={f32|f16|bf16} direction={forward|backward}",
    "rows={tokens} cols={head_dim} dtype={f16|bf16} affine={0|1}",
    NULL,
};

#define REJECTS(op)                                                                                          \
    {                                                                                                        \
        { "rows=-1", CKL_INVALID, op ": rows=-1 is negative" },                                              \
            { "cols=-2", CKL_INVALID, op ": cols=-2 is negative" },                                          \
            { "dtype=i32", CKL_INVALID, op ": dtype=i32 is none of f32, f16, bf16" },                        \
            { "rows=35 cols=1 ldx=2^62", CKL_INVALID,                                                        \
              op ": x of 35x1 elements, strides 4611686018427387904x1, spans" },                             \
            { "rows=1 cols=2^56", CKL_INVALID, op ": x of 1x72057594037927936 elements" },                   \
            { "rows=4 cols=64 impl=forward config='vec=2 threads=64 row_threads=32 cut=1'", CKL_INVALID,     \
              "norm forward: cut=1 is for rows in registers" },                                              \
            { "rows=4 cols=64 direction=backward impl=backward config='cut=1'", CKL_INVALID,                 \
              "norm backward: cut=1 is for" },                                                               \
            { "eps=inf", CKL_INVALID, op ": eps=inf is not finite" },                                        \
            { "eps=-0.5", CKL_INVALID, op ": eps=-0.5 is negative" },                                        \
            { "cols=8 ldx=7", CKL_INVALID, op ": ldx=7 is smaller than cols=8" },                            \
            { "cols=8 ldy=7", CKL_INVALID, op ": ldy=7 is smaller than cols=8" },                            \
            { "cols=8 impl=forward config='affine=0'", CKL_INVALID,                                          \
              "affine and residual must be those of the problem" },                                          \
            { "cols=8 impl=forward config='threads=100'", CKL_INVALID, "norm forward: threads=100" },        \
            { "cols=8192 impl=forward config='steps=1 stages=3 residence=registers chunks=8 lookahead=1'",   \
              CKL_INVALID, "lookahead=1 needs residence=ring" },                                             \
            { "cols=8192 impl=forward config='steps=1 stages=3 residence=ring lookahead=1'", CKL_INVALID,    \
              "2 times 8 chunks do not fit 3 stages" },                                                      \
            { "cols=1352 direction=backward impl=backward config='stages=8 tiled=1'", CKL_INVALID,           \
              "tiled=1, but with stages=" },                                                                 \
            { "direction=backward eps=0.5", CKL_INVALID, op ": eps=0.5 is not part of a backward problem" }, \
            { "cols=20000 direction=backward impl=backward config='stages=4 chunks=0'", CKL_INVALID,         \
              "chunks=0, but sums of columns are in registers" },                                            \
            { "cols=77 affine=0 impl=forward config='shared_weights=1'", CKL_INVALID,                        \
              "norm forward: shared_weights=1 is for affine rows" },                                         \
            { "cols=16000 impl=forward config='stages=0 threads=1024 row_threads=1024 steps=8 cluster=1 "    \
              "shared_weights=1'",                                                                           \
              CKL_INVALID, "norm forward: shared_weights=1 takes 3" },                                       \
            { "cols=77 direction=backward impl=backward config='shared_weights=1'", CKL_INVALID,             \
              "norm backward: shared_weights=1 is for forward" },                                            \
            { "rows=9 cols=9001 dtype=f16 direction=backward impl=backward config='alone=1'", CKL_INVALID,   \
              "norm backward: alone=1 is for sums of columns of rows that lie alike" },                      \
            { NULL, CKL_OK, NULL },                                                                          \
    }

static const test_reject layernorm_rejects[] = REJECTS("layernorm");
static const test_reject rmsnorm_rejects[] = REJECTS("rmsnorm");

NORM_TEST(layernorm, .operands = operands, .reference = norm_reference, .prepare = prepare_layernorm,
          .rejects = layernorm_rejects);
NORM_TEST(rmsnorm, .operands = operands, .reference = norm_reference, .prepare = prepare_rmsnorm,
          .rejects = rmsnorm_rejects);
