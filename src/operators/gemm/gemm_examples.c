/* gemm_examples.c - two epilogues as a user writes them, with the public header alone: squared ReLU, a triangle. */
#include "operators/gemm/gemm_epilogues.h"

static ckl_val relu2(ckl_val x, ckl_val row, ckl_val col, void *user)
{
    (void)row, (void)col, (void)user;
    return ckl_val_select(ckl_val_lt(x, ckl_val_f32(0)), ckl_val_f32(0), ckl_val_mul(x, x)); // NaN stays
}

const ckl_gemm_epilogue gemm_relu2 = { .name = "relu2", .apply = relu2 };

static ckl_val tril(ckl_val x, ckl_val row, ckl_val col, void *user)
{
    (void)user;
    return ckl_val_select(ckl_val_le(col, row), x, ckl_val_f32(0));
}

const ckl_gemm_epilogue gemm_tril = { .name = "tril", .apply = tril };
