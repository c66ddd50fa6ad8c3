/* gemm_config.h - the compile-time choices of GEMM's kernels, and the part of them that all kernels share. */
#ifndef CKL_GEMM_CONFIG_H
#define CKL_GEMM_CONFIG_H

#include "base/fields.h"
#include "cutekernellib/operators/gemm.h"

/* What is computed: the same fields in every config, first. */
#define GEMM_PROBLEM_FIELDS(X, owner)                                          \
    X(owner, ckl_dtype, ab, "f16", "f16 bf16", "type of A and B")              \
    X(owner, ckl_dtype, d, "f16", "f16 bf16 f32", "type of D, C and the bias") \
    X(owner, bool, c, "0", "0 1", "adds beta * C")                             \
    X(owner, bool, bias, "0", "0 1", "adds a bias to every column")            \
    X(owner, choice, activation, "identity", "identity relu gelu", "applied last")

typedef struct gemm_epilogue {
    GEMM_PROBLEM_FIELDS(FIELD_MEMBER, )
} gemm_epilogue;

#define GEMM_NAIVE_CONFIG(X)                  \
    GEMM_PROBLEM_FIELDS(X, gemm_naive_config) \
    X(gemm_naive_config, int, threads, "256", "128 256", "threads of a CTA, one element of D each")

#define GEMM_TILED_CONFIG(X)                                                    \
    GEMM_PROBLEM_FIELDS(X, gemm_tiled_config)                                   \
    X(gemm_tiled_config, int, tile_m, "128", "64 128", "rows of D of a CTA")    \
    X(gemm_tiled_config, int, tile_n, "128", "64 128", "columns of D of a CTA") \
    X(gemm_tiled_config, int, stages, "3", "2 3 4", "K tiles of 32 in shared memory")

#define GEMM_SM90_CONFIG(X)                                                                                      \
    GEMM_PROBLEM_FIELDS(X, gemm_sm90_config)                                                                     \
    X(gemm_sm90_config, int, tile_m, "128", "64 128 192 256", "rows of D of a CTA")                              \
    X(gemm_sm90_config, int, tile_n, "256", "64 96 128 160 192 224 256", "columns of D of a CTA")                \
    X(gemm_sm90_config, int, stages, "4", "3 4 5 6 7 8", "K tiles of 64 in shared memory")                       \
    X(gemm_sm90_config, int, consumers, "2", "1 2 3", "warpgroups that multiply")                                \
    X(gemm_sm90_config, bool, pingpong, "0", "0 1", "consumers take whole tiles in turn, not parts of one tile") \
    X(gemm_sm90_config, int, cluster_m, "2", "1 2", "CTAs of a cluster along M; they share B by multicast")      \
    X(gemm_sm90_config, int, cluster_n, "1", "1 2", "CTAs of a cluster along N; they share A by multicast")      \
    X(gemm_sm90_config, int, group, "8", "4 8 16", "rows of cluster tiles in a band of the raster")              \
    X(gemm_sm90_config, int, buffers, "2", "2 4", "staging buffers of D of each consumer")                       \
    X(gemm_sm90_config, int, ctas, "1", "1 2", "CTAs that an SM holds at once")                                  \
    X(gemm_sm90_config, bool, ragged, "0", "0 1", "rows of D are not whole 16-byte chunks, as TMA stores want them")

typedef struct gemm_naive_config {
    GEMM_NAIVE_CONFIG(FIELD_MEMBER)
} gemm_naive_config;

typedef struct gemm_tiled_config {
    GEMM_TILED_CONFIG(FIELD_MEMBER)
} gemm_tiled_config;

typedef struct gemm_sm90_config {
    GEMM_SM90_CONFIG(FIELD_MEMBER)
} gemm_sm90_config;

enum {
    GEMM_TILE_K = 64,        // sm90: elements of K of one stage: rows of 128 bytes, the widest swizzle
    GEMM_TILED_K = 32,       // tiled: rows of 64 bytes
    GEMM_TILED_THREADS = 128 // 2 x 2 warps
};

/* What the sm90 kernel and its host side derive alike from a config. */
typedef struct gemm_sm90_shape {
    int consumer_rows; // of D of one consumer
    int box_a, box_b;  // rows of A and B that one CTA loads of a tile
    int cluster;       // CTAs
    int threads;
    int d_rows, d_cols; // of one staging buffer of D
    int64_t stage_bytes, smem_bytes;
} gemm_sm90_shape;

gemm_sm90_shape gemm_sm90_shape_of(const gemm_sm90_config *config);

/* Accumulators of one consumer thread. */
int gemm_sm90_accumulators(const gemm_sm90_config *config);

enum { GEMM_EASY_ACCUMULATORS = 128 }; // of a thread: with more, the epilogue has few registers left

/* The kernels. */
void gemm_naive(const void *config, int part);
void gemm_tiled(const void *config, int part);
void gemm_sm90(const void *config, int part);

#endif
