/* gemm_ref.c - the definition of gemm in double: its operands, D, error bounds, and its work. */
#include "operators/gemm/gemm_lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "base/wide.h"
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
    BIAS_GRADIENT,
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

/* What arrays of pointers point to: operands after those of the call. */
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
        all[pointed[i].matrix].align = 16;
        array->table_of = pointed[i].matrix + 1;
        array->table_step = x.stride * (int64_t)ckl_dtype_bytes(x.type);
    }
}

enum {
    OUTPUT_X = 1,
    OUTPUT_AMAX = 1,
    OUTPUT_BIAS_GRADIENT = 1,
    UNSCALED_D
}; // after D, one of them; what amax is taken of

/* Where the host has the offsets the call gets the numbers themselves. */
static void give_host_offsets(const gemm_problem *p, operand *offsets)
{
    if (p->desc.host_offsets)
        *offsets = (operand){ .name = offsets->name, .value = p->host_offsets };
}

/* Sums of products stay within f32, before alpha and beta, and so do products of two of them. */
int gemm_operands(const void *problem, operand *all)
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
    give_host_offsets(p, &all[OFFSETS]);
    if (p->desc.bias_gradient) { // an element is a slice: it needs all of a column of D
        const operand *sums = &all[BIAS_GRADIENT];
        const int64_t count = sums->rank > 1 ? sums->shape[0] * sums->shape[1] : sums->shape[0];
        all[BIAS_GRADIENT] =
            operand_tensor(sums->name, OPERAND_OUT, sums->dtype, 2, (int64_t[]){ count, 1 }, (int64_t[]){ 1, 1 });
    }
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

enum { FAR = 30 }; // beyond it activations are 0 or x, and their derivatives 0 or 1

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

enum { LANES = 8 }; // partial sums side by side, which compilers vectorise

/* NOTE: the tensor core aligns products by the exponents of their factors; a subnormal has the smallest one. */
static double aligned(double x, double smallest)
{
    return ((x > 0) & (x < smallest)) ? smallest : x;
}

/*
 * The sizes at which the smallest factors of A and of B are aligned, and how much larger B's are than the numbers they
 * stand for.
 */
typedef struct alignment {
    double a, b, raised;
} alignment;

/* With f16, integers of 4 bits are multiplied as subnormals in units of 2^-24, each raised by 8. */
static bool has_subnormal_weights(const ckl_gemm_desc *d)
{
    return d->a == CKL_F16 && d->b == CKL_U8;
}

static alignment alignment_of(const ckl_gemm_desc *d)
{
    const double rests = d->math == CKL_GEMM_F32X3 ? 0x1p16 : 1; // rests lose bits where they are subnormal
    const double smallest = dtype_tiny(d->a) / dtype_epsilon(d->a) * rests;
    if (has_subnormal_weights(d))
        return (alignment){ smallest, 0x1p10, GEMM_NIBBLE_ZERO };
    return (alignment){ smallest, smallest, 0 };
}

/* Both arrays are padded with zeros to a multiple of LANES. */
WIDE static void products(const double *a, const double *b, int64_t k, alignment smallest, double *sum,
                          double *magnitude)
{
    double s[LANES] = { 0 }, t[LANES] = { 0 };
    for (int64_t l = 0; l < k; l += LANES) {
        EACH_OF(i, LANES) {
            s[i] += a[l + i] * b[l + i];
            t[i] += aligned(fabs(a[l + i]), smallest.a) * aligned(fabs(b[l + i]) + smallest.raised, smallest.b);
        }
    }
    *sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    *magnitude = ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}

/* The scale of row i of A or of column i of B for a block of K. */
static double block_scale(const ckl_gemm_desc *d, ckl_gemm_scale how, const void *scales, int64_t first, int64_t i,
                          int64_t extent, int64_t block)
{
    const int64_t blocks = ceil_div(d->k, d->block_k);
    if (!gemm_has_block_scales((choice)how))
        return 1;
    return dtype_read(gemm_has_weights(d) ? d->a : CKL_F32, scales,
                      first + (how == CKL_GEMM_SCALE_BLOCK ? block * extent + i : i / GEMM_BLOCK * blocks + block));
}

/* The number of a group's first scale. */
static int64_t first_scale_of_B(const ckl_gemm_desc *d, int64_t group)
{
    const int64_t blocks = ceil_div(d->k, d->block_k);
    const int64_t lines = d->scale_b == CKL_GEMM_SCALE_SQUARE ? ceil_div(d->n, GEMM_BLOCK) : d->n;
    return group * lines * blocks;
}

