/*
 * softmax_column_long.c - strips of columns of any length in chunks, which are read twice: one kernel stores the states
 * of all chunks, the next one merges those of each strip, and the last one writes.
 */
#include "operators/softmax/softmax_column.h"

/*
 * The chunk of this CTA, for neighbouring CTAs neighbouring strips, so that whole lines of memory are read. What the
 * first kernel has read last may still be in L2: the second one begins there.
 */
static strip_states take_chunk(columns *c, bool from_the_end)
{
    const val strips = c->p.strips, chunks = c->p.chunks, all = mul(mul(convert(U32, c->p.outer), strips), chunks);
    const val number = from_the_end ? sub(sub(all, imm_as(U32, 1)), cta_x()) : cta_x();
    strip_states s = strip_states_begin(c);
    s.chunk = rem(div(number, strips), chunks);
    s.strip = add(mul(div(number, mul(strips, chunks)), strips), rem(number, strips));
    const column_place strip = place_in(c, s.strip);
    c->place = column_from(&strip, mul(mul(s.chunk, c->p.tiles), imm_as(U32, column_split_lines(&c->split))));
    return s;
}

/* Vectors, or elements, that cp.async cannot copy are loaded into registers. */
static void over_tiles(const columns *c, tile_visit *visit, column_states *found)
{
    LOOP(tile, c->p.tiles) {
        const column_place at = place_of_tile(c, tile);
        tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
        load_inputs(c, &at, rX);
        visit(c, &at, rX, found);
    }
}

static val slots_of_stage(const columns *c, val slots, val tile)
{
    return add(slots, mul(bit_and(tile, imm(SOFTMAX_LONG_STAGES - 1)), imm_as(U32, tile_slots_bytes(c))));
}

static void stage(const columns *c, val slots, val tile)
{
    const column_place at = place_of_tile(c, tile);
    stage_tile(c, &at, slots_of_stage(c, slots, tile));
}

/* Starts the copies of the first tiles. */
static val stage_first(const columns *c)
{
    const val slots = smem_address(smem_alloc("tiles", SOFTMAX_LONG_STAGES * tile_slots_bytes(c), 16));
    for (int i = 0; i < SOFTMAX_LONG_STAGES - 1; i++) {
        IF(lt(imm_as(U32, i), c->p.tiles))
            stage(c, slots, imm(i));
        cp_async_commit();
    }
    return slots;
}

static void over_staged_tiles(const columns *c, val slots, tile_visit *visit, column_states *found)
{
    LOOP(tile, c->p.tiles) {
        const column_place at = place_of_tile(c, tile);
        const val later = add(tile, imm(SOFTMAX_LONG_STAGES - 1));
        IF(lt(later, c->p.tiles))
            stage(c, slots, later);
        cp_async_commit();
        cp_async_wait(SOFTMAX_LONG_STAGES - 1);
        visit_staged(c, &at, slots_of_stage(c, slots, tile), visit, found);
    }
}

void softmax_column_long(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    const int pass = kernel % SOFTMAX_LONG_SCALAR;
    const bool writes = pass == SOFTMAX_LONG_WRITES, scalar = kernel >= SOFTMAX_LONG_SCALAR;
    columns c = { .form = &cfg->form,
                  .split = scalar ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax),
                  .fold = cfg->fold };
    const bool staged = c.split.vec * dtype_bytes(c.form->dtype) >= SOFTMAX_COPY_BYTES_MIN;
    launch_bounds(c.split.threads, scalar ? 0 : cfg->form.ctas_per_sm); // single elements take more registers
    launch_dependents();
    grid_wait();
    if (pass == SOFTMAX_LONG_TOTALS) {
        merge_totals(&c);
        return;
    }
    strip_states states = take_chunk(&c, writes);
    const val slots = staged ? stage_first(&c) : imm(0);
    column_states found;
    if (writes)
        found = load_totals(&c);
    else
        begin_states(&c, c.split.vec, found.of);
    tile_visit *const visit = writes ? write_visit(&c) : sum_visit(&c);
    if (staged)
        over_staged_tiles(&c, slots, visit, &found);
    else
        over_tiles(&c, visit, &found);
    if (!writes)
        strip_states_store(&states, &c.place, &found);
}
