/* attention_plans.c - attention's implementations: choice of a config, what a config may be, launches. */
#include <math.h>

#include "operators/attention/attention_config.h"
#include "operators/attention/attention_softmax.h"

enum {
    TMA_ALIGNMENT = 16,
    VECTOR = 8,               // elements of 16 bytes
    HEAD_MAX = 256,           // elements of a head on tensor cores
    SHORT_MAX = 64,           // queries and keys: below, the fixed cost of `sm90` exceeds the whole of `short`
    PORTABLE_SMEM = 99 << 10, // bytes that a CTA may have on every GPU from sm_86 on
};

/* Bytes of K and V that stay in L2 while the tiles of their heads are computed. */
static const int64_t SECTION_BYTES = 32 << 20;

/* What launches share */

attention_form attention_form_of(const ckl_attention_desc *d)
{
    return (attention_form){ .dtype = d->dtype,
                             .d = (int)d->d,
                             .dv = (int)d->dv,
                             .right = d->causal || d->right,
                             .left = d->left > 0,
                             .softcap = d->softcap > 0,
                             .mask = (choice)d->mask,
                             .score = d->score ? d->score : "none",
                             .sinks = d->sinks,
                             .lse = d->lse,
                             .ragged = d->ragged,
                             .dmask = d->dmask };
}

ckl_status attention_check_form(const char *who, ckl_direction direction, const ckl_attention_desc *d,
                                const attention_form *have)
{
    if (d->direction != direction)
        FAIL(CKL_UNSUPPORTED, "attention %s: the problem is one of %s", who,
             d->direction == CKL_DIRECTION_FORWARD ? "forward" : "backward");
    static const field form_fields[] = { ATTENTION_FORM(FIELD_ROW, attention_form) };
    const attention_form want = attention_form_of(d);
    if (fields_difference((field_table)FIELD_TABLE(form_fields), have, &want))
        FAIL(CKL_INVALID, "attention %s: type, head sizes or options of the config are not the problem's", who);
    return CKL_OK;
}

ckl_status attention_check_smem(const char *op, const char *who, const ckl_device_info *device, int64_t bytes)
{
    if (bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s %s: the config needs %" PRId64 " bytes of shared memory, %s has %" PRId64, op, who,
             bytes, device->id, device->smem_per_cta_bytes);
    return CKL_OK;
}

int64_t attention_tiles_of(const ckl_attention_desc *d, int rows)
{
    return product_i64(ceil_div(d->q, rows), product_i64(d->batch, d->heads));
}

/* Heads, in whole groups, whose K and V stay in L2 while the tiles of their queries are computed. */
static int64_t section_of(const ckl_attention_desc *d)
{
    const int64_t heads = d->batch * d->heads, group = d->heads / d->kv_heads;
    int64_t bytes = max_i64(1, product_i64(2 * (d->d + d->dv), d->kv));
    return d->causal || d->right ? min_i64(heads, max_i64(1, SECTION_BYTES / bytes) * group) : group;
}

/* WINDOW times so many bytes are 2^64, where addresses wrap: a stride of one row less goes WINDOW rows back. */
static const int64_t WRAP = (int64_t)1 << 34;

/* (D,TOKENS,HEADS,1) -> (D,WINDOW,HEADS,TOKENS+1,WINDOW+1): attention_make_tma(). */
static void to_windows(param_tensor *box)
{
    const int64_t ld = box->stride[1], tokens = box->size[1];
    box->size[1] = ATTENTION_WINDOW;
    box->size[3] = tokens + 1;
    box->stride[3] = ld;
    box->size[4] = ATTENTION_WINDOW + 1;
    box->stride[4] = WRAP / 2 - ld;
}

/* From its first byte to its last, where there are few. */
static uint32_t early_bytes_of(const attention_strides *s)
{
    const int64_t tokens = product_i64(s->tokens.size - 1, s->tokens.stride),
                  heads = product_i64(s->heads.size - 1, s->heads.stride),
                  batches = product_i64(s->batch.size - 1, s->batch.stride);
    const int64_t bytes = product_i64(2, sum_i64(sum_i64(tokens, heads), sum_i64(batches, s->d)));
    return s->tokens.size ? early_bytes(bytes, PREFETCHED_BYTES / (ATTENTION_TENSORS - 1)) : 0;
}

