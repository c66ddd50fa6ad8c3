/*
 * conv_sm80.c - convolution as a matrix product whose operands are gathered: implicit GEMM by mma.sync, or FMA for
 * true f32, for every GPU from sm_80 on.
 *
 * A row of A is a pixel of the output, a row of B one of its channels, and K runs over the taps of a filter and the
 * channels of each tap. Forward A is x and B is w; the gradient of data reads dy, with taps backwards. A thread gathers
 * the same rows all along K; cp.async writes zeros for what lies outside. Channels that lie apart or are odd in number
 * are loaded element by element, through registers.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_mma.h"
#include "operators/conv/conv_wait.h"
#include "skeletons/stage_loop.h"

enum { DEPTH_MAX = CONV_SM80_ROW, THREADS = CONV_SM80_THREADS, ROWS_MAX = 128, MINE_MAX = 16 };

/* Elements of K in a stage. */
static int depth_of(ckl_dtype dtype)
{
    return CONV_SM80_ROW / (int)ckl_dtype_bytes(dtype);
}

/* An operand's tile, and what this thread gathers: vectors of some rows, or single elements of one. */
typedef struct gather {
    int vec;               // elements of a vector
    int mine, step;        // rows of this thread, and how far apart they are
    int columns;           // vectors of each of them
    val first_row, column; // of them, in the tile
    tensor sX;             // (ROWS,BK,STAGES)
    val inside[MINE_MAX];  // predicate: there is such a row
    val address[MINE_MAX];
    val place[MINE_MAX][CONV_MODES]; // A: of tap 0
    val elements[DEPTH_MAX];         // vec=1: those in flight
} gather;

/* A vector's place along K: tap and channel. */
typedef struct place_in_k {
    val inside; // predicate
    val tap[CONV_MODES], channel;
} place_in_k;

/* The kernel's view of a problem: the tensor read as A, pixels by channels, and the one written. */
typedef struct conv_sides {
    const val *from_size, *from, *to_size, *to; // places and strides
    val from_channels, to_channels;             // of a group
    val w_from, w_to;                           // strides of the filters along these channels
    val a, d;                                   // addresses
} conv_sides;

static conv_sides sides_of(const conv_form *form, const conv_values *p)
{
    if (form->direction == CKL_CONV_DATA)
        return (conv_sides){ p->y_size, p->y,    p->x_size,       p->x,           p->k, p->c,
                             p->w[0],   p->w[4], p->from[CONV_Y], p->from[CONV_X] };
    return (conv_sides){ p->x_size, p->x,    p->y_size,       p->y,           p->c, p->k,
                         p->w[4],   p->w[0], p->from[CONV_X], p->from[CONV_Y] };
}

static val bytes_of(const conv_form *form, val elements)
{
    return convert(U64, mul(elements, imm((int)ckl_dtype_bytes(form->dtype))));
}

/* Neighbouring threads have neighbouring vectors of a row; of single elements a thread has a row, or half a row. */
static gather gather_of(const conv_sm80_config *cfg, const char *name, int rows, int vec)
{
    const int depth = depth_of(cfg->form.dtype), vectors = depth / vec;
    gather g = { .vec = vec, .sX = conv_operand_tiles(&cfg->form, name, rows, CONV_SM80_ROW, cfg->stages) };
    g.columns = vec == 1 ? depth * rows / THREADS : 1;
    g.step = vec == 1 ? rows : THREADS / vectors;
    g.mine = rows / g.step;
    g.first_row =
        vec == 1 ? thread_at(thread(), 0, rows, THREADS / rows) : thread_at(thread(), 1, vectors, THREADS / vectors);
    g.column = vec == 1 ? mul(thread_at(thread(), 1, rows, THREADS / rows), imm(g.columns))
                        : mul(thread_at(thread(), 0, vectors, THREADS / vectors), imm(vec));
    for (int j = 0; vec == 1 && j < g.columns; j++)
        g.elements[j] = variable(conv_zero(cfg->form.dtype).type, conv_zero(cfg->form.dtype));
    return g;
}

