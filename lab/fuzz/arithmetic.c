/*
 * arithmetic.c - values of programs, and instructions that compute without memory or other lanes, taken from the rules
 * of the IR: every op, every type.
 *
 * Results must not depend on what nobody promises:
 *   NaN       A NaN that arithmetic makes has fixed bits; those that are moved or whose sign is changed keep what the
 *             hardware likes. So floats that come from bits, NEG, ABS and conversions to f32 have their NaNs replaced
 *             by 1 before anything else sees them (number_of).
 *   DIV, REM  divisors of integers are made odd: 0 is a fault.
 *   ABS       of any signed type takes odd numbers, too: the assembler takes its result for one that is not negative.
 *   shifts    are by less than 2^31. SHL of an i64 takes odd numbers: ptxas 13.0 shifts the sign of a u32 that was
 *             just converted.
 *   PACK      of no constants: ptxas 13.0 makes a half that is a known negative number positive, with a sign in the
 *             instruction that uses it, and loses that in fma(v, v, v).
 *   inexact   RSQRT, RCP_APPROX, EX2, LG2, SIN, COS are absent: each GPU has its own last bits.
 */
#include "lab/fuzz/program.h"

#include <math.h>

#include "base/math.h"
#include "base/random.h"
#include "ir/rules.h"

#define SET TYPE_SET

enum {
    INT32 = SET(CKL_I32) | SET(IR_U32),
    INT64 = SET(CKL_I64) | SET(IR_U64),
    INT16 = SET(CKL_I16) | SET(IR_U16),
    INT = INT16 | INT32 | INT64,
    INT8 = SET(CKL_I8) | SET(CKL_U8) | SET(CKL_BOOL),
    F8 = SET(CKL_E4M3) | SET(CKL_E5M2),
    F16 = SET(CKL_F16) | SET(CKL_BF16),
    PAIR = SET(IR_F16X2) | SET(IR_BF16X2),
    REGISTERS = INT | F16 | PAIR | SET(CKL_F32) | SET(IR_PRED),
};

static bool is_in(ir_type type, uint32_t set)
{
    return (SET(type) & set) != 0;
}

/* What exists */

/* sm_80 rounds these twice, through f32; the emulator once, as sm_90 does. */
static bool rounds_twice(ir_type type, ir_type from)
{
    return type == CKL_BF16 && is_in(from, INT32 | INT64);
}

static bool has_conversion(ir_type type, ir_type from, ir_target target)
{
    if (is_in(type, PAIR)) // an operand that is no number
        return false;
    if (is_in(type, F8) || is_in(from, F8)) // between 8-bit and other floats
        return target == IR_SM90A && is_in(is_in(type, F8) ? from : type, F16 | SET(CKL_F32)) &&
               !(is_in(type, F8) && is_in(from, F8));
    return type != from && !(target == IR_SM80 && rounds_twice(type, from));
}

static bool has_halves(ir_type packed, ir_type half)
{
    if (is_in(packed, PAIR))
        return half == CKL_F32 || is_in(half, F16);
    return ir_type_bytes(packed) == 2 * ir_type_bytes(half) && half != CKL_F32;
}

bool fuzz_has_arithmetic(ir_op op, ir_type type, ir_type from, ir_target target)
{
    const ir_rule *rule = ir_rule_of(op);
    if (!(rule->types & SET(type)) || (rule->from ? !(rule->from & SET(from)) : from != 0))
        return false;
    if (op == IR_CONVERT)
        return has_conversion(type, from, target);
    if (op == IR_BITCAST)
        return type != from && ir_type_bytes(type) == ir_type_bytes(from);
    if (op == IR_PACK)
        return has_halves(type, from);
    if (op == IR_UNPACK)
        return has_halves(from, type) || (is_in(from, PAIR) && ir_type_bytes(type) == 2);
    return true;
}

/* Values */

void keep(program *p, val v)
{
    if (p->count < POOL_MAX && !ir_is_constant(v))
        p->pool[p->count++] = v;
}

ir_type register_type(ir_type memory)
{
    return memory == CKL_I8 ? CKL_I16 : is_in(memory, INT8 | F8) ? IR_U16 : memory;
}

static val int_constant(program *p, ir_type type)
{
    static const int64_t few[] = { 0, 1, -1, 2, 3, 7, 31, 32, 255, 65535, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN };
    int64_t x = chance(p, 3) ? (int64_t)random_next(&p->random) : few[choose(p, COUNT_OF(few))];
    return ir_int(type, type == CKL_I16 ? (int16_t)x : x);
}

