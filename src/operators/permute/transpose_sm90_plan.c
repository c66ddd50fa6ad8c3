/* transpose_sm90_plan.c - choice, limits, tensor maps and launch of the TMA kernel. */
#include "operators/permute/permute_launch.h"

enum { TMA_ALIGNMENT = 16 };

/* Tiles of 16 KB with rows of 128 bytes or more on both sides; small problems get smaller ones to fill the GPU. */
static int tile_for(const permutation *p, const ckl_device_info *device)
{
    int tile = p->bytes == 1 ? 128 : p->bytes == 8 ? 32 : 64;
    if (tile > 32 && p->has_matrix && tiles_of(&p->matrix, tile, tile) < device->sm_count)
        tile /= 2;
    return tile;
}

static ckl_status choose_sm90(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_sm90_config *c = config;
    TRY(check_worth(p, "sm90"));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    int span = sm90_box_columns(p->bytes), tile = tile_for(p, device);
    c->tile_r = c->tile_c = tile > span ? tile : span;
    return CKL_OK;
}

static ckl_status check_boxes(const permutation *p, const transpose_sm90_config *c)
{
    int span = sm90_box_columns(p->bytes), least = span > 32 ? span : 32;
    if (!is_power_of_two(c->tile_r) || c->tile_r < least || c->tile_r > 256 || !is_power_of_two(c->tile_c) ||
        c->tile_c < least || c->tile_c > 256)
        FAIL(CKL_INVALID, "%s sm90: tile %dx%d must be powers of two from %d to 256", p->op, c->tile_r, c->tile_c,
             least);
    int pieces = c->tile_r / 32 * (c->tile_c * c->bytes / 16), warps = c->threads / 32;
    if (pieces % warps)
        FAIL(CKL_INVALID, "%s sm90: %d warps do not share the %d pieces of a tile of %dx%d evenly", p->op, warps,
             pieces, c->tile_r, c->tile_c);
    return CKL_OK;
}

/* Tensor maps want every distance in multiples of 16 bytes, and TMA stores write whole chunks of 16 bytes. */
static ckl_status check_pitches(const permutation *p)
{
    const matrix_modes *m = &p->matrix;
    const struct {
        const char *name;
        int64_t distance, count;
    } of[] = { { "ldx", m->ldx, m->rows },
               { "ldy", m->ldy, m->cols },
               { "stride_x", m->outer[0].x, m->outer_count > 0 },
               { "stride_y", m->outer[0].y, m->outer_count > 0 },
               { "the second stride_x", m->outer[1].x, m->outer_count > 1 },
               { "the second stride_y", m->outer[1].y, m->outer_count > 1 },
               { "the third stride_x", m->outer[2].x, m->outer_count > 2 },
               { "the third stride_y", m->outer[2].y, m->outer_count > 2 } };
    if (m->rows * p->bytes % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED, "%s sm90: rows of y of %" PRId64 " elements of %d bytes are not whole chunks of 16 bytes",
             p->op, m->rows, p->bytes);
    for (int i = 0; i < COUNT_OF(of); i++)
        if (of[i].count > 0 && (of[i].distance * p->bytes % TMA_ALIGNMENT || of[i].distance == 0))
            FAIL(CKL_UNSUPPORTED,
                 "%s sm90: %s=%" PRId64 " elements of %d bytes are not a positive multiple of 16 bytes", p->op,
                 of[i].name, of[i].distance, p->bytes);
    return CKL_OK;
}

static ckl_status admit_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_sm90_config *c = config;
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "%s sm90: %s is not a Hopper GPU", p->op, device->id);
    TRY(check_matrix(p, "sm90", c->bytes, c->outer, c->tile_r, c->tile_c));
    TRY(check_contiguous(p, "sm90"));
    TRY(check_threads(p, "sm90", c->threads, 32, device));
    TRY(check_boxes(p, c));
    TRY(check_smem(p, "sm90", transpose_sm90_smem_bytes(c), device));
    return check_pitches(p);
}

/* x or y as boxes of 128-byte rows: `rows` of them per box, a row of x being columns, a row of y rows of the matrix. */
static ckl_status encode(const ckl_plan *plan, const void *pointer, bool is_x, int box_rows, tensor_map *map)
{
    const permutation *p = plan->desc;
    const matrix_modes *m = &p->matrix;
    static const ckl_dtype types[] = { [1] = CKL_U8, [2] = CKL_I16, [4] = CKL_I32, [8] = CKL_I64 };
    tensor_map_desc t = {
        .dtype = types[p->bytes],
        .rank = 2 + m->outer_count,
        .address = (void *)(uintptr_t)pointer,
        .size = { is_x ? m->cols : m->rows, is_x ? m->rows : m->cols },
        .stride = { p->bytes, (is_x ? m->ldx : m->ldy) * p->bytes },
        .box = { sm90_box_columns(p->bytes), box_rows },
        .swizzle = SWIZZLE_128,
    };
    for (int i = 0; i < m->outer_count; i++) {
        t.size[2 + i] = m->outer[i].size;
        t.stride[2 + i] = (is_x ? m->outer[i].x : m->outer[i].y) * p->bytes;
        t.box[2 + i] = 1;
    }
    return plan->device->ops->encode_tensor_map(plan->device, &t, map);
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const transpose_sm90_config *c = plan->config;
    const permute_pointers *a = args;
    if (p->empty)
        return CKL_OK;
    if (!is_aligned(a->x, TMA_ALIGNMENT) || !is_aligned(a->y, TMA_ALIGNMENT)) {
        transpose_sm80_config fallback = transpose_sm90_fallback(c);
        return launch_by_address(plan, 1, args, fallback.tile_r, fallback.tile_c, stream);
    }
    tensor_map x, y;
    TRY(encode(plan, a->x, true, c->tile_r, &x));
    TRY(encode(plan, a->y, false, c->tile_c, &y));
    parameters values = { 0 };
    pass_map(&values, &x);
    pass_map(&values, &y);
    pass_sizes(&values, &p->matrix);
    return launch_kernel(plan, 0, tiles_of(&p->matrix, c->tile_r, c->tile_c), &values, stream);
}

static const field sm90_fields[] = { TRANSPOSE_SM90_CONFIG(FIELD_ROW) };

const implementation transpose_sm90_plan = {
    .name = "sm90",
    .summary = "swizzled tiles by TMA in and out, transposed between them without bank conflicts; Hopper",
    .config_bytes = sizeof(transpose_sm90_config),
    .config = FIELD_TABLE(sm90_fields),
    .choose = choose_sm90,
    .admit = admit_sm90,
    .describe = transpose_sm90,
    .kernels = 2,
    .target = IR_SM90A,
    .launch = launch_sm90,
};
