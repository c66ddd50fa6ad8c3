/* unit_bench.c - statistics, results on disk, and whole races on a device whose clock is counted, not real. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "base/math.h"
#include "bench/entrant.h"
#include "bench/limits.h"
#include "bench/peers/peers.h"
#include "bench/race.h"
#include "bench/results.h"
#include "cli/cli.h"

/* A device in host memory. Work takes the time that it says; events read that clock. */

typedef struct virtual_graph {
    double us;
} virtual_graph;

static double clock_us;
static bool capturing;
static double captured_us;
static int allocations, graphs, events;

static void take_us(double us)
{
    *(capturing ? &captured_us : &clock_us) += us;
}

static ckl_status virtual_alloc(ckl_device *d, size_t bytes, void **memory)
{
    (void)d;
    *memory = calloc(1, bytes);
    allocations++;
    return CKL_OK;
}

static void virtual_release(ckl_device *d, void *memory)
{
    (void)d;
    free(memory);
    allocations--;
}

static ckl_status virtual_copy(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    (void)d;
    (void)s;
    memcpy(to, from, bytes);
    take_us((double)bytes / 1e3);
    return CKL_OK;
}

static ckl_status virtual_fill(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s)
{
    (void)d;
    (void)s;
    memset(to, byte, bytes);
    return CKL_OK;
}

static ckl_status virtual_stream(ckl_device *d, ckl_stream *s)
{
    *s = d;
    return CKL_OK;
}

static void virtual_stream_destroy(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
}

static ckl_status virtual_synchronize(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
    assert_false(capturing);
    return CKL_OK;
}

static ckl_status virtual_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    (void)kernel;
    *loaded = (device_kernel *)d;
    return CKL_OK;
}

static void virtual_unload(ckl_device *d, device_kernel *kernel)
{
    (void)d;
    (void)kernel;
}

static ckl_status virtual_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    (void)d;
    (void)kernel;
    *count = 1;
    return CKL_OK;
}

static ckl_status virtual_event_create(ckl_device *d, device_event *event)
{
    (void)d;
    *event = calloc(1, sizeof(double));
    events++;
    return CKL_OK;
}

static void virtual_event_destroy(ckl_device *d, device_event event)
{
    (void)d;
    free(event);
    events--;
}

static ckl_status virtual_event_record(ckl_device *d, device_event event, ckl_stream s)
{
    (void)d;
    (void)s;
    *(double *)event = clock_us;
    return CKL_OK;
}

static ckl_status virtual_event_elapsed(ckl_device *d, device_event begin, device_event end, double *us)
{
    (void)d;
    *us = *(double *)end - *(double *)begin;
    return CKL_OK;
}

static ckl_status virtual_graph_begin(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
    capturing = true;
    captured_us = 0;
    return CKL_OK;
}

static ckl_status virtual_graph_end(ckl_device *d, ckl_stream s, void **graph)
{
    (void)d;
    (void)s;
    virtual_graph *g = malloc(sizeof *g);
    g->us = captured_us;
    capturing = false;
    *graph = g;
    graphs++;
    return CKL_OK;
}

static ckl_status virtual_graph_launch(ckl_device *d, void *graph, ckl_stream s)
{
    (void)d;
    (void)s;
    take_us(((virtual_graph *)graph)->us);
    return CKL_OK;
}

static void virtual_graph_destroy(ckl_device *d, void *graph)
{
    (void)d;
    free(graph);
    graphs--;
}

static const device_ops virtual_ops = { .alloc = virtual_alloc,
                                        .release = virtual_release,
                                        .copy_in = virtual_copy,
                                        .copy_out = virtual_copy,
                                        .copy = virtual_copy,
                                        .fill = virtual_fill,
                                        .stream_create = virtual_stream,
                                        .stream_destroy = virtual_stream_destroy,
                                        .synchronize = virtual_synchronize,
                                        .load = virtual_load,
                                        .unload = virtual_unload,
                                        .clusters_resident = virtual_resident,
                                        .event_create = virtual_event_create,
                                        .event_destroy = virtual_event_destroy,
                                        .event_record = virtual_event_record,
                                        .event_elapsed_us = virtual_event_elapsed,
                                        .graph_begin = virtual_graph_begin,
                                        .graph_end = virtual_graph_end,
                                        .graph_launch = virtual_graph_launch,
                                        .graph_destroy = virtual_graph_destroy };
static ckl_device device = {
    &virtual_ops,
    { .id = "none", .threads_per_cta_max = 1024, .compute_capability = 90, .memory_bytes = 1 << 24, .l2_bytes = 8192 }
};

/* y = 2 a, in as many microseconds as is ordered. */
typedef struct twice_problem {
    int64_t n;
} twice_problem;

