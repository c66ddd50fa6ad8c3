/* map.c - the kernel of element-wise operators. */
#include "skeletons/map_rows.h"

#include <string.h>

#include "cute/kernel.h"

enum { GROUP_MAX = 8, WORD_BYTES = 4, BULK_BYTES = 16 };

/* An operand while the kernel is described. */
typedef struct map_operand {
    val address; // of element 0; of a scalar its value
    val stride[MAP_RANK_MAX];
} map_operand;

/* Along the innermost dimension; CROSSED: contiguous along another one, FLAT: across the ends of rows. */
typedef enum access { CONTIGUOUS, CONSTANT, STRIDED, CROSSED, FLAT, SCALAR } access;

typedef struct map {
    const map_kernel *k;
    map_function *f;
    void *user;
    map_values p;
    ir_type index; // type of element numbers
    val count, size[MAP_RANK_MAX];
    map_operand operands[MAP_OPERANDS_MAX];
    struct crossing {                   // where operands are crossed; their addresses are those of the CTA's tile
        int64_t offset[MAP_INPUTS_MAX]; // of tiles in shared memory
        int margin;                     // their columns before the first of the output's; 0: rows begin at vectors
        val rows, columns, low;         // i32: elements up to the last of either dimension; the first column, 0 or less
        val phase, pitch; // u32, elements: where the output's first row begins, and what the next add to it
    } tile;
} map;

/* The vectors, one of each operand, that a thread takes at once. */
typedef struct unit {
    packed loaded[MAP_INPUTS_MAX];
    tensor rRows[MAP_INPUTS_MAX]; // (VEC) of operands whose rows a vector crosses
    tensor gY;                    // (VEC)
    val row, column;              // u32, in a tile of crossed operands
} unit;

static access access_of(const map_kernel *k, int i)
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

static map_operand declare_operand(const map_kernel *k, const map_values *p, int i)
{
    map_operand o = { .address = access_of(k, i) == SCALAR ? p->scalar[i] : p->pointer[i] };
    for (int d = 0; d < k->config.rank; d++)
        o.stride[d] = p->stride[i * MAP_RANK_MAX + d];
    return o;
}

static map declare(const map_kernel *k, map_function *f, void *user)
{
    map m = { .k = k, .f = f, .user = user, .index = k->config.rank == 1 ? I64 : k->config.wide ? U64 : U32 };
    m.p = params_of(map);
    m.count = convert(m.index, m.p.count);
    for (int d = k->config.crossed ? 0 : 1; d < k->config.rank; d++)
        m.size[d] = convert(m.index, m.p.size[d]);
    for (int i = 0; i <= k->inputs; i++)
        m.operands[i] = declare_operand(k, &m.p, i);
    return m;
}

/* Addresses */

static int element_bytes(const map *m, int i)
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

/* The address of an operand's element at these coordinates. */
static val address_of(const map *m, int i, const val *at)
{
    const map_operand *o = &m->operands[i];
    int inner = m->k->config.rank - 1;
    val index = imm(0);
    if (access_of(m->k, i) == CONTIGUOUS)
        index = at[inner];
    if (access_of(m->k, i) == STRIDED || access_of(m->k, i) == CROSSED)
        index = mul(at[inner], o->stride[inner]);
    for (int d = 0; d < inner; d++)
        index = add(mul(at[d], o->stride[d]), index);
    return add(o->address, convert(U64, mul(index, imm(element_bytes(m, i)))));
}

/*
 * The operand's vector at these coordinates.
 *
 * NOTE: loads carry no hint. With L1::no_allocate an add of 2^28 f32 takes 797 us instead of 737 on an H200 as soon as the
 * L2 cache holds lines of other kernels: their lines stay, and what streams through is left with a small part of it.
 */
static tensor vector_of(const map *m, int i, const val *at, int width)
{
    bool constant = access_of(m->k, i) == CONSTANT;
    return gmem_tensor(address_of(m, i, at), m->k->dtype[i], compact(leaf(constant ? 1 : width))); // (VEC)
}