/* The sum of products of row at[1] and column at[2], each block of K scaled. */
static void scaled_products(const ckl_gemm_desc *d, void *const *host, const double *a, const double *b,
                            alignment smallest, const int64_t at[4], double *sum, double *magnitude)
{
    *sum = *magnitude = 0;
    for (int64_t block = 0; block * d->block_k < d->k; block++) {
        const int64_t first = block * d->block_k;
        double s, t;
        products(a + first, b + first, min_i64(d->block_k, d->k - first), smallest, &s, &t);
        double both = block_scale(d, d->scale_a, host[SCALE_A], 0, at[1], d->m, block) *
                      block_scale(d, d->scale_b, host[SCALE_B], first_scale_of_B(d, at[3]), at[2], d->n, block);
        double scale = (double)(float)both; // which may be 0 in f32 where the sum is infinite
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

/* The k elements of row i of A, or column i of B, of a product of the batch or of a group. */
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
    for (int64_t l = 0; l < d->k && d->math == CKL_GEMM_TF32; l++)
        if (fabs(out[l]) < 0x1p-136) // the smallest subnormal of tf32: an infinity meets a zero
            out[l] = 0;
}

/* Clears what is not the group's, of groups of K. */
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

static const double TINY = 0x1p-100; // what is less may be 0 in f32

/* The relative error of a kernel's sum that its magnitude does not cover. */
static double relative_of(const gemm_problem *p)
{
    return fmax(0x1p-20, 4 * sqrt(gemm_terms(p)) * 0x1p-24 + gemm_approximation(p));
}

/* Is y infinite where x, a sum of that magnitude, may be 0 or of another sign in f32? */
static bool is_lost(const gemm_problem *p, double x, double magnitude, double y)
{
    return (fabs(x) < TINY || (isfinite(x) && fabs(x) <= relative_of(p) * magnitude)) && fabs(y) > 0x1p126;
}

/* May an infinite factor meet a 0 in f32: the sum, or the sum times the finite factors? */
static bool meets_zero(const gemm_problem *p, const double factors[3], double sum, double magnitude)
{
    double finite = 1;
    bool infinite = false;
    for (int i = 0; i < 3; i++) {
        finite *= isinf(factors[i]) ? 1 : factors[i];
        infinite |= isinf(factors[i]);
    }
    return infinite && is_lost(p, sum * finite, magnitude * fabs(finite), INFINITY);
}

/*
 * G and its magnitude, from the sum of products, of element (row,j) of a product of the batch; at[3] is the group,
 * at[4] the row of D.
 */
static void finish(const gemm_problem *p, void *const *host, const int64_t at[5], double *sum, double *magnitude)
{
    const ckl_gemm_desc *d = &p->desc;
    const bool device = d->device_scalars;
    const int64_t in_group = at[3] * d->n + at[2];
    double alpha = device ? dtype_read(CKL_F32, host[DEVICE_ALPHA], 0) : p->alpha;
    double beta = !p->c ? 0 : device ? dtype_read(CKL_F32, host[DEVICE_BETA], 0) : p->beta;
    const double factors[] = { alpha, scalar(d->scale_a, host[SCALE_A], at[1]),
                               scalar(d->scale_b, host[SCALE_B], in_group) };
    double scale = factors[0] * factors[1] * factors[2];
    int64_t in_c = at[0] * d->stride_c + at[4] * d->ldc + at[2];
    double added = beta != 0 ? beta * dtype_read(d->d, host[C], in_c) : 0;
    double bias =
        d->bias ? dtype_read(gemm_bias_type(d->d), host[BIAS], d->bias_along == CKL_GEMM_ALONG_M ? at[1] : in_group)
                : 0;
    const bool lost = meets_zero(p, factors, *sum, *magnitude);
    *sum = lost ? NAN : *sum * scale + added + bias;
    *magnitude = lost ? REFERENCE_OPEN : *magnitude * fabs(scale) + fabs(added) + fabs(bias);
}

/* Conversions to 8 bits saturate, infinities too. */
static double within_type(ckl_dtype d, double x)
{
    const double most = d == CKL_E4M3 ? 448 : 57344;
    return !gemm_is_f8(d) || isnan(x) ? x : fmin(fmax(x, -most), most);
}

static bool is_open(double sum, double magnitude)
{
    return isnan(sum) && magnitude == REFERENCE_OPEN;
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
        bool lost = isinf(sum[0]) && is_lost(p, factor, 1, sum[0]);
        value = lost ? NAN : sum[0] * factor;
        error = lost ? REFERENCE_OPEN : error;
    }
    if (d->gated) {
        bool lost = is_open(sum[0], magnitude[0]) || is_open(sum[1], magnitude[1]) ||
                    is_lost(p, value, fabs(sum[0]) + magnitude[0], sum[1]) || is_lost(p, sum[1], magnitude[1], value);
        error += error > 0 ? TINY : 0;
        error = lost ? REFERENCE_OPEN : error * fabs(sum[1]) + fabs(value) * magnitude[1] + error * magnitude[1];
        value = lost ? NAN : value * sum[1];
    }
    bool open = is_open(value, error) || is_lost(p, value, error, scale_d);
    out->value[at[2]] = open ? NAN : out->output == UNSCALED_D ? value : within_type(d->d, value * scale_d);
    out->magnitude[at[2]] = open ? REFERENCE_OPEN : error * fabs(scale_d);
}

