/* permute_config.h - fields of problems, configs, parameters and implementations of the kernels that transpose and permute. */
#pragma once

#include "operators/permute/permutation.h"
#include "plan/plan.h"

/* The fields of a problem; of permute there are modes beside them. */
#define TRANSPOSE_DESC(X, owner)                                                      \
    X(owner, int64_t, rows, "1024", "", "rows of x")                                  \
    X(owner, int64_t, cols, "1024", "", "columns of x")                               \
    X(owner, ckl_dtype, dtype, "f32", "", "type of x and y, any")                     \
    X(owner, int64_t, batch, "1", "?1..", "matrices")                                 \
    X(owner, int64_t, ldx, "0", "", "elements between rows of x; 0: dense")           \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y; 0: dense")           \
    X(owner, int64_t, incx, "1", "?1..", "elements between neighbours in a row of x") \
    X(owner, int64_t, incy, "1", "?1..", "elements between neighbours in a row of y") \
    X(owner, int64_t, stride_x, "0", "", "elements between matrices of x; 0: dense")  \
    X(owner, int64_t, stride_y, "0", "", "elements between matrices of y; 0: dense")

#define PERMUTE_DESC(X, owner) X(owner, ckl_dtype, dtype, "f32", "", "type of x and y, any")

/* Of every kernel that transposes matrices. */
#define TRANSPOSE_FIELDS(X, owner)                              \
    X(owner, int, bytes, "4", "1 2 4 8", "bytes of an element") \
    X(owner, int, outer, "0", "0 1 2 3", "modes round a matrix")

#define TRANSPOSE_NAIVE_CONFIG(X, owner) \
    TRANSPOSE_FIELDS(X, owner)           \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA, one element each")

#define TRANSPOSE_TILED_CONFIG(X, owner) \
    TRANSPOSE_FIELDS(X, owner)           \
    X(owner, int, tile, "32", "16 32", "rows and columns of a tile")

/* Of those whose tiles are whole lines on both sides. */
#define TRANSPOSE_TILE_FIELDS(X, owner)                                                           \
    TRANSPOSE_FIELDS(X, owner)                                                                    \
    X(owner, int, tile_r, "64", "32 64 128 256", "rows of x of a CTA")                            \
    X(owner, int, tile_c, "64", "32 64 128 256", "columns of x of a CTA")                         \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")                              \
    X(owner, bool, across, "0", "0 1", "neighbouring CTAs go along the rows of x, not down them") \
    X(owner, bool, prefetch, "0", "0 1", "prefetch x to L2 while the kernel before may still run")

#define TRANSPOSE_SM80_CONFIG(X, owner)                                              \
    TRANSPOSE_TILE_FIELDS(X, owner)                                                  \
    X(owner, int, align, "32", "4 16 32", "bytes: where windows of y begin and end") \
    X(owner, int, lanes, "32", "8 32", "of a warp along a row of y")                 \
    X(owner, int, ctas_per_sm, "0", "0 4 6 8", "CTAs that shall fit an SM: bounds registers; 0: any")

#define TRANSPOSE_SM90_CONFIG TRANSPOSE_TILE_FIELDS

#define TRANSPOSE_NARROW_CONFIG(X, owner)                                           \
    TRANSPOSE_FIELDS(X, owner)                                                      \
    X(owner, bool, short_x, "1", "0 1", "1: rows of x are short; 0: rows of y are") \
    X(owner, int, tile_r, "1024", "4 16 64 256 1024", "rows of x of a CTA")         \
    X(owner, int, tile_c, "4", "4 16 64 256 1024", "columns of x of a CTA")         \
    X(owner, int, threads, "256", "64 128 256", "threads of a CTA")                 \
    X(owner, bool, prefetch, "0", "0 1", "prefetch x to L2 while the kernel before may still run")

