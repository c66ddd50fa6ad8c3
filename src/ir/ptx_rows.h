/*
 * ptx_rows.h - the PTX of every op, as templates.
 *
 * An op has a list of rows; the first whose conditions hold is printed. Its text is PTX statements separated by "; " in
 * which a $ and a letter stand for:
 *
 *   d e          the first and second result
 *   D            all results: one register, or {a, b, ..}
 *   x y z u v w  operands 0 to 5, constants as immediates
 *   X Y Z U V W  the same, always in a register
 *   a b          operand 0 or 1 as an address: register + offset
 *   S            operands from 1 on, as a register or {a, b, ..}
 *   0 .. 9       and a second digit: that operand on, so many, {a, b, ..}
 *   C            the coordinates: the last [n] operands
 *   O            the 16-bit offsets that stand before the coordinates
 *   M            operand 3 as the 16-bit mask of a multicast
 *   P            the name of parameter [n]
 *   t f F        [type], [from] and [from_b]: "s32", "f16x2"
 *   s            [type] as if it were signed
 *   m            the type of a move: "b16", "f32", "pred"
 *   B E          bits: "b32"; an element in memory: "b32", "s8"
 *   n N          [n]; ".v4" for n = 4, "" for 1
 *   p q          bits 0 and 1 of [mode]
 *   g k l        [space], [scope], [order]; l is ".relaxed" where an atomic has none
 *   c i          [cache]: of the instruction; its last operand, ", %evict_first", or ""
 *   o            the name of [mode]: comparisons, special registers, shuffles, votes, NaN of min and max
 *   r            the reduction [mode] and its type: "add.noftz.f16x2"
 *   h            the clamp operand of a shuffle: the first lane of UP, the last one of others
 *   j            a number of this instruction alone, for a label
 *
 * %o are the offsets of $O. Registers named %tp %th %tr %tf (predicate, 16, 32, f32) with 0 or 1 are scratch
 * of one template.
 */
#pragma once

#include "ir/ir.h"

/* Conditions; all bits of a row must hold. */
enum {
    PTX_SM80 = 1 << 0,       // the target is sm_80
    PTX_SM90 = 1 << 1,       // the target is sm_90 or sm_90a
    PTX_MODE = 1 << 2,       // [mode] is 1
    PTX_WIDE = 1 << 3,       // [n] is 16
    PTX_TENSOR_MAP = 1 << 4, // parameter [n] is a tensor map
    PTX_MULTICAST = 1 << 5,  // operand 3 is not the constant 0
    PTX_CLUSTER = 1 << 6,    // [scope] is wider than the CTA
    PTX_STRONG = 1 << 7,     // [order] is not the default
};

typedef struct ptx_row {
    uint32_t types, from; // sets of ir_type, 1 << type each; 0: any
    unsigned when;
    const char *text;
} ptx_row;

/* The rows of an op, ended by one without text; NULL for control flow, which ptx.c prints itself. */
const ptx_row *ptx_rows(ir_op op);

/* The row that an instruction of the kernel is printed with; NULL: it has none for this target. */
const ptx_row *ptx_find_row(const ir_kernel *kernel, const ir_inst *inst);

/* The name of a mode, for $o; "" where it has none. */
const char *ptx_mode_text(ir_op op, int mode);
