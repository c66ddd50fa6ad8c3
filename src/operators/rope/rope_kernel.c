/*
 * rope_kernel.c - a thread takes the same pairs of several heads of a token, so that it computes sine and cosine once.
 *
 * A head is (PAIR,SIDE): the style is nothing but its strides, so one tiled copy over (PAIR,SIDE,HEAD,TOKEN) serves both. CTA
 * (x,y) takes the x-th tile of tokens and the y-th groups of heads; groups of q come first, then those of k.
 */
#include "cute/kernel.h"
#include "base/math.h"
#include "operators/rope/rope_desc.h"

#define ROPE_CONFIG(X, owner)                                                           \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")           \
    X(owner, ckl_dtype, positions, "i32", "i32 i64", "type of the positions")           \
    X(owner, choice, style, "half", "half interleaved", "which elements are a pair")    \
    X(owner, int, head_dim, "128", "", "elements of a head")                            \
    X(owner, int, rotary_dim, "128", "", "of them, those that rotate")                  \
    X(owner, int, vec, "8", "1 2 4 8", "pairs of a head that a thread takes")           \
    X(owner, int, heads, "4", "1 2 4 8", "heads that a thread holds at once: a group")  \
    X(owner, int, groups, "1", "1 2 4 5 8", "groups of a CTA: they share sine, cosine") \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA, or a few less")

typedef struct rope_config {
    ROPE_CONFIG(FIELD_MEMBER, )
} rope_config;

enum { ROPE_VEC_MAX = 8, ROPE_LANE_BITS = 10 }; // of 1024 lanes
enum { REST_STEPS_UNROLLED = 16 };              // of the elements that are copied

/* Arrays of two: q, then k. Frequencies are in turns per position, each as the sum of two f32. */
#define ROPE_PARAMS(X, owner)                                                    \
    X(owner, pointer, x, [2])                                                    \
    X(owner, pointer, y, [2])                                                    \
    X(owner, i64, ldx, [2])                                                      \
    X(owner, i64, ldy, [2])                                                      \
    X(owner, i64, ldx_head, [2])                                                 \
    X(owner, i64, ldy_head, [2])                                                 \
    X(owner, u32, heads, [2])                                                    \
    X(owner, i64, tokens)                                                        \
    X(owner, pointer, positions)                                                 \
    X(owner, f32, pair_hi, [ROPE_VEC_MAX]) /* pair j of lane 0 */                \
    X(owner, f32, pair_lo, [ROPE_VEC_MAX])                                       \
    X(owner, f32, lane_hi, [ROPE_LANE_BITS]) /* what 2^b lanes multiply it by */ \
    X(owner, f32, lane_lo, [ROPE_LANE_BITS])

KERNEL_PARAMS(rope, ROPE_PARAMS);

/* How a CTA covers tokens: each lane of a token takes `vec` pairs of every head. */
typedef struct rope_tile {
    int vec, lanes, tokens;
} rope_tile;

/* Of kernel 0, for pointers aligned to vectors, or 1, for pointers aligned to the element only. */
static rope_tile tile_of(const rope_config *c, int kernel)
{
    int vec = kernel == 0 ? c->vec : 1, lanes = c->rotary_dim / 2 / vec;
    return (rope_tile){ vec, lanes, lanes < c->threads ? c->threads / lanes : 1 };
}

/* Kernel */

/* An f32 and what is missing from it: 48 bits. */
typedef struct double_f32 {
    val hi, lo;
} double_f32;

/* Dekker's product; what is left out is below 2^-46 of it. */
static double_f32 product(double_f32 a, double_f32 b)
{
    val hi = mul(a.hi, b.hi), rest = fma(a.hi, b.hi, neg(hi));
    rest = fma(a.lo, b.hi, fma(a.hi, b.lo, rest));
    val sum = add(hi, rest);
    return (double_f32){ sum, sub(rest, sub(sum, hi)) };
}

