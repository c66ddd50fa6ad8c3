/* attention_decode_latent_plans.c - attention_decode's implementations for latent caches: choice, admission, launch. */
#include <math.h>

#include "operators/attention/attention_decode_config.h"
#include "skeletons/memory_cost.h"
#include "skeletons/product_cost.h"

enum {
    KEYS = ATTENTION_DECODE_LATENT_KEYS,
    CHUNK = ATTENTION_DECODE_LATENT_CHUNK,
    ROWS = ATTENTION_ROWS,
    PAGE_MIN = ATTENTION_DECODE_LATENT_PAGE,
    SPLIT_MIN = 512,   // keys: a split's start and end take as long as 20 blocks (bench/notes/attention.md)
    SPLIT_MAX = 4096,  // keys: by 2048 128 sequences of 128 heads take 335 us for 262, but 16 of them 87 for 132
    SPLITS_MAX = 1024, // of a sequence, which one CTA combines
    SLOTS_MAX = 8,
    BYTES_A_BYTE = 64, // of keys for each byte that a CTA leaves in the workspace
};

/* Tiles of a head of the cache. */
static int64_t tiles_of(const ckl_attention_decode_desc *d)
{
    return ceil_div(attention_decode_rows_of(d), ROWS);
}

/* Keys of a CTA: in proportion to its partial, and so that CTAs of one sequence fill the device. */
static int split_of(const ckl_attention_decode_desc *d, const ckl_device_info *device)
{
    const int64_t rows = min_i64(attention_decode_rows_of(d), ROWS);
    const int64_t tiles = product_i64(d->kv_heads, tiles_of(d));
    int64_t split = SPLIT_MIN;
    while (split < SPLIT_MAX && (split * d->d * 2 < rows * d->dv * 4 * BYTES_A_BYTE ||
                                 product_i64(ceil_div(d->kv, split), tiles) > device->sm_count))
        split *= 2;
    while (ceil_div(d->kv, split) > SPLITS_MAX)
        split *= 2;
    return (int)split;
}

static ckl_status choose_latent(const void *desc, const ckl_device_info *device, void *config)
{
    attention_decode_latent_config *c = config;
    c->form = attention_decode_form_of(desc);
    c->split = split_of(desc, device);
    return CKL_OK;
}

/* Blocks of keys, then the end of a split: as fitted to eight rows of a race (bench/notes/attention.md). */
static plan_cost cost_latent(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_config *c = config;
    return product_cost(&(product_work){ .tiles = (double)attention_decode_ctas(d, ROWS, c->split),
                                         .ctas = 1,
                                         .steps = (double)ceil_div(min_i64(d->kv, c->split), KEYS),
                                         .multiply_adds = (double)(ROWS * KEYS * (d->d + d->dv)),
                                         .rate = 1725,
                                         .tile_cycles = 53000,
                                         .us = 3 },
                        device);
}

/* What both want. */
static ckl_status check_cache(const char *who, const ckl_attention_decode_desc *d)
{
    if (!d->latent || d->cache != d->dtype)
        FAIL(CKL_UNSUPPORTED, "attention_decode %s: the cache is not latent, or of another type than q", who);
    if (d->page % KEYS && (d->page < PAGE_MIN || KEYS % d->page))
        FAIL(CKL_UNSUPPORTED,
             "attention_decode %s: page=%" PRId64 " neither divides %d, from %d on, nor is a multiple of it", who,
             d->page, KEYS, PAGE_MIN);
    return attention_decode_check_strides(who, d);
}

/* Splits in whole blocks, and memory for them. */
static ckl_status check_splits(const char *who, const ckl_attention_decode_desc *d, const ckl_device_info *device,
                               int rows, int split, int64_t smem)
{
    if (split < KEYS || split % KEYS)
        FAIL(CKL_INVALID, "attention_decode %s: split=%d is not a multiple of %d", who, split, KEYS);
    const int64_t ctas = attention_decode_ctas(d, rows, split);
    TRY(attention_check_smem("attention_decode", who, device, smem));
    if (ctas > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "attention_decode %s: %" PRId64 " CTAs are more than 2^31-1", who, ctas);
    return CKL_OK;
}

static ckl_status admit_latent(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_config *c = config;
    TRY(attention_decode_check_form("latent", d, &c->form));
    TRY(check_cache("latent", d));
    if (d->dv % (2 * CHUNK) || d->d % 8 || d->d > ATTENTION_DECODE_LATENT_MAX || ceil_div(d->d, CHUNK) <= d->dv / CHUNK)
        FAIL(CKL_UNSUPPORTED,
             "attention_decode latent: dv=%" PRId64 " is not a multiple of %d, or d=%" PRId64
             " not one of 8 from dv+8 up to %d",
             d->dv, 2 * CHUNK, d->d, ATTENTION_DECODE_LATENT_MAX);
    return check_splits("latent", d, device, ROWS, c->split, attention_decode_latent_smem(c));
}

static int64_t workspace_latent(const ckl_plan *plan)
{
    const attention_decode_latent_config *c = plan->config;
    return attention_decode_workspace(plan->desc, ROWS, c->split);
}

static ckl_status launch_latent(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const attention_decode_latent_config *c = plan->config;
    const int64_t grid = min_i64(attention_decode_ctas(plan->desc, ROWS, c->split), plan->kernels[0].clusters_resident);
    return attention_decode_launch(plan, args, ROWS, c->split, grid, stream);
}

