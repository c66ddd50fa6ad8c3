/* gemm.c - GEMM problems: their checks, their tensors, and what their implementations share. */
#include "cutekernellib/operators/gemm.h"

#include "base/math.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/operators.h"

/* Validation */

static ckl_status check_same(const char *name, ckl_dtype type, ckl_dtype only)
{
    if (type != only)
        FAIL(CKL_INVALID, "gemm: %s=%s is none of %s", name, ckl_dtype_name(type), ckl_dtype_name(only));
    return CKL_OK;
}

/* D has the type of A or f32; of 8-bit types it is any float. */
static ckl_status check_result(ckl_gemm_desc *d)
{
    bool narrow = ckl_dtype_bytes(d->a) == 1;
    d->d = d->d ? d->d : narrow ? CKL_BF16 : d->a;
    if (!narrow && d->d != d->a && d->d != CKL_F32)
        FAIL(CKL_INVALID, "gemm: d=%s is none of %s, f32", ckl_dtype_name(d->d), ckl_dtype_name(d->a));
    return CKL_OK;
}

/* Matrices of a batch lie `stride` elements apart, one after the other by default. */
static ckl_status check_stride(const char *name, int64_t *stride, int64_t rows, int64_t ld, int64_t batch)
{
    if (batch == 1)
        return plan_check_unused("gemm", name, *stride, "a problem of one product");
    *stride = *stride ? *stride : product_i64(rows, ld);
    return CKL_OK;
}

/* Matrices of D lie one after the other, or side by side within rows. */
static ckl_status check_outputs_apart(const ckl_gemm_desc *d)
{
    double stride = (double)d->stride_d, ld = (double)d->ldd, n = (double)d->n; // products may leave 64 bits
    bool after = d->m == 0 || stride >= (double)(d->m - 1) * ld + n;
    bool beside = stride >= n && ld >= (double)(d->batch - 1) * stride + n;
    if (d->batch > 1 && !after && !beside)
        FAIL(CKL_INVALID, "gemm: stride_d=%" PRId64 " lets the %" PRId64 "x%" PRId64 " results of a batch overlap",
             d->stride_d, d->m, d->n);
    return CKL_OK;
}

static ckl_status check_batch(ckl_gemm_desc *d)
{
    d->batch = d->batch ? d->batch : 1;
    TRY(check_stride("stride_a", &d->stride_a, d->m, d->lda, d->batch));
    TRY(check_stride("stride_b", &d->stride_b, d->n, d->ldb, d->batch));
    TRY(check_stride("stride_d", &d->stride_d, d->m, d->ldd, d->batch));
    if (d->c)
        TRY(check_stride("stride_c", &d->stride_c, d->m, d->ldc, d->batch));
    else
        TRY(plan_check_unused("gemm", "stride_c", d->stride_c, "a problem without C"));
    return check_outputs_apart(d);
}

static ckl_status check(void *desc)
{
    ckl_gemm_desc *d = desc;
    d->b = d->b ? d->b : d->a;
    TRY(check_same("b", d->b, d->a));
    TRY(check_result(d));
    if (d->math == CKL_GEMM_TF32 && d->a != CKL_F32)
        FAIL(CKL_INVALID, "gemm: math=tf32 is of a=f32, not of %s", ckl_dtype_name(d->a));
    TRY(plan_check_pitch("gemm", "lda", &d->lda, "k", d->k));
    TRY(plan_check_pitch("gemm", "ldb", &d->ldb, "k", d->k));
    TRY(plan_check_pitch("gemm", "ldd", &d->ldd, "n", d->n));
    if (d->c) {
        TRY(check_same("c", d->c, d->d));
        TRY(plan_check_pitch("gemm", "ldc", &d->ldc, "n", d->n));
    } else
        TRY(plan_check_unused("gemm", "ldc", d->ldc, "a problem without C"));
    return check_batch(d);
}

/* A matrix, or one of each product of the batch. */
static plan_tensor matrices(const ckl_gemm_desc *d, const char *name, ckl_dtype type, int64_t rows, int64_t cols,
                            int64_t ld, int64_t stride)
{
    plan_tensor one = plan_matrix(name, type, rows, cols, ld);
    if (d->batch == 1)
        return one;
    plan_tensor all = plan_strided(name, type, 3, (int64_t[]){ d->batch, rows, cols }, (int64_t[]){ stride, ld, 1 });
    all.place = one.place;
    return all;
}

