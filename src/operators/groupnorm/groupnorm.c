/* groupnorm.c - group norm of images: validation, choice of kernel, launch. */
#include "cutekernellib/operators/groupnorm.h"

#include "operators/groupnorm/groupnorm_config.h"
#include "operators/operators.h"
#include "plan/pieces.h"

enum {
    VECTOR_BYTES = 16,
    PIXEL_BYTES = 64, // of NHWC that a bundle should read side by side: two sectors
    REGISTERS = 16,   // of a thread: 16 elements of f32; half of it for 16-bit elements
    CLUSTER_MAX = 8,
    TILED_THREADS = 512,
    TILED_ELEMENTS = 16
};

/* Validation */

static ckl_status check(void *desc)
{
    ckl_groupnorm_desc *d = desc;
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = { { "n", d->n }, { "c", d->c }, { "h", d->h }, { "w", d->w } };
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "groupnorm: dtype=%s is none of f32, f16, bf16", ckl_dtype_name(d->dtype));
    if (d->layout != CKL_NCHW && d->layout != CKL_NHWC)
        FAIL(CKL_INVALID, "groupnorm: layout=%d is neither nchw nor nhwc", (int)d->layout);
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].size < 0)
            FAIL(CKL_INVALID, "groupnorm: %s=%" PRId64 " is negative", sizes[i].name, sizes[i].size);
    if (d->groups < 1 || d->c % d->groups)
        FAIL(CKL_INVALID, "groupnorm: groups=%" PRId64 " does not divide c=%" PRId64, d->groups, d->c);
    if (!(d->eps >= 0))
        FAIL(CKL_INVALID, "groupnorm: eps=%g is negative or no number", (double)d->eps);
    if (d->eps == 0)
        d->eps = 1e-5f;
    return CKL_OK;
}

static int64_t elements_of(const ckl_groupnorm_desc *d)
{
    return d->n * d->c * d->h * d->w;
}

enum { PIECES = 6, PIECES_IN_VECTORS = 4 }; // the statistics are written one by one

static void list_pieces(const ckl_groupnorm_desc *d, const ckl_groupnorm_args *x, plan_piece out[PIECES])
{
    const int64_t element = (int64_t)ckl_dtype_bytes(d->dtype), bytes = elements_of(d) * element;
    const int64_t weights = bytes && d->affine ? d->c * element : 0, statistics = bytes ? d->n * d->groups * 4 : 0;
    const plan_piece list[PIECES] = {
        { "x", x->x, bytes, element, false, 1 },
        { "gamma", x->gamma, weights, element, false, 0 },
        { "beta", x->beta, weights, element, false, 0 },
        { "y", x->y, bytes, element, true, 1 },
        { "mean", x->mean, x->mean ? statistics : 0, 4, true, 0 },
        { "rstd", x->rstd, x->rstd ? statistics : 0, 4, true, 0 },
    };
    for (int i = 0; i < PIECES; i++)
        out[i] = list[i];
}

static ckl_status check_args(const void *desc, const void *args)
{
    plan_piece pieces[PIECES];
    list_pieces(desc, args, pieces);
    return plan_check_pieces("groupnorm", pieces, PIECES);
}

/* Choice */

/* What a vector must divide: the neighbours that share a channel (NCHW), or the channels of a group (NHWC). */
static int64_t run_of(const ckl_groupnorm_desc *d)
{
    return d->layout == CKL_NCHW ? d->h * d->w : d->c / d->groups;
}

/* Elements of a pixel in a bundle, rounded up to vectors in a power of two: NHWC threads stay with their channels. */
static int64_t pixel_of(const ckl_groupnorm_desc *d, int bundle, int vec)
{
    int64_t pixel = vec;
    while (pixel < d->c / d->groups * bundle)
        pixel *= 2;
    return d->layout == CKL_NHWC ? pixel : 1;
}

static int64_t length_of(const ckl_groupnorm_desc *d, const groupnorm_config *c)
{
    return d->h * d->w * (d->layout == CKL_NHWC ? c->pixel : d->c / d->groups);
}

