/* transpose_plan.c - tiles, limits, launches and costs of the kernels that transpose matrices. */
#include "operators/permute/transpose_plan.h"

#include "base/math.h"
#include "skeletons/memory_cost.h"

static int64_t matrices_of(const permute_matrix *m)
{
    int64_t matrices = 1;
    for (int i = 0; i < m->outer_count; i++)
        matrices *= m->outer[i].size;
    return matrices;
}

int64_t transpose_tiles(const permutation *p, int tile_r, int tile_c)
{
    const permute_matrix *m = &p->matrix;
    return ceil_div(m->rows, tile_r) * ceil_div(m->cols, tile_c) * matrices_of(m);
}

/* Launches */

/* A tensor map of x or y: rows of `cols` elements, ld apart. */
static param_tensor tensor_of(const void *pointer, int64_t rows, int64_t cols, int64_t ld)
{
    return (param_tensor){ .pointer = pointer, .size = { cols, rows }, .stride = { 1, ld } };
}

static transpose_params params_of_call(const permutation *p, const permute_pointers *a)
{
    const permute_matrix *m = &p->matrix;
    const divisor side = divisor_of(max_i64(1, min_i64(m->rows, m->cols)));
    transpose_params params = { .tX = tensor_of(a->x, m->rows, m->cols, m->ldx),
                                .tY = tensor_of(a->y, m->cols, m->rows, m->ldy),
                                .rows = (uint32_t)m->rows,
                                .cols = (uint32_t)m->cols,
                                .x = a->x,
                                .ldx = m->ldx * p->bytes,
                                .y = a->y,
                                .ldy = m->ldy * p->bytes,
                                .factor = side.factor,
                                .shift = side.shift };
    for (int i = 0; i < m->outer_count; i++) {
        permute_mode outer = m->outer[i];
        params.size[i] = (uint32_t)outer.size;
        params.stride_x[i] = outer.x * p->bytes;
        params.stride_y[i] = outer.y * p->bytes;
        params.tX.size[2 + i] = params.tY.size[2 + i] = outer.size;
        params.tX.stride[2 + i] = outer.x;
        params.tY.stride[2 + i] = outer.y;
    }
    return params;
}

ckl_status transpose_launch(const ckl_plan *plan, int kernel, const permute_pointers *a, int tile_r, int tile_c,
                            ckl_stream stream)
{
    const permutation *p = plan->desc;
    const transpose_params params = params_of_call(p, a);
    return plan_launch(plan, kernel, (plan_grid){ .x = transpose_tiles(p, tile_r, tile_c) }, &params, stream);
}

/* Limits */

static ckl_status check_matrix(const permutation *p, const char *who)
{
    if (!p->has_matrix)
        FAIL(CKL_UNSUPPORTED, "%s %s: there are not two modes, one contiguous in x and the other in y", p->op, who);
    return CKL_OK;
}

ckl_status transpose_check_sides(const permutation *p, const char *who, int side_bytes_min)
{
    TRY(check_matrix(p, who));
    if (min_i64(p->matrix.rows, p->matrix.cols) * p->bytes < side_bytes_min)
        FAIL(CKL_UNSUPPORTED, "%s %s: matrices of %" PRId64 "x%" PRId64 " would leave most of a tile empty", p->op, who,
             p->matrix.rows, p->matrix.cols);
    return CKL_OK;
}

enum { TILE_ELEMENTS_MAX = 1 << 20 }; // whose bytes are numbers of 32 bits

