/* attention_backward_plans.c - attention's implementations sm90_backward: choice of a config, limits, launches. */
#include "operators/attention/attention_config.h"

enum {
    HEADS_MAX = 320, // d + dv of a kernel with dK and dV, which stay in registers
    BLOCK_MAX = 128,
    BLOCK_EASY = 96, // queries; some kernels of 112 spill
    REGISTERS = 208, // of 240: for accumulators and their rounded copies
    STAGES_MAX = 4,
    STATS_BYTES = 8,      // of a query
    SUMS_HEADS_MAX = 256, // d + dv beside dQ
    CTAS_OF_HEAD = 8,     // that add to the same sums
    SUMS_ROW = 64         // elements of a row of the workspace's sums
};

/* Bytes that stay in L2: what a kernel of keys reads of a section of heads, and their sums. */
static const int64_t SECTION_BYTES = 32 << 20;

/*
 * Tokens of a block whose scores, slopes and rounded copies fit the registers beside sums of so many columns. Of keys
 * the copies of the block before are there, too.
 */
static int block_for(const ckl_attention_desc *d, int64_t columns, bool of_keys)
{
    const int64_t room = 2 * (2 * REGISTERS - columns),
                  bends = d->softcap > 0 || attention_score_bends(d->score) ? 2 : 0,
                  each = (of_keys ? 6 : 5) + bends; // in quarters
    return (int)min_i64(of_keys ? BLOCK_MAX : BLOCK_EASY, max_i64(16, room / each / 16 * 16));
}

/* A consumer's tile of dQ has 64 rows. Which CTAs add to a block must be known. */
bool attention_backward_sums_queries(const attention_sm90_backward_config *c)
{
    const attention_form *form = &c->form;
    return c->consumers == 2 && form->d > 32 && form->d <= 2 * ATTENTION_ROWS && form->d + form->dv <= SUMS_HEADS_MAX &&
           !form->dmask && !attention_score_has_blocks(form->score);
}

bool attention_backward_has_values(const attention_sm90_backward_config *c)
{
    return c->form.d + c->form.dv > HEADS_MAX;
}

/* A consumer's tile of dQ has a multiple of 16 queries. */
static int queries_step(const ckl_attention_desc *d)
{
    return d->d > ATTENTION_ROWS ? 16 : 32;
}

/*
 * Heads whose CTAs run at the same time. CTAs of a head begin with the same block, one after the other, so there are
 * many heads with few CTAs each; and no section is smaller than the others, or its CTAs would wait for each other.
 */
static int64_t section_of(const ckl_attention_desc *d, const ckl_device_info *device)
{
    const int64_t bytes = product_i64(2 * (d->d + d->dv) + 4 * d->d, d->q), group = d->heads / d->kv_heads,
                  kv_heads = d->batch * d->kv_heads, enough = ceil_div(device->sm_count, CTAS_OF_HEAD),
                  least = max_i64(enough, SECTION_BYTES / max_i64(product_i64(bytes, group), 1));
    return group * ceil_div(kv_heads, max_i64(kv_heads / least, 1));
}

static ckl_status choose_sm90_backward(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_attention_desc *d = desc;
    attention_sm90_backward_config *c = config;
    c->form = attention_form_of(d);
    int64_t rows = product_i64(product_i64(d->batch, d->kv_heads), d->kv);
    if (c->ordered && rows <= product_i64(device->sm_count, ATTENTION_ROWS))
        c->consumers = 1;
    c->block = block_for(d, attention_backward_has_values(c) ? max_i64(d->d, d->dv) : d->d + d->dv, false);
    c->block = (int)max_i64(16, c->block - (d->mask == CKL_ATTENTION_MASK_NONE ? 0 : 16)); // a mask takes registers
    c->keys = block_for(d, d->d, true);
    if (attention_backward_sums_queries(c))
        c->block = (int)min_i64(c->block / queries_step(d) * queries_step(d), d->d > ATTENTION_ROWS ? 64 : 96);
    for (c->stages = attention_backward_sums_queries(c) ? 2 : STAGES_MAX;
         c->stages > 2 && attention_sm90_backward_smem(c) > device->smem_per_cta_bytes;)
        c->stages--;
    while (c->block > 16 && attention_sm90_backward_smem(c) > device->smem_per_cta_bytes)
        c->block -= 16;
    return CKL_OK;
}

