/*
 * softmax_column.c - rows that lie across memory, side by side: columns. `column`: a strip of them is read once and
 * stays in the registers of a CTA or a cluster. `column_pipeline`: it stays in shared memory, tile by tile; tiles of
 * the next strip replace those of this one. `column_chunks`: strips are read twice, by a CTA for each chunk, the second
 * time from L2. `column_long`: strips of any length are read twice by one CTA or cluster.
 */
#include "operators/softmax/softmax_config.h"
#include "skeletons/one_pass.h"
#include "skeletons/two_pass.h"

enum { VEC_MAX = 8 };

typedef struct columns {
    const softmax_form *form;
    column_split split;
    softmax_values p;
    column_place place; // of this thread in its strip
} columns;

static columns begin(const softmax_column_config *cfg, int kernel)
{
    columns c = { .form = &cfg->form,
                  .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax) };
    min_ctas_per_sm(cfg->form.ctas_per_sm);
    c.place = column_here(&c.split, c.p.n, c.p.inner, c.p.strips);
    return c;
}

static tensor registers(const columns *c, ckl_dtype dtype)
{
    return fragment(dtype, compact(shape(c->split.vec, c->split.steps)));
}

/* The elements of this thread in one of its columns: (STEPS). */
static tensor column_of(tensor rX, int e)
{
    return slice(rX, e, _);
}

/* t = scale * x; x itself in its own type where there is no scale. */
static tensor scores_of(const columns *c, tensor rX)
{
    if (!c->form->scaled)
        return rX;
    tensor rT = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rT.layout); i++)
        set(rT, i, mul(at_f32(rX, i), c->p.scale));
    return rT;
}

static tensor load_scores(const columns *c, const column_place *place)
{
    tensor rX = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, place, c->p.x, c->form->dtype, c->p.ldx, c->p.n, rX, -INFINITY);
    return scores_of(c, rX);
}

/* y of scores by log-softmax, of their exponentials by softmax; pairs and factors are those of the columns. */
static void store_outputs(const columns *c, const column_place *place, tensor rT, const val *pairs, const val *factors)
{
    tensor rY = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rY.layout); i++) {
        const int e = i % c->split.vec;
        set(rY, i, softmax_output(c->form, at(rT, i), pairs + e * ONLINE_VALUES, factors[e]));
    }
    column_store(&c->split, place, rY, c->p.y, c->form->dtype, c->p.ldy, c->p.n);
}

/* y and dy; zeros outside. */
static void load_gradients(const columns *c, const column_place *place, tensor *rY, tensor *rDy)
{
    *rY = registers(c, c->form->dtype);  // (VEC,STEPS)
    *rDy = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, place, c->p.y, c->form->dtype, c->p.ldy, c->p.n, *rY, 0);
    column_load(&c->split, place, c->p.dy, c->form->dtype, c->p.ldy, c->p.n, *rDy, 0);
}

static void add_dots(const columns *c, tensor rY, tensor rDy, const val *sums)
{
    for (int e = 0; e < c->split.vec; e++)
        assign(sums[e], add(sums[e], softmax_dot(c->form, column_of(rY, e), column_of(rDy, e))));
}

static void store_gradients(const columns *c, const column_place *place, tensor rY, tensor rDy, const val *sums)
{
    tensor rDx = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rDx.layout); i++)
        set(rDx, i, softmax_gradient(c->form, at(rY, i), at(rDy, i), sums[i % c->split.vec], c->p.scale));
    column_store(&c->split, place, rDx, c->p.dx, c->form->dtype, c->p.ldx, c->p.n);
}

static void zero_sums(const columns *c, val *sums)
{
    for (int e = 0; e < c->split.vec; e++)
        sums[e] = variable(F32, immf(0));
}

/* exp(t - max) of a tile. */
static tensor exponentials(const columns *c, tensor rT, const val *pairs)
{
    tensor rE = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rE.layout); i++) {
        const val *pair = pairs + i % c->split.vec * ONLINE_VALUES;
        set(rE, i, online_exp(at_f32(rT, i), pair[ONLINE_MAX]));
    }
    return rE;
}

/* Columns in registers */

