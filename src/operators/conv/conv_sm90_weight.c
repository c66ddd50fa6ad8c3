/*
 * conv_sm90_weight.c - the gradient of weights on Hopper: dw[k,tap,c] = sum over pixels of dy[pixel,k] * x[pixel under
 * tap,c].
 *
 *   a tile            some filters times some columns; a column is a channel under a tap, in spans of 64 channels
 *   warpgroup 0       producer: a stage is a box of 64 pixels: TMA loads dy's filters there, and for each span x under
 *                     its tap
 *   warpgroups 1..    consumers: 64 filters each; both operands lie pixel by pixel, so wgmma reads them M-major and
 *                     N-major
 *
 * Pixels may be cut into slices: kernel 0 writes the f32 sums of each, kernel 1 adds them in a fixed order. The
 * gradient of the bias is one more column of x, all ones.
 */

#include "cute/kernel.h"
#include "operators/conv/conv_roles.h"
#include "operators/conv/conv_sm90.h"

enum {
    SPAN = CONV_SM90_SPAN,
    PIXELS = CONV_WEIGHT_PIXELS,
    SPANS_MAX = 4,
    BIAS_COLUMNS = 8, // the narrowest wgmma
};

/* Where a span of columns begins: its channel, its tap, and what the tap adds to a place of y to give one of x. */
typedef struct span_place {
    val channel, tap, pixel[CONV_MODES];
} span_place;

/* A tile: its first filter, its spans, its slice, and the slice's boxes of pixels. */
typedef struct tile_place {
    val filter, slice, first_box, boxes;
    span_place spans[SPANS_MAX];
} tile_place;

/* Everything the roles share. */
typedef struct weight_kernel {
    const conv_sm90_weight_config *cfg;
    conv_weight_shape size;
    conv_values p;
    tma_copy tmaY, tmaX, tmaSums;
    tensor sY, sX;           // (BM,PIXELS,STAGES), (BN,PIXELS,STAGES)
    tensor sSpansY, sSpansX; // (PIXELS,SPAN,SPANS,STAGES): the same as TMA writes them
    tensor sSums;            // (ROWS,COLS,BUFFERS,CONSUMERS)
    tensor sOnes;            // (BIAS_COLUMNS,PIXELS)
    pipeline ring;
    val boxes[CONV_MODES], box_count; // of pixels along each, in all
    val chunks, filters, columns;     // spans of channels, tiles of filters and of columns
    val count;
} weight_kernel;

/* One consumer's view. */
typedef struct consumer_role {
    conv_consumer own;
    tiled_mma mma_bias;
    tensor acc_bias;            // (MMA,MMA_M,MMA_N)
    tensor tCrY, tCrX, tCrOnes; // (MMA_M,MMA_K,STAGES), (MMA_N,MMA_K,STAGES)
} consumer_role;

/* Boxes and memory */

static void describe_boxes(weight_kernel *k)
{
    const conv_sm90_weight_config *c = k->cfg;
    const int box[] = { SPAN, c->box_w, c->box_h, 1, c->box_n }, step[] = { 1, c->step_w, c->step_h, 1, 1 };
    const int box_x[] = { SPAN, c->box_w, c->box_h + (c->tall ? CONV_SM90_TALL - 1 : 0), 1, c->box_n };
    const int sums[] = { k->size.sum_cols, 1, CONV_SM90_ROWS, 1 };
    k->tmaY = make_tma_box(k->p.mY, c->form.dtype, 5, box, NULL, 128);
    k->tmaX = make_tma_box(k->p.mX, c->form.dtype, 5, box_x, step, 128);
    k->tmaSums = make_tma_box(k->p.mW, k->size.sum_dtype, 4, sums, NULL, 128);
}

/* One box that the taps of a filter's rows see, each from a row of pixels on that is 8 or more of them long. */
static void describe_tall(weight_kernel *k)
{
    const conv_sm90_weight_config *c = k->cfg;
    conv_spans("X", c->form.dtype, k->size.x_rows, 1, c->stages, &k->sSpansX);
    layout read = make_layout(shape(shape(SPAN, CONV_SM90_TALL), PIXELS, c->stages),
                              stride(stride(1, c->box_w * SPAN), SPAN, k->size.x_rows * SPAN));
    k->sX = tensor_with_layout(k->sSpansX, with_swizzle(k->sSpansX.layout.sw, read));
}

