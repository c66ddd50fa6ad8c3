/* conv.c - convolution problems: their checks, their tensors, and what their implementations share. */
#include <string.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"
#include "operators/gemm/gemm_epilogues.h"
#include "operators/operators.h"

/* Modes and tensors */

/* Places of a filter along a mode; 0: none. */
static int64_t places(int64_t size, int64_t pads, int64_t filter, int64_t dilation, int64_t stride)
{
    const int64_t steps = size + pads - (dilation * (filter - 1) + 1);
    return steps < 0
               ? 0
               : 1 + (stride == 1 ? steps : steps / stride); // a division less: choosing calls this hundreds of times
}

void conv_modes(const ckl_conv_desc *d, conv_mode modes[CONV_MODES])
{
    modes[0] = (conv_mode){ d->d, 0, d->t, d->stride_d, d->dilation_d, d->pad_front };
    modes[1] = (conv_mode){ d->h, 0, d->r, d->stride_h, d->dilation_h, d->pad_top };
    modes[2] = (conv_mode){ d->w, 0, d->s, d->stride_w, d->dilation_w, d->pad_left };
    const int64_t behind[CONV_MODES] = { d->pad_back, d->pad_bottom, d->pad_right };
    for (int i = 0; i < CONV_MODES; i++) {
        conv_mode *m = &modes[i];
        m->y = places(m->x, m->pad + behind[i], m->filter, m->dilation, m->stride);
    }
}

bool conv_turns(const ckl_conv_desc *d)
{
    return d->direction == CKL_CONV_DATA && d->stride_d == 1 && d->stride_h == 1 && d->stride_w == 1;
}

ckl_conv_desc conv_turned(const ckl_conv_desc *d)
{
    ckl_conv_desc turned = *d;
    if (!conv_turns(d))
        return turned;
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    int64_t reach[CONV_MODES];
    for (int i = 0; i < CONV_MODES; i++)
        reach[i] = m[i].dilation * (m[i].filter - 1);
    turned.direction = CKL_CONV_FORWARD;
    turned.c = d->k;
    turned.k = d->c;
    turned.d = m[0].y;
    turned.h = m[1].y;
    turned.w = m[2].y;
    turned.pad_front = reach[0] - d->pad_front;
    turned.pad_back = reach[0] - d->pad_back;
    turned.pad_top = reach[1] - d->pad_top;
    turned.pad_bottom = reach[1] - d->pad_bottom;
    turned.pad_left = reach[2] - d->pad_left;
    turned.pad_right = reach[2] - d->pad_right;
    turned.x_n = d->y_n, turned.x_d = d->y_d, turned.x_h = d->y_h, turned.x_w = d->y_w, turned.x_c = d->y_c;
    turned.y_n = d->x_n, turned.y_d = d->x_d, turned.y_h = d->x_h, turned.y_w = d->x_w, turned.y_c = d->x_c;
    return turned;
}

ckl_conv_args conv_turned_args(const ckl_conv_desc *d, const ckl_conv_args *a)
{
    return conv_turns(d) ? (ckl_conv_args){ .x = a->dy, .w = a->w, .y = a->dx } : *a;
}

int64_t conv_seen_taps(const conv_mode *m, int64_t *first)
{
    const int64_t reach = (m->y - 1) * m->stride, last = min_i64(m->filter - 1, (m->x - 1 + m->pad) / m->dilation);
    *first = m->pad > reach ? min_i64(m->filter - 1, ceil_div(m->pad - reach, m->dilation)) : 0;
    return max_i64(1, last - *first + 1);
}

