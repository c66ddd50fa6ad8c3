/* alu.h - arithmetic and conversions on the 32 lanes of a warp. */
#pragma once

#include "device/emulator/lanes.h"
#include "ir/ir.h"

/* All 32 lanes of d <- x, y, z; operands that the op lacks are any readable register. d may be an operand. */
typedef void alu_function(void *d, const void *x, const void *y, const void *z);

/* The function of an arithmetic instruction (not CONVERT) whose result has out_bytes a lane; NULL if it has none. */
alu_function *alu_find(const ir_inst *inst, int out_bytes);

/* to = from in the lanes of the mask; `bytes` a lane. */
void lanes_blend(void *to, const void *from, lane_mask mask, int bytes);

/* The two halves of a conversion: any type to the widest of its kind (f64 or i64 lanes), and from there to any type. */
typedef struct conversion {
    alu_function *direct; // or NULL: widen, then narrow
    alu_function *widen, *narrow;
} conversion;

/* False if there is no such conversion. */
bool conversion_find(ir_type to, ir_type from, conversion *c);

/* Converts 32 lanes. */
void conversion_run(const conversion *c, void *d, const void *x);