#define PERMUTE_GATHER_CONFIG(X, owner)                                                                         \
    X(owner, int, element, "4", "1 2 4 8", "bytes of an element, what pointers are aligned to")                 \
    X(owner, int, bytes, "4", "1 2 4 8 16", "bytes of one memory access; of x, if elements are turned")         \
    X(owner, int, turned, "0", "0 2 4", "elements of a word, of squares that are turned in registers; 0: none") \
    X(owner, int, rank, "1", "1 2 3 4 5 6 7", "modes")                                                          \
    X(owner, int, block, "1", "1 8 16", "accesses that are neighbours in x and in y; 1: neighbours in y only")  \
    X(owner, bool, cut, "0", "0 1", "blocks do not divide the modes")                                           \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")                                            \
    X(owner, int, steps, "4", "1 2 4 8", "accesses of a thread in flight")

#define PERMUTE_BOXES_CONFIG(X, owner)                                                                        \
    X(owner, int, bytes, "4", "1 2 4 8", "bytes of an element")                                               \
    X(owner, int, rank, "2", "1 2 3 4 5", "modes: those of a run of y, others of the box, others")            \
    X(owner, int, run, "1", "1 2 3 4 5", "modes that a run of y goes along")                                  \
    X(owner, int, across, "1", "0 1 2 3 4", "other modes of a box, which runs of x go along")                 \
    X(owner, int, more, "0", "0 1", "modes of a box that no run goes along")                                  \
    X(owner, int, shared, "0", "0 1 2 3 4 5 6 7", "bits: modes of a run of y that runs of x go along, too")   \
    X(owner, int, run_x, "128", "64 128 256 512 1024", "bytes of a run of x, at most or in the fastest mode") \
    X(owner, int, run_y, "256", "64 128 256 512 1024", "bytes of a run of y, at most")                        \
    X(owner, int, lanes, "64", "1 2 4 8 16 32 64 128 256", "threads that share a run of y, one word each")    \
    X(owner, int, smem_kb, "16", "", "shared memory of a CTA")                                                \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")                                          \
    X(owner, bool, prefetch, "0", "0 1", "prefetch x to L2 while the kernel before may still run")

#define PERMUTE_WINDOWS_CONFIG(X, owner)                                   \
    X(owner, int, bytes, "4", "1 2 4", "bytes of an element")              \
    X(owner, int, rank, "2", "1 2 3 4 5", "modes, the innermost is a run") \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")

FIELD_STRUCT(transpose_naive_config, TRANSPOSE_NAIVE_CONFIG);
FIELD_STRUCT(transpose_tiled_config, TRANSPOSE_TILED_CONFIG);
FIELD_STRUCT(transpose_sm80_config, TRANSPOSE_SM80_CONFIG);
FIELD_STRUCT(transpose_sm90_config, TRANSPOSE_SM90_CONFIG);
FIELD_STRUCT(transpose_narrow_config, TRANSPOSE_NARROW_CONFIG);
FIELD_STRUCT(permute_gather_config, PERMUTE_GATHER_CONFIG);
FIELD_STRUCT(permute_boxes_config, PERMUTE_BOXES_CONFIG);
FIELD_STRUCT(permute_windows_config, PERMUTE_WINDOWS_CONFIG);

/*
 * Of every kernel that transposes matrices. Distances are bytes, of naive and tiled elements; sizes and strides of outer modes
 * are the fastest's first.
 */
#define TRANSPOSE_PARAMS(X, owner)                \
    X(owner, tensor, tX)                          \
    X(owner, tensor, tY)                          \
    X(owner, u32, rows)                           \
    X(owner, u32, cols)                           \
    X(owner, u32, size, [PERMUTE_OUTER_MAX])      \
    X(owner, pointer, x)                          \
    X(owner, i64, ldx)                            \
    X(owner, i64, incx)                           \
    X(owner, pointer, y)                          \
    X(owner, i64, ldy)                            \
    X(owner, i64, incy)                           \
    X(owner, i64, stride_x, [PERMUTE_OUTER_MAX])  \
    X(owner, i64, stride_y, [PERMUTE_OUTER_MAX])  \
    X(owner, u32, factor) /* of the short side */ \
    X(owner, u32, shift)

