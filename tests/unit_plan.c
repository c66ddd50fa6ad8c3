/* unit_plan.c - choosing, forcing and building of plans, and the parameters of their kernels. */
#include "unit.h"
#include "cli/cli.h"
#include "counting_operator.h"
#include "cute/layout.h"
#include "cutekernellib/cutekernellib.h"
#include "operators/operators.h"

/* Candidates: vectors of 1 to 6; admit() takes those up to 4; the further from n, the dearer. */

static bool candidate(const void *desc, const ckl_device_info *info, int i, void *config)
{
    ((op_config *)config)->vector = i + 1;
    return i < 6;
}

static plan_cost cost(const void *desc, const ckl_device_info *info, const void *config)
{
    double distance = (double)(((const op_desc *)desc)->n - ((const op_config *)config)->vector);
    return (plan_cost){ distance < 0 ? -distance : distance, "distance" };
}

static ckl_status admit_small(const void *desc, const ckl_device_info *info, const void *config)
{
    if (((const op_desc *)desc)->n > 100)
        FAIL(CKL_UNSUPPORTED, "op ranked: n is more than 100");
    if (((const op_config *)config)->vector > 4)
        FAIL(CKL_INVALID, "op ranked: vector=%d is more than 4", ((const op_config *)config)->vector);
    return CKL_OK;
}

static const implementation ranked = {
    .name = "ranked", OP_IMPLEMENTATION, .candidate = candidate, .cost = cost, .admit = admit_small
};
static const implementation *const ranked_alone[] = { &ranked, NULL };
static const operator_info ranked_op = OP_OF(ranked_alone);

/* By rules vector=1; of its candidates those up to 2 are trusted. */
static ckl_status choose_one(const void *desc, const ckl_device_info *info, void *config)
{
    ((op_config *)config)->vector = 1;
    return CKL_OK;
}

static bool is_short(const void *config)
{
    return ((const op_config *)config)->vector <= 2;
}

static const implementation trusting = { .name = "trusting",
                                         OP_IMPLEMENTATION,
                                         .choose = choose_one,
                                         .candidate = candidate,
                                         .cost = cost,
                                         .is_trusted = is_short,
                                         .admit = admit_small };
static const implementation *const trusting_alone[] = { &trusting, NULL };
static const operator_info trusting_op = OP_OF(trusting_alone);

static void expect_vector_of(const operator_info *info, int64_t n, const char *force, const char *wanted)
{
    ckl_plan *plan = NULL;
    assert_ok(plan_build(&device, info, &(op_desc){ .n = n }, force, &plan));
    assert_string_equal(ckl_plan_text(plan), wanted);
    ckl_plan_free(plan);
}

static void expect_vector(int64_t n, const char *force, const char *wanted)
{
    expect_vector_of(&ranked_op, n, force, wanted);
}

TEST(trusted_candidates)
{
    expect_vector_of(&trusting_op, 1, NULL, "op trusting threads=128 vector=1");
    expect_vector_of(&trusting_op, 3, NULL, "op trusting threads=128 vector=2");  // 3 would cost nothing
    expect_vector_of(&trusting_op, 11, NULL, "op trusting threads=128 vector=1"); // 9 is no less than 0.9 of 10
    expect_vector_of(&trusting_op, 10, NULL, "op trusting threads=128 vector=2"); // 8 is less than 0.9 of 9
    expect_vector_of(&trusting_op, 3, "trusting threads=64",
                     "op trusting threads=64 vector=1"); // over the rules' choice
}

/* By rules vector=1, which costs 5 whatever n is: declined where a candidate of its rival costs no more. */
static plan_cost cost_five(const void *desc, const ckl_device_info *info, const void *config)
{
    return (plan_cost){ 5, "nothing" };
}

static const implementation modest = {
    .name = "modest", OP_IMPLEMENTATION, .choose = choose_one, .cost = cost_five, .rivals = { &ranked }
};
static const implementation *const modest_first[] = { &modest, &ranked, NULL };
static const operator_info rivals_op = OP_OF(modest_first);

TEST(rivals)
{
    expect_vector_of(&rivals_op, 4, NULL, "op ranked threads=128 vector=4");
    expect_vector_of(&rivals_op, 9, NULL, "op ranked threads=128 vector=4"); // it costs 5, too
    expect_vector_of(&rivals_op, 10, NULL, "op modest threads=128 vector=1");
    expect_vector_of(&rivals_op, 101, NULL, "op modest threads=128 vector=1"); // the rival takes none
    expect_vector_of(&rivals_op, 4, "modest", "op modest threads=128 vector=1");
}

