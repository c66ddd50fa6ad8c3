/*
 * conv_weight_patches.c - gradients of weights where filters or channels are few: one operand is written out for all
 * taps, as patches in a workspace, and the gradient is that of filters of one pixel, which reads the other operand
 * once.
 *
 *   of x     a row for each pixel of y, [TAPS,C]: dw [K,TAPS * C]
 *   of dy    a row for each pixel of x, [K,TAPS], of what reaches it by each tap: dw [K * TAPS,C]. Strides are 1
 *
 * A thread writes 16 bytes of neighbouring columns for some pixels of a row of the image.
 */
#include <math.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_packed.h"
#include "operators/conv/conv_wait.h"

enum { VECTOR = 8, PIXELS = 4 };

/* A column of the matrix: a channel or filter under a tap. */
typedef struct patch_column {
    val channel, row, column;
} patch_column;

/* What a thread reads for one of its columns: the offset of its image's row, and the column of its first pixel. */
typedef struct patch_source {
    val there, offset, column;
} patch_source;

static patch_column column_at(const conv_values *p, bool of_dy, val at)
{
    patch_column c;
    if (!of_dy)
        c.channel = conv_next_digit(&at, p->packed_channels);
    c.column = conv_next_digit(&at, conv_number(p->filter[2]));
    c.row = of_dy ? conv_next_digit(&at, conv_number(p->filter[1])) : at;
    c.channel = of_dy ? at : c.channel;
    return c;
}

/* Counts a digit on where *carry, which becomes whether it wraps. */
static void count_on(val *digit, val size, val *carry)
{
    val next = add(*digit, select(*carry, imm_as(U32, 1), imm_as(U32, 0)));
    *carry = eq(next, size);
    *digit = select(*carry, imm_as(U32, 0), next);
}

static void next_column(const conv_values *p, bool of_dy, patch_column *c)
{
    val carry = yes(), one = imm_as(U32, 1), none = imm_as(U32, 0);
    if (!of_dy)
        count_on(&c->channel, p->packed_channels, &carry);
    count_on(&c->column, conv_number(p->filter[2]), &carry);
    if (!of_dy) {
        c->row = add(c->row, select(carry, one, none));
        return;
    }
    count_on(&c->row, conv_number(p->filter[1]), &carry);
    c->channel = add(c->channel, select(carry, one, none));
}

/*
 * The place of the operand along a mode that a tap joins with pixel p: p * stride + t * dilation - pad in x, in dy
 * p - t * dilation + pad.
 */
static val joined(const conv_values *p, bool of_dy, int mode, val pixel, val tap)
{
    val far = sub(mul(conv_signed(tap), conv_signed(p->dilation[mode])), conv_signed(p->pad[mode]));
    return of_dy ? sub(conv_signed(pixel), far) : add(mul(conv_signed(pixel), conv_signed(p->step[mode])), far);
}

static patch_source source_of(const conv_values *p, bool of_dy, val h, val w, const patch_column *c)
{
    val row = joined(p, of_dy, 1, h, c->row), there = lt(convert(U32, row), conv_number(p->x_size[1]));
    there = logical_and(there, lt(c->channel, conv_number(p->c)));
    there = logical_and(there, lt(c->row, conv_number(p->filter[1])));
    val offset = add(mul(row, conv_signed(p->x[2])), mul(conv_signed(c->channel), conv_signed(p->x[4])));
    return (patch_source){ there, offset, joined(p, of_dy, 2, w, c->column) };
}

/* The operand is `x` of the parameters, of c channels; the matrix is `y`, of rows for the pixels of y_size. */
void conv_write_patches(ckl_dtype dtype, bool of_dy)
{
    launch_bounds(CONV_PACK_THREADS, 0);
    conv_values p = params_of(conv);
    val rest = add(mul(cta_x(), imm(CONV_PACK_THREADS)), thread()), vectors = div(p.packed_row, imm(VECTOR));
    val width = conv_number(p.y_size[2]), first = mul(conv_next_digit(&rest, vectors), imm(VECTOR));
    val w = mul(conv_next_digit(&rest, div(add(width, imm(PIXELS - 1)), imm(PIXELS))), imm(PIXELS));
    val h = conv_next_digit(&rest, conv_number(p.y_size[1])), n = min(rest, sub(conv_number(p.n), imm(1)));
    val image = add(p.from[CONV_X], convert(U64, mul(mul(convert(I64, n), p.x[0]), imm64(2))));
    tensor gX = conv_elements_from(image, dtype);
    patch_column column = column_at(&p, of_dy, first);
    patch_source from[VECTOR];
    for (int e = 0; e < VECTOR; e++) {
        from[e] = source_of(&p, of_dy, h, w, &column);
        next_column(&p, of_dy, &column);
    }
    conv_wait(&p);
    tensor rX = fragment(dtype, compact(shape(VECTOR, PIXELS)));
    UNROLL(i, PIXELS)
        for (int e = 0; e < VECTOR; e++) {
            val at = add(from[e].column, of_dy ? imm(i) : mul(imm(i), conv_signed(p.step[2])));
            val x = variable(dtype, conv_zero(dtype));
            IF(logical_and(from[e].there, lt(convert(U32, at), conv_number(p.x_size[2]))))
                assign(x, at(gX, add(from[e].offset, mul(at, conv_signed(p.x[3])))));
            set(rX, coord(e, i), x);
        }
    val row = add(mul(convert(I64, add(mul(n, conv_number(p.y_size[1])), h)), convert(I64, width)), convert(I64, w));
    val to = add(mul(row, convert(I64, p.packed_row)), convert(I64, first));
    tensor gY = gmem_tensor(add(p.from[CONV_Y], convert(U64, mul(to, imm64(2)))), dtype,
                            make_layout(shape(VECTOR, PIXELS), stride(1, dynamic(convert(I64, p.packed_row)))));
    UNROLL(i, PIXELS)
        IF(logical_and(lt(rest, conv_number(p.n)), lt(add(w, imm(i)), width)))
            copy(slice(rX, _, i), slice(gY, _, i), 2 * VECTOR);
}

