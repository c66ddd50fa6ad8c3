/*
 * softmax_column_held.c - strips of columns in chunks, of which each has a CTA that keeps it in shared memory and
 * registers until the sums of the strip are known.
 */
#include "operators/softmax/softmax_column.h"
#include "skeletons/one_pass.h"

/*
 * The states of a strip's chunks in global memory, (COUNT,COLUMNS) each. A state is what softmax_state_values() says.
 */
typedef struct strip_states {
    const columns *c;
    val strip, chunk;     // u32, of this CTA
    int64_t scratch;      // shared memory of reductions
    column_split merging; // of the same columns over threads that merge
} strip_states;

/* Neighbouring lanes load neighbouring 16 bytes of states, so that each access fills its sectors. */
static column_split split_for_merging(const columns *c)
{
    enum { LANES_MAX = 32, FLOATS = 4 };
    const int count = (int)column_split_room(&c->split);
    const int vec = (int)max_i64(FLOATS / softmax_state_values(c->form), count / LANES_MAX);
    column_split s = { .threads = c->split.threads, .cluster = 1, .vec = (int)min_i64(count, vec), .steps = 1 };
    s.lanes = count / s.vec;
    return s;
}

static strip_states states_begin(const columns *c)
{
    const column_split merging = split_for_merging(c);
    const int count = softmax_state_values(c->form);
    const int64_t bytes =
        max_i64(column_reduce_each_bytes(&c->split, count), column_reduce_each_bytes(&merging, count));
    return (strip_states){ .c = c, .scratch = smem_alloc("column_warps", bytes, 16), .merging = merging };
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

/* Those of the columns that merging gives this thread: (COUNT*VEC). */
static void load_states(const strip_states *s, val chunk, tensor rS)
{
    const int values = softmax_state_values(s->c->form) * s->merging.vec;
    copy(gmem_tensor(states_at(s, chunk, first_column(&s->merging)), F32, compact(leaf(values))), rS,
         (int)min_i64(16, values * 4));
}

static void store_states(void *user, val column, const val *values)
{
    const strip_states *s = user;
    const int count = softmax_state_values(s->c->form);
    tensor gS = gmem_tensor(states_at(s, s->chunk, column), F32, compact(leaf(count))); // (COUNT)
    for (int v = 0; v < count; v++)
        set(gS, v, values[v]);
}

/*
 * Every group of lanes merges the states of some chunks, several loaded before the first is used; then the groups are
 * merged: store() of each column.
 */
static void merge_states(const strip_states *s, void (*store)(void *user, val column, const val *values), void *user)
{
    enum { AT_ONCE_MAX = 8, FLOATS_AT_ONCE = 32 };
    const column_split *split = &s->merging;
    const int count = softmax_state_values(s->c->form), floats = count * split->vec;
    const int at_once = (int)max_i64(1, min_i64(AT_ONCE_MAX, FLOATS_AT_ONCE / floats));
    const int groups = split->threads / split->lanes;
    const reduction *r = softmax_reduction(s->c->form);
    val states[VEC_MAX * ONLINE_VALUES], none[VEC_MAX * ONLINE_VALUES];
    begin_states(s->c, split->vec, states);
    begin_states(s->c, split->vec, none);
    LOOP_FROM(first, thread_at(convert(U32, thread()), 1, split->lanes, groups), s->c->p.chunks,
              imm_as(U32, groups * at_once)) {
        tensor rS[AT_ONCE_MAX]; // (COUNT*VEC) each
        for (int i = 0; i < at_once; i++) {
            const val chunk = add(first, imm_as(U32, i * groups));
            rS[i] = fragment(F32, compact(leaf(floats)));
            for (int v = 0; v < floats; v++)
                set(rS[i], v, none[v]);
            IF(lt(chunk, s->c->p.chunks))
                load_states(s, chunk, rS[i]);
        }
        for (int i = 0; i < at_once; i++)
            for (int e = 0; e < split->vec; e++) {
                const val other[] = { at(rS[i], e * count), at(rS[i], e * count + count - 1) };
                r->combine(states + e * count, other, r->user);
            }
    }
    column_reduce_each(split, NULL, r, s->scratch, states, store, user);
}

/* Stores what the threads have found in the chunk. */
static void leave_states(strip_states *s, const column_place *place, val *values)
{
    column_reduce_each(&s->c->split, place, softmax_reduction(s->c->form), s->scratch, values, store_states, s);
}

/* Chunks that stay in shared memory, and their last tiles in registers */

/*
 * A thread copies its elements of a chunk to slots of its own and reads them from there twice, so threads wait for each
 * other only to reduce. The place of c is that of the chunk.
 */
typedef struct column_held {
    columns c;
    int tiles, kept; // in shared memory, and in registers
    val slots;       // u32: their address
    strip_states states;
    tensor sStrip;                              // (COUNT,COLUMNS): states of the strip
    tensor rKept[SOFTMAX_KEPT_MAX][INPUTS_MAX]; // (VEC,STEPS) each
} column_held;

enum { PARTS = 4 }; // of a chunk: a part is a group of copies

static int tiles_before(const column_held *k, int part)
{
    return part * k->tiles / PARTS;
}

static int64_t tile_bytes(const column_held *k)
{
    return column_slots_bytes(&k->c.split, k->c.form->dtype) * softmax_pipeline_inputs(k->c.form);
}

static val slots_at(const column_held *k, val tile, int input)
{
    val first = add(k->slots, imm_as(U32, input * column_slots_bytes(&k->c.split, k->c.form->dtype)));
    return add(first, mul(tile, imm_as(U32, tile_bytes(k))));
}

static column_place place_of_tile(const column_held *k, val tile)
{
    return column_from(&k->c.place, mul(tile, imm((int)column_split_lines(&k->c.split))));
}

/* Starts the copies of a tile. */
static void stage_tile(const column_held *k, val tile)
{
    const columns *c = &k->c;
    const bool is_forward = softmax_is_forward(c->form);
    column_place at = place_of_tile(k, tile);
    column_stage(&c->split, &at, is_forward ? c->p.x : c->p.y, c->form->dtype, is_forward ? c->p.ldx : c->p.ldy, c->p.n,
                 slots_at(k, tile, 0));
    if (!is_forward)
        column_stage(&c->split, &at, c->p.dy, c->form->dtype, c->p.ldy, c->p.n, slots_at(k, tile, 1));
}

static void visit_staged(const column_held *k, val tile, tile_visit *visit, void *user)
{
    const columns *c = &k->c;
    column_place at = place_of_tile(k, tile);
    tensor rX[INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < softmax_pipeline_inputs(c->form); i++) {
        rX[i] = registers(c, c->form->dtype);
        column_load_staged(&c->split, &at, c->form->dtype, slots_at(k, tile, i), rX[i],
                           softmax_is_forward(c->form) ? -INFINITY : 0);
    }
    visit(c, &at, rX, user);
}

static void visit_kept(const column_held *k, tile_visit *visit, void *user)
{
    for (int i = 0; i < k->kept; i++) {
        const column_place at = place_of_tile(k, imm(k->tiles + i));
        visit(&k->c, &at, k->rKept[i], user);
    }
}

static void stage_chunk(column_held *k, val chunk)
{
    columns *c = &k->c;
    const column_place strip = place_in(c, k->states.strip);
    c->place = column_from(&strip, mul(chunk, imm_as(U32, (k->tiles + k->kept) * (int)column_split_lines(&c->split))));
    for (int part = 0; part < PARTS; part++) {
        LOOP_FROM(tile, imm(tiles_before(k, part)), imm(tiles_before(k, part + 1)), imm(1))
            stage_tile(k, tile);
        cp_async_commit();
    }
    for (int i = 0; i < k->kept; i++) {
        const column_place at = place_of_tile(k, imm(k->tiles + i));
        load_inputs(c, &at, k->rKept[i]);
    }
}

/* While the first parts are added up, the others arrive. The states are those of this thread. */
static column_states sum_chunk(const column_held *k)
{
    column_states found;
    begin_states(&k->c, k->c.split.vec, found.of);
    for (int part = 0; part < PARTS; part++) {
        cp_async_wait(PARTS - 1 - part);
        LOOP_FROM(tile, imm(tiles_before(k, part)), imm(tiles_before(k, part + 1)), imm(1))
            visit_staged(k, tile, sum_visit(&k->c), &found);
    }
    visit_kept(k, sum_visit(&k->c), &found);
    return found;
}

static void tell_strip(void *user, val column, const val *values)
{
    const column_held *k = user;
    for (int v = 0; v < softmax_state_values(k->c.form); v++)
        set(k->sStrip, coord(v, column), values[v]);
}

/* The states of the strip: every CTA merges those of its chunks for itself. */
static column_states merge_strip(column_held *k)
{
    const columns *c = &k->c;
    const int count = softmax_state_values(c->form);
    column_states found;
    merge_states(&k->states, tell_strip, k);
    cta_sync();
    for (int i = 0; i < count * c->split.vec; i++)
        found.of[i] = at(k->sStrip, imm(i % count), column_number(&c->split, &c->place, i / count));
    find_factors(c, &found);
    return found;
}

/* Outputs of the chunk, by the states of its strip. */
static void write_outputs_of(const column_held *k, column_states found)
{
    visit_kept(k, write_visit(&k->c), &found);
    LOOP(tile, imm(k->tiles))
        visit_staged(k, tile, write_visit(&k->c), &found);
}

static void write_chunk(void *user)
{
    write_outputs_of(user, merge_strip(user));
}

static void write_other(void *user, val chunk)
{
    column_held other = *(const column_held *)user;
    stage_chunk(&other, chunk);
    cp_async_wait(0);
    write_chunk(&other);
}

/* Where a strip is one chunk, its sums are found as those of columns in registers. */
static void take_strip(column_held *k)
{
    const columns *c = &k->c;
    k->states.strip = cta_x();
    stage_chunk(k, imm_as(U32, 0));
    column_states found = sum_chunk(k);
    column_reduce(&c->split, &c->place, softmax_reduction(c->form), found.of);
    find_factors(c, &found);
    write_outputs_of(k, found);
}

/* The first chunks of a strip may wait until those of the strips before have been written and the last ones begin. */
static void take_chunk(column_held *k, int loading)
{
    enum { PATIENCE = 64 };
    const columns *c = &k->c;
    const val strips = mul(convert(U32, c->p.outer), c->p.strips);
    one_pass t = one_pass_of_cta(c->p.counter, strips, c->p.chunks);
    t.patience = PATIENCE;
    k->states.strip = t.strip;
    k->states.chunk = t.chunk;
    one_pass_load_in_turn(&t, imm_as(U32, loading));
    stage_chunk(k, t.chunk);
    cp_async_wait(PARTS / 2);
    one_pass_loaded(&t);
    column_states found = sum_chunk(k);
    leave_states(&k->states, &c->place, found.of);
    one_pass_meet(&t, write_chunk, write_other, k);
}

void softmax_column_held(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    if (kernel > 0) { // not for copies of whole vectors
        softmax_column_long(config, kernel);
        return;
    }
    column_held k = { .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) },
                      .tiles = cfg->tiles,
                      .kept = cfg->kept };
    const columns *c = &k.c;
    launch_bounds(c->split.threads, cfg->form.ctas_per_sm);
    if (cfg->loading)
        k.states = states_begin(c);
    k.slots = smem_address(smem_alloc("chunk", k.tiles * tile_bytes(&k), 16));
    if (cfg->loading)
        k.sStrip =
            smem_tensor("strip", F32, compact(shape(softmax_state_values(c->form), column_split_room(&c->split))), 16);
    launch_dependents();
    grid_wait();
    if (cfg->loading)
        take_chunk(&k, cfg->loading);
    else
        take_strip(&k);
}