/* Pointers and strides, for kernels without and with TMA. Gradients lie as what they are of. */
static void set_tensors(const ckl_attention_desc *d, const ckl_attention_args *x, attention_params *p)
{
    const void *const pointers[] = { x->q, x->k, x->v, x->o }, *const gradients[] = { x->dq, x->dk, x->dv, x->dout };
    param_tensor *const maps[] = { &p->Q, &p->K, &p->V, &p->O }, *const gradient_maps[] = { &p->DQ, &p->DK, &p->DV,
                                                                                            &p->DO };
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const attention_strides s = attention_strides_of(d, i);
        p->x[i] = pointers[i];
        p->early[i] = i == ATTENTION_O ? gradients[i] : pointers[i]; // q, k, v and dout
        p->early_bytes[i] = early_bytes_of(&s);
        p->grad[i] = gradients[i];
        p->ld[i] = s.tokens.stride;
        p->ld_head[i] = s.heads.stride;
        p->ld_batch[i] = s.batch.stride;
        *maps[i] = attention_map_of(pointers[i], &s);
        if (d->ragged)
            to_windows(maps[i]);
        *gradient_maps[i] = *maps[i];
        gradient_maps[i]->pointer = gradients[i];
    }
}

attention_params attention_params_of(const ckl_attention_desc *d, const ckl_attention_args *x, int rows)
{
    const double scale = (double)d->scale, softcap = (double)d->softcap;
    const double unit = softcap > 0 ? softcap : scale; // of exponents
    const int64_t own = d->kv - d->q;                  // the key of query 0
    attention_params p = { .mask = x->mask,
                           .ldmask = d->ldmask,
                           .ldmask_head = d->ldmask_head,
                           .ldmask_batch = d->ldmask_batch,
                           .sinks = x->sinks,
                           .lse = x->lse,
                           .dmask = x->dmask,
                           .dsinks = x->dsinks,
                           .q = (uint32_t)d->q,
                           .kv = (uint32_t)d->kv,
                           .heads = (uint32_t)d->heads,
                           .all_heads = (uint32_t)(d->batch * d->heads),
                           .group = (uint32_t)(d->heads / d->kv_heads),
                           .first = (int32_t)(own + 1 - min_i64(d->left, d->kv)),
                           .last = (int32_t)(own + min_i64(d->right, d->q)),
                           .factor = (float)(scale / unit),
                           .unit = (float)(1 / unit),
                           .score_unit = (float)unit,
                           .inputs = { x->inputs[0], x->inputs[1] },
                           .scale = d->scale,
                           .starts_q = x->starts_q,
                           .starts_kv = x->starts_kv,
                           .q_total = (uint32_t)d->q_total,
                           .exponent = (float)(d->score ? M_LOG2E : M_LOG2E * unit),
                           .tiles_m = (uint32_t)ceil_div(d->q, rows),
                           .tiles = (uint32_t)attention_tiles_of(d, rows),
                           .section = (uint32_t)section_of(d) };
    if (softcap > 0)
        attention_cap_numbers(scale / unit, M_LOG2E * unit, p.cap);
    set_tensors(d, x, &p);
    return p;
}

/* naive and naive_backward: a thread a row */

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_attention_desc *d = desc;
    attention_naive_config *c = config;
    (void)device;
    c->form = attention_form_of(d);
    if (d->direction == CKL_DIRECTION_BACKWARD)
        c->threads = 64;
    return CKL_OK;
}

/* Threads of kernel 0, 1 and 2: rows of O or dQ; of dK and dV; sinks. */
static int64_t naive_rows(const ckl_attention_desc *d, int kernel)
{
    const int64_t of_batch[] = { product_i64(d->heads, d->q), product_i64(d->kv_heads, d->kv) };
    return kernel == 2 ? (d->sinks ? d->heads : 0) : product_i64(d->batch, of_batch[kernel]);
}

static ckl_status check_naive(const char *who, ckl_direction direction, const ckl_attention_desc *d,
                              const attention_naive_config *c)
{
    TRY(attention_check_form(who, direction, d, &c->form));
    for (int i = 0; i < (direction == CKL_DIRECTION_FORWARD ? 1 : 2); i++)
        if (naive_rows(d, i) > (int64_t)INT32_MAX * c->threads)
            FAIL(CKL_UNSUPPORTED, "attention %s: %" PRId64 " rows are more than one launch has threads", who,
                 naive_rows(d, i));
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    TRY(plan_check_threads("attention naive", ((const attention_naive_config *)config)->threads, device));
    return check_naive("naive", CKL_DIRECTION_FORWARD, desc, config);
}