/*
 * Adds column e to its pair. f32 scores are replaced by their exponentials, relative to the maximum that is returned.
 * Packed scores take half the registers and stay; their exponentials are computed again at the end.
 */
static val add_column(tensor rT, tensor rE, int e, val *pair)
{
    online_begin(pair);
    if (rE.regs)
        return online_add_keeping(pair, column_of(rT, e), column_of(rE, e));
    online_add(pair, column_of(rT, e));
    return pair[ONLINE_MAX];
}

static void forward(const columns *c)
{
    val pairs[VEC_MAX * ONLINE_VALUES], own[VEC_MAX], factors[VEC_MAX];
    const bool keeps = !c->form->log && c->form->dtype == F32;
    tensor rT = load_scores(c, &c->place), rE = { 0 }; // (VEC,STEPS)
    if (keeps)
        rE = registers(c, F32);
    softmax_meet_peers(c->split.cluster);
    for (int e = 0; e < c->split.vec; e++)
        own[e] = add_column(rT, rE, e, pairs + e * ONLINE_VALUES);
    column_reduce(&c->split, &online_reduction, pairs);
    for (int e = 0; e < c->split.vec; e++) {
        const val *pair = pairs + e * ONLINE_VALUES;
        factors[e] = keeps ? online_factor(pair, own[e]) : softmax_factor(c->form, pair);
    }
    if (!keeps)
        rE = c->form->log ? rT : exponentials(c, rT, pairs);
    store_outputs(c, &c->place, rE, pairs, factors);
}

static void backward(const columns *c)
{
    val sums[VEC_MAX];
    tensor rY, rDy; // (VEC,STEPS)
    load_gradients(c, &c->place, &rY, &rDy);
    softmax_meet_peers(c->split.cluster);
    zero_sums(c, sums);
    add_dots(c, rY, rDy, sums);
    column_reduce(&c->split, &softmax_sum, sums);
    store_gradients(c, &c->place, rY, rDy, sums);
}

void softmax_column(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    if (c.form->direction == CKL_DIRECTION_FORWARD)
        forward(&c);
    else
        backward(&c);
}

/* Columns tile by tile, in two passes */

enum { INPUTS_MAX = 2 };

/* What a pass does with a tile: rX are its elements of x, or of y and dy, (VEC,STEPS) each. */
typedef void tile_visit(const columns *c, const column_place *at, const tensor *rX, void *user);

typedef struct column_scores {
    val pairs[VEC_MAX * ONLINE_VALUES], factors[VEC_MAX];
} column_scores;

static void begin_scores(const columns *c, column_scores *found)
{
    for (int e = 0; e < c->split.vec; e++)
        online_begin(found->pairs + e * ONLINE_VALUES);
}

static void add_scores(const columns *c, const column_place *at, const tensor *rX, void *user)
{
    column_scores *found = user;
    tensor rT = scores_of(c, rX[0]); // (VEC,STEPS)
    (void)at;
    for (int e = 0; e < c->split.vec; e++)
        online_add(found->pairs + e * ONLINE_VALUES, column_of(rT, e));
}

static void find_factors(const columns *c, column_scores *found)
{
    for (int e = 0; e < c->split.vec; e++)
        found->factors[e] = softmax_factor(c->form, found->pairs + e * ONLINE_VALUES);
}

static void write_outputs(const columns *c, const column_place *at, const tensor *rX, void *user)
{
    const column_scores *found = user;
    tensor rT = scores_of(c, rX[0]); // (VEC,STEPS)
    store_outputs(c, at, c->form->log ? rT : exponentials(c, rT, found->pairs), found->pairs, found->factors);
}

static void add_tile_dots(const columns *c, const column_place *at, const tensor *rX, void *user)
{
    (void)at;
    add_dots(c, rX[0], rX[1], user);
}

static void write_gradients(const columns *c, const column_place *at, const tensor *rX, void *user)
{
    store_gradients(c, at, rX[0], rX[1], user);
}

/* Columns in shared memory */

/*
 * A thread copies its elements of a strip to slots of its own and reads them from there twice, so threads wait for each
 * other only to reduce. Shared memory holds `depth` strips: while one is at work, the next ones arrive. The second pass
 * gives each slot to a later strip once it has read it. All copies of a strip are one group.
 */
