/* transpose_tiled_plan.c - choice, limits and launch of the teaching kernels naive and tiled. */
#include "operators/permute/permute_launch.h"

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_naive_config *c = config;
    (void)device;
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s naive: tile=%d asks for the kernel tiled", p->op, p->tile);
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const transpose_naive_config *c = config;
    TRY(check_threads(desc, "naive", c->threads, 32, device));
    return check_matrix(desc, "naive", c->bytes, c->outer, c->threads / NAIVE_TILE_C, NAIVE_TILE_C);
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_naive_config *c = plan->config;
    return launch_by_address(plan, 0, args, c->threads / NAIVE_TILE_C, NAIVE_TILE_C, stream);
}

static const field naive_fields[] = { TRANSPOSE_NAIVE_CONFIG(FIELD_ROW) };

const implementation transpose_naive_plan = {
    .name = "naive",
    .summary = "one thread an element: reads whole lines, writes single elements",
    .config_bytes = sizeof(transpose_naive_config),
    .config = FIELD_TABLE(naive_fields),
    .choose = choose_naive,
    .admit = admit_naive,
    .describe = transpose_naive,
    .target = IR_SM80,
    .launch = launch_naive,
};

static ckl_status choose_tiled(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_tiled_config *c = config;
    (void)device;
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    c->tile = p->tile ? p->tile : c->tile;
    return CKL_OK;
}

static ckl_status admit_tiled(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_tiled_config *c = config;
    (void)device;
    if (c->tile != 16 && c->tile != 32)
        FAIL(CKL_INVALID, "%s tiled: tile=%d is neither 16 nor 32", p->op, c->tile);
    return check_matrix(p, "tiled", c->bytes, c->outer, c->tile, c->tile);
}

static ckl_status launch_tiled(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_tiled_config *c = plan->config;
    return launch_by_address(plan, 0, args, c->tile, c->tile, stream);
}

static const field tiled_fields[] = { TRANSPOSE_TILED_CONFIG(FIELD_ROW) };

const implementation transpose_tiled_plan = {
    .name = "tiled",
    .summary = "padded tiles in shared memory, element by element; any strides",
    .config_bytes = sizeof(transpose_tiled_config),
    .config = FIELD_TABLE(tiled_fields),
    .choose = choose_tiled,
    .admit = admit_tiled,
    .describe = transpose_tiled,
    .target = IR_SM80,
    .launch = launch_tiled,
};