static double own_us;
static bool own_is_wrong;

static ckl_status accept_desc(void *desc)
{
    (void)desc;
    return CKL_OK;
}

static ckl_status accept_args(const void *desc, const void *args)
{
    (void)desc;
    (void)args;
    return CKL_OK;
}

static ckl_status choose(const void *desc, const ckl_device_info *info, void *config)
{
    (void)desc;
    (void)info;
    (void)config;
    return CKL_OK;
}

static void describe(const void *config, int part)
{
    (void)config;
    (void)part;
}

static void compute(const twice_problem *p, void *const *pointers, bool wrong)
{
    const float *a = pointers[0];
    float *y = pointers[1];
    for (int64_t i = 0; i < p->n; i++)
        y[i] = 2 * a[i] + (float)wrong;
}

typedef struct twice_args {
    const twice_problem *problem;
    void *const *pointers;
} twice_args;

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    (void)plan;
    (void)stream;
    const twice_args *t = args;
    compute(t->problem, t->pointers, own_is_wrong);
    take_us(own_us);
    return CKL_OK;
}

static const implementation plain = { .name = "plain", .choose = choose, .describe = describe, .launch = launch };
static const implementation *const implementations[] = { &plain, NULL };
static const operator_info twice_info = { .name = "twice",
                                          .desc_bytes = sizeof(twice_problem),
                                          .check = accept_desc,
                                          .check_args = accept_args,
                                          .implementations = implementations };

static void twice_desc(const void *problem, void *desc)
{
    memcpy(desc, problem, sizeof(twice_problem));
}

static int twice_operands(const void *problem, operand *out)
{
    int64_t n = ((const twice_problem *)problem)->n;
    out[0] = (operand){ "a", OPERAND_IN, CKL_F32, 1, { n }, { 1 }, 0, 0 };
    out[1] = (operand){ "y", OPERAND_OUT, CKL_F32, 1, { n }, { 1 }, 0, 0 };
    return 2;
}

static ckl_status twice_run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    return plan_run(plan, &twice_info, &(twice_args){ problem, pointers }, stream);
}

static int64_t one_slice(const void *problem, int output)
{
    (void)problem;
    (void)output;
    return 1;
}

static int64_t twice_elements(const void *problem, int output)
{
    (void)output;
    return ((const twice_problem *)problem)->n;
}

static int64_t twice_index(const void *problem, int output, int64_t slice, int64_t j)
{
    (void)problem;
    (void)output;
    return slice + j;
}

static void twice_reference(const void *problem, void *const *memory, int output, int64_t slice, reference_slice out)
{
    (void)output;
    (void)slice;
    for (int64_t j = 0; j < ((const twice_problem *)problem)->n; j++) {
        out.value[j] = 2.0 * (double)((const float *)memory[0])[j];
        out.magnitude[j] = fabs(out.value[j]);
    }
}

static double twice_count(const void *problem)
{
    return (double)((const twice_problem *)problem)->n;
}

static double twice_bytes(const void *problem)
{
    return 8 * twice_count(problem);
}

static const operator_test twice_test = { .op = &twice_info,
                                          .problem_bytes = sizeof(twice_problem),
                                          .desc = twice_desc,
                                          .operands = twice_operands,
                                          .run = twice_run,
                                          .slices = one_slice,
                                          .slice_elements = twice_elements,
                                          .output_index = twice_index,
                                          .reference = twice_reference,
                                          .terms = twice_count,
                                          .flops = twice_count,
                                          .bytes = twice_bytes };

/* A peer of three variants: the first slow, the second one fast, the third refused by the library. */

struct peer_problem {
    const twice_problem *problem;
};

static const double variant_us[] = { 60, 40, 1 };
static bool peer_is_wrong, peer_is_missing;
static int prepared;

static ckl_status find_peer(void)
{
    if (peer_is_missing)
        FAIL(CKL_UNSUPPORTED, "no library: get it");
    return CKL_OK;
}

static ckl_status prepare_peer(const test_case *c, ckl_device *d, void *const *pointers, peer_problem **out)
{
    (void)d;
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
    (void)p;
    return COUNT_OF(variant_us);
}

static void describe_peer(const peer_problem *p, int variant, text *out)
{
    (void)p;
    text_printf(out, "variant %d", variant);
}

