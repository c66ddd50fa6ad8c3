/* softmax_column_chunk.c - tiles of a chunk through shared memory; states of chunks, of their strip, of columns. */
#include "operators/softmax/softmax_column.h"

/* Tiles */

int64_t tile_slots_bytes(const columns *c)
{
    return column_slots_bytes(&c->split, c->form->dtype) * softmax_inputs(c->form);
}

static val slots_of_input(const columns *c, val slots, int input)
{
    return add(slots, imm_as(U32, input * column_slots_bytes(&c->split, c->form->dtype)));
}

void stage_tile(const columns *c, const column_place *tile, val slots)
{
    for (int i = 0; i < softmax_inputs(c->form); i++) {
        const column_tensor x = input_of(c, i);
        column_stage(&c->split, tile, &x, slots_of_input(c, slots, i));
    }
}

void visit_staged(const columns *c, const column_place *tile, val slots, tile_visit *visit, void *user)
{
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < softmax_inputs(c->form); i++) {
        rX[i] = registers(c, c->form->dtype);
        column_load_staged(&c->split, tile, c->form->dtype, slots_of_input(c, slots, i), rX[i],
                           softmax_outside(c->form));
    }
    visit(c, tile, rX, user);
}

/* States */

/* Neighbouring lanes load neighbouring 16 bytes of states, so that each access fills its sectors. */
static column_split split_for_merging(const columns *c)
{
    enum { LANES_MAX = 32, FLOATS = 4 };
    const int count = (int)column_split_room(&c->split);
    const int64_t wanted = max_i64(FLOATS / softmax_state_values(c->form), count / LANES_MAX);
    const int vec = (int)min_i64(min_i64(count, wanted), VEC_MAX);
    return (column_split){ .threads = c->split.threads, .lanes = count / vec, .cluster = 1, .vec = vec, .steps = 1 };
}

strip_states strip_states_begin(const columns *c)
{
    const column_split merging = split_for_merging(c);
    const int count = softmax_state_values(c->form);
    const int64_t bytes =
        max_i64(column_reduce_each_bytes(&c->split, count), column_reduce_each_bytes(&merging, count));
    return (strip_states){ .c = c,
                           .merging = merging,
                           .scratch = smem_alloc("column_warps", bytes, 16),
                           .sStrip =
                               smem_tensor("strip", F32, compact(shape(column_split_room(&c->split), count)), 16) };
}

static val states_at(const columns *c, val strip, val chunk, val column)
{
    const int count = softmax_state_values(c->form);
    const val number = add(mul(strip, c->p.chunks), chunk);
    const val index = add(mul(convert(U64, number), imm_as(U64, column_split_room(&c->split))), convert(U64, column));
    return add(c->p.states, mul(index, imm_as(U64, count * 4)));
}

/* The first column of this thread in its strip. */
static val first_column(const column_split *split)
{
    const val lane = thread_at(convert(U32, thread()), 0, split->lanes, split->threads / split->lanes);
    return mul(lane, imm_as(U32, split->vec));
}

/* Those of the columns that merging gives this thread: (COUNT*VEC). */
static void load_states(const strip_states *s, val chunk, tensor rS)
{
    const int values = softmax_state_values(s->c->form) * s->merging.vec;
    copy(gmem_tensor(states_at(s->c, s->strip, chunk, first_column(&s->merging)), F32, compact(leaf(values))), rS,
         (int)min_i64(16, values * 4));
}

static void store_states(void *user, val column, const val *values)
{
    const strip_states *s = user;
    const int count = softmax_state_values(s->c->form);
    tensor gS = gmem_tensor(states_at(s->c, s->strip, s->chunk, column), F32, compact(leaf(count))); // (COUNT)
    for (int v = 0; v < count; v++)
        set(gS, v, values[v]);
}

static void keep_total(void *user, val column, const val *values)
{
    const strip_states *s = user;
    for (int v = 0; v < softmax_state_values(s->c->form); v++)
        set(s->sStrip, coord(column, v), values[v]);
}

/*
 * Every group of lanes merges the states of some chunks, several loaded before the first is used; then the groups are
 * merged: the states of the strip.
 */
static void merge_chunks(strip_states *s)
{
    enum { AT_ONCE_MAX = 8, FLOATS_AT_ONCE = 32 };
    const column_split *split = &s->merging;
    const int count = softmax_state_values(s->c->form), floats = count * split->vec;
    const int at_once = (int)max_i64(1, min_i64(AT_ONCE_MAX, FLOATS_AT_ONCE / floats));
    const int groups = split->threads / split->lanes;
    const reduction *r = softmax_reduction(s->c->form);
    val states[VEC_MAX * ONLINE_VALUES], exists[AT_ONCE_MAX];
    begin_states(s->c, split->vec, states);
    LOOP_FROM(first, thread_at(convert(U32, thread()), 1, split->lanes, groups), s->c->p.chunks,
              imm_as(U32, groups * at_once)) {
        tensor rS[AT_ONCE_MAX]; // (COUNT*VEC) each
        for (int i = 0; i < at_once; i++) {
            const val chunk = add(first, imm_as(U32, i * groups));
            exists[i] = lt(chunk, s->c->p.chunks);
            rS[i] = fragment(F32, compact(leaf(floats)));
            for (int v = 0; v < floats; v++)
                set(rS[i], v, immf(0));
            IF(exists[i])
                load_states(s, chunk, rS[i]);
        }
        for (int i = 0; i < at_once; i++)
            IF(exists[i])
                for (int e = 0; e < split->vec; e++) {
                    const val other[] = { at(rS[i], e * count), at(rS[i], e * count + count - 1) };
                    r->combine(states + e * count, other, r->user);
                }
    }
    column_reduce_each(split, NULL, r, s->scratch, states, keep_total, s);
}