ckl_status transpose_check_tiles(const permutation *p, const char *who, int bytes, int outer, int tile_r, int tile_c)
{
    const permute_matrix *m = &p->matrix;
    TRY(check_matrix(p, who));
    if (bytes != p->bytes || outer != m->outer_count)
        FAIL(CKL_INVALID, "%s %s: bytes=%d outer=%d are not the problem's %d and %d", p->op, who, bytes, outer,
             p->bytes, m->outer_count);
    if (tile_r < 1 || tile_c < 1)
        FAIL(CKL_INVALID, "%s %s: a tile of %dx%d has no elements", p->op, who, tile_r, tile_c);
    if ((int64_t)tile_r * tile_c > TILE_ELEMENTS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s %s: a tile of %dx%d is beyond any shared memory", p->op, who, tile_r, tile_c);
    if (m->rows > INT32_MAX || m->cols > INT32_MAX || transpose_tiles(p, tile_r, tile_c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s %s: %" PRId64 "x%" PRId64 " is beyond 32-bit numbers of rows, columns and tiles",
             p->op, who, m->rows, m->cols);
    return CKL_OK;
}

ckl_status transpose_check_memory(const permutation *p, const char *who, int64_t smem, const ckl_device_info *device)
{
    if (smem > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s %s: the tile needs %" PRId64 " bytes of shared memory, %s has %" PRId64, p->op, who,
             smem, device->id, device->smem_per_cta_bytes);
    return CKL_OK;
}

ckl_status transpose_check_power(const permutation *p, const char *who, const char *name, int value, int low, int high)
{
    if (!is_power_of_two(value) || value < low || value > high)
        FAIL(CKL_INVALID, "%s %s: %s=%d is not a power of two from %d to %d", p->op, who, name, value, low, high);
    return CKL_OK;
}

/* Choices */

bool transpose_goes_across(const permutation *p, int tile_c, const ckl_device_info *device)
{
    enum { TILES_MAX = 8, FETCH_BYTES = 256 }; // 16 lose 6 % (bench/notes/permute.md)
    const permute_matrix *m = &p->matrix;
    const int64_t wide = (int64_t)tile_c * p->bytes;
    const bool few = m->cols <= (int64_t)TILES_MAX * tile_c && m->rows > m->cols;
    const bool fetched_twice = wide % FETCH_BYTES != 0 || m->ldx * p->bytes % FETCH_BYTES != 0;
    return few || (fetched_twice && product_i64(m->rows, 2 * wide) > device->l2_bytes);
}

/* Costs */

enum { SECTOR_BYTES = 32, LINE_BYTES = 128, REGISTERS = 20 };

/*
 * Bytes of the sectors that the rows of x or y touch, each in so many parts. Rows that begin inside a sector share
 * their first and last one, unless they have no gaps, and parts do. What is written is read, too, and more dearly where
 * other CTAs write the rest much later.
 */
static double sector_bytes(const permutation *p, bool in_x, int64_t parts)
{
    static const double READ = 0.5, WRITTEN = 1.5, WRITTEN_END = 3; // sectors
    const permute_matrix *m = &p->matrix;
    const int64_t rows = in_x ? m->rows : m->cols, row = in_x ? m->cols : m->rows, pitch = in_x ? m->ldx : m->ldy;
    const bool dense = pitch == row;
    int64_t distances = pitch; // the union of their bits
    for (int i = 0; i < m->outer_count; i++)
        distances |= in_x ? m->outer[i].x : m->outer[i].y;
    double more = in_x ? READ * (double)parts : WRITTEN * (double)(parts - 1) + (dense ? WRITTEN : WRITTEN_END);
    if (distances * p->bytes % SECTOR_BYTES == 0 || (dense && parts == 1))
        more = 0;
    return (double)rows * ((double)(row * p->bytes) + more * SECTOR_BYTES);
}

plan_cost transpose_tiling_cost(const permutation *p, const transpose_tiling *t, const ckl_device_info *device)
{
    const permute_matrix *m = &p->matrix;
    const int64_t down = ceil_div(m->rows, t->rows), wide = ceil_div(m->cols, t->cols);
    const double matrices = (double)matrices_of(m), tile_bytes = (double)t->rows * t->cols * p->bytes;
    const double x = sector_bytes(p, true, t->cut_x ? wide : 1), y = sector_bytes(p, false, t->cut_y ? down : 1);
    const memory_work work = {
        .of = PERMUTE_KERNEL,
        .bytes = t->rate * matrices * (x + y),
        .ctas = (int64_t)(matrices * (double)(down * wide)),
        .threads = t->threads,
        .registers = REGISTERS,
        .smem_bytes = t->smem_bytes,
        .wait_cycles = t->wait,
        .lines = tile_bytes / t->threads * (2.0 * PERMUTE_WARP / LINE_BYTES + t->turns / 4.0),
        .elements = t->of_tile + tile_bytes / 16 / t->threads * t->of_bytes,
        .meets = true,
    };
    return memory_cost(&work, device);
}
