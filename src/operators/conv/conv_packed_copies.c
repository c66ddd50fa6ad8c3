/*
 * conv_packed_copies.c - NHWC rows of whole 16 bytes in a workspace: which tensors are copied, where the copies lie,
 * what they cost, and their launches.
 *
 * Where channels are few, a filter's columns may be folded into them: the pixels below a row of the filter are
 * contiguous, and a tensor map whose columns overlap gives each place of y its own. Then zeros are written for padded
 * columns, too.
 */
#include "base/math.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_packed.h"

static ckl_dtype type_of(const ckl_conv_desc *d, int which)
{
    return which == conv_written(d) ? d->out : d->dtype;
}

/* Channels of a column, such that the places of filters begin at whole 16 bytes. */
static int64_t folded_channels(const ckl_conv_desc *d)
{
    int64_t channels = d->c;
    while (channels * d->stride_w * (int64_t)ckl_dtype_bytes(d->dtype) % 16)
        channels++;
    return channels;
}

/* May columns of a filter be folded into channels? */
static bool can_fold(const ckl_conv_desc *d)
{
    return d->direction != CKL_CONV_DATA && d->groups == 1 && d->s > 1 && d->dilation_w == 1 && d->c > 0 &&
           d->c <= CONV_FOLDED_MAX && d->s * (d->c + 8) <= 65536;
}

/* May a filter's columns be folded into rows as they lie? */
static bool lies_folded(const ckl_conv_desc *d, int which, const conv_packed_problem *p)
{
    const bool padded = d->pad_left || d->pad_right, x = which == CONV_X;
    return d->layout == CKL_IMAGE_NHWC && p->channels[which] == d->c && !(x && padded) &&
           (x ? d->w : d->s) * d->c * (int64_t)ckl_dtype_bytes(d->dtype) % 16 == 0;
}

/* TMA takes strides of up to 8. Beyond, each row of a filter becomes a slice, which takes every stride-th row of x. */
static bool slices_rows(const ckl_conv_desc *d)
{
    return d->stride_h > 8 && d->d == 1 && d->t == 1 && d->dilation_h == 1 && !d->pad_top && !d->pad_bottom;
}

/* Does it lie as NHWC? Planes of one pixel do, too. */
static bool lies_alike(const conv_tensor *t, const int64_t stride[CONV_RANK])
{
    bool alike = true;
    for (int i = 0; i < CONV_RANK; i++)
        alike &= t->shape[i] <= 1 || t->stride[i] == stride[i];
    return alike;
}

/*
 * Do the zeros of the copy count as channels? For the gradient of data those of filters do, which lie along the rows of
 * boxes.
 */
static bool is_filled(const ckl_conv_desc *d, int which)
{
    const bool forward = d->direction == CKL_CONV_FORWARD && which != CONV_Y;
    return d->groups == 1 && (forward || (d->direction == CKL_CONV_DATA && which == CONV_W));
}

/*
 * Channels from column to column, zeros among them: whole 16 bytes. Those of the gradient of data's filters, and
 * forward where it adds little, whole 128: other rows of a box cost more.
 */
static int64_t pitch_of(const ckl_conv_desc *d, int which, int64_t channels)
{
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(type_of(d, which)), lines = round_up(channels, 8 * unit);
    const bool copied = channels % unit != 0 || d->layout == CKL_IMAGE_NCHW;
    const bool fill = d->direction == CKL_CONV_DATA || lines - channels <= channels / (copied ? 2 : 4);
    return is_filled(d, which) && fill ? lines : round_up(channels, unit);
}

/* A product that may be rounded up and counted in bytes: what is copied is refused long before. */
static int64_t product(int64_t x, int64_t y)
{
    return min_i64(product_i64(x, y), INT64_MAX / 64);
}

