/* gemm_sm90_config.h - the config of the Hopper kernel, its parameters, and what it and its host side derive alike. */
#pragma once

#include "operators/gemm/gemm_repitch.h"

#define GEMM_SM90_CONFIG(X, owner)                                                                                  \
    X(owner, int, tile_m, "128", "64 128 192 256", "rows of D of a CTA")                                            \
    X(owner, int, tile_n, "256", "16 32 48 64 96 128 160 192 224 256", "columns of D of a CTA")                     \
    X(owner, int, stages, "4", "3 4 5 6 7 8 10 12", "K tiles of 64 in shared memory")                               \
    X(owner, int, consumers, "2", "1 2 3", "warpgroups that multiply")                                              \
    X(owner, bool, pingpong, "0", "0 1", "consumers take tiles in turn instead of sharing one")                     \
    X(owner, int, cluster_m, "2", "1 2", "CTAs of a cluster along M; they share B by multicast")                    \
    X(owner, int, cluster_n, "1", "1 2", "CTAs of a cluster along N; they share A by multicast")                    \
    X(owner, int, group, "8", "4 8 16", "rows of cluster tiles in a band of the raster")                            \
    X(owner, int, buffers, "2", "2 4", "staging buffers of D of each consumer")                                     \
    X(owner, int, ctas, "1", "1 2", "CTAs that an SM holds at once")                                                \
    X(owner, int, ragged, "0", "0 1 2",                                                                             \
      "1: rows of D end inside 16 bytes, which TMA would overwrite; 2: they start there")                           \
    X(owner, int, split, "1", "1 2 3 4 6 8", "CTAs of a cluster that share out K, and add in a fixed order")        \
    X(owner, bool, persistent, "1", "0 1", "a CTA takes tiles until there are none; 0: one alone")                  \
    X(owner, bool, swap, "0", "0 1", "tiles of D^T = B*A^T: rows of B are those of the tile")                       \
    X(owner, int, batched, "0", "0 1 2 3 4", "1: several products; 2: slices of K; 3: groups of K; 4: by pointers") \
    X(owner, int, groups, "0", "0 32 128 512 2048",                                                                 \
      "groups of rows that shared memory has room for; 0: there are none")                                          \
    X(owner, bool, alone, "0", "0 1", "the next launch begins when this one has ended, not beside its last CTAs")   \
    X(owner, bool, stays, "0", "0 1", "a CTA takes neighbouring tiles of a row, whose A stays in the stages")       \
    X(owner, bool, b_stays, "0", "0 1", "B stays there, of which each tile has all")                                \
    X(owner, bool, sheared, "0", "0 1", "every other row of a tile of D begins half a sector early")                \
    X(owner, bool, row_vectors, "0", "0 1",                                                                         \
      "rows of C and D in f32 are copied by threads, 16 bytes each, with ragged=2")

GEMM_CONFIG(gemm_sm90_config, GEMM_SM90_CONFIG);

enum {
    GEMM_SHEAR = 8,               // columns of 16 bits: half a sector
    GEMM_EASY_ACCUMULATORS = 128, // of a thread; with more, the epilogue has few registers left
    GEMM_ALL_RAGGED = 2,          // config.ragged: rows of C and D start anywhere
    GEMM_SLICES_OF_K = 2,         // config.batched: slices of p.k elements of one A and one B
    GEMM_GROUPS_OF_K = 3,         // the same by offsets
    GEMM_BY_POINTERS = 4          // A and B, like C, D and X, are named by arrays of pointers
};

/*
 * A tensor map of all memory, for matrices named by arrays of pointers: beyond rows and columns it has a mode of
 * 16-byte steps and one of 4-GiB steps. It begins at 16, as no map can begin at 0. NOTE: an H200 takes such maps,
 * although their modes overlap (gemm_sm90_plan.c).
 */
enum { GEMM_MAP_BASE = 16, GEMM_MAP_UNIT = 16, GEMM_MAP_NEAR_BITS = 28, GEMM_MAP_FAR_BITS = 17, GEMM_MAP_RANK = 4 };

