/*
 * softmax_column_held.c - strips of columns in chunks, of which each has a CTA that keeps it in shared memory and
 * registers until the sums of the strip are known; or strips that flow through the shared memory of clusters.
 */
#include "operators/softmax/softmax_column.h"
#include "skeletons/one_pass.h"

/* Chunks that stay in shared memory, and their last tiles in registers */

/*
 * A thread copies its elements of a chunk to slots of its own and reads them from there twice, so threads wait for each
 * other only to reduce. The place of c is that of the chunk.
 */
typedef struct column_held {
    columns c;
    int tiles, kept; // in shared memory, and in registers
    int parts;       // of a chunk, each a group of copies
    val slots;       // u32: their address
    strip_states states;
    tensor rKept[SOFTMAX_KEPT_MAX][SOFTMAX_INPUTS_MAX]; // (VEC,STEPS) each
} column_held;

static int tiles_before(const column_held *k, int part)
{
    return part * k->tiles / k->parts;
}

static val slots_of_tile(const column_held *k, val tile)
{
    return add(k->slots, mul(tile, imm_as(U32, tile_slots_bytes(&k->c))));
}

static void visit_tile(const column_held *k, val tile, tile_visit *visit, void *user)
{
    const column_place at = place_of_tile(&k->c, tile);
    visit_staged(&k->c, &at, slots_of_tile(k, tile), visit, user);
}

static void visit_kept(const column_held *k, tile_visit *visit, void *user)
{
    for (int i = 0; i < k->kept; i++) {
        const column_place at = place_of_tile(&k->c, imm(k->tiles + i));
        visit(&k->c, &at, k->rKept[i], user);
    }
}

/* Starts the copies of a part. */
static void stage_part(const column_held *k, int part)
{
    LOOP_FROM(tile, imm(tiles_before(k, part)), imm(tiles_before(k, part + 1)), imm(1)) {
        const column_place at = place_of_tile(&k->c, tile);
        stage_tile(&k->c, &at, slots_of_tile(k, tile));
    }
}

static void stage_chunk(column_held *k, val chunk)
{
    columns *c = &k->c;
    const column_place strip = place_in(c, k->states.strip);
    c->place = column_from(&strip, mul(chunk, imm_as(U32, (k->tiles + k->kept) * (int)column_split_lines(&c->split))));
    for (int part = 0; part < k->parts; part++) {
        stage_part(k, part);
        cp_async_commit();
    }
    for (int i = 0; i < k->kept; i++) {
        const column_place at = place_of_tile(c, imm(k->tiles + i));
        load_inputs(c, &at, k->rKept[i]);
    }
}

static void visit_part(const column_held *k, int part, tile_visit *visit, void *user)
{
    LOOP_FROM(tile, imm(tiles_before(k, part)), imm(tiles_before(k, part + 1)), imm(1))
        visit_tile(k, tile, visit, user);
}

/*
 * While the first parts are added up, the others arrive, and `later` more that were asked for after them. The states
 * are those of this thread.
 */
static void sum_chunk(const column_held *k, int later, column_states *found)
{
    for (int part = 0; part < k->parts; part++) {
        cp_async_wait(later + k->parts - 1 - part);
        visit_part(k, part, sum_visit(&k->c), found);
    }
    visit_kept(k, sum_visit(&k->c), found);
}

/* Outputs of the chunk, by the states of its strip. */
static void write_outputs_of(const column_held *k, column_states found)
{
    visit_kept(k, write_visit(&k->c), &found);
    LOOP(tile, imm(k->tiles))
        visit_tile(k, tile, write_visit(&k->c), &found);
}

/* Every CTA merges the states of its strip for itself. */
static void write_chunk(void *user)
{
    column_held *k = user;
    write_outputs_of(k, strip_states_merge(&k->states, &k->c.place));
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
    column_states found;
    begin_states(c, c->split.vec, found.of);
    sum_chunk(k, 0, &found);
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
    cp_async_wait(k->parts / 2);
    one_pass_loaded(&t);
    column_states found;
    begin_states(c, c->split.vec, found.of);
    sum_chunk(k, 0, &found);
    strip_states_store(&k->states, &c->place, &found);
    one_pass_meet(&t, write_chunk, write_other, k);
}

/* Strips that flow: a cluster has `depth` of them in its shared memory */

