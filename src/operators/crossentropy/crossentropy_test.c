/* crossentropy_test.c - the definition of cross-entropy and its gradient in double, its cases and rejects. */
#include "cutekernellib/operators/crossentropy.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/crossentropy/crossentropy_config.h"
#include "operators/operators.h"

enum { X, TARGET, LOSS, LSE, COUNT, DLOSS, DX, WEIGHT, WEIGHT_SUM }; // operands

static int operands(const void *problem, operand *all)
{
    const crossentropy_problem *p = problem;
    all[TARGET] = operand_range(all[TARGET], (double)p->target_low, (double)(p->desc.cols - 1));
    all[LSE] = operand_range(all[LSE], 1, 4);
    all[COUNT] = operand_range(all[COUNT], 1, 2);
    all[WEIGHT] = operand_range(all[WEIGHT], 0, 2);
    all[WEIGHT_SUM] = operand_range(all[WEIGHT_SUM], 1, (double)p->desc.cols);
    if (p->desc.smoothing > 0)
        all[X].hard_max = 0x1p60; // sums of logits are finite
    if (p->desc.weighted)
        all[DLOSS].hard_max = 0x1p100; // and so are weighted factors
    return 0;
}

/* The definition */

/* Relative error of an exponential, per unit of 1 + |exponent|. */
#define ERROR 0x1p-20

static double logit(const ckl_crossentropy_desc *d, void *const *host, int64_t row, int64_t c)
{
    return dtype_read(d->dtype, host[X], row * d->ldx + c);
}

static int64_t class_of(const ckl_crossentropy_desc *d, void *const *host, int64_t row)
{
    return (int64_t)dtype_read(d->target, host[TARGET], row);
}

static double log_sum_exp(const ckl_crossentropy_desc *d, void *const *host, int64_t row)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < d->cols; c++)
        max = fmax(max, logit(d, host, row, c));
    max = max > -INFINITY ? max : 0;
    for (int64_t c = 0; c < d->cols; c++)
        sum += exp(logit(d, host, row, c) - max); // NaN if a logit is NaN or +inf
    return max + log(sum);
}

static double weight_of(const ckl_crossentropy_desc *d, void *const *host, int64_t c)
{
    return d->weighted ? dtype_read(d->dtype, host[WEIGHT], c) : 1;
}

/* lse - x of a class; *magnitude grows by that of the terms, `factor` times. */
static double loss_of_class(const ckl_crossentropy_desc *d, void *const *host, int64_t row, int64_t c, double lse,
                            double factor, double *magnitude)
{
    double x = logit(d, host, row, c);
    *magnitude += factor * (isfinite(lse) && isfinite(x) ? 1 + fabs(lse) + fabs(x) : 1);
    return lse == -INFINITY ? INFINITY : lse - x;
}

/* *magnitude: of the terms that make the loss. */
static double loss_of(const ckl_crossentropy_desc *d, void *const *host, int64_t row, double *magnitude)
{
    int64_t t = class_of(d, host, row);
    const double keep = 1 - (double)d->smoothing, spread = (double)d->smoothing / (double)d->cols;
    *magnitude = 0;
    if (t == d->ignore_index)
        return 0;
    if (t < 0 || t >= d->cols)
        return NAN;
    double lse = log_sum_exp(d, host, row), own = weight_of(d, host, t), others = 0;
    double loss = own * loss_of_class(d, host, row, t, lse, keep * own, magnitude);
    if (d->smoothing == 0)
        return loss;
    for (int64_t c = 0; c < d->cols; c++) {
        const double w = weight_of(d, host, c);
        others += w * loss_of_class(d, host, row, c, lse, spread * w, magnitude);
    }
    return keep * loss + spread * others;
}

/* Rows that count, or the weights of their classes. */
static double counted_rows(const ckl_crossentropy_desc *d, void *const *host)
{
    double count = 0;
    for (int64_t r = 0; r < d->rows; r++) {
        const int64_t t = class_of(d, host, r);
        const bool is_class = t >= 0 && t < d->cols;
        count += t == d->ignore_index ? 0 : !d->weighted ? 1 : is_class ? weight_of(d, host, t) : 0;
    }
    return count;
}

static double sum_of_weights(const ckl_crossentropy_desc *d, void *const *host)
{
    double sum = 0;
    for (int64_t c = 0; c < d->cols; c++)
        sum += weight_of(d, host, c);
    return sum;
}

static void mean(const ckl_crossentropy_desc *d, void *const *host, reference_slice out)
{
    double sum = 0, magnitudes = 0, count = counted_rows(d, host);
    for (int64_t r = 0; r < d->rows; r++) {
        double magnitude;
        sum += loss_of(d, host, r, &magnitude);
        magnitudes += magnitude;
    }
    out.value[0] = sum / count;
    out.magnitude[0] = count > 0 ? magnitudes / count + (d->weighted ? fabs(sum / count) : 0) : 0;
}

