/* gemm_ref.c - the definition of gemm in double: D, X, and what is summed beside them. */
#include "operators/gemm/gemm_ref.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "base/math.h"
#include "base/wide.h"
#include "operators/gemm/gemm_config.h"

enum { UNSCALED_D = OUTPUT_X + 1 }; // what amax is taken of

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

/* A sum, and the sum of its terms' magnitudes, by which its error is bounded. */
typedef struct bounded {
    double value, magnitude;
} bounded;

static const bounded OPEN = { NAN, REFERENCE_OPEN };

static bool is_open(bounded x)
{
    return isnan(x.value) && x.magnitude == REFERENCE_OPEN;
}

/* An element of D. */
typedef struct element {
    int64_t product, row, col; // of the batch; in it
    int64_t group;             // of the row
    int64_t half;              // 1: in the last columns of a gated product
    int64_t row_D;             // row, unless a list names another one
} element;

/* Both arrays are padded with zeros to a multiple of LANES. */
WIDE static bounded products(const double *a, const double *b, int64_t k, alignment smallest)
{
    double s[LANES] = { 0 }, t[LANES] = { 0 };
    for (int64_t l = 0; l < k; l += LANES) {
        EACH_OF(i, LANES) {
            s[i] += a[l + i] * b[l + i];
            t[i] += aligned(fabs(a[l + i]), smallest.a) * aligned(fabs(b[l + i]) + smallest.raised, smallest.b);
        }
    }
    return (bounded){ ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])),
                      ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7])) };
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

/* The relative error that tolerances allow a sum. */
static double rounding_of(const gemm_problem *p)
{
    return 4 * sqrt(gemm_terms(p)) * 0x1p-24 + gemm_approximation(p);
}

/* The relative error of a kernel's sum that its magnitude does not cover. */
static double relative_of(const gemm_problem *p)
{
    return fmax(0x1p-20, rounding_of(p));
}

/* Is y infinite where x may be 0 or of another sign in f32? */
static bool is_lost(const gemm_problem *p, bounded x, double y)
{
    if (!(fabs(y) > 0x1p126))
        return false;
    return fabs(x.value) < TINY || (isfinite(x.value) && fabs(x.value) <= relative_of(p) * x.magnitude);
}

/* Products of which each block of K is scaled. */
static bounded scaled_products(const gemm_problem *p, void *const *host, const double *a, const double *b,
                               alignment smallest, const element *at)
{
    const ckl_gemm_desc *d = &p->desc;
    bounded all = { 0, 0 };
    bool lost = false;
    for (int64_t block = 0; block * d->block_k < d->k; block++) {
        const int64_t first = block * d->block_k;
        const bounded x = products(a + first, b + first, min_i64(d->block_k, d->k - first), smallest);
        double both = block_scale(d, d->scale_a, host[SCALE_A], 0, at->row, d->m, block) *
                      block_scale(d, d->scale_b, host[SCALE_B], first_scale_of_B(d, at->group), at->col, d->n, block);
        double scale = (double)(float)both; // which may be 0 in f32 where the sum is infinite
        lost |= isinf(scale) && is_lost(p, x, scale);
        all.value += x.value * scale;
        all.magnitude += x.magnitude * fabs(scale);
    }
    return lost ? OPEN : all;
}

/* May an infinite factor meet a 0 in f32: the sum, or the sum times the finite factors? */
static bool meets_zero(const gemm_problem *p, const double factors[3], bounded sum)
{
    double finite = 1;
    bool infinite = false;
    for (int i = 0; i < 3; i++) {
        finite *= isinf(factors[i]) ? 1 : factors[i];
        infinite |= isinf(factors[i]);
    }
    return infinite && is_lost(p, (bounded){ sum.value * finite, sum.magnitude * fabs(finite) }, INFINITY);
}

