/*
 * conv_packed.c - the Hopper kernels for channels that lie apart (NCHW) or do not fill 16 bytes, by copies in a
 * workspace.
 *
 * Where channels are few, a filter's columns may be folded into them: the pixels below a row of the filter are
 * contiguous, and a tensor map whose columns overlap gives each place of y its own. Then zeros are written for padded
 * columns, too.
 */
#include "base/math.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_packed.h"

enum { FOLDED_MAX = 128 }; // channels

/* The problem as the Hopper kernel gets it, and where its tensors lie. */
typedef struct packed_problem {
    ckl_conv_desc inner;
    conv_tensor at[CONV_TENSORS];
    bool copied[CONV_TENSORS];
    int64_t row[CONV_TENSORS], channels[CONV_TENSORS]; // elements from row to row, from column to column
    int64_t bytes[CONV_TENSORS];                       // of the copy
} packed_problem;

/* How channels are taken: see the config. */
typedef struct conv_packed_way {
    bool fold, padded;
} conv_packed_way;

static conv_packed_way way_of(const conv_packed_config *c)
{
    return (conv_packed_way){ c->fold, c->padded };
}

/* The tensor that is written. */
static int written_of(const ckl_conv_desc *d)
{
    return d->direction == CKL_CONV_FORWARD ? CONV_Y : d->direction == CKL_CONV_DATA ? CONV_X : CONV_W;
}

static ckl_dtype type_of(const ckl_conv_desc *d, int which)
{
    return which == written_of(d) ? d->out : d->dtype;
}

/* Channels of a column, such that the places of filters begin at whole 16 bytes. */
static int64_t folded_channels(const ckl_conv_desc *d)
{
    int64_t channels = d->c;
    while (channels * d->stride_w * (int64_t)ckl_dtype_bytes(d->dtype) % 16)
        channels++;
    return channels;
}

static bool can_fold(const ckl_conv_desc *d)
{
    return d->direction != CKL_CONV_DATA && d->groups == 1 && d->s > 1 && d->dilation_w == 1 && d->c > 0 &&
           d->c <= FOLDED_MAX && d->s * (d->c + 8) <= 65536;
}

/* May a filter's columns be folded into rows as they lie? */
static bool lies_folded(const ckl_conv_desc *d, int which, const packed_problem *p)
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
 * Channels from column to column, zeros among them: whole 16 bytes. Forward, where asked for or where it adds little,
 * whole 128: other rows of a box cost more.
 */
static int64_t pitch_of(const ckl_conv_desc *d, const conv_packed_way *way, int which, int64_t channels)
{
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(type_of(d, which)), lines = round_up(channels, 8 * unit);
    const bool data = d->direction == CKL_CONV_DATA, copied = channels % unit != 0 || d->layout == CKL_IMAGE_NCHW;
    const bool fill = data ? copied : lines - channels <= channels / (copied ? 2 : 4);
    return is_filled(d, which) && (way->padded || fill) ? lines : round_up(channels, unit);
}

/* Rows of NHWC that begin at whole 16 bytes, for tensor number `which`. */
static void place_tensor(const ckl_conv_desc *d, const conv_packed_way *way, int which, packed_problem *p)
{
    const bool fold = way->fold;
    const conv_tensor plain = conv_tensor_of(d, which);
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(type_of(d, which)), columns_of_x = p->inner.w - 1;
    const bool folded = fold && which != CONV_Y;
    conv_tensor *t = &p->at[which];
    *t = plain;
    p->channels[which] = folded ? folded_channels(d) : pitch_of(d, way, which, plain.shape[4]);
    p->copied[which] = folded && !lies_folded(d, which, p);
    const int64_t columns =
        folded && which == CONV_X && p->copied[which] ? columns_of_x * d->stride_w + d->s : plain.shape[3];
    p->row[which] = round_up(columns * p->channels[which], unit);
    p->bytes[which] =
        plain.shape[0] * plain.shape[1] * plain.shape[2] * p->row[which] * (int64_t)ckl_dtype_bytes(type_of(d, which));
    const int64_t plane = plain.shape[2] * p->row[which], step = folded && which == CONV_X ? d->stride_w : 1;
    const int64_t stride[CONV_RANK] = { plain.shape[1] * plane, plane, p->row[which], step * p->channels[which], 1 };
    if (!folded)
        p->copied[which] = plain.shape[4] % unit != 0 || !lies_alike(&plain, stride);
    if (p->copied[which] && is_filled(d, which))
        t->shape[4] = p->channels[which];
    for (int i = 0; i < CONV_RANK; i++)
        t->stride[i] = stride[i];
    if (!folded)
        return;
    t->shape[4] = d->s * p->channels[which];
    t->shape[3] = which == CONV_X ? p->inner.w : 1;
    if (which == CONV_W)
        t->stride[3] = p->row[which];
    if (which == CONV_X && slices_rows(d)) {
        t->shape[1] = d->r;
        t->stride[1] = p->row[which];
        t->shape[2] = p->inner.h;
        t->stride[2] = d->stride_h * p->row[which];
    }
}

