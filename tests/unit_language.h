/* unit_language.h - kernels of Hopper that are described and not run, and a tile for them. */
#pragma once

#include "unit_emulator.h"

#include "cute/kernel.h"

enum { THREADS = 128, STAGES = 2, TILE_M = 64, TILE_N = 64, TILE_K = 64 };

static tensor tile_in_smem(const char *name)
{
    return smem_tensor(name, F16, tma_tile_layout(F16, TILE_M, TILE_K, 128), 1024); // (M,K)
}

static ckl_status describe(void (*kernel)(void), ir_kernel **described)
{
    ir_describe_begin("language", IR_SM90A);
    launch_bounds(THREADS, 0);
    kernel();
    return ir_describe_end(described);
}
