/*
 * unit_rejects.c - what every operator must refuse, whatever it computes: outputs that overlap other tensors partly,
 * pointers that are not aligned to their elements, and tensors that the problem does not have. Nothing is launched
 * then.
 */
#include <math.h>

#include "unit.h"
#include "cutekernellib/operators/elementwise.h"
#include "cutekernellib/operators/rope.h"
#include "lab/check.h"
#include "emulated_device.h"
#include "operator_problems.h"

enum { SHIFT = 8 }; // bytes: aligned to any element

/* With tensors that other problems of the operator have, and these do not. */
static const char *const lines_without[] = {
    "attention q=64 kv=64",
    "attention_decode kv=64",
    "conv n=2 c=16 h=6 w=6 k=16",
    "conv n=2 c=16 h=6 w=6 k=16 direction=data",
    "conv n=2 c=16 h=6 w=6 k=16 direction=weight",
    "crossentropy rows=8 cols=64",
    "crossentropy rows=8 cols=64 direction=backward",
    "gemm m=64 n=64 k=64",
    "rope tokens=8",
    "softmax shape=8x64",
    "softmax shape=8x64 direction=backward",
};

static int64_t writes(void)
{
    device_counter counters[64];
    int count = device->ops->counters(device, counters, COUNT_OF(counters));
    for (int i = 0; i < count; i++)
        if (strcmp(counters[i].name, "global write sectors") == 0)
            return counters[i].value;
    return 0;
}

/* Runs the case with one pointer changed. */
static void assert_refused(check *k, int which, void *pointer, const char *words)
{
    void *before = k->set.pointer[which];
    k->set.pointer[which] = pointer;
    device->ops->counters_reset(device);
    ckl_status status = check_enqueue(k);
    if (status != CKL_INVALID || !strstr(ckl_error(), words) || writes())
        fail_msg("%s: %s: status %d, \"%s\"", k->c->test->op->name, k->images.each[which].info.name, (int)status,
                 status ? ckl_error() : "");
    k->set.pointer[which] = before;
}

static bool is_there(const check *k, int i)
{
    return k->images.host[i] != NULL;
}

static void check_overlaps(check *k)
{
    for (int out = 0; out < k->images.count; out++)
        for (int other = 0; other < k->images.count; other++) {
            bool written = k->images.each[out].info.role != OPERAND_IN;
            if (out == other || !written || !is_there(k, out) || !is_there(k, other))
                continue;
            if (k->images.each[other].bytes > SHIFT)
                assert_refused(k, out, (unsigned char *)k->set.pointer[other] + SHIFT, "overlaps");
        }
}

static void check_alignment(check *k)
{
    for (int i = 0; i < k->images.count; i++)
        if (is_there(k, i) && ckl_dtype_bytes(k->images.each[i].info.dtype) > 1)
            assert_refused(k, i, (unsigned char *)k->set.pointer[i] + 1, "is not aligned to");
}

static void check_absent(check *k)
{
    static double other;
    for (int i = 0; i < k->images.count; i++)
        if (!k->set.pointer[i])
            assert_refused(k, i, &other, "is not part of");
}

/* D of the layout of A, which for C would be allowed. */
static void check_in_place_of_a(check *k)
{
    enum { A, D = 4 };
    assert_refused(k, D, k->set.pointer[A], "d overlaps a");
}

static void for_each(int count, const char *const *problems, void (*refuses)(check *k))
{
    for (int i = 0; i < count; i++) {
        test_case c;
        check k;
        assert_ok(case_parse(problems[i], &c));
        assert_ok(check_open(&c, device, NULL, &k));
        refuses(&k);
        check_close(&k);
        case_clear(&c);
    }
}

TEST(partial_overlap)
{
    for_each(COUNT_OF(operator_problems), operator_problems, check_overlaps);
}

TEST(misaligned)
{
    for_each(COUNT_OF(operator_problems), operator_problems, check_alignment);
}

TEST(absent)
{
    for_each(COUNT_OF(lines_without), lines_without, check_absent);
}

TEST(in_place)
{
    static const char *const line[] = { "gemm m=64 n=64 k=64" };
    for_each(1, line, check_in_place_of_a);
}

