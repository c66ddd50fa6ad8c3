/* conv_skinny_plan.c - the host side of filters of one pixel with few channels on a side: configs, cost, launches. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"
#include "operators/conv/conv_skinny.h"
#include "skeletons/product_cost.h"

/*
 * The problem as a product of pixels, or of images that are rows of one, and a few channels on a side: elements from
 * row to row.
 */
typedef struct skinny_sizes {
    int64_t few, wide, pixels, few_pitch, wide_pitch, filter_pitch;
    bool wide_x;
} skinny_sizes;

static skinny_sizes sizes_of(const void *desc) // a prepared one
{
    const ckl_conv_desc *d = desc;
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    const bool data = d->direction == CKL_CONV_DATA, weight = d->direction == CKL_CONV_WEIGHT;
    const int64_t channels = data || weight ? product->n : product->k, x = data     ? product->ldd
                                                                           : weight ? product->ldb
                                                                                    : product->lda;
    const int64_t y = data || weight ? product->lda : product->ldd;
    const bool wide_x = channels >= d->k;
    return (skinny_sizes){ .few = min_i64(channels, d->k),
                           .wide = max_i64(channels, d->k),
                           .pixels = weight ? product->k : product->m,
                           .few_pitch = wide_x ? y : x,
                           .wide_pitch = wide_x ? x : y,
                           .filter_pitch = weight ? product->ldd : product->ldb,
                           .wide_x = wide_x };
}

/* Do all wide rows begin at whole vectors; and all rows of few channels, that are read? Filters lie along x. */
static bool wide_begins(const skinny_sizes *s, const conv_skinny_config *c)
{
    return s->wide % c->vec == 0 && s->wide_pitch % c->vec == 0 && (!s->wide_x || s->filter_pitch % c->vec == 0);
}

static bool few_begin(const skinny_sizes *s, const conv_skinny_config *c)
{
    return s->few % c->vec_few == 0 && s->few_pitch % c->vec_few == 0;
}

/* The longest vectors of neighbours' few filters, which lie apart where taps see nothing. */
static int few_filters(const skinny_sizes *s, const conv_skinny_config *c)
{
    const int64_t most = 16 / (int64_t)ckl_dtype_bytes(c->form.dtype), vector = power_of_two_in(c->vec * s->few);
    const bool side_by_side = s->filter_pitch == s->few;
    return s->wide_x ? 1 : (int)min_i64(most, side_by_side ? vector : power_of_two_in(s->few | s->filter_pitch));
}

/* CTAs beside each other, for all wide channels; tiles of pixels that they take in turn. */
static int64_t blocks_of(const skinny_sizes *s, const conv_skinny_config *c)
{
    return ceil_div(s->wide, skinny_width(c));
}

static int64_t tiles_of(const skinny_sizes *s, const conv_skinny_config *c)
{
    return ceil_div(s->pixels, (int64_t)skinny_groups(c) * c->ahead);
}

/* The share of a CTA's registers that has work. */
static double use_of(const skinny_sizes *s, const conv_skinny_config *c)
{
    return (double)skinny_groups(c) * (double)s->wide / (double)(blocks_of(s, c) * SKINNY_THREADS * c->vec * c->runs);
}

/* Lanes and runs that leave the fewest idle: lanes of one warp that add up, or of a CTA. */
static void share_channels(const skinny_sizes *s, conv_skinny_config *c)
{
    enum { APART = 8, TOGETHER = 64 }; // channels of a thread that need not add them up; bytes of lanes side by side
    const int bytes = (int)ckl_dtype_bytes(c->form.dtype);
    const double MORE = 1.25;
    const bool sums = skinny_sums_wide(c);
    const int kept = SKINNY_KEPT_MAX / (c->vec * c->few),
              most = sums ? kept : (int)min_i64(kept, max_i64(1, APART / c->vec));
    conv_skinny_config best = *c;
    double use = 0;
    for (c->runs = 1; c->runs <= min_i64(most, SKINNY_RUNS_MAX); c->runs++) {
        const int64_t lanes = ceil_div(s->wide, (int64_t)c->vec * c->runs);
        c->lanes = (int)ceil_div(lanes, ceil_div(lanes, sums ? SKINNY_LANES : SKINNY_THREADS));
        if (sums ? lanes > SKINNY_LANES : c->runs > 1 && c->lanes * c->vec * bytes < TOGETHER)
            continue;
        const double now = use_of(s, c);
        if (now > use * (sums ? MORE : 1 / 1.05)) { // vectors of a thread share what they load of the few
            best = *c;
            use = now;
        }
    }
    *c = best;
}