/* The pixels of A's rows from `first` on. */
static void find_pixels(const conv_sm80_config *cfg, const conv_values *p, const conv_sides *s, val first, val group,
                        gather *g)
{
    const bool data = cfg->form.direction == CKL_CONV_DATA;
    val image = mul(mul(s->to_size[0], s->to_size[1]), s->to_size[2]), pixels = mul(p->n, image);
    val channels = mul(mul(group, s->from_channels), s->from[4]);
    for (int i = 0; i < g->mine; i++) {
        val pixel = convert(I64, add(add(first, g->first_row), imm(i * g->step))), rest = pixel, at[CONV_MODES];
        g->inside[i] = lt(pixel, pixels);
        for (int m = CONV_MODES - 1; m >= 0; m--) {
            at[m] = rem(rest, s->to_size[m]);
            rest = div(rest, s->to_size[m]);
        }
        val offset = add(mul(rest, s->from[0]), channels);
        for (int m = 0; m < CONV_MODES; m++)
            g->place[i][m] = conv_signed(data ? add(at[m], p->pad[m]) : sub(mul(at[m], p->step[m]), p->pad[m]));
        g->address[i] = add(s->a, bytes_of(&cfg->form, offset));
    }
}

/* The filters, or input channels, of B's rows from `first` on. */
static void find_filters(const conv_sm80_config *cfg, const conv_values *p, const conv_sides *s, val first, val group,
                         gather *g)
{
    val of_group = mul(mul(group, p->k), p->w[0]);
    for (int i = 0; i < g->mine; i++) {
        val row = convert(I64, add(add(first, g->first_row), imm(i * g->step)));
        g->inside[i] = lt(row, s->to_channels);
        g->address[i] = add(p->from[CONV_W], bytes_of(&cfg->form, add(of_group, mul(row, s->w_to))));
    }
}

/* Where element k lies. */
static place_in_k depth_at(const conv_values *p, const conv_sides *s, val k)
{
    val channels = conv_signed(s->from_channels), rest = div(k, channels);
    place_in_k at = { .channel = rem(k, channels) };
    for (int m = CONV_MODES - 1; m > 0; m--) {
        val size = conv_signed(p->filter[m]);
        at.tap[m] = rem(rest, size);
        rest = div(rest, size);
    }
    at.tap[0] = rest;
    at.inside = lt(rest, conv_signed(p->filter[0]));
    return at;
}

/* The next element along K. */
static place_in_k depth_after(const conv_values *p, const conv_sides *s, const place_in_k *at)
{
    place_in_k next = *at;
    val wraps = eq(add(at->channel, imm(1)), conv_signed(s->from_channels));
    next.channel = select(wraps, imm(0), add(at->channel, imm(1)));
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        next.tap[m] = select(wraps, add(at->tap[m], imm(1)), at->tap[m]);
        if (m == 0)
            break;
        wraps = eq(next.tap[m], conv_signed(p->filter[m]));
        next.tap[m] = select(wraps, imm(0), next.tap[m]);
    }
    next.inside = lt(next.tap[0], conv_signed(p->filter[0]));
    return next;
}

/* Loads vector j of row i into a stage or, of single elements, into a register. */
static void load_vector(const conv_sm80_config *cfg, gather *g, int i, int j, val stage, val address, val inside)
{
    const ckl_dtype dtype = cfg->form.dtype;
    if (g->vec == 1) {
        assign(g->elements[j], conv_zero(dtype));
        IF(inside)
            assign(g->elements[j], at(gmem_tensor(address, dtype, compact(leaf(1))), 0));
        return;
    }
    const int bytes = g->vec * (int)ckl_dtype_bytes(dtype);
    val to = tensor_address(g->sX, coord(add(g->first_row, imm(i * g->step)), g->column, stage));
    cp_async(to, select(inside, address, g->address[i]), bytes, select(inside, imm_as(U32, bytes), imm(0)));
}

/* The element of row i of A that a tap sees, or is seen from in the gradient of data; is it inside? */
static val offset_in_A(const conv_sm80_config *cfg, const conv_values *p, const conv_sides *s, const gather *g, int i,
                       const place_in_k *at, val *inside)
{
    const bool data = cfg->form.direction == CKL_CONV_DATA;
    val offset = mul(convert(I64, at->channel), s->from[4]);
    *inside = logical_and(g->inside[i], at->inside);
    for (int m = 0; m < CONV_MODES; m++) {
        val moved = mul(at->tap[m], conv_signed(p->dilation[m])), place = g->place[i][m];
        place = data ? sub(place, moved) : add(place, moved);
        *inside = logical_and(*inside, ge(place, imm(0)));
        if (data) {
            val step = conv_signed(p->step[m]), whole = div(place, step);
            *inside = logical_and(*inside, eq(mul(whole, step), place));
            place = whole;
        }
        *inside = logical_and(*inside, lt(place, conv_signed(s->from_size[m])));
        offset = add(offset, mul(convert(I64, place), s->from[1 + m]));
    }
    return offset;
}

