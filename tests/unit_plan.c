/* unit_plan.c - choosing, forcing, caching and sharing of plans, on a device that only counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "ir/build.h"
#include "cli/cli.h"
#include "cute/layout.h"
#include "cutekernellib/cutekernellib.h"
#include "operators/operators.h"
#include "plan/cache.h"

/* A device that counts what is loaded on it. */
static int loads, unloads, launches;
static int resident = 1; // clusters that it has room for

static ckl_status count_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    (void)d;
    assert_non_null(strstr(kernel->note, "op "));
    loads++;
    *loaded = (device_kernel *)&loads;
    return CKL_OK;
}

static void count_unload(ckl_device *d, device_kernel *kernel)
{
    (void)d;
    (void)kernel;
    unloads++;
}

static ckl_status count_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    (void)d;
    (void)kernel;
    *count = resident;
    return CKL_OK;
}

static const device_ops counting_ops = { .load = count_load,
                                         .unload = count_unload,
                                         .clusters_resident = count_resident };
static ckl_device device = { &counting_ops,
                             { .id = "counter",
                               .compute_capability = 90,
                               .threads_per_cta_max = 1024,
                               .registers_per_sm = 65536,
                               .smem_per_cta_bytes = 1024 } };

/* An operator with two implementations: "first" wants n even, "second" takes any n up to 100; "third" needs wgmma. */
typedef struct op_desc {
    int64_t n;
    ckl_dtype dtype; // and padding behind it
} op_desc;

#define OP_CONFIG(X)                                \
    X(op_config, int, threads, "128", "64 128", "") \
    X(op_config, int, vector, "1", "1 2 4", "")

typedef struct op_config {
    OP_CONFIG(FIELD_MEMBER)
} op_config;

static const field op_fields[] = { OP_CONFIG(FIELD_ROW) };

static int choices;

static ckl_status choose_first(const void *desc, const ckl_device_info *info, void *config)
{
    (void)info;
    choices++;
    const op_desc *d = desc;
    if (d->n % 2)
        FAIL(CKL_UNSUPPORTED, "op first: n=%" PRId64 " is odd", d->n);
    ((op_config *)config)->vector = 2;
    return CKL_OK;
}

static ckl_status choose_second(const void *desc, const ckl_device_info *info, void *config)
{
    (void)info;
    (void)config;
    if (((const op_desc *)desc)->n > 100)
        FAIL(CKL_UNSUPPORTED, "op second: n=%" PRId64 " is over 100", ((const op_desc *)desc)->n);
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *info, const void *config)
{
    (void)info;
    const op_config *c = config;
    if (((const op_desc *)desc)->n % c->vector)
        FAIL(CKL_UNSUPPORTED, "op first: vector=%d does not divide n", c->vector);
    return CKL_OK;
}

static void describe(const void *config, int kernel)
{
    (void)kernel;
    ir_current()->threads = ((const op_config *)config)->threads;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    (void)plan;
    (void)args;
    (void)stream;
    launches++;
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    if (((op_desc *)desc)->n < 0)
        FAIL(CKL_INVALID, "op: n=%" PRId64 " is negative", ((op_desc *)desc)->n);
    return CKL_OK;
}

static const implementation first = { .name = "first",
                                      .config_bytes = sizeof(op_config),
                                      .config = FIELD_TABLE(op_fields),
                                      .choose = choose_first,
                                      .admit = admit,
                                      .describe = describe,
                                      .launch = launch };
static const implementation second = { .name = "second",
                                       .config_bytes = sizeof(op_config),
                                       .config = FIELD_TABLE(op_fields),
                                       .choose = choose_second,
                                       .describe = describe,
                                       .launch = launch };
static const implementation third = { .name = "third", .choose = choose_second, .target = IR_SM90A };
static const implementation *const implementations[] = { &third, &first, &second, NULL };
static const desc_member members[] = { DESC_MEMBER(op_desc, n), DESC_MEMBER(op_desc, dtype), { 0 } };

static const operator_info op = {
    .name = "op", .desc_bytes = sizeof(op_desc), .members = members, .check = check, .implementations = implementations
};

/* Candidates: vectors of 1 to 6; admit() takes those up to 4; the further from n, the dearer. */

static bool candidate(const void *desc, const ckl_device_info *info, int i, void *config)
{
    (void)desc, (void)info;
    ((op_config *)config)->vector = i + 1;
    return i < 6;
}

