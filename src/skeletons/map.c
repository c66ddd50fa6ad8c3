/* map.c - the kernel of element-wise operators. */
#include "skeletons/map_rows.h"

#include "skeletons/map_unit.h"
#include "skeletons/prefetch.h"

enum { GROUP_MAX = 8 };

map_access map_access_of(const map_kernel *k, int i)
{
    if (i < k->inputs && k->scalar[i])
        return SCALAR;
    if (k->config.crossed >> i & 1)
        return CROSSED;
    if (k->config.flat >> i & 1)
        return FLAT;
    return k->config.constant >> i & 1 ? CONSTANT : k->config.strided >> i & 1 ? STRIDED : CONTIGUOUS;
}

/* Parameters */

static map declare(const map_kernel *k, map_function *f, void *user)
{
    map m = { .k = k, .f = f, .user = user, .index = k->config.rank == 1 ? I64 : k->config.wide ? U64 : U32 };
    m.p = params_of(map);
    m.count = convert(m.index, m.p.count);
    for (int d = k->config.crossed ? 0 : 1; d < k->config.rank; d++)
        m.size[d] = convert(m.index, m.p.size[d]);
    for (int i = 0; i <= k->inputs; i++) {
        m.operands[i].address = map_access_of(k, i) == SCALAR ? m.p.scalar[i] : m.p.pointer[i];
        for (int d = 0; d < k->config.rank; d++)
            m.operands[i].stride[d] = m.p.stride[i * MAP_RANK_MAX + d];
    }
    return m;
}

/* Addresses */

int map_element_bytes(const map *m, int i)
{
    return dtype_bytes(m->k->dtype[i]);
}

void map_coordinates(const map_values *p, int last, val n, val *at)
{
    for (int d = last; d > 0; d--)
        if (n.type == U32)
            at[d] = convert(I64, divisor_coordinate(&n, convert(U32, p->size[d]), p->factor[d], p->shift[d]));
        else {
            at[d] = convert(I64, rem(n, convert(n.type, p->size[d])));
            n = div(n, convert(n.type, p->size[d]));
        }
    at[0] = convert(I64, n);
}

/* The coordinates of an element by its number. */
static void coordinates_of(const map *m, val number, val *at)
{
    map_coordinates(&m->p, m->k->config.rank - 1, number, at);
}

val map_address_of(const map *m, int i, const val *at)
{
    const map_operand *o = &m->operands[i];
    int inner = m->k->config.rank - 1;
    val index = imm(0);
    if (map_access_of(m->k, i) == CONTIGUOUS)
        index = at[inner];
    if (map_access_of(m->k, i) == STRIDED || map_access_of(m->k, i) == CROSSED)
        index = mul(at[inner], o->stride[inner]);
    for (int d = 0; d < inner; d++)
        index = add(mul(at[d], o->stride[d]), index);
    return add(o->address, convert(U64, mul(index, imm(map_element_bytes(m, i)))));
}

/*
 * The operand's vector at these coordinates.
 *
 * NOTE: loads carry no hint. With L1::no_allocate an add of 2^28 f32 takes 797 us instead of 737 on an H200 as soon as
 * the L2 cache holds lines of other kernels: their lines stay, and what streams through is left with a small part of
 * it.
 */
tensor map_vector_of(const map *m, int i, const val *at, int width)
{
    bool constant = map_access_of(m->k, i) == CONSTANT;
    return gmem_tensor(map_address_of(m, i, at), m->k->dtype[i], compact(leaf(constant ? 1 : width))); // (VEC)
}

/* How far a vector is aligned. */
static int align_of(const map *m, int i, int width)
{
    return (int)min_i64(16, width * dtype_bytes(m->k->dtype[i]));
}

/* Vectors */

/* FLAT operands lie as elements are numbered. */
static tensor flat_vector(const map *m, int i, val number, int width)
{
    val offset = mul(convert(U64, number), imm(map_element_bytes(m, i)));
    return gmem_tensor(add(m->operands[i].address, offset), m->k->dtype[i], compact(leaf(width))); // (VEC)
}