static ckl_status admit_naive_backward(const void *desc, const ckl_device_info *device, const void *config)
{
    TRY(plan_check_threads("attention naive_backward", ((const attention_naive_config *)config)->threads, device));
    return check_naive("naive_backward", CKL_DIRECTION_BACKWARD, desc, config);
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const attention_naive_config *c = plan->config;
    const attention_params params = attention_params_of(plan->desc, args, 1);
    for (int i = 0; i < plan->impl->kernels; i++) {
        const plan_grid grid = { .x = ceil_div(naive_rows(plan->desc, i), c->threads) };
        if (grid.x > 0)
            TRY(plan_launch(plan, i, grid, &params, stream));
    }
    return CKL_OK;
}

static const field naive_fields[] = { ATTENTION_FORM(FIELD_NESTED, (attention_naive_config, form)) //
                                      ATTENTION_NAIVE_CONFIG(FIELD_ROW, attention_naive_config) };

/* An implementation by these kernels, with its own admit. */
#define NAIVE_PARTS(called)                                                                                        \
    .name = #called, .config_bytes = sizeof(attention_naive_config), .config = FIELD_TABLE(naive_fields),          \
    .choose = choose_naive, .cost = attention_naive_cost, .admit = admit_##called, .describe = attention_##called, \
    .params = &attention_param_list, .launch = launch_naive

const implementation attention_naive_implementation = {
    NAIVE_PARTS(naive),
    .summary = "one thread a row of O: the definition, for any sizes and strides",
    .kernels = 1,
};

const implementation attention_naive_backward_implementation = {
    NAIVE_PARTS(naive_backward),
    .summary = "a thread a row of dQ, of dK and dV, or a sink: the definition, for any sizes and strides",
    .kernels = 3,
};

/* What the kernels on tensor cores share */

ckl_status attention_check_alignment(const char *who, const ckl_attention_args *x)
{
    if (!PLAN_ALIGNED(TMA_ALIGNMENT, x->q, x->k, x->v, x->o))
        FAIL(CKL_INVALID,
             "attention %s: q=%p, k=%p, v=%p or o=%p is not aligned to 16 bytes; impl=naive takes any alignment", who,
             x->q, x->k, x->v, x->o);
    return CKL_OK;
}

ckl_status attention_check_windows(const char *who, const ckl_attention_desc *d)
{
    for (int i = 0; i < ATTENTION_TENSORS && d->ragged; i++) {
        const attention_mode tokens = attention_strides_of(d, i).tokens;
        if (tokens.size > 1 && tokens.stride >= WRAP / 2)
            FAIL(CKL_UNSUPPORTED, "attention %s: %s=%" PRId64 " of a ragged problem is not less than 2^33", who,
                 tokens.name, tokens.stride);
    }
    return CKL_OK;
}

ckl_status attention_check_heads(const char *who, const ckl_attention_desc *d)
{
    if (d->d % VECTOR || d->dv % VECTOR || d->d > HEAD_MAX || d->dv > HEAD_MAX)
        FAIL(CKL_UNSUPPORTED, "attention %s: d=%" PRId64 " and dv=%" PRId64 " are not multiples of 8 up to %d", who,
             d->d, d->dv, HEAD_MAX);
    if (d->kv == 0)
        FAIL(CKL_UNSUPPORTED, "attention %s: kv=0 leaves no keys", who);
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const attention_strides s = attention_strides_of(d, i);
        TRY(attention_check_vectors("attention", who, &s, VECTOR));
    }
    return CKL_OK;
}

ckl_status attention_check_tiles(const char *who, int64_t tiles)
{
    if (tiles > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "attention %s: %" PRId64 " tiles are more than 2^31-1", who, tiles);
    return CKL_OK;
}

/* sm80 */

static ckl_status choose_sm80(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_attention_desc *d = desc;
    attention_sm80_config *c = config;
    c->form = attention_form_of(d);
    c->warp_rows = d->d <= 128 && d->dv <= 128 ? 32 : 16;
    while (c->warp_rows > 16 && attention_tiles_of(d, c->warps * c->warp_rows) < 2 * device->sm_count)
        c->warp_rows /= 2;
    // 255 registers; blocks of a score, masks, windows with a cap take some; an A100 has memory for one CTA
    // instead of two
    if (c->warp_rows == 32 && d->dv > 96 &&
        (attention_score_has_blocks(d->score) || d->mask || (d->left && d->softcap > 0) ||
         2 * attention_sm80_smem(c) > device->smem_per_sm_bytes))
        c->tile_n = 32;
    while (c->tile_n > 16 && attention_sm80_smem(c) > PORTABLE_SMEM)
        c->tile_n /= 2;
    return CKL_OK;
}