static plan_cost cost(const void *desc, const ckl_device_info *info, const void *config)
{
    (void)info;
    double distance = (double)(((const op_desc *)desc)->n - ((const op_config *)config)->vector);
    return (plan_cost){ distance < 0 ? -distance : distance, "distance" };
}

static ckl_status admit_small(const void *desc, const ckl_device_info *info, const void *config)
{
    (void)info;
    if (((const op_desc *)desc)->n > 100)
        FAIL(CKL_UNSUPPORTED, "op ranked: n is more than 100");
    if (((const op_config *)config)->vector > 4)
        FAIL(CKL_INVALID, "op ranked: vector=%d is more than 4", ((const op_config *)config)->vector);
    return CKL_OK;
}

static const implementation ranked = { .name = "ranked",
                                       .config_bytes = sizeof(op_config),
                                       .config = FIELD_TABLE(op_fields),
                                       .candidate = candidate,
                                       .cost = cost,
                                       .admit = admit_small,
                                       .describe = describe,
                                       .launch = launch };
static const implementation *const ranked_alone[] = { &ranked, NULL };
static const operator_info ranked_op = {
    .name = "op", .desc_bytes = sizeof(op_desc), .members = members, .check = check, .implementations = ranked_alone
};

static void expect_vector(int64_t n, const char *force, const char *wanted)
{
    ckl_plan *plan = NULL;
    assert_int_equal(plan_build(&device, &ranked_op, &(op_desc){ .n = n }, force, &plan), CKL_OK);
    assert_string_equal(ckl_plan_text(plan), wanted);
    ckl_plan_free(plan);
}

static void test_candidates(void **state)
{
    (void)state;
    expect_vector(1, NULL, "op ranked threads=128 vector=1");
    expect_vector(3, NULL, "op ranked threads=128 vector=3");
    expect_vector(9, NULL, "op ranked threads=128 vector=4");              // 5 and 6 are not admitted
    expect_vector(3, "ranked vector=2", "op ranked threads=128 vector=2"); // a user may force another
    plan_candidate best[3];
    op_config room;
    op_desc two = { .n = 2 };
    assert_int_equal(plan_rank(&device.info, &ranked, &two, &room, 3, best), 3);
    assert_true(best[0].number == 1 && best[1].number == 0 && best[2].number == 2); // the first among equals
    assert_true(best[0].cost.us == 0 && best[1].cost.us == 1 && best[2].cost.us == 1);
    assert_int_equal(plan_rank(&device.info, &ranked, &two, &room, 1, best), 1);
    assert_true(best[0].number == 1);
    ckl_plan *plan = NULL;
    assert_int_equal(plan_build(&device, &ranked_op, &(op_desc){ .n = 101 }, NULL, &plan), CKL_UNSUPPORTED);
    assert_non_null(strstr(ckl_error(), "op ranked: n is more than 100"));
}

static ckl_plan *plan_of(int64_t n, const char *force)
{
    ckl_plan *plan = NULL;
    if (plan_build(&device, &op, &(op_desc){ .n = n }, force, &plan) != CKL_OK)
        fail_msg("%s", ckl_error());
    return plan;
}

static void expect_text(int64_t n, const char *force, const char *wanted)
{
    ckl_plan *plan = plan_of(n, force);
    assert_string_equal(ckl_plan_text(plan), wanted);
    ckl_plan_free(plan);
}

static void test_choice(void **state)
{
    (void)state;
    expect_text(4, NULL, "op first threads=128 vector=2");
    expect_text(5, NULL, "op second threads=128 vector=1");
    expect_text(4, "second", "op second threads=128 vector=1");
    expect_text(4, "first threads=64", "op first threads=64 vector=2");
    expect_text(5, "first vector=1",
                "op first threads=128 vector=1"); // its choice declines, the forced config does not
}

static void expect_failure(int64_t n, const char *force, ckl_status status, const char *sentence)
{
    ckl_plan *plan = (ckl_plan *)&device;
    assert_int_equal(plan_build(&device, &op, &(op_desc){ .n = n }, force, &plan), status);
    assert_string_equal(ckl_error(), sentence);
    assert_ptr_equal(plan, &device);
}

