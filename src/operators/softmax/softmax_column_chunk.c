/* softmax_column_chunk.c - tiles of a chunk through shared memory, and the states of a strip's chunks. */
#include "operators/softmax/softmax_column.h"
#include "skeletons/one_pass.h"

enum { CHUNKS_AT_ONCE_MAX = 16, HELD_AT_ONCE_MAX = 8 }; // whose states are loaded; held chunks want registers, too

/* Tiles */

int64_t tile_slots_bytes(const columns *c)
{
    return column_slots_bytes(&c->split, c->form->dtype) * softmax_pipeline_inputs(c->form);
}

static val slots_of_input(const columns *c, val slots, int input)
{
    return add(slots, imm_as(U32, input * column_slots_bytes(&c->split, c->form->dtype)));
}

void stage_tile(const columns *c, const column_place *tile, val slots)
{
    const bool is_forward = softmax_is_forward(c->form);
    column_stage(&c->split, tile, is_forward ? c->p.x : c->p.y, c->form->dtype, is_forward ? c->p.ldx : c->p.ldy,
                 c->p.n, slots_of_input(c, slots, 0));
    if (!is_forward)
        column_stage(&c->split, tile, c->p.dy, c->form->dtype, c->p.ldy, c->p.n, slots_of_input(c, slots, 1));
}

void visit_staged(const columns *c, const column_place *tile, val slots, tile_visit *visit, void *user)
{
    tensor rX[INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < softmax_pipeline_inputs(c->form); i++) {
        rX[i] = registers(c, c->form->dtype);
        column_load_staged(&c->split, tile, c->form->dtype, slots_of_input(c, slots, i), rX[i],
                           softmax_is_forward(c->form) ? -INFINITY : 0);
    }
    visit(c, tile, rX, user);
}

/* States */

/* A column a lane, or more where there are fewer threads: neighbouring lanes load neighbouring states. */
static column_split split_for_merging(const columns *c)
{
    const int count = (int)column_split_room(&c->split), lanes = (int)min_i64(count, c->split.threads);
    return (
        column_split){ .threads = c->split.threads, .lanes = lanes, .cluster = 1, .vec = count / lanes, .steps = 1 };
}

strip_states strip_states_begin(const columns *c, bool meets)
{
    const column_split merging = split_for_merging(c);
    const int count = softmax_state_values(c->form);
    const int64_t bytes =
        max_i64(column_reduce_each_bytes(&c->split, count), column_reduce_each_bytes(&merging, count));
    return (strip_states){ .c = c,
                           .meets = meets,
                           .merging = merging,
                           .scratch = smem_alloc("column_warps", bytes, 16),
                           .sStrip = smem_tensor("strip", F32, compact(shape(count, column_split_room(&c->split))), 16),
                           .sGaveUp = smem_tensor("gave_up", U32, compact(leaf(c->split.threads / 32)), 4) };
}

static val states_at(const strip_states *s, val chunk, val column)
{
    const columns *c = s->c;
    const int count = softmax_state_values(c->form);
    const val number = add(mul(s->strip, c->p.chunks), chunk);
    const val index = add(mul(convert(U64, number), imm_as(U64, column_split_room(&c->split))), convert(U64, column));
    return add(c->p.states, mul(index, imm_as(U64, count * 4)));
}

/* The first column of this thread in its strip. */
static val first_column(const column_split *split)
{
    const val lane = thread_at(convert(U32, thread()), 0, split->lanes, split->threads / split->lanes);
    return mul(lane, imm_as(U32, split->vec));
}

/* The words of a column of a chunk go by one access. */
static ckl_dtype words_type(const columns *c)
{
    return softmax_state_values(c->form) == ONLINE_VALUES ? U64 : U32;
}

static void load_state(const strip_states *s, val chunk, val column, tensor rW)
{
    const val address = states_at(s, chunk, column);
    const ckl_dtype type = words_type(s->c);
    const val words = s->meets ? load_relaxed(type, address) : at(gmem_tensor(address, type, compact(leaf(1))), 0);
    set(rW, 0, convert(U32, words));
    if (type == U64)
        set(rW, 1, convert(U32, shift_right(words, imm(32))));
}

static void store_state(void *user, val column, const val *values)
{
    const strip_states *s = user;
    const ckl_dtype type = words_type(s->c);
    val words = convert(type, one_pass_word(values[0]));
    if (type == U64)
        words = bit_or(words, shift_left(convert(U64, one_pass_word(values[1])), imm(32)));
    store_relaxed(type, states_at(s, s->chunk, column), words);
}

/* Words of the columns that merging gives this thread, of some chunks, `groups` apart. */
typedef struct some_chunks {
    int count, groups;
    val first;
    tensor rW[CHUNKS_AT_ONCE_MAX]; // (COUNT,VEC) each
} some_chunks;

static val number_of(const some_chunks *some, int i)
{
    return add(some->first, imm_as(U32, i * some->groups));
}

