/*
 * conv_bands.c - depthwise convolution of planes by tensor cores: forward, and the gradient of data of stride 1, which
 * is the forward problem of dy with the filters turned round.
 *
 * A CTA copies one channel's planes of some images to shared memory, with zeros round them. 16 columns of 16 rows of
 * x are A of an mma.sync. B has a row of the filter as a band: column n of 8 has it from place n on, so that the
 * product is what the row adds to 8 columns of 16 rows of y. All windows have the same bands, which stay in registers.
 * y goes through shared memory, so that neighbours store whole lines.
 *
 * The zeros beside the filter make NaN of an infinity that y does not see. So where a sum is no finite number it is
 * computed by the definition.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/conv/conv_bands.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_wait.h"

enum { UNITS = 4 }; // of x that a thread copies at once

/* Everything a thread knows. */
typedef struct bands {
    const conv_bands_config *cfg;
    conv_bands_shape size;
    conv_values p;
    val channel, n;         // n: the first image
    conv_channels channels; // one
    tensor sX;              // (COLUMN,ROW)
    tensor sBands;          // (ELEMENT,ROW)
    tensor sY;              // (COLUMN,ROW), the warp's
    tiled_mma mma;
    tensor rBands; // (WORD,ROW): B of each row of the filter
} bands;

static void describe(bands *k)
{
    const conv_bands_config *c = k->cfg;
    const conv_bands_shape *s = &k->size;
    k->sX = smem_tensor("X", c->form.dtype, compact(shape(s->x_pitch, s->x_rows)), 16);
    k->sBands = smem_tensor("bands", c->form.dtype, compact(shape(BANDS_BAND, c->rows)), 16);
    tensor sY = smem_tensor("Y", c->form.out, compact(shape(s->y_pitch, BANDS_ROWS, c->warps)), 16);
    k->sY = slice(sY, _, _, warp());
    k->mma = make_tiled_mma(mma_sync_atom(c->form.dtype), 1, 1);
    k->rBands = fragment(U32, compact(shape(2, c->rows)));
}

/* n / size of numbers so small that a product has it: ptxas has a dozen instructions for a division by a constant. */
static val quotient(val n, int size)
{
    return is_power_of_two(size) ? div(n, imm(size)) : mul_hi(n, imm_as(U32, ceil_div((int64_t)1 << 32, size)));
}

/* The first element of the channel's plane in the first image. */
static val plane_of(const bands *k, const val stride[CONV_RANK])
{
    return add(mul(convert(I64, k->n), stride[0]), mul(convert(I64, k->channel), stride[4]));
}

/* Where a unit of x is: in the plane of an image, and in shared memory; is there one? */
typedef struct unit_place {
    val image, offset, column, row, inside;
} unit_place;

static unit_place unit_at(const bands *k, val number)
{
    const conv_bands_config *c = k->cfg;
    const int units = c->x_wide / c->unit;
    const val image = quotient(number, units * c->x_high), e = sub(number, mul(image, imm(units * c->x_high))),
              row = quotient(e, units), at = mul(sub(e, mul(row, imm(units))), imm(c->unit));
    return (unit_place){ .image = image,
                         .offset = mul(e, imm(c->unit)),
                         .column = add(at, add(conv_number(k->p.pad[2]), imm(c->lead + c->shift))),
                         .row = add(add(row, conv_number(k->p.pad[1])), mul(image, imm(k->size.box_h))),
                         .inside = lt(image, imm(c->images)) };
}

static val x_address(const bands *k, const unit_place *u, val plane)
{
    const val index = add(plane, convert(I64, u->offset));
    return gmem_address(k->p.from[CONV_X], k->cfg->form.dtype,
                        k->cfg->images > 1 ? add(index, mul(convert(I64, u->image), k->p.x[0])) : index);
}

