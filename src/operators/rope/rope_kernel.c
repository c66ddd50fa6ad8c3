/*
 * rope_kernel.c - a thread takes the same pairs of several heads of a token, so it computes sine and cosine once.
 *
 * A head is a row of slots, two vectors each: both sides of `vec` pairs, or neighbours, where elements are only copied.
 * Lanes take neighbouring slots, then tokens. CTA (x,y) takes the x-th tile of tokens and the y-th group of heads;
 * groups of q come first, then those of k.
 */
#include "operators/rope/rope_angles.h"

#include <string.h>

#include "base/math.h"
#include "skeletons/memory_cost.h"
#include "skeletons/prefetch.h"

#define ROPE_CONFIG(X, owner)                                                       \
    ROPE_HEAD(X, owner)                                                             \
    X(owner, int, vec, "8", "1 2 4 8", "pairs of a head that a thread takes")       \
    X(owner, int, heads, "4", "1 2 4 8", "heads that a thread holds at once")       \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA, or a few less") \
    X(owner, bool, prefetch, "0", "0 1", "ask L2 for q and k while the kernel before may still run")

FIELD_STRUCT(rope_vector_config, ROPE_CONFIG);

/* How a CTA covers (SLOT,TOKEN) of the heads of a thread: lanes and tokens side by side. */
typedef struct rope_tile {
    int vec, pair_slots, slots; // of a head; those of pairs come first
    int lanes, tokens;
} rope_tile;

/* Of kernel 0, for pointers aligned to vectors, or 1, for pointers aligned to the element only. */
static rope_tile tile_of(const rope_vector_config *c, int kernel)
{
    const int vec = kernel == 0 ? c->vec : 1, pair_slots = c->rotary_dim / 2 / vec;
    rope_tile t = { .vec = vec, .pair_slots = pair_slots };
    t.slots = pair_slots + (int)ceil_div(c->head_dim - c->rotary_dim, 2 * vec);
    t.lanes = (int)min_i64(t.slots, max_i64(pair_slots, c->threads));
    t.tokens = (int)max_i64(1, c->threads / t.lanes);
    return t;
}

/* Kernel */

/* q or k: input and output. */
typedef struct side {
    val x, y, ldx, ldy, ldx_head, ldy_head;
    val heads, group; // u32; this CTA's group of them
} side;

/* Of q and k. */
static val either(val is_k, const val of[2])
{
    return select(is_k, of[1], of[0]);
}

static side side_of(const rope_values *p, int of_group, val group)
{
    val q_groups = div(add(p->heads[0], imm(of_group - 1)), imm(of_group)), is_k = ge(group, q_groups);
    return (side){ .x = either(is_k, p->x),
                   .y = either(is_k, p->y),
                   .ldx = either(is_k, p->ldx),
                   .ldy = either(is_k, p->ldy),
                   .ldx_head = either(is_k, p->ldx_head),
                   .ldy_head = either(is_k, p->ldy_head),
                   .heads = either(is_k, p->heads),
                   .group = convert(I64, select(is_k, sub(group, q_groups), group)) };
}

/* A thread's place in its group. */
typedef struct place {
    const rope_vector_config *cfg;
    rope_tile t;
    const rope_values *p;
    val lane, row;                                // u32; row: of its token in the CTA
    val position;                                 // of its token
    val rotates;                                  // does its first slot have pairs? Always, where all elements do
    val sine[ROPE_VEC_MAX], cosine[ROPE_VEC_MAX]; // of its token and these pairs
} place;

static bool has_rest(const rope_vector_config *cfg)
{
    return cfg->head_dim > cfg->rotary_dim;
}

static bool is_half(const rope_vector_config *cfg)
{
    return cfg->style == CKL_ROPE_HALF;
}

/* The slot of this thread in each of its heads. */
typedef struct slot {
    tiled_copy each;
    tensor cX[2]; // ((VEC,1),1,HEADS,1): elements, heads and tokens of its two vectors
    int_tuple limits;
} slot;

/* In place the elements that do not rotate are where they should be. */
static slot slot_of(const place *at, const side *s, val number, val rotates)
{
    const rope_vector_config *cfg = at->cfg;
    const rope_tile t = at->t;
    const int side_by_side = 2 * t.vec;
    slot k = { .each = make_tiled_copy(universal_copy(cfg->dtype, t.vec), cfg->dtype, compact(shape(1, 1, t.tokens)),
                                       compact(shape(t.vec, 1, 1))) };
    tensor cX =
        local_tile(identity_tensor(shape(cfg->head_dim, s->heads, at->p->tokens)), shape(t.vec, cfg->heads, t.tokens),
                   coord(0, s->group, convert(I64, cta_x()))); // (VEC,HEADS,TOKENS)
    tensor tXcX = partition_S(&k.each, cX, at->row);           // ((VEC,1),1,HEADS,1)
    val first = mul(number, imm(side_by_side)), distance = imm_as(U32, t.vec);
    if (is_half(cfg)) {
        first = select(rotates, mul(number, imm(t.vec)), first);
        distance = select(rotates, imm_as(U32, cfg->rotary_dim / 2), distance);
    }
    k.cX[0] = coordinates_from(tXcX, 0, first);
    k.cX[1] = coordinates_from(tXcX, 0, add(first, distance));
    val end = select(eq(s->x, s->y), imm_as(U32, cfg->rotary_dim), imm_as(U32, cfg->head_dim));
    k.limits = has_rest(cfg) ? shape(end, s->heads, at->p->tokens) : shape(_, s->heads, at->p->tokens);
    return k;
}

