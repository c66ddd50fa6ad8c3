/* rules.h - what every op demands of its operands and of the threads that execute it. */
#pragma once

#include "ir/ir.h"

/* Threads that must execute an instruction together, in rising width. */
typedef enum ir_group { GROUP_THREAD, GROUP_WARP, GROUP_WARPGROUP } ir_group;

/* A set of types, 1 << type each. */
#define TYPE_SET(type) (1u << (type))

/*
 * The operands of an op, results first, then a colon, then the sources; a letter each:
 *     t f     [type], [from]; an 8-bit type lives in a 16-bit integer register or in one of its own type
 *     c       a constant of [type]
 *     p u l   predicate, u32 or i32, u64 or i64
 *     a       an address in [space]
 * and after a letter * for [n] of them, h for [n] / 2, a digit for so many.
 */
typedef struct ir_rule {
    const char *operands;
    uint32_t types, from; // that [type] and [from] may be; 0: not looked at
    ir_group group;
    bool counted;  // has [n]; else it is 0
    int last_mode; // [mode] is 0 .. last_mode
    bool sm90;     // not in kernels for sm_80
    bool sm90a;    // nor in those for sm_90
} ir_rule;

const ir_rule *ir_rule_of(ir_op op);
