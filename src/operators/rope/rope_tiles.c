/*
 * rope_tiles.c - heads that lie side by side without gaps: the tokens of a tile are one run of memory, which bulk copies
 * bring to shared memory and back, whatever the length of a head. Its pairs rotate there; what does not rotate is
 * nobody's work. CTA (x,y) takes the x-th tile of q, or of k.
 */
#include "operators/rope/rope_angles.h"

#include "base/dtype.h"
#include "base/math.h"
#include "skeletons/memory_cost.h"

#define ROPE_TILES_CONFIG(X, owner)                                                          \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")                \
    X(owner, ckl_dtype, positions, "i32", "i32 i64", "type of the positions")                \
    X(owner, choice, style, "half", "half interleaved", "which elements are a pair")         \
    X(owner, int, head_dim, "128", "", "elements of a head")                                 \
    X(owner, int, rotary_dim, "128", "", "of them, those that rotate")                       \
    X(owner, int, heads, "1", "", "heads of q or k, whichever has more")                     \
    X(owner, int, vec, "8", "1 2 4 8", "pairs of a head that a thread takes")                \
    X(owner, int, tokens, "8", "", "tokens of a tile")                                       \
    X(owner, int, abreast, "1", "", "heads of a token that threads rotate at the same time") \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")

typedef struct rope_tiles_config {
    ROPE_TILES_CONFIG(FIELD_MEMBER, )
} rope_tiles_config;

enum { BULK_BYTES = 16, TILE_BYTES_MAX = 96 << 10 };

static int64_t tile_bytes(const rope_tiles_config *c)
{
    return (int64_t)c->tokens * c->heads * c->head_dim * dtype_bytes(c->dtype);
}

static int lanes_of(const rope_tiles_config *c)
{
    return c->rotary_dim / 2 / c->vec;
}

/* Kernel */

typedef struct tile {
    const rope_tiles_config *cfg;
    const rope_values *p;
    bool by_bulk;         // kernel 0; kernel 1 is for pointers aligned to the element only
    val x, y;             // of its first element
    val heads, tokens;    // u32; the last tile has fewer tokens
    val elements, copied; // u32; the first `copied` elements go by bulk copies
    val first;            // i64, its first token
    val memory, barrier;  // in shared memory
} tile;

static tile tile_here(const rope_tiles_config *cfg, const rope_values *p, bool by_bulk)
{
    val is_k = eq(cta_y(), imm(1)), first = mul(convert(I64, cta_x()), imm(cfg->tokens));
    tile t = {
        .cfg = cfg, .p = p, .by_bulk = by_bulk, .heads = select(is_k, p->heads[1], p->heads[0]), .first = first
    };
    const int per_copy = BULK_BYTES / dtype_bytes(cfg->dtype);
    val of_token = mul(t.heads, imm(cfg->head_dim)),
        start = mul(mul(first, convert(I64, of_token)), imm(dtype_bytes(cfg->dtype)));
    t.x = add(select(is_k, p->x[1], p->x[0]), convert(U64, start));
    t.y = add(select(is_k, p->y[1], p->y[0]), convert(U64, start));
    t.tokens = convert(U32, min(sub(p->tokens, first), imm64(cfg->tokens)));
    t.elements = mul(t.tokens, of_token);
    t.copied = by_bulk ? bit_and(t.elements, imm(-per_copy)) : imm_as(U32, 0);
    t.memory = smem_address(smem_alloc("tile", round_up(tile_bytes(cfg), BULK_BYTES), BULK_BYTES));
    t.barrier = smem_address(smem_alloc("barrier", 8, 8));
    return t;
}

static val element_address(const tile *t, val from, val number)
{
    return add(from, convert(from.type, mul(number, imm(dtype_bytes(t->cfg->dtype)))));
}

