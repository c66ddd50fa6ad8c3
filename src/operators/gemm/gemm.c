/* gemm.c - GEMM problems: their matrices, their checks, their tensors, and the list of implementations. */
#include "cutekernellib/operators/gemm.h"

#include "base/math.h"
#include "operators/gemm/gemm_epilogues.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_steps.h"
#include "operators/operators.h"

/* Rows of a matrix; where a list takes m of them, `listed`. */
static int64_t rows_of(int64_t listed, int64_t m)
{
    return listed ? listed : m;
}

gemm_matrix gemm_matrix_of(const ckl_gemm_desc *d, char name)
{
    const bool k_major = gemm_is_k_major(d, name);
    switch (name) {
    case 'a':
        return (gemm_matrix){
            d->a, k_major ? rows_of(d->gather, d->m) : d->k, k_major ? d->k : d->m, d->lda, d->stride_a, d->batch
        };
    case 'b': {
        const int64_t k = d->b == CKL_U8 ? d->k / 2 : d->k; // in bytes
        return (gemm_matrix){
            d->b,        k_major ? gemm_columns_of_B(d) : k,        k_major ? k : gemm_columns_of_B(d), d->ldb,
            d->stride_b, gemm_groups_of_m(d) ? d->groups : d->batch
        };
    }
    case 'c':
        return (gemm_matrix){ d->d, rows_of(d->scatter, d->m), d->n, d->ldc, d->stride_c, gemm_products(d) };
    case 'x':
        return (gemm_matrix){ d->d, rows_of(d->scatter, d->m), d->n, d->ldx, d->stride_x, gemm_products(d) };
    default:
        return (gemm_matrix){ d->d, rows_of(d->scatter, d->m), d->n, d->ldd, d->stride_d, gemm_products(d) };
    }
}

/* Validation */

static ckl_status check_same(const char *name, ckl_dtype type, ckl_dtype only)
{
    if (type != only)
        FAIL(CKL_INVALID, "gemm: %s=%s is none of %s", name, ckl_dtype_name(type), ckl_dtype_name(only));
    return CKL_OK;
}

ckl_dtype gemm_result_type(const ckl_gemm_desc *d)
{
    return d->d ? d->d : ckl_dtype_bytes(d->a) == 1 ? CKL_BF16 : d->a;
}

/* Is there more to do than to add products? */
static bool has_epilogue(const ckl_gemm_desc *d)
{
    return d->c || d->bias || d->scale_a || d->scale_b || d->scale_d || d->device_scalars || d->preactivation ||
           d->gated || d->activation != CKL_ACTIVATION_IDENTITY || d->weighted || d->epilogue;
}

static ckl_status check_epilogue(ckl_gemm_desc *d)
{
    TRY(gemm_epilogue_check("gemm", &d->epilogue));
    if (d->epilogue && (d->m > INT32_MAX || d->n > INT32_MAX))
        FAIL(CKL_INVALID, "gemm: epilogue=%s is of m and n below 2^31", d->epilogue);
    return CKL_OK;
}

/* D has the type of A or f32. For 8-bit types it is any float; for i8 also i32, the plain sums. */
static ckl_status check_result(ckl_gemm_desc *d)
{
    bool narrow = ckl_dtype_bytes(d->a) == 1;
    d->d = gemm_result_type(d);
    if (d->d == CKL_I32 && (d->a != CKL_I8 || has_epilogue(d)))
        FAIL(CKL_INVALID, "gemm: d=i32 is the sums of i8 as they are, without an epilogue");
    if (!narrow && d->d != d->a && d->d != CKL_F32)
        FAIL(CKL_INVALID, "gemm: d=%s is none of %s, f32", ckl_dtype_name(d->d), ckl_dtype_name(d->a));
    if (gemm_is_f8(d->d) && (!gemm_is_f8(d->a) || d->c || gemm_has_x(d)))
        FAIL(CKL_INVALID, "gemm: d=%s is of A and B of 8-bit floats, without C and X", ckl_dtype_name(d->d));
    if (d->amax && !gemm_is_f8(d->d))
        FAIL(CKL_INVALID, "gemm: amax=1 is of d=e4m3 and e5m2, not of %s", ckl_dtype_name(d->d));
    return CKL_OK;
}