/* Units `first` and those of the next turns of threads: single elements, which are all under way at once. */
static void copy_units(const bands *k, val plane, val first)
{
    const conv_bands_config *c = k->cfg;
    const int bytes = 2 * c->unit;
    unit_place u[UNITS];
    packed rX[UNITS];
    for (int i = 0; i < UNITS; i++) {
        const val number = add(first, imm(i * k->size.threads));
        u[i] = unit_at(k, number);
        if (c->images > 1)
            u[i].inside = logical_and(u[i].inside, lt(add(k->n, u[i].image), conv_number(k->p.n)));
        const val from = x_address(k, &u[i], plane);
        if (c->unit == 1)
            rX[i] = load_packed_if(u[i].inside, gmem_tensor(from, c->form.dtype, compact(leaf(1))), bytes);
        else IF(u[i].inside)
            cp_async(tensor_address(k->sX, coord(u[i].column, u[i].row)), from, bytes, imm_as(U32, bytes));
    }
    for (int i = 0; i < UNITS && c->unit == 1; i++)
        IF(u[i].inside) {
            const val to = tensor_address(k->sX, coord(u[i].column, u[i].row));
            copy(rX[i].rWords, smem_view(to, rX[i].rWords.dtype, rX[i].rWords.layout), bytes);
        }
}

/* Zeros, and what there is of x. */
static void copy_x(const bands *k)
{
    const conv_bands_config *c = k->cfg;
    tensor rZeros = fragment(U32, compact(leaf(4)));
    fill(rZeros, imm_as(U32, 0));
    LOOP_FROM(i, thread(), imm(k->size.x_rows * k->size.x_pitch / BANDS_BLOCK), imm(k->size.threads))
        copy(rZeros, smem_view(add(k->sX.address, mul(i, imm(16))), U32, compact(leaf(4))), 16);
    cta_sync();
    conv_wait(&k->p);
    const val plane = plane_of(k, k->p.x);
    LOOP_FROM(i, thread(), imm(c->images * c->x_high * c->x_wide / c->unit), imm(UNITS * k->size.threads))
        copy_units(k, plane, i);
    cp_async_commit();
}

/* Element e of a band has tap e - before of its row, or zero. */
static int before_band(const conv_bands_config *c)
{
    return BANDS_BLOCK - 1 + c->shift;
}

static void fill_bands(const bands *k)
{
    const conv_bands_config *c = k->cfg;
    LOOP_FROM(i, thread(), imm(BANDS_BAND * c->rows), imm(k->size.threads)) {
        const val row = quotient(i, BANDS_BAND), e = sub(i, mul(row, imm(BANDS_BAND))),
                  tap = sub(e, imm(before_band(c))), there = lt(tap, imm(c->columns));
        val index = add(mul(convert(I64, k->channel), k->p.w[0]), mul(convert(I64, row), k->p.w[2]));
        index = add(index, mul(convert(I64, select(there, tap, imm_as(U32, 0))), k->p.w[3]));
        const val w = at(conv_run_at(k->p.from[CONV_W], c->form.dtype, index, 1), 0);
        set(k->sBands, coord(e, row), select(there, w, convert(c->form.dtype, immf(0))));
    }
}

/* Column `n` of B, places 2 * pair and the next of its window, and those 8 further on. */
static void take_bands(bands *k)
{
    const val n = thread_at(lane(), 1, 4, 8), pair = thread_at(lane(), 0, 4, 8),
              first = add(sub(mul(pair, imm(2)), n), imm(BANDS_BLOCK - 1));
    UNROLL(r, k->cfg->rows)
        for (int half = 0; half < 2; half++) {
            const val e = add(first, imm(half * BANDS_WINDOW / 2));
            set(k->rBands, coord(half, r), pack(U32, at(k->sBands, e, r), at(k->sBands, add(e, imm(1)), r)));
        }
}

/* The image of row `row` and its row in there. */
static val image_of(const bands *k, val row, val *h)
{
    if (k->cfg->images == 1)
        return *h = row, imm_as(U32, 0);
    const val image = quotient(row, k->cfg->high);
    *h = sub(row, mul(image, imm(k->cfg->high)));
    return image;
}

