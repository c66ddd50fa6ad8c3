/* gemm_test.c - the definition of gemm in double, its cases and rejects. */
#include "operators/gemm/gemm_lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "operators/gemm/gemm_config.h"

enum {
    A,
    B,
    C,
    BIAS,
    D,
    SCALE_A,
    SCALE_B,
    SCALE_D,
    DEVICE_ALPHA,
    DEVICE_BETA,
    X,
    OFFSETS,
    ROWS_A,
    ROWS_D,
    ROW_WEIGHTS,
    AMAX,
    ALPHA,
    BETA,
    WORKSPACE,
    MATRIX_A,
    MATRIX_B,
    MATRIX_C,
    MATRIX_D,
    MATRIX_X,
    OPERANDS
};

/* What arrays of pointers point to: operands behind those of the call. */
static const struct {
    int array, matrix;
    const char *name;
} pointed[] = {
    { A, MATRIX_A, "a" }, { B, MATRIX_B, "b" }, { C, MATRIX_C, "c" }, { D, MATRIX_D, "d" }, { X, MATRIX_X, "x" }
};

static gemm_matrix pointed_matrix(const ckl_gemm_desc *d, int i)
{
    gemm_matrix x = gemm_matrix_of(d, *pointed[i].name);
    x.stride = x.rows * x.ld;
    return x;
}

static void add_pointed(const ckl_gemm_desc *d, operand *all)
{
    for (int i = 0; i < COUNT_OF(pointed); i++) {
        operand *array = &all[pointed[i].array];
        const gemm_matrix x = pointed_matrix(d, i);
        const bool written = pointed[i].array == D || (pointed[i].array == X && d->preactivation);
        all[pointed[i].matrix] = operand_tensor(
            pointed[i].name, written ? OPERAND_OUT : OPERAND_IN, array->dtype ? x.type : CKL_DTYPE_DEFAULT, 3,
            (int64_t[]){ x.count, x.rows, x.cols }, (int64_t[]){ x.stride, x.ld, 1 });
        all[pointed[i].matrix].hard_max = array->hard_max;
        array->table_of = pointed[i].matrix + 1;
        array->table_step = x.stride * (int64_t)ckl_dtype_bytes(x.type);
    }
}

enum { OUTPUT_X = 1, OUTPUT_AMAX = 1, UNSCALED_D }; // behind D, never both; what amax is of

