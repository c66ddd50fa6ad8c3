/*
 * conv_halo_weight.c - the gradient of weights of a filter a channel, NHWC on Hopper, by tensor cores of whose products
 * a diagonal counts.
 *
 * A CTA has 32 channels and a slice of the tiles of dy, whose pixels and those of x under them TMA brings to shared
 * memory. A warp has 8 channels: mma.sync multiplies 16 columns of a row of dy by those of x under two taps, 16 rows of
 * A by 8 columns of B, for all pairs of channels. Of these the diagonals are the gradients; the others are the price
 * for 2048 products in one instruction. A row of x is loaded once for all rows of the filter. Sums stay in registers to
 * the end of the slice.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_sm90.h"
#include "operators/conv/conv_wait.h"

enum {
    GROUP = 8,      // channels of a warp
    GROUPS = 4,     // of a CTA
    CHUNK = 16,     // columns of dy of an instruction
    PARTS = 2,      // warps that share a group's chunks
    PAIRS_MAX = 4,  // of taps in a row
    SUMS_MAX = 112, // of a thread
    SLICES_MAX = 132,
    STEP_MAX = 4, // strides and dilations
    CHANNELS = GROUP * GROUPS,
    ROW = 2 * CHANNELS // bytes of a pixel
};

#define CONV_HALO_WEIGHT_CONFIG(X, owner)                                             \
    X(owner, int, rows, "3", "", "of a filter")                                       \
    X(owner, int, columns, "3", "", "of a filter")                                    \
    X(owner, int, wide, "4", "1 2 4", "times 16 columns of dy of a tile")             \
    X(owner, int, high, "8", "4 7 8", "rows of dy of a tile")                         \
    X(owner, int, stages, "2", "2 3 4", "tiles in shared memory")                     \
    X(owner, int, ctas, "1", "1 2 3", "that must fit an SM")                          \
    X(owner, int, slices, "44", "8 16 32 64 132", "of the tiles, summed apart first") \
    CONV_STEPS_CONFIG(X, owner)

CONV_CONFIG(conv_halo_weight_config, CONV_HALO_WEIGHT_CONFIG);

/* What the kernel and its host side derive alike from a config. */
typedef struct halo_shape {
    int pairs, parts, workers, threads; // pairs of taps in a row
    int box_w, box_h;                   // of x under a tile
    int64_t smem_bytes;
} halo_shape;

static halo_shape shape_of(const conv_halo_weight_config *c)
{
    halo_shape s = { .pairs = (c->columns + 1) / 2, .parts = c->wide > 1 ? PARTS : 1 };
    s.workers = 32 * GROUPS * s.parts;
    s.threads = s.workers + 32;
    s.box_w = (CHUNK * c->wide - 1) * c->step_w + (2 * s.pairs - 1) * c->dilation_w + 1;
    s.box_w = (int)round_up(s.box_w, 8); // rows begin where a swizzle does
    s.box_h = (c->high - 1) * c->step_h + (c->rows - 1) * c->dilation_h + 1;
    s.smem_bytes = (int64_t)c->stages * ROW * (s.box_w * s.box_h + CHUNK * c->wide * c->high) +
                   4 * (int64_t)CHANNELS * c->rows * c->columns * s.parts + 3 * 1024;
    return s;
}

/* Everything the roles share. */
typedef struct halo_kernel {
    const conv_halo_weight_config *cfg;
    halo_shape size;
    conv_values p;
    tma_copy tmaX, tmaY;
    tensor sX, sY; // (PIXEL,CHANNEL,STAGES,1)
    tensor sSums;  // (CHANNEL,TAP,PART)
    pipeline ring;
    val own, channel; // the CTA's first; the first that it loads: the last CTA begins earlier, so that all exist
    conv_tile_grid grid;
} halo_kernel;

