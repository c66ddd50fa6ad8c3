/*
 * softmax_column_flow.c - strips of columns flow through the shared memory of clusters that stay. TMA brings tiles of a
 * strip, some warps add them up, others write the outputs of the strip before.
 */
#include "operators/softmax/softmax_column.h"

enum { PRODUCER_THREADS = 32 };

typedef struct column_flow {
    columns c;
    int tiles;    // of a strip in each CTA
    val strips;   // u32, of the tensors
    val first;    // the first of this cluster
    val step;     // to the next one
    val slots;    // u32: the address of the ring's tiles
    pipeline ring;
    column_allreduce sums;
    tma_copy tma[SOFTMAX_INPUTS_MAX];
} column_flow;

static val slots_of_stage(const column_flow *k, const pipeline_state *at)
{
    return add(k->slots, mul(at->stage, imm_as(U32, tile_slots_bytes(&k->c))));
}

/* Lines of a tile. */
static int lines_of(const column_flow *k)
{
    return (int)column_split_lines(&k->c.split) / k->c.split.cluster;
}

static val slots_of_input(const column_flow *k, const pipeline_state *at, int i)
{
    return add(slots_of_stage(k, at), imm_as(U32, i * column_slots_bytes(&k->c.split, k->c.form->dtype)));
}

/* What a tile has: lines from `line` on of matrix `outer`, and the columns of a strip. */
typedef struct tile_corner {
    val line, column, outer; // u32
} tile_corner;

/* The boxes of a tile. By one thread. */
static void load_boxes(const column_flow *k, const tile_corner *from, const pipeline_state *at)
{
    const columns *c = &k->c;
    const layout box = tma_tile_layout(c->form->dtype, lines_of(k), (int)column_split_room(&c->split), 0);
    pipeline_expect(&k->ring, at, imm(tile_slots_bytes(c)));
    for (int i = 0; i < softmax_inputs(c->form); i++)
        tma_load_of(&k->tma[i], smem_view(slots_of_input(k, at, i), c->form->dtype, box), from->line, from->column, 1,
                    &from->outer, pipeline_full_barrier(&k->ring, at), imm(0));
}

/* A line of a tile, from a boundary of memory to another one, without what lies outside of the tensor. */
typedef struct tile_line {
    val first, end; // i64, elements from the tensor's first
    val tail;       // u32, elements behind the end that do not fill a vector: of the tensor's last line
    val slot;       // u32, bytes from the tile's slots to those of `first`
} tile_line;

static tile_line line_of_tile(const column_flow *k, const tile_corner *from, val number)
{
    const columns *c = &k->c;
    const int vec = c->split.vec, room = (int)column_split_room(&c->split), size = dtype_bytes(c->form->dtype);
    const val ld = softmax_input_pitch(c->form, &c->p), line = add(from->line, number), mask = imm64(-vec);
    const val lines = mul(c->p.outer, c->p.n), index = add(mul(convert(I64, from->outer), c->p.n), convert(I64, line));
    const val all = add(mul(sub(lines, imm64(1)), ld), c->p.inner), whole = bit_and(all, mask);
    const val begin = sub(bit_and(add(mul(index, ld), convert(I64, from->column)), mask), imm64(vec));
    const val exists = logical_and(lt(convert(I64, line), c->p.n), lt(number, imm_as(U32, lines_of(k))));
    tile_line t = { .first = max(begin, imm64(0)) };
    t.end = select(exists, max(t.first, min(add(begin, imm64(room)), whole)), t.first);
    t.tail = select(logical_and(exists, logical_and(eq(t.end, whole), lt(begin, whole))),
                    convert(U32, sub(all, whole)), imm_as(U32, 0));
    t.slot = add(mul(number, imm_as(U32, room * size)), mul(convert(U32, sub(t.first, begin)), imm_as(U32, size)));
    return t;
}

/* The last elements of the tensor, which fill no vector, and zeros behind them. */
static void load_tail(const column_flow *k, const tile_line *line, val to, int input)
{
    const columns *c = &k->c;
    const ckl_dtype dtype = c->form->dtype;
    const tensor gX = gmem_vector(softmax_input(c->form, &c->p, input), dtype, c->p.inner);
    const tensor sX = smem_view(to, dtype, compact(leaf(c->split.vec)));
    LOOP(e, imm(c->split.vec)) {
        IF(lt(e, line->tail))
            set(sX, e, at(gX, add(line->end, convert(I64, e))));
        ELSE set(sX, e, convert(dtype, immf(0)));
    }
}

/* A bulk copy for each line that begins anywhere, and the tensor's last elements one by one. By a warp. */
static void load_lines(const column_flow *k, const tile_corner *from, const pipeline_state *state)
{
    enum { WARP = 32, LINES_MAX = 256 / WARP };
    const columns *c = &k->c;
    const ckl_dtype dtype = c->form->dtype;
    const int count = (int)ceil_div(lines_of(k), WARP), inputs = softmax_inputs(c->form);
    tile_line lines[LINES_MAX];
    val bytes[LINES_MAX], all = imm_as(U32, 0);
    for (int l = 0; l < count; l++) {
        lines[l] = line_of_tile(k, from, add(lane(), imm_as(U32, l * WARP)));
        bytes[l] = mul(convert(U32, sub(lines[l].end, lines[l].first)), imm_as(U32, dtype_bytes(dtype)));
        all = add(all, bytes[l]);
    }
    for (int l = 0; l < count; l++)
        IF(ne(lines[l].tail, imm_as(U32, 0)))
            for (int i = 0; i < inputs; i++)
                load_tail(k, &lines[l], add(add(slots_of_input(k, state, i), lines[l].slot), bytes[l]), i);
    pipeline_expect(&k->ring, state, mul(all, imm_as(U32, inputs)));
    for (int l = 0; l < count; l++)
        IF(ne(bytes[l], imm_as(U32, 0)))
            for (int i = 0; i < inputs; i++) {
                const val first = mul(convert(U64, lines[l].first), imm_as(U64, dtype_bytes(dtype)));
                bulk_load_at(add(slots_of_input(k, state, i), lines[l].slot), 0,
                             add(softmax_input(c->form, &c->p, i), first), bytes[l],
                             pipeline_full_barrier(&k->ring, state));
            }
}

