/* gemm_splitk.h - what the kernels of a K in slices and their host side share. */
#ifndef CKL_GEMM_SPLITK_H
#define CKL_GEMM_SPLITK_H

#include "operators/gemm/gemm_config.h"

enum {
    GEMM_SPLITK_THREADS = 128, // of a CTA that adds
    GEMM_SPLITK_COLUMNS = 8,   // of D, of a thread: 16 bytes of 16-bit types
    GEMM_SPLITK_SLICES_MAX = 16,
};

#define GEMM_SPLITK_CONFIG(X, owner)                                                    \
    X(owner, int, slices, "4", "2 3 4 5 6 7 8 10 12 16", "products that K is cut into") \
    X(owner, int, vec, "8", "1 8", "elements of D that are stored at once")

/* The products write f32 to the workspace; the epilogue that is given here is that of the sum. */
typedef struct gemm_splitk_config {
    gemm_sm90_config products;
    GEMM_SPLITK_CONFIG(FIELD_MEMBER, )
} gemm_splitk_config;

/* The config of the products alone: no epilogue. */
gemm_sm90_config gemm_splitk_products(const gemm_splitk_config *config);

void gemm_splitk(const void *config, int kernel);

#endif