static void describe(halo_kernel *k)
{
    const conv_halo_weight_config *c = k->cfg;
    const halo_shape *s = &k->size;
    const ckl_dtype dtype = c->form.dtype;
    const int box_x[] = { CHANNELS, s->box_w, s->box_h, 1, 1 }, box_y[] = { CHANNELS, CHUNK * c->wide, c->high, 1, 1 };
    k->tmaX = make_tma_box(k->p.mX, dtype, 5, box_x, NULL, ROW);
    k->tmaY = make_tma_box(k->p.mY, dtype, 5, box_y, NULL, ROW);
    k->sX = tma_tiles("X", dtype, s->box_w * s->box_h, CHANNELS, c->stages, 1);
    k->sY = tma_tiles("Y", dtype, CHUNK * c->wide * c->high, CHANNELS, c->stages, 1);
    k->sSums = smem_tensor("sums", F32, compact(shape(CHANNELS, c->rows * c->columns, s->parts)), 16);
    k->ring = make_pipeline("ring", c->stages, 1, s->workers / 32);
    k->own = mul(cta_y(), imm(CHANNELS));
    k->channel = min(k->own, max(imm(0), sub(conv_number(k->p.groups), imm(CHANNELS))));
    k->grid = conv_tile_grid_of(&k->p, CHUNK * c->wide, c->high, 1);
}

/* The producer */

static void load_tiles(const halo_kernel *k)
{
    const conv_halo_weight_config *c = k->cfg;
    pipeline_state stage = producer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->grid.count, grid_x()) {
        const conv_tile_place y = conv_tile_at(&k->grid, tile);
        val x_w = sub(mul(y.w, imm(c->step_w)), conv_number(k->p.pad[2])),
            x_h = sub(mul(y.h, imm(c->step_h)), conv_number(k->p.pad[1])),
            full = pipeline_full_barrier(&k->ring, &stage);
        const val of_y[] = { y.h, imm(0), y.n }, of_x[] = { x_h, imm(0), y.n };
        pipeline_wait_empty(&k->ring, &stage);
        pipeline_expect(&k->ring, &stage, imm((int)(tma_bytes(&k->tmaX) + tma_bytes(&k->tmaY))));
        tma_load_of(&k->tmaY, slice(k->sY, _, _, stage.stage, 0), y.w, k->channel, 3, of_y, full, imm(0));
        tma_load_of(&k->tmaX, slice(k->sX, _, _, stage.stage, 0), x_w, k->channel, 3, of_x, full, imm(0));
        pipeline_advance(&stage);
    }
}

/* The workers */

/* A warp's group of channels, and where its lanes read. */
typedef struct worker_role {
    val group, part;
    val at_x[PAIRS_MAX], at_y; // of a lane's row of ldmatrix in chunk 0 of row 0, in stage 0; for each pair of taps
    tiled_mma mma;
    tensor rX, rY; // (MMA,1,1,PAIR), (MMA,1,1,ROW) of words
    tensor acc;    // (MMA,PAIR,ROW of the filter)
} worker_role;

/*
 * A's matrices: 8 columns of x under a tap, under the next one, and the next 8 columns under both; B's: two times 8
 * columns.
 */
static worker_role describe_worker(const halo_kernel *k)
{
    const conv_halo_weight_config *c = k->cfg;
    worker_role w = { .group = thread_at(warp(), 0, GROUPS, PARTS), .part = thread_at(warp(), 1, GROUPS, PARTS) };
    val row = thread_at(lane(), 0, 8, 4), odd = rem(thread_at(lane(), 1, 8, 4), imm(2)),
        channel = mul(w.group, imm(GROUP));
    val column = mul(add(row, mul(thread_at(lane(), 1, 16, 2), imm(8))), imm(c->step_w));
    for (int i = 0; i < k->size.pairs; i++) {
        val tap = mul(add(odd, imm(2 * i)), imm(c->dilation_w));
        w.at_x[i] = tensor_address(k->sX, coord(add(column, tap), channel, 0, 0));
    }
    w.at_y = tensor_address(k->sY, coord(add(row, mul(odd, imm(8))), channel, 0, 0));
    w.mma = make_tiled_mma(mma_sync_atom(c->form.dtype), 1, 1);
    w.rX = fragment(U32, compact(shape(4, 1, 1, k->size.pairs)));
    w.rY = fragment(U32, compact(shape(2, 1, 1, c->high)));
    w.acc = fragment(F32, compact(shape(4, k->size.pairs, c->rows)));
    fill(w.acc, immf(0));
    return w;
}