TEST(candidates)
{
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
    assert_true(plan_candidate_config(&device.info, &ranked, &two, best[0].number, &room));
    assert_true(room.vector == 2 && room.threads == 128);
    ckl_plan *plan = NULL;
    assert_fails(plan_build(&device, &ranked_op, &(op_desc){ .n = 101 }, NULL, &plan), CKL_UNSUPPORTED,
                 "op ranked: n is more than 100");
}

static void expect_text(int64_t n, const char *force, const char *wanted)
{
    ckl_plan *plan = plan_of(n, force);
    assert_string_equal(ckl_plan_text(plan), wanted);
    ckl_plan_free(plan);
}

TEST(choice)
{
    expect_text(4, NULL, "op first threads=128 vector=2");
    expect_text(5, NULL, "op second threads=128 vector=1");
    expect_text(4, "second", "op second threads=128 vector=1");
    expect_text(4, "first threads=64", "op first threads=64 vector=2");
    expect_text(4, "second vector=1048576", "op second threads=128 vector=1048576"); // the most that may be forced
    expect_text(5, "first vector=1",
                "op first threads=128 vector=1"); // its choice declines, the forced config does not
}

static void expect_failure(int64_t n, const char *force, ckl_status status, const char *sentence)
{
    ckl_plan *plan = (ckl_plan *)&device;
    assert_fails_with(plan_build(&device, &op, &(op_desc){ .n = n }, force, &plan), status, sentence);
    assert_ptr_equal(plan, &device);
}

TEST(failures)
{
    expect_failure(
        101, NULL, CKL_UNSUPPORTED,
        "op: no implementation takes this problem on counter\n"
        "op third: the kernel is for sm_90a, counter is sm_90\nop first: n=101 is odd\nop second: n=101 is over 100");
    expect_failure(-1, NULL, CKL_INVALID, "op: n=-1 is negative");
    expect_failure(4, "frist", CKL_INVALID,
                   "op: no implementation 'frist', did you mean 'first'? There are: third first second");
    expect_failure(4, "first vectr=1", CKL_INVALID,
                   "op first: unknown key 'vectr', did you mean 'vector'? Known keys: threads vector");
    expect_failure(4, "second vector=1048577", CKL_INVALID,
                   "op second: vector=1048577 is more than 1048576, as no config has it");
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
    assert_int_equal(((const op_desc *)view)->n, 4);
    return CKL_OK;
}

TEST(view)
{
    operator_info viewed = op;
    viewed.view = view_tenth;
    viewed.view_bytes = sizeof(op_desc);
    viewed.check_args = check_four;
    ckl_plan *plan = NULL;
    assert_ok(plan_build(&device, &viewed, &(op_desc){ .n = 40 }, NULL, &plan));
    assert_string_equal(ckl_plan_text(plan), "op first threads=128 vector=2");
    assert_ok(plan_run(plan, &viewed, &op, NULL));
    ckl_plan_free(plan);
    plan_forget_device(&device);
    assert_fails(plan_build(&device, &viewed, &(op_desc){ .n = 41 }, NULL, &plan), CKL_INVALID,
                 "op: n=41 is no multiple of 10");
}

TEST(overlap)
{
    static const struct {
        int64_t a, a_bytes, b, b_bytes;
        bool overlap;
    } rows[] = {
        { 64, 16, 64, 16, true },  { 64, 16, 79, 1, true },   { 79, 1, 64, 16, true },
        { 64, 16, 80, 16, false }, { 80, 16, 64, 16, false }, { 72, 0, 64, 16, false },
        { 64, 16, 72, 0, false },  { 0, 99, 1, 99, false },   { 64, 16, 0, 128, false }, // NULL
    };
    for (int i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(
            plan_overlap((void *)(uintptr_t)rows[i].a, rows[i].a_bytes, (void *)(uintptr_t)rows[i].b, rows[i].b_bytes),
            rows[i].overlap);
}

/* An output may be in place of an input of the same strides; a mode of one element may have any stride. */
TEST(in_place)
{
    static const struct {
        int64_t rows, ldx, ldy;
        bool both_outputs;
        ckl_status wanted;
    } rows[] = { { 2, 8, 8, false, CKL_OK },     { 2, 8, 12, false, CKL_INVALID }, { 1, 8, 12, false, CKL_OK },
                 { 2, 8, 8, true, CKL_INVALID }, { 1, 8, 8, true, CKL_INVALID },   { 0, 8, 12, true, CKL_OK } };
    static const float memory[32];
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const plan_tensor x = plan_matrix("x", CKL_F32, rows[i].rows, 8, rows[i].ldx);
        const plan_tensor y = plan_output(plan_matrix("y", CKL_F32, rows[i].rows, 8, rows[i].ldy));
        const plan_tensor both[] = { rows[i].both_outputs ? plan_output(x) : x, y };
        assert_int_equal(plan_check_pointers("op", both, 2, (const void *[]){ memory, memory }), rows[i].wanted);
    }
}