static int64_t sm90_backward_ctas(const ckl_attention_desc *d, const attention_sm90_backward_config *c, int kernel)
{
    const int64_t rows = c->consumers * ATTENTION_ROWS, heads = product_i64(d->batch, d->heads),
                  blocks = product_i64(heads, ceil_div(d->q, c->block)),
                  of_keys = product_i64(product_i64(d->batch, d->kv_heads), ceil_div(d->kv, rows)),
                  of_queries = product_i64(heads, ceil_div(d->q, rows));
    const int64_t ctas[BACKWARD_KERNELS] = {
        [BACKWARD_STATS] = ceil_div(product_i64(heads, round_up(d->q, c->block)), ATTENTION_STATS_QUERIES),
        [BACKWARD_KEYS] = of_keys,
        [BACKWARD_QUERIES] = attention_backward_sums_queries(c) ? product_i64(blocks, c->consumers) : of_queries,
        [BACKWARD_SINKS] = d->sinks ? d->heads : 0,
        [BACKWARD_VALUES] = attention_backward_has_values(c) ? of_keys : 0
    };
    return ctas[kernel];
}

static int kernels_of(const void *config)
{
    return attention_backward_has_values(config) ? BACKWARD_KERNELS : BACKWARD_VALUES;
}

static ckl_status admit(const char *who, const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_desc *d = desc;
    const attention_sm90_backward_config *c = config;
    TRY(attention_check_form(who, CKL_DIRECTION_BACKWARD, d, &c->form));
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "attention %s: %s has no wgmma", who, device->id);
    TRY(attention_check_heads(who, d));
    TRY(attention_check_windows(who, d));
    if (d->dmask && d->softcap > 0 && attention_score_bends(d->score))
        FAIL(CKL_UNSUPPORTED, "attention %s: dmask=1 and softcap=%g go without score=%s, whose slope is not 1", who,
             (double)d->softcap, d->score);
    if (d->q == 0)
        FAIL(CKL_UNSUPPORTED, "attention %s: no queries", who);
    if (c->consumers < 1 || c->consumers > 2 || c->block < 16 || c->block > BLOCK_MAX || c->block % 16 ||
        c->keys < 16 || c->keys > BLOCK_MAX || c->keys % 16 || c->stages < 2)
        FAIL(CKL_INVALID,
             "attention %s: consumers=%d is not in 1..2, block=%d or keys=%d not a multiple of 16 up to %d, or "
             "stages=%d less than 2",
             who, c->consumers, c->block, c->keys, BLOCK_MAX, c->stages);
    if (attention_backward_sums_queries(c) && c->block % queries_step(d))
        FAIL(CKL_UNSUPPORTED, "attention %s: block=%d of two consumers is not a multiple of %d", who, c->block,
             queries_step(d));
    TRY(attention_check_smem("attention", who, device, attention_sm90_backward_smem(c)));
    for (int i = 0; i < BACKWARD_KERNELS; i++)
        if (sm90_backward_ctas(d, c, i) > INT32_MAX)
            FAIL(CKL_UNSUPPORTED, "attention %s: more than 2^31-1 CTAs", who);
    return CKL_OK;
}

/* Stats of queries; sums of dQ; for each block of sums, how many CTAs have added. */
typedef struct workspace_layout {
    int64_t sums, turns, bytes;
} workspace_layout;

static workspace_layout workspace_of(const ckl_attention_desc *d, const attention_sm90_backward_config *c)
{
    const int64_t of_batch = ceil_div(d->q, c->block),
                  heads = product_i64(d->batch, d->heads); // attention_backward_block_number():
    const int64_t blocks =
        d->ragged ? product_i64(d->heads, sum_i64(d->q_total / c->block, d->batch)) : product_i64(heads, of_batch);
    workspace_layout w = { .bytes = product_i64(product_i64(heads, of_batch * c->block), STATS_BYTES) };
    if (!attention_backward_sums_queries(c))
        return w;
    w.sums = round_up(w.bytes, PLAN_WORKSPACE_ALIGNMENT);
    w.turns = sum_i64(w.sums, product_i64(blocks, attention_backward_sums_bytes(c)));
    w.bytes = sum_i64(w.turns, product_i64(blocks, 4));
    return w;
}

