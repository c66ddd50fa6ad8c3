/* tiled_copy.c - thread-value layouts of copies, partitions, and the atoms executed. */
#include "cute/tiled_copy.h"

#include <stdio.h>

#include "cute/layout_core.h"
#include "cute/vectors.h"

/* Construction */

static int element_bits(const tiled_copy *c)
{
    return 8 * ir_memory_bytes(c->dtype);
}

/* (THREAD,VALUE) of the atom in elements. */
static layout in_elements(const tiled_copy *c, layout bits)
{
    return recast_layout(bits, 1, element_bits(c));
}

static layout source_of(const tiled_copy *c)
{
    return in_elements(c, copy_atom_layout_source(&c->atom));
}

static layout destination_of(const tiled_copy *c)
{
    return in_elements(c, copy_atom_layout_destination(&c->atom));
}

/* The side in whose order the values of a tiled copy are numbered: that of the registers. */
static layout reference_of(const tiled_copy *c)
{
    return c->atom.op == IR_LDMATRIX ? destination_of(c) : source_of(c);
}

static tiled_copy make(const char *atom, ckl_dtype dtype, layout tv, int_tuple tile)
{
    tiled_copy c = { .dtype = dtype, .tv = tv, .tile = tile };
    if (!copy_atom_find(atom, &c.atom)) {
        ir_fail("there is no copy atom %s", atom);
    } else if (!c.atom.source) {
        ir_fail("%s: one thread copies whole tiles, by tma_load(), tma_store(), bulk_load(), bulk_store()", atom);
    } else if (!ir_failed()) {
        layout ref = reference_of(&c);
        if (static_size(layout_mode(tv, 0)) % static_size(layout_mode(ref, 0)) ||
            static_size(layout_mode(tv, 1)) % static_size(layout_mode(ref, 1)))
            ir_fail("%s does not tile threads and values: they are %s", atom, layout_text(tv));
    }
    return c;
}

const char *universal_copy(ckl_dtype dtype, int elements)
{
    char *name = ir_alloc(ATOM_NAME_MAX, 1);
    snprintf(name, ATOM_NAME_MAX, "UniversalCopy<%d>", 8 * ir_memory_bytes(dtype) * elements);
    return name;
}

tiled_copy make_tiled_copy(const char *atom, ckl_dtype dtype, layout threads, layout values)
{
    layout tile = raked_product(threads, values); // coordinates -> thread + THREADS * value
    int_tuple sizes[LAYOUT_MODES_MAX];
    for (int i = 0; i < rank(tile); i++)
        sizes[i] = leaf(static_size(layout_mode(tile, i)));
    layout numbers = compact(shape(static_size(threads), static_size(values)));
    return make(atom, dtype, composition(right_inverse(tile), numbers), tuple_of(rank(tile), sizes));
}

tiled_copy make_tiled_copy_A(const char *atom, ckl_dtype dtype, const tiled_mma *mma, int m, int k)
{
    return make(atom, dtype, mma_thread_values(mma, MMA_A, m, k), shape(m, k));
}

tiled_copy make_tiled_copy_B(const char *atom, ckl_dtype dtype, const tiled_mma *mma, int n, int k)
{
    return make(atom, dtype, mma_thread_values(mma, MMA_B, n, k), shape(n, k));
}

tiled_copy make_tiled_copy_C(const char *atom, ckl_dtype dtype, const tiled_mma *mma, int m, int n)
{
    return make(atom, dtype, mma_thread_values(mma, MMA_C, m, n), shape(m, n));
}

/* Partitions */

/* (THREADS,(ATOM,REST)) -> tile, where threads and values are those of one side of the atom: CuTe's tile2thrfrg. */
static layout thread_values(const tiled_copy *c, layout side)
{
    layout ref = reference_of(c);
    layout tiler[] = { compact(leaf(static_size(layout_mode(ref, 0)))),
                       compact(leaf(static_size(layout_mode(ref, 1)))) };
    layout divided = zipped_divide_by_mode(c->tv, 2, tiler); // ((THREAD,VALUE),(REST_THREADS,REST_VALUES))
    layout atom = composition(layout_mode(divided, 0), composition(right_inverse(ref), side));
    layout rest = layout_mode(divided, 1);
    layout threads = layouts_of(2, (layout[]){ layout_mode(atom, 0), layout_mode(rest, 0) });
    layout values = layouts_of(2, (layout[]){ coalesce(layout_mode(atom, 1)), coalesce(layout_mode(rest, 1)) });
    return layouts_of(2, (layout[]){ coalesce(threads), values });
}

