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
    FEW_ROWS = ATTENTION_DECODE_FEW_ROWS,
    SPLITS_MAX = 1024, // of a sequence
};

/* Splits of a CTA, `run`, or as few as `resident` CTAs that run at once need, of tiles of so many rows; CTAs. */
typedef struct latent_shares {
    int64_t run, ctas;
} latent_shares;

static latent_shares shares_of(const ckl_attention_decode_desc *d, int rows, const attention_decode_latent_config *c,
                               int64_t resident)
{
    const int64_t tiles = max_i64(ceil_div(attention_decode_rows_of(d), rows), 1),
                  splits = attention_decode_ctas(d, rows, c->split) / tiles,
                  run = max_i64(c->run ? c->run : ceil_div(splits, max_i64(resident / tiles, 1)), 1);
    return (latent_shares){ run, tiles * ceil_div(splits, run) };
}

/* Few rows have sums that are added soon, so splits may be short. */
static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_attention_decode_desc *d = desc;
    attention_decode_latent_config *c = config;
    (void)device;
    c->form = attention_decode_form_of(d);
    for (c->split = attention_decode_rows_of(d) <= FEW_ROWS ? 512 : 2048; ceil_div(d->kv, c->split) > SPLITS_MAX;)
        c->split *= 2;
    return CKL_OK;
}

/*
 * Blocks of keys, starts and ends of splits, and nodes where CTAs meet, as fitted to rows of races
 * (bench/notes/attention.md).
 */
static plan_cost cost_latent(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_config *c = config;
    const latent_shares s = shares_of(d, ROWS, c, device->sm_count);
    return product_cost(&(product_work){ .tiles = (double)s.ctas,
                                         .ctas = 1,
                                         .steps = (double)(s.run * ceil_div(min_i64(d->kv, c->split), KEYS)),
                                         .multiply_adds = (double)(ROWS * KEYS * (d->d + d->dv)),
                                         .rate = 1360,
                                         .tile_cycles = 12500 * (double)s.run,
                                         .us = 3 + 7 * log2((double)ceil_div(ceil_div(d->kv, c->split), s.run)) },
                        device);
}

/* Memory brings the blocks; a CTA's sum is stored and read again. */
static plan_cost cost_latent_few(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_config *c = config;
    const latent_shares s = shares_of(d, FEW_ROWS, c, device->sm_count);
    const double sum = 8 * (double)(attention_decode_rows_of(d) * d->dv);
    const double key = (double)(d->batch * d->kv_heads) * 2 * (double)d->d;
    const memory_work work = { .of = { .us = 3.5 },
                               .bytes = key * (double)d->kv + (double)s.ctas * sum,
                               .ctas = s.ctas,
                               .threads = 384,
                               .registers = 168,
                               .ctas_per_sm = 1,
                               .smem_bytes = attention_decode_latent_few_smem(&c->form),
                               .wait_cycles = 1200 * (double)s.run * ceil(fmin((double)d->kv, c->split) / KEYS) };
    return memory_cost(&work, device);
}

/* What both want: the form and the cache, splits in whole blocks. */
static ckl_status admit(const char *who, const ckl_attention_decode_desc *d, int rows,
                        const attention_decode_latent_config *c)
{
    TRY(attention_decode_check_form(who, d, &c->form));
    if (!d->latent || d->cache != d->dtype)
        FAIL(CKL_UNSUPPORTED, "attention_decode %s: the cache is not latent, or of another type than q", who);
    if (d->page % KEYS && (d->page < PAGE_MIN || KEYS % d->page))
        FAIL(CKL_UNSUPPORTED,
             "attention_decode %s: page=%" PRId64 " neither divides %d, from %d on, nor is a multiple of it", who,
             d->page, KEYS, PAGE_MIN);
    if (c->run < 0)
        FAIL(CKL_INVALID, "attention_decode %s: run=%d is negative", who, c->run);
    if (c->split < KEYS || c->split % KEYS)
        FAIL(CKL_INVALID, "attention_decode %s: split=%d is not a multiple of %d", who, c->split, KEYS);
    const int64_t ctas = attention_decode_ctas(d, rows, c->split);
    if (ctas > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "attention_decode %s: %" PRId64 " CTAs are more than 2^31-1", who, ctas);
    return attention_decode_check_strides(who, d);
}

static ckl_status admit_latent(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_config *c = config;
    TRY(admit("latent", d, ROWS, c));
    if (d->dv % (2 * CHUNK) || d->d % 8 || d->d > ATTENTION_DECODE_LATENT_MAX || ceil_div(d->d, CHUNK) <= d->dv / CHUNK)
        FAIL(CKL_UNSUPPORTED,
             "attention_decode latent: dv=%" PRId64 " is not a multiple of %d, or d=%" PRId64
             " not one of 8 from dv+8 up to %d",
             d->dv, 2 * CHUNK, d->d, ATTENTION_DECODE_LATENT_MAX);
    return attention_check_smem("attention_decode", "latent", device, attention_decode_latent_smem(&c->form));
}

static ckl_status admit_latent_few(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_latent_config *c = config;
    TRY(admit("latent_few", d, FEW_ROWS, c));
    if (attention_decode_rows_of(d) > FEW_ROWS)
        FAIL(CKL_UNSUPPORTED, "attention_decode latent_few: %" PRId64 " rows of a head are more than %d",
             attention_decode_rows_of(d), FEW_ROWS);
    if ((d->dv != 128 && d->dv != 256 && d->dv != 512) || d->d % 8 || d->d > ATTENTION_DECODE_LATENT_MAX)
        FAIL(CKL_UNSUPPORTED,
             "attention_decode latent_few: dv=%" PRId64 " is none of 128, 256, 512, or d=%" PRId64
             " is not a multiple of 8 up to %d",
             d->dv, d->d, ATTENTION_DECODE_LATENT_MAX);
    return attention_check_smem("attention_decode", "latent_few", device, attention_decode_latent_few_smem(&c->form));
}

/* Rows of a CTA. */
static int rows_of(const ckl_plan *plan)
{
    return plan->impl == &attention_decode_latent_few_implementation ? FEW_ROWS : ROWS;
}

static int64_t workspace(const ckl_plan *plan)
{
    const attention_decode_latent_config *c = plan->config;
    return attention_decode_workspace(plan->desc, rows_of(plan), c->split);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const attention_decode_latent_config *c = plan->config;
    const latent_shares s = shares_of(plan->desc, rows_of(plan), c, plan->kernels[0].clusters_resident);
    return attention_decode_launch(plan, args, rows_of(plan), c->split, s.ctas, stream);
}

static const field latent_fields[] = { ATTENTION_DECODE_FORM(FIELD_NESTED, (attention_decode_latent_config, form)) //
                                       ATTENTION_DECODE_LATENT_CONFIG(FIELD_ROW, attention_decode_latent_config) };

#define LATENT_PARTS(called)                                                                                       \
    .name = #called, .config_bytes = sizeof(attention_decode_latent_config), .config = FIELD_TABLE(latent_fields), \
    .choose = choose, .cost = cost_##called, .admit = admit_##called, .describe = attention_decode_##called,       \
    .target = IR_SM90A, .params = &attention_decode_param_list, .workspace_bytes = workspace, .launch = launch

const implementation attention_decode_latent_implementation = {
    LATENT_PARTS(latent),
    .summary = "values are columns of the keys: TMA, two consumer warpgroups with half of the columns each; wgmma",
};

const implementation attention_decode_latent_few_implementation = {
    LATENT_PARTS(latent_few),
    .summary = "the same for up to 16 rows: mma.sync, each warp scores a few keys and has a few columns; Hopper",
};
