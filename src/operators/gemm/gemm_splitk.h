/* gemm_splitk.h - what the kernels of K in slices share with their host side. */
#pragma once

#include "operators/gemm/gemm_sm90_config.h"

enum {
    GEMM_SPLITK_THREADS = 128, // of a CTA that adds
    GEMM_SPLITK_COLUMNS = 8,   // of D, of a thread: 16 bytes of 16-bit types
    GEMM_SPLITK_AT_ONCE = 8,   // slices whose loads are in flight together
    GEMM_SPLITK_SLICES_MAX = 64,
};

#define GEMM_SPLITK_CONFIG(X, owner)                                                    \
    X(owner, int, slices, "0", "0 2 3 4 5 6 8 12 16", "of K; 0: as many as cost least") \
    X(owner, int, vec, "8", "1 8", "elements of D that are stored at once")

/* The products write f32 to the workspace; this epilogue is that of the sum. */
typedef struct gemm_splitk_config {
    gemm_sm90_config products;
    GEMM_SPLITK_CONFIG(FIELD_MEMBER, )
} gemm_splitk_config;

/* The config of the products alone: no epilogue. */
gemm_sm90_config gemm_splitk_products(const gemm_splitk_config *config);

void gemm_splitk(const void *config, int kernel);
