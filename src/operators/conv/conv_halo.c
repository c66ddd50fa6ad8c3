/*
 * conv_halo.c - depthwise convolution of NHWC on Hopper: tiles of x with their halo in shared memory.
 *
 * A CTA keeps the filters of its channels in shared memory, as f32, and goes through tiles of y. One warp has TMA load
 * the boxes of x below the next tiles, zeros outside, while the workers compute: each has a vector of channels of some
 * columns of a row. A column of x is read once for all its taps in a row. Rows and columns of a filter that see padding
 * alone are left out.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_halo_kernel.h"
#include "operators/conv/conv_sm90.h"

enum {
    VECTOR = CONV_HALO_VECTOR,
    PADDING = 4,      // channels that lie apart meet few of the same banks
    UNROLLED_MAX = 3, // rows of a filter
};

/* A thread's place in a tile, and what it has of its channels. */
typedef struct worker_role {
    val lane, w, h, image, channel;
    conv_channels channels;
    tensor rSum; // (CHANNEL,COLUMN)
} worker_role;

static void describe(halo_kernel *k)
{
    const conv_halo_config *c = k->cfg;
    const conv_halo_shape *s = &k->size;
    const int box[] = { s->channels, s->box_w, s->box_h, 1, c->images };
    const int row = s->channels * s->box_w, image = row * s->box_h;
    const int64_t stage = s->stage_bytes / 2;
    k->tmaX = make_tma_box(k->p.mX, c->form.dtype, 5, box, NULL, c->bands ? 2 * s->channels : 0);
    if (c->bands)
        conv_halo_describe_bands(k);
    else
        k->sX = smem_tensor("X", c->form.dtype,
                            make_layout(shape(s->channels, s->box_w, s->box_h, c->images, c->stages),
                                        stride(1, s->channels, row, image, stage)),
                            128);
    k->sW = smem_tensor("filters", F32,
                        make_layout(shape(s->channels, c->rows * c->columns), stride(1, s->channels + PADDING)), 16);
    k->ring = make_pipeline("ring", c->stages, 1, s->workers);
    k->channel = mul(cta_y(), imm(s->channels));
    k->tiles_w = conv_tiles_along(k->p.y_size[2], c->cols * c->wide);
    k->tiles_h = conv_tiles_along(k->p.y_size[1], c->high);
    k->count = mul(mul(k->tiles_w, k->tiles_h), conv_tiles_along(k->p.n, c->images));
}

tile_place conv_halo_place(const halo_kernel *k, val tile)
{
    val rest = div(tile, k->tiles_w), n = div(rest, k->tiles_h);
    return (tile_place){ .w = mul(sub(tile, mul(rest, k->tiles_w)), imm(k->cfg->cols * k->cfg->wide)),
                         .h = mul(sub(rest, mul(n, k->tiles_h)), imm(k->cfg->high)),
                         .n = mul(n, imm(k->cfg->images)) };
}

/*
 * From channels slowest in memory to channels fastest here; channels that do not exist get the last one's. For the
 * gradient of data filters are turned round: their steps are negative.
 */
static void load_filters(const halo_kernel *k)
{
    enum { AT_ONCE = 16 }; // loads under way together
    const conv_halo_config *c = k->cfg;
    const int taps = c->rows * c->columns, count = k->size.channels * taps;
    val last = sub(conv_number(k->p.groups), imm(1));
    for (int first = 0; first < count && describing(); first += AT_ONCE * k->size.threads) {
        val w[AT_ONCE];
        for (int i = 0; i < AT_ONCE && first + i * k->size.threads < count; i++) {
            val e = min(add(thread(), imm(first + i * k->size.threads)), imm(count - 1));
            val channel = min(add(k->channel, div(e, imm(taps))), last), tap = rem(e, imm(taps));
            val down = mul(div(tap, imm(c->columns)), k->p.tap_step[1]),
                along = mul(rem(tap, imm(c->columns)), k->p.tap_step[2]);
            val at = add(mul(convert(I64, channel), k->p.w[0]), convert(I64, add(k->p.tap, add(down, along))));
            w[i] = at_f32(conv_run_at(k->p.from[CONV_W], c->form.dtype, at, 1), 0);
        }
        for (int i = 0; i < AT_ONCE && first + i * k->size.threads < count; i++) {
            val e = add(thread(), imm(first + i * k->size.threads));
            IF(lt(e, imm(count)))
                set(k->sW, coord(div(e, imm(taps)), rem(e, imm(taps))), w[i]);
        }
    }
}

