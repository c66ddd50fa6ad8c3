/*
 * conv_nchw.c - a persistent, warp-specialised convolution for Hopper that writes NCHW: y^T = W * x^T.
 *
 * A tile is some filters, the rows of W, times some runs of 64 pixels of planes of y, so sums are stored as they lie.
 * Strides are 1. With one tap x is loaded from its planes, N-major. With more it is loaded from a copy in NHWC, as TMA
 * takes no run of a plane that begins inside 16 bytes: its im2col mode follows the pixels under a tap over the ends of
 * rows, with zeros outside.
 *
 *   warpgroup 0       producer: for every tap and some channels TMA loads the runs under it, zeros before and after the
 *                     plane, and the filters' elements
 *   warpgroups 1..    consumers: 64 filters each; y goes through staging buffers, so its planes begin at whole 16 bytes
 *
 * For the gradient of data read dy, dx and channels in place of x, y and filters; W is M-major then, as it lies in
 * memory.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_roles.h"

enum { SPAN = CONV_SM90_SPAN };

/* A tile: its first filter, and where its spans begin. */
typedef struct tile_place {
    val filter, pixel[CONV_NCHW_SPANS_MAX], image[CONV_NCHW_SPANS_MAX];
} tile_place;

/* Everything the roles share. */
typedef struct nchw_kernel {
    const conv_nchw_config *cfg;
    conv_nchw_shape size;
    conv_values p;
    tma_copy tmaX, tmaW, tmaY;
    tensor sX, sW; // (BN,BK,STAGES), (BM,BK,STAGES)
    tensor sSpansX,
        sSpansW; // (BK,SPAN,SPANS,STAGES): the same as TMA writes them; W that is M-major, (SPAN,BK,...) of a copy
    tensor sY;   // (ROWS,COLS,BUFFERS,CONSUMERS)
    pipeline ring;
    val width, pixels;  // of a row, of a plane of y
    val spans, filters; // spans of an image, tiles of filters
    val count, chunks;
} nchw_kernel;

/* One consumer's view. */
typedef struct consumer_role {
    conv_consumer own;
    tensor tCrW, tCrX; // (MMA_M,MMA_K,STAGES), (MMA_N,MMA_K,STAGES)
} consumer_role;

/* What a tap adds to the number of a pixel, and to its column alone. */
typedef struct tap_shift {
    val number, pixels, rows, columns;
} tap_shift;

/* Tiles, boxes and memory */

static bool m_major(const nchw_kernel *k)
{
    return k->cfg->form.direction == CKL_CONV_DATA;
}

static void describe_boxes(nchw_kernel *k)
{
    const conv_nchw_config *c = k->cfg;
    // NOTE: on an H200 a swizzled box that begins inside 16 bytes of a row is an illegal instruction.
    const int step[] = { 1, 1, 1, 1 };
    k->tmaX = c->copied ? make_tma_im2col(k->p.mX, c->form.dtype, 4, SPAN, c->tile_k, step, 2 * c->tile_k)
                        : make_tma(k->p.mX, c->form.dtype, 3, c->tile_k, SPAN, 128);
    k->tmaW = m_major(k) ? make_tma(k->p.mW, c->form.dtype, 3, c->tile_k, SPAN, 128)
                         : make_tma(k->p.mW, c->form.dtype, 3, k->size.tile_m, c->tile_k, 2 * c->tile_k);
    k->tmaY = make_tma(k->p.mY, c->form.out, 3, CONV_SM90_ROWS, k->size.y_cols, 128);
}

/* Runs of pixels, a row of channels for each pixel: K-major, one run after the other. */
static void describe_runs(nchw_kernel *k)
{
    const conv_nchw_config *c = k->cfg;
    const int pixels = k->size.spans * SPAN, depth = c->tile_k;
    k->sSpansX = tma_tiles("X", c->form.dtype, SPAN, depth, k->size.spans, c->stages);
    layout all = make_layout(shape(pixels, depth, c->stages), stride(depth, 1, (int64_t)pixels * depth));
    k->sX = tensor_with_layout(k->sSpansX, with_swizzle(k->sSpansX.layout.sw, all));
}