/* The stride of a mode of x or y in the desc; 0: dense. */
static int64_t given_stride(const ckl_conv_desc *d, int which, int mode)
{
    static const size_t offsets[CONV_TENSORS][CONV_RANK] = {
        [CONV_X] = { offsetof(ckl_conv_desc, x_n), offsetof(ckl_conv_desc, x_d), offsetof(ckl_conv_desc, x_h),
                     offsetof(ckl_conv_desc, x_w), offsetof(ckl_conv_desc, x_c) },
        [CONV_Y] = { offsetof(ckl_conv_desc, y_n), offsetof(ckl_conv_desc, y_d), offsetof(ckl_conv_desc, y_h),
                     offsetof(ckl_conv_desc, y_w), offsetof(ckl_conv_desc, y_c) },
    };
    return which == CONV_W ? 0 : *(const int64_t *)(const void *)((const char *)d + offsets[which][mode]);
}

/* The i-th mode in memory, innermost first. NHWC is the order of the modes; NCHW has the channel before the places. */
static int mode_in_memory(const ckl_conv_desc *d, int i)
{
    static const int nhwc[CONV_RANK] = { 4, 3, 2, 1, 0 }, nchw[CONV_RANK] = { 3, 2, 1, 4, 0 };
    return (d->layout == CKL_IMAGE_NHWC ? nhwc : nchw)[i];
}

static conv_tensor tensor_with(const ckl_conv_desc *d, const conv_mode m[CONV_MODES], int which)
{
    conv_tensor t = { .shape = { which == CONV_W ? d->k : d->n, 0, 0, 0,
                                 which == CONV_X   ? d->c
                                 : which == CONV_W ? d->c / d->groups
                                                   : d->k } };
    for (int i = 0; i < CONV_MODES; i++)
        t.shape[1 + i] = which == CONV_X ? m[i].x : which == CONV_W ? m[i].filter : m[i].y;
    int64_t step = 1;
    for (int i = 0; i < CONV_RANK; i++) {
        const int mode = mode_in_memory(d, i);
        const int64_t given = given_stride(d, which, mode);
        t.stride[mode] = given ? given : step;
        const int64_t span = product_i64(t.stride[mode], t.shape[mode]);
        step = span ? max_i64(step, span) : 0; // of one element any stride will do
    }
    return t;
}

conv_tensor conv_tensor_of(const ckl_conv_desc *d, int which)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    return tensor_with(d, m, which);
}

void conv_tensors_of(const ckl_conv_desc *d, conv_tensor tensors[CONV_TENSORS])
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    for (int i = 0; i < CONV_TENSORS; i++)
        tensors[i] = tensor_with(d, m, i);
}

int conv_read(const ckl_conv_desc *d)
{
    return d->direction == CKL_CONV_DATA ? CONV_Y : CONV_X;
}

int conv_written(const ckl_conv_desc *d)
{
    return d->direction == CKL_CONV_FORWARD ? CONV_Y : d->direction == CKL_CONV_DATA ? CONV_X : CONV_W;
}

int64_t conv_pixel_count(const ckl_conv_desc *d, int which)
{
    const conv_tensor t = conv_tensor_of(d, which);
    return product_i64(product_i64(t.shape[0], t.shape[1]), product_i64(t.shape[2], t.shape[3]));
}

bool conv_is_volume(const ckl_conv_desc *d)
{
    return d->d > 1 || d->t > 1 || d->stride_d > 1 || d->pad_front || d->pad_back;
}

bool conv_is_view(const ckl_conv_desc *d)
{
    return d->x_n || d->x_d || d->x_h || d->x_w || d->x_c || d->y_n || d->y_d || d->y_h || d->y_w || d->y_c;
}

ckl_status conv_check_dense(const char *who, const ckl_conv_desc *d)
{
    if (conv_is_view(d))
        FAIL(CKL_UNSUPPORTED, "conv %s: it takes dense tensors, without strides of x and y", who);
    return CKL_OK;
}

int64_t conv_stride_divisor(const ckl_conv_desc *d, int which)
{
    const conv_tensor t = conv_tensor_of(d, which);
    int64_t divisor = 128;
    for (int i = 1; i < CONV_RANK; i++) {
        const int mode = mode_in_memory(d, i);
        while (t.shape[mode] > 1 && t.stride[mode] % divisor)
            divisor /= 2;
    }
    return divisor;
}

