/* conv_sm90_cost.c - what the Hopper kernel of convolution costs: its products, loads and stores, tile by tile. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_sm90.h"

/* fmin() and fmax() but for NaN: they are calls, and a choice makes thousands. */
static double smaller(double x, double y)
{
    return x < y ? x : y;
}

static double larger(double x, double y)
{
    return x > y ? x : y;
}

/*
 * What a row of a box costs beside one of 128 bytes: TMA takes it by powers of two. 3x3 filters on 56x56: 48 channels
 * in boxes of 96 bytes take 26.4 us, 64 channels 18.5, and 56 cost 2.5 times as much a row, wherever they lie. 248
 * channels take 1.8 times as long as 256; 80 in two halves 37.4 us, padded to 128 32.6 (bench/notes/conv.md). Gradients
 * of data, whose filters are N-major: 96 of 32 images of 56x56 take 50.8 us, 24 to 96 of 8 of 80x80 15.8, 24 to 256 of
 * 7 of 56x56 9.96.
 */
static double row_cost(const conv_sm90_config *c, int64_t bytes)
{
    static const double cost[] = { 1, 1, 1, 1.9, 1, 1.9, 1.9, 2.5, 1 }; // by 16 bytes
    const double ALONE = 0.45; // of what is beyond a whole row: those of the filters are whole
    const double beyond = cost[bytes / 16] - 1;
    return 1 + (conv_sm90_n_major(c) ? ALONE * beyond : beyond);
}

/*
 * Three consumers: 128 channels of 28x28 take 15.5 us, one turn of tiles, and 17.1 in two turns of two consumers'; of
 * tall stages they cost what they should. 256 of 64x64 take 53.5 us by these and 256 filters, 59.3 without; 512 of 7x7
 * 17.9 by one consumer and 128 filters, 14.4 by two and 64.
 */
static double unsure(const conv_sm90_config *c)
{
    const double THREE = 1.4, WIDE = 0.95, ALONE = 1.06;
    if (!c->tall)
        return c->consumers > 2 ? THREE : 1;
    if (c->tile_n > 160)
        return WIDE;
    return c->tile_n > 96 && c->consumers == 1 ? ALONE : 1;
}

/*
 * Boxes of y beyond those of 128 bytes a row: 16 channels under nine taps to 1920 filters took 144 us by 240 filters in
 * boxes of 16, 112 by 256.
 */
static double box_cost(const conv_sm90_config *c, const conv_sm90_shape *s)
{
    const double BOX = 230;
    const double wide = (double)c->tile_n * (double)ckl_dtype_bytes(c->form.out) / 128;
    return BOX * ((double)c->tile_n / s->y_cols - wide);
}

/* What shared memory takes for a stage, 128 bytes a cycle: a write of all, and a read by each consumer for each tap. */
static double shared_cycles(const conv_sm90_config *c, const conv_sm90_shape *s)
{
    const double bytes = (double)c->tile_k * (double)ckl_dtype_bytes(c->form.dtype);
    const double written = s->x_rows + (c->held ? 0 : s->taps * c->tile_n),
                 read = (double)s->taps * c->consumers * (CONV_SM90_ROWS + c->tile_n);
    return (written + read) * bytes / 128;
}

/* Cycles of a row of a box of filters. */
static const double FILTER = 1.4;

/*
 * The same of filters that are N-major, on the average: where these begin inside of sectors the last box of a row,
 * which has less than a span, costs more than the others. 128 to 40 channels of data of 3 images of 96x96 take 20.9 us,
 * by filters copied to whole rows 12.5; 256 to 24 of 7 of 56x56 45.8 and 14.6; 128 to 72 of the former 20.9 and 17.5,
 * but 640 to 3896 of 3 of 3x3 in slices 17.1 and 44.7.
 */
static double filter_row(const conv_sm90_problem *p, int64_t element)
{
    enum { SECTOR = 32 };
    const double LAST = 10, OTHERS = 4;
    if (p->out * element % SECTOR == 0)
        return FILTER;
    return OTHERS + (LAST - OTHERS) / (double)ceil_div(p->out, CONV_SM90_SPAN);
}

