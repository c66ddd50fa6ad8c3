/* conv_sm90_plan.c - the host side of the Hopper kernel: configs to consider, what it takes. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

enum { THREE_LEAST = 16 };                     // stages of a tile of three consumers, which were measured at 18
enum { HELD_MAX = 32, HELD_BYTES = 64 << 10 }; // stages; of filters

/* Columns of a staging buffer: the widest rows of 128, 64 or 32 bytes that divide the filters of a CTA. */
static int y_cols_of(int filters, int out)
{
    int bytes = 128;
    while (bytes > 32 && filters % (bytes / out))
        bytes /= 2;
    return bytes / out;
}

conv_sm90_shape conv_sm90_memory(const conv_sm90_config *c)
{
    const int rows = CONV_SM90_ROWS, out = (int)ckl_dtype_bytes(c->form.out);
    const int bytes = (int)ckl_dtype_bytes(c->form.dtype), step = 32 / bytes; // of wgmma
    conv_sm90_shape s = { .tile_m = rows * c->consumers, .y_cols = y_cols_of(c->tile_n, out) };
    s.taps = c->tall ? CONV_SM90_TALL : 1;
    s.slots = s.taps * (c->held ? c->held : c->stages);
    s.x_images = c->box_w * (c->box_h + s.taps - 1);
    s.x_rows = s.x_images * c->box_n;
    s.y_boxes = c->tile_n / s.y_cols;
    s.buffers = CONV_SM90_BUFFERS * (c->form.residual ? s.y_boxes : 1);
    s.span = c->tile_k * bytes <= 32 ? 32 : c->tile_k * bytes <= 64 ? 64 : 128;
    s.depth = (c->tile_k + step - 1) / step * step;
    s.w_k = c->tile_k / c->together;
    s.w_span = c->together > 1 ? s.w_k * bytes : s.span;
    s.w_depth = c->together > 1 ? s.w_k : s.depth;
    const int64_t filters = (int64_t)s.taps * c->tile_n,
                  room = filters * (conv_sm90_n_major(c) ? s.depth * bytes : s.w_span); // of a stage
    s.w_bytes = filters * s.w_k * bytes;
    s.x_bytes = (int64_t)s.x_rows * c->tile_k * bytes;
    s.stage_room = (int64_t)s.x_rows * s.span + (c->held ? 0 : room);
    s.rooms = c->held * room + c->stages * s.stage_room;
    s.smem_bytes = s.rooms + c->stages * 16 + (int64_t)c->consumers * (s.buffers * rows * s.y_cols * out + 16);
    return s;
}

conv_sm90_shape conv_sm90_shape_of(const conv_sm90_config *c)
{
    const int rows = CONV_SM90_ROWS, plane = c->box_w * c->box_h;
    conv_sm90_shape s = conv_sm90_memory(c);
    s.consumer_w = c->box_w < rows ? c->box_w : rows;
    s.consumer_h = c->box_h < rows / s.consumer_w ? c->box_h : rows / s.consumer_w;
    s.consumer_n = rows / (s.consumer_w * s.consumer_h);
    s.next_w = c->box_w > rows ? rows : 0;
    s.next_h = c->box_w <= rows && plane > rows ? rows / c->box_w : 0;
    s.next_n = plane <= rows ? rows / plane : 0;
    return s;
}

static conv_box box_of(const conv_sm90_config *c)
{
    return (conv_box){ c->box_w, c->box_h, c->box_n };
}

double conv_sm90_tiles(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    const int64_t groups = p->desc.groups / c->together, images = p->desc.n; // groups take the place of slices
    const int64_t at[CONV_MODES] = { max_i64(p->places[0], groups), p->places[1], p->places[2] };
    const double pixels = c->im2col
                              ? ceil((double)images * (double)at[1] * (double)at[2] / (CONV_SM90_ROWS * c->consumers))
                              : conv_boxes(at, images, box_of(c));
    return pixels * (double)ceil_div(p->out * c->together, c->tile_n);
}

static int stages_of(const conv_sm90_config *c, const ckl_device_info *device)
{
    conv_sm90_config one = *c;
    one.stages = 1;
    const conv_sm90_shape shape = conv_sm90_memory(&one);
    return conv_stages_of(device, shape.smem_bytes, shape.stage_room + 16);
}

static void set_box(conv_sm90_config *c, conv_box box)
{
    c->box_w = box.w;
    c->box_h = box.h;
    c->box_n = box.n;
}