/* G, from the sum of products. */
static bounded finish(const gemm_problem *p, void *const *host, const element *at, bounded sum)
{
    const ckl_gemm_desc *d = &p->desc;
    const bool device = d->device_scalars;
    const int64_t in_group = at->group * gemm_columns_of_B(d) + at->half * d->n + at->col;
    double alpha = device ? dtype_read(CKL_F32, host[DEVICE_ALPHA], 0) : p->alpha;
    double beta = !p->c ? 0 : device ? dtype_read(CKL_F32, host[DEVICE_BETA], 0) : p->beta;
    const double factors[] = { alpha, scalar(d->scale_a, host[SCALE_A], at->row),
                               scalar(d->scale_b, host[SCALE_B], in_group) };
    double scale = factors[0] * factors[1] * factors[2];
    int64_t in_c = at->product * d->stride_c + at->row_D * d->ldc + at->col;
    double added = beta != 0 ? beta * dtype_read(d->d, host[C], in_c) : 0;
    const int64_t in_bias = d->bias_along == CKL_GEMM_ALONG_M ? at->row : in_group;
    double bias = d->bias ? dtype_read(gemm_bias_type(d->d), host[BIAS], in_bias) : 0;
    if (is_open(sum) || meets_zero(p, factors, sum))
        return OPEN;
    return (bounded){ sum.value * scale + added + bias, sum.magnitude * fabs(scale) + fabs(added) + fabs(bias) };
}

/* Conversions to 8 bits saturate, infinities too. */
static double within_type(ckl_dtype d, double x)
{
    const double most = d == CKL_E4M3 ? 448 : 57344;
    return !gemm_is_f8(d) || isnan(x) ? x : fmin(fmax(x, -most), most);
}

/* G times the derivative of the activation at X. */
static bounded backward(const gemm_problem *p, void *const *host, const element *at, bounded g)
{
    const ckl_gemm_desc *d = &p->desc;
    const int64_t in_x = at->product * d->stride_x + at->row_D * d->ldx + at->col;
    const double factor = gemm_activation_derivative(d->activation, dtype_read(d->d, host[X], in_x));
    const bool lost = isinf(g.value) && is_lost(p, (bounded){ factor, 1 }, g.value);
    return lost ? OPEN : (bounded){ g.value * factor, g.magnitude * gemm_activation_slope((choice)d->activation) };
}

/* The activation of G, y, times U. */
static bounded gated(const gemm_problem *p, bounded y, bounded g, bounded u)
{
    const bool lost = is_open(g) || is_open(u) ||
                      is_lost(p, (bounded){ y.value, fabs(g.value) + g.magnitude }, u.value) || is_lost(p, u, y.value);
    const double error = y.magnitude + (y.magnitude > 0 ? TINY : 0);
    return lost ? OPEN
                : (bounded){ y.value * u.value,
                             error * fabs(u.value) + fabs(y.value) * u.magnitude + error * u.magnitude };
}

/* What the library's custom epilogues make of y, by their definitions. */
static bounded customised(const gemm_problem *p, void *const *host, const element *at, bounded y)
{
    const int32_t *offsets = host[OFFSETS];
    const int64_t row = at->row - (gemm_groups_of_m(&p->desc) ? offsets[at->group] : 0); // of the product, or group
    const char *name = p->desc.epilogue;
    if (name && strcmp(name, "relu2") == 0)
        return (bounded){ y.value < 0 ? 0 : y.value * y.value, (2 * fabs(y.value) + y.magnitude) * y.magnitude };
    if (name && strcmp(name, "tril") == 0 && at->col > row)
        return (bounded){ 0, 0 };
    return y;
}