static void describe_memory(nchw_kernel *k)
{
    const conv_nchw_config *c = k->cfg;
    if (c->copied)
        describe_runs(k);
    else
        k->sX = conv_spans("X", c->form.dtype, c->tile_k, k->size.spans, c->stages, &k->sSpansX);
    if (m_major(k))
        k->sW = conv_spans("W", c->form.dtype, c->tile_k, k->size.tile_m / SPAN, c->stages, &k->sSpansW);
    else
        k->sW = tma_ring("W", c->form.dtype, k->size.tile_m, c->tile_k, c->stages);
    k->sY = tma_tiles("Y", c->form.out, CONV_SM90_ROWS, k->size.y_cols, CONV_SM90_BUFFERS, c->consumers);
    k->ring = make_pipeline("ring", c->stages, 1, c->consumers);
}

static void describe_schedule(nchw_kernel *k)
{
    const bool data = m_major(k);
    const val *to = data ? k->p.x_size : k->p.y_size;
    k->width = conv_number(to[2]);
    k->pixels = mul(mul(conv_number(to[0]), conv_number(to[1])), k->width);
    k->spans = conv_tiles_along(k->pixels, SPAN);
    k->filters = conv_tiles_along(k->p.k, k->size.tile_m);
    k->chunks = conv_tiles_along(k->p.c, k->cfg->tile_k);
    val runs = mul(k->spans, conv_number(k->p.n));
    k->count = mul(div(add(runs, imm(k->size.spans - 1)), imm(k->size.spans)), k->filters);
}

/* Filters fastest: CTAs side by side read the same pixels. */
static tile_place place_of(const nchw_kernel *k, val tile)
{
    tile_place place = { .filter = mul(rem(tile, k->filters), imm(k->size.tile_m)) };
    val number = mul(div(tile, k->filters), imm(k->size.spans));
    for (int i = 0; i < k->size.spans; i++) {
        val at = add(number, imm(i));
        place.image[i] = div(at, k->spans);
        place.pixel[i] = mul(sub(at, mul(place.image[i], k->spans)), imm(SPAN));
    }
    return place;
}

static tap_shift shift_of(const nchw_kernel *k, val r, val s)
{
    val rows = sub(mul(r, conv_number(k->p.dilation[1])), conv_number(k->p.pad[1]));
    val columns = sub(mul(s, conv_number(k->p.dilation[2])), conv_number(k->p.pad[2]));
    return (tap_shift){ add(mul(r, conv_number(k->p.filter[2])), s), add(mul(rows, k->width), columns), rows, columns };
}

/* The producer */

/* The pixels below a tap for a span of consecutive pixels of y. */
static void load_pixels(const nchw_kernel *k, tensor sX, const tile_place *place, int i, const tap_shift *tap,
                        val channel, val full)
{
    val row = div(place->pixel[i], k->width), column = sub(place->pixel[i], mul(row, k->width));
    val first[] = { add(column, k->p.corner[2]), add(row, k->p.corner[1]), place->image[i] };
    val offset[] = { sub(tap->columns, k->p.corner[2]), sub(tap->rows, k->p.corner[1]) };
    tma_load_im2col(&k->tmaX, sX, channel, first, offset, full, imm(0));
}

