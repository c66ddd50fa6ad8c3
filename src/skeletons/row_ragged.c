/*
 * row_ragged.c - rows that start anywhere: aligned vectors between the boundaries of a row, single elements at its ends, and loads
 * from memory whose boundaries are elsewhere.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "skeletons/row.h"

enum { BOUNDARY_BYTES = 16, WORD_BYTES = 4, WORDS_MAX = BOUNDARY_BYTES / WORD_BYTES };

/* Spans */

row_bounds row_bounds_of(const row_split *s, val row, val cols, val pointer, ckl_dtype dtype, val ld)
{
    if (!s->ragged)
        return (row_bounds){ ir_int(U32, 0), cols };
    const int bytes = (int)ckl_dtype_bytes(dtype);
    val start = add(convert(U32, pointer), mul(mul(convert(U32, row), convert(U32, ld)), imm(bytes)));
    val head = div(bit_and(sub(imm(0), start), imm(BOUNDARY_BYTES - 1)), imm(bytes)), begin = min(head, cols);
    return (row_bounds){ begin, add(begin, bit_and(sub(cols, begin), imm(-s->vec))) };
}

/* The same thread at another column, with `limit` as the end of what may be accessed. */
static row_place moved(const row_place *p, val columns, val limit)
{
    row_place place = row_from(p, columns);
    place.limit = limit;
    return place;
}

/* Thread number n of the row has element n of both ends together. */
static row_span ends_of(const row_split *s, const row_place *p, const row_bounds *vectors)
{
    row_span ends = { .split = *s };
    ends.split.vec = ends.split.steps = 1;
    ends.split.ragged = false;
    val number = div(p->first, imm(s->vec)), between = sub(vectors->end, vectors->begin);
    val column = select(lt(number, vectors->begin), number, add(number, between));
    row_place start = row_place_of(&ends.split, p->rows, p->cols, p->row, imm(0));
    ends.place = moved(&start, column, p->limit);
    ends.place.exists = p->exists;
    return ends;
}

row_spans row_spans_of(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype, val ld)
{
    const row_bounds vectors = row_bounds_of(s, p->row, p->limit, pointer, dtype, ld);
    if (!s->ragged)
        return (row_spans){ .of = { { *s, *p } }, .count = 1, .bounds = vectors };
    row_span body = { *s, moved(p, vectors.begin, vectors.end) };
    return (row_spans){ .of = { body, ends_of(s, p, &vectors) }, .count = 2, .bounds = vectors };
}

/* Loads of vectors that start anywhere */

/* A vector is cut out of the two aligned ones that it touches: it begins `bytes` after the start of the first. */
typedef struct cut {
    val low;      // address of the first vector's lower one
    val bytes;    // u32; the same for all vectors
    val elements; // u32, as many elements
    words w;      // of a vector's elements
    int count;    // 32-bit words of a vector
    val outside;  // a word of fill
    ir_cache cache;
} cut;

static cut make_cut(const row_split *s, tensor from, double fill)
{
    const int size = (int)ckl_dtype_bytes(from.dtype), bytes = s->vec * size;
    cut c = { .w = words_of(from.dtype, s->vec), .count = bytes / WORD_BYTES, .cache = from.cache };
    val past = bit_and(from.address, imm_as(U64, bytes - 1));
    c.low = sub(from.address, past);
    c.bytes = convert(U32, past);
    c.elements = div(c.bytes, imm(size));
    c.outside = bitcast(U32, words_filled(c.w, from.dtype, fill));
    return c;
}

/* Both vectors of number `step`: 2 * c->count words. */
typedef struct pair_of_vectors {
    val word[2 * WORDS_MAX];
    val apart; // predicate: reaches out of the row, so that its elements are loaded one by one
} pair_of_vectors;