/*
 * Channels of a stage: rows of 128 bytes, halves or quarters, or equal shares of the channels. 0: those are one of the
 * others.
 */
static int depth_of(const conv_sm90_problem *p, int i)
{
    enum { LAST = 3, UNIT = 16 };
    const int bytes = (int)ckl_dtype_bytes(p->desc.dtype), whole = 128 / bytes;
    if (i < LAST)
        return whole >> i;
    const int64_t channels = max_i64(1, p->in);
    const int exact = (int)round_up(ceil_div(channels, ceil_div(channels, whole)), UNIT / bytes);
    const bool own = exact != whole && exact != whole / 2 && exact != whole / 4;
    return own ? exact : 0;
}

/* Filters of a CTA: wide tiles, or equal shares of all filters. 0: those are one of the others. */
static int width_of(const conv_sm90_problem *p, int i)
{
    enum { WIDE = 4 };
    const int unit = p->desc.direction == CKL_CONV_DATA ? CONV_SM90_SPAN : CONV_SM90_N, widest = WIDE * CONV_SM90_SPAN;
    if (i < WIDE)
        return (i + 1) * CONV_SM90_SPAN;
    const int64_t filters = max_i64(1, p->out), shares = ceil_div(filters, widest) + i - WIDE;
    const int64_t own = round_up(ceil_div(filters, shares), unit),
                  wider = round_up(ceil_div(filters, max_i64(1, shares - 1)), unit);
    return own % CONV_SM90_SPAN == 0 || (i > WIDE && own == wider) ? 0 : (int)own;
}

static ckl_status check_rows(const conv_sm90_problem *p)
{
    if (p->desc.layout != CKL_IMAGE_NHWC)
        FAIL(CKL_UNSUPPORTED, "conv sm90: layout=nchw has its channels apart");
    if (!p->whole)
        FAIL(CKL_UNSUPPORTED, "conv sm90: c=%" PRId64 " or k=%" PRId64 " channels are not whole 16 bytes", p->desc.c,
             p->desc.k);
    return CKL_OK;
}

/* Channels of a stage, consumers and filters: all but the stages. */
static bool candidate_tile(const conv_sm90_problem *p, int i, conv_sm90_config *c)
{
    enum { WIDTHS = CONV_SM90_WIDTHS };
    const ckl_conv_desc *d = &p->desc;
    const bool data = d->direction == CKL_CONV_DATA;
    const bool taken = d->dtype != CKL_F32 || (d->math != CKL_GEMM_F32 && !data); // else one candidate, to say why not
    if (i >= (taken ? CONV_SM90_CANDIDATES : 1))
        return false;
    c->tile_k = depth_of(p, i / (2 * WIDTHS));
    if (c->tile_k == 0)
        return false;
    i %= 2 * WIDTHS;
    c->form = conv_form_of(d);
    c->tile_n = width_of(p, i % WIDTHS);
    c->consumers = 2 - i / WIDTHS;
    c->step_w = data ? 1 : (int)d->stride_w;
    c->step_h = data ? 1 : (int)d->stride_h;
    c->grouped = d->groups > 1;
    c->zeros = p->has_unseen;
    c->im2col = c->tall = false;
    c->held = 0;
    c->together = 1;
    set_box(c, p->box[c->consumers - 1]);
    return true;
}

bool conv_sm90_candidate(const conv_sm90_problem *p, const ckl_device_info *device, int i, conv_sm90_config *c)
{
    if (!candidate_tile(p, i, c))
        return false;
    c->stages = stages_of(c, device);
    return true;
}

/* Pixels in the order of memory, by TMA's im2col mode, whose tiles are no powers of two. */
static void follow_rows(conv_sm90_config *c, int consumers)
{
    c->im2col = true;
    c->consumers = consumers;
    c->box_w = CONV_SM90_ROWS * c->consumers;
    c->box_h = c->box_n = 1;
}

/*
 * Groups that share a tile, each multiplied by its own filters: as many as fill rows of 128 bytes and 64 filters. 1:
 * none.
 */
static int groups_together(const ckl_conv_desc *d)
{
    const int64_t channels = d->c / d->groups, filters = d->k / d->groups;
    const bool fits = d->direction == CKL_CONV_FORWARD && ckl_dtype_bytes(d->dtype) == 2 && channels == filters &&
                      (channels == CONV_SM90_K / 2 || channels == CONV_SM90_K / 4);
    const int together = fits ? (int)(CONV_SM90_K / channels) : 1;
    return d->groups % together ? 1 : together;
}

