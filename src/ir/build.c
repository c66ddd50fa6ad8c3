/* build.c - the kernel being described on this thread: errors, registers, instructions, constants, arithmetic. */
#include "ir/build_core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "ir/fold.h"

/* Ten times the longest kernel: more would take minutes to verify and assemble. */
enum { INSTRUCTIONS_MAX = 1 << 16 };

_Thread_local build_state build;

void *build_grow(void *array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    int larger = *capacity ? *capacity * 2 : 64;
    void *moved = ir_alloc((size_t)larger, size);
    if (count)
        memcpy(moved, array, (size_t)count * size);
    *capacity = larger;
    return moved;
}

void ir_describe_begin(const char *name, ir_target target)
{
    assert(!build.kernel && "a description is already under way on this thread");
    ir_kernel *kernel = heap_alloc(1, sizeof *kernel);
    *kernel = (ir_kernel){ .target = target, .cluster = 1, .threads = 32 };
    build = (build_state){ .kernel = kernel, .static_only = name == NULL, .file = "" };
    kernel->name = arena_text(&kernel->memory, name ? name : "");
    kernel->note = "";
}

void ir_describe_forget(void)
{
    build = (build_state){ 0 };
}

ckl_status ir_describe_end(ir_kernel **kernel)
{
    assert(build.kernel);
    build_check_closed();
    build_state done = build;
    build = (build_state){ 0 };
    ckl_status status = CKL_OK;
    if (done.sentence) // a kernel's fault is ours, a calculation's the user's
        status = status_fail(done.static_only ? CKL_INVALID : CKL_INTERNAL, "%s", done.sentence);
    if (kernel && status == CKL_OK)
        *kernel = done.kernel;
    else
        ir_kernel_free(done.kernel);
    return status;
}

void ir_kernel_free(ir_kernel *kernel)
{
    if (!kernel)
        return;
    arena_clear(&kernel->memory);
    heap_free(kernel);
}

ir_kernel *ir_current(void)
{
    return build.static_only ? NULL : build.kernel;
}

bool ir_failed(void)
{
    return build.sentence != NULL;
}

void ir_fail(const char *format, ...)
{
    if (ir_failed())
        return;
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (build.line) {
        text full = { 0 };
        text_printf(&full, "%s:%d: %s", build.file, build.line, sentence);
        build.sentence = arena_text(&build.kernel->memory, full.data);
        text_free(&full);
    } else {
        build.sentence = arena_text(&build.kernel->memory, sentence);
    }
}

void *ir_alloc(size_t count, size_t size)
{
    return arena_alloc(&build.kernel->memory, count, size);
}

const char *ir_text(text *from)
{
    const char *kept = arena_text(&build.kernel->memory, text_data(from));
    text_free(from);
    return kept;
}

void ir_at(const char *file, int line)
{
    build.file = file;
    build.line = line;
}

bool ir_describing(const char **kernel, const char **file, int *line)
{
    if (!build.kernel || !build.kernel->name)
        return false;
    *kernel = build.kernel->name;
    *file = build.file;
    *line = build.line;
    return true;
}

/* Registers */

static val fresh_register(ir_type type, bool variable)
{
    ir_kernel *k = build.kernel;
    int before = k->reg_capacity;
    k->reg_types = build_grow(k->reg_types, k->reg_count, &k->reg_capacity, sizeof *k->reg_types);
    build.maker = build_grow(build.maker, k->reg_count, &before, sizeof *build.maker);
    k->reg_types[k->reg_count] = type;
    build.maker[k->reg_count] = variable ? 0 : k->inst_count + 1;
    return (val){ .type = type, .reg = k->reg_count++ };
}

val ir_reg(ir_type type)
{
    return fresh_register(type, true);
}

/* A register that only the instruction under construction writes. */
static val result(ir_type type)
{
    return fresh_register(type, false);
}

const ir_inst *ir_maker(val x)
{
    const int number = ir_failed() || ir_is_constant(x) ? 0 : build.maker[x.reg];
    return number ? &build.kernel->insts[number - 1] : NULL;
}

/* x itself if it can never change, else a copy taken now. */
static val snapshot(val x)
{
    if (ir_is_constant(x) || build.maker[x.reg])
        return x;
    val copy = result(x.type);
    ir_assign(copy, x);
    return copy;
}

