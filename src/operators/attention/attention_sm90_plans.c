/* attention_sm90_plans.c - attention's implementation sm90: choice of a config, what a config may be, launch. */
#include <math.h>

#include "operators/attention/attention_config.h"

enum {
    SLOTS_MIN = 3,   // two blocks ahead are in flight
    SLOTS_BRIEF = 4, // beside two tiles of queries, whose keys are so many blocks
    BLOCKS_BRIEF = 4,
    SLOTS_ENOUGH = 5,
    SLOTS_MAX = 6,
    TURNS_ENOUGH = 8, // tiles of an SM
    FEW_BLOCKS = 48,  // of keys, that an SM takes one after the other
    COUNTER_BYTES = 4
};

/* Comes nothing but a causal mask or a window between products and weights? */
static bool is_plain(const ckl_attention_desc *d)
{
    return !d->mask && !d->score && d->softcap == 0;
}

/*
 * CTAs of one consumer, whose starts and ends overlap the others' products: where a head has no queries for two (160
 * heads of three 5.7 -> 4.0 us), and for causal problems of small heads that are short (320 heads of 640 queries 78.9
 * -> 62.6), or leave SMs few tiles, which smaller ones even out (40 heads of 1152 24.4 -> 22.4).
 */
static void share_sm(const ckl_attention_desc *d, const ckl_device_info *device, attention_sm90_config *c)
{
    enum { KEYS_MIN = 128, KEYS_SHORT = 768, KEYS_MAX = 1152, TURNS_MAX = 3, CTAS = 3, TILE_N = 64 };
    const bool is_small = d->d <= 64 && d->dv <= 64,
               is_few = attention_tiles_of(d, 2 * ATTENTION_ROWS) <= TURNS_MAX * device->sm_count,
               is_short = c->form.right && is_small && d->kv >= KEYS_MIN && d->kv <= (is_few ? KEYS_MAX : KEYS_SHORT);
    const int64_t tiles = attention_tiles_of(d, ATTENTION_ROWS);
    if (!is_plain(d) || (c->consumers > 1 && !is_short) || tiles <= device->sm_count)
        return;
    attention_sm90_config tried = *c;
    tried.consumers = 1;
    tried.old = false;
    if (is_short || (!c->single && !is_small)) {
        tried.tile_n = TILE_N;
        tried.single = false;
    }
    tried.ctas = (int)min_i64(CTAS, ceil_div(tiles, device->sm_count));
    tried.slots = SLOTS_MIN;
    while (tried.ctas > 1 && (!attention_sm90_fits_registers(&tried, device->registers_per_sm) ||
                              attention_sm90_smem(&tried) > device->smem_per_cta_bytes / tried.ctas))
        tried.ctas--;
    if (tried.ctas > 1)
        *c = tried;
}

/* Are tiles behind the whole turns of SMs so few that these suffice for each consumer's part of them? */
static bool has_parts(const ckl_attention_desc *d, const ckl_device_info *device, int consumers)
{
    const int64_t tiles = attention_tiles_of(d, consumers * ATTENTION_ROWS), rest = tiles % device->sm_count;
    return tiles > device->sm_count && rest > 0 && rest * consumers <= device->sm_count;
}

/*
 * Is a third consumer worth it? Its tile takes `times` as long as one of two, a part of one PART of that. SMs take
 * tiles in whole turns; drawn ones in no order at last, so these are to be `turns` or more.
 */
static bool gains_by_third(const ckl_attention_desc *d, const ckl_device_info *device, const attention_sm90_config *c,
                           double times, int turns)
{
    const double PART = 0.7, two = (double)attention_tiles_of(d, 2 * ATTENTION_ROWS) / device->sm_count,
                 three = (double)attention_tiles_of(d, 3 * ATTENTION_ROWS) / device->sm_count;
    if (c->form.right)
        return three > turns && times * three <= two;
    return times * (ceil(three) - (!c->single && has_parts(d, device, 3) ? 1 - PART : 0)) < ceil(two);
}

/*
 * Keys of a block, up to `most`. Where all rows see all keys few are to lie past the last one, and few blocks to begin,
 * which takes as long as MORE keys: of 257 three of 96 take 41.1 us, three of 128 49.2.
 */
