/*
 * conv_sm90.c - a persistent, warp-specialised convolution for Hopper: implicit GEMM of NHWC images without a copy of
 * patches.
 *
 * For the gradient of data read dy, dx and channels in place of x, y and filters. A launch takes the pixels of dx that
 * see the same taps, backwards; W is N-major, as it lies in memory.
 *
 *   a tile            a box of pixels of y, columns by rows by images, times some filters
 *   warpgroup 0       producer: for every tap and some channels TMA loads the box of x that lies under the tap,
 *                     shifted, with the filters' strides, and with zeros for what is outside; and the filters' elements
 *                     of that tap
 *   warpgroups 1..    consumers: 64 pixels each, wgmma into registers; y goes through staging buffers, a box of TMA at
 *                     a time
 */
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_sm90_kernel.h"

enum { GROUPS_MAX = 4 }; // of a tile

/* One consumer's view. */
typedef struct consumer_role {
    conv_consumer own;
    val k_tile;                                // the next one of a tile, where filters stay
    tensor tCrX[GROUPS_MAX], tCrW[GROUPS_MAX]; // of each group of a tile: (MMA_M,MMA_K,STAGES), (MMA_N,MMA_K,STAGES)
    val half, parity; // residual: which half of the buffers has this tile's; its barrier's parity
} consumer_role;

/* Tiles, boxes and memory */

/* A ring of tiles whose rows are `span` bytes apart: (ROWS,COLS,STAGES). *boxes: the same with `width` columns. */
static tensor narrow_tiles(const char *name, ckl_dtype dtype, int rows, int cols, int stages, int span, int width,
                           tensor *boxes)
{
    const int pitch = span / (int)ckl_dtype_bytes(dtype);
    tensor tiles = tma_ring(name, dtype, rows, pitch, stages);
    const swizzle sw = tiles.layout.sw;
    layout strides = make_layout(shape(rows, cols, stages), stride(pitch, 1, rows * pitch));
    layout narrower = make_layout(shape(rows, width, stages), stride(pitch, 1, rows * pitch));
    *boxes = tensor_with_layout(tiles, with_swizzle(sw, narrower));
    return tensor_with_layout(tiles, with_swizzle(sw, strides));
}

static void describe_boxes(conv_sm90_kernel *k)
{
    const conv_sm90_config *c = k->cfg;
    const conv_sm90_shape *s = &k->size;
    const int x_box[] = { c->tile_k, c->box_w, c->box_h + s->taps - 1, 1, c->box_n };
    const int x_step[] = { 1, c->step_w, c->step_h, 1, 1 };
    const int y_box[] = { s->y_cols, s->consumer_w, s->consumer_h, 1, s->consumer_n };
    k->tmaX = c->im2col ? make_tma_im2col(k->p.mX, c->form.dtype, 4, s->tile_m, c->tile_k, x_step, s->span)
                        : make_tma_box(k->p.mX, c->form.dtype, 5, x_box, x_step, s->span);
    const int rank = c->grouped ? 4 : 3;
    k->tmaW = conv_sm90_n_major(c) ? make_tma(k->p.mW, c->form.dtype, rank, c->tile_k, CONV_SM90_SPAN, 128)
                                   : make_tma(k->p.mW, c->form.dtype, rank, c->tile_n, s->w_k, s->w_span);
    const int y_row = s->y_cols * (int)ckl_dtype_bytes(c->form.out);
    k->tmaY = make_tma_box(k->p.mY, c->form.out, 5, y_box, NULL, y_row);
    if (c->form.residual)
        k->tmaResidual = make_tma_box(k->p.mR, c->form.out, 5, y_box, NULL, y_row);
}

static void describe_memory(conv_sm90_kernel *k)
{
    const conv_sm90_config *c = k->cfg;
    const conv_sm90_shape *s = &k->size;
    const ckl_dtype dtype = c->form.dtype;
    k->sX = narrow_tiles("X", dtype, s->x_rows, s->depth, c->stages, s->span, c->tile_k, &k->sBoxes);
    if (conv_sm90_n_major(c))
        k->sW = conv_spans("W", dtype, s->depth, c->tile_n / CONV_SM90_SPAN, s->slots, &k->sSpans);
    else
        k->sW = narrow_tiles("W", dtype, c->tile_n, s->w_depth, s->slots, s->w_span, s->w_k, &k->sSpans);
    if (conv_sm90_n_major(c))
        k->sSpans = local_tile(k->sSpans, shape(c->tile_k, CONV_SM90_SPAN), coord(0, 0, _, _)); // of DEPTH rows
    k->sY = tma_tiles("Y", c->form.out, CONV_SM90_ROWS, k->size.y_cols, k->size.buffers, c->consumers);
    k->ring = make_pipeline("ring", c->stages, 1, c->consumers);
    if (c->form.residual)
        k->residual_barriers = smem_alloc("residual arrived", 16 * (int64_t)c->consumers, 8);
}

