/*
 * unit_calls.c - what a call may pass: operands side by side in one buffer, to the byte, but not one element nearer;
 * scalars of a GEMM left out.
 */
#include <math.h>

#include "unit.h"
#include "cutekernellib/operators/gemm.h"
#include "lab/check.h"
#include "emulated_device.h"
#include "operator_problems.h"

/* Puts the operands one behind the other, each as soon as its elements are aligned; returns the buffer. */
static void *put_side_by_side(check *k)
{
    size_t total = 0, used = 0;
    void *buffer;
    for (int i = 0; i < k->images.count; i++)
        total += k->images.each[i].bytes + sizeof(double);
    assert_ok(ckl_malloc(device, total, &buffer));
    for (int i = 0; i < k->images.count; i++) {
        const operand_image *o = &k->images.each[i];
        if (!k->images.host[i])
            continue;
        used = (size_t)round_up((int64_t)used, (int64_t)ckl_dtype_bytes(o->info.dtype));
        k->set.pointer[i] = (unsigned char *)buffer + used;
        assert_ok(ckl_copy_in(device, k->set.pointer[i], o->image, o->bytes, NULL));
        used += o->bytes;
    }
    return buffer;
}

/* Each output one element nearer to what lies before it. */
static void check_nearer(check *k)
{
    const operand_image *all = k->images.each;
    for (int i = 1; i < k->images.count; i++) {
        unsigned char *at = k->set.pointer[i], *before = k->set.pointer[i - 1];
        if (!at || !before || all[i].info.role == OPERAND_IN || before + all[i - 1].bytes != at)
            continue;
        k->set.pointer[i] = at - ckl_dtype_bytes(all[i].info.dtype);
        assert_fails(check_enqueue(k), CKL_INVALID, "overlaps");
        k->set.pointer[i] = at;
    }
}

TEST(side_by_side)
{
    for (int i = 0; i < COUNT_OF(operator_problems); i++) {
        test_case c;
        check k;
        assert_ok(case_parse(operator_problems[i], &c));
        assert_ok(check_open(&c, device, NULL, &k));
        void *buffer = put_side_by_side(&k);
        if (check_enqueue(&k) != CKL_OK || ckl_stream_synchronize(device, k.stream) != CKL_OK)
            fail_msg("%s: %s", operator_problems[i], ckl_error());
        check_nearer(&k);
        ckl_free(device, buffer);
        check_close(&k);
        case_clear(&c);
    }
}

/*
 * Gradients of the parts of a joint projection, [batch, tokens, 3, heads, d], in memory of the same order; then dk
 * nearer to dq.
 */
TEST(joint_projection)
{
    enum { HEADS = 2, TOKENS = 64, D = 64, PART = HEADS * D * 2 };
    test_case c;
    check k;
    void *joint;
    unsigned char **dk = NULL;
    assert_ok(case_parse(
        "attention direction=backward batch=2 heads=2 q=64 kv=64 d=64 layout=bshd ldq=384 ldk=384 ldv=384", &c));
    assert_ok(check_open(&c, device, NULL, &k));
    assert_ok(ckl_malloc(device, 2 * TOKENS * 3 * PART, &joint));
    for (int i = 0, part = 0; i < k.images.count; i++) {
        const operand_image *o = &k.images.each[i];
        const char *name = o->info.name;
        if (k.images.host[i])
            assert_ok(ckl_copy_in(device, k.set.pointer[i], o->image, o->bytes, NULL));
        if (strcmp(name, "dq") != 0 && strcmp(name, "dk") != 0 && strcmp(name, "dv") != 0)
            continue;
        k.set.pointer[i] = (unsigned char *)joint + PART * part++;
        if (strcmp(name, "dk") == 0)
            dk = (unsigned char **)&k.set.pointer[i];
    }
    if (check_enqueue(&k) != CKL_OK || ckl_stream_synchronize(device, k.stream) != CKL_OK)
        fail_msg("%s", ckl_error());
    *dk -= 16;
    assert_fails(check_enqueue(&k), CKL_INVALID, "overlaps");
    ckl_free(device, joint);
    check_close(&k);
    case_clear(&c);
}

/* Scalars of a GEMM */

enum { N = 64, COUNT = N * N, PITCH = N + 8 };

typedef struct matrices {
    void *a, *b, *c, *d;
} matrices;

static void *filled(float value)
{
    static float host[N * PITCH];
    void *memory;
    for (int i = 0; i < N * PITCH; i++)
        host[i] = value;
    assert_ok(ckl_malloc(device, sizeof host, &memory));
    assert_ok(ckl_copy_in(device, memory, host, sizeof host, NULL));
    return memory;
}

/* A matrix of f16, of which two are as wide as an f32. */
static void *ones(void)
{
    const uint32_t bits = 0x3c003c00;
    float pair;
    memcpy(&pair, &bits, sizeof pair);
    return filled(pair);
}

/* The one value of D. */
static float run_gemm(const matrices *m, const float *alpha, const float *beta)
{
    static float host[COUNT];
    const ckl_gemm_desc desc = { .m = N, .n = N, .k = N, .a = CKL_F16, .c = CKL_F32, .d = CKL_F32 };
    const ckl_gemm_args args = { .a = m->a, .b = m->b, .c = m->c, .d = m->d, .alpha = alpha, .beta = beta };
    assert_ok(ckl_gemm(device, &desc, &args, NULL));
    assert_ok(ckl_copy_out(device, host, m->d, sizeof host, NULL));
    assert_ok(ckl_stream_synchronize(device, NULL));
    for (int i = 1; i < COUNT; i++)
        assert_memory_equal(&host[i], &host[0], sizeof host[0]);
    return host[0];
}

static void free_matrices(matrices *m)
{
    ckl_free(device, m->a);
    ckl_free(device, m->b);
    ckl_free(device, m->c);
    ckl_free(device, m->d);
}

TEST(scalars_left_out)
{
    const float two = 2, nothing = 0;
    matrices m = { ones(), ones(), filled(5), filled(0) };
    assert_true(run_gemm(&m, NULL, NULL) == 69);
    assert_true(run_gemm(&m, &two, NULL) == 133);
    assert_true(run_gemm(&m, NULL, &two) == 74);
    free_matrices(&m);
    m = (matrices){ ones(), ones(), filled((float)NAN), filled(0) };
    assert_true(run_gemm(&m, NULL, &nothing) == 64); // C is there and must not be read
    assert_true(isnan(run_gemm(&m, NULL, NULL)));
    free_matrices(&m);
}

/* D may be C; neither a part of it nor rows of another pitch. */
TEST(d_over_c)
{
    matrices m = { ones(), ones(), filled(5), NULL };
    m.d = m.c;
    assert_true(run_gemm(&m, NULL, NULL) == 69);
    ckl_gemm_desc desc = { .m = N, .n = N, .k = N, .a = CKL_F16, .c = CKL_F32, .d = CKL_F32 };
    ckl_gemm_args args = { .a = m.a, .b = m.b, .c = m.c, .d = (float *)m.c + N };
    assert_fails(ckl_gemm(device, &desc, &args, NULL), CKL_INVALID, "gemm: d overlaps c without being the same tensor");
    desc.ldd = PITCH;
    args.d = m.c;
    assert_fails(ckl_gemm(device, &desc, &args, NULL), CKL_INVALID, "gemm: d overlaps c without being the same tensor");
    m.d = NULL;
    free_matrices(&m);
}

RUN_TESTS(open_device, close_device)