typedef struct column_flow {
    columns c;
    int tiles, depth;
    val slots;                 // u32: the address of those of the strip at work
    column_place place, later; // in the strip at work, and in the one that gets its slots
    val has_later;
} column_flow;

static int64_t tile_bytes(const column_flow *f)
{
    return column_slots_bytes(&f->c.split, f->c.form->dtype) * softmax_pipeline_inputs(f->c.form);
}

static int64_t strip_bytes(const column_flow *f)
{
    return f->tiles * tile_bytes(f);
}

/* Where the slots of a tile and an input are. */
static val slots_at(const column_flow *f, val strip, val tile, int input)
{
    val first = add(strip, imm_as(U32, input * column_slots_bytes(&f->c.split, f->c.form->dtype)));
    return add(first, mul(tile, imm_as(U32, tile_bytes(f))));
}

static column_place tile_at_line(const column_flow *f, const column_place *strip, val tile)
{
    return column_from(strip, mul(tile, imm((int)column_split_lines(&f->c.split))));
}

/* Starts the copies of a tile of a strip. */
static void stage_tile(const column_flow *f, const column_place *strip, val slots, val tile)
{
    const columns *c = &f->c;
    const bool is_forward = c->form->direction == CKL_DIRECTION_FORWARD;
    column_place at = tile_at_line(f, strip, tile);
    column_stage(&c->split, &at, is_forward ? c->p.x : c->p.y, c->form->dtype, is_forward ? c->p.ldx : c->p.ldy, c->p.n,
                 slots_at(f, slots, tile, 0));
    if (!is_forward)
        column_stage(&c->split, &at, c->p.dy, c->form->dtype, c->p.ldy, c->p.n, slots_at(f, slots, tile, 1));
}

/* Visits a tile of the strip at work. */
static void visit_staged(const column_flow *f, val tile, tile_visit *visit, void *user)
{
    const columns *c = &f->c;
    const bool is_forward = c->form->direction == CKL_DIRECTION_FORWARD;
    column_place at = tile_at_line(f, &f->place, tile);
    tensor rX[INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < softmax_pipeline_inputs(c->form); i++) {
        rX[i] = registers(c, c->form->dtype);
        column_load_staged(&c->split, &at, c->form->dtype, slots_at(f, f->slots, tile, i), rX[i],
                           is_forward ? -INFINITY : 0);
    }
    visit(c, &at, rX, user);
}

static void first_pass(const column_flow *f, tile_visit *visit, void *user)
{
    cp_async_wait(f->depth - 1);
    LOOP(tile, imm(f->tiles)) {
        visit_staged(f, tile, visit, user);
    }
}

/* Visits each tile, and then reuses its slots for a later strip. */
static void second_pass(const column_flow *f, tile_visit *visit, void *user)
{
    LOOP(tile, imm(f->tiles)) {
        visit_staged(f, tile, visit, user);
        IF(f->has_later)
            stage_tile(f, &f->later, f->slots, tile);
    }
    cp_async_commit();
}

/* Reduces over the cluster. No CTA is written to before it has read the results of the strip before. */
static void reduce_strip(const columns *c, const reduction *r, val *values)
{
    if (c->split.cluster > 1)
        cluster_wait();
    column_reduce(&c->split, r, values);
    if (c->split.cluster > 1)
        cluster_arrive();
}

static void forward_strip(const column_flow *f)
{
    column_scores found;
    begin_scores(&f->c, &found);
    first_pass(f, add_scores, &found);
    reduce_strip(&f->c, &online_reduction, found.pairs);
    find_factors(&f->c, &found);
    second_pass(f, write_outputs, &found);
}

static void backward_strip(const column_flow *f)
{
    val sums[VEC_MAX];
    zero_sums(&f->c, sums);
    first_pass(f, add_tile_dots, sums);
    reduce_strip(&f->c, &softmax_sum, sums);
    second_pass(f, write_gradients, sums);
}

