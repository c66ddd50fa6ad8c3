/* conv_sliding_plan.c - the host side of filters of a channel by a window of sums: problems, configs, cost, launch. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_config.h"
#include "operators/conv/conv_sliding.h"
#include "skeletons/product_cost.h"

enum {
    COLS_MAX = 16,
    AHEAD_MAX = 9, // rows
    TURN_MAX =
        4, // of a turn, all under way in registers. Five channels of 112x112 under 5x5 take 4.7 us so, 4.0 by one
           // ahead, but small images by single columns, 3 of 31x31, 2.84 and 3.06
    COPY_MIN = 4, // bytes of an asynchronous copy
    CTAS_MAX = 8, // of an SM
    REGISTERS_MAX = 224,
    REGISTERS_SINGLE = 255 // of the kernel for any pointers
};

/* Registers of a row of x: words of units, and single columns of those that are seen in part. */
static int row_registers(const sliding_config *c)
{
    const int span = sliding_span_w(c), in_part = (c->skipped > 0) + ((c->skipped + span) % c->run > 0),
              whole = (int)max_i64(0, sliding_units(c) - in_part);
    return whole * (int)ceil_div(sliding_unit_bytes(c), 4) + span - whole * c->run;
}

/* Registers of a thread: its filters, sums, rows of x, and what else ptxas wants to go without spills. */
static int registers_of(const sliding_config *c)
{
    enum { REST = 38, SINGLE = 4, PLANES = -3, OUTSIDE = 5, FEW = 2 };
    const int row = c->async ? 0 : c->ahead * row_registers(c), outside = c->left + c->right - FEW;
    return c->vec * (sliding_taps(c) + c->cols * sliding_window(c) + sliding_span_w(c)) + row + REST +
           (c->planes     ? PLANES
            : c->vec == 1 ? SINGLE
                          : 0) +
           (outside > 0 ? OUTSIDE * outside : 0);
}

/* CTAs of an SM that have so many. */
static int ctas_of(const sliding_config *c)
{
    return (int)max_i64(1, min_i64(CTAS_MAX, 65536 / SLIDING_THREADS / round_up(registers_of(c), 8)));
}

/* Filters, and rows under way. */
static int64_t smem_bytes(const sliding_config *c)
{
    const int64_t filters = c->planes ? 0 : (int64_t)sliding_vectors(c) * c->vec * sliding_taps(c) * sliding_element(c);
    return filters +
           (c->async ? (int64_t)sliding_slots(c) * sliding_room(c) * SLIDING_THREADS * sliding_unit_bytes(c) : 0);
}

/* The forward problem, which the gradient of data is one of dy. */
static ckl_status takes(const ckl_conv_desc *d)
{
    if (d->groups != d->c || d->k % d->groups)
        FAIL(CKL_UNSUPPORTED, "conv sliding: it takes filters of one channel each");
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv sliding: dtype=i8 is none of f32, f16, bf16");
    if (d->direction != CKL_CONV_FORWARD && (!conv_turns(d) || d->groups != d->k))
        FAIL(CKL_UNSUPPORTED, "conv sliding: of gradients it computes that of data of stride 1, of a filter a channel");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv sliding: volumes are convolved by other kernels");
    if (d->r > SLIDING_TAPS_MAX || d->s > SLIDING_TAPS_MAX || d->r * d->s > SLIDING_TAPS_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sliding: a filter of %" PRId64 "x%" PRId64 " is more than %d taps", d->r, d->s,
             SLIDING_TAPS_MAX);
    const conv_tensor x = conv_tensor_of(d, CONV_X), y = conv_tensor_of(d, CONV_Y);
    const int64_t most = INT32_MAX / 256;
    if (max_i64(x.stride[2], y.stride[2]) > most || max_i64(d->h, d->n) > INT32_MAX / 8 ||
        product_i64(d->k, d->r * d->s) > INT32_MAX / 8)
        FAIL(CKL_UNSUPPORTED, "conv sliding: a size is beyond 32-bit numbers");
    return CKL_OK;
}

static int64_t threads_of(const ckl_conv_desc *d, const sliding_config *c)
{
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    return product_i64(product_i64(d->n, ceil_div(y.shape[2], c->high)),
                       ceil_div(y.shape[3], c->cols) * (d->k / c->vec));
}

/* Are the columns of a row side by side? A single channel lies as a plane does. */
static bool is_planes(const ckl_conv_desc *d)
{
    return d->layout == CKL_IMAGE_NCHW || (d->k == 1 && d->c == 1);
}