static void describe_memory(weight_kernel *k)
{
    const conv_sm90_weight_config *c = k->cfg;
    const conv_weight_shape *s = &k->size;
    const int64_t elements = (int64_t)CONV_SM90_ROWS * s->sum_cols;
    layout sums = make_layout(shape(CONV_SM90_ROWS, s->sum_cols, CONV_SM90_BUFFERS, c->consumers),
                              stride(s->sum_cols, 1, elements, elements * CONV_SM90_BUFFERS));
    k->sY = conv_spans("Y", c->form.dtype, PIXELS, s->tile_m / SPAN, c->stages, &k->sSpansY);
    if (c->tall)
        describe_tall(k);
    else
        k->sX = conv_spans("X", c->form.dtype, PIXELS, c->tile_n / SPAN, c->stages, &k->sSpansX);
    k->sSums =
        smem_tensor("sums", s->sum_dtype,
                    with_swizzle(tma_tile_layout(s->sum_dtype, CONV_SM90_ROWS, s->sum_cols, 128).sw, sums), 1024);
    if (c->form.bias)
        k->sOnes = smem_tensor("ones", c->form.dtype, tma_tile_layout(c->form.dtype, BIAS_COLUMNS, PIXELS, 128), 1024);
    k->ring = make_pipeline("ring", c->stages, 1, c->consumers);
}

static void describe_schedule(weight_kernel *k)
{
    const conv_sm90_weight_config *c = k->cfg;
    const int box[CONV_MODES] = { 1, c->box_h, c->box_w };
    val taps = imm(1);
    k->box_count = conv_tiles_along(k->p.n, c->box_n);
    for (int m = 0; m < CONV_MODES; m++) {
        k->boxes[m] = conv_tiles_along(k->p.y_size[m], box[m]);
        k->box_count = mul(k->box_count, k->boxes[m]);
        taps = mul(taps, conv_number(k->p.filter[m]));
    }
    k->box_count = max(k->box_count, imm(c->slices)); // the rest lie outside: zeros
    k->chunks = conv_tiles_along(k->p.c, SPAN);
    k->filters = conv_tiles_along(k->p.k, k->size.tile_m);
    k->columns = div(add(mul(taps, k->chunks), imm(c->tile_n / SPAN - 1)), imm(c->tile_n / SPAN));
    k->count = mul(mul(k->filters, k->columns), imm(c->slices));
}

/* Span number i of all. */
static span_place span_at(const weight_kernel *k, val i)
{
    span_place span = { .channel = mul(rem(i, k->chunks), imm(SPAN)), .tap = div(i, k->chunks) };
    val rest = span.tap;
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        val filter = conv_number(k->p.filter[m]), at = m ? rem(rest, filter) : rest;
        span.pixel[m] = sub(mul(at, conv_number(k->p.dilation[m])), conv_number(k->p.pad[m]));
        rest = div(rest, filter);
    }
    return span;
}

/* The first span of a tile of columns; *apart: from one to the next, of all rows of a filter or side by side. */
static val first_span(const weight_kernel *k, val column, val *apart)
{
    if (!k->cfg->tall) {
        *apart = imm(1);
        return mul(column, imm(k->cfg->tile_n / SPAN));
    }
    *apart = mul(conv_number(k->p.filter[2]), k->chunks);
    return add(column, mul(div(column, *apart), mul(*apart, imm(CONV_SM90_TALL - 1))));
}

/* Columns fastest: CTAs side by side read the same pixels. */
static tile_place place_of(const weight_kernel *k, val tile)
{
    const int spans = k->cfg->tile_n / SPAN;
    val column = rem(tile, k->columns), rest = div(tile, k->columns);
    tile_place place = { .filter = mul(rem(rest, k->filters), imm(k->size.tile_m)), .slice = div(rest, k->filters) };
    val slices = imm(k->cfg->slices);
    place.first_box = div(mul(k->box_count, place.slice), slices);
    place.boxes = sub(div(mul(k->box_count, add(place.slice, imm(1))), slices), place.first_box);
    val apart, first = first_span(k, column, &apart);
    for (int i = 0; i < spans; i++)
        place.spans[i] = span_at(k, add(first, mul(apart, imm(i))));
    return place;
}

/* The producer */

/* Fills one stage with box number `box` of the pixels. */
static void load_stage(const weight_kernel *k, const pipeline_state *at, const tile_place *place, val box)
{
    const int sizes[CONV_MODES] = { 1, k->cfg->box_h, k->cfg->box_w };
    val full = pipeline_full_barrier(&k->ring, at), y[CONV_MODES];
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        y[m] = mul(rem(box, k->boxes[m]), imm(sizes[m]));
        box = div(box, k->boxes[m]);
    }
    val image = mul(box, imm(k->cfg->box_n));
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, imm((int)k->size.stage_bytes));
    UNROLL(i, k->size.tile_m / SPAN) {
        const val outer[] = { y[1], y[0], image };
        tma_load_of(&k->tmaY, slice(k->sSpansY, _, _, i, at->stage), y[2], add(place->filter, imm(i * SPAN)), 3, outer,
                    full, imm(0));
    }
    UNROLL(i, k->cfg->tall ? 1 : k->cfg->tile_n / SPAN) {
        const span_place *span = &place->spans[i];
        val x[CONV_MODES];
        for (int m = 0; m < CONV_MODES; m++)
            x[m] = add(mul(y[m], conv_number(k->p.step[m])), span->pixel[m]);
        const val outer[] = { x[1], x[0], image };
        tma_load_of(&k->tmaX, slice(k->sSpansX, _, _, i, at->stage), x[2], span->channel, 3, outer, full, imm(0));
    }
}