/* Turns per position of pair 0 of a lane, relative to lane 0: theta^(-2 vec lane / rotary_dim). */
static double_f32 lane_factor(const rope_values *p, val lane, int lanes)
{
    double_f32 factor = { immf(1), immf(0) };
    for (int b = 0; 1 << b < lanes; b++) {
        val chosen = ne(bit_and(lane, imm(1 << b)), imm(0));
        double_f32 power = { select(chosen, p->lane_hi[b], immf(1)), select(chosen, p->lane_lo[b], immf(0)) };
        factor = b ? product(factor, power) : power;
    }
    return factor;
}

/*
 * Sine and cosine of position * frequency. Whole turns leave before anything is rounded: adding 1.5 * 2^23 rounds to an
 * integer, and its difference from the product is exact.
 */
static void angle(val position, double_f32 frequency, val *sine, val *cosine)
{
    static const double ROUNDING = 0x1.8p23, TURN = 6.283185307179586;
    val turns = mul(position, frequency.hi);
    val rest = fma(position, frequency.lo, fma(position, frequency.hi, neg(turns)));
    val whole = sub(add(turns, immf(ROUNDING)), immf(ROUNDING));
    sincos_f32(mul(add(sub(turns, whole), rest), immf(TURN)), sine, cosine);
}

/* What a thread knows of its token and its pairs. */
typedef struct rotation {
    val sine[ROPE_VEC_MAX], cosine[ROPE_VEC_MAX];
} rotation;

static rotation rotation_of(const rope_config *cfg, rope_tile t, const rope_values *p, val token, val lane)
{
    rotation r;
    double_f32 factor = lane_factor(p, lane, t.lanes);
    tensor gPositions = gmem_tensor(p->positions, cfg->positions, make_layout(dynamic(p->tokens), leaf(1))); // (TOKENS)
    val position = variable(F32, immf(0));
    IF(lt(token, p->tokens))
        assign(position, convert(F32, at(gPositions, token)));
    position = select(lt(abs(position), immf(0x1p24)), position, immf(NAN));
    for (int j = 0; j < t.vec; j++)
        angle(position, product(factor, (double_f32){ p->pair_hi[j], p->pair_lo[j] }), &r.sine[j], &r.cosine[j]);
    return r;
}

/* q or k: input and output. */
typedef struct side {
    val x, y, ldx, ldy, ldx_head, ldy_head;
    val heads, group; // u32; this CTA's group of them
} side;

static side side_of(const rope_config *cfg, const rope_values *p, val group)
{
    val q_groups = div(add(p->heads[0], imm(cfg->heads - 1)), imm(cfg->heads)), is_k = ge(group, q_groups);
    return (side){ .x = select(is_k, p->x[1], p->x[0]),
                   .y = select(is_k, p->y[1], p->y[0]),
                   .ldx = select(is_k, p->ldx[1], p->ldx[0]),
                   .ldy = select(is_k, p->ldy[1], p->ldy[0]),
                   .ldx_head = select(is_k, p->ldx_head[1], p->ldx_head[0]),
                   .ldy_head = select(is_k, p->ldy_head[1], p->ldy_head[0]),
                   .heads = select(is_k, p->heads[1], p->heads[0]),
                   .group = convert(I64, select(is_k, sub(group, q_groups), group)) };
}

/* A thread's values of (PAIR,SIDE,HEAD,TOKEN) in the order of memory. */
static layout values_of(const rope_config *cfg, int vec)
{
    bool half = cfg->style == CKL_ROPE_HALF;
    return make_layout(shape(vec, 2, cfg->heads, 1), half ? stride(1, vec, 2 * vec, 0) : stride(2, 1, 2 * vec, 0));
}

/* The pairs of all heads and tokens. */
static tensor pairs_of(const rope_config *cfg, val address, val ld_head, val ld, int_tuple sizes)
{
    bool half = cfg->style == CKL_ROPE_HALF;
    int_tuple strides = half ? stride(1, cfg->rotary_dim / 2, ld_head, ld) : stride(2, 1, ld_head, ld);
    return gmem_tensor(address, cfg->dtype, make_layout(sizes, strides));
}

