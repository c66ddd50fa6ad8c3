/*
 * accuracy.h - tensors for tests of accuracy: the values that device memory holds, as doubles, so that a reference
 * starts from the inputs as they were rounded. One emulated device and one stream of its own per test program.
 */
#pragma once

#include <math.h>

#include "unit.h"
#include "base/dtype.h"
#include "base/math.h"
#include "cutekernellib/device.h"

enum { SEEDS = 5, SMALL = 1 << 16 }; // problems of more elements get one seed
enum { TENSORS_MAX = 16 };           // of a check

static const ckl_dtype float_types[] = { CKL_F32, CKL_F16, CKL_BF16 };
static ckl_device *device;
static ckl_stream stream;
static int left_to_full; // runs that this program did not make

/* A tensor on the device and what it holds. Absent: all 0. Those that a check has made free_tensors() frees. */
typedef struct tensor_of_test {
    ckl_dtype dtype;
    int64_t count;
    double *value;
    void *memory;
} tensor_of_test;

static tensor_of_test tensors[TENSORS_MAX];
static int tensor_count;

static inline int open_device(void **state)
{
    return ckl_device_open("emulator:h200", &device) != CKL_OK || ckl_stream_create(device, &stream) != CKL_OK;
}

static inline int close_device(void **state)
{
    ckl_stream_destroy(device, stream);
    ckl_device_close(device);
    if (left_to_full)
        printf("%d left to --full\n", left_to_full);
    left_to_full = 0; // said
    return 0;
}

static inline size_t bytes_of(const tensor_of_test *t)
{
    return (size_t)t->count * ckl_dtype_bytes(t->dtype);
}

/* Values become what the type holds of them, on the device and in t->value. */
static inline void write_tensor(tensor_of_test *t)
{
    unsigned char *raw = malloc(bytes_of(t) + 1);
    for (int64_t i = 0; i < t->count; i++) {
        dtype_write(t->dtype, raw, i, t->value[i]);
        t->value[i] = dtype_read(t->dtype, raw, i);
    }
    assert_ok(ckl_copy_in(device, t->memory, raw, bytes_of(t), stream));
    free(raw);
}

/* Poisoned with NaN: what a kernel does not write fails any comparison. */
static inline tensor_of_test make_tensor(ckl_dtype dtype, int64_t count)
{
    tensor_of_test t = { dtype, count, calloc((size_t)count, sizeof *t.value), NULL };
    assert_ok(ckl_malloc(device, bytes_of(&t), &t.memory));
    for (int64_t i = 0; i < count; i++)
        t.value[i] = NAN;
    write_tensor(&t);
    assert_in_range(tensor_count, 0, TENSORS_MAX - 1);
    return tensors[tensor_count++] = t;
}

static inline void read_tensor(tensor_of_test *t)
{
    unsigned char *raw = malloc(bytes_of(t) + 1);
    assert_ok(ckl_copy_out(device, raw, t->memory, bytes_of(t), stream));
    assert_ok(ckl_stream_synchronize(device, stream));
    for (int64_t i = 0; i < t->count; i++)
        t->value[i] = dtype_read(t->dtype, raw, i);
    free(raw);
}

static inline void free_tensors(void)
{
    while (tensor_count > 0) {
        const tensor_of_test *t = &tensors[--tensor_count];
        ckl_free(device, t->memory);
        free(t->value);
    }
}

static inline double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005 + 1442695040888963407;
    return (double)(*seed >> 11) * 0x1p-53;
}

/* Nearly normal: the sum of four uniform numbers. */
static inline tensor_of_test make_random(ckl_dtype dtype, int64_t count, uint64_t seed, double mean, double deviation)
{
    tensor_of_test t = make_tensor(dtype, count);
    for (int64_t i = 0; i < count; i++) {
        double sum = uniform(&seed) + uniform(&seed) + uniform(&seed) + uniform(&seed);
        t.value[i] = mean + deviation * (sum - 2) * 1.7320508;
    }
    write_tensor(&t);
    return t;
}

/* The tolerance, absolute up to 1 and relative above, is for what comes before the last rounding to the output. */
static inline void assert_near(const char *what, ckl_dtype dtype, double got, double expected, double tolerance)
{
    if (got == expected || (isnan(got) && isnan(expected)))
        return;
    if (!(fabs(got - expected) <= tolerance * fmax(1, fabs(expected)) + dtype_epsilon(dtype) / 2 * fabs(expected)))
        fail_msg("%s is %.9g, expected %.9g within %g", what, got, expected, tolerance);
}

/* Whether so many long runs are for `make test-full` alone, and this is not it; then they are counted. */
static inline bool only_in_full(int runs)
{
    bool only = getenv("CKL_TEST_FULL") == NULL;
    left_to_full += only ? runs : 0;
    return only;
}

static inline int seeds_for(int64_t elements)
{
    int seeds = elements <= SMALL ? SEEDS : 1;
    return seeds > 1 && only_in_full(seeds - 1) ? 1 : seeds;
}