TEST(run_checks_operator)
{
    operator_info other = op;
    other.name = "other";
    ckl_plan *plan = plan_of(4, NULL);
    assert_fails(plan_run(plan, &other, &op, NULL), CKL_INVALID, "other: plan is one of op");
    assert_int_equal(plan_run(NULL, &op, &op, NULL), CKL_INVALID);
    ckl_plan_free(plan);
    plan_forget_device(&device);
}

/* Faults of a kernel, found by the layout algebra, the builder and the verifier: one status, and one of `ckl`. */

static void wrong_layout(const void *config, int which)
{
    composition(compact(leaf(4)), make_layout(leaf(8), leaf(3)));
}

static void wrong_division(const void *config, int which)
{
    ir_binary(IR_DIV, ir_int(CKL_I32, 7), ir_int(CKL_I32, 0));
}

static void wrong_nesting(const void *config, int which)
{
    ir_loop();
}

static void wrong_threads(const void *config, int which)
{
    ir_current()->threads = 33;
}

TEST(faults_of_kernels)
{
    void (*const faults[])(const void *config, int which) = { wrong_layout, wrong_division, wrong_nesting,
                                                              wrong_threads };
    for (int i = 0; i < COUNT_OF(faults); i++) {
        const implementation wrong = { .name = "wrong", .describe = faults[i] };
        ir_kernel *kernel = NULL;
        assert_int_equal(plan_describe(&op, &wrong, NULL, 0, IR_SM80, &kernel), CKL_INTERNAL);
        assert_null(kernel);
        assert_says(ckl_error(), "op wrong: ");
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

static ckl_status bind_to(const param_list *list, void (*body)(void), plan_kernel *bound)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("bound", IR_SM90A);
    body();
    TRY(ir_describe_end(&kernel));
    ir_drop_unused_params(kernel);
    ckl_status status = plan_bind_params(kernel, list, bound);
    ir_kernel_free(kernel);
    return status;
}

static ckl_status bind_described(void (*body)(void), plan_kernel *bound)
{
    return bind_to(&bound_param_list, body, bound);
}

TEST(params)
{
    plan_kernel bound = { 0 };
    assert_ok(bind_described(describe_bound, &bound));
    assert_int_equal(bound.param_count, 2);
    assert_int_equal(bound.params[0].offset, offsetof(bound_params, x));
    assert_int_equal(bound.params[1].offset, offsetof(bound_params, n) + sizeof(int64_t));

    assert_fails(bind_described(describe_unlisted, &bound), CKL_INTERNAL,
                 "parameter y is not in the list of its implementation");
    assert_fails(bind_described(describe_other_type, &bound), CKL_INTERNAL,
                 "parameter n_0 is u32 in the kernel, which its list does not say");
    assert_fails(bind_described(describe_without_box, &bound), CKL_INTERNAL, "tensor map tX has no box");
}

/* A kernel has up to eight tensor maps. */

#define MAPS_PARAMS(X, owner) X(owner, tensor, t, [9])
KERNEL_PARAMS(maps, MAPS_PARAMS);

static int map_count;

static void describe_maps(void)
{
    val *p = ir_declare_params(&maps_param_list);
    for (int i = 0; i < map_count; i++) {
        ir_tensor_map_set(
            p[i], (ir_tensor_map){ .dtype = CKL_F16, .rank = 2, .box = { 64, 8, 1, 1, 1 }, .swizzle_bytes = 128 });
        ir_tma_prefetch(p[i]);
    }
}

TEST(tensor_maps)
{
    plan_kernel bound = { 0 };
    map_count = 8;
    assert_ok(bind_to(&maps_param_list, describe_maps, &bound));
    assert_int_equal(bound.param_count, 8);
    assert_int_equal(bound.params[7].offset, offsetof(maps_params, t) + 7 * sizeof(param_tensor));
    assert_int_equal(bound.params[7].map.box[0], 64);
    map_count = 9;
    assert_fails(bind_to(&maps_param_list, describe_maps, &bound), CKL_INTERNAL,
                 "bound: 9 tensor maps are more than 8");
}

RUN_TESTS(NULL, NULL)