/* Tall stages of a tile. */
static int64_t tall_stages(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    return p->taps / CONV_SM90_TALL * ceil_div(p->in, c->tile_k);
}

/* May filters stay? They are those of one tile, and all taps see something. */
static bool may_hold(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    const ckl_conv_desc *d = &p->desc;
    return d->groups == 1 && p->out <= c->tile_n && p->taps == d->t * d->r * d->s && tall_stages(p, c) <= HELD_MAX;
}

/*
 * held: the filters stay; where they may not, or are many, the candidate is none. 63 KB of 56 to 48 channels gain; with
 * 72 KB 64 of 56x56 take 16.3 us, 14.5 if they come anew.
 */
static void load_tall(const conv_sm90_problem *p, conv_sm90_config *c, bool held)
{
    c->tall = true;
    set_box(c, p->tall_box[c->consumers - 1]);
    if (!held)
        return;
    c->held = (int)min_i64(tall_stages(p, c), HELD_MAX);
    c->tile_n = may_hold(p, c) && c->held * conv_sm90_memory(c).w_bytes <= HELD_BYTES ? c->tile_n : 0;
}

void conv_sm90_load_tall(const conv_sm90_problem *p, const ckl_device_info *device, conv_sm90_config *c)
{
    load_tall(p, c, false);
    c->stages = stages_of(c, device);
}

/*
 * One for groups that share tiles; then each for boxes and for pixels that follow each other, there also with three
 * consumers; and for boxes of all rows of a filter, with and without these.
 */
static bool candidate_sm90(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const conv_sm90_problem *p = &conv_prepared_of(desc)->plain;
    const ckl_conv_desc *d = &p->desc;
    conv_sm90_config *c = config;
    if (check_rows(p) != CKL_OK)
        return i == 0; // to say why not
    const int together = groups_together(d), orders = d->groups > 1 ? 1 : p->may_be_tall ? 7 : 3;
    if (together > 1 && i-- == 0) {
        candidate_tile(p, 0, c);
        c->together = together;
        c->stages = stages_of(c, device);
        return true;
    }
    if (!candidate_tile(p, i / orders, c))
        return false;
    const int order = i % orders;
    const bool three = order > 0 && order % 2 == 0;
    if (three && (c->consumers == 1 || p->taps * ceil_div(p->in, c->tile_k) < THREE_LEAST))
        c->tile_n = 0;
    if (three)
        c->consumers = CONV_SM90_CONSUMERS;
    if (order > 2)
        load_tall(p, c, order > 4);
    else if (order > 0)
        follow_rows(c, c->consumers);
    c->stages = stages_of(c, device);
    return true;
}

static plan_cost cost_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_sm90_work work = conv_sm90_work_of(&conv_prepared_of(desc)->plain, config);
    return conv_sm90_cost_of(&work, device, config);
}

static ckl_status check_together(const ckl_conv_desc *d, const conv_sm90_config *c)
{
    if (c->together == 1 ||
        (c->together == groups_together(d) && c->tile_k == CONV_SM90_K && c->tile_n == CONV_SM90_K && c->slices == 1))
        return CKL_OK;
    FAIL(CKL_UNSUPPORTED,
         "conv sm90: together=%d groups do not fill a tile of 64 channels and 64 filters, or it is shared by CTAs",
         c->together);
}

/* May one box serve all rows of the filter? A swizzle repeats after 8 pixels. */
static ckl_status check_tall(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    if (c->held < 0 || c->held > (c->tall ? HELD_MAX : 0))
        FAIL(CKL_INVALID, "conv sm90: held=%d is not in 0..%d, of tall=1", c->held, HELD_MAX);
    if (!c->tall)
        return CKL_OK;
    if (!p->may_be_tall)
        FAIL(CKL_UNSUPPORTED,
             "conv sm90: tall=1 takes filters of %d rows that all see something, in rows of stride and dilation 1",
             CONV_SM90_TALL);
    if (c->im2col || c->slices > 1 || c->together > 1)
        FAIL(CKL_UNSUPPORTED, "conv sm90: tall=1 takes no im2col, slices or groups together");
    if (c->box_w % 8 || c->box_w > CONV_SM90_ROWS || (int64_t)c->box_w * c->box_h % CONV_SM90_ROWS)
        FAIL(CKL_UNSUPPORTED, "conv sm90: tall=1, but a box of %dx%d has no whole rows of 8 for each consumer",
             c->box_h, c->box_w);
    return CKL_OK;
}