/* The row of shared memory that row 0 of the filter sees from row `row`, or from the last one. */
static val x_row_under(const bands *k, val row)
{
    val h, image = image_of(k, min(row, imm(k->cfg->images * k->cfg->high - 1)), &h);
    return add(mul(image, imm(k->size.box_h)), h);
}

/* The windows of a row: all groups of 8 columns of 16 rows of x, of two matrices each. */
static void load_windows(const bands *k, val address, int row, tensor rX)
{
    const int groups = k->size.blocks + 1, pitch = 2 * k->size.x_pitch;
    for (int g = 0; g < groups; g += 2)
        ldmatrix(add(address, imm(row * pitch + g * 2 * BANDS_BLOCK)), g + 1 < groups ? 4 : 2, rX.regs + 2 * g);
}

/* Adds all rows of the filter to 16 rows of y, the first number `row` of the images'. */
static void multiply(const bands *k, val row, tensor rSum)
{
    const int groups = k->size.blocks + 1;
    const val of_lane = x_row_under(k, add(row, rem(lane(), imm(BANDS_ROWS)))),
              column = mul(div(lane(), imm(BANDS_ROWS)), imm(BANDS_BLOCK)),
              address = tensor_address(k->sX, coord(column, of_lane));
    fill(rSum, immf(0));
    UNROLL(r, k->cfg->rows) {
        tensor rX = fragment(U32, compact(shape(2 * groups))), rB = fragment(U32, compact(shape(2, 1, 1))),
               rA = fragment(U32, compact(shape(4, 1, 1)));
        load_windows(k, address, r, rX);
        for (int i = 0; i < 2; i++)
            set(rB, coord(i, 0, 0), at(k->rBands, i, r));
        for (int b = 0; b < k->size.blocks; b++) {
            for (int i = 0; i < 4; i++)
                set(rA, coord(i, 0, 0), at(rX, 2 * b + i));
            gemm(&k->mma, rA, rB, local_tile(rSum, shape(4, 1, 1), coord(0, 0, b)), yes());
        }
    }
}

/* Where sums of a lane lie: two neighbours of half a matrix, from its first column on. */
typedef struct pair_place {
    val row, column; // of the warp's 16 rows; less than 0 before y
} pair_place;

static pair_place pair_at(const bands *k, int block, int half)
{
    const val row = thread_at(lane(), 1, 4, 8), pair = thread_at(lane(), 0, 4, 8);
    return (pair_place){ .row = add(row, imm(half * BANDS_ROWS / 2)),
                         .column = add(conv_signed(mul(pair, imm(2))), imm(block * BANDS_BLOCK - k->cfg->lead)) };
}

/* Two sums by the definition; x_row: what row 0 of the filter sees. */
static void add_taps(const bands *k, const pair_place *at, val x_row, tensor rPair)
{
    const conv_bands_config *c = k->cfg;
    const val column = conv_number(add(at->column, imm(c->lead + c->shift)));
    fill(rPair, immf(0));
    LOOP(r, conv_number(k->p.filter[1])) // so that ptxas leaves the loops
        LOOP(s, conv_number(k->p.filter[2])) {
            const val w = at_f32(k->sBands, add(s, imm(before_band(c))), r);
            for (int i = 0; i < 2; i++) {
                const val x = at_f32(k->sX, add(column, add(s, imm(i))), add(x_row, r));
                set(rPair, i, fma(x, w, at(rPair, i)));
            }
        }
}

/* An element of y: row `row` of the images, column `column` of it; is there one? */
typedef struct element_place {
    val index, there;
} element_place;

static element_place element_at(const bands *k, val plane, val row, val column)
{
    const conv_bands_config *c = k->cfg;
    val in_image, image = image_of(k, row, &in_image);
    element_place e = { .index = add(plane, convert(I64, add(mul(in_image, imm(c->wide)), column))) };
    e.there = logical_and(lt(row, imm(c->images * c->high)), lt(column, imm(c->wide)));
    if (c->images > 1) {
        e.there = logical_and(e.there, lt(add(k->n, image), conv_number(k->p.n)));
        e.index = add(e.index, mul(convert(I64, image), k->p.y[0]));
    }
    return e;
}

