/*
 * gemm_repitch.c - copies matrices that sm90 cannot take as they lie to rows of whole 128 bytes, of which the last ends
 * in zeros, or transposes them. Of math=f32x3 each f32 becomes the nearest tf32 and the rest, for three products by
 * tensor cores: a K tile of the numbers and a K tile of their rests in turn, which the Hopper kernel finds in
 * neighbouring stages.
 *
 * A thread makes 16 bytes of a few rows, each from the two aligned vectors that hold them: selects shift by whole
 * words, permutes by bytes. Neighbours read the same vectors again, from L1. Where the two would reach beyond the
 * matrix, at its first and last vector, elements are copied one by one. Transposing goes through a square tile in
 * shared memory.
 */
#include "operators/gemm/gemm_repitch.h"

#include "cute/kernel.h"
#include "cute/vectors.h"

enum {
    BYTES = GEMM_REPITCH_BYTES,
    WORDS = BYTES / 4,
    ROWS = GEMM_REPITCH_ROWS,
    TILE = GEMM_TURN_TILE,
    RUN = GEMM_SPLIT_RUN
};

/* The aligned bytes that hold a vector of a row. */
typedef struct window {
    val row;       // i64, of the source
    val inside;    // predicate: the row exists
    val whole;     // predicate: it does, and all these bytes are the matrix's
    val phase;     // bytes before the vector
    tensor rWords; // (2*WORDS) of i32
} window;

/* The copy that this CTA works on. */
typedef struct repitch {
    ckl_dtype type;
    int vector; // elements
    val from_ld, from_stride, to, to_ld, rows, length;
    val cta;         // among this copy's
    val matrix;      // of the batch
    val from, end;   // its addresses
    val first;       // element of the row that this thread's vector begins with
    val mask[WORDS]; // the bits of its words within the row
    bool pointers;   // `from` is an array of the addresses of the batch
    bool gather;     // rows of the source are those of a list, of the first copy
    bool split;      // each number becomes two, of which the second lies RUN further on
    val list, listed, list_rows;
} repitch;

static val bytes_of(const repitch *k, val elements)
{
    return convert(U64, mul(elements, imm((int)ckl_dtype_bytes(k->type))));
}

/* The row of the source that becomes row `row`. */
static val source_row(const repitch *k, val row)
{
    val source = variable(I64, row);
    tensor gList = gmem_vector(k->list, I32, k->rows);
    IF(logical_and(k->listed, lt(row, k->rows)))
        assign(source, convert(I64, at(gList, row)));
    return source;
}

static window load_window(const repitch *k, val row, val source, val start)
{
    window w = { .row = source, .inside = lt(row, k->rows), .rWords = fragment(I32, compact(leaf(2 * WORDS))) };
    val aligned = bit_and(start, imm_as(U64, -16)), beyond = ge(k->first, k->length);
    val held = logical_and(ge(aligned, k->from), le(add(aligned, imm(2 * BYTES)), k->end));
    w.phase = convert(U32, sub(start, aligned));
    w.whole = logical_and(w.inside, logical_or(held, beyond));
    fill(w.rWords, imm_as(I32, 0));
    IF(logical_and(w.whole, logical_not(beyond)))
        copy(gmem_tensor(aligned, I32, compact(leaf(2 * WORDS))), w.rWords, 16);
    return w;
}

static void mask_words(repitch *k)
{
    enum { BYTE_BITS = 8 };
    val bytes = mul(sub(k->length, k->first), imm((int)ckl_dtype_bytes(k->type)));
    for (int i = 0; i < WORDS; i++) {
        val there = convert(U32, min(max(sub(bytes, imm(4 * i)), imm64(0)), imm64(4)));
        k->mask[i] = convert(U32, sub(shift_left(imm_as(U64, 1), mul(there, imm(BYTE_BITS))), imm(1)));
    }
}

