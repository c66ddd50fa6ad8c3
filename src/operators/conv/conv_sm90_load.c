/* conv_sm90_load.c - the Hopper kernel of convolution: places of tiles, and loads of pixels and filters by TMA. */
#include "cute/kernel.h"
#include "operators/conv/conv_sm90_kernel.h"

val conv_sm90_taps_along(const conv_sm90_kernel *k, int m)
{
    return m == 1 && k->cfg->tall ? imm(1) : conv_number(k->p.filter[m]);
}

/*
 * Finds a tile's slice, the slowest mode, and its K tiles, about as many as all have; returns the rest of the number.
 */
static val find_slice(const conv_sm90_kernel *k, conv_sm90_place *place, val number)
{
    const val slices = imm(k->cfg->slices);
    place->slice = div(number, k->images);
    place->first = div(mul(k->k_tiles, place->slice), slices);
    place->k_tiles = sub(div(mul(k->k_tiles, add(place->slice, imm(1))), slices), place->first);
    return rem(number, k->images);
}

conv_sm90_place conv_sm90_place_of(const conv_sm90_kernel *k, val tile)
{
    const int box[CONV_MODES] = { 1, k->cfg->box_h, k->cfg->box_w };
    conv_sm90_place place = { .filter = mul(rem(tile, k->filters), imm(k->cfg->tile_n)) };
    val rest = div(tile, k->filters);
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        place.at[m] = mul(rem(rest, k->tiles[m]), imm(box[m]));
        rest = div(rest, k->tiles[m]);
    }
    place.k_tiles = k->k_tiles;
    if (k->cfg->slices > 1)
        rest = find_slice(k, &place, rest);
    place.image = mul(rest, imm(k->cfg->box_n));
    return place;
}

/* The first pixel of x under a tap, along a mode. */
static val under(const conv_sm90_kernel *k, const conv_sm90_place *place, val tap, int m)
{
    const bool data = k->cfg->form.direction == CKL_CONV_DATA; // then pixels are a launch's, side by side
    val first = data ? place->at[m] : mul(place->at[m], conv_number(k->p.step[m]));
    return sub(add(first, mul(tap, conv_number(k->p.dilation[m]))), conv_number(k->p.pad[m]));
}

/* The filters of a tap, into one of the stages' places for them. */
static void load_filters(const conv_sm90_kernel *k, val to, const conv_sm90_place *place, val tap, val channel,
                         val full)
{
    const val outer[] = { tap, place->at[0] };
    const int count = k->tmaW.rank - 2;
    if (!conv_sm90_n_major(k->cfg)) {
        tma_load_of(&k->tmaW, slice(k->sSpans, _, _, to), place->filter, channel, count, outer, full, imm(0));
        return;
    }
    UNROLL(i, k->cfg->tile_n / CONV_SM90_SPAN)
        tma_load_of(&k->tmaW, slice(k->sSpans, _, _, imm(i), to), channel, add(place->filter, imm(i * CONV_SM90_SPAN)),
                    count, outer, full, imm(0));
}

/* Pixel `number` of y in all: its row, column and image. */
static conv_sm90_place place_of_pixel(const conv_sm90_kernel *k, val number)
{
    val row = div(number, k->p.places[2]), image = div(row, k->p.places[1]);
    return (conv_sm90_place){
        .at = { imm(0), sub(row, mul(image, k->p.places[1])), sub(number, mul(row, k->p.places[2])) }, .image = image
    };
}

/* Loads the pixels below a tap in the order of memory; at: the tap. */
static void load_pixels(const conv_sm90_kernel *k, tensor sX, const conv_sm90_place *place, const val *at, val channel,
                        val full)
{
    const conv_sm90_place first = place_of_pixel(k, place->at[2]);
    val from[CONV_MODES], offset[CONV_MODES];
    for (int m = 1; m < CONV_MODES; m++) {
        val seen = under(k, &first, at[m], m), base = first.at[m];
        if (k->cfg->form.direction != CKL_CONV_DATA)
            base = mul(base, conv_number(k->p.step[m]));
        from[m] = add(base, k->p.corner[m]);
        offset[m] = sub(seen, from[m]);
    }
    tma_load_im2col(&k->tmaX, sX, channel, (const val[]){ from[2], from[1], first.image },
                    (const val[]){ offset[2], offset[1] }, full, imm(0));
}