static void load_strips(const column_flow *k)
{
    const columns *c = &k->c;
    const column_split *s = &c->split;
    pipeline_state at = producer_state(&k->ring);
    LOOP_FROM(strip, k->first, k->strips, k->step)
        LOOP(tile, imm(k->tiles)) {
            const tile_corner from = { .line = mul(add(mul(tile, imm(s->cluster)), cluster_rank()), imm(lines_of(k))),
                                       .column = mul(rem(strip, c->p.strips), imm(column_split_columns(s))),
                                       .outer = div(strip, c->p.strips) };
            pipeline_wait_empty(&k->ring, &at);
            (s->ragged ? load_lines : load_boxes)(k, &from, &at);
            pipeline_advance(&at);
        }
}

/* Loads a tile into registers when it has come. */
static void take_tile(const column_flow *k, const column_place *tile, const pipeline_state *at, tensor *rX)
{
    pipeline_wait_full(&k->ring, at);
    load_staged(&k->c, tile, slots_of_stage(k, at), rX);
}

/* A box may not overwrite what is still to be read. */
static void free_stage(const column_flow *k, const pipeline_state *at)
{
    fence_proxy_async();
    warp_sync();
    IF(eq(lane(), imm(0)))
        pipeline_release(&k->ring, at->stage);
}

static void sum_strips(column_flow *k)
{
    columns *c = &k->c;
    pipeline_state at = consumer_state(&k->ring), turn = producer_state(&k->sums.turns);
    LOOP_FROM(strip, k->first, k->strips, k->step) {
        column_states found;
        c->place = place_in(c, strip);
        begin_states(c, c->split.vec, found.of);
        LOOP(tile, imm(k->tiles)) {
            const column_place place = place_of_tile(c, tile);
            tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
            take_tile(k, &place, &at, rX);
            sum_visit(c)(c, &place, rX, &found);
            pipeline_advance(&at);
        }
        column_allreduce_send(&k->sums, &turn, &c->place, found.of);
    }
}

static void write_strips(column_flow *k)
{
    columns *c = &k->c;
    pipeline_state at = consumer_state(&k->ring), turn = consumer_state(&k->sums.turns);
    LOOP_FROM(strip, k->first, k->strips, k->step) {
        column_states found;
        c->place = place_in(c, strip);
        begin_states(c, c->split.vec, found.of);
        column_allreduce_receive(&k->sums, &turn, &c->place, found.of);
        find_factors(c, &found);
        LOOP(tile, imm(k->tiles)) {
            const column_place place = place_of_tile(c, tile);
            tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
            take_tile(k, &place, &at, rX);
            free_stage(k, &at);
            pipeline_advance(&at);
            write_visit(c)(c, &place, rX, &found);
        }
    }
}

static void initialise(const column_flow *k)
{
    launch_dependents();
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k->ring);
        pipeline_init(&k->sums.turns);
        fence_mbarrier_init();
    }
    cluster_sync();
    grid_wait(); // the set-up above overlaps the end of the kernel before
}

static column_flow begin(const softmax_column_config *cfg)
{
    column_flow k = { .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) }, .tiles = cfg->tiles };
    const column_split *s = &k.c.split;
    const val maps[] = { k.c.p.tile_x, k.c.p.tile_dy };
    launch_bounds(2 * s->threads + PRODUCER_THREADS, cfg->form.ctas_per_sm);
    cluster_size(s->cluster);
    for (int i = 0; i < softmax_inputs(&cfg->form) && !s->ragged; i++)
        k.tma[i] = make_tma(maps[i], cfg->form.dtype, 3, lines_of(&k), s->lanes * s->vec, 0);
    k.strips = mul(convert(U32, k.c.p.outer), k.c.p.strips);
    k.first = div(convert(U32, cta_x()), imm_as(U32, s->cluster));
    k.step = div(convert(U32, grid_x()), imm_as(U32, s->cluster));
    k.slots = smem_address(smem_alloc("tiles", cfg->stages * tile_slots_bytes(&k.c), 128));
    k.ring = make_pipeline("ring", cfg->stages, s->ragged ? PRODUCER_THREADS : 1, s->threads / 32);
    return k;
}

void softmax_column_flow(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    if (kernel > 0) { // not for boxes
        softmax_column_long(config, SOFTMAX_LONG_SCALAR + kernel - 1);
        return;
    }
    column_flow k = begin(cfg);
    const int warps = cfg->split.threads / 32;
    k.sums = make_column_allreduce(&k.c.split, softmax_reduction(&cfg->form));
    initialise(&k);
    IF(eq(warp(), imm(2 * warps))) {
        IF(cfg->split.ragged ? yes() : elect())
            load_strips(&k);
    }
    ELSE {
        IF(lt(warp(), imm(warps)))
            sum_strips(&k);
        ELSE write_strips(&k);
    }
    cluster_sync(); // until then peers may still send to this CTA
}