/* D may be in place of C alone. */
static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_gemm_desc *d = desc;
    const char *no_c = d->c ? NULL : "a problem without C", *no_bias = d->bias ? NULL : "a problem without bias";
    t[0] = plan_apart(matrices(d, "a", d->a, d->m, d->k, d->lda, d->stride_a));
    t[1] = plan_apart(matrices(d, "b", d->b, d->n, d->k, d->ldb, d->stride_b));
    t[2] = plan_absent(matrices(d, "c", d->d, d->m, d->n, d->ldc, d->stride_c), no_c);
    t[3] = plan_absent(plan_vector("bias", d->d, d->n), no_bias);
    t[4] = plan_output(matrices(d, "d", d->d, d->m, d->n, d->ldd, d->stride_d));
    return 5;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_gemm_args *x = args;
    if (!((const ckl_gemm_desc *)desc)->c && x->beta && *x->beta != 0)
        FAIL(CKL_INVALID, "gemm: beta=%g is not part of a problem without C", (double)*x->beta);
    return CKL_OK;
}

/* What implementations share */

float gemm_alpha_of(const ckl_gemm_args *x)
{
    return x->alpha ? *x->alpha : 1;
}

float gemm_beta_of(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    return !d->c ? 0 : x->beta ? *x->beta : 1;
}

gemm_params gemm_params_of(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    return (gemm_params){ .m = d->m,
                          .n = d->n,
                          .k = d->k,
                          .a = x->a,
                          .lda = d->lda,
                          .a_batch = d->stride_a,
                          .b = x->b,
                          .ldb = d->ldb,
                          .b_batch = d->stride_b,
                          .c = x->c,
                          .ldc = d->ldc,
                          .c_batch = d->stride_c,
                          .d = x->d,
                          .ldd = d->ldd,
                          .d_batch = d->stride_d,
                          .batch = d->batch,
                          .bias = x->bias,
                          .alpha = gemm_alpha_of(x),
                          .beta = gemm_beta_of(d, x) };
}

gemm_epilogue gemm_epilogue_of(const ckl_gemm_desc *d)
{
    return (gemm_epilogue){ d->a, d->d, d->c != CKL_DTYPE_DEFAULT, d->bias, (choice)d->activation };
}

ckl_status gemm_check_epilogue(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have)
{
    gemm_epilogue want = gemm_epilogue_of(d);
    if (have->ab != want.ab || have->d != want.d || have->c != want.c || have->bias != want.bias ||
        have->activation != want.activation)
        FAIL(CKL_INVALID, "gemm %s: the config's types or epilogue are not the problem's", who);
    return CKL_OK;
}

bool gemm_rows_aligned(const ckl_gemm_desc *d, char matrix, int bytes)
{
    const struct {
        char name;
        int64_t rows, ld, stride;
        ckl_dtype type;
    } all[] = { { 'a', d->m, d->lda, d->stride_a, d->a },
                { 'b', d->n, d->ldb, d->stride_b, d->b },
                { 'c', d->m, d->ldc, d->stride_c, d->d },
                { 'd', d->m, d->ldd, d->stride_d, d->d } };
    for (int i = 0; i < COUNT_OF(all); i++) {
        int64_t size = (int64_t)ckl_dtype_bytes(all[i].type);
        if (all[i].name == matrix)
            return (all[i].rows <= 1 || all[i].ld * size % bytes == 0) &&
                   (d->batch == 1 || all[i].stride * size % bytes == 0);
    }
    return false;
}

int gemm_vector_of(const ckl_gemm_desc *d)
{
    int bytes = TMA_ALIGNMENT;
    while (!gemm_rows_aligned(d, 'a', bytes) || !gemm_rows_aligned(d, 'b', bytes))
        bytes /= 2;
    return bytes / (int)ckl_dtype_bytes(d->a);
}

/* The operator */

static const field desc_fields[] = { GEMM_DESC(FIELD_ROW, ckl_gemm_desc) };
static const desc_member members[] = { DESC_MEMBER(ckl_gemm_desc, ckl_dtype, c), { 0 } };
static const implementation *const implementations[] = { &gemm_splitk_implementation,  &gemm_sm90_implementation,
                                                         &gemm_pitched_implementation, &gemm_tiled_implementation,
                                                         &gemm_naive_implementation,   NULL };

OPERATOR(gemm, gemm, "D = activation(alpha*A*B + beta*C + bias)", .check_args = check_args, .members = members,
         .numbers = "alpha beta", .workspace = offsetof(ckl_gemm_args, workspace));