static void load_tiles(const void *of)
{
    const weight_kernel *k = of;
    pipeline_state stage = producer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        tile_place place = place_of(k, tile);
        LOOP(i, place.boxes) {
            load_stage(k, &stage, &place, add(place.first_box, i));
            pipeline_advance(&stage);
        }
    }
}

/* The consumers */

static consumer_role describe_consumer(const weight_kernel *k)
{
    const conv_sm90_weight_config *cfg = k->cfg;
    consumer_role c = { .own = conv_consumer_of(conv_mma_of(cfg->form.dtype, cfg->tile_n)),
                        .mma_bias = conv_mma_of(cfg->form.dtype, BIAS_COLUMNS) };
    const tiled_mma *mma = &c.own.mma;
    tensor sY = local_tile(k->sY, shape(CONV_SM90_ROWS, PIXELS), coord(c.own.index, 0, _)); // (ROWS,PIXELS,STAGES)
    c.tCrY = descriptors_A(mma, sY);
    c.tCrX = descriptors_B(mma, k->sX);
    conv_begin_sums(&c.own, mma, F32, k->sSums);
    if (cfg->form.bias) {
        c.tCrOnes = descriptors_B(&c.mma_bias, k->sOnes);
        c.acc_bias = fragment_C(&c.mma_bias, CONV_SM90_ROWS, BIAS_COLUMNS);
        fill(c.acc_bias, immf(0));
    }
    return c;
}

static void multiply(const void *kernel, const void *role, val stage, val not_first)
{
    const weight_kernel *k = kernel;
    const consumer_role *c = role;
    tensor tCrY = slice(c->tCrY, _, _, stage);
    gemm(&c->own.mma, tCrY, slice(c->tCrX, _, _, stage), c->own.acc, not_first);
    if (k->cfg->form.bias)
        gemm(&c->mma_bias, tCrY, c->tCrOnes, c->acc_bias, not_first);
}

/* Stores the sums of the column of ones to dbias, or to the slice's in the workspace; for the first tile of columns. */
static void store_bias(const weight_kernel *k, const consumer_role *c, const tile_place *tile, val filter)
{
    const tiled_mma *mma = &c->mma_bias;
    tensor tCcB = partition_C(mma, identity_tensor(shape(CONV_SM90_ROWS, BIAS_COLUMNS)), c->own.tid);
    val slice_first = mul(convert(I64, tile->slice), k->p.k);
    tensor gBias = conv_elements_from(k->cfg->slices > 1 ? k->p.bias_sums : k->p.bias, k->size.sum_dtype);
    val first = logical_and(eq(tile->spans[0].tap, imm(0)), eq(tile->spans[0].channel, imm(0)));
    UNROLL(i, static_size(c->acc_bias.layout)) {
        val row = add(filter, coordinate(tCcB, 0, i)), is_column = eq(coordinate(tCcB, 1, i), imm(0));
        IF(logical_and(logical_and(first, is_column), lt(row, conv_number(k->p.k))))
            set(gBias, add(slice_first, convert(I64, row)), at(c->acc_bias, i));
    }
}

static void epilogue(const weight_kernel *k, const consumer_role *role, const tile_place *tile)
{
    const conv_consumer *c = &role->own;
    const int width = k->size.sum_cols, count = k->cfg->tile_n / width;
    const tiled_mma mma = conv_mma_of(k->cfg->form.dtype, width);
    val filter = add(tile->filter, mul(c->index, imm(CONV_SM90_ROWS)));
    UNROLL(i, count) {
        const span_place *span = &tile->spans[i * width / SPAN];
        tensor sSums = slice(c->sY, _, _, i % CONV_SM90_BUFFERS);
        tensor acc = slice(accumulator_columns(c->acc, i * width, width), _, 0, _);
        val channel = add(span->channel, imm(i * width % SPAN)), outer[] = { filter, tile->slice };
        conv_wait_staging(c, i, count);
        conv_write_staging(&mma, acc, sSums, c->tid);
        STAGED_STORE(&c->staged)
            tma_store_of(&k->tmaSums, sSums, span->tap, channel, 2, outer);
    }
    if (k->cfg->form.bias)
        store_bias(k, role, tile, filter);
}