static void load_matrices(val address, int count, tensor rWords)
{
    val words[4];
    for (int i = 0; i < count; i++)
        words[i] = at(rWords, i, 0, 0);
    ldmatrix_T(address, count, words);
}

/* 16 columns of a tile: each row of x, by all rows of dy that some row of the filter brings over it. */
static void multiply_chunk(const halo_kernel *k, const worker_role *w, val stage, val chunk)
{
    const conv_halo_weight_config *c = k->cfg;
    const halo_shape *s = &k->size;
    const int row_x = ROW * s->box_w, row_y = ROW * CHUNK * c->wide;
    val in_x = add(mul(chunk, imm(CHUNK * ROW * c->step_w)), mul(stage, imm(row_x * s->box_h))),
        in_y = add(mul(chunk, imm(CHUNK * ROW)), mul(stage, imm(row_y * c->high)));
    int loaded = 0; // rows of dy
    UNROLL(h, s->box_h) {
        bool needed = false;
        for (int r = 0; r < c->rows; r++) {
            const int reach = h - r * c->dilation_h, y = reach / c->step_h;
            if (reach < 0 || reach % c->step_h || y >= c->high)
                continue;
            for (int i = 0; i < s->pairs && !needed; i++)
                load_matrices(add(add(w->at_x[i], in_x), imm(h * row_x)), 4, slice(w->rX, _, _, _, i));
            for (; loaded <= y; loaded++)
                load_matrices(add(add(w->at_y, in_y), imm(loaded * row_y)), 2, slice(w->rY, _, _, _, loaded));
            needed = true;
            for (int i = 0; i < s->pairs; i++)
                gemm(&w->mma, slice(w->rX, _, _, _, i), slice(w->rY, _, _, _, y),
                     local_tile(w->acc, shape(4, 1, 1), coord(0, i, r)), yes());
        }
    }
}

/*
 * The diagonals: channel i is in row i, and row 8 + i, and in column i of a fragment, whose columns 2j and 2j + 1 lane
 * j of four has.
 */
static void store_diagonals(const halo_kernel *k, const worker_role *w)
{
    const conv_halo_weight_config *c = k->cfg;
    val i = thread_at(lane(), 1, 4, 8), odd = ne(rem(i, imm(2)), imm(0));
    val channel = add(mul(w->group, imm(GROUP)), i);
    IF(eq(thread_at(lane(), 0, 4, 8), div(i, imm(2))))
        for (int r = 0; r < c->rows; r++)
            for (int s = 0; s < c->columns; s++) {
                const int first = s % 2 * 2;
                val sum = select(odd, at(w->acc, first + 1, s / 2, r), at(w->acc, first, s / 2, r));
                set(k->sSums, coord(channel, imm(r * c->columns + s), w->part), sum);
            }
}

static void work(const halo_kernel *k)
{
    const worker_role w = describe_worker(k);
    pipeline_state stage = consumer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->grid.count, grid_x()) {
        pipeline_wait_full(&k->ring, &stage);
        LOOP_FROM(chunk, w.part, imm(k->cfg->wide), imm(k->size.parts))
            multiply_chunk(k, &w, stage.stage, chunk);
        fence_proxy_async(); // the stage was read, and TMA overwrites it,
        warp_sync();         // once one lane releases it for all
        IF(eq(lane(), imm(0)))
            pipeline_release(&k->ring, stage.stage);
        pipeline_advance(&stage);
    }
    store_diagonals(k, &w);
}

/* The CTA's sums to those of its slice: (CHANNEL,TAP), of all channels. */
static void store_sums(const halo_kernel *k)
{
    const int taps = k->cfg->rows * k->cfg->columns;
    val channels = conv_number(k->p.groups);
    LOOP_FROM(e, thread(), imm(CHANNELS * taps), imm(k->size.threads)) {
        val c = rem(e, imm(CHANNELS)), tap = div(e, imm(CHANNELS)), channel = add(k->channel, c);
        val sum = at(k->sSums, c, tap, 0);
        if (k->size.parts == PARTS)
            sum = add(sum, at(k->sSums, c, tap, 1));
        val index = add(mul(convert(I64, add(mul(cta_x(), imm(taps)), tap)), k->p.groups), convert(I64, channel));
        IF(logical_and(ge(channel, k->own), lt(channel, channels)))
            set(conv_elements_from(k->p.sums, F32), index, sum);
    }
}

