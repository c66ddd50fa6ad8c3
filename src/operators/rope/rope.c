/* rope.c - rotary embedding: validation, choice of tile, frequencies, launch. */
#include "cutekernellib/operators/rope.h"

#include <math.h>

#include "operators/operators.h"
#include "operators/rope/rope_config.h"
#include "plan/check.h"

/* One of the four tensors. */
typedef struct rope_tensor {
    const char *name;
    const void *pointer;
    int64_t heads, ld, ld_head;
} rope_tensor;

enum { Q, K, YQ, YK, TENSORS };

static void list_tensors(const ckl_rope_desc *d, const ckl_rope_args *x, rope_tensor t[TENSORS])
{
    t[Q] = (rope_tensor){ "q", x->q, d->heads, d->ldq, d->ldq_head };
    t[K] = (rope_tensor){ "k", x->k, d->k_heads, d->ldk, d->ldk_head };
    t[YQ] = (rope_tensor){ "yq", x->yq, d->heads, d->ldyq, d->ldyq_head };
    t[YK] = (rope_tensor){ "yk", x->yk, d->k_heads, d->ldyk, d->ldyk_head };
}

/* Validation */

/* Tokens must not share memory; heads lie within a token's distance. */
static ckl_status check_distances(const char *ld_name, int64_t *ld, const char *head_name, int64_t *ld_head,
                                  int64_t heads, int64_t head_dim)
{
    if (heads == 0 && (*ld || *ld_head))
        FAIL(CKL_INVALID, "rope: %s=%" PRId64 " %s=%" PRId64 " are not part of a problem without k", ld_name, *ld,
             head_name, *ld_head);
    if (heads == 0)
        return CKL_OK;
    TRY(plan_check_pitch("rope", head_name, ld_head, "head_dim", head_dim));
    return plan_check_pitch("rope", ld_name, ld, "(heads-1)*ld_head+head_dim", (heads - 1) * *ld_head + head_dim);
}

static ckl_status check_angles(ckl_rope_desc *d)
{
    if (d->rotary_dim == 0)
        d->rotary_dim = d->head_dim;
    if (d->theta == 0)
        d->theta = 10000;
    if (d->scale == 0)
        d->scale = 1;
    if (d->rotary_dim < 2 || d->rotary_dim % 2 || d->rotary_dim > d->head_dim || d->rotary_dim > 2 * ROPE_LANES_MAX)
        FAIL(CKL_INVALID, "rope: rotary_dim=%" PRId64 " is not even in 2..min(head_dim=%" PRId64 ", %d)", d->rotary_dim,
             d->head_dim, 2 * ROPE_LANES_MAX);
    if ((unsigned)d->style > CKL_ROPE_INTERLEAVED)
        FAIL(CKL_INVALID, "rope: style=%d is neither half nor interleaved", (int)d->style);
    if (!(d->theta >= 1 && d->theta <= 0x1p60F))
        FAIL(CKL_INVALID, "rope: theta=%g is not in 1..2^60", (double)d->theta);
    if (!(d->scale > 0x1p-30F && d->scale <= 1))
        FAIL(CKL_INVALID, "rope: scale=%g is not in 2^-30..1", (double)d->scale);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_rope_desc *d = desc;
    if (d->positions == CKL_DTYPE_DEFAULT)
        d->positions = CKL_I32;
    TRY(PLAN_CHECK_DTYPE("rope", "dtype", d->dtype, CKL_F32, CKL_F16, CKL_BF16));
    TRY(PLAN_CHECK_DTYPE("rope", "positions", d->positions, CKL_I32, CKL_I64));
    TRY(plan_check_size("rope", "tokens", d->tokens));
    if (d->heads < 1 || d->k_heads < 0 || d->heads > 1 << 16 || d->k_heads > 1 << 16)
        FAIL(CKL_INVALID, "rope: heads=%" PRId64 " k_heads=%" PRId64 " are not in 1..2^16 and 0..2^16", d->heads,
             d->k_heads);
    if (d->head_dim > 1 << 20)
        FAIL(CKL_INVALID, "rope: head_dim=%" PRId64 " is more than 2^20", d->head_dim);
    TRY(check_angles(d));
    TRY(check_distances("ldq", &d->ldq, "ldq_head", &d->ldq_head, d->heads, d->head_dim));
    TRY(check_distances("ldk", &d->ldk, "ldk_head", &d->ldk_head, d->k_heads, d->head_dim));
    TRY(check_distances("ldyq", &d->ldyq, "ldyq_head", &d->ldyq_head, d->heads, d->head_dim));
    return check_distances("ldyk", &d->ldyk, "ldyk_head", &d->ldyk_head, d->k_heads, d->head_dim);
}

