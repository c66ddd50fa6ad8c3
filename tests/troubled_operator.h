/* troubled_operator.h - y = 2 a, whose configs say how long it takes and what goes wrong, for tests of the tuner. */
#pragma once

#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "unit.h"
#include "cute/kernel.h"
#include "operators/operators.h"

typedef struct twice_problem {
    int64_t n; // a multiple of TILE
} twice_problem;

typedef struct twice_args {
    const void *a;
    void *y;
} twice_args;

enum { TILE = 64, OWN_US = 50 };

#define TROUBLES(X)     \
    X(none)             \
    X(describe_hangs)   \
    X(describe_crashes) \
    X(describe_fails)   \
    X(wrong) X(compile_fails) X(wrong_on_device) X(launch_hangs) X(launch_faults) X(launch_crashes) X(stale) X(overruns)
#define TROUBLE(name)      TROUBLE_##name,
#define TROUBLE_NAME(name) #name " "
enum { TROUBLES(TROUBLE) };

#define TWICE_CONFIG(X)                                                             \
    X(twice_config, int, barriers, "4", "0 1 2 3 4", "as many microseconds slower") \
    X(twice_config, int, unused, "0", "0 1", "is in no kernel")                     \
    X(twice_config, int, smem_kb, "0", "0", "shared memory")                        \
    X(twice_config, int, steps, "2", "2", "of a pipeline that needs two")           \
    X(twice_config, choice, trouble, "none", TROUBLES(TROUBLE_NAME), "what goes wrong")

typedef struct twice_config {
    TWICE_CONFIG(FIELD_MEMBER)
} twice_config;

#define TWICE_PARAMS(X, owner) X(owner, pointer, a) X(owner, pointer, y) X(owner, i64, tiles)
KERNEL_PARAMS(twice, TWICE_PARAMS);

static ckl_status choose(const void *desc, const ckl_device_info *info, void *config)
{
    return CKL_OK;
}

static bool without_trouble; // the search space has no trouble

static ckl_status admit(const void *desc, const ckl_device_info *info, const void *config)
{
    const twice_config *c = config;
    if (c->steps < 2)
        FAIL(CKL_INVALID, "twice plain: steps=%d, but its pipeline needs 2", c->steps);
    if (without_trouble && c->trouble)
        FAIL(CKL_INVALID, "twice plain: no trouble");
    return CKL_OK;
}

static void describe(const void *config, int which)
{
    const twice_config *c = config;
    while (c->trouble == TROUBLE_describe_hangs)
        pause();
    if (c->trouble == TROUBLE_describe_crashes)
        raise(SIGKILL);
    launch_bounds(TILE, 0);
    twice_values p = params_of(twice);
    layout tiles = make_layout(shape(TILE, p.tiles), stride(1, TILE)), threads = compact(shape(TILE));
    tensor gA = gmem_tensor(p.a, F32, tiles), gY = gmem_tensor(p.y, F32, tiles); // (TILE,TILES)
    tensor tAgA = local_partition(slice(gA, _, cta_x()), threads, thread());     // (1)
    tensor tYgY = local_partition(slice(gY, _, cta_x()), threads, thread());     // (1)
    tensor rA = fragment_like(tAgA, F32);                                        // (1)
    if (c->smem_kb)
        smem_tensor("room", F32, compact(shape(c->smem_kb * 256)), 16);
    copy(tAgA, rA, 4);
    for (int i = 0; i < c->barriers; i++)
        cta_sync();
    set(rA, 0, mul(at(rA, 0), immf(c->trouble == TROUBLE_wrong ? 3 : 2)));
    if (c->trouble == TROUBLE_describe_fails)
        ir_bar_sync(imm(0), 1); // the verifier refuses it
    copy(rA, tYgY, 4);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const twice_args *x = args;
    int64_t tiles = ((const twice_problem *)plan->desc)->n / TILE;
    const twice_params params = { .a = x->a, .y = x->y, .tiles = tiles };
    return plan_launch(plan, 0, (plan_grid){ .x = tiles }, &params, stream);
}

static int twice_tensors(const void *desc, plan_tensor *t)
{
    int64_t n = ((const twice_problem *)desc)->n;
    t[0] = plan_vector("a", CKL_F32, n);
    t[1] = plan_output(plan_vector("y", CKL_F32, n));
    return 2;
}

static const field desc_fields[] = { { "n", FIELD_int64_t, 0, "0", "", "" } };
static const field config_fields[] = { TWICE_CONFIG(FIELD_ROW) };
static const implementation plain = { .name = "plain",
                                      .config_bytes = sizeof(twice_config),
                                      .config = FIELD_TABLE(config_fields),
                                      .choose = choose,
                                      .admit = admit,
                                      .describe = describe,
                                      .launch = launch,
                                      .params = &twice_param_list };
static const implementation *const implementations[] = { &plain, NULL };
static const operator_info twice_info = { .name = "twice",
                                          .desc_bytes = sizeof(twice_problem),
                                          .args_bytes = sizeof(twice_args),
                                          .desc = FIELD_TABLE(desc_fields),
                                          .tensors = twice_tensors,
                                          .implementations = implementations };

static void reference(const void *problem, void *const *host, reference_slice out)
{
    for (int64_t j = 0; j < out.count; j++) {
        out.value[j] = 2.0 * (double)((const float *)host[0])[out.first + j];
        out.magnitude[j] = fabs(out.value[j]);
    }
}

static const operator_line twice_line = { .op = &twice_info,
                                          .problem_bytes = sizeof(twice_problem),
                                          .problem = FIELD_TABLE(desc_fields) };
static const operator_test twice_test = { .op = &twice_info, .line = &twice_line, .reference = reference };