/* May columns be padded to whole 128 bytes? For the gradient of data those of filters. */
static bool can_pad(const ckl_conv_desc *d)
{
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(d->dtype);
    return d->direction != CKL_CONV_WEIGHT && d->layout == CKL_IMAGE_NHWC && d->groups == 1 && d->c % unit == 0 &&
           d->k % unit == 0 && d->c % (8 * unit) != 0;
}

static packed_problem packed_of(const ckl_conv_desc *d, conv_packed_way way)
{
    const bool fold = way.fold;
    packed_problem p = { .inner = *d };
    conv_mode modes[CONV_MODES];
    conv_modes(d, modes);
    p.inner.layout = CKL_IMAGE_NHWC;
    if (fold) {
        p.inner.w = modes[2].y;
        p.inner.c = d->s * folded_channels(d);
        p.inner.s = p.inner.stride_w = p.inner.dilation_w = 1;
        p.inner.pad_left = p.inner.pad_right = 0;
    }
    if (fold && slices_rows(d)) {
        p.inner.d = p.inner.t = d->r;
        p.inner.h = modes[1].y;
        p.inner.r = p.inner.stride_h = 1;
    }
    for (int i = 0; i < CONV_TENSORS; i++)
        place_tensor(d, &way, i, &p);
    if (!fold && is_filled(d, CONV_X))
        p.inner.c = p.at[CONV_X].shape[4];
    return p;
}

/* The same with f32 sums, in slices, in the place of what is written: a kernel adds them and writes that as it lies. */
static packed_problem packed_sums_of(const ckl_conv_desc *d, conv_packed_way way)
{
    const ckl_conv_desc sums = conv_sliced_desc(d);
    packed_problem p = packed_of(&sums, way);
    p.copied[written_of(d)] = false;
    return p;
}

static packed_problem problem_of(const ckl_conv_desc *d, const conv_packed_config *c)
{
    return (c->conv.slices > 1 ? packed_sums_of : packed_of)(d, way_of(c));
}

static int64_t aligned(int64_t bytes)
{
    return round_up(bytes, 256);
}

/* Copies of tensors, and of the residual, which lies as y does. */
static int64_t bytes_of_copies(const ckl_conv_desc *d, const packed_problem *p)
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

static double cost_of_copies(const ckl_conv_desc *d, const packed_problem *p, conv_packed_way way)
{
    const double LAUNCH = 1.5, BYTES = 1.25e6, ACROSS = 0.4e6, BACK = 1.5e6, WHOLE = 2e6; // us; bytes written in one
    const bool turned = turns_planes(d, way.fold);
    const double rate = way.padded || turned ? WHOLE : d->layout == CKL_IMAGE_NHWC ? BYTES : ACROSS;
    const int written = written_of(d);
    const bool back = p->copied[written] && d->direction != CKL_CONV_WEIGHT;
    double launches = d->residual && p->copied[CONV_Y];
    for (int i = 0; i < CONV_TENSORS; i++)
        launches += p->copied[i];
    const double of_back = back ? (double)p->bytes[written] : 0, in = (double)bytes_of_copies(d, p) - of_back;
    launches -= turned && launches - back > 1;
    return launches * LAUNCH + in / rate + of_back / (turned ? BACK : rate);
}

/* Does a kernel copy whole planes, pixel by pixel? */
static bool goes_across(const ckl_conv_desc *d, const packed_problem *p, int kernel)
{
    return d->layout == CKL_IMAGE_NCHW && (kernel != CONV_PACKED_IN || p->inner.s == d->s);
}

/*
 * Moves a tensor into its copy, or back. Dense modes that lie alike on both sides are one: slices, rows and, in NHWC, images; all of
 * a plane where it goes across.
 */
