/*
 * conv_sm80_weight.c - the gradient of weights by mma.sync, for every GPU from sm_80 on: any layout, groups, strides
 * and channels.
 *
 * dw[k,column] = sum over pixels of dy[pixel,k] * x[the pixel that the column's tap sees, its channel]. A column is a
 * channel at a tap; a last column of ones sums dy for the bias. K runs over pixels, which lie apart in memory, so
 * threads load element by element: a thread has a row of each tile, and neighbours have neighbouring channels. Slices
 * of the pixels are summed apart, in f32, and added by a second kernel in a fixed order.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_mma.h"
#include "operators/conv/conv_sm90.h"
#include "operators/conv/conv_wait.h"
#include "skeletons/stage_loop.h"

enum {
    THREADS = 128, // 2 x 2 warps
    TILE = 64,     // filters and columns of a CTA: a thread loads half of a row of each
    ROW = 32,      // bytes of K in a stage
    ELEMENTS = ROW / 2 / 2,
    SLICES_MAX = 64,
};

#define CONV_SM80_WEIGHT_CONFIG(X, owner)                           \
    X(owner, int, stages, "3", "2 3 4", "K tiles in shared memory") \
    X(owner, int, slices, "1", "1 2 4 8 16 32 64", "of the pixels, summed apart first")

CONV_CONFIG(conv_sm80_weight_config, CONV_SM80_WEIGHT_CONFIG);

/* A thread's row of an operand: a filter of dy, or a column of x. */
typedef struct row_of_tile {
    tensor sTile;          // (ROWS,BK,STAGES)
    val inside, ones;      // predicates: there is such a row; it is that of the bias
    val address;           // of its channel in image 0
    val shift[CONV_MODES]; // x: from a place to the pixel that its tap sees
    val elements[ELEMENTS];
} row_of_tile;

/* A pixel of dy. */
typedef struct pixel_place {
    val number, image, at[CONV_MODES];
} pixel_place;

typedef struct weight_kernel {
    const conv_sm80_weight_config *cfg;
    conv_values p;
    tiled_mma mma;
    row_of_tile dy, x;
    val row, column, half;  // of the thread: its row of both tiles, and its first element of K
    val pixels, first_tile; // in all; of this slice
    tensor acc;             // (MMA,MMA_M,MMA_N)
} weight_kernel;

static int depth_of(const weight_kernel *k)
{
    return ROW / (int)ckl_dtype_bytes(k->cfg->form.dtype);
}

static val columns_of(const conv_values *p, bool bias)
{
    val columns = p->c;
    for (int m = 0; m < CONV_MODES; m++)
        columns = mul(columns, p->filter[m]);
    return bias ? add(columns, imm64(1)) : columns;
}

/* Loads */

static row_of_tile make_row(const weight_kernel *k, const char *name, val from, val channel_offset)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    row_of_tile r = { .sTile = conv_operand_tiles(&k->cfg->form, name, TILE, ROW, k->cfg->stages) };
    r.address = add(from, convert(U64, mul(channel_offset, imm64((int)ckl_dtype_bytes(dtype)))));
    for (int i = 0; i < depth_of(k) / 2; i++)
        r.elements[i] = variable(dtype, convert(dtype, immf(0)));
    return r;
}

static void find_rows(weight_kernel *k)
{
    const conv_values *p = &k->p;
    val group = convert(I64, cta_z()), filter = convert(I64, add(mul(cta_x(), imm(TILE)), k->row));
    k->dy = make_row(k, "dy", p->from[CONV_Y], mul(add(mul(group, p->k), filter), p->y[4]));
    k->dy.inside = lt(filter, p->k);
    val column = convert(I64, add(k->column, k->row)), channel = rem(column, p->c), tap = div(column, p->c);
    k->x = make_row(k, "x", p->from[CONV_X], mul(add(mul(group, p->c), channel), p->x[4]));
    k->x.inside = lt(column, columns_of(p, false));
    k->x.ones = k->cfg->form.bias ? eq(column, columns_of(p, false)) : no();
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        k->x.shift[m] = sub(mul(rem(tap, p->filter[m]), p->dilation[m]), p->pad[m]);
        tap = div(tap, p->filter[m]);
    }
}