enum { LOAD, STORE };

/* A slot's elements of all heads, from memory or to it; head by head, so that both vectors of one move together. */
static void move_slot(const place *at, const side *s, const slot *k, int how, const tensor rX[2])
{
    const bool loads = how == LOAD;
    layout all = make_layout(shape(at->cfg->head_dim, s->heads, at->p->tokens),
                             loads ? stride(1, s->ldx_head, s->ldx) : stride(1, s->ldy_head, s->ldy));
    tensor gAll = gmem_tensor(loads ? s->x : s->y, at->cfg->dtype, all), gX[2]; // ((VEC,1),1,HEADS,1)
    for (int i = 0; i < 2; i++)
        gX[i] = tensor_at_coordinates(gAll, k->cX[i]);
    for (int i = 0; i < 2 * at->cfg->heads; i++) {
        const int which = i % 2, head = i / 2;
        const tensor vector = slice(rX[which], _, head);       // (VEC)
        const tensor memory = slice(gX[which], _, _, head, _); // ((VEC,1),1,1)
        const tensor cX = slice(k->cX[which], _, _, head, _);  // ((VEC,1),1,1)
        copy_if(&k->each, cX, k->limits, loads ? memory : vector, loads ? vector : memory, 0);
    }
}

static void make_registers(const place *at, ckl_dtype dtype, tensor rX[2])
{
    for (int i = 0; i < 2; i++)
        rX[i] = fragment(dtype, compact(shape(at->t.vec, at->cfg->heads))); // (VEC,HEADS)
}

/* Threads that have pairs rotate them. */
static void turn(const place *at, const tensor *rX)
{
    const rope_pairs pairs = { at->cfg->dtype, is_half(at->cfg), at->t.vec, at->t.pair_slots };
    rope_find_rotation(at->p, &pairs, at->lane, rope_number(at->position), at->sine, at->cosine);
    rope_rotate(&pairs, at->cfg->heads, at->sine, at->cosine, rX);
}

/* Sine and cosine are found while the elements are on their way. */
static void rotate_group(const place *at, const side *s)
{
    tensor rX[2]; // (VEC,HEADS)
    make_registers(at, F32, rX);
    slot k = slot_of(at, s, at->lane, at->rotates);
    move_slot(at, s, &k, LOAD, rX);
    if (has_rest(at->cfg)) {
        IF(at->rotates)
            turn(at, rX);
    } else
        turn(at, rX);
    move_slot(at, s, &k, STORE, rX);
}

/* Slots beyond those of the first pass over lanes. */
static void copy_group(const place *at, const side *s)
{
    tensor rX[2]; // (VEC,HEADS)
    make_registers(at, at->cfg->dtype, rX);
    LOOP_FROM(number, add(at->lane, imm(at->t.lanes)), imm_as(U32, at->t.slots), imm(at->t.lanes)) {
        slot k = slot_of(at, s, number, no());
        move_slot(at, s, &k, LOAD, rX);
        move_slot(at, s, &k, STORE, rX);
    }
}

static void rope(const rope_vector_config *cfg, rope_tile t, const rope_values *p)
{
    place at = { .cfg = cfg,
                 .t = t,
                 .p = p,
                 .lane = thread_at(thread(), 0, t.lanes, t.tokens),
                 .row = thread_at(thread(), 1, t.lanes, t.tokens) };
    val token = add(mul(convert(I64, cta_x()), imm(t.tokens)), convert(I64, at.row));
    at.rotates = has_rest(cfg) ? lt(at.lane, imm(t.pair_slots)) : yes();
    for (int j = 0; j < t.vec; j++) {
        at.sine[j] = variable(F32, immf(0));
        at.cosine[j] = variable(F32, immf(1));
    }
    if (cfg->prefetch)
        IF(eq(cta_y(), imm(0)))
            rope_prefetch(p, cfg->head_dim, cfg->dtype, cfg->positions);
    grid_wait();
    launch_dependents();
    at.position = rope_position(p, cfg->positions, token);
    side s = side_of(p, cfg->heads, cta_y());
    rotate_group(&at, &s);
    if (t.slots > t.lanes)
        copy_group(&at, &s);
}