/* config.batched of a problem. */
int gemm_sm90_batched_of(const ckl_gemm_desc *desc);

/* Is matrix 'a' ... 'x' named by an array of pointers? Not copies of A and B, which lie a stride apart. */
static inline bool gemm_by_pointers(const ckl_gemm_desc *d, char matrix)
{
    return d->pointers && (matrix > 'b' || !d->stride_a);
}

/* Vectors of an epilogue: numbers for the rows or for the columns of D. */
enum { GEMM_BIAS, GEMM_SCALE_OF_A, GEMM_SCALE_OF_B, GEMM_WEIGHT_OF_ROW, GEMM_VECTORS };

/* Does a vector run along the rows of a tile, of D^T with swap=1? */
bool gemm_sm90_along_rows(const gemm_sm90_config *config, int vector);

/*
 * Scales of blocks in a stage: a box for `lines` rows or columns that have a scale each, or for one square. In global
 * memory a box begins at a multiple of 16 bytes, so the scales may begin inside it; in shared memory at a multiple of
 * 128.
 */
typedef struct gemm_scale_boxes {
    int boxes, lines; // 0 boxes: there are no scales of blocks
    int length, slot; // elements of a box, and from one to the next
} gemm_scale_boxes;

enum { GEMM_SCALE_UNIT = 4 }; // elements of 16 bytes

/* What the kernel and its host side derive alike from a config. */
typedef struct gemm_sm90_shape {
    int tile_k;             // elements of K of one stage
    int consumer_rows;      // of a tile of one consumer
    int tile_n;             // columns of D that a tile has: half of B's if they are gated, fewer if sheared
    int shear;              // columns that rows of D begin early in turn, or 0
    int columns, finishers; // of a tile that a CTA finishes; CTAs of a split that finish any
    int loaded_n;           // rows of B in a stage: whole spans if it is not K-major, the last perhaps used in part
    int box_a, box_b;       // rows of A and B that one CTA loads of a tile
    bool within[2];         // do tiles along M, and along N, all end with D, the last one over the one before?
    int cluster, sharers;   // CTAs; those that share operands
    int threads;
    int d_rows, d_cols, d_swizzle; // of one staging buffer of D
    int subtile;                   // columns of a tile in it
    int row_cols;                  // of D that are stored by elements at once: a buffer's, or all of a tile
    int vectors[GEMM_VECTORS];     // elements that a consumer needs of each; 0: the epilogue has none
    gemm_scale_boxes scales[2];    // of blocks, for a tile's rows and its columns
    int c_arrivals, x_arrivals; // barriers of a consumer for C and for X: one a staging buffer, of boxes loaded ahead
    int64_t partial_bytes;      // of the partials that a CTA sends to one that finishes, per consumer
    int64_t stage_bytes, smem_bytes;
} gemm_sm90_shape;

/* May tiles be sheared: do rows of a plain D of 16 bits begin at sectors and inside them in turn? */
bool gemm_sm90_may_shear(const ckl_gemm_desc *d);

gemm_sm90_shape gemm_sm90_shape_of(const gemm_sm90_config *config);

/* What tile_n is a multiple of. */
int gemm_sm90_column_step(const gemm_sm90_config *config);

/* Are boxes of C, or of X where there is no C, loaded into the staging buffers ahead? */
bool gemm_sm90_loads_ahead(const gemm_sm90_config *config);

/* Bytes of shared memory that a CTA may have where an SM holds config->ctas of them. */
int64_t gemm_sm90_shared_memory(const gemm_sm90_config *config, const ckl_device_info *device);

/*
 * As many stages as fit beside two staging buffers of D; four in batches of few steps along K, unless that leaves few
 * stages.
 */
void gemm_sm90_fit_memory(gemm_sm90_config *config, int64_t k_steps, const ckl_device_info *device);

/*
 * Columns of a tile of D^T: all rows of D, or half of them, of a wide tile also a smaller part. 0, which is refused,
 * where they are too many, or too few for a wide tile.
 */
int gemm_sm90_swapped_columns(int64_t rows, bool wide);