/* Why there is no C, or no X, written or read; NULL: there is one. */
static const char *no_c(const ckl_gemm_desc *d)
{
    return d->c ? NULL : "a problem without C";
}

static const char *no_x(const ckl_gemm_desc *d)
{
    return gemm_has_x(d) ? NULL : "a problem without X";
}

/* Matrices of a batch are `stride` elements apart, by default one after the other. */
static ckl_status check_stride(const ckl_gemm_desc *d, char matrix, int64_t *stride, const char *absent)
{
    const gemm_matrix x = gemm_matrix_of(d, matrix);
    const char name[] = { 's', 't', 'r', 'i', 'd', 'e', '_', matrix, '\0' };
    const char *alone = d->pointers    ? "a problem of arrays of pointers"
                        : x.count == 1 ? "a problem of one product"
                                       : NULL;
    if (absent || alone)
        return plan_check_unused("gemm", name, *stride, plan_first(absent, alone));
    *stride = *stride ? *stride : product_i64(x.rows, x.ld);
    return CKL_OK;
}

/* Matrices of D, and of X, lie one after the other, or side by side within rows. */
static ckl_status check_outputs_apart(const ckl_gemm_desc *d, char name)
{
    const gemm_matrix x = gemm_matrix_of(d, name);
    double stride = (double)x.stride, ld = (double)x.ld, n = (double)d->n; // products may leave 64 bits
    bool after = d->m == 0 || stride >= (double)(d->m - 1) * ld + n;
    bool beside = stride >= n && ld >= (double)(x.count - 1) * stride + n;
    bool written = name == 'd' || d->preactivation;
    if (x.count > 1 && !d->pointers && written && !after && !beside)
        FAIL(CKL_INVALID, "gemm: stride_%c=%" PRId64 " lets the %" PRId64 "x%" PRId64 " results of a batch overlap",
             name, x.stride, d->m, d->n);
    return CKL_OK;
}

static ckl_status check_groups(const ckl_gemm_desc *d)
{
    const bool of_k = gemm_groups_of_k(d);
    const int64_t dealt = of_k ? d->k : d->m;
    if (d->groups && d->batch > 1)
        FAIL(CKL_INVALID, "gemm: batch=%" PRId64 " is not part of a problem of groups", d->batch);
    if (d->groups > INT32_MAX || (d->groups && dealt > INT32_MAX))
        FAIL(CKL_INVALID, "gemm: groups=%" PRId64 " or %c=%" PRId64 " is beyond the 32 bits of offsets", d->groups,
             of_k ? 'k' : 'm', dealt);
    if (d->host_offsets && (!d->groups || d->groups > GEMM_HOST_GROUPS_MAX))
        FAIL(CKL_INVALID, "gemm: host_offsets=1 is of 1 to %d groups, not of groups=%" PRId64, GEMM_HOST_GROUPS_MAX,
             d->groups);
    if (!d->groups && d->groups_of)
        FAIL(CKL_INVALID, "gemm: groups_of=k is not part of a problem without groups");
    if (of_k && (gemm_has_block_scales((choice)d->scale_b) || gemm_has_weights(d)))
        FAIL(CKL_INVALID, "gemm: groups_of=k goes without scales of blocks and weights of integers");
    return CKL_OK;
}

/* Rows of A and D that lists name. */
static ckl_status check_lists(const ckl_gemm_desc *d)
{
    const bool listed = d->gather || d->scatter;
    if (listed && (d->batch > 1 || gemm_groups_of_k(d)))
        FAIL(CKL_INVALID, "gemm: gather and scatter go without batch=%" PRId64 " and groups_of=k", d->batch);
    if (d->gather && !gemm_is_k_major(d, 'a'))
        FAIL(CKL_INVALID, "gemm: gather=%" PRId64 " takes rows of a K-major A", d->gather);
    if (d->gather > INT32_MAX || d->scatter > INT32_MAX || (listed && d->m > INT32_MAX))
        FAIL(CKL_INVALID, "gemm: gather=%" PRId64 " or scatter=%" PRId64 " is beyond the 32 bits of lists", d->gather,
             d->scatter);
    if (d->scatter && d->scatter < d->m)
        FAIL(CKL_INVALID, "gemm: scatter=%" PRId64 " is smaller than m=%" PRId64, d->scatter, d->m);
    if (d->pointers && (listed || d->groups))
        FAIL(CKL_INVALID, "gemm: pointers=1 goes without groups, gather and scatter");
    return CKL_OK;
}