/* Strides are bytes. factor and shift divide by a mode's size (cute/divisor.h). */
#define PERMUTE_GATHER_PARAMS(X, owner)          \
    X(owner, u32, count)                         \
    X(owner, pointer, x)                         \
    X(owner, pointer, y)                         \
    X(owner, i64, turned_x) /* between words */  \
    X(owner, i64, turned_y)                      \
    X(owner, u32, width) /* of cut modes */      \
    X(owner, u32, height)                        \
    X(owner, u32, across, [PERMUTE_SPLIT_MAX])   \
    X(owner, u32, down, [PERMUTE_SPLIT_MAX])     \
    X(owner, u32, size, [PERMUTE_SPLIT_MAX])     \
    X(owner, u32, factor, [PERMUTE_SPLIT_MAX])   \
    X(owner, u32, shift, [PERMUTE_SPLIT_MAX])    \
    X(owner, i64, stride_x, [PERMUTE_SPLIT_MAX]) \
    X(owner, i64, stride_y, [PERMUTE_SPLIT_MAX])

/* Modes in the order of the config. Strides are bytes; factor and shift divide by a box's size, and by the chunks of a run of x. */
#define PERMUTE_BOXES_PARAMS(X, owner)                                      \
    X(owner, pointer, x)                                                    \
    X(owner, pointer, y)                                                    \
    X(owner, u32, size, [PERMUTE_MODES_MAX])                                \
    X(owner, u32, box, [PERMUTE_MODES_MAX])   /* elements of it in a box */ \
    X(owner, u32, boxes, [PERMUTE_MODES_MAX]) /* that divide it */          \
    X(owner, u32, factor, [PERMUTE_MODES_MAX])                              \
    X(owner, u32, shift, [PERMUTE_MODES_MAX])                               \
    X(owner, u32, smem, [PERMUTE_MODES_MAX]) /* stride in shared memory */  \
    X(owner, i64, stride_x, [PERMUTE_MODES_MAX])                            \
    X(owner, i64, stride_y, [PERMUTE_MODES_MAX])                            \
    X(owner, u32, chunks)                                                   \
    X(owner, u32, chunks_factor)                                            \
    X(owner, u32, chunks_shift)

/* The innermost mode's size is windows. */
#define PERMUTE_WINDOWS_PARAMS(X, owner)         \
    X(owner, pointer, x)                         \
    X(owner, pointer, end) /* of x */            \
    X(owner, pointer, y)                         \
    X(owner, u32, count) /* windows */           \
    X(owner, u32, run)   /* bytes */             \
    X(owner, u32, size, [PERMUTE_MODES_MAX])     \
    X(owner, u32, factor, [PERMUTE_MODES_MAX])   \
    X(owner, u32, shift, [PERMUTE_MODES_MAX])    \
    X(owner, i64, stride_x, [PERMUTE_MODES_MAX]) \
    X(owner, i64, stride_y, [PERMUTE_MODES_MAX])

KERNEL_PARAMS(transpose, TRANSPOSE_PARAMS);
KERNEL_PARAMS(permute_gather, PERMUTE_GATHER_PARAMS);
KERNEL_PARAMS(permute_boxes, PERMUTE_BOXES_PARAMS);
KERNEL_PARAMS(permute_windows, PERMUTE_WINDOWS_PARAMS);

enum {
    TRANSPOSE_NAIVE_COLS = 32, // columns of x of a CTA: a warp reads neighbours
    TRANSPOSE_TILED_ROWS = 8,  // rows of a tile that the threads of a CTA move at once
    TRANSPOSE_BOX_BYTES = 128, // of a row of a box: the widest swizzle of TMA
    PERMUTE_CHUNK_BYTES = 16,  // of a copy of sm80, narrow and boxes to shared memory
};