/* Operands that an expression does not mention, in the desc and in a call; ranks that there are not. */
TEST(unmentioned)
{
    ckl_elementwise_desc desc = { .expr = "neg(x)", .rank = 1, .shape = { 4 }, .out = { .stride = { 1 } } };
    desc.in[0].stride[0] = desc.in[1].stride[0] = 1;
    assert_fails(ckl_elementwise(device, &desc, &(ckl_elementwise_args){ 0 }, NULL), CKL_INVALID,
                 "elementwise: in[1] is not part of an expression of 1 operands");
    desc.in[1].stride[0] = 0;
    desc.rank = -1;
    assert_fails(ckl_elementwise(device, &desc, &(ckl_elementwise_args){ 0 }, NULL), CKL_INVALID,
                 "elementwise: rank=-1 is not in 0..5");
    desc.rank = CKL_ELEMENTWISE_RANK_MAX + 1;
    assert_fails(ckl_elementwise(device, &desc, &(ckl_elementwise_args){ 0 }, NULL), CKL_INVALID,
                 "elementwise: rank=6 is not in 0..5");
    desc.rank = 1;
    float x[4], y[4];
    assert_fails(ckl_elementwise(device, &desc, &(ckl_elementwise_args){ { x, NULL, x }, y }, NULL), CKL_INVALID,
                 "is not part of this expression");
}

/* q and k side by side in one buffer, in place; then overlapping by a head. */
TEST(joint_projection)
{
    enum { TOKENS = 8, DIM = 64, HEADS = 4, K_HEADS = 2, PITCH = (HEADS + K_HEADS) * DIM };
    void *joint, *positions;
    ckl_rope_desc desc = { .dtype = CKL_F32, .tokens = TOKENS, .heads = HEADS, .k_heads = K_HEADS, .head_dim = DIM };
    desc.ldq = desc.ldk = desc.ldyq = desc.ldyk = PITCH;
    assert_ok(ckl_malloc(device, TOKENS * PITCH * sizeof(float), &joint));
    assert_ok(ckl_malloc(device, TOKENS * sizeof(int32_t), &positions));
    assert_ok(device->ops->fill(device, joint, 0, TOKENS * PITCH * sizeof(float), NULL));
    assert_ok(device->ops->fill(device, positions, 0, TOKENS * sizeof(int32_t), NULL));
    float *q = joint, *k = q + (ptrdiff_t)HEADS * DIM;
    assert_ok(ckl_rope(device, &desc, &(ckl_rope_args){ q, k, positions, q, k }, NULL));
    k -= DIM;
    assert_fails(ckl_rope(device, &desc, &(ckl_rope_args){ q, k, positions, q, k }, NULL), CKL_INVALID, "overlaps");
    ckl_free(device, joint);
    ckl_free(device, positions);
}

/* a, b and y as columns of one matrix; then y, and y and its pitch, one element too far. */
TEST(side_by_side)
{
    enum { ROWS = 3, N = 8, PITCH = 3 * N };
    float joint[(ROWS + 1) * PITCH];
    const float *a = joint, *b = a + N;
    plan_tensor t[] = { plan_matrix("a", CKL_F32, ROWS, N, PITCH), plan_matrix("b", CKL_F32, ROWS, N, PITCH),
                        plan_output(plan_matrix("y", CKL_F32, ROWS, N, PITCH)) };
    const void *pointers[] = { a, b, b + N }, *before[] = { b, b + N, a }, *in_place[] = { a, b, b },
               *past[] = { a, b, b + N + 1 }, *short_of[] = { a, b, b + N - 1 };
    assert_ok(plan_check_pointers("add", t, COUNT_OF(t), pointers));
    assert_ok(plan_check_pointers("add", t, COUNT_OF(t), before));
    assert_ok(plan_check_pointers("add", t, COUNT_OF(t), in_place));
    assert_fails_with(plan_check_pointers("add", t, COUNT_OF(t), past), CKL_INVALID, // the next row of a
                      "add: y overlaps a without being the same tensor");
    assert_fails(plan_check_pointers("add", t, COUNT_OF(t), short_of), CKL_INVALID,
                 "add: y overlaps b without being the same tensor");
    t[2].stride[0]++;
    assert_int_equal(plan_check_pointers("add", t, COUNT_OF(t), pointers), CKL_INVALID);
}

/* A tensor of two modes, and what it consists of: bit i is byte i. */
typedef struct small_tensor {
    plan_tensor t;
    uint64_t bytes;
} small_tensor;

