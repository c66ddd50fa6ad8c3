/*
 * rope_tiles.c - heads that lie side by side without gaps: the tokens of a tile are one run of memory, which bulk
 * copies bring to shared memory and back, whatever the length of a head. Its pairs rotate there; what does not rotate
 * is nobody's work. Tiles of q come first, then those of k.
 */
#include "operators/rope/rope_angles.h"

#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "skeletons/memory_cost.h"
#include "skeletons/prefetch.h"

#define ROPE_TILES_CONFIG(X, owner)                                                                           \
    ROPE_HEAD(X, owner)                                                                                       \
    X(owner, int, heads, "1", "", "heads of q or k, whichever has more")                                      \
    X(owner, int, vec, "8", "1 2 4 8", "pairs of a head that a thread takes")                                 \
    X(owner, int, tokens, "8", "", "tokens of a tile of q")                                                   \
    X(owner, int, k_tokens, "8", "", "tokens of a tile of k")                                                 \
    X(owner, int, abreast, "1", "1 2 4 8", "heads of q that threads rotate at the same time: a power of two") \
    X(owner, int, k_abreast, "1", "1 2 4 8", "heads of k")                                                    \
    X(owner, int, kb, "1", "", "KB of a tile")                                                                \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")                                          \
    X(owner, bool, prefetch, "0", "0 1", "ask L2 for q and k while the kernel before may still run")

FIELD_STRUCT(rope_tiles_config, ROPE_TILES_CONFIG);
enum { BULK_BYTES = 16, TILE_BYTES_MAX = 72 << 10 }; // three CTAs an SM
enum { RESIDENT_THREADS = 1280 };                    // of an SM, for which it has registers: 48 each

static int lanes_of(const rope_tiles_config *c)
{
    return c->rotary_dim / 2 / c->vec;
}

/* Kernel */

typedef struct tile {
    const rope_tiles_config *cfg;
    const rope_values *p;
    bool by_bulk;                   // kernel 0; kernel 1 is for pointers aligned to the element only
    val is_k;                       // predicate
    val x, y;                       // of its first element
    val heads, tokens;              // u32; the last tile has fewer tokens
    val elements, copied;           // u32; the first `copied` elements go by bulk copies
    val first;                      // i64, its first token
    val memory, positions, barrier; // in shared memory; positions are f32
} tile;

static val of_either(val is_k, int of_q, int of_k)
{
    return select(is_k, imm_as(U32, of_k), imm_as(U32, of_q));
}

static tile tile_here(const rope_tiles_config *cfg, const rope_values *p, bool by_bulk)
{
    const int size = dtype_bytes(cfg->dtype), per_copy = BULK_BYTES / size;
    val q_tiles = div(convert(U32, add(p->tokens, imm64(cfg->tokens - 1))), imm(cfg->tokens)),
        is_k = ge(cta_x(), q_tiles);
    val number = sub(cta_x(), select(is_k, q_tiles, imm_as(U32, 0))),
        most = of_either(is_k, cfg->tokens, cfg->k_tokens);
    tile t = { .cfg = cfg, .p = p, .by_bulk = by_bulk, .is_k = is_k };
    t.heads = select(is_k, p->heads[1], p->heads[0]);
    t.first = mul(convert(I64, number), convert(I64, most));
    t.tokens = convert(U32, min(sub(p->tokens, t.first), convert(I64, most)));
    val of_token = mul(t.heads, imm(cfg->head_dim)), start = mul(mul(t.first, convert(I64, of_token)), imm(size));
    t.x = add(select(is_k, p->x[1], p->x[0]), convert(U64, start));
    t.y = add(select(is_k, p->y[1], p->y[0]), convert(U64, start));
    t.elements = mul(t.tokens, of_token);
    t.copied = by_bulk ? bit_and(t.elements, imm(-per_copy)) : imm_as(U32, 0);
    t.memory = smem_address(smem_alloc("tile", (int64_t)cfg->kb << 10, BULK_BYTES));
    t.positions = smem_address(smem_alloc("positions", 4 * max_i64(cfg->tokens, cfg->k_tokens), 4));
    t.barrier = smem_address(smem_alloc("barrier", 8, 8));
    return t;
}

static tensor position_of(const tile *t, val token)
{
    return smem_view(add(t->positions, mul(token, imm(4))), F32, compact(leaf(1))); // (1)
}