void strip_states_store(strip_states *s, const column_place *place, column_states *found)
{
    column_reduce_each(&s->c->split, place, softmax_reduction(s->c->form), s->scratch, found->of, store_states, s);
}

column_states strip_states_merge(strip_states *s, const column_place *place)
{
    const columns *c = s->c;
    const int count = softmax_state_values(c->form);
    column_states found;
    merge_chunks(s);
    cta_sync();
    for (int i = 0; i < count * c->split.vec; i++)
        found.of[i] = at(s->sStrip, column_number(&c->split, place, i / count), imm(i % count));
    find_factors(c, &found);
    return found;
}

/* Totals */

/* The states of column `column` of matrix `outer`: (COUNT). */
static tensor total_at(const columns *c, val outer, val column, int fold)
{
    const int count = softmax_state_values(c->form);
    const val inner = div(convert(U64, c->p.inner), imm_as(U64, fold));
    const val index = add(mul(convert(U64, outer), inner), convert(U64, column));
    return gmem_tensor(add(c->p.totals, mul(index, imm_as(U64, count * 4))), F32, compact(leaf(count)));
}

typedef struct totals {
    const columns *c;
    int fold;
    val outer, first; // of this CTA's columns
} totals;

static void store_total(void *user, val column, const val *values)
{
    const totals *t = user;
    const val number = add(t->first, column);
    IF(lt(convert(U64, number), div(convert(U64, t->c->p.inner), imm_as(U64, t->fold)))) {
        const tensor gT = total_at(t->c, t->outer, number, t->fold); // (COUNT)
        for (int v = 0; v < softmax_state_values(t->c->form); v++)
            set(gT, v, values[v]);
    }
}

/*
 * A lane has a column, a warp some of its chunks: of each of the `fold` columns that stand for it. Several are loaded
 * before the first is used.
 */
void merge_totals(const columns *c, int fold)
{
    enum { LANES = 32, AT_ONCE = 8 };
    const column_split split = { .threads = c->split.threads, .lanes = LANES, .cluster = 1, .vec = 1, .steps = 1 };
    const int warps = split.threads / LANES, count = softmax_state_values(c->form);
    const int width = (int)column_split_columns(&c->split);
    const reduction *r = softmax_reduction(c->form);
    const int64_t scratch = smem_alloc("column_warps", column_reduce_each_bytes(&split, count), 16);
    const val inner = div(convert(U32, c->p.inner), imm_as(U32, fold));
    const val ctas = div(add(inner, imm_as(U32, LANES - 1)), imm_as(U32, LANES));
    totals t = { c, fold, div(cta_x(), ctas), mul(rem(cta_x(), ctas), imm_as(U32, LANES)) };
    const val column = add(t.first, lane()), all = mul(c->p.chunks, imm_as(U32, fold));
    val state[ONLINE_VALUES], loaded[AT_ONCE][ONLINE_VALUES], exists[AT_ONCE];
    begin_states(c, 1, state);
    LOOP_FROM(i, warp(), all, imm_as(U32, warps * AT_ONCE)) {
        for (int k = 0; k < AT_ONCE; k++) {
            const val number = add(i, imm_as(U32, k * warps));
            const val folded = add(column, mul(rem(number, imm_as(U32, fold)), inner));
            const val strip = add(mul(t.outer, c->p.strips), div(folded, imm_as(U32, width)));
            exists[k] = logical_and(lt(number, all), lt(column, inner));
            const tensor gS =
                gmem_tensor(states_at(c, strip, div(number, imm_as(U32, fold)), rem(folded, imm_as(U32, width))), F32,
                            compact(leaf(count)));
            for (int v = 0; v < count; v++)
                loaded[k][v] = variable(F32, immf(0));
            IF(exists[k])
                for (int v = 0; v < count; v++)
                    assign(loaded[k][v], at(gS, v));
        }
        for (int k = 0; k < AT_ONCE; k++)
            IF(exists[k])
                r->combine(state, loaded[k], r->user);
    }
    column_reduce_each(&split, NULL, r, scratch, state, store_total, &t);
}

column_states load_totals(const columns *c, int fold)
{
    const int count = softmax_state_values(c->form);
    const val inner = div(convert(U32, c->p.inner), imm_as(U32, fold)), outer = convert(U32, c->place.outer);
    const val before = mul(c->p.inner, imm64(c->split.vec)); // a vector may begin before its line
    val column = convert(U32, rem(add(c->place.column, before), convert(I64, inner)));
    column_states found;
    for (int e = 0; e < c->split.vec; e++) {
        const tensor gT = total_at(c, outer, column, fold); // (COUNT)
        column = add(column, imm_as(U32, 1));
        column = select(eq(column, inner), imm_as(U32, 0), column);
        for (int v = 0; v < count; v++)
            found.of[e * count + v] = at(gT, v);
    }
    find_factors(c, &found);
    return found;
}