/* May neighbours share copies of 16 bytes? They have the next channels of the same places. */
static bool may_share(const sliding_config *c)
{
    if (!c->async || c->filters > 1) // units of asynchronous copies have bytes
        return false;
    const int share = 16 / sliding_unit_bytes(c);
    return share > 1 && c->channels / c->vec % share == 0;
}

/*
 * What follows from the problem and the config's other numbers. All columns where threads begin, and where rows do, are
 * at multiples of a unit.
 */
static void derive(const ckl_conv_desc *d, sliding_config *c)
{
    const ckl_conv_desc forward = conv_turned(d);
    const int64_t columns = conv_tensor_of(d, conv_written(d)).shape[3], pad = forward.pad_left;
    const int64_t multiples[] = { (int64_t)c->cols * c->step_w, (columns - c->cols) * c->step_w, c->cols, columns,
                                  forward.w };
    c->planes = is_planes(d);
    c->even = columns % c->cols == 0;
    c->run = c->planes ? 16 / sliding_element(c) : 1;
    for (int i = 0; i < COUNT_OF(multiples); i++)
        while (multiples[i] % c->run)
            c->run /= 2;
    c->skipped = conv_config_number(pad > 0 ? round_up(pad, c->run) - pad : -pad % c->run);
    const int64_t units = sliding_units(c), first = product_i64(columns - c->cols, c->step_w) - pad - c->skipped;
    c->left = (int)min_i64(units, ceil_div(max_i64(0, pad), c->run));
    c->right = (int)max_i64(0, min_i64(units, units - (forward.w - first) / c->run));
}

/*
 * Vectors of 2 channels first, strips of all rows, of halves, ... of them (fifths of planes alone: 63 channels of
 * 640x640 take 216 us so, 187 in sixths); columns that divide a row's; each once more by copies that neighbours share.
 */
static bool candidate_sliding(const void *desc, const ckl_device_info *device, int i, void *config)
{
    static const int vectors[] = { 4, 2, 1 }, columns[] = { 4, 8, 1 }, strips[] = { 1, 2, 3, 4, 6, 8, 16, 32, 64, 5 };
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    sliding_config *c = config;
    (void)device;
    const bool single = is_planes(d) || d->groups < d->k;
    const int counts = COUNT_OF(strips) - !is_planes(d);
    int rest = i / 2 / counts;
    const int most = columns[rest % COUNT_OF(columns)];
    rest /= COUNT_OF(columns);
    if (rest >= (single ? 1 : COUNT_OF(vectors)))
        return false;
    const int most_vec = (int)min_i64(16, power_of_two_in(d->k)), bytes = (int)ckl_dtype_bytes(d->dtype);
    int vec = single ? 1 : vectors[rest] * bytes < COPY_MIN && most_vec > 1 ? 2 : vectors[rest];
    while (vec > 1 && vec * d->r * d->s > SLIDING_TAPS_MAX)
        vec /= 2;
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    *c = (sliding_config){ .form = conv_form_of(d),
                           .vec = vec < most_vec ? vec : most_vec,
                           .cols = (int)(is_planes(d) ? min_i64(most, y.shape[3])
                                                      : ceil_div(y.shape[3], ceil_div(y.shape[3], most))),
                           .channels = (int)min_i64(d->k, INT32_MAX / 256),
                           .filters = (int)min_i64(d->k / max_i64(1, d->groups), INT32_MAX / 256),
                           .rows = conv_config_number(d->r),
                           .columns = conv_config_number(d->s),
                           CONV_STEPS_OF(d) };
    const int turn = sliding_window(c) * c->step_h;
    c->high = (int)min_i64(INT32_MAX / 8, ceil_div(y.shape[2], strips[i / 2 % counts]));
    derive(d, c);
    c->async = !c->planes && sliding_unit_bytes(c) >= COPY_MIN;
    c->ahead = c->async ? 3 : turn <= TURN_MAX || (c->cols == 1 && turn <= AHEAD_MAX) ? turn : 1;
    c->ctas = ctas_of(c);
    c->shared = i % 2 && may_share(c) && (c->cols > 1 || c->vec < 4); // 8 of 144 of 56x56 take 9.2 us so, else 7.4
    return true;
}

