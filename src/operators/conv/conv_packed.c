/*
 * conv_packed.c - the Hopper kernels for channels that lie apart (NCHW) or do not fill 16 bytes, by copies in a
 * workspace. Where little is written, taps and channels are in slices, whose sums another kernel adds and writes as y
 * lies.
 */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

static conv_packed_way way_of(const conv_packed_config *c)
{
    return c->fold ? CONV_FOLDED : CONV_PLAIN;
}

static const conv_packed_problem *problem_of(const void *desc, const conv_packed_config *c)
{
    const conv_prepared *p = desc;
    return &(c->conv.slices > 1 ? p->sums : p->packed)[way_of(c)];
}

/* y, and the gradient of data */

/* Nothing to copy, unless columns are folded. Rows of the gradient of data's filters have whole 128 bytes. */
static bool lies_plain(const ckl_conv_desc *d)
{
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(d->dtype), row = d->direction == CKL_CONV_DATA ? 8 * unit : unit;
    return d->layout == CKL_IMAGE_NHWC && d->c % row == 0 && d->k % unit == 0;
}

/* Too little is written for tiles of all SMs, and one launch makes it: may slices of taps and channels help? */
static bool can_slice(const conv_prepared *p, const ckl_device_info *device)
{
    enum { TILE = 2 * 128 * 128 };
    return p->plain.launches == 1 && p->desc.groups == 1 && p->desc.dtype != CKL_I8 &&
           p->written < (double)TILE * device->sm_count;
}

/* Each once more with boxes for three rows of a filter, if it has as many. Some are none, by tile_n=0. */
static void candidate_of_way(const conv_sm90_problem *inner, const ckl_device_info *device, int i, conv_sm90_config *c)
{
    if (!conv_sm90_candidate(inner, device, i % CONV_SM90_CANDIDATES, c))
        c->tile_n = 0;
    else if (i >= CONV_SM90_CANDIDATES)
        conv_sm90_load_tall(inner, device, c);
}

static bool candidate_whole(const conv_prepared *p, const ckl_device_info *device, int i, conv_packed_config *c)
{
    enum { UNIT = 8 };
    const ckl_conv_desc *d = &p->desc;
    const int64_t channels = round_up(d->c, UNIT); // 13 to 64 of 56x56 take 9.0 us folded, 6.6 by stem
    const bool whole = channels > UNIT && is_power_of_two(channels),
               can_fold = p->can[CONV_FOLDED] && d->direction == CKL_CONV_FORWARD && !whole;
    c->conv.slices = 1;
    c->nchw = d->layout == CKL_IMAGE_NCHW;
    const int of_way = CONV_SM90_CANDIDATES * (p->plain.may_be_tall ? 2 : 1);
    const int plain = lies_plain(d) ? 1 : of_way; // one says why not
    c->fold = i >= plain;
    i -= c->fold ? plain : 0;
    if (i >= of_way || (c->fold && !can_fold))
        return false;
    candidate_of_way(&p->packed[way_of(c)].inner, device, i, &c->conv);
    return true;
}

/* Each, where outputs are few, also in slices. */
static bool candidate_packed(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const conv_prepared *p = desc;
    conv_packed_config *c = config;
    const bool few = can_slice(p, device);
    if (!candidate_whole(p, device, few ? i / 2 : i, c))
        return false;
    if (few && i % 2 && !c->conv.im2col && !c->conv.tall) // those have no slices
        conv_sliced_choose(&p->sums[way_of(c)].inner, device, &c->conv);
    return true;
}

static plan_cost cost_packed(const void *desc, const ckl_device_info *device, const void *config)
{
    const double UNSURE = 1.05; // slices are taken where they promise more than that
    const conv_packed_config *c = config;
    const conv_packed_problem *p = problem_of(desc, c);
    conv_sm90_problem inner = p->inner;
    if (inner.desc.direction == CKL_CONV_DATA)
        inner.out = p->at[CONV_W].shape[4] / inner.desc.groups; // which no box reaches beyond
    const conv_sm90_work work = conv_sm90_work_of(&inner, &c->conv);
    plan_cost cost = conv_sm90_cost_of(&work, device, &c->conv);
    cost.us += p->copies_us;
    cost.us *= c->conv.slices > 1 ? UNSURE : 1;
    return cost;
}

