/* unit_bench_rows.c - what a bench does beside races: rows made ahead, suites, configs of a file, peers in Python. */
#define _GNU_SOURCE // nftw, for temporary_folder.h

#include "files.h"
#include "unit.h"
#include "bench/ahead.h"
#include "bench/suites.h"
#include "bench/sweep.h"
#include "lab/clock.h"
#include "capture.h"
#include "temporary_folder.h"
#include "twice_operator.h"

/* Rows that are walked over: sizes, 0 at the end. */
typedef struct row_list {
    twice_problem problems[101];
    test_case cases[100];
    int count;
} row_list;

static row_list rows_of(int count, int64_t (*size)(int i))
{
    row_list rows = { .count = count };
    for (int i = 0; i < count; i++) {
        rows.problems[i].n = size(i);
        rows.cases[i] = (test_case){ .test = &twice_test, .fields = "n=100" };
        fields_default(line_key_table, &rows.cases[i].keys);
        rows.cases[i].keys.fill = FILL_UNIFORM;
    }
    return rows;
}

static const test_case *row_at(const void *list, int i)
{
    const row_list *rows = list;
    return i < rows->count ? &rows->cases[i] : NULL;
}

static ahead *walk_over(row_list *rows, double bytes_max)
{
    const ahead_options options = { .device = &device.info, .cores = 3, .bytes_max = bytes_max };
    for (int i = 0; i < rows->count; i++)
        rows->cases[i].problem = &rows->problems[i];
    references = 0;
    return ahead_open(row_at, rows, &options);
}

static int64_t growing(int i)
{
    return 100 + i;
}

/* In order, with everything that the host computes: racing a row needs no further reference. */
TEST_BETWEEN(rows_made_ahead, open_race, NULL)
{
    row_list rows = rows_of(100, growing);
    ahead *a = walk_over(&rows, 1e9);
    const race_options options = { .only = rival, .limits = { .seconds_max = 0.01 } };
    own_us = 50;
    for (int i = 0; i < rows.count; i++) {
        operand_images images;
        double waited;
        result_row row = { 0 };
        assert_ok(ahead_take(a, &images, &waited));
        assert_int_equal(images.each[0].columns, growing(i));
        if (i % 10)
            operand_images_free(&images);
        else {
            double clock = clock_seconds();
            assert_ok(race_run(&rows.cases[i], &device, &options, &images, &row));
            assert_true(row.plan_s + row.data_s + row.check_s + row.peers_s + row.timing_s <= clock_lap(&clock));
            assert_true(*row.fault == '\0' && row.slices_compared == row.slices && row.peer_count > 0);
        }
    }
    ahead_close(a);
    assert_int_equal(references, rows.count);
    assert_int_equal(allocations, 0);
}

static int64_t even(int i)
{
    return 1000;
}

/* As many rows wait as have room; one alone always has. A run that ends early leaves the others. */
TEST_BETWEEN(rows_ahead_are_bounded, open_race, NULL)
{
    for (int most = 1; most < 4; most++) {
        row_list rows = rows_of(50, even);
        operand_images images;
        double waited, bytes = 2 * 2 * 4000 + 1;
        ahead *a = walk_over(&rows, most > 1 ? most * bytes : 1);
        for (int i = 0; i < 10; i++) {
            while (__atomic_load_n(&references, __ATOMIC_RELAXED) < most + i)
                usleep(100);
            usleep(1000);
            assert_int_equal(__atomic_load_n(&references, __ATOMIC_RELAXED), most + i);
            assert_ok(ahead_take(a, &images, &waited));
            operand_images_free(&images);
        }
        ahead_close(a);
    }
}

static int64_t sometimes_huge(int i)
{
    return i % 3 == 1 ? (int64_t)1 << 52 : 100;
}

/* What cannot be made fails in its turn, with its sentence; so does what cannot be planned, or comes out wrong. */
TEST_BETWEEN(rows_ahead_that_fail, open_race, NULL)
{
    row_list rows = rows_of(9, sometimes_huge);
    ahead *a = walk_over(&rows, 0);
    const race_options options = { .no_peer = true, .limits = { .seconds_max = 0.01 } };
    own_us = 50;
    for (int i = 0; i < rows.count; i++) {
        operand_images images;
        double waited;
        result_row row = { 0 };
        ckl_status status = ahead_take(a, &images, &waited);
        assert_int_equal(status, i % 3 == 1 ? CKL_NO_MEMORY : CKL_OK);
        if (status != CKL_OK) {
            assert_says(ckl_error(), "of host memory");
            operand_images_free(&images);
            continue;
        }
        own_is_wrong = i == 3;
        rows.cases[i].keys.impl = i == 5 ? "nobody" : "";
        status = race_run(&rows.cases[i], &device, &options, &images, &row);
        assert_int_equal(status, i == 5 ? CKL_INVALID : CKL_OK);
        assert_true(i == 3 ? strstr(row.fault, "100 of 100 elements") != NULL : *row.fault == '\0');
        assert_true((row.median_us > 0) == (i != 3 && i != 5));
    }
    ahead_close(a);
    assert_int_equal(allocations, 0);
}