static void reference_of(const gemm_problem *p, void *const *host, reference_slice out)
{
    const ckl_gemm_desc *d = &p->desc;
    const bool rests = d->math == CKL_GEMM_F32X3;
    const bool meets = rests || has_subnormal_weights(d); // an infinity a rest that is 0, or one of the other sign
    const alignment smallest = alignment_of(d);
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
    for (int64_t j = out.first; j < out.first + out.count; j++) {
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
        if (meets && (isinf(sum[0]) || (d->gated && isinf(sum[1])))) {
            out.value[j] = NAN;
            out.magnitude[j] = REFERENCE_OPEN;
        }
    }
    free(a);
}

/* The largest |D| before its scale, and the number that was there. */
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
            (reference_slice){
                .value = values, .magnitude = values + d->n, .output = UNSCALED_D, .row = row, .count = d->n });
        for (int64_t j = 0; j < d->n; j++) {
            const bool nan = isnan(values[j]) || isnan(out.value[0]);
            out.value[0] = nan ? NAN : fmax(out.value[0], fabs(values[j]));
            out.magnitude[0] = fmax(out.magnitude[0], values[d->n + j]);
        }
    }
    free(values);
}

/* Adds a stored number, rounded to the type of D, A or B, with the error of its rounding beside its own magnitude. */
static void add_stored(const gemm_problem *p, double value, double magnitude, reference_slice *out)
{
    const ckl_dtype type = p->desc.d;
    const double relative = 4 * sqrt(gemm_terms(p)) * 0x1p-24 + gemm_approximation(p);
    const bool open = is_open(value, magnitude) || is_open(out->value[0], out->magnitude[0]);
    double storage = 0;
    dtype_write(type, &storage, 0, value);
    out->value[0] = open ? NAN : out->value[0] + dtype_read(type, &storage, 0);
    out->magnitude[0] =
        open ? REFERENCE_OPEN : out->magnitude[0] + magnitude + fabs(value) * (1 + dtype_epsilon(type) / relative);
}

/* Sums of D over a range of rows and of columns. */
static void reference_sums_of_D(const gemm_problem *p, void *const *host, const int64_t rows[2], const int64_t cols[2],
                                reference_slice *out)
{
    gemm_problem plain = *p;
    double *values = calloc((size_t)(2 * p->desc.n), sizeof *values);
    if (!values)
        abort();
    plain.desc.bias_gradient = CKL_GEMM_SUMS_NONE;
    for (int64_t row = rows[0]; row < rows[1]; row++) {
        const reference_slice line = {
            .value = values, .magnitude = values + p->desc.n, .row = row, .first = cols[0], .count = cols[1] - cols[0]
        };
        reference_of(&plain, host, line);
        for (int64_t j = cols[0]; j < cols[1]; j++)
            add_stored(p, values[j], line.magnitude[j], out);
    }
    free(values);
}