static val offset_in_B(const conv_values *p, const conv_sides *s, const place_in_k *at)
{
    val offset = mul(convert(I64, at->channel), s->w_from);
    for (int m = 0; m < CONV_MODES; m++)
        offset = add(offset, mul(convert(I64, at->tap[m]), p->w[1 + m]));
    return offset;
}

/* Starts this thread's loads of one K tile of an operand. */
static void load_operand(const conv_sm80_config *cfg, const conv_values *p, const conv_sides *s, gather *g, bool is_A,
                         val tile, val stage)
{
    place_in_k at =
        depth_at(p, s, convert(I32, add(convert(U32, mul(tile, imm(depth_of(cfg->form.dtype)))), g->column)));
    for (int j = 0; j < g->columns; j++) {
        for (int i = 0; i < g->mine; i++) {
            val inside = logical_and(g->inside[i], at.inside);
            val offset = is_A ? offset_in_A(cfg, p, s, g, i, &at, &inside) : offset_in_B(p, s, &at);
            load_vector(cfg, g, i, j, stage, add(g->address[i], bytes_of(&cfg->form, offset)), inside);
        }
        if (j + 1 < g->columns)
            at = depth_after(p, s, &at);
    }
}

/* Stores what came through registers to a stage. */
static void store_elements(const gather *g, val stage)
{
    for (int j = 0; g->vec == 1 && j < g->columns; j++)
        set(g->sX, coord(g->first_row, add(g->column, imm(j)), stage), g->elements[j]);
}

/* The two operands of a tile of K, and what they are multiplied into. */
typedef struct product {
    const conv_sm80_config *cfg;
    const conv_values *p;
    const conv_sides *s;
    const tiled_mma *mma;
    gather *A, *B;
    tensor acc; // (MMA,MMA_M,MMA_N)
} product;

static void load_tile(const void *of, val tile, val stage)
{
    const product *x = of;
    load_operand(x->cfg, x->p, x->s, x->A, true, tile, stage);
    load_operand(x->cfg, x->p, x->s, x->B, false, tile, stage);
}

static void store_stage(const void *of, val stage)
{
    const product *x = of;
    store_elements(x->A, stage);
    store_elements(x->B, stage);
}

static void multiply(const void *of, val stage)
{
    const product *x = of;
    conv_multiply(x->mma, x->A->sX, x->B->sX, stage, x->acc);
}

/* The tiles of all taps and channels. */
static val tiles_of(const conv_values *p, const conv_sides *s, int depth)
{
    val k = conv_signed(s->from_channels);
    for (int m = 0; m < CONV_MODES; m++)
        k = mul(k, conv_signed(p->filter[m]));
    return convert(U32, div(add(k, imm(depth - 1)), imm(depth)));
}

/* Where a pixel of the output begins; rows may lie apart. */
static val start_of(const conv_sides *s, val pixel)
{
    val rest = pixel, start = imm64(0);
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        start = add(start, mul(rem(rest, s->to_size[m]), s->to[1 + m]));
        rest = div(rest, s->to_size[m]);
    }
    return add(start, mul(rest, s->to[0]));
}

/* Stores the accumulators; a pixel's place in memory is computed once for each row. */
static void store_tile(const conv_sm80_config *cfg, const conv_values *p, const conv_sides *s, const tiled_mma *mma,
                       val row, val col, val group, tensor acc)
{
    tensor cD = identity_tensor(shape(cfg->tile_m, cfg->tile_n)),
           tCcD = partition_C(mma, cD, thread()); // (MMA,MMA_M,MMA_N)
    layout down = coordinate_distances(tCcD, 0);
    val image = mul(mul(s->to_size[0], s->to_size[1]), s->to_size[2]), pixels = mul(p->n, image), starts[ROWS_MAX];
    bool found[ROWS_MAX] = { false };
    UNROLL(i, static_size(acc.layout)) {
        const int64_t below = index_at(down, i);
        val pixel = convert(I64, add(row, coordinate(tCcD, 0, i))),
            channel = convert(I64, add(col, coordinate(tCcD, 1, i)));
        if (!found[below]) {
            starts[below] = cfg->views ? start_of(s, pixel)
                                       : add(mul(div(pixel, image), s->to[0]), mul(rem(pixel, image), s->to[3]));
            found[below] = true;
        }
        IF(logical_and(lt(pixel, pixels), lt(channel, s->to_channels))) {
            val of_all = add(mul(group, s->to_channels), channel), index = add(starts[below], mul(of_all, s->to[4]));
            conv_store(&cfg->form, p, s->d, index, of_all, at(acc, i));
        }
    }
}

