/*
 * unit_plan_cache.c - what plans share and what is kept: kernels by config, plans by the fields of the desc, each up to
 * a limit.
 */
#include <time.h>

#include "unit.h"
#include "counting_operator.h"
#include "cutekernellib/cutekernellib.h"
#include "lab/clock.h"
#include "operators/operators.h"
#include "plan/desc.h"

TEST(sharing)
{
    plan_forget_device(&device);
    loads = unloads = 0;
    ckl_plan *a = plan_of(4, NULL), *b = plan_of(8, NULL), *c = plan_of(5, NULL);
    assert_int_equal(loads, 2);
    ckl_plan_free(a);
    ckl_plan_free(b);
    ckl_plan_free(c);
    ckl_plan_free(plan_of(6, NULL)); // kept though unused
    assert_int_equal(loads, 2);
    assert_int_equal(unloads, 0);
    plan_forget_device(&device);
    assert_int_equal(unloads, 2);
}

/* A kernel whose cluster no part of the GPU can hold is refused, and not kept. */
TEST(no_room)
{
    loads = unloads = resident = 0;
    ckl_plan *plan = NULL;
    assert_fails(plan_build(&device, &op, &(op_desc){ .n = 4 }, NULL, &plan), CKL_UNSUPPORTED,
                 "no cluster of 1 CTAs finds room on counter");
    assert_null(plan);
    assert_int_equal(loads, unloads);
    resident = 1;
    ckl_plan_free(plan_of(4, NULL));
    plan_forget_device(&device);
    assert_int_equal(loads, unloads);
}

TEST(once)
{
    loads = launches = 0;
    for (int i = 0; i < 3; i++)
        assert_ok(plan_once(&device, &op, &(op_desc){ .n = 4 }, &op, NULL));
    assert_int_equal(loads, 1);
    assert_int_equal(launches, 3);
    assert_int_equal(plan_once(&device, &op, &(op_desc){ .n = -1 }, &op, NULL), CKL_INVALID);
    plan_forget_device(&device);
}

static void run_once(int64_t n)
{
    assert_ok(plan_once(&device, &op, &(op_desc){ .n = n }, &op, NULL));
}

/* 4096 plans of the one-call form are kept; one more takes the place of another. Twice: forgetting begins anew. */
TEST(once_keeps)
{
    enum { KEPT = 4096 };
    for (int round = 0; round < 2; round++) {
        choices = 0;
        for (int repeat = 0; repeat < 3; repeat++)
            for (int i = 1; i <= KEPT; i++)
                run_once(2 * i);
        assert_int_equal(choices, KEPT);
        for (int repeat = 0; repeat < 2; repeat++)
            run_once(2 * (KEPT + 1)); // kept itself
        assert_int_equal(choices, KEPT + 1);
        for (int i = 1; i <= KEPT + 1; i++)
            run_once(2 * i);
        assert_in_range(choices, KEPT + 2, 2 * KEPT); // one made room; now others do, for it
        plan_forget_device(&device);
    }
}

/* Plans are told apart by device and operator too, and forgotten by device. */
TEST(once_tells_apart)
{
    ckl_device other_device = device;
    operator_info other_op = op;
    choices = loads = unloads = 0;
    for (int repeat = 0; repeat < 2; repeat++) {
        run_once(4);
        assert_ok(plan_once(&other_device, &op, &(op_desc){ .n = 4 }, &op, NULL));
        assert_ok(plan_once(&device, &other_op, &(op_desc){ .n = 4 }, &op, NULL));
    }
    assert_int_equal(choices, 3);
    assert_int_equal(loads, 2); // kernels go by device
    plan_forget_device(&device);
    assert_int_equal(unloads, 1);
    assert_ok(plan_once(&other_device, &op, &(op_desc){ .n = 4 }, &op, NULL));
    assert_int_equal(choices, 3);
    plan_forget_device(&other_device);
    assert_int_equal(unloads, 2);
}

static ckl_status hand_out(ckl_device *d, size_t bytes, void **memory)
{
    *memory = malloc(bytes);
    return *memory ? CKL_OK : CKL_NO_MEMORY;
}

static void take_back(ckl_device *d, void *memory)
{
    free(memory);
}

static ckl_status set_bytes(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream stream)
{
    memset(to, byte, bytes);
    return CKL_OK;
}

static ckl_status need_not_wait(ckl_device *d, ckl_stream stream)
{
    return CKL_OK;
}

static ckl_status make_stream(ckl_device *d, ckl_stream *stream)
{
    *stream = NULL;
    return CKL_OK;
}

static void end_stream(ckl_device *d, ckl_stream stream)
{
}

static int64_t needed_bytes(const ckl_plan *plan)
{
    return ((const op_desc *)plan->desc)->n == 4 ? 64 : 0;
}

/* A plan with a workspace serves one stream, any other plan all of them. */
TEST(workspace_of_a_stream)
{
    device_ops ops = counting_ops;
    ops.alloc = hand_out;
    ops.release = take_back;
    ops.fill = set_bytes;
    ops.synchronize = need_not_wait;
    ops.stream_create = make_stream;
    ops.stream_destroy = end_stream;
    ckl_device own = { &ops, device.info };
    implementation impl = first;
    impl.workspace_bytes = needed_bytes;
    const implementation *const all[] = { &impl, NULL };
    operator_info with_workspace = op;
    with_workspace.implementations = all;
    const ckl_stream streams[] = { (ckl_stream)&loads, (ckl_stream)&unloads };
    for (int64_t n = 4; n <= 8; n += 4) {
        choices = 0;
        for (int i = 0; i < 6; i++)
            assert_ok(plan_once(&own, &with_workspace, &(op_desc){ .n = n }, &op, streams[i % 2]));
        assert_int_equal(choices, n == 4 ? 2 : 1);
    }
    plan_forget_device(&own);
}

