/* int_tuple.c - nested integer tuples: trees in the arena of the description under way. */
#include "cute/int_tuple.h"

static const struct int_tuple_node wildcard_node = { .rank = INT_TUPLE_LEAF,
                                                     .leaf = { .type = CKL_I64, .reg = IR_CONSTANT } };
const int_tuple WILDCARD = &wildcard_node;

/* Construction */

static struct int_tuple_node *new_node(int rank)
{
    size_t modes = rank > 0 ? (size_t)rank : 0;
    struct int_tuple_node *node = ir_alloc(1, sizeof *node + modes * sizeof(int_tuple));
    node->rank = rank;
    return node;
}

int_tuple dynamic(val v)
{
    struct int_tuple_node *node = new_node(INT_TUPLE_LEAF);
    node->leaf = v;
    return node;
}

int_tuple leaf(int64_t i)
{
    return dynamic(ir_int(CKL_I64, i));
}

int_tuple tuple_of(int rank, const int_tuple *modes)
{
    if (rank > INT_TUPLE_RANK_MAX) {
        ir_fail("a tuple of %d modes: at most %d are supported", rank, INT_TUPLE_RANK_MAX);
        rank = INT_TUPLE_RANK_MAX;
    }
    struct int_tuple_node *node = new_node(rank);
    for (int i = 0; i < rank; i++)
        node->modes[i] = modes[i];
    return node;
}

int_tuple ints_of(int rank, const int64_t *values)
{
    int_tuple modes[INT_TUPLE_RANK_MAX];
    int count = (int)min_i64(rank, INT_TUPLE_RANK_MAX);
    for (int i = 0; i < count; i++)
        modes[i] = leaf(values[i]);
    return tuple_of(count, modes);
}

/* Structure */

bool is_leaf(int_tuple t)
{
    return t->rank == INT_TUPLE_LEAF;
}

int tuple_rank(int_tuple t)
{
    return is_leaf(t) ? 1 : t->rank;
}

int tuple_depth(int_tuple t)
{
    int depth = 0;
    for (int i = 0; i < t->rank; i++)
        depth = (int)max_i64(depth, tuple_depth(t->modes[i]));
    return is_leaf(t) ? 0 : depth + 1;
}

int_tuple tuple_mode(int_tuple t, int i)
{
    if (i < 0 || i >= tuple_rank(t)) {
        ir_fail("mode %d of a tuple of %d", i, tuple_rank(t));
        return leaf(1);
    }
    return is_leaf(t) ? t : t->modes[i];
}

bool is_static(int_tuple t)
{
    for (int i = 0; i < t->rank; i++)
        if (!is_static(t->modes[i]))
            return false;
    return !is_leaf(t) || ir_is_constant(t->leaf);
}

int64_t static_leaf(int_tuple t)
{
    if (!is_leaf(t) || !ir_is_constant(t->leaf)) {
        ir_fail("a static integer was expected, not a %s", is_leaf(t) ? "dynamic one" : "tuple");
        return 1;
    }
    return t->leaf.i;
}

bool congruent(int_tuple a, int_tuple b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (!congruent(a->modes[i], b->modes[i]))
            return false;
    return true;
}

static void collect_leaves(int_tuple t, int *count, int_tuple *leaves)
{
    if (is_leaf(t)) {
        if (*count < INT_TUPLE_RANK_MAX)
            leaves[*count] = t;
        ++*count;
    }
    for (int i = 0; i < t->rank; i++)
        collect_leaves(t->modes[i], count, leaves);
}

int_tuple flatten_tuple(int_tuple t)
{
    int_tuple leaves[INT_TUPLE_RANK_MAX];
    int count = 0;
    collect_leaves(t, &count, leaves);
    return tuple_of(count, leaves);
}

static int_tuple take_leaves(int_tuple flat, int_tuple profile, int *next)
{
    if (is_leaf(profile))
        return tuple_mode(flat, (*next)++);
    int_tuple modes[INT_TUPLE_RANK_MAX];
    for (int i = 0; i < profile->rank; i++)
        modes[i] = take_leaves(flat, profile->modes[i], next);
    return tuple_of(profile->rank, modes);
}

int_tuple unflatten_tuple(int_tuple flat, int_tuple profile)
{
    int next = 0;
    return take_leaves(flat, profile, &next);
}

int_tuple append_mode(int_tuple t, int_tuple mode)
{
    int_tuple modes[INT_TUPLE_RANK_MAX + 1];
    int count = tuple_rank(t);
    for (int i = 0; i < count; i++)
        modes[i] = tuple_mode(t, i);
    modes[count] = mode;
    return tuple_of(count + 1, modes);
}

int_tuple take_modes(int_tuple t, int begin, int end)
{
    int_tuple modes[INT_TUPLE_RANK_MAX];
    int count = 0;
    for (int i = begin; i < end && count < INT_TUPLE_RANK_MAX; i++)
        modes[count++] = tuple_mode(t, i);
    return tuple_of(count, modes);
}

