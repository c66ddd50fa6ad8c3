/* unit_emulator_short.h - short names of what many small kernels do, and the settings under which faults are tried. */
#pragma once

#include "ir_blocks.h"
#include "unit_emulator.h"

static const char *const all_settings[] = {
    "budget=100000 completion=eager",
    "budget=100000 completion=lazy",
    "budget=100000 completion=random schedule=random seed=1",
    "budget=100000 completion=random schedule=random seed=2",
    "budget=100000 completion=eager schedule=random seed=3",
};

static inline val add(val x, val y)
{
    return ir_binary(IR_ADD, x, y);
}

static inline val mul(val x, int64_t y)
{
    return ir_binary(IR_MUL, x, u32(y));
}

/* Room for an mbarrier. */
static inline val barrier(const char *name)
{
    return ir_smem_address(ir_smem_alloc(name, 8, 8));
}

/* Of one arrival, fenced. */
static inline void init_barrier(val bar)
{
    ir_mbarrier_init(bar, 0, 1);
    ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
}

static inline void finish_bulk(void)
{
    ir_plain(IR_BULK_COMMIT, 0, 0);
    ir_plain(IR_BULK_WAIT, 0, 0);
}

static inline void finish_cp_async(void)
{
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
}

static inline void cluster_sync(void)
{
    ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    ir_plain(IR_CLUSTER_WAIT, 0, 0);
}