ckl_status conv_check_vectors(const char *who, const ckl_conv_desc *d)
{
    static const char *const names[CONV_TENSORS] = { [CONV_X] = "x", [CONV_Y] = "y" };
    for (int which = CONV_X; conv_is_view(d) && which <= CONV_Y; which += CONV_Y - CONV_X) {
        const bool written = d->direction == (which == CONV_X ? CKL_CONV_DATA : CKL_CONV_FORWARD);
        const int64_t bytes = (int64_t)ckl_dtype_bytes(written ? d->out : d->dtype);
        if (conv_stride_divisor(d, which) * bytes % 16)
            FAIL(CKL_UNSUPPORTED, "conv %s: the strides of %s are not whole 16 bytes", who, names[which]);
    }
    return CKL_OK;
}

/* Validation */

static ckl_status check_forward_only(const ckl_conv_desc *d)
{
    if (d->direction == CKL_CONV_FORWARD)
        return CKL_OK;
    if (d->direction == CKL_CONV_DATA)
        TRY(plan_check_unused("conv", "bias", d->bias, "the gradient of data"));
    TRY(plan_check_unused("conv", "scale", d->scale, "a gradient"));
    TRY(plan_check_unused("conv", "residual", d->residual, "a gradient"));
    return plan_check_unused("conv", "activation", (int64_t)d->activation, "a gradient");
}

static ckl_status check_places(const ckl_conv_desc *d)
{
    static const char *const names[CONV_MODES][2] = { { "d", "t" }, { "h", "r" }, { "w", "s" } };
    conv_mode modes[CONV_MODES];
    conv_modes(d, modes);
    for (int i = 0; i < CONV_MODES; i++)
        if (modes[i].y == 0)
            FAIL(CKL_INVALID,
                 "conv: a filter of %s=%" PRId64 " and dilation %" PRId64 " has no place in %s=%" PRId64
                 " and its padding",
                 names[i][1], modes[i].filter, modes[i].dilation, names[i][0], modes[i].x);
    return CKL_OK;
}

/* Each stride leaves room for the modes inside it. */
static ckl_status check_view(const ckl_conv_desc *d, int which, const char *name)
{
    static const char modes[CONV_RANK + 1] = "ndhwc";
    const conv_tensor t = conv_tensor_of(d, which);
    int64_t inside = 1;
    for (int i = 0; i < CONV_RANK; i++) {
        const int mode = mode_in_memory(d, i);
        if (i == 0 && t.stride[mode] != 1)
            FAIL(CKL_INVALID, "conv: %s_%c=%" PRId64 ", but elements along the innermost mode are neighbours", name,
                 modes[mode], t.stride[mode]);
        if (given_stride(d, which, mode) && t.shape[mode] > 1 && t.stride[mode] < inside)
            FAIL(CKL_INVALID,
                 "conv: %s_%c=%" PRId64 " is smaller than the %" PRId64
                 " elements of what is inside: %s overlaps itself",
                 name, modes[mode], t.stride[mode], inside, name);
        inside = t.shape[mode] > 1 ? product_i64(t.stride[mode], t.shape[mode]) : inside;
    }
    return CKL_OK;
}

/* i8 gives i32 sums, or scaled floats. */
static ckl_status check_types(const ckl_conv_desc *d)
{
    if (d->dtype != CKL_I8 && d->out != d->dtype && d->out != CKL_F32)
        FAIL(CKL_INVALID, "conv: out=%s is none of %s, f32", ckl_dtype_name(d->out), ckl_dtype_name(d->dtype));
    if (d->dtype == CKL_I8 && d->direction != CKL_CONV_FORWARD)
        FAIL(CKL_INVALID, "conv: dtype=i8 has no gradients");
    if (d->out == CKL_I32 &&
        (d->bias || d->scale || d->residual || d->epilogue || d->activation != CKL_ACTIVATION_IDENTITY))
        FAIL(CKL_INVALID, "conv: out=i32 is the sums of i8 as they are, without an epilogue");
    return CKL_OK;
}