/* Sums of products stay in f32, before alpha and beta, and products of two of them. */
static int operands(const void *problem, operand *all)
{
    const gemm_problem *p = problem;
    all[A].hard_max = all[B].hard_max = p->desc.gated ? 0x1p25 : 0x1p50; // G * U as well
    all[C].hard_max = all[BIAS].hard_max = 0x1p120;
    for (int i = SCALE_A; i <= DEVICE_BETA; i++)
        all[i].hard_max = 4;
    const int64_t dealt = gemm_groups_of_k(&p->desc) ? p->desc.k : p->desc.m;
    all[OFFSETS] = operand_range(all[OFFSETS], 0, (double)dealt);
    all[OFFSETS].rising = dealt;
    all[OFFSETS].given = *p->sizes ? p->offsets : NULL;
    all[ROW_WEIGHTS].hard_max = 4;
    all[AMAX] = operand_range(all[AMAX], 0, 4);
    all[AMAX].role = p->desc.amax ? OPERAND_IN_OUT : OPERAND_IN;
    all[ROWS_A] = operand_range(all[ROWS_A], 0, (double)p->desc.gather - 1);
    all[ROWS_D] = operand_range(all[ROWS_D], 0, (double)p->desc.scatter - 1);
    all[ROWS_D].distinct = true;
    if (p->desc.scatter > p->desc.m) { // some rows stay as they are
        all[D].role = OPERAND_IN_OUT;
        all[X].role = p->desc.preactivation ? OPERAND_IN_OUT : OPERAND_IN;
    }
    if (!p->desc.device_scalars) {
        all[ALPHA] = operand_number("alpha", &p->alpha);
        all[BETA] = operand_number("beta", &p->beta);
    }
    if (!p->desc.pointers)
        return WORKSPACE;
    add_pointed(&p->desc, all);
    return OPERANDS;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double normal_cdf(double x)
{
    return erfc(-x * 0.7071067811865476) / 2;
}

enum { FAR = 30 }; // from where on activations are 0 or x, and their derivatives 0 or 1

static double activate(ckl_activation activation, double x)
{
    double near = fmax(-FAR, x);
    switch (activation) {
    case CKL_ACTIVATION_RELU:
        return isnan(x) ? x : fmax(x, 0);
    case CKL_ACTIVATION_GELU:
        return x == -INFINITY ? -0.0 : x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case CKL_ACTIVATION_GELU_ERF:
        return isnan(x) ? x : x < near ? -0.0 : x * normal_cdf(near);
    case CKL_ACTIVATION_SILU:
        return x == -INFINITY ? -0.0 : x * sigmoid(x);
    default:
        return x;
    }
}

static double derivative(ckl_activation activation, double x)
{
    const double root = 0.7978845608028654, cube = 0.044715;
    if (isnan(x))
        return activation == CKL_ACTIVATION_DRELU ? 0 : x;
    double near = fmin(fmax(x, -FAR), FAR), s = sigmoid(near);
    switch (activation) {
    case CKL_ACTIVATION_DRELU:
        return x > 0;
    case CKL_ACTIVATION_DGELU:
        s = sigmoid(2 * root * (near + cube * near * near * near));
        return s + near * 2 * s * (1 - s) * root * (1 + 3 * cube * near * near);
    case CKL_ACTIVATION_DGELU_ERF:
        return normal_cdf(near) + near * exp(-near * near / 2) * 0.3989422804014327;
    default:
        return s * (1 + near * (1 - s));
    }
}

/* How much an error of the sum can grow: slopes of GELU and SiLU are at most 1.13. */
static double slope(choice activation)
{
    return activation == CKL_ACTIVATION_IDENTITY || activation == CKL_ACTIVATION_RELU ? 1 : 1.13;
}

enum { LANES = 8 }; // partial sums side by side, which compilers make vectors of

/* NOTE: the tensor core aligns products by the exponents of their factors, and that of a subnormal is the smallest one. */
static double aligned(double x, double smallest)
{
    return x > 0 && x < smallest ? smallest : x;
}

/* Both arrays are padded with zeros to a multiple of LANES. */
static void products(const double *a, const double *b, int64_t k, double smallest, double *sum, double *magnitude)
{
    double s[LANES] = { 0 }, t[LANES] = { 0 };
    for (int64_t l = 0; l < k; l += LANES) {
        for (int i = 0; i < LANES; i++) {
            s[i] += a[l + i] * b[l + i];
            t[i] += aligned(fabs(a[l + i]), smallest) * aligned(fabs(b[l + i]), smallest);
        }
    }
    *sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    *magnitude = ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}

/* The scale of row i of A, of so many, or of column i of B, for a block of K. */
static double block_scale(const ckl_gemm_desc *d, ckl_gemm_scale how, const void *scales, int64_t first, int64_t i,
                          int64_t extent, int64_t block)
{
    const int64_t blocks = ceil_div(d->k, GEMM_BLOCK);
    if (!gemm_has_block_scales((choice)how))
        return 1;
    return dtype_read(gemm_has_weights(d) ? d->a : CKL_F32, scales,
                      first + (how == CKL_GEMM_SCALE_BLOCK ? block * extent + i : i / GEMM_BLOCK * blocks + block));
}

/* Of a group's. */
static int64_t first_scale_of_B(const ckl_gemm_desc *d, int64_t group)
{
    const int64_t blocks = ceil_div(d->k, GEMM_BLOCK);
    const int64_t lines = d->scale_b == CKL_GEMM_SCALE_SQUARE ? ceil_div(d->n, GEMM_BLOCK) : d->n;
    return group * lines * blocks;
}

/* The sum of products of row at[1] and column at[2], each block of K scaled. */
static void scaled_products(const ckl_gemm_desc *d, void *const *host, const double *a, const double *b,
                            double smallest, const int64_t at[4], double *sum, double *magnitude)
{
    *sum = *magnitude = 0;
    for (int64_t block = 0; block * GEMM_BLOCK < d->k; block++) {
        const int64_t first = block * GEMM_BLOCK;
        double s, t;
        products(a + first, b + first, min_i64(GEMM_BLOCK, d->k - first), smallest, &s, &t);
        double scale = block_scale(d, d->scale_a, host[SCALE_A], 0, at[1], d->m, block) *
                       block_scale(d, d->scale_b, host[SCALE_B], first_scale_of_B(d, at[3]), at[2], d->n, block);
        *sum += s * scale;
        *magnitude += t * fabs(scale);
    }
}

/* The group of row i. */
static int64_t group_of(const ckl_gemm_desc *d, const int32_t *offsets, int64_t i)
{
    int64_t group = 0;
    while (group + 1 < d->groups && offsets[group + 1] <= i)
        group++;
    return group;
}

/* Row i of A, or column i of B, of a product of the batch, or of a group: k of them. */
static void read_factors(const ckl_gemm_desc *d, char matrix, const void *array, int64_t product, int64_t i,
                         double *out)
{
    const gemm_matrix x = gemm_matrix_of(d, matrix);
    const int64_t start = product * x.stride;
    if (x.type == CKL_U8) // two numbers a byte
        for (int64_t l = 0; l < d->k; l++)
            out[l] = (((const uint8_t *)array)[start + i * x.ld + l / 2] >> l % 2 * 4 & 15) - GEMM_NIBBLE_ZERO;
    else if (gemm_k_major((choice)d->layout, matrix))
        dtype_read_run(x.type, array, start + i * x.ld, d->k, out);
    else
        for (int64_t l = 0; l < d->k; l++)
            out[l] = dtype_read(x.type, array, start + l * x.ld + i);
}

/* Of groups of K only what is the group's stays. */
static void keep_group(const ckl_gemm_desc *d, const int32_t *offsets, int64_t group, double *x)
{
    for (int64_t l = 0; l < d->k && gemm_groups_of_k(d); l++)
        if (l < offsets[group] || l >= offsets[group + 1])
            x[l] = 0;
}

/* The row of the product that becomes row `row` of D; -1: none does. */
static int64_t row_of_product(const ckl_gemm_desc *d, const int32_t *rows, int64_t row)
{
    int64_t i = 0;
    if (!d->scatter)
        return row;
    while (i < d->m && rows[i] != row)
        i++;
    return i < d->m ? i : -1;
}

/* A row of D or X that is not the product's stays as it was. */
static void keep_row(const ckl_gemm_desc *d, void *const *host, int64_t row, reference_slice *out)
{
    const bool x = out->output == OUTPUT_X;
    for (int64_t j = 0; j < d->n; j++) {
        out->value[j] = dtype_read(d->d, host[x ? X : D], row * (x ? d->ldx : d->ldd) + j);
        out->magnitude[j] = 0;
    }
}

static double scalar(ckl_gemm_scale how, const void *array, int64_t i)
{
    if (gemm_has_block_scales((choice)how))
        return 1; // they are in the sums
    return how == CKL_GEMM_SCALE_NONE ? 1 : dtype_read(CKL_F32, array, how == CKL_GEMM_SCALE_ROW ? i : 0);
}

/* G and its magnitude of a sum of products, of element (row,j) of a product of the batch; at[3] is the group, at[4] the row of D. */
static void finish(const gemm_problem *p, void *const *host, const int64_t at[5], double *sum, double *magnitude)
{
    const ckl_gemm_desc *d = &p->desc;
    const bool device = d->device_scalars;
    const int64_t in_group = at[3] * d->n + at[2];
    double alpha = device ? dtype_read(CKL_F32, host[DEVICE_ALPHA], 0) : p->alpha;
    double beta = !p->c ? 0 : device ? dtype_read(CKL_F32, host[DEVICE_BETA], 0) : p->beta;
    double scale = alpha * scalar(d->scale_a, host[SCALE_A], at[1]) * scalar(d->scale_b, host[SCALE_B], in_group);
    int64_t in_c = at[0] * d->stride_c + at[4] * d->ldc + at[2];
    double added = beta != 0 ? beta * dtype_read(d->d, host[C], in_c) : 0;
    double bias =
        d->bias ? dtype_read(gemm_bias_type(d->d), host[BIAS], d->bias_along == CKL_GEMM_ALONG_M ? at[1] : in_group)
                : 0;
    *sum = *sum * scale + added + bias;
    *magnitude = *magnitude * fabs(scale) + fabs(added) + fabs(bias);
}

/* Conversions to 8 bits saturate, infinities too. */
static double within_type(ckl_dtype d, double x)
{
    const double most = d == CKL_E4M3 ? 448 : 57344;
    return !gemm_is_f8(d) || isnan(x) ? x : fmin(fmax(x, -most), most);
}

/* D of an element whose G, and U, are known. */
static void activate_element(const gemm_problem *p, void *const *host, const int64_t at[5], const double *sum,
                             const double *magnitude, reference_slice *out)
{
    const ckl_gemm_desc *d = &p->desc;
    const choice activation = (choice)d->activation;
    double scale_d = (d->scale_d ? dtype_read(CKL_F32, host[SCALE_D], 0) : 1) *
                     (d->weighted ? dtype_read(CKL_F32, host[ROW_WEIGHTS], at[1]) : 1);
    double value = activate(d->activation, sum[0]), error = magnitude[0] * slope(activation);
    if (gemm_is_backward(activation)) {
        double factor =
            derivative(d->activation, dtype_read(d->d, host[X], at[0] * d->stride_x + at[4] * d->ldx + at[2]));
        bool lost = isinf(sum[0]) && fabs(factor) < 0x1p-100; // 0 in f32, perhaps
        value = lost ? NAN : sum[0] * factor;
        error = lost ? REFERENCE_OPEN : error;
    }
    if (d->gated) {
        bool lost = fabs(value) < 0x1p-100 && fabs(sum[1]) > 1; // 0 in f32, perhaps, and U may be infinite there
        error = lost ? REFERENCE_OPEN : error * fabs(sum[1]) + fabs(value) * magnitude[1] + error * magnitude[1];
        value = lost ? NAN : value * sum[1];
    }
    out->value[at[2]] = out->output == UNSCALED_D ? value : within_type(d->d, value * scale_d);
    out->magnitude[at[2]] = isinf(error) ? REFERENCE_OPEN : error * fabs(scale_d);
}

static void reference_of(const gemm_problem *p, void *const *host, reference_slice out)
{
    const ckl_gemm_desc *d = &p->desc;
    const bool rests = d->math == CKL_GEMM_F32X3; // which lose bits where they are subnormal
    const double smallest = dtype_tiny(d->a) / dtype_epsilon(d->a) * (rests ? 0x1p16 : 1);
    const int64_t rows = gemm_matrix_of(d, 'd').rows, product = out.row / rows, row_D = out.row % rows;
    const int64_t row = row_of_product(d, host[ROWS_D], row_D);
    if (row < 0) {
        keep_row(d, host, row_D, &out);
        return;
    }
    const int64_t group = gemm_groups_of_m(d) ? group_of(d, host[OFFSETS], row) : 0;
    const int64_t row_A = d->gather ? ((const int32_t *)host[ROWS_A])[row] : row;
    double *a = calloc((size_t)(2 * (d->k + LANES)), sizeof *a), *b = a + d->k + LANES;
    if (!a)
        abort();
    read_factors(d, 'a', host[A], product, row_A, a);
    keep_group(d, host[OFFSETS], product, a);
    for (int64_t j = 0; j < d->n; j++) {
        double sum[2], magnitude[2]; // gated: those of column j + n as well
        for (int half = 0; half < (d->gated ? 2 : 1); half++) {
            read_factors(d, 'b', host[B], gemm_groups_of_m(d) ? group : product, j + half * d->n, b);
            keep_group(d, host[OFFSETS], product, b);
            if (gemm_has_block_scales((choice)d->scale_b))
                scaled_products(d, host, a, b, smallest, (int64_t[]){ product, row, j, group }, sum, magnitude);
            else
                products(a, b, d->k, smallest, &sum[half], &magnitude[half]);
            finish(p, host, (int64_t[]){ product, row, j, group, row_D }, &sum[half], &magnitude[half]);
        }
        out.value[j] = sum[0];
        out.magnitude[j] = magnitude[0] + (rests ? (double)d->k * 0x1p-104 : 0);
        if (out.output != OUTPUT_X)
            activate_element(p, host, (int64_t[]){ product, row, j, group, row_D }, sum, magnitude, &out);
        if (rests && (isinf(sum[0]) || (d->gated && isinf(sum[1])))) { // an infinity meets a rest that is 0
            out.value[j] = NAN;
            out.magnitude[j] = REFERENCE_OPEN;
        }
    }
    free(a);
}

/* The largest |D| before its scale, and what was there. */
static void reference_amax(const gemm_problem *p, void *const *host, reference_slice out)
{
    gemm_problem plain = *p;
    ckl_gemm_desc *d = &plain.desc;
    double *values = calloc((size_t)(2 * d->n), sizeof *values);
    if (!values)
        abort();
    d->scale_d = d->weighted = d->amax = false;
    out.value[0] = dtype_read(CKL_F32, host[AMAX], 0);
    out.magnitude[0] = 0;
    for (int64_t row = 0; row < gemm_products(d) * gemm_matrix_of(d, 'd').rows; row++) {
        if (row_of_product(d, host[ROWS_D], row % gemm_matrix_of(d, 'd').rows) < 0)
            continue;
        reference_of(
            &plain, host,
            (reference_slice){ .value = values, .magnitude = values + d->n, .output = UNSCALED_D, .row = row });
        for (int64_t j = 0; j < d->n; j++) {
            const bool nan = isnan(values[j]) || isnan(out.value[0]);
            out.value[0] = nan ? NAN : fmax(out.value[0], fabs(values[j]));
            out.magnitude[0] = fmax(out.magnitude[0], values[d->n + j]);
        }
    }
    free(values);
}

static void reference_any(const gemm_problem *p, void *const *host, reference_slice out)
{
    (p->desc.amax && out.output == OUTPUT_AMAX ? reference_amax : reference_of)(p, host, out);
}

/* Matrices that pointers point to are as good as those of a batch. */
static void reference_pointed(const gemm_problem *p, void *const *host, reference_slice out)
{
    gemm_problem batch = *p;
    void *matrices[OPERANDS];
    int64_t *const strides[] = { &batch.desc.stride_a, &batch.desc.stride_b, &batch.desc.stride_c, &batch.desc.stride_d,
                                 &batch.desc.stride_x };
    memcpy(matrices, host, sizeof matrices);
    for (int i = 0; i < COUNT_OF(pointed); i++) {
        matrices[pointed[i].array] = host[pointed[i].matrix];
        *strides[i] = pointed_matrix(&batch.desc, i).stride;
    }
    if (p->desc.amax)
        out.output = !out.output; // D comes behind it
    reference_any(&batch, matrices, out);
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const gemm_problem *p = problem;
    (p->desc.pointers ? reference_pointed : reference_any)(p, host, out);
}

static double terms(const void *problem)
{
    return (double)((const ckl_gemm_desc *)problem)->k + 6;
}

/*
 * ex2.approx and rcp.approx of activations: 2^-22 each, and the rounding of an exponent of up to 2^7. Of 8-bit floats 32 products,
 * the sum so far and the new sum are each cut to 13 bits below the largest, in every step of 32, accurate ones over 128 of K alone. Factors of tf32 lose up to
 * 2^-10 each: our kernels cut them, others round them. In three products 2^-22 is left out, and 2^-22 of each rest is lost.
 */
static double approximation(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    bool exact = d->activation == CKL_ACTIVATION_IDENTITY || d->activation == CKL_ACTIVATION_RELU ||
                 d->activation == CKL_ACTIVATION_DRELU;
    double gelu = exact ? 0 : 0x1p-16;
    double steps = ceil((double)(d->accumulation ? min_i64(d->k, 128) : d->k) / 32);
    double cuts = gemm_is_f8(d->a) ? 34 * steps * 0x1p-13 : 0;
    double rests = d->math == CKL_GEMM_TF32 ? 0x1p-9 : d->math == CKL_GEMM_F32X3 ? 0x1p-20 : 0;
    return gelu + cuts + rests;
}

static double flops(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return (d->gated ? 4 : 2) * (double)d->batch * (double)d->m * (double)d->n * (double)d->k;
}

/*
 * Of tf32 half as many products a cycle as of 16 bits, and within the same power a little more; multiply-adds outside of the
 * tensor cores are 1/15 of them, and no power limit holds them back (bench/notes/gemm.md).
 */
static double matrix_rate(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return d->a != CKL_F32 ? 1 : d->math == CKL_GEMM_TF32 ? 0.65 : d->math == CKL_GEMM_F32X3 ? 0.22 : 0.1;
}

static const char *const cases[] = {
    "m=128 n=256 k=64                                          # one tile of the default config",
    "m=128 n=256 k=64 a=bf16",
    "m=1 n=8 k=8                                               # smaller than any tile",
    "m=256 n=256 k=512 a=bf16 d=f32",
    "m=333 n=200 k=520 a=bf16 d=f32 activation=relu bias=1 alpha=0.5 beta=1",
    "m=257 n=136 k=72 d=f16 bias=1 activation=gelu             # one row and eight columns past the tile",
    "m=130 n=264 k=200 a=bf16 beta=0.5 lda=208 ldb=256 ldc=272 ldd=280   # padded rows",
    "m=192 n=320 k=128 d=f32 beta=-1                           # f32 C",
    "m=100 n=104 k=96 c=1 beta=0 fill=hard                     # C holds NaN and must not be read",
    "m=512 n=512 k=64 activation=relu                          # several tiles a CTA on a small grid",
    "m=640 n=264 k=256 bias=1",
    "m=127 n=129 k=65                                          # odd everything",
    "m=1 n=1 k=1",
    "m=65 n=33 k=0 beta=1                                      # no products",
    "m=0 n=128 k=64                                            # nothing to do",
    "m=64 n=0 k=64",
    "m=256 n=512 k=192 impl=sm90 config='tile_m=256 tile_n=128 cluster_m=1 cluster_n=2 stages=4 consumers=2 pingpong=0 "
    "ctas=1'",
    "m=256 n=512 k=192 impl=sm90 config='tile_m=128 tile_n=128 pingpong=1 stages=4 consumers=2 cluster_m=1 cluster_n=1 "
    "ctas=1'",
    "m=384 n=320 k=448 impl=sm90 config='tile_m=64 tile_n=160 consumers=1 cluster_m=1 stages=5 pingpong=0 cluster_n=1 "
    "ctas=1'",
    "m=300 n=600 k=320 impl=sm90 config='tile_m=128 tile_n=128 cluster_m=2 cluster_n=2 stages=3 group=4 consumers=2 "
    "pingpong=0 ctas=1' bias=1",
    "m=448 n=224 k=640 impl=sm90 config='tile_m=192 tile_n=160 consumers=3 cluster_m=1 stages=3 pingpong=0 cluster_n=1 "
    "ctas=1'",
    "m=1088 n=1024 k=320 impl=sm90 config='tile_m=64 tile_n=64 pingpong=1 stages=4 cluster_m=1 consumers=2 cluster_n=1 "
    "ctas=1' bias=1 # two tiles a "
    "consumer",
    "m=2112 n=1024 k=72 impl=sm90 config='tile_m=64 tile_n=64 pingpong=1 stages=3 cluster_m=2 consumers=2 cluster_n=1 "
    "ctas=1'         # short K",
    "m=64 n=33 k=64 ldd=40                                     # odd rows in 16-byte pitches",
    "m=64 n=35 k=70 lda=72 ldb=72 ldd=44 d=f32 bias=1",
    "m=64 n=40 k=1001 lda=1008 ldb=1008                        # vectors in the pitch, none in the length",
    "m=5 n=1001 k=64 c=1 beta=1 ldc=1008 ldd=1008",
    "m=2 n=2 k=40 lda=72 ldb=56                                # two rows of padded pitch through TMA",
    "m=2 n=2 k=40 lda=72 ldb=56 ldd=8 impl=sm90",
    "m=128 n=256 k=64 a=f32 math=tf32                          # one tile",
    "m=256 n=200 k=100 a=f32 math=tf32 bias=1 activation=gelu",
    "m=130 n=96 k=72 a=f32 math=tf32 beta=0.5 alpha=-2 fill=hard",
    "m=16 n=512 k=1024 a=f32 math=tf32                         # few rows",
    "m=65 n=33 k=17 a=f32                                      # true f32: no tensor cores",
    "m=130 n=70 k=66 a=f32 bias=1 activation=relu              # 8 bytes at a time",
    "m=70 n=131 k=132 a=f32 c=1 beta=1 ldc=133 alpha=-1 fill=hard",
    "m=1 n=72 k=256 a=f32                                      # vectors of few rows",
    "m=72 n=1 k=100 a=f32 beta=1                               # and of few columns",
    "m=3 n=70 k=1028 a=f32 bias=1 activation=gelu lda=1032",
    "m=71 n=2 k=516 a=f32 ldd=5 alpha=0.5 impl=gemv config='rows=4 few=3 warps=4 many_a=1'",
    "batch=3 m=20 n=33 k=21 a=f32 impl=fma",
    "m=140 n=150 k=41 a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=16 block_n=8 ctas=2' # tiles of four",
    "m=140 n=150 k=41 a=f32 impl=turned config='ab=f32 b=f32 d=f32 block_m=8 block_n=16 vec=1'",
    "batch=2 m=100 n=150 k=41 a=f32 layout=nn impl=turned config='ab=f32 b=f32 d=f32 layout=nn vec=2 block_m=8 "
    "block_n=16'",
    "m=70 n=96 k=40 a=f32 layout=tt impl=turned config='ab=f32 b=f32 d=f32 layout=tt vec=2 whole=1 tile_m=64 tile_n=64 "
    "block_m=8 block_n=8'",
    "m=70 n=64 k=40 gated=1 a=f32 impl=turned config='ab=f32 b=f32 d=f32 gated=1 vec=4 block_m=8 block_n=16 whole=1'",
    "m=140 n=148 k=19 layout=tn a=f32 impl=fma                 # four rows a copy",
    "m=300 n=146 k=50 layout=tn a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=8 block_n=16 ctas=2 depth=16 "
    "stages=3' # two",
    "m=140 n=146 k=19 layout=tt a=f32 impl=fma fill=hard",
    "batch=3 m=20 n=33 k=21 layout=nn a=f32 impl=fma",
    "m=6 n=5 k=0 a=f32 beta=1 layout=tt impl=fma",
    "m=70 n=33 k=40 gated=1 activation=gelu a=f32 scale_d=1 scale_a=row impl=fma",
    "m=70 n=36 k=41 gated=1 activation=gelu a=f32 layout=tn impl=fma",
    "m=140 n=260 k=44 a=f32 impl=fma config='tile_m=128 tile_n=128 block_m=16 block_n=8 ctas=2' # vectors of K",
    "m=70 n=100 k=44 layout=nn a=f32 impl=fma",
    "m=70 n=35 k=41 gated=1 a=f32 layout=nn impl=fma",
    "m=70 n=36 k=22 activation=dgelu_erf a=f32 beta=1 bias=1 scale_a=row scale_b=row impl=fma",
    "m=70 n=36 k=22 preactivation=1 activation=gelu bias=1 bias_along=m a=f32 beta=1 impl=fma",
    "m=220 n=210 k=260 a=f32 math=f32x3 impl=f32x3             # three products of tf32, by wgmma",
    "m=130 n=200 k=420 layout=tn a=f32 math=f32x3 impl=f32x3 config='tile_m=128 tile_n=128 consumers=2 cluster_m=1 "
    "cluster_n=1 swap=0 stages=5'",
    "batch=2 m=130 n=201 k=211 layout=nn a=f32 math=f32x3 impl=f32x3",
    "m=300 n=200 k=180 layout=tt a=f32 math=f32x3 beta=0.5 alpha=-2 fill=hard impl=f32x3",
    "m=65 n=40 k=50 a=f32 math=tf32 impl=tiled                 # tensor cores of sm_80",
    "m=65 n=40 k=50 a=f32 math=f32x3                           # three of them",
    "m=40 n=65 k=80 a=i8 d=f32 impl=tiled",
    "m=40 n=65 k=37 a=i8 d=i32 impl=tiled                      # a byte at a time",
    "m=9 n=11 k=37 a=e4m3                                      # rows of odd bytes are copied",
    "m=9 n=11 k=5 a=e5m2 d=f32 fill=hard",
    "m=9 n=11 k=37 a=i8 d=f16 alpha=0.001 impl=naive",
    "m=256 n=256 k=256 a=e4m3                                  # one step of K in a stage is 128 elements",
    "m=200 n=144 k=208 a=e4m3 d=f16 bias=1 activation=relu",
    "m=96 n=272 k=160 a=e5m2 d=f32 beta=1 alpha=0.25",
    "m=64 n=48 k=48 a=e4m3 fill=hard",
    "m=130 n=144 k=400 a=e4m3 accumulation=accurate bias=1",
    "m=70 n=48 k=300 a=e5m2 d=f32 accumulation=accurate lda=304 ldb=304 impl=sm90 config='tile_m=64 tile_n=48 stages=3 "
    "consumers=1 split=2 pingpong=0 cluster_m=1 cluster_n=1'",
    "m=256 n=256 k=384 a=i8 d=f32",
    "m=129 n=80 k=144 a=i8 d=f16 alpha=0.001 bias=1",
    "m=33 n=80 k=144 a=i8 impl=sm90",
    "m=70 n=104 k=272 a=i8 d=i32                               # sums as they are",
    "m=130 n=144 k=520 bias=1 activation=gelu beta=0.5 impl=sm90 config='tile_m=64 tile_n=64 stages=4 split=8 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # more CTAs of a split than slices; a K tile each or two",
    "m=128 n=128 k=256 d=f32 a=bf16 impl=sm90 config='tile_m=128 tile_n=128 stages=3 split=4 consumers=2 pingpong=0 "
    "cluster_m=1 cluster_n=1 ctas=1' # a slice of 32 columns each",
    "m=192 n=200 k=136 d=f32 c=1 beta=1 bias=1 activation=relu impl=sm90 config='tile_m=64 tile_n=96 stages=4 split=2 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # slices of 48; two tiles a cluster",
    "m=320 n=384 k=200 ldd=392 impl=sm90 config='tile_m=64 tile_n=64 stages=3 split=3 consumers=2 pingpong=1 "
    "cluster_m=1 cluster_n=1 ctas=1' # ping-pong and a split; one finisher",
    "m=520 n=576 k=136 bias=1 impl=sm90 config='tile_m=64 tile_n=32 stages=12 split=2 consumers=1 pingpong=0 "
    "cluster_m=1 "
    "cluster_n=1 ctas=1' # several tiles a cluster: parts are sent when those before have been read",
    "m=130 n=67 k=192 ldd=72 impl=sm90 config='tile_m=64 tile_n=32 stages=3 split=2 ragged=1 consumers=1 pingpong=0 "
    "cluster_m=1 cluster_n=1 ctas=1' # a split tile with a ragged end",
    "m=300 n=200 k=520 bias=1 impl=sm90 config='tile_m=64 tile_n=64 stages=4 split=2 cluster_m=2 cluster_n=1 "
    "consumers=1 "
    "pingpong=0 ctas=1' # parts of pairs that share B",
    "m=270 n=260 k=400 impl=sm90 config='tile_m=128 tile_n=64 stages=3 split=2 cluster_m=2 cluster_n=2 consumers=2 "
    "pingpong=0 ctas=1'",
    "m=16 n=200 k=520 impl=sm90 config='tile_m=64 tile_n=16 stages=4 swap=1 consumers=1 pingpong=0 cluster_m=1 "
    "cluster_n=1 ctas=1' # few rows: tiles of D^T",
    "m=5 n=136 k=72 a=bf16 beta=-1 bias=1 activation=gelu impl=sm90 config='tile_m=64 tile_n=16 stages=3 swap=1 "
    "split=2 consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=20 n=152 k=148 lda=152 ldb=152 impl=sm90 config='tile_m=64 tile_n=32 stages=4 swap=1 split=2 prefetch=8 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=33 n=200 k=520 d=f32 beta=0.5 bias=1 impl=sm90 config='tile_m=64 tile_n=48 stages=4 swap=1 split=3 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=72 n=264 k=200 c=1 beta=1 ldc=272 bias=1 impl=sm90 config='tile_m=128 tile_n=80 stages=3 swap=1 buffers=1 "
    "consumers=2 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # boxes of 16 rows",
    "m=100 n=1100 k=130 lda=136 ldb=136 a=bf16 impl=sm90 config='tile_m=64 tile_n=112 stages=3 swap=1 consumers=2 "
    "pingpong=1 cluster_m=1 cluster_n=1 ctas=1' # ping-pong; several tiles a CTA",
    "m=20 n=99 k=64 ldd=104 bias=1 d=f32 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 split=1 ragged=1 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=20 n=99 k=64 bias=1 c=1 beta=2 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 ragged=2 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # rows of C and D anywhere",
    "m=70 n=99 k=64 bias=1 c=1 beta=2 ldd=101 impl=sm90 config='tile_m=64 tile_n=64 stages=3 ragged=2 split=1 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=70 n=99 k=128 d=f32 ldd=107 impl=sm90 config='tile_m=64 tile_n=64 stages=3 ragged=2 split=2 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=272 n=200 k=136 impl=sm90 config='tile_m=64 tile_n=144 stages=3 swap=1 consumers=1 pingpong=0 cluster_m=1 "
    "cluster_n=1 ctas=1' # two tiles of D^T along the rows of D",
    "m=256 n=256 k=1024 impl=splitk                            # slices of K, and a kernel that adds them",
    "m=130 n=136 k=520 a=bf16 bias=1 activation=gelu beta=0.5 impl=splitk config='slices=5 tile_m=64 tile_n=128 "
    "stages=4 consumers=1 cluster_m=1' # the last slice is half of one",
    "m=70 n=99 k=144 d=f32 c=1 beta=0 fill=hard bias=1 impl=splitk config='slices=3' # rows of C and D anywhere",
    "m=70 n=99 k=144 ldd=104 c=1 beta=1 ldc=104 impl=splitk config='slices=2 stages=3' # ends of rows by elements",
    "m=192 n=264 k=392 impl=splitk config='slices=4 tile_m=64 tile_n=64 stages=3 consumers=2 pingpong=1 cluster_m=1'",
    "m=20 n=264 k=392 impl=splitk config='slices=3 tile_m=64 tile_n=32 stages=4 consumers=1 swap=1 cluster_m=1'",
    "m=65 n=33 k=65 impl=tiled                                 # rows that start anywhere: no cp.async",
    "m=130 n=140 k=66 a=bf16 bias=1 impl=tiled                 # 4 bytes at a time",
    "m=40 n=50 k=100 impl=tiled config='tile_m=64 tile_n=64 stages=2'    # 8 bytes at a time",
    "m=33 n=200 k=45 c=1 beta=1 ldc=203 ldd=201 impl=tiled config='tile_m=64 tile_n=64 stages=4'",
    "m=5 n=7 k=0 bias=1 activation=gelu impl=tiled",
    "m=221 n=223 k=225 bias=1                                  # copies of A and B in whole 16 bytes, then sm90",
    "m=200 n=220 k=300 lda=304 ldb=305 d=f32 a=bf16 c=1 beta=1 # of B alone",
    "m=16 n=1029 k=701 ldb=704 a=bf16 impl=pitched           # of A alone; D in odd rows",
    "m=40 n=48 k=40 activation=silu bias=1 bias_along=m",
    "m=40 n=48 k=40 activation=gelu_erf scale_a=row scale_b=row impl=naive",
    "m=40 n=48 k=40 activation=gelu_erf scale_a=row scale_b=row d=f32 impl=tiled",
    "m=70 n=136 k=72 activation=silu bias=1 bias_along=m scale_a=row scale_b=row impl=sm90 config='tile_m=64 tile_n=64 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1'",
    "m=70 n=136 k=72 activation=silu bias=1 bias_along=m scale_a=row scale_b=row impl=sm90 config='tile_m=64 tile_n=80 "
    "consumers=1 swap=1 pingpong=0 cluster_m=1 cluster_n=1'",
    "m=70 n=136 k=72 activation=gelu preactivation=1 bias=1 beta=1 impl=sm90 config='tile_m=64 tile_n=64 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1'",
    "m=70 n=136 k=72 activation=gelu preactivation=1 bias=1 beta=1 d=f32 ldx=140 impl=sm90 config='tile_m=128 "
    "tile_n=128 consumers=2 pingpong=1 buffers=1 stages=4 cluster_m=1 cluster_n=1'",
    "m=200 n=136 k=72 activation=dgelu beta=0.5 impl=sm90 config='tile_m=64 tile_n=64 consumers=1 pingpong=0 "
    "cluster_m=1 cluster_n=1'",
    "m=70 n=137 k=72 activation=drelu impl=sm90 ldx=139 fill=hard",
    "m=70 n=137 k=72 activation=dsilu impl=tiled",
    "m=70 n=137 k=72 activation=dgelu_erf a=f32 beta=1",
    "m=70 n=137 k=72 activation=dgelu_erf a=f32 fill=hard",
    "m=70 n=136 k=144 a=e4m3 scale_a=tensor scale_b=tensor scale_d=1 device_scalars=1 c=1",
    "batch=2 m=70 n=136 k=144 a=i8 d=f16 scale_a=row scale_b=row activation=relu preactivation=1",
    "m=70 n=136 k=72 activation=relu preactivation=1 impl=tiled device_scalars=1",
    "m=70 n=137 k=72 activation=gelu preactivation=1 impl=sm90",
    "m=70 n=137 k=72 activation=gelu preactivation=1 impl=sm90 ldd=144 ldx=152",
    "m=70 n=137 k=72 activation=dgelu c=1 beta=1 impl=sm90",
    "m=20 n=136 k=72 activation=dsilu c=1 beta=1 bias=1 bias_along=m impl=sm90 config='tile_m=64 tile_n=32 stages=3 "
    "swap=1 consumers=1 pingpong=0 cluster_m=1 cluster_n=1'",
    "m=140 n=133 k=72 gated=1 activation=gelu_erf impl=sm90 batch=2",
    "m=6 n=5 k=0 a=e4m3 bias=1 activation=silu layout=tn",
    "m=6 n=5 k=0 a=f32 beta=1 layout=tt",
    "m=40 n=48 k=40 gated=1 activation=silu impl=naive",
    "m=70 n=72 k=41 gated=1 activation=silu layout=nn impl=tiled",
    "m=70 n=33 k=40 gated=1 activation=gelu a=f32 math=tf32 scale_d=1 scale_a=row impl=tiled",
    "m=140 n=136 k=136 gated=1 activation=silu scale_a=row impl=sm90 config='tile_m=128 tile_n=128 consumers=2 "
    "pingpong=1 "
    "stages=3 cluster_m=1 cluster_n=1'",
    "batch=2 m=72 n=80 k=80 gated=1 activation=gelu a=e4m3 scale_a=tensor scale_b=tensor",
    "m=70 n=72 k=40 layout=nn impl=naive",
    "m=40 n=41 k=19 layout=tn a=f32                            # turned on the way to shared memory",
    "m=40 n=41 k=19 layout=tt impl=tiled",
    "m=40 n=41 k=21 layout=nn a=i8 d=i32 impl=tiled",
    "m=40 n=41 k=21 layout=tt a=f32 math=tf32 impl=tiled",
    "m=128 n=192 k=72 layout=nn impl=sm90 config='tile_m=128 tile_n=128 stages=3 consumers=2 pingpong=1 cluster_m=1 "
    "cluster_n=1' # N-major",
    "m=200 n=136 k=70 layout=tn a=bf16 beta=1 bias=1 impl=sm90 config='tile_m=128 tile_n=128 stages=3 consumers=2 "
    "pingpong=0 cluster_m=2 cluster_n=1' # both, and one shared in spans",
    "m=128 n=72 k=136 layout=tt impl=sm90 config='tile_m=64 tile_n=64 stages=3 consumers=1 split=2 cluster_m=1 "
    "cluster_n=1 pingpong=0' # M-major",
    "m=64 n=100 k=70 lda=72 ldb=104 layout=nn impl=sm90 config='tile_m=64 tile_n=64 stages=3 consumers=1 swap=1 "
    "cluster_m=1 "
    "cluster_n=1 pingpong=0'",
    "batch=2 m=72 n=64 k=40 layout=tn lda=80",
    "m=100 n=71 k=67 layout=nn impl=pitched a=e5m2 d=f32       # one turned, one copied",
    "batch=2 m=80 n=70 k=64 layout=tn a=e4m3                   # both turned",
    "m=220 n=230 k=210 layout=tt a=f32 math=tf32 impl=pitched  # words",
    "m=220 n=230 k=231 a=i8 d=i32 impl=pitched                 # single bytes",
    "m=221 n=223 k=225 layout=tn impl=pitched                  # odd rows along M and N",
    "batch=3 m=70 n=72 k=136",
    "batch=2 m=150 n=140 k=80 stride_a=12808 stride_b=12000 c=1 beta=1 bias=1 activation=relu # gaps between matrices",
    "batch=4 m=64 n=32 k=64 lda=256 stride_a=64 ldb=256 stride_b=64 ldd=128 stride_d=32 # side by side, as heads are",
    "batch=5 m=33 n=35 k=37 c=1 beta=0.5",
    "batch=3 m=20 n=99 k=64 bias=1 c=1 beta=2 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 ragged=2 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # rows of C and D anywhere",
    "batch=3 m=100 n=90 k=200 ldd=96 impl=sm90 config='tile_m=64 tile_n=64 stages=3 split=2 ragged=1 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "batch=2 m=140 n=130 k=300 lda=301 impl=pitched            # matrices that start anywhere",
    "batch=3 m=9 n=11 k=13 impl=naive",
    "m=300 n=136 k=72 groups=5                                 # rows dealt out to five B",
    "m=300 n=136 k=72 sizes=0,1,0,64,200,35,0 a=bf16 beta=1 bias=1 activation=gelu # groups of none and of one",
    "m=200 n=72 k=40 sizes=200,0,0",
    "m=80 n=136 k=72 groups=130 impl=sm90                      # most of one row or none",
    "m=37 n=33 k=21 sizes=3,0,20,1,13 bias=1 scale_a=row scale_b=row layout=tn impl=naive",
    "m=36 n=33 k=21 sizes=3,0,20,1,12 gated=1 activation=silu a=e4m3 scale_a=row impl=naive",
    "m=37 n=33 k=21 sizes=3,0,20,1,13 bias=1 bias_along=m preactivation=1 activation=relu impl=tiled",
    "m=180 n=50 k=70 sizes=3,0,120,1,56 bias=1 scale_b=row a=f32 beta=1 layout=tt impl=fma",
    "m=180 n=50 k=70 sizes=65,115 gated=1 activation=silu impl=tiled config='tile_m=64 tile_n=64'",
    "m=460 n=136 k=200 sizes=70,0,127,1,129,133 c=1 beta=1 bias=1 scale_a=row scale_b=row activation=silu impl=sm90 "
    "config='tile_m=128 tile_n=128 stages=3 consumers=2 pingpong=1 cluster_m=1 cluster_n=1'",
    "m=460 n=136 k=200 sizes=70,0,127,1,129,133 preactivation=1 bias=1 bias_along=m activation=gelu d=f32 impl=sm90 "
    "config='tile_m=128 tile_n=64 stages=3 consumers=2 pingpong=0 cluster_m=2 cluster_n=1'",
    "m=464 n=264 k=200 sizes=70,0,127,1,129,137 activation=dgelu layout=nn impl=sm90 config='tile_m=64 tile_n=128 "
    "stages=4 consumers=1 pingpong=0 cluster_m=1 cluster_n=1' # N-major B",
    "m=460 n=264 k=200 sizes=70,0,127,1,129,133 layout=nn impl=sm90 config='tile_m=256 tile_n=128 stages=3 consumers=2 "
    "pingpong=0 cluster_m=1 cluster_n=2'",
    "m=100 n=200 k=200 sizes=1,0,17,40,3,0,39 beta=1 bias=1 scale_a=row scale_b=row impl=sm90 config='tile_m=64 "
    "tile_n=32 stages=3 consumers=1 swap=1 pingpong=0 cluster_m=1 cluster_n=1'",
    "m=300 n=300 k=136 sizes=1,0,170,40,50,0,39 bias=1 preactivation=1 activation=relu impl=sm90 config='tile_m=256 "
    "tile_n=96 stages=3 consumers=2 swap=1 pingpong=0 cluster_m=1 cluster_n=1 buffers=2' # rows of the last boxes in "
    "none",
    "m=1100 n=1024 k=72 sizes=70,300,0,1,129,600 impl=sm90 config='tile_m=64 tile_n=64 stages=3 consumers=2 pingpong=1 "
    "cluster_m=1 cluster_n=1' # several tiles a consumer",
    "m=1100 n=768 k=72 sizes=70,300,0,1,129,600 beta=1 bias=1 impl=sm90 config='tile_m=128 tile_n=96 stages=3 "
    "consumers=2 "
    "pingpong=0 cluster_m=1 cluster_n=1 buffers=2' # and a CTA, some with an odd number of boxes",
    "m=70 n=104 k=520 sizes=33,0,1,36 bias=1 impl=sm90 config='tile_m=64 tile_n=64 stages=3 consumers=1 split=2 "
    "pingpong=0 cluster_m=1 cluster_n=1'",
    "m=140 n=133 k=72 sizes=33,0,1,106 gated=1 activation=gelu_erf impl=sm90 # ends of rows by elements",
    "m=140 n=133 k=72 sizes=33,0,1,106 ldd=135 beta=1 c=1 impl=sm90 # all by elements",
    "m=160 n=133 k=131 sizes=33,0,1,106,20 a=e4m3 d=f32 fill=hard # copies of A and of all B",
    "m=300 n=136 k=144 a=i8 d=f16 groups=3 scale_a=row scale_b=row",
    "m=40 n=72 k=1024 batch_invariant=1",
    "m=1 n=72 k=256 b=u8 scale_b=block                         # weights of 4 bits",
    "m=5 n=136 k=1056 a=bf16 b=u8 scale_b=block bias=1 activation=silu # the last block of K is a quarter",
    "m=16 n=80 k=1056 a=bf16 b=i8 scale_b=row beta=1 d=f32",
    "m=9 n=200 k=2320 b=i8 scale_b=block fill=hard",
    "m=33 n=72 k=672 b=u8 lda=680 ldb=352 ldd=75 impl=weights config='rows=32 columns=16 warps=4 stages=3'",
    "m=7 n=70 k=672 a=bf16 b=i8 impl=weights config='rows=16 columns=8 warps=8 stages=2'",
    "m=9 n=73 k=1184 b=u8 scale_b=block d=f32 impl=weights config='rows=64 columns=16 warps=4 stages=3' # scales of "
    "odd rows",
    "m=3 n=75 k=3232 a=bf16 b=i8 scale_b=block d=f32 impl=weights config='rows=64 columns=8 warps=8 stages=2 ctas=2'",
    "m=40 n=72 k=672 b=u8 scale_b=block sizes=0,17,3,0,1,19 bias=1 beta=1 # of experts",
    "m=40 n=72 k=288 a=bf16 b=i8 scale_b=row groups=300",
    "m=40 n=72 k=288 a=bf16 b=u8 scale_b=block groups=3 impl=naive",
    "m=7 n=70 k=38 a=bf16 b=u8 scale_b=block lda=39           # rows that start anywhere",
    "m=7 n=70 k=39 b=i8 scale_b=row",
    "m=5 n=136 k=1056 a=bf16 b=e4m3 scale_b=block bias=1       # weights of 8-bit floats",
    "m=16 n=80 k=1056 b=e4m3 scale_b=row beta=1 d=f32",
    "m=9 n=200 k=2320 b=e4m3 fill=hard",
    "m=7 n=70 k=672 a=bf16 b=e4m3 fill=hard impl=weights config='rows=16 columns=8 warps=8 stages=2'",
    "m=40 n=72 k=672 b=e4m3 scale_b=block sizes=0,17,3,0,1,19",
    "m=70 n=72 k=136 groups=3 gather=50                        # rows of A by a list, copied first",
    "m=70 n=72 k=136 gather=33 impl=tiled bias=1",
    "m=40 n=70 k=39 a=bf16 gather=90 groups=5 impl=tiled       # copies by elements",
    "m=140 n=72 k=100 gather=200 ldb=104 sizes=0,70,1,69,0 fill=hard # rows of 200 bytes",
    "m=9 n=11 k=21 gather=5 impl=naive groups=2",
    "m=64 n=64 k=64 a=f32 gather=100",
    "m=100 n=136 k=64 scatter=100 weighted=1                   # a permutation of the rows",
    "m=300 n=136 k=192 groups=4 scatter=300 weighted=1 bias=1 d=f32",
    "m=140 n=133 k=72 sizes=33,0,1,106 scatter=140 ldd=135 beta=1 c=1 ldc=139",
    "m=12 n=136 k=192 sizes=3,0,1,8 scatter=40 weighted=1 activation=dgelu beta=1 a=bf16 # as D^T",
    "m=70 n=72 k=136 gather=50 scatter=70 groups=3 weighted=1 gated=1 activation=silu",
    "m=40 n=72 k=64 scatter=60 weighted=1 preactivation=1 impl=tiled groups=2",
    "m=40 n=72 k=64 a=f32 scatter=40 weighted=1 beta=1",
    "m=9 n=72 k=288 a=bf16 b=u8 scale_b=block groups=3 scatter=9 weighted=1",
    "m=9 n=72 k=288 a=bf16 b=u8 scale_b=block groups=3 gather=20",
    "m=0 n=72 k=64 scatter=7                                   # no row",
    "m=96 n=136 k=300 layout=tn groups=3 groups_of=k           # gradients of weights",
    "m=136 n=200 k=520 a=bf16 d=f32 layout=tn groups_of=k sizes=0,70,1,129,0,320 beta=1 alpha=0.5",
    "m=72 n=64 k=333 layout=tn groups_of=k sizes=70,63,200 fill=hard # NaN of other groups",
    "m=256 n=256 k=700 layout=tn groups_of=k groups=5 impl=sm90 config='tile_m=128 tile_n=128 consumers=2 pingpong=0 "
    "cluster_m=2 cluster_n=1 stages=4 split=1 swap=0'",
    "m=33 n=31 k=200 groups=3 groups_of=k                      # K-major, rows that start anywhere",
    "m=33 n=31 k=100 groups=3 groups_of=k a=f32 layout=tn",
    "m=33 n=31 k=100 groups=3 groups_of=k a=e4m3 d=f32 impl=naive",
    "m=64 n=64 k=0 groups=3 groups_of=k layout=tn beta=1",
    "m=130 n=144 k=272 a=e4m3 d=e4m3 scale_d=1 amax=1 bias=1 activation=gelu # 8 bits out",
    "m=20 n=272 k=272 a=e4m3 b=e5m2 d=e5m2 amax=1 scale_a=tensor scale_b=tensor alpha=64 # D^T, and beyond the largest",
    "m=130 n=131 k=272 a=e5m2 d=e4m3 amax=1 ldd=133 batch=2     # by elements",
    "m=130 n=144 k=400 a=e4m3 d=e4m3 amax=1 scale_a=block scale_b=square sizes=3,0,1,126 scatter=150 weighted=1",
    "m=8 n=144 k=256 a=e4m3 d=e4m3 amax=1 sizes=1,1,1,1,1,1,1,1 # rows of other groups do not count",
    "m=9 n=11 k=37 a=e4m3 d=e5m2 amax=1 bias=1 impl=naive fill=hard",
    "m=256 n=192 k=256 a=e4m3 d=e4m3 bias=1 gated=0",
    "m=70 n=72 k=136 batch=5 pointers=1                        # arrays of pointers",
    "m=130 n=133 k=70 batch=3 pointers=1 lda=72 ldb=136 beta=1 bias=1 activation=gelu a=bf16 layout=nn",
    "m=40 n=72 k=64 batch=4 pointers=1 preactivation=1 activation=silu fill=hard",
    "m=40 n=72 k=65 a=f32 batch=3 pointers=1 beta=0.5",
    "m=40 n=72 k=64 batch=3 pointers=1 activation=dsilu gated=0 d=f32",
    "m=9 n=11 k=21 a=e4m3 batch=3 pointers=1",
    "m=64 n=64 k=64 pointers=1",
    "m=9 n=11 k=21 a=e4m3 d=e5m2 amax=1 batch=3 pointers=1",
    "m=0 n=64 k=64 batch=2 pointers=1",
    "m=300 n=200 k=328 a=bf16 bias=1 activation=gelu impl=tma_mma # stages are filled again",
    "m=130 n=133 k=264 beta=1 c=1 batch=3 impl=tma_mma config='stages=2 ctas=1'",
    "m=40 n=200 k=272 a=i8 scale_b=row impl=tma_mma",
    "m=40 n=200 k=272 a=f32 math=tf32 impl=tma_mma scatter=50 weighted=1",
    "m=130 n=133 k=328 beta=1 c=1 d=f32 impl=blocked           # the ladder",
    "m=130 n=133 k=328 a=bf16 bias=1 activation=gelu impl=mma",
    "m=130 n=133 k=328 beta=1 c=1 d=f32 impl=wgmma",
    "m=130 n=133 k=328 a=bf16 bias=1 impl=tma",
    "m=260 n=264 k=328 bias=1 impl=specialised",
    "m=96 n=272 k=160 a=e5m2 b=e4m3 d=f32 beta=1 alpha=0.25    # mixed types",
    "m=20 n=272 k=272 a=e4m3 b=e5m2 d=f16                      # and of D^T",
    "m=130 n=144 k=400 a=e4m3 scale_a=block scale_b=square bias=1",
    "m=130 n=144 k=400 a=e4m3 b=e5m2 scale_a=block scale_b=block activation=gelu",
    "m=9 n=11 k=300 a=e5m2 b=e4m3 scale_a=block scale_b=square fill=hard # rows of odd bytes are copied",
    "m=300 n=400 k=400 a=e4m3 scale_a=block scale_b=square sizes=33,0,1,266",
    "m=36 n=400 k=400 a=e4m3 b=e5m2 scale_a=block scale_b=square sizes=33,0,1,2",
    "m=36 n=400 k=400 a=e4m3 scale_a=block scale_b=block groups=3",
    "m=256 n=384 k=640 a=e4m3 scale_a=block scale_b=square c=1 beta=1 impl=sm90 config='tile_m=128 tile_n=128 "
    "consumers=2 "
    "pingpong=0 cluster_m=2 cluster_n=1 stages=3'",
    "m=300 n=256 k=640 a=e4m3 scale_a=block scale_b=square impl=sm90 config='tile_m=128 tile_n=64 consumers=1 "
    "pingpong=0 "
    "cluster_m=1 cluster_n=1 stages=3 swap=0' # two blocks of rows a consumer",
    "m=100 n=144 k=1300 a=e4m3 b=e5m2 scale_a=block scale_b=block lda=1312 ldb=1312 impl=sm90 config='tile_m=64 "
    "tile_n=144 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 stages=4' # scales of more columns than threads",
    "m=70 n=200 k=100 a=e4m3 scale_a=block scale_b=square lda=112 ldb=112 # a single K tile",
    "m=100 n=384 k=640 a=e4m3 scale_a=block scale_b=square impl=sm90 config='tile_m=128 tile_n=112 consumers=2 swap=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 stages=3'",
    NULL,
};

static const char *const population[] = {
    "m={tokens} n={hidden} k={hidden} a={f16|bf16}",
    "m={tokens} n={hidden} k={hidden} a={f16|bf16} bias=1 activation={identity|gelu|relu}",
    "m={d:hidden} n={d} k={d} a={f16|bf16}",
    "m={tokens} n={vocabulary} k={hidden} a=bf16 d={bf16|f32}",
    "m={hidden} n={hidden} k={tokens} a={f16|bf16} d=f32 beta={0|1}",
    "m={sequence} n={sequence} k={head_dim} a={f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "m=-1", CKL_INVALID, "gemm: m=-1 is negative" },
    { "n=-2", CKL_INVALID, "gemm: n=-2 is negative" },
    { "k=-3", CKL_INVALID, "gemm: k=-3 is negative" },
    { "k=100 lda=99", CKL_INVALID, "gemm: lda=99 is smaller than k=100" },
    { "k=100 ldb=99", CKL_INVALID, "gemm: ldb=99 is smaller than k=100" },
    { "n=100 ldc=99 beta=1", CKL_INVALID, "gemm: ldc=99 is smaller than n=100" },
    { "n=100 ldd=99", CKL_INVALID, "gemm: ldd=99 is smaller than n=100" },
    { "n=100 ldc=100", CKL_INVALID, "gemm: ldc=100 is not part of a problem without C" },
    { "m=2^40 n=2^40 k=1", CKL_INVALID, "gemm: d of 1099511627776x1099511627776 elements" },
    { "b=u8 k=255", CKL_INVALID, "gemm: k=255 is odd, b=u8 has two numbers a byte" },
    { "b=e4m3 layout=nn", CKL_INVALID, "gemm: b=e4m3 of a=f16 is K-major, without gated, scale_a, squares and batch" },
    { "b=e5m2", CKL_INVALID, "gemm: b=e5m2 is none of f16" },
    { "b=i8 layout=nn", CKL_INVALID, "gemm: b=i8 of a=f16 is K-major, without gated, scale_a, squares and batch" },
    { "b=u8 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: b=u8 is not multiplied by a=f16" },
    { "b=u8 impl=tiled", CKL_UNSUPPORTED, "gemm tiled: b=u8 is not multiplied by a=f16" },
    { "a=f32 b=u8", CKL_INVALID, "gemm: b=u8 is none of f32" },
    { "impl=weights", CKL_UNSUPPORTED, "gemm weights: b=f16 is none of i8, u8, e4m3 beside an A of 16 bits" },
    { "b=u8 k=250 impl=weights", CKL_UNSUPPORTED, "gemm weights: rows of A or B, or k=250, are not whole 16 bytes" },
    { "b=u8 impl=weights config='stages=40'", CKL_UNSUPPORTED, "gemm weights: 40 stages need" },
    { "b=u8 impl=weights config='rows=24'", CKL_INVALID, "gemm weights: 24x16 is not 16, 32, 48 or 64 rows of B" },
    { "b=u8 impl=weights config='warps=8 ctas=3'", CKL_INVALID,
      "gemm weights: ctas=3 of 8 warps are not in 1..16 warps" },
    { "b=u8 impl=weights config='warps=17'", CKL_INVALID, "gemm weights: warps=17 is not in 1..16" },
    { "a=e4m3 scale_a=block", CKL_INVALID, "gemm: scale_a=block goes with scale_b=block or square" },
    { "a=e4m3 scale_a=row scale_b=square", CKL_INVALID, "gemm: scale_a=block goes with scale_b=block or square" },
    { "scale_a=block scale_b=block", CKL_INVALID, "gemm: scales of blocks are of 8-bit floats, not of f16" },
    { "a=e4m3 scale_a=block scale_b=block batch=2", CKL_INVALID,
      "gemm: scales of blocks go without gated=1 and batch=2" },
    { "a=e4m3 scale_a=block scale_b=block impl=sm90 config='split=2 pingpong=0 cluster_m=1 cluster_n=1'",
      CKL_UNSUPPORTED, "gemm sm90: scales of blocks go without split and pingpong" },
    { "a=e4m3 scale_a=block scale_b=square impl=sm90 config='tile_m=64 tile_n=96 consumers=1 pingpong=0 cluster_m=1 "
      "cluster_n=1 swap=0'",
      CKL_UNSUPPORTED, "gemm sm90: tiles of 96 columns lie across squares of scales" },
    { "a=e4m3 b=f16", CKL_INVALID, "gemm: b=f16 is none of e4m3" },
    { "a=f16 b=bf16", CKL_INVALID, "gemm: b=bf16 is none of f16" },
    { "a=i16", CKL_INVALID, "gemm: a=i16 is none of f16, bf16, f32" },
    { "a=e4m3 d=i8", CKL_INVALID, "gemm: d=i8 is none of f16, bf16, f32" },
    { "a=e4m3 d=i32", CKL_INVALID, "gemm: d=i32 is the sums of i8 as they are, without an epilogue" },
    { "a=i8 d=i32 alpha=2", CKL_INVALID, "gemm: alpha=2 is not part of a problem with d=i32" },
    { "math=f32x3", CKL_INVALID, "gemm: math=f32x3 is of a=f32, not of f16" },
    { "math=tf32", CKL_INVALID, "gemm: math=tf32 is of a=f32, not of f16" },
    { "a=f32 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: tensor cores multiply f32 with math=tf32 alone" },
    { "a=f32 math=f32x3 impl=sm90", CKL_UNSUPPORTED,
      "gemm sm90: operands of math=f32x3 are split first, by impl=f32x3" },
    { "a=f32 math=f32x3 impl=splitk", CKL_UNSUPPORTED,
      "gemm splitk: operands of math=f32x3 are split first, by impl=f32x3" },
    { "a=f32 impl=f32x3", CKL_UNSUPPORTED, "gemm f32x3: products are three of tf32 with math=f32x3 alone" },
    { "m=64 n=64 k=64 a=f32 math=f32x3 impl=f32x3", CKL_UNSUPPORTED,
      "gemm f32x3: splitting operands costs more than it saves" },
    { "k=257 a=f32 math=f32x3 impl=f32x3 config='vec=4'", CKL_INVALID, "gemm f32x3: vec=4 is not 1, or rows of A" },
    { "a=f32 math=f32x3 impl=f32x3 config='pingpong=1'", CKL_INVALID, "gemm f32x3: numbers and rests come in pairs" },
    { "a=f32 impl=turned", CKL_UNSUPPORTED, "gemm turned: copies cost more than they save" },
    { "m=2^11 n=2^11 k=2^11 a=f32 layout=tn impl=turned", CKL_UNSUPPORTED,
      "gemm turned: A and B lie as fma likes them already" },
    { "a=f32 impl=gemv", CKL_UNSUPPORTED, "gemm gemv: 256 rows are more than the 4 that are multiplied at once" },
    { "m=1 impl=gemv", CKL_UNSUPPORTED, "gemm gemv: a=f32 with math=f32 alone" },
    { "m=1 a=f32 batch=2 impl=gemv", CKL_UNSUPPORTED, "gemm gemv: it is one product" },
    { "m=1 a=f32 k=63 impl=gemv", CKL_UNSUPPORTED, "gemm gemv: rows of A and B along k=63 are not whole vectors" },
    { "m=3 a=f32 impl=gemv config='few=2'", CKL_INVALID, "gemm gemv: few=2 is not in 3..4, or rows=2 not in 1..8" },
    { "m=1 a=f32 impl=gemv config='warps=0'", CKL_INVALID, "gemm gemv: warps=0 is not in 1..32" },
    { "impl=fma", CKL_UNSUPPORTED, "gemm fma: a=f32 with math=f32 alone" },
    { "a=f32 impl=fma config='block_m=6'", CKL_INVALID, "gemm fma: block 6x8 must be multiples of 4" },
    { "a=f32 impl=fma config='tile_m=48'", CKL_INVALID, "gemm fma: tile 48x64 is not whole warps of 4x8 blocks" },
    { "a=f32 impl=fma config='stages=1'", CKL_INVALID, "gemm fma: stages=1 is not in 2..8" },
    { "a=f32 impl=fma config='vec=3'", CKL_INVALID, "gemm fma: vec=3 is none of 1, 2, 4" },
    { "a=f32 impl=fma config='ctas=32'", CKL_INVALID, "gemm fma: ctas=32 of 64 threads" },
    { "a=f32 impl=fma config='depth=6'", CKL_INVALID, "gemm fma: 64 threads do not share out stages of 6" },
    { "a=f32 n=255 layout=nn impl=fma config='vec=4'", CKL_UNSUPPORTED,
      "gemm fma: rows of A and B start at multiples of 1 elements, vec=4 wants more" },
    { "a=f32 n=255 impl=fma config='whole=1'", CKL_UNSUPPORTED, "gemm fma: rows of C, D or X are not whole vectors" },
    { "a=f32 impl=fma config='stages=8 depth=32 tile_m=256 tile_n=256 block_m=16 block_n=8 ctas=1'", CKL_UNSUPPORTED,
      "gemm fma: 8 stages need" },
    { "a=e4m3 impl=tiled", CKL_UNSUPPORTED, "gemm tiled: a=e4m3 is none of f16, bf16, f32, i8" },
    { "k=100 m=50 layout=tn lda=49", CKL_INVALID, "gemm: lda=49 is smaller than m=50" },
    { "k=100 n=50 layout=nn ldb=49", CKL_INVALID, "gemm: ldb=49 is smaller than n=50" },
    { "layout=nn a=e4m3 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: tensor cores read e4m3 K-major alone" },
    { "layout=nn impl=sm90 config='tile_n=96 cluster_m=1'", CKL_UNSUPPORTED,
      "gemm sm90: a CTA loads 96 rows of an operand that is not K-major, no multiple of 64" },
    { "a=i8 impl=sm90 config='split=2'", CKL_UNSUPPORTED, "gemm sm90: split=2 exchanges f32, sums of i8 are i32" },
    { "a=f16 d=bf16", CKL_INVALID, "gemm: d=bf16 is none of f16, f32" },
    { "k=65 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: lda=65 elements of f16 are not a multiple of 16 bytes" },
    { "k=66 impl=tiled config='vec=4'", CKL_UNSUPPORTED,
      "gemm tiled: rows of A and B start at multiples of 2 elements, vec=4 wants more" },
    { "impl=tiled config='vec=3'", CKL_INVALID, "gemm tiled: vec=3 is neither 1 nor" },
    { "a=f32 impl=tiled", CKL_UNSUPPORTED, "gemm tiled: tensor cores round f32; impl=fma multiplies it as it is" },
    { "impl=tiled config='stages=9'", CKL_INVALID, "gemm tiled: stages=9 is not in 1..8" },
    { "impl=pitched", CKL_UNSUPPORTED, "gemm pitched: A and B lie as sm90 takes them already" },
    { "m=64 n=64 k=65 impl=pitched", CKL_UNSUPPORTED, "gemm pitched: copies cost more than they save" },
    { "batch=-1", CKL_INVALID, "gemm: batch=-1 is negative" },
    { "groups=-1", CKL_INVALID, "gemm: groups=-1 is negative" },
    { "batch_invariant=1 k=1024 impl=splitk", CKL_UNSUPPORTED,
      "gemm splitk: sums of slices are not those of batch_invariant=1" },
    { "batch_invariant=1 impl=sm90 config='split=2 cluster_m=1'", CKL_UNSUPPORTED,
      "gemm sm90: sums of split=2 are not those of batch_invariant=1" },
    { "groups=2 batch=3", CKL_INVALID, "gemm: batch=3 is not part of a problem of groups" },
    { "groups=2 m=2^31", CKL_INVALID, "gemm: groups=2 or m=2147483648 is beyond the 32 bits of offsets" },
    { "sizes=100,157", CKL_INVALID, "gemm: sizes=100,157 add up to 257 rows, not to m=256" },
    { "sizes=100,x", CKL_INVALID, "gemm: sizes=100,x is not a list of up to 1024 numbers of rows" },
    { "groups=2 k=1024 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: slices are of one product, not of groups=2" },
    { "groups=2 layout=tn impl=sm90", CKL_UNSUPPORTED,
      "gemm sm90: rows of groups start anywhere, which TMA takes of a K-major A alone" },
    { "groups=2 impl=sm90 config='groups=0'", CKL_INVALID, "gemm sm90: room for 0 groups, not for groups=2" },
    { "impl=sm90 config='groups=32'", CKL_INVALID, "gemm sm90: room for 32 groups, not for groups=0" },
    { "groups=2 impl=tiled config='grouped=0'", CKL_INVALID, "gemm tiled: grouped=0 with groups=2" },
    { "groups=2 impl=sm90 config='prefetch=8'", CKL_INVALID, "gemm sm90: prefetch=8 is negative, or of a batch" },
    { "groups_of=k", CKL_INVALID, "gemm: groups_of=k is not part of a problem without groups" },
    { "groups=2 groups_of=k k=2^31", CKL_INVALID, "gemm: groups=2 or k=2147483648 is beyond the 32 bits of offsets" },
    { "groups=2 groups_of=k b=u8 scale_b=block", CKL_INVALID,
      "gemm: groups_of=k goes without scales of blocks and weights of integers" },
    { "groups=2 groups_of=k impl=sm90", CKL_UNSUPPORTED, "gemm sm90: groups_of=k is of 16 bits and layout=tn" },
    { "groups=2 groups_of=k layout=tn impl=sm90 config='batched=1'", CKL_INVALID,
      "gemm sm90: batched=1 with batch=1 and groups_of=k" },
    { "groups=2 groups_of=k impl=tiled config='grouped=1'", CKL_INVALID, "gemm tiled: grouped=1 with groups=2" },
    { "sizes=100,157 groups_of=k", CKL_INVALID, "gemm: sizes=100,157 add up to 257 numbers of k, not to k=256" },
    { "batch=2 pointers=1 stride_b=65536", CKL_INVALID,
      "gemm: stride_b=65536 is not part of a problem of arrays of pointers" },
    { "groups=2 pointers=1", CKL_INVALID, "gemm: pointers=1 goes without groups, gather and scatter" },
    { "batch=2 pointers=1 impl=sm90", CKL_UNSUPPORTED,
      "gemm sm90: matrices of a batch lie a stride apart, not where pointers say" },
    { "batch=2 pointers=1 impl=tma_mma", CKL_UNSUPPORTED,
      "gemm tma_mma: matrices of a batch lie a stride apart, not where pointers say" },
    { "k=1024 pointers=1 impl=splitk", CKL_UNSUPPORTED,
      "gemm splitk: matrices of a batch lie a stride apart, not where pointers say" },
    { "b=u8 pointers=1 impl=weights", CKL_UNSUPPORTED,
      "gemm weights: matrices lie where the call says, not where arrays of pointers do" },
    { "a=f32 pointers=1 m=2^11 n=2^11 k=2^11 impl=turned", CKL_UNSUPPORTED,
      "gemm turned: matrices of a batch lie a stride apart, not where pointers say" },
    { "a=i8 d=e4m3", CKL_INVALID, "gemm: d=e4m3 is of A and B of 8-bit floats, without C and X" },
    { "a=e5m2 d=e5m2 c=1", CKL_INVALID, "gemm: d=e5m2 is of A and B of 8-bit floats, without C and X" },
    { "a=e4m3 amax=1", CKL_INVALID, "gemm: amax=1 is of d=e4m3 and e5m2, not of bf16" },
    { "gather=-1", CKL_INVALID, "gemm: gather=-1 is negative" },
    { "scatter=-1", CKL_INVALID, "gemm: scatter=-1 is negative" },
    { "gather=9 layout=tn", CKL_INVALID, "gemm: gather=9 takes rows of a K-major A" },
    { "gather=9 batch=2", CKL_INVALID, "gemm: gather and scatter go without batch=2 and groups_of=k" },
    { "gather=2^31", CKL_INVALID, "gemm: gather=2147483648 or scatter=0 is beyond the 32 bits of lists" },
    { "scatter=255", CKL_INVALID, "gemm: scatter=255 is smaller than m=256" },
    { "a=i8 d=i32 weighted=1", CKL_INVALID, "gemm: d=i32 is the sums of i8 as they are, without an epilogue" },
    { "gather=9 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: rows of A that a list takes are copied first" },
    { "gather=9 a=f32 impl=fma", CKL_UNSUPPORTED, "gemm fma: rows of A lie in order, not by a list: gather=9" },
    { "gather=9 b=u8 impl=weights", CKL_UNSUPPORTED, "gemm weights: rows of A lie in order, not by a list: gather=9" },
    { "scatter=300 k=1024 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: rows of A and D lie in order" },
    { "a=e4m3 impl=tma_mma", CKL_UNSUPPORTED, "gemm tma_mma: a=e4m3 is none of f16, bf16, i8 and f32 with math=tf32" },
    { "layout=nn impl=tma_mma", CKL_UNSUPPORTED, "gemm tma_mma: A and B are K-major, not empty" },
    { "k=65 impl=tma_mma", CKL_UNSUPPORTED, "gemm tma_mma: rows or matrices of a are not multiples of 16 bytes apart" },
    { "impl=tma_mma config='tile_m=48'", CKL_INVALID, "gemm tma_mma: tile 48x64 must be multiples of 32" },
    { "impl=tma_mma config='ctas=5'", CKL_INVALID, "gemm tma_mma: stages=6 is less than 2, or ctas=5 not in 1..4" },
    { "impl=tma_mma config='stages=40'", CKL_UNSUPPORTED, "gemm tma_mma: 40 stages need" },
    { "impl=tma_mma config='batched=1'", CKL_INVALID, "gemm tma_mma: batched=1 with batch=1" },
    { "a=f32 impl=blocked", CKL_UNSUPPORTED,
      "gemm blocked: a step of the ladder takes K-major A and B of f16 or bf16" },
    { "batch=2 impl=wgmma", CKL_UNSUPPORTED, "gemm wgmma: a step of the ladder is one product" },
    { "k=65 impl=wgmma", CKL_UNSUPPORTED, "gemm wgmma: rows of A or B are not multiples of 16 bytes apart" },
    { "impl=tma config='stages=5'", CKL_INVALID, "gemm tma: stages=5 is not in 2..4" },
    { "a=i8 impl=specialised", CKL_UNSUPPORTED,
      "gemm specialised: a step of the ladder is one product of K-major f16 or bf16" },
    { "k=0 impl=tma", CKL_UNSUPPORTED, "gemm tma: k=0 leaves no products" },
    { "stride_a=64", CKL_INVALID, "gemm: stride_a=64 is not part of a problem of one product" },
    { "batch=2 stride_c=65536", CKL_INVALID, "gemm: stride_c=65536 is not part of a problem without C" },
    { "batch=2 m=8 n=16 ldd=24 stride_d=16", CKL_INVALID,
      "gemm: stride_d=16 lets the 8x16 results of a batch overlap" },
    { "layout=nn k=1024 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: slices are of K-major A and B" },
    { "batch=2 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: batch=2 products have tiles enough" },
    { "k=64 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: k=64 has fewer tiles of 64 than slices=" },
    { "k=1024 impl=splitk config='slices=1'", CKL_INVALID, "gemm splitk: slices=1 is not 0 or in 2..16" },
    { "k=1024 impl=splitk config='batched=1'", CKL_INVALID, "gemm splitk: batched=1, slices of K are 2" },
    { "k=1024 impl=splitk config='vec=4'", CKL_INVALID, "gemm splitk: vec=4 is not 1, or rows of C and D" },
    { "a=i8 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: f32 is added, sums of i8 are i32" },
    { "impl=sm90 config='batched=1'", CKL_INVALID, "gemm sm90: batched=1 with batch=1" },
    { "batch=2 impl=sm90 config='prefetch=8'", CKL_INVALID, "gemm sm90: prefetch=8 is negative, or of a batch" },
    { "batch=2 m=2 n=2 k=8 stride_a=17 impl=sm90", CKL_UNSUPPORTED,
      "gemm sm90: lda=8 elements of f16 are not a multiple of 16 bytes, or the stride is not" },
    { "k=0 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products" },
    { "impl=sm90 config='stages=40'", CKL_UNSUPPORTED, "gemm sm90: 40 stages of" },
    { "impl=sm90 config='tile_m=96 consumers=2'", CKL_INVALID, "gemm sm90: tile_m=96 does not give" },
    { "impl=sm90 config='tile_m=256 tile_n=256 consumers=2'", CKL_INVALID, "needs 256 accumulators" },
    { "impl=sm90 config='split=9 cluster_m=1 cluster_n=1'", CKL_INVALID,
      "gemm sm90: a cluster of 1x1 CTAs with split=9 is not in 1..8" },
    { "impl=sm90 config='split=4 cluster_m=2 cluster_n=2'", CKL_INVALID,
      "gemm sm90: a cluster of 2x2 CTAs with split=4 is not in 1..8" },
    { "k=128 impl=sm90 config='split=4 cluster_m=1 cluster_n=1'", CKL_UNSUPPORTED,
      "gemm sm90: k=128 has fewer tiles of 64 than split=4" },
    { "impl=sm90 config='ragged=3'", CKL_INVALID, "gemm sm90: ragged=3 is not in 0..2" },
    { "bias_along=m", CKL_INVALID, "gemm: bias_along=m is not part of a problem without bias" },
    { "gated=1 bias=1", CKL_INVALID, "gemm: gated=1 goes without C, bias, a scale for each column and X" },
    { "gated=1 layout=nn impl=sm90 config='layout=nn gated=1 tile_m=64 tile_n=64 consumers=1 pingpong=0 cluster_m=1 "
      "cluster_n=1 split=1 swap=0 stages=4'",
      CKL_UNSUPPORTED, "gemm sm90: gated products want a K-major B" },
    { "accumulation=accurate", CKL_INVALID, "gemm: accumulation=accurate is of 8-bit floats, not of f16" },
    { "ldx=256", CKL_INVALID, "gemm: ldx=256 is not part of a problem without X" },
    { "batch=2 stride_x=65536", CKL_INVALID, "gemm: stride_x=65536 is not part of a problem without X" },
    { "activation=dgelu ldx=255", CKL_INVALID, "gemm: ldx=255 is smaller than n=256" },
    { "activation=dgelu preactivation=1", CKL_INVALID,
      "gemm: preactivation=1 writes X, which a backward activation reads" },
    { "batch=2 preactivation=1 stride_x=64", CKL_INVALID, "gemm: stride_x=64 lets the 256x256 results" },
    { "a=i8 d=i32 scale_a=row", CKL_INVALID, "gemm: d=i32 is the sums of i8 as they are, without an epilogue" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(gemm, .operands = operands, .reference = reference, .terms_of = terms, .approximation_of = approximation,
              .flops = flops, .matrix_rate = matrix_rate);