/* Instructions */

static val *copy_operands(int count, const val *operands)
{
    if (!count)
        return NULL;
    val *copy = ir_alloc((size_t)count, sizeof *copy);
    memcpy(copy, operands, (size_t)count * sizeof *copy);
    return copy;
}

ir_inst *ir_emit(ir_inst inst, int out_count, const val *out, int in_count, const val *in)
{
    static ir_inst ignored;
    if (build.static_only)
        ir_fail("a static value was expected: there is no kernel to compute %s in", ir_op_text(inst.op));
    ir_kernel *k = build.kernel;
    if (!ir_failed() && k->inst_count == INSTRUCTIONS_MAX)
        ir_fail("the kernel has grown to %d instructions: a loop of C should be one of the kernel", INSTRUCTIONS_MAX);
    if (ir_failed())
        return &ignored;
    if (ir_op_class(inst.op) == IR_CONTROL)
        build_share_forget();
    k->insts = build_grow(k->insts, k->inst_count, &k->inst_capacity, sizeof *k->insts);
    inst.out_count = out_count;
    inst.in_count = in_count;
    inst.out = copy_operands(out_count, out);
    inst.in = copy_operands(in_count, in);
    inst.file = build.file;
    inst.line = build.line;
    k->insts[k->inst_count] = inst;
    return &k->insts[k->inst_count++];
}

/* An instruction with one result of its own. */
val build_value(ir_inst inst, ir_type type, int in_count, const val *in)
{
    val out;
    int *slot;
    if (build_share_find(&inst, in_count, in, &slot, &out))
        return out;
    out = result(type);
    ir_emit(inst, 1, &out, in_count, in);
    if (slot && !ir_failed())
        *slot = build.kernel->inst_count;
    return out;
}

void build_effect(ir_inst inst, int in_count, const val *in)
{
    ir_emit(inst, 0, NULL, in_count, in);
}

void ir_plain(ir_op op, int n, int mode)
{
    build_effect((ir_inst){ .op = op, .n = n, .mode = mode }, 0, NULL);
}

void ir_assign(val reg, val x)
{
    x = ir_coerce(reg.type, x);
    ir_emit((ir_inst){ .op = IR_MOV, .type = reg.type }, 1, &reg, 1, &x);
}

/* Constants */

val ir_int(ir_type type, int64_t i)
{
    if (type == CKL_F32 || type == CKL_F16 || type == CKL_BF16)
        return ir_float(type, (double)i);
    if (type == CKL_I32)
        i = (int32_t)i;
    else if (type == IR_U32)
        i = (int64_t)(uint32_t)i;
    else if (type == IR_U16)
        i = (uint16_t)i;
    else if (type == IR_PRED)
        i = i != 0;
    return (val){ .type = type, .reg = IR_CONSTANT, .i = i };
}

val ir_u32(int64_t i)
{
    return ir_int(IR_U32, i);
}

val ir_float(ir_type type, double f)
{
    if (type == CKL_F32)
        f = (double)(float)f;
    return (val){ .type = type, .reg = IR_CONSTANT, .f = f };
}

bool ir_is_int(val v, int64_t i)
{
    return ir_is_constant(v) && (v.type == IR_PRED || !ir_type_is_float(v.type)) && v.i == i;
}

/* Whether an integer type holds the constant, as a signed or as an unsigned number. */
static bool holds(ir_type type, int64_t i)
{
    int bits = type == IR_PRED ? 1 : 8 * ir_type_bytes(type);
    return bits == 64 || (i >= -((int64_t)1 << (bits - 1)) && i < (int64_t)1 << bits);
}

val ir_coerce(ir_type type, val v)
{
    if (v.type == type)
        return v;
    if (v.type == CKL_DTYPE_DEFAULT) {
        ir_fail("a value is used that was never made");
        return ir_int(type, 0);
    }
    if (ir_is_constant(v) && !ir_type_is_pair(type) && !ir_type_is_pair(v.type)) {
        bool is_float = ir_type_is_float(v.type);
        if (ir_type_is_float(type))
            return ir_float(type, is_float ? v.f : (double)v.i);
        if (!is_float) {
            if (!holds(type, v.i))
                ir_fail("the constant %" PRId64 " does not fit %s", v.i, ir_type_text(type));
            return ir_int(type, v.i);
        }
    }
    ir_fail("%s where %s is expected; convert() changes types", ir_type_text(v.type), ir_type_text(type));
    return ir_int(type, 0);
}