/* Halves whose exponent is not all ones: no NaN and no infinity. */
static val pair_constant(program *p, ir_type type)
{
    return ir_int(type, (int64_t)(random_next(&p->random) & 0xbfffbfff));
}

static val constant_of(program *p, ir_type type)
{
    static const double few[] = {
        0, -0.0, 1, -1, 0.5, 1.5, 3, 65504, 0x1p-24, 0x1p-133, 0x1.8p-126, -0x1p127, INFINITY
    };
    if (type == IR_PRED)
        return ir_int(IR_PRED, choose(p, 2));
    if (ir_type_is_pair(type))
        return pair_constant(p, type);
    return ir_type_is_float(type) ? ir_float(type, few[choose(p, COUNT_OF(few))]) : int_constant(p, type);
}

static val number_of_half(val v)
{
    const val x = v.type == CKL_F32 ? v : ir_convert(CKL_F32, v);
    return ir_select(ir_compare(IR_NE, x, x), ir_float(v.type, 1), v);
}

val number_of(val v)
{
    if (!ir_type_is_float(v.type))
        return v;
    if (!ir_type_is_pair(v.type))
        return number_of_half(v);
    val lo, hi;
    ir_unpack(v, v.type == IR_F16X2 ? CKL_F16 : CKL_BF16, &lo, &hi);
    lo = number_of_half(lo);
    return ir_pack(v.type, lo, number_of_half(hi));
}

val element_at(val base, val index, int bytes)
{
    val scaled = ir_binary(IR_MUL, ir_convert(base.type, index), ir_int(base.type, bytes));
    return ir_binary(IR_ADD, base, scaled);
}

val load_input(program *p, ir_type type)
{
    if (type == IR_PRED) {
        val x = load_input(p, IR_U32);
        return ir_compare(IR_LT, ir_binary(IR_AND, x, ir_u32(7)), ir_u32(1 + choose(p, 6)));
    }
    int64_t room = FUZZ_INPUT_BYTES - 8 * FUZZ_THREADS_MAX - 8;
    ir_cache cache = (ir_cache)choose(p, IR_CACHE_READONLY + 1);
    val v = ir_reg(register_type(type));
    ir_load(IR_GLOBAL, cache, type, 1, p->input, choose(p, (int)(room / 8)) * 8, &v);
    return number_of(v);
}

/* The later of two random places: recent values are used more. */
val pick_register(program *p, ir_type type)
{
    int matches = 0;
    for (int i = 0; i < p->count; i++)
        matches += p->pool[i].type == type;
    int which = matches ? (int)max_i64(choose(p, matches), choose(p, matches)) : 0;
    for (int i = 0; i < p->count; i++)
        if (p->pool[i].type == type && which-- == 0)
            return p->pool[i];
    val v = load_input(p, type);
    keep(p, v);
    return v;
}

val pick(program *p, ir_type type)
{
    return chance(p, 7) ? constant_of(p, type) : pick_register(p, type);
}

val small_float(program *p, ir_type type)
{
    if (ir_type_is_pair(type)) {
        ir_type half = type == IR_F16X2 ? CKL_F16 : CKL_BF16;
        val lo = small_float(p, half);
        return ir_pack(type, lo, small_float(p, half));
    }
    bool half = is_in(type, F16);
    val x = ir_binary(IR_AND, pick_register(p, CKL_I32), ir_int(CKL_I32, half ? 1 : 15));
    return ir_convert(type, ir_convert(CKL_F32, ir_binary(IR_SUB, x, ir_int(CKL_I32, half ? 0 : 8))));
}

/* Instructions */

/* The bits of a NaN in the result of arithmetic are fixed for these. */
static bool makes_fixed_nan(const ir_inst *inst)
{
    bool arithmetic = inst->op >= IR_ADD && inst->op <= IR_MAX;
    if (inst->op == IR_MOV || inst->op == IR_SELECT) // of values that are numbers or fixed NaNs
        return true;
    if (inst->type == CKL_F32)
        return arithmetic || inst->op == IR_SQRT;
    bool narrows = (inst->op == IR_CONVERT || inst->op == IR_PACK) && inst->from == CKL_F32;
    return is_in(inst->type, F16 | PAIR) && (arithmetic || narrows);
}

/* Is the first operand made odd, so that the assembler does not know too much of it? */
static bool is_made_odd(ir_op op, ir_type type)
{
    return op == IR_SHL ? type == CKL_I64 : op == IR_ABS && is_in(type, SET(CKL_I32) | SET(CKL_I64));
}

