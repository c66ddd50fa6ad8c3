/* softmax_column.h - what the kernels of columns do with a tile of them. */
#pragma once

#include "operators/softmax/softmax_config.h"

enum { VEC_MAX = 8 };

typedef struct columns {
    const softmax_form *form;
    column_split split;
    softmax_values p;
    column_place place; // of this thread in its strip
    int fold;           // columns that are one, in a line
} columns;

static inline column_tensor input_of(const columns *c, int i)
{
    return (column_tensor){ softmax_input(c->form, &c->p, i), c->form->dtype, softmax_input_pitch(c->form, &c->p),
                            c->p.n };
}

/* Stores a tile of outputs. */
static inline void store_tile(const columns *c, const column_place *tile, tensor rY)
{
    const bool is_forward = softmax_is_forward(c->form);
    const column_tensor y = { is_forward ? c->p.y : c->p.dx, c->form->dtype, is_forward ? c->p.ldy : c->p.ldx, c->p.n };
    column_store(&c->split, tile, rY, &y);
}

static inline tensor registers(const columns *c, ckl_dtype dtype)
{
    return fragment(dtype, compact(shape(c->split.vec, c->split.steps)));
}

/* The elements of this thread in one of its columns: (STEPS). */
static inline tensor column_of(tensor rX, int e)
{
    return slice(rX, e, _);
}

/* t = scale * x; x itself in its own type where there is no scale. */
static inline tensor scores_of(const columns *c, tensor rX)
{
    if (!c->form->scaled)
        return rX;
    tensor rT = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rT.layout); i++)
        set(rT, i, mul(at_f32(rX, i), c->p.scale));
    return rT;
}

/* Of scores or their exponentials; pairs and factors are those of the columns. */
static inline void store_outputs(const columns *c, const column_place *place, softmax_output *output, tensor rT,
                                 const val *pairs, const val *factors)
{
    tensor rY = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rY.layout); i++) {
        const int e = i % c->split.vec;
        set(rY, i, output(c->form, at(rT, i), pairs + e * ONLINE_VALUES, factors[e]));
    }
    store_tile(c, place, rY);
}

/* Visits of tiles */

/* The states of a thread's columns; forward also what outputs need of them. */
typedef struct column_states {
    val of[VEC_MAX * ONLINE_VALUES], factors[VEC_MAX];
} column_states;

/* What a pass does with a tile: rX are its elements of x, or of y and dy, (VEC,STEPS) each. */
typedef void tile_visit(const columns *c, const column_place *at, const tensor *rX, column_states *found);

/* States of no elements for so many columns. */
static inline void begin_states(const columns *c, int count, val *states)
{
    for (int e = 0; e < count; e++)
        softmax_begin(c->form, states + e * softmax_state_values(c->form));
}

static inline void add_scores(const columns *c, const column_place *at, const tensor *rX, column_states *found)
{
    tensor rT = scores_of(c, rX[0]); // (VEC,STEPS)
    (void)at;
    for (int e = 0; e < c->split.vec; e++)
        online_add(found->of + e * ONLINE_VALUES, column_of(rT, e));
}

/* Of states that are those of whole columns. */
static inline void find_factors(const columns *c, column_states *found)
{
    for (int e = 0; e < c->split.vec && softmax_is_forward(c->form); e++)
        found->factors[e] = softmax_factor(c->form, found->of + e * ONLINE_VALUES);
}

static inline void write_outputs(const columns *c, const column_place *at, const tensor *rX, column_states *found)
{
    tensor rT = scores_of(c, rX[0]); // (VEC,STEPS)
    store_outputs(c, at, softmax_of_score, rT, found->of, found->factors);
}

static inline void add_dots(const columns *c, const column_place *at, const tensor *rX, column_states *found)
{
    (void)at;
    for (int e = 0; e < c->split.vec; e++)
        assign(found->of[e], add(found->of[e], softmax_dot(c->form, column_of(rX[0], e), column_of(rX[1], e))));
}

static inline void write_gradients(const columns *c, const column_place *at, const tensor *rX, column_states *found)
{
    tensor rDx = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rDx.layout); i++)
        set(rDx, i, softmax_gradient(c->form, at(rX[0], i), at(rX[1], i), found->of[i % c->split.vec], c->p.scale));
    store_tile(c, at, rDx);
}

/* Both passes. */
static inline tile_visit *sum_visit(const columns *c)
{
    return softmax_is_forward(c->form) ? add_scores : add_dots;
}

static inline tile_visit *write_visit(const columns *c)
{
    return softmax_is_forward(c->form) ? write_outputs : write_gradients;
}

static inline void load_inputs(const columns *c, const column_place *tile, tensor *rX)
{
    for (int i = 0; i < softmax_inputs(c->form); i++) {
        const column_tensor x = input_of(c, i);
        rX[i] = registers(c, x.dtype); // (VEC,STEPS)
        column_load(&c->split, tile, &x, rX[i], softmax_outside(c->form));
    }
}

static inline column_place place_of_tile(const columns *c, val tile)
{
    return column_from(&c->place, mul(tile, imm((int)column_split_lines(&c->split))));
}

static inline column_place place_in(const columns *c, val strip)
{
    return column_in_strip(&c->split, c->p.n, c->p.inner, c->p.ldx, c->p.strips, strip);
}

/* In softmax_column_chunk.c */

/*
 * Tiles by way of shared memory: a thread copies its elements, of 4 bytes at least side by side, to slots of its own,
 * and reads them from there. slots: u32, the address of a tile's, tile_slots_bytes() of the CTA.
 */
int64_t tile_slots_bytes(const columns *c);
void stage_tile(const columns *c, const column_place *tile, val slots); // starts the copies
void visit_staged(const columns *c, const column_place *tile, val slots, tile_visit *visit, column_states *found);

/*
 * The states of a strip's chunks in global memory, (COUNT,COLUMNS) each. A state is what softmax_state_values() says.
 */
typedef struct strip_states {
    const columns *c;
    val strip, chunk;     // u32, of this CTA
    column_split merging; // of the same columns over threads that merge
    int64_t scratch;      // shared memory of reductions
    tensor sStrip;        // (COLUMNS,COUNT): states of the strip
} strip_states;

strip_states strip_states_begin(const columns *c);

/* Stores what the threads have found in the chunk; place: of c in it. */
void strip_states_store(strip_states *s, const column_place *place, column_states *found);

/* The states of the whole strip, after those of all its chunks are stored. */
column_states strip_states_merge(strip_states *s, const column_place *place);

/* Of columns that are one: their total for each, where a thread's states are those of whole strips. */
column_states strip_states_fold(strip_states *s, const column_place *place, const column_states *found);

/*
 * Where lines are read twice: a kernel merges the states of all chunks, and of the columns that are one; the next one
 * loads those of its columns.
 */
void merge_totals(const columns *c);
column_states load_totals(const columns *c);
