/* compare.c - comparing whole outputs, in parallel over slices. */
#include "lab/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "base/threads.h"
#include "lab/host_memory.h"

static const double REFERENCE_FLOPS_PER_CORE = 5e8; // about a second of readable double-precision loops

// a unit of f32's subnormals times 2^10: hard inputs reach 1000, and may multiply a term that was rounded to that unit
static const double HARD_SUBNORMAL = 0x1p-139;

enum {
    REFERENCES_BYTES_MAX = 1 << 30,
    ELEMENT_FLOPS = 30,   // the cost of comparing an element, beside its reference
    BLOCK_BYTES = 1 << 20 // what a thread compares at a time
};

/* A slice that is out of bounds somewhere. */
typedef struct finding {
    int64_t slice, j;
    double got, expected, bound;
} finding;

static double round_to(ckl_dtype dtype, double x)
{
    double storage = 0;
    dtype_write(dtype, &storage, 0, x);
    return dtype_read(dtype, &storage, 0);
}

/* All scalars are multiples of 1/16 up to 16, so that their products with small integers are exact. */
static bool scalars_are_small(const test_case *c)
{
    for (int i = 0; i < c->test->line->problem.count; i++) {
        const field *f = &c->test->line->problem.rows[i];
        if (f->kind != FIELD_float)
            continue;
        float x;
        memcpy(&x, (const char *)c->problem + f->offset, sizeof x);
        if (!(fabsf(x) <= 16) || rintf(x * 16) != x * 16)
            return false;
    }
    return true;
}

tolerance tolerance_of(const test_case *c, ckl_dtype output)
{
    double approximation = adapter_approximation(c->test, c->problem);
    double terms = adapter_terms(c->test, c->problem), u = output == CKL_F64 ? 0x1p-53 : 0x1p-24;
    double subnormal = output == CKL_F64 ? 0 : c->keys.fill == FILL_HARD ? HARD_SUBNORMAL : 0x1p-149;
    bool small = c->keys.fill == FILL_INTEGERS && approximation == 0 && scalars_are_small(c);
    return (tolerance){ .dtype = output,
                        .exact = small,
                        .rounding = dtype_epsilon(output) / 2,
                        .relative = 4 * sqrt(terms) * u + approximation,
                        .subnormals = dtype_tiny(output) + terms * subnormal };
}

static bool is_bound(double bound)
{
    return bound >= 0 && bound < INFINITY;
}

/* A float as an integer type stores it: truncated; NaN is 0. Anything but 0 is true. */
static double truncated(ckl_dtype dtype, double x)
{
    return dtype == CKL_BOOL ? x != 0 : round_to(dtype, trunc(x));
}

/* Truncation is monotonic: what lies within the bound lies, as an integer, between the truncated ends. */
static bool admits_integer(const tolerance *t, double got, double expected, double magnitude, double *bound)
{
    if (got == truncated(t->dtype, expected))
        return true;
    *bound = t->exact ? 0 : t->relative * magnitude + t->subnormals;
    if (t->dtype == CKL_BOOL)
        return is_bound(*bound) && *bound > 0 && fabs(expected) <= *bound;
    return is_bound(*bound) && got >= truncated(t->dtype, expected - *bound) &&
           got <= truncated(t->dtype, expected + *bound);
}

bool tolerance_admits(const tolerance *t, double got, double expected, double magnitude, double *bound)
{
    *bound = 0;
    if (!dtype_is_float(t->dtype))
        return admits_integer(t, got, expected, magnitude, bound);
    double rounded = round_to(t->dtype, expected);
    bool open = isnan(expected) && magnitude == REFERENCE_OPEN;
    if (open || got == rounded || (isnan(got) && isnan(expected)))
        return true;
    if (!isfinite(expected) || t->exact)
        return false;
    double spread = t->relative * magnitude + t->subnormals;
    *bound = t->rounding * (fabs(expected) + spread) + spread;
    if (!is_bound(*bound))
        return false;
    if (isinf(got)) // overflow is right if the far end of the bound overflows
        return round_to(t->dtype, expected + copysign(*bound, expected)) == got;
    return fabs(got - expected) <= *bound;
}