/* The vector's words, with zeros beyond the end of the row. */
static tensor shifted(const repitch *k, const window *w)
{
    val pair[2 * WORDS];
    for (int i = 0; i < 2 * WORDS; i++)
        pair[i] = bitcast(U32, at(w->rWords, i));
    const words_cut cut = words_cut_from(pair, WORDS, w->phase, (int)ckl_dtype_bytes(k->type));
    tensor rOut = fragment(I32, compact(leaf(WORDS))); // (WORDS)
    for (int i = 0; i < WORDS; i++)
        set(rOut, i, bitcast(I32, bit_and(words_cut_word(&cut, i), k->mask[i])));
    return rOut;
}

/* The nearest tf32; infinities, and what rounding would make infinite, stay. */
static val nearest(val x)
{
    val bits = bitcast(U32, x), near = bit_and(add(bits, imm_as(U32, 0x1000)), imm_as(U32, 0xffffe000));
    val finite = lt(bit_and(bits, imm_as(U32, 0x7f800000)), imm_as(U32, 0x7f000000));
    return bitcast(F32, select(finite, near, bits));
}

/* An infinity has no rest; that of a number too large to round is what tensor cores truncate. */
static val rest_of(val x)
{
    val cut = bitcast(F32, bit_and(bitcast(U32, nearest(x)), imm_as(U32, 0xffffe000)));
    val infinite = eq(bit_and(bitcast(U32, x), imm_as(U32, 0x7fffffff)), imm_as(U32, 0x7f800000));
    return select(infinite, immf(0), nearest(sub(x, cut)));
}

/* Where the vector from element `first` of a row on lies in a row of the copy, in elements. */
static val place_of(const repitch *k, val first)
{
    return k->split ? add(first, bit_and(first, imm64(-RUN))) : first; // a run of rests behind every run
}

/* Stores a vector, and that of its rests. */
static void store_vector(const repitch *k, tensor rX, val to)
{
    if (!k->split) {
        copy(rX, gmem_tensor(to, rX.dtype, rX.layout), BYTES);
        return;
    }
    tensor rNear = fragment(F32, rX.layout), rRest = fragment(F32, rX.layout);
    for (int i = 0; i < k->vector; i++) {
        val x = rX.dtype == F32 ? at(rX, i) : bitcast(F32, at(rX, i));
        set(rNear, i, nearest(x));
        set(rRest, i, rest_of(x));
    }
    copy(rNear, gmem_tensor(to, F32, rX.layout), BYTES);
    copy(rRest, gmem_tensor(add(to, imm_as(U64, 4 * RUN)), F32, rX.layout), BYTES);
}

static void store_elements(const repitch *k, const window *w, val to)
{
    tensor gX = gmem_tensor(k->from, k->type, make_layout(shape(k->rows, k->length), stride(k->from_ld, 1)));
    tensor gY = gmem_tensor(to, k->type, compact(leaf(k->split ? 2 * RUN : k->vector)));
    for (int e = 0; e < k->vector; e++) {
        val i = add(k->first, imm(e));
        IF(lt(i, k->length)) {
            val x = at(gX, w->row, i);
            set(gY, e, k->split ? nearest(x) : x);
            if (k->split)
                set(gY, e + RUN, rest_of(x));
        }
    }
}

static void store_window(const repitch *k, const window *w, val to)
{
    IF(w->inside)
        store_vector(k, shifted(k, w), to);
    IF(logical_and(w->inside, logical_not(w->whole)))
        store_elements(k, w, to);
}

/* Copies a vector of each row from `row` on. */
static void copy_rows(const repitch *k, val row)
{
    val all_before = add(mul(k->matrix, k->rows), row); // of all matrices, which lie one after the other in the copy
    val from = add(k->from, bytes_of(k, add(mul(row, k->from_ld), k->first)));
    val to = add(k->to, bytes_of(k, add(mul(all_before, k->to_ld), place_of(k, k->first))));
    val from_pitch = bytes_of(k, k->from_ld), to_pitch = bytes_of(k, k->to_ld);
    window w[ROWS];
    for (int r = 0; r < ROWS; r++) {
        val to_row = add(row, imm(r)), source = to_row;
        if (k->gather) {
            source = source_row(k, to_row);
            from = add(k->from, bytes_of(k, add(mul(source, k->from_ld), k->first)));
        }
        w[r] = load_window(k, to_row, source, from);
        from = add(from, from_pitch);
    }
    for (int r = 0; r < ROWS; r++) {
        store_window(k, &w[r], to);
        to = add(to, to_pitch);
    }
}