/* The producer */

static void load_tile(const halo_kernel *k, const pipeline_state *stage, val tile)
{
    const conv_halo_config *c = k->cfg;
    const conv_halo_shape *s = &k->size;
    tensor sBoxes = k->sX;
    if (!c->bands)
        sBoxes = tensor_with_layout(k->sX, make_layout(shape(s->box_w * s->box_h * c->images, s->channels, c->stages),
                                                       stride(s->channels, 1, s->stage_bytes / 2)));
    const tile_place place = conv_halo_place(k, tile);
    val w = sub(mul(place.w, imm(c->step_w)), conv_number(k->p.pad[2]));
    const val outer[] = { sub(mul(place.h, imm(c->step_h)), conv_number(k->p.pad[1])), imm(0), place.n };
    pipeline_expect(&k->ring, stage, imm((int)tma_bytes(&k->tmaX)));
    tma_load_of(&k->tmaX, slice(sBoxes, _, _, stage->stage), w, k->channel, 3, outer,
                pipeline_full_barrier(&k->ring, stage), imm(0));
}

val conv_halo_loads(const halo_kernel *k)
{
    return eq(thread(), imm(k->size.threads - 32));
}

void conv_halo_load_ahead(const halo_kernel *k, tiles_ahead *a)
{
    IF(logical_and(conv_halo_loads(k), lt(a->tile, k->count)))
        load_tile(k, &a->stage, a->tile);
    assign(a->tile, add(a->tile, grid_x()));
    pipeline_advance(&a->stage);
}

/*
 * The first tiles are under way before any thread waits for filters: all, but one of bands, whose stage is the loop's.
 * Where an SM has three CTAs, filters would come behind nine (192 channels of 28x28 8.73 us, 7.69 so): one for each.
 */
static tiles_ahead load_first_tiles(const halo_kernel *k)
{
    tiles_ahead ahead = { producer_state(&k->ring), variable(U32, cta_x()) };
    IF(conv_halo_loads(k)) {
        tma_prefetch(&k->tmaX);
        pipeline_init(&k->ring);
        fence_mbarrier_init();
        grid_wait();
    }
    const int count = k->cfg->bands ? k->cfg->stages - 1 : k->cfg->ctas < 3 ? k->cfg->stages : 1;
    for (int s = 0; s < count; s++)
        conv_halo_load_ahead(k, &ahead);
    return ahead;
}

static void load_next_tiles(const halo_kernel *k, tiles_ahead *a)
{
    LOOP_FROM(tile, a->tile, k->count, grid_x()) {
        pipeline_wait_empty(&k->ring, &a->stage);
        load_tile(k, &a->stage, tile);
        pipeline_advance(&a->stage);
    }
}

/* The workers */

static worker_role describe_worker(const halo_kernel *k)
{
    const conv_halo_config *c = k->cfg;
    val rest = thread_at(thread(), 1, c->lanes, k->size.threads / c->lanes), row = div(rest, imm(c->wide));
    worker_role w = { .lane = thread_at(thread(), 0, c->lanes, k->size.threads / c->lanes),
                      .w = mul(rem(rest, imm(c->wide)), imm(c->cols)),
                      .h = rem(row, imm(c->high)),
                      .image = div(row, imm(c->high)),
                      .rSum = fragment(F32, compact(shape(VECTOR, c->cols))) };
    w.channel = add(k->channel, mul(w.lane, imm(VECTOR)));
    w.channels =
        conv_load_channels(&c->form, &k->p, min(w.channel, sub(conv_number(k->p.groups), imm(VECTOR))), VECTOR);
    return w;
}

/* Adds the products of the thread's column j of x with the taps of a row of the filter, rW: (CHANNEL,TAP). */
static void add_column(const halo_kernel *k, const worker_role *w, tensor rX, tensor rW, int j)
{
    const conv_halo_config *c = k->cfg;
    for (int q = 0; q < c->cols; q++) {
        const int s = conv_tap_of(j, q, c->columns, c->step_w, c->dilation_w);
        for (int i = 0; i < VECTOR && s >= 0; i++)
            set(w->rSum, coord(i, q), fma(at(rX, i), at(rW, i, s), at(w->rSum, i, q)));
    }
}