static pixel_place place_of(const conv_values *p, val number)
{
    pixel_place place = { .number = number };
    val rest = number;
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        val size = convert(I32, p->y_size[m]), next = div(rest, size);
        place.at[m] = sub(rest, mul(next, size));
        rest = next;
    }
    place.image = rest;
    return place;
}

static void step_place(const conv_values *p, pixel_place *place)
{
    val carry = imm(1);
    place->number = add(place->number, imm(1));
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        val at = add(place->at[m], carry), wraps = eq(at, convert(I32, p->y_size[m]));
        place->at[m] = select(wraps, imm(0), at);
        carry = select(wraps, imm(1), imm(0));
    }
    place->image = add(place->image, carry);
}

/* Loads an element of a row, at `offset`, into a register; where not inside, another value. */
static void load_element(const weight_kernel *k, const row_of_tile *r, int i, val inside, val offset, val otherwise)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    val address = add(r->address, convert(U64, mul(offset, imm64((int)ckl_dtype_bytes(dtype)))));
    assign(r->elements[i], convert(dtype, otherwise));
    IF(inside)
        assign(r->elements[i], at(gmem_tensor(address, dtype, compact(leaf(1))), 0));
}

static void load_dy(const weight_kernel *k, int i, const pixel_place *place, val there)
{
    val offset = mul(convert(I64, place->image), k->p.y[0]);
    for (int m = 0; m < CONV_MODES; m++)
        offset = add(offset, mul(convert(I64, place->at[m]), k->p.y[1 + m]));
    load_element(k, &k->dy, i, logical_and(k->dy.inside, there), offset, immf(0));
}

static void load_x(const weight_kernel *k, int i, const pixel_place *place, val there)
{
    val offset = mul(convert(I64, place->image), k->p.x[0]), inside = logical_and(k->x.inside, there);
    for (int m = 0; m < CONV_MODES; m++) {
        val at = add(mul(convert(I64, place->at[m]), k->p.step[m]), k->x.shift[m]);
        inside = logical_and(inside, logical_and(ge(at, imm64(0)), lt(at, k->p.x_size[m])));
        offset = add(offset, mul(at, k->p.x[1 + m]));
    }
    load_element(k, &k->x, i, inside, offset, select(k->x.ones, immf(1), immf(0)));
}

static void load_tile(const void *of, val tile, val stage)
{
    (void)stage;
    const weight_kernel *k = of;
    const int depth = depth_of(k);
    val first = add(mul(add(k->first_tile, tile), imm(depth)), k->half);
    pixel_place place = place_of(&k->p, convert(I32, first));
    for (int i = 0; i < depth / 2; i++) {
        val there = lt(place.number, k->pixels);
        load_dy(k, i, &place, there);
        load_x(k, i, &place, there);
        step_place(&k->p, &place);
    }
}

static void store_stage(const void *of, val stage)
{
    const weight_kernel *k = of;
    for (int i = 0; i < depth_of(k) / 2; i++) {
        set(k->dy.sTile, coord(k->row, add(k->half, imm(i)), stage), k->dy.elements[i]);
        set(k->x.sTile, coord(k->row, add(k->half, imm(i)), stage), k->x.elements[i]);
    }
}

static void multiply(const void *of, val stage)
{
    const weight_kernel *k = of;
    conv_multiply(&k->mma, k->dy.sTile, k->x.sTile, stage, k->acc);
}

/* Sums */