/* Element out.row of the gradient of a bias. */
static void reference_bias_gradient(const gemm_problem *p, void *const *host, reference_slice out)
{
    const ckl_gemm_desc *d = &p->desc;
    const ckl_gemm_sums sums = d->bias_gradient;
    const int64_t i = out.row, group = i / d->n, j = i % d->n;
    const int32_t *offsets = host[OFFSETS];
    out.value[0] = out.magnitude[0] = 0;
    if (sums == CKL_GEMM_SUMS_OF_COLUMNS) {
        const int64_t first = d->groups ? offsets[group] : 0, end = d->groups ? offsets[group + 1] : d->m * d->batch;
        reference_sums_of_D(p, host, (int64_t[]){ first, end }, (int64_t[]){ j, j + 1 }, &out);
    } else if (sums == CKL_GEMM_SUMS_OF_ROWS) {
        for (int64_t product = 0; product < d->batch; product++)
            reference_sums_of_D(p, host, (int64_t[]){ product * d->m + i, product * d->m + i + 1 },
                                (int64_t[]){ 0, d->n }, &out);
    } else {
        const char matrix = sums == CKL_GEMM_SUMS_OF_A ? 'a' : 'b';
        double *factors = calloc((size_t)d->k + 1, sizeof *factors);
        if (!factors)
            abort();
        read_factors(d, matrix, host[matrix == 'a' ? A : B], 0, i, factors);
        for (int64_t l = 0; l < d->k; l++) {
            out.value[0] += factors[l];
            out.magnitude[0] += fabs(factors[l]);
        }
        free(factors);
    }
}

static void reference_any(const gemm_problem *p, void *const *host, reference_slice out)
{
    if (p->desc.amax && out.output == OUTPUT_AMAX)
        reference_amax(p, host, out);
    else if (p->desc.bias_gradient && out.output == OUTPUT_BIAS_GRADIENT)
        reference_bias_gradient(p, host, out);
    else
        reference_of(p, host, out);
}

/* The reference of matrices named by pointers, as those of a batch. */
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
        out.output = !out.output; // D comes after it
    reference_any(&batch, matrices, out);
}

void gemm_reference(const void *problem, void *const *host, reference_slice out)
{
    const gemm_problem *p = problem;
    void *known[OPERANDS];
    memcpy(known, host, sizeof known);
    if (p->desc.host_offsets)
        memcpy(&known[OFFSETS], &(const int32_t *){ p->host_offsets }, sizeof known[OFFSETS]);
    (p->desc.pointers ? reference_pointed : reference_any)(p, known, out);
}

/* The terms of an element of D, and of sums beside it. */
double gemm_terms(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    const double lines = d->bias_gradient == CKL_GEMM_SUMS_OF_COLUMNS ? (double)d->m * (double)d->batch
                         : d->bias_gradient == CKL_GEMM_SUMS_OF_ROWS  ? (double)d->n * (double)d->batch
                                                                      : 0;
    return (double)d->k + 6 + lines;
}

static bool tensor_cores_cut(const ckl_gemm_desc *d)
{
    return d->a == CKL_F16 || d->a == CKL_BF16 || d->math == CKL_GEMM_TF32 || d->math == CKL_GEMM_F32X3;
}

/*
 * ex2.approx and rcp.approx of activations: 2^-22 each, and the rounding of an exponent of up to 2^7. Tensor cores
 * truncate: on average each product loses 2^-25 of the largest, and each sum of 16 bytes of them 2^-24, which add up
 * where all have one sign. For 8-bit floats 32 products, the sum so far and the new sum are each truncated to 13 bits
 * below the largest, in every step of 32; accurate sums do so within 128 of K alone. Factors of tf32 lose up to 2^-10
 * each: our kernels truncate them, others round. Three products leave out 2^-22 and lose 2^-22 of each rest.
 */
double gemm_approximation(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    bool exact = d->activation == CKL_ACTIVATION_IDENTITY || d->activation == CKL_ACTIVATION_RELU ||
                 d->activation == CKL_ACTIVATION_DRELU;
    double gelu = exact ? 0 : 0x1p-16;
    double bytes = (double)ckl_dtype_bytes(d->a);
    double steps = ceil((double)(d->accumulation ? min_i64(d->k, 128) : d->k) / 32);
    double cuts = gemm_is_f8(d->a)      ? 34 * steps * 0x1p-13
                  : tensor_cores_cut(d) ? (double)d->k * 0x1p-25 + ceil((double)d->k * bytes / 16) * 0x1p-24
                                        : 0;
    double rests = d->math == CKL_GEMM_TF32 ? 0x1p-9 : d->math == CKL_GEMM_F32X3 ? 0x1p-20 : 0;
    return gelu + cuts + rests;
}

double gemm_flops(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return (d->gated ? 4 : 2) * (double)d->batch * (double)d->m * (double)d->n * (double)d->k;
}

/*
 * tf32 has half the products a cycle of 16 bits, a little more within the same power. FMAs outside the tensor cores
 * have 1/15, and no power limit slows them (bench/notes/gemm.md).
 */
double gemm_matrix_rate(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return d->a != CKL_F32 ? 1 : d->math == CKL_GEMM_TF32 ? 0.65 : d->math == CKL_GEMM_F32X3 ? 0.22 : 0.1;
}