static void gradient(const ckl_crossentropy_desc *d, void *const *host, int64_t row, reference_slice out)
{
    int64_t t = class_of(d, host, row);
    bool reduced = d->reduction == CKL_LOSS_MEAN;
    double factor = dtype_read(CKL_F32, host[DLOSS], reduced ? 0 : row);
    double lse = dtype_read(CKL_F32, host[LSE], row);
    if (reduced)
        factor /= dtype_read(CKL_F32, host[COUNT], 0);
    const bool is_class = t >= 0 && t < d->cols;
    const double own = (1 - (double)d->smoothing) * (is_class ? weight_of(d, host, t) : 0);
    const double spread = (double)d->smoothing / (double)d->cols;
    const double weights = !d->weighted ? (double)d->cols : spread > 0 ? dtype_read(CKL_F32, host[WEIGHT_SUM], 0) : 0;
    if (!is_class)
        factor = NAN;
    for (int64_t c = 0; c < d->cols; c++) {
        double x = logit(d, host, row, c), e = lse == -INFINITY ? exp(x) : exp(x - lse);
        double off = (c == t) * own + spread * weight_of(d, host, c), of_e = own + spread * weights;
        double error = isfinite(x) ? of_e * e * (1 + fabs(x - lse)) + off : 1;
        bool ignored = t == d->ignore_index; // whether it is a class or not
        out.value[c] = ignored ? 0 : (e * of_e - off) * factor;
        out.magnitude[c] = ignored ? 0 : error * fabs(factor) + 0x1p-126 / ERROR;
    }
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    enum { OUT_LOSS, OUT_LSE, OUT_COUNT, OUT_WEIGHT_SUM }; // forward, those that there are
    const ckl_crossentropy_desc *d = problem;
    if (d->direction == CKL_DIRECTION_BACKWARD) {
        gradient(d, host, out.row, out);
    } else if (out.output == OUT_LSE) {
        out.value[0] = log_sum_exp(d, host, out.row);
        out.magnitude[0] = 1 + fabs(out.value[0]);
    } else if (out.output == OUT_COUNT && d->reduction == CKL_LOSS_MEAN) {
        out.value[0] = counted_rows(d, host);
        out.magnitude[0] = d->weighted ? out.value[0] : 0;
    } else if (out.output >= OUT_COUNT) {
        out.value[0] = out.magnitude[0] = sum_of_weights(d, host);
    } else if (d->reduction == CKL_LOSS_MEAN) {
        mean(d, host, out);
    } else {
        out.value[0] = loss_of(d, host, out.row, &out.magnitude[0]);
    }
}

static double terms(const void *problem)
{
    const ckl_crossentropy_desc *d = problem;
    return (double)d->cols + (d->reduction == CKL_LOSS_MEAN ? (double)d->rows : 0);
}