/* What a gradient of a bias sums. */
static ckl_status check_bias_gradient(const ckl_gemm_desc *d)
{
    const ckl_gemm_sums sums = d->bias_gradient;
    const bool of_d = sums == CKL_GEMM_SUMS_OF_COLUMNS || sums == CKL_GEMM_SUMS_OF_ROWS;
    if (sums == CKL_GEMM_SUMS_NONE)
        return CKL_OK;
    if (d->preactivation || d->pointers || d->gather || d->scatter || gemm_groups_of_k(d))
        FAIL(CKL_INVALID, "gemm: bias_gradient goes without preactivation, pointers, gather, scatter and groups_of=k");
    if (ckl_dtype_bytes(d->d) == 1 || d->d == CKL_I32)
        FAIL(CKL_INVALID, "gemm: bias_gradient is of floats of 16 or 32 bits, not of d=%s", ckl_dtype_name(d->d));
    if (!of_d && (d->batch > 1 || d->groups))
        FAIL(CKL_INVALID,
             "gemm: bias_gradient=a and b are of one product, without batch=%" PRId64 " and groups=%" PRId64, d->batch,
             d->groups);
    if (sums == CKL_GEMM_SUMS_OF_B && d->gated)
        FAIL(CKL_INVALID, "gemm: bias_gradient=b is of one matrix B, without gated=1");
    if (!of_d && ckl_dtype_bytes(gemm_matrix_of(d, sums == CKL_GEMM_SUMS_OF_A ? 'a' : 'b').type) == 1)
        FAIL(CKL_INVALID, "gemm: bias_gradient=a and b are of operands of 16 or 32 bits");
    if (d->groups > UINT16_MAX || product_i64(d->m, d->batch) > INT32_MAX || d->k > INT32_MAX)
        FAIL(CKL_INVALID, "gemm: bias_gradient is of up to 2^31-1 rows in all and %d groups", UINT16_MAX);
    return CKL_OK;
}

static ckl_status check_batch(ckl_gemm_desc *d)
{
    d->batch = d->batch ? d->batch : 1;
    TRY(check_groups(d));
    TRY(check_lists(d));
    TRY(check_bias_gradient(d));
    TRY(check_stride(d, 'a', &d->stride_a, NULL));
    TRY(check_stride(d, 'b', &d->stride_b, NULL));
    TRY(check_stride(d, 'd', &d->stride_d, NULL));
    TRY(check_stride(d, 'c', &d->stride_c, no_c(d)));
    TRY(check_stride(d, 'x', &d->stride_x, no_x(d)));
    TRY(check_outputs_apart(d, 'x'));
    return check_outputs_apart(d, 'd');
}

/* Integers or e4m3 as B of 16-bit floats: as they are, or with scales of columns, or of columns and blocks of K. */
static ckl_status check_weights(ckl_gemm_desc *d)
{
    d->block_k = d->block_k ? d->block_k : GEMM_BLOCK;
    if (d->block_k != GEMM_BLOCK &&
        (d->block_k != GEMM_BLOCK_LEAST || !gemm_has_weights(d) || d->scale_b != CKL_GEMM_SCALE_BLOCK))
        FAIL(CKL_INVALID, "gemm: block_k=%" PRId64 " is not %d, or %d of weights with scale_b=block", d->block_k,
             GEMM_BLOCK, GEMM_BLOCK_LEAST);
    if (!gemm_has_weights(d))
        return CKL_OK;
    if (d->layout != CKL_GEMM_NT || d->gated || d->scale_a || d->scale_b == CKL_GEMM_SCALE_SQUARE || d->batch > 1)
        FAIL(CKL_INVALID, "gemm: b=%s of a=%s is K-major, without gated, scale_a, squares and batch",
             ckl_dtype_name(d->b), ckl_dtype_name(d->a));
    if (d->b == CKL_U8 && d->k % 2)
        FAIL(CKL_INVALID, "gemm: k=%" PRId64 " is odd, b=u8 has two numbers a byte", d->k);
    return CKL_OK;
}