/*
 * What does not depend on slices. Each row of a box takes some cycles however short it is, and zeros for absent
 * channels more, but not where filters that are N-major end within their rows: 96 of 128 columns cost nothing. Rates:
 * bench/notes/conv.md.
 */
conv_sm90_work conv_sm90_work_of(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    const double PRODUCTS = 2048, PIXEL = 3.2, ZEROS = 11, EPILOGUE = 10;
    const conv_sm90_shape s = conv_sm90_memory(c);
    const int64_t in = p->in * c->together; // of groups that share a tile, as if they were one
    const int64_t chunks = ceil_div(in, c->tile_k), element = (int64_t)ckl_dtype_bytes(c->form.dtype);
    const double bytes = (double)element, launches = (double)(c->zeros ? p->seen_launches : p->launches),
                 taps = (double)p->taps / launches;
    const int64_t last = (in - (chunks - 1) * c->tile_k) * element; // of a row of the last chunk
    const double full = row_cost(c, c->tile_k * element),
                 a_row = full + (larger(full, row_cost(c, last)) - full) / (double)chunks;
    const int filters = s.taps * c->tile_n;
    const double absent = (double)(chunks * c->tile_k - in) / (double)chunks * bytes * (s.x_rows + filters);
    const bool across = conv_sm90_n_major(c);
    const double of_filters = across ? (double)c->tile_k * filters / CONV_SM90_SPAN : a_row * filters; // rows of boxes
    const double products = (double)s.tile_m * filters * c->tile_k * bytes / 2 / PRODUCTS;
    return (conv_sm90_work){ .launches = launches,
                             .tiles = conv_sm90_tiles(p, c),
                             .stages = taps / s.taps * (double)chunks,
                             .multiply = c->tall ? larger(products, shared_cycles(c, &s)) : products,
                             .rows = a_row * PIXEL * s.x_rows +
                                     (c->held ? 0 : (across ? filter_row(p, element) : FILTER) * of_filters),
                             .bytes = (double)(s.x_bytes + (c->held ? 0 : s.w_bytes)),
                             .absent = absent / ZEROS,
                             .epilogue = EPILOGUE * c->tile_n / 2 + box_cost(c, &s),
                             .shallow = taps * (double)in * bytes <= 2 * CONV_SM90_K,
                             .sums = (double)conv_sm90_sum_images(&p->desc, c) * (double)p->image };
}

/*
 * A stage takes the longest of its products on the tensor cores, of its bytes (72 a cycle from L2 to an SM, 7200 to all
 * SMs), and of its rows. The epilogue takes some cycles for each accumulator of a thread, which nothing overlaps, least
 * of all where K could be one stage (32 to 16 channels of 112x112, one pixel: 26.3 us). A launch of the gradient begins
 * where the last turn of the one before leaves SMs; small ones gained nothing by that (512 channels of 14x14, stride 2:
 * 23.5 us). The sums of slices go to memory, mostly L2, and back.
 */
plan_cost conv_sm90_cost_of(const conv_sm90_work *w, const ckl_device_info *device, const conv_sm90_config *c)
{
    const double BYTES = 72, ALL_BYTES = 7200, STAGE = 40, START = 2000, SINGLE = 900, RING = 600, HERTZ = 1.7e9,
                 SUMS = 2, SUM_BYTES = 3e6; // us; a us
    const double tiles = w->tiles * c->slices, at_once = device->sm_count, active = smaller(tiles, at_once);
    const double load = larger(w->bytes / smaller(BYTES, ALL_BYTES / active), w->rows);
    const double stage = larger(w->multiply, load) * unsure(c) + w->absent + STAGE + (c->stages < 3 ? RING : 0);
    const double tile = ceil(w->stages / c->slices) * stage + w->epilogue + (w->shallow ? SINGLE : 0);
    const double waves = larger(1, ceil(w->launches * tiles / at_once) / w->launches), traffic = tiles / at_once / 64;
    const double sums = c->slices > 1 ? SUMS + 2 * 4 * c->slices * w->sums / SUM_BYTES : 0;
    return (plan_cost){ w->launches * ((waves + traffic) * tile + START) / HERTZ * 1e6 + sums,
                        w->multiply > load ? "tensor cores" : "loads" };
}
