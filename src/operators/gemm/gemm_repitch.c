/*
 * gemm_repitch.c - rows that start at any element, copied to rows that start at multiples of 16 bytes.
 *
 * A thread makes 16 bytes of a few rows, each from the two aligned vectors that hold them: whole words by selecting, the last half
 * word by permuting bytes. Neighbours read the same vectors again, from L1. Where the two would reach beyond the matrix, at its
 * first and last vector, elements are copied one by one.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_config.h"

enum { VECTOR = GEMM_REPITCH_VECTOR, WORDS = VECTOR / 2, ROWS = GEMM_REPITCH_ROWS };

/* The aligned bytes that hold a vector of a row. */
typedef struct window {
    val row;       // i64
    val inside;    // predicate: there is such a row
    val whole;     // predicate: and the matrix has all these bytes
    val phase;     // bytes before the vector
    tensor rWords; // (2*WORDS) of i32
} window;

/* The copy that this CTA takes part in. */
typedef struct repitch {
    ckl_dtype type;
    val from_ld, from_stride, to, to_ld, rows, length;
    val matrix;    // of the batch
    val from, end; // its addresses
    val first;     // element of the row that this thread's vector begins with
} repitch;

static val bytes_of(const repitch *k, val elements)
{
    return convert(U64, mul(elements, imm((int)ckl_dtype_bytes(k->type))));
}

static window load_window(const repitch *k, val row, val start)
{
    window w = { .row = row, .inside = lt(row, k->rows), .rWords = fragment(I32, compact(leaf(2 * WORDS))) };
    val aligned = bit_and(start, imm_as(U64, -16));
    w.phase = convert(U32, sub(start, aligned));
    w.whole = logical_and(w.inside, logical_and(ge(aligned, k->from), le(add(aligned, imm(2 * 16)), k->end)));
    fill(w.rWords, imm_as(I32, 0));
    IF(w.whole)
        copy(gmem_tensor(aligned, I32, compact(leaf(2 * WORDS))), w.rWords, 16);
    return w;
}

/* The vector's words. */
static tensor shifted(const window *w)
{
    val words[2 * WORDS];
    for (int i = 0; i < 2 * WORDS; i++)
        words[i] = bitcast(U32, at(w->rWords, i));
    val two = ne(bit_and(w->phase, imm(8)), imm(0)), one = ne(bit_and(w->phase, imm(4)), imm(0));
    for (int i = 0; i < 2 * WORDS - 2; i++)
        words[i] = select(two, words[i + 2], words[i]);
    for (int i = 0; i < WORDS + 1; i++)
        words[i] = select(one, words[i + 1], words[i]);
    val half = select(ne(bit_and(w->phase, imm(2)), imm(0)), imm_as(U32, 0x5432), imm_as(U32, 0x3210));
    tensor rOut = fragment(I32, compact(leaf(WORDS))); // (WORDS)
    for (int i = 0; i < WORDS; i++)
        set(rOut, i, bitcast(I32, permute_bytes(words[i], words[i + 1], half)));
    return rOut;
}

static void store_elements(const repitch *k, const window *w, val to)
{
    tensor gX = gmem_tensor(k->from, k->type, make_layout(shape(k->rows, k->length), stride(k->from_ld, 1)));
    tensor gY = gmem_tensor(to, k->type, compact(leaf(VECTOR)));
    for (int e = 0; e < VECTOR; e++) {
        val i = add(k->first, imm(e));
        IF(lt(i, k->length))
            set(gY, e, at(gX, w->row, i));
    }
}

static void store_window(const repitch *k, const window *w, val to)
{
    IF(w->whole) {
        copy(shifted(w), gmem_tensor(to, I32, compact(leaf(WORDS))), 16);
    }
    ELSE
    {
        IF(w->inside)
            store_elements(k, w, to);
    }
}

/* A vector each of the rows from `row` on. */
static void copy_rows(const repitch *k, val row)
{
    val all_before = add(mul(k->matrix, k->rows), row); // of all matrices, which lie one after the other there
    val from = add(k->from, bytes_of(k, add(mul(row, k->from_ld), k->first)));
    val to = add(k->to, bytes_of(k, add(mul(all_before, k->to_ld), k->first)));
    val from_pitch = bytes_of(k, k->from_ld), to_pitch = bytes_of(k, k->to_ld);
    window w[ROWS];
    for (int r = 0; r < ROWS; r++) {
        w[r] = load_window(k, add(row, imm(r)), from);
        from = add(from, from_pitch);
    }
    for (int r = 0; r < ROWS; r++) {
        store_window(k, &w[r], to);
        to = add(to, to_pitch);
    }
}

static repitch describe_copy(ckl_dtype type, const gemm_repitch_values *p, val other)
{
    return (repitch){ .type = type,
                      .from = select(other, p->from[1], p->from[0]),
                      .from_ld = select(other, p->from_ld[1], p->from_ld[0]),
                      .from_stride = select(other, p->from_stride[1], p->from_stride[0]),
                      .to = select(other, p->to[1], p->to[0]),
                      .to_ld = select(other, p->to_ld[1], p->to_ld[0]),
                      .rows = select(other, p->copy_rows[1], p->copy_rows[0]),
                      .length = p->copy_length };
}

void gemm_repitch(const gemm_sm90_config *cfg)
{
    launch_bounds(GEMM_REPITCH_THREADS, 0);
    gemm_repitch_values p = params_of(gemm_repitch);
    grid_wait();
    launch_dependents();
    val other = ge(cta_x(), p.second);
    repitch k = describe_copy(cfg->epilogue.ab, &p, other);
    val vectors = convert(U32, div(add(k.length, imm(VECTOR - 1)), imm(VECTOR)));
    val ctas = div(add(vectors, imm(GEMM_REPITCH_THREADS - 1)), imm(GEMM_REPITCH_THREADS)); // of some rows
    val of_matrix = mul(ctas, convert(U32, div(add(k.rows, imm(ROWS - 1)), imm(ROWS))));
    val number = sub(cta_x(), select(other, p.second, imm(0)));
    val cta = rem(number, of_matrix), first_row = convert(I64, mul(div(cta, ctas), imm(ROWS)));
    val vector = add(mul(rem(cta, ctas), imm(GEMM_REPITCH_THREADS)), thread());
    k.matrix = convert(I64, div(number, of_matrix));
    k.first = convert(I64, mul(vector, imm(VECTOR)));
    k.from = add(k.from, bytes_of(&k, mul(k.matrix, k.from_stride)));
    k.end = add(k.from, bytes_of(&k, add(mul(sub(k.rows, imm(1)), k.from_ld), k.length)));
    IF(lt(vector, vectors))
        copy_rows(&k, first_row);
}