/* Both operands have scales of blocks, or neither. */
static ckl_status check_block_scales(ckl_gemm_desc *d)
{
    const bool a = gemm_has_block_scales((choice)d->scale_a), b = gemm_has_block_scales((choice)d->scale_b);
    if ((!a && !b) || gemm_has_weights(d))
        return CKL_OK;
    if (d->scale_a != CKL_GEMM_SCALE_BLOCK || !b)
        FAIL(CKL_INVALID, "gemm: scale_a=block goes with scale_b=block or square");
    if (!gemm_is_f8(d->a))
        FAIL(CKL_INVALID, "gemm: scales of blocks are of 8-bit floats, not of %s", ckl_dtype_name(d->a));
    if (d->gated || d->batch > 1)
        FAIL(CKL_INVALID, "gemm: scales of blocks go without gated=1 and batch=%" PRId64, d->batch);
    d->accumulation = CKL_GEMM_ACCURATE;
    return CKL_OK;
}

/* Types, and what is multiplied how. */
static ckl_status check_types(ckl_gemm_desc *d)
{
    d->b = d->b ? d->b : d->a;
    if ((!gemm_is_f8(d->a) || !gemm_is_f8(d->b)) && !gemm_has_weights(d))
        TRY(check_same("b", d->b, d->a));
    TRY(check_weights(d));
    TRY(check_block_scales(d));
    TRY(check_result(d));
    if (d->math != CKL_GEMM_F32 && d->a != CKL_F32)
        FAIL(CKL_INVALID, "gemm: math=%s is of a=f32, not of %s", d->math == CKL_GEMM_TF32 ? "tf32" : "f32x3",
             ckl_dtype_name(d->a));
    if (d->accumulation && !gemm_is_f8(d->a))
        FAIL(CKL_INVALID, "gemm: accumulation=accurate is of 8-bit floats, not of %s", ckl_dtype_name(d->a));
    return CKL_OK;
}

/* Of rows of D, or of C or X where these are not absent. */
static ckl_status check_pitch(const ckl_gemm_desc *d, const char *name, int64_t *ld, const char *absent)
{
    return absent ? plan_check_unused("gemm", name, *ld, absent) : plan_check_pitch("gemm", name, ld, "n", d->n);
}

static ckl_status check_pitches(ckl_gemm_desc *d)
{
    if (d->gated && d->n > INT64_MAX / 2) // B has twice as many columns
        FAIL(CKL_INVALID, "gemm: n=%" PRId64 " is too large for gated=1", d->n);
    TRY(plan_check_pitch("gemm", "lda", &d->lda, gemm_is_k_major(d, 'a') ? "k" : "m", gemm_matrix_of(d, 'a').cols));
    TRY(plan_check_pitch("gemm", "ldb", &d->ldb, gemm_is_k_major(d, 'b') ? "k" : "n", gemm_matrix_of(d, 'b').cols));
    TRY(check_pitch(d, "ldd", &d->ldd, NULL));
    if (d->c)
        TRY(check_same("c", d->c, d->d));
    TRY(check_pitch(d, "ldc", &d->ldc, no_c(d)));
    return check_pitch(d, "ldx", &d->ldx, no_x(d));
}

static ckl_status check(void *desc)
{
    ckl_gemm_desc *d = desc;
    TRY(check_epilogue(d));
    TRY(check_types(d));
    TRY(check_pitches(d));
    if (d->preactivation && gemm_is_backward((choice)d->activation))
        FAIL(CKL_INVALID, "gemm: preactivation=1 writes X, which a backward activation reads");
    if (d->gated && (d->c || (d->bias && d->bias_along) || gemm_has_x(d)))
        FAIL(CKL_INVALID, "gemm: gated=1 goes without C, bias_along=m and X");
    if (!d->bias && d->bias_along)
        FAIL(CKL_INVALID, "gemm: bias_along=m is not part of a problem without bias");
    return check_batch(d);
}

/* Tensors */