/* An element, or 0 where it does not exist. */
static tensor load_element(const map *m, int i, val address, val exists)
{
    tensor rX = fragment(m->k->dtype[i], compact(leaf(1))); // (1)
    fill(rX, convert(m->k->dtype[i], imm(0)));
    IF(exists)
        copy(gmem_tensor(address, m->k->dtype[i], compact(leaf(1))), rX, 0);
    return rX;
}

/* The loads of a vector whose first `left` elements are in this row and the others in the next. */
static tensor load_across(const map *m, int i, val number, const val *at, int width)
{
    const int size = dtype_bytes(m->k->dtype[i]), inner = m->k->config.rank - 1;
    val left = sub(m->size[inner], convert(m->index, at[inner])), next[MAP_RANK_MAX];
    val step = map_access_of(m->k, i) == CONSTANT     ? imm64(0)
               : map_access_of(m->k, i) == CONTIGUOUS ? imm64(size)
                                                      : mul(m->operands[i].stride[inner], imm(size));
    coordinates_of(m, add(number, left), next);
    val here = map_address_of(m, i, at),
        there = sub(map_address_of(m, i, next), convert(U64, mul(convert(I64, left), step)));
    tensor rX = fragment(m->k->dtype[i], compact(leaf(width)));
    if (map_access_of(m->k, i) == CONSTANT) { // one of this row, one of the next
        tensor rHere = load_element(m, i, here, gt(left, imm(0))),
               rThere = load_element(m, i, there, lt(left, imm(width)));
        for (int e = 0; e < width; e++)
            set(rX, e, select(gt(left, imm(e)), at(rHere, 0), at(rThere, 0)));
        return rX;
    }
    for (int e = 0; e < width; e++) {
        val address = add(select(gt(left, imm(e)), here, there), convert(U64, mul(step, imm(e))));
        copy(gmem_tensor(address, m->k->dtype[i], compact(leaf(1))), slice(rX, e), 0);
    }
    return rX;
}

map_unit map_load_unit(const map *m, val number, const val *at, val exists, int width)
{
    map_unit u = { 0 };
    const bool across = m->k->config.flat && width > 1;
    for (int i = 0; i < m->k->inputs; i++) {
        const map_access a = map_access_of(m->k, i);
        if (a == FLAT)
            u.loaded[i] = load_packed(flat_vector(m, i, number, width), align_of(m, i, width));
        else if (a != SCALAR && a != CROSSED && across)
            u.rRows[i] = load_across(m, i, number, at, width);
        else if (a != SCALAR && a != CROSSED)
            u.loaded[i] = m->tile.margin ? load_packed_if(exists, map_vector_of(m, i, at, width), align_of(m, i, width))
                                         : load_packed(map_vector_of(m, i, at, width), align_of(m, i, width));
    }
    u.gY = map_access_of(m->k, m->k->inputs) == FLAT ? flat_vector(m, m->k->inputs, number, width)
                                                     : map_vector_of(m, m->k->inputs, at, width);
    return u;
}

/* A result as a register of the output's type: bytes saturate, any nonzero number is true. */
static val stored(const map *m, val y)
{
    ckl_dtype dtype = m->k->dtype[m->k->inputs];
    if (dtype == CKL_BOOL)
        return convert(IR_U16, ne(y, convert(y.type, imm(0))));
    if (dtype == CKL_U8)
        return convert(IR_U16, min(max(y, imm(0)), imm(255)));
    return y;
}

static tensor converted(tensor rX, ckl_dtype type)
{
    tensor rY = fragment(type, rX.layout);
    for (int e = 0; e < static_size(rX.layout); e++)
        set(rY, e, convert(type, at(rX, e)));
    return rY;
}