/* The elements that bulk copies leave. */
static void copy_rest(const tile *t, bool loads)
{
    const layout one = compact(leaf(1));
    LOOP_FROM(i, add(t->copied, thread()), t->elements, imm(t->cfg->threads)) {
        tensor gX = gmem_tensor(element_address(t, loads ? t->x : t->y, i), t->cfg->dtype, one); // (1)
        tensor sX = smem_view(element_address(t, t->memory, i), t->cfg->dtype, one);             // (1)
        tensor rX = fragment(t->cfg->dtype, one);                                                // (1)
        copy(loads ? gX : sX, rX, 0);
        copy(rX, loads ? sX : gX, 0);
    }
}

static tensor bulk_of(const tile *t, val address, bool shared)
{
    const layout all = make_layout(dynamic(t->copied), leaf(1));
    return shared ? smem_view(address, t->cfg->dtype, all) : gmem_tensor(address, t->cfg->dtype, all);
}

static void load_tile(const tile *t)
{
    val bytes = mul(t->copied, imm(dtype_bytes(t->cfg->dtype)));
    if (t->by_bulk)
        IF(eq(thread(), imm(0))) {
            mbarrier_init(t->barrier, 1);
            fence_mbarrier_init();
            mbarrier_expect(t->barrier, bytes);
            IF(ne(bytes, imm(0)))
                bulk_load(bulk_of(t, t->x, false), bulk_of(t, t->memory, true), t->barrier);
        }
    copy_rest(t, true);
    cta_sync(); // the barrier is initialised, and what was copied element by element is there
}

static void store_tile(const tile *t)
{
    const staged_store out = { imm(0), t->cfg->threads, eq(thread(), imm(0)) };
    if (t->by_bulk)
        LAST_STAGED_STORE(&out) {
            IF(ne(t->copied, imm(0)))
                bulk_store(bulk_of(t, t->memory, true), bulk_of(t, t->y, false));
        }
    else
        cta_sync();
    copy_rest(t, false);
}

/* The pairs of a lane in one head. */
static void rotate_head(const tile *t, const rope_pairs *pairs, val lane, val head, const val *sine, const val *cosine)
{
    const rope_tiles_config *c = t->cfg;
    const int vec = c->vec, apart = pairs->half ? c->rotary_dim / 2 : vec;
    val first = add(mul(head, imm(c->head_dim)), mul(lane, imm(pairs->half ? vec : 2 * vec)));
    tensor sX[2], rX[2]; // (VEC,1)
    for (int i = 0; i < 2; i++) {
        sX[i] = smem_view(element_address(t, t->memory, add(first, imm(i * apart))), c->dtype, compact(shape(vec, 1)));
        rX[i] = fragment(F32, compact(shape(vec, 1)));
        copy(sX[i], rX[i], vec * dtype_bytes(c->dtype));
    }
    rope_rotate(pairs, 1, sine, cosine, rX);
    for (int i = 0; i < 2; i++)
        copy(rX[i], sX[i], vec * dtype_bytes(c->dtype));
}

/* Threads take lanes, then heads, then tokens. The tile comes while the first sines and cosines are computed. */
static void rotate_tile(const tile *t)
{
    const rope_tiles_config *c = t->cfg;
    const rope_pairs pairs = { c->dtype, c->style == CKL_ROPE_HALF, c->vec, lanes_of(c) };
    const int lanes = pairs.lanes, abreast = c->abreast, side_by_side = c->threads / (lanes * abreast);
    val sine[ROPE_VEC_MAX], cosine[ROPE_VEC_MAX];
    val lane = thread_at(thread(), 0, lanes, abreast * side_by_side),
        rest = thread_at(thread(), 1, lanes, abreast * side_by_side);
    val head = thread_at(rest, 0, abreast, side_by_side), start = thread_at(rest, 1, abreast, side_by_side);
    for (int j = 0; j < c->vec; j++) {
        sine[j] = variable(F32, immf(0));
        cosine[j] = variable(F32, immf(1));
    }
    LOOP_FROM(token, start, t->tokens, imm(side_by_side)) {
        val position = rope_position(t->p, c->positions, add(t->first, convert(I64, token)));
        rope_find_rotation(t->p, &pairs, lane, position, sine, cosine);
        if (t->by_bulk)
            mbarrier_wait(t->barrier, imm(0));
        LOOP_FROM(h, head, t->heads, imm(abreast))
            rotate_head(t, &pairs, lane, add(mul(token, t->heads), h), sine, cosine);
    }
}

