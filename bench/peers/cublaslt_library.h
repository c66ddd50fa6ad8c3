/*
 * cublaslt_library.h - the part of cuBLASLt that we call, declared here so that building needs no CUDA headers. Names
 * and values are those of cublasLt.h; the library is opened at run time.
 */
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef int lt_status; // 0 is success
typedef struct cublasLtContext *lt_handle;
typedef struct lt_opaque_desc *lt_desc;
typedef struct lt_opaque_layout *lt_layout;
typedef struct lt_opaque_preference *lt_preference;

typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;

typedef struct lt_heuristic {
    lt_algo algo;
    size_t workspace_bytes;
    lt_status state;
    float waves;
    int reserved[4];
} lt_heuristic;

enum {
    LT_NOT_SUPPORTED = 15, // lt_status

    LT_COMPUTE_32F = 68,
    LT_COMPUTE_32I = 72,
    LT_COMPUTE_TF32 = 77,

    LT_R_32F = 0,
    LT_R_16F = 2,
    LT_R_8I = 3,
    LT_R_32I = 10,
    LT_R_16BF = 14,
    LT_R_8F_E4M3 = 28,
    LT_R_8F_E5M2 = 29,

    LT_OP_NORMAL = 0,
    LT_OP_TRANSPOSED = 1,

    LT_LAYOUT_BATCH_COUNT = 5,
    LT_LAYOUT_BATCH_STRIDE = 6,

    LT_DESC_TRANSPOSE_A = 3,
    LT_DESC_TRANSPOSE_B = 4,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS_POINTER = 8,
    LT_DESC_FAST_SUMS = 25,
    LT_DESC_BIAS_TYPE = 26,

    LT_EPILOGUE_DEFAULT = 1,
    LT_EPILOGUE_RELU = 2,
    LT_EPILOGUE_BIAS = 4,
    LT_EPILOGUE_GELU = 32,

    LT_PREFER_WORKSPACE_BYTES = 1,
    LT_PREFER_REDUCTION_SCHEMES = 3,
    LT_PREFER_ALIGNMENT_A = 5, // B, C, D follow
    LT_REDUCTION_IN_PLACE = 1,
    LT_REDUCTION_COMPUTE_TYPE = 2,

    LT_ALGO_ID = 0,
    LT_ALGO_TILE = 1,
    LT_ALGO_SPLIT_K = 2,
    LT_ALGO_STAGES = 6,
    LT_ALGO_CLUSTER = 8,

    LT_CAP_TILES = 6,
    LT_CAP_STAGES = 13,
    LT_CAP_ALIGNMENT_A = 16, // B, C, D follow

    LT_CLUSTER_AUTO = 0,
    LT_CLUSTER_1X1 = 2, // then 2x1, 4x1, 1x2, 2x2
    LT_CLUSTER_2X2 = 6,
};

/* X(function, parameters); every one returns an lt_status. */
#define LT_FUNCTIONS(X)                                                                                              \
    X(cublasLtCreate, (lt_handle * handle))                                                                          \
    X(cublasLtMatmulDescCreate, (lt_desc * desc, int compute_type, int scale_type))                                  \
    X(cublasLtMatmulDescDestroy, (lt_desc desc))                                                                     \
    X(cublasLtMatmulDescSetAttribute, (lt_desc desc, int attribute, const void *value, size_t bytes))                \
    X(cublasLtMatrixLayoutCreate, (lt_layout * layout, int type, uint64_t rows, uint64_t columns, int64_t ld))       \
    X(cublasLtMatrixLayoutSetAttribute, (lt_layout layout, int attribute, const void *value, size_t bytes))          \
    X(cublasLtMatrixLayoutDestroy, (lt_layout layout))                                                               \
    X(cublasLtMatmulPreferenceCreate, (lt_preference * preference))                                                  \
    X(cublasLtMatmulPreferenceDestroy, (lt_preference preference))                                                   \
    X(cublasLtMatmulPreferenceSetAttribute,                                                                          \
      (lt_preference preference, int attribute, const void *value, size_t bytes))                                    \
    X(cublasLtMatmulAlgoGetHeuristic,                                                                                \
      (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d, lt_preference preference, \
       int requested, lt_heuristic *results, int *returned))                                                         \
    X(cublasLtMatmulAlgoGetIds, (lt_handle handle, int compute_type, int scale_type, int a, int b, int c, int d,     \
                                 int requested, int *ids, int *returned))                                            \
    X(cublasLtMatmulAlgoInit,                                                                                        \
      (lt_handle handle, int compute_type, int scale_type, int a, int b, int c, int d, int id, lt_algo *algo))       \
    X(cublasLtMatmulAlgoCheck, (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d,  \
                                const lt_algo *algo, lt_heuristic *result))                                          \
    X(cublasLtMatmulAlgoCapGetAttribute,                                                                             \
      (const lt_algo *algo, int attribute, void *value, size_t bytes, size_t *written))                              \
    X(cublasLtMatmulAlgoConfigSetAttribute, (lt_algo * algo, int attribute, const void *value, size_t bytes))        \
    X(cublasLtMatmulAlgoConfigGetAttribute,                                                                          \
      (const lt_algo *algo, int attribute, void *value, size_t bytes, size_t *written))                              \
    X(cublasLtMatmul,                                                                                                \
      (lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_layout, const void *b,          \
       lt_layout b_layout, const void *beta, const void *c, lt_layout c_layout, void *d, lt_layout d_layout,         \
       const lt_algo *algo, void *workspace, size_t workspace_bytes, void *stream))

typedef struct lt_library {
#define X(function, parameters) lt_status(*function) parameters;
    LT_FUNCTIONS(X)
#undef X
    size_t (*cublasLtGetVersion)(void);
} lt_library;

/* The functions; all NULL until lt_load() has succeeded. */
extern lt_library lt;

/* Opens the library, once; CKL_UNSUPPORTED with where it was looked for and how to get it. CKL_CUBLASLT may name it. */
ckl_status lt_load(void);

/* A product as the library takes it, and what its algorithms may use. */
typedef struct lt_product {
    lt_handle handle;
    lt_desc desc;
    lt_layout a, b, c, d;
    int compute, scale;         // types of the sums, and of alpha and beta
    int type_a, type_b, type_d; // c is of d's
    uint32_t alignment[4];      // bytes, of the pointers of a, b, c, d
    size_t workspace_bytes;
    int first_id; // of the algorithm to begin with
} lt_product;

/*
 * Algorithms beyond those that the heuristic names: every one that takes the product, with its tiles, stages and
 * clusters. Where there are more than `max`, some of all. Returns how many.
 */
int lt_enumerate(const lt_product *p, lt_heuristic *found, int max);
