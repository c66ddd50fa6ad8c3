/* transpose_plans.c - choice, limits and launches of the kernels that transpose matrices. */
#include "base/math.h"
#include "operators/permute/permute_config.h"

/* Tiles */

static int64_t tiles_of(const permute_matrix *m, int tile_r, int tile_c)
{
    int64_t matrices = 1;
    for (int i = 0; i < m->outer_count; i++)
        matrices *= m->outer[i].size;
    return ceil_div(m->rows, tile_r) * ceil_div(m->cols, tile_c) * matrices;
}

/* A tensor map of x or y: rows of `cols` elements, ld apart. */
static param_tensor tensor_of(const void *pointer, int64_t rows, int64_t cols, int64_t ld)
{
    return (param_tensor){ .pointer = pointer, .size = { cols, rows }, .stride = { 1, ld } };
}

/* Distances are in units of 1/unit of an element. */
static transpose_params params_for(const permutation *p, const permute_pointers *a, int unit)
{
    const permute_matrix *m = &p->matrix;
    const divisor side = divisor_of(max_i64(1, min_i64(m->rows, m->cols)));
    transpose_params params = { .tX = tensor_of(a->x, m->rows, m->cols, m->ldx),
                                .tY = tensor_of(a->y, m->cols, m->rows, m->ldy),
                                .rows = (uint32_t)m->rows,
                                .cols = (uint32_t)m->cols,
                                .x = a->x,
                                .ldx = m->ldx * unit,
                                .incx = m->incx * unit,
                                .y = a->y,
                                .ldy = m->ldy * unit,
                                .incy = m->incy * unit,
                                .factor = side.factor,
                                .shift = side.shift };
    for (int i = 0; i < m->outer_count; i++) {
        permute_mode outer = m->outer[i];
        params.size[i] = (uint32_t)outer.size;
        params.stride_x[i] = outer.x * unit;
        params.stride_y[i] = outer.y * unit;
        params.tX.size[2 + i] = params.tY.size[2 + i] = outer.size;
        params.tX.stride[2 + i] = outer.x;
        params.tY.stride[2 + i] = outer.y;
    }
    return params;
}

/* Every CTA takes a tile. */
static ckl_status launch_tiles(const ckl_plan *plan, int kernel, const transpose_params *params, int tile_r, int tile_c,
                               ckl_stream stream)
{
    int64_t tiles = tiles_of(&((const permutation *)plan->desc)->matrix, tile_r, tile_c);
    return plan_launch(plan, kernel, (plan_grid){ .x = tiles }, params, stream);
}

/* Checks; `who` is the implementation */

/* Of both sides of a matrix: tiles of smaller ones would be mostly empty; of boxes of TMA, where gather has squares. */
enum { SIDE_BYTES_MIN = 32, BOX_SIDE_BYTES_MIN = 64 };

/* Would tiles be well filled? */
static ckl_status check_sides(const permutation *p, const char *who, int side_bytes_min)
{
    if (p->has_matrix && min_i64(p->matrix.rows, p->matrix.cols) * p->bytes < side_bytes_min)
        FAIL(CKL_UNSUPPORTED, "%s %s: matrices of %" PRId64 "x%" PRId64 " would leave most of a tile empty", p->op, who,
             p->matrix.rows, p->matrix.cols);
    return CKL_OK;
}

enum { TILE_ELEMENTS_MAX = 1 << 20 }; // whose bytes are numbers of 32 bits