static ckl_status admit_portable(const char *who, const ckl_attention_desc *d, const ckl_device_info *device,
                                 const attention_sm80_config *c)
{
    TRY(attention_check_form(who, CKL_DIRECTION_FORWARD, d, &c->form));
    TRY(attention_check_heads(who, d));
    if (c->warps < 1 || c->warps > 8 || (c->warp_rows != 16 && c->warp_rows != 32))
        FAIL(CKL_INVALID, "attention %s: warps=%d is not in 1..8, or warp_rows=%d is neither 16 nor 32", who, c->warps,
             c->warp_rows);
    if (c->tile_n < 16 || c->tile_n > 128 || c->tile_n % 16 || c->tile_n % attention_sm80_rows_loaded(c))
        FAIL(CKL_INVALID, "attention %s: tile_n=%d is not a multiple of 16 up to 128, and of the %d rows of %d warps",
             who, c->tile_n, attention_sm80_rows_loaded(c), c->warps);
    if (c->stages < 1 || c->stages > 2)
        FAIL(CKL_INVALID, "attention %s: stages=%d is neither 1 nor 2", who, c->stages);
    TRY(attention_check_smem("attention", who, device, attention_sm80_smem(c)));
    return attention_check_tiles(who, attention_tiles_of(d, c->warps * c->warp_rows));
}

static ckl_status admit_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_portable("sm80", desc, device, config);
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_attention_desc *d = plan->desc;
    const attention_sm80_config *c = plan->config;
    TRY(attention_check_alignment(plan->impl->name, args));
    const attention_params params = attention_params_of(d, args, c->warps * c->warp_rows);
    return plan_launch(plan, 0, (plan_grid){ .x = params.tiles }, &params, stream);
}

static const field sm80_fields[] = { ATTENTION_FORM(FIELD_NESTED, (attention_sm80_config, form)) //
                                     ATTENTION_SM80_CONFIG(FIELD_ROW, attention_sm80_config) };

/* An implementation by this kernel, with its own choose and admit. */
#define SM80_PARTS(called)                                                                                       \
    .name = #called, .config_bytes = sizeof(attention_sm80_config), .config = FIELD_TABLE(sm80_fields),          \
    .choose = choose_##called, .cost = attention_sm80_cost, .admit = admit_##called, .describe = attention_sm80, \
    .params = &attention_param_list, .launch = launch_sm80

const implementation attention_sm80_implementation = {
    SM80_PARTS(sm80),
    .summary = "tiles by cp.async, mma.sync, the next block on its way; every GPU from sm_80 on",
};

/* short: the same kernel where all keys are one block, with as few warps as the queries need */

static ckl_status choose_short(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_attention_desc *d = desc;
    attention_sm80_config *c = config;
    (void)device;
    if (d->q > SHORT_MAX || d->kv > SHORT_MAX)
        FAIL(CKL_UNSUPPORTED, "attention short: q=%" PRId64 " or kv=%" PRId64 " is more than %d", d->q, d->kv,
             SHORT_MAX);
    c->form = attention_form_of(d);
    c->stages = 1;
    c->warps = d->q <= 16 ? 1 : d->q <= 32 ? 2 : 4;
    c->tile_n = (int)round_up(max_i64(d->kv, 1), max_i64(16, attention_sm80_rows_loaded(c)));
    return CKL_OK;
}

static ckl_status admit_short(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_portable("short", desc, device, config);
}

const implementation attention_short_implementation = {
    SM80_PARTS(short),
    .summary = "mma.sync, all keys at once, as few warps as there are queries for",
};

/* tensor: the same kernel in its simplest form */

static ckl_status choose_tensor(const void *desc, const ckl_device_info *device, void *config)
{
    attention_sm80_config *c = config;
    (void)device;
    c->form = attention_form_of(desc);
    c->stages = 1;
    while (c->tile_n > 16 && attention_sm80_smem(c) > PORTABLE_SMEM)
        c->tile_n /= 2;
    return CKL_OK;
}

static ckl_status admit_tensor(const void *desc, const ckl_device_info *device, const void *config)
{
    const attention_sm80_config *c = config;
    if (c->stages != 1)
        FAIL(CKL_INVALID, "attention tensor: stages=%d is not 1", c->stages);
    return admit_portable("tensor", desc, device, c);
}

const implementation attention_tensor_implementation = {
    SM80_PARTS(tensor),
    .summary = "mma.sync, one block at a time: the simplest kernel on tensor cores",
};