val conv_sm90_slot_of_tap(const conv_sm90_kernel *k, val stage, int r)
{
    return k->size.taps == 1 ? stage : add(mul(stage, imm(k->size.taps)), imm(r));
}

int conv_sm90_row_of_tap(const conv_sm90_kernel *k, int r)
{
    return k->cfg->form.direction == CKL_CONV_DATA ? CONV_SM90_TALL - 1 - r : r;
}

/* Fills one stage: some channels of the pixels below a tap, and of the filters. */
static void load_stage(const conv_sm90_kernel *k, const pipeline_state *at, const conv_sm90_place *place,
                       const val *tap_at, val tap, val chunk)
{
    val full = pipeline_full_barrier(&k->ring, at), pixel[CONV_MODES];
    tensor sX = slice(k->sBoxes, _, _, at->stage);
    for (int m = 0; m < CONV_MODES; m++)
        pixel[m] = under(k, place, m == 1 && k->cfg->tall ? imm(conv_sm90_row_of_tap(k, 0)) : tap_at[m], m);
    val outer[] = { pixel[1], pixel[0], place->image }, channel = mul(chunk, imm(k->cfg->tile_k));
    val bytes = imm((int)(k->size.x_bytes + k->size.w_bytes)), slots = at->stage;
    if (k->cfg->held) {
        bytes = select(place->fresh, conv_number(bytes), imm((int)k->size.x_bytes));
        const val column = add(mul(conv_number(tap_at[0]), conv_number(k->p.filter[2])), conv_number(tap_at[2]));
        slots = add(mul(column, k->chunks), conv_number(chunk));
    }
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, bytes);
    if (k->cfg->im2col)
        load_pixels(k, sX, place, tap_at, channel, full);
    else
        tma_load_of(&k->tmaX, sX, pixel[2], channel, 3, outer, full, imm(0));
    if (k->cfg->held)
        begin_if(place->fresh);
    UNROLL(r, k->size.taps)
        load_filters(k, conv_sm90_slot_of_tap(k, slots, r), place, add(tap, mul(imm(r), k->p.tap_step[1])), channel,
                     full);
    if (k->cfg->held)
        end_if();
}

/* Loads chunk `chunk` of the channels of the pixels and filters of a tap. */
static void load_chunk(const conv_sm90_kernel *k, pipeline_state *stage, const conv_sm90_place *place,
                       const val at[CONV_MODES], val chunk)
{
    val tap = k->p.tap;
    for (int m = 0; m < CONV_MODES; m++)
        tap = add(tap, mul(at[m], k->p.tap_step[m]));
    load_stage(k, stage, place, at, tap, chunk);
    pipeline_advance(stage);
}

static void load_all(const conv_sm90_kernel *k, pipeline_state *stage, const conv_sm90_place *place)
{
    LOOP(t, conv_number(k->p.filter[0]))
        LOOP(r, conv_sm90_taps_along(k, 1))
            LOOP(s, conv_number(k->p.filter[2]))
                LOOP(chunk, k->chunks)
                    load_chunk(k, stage, place, (const val[]){ t, r, s }, chunk);
}

static void load_slice(const conv_sm90_kernel *k, pipeline_state *stage, const conv_sm90_place *place)
{
    LOOP(i, place->k_tiles) {
        val all = add(place->first, i), rest = div(all, k->chunks), at[CONV_MODES];
        for (int m = CONV_MODES - 1; m >= 0; m--) {
            at[m] = rem(rest, conv_sm90_taps_along(k, m));
            rest = div(rest, conv_sm90_taps_along(k, m));
        }
        load_chunk(k, stage, place, at, rem(all, k->chunks));
    }
}

void conv_sm90_load_tiles(const void *of)
{
    const conv_sm90_kernel *k = of;
    const bool sliced = k->cfg->slices > 1;
    pipeline_state stage = producer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        conv_sm90_place place = conv_sm90_place_of(k, tile);
        if (k->cfg->held)
            place.fresh = eq(tile, cta_x());
        (sliced ? load_slice : load_all)(k, &stage, &place);
    }
}