static void describe(const void *config, int kernel)
{
    const rope_tiles_config *cfg = config;
    const int busy = cfg->threads / (lanes_of(cfg) * cfg->abreast) * lanes_of(cfg) * cfg->abreast;
    launch_bounds(cfg->threads, 0);
    rope_values p = params_of(rope);
    tile t = tile_here(cfg, &p, kernel == 0);
    grid_wait();
    launch_dependents();
    load_tile(&t);
    if (busy == cfg->threads)
        rotate_tile(&t);
    else IF(lt(thread(), imm(busy)))
        rotate_tile(&t);
    store_tile(&t);
}

/* Choice */

/* Are the heads of all tokens one run of memory? */
static bool is_dense(const ckl_rope_desc *d)
{
    const bool q = d->ldq_head == d->head_dim && d->ldyq_head == d->head_dim && d->ldq == d->heads * d->head_dim &&
                   d->ldyq == d->ldq;
    const bool k = d->ldk_head == d->head_dim && d->ldyk_head == d->head_dim && d->ldk == d->k_heads * d->head_dim &&
                   d->ldyk == d->ldk;
    return q && (k || d->k_heads == 0);
}

/* Tokens of a tile are a multiple of this, so that all tiles begin at a boundary of bulk copies. */
static int64_t tokens_unit(const ckl_rope_desc *d)
{
    const int64_t elements = (d->heads | d->k_heads) * d->head_dim;
    return BULK_BYTES / min_i64(BULK_BYTES, power_of_two_in(elements) * (int64_t)ckl_dtype_bytes(d->dtype));
}

static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    enum { TILE_BYTES = 24 << 10, CTAS_PER_SM = 2 };
    const ckl_rope_desc *d = desc;
    rope_tiles_config *c = config;
    const int64_t size = (int64_t)ckl_dtype_bytes(d->dtype), heads = max_i64(d->heads, d->k_heads);
    if (!is_dense(d))
        FAIL(CKL_UNSUPPORTED, "rope tiles: there are gaps between heads or tokens");
    const int64_t unit = tokens_unit(d), of_token = heads * d->head_dim * size;
    if (unit * of_token > TILE_BYTES_MAX)
        FAIL(CKL_UNSUPPORTED, "rope tiles: %" PRId64 " tokens of %" PRId64 " bytes are no tile", unit, of_token);
    c->dtype = d->dtype;
    c->positions = d->positions;
    c->style = (choice)d->style;
    c->head_dim = (int)d->head_dim;
    c->rotary_dim = (int)d->rotary_dim;
    c->heads = (int)heads;
    c->vec = (int)min_i64(BULK_BYTES / size, power_of_two_in(d->rotary_dim / 2 | d->head_dim));
    const int64_t spread = ceil_div(d->tokens, (int64_t)CTAS_PER_SM * device->sm_count);
    c->tokens = (int)(unit * max_i64(1, min_i64(TILE_BYTES / of_token, spread) / unit));
    if (lanes_of(c) > c->threads)
        FAIL(CKL_UNSUPPORTED, "rope tiles: rotary_dim=%d are more than threads=%d take", c->rotary_dim, c->threads);
    while (lanes_of(c) * c->abreast * c->tokens < c->threads && 2 * c->abreast <= c->heads &&
           2 * c->abreast * lanes_of(c) <= c->threads)
        c->abreast *= 2;
    return CKL_OK;
}

