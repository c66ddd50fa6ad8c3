/*
 * softmax_column_held.c - strips of columns in chunks, of which each has a CTA that keeps it in shared memory and
 * registers until the sums of the strip are known.
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
    val slots;       // u32: their address
    strip_states states;
    tensor rKept[SOFTMAX_KEPT_MAX][SOFTMAX_INPUTS_MAX]; // (VEC,STEPS) each
} column_held;

enum { PARTS = 4 }; // of a chunk: a part is a group of copies

static int tiles_before(const column_held *k, int part)
{
    return part * k->tiles / PARTS;
}

static val slots_of_tile(const column_held *k, val tile)
{
    return add(k->slots, mul(tile, imm_as(U32, tile_slots_bytes(&k->c))));
}

static void visit_tile(const column_held *k, val tile, tile_visit *visit, column_states *found)
{
    const column_place at = place_of_tile(&k->c, tile);
    visit_staged(&k->c, &at, slots_of_tile(k, tile), visit, found);
}

static void visit_kept(const column_held *k, tile_visit *visit, column_states *found)
{
    for (int i = 0; i < k->kept; i++) {
        const column_place at = place_of_tile(&k->c, imm(k->tiles + i));
        visit(&k->c, &at, k->rKept[i], found);
    }
}

static void stage_chunk(column_held *k, val chunk)
{
    columns *c = &k->c;
    const column_place strip = place_in(c, k->states.strip);
    c->place = column_from(&strip, mul(chunk, imm_as(U32, (k->tiles + k->kept) * (int)column_split_lines(&c->split))));
    for (int part = 0; part < PARTS; part++) {
        LOOP_FROM(tile, imm(tiles_before(k, part)), imm(tiles_before(k, part + 1)), imm(1)) {
            const column_place at = place_of_tile(c, tile);
            stage_tile(c, &at, slots_of_tile(k, tile));
        }
        cp_async_commit();
    }
    for (int i = 0; i < k->kept; i++) {
        const column_place at = place_of_tile(c, imm(k->tiles + i));
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
            visit_tile(k, tile, sum_visit(&k->c), &found);
    }
    visit_kept(k, sum_visit(&k->c), &found);
    return found;
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
    column_states found = sum_chunk(k);
    column_reduce(&c->split, &c->place, softmax_reduction(c->form), found.of);
    if (c->fold > 1)
        found = strip_states_fold(&k->states, &c->place, &found);
    else
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
    strip_states_store(&k->states, &c->place, &found);
    one_pass_meet(&t, write_chunk, write_other, k);
}

void softmax_column_held(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    if (kernel > 0) { // not for copies of whole vectors
        softmax_column_long(config, SOFTMAX_LONG_SCALAR + kernel - 1);
        return;
    }
    column_held k = { .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax), .fold = cfg->fold },
                      .tiles = cfg->tiles,
                      .kept = cfg->kept };
    const columns *c = &k.c;
    launch_bounds(c->split.threads, cfg->form.ctas_per_sm);
    if (cfg->loading || c->fold > 1)
        k.states = strip_states_begin(c);
    k.slots = smem_address(smem_alloc("chunk", k.tiles * tile_slots_bytes(c), 16));
    launch_dependents();
    grid_wait();
    if (cfg->loading)
        take_chunk(&k, cfg->loading);
    else
        take_strip(&k);
}