static ckl_status admit_sliding(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const sliding_config *c = config;
    const int64_t bytes = (int64_t)ckl_dtype_bytes(d->dtype);
    const int64_t cols_max = min_i64(COLS_MAX, conv_tensor_of(d, conv_written(d)).shape[3]);
    TRY(takes(d));
    TRY(conv_check_form("sliding", desc, &c->form));
    TRY(conv_check_dense("sliding", desc));
    if (c->rows != d->r || c->columns != d->s || c->channels != d->k || c->filters != d->k / d->groups ||
        !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv sliding: the config's filter, channels, stride or dilation are not the problem's");
    if (!is_power_of_two(c->vec) || c->vec > 16 / (int)max_i64(bytes, (int64_t)ckl_dtype_bytes(d->out)) ||
        d->k % c->vec || ((c->filters > 1 || c->planes) && c->vec > 1) || c->high < 1 || c->high > INT32_MAX / 8 ||
        c->cols < 1 || c->cols > cols_max || c->ahead < 1 || c->ahead > AHEAD_MAX || c->ctas < 1 || c->ctas > CTAS_MAX)
        FAIL(CKL_INVALID,
             "conv sliding: vec=%d does not divide k=%" PRId64
             " or 16 bytes, or cols=%d, high=%d, ahead=%d or ctas=%d are not in 1..%" PRId64 ", 1.., 1..%d, 1..%d",
             c->vec, d->k, c->cols, c->high, c->ahead, c->ctas, cols_max, AHEAD_MAX, CTAS_MAX);
    if (c->async && (c->planes || sliding_unit_bytes(c) < COPY_MIN))
        FAIL(CKL_UNSUPPORTED, "conv sliding: async=1, but of planes, or by copies of %d bytes, not of 4, 8 or 16",
             sliding_unit_bytes(c));
    if (!c->async && sliding_window(c) * c->step_h % c->ahead)
        FAIL(CKL_UNSUPPORTED, "conv sliding: ahead=%d rows in registers do not divide the %d of a turn", c->ahead,
             sliding_window(c) * c->step_h);
    sliding_config own = *c;
    derive(d, &own);
    if (own.left != c->left || own.right != c->right || own.even != c->even || own.skipped != c->skipped ||
        own.planes != c->planes || own.run != c->run)
        FAIL(CKL_INVALID,
             "conv sliding: left=%d, right=%d, even=%d, planes=%d or run=%d are not those of the problem, %d, %d, %d, "
             "%d and %d",
             c->left, c->right, c->even, c->planes, c->run, own.left, own.right, own.even, own.planes, own.run);
    if (c->shared && !may_share(c))
        FAIL(CKL_UNSUPPORTED, "conv sliding: shared=1, but neighbours have not the next of whole 16 bytes");
    const sliding_config single = sliding_of_kernel(c, 1);
    if (c->vec * sliding_taps(c) > SLIDING_TAPS_MAX || c->skipped + sliding_span_w(c) > SLIDING_SPAN_MAX ||
        registers_of(c) > REGISTERS_MAX || registers_of(&single) > REGISTERS_SINGLE ||
        smem_bytes(c) > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED,
             "conv sliding: vec=%d channels of %d taps and cols=%d are more than a thread's registers, or places far "
             "apart",
             c->vec, sliding_taps(c), c->cols);
    if (product_i64(threads_of(d, c), c->vec) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sliding: %" PRId64 " threads are beyond 32-bit numbers", threads_of(d, c));
    return CKL_OK;
}

static ckl_status launch_sliding(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc plane = conv_depthwise_plane(plan->desc), *d = &plane, forward = conv_turned(d);
    const sliding_config *all = plan->config;
    const ckl_conv_args a = conv_turned_args(d, args);
    const int64_t count = all->vec * all->run, in = count * sliding_share(all) * (int64_t)ckl_dtype_bytes(d->dtype),
                  out = count * (int64_t)ckl_dtype_bytes(d->out);
    const bool aligned = PLAN_ALIGNED(in, a.x) && PLAN_ALIGNED(all->vec * (int64_t)ckl_dtype_bytes(d->dtype), a.w) &&
                         PLAN_ALIGNED(min_i64(16, out), a.y, a.residual);
    const sliding_config c = sliding_of_kernel(all, !aligned);
    const conv_params params = conv_params_of(plan, &forward, &a);
    return plan_launch(plan, !aligned, (plan_grid){ .x = ceil_div(threads_of(d, &c), SLIDING_THREADS), .y = 1, .z = 1 },
                       &params, stream);
}

/* Rows of x that a strip needs, on the average: at the edges some are outside. */
static double rows_needed(const sliding_config *c, int64_t rows_x, int64_t rows_y)
{
    const double strips = (double)ceil_div(rows_y, c->high), again = sliding_span_h(c) - c->step_h;
    const double all = (double)min_i64(c->high, rows_y) * c->step_h + again;
    return fmin(all, ((double)rows_x + (strips - 1) * again) / strips);
}

/*
 * Do neighbours share copies of many columns? Those of four, and of two channels, gain nothing where SMs are full: 144
 * of 56x56 take 20.2 us by them and 18.5 without, 240 of 28x28 under 5x5 20.3 and 16.6.
 */
static bool shares_rows(const sliding_config *c)
{
    enum { FEW = 4 };
    return c->shared && c->cols > FEW && sliding_unit_bytes(c) > COPY_MIN;
}

/*
 * How much longer than by the model: short strips on SMs that are full (480 of 14x14 take 8.6 us in 5 rows, 7.2 in 7),
 * strides (672 of 14x14 under 5x5 10.3, 96 of 112x112 36.6), what four channels and rows in registers take at their
 * start, columns that two threads have, and copies that neighbours do not share where SMs have room for more: 480 of
 * 14x14 take 7.25 us so, 6.9 by shared ones, 960 of 7x7 4.86 and 4.61, 672 of 14x14 under 5x5 by stride 2 10.3 and 8.9.
 */
static double unsure(const sliding_config *c, double rows, bool is_short, bool is_full)
{
    const double LEAST = 7, FEW = 8, SHORT = 1.2, STEPS = 1.15, SHARED_STEPS = 1.057, FOUR = 0.8, LOADS = 0.3,
                 UNEVEN = 1.06, APART = 1.05;
    const bool slow = c->vec > 2 && (!shares_rows(c) || rows <= FEW);
    const double start = slow ? FOUR : c->async ? 0 : LOADS; // in rows
    const double steps = c->step_h == 1 ? 1 : !c->shared ? STEPS : slow ? 1 : SHARED_STEPS;
    return (is_short && rows < LEAST ? SHORT : 1) * steps * (1 + start / rows) * (c->even ? 1 : UNEVEN) *
           (!is_full && !c->shared && may_share(c) ? APART : 1);
}

/* Instructions of a thread. */
static double instructions_of(const sliding_config *c, double rows, double rows_x)
{
    const double LOAD = 2, OUTSIDE = 3, STORE = 4, ROW = 30, START = 150;
    const double smooth = c->form.activation > CKL_ACTIVATION_RELU ? 5 : 0;
    const double of_y = (double)c->cols * c->vec * (sliding_taps(c) + 1 + smooth) + c->cols / c->run * STORE;
    const double of_x = ROW + sliding_units(c) * LOAD + sliding_span_w(c) * c->vec + (c->left + c->right) * OUTSIDE;
    return START + sliding_taps(c) * (c->vec + 4.0) + rows * of_y + rows_x * of_x +
           fmax(0, rows_x / c->step_h - rows) * of_y / 2;
}

/*
 * Bytes that are moved. Neighbours want rows and columns again; of copies a tenth of the columns, as these come side by
 * side. Of few channels a warp stores pieces of sectors, which L2 puts together, and best where no sector is left out:
 * 3 channels of 56 images of 681x681 take 240, 160 and 138 us by 1, 2 and 4 columns, 315 by 8, of 120 of 163x163 17.8
 * and 27.3 by 4 and 8.
 */
static double bytes_of(const ckl_conv_desc *d, const sliding_config *c, double rows, double rows_x)
{
    const double SECTOR = 32, PIECE = 0.2, LEFT_OUT = 1.1, SIDE = 0.1;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    const double pixel = c->planes ? SECTOR : fmin(SECTOR, (double)c->channels * sliding_element(c)),
                 left_out = pixel < SECTOR && pixel * c->cols > SECTOR ? LEFT_OUT : 0,
                 pieces = 1 + PIECE * (fmin(c->cols, SECTOR / pixel) - 1) + left_out;
    const double wide = sliding_span_w(c) / ((double)c->cols * c->step_w),
                 again = rows_x / (rows * c->step_h) * (c->async ? 1 + SIDE * (wide - 1) : wide);
    return (double)d->n * (again * (double)x.stride[0] + pieces * (double)y.stride[0]) * sliding_element(c);
}

/*
 * Bytes a us, of CTAs whose SM has `of_sm`: rows in registers are under way where CTAs are; of copies the SM that has
 * most is waited for, or a last turn of few CTAs: 96 channels of 8 of 512x512 take 291 us in 1.45 turns, 257 in 2.9.
 * Rows that neighbours share gain most: 216, 144 of 56x56 18.6 for 22.4. Pixels that end inside sectors cost more.
 */
static double bytes_per_us(const sliding_config *c, double of_sm)
{
    enum { SECTOR = 32 };
    const double SHARED = 3.9e6, COPIES = 3.62e6, WORDS = 3.0e6, REGISTERS = 3.2e6, CUT = 0.91, LAST = 0.4, MORE = 0.8;
    if (!c->async)
        return REGISTERS * fmax(0.6, fmin(1, of_sm / fmin(4, c->ctas)));
    const double shared = SHARED * (c->channels * sliding_element(c) % SECTOR ? CUT : 1),
                 rate = sliding_unit_bytes(c) == COPY_MIN ? WORDS
                        : shares_rows(c)                  ? shared
                                                          : COPIES;
    const double turns = of_sm / c->ctas, rest = turns - floor(turns), most = fmin(c->ctas, ceil(of_sm));
    if (turns > 1)
        return rate * turns / (floor(turns) + (rest > 0 ? fmin(1, LAST + MORE * rest) : 0));
    return rate * fmax(1, of_sm) / ceil(of_sm) * (0.8 + 0.2 * most / c->ctas);
}

/*
 * Instructions, of which a warp begins WARP a cycle and an SM no more than RATE (5x5: 99 channels of 56x56 in 26.4 us,
 * 7 of 897x897 in 47.2; planes of 56x56 under 7x7 in 42.7; 5 of 8 images of 112x112 in 4.03), or copies (144 of 56x56
 * in 21.3 us, 96 of 112x112 by stride 2 in 44.8, 960 of 7x7 in 4.93). Rows in registers are waited for. Threads that
 * share copies wait for each other, which costs where SMs are full.
 */
static plan_cost cost_sliding(const void *desc, const ckl_device_info *device, const void *config)
{
    const double WARP = 0.55, RATE = 2.9, COPIES_WARP = 0.45, COPIES_RATE = 2.64, TOGETHER = 0.82, ROWS_TOGETHER = 0.92,
                 FULL = 0.75, COPY = 6, BYTES = 1.5, RING = 0.8, WAIT = 150, TURN = 380, EARLY = 0.75;
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const sliding_config *c = config;
    const int64_t rows_y = conv_tensor_of(d, conv_written(d)).shape[2];
    const double rows = (double)min_i64(c->high, rows_y),
                 rows_x = rows_needed(c, conv_tensor_of(d, conv_read(d)).shape[2], rows_y);
    const double tiles = (double)threads_of(d, c) / SLIDING_THREADS, warps = SLIDING_THREADS / 32,
                 of_sm = tiles / device->sm_count, at_once = fmin(c->ctas, ceil(of_sm));
    const bool is_full = of_sm > FULL * c->ctas;
    const double warp = c->async ? COPIES_WARP : WARP, together = !c->shared || !is_full ? 1
                                                                  : shares_rows(c)       ? ROWS_TOGETHER
                                                                                         : TOGETHER;
    const double rate = fmin((c->async ? COPIES_RATE : RATE) * together, warp * warps * at_once);
    const double instructions = instructions_of(c, rows, rows_x);
    const double waits = c->async ? WAIT : c->ahead > 1 ? (rows_x / c->ahead + 1) * TURN : (rows_x + 1) * WAIT;
    const double copies = c->async ? rows_x * sliding_copies(c) * (COPY + BYTES * sliding_unit_bytes(c)) * rate : 0;
    plan_cost cost = product_cost(&(product_work){ .tiles = tiles,
                                                   .ctas = c->ctas,
                                                   .steps = 1,
                                                   .multiply_adds = fmax(instructions, copies) * warps,
                                                   .rate = rate,
                                                   .step_cycles = instructions / warp + waits,
                                                   .bytes = bytes_of(d, c, rows, rows_x),
                                                   .bytes_per_us = bytes_per_us(c, of_sm),
                                                   .us = c->async ? RING : 0 },
                                  device);
    cost.us *= unsure(c, rows, of_sm > 1 && rows < (double)rows_y, is_full);
    cost.us -= conv_is_early(d) ? EARLY : 0;
    return cost;
}

static const field sliding_fields[] = CONV_FIELDS(conv_sliding_config, CONV_SLIDING_CONFIG);

const implementation conv_sliding_implementation = {
    CONV_RANKED(sliding, conv_sliding_config),
    .summary = "a filter a channel of NHWC: down the rows of x, a window of sums that slides",
    .rivals = { &conv_depthwise_implementation, &conv_skinny_implementation, &conv_stem_implementation,
                &conv_narrow_implementation, &conv_packed_implementation },
    .describe = conv_sliding,
    .kernels = 2,
    .params = &conv_param_list,
};