static ckl_status admit_packed(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_prepared *prepared = desc;
    const ckl_conv_desc *d = desc;
    const conv_packed_config *c = config;
    if (c->nchw != (d->layout == CKL_IMAGE_NCHW))
        FAIL(CKL_INVALID, "conv packed: nchw=%d is not the problem's layout", c->nchw);
    TRY(conv_check_form("packed", d, &c->conv.form));
    if (c->conv.tile_n == 0)
        FAIL(CKL_INVALID, "conv packed: tile_n=0 filters are no tile");
    if (c->fold && (d->direction != CKL_CONV_FORWARD || !prepared->can[CONV_FOLDED]))
        FAIL(CKL_UNSUPPORTED, "conv packed: fold=1 takes up to %d channels and neighbouring columns, and no gradient",
             CONV_FOLDED_MAX);
    const conv_packed_problem *p = problem_of(desc, c);
    TRY(conv_sm90_admit(&p->inner, device, &c->conv));
    return conv_packed_check(d, p, c->fold || (c->conv.slices > 1 && !lies_plain(d)));
}

/* Sums of all slices. */
static int64_t bytes_of_sums(const conv_packed_problem *p, const conv_packed_config *c)
{
    return c->conv.slices * (int64_t)sizeof(float) * conv_sm90_sum_images(&p->inner.desc, &c->conv) *
           p->at[conv_written(&p->inner.desc)].stride[0];
}

static int64_t workspace_packed(const ckl_plan *plan)
{
    const conv_packed_config *c = plan->config;
    const conv_packed_problem *p = problem_of(plan->desc, c);
    return conv_packed_bytes(plan->desc, p) + (c->conv.slices > 1 ? bytes_of_sums(p, c) : 0);
}

void conv_packed(const void *config, int kernel)
{
    const conv_packed_config *c = config;
    const conv_form *form = &c->conv.form;
    if (kernel == CONV_PACKED_MAIN)
        conv_sm90(&c->conv, 0);
    else if (kernel == CONV_PACKED_OUT && c->conv.slices > 1)
        conv_add_packed(form, c->conv.slices, c->nchw);
    else if (kernel == CONV_PACKED_IN && c->nchw)
        conv_packed_turning(form->dtype, c->fold);
    else if (kernel == CONV_PACKED_IN)
        conv_pack(form->dtype, false, c->fold, false);
    else
        conv_pack(form->out, c->nchw, false, kernel == CONV_PACKED_OUT);
}

