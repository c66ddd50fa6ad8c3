/*
 * conv_halo.c - depthwise convolution of NHWC on Hopper by tensor cores: tiles of x with their halo in shared memory,
 * a row of a filter as a band of a matrix.
 *
 * A CTA keeps the filters of its channels in shared memory and goes through tiles of y, while TMA loads the boxes of x
 * below the next ones, with zeros outside. Rows and columns of a filter that see padding alone are left out.
 *
 * Of one channel, 16 rows of x from different places of a tile, with 16 columns each, are A of one mma.sync. Column n
 * of B has the filter's row from place n on, or from every second one: up to 8 columns of y come out whole. A warp does
 * that for 8 channels, which a pixel has side by side.
 *
 * The zeros beside the filter make NaN of an infinity that y does not see. So where a sum is no finite number a warp
 * computes its tile by the definition.
 */
#include "cute/kernel.h"
#include "cute/pipeline.h"
#include "cute/tma.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_halo.h"
#include "operators/conv/conv_sm90.h"
#include "operators/conv/conv_wait.h"

enum {
    VECTOR = CONV_HALO_VECTOR,
    WINDOW = CONV_HALO_WINDOW,
    PLACES = 4,    // pixels of a thread: of y, and of a row of x
    HALVES = 2,    // of the rows of a matrix, of which a thread has one each
    BARRIER_Y = 1, // round the buffer of y
    PADDING = 4    // channels of filters that lie apart meet few of the same banks
};

/* Everything a thread knows. */
typedef struct halo_kernel {
    const conv_halo_config *cfg;
    conv_halo_shape size;
    conv_values p;
    tma_copy tmaX, tmaY;
    tensor sX;     // (PIXEL,CHANNEL,STAGES)
    tensor sW;     // (CHANNEL,TAP) of f32
    tensor sBands; // (ELEMENT,COPY,ROW,CHANNEL)
    tensor sY;     // (PIXEL,CHANNEL,1)
    pipeline ring;
    val channel; // the CTA's first
    conv_tile_grid grid;
} halo_kernel;

/* The next tile to load, and its stage. */
typedef struct tiles_ahead {
    pipeline_state stage;
    val tile;
} tiles_ahead;

