/*
 * unit_invariant.c - gemm with batch_invariant=1: a row of D has the same bits whatever m is. A program's argument
 * names another device than the emulated H200: "cuda".
 */
#include "unit.h"
#include "base/math.h"
#include "base/random.h"
#include "cutekernellib/cutekernellib.h"
#include "emulated_device.h"

enum { M_MOST = 300, RESULT_BYTES = 4 };

/* A problem, and what makes numbers near 1 of random bits. */
typedef struct invariant_case {
    ckl_gemm_desc desc;
    uint32_t base, mask;
} invariant_case;

static const invariant_case cases[] = {
    { { .n = 16, .k = 8192, .a = CKL_F16 }, 0x3400, 0x83ff },
    { { .n = 72, .k = 1031, .a = CKL_BF16 }, 0x3e80, 0x807f }, // odd rows
    { { .n = 5, .k = 260, .a = CKL_F32 }, 0x3f000000, 0x807fffff },
    { { .n = 72, .k = 1040, .a = CKL_E4M3 }, 0x30, 0x8f },
    { { .n = 72, .k = 1040, .a = CKL_E4M3, .accumulation = CKL_GEMM_ACCURATE }, 0x30, 0x8f },
    { { .n = 72, .k = 2048, .a = CKL_F16, .b = CKL_U8 }, 0x2000, 0x9fff }, // of weights any bits
    { { .n = 72, .k = 1032, .a = CKL_F16, .layout = CKL_GEMM_NN, .bias = true, .activation = CKL_ACTIVATION_GELU },
      0x3400,
      0x83ff },
};

static void *random_numbers(const invariant_case *c, int64_t count, uint64_t seed)
{
    const size_t bytes = (size_t)ckl_dtype_bytes(c->desc.a);
    unsigned char *host = malloc((size_t)count * bytes);
    void *there = NULL;
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++) {
        uint32_t x = c->base | ((uint32_t)(random_at(seed, (uint64_t)i) >> 32) & c->mask);
        memcpy(host + (size_t)i * bytes, &x, bytes); // little-endian: the low bytes
    }
    assert_ok(ckl_malloc(device, (size_t)count * bytes, &there));
    assert_ok(ckl_copy_in(device, there, host, (size_t)count * bytes, NULL));
    free(host);
    return there;
}

/* The first m rows of D, in f32. */
static void run(const invariant_case *c, int64_t m, const void *a, const void *b, const void *bias, float *d)
{
    ckl_gemm_desc desc = c->desc;
    const size_t bytes = (size_t)(m * desc.n) * RESULT_BYTES;
    void *out = NULL;
    desc.m = m;
    desc.d = CKL_F32;
    desc.batch_invariant = true;
    assert_ok(ckl_malloc(device, bytes, &out));
    ckl_gemm_args args = { .a = a, .b = b, .bias = desc.bias ? bias : NULL, .d = out };
    assert_ok(ckl_gemm(device, &desc, &args, NULL));
    assert_ok(ckl_copy_out(device, d, out, bytes, NULL));
    ckl_free(device, out);
}

TEST(rows)
{
    static const int64_t rows[] = { 1, 2, 17, 64, 130 };
    static float all[M_MOST * 72], some[M_MOST * 72];
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const invariant_case *c = &cases[i];
        void *a = random_numbers(c, M_MOST * c->desc.k, 1), *b = random_numbers(c, c->desc.n * c->desc.k, 2);
        void *bias = random_numbers(&cases[2], c->desc.n, 3);
        run(c, M_MOST, a, b, bias, all);
        for (int j = 0; j < COUNT_OF(rows); j++) {
            run(c, rows[j], a, b, bias, some);
            if (memcmp(some, all, (size_t)(rows[j] * c->desc.n) * RESULT_BYTES) != 0)
                fail_msg("case %d: with m=%d rows of D are others than with m=%d", i, (int)rows[j], M_MOST);
        }
        ckl_free(device, a);
        ckl_free(device, b);
        ckl_free(device, bias);
    }
}

int main(int argc, char **argv)
{
    device_name = argc > 1 ? argv[1] : device_name;
    return run_enlisted(open_device, close_device);
}
