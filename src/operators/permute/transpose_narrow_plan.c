/* transpose_narrow_plan.c - choice, limits and launch of the kernel for matrices with a short side. */
#include "operators/permute/permute_gather.h"
#include "operators/permute/permute_launch.h"

enum {
    COLS_MAX = 16,  // of x where its rows are short: longer ones fill tiles of the kernel sm80
    ROWS_MAX = 64,  // where rows of y are: that kernel would write them a few words at a time
    LONG_MIN = 256, // of the long side: below, CTAs would have little to do
    TILE_BYTES = 16384,
};

/* Is this the short side, without gaps on its own side of memory? */
static bool is_short(int64_t size, int64_t size_max, int64_t pitch, int64_t other)
{
    return size <= size_max && pitch == size && other >= LONG_MIN;
}

static bool has_short_x(const matrix_modes *m)
{
    return is_short(m->cols, COLS_MAX, m->ldx, m->rows);
}

static bool has_short_y(const matrix_modes *m)
{
    return is_short(m->rows, ROWS_MAX, m->ldy, m->cols);
}

static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_narrow_config *c = config;
    const matrix_modes *m = &p->matrix;
    (void)device;
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s narrow: tile=%d asks for the kernel tiled", p->op, p->tile);
    c->bytes = p->bytes;
    c->outer = m->outer_count;
    c->narrow = has_short_x(m);
    int side = 4, along = 64;
    while (side < (c->narrow ? m->cols : m->rows) && side < ROWS_MAX)
        side *= 2;
    while (along * side * p->bytes < TILE_BYTES)
        along *= 2;
    c->tile_r = c->narrow ? along : side;
    c->tile_c = c->narrow ? side : along;
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_narrow_config *c = config;
    const matrix_modes *m = &p->matrix;
    TRY(check_matrix(p, "narrow", c->bytes, c->outer, c->tile_r, c->tile_c));
    TRY(check_contiguous(p, "narrow"));
    if (c->narrow ? !has_short_x(m) || m->cols > c->tile_c : !has_short_y(m) || m->rows > c->tile_r)
        FAIL(
            CKL_UNSUPPORTED,
            "%s narrow: there is no side of up to %d columns or %d rows without gaps, %d or more elements of the other",
            p->op, COLS_MAX, ROWS_MAX, LONG_MIN);
    if ((c->narrow ? c->tile_r : c->tile_c) * p->bytes % 32)
        FAIL(CKL_INVALID, "%s narrow: tile %dx%d is not a multiple of 32 bytes on the long side", p->op, c->tile_r,
             c->tile_c);
    TRY(check_threads(p, "narrow", c->threads, 32, device));
    return check_smem(p, "narrow", transpose_narrow_smem_bytes(c), device);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const transpose_narrow_config *c = plan->config;
    if (p->empty)
        return CKL_OK;
    parameters values = { 0 };
    pass_place(&values, p, args);
    divisor side = make_divisor((uint32_t)(c->narrow ? p->matrix.cols : p->matrix.rows));
    pass(&values, side.factor);
    pass(&values, side.shift);
    return launch_kernel(plan, 0, tiles_of(&p->matrix, c->tile_r, c->tile_c), &values, stream);
}

static const field fields[] = { TRANSPOSE_NARROW_CONFIG(FIELD_ROW) };

const implementation transpose_narrow_plan = {
    .name = "narrow",
    .summary = "matrices with a short side without gaps: whole runs of memory on both sides",
    .config_bytes = sizeof(transpose_narrow_config),
    .config = FIELD_TABLE(fields),
    .choose = choose,
    .admit = admit,
    .describe = transpose_narrow,
    .target = IR_SM90A,
    .launch = launch,
};