static void load_lacking(const strip_states *s, const some_chunks *some, const val *lacks)
{
    for (int i = 0; i < some->count; i++)
        IF(lacks[i])
            for (int e = 0; e < s->merging.vec; e++)
                load_state(s, number_of(some, i), add(first_column(&s->merging), imm_as(U32, e)),
                           slice(some->rW[i], _, e));
}

/* Is a word still 0? */
static val lacks_word(tensor rW)
{
    val least = at(rW, 0);
    for (int v = 1; v < static_size(rW.layout); v++)
        least = min(least, at(rW, v));
    return eq(least, imm_as(U32, 0));
}

/*
 * All are loaded before the first is used; those of CTAs that run at the same time again, until they are there. Of
 * chunks that do not exist words are 1.
 */
static void load_chunks(const strip_states *s, const some_chunks *some)
{
    const val zero = imm_as(U32, 0), one = imm_as(U32, 1);
    val lacks[CHUNKS_AT_ONCE_MAX];
    for (int i = 0; i < some->count; i++) {
        lacks[i] = variable(IR_PRED, lt(number_of(some, i), s->c->p.chunks));
        for (int v = 0; v < static_size(some->rW[i].layout); v++)
            set(some->rW[i], v, one);
    }
    load_lacking(s, some, lacks);
    if (!s->meets)
        return;
    FOREVER {
        val any = no();
        for (int i = 0; i < some->count; i++) {
            assign(lacks[i], lacks_word(some->rW[i]));
            any = logical_or(any, lacks[i]);
        }
        assign(s->looks, select(any, sub(max(s->looks, one), one), s->looks));
        BREAK_IF(logical_or(logical_not(any), eq(s->looks, zero)));
        load_lacking(s, some, lacks);
    }
}

static void keep_total(void *user, val column, const val *values)
{
    const strip_states *s = user;
    for (int v = 0; v < softmax_state_values(s->c->form); v++)
        set(s->sStrip, coord(v, column), values[v]);
}

/* Every group of lanes merges the states of some chunks, then the groups are merged: the states of the strip. */
static void merge_chunks(strip_states *s)
{
    const column_split *split = &s->merging;
    const int count = softmax_state_values(s->c->form), most = s->meets ? HELD_AT_ONCE_MAX : CHUNKS_AT_ONCE_MAX;
    const int groups = split->threads / split->lanes;
    const int at_once = (int)max_i64(1, most / split->vec);
    const reduction *r = softmax_reduction(s->c->form);
    val states[VEC_MAX * ONLINE_VALUES];
    begin_states(s->c, split->vec, states);
    LOOP_FROM(first, thread_at(convert(U32, thread()), 1, split->lanes, groups), s->c->p.chunks,
              imm_as(U32, groups * at_once)) {
        some_chunks some = { .count = at_once, .groups = groups, .first = first };
        for (int i = 0; i < at_once; i++)
            some.rW[i] = fragment(U32, compact(shape(count, split->vec)));
        load_chunks(s, &some);
        for (int i = 0; i < at_once; i++)
            IF(lt(number_of(&some, i), s->c->p.chunks))
                for (int e = 0; e < split->vec; e++) {
                    const val other[] = { one_pass_value(at(some.rW[i], 0, e)),
                                          one_pass_value(at(some.rW[i], count - 1, e)) };
                    r->combine(states + e * count, other, r->user);
                }
    }
    if (s->meets) {
        const val gave_up = vote_any(eq(s->looks, imm_as(U32, 0)));
        IF(eq(lane(), imm(0)))
            set(s->sGaveUp, warp(), select(gave_up, imm_as(U32, 1), imm_as(U32, 0)));
    }
    column_reduce_each(split, NULL, r, s->scratch, states, keep_total, s);
}

void strip_states_store(strip_states *s, const column_place *place, column_states *found)
{
    column_reduce_each(&s->c->split, place, softmax_reduction(s->c->form), s->scratch, found->of, store_state, s);
}

val strip_states_merge(strip_states *s, const column_place *place, column_states *found)
{
    const columns *c = s->c;
    const int count = softmax_state_values(c->form);
    cta_sync(); // what was stored before used the scratch, too
    merge_chunks(s);
    cta_sync();
    for (int i = 0; i < count * c->split.vec; i++)
        found->of[i] = at(s->sStrip, imm(i % count), column_number(&c->split, place, i / count));
    find_factors(c, found);
    val gave_up = imm_as(U32, 0);
    for (int w = 0; w < c->split.threads / 32 && s->meets; w++)
        gave_up = bit_or(gave_up, at(s->sGaveUp, w));
    return eq(gave_up, imm_as(U32, 0));
}

void strip_states_clear(const strip_states *s)
{
    const columns *c = s->c;
    const val words = mul(c->p.chunks, imm_as(U32, column_split_room(&c->split) * softmax_state_values(c->form)));
    LOOP_FROM(i, convert(U32, thread()), words, imm_as(U32, c->split.threads))
        store_relaxed(U32, add(states_at(s, imm_as(U32, 0), imm_as(U32, 0)), mul(convert(U64, i), imm_as(U64, 4))),
                      imm_as(U32, 0));
}
