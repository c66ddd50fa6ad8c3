/* unit_emulator_global.h - planting faults among CTAs: flags in global memory, and grids of several CTAs. */
#pragma once

#include "unit_emulator_faults.h"

enum { FLAG = TILE_BYTES, COUNTER = FLAG + 64, CTAS = 4, SMEM_OF_ONE_PER_SM = 200000 };

static inline val cta(void)
{
    return ir_sreg(IR_CTA_X);
}

static inline val is_cta(int i)
{
    return ir_compare(IR_EQ, cta(), u32(i));
}

static inline void only_thread(int i)
{
    ir_if(ir_compare(IR_EQ, tid(), u32(i)));
}

static inline val at_offset(val base, int64_t offset)
{
    return ir_binary(IR_ADD, base, ir_int(IR_U64, offset));
}

static inline val load_flag(ir_order order, val flag)
{
    if (order)
        return ir_load_strong(order, IR_SCOPE_GPU, IR_U32, flag, 0);
    return test_load_value(IR_GLOBAL, IR_U32, flag, 0);
}

static inline void store_flag(ir_order order, val flag, val x)
{
    if (order)
        ir_store_strong(order, IR_SCOPE_GPU, IR_U32, flag, 0, x);
    else
        test_store_value(IR_GLOBAL, IR_U32, flag, 0, x);
}

static inline void wait_for(ir_order order, val flag, val wanted)
{
    FOREVER {
        HERE;
        ir_break(ir_compare(IR_EQ, load_flag(order, flag), wanted));
    }
}