/* Constants up to the width and some beyond, of 64 bits none: ptxas 13.0 shifts a 0 or 1 by their low 6 bits. */
static val shift_amount(program *p, ir_type type)
{
    bool wide = type == CKL_I64 || type == IR_U64;
    if (chance(p, 2))
        return ir_u32(choose(p, wide ? 64 : 70));
    return ir_binary(IR_SHR, pick_register(p, IR_U32), ir_u32(1));
}

/* Operand `index` of an instruction. */
static val source(program *p, const ir_inst *inst, int index, ir_type type)
{
    const ir_op op = inst->op;
    if (index == 0 && is_made_odd(op, type))
        return ir_binary(IR_OR, pick_register(p, type), ir_int(type, 1));
    if ((op == IR_DIV || op == IR_REM) && index == 1 && !ir_type_is_float(type))
        return ir_binary(IR_OR, pick_register(p, type), ir_int(type, 1));
    if ((op == IR_SHL || op == IR_SHR) && index == 1)
        return shift_amount(p, inst->type);
    if (op == IR_SELECT && index == 1)
        return pick_register(p, type);
    return index && op != IR_PACK ? pick(p, type) : pick_register(p, type);
}

static ir_type letter_type(char letter, ir_type type, ir_type from)
{
    return register_type(letter == 't' ? type : letter == 'f' ? from : letter == 'p' ? IR_PRED : IR_U32);
}

/* 8-bit floats of a NaN have a sign or not. */
static val narrow_source(ir_type type, val x)
{
    return is_in(type, F8) ? number_of(x) : x;
}

static void append(program *p, ir_op op, ir_type type, ir_type from)
{
    val out[2], in[3];
    int out_count = 0, in_count = 0;
    ir_inst inst = { .op = op, .type = type, .from = from };
    const char *at = ir_rule_of(op)->operands;
    for (; *at != ':'; at++)
        out[out_count++] = ir_reg(letter_type(*at, type, from));
    for (at++; *at; at++, in_count++)
        in[in_count] = *at == 'c' ? constant_of(p, type)
                                  : narrow_source(type, source(p, &inst, in_count, letter_type(*at, type, from)));
    if (op == IR_COMPARE)
        inst.mode = choose(p, IR_GE + 1);
    else if ((op == IR_MIN || op == IR_MAX) && ir_type_is_float(type))
        inst.mode = choose(p, 2);
    ir_emit(inst, out_count, out, in_count, in);
    for (int i = 0; i < out_count; i++)
        keep(p, makes_fixed_nan(&inst) ? out[i] : number_of(out[i]));
}

/* One of the [type]s and [from]s that an op has. */
static void choose_types(program *p, ir_op op, ir_type *type, ir_type *from)
{
    uint16_t legal[IR_TYPE_COUNT * IR_TYPE_COUNT];
    int count = 0;
    bool one = !ir_rule_of(op)->from;
    for (int t = 0; t < IR_TYPE_COUNT; t++)
        for (int f = 0; f < (one ? 1 : IR_TYPE_COUNT); f++)
            if (fuzz_has_arithmetic(op, (ir_type)t, (ir_type)f, p->target))
                legal[count++] = (uint16_t)(t * IR_TYPE_COUNT + f);
    int which = legal[choose(p, count)];
    *type = (ir_type)(which / IR_TYPE_COUNT);
    *from = (ir_type)(which % IR_TYPE_COUNT);
}

void do_arithmetic(program *p)
{
    ir_at("arithmetic", 1);
    int count = IR_SQRT - IR_MOV + 1;
    ir_op op = chance(p, 4) ? IR_CONVERT : (ir_op)(IR_MOV + choose(p, count));
    ir_type type, from;
    choose_types(p, op, &type, &from);
    append(p, op, type, from);
}

/* A vector of inputs: 2 or 4 elements, or one of 8 bits. */
void do_input_vector(program *p)
{
    ir_at("load", 1);
    ir_type type = choose_type(p, INT8 | F8 | (REGISTERS & ~SET(IR_PRED)));
    int bytes = ir_memory_bytes(type);
    int n = 1 << choose(p, bytes >= 8 ? 2 : 3);
    val v[4];
    for (int i = 0; i < n; i++)
        v[i] = ir_reg(register_type(type));
    int64_t row = choose(p, (FUZZ_INPUT_BYTES - 16 * FUZZ_THREADS_MAX) / 16);
    ir_load(IR_GLOBAL, (ir_cache)choose(p, IR_CACHE_READONLY + 1), type, n, p->own, row * 16 - FUZZ_OWN, v);
    for (int i = 0; i < n; i++)
        keep(p, number_of(v[i]));
}