/* Each row of a filter twice, the second time an element further on, so that pairs of either begin at whole words. */
static void describe(halo_kernel *k)
{
    const conv_halo_config *c = k->cfg;
    const conv_halo_shape *s = &k->size;
    const int x_box[] = { s->channels, s->box_w, s->box_h, 1, c->images },
              y_box[] = { s->channels, s->cols * c->wide, c->high, 1, c->images };
    k->tmaX = make_tma_box(k->p.mX, c->form.dtype, 5, x_box, NULL, 2 * s->channels);
    k->tmaY = make_tma_box(k->p.mY, c->form.out, 5, y_box, NULL, s->channels * (int)ckl_dtype_bytes(c->form.out));
    k->sX = tma_ring("X", c->form.dtype, s->box_w * s->box_h * c->images, s->channels, c->stages);
    k->sY = tma_ring("Y", c->form.out, s->cols * c->wide * c->high * c->images, s->channels, 1);
    k->sBands = smem_tensor("bands", c->form.dtype, compact(shape(conv_halo_band(c), 2, c->rows, s->channels)), 16);
    k->sW = smem_tensor("filters", F32,
                        make_layout(shape(s->channels, c->rows * c->columns), stride(1, s->channels + PADDING)), 16);
    k->ring = make_pipeline("ring", c->stages, 1, s->threads);
    k->channel = mul(cta_y(), imm(s->channels));
    k->grid = conv_tile_grid_of(&k->p, s->cols * c->wide, c->high, c->images);
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

static void load_tile(const halo_kernel *k, const pipeline_state *stage, val tile)
{
    const conv_halo_config *c = k->cfg;
    const conv_tile_place place = conv_tile_at(&k->grid, tile);
    val w = sub(mul(place.w, imm(c->step_w)), conv_number(k->p.pad[2]));
    const val outer[] = { sub(mul(place.h, imm(c->step_h)), conv_number(k->p.pad[1])), imm(0), place.n };
    pipeline_expect(&k->ring, stage, imm((int)tma_bytes(&k->tmaX)));
    tma_load_of(&k->tmaX, slice(k->sX, _, _, stage->stage), w, k->channel, 3, outer,
                pipeline_full_barrier(&k->ring, stage), imm(0));
}

/* The thread that loads, and stores y: the first of the last warp. */
static val loads_tiles(const halo_kernel *k)
{
    return eq(thread(), imm(k->size.threads - 32));
}

/* Loads the box of x below the next tile, if there is one, to a stage that all have left. */
static void load_ahead(const halo_kernel *k, tiles_ahead *a)
{
    IF(logical_and(loads_tiles(k), lt(a->tile, k->grid.count)))
        load_tile(k, &a->stage, a->tile);
    assign(a->tile, add(a->tile, grid_x()));
    pipeline_advance(&a->stage);
}

/* The first tiles are under way before any thread waits for filters: all but one, whose stage is the loop's. */
static tiles_ahead load_first_tiles(const halo_kernel *k)
{
    tiles_ahead ahead = { producer_state(&k->ring), variable(U32, cta_x()) };
    IF(loads_tiles(k)) {
        tma_prefetch(&k->tmaX);
        pipeline_init(&k->ring);
        fence_mbarrier_init();
        grid_wait();
    }
    for (int s = 0; s < k->cfg->stages - 1; s++)
        load_ahead(k, &ahead);
    return ahead;
}

/* A row of a matrix: its window of columns, its block of rows, its image. */
typedef struct block_place {
    val window, block, image;
} block_place;

/* A lane of a warp with 8 channels. */
typedef struct band_role {
    val group, row, pair;         // of the warp's channels; of 8 rows of half a matrix, of 4 pairs of columns
    val at_x[HALVES][2], at_band; // addresses: of its first two pixels in stage 0, of its first element of channel 0
    val even, odd;                // how A is made of words of both: of the first of their channels, of the second
    tiled_mma mma;
    tensor rX;     // (WORD,PLACE,HALF)
    tensor rA, rB; // (MMA,1,1) of words
    tensor rBands; // (WORD,CHANNEL,ROW) of bands
    tensor rSum;   // (PLACE,CHANNEL,ROW)
} band_role;

/* Rows of y of a block. */
static int rows_of(const conv_halo_config *c)
{
    return c->high / conv_halo_blocks(c);
}

static void clear_bands(const halo_kernel *k)
{
    const int vectors = 2 * (int)static_size(k->sBands.layout) / 16;
    tensor rZeros = fragment(U32, compact(leaf(4)));
    fill(rZeros, imm_as(U32, 0));
    LOOP_FROM(i, thread(), imm(vectors), imm(k->size.threads))
        copy(rZeros, smem_view(add(k->sBands.address, mul(i, imm(16))), U32, compact(leaf(4))), 16);
}

static void fill_bands(const halo_kernel *k)
{
    const conv_halo_config *c = k->cfg;
    const int taps = c->rows * c->columns, before = conv_halo_band_before(c);
    LOOP_FROM(e, thread(), imm(k->size.channels * taps), imm(k->size.threads)) {
        val channel = div(e, imm(taps)), tap = rem(e, imm(taps)), row = div(tap, imm(c->columns)),
            column = rem(tap, imm(c->columns));
        val w = convert(c->form.dtype, at(k->sW, channel, tap));
        set(k->sBands, coord(add(column, imm(before)), 0, row, channel), w);
        set(k->sBands, coord(add(column, imm(before - 1)), 1, row, channel), w);
    }
}

/* Of row `number` of a matrix. */
static block_place place_of_block(const halo_kernel *k, val number)
{
    const int wide = k->cfg->wide, blocks = conv_halo_blocks(k->cfg);
    return (block_place){ thread_at(number, 0, wide, blocks, k->cfg->images),
                          thread_at(number, 1, wide, blocks, k->cfg->images),
                          thread_at(number, 2, wide, blocks, k->cfg->images) };
}

/* The number of a pixel of the box: column `column` of the first row of a block's window. */
static val pixel_of(const halo_kernel *k, const block_place *b, val column)
{
    val row = add(mul(b->image, imm(k->size.box_h)), mul(b->block, imm(rows_of(k->cfg) * k->cfg->step_h)));
    return add(mul(row, imm(k->size.box_w)), add(mul(b->window, imm(k->size.cols * k->cfg->step_w)), column));
}

/*
 * A lane's words of x: those of odd rows have the second of two pixels first, so that rows side by side meet other
 * banks.
 */
static void place_words(const halo_kernel *k, val channel, band_role *w)
{
    enum { EVEN = 0x5410, ODD = 0x7632, EVEN_TURNED = 0x1054, ODD_TURNED = 0x3276 };
    val turned = rem(w->row, imm(2));
    for (int half = 0; half < HALVES; half++) {
        const block_place b = place_of_block(k, add(w->row, imm(half * CONV_HALO_LANES / HALVES)));
        for (int i = 0; i < 2; i++)
            w->at_x[half][i] = tensor_address(
                k->sX, coord(pixel_of(k, &b, add(mul(w->pair, imm(2)), bit_xor(turned, imm(i)))), channel, 0));
    }
    w->even = select(eq(turned, imm(0)), imm_as(U32, EVEN), imm_as(U32, EVEN_TURNED));
    w->odd = select(eq(turned, imm(0)), imm_as(U32, ODD), imm_as(U32, ODD_TURNED));
}

/*
 * The band of channel 0 and row 0: elements k - n * step of the filter at column n = `row` of B and places k = 2 * pair
 * and the next. Columns beyond those of y have the last one's.
 */
static band_role describe_role(const halo_kernel *k)
{
    const conv_halo_config *c = k->cfg;
    band_role w = { .group = warp(),
                    .row = thread_at(lane(), 1, 4, 8),
                    .pair = thread_at(lane(), 0, 4, 8),
                    .mma = make_tiled_mma(mma_sync_atom(c->form.dtype), 1, 1),
                    .rX = fragment(U32, compact(shape(4, PLACES, HALVES))),
                    .rA = fragment(U32, compact(shape(4, 1, 1))),
                    .rB = fragment(U32, compact(shape(2, 1, 1))),
                    .rBands = fragment(U32, compact(shape(2, VECTOR, c->rows))),
                    .rSum = fragment(F32, compact(shape(PLACES, VECTOR, rows_of(c)))) };
    val channel = mul(w.group, imm(VECTOR)), moved = mul(min(w.row, imm(k->size.cols - 1)), imm(c->step_w));
    val odd = rem(moved, imm(2)), first = sub(add(mul(w.pair, imm(2)), imm(conv_halo_band_before(c))), add(moved, odd));
    place_words(k, channel, &w);
    w.at_band = tensor_address(k->sBands, coord(first, odd, 0, channel));
    return w;
}

/* Loads adjacent words of shared memory into the first registers of r. */
static void load_words(val address, int offset, int count, tensor r)
{
    val words[4];
    for (int i = 0; i < count; i++)
        words[i] = at(r, i);
    load_at(IR_SHARED, IR_CACHE_DEFAULT, U32, count, address, offset, words);
}

/* The band of a channel and row: its words of the first 8 places, and of the others. */
static void load_band(const halo_kernel *k, const band_role *w, int channel, int row, tensor rBand)
{
    const int offset = 2 * 2 * conv_halo_band(k->cfg) * (row + k->cfg->rows * channel);
    for (int half = 0; half < 2; half++)
        load_words(w->at_band, offset + 16 * half, 1, local_tile(rBand, shape(1), coord(half)));
}

/* A row of x: two neighbouring pixels of the first 8 columns, and two of the others. */
static void load_row(const halo_kernel *k, const band_role *w, val stage, int row)
{
    const int pixel = 2 * k->size.channels, eight = 8 * pixel; // bytes, after which a swizzle begins anew
    val begin = mul(stage, imm((int)k->size.stage_bytes));
    for (int half = 0; half < HALVES; half++)
        for (int p = 0; p < PLACES; p++)
            load_words(add(w->at_x[half][p % 2], begin), row * k->size.box_w * pixel + p / 2 * eight, 4,
                       slice(w->rX, _, p, half));
}

/* A of a channel: its elements of the pixels. */
static void take_channel(const band_role *w, int channel)
{
    for (int half = 0; half < HALVES; half++)
        for (int eight = 0; eight < 2; eight++)
            set(w->rA, coord(half + 2 * eight, 0, 0),
                permute_bytes(at(w->rX, channel / 2, 2 * eight, half), at(w->rX, channel / 2, 2 * eight + 1, half),
                              channel % 2 ? w->odd : w->even));
}

static void take_band(const band_role *w, int channel, int row)
{
    for (int i = 0; i < 2; i++)
        set(w->rB, coord(i, 0, 0), at(w->rBands, i, channel, row));
}

/* Adds row i of x to all rows of y that see it. */
static void add_row(const halo_kernel *k, const band_role *w, val stage, int i)
{
    const conv_halo_config *c = k->cfg;
    load_row(k, w, stage, i);
    UNROLL(channel, VECTOR) {
        take_channel(w, channel);
        if (i < c->rows) // the first row of y needs it now, the others will
            load_band(k, w, channel, i, slice(w->rBands, _, channel, i));
        for (int q = 0; q < rows_of(c); q++) {
            const int r = i - q * c->step_h;
            if (r < 0 || r >= c->rows)
                continue;
            take_band(w, channel, r);
            gemm(&w->mma, w->rA, w->rB, local_tile(w->rSum, shape(PLACES, 1, 1), coord(0, channel, q)), yes());
        }
    }
}

/* Where element p of a matrix of sums lies: its column of y, and its row of the matrix. */
static val column_of(const band_role *w, int p)
{
    return add(mul(w->pair, imm(2)), imm(p % 2));
}

static val block_of(const band_role *w, int p)
{
    return add(w->row, imm(p / 2 * CONV_HALO_LANES / HALVES));
}

/* The sums of 8 channels of a pixel by the definition. */
static void add_taps(const halo_kernel *k, const band_role *w, val stage, int p, int q)
{
    const conv_halo_config *c = k->cfg;
    const block_place b = place_of_block(k, block_of(w, p));
    val channel = mul(w->group, imm(VECTOR)),
        pixel = pixel_of(k, &b, mul(min(column_of(w, p), imm(k->size.cols - 1)), imm(c->step_w)));
    tensor rSum = slice(w->rSum, p, _, q);
    fill(rSum, immf(0));
    LOOP(r, imm(c->rows))
        LOOP(s, imm(c->columns)) {
            val tap = add(mul(r, imm(c->columns)), s),
                seen = add(pixel, add(mul(add(r, imm(q * c->step_h)), imm(k->size.box_w)), s));
            val address = tensor_address(k->sX, coord(seen, channel, stage));
            tensor rX = unpacked(load_packed(smem_view(address, c->form.dtype, compact(leaf(VECTOR))), 16), F32);
            for (int i = 0; i < VECTOR; i++)
                set(rSum, i, fma(at(rX, i), at(k->sW, add(channel, imm(i)), tap), at(rSum, i)));
        }
}

/* Channels of a pixel to the buffer of y: 16 bytes of a warp alone are slow to store, 5 cycles each of an SM. */
static void stage_pixel(const halo_kernel *k, const band_role *w, const conv_channels *channels, val channel, val index,
                        val to, int p, int q)
{
    const conv_form *form = &k->cfg->form;
    const int count = 16 / (int)ckl_dtype_bytes(form->out);
    tensor rY = conv_finish_run(form, &k->p, channels, index, channel, slice(w->rSum, p, _, q));
    for (int i = 0; i < VECTOR / count; i++) // a swizzle exchanges halves of 32 bytes
        copy(local_tile(rY, shape(count), coord(i)),
             smem_view(bit_xor(to, imm(16 * i)), form->out, compact(leaf(count))), 16);
}

static void stage_tile(const halo_kernel *k, const band_role *w, const conv_channels *channels, val channel,
                       const conv_tile_place *tile)
{
    const conv_halo_config *c = k->cfg;
    const bool by_place = c->form.residual || conv_is_custom(&c->form);
    const int width = k->size.cols * c->wide;
    for (int p = 0; p < PLACES; p++) {
        const block_place b = place_of_block(k, block_of(w, p));
        val column = add(mul(b.window, imm(k->size.cols)), column_of(w, p)), x = add(tile->w, column),
            first = mul(b.block, imm(rows_of(c))), h = add(tile->h, first), n = add(tile->n, b.image);
        val index = add(mul(convert(I64, n), k->p.y[0]), mul(convert(I64, h), k->p.y[2]));
        index = add(index, add(mul(convert(I64, x), k->p.y[3]), convert(I64, channel)));
        val pixel = add(mul(add(mul(b.image, imm(c->high)), first), imm(width)), column);
        val inside = lt(column_of(w, p), imm(k->size.cols)),
            there = logical_and(lt(x, conv_number(k->p.y_size[2])), inside);
        there = logical_and(there, lt(n, conv_number(k->p.n)));
        there = logical_and(there, lt(channel, conv_number(k->p.groups)));
        UNROLL(q, rows_of(c)) {
            IF(by_place ? logical_and(there, lt(add(h, imm(q)), conv_number(k->p.y_size[1]))) : inside)
                stage_pixel(k, w, channels, channel, index,
                            tensor_address(k->sY, coord(add(pixel, imm(q * width)), mul(w->group, imm(VECTOR)), 0)), p,
                            q);
            index = add(index, k->p.y[2]);
        }
    }
}

static void store_tile(const halo_kernel *k, const conv_tile_place *tile)
{
    const val outer[] = { tile->h, imm(0), tile->n };
    tma_store_of(&k->tmaY, slice(k->sY, _, _, 0), tile->w, k->channel, 3, outer);
}

static void multiply(const halo_kernel *k, tiles_ahead *ahead)
{
    const conv_halo_config *c = k->cfg;
    const band_role w = describe_role(k);
    val channel = add(k->channel, mul(w.group, imm(VECTOR)));
    const conv_channels channels =
        conv_load_channels(&c->form, &k->p, min(channel, sub(conv_number(k->p.groups), imm(VECTOR))), VECTOR);
    const staged_store staged = { imm(BARRIER_Y), k->size.threads, loads_tiles(k) };
    pipeline_state stage = consumer_state(&k->ring);
    fill_bands(k);
    cta_sync();
    LOOP_FROM(tile, cta_x(), k->grid.count, grid_x()) {
        load_ahead(k, ahead); // to the last tile's stage: all have left it, and met since, to store y
        fill(w.rSum, immf(0));
        pipeline_wait_full(&k->ring, &stage);
        UNROLL(i, (rows_of(c) - 1) * c->step_h + c->rows)
            add_row(k, &w, stage.stage, i);
        IF(vote_any(conv_is_doubtful(w.rSum)))
            for (int p = 0; p < PLACES; p++)
                UNROLL(q, rows_of(c))
                    add_taps(k, &w, stage.stage, p, q);
        pipeline_advance(&stage);
        const conv_tile_place place = conv_tile_at(&k->grid, tile);
        staging_wait(&staged, 0);
        stage_tile(k, &w, &channels, channel, &place);
        STAGED_STORE(&staged)
            store_tile(k, &place);
    }
    IF(loads_tiles(k))
        tma_store_wait(0);
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
    conv_wait(&k.p);
    load_filters(&k);
    clear_bands(&k);
    cta_sync();
    multiply(&k, &ahead);
}
