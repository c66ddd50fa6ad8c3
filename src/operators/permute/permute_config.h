/* permute_config.h - the compile-time choices of the kernels that transpose and permute. */
#ifndef CKL_PERMUTE_CONFIG_H
#define CKL_PERMUTE_CONFIG_H

#include "base/fields.h"
#include "base/math.h"

/* Of every kernel that transposes matrices, first. */
#define TRANSPOSE_FIELDS(X, owner)                              \
    X(owner, int, bytes, "4", "1 2 4 8", "bytes of an element") \
    X(owner, int, outer, "0", "0 1 2 3", "modes round a matrix")

#define TRANSPOSE_NAIVE_CONFIG(X)               \
    TRANSPOSE_FIELDS(X, transpose_naive_config) \
    X(transpose_naive_config, int, threads, "256", "128 256 512", "threads of a CTA, one element each")

#define TRANSPOSE_TILED_CONFIG(X)               \
    TRANSPOSE_FIELDS(X, transpose_tiled_config) \
    X(transpose_tiled_config, int, tile, "32", "16 32", "rows and columns of a tile")

#define TRANSPOSE_SM80_CONFIG(X)                                                                     \
    TRANSPOSE_FIELDS(X, transpose_sm80_config)                                                       \
    X(transpose_sm80_config, int, tile_r, "64", "32 64 128 256", "rows of x of a CTA")               \
    X(transpose_sm80_config, int, tile_c, "64", "32 64 128 256", "columns of x of a CTA")            \
    X(transpose_sm80_config, int, chunk, "16", "4 8 16", "bytes of a copy to shared memory")         \
    X(transpose_sm80_config, int, align, "32", "4 16 32", "bytes: where windows of y begin and end") \
    X(transpose_sm80_config, int, threads, "256", "128 256 512", "threads of a CTA")                 \
    X(transpose_sm80_config, int, ctas_per_sm, "0", "0 4 6 8", "CTAs to fit in an SM; 0: no promise")

#define TRANSPOSE_SM90_CONFIG(X)                                                      \
    TRANSPOSE_FIELDS(X, transpose_sm90_config)                                        \
    X(transpose_sm90_config, int, tile_r, "64", "32 64 128", "rows of x of a CTA")    \
    X(transpose_sm90_config, int, tile_c, "64", "32 64 128", "columns of x of a CTA") \
    X(transpose_sm90_config, int, threads, "256", "64 128 256", "threads of a CTA")   \
    X(transpose_sm90_config, int, ctas_per_sm, "0", "0 4 6 8", "CTAs to fit in an SM; 0: no promise")

#define TRANSPOSE_NARROW_CONFIG(X)                                                               \
    TRANSPOSE_FIELDS(X, transpose_narrow_config)                                                 \
    X(transpose_narrow_config, int, narrow, "1", "0 1", "1: rows of x are short; 0: those of y") \
    X(transpose_narrow_config, int, tile_r, "1024", "4 16 64 256 1024", "rows of x of a CTA")    \
    X(transpose_narrow_config, int, tile_c, "4", "4 16 64 256 1024", "columns of x of a CTA")    \
    X(transpose_narrow_config, int, threads, "256", "128 256 512", "threads of a CTA")

#define PERMUTE_GATHER_CONFIG(X)                                                                                \
    X(permute_gather_config, int, element, "4", "1 2 4 8", "bytes of an element, what pointers are aligned to") \
    X(permute_gather_config, int, bytes, "4", "1 2 4 8 16", "bytes of one memory access")                       \
    X(permute_gather_config, int, rank, "1", "1 2 3 4 5 6 7", "modes")                                          \
    X(permute_gather_config, int, block, "1", "1 8 16", "accesses side by side in x and in y; 1: in y alone")   \
    X(permute_gather_config, int, threads, "256", "128 256 512", "threads of a CTA")                            \
    X(permute_gather_config, int, steps, "4", "1 2 4 8", "accesses of a thread in flight")

typedef struct transpose_naive_config {
    TRANSPOSE_NAIVE_CONFIG(FIELD_MEMBER)
} transpose_naive_config;

typedef struct transpose_tiled_config {
    TRANSPOSE_TILED_CONFIG(FIELD_MEMBER)
} transpose_tiled_config;

typedef struct transpose_sm80_config {
    TRANSPOSE_SM80_CONFIG(FIELD_MEMBER)
} transpose_sm80_config;

typedef struct transpose_sm90_config {
    TRANSPOSE_SM90_CONFIG(FIELD_MEMBER)
} transpose_sm90_config;

typedef struct transpose_narrow_config {
    TRANSPOSE_NARROW_CONFIG(FIELD_MEMBER)
} transpose_narrow_config;

typedef struct permute_gather_config {
    PERMUTE_GATHER_CONFIG(FIELD_MEMBER)
} permute_gather_config;

enum {
    NAIVE_TILE_C = 32,    // columns of x of a CTA: a warp's threads read side by side
    TILED_ROWS = 8,       // rows of a tile that the threads of a CTA move at once
    SM90_ROW_BYTES = 128, // rows of boxes: the widest swizzle of TMA
};

/* Columns of a box of the sm90 kernel. */
static inline int sm90_box_columns(int bytes)
{
    return SM90_ROW_BYTES / bytes;
}

/* The sm80 kernel moves words of 4 bytes, or single elements that are longer. */
static inline int sm80_word_bytes(int bytes)
{
    return bytes < 4 ? 4 : bytes;
}

/* The tile of the sm80 kernel in shared memory: rows in parts of every PERIOD-th, of so many chunks each. */
typedef struct sm80_tile {
    int rows, period, chunks;
} sm80_tile;

sm80_tile transpose_sm80_tile(const transpose_sm80_config *config);

/* Shared memory of a CTA. */
int64_t transpose_sm80_smem_bytes(const transpose_sm80_config *config);
int64_t transpose_sm90_smem_bytes(const transpose_sm90_config *config);
int64_t transpose_narrow_smem_bytes(const transpose_narrow_config *config);

/* What the sm90 kernel's pointers that are not aligned to 16 bytes get. */
transpose_sm80_config transpose_sm90_fallback(const transpose_sm90_config *config);

/* The kernels. */
void transpose_naive(const void *config, int part);
void transpose_tiled(const void *config, int part);
void transpose_sm80(const void *config, int part);
void transpose_sm90(const void *config, int part); // 0: pointers aligned to 16 bytes; 1: others, as sm80
void transpose_narrow(const void *config, int part);
void permute_gather(const void *config, int part); // 0: pointers aligned to `bytes`; 1: to `element`

#endif