static void describe_schedule(conv_sm90_kernel *k)
{
    const conv_sm90_config *c = k->cfg;
    const int box[CONV_MODES] = { 1, c->box_h, c->box_w };
    k->images = conv_tiles_along(k->p.n, c->box_n);
    k->filters = conv_tiles_along(k->p.k, c->tile_n);
    k->count = mul(k->images, imm(c->slices));
    k->chunks = conv_tiles_along(k->p.c, c->tile_k);
    k->k_tiles = k->chunks;
    for (int m = 0; m < CONV_MODES; m++) {
        k->tiles[m] = conv_tiles_along(k->p.y_size[m], box[m]);
        k->count = mul(k->count, k->tiles[m]);
        k->k_tiles = mul(k->k_tiles, conv_sm90_taps_along(k, m));
    }
    k->count = mul(k->count, k->filters);
}

/* What the mainloop wants of a tile: the rest is found under its last products, as the divisions take 400 cycles. */
static conv_sm90_place place_of_filters(const conv_sm90_kernel *k, val tile)
{
    return (conv_sm90_place){ .at = { imm(0), imm(0), imm(0) },
                              .image = imm(0),
                              .filter = mul(rem(tile, k->filters), imm(k->cfg->tile_n)),
                              .k_tiles = k->k_tiles };
}

/* The consumers */

/*
 * A tall stage's pixels as wgmma reads them for each tap: 64 from every row of every box on,
 * (ROWS,DEPTH,BOX_ROWS*STAGES). A row is 8 pixels and more, which a swizzle repeats after.
 */
static tensor rows_of_boxes(const conv_sm90_kernel *k)
{
    const int pitch = k->size.span / (int)ckl_dtype_bytes(k->cfg->form.dtype), width = k->cfg->box_w;
    layout rows = make_layout(shape(CONV_SM90_ROWS, k->size.depth, k->cfg->stages * k->size.x_rows / width),
                              stride(pitch, 1, width * pitch));
    return tensor_with_layout(k->sX, with_swizzle(k->sX.layout.sw, rows));
}

/* Which of them is the first of a consumer and tap. */
static val row_of_box(const conv_sm90_kernel *k, const consumer_role *c, val stage, int r)
{
    const conv_sm90_shape *s = &k->size;
    const int next = s->next_n ? s->next_n * s->x_images / k->cfg->box_w : s->next_h;
    return add(mul(stage, imm(s->x_rows / k->cfg->box_w)),
               add(mul(c->own.index, imm(next)), imm(conv_sm90_row_of_tap(k, r))));
}

static consumer_role describe_consumer(const conv_sm90_kernel *k)
{
    const conv_sm90_config *cfg = k->cfg;
    const int filters = cfg->tile_n / cfg->together; // of a group
    consumer_role c = { .own = conv_consumer_of(conv_mma_of(cfg->form.dtype, filters)) };
    const tiled_mma *mma = &c.own.mma, all = conv_mma_of(cfg->form.dtype, cfg->tile_n);
    const int depth = k->size.w_depth, steps = depth / mma->atom.k; // of a group
    tensor sX = cfg->tall ? rows_of_boxes(k)
                          : local_tile(k->sX, shape(CONV_SM90_ROWS, k->size.depth),
                                       coord(c.own.index, 0, _)); // (ROWS,DEPTH,STAGES)
    tensor tCrX = descriptors_A(mma, sX);                         // (MMA_M,MMA_K,STAGES)
    for (int g = 0; g < cfg->together; g++) {
        c.tCrX[g] = local_tile(tCrX, shape(1, steps), coord(0, g, _));
        c.tCrW[g] = descriptors_B(mma, local_tile(k->sW, shape(filters, depth), coord(g, 0, _)));
    }
    conv_begin_sums(&c.own, &all, conv_sum_type(&cfg->form), k->sY);
    if (cfg->held)
        c.k_tile = variable(U32, imm(0));
    if (cfg->form.residual) {
        c.half = variable(U32, imm(0));
        c.parity = variable(U32, imm(0));
    }
    return c;
}