/* Slice i of a sample: one from each of `count` equal ranges, the first and the last slice among them. */
static int64_t sampled_slice(int64_t i, int64_t count, int64_t slices, int64_t seed)
{
    if (count == slices)
        return i;
    if (i == 0 || i == count - 1)
        return i == 0 ? 0 : slices - 1;
    int64_t begin = i * slices / count, width = (i + 1) * slices / count - begin;
    uint64_t random = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)seed * 0xbf58476d1ce4e5b9;
    return begin + (int64_t)((random >> 16) % (uint64_t)width);
}

static int64_t sample_size(const test_case *c, const slicing *cut, double effort)
{
    double once = c->test->reference_flops ? c->test->reference_flops(c->problem) : adapter_flops(c->test, c->problem);
    double flops = once + ELEMENT_FLOPS * (double)cut->elements_max * (double)cut->count;
    double budget = REFERENCE_FLOPS_PER_CORE * omp_get_max_threads() * (effort > 0 ? effort : 1);
    if (flops <= budget)
        return cut->count;
    return min_i64(cut->count, max_i64(8, (int64_t)(budget / flops * (double)cut->count)));
}

/* One thread's share of a comparison. */
typedef struct tally {
    int64_t elements, bad, open;
    double error_max, ratio_max;
    finding first; // the bad element of the lowest slice
} tally;

static void compare_element(const tolerance *t, finding at, double magnitude, tally *sum)
{
    bool good = tolerance_admits(t, at.got, at.expected, magnitude, &at.bound);
    sum->elements++;
    sum->open += isnan(at.expected) && magnitude == REFERENCE_OPEN;
    if (!good && (sum->bad++ == 0 || at.slice < sum->first.slice))
        sum->first = at;
    double error = fabs(at.got - at.expected);
    if (isfinite(error) && (!good || !t->exact))
        sum->error_max = fmax(sum->error_max, error);
    if (at.bound > 0) // else it is equal, as the type holds it
        sum->ratio_max = fmax(sum->ratio_max, error / at.bound);
}

static void add_tally(const tally *from, tally *sum)
{
    if (from->bad && (sum->bad == 0 || from->first.slice < sum->first.slice))
        sum->first = from->first;
    sum->elements += from->elements;
    sum->bad += from->bad;
    sum->open += from->open;
    sum->error_max = fmax(sum->error_max, from->error_max);
    sum->ratio_max = fmax(sum->ratio_max, from->ratio_max);
}

static void compare_slice(const slicing *cut, const operand_image *o, const tolerance *t, int64_t slice,
                          reference_slice expected, tally *sum)
{
    const void *got = o->after + o->start;
    for (int64_t j = 0; j < expected.count; j++) {
        int64_t index = slicing_index(cut, slice, j);
        finding at = { slice, j, dtype_read(operand_result(&o->info), got, index), expected.value[j], 0 };
        compare_element(t, at, expected.magnitude[j], sum);
    }
}

static reference_slice make_room(int64_t elements)
{
    return (reference_slice){ .value = heap_alloc((size_t)elements, sizeof(double)),
                              .magnitude = heap_alloc((size_t)elements, sizeof(double)) };
}

/*
 * Makes room for the references of an output, unless they are not wanted or too large to keep. Returns the sample's
 * size.
 */
static int64_t open_references(const test_case *c, const slicing *cut, operand_images *images)
{
    const int output = cut->output;
    if (images->references[output])
        return images->reference_count[output];
    int64_t count = sample_size(c, cut, images->effort),
            bytes = 2 * (int64_t)sizeof(double) * cut->elements_max * count;
    if (!images->keep_references || bytes > REFERENCES_BYTES_MAX)
        return count;
    images->references[output] = heap_alloc((size_t)count, sizeof(reference_slice));
    images->reference_count[output] = count;
    return count;
}