/* A matrix, or one for each product of the batch, or an array of their addresses. */
static plan_tensor matrices(const ckl_gemm_desc *d, const char *name)
{
    const gemm_matrix x = gemm_matrix_of(d, *name);
    plan_tensor one = plan_matrix(name, x.type, x.rows, x.cols, x.ld);
    if (d->pointers)
        return plan_apart(plan_vector(name, CKL_I64, x.rows && x.cols ? x.count : 0));
    if (x.count == 1)
        return one;
    plan_tensor all =
        plan_strided(name, x.type, 3, (int64_t[]){ x.count, x.rows, x.cols }, (int64_t[]){ x.stride, x.ld, 1 });
    all.place = one.place;
    return all;
}

/* What each group has its own of. */
static plan_tensor of_groups(const ckl_gemm_desc *d, plan_tensor one)
{
    if (!gemm_groups_of_m(d))
        return one;
    const int64_t all[] = { d->groups, one.shape[0], one.rank > 1 ? one.shape[1] : 1 };
    const int64_t strides[] = { product_i64(one.shape[0], one.stride[0]), one.stride[0], 1 };
    return plan_apart(plan_strided(one.name, one.dtype, one.rank + 1, all, strides));
}

/* The scales of an operand of `rows` rows or columns in all. */
static plan_tensor scale(const ckl_gemm_desc *d, const char *name, ckl_gemm_scale how, int64_t rows)
{
    const int64_t blocks = ceil_div(d->k, d->block_k);
    switch (how) {
    case CKL_GEMM_SCALE_ROW:
        return plan_vector(name, CKL_F32, rows);
    case CKL_GEMM_SCALE_BLOCK:
        return plan_matrix(name, gemm_scale_type(d->a), blocks, rows, rows);
    case CKL_GEMM_SCALE_SQUARE:
        return plan_matrix(name, CKL_F32, ceil_div(rows, GEMM_BLOCK), blocks, blocks);
    default:
        return plan_vector(name, CKL_F32, 1);
    }
}

static const char *unless(bool there)
{
    return there ? NULL : "a problem without it";
}

/* An array of addresses is only read; but where nothing is written, its matrices are outputs without elements. */
static plan_tensor written(const ckl_gemm_desc *d, plan_tensor t)
{
    return d->pointers && d->m && d->n ? t : plan_output(t);
}

static plan_tensor bias(const ckl_gemm_desc *d)
{
    const ckl_dtype type = gemm_bias_type(d->d);
    return d->bias_along == CKL_GEMM_ALONG_M ? plan_vector("bias", type, d->m)
                                             : of_groups(d, plan_vector("bias", type, gemm_columns_of_B(d)));
}

static plan_tensor bias_gradient(const ckl_gemm_desc *d)
{
    const bool along_n = d->bias_gradient == CKL_GEMM_SUMS_OF_COLUMNS || d->bias_gradient == CKL_GEMM_SUMS_OF_B;
    const int64_t count = d->m == 0 || d->n == 0 ? 0 : along_n ? d->n : d->m; // nothing to do without a D
    plan_tensor one = plan_vector("bias_gradient", gemm_bias_type(d->d), count);
    return d->bias_gradient == CKL_GEMM_SUMS_OF_COLUMNS ? of_groups(d, one) : one;
}