static ckl_status run_peer(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream)
{
    (void)stream;
    if (variant == 2)
        FAIL(CKL_UNSUPPORTED, "not this one");
    compute(p->problem, pointers, peer_is_wrong);
    take_us(variant_us[variant]);
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

static result_row race(double us, bool hot)
{
    twice_problem problem = { 100 };
    test_case c = { .test = &twice_test, .problem = &problem, .fields = "n=100" };
    const race_options options = { .hot = hot, .only = rival, .limits = { .seconds_max = 0.05 } };
    result_row row = { 0 };
    fields_default(case_key_table, &c.keys);
    c.keys.fill = FILL_UNIFORM;
    own_us = us;
    assert_int_equal(race_run(&c, &device, &options, &row), CKL_OK);
    assert_int_equal(prepared, 0);
    assert_int_equal(allocations, 0);
    assert_int_equal(graphs, 0);
    assert_int_equal(events, 0);
    return row;
}

static int open_race(void **state)
{
    (void)state;
    own_is_wrong = peer_is_wrong = peer_is_missing = false;
    rival = &twice_peer;
    return 0;
}

static void test_race_by_events(void **state)
{
    (void)state;
    result_row row = race(50, false);
    assert_string_equal(row.fault, "");
    assert_string_equal(row.line, "twice n=100");
    assert_string_equal(row.method, "events");
    assert_true(row.launches == 1 && row.sets > 2 && row.samples >= 20);
    assert_true(fabs(row.median_us - 50) < 1e-6 && row.half_width < 1e-6);
    assert_int_equal(row.peer_count, 2);
    const result_peer *best = result_find_peer(&row, "best"), *first = result_find_peer(&row, "first");
    assert_true(best && first && best->tried == 2);
    assert_string_equal(best->config, "variant 1");
    assert_true(fabs(best->ratio - 0.8) < 1e-6 && fabs(first->ratio - 1.2) < 1e-6);
}

static void test_race_by_graphs(void **state)
{
    (void)state;
    result_row row = race(3, true);
    assert_string_equal(row.method, "graphs");
    assert_string_equal(row.l2, "hot");
    assert_true(row.launches >= 64 && row.sets == 1 && fabs(row.median_us - 3) < 1e-6);
    assert_true(fabs(result_find_peer(&row, "best")->median_us - 40) < 1e-6);
}

static void test_wrong_results_are_not_timed(void **state)
{
    (void)state;
    peer_is_wrong = true;
    result_row row = race(50, false);
    assert_true(row.median_us > 0 && !result_find_peer(&row, "best") && !result_find_peer(&row, "first"));
    assert_non_null(strstr(row.peers[0].fault, "y[slice 0, j 0] is"));
    own_is_wrong = true;
    row = race(50, false);
    assert_true(row.median_us == 0 && row.peer_count == 0 && *row.fault);
}

static void test_missing_peer_is_said(void **state)
{
    (void)state;
    peer_is_missing = true;
    result_row row = race(50, false);
    assert_string_equal(row.note, "no library: get it");
    assert_true(row.median_us > 0 && row.peer_count == 0);
}

/* In place of torch_peer.py: y = factor * a in 30 us; without a factor it has its reasons. */
static const char *const script =
    "import json, struct, sys\n"
    "folder = sys.argv[1] + '/'\n"
    "problem = json.load(open(folder + 'problem.json'))\n"
    "n = problem['operands'][1]['bytes'] // 4\n"
    "assert problem['op'] == 'twice' and problem['operands'][0]['shape'] == [n]\n"
    "a = struct.unpack(f'{n}f', open(folder + 'a', 'rb').read())\n"
    "open(folder + 'eager.y', 'wb').write(struct.pack(f'{n}f', *[%d * x for x in a]))\n"
    "print(json.dumps({'version': '0', 'variants': [{'name': 'eager', 'samples': [30] * 40}]}))\n";

static result_row race_process(int factor)
{
    static const char path[] = "/tmp/ckl-unit-bench-peer.py";
    static peer process;
    process = (peer){ .name = "torch", .op = "twice", .race = torch_add_peer.race };
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, script, factor);
    fclose(file);
    setenv("CKL_TORCH_PEER", path, 1);
    rival = &process;
    result_row row = race(60, false);
    unsetenv("CKL_TORCH_PEER");
    remove(path);
    return row;
}

static void test_peer_in_a_process(void **state)
{
    (void)state;
    if (system("python3 -c pass") != 0)
        skip();
    result_row row = race_process(2);
    assert_string_equal(row.note, "");
    const result_peer *best = result_find_peer(&row, "best");
    assert_true(best && fabs(best->ratio - 0.5) < 1e-6 && best->samples == 40);
    assert_string_equal(best->config, "torch 0 eager");
    row = race_process(3);
    assert_true(!result_find_peer(&row, "best") && strstr(row.peers[0].fault, "y[slice 0, j 0] is"));
}