/* Kernel 1 takes single elements, for pointers that are aligned to no more. */
static conv_sm80_config config_of(const void *config, int kernel)
{
    conv_sm80_config c = *(const conv_sm80_config *)config;
    if (kernel == 1) {
        c.vec_a = c.vec_b = 1;
        c.tile_m = c.tile_n = 64;
    }
    return c;
}

void conv_sm80(const void *config, int kernel)
{
    const conv_sm80_config of_kernel = config_of(config, kernel), *cfg = &of_kernel;
    const conv_form *form = &cfg->form;
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    conv_sides s = sides_of(form, &p);
    val row = mul(cta_x(), imm(cfg->tile_m)), col = mul(cta_y(), imm(cfg->tile_n)), group = convert(I64, cta_z());
    gather A = gather_of(cfg, "A", cfg->tile_m, cfg->vec_a), B = gather_of(cfg, "B", cfg->tile_n, cfg->vec_b);
    find_pixels(cfg, &p, &s, row, group, &A);
    find_filters(cfg, &p, &s, col, group, &B);
    conv_wait(&p);
    tiled_mma mma = conv_mma(form);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, convert(conv_sum_type(form), imm(0)));
    const product work = { cfg, &p, &s, &mma, &A, &B, acc };
    stage_loop(&(stage_work){ cfg->stages, load_tile, store_stage, multiply, &work },
               tiles_of(&p, &s, depth_of(form->dtype)));
    store_tile(cfg, &p, &s, &mma, row, col, group, acc);
}

/* The host side */

/* The longest vector of channels, `step` elements apart, that a thread can gather: all rows start at its multiples. */
static int vector_of(const ckl_conv_desc *d, int64_t channels, int64_t step)
{
    const int64_t most = 16 / (int64_t)ckl_dtype_bytes(d->dtype);
    const int64_t vec = step > 1 ? 1 : min_i64(most, channels ? power_of_two_in(channels) : most);
    return vec * (int64_t)ckl_dtype_bytes(d->dtype) < 4 ? 1 : (int)vec; // what cp.async takes
}

static void vectors_of(const ckl_conv_desc *d, int *a, int *b)
{
    const bool data = d->direction == CKL_CONV_DATA;
    const conv_tensor from = conv_tensor_of(d, conv_read(d)), w = conv_tensor_of(d, CONV_W);
    const int64_t channels = (data ? d->k : d->c) / d->groups;
    const int64_t apart = conv_stride_divisor(d, conv_read(d));
    *a = vector_of(d, min_i64(apart, channels ? power_of_two_in(channels) : apart), from.stride[CONV_RANK - 1]);
    *b = vector_of(d, channels, w.stride[data ? 0 : CONV_RANK - 1]);
}

static int64_t pixels_of(const ckl_conv_desc *d)
{
    return conv_pixel_count(d, conv_written(d));
}

/* Channels of a group that are written. */
static int64_t outputs_of(const ckl_conv_desc *d)
{
    return (d->direction == CKL_CONV_DATA ? d->c : d->k) / d->groups;
}

static ckl_status choose_sm80(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_conv_desc *d = desc;
    conv_sm80_config *c = config;
    c->form = conv_form_of(d);
    vectors_of(d, &c->vec_a, &c->vec_b);
    c->views = conv_check_dense("sm80", d) != CKL_OK;
    const bool narrow_vectors = c->vec_a < 4 || c->vec_b < 4;
    const int64_t tiles = ceil_div(pixels_of(d), 128) * ceil_div(outputs_of(d), 128) * d->groups;
    c->tile_m = narrow_vectors || tiles < device->sm_count ? 64 : 128;
    const bool true_f32 = d->dtype == CKL_F32 && d->math == CKL_GEMM_F32; // 128 x 128 sums leave no registers
    c->tile_n = narrow_vectors || true_f32 || outputs_of(d) <= 64 ? 64 : c->tile_m;
    return CKL_OK;
}

