/* rope.c - rotary embedding: validation, the tensors of a problem. */
#include "base/math.h"
#include "operators/operators.h"
#include "operators/rope/rope_desc.h"

/* Tokens must not share memory; heads lie within a token's distance. */
static ckl_status check_distances(const char *ld_name, int64_t *ld, const char *head_name, int64_t *ld_head,
                                  int64_t heads, int64_t head_dim)
{
    if (heads == 0) {
        TRY(plan_check_unused("rope", ld_name, *ld, "a problem without k"));
        return plan_check_unused("rope", head_name, *ld_head, "a problem without k");
    }
    TRY(plan_check_pitch("rope", head_name, ld_head, "head_dim", head_dim));
    return plan_check_pitch("rope", ld_name, ld, "(heads-1)*ld_head+head_dim",
                            sum_i64(product_i64(heads - 1, *ld_head), head_dim));
}

static ckl_status check(void *desc)
{
    ckl_rope_desc *d = desc;
    if (d->rotary_dim == 0)
        d->rotary_dim = d->head_dim;
    if (d->rotary_dim < 2 || d->rotary_dim % 2 || d->rotary_dim > d->head_dim || d->rotary_dim > 2 * ROPE_LANES_MAX)
        FAIL(CKL_INVALID, "rope: rotary_dim=%" PRId64 " is not even in 2..min(head_dim=%" PRId64 ", %d)", d->rotary_dim,
             d->head_dim, 2 * ROPE_LANES_MAX);
    TRY(check_distances("ldq", &d->ldq, "ldq_head", &d->ldq_head, d->heads, d->head_dim));
    TRY(check_distances("ldk", &d->ldk, "ldk_head", &d->ldk_head, d->k_heads, d->head_dim));
    TRY(check_distances("ldyq", &d->ldyq, "ldyq_head", &d->ldyq_head, d->heads, d->head_dim));
    return check_distances("ldyk", &d->ldyk, "ldyk_head", &d->ldyk_head, d->k_heads, d->head_dim);
}

/* yq may be in place of q, and yk of k. */
static plan_tensor heads_of(const ckl_rope_desc *d, const char *name, int place, int64_t heads, int64_t ld,
                            int64_t ld_head)
{
    const char *absent = heads ? NULL : "a problem without k";
    return (plan_tensor){ name,           d->dtype,        3, { d->tokens, heads, d->head_dim }, { ld, ld_head, 1 },
                          .place = place, .absent = absent };
}

static int tensors(const void *desc, plan_tensor *t)
{
    enum { OF_Q = 1, OF_K };
    const ckl_rope_desc *d = desc;
    t[0] = heads_of(d, "q", OF_Q, d->heads, d->ldq, d->ldq_head);
    t[1] = heads_of(d, "k", OF_K, d->k_heads, d->ldk, d->ldk_head);
    t[2] = plan_vector("positions", d->positions, d->tokens);
    t[3] = plan_output(heads_of(d, "yq", OF_Q, d->heads, d->ldyq, d->ldyq_head));
    t[4] = plan_output(heads_of(d, "yk", OF_K, d->k_heads, d->ldyk, d->ldyk_head));
    return 5;
}

static const field desc_fields[] = { ROPE_DESC(FIELD_ROW, ckl_rope_desc) };
static const field fields[] = {
    ROPE_DESC(FIELD_NESTED, (rope_problem, desc))                                    //
    FIELD_ROW(rope_problem, bool, inplace, "0", "0 1", "yq is q and yk is k")        //
    FIELD_ROW(rope_problem, float, position_min, "0", "", "the least position")      //
    FIELD_ROW(rope_problem, float, position_max, "4096", "", "the largest position") //
};
static const implementation *const implementations[] = { &rope_tiles_implementation, &rope_vector_implementation,
                                                         NULL };

OPERATOR(rope, rope, "rotary position embedding of q and k");
OPERATOR_LINE(rope, rope_problem, NULL);
