/* transpose_sm80_plan.c - choice, limits and launch of the kernel for any alignment. */
#include "operators/permute/permute_launch.h"

/* Tiles of 32 KB, wide on the side of x; no larger than the matrix, and smaller where there would be few. */
static void choose_tile(const permutation *p, const ckl_device_info *device, transpose_sm80_config *c)
{
    c->tile_r = p->bytes == 1 ? 256 : p->bytes == 2 ? 128 : 64;
    c->tile_c = p->bytes == 8 ? 64 : 128;
    while (c->tile_r > 32 && c->tile_r / 2 >= p->matrix.rows)
        c->tile_r /= 2;
    while (c->tile_c > 32 && c->tile_c / 2 >= p->matrix.cols)
        c->tile_c /= 2;
    while (c->tile_c > 32 && p->has_matrix && tiles_of(&p->matrix, c->tile_r, c->tile_c) < device->sm_count)
        c->tile_c /= 2;
}

static ckl_status choose_sm80(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_sm80_config *c = config;
    TRY(check_worth(p, "sm80"));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    choose_tile(p, device, c);
    c->chunk = p->bytes == 1 && p->matrix.ldx % 2 == 0 ? 4 : 16; // else bytes would meet four in a bank
    c->align = p->matrix.rows > c->tile_r ? 32 : sm80_word_bytes(p->bytes);
    c->ctas_per_sm = p->bytes == 1 ? 4 : 0; // else 70 registers let three in
    return CKL_OK;
}

static ckl_status admit_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_sm80_config *c = config;
    TRY(check_threads(p, "sm80", c->threads, 128, device));
    if (!is_power_of_two(c->threads))
        FAIL(CKL_INVALID, "%s sm80: threads=%d is not a power of two", p->op, c->threads);
    int word = sm80_word_bytes(c->bytes);
    if (!is_power_of_two(c->chunk) || c->chunk < word || c->chunk > 16)
        FAIL(CKL_INVALID, "%s sm80: chunk=%d is not a power of two from %d to 16", p->op, c->chunk, word);
    if (!is_power_of_two(c->align) || c->align < word || c->align > 128)
        FAIL(CKL_INVALID, "%s sm80: align=%d is not a power of two from %d to 128", p->op, c->align, word);
    if (!is_power_of_two(c->tile_r) || c->tile_r < 32 || c->tile_r > 512 || c->tile_r * c->bytes < c->align)
        FAIL(CKL_INVALID, "%s sm80: tile_r=%d is not a power of two from 32 to 512", p->op, c->tile_r);
    int at_least = (int)max_i64(c->threads / 32, c->align / c->bytes);
    if (!is_power_of_two(c->tile_c) || c->tile_c < at_least || c->tile_c > 512)
        FAIL(CKL_INVALID, "%s sm80: tile_c=%d is not a power of two from %d to 512", p->op, c->tile_c, at_least);
    if (transpose_sm80_tile(c).chunks > c->threads)
        FAIL(CKL_INVALID, "%s sm80: threads=%d do not cover the chunks of a row", p->op, c->threads);
    TRY(check_smem(p, "sm80", transpose_sm80_smem_bytes(c), device));
    TRY(check_matrix(p, "sm80", c->bytes, c->outer, c->tile_r, c->tile_c));
    return check_contiguous(p, "sm80");
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_sm80_config *c = plan->config;
    return launch_by_address(plan, 0, args, c->tile_r, c->tile_c, stream);
}

static const field sm80_fields[] = { TRANSPOSE_SM80_CONFIG(FIELD_ROW) };

const implementation transpose_sm80_plan = {
    .name = "sm80",
    .summary =
        "tiles in shared memory by cp.async, whole words on both sides at any alignment; every GPU from sm_80 on",
    .config_bytes = sizeof(transpose_sm80_config),
    .config = FIELD_TABLE(sm80_fields),
    .choose = choose_sm80,
    .admit = admit_sm80,
    .describe = transpose_sm80,
    .target = IR_SM80,
    .launch = launch_sm80,
};

const implementation transpose_ragged_plan = {
    .name = "ragged",
    .summary = "the kernel sm80 made for Hopper, where kernels overlap: for rows that TMA does not take",
    .config_bytes = sizeof(transpose_sm80_config),
    .config = FIELD_TABLE(sm80_fields),
    .choose = choose_sm80,
    .admit = admit_sm80,
    .describe = transpose_sm80,
    .target = IR_SM90A,
    .launch = launch_sm80,
};
