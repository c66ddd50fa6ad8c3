/*
 * gemm_sm90.h - what the files of the Hopper kernel share: tiles, producer, mainloop, split of K, epilogue.
 *
 * The kernel multiplies A (M,K) by B (N,K) in tiles of (M,N). These are the problem's A and B or, with swap=1, its B
 * and A: then a tile is one of D^T, which only the epilogue knows.
 */
#pragma once

#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"
#include "operators/gemm/gemm_sm90_config.h"

enum { WARPGROUP = 128 };

/* Named barriers of 128 or 256 threads. */
enum {
    BARRIER_CONSUMER = 1, // + consumer: its 128 threads round the staging buffers
    BARRIER_ORDER = 4,    // ping-pong, + consumer: it may begin its mainloop; it waits, the other one arrives
    BARRIER_CLEARED = 4,  // groups of K, without ping-pong: all consumers have cleared what is not the group's
};

/* Where a tile begins, in elements of A*B, and its product of the batch, or group. */
typedef struct tile_place {
    val number; // among all tiles
    val row, col, batch;
    val end;              // of groups: the first row of D that is not the group's
    val k_first, k_count; // of groups of K: its first element of K, and how many
} tile_place;

/* Everything the roles share. */
typedef struct sm90_kernel {
    const gemm_sm90_config *cfg;
    gemm_epilogue epilogue;
    gemm_sm90_shape size;
    gemm_sm90_values p;
    val array_of_B; // of pointers
    tma_copy tmaA, tmaB, tmaC, tmaD, tmaX, tmaScales[2];
    tensor sA, sB; // (BM,BK,STAGES), (BN,BK,STAGES)
    bool a_k_major, b_k_major;
    tensor sD;                     // (ROWS,COLS,BUFFERS,CONSUMERS)
    tensor sVectors[GEMM_VECTORS]; // (ELEMENTS,CONSUMERS) f32
    tensor sScales[2];             // (LENGTH,BOXES,STAGES) f32, of rows and of columns
    tensor sPartials;              // (2,THREADS,PAIRS,SPLIT-1,CONSUMERS) f32
    pipeline ring;
    int64_t c_barriers, x_barriers; // of each consumer: a box of C has arrived; one of X has
    int64_t partials_arrived;       // of each consumer: the partials of all CTAs have arrived,
    int64_t partials_free;          // and the next may be sent
    val k_first, k_tiles;           // K tiles of this CTA
    tensor sFirst, sTiles;          // (GROUPS+1) i32 of groups: their first rows; the tiles along D's rows before them
    tile_schedule tiles;            // of one product
    val count;                      // of all tiles; or where this cluster's end
    val first_tile, clusters;       // its first one, and from one to the next
    val rank_m, rank_n, rank_k;     // of this CTA in its cluster
} sm90_kernel;

/* One consumer's view: its thread, its accumulators, and what it reads and writes. */
typedef struct consumer_role {
    val index;          // 0..consumers-1
    val tid;            // 0..127
    val barrier;        // the named barrier of its threads
    val first_thread;   // predicate: the thread that issues its TMA
    val releases, peer; // predicate: this thread releases stages; the CTA whose empty barriers it signals
    tiled_mma mma;
    tensor acc;         // (MMA,MMA_M,MMA_N)
    tensor partials[2]; // (MMA,MMA_M,MMA_N) of 64 rows of one K tile, and of the next, where they are summed in f32
    tensor tCrA, tCrB;  // (MMA_M,MMA_K,STAGES), (MMA_N,MMA_K,STAGES)
    tensor sD;          // (ROWS,COLS,BUFFERS)
    gemm_scalars scalars;
    tensor sVectors[GEMM_VECTORS]; // (ELEMENTS)
    tensor sPartials;              // (2,THREADS,PAIRS,SPLIT-1)
    val c_parity;                  // of its barriers of C and X, where boxes are not loaded ahead
    pipeline_state buffer;         // of the next box, where they are loaded ahead
    val tile_step;                 // from one of its tiles to the next
    val partials_parity;           // of its barrier of partials
} consumer_role;