static int choose_bundle(const ckl_groupnorm_desc *d)
{
    int64_t pixel = d->c / d->groups * (int64_t)ckl_dtype_bytes(d->dtype);
    int bundle = 1;
    while (d->layout == CKL_NHWC && bundle < GROUPNORM_BUNDLE_MAX && d->groups % (2 * bundle) == 0 &&
           bundle * pixel < PIXEL_BYTES)
        bundle *= 2;
    return bundle;
}

/* Bundles that no registers hold: whole CTAs, as many for a bundle as it takes to keep the device busy. */
static row_split tiled_split(int64_t bundles, const ckl_device_info *device, int vec)
{
    row_split s = { TILED_THREADS, TILED_THREADS, 1, vec, TILED_ELEMENTS / vec, false };
    while (device->has_tma && s.cluster < CLUSTER_MAX && bundles * s.cluster < device->sm_count)
        s.cluster *= 2;
    return s;
}

/* A CTA whose threads are at least the vectors of a pixel. */
static row_split pixel_split(int64_t length, int pixel, int vec)
{
    int threads = (int)max_i64(32, pixel / vec);
    row_split s = { threads, threads, 1, vec, (int)ceil_div(length, (int64_t)threads * vec), false };
    return s;
}

static void choose_split(const ckl_groupnorm_desc *d, const ckl_device_info *device, groupnorm_config *c)
{
    row_split s;
    int64_t length = length_of(d, c);
    int wanted = d->dtype == CKL_F32 ? REGISTERS : REGISTERS / 2, cluster_max = device->has_tma ? CLUSTER_MAX : 1;
    c->tiled = !row_split_choose(length, c->vec, d->dtype, wanted, cluster_max, &s) &&
               !row_split_choose(length, c->vec, d->dtype, 2 * wanted, cluster_max, &s);
    if (!c->tiled && row_split_cols(&s) / s.steps % c->pixel) {
        s = pixel_split(length, c->pixel, c->vec);
        c->tiled = row_split_registers(&s, d->dtype) > 2 * wanted;
    }
    if (c->tiled)
        s = tiled_split(d->n * d->groups / c->bundle, device, c->vec);
    c->threads = s.threads;
    c->row_threads = s.row_threads;
    c->cluster = s.cluster;
    c->steps = s.steps;
    c->whole = s.whole && (d->layout == CKL_NCHW || c->pixel == d->c / d->groups * c->bundle);
}

static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_groupnorm_desc *d = desc;
    groupnorm_config *c = config;
    c->dtype = d->dtype;
    c->layout = (choice)d->layout;
    c->affine = d->affine;
    c->bundle = choose_bundle(d);
    c->vec = VECTOR_BYTES / (int)ckl_dtype_bytes(d->dtype);
    while (run_of(d) % c->vec)
        c->vec /= 2;
    c->pixel = (int)min_i64(INT32_MAX, pixel_of(d, c->bundle, c->vec));
    choose_split(d, device, c);
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_groupnorm_desc *d = desc;
    const groupnorm_config *c = config;
    if (c->dtype != d->dtype || c->layout != (choice)d->layout || c->affine != d->affine)
        FAIL(CKL_INVALID, "groupnorm bundle: dtype, layout and affine must be those of the problem");
    if (!is_power_of_two(c->bundle) || c->bundle > GROUPNORM_BUNDLE_MAX || d->groups % c->bundle)
        FAIL(CKL_INVALID, "groupnorm bundle: bundle=%d is no power of two up to %d that divides groups=%" PRId64,
             c->bundle, GROUPNORM_BUNDLE_MAX, d->groups);
    if (c->bundle > 1 && d->layout == CKL_NCHW)
        FAIL(CKL_INVALID, "groupnorm bundle: bundle=%d, but groups of nchw lie apart", c->bundle);
    row_split s = groupnorm_split(c);
    int64_t length = length_of(d, c);
    if (d->layout == CKL_NHWC && c->pixel != pixel_of(d, c->bundle, c->vec))
        FAIL(CKL_INVALID, "groupnorm bundle: pixel=%d is not %" PRId64 ", the channels of a bundle rounded up",
             c->pixel, pixel_of(d, c->bundle, c->vec));
    if (d->layout == CKL_NHWC && (row_split_cols(&s) / s.steps % c->pixel))
        FAIL(CKL_UNSUPPORTED, "groupnorm bundle: pixel=%d does not divide the elements of one vector a thread",
             c->pixel);
    if (c->tiled && (c->row_threads != c->threads || c->whole))
        FAIL(CKL_INVALID, "groupnorm bundle: tiled bundles have row_threads=threads and whole=0");
    TRY(row_split_admit("groupnorm bundle", &s, c->tiled ? min_i64(length, row_split_cols(&s)) : length, d->dtype,
                        device));
    if (run_of(d) % c->vec)
        FAIL(CKL_UNSUPPORTED, "groupnorm bundle: vec=%d does not divide %s", c->vec,
             d->layout == CKL_NCHW ? "h*w" : "the channels of a group");
    if (length > INT32_MAX || row_split_ctas(&s, d->n * d->groups / c->bundle) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "groupnorm bundle: more than %d elements of a bundle, or CTAs", INT32_MAX);
    return CKL_OK;
}

