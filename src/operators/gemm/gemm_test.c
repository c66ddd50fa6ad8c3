/* gemm_test.c - cases and population of gemm. */
#include "operators/gemm/gemm_lab.h"

#define F32_WARPS  "tile_m=128 tile_n=128 block_m=8 block_n=8 lanes_m=4 ctas=2 groups_k=1 "
#define F32_GROUPS "tile_m=32 tile_n=64 block_m=8 block_n=4 lanes_m=4 stages=2 ctas=2 groups_k=4 "
#define F32_WIDE   "tile_m=128 tile_n=96 block_m=8 block_n=12 lanes_m=4 depth=16 stages=3 ctas=3 groups_k=1 "
#define F32_TALL   "tile_m=96 tile_n=128 block_m=12 block_n=8 lanes_m=4 depth=16 stages=3 ctas=3 groups_k=1 "
#define F32_SQUARE "tile_m=128 tile_n=128 block_m=8 block_n=16 lanes_m=4 depth=8 stages=4 ctas=2 groups_k=1 "
#define ONE        "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 " // consumers of sm90, without clusters
#define TWO        "consumers=2 pingpong=0 cluster_m=1 cluster_n=1 "
#define IN_TURN    "consumers=2 pingpong=1 cluster_m=1 cluster_n=1 "

