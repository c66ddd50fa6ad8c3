/* transpose_plan.h - what the kernels that transpose matrices share on the host: tiles, limits, launches, costs. */
#pragma once

#include "operators/permute/transpose_tile.h"

/* Tiles of all matrices, one a CTA. */
int64_t transpose_tiles(const permutation *p, int tile_r, int tile_c);

/* Launches a CTA for each tile. */
ckl_status transpose_launch(const ckl_plan *plan, int kernel, const permute_pointers *a, int tile_r, int tile_c,
                            ckl_stream stream);

/* Limits. `who` is the implementation. */

/* Is there a matrix, and would tiles be well filled? Both sides should have so many bytes. */
enum { TRANSPOSE_SIDE_BYTES_MIN = 32 };
ckl_status transpose_check_sides(const permutation *p, const char *who, int side_bytes_min);

/* Is there a matrix, as the config says, of numbers that fit? */
ckl_status transpose_check_tiles(const permutation *p, const char *who, int bytes, int outer, int tile_r, int tile_c);

/* Do so many bytes fit shared memory? */
ckl_status transpose_check_memory(const permutation *p, const char *who, int64_t smem, const ckl_device_info *device);

ckl_status transpose_check_power(const permutation *p, const char *who, const char *name, int value, int low, int high);

/* Choices */

/*
 * Should neighbouring CTAs go along the rows of x? Where a row is a few tiles, the tiles in flight have whole rows of
 * x, and long runs of y as well. Where L2 fetches bytes of x for two columns of tiles (it fetches 256 at a time), but
 * has lost them when CTAs come back from the end of the first column, they must: 1024x256x536 f16, 2,0,1, read x 2.5
 * times.
 */
bool transpose_goes_across(const permutation *p, int tile_c, const ckl_device_info *device);

/* Tiles as CTAs take them, and what they cost. */
enum { TRANSPOSE_EARLIER = 1000 };             // cycles that a tile which was prefetched comes earlier
static const double TRANSPOSE_TILE_WAIT = 0.3; // that a CTA of sm80 or narrow waits for each byte of its tile

typedef struct transpose_tiling {
    int rows, cols, threads;
    int64_t smem_bytes;
    double rate;     // cost of a byte of memory; 1 in a kernel that streams
    double wait;     // cycles that a CTA waits beside those of every kernel
    double of_bytes; // work of 16 bytes of a tile, in elements of a kernel that streams
    double of_tile;  // and of a thread beside that of its bytes
    bool cut_x;      // runs of x are cut at tiles only, not at sectors; of y likewise
    bool cut_y;
    int turns; // of shared memory for the word of each thread, all of its elements together
} transpose_tiling;

/* Sectors of both sides, and tiles by how full they are. */
plan_cost transpose_tiling_cost(const permutation *p, const transpose_tiling *t, const ckl_device_info *device);