/* Sine and cosine of a pair, and each element of the heads that share them. */
static plan_cost cost(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { ANGLE = 20 };
    const ckl_rope_desc *d = desc;
    const rope_tiles_config *c = config;
    const double bytes =
        (double)(d->tokens * (d->heads + d->k_heads) * d->head_dim * (int64_t)ckl_dtype_bytes(d->dtype));
    const double tokens = ceil((double)(c->tokens * lanes_of(c) * c->abreast) / c->threads);
    const double heads = ceil((double)c->heads / c->abreast);
    const memory_work work = { .of = { .us = 0.8 },
                               .bytes = 2 * bytes,
                               .ctas = ceil_div(d->tokens, c->tokens) * (d->k_heads ? 2 : 1),
                               .threads = c->threads,
                               .smem_bytes = tile_bytes(c),
                               .elements = tokens * c->vec * (2 * heads + ANGLE),
                               .meets = true };
    return memory_cost(&work, device);
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_rope_desc *d = desc;
    const rope_tiles_config *c = config;
    if (c->dtype != d->dtype || c->positions != d->positions || c->style != (choice)d->style ||
        c->head_dim != d->head_dim || c->rotary_dim != d->rotary_dim || c->heads != max_i64(d->heads, d->k_heads))
        FAIL(CKL_INVALID, "rope tiles: types, style, heads or sizes of a head in the config are not the problem's");
    if (!is_dense(d))
        FAIL(CKL_UNSUPPORTED, "rope tiles: there are gaps between heads or tokens");
    if (!is_power_of_two(c->vec) || c->vec * (int)ckl_dtype_bytes(c->dtype) > BULK_BYTES ||
        (d->rotary_dim / 2 | d->head_dim) % c->vec)
        FAIL(CKL_INVALID,
             "rope tiles: vec=%d is no power of two of at most 16 bytes that divides heads and their halves", c->vec);
    if (c->threads < 32 || c->threads % 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "rope tiles: threads=%d is no multiple of 32 up to %d", c->threads,
             device->threads_per_cta_max);
    if (c->abreast < 1 || (int64_t)c->abreast * lanes_of(c) > c->threads)
        FAIL(CKL_INVALID, "rope tiles: abreast=%d heads of %d lanes are not 1..threads=%d", c->abreast, lanes_of(c),
             c->threads);
    if (c->tokens < 1 || c->tokens % tokens_unit(d) || tile_bytes(c) > TILE_BYTES_MAX)
        FAIL(CKL_INVALID, "rope tiles: tokens=%d is no multiple of %" PRId64 " or more than %d bytes", c->tokens,
             tokens_unit(d), TILE_BYTES_MAX);
    return CKL_OK;
}

/* Launch */

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_rope_desc *d = plan->desc;
    const ckl_rope_args *x = args;
    const rope_tiles_config *c = plan->config;
    const int kernel = PLAN_ALIGNED(BULK_BYTES, x->q, x->k, x->yq, x->yk) ? 0 : 1;
    const rope_params params = rope_params_of(d, x, c->vec);
    const plan_grid grid = { .x = ceil_div(d->tokens, c->tokens), .y = d->k_heads ? 2 : 1 };
    return plan_launch(plan, kernel, grid, &params, stream);
}

static const field config_fields[] = { ROPE_TILES_CONFIG(FIELD_ROW, rope_tiles_config) };

const implementation rope_tiles = {
    .name = "tiles",
    .summary = "heads without gaps: tokens go through shared memory by bulk copies, any length of a head",
    .config_bytes = sizeof(rope_tiles_config),
    .config = FIELD_TABLE(config_fields),
    .choose = choose,
    .cost = cost,
    .admit = admit,
    .describe = describe,
    .kernels = 2,
    .params = &rope_param_list,
    .launch = launch,
    .target = IR_SM90,
};
