/*
 * tuned_shipped.c - the lines of the tuned store that are built in; scripts/ship_tuned.sh writes this file from those
 * that `ckl tune` has written.
 */
#include "plan/tuned.h"

// clang-format off
const char *const tuned_shipped[] = {
    "gemm device='NVIDIA H200' m=1024 n=512 k=4096 d=f32 config='splitk tile_m=64 tile_n=128 stages=8 consumers=1 pingpong=0 cluster_m=1 cluster_n=2 group=4 buffers=2 ctas=1 ragged=0 split=1 persistent=0 swap=0 batched=2 slices=0 vec=8' # 11.47 us, before 13.41 us",
    "gemm device='NVIDIA H200' m=336 n=1664 k=18432 a=bf16 d=bf16 config='splitk tile_m=192 tile_n=128 stages=4 consumers=3 pingpong=0 cluster_m=1 cluster_n=1 group=8 buffers=2 ctas=1 ragged=0 split=1 persistent=1 swap=0 batched=2 slices=0 vec=8' # 41.9 us, before 42.71 us",
    "gemm device='NVIDIA H200' m=577 n=352 k=28672 config='splitk tile_m=64 tile_n=128 stages=8 consumers=1 pingpong=0 cluster_m=1 cluster_n=1 group=4 buffers=2 ctas=1 ragged=0 split=1 persistent=1 swap=0 batched=2 slices=0 vec=8' # 28.98 us, before 34.71 us",
    "gemm device='NVIDIA H200' m=8192 n=128 k=6768 activation=gelu bias=1 config='sm90 tile_m=128 tile_n=80 stages=8 consumers=2 pingpong=0 cluster_m=1 cluster_n=4 group=8 buffers=2 ctas=1 split=1 persistent=1 swap=1 alone=0' # 36.48 us, before 40.74 us",
    "conv device='NVIDIA H200' c=80 h=128 w=128 k=512 pad=1 config='sm90 consumers=2 tile_n=256 tile_k=32 box_w=4 box_h=32 box_n=1 stages=8 step_w=1 step_h=1 grouped=0 slices=1 together=1 im2col=0 tall=0 held=0 zeros=0' # 32.87 us, before 33.8 us",
    "conv device='NVIDIA H200' n=3 c=8 h=256 w=256 k=55 stride=2 pad=1 config='im2col tile_m=64 tile_n=64 stages=10 consumers=1 pingpong=0 cluster_m=2 cluster_n=1 group=8 buffers=2 ctas=1 ragged=2 split=1 persistent=1 swap=0 batched=0' # 13.45 us, before 27.03 us",
    NULL
};