/* Stores to dw or dbias; filter: among those of all groups. */
static void store_weight(const conv_values *p, ckl_dtype out, bool bias, val filter, val column, val sum)
{
    val tap = div(column, p->c), index = add(mul(filter, p->w[0]), mul(rem(column, p->c), p->w[4]));
    val is_weight = lt(column, columns_of(p, false));
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        index = add(index, mul(rem(tap, p->filter[m]), p->w[1 + m]));
        tap = div(tap, p->filter[m]);
    }
    IF(is_weight)
        set(conv_elements_from(p->from[CONV_W], out), index, convert(out, sum));
    if (bias)
        IF(logical_not(is_weight))
            set(conv_elements_from(p->bias, out), filter, convert(out, sum));
}

static void store_tile(const weight_kernel *k)
{
    const conv_form *form = &k->cfg->form;
    const conv_values *p = &k->p;
    tensor tCcD = partition_C(&k->mma, identity_tensor(shape(TILE, TILE)), thread()); // (MMA,MMA_M,MMA_N)
    tensor gSums = conv_elements_from(p->sums, F32);
    val columns = columns_of(p, form->bias), all = mul(mul(p->groups, p->k), columns);
    UNROLL(i, static_size(k->acc.layout)) {
        val filter = convert(I64, add(mul(cta_x(), imm(TILE)), coordinate(tCcD, 0, i)));
        val column = convert(I64, add(k->column, coordinate(tCcD, 1, i)));
        val of_all = add(mul(convert(I64, cta_z()), p->k), filter);
        IF(logical_and(lt(filter, p->k), lt(column, columns))) {
            if (k->cfg->slices > 1) {
                val slice = convert(I64, rem(cta_y(), imm(k->cfg->slices)));
                set(gSums, add(mul(slice, all), add(mul(of_all, columns), column)), at(k->acc, i));
            } else {
                store_weight(p, form->out, form->bias, of_all, column, at(k->acc, i));
            }
        }
    }
}

/* Kernel 1: a sum a thread. */
static void add_sums(const conv_sm80_weight_config *cfg)
{
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    val number = add(mul(convert(I64, cta_x()), imm64(THREADS)), convert(I64, thread()));
    val columns = columns_of(&p, cfg->form.bias), all = mul(mul(p.groups, p.k), columns);
    grid_wait();
    launch_dependents();
    IF(lt(number, all)) {
        tensor rSum = conv_add_slices(cfg->slices, add(p.sums, convert(U64, mul(number, imm64(4)))), all, 1);
        store_weight(&p, cfg->form.out, cfg->form.bias, div(number, columns), rem(number, columns), at(rSum, 0));
    }
}

static void sum_products(const conv_sm80_weight_config *cfg)
{
    launch_bounds(THREADS, 0);
    weight_kernel k = { .cfg = cfg, .p = params_of(conv) };
    const int depth = depth_of(&k);
    val pixels = k.p.n;
    for (int m = 0; m < CONV_MODES; m++)
        pixels = mul(pixels, k.p.y_size[m]);
    k.pixels = convert(I32, pixels);
    val column_tile = div(cta_y(), imm(cfg->slices)), slice = rem(cta_y(), imm(cfg->slices));
    val tiles = div(add(convert(U32, k.pixels), imm(depth - 1)), imm(depth));
    k.row = thread_at(thread(), 0, TILE, 2);
    k.half = mul(thread_at(thread(), 1, TILE, 2), imm(depth / 2));
    k.column = mul(column_tile, imm(TILE));
    k.first_tile = div(mul(tiles, slice), imm(cfg->slices));
    find_rows(&k);
    conv_wait(&k.p);
    k.mma = conv_mma(&cfg->form);
    k.acc = fragment_C(&k.mma, TILE, TILE);
    fill(k.acc, immf(0));
    val end = div(mul(tiles, add(slice, imm(1))), imm(cfg->slices));
    stage_loop(&(stage_work){ cfg->stages, load_tile, store_stage, multiply, &k }, sub(end, k.first_tile));
    store_tile(&k);
}

void conv_sm80_weight(const void *config, int kernel)
{
    if (kernel == 0)
        sum_products(config);
    else
        add_sums(config);
}

/* The host side */