/* Columns of a box of the sm90 kernel. */
static inline int transpose_box_columns(int bytes)
{
    return TRANSPOSE_BOX_BYTES / bytes;
}

/* The kernels sm80 and narrow write words of 4 bytes, or single elements that are longer. */
static inline int transpose_word_bytes(int bytes)
{
    return bytes < 4 ? 4 : bytes;
}

/* The tile of the sm80 kernel in shared memory: `period` groups of rows, each row of so many chunks. */
typedef struct transpose_sm80_tile {
    int rows, period, chunks;
} transpose_sm80_tile;

transpose_sm80_tile transpose_sm80_tile_of(const transpose_sm80_config *config);

/* Shared memory of a CTA. */
int64_t transpose_sm80_smem_bytes(const transpose_sm80_config *config);
int64_t transpose_sm90_smem_bytes(const transpose_sm90_config *config);
int64_t transpose_narrow_smem_bytes(const transpose_narrow_config *config);

/*
 * Do so many CTAs come while those of a kernel like this one still run? They ask L2 for x then. 1x32x235x112 f32, 2,0,3,1: 3.43 us, so 2.85;
 * 128x31x24x24 f32 to NHWC, of which a third would come later, 7.50 and 7.68.
 */
static inline bool permute_pays_prefetch(int64_t ctas, int threads, const ckl_device_info *device)
{
    enum { RESIDENT_THREADS = 2048, KERNELS = 2 };
    return KERNELS * threads * ctas <= RESIDENT_THREADS * (int64_t)device->sm_count;
}

/* Accesses that a warp needs for a word at each of these places (bytes), by their bank conflicts. */
enum { PERMUTE_WARP = 32 };
int permute_bank_turns(const int64_t places[PERMUTE_WARP]);

/* transpose_cost.c: implementation.cost of the kernels that transpose matrices. */
plan_cost transpose_naive_cost(const void *problem, const ckl_device_info *device, const void *config);
plan_cost transpose_tiled_cost(const void *problem, const ckl_device_info *device, const void *config);
plan_cost transpose_sm90_cost(const void *problem, const ckl_device_info *device, const void *config);
plan_cost transpose_sm80_cost(const void *problem, const ckl_device_info *device, const void *config);
plan_cost transpose_narrow_cost(const void *problem, const ckl_device_info *device, const void *config);

/* The sm80 kernel that an sm90 plan launches where pointers are not aligned to 16 bytes. */
transpose_sm80_config transpose_sm90_unaligned(const transpose_sm90_config *config);

/* The kernels. */
void transpose_naive(const void *config, int kernel);
void transpose_tiled(const void *config, int kernel);
void transpose_sm80(const void *config, int kernel);
void transpose_sm90(const void *config, int kernel); // 0: pointers aligned to 16 bytes; 1: others, as sm80
void transpose_narrow(const void *config, int kernel);
void permute_boxes(const void *config, int kernel); // 0: all runs of y begin with a word; 1: or anywhere
void permute_windows(const void *config, int kernel);
void permute_gather(const void *config, int kernel); // 0: pointers aligned to `bytes`; 1: to `element`

/* All implementations of both operators, in order of preference. */
extern const implementation transpose_sm90_implementation, transpose_narrow_implementation,
    transpose_sm80_implementation, permute_windows_implementation, permute_boxes_implementation,
    permute_gather_implementation, transpose_tiled_implementation, transpose_naive_implementation;
#define PERMUTE_IMPLEMENTATIONS                                                                             \
    {                                                                                                       \
        &transpose_sm90_implementation, &transpose_narrow_implementation, &transpose_sm80_implementation,   \
            &permute_windows_implementation, &permute_boxes_implementation, &permute_gather_implementation, \
            &transpose_tiled_implementation, &transpose_naive_implementation, NULL                          \
    }

/* Of all kernels that are chosen by cost: a launch that waits for no sums. Alike, so that it does not decide. */
#define PERMUTE_KERNEL ((memory_kernel){ .us = -0.4 })