void map_finish_unit(const map *m, const map_unit *u, int width)
{
    const map_kernel *k = m->k;
    tensor rX[MAP_INPUTS_MAX]; // (VEC) each, (1) of constants
    for (int i = 0; i < k->inputs; i++)
        if (map_access_of(k, i) == CROSSED)
            rX[i] = unpacked(map_read_crossed(m, i, u->row, u->column, width), k->compute);
        else if (u->rRows[i].regs)
            rX[i] = converted(u->rRows[i], k->compute);
        else if (map_access_of(k, i) != SCALAR)
            rX[i] = unpacked(u->loaded[i], k->compute);
    ckl_dtype out = k->dtype[k->inputs];
    tensor rY = fragment(dtype_bytes(out) == 1 ? out : k->compute, compact(leaf(width))); // (VEC)
    for (int e = 0; e < width; e++) {
        val x[MAP_INPUTS_MAX];
        for (int i = 0; i < k->inputs; i++)
            x[i] = map_access_of(k, i) == SCALAR ? m->operands[i].address
                                                 : at(rX[i], static_size(rX[i].layout) == 1 ? 0 : e);
        set(rY, e, stored(m, m->f(x, m->user)));
    }
    copy(rY, u->gY, align_of(m, k->inputs, width));
}

/*
 * The numbers of this thread's elements of a tile, in vectors of that width: (WIDTH,STEPS), neighbouring threads side
 * by side.
 */
static tensor thread_numbers(const map *m, val tile, int width)
{
    tiled_copy each = make_tiled_copy(universal_copy(CKL_U8, width), CKL_U8, compact(leaf(m->k->config.threads)),
                                      compact(leaf(width))); // numbers have no type
    tensor cTile = identity_tensor(shape(map_tile(m->k)));
    return coordinates_from(partition_S(&each, cTile, convert(m->index, thread())), 0, tile);
}

/* Computes the elements with the numbers cX (WIDTH,STEPS). All loads come before the first computation. */
static void units(const map *m, tensor cX)
{
    int width = (int)static_size(layout_mode(cX.layout, 0)), steps = (int)static_size(layout_mode(cX.layout, 1));
    map_unit *all = describe_alloc((size_t)steps, sizeof *all);
    for (int s = 0; s < steps; s++) {
        val number = coordinate(cX, 0, 0, s), at[MAP_RANK_MAX];
        coordinates_of(m, number, at);
        all[s] = map_load_unit(m, number, at, yes(), width);
    }
    for (int s = 0; s < steps; s++)
        map_finish_unit(m, &all[s], width);
}

/* Some of the steps. */
static tensor steps_of(const map *m, tensor cX, val i, int count)
{
    int64_t width = static_size(layout_mode(cX.layout, 0));
    return local_tile(cX, shape(width, count), coord(0, convert(m->index, i))); // (WIDTH,COUNT)
}

/* Tiles */

/* Single elements are loaded in groups, each before the first use. */
static void full_tile(const map *m, int kernel, val tile)
{
    const map_config *c = &m->k->config;
    int elements = c->vec * c->steps, group = GROUP_MAX;
    tensor cX = thread_numbers(m, tile, kernel == 0 ? c->vec : 1); // (WIDTH,STEPS)
    while (elements % group)
        group /= 2;
    if (kernel == 0)
        units(m, cX);
    else
        LOOP(i, imm(elements / group))
            units(m, steps_of(m, cX, i, group));
}

/* One vector, if its last element exists. */
static void unit_within(const map *m, val first, int width)
{
    val at[MAP_RANK_MAX];
    IF(ge(m->count, add(first, imm(width)))) {
        coordinates_of(m, first, at);
        const map_unit u = map_load_unit(m, first, at, yes(), width);
        map_finish_unit(m, &u, width);
    }
}

/* The vectors of a tile that reaches past the last element. */
static void vectors_within(const map *m, val tile, int width)
{
    tensor cX = thread_numbers(m, tile, width); // (WIDTH,STEPS)
    LOOP(i, imm(m->k->config.steps * m->k->config.vec / width))
        unit_within(m, coordinate(steps_of(m, cX, i, 1), 0, 0), width);
}

/* The last tile. Elements past the last full vector go to one thread each. */
static void last_tile(const map *m, int kernel, val tile)
{
    const map_kernel *k = m->k;
    int width = kernel == 0 ? k->config.vec : 1;
    vectors_within(m, tile, width);
    if (width > 1 && (k->config.rank == 1 || k->config.flat))
        unit_within(m, add(sub(m->count, rem(m->count, imm(width))), convert(m->index, thread())), 1);
}