static void multiply(const void *kernel, const void *role, val stage, val not_first)
{
    const conv_sm90_kernel *k = kernel;
    const conv_sm90_config *cfg = k->cfg;
    const consumer_role *c = role;
    const int filters = cfg->tile_n / cfg->together;
    for (int r = 0; r < k->size.taps; r++)
        for (int g = 0; g < cfg->together; g++)
            gemm(&c->own.mma, slice(c->tCrX[g], _, _, cfg->tall ? row_of_box(k, c, stage, r) : stage),
                 slice(c->tCrW[g], _, _, conv_sm90_slot_of_tap(k, cfg->held ? c->k_tile : stage, r)),
                 accumulator_columns(c->own.acc, g * filters, filters), r ? yes() : not_first);
    if (cfg->held)
        assign(c->k_tile, add(c->k_tile, imm(1)));
}

/* Where the consumer's pixels begin. */
static conv_sm90_place place_of_consumer(const conv_sm90_kernel *k, const consumer_role *c, const conv_sm90_place *tile)
{
    const conv_sm90_shape *s = &k->size;
    conv_sm90_place own = *tile;
    own.at[2] = add(own.at[2], mul(c->own.index, imm(s->next_w)));
    own.at[1] = add(own.at[1], mul(c->own.index, imm(s->next_h)));
    own.image = add(own.image, mul(c->own.index, imm(s->next_n)));
    if (k->cfg->slices > 1)
        own.image = add(own.image, mul(tile->slice, k->p.sum_images));
    return own;
}

static val residual_barrier(const conv_sm90_kernel *k, const consumer_role *c, val half)
{
    return add(smem_address(k->residual_barriers), mul(add(mul(c->own.index, imm(2)), half), imm(8)));
}

/* Begins to load a tile's residual into that half of the staging buffers, once the stores from there have read them. */
static void load_residual(const conv_sm90_kernel *k, const consumer_role *c, val tile, val half)
{
    const int count = k->size.y_boxes;
    IF(logical_and(c->own.staged.leader, lt(tile, k->count))) {
        const conv_sm90_place place = conv_sm90_place_of(k, tile), own = place_of_consumer(k, c, &place);
        const val barrier = residual_barrier(k, c, half), outer[] = { own.at[1], own.at[0], own.image };
        tma_store_wait_read(0);
        mbarrier_expect(barrier, imm(count * (int)tma_bytes(&k->tmaResidual)));
        UNROLL(i, count)
            tma_load_of(&k->tmaResidual, slice(c->own.sY, _, _, add(mul(half, imm(count)), imm(i))), own.at[2],
                        add(own.filter, imm(i * k->size.y_cols)), 3, outer, barrier, imm(0));
    }
}

/* From a staging buffer to registers in the order of the accumulators. */
static tensor read_residual(const conv_sm90_kernel *k, const consumer_role *c, const tiled_mma *mma, tensor acc,
                            tensor sY)
{
    tensor rR = fragment_like(acc, F32);
    copy(partition_C(mma, sY, c->own.tid), rR, 2 * (int)ckl_dtype_bytes(k->cfg->form.out));
    return rR;
}

/* Where in a staging buffer a thread's accumulators go: (MMA,1,1). */
static tensor coordinates_of(const conv_sm90_kernel *k, const consumer_role *c)
{
    const tiled_mma mma = conv_mma_of(k->cfg->form.dtype, k->size.y_cols);
    return partition_C(&mma, identity_tensor(shape(CONV_SM90_ROWS, k->size.y_cols)), c->own.tid);
}

/*
 * Loads bias and scale of a staging buffer's columns, from `first` of the tile on; channel: among those of all groups.
 */
static void load_vectors(const conv_sm90_kernel *k, const consumer_role *c, val channel, int first, conv_vectors *v)
{
    const val all = k->cfg->grouped ? mul(k->p.k, k->p.groups) : k->p.k, last = sub(conv_number(all), imm(1));
    conv_load_vectors(&k->cfg->form, &k->p, last, coordinates_of(k, c), 1, channel, first, v);
}

static val first_channel(const conv_sm90_kernel *k, const conv_sm90_place *place, int buffer)
{
    val channel = add(place->filter, imm(buffer * k->size.y_cols));
    return k->cfg->grouped ? add(channel, mul(place->at[0], conv_number(k->p.k))) : channel;
}

/*
 * Are bias and scale loaded before the mainloop, which hides the latency? Where registers hold them beside the
 * accumulators.
 */