/* D may alias C alone. */
static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_gemm_desc *d = desc;
    const char *no_device = d->device_scalars ? NULL : "a problem without device scalars";
    t[0] = plan_apart(matrices(d, "a"));
    t[1] = plan_apart(matrices(d, "b"));
    t[2] = plan_absent(matrices(d, "c"), no_c(d));
    t[3] = plan_absent(bias(d), d->bias ? NULL : "a problem without bias");
    t[4] = written(d, matrices(d, "d"));
    t[5] = plan_absent(plan_apart(scale(d, "scale_a", d->scale_a, d->m)), unless(d->scale_a));
    t[6] = plan_apart(scale(d, "scale_b", d->scale_b, gemm_columns_of_B(d)));
    t[6] = plan_absent(d->scale_b == CKL_GEMM_SCALE_TENSOR ? t[6] : of_groups(d, t[6]), unless(d->scale_b));
    t[7] = plan_absent(plan_vector("scale_d", CKL_F32, 1), unless(d->scale_d));
    t[8] = plan_absent(plan_vector("device_alpha", CKL_F32, 1), no_device);
    t[9] = plan_absent(plan_vector("device_beta", CKL_F32, 1), plan_first(no_device, no_c(d)));
    t[10] = plan_absent(d->preactivation ? written(d, matrices(d, "x")) : plan_apart(matrices(d, "x")), no_x(d));
    t[11] = plan_absent(plan_vector("offsets", CKL_I32, d->groups + 1), d->groups ? NULL : "a problem without groups");
    t[11].host = d->host_offsets;
    t[12] = plan_absent(plan_vector("rows_a", CKL_I32, d->m), d->gather ? NULL : "a problem without gather");
    t[13] = plan_absent(plan_vector("rows_d", CKL_I32, d->m), d->scatter ? NULL : "a problem without scatter");
    t[14] = plan_absent(plan_vector("row_weights", CKL_F32, d->m), unless(d->weighted));
    t[15] = plan_absent(plan_vector("amax", CKL_F32, 1), unless(d->amax));
    t[15].output = d->amax;
    t[16] = plan_absent(bias_gradient(d), unless(d->bias_gradient));
    t[16].output = d->bias_gradient != CKL_GEMM_SUMS_NONE;
    return 17;
}

/* Checks offsets that lie on the host. */
static ckl_status check_offsets(const ckl_gemm_desc *d, const int32_t *offsets)
{
    const int64_t dealt = gemm_groups_of_k(d) ? d->k : d->m;
    for (int64_t g = 0; g < d->groups; g++)
        if (offsets[g] > offsets[g + 1])
            FAIL(CKL_INVALID, "gemm: offsets[%" PRId64 "]=%d is more than offsets[%" PRId64 "]=%d", g, offsets[g],
                 g + 1, offsets[g + 1]);
    if (offsets[0] != 0 || offsets[d->groups] != dealt)
        FAIL(CKL_INVALID, "gemm: offsets from %d to %d do not deal out %c=%" PRId64, offsets[0], offsets[d->groups],
             gemm_groups_of_k(d) ? 'k' : 'm', dealt);
    return CKL_OK;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_gemm_desc *d = desc;
    const ckl_gemm_args *x = args;
    if (!d->c && x->beta && *x->beta != 0)
        FAIL(CKL_INVALID, "gemm: beta=%g is not part of a problem without C", (double)*x->beta);
    if (d->device_scalars && (x->alpha || x->beta))
        FAIL(CKL_INVALID, "gemm: alpha and beta of the host are not part of a problem with device scalars");
    if (d->d == CKL_I32 && x->alpha && *x->alpha != 1)
        FAIL(CKL_INVALID, "gemm: alpha=%g is not part of a problem with d=i32", (double)*x->alpha);
    if (d->host_offsets && x->offsets)
        TRY(check_offsets(d, x->offsets));
    return CKL_OK;
}

/* The operator */

static const field desc_fields[] = { GEMM_DESC(FIELD_ROW, ckl_gemm_desc) };
static const desc_member members[] = { DESC_MEMBER(ckl_gemm_desc, ckl_dtype, c), { 0 } };
static const implementation *const implementations[] = { &gemm_weights_implementation,
                                                         &gemm_outer_implementation,
                                                         &gemm_splitk_implementation,
                                                         &gemm_unaligned_implementation,
                                                         &gemm_gemv_implementation,
                                                         &gemm_sm90_implementation,
                                                         &gemm_pitched_implementation,
                                                         &gemm_f32x3_implementation,
                                                         &gemm_specialised_implementation,
                                                         &gemm_tma_implementation,
                                                         &gemm_wgmma_implementation,
                                                         &gemm_fma_implementation,
                                                         &gemm_tma_mma_implementation,
                                                         &gemm_tiled_implementation,
                                                         &gemm_mma_implementation,
                                                         &gemm_blocked_implementation,
                                                         &gemm_naive_implementation,
                                                         NULL };

OPERATOR(gemm, gemm, "D = activation(alpha*A*B + beta*C + bias)", .check_args = check_args, .members = members,
         .numbers = "alpha beta", .before = &gemm_offsets_step, .after = &gemm_bias_gradient_step,
         .workspace = offsetof(ckl_gemm_args, workspace));