static void check_tiles_divide(const tiled_copy *c, tensor t)
{
    int modes = tuple_rank(c->tile);
    bool divides = t.memory != SMEM || rank(t.layout) >= modes;
    for (int i = 0; i < modes && divides && t.memory == SMEM; i++)
        divides = static_size(layout_mode(t.layout, i)) % static_leaf(tuple_mode(c->tile, i)) == 0;
    if (divides || ir_failed())
        return;
    ir_fail("%s does not tile %s: it must consist of tiles of %s", c->atom.name, tensor_text(t), tuple_text(c->tile));
}

static tensor partition(const tiled_copy *c, layout side, tensor t, val tid)
{
    layout tiler[LAYOUT_MODES_MAX], modes[LAYOUT_MODES_MAX];
    int_tuple mine[LAYOUT_MODES_MAX] = { dynamic(tid), WILDCARD };
    int tiled = tuple_rank(c->tile);
    check_tiles_divide(c, t);
    if (ir_failed())
        return t;
    for (int i = 0; i < tiled; i++)
        tiler[i] = compact(tuple_mode(c->tile, i));
    layout divided = zipped_divide_by_mode(without_swizzle(t.layout), tiled, tiler); // ((TILE...),(REST...))
    layout fragments = composition(layout_mode(divided, 0), thread_values(c, side)), rest = layout_mode(divided, 1);
    modes[0] = layout_mode(fragments, 0);
    modes[1] = layout_mode(fragments, 1);
    for (int i = 0; i < rank(rest); i++) {
        modes[2 + i] = layout_mode(rest, i);
        mine[2 + i] = WILDCARD;
    }
    swizzle sw = t.layout.sw;
    t.layout = layouts_of(2 + rank(rest), modes);
    t.layout.sw = sw;
    return tensor_slice(t, tuple_of(2 + rank(rest), mine));
}

tensor partition_S(const tiled_copy *c, tensor t, val tid)
{
    return ir_failed() ? t : partition(c, source_of(c), t, tid);
}

tensor partition_D(const tiled_copy *c, tensor t, val tid)
{
    return ir_failed() ? t : partition(c, destination_of(c), t, tid);
}

/* Predicates */

static val all_of(val p, val q)
{
    return ir_is_int(p, 1) ? q : ir_is_int(q, 1) ? p : ir_binary(IR_AND, p, q);
}

/* Both in the wider of their types. */
static void same_type(val *at, val *limit)
{
    bool wider = ir_type_bytes(limit->type) > ir_type_bytes(at->type);
    if (ir_is_constant(*at) || ir_is_constant(*limit))
        return;
    if (wider)
        *at = ir_convert(limit->type, *at);
    else
        *limit = ir_convert(at->type, *limit);
}

static val is_below(val at, val limit)
{
    if (ir_is_constant(limit) && ir_is_constant(at))
        return ir_int(IR_PRED, at.i < limit.i);
    same_type(&at, &limit);
    return ir_compare(IR_LT, at, limit);
}

static int_tuple limit_of(int_tuple limits, int mode)
{
    return is_leaf(limits) ? limits : tuple_mode(limits, mode);
}

val inside_limits(tensor cX, int_tuple limits, int64_t i)
{
    val inside = ir_int(IR_PRED, 1);
    for (int m = 0; m < cX.modes && limits; m++) {
        int_tuple limit = limit_of(limits, m);
        if (limit != WILDCARD)
            inside = all_of(inside, is_below(tensor_coordinate(cX, leaf(i), m), limit->leaf));
    }
    return inside;
}

/* Execution */

/* A copy under way: `count` instructions, which take from_values of a thread's source and give to_values. */
typedef struct execution {
    const tiled_copy *copy;
    tensor from, to, cX;
    int_tuple limits; // NULL: none
    double fill;
    int64_t from_values, to_values, count;
    bool is_stepped; // the memory's layout is dynamic, and its vectors lie at one distance from each other:
    val distance;    // bytes
} execution;

static val guard_of(const execution *x, int64_t i)
{
    return x->limits ? inside_limits(x->cX, x->limits, i * x->from_values) : ir_int(IR_PRED, 1);
}

/* A tensor whose vectors lie a dynamic distance apart: (VALUES,VECTORS):(1,?). Elsewhere there is no distance. */
static bool find_distance(tensor t, int64_t values, val *distance)
{
    flat_layout f = flat_coalesced(t.layout);
    int last = f.count - 1;
    if (layout_is_static(t.layout) || last > 1 || (last == 1 && !ir_is_int(f.stride[0], 1)))
        return false;
    if (!ir_is_int(last ? f.shape[0] : ir_int(CKL_I64, 1), values))
        return false;
    *distance = ir_convert(IR_U64, int_mul(f.stride[last], ir_int(CKL_I64, ir_memory_bytes(t.dtype))));
    return true;
}