/* Fills one stage: some channels of the pixels below a tap, and of the filters. */
static void load_stage(const nchw_kernel *k, const pipeline_state *at, const tile_place *place, const tap_shift *tap,
                       val channel)
{
    val full = pipeline_full_barrier(&k->ring, at);
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, imm((int)k->size.stage_bytes));
    UNROLL(i, k->size.spans) {
        val pixel = add(place->pixel[i], tap->pixels);
        tensor sX = slice(k->sSpansX, _, _, i, at->stage);
        if (k->cfg->copied)
            load_pixels(k, sX, place, i, tap, channel, full);
        else
            tma_load_of(&k->tmaX, sX, channel, pixel, 1, &place->image[i], full, imm(0));
    }
    if (!m_major(k)) {
        tma_load_of(&k->tmaW, slice(k->sW, _, _, at->stage), place->filter, channel, 1, &tap->number, full, imm(0));
        return;
    }
    UNROLL(i, k->size.tile_m / SPAN)
        tma_load_of(&k->tmaW, slice(k->sSpansW, _, _, i, at->stage), channel, add(place->filter, imm(i * SPAN)), 1,
                    &tap->number, full, imm(0));
}

static void load_tiles(const void *of)
{
    const nchw_kernel *k = of;
    pipeline_state stage = producer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        tile_place place = place_of(k, tile);
        LOOP(r, conv_number(k->p.filter[1]))
            LOOP(s, conv_number(k->p.filter[2])) {
                const tap_shift tap = shift_of(k, r, s);
                LOOP(chunk, k->chunks) {
                    load_stage(k, &stage, &place, &tap, mul(chunk, imm(k->cfg->tile_k)));
                    pipeline_advance(&stage);
                }
            }
    }
}

/* The consumers */

static consumer_role describe_consumer(const nchw_kernel *k)
{
    const conv_nchw_config *cfg = k->cfg;
    consumer_role c = { .own = conv_consumer_of(conv_mma_of(cfg->form.dtype, cfg->tile_n)) };
    const tiled_mma *mma = &c.own.mma;
    c.tCrW = descriptors_A(mma, local_tile(k->sW, shape(CONV_SM90_ROWS, cfg->tile_k), coord(c.own.index, 0, _)));
    c.tCrX = descriptors_B(mma, k->sX);
    conv_begin_sums(&c.own, mma, F32, k->sY);
    return c;
}

static void multiply(const void *kernel, const void *role, val stage, val not_first)
{
    (void)kernel;
    const consumer_role *c = role;
    gemm(&c->own.mma, slice(c->tCrW, _, _, stage), slice(c->tCrX, _, _, stage), c->own.acc, not_first);
}

/* Some columns of a consumer's sums: 64 filters by pixels of one span. */
typedef struct subtile {
    tensor acc, coordinates; // sums, and where they are in the subtile: (MMA,1,1)
    val filter, pixel, image;
} subtile;

/* The number of sum i in the residual; outside y that of another one. */
static val element_of(const nchw_kernel *k, const subtile *t, int i)
{
    val filter = min(add(t->filter, coordinate(t->coordinates, 0, i)), sub(conv_number(k->p.k), imm(1)));
    val pixel = min(add(t->pixel, coordinate(t->coordinates, 1, i)), sub(k->pixels, imm(1)));
    val image = min(t->image, sub(conv_number(k->p.n), imm(1)));
    val row = add(mul(convert(I64, image), k->p.k), convert(I64, filter));
    return add(mul(row, convert(I64, k->pixels)), convert(I64, pixel));
}

/* The sums with bias, residual and activation. */
static tensor finish(const nchw_kernel *k, const subtile *t, const conv_vectors *v)
{
    const conv_form *form = &k->cfg->form;
    tensor gR = conv_elements_from(k->p.residual, form->out);
    tensor rY = fragment_like(t->acc, F32);
    layout along = coordinate_distances(t->coordinates, 0);
    UNROLL(i, static_size(rY.layout)) {
        const int64_t row = index_at(along, i);
        conv_element in = { .sum = at_f32(t->acc, i), .scale = v->scale[row], .bias = v->bias[row] };
        if (form->residual)
            in.residual = at_f32(gR, element_of(k, t, i));
        if (conv_is_custom(form)) {
            in.channel = add(t->filter, coordinate(t->coordinates, 0, i));
            in.pixel = add(mul(t->image, k->pixels), add(t->pixel, coordinate(t->coordinates, 1, i)));
        }
        set(rY, i, conv_finish(form, in));
    }
    return rY;
}

