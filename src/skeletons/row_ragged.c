/*
 * row_ragged.c - rows that start anywhere: aligned vectors between a row's 16-byte boundaries, single elements at its
 * ends, and loads that are cut out of two vectors where the memory's boundaries lie elsewhere.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "skeletons/row.h"

enum { BOUNDARY_BYTES = 16, WORD_BYTES = 4, WORDS_MAX = BOUNDARY_BYTES / WORD_BYTES };

/* The words of two neighbouring vectors. */
typedef val vector_words[WORDS_MAX], vector_pair[2 * WORDS_MAX];

/* Spans */

row_bounds row_bounds_of(const row_split *s, val row, val cols, val pointer, ckl_dtype dtype, val ld)
{
    if (!s->ragged)
        return (row_bounds){ imm(0), cols };
    const int bytes = dtype_bytes(dtype);
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

/* Thread n of the row takes element n of both ends together. */
static row_span ends_of(const row_split *s, const row_place *p, const row_bounds *vectors)
{
    row_span ends = { .split = *s };
    ends.split.vec = ends.split.steps = 1;
    ends.split.ragged = false;
    val number = div(p->first, imm(s->vec)), between = sub(vectors->end, vectors->begin);
    val column = select(lt(number, vectors->begin), number, add(number, between));
    row_place start = row_place_of(&ends.split, p->rows, p->cols, p->row, imm(0));
    ends.place = moved(&start, column, p->limit);
    return ends;
}

val row_may_have_ends(const row_split *s)
{
    const int warps = (int)ceil_div(2 * (s->vec - 1), 32);
    if (s->row_threads <= 32 * warps)
        return yes();
    return lt(row_split_rows(s) > 1 ? rem(warp(), imm(s->row_threads / 32)) : warp(), imm(warps));
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
    val low;      // address of the lower one of this thread's first vector
    val bytes;    // u32; the same for all vectors
    val elements; // u32, as many elements
    words w;      // of a vector's elements
    int count;    // 32-bit words of a vector
    val outside;  // a word of fill
    val moves[2]; // predicates: by one word, by two
    val selector; // of the bytes of two neighbouring words
    val is_outer; // predicate: the row has no other one before it or behind it in memory
    ir_cache cache;
} cut;

/* The cut begins so many bytes after the start of the lower vector. */
static void set_cut(cut *c, val bytes)
{
    c->bytes = bytes;
    for (int by = 1; by <= 2; by++)
        c->moves[by - 1] = ne(bit_and(bytes, imm(by * WORD_BYTES)), imm(0));
    c->selector = add(imm(0x3210), mul(bit_and(bytes, imm(WORD_BYTES - 1)), imm(0x1111)));
}

static cut make_cut(const row_split *s, tensor from, double fill)
{
    const int size = dtype_bytes(from.dtype), bytes = s->vec * size;
    cut c = { .w = words_of(from.dtype, s->vec), .count = bytes / WORD_BYTES, .cache = from.cache };
    val past = bit_and(from.address, imm(bytes - 1));
    c.low = sub(from.address, past);
    set_cut(&c, convert(U32, past));
    c.elements = div(c.bytes, imm(size));
    c.outside = bitcast(U32, words_filled(c.w, from.dtype, fill));
    return c;
}

static val first_column(const row_split *s, const row_place *p, int step)
{
    return coordinate(p->cX, 1, (int64_t)step * s->vec);
}

/* Do the two vectors that vector `step` is cut from reach past the row? They must not begin before it. */
static val reaches_out(const cut *c, const row_split *s, const row_place *p, int step)
{
    return gt(add(sub(first_column(s, p, step), c->elements), imm(2 * s->vec)), p->cols);
}

static void load_words(const cut *c, tensor from, const row_split *s, int step, bool upper, val *word)
{
    int64_t offset;
    const int first = upper ? c->count : 0;
    (void)tensor_address_near(from, (int64_t)step * s->vec, &offset);
    load_at(IR_GLOBAL, c->cache, U32, c->count, c->low, offset + first * WORD_BYTES, word + first);
}

/* Must a vector be loaded element by element, because one that it is cut from reaches out of the tensor? */
static val is_apart(const cut *c, const row_split *s, const row_place *p, int step)
{
    val first = first_column(s, p, step), inside = lt(first, p->limit), shifted = ne(c->bytes, imm(0));
    val out = logical_or(lt(first, c->elements), reaches_out(c, s, p, step));
    return logical_and(logical_and(inside, shifted), logical_and(c->is_outer, out));
}

static void load_at_edge(const cut *c, const row_split *s, const row_place *p, tensor from, int step, val *word)
{
    val inside = lt(first_column(s, p, step), p->limit);
    val together = logical_and(inside, logical_not(is_apart(c, s, p, step)));
    for (int i = 0; i < 2 * c->count; i++)
        assign(word[i], c->outside);
    IF(together)
        load_words(c, from, s, step, false, word);
    IF(logical_and(together, ne(c->bytes, imm(0))))
        load_words(c, from, s, step, true, word);
}

/* Vectors that begin in their word number `first`. */
static void take_words(const cut *c, int vectors, int first, vector_pair *word, val (*const out)[WORDS_MAX])
{
    for (int v = 0; v < vectors; v++)
        for (int i = 0; i < c->count; i++) {
            const val *from = word[v] + first + i;
            assign(out[v][i], c->w.per == 1 ? from[0] : permute_bytes(from[0], from[1], c->selector));
        }
}

/* All vectors begin in the same word, `first` or up to 2 * by - 1 words behind it: branches find it. */
static void take_words_from(const cut *c, int vectors, int first, int by, vector_pair *word,
                            val (*const out)[WORDS_MAX])
{
    if (by == 0) {
        take_words(c, vectors, first, word, out);
        return;
    }
    IF(c->moves[by - 1])
        take_words_from(c, vectors, first + by, by / 2, word, out);
    ELSE take_words_from(c, vectors, first, by / 2, word, out);
}

static void cut_out_all(const cut *c, int vectors, vector_pair *word, val (*const out)[WORDS_MAX])
{
    take_words_from(c, vectors, 0, c->count / 2, word, out);
}

/* A vector's words from memory, element by element. */
static void load_apart(const cut *c, const row_split *s, tensor from, int step, val *own)
{
    int64_t offset;
    const int64_t size = dtype_bytes(from.dtype), first = (int64_t)step * s->vec;
    val address = tensor_address_near(from, first, &offset), x[BOUNDARY_BYTES], typed[WORDS_MAX];
    for (int e = 0; e < s->vec; e++) {
        x[e] = unwritten(element_register(from.dtype));
        load_at(IR_GLOBAL, from.cache, from.dtype, 1, address, offset + e * size, &x[e]);
    }
    words_pack(c->w, from.dtype, x, typed);
    for (int i = 0; i < c->count; i++)
        assign(own[i], bitcast(U32, typed[i]));
}

/* The words of vector `step` as its elements. */
static void unpack_words(const cut *c, const row_split *s, const val *from, ckl_dtype dtype, tensor to, int step)
{
    val typed[WORDS_MAX], *out = describe_alloc((size_t)s->vec, sizeof *out);
    for (int e = 0; e < s->vec; e++)
        out[e] = to.regs[index_at(to.layout, (int64_t)step * s->vec + e)];
    for (int i = 0; i < c->count; i++)
        typed[i] = bitcast(c->w.type, from[i]);
    words_unpack(c->w, typed, dtype, out);
}

static vector_pair *unwritten_pairs(const cut *c, int vectors)
{
    vector_pair *word = describe_alloc((size_t)vectors, sizeof *word);
    for (int v = 0; v < vectors; v++)
        for (int i = 0; i < 2 * c->count; i++)
            word[v][i] = unwritten(U32);
    return word;
}

val row_is_outer(val row, val rows)
{
    return logical_or(eq(row, imm(0)), eq(row, sub(rows, imm(1))));
}

struct row_cut {
    cut c;
    row_split split;
    row_place place;
    tensor from;
    vector_pair *word; // of each step
    val at_edge;
};

/*
 * All loads come before the first use. Only at an edge, where few threads are, has each vector predicates of its own.
 */
row_cut *row_issue_cut(const row_split *s, const row_place *p, val is_outer, tensor from, double fill)
{
    row_cut *r = describe_alloc(1, sizeof *r);
    *r = (row_cut){ .c = make_cut(s, from, fill), .split = *s, .place = *p, .from = from };
    cut *c = &r->c;
    c->is_outer = is_outer;
    r->word = unwritten_pairs(c, s->steps);
    const int last = s->steps - 1; // if it and what it is cut from are inside the row, all are
    val out = logical_or(lt(first_column(s, p, 0), c->elements), reaches_out(c, s, p, last));
    r->at_edge = logical_or(ge(first_column(s, p, last), p->limit), logical_and(is_outer, out));
    IF(r->at_edge)
        for (int step = 0; step < s->steps; step++)
            load_at_edge(c, s, p, from, step, r->word[step]);
    ELSE
    {
        for (int step = 0; step < s->steps; step++)
            for (int i = c->count; i < 2 * c->count; i++)
                assign(r->word[step][i], c->outside);
        for (int step = 0; step < s->steps; step++)
            load_words(c, from, s, step, false, r->word[step]);
        IF(ne(c->bytes, imm(0)))
            for (int step = 0; step < s->steps; step++)
                load_words(c, from, s, step, true, r->word[step]);
    }
    return r;
}

void row_finish_cut(const row_cut *r, tensor to)
{
    const row_split *s = &r->split;
    vector_words *own = describe_alloc((size_t)s->steps, sizeof *own);
    for (int step = 0; step < s->steps; step++)
        for (int i = 0; i < r->c.count; i++)
            own[step][i] = unwritten(U32);
    cut_out_all(&r->c, s->steps, r->word, own);
    IF(logical_and(r->at_edge, r->c.is_outer))
        for (int step = 0; step < s->steps; step++)
            IF(is_apart(&r->c, s, &r->place, step))
                load_apart(&r->c, s, r->from, step, own[step]);
    for (int step = 0; step < s->steps; step++)
        unpack_words(&r->c, s, own[step], r->from.dtype, to, step);
}

void row_load_cut(const row_split *s, const row_place *p, val is_outer, tensor from, tensor to, double fill)
{
    if (s->ragged)
        row_finish_cut(row_issue_cut(s, p, is_outer, from, fill), to);
    else
        row_load(s, p, from, to, fill);
}

void row_load_anywhere(const row_split *s, const row_place *p, tensor from, tensor to, double fill)
{
    row_load_cut(s, p, yes(), from, to, fill);
}

tensor row_fetch_vector(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype)
{
    tensor gX = row_vector(s, p, pointer, dtype); // (VEC,STEPS)
    tensor rX = fragment_like(gX, dtype);         // (VEC,STEPS)
    row_load_anywhere(s, p, gX, rX, 0);
    return rX;
}

void row_load_among(const row_split *s, const row_place *p, tensor from, tensor to, double fill)
{
    row_load_cut(s, p, row_is_outer(p->row, p->rows), from, to, fill);
}

/* Vectors that are cut out of shared memory */

static void load_pair(const cut *c, val low, val high, int64_t offset, val *word)
{
    load_at(IR_SHARED, IR_CACHE_DEFAULT, U32, c->count, low, offset, word);
    load_at(IR_SHARED, IR_CACHE_DEFAULT, U32, c->count, high, offset, word + c->count);
}

/* The words of both vectors that vector `step` is cut from; nothing behind it is read where it is one itself. */
static void load_shared_words(const row_split *s, const row_place *p, const cut *c, val low, val high, int step,
                              val *word)
{
    const int64_t offset = (int64_t)step * s->row_threads * BOUNDARY_BYTES;
    val inside = row_inside(s, p, step);
    if (is_imm(inside, 1)) {
        load_pair(c, low, high, offset, word);
        return;
    }
    for (int i = 0; i < 2 * c->count; i++)
        assign(word[i], c->outside);
    IF(inside)
        load_pair(c, low, high, offset, word);
}

void row_load_cut_shared(const row_split *s, const row_place *p, const val *from, int count, val past, tensor *to,
                         double fill)
{
    const ckl_dtype dtype = to[0].dtype;
    const int vectors = count * s->steps;
    cut c = { .w = words_of(dtype, s->vec), .count = WORDS_MAX };
    set_cut(&c, past);
    c.outside = bitcast(U32, words_filled(c.w, dtype, fill));
    vector_pair *word = unwritten_pairs(&c, vectors);
    val(*out)[WORDS_MAX] = describe_alloc((size_t)vectors, sizeof *out);
    for (int v = 0; v < vectors; v++)
        for (int i = 0; i < c.count; i++)
            out[v][i] = unwritten(U32);
    val next = select(eq(past, imm(0)), imm_as(U32, 0), imm_as(U32, BOUNDARY_BYTES));
    for (int v = 0; v < vectors; v++) {
        val low = from[v / s->steps];
        load_shared_words(s, p, &c, low, add(low, next), v % s->steps, word[v]);
    }
    cut_out_all(&c, vectors, word, out);
    for (int v = 0; v < vectors; v++)
        unpack_words(&c, s, out[v], dtype, to[v / s->steps], v % s->steps);
}

static void store_apart(const row_split *s, tensor from, tensor to, int step)
{
    int64_t offset;
    const int64_t size = dtype_bytes(to.dtype), first = (int64_t)step * s->vec;
    val address = tensor_address_near(to, first, &offset);
    for (int e = 0; e < s->vec; e++) {
        val x = convert(to.dtype, from.regs[index_at(from.layout, first + e)]);
        store_at(IR_GLOBAL, to.cache, to.dtype, 1, address, offset + e * size, &x);
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