/* The type that two operands share: that of the register, if one is a constant. */
static ir_type common_type(val x, val y)
{
    if (ir_is_constant(x) && !ir_is_constant(y))
        return y.type;
    if (ir_is_constant(x) && ir_type_is_float(y.type)) // two constants: the float wins
        return y.type;
    return x.type;
}

/* Folding (fold.c) and simplifying */

/* x op y with a constant y that makes the operation trivial; false: it is not. */
static bool simplify(ir_op op, val x, val y, val *out)
{
    bool zero = ir_is_int(y, 0), one = ir_is_int(y, 1) && y.type != IR_PRED;
    bool same =
        ((op == IR_ADD || op == IR_SUB || op == IR_SHL || op == IR_SHR || op == IR_OR || op == IR_XOR) && zero) ||
        ((op == IR_MUL || op == IR_DIV) && one);
    if (same) {
        *out = snapshot(x);
        return true;
    }
    if (((op == IR_MUL || op == IR_AND) && zero) || (op == IR_REM && one)) {
        *out = ir_int(x.type, 0);
        return true;
    }
    if (x.type == IR_PRED && ir_is_int(y, 1) && (op == IR_AND || op == IR_OR)) {
        *out = op == IR_AND ? snapshot(x) : y;
        return true;
    }
    return false;
}

static bool is_commutative(ir_op op)
{
    return op == IR_ADD || op == IR_MUL || op == IR_AND || op == IR_OR || op == IR_XOR || op == IR_MIN || op == IR_MAX;
}

/* Arithmetic */

val ir_unary(ir_op op, val x)
{
    if (op == IR_NEG && ir_is_constant(x) && !ir_type_is_pair(x.type))
        return ir_type_is_float(x.type) ? ir_float(x.type, -x.f) : ir_int(x.type, (int64_t)(0 - (uint64_t)x.i));
    if (op == IR_NOT && ir_is_constant(x))
        return ir_int(x.type, x.type == IR_PRED ? !x.i : ~x.i);
    return build_value((ir_inst){ .op = op, .type = x.type }, x.type, 1, &x);
}

val ir_unary_ftz(ir_op op, val x)
{
    return build_value((ir_inst){ .op = op, .type = x.type, .mode = 1 }, x.type, 1, &x);
}

val ir_binary(ir_op op, val x, val y)
{
    bool shift = op == IR_SHL || op == IR_SHR;
    ir_type type = shift ? x.type : common_type(x, y);
    x = ir_coerce(type, x);
    y = shift ? (ir_is_constant(y) ? ir_coerce(IR_U32, y) : y) : ir_coerce(type, y);
    if (ir_failed())
        return ir_int(type, 0);
    if (ir_is_constant(x) && !ir_is_constant(y) && is_commutative(op)) {
        val swap = x;
        x = y;
        y = swap;
    }
    val simple;
    int64_t folded;
    if (!ir_type_is_float(type)) {
        if (ir_is_constant(x) && ir_is_constant(y) && fold_int(op, x, y, &folded))
            return ir_int(type, folded);
        if (simplify(op, x, y, &simple) || build_division(op, x, y, &simple))
            return simple;
    }
    return build_value((ir_inst){ .op = op, .type = type }, type, 2, (val[]){ x, y });
}

val ir_binary_nan(ir_op op, val x, val y)
{
    ir_type type = common_type(x, y);
    val in[] = { ir_coerce(type, x), ir_coerce(type, y) };
    return build_value((ir_inst){ .op = op, .type = type, .mode = 1 }, type, 2, in);
}

val ir_fma(val x, val y, val z)
{
    ir_type type = common_type(ir_is_constant(x) ? y : x, z);
    if (ir_is_constant(x) && ir_is_constant(y) && !ir_type_is_float(type))
        return ir_binary(IR_ADD, ir_binary(IR_MUL, x, y), z);
    val in[] = { ir_coerce(type, x), ir_coerce(type, y), ir_coerce(type, z) };
    return build_value((ir_inst){ .op = IR_FMA, .type = type }, type, 3, in);
}