/* Is there a matrix, as the config says, of numbers that fit? */
static ckl_status check_matrix(const permutation *p, const char *who, int bytes, int outer, int tile_r, int tile_c)
{
    const permute_matrix *m = &p->matrix;
    if (!p->has_matrix)
        FAIL(CKL_UNSUPPORTED, "%s %s: there are not two modes, one contiguous in x and the other in y", p->op, who);
    if (bytes != p->bytes || outer != m->outer_count)
        FAIL(CKL_INVALID, "%s %s: bytes=%d outer=%d are not the problem's %d and %d", p->op, who, bytes, outer,
             p->bytes, m->outer_count);
    if (tile_r < 1 || tile_c < 1)
        FAIL(CKL_INVALID, "%s %s: a tile of %dx%d has no elements", p->op, who, tile_r, tile_c);
    if ((int64_t)tile_r * tile_c > TILE_ELEMENTS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s %s: a tile of %dx%d is beyond any shared memory", p->op, who, tile_r, tile_c);
    if (m->rows > INT32_MAX || m->cols > INT32_MAX || tiles_of(m, tile_r, tile_c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s %s: %" PRId64 "x%" PRId64 " is beyond 32-bit numbers of rows, columns and tiles",
             p->op, who, m->rows, m->cols);
    return CKL_OK;
}

static ckl_status check_contiguous(const permutation *p, const char *who)
{
    if (p->matrix.incx != 1 || p->matrix.incy != 1)
        FAIL(CKL_UNSUPPORTED, "%s %s: incx=%" PRId64 " incy=%" PRId64 " are not both 1", p->op, who, p->matrix.incx,
             p->matrix.incy);
    return CKL_OK;
}

static ckl_status check_smem(const permutation *p, const char *who, int64_t need, const ckl_device_info *device)
{
    if (need > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s %s: the tile needs %" PRId64 " bytes of shared memory, %s has %" PRId64, p->op, who,
             need, device->id, device->smem_per_cta_bytes);
    return CKL_OK;
}

static ckl_status check_power(const permutation *p, const char *who, const char *name, int value, int low, int high)
{
    if (!is_power_of_two(value) || value < low || value > high)
        FAIL(CKL_INVALID, "%s %s: %s=%d is not a power of two from %d to %d", p->op, who, name, value, low, high);
    return CKL_OK;
}

/* naive: one thread an element */

static ckl_status choose_naive(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_naive_config *c = config;
    (void)device;
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    return CKL_OK;
}

static ckl_status admit_naive(const void *problem, const ckl_device_info *device, const void *config)
{
    const transpose_naive_config *c = config;
    TRY(permutation_check_threads(problem, "naive", c->threads, 32, device));
    return check_matrix(problem, "naive", c->bytes, c->outer, c->threads / TRANSPOSE_NAIVE_COLS, TRANSPOSE_NAIVE_COLS);
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_naive_config *c = plan->config;
    const transpose_params params = params_for(plan->desc, args, 1);
    return launch_tiles(plan, 0, &params, c->threads / TRANSPOSE_NAIVE_COLS, TRANSPOSE_NAIVE_COLS, stream);
}

static const field naive_fields[] = { TRANSPOSE_NAIVE_CONFIG(FIELD_ROW, transpose_naive_config) };

const implementation transpose_naive_implementation = {
    IMPLEMENTATION_PARTS(transpose, naive),
    .cost = transpose_naive_cost,
    .summary = "one thread an element: reads whole lines, writes single elements",
    .params = &transpose_param_list,
};

/* tiled: padded tiles, element by element */

static ckl_status choose_tiled(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_tiled_config *c = config;
    (void)device;
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    return CKL_OK;
}

static ckl_status admit_tiled(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_tiled_config *c = config;
    (void)device;
    if (c->tile != 16 && c->tile != 32)
        FAIL(CKL_INVALID, "%s tiled: tile=%d is neither 16 nor 32", p->op, c->tile);
    return check_matrix(p, "tiled", c->bytes, c->outer, c->tile, c->tile);
}

static ckl_status launch_tiled(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_tiled_config *c = plan->config;
    const transpose_params params = params_for(plan->desc, args, 1);
    return launch_tiles(plan, 0, &params, c->tile, c->tile, stream);
}

static const field tiled_fields[] = { TRANSPOSE_TILED_CONFIG(FIELD_ROW, transpose_tiled_config) };

const implementation transpose_tiled_implementation = {
    IMPLEMENTATION_PARTS(transpose, tiled),
    .cost = transpose_tiled_cost,
    .summary = "padded tiles in shared memory, element by element; any strides",
    .params = &transpose_param_list,
};

/*
 * Should neighbouring CTAs go along the rows of x? Where a row is a few tiles, the tiles in flight have whole rows of
 * x, and long runs of y as well. Where L2 fetches bytes of x for two columns of tiles (it fetches 256 at a time), but has lost
 * them when CTAs come back from the end of the first column, they must: 1024x256x536 f16, 2,0,1, read x 2.5 times.
 */
static bool goes_across(const permutation *p, int tile_c, const ckl_device_info *device)
{
    enum { TILES_MAX = 8, FETCH_BYTES = 256 }; // 16 lose 6 % (bench/notes/permute.md)
    const permute_matrix *m = &p->matrix;
    const int64_t wide = (int64_t)tile_c * p->bytes;
    const bool few = m->cols <= (int64_t)TILES_MAX * tile_c && m->rows > m->cols;
    const bool fetched_twice = wide % FETCH_BYTES != 0 || m->ldx * p->bytes % FETCH_BYTES != 0;
    return p->has_matrix && (few || (fetched_twice && product_i64(m->rows, 2 * wide) > device->l2_bytes));
}

static bool pays_prefetch(const permutation *p, int tile_r, int tile_c, int threads, const ckl_device_info *device)
{
    return p->has_matrix && permute_pays_prefetch(tiles_of(&p->matrix, tile_r, tile_c), threads, device);
}

/* Candidates are taken where their cost is less. */
static bool is_trusted(const void *config)
{
    (void)config;
    return true;
}

/* sm80: whole words at any alignment */

/* Tiles of 32 KB, wide on the side of x; no larger than the matrix, and smaller where there would be few. */
static void choose_tile(const permutation *p, const ckl_device_info *device, transpose_sm80_config *c)
{
    c->tile_r = p->bytes == 1 ? 256 : p->bytes == 2 ? 128 : 64;
    c->tile_c = p->bytes == 8 ? 64 : 128;
    while (c->tile_r > 32 && c->tile_r / 2 >= p->matrix.rows)
        c->tile_r /= 2;
    if (c->tile_r > 32 && 10 * round_up(p->matrix.rows, c->tile_r / 2) <= 9 * round_up(p->matrix.rows, c->tile_r))
        c->tile_r /= 2; // 577x58471 u8 25.1 us by tiles of 256 rows, 23.8 by 128
    while (c->tile_c > 32 && c->tile_c / 2 >= p->matrix.cols)
        c->tile_c /= 2;
    while (c->tile_c > 32 && p->has_matrix && tiles_of(&p->matrix, c->tile_r, c->tile_c) < device->sm_count)
        c->tile_c /= 2;
}

static ckl_status choose_sm80(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_sm80_config *c = config;
    TRY(check_sides(p, "sm80", SIDE_BYTES_MIN));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    choose_tile(p, device, c);
    c->align = p->matrix.rows > c->tile_r ? 32 : transpose_word_bytes(p->bytes);
    // four lanes would read bytes of one bank
    c->lanes = p->bytes == 1 && p->matrix.ldx % 2 == 0 && c->align == 32 ? 8 : 32;
    c->across = goes_across(p, c->tile_c, device);
    c->ctas_per_sm = p->bytes == 1 ? 4 : 0; // else 70 registers let three in
    c->prefetch = pays_prefetch(p, c->tile_r, c->tile_c, c->threads, device);
    return CKL_OK;
}

/* That tile, and on Hopper, where their cost was measured, those of fewer columns, and by half as many threads. */
static bool candidate_sm80(const void *problem, const ckl_device_info *device, int i, void *config)
{
    enum { COLUMNS = 3, THREADS = 2, COLUMNS_MIN = 32 };
    transpose_sm80_config *c = config;
    if (i >= COLUMNS * THREADS || (i > 0 && !device->has_tma) || choose_sm80(problem, device, config) != CKL_OK)
        return false;
    c->tile_c = (int)max_i64(COLUMNS_MIN, c->tile_c >> i % COLUMNS);
    c->threads >>= i / COLUMNS;
    c->across = goes_across(problem, c->tile_c, device);
    c->prefetch = pays_prefetch(problem, c->tile_r, c->tile_c, c->threads, device);
    return true;
}

static ckl_status admit_sm80(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_sm80_config *c = config;
    TRY(permutation_check_threads(p, "sm80", c->threads, 128, device));
    TRY(check_power(p, "sm80", "bytes", c->bytes, 1, 8));
    TRY(check_power(p, "sm80", "threads", c->threads, 128, device->threads_per_cta_max));
    int word = transpose_word_bytes(c->bytes);
    TRY(check_power(p, "sm80", "align", c->align, word, 128));
    TRY(check_power(p, "sm80", "tile_r", c->tile_r, (int)max_i64(32, c->align / c->bytes), 512));
    TRY(check_power(p, "sm80", "tile_c", c->tile_c, (int)max_i64(c->threads / 32, c->align / c->bytes), 512));
    TRY(check_power(p, "sm80", "lanes", c->lanes, 8, 32));
    if (c->lanes < 32 && (c->bytes > 4 || c->tile_c < c->threads / c->lanes))
        FAIL(CKL_INVALID, "%s sm80: lanes=%d are for words, and tiles of a column for each %d threads", p->op, c->lanes,
             c->lanes);
    if (transpose_sm80_tile_of(c).chunks > c->threads)
        FAIL(CKL_INVALID, "%s sm80: threads=%d do not cover the chunks of a row", p->op, c->threads);
    TRY(check_smem(p, "sm80", transpose_sm80_smem_bytes(c), device));
    TRY(check_matrix(p, "sm80", c->bytes, c->outer, c->tile_r, c->tile_c));
    return check_contiguous(p, "sm80");
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_sm80_config *c = plan->config;
    const transpose_params params = params_for(plan->desc, args, c->bytes);
    return launch_tiles(plan, 0, &params, c->tile_r, c->tile_c, stream);
}

static const field sm80_fields[] = { TRANSPOSE_SM80_CONFIG(FIELD_ROW, transpose_sm80_config) };

const implementation transpose_sm80_implementation = {
    IMPLEMENTATION_PARTS(transpose, sm80),
    .summary = "tiles in shared memory by cp.async, whole words on both sides at any alignment",
    .candidate = candidate_sm80,
    .is_trusted = is_trusted,
    .cost = transpose_sm80_cost,
    .rivals = { &permute_boxes_implementation, &permute_gather_implementation },
    .params = &transpose_param_list,
};

/* sm90: boxes by TMA */

enum { TMA_ALIGNMENT = 16, WORD_BYTES = 4, SIDE_MIN = 32 };

/* Tiles of 16 KB with rows of 128 bytes or more on both sides; small problems get smaller ones to fill the GPU. */
static int choose_box(const permutation *p, const ckl_device_info *device)
{
    int tile = p->bytes == 1 ? 128 : p->bytes == 8 ? 32 : 64;
    if (tile > 32 && p->has_matrix && tiles_of(&p->matrix, tile, tile) < device->sm_count)
        tile /= 2;
    return (int)max_i64(tile, transpose_box_columns(p->bytes));
}

/*
 * Rows of a tile: more where rows of y begin inside a sector, so that fewer of their cuts are inside one, up to 32 KB, of which three CTAs
 * fit an SM. 5144x12288 bf16 takes 77.6 us by 64 rows, 71.9 by 128, 66.8 by 256. Not where much of a taller tile is empty, or tiles are few.
 */
static int choose_height(const permutation *p, const ckl_device_info *device, int tile)
{
    enum { SECTOR_BYTES = 32, TILE_BYTES = 32 << 10, ROWS_MAX = 256, TILES_OF_SM = 8, IDLE = 8 };
    const permute_matrix *m = &p->matrix;
    int rows = tile;
    while (p->has_matrix && m->ldy * p->bytes % SECTOR_BYTES && 2 * rows <= ROWS_MAX &&
           2 * rows * tile * p->bytes <= TILE_BYTES && IDLE * round_up(m->rows, 2 * rows) <= (IDLE + 1) * m->rows &&
           tiles_of(m, 2 * rows, tile) >= TILES_OF_SM * (int64_t)device->sm_count)
        rows *= 2;
    return rows;
}

static ckl_status choose_sm90(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_sm90_config *c = config;
    TRY(check_sides(p, "sm90", p->bytes < WORD_BYTES ? BOX_SIDE_BYTES_MIN : SIDE_BYTES_MIN));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    const int tile = choose_box(p, device), box = (int)max_i64(SIDE_MIN, transpose_box_columns(p->bytes));
    c->tile_r = choose_height(p, device, tile);
    c->tile_c = p->matrix.cols <= box ? box : tile;
    c->across = goes_across(p, c->tile_c, device);
    c->prefetch = pays_prefetch(p, c->tile_r, c->tile_c, c->threads, device);
    return CKL_OK;
}

static ckl_status check_boxes(const permutation *p, const transpose_sm90_config *c)
{
    const int least = (int)max_i64(SIDE_MIN, transpose_box_columns(p->bytes));
    TRY(check_power(p, "sm90", "tile_r", c->tile_r, least, 256));
    TRY(check_power(p, "sm90", "tile_c", c->tile_c, least, 256));
    int blocks = c->tile_r / 32 * (c->tile_c * c->bytes / 16), warps = c->threads / 32;
    if (blocks % warps)
        FAIL(CKL_INVALID, "%s sm90: %d warps do not share the %d blocks of a tile of %dx%d evenly", p->op, warps,
             blocks, c->tile_r, c->tile_c);
    return CKL_OK;
}

static ckl_status check_distance(const permutation *p, const char *name, int64_t elements)
{
    if (elements == 0 || elements * p->bytes % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED, "%s sm90: %s=%" PRId64 " elements of %d bytes are not a positive multiple of 16 bytes",
             p->op, name, elements, p->bytes);
    return CKL_OK;
}

/* Tensor maps want every distance in multiples of 16 bytes, and TMA stores write whole chunks of 16 bytes. */
static ckl_status check_distances(const permutation *p)
{
    static const char *const names[][2] = { { "stride_x", "stride_y" },
                                            { "the second stride_x", "the second stride_y" },
                                            { "the third stride_x", "the third stride_y" } };
    const permute_matrix *m = &p->matrix;
    if (m->rows * p->bytes % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED, "%s sm90: rows of y of %" PRId64 " elements of %d bytes are not whole chunks of 16 bytes",
             p->op, m->rows, p->bytes);
    if (m->rows)
        TRY(check_distance(p, "ldx", m->ldx));
    if (m->cols)
        TRY(check_distance(p, "ldy", m->ldy));
    for (int i = 0; i < m->outer_count; i++) {
        TRY(check_distance(p, names[i][0], m->outer[i].x));
        TRY(check_distance(p, names[i][1], m->outer[i].y));
    }
    return CKL_OK;
}

static ckl_status admit_sm90(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_sm90_config *c = config;
    TRY(check_matrix(p, "sm90", c->bytes, c->outer, c->tile_r, c->tile_c));
    TRY(check_contiguous(p, "sm90"));
    TRY(permutation_check_threads(p, "sm90", c->threads, 32, device));
    TRY(check_boxes(p, c));
    TRY(check_smem(p, "sm90", transpose_sm90_smem_bytes(c), device));
    return check_distances(p);
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_sm90_config *c = plan->config;
    const permute_pointers *a = args;
    const int kernel = PLAN_ALIGNED(TMA_ALIGNMENT, a->x, a->y) ? 0 : 1; // of the same tiles
    const transpose_params params = params_for(plan->desc, args, c->bytes);
    return launch_tiles(plan, kernel, &params, c->tile_r, c->tile_c, stream);
}

static const field sm90_fields[] = { TRANSPOSE_SM90_CONFIG(FIELD_ROW, transpose_sm90_config) };

const implementation transpose_sm90_implementation = {
    IMPLEMENTATION_PARTS(transpose, sm90),
    .summary = "swizzled tiles by TMA in and out, transposed between them without bank conflicts; Hopper",
    .cost = transpose_sm90_cost,
    .rivals = { &transpose_narrow_implementation, &permute_boxes_implementation },
    .kernels = 2,
    .params = &transpose_param_list,
    .target = IR_SM90A,
};

/* narrow: a short side without gaps */

enum {
    COLS_MAX = 16,    // of x where its rows are short: longer ones fill tiles of the kernel sm80
    ROWS_MAX = 64,    // of x where rows of y are short: that kernel would write them a few words at a time
    LONG_MIN = 256,   // of the long side: below, CTAs would have little to do
    ALONG_MAX = 4096, // of a tile
    WORDS_MAX = 4,    // of the short side: of more, boxes are twice as fast (bench/notes/permute.md)
    TILE_BYTES = 16384,
    TILES_OF_SM = 64, // many: 55296 matrices of 3x512 f16 took 247.9 us, by boxes 92.4
    ALONG_MIN = 64,   // of a tile of a small matrix, which is spread over the SMs
};

/* Is this the short side, without gaps on its own side of memory? */
static bool is_short(int64_t size, int64_t size_max, int64_t ld, int64_t other)
{
    return size <= size_max && ld == size && other >= LONG_MIN;
}

static bool has_short_x(const permute_matrix *m)
{
    return is_short(m->cols, COLS_MAX, m->ldx, m->rows);
}

static bool has_short_y(const permute_matrix *m)
{
    return is_short(m->rows, ROWS_MAX, m->ldy, m->cols);
}

static ckl_status check_short_side(const permutation *p)
{
    if (!has_short_x(&p->matrix) && !has_short_y(&p->matrix))
        FAIL(
            CKL_UNSUPPORTED,
            "%s narrow: there is no side of up to %d columns or %d rows without gaps, %d or more elements of the other",
            p->op, COLS_MAX, ROWS_MAX, LONG_MIN);
    return CKL_OK;
}

/*
 * Each thread of a CTA has 32 bytes or more of a run that is the tile of short rows of x: fewer threads do less beside their words. 256x360x405x5
 * f16, 1,3,0,2, 4 KB a matrix, takes 1250 instructions of a warp by 64 threads, 2700 by 256. Few CTAs want more.
 */
static int threads_for(const permutation *p, const transpose_narrow_config *c, const ckl_device_info *device)
{
    enum { THREADS_MIN = 64, BYTES = 32, WAVES = 4, RESIDENT_THREADS = 2048 };
    const permute_matrix *m = &p->matrix;
    const int64_t bytes = min_i64(m->rows, c->tile_r) * m->cols * p->bytes;
    const int64_t tiles = tiles_of(m, c->tile_r, c->tile_c);
    int threads = c->threads;
    while (c->short_x && threads > THREADS_MIN && bytes < BYTES * threads &&
           tiles * threads >= WAVES * RESIDENT_THREADS * (int64_t)device->sm_count)
        threads /= 2;
    return threads;
}

static ckl_status choose_narrow(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_narrow_config *c = config;
    const permute_matrix *m = &p->matrix;
    TRY(check_short_side(p));
    if (p->bytes >= WORD_BYTES && min_i64(m->rows, m->cols) > WORDS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s narrow: a short side of more than %d words is left to boxes", p->op, WORDS_MAX);
    if (!device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s narrow: it is chosen on Hopper alone, where it was measured", p->op);
    c->bytes = p->bytes;
    c->outer = m->outer_count;
    c->short_x = has_short_x(m);
    int side = 4, along = ALONG_MIN;
    while (side < (c->short_x ? m->cols : m->rows) && side < ROWS_MAX)
        side *= 2;
    const int64_t length = c->short_x ? m->rows : m->cols;
    if (length * side * p->bytes <= TILE_BYTES / 4 &&
        tiles_of(m, c->short_x ? (int)length : side, c->short_x ? side : (int)length) >= TILES_OF_SM * device->sm_count)
        FAIL(CKL_UNSUPPORTED, "%s narrow: many matrices of a fourth of a tile are left to boxes", p->op);
    while (along * side * p->bytes < TILE_BYTES)
        along *= 2;
    while (along > ALONG_MIN && tiles_of(m, c->short_x ? along : side, c->short_x ? side : along) < device->sm_count)
        along /= 2;
    c->tile_r = c->short_x ? along : side;
    c->tile_c = c->short_x ? side : along;
    c->threads = threads_for(p, c, device);
    c->prefetch = pays_prefetch(p, c->tile_r, c->tile_c, c->threads, device);
    return CKL_OK;
}

/* That tile, and shorter ones. */
static bool candidate_narrow(const void *problem, const ckl_device_info *device, int i, void *config)
{
    transpose_narrow_config *c = config;
    if (choose_narrow(problem, device, config) != CKL_OK)
        return false;
    int *along = c->short_x ? &c->tile_r : &c->tile_c;
    *along >>= i;
    c->prefetch = pays_prefetch(problem, c->tile_r, c->tile_c, c->threads, device);
    return *along >= ALONG_MIN;
}

static ckl_status admit_narrow(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_narrow_config *c = config;
    const permute_matrix *m = &p->matrix;
    TRY(check_matrix(p, "narrow", c->bytes, c->outer, c->tile_r, c->tile_c));
    TRY(check_contiguous(p, "narrow"));
    TRY(check_short_side(p));
    if (c->short_x ? !has_short_x(m) || m->cols > c->tile_c : !has_short_y(m) || m->rows > c->tile_r)
        FAIL(CKL_INVALID, "%s narrow: short_x=%d tile %dx%d do not fit the short side of %" PRId64 "x%" PRId64, p->op,
             c->short_x, c->tile_r, c->tile_c, m->rows, m->cols);
    TRY(check_power(p, "narrow", c->short_x ? "tile_r" : "tile_c", c->short_x ? c->tile_r : c->tile_c, 32 / p->bytes,
                    ALONG_MAX));
    TRY(check_power(p, "narrow", "threads", c->threads, ROWS_MAX,
                    device->threads_per_cta_max)); // a word for each of short rows
    return check_smem(p, "narrow", transpose_narrow_smem_bytes(c), device);
}

static ckl_status launch_narrow(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_narrow_config *c = plan->config;
    const transpose_params params = params_for(plan->desc, args, c->bytes);
    return launch_tiles(plan, 0, &params, c->tile_r, c->tile_c, stream);
}

static const field narrow_fields[] = { TRANSPOSE_NARROW_CONFIG(FIELD_ROW, transpose_narrow_config) };

const implementation transpose_narrow_implementation = {
    IMPLEMENTATION_PARTS(transpose, narrow),
    .summary = "matrices with a short side without gaps: whole runs of memory on both sides",
    .candidate = candidate_narrow,
    .is_trusted = is_trusted,
    .cost = transpose_narrow_cost,
    .rivals = { &permute_gather_implementation },
    .params = &transpose_param_list,
};