/*
 * Lanes that add up in three steps, of whole rows: of odd channels each has more of them, and a warp more pixels. 41 to
 * 3 of data of 512x512 take 29.6 us by seven lanes, 44.8 by 14. lanes=0: it has no registers for that.
 */
static void share_with_few(const skinny_sizes *s, conv_skinny_config *c)
{
    enum { FEW_LANES = 8 };
    const int64_t runs = ceil_div(s->wide, FEW_LANES * c->vec);
    const bool fit = runs <= SKINNY_RUNS_MAX && runs * c->vec * c->few <= SKINNY_KEPT_MAX;
    c->runs = fit ? (int)runs : 1;
    c->lanes = fit ? (int)ceil_div(s->wide, runs * c->vec) : 0;
}

/* Slices for all SMs, but no second launch for what a CTA does in a few turns. */
static int slices_of(const skinny_sizes *s, const conv_skinny_config *c, const ckl_device_info *device)
{
    enum { TURNS = 4, CTAS = 2 * SKINNY_CTAS };
    const int64_t tiles = tiles_of(s, c), ctas = ceil_div((int64_t)CTAS * device->sm_count, blocks_of(s, c));
    return tiles <= TURNS ? 1 : (int)min_i64(min_i64(ctas, ceil_div(tiles, 2)), SKINNY_SLICES_MAX);
}

static bool candidate_skinny(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { VECTOR_BYTES = 16, WORD = 4, BYTES_AHEAD = 64, VALUES = 32, NARROW = 8 };
    const ckl_conv_desc *d = desc;
    const skinny_sizes s = sizes_of(desc);
    const int bytes = (int)ckl_dtype_bytes(d->dtype);
    conv_skinny_config *c = config;
    c->form = conv_form_of(d);
    c->few = (int)s.few;
    c->wide_x = s.wide_x;
    if (i > (skinny_sums_wide(c) ? 1 : 0))
        return false;
    if (s.few < 1 || s.few > SKINNY_FEW_MAX)
        return true; // admission says so
    c->vec = c->vec_few = VECTOR_BYTES / bytes;
    while (c->vec > 1 && (!wide_begins(&s, c) || c->vec * c->few > SKINNY_KEPT_MAX))
        c->vec /= 2;
    while (c->vec_few > 1 && !few_begin(&s, c))
        c->vec_few /= 2;
    c->vec_w = 1;
    c->ahead = 1;
    (i == 0 ? share_channels : share_with_few)(&s, c);
    if (c->lanes == 0)
        return true;
    while (d->direction != CKL_CONV_WEIGHT && !skinny_sums_wide(c) && c->vec * bytes > WORD &&
           tiles_of(&s, c) * blocks_of(&s, c) < device->sm_count)
        c->vec /= 2; // 5 to 16 of 16 images of 8x8: 1.75 us by 16 bytes, 1.52 by four
    c->vec_w = few_filters(&s, c);
    while (!skinny_sums_wide(c) && c->lanes > NARROW && tiles_of(&s, c) * blocks_of(&s, c) < device->sm_count)
        c->lanes = (int)ceil_div(c->lanes, 2);
    while (2 * c->ahead * c->vec * c->runs * bytes <= BYTES_AHEAD && 2 * c->ahead * c->few <= VALUES &&
           c->ahead < SKINNY_AHEAD_MAX && tiles_of(&s, c) * blocks_of(&s, c) > 2 * SKINNY_CTAS * device->sm_count)
        c->ahead *= 2;
    c->slices = d->direction == CKL_CONV_WEIGHT ? slices_of(&s, c, device) : 1;
    return true;
}