/* The reference of slice i of the sample: a kept one, or computed into `room` or into what is kept. */
static reference_slice reference_of(const slicing *cut, const operand_images *images, int64_t i, int64_t slice,
                                    reference_slice room)
{
    reference_slice *kept = images->references[cut->output] ? &images->references[cut->output][i] : NULL;
    if (kept && kept->value)
        return *kept;
    if (kept)
        room = make_room(cut->elements_max);
    reference_slice out = slicing_at(cut, slice, room.value, room.magnitude);
    if (kept)
        *kept = out;
    cut->test->reference(cut->problem, images->host, out);
    return out;
}

/* Elements of so many bytes at `at` that are all 0xff. */
#define COUNT_POISON(type)                                                     \
    static int64_t count_poison_##type(const unsigned char *at, int64_t count) \
    {                                                                          \
        int64_t left = 0;                                                      \
        for (int64_t j = 0; j < count; j++) {                                  \
            type x;                                                            \
            memcpy(&x, at + (size_t)j * sizeof x, sizeof x);                   \
            left += x == (type)-1;                                             \
        }                                                                      \
        return left;                                                           \
    }
COUNT_POISON(uint16_t)
COUNT_POISON(uint32_t)
COUNT_POISON(uint64_t)

/*
 * Was every element of an output written? A float of 0xff bytes is a NaN that hardly any arithmetic makes (negating a
 * NaN does). For integers, and for 8-bit floats that are only moved, 0xff bytes may be a result.
 */
static bool is_written(const operand_image *o, check_result *result)
{
    size_t element = ckl_dtype_bytes(o->info.dtype);
    int64_t left = 0;
    if (element == 1 || !dtype_is_float(o->info.dtype))
        return true;
#pragma omp parallel for reduction(+ : left)
    for (int64_t i = 0; i < operand_run_count(o); i++) {
        operand_run run = operand_run_at(o, i);
        const unsigned char *at = o->after + run.byte;
        left += element == 2   ? count_poison_uint16_t(at, run.count)
                : element == 4 ? count_poison_uint32_t(at, run.count)
                               : count_poison_uint64_t(at, run.count);
    }
    if (left == 0)
        return true;
    if (!*result->fault)
        snprintf(result->fault, sizeof result->fault, "%" PRId64 " of %" PRId64 " elements of %s were not written",
                 left, o->rows * o->columns, o->info.name);
    return false;
}

static void report_wrong(const operand_image *o, const tally *sum, check_result *result)
{
    const finding *f = &sum->first;
    const char *judge = is_bound(f->bound) ? "" : ", which is the reference's own error";
    snprintf(result->fault, sizeof result->fault,
             "%s[slice %" PRId64 ", j %" PRId64 "] is %.9g, expected %.9g, allowed difference %.3g%s; %" PRId64
             " of %" PRId64 " elements compared are wrong",
             o->info.name, f->slice, f->j, f->got, f->expected, f->bound, judge, sum->bad, sum->elements);
}

void compare_output(const test_case *c, operand_images *images, const operand_image *o, int output,
                    check_result *result)
{
    tolerance t = tolerance_of(c, operand_result(&o->info));
    t.relative += images->roundings * t.rounding;
    const slicing cut = slicing_of(c->test, c->problem, output);
    const int64_t slices = cut.count, count = open_references(c, &cut, images);
    const int threads = (int)max_i64(1, min_i64(count, omp_get_max_threads())); // each holds room for a slice
    tally sum = { 0 };
#pragma omp parallel num_threads(threads)
    {
        tally own = { 0 };
        reference_slice room = make_room(cut.elements_max);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < count; i++) {
            int64_t slice = sampled_slice(i, count, slices, c->keys.seed);
            reference_slice expected = reference_of(&cut, images, i, slice, room);
            compare_slice(&cut, o, &t, slice, expected, &own);
        }
        heap_free(room.value);
        heap_free(room.magnitude);
#pragma omp critical
        add_tally(&own, &sum);
    }
    result->slices += slices;
    result->slices_compared += count;
    result->elements += sum.elements;
    result->elements_bad += sum.bad;
    result->elements_open += sum.open;
    result->exact = t.exact;
    result->error_max = fmax(result->error_max, sum.error_max);
    result->ratio_max = fmax(result->ratio_max, sum.ratio_max);
    if (o->info.role == OPERAND_OUT && (sum.bad || count < slices))
        result->passed &= is_written(o, result);
    if (sum.bad && !*result->fault)
        report_wrong(o, &sum, result);
}