static ckl_status check_held(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    if (c->held && (!may_hold(p, c) || c->held != tall_stages(p, c)))
        FAIL(CKL_UNSUPPORTED, "conv sm90: held=%d are not the stages of all filters, of one tile and no group",
             c->held);
    return CKL_OK;
}

/* Do corners and taps fit the numbers of the im2col mode? */
static ckl_status check_im2col(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    const ckl_conv_desc *d = &p->desc;
    if (!c->im2col)
        return CKL_OK;
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    if (d->groups / c->together > 1 || conv_is_volume(d) || conv_is_view(d) || p->launches > 1 || c->slices > 1)
        FAIL(CKL_UNSUPPORTED,
             "conv sm90: im2col=1 takes dense images, without groups or slices, and of data strides of 1");
    for (int i = 1; i < CONV_MODES; i++) {
        int64_t lower, upper;
        if (!conv_find_corners(&m[i], d->direction == CKL_CONV_DATA, &lower, &upper))
            FAIL(CKL_UNSUPPORTED,
                 "conv sm90: im2col=1 takes filters, padding and strides that reach less than 128 pixels");
    }
    if ((double)d->n * (double)m[1].y * (double)m[2].y > INT32_MAX ||
        (double)d->n * (double)m[1].x * (double)m[2].x > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sm90: im2col=1 counts pixels in 32 bits");
    return CKL_OK;
}

static ckl_status check_problem(const conv_sm90_problem *p, const ckl_device_info *device, const conv_sm90_config *c)
{
    const ckl_conv_desc *d = &p->desc;
    const int64_t groups = d->groups / c->together; // of tiles
    const int unit = 16 / (int)ckl_dtype_bytes(d->dtype);
    const bool data = d->direction == CKL_CONV_DATA;
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "conv sm90: %s has no wgmma", device->id);
    TRY(conv_check_form("sm90", d, &c->form));
    TRY(conv_check_vectors("sm90", d));
    if (d->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv sm90: it does not compute the gradient of weights");
    if (d->dtype == CKL_F32 && (data || d->math == CKL_GEMM_F32))
        FAIL(CKL_UNSUPPORTED, "conv sm90: tensor cores multiply f32 with math=tf32 alone, and no gradient");
    if (c->grouped != (d->groups > 1))
        FAIL(CKL_INVALID, "conv sm90: grouped=%d, but the problem has %" PRId64 " groups", c->grouped, d->groups);
    if (d->groups > 1 && conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv sm90: groups=%" PRId64 " of volumes are convolved by other kernels", groups);
    if (groups > 1 && (d->c / groups % unit || d->k / groups % 8))
        FAIL(CKL_UNSUPPORTED, "conv sm90: the channels of groups=%" PRId64 " are not whole 16 bytes", groups);
    if (d->c == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "conv sm90: c=%" PRId64 " and k=%" PRId64 " leave no products", d->c, d->k);
    if (!data && (d->stride_d > 1 || d->stride_h > 8 || d->stride_w > 8))
        FAIL(CKL_UNSUPPORTED, "conv sm90: TMA takes strides of up to 8, and of slices 1");
    if (data && p->launches > CONV_SM90_LAUNCHES)
        FAIL(CKL_UNSUPPORTED, "conv sm90: strides of %" PRId64 "x%" PRId64 "x%" PRId64 " are more than %d launches",
             d->stride_d, d->stride_h, d->stride_w, CONV_SM90_LAUNCHES);
    return CKL_OK;
}

/* Sides are powers of two, but of three consumers three times one. */
static ckl_status check_box(const conv_sm90_config *c)
{
    const int times =
        c->consumers == CONV_SM90_CONSUMERS && c->box_h % CONV_SM90_CONSUMERS == 0 ? CONV_SM90_CONSUMERS : 1;
    const conv_box box = { c->box_w, c->box_h / times, c->box_n };
    return conv_check_box("sm90", box, CONV_SM90_ROWS * c->consumers / times, c->step_w, c->step_h);
}

static ckl_status check_tile(const conv_sm90_problem *p, const ckl_device_info *device, const conv_sm90_config *c)
{
    const ckl_conv_desc *d = &p->desc;
    const int unit = 16 / (int)ckl_dtype_bytes(d->dtype), deepest = 8 * unit; // a row of 128 bytes
    const bool data = d->direction == CKL_CONV_DATA;
    if (c->step_w != (data ? 1 : d->stride_w) || c->step_h != (data ? 1 : d->stride_h))
        FAIL(CKL_INVALID, "conv sm90: step_w=%d step_h=%d are not the problem's strides", c->step_w, c->step_h);
    if (c->zeros)
        TRY(conv_check_dense("sm90, by zeros=1,", d));
    if (c->zeros && !p->has_unseen)
        FAIL(CKL_INVALID, "conv sm90: zeros=1, but taps see all pixels or none, or rows are beyond 32-bit numbers");
    if (c->consumers < 1 || c->consumers > (c->im2col || c->tall ? 3 : 2)) // boxes are powers of two
        FAIL(CKL_INVALID, "conv sm90: consumers=%d is not in 1..2, or 3 with im2col=1 or tall=1", c->consumers);
    if (c->tile_k < unit || c->tile_k % unit || c->tile_k > deepest)
        FAIL(CKL_INVALID, "conv sm90: tile_k=%d is no multiple of %d up to %d", c->tile_k, unit, deepest);
    if (!c->im2col)
        TRY(check_box(c));
    else if (c->box_w != CONV_SM90_ROWS * c->consumers || c->box_h != 1 || c->box_n != 1)
        FAIL(CKL_INVALID, "conv sm90: im2col=1, but box_w=%d are not all pixels of a CTA", c->box_w);
    const int unit_n = conv_sm90_n_major(c) ? CONV_SM90_SPAN : CONV_SM90_N;
    const int most_n = c->form.residual || c->consumers > 2 ? 192 : 256; // ptxas has 128 registers for 512 threads
    if (c->tile_n < unit_n || c->tile_n % unit_n || c->tile_n > most_n)
        FAIL(CKL_INVALID, "conv sm90: tile_n=%d is not a multiple of %d up to %d", c->tile_n, unit_n, most_n);
    TRY(conv_check_stages("sm90", device, c->stages, conv_sm90_memory(c).smem_bytes));
    return CKL_OK;
}

ckl_status conv_sm90_admit(const conv_sm90_problem *p, const ckl_device_info *device, const conv_sm90_config *config)
{
    const ckl_conv_desc *d = &p->desc;
    const conv_sm90_config products = conv_sm90_products(config), *c = &products;
    TRY(check_together(d, c));
    TRY(check_problem(p, device, c));
    TRY(check_tall(p, c));
    TRY(check_tile(p, device, c));
    TRY(check_held(p, c));
    TRY(check_im2col(p, c));
    if ((double)d->t * (double)d->r * (double)d->s > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sm90: the taps of a filter are beyond 32-bit numbers");
    if (conv_sm90_tiles(p, c) > INT32_MAX || d->n > INT32_MAX / 2 || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv sm90: %g tiles, or a size, are beyond 32-bit numbers", conv_sm90_tiles(p, c));
    return c->slices == 1 ? CKL_OK : conv_sliced_check(p, c);
}

static ckl_status admit_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_sm90_problem *p = &conv_prepared_of(desc)->plain;
    const conv_sm90_config *c = config;
    TRY(check_rows(p));
    if (c->slices != 1)
        FAIL(CKL_UNSUPPORTED, "conv sm90: slices=%d are added by sliced", c->slices);
    return conv_sm90_admit(p, device, config);
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    conv_tensor at[CONV_TENSORS];
    if (!PLAN_ALIGNED(16, a->x, a->w, a->y, a->residual, a->dx, a->dy))
        FAIL(CKL_INVALID, "conv sm90: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    conv_tensors_of(d, at);
    return conv_sm90_launch(plan, plan->config, d, a, at, stream);
}

static const field sm90_fields[] = CONV_FIELDS(conv_sm90_config, CONV_SM90_CONFIG);

const implementation conv_sm90_implementation = {
    CONV_RANKED(sm90, conv_sm90_config),
    .summary = "persistent implicit GEMM: TMA boxes of pixels, wgmma; NHWC, Hopper",
    .rivals = { &conv_packed_implementation },
    .describe = conv_sm90,
    .params = &conv_param_list,
    .target = IR_SM90A,
};