static const char *const cases[] = {
    "rows=4 cols=8",
    "rows=9 cols=10 ignore_index=3                  # some rows do not count",
    "rows=9 cols=10 ignore_index=3 direction=backward",
    "rows=33 cols=1000 dtype=bf16 target=i32        # a warp a row",
    "rows=33 cols=1000 dtype=f16 direction=backward target=i32",
    "rows=5 cols=4096 dtype=f16                     # a CTA a row",
    "rows=33 cols=1408 dtype=bf16 impl=row config='threads=64 row_threads=32 vec=8 steps=6' # few threads, many "
    "elements",
    "rows=9 cols=2835 dtype=f16 impl=row config='threads=64 row_threads=64 vec=8 steps=6 ragged=1'",
    "rows=37 cols=1499 dtype=bf16 fill=hard impl=row config='threads=64 row_threads=32 vec=8 steps=3 ragged=1'",
    "rows=70 cols=667 dtype=f16 reduction=mean smoothing=0.1 impl=row config='threads=64 row_threads=16 vec=8 steps=3 "
    "ragged=1'",
    "rows=8500 cols=70 dtype=f16 fill=uniform        # so many rows that a thread may have more",
    "rows=3 cols=30001                              # odd rows, by tiles",
    "rows=3 cols=30001 dtype=bf16 direction=backward",
    "rows=2 cols=70000 dtype=bf16                   # CTAs that share a row",
    "rows=2 cols=70000 dtype=bf16 impl=row config='threads=256 row_threads=256 parts=4 vec=8 steps=4' # by tiles",
    "rows=2 cols=70000 dtype=bf16 direction=backward",
    "rows=33 cols=130 reduction=mean dtype=bf16",
    "rows=2000 cols=5 reduction=mean ignore_index=2 # the mean of more rows than it has threads",
    "rows=17000 cols=3 reduction=mean ignore_index=2 # by a cluster",
    "rows=9000 cols=3 reduction=mean dtype=f16 impl=row config='dtype=f16 reduction=mean threads=64 row_threads=1 "
    "vec=1 steps=3 mean_ctas=2' # which takes them in turns",
    "rows=7 cols=9 reduction=mean direction=backward ignore_index=1",
    "rows=3 cols=9 reduction=mean ignore_index=0",
    "rows=17 cols=12 target_low=-3                  # targets that are no classes",
    "rows=17 cols=12 target_low=-3 direction=backward",
    "rows=5 cols=515 dtype=bf16 misalign=1          # pointers aligned to the element only",
    "rows=5 cols=520 dtype=f16 misalign=1 direction=backward",
    "rows=9 cols=200 dtype=f16 ldx=208 lddx=216 direction=backward # strided rows, vectors kept",
    "rows=320 cols=130 fill=hard # one NaN, infinity or peak a row",
    "rows=9 cols=77                                 # ragged rows: vectors and ends",
    "rows=9 cols=77 direction=backward misalign=1",
    "rows=5 cols=1001 dtype=bf16 stagger=1 direction=backward # x out of phase with dx",
    "rows=5 cols=514 dtype=bf16 ldx=515 lddx=521 direction=backward",
    "rows=5 cols=1003 ldx=1005 lddx=1009 direction=backward # in phase, of other pitches",
    "rows=3 cols=50257 dtype=bf16 misalign=5        # and tiles",
    "rows=3 cols=1027 direction=backward impl=row config='direction=backward threads=256 row_threads=256 vec=4 steps=1 "
    "ragged=1'                                           # a tile and ends, which are none",
    "rows=3 cols=1029 direction=backward impl=row config='direction=backward threads=256 row_threads=256 vec=4 steps=1 "
    "ragged=1'                                           # a vector more",
    "rows=3 cols=50257 dtype=f16 direction=backward",
    "rows=320 cols=131 fill=hard",
    "rows=3 cols=1001 dtype=f16 ldx=1008            # vectors in the pitch, none in the length",
    "rows=3 cols=1001 dtype=f16 ldx=1008 lddx=1008 direction=backward",
    "rows=24 cols=1 direction=backward ignore_index=1 # no target but 0",
    "rows=24 cols=1 direction=backward ignore_index=1 target_low=-3",
    "rows=33 cols=130 weighted=1 dtype=bf16 ignore_index=3 # weights of classes",
    "rows=33 cols=130 weighted=1 direction=backward ignore_index=3",
    "rows=200 cols=9 weighted=1 reduction=mean dtype=f16 target_low=-1",
    "rows=70 cols=9 weighted=1 reduction=mean direction=backward target_low=-1 ignore_index=2",
    "rows=33 cols=130 smoothing=0.1 dtype=bf16 ignore_index=3 # a share of all classes",
    "rows=33 cols=131 smoothing=0.1 direction=backward ignore_index=3 misalign=1",
    "rows=200 cols=77 smoothing=0.25 reduction=mean dtype=f16 ignore_index=5",
    "rows=9 cols=200 smoothing=1 reduction=mean direction=backward",
    "rows=1 cols=9 weighted=1 smoothing=0.1",
    "rows=33 cols=1000 weighted=1 smoothing=0.1 dtype=bf16",
    "rows=33 cols=1000 weighted=1 smoothing=0.1 dtype=f16 direction=backward",
    "rows=5 cols=1001 weighted=1 smoothing=0.5 dtype=bf16 misalign=1",
    "rows=5 cols=1001 weighted=1 smoothing=0.5 dtype=f16 stagger=1 direction=backward",
    "rows=3 cols=30001 weighted=1 smoothing=0.1 reduction=mean # tiles of odd rows",
    "rows=3 cols=50257 weighted=1 smoothing=0.1 dtype=f16 direction=backward reduction=mean",
    "rows=2 cols=70000 weighted=1 smoothing=0.1 dtype=bf16 # of several CTAs",
    "rows=17000 cols=3 weighted=1 smoothing=0.1 reduction=mean # the mean by a cluster",
    "rows=320 cols=130 weighted=1 smoothing=0.1 fill=hard",
    "rows=320 cols=130 weighted=1 smoothing=0.1 fill=hard direction=backward dtype=bf16",
    "rows=17 cols=12 smoothing=0.1 target_low=-3 reduction=mean direction=backward",
    "rows=300 cols=17000 impl=row config='threads=128 row_threads=128 vec=4 steps=8 parts=5' # rows of several CTAs",
    "rows=40 cols=17001 dtype=bf16 misalign=1 ignore_index=3 impl=row config='dtype=bf16 threads=128 row_threads=128 "
    "vec=8 steps=4 ragged=1 parts=3'",
    "rows=40 cols=17000 dtype=bf16 misalign=1 impl=row config='dtype=bf16 threads=256 row_threads=256 vec=8 steps=4 "
    "parts=2'                                       # of single elements",
    "rows=60 cols=17003 dtype=f16 weighted=1 reduction=mean target_low=-3 impl=row config='dtype=f16 weighted=1 "
    "reduction=mean threads=128 row_threads=128 vec=8 steps=2 ragged=1 parts=7'",
    "rows=9 cols=70001 weighted=1 smoothing=0.1 reduction=mean impl=row config='weighted=1 smooth=1 reduction=mean "
    "threads=64 row_threads=64 vec=4 steps=4 ragged=1 parts=64' # as many as it has threads, of some tiles each",
    "rows=320 cols=16500 fill=hard smoothing=0.1 impl=row config='smooth=1 threads=128 row_threads=128 vec=4 steps=8 "
    "parts=5'",
    "rows=3 cols=600 impl=row config='threads=64 row_threads=64 vec=4 steps=1 parts=5' # some have nothing",
    "rows=1 cols=530001                             # one row, by CTAs on most SMs",
    "rows=0 cols=8 weighted=1 smoothing=0.1 reduction=mean",
    "rows=0 cols=8                                  # no rows",
    "rows=0 cols=8 reduction=mean                   # the mean of nothing",
    "rows=0 cols=50257 reduction=mean               # of long rows",
    NULL,
};