static void multiply(const conv_halo_weight_config *cfg)
{
    halo_kernel k = { .cfg = cfg, .size = shape_of(cfg) };
    launch_bounds(k.size.threads, cfg->ctas);
    k.p = params_of(conv);
    describe(&k);
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k.tmaX);
        tma_prefetch(&k.tmaY);
        pipeline_init(&k.ring);
        fence_mbarrier_init();
    }
    conv_wait(&k.p);
    cta_sync();
    IF(eq(warp(), imm(k.size.workers / 32))) {
        IF(elect())
            load_tiles(&k);
    }
    ELSE
    {
        work(&k);
    }
    warp_sync(); // the lane that loads, and those beside it
    cta_sync();
    store_sums(&k);
}

void conv_halo_weight(const void *config, int kernel)
{
    const conv_halo_weight_config *c = config;
    if (kernel == 0)
        multiply(c);
    else
        conv_add_depthwise(&c->form, c->columns, c->slices);
}

/* The host side */

static int64_t blocks_of(const ckl_conv_desc *d)
{
    return ceil_div(d->k, CHANNELS);
}

static int64_t tiles_of(const ckl_conv_desc *d, const conv_halo_weight_config *c)
{
    const conv_tensor y = conv_tensor_of(d, CONV_Y);
    return product_i64(y.shape[0], ceil_div(y.shape[2], c->high) * ceil_div(y.shape[3], CHUNK * c->wide));
}

static ckl_status check_problem(const ckl_conv_desc *d)
{
    if (d->direction != CKL_CONV_WEIGHT || d->groups != d->c || d->groups != d->k || d->bias)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: it computes the gradient of filters of a channel each, without bias");
    if (d->layout != CKL_IMAGE_NHWC || ckl_dtype_bytes(d->dtype) != 2 || d->k % GROUP)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: it takes f16 and bf16 in NHWC, and channels that are whole 16 bytes");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: volumes are convolved by other kernels");
    if (d->stride_h > STEP_MAX || d->stride_w > STEP_MAX || d->dilation_h > STEP_MAX || d->dilation_w > STEP_MAX)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: strides and dilations are up to %d", STEP_MAX);
    if (d->n == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: n=%" PRId64 " k=%" PRId64 " leave no products", d->n, d->k);
    if (d->s > 2 * PAIRS_MAX || d->r * ((d->s + 1) / 2) * 4 > SUMS_MAX)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: sums of %" PRId64 "x%" PRId64 " taps are too many registers", d->r,
             d->s);
    if (d->n > INT32_MAX / 2 || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4 || d->k > INT32_MAX / 128)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: a size is beyond 32-bit numbers");
    return CKL_OK;
}

/* Tiles as wide as an image, of 7 or 8 rows, whichever images are whole multiples of. */
static ckl_status choose_halo_weight(const void *desc, const ckl_device_info *device, void *config)
{
    enum { COLUMNS_LEAST = 12 }; // of 16 that are multiplied
    const ckl_conv_desc *d = desc;
    conv_halo_weight_config *c = config;
    TRY(check_problem(d));
    const conv_tensor y = conv_tensor_of(d, CONV_Y);
    if (y.shape[3] < COLUMNS_LEAST)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: of %d columns that are multiplied %" PRId64 " exist", CHUNK,
             y.shape[3]);
    *c =
        (conv_halo_weight_config){ .form = conv_form_of(d), .rows = (int)d->r, .columns = (int)d->s, CONV_STEPS_OF(d) };
    c->wide = y.shape[3] <= CHUNK ? 1 : y.shape[3] <= 2 * CHUNK ? 2 : 4;
    c->high = (int)min_i64(round_up(y.shape[2], 7) <= round_up(y.shape[2], 8) ? 7 : 8, y.shape[2]);
    for (c->stages = 2; c->wide > 1 && shape_of(c).smem_bytes > device->smem_per_cta_bytes; c->wide /= 2)
        ; // strides spread pixels
    c->stages = 4;
    const int registers = 4 * shape_of(c).pairs * c->rows + 52; // sums and the rest: what spills takes twice as long
    c->ctas = c->wide < 4 && 2 * shape_of(c).threads * registers <= 65536 ? 2 : 1;
    while (c->stages > 2 && shape_of(c).smem_bytes > device->smem_per_sm_bytes / c->ctas - 1024)
        c->stages--;
    while (c->ctas > 1 && shape_of(c).smem_bytes > device->smem_per_sm_bytes / c->ctas - 1024)
        c->ctas--;
    const int64_t slices = max_i64(1, (int64_t)device->sm_count * c->ctas / blocks_of(d));
    c->slices = (int)min_i64(min_i64(slices, tiles_of(d, c)), SLICES_MAX);
    return CKL_OK;
}

