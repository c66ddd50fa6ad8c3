/* attention_decode_plans.c - attention_decode's parameters, what implementations that split the keys share, naive. */
#include <math.h>

#include "operators/attention/attention_decode_config.h"

enum { VECTOR_BYTES = 16 };

attention_decode_form attention_decode_form_of(const ckl_attention_decode_desc *d)
{
    return (attention_decode_form){ .dtype = d->dtype,
                                    .d = (int)d->d,
                                    .dv = (int)d->dv,
                                    .tokens = (int)d->q,
                                    .group = (int)(d->heads / d->kv_heads),
                                    .page = (int)d->page,
                                    .left = d->left > 0,
                                    .softcap = d->softcap > 0,
                                    .sinks = d->sinks,
                                    .lse = d->lse,
                                    .cache = d->cache,
                                    .append = d->append && d->q > 0,
                                    .latent = d->latent };
}

ckl_status attention_decode_check_form(const char *who, const ckl_attention_decode_desc *d,
                                       const attention_decode_form *have)
{
    static const field form_fields[] = { ATTENTION_DECODE_FORM(FIELD_ROW, attention_decode_form) };
    const attention_decode_form want = attention_decode_form_of(d);
    if (fields_difference((field_table)FIELD_TABLE(form_fields), have, &want))
        FAIL(CKL_INVALID, "attention_decode %s: type, sizes or options of the config are not the problem's", who);
    return CKL_OK;
}

static attention_decode_params params_of(const ckl_attention_decode_desc *d, const ckl_attention_decode_args *x)
{
    const double scale = (double)d->scale, softcap = (double)d->softcap;
    const double unit = softcap > 0 ? softcap : scale; // of exponents
    const void *const pointers[] = { x->q, x->k,     d->latent ? x->k : x->v,
                                     x->o, x->k_new, d->latent ? x->k_new : x->v_new };
    const int64_t vector = VECTOR_BYTES / (int64_t)ckl_dtype_bytes(d->cache);
    attention_decode_params p = { .lengths = x->lengths,
                                  .table = x->table,
                                  .sinks = x->sinks,
                                  .lse = x->lse,
                                  .batch = (uint32_t)d->batch,
                                  .pages = (uint32_t)d->pages,
                                  .kv = (uint32_t)d->kv,
                                  .kv_heads = (uint32_t)d->kv_heads,
                                  .table_pages = d->page ? (uint32_t)ceil_div(d->kv, d->page) : 0,
                                  .left = (int32_t)d->left,
                                  .factor = (float)(scale / unit),
                                  .exponent = (float)(M_LOG2E * unit) };
    for (int i = 0; i < DECODE_TENSORS; i++) {
        const attention_strides s = attention_decode_strides_of(d, i);
        p.x[i] = pointers[i];
        p.ld[i] = s.tokens.stride;
        p.ld_head[i] = s.heads.stride;
        p.ld_batch[i] = s.batch.stride;
    }
    const attention_strides k = attention_decode_strides_of(d, ATTENTION_K);
    p.K = attention_map_of(x->k, &k);
    for (int i = ATTENTION_K; i <= ATTENTION_V; i++) {
        p.key_vectors[i] = (uint32_t)(p.ld[i] / vector);
        p.page_vectors[i] = (uint32_t)(p.ld_batch[i] / vector);
        p.into[i] = i == ATTENTION_K ? x->k_into : x->v_into;
        p.scales[i] = i == ATTENTION_K ? x->scale_k : x->scale_v;
    }
    return p;
}

int64_t attention_decode_rows_of(const ckl_attention_decode_desc *d)
{
    return d->q * (d->heads / d->kv_heads);
}

/* naive */

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    ((attention_decode_naive_config *)config)->form = attention_decode_form_of(desc);
    return CKL_OK;
}

/* A thread computes the scores of all its keys, twice. */
static plan_cost cost_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    return attention_rows_cost(device, ((const attention_decode_naive_config *)config)->threads,
                               (double)(d->batch * d->heads * d->q), (double)d->kv, (double)(2 * d->d + d->dv));
}

static int64_t ctas_naive(const ckl_attention_decode_desc *d, int threads)
{
    return ceil_div(product_i64(product_i64(d->batch, d->heads), d->q), threads);
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const attention_decode_naive_config *c = config;
    TRY(attention_decode_check_form("naive", desc, &c->form));
    TRY(plan_check_threads("attention_decode naive", c->threads, device));
    if (ctas_naive(desc, c->threads) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "attention_decode naive: more than 2^31-1 CTAs");
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const attention_decode_naive_config *c = plan->config;
    const attention_decode_params params = params_of(plan->desc, args);
    const plan_grid grid = { .x = ctas_naive(plan->desc, c->threads) };
    return grid.x ? plan_launch(plan, 0, grid, &params, stream) : CKL_OK;
}