static void load_positions(const tile *t)
{
    LOOP_FROM(token, convert(U32, thread()), t->tokens, imm(t->cfg->threads)) {
        val position = rope_position(t->p, t->cfg->positions, add(t->first, convert(I64, token)));
        set(position_of(t, token), 0, rope_number(position));
    }
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
    load_positions(t);
    cta_sync(); // the barrier is initialised, and what threads have copied is there
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
    const int others = c->threads / pairs.lanes;
    val sine[ROPE_VEC_MAX], cosine[ROPE_VEC_MAX];
    val lane = thread_at(thread(), 0, pairs.lanes, others), rest = thread_at(thread(), 1, pairs.lanes, others);
    val abreast = of_either(t->is_k, c->abreast, c->k_abreast),
        side_by_side = of_either(t->is_k, others / c->abreast, others / c->k_abreast);
    val head = bit_and(rest, sub(abreast, imm(1))),
        start = shift_right(rest, of_either(t->is_k, log2_i64(c->abreast), log2_i64(c->k_abreast)));
    for (int j = 0; j < c->vec; j++) {
        sine[j] = variable(F32, immf(0));
        cosine[j] = variable(F32, immf(1));
    }
    LOOP_FROM(token, start, select(lt(start, side_by_side), t->tokens, imm_as(U32, 0)), side_by_side) {
        rope_find_rotation(t->p, &pairs, lane, at(position_of(t, token), 0), sine, cosine);
        if (t->by_bulk)
            mbarrier_wait(t->barrier, imm(0));
        LOOP_FROM(h, head, t->heads, abreast)
            rotate_head(t, &pairs, lane, add(mul(token, t->heads), h), sine, cosine);
    }
}

