/* transpose_tiled.c - the teaching kernels: naive, one element a thread, and tiled, through a tile in shared memory. */
#include "operators/permute/transpose_plan.h"

FIELD_STRUCT(transpose_naive_config, TRANSPOSE_FIELDS); // tiled's begins so, too

#define TILED_CONFIG(X, owner) \
    TRANSPOSE_FIELDS(X, owner) \
    X(owner, int, tile, "32", "16 32", "rows and columns of a tile")

FIELD_STRUCT(transpose_tiled_config, TILED_CONFIG);

enum {
    NAIVE_COLS = 32, // columns of x of a CTA: a warp reads neighbours
    NAIVE_ROWS = PERMUTE_THREADS / NAIVE_COLS,
    TILED_ROWS = 8, // rows of a tile that the threads of a CTA move at once
};

/* What both kernels have: the tile, and the matrices by its coordinates. */
typedef struct matrices {
    tensor gX, gY; // (R,C)
    tensor cTile;  // (TILE_R,TILE_C) -> coordinates in the matrix
    int_tuple limits;
} matrices;

static matrices describe_matrices(int outer, ckl_dtype type, int tile_r, int tile_c)
{
    transpose_values p = params_of(transpose);
    transpose_tile t = transpose_tile_by_address(&p, outer, tile_r, tile_c, false);
    const val bytes = ir_int(CKL_I64, dtype_bytes(type)), ldx = div(t.ldx, bytes), ldy = div(t.ldy, bytes);
    const int_tuple sides = shape(t.rows, t.cols);
    tensor cTile = coordinates_from(identity_tensor(shape(tile_r, tile_c)), 0, t.row);
    return (matrices){ .gX = gmem_tensor(t.x, type, make_layout(sides, stride(ldx, 1))),
                       .gY = gmem_tensor(t.y, type, make_layout(sides, stride(1, ldy))),
                       .cTile = coordinates_from(cTile, 1, t.col),
                       .limits = sides };
}

/* Reads neighbours, and writes elements as far apart as rows of y are. */
static void transpose_naive(const void *config, int kernel)
{
    const transpose_naive_config *cfg = config;
    const ckl_dtype type = transpose_type(cfg->bytes);
    (void)kernel;
    launch_bounds(PERMUTE_THREADS, 0);
    matrices m = describe_matrices(cfg->outer, type, NAIVE_ROWS, NAIVE_COLS);
    layout threads = compact_right(shape(NAIVE_ROWS, NAIVE_COLS));
    tiled_copy each = make_tiled_copy(universal_copy(type, 1), type, threads, compact(shape(1, 1)));
    tensor tXcX = partition_S(&each, m.cTile, thread()), rX = fragment_like(tXcX, type); // (1,1,1)
    copy_if(&each, tXcX, m.limits, tensor_at_coordinates(m.gX, tXcX), rX, 0);
    copy_if(&each, tXcX, m.limits, rX, tensor_at_coordinates(m.gY, tXcX), 0);
}

/*
 * Elements between rows of the tile: an odd number of words, so that the threads that read a column find it in
 * different banks. With tiles of 16 a warp writes two rows, which meet in one bank: one reason why 32 is the better
 * size.
 */
static int padded(const transpose_tiled_config *cfg)
{
    return cfg->tile + (cfg->bytes < 4 ? 4 / cfg->bytes : 1);
}

/* Both sides of global memory are accessed by neighbours. */
static void transpose_tiled(const void *config, int kernel)
{
    const transpose_tiled_config *cfg = config;
    const ckl_dtype type = transpose_type(cfg->bytes);
    const int across = cfg->tile, down = TILED_ROWS;
    (void)kernel;
    launch_bounds(across * down, 0);
    matrices m = describe_matrices(cfg->outer, type, cfg->tile, cfg->tile);
    layout one = compact(shape(1, 1));
    tiled_copy by_rows = make_tiled_copy(universal_copy(type, 1), type, compact_right(shape(down, across)), one);
    tiled_copy by_columns = make_tiled_copy(universal_copy(type, 1), type, compact(shape(across, down)), one);
    tensor sX =
        smem_tensor("tile", type, make_layout(shape(cfg->tile, cfg->tile), stride(padded(cfg), 1)), 16); // (R,C)

    tensor tXcX = partition_S(&by_rows, m.cTile, thread()), rX = fragment_like(tXcX, type); // (1,R,1)
    copy_if(&by_rows, tXcX, m.limits, tensor_at_coordinates(m.gX, tXcX), rX, 0);
    copy_tiled(&by_rows, rX, partition_D(&by_rows, sX, thread()));
    cta_sync();
    tensor tYcY = partition_S(&by_columns, m.cTile, thread()), rY = fragment_like(tYcY, type); // (1,1,C)
    copy_tiled(&by_columns, partition_S(&by_columns, sX, thread()), rY);
    copy_if(&by_columns, tYcY, m.limits, rY, tensor_at_coordinates(m.gY, tYcY), 0);
}

/* Choice, limits and launch */

/* Of either. */
static ckl_status choose(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_naive_config *c = config;
    (void)device;
    *c = (transpose_naive_config){ .bytes = p->bytes, .outer = p->matrix.outer_count };
    return CKL_OK;
}

static ckl_status admit_naive(const void *problem, const ckl_device_info *device, const void *config)
{
    const transpose_naive_config *c = config;
    (void)device;
    return transpose_check_tiles(problem, "naive", c->bytes, c->outer, NAIVE_ROWS, NAIVE_COLS);
}

/* Each thread of a warp writes a sector of its own. */
static plan_cost cost_naive(const void *problem, const ckl_device_info *device, const void *config)
{
    (void)config;
    const transpose_tiling t = {
        .rows = NAIVE_ROWS, .cols = NAIVE_COLS, .threads = PERMUTE_THREADS, .rate = 3.5, .of_bytes = 100
    };
    return transpose_tiling_cost(problem, &t, device);
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    return transpose_launch(plan, 0, args, NAIVE_ROWS, NAIVE_COLS, stream);
}

static const field naive_fields[] = { TRANSPOSE_FIELDS(FIELD_ROW, transpose_naive_config) };

const implementation transpose_naive_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(transpose, naive),
    .choose = choose,
    .cost = cost_naive,
    .summary = "one thread an element: reads whole lines, writes single elements",
    .params = &transpose_param_list,
};

static ckl_status admit_tiled(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_tiled_config *c = config;
    (void)device;
    if (c->tile != 16 && c->tile != 32)
        FAIL(CKL_INVALID, "%s tiled: tile=%d is neither 16 nor 32", p->op, c->tile);
    return transpose_check_tiles(p, "tiled", c->bytes, c->outer, c->tile, c->tile);
}

static plan_cost cost_tiled(const void *problem, const ckl_device_info *device, const void *config)
{
    const transpose_tiled_config *c = config;
    const transpose_tiling t = {
        .rows = c->tile, .cols = c->tile, .threads = c->tile * TILED_ROWS, .rate = 1, .of_bytes = 70
    };
    return transpose_tiling_cost(problem, &t, device);
}

static ckl_status launch_tiled(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_tiled_config *c = plan->config;
    return transpose_launch(plan, 0, args, c->tile, c->tile, stream);
}

static const field tiled_fields[] = { TILED_CONFIG(FIELD_ROW, transpose_tiled_config) };

const implementation transpose_tiled_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(transpose, tiled),
    .choose = choose,
    .cost = cost_tiled,
    .summary = "padded tiles in shared memory, element by element",
    .params = &transpose_param_list,
};