static ckl_status admit_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_conv_desc *d = desc;
    const conv_sm80_config *c = config;
    int vec_a, vec_b;
    TRY(conv_check_form("sm80", d, &c->form));
    if (d->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv sm80: it does not compute the gradient of weights");
    if (d->c == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "conv sm80: c=%" PRId64 " k=%" PRId64 " leave no products", d->c, d->k);
    if (c->tile_m % 32 || c->tile_n % 32 || c->tile_m < 32 || c->tile_n < 32 ||
        (int64_t)c->tile_m * c->tile_n > 128 * 128)
        FAIL(CKL_INVALID, "conv sm80: tile %dx%d must be multiples of 32, at most 128x128", c->tile_m, c->tile_n);
    if (!c->views)
        TRY(conv_check_dense("sm80, by views=0,", d));
    if (c->stages < 2 || c->stages > 8)
        FAIL(CKL_INVALID, "conv sm80: stages=%d is not in 2..8", c->stages);
    if (!is_power_of_two(c->vec_a) || !is_power_of_two(c->vec_b))
        FAIL(CKL_INVALID, "conv sm80: vec_a=%d or vec_b=%d is no power of two", c->vec_a, c->vec_b);
    vectors_of(d, &vec_a, &vec_b);
    const int64_t rows_a = c->tile_m * depth_of(d->dtype) / c->vec_a,
                  rows_b = c->tile_n * depth_of(d->dtype) / c->vec_b;
    if ((c->vec_a == 1 && THREADS % c->tile_m) || (c->vec_b == 1 && THREADS % c->tile_n))
        FAIL(CKL_INVALID, "conv sm80: %d threads cannot share out the single elements of a tile of %dx%d", THREADS,
             c->tile_m, c->tile_n);
    if (c->vec_a > vec_a || c->vec_b > vec_b)
        FAIL(CKL_UNSUPPORTED, "conv sm80: channels come in vectors of %d and %d elements, vec_a=%d vec_b=%d wants more",
             vec_a, vec_b, c->vec_a, c->vec_b);
    if ((c->vec_a > 1 && rows_a > 16 * CONV_SM80_THREADS) || (c->vec_b > 1 && rows_b > 16 * CONV_SM80_THREADS))
        FAIL(CKL_INVALID, "conv sm80: a thread cannot gather more than 16 rows of a tile");
    const double reach = (double)d->c * (double)d->t * (double)d->r * (double)d->s;
    if (reach * (double)d->k / (double)d->groups > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sm80: a filter is beyond 32-bit numbers");
    if (ceil_div(outputs_of(d), c->tile_n) > UINT16_MAX || d->groups > UINT16_MAX || pixels_of(d) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED,
             "conv sm80: %" PRId64 " pixels, %" PRId64 " channels and %" PRId64
             " groups are more tiles than a launch has",
             pixels_of(d), outputs_of(d), d->groups);
    return CKL_OK;
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *x = args;
    const conv_sm80_config *all = plan->config;
    const int vec = all->vec_a > all->vec_b ? all->vec_a : all->vec_b;
    const void *from = d->direction == CKL_CONV_DATA ? x->dy : x->x;
    const int kernel = !PLAN_ALIGNED(vec * (int64_t)ckl_dtype_bytes(d->dtype), from, x->w);
    const conv_sm80_config c = config_of(all, kernel);
    const conv_params params = conv_params_of(plan, d, args);
    const plan_grid grid = { ceil_div(pixels_of(d), c.tile_m), ceil_div(outputs_of(d), c.tile_n), d->groups };
    return plan_launch(plan, kernel, grid, &params, stream);
}

static const field sm80_fields[] = CONV_FIELDS(conv_sm80_config, CONV_SM80_CONFIG);

const implementation conv_sm80_implementation = {
    IMPLEMENTATION_PARTS(conv, sm80),
    .cost = conv_cost_sm80,
    .summary = "implicit GEMM: operands gathered by cp.async, mma.sync; every GPU from sm_80 on",
    .kernels = 2,
    .params = &conv_param_list,
};