static ckl_status admit_sm90_backward(const void *desc, const ckl_device_info *device, const void *config)
{
    TRY(admit("sm90_backward", desc, device, config));
    if (!((const attention_sm90_backward_config *)config)->ordered)
        FAIL(CKL_INVALID, "attention sm90_backward: ordered=0 is what sm90_backward_unordered does");
    return CKL_OK;
}

static int64_t workspace_sm90_backward(const ckl_plan *plan)
{
    return workspace_of(plan->desc, plan->config).bytes;
}

static ckl_status launch_sm90_backward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_attention_desc *d = plan->desc;
    const ckl_attention_args *x = args;
    const attention_sm90_backward_config *c = plan->config;
    if (!PLAN_ALIGNED(16, x->q, x->k, x->v, x->o, x->dout, x->dq, x->dk, x->dv))
        FAIL(CKL_INVALID, "attention %s: a pointer is not aligned to 16 bytes; impl=naive_backward takes any",
             plan->impl->name);
    attention_params params = attention_params_of(d, x, c->consumers * ATTENTION_ROWS);
    const workspace_layout w = workspace_of(d, c);
    const char *workspace = plan_workspace(plan, x->workspace);
    params.stats = workspace;
    params.stats_rows = (uint32_t)round_up(d->q, c->block);
    if (attention_backward_sums_queries(c)) {
        params.section = (uint32_t)section_of(d, ckl_device_properties(plan->device));
        params.sums = workspace + w.sums;
        params.turns = workspace + w.turns;
        params.SUMS = (param_tensor){ .pointer = params.sums,
                                      .size = { SUMS_ROW, (w.turns - w.sums) / (4 * SUMS_ROW) },
                                      .stride = { 1, SUMS_ROW } };
    }
    for (int i = 0; i < BACKWARD_KERNELS; i++)
        if (sm90_backward_ctas(d, c, i) > 0)
            TRY(plan_launch(plan, i, (plan_grid){ .x = sm90_backward_ctas(d, c, i) }, &params, stream));
    return CKL_OK;
}

static const field sm90_backward_fields[] = { ATTENTION_FORM(FIELD_NESTED, (attention_sm90_backward_config, form)) //
                                              ATTENTION_BACKWARD_CONFIG(FIELD_ROW, attention_sm90_backward_config) };

/* An implementation by these kernels, with its own choose and admit. */
#define SM90_BACKWARD_PARTS(called)                                                                               \
    .name = #called, .config_bytes = sizeof(attention_sm90_backward_config),                                      \
    .config = FIELD_TABLE(sm90_backward_fields), .choose = choose_##called, .cost = attention_sm90_backward_cost, \
    .admit = admit_##called, .describe = attention_sm90_backward, .kernels = BACKWARD_KERNELS,                    \
    .kernels_of = kernels_of, .params = &attention_param_list, .target = IR_SM90A,                                \
    .workspace_bytes = workspace_sm90_backward, .launch = launch_sm90_backward

const implementation attention_sm90_backward_implementation = {
    SM90_BACKWARD_PARTS(sm90_backward),
    .summary = "gradients of keys over blocks of queries by TMA and wgmma, those of queries as sums in memory or the "
               "other way round",
};

/* sm90_backward_unordered: by force alone, as results depend on the order in which CTAs come */

static ckl_status choose_sm90_backward_unordered(const void *desc, const ckl_device_info *device, void *config)
{
    ((attention_sm90_backward_config *)config)->ordered = false;
    return choose_sm90_backward(desc, device, config);
}

static ckl_status admit_sm90_backward_unordered(const void *desc, const ckl_device_info *device, const void *config)
{
    const char *const who = "sm90_backward_unordered";
    const attention_sm90_backward_config *c = config;
    TRY(admit(who, desc, device, config));
    if (c->ordered || !attention_backward_sums_queries(c))
        FAIL(CKL_UNSUPPORTED,
             "attention %s: ordered=%d is not 0, or there are no sums of dQ: those want consumers=2, d from 40 to 128, "
             "d + dv up to %d, and neither dmask nor a score that skips blocks",
             who, c->ordered, SUMS_HEADS_MAX);
    return CKL_OK;
}

const implementation attention_sm90_backward_unordered_implementation = {
    SM90_BACKWARD_PARTS(sm90_backward_unordered),
    .summary = "sm90_backward whose CTAs add to dQ as they come: not the same bits in every run",
    .by_name = true,
    .order_dependent = true,
};