static void rope_vector(const void *config, int kernel)
{
    const rope_vector_config *cfg = config;
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

static int64_t groups_of(const ckl_rope_desc *d, const rope_vector_config *c)
{
    return ceil_div(d->heads, c->heads) + ceil_div(d->k_heads, c->heads);
}

static int64_t ctas_of(const ckl_rope_desc *d, const rope_vector_config *c)
{
    return ceil_div(d->tokens, tile_of(c, 0).tokens) * groups_of(d, c);
}

/* Few tokens have small CTAs of few heads, so that all SMs have some. */
static ckl_status choose_vector(const void *desc, const ckl_device_info *device, void *config)
{
    enum { THREADS_MIN = 64 };
    const ckl_rope_desc *d = desc;
    const rope_head head = rope_head_of(d);
    rope_vector_config *c = config;
    memcpy(config, &head, sizeof head);
    c->vec = (int)min_i64(16 / (int64_t)ckl_dtype_bytes(d->dtype), power_of_two_in(lengths_of(d)));
    while (c->heads > 1 && c->heads / 2 >= max_i64(d->heads, d->k_heads))
        c->heads /= 2;
    while (c->threads > THREADS_MIN && ctas_of(d, c) < device->sm_count)
        c->threads /= 2;
    while (c->heads > 1 && ctas_of(d, c) < device->sm_count)
        c->heads /= 2;
    const int64_t elements = product_i64(d->tokens, d->ldq + d->ldk);
    c->prefetch = elements <= PREFETCHED_BYTES / (int64_t)ckl_dtype_bytes(d->dtype);
    return CKL_OK;
}

/* Sine and cosine of a pair, and each element of the heads that share them. */
static plan_cost cost_vector(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { ANGLE = 20 };
    const double US = 0.8, REST_US = 0.7; // what does not rotate parts the lanes of a warp
    const ckl_rope_desc *d = desc;
    const rope_vector_config *c = config;
    const rope_tile t = tile_of(c, 0);
    const int64_t heads = d->heads + d->k_heads, bytes = (int64_t)ckl_dtype_bytes(d->dtype);
    const double held = 2.0 * t.vec * c->heads, slots = ceil((double)t.slots / t.lanes);
    const memory_work work = { .of = { .us = US + (has_rest(c) ? REST_US : 0), .wait_cycles = -1700, .bytes = 1.2 },
                               .bytes = 2.0 * (double)(d->tokens * heads) * (double)(d->head_dim * bytes),
                               .ctas = ctas_of(d, c),
                               .threads = t.lanes * t.tokens,
                               .registers = (int)held,
                               .lines = 2 * slots * memory_lines(held * (double)bytes, 128),
                               .elements = slots * (held + ANGLE * t.vec) };
    return memory_cost(&work, device);
}

static ckl_status admit_vector(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_rope_desc *d = desc;
    const rope_vector_config *c = config;
    const rope_head head = rope_head_of(d);
    if (memcmp(&head, c, sizeof head) != 0)
        FAIL(CKL_INVALID, "rope vector: types, style or sizes of a head in the config are not the problem's");
    if (!is_power_of_two(c->vec) || c->vec * (int)ckl_dtype_bytes(c->dtype) > 16 || lengths_of(d) % c->vec)
        FAIL(CKL_INVALID, "rope vector: vec=%d is no power of two of at most 16 bytes that divides heads and distances",
             c->vec);
    if (!is_power_of_two(c->heads) || c->heads > 8)
        FAIL(CKL_INVALID, "rope vector: heads=%d is no power of two up to 8", c->heads);
    if (c->threads < 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "rope vector: threads=%d is not in 32..%d", c->threads, device->threads_per_cta_max);
    if (groups_of(d, c) > 65535)
        FAIL(CKL_UNSUPPORTED, "rope vector: heads=%d leave more than 65535 groups side by side", c->heads);
    return CKL_OK;
}

/* Launch */

static ckl_status launch_vector(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_rope_desc *d = plan->desc;
    const ckl_rope_args *x = args;
    const rope_vector_config *c = plan->config;
    int kernel = PLAN_ALIGNED(c->vec * (int64_t)ckl_dtype_bytes(d->dtype), x->q, x->k, x->yq, x->yk) ? 0 : 1;
    rope_tile tile = tile_of(c, kernel);
    const rope_params params = rope_params_of(d, x, tile.vec);
    const plan_grid grid = { .x = ceil_div(d->tokens, tile.tokens), .y = groups_of(d, c) };
    return plan_launch(plan, kernel, grid, &params, stream);
}

static const field vector_fields[] = { ROPE_CONFIG(FIELD_ROW, rope_vector_config) };

const implementation rope_vector_implementation = {
    IMPLEMENTATION_PARTS(rope, vector),
    .summary = "vectors of pairs, several heads a thread that share sine and cosine",
    .cost = cost_vector,
    .kernels = 2,
    .params = &rope_param_list,
};