static column_place place_in(const columns *c, val strip)
{
    return column_in_strip(&c->split, c->p.n, c->p.inner, c->p.strips, strip);
}

static void flow_begin(column_flow *f, const softmax_column_config *cfg)
{
    *f = (column_flow){ .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) },
                        .tiles = cfg->tiles,
                        .depth = cfg->depth };
    launch_bounds(cfg->split.threads, cfg->form.ctas_per_sm);
    cluster_size(cfg->split.cluster);
    if (cfg->split.cluster > 1)
        cluster_arrive();
    grid_wait(); // no launch_dependents(): persistent CTAs would share their SMs with the next kernel's
}

/*
 * CTAs are persistent and take strips in turn, so neighbouring strips, which share lines of memory, are at work
 * together.
 */
static void flow_columns(const softmax_column_config *cfg)
{
    column_flow f;
    flow_begin(&f, cfg);
    const val all = mul(convert(U32, f.c.p.outer), f.c.p.strips), cluster = imm(cfg->split.cluster);
    const val clusters = div(grid_x(), cluster), first = div(cta_x(), cluster);
    const val begin = smem_address(smem_alloc("strips", f.depth * strip_bytes(&f), 16));
    for (int ahead = 0; ahead < f.depth; ahead++) {
        const val strip = add(first, mul(clusters, imm(ahead)));
        IF(lt(strip, all)) {
            column_place place = place_in(&f.c, strip);
            LOOP(tile, imm(f.tiles))
                stage_tile(&f, &place, add(begin, imm_as(U32, ahead * strip_bytes(&f))), tile);
        }
        cp_async_commit();
    }
    f.slots = variable(U32, begin);
    LOOP_FROM(strip, first, all, clusters) {
        const val later = add(strip, mul(clusters, imm(f.depth))), after = add(f.slots, imm_as(U32, strip_bytes(&f)));
        f.place = place_in(&f.c, strip);
        f.later = place_in(&f.c, later);
        f.has_later = lt(later, all);
        if (cfg->form.direction == CKL_DIRECTION_FORWARD)
            forward_strip(&f);
        else
            backward_strip(&f);
        if (f.depth > 1)
            assign(f.slots, select(eq(after, add(begin, imm_as(U32, f.depth * strip_bytes(&f)))), begin, after));
    }
    if (cfg->split.cluster > 1)
        cluster_wait();
}

/* Columns that are read twice */

static void load_inputs(const columns *c, const column_place *tile, tensor *rX)
{
    if (c->form->direction == CKL_DIRECTION_BACKWARD) {
        load_gradients(c, tile, &rX[0], &rX[1]);
        return;
    }
    rX[0] = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, tile, c->p.x, c->form->dtype, c->p.ldx, c->p.n, rX[0], -INFINITY);
}

static void copy_inputs(const columns *c, const tensor *from, const tensor *to)
{
    for (int i = 0; i < softmax_pipeline_inputs(c->form); i++)
        for (int j = 0; j < static_size(to[i].layout); j++)
            assign(to[i].regs[index_at(to[i].layout, j)], at(from[i], j));
}

/* Tile i of a pass over `tiles`; past the last one there are no lines. */
static column_place tile_of_pass(const columns *c, val tiles, val i, bool backwards)
{
    const val lines = convert(U32, c->p.n), tile = imm((int)column_split_lines(&c->split));
    const val number = backwards ? sub(sub(tiles, imm(1)), i) : i;
    return column_from(&c->place, select(lt(i, tiles), mul(number, tile), lines));
}

/* The next tile is loaded during this one. Backwards: what was read last may still be in L2. */
static void over_tiles(const columns *c, bool backwards, tile_visit *visit, void *user)
{
    const int lines = (int)column_split_lines(&c->split);
    const val tiles = div(add(convert(U32, c->p.n), imm(lines - 1)), imm(lines));
    tensor rX[INPUTS_MAX], rNext[INPUTS_MAX]; // (VEC,STEPS)
    column_place first = tile_of_pass(c, tiles, imm_as(U32, 0), backwards);
    load_inputs(c, &first, rX);
    LOOP(i, tiles) {
        column_place here = tile_of_pass(c, tiles, i, backwards);
        column_place next = tile_of_pass(c, tiles, add(i, imm(1)), backwards);
        load_inputs(c, &next, rNext);
        visit(c, &here, rX, user);
        copy_inputs(c, rNext, rX);
    }
}