enum { MN_SPAN = GEMM_TILE_BYTES / 2 }; // elements of 16 bits of M or N in one box of an operand that is not K-major

/* gemm_sm90_tiles.c: parameters, shared memory, and where a tile lies. */
ckl_dtype gemm_sm90_type(const gemm_sm90_config *c, char operand); // 'a' or 'b' of the tile
int gemm_sm90_modes(const gemm_sm90_config *c, char operand); // of its map beyond rows and columns: of several matrices
void gemm_sm90_parameters(sm90_kernel *k);
void gemm_sm90_memory(sm90_kernel *k);

/* A tile with rows and columns exchanged. This CTA's of a cluster's tile; the share of it that a consumer finishes. */
tensor gemm_sm90_transposed(tensor t);
tile_place gemm_sm90_tile(const sm90_kernel *k, val tile);
tile_place gemm_sm90_own_tile(const sm90_kernel *k, const consumer_role *c, val tile);
val gemm_sm90_k_tiles(const sm90_kernel *k, const tile_place *at); // that this CTA loads of a tile

/* A matrix of the batch: its coordinates in the further modes of a map and, where an array names it, its address. */
typedef struct outer_coordinates {
    int count;
    val at[2];
} outer_coordinates;
outer_coordinates gemm_sm90_outer(const sm90_kernel *k, int modes, val array, val number);
val gemm_sm90_pointer(const sm90_kernel *k, val array, val number);

/*
 * gemm_sm90_groups.c: rows of D in groups. scan: for all threads, once the kernel before has ended. find_part_of_k: of
 * groups of K, that of number at->batch. clear_others: clears what a stage has of the next group, for all consumers.
 * group_rows: tiles along the rows of D, of all groups. find_group: that of a tile, whose number becomes that in it.
 */
void gemm_sm90_scan_groups(sm90_kernel *k);
void gemm_sm90_find_part_of_k(const sm90_kernel *k, tile_place *at);
void gemm_sm90_clear_others(const sm90_kernel *k, const tile_place *at, val k_tile, val stage);
val gemm_sm90_group_rows(const sm90_kernel *k);
val gemm_sm90_find_group(const sm90_kernel *k, val *tile);

/* gemm_sm90_producer.c: the warpgroup that loads. */
void gemm_sm90_producer(const sm90_kernel *k);

/* gemm_sm90_mainloop.c: acc = A tile * B tile over the K tiles of this CTA, and the order of ping-pong. */
tiled_mma gemm_sm90_mma(const gemm_sm90_config *config, int n); // one warpgroup's wgmma over 64 x n
void gemm_sm90_mainloop(const sm90_kernel *k, const consumer_role *c, const tile_place *at, pipeline_state *stage);
void gemm_sm90_order_arrive(const sm90_kernel *k, const consumer_role *c);

/*
 * gemm_sm90_scales.c: scales of blocks. parameters: their maps. load: those of a stage, for the producer thread. begin:
 * registers. take: those of a K tile, before its stage is released. add: acc += partial * scales, for a block of 64
 * rows of the consumer.
 */
typedef struct block_scales {
    tensor rScales[2]; // (SCALES) of rows and of columns: one for each that a thread has, or for each square
} block_scales;
void gemm_sm90_scale_parameters(sm90_kernel *k);
int gemm_sm90_scale_bytes(const sm90_kernel *k); // that TMA brings to a stage
void gemm_sm90_load_scales(const sm90_kernel *k, const pipeline_state *to, const tile_place *tile, val k_tile);
block_scales gemm_sm90_begin_scales(const sm90_kernel *k);
void gemm_sm90_take_scales(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val k_tile, val stage,
                           const block_scales *scales);
void gemm_sm90_add_scaled(const sm90_kernel *k, const consumer_role *c, tensor partial, int block,
                          const block_scales *scales);