static ckl_status launch_copy(const ckl_plan *plan, int kernel, const packed_problem *p, int which, const void *plain,
                              const void *packed, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_tensor t = conv_tensor_of(d, which);
    const bool across = goes_across(d, p, kernel);
    const int64_t rows = t.shape[1] * t.shape[2], plane = rows * t.shape[3], vectors = p->bytes[which] / 16;
    conv_params params = { .from = { [CONV_X] = plain, [CONV_Y] = packed },
                           .n = d->layout == CKL_IMAGE_NCHW ? t.shape[0] : 1,
                           .c = t.shape[4],
                           .x_size = { 1, d->layout == CKL_IMAGE_NCHW ? rows : t.shape[0] * rows,
                                       across ? plane : t.shape[3] },
                           .packed_row = (uint32_t)p->row[which],
                           .packed_channels = (uint32_t)p->channels[which],
                           .packed_left = which == CONV_X && p->inner.s != d->s ? (uint32_t)d->pad_left : 0 };
    for (int i = 0; i < CONV_RANK; i++)
        params.x[i] = t.stride[i];
    return plan_launch(plan, kernel, (plan_grid){ .x = ceil_div(vectors, CONV_PACK_THREADS) }, &params, stream);
}

/* Copies a tensor that is read, and returns the copy. */
static ckl_status copy_in(const ckl_plan *plan, const packed_problem *p, int kernel, int which, const void **operand,
                          char **workspace, ckl_stream stream)
{
    if (!p->copied[which])
        return CKL_OK;
    TRY(launch_copy(plan, kernel, p, which, *operand, *workspace, stream));
    *operand = *workspace;
    *workspace += aligned(p->bytes[which]);
    return CKL_OK;
}