static const field latent_fields[] = { ATTENTION_DECODE_FORM(FIELD_NESTED, (attention_decode_latent_config, form)) //
                                       ATTENTION_DECODE_LATENT_CONFIG(FIELD_ROW, attention_decode_latent_config) };

const implementation attention_decode_latent_implementation = {
    IMPLEMENTATION_PARTS(attention_decode, latent),
    .cost = cost_latent,
    .summary = "values are columns of the keys: TMA, two consumer warpgroups with half of the columns each; wgmma",
    .target = IR_SM90A,
    .params = &attention_decode_param_list,
    .workspace_bytes = workspace_latent,
};

/* latent_few */

/* Splits of a CTA where `resident` run at once. */
static int64_t run_of(const ckl_attention_decode_desc *d, const attention_decode_latent_few_config *c, int64_t resident)
{
    return c->run ? c->run : ceil_div(attention_decode_ctas(d, ATTENTION_DECODE_FEW_ROWS, c->split), resident);
}

static ckl_status choose_latent_few(const void *desc, const ckl_device_info *device, void *config)
{
    attention_decode_latent_few_config *c = config;
    const ckl_attention_decode_desc *d = desc;
    c->form = attention_decode_form_of(d);
    while (ceil_div(d->kv, c->split) > SPLITS_MAX)
        c->split *= 2;
    for (c->slots = SLOTS_MAX; c->slots > 2 && attention_decode_latent_few_smem(c) > device->smem_per_cta_bytes;)
        c->slots--;
    return CKL_OK;
}

static int64_t ctas_of_few(const ckl_attention_decode_desc *d, const attention_decode_latent_few_config *c,
                           int64_t resident)
{
    const int64_t splits = attention_decode_ctas(d, ATTENTION_DECODE_FEW_ROWS, c->split);
    return ceil_div(splits, max_i64(run_of(d, c, resident), 1));
}

/* Memory brings the blocks; a CTA's sum is stored and read again. */
static plan_cost cost_latent_few(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_few_config *c = config;
    const int64_t ctas = ctas_of_few(d, c, device->sm_count);
    const double run = (double)run_of(d, c, device->sm_count), sum = 8 * (double)(attention_decode_rows_of(d) * d->dv);
    const double key = (double)(d->batch * d->kv_heads) * 2 * (double)d->d;
    const memory_work work = { .of = { .us = 3.5 },
                               .bytes = key * (double)d->kv + (double)ctas * sum,
                               .ctas = ctas,
                               .threads = 384,
                               .registers = 168,
                               .ctas_per_sm = 1,
                               .smem_bytes = attention_decode_latent_few_smem(c),
                               .wait_cycles = 1200 * run * ceil(fmin((double)d->kv, c->split) / KEYS) };
    return memory_cost(&work, device);
}

static ckl_status admit_latent_few(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_few_config *c = config;
    TRY(attention_decode_check_form("latent_few", d, &c->form));
    TRY(check_cache("latent_few", d));
    if (attention_decode_rows_of(d) > ATTENTION_DECODE_FEW_ROWS)
        FAIL(CKL_UNSUPPORTED, "attention_decode latent_few: %" PRId64 " rows of a head are more than %d",
             attention_decode_rows_of(d), ATTENTION_DECODE_FEW_ROWS);
    if ((d->dv != 128 && d->dv != 256 && d->dv != 512) || d->d % 8 || d->d > ATTENTION_DECODE_LATENT_MAX)
        FAIL(CKL_UNSUPPORTED,
             "attention_decode latent_few: dv=%" PRId64 " is none of 128, 256, 512, or d=%" PRId64
             " is not a multiple of 8 up to %d",
             d->dv, d->d, ATTENTION_DECODE_LATENT_MAX);
    if (c->slots < 2 || c->slots > SLOTS_MAX)
        FAIL(CKL_INVALID, "attention_decode latent_few: slots=%d is not in 2..%d", c->slots, SLOTS_MAX);
    if (c->run < 0)
        FAIL(CKL_INVALID, "attention_decode latent_few: run=%d is negative", c->run);
    return check_splits("latent_few", d, device, ATTENTION_DECODE_FEW_ROWS, c->split,
                        attention_decode_latent_few_smem(c));
}

static int64_t workspace_latent_few(const ckl_plan *plan)
{
    const attention_decode_latent_few_config *c = plan->config;
    return attention_decode_workspace(plan->desc, ATTENTION_DECODE_FEW_ROWS, c->split);
}

static ckl_status launch_latent_few(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const attention_decode_latent_few_config *c = plan->config;
    const int64_t grid = ctas_of_few(plan->desc, c, plan->kernels[0].clusters_resident);
    return attention_decode_launch(plan, args, ATTENTION_DECODE_FEW_ROWS, c->split, grid, stream);
}

static const field latent_few_fields[] = {
    ATTENTION_DECODE_FORM(FIELD_NESTED, (attention_decode_latent_few_config, form)) //
    ATTENTION_DECODE_LATENT_FEW_CONFIG(FIELD_ROW, attention_decode_latent_few_config)
};

const implementation attention_decode_latent_few_implementation = {
    IMPLEMENTATION_PARTS(attention_decode, latent_few),
    .cost = cost_latent_few,
    .summary = "the same for up to 16 rows: mma.sync, each warp scores a few keys and has a few columns; Hopper",
    .target = IR_SM90A,
    .params = &attention_decode_param_list,
    .workspace_bytes = workspace_latent_few,
};