static void write_lines(const temporary_folder *folder, const char *name, const char *lines, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 32, folder->path, name);
    write_words(path, "w", lines);
}

/* Several suites take turns, and each has a file of results. */
TEST(suites_in_turn)
{
    temporary_folder folder;
    char a[PATH_MAX], b[PATH_MAX], both[2 * PATH_MAX + 2];
    assert_int_equal(temporary_folder_make(&folder), 0);
    write_lines(&folder, "a.txt", "add n=1\nadd n=2\nadd n=3\n", a);
    write_lines(&folder, "b.txt", "# two\nadd n=10\nadd n=20\n", b);
    snprintf(both, sizeof both, "%s,%s", a, b);
    bench_suites s = { 0 };
    assert_ok(suites_read(both, NULL, &s));
    static const char *const fields[] = { "n=1", "n=10", "n=2", "n=20", "n=3" };
    assert_int_equal(s.row_count, COUNT_OF(fields));
    for (int i = 0; i < COUNT_OF(fields); i++)
        assert_string_equal(s.rows[i].c.fields, fields[i]);
    assert_true(s.suite_count == 2 && s.rows[3].suite == 1 && s.suites[0].case_count == 3);
    snprintf(both, sizeof both, "%s,,%s", a, b); // the second file's lines after all of the first
    bench_suites grouped = { 0 };
    assert_ok(suites_read(both, NULL, &grouped));
    for (int i = 0; i < COUNT_OF(fields); i++)
        assert_int_equal(grouped.rows[i].suite, i >= 3);
    suites_free(&grouped);
    text name = { 0 };
    suites_name_output("out/", s.suites[1].path, "json", &name);
    text_printf(&name, " ");
    suites_name_output("out.csv", s.suites[1].path, "csv", &name);
    assert_string_equal(text_data(&name), "out/b.json out.csv");
    text_free(&name);
    suites_free(&s);
    assert_int_equal(suites_read("no/such/suite.txt", NULL, &s), CKL_INVALID);
    suites_free(&s);
    assert_int_equal(temporary_folder_remove(&folder), 0);
}

/* What sweep_run() prints of the configs of a file. */
static const char *sweep(const char *configs)
{
    static const char path[] = "/tmp/ckl-unit-bench-configs.txt";
    twice_problem problem = { problem_size };
    test_case c = { .test = &twice_test, .problem = &problem, .fields = "n=100" };
    const race_options options = { .no_peer = true, .limits = { .rounds = 2, .seconds_max = 0.05 } };
    write_words(path, "w", configs);
    fields_default(line_key_table, &c.keys);
    const capture output = capture_begin(stdout);
    ckl_status status = sweep_run(&c, &device, &options, path);
    const char *said = capture_end(&output);
    remove(path);
    assert_ok(status);
    arena_clear(&c.memory);
    return said;
}

/* Every implementation has a row, the simplest first, with the line that repeats it. */
TEST_BETWEEN(ladder, open_race, NULL)
{
    twice_problem problem = { problem_size };
    test_case c = { .test = &twice_test, .problem = &problem, .fields = "n=100" };
    const race_options options = { .limits = { .rounds = 2, .seconds_max = 0.05 } };
    results rungs = { 0 };
    own_us = 60;
    fields_default(line_key_table, &c.keys);
    const capture output = capture_begin(stdout);
    ckl_status status = ladder_run(&c, &device, &options, &rungs);
    const char *said = capture_end(&output);
    assert_ok(status);
    assert_says(said, "[p20 - p80]          x before   x first  plan   (SM ");
    assert_says(said, "[60.00 - 60.00]          2.00      2.00  twice plain");
    assert_int_equal(rungs.row_count, 2);
    assert_string_equal(rungs.rows[0].line, "twice n=100 impl=slow");
    assert_string_equal(rungs.rows[1].line, "twice n=100 impl=plain");
    assert_true(rungs.rows[0].median_us == 120 && rungs.rows[1].median_us == 60);
    assert_true(rungs.rows[1].bytes > 0 && rungs.rows[1].gbs == rungs.rows[1].bytes / 60e3);
    results_free(&rungs);
    arena_clear(&c.memory);
}