static void consume(const void *of)
{
    const weight_kernel *k = of;
    consumer_role c = describe_consumer(k);
    const conv_products products = { &k->ring, c.own.staged.leader, multiply, k, &c };
    pipeline_state stage = consumer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        tile_place place = place_of(k, tile);
        conv_mainloop_end(&products, conv_mainloop_begin(&products, place.boxes, &stage));
        epilogue(k, &c, &place);
    }
    IF(c.own.staged.leader)
        tma_store_wait(0);
}

/* The ones that sum dy for the bias. */
static void write_ones(const void *of)
{
    enum { EACH = BIAS_COLUMNS * PIXELS / CONV_WARPGROUP };
    const weight_kernel *k = of;
    tensor sOnes = tensor_with_layout(k->sOnes, compact(leaf(BIAS_COLUMNS * PIXELS)));
    for (int i = 0; i < EACH; i++)
        IF(lt(thread(), imm(CONV_WARPGROUP)))
            set(sOnes, add(thread(), imm(i * CONV_WARPGROUP)), convert(k->cfg->form.dtype, immf(1)));
    fence_proxy_async();
}

static void describe_product(const conv_sm90_weight_config *cfg)
{
    weight_kernel k = { .cfg = cfg, .size = conv_weight_shape_of(cfg) };
    k.p = params_of(conv);
    describe_boxes(&k);
    describe_memory(&k);
    describe_schedule(&k);
    conv_run_roles(&(conv_roles){ .consumers = cfg->consumers,
                                  .maps = { &k.tmaX, &k.tmaY, &k.tmaSums },
                                  .ring = &k.ring,
                                  .prepare = cfg->form.bias ? write_ones : NULL,
                                  .load = load_tiles,
                                  .consume = consume,
                                  .p = &k.p,
                                  .of = &k });
}

/* Kernel 1: the slices' sums, 4 channels of a filter's tap a thread; behind these one thread for each filter's bias. */

/* To dw, as it lies; folded: `c` counts through columns of the filter as well. */
static void store_filter(const conv_values *p, tensor rSum, val k, val tap, val c, ckl_dtype out, bool fold)
{
    tensor gW = conv_elements_from(p->from[CONV_W], out);
    val index = mul(k, p->w[0]);
    for (int m = (fold ? 2 : CONV_MODES) - 1; m >= 0; m--) {
        val filter = conv_number(p->filter[m]);
        index = add(index, mul(convert(I64, m ? rem(tap, filter) : tap), p->w[1 + m]));
        tap = div(tap, filter);
    }
    for (int i = 0; i < CONV_WEIGHT_VECTOR; i++) {
        val channel = add(c, imm64(i)), inside = yes(), place = index;
        if (fold) {
            val column = convert(I64, div(conv_number(channel), p->packed_channels));
            channel = sub(channel, mul(column, convert(I64, p->packed_channels)));
            inside = lt(column, p->filter[2]);
            place = add(place, mul(column, p->w[3]));
        }
        IF(logical_and(inside, lt(channel, p->c)))
            set(gW, add(place, mul(channel, p->w[4])), at(rSum, i));
    }
}

void conv_weight_add(const conv_sm90_weight_config *cfg, bool fold)
{
    launch_bounds(cfg->adders, 0);
    conv_values p = params_of(conv);
    val vectors = convert(U32, div(p.sum_pitch, imm64(CONV_WEIGHT_VECTOR))), taps = imm(1);
    for (int m = 0; m < (fold ? 2 : CONV_MODES); m++)
        taps = mul(taps, conv_number(p.filter[m]));
    val v = add(mul(cta_x(), imm(cfg->adders)), thread()), count = mul(mul(conv_number(p.k), taps), vectors);
    grid_wait();
    launch_dependents();
    IF(lt(v, count)) {
        val row = div(v, vectors), c = mul(convert(I64, rem(v, vectors)), imm64(CONV_WEIGHT_VECTOR));
        val all = mul(mul(p.k, convert(I64, taps)), p.sum_pitch);
        val first = gmem_address(p.sums, F32, mul(convert(I64, v), imm64(CONV_WEIGHT_VECTOR)));
        tensor rSum = conv_add_slices(cfg->slices, first, all, CONV_WEIGHT_VECTOR);
        store_filter(&p, rSum, convert(I64, div(row, taps)), rem(row, taps), c, cfg->form.out, fold);
    }
    if (cfg->form.bias) {
        val k = sub(v, count);
        IF(logical_and(ge(v, count), lt(k, conv_number(p.k)))) {
            tensor rSum = conv_add_slices(cfg->slices, gmem_address(p.bias_sums, F32, convert(I64, k)), p.k, 1);
            set(conv_elements_from(p.bias, cfg->form.out), k, at(rSum, 0));
        }
    }
}

void conv_sm90_weight(const void *config, int kernel)
{
    if (kernel == 0)
        describe_product(config);
    else
        conv_weight_add(config, false);
}