/* Finishes two sums, and puts them where neighbours find whole runs: beside the columns before y's. */
static void stage_pair(const bands *k, val plane, val first, const pair_place *at, tensor rPair)
{
    const conv_form *form = &k->cfg->form;
    const int count = k->cfg->run > 1 ? 2 : 1, bytes = (int)ckl_dtype_bytes(form->out);
    const bool by_place = form->residual || conv_is_custom(form);
    const val column = conv_number(add(at->column, imm(bands_edge(k->cfg))));
    for (int i = 0; i < 2; i += count) {
        const element_place e = by_place
                                    ? element_at(k, plane, add(first, at->row), conv_number(add(at->column, imm(i))))
                                    : (element_place){ imm64(0), yes() };
        IF(e.there) {
            const tensor rY = conv_finish_run(form, &k->p, &k->channels, e.index, k->channel,
                                              local_tile(rPair, shape(count), coord(i / count)));
            const val to = tensor_address(k->sY, coord(add(column, imm(i)), at->row));
            copy(rY, smem_view(to, form->out, compact(leaf(count))), count * bytes);
        }
    }
}

static void stage_rows(const bands *k, val plane, val first, tensor rSum)
{
    IF(vote_any(conv_is_doubtful(rSum)))
        UNROLL(b, k->size.blocks)
            for (int half = 0; half < 2; half++) {
                const pair_place at = pair_at(k, b, half);
                add_taps(k, &at, x_row_under(k, add(first, at.row)),
                         local_tile(slice(rSum, _, 0, b), shape(2), coord(half)));
            }
    UNROLL(b, k->size.blocks)
        for (int half = 0; half < 2; half++) {
            const pair_place at = pair_at(k, b, half);
            stage_pair(k, plane, first, &at, local_tile(slice(rSum, _, 0, b), shape(2), coord(half)));
        }
}

static void store_rows(const bands *k, val plane, val first)
{
    const conv_bands_config *c = k->cfg;
    const int units = c->wide / c->run, bytes = c->run * (int)ckl_dtype_bytes(c->form.out);
    LOOP_FROM(i, lane(), imm(BANDS_ROWS * units), imm(32)) {
        const val row = quotient(i, units), column = mul(sub(i, mul(row, imm(units))), imm(c->run));
        const element_place e = element_at(k, plane, add(first, row), column);
        const val from = tensor_address(k->sY, coord(add(column, imm(bands_edge(c))), row));
        IF(e.there)
            copy(smem_view(from, c->form.out, compact(leaf(c->run))),
                 conv_run_at(k->p.from[CONV_Y], c->form.out, e.index, c->run), bytes);
    }
}

void conv_bands(const void *config, int kernel)
{
    const conv_bands_config *c = config;
    bands k = { .cfg = c, .size = conv_bands_shape_of(c) };
    (void)kernel;
    launch_bounds(k.size.threads, c->ctas);
    k.p = params_of(conv);
    k.channel = cta_x();
    k.n = mul(cta_y(), imm(c->images));
    describe(&k);
    copy_x(&k);
    fill_bands(&k);
    k.channels = conv_load_channels(&c->form, &k.p, k.channel, 1);
    cp_async_wait(0);
    cta_sync();
    take_bands(&k);
    const val plane = plane_of(&k, k.p.y);
    LOOP_FROM(row, mul(warp(), imm(BANDS_ROWS)), imm(c->images * c->high), imm(c->warps * BANDS_ROWS)) {
        tensor rSum = fragment(F32, compact(shape(4, 1, k.size.blocks)));
        multiply(&k, row, rSum);
        warp_sync(); // the rows before have been read
        stage_rows(&k, plane, row, rSum);
        warp_sync();
        store_rows(&k, plane, row);
    }
}
