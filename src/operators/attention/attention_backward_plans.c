/* attention_backward_plans.c - the implementations of attention's backward direction: choice, limits, launches. */
#include "operators/attention/attention_config.h"

/* naive */

static ckl_status choose_naive_backward(const void *desc, const ckl_device_info *device, void *config)
{
    attention_naive_config *c = config;
    (void)device;
    c->form = attention_form_of(desc);
    c->threads = 64;
    return CKL_OK;
}

/* Of kernel 0 and 1: rows of dQ; of dK and dV. */
static int64_t naive_rows(const ckl_attention_desc *d, int kernel)
{
    return product_i64(d->batch, kernel == 0 ? product_i64(d->heads, d->q) : product_i64(d->kv_heads, d->kv));
}

static ckl_status admit_naive_backward(const void *desc, const ckl_device_info *device, const void *config)
{
    const attention_naive_config *c = config;
    TRY(attention_check_form("naive_backward", CKL_DIRECTION_BACKWARD, desc, &c->form));
    if (c->threads < 32 || c->threads % 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "attention naive_backward: threads=%d must be a multiple of 32 up to %d", c->threads,
             device->threads_per_cta_max);
    if (max_i64(naive_rows(desc, 0), naive_rows(desc, 1)) > (int64_t)INT32_MAX * c->threads)
        FAIL(CKL_UNSUPPORTED, "attention naive_backward: more rows than one launch has threads");
    return CKL_OK;
}

static ckl_status launch_naive_backward(const ckl_plan *plan, const void *args, ckl_stream stream)
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

static const field naive_backward_fields[] = { ATTENTION_FORM(FIELD_NESTED, (attention_naive_config, form)) //
                                               ATTENTION_NAIVE_CONFIG(FIELD_ROW, attention_naive_config) };

typedef attention_naive_config attention_naive_backward_config;

const implementation attention_naive_backward_implementation = {
    IMPLEMENTATION_PARTS(attention, naive_backward),
    .summary = "a thread a row of dQ, then of dK and dV: the definition, for any sizes and strides",
    .kernels = 2,
    .params = &attention_param_list,
};