/* Of a forward problem, whose pixels and channels 32 bits number; behind the check of places. */
static ckl_status check_epilogue(const ckl_conv_desc *d)
{
    if (!d->epilogue)
        return CKL_OK;
    if (d->direction != CKL_CONV_FORWARD)
        FAIL(CKL_INVALID, "conv: epilogue=%s is not part of a gradient", d->epilogue);
    if (conv_pixel_count(d, CONV_Y) > INT32_MAX)
        FAIL(CKL_INVALID, "conv: epilogue=%s is of fewer than 2^31 pixels of y", d->epilogue);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_conv_desc *d = desc;
    TRY(gemm_epilogue_check("conv", &d->epilogue));
    d->out = d->out ? d->out : d->dtype == CKL_I8 ? CKL_I32 : d->dtype;
    TRY(check_types(d));
    if (d->math != CKL_GEMM_F32 && d->dtype != CKL_F32)
        FAIL(CKL_INVALID, "conv: math=tf32 is of dtype=f32, not of %s", ckl_dtype_name(d->dtype));
    if (d->c % d->groups)
        FAIL(CKL_INVALID, "conv: groups=%" PRId64 " does not divide c=%" PRId64, d->groups, d->c);
    if (d->k % d->groups)
        FAIL(CKL_INVALID, "conv: groups=%" PRId64 " does not divide k=%" PRId64, d->groups, d->k);
    TRY(check_forward_only(d));
    TRY(check_places(d));
    TRY(check_epilogue(d));
    TRY(check_view(d, CONV_X, "x"));
    return check_view(d, CONV_Y, "y");
}

/* A tensor with pixels, its modes in the order of memory, so that rows are contiguous. */
static plan_tensor pixels(const ckl_conv_desc *d, const char *name, ckl_dtype dtype, int which)
{
    const conv_tensor t = conv_tensor_of(d, which);
    int64_t shape[CONV_RANK], stride[CONV_RANK];
    for (int i = 0; i < CONV_RANK; i++) {
        const int mode = mode_in_memory(d, CONV_RANK - 1 - i);
        shape[i] = t.shape[mode];
        stride[i] = t.stride[mode];
    }
    return plan_strided(name, dtype, CONV_RANK, shape, stride);
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_conv_desc *d = desc;
    const bool forward = d->direction == CKL_CONV_FORWARD, data = d->direction == CKL_CONV_DATA;
    const char *not_forward = forward ? NULL : "a gradient", *no_gradient = forward ? "a forward problem" : NULL;
    const char *of_data = data ? "the gradient of data" : NULL, *no_bias = d->bias ? NULL : "a problem without bias";
    const char *of_weights = !forward && !data ? "the gradient of weights" : NULL;
    t[0] = plan_absent(pixels(d, "x", d->dtype, CONV_X), of_data);
    t[1] = plan_absent(pixels(d, "w", d->dtype, CONV_W), of_weights);
    t[2] = plan_absent(pixels(d, "dy", d->dtype, CONV_Y), no_gradient);
    t[3] = plan_absent(plan_vector("bias", d->out, d->k), plan_first(not_forward, no_bias));
    t[4] = plan_absent(pixels(d, "residual", d->out, CONV_Y), d->residual ? NULL : "a problem without residual");
    t[5] = plan_absent(plan_vector("scale", CKL_F32, d->k), d->scale ? NULL : "a problem without scale");
    t[6] = plan_absent(plan_output(pixels(d, "y", d->out, CONV_Y)), not_forward);
    t[7] = plan_absent(plan_output(pixels(d, "dx", d->out, CONV_X)), plan_first(no_gradient, of_weights));
    t[8] = plan_absent(plan_output(pixels(d, "dw", d->out, CONV_W)), plan_first(no_gradient, of_data));
    t[9] = plan_absent(plan_output(plan_vector("dbias", d->out, d->k)),
                       plan_first(plan_first(no_gradient, of_data), no_bias));
    t[4].place = t[6].place = 1;
    return 10;
}

