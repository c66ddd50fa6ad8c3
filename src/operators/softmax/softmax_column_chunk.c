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

void visit_staged(const columns *c, const column_place *tile, val slots, tile_visit *visit, column_states *found)
{
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < softmax_inputs(c->form); i++) {
        rX[i] = registers(c, c->form->dtype);
        column_load_staged(&c->split, tile, c->form->dtype, slots_of_input(c, slots, i), rX[i],
                           softmax_outside(c->form));
    }
    visit(c, tile, rX, found);
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

/* Where state `number`, u32, of a thread's columns is: those of all of them, side by side. */
typedef val state_address(const void *user, val number);

/* Every group of lanes merges some of the states, of which several are loaded before the first is used. */
static void merge_states(const columns *c, const column_split *split, val all, state_address *address, const void *user,
                         val *states)
{
    enum { AT_ONCE_MAX = 8, FLOATS_AT_ONCE = 32 };
    const int count = softmax_state_values(c->form), floats = count * split->vec;
    const int groups = split->threads / split->lanes;
    const int at_once = (int)max_i64(1, min_i64(AT_ONCE_MAX, FLOATS_AT_ONCE / floats));
    const reduction *r = softmax_reduction(c->form);
    val exists[AT_ONCE_MAX];
    tensor rS[AT_ONCE_MAX]; // (COUNT*VEC) each
    begin_states(c, split->vec, states);
    LOOP_FROM(first, thread_at(convert(U32, thread()), 1, split->lanes, groups), all, imm_as(U32, groups * at_once)) {
        for (int i = 0; i < at_once; i++) {
            const val number = add(first, imm_as(U32, i * groups));
            exists[i] = lt(number, all);
            rS[i] = fragment(F32, compact(leaf(floats)));
            fill(rS[i], immf(0));
            IF(exists[i])
                copy(gmem_tensor(address(user, number), F32, rS[i].layout), rS[i], (int)min_i64(16, floats * 4));
        }
        for (int i = 0; i < at_once; i++)
            IF(exists[i])
                for (int e = 0; e < split->vec; e++) {
                    const val other[] = { at(rS[i], e * count), at(rS[i], e * count + count - 1) };
                    r->combine(states + e * count, other, r->user);
                }
    }
}

/* The number of this thread among its group of lanes. */
static val lane_of(const column_split *split)
{
    return thread_at(convert(U32, thread()), 0, split->lanes, split->threads / split->lanes);
}