static bool loads_early(const conv_sm90_kernel *k)
{
    return k->cfg->tile_n <= 2 * CONV_SM90_SPAN;
}

static void load_vectors_early(const conv_sm90_kernel *k, const consumer_role *c, const conv_sm90_place *place,
                               conv_vectors *v)
{
    const int width = k->size.y_cols;
    const conv_sm90_place own = place_of_consumer(k, c, place);
    for (int i = 0; loads_early(k) && i < k->size.y_boxes; i++)
        load_vectors(k, c, first_channel(k, &own, i), i * width, v);
}

/* Are these of the filters alone? Then a tile of the same filters finds them in registers. */
static bool holds_vectors(const conv_sm90_kernel *k)
{
    return loads_early(k) && !k->cfg->grouped && (k->cfg->form.bias || k->cfg->form.scale);
}

/*
 * Where sum i of a staging buffer, whose channels begin at `first` of the tile, lies in y: a consumer's pixels are a
 * box, or follow each other. Groups take the place of slices.
 */
static void set_place(const conv_sm90_kernel *k, const consumer_role *c, const conv_sm90_place *own, int first, int i,
                      conv_element *in)
{
    const conv_sm90_shape *s = &k->size;
    tensor tCcY = coordinates_of(k, c);
    val pixel = coordinate(tCcY, 0, i), rest = div(pixel, imm(s->consumer_w));
    conv_values images = k->p;
    if (k->cfg->grouped)
        images.y_size[0] = imm(1);
    const val at[CONV_MODES] = { k->cfg->grouped ? imm(0) : own->at[0], add(own->at[1], rem(rest, imm(s->consumer_h))),
                                 add(own->at[2], rem(pixel, imm(s->consumer_w))) };
    in->channel = add(first_channel(k, own, first / s->y_cols), coordinate(tCcY, 1, i));
    in->pixel = k->cfg->im2col ? add(own->at[2], pixel)
                               : conv_pixel_at(&images, add(own->image, div(rest, imm(s->consumer_h))), at);
}

/* The accumulators of some columns with bias, residual and activation, in the staging buffer. */
static void finish_columns(const conv_sm90_kernel *k, const consumer_role *c, const conv_sm90_place *own,
                           const tiled_mma *mma, tensor acc, tensor sY, tensor rR, const conv_vectors *v, int first)
{
    const conv_form *form = &k->cfg->form;
    tensor rY = fragment_like(acc, form->out == I32 ? I32 : F32);
    layout along = coordinate_distances(coordinates_of(k, c), 1);
    UNROLL(i, static_size(rY.layout)) {
        const int64_t column = first + index_at(along, i);
        conv_element in = { .sum = at(acc, i), .scale = v->scale[column], .bias = v->bias[column] };
        if (form->residual)
            in.residual = at(rR, i);
        if (conv_is_custom(form))
            set_place(k, c, own, first, i, &in);
        set(rY, i, conv_finish(form, in));
    }
    conv_write_staging(mma, rY, sY, c->own.tid);
}

static void epilogue(const conv_sm90_kernel *k, const consumer_role *c, const conv_sm90_place *tile, conv_vectors *v)
{
    const int width = k->size.y_cols, count = k->size.y_boxes;
    const conv_sm90_place own = place_of_consumer(k, c, tile);
    const tiled_mma mma = conv_mma_of(k->cfg->form.dtype, width);
    const bool residual = k->cfg->form.residual;
    if (residual)
        mbarrier_wait(residual_barrier(k, c, c->half), c->parity);
    UNROLL(i, count) {
        val buffer = residual ? add(mul(c->half, imm(count)), imm(i)) : imm(i % CONV_SM90_BUFFERS);
        tensor sY = slice(c->own.sY, _, _, buffer), rR = { 0 };
        tensor acc = slice(accumulator_columns(c->own.acc, i * width, width), _, 0, _);
        val channel = add(own.filter, imm(i * width)), outer[] = { own.at[1], own.at[0], own.image };
        if (residual)
            rR = read_residual(k, c, &mma, acc, sY);
        else
            conv_wait_staging(&c->own, i, count);
        if (!loads_early(k))
            load_vectors(k, c, first_channel(k, &own, i), i * width, v);
        finish_columns(k, c, &own, &mma, acc, sY, rR, v, i * width);
        STAGED_STORE(&c->own.staged)
            tma_store_of(&k->tmaY, sY, own.at[2], channel, 3, outer);
    }
}

