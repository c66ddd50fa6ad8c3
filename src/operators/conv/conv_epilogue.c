/* conv_epilogue.c - what happens to one sum on its way to the output, and where it lies; the same in all kernels. */
#include "operators/conv/conv_epilogue.h"

#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogues.h"
#include "skeletons/activation.h"

tensor conv_elements_from(val address, ckl_dtype dtype)
{
    return gmem_tensor(address, dtype, make_layout(dynamic(imm64(INT64_MAX)), leaf(1)));
}

val conv_zero(ckl_dtype dtype)
{
    return dtype == CKL_I8 ? imm_as(IR_U16, 0) : convert(dtype, immf(0));
}

val conv_number(val x)
{
    return convert(U32, x);
}

val conv_tiles_along(val length, int size)
{
    return div(add(conv_number(length), imm(size - 1)), imm(size));
}

conv_tile_grid conv_tile_grid_of(const conv_values *p, int wide, int high, int images)
{
    conv_tile_grid g = { .wide = wide, .high = high, .images = images };
    g.columns = conv_tiles_along(p->y_size[2], wide);
    g.rows = conv_tiles_along(p->y_size[1], high);
    g.count = mul(mul(g.columns, g.rows), images > 1 ? conv_tiles_along(p->n, images) : conv_number(p->n));
    return g;
}

conv_tile_place conv_tile_at(const conv_tile_grid *g, val tile)
{
    val row = div(tile, g->columns), n = div(row, g->rows);
    return (conv_tile_place){ .w = mul(sub(tile, mul(row, g->columns)), imm(g->wide)),
                              .h = mul(sub(row, mul(n, g->rows)), imm(g->high)),
                              .n = mul(n, imm(g->images)) };
}

val conv_signed(val x)
{
    return convert(I32, x);
}

val conv_next_digit(val *rest, val size)
{
    val quotient = div(*rest, size), digit = sub(*rest, mul(quotient, size));
    *rest = quotient;
    return digit;
}

bool conv_is_custom(const conv_form *form)
{
    return gemm_epilogue_find(form->epilogue) != NULL;
}

/* x as a custom epilogue changes it. */
static val customised(const conv_form *form, const conv_element *in, val x)
{
    const ckl_gemm_epilogue *custom = gemm_epilogue_find(form->epilogue);
    return custom ? coerce(F32, custom->apply(x, convert(I32, in->pixel), convert(I32, in->channel), custom->user)) : x;
}

val conv_finish(const conv_form *form, conv_element in)
{
    if (form->out == I32)
        return in.sum;
    val x = convert(F32, in.sum);
    x = form->scale ? mul(x, in.scale) : x;
    x = form->bias ? add(x, convert(F32, in.bias)) : x;
    x = form->residual ? add(x, in.residual) : x;
    return customised(form, &in, activation_of(form->activation, form->out, x));
}

val conv_pixel_at(const conv_values *p, val image, const val at[CONV_MODES])
{
    val number = convert(I32, image);
    for (int m = 0; m < CONV_MODES; m++)
        number = add(mul(number, convert(I32, p->y_size[m])), convert(I32, at[m]));
    return number;
}

/*
 * The number of the pixel of element `index` of y, which has this channel; both i64. Strides of y fall from mode to
 * mode, except the channel's.
 */
static val pixel_of(const conv_values *p, val index, val channel)
{
    val rest = sub(index, mul(channel, p->y[4])), image = div(rest, p->y[0]), at[CONV_MODES];
    rest = rem(rest, p->y[0]);
    for (int m = 0; m < CONV_MODES; m++) {
        at[m] = div(rest, p->y[1 + m]);
        rest = rem(rest, p->y[1 + m]);
    }
    return conv_pixel_at(p, image, at);
}

void conv_store(const conv_form *form, const conv_values *p, val to, val index, val channel, val sum)
{
    conv_element in = { .sum = sum, .channel = channel };
    if (form->scale)
        in.scale = at_f32(conv_elements_from(p->scale, F32), channel);
    if (form->bias)
        in.bias = at_f32(conv_elements_from(p->bias, form->out), channel);
    if (form->residual)
        in.residual = at_f32(conv_elements_from(p->residual, form->out), index);
    if (conv_is_custom(form))
        in.pixel = pixel_of(p, index, convert(I64, channel));
    set(conv_elements_from(to, form->out), index, conv_finish(form, in));
}

tensor conv_run_at(val address, ckl_dtype dtype, val index, int count)
{
    return gmem_tensor(gmem_address(address, dtype, index), dtype, compact(leaf(count)));
}