static ckl_status launch_packed(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_packed_config *c = plan->config;
    const conv_packed_problem *p = problem_of(d, c);
    const bool data = d->direction == CKL_CONV_DATA;
    const int in = conv_read(d), out = conv_written(d);
    ckl_conv_args a = *(const ckl_conv_args *)args;
    char *workspace = plan_workspace(plan, a.workspace);
    TRY(conv_packed_copy_both(plan, p, (const int[]){ in, CONV_W }, (const void **const[]){ data ? &a.dy : &a.x, &a.w },
                              &workspace, stream));
    if (c->conv.slices > 1)
        return conv_sliced_launch(plan, &c->conv, &p->inner.desc, &a, p->at, workspace, CONV_PACKED_OUT, stream);
    if (d->residual)
        TRY(conv_packed_copy_in(plan, p, CONV_PACKED_RESIDUAL, CONV_Y, &a.residual, &workspace, stream));
    void **to = data ? &a.dx : &a.y, *result = *to;
    if (p->copied[out])
        *to = workspace;
    if (!PLAN_ALIGNED(16, a.x, a.w, a.y, a.residual, a.dx, a.dy)) // operands or copies of them
        FAIL(CKL_INVALID, "conv packed: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    TRY(conv_sm90_launch(plan, &c->conv, &p->inner.desc, &a, p->at, stream));
    return p->copied[out] ? conv_packed_copy(plan, CONV_PACKED_OUT, p, out, result, *to, stream) : CKL_OK;
}

static const field packed_fields[] = { CONV_FORM(FIELD_NESTED, (conv_packed_config, conv.form))   //
                                       CONV_SM90_CONFIG(FIELD_NESTED, (conv_packed_config, conv)) //
                                       CONV_PACKED_CONFIG(FIELD_ROW, conv_packed_config) };

const implementation conv_packed_implementation = {
    CONV_RANKED(packed, conv_packed_config),
    .summary =
        "sm90 on copies: NCHW, channels that do not fill 16 bytes, few of them with the columns of a filter; Hopper",
    .describe = conv_packed,
    .kernels = CONV_PACKED_KERNELS,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_packed,
};

/* The gradient of weights. One slice is stored by TMA; the kernel that adds several writes it as it lies. */

static conv_packed_way way_of_weight(const conv_packed_weight_config *c)
{
    return c->patches ? CONV_FOLDED + (conv_packed_way)c->patches : c->fold ? CONV_FOLDED : CONV_PLAIN;
}

static const conv_packed_problem *packed_weight_of(const void *desc, const conv_packed_weight_config *c)
{
    return &conv_prepared_of(desc)->packed[way_of_weight(c)];
}

/* Does dw lie as the products do, in whole 16 bytes? */
static bool stores_products(const ckl_conv_desc *d, const conv_packed_weight_config *c)
{
    return d->layout == CKL_IMAGE_NHWC && !c->fold && d->c * (int64_t)ckl_dtype_bytes(d->out) % 16 == 0;
}

static bool candidate_packed_weight(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const conv_prepared *p = desc;
    conv_packed_weight_config *c = config;
    c->nchw = p->desc.layout == CKL_IMAGE_NCHW;
    for (conv_packed_way way = CONV_PLAIN; way < CONV_WAYS; way++) {
        const conv_sm90_problem *inner = &p->packed[way].inner;
        const int count = p->can[way] ? conv_weight_candidates(inner) : 0;
        if (i < count) {
            c->fold = way == CONV_FOLDED;
            c->patches = conv_has_patches(way) ? (choice)(way - CONV_FOLDED) : 0;
            return conv_weight_candidate(inner, device, i, stores_products(&p->desc, c) ? 1 : 2, &c->conv);
        }
        i -= count;
    }
    return false;
}

/* Bytes of an operand of the products. */
static double bytes_of(const conv_tensor *t)
{
    return 2 * (double)t->shape[0] * (double)t->stride[0];
}

/*
 * Zeros of few filters and folded columns cost less in tiles of 128: 5x5 of 16 channels of 16 images of 56x56 take 19.9
 * us, by 256 columns 23.8.
 */
static plan_cost cost_packed_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const double MEMORY = 4e6, BESIDE = 0.2, ALONE = 1; // bytes a us; what neither hides of the other; us of one slice
    const double FOLDED = 0.88;
    const conv_packed_weight_config *c = config;
    const conv_packed_problem *p = packed_weight_of(desc, c);
    plan_cost cost = conv_weight_cost(&p->inner, device, &c->conv);
    const double memory = (bytes_of(&p->at[CONV_X]) + bytes_of(&p->at[CONV_Y])) / MEMORY;
    cost.us *= c->fold && c->conv.tile_n == 128 && p->inner.out <= CONV_SM90_ROWS / 2 ? FOLDED : 1;
    cost.us = fmax(cost.us, memory) + BESIDE * fmin(cost.us, memory) + p->copies_us + (c->conv.slices == 1 ? ALONE : 0);
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
    if (c->fold && (c->patches || !conv_prepared_of(desc)->can[CONV_FOLDED]))
        FAIL(CKL_UNSUPPORTED, "conv packed_weight: fold=1 takes up to %d channels and neighbouring columns",
             CONV_FOLDED_MAX);
    if (c->patches && !conv_prepared_of(desc)->can[way_of_weight(c)])
        FAIL(CKL_UNSUPPORTED,
             "conv packed_weight: patches take images without groups, up to 256 taps and 256 channels, "
             "of dy strides of 1 without bias");
    if (c->conv.slices == 1 && !stores_products(d, c))
        FAIL(CKL_INVALID, "conv packed_weight: slices=1 stores filters of NHWC that are whole 16 bytes");
    const conv_packed_problem *p = packed_weight_of(desc, c);
    TRY(conv_weight_admit(&p->inner, device, &c->conv));
    return conv_packed_check(d, p, c->fold);
}