static void test_failures(void **state)
{
    (void)state;
    expect_failure(
        101, NULL, CKL_UNSUPPORTED,
        "op: no implementation takes this problem on counter\n"
        "op third: the kernel is for sm_90a, counter is sm_90\nop first: n=101 is odd\nop second: n=101 is over 100");
    expect_failure(-1, NULL, CKL_INVALID, "op: n=-1 is negative");
    expect_failure(4, "frist", CKL_INVALID,
                   "op: no implementation 'frist', did you mean 'first'? There are: third first second");
    expect_failure(4, "first vectr=1", CKL_INVALID,
                   "op first: unknown key 'vectr', did you mean 'vector'? Known keys: threads vector");
    expect_failure(5, "first vector=2", CKL_UNSUPPORTED, "op first: vector=2 does not divide n");
}

/* An operator with a view: its implementations and check_args get n / 10, its check what the caller gave. */
static ckl_status view_tenth(const void *desc, void *view)
{
    int64_t n = ((const op_desc *)desc)->n;
    if (n % 10)
        FAIL(CKL_INVALID, "op: n=%" PRId64 " is no multiple of 10", n);
    *(op_desc *)view = (op_desc){ .n = n / 10 };
    return CKL_OK;
}

static ckl_status check_four(const void *view, const void *args)
{
    (void)args;
    assert_int_equal(((const op_desc *)view)->n, 4);
    return CKL_OK;
}

static void test_view(void **state)
{
    (void)state;
    operator_info viewed = op;
    viewed.view = view_tenth;
    viewed.view_bytes = sizeof(op_desc);
    viewed.check_args = check_four;
    ckl_plan *plan = NULL;
    assert_int_equal(plan_build(&device, &viewed, &(op_desc){ .n = 40 }, NULL, &plan), CKL_OK);
    assert_string_equal(ckl_plan_text(plan), "op first threads=128 vector=2");
    assert_int_equal(plan_run(plan, &viewed, &op, NULL), CKL_OK);
    ckl_plan_free(plan);
    plan_forget_device(&device);
    assert_int_equal(plan_build(&device, &viewed, &(op_desc){ .n = 41 }, NULL, &plan), CKL_INVALID);
    assert_string_equal(ckl_error(), "op: n=41 is no multiple of 10");
}

static void test_sharing(void **state)
{
    (void)state;
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
static void test_no_room(void **state)
{
    (void)state;
    loads = unloads = resident = 0;
    ckl_plan *plan = NULL;
    assert_int_equal(plan_build(&device, &op, &(op_desc){ .n = 4 }, NULL, &plan), CKL_UNSUPPORTED);
    assert_non_null(strstr(ckl_error(), "no cluster of 1 CTAs finds room on counter"));
    assert_null(plan);
    assert_int_equal(loads, unloads);
    resident = 1;
    ckl_plan_free(plan_of(4, NULL));
    plan_forget_device(&device);
    assert_int_equal(loads, unloads);
}

static void test_once(void **state)
{
    (void)state;
    loads = launches = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan_once(&device, &op, &(op_desc){ .n = 4 }, &op, NULL), CKL_OK);
    assert_int_equal(loads, 1);
    assert_int_equal(launches, 3);
    assert_int_equal(plan_once(&device, &op, &(op_desc){ .n = -1 }, &op, NULL), CKL_INVALID);
    plan_forget_device(&device);
}

/* Descs are equal if their fields are, whatever their padding holds. */
static void test_padding_is_no_key(void **state)
{
    (void)state;
    op_desc d;
    choices = 0;
    for (int fill = 0x00; fill <= 0xff; fill += 0xff) {
        memset(&d, fill, sizeof d);
        d.n = 4;
        d.dtype = CKL_F16;
        assert_int_equal(plan_once(&device, &op, &d, &op, NULL), CKL_OK);
    }
    assert_int_equal(choices, 1);
    d.dtype = CKL_BF16; // the fields themselves are
    assert_int_equal(plan_once(&device, &op, &d, &op, NULL), CKL_OK);
    assert_int_equal(choices, 2);
    plan_forget_device(&device);
}

#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define PADDING_IS_KNOWN 1
#endif
#endif

/*
 * The keys of all operators hold all bytes of their descs but the padding. Of elementwise all up to its last member, another
 * of the struct that an array before it is made of: gcc 12 takes its padding for values.
 */