static void use_config(int number)
{
    char force[64];
    snprintf(force, sizeof force, "first threads=%d vector=%d", 32 * (number % 32 + 1), number / 32 + 1);
    ckl_plan_free(plan_of(12, force));
}

/* A hundred configs in turn: of those without users 64 stay loaded, those that were used last. */
TEST(idle_kernels)
{
    enum { CONFIGS = 100, IDLE = 64 };
    ckl_plan *used = plan_of(12, "first vector=6"), *also = plan_of(12, "first vector=6");
    loads = unloads = 0;
    for (int i = 0; i < CONFIGS; i++) {
        use_config(i);
        assert_int_equal(loads, i + 1);
        assert_int_equal(unloads, i < IDLE ? 0 : i + 1 - IDLE);
    }
    for (int i = CONFIGS - 1; i >= CONFIGS - IDLE; i--)
        use_config(i);
    assert_int_equal(loads, CONFIGS);
    use_config(CONFIGS - IDLE - 1);
    assert_int_equal(loads, CONFIGS + 1);
    ckl_plan_free(used);
    ckl_plan_free(also);
    plan_forget_device(&device);
    assert_int_equal(unloads, loads + 1);
}

/* A set counts from when it is ready, and the time that it took. */
TEST(counted_sets)
{
    const kernel_cache_sums before = kernel_cache_count(&device);
    const double begin = clock_seconds();
    ckl_plan *plan = plan_of(12, "first threads=64 vector=3");
    const double elapsed = clock_seconds() - begin;
    const kernel_cache_sums after = kernel_cache_count(&device);
    assert_int_equal(ready_at_load, before.sets);
    assert_int_equal(after.sets, before.sets + 1);
    assert_true(after.seconds > before.seconds && after.seconds < before.seconds + elapsed);
    ckl_plan_free(plan);
}

/* Descs are equal if their fields are, whatever their padding holds. */
TEST(padding_is_no_key)
{
    op_desc d;
    choices = 0;
    for (int fill = 0x00; fill <= 0xff; fill += 0xff) {
        memset(&d, fill, sizeof d);
        d.n = 4;
        d.dtype = CKL_F16;
        assert_ok(plan_once(&device, &op, &d, &op, NULL));
    }
    assert_int_equal(choices, 1);
    d.dtype = CKL_BF16; // the fields themselves are
    assert_ok(plan_once(&device, &op, &d, &op, NULL));
    assert_int_equal(choices, 2);
    plan_forget_device(&device);
}

#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define PADDING_IS_KNOWN 1
#endif
#endif

/*
 * The keys of all operators hold all bytes of their descs but the padding. Of elementwise all up to its last member,
 * another of the struct that an array before it is made of: gcc 12 takes its padding for values.
 */
TEST(key_is_whole)
{
#ifdef PADDING_IS_KNOWN
#define CHECK_KEY(op, type, bytes)                                       \
    {                                                                    \
        type desc, key;                                                  \
        memset(&desc, 1, sizeof desc);                                   \
        plan_desc_key(&op##_operator, &desc, &key);                      \
        __builtin_clear_padding(&desc);                                  \
        if (memcmp(&desc, &key, bytes) != 0)                             \
            fail_msg("the key of " #op " does not hold its whole desc"); \
    }
    CHECK_KEY(add, ckl_add_desc, sizeof desc)
    CHECK_KEY(attention, ckl_attention_desc, sizeof desc)
    CHECK_KEY(attention_decode, ckl_attention_decode_desc, sizeof desc)
    CHECK_KEY(conv, ckl_conv_desc, sizeof desc)
    CHECK_KEY(crossentropy, ckl_crossentropy_desc, sizeof desc)
    CHECK_KEY(elementwise, ckl_elementwise_desc, offsetof(ckl_elementwise_desc, out))
    CHECK_KEY(gemm, ckl_gemm_desc, sizeof desc)
    CHECK_KEY(groupnorm, ckl_groupnorm_desc, sizeof desc)
    CHECK_KEY(layernorm, ckl_norm_desc, sizeof desc)
    CHECK_KEY(permute, ckl_permute_desc, sizeof desc)
    CHECK_KEY(reduce, ckl_reduce_desc, sizeof desc)
    CHECK_KEY(rmsnorm, ckl_norm_desc, sizeof desc)
    CHECK_KEY(rope, ckl_rope_desc, sizeof desc)
    CHECK_KEY(softmax, ckl_softmax_desc, sizeof desc)
    CHECK_KEY(transpose, ckl_transpose_desc, sizeof desc)
#else
    skip(); // this compiler cannot tell
#endif
}

/* A second plan of a desc must not describe or load again; 20 us is the promise, on one busy core allow more. */
TEST(second_build_is_quick)
{
    enum { REPEATS = 1000 };
    ckl_plan_free(plan_of(4, NULL));
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < REPEATS; i++)
        ckl_plan_free(plan_of(4, NULL));
    clock_gettime(CLOCK_MONOTONIC, &end);
    double us = ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3) / REPEATS;
    print_message("second plan_build: %.2f us\n", us);
#ifndef __SANITIZE_ADDRESS__ // slow, and beside another half of the tests
    assert_true(us < 200);
#endif
    plan_forget_device(&device);
}

RUN_TESTS(NULL, NULL)