static int list_small(ckl_dtype dtype, small_tensor *all)
{
    static const int64_t strides[] = { 0, 1, 2, 5 };
    enum { STRIDES = COUNT_OF(strides), EXTENT = 3, KINDS = STRIDES * EXTENT };
    for (int i = 0; i < KINDS * KINDS; i++) {
        const int of[] = { i % KINDS, i / KINDS };
        const int64_t shape[] = { 1 + of[0] % EXTENT, 1 + of[1] % EXTENT },
                      stride[] = { strides[of[0] / EXTENT], strides[of[1] / EXTENT] };
        const int64_t element = (int64_t)ckl_dtype_bytes(dtype);
        all[i] = (small_tensor){ plan_apart(plan_strided("x", dtype, 2, shape, stride)), 0 };
        for (int64_t j = 0; j < shape[0] * shape[1]; j++)
            all[i].bytes |= ((1ULL << element) - 1) << (j % shape[0] * stride[0] + j / shape[0] * stride[1]) * element;
    }
    return KINDS * KINDS;
}

/* What is said to lie side by side shares no byte, and two columns are not all that is. */
TEST(no_shared_byte)
{
    enum { SMALL_MAX = 256, DISTANCES = 24 };
    static small_tensor all[SMALL_MAX];
    static _Alignas(16) char memory[128];
    for (int dtype = 0; dtype < 2; dtype++) {
        const ckl_dtype type = dtype ? CKL_F16 : CKL_I8;
        const int count = list_small(type, all);
        int woven = 0; // taken though each begins before the other one ends
        for (int i = 0; i < count * count; i++) {
            const small_tensor *x = &all[i % count], *y = &all[i / count];
            const plan_tensor t[] = { x->t, plan_output(y->t) };
            for (int at = 0; at < DISTANCES; at += 1 + dtype) {
                const void *pointers[] = { memory, memory + at };
                if (plan_check_pointers("op", t, 2, pointers) != CKL_OK)
                    continue;
                if (x->bytes & y->bytes << at)
                    fail_msg("(%d,%d):(%d,%d) and (%d,%d):(%d,%d) %d bytes behind it", (int)x->t.shape[0],
                             (int)x->t.shape[1], (int)x->t.stride[0], (int)x->t.stride[1], (int)y->t.shape[0],
                             (int)y->t.shape[1], (int)y->t.stride[0], (int)y->t.stride[1], at);
                woven += x->bytes >> at != 0;
            }
        }
        assert_true(woven > 100);
    }
}

/* As many threads as a CTA may have, and a warp more. */
TEST(threads)
{
    static const char *const crowded[] = {
        "add n=9999 impl=vector config='threads=%d'",
        "attention impl=naive config='threads=%d'",
        "attention direction=backward impl=naive_backward config='threads=%d'",
        "attention_decode impl=naive config='threads=%d'",
        "conv impl=naive config='threads=%d'",
        "gemm impl=naive config='threads=%d'",
        "rope impl=vector config='threads=%d'",
    };
    for (int i = 0; i < COUNT_OF(crowded); i++)
        for (int threads = 1024; threads <= 1056; threads += 32) {
            char line[128], limit[32];
            test_case c;
            ckl_plan *plan = NULL;
            snprintf(line, sizeof line, crowded[i], threads);
            snprintf(limit, sizeof limit, "threads=%d", threads);
            assert_ok(case_parse(line, &c));
            assert_int_equal(case_plan(&c, device, &plan), threads > 1024 ? CKL_INVALID : CKL_OK);
            assert_true(threads <= 1024 || strstr(ckl_error(), limit));
            ckl_plan_free(plan);
            case_clear(&c);
        }
}

/* What a problem line cannot say: fields of a desc made in C. */
TEST(fields)
{
    ckl_plan *plan = NULL;
    ckl_rope_desc desc = { .dtype = CKL_F32, .tokens = 1, .heads = 1, .head_dim = 64, .style = 7 };
    assert_fails(ckl_rope_plan(device, &desc, &plan), CKL_INVALID, "rope: style=7 is none of half, interleaved");
    desc = (ckl_rope_desc){ .dtype = (ckl_dtype)99, .tokens = 1, .heads = 1, .head_dim = 64 };
    assert_fails(ckl_rope_plan(device, &desc, &plan), CKL_INVALID, "rope: dtype=99 is none of f32, f16, bf16");
    desc.dtype = CKL_DTYPE_DEFAULT;
    assert_fails(ckl_rope_plan(device, &desc, &plan), CKL_INVALID, "rope: dtype=default is none of f32, f16, bf16");
    desc.dtype = CKL_F32;
    desc.theta = NAN;
    assert_fails(ckl_rope_plan(device, &desc, &plan), CKL_INVALID, "rope: theta=nan is not finite");
    desc.theta = 0; // what may be left at 0: theta, scale, positions
    assert_ok(ckl_rope_plan(device, &desc, &plan));
    ckl_plan_free(plan);
}

RUN_TESTS(open_device, close_device)