/* The host side */

/* The operand that is written out. */
static int operand_of(conv_packed_way way)
{
    return way == CONV_PATCHES_X ? CONV_X : CONV_Y;
}

static int64_t taps_of(const ckl_conv_desc *d)
{
    return d->r * d->s;
}

/* Channels of a tap in patches of x: whole quads, as sums are added. */
static int64_t channels_of(const ckl_conv_desc *d)
{
    enum { QUAD = 4 };
    return round_up(d->c, QUAD);
}

/* Columns that count. */
static int64_t columns_of(const ckl_conv_desc *d, conv_packed_way way)
{
    return taps_of(d) * (way == CONV_PATCHES_X ? channels_of(d) : d->k);
}

bool conv_can_patch(const ckl_conv_desc *d, conv_packed_way way)
{
    enum { TAPS_MAX = 256, CHANNELS_MAX = 256, SIDE_MAX = INT32_MAX / 4 };
    const bool of_x = way == CONV_PATCHES_X;
    return d->direction == CKL_CONV_WEIGHT && d->groups == 1 && d->n > 0 && d->c > 0 && d->k > 0 && d->h <= SIDE_MAX &&
           d->w <= SIDE_MAX && !conv_is_volume(d) && !conv_is_view(d) && product_i64(d->r, d->s) <= TAPS_MAX &&
           (of_x ? d->c : d->k) <= CHANNELS_MAX && (of_x || (d->stride_h == 1 && d->stride_w == 1 && !d->bias));
}

/* All pixels as one row of rows of `channels` elements, of which `shown` count. */
static void place_in_row(conv_tensor *t, int64_t pixels, int64_t channels, int64_t shown)
{
    const int64_t all = product_i64(pixels, channels);
    *t = (conv_tensor){ .shape = { 1, 1, 1, pixels, shown }, .stride = { all, all, all, channels, 1 } };
}

conv_packed_problem conv_patched(const ckl_conv_desc *d, conv_packed_way way, conv_packed_problem p)
{
    const double LAUNCH = 1.5, BYTES = 2e6, COPIED = d->layout == CKL_IMAGE_NCHW ? 2e6 : 1.25e6; // us; written in one
    const int operand = operand_of(way), other = CONV_X + CONV_Y - operand;
    const int64_t pixels = conv_pixel_count(d, other), columns = columns_of(d, way);
    const int64_t row = round_up(columns, CONV_SM90_SPAN), of_image = pixels / max_i64(1, d->n) * row;
    ckl_conv_desc inner = *d;
    inner.layout = CKL_IMAGE_NHWC;
    inner.n = inner.h = inner.r = inner.s = 1;
    inner.w = pixels;
    inner.stride_h = inner.stride_w = inner.dilation_h = inner.dilation_w = 1;
    inner.pad_top = inner.pad_bottom = inner.pad_left = inner.pad_right = 0;
    inner.c = operand == CONV_X ? columns : d->c;
    inner.k = operand == CONV_X ? d->k : columns;
    place_in_row(&p.at[other], pixels, p.channels[other], p.at[other].shape[4]);
    place_in_row(&p.at[operand], pixels, row, row);
    p.copied[operand] = true;
    p.row[operand] = row;
    p.channels[operand] = operand == CONV_X ? channels_of(d) : row;
    p.bytes[operand] = min_i64(product_i64(product_i64(pixels, row), 2), INT64_MAX / 64);
    p.image[operand] = fmax(p.image[operand], (double)of_image);
    p.inner = conv_sm90_problem_of(&inner);
    *(operand == CONV_X ? &p.inner.in : &p.inner.out) = row; // whose zeros exist
    p.copies_us = LAUNCH + (double)p.bytes[operand] / BYTES;
    p.copies_us += p.copied[other] ? LAUNCH + (double)p.bytes[other] / COPIED : 0;
    return p;
}

ckl_status conv_patches_launch(const ckl_plan *plan, conv_packed_way way, const conv_packed_problem *p,
                               const void **operand, char **workspace, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const int which = operand_of(way), other = CONV_X + CONV_Y - which;
    const conv_tensor from = conv_tensor_of(d, which), rows = conv_tensor_of(d, other);
    conv_params params = conv_params_of(plan, d, &(ckl_conv_args){ .x = NULL });
    params.from[CONV_X] = *operand;
    params.from[CONV_Y] = *workspace;
    conv_read_early(&params, 0, *operand, conv_span_bytes(&from, d->dtype));
    params.c = from.shape[4];
    params.packed_row = (uint32_t)p->row[which];
    params.packed_channels = (uint32_t)p->channels[which];
    for (int i = 0; i < CONV_RANK; i++)
        params.x[i] = from.stride[i];
    for (int i = 0; i < CONV_MODES; i++) {
        params.x_size[i] = from.shape[1 + i];
        params.y_size[i] = rows.shape[1 + i];
    }
    *operand = *workspace;
    *workspace += round_up(p->bytes[which], 256);
    const int64_t vectors =
        params.n * params.y_size[1] * ceil_div(params.y_size[2], PIXELS) * (params.packed_row / VECTOR);
    return plan_launch(plan, CONV_PACKED_PATCHES, (plan_grid){ .x = ceil_div(vectors, CONV_PACK_THREADS) }, &params,
                       stream);
}