/* D of an element whose G, and U, are known; for amax without its scales, and as it is before a custom epilogue. */
static bounded activated(const gemm_problem *p, void *const *host, const element *at, const bounded sums[2],
                         bool unscaled)
{
    const ckl_gemm_desc *d = &p->desc;
    double scale_d = (d->scale_d ? dtype_read(CKL_F32, host[SCALE_D], 0) : 1) *
                     (d->weighted ? dtype_read(CKL_F32, host[ROW_WEIGHTS], at->row) : 1);
    bounded y = { gemm_activate(d->activation, sums[0].value),
                  sums[0].magnitude * gemm_activation_slope((choice)d->activation) };
    if (gemm_is_backward((choice)d->activation))
        y = backward(p, host, at, sums[0]);
    if (d->gated)
        y = gated(p, y, sums[0], sums[1]);
    if (is_open(y) || is_lost(p, y, scale_d))
        return OPEN;
    y = (bounded){ y.value * scale_d, y.magnitude * fabs(scale_d) };
    if (unscaled)
        return y;
    y = customised(p, host, at, y);
    return (bounded){ within_type(d->d, y.value), y.magnitude };
}

/* Where an operand is summed in parts: may an infinity meet a rest that is 0, or one of the other sign? */
static bool may_meet_rest(const ckl_gemm_desc *d, const bounded sums[2])
{
    const bool in_parts = d->math == CKL_GEMM_F32X3 || has_subnormal_weights(d);
    return in_parts && (isinf(sums[0].value) || (d->gated && isinf(sums[1].value)));
}

/* Some elements of a row of D, or of X. */
static void reference_of(const gemm_problem *p, void *const *host, reference_slice out)
{
    const ckl_gemm_desc *d = &p->desc;
    const double rests = d->math == CKL_GEMM_F32X3 ? (double)d->k * 0x1p-104 : 0;
    const int64_t rows = gemm_matrix_of(d, 'd').rows;
    element at = { .product = out.row / rows, .row_D = out.row % rows };
    at.row = row_of_product(d, host[ROWS_D], at.row_D);
    if (at.row < 0) {
        keep_row(d, host, at.row_D, &out);
        return;
    }
    at.group = gemm_groups_of_m(d) ? group_of(d, host[OFFSETS], at.row) : 0;
    double *a = heap_alloc(2 * (size_t)(d->k + LANES), sizeof *a), *b = a + d->k + LANES;
    read_factors(d, 'a', host[A], at.product, d->gather ? ((const int32_t *)host[ROWS_A])[at.row] : at.row, a);
    keep_group(d, host[OFFSETS], at.product, a);
    for (at.col = out.first; at.col < out.first + out.count; at.col++) {
        bounded sums[2] = { 0 }; // gated: that of column j + n as well
        for (at.half = 0; at.half < (d->gated ? 2 : 1); at.half++) {
            read_factors(d, 'b', host[B], gemm_groups_of_m(d) ? at.group : at.product, at.col + at.half * d->n, b);
            keep_group(d, host[OFFSETS], at.product, b);
            const bounded sum = gemm_has_block_scales((choice)d->scale_b)
                                    ? scaled_products(p, host, a, b, alignment_of(d), &at)
                                    : products(a, b, d->k, alignment_of(d));
            sums[at.half] = finish(p, host, &at, sum);
        }
        bounded result = { sums[0].value, sums[0].magnitude + rests };
        if (out.output != OUTPUT_X)
            result = activated(p, host, &at, sums, out.output == UNSCALED_D);
        if (may_meet_rest(d, sums))
            result = OPEN;
        out.value[at.col] = result.value;
        out.magnitude[at.col] = result.magnitude;
    }
    heap_free(a);
}

/* The largest |D| before its scale, and the number that was there. */
static void reference_amax(const gemm_problem *p, void *const *host, reference_slice out)
{
    gemm_problem plain = *p;
    ckl_gemm_desc *d = &plain.desc;
    double *values = heap_alloc(2 * (size_t)d->n, sizeof *values);
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
    heap_free(values);
}