/* The share of this CTA in a strip, in slots number `slot`. */
static column_held strip_in(const column_held *k, val strip, val slot)
{
    column_held share = *k;
    share.c.place = place_in(&k->c, strip);
    share.slots = slots_of_tile(k, mul(slot, imm(k->tiles)));
    return share;
}

/*
 * The sums of a strip travel while the one before it is written, whose slots are filled again as they are read. Before
 * the first one is a strip of no elements.
 */
static void take_strips(const column_held *k, int depth)
{
    const columns *c = &k->c;
    const column_allreduce sums = column_allreduce_begin(&c->split, softmax_reduction(c->form), 2);
    const val strips = mul(convert(U32, c->p.outer), c->p.strips), cluster = imm_as(U32, c->split.cluster);
    const val step = div(convert(U32, grid_x()), cluster), strip = variable(U32, div(convert(U32, cta_x()), cluster));
    const val before = variable(U32, strips), turn = variable(U32, imm_as(U32, 0));
    const val slot = variable(U32, imm_as(U32, 0)), slot_before = variable(U32, imm_as(U32, depth - 1));
    cluster_meet(c->split.cluster);
    for (int i = 0; i < depth - 1; i++) {
        const val other = add(strip, mul(step, imm_as(U32, i)));
        const column_held share = strip_in(k, other, imm_as(U32, i));
        for (int part = 0; part < k->parts; part++) {
            IF(lt(other, strips))
                stage_part(&share, part);
            cp_async_commit();
        }
    }
    const column_place first = place_in(c, strip);
    column_states none;
    begin_states(c, c->split.vec, none.of);
    column_allreduce_send(&sums, &first, imm_as(U32, 1), none.of);
    FOREVER {
        const val exists = lt(strip, strips), later = add(strip, mul(step, imm_as(U32, depth - 1)));
        const val turn_before = sub(imm_as(U32, 1), turn);
        const column_held here = strip_in(k, strip, slot), last = strip_in(k, before, slot_before);
        const column_held next = strip_in(k, later, slot_before);
        column_states found, whole;
        begin_states(c, c->split.vec, found.of);
        begin_states(c, c->split.vec, whole.of);
        IF(exists)
            sum_chunk(&here, (depth - 2) * k->parts, &found);
        column_allreduce_receive(&sums, &last.c.place, turn_before, whole.of);
        find_factors(c, &whole);
        IF(exists)
            column_allreduce_send(&sums, &here.c.place, turn, found.of);
        for (int part = 0; part < k->parts; part++) {
            IF(lt(before, strips))
                visit_part(&last, part, write_visit(c), &whole);
            IF(lt(later, strips))
                stage_part(&next, part);
            cp_async_commit();
        }
        BREAK_IF(logical_not(exists));
        assign(before, strip);
        assign(strip, add(strip, step));
        assign(slot_before, slot);
        assign(slot, select(eq(slot, imm_as(U32, depth - 1)), imm_as(U32, 0), add(slot, imm_as(U32, 1))));
        assign(turn, turn_before);
    }
}

void softmax_column_held(const void *config, int kernel)
{
    enum { PARTS = 4, GROUPS_MAX = 8 }; // of a chunk; on their way
    const softmax_column_config *cfg = config;
    if (kernel > 0) { // not for copies of whole vectors
        softmax_column_long(config, SOFTMAX_LONG_SCALAR + kernel - 1);
        return;
    }
    column_held k = { .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) },
                      .tiles = cfg->tiles,
                      .kept = cfg->kept,
                      .parts = cfg->depth > 1 ? (int)min_i64(PARTS, GROUPS_MAX / (cfg->depth - 1)) : PARTS };
    const columns *c = &k.c;
    launch_bounds(c->split.threads, cfg->form.ctas_per_sm);
    cluster_size(c->split.cluster);
    if (cfg->loading)
        k.states = strip_states_begin(c);
    k.slots = smem_address(smem_alloc("chunk", max_i64(1, cfg->depth) * k.tiles * tile_slots_bytes(c), 16));
    launch_dependents();
    grid_wait();
    if (cfg->depth)
        take_strips(&k, cfg->depth);
    else if (cfg->loading)
        take_chunk(&k, cfg->loading);
    else
        take_strip(&k);
}