static ckl_status admit_halo_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_halo_weight_config *c = config;
    TRY(conv_check_form("halo_weight", d, &c->form));
    TRY(conv_check_dense("halo_weight", d));
    TRY(check_problem(d));
    if (c->rows != d->r || c->columns != d->s || !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv halo_weight: the config's filter, strides or dilations are not the problem's");
    if (c->wide < 1 || c->wide > 4 || c->high < 1 || c->high > 16 || c->stages < 2 || c->stages > 8 || c->ctas < 1 ||
        c->ctas > 4 || c->slices < 1 || c->slices > SLICES_MAX)
        FAIL(CKL_INVALID,
             "conv halo_weight: wide=%d, high=%d, stages=%d, ctas=%d or slices=%d is not in 1..4, 1..16, 2..8, 1..4, "
             "1..%d",
             c->wide, c->high, c->stages, c->ctas, c->slices, SLICES_MAX);
    if (shape_of(c).smem_bytes > device->smem_per_cta_bytes || shape_of(c).box_w > 256 || shape_of(c).box_h > 256)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: %d stages of %dx%d pixels are more than TMA or shared memory take",
             c->stages, c->high, CHUNK * c->wide);
    if (tiles_of(d, c) > INT32_MAX / 2 || blocks_of(d) > UINT16_MAX)
        FAIL(CKL_UNSUPPORTED, "conv halo_weight: %" PRId64 " tiles are beyond 32-bit numbers", tiles_of(d, c));
    return CKL_OK;
}

static int64_t sums_of_slice(const ckl_conv_desc *d)
{
    return d->r * d->s * d->k;
}

static int64_t workspace_halo_weight(const ckl_plan *plan)
{
    const conv_halo_weight_config *c = plan->config;
    return c->slices * sums_of_slice(plan->desc) * (int64_t)sizeof(float);
}

static ckl_status launch_halo_weight(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_halo_weight_config *c = plan->config;
    const conv_tensor x = conv_tensor_of(d, CONV_X), y = conv_tensor_of(d, CONV_Y);
    if (!PLAN_ALIGNED(16, a->x, a->dy))
        FAIL(CKL_INVALID, "conv halo_weight: a pointer is not aligned to 16 bytes; impl=depthwise_weight takes any");
    conv_params p = conv_params_of(plan, d, a);
    p.mX = conv_pixels(a->x, &x, 256);
    p.mY = conv_pixels(a->dy, &y, 256);
    p.sums = plan_workspace(plan, a->workspace);
    TRY(plan_launch(plan, 0, (plan_grid){ c->slices, blocks_of(d), 1 }, &p, stream));
    return plan_launch(plan, 1, (plan_grid){ .x = ceil_div(sums_of_slice(d), CONV_ADD_THREADS) }, &p, stream);
}

static const field halo_weight_fields[] = CONV_FIELDS(conv_halo_weight_config, CONV_HALO_WEIGHT_CONFIG);

const implementation conv_halo_weight_implementation = {
    IMPLEMENTATION_PARTS(conv, halo_weight),
    .cost = conv_cost_halo_weight,
    .summary =
        "gradient of a filter a channel: tiles with their halo by TMA, diagonals of mma.sync; NHWC, from sm_90 on",
    .kernels = 2,
    .params = &conv_param_list,
    .target = IR_SM90,
    .workspace_bytes = workspace_halo_weight,
};