/* Launch */

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const groupnorm_config *c = plan->config;
    const ckl_groupnorm_args *x = args;
    if (elements_of(d) == 0)
        return CKL_OK;
    plan_piece pieces[PIECES];
    list_pieces(d, x, pieces);
    row_split s = groupnorm_split(c);
    int64_t rows = d->n * d->groups / c->bundle, bundles = d->groups / c->bundle;
    uint32_t length = (uint32_t)length_of(d, c), group_channels = (uint32_t)(d->c / d->groups);
    uint32_t pixels = (uint32_t)(d->h * d->w);
    float reciprocal = 1 / (float)(d->c / d->groups * d->h * d->w);
    /* in the order in which the kernel names them */
    const void *params[] = { &rows,   &length, &bundles,  &group_channels, &d->c, &pixels,  &reciprocal,
                             &d->eps, &x->x,   &x->gamma, &x->beta,        &x->y, &x->mean, &x->rstd };
    device_launch l = { .grid = { row_split_ctas(&s, rows), 1, 1 }, .params = (void *const *)params };
    int part = plan_pieces_aligned(pieces, PIECES_IN_VECTORS, c->vec) ? 0 : 1;
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

static const field groupnorm_fields[] = { GROUPNORM_CONFIG(FIELD_ROW) };

static const implementation bundle = {
    .name = "bundle",
    .summary =
        "a group, or of NHWC neighbouring groups, in the registers of lanes, a CTA or a cluster; or tile by tile",
    .config_bytes = sizeof(groupnorm_config),
    .config = FIELD_TABLE(groupnorm_fields),
    .choose = choose,
    .admit = admit,
    .describe = groupnorm_bundle,
    .kernels = 2,
    .target = IR_SM80,
    .launch = launch,
};

static const implementation *const implementations[] = { &bundle, NULL };

const operator_info groupnorm_operator = {
    .name = "groupnorm",
    .summary = "y = (x - mean) / sqrt(variance + eps) * gamma + beta of groups of channels",
    .desc_bytes = sizeof(ckl_groupnorm_desc),
    .args_bytes = sizeof(ckl_groupnorm_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_groupnorm_plan(ckl_device *device, const ckl_groupnorm_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &groupnorm_operator, desc, NULL, plan);
}

ckl_status ckl_groupnorm_run(const ckl_plan *plan, const ckl_groupnorm_args *args, ckl_stream stream)
{
    return plan_run(plan, &groupnorm_operator, args, stream);
}

ckl_status ckl_groupnorm(ckl_device *device, const ckl_groupnorm_desc *desc, const ckl_groupnorm_args *args,
                         ckl_stream stream)
{
    return plan_once(device, &groupnorm_operator, desc, args, stream);
}