void compare_prepare(const test_case *c, operand_images *images)
{
    for (int i = 0, output = 0; i < images->count; i++) {
        if (images->each[i].info.role == OPERAND_IN)
            continue;
        const slicing cut = slicing_of(c->test, c->problem, output++);
        if (!images->host[i])
            continue;
        const int64_t count = open_references(c, &cut, images);
        if (!images->references[cut.output])
            continue;
#pragma omp parallel for schedule(dynamic)
        for (int64_t s = 0; s < count; s++)
            (void)reference_of(&cut, images, s, sampled_slice(s, count, cut.count, c->keys.seed),
                               (reference_slice){ 0 });
    }
}

/* Names the first byte that differs between two images: an element, padding, or a canary. */
static bool report_difference(const operand_image *o, const unsigned char *a, const unsigned char *b, const char *what,
                              check_result *result)
{
    size_t at = 0, element = ckl_dtype_bytes(o->info.dtype), end = o->start + (size_t)o->span * element;
    while (a[at] == b[at])
        at++;
    if (*result->fault)
        return false;
    if (at < o->start || at >= end)
        snprintf(result->fault, sizeof result->fault, "%s %s %zu bytes %s", o->info.name, what,
                 at < o->start ? o->start - at : at - end + 1, at < o->start ? "before its start" : "past its end");
    else
        snprintf(result->fault, sizeof result->fault, "%s %s element %zu of its memory", o->info.name, what,
                 (at - o->start) / element);
    return false;
}

static bool are_equal(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    bool equal = true;
#pragma omp parallel for reduction(&& : equal)
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES)
        equal = equal && memcmp(a + at, b + at, bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES) == 0;
    return equal;
}

static void copy_bytes(unsigned char *to, const unsigned char *from, size_t bytes)
{
#pragma omp parallel for
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES)
        memcpy(to + at, from + at, bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES);
}

bool compare_untouched(const operand_image *o, check_result *result)
{
    if (are_equal(o->image, o->after, o->bytes))
        return true;
    return report_difference(o, o->image, o->after, "is an input but was written at", result);
}

/* Are the canaries intact? For an operand without padding. */
static bool are_canaries_intact(const operand_image *o)
{
    size_t end = o->start + (size_t)o->span * ckl_dtype_bytes(o->info.dtype);
    return memcmp(o->after, o->image, o->start) == 0 && memcmp(o->after + end, o->image + end, o->bytes - end) == 0;
}

/* Puts the elements back as they were before the run: what still differs is padding or a canary. */
bool compare_padding(const operand_image *o, check_result *result)
{
    if (operand_is_dense(o) && are_canaries_intact(o))
        return true;
    unsigned char *restored = host_memory_take(o->bytes);
    if (!restored)
        abort();
    copy_bytes(restored, o->after, o->bytes);
    size_t element = ckl_dtype_bytes(o->info.dtype);
#pragma omp parallel for
    for (int64_t i = 0; i < operand_run_count(o); i++) {
        operand_run run = operand_run_at(o, i);
        memcpy(restored + run.byte, o->image + run.byte, element * (size_t)run.count);
    }
    bool intact = are_equal(restored, o->image, o->bytes);
    if (!intact)
        report_difference(o, o->image, restored, "was written outside of its elements:", result);
    host_memory_give(restored, o->bytes);
    return intact;
}

bool compare_repeated(const operand_image *o, const unsigned char *first, check_result *result)
{
    if (are_equal(first, o->after, o->bytes))
        return true;
    return report_difference(o, first, o->after, "is not written, or not the same in a second run, at", result);
}