/* What implementations share */

ckl_status conv_check_half(const char *who, const ckl_conv_desc *d)
{
    if (ckl_dtype_bytes(d->dtype) != 2)
        FAIL(CKL_UNSUPPORTED, "conv %s: dtype=%s is none of f16, bf16", who, ckl_dtype_name(d->dtype));
    return CKL_OK;
}

conv_form conv_form_of(const ckl_conv_desc *d)
{
#define OF_DESC(owner, kind, name, value, range, help) .name = (kind)d->name,
    return (conv_form){ CONV_FORM(OF_DESC, ) };
#undef OF_DESC
}

ckl_status conv_check_form(const char *who, const ckl_conv_desc *d, const conv_form *have)
{
    static const field fields[] = { CONV_FORM(FIELD_ROW, conv_form) };
    const conv_form want = conv_form_of(d);
    if (memcmp(have, &want, sizeof want) == 0) // most are: a choice asks hundreds
        return CKL_OK;
    if (fields_difference((field_table)FIELD_TABLE(fields), have, &want))
        FAIL(CKL_INVALID, "conv %s: the config's direction, types or epilogue are not the problem's", who);
    return CKL_OK;
}

void conv_read_early(conv_params *p, int number, const void *from, int64_t bytes)
{
    p->early[number] = from;
    p->early_bytes[number] = from ? early_bytes(bytes, PREFETCHED_BYTES) : 0;
}

int64_t conv_span_bytes(const conv_tensor *t, ckl_dtype dtype)
{
    int64_t elements = 1;
    for (int i = 0; i < CONV_RANK; i++)
        elements += (t->shape[i] - 1) * t->stride[i];
    return product_i64(elements, (int64_t)ckl_dtype_bytes(dtype));
}

bool conv_is_early(const ckl_conv_desc *d)
{
    const conv_tensor x = conv_tensor_of(d, conv_read(d));
    return conv_span_bytes(&x, d->dtype) <= PREFETCHED_BYTES;
}

conv_params conv_params_of(const ckl_plan *plan, const ckl_conv_desc *d, const ckl_conv_args *a)
{
    const bool data = d->direction == CKL_CONV_DATA, weight = d->direction == CKL_CONV_WEIGHT;
    conv_params p = { .from = { data ? a->dx : a->x, weight ? a->dw : a->w, a->dy ? a->dy : a->y },
                      .bias = weight ? a->dbias : a->bias,
                      .scale = a->scale,
                      .residual = a->residual,
                      .n = d->n,
                      .c = d->c / d->groups,
                      .k = d->k / d->groups,
                      .groups = d->groups };
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    conv_tensor at[CONV_TENSORS];
    conv_tensors_of(d, at);
    for (int i = 0; i < CONV_RANK; i++) {
        p.x[i] = at[CONV_X].stride[i];
        p.w[i] = at[CONV_W].stride[i];
        p.y[i] = at[CONV_Y].stride[i];
    }
    for (int i = 0; i < CONV_MODES; i++) {
        p.x_size[i] = m[i].x;
        p.y_size[i] = m[i].y;
        p.filter[i] = m[i].filter;
        p.step[i] = m[i].stride;
        p.dilation[i] = m[i].dilation;
        p.pad[i] = m[i].pad;
    }
    const int in[] = { data ? CONV_Y : CONV_X, weight ? CONV_Y : CONV_W };
    for (int i = 0; i < 2; i++)
        if (!plan_overlap(p.from[in[i]], 1, plan_workspace(plan, a->workspace), plan->workspace_bytes))
            conv_read_early(&p, i, p.from[in[i]], conv_span_bytes(&at[in[i]], d->dtype));
    return p;
}