static void rotate(tensor rX, layout values, const rotation *r)
{
    for (int i = 0; i < static_size(values) / 2 && !ir_failed(); i++) {
        int vec = (int)static_size(layout_mode(values, 0)), j = i % vec, head = i / vec;
        int64_t first = static_crd2idx(coord(j, 0, head, 0), values),
                second = static_crd2idx(coord(j, 1, head, 0), values);
        val a = at(rX, first), b = at(rX, second), sine = r->sine[j], cosine = r->cosine[j];
        val rotated = fma(a, cosine, neg(mul(b, sine))); // before `first` changes, which is the register a
        set(rX, second, fma(b, cosine, mul(a, sine)));
        set(rX, first, rotated);
    }
}

static void rotate_group(const rope_config *cfg, rope_tile t, const rope_values *p, const side *s, const rotation *r)
{
    layout threads = make_layout(shape(t.lanes, 1, 1, t.tokens), stride(1, 0, 0, t.lanes)),
           values = values_of(cfg, t.vec);
    tiled_copy each = make_tiled_copy(universal_copy(cfg->dtype, t.vec), cfg->dtype, threads, values);
    int_tuple sizes = shape(cfg->rotary_dim / 2, 2, s->heads, p->tokens), limits = shape(_, _, s->heads, p->tokens);
    tensor cX = local_tile(identity_tensor(sizes), shape(t.lanes * t.vec, 2, cfg->heads, t.tokens),
                           coord(0, 0, s->group, convert(I64, cta_x()))); // (PAIRS,2,HEADS,TOKENS)
    tensor tXcX = partition_S(&each, cX, thread());                       // ((VEC,2*HEADS),1,1,1,1)
    tensor tXgX = tensor_at_coordinates(pairs_of(cfg, s->x, s->ldx_head, s->ldx, sizes), tXcX);
    tensor tXgY = tensor_at_coordinates(pairs_of(cfg, s->y, s->ldy_head, s->ldy, sizes), tXcX);
    tensor rX = fragment_like(tXcX, F32);
    copy_if(&each, tXcX, limits, tXgX, rX, 0);
    rotate(rX, values, r);
    copy_if(&each, tXcX, limits, rX, tXgY, 0);
}

/* The elements from rotary_dim on: (ELEMENT,HEAD,TOKEN). */
typedef struct rest_copy {
    int_tuple sizes;
    tensor gX, gY;
    tiled_copy each;
    int_tuple tile;     // (COLUMNS,HEADS,TOKENS)
    int columns, steps; // tiles of a head, and of all tokens of the CTA
} rest_copy;

/* The threads of a CTA for the rest: more lanes a token, so that neighbours are side by side, as long as its tokens can be halved. */
static rope_tile tile_of_rest(const rope_config *cfg, rope_tile t)
{
    for (; t.lanes * t.vec < cfg->head_dim - cfg->rotary_dim && t.tokens % 2 == 0; t.tokens /= 2)
        t.lanes *= 2;
    return t;
}

static rest_copy rest_of(const rope_config *cfg, rope_tile all, const rope_values *p, const side *s)
{
    const rope_tile t = tile_of_rest(cfg, all);
    const int columns = (int)ceil_div(cfg->head_dim - cfg->rotary_dim, t.lanes * t.vec);
    int64_t start = cfg->rotary_dim * (int64_t)ckl_dtype_bytes(cfg->dtype);
    layout threads = make_layout(shape(t.lanes, 1, t.tokens), stride(1, 0, t.lanes));
    tiled_copy each = make_tiled_copy(universal_copy(cfg->dtype, t.vec), cfg->dtype, threads,
                                      make_layout(shape(t.vec, cfg->heads, 1), stride(1, t.vec, 0)));
    int_tuple sizes = shape(cfg->head_dim - cfg->rotary_dim, s->heads, p->tokens);
    return (rest_copy){
        .sizes = sizes,
        .gX = gmem_tensor(add(s->x, imm64(start)), cfg->dtype, make_layout(sizes, stride(1, s->ldx_head, s->ldx))),
        .gY = gmem_tensor(add(s->y, imm64(start)), cfg->dtype, make_layout(sizes, stride(1, s->ldy_head, s->ldy))),
        .each = each,
        .tile = shape(t.lanes * t.vec, cfg->heads, t.tokens),
        .columns = columns,
        .steps = columns * (all.tokens / t.tokens),
    };
}

