/* first_thread.h - what thread 0 of a CTA does alone with counters in global memory, and tells the others. */
#pragma once

#include "cute/kernel.h"

enum { COUNTER_BYTES = 4 }; // a u32

static inline val is_first_thread(void)
{
    return eq(thread(), imm(0));
}

static inline val counter_at(val counters, val number)
{
    return add(counters, mul(convert(U64, number), imm_as(U64, COUNTER_BYTES)));
}

static inline void clear_counter(val counter)
{
    store_global(U32, counter, 0, imm_as(U32, 0));
}

/* Broadcasts a u32 of thread 0 to the CTA; all of its threads meet. */
static inline val from_first_thread(const char *name, val known)
{
    const val slot = smem_address(smem_alloc(name, COUNTER_BYTES, COUNTER_BYTES)), all = unwritten(U32);
    IF(is_first_thread())
        store_at(IR_SHARED, IR_CACHE_DEFAULT, U32, 1, slot, 0, &known);
    cta_sync();
    load_at(IR_SHARED, IR_CACHE_DEFAULT, U32, 1, slot, 0, (val[]){ all });
    return all;
}

/*
 * Of `count` CTAs, u32, after all threads have stored: is this the last one? Then what the others stored can be read.
 * Leaves 0.
 */
static inline val is_last_cta(val counter, val count)
{
    const val before = variable(U32, imm_as(U32, 0)), others = sub(count, imm_as(U32, 1));
    cta_sync();
    IF(is_first_thread()) {
        assign(before, atomic_add_acq_rel(counter, imm_as(U32, 1)));
        IF(eq(before, others))
            clear_counter(counter);
    }
    return eq(from_first_thread("before", before), others);
}
