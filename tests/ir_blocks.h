/*
 * ir_blocks.h - for kernels in IR: control flow as blocks of C, IF(p) { ... } ELSE { ... } and FOREVER { ... }, as in
 * cute/kernel.h, but for the lines that faults name; short names of values.
 */
#pragma once

#include "ir/build.h"

#define BLOCK_NAME_(a, b)       a##b
#define BLOCK_NAME(a, b)        BLOCK_NAME_(a, b)
#define BLOCK(name, begin, end) for (bool name = (begin, true); name; name = (end, false))
#define IF(p)                   BLOCK(BLOCK_NAME(if_, __COUNTER__), ir_if(p), ir_end_if())
#define ELSE                    BLOCK(BLOCK_NAME(else_, __COUNTER__), ir_reopen_else(), ir_end_if())
#define FOREVER                 BLOCK(BLOCK_NAME(loop_, __COUNTER__), ir_loop(), ir_end_loop())

static inline val u32(int64_t i)
{
    return ir_u32(i);
}

/* A value that nothing is known of, the same for all threads. */
static inline val unknown(ir_type type)
{
    return ir_scalar_param(type, ir_type_text(type));
}