/* Tiles along a deep K whose operands begin inside lines of memory share them by two, where tiles are even. */
void gemm_sm90_share_operands(const ckl_gemm_desc *d, gemm_sm90_config *config, const ckl_device_info *device);

/* The clusters of so many CTAs, one an SM, that a device holds at once. */
int64_t gemm_sm90_clusters(int64_t sm_count, int cluster);

/* Tiles of a problem, as clusters have them. */
int64_t gemm_sm90_tiles(const ckl_gemm_desc *desc, const gemm_sm90_config *config);

/* The configs that are considered, and what one costs (plan.h). */
bool gemm_sm90_candidate(const void *desc, const ckl_device_info *device, int i, void *config);
plan_cost gemm_sm90_cost(const void *desc, const ckl_device_info *device, const void *config);

/* Microseconds that a second kernel takes to add sums of `bytes` bytes. */
double gemm_sm90_sum_us(double bytes);

/* Rows of a tile that a consumer sums apart where it sums twice. */
int gemm_sm90_partial_rows(const gemm_sm90_config *config);

/* Accumulators of a consumer thread; and of one of those sums. */
int gemm_sm90_accumulators(const gemm_sm90_config *config);

/*
 * More than these would spill: the fewer, the more else an epilogue holds in registers. Beside 192 it may have C, a
 * bias or scales of rows.
 */
int gemm_sm90_accumulators_most(const gemm_sm90_config *config);

/*
 * Partials of K tiles that a consumer holds: 2 where registers allow, so that one is added while the next is computed;
 * 0: none.
 */
int gemm_sm90_parts(const gemm_sm90_config *config);

/*
 * Parameters; a, c, d and their pitches are for what TMA cannot do. A, B, m and n are the tile's: with swap=1 the
 * problem's B, A, n and m.
 */
#define GEMM_SM90_PARAMS(X, owner) \
    X(owner, tensor, A)            \
    X(owner, tensor, B)            \
    X(owner, tensor, D)            \
    X(owner, tensor, C)            \
    X(owner, u32, m)               \
    X(owner, u32, n)               \
    X(owner, u32, k)               \
    X(owner, tensor, PRE)          \
    GEMM_EPILOGUE_PARAMS(X, owner) \
    X(owner, pointer, a)           \
    X(owner, i64, lda)             \
    X(owner, pointer, c)           \
    X(owner, i64, ldc)             \
    X(owner, i64, c_batch)         \
    X(owner, pointer, d)           \
    X(owner, i64, ldd)             \
    X(owner, i64, d_batch)         \
    X(owner, u32, batch)           \
    X(owner, pointer, offsets)     \
    X(owner, u32, groups)          \
    X(owner, u32, alone)           \
    EARLY_PARAMS(X, owner, 2)

KERNEL_PARAMS(gemm_sm90, GEMM_SM90_PARAMS);

/* With GEMM_BY_POINTERS: B's array; A's is `a`. */
#define GEMM_POINTERS_PARAMS(X, owner) X(owner, pointer, b)

KERNEL_PARAMS(gemm_pointers, GEMM_POINTERS_PARAMS);

void gemm_sm90(const void *config, int kernel);

/* With scales of blocks: those of the tile's rows and columns, each list as one row. */
#define GEMM_SCALES_PARAMS(X, owner) \
    X(owner, tensor, SCALES_M)       \
    X(owner, tensor, SCALES_N)

KERNEL_PARAMS(gemm_scales, GEMM_SCALES_PARAMS);

/* Of all that runs this kernel: those of copies that come first, too. */
#define GEMM_PITCHED_PARAMS(X, owner) \
    GEMM_REPITCH_PARAMS(X, owner)     \
    GEMM_SM90_PARAMS(X, owner)        \
    GEMM_POINTERS_PARAMS(X, owner)    \
    GEMM_SCALES_PARAMS(X, owner)

KERNEL_PARAMS(gemm_pitched, GEMM_PITCHED_PARAMS);
_Static_assert(offsetof(gemm_pitched_params, from) == offsetof(gemm_repitch_params, from),
               "begins with those of copies");