/* Tile number `step` of the CTA's. */
static void copy_step(const rest_copy *r, val step, val group)
{
    val first = mul(convert(I64, cta_x()), imm64(r->steps / r->columns));
    val column = rem(step, imm64(r->columns)), tokens = add(first, div(step, imm64(r->columns)));
    tensor cX = local_tile(identity_tensor(r->sizes), r->tile, coord(column, group, tokens));
    tensor tXcX = partition_S(&r->each, cX, thread()), rX = fragment_like(tXcX, r->gX.dtype);
    copy_if(&r->each, tXcX, r->sizes, tensor_at_coordinates(r->gX, tXcX), rX, 0);
    copy_if(&r->each, tXcX, r->sizes, rX, tensor_at_coordinates(r->gY, tXcX), 0);
}

/* In place already where y is x. A long rest of few lanes takes a loop of the kernel. */
static void copy_rest(const rope_config *cfg, rope_tile t, const rope_values *p, const side *s)
{
    rest_copy r = rest_of(cfg, t, p, s);
    for (int i = 0; i < r.steps && r.steps <= REST_STEPS_UNROLLED; i++)
        copy_step(&r, imm64(i), s->group);
    if (r.steps > REST_STEPS_UNROLLED)
        LOOP(i, imm(r.steps))
            copy_step(&r, convert(I64, i), s->group);
}

static void rope(const rope_config *cfg, rope_tile t, const rope_values *p)
{
    val lane = rem(thread(), imm(t.lanes)), row = div(thread(), imm(t.lanes));
    val token = add(mul(convert(I64, cta_x()), imm(t.tokens)), convert(I64, row));
    grid_wait();
    launch_dependents();
    rotation r = rotation_of(cfg, t, p, token, lane);
    LOOP(i, imm(cfg->groups)) {
        side s = side_of(cfg, p, add(mul(cta_y(), imm(cfg->groups)), i));
        rotate_group(cfg, t, p, &s, &r);
        if (cfg->head_dim > cfg->rotary_dim)
            IF(ne(s.x, s.y))
                copy_rest(cfg, t, p, &s);
    }
}

static void describe(const void *config, int kernel)
{
    const rope_config *cfg = config;
    rope_tile t = tile_of(cfg, kernel);
    int busy = t.lanes * t.tokens, threads = (busy + 31) / 32 * 32;
    launch_bounds(threads, 0);
    rope_values p = params_of(rope);
    if (busy == threads)
        rope(cfg, t, &p);
    else IF(lt(thread(), imm(busy)))
        rope(cfg, t, &p);
}

/* Choice */

/* What a vector must divide: a power of two divides all lengths if it divides the union of their bits. */
static int64_t lengths_of(const ckl_rope_desc *d)
{
    return d->rotary_dim / 2 | d->head_dim | d->ldq | d->ldk | d->ldyq | d->ldyk | d->ldq_head | d->ldk_head |
           d->ldyq_head | d->ldyk_head;
}

static int64_t groups_of(const ckl_rope_desc *d, int heads)
{
    return ceil_div(d->heads, heads) + ceil_div(d->k_heads, heads);
}