static int block_for(const ckl_attention_desc *d, int most)
{
    enum { STEP = 16, MORE = 64, WORTH = 20 }; // a twentieth
    int best = most;
    for (int n = most - STEP; n >= most / 2 && !(d->causal || d->right || d->left || d->ragged); n -= STEP)
        if (ceil_div(d->kv, n) * (n + MORE) * WORTH < ceil_div(d->kv, best) * (best + MORE) * (WORTH - 1))
            best = n;
    return best;
}

static void choose_block(const ckl_attention_desc *d, attention_sm90_config *c)
{
    if (d->mask) // registers: its elements are loaded ahead
        c->tile_n = 64;
    else if (d->dv > 128 || d->d > 192)
        c->tile_n = d->dv > 192 ? 64 : 96;
    c->single = d->kv <= c->tile_n; // then nothing but more warps hides what tiles wait for
    c->tile_n = c->single ? (int)round_up(max_i64(d->kv, 1), 16) : block_for(d, c->tile_n);
}

static void choose_consumers(const ckl_attention_desc *d, const ckl_device_info *device, attention_sm90_config *c)
{
    // exponentials take as long as the products of small heads; more warps hide them, if tiles suffice for all SMs
    const bool is_small = d->d <= 64 && d->dv <= 64,
               fits = c->single && 3 * c->tile_n / 4 + d->dv / 2 <= 128; // registers
    // 64 heads of 2048, d=64 153 us for 162; of 4096 causal, d=96 400 for 424, d=80 372 for 362
    const bool is_middle = !c->single && d->d > 80 && d->d <= 96 && d->dv > 80 && d->dv <= 96;
    if ((is_small || fits || is_middle) && is_plain(d) &&
        gains_by_third(d, device, c, is_middle ? 1.42 : 1.24, is_middle ? 5 : TURNS_ENOUGH)) {
        c->consumers = 3;
        c->tile_n = is_middle ? block_for(d, 96) : c->tile_n;
    }
    // 16 causal heads of 1024 take 19.8 us by 128 tiles of two, 21.8 to 23.2 by twice as many, two CTAs an SM
    while (c->consumers > 1 && (attention_tiles_of(d, (c->consumers - 1) * ATTENTION_ROWS) <= device->sm_count ||
                                d->q <= (c->consumers - 1) * ATTENTION_ROWS))
        c->consumers--;
}

/* Slots of the ring that shared memory has room for beside so many tiles of queries of each consumer. */
static int slots_beside(attention_sm90_config c, const ckl_device_info *device, int queries)
{
    c.queries = queries;
    for (c.slots = SLOTS_MAX; c.slots > SLOTS_MIN && attention_sm90_smem(&c) > device->smem_per_cta_bytes / c.ctas;)
        c.slots--;
    return c.slots;
}

static ckl_status choose_sm90(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_attention_desc *d = desc;
    attention_sm90_config *c = config;
    c->form = attention_form_of(d);
    choose_block(d, c);
    choose_consumers(d, device, c);
    // with the code for lost maxima a kernel takes 2 us longer to begin
    const int64_t turns = ceil_div(attention_tiles_of(d, c->consumers * ATTENTION_ROWS), device->sm_count);
    const bool is_brief = turns * ceil_div(d->kv, c->tile_n) <= FEW_BLOCKS && d->softcap == 0 && !d->score;
    c->old = (c->consumers < 3 || d->d > 80) && d->d <= 128 && d->dv <= 128 && !d->mask &&
             !attention_score_reads_tokens(d->score) && !c->single && !is_brief; // three of small heads would spill
    share_sm(d, device, c);
    c->draw = c->form.right && attention_tiles_of(d, c->consumers * ATTENTION_ROWS) > c->ctas * device->sm_count;
    c->parts = c->consumers > 1 && !c->single && !c->draw && !attention_score_has_blocks(d->score) &&
               has_parts(d, device, c->consumers);
    // one tile under way does not cover memory's latency: of few blocks that is worth two slots (256 queries and keys,
    // d=128, a quarter of the cycles), of more one at most (2048 causal, d=128 131 -> 135 us). A cap covers more of it
    // (300 keys, d=128 45.9 -> 49.6); an SM of one tile has no other
    const int beside = ceil_div(d->kv, c->tile_n) <= BLOCKS_BRIEF ? SLOTS_BRIEF : SLOTS_ENOUGH,
              enough = turns > 1 ? beside : SLOTS_MAX;
    const bool waits = is_plain(d) || max_i64(d->d, d->dv) <= 64;
    c->queries = waits && c->ctas == 1 && slots_beside(*c, device, 2) >= enough ? 2 : 1;
    c->slots = slots_beside(*c, device, c->queries);
    return CKL_OK;
}

