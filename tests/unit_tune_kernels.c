/* unit_tune_kernels.c - the tuner on real kernels and the emulated H200: what is legal, a search, small problems. */
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "bench/entrant.h"
#include "bench/tune_parts.h"
#include "lab/small_problem.h"

/* Replay 18 and the like: the rules of real kernels, said before anything is described. */
TEST(rules)
{
    static const char *const given[] = { "sm90 tile_m=128 consumers=3 pingpong=0", "sm90 stages=1",
                                         "sm90 tile_m=256 tile_n=256 stages=8 consumers=2 pingpong=0", NULL };
    static const char *const reasons[] = { "tile_m=128 does not give each of 3 consumers a multiple of 64 rows",
                                           "stages=1 must be at least 2", "accumulators of the" };
    ckl_device *emulator;
    test_case c;
    tune_space space;
    tune_candidate first[8];
    int count;
    assert_ok(ckl_device_open("emulator:h200", &emulator));
    assert_ok(case_parse("gemm m=512 n=512 k=512 bias=1", &c));
    assert_ok(tune_space_open(&c, ckl_device_properties(emulator), 1, &space));
    assert_ok(tune_first(&space, given, 8, first, &count));
    assert_int_equal(count, 8);
    assert_true(first[0].legal && first[4].legal);
    for (int i = 0; i < COUNT_OF(reasons); i++) {
        assert_false(first[1 + i].legal);
        assert_says(first[1 + i].reason, reasons[i]);
    }
    tune_space_close(&space);
    case_clear(&c);
    ckl_device_close(emulator);
}

/*
 * Behind the choice come configs that models call cheap, its implementation's first, then those that differ in a field.
 */
TEST(first_generation)
{
    enum { MOST = 128 };
    ckl_device *emulator;
    test_case c;
    tune_space space;
    tune_candidate first[MOST];
    int count, cheap = 0, neighbours = 0;
    assert_ok(ckl_device_open("emulator:h200", &emulator));
    assert_ok(case_parse("gemm m=512 n=512 k=512 bias=1", &c));
    assert_ok(tune_space_open(&c, ckl_device_properties(emulator), 1, &space));
    assert_ok(tune_first(&space, NULL, MOST, first, &count));
    const size_t name = strcspn(first[0].config, " ") + 1;
    for (int i = 1; i < count; i++) {
        const bool same = strncmp(first[i].config, first[0].config, name) == 0;
        assert_true(first[i].legal && (first[i].parent == 0) == (*first[i].changed != '\0'));
        cheap += same && first[i].parent < 0 && i == cheap + 1;
        neighbours += same && first[i].parent == 0;
    }
    assert_true(cheap > 8 && neighbours > 8);
    tune_space_close(&space);
    case_clear(&c);
    ckl_device_close(emulator);
}

/* What the model says, up to 10 % more or less by the config; the plan's choice, which comes last, is slower. */
static ckl_status measure_by_model(const rotation *memory, ckl_stream stream, const measure_limits *limits,
                                   contestant *contestants, int count, conditions *out)
{
    for (int i = 0; i < count; i++) {
        const own_entrant *e = contestants[i].self;
        const ckl_plan *plan = e->plan;
        uint64_t hash = 0;
        for (const char *at = plan->text; *at; at++)
            hash = random_at(hash, (uint64_t)*at);
        double us = plan->impl->cost ? plan->impl->cost(plan->desc, &memory->device->info, plan->config).us : 100;
        us *= (0.9 + 0.2 * (double)(hash % 1000) / 1000) * (i == count - 1 ? 1.5 : 1);
        contestants[i].time_us = (summary){ .median = us, .p20 = us, .p80 = us, .half_width = 0.001, .n = 20 };
    }
    *out = (conditions){ .launches = 1 };
    return CKL_OK;
}

/* Real kernels on the emulated H200 with seeded times: through all gates. */
TEST(gemm)
{
    if (!getenv("CKL_TEST_FULL"))
        skip();
    test_case c;
    tune_result r;
    char evidence[64];
    snprintf(evidence, sizeof evidence, "/tmp/unit_tune_kernels-%d.jsonl", (int)getpid());
    const tune_options o = { .device_id = "emulator:h200",
                             .seed = 1,
                             .candidates = 16,
                             .generations = 1,
                             .wall_seconds = 60,
                             .workers = 2,
                             .evidence = evidence,
                             .measure = measure_by_model };
    assert_ok(case_parse("gemm m=200 n=264 k=136 bias=1", &c));
    unlink(evidence);
    assert_ok(tune_run(&c, &o, &r));
    unlink(evidence);
    case_clear(&c);
    assert_true(r.won);
    assert_true(r.count[TUNE_TIMED] + r.count[TUNE_SLOW] + r.count[TUNE_DUPLICATE] + r.count[TUNE_NOT_ASSEMBLED] == 16);
    assert_true(r.finals[0].median_us < r.finals[0].choice_us);
}

/* Small problems keep what alignment and tails depend on. */
TEST(small_problem)
{
    static const struct {
        const char *line, *config, *fields;
    } rows[] = {
        { "gemm m=1536 n=1536 k=1536", "sm90", "m=192 n=192 k=192" },
        { "gemm m=3000 n=1000 k=4104", "sm90 ragged=1", "m=248 n=168 k=264" },
        { "softmax shape=65536x1024", "row", "shape=512x512" },
        { "gemm m=64 n=64 k=64", "sm90 tile_m=64 consumers=1", "m=64 n=64 k=64" },
    };
    ckl_device *emulator;
    assert_ok(ckl_device_open("emulator:h200", &emulator));
    for (int i = 0; i < COUNT_OF(rows); i++) {
        test_case c, small;
        assert_ok(case_parse(rows[i].line, &c));
        assert_true(small_problem(&c, ckl_device_properties(emulator), rows[i].config, &small));
        assert_string_equal(small.fields, rows[i].fields);
        case_clear(&small);
        case_clear(&c);
    }
    ckl_device_close(emulator);
}

int main(void)
{
    setenv("CKL_TUNED", "off", 1);
    return run_enlisted(NULL, NULL);
}