conv_params conv_turned_params(const ckl_plan *plan, const ckl_conv_desc *d, const ckl_conv_args *a)
{
    const ckl_conv_desc turned = conv_turned(d);
    const ckl_conv_args of_turned = conv_turned_args(d, a);
    conv_params p = conv_params_of(plan, &turned, &of_turned);
    if (!conv_turns(d))
        return p;
    const conv_tensor w = conv_tensor_of(d, CONV_W);
    const bool apart = d->groups > 1; // a filter a channel
    int64_t last = 0;
    for (int i = 1; i <= CONV_MODES; i++) {
        last += (w.shape[i] - 1) * w.stride[i];
        p.w[i] = -w.stride[i];
    }
    p.w[0] = w.stride[apart ? 0 : CONV_RANK - 1];
    p.w[CONV_RANK - 1] = w.stride[apart ? CONV_RANK - 1 : 0];
    p.from[CONV_W] = (const char *)a->w + last * (int64_t)ckl_dtype_bytes(d->dtype);
    return p;
}

ckl_status conv_launch_tiles(const ckl_plan *plan, int kernel, int64_t tiles, const conv_params *p, ckl_stream stream)
{
    enum { EARLY_MOST = 6 << 20 }; // of both, as gemm has it: 512 channels of 32 images of 7x7 16.4 us, asked for 16.9
    const plan_kernel *of = &plan->kernels[kernel];
    conv_params params = *p;
    if (p->early_bytes[0] + p->early_bytes[1] > EARLY_MOST)
        params.early_bytes[0] = params.early_bytes[1] = 0;
    return plan_launch(plan, kernel, (plan_grid){ .x = min_i64(tiles, of->clusters_resident) * of->cluster }, &params,
                       stream);
}

/* The operator */

static const field desc_fields[] = { CONV_DESC(FIELD_ROW, ckl_conv_desc) };
static const implementation *const implementations[] = {
    &conv_halo_implementation,
    &conv_bands_implementation,
    &conv_sliding_implementation,
    &conv_depthwise_implementation,
    &conv_halo_weight_implementation,
    &conv_depthwise_weight_implementation,
    &conv_skinny_implementation,
    &conv_pointwise_unaligned_implementation,
    &conv_pointwise_pitched_implementation,
    &conv_kn2row_implementation,
    &conv_narrow_implementation,
    &conv_stem_implementation,
    &conv_pointwise_implementation,
    &conv_sliced_implementation,
    &conv_sm90_implementation,
    &conv_nchw_sm90_implementation,
    &conv_packed_implementation,
    &conv_sm90_weight_implementation,
    &conv_packed_weight_implementation,
    &conv_sm80_implementation,
    &conv_sm80_weight_implementation,
    &conv_im2col_implementation,
    &conv_naive_implementation,
    NULL,
};

static ckl_status view(const void *desc, void *view)
{
    const ckl_conv_desc *d = desc, sums = conv_sliced_desc(d), row = conv_in_one_row(d);
    const conv_tensor written = conv_tensor_of(d, conv_written(d));
    conv_prepared *p = view;
    p->desc = *d;
    p->written = (double)written.shape[0] * (double)written.stride[0];
    p->plain = conv_sm90_problem_of(d);
    p->sliced = p->plain;
    p->sliced.desc = sums;
    p->row = conv_sm90_problem_of(&row);
    p->halo = conv_halo_of(d);
    p->pointwise = conv_pointwise_of(d);
    p->kn2row = conv_kn2row_of(d);
    p->nchw = conv_nchw_of(d);
    for (conv_packed_way way = 0; way < CONV_WAYS; way++) {
        p->can[way] = conv_can_pack(d, way);
        if (!p->can[way])
            continue;
        p->packed[way] = conv_packed_of(d, way, d->direction != CKL_CONV_WEIGHT);
        p->sums[way] = conv_packed_of(&sums, way, false);
    }
    return CKL_OK;
}

OPERATOR_OF_VIEW(conv, conv, conv_prepared, "y = activation(x convolved with w + bias + residual), and gradients",
                 .workspace = offsetof(ckl_conv_args, workspace));