static ckl_status admit_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_desc *d = desc;
    const attention_sm90_config *c = config;
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "attention sm90: %s has no wgmma", device->id);
    TRY(attention_check_form("sm90", CKL_DIRECTION_FORWARD, d, &c->form));
    TRY(attention_check_heads("sm90", d));
    TRY(attention_check_windows("sm90", d));
    if (c->old && (c->form.mask || c->form.dv > 128))
        FAIL(CKL_INVALID, "attention sm90: old=1 is for scores without mask, and for dv up to 128");
    if (c->consumers < 1 || c->consumers > 3)
        FAIL(CKL_INVALID, "attention sm90: consumers=%d is not in 1..3", c->consumers);
    if (c->ctas < 1 || c->ctas > 3 || (c->ctas > 1 && c->consumers > 1))
        FAIL(CKL_INVALID, "attention sm90: ctas=%d is not in 1..3, or more than 1 with consumers=%d", c->ctas,
             c->consumers);
    if (c->tile_n < 16 || c->tile_n > 256 || c->tile_n % 16)
        FAIL(CKL_INVALID, "attention sm90: tile_n=%d is not a multiple of 16 up to 256", c->tile_n);
    if (!attention_sm90_fits_registers(c, device->registers_per_sm))
        FAIL(CKL_UNSUPPORTED,
             "attention sm90: registers do not hold tile_n=%d and dv=%" PRId64 " with consumers=%d and ctas=%d",
             c->tile_n, d->dv, c->consumers, c->ctas);
    if (c->single && d->kv > c->tile_n)
        FAIL(CKL_UNSUPPORTED, "attention sm90: single=1 is not for kv=%" PRId64 " in blocks of tile_n=%d", d->kv,
             c->tile_n);
    if (c->parts && (c->consumers == 1 || c->single || c->draw || attention_score_has_blocks(d->score)))
        FAIL(CKL_UNSUPPORTED, "attention sm90: parts=1 is for several consumers, neither single nor drawn, and "
                              "scores that skip no blocks");
    if (c->slots < SLOTS_MIN || c->queries < 1 || c->queries > 2)
        FAIL(CKL_INVALID, "attention sm90: slots=%d is less than %d, or queries=%d neither 1 nor 2", c->slots,
             SLOTS_MIN, c->queries);
    TRY(attention_check_smem("attention", "sm90", device, attention_sm90_smem(c)));
    return attention_check_tiles("sm90", attention_tiles_of(d, c->consumers * ATTENTION_ROWS));
}

static int64_t workspace_sm90(const ckl_plan *plan)
{
    return ((const attention_sm90_config *)plan->config)->draw ? COUNTER_BYTES : 0;
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_attention_desc *d = plan->desc;
    const ckl_attention_args *x = args;
    const attention_sm90_config *c = plan->config;
    TRY(attention_check_alignment("sm90", x));
    attention_params params = attention_params_of(d, x, c->consumers * ATTENTION_ROWS);
    params.counter = plan_workspace(plan, x->workspace);
    const int64_t parts = (int64_t)params.tiles * (c->parts ? c->consumers : 1);
    const plan_grid grid = { .x = min_i64(parts, plan->kernels[0].clusters_resident) };
    return plan_launch(plan, 0, grid, &params, stream);
}

static const field sm90_fields[] = { ATTENTION_FORM(FIELD_NESTED, (attention_sm90_config, form)) //
                                     ATTENTION_SM90_CONFIG(FIELD_ROW, attention_sm90_config) };

const implementation attention_sm90_implementation = {
    IMPLEMENTATION_PARTS(attention, sm90),
    .cost = attention_sm90_cost,
    .summary = "persistent and warp-specialised: TMA, wgmma, softmax under the products; Hopper",
    .params = &attention_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_sm90,
};