static ckl_status check_config(const ckl_conv_desc *d, const conv_skinny_config *c)
{
    const skinny_sizes s = sizes_of(d);
    const int most = 16 / (int)ckl_dtype_bytes(d->dtype);
    if (c->few != s.few || c->wide_x != s.wide_x)
        FAIL(CKL_INVALID, "conv skinny: few=%d or wide_x=%d is not that of c=%" PRId64 " and k=%" PRId64, c->few,
             c->wide_x, d->c, d->k);
    if (!is_power_of_two(c->vec) || c->vec > most || !wide_begins(&s, c) || !is_power_of_two(c->vec_few) ||
        c->vec_few > most || !few_begin(&s, c))
        FAIL(CKL_INVALID, "conv skinny: vec=%d or vec_few=%d does not divide 16 bytes, the channels or a pitch", c->vec,
             c->vec_few);
    if (!is_power_of_two(c->vec_w) || c->vec_w > few_filters(&s, c))
        FAIL(CKL_INVALID, "conv skinny: vec_w=%d does not divide the few filters of %d neighbours", c->vec_w, c->vec);
    if (c->runs < 1 || c->runs > SKINNY_RUNS_MAX || c->vec * c->runs * c->few > SKINNY_KEPT_MAX || c->ahead < 1 ||
        c->ahead > SKINNY_AHEAD_MAX)
        FAIL(CKL_INVALID, "conv skinny: runs=%d vectors of vec=%d by few=%d, or ahead=%d, are more than registers hold",
             c->runs, c->vec, c->few, c->ahead);
    if (c->lanes < 1 || c->lanes > (skinny_sums_wide(c) ? SKINNY_LANES : SKINNY_THREADS) ||
        (skinny_sums_wide(c) && skinny_width(c) < s.wide))
        FAIL(CKL_INVALID, "conv skinny: lanes=%d of %d channels each are none, or not in one warp or CTA", c->lanes,
             c->vec * c->runs);
    if (c->slices < 1 || c->slices > (d->direction == CKL_CONV_WEIGHT ? SKINNY_SLICES_MAX : 1))
        FAIL(CKL_INVALID, "conv skinny: slices=%d are not in 1..%d, or of no gradient of weights", c->slices,
             SKINNY_SLICES_MAX);
    return CKL_OK;
}

static ckl_status admit_skinny(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_skinny_config *c = config;
    const skinny_sizes s = sizes_of(desc);
    (void)device;
    TRY(conv_pointwise_check_pixels(desc));
    if (d->groups > 1 || d->dtype == CKL_I8 || (d->direction == CKL_CONV_WEIGHT && d->bias))
        FAIL(CKL_UNSUPPORTED, "conv skinny: it takes floats without groups, and no gradient of the bias");
    if (s.few < 1 || s.few > SKINNY_FEW_MAX)
        FAIL(CKL_UNSUPPORTED, "conv skinny: c=%" PRId64 " and k=%" PRId64 ", of which none is in 1..%d", d->c, d->k,
             SKINNY_FEW_MAX);
    if (s.wide > INT16_MAX || s.pixels > INT32_MAX / 2)
        FAIL(CKL_UNSUPPORTED, "conv skinny: %" PRId64 " channels or %" PRId64 " pixels are beyond its numbers", s.wide,
             s.pixels);
    TRY(conv_check_form("skinny", d, &c->form));
    return check_config(d, c);
}

static int64_t workspace_skinny(const ckl_plan *plan)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_skinny_config *c = plan->config;
    const skinny_sizes s = sizes_of(d);
    return c->slices == 1 ? 0 : c->slices * s.few * s.wide * (int64_t)sizeof(float);
}

static conv_params params_of_product(const ckl_plan *plan, const ckl_conv_args *a, const skinny_sizes *s)
{
    const ckl_conv_desc *d = plan->desc;
    conv_params p = conv_params_of(plan, d, a);
    const ckl_gemm_args matrices = conv_pointwise_matrices(d, a);
    if (d->direction != CKL_CONV_WEIGHT)
        p.from[CONV_W] = matrices.b; // from the tap on that sees something
    p.c = s->wide_x ? s->wide : s->few;
    p.k = s->wide_x ? s->few : s->wide;
    p.n = s->pixels;
    p.x_size[0] = p.x_size[1] = p.x_size[2] = 1;
    p.x[CONV_MODES] = s->wide_x ? s->wide_pitch : s->few_pitch;
    p.y[CONV_MODES] = s->wide_x ? s->few_pitch : s->wide_pitch;
    p.w[0] = s->filter_pitch;
    return p;
}