/* By one instruction where ptxas would make two of AND and OR; of others it makes one. */
val ir_and_or(val x, val y, val z)
{
    const val in[] = { ir_coerce(IR_U32, x), ir_coerce(IR_U32, y), ir_coerce(IR_U32, z) };
    if (ir_is_constant(in[0]) || !ir_is_constant(in[1]) || !ir_is_constant(in[2]))
        return ir_binary(IR_OR, ir_binary(IR_AND, in[0], in[1]), in[2]);
    return build_value((ir_inst){ .op = IR_AND_OR, .type = IR_U32 }, IR_U32, 3, in);
}

val ir_permute_bytes(val x, val y, val selector)
{
    val in[] = { ir_coerce(IR_U32, x), ir_coerce(IR_U32, y), ir_coerce(IR_U32, selector) };
    return build_value((ir_inst){ .op = IR_PRMT, .type = IR_U32 }, IR_U32, 3, in);
}

val ir_compare(ir_compare_kind how, val x, val y)
{
    ir_type type = common_type(x, y);
    x = ir_coerce(type, x);
    y = ir_coerce(type, y);
    if (ir_is_constant(x) && ir_is_constant(y) && !ir_type_is_float(type))
        return ir_int(IR_PRED, fold_compare(how, x, y));
    return build_value((ir_inst){ .op = IR_COMPARE, .type = type, .mode = (int)how }, IR_PRED, 2, (val[]){ x, y });
}

val ir_select(val p, val x, val y)
{
    ir_type type = common_type(x, y);
    x = ir_coerce(type, x);
    y = ir_coerce(type, y);
    if (ir_is_constant(p))
        return snapshot(p.i ? x : y);
    return build_value((ir_inst){ .op = IR_SELECT, .type = type }, type, 3, (val[]){ p, x, y });
}

val ir_convert(ir_type type, val x)
{
    if (x.type == type)
        return snapshot(x);
    if (type == CKL_E4M3 || type == CKL_E5M2)
        return build_value((ir_inst){ .op = IR_CONVERT, .type = type, .from = x.type }, IR_U16, 1, &x);
    bool narrow_float = type == CKL_F16 || type == CKL_BF16 || x.type == CKL_F16 || x.type == CKL_BF16;
    if (ir_is_constant(x) && !ir_type_is_float(x.type) && !ir_type_is_float(type))
        return ir_int(type, x.i); // wraps
    if (ir_is_constant(x) && !narrow_float && (!ir_type_is_float(x.type) || ir_type_is_float(type)))
        return ir_coerce(type, x);
    return build_value((ir_inst){ .op = IR_CONVERT, .type = type, .from = x.type }, type, 1, &x);
}

val ir_f16x2_of(ir_type from, val x)
{
    return build_value((ir_inst){ .op = IR_CONVERT, .type = IR_F16X2, .from = from }, IR_F16X2, 1, &x);
}

val ir_bitcast(ir_type type, val x)
{
    if (x.type == type)
        return snapshot(x);
    if (ir_type_bytes(type) != ir_type_bytes(x.type))
        ir_fail("bitcast of %s to %s changes the width", ir_type_text(x.type), ir_type_text(type));
    return build_value((ir_inst){ .op = IR_BITCAST, .type = type, .from = x.type }, type, 1, &x);
}

val ir_pack(ir_type pair, val lo, val hi)
{
    ir_type from = common_type(lo, hi);
    val in[] = { ir_coerce(from, lo), ir_coerce(from, hi) };
    return build_value((ir_inst){ .op = IR_PACK, .type = pair, .from = from }, pair, 2, in);
}

void ir_unpack(val x, ir_type type, val *lo, val *hi)
{
    val out[] = { result(type), result(type) };
    ir_emit((ir_inst){ .op = IR_UNPACK, .type = type, .from = x.type }, 2, out, 1, &x);
    *lo = out[0];
    *hi = out[1];
}

val ir_sreg(ir_sreg_kind which)
{
    return build_value((ir_inst){ .op = IR_SREG, .type = IR_U32, .mode = (int)which }, IR_U32, 0, NULL);
}