static const char *const population[] = {
    "rows={tokens} cols={vocabulary} dtype={f32|f16|bf16|bf16} target={i64|i64|i32} reduction={mean|none} "
    "direction={forward|backward}",
    "rows={tokens} cols={hidden} dtype={f32|bf16} direction={forward|backward}",
    NULL,
};

static const test_reject rejects[] = {
    { "rows=-1 cols=8", CKL_INVALID, "crossentropy: rows=-1 is negative" },
    { "rows=4 cols=0", CKL_INVALID, "crossentropy: cols=0 is less than 1" },
    { "rows=13 cols=2171 ldx=2^62", CKL_INVALID, "crossentropy: x of 13x2171 elements, strides 4611686018427387904x1" },
    { "rows=4 cols=8 dtype=i32", CKL_INVALID, "crossentropy: dtype=i32 is none of f32, f16, bf16" },
    { "rows=4 cols=8 target=f32", CKL_INVALID, "crossentropy: target=f32 is none of i64, i32" },
    { "rows=4 cols=8 ldx=7", CKL_INVALID, "crossentropy: ldx=7 is smaller than cols=8" },
    { "rows=4 cols=8 lddx=8", CKL_INVALID, "crossentropy: lddx=8 is not part of a forward problem" },
    { "rows=4 cols=8 lddx=7 direction=backward", CKL_INVALID, "crossentropy: lddx=7 is smaller than cols=8" },
    { "rows=4 cols=8 smoothing=1.5", CKL_INVALID, "crossentropy: smoothing=1.5 is not in 0..1" },
    { "rows=4 cols=8 smoothing=-0.1", CKL_INVALID, "crossentropy: smoothing=-0.100000001 is negative" },
    { "rows=4 cols=8 smoothing=0.1 impl=row config='smooth=0'", CKL_INVALID,
      "crossentropy row: dtype, target, direction, reduction, weighted and smooth are those of the problem" },
    { "rows=4 cols=4096 direction=backward impl=row config='parts=2'", CKL_INVALID,
      "crossentropy row: cluster=1 parts=2, but rows have one CTA" },
    { "rows=4 cols=4096 impl=row config='cluster=2'", CKL_INVALID, "crossentropy row: cluster=2 parts=1, but rows" },
    { "rows=4 cols=4096 impl=row config='threads=64 row_threads=64 steps=16 parts=65'", CKL_INVALID,
      "crossentropy row: cluster=1 parts=65, but rows have one CTA" },
    { "rows=4 cols=40 impl=row config='threads=64 row_threads=32 parts=2'", CKL_INVALID,
      "crossentropy row: cluster=1 parts=2, but rows have one CTA" },
    { "rows=4 cols=8 reduction=mean impl=row config='reduction=mean mean_ctas=3'", CKL_INVALID,
      "crossentropy row: mean_ctas=3 is no power of two up to 8" },
    { "rows=4 cols=8 impl=row config='exact=1'", CKL_INVALID,
      "crossentropy row: exact=1, but rows are taken tile by tile" },
    { "rows=4 cols=8 impl=row config='threads=80'", CKL_INVALID, "crossentropy row: threads=80 is no multiple of 32" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(crossentropy, .operands = operands, .reference = reference, .terms_of = terms, .approximation = ERROR,
              .flops_each = 4);
