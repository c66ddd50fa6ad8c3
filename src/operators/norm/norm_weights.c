/* norm_weights.c - gamma and beta in shared memory: slots, filling them, and reading a vector from any slot on. */
#include "operators/norm/norm_config.h"

#include "cute/kernel.h"
#include "cute/vectors.h"

enum {
    LOAD_STEPS_MAX = 4, // vectors of each that a thread has in flight
    BARRIER = 1         // of the threads that fill; 0 is the CTA's
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

static void store_slots(const norm_weights *w, val column, const val *gamma, const val *beta)
{
    const vector_at first = { slot_address(w, column), 0, yes() };
    for (int e = 0; e < w->vec; e++) {
        vector_at at = first;
        at.offset = e * slot_bytes(w);
        vector_store(&at, w->count, (val[]){ gamma[e], beta ? beta[e] : gamma[e] }, slots(w));
    }
}

/* A column after the last whole vector; 0 past the end. */
static val load_element(val pointer, ckl_dtype dtype, val cols, val column)
{
    val x = variable(F32, immf(0));
    IF(lt(column, cols))
        assign(x, at_f32(gmem_tensor(pointer, dtype, compact(dynamic(cols))), column));
    return x;
}

/* Fills the whole vectors of a chunk; the one at column `tail` is filled element by element. */
static void fill_vectors(const norm_weights *w, const row_split *all, const norm_weight_sources *from, val tail)
{
    row_place start = row_place_of(all, imm64(1), tail, imm64(0), thread());
    val end = add(w->column, imm((int)w->cols));
    LOOP_FROM(begin, w->column, end, imm((int)row_split_cols(all))) {
        row_place p = row_from(&start, begin);
        tensor rGamma = row_fetch_vector(all, &p, from->gamma, from->dtype), rBeta = { 0 }; // (VEC,STEPS)
        if (w->count > 1)
            rBeta = row_fetch_vector(all, &p, from->beta, from->dtype);
        for (int step = 0; step < all->steps; step++) {
            const int first = step * w->vec;
            val column = coordinate(p.cX, 1, first);
            IF(logical_and(lt(column, end), ne(column, tail)))
                store_slots(w, column, rGamma.regs + first, w->count > 1 ? rBeta.regs + first : NULL);
        }
    }
}

static void fill_tail(const norm_weights *w, const norm_weight_sources *from, val tail)
{
    val column = add(tail, thread()),
        inside = lt(sub(tail, w->column), imm((int)w->cols)); // u32: no less than the first
    IF(logical_and(lt(thread(), imm(w->vec)), inside)) {
        const val gamma = load_element(from->gamma, from->dtype, from->cols, column);
        const val beta = w->count > 1 ? load_element(from->beta, from->dtype, from->cols, column) : gamma;
        const vector_at at = { slot_address(w, column), 0, yes() };
        vector_store(&at, w->count, (val[]){ gamma, beta }, slots(w));
    }
}

/*
 * Fills a stretch. Each turn of its loop waits for memory, so turns are few and even: 2432x8287 bf16 had eight, of which
 * every other was for the last vector of a chunk.
 */
static void fill_stretch(const norm_weights *w, const row_split *s, const norm_weight_sources *from)
{
    const int64_t steps = ceil_div(w->cols, (int64_t)s->threads * w->vec), turns = ceil_div(steps, LOAD_STEPS_MAX);
    const row_split all = { s->threads, s->threads, 1, w->vec, (int)ceil_div(steps, turns), .ragged = true };
    const val tail = bit_and(from->cols, imm(-w->vec));
    fill_vectors(w, &all, from, tail);
    fill_tail(w, from, tail);
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
        fill_stretch(&here, s, from);
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