/* Rows of NHWC that begin at whole 16 bytes, for tensor number `which`, which lies as p has it so far. */
static void place_tensor(const ckl_conv_desc *d, conv_packed_way way, const ckl_conv_desc *inner, int which,
                         conv_packed_problem *p)
{
    const conv_tensor plain = p->at[which];
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(type_of(d, which)), columns_of_x = inner->w - 1;
    const bool folded = way == CONV_FOLDED && which != CONV_Y;
    conv_tensor *t = &p->at[which];
    p->channels[which] = folded ? folded_channels(d) : pitch_of(d, which, plain.shape[4]);
    p->copied[which] = folded && !lies_folded(d, which, p);
    const int64_t columns =
        folded && which == CONV_X && p->copied[which] ? columns_of_x * d->stride_w + d->s : plain.shape[3];
    p->row[which] = round_up(product(columns, p->channels[which]), unit);
    const int64_t plane = product(plain.shape[2], p->row[which]), image = product(plain.shape[1], plane);
    p->bytes[which] = product(plain.shape[0], image) * (int64_t)ckl_dtype_bytes(type_of(d, which));
    p->image[which] =
        (double)plain.shape[1] * (double)plain.shape[2] * (double)plain.shape[3] * (double)p->channels[which];
    const int64_t step = folded && which == CONV_X ? d->stride_w : 1;
    const int64_t stride[CONV_RANK] = { image, plane, p->row[which], step * p->channels[which], 1 };
    if (!folded)
        p->copied[which] = plain.shape[4] % unit != 0 || !lies_alike(&plain, stride);
    if (p->copied[which] && is_filled(d, which))
        t->shape[4] = p->channels[which];
    for (int i = 0; i < CONV_RANK; i++)
        t->stride[i] = stride[i];
    if (!folded)
        return;
    t->shape[4] = d->s * p->channels[which];
    t->shape[3] = which == CONV_X ? inner->w : 1;
    if (which == CONV_W)
        t->stride[3] = p->row[which];
    if (which == CONV_X && slices_rows(d)) {
        t->shape[1] = d->r;
        t->stride[1] = p->row[which];
        t->shape[2] = inner->h;
        t->stride[2] = product(d->stride_h, p->row[which]);
    }
}

/* The problem that copies have: NHWC, perhaps with the columns of filters as channels. */
static ckl_conv_desc inner_of(const ckl_conv_desc *d, conv_packed_way way)
{
    ckl_conv_desc inner = *d;
    conv_mode modes[CONV_MODES];
    conv_modes(d, modes);
    inner.layout = CKL_IMAGE_NHWC;
    if (way != CONV_FOLDED)
        return inner;
    inner.w = modes[2].y;
    inner.c = d->s * folded_channels(d);
    inner.s = inner.stride_w = inner.dilation_w = 1;
    inner.pad_left = inner.pad_right = 0;
    if (slices_rows(d)) {
        inner.d = inner.t = d->r;
        inner.h = modes[1].y;
        inner.r = inner.stride_h = 1;
    }
    return inner;
}

static int64_t aligned(int64_t bytes)
{
    return round_up(bytes, 256);
}

/* Copies of tensors, and of the residual, which lies as y does. */
int64_t conv_packed_bytes(const ckl_conv_desc *d, const conv_packed_problem *p)
{
    int64_t bytes = d->residual && p->copied[CONV_Y] ? aligned(p->bytes[CONV_Y]) : 0;
    for (int i = 0; i < CONV_TENSORS; i++)
        bytes += p->copied[i] ? aligned(p->bytes[i]) : 0;
    return bytes;
}

/* Are planes transposed by nchw_sm90's kernel, which takes two tensors in one launch? */
static bool turns_planes(const ckl_conv_desc *d, bool fold)
{
    return d->layout == CKL_IMAGE_NCHW && !fold && ckl_dtype_bytes(d->dtype) == 2;
}

static double copies_us(const ckl_conv_desc *d, const conv_packed_problem *p, conv_packed_way way)
{
    const double LAUNCH = 1.5, BYTES = 1.25e6, ACROSS = 0.4e6, BACK = 1.5e6, WHOLE = 2e6; // us; bytes written in one
    const bool turned = turns_planes(d, way == CONV_FOLDED);
    const double rate = turned ? WHOLE : d->layout == CKL_IMAGE_NHWC ? BYTES : ACROSS;
    const int written = conv_written(d);
    const bool back = p->copied[written] && d->direction != CKL_CONV_WEIGHT;
    double launches = d->residual && p->copied[CONV_Y];
    for (int i = 0; i < CONV_TENSORS; i++)
        launches += p->copied[i];
    const double of_back = back ? (double)p->bytes[written] : 0, in = (double)conv_packed_bytes(d, p) - of_back;
    launches -= turned && launches - back > 1;
    return launches * LAUNCH + in / rate + of_back / (turned ? BACK : rate);
}

bool conv_can_pack(const ckl_conv_desc *d, conv_packed_way way)
{
    if (conv_has_patches(way))
        return conv_can_patch(d, way);
    return way == CONV_PLAIN || can_fold(d);
}

conv_packed_problem conv_packed_of(const ckl_conv_desc *d, conv_packed_way way, bool back)
{
    if (conv_has_patches(way))
        return conv_patched(d, way, conv_packed_of(d, CONV_PLAIN, back));
    ckl_conv_desc inner = inner_of(d, way);
    conv_packed_problem p = { .copies_us = 0 };
    conv_tensors_of(d, p.at);
    for (int i = 0; i < CONV_TENSORS; i++)
        place_tensor(d, way, &inner, i, &p);
    p.copied[conv_written(d)] &= back;
    if (way != CONV_FOLDED && is_filled(d, CONV_X))
        inner.c = p.at[CONV_X].shape[4];
    p.inner = conv_sm90_problem_of(&inner);
    p.copies_us = copies_us(d, &p, way);
    return p;
}