static void forward_long(const columns *c)
{
    column_scores found;
    softmax_meet_peers(c->split.cluster);
    begin_scores(c, &found);
    over_tiles(c, false, add_scores, &found);
    column_reduce(&c->split, &online_reduction, found.pairs);
    find_factors(c, &found);
    over_tiles(c, true, write_outputs, &found);
}

static void backward_long(const columns *c)
{
    val sums[VEC_MAX];
    softmax_meet_peers(c->split.cluster);
    zero_sums(c, sums);
    over_tiles(c, false, add_tile_dots, sums);
    column_reduce(&c->split, &softmax_sum, sums);
    over_tiles(c, true, write_gradients, sums);
}

static void read_twice(const columns *c)
{
    grid_wait(); // no launch_dependents(): early CTAs of the next kernel would crowd some SMs
    if (c->form->direction == CKL_DIRECTION_FORWARD)
        forward_long(c);
    else
        backward_long(c);
}

void softmax_column_long(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    read_twice(&c);
}

void softmax_column_pipeline(const void *config, int kernel)
{
    if (kernel == 0) {
        flow_columns(config);
        return;
    }
    columns c = begin(config, kernel);
    c.split.exact = false; // the tile past the last one has no lines
    read_twice(&c);
}

/* Columns in chunks */

/* The state of a kernel of chunks (two_pass.h). A chunk is a tile of a strip. */
typedef struct column_chunks {
    columns c;
    two_pass order;
    two_pass_item item;
    int64_t scratch; // shared memory of reductions
} column_chunks;

/* The address of states of a strip: those of its chunks, then their sum; (COUNT,COLUMNS) each. */
static val states_at(const columns *c, val strip, val chunk, val column)
{
    const int count = softmax_state_values(c->form);
    const val number = add(mul(strip, add(c->p.chunks, imm_as(U32, 1))), chunk);
    const val index =
        add(mul(convert(U64, number), imm_as(U64, column_split_columns(&c->split))), convert(U64, column));
    return add(c->p.states, mul(index, imm_as(U64, count * 4)));
}

static const reduction *state_reduction(const columns *c)
{
    return c->form->direction == CKL_DIRECTION_FORWARD ? &online_reduction : &softmax_sum;
}

static int64_t reduction_scratch(const columns *c)
{
    return smem_alloc("column_warps", column_reduce_each_bytes(&c->split, softmax_state_values(c->form)), 16);
}

/* The states of this thread's columns. */
static tensor own_states(const columns *c, val strip, val chunk)
{
    const int count = softmax_state_values(c->form);
    const val lane_column = mul(thread_at(convert(U32, thread()), 0, c->split.lanes, c->split.threads / c->split.lanes),
                                imm_as(U32, c->split.vec));
    return gmem_tensor(states_at(c, strip, chunk, lane_column), F32,
                       compact(leaf(count * c->split.vec))); // (COUNT*VEC)
}

static int states_alignment(const columns *c)
{
    return (int)min_i64(16, softmax_state_values(c->form) * c->split.vec * 4);
}

static void store_states(const column_chunks *k, val chunk, val column, const val *values)
{
    const int count = softmax_state_values(k->c.form);
    tensor gS = gmem_tensor(states_at(&k->c, k->item.strip, chunk, column), F32, compact(leaf(count))); // (COUNT)
    for (int v = 0; v < count; v++)
        set(gS, v, values[v]);
}

static void store_chunk(void *user, val column, const val *values)
{
    const column_chunks *k = user;
    store_states(k, k->item.chunk, column, values);
}

static void store_strip(void *user, val column, const val *values)
{
    const column_chunks *k = user;
    store_states(k, k->c.p.chunks, column, values);
}

/* The states of no elements. */
static void begin_states(const columns *c, val *values)
{
    for (int e = 0; e < c->split.vec; e++)
        if (c->form->direction == CKL_DIRECTION_FORWARD)
            online_begin(values + e * ONLINE_VALUES);
        else
            values[e] = variable(F32, immf(0));
}