/* Do all tensors lie side by side within one token's distance, as in a joint projection? Then one token tells overlaps. */
static bool is_joint(const rope_tensor t[TENSORS], const plan_tensor token[TENSORS])
{
    uintptr_t low = (uintptr_t)t[Q].pointer, high = low;
    for (int i = 0; i < TENSORS; i++) {
        if (!token[i].bytes)
            continue;
        if (t[i].ld != t[Q].ld)
            return false;
        uintptr_t start = (uintptr_t)t[i].pointer, end = start + (uintptr_t)token[i].bytes;
        low = start < low ? start : low;
        high = end > high ? end : high;
    }
    return high - low <= (uintptr_t)(t[Q].ld * token[Q].align);
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_rope_desc *d = desc;
    const ckl_rope_args *x = args;
    rope_tensor t[TENSORS];
    plan_tensor all[TENSORS + 1];
    list_tensors(d, x, t);
    for (int i = 0; i < TENSORS; i++) { // of one token
        all[i] = plan_matrix(t[i].name, t[i].pointer, d->dtype, t[i].heads, d->head_dim, t[i].ld_head);
        all[i].layout = t[i].ld == t[i ^ 2].ld && t[i].ld_head == t[i ^ 2].ld_head ? 1 + i % 2 : 0;
        all[i].output = i >= YQ;
        all[i].absent = t[i].heads ? NULL : "a problem without k";
    }
    bool joint = is_joint(t, all);
    for (int i = 0; i < TENSORS && !joint; i++)
        all[i].bytes += all[i].bytes ? (d->tokens - 1) * t[i].ld * all[i].align : 0;
    all[TENSORS] = plan_matrix("positions", x->positions, d->positions, 1, d->tokens, d->tokens);
    all[TENSORS].layout = 0;
    return d->tokens ? plan_check_tensors("rope", all, COUNT_OF(all)) : CKL_OK;
}

/* Choice */

static bool divides_all(int vec, const ckl_rope_desc *d)
{
    const int64_t lengths[] = { d->rotary_dim / 2, d->head_dim, d->ldq,      d->ldk,       d->ldyq,
                                d->ldyk,           d->ldq_head, d->ldk_head, d->ldyq_head, d->ldyk_head };
    for (int i = 0; i < COUNT_OF(lengths); i++)
        if (lengths[i] % vec)
            return false;
    return true;
}

static int64_t groups_of(const ckl_rope_desc *d, int heads)
{
    return ceil_div(d->heads, heads) + ceil_div(d->k_heads, heads);
}