/*
 * gemm_sm90_split.c: the partials of the CTAs of a cluster. init: for the thread that makes the barriers. add: the
 * accumulators become sums over all of K in the CTAs that finish the tile; in the others they are lost. leave: before
 * the end.
 */
void gemm_sm90_parts_init(const sm90_kernel *k);
void gemm_sm90_add_split(const sm90_kernel *k, const consumer_role *c);
void gemm_sm90_parts_leave(const sm90_kernel *k, const consumer_role *c);

/* C, D or X: matrices of one type and size. */
typedef struct output_matrix {
    const tma_copy *tma;
    val address, ld, batch_stride;
    int64_t barriers; // of C and X
} output_matrix;

/* What one staging buffer holds of the consumer's rows and columns. */
typedef struct subtile {
    int rows, cols; // where it starts in them
    tile_place at;  // where it starts in D
    tiled_mma mma;  // for its columns
    tensor acc, up; // (MMA,1,1); of gated products up is the other half of the columns
    tensor sD;      // (ROWS,COLS), as D lies
    tensor sAcc;    // the same, in the order of the accumulators
} subtile;

/* Rows and columns of D; the first row that is not the tile's to store. */
val gemm_sm90_rows_of_D(const sm90_kernel *k);
val gemm_sm90_cols_of_D(const sm90_kernel *k);
val gemm_sm90_last_row(const sm90_kernel *k, const subtile *h);

/*
 * gemm_sm90_ahead.c: boxes of C or X are loaded into the staging buffers while others are finished, across the ends of
 * tiles. begin: before the first tile. take: waits for the next box, and gives its buffer. next: after the store of box
 * i of a tile was issued.
 */
int gemm_sm90_boxes(const sm90_kernel *k); // of a consumer's tile
void gemm_sm90_place_box(const sm90_kernel *k, const tile_place *tile, int i, subtile *box);
output_matrix gemm_sm90_matrix(const sm90_kernel *k, char name); // 'c', 'd' or 'x'
outer_coordinates gemm_sm90_outer_of(const sm90_kernel *k, const subtile *h, const output_matrix *x);
void gemm_sm90_begin_ahead(const sm90_kernel *k, const consumer_role *c, val first_tile);
void gemm_sm90_take_ahead(const sm90_kernel *k, const consumer_role *c, subtile *box);
void gemm_sm90_next_ahead(const sm90_kernel *k, consumer_role *c, const tile_place *tile, int i);

/*
 * gemm_sm90_elements.c: what TMA cannot copy. copy: a staging buffer, C or X into it or D from it. load_rows: where
 * whole rows of D are stored at once, C comes so, too: 64 rows from a place on are on their way to all of a consumer's
 * buffers, beside the mainloop; cp_async_wait() and a barrier of the consumer end that. store: what a buffer holds, or
 * whole rows with the last of theirs.
 */
typedef enum element_way { ELEMENTS_LOADED, ELEMENTS_STORED, ELEMENTS_BY_CP_ASYNC } element_way;
bool gemm_sm90_loads_rows(const sm90_kernel *k);
void gemm_sm90_copy_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h, const output_matrix *x,
                             element_way way);
void gemm_sm90_load_rows(const sm90_kernel *k, const consumer_role *c, const tile_place *at);
void gemm_sm90_store_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h, const output_matrix *to);

/*
 * gemm_sm90_epilogue.c: stores the consumer's accumulators to D, from a place on; its vectors are loaded before the
 * mainloop.
 */
enum { VECTOR_LOADS = 256 / WARPGROUP }; // elements of a thread
typedef struct epilogue_vectors {
    val loaded[GEMM_VECTORS][VECTOR_LOADS];
} epilogue_vectors;
epilogue_vectors gemm_sm90_load_vectors(const sm90_kernel *k, const consumer_role *c, const tile_place *at);
void gemm_sm90_epilogue(const sm90_kernel *k, consumer_role *c, const tile_place *at, const epilogue_vectors *vectors);