static void consume(const void *of)
{
    const conv_sm90_kernel *k = of;
    consumer_role c = describe_consumer(k);
    const conv_products products = { &k->ring, c.own.staged.leader, multiply, k, &c };
    pipeline_state stage = consumer_state(&k->ring);
    const bool residual = k->cfg->form.residual, late = !k->cfg->grouped && k->cfg->slices == 1;
    conv_vectors v = { .held = holds_vectors(k) };
    val filter = v.held ? variable(U32, imm_as(U32, UINT32_MAX)) : (val){ 0 }; // whose vectors are held
    for (int i = 0; v.held && i < k->size.y_boxes; i++)
        conv_hold_vectors(&k->cfg->form, coordinates_of(k, &c), 1, i * k->size.y_cols, &v);
    if (residual)
        load_residual(k, &c, cta_x(), c.half);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        conv_sm90_place place = late ? place_of_filters(k, tile) : conv_sm90_place_of(k, tile);
        if (v.held)
            begin_if(ne(place.filter, filter));
        load_vectors_early(k, &c, &place, &v);
        if (v.held) {
            assign(filter, place.filter);
            end_if();
        }
        if (k->cfg->held)
            assign(c.k_tile, imm(0));
        const val last = conv_mainloop_begin(&products, place.k_tiles, &stage);
        if (late)
            place = conv_sm90_place_of(k, tile);
        if (residual)
            load_residual(k, &c, add(tile, grid_x()), sub(imm(1), c.half));
        conv_mainloop_end(&products, last);
        epilogue(k, &c, &place, &v);
        if (residual) {
            assign(c.parity, bit_xor(c.parity, c.half));
            assign(c.half, sub(imm(1), c.half));
        }
    }
    IF(c.own.staged.leader)
        tma_store_wait(0);
}

static void barriers_beside_ring(const void *of)
{
    const conv_sm90_kernel *k = of;
    for (int b = 0; k->cfg->form.residual && b < 2 * k->cfg->consumers; b++)
        mbarrier_init(smem_address(k->residual_barriers + 8 * b), 1);
}

/* Zeros, once, in the channels that wgmma reads beyond those of a box. */
static void clear_stages(const void *of)
{
    const conv_sm90_kernel *k = of;
    const conv_sm90_shape *s = &k->size;
    const int64_t x = (int64_t)k->cfg->stages * s->x_rows * s->span, all = s->rooms;
    tensor rZeros = fragment(I32, compact(leaf(4)));
    fill(rZeros, imm(0));
    LOOP_FROM(at, mul(thread(), imm(16)), imm((int)all), imm(16 * CONV_WARPGROUP * (1 + k->cfg->consumers))) {
        val of_w = add(tensor_address(k->sW, coord(0, 0, 0)), sub(at, imm((int)x)));
        val to = select(lt(at, imm((int)x)), add(tensor_address(k->sX, coord(0, 0, 0)), at), of_w);
        copy(rZeros, smem_view(to, I32, compact(leaf(4))), 16);
    }
    fence_proxy_async();
}

static void zero_unseen(const void *of)
{
    const conv_sm90_kernel *k = of;
    IF(ge(warp(), imm(1)))
        conv_zero_unseen(&k->p, k->cfg->form.out, sub(warp(), imm(1)), CONV_WARPGROUP / 32 - 1);
}

void conv_sm90(const void *config, int kernel)
{
    const conv_sm90_config products = conv_sm90_products(config), *cfg = &products;
    (void)kernel;
    conv_sm90_kernel k = { .cfg = cfg, .size = conv_sm90_shape_of(cfg) };
    k.p = params_of(conv);
    describe_boxes(&k);
    describe_memory(&k);
    describe_schedule(&k);
    const bool several = cfg->form.direction == CKL_CONV_DATA && !cfg->im2col; // launches: im2col=1 is of strides of 1
    const val beside = several ? ne(k.p.beside, imm(0)) : (val){ 0 };
    conv_run_roles(&(conv_roles){ .consumers = cfg->consumers,
                                  .maps = { &k.tmaX, &k.tmaW, &k.tmaY },
                                  .ring = &k.ring,
                                  .barriers = barriers_beside_ring,
                                  .prepare = cfg->tile_k % k.size.depth ? clear_stages : NULL,
                                  .load = conv_sm90_load_tiles,
                                  .assist = cfg->zeros ? zero_unseen : NULL,
                                  .consume = consume,
                                  .beside = several ? &beside : NULL,
                                  .p = &k.p,
                                  .of = &k });
}