static val chunk_states(const void *user, val chunk)
{
    const strip_states *s = user;
    return states_at(s->c, s->strip, chunk, mul(lane_of(&s->merging), imm_as(U32, s->merging.vec)));
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

void strip_states_store(strip_states *s, const column_place *place, column_states *found)
{
    column_reduce_each(&s->c->split, place, softmax_reduction(s->c->form), s->scratch, found->of, store_states, s);
}

/* As they are in memory, not as lines are taken: u32. */
static val columns_of_matrix(const columns *c)
{
    return div(convert(U32, c->p.inner), imm_as(U32, c->fold));
}

/* Of the strip's columns those that are one, `inner` apart, are merged by a thread. */
static void merge_folded(const strip_states *s, val inner)
{
    const columns *c = s->c;
    const int count = softmax_state_values(c->form);
    const val first = convert(U32, thread());
    cta_sync();
    IF(lt(first, inner)) {
        val total[ONLINE_VALUES];
        begin_states(c, 1, total);
        for (int i = 0; i < c->fold; i++) {
            const val column = add(first, mul(inner, imm_as(U32, i)));
            const val other[] = { at(s->sStrip, column, imm(0)), at(s->sStrip, column, imm(count - 1)) };
            softmax_reduction(c->form)->combine(total, other, NULL);
        }
        keep_total((void *)s, first, total);
    }
}

/* The states of this thread's columns, when those of the strip are in shared memory. */
static column_states states_of_strip(const strip_states *s, const column_place *place)
{
    const columns *c = s->c;
    const int count = softmax_state_values(c->form);
    const val inner = c->fold > 1 ? columns_of_matrix(c) : imm(0);
    column_states found;
    if (c->fold > 1)
        merge_folded(s, inner);
    cta_sync();
    for (int i = 0; i < count * c->split.vec; i++) {
        const val column = column_number(&c->split, place, i / count);
        found.of[i] = at(s->sStrip, c->fold > 1 ? rem(convert(U32, column), inner) : column, imm(i % count));
    }
    find_factors(c, &found);
    return found;
}

column_states strip_states_merge(strip_states *s, const column_place *place)
{
    const columns *c = s->c;
    val states[VEC_MAX * ONLINE_VALUES];
    merge_states(c, &s->merging, c->p.chunks, chunk_states, s, states);
    column_reduce_each(&s->merging, NULL, softmax_reduction(c->form), s->scratch, states, keep_total, s);
    return states_of_strip(s, place);
}

column_states strip_states_fold(strip_states *s, const column_place *place, const column_states *found)
{
    const columns *c = s->c;
    IF(lt(convert(U32, thread()), imm_as(U32, c->split.lanes)))
        for (int e = 0; e < c->split.vec; e++)
            keep_total(s, column_number(&c->split, place, e), found->of + e * softmax_state_values(c->form));
    return states_of_strip(s, place);
}

/* Totals */

/* The states of column `column` of matrix `outer`: (COUNT). */
static tensor total_at(const columns *c, val outer, val column)
{
    const int count = softmax_state_values(c->form);
    const val inner = div(convert(U64, c->p.inner), imm_as(U64, c->fold));
    const val index = add(mul(convert(U64, outer), inner), convert(U64, column));
    return gmem_tensor(add(c->p.totals, mul(index, imm_as(U64, count * 4))), F32, compact(leaf(count)));
}

typedef struct totals {
    const columns *c;
    val inner, outer, first, column; // u32: columns of a matrix, the matrix, this CTA's first column, this lane's
} totals;

/* Of each chunk the states of the `fold` columns that stand for this lane's. */
static val folded_state(const void *user, val number)
{
    const totals *t = user;
    const val width = imm_as(U32, column_split_columns(&t->c->split)), fold = imm_as(U32, t->c->fold);
    const val folded = add(t->column, mul(rem(number, fold), t->inner));
    const val strip = add(mul(t->outer, t->c->p.strips), div(folded, width));
    return states_at(t->c, strip, div(number, fold), rem(folded, width));
}

static void store_total(void *user, val column, const val *values)
{
    const totals *t = user;
    const val number = add(t->first, column);
    IF(lt(number, t->inner)) {
        const tensor gT = total_at(t->c, t->outer, number); // (COUNT)
        for (int v = 0; v < softmax_state_values(t->c->form); v++)
            set(gT, v, values[v]);
    }
}

/* A lane has a column, and a group of lanes some of the chunks. */
void merge_totals(const columns *c)
{
    const int lanes = softmax_total_lanes(&c->split, c->fold);
    const column_split split = { .threads = c->split.threads, .lanes = lanes, .cluster = 1, .vec = 1, .steps = 1 };
    const int64_t scratch =
        smem_alloc("column_warps", column_reduce_each_bytes(&split, softmax_state_values(c->form)), 16);
    totals t = { .c = c, .inner = columns_of_matrix(c) };
    const val ctas = div(add(t.inner, imm_as(U32, lanes - 1)), imm_as(U32, lanes));
    t.outer = div(cta_x(), ctas);
    t.first = mul(rem(cta_x(), ctas), imm_as(U32, lanes));
    t.column = add(t.first, lane_of(&split));
    const val all = select(lt(t.column, t.inner), mul(c->p.chunks, imm_as(U32, c->fold)), imm_as(U32, 0));
    val state[ONLINE_VALUES];
    merge_states(c, &split, all, folded_state, &t, state);
    column_reduce_each(&split, NULL, softmax_reduction(c->form), scratch, state, store_total, &t);
}

column_states load_totals(const columns *c)
{
    const int count = softmax_state_values(c->form);
    const val inner = columns_of_matrix(c), outer = convert(U32, c->place.outer);
    const val before = mul(c->p.inner, imm64(c->split.vec)); // a vector may begin before its line
    val column = convert(U32, rem(add(c->place.column, before), convert(I64, inner)));
    column_states found;
    for (int e = 0; e < c->split.vec; e++) {
        const tensor gT = total_at(c, outer, column); // (COUNT)
        column = add(column, imm_as(U32, 1));
        column = select(eq(column, inner), imm_as(U32, 0), column);
        for (int v = 0; v < count; v++)
            found.of[e * count + v] = at(gT, v);
    }
    find_factors(c, &found);
    return found;
}