/* Sine and cosine cost as much as a few heads: CTAs take several groups of them, as long as there are CTAs enough. */
static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    enum { GROUPS_MAX = 8, CTAS_PER_SM = 8 };
    const ckl_rope_desc *d = desc;
    rope_config *c = config;
    c->dtype = d->dtype;
    c->positions = d->positions;
    c->style = (choice)d->style;
    c->head_dim = (int)d->head_dim;
    c->rotary_dim = (int)d->rotary_dim;
    c->vec = (int)min_i64(16 / (int64_t)ckl_dtype_bytes(d->dtype), power_of_two_in(lengths_of(d)));
    while (c->heads > 1 && c->heads / 2 >= max_i64(d->heads, d->k_heads))
        c->heads /= 2;
    int64_t groups = groups_of(d, c->heads), tiles = ceil_div(d->tokens, tile_of(c, 0).tokens);
    for (c->groups = GROUPS_MAX; c->groups > 1; c->groups--)
        if (groups % c->groups == 0 && tiles * groups / c->groups >= (int64_t)CTAS_PER_SM * device->sm_count)
            break;
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_rope_desc *d = desc;
    const rope_config *c = config;
    if (c->dtype != d->dtype || c->positions != d->positions || c->style != (choice)d->style ||
        c->head_dim != d->head_dim || c->rotary_dim != d->rotary_dim)
        FAIL(CKL_INVALID, "rope vector: types, style or sizes of a head in the config are not the problem's");
    if (!is_power_of_two(c->vec) || c->vec * (int)ckl_dtype_bytes(c->dtype) > 16 || lengths_of(d) % c->vec)
        FAIL(CKL_INVALID, "rope vector: vec=%d is no power of two of at most 16 bytes that divides heads and distances",
             c->vec);
    if (!is_power_of_two(c->heads) || c->heads > 8 || c->groups < 1)
        FAIL(CKL_INVALID, "rope vector: heads=%d is no power of two up to 8 or groups=%d is not positive", c->heads,
             c->groups);
    if (c->threads < 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "rope vector: threads=%d is not in 32..%d", c->threads, device->threads_per_cta_max);
    if (ceil_div(groups_of(d, c->heads), c->groups) > 65535)
        FAIL(CKL_UNSUPPORTED, "rope vector: groups=%d leaves more than 65535 of them side by side", c->groups);
    return CKL_OK;
}

/* Launch */

/* Frequencies in turns per position, each in two f32; the inverse turns the other way. */
static void set_frequencies(const ckl_rope_desc *d, int vec, rope_params *p)
{
    const double turn = 6.283185307179586, base = (d->inverse ? -1 : 1) * (double)d->scale / turn;
    for (int j = 0; j < vec; j++) {
        double x = base * pow((double)d->theta, -2.0 * j / (double)d->rotary_dim);
        p->pair_hi[j] = (float)x;
        p->pair_lo[j] = (float)(x - (double)p->pair_hi[j]);
    }
    for (int b = 0; b < ROPE_LANE_BITS; b++) {
        double x = pow((double)d->theta, -2.0 * vec * (1 << b) / (double)d->rotary_dim);
        p->lane_hi[b] = (float)x;
        p->lane_lo[b] = (float)(x - (double)p->lane_hi[b]);
    }
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_rope_desc *d = plan->desc;
    const ckl_rope_args *x = args;
    const rope_config *c = plan->config;
    int kernel = PLAN_ALIGNED(c->vec * (int64_t)ckl_dtype_bytes(d->dtype), x->q, x->k, x->yq, x->yk) ? 0 : 1;
    rope_tile tile = tile_of(c, kernel);
    rope_params params = { .x = { x->q, x->k },
                           .y = { x->yq, x->yk },
                           .ldx = { d->ldq, d->ldk },
                           .ldy = { d->ldyq, d->ldyk },
                           .ldx_head = { d->ldq_head, d->ldk_head },
                           .ldy_head = { d->ldyq_head, d->ldyk_head },
                           .heads = { (uint32_t)d->heads, (uint32_t)d->k_heads },
                           .tokens = d->tokens,
                           .positions = x->positions };
    set_frequencies(d, tile.vec, &params);
    const plan_grid grid = { .x = ceil_div(d->tokens, tile.tokens), .y = ceil_div(groups_of(d, c->heads), c->groups) };
    return plan_launch(plan, kernel, grid, &params, stream);
}

static const field config_fields[] = { ROPE_CONFIG(FIELD_ROW, rope_config) };

const implementation rope_vector = {
    .name = "vector",
    .summary = "vectors of pairs, several heads a thread that share sine and cosine",
    .config_bytes = sizeof(rope_config),
    .config = FIELD_TABLE(config_fields),
    .choose = choose,
    .admit = admit,
    .describe = describe,
    .kernels = 2,
    .params = &rope_param_list,
    .launch = launch,
};
