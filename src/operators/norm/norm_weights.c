/* norm_weights.c - gamma and beta in shared memory: slots, filling them, and reading a vector from any slot on. */
#include "operators/norm/norm_config.h"

#include "cute/kernel.h"
#include "cute/vectors.h"

enum {
    VECTORS_MAX = 4, // of each that a thread has in flight
    BARRIER = 1,     // of the threads that fill; 0 is the CTA's
    VECTOR_BYTES = 16,
    WORDS = 4 // 32-bit words of a vector
};

static int slot_bytes(const norm_weights *w)
{
    return w->count * dtype_bytes(w->dtype);
}

/* Gamma and beta of 16 bits share a word; all else is f32, which needs no conversion. */
static norm_weights slots_of(const row_split *s, ckl_dtype dtype, bool beta)
{
    norm_weights w = { .dtype = beta ? dtype : F32, .count = 1 + beta, .vec = row_vec_full(dtype) };
    w.cols = norm_weights_cols(s, dtype);
    return w;
}

/* Slots, with gaps, up to slot `count`, a multiple of a vector. */
static int64_t slots_and_gaps(const norm_weights *w, int64_t count)
{
    return count + count / w->vec;
}

static val slot_address(const norm_weights *w, val column)
{
    val number = sub(column, w->column);
    return add(w->first, mul(add(number, div(number, imm(w->vec))), imm(slot_bytes(w))));
}

static tensor slots(const norm_weights *w)
{
    return smem_view(imm(0), w->dtype, compact(leaf(w->count)));
}

/* A vector of gamma or beta. */
typedef struct weight_words {
    val of[WORDS];
} weight_words;

/* Loads that `apart` columns behind column `first`, if it exists. */
static weight_words load_words(const norm_weight_sources *from, val pointer, val first, int apart, val exists)
{
    const int bytes = dtype_bytes(from->dtype);
    val address = add(pointer, mul(convert(U64, first), imm(bytes)));
    weight_words w;
    for (int i = 0; i < WORDS; i++)
        w.of[i] = unwritten(U32);
    IF(exists)
        load_at(IR_GLOBAL, IR_CACHE_DEFAULT, U32, WORDS, address, (int64_t)apart * bytes, w.of);
    return w;
}

static val element_of(const weight_words *w, ckl_dtype dtype, int e)
{
    val low = { 0 }, high = { 0 };
    if (dtype == F32)
        return bitcast(F32, w->of[e]);
    unpack(w->of[e / 2], dtype, &low, &high);
    return e % 2 ? high : low;
}

static void store_slot(const norm_weights *w, val first, int apart, val gamma, val beta)
{
    const vector_at slot = { slot_address(w, first), slots_and_gaps(w, apart) * slot_bytes(w), yes() };
    vector_store(&slot, w->count, (val[]){ gamma, beta }, slots(w));
}

/*
 * Fills a stretch from its first column to `end`, a multiple of a vector, where gamma and beta are aligned. Each turn
 * waits for memory once, so turns are few and even.
 */
static void fill_vectors(const norm_weights *w, int threads, const norm_weight_sources *from, val end)
{
    const int64_t each = ceil_div(w->cols / w->vec, threads), turns = ceil_div(each, VECTORS_MAX);
    const int at_once = (int)ceil_div(each, turns), step = threads * w->vec;
    LOOP_FROM(first, add(w->column, mul(thread(), imm(w->vec))), end, imm(at_once * step)) {
        weight_words gamma[VECTORS_MAX], beta[VECTORS_MAX];
        val exists[VECTORS_MAX];
        for (int i = 0; i < at_once; i++) {
            exists[i] = lt(add(first, imm(i * step)), end);
            gamma[i] = beta[i] = load_words(from, from->gamma, first, i * step, exists[i]);
            if (w->count > 1)
                beta[i] = load_words(from, from->beta, first, i * step, exists[i]);
        }
        for (int i = 0; i < at_once; i++)
            IF(exists[i])
                for (int e = 0; e < w->vec; e++)
                    store_slot(w, first, i * step + e, element_of(&gamma[i], from->dtype, e),
                               element_of(&beta[i], from->dtype, e));
    }
}

