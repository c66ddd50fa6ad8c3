/* gemm_fma_places.c - which threads an f32 product without tensor cores has, and their places in a tile. */
#include "cute/kernel.h"
#include "operators/gemm/gemm_fma.h"

int gemm_fma_threads_m(const gemm_fma_config *cfg)
{
    return cfg->tile_m / cfg->block_m;
}

int gemm_fma_group_threads(const gemm_fma_config *cfg)
{
    return gemm_fma_threads_m(cfg) * (cfg->tile_n / cfg->block_n);
}

int gemm_fma_threads(const gemm_fma_config *cfg)
{
    return cfg->groups_k * gemm_fma_group_threads(cfg);
}

int gemm_fma_stage(const gemm_fma_config *cfg, int rows)
{
    return cfg->depth * (rows + QUAD) + LANES; // for gaps
}

/*
 * The lanes of a warp along M and N. Pairs along N stand in turn with pairs along M: then of four neighbours two load
 * the same factors of A, and two the same of B, and shared memory serves twice as many lanes at once.
 */
static val lane_along(const gemm_fma_config *cfg, int pair)
{
    const int m = cfg->lanes_m / 2, n = LANES / cfg->lanes_m / 2;
    return add(mul(thread_at(lane(), pair + 2, 2, 2, n, m), imm(2)), thread_at(lane(), pair, 2, 2, n, m));
}

val gemm_fma_lane_m(const gemm_fma_config *cfg)
{
    return lane_along(cfg, 1);
}

val gemm_fma_lane_n(const gemm_fma_config *cfg)
{
    return lane_along(cfg, 0);
}

val gemm_fma_place_m(const gemm_fma_config *cfg)
{
    const int lanes = cfg->lanes_m, warps = gemm_fma_threads_m(cfg) / lanes;
    return add(mul(rem(warp(), imm(warps)), imm(lanes)), gemm_fma_lane_m(cfg));
}

val gemm_fma_place_n(const gemm_fma_config *cfg)
{
    const int lanes = LANES / cfg->lanes_m, warps = gemm_fma_threads_m(cfg) / cfg->lanes_m;
    val along_n = div(warp(), imm(warps));
    if (cfg->groups_k > 1)
        along_n = rem(along_n, imm(cfg->tile_n / cfg->block_n / lanes));
    return add(mul(along_n, imm(lanes)), gemm_fma_lane_n(cfg));
}

val gemm_fma_group(const gemm_fma_config *cfg)
{
    return cfg->groups_k > 1 ? div(thread(), imm(gemm_fma_group_threads(cfg))) : imm(0);
}

val gemm_fma_thread(const gemm_fma_config *cfg)
{
    return cfg->groups_k > 1 ? rem(thread(), imm(gemm_fma_group_threads(cfg))) : thread();
}

val gemm_fma_bytes(val elements)
{
    return convert(U64, mul(elements, imm64(BYTES)));
}

int gemm_fma_columns(const gemm_fma_config *cfg)
{
    return cfg->epilogue.gated ? cfg->tile_n / 2 : cfg->tile_n;
}

bool gemm_fma_is_tight(const gemm_fma_config *cfg)
{
    enum { REGISTERS = 65536, ROOM = 96 };
    return REGISTERS / (cfg->ctas * gemm_fma_threads(cfg)) - cfg->block_m * cfg->block_n < ROOM;
}