static void test_limits(void **state)
{
    (void)state;
    const result_header header = { .copy_gbs = 4000, .matrix_tflops = 800 };
    result_row row = { .flops = 8e11, .bytes = 4e8, .median_us = 1250, .l2 = "cold" };
    limits_apply(&header, &row);
    assert_string_equal(row.limit, "matrix");
    assert_true(fabs(row.limit_us - 1000) < 1e-6 && fabs(row.of_limit - 0.8) < 1e-9 && !row.beyond_limit);
    row.median_us = 900;
    limits_apply(&header, &row);
    assert_true(row.beyond_limit);
    row.flops = 0;
    limits_apply(&header, &row);
    assert_string_equal(row.limit, "memory");
    assert_true(fabs(row.limit_us - 100) < 1e-6);
}

/* Statistics */

static void test_summary(void **state)
{
    (void)state;
    double few[] = { 3, 1, 2 };
    summary s = summarize(few, 3);
    assert_true(s.median == 2 && s.n == 3 && s.half_width == 1 && fabs(s.p20 - 1.4) < 1e-12);
    double many[101];
    for (int i = 0; i < 101; i++)
        many[i] = 1000 + (i * 37) % 101; // 1000..1100 in some order
    s = summarize(many, 101);
    assert_true(s.median == 1050 && s.p20 == 1020 && s.p80 == 1080);
    assert_true(s.half_width > 0.009 && s.half_width < 0.011); // ranks 40..61 of 101
    assert_true(summarize(NULL, 0).n == 0);
}

static void test_geometric_mean(void **state)
{
    (void)state;
    const double values[] = { 0.5, 2, 4 };
    assert_true(fabs(geometric_mean(values, 3) - cbrt(4)) < 1e-12);
    assert_true(geometric_mean(values, 0) == 0);
}

/* Results on disk */

static void fabricate(results *r)
{
    result_set(r->header.gpu, "a \"GPU\"");
    r->header.copy_gbs = 4225.5;
    result_row *row = results_add(r);
    result_set(row->line, "gemm m=1, n=2");
    row->median_us = 12.25;
    row->samples = 77;
    row->beyond_limit = true;
    row->peer_count = 1;
    result_set(row->peers[0].name, "cublaslt");
    result_set(row->peers[0].role, "best");
    row->peers[0].median_us = 24.5;
    row->peers[0].ratio = 2;
}

static void test_json(void **state)
{
    (void)state;
    char path[] = "/tmp/ckl_bench_XXXXXX";
    results made = { 0 }, read;
    close(mkstemp(path));
    fabricate(&made);
    assert_int_equal(results_write_json(&made, path), CKL_OK);
    assert_int_equal(results_read_json(path, &read), CKL_OK);
    assert_int_equal(read.row_count, 1);
    assert_string_equal(read.header.gpu, "a \"GPU\"");
    assert_true(read.header.copy_gbs == 4225.5);
    assert_memory_equal(&read.rows[0], &made.rows[0], sizeof(result_row));
    assert_int_equal(results_write_csv(&made, path), CKL_OK);
    results_free(&read);
    assert_int_equal(results_read_json(path, &read), CKL_INVALID);
    unlink(path);
    results_free(&made);
}

/* Arguments */

/* The command keeps pointers to its options: words stay where they are. */
static int bench(const char *a, const char *b, const char *c)
{
    static char words[16][64];
    static int used;
    char *argv[5] = { NULL };
    const char *given[] = { "bench", a, b, c };
    int argc = 0;
    for (; argc < COUNT_OF(given) && given[argc]; argc++)
        argv[argc] = strncpy(words[used++ % 16], given[argc], sizeof words[0] - 1);
    return cmd_bench(argc, argv);
}

static void test_arguments(void **state)
{
    (void)state;
    assert_int_equal(bench("--rounds=x", "gemm", NULL), EXIT_USAGE);
    assert_non_null(strstr(ckl_error(), "--rounds=x"));
    assert_int_equal(bench("--rounds=3", "--peer=cublas", "gemm"), EXIT_USAGE);
    assert_non_null(strstr(ckl_error(), "cublaslt"));
    assert_int_equal(bench("--peer=none", "gmem m=4", NULL), EXIT_USAGE);
    assert_int_equal(bench("--peer=none", "--device=emulator", "gemm"), EXIT_UNSUPPORTED);
    assert_non_null(strstr(ckl_error(), "no meaningful time"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_geometric_mean),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test_setup(test_race_by_events, open_race),
        cmocka_unit_test_setup(test_race_by_graphs, open_race),
        cmocka_unit_test_setup(test_wrong_results_are_not_timed, open_race),
        cmocka_unit_test_setup(test_missing_peer_is_said, open_race),
        cmocka_unit_test_setup(test_peer_in_a_process, open_race),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