/* Adds a stored number, rounded to the type of D, A or B, with the error of its rounding beside its own magnitude. */
static bounded plus_stored(const gemm_problem *p, bounded sum, bounded x)
{
    const ckl_dtype type = p->desc.d;
    double storage = 0;
    if (is_open(x) || is_open(sum))
        return OPEN;
    dtype_write(type, &storage, 0, x.value);
    return (bounded){ sum.value + dtype_read(type, &storage, 0),
                      sum.magnitude + x.magnitude + fabs(x.value) * (1 + dtype_epsilon(type) / rounding_of(p)) };
}

/* sum plus D over a range of rows and of columns. */
static bounded plus_D(const gemm_problem *p, void *const *host, const int64_t rows[2], const int64_t cols[2],
                      bounded sum)
{
    gemm_problem plain = *p;
    double *values = heap_alloc(2 * (size_t)p->desc.n, sizeof *values);
    plain.desc.bias_gradient = CKL_GEMM_SUMS_NONE;
    for (int64_t row = rows[0]; row < rows[1]; row++) {
        const reference_slice line = {
            .value = values, .magnitude = values + p->desc.n, .row = row, .first = cols[0], .count = cols[1] - cols[0]
        };
        reference_of(&plain, host, line);
        for (int64_t j = cols[0]; j < cols[1]; j++)
            sum = plus_stored(p, sum, (bounded){ values[j], line.magnitude[j] });
    }
    heap_free(values);
    return sum;
}

/* The sum of row i of A, or of column i of B. */
static bounded sum_of_factors(const ckl_gemm_desc *d, char matrix, const void *array, int64_t i)
{
    bounded sum = { 0, 0 };
    double *factors = heap_alloc((size_t)d->k + 1, sizeof *factors);
    read_factors(d, matrix, array, 0, i, factors);
    for (int64_t l = 0; l < d->k; l++) {
        sum.value += factors[l];
        sum.magnitude += fabs(factors[l]);
    }
    heap_free(factors);
    return sum;
}

/* Element i of the gradient of a bias. */
static bounded bias_gradient_at(const gemm_problem *p, void *const *host, int64_t i)
{
    const ckl_gemm_desc *d = &p->desc;
    const int64_t group = i / d->n, j = i % d->n;
    const int32_t *offsets = host[OFFSETS];
    bounded sum = { 0, 0 };
    if (d->bias_gradient == CKL_GEMM_SUMS_OF_A)
        return sum_of_factors(d, 'a', host[A], i);
    if (d->bias_gradient == CKL_GEMM_SUMS_OF_B)
        return sum_of_factors(d, 'b', host[B], i);
    if (d->bias_gradient == CKL_GEMM_SUMS_OF_COLUMNS) {
        const int64_t first = d->groups ? offsets[group] : 0, end = d->groups ? offsets[group + 1] : d->m * d->batch;
        return plus_D(p, host, (int64_t[]){ first, end }, (int64_t[]){ j, j + 1 }, sum);
    }
    for (int64_t row = i; row < d->m * d->batch; row += d->m)
        sum = plus_D(p, host, (int64_t[]){ row, row + 1 }, (int64_t[]){ 0, d->n }, sum);
    return sum;
}

/* Matrices named by pointers are those of a batch. */
void gemm_reference(const void *problem, void *const *host, reference_slice out)
{
    gemm_problem p = *(const gemm_problem *)problem;
    ckl_gemm_desc *d = &p.desc;
    void *known[OPERANDS];
    memcpy(known, host, sizeof known);
    if (d->host_offsets)
        memcpy(&known[OFFSETS], &(const int32_t *){ p.host_offsets }, sizeof known[OFFSETS]);
    if (d->pointers) {
        gemm_follow_pointers(d, known);
        out.output ^= d->amax; // D comes after it
    }
    if (d->amax && out.output == OUTPUT_AMAX) {
        reference_amax(&p, known, out);
    } else if (d->bias_gradient && out.output == OUTPUT_BIAS_GRADIENT) {
        const bounded sum = bias_gradient_at(&p, known, out.row);
        out.value[0] = sum.value;
        out.magnitude[0] = sum.magnitude;
    } else {
        reference_of(&p, known, out);
    }
}