static int64_t columns_in_all(const ckl_conv_desc *d)
{
    return d->c / d->groups * d->t * d->r * d->s + d->bias;
}

static int64_t sums_of_slice(const ckl_conv_desc *d)
{
    return product_i64(d->k, columns_in_all(d));
}

static plan_cost cost_sm80_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    return conv_cost_slices(desc, device, ((const conv_sm80_weight_config *)config)->slices);
}

/* As many slices as give every SM some CTAs, each of a few tiles of K at least. */
static ckl_status choose_sm80_weight(const void *desc, const ckl_device_info *device, void *config)
{
    enum { CTAS = 4, PIXELS_LEAST = 256 };
    const ckl_conv_desc *d = desc;
    conv_sm80_weight_config *c = config;
    c->form = conv_form_of(d);
    const double tiles =
        (double)ceil_div(d->k / d->groups, TILE) * (double)ceil_div(columns_in_all(d), TILE) * (double)d->groups;
    while (c->slices < SLICES_MAX && tiles * c->slices < (double)CTAS * device->sm_count &&
           conv_pixel_count(d, CONV_Y) >= 2 * c->slices * PIXELS_LEAST)
        c->slices *= 2;
    return CKL_OK;
}

static ckl_status admit_sm80_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_conv_desc *d = desc;
    const conv_sm80_weight_config *c = config;
    TRY(conv_check_form("sm80_weight", d, &c->form));
    if (d->direction != CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv sm80_weight: it computes the gradient of weights alone");
    if (d->n == 0 || d->c == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "conv sm80_weight: n=%" PRId64 " c=%" PRId64 " k=%" PRId64 " leave no products", d->n,
             d->c, d->k);
    if (c->stages < 2 || c->stages > 8)
        FAIL(CKL_INVALID, "conv sm80_weight: stages=%d is not in 2..8", c->stages);
    if (c->slices < 1 || c->slices > SLICES_MAX || c->slices > conv_pixel_count(d, CONV_Y))
        FAIL(CKL_INVALID, "conv sm80_weight: slices=%d is not in 1..%d, or more than pixels", c->slices, SLICES_MAX);
    if ((double)d->c * (double)d->t * (double)d->r * (double)d->s * (double)d->k > INT32_MAX ||
        (double)conv_pixel_count(d, CONV_Y) * c->slices > INT32_MAX || d->groups > UINT16_MAX ||
        ceil_div(columns_in_all(d), TILE) * c->slices > UINT16_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sm80_weight: %g sums, pixels or groups are more than a launch has",
             (double)sums_of_slice(d));
    return CKL_OK;
}

static int64_t workspace_sm80_weight(const ckl_plan *plan)
{
    const conv_sm80_weight_config *c = plan->config;
    return c->slices > 1 ? c->slices * sums_of_slice(plan->desc) * (int64_t)sizeof(float) : 0;
}

static ckl_status launch_sm80_weight(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_sm80_weight_config *c = plan->config;
    conv_params p = conv_params_of(plan, d, a);
    p.sums = plan_workspace(plan, a->workspace);
    const plan_grid grid = { ceil_div(d->k / d->groups, TILE), ceil_div(columns_in_all(d), TILE) * c->slices,
                             d->groups };
    TRY(plan_launch(plan, 0, grid, &p, stream));
    if (c->slices == 1)
        return CKL_OK;
    return plan_launch(plan, 1, (plan_grid){ .x = ceil_div(sums_of_slice(d), THREADS) }, &p, stream);
}

static const field sm80_weight_fields[] = CONV_FIELDS(conv_sm80_weight_config, CONV_SM80_WEIGHT_CONFIG);

const implementation conv_sm80_weight_implementation = {
    IMPLEMENTATION_PARTS(conv, sm80_weight),
    .cost = cost_sm80_weight,
    .summary =
        "gradient of weights: single elements gathered, mma.sync, slices added in order; every GPU from sm_80 on",
    .kernels = 2,
    .params = &conv_param_list,
    .workspace_bytes = workspace_sm80_weight,
};
