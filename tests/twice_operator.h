/*
 * twice_operator.h - y = 2 a on the host and a peer of it, whose times are ordered, for tests of races on a device
 * whose clock is counted.
 */
#pragma once

#include <math.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "bench/entrant.h"
#include "bench/peers/peers.h"
#include "bench/race.h"
#include "bench/results.h"
#include "host_operator.h"
#include "virtual_device.h"

/* y = 2 a, in as many microseconds as is ordered. */
typedef struct twice_problem {
    int64_t n;
} twice_problem;

enum { APART_US = 2 }; // a launch that may not overlap takes so much longer
static double own_us;
static bool own_is_wrong, own_spoils;
static int references; // computed; any thread

#define TWICE_CONFIG(X) X(twice_config, int, late_us, "0", "", "how much longer a run takes")

typedef struct twice_config {
    TWICE_CONFIG(FIELD_MEMBER)
} twice_config;

static void compute(const twice_problem *p, void *const *pointers, bool wrong)
{
    const float *a = pointers[0];
    float *y = pointers[1];
    for (int64_t i = 0; i < p->n; i++)
        y[i] = 2 * a[i] + (float)wrong;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    compute(plan->desc, args, own_is_wrong);
    if (own_spoils)
        ((float *)((void *const *)args)[0])[7] = 99;
    take_us(own_us + ((const twice_config *)plan->config)->late_us + (overlap_forbidden ? APART_US : 0));
    return CKL_OK;
}

static const field config_fields[] = { TWICE_CONFIG(FIELD_ROW) };
static const implementation plain = { HOST_IMPLEMENTATION, .config_bytes = sizeof(twice_config),
                                      .config = FIELD_TABLE(config_fields) };

static ckl_status launch_slowly(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    take_us(own_us);
    return launch(plan, args, stream);
}

static const implementation slow = { .name = "slow",
                                     .by_name = true,
                                     .choose = choose,
                                     .describe = describe,
                                     .config_bytes = sizeof(twice_config),
                                     .config = FIELD_TABLE(config_fields),
                                     .launch = launch_slowly };
static const implementation *const implementations[] = { &plain, &slow, NULL };
static const operator_info twice_info = HOST_OPERATOR("twice", twice_problem);

static int twice_operands(const void *problem, operand *out)
{
    int64_t n = ((const twice_problem *)problem)->n;
    out[0] = operand_vector("a", OPERAND_IN, CKL_F32, n);
    out[1] = operand_vector("y", OPERAND_OUT, CKL_F32, n);
    return 2;
}

static void twice_reference(const void *problem, void *const *memory, reference_slice out)
{
    __atomic_fetch_add(&references, 1, __ATOMIC_RELAXED);
    for (int64_t j = 0; j < ((const twice_problem *)problem)->n; j++) {
        out.value[j] = 2.0 * (double)((const float *)memory[0])[j];
        out.magnitude[j] = fabs(out.value[j]);
    }
}

static const operator_line twice_line = { .op = &twice_info, .problem_bytes = sizeof(twice_problem) };
static const operator_test twice_test = {
    .op = &twice_info, .line = &twice_line, .operands = twice_operands, .reference = twice_reference
};

/*
 * A peer of variants: the first slow, the second one fast, the third refused by the library; three of them if a test
 * wants no more.
 */

struct peer_problem {
    const twice_problem *problem;
};

static const double variant_us[] = { 60, 40, 1, 50, 41, 70 };
static int variant_count;
static double peer_slowness;
static bool peer_is_wrong, peer_is_missing, peer_spoils, peer_is_idle;
static int uncapturable; // variants from this one on give up in a capture
static int prepared;
static int quick_runs; // of variant 0: they take 1 us

static ckl_status find_peer(void)
{
    if (peer_is_missing)
        FAIL(CKL_UNSUPPORTED, "no library: get it");
    return CKL_OK;
}

static ckl_status prepare_peer(const test_case *c, ckl_device *d, void *const *pointers, peer_problem **out)
{
    assert_non_null(pointers[0]);
    *out = malloc(sizeof **out);
    (*out)->problem = c->problem;
    prepared++;
    return CKL_OK;
}

static void release_peer(peer_problem *p)
{
    free(p);
    prepared--;
}

static int peer_variants(const peer_problem *p)
{
    return variant_count;
}

static void describe_peer(const peer_problem *p, int variant, text *out)
{
    text_printf(out, "variant %d", variant);
}

static ckl_status run_peer(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream)
{
    if (variant == 2)
        FAIL(CKL_UNSUPPORTED, "not this one");
    if (capturing && variant >= uncapturable)
        FAIL(CKL_UNSUPPORTED, "not in a capture");
    if (!peer_is_idle)
        compute(p->problem, pointers, peer_is_wrong);
    if (peer_spoils)
        ((float *)pointers[0])[7] = 99;
    bool quick = variant == 0 && quick_runs > 0;
    quick_runs -= quick;
    take_us(quick ? 1 : variant_us[variant] * peer_slowness);
    return CKL_OK;
}

static const peer twice_peer = { .name = "rival",
                                 .op = "twice",
                                 .find = find_peer,
                                 .prepare = prepare_peer,
                                 .release = release_peer,
                                 .variants = peer_variants,
                                 .describe = describe_peer,
                                 .run = run_peer };

static const peer *rival = &twice_peer;
static int64_t problem_size;
static double sampling_seconds;

static result_row race(double us, bool hot)
{
    twice_problem problem = { problem_size };
    test_case c = { .test = &twice_test, .problem = &problem, .fields = "n=100" };
    const race_options options = { .hot = hot, .only = rival, .limits = { .seconds_max = sampling_seconds } };
    result_row row = { 0 };
    fields_default(line_key_table, &c.keys);
    c.keys.fill = FILL_UNIFORM;
    own_us = us;
    assert_ok(race_run(&c, &device, &options, NULL, &row));
    assert_int_equal(prepared, 0);
    assert_int_equal(allocations, 0);
    assert_int_equal(graphs, 0);
    assert_int_equal(events, 0);
    return row;
}

static int open_race(void **state)
{
    own_is_wrong = own_spoils = peer_is_wrong = peer_is_missing = peer_spoils = peer_is_idle = false;
    rival = &twice_peer;
    problem_size = 100;
    sampling_seconds = 0.05;
    peer_slowness = 1;
    quick_runs = 0;
    variant_count = 3;
    uncapturable = COUNT_OF(variant_us);
    return 0;
}