/* From an operand's first element in memory to its last. */
static void prefetch_operand(const map_kernel *k, const map_values *p, int i)
{
    val low = imm64(0), high = imm64(0);
    for (int d = 0; d < k->config.rank; d++) {
        val span = mul(sub(p->size[d], imm64(1)), p->stride[i * MAP_RANK_MAX + d]);
        low = add(low, min(span, imm64(0)));
        high = add(high, max(span, imm64(0)));
    }
    val first = add(p->pointer[i], convert(U64, mul(low, imm(dtype_bytes(k->dtype[i])))));
    prefetch_share(first, add(sub(high, low), imm64(1)), k->dtype[i]);
}

void map_prefetch(const map_kernel *k, const map_values *p)
{
    if (k->config.prefetch)
        IF(eq(thread(), imm(0)))
            for (int i = 0; i < k->inputs; i++)
                if (!k->scalar[i])
                    prefetch_operand(k, p, i);
}

/* Elements before the first vector of y, and whether all operands have a vector there. */
typedef struct phase {
    val head, is_common;
} phase;

static phase find_phase(const map *m)
{
    const map_kernel *k = m->k;
    const int vec = k->config.vec, out = dtype_bytes(k->dtype[k->inputs]);
    val before = bit_and(sub(imm(0), m->operands[k->inputs].address), imm(vec * out - 1));
    phase p = { .head = min(convert(m->index, div(before, imm(out))), m->count), .is_common = yes() };
    for (int i = 0; i <= k->inputs; i++)
        if (map_access_of(k, i) == FLAT || (map_access_of(k, i) == CONTIGUOUS && k->config.rank == 1)) {
            val past = bit_and(flat_vector(m, i, p.head, 1).address, imm(align_of(m, i, vec) - 1));
            p.is_common = logical_and(p.is_common, eq(past, imm(0)));
        }
    return p;
}

/* A tile by vectors that begin after the head. The first CTA also takes the head, the last one the tail. */
static void tile_in_phase(const map *m, val start, val head)
{
    const int vec = m->k->config.vec;
    val size = imm(map_tile(m->k)), tile = add(start, head), end = add(tile, size);
    val tail = sub(m->count, rem(sub(m->count, head), imm(vec))), number = convert(m->index, thread());
    IF(ge(m->count, end))
        full_tile(m, 0, tile);
    ELSE
    {
        vectors_within(m, tile, vec);
        IF(logical_and(ge(tail, tile), lt(tail, end)))
            unit_within(m, add(tail, number), 1);
    }
    IF(logical_and(eq(start, imm(0)), lt(number, head)))
        unit_within(m, number, 1);
}

/* Contiguous operands that are not aligned, but may all lie in phase. */
static void tile_anywhere(const map *m, val tile, val is_full)
{
    phase p = find_phase(m);
    IF(p.is_common)
        tile_in_phase(m, tile, p.head);
    ELSE
    {
        IF(is_full)
            full_tile(m, 1, tile);
        ELSE last_tile(m, 1, tile);
    }
}

void map_describe(map_kernel k, int kernel, map_function *f, void *user)
{
    if (k.config.row_threads && kernel == 0) {
        map_rows_describe(&k, f, user);
        return;
    }
    launch_bounds(k.config.threads, k.config.ctas_per_sm);
    map m = declare(&k, f, user);
    val size = imm(map_tile(&k));
    val tile = mul(convert(m.index, cta_x()), size);
    val is_full = ge(m.count, add(tile, size));
    map_prefetch(&k, &m.p);
    if (k.config.crossed) {
        map_crossed_tile(&m, kernel);
        return;
    }
    launch_dependents(); // the next kernel's CTAs may be in place when this one ends
    grid_wait();         // what is above overlaps the end of the kernel before
    if (kernel == 1 && k.config.vec > 1 && (k.config.flat || (k.config.rank == 1 && !k.config.strided))) {
        tile_anywhere(&m, tile, is_full);
        return;
    }
    IF(is_full) {
        full_tile(&m, kernel, tile);
    }
    ELSE
    {
        last_tile(&m, kernel, tile);
    }
}
