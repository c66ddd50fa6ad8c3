/*
 * tuned_shipped.c - the lines of the tuned store that are built in; scripts/ship_tuned.sh writes this file from those
 * that `ckl tune` has written.
 */
#include "plan/tuned.h"

// clang-format off
const char *const tuned_shipped[] = {
    "gemm device='NVIDIA H200' m=1024 n=512 k=4096 d=f32 config='splitk tile_m=64 tile_n=128 stages=8 consumers=1 pingpong=0 cluster_m=1 cluster_n=2 group=4 buffers=2 ctas=1 ragged=0 split=1 persistent=0 swap=0 batched=2 slices=0 vec=8' # 12.14 us, before 12.86 us",
    "gemm device='NVIDIA H200' m=336 n=1664 k=18432 a=bf16 d=bf16 config='splitk tile_m=192 tile_n=128 stages=4 consumers=3 pingpong=0 cluster_m=1 cluster_n=1 group=8 buffers=2 ctas=1 ragged=0 split=1 persistent=1 swap=0 batched=2 slices=0 vec=8' # 45.34 us, before 51.54 us",
    "gemm device='NVIDIA H200' m=8192 n=128 k=6768 activation=gelu bias=1 config='sm90 tile_m=128 tile_n=80 stages=8 consumers=2 pingpong=0 cluster_m=1 cluster_n=4 group=8 buffers=2 ctas=1 split=1 persistent=1 swap=1 alone=0' # 38.05 us, before 39.47 us",
    NULL
};