static void store(const nchw_kernel *k, const conv_consumer *c, const tiled_mma *mma, const subtile *t, tensor rY,
                  int number, int count)
{
    tensor sY = slice(c->sY, _, _, number % CONV_SM90_BUFFERS);
    conv_wait_staging(c, number, count);
    conv_write_staging(mma, rY, sY, c->tid);
    STAGED_STORE(&c->staged)
        tma_store_of(&k->tmaY, sY, t->filter, t->pixel, 1, &t->image);
}

/* A consumer's part of a tile, before its first subtile. */
static subtile part_of(const nchw_kernel *k, const conv_consumer *c, const tile_place *place)
{
    const int width = k->size.y_cols;
    const tiled_mma mma = conv_mma_of(k->cfg->form.dtype, width);
    return (subtile){ .coordinates = partition_C(&mma, identity_tensor(shape(CONV_SM90_ROWS, width)), c->tid),
                      .filter = add(place->filter, mul(c->index, imm(CONV_SM90_ROWS))) };
}

static void epilogue(const nchw_kernel *k, const conv_consumer *c, const tile_place *place, subtile t,
                     const conv_vectors *v)
{
    const conv_nchw_config *cfg = k->cfg;
    const int width = k->size.y_cols, count = cfg->tile_n / width;
    const tiled_mma mma = conv_mma_of(cfg->form.dtype, width);
    UNROLL(i, count) {
        const int span = i * width / SPAN;
        t.acc = slice(accumulator_columns(c->acc, i * width, width), _, 0, _);
        t.pixel = add(place->pixel[span], imm(i * width % SPAN));
        t.image = place->image[span];
        tensor rY = finish(k, &t, v);
        store(k, c, &mma, &t, rY, i, count);
    }
}

static void consume(const void *of)
{
    const nchw_kernel *k = of;
    consumer_role c = describe_consumer(k);
    const conv_products products = { &k->ring, c.own.staged.leader, multiply, k, &c };
    pipeline_state stage = consumer_state(&k->ring);
    val k_tiles = mul(mul(conv_number(k->p.filter[1]), conv_number(k->p.filter[2])), k->chunks);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        const val last = conv_mainloop_begin(&products, k_tiles, &stage); // what follows hides behind the last products
        const tile_place place = place_of(k, tile);
        const subtile part = part_of(k, &c.own, &place);
        conv_vectors v = { 0 };
        conv_load_vectors(&k->cfg->form, &k->p, sub(conv_number(k->p.k), imm(1)), part.coordinates, 0, part.filter, 0,
                          &v);
        conv_mainloop_end(&products, last);
        epilogue(k, &c.own, &place, part, &v);
    }
    IF(c.own.staged.leader)
        tma_store_wait(0);
}

static void describe_product(const conv_nchw_config *cfg)
{
    nchw_kernel k = { .cfg = cfg, .size = conv_nchw_shape_of(cfg) };
    k.p = params_of(conv);
    describe_boxes(&k);
    describe_memory(&k);
    describe_schedule(&k);
    conv_run_roles(&(conv_roles){ .consumers = cfg->consumers,
                                  .maps = { &k.tmaX, &k.tmaW, &k.tmaY },
                                  .ring = &k.ring,
                                  .load = load_tiles,
                                  .consume = consume,
                                  .p = &k.p,
                                  .of = &k });
}

void conv_nchw_sm90(const void *config, int kernel)
{
    const conv_nchw_config *cfg = config;
    if (kernel == CONV_NCHW_MAIN)
        describe_product(cfg);
    else
        conv_nchw_copy(cfg->form.dtype, cfg->pairs);
}
