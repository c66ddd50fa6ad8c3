/*
 * softmax_column_flow.c - strips of columns flow through the shared memory of clusters that stay. TMA brings tiles of a
 * strip, some warps add them up, others write the outputs of the strip before.
 */
#include "operators/softmax/softmax_column.h"

enum { PRODUCER_THREADS = 32 };

typedef struct column_flow {
    columns c;
    int tiles;  // of a strip in each CTA
    val strips; // u32, of the tensors
    val first;  // the first of this cluster
    val step;   // to the next one
    val slots;  // u32: the address of the ring's tiles
    pipeline ring;
    column_allreduce sums;
    tma_copy tma[SOFTMAX_INPUTS_MAX];
} column_flow;

static val slots_of_stage(const column_flow *k, const pipeline_state *at)
{
    return add(k->slots, mul(at->stage, imm_as(U32, tile_slots_bytes(&k->c))));
}

/* Lines of a tile. */
static int lines_of(const column_split *s)
{
    return (int)column_split_lines(s) / s->cluster;
}

/* The boxes of a tile, in its slots. */
static void load_tile(const column_flow *k, val strip, val tile, const pipeline_state *at)
{
    const columns *c = &k->c;
    const column_split *s = &c->split;
    const int width = (int)column_split_columns(s);
    const layout box = tma_tile_layout(c->form->dtype, lines_of(s), width, 0);
    const val line = mul(add(mul(tile, imm(s->cluster)), cluster_rank()), imm(lines_of(s)));
    const val column = mul(rem(strip, c->p.strips), imm(width)), outer = div(strip, c->p.strips);
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, imm(tile_slots_bytes(c)));
    for (int i = 0; i < softmax_inputs(c->form); i++) {
        const val slots = add(slots_of_stage(k, at), imm_as(U32, i * column_slots_bytes(s, c->form->dtype)));
        tma_load_of(&k->tma[i], smem_view(slots, c->form->dtype, box), line, column, 1, &outer,
                    pipeline_full_barrier(&k->ring, at), imm(0));
    }
}

static void load_strips(const column_flow *k)
{
    pipeline_state at = producer_state(&k->ring);
    LOOP_FROM(strip, k->first, k->strips, k->step)
        LOOP(tile, imm(k->tiles)) {
            load_tile(k, strip, tile, &at);
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
    for (int i = 0; i < softmax_inputs(&cfg->form); i++)
        k.tma[i] = make_tma(maps[i], cfg->form.dtype, 3, lines_of(s), s->lanes * s->vec, 0);
    k.strips = mul(convert(U32, k.c.p.outer), k.c.p.strips);
    k.first = div(convert(U32, cta_x()), imm_as(U32, s->cluster));
    k.step = div(convert(U32, grid_x()), imm_as(U32, s->cluster));
    k.slots = smem_address(smem_alloc("tiles", cfg->stages * tile_slots_bytes(&k.c), 128));
    k.ring = make_pipeline("ring", cfg->stages, 1, s->threads / 32);
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
        IF(elect())
            load_strips(&k);
    }
    ELSE
    {
        IF(lt(warp(), imm(warps)))
            sum_strips(&k);
        ELSE write_strips(&k);
    }
    cluster_sync(); // until then peers may still send to this CTA
}