/* Sine and cosine cost as much as a few heads: CTAs take several groups of them, as long as there are CTAs enough. */
static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    enum { GROUPS_MAX = 8, CTAS_PER_SM = 8 };
    const ckl_rope_desc *d = desc;
    rope_config *c = config;
    c->dtype = d->dtype;
    c->positions = d->positions;
    c->style = (choice)d->style;
    c->head_dim = (int)d->head_dim;
    c->rotary_dim = (int)d->rotary_dim;
    for (c->vec = 16 / (int)ckl_dtype_bytes(d->dtype); !divides_all(c->vec, d);)
        c->vec /= 2;
    while (c->heads > 1 && c->heads / 2 >= max_i64(d->heads, d->k_heads))
        c->heads /= 2;
    int64_t groups = groups_of(d, c->heads), tiles = ceil_div(d->tokens, rope_tile_of(c, 0).tokens);
    for (c->groups = GROUPS_MAX; c->groups > 1; c->groups--)
        if (groups % c->groups == 0 && tiles * groups / c->groups >= (int64_t)CTAS_PER_SM * device->sm_count)
            break;
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_rope_desc *d = desc;
    const rope_config *c = config;
    if (c->dtype != d->dtype || c->positions != d->positions || c->style != (choice)d->style ||
        c->head_dim != d->head_dim || c->rotary_dim != d->rotary_dim)
        FAIL(CKL_INVALID, "rope vector: types, style or sizes of a head in the config are not the problem's");
    if (!is_power_of_two(c->vec) || c->vec * (int)ckl_dtype_bytes(c->dtype) > 16 || !divides_all(c->vec, d))
        FAIL(CKL_INVALID, "rope vector: vec=%d is no power of two of at most 16 bytes that divides heads and distances",
             c->vec);
    if (!is_power_of_two(c->heads) || c->heads > 8 || c->groups < 1)
        FAIL(CKL_INVALID, "rope vector: heads=%d is no power of two up to 8 or groups=%d is not positive", c->heads,
             c->groups);
    if (c->threads < 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "rope vector: threads=%d is not in 32..%d", c->threads, device->threads_per_cta_max);
    if (ceil_div(groups_of(d, c->heads), c->groups) > 65535)
        FAIL(CKL_UNSUPPORTED, "rope vector: groups=%d leaves more than 65535 of them side by side", c->groups);
    return CKL_OK;
}

/* Launch */

/* Frequencies in turns per position, each in two f32; the inverse turns the other way. */
static void set_frequencies(const ckl_rope_desc *d, int vec, rope_params *p)
{
    const double turn = 6.283185307179586, base = (d->inverse ? -1 : 1) * (double)d->scale / turn;
    for (int j = 0; j < vec; j++) {
        double x = base * pow((double)d->theta, -2.0 * j / (double)d->rotary_dim);
        p->pair_hi[j] = (float)x;
        p->pair_lo[j] = (float)(x - (double)p->pair_hi[j]);
    }
    for (int b = 0; b < ROPE_LANE_BITS; b++) {
        double x = pow((double)d->theta, -2.0 * vec * (1 << b) / (double)d->rotary_dim);
        p->lane_hi[b] = (float)x;
        p->lane_lo[b] = (float)(x - (double)p->lane_hi[b]);
    }
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_rope_desc *d = plan->desc;
    const ckl_rope_args *x = args;
    const rope_config *c = plan->config;
    if (d->tokens == 0)
        return CKL_OK;
    uintptr_t pointers = (uintptr_t)x->q | (uintptr_t)x->k | (uintptr_t)x->yq | (uintptr_t)x->yk;
    int kernel = pointers % ((uintptr_t)c->vec * ckl_dtype_bytes(d->dtype)) ? 1 : 0;
    rope_tile tile = rope_tile_of(c, kernel);
    rope_params params = { .x = { x->q, x->k },
                           .y = { x->yq, x->yk },
                           .ldx = { d->ldq, d->ldk },
                           .ldy = { d->ldyq, d->ldyk },
                           .ldx_head = { d->ldq_head, d->ldk_head },
                           .ldy_head = { d->ldyq_head, d->ldyk_head },
                           .heads = { (uint32_t)d->heads, (uint32_t)d->k_heads },
                           .tokens = d->tokens,
                           .positions = x->positions };
    set_frequencies(d, tile.vec, &params);
    const plan_grid grid = { .x = ceil_div(d->tokens, tile.tokens), .y = ceil_div(groups_of(d, c->heads), c->groups) };
    return plan_launch(plan, kernel, grid, &params, stream);
}

static const field config_fields[] = { ROPE_CONFIG(FIELD_ROW, rope_config) };

static const implementation vector = {
    .name = "vector",
    .summary = "vectors of pairs, several heads a thread that share sine and cosine",
    .config_bytes = sizeof(rope_config),
    .config = FIELD_TABLE(config_fields),
    .choose = choose,
    .admit = admit,
    .describe = rope_describe,
    .kernels = 2,
    .params = &rope_param_list,
    .launch = launch,
};

static const implementation *const implementations[] = { &vector, NULL };

OPERATOR(rope, rope, "rotary position embedding of q and k");