static bool begins_with_vectors(layout a, int64_t values)
{
    flat_layout f = flat_coalesced(a);
    return values == 1 || (ir_is_int(f.stride[0], 1) && ir_is_constant(f.shape[0]) && f.shape[0].i % values == 0);
}

/*
 * Do the values of each instruction lie side by side in memory, at multiples of their number? Where strides are
 * dynamic, the caller promises the multiples.
 */
static void check_vectors(const execution *x, tensor t, int64_t values)
{
    layout plain = without_swizzle(t.layout);
    bool is_static = layout_is_static(plain), fits = is_static || begins_with_vectors(plain, values);
    for (int64_t i = 0; is_static && i < static_size(plain) && fits; i++) {
        int64_t start = index_at(plain, i - i % values);
        fits = index_at(plain, i) == start + i % values && start % values == 0;
    }
    if (!fits && !ir_failed())
        ir_fail("%s: a thread's part is %s; it must consist of vectors (%d):(1)", x->copy->atom.name, tensor_text(t),
                (int)values);
}

/* Vector i; *before is the one before it, in memory of dynamic distances. */
static vector_at vector_of(const execution *x, tensor t, int64_t values, int64_t i, const vector_at *before)
{
    vector_at at = { .guard = guard_of(x, i) };
    if (layout_is_static(t.layout))
        at.address = tensor_address_near(t, i * values, &at.offset);
    else if (x->is_stepped)
        at.address = i == 0 ? t.address : ir_binary(IR_ADD, before->address, x->distance);
    else
        at.address = tensor_address(t, leaf(i * values));
    return at;
}

static val *registers_of(tensor rT)
{
    int64_t count = static_size(rT.layout);
    val *regs = ir_alloc((size_t)count, sizeof *regs);
    for (int64_t i = 0; i < count; i++)
        regs[i] = rT.regs[index_at(rT.layout, i)];
    return regs;
}

static void run_load(const execution *x)
{
    vector_at *at = ir_alloc((size_t)x->count, sizeof *at);
    for (int64_t i = 0; i < x->count; i++)
        at[i] = vector_of(x, x->from, x->from_values, i, at + i - 1);
    vectors_load(at, (int)x->count, (int)x->from_values, x->from, registers_of(x->to), x->fill);
}

static void run_store(const execution *x)
{
    const val *regs = registers_of(x->from);
    vector_at at = { 0 };
    for (int64_t i = 0; i < x->count; i++) {
        at = vector_of(x, x->to, x->to_values, i, &at);
        vector_store(&at, (int)x->to_values, regs + i * x->from_values, x->to);
    }
}

/* The mode along which the elements of vector i lie; -1: none, or without a limit. */
static int mode_of_vector(const execution *x, int64_t i)
{
    int64_t first = i * x->from_values, last = first + x->from_values - 1;
    for (int m = 0; m < x->cX.modes && x->limits && last > first; m++) {
        layout distances = coordinate_distances(x->cX, m);
        if (limit_of(x->limits, m) != WILDCARD &&
            index_at(distances, last) - index_at(distances, first) == last - first)
            return m;
    }
    return -1;
}

/* The bytes of vector i that are inside. cp.async can cut a vector off wherever the edge is. */
static val bytes_inside(const execution *x, int64_t i, val guard)
{
    int64_t n = x->from_values, bytes = x->copy->atom.bits / 8;
    int mode = mode_of_vector(x, i);
    val inside = ir_u32(bytes);
    if (mode >= 0) {
        val at = tensor_coordinate(x->cX, leaf(i * n), mode), limit = limit_of(x->limits, mode)->leaf;
        same_type(&at, &limit);
        val left = ir_convert(IR_U32, ir_binary(IR_MIN, ir_binary(IR_SUB, limit, at), ir_int(CKL_I64, n)));
        inside = ir_binary(IR_MUL, left, ir_u32(bytes / n));
    }
    return ir_select(guard, inside, ir_u32(0));
}

static void run_cp_async(const execution *x)
{
    vector_at from = { 0 }, to;
    for (int64_t i = 0; i < x->count; i++) {
        from = vector_of(x, x->from, x->from_values, i, &from);
        to.address = tensor_address_near(x->to, i * x->to_values, &to.offset);
        val global = ir_binary(IR_ADD, from.address, ir_int(IR_U64, from.offset));
        ir_cp_async(to.address, to.offset, global, x->copy->atom.bits / 8, bytes_inside(x, i, from.guard));
    }
}