/* Where the source's matrix number k->matrix begins. */
static val matrix_address(const repitch *k)
{
    if (k->pointers)
        return convert(U64, at(gmem_vector(k->from, I64, add(k->matrix, imm(1))), k->matrix));
    return add(k->from, bytes_of(k, mul(k->matrix, k->from_stride)));
}

/* Copies this thread's vector of a few rows, zeros beyond their ends. Short rows share a CTA. */
static void copy_straight(repitch k)
{
    const int each = k.split ? 2 * k.vector : k.vector;  // elements of the copy
    val vectors = convert(U32, div(k.to_ld, imm(each))); // NOTE: 2^32 vectors of some rows are beyond any memory
    val count = mul(vectors, convert(U32, div_up(k.rows, ROWS)));
    val ctas = div_up(count, GEMM_REPITCH_THREADS); // of a matrix
    val i = add(mul(rem(k.cta, ctas), imm(GEMM_REPITCH_THREADS)), thread());
    k.matrix = convert(I64, div(k.cta, ctas));
    k.first = convert(I64, mul(rem(i, vectors), imm(k.vector)));
    mask_words(&k);
    k.from = matrix_address(&k);
    val source_rows = k.gather ? select(k.listed, k.list_rows, k.rows) : k.rows;
    k.end = add(k.from, bytes_of(&k, add(mul(sub(source_rows, imm(1)), k.from_ld), k.length)));
    IF(lt(i, count))
        copy_rows(&k, convert(I64, mul(div(i, vectors), imm(ROWS))));
}

/* Of `all` rows or columns those from `first` on, in 32 bits: at least a tile's, where there are as many. */
static val left_from(val first, val all)
{
    return convert(I32, max(min(sub(all, first), imm64(TILE)), imm64(0)));
}

/* Loads a tile of the source into shared memory by elements, transposed: (COLS,ROWS). */
static void load_tile(const repitch *k, val row, val col, tensor sX)
{
    enum { AT_ONCE = GEMM_REPITCH_THREADS / TILE };
    val along = thread_at(thread(), 0, TILE, AT_ONCE), start = thread_at(thread(), 1, TILE, AT_ONCE);
    val first = add(row, convert(I64, start)), column = add(col, convert(I64, along));
    val rows = select(lt(column, k->length), left_from(first, k->rows), imm_as(I32, 0)); // from the first one on
    val from = add(k->from, bytes_of(k, add(mul(first, k->from_ld), column)));
    val x[TILE / AT_ONCE], pitch = bytes_of(k, mul(k->from_ld, imm64(AT_ONCE)));
    for (int i = 0; i < TILE / AT_ONCE; i++) {
        val inside = gt(rows, imm(i * AT_ONCE));
        x[i] = at(gmem_tensor(select(inside, from, k->from), k->type, compact(leaf(1))), 0);
        if (k->split) // the copy ends in zeros
            x[i] = select(inside, x[i], immf(0));
        from = add(from, pitch);
    }
    for (int i = 0; i < TILE / AT_ONCE; i++)
        set(sX, coord(along, add(start, imm(i * AT_ONCE))), x[i]);
}