/*
 * Every group of lanes merges the states of some chunks, several loaded before the first is used; then the groups are
 * merged.
 */
static void merge_chunks(column_chunks *k)
{
    enum { AT_ONCE_MAX = 8, FLOATS_AT_ONCE = 32 };
    const columns *c = &k->c;
    const int count = softmax_state_values(c->form), floats = count * c->split.vec;
    const int at_once = (int)max_i64(1, min_i64(AT_ONCE_MAX, FLOATS_AT_ONCE / floats));
    const int groups = c->split.threads / c->split.lanes;
    const reduction *r = state_reduction(c);
    val states[VEC_MAX * ONLINE_VALUES], none[VEC_MAX * ONLINE_VALUES];
    begin_states(c, states);
    begin_states(c, none);
    LOOP_FROM(first, thread_at(convert(U32, thread()), 1, c->split.lanes, c->split.threads / c->split.lanes),
              c->p.chunks, imm_as(U32, groups * at_once)) {
        tensor rS[AT_ONCE_MAX]; // (COUNT*VEC) each
        for (int i = 0; i < at_once; i++) {
            const val chunk = add(first, imm_as(U32, i * groups));
            rS[i] = fragment(F32, compact(leaf(floats)));
            for (int v = 0; v < floats; v++)
                set(rS[i], v, none[v]);
            IF(lt(chunk, c->p.chunks))
                copy(own_states(c, k->item.strip, chunk), rS[i], states_alignment(c));
        }
        for (int i = 0; i < at_once; i++)
            for (int e = 0; e < c->split.vec; e++) {
                const val other[] = { at(rS[i], e * count), at(rS[i], e * count + count - 1) };
                r->combine(states + e * count, other, r->user);
            }
    }
    column_reduce_each(&c->split, r, k->scratch, states, store_strip, k);
}

/* The last chunk of a strip merges the states of all. */
static void leave_states(column_chunks *k, val *values)
{
    column_reduce_each(&k->c.split, state_reduction(&k->c), k->scratch, values, store_chunk, k);
    IF(two_pass_leave(&k->order, &k->item)) {
        merge_chunks(k);
        two_pass_merged(&k->order, &k->item);
    }
}

static void wait_for_states(column_chunks *k, val *values)
{
    const columns *c = &k->c;
    const int count = softmax_state_values(c->form) * c->split.vec;
    tensor rS = fragment(F32, compact(leaf(count))); // (COUNT*VEC)
    two_pass_wait(&k->order, &k->item);
    copy(own_states(c, k->item.strip, c->p.chunks), rS, states_alignment(c));
    for (int i = 0; i < count; i++)
        values[i] = at(rS, i);
}

static void sum_chunk(column_chunks *k, const tensor *rX)
{
    const columns *c = &k->c;
    column_scores found;
    if (c->form->direction == CKL_DIRECTION_FORWARD) {
        begin_scores(c, &found);
        add_scores(c, &c->place, rX, &found);
    } else {
        zero_sums(c, found.pairs);
        add_tile_dots(c, &c->place, rX, found.pairs);
    }
    leave_states(k, found.pairs);
}

static void write_chunk(column_chunks *k, const tensor *rX)
{
    const columns *c = &k->c;
    column_scores found;
    wait_for_states(k, found.pairs);
    if (c->form->direction == CKL_DIRECTION_FORWARD) {
        find_factors(c, &found);
        write_outputs(c, &c->place, rX, &found);
    } else {
        write_gradients(c, &c->place, rX, found.pairs);
    }
    two_pass_end(&k->order, &k->item);
}