int conv_tap_of(int j, int q, int taps, int step, int dilation)
{
    const int reach = j - q * step, tap = reach / dilation;
    return reach < 0 || reach % dilation || tap >= taps ? -1 : tap;
}

packed conv_or_zeros(packed x, val inside)
{
    val zero = x.rWords.dtype == x.dtype ? convert(x.dtype, immf(0)) : imm(0);
    for (int i = 0; i < static_size(x.rWords.layout); i++)
        set(x.rWords, i, select(inside, at(x.rWords, i), zero));
    return x;
}

val conv_is_doubtful(tensor rSum)
{
    enum { CHAINS = 4 }; // of multiply-adds that do not wait for each other
    val zero[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        zero[i] = immf(0);
    for (int i = 0; i < static_size(rSum.layout); i++)
        zero[i % CHAINS] = fma(at(rSum, i), immf(0), zero[i % CHAINS]);
    return logical_not(eq(add(add(zero[0], zero[1]), add(zero[2], zero[3])), immf(0)));
}

conv_channels conv_load_channels(const conv_form *form, const conv_values *p, val channel, int count)
{
    conv_channels c = { .rBias = fragment(form->out, compact(leaf(count))) };
    c.rScale = fragment(F32, compact(leaf(count)));
    if (form->scale)
        copy(conv_run_at(p->scale, F32, convert(I64, channel), count), c.rScale, 4);
    if (form->bias)
        copy(conv_run_at(p->bias, form->out, convert(I64, channel), count), c.rBias, (int)ckl_dtype_bytes(form->out));
    return c;
}

void conv_hold_vectors(const conv_form *form, tensor coordinates, int mode, int first, conv_vectors *v)
{
    layout along = coordinate_distances(coordinates, mode);
    v->held = true;
    for (int i = 0; i < static_size(coordinates.layout); i++) {
        const int64_t at = first + index_at(along, i);
        v->bias[at] = form->bias ? variable(form->out, convert(form->out, immf(0))) : v->bias[at];
        v->scale[at] = form->scale ? variable(F32, immf(0)) : v->scale[at];
    }
}

static void take_vector(const conv_vectors *v, val *to, val x)
{
    if (v->held)
        assign(*to, x);
    else
        *to = x;
}

void conv_load_vectors(const conv_form *form, const conv_values *p, val last, tensor coordinates, int mode, val channel,
                       int first, conv_vectors *v)
{
    layout along = coordinate_distances(coordinates, mode);
    bool loaded[CONV_VECTORS_MAX] = { false };
    UNROLL(i, static_size(coordinates.layout)) {
        const int64_t at = index_at(along, i);
        if (loaded[at])
            continue;
        val of = min(add(channel, coordinate(coordinates, mode, i)), last);
        if (form->bias)
            take_vector(v, &v->bias[first + at], at(conv_elements_from(p->bias, form->out), of));
        if (form->scale)
            take_vector(v, &v->scale[first + at], at(conv_elements_from(p->scale, F32), of));
        loaded[at] = true;
    }
}

static int run_bytes(const conv_form *form, tensor rSum)
{
    return (int)static_size(rSum.layout) * (int)ckl_dtype_bytes(form->out);
}

tensor conv_finish_run(const conv_form *form, const conv_values *p, const conv_channels *channels, val index,
                       val channel, tensor rSum)
{
    const int count = (int)static_size(rSum.layout), align = run_bytes(form, rSum);
    const int of_channels = (int)static_size(channels->rBias.layout);
    tensor rR = fragment(form->out, compact(leaf(count))), rY = fragment(form->out, compact(leaf(count)));
    if (form->residual)
        copy(conv_run_at(p->residual, form->out, index, count), rR, align);
    for (int i = 0; i < count; i++) {
        const int c = i % of_channels;
        conv_element in = { .sum = at(rSum, i) };
        if (form->scale)
            in.scale = at(channels->rScale, c);
        if (form->bias)
            in.bias = at_f32(channels->rBias, c);
        if (form->residual)
            in.residual = at_f32(rR, i);
        if (conv_is_custom(form)) {
            in.channel = convert(I64, add(channel, imm(c)));
            in.pixel = pixel_of(p, add(index, imm64(i)), in.channel);
        }
        set(rY, i, convert(form->out, conv_finish(form, in)));
    }
    return rY;
}

void conv_store_run(const conv_form *form, const conv_values *p, const conv_channels *channels, val to, val index,
                    val channel, tensor rSum)
{
    copy(conv_finish_run(form, p, channels, index, channel, rSum),
         conv_run_at(to, form->out, index, (int)static_size(rSum.layout)), run_bytes(form, rSum));
}