static const field naive_fields[] = { ATTENTION_DECODE_FORM(FIELD_NESTED, (attention_decode_naive_config, form)) //
                                      ATTENTION_DECODE_NAIVE_CONFIG(FIELD_ROW, attention_decode_naive_config) };

const implementation attention_decode_naive_implementation = {
    IMPLEMENTATION_PARTS(attention_decode, naive),
    .cost = cost_naive,
    .summary = "one thread a row of O: the definition, for any sizes and strides",
    .params = &attention_decode_param_list,
};

/* What kernels whose CTAs take splits of the keys share */

ckl_status attention_decode_check_strides(const char *who, const ckl_attention_decode_desc *d)
{
    for (int i = 0; i < (d->append ? DECODE_TENSORS : ATTENTION_TENSORS); i++) {
        const bool of_cache = i == ATTENTION_K || i == ATTENTION_V;
        const int64_t vector = VECTOR_BYTES / (int64_t)ckl_dtype_bytes(of_cache ? d->cache : d->dtype);
        const attention_strides s = attention_decode_strides_of(d, i);
        TRY(attention_check_vectors("attention_decode", who, &s, vector));
        int64_t span = product_i64(s.tokens.size, s.tokens.stride);
        span = d->page ? sum_i64(span, product_i64(s.batch.size, s.batch.stride)) : span;
        if (of_cache && span / vector > UINT32_MAX)
            FAIL(CKL_UNSUPPORTED, "attention_decode %s: keys lie %" PRId64 " elements apart, more than 2^32 * %" PRId64,
                 who, span, vector);
    }
    return CKL_OK;
}

/* Tiles of rows, heads, splits, sequences. */
int64_t attention_decode_ctas(const ckl_attention_decode_desc *d, int rows, int split)
{
    int64_t tiles = product_i64(ceil_div(attention_decode_rows_of(d), rows), d->kv_heads);
    return product_i64(product_i64(tiles, ceil_div(d->kv, split)), d->batch);
}

/* Counters of CTAs that share rows; the partials of each CTA. */
typedef struct workspace_layout {
    int64_t counters, states, partials, bytes;
} workspace_layout;

static workspace_layout workspace_of(const ckl_attention_decode_desc *d, int rows, int split)
{
    const int64_t ctas = attention_decode_ctas(d, rows, split), splits = ceil_div(d->kv, split);
    workspace_layout w = { .counters = 0 };
    if (splits == 1)
        return w;
    const int64_t shared = ctas / splits, groups = ceil_div(splits, ATTENTION_DECODE_GROUP),
                  slots = product_i64(shared, splits + groups);
    const int64_t counters = d->latent ? splits + 1 : groups + 1; // of latent caches one for each node of a tree
    w.states = round_up(product_i64(shared, counters * 4), PLAN_WORKSPACE_ALIGNMENT);
    w.partials = sum_i64(w.states, round_up(product_i64(slots, rows * 2 * 4), PLAN_WORKSPACE_ALIGNMENT));
    w.bytes = sum_i64(w.partials, product_i64(slots, rows * d->dv * 4));
    return w;
}

int64_t attention_decode_workspace(const ckl_attention_decode_desc *d, int rows, int split)
{
    return workspace_of(d, rows, split).bytes;
}

ckl_status attention_decode_launch(const ckl_plan *plan, const ckl_attention_decode_args *x, int rows, int split,
                                   int64_t grid, ckl_stream stream)
{
    const ckl_attention_decode_desc *d = plan->desc;
    if (!PLAN_ALIGNED(16, x->q, x->k, x->v, x->o, x->k_new, x->v_new, x->k_into, x->v_into))
        FAIL(CKL_INVALID,
             "attention_decode %s: q=%p, k=%p, v=%p, o=%p, or what is new, is not aligned to 16 bytes; impl=naive "
             "takes any alignment",
             plan->impl->name, x->q, x->k, x->v, x->o);
    attention_decode_params params = params_of(d, x);
    const workspace_layout w = workspace_of(d, rows, split);
    const char *workspace = plan_workspace(plan, x->workspace);
    params.splits = (uint32_t)ceil_div(d->kv, split);
    if (workspace) {
        params.counters = workspace + w.counters;
        params.states = workspace + w.states;
        params.parts = workspace + w.partials;
    }
    return grid ? plan_launch(plan, 0, (plan_grid){ .x = grid }, &params, stream)
                : CKL_OK; // q=0 leaves the cache as it is
}
