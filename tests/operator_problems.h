/* operator_problems.h - a small problem of every operator and direction, with all the tensors that it may have. */
#pragma once

static const char *const operator_problems[] = {
    "add n=1000",
    "attention heads=4 q=64 kv=64 lse=1 sinks=1 mask=add",
    "attention heads=4 q=64 kv=64 direction=backward sinks=1",
    "attention batch=3 heads=4 q=64 kv=64 ragged=1 lse=1",
    "attention_decode batch=4 heads=4 kv=64 page=16 lse=1 sinks=1",
    "conv n=2 c=3 h=6 w=6 k=5 pad=1 bias=1 residual=1",
    "conv n=2 c=3 h=6 w=6 k=5 pad=1 direction=data",
    "conv n=2 c=3 h=6 w=6 k=5 pad=1 direction=weight bias=1",
    "crossentropy rows=8 cols=64",
    "crossentropy rows=8 cols=64 direction=backward",
    "elementwise expr=a*b+c shape=1000",
    "gemm m=64 n=64 k=64 beta=1 bias=1",
    "groupnorm n=2 c=32 h=4 w=4 groups=4",
    "layernorm rows=8 cols=64 residual=1",
    "layernorm rows=8 cols=64 direction=backward residual=1",
    "permute shape=16x32x8",
    "reduce op=sum shape=64x64 axes=1",
    "rmsnorm rows=8 cols=64",
    "rmsnorm rows=8 cols=64 direction=backward",
    "rope tokens=8 k_heads=2",
    "softmax shape=8x64 mask=add",
    "softmax shape=8x64 direction=backward",
    "transpose rows=32 cols=48",
};