/* Stores rows of the tile to the copy, whose rows are padded to whole vectors. */
static void store_tile(const repitch *k, val row, val col, tensor sX)
{
    const int across = TILE / k->vector, at_once = GEMM_REPITCH_THREADS / across;
    val element = mul(thread_at(thread(), 0, across, at_once), imm(k->vector)),
        start = thread_at(thread(), 1, across, at_once);
    val r = add(row, convert(I64, element)), end = k->split ? div(k->to_ld, imm64(2)) : k->rows;
    val first = add(col, convert(I64, start)), to_row = add(mul(k->matrix, k->length), first);
    val columns = select(lt(r, end), left_from(first, k->length), imm_as(I32, 0)); // from the first one on
    val to = add(k->to, bytes_of(k, add(mul(to_row, k->to_ld), place_of(k, r))));
    val pitch = bytes_of(k, mul(k->to_ld, imm64(at_once)));
    for (int i = 0; i < TILE / at_once; i++) {
        val local = add(start, imm(i * at_once));
        tensor sVector = tensor_with_layout(slice(sX, local, _), compact(leaf(k->vector))); // (VECTOR)
        sVector.address = tensor_address(sX, coord(local, element));
        tensor rVector = fragment(k->type, compact(leaf(k->vector)));
        IF(gt(columns, imm(i * at_once))) {
            copy(sVector, rVector, ckl_dtype_bytes(k->type) == 4 ? 4 : BYTES);
            store_vector(k, rVector, to);
        }
        to = add(to, pitch);
    }
}

/* Transposes a tile of a matrix. */
static void copy_turned(repitch k, tensor sX)
{
    val across = convert(U32, div_up(k.length, TILE));
    val of_matrix = mul(across, convert(U32, div_up(k.rows, TILE))), tile = rem(k.cta, of_matrix);
    val row = convert(I64, mul(div(tile, across), imm(TILE))), col = convert(I64, mul(rem(tile, across), imm(TILE)));
    k.matrix = convert(I64, div(k.cta, of_matrix));
    k.from = matrix_address(&k);
    load_tile(&k, row, col, sX);
    cta_sync();
    store_tile(&k, row, col, sX);
}

static repitch describe_copy(ckl_dtype type, const gemm_repitch_values *p, val other)
{
    return (repitch){ .type = type,
                      .vector = BYTES / (int)ckl_dtype_bytes(type),
                      .from = select(other, p->from[1], p->from[0]),
                      .from_ld = select(other, p->from_ld[1], p->from_ld[0]),
                      .from_stride = select(other, p->from_stride[1], p->from_stride[0]),
                      .to = select(other, p->to[1], p->to[0]),
                      .to_ld = select(other, p->to_ld[1], p->to_ld[0]),
                      .rows = select(other, p->copy_rows[1], p->copy_rows[0]),
                      .length = select(other, p->copy_length[1], p->copy_length[0]),
                      .cta = sub(cta_x(), select(other, p->second, imm(0))) };
}

void gemm_repitch(const gemm_epilogue *e)
{
    enum { CTAS = 4 }; // of an SM: with more registers there are two, whose loads keep memory busy half of the time
    launch_bounds(GEMM_REPITCH_THREADS, CTAS);
    gemm_repitch_values p = params_of(gemm_repitch);
    prefetch_early(0, p.from, p.from_bytes, 2);
    grid_wait();
    launch_dependents();
    val other = ge(cta_x(), p.second);
    ckl_dtype type = e->ab;
    repitch k = describe_copy(type, &p, other);
    k.gather = e->gather;
    k.pointers = e->pointers;
    k.split = e->math == CKL_GEMM_F32X3;
    if (k.gather) {
        k.list = p.row_list;
        k.list_rows = p.list_rows;
        k.listed = logical_not(other);
    }
    const bool of_a = !gemm_k_major(e->layout, 'a'), of_b = !gemm_k_major(e->layout, 'b');
    const bool never = ckl_dtype_bytes(type) == 2 || (k.split && !of_a && !of_b), always = k.split && of_a && of_b;
    if (never) {
        copy_straight(k);
        return;
    }
    const int pad = ckl_dtype_bytes(type) == 4 ? 1 : k.vector; // rows a bank apart, or at multiples of 16 bytes
    tensor sX = smem_tensor("tile", type, make_layout(shape(TILE, TILE), stride(TILE + pad, 1)), 16); // (COLS,ROWS)
    if (always) {
        copy_turned(k, sX);
        return;
    }
    IF(ne(select(other, p.turned[1], p.turned[0]), imm(0))) {
        copy_turned(k, sX);
    }
    ELSE
    {
        copy_straight(k);
    }
}