static ckl_status launch_skinny(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_skinny_config *c = plan->config;
    const skinny_sizes s = sizes_of(d);
    const int64_t blocks = blocks_of(&s, c), resident = max_i64(1, plan->kernels[0].clusters_resident / blocks);
    const bool of_weights = d->direction == CKL_CONV_WEIGHT;
    conv_params p = params_of_product(plan, a, &s);
    p.sums = plan_workspace(plan, a->workspace);
    const int64_t bytes = (int64_t)ckl_dtype_bytes(d->dtype), out = (int64_t)ckl_dtype_bytes(d->out);
    const void *wide = p.from[skinny_wide_side(c)], *few = p.from[skinny_few_side(c)];
    const bool spread = !of_weights && !skinny_sums_wide(c);
    if (!PLAN_ALIGNED(c->vec * (spread ? min_i64(out, 16 / c->vec) : bytes), wide, spread ? a->residual : NULL) ||
        (!of_weights && !PLAN_ALIGNED(skinny_filter_vector(c) * bytes, a->w)) ||
        (!skinny_sums_wide(c) && !PLAN_ALIGNED(c->vec_few * bytes, few)))
        FAIL(CKL_INVALID,
             "conv skinny: a pointer is not aligned to vec=%d elements; config='vec=1 vec_few=1 vec_w=1' takes any",
             c->vec);
    const plan_grid grid = { of_weights ? c->slices : min_i64(tiles_of(&s, c), resident), blocks, 1 };
    TRY(plan_launch(plan, 0, grid, &p, stream));
    return c->slices == 1
               ? CKL_OK
               : plan_launch(plan, 1, (plan_grid){ .x = ceil_div(s.few * s.wide, SKINNY_LANES) }, &p, stream);
}

/*
 * Instructions of a thread for a pixel: RATE a cycle and SM. A warp's store of elements of 2 bytes takes some 5 cycles
 * more. 4 to 1280 of 64 images of 25x25 take 28.0 us, 3 to 151 of 32x32 14.0.
 */
static plan_cost cost_skinny(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LOAD = 4, LANE = 3, WAIT = 900, START = 0.1, SUMS = 1.6, SUM_BYTES = 5e6; // of slices, a us
    const ckl_conv_desc *d = desc;
    const conv_skinny_config *c = config;
    const skinny_sizes s = sizes_of(desc);
    const bool of_weights = d->direction == CKL_CONV_WEIGHT;
    const double STORE = c->vec * (int)ckl_dtype_bytes(d->out) < 4 ? 12 : 8, RATE = of_weights ? 2.5 : 3;
    const double products = c->runs * c->vec * (c->few + 1.0), narrow = c->few * (LOAD / c->vec_few + 1);
    const double pixel =
        products + (skinny_sums_wide(c) ? c->runs * LOAD + c->few * (LANE * ceil(log2(c->lanes)) + STORE)
                    : of_weights        ? c->runs * LOAD + narrow
                                        : c->runs * STORE + narrow);
    const double elements = (double)s.pixels * (double)(s.wide + s.few);
    const double sums = 2.0 * 4 * c->slices * (double)s.few * (double)s.wide; // bytes, there and back
    // a slice's pixels are waited for one after the other: 16 to 96 channels of 11 images of 7x7 take 4.8 us
    const double tiles = of_weights ? c->slices : (double)tiles_of(&s, c);
    return product_cost(&(product_work){ .tiles = tiles * (double)blocks_of(&s, c),
                                         .ctas = SKINNY_CTAS,
                                         .steps = (double)tiles_of(&s, c) / tiles,
                                         .multiply_adds = c->ahead * pixel * SKINNY_THREADS / SKINNY_LANES,
                                         .rate = RATE,
                                         .step_cycles = WAIT,
                                         .bytes = elements * (double)ckl_dtype_bytes(d->dtype),
                                         .us = START + (c->slices > 1 ? SUMS + sums / SUM_BYTES : 0) },
                        device);
}

static const field skinny_fields[] = CONV_FIELDS(conv_skinny_config, CONV_SKINNY_CONFIG);

const implementation conv_skinny_implementation = {
    CONV_RANKED(skinny, conv_skinny_config),
    .summary = "filters of one pixel, few channels on one side: vectors at memory's speed, no tensor cores; NHWC",
    .rivals = { &conv_pointwise_unaligned_implementation, &conv_pointwise_pitched_implementation,
                &conv_narrow_implementation, &conv_stem_implementation, &conv_pointwise_implementation,
                &conv_sm90_implementation, &conv_packed_implementation, &conv_sm90_weight_implementation,
                &conv_packed_weight_implementation },
    .describe = conv_skinny,
    .kernels = 2,
    .params = &conv_param_list,
    .workspace_bytes = workspace_skinny,
};