/* A file's line is a config as plans print it, with or without the names before it. */
TEST_BETWEEN(configs_of_a_file, open_race, NULL)
{
    own_us = 60;
    const char *said = sweep("twice plain late_us=40 # a comment\nplain late_us=20\nlate_us=30\nplane late_us=10\n");
    assert_says(said, "plane late_us=10: twice: no implementation 'plane', did you mean 'plain'?");
    const char *fastest = strstr(said, " 80.00 "), *then = strstr(said, " 90.00 "), *last = strstr(said, " 100.00 ");
    assert_true(fastest && then > fastest && last > then);
    assert_true(strstr(fastest, "  plain late_us=20\n") && strstr(then, "  late_us=30\n") &&
                strstr(last, "  twice plain late_us=40"));
}

TEST_BETWEEN(missing_peer_is_said, open_race, NULL)
{
    peer_is_missing = true;
    result_row row = race(50, false);
    assert_string_equal(row.note, "no library: get it");
    assert_true(row.median_us > 0 && row.peer_count == 0);
}

/* In place of torch_peer.py: y = 2 a in 3 ms, wrong for 101 elements. The clock is at an address in the environment. */
static const char script[] = "import ctypes, json, os\n"
                             "clock = ctypes.c_double.from_address(int(os.environ['CKL_UNIT_CLOCK']))\n"
                             "counts, results = {}, {}\n"
                             "def floats(address, place, n):\n"
                             "    pointers = (ctypes.c_uint64 * 2).from_address(address)\n"
                             "    return (ctypes.c_float * n).from_address(pointers[place])\n"
                             "def prepare(text):\n"
                             "    problem = json.loads(text)\n"
                             "    if problem['op'] != 'twice':\n"
                             "        return json.dumps({'unsupported': 'another operator'})\n"
                             "    counts[len(counts)] = problem['operands'][1]['shape'][0]\n"
                             "    return json.dumps({'number': len(counts) - 1, 'variants': ['torch 0 eager']})\n"
                             "def run(number, variant, address, stream):\n"
                             "    n = counts[number]\n"
                             "    results[address] = [2 * x + (n == 101) for x in floats(address, 0, n)]\n"
                             "    clock.value += 3000\n"
                             "    return ''\n"
                             "def finish(number, variant, address, stream):\n"
                             "    floats(address, 1, counts[number])[:] = results[address]\n"
                             "    return ''\n"
                             "def release(number):\n"
                             "    return ''\n";

static void write_script(const char *path)
{
    char address[32];
    write_words(path, "w", script);
    snprintf(address, sizeof address, "%" PRIuPTR, (uintptr_t)&clock_us);
    setenv("CKL_UNIT_CLOCK", address, 1);
    setenv("CKL_TORCH_PEER", path, 1);
}

TEST_BETWEEN(peer_in_python, open_race, NULL)
{
    static const char path[] = "/tmp/ckl-unit-bench-rows-peer.py";
    peer python = torch_add_peer;
#ifdef __SANITIZE_ADDRESS__
    skip(); // Python keeps memory until the process ends: leaks, to the sanitizer
#endif
    python.op = "twice";
    rival = &python;
    write_script(path);
    result_row row = race(6000, false);
    if (strncmp(row.note, "python: ", 8) == 0) // there is none, or none that can be loaded
        skip();
    assert_string_equal(row.note, "");
    const result_peer *best = result_find_peer(&row, "best");
    assert_true(best && fabs(best->ratio - 0.5) < 1e-6 && best->samples >= 20);
    assert_string_equal(best->config, "torch 0 eager");
    problem_size = 101;
    row = race(6000, false);
    assert_true(!result_find_peer(&row, "best") && strstr(row.peers[0].fault, "y[slice 0, j 0] is"));
    remove(path);
}

TEST(files_of_peers)
{
    static const char *const places[] = { "no/such/file", "@/unit_bench_rows", NULL }, *const nowhere[] = { "@/nothing",
                                                                                                            NULL };
    char path[PEER_PATH_BYTES];
    assert_true(peer_find_file("CKL_UNIT_FILE", places, path));
    assert_string_equal(strrchr(path, '/'), "/unit_bench_rows");
    assert_false(peer_find_file("CKL_UNIT_FILE", nowhere, path));
    setenv("CKL_UNIT_FILE", "/dev/null", 1);
    assert_true(peer_find_file("CKL_UNIT_FILE", places, path));
    assert_string_equal(path, "/dev/null");
    setenv("CKL_UNIT_FILE", "/no/such/file", 1); // what is named counts, even if it is not there
    assert_false(peer_find_file("CKL_UNIT_FILE", places, path));
    unsetenv("CKL_UNIT_FILE");
}

RUN_TESTS(NULL, NULL)