static int64_t workspace_packed_weight(const ckl_plan *plan)
{
    const conv_packed_weight_config *c = plan->config;
    const conv_packed_problem *p = packed_weight_of(plan->desc, c);
    return conv_packed_bytes(plan->desc, p) + conv_weight_workspace(&p->inner.desc, &c->conv);
}

void conv_packed_weight(const void *config, int kernel)
{
    const conv_packed_weight_config *c = config;
    const conv_packed_way way = way_of_weight(c);
    if (kernel == CONV_PACKED_MAIN)
        conv_sm90_weight(&c->conv, 0);
    else if (kernel == CONV_PACKED_IN && c->nchw)
        conv_packed_turning(c->conv.form.dtype, c->fold);
    else if (kernel == CONV_PACKED_IN)
        conv_pack(c->conv.form.dtype, false, c->fold, false);
    else if (kernel == CONV_PACKED_PATCHES)
        conv_write_patches(c->conv.form.dtype, way == CONV_PATCHES_Y);
    else
        conv_weight_add(&c->conv, way == CONV_FOLDED || way == CONV_PATCHES_X);
}

/* Copies of both operands, or patches of one and a copy of the other, where that does not lie as TMA takes it. */
static ckl_status launch_copies(const ckl_plan *plan, const conv_packed_weight_config *c, ckl_conv_args *a,
                                char **workspace, ckl_stream stream)
{
    const conv_prepared *prepared = plan->desc;
    const conv_packed_way way = way_of_weight(c);
    conv_packed_problem copies = prepared->packed[c->patches ? CONV_PLAIN : way];
    if (c->patches) {
        const bool of_x = way == CONV_PATCHES_X;
        copies.copied[of_x ? CONV_X : CONV_Y] = false;
        TRY(conv_patches_launch(plan, way, &prepared->packed[way], of_x ? &a->x : &a->dy, workspace, stream));
        if (!copies.copied[of_x ? CONV_Y : CONV_X])
            return CKL_OK;
    }
    return conv_packed_copy_both(plan, &copies, (const int[]){ CONV_X, CONV_Y },
                                 (const void **const[]){ &a->x, &a->dy }, workspace, stream);
}

static ckl_status launch_packed_weight(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const conv_packed_weight_config *c = plan->config;
    const conv_packed_problem *p = packed_weight_of(plan->desc, c);
    ckl_conv_args a = *(const ckl_conv_args *)args;
    char *workspace = plan_workspace(plan, a.workspace);
    TRY(launch_copies(plan, c, &a, &workspace, stream));
    a.workspace = workspace;
    return conv_weight_launch(plan, &c->conv, &p->inner.desc, &a, p->at, CONV_PACKED_ADD, p->channels[CONV_X], stream);
}

static const field packed_weight_fields[] = { CONV_FORM(FIELD_NESTED, (conv_packed_weight_config, conv.form))     //
                                              CONV_WEIGHT_CONFIG(FIELD_NESTED, (conv_packed_weight_config, conv)) //
                                              CONV_PACKED_WEIGHT_CONFIG(FIELD_ROW, conv_packed_weight_config) };

const implementation conv_packed_weight_implementation = {
    CONV_RANKED(packed_weight, conv_packed_weight_config),
    .summary = "sm90_weight on copies, as packed is sm90, or on patches of few channels or filters; Hopper",
    .describe = conv_packed_weight,
    .kernels = CONV_PACKED_WEIGHT_KERNELS,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_packed_weight,
};