static pair_of_vectors load_pair(const cut *c, const row_split *s, const row_place *p, tensor from, int step)
{
    pair_of_vectors v;
    int64_t offset;
    val first = tensor_coordinate(p->cX, leaf((int64_t)step * s->vec), 1), inside = lt(first, p->limit);
    val shifted = ne(c->bytes, imm(0)), low = sub(first, c->elements);
    val enough = logical_and(ge(first, c->elements), le(add(low, imm(2 * s->vec)), p->cols));
    val whole = logical_and(inside, logical_or(logical_not(shifted), enough));
    (void)tensor_address_near(from, (int64_t)step * s->vec, &offset);
    v.apart = logical_and(inside, logical_not(whole));
    for (int i = 0; i < 2 * c->count; i++)
        v.word[i] = variable(U32, c->outside);
    IF(whole)
        ir_load(IR_GLOBAL, c->cache, IR_U32, c->count, c->low, offset, v.word);
    IF(logical_and(whole, shifted))
        ir_load(IR_GLOBAL, c->cache, IR_U32, c->count, c->low, offset + c->count * WORD_BYTES, v.word + c->count);
    return v;
}

/* The vector's words: whole words move by two selects, bytes by a permute of neighbours. */
static void cut_out(const cut *c, const pair_of_vectors *v, val *out)
{
    val word[2 * WORDS_MAX + 1];
    int count = 2 * c->count;
    for (int i = 0; i < count; i++)
        word[i] = v->word[i];
    for (int by = c->count / 2; by > 0; by /= 2) {
        val move = ne(bit_and(c->bytes, imm(by * WORD_BYTES)), imm(0));
        count -= by;
        for (int i = 0; i < count; i++)
            word[i] = select(move, word[i + by], word[i]);
    }
    const bool whole_words = c->w.per == 1;
    val selector =
        whole_words ? c->bytes : add(imm_as(U32, 0x3210), mul(bit_and(c->bytes, imm(3)), imm_as(U32, 0x1111)));
    for (int i = 0; i < c->count; i++)
        out[i] = whole_words ? word[i] : permute_bytes(word[i], word[i + 1], selector);
}

static void load_apart(const row_split *s, tensor from, int step, val apart, const val *out)
{
    int64_t offset;
    const int64_t size = (int64_t)ckl_dtype_bytes(from.dtype);
    val address = tensor_address_near(from, (int64_t)step * s->vec, &offset);
    IF(apart)
        for (int e = 0; e < s->vec; e++) {
            val x = ir_reg(element_register(from.dtype));
            ir_load(IR_GLOBAL, from.cache, from.dtype, 1, address, offset + e * size, &x);
            assign(out[e], convert(out[e].type, x));
        }
}

void row_load_anywhere(const row_split *s, const row_place *p, tensor from, tensor to, double fill)
{
    if (!s->ragged) {
        row_load(s, p, from, to, fill);
        return;
    }
    const cut c = make_cut(s, from, fill);
    pair_of_vectors *pairs = ir_alloc((size_t)s->steps, sizeof *pairs);
    val *out = ir_alloc((size_t)s->vec, sizeof *out), cut_words[WORDS_MAX];
    for (int step = 0; step < s->steps; step++)
        pairs[step] = load_pair(&c, s, p, from, step);
    for (int step = 0; step < s->steps; step++) {
        for (int e = 0; e < s->vec; e++)
            out[e] = to.regs[index_at(to.layout, (int64_t)step * s->vec + e)];
        cut_out(&c, &pairs[step], cut_words);
        for (int i = 0; i < c.count; i++)
            cut_words[i] = bitcast(c.w.type, cut_words[i]);
        words_unpack(c.w, cut_words, from.dtype, out);
        load_apart(s, from, step, pairs[step].apart, out);
    }
}

static void store_apart(const row_split *s, tensor from, tensor to, int step)
{
    int64_t offset;
    const int64_t size = (int64_t)ckl_dtype_bytes(to.dtype), first = (int64_t)step * s->vec;
    val address = tensor_address_near(to, first, &offset);
    for (int e = 0; e < s->vec; e++) {
        val x = convert(to.dtype, from.regs[index_at(from.layout, first + e)]);
        ir_store(IR_GLOBAL, to.cache, to.dtype, 1, address, offset + e * size, &x);
    }
}

void row_store_anywhere(const row_split *s, const row_place *p, tensor from, tensor to)
{
    if (!s->ragged) {
        row_store(s, p, from, to);
        return;
    }
    val past = bit_and(convert(U32, to.address), imm(BOUNDARY_BYTES - 1));
    IF(eq(past, imm(0)))
        row_store(s, p, from, to);
    ELSE
    {
        for (int step = 0; step < s->steps; step++)
            IF(row_inside(s, p, step))
                store_apart(s, from, to, step);
    }
}