static words matrix_words(const execution *x)
{
    words w = words_of(x->copy->dtype, 4 / ir_memory_bytes(x->copy->dtype));
    w.n = x->copy->atom.n;
    return w;
}

static void run_ldmatrix(const execution *x)
{
    const copy_atom *atom = &x->copy->atom;
    const val *regs = registers_of(x->to);
    for (int64_t i = 0; i < x->count; i++) {
        val loaded[4];
        vector_at from = vector_of(x, x->from, x->from_values, i, NULL);
        bool packed = x->to.dtype == IR_U32;
        for (int j = 0; j < atom->n; j++)
            loaded[j] = packed ? regs[i * atom->n + j] : ir_reg(IR_U32);
        ir_ldmatrix(atom->n, atom->transpose, from.address, from.offset, loaded);
        if (packed)
            continue;
        words w = matrix_words(x);
        for (int j = 0; j < atom->n; j++)
            loaded[j] = ir_bitcast(w.type, loaded[j]);
        words_unpack(w, loaded, x->copy->dtype, regs + i * x->to_values);
    }
}

static void run_stmatrix(const execution *x)
{
    const copy_atom *atom = &x->copy->atom;
    const val *regs = registers_of(x->from);
    for (int64_t i = 0; i < x->count; i++) {
        val stored[4];
        vector_at to = vector_of(x, x->to, x->to_values, i, NULL);
        words_pack(matrix_words(x), x->copy->dtype, regs + i * x->from_values, stored);
        for (int j = 0; j < atom->n; j++)
            stored[j] = ir_bitcast(IR_U32, stored[j]);
        ir_stmatrix(atom->n, atom->transpose, to.address, to.offset, stored);
    }
}

static void run_plain(const execution *x)
{
    (x->to.memory == RMEM ? run_load : run_store)(x);
}

/* Between which memories an atom copies, in any order. A plain one may also go the other way, and to or from global. */
static const struct way {
    ir_op op;
    tensor_memory from, to;
    bool predicated;
    void (*run)(const execution *x);
} ways[] = {
    { IR_LD, GMEM, RMEM, true, run_plain },           { IR_LD, SMEM, RMEM, true, run_plain },
    { IR_LD, RMEM, GMEM, true, run_plain },           { IR_LD, RMEM, SMEM, true, run_plain },
    { IR_CP_ASYNC, GMEM, SMEM, true, run_cp_async },  { IR_LDMATRIX, SMEM, RMEM, false, run_ldmatrix },
    { IR_STMATRIX, RMEM, SMEM, false, run_stmatrix },
};

static const struct way *way_of(const execution *x)
{
    for (const struct way *w = ways; w < ways + COUNT_OF(ways); w++)
        if (w->op == x->copy->atom.op && w->from == x->from.memory && w->to == x->to.memory)
            return w;
    return NULL;
}

/* Is each side as many instructions as the other? */
static bool count_instructions(execution *x)
{
    x->from_values = static_size(layout_mode(source_of(x->copy), 1));
    x->to_values = static_size(layout_mode(destination_of(x->copy), 1));
    if (x->copy->atom.op == IR_LDMATRIX && x->to.dtype == IR_U32)
        x->to_values = x->copy->atom.n;
    if (!is_static(x->from.layout.shape) || !is_static(x->to.layout.shape))
        return false;
    x->is_stepped =
        find_distance(x->from, x->from_values, &x->distance) || find_distance(x->to, x->to_values, &x->distance);
    int64_t from = static_size(x->from.layout), to = static_size(x->to.layout);
    x->count = from / x->from_values;
    return from % x->from_values == 0 && to == x->count * x->to_values;
}

static void run(execution x)
{
    if (ir_failed())
        return;
    const struct way *way = way_of(&x);
    if (!way || !count_instructions(&x) || (x.limits && !way->predicated)) {
        ir_fail("%s does not copy %s to %s%s", x.copy->atom.name, tensor_text(x.from), tensor_text(x.to),
                x.limits ? " within limits" : "");
        return;
    }
    if (x.from.memory != RMEM)
        check_vectors(&x, x.from, x.from_values);
    if (x.to.memory != RMEM)
        check_vectors(&x, x.to, x.to_values);
    if (!ir_failed())
        way->run(&x);
}

void copy_tiled(const tiled_copy *c, tensor from, tensor to)
{
    run((execution){ .copy = c, .from = from, .to = to });
}

void copy_tiled_if(const tiled_copy *c, tensor cX, int_tuple limits, tensor from, tensor to, double fill)
{
    run((execution){ .copy = c, .from = from, .to = to, .cX = cX, .limits = limits, .fill = fill });
}