static void test_key_is_whole(void **state)
{
    (void)state;
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
    CHECK_KEY(crossentropy, ckl_crossentropy_desc, sizeof desc)
    CHECK_KEY(elementwise, ckl_elementwise_desc, offsetof(ckl_elementwise_desc, out))
    CHECK_KEY(attention, ckl_attention_desc, sizeof desc)
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

static void test_run_checks_operator(void **state)
{
    (void)state;
    operator_info other = op;
    other.name = "other";
    ckl_plan *plan = plan_of(4, NULL);
    assert_int_equal(plan_run(plan, &other, &op, NULL), CKL_INVALID);
    assert_string_equal(ckl_error(), "other: plan is one of op");
    assert_int_equal(plan_run(NULL, &op, &op, NULL), CKL_INVALID);
    ckl_plan_free(plan);
    plan_forget_device(&device);
}

/* A second plan of a desc must not describe or load again; 20 us is the promise, on one busy core allow more. */
static void test_second_build_is_quick(void **state)
{
    (void)state;
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

/* Faults of a kernel, found by the layout algebra, the builder and the verifier: one status, and one of `ckl`. */

static void wrong_layout(const void *config, int which)
{
    (void)config, (void)which;
    composition(compact(leaf(4)), make_layout(leaf(8), leaf(3)));
}

static void wrong_division(const void *config, int which)
{
    (void)config, (void)which;
    ir_binary(IR_DIV, ir_int(CKL_I32, 7), ir_int(CKL_I32, 0));
}

static void wrong_nesting(const void *config, int which)
{
    (void)config, (void)which;
    ir_loop();
}

static void wrong_threads(const void *config, int which)
{
    (void)config, (void)which;
    ir_current()->threads = 33;
}

static void test_faults_of_kernels(void **state)
{
    (void)state;
    void (*const faults[])(const void *config, int which) = { wrong_layout, wrong_division, wrong_nesting,
                                                              wrong_threads };
    for (int i = 0; i < COUNT_OF(faults); i++) {
        const implementation wrong = { .name = "wrong", .describe = faults[i] };
        ir_kernel *kernel = NULL;
        assert_int_equal(plan_describe(&op, &wrong, NULL, 0, IR_SM80, &kernel), CKL_INTERNAL);
        assert_null(kernel);
        assert_non_null(strstr(ckl_error(), "op wrong: "));
    }
    assert_int_equal(cli_exit_of(CKL_INTERNAL), EXIT_FAILED);
}

/* Parameters: a kernel's are found in its list by name; what it does not read is dropped. */

#define BOUND_PARAMS(X, owner) X(owner, pointer, x) X(owner, i64, n, [2]) X(owner, f32, unused) X(owner, tensor, tX)
KERNEL_PARAMS(bound, BOUND_PARAMS);

static void store_param(val param)
{
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, param.type, 1, ir_scalar_param(IR_U64, "x"), 0, &param);
}

static void describe_bound(void)
{
    val *p = ir_declare_params(&bound_param_list);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_I64, 1, p[0], 0, &p[2]);
}

static void describe_unlisted(void)
{
    store_param(ir_scalar_param(CKL_I64, "y"));
}

static void describe_other_type(void)
{
    store_param(ir_scalar_param(IR_U32, "n_0"));
}

static void describe_without_box(void)
{
    ir_tma_prefetch(ir_tensor_map_param("tX"));
}

static ckl_status bind_described(void (*body)(void), plan_kernel *bound)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("bound", IR_SM90A);
    body();
    TRY(ir_describe_end(&kernel));
    ir_drop_unused_params(kernel);
    ckl_status status = plan_bind_params(kernel, &bound_param_list, bound);
    ir_kernel_free(kernel);
    return status;
}

static void test_params(void **state)
{
    (void)state;
    plan_kernel bound = { 0 };
    assert_int_equal(bind_described(describe_bound, &bound), CKL_OK);
    assert_int_equal(bound.param_count, 2);
    assert_int_equal(bound.params[0].offset, offsetof(bound_params, x));
    assert_int_equal(bound.params[1].offset, offsetof(bound_params, n) + sizeof(int64_t));

    assert_int_equal(bind_described(describe_unlisted, &bound), CKL_INTERNAL);
    assert_non_null(strstr(ckl_error(), "parameter y is not in the list of its implementation"));
    assert_int_equal(bind_described(describe_other_type, &bound), CKL_INTERNAL);
    assert_non_null(strstr(ckl_error(), "parameter n_0 is u32 in the kernel, which its list does not say"));
    assert_int_equal(bind_described(describe_without_box, &bound), CKL_INTERNAL);
    assert_non_null(strstr(ckl_error(), "tensor map tX has no box"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_padding_is_no_key),
        cmocka_unit_test(test_key_is_whole),
        cmocka_unit_test(test_run_checks_operator),
        cmocka_unit_test(test_second_build_is_quick),
        cmocka_unit_test(test_faults_of_kernels),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