/* Columns of x under a thread. */
static int span_w(const conv_halo_config *c)
{
    return (c->cols - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
}

/* The thread's filters of a row: (CHANNEL,TAP). */
static tensor load_taps(const halo_kernel *k, const worker_role *w, val row)
{
    const int columns = k->cfg->columns;
    val first = mul(row, imm(columns));
    tensor rW = fragment(F32, compact(shape(VECTOR, columns)));
    UNROLL(s, columns)
        copy(local_tile(k->sW, shape(VECTOR, 1), coord(w->lane, add(first, imm(s)))), slice(rW, _, s), 16);
    return rW;
}

/* The products of a row of the filter. */
static void add_row(const halo_kernel *k, const worker_role *w, val stage, val row)
{
    const conv_halo_config *c = k->cfg;
    val h = add(mul(w->h, imm(c->step_h)), mul(row, imm(c->dilation_h)));
    val address =
        tensor_address(k->sX, coord(mul(w->lane, imm(VECTOR)), mul(w->w, imm(c->step_w)), h, w->image, stage));
    tensor sX = smem_view(address, c->form.dtype, make_layout(shape(VECTOR, span_w(c)), stride(1, k->size.channels)));
    tensor rW = load_taps(k, w, row);
    UNROLL(j, span_w(c))
        add_column(k, w, unpacked(load_packed(slice(sX, _, j), 2 * VECTOR), F32), rW, j);
}

/* Stores the thread's pixels that are inside of y. */
static void store_row(const halo_kernel *k, const worker_role *w, const tile_place *place)
{
    const conv_values *p = &k->p;
    val n = add(place->n, w->image), h = add(place->h, w->h), first = add(place->w, w->w);
    val inside = logical_and(lt(w->channel, conv_number(p->groups)), lt(n, conv_number(p->n)));
    val index = add(mul(convert(I64, n), p->y[0]), mul(convert(I64, h), p->y[2]));
    inside = logical_and(inside, lt(h, conv_number(p->y_size[1])));
    index = add(index, add(mul(convert(I64, first), p->y[3]), convert(I64, w->channel)));
    UNROLL(q, k->cfg->cols) {
        IF(logical_and(inside, lt(add(first, imm(q)), conv_number(p->y_size[2]))))
            conv_store_run(&k->cfg->form, p, &w->channels, p->from[CONV_Y], index, w->channel, slice(w->rSum, _, q));
        index = add(index, p->y[3]);
    }
}

/* One row of y, by rows of the filter. */
static void compute_row(const halo_kernel *k, const worker_role *w, val stage, val tile)
{
    if (k->cfg->rows <= UNROLLED_MAX)
        UNROLL(r, k->cfg->rows)
            add_row(k, w, stage, imm(r));
    else
        LOOP(r, imm(k->cfg->rows))
            add_row(k, w, stage, r);
    pipeline_release(&k->ring, stage);
    const tile_place place = conv_halo_place(k, tile);
    store_row(k, w, &place);
}

static void work(const halo_kernel *k)
{
    const worker_role w = describe_worker(k);
    pipeline_state stage = consumer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        fill(w.rSum, immf(0));
        pipeline_wait_full(&k->ring, &stage);
        compute_row(k, &w, stage.stage, tile);
        pipeline_advance(&stage);
    }
}

void conv_halo(const void *config, int kernel)
{
    const conv_halo_config *cfg = config;
    (void)kernel;
    halo_kernel k = { .cfg = cfg, .size = conv_halo_shape_of(cfg) };
    launch_bounds(k.size.threads, cfg->ctas);
    k.p = params_of(conv);
    describe(&k);
    tiles_ahead ahead = load_first_tiles(&k);
    grid_wait();
    launch_dependents();
    load_filters(&k);
    if (cfg->bands)
        conv_halo_clear_bands(&k);
    cta_sync();
    if (cfg->bands) {
        conv_halo_multiply(&k, &ahead);
        return;
    }
    IF(eq(warp(), imm(k.size.threads / 32 - 1))) {
        IF(conv_halo_loads(&k))
            load_next_tiles(&k, &ahead);
    }
    ELSE
    {
        IF(lt(thread(), imm(k.size.workers)))
            work(&k);
    }
}