/* One of gamma or beta; 0 past the last column. */
static val load_element(const norm_weight_sources *from, val pointer, val column)
{
    val x = variable(from->dtype, convert(from->dtype, immf(0)));
    IF(lt(column, from->cols))
        assign(x, at(gmem_vector(pointer, from->dtype, from->cols), column));
    return x;
}

/* The same one by one, from column `begin` on. */
static void fill_elements(const norm_weights *w, int threads, const norm_weight_sources *from, val begin)
{
    val end = add(w->column, imm((int)w->cols));
    LOOP_FROM(column, add(begin, thread()), end, imm(threads)) {
        val gamma = load_element(from, from->gamma, column);
        store_slot(w, column, 0, gamma, w->count > 1 ? load_element(from, from->beta, column) : gamma);
    }
}

/* Fills a stretch: whole vectors, then what is left. Where gamma or beta starts anywhere, that is all of it. */
static void fill_stretch(const norm_weights *w, int threads, const norm_weight_sources *from)
{
    const val both = w->count > 1 ? bit_or(from->gamma, from->beta) : from->gamma;
    const val aligned = eq(bit_and(convert(U32, both), imm(VECTOR_BYTES - 1)), imm(0));
    val end = min(add(w->column, imm((int)w->cols)), bit_and(from->cols, imm(-w->vec)));
    val begin = variable(U32, w->column);
    IF(aligned) {
        fill_vectors(w, threads, from, end);
        assign(begin, max(begin, end));
    }
    fill_elements(w, threads, from, begin);
}

norm_weights norm_weights_load(const row_split *s, const norm_weight_sources *from, int chunks, int cluster)
{
    norm_weights w = slots_of(s, from->dtype, !is_imm(from->beta, 0));
    const int64_t cols = row_split_cols(s);
    w.first = smem_address(smem_alloc("weights", norm_weights_bytes(s, from->dtype, chunks), 16));
    w.column = cluster > 1 ? mul(cluster_rank(), imm((int)cols)) : imm_as(U32, 0);
    w.step = cols * cluster;
    w.apart = cluster > 1 ? w.cols : cols;
    norm_weights stretch = w;
    stretch.cols = cluster > 1 ? w.cols : w.cols + cols * (chunks - 1);
    for (int chunk = 0; chunk < (cluster > 1 ? chunks : 1); chunk++) {
        const norm_weights here = norm_weights_chunk(&stretch, chunk);
        fill_stretch(&here, s->threads, from);
    }
    named_sync(imm(BARRIER), s->threads);
    return w;
}

norm_weights norm_weights_chunk(const norm_weights *w, int chunk)
{
    norm_weights some = *w;
    some.first = add(w->first, imm((int)slots_and_gaps(w, chunk * w->apart) * slot_bytes(w)));
    some.column = add(w->column, imm((int)(chunk * w->step)));
    return some;
}

/*
 * The slot of a vector's element; steps are the same distance apart for all threads, unless shorter than a vector of
 * slots.
 */
static vector_at slot_at(const norm_weights *w, const row_span *at, int step, int e)
{
    const int64_t columns = row_split_cols(&at->split) / at->split.steps * step;
    const bool near = columns % w->vec == 0;
    val column = coordinate(at->place.cX, 1, near ? e : e + step * at->split.vec);
    if (at->split.vec == 1)
        column = min(column, add(w->column, imm((int)w->cols - 1))); // threads without one of a row's ends
    return (vector_at){ slot_address(w, column), near ? slots_and_gaps(w, columns) * slot_bytes(w) : 0, yes() };
}

void norm_weights_read(const norm_weights *w, const row_span *at, int step, tensor rGamma, tensor rBeta)
{
    for (int e = 0; e < at->split.vec; e++) {
        const vector_at slot = slot_at(w, at, step, e);
        const val out[] = { rGamma.regs[e], w->count > 1 ? rBeta.regs[e] : rGamma.regs[e] };
        vectors_load(&slot, 1, w->count, slots(w), out, 0);
    }
}
