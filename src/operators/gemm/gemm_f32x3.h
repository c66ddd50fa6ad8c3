/* gemm_f32x3.h - f32 as the sum of two tf32: the config of its kernels, and how operands lie between them. */
#pragma once

#include "operators/gemm/gemm_sm90_config.h"

#define GEMM_F32X3_CONFIG(X, owner) \
    X(owner, int, vec, "4", "1 4", "elements of a load from A and B, where they are K-major")

typedef struct gemm_f32x3_config {
    gemm_sm90_config products;
    GEMM_F32X3_CONFIG(FIELD_MEMBER, )
} gemm_f32x3_config;

enum {
    GEMM_F32X3_RUN = GEMM_TILE_BYTES / 4, // elements of K, rounded; then their rests; then the next elements
    GEMM_F32X3_THREADS = 256,
    GEMM_F32X3_ROWS = 32,   // rows of a matrix that a CTA splits
    GEMM_F32X3_DEPTH = 128, // elements of each
};

void gemm_f32x3(const void *config, int kernel);