static void rope_tiles(const void *config, int kernel)
{
    const rope_tiles_config *cfg = config;
    const int busy = cfg->threads / lanes_of(cfg) * lanes_of(cfg);
    launch_bounds(cfg->threads, RESIDENT_THREADS / cfg->threads);
    rope_values p = params_of(rope);
    tile t = tile_here(cfg, &p, kernel == 0);
    if (cfg->prefetch)
        rope_prefetch(&p, cfg->head_dim, cfg->dtype, cfg->positions);
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

static int64_t bytes_of(const rope_tiles_config *c, int64_t tokens, int64_t heads)
{
    return tokens * heads * c->head_dim * dtype_bytes(c->dtype);
}

static int kb_of(const ckl_rope_desc *d, const rope_tiles_config *c)
{
    return (int)ceil_div(max_i64(bytes_of(c, c->tokens, d->heads), bytes_of(c, c->k_tokens, d->k_heads)), 1 << 10);
}

/* Tokens of a tile of so many heads, if possible as many for each thread. */
static int tokens_for(const ckl_rope_desc *d, const rope_tiles_config *c, int64_t bytes, int64_t heads,
                      const ckl_device_info *device)
{
    enum { CTAS_PER_SM = 2 };
    const int64_t unit = tokens_unit(d), spread = ceil_div(d->tokens, (int64_t)CTAS_PER_SM * device->sm_count);
    const int64_t most = min_i64(bytes / max_i64(1, bytes_of(c, 1, heads)), spread);
    const int64_t even = round_up(c->threads / lanes_of(c), unit), step = most >= even ? even : unit;
    return (int)max_i64(unit, heads ? most / step * step : 0);
}

/*
 * What a thread of a tile does, in heads: the angles of a token cost as much as ANGLE of them. Some tokens are side by
 * side, and of each some heads.
 */
static int64_t turns_of(const rope_tiles_config *c, int64_t tokens, int64_t heads, int abreast)
{
    enum { ANGLE = 10 };
    const int64_t side_by_side = c->threads / lanes_of(c) / abreast;
    return ceil_div(tokens, side_by_side) * (ANGLE + ceil_div(heads, abreast));
}

/* Heads side by side that leave a thread the least. */
static int abreast_for(const rope_tiles_config *c, int tokens, int64_t heads)
{
    int best = 1;
    for (int abreast = 2; abreast <= min_i64(heads, c->threads / lanes_of(c)); abreast *= 2)
        if (turns_of(c, tokens, heads, abreast) < turns_of(c, tokens, heads, best))
            best = abreast;
    return best;
}

/*
 * NOTE: small tiles of short tokens are faster on an H200: 46848 tokens of one head of 488 bf16 27.4 us in tiles of 24
 * KB by 256 threads, 25.0 in 12 KB by 128; 32768 of two heads of 384 27.5 and 26.2, 56976 of ten of 64 37.5 and 36.9.
 */
enum { TILE_BYTES = 24 << 10, SMALL_TILE_BYTES = 12 << 10, SMALL_TILE_THREADS = 128, SHORT_TOKENS = 7 };

static ckl_status choose_tiles(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_rope_desc *d = desc;
    const rope_head head = rope_head_of(d);
    rope_tiles_config *c = config;
    if (!is_dense(d))
        FAIL(CKL_UNSUPPORTED, "rope tiles: there are gaps between heads or tokens");
    memcpy(config, &head, sizeof head);
    c->heads = (int)max_i64(d->heads, d->k_heads);
    c->vec =
        (int)min_i64(BULK_BYTES / (int64_t)ckl_dtype_bytes(d->dtype), power_of_two_in(d->rotary_dim / 2 | d->head_dim));
    if (tokens_unit(d) * bytes_of(c, 1, c->heads) > TILE_BYTES_MAX)
        FAIL(CKL_UNSUPPORTED, "rope tiles: %" PRId64 " tokens of %d heads are no tile", tokens_unit(d), c->heads);
    const bool short_tokens = c->vec > 1 && SHORT_TOKENS * bytes_of(c, 1, c->heads) <= SMALL_TILE_BYTES;
    const int64_t bytes = short_tokens ? SMALL_TILE_BYTES : TILE_BYTES;
    if (short_tokens && lanes_of(c) <= SMALL_TILE_THREADS)
        c->threads = SMALL_TILE_THREADS;
    if (lanes_of(c) > c->threads)
        FAIL(CKL_UNSUPPORTED, "rope tiles: rotary_dim=%d are more than threads=%d take", c->rotary_dim, c->threads);
    c->tokens = tokens_for(d, c, bytes, d->heads, device);
    c->k_tokens = tokens_for(d, c, bytes, d->k_heads, device);
    c->abreast = abreast_for(c, c->tokens, d->heads);
    c->k_abreast = abreast_for(c, c->k_tokens, d->k_heads);
    c->kb = kb_of(d, c);
    c->prefetch = bytes_of(c, d->tokens, d->heads + d->k_heads) <= PREFETCHED_BYTES;
    return CKL_OK;
}

static int64_t tiles_of(const ckl_rope_desc *d, const rope_tiles_config *c)
{
    return ceil_div(d->tokens, c->tokens) + (d->k_heads ? ceil_div(d->tokens, c->k_tokens) : 0);
}

static plan_cost cost_tiles(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { BYTES_A_CYCLE = 10 };
    const ckl_rope_desc *d = desc;
    const rope_tiles_config *c = config;
    const double bytes = (double)bytes_of(c, d->tokens, d->heads + d->k_heads);
    const memory_work work = { .of = { .us = 0.45, .wait_cycles = -1700 },
                               .bytes = 2 * bytes,
                               .ctas = tiles_of(d, c),
                               .threads = c->threads,
                               .smem_bytes = (int64_t)c->kb << 10,
                               .wait_cycles = (double)(c->kb << 10) / BYTES_A_CYCLE,
                               .elements = 2.0 * c->vec * (double)turns_of(c, c->tokens, d->heads, c->abreast),
                               .meets = true };
    return memory_cost(&work, device);
}

static ckl_status admit_tiles(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_rope_desc *d = desc;
    const rope_tiles_config *c = config;
    const rope_head head = rope_head_of(d);
    if (memcmp(&head, c, sizeof head) != 0 || c->heads != max_i64(d->heads, d->k_heads))
        FAIL(CKL_INVALID, "rope tiles: types, style, heads or sizes of a head in the config are not the problem's");
    if (!is_dense(d))
        FAIL(CKL_UNSUPPORTED, "rope tiles: there are gaps between heads or tokens");
    if (!is_power_of_two(c->vec) || c->vec * (int)ckl_dtype_bytes(c->dtype) > BULK_BYTES ||
        (d->rotary_dim / 2 | d->head_dim) % c->vec)
        FAIL(CKL_INVALID,
             "rope tiles: vec=%d is no power of two of at most 16 bytes that divides heads and their halves", c->vec);
    TRY(plan_check_threads("rope tiles", c->threads, device));
    if (!is_power_of_two(c->abreast) || !is_power_of_two(c->k_abreast) ||
        max_i64(c->abreast, c->k_abreast) * lanes_of(c) > c->threads)
        FAIL(CKL_INVALID,
             "rope tiles: abreast=%d k_abreast=%d are no powers of two, or heads of %d lanes too many for threads=%d",
             c->abreast, c->k_abreast, lanes_of(c), c->threads);
    if (c->tokens < 1 || c->tokens % tokens_unit(d) || c->k_tokens < 1 || c->k_tokens % tokens_unit(d) ||
        c->kb < kb_of(d, c) || (int64_t)c->kb << 10 > TILE_BYTES_MAX)
        FAIL(CKL_INVALID,
             "rope tiles: tokens=%d k_tokens=%d are no multiples of %" PRId64
             ", or their tiles more than kb=%d or %d bytes",
             c->tokens, c->k_tokens, tokens_unit(d), c->kb, TILE_BYTES_MAX);
    return CKL_OK;
}

/* Launch */

static ckl_status launch_tiles(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_rope_desc *d = plan->desc;
    const ckl_rope_args *x = args;
    const rope_tiles_config *c = plan->config;
    const int kernel = PLAN_ALIGNED(BULK_BYTES, x->q, x->k, x->yq, x->yk) ? 0 : 1;
    const rope_params params = rope_params_of(d, x, c->vec);
    const plan_grid grid = { .x = tiles_of(d, c) };
    return plan_launch(plan, kernel, grid, &params, stream);
}

static const field tiles_fields[] = { ROPE_TILES_CONFIG(FIELD_ROW, rope_tiles_config) };

const implementation rope_tiles_implementation = {
    IMPLEMENTATION_PARTS(rope, tiles),
    .summary = "heads without gaps: tokens go through shared memory by bulk copies, any length of a head",
    .cost = cost_tiles,
    .rivals = { &rope_vector_implementation },
    .kernels = 2,
    .params = &rope_param_list,
    .target = IR_SM90,
};