static int align_of(const map *m, int i, int width)
{
    return (int)min_i64(16, width * dtype_bytes(m->k->dtype[i]));
}

/* Crossed operands */

/* The columns of a tile that its threads load in whole turns: of pairs two by a thread. */
static int tile_columns(const map *m, int i)
{
    const map_config *c = &m->k->config;
    const int each = map_has_pairs(m->k, i) ? 2 : 1;
    return (int)round_up(MAP_CROSS_TILE + m->tile.margin, c->threads / (c->cross_rows / each) * each);
}

/* Rows of a tile in shared memory are an odd number of words apart, so neighbouring rows start in different banks. */
static int tile_pitch_bytes(const map *m, int i)
{
    return tile_columns(m, i) * element_bytes(m, i) + WORD_BYTES;
}

static val tile_address(const map *m, int i, val row, val column)
{
    val offset = add(mul(row, imm(tile_pitch_bytes(m, i))), mul(column, imm(element_bytes(m, i))));
    return add(smem_address(m->tile.offset[i]), offset);
}

/* Elements of row `row` of an operand's tile, from `column` on. */
static tensor tile_vector(const map *m, int i, val row, val column, int width)
{
    return smem_view(tile_address(m, i, row, column), m->k->dtype[i], compact(leaf(width))); // (VEC)
}

/* Loads them. Behind a margin they begin anywhere in a word: a permute makes each word of the two that hold it. */
static packed load_tile_vector(const map *m, int i, val row, val column, int width)
{
    enum { IN_PLACE = 0x3210, NEXT = 0x1111 }; // bytes of two words
    tensor sX = tile_vector(m, i, row, column, width);
    const int bytes = element_bytes(m, i), words = width * bytes / WORD_BYTES;
    if (!m->tile.margin || width == 1 || bytes >= WORD_BYTES)
        return load_packed(sX, (int)min_i64(WORD_BYTES, width * bytes));
    packed p = packed_registers(m->k->dtype[i], width);
    val past = bit_and(sX.address, imm(WORD_BYTES - 1)), selector = add(imm(IN_PLACE), mul(past, imm(NEXT)));
    val start = sub(sX.address, past), word[MAP_CROSS_TILE];
    for (int w = 0; w <= words; w++) { // the last one is that of the last byte
        val at_word = w < words ? imm(w * WORD_BYTES) : bit_and(add(past, imm(width * bytes - 1)), imm(-WORD_BYTES));
        word[w] = bitcast(U32, at(smem_view(add(start, at_word), I32, compact(leaf(1))), 0));
    }
    for (int w = 0; w < words; w++)
        set(p.rWords, w, bitcast(I32, permute_bytes(word[w], word[w + 1], selector)));
    return p;
}

/* Vectors */