/* Arithmetic */

static bool is_wide(val v)
{
    return v.type == CKL_I64 || v.type == IR_U64;
}

/* The type that two operands, at least one a register, are computed in: signed where they differ. */
static ir_type common_type(val x, val y)
{
    if (ir_is_constant(y))
        return is_wide(x) || y.i == (int32_t)y.i ? x.type : CKL_I64;
    if (ir_is_constant(x))
        return common_type(y, x);
    if (x.type == y.type)
        return x.type;
    return is_wide(x) || is_wide(y) ? CKL_I64 : CKL_I32;
}

static val emit(ir_op op, val x, val y)
{
    ir_type type = common_type(x, y);
    return ir_binary(op, ir_convert(type, x), ir_convert(type, y));
}

static bool both_static(val x, val y)
{
    return ir_is_constant(x) && ir_is_constant(y);
}

static val checked(bool overflow, const char *op, val x, val y, int64_t result)
{
    if (overflow)
        ir_fail("%" PRId64 "%s%" PRId64 " does not fit 64 bits", x.i, op, y.i);
    return ir_int(CKL_I64, overflow ? 1 : result);
}

val int_add(val x, val y)
{
    int64_t sum = 0;
    if (!both_static(x, y))
        return ir_is_int(x, 0) ? y : ir_is_int(y, 0) ? x : emit(IR_ADD, x, y);
    bool overflow = __builtin_add_overflow(x.i, y.i, &sum);
    return checked(overflow, "+", x, y, sum);
}

val int_mul(val x, val y)
{
    int64_t product = 0;
    if (ir_is_int(x, 0) || ir_is_int(y, 0))
        return ir_int(CKL_I64, 0);
    if (!both_static(x, y))
        return ir_is_int(x, 1) ? y : ir_is_int(y, 1) ? x : emit(IR_MUL, x, y);
    bool overflow = __builtin_mul_overflow(x.i, y.i, &product);
    return checked(overflow, "*", x, y, product);
}

static bool is_zero_divisor(val y)
{
    if (ir_is_int(y, 0))
        ir_fail("division by a mode of size 0");
    return ir_is_int(y, 0);
}

val int_div(val x, val y)
{
    if (is_zero_divisor(y) || ir_is_int(y, 1) || ir_is_int(x, 0))
        return x;
    if (both_static(x, y))
        return ir_int(CKL_I64, y.i == -1 ? int_mul(x, y).i : x.i / y.i);
    if (ir_is_constant(y) && is_power_of_two(y.i))
        return ir_binary(IR_SHR, x, ir_u32(log2_i64(y.i)));
    return emit(IR_DIV, x, y);
}

val int_mod(val x, val y)
{
    if (is_zero_divisor(y) || ir_is_int(y, 1) || ir_is_int(x, 0))
        return ir_int(CKL_I64, 0);
    if (both_static(x, y))
        return ir_int(CKL_I64, y.i == -1 ? 0 : x.i % y.i);
    if (ir_is_constant(y) && is_power_of_two(y.i))
        return emit(IR_AND, x, ir_int(CKL_I64, y.i - 1));
    return emit(IR_REM, x, y);
}

val int_ceil_div(val x, val y)
{
    if (is_zero_divisor(y) || ir_is_int(y, 1))
        return x;
    if (both_static(x, y) && x.i >= 0 && y.i > 0)
        return ir_int(CKL_I64, ceil_div(x.i, y.i));
    return int_div(int_add(x, int_add(y, ir_int(CKL_I64, -1))), y);
}

bool int_same(val x, val y)
{
    return both_static(x, y) ? x.i == y.i : !ir_is_constant(x) && x.reg == y.reg;
}

val tuple_product(int_tuple t)
{
    if (is_leaf(t))
        return t->leaf;
    val product = ir_int(CKL_I64, 1);
    for (int i = 0; i < t->rank; i++)
        product = int_mul(product, tuple_product(t->modes[i]));
    return product;
}

/* Text */

void tuple_print(int_tuple t, text *out)
{
    if (t == WILDCARD)
        text_printf(out, "_");
    else if (is_leaf(t) && ir_is_constant(t->leaf))
        text_printf(out, "%" PRId64, t->leaf.i);
    else if (is_leaf(t))
        text_printf(out, "?");
    if (is_leaf(t))
        return;
    text_printf(out, "(");
    for (int i = 0; i < t->rank; i++) {
        if (i)
            text_printf(out, ",");
        tuple_print(t->modes[i], out);
    }
    text_printf(out, ")");
}

const char *tuple_text(int_tuple t)
{
    text out = { 0 };
    tuple_print(t, &out);
    return ir_text(&out);
}
