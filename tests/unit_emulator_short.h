/* unit_emulator_short.h - short names of small numbers, and the settings under which faults are tried. */
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

static inline val u32(int64_t x)
{
    return ir_int(IR_U32, x);
}

static inline val add(val x, val y)
{
    return ir_binary(IR_ADD, x, y);
}

static inline val mul(val x, int64_t y)
{
    return ir_binary(IR_MUL, x, u32(y));
}