static const char *const cases[] = {
    "m=128 n=256 k=64                                          # one tile of the default config",
    "m=128 n=256 k=64 a=bf16",
    "m=1 n=8 k=8                                               # smaller than any tile",
    "m=256 n=256 k=256 a=bf16 d=f32",
    "m=139 n=200 k=520 a=bf16 d=f32 activation=relu bias=1 alpha=0.5 beta=1",
    "m=129 n=136 k=72 d=f16 bias=1 activation=gelu # one row and eight columns past the tile",
    "m=130 n=264 k=200 a=bf16 beta=0.5 lda=208 ldb=256 ldc=272 ldd=280   # padded rows",
    "m=192 n=320 k=128 d=f32 beta=-1                           # f32 C",
    "m=100 n=104 k=96 c=1 beta=0 fill=hard                     # C holds NaN and must not be read",
    "m=512 n=512 k=64 activation=relu                          # several tiles a CTA on a small grid",
    "m=640 n=264 k=136 bias=1",
    "m=127 n=129 k=65                                          # odd everything",
    "m=1 n=1 k=1",
    "m=65 n=33 k=0 beta=1                                      # no products",
    "m=0 n=128 k=64                                            # nothing to do",
    "m=64 n=0 k=64",
    "m=256 n=512 k=192 impl=sm90 config='tile_m=256 tile_n=128 cluster_m=1 cluster_n=2 stages=4 consumers=2 pingpong=0 "
    "ctas=1'",
    "m=256 n=512 k=192 impl=sm90 config='" IN_TURN "tile_m=128 tile_n=128 stages=4 ctas=1'",
    "m=384 n=320 k=448 impl=sm90 config='" ONE "tile_m=64 tile_n=160 stages=5 ctas=1'",
    "m=300 n=600 k=200 impl=sm90 config='tile_m=128 tile_n=128 cluster_m=2 cluster_n=2 stages=3 group=4 consumers=2 "
    "pingpong=0 ctas=1' bias=1",
    "m=200 n=168 k=264 impl=sm90 config='tile_m=192 tile_n=160 consumers=3 cluster_m=1 stages=3 pingpong=0 cluster_n=1 "
    "ctas=1'",
    "m=1088 n=512 k=72 impl=sm90 config='" IN_TURN "tile_m=64 tile_n=32 stages=4 ctas=1' bias=1 # two tiles a consumer",
    "m=1216 n=512 k=72 impl=sm90 config='tile_m=64 tile_n=32 pingpong=1 stages=3 cluster_m=2 consumers=2 cluster_n=1 "
    "ctas=1' # short K",
    "m=192 n=3072 k=8 d=f32 beta=1 # D is most of what moves",
    "m=300 n=1032 k=24 bias=1 impl=sm90 config='tile_m=128 tile_n=128 pingpong=1 stages=4 buffers=4 cluster_m=1 "
    "consumers=2 cluster_n=2 ctas=1'                           # pairs that share A, in turn",
    "m=64 n=33 k=64 ldd=40                                     # odd rows in 16-byte pitches",
    "m=64 n=35 k=70 lda=72 ldb=72 ldd=44 d=f32 bias=1",
    "m=64 n=40 k=401 lda=408 ldb=408 # vectors in the pitch, none in the length",
    "m=5 n=201 k=64 c=1 beta=1 ldc=208 ldd=208",
    "m=2 n=2 k=40 lda=72 ldb=56                                # two rows of padded pitch through TMA",
    "m=2 n=2 k=40 lda=72 ldb=56 ldd=8 impl=sm90",
    "m=128 n=256 k=64 a=f32 math=tf32                          # one tile",
    "m=256 n=200 k=100 a=f32 math=tf32 bias=1 activation=gelu",
    "m=130 n=96 k=72 a=f32 math=tf32 beta=0.5 alpha=-2 fill=hard",
    "m=16 n=512 k=1024 a=f32 math=tf32                         # few rows",
    "m=65 n=33 k=17 a=f32                                      # true f32: no tensor cores",
    "m=130 n=70 k=66 a=f32 bias=1 activation=relu              # 8 bytes at a time",
    "m=70 n=131 k=132 a=f32 c=1 beta=1 ldc=133 alpha=-1 fill=hard",
    "m=1 n=72 k=256 a=f32                                      # vectors of few rows",
    "m=72 n=1 k=100 a=f32 beta=1                               # and of few columns",
    "m=3 n=70 k=516 a=f32 bias=1 activation=gelu lda=520",
    "m=71 n=2 k=516 a=f32 ldd=5 alpha=0.5 impl=gemv config='rows=4 few=3 width=128 steps=0 many_a=1'",
    "m=7 n=130 k=200 a=f32 lda=204 bias=1 bias_along=m             # groups of lanes",
    "m=203 n=1 k=80 impl=gemv                                      # of 16 bits: a step of ten vectors in 16 lanes",
    "m=4 n=67 k=1096 a=bf16 d=f32 beta=1 alpha=0.5 impl=gemv       # a group of several warps",
    "m=301 n=3 k=72 a=bf16 ldb=80 activation=relu impl=gemv config='rows=3 few=4 width=2 steps=0'",
    "m=13 n=261 k=92 a=f32                                         # two blocks of few rows",
    "m=210 n=7 k=48 a=f32 beta=1 impl=gemv config='rows=2 few=2 width=4 steps=0' # columns in four blocks",
    "m=1 n=259 k=8 impl=gemv config='rows=8 width=1'               # a thread alone",
    "m=3 n=70 k=505 a=f32 ldb=507 beta=1 fill=hard impl=gemv       # rows that begin anywhere",
    "m=70 n=2 k=506 a=f32 math=tf32 bias=1 impl=gemv               # two elements an access",
    "m=5 n=67 k=31 a=f32 ldb=33 beta=1 fill=hard impl=gemv         # odd rows, an element a lane and none for the last",
    "m=2 n=35 k=70 impl=gemv config='vec=2 steps=0'",
    "batch=3 m=20 n=33 k=21 a=f32 impl=fma",
    "m=140 n=150 k=41 a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=16 block_n=8 depth=8 stages=4 ctas=2 "
    "groups_k=1' # tiles of four",
    "batch=2 m=100 n=150 k=41 a=f32 layout=nn impl=fma config='" F32_SQUARE "vec=2 vec_k=1'",
    "m=70 n=96 k=40 a=f32 layout=tt impl=fma config='vec=2 tile_m=64 tile_n=64 block_m=8 block_n=8 depth=8'",
    "m=70 n=64 k=40 gated=1 a=f32 impl=fma config='" F32_SQUARE "vec=4'",
    "m=140 n=150 k=500 a=f32 impl=fma config='" F32_SQUARE "vec=4 sliced=1' # slices",
    "batch=3 m=139 n=147 k=133 a=f32 fill=hard impl=fma config='" F32_WARPS
    "depth=16 stages=3 vec_k=4 phased=1' # all phases of rows, a tail of five",
    "batch=2 m=140 n=148 k=98 lda=101 ldb=103 a=f32 beta=1 impl=fma config='" F32_WARPS
    "depth=8 stages=4 vec_k=4 phased=1 sliced=1' # slices of them",
    "m=133 n=150 k=71 lda=72 ldb=76 a=f32 fill=hard impl=fma config='" F32_WARPS
    "depth=16 stages=3 vec_k=4 phased=1' # rows end inside quads, and begin at whole ones",
    "m=130 n=140 k=3 lda=5 ldb=7 misalign=1 a=f32 impl=fma config='" F32_WARPS
    "depth=16 stages=3 vec_k=4 phased=1 whole=0' # less than a quad",
    "m=150 n=140 k=93 sizes=33,0,1,116 a=f32 layout=nn impl=fma config='" F32_WARPS
    "depth=8 stages=3 vec_k=4 phased=1 vec=1'",
    "m=29 n=33 k=701 a=f32 beta=1                              # slices of K, by elements",
    "m=130 n=72 k=1000 a=f32 beta=1 bias=1 activation=gelu fill=hard # by vectors, the last one shorter",
    "m=40 n=52 k=24 a=f32 c=1 beta=0 fill=hard impl=fma        # C is not read",
    "m=40 n=300 k=24 a=f32 beta=1 impl=fma config='tile_m=32 tile_n=256 block_m=4 block_n=32 lanes_m=4 depth=8 "
    "stages=3 ctas=2' # the widest block",
    "batch=3 m=40 n=52 k=333 a=f32 layout=tn alpha=-1 impl=fma config='sliced=1'",
    "batch=2 m=1100 n=1030 k=97 a=f32 beta=1 impl=fma config='tile_m=128 tile_n=128 block_m=8 block_n=16 depth=8 "
    "stages=4 ctas=2 vec_k=1 vec=1 sliced=1' # a wave of tiles, in slices",
    "m=130 n=77 k=700 a=f32 layout=nn bias=1 bias_along=m activation=dgelu beta=1 impl=fma config='sliced=1'",
    "m=45 n=141 k=300 a=f32 math=tf32 impl=fma                  # more exact than it must be",
    "m=70 n=36 k=410 gated=1 activation=gelu a=f32 layout=tt impl=fma config='sliced=1'",
    "m=1450 n=1440 k=100 a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=8 block_n=8 depth=8 ctas=1 sliced=1' # "
    "whole turns before",
    "m=7 n=300 k=129 a=f32 impl=fma config='tile_m=8 tile_n=256 block_m=4 block_n=4 lanes_m=2 depth=16 vec_k=1 ctas=3 "
    "groups_k=1'",
    "m=300 n=7 k=132 a=f32 beta=1 impl=fma config='tile_m=256 tile_n=8 block_m=4 block_n=4 lanes_m=16 depth=16 ctas=3 "
    "groups_k=1'",
    "m=140 n=20 k=132 a=f32 impl=fma config='tile_m=128 tile_n=16 block_m=4 block_n=4 lanes_m=8 depth=32 ctas=3 "
    "groups_k=1'",
    "m=40 n=140 k=20 a=f32 impl=fma config='tile_m=16 tile_n=128 block_m=4 block_n=4 lanes_m=4 depth=32 vec_k=4 ctas=3 "
    "groups_k=1' # more threads than vectors of A",
    "m=70 n=66 k=148 a=f32 fill=hard impl=fma config='stages=2 sliced=0' # a tile loaded while the other is multiplied",
    "m=70 n=66 k=99 a=f32 layout=nn impl=fma config='stages=2 sliced=0' # or copied",
    "m=70 n=66 k=7 a=f32 layout=tt impl=fma                     # less than a K tile",
    "m=70 n=132 k=300 a=f32 bias=1 activation=relu fill=hard impl=fma config='" F32_GROUPS
    "' # four groups share out K",
    "batch=2 m=39 n=67 k=133 a=f32 beta=1 layout=nn impl=fma config='" F32_GROUPS "'",
    "m=70 n=136 k=900 a=f32 layout=tn alpha=-1 impl=fma config='" F32_GROUPS "sliced=1' # and slices",
    "m=33 n=70 k=21 gated=1 a=f32 impl=fma config='tile_m=64 tile_n=64 block_m=4 block_n=8 lanes_m=4 depth=8 stages=3 "
    "ctas=2 groups_k=2' # the second has no K",
    "m=8 n=72 k=256 a=f32 impl=gemv                            # as many rows as a block has",
    "m=75 n=93 k=83 a=f32 bias=1 beta=-1 fill=hard impl=gemv   # ten blocks of them",
    "m=30 n=33 k=5 a=f32 beta=1 bias=1                         # few K",
    "batch=2 m=70 n=264 k=8 a=f32 activation=gelu fill=hard    # by vectors",
    "m=30 n=33 k=7 a=f32 math=tf32 d=f32 impl=outer",
    "m=140 n=148 k=19 layout=tn a=f32 impl=fma                 # four rows a copy",
    "m=300 n=146 k=50 layout=tn a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=8 block_n=16 depth=16 stages=3 "
    "ctas=2 groups_k=1' # two",
    "m=140 n=146 k=19 layout=tt a=f32 impl=fma fill=hard",
    "m=140 n=146 k=41 a=f32 beta=1 impl=fma config='" F32_SQUARE "'",
    "m=140 n=148 k=164 a=f32 fill=hard impl=fma config='" F32_WARPS
    "depth=16 stages=2' # operands take turns in registers",
    "m=140 n=148 k=164 a=f32 layout=tn impl=fma config='" F32_WARPS "depth=16 stages=3 vec=4' # and are copied",
    "m=140 n=147 k=44 a=f32 beta=1 impl=fma config='" F32_WARPS "depth=8 stages=3 whole=0' # two rows of C at once",
    "m=140 n=147 k=41 a=f32 beta=1 impl=fma config='" F32_WARPS "depth=8 stages=3 vec_k=4 phased=1 whole=0'",
    "m=140 n=147 k=32 a=f32 beta=1 bias=1 activation=dgelu impl=fma config='" F32_WARPS
    "depth=8 stages=3 whole=0 sliced=0' # one of C and X",
    "m=140 n=191 k=500 a=f32 fill=hard impl=fma config='" F32_WIDE "sliced=1' # 96 columns, quads of three",
    "m=70 n=100 k=84 a=f32 beta=1 bias=1 activation=gelu layout=tt impl=fma config='" F32_WIDE "sliced=0'",
    "m=100 n=261 k=500 a=f32 beta=1 fill=hard impl=fma config='" F32_TALL "sliced=1' # and 96 rows",
    "m=200 n=68 k=44 gated=1 activation=silu a=f32 layout=nn impl=fma config='" F32_TALL "sliced=0'",
    "batch=3 m=20 n=33 k=21 layout=nn a=f32 impl=fma",
    "m=6 n=5 k=0 a=f32 beta=1 layout=tt impl=fma",
    "m=70 n=33 k=40 gated=1 activation=gelu a=f32 scale_d=1 scale_a=row impl=fma",
    "m=70 n=36 k=41 gated=1 activation=gelu a=f32 layout=tn impl=fma",
    "m=281 n=33 k=918 a=f32 layout=tt activation=gelu gated=1 bias_along=n scale_a=row scale_d=1 impl=fma fill=hard "
    "seed=136449 # a U that is 0 in f32 beside an infinity",
    "m=140 n=260 k=44 a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=16 block_n=8 depth=8 stages=4 ctas=2 "
    "groups_k=1' # vectors of K",
    "m=70 n=100 k=44 layout=nn a=f32 impl=fma",
    "m=70 n=35 k=41 gated=1 a=f32 layout=nn impl=fma",
    "m=70 n=36 k=22 activation=dgelu_erf a=f32 beta=1 bias=1 scale_a=row scale_b=row impl=fma",
    "m=70 n=36 k=22 preactivation=1 activation=gelu bias=1 bias_along=m a=f32 beta=1 impl=fma",
    "m=220 n=210 k=260 a=f32 math=f32x3 impl=f32x3             # three products of tf32, by wgmma",
    "m=130 n=200 k=260 layout=tn a=f32 math=f32x3 impl=f32x3 config='tile_m=128 tile_n=128 consumers=2 cluster_m=1 "
    "cluster_n=1 swap=0 stages=5'",
    "batch=2 m=70 n=201 k=211 layout=nn a=f32 math=f32x3 impl=f32x3",
    "m=130 n=67 k=129 a=f32 math=f32x3 fill=hard impl=f32x3     # vectors beyond the ends of A and B",
    "m=300 n=200 k=180 layout=tt a=f32 math=f32x3 beta=0.5 alpha=-2 fill=hard impl=f32x3",
    "m=65 n=40 k=50 a=f32 math=tf32 impl=tiled                 # tensor cores of sm_80",
    "m=65 n=40 k=50 a=f32 math=f32x3                           # three of them",
    "m=40 n=65 k=80 a=i8 d=f32 impl=tiled",
    "m=40 n=65 k=37 a=i8 d=i32 impl=tiled                      # a byte at a time",
    "m=9 n=11 k=37 a=e4m3                                      # rows of odd bytes are copied",
    "m=9 n=11 k=5 a=e5m2 d=f32 fill=hard",
    "m=9 n=11 k=37 a=i8 d=f16 alpha=0.001 impl=naive",
    "m=256 n=256 k=256 a=e4m3                                  # one step of K in a stage is 128 elements",
    "m=200 n=144 k=208 a=e4m3 d=f16 bias=1 activation=relu",
    "m=96 n=272 k=160 a=e5m2 d=f32 beta=1 alpha=0.25",
    "m=64 n=48 k=48 a=e4m3 fill=hard",
    "m=64 n=64 k=4096 d=f32 impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=4 split=1' # each of 256 sums is cut",
    "m=130 n=144 k=400 a=e4m3 accumulation=accurate bias=1",
    "m=70 n=48 k=300 a=e5m2 d=f32 accumulation=accurate lda=304 ldb=304 impl=sm90 config='" ONE
    "tile_m=64 tile_n=48 stages=3 split=2'",
    "m=256 n=256 k=384 a=i8 d=f32",
    "m=129 n=80 k=144 a=i8 d=f16 alpha=0.001 bias=1",
    "m=33 n=80 k=144 a=i8 impl=sm90",
    "m=70 n=104 k=272 a=i8 d=i32                               # sums as they are",
    "m=130 n=144 k=520 bias=1 activation=gelu beta=0.5 impl=sm90 config='" ONE
    "tile_m=64 tile_n=64 stages=4 split=8 ctas=1' # more CTAs of a split than slices; a K tile each or two",
    "m=128 n=128 k=256 d=f32 a=bf16 impl=sm90 config='" TWO
    "tile_m=128 tile_n=128 stages=3 split=4 ctas=1' # a slice of 32 columns each",
    "m=192 n=200 k=136 d=f32 c=1 beta=1 bias=1 activation=relu impl=sm90 config='" ONE
    "tile_m=64 tile_n=96 stages=4 split=2 ctas=1' # slices of 48; two tiles a cluster",
    "m=192 n=136 k=200 ldd=144 impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=64 stages=3 split=3 ctas=1' # ping-pong and a split; one finisher",
    "m=520 n=288 k=136 bias=1 impl=sm90 config='" ONE "tile_m=64 tile_n=32 stages=12 split=2 ctas=1' # several tiles a "
    "cluster: parts are sent when those before have been read",
    "m=130 n=67 k=192 ldd=72 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 split=2 ragged=1 ctas=1' # a split tile with a ragged end",
    "m=140 n=136 k=520 bias=1 impl=sm90 config='tile_m=64 tile_n=64 stages=4 split=2 cluster_m=2 cluster_n=1 "
    "consumers=1 pingpong=0 ctas=1' # parts of pairs that share B",
    "m=140 n=136 k=400 impl=sm90 config='tile_m=128 tile_n=64 stages=3 split=2 cluster_m=2 cluster_n=2 consumers=2 "
    "pingpong=0 ctas=1'",
    "m=16 n=200 k=520 impl=sm90 config='" ONE "tile_m=64 tile_n=16 stages=4 swap=1 ctas=1' # few rows: tiles of D^T",
    "m=5 n=136 k=72 a=bf16 beta=-1 bias=1 activation=gelu impl=sm90 config='" ONE
    "tile_m=64 tile_n=16 stages=3 swap=1 split=2 ctas=1'",
    "m=20 n=152 k=148 lda=152 ldb=152 impl=sm90 config='" ONE "tile_m=64 tile_n=32 stages=4 swap=1 split=2 ctas=1'",
    "m=20 n=152 k=520 bias=1 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=4 swap=1 split=2 alone=1 ctas=1' # the next launch waits for its end",
    "m=33 n=200 k=520 d=f32 beta=0.5 bias=1 impl=sm90 config='" ONE
    "tile_m=64 tile_n=48 stages=4 swap=1 split=3 ctas=1'",
    "m=300 n=200 k=392 a=bf16 bias=1 activation=gelu impl=sm90 config='" TWO
    "tile_m=128 tile_n=96 stages=4 split=2 swap=0' # columns of both are partials of the other",
    "m=200 n=337 k=200 ldd=344 impl=sm90 config='tile_m=64 tile_n=168 stages=4 consumers=2 pingpong=1 cluster_m=1 "
    "ragged=1' # the last box lies over the one before",
    "m=300 n=184 k=200 d=f32 bias=1 activation=gelu preactivation=1 a=bf16 impl=sm90 config='tile_m=64 tile_n=72 "
    "stages=4 consumers=1 cluster_m=1' # the same of X and of two widths",
    "m=264 n=96 k=208 a=e4m3 d=e4m3 scale_d=1 impl=sm90 config='tile_m=64 tile_n=80 stages=4 consumers=1 cluster_m=1' "
    "# the same of 8 bits, whose boxes were 16 bytes wide",
    "batch=2 m=136 n=200 k=136 bias=1 impl=sm90 config='tile_m=64 tile_n=96 stages=4 consumers=1 cluster_m=2 "
    "cluster_n=2' # the last tiles lie over those before, and those of a cluster that are none over whole ones",
    "m=333 n=200 k=136 a=bf16 activation=gelu preactivation=1 impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 stages=4 swap=1' # the same of D^T in turn, and of X",
    "m=100 n=201 k=520 d=f32 ldd=204 impl=sm90 config='" ONE
    "tile_m=64 tile_n=64 stages=3 split=3 ragged=1' # not where rows of D would start anywhere",
    "m=264 n=96 k=208 a=e4m3 d=e4m3 scale_d=1 amax=1 impl=sm90 config='tile_m=64 tile_n=96 stages=4 consumers=1 "
    "cluster_m=1' # stored once",
    "m=300 n=70 k=264 ldd=72 impl=sm90 config='" ONE
    "tile_m=64 tile_n=80 stages=6 swap=1 split=1' # D^T of more rows than columns",
    "m=72 n=264 k=200 c=1 beta=1 ldc=272 bias=1 impl=sm90 config='" TWO
    "tile_m=128 tile_n=80 stages=3 swap=1 buffers=1 split=1 ctas=1' # boxes of 16 rows",
    "m=2112 n=160 k=16 a=bf16 d=f32 beta=1 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=4 buffers=4' # boxes of C come while those of the tile before are finished",
    "m=3420 n=312 k=16 a=bf16 beta=-1 impl=sm90 config='" IN_TURN "tile_m=64 tile_n=64 stages=4 buffers=3'",
    "m=260 n=500 k=40 a=bf16 beta=0.5 ldc=504 ldd=504 bias=1 impl=sm90 config='" TWO
    "tile_m=128 tile_n=96 stages=3 buffers=2 ragged=1'",
    "m=140 n=136 k=400 a=bf16 beta=0.5 bias=1 impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=3 buffers=8 split=3'",
    "m=260 n=504 k=72 a=bf16 activation=dgelu impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 stages=3 buffers=4' # X the same way",
    "m=260 n=592 k=136 a=bf16 d=f32 beta=0.5 impl=sm90 config='" IN_TURN
    "tile_m=128 stages=3 ctas=1 tile_n=192 buffers=4' # 192 sums a thread",
    "m=300 n=77 k=136 impl=sm90 config='" TWO "tile_m=256 tile_n=80 stages=3 buffers=2'",
    "m=389 n=600 k=72 beta=1 activation=gelu impl=sm90 config='" IN_TURN
    "tile_m=128 stages=3 ctas=1 tile_n=176 buffers=2'",
    "m=200 n=589 k=136 c=1 beta=-1 fill=hard impl=sm90 config='" IN_TURN
    "tile_m=128 stages=3 ctas=1 tile_n=192 buffers=2'",
    "m=200 n=586 k=136 ldd=592 impl=sm90 config='" IN_TURN "tile_m=128 stages=3 ctas=1 tile_n=168 buffers=2'",
    "m=200 n=592 k=272 a=e4m3 d=e4m3 impl=sm90 config='" IN_TURN "tile_m=128 stages=3 ctas=1 tile_n=192 buffers=2'",
    "m=260 n=400 k=272 a=e4m3 scale_a=row scale_b=row impl=sm90 config='" IN_TURN
    "tile_m=128 stages=3 ctas=1 tile_n=192 buffers=2'",
    "m=260 n=392 k=136 bias=1 activation=gelu impl=sm90 config='" IN_TURN
    "tile_m=128 stages=3 ctas=1 tile_n=184 buffers=2'",
    "m=130 n=136 k=72 c=1 beta=0 a=bf16 fill=hard impl=sm90 config='" IN_TURN "tile_m=64 tile_n=64 stages=3 buffers=4'",
    "m=30 n=1064 k=200 beta=1 bias=1 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 buffers=4 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=2'",
    "m=8 n=8512 k=136 impl=sm90 config='" ONE
    "tile_m=64 tile_n=16 stages=10 swap=1 ctas=2 persistent=0' # more CTAs than an H200 holds",
    "m=300 n=7 k=200 ldd=8 impl=sm90 config='" ONE "tile_m=64 tile_n=16 stages=10 ctas=2 ragged=1' # few columns",
    "m=60 n=1100 k=200 impl=sm90 config='tile_m=64 tile_n=64 stages=6 consumers=1 pingpong=0 cluster_m=4 cluster_n=1 "
    "swap=1' # four CTAs share A",
    "m=100 n=1100 k=130 lda=136 ldb=136 a=bf16 impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=112 stages=3 swap=1 ctas=1' # ping-pong; several tiles a CTA",
    "m=20 n=99 k=64 ldd=104 bias=1 d=f32 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 swap=1 split=1 ragged=1 ctas=1'",
    "m=20 n=99 k=64 bias=1 c=1 beta=2 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 swap=1 ragged=2 ctas=1' # rows of C and D anywhere",
    "m=70 n=99 k=64 bias=1 c=1 beta=2 ldd=101 impl=sm90 config='" ONE
    "tile_m=64 tile_n=64 stages=3 ragged=2 split=1 ctas=1'",
    "m=200 n=331 k=136 d=f32 bias=1 impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 stages=4 buffers=4 ragged=2 split=1 ctas=1' # whole rows of a tile at once",
    "m=200 n=531 k=40 d=f32 beta=0.5 fill=hard impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 stages=4 buffers=4 ragged=2 split=1 ctas=1' # C's rows, of 64 beside others' products",
    "m=330 n=301 k=72 a=bf16 d=f32 beta=-1 bias=1 ldc=305 impl=sm90 config='" TWO
    "tile_m=256 tile_n=128 stages=3 buffers=4 ragged=2 split=1 ctas=1' # the same of both consumers",
    "m=70 n=301 k=72 a=bf16 d=f32 c=1 beta=0 fill=hard impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=128 stages=4 buffers=4 ragged=2 split=1 ctas=1' # and where C is not read",
    "m=200 n=532 k=40 d=f32 beta=0.5 fill=hard impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=128 stages=4 buffers=4 ragged=2 ctas=1 row_vectors=1' # rows by threads, 16 bytes each",
    "m=330 n=300 k=72 a=bf16 d=f32 bias=1 ldd=304 impl=sm90 config='tile_m=128 tile_n=128 stages=4 consumers=2 "
    "pingpong=1 cluster_m=2 cluster_n=1 buffers=4 ragged=2 ctas=1 row_vectors=1'",
    "m=301 n=520 k=72 a=bf16 impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=136 stages=4 buffers=2 sheared=1' # odd rows begin half a sector early, but in the first tile",
    "m=140 n=384 ldd=392 k=72 impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=136 stages=4 buffers=2 sheared=1' # the last columns of odd rows are a tile of their own",
    "m=300 n=1544 k=200 activation=gelu alpha=0.5 impl=sm90 config='tile_m=128 tile_n=136 stages=4 consumers=2 "
    "pingpong=1 cluster_m=1 cluster_n=2 buffers=4 sheared=1'",
    "m=130 n=1000 k=136 ldd=1016 fill=hard impl=sm90 config='" TWO "tile_m=128 tile_n=72 stages=4 buffers=2 sheared=1'",
    "m=1000 n=1032 k=192 a=e4m3 impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=136 stages=4 buffers=2 sheared=1 stays=1 group=1'",
    "m=301 n=520 k=72 a=bf16 bias=1 activation=relu impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=136 stages=4 buffers=2 sheared=1'",
    "m=301 n=520 k=144 a=e4m3 scale_a=row scale_b=row impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=136 stages=4 buffers=2 sheared=1'",
    "batch=2 m=140 n=397 k=136 a=bf16 d=f32 impl=sm90 config='" TWO
    "tile_m=128 tile_n=192 stages=2 buffers=6 ragged=2 split=1 ctas=1' # the same of six boxes a row",
    "m=333 n=334 k=136 d=f32 ldd=335 activation=relu impl=sm90 config='tile_m=64 tile_n=128 stages=4 buffers=4 "
    "consumers=2 "
    "pingpong=1 ragged=2 cluster_m=2 cluster_n=2' # tiles of a cluster beyond D",
    "m=70 n=99 k=128 d=f32 ldd=107 impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=3 ragged=2 split=2 ctas=1'",
    "m=272 n=200 k=136 impl=sm90 config='" ONE
    "tile_m=64 tile_n=144 stages=3 swap=1 ctas=1' # two tiles of D^T along the rows of D",
    "m=256 n=256 k=1024 impl=splitk                            # slices of K, and a kernel that adds them",
    "m=8 n=40 k=1096 a=bf16 bias=1 impl=splitk config='slices=17' # more than are added in two rounds",
    "m=130 n=136 k=520 a=bf16 bias=1 activation=gelu beta=0.5 impl=splitk config='slices=5 tile_m=64 tile_n=128 "
    "stages=4 consumers=1 cluster_m=1' # the last slice is half of one",
    "m=70 n=99 k=144 d=f32 c=1 beta=0 fill=hard bias=1 impl=splitk config='slices=3' # rows of C and D anywhere",
    "m=70 n=99 k=144 ldd=104 c=1 beta=1 ldc=104 impl=splitk config='slices=2 stages=3' # ends of rows by elements",
    "m=192 n=264 k=392 impl=splitk config='slices=4 tile_m=64 tile_n=64 stages=3 consumers=2 pingpong=1 cluster_m=1'",
    "m=280 n=304 k=704 impl=splitk config='slices=3 tile_m=128 tile_n=144 stages=5 consumers=2 swap=1' # D^T",
    "m=310 n=520 k=408 impl=splitk config='slices=3 tile_m=256 tile_n=160 stages=4 buffers=1 consumers=2 cluster_m=1 "
    "cluster_n=2 swap=1' # in pairs that share the rows of B",
    "m=136 n=264 k=700 layout=tn fill=hard beta=1 impl=splitk config='slices=3 tile_m=64 tile_n=96 stages=4 "
    "consumers=1 cluster_m=1' # slices that are not K-major",
    "m=136 n=264 k=704 layout=nn bias=1 impl=splitk config='slices=4 tile_m=128 tile_n=144 stages=4 consumers=2 "
    "cluster_m=1'",
    "m=23 n=300 k=168 a=bf16 bias=1 beta=1 impl=sm90 config='tile_m=128 tile_n=32 stages=5 consumers=2 pingpong=1 "
    "cluster_m=1 cluster_n=1 swap=1 buffers=4 ctas=1 persistent=1' # few K in 128 rows of D^T, in turn",
    "m=23 n=52000 k=136 a=bf16 bias=1                          # whose A stays",
    "m=52000 n=13 k=48 a=e4m3 beta=1                           # whose B stays; D in odd rows",
    "m=13 n=300 k=176 a=e4m3 impl=sm90 config='tile_m=128 tile_n=16 stages=4 consumers=2 pingpong=1 cluster_m=1 "
    "cluster_n=1 swap=1 ctas=1 persistent=1 b_stays=1'",
    "m=20 n=264 k=392 impl=splitk config='slices=3 tile_m=64 tile_n=32 stages=4 consumers=1 swap=1 cluster_m=1'",
    "m=65 n=33 k=65 impl=tiled                                 # rows that start anywhere: no cp.async",
    "m=130 n=140 k=66 a=bf16 bias=1 impl=tiled                 # 4 bytes at a time",
    "m=40 n=50 k=100 impl=tiled config='tile_m=64 tile_n=64 stages=2'    # 8 bytes at a time",
    "m=33 n=200 k=45 c=1 beta=1 ldc=203 ldd=201 impl=tiled config='tile_m=64 tile_n=64 stages=4'",
    "m=5 n=7 k=0 bias=1 activation=gelu impl=tiled",
    "m=221 n=223 k=225 bias=1                                  # copies of A and B in whole 16 bytes, then sm90",
    "m=200 n=220 k=300 lda=304 ldb=305 d=f32 a=bf16 c=1 beta=1 # of B alone",
    "m=16 n=1029 k=701 ldb=704 a=bf16 impl=pitched           # of A alone; D in odd rows",
    "m=16 n=97 k=149 impl=unaligned fill=hard                  # every phase of a row",
    "m=301 n=3 k=221 fill=hard                                 # many rows, few columns: not copied",
    "m=16 n=97 k=150 a=bf16 bias=1 activation=gelu impl=unaligned misalign=1",
    "m=33 n=33 k=130 lda=260 ldb=999 impl=unaligned fill=hard  # one block of each ends in a row",
    "m=7 n=300 k=1999 ldb=2001 impl=unaligned config='rows=64 columns=8 warps=4 stages=3' # stages are filled again",
    "m=40 n=70 k=1001 lda=1003 ldb=1002 batch=3 c=1 beta=1 impl=unaligned config='rows=48 columns=24 warps=3 stages=4'",
    "m=16 n=33 k=601 beta=0.5 impl=unaligned config='rows=16 columns=8 warps=8 stages=2' # half of the threads have no "
    "C",
    "m=33 n=89 k=7 d=f32 beta=-1 ldc=91 impl=unaligned fill=hard # a warp has all of C",
    "m=1 n=64 k=3 misalign=3 impl=unaligned                    # several rows in the first 16 bytes, before which "
    "there is nothing",
    "m=9 n=64 k=1 misalign=1 d=f32 impl=unaligned fill=hard",
    "m=70 n=384 k=1 d=f32 beta=1 impl=outer fill=hard          # whole vectors",
    "m=33 n=35 k=40 a=f32 misalign=1 impl=fma config='vec_k=1' # along K by elements",
    "m=66 n=259 k=4 lda=13 ldb=7 ldd=261 ldc=265 beta=-1 impl=outer misalign=1 fill=hard # accesses to D of an element",
    "m=30 n=52 k=3 a=bf16 d=f32 beta=0.5 bias=1 activation=gelu impl=outer",
    "m=37 n=272 k=3 a=bf16 bias=1 bias_along=m scale_a=row scale_b=row impl=outer",
    "m=37 n=272 k=7 impl=outer config='rows=8 vec=8 depth=7'",
    "m=2116 n=520 k=5 lda=7 d=f32 fill=hard # eight rows of a warp",
    "m=150 n=388 k=8 a=bf16 d=f32 beta=1 lda=24 ldd=392 impl=outer config='ab=bf16 b=bf16 d=f32 c=1 rows=4 vec=4 "
    "depth=8 vec_k=8' fill=hard",
    "m=1100 n=512 k=8 d=f32                                    # vectors along K, D is most of what moves",
    "m=300 n=64 k=8 a=bf16 # narrow",
    "m=37 n=132 k=6 d=f32 lda=8 ldb=16 bias=1 impl=outer config='d=f32 bias=1 rows=2 vec=4 depth=6 vec_k=2'",
    "m=9 n=264 k=2 batch=3 device_scalars=1 beta=1 impl=outer config='rows=1 vec=2 runs=4' fill=hard",
    "m=20 n=30 k=0 lda=3 ldb=5 bias=1                          # rows begin anywhere, and end there",
    "m=40 n=48 k=40 activation=silu bias=1 bias_along=m",
    "m=40 n=48 k=40 activation=gelu_erf scale_a=row scale_b=row impl=naive",
    "m=40 n=48 k=40 activation=gelu_erf scale_a=row scale_b=row d=f32 impl=tiled",
    "m=70 n=136 k=72 activation=silu bias=1 bias_along=m scale_a=row scale_b=row impl=sm90 config='" ONE
    "tile_m=64 tile_n=64'",
    "m=70 n=136 k=72 activation=silu bias=1 bias_along=m scale_a=row scale_b=row impl=sm90 config='" ONE
    "tile_m=64 tile_n=80 swap=1'",
    "m=700 n=2824 k=120 a=bf16 impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=64 stages=2 buffers=12 group=1 stays=1' # A stays, of rows of tiles that CTAs share",
    "m=1000 n=2056 k=40 d=f32 beta=1 impl=sm90 config='tile_m=64 tile_n=64 stages=4 consumers=2 pingpong=1 cluster_m=2 "
    "cluster_n=1 group=1 stays=1 buffers=8'",
    "m=1400 n=520 k=184 layout=nn impl=sm90 config='tile_m=64 tile_n=64 stages=6 consumers=1 pingpong=0 cluster_m=1 "
    "cluster_n=2 group=1 stays=1'",
    "m=1400 n=520 k=104 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=2 buffers=24 swap=1 group=1 stays=1' # with stages for one tile",
    "m=70 n=136 k=72 activation=gelu preactivation=1 bias=1 beta=1 impl=sm90 config='" ONE "tile_m=64 tile_n=64'",
    "m=70 n=136 k=72 activation=gelu preactivation=1 bias=1 beta=1 d=f32 ldx=140 impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 buffers=1 stages=4'",
    "m=200 n=136 k=72 activation=dgelu beta=0.5 impl=sm90 config='" ONE "tile_m=64 tile_n=64'",
    "m=70 n=137 k=72 activation=drelu impl=sm90 ldx=139 fill=hard",
    "m=70 n=137 k=72 activation=dsilu impl=tiled",
    "m=70 n=137 k=72 activation=dgelu_erf a=f32 beta=1",
    "m=70 n=137 k=72 activation=dgelu_erf a=f32 fill=hard",
    "m=70 n=136 k=144 a=e4m3 scale_a=tensor scale_b=tensor scale_d=1 device_scalars=1 c=1",
    "batch=2 m=70 n=136 k=144 a=i8 d=f16 scale_a=row scale_b=row activation=relu preactivation=1",
    "m=70 n=136 k=72 activation=relu preactivation=1 impl=tiled device_scalars=1",
    "m=70 n=137 k=72 activation=gelu preactivation=1 impl=sm90",
    "m=70 n=137 k=72 activation=gelu preactivation=1 impl=sm90 ldd=144 ldx=152",
    "m=70 n=137 k=72 activation=dgelu c=1 beta=1 impl=sm90",
    "m=20 n=136 k=72 activation=dsilu c=1 beta=1 bias=1 bias_along=m impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 swap=1'",
    "m=140 n=133 k=72 gated=1 activation=gelu_erf impl=sm90 batch=2",
    "m=6 n=5 k=0 a=e4m3 bias=1 activation=silu layout=tn",
    "m=6 n=5 k=0 a=f32 beta=1 layout=tt",
    "m=40 n=48 k=40 gated=1 activation=silu impl=naive",
    "m=40 n=48 k=40 gated=1 activation=silu bias=1 scale_b=row impl=naive # of both halves of the columns",
    "m=70 n=33 k=40 gated=1 activation=gelu a=f32 math=tf32 scale_a=row scale_b=row bias=1 impl=tiled",
    "m=70 n=36 k=41 gated=1 activation=gelu a=f32 scale_b=row bias=1 impl=fma",
    "m=70 n=33 k=41 gated=1 activation=gelu a=f32 scale_b=row bias=1 impl=fma",
    "m=140 n=133 k=72 gated=1 activation=gelu_erf bias=1 d=f32 impl=sm90",
    "m=140 n=200 k=136 gated=1 activation=silu bias=1 impl=sm90 config='tile_m=128 tile_n=160 consumers=2 cluster_m=1 "
    "stages=3' # halves that end inside a thread's vector",
    "m=140 n=200 k=136 gated=1 activation=silu bias=1 scale_b=row impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=256 stages=3'",
    "batch=2 m=72 n=80 k=80 gated=1 activation=gelu a=e4m3 scale_a=tensor scale_b=row bias=1",
    "m=140 n=136 k=80 sizes=33,0,1,106 a=e4m3 gated=1 activation=silu scale_a=row scale_b=row bias=1 d=e4m3 scale_d=1 "
    "amax=1",
    "m=140 n=136 k=72 sizes=33,0,1,106 gated=1 activation=silu scale_b=row bias=1 impl=tiled",
    "m=140 n=136 k=80 a=i8 gated=1 activation=silu scale_a=row scale_b=row bias=1",
    "m=70 n=72 k=41 gated=1 activation=silu layout=nn impl=tiled",
    "m=70 n=33 k=40 gated=1 activation=gelu a=f32 math=tf32 scale_d=1 scale_a=row impl=tiled",
    "m=140 n=136 k=136 gated=1 activation=silu scale_a=row impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 stages=3'",
    "batch=2 m=72 n=80 k=80 gated=1 activation=gelu a=e4m3 scale_a=tensor scale_b=tensor",
    "m=70 n=72 k=40 layout=nn impl=naive",
    "m=40 n=41 k=19 layout=tn a=f32                            # turned on the way to shared memory",
    "m=40 n=41 k=19 layout=tt impl=tiled",
    "m=40 n=41 k=21 layout=nn a=i8 d=i32 impl=tiled",
    "m=40 n=41 k=21 layout=tt a=f32 math=tf32 impl=tiled",
    "m=128 n=192 k=72 layout=nn impl=sm90 config='" IN_TURN "tile_m=128 tile_n=128 stages=3 swap=0' # N-major",
    "m=200 n=136 k=70 layout=tn a=bf16 beta=1 bias=1 impl=sm90 config='tile_m=128 tile_n=128 stages=3 consumers=2 "
    "pingpong=0 cluster_m=2 cluster_n=1' # both, and one shared in spans",
    "m=128 n=72 k=136 layout=tt impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=3 split=2' # M-major",
    "m=64 n=100 k=70 lda=72 ldb=104 layout=nn impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=3 swap=1'",
    "m=144 n=328 k=200 layout=tn bias=1 impl=sm90 config='" TWO
    "tile_m=128 tile_n=160 stages=4' # spans of which the last is used in part",
    "m=300 n=424 k=136 layout=nn fill=hard impl=sm90 config='tile_m=128 tile_n=208 stages=3 consumers=2 pingpong=0 "
    "cluster_m=2 cluster_n=1 swap=0' # shared, the second half ends within a span",
    "m=200 n=328 k=136 a=bf16 layout=nn beta=1 bias=1 activation=gelu impl=sm90 config='" TWO
    "tile_m=128 tile_n=160 stages=3 swap=1' # D^T, whose columns are rows of a K-major A",
    "m=40 n=264 k=520 layout=tn a=bf16 beta=1 impl=sm90 config='" ONE
    "tile_m=64 tile_n=48 stages=4 swap=1 split=4' # D^T of few rows",
    "m=136 n=200 k=420 layout=tn groups_of=k sizes=0,70,1,129,0,220 fill=hard impl=sm90 config='" TWO
    "tile_m=128 tile_n=80 stages=4 split=1 swap=0' # cleared in whole spans",
    "batch=2 m=72 n=64 k=40 layout=tn lda=80",
    "m=100 n=71 k=67 layout=nn impl=pitched a=e5m2 d=f32       # one turned, one copied",
    "batch=2 m=80 n=70 k=64 layout=tn a=e4m3                   # both turned",
    "m=220 n=230 k=210 layout=tt a=f32 math=tf32 impl=pitched  # words",
    "m=220 n=230 k=231 a=i8 d=i32 impl=pitched                 # single bytes",
    "m=221 n=223 k=225 layout=tn impl=pitched                  # odd rows along M and N",
    "m=420 n=230 k=21 fill=hard impl=pitched                   # copies end in zeros, to the end of a box",
    "m=340 n=172 k=37 gather=390 impl=pitched                  # of rows that a list takes, too",
    "m=300 n=472 k=264 bias=1 activation=relu impl=sm90 config='tile_m=128 tile_n=240 stages=4 consumers=2 pingpong=0 "
    "cluster_m=1 cluster_n=2' # boxes of 16 columns, an odd number of them",
    "batch=3 m=70 n=72 k=136",
    "batch=2 m=70 n=76 k=80 stride_a=5608 stride_b=6200 c=1 beta=1 bias=1 activation=relu # gaps between matrices",
    "batch=4 m=64 n=32 k=64 lda=256 stride_a=64 ldb=256 stride_b=64 ldd=128 stride_d=32 # side by side, as heads are",
    "batch=5 m=33 n=35 k=37 c=1 beta=0.5",
    "batch=3 m=20 n=99 k=64 bias=1 c=1 beta=2 impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 swap=1 ragged=2 ctas=1' # rows of C and D anywhere",
    "batch=3 m=100 n=90 k=200 ldd=96 impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=3 split=2 ragged=1 ctas=1'",
    "batch=2 m=140 n=130 k=300 lda=301 impl=pitched            # matrices that start anywhere",
    "batch=3 m=9 n=11 k=13 impl=naive",
    "m=300 n=136 k=72 groups=5                                 # rows dealt out to five B",
    "m=300 n=136 k=72 sizes=0,1,0,64,200,35,0 a=bf16 beta=1 bias=1 activation=gelu # groups of none and of one",
    "m=200 n=72 k=40 sizes=200,0,0",
    "m=80 n=136 k=72 groups=130 impl=sm90                      # most of one row or none",
    "m=37 n=33 k=21 sizes=3,0,20,1,13 bias=1 scale_a=row scale_b=row layout=tn impl=naive",
    "m=36 n=33 k=21 sizes=3,0,20,1,12 gated=1 activation=silu a=e4m3 scale_a=row impl=naive",
    "m=37 n=33 k=21 sizes=3,0,20,1,13 bias=1 bias_along=m preactivation=1 activation=relu impl=tiled",
    "m=180 n=50 k=70 sizes=3,0,120,1,56 bias=1 scale_b=row a=f32 beta=1 layout=tt impl=fma",
    "m=180 n=50 k=70 sizes=65,115 gated=1 activation=silu impl=tiled config='tile_m=64 tile_n=64'",
    "m=460 n=136 k=200 sizes=70,0,127,1,129,133 c=1 beta=1 bias=1 scale_a=row scale_b=row activation=silu impl=sm90 "
    "config='" IN_TURN "tile_m=128 tile_n=128 stages=3 buffers=2'",
    "m=460 n=136 k=200 sizes=70,0,127,1,129,133 preactivation=1 bias=1 bias_along=m activation=gelu d=f32 impl=sm90 "
    "config='tile_m=128 tile_n=64 stages=3 consumers=2 pingpong=0 cluster_m=2 cluster_n=1'",
    "m=200 n=264 k=136 sizes=70,0,1,129 activation=dgelu layout=nn impl=sm90 config='" ONE
    "tile_m=64 tile_n=128 stages=4' # N-major B",
    "m=200 n=264 k=136 sizes=70,0,1,129 layout=nn impl=sm90 config='tile_m=256 tile_n=128 stages=3 consumers=2 "
    "pingpong=0 cluster_m=1 cluster_n=2'",
    "m=100 n=200 k=200 sizes=1,0,17,40,3,0,39 beta=1 bias=1 scale_a=row scale_b=row impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 swap=1'",
    "m=300 n=300 k=136 sizes=1,0,170,40,50,0,39 bias=1 preactivation=1 activation=relu impl=sm90 config='" TWO
    "tile_m=256 tile_n=96 stages=3 swap=1 buffers=2' # rows of the last boxes in none",
    "m=1100 n=512 k=72 sizes=70,300,0,1,129,600 impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=32 stages=3' # several tiles a consumer",
    "m=600 n=960 k=40 sizes=70,129,0,1,129,271 beta=1 bias=1 impl=sm90 config='" ONE
    "tile_m=64 tile_n=96 stages=3 buffers=2' # and a CTA, some with an odd number of boxes",
    "m=740 n=1060 k=16 d=f32 impl=sm90 config='" ONE
    "tile_m=64 tile_n=96 stages=3 buffers=2' # an odd number of boxes in each of several tiles",
    "m=70 n=104 k=520 sizes=33,0,1,36 bias=1 impl=sm90 config='" ONE "tile_m=64 tile_n=64 stages=3 split=2'",
    "m=140 n=133 k=72 sizes=33,0,1,106 gated=1 activation=gelu_erf impl=sm90 # ends of rows by elements",
    "m=140 n=133 k=72 sizes=33,0,1,106 ldd=135 beta=1 c=1 impl=sm90 # all by elements",
    "m=100 n=69 k=131 sizes=33,0,1,46,20 a=e4m3 d=f32 fill=hard # copies of A and of all B",
    "m=300 n=136 k=144 a=i8 d=f16 groups=3 scale_a=row scale_b=row",
    "m=40 n=24 k=1024 batch_invariant=1",
    "m=1 n=72 k=256 b=u8 scale_b=block                         # weights of 4 bits",
    "m=5 n=136 k=1056 a=bf16 b=u8 scale_b=block bias=1 activation=silu # the last block of K is a quarter",
    "m=16 n=80 k=1056 a=bf16 b=i8 scale_b=row beta=1 d=f32",
    "m=9 n=200 k=2320 b=i8 scale_b=block fill=hard",
    "m=33 n=72 k=672 b=u8 lda=680 ldb=352 ldd=75 impl=weights config='rows=32 columns=16 warps=4 stages=3'",
    "m=7 n=70 k=672 a=bf16 b=i8 impl=weights config='rows=16 columns=8 warps=8 stages=2'",
    "m=9 n=73 k=1184 b=u8 scale_b=block d=f32 impl=weights config='rows=64 columns=16 warps=4 stages=3' # scales of "
    "odd rows",
    "m=9 n=73 k=1184 b=u8 d=f32 scale_b=block impl=weights config='rows=64 columns=16 warps=4 stages=3' fill=hard # an "
    "infinity meets one of the other sign",
    "m=13 n=208 k=416 b=u8 scale_b=block impl=weights config='rows=128 columns=16 warps=2 stages=2 box=16' # by TMA",
    "m=3 n=200 k=544 b=u8 scale_b=block block_k=64 impl=weights config='rows=64 columns=8 warps=2 stages=3 box=4'",
    "m=20 n=72 k=1184 a=bf16 b=i8 impl=weights config='rows=32 columns=8 warps=4 stages=2 box=8'",
    "m=3 n=200 k=3232 a=bf16 b=u8 scale_b=block block_k=64 impl=weights config='rows=112 columns=8 warps=2 stages=3 "
    "box=4'",
    "m=5 n=73 k=1056 b=e4m3 scale_b=row impl=weights config='rows=32 columns=8 warps=4 stages=2 box=8' fill=hard",
    "m=11 n=208 k=1056 a=bf16 b=e4m3 scale_b=row impl=weights config='rows=48 columns=16 warps=2 stages=2 box=16' "
    "fill=hard",
    "m=3 n=75 k=3232 a=bf16 b=i8 scale_b=block d=f32 impl=weights config='rows=64 columns=8 warps=8 stages=2'",
    "m=40 n=72 k=672 b=u8 scale_b=block sizes=0,17,3,0,1,19 bias=1 beta=1 # of experts",
    "m=40 n=72 k=288 a=bf16 b=i8 scale_b=row groups=300",
    "m=40 n=72 k=288 a=bf16 b=u8 scale_b=block groups=3 impl=naive",
    "m=7 n=70 k=38 a=bf16 b=u8 scale_b=block lda=39           # rows that start anywhere",
    "m=13 n=70 k=1032 a=bf16 b=u8 scale_b=block bias=1         # at 4 bytes",
    "m=5 n=100 k=408 b=e4m3 scale_b=row fill=hard              # at 8 bytes",
    "m=11 n=72 k=1040 b=u8 sizes=0,5,6 lda=1044 bias=1         # groups, at 8 bytes",
    "m=9 n=136 k=672 b=u8 scale_b=block block_k=64            # a scale for every 64 of K; the last tile has one of "
    "two",
    "m=12 n=73 k=1152 a=bf16 b=u8 scale_b=block block_k=64 d=f32 impl=weights config='rows=64 columns=16 warps=4 "
    "stages=3'",
    "m=40 n=72 k=416 a=bf16 b=i8 scale_b=block block_k=64 sizes=0,17,3,0,1,19 bias=1",
    "m=5 n=136 k=656 b=e4m3 scale_b=block block_k=64 activation=silu",
    "m=7 n=70 k=138 a=bf16 b=i8 scale_b=block block_k=64 lda=139 impl=naive",
    "m=7 n=70 k=39 b=i8 scale_b=row",
    "m=5 n=136 k=1056 a=bf16 b=e4m3 scale_b=block bias=1       # weights of 8-bit floats",
    "m=16 n=80 k=1056 b=e4m3 scale_b=row beta=1 d=f32",
    "m=9 n=200 k=2320 b=e4m3 fill=hard",
    "m=7 n=70 k=672 a=bf16 b=e4m3 fill=hard impl=weights config='rows=16 columns=8 warps=8 stages=2'",
    "m=40 n=72 k=672 b=e4m3 scale_b=block sizes=0,17,3,0,1,19",
    "m=70 n=72 k=136 groups=3 gather=50                        # rows of A by a list, copied first",
    "m=70 n=72 k=136 gather=33 impl=tiled bias=1",
    "m=9 n=72 k=136 gather=1                                    # one row of A for all",
    "m=40 n=70 k=39 a=bf16 gather=90 groups=5 impl=tiled       # copies by elements",
    "m=140 n=72 k=100 gather=200 ldb=104 sizes=0,70,1,69,0 fill=hard # rows of 200 bytes",
    "m=9 n=11 k=21 gather=5 impl=naive groups=2",
    "m=64 n=64 k=64 a=f32 gather=100",
    "m=100 n=136 k=64 scatter=100 weighted=1                   # a permutation of the rows",
    "m=300 n=136 k=192 groups=4 scatter=300 weighted=1 bias=1 d=f32",
    "m=140 n=133 k=72 sizes=33,0,1,106 scatter=140 ldd=135 beta=1 c=1 ldc=139",
    "m=12 n=72 k=72 sizes=3,0,1,8 scatter=40 weighted=1 activation=dgelu beta=1 a=bf16 # as D^T",
    "m=70 n=72 k=136 gather=50 scatter=70 groups=3 weighted=1 gated=1 activation=silu",
    "m=40 n=72 k=64 scatter=60 weighted=1 preactivation=1 impl=tiled groups=2",
    "m=40 n=72 k=64 a=f32 scatter=40 weighted=1 beta=1",
    "m=9 n=72 k=288 a=bf16 b=u8 scale_b=block groups=3 scatter=9 weighted=1",
    "m=9 n=72 k=288 a=bf16 b=u8 scale_b=block groups=3 gather=20",
    "m=0 n=72 k=64 scatter=7                                   # no row",
    "m=72 n=72 k=120 layout=tn groups=3 groups_of=k # gradients of weights",
    "m=136 n=72 k=420 a=bf16 d=f32 layout=tn groups_of=k sizes=0,70,1,129,0,220 beta=1 alpha=0.5",
    "m=72 n=64 k=203 layout=tn groups_of=k sizes=70,63,70 fill=hard # NaN of other groups",
    "m=256 n=72 k=420 layout=tn groups_of=k groups=3 impl=sm90 config='tile_m=128 tile_n=128 consumers=2 pingpong=0 "
    "cluster_m=2 cluster_n=1 stages=4 split=1 swap=0'",
    "m=33 n=31 k=200 groups=3 groups_of=k                      # K-major, rows that start anywhere",
    "m=33 n=31 k=100 groups=3 groups_of=k a=f32 layout=tn",
    "m=33 n=32 k=100 sizes=33,1,66 groups_of=k a=f32 fill=hard # groups begin inside quads of K",
    "m=33 n=32 k=100 sizes=33,1,66 groups_of=k a=f32 layout=nn",
    "m=33 n=31 k=100 groups=3 groups_of=k a=e4m3 d=f32 impl=naive",
    "m=64 n=64 k=0 groups=3 groups_of=k layout=tn beta=1",
    "m=130 n=144 k=272 a=e4m3 d=e4m3 scale_d=1 amax=1 bias=1 activation=gelu # 8 bits out",
    "m=20 n=144 k=272 a=e4m3 b=e5m2 d=e5m2 amax=1 scale_a=tensor scale_b=tensor alpha=64 # D^T, and beyond the largest",
    "m=130 n=131 k=272 a=e5m2 d=e4m3 amax=1 ldd=133 batch=2     # by elements",
    "m=130 n=144 k=400 a=e4m3 d=e4m3 amax=1 scale_a=block scale_b=square sizes=3,0,1,126 scatter=150 weighted=1",
    "m=4 n=80 k=64 a=e4m3 d=e4m3 amax=1 sizes=1,1,1,1 # rows of other groups do not count",
    "m=9 n=11 k=37 a=e4m3 d=e5m2 amax=1 bias=1 impl=naive fill=hard",
    "m=256 n=192 k=256 a=e4m3 d=e4m3 bias=1 gated=0",
    "m=70 n=72 k=136 batch=3 pointers=1 # arrays of pointers",
    "m=70 n=133 k=70 batch=2 pointers=1 lda=72 ldb=136 beta=1 bias=1 activation=gelu a=bf16 layout=nn",
    "m=40 n=72 k=64 batch=4 pointers=1 preactivation=1 activation=silu fill=hard",
    "m=40 n=72 k=65 a=f32 batch=3 pointers=1 beta=0.5",
    "m=40 n=72 k=64 batch=3 pointers=1 activation=dsilu gated=0 d=f32",
    "m=9 n=11 k=21 a=e4m3 batch=3 pointers=1",
    "m=9 n=11 k=12 a=i8 batch=3 pointers=1 misalign=6 # of the arrays alone: addresses in them are multiples of 16",
    "m=70 n=136 k=72 activation=drelu bias_gradient=columns     # of a layer before",
    "m=700 n=137 k=72 activation=dgelu bias_gradient=columns a=bf16 # rows of D anywhere, slices of them",
    "m=70 n=136 k=72 activation=dgelu_erf bias_gradient=rows d=f32 bias=1 c=1 beta=1",
    "m=71 n=133 k=40 activation=dsilu bias_gradient=rows ldd=135 impl=tiled",
    "m=300 n=40 k=40 a=f32 batch=3 activation=drelu bias_gradient=columns fill=hard",
    "m=30 n=40 k=40 batch=3 bias_gradient=rows stride_d=1300",
    "m=40 n=41 k=21 gated=1 bias_gradient=rows # some gates are 0, and so are their products",
    "m=257 n=72 k=64 sizes=0,200,1,56 activation=drelu bias_gradient=columns a=bf16 # of each group",
    "m=136 n=72 k=520 layout=tn bias_gradient=b a=bf16 d=f32       # of weights: B is the gradient of the output",
    "m=136 n=72 k=520 layout=nt bias_gradient=a impl=splitk        # along rows",
    "m=37 n=41 k=201 layout=tt bias_gradient=a a=f32 impl=fma",
    "m=40 n=48 k=0 bias_gradient=a c=1 beta=1",
    "m=64 n=0 k=64 bias_gradient=rows",
    "m=300 n=136 k=72 sizes=0,120,1,179 host_offsets=1          # sizes that the host has",
    "m=300 n=72 k=40 groups=60 host_offsets=1 a=bf16 bias=1 activation=drelu bias_gradient=columns",
    "m=64 n=72 k=200 sizes=0,120,1,79 groups_of=k layout=tn host_offsets=1",
    "m=72 n=33 k=41 a=f32 gather=20 bias=1                      # rows of true f32 by a list",
    "m=140 n=36 k=44 a=f32 gather=90 groups=3 gated=1 activation=silu fill=hard",
    "m=9 n=72 k=290 a=bf16 b=u8 scale_b=block gather=20 lda=301  # weights of odd rows, and rows of A by a list",
    "m=33 n=70 k=201 b=i8 ldb=203 bias=1 fill=hard",
    "m=9 n=72 k=288 b=e4m3 pointers=1 scale_b=row",
    "m=70 n=72 k=136 a=e4m3 b=e5m2 impl=tiled                   # 8-bit floats as f16",
    "m=70 n=72 k=41 a=e5m2 layout=tn groups=3 groups_of=k fill=hard",
    "m=40 n=48 k=100 a=e4m3 layout=nn gated=1 activation=silu impl=tiled config='vec=4'",
    "m=40 n=48 k=0 a=e4m3 bias=1",
    "m=70 n=48 k=100 a=e4m3 lda=112 ldb=112 impl=tiled           # rows end inside their vectors",
    "m=70 n=140 k=300 a=e4m3 b=e5m2 scale_a=block scale_b=square impl=tiled bias=1 # the last block is not whole",
    "m=70 n=72 k=256 a=e5m2 scale_a=block scale_b=block sizes=33,0,1,36 impl=tiled fill=hard",
    "m=40 n=49 k=0 b=u8 scale_b=block c=1 beta=0.5 bias=1",
    "m=64 n=64 k=64 pointers=1",
    "m=256 n=256 k=192 batch=3 pointers=1 bias=1 c=1 beta=1 fill=hard impl=sm90 config='" IN_TURN
    "tile_m=128 tile_n=128 stages=4 buffers=2' # whole tiles, by maps of all memory",
    "m=64 n=128 k=128 batch=3 pointers=1 activation=dgelu impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=64 stages=3 swap=1'",
    "m=128 n=256 k=128 batch=2 pointers=1 layout=tn preactivation=1 activation=gelu a=bf16 impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=128 stages=3'",
    "m=72 n=136 k=136 batch=3 pointers=1 bias=1 c=1 beta=1 fill=hard impl=pitched # copies of A and B",
    "m=140 n=136 k=201 batch=3 pointers=1 c=1 beta=1 impl=pitched",
    "m=70 n=80 k=144 pointers=1 a=e4m3 layout=nn batch=2 impl=pitched # turned",
    "m=9 n=11 k=21 a=e4m3 d=e5m2 amax=1 batch=3 pointers=1",
    "m=0 n=64 k=64 batch=2 pointers=1",
    "m=40 n=38 k=0 batch=3 pointers=1 c=1 beta=0.5 # no arrays of A and B",
    "m=210 n=36 k=22 a=f32 activation=dgelu_erf bias=1 bias_along=m scale_a=row scale_b=row pointers=1 c=1 beta=1 "
    "fill=hard seed=480427 # a scale that is infinite, of a sum that is 0 in f32",
    "m=820 n=400 k=640 a=e4m3 scale_a=block scale_b=square preactivation=1 fill=hard seed=350675 # of a block's sum",
    "m=300 n=200 k=328 a=bf16 bias=1 activation=gelu impl=tma_mma # stages are filled again",
    "m=130 n=133 k=136 beta=1 c=1 batch=2 impl=tma_mma config='stages=2 ctas=1'",
    "m=40 n=200 k=272 a=i8 scale_b=row impl=tma_mma",
    "m=40 n=200 k=272 a=f32 math=tf32 impl=tma_mma scatter=50 weighted=1",
    "m=130 n=133 k=136 beta=1 c=1 d=f32 impl=blocked # the ladder",
    "m=130 n=133 k=136 a=bf16 bias=1 activation=gelu impl=mma",
    "m=130 n=133 k=328 beta=1 c=1 d=f32 impl=wgmma",
    "m=130 n=133 k=328 a=bf16 bias=1 impl=tma",
    "m=260 n=264 k=328 bias=1 impl=specialised",
    "m=96 n=272 k=160 a=e5m2 b=e4m3 d=f32 beta=1 alpha=0.25    # mixed types",
    "m=20 n=272 k=272 a=e4m3 b=e5m2 d=f16                      # and of D^T",
    "m=130 n=144 k=400 a=e4m3 scale_a=block scale_b=square bias=1",
    "m=130 n=144 k=400 a=e4m3 b=e5m2 scale_a=block scale_b=block activation=gelu",
    "m=9 n=11 k=300 a=e5m2 b=e4m3 scale_a=block scale_b=square fill=hard # rows of odd bytes are copied",
    "m=170 n=272 k=400 a=e4m3 scale_a=block scale_b=square sizes=33,0,1,136",
    "m=36 n=400 k=400 a=e4m3 b=e5m2 scale_a=block scale_b=square sizes=33,0,1,2",
    "m=36 n=400 k=400 a=e4m3 scale_a=block scale_b=block groups=3",
    "m=256 n=256 k=512 a=e4m3 scale_a=block scale_b=square c=1 beta=1 impl=sm90 config='tile_m=128 tile_n=128 "
    "consumers=2 pingpong=0 cluster_m=2 cluster_n=1 stages=3'",
    "m=300 n=256 k=640 a=e4m3 scale_a=block scale_b=square impl=sm90 config='" ONE
    "tile_m=128 tile_n=64 stages=3 swap=0' # two blocks of rows a consumer",
    "m=100 n=144 k=1300 a=e4m3 b=e5m2 scale_a=block scale_b=block lda=1312 ldb=1312 impl=sm90 config='" ONE
    "tile_m=64 tile_n=144 stages=4' # scales of more columns than threads",
    "m=131 n=400 k=640 a=e4m3 scale_a=block scale_b=square impl=sm90 config='" TWO
    "tile_m=128 tile_n=192 stages=3' # halves of squares, m=131 no multiple of 4",
    "m=260 n=256 k=384 a=e4m3 scale_a=block scale_b=block impl=sm90 config='tile_m=256 tile_n=64 consumers=2 "
    "pingpong=0 cluster_m=1 cluster_n=2 stages=3' # a box of scales for each consumer's rows",
    "m=70 n=200 k=100 a=e4m3 scale_a=block scale_b=square lda=112 ldb=112 # a single K tile",
    "m=256 n=256 k=512 a=e4m3 scale_a=block scale_b=square impl=sm90 config='tile_m=128 tile_n=64 stages=3 consumers=2 "
    "pingpong=0 cluster_m=2 cluster_n=2' # every warp frees stages in four CTAs",
    "m=100 n=384 k=640 a=e4m3 scale_a=block scale_b=square impl=sm90 config='" TWO
    "tile_m=128 tile_n=112 swap=1 stages=3'",
    "m=70 n=72 k=40 epilogue=tril impl=naive                   # custom epilogues, which know their element's place",
    "m=70 n=72 k=40 epilogue=relu2 a=bf16 d=f32 bias=1 fill=hard impl=naive",
    "batch=3 m=70 n=133 k=41 epilogue=tril layout=nn impl=tiled",
    "m=140 n=136 k=72 epilogue=tril bias=1 activation=silu impl=sm90",
    "batch=2 m=200 n=168 k=264 epilogue=tril beta=1 impl=sm90 config='" IN_TURN
    "tile_m=64 tile_n=80 stages=4 split=1 swap=0'",
    "m=70 n=136 k=200 epilogue=tril impl=sm90 config='" ONE "tile_m=64 tile_n=32 swap=1'",
    "m=140 n=136 k=520 epilogue=tril impl=sm90 config='tile_m=64 tile_n=64 stages=4 split=2 cluster_m=2 cluster_n=1 "
    "consumers=1 pingpong=0'",
    "m=130 n=136 k=520 epilogue=tril beta=0.5 impl=splitk config='slices=3'",
    "m=70 n=99 k=144 epilogue=tril d=f32 impl=splitk config='slices=2'",
    "m=256 n=256 k=1024 epilogue=relu2 scatter=300 weighted=1 fill=hard",
    "m=70 n=136 k=72 epilogue=tril scatter=80 impl=sm90        # rows of the product",
    "m=300 n=136 k=72 sizes=0,70,1,129,100 epilogue=tril impl=sm90 # and of each group",
    "m=100 n=200 k=200 sizes=1,0,17,40,3,0,39 epilogue=tril impl=sm90 config='" ONE
    "tile_m=64 tile_n=32 stages=3 swap=1'",
    "m=37 n=33 k=21 sizes=3,0,20,1,13 epilogue=tril impl=tiled",
    "m=36 n=136 k=144 a=e4m3 d=e4m3 sizes=33,0,1,2 epilogue=tril scale_d=1 amax=1 impl=sm90",
    "m=40 n=41 k=80 groups=3 groups_of=k layout=tn epilogue=tril",
    "m=70 n=72 k=72 epilogue=tril gather=90 scatter=80 impl=tiled",
    "m=70 n=136 k=144 epilogue=tril a=e4m3 d=e4m3 scale_d=1 amax=1 # the largest before it",
    "m=40 n=80 k=64 epilogue=tril bias_gradient=columns        # of D as it is stored",
    "m=16 n=97 k=149 epilogue=tril impl=unaligned",
    "m=30 n=52 k=3 epilogue=tril impl=outer",
    "m=221 n=223 k=225 epilogue=tril impl=pitched",
    "m=220 n=210 k=260 epilogue=tril a=f32 math=f32x3 impl=f32x3",
    "m=3 n=70 k=516 epilogue=tril a=f32 impl=gemv",
    "m=140 n=150 k=41 epilogue=tril a=f32 impl=fma",
    "m=140 n=148 k=19 epilogue=tril a=f32 layout=tn impl=fma   # four columns at once",
    "m=7 n=70 k=672 epilogue=tril a=bf16 b=i8 impl=weights",
    "m=70 n=33 k=40 epilogue=tril gated=1 activation=gelu a=f32 math=tf32 impl=tiled",
    "m=130 n=133 k=136 epilogue=tril impl=tma_mma",
    "m=130 n=133 k=136 epilogue=tril impl=blocked",
    "m=130 n=133 k=328 epilogue=tril impl=wgmma",
    "m=46 n=41 k=404 a=f32 math=tf32 layout=tt bias_gradient=a # not by `pitched`, whose copies lie otherwise",
    NULL,
};

static const char *const population[] = {
    "m={tokens} n={hidden} k={hidden} a={f16|bf16}",
    "m={tokens} n={hidden} k={hidden} a={f16|bf16} bias=1 activation={identity|gelu|relu}",
    "m={d:hidden} n={d} k={d} a={f16|bf16}",
    "m={tokens} n={vocabulary} k={hidden} a=bf16 d={bf16|f32}",
    "m={hidden} n={hidden} k={tokens} a={f16|bf16} d=f32 beta={0|1}",
    "m={sequence} n={sequence} k={head_dim} a={f16|bf16}",
    NULL,
};

OPERATOR_TEST_WITH(gemm, .cases = cases, .rejects = gemm_rejects, .population = population, .operands = gemm_operands,
                   .reference = gemm_reference, .terms_of = gemm_terms, .approximation_of = gemm_approximation,
                   .flops = gemm_flops, .matrix_rate = gemm_matrix_rate);