static conv_planes planes_of(const ckl_conv_desc *d, const packed_problem *p, int which, const void **operand,
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
static ckl_status copy_both(const ckl_plan *plan, const packed_problem *p, const int which[2],
                            const void **const operands[2], char **workspace, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    if (turns_planes(d, p->inner.s != d->s)) {
        conv_planes copies[2];
        for (int i = 0; i < 2; i++)
            copies[i] = planes_of(d, p, which[i], operands[i], workspace);
        return conv_nchw_copy_launch(plan, CONV_PACKED_IN, copies, false, stream);
    }
    for (int i = 0; i < 2; i++)
        TRY(copy_in(plan, p, CONV_PACKED_IN, which[i], operands[i], workspace, stream));
    return CKL_OK;
}

/* y, and the gradient of data */

/* Nothing to copy, unless columns are folded. */
static bool lies_plain(const ckl_conv_desc *d)
{
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(d->dtype);
    return d->layout == CKL_IMAGE_NHWC && d->c % unit == 0 && d->k % unit == 0;
}

/* Too little is written for tiles of all SMs, and one launch makes it: may slices of taps and channels help? */
static bool can_slice(const ckl_conv_desc *d, const ckl_device_info *device)
{
    enum { TILE = 2 * 128 * 128 };
    const conv_tensor t = conv_tensor_of(d, written_of(d));
    const bool data = d->direction == CKL_CONV_DATA && (d->stride_d > 1 || d->stride_h > 1 || d->stride_w > 1);
    return !data && d->groups == 1 && d->dtype != CKL_I8 &&
           (double)t.shape[0] * (double)t.stride[0] < (double)TILE * device->sm_count;
}

/* For NCHW also some with pixels in the order of memory, shared by two CTAs: small planes have few tiles. */
static bool candidate_whole(const ckl_conv_desc *d, const ckl_device_info *device, int i, conv_packed_config *c)
{
    enum { FOLLOWING = 8 };
    c->conv.slices = 1;
    c->nchw = d->layout == CKL_IMAGE_NCHW;
    c->fold = c->padded = false;
    if (c->nchw && i < FOLLOWING) {
        const packed_problem p = packed_of(d, way_of(c));
        if (conv_sm90_candidate(&p.inner, device, i, &c->conv))
            conv_sm90_follow(&p.inner, device, &c->conv);
        return true;
    }
    i -= c->nchw ? FOLLOWING : 0;
    const int plain = lies_plain(d) ? 1 : CONV_SM90_CANDIDATES; // one says why not
    c->padded = i >= plain && can_pad(d) && i - plain < CONV_SM90_CANDIDATES;
    c->fold = i >= plain && !c->padded;
    i -= i < plain ? 0 : c->fold && can_pad(d) ? plain + CONV_SM90_CANDIDATES : plain;
    if (i >= CONV_SM90_CANDIDATES || (c->fold && (d->direction != CKL_CONV_FORWARD || !can_fold(d))))
        return false;
    const packed_problem p = packed_of(d, way_of(c));
    return conv_sm90_candidate(&p.inner, device, i, &c->conv);
}

/* Each, where outputs are few, also in slices. */
static bool candidate_packed(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_conv_desc *d = desc;
    conv_packed_config *c = config;
    const bool few = can_slice(d, device);
    if (!candidate_whole(d, device, few ? i / 2 : i, c))
        return false;
    if (few && i % 2 && !c->conv.im2col) {
        const packed_problem p = packed_sums_of(d, way_of(c));
        conv_sliced_choose(&p.inner, device, &c->conv);
    }
    return true;
}

static plan_cost cost_packed(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_packed_config *c = config;
    packed_problem p = problem_of(desc, c);
    const double sums = conv_sliced_sums(&p.inner, &c->conv);
    if (p.inner.direction == CKL_CONV_DATA)
        p.inner.c = p.at[CONV_W].shape[4]; // which no box reaches beyond
    const conv_sm90_work work = conv_sm90_work_of(&p.inner, &c->conv);
    plan_cost cost = c->conv.slices > 1 ? conv_sliced_cost_of(&work, device, &c->conv, sums)
                                        : conv_sm90_cost_of(&work, device, &c->conv);
    cost.us += cost_of_copies(desc, &p, way_of(c));
    return cost;
}

static ckl_status check_copies(const ckl_conv_desc *d, const packed_problem *p, bool any)
{
    TRY(conv_check_dense("packed", d));
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv packed: dtype=i8 is none of f32, f16, bf16");
    for (int i = 0; i < CONV_TENSORS; i++) {
        const conv_tensor t = conv_tensor_of(d, i);
        const double image = (double)t.shape[1] * (double)t.shape[2] * (double)t.shape[3] * (double)p->channels[i];
        any |= p->copied[i];
        if (p->bytes[i] / 16 > INT32_MAX || p->row[i] > INT32_MAX || image > INT32_MAX)
            FAIL(CKL_UNSUPPORTED,
                 "conv packed: copies of %" PRId64 " bytes, or an image, are more than one launch makes", p->bytes[i]);
    }
    if (!any)
        FAIL(CKL_UNSUPPORTED, "conv packed: the tensors lie as TMA takes them");
    return CKL_OK;
}

/* What kernel MAIN computes. */
static conv_sm90_config products_of(const conv_packed_config *c)
{
    return c->conv.slices > 1 ? conv_sliced_products(&c->conv) : c->conv;
}

static ckl_status admit_packed(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_packed_config *c = config;
    if (c->nchw != (d->layout == CKL_IMAGE_NCHW))
        FAIL(CKL_INVALID, "conv packed: nchw=%d is not the problem's layout", c->nchw);
    TRY(conv_check_form("packed", d, &c->conv.form));
    if (c->fold && (d->direction != CKL_CONV_FORWARD || !can_fold(d)))
        FAIL(CKL_UNSUPPORTED, "conv packed: fold=1 takes up to %d channels and neighbouring columns, and no gradient",
             FOLDED_MAX);
    if (c->padded && (c->fold || !can_pad(d)))
        FAIL(CKL_UNSUPPORTED, "conv packed: padded=1 moves columns of whole 16 bytes apart, of NHWC without groups");
    const packed_problem p = problem_of(d, c);
    const conv_sm90_config products = products_of(c);
    TRY(conv_sm90_admit(&p.inner, device, &products));
    if (c->conv.slices != 1)
        TRY(conv_sliced_check(&p.inner, &c->conv));
    return check_copies(d, &p, c->fold || (c->conv.slices > 1 && !lies_plain(d)));
}

/* Sums of all slices. */
static int64_t bytes_of_sums(const packed_problem *p, const conv_packed_config *c)
{
    return c->conv.slices * (int64_t)sizeof(float) * conv_sm90_sum_images(&p->inner, &c->conv) *
           p->at[written_of(&p->inner)].stride[0];
}

static int64_t workspace_packed(const ckl_plan *plan)
{
    const conv_packed_config *c = plan->config;
    const packed_problem p = problem_of(plan->desc, c);
    return bytes_of_copies(plan->desc, &p) + (c->conv.slices > 1 ? bytes_of_sums(&p, c) : 0);
}

/* The copy of what is read of NCHW; see turns_planes(). */
static void describe_turning(ckl_dtype dtype, bool fold)
{
    if (!fold && ckl_dtype_bytes(dtype) == 2)
        conv_nchw_copy(dtype, false);
    else
        conv_pack(dtype, !fold, fold, false);
}

void conv_packed(const void *config, int kernel)
{
    const conv_packed_config *c = config;
    const conv_form *form = &c->conv.form;
    const conv_sm90_config products = products_of(c);
    if (kernel == CONV_PACKED_MAIN)
        conv_sm90(&products, 0);
    else if (kernel == CONV_PACKED_OUT && c->conv.slices > 1)
        conv_add_packed(form, c->conv.slices, c->nchw);
    else if (kernel == CONV_PACKED_IN && c->padded)
        conv_pad(form->dtype);
    else if (kernel == CONV_PACKED_IN && c->nchw)
        describe_turning(form->dtype, c->fold);
    else if (kernel == CONV_PACKED_IN)
        conv_pack(form->dtype, false, c->fold, false);
    else
        conv_pack(form->out, c->nchw, false, kernel == CONV_PACKED_OUT);
}

/* The products of copies, and the kernel that adds them. */
static ckl_status launch_slices(const ckl_plan *plan, packed_problem *p, ckl_conv_args *a, void *sums,
                                ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_packed_config *c = plan->config;
    const int out = written_of(d);
    conv_params add = conv_params_of(d, a);
    add.sums = sums;
    add.sum_images = (uint32_t)conv_sm90_sum_images(&p->inner, &c->conv);
    add.packed_channels = (uint32_t)p->channels[out];
    add.k = conv_tensor_of(d, out).shape[4];
    if (!PLAN_ALIGNED(16, a->x, a->w, a->dy))
        FAIL(CKL_INVALID, "conv packed: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    *(out == CONV_X ? &a->dx : &a->y) = sums;
    p->at[out].shape[0] = c->conv.slices * conv_sm90_sum_images(&p->inner, &c->conv);
    TRY(conv_sm90_launch(plan, &c->conv, &p->inner, a, p->at, stream));
    const int64_t quads = d->n * p->at[out].stride[0] / CONV_PACK_QUAD;
    return plan_launch(plan, CONV_PACKED_OUT, (plan_grid){ .x = ceil_div(quads, CONV_PACK_THREADS) }, &add, stream);
}

static ckl_status launch_packed(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_packed_config *c = plan->config;
    packed_problem p = problem_of(d, c);
    const bool data = d->direction == CKL_CONV_DATA;
    const int in = data ? CONV_Y : CONV_X, out = data ? CONV_X : CONV_Y;
    ckl_conv_args a = *(const ckl_conv_args *)args;
    char *workspace = plan_workspace(plan, a.workspace);
    TRY(copy_both(plan, &p, (const int[]){ in, CONV_W }, (const void **const[]){ data ? &a.dy : &a.x, &a.w },
                  &workspace, stream));
    if (c->conv.slices > 1)
        return launch_slices(plan, &p, &a, workspace, stream);
    if (d->residual)
        TRY(copy_in(plan, &p, CONV_PACKED_RESIDUAL, CONV_Y, &a.residual, &workspace, stream));
    void **to = data ? &a.dx : &a.y, *result = *to;
    if (p.copied[out])
        *to = workspace;
    if (!PLAN_ALIGNED(16, a.x, a.w, a.y, a.residual, a.dx, a.dy))
        FAIL(CKL_INVALID, "conv packed: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    TRY(conv_sm90_launch(plan, &c->conv, &p.inner, &a, p.at, stream));
    return p.copied[out] ? launch_copy(plan, CONV_PACKED_OUT, &p, out, result, *to, stream) : CKL_OK;
}

static const field packed_fields[] = { CONV_FORM(FIELD_NESTED, (conv_packed_config, conv.form))   //
                                       CONV_SM90_CONFIG(FIELD_NESTED, (conv_packed_config, conv)) //
                                       CONV_PACKED_CONFIG(FIELD_ROW, conv_packed_config) };

const implementation conv_packed_implementation = {
    .name = "packed",
    .summary =
        "sm90 on copies: NCHW, channels that do not fill 16 bytes, few of them with the columns of a filter; Hopper",
    .config_bytes = sizeof(conv_packed_config),
    .config = FIELD_TABLE(packed_fields),
    .candidate = candidate_packed,
    .cost = cost_packed,
    .admit = admit_packed,
    .describe = conv_packed,
    .kernels = CONV_PACKED_KERNELS,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_packed,
    .launch = launch_packed,
};

/* The gradient of weights. The kernel that adds slices, of which there are two or more, writes it as it lies. */

static packed_problem packed_weight_of(const ckl_conv_desc *d, bool fold)
{
    packed_problem p = packed_of(d, (conv_packed_way){ .fold = fold });
    p.copied[CONV_W] = false;
    return p;
}

static bool candidate_packed_weight(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { WIDTHS = 8 };
    const ckl_conv_desc *d = desc;
    conv_packed_weight_config *c = config;
    c->nchw = d->layout == CKL_IMAGE_NCHW;
    c->fold = i >= WIDTHS;
    if (i >= 2 * WIDTHS || (c->fold && !can_fold(d)))
        return false;
    const packed_problem p = packed_weight_of(d, c->fold);
    return conv_weight_candidate(&p.inner, device, i % WIDTHS, 2, &c->conv);
}

static plan_cost cost_packed_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_packed_weight_config *c = config;
    const packed_problem p = packed_weight_of(desc, c->fold);
    plan_cost cost = conv_weight_cost(&p.inner, device, &c->conv);
    cost.us += cost_of_copies(desc, &p, (conv_packed_way){ .fold = c->fold });
    return cost;
}

static ckl_status admit_packed_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_packed_weight_config *c = config;
    if (d->direction != CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv packed_weight: it computes the gradient of weights alone");
    if (c->nchw != (d->layout == CKL_IMAGE_NCHW))
        FAIL(CKL_INVALID, "conv packed_weight: nchw=%d is not the problem's layout", c->nchw);
    if (c->fold && !can_fold(d))
        FAIL(CKL_UNSUPPORTED, "conv packed_weight: fold=1 takes up to %d channels and neighbouring columns",
             FOLDED_MAX);
    if (c->conv.slices == 1)
        FAIL(CKL_INVALID, "conv packed_weight: slices=1 are not added");
    const packed_problem p = packed_weight_of(d, c->fold);
    TRY(conv_weight_admit(&p.inner, device, &c->conv));
    return check_copies(d, &p, c->fold);
}

static int64_t workspace_packed_weight(const ckl_plan *plan)
{
    const conv_packed_weight_config *c = plan->config;
    const packed_problem p = packed_weight_of(plan->desc, c->fold);
    return bytes_of_copies(plan->desc, &p) + conv_weight_workspace(&p.inner, &c->conv);
}

void conv_packed_weight(const void *config, int kernel)
{
    const conv_packed_weight_config *c = config;
    if (kernel == CONV_PACKED_MAIN)
        conv_sm90_weight(&c->conv, 0);
    else if (kernel == CONV_PACKED_IN && c->nchw)
        describe_turning(c->conv.form.dtype, c->fold);
    else if (kernel == CONV_PACKED_IN)
        conv_pack(c->conv.form.dtype, false, c->fold, false);
    else
        conv_weight_add(&c->conv, c->fold);
}

static ckl_status launch_packed_weight(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const conv_packed_weight_config *c = plan->config;
    const packed_problem p = packed_weight_of(plan->desc, c->fold);
    ckl_conv_args a = *(const ckl_conv_args *)args;
    char *workspace = plan_workspace(plan, a.workspace);
    TRY(copy_both(plan, &p, (const int[]){ CONV_X, CONV_Y }, (const void **const[]){ &a.x, &a.dy }, &workspace,
                  stream));
    a.workspace = workspace;
    return conv_weight_launch(plan, &c->conv, &p.inner, &a, p.at, CONV_PACKED_ADD, p.channels[CONV_X], stream);
}

static const field packed_weight_fields[] = { CONV_FORM(FIELD_NESTED, (conv_packed_weight_config, conv.form))     //
                                              CONV_WEIGHT_CONFIG(FIELD_NESTED, (conv_packed_weight_config, conv)) //
                                              CONV_PACKED_CONFIG(FIELD_ROW, conv_packed_weight_config) };

const implementation conv_packed_weight_implementation = {
    .name = "packed_weight",
    .summary = "sm90_weight on copies, as packed is sm90; Hopper",
    .config_bytes = sizeof(conv_packed_weight_config),
    .config = FIELD_TABLE(packed_weight_fields),
    .candidate = candidate_packed_weight,
    .cost = cost_packed_weight,
    .admit = admit_packed_weight,
    .describe = conv_packed_weight,
    .kernels = CONV_PACKED_WEIGHT_KERNELS,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_packed_weight,
    .launch = launch_packed_weight,
};