/* Does a kernel copy whole planes, pixel by pixel? */
static bool goes_across(const ckl_conv_desc *d, const conv_packed_problem *p, int kernel)
{
    return d->layout == CKL_IMAGE_NCHW && (kernel != CONV_PACKED_IN || p->inner.desc.s == d->s);
}

/*
 * Moves a tensor into its copy, or back. Dense modes that lie alike on both sides are one: slices, rows and, in NHWC,
 * images; all of a plane where it goes across.
 */
ckl_status conv_packed_copy(const ckl_plan *plan, int kernel, const conv_packed_problem *p, int which,
                            const void *plain, const void *copy, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_tensor t = conv_tensor_of(d, which);
    const bool across = goes_across(d, p, kernel);
    const int64_t rows = t.shape[1] * t.shape[2], plane = rows * t.shape[3], vectors = p->bytes[which] / 16;
    conv_params params = { .from = { [CONV_X] = plain, [CONV_Y] = copy },
                           .n = d->layout == CKL_IMAGE_NCHW ? t.shape[0] : 1,
                           .c = t.shape[4],
                           .x_size = { 1, d->layout == CKL_IMAGE_NCHW ? rows : t.shape[0] * rows,
                                       across ? plane : t.shape[3] },
                           .packed_row = (uint32_t)p->row[which],
                           .packed_channels = (uint32_t)p->channels[which],
                           .packed_left = which == CONV_X && p->inner.desc.s != d->s ? (uint32_t)d->pad_left : 0 };
    for (int i = 0; i < CONV_RANK; i++)
        params.x[i] = t.stride[i];
    if (kernel != CONV_PACKED_OUT) // else the copy is what is read, which the launch before writes
        conv_read_early(&params, 0, plain, conv_span_bytes(&t, type_of(d, which)));
    return plan_launch(plan, kernel, (plan_grid){ .x = ceil_div(vectors, CONV_PACK_THREADS) }, &params, stream);
}

/* Copies a tensor that is read, and returns the copy. */
ckl_status conv_packed_copy_in(const ckl_plan *plan, const conv_packed_problem *p, int kernel, int which,
                               const void **operand, char **workspace, ckl_stream stream)
{
    if (!p->copied[which])
        return CKL_OK;
    TRY(conv_packed_copy(plan, kernel, p, which, *operand, *workspace, stream));
    *operand = *workspace;
    *workspace += aligned(p->bytes[which]);
    return CKL_OK;
}

static conv_planes planes_of(const ckl_conv_desc *d, const conv_packed_problem *p, int which, const void **operand,
                             char **workspace)
{
    const conv_tensor t = conv_tensor_of(d, which);
    const conv_planes planes = { *operand,
                                 *workspace,
                                 p->copied[which] ? t.shape[0] : 0,
                                 t.shape[4],
                                 t.shape[1] * t.shape[2] * t.shape[3],
                                 p->channels[which] };
    if (p->copied[which]) {
        *operand = *workspace;
        *workspace += aligned(p->bytes[which]);
    }
    return planes;
}

/* Copies both tensors that are read, each where it must be. */
ckl_status conv_packed_copy_both(const ckl_plan *plan, const conv_packed_problem *p, const int which[2],
                                 const void **const operands[2], char **workspace, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    if (turns_planes(d, p->inner.desc.s != d->s)) {
        conv_planes copies[2];
        for (int i = 0; i < 2; i++)
            copies[i] = planes_of(d, p, which[i], operands[i], workspace);
        return conv_nchw_copy_launch(plan, CONV_PACKED_IN, copies, false, stream);
    }
    for (int i = 0; i < 2; i++)
        TRY(conv_packed_copy_in(plan, p, CONV_PACKED_IN, which[i], operands[i], workspace, stream));
    return CKL_OK;
}

ckl_status conv_packed_check(const ckl_conv_desc *d, const conv_packed_problem *p, bool any)
{
    TRY(conv_check_dense("packed", d));
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv packed: dtype=i8 is none of f32, f16, bf16");
    for (int i = 0; i < CONV_TENSORS; i++) {
        any |= p->copied[i];
        if (p->bytes[i] / 16 > INT32_MAX || p->row[i] > INT32_MAX || p->image[i] > INT32_MAX)
            FAIL(CKL_UNSUPPORTED,
                 "conv packed: copies of %" PRId64 " bytes, or an image, are more than one launch makes", p->bytes[i]);
    }
    if (!any)
        FAIL(CKL_UNSUPPORTED, "conv packed: the tensors lie as TMA takes them");
    return CKL_OK;
}

/* The copy of what is read of NCHW; see turns_planes(). */
void conv_packed_turning(ckl_dtype dtype, bool fold)
{
    if (!fold && ckl_dtype_bytes(dtype) == 2)
        conv_nchw_copy(dtype, false);
    else
        conv_pack(dtype, !fold, fold, false);
}