/* FLAT operands lie as elements are numbered. */
static tensor flat_vector(const map *m, int i, val number, int width)
{
    val offset = mul(convert(U64, number), imm(element_bytes(m, i)));
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
    val step = access_of(m->k, i) == CONSTANT     ? imm64(0)
               : access_of(m->k, i) == CONTIGUOUS ? imm64(size)
                                                  : mul(m->operands[i].stride[inner], imm(size));
    coordinates_of(m, add(number, left), next);
    val here = address_of(m, i, at), there = sub(address_of(m, i, next), convert(U64, mul(convert(I64, left), step)));
    tensor rX = fragment(m->k->dtype[i], compact(leaf(width)));
    if (access_of(m->k, i) == CONSTANT) { // one of this row, one of the next
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

static packed load_if(val exists, tensor gX, int align)
{
    packed p = packed_registers(gX.dtype, (int)static_size(gX.layout));
    fill(p.rWords, convert(p.rWords.dtype, imm(0)));
    IF(exists)
        packed_load(gX, align, p);
    return p;
}

/* The vector from element `number` on, which is at these coordinates; of crossed ones whose rows begin anywhere, if it exists. */
static unit load_unit_at(const map *m, val number, const val *at, val exists, int width)
{
    unit u = { 0 };
    const bool across = m->k->config.flat && width > 1;
    for (int i = 0; i < m->k->inputs; i++) {
        const access a = access_of(m->k, i);
        if (a == FLAT)
            u.loaded[i] = load_packed(flat_vector(m, i, number, width), align_of(m, i, width));
        else if (a != SCALAR && a != CROSSED && across)
            u.rRows[i] = load_across(m, i, number, at, width);
        else if (a != SCALAR && a != CROSSED)
            u.loaded[i] = m->tile.margin ? load_if(exists, vector_of(m, i, at, width), align_of(m, i, width))
                                         : load_packed(vector_of(m, i, at, width), align_of(m, i, width));
    }
    u.gY = access_of(m->k, m->k->inputs) == FLAT ? flat_vector(m, m->k->inputs, number, width)
                                                 : vector_of(m, m->k->inputs, at, width);
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

static void finish_unit(const map *m, const unit *u, int width)
{
    const map_kernel *k = m->k;
    tensor rX[MAP_INPUTS_MAX]; // (VEC) each, (1) of constants
    for (int i = 0; i < k->inputs; i++)
        if (access_of(k, i) == CROSSED)
            rX[i] = unpacked(load_tile_vector(m, i, u->row, u->column, width), k->compute);
        else if (u->rRows[i].regs)
            rX[i] = converted(u->rRows[i], k->compute);
        else if (access_of(k, i) != SCALAR)
            rX[i] = unpacked(u->loaded[i], k->compute);
    ckl_dtype out = k->dtype[k->inputs];
    tensor rY = fragment(dtype_bytes(out) == 1 ? out : k->compute, compact(leaf(width))); // (VEC)
    for (int e = 0; e < width; e++) {
        val x[MAP_INPUTS_MAX];
        for (int i = 0; i < k->inputs; i++)
            x[i] =
                access_of(k, i) == SCALAR ? m->operands[i].address : at(rX[i], static_size(rX[i].layout) == 1 ? 0 : e);
        set(rY, e, stored(m, m->f(x, m->user)));
    }
    copy(rY, u->gY, align_of(m, k->inputs, width));
}

/* The numbers of this thread's elements of a tile, in vectors of that width: (WIDTH,STEPS), neighbouring threads side by side. */
static tensor thread_numbers(const map *m, val tile, int width)
{
    tiled_copy each = make_tiled_copy(universal_copy(CKL_U8, width), CKL_U8, compact(leaf(m->k->config.threads)),
                                      compact(leaf(width))); // numbers have no type
    tensor cTile = identity_tensor(shape(map_tile(m->k)));
    return coordinates_from(partition_S(&each, cTile, convert(m->index, thread())), 0, tile);
}

/* Where a vector begins. */
typedef struct place {
    val number, at[MAP_RANK_MAX];
} place;

/* Of the vectors with the numbers cX (WIDTH,STEPS). */
static place *places_of(const map *m, tensor cX)
{
    const int steps = (int)static_size(layout_mode(cX.layout, 1));
    place *p = describe_alloc((size_t)steps, sizeof *p);
    for (int s = 0; s < steps; s++) {
        p[s].number = coordinate(cX, 0, 0, s);
        coordinates_of(m, p[s].number, p[s].at);
    }
    return p;
}

/* Computes the elements with the numbers cX (WIDTH,STEPS). All loads come before the first computation. */
static void units(const map *m, tensor cX)
{
    int width = (int)static_size(layout_mode(cX.layout, 0)), steps = (int)static_size(layout_mode(cX.layout, 1));
    unit *all = describe_alloc((size_t)steps, sizeof *all);
    const place *p = places_of(m, cX);
    for (int s = 0; s < steps; s++)
        all[s] = load_unit_at(m, p[s].number, p[s].at, yes(), width);
    for (int s = 0; s < steps; s++)
        finish_unit(m, &all[s], width);
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
        const unit u = load_unit_at(m, first, at, yes(), width);
        finish_unit(m, &u, width);
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

/* Tiles of crossed operands: MAP_CROSS_TILE elements of the innermost dimension, cross_rows of the one they are contiguous in */

/* The first coordinates of this CTA's tile. */
static void tile_start(const map *m, val *at)
{
    const map_config *c = &m->k->config;
    val number = convert(U32, cta_x());
    for (int i = 0; i < c->rank; i++) {
        const int d = i == 0 ? c->rank - 1 : i == 1 ? c->cross : c->rank - i - (c->rank - i <= c->cross);
        const int tile = i == 0 ? MAP_CROSS_TILE : i == 1 ? c->cross_rows : 1;
        const int beyond = tile - 1 + (i == 0 ? map_margin(m->k) : 0);
        val size = convert(U32, m->size[d]), count = div(add(size, imm(beyond)), imm(tile));
        val here = i + 1 < c->rank ? rem(number, count) : number;
        at[d] = convert(I64, mul(here, imm(tile)));
        number = div(number, count);
    }
}

/* Elements from `start` to the end of a dimension, or as many as are beyond any tile. */
static val left_in(const map *m, const val *start, int d)
{
    enum { MANY = 1 << 20 };
    return convert(I32, min(sub(convert(I64, m->size[d]), start[d]), imm(MANY)));
}

/* Everything is as seen from the tile: numbers of 32 bits, and operands begin with it. */
static void enter_tile(map *m, int margin)
{
    const int cross = m->k->config.cross, inner = m->k->config.rank - 1, out = m->k->inputs;
    const val *stride = m->operands[out].stride;
    val start[MAP_RANK_MAX], phase = imm_as(U32, 0);
    tile_start(m, start);
    for (int d = 0; d < inner; d++)
        phase = add(phase, mul(convert(U32, start[d]), convert(U32, stride[d])));
    m->tile = (struct crossing){ .margin = margin,
                                 .rows = left_in(m, start, cross),
                                 .columns = left_in(m, start, inner),
                                 .low = convert(I32, max(neg(start[inner]), imm(-margin))),
                                 .phase = phase,
                                 .pitch = convert(U32, stride[cross]) };
    for (int i = 0; i <= out; i++)
        if (access_of(m->k, i) != SCALAR)
            m->operands[i].address = address_of(m, i, start);
}

/* A vector of a tile, or as many rows of one element. One that does not exist is loaded from a place that does. */
typedef struct tile_place {
    val row, column; // u32, in shared memory: along dimension `cross`, along the innermost one
    val at[MAP_RANK_MAX], exists;
} tile_place;

/* `from`, in memory: the same, or what stands for it. */
static tile_place place_at(const map *m, val row, val column, val from_row, val from_column)
{
    tile_place p = { .row = convert(U32, row), .column = convert(U32, add(column, imm(m->tile.margin))) };
    for (int d = 0; d < m->k->config.rank; d++)
        p.at[d] = imm64(0);
    p.at[m->k->config.cross] = convert(I64, from_row);
    p.at[m->k->config.rank - 1] = convert(I64, from_column);
    return p;
}

/* `height` elements of a column of a crossed operand; both may be beyond the last. */
static tile_place crossed_place(const map *m, val row, val column, int height)
{
    val from = m->tile.margin ? max(column, m->tile.low) : column;
    return place_at(m, row, column, min(row, sub(m->tile.rows, imm(height))), min(from, sub(m->tile.columns, imm(1))));
}

/* By how many elements a row of the output begins behind the last boundary of a sector, or of a vector if that is longer. */
static val phase_of(const map *m, val row)
{
    val phase = add(m->tile.phase, mul(convert(U32, row), m->tile.pitch));
    return convert(I32, bit_and(phase, imm(m->tile.margin - 1)));
}

/*
 * Vector number `number` of a row of the tile. Where rows begin anywhere, all begin at boundaries, and nothing stands for those that do
 * not exist: it would be another CTA's, which may write it.
 */
static tile_place vector_place(const map *m, val row, val number, int width)
{
    val last_row = sub(m->tile.rows, imm(1)), last = sub(m->tile.columns, imm(width)), column = mul(number, imm(width));
    if (m->tile.margin)
        column = sub(column, phase_of(m, row));
    tile_place p = m->tile.margin ? place_at(m, row, column, row, column)
                                  : place_at(m, row, column, min(row, last_row), min(column, last));
    p.exists = logical_and(le(row, last_row), le(column, last));
    if (m->tile.margin)
        p.exists = logical_and(p.exists, ge(column, m->tile.low));
    return p;
}

/* What a thread loads of a crossed operand, as rows of `height`: neighbouring threads neighbouring rows, where it is contiguous. */
typedef struct crossed_share {
    int count;
    tile_place *p;
} crossed_share;

static crossed_share share_of(const map *m, int i, int height)
{
    const int rows = m->k->config.cross_rows / height, apart = m->k->config.threads / rows;
    crossed_share s = { .count = tile_columns(m, i) / apart };
    val row = convert(I32, mul(thread_at(thread(), 0, rows, apart), imm(height))),
        column = convert(I32, mul(thread_at(thread(), 1, rows, apart), imm(height)));
    s.p = describe_alloc((size_t)s.count, sizeof *s.p);
    for (int n = 0; n < s.count; n++) {
        const int by = n / height * height * apart + n % height - m->tile.margin;
        s.p[n] = crossed_place(m, row, add(column, imm(by)), height);
    }
    return s;
}

/* Of pairs two rows by two columns at a time: a thread loads two words along the columns and stores two along the rows. */
static void load_crossed(const map *m, int i, int height)
{
    enum { LOW_HALVES = 0x5410, HIGH_HALVES = 0x7632 };
    const crossed_share s = share_of(m, i, height);
    packed *loaded = describe_alloc((size_t)s.count, sizeof *loaded);
    for (int n = 0; n < s.count; n++)
        loaded[n] = load_packed(vector_of(m, i, s.p[n].at, height), height * element_bytes(m, i));
    for (int n = 0; n < s.count; n++) {
        const int first = n / height * height, row = n % height; // of the columns that are turned together
        tensor sX = tile_vector(m, i, add(s.p[n].row, imm(row)), s.p[first].column, height), rX = loaded[n].rWords;
        if (height == 2) {
            val low = bitcast(U32, at(loaded[first].rWords, 0)), high = bitcast(U32, at(loaded[first + 1].rWords, 0));
            rX = fragment(I32, compact(leaf(1))); // (1)
            set(rX, 0, bitcast(I32, permute_bytes(low, high, imm(row ? HIGH_HALVES : LOW_HALVES))));
            sX = smem_view(sX.address, I32, compact(leaf(1))); // (1)
        }
        copy(rX, sX, 0);
    }
}

/* Does this thread ask for a line of memory? Of `together` neighbours, whose elements of so many bytes may share one, the first does. */
static val asks(int together, int bytes)
{
    enum { LINE_BYTES = 128, WARP = 32 };
    return eq(bit_and(thread(), imm((int)min_i64(min_i64(WARP, together), LINE_BYTES / bytes) - 1)), imm(0));
}

/* Asks L2 for what load_unit_at() loads; crossed operands come by tiles. */
static void prefetch_unit_at(const map *m, val number, const val *at)
{
    for (int i = 0; i < m->k->inputs; i++)
        if (access_of(m->k, i) == FLAT)
            prefetch_L2(flat_vector(m, i, number, 1).address);
        else if (access_of(m->k, i) != SCALAR && access_of(m->k, i) != CROSSED)
            prefetch_L2(address_of(m, i, at));
}

static int widest_input(const map *m)
{
    int bytes = 1;
    for (int i = 0; i < m->k->inputs; i++)
        bytes = m->k->scalar[i] ? bytes : (int)max_i64(bytes, element_bytes(m, i));
    return bytes;
}

static void prefetch_crossed(const map *m, int i)
{
    const int height = map_has_pairs(m->k, i) ? 2 : 1;
    const crossed_share s = share_of(m, i, height);
    IF(asks(m->k->config.cross_rows / height, height * element_bytes(m, i)))
        for (int n = 0; n < s.count; n++)
            prefetch_L2(address_of(m, i, s.p[n].at));
}

/* The vectors of a tile that a thread takes at once: rows of the tile `apart` from each other. */
typedef struct tile_batch {
    int count;
    unit *all;
    val *exists;
} tile_batch;

/* A thread's vectors from its number `first` on, but for crossed operands: loads them, or asks L2 for them. */
static tile_batch load_batch(const map *m, val first, int count, int apart, int width, bool ask)
{
    const int row_threads = MAP_CROSS_TILE / width;
    val row = convert(I32, thread_at(thread(), 1, row_threads, apart)),
        number = convert(I32, thread_at(thread(), 0, row_threads, apart));
    tile_batch b = { .count = count,
                     .all = describe_alloc((size_t)count, sizeof *b.all),
                     .exists = describe_alloc((size_t)count, sizeof *b.exists) };
    row = add(row, mul(first, imm(apart)));
    for (int n = 0; n < count; n++) {
        const tile_place p = vector_place(m, add(row, imm(n * apart)), number, width);
        if (ask) {
            IF(logical_and(p.exists, asks(row_threads, width * widest_input(m))))
                prefetch_unit_at(m, imm(0), p.at);
            continue;
        }
        b.all[n] = load_unit_at(m, imm(0), p.at, p.exists, width);
        b.all[n].row = p.row;
        b.all[n].column = p.column;
        b.exists[n] = p.exists;
    }
    return b;
}

static void finish_batch(const map *m, const tile_batch *b, int width)
{
    for (int n = 0; n < b->count; n++)
        IF(b->exists[n])
            finish_unit(m, &b->all[n], width);
}

/* The elements before a row's first boundary of vectors and behind the last one, those that lie in this tile: one by one. */
static void finish_edges(const map *m)
{
    const map_config *c = &m->k->config;
    const int each = 2 * c->vec;
    val is_first = eq(m->tile.low, imm(0)), is_last = lt(m->tile.columns, imm(MAP_CROSS_TILE));
    IF(logical_or(is_first, is_last))
        LOOP(turn, imm((int)ceil_div((int64_t)c->cross_rows * each, c->threads))) {
            val number = convert(I32, add(thread(), mul(turn, imm(c->threads))));
            val row = div(number, imm(each)), e = rem(number, imm(each)), phase = phase_of(m, row);
            val tail = sub(m->tile.columns, bit_and(add(m->tile.columns, phase), imm(c->vec - 1)));
            val head = bit_and(sub(imm(0), phase), imm(c->vec - 1)), is_head = lt(e, imm(c->vec));
            val column = select(is_head, e, add(tail, sub(e, imm(c->vec)))), here = add(column, phase);
            val limit = select(is_head, select(is_first, head, imm_as(I32, 0)), m->tile.columns);
            val exists = logical_and(lt(column, limit), lt(row, min(m->tile.rows, imm(c->cross_rows))));
            IF(logical_and(exists, logical_and(ge(here, imm(0)), lt(here, imm(MAP_CROSS_TILE))))) {
                const tile_place p = place_at(m, row, column, row, column);
                unit u = load_unit_at(m, imm(0), p.at, yes(), 1);
                u.row = p.row;
                u.column = p.column;
                finish_unit(m, &u, 1);
            }
        }
}

/* The first vectors of the others are on their way while crossed operands come to shared memory. */
static void crossed_tile(map *m, int kernel)
{
    enum { VECTORS = 4, ELEMENTS = 8 }; // at once
    const map_kernel *k = m->k;
    const int height = k->config.cross_rows;
    const int width = kernel == 0 ? k->config.vec : 1, apart = k->config.threads * width / MAP_CROSS_TILE;
    const int at_once = (int)min_i64(ceil_div(height, apart), width > 1 ? VECTORS : ELEMENTS), rows = at_once * apart;
    enter_tile(m, kernel == 0 ? map_margin(k) : 0);
    if (kernel != 0 && map_margin(k) > 0) // tiles are counted with a margin: one may have no columns
        IF(le(m->tile.columns, imm(0)))
            exit_thread();
    if (k->config.prefetch && kernel == 0) {
        for (int i = 0; i < k->inputs; i++)
            if (access_of(k, i) == CROSSED)
                prefetch_crossed(m, i);
        load_batch(m, imm(0), at_once, apart, width, true);
    }
    launch_dependents();
    grid_wait();
    for (int i = 0; i < k->inputs; i++) {
        if (access_of(k, i) != CROSSED)
            continue;
        m->tile.offset[i] = smem_alloc("crossed", (int64_t)height * tile_pitch_bytes(m, i), 16);
        load_crossed(m, i, kernel == 0 && map_has_pairs(k, i) ? 2 : 1);
    }
    const tile_batch first = load_batch(m, imm(0), at_once, apart, width, false);
    cta_sync();
    finish_batch(m, &first, width);
    if (m->tile.margin)
        finish_edges(m);
    if (rows >= height)
        return;
    LOOP_FROM(n, imm(1), div(add(min(m->tile.rows, imm(height)), imm(rows - 1)), imm(rows)), imm(1)) {
        const tile_batch next = load_batch(m, mul(n, imm(at_once)), at_once, apart, width, false);
        finish_batch(m, &next, width);
    }
}

/*
 * Prefetches to L2. They are no accesses: the kernel before may still be writing the inputs. Of a full tile, what lies between an
 * operand's first vector and its last one, by a bulk copy if that is hardly more than the tile; of what is constant the lines of both.
 */
static void prefetch_stretch(const map *m, int i, val tile, const val *first, const val *last)
{
    const map_kernel *k = m->k;
    const int tile_bytes = (int)map_tile(k) * element_bytes(m, i);
    const bool whole = align_of(m, i, k->config.vec) == BULK_BYTES;
    if (whole && access_of(k, i) == FLAT)
        bulk_prefetch(flat_vector(m, i, tile, 1).address, imm(tile_bytes));
    else if (whole && access_of(k, i) == CONTIGUOUS && k->config.rank == 1)
        bulk_prefetch(address_of(m, i, first), imm(tile_bytes));
    else if (whole && access_of(k, i) == CONTIGUOUS && !k->config.flat) {
        val from = address_of(m, i, first), bytes = add(sub(address_of(m, i, last), from), imm64(BULK_BYTES));
        IF(lt(sub(bytes, imm64(1)), imm64(2 * tile_bytes))) // of u64: not where the last one lies before the first one
            bulk_prefetch(from, convert(U32, bytes));
    } else if (access_of(k, i) == CONSTANT) {
        prefetch_L2(address_of(m, i, first));
        prefetch_L2(address_of(m, i, last));
    }
}

static void prefetch_stretches(const map *m, val tile, val is_full)
{
    const map_config *c = &m->k->config;
    val first[MAP_RANK_MAX], last[MAP_RANK_MAX];
    IF(logical_and(is_full, eq(thread(), imm(0)))) {
        coordinates_of(m, tile, first);
        coordinates_of(m, add(tile, imm((int)map_tile(m->k) - c->vec)), last);
        for (int i = 0; i < m->k->inputs; i++)
            prefetch_stretch(m, i, tile, first, last);
    }
}

/* What each thread will load, from wherever it lies. */
static void prefetch_vectors(const map *m, val tile, int width)
{
    tensor cX = thread_numbers(m, tile, width); // (WIDTH,STEPS)
    const place *p = places_of(m, cX);
    for (int s = 0; s < static_size(layout_mode(cX.layout, 1)); s++)
        IF(logical_and(asks(m->k->config.threads, width * widest_input(m)), ge(m->count, add(p[s].number, imm(width)))))
            prefetch_unit_at(m, p[s].number, p[s].at);
}

static void prefetch_tile(const map *m, int kernel, val tile, val is_full)
{
    const map_config *c = &m->k->config;
    if (c->prefetch == MAP_PREFETCH_STRETCHES && kernel == 0)
        prefetch_stretches(m, tile, is_full);
    else if (c->prefetch && kernel == 0)
        prefetch_vectors(m, tile, c->vec);
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
        if (access_of(k, i) == FLAT || (access_of(k, i) == CONTIGUOUS && k->config.rank == 1)) {
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
    if (k.config.crossed) {
        crossed_tile(&m, kernel);
        return;
    }
    prefetch_tile(&m, kernel, tile, is_full);
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