void softmax_column_chunks(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    column_chunks k = { .c = { .form = &cfg->form,
                               .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                               .p = params_of(softmax) } };
    columns *c = &k.c;
    launch_bounds(c->split.threads, cfg->form.ctas_per_sm);
    k.order = (two_pass){ .counters = c->p.counter,
                          .strips = mul(convert(U32, c->p.outer), c->p.strips),
                          .abreast = imm_as(U32, 1),
                          .chunks = c->p.chunks,
                          .lag = c->p.lag };
    k.scratch = reduction_scratch(c);
    launch_dependents();
    grid_wait();
    k.item = two_pass_draw(&k.order);
    const column_place strip = place_in(c, k.item.strip);
    c->place = column_from(&strip, mul(k.item.chunk, imm_as(U32, (int)column_split_lines(&c->split))));
    tensor rX[INPUTS_MAX]; // (VEC,STEPS)
    load_inputs(c, &c->place, rX);
    IF(k.item.writes)
        write_chunk(&k, rX);
    ELSE sum_chunk(&k, rX);
}

/* Columns in chunks that stay in shared memory */

static column_chunks *held_chunk(column_flow *f, column_chunks *k, val chunk)
{
    const column_place strip = place_in(&f->c, k->item.strip);
    const val lines = imm_as(U32, f->tiles * (int)column_split_lines(&f->c.split));
    f->place = column_from(&strip, mul(chunk, lines));
    LOOP(tile, imm(f->tiles))
        stage_tile(f, &f->place, f->slots, tile);
    cp_async_commit();
    cp_async_wait(0);
    return k;
}

static void sum_held(const column_flow *f, val *values)
{
    const columns *c = &f->c;
    const bool is_forward = c->form->direction == CKL_DIRECTION_FORWARD;
    begin_states(c, values);
    LOOP(tile, imm(f->tiles))
        visit_staged(f, tile, is_forward ? add_scores : add_tile_dots, values);
}

static void write_held(const column_flow *f, const column_chunks *k)
{
    const columns *c = &f->c;
    column_scores found;
    const int count = softmax_state_values(c->form) * c->split.vec;
    tensor rS = fragment(F32, compact(leaf(count))); // (COUNT*VEC)
    copy(own_states(c, k->item.strip, c->p.chunks), rS, states_alignment(c));
    for (int i = 0; i < count; i++)
        found.pairs[i] = at(rS, i);
    if (c->form->direction == CKL_DIRECTION_FORWARD)
        find_factors(c, &found);
    LOOP(tile, imm(f->tiles))
        visit_staged(f, tile, c->form->direction == CKL_DIRECTION_FORWARD ? write_outputs : write_gradients, &found);
}

static void hold_columns(const softmax_column_config *cfg)
{
    column_flow f = { .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) },
                      .tiles = cfg->tiles,
                      .depth = 1 };
    column_chunks k = { .c = f.c };
    val states[VEC_MAX * ONLINE_VALUES];
    launch_bounds(cfg->split.threads, cfg->form.ctas_per_sm);
    launch_dependents();
    grid_wait();
    const one_pass held = { .counters = f.c.p.counter,
                            .strips = mul(convert(U32, f.c.p.outer), f.c.p.strips),
                            .chunks = f.c.p.chunks,
                            .strip = div(cta_x(), f.c.p.chunks),
                            .chunk = rem(cta_x(), f.c.p.chunks),
                            .sLeft = one_pass_smem(cfg->split.threads) };
    k.item = (two_pass_item){ .strip = held.strip, .chunk = held.chunk };
    f.slots = smem_address(smem_alloc("chunk", strip_bytes(&f), 16));
    k.scratch = reduction_scratch(&f.c);
    held_chunk(&f, &k, held.chunk);
    sum_held(&f, states);
    column_reduce_each(&f.c.split, state_reduction(&f.c), k.scratch, states, store_chunk, &k);
    const val writes = variable(U32, imm(1)), last = one_pass_arrive(&held);
    IF(last) {
        merge_chunks(&k);
        one_pass_publish(&held);
    }
    ELSE assign(writes, one_pass_wait(&held));
    IF(ne(writes, imm_as(U32, 0)))
        write_held(&f, &k);
    IF(last)
        LOOP(chunk, f.c.p.chunks)
            IF(one_pass_was_left(&held, chunk)) {
                held_chunk(&f, &k, chunk);
                write_held(&f, &k);
            }
}

void softmax_column_held(const void *config, int kernel)
{
    if (kernel == 0) {
        hold_columns(config);
        return;
    }
    columns c = begin(config, kernel);
    read_twice(&c);
}
