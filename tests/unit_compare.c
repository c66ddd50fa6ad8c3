/* unit_compare.c - two files of results: verdicts by intervals, what may not be compared, exit statuses. */
#include <math.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "bench/comparison.h"
#include "cli/cli.h"

static result_row *add(results *r, const char *line, double median, double half_width)
{
    result_row *row = results_add(r);
    result_set(row->line, line);
    result_set(row->method, "graphs");
    result_set(row->l2, "cold");
    row->median_us = median;
    row->half_width = half_width;
    return row;
}

static void add_peer(result_row *row, const char *name, double median)
{
    row->peers[0] = (result_peer){ .role = "best", .median_us = median };
    result_set(row->peers[0].name, name);
    row->peer_count = 1;
}

static void set_header(results *r)
{
    result_set(r->header.gpu, "GPU");
    result_set(r->header.driver, "1.2");
    result_set(r->header.protocol, "one process");
}

/* What 100 us become, at a tolerance of 3 %. */
static const struct {
    double median, half_width;
    verdict verdict;
} changes[] = {
    { 100, 0.001, VERDICT_SAME },      { 102.9, 0.0001, VERDICT_SAME },  { 97.2, 0.0001, VERDICT_SAME },
    { 103.2, 0.0001, VERDICT_SLOWER }, { 96.9, 0.0001, VERDICT_FASTER }, { 110, 0.01, VERDICT_SLOWER },
    { 90, 0.01, VERDICT_FASTER },      { 102, 0.02, VERDICT_AMBIGUOUS }, { 104, 0.02, VERDICT_AMBIGUOUS },
    { 97.5, 0.02, VERDICT_AMBIGUOUS }, { 90, 0.2, VERDICT_AMBIGUOUS },   { 110, 1, VERDICT_AMBIGUOUS },
    { 100, 0.04, VERDICT_AMBIGUOUS },
};

TEST(verdicts)
{
    for (int i = 0; i < COUNT_OF(changes); i++) {
        results old = { 0 }, new = { 0 };
        comparison c;
        add(&old, "add n=1", 100, 0.0001);
        add(&new, "add n=1", changes[i].median, changes[i].half_width);
        assert_ok(compare_results(&old, &new, 0.03, &c));
        assert_int_equal(c.row_count, 1);
        if (c.rows[0].verdict != changes[i].verdict)
            fail_msg("%g +- %g is %s, expected %s", changes[i].median, changes[i].half_width,
                     verdict_names[c.rows[0].verdict], verdict_names[changes[i].verdict]);
        assert_int_equal(c.count[changes[i].verdict], 1);
        assert_true(fabs(c.rows[0].half_width - changes[i].half_width - 0.0001) < 1e-12);
        comparison_free(&c);
        results_free(&old);
        results_free(&new);
    }
}

TEST(lists)
{
    results old = { 0 }, new = { 0 };
    comparison c;
    add_peer(add(&old, "a", 100, 0), "torch", 200);
    add_peer(add(&old, "b", 100, 0), "torch", 200);
    add(&old, "gone", 1, 0);
    result_set(add(&old, "mended", 0, 0)->fault, "wrong");
    add(&old, "broken", 5, 0);
    add_peer(add(&new, "b", 50, 0), "cub", 100);
    add_peer(add(&new, "a", 200, 0), "torch", 220);
    add(&new, "mended", 7, 0);
    add(&new, "fresh", 7, 0);
    add(&old, "shared", 7, 0);
    add(&new, "shared", 7, 0)->shared = true;
    result_set(add(&new, "broken", 0, 0)->fault, "wrong");
    assert_ok(compare_results(&old, &new, 0.03, &c));
    static const struct {
        const char *line;
        verdict verdict;
    } expected[] = { { "b", VERDICT_FASTER },  { "a", VERDICT_SLOWER },         { "mended", VERDICT_NEW },
                     { "fresh", VERDICT_NEW }, { "shared", VERDICT_AMBIGUOUS }, { "broken", VERDICT_FAILED },
                     { "gone", VERDICT_GONE } };
    assert_int_equal(c.row_count, COUNT_OF(expected));
    for (int i = 0; i < COUNT_OF(expected); i++) {
        assert_string_equal(c.rows[i].line, expected[i].line);
        assert_int_equal(c.rows[i].verdict, expected[i].verdict);
    }
    assert_true(c.rows[0].change == 0.5 && c.rows[0].old_us == 100 && c.rows[0].new_us == 50);
    assert_true(fabs(c.mean - 1) < 1e-12);         // of 0.5, 2 and 1
    assert_true(fabs(c.peers_mean - 1.1) < 1e-12); // another peer was the best of b
    assert_int_equal(c.count[VERDICT_NEW], 2);
    comparison_free(&c);
    results_free(&old);
    results_free(&new);
}

typedef void edit(results *r);

static void other_gpu(results *r)
{
    result_set(r->header.gpu, "other");
}

static void other_driver(results *r)
{
    result_set(r->header.driver, "1.3");
}

static void other_protocol(results *r)
{
    result_set(r->header.protocol, "two processes");
}

static void other_method(results *r)
{
    result_set(r->rows[0].method, "events");
}

static void other_l2(results *r)
{
    result_set(r->rows[0].l2, "hot");
}

TEST(refusals)
{
    static const struct {
        edit *edit;
        const char *why;
    } cases[] = { { other_gpu, "GPUs differ: \"GPU\" and \"other\"" },
                  { other_driver, "drivers differ" },
                  { other_protocol, "methods differ" },
                  { other_method, "add n=1 was timed by graphs with L2 cold, then by events with L2 cold" },
                  { other_l2, "add n=1 was timed by graphs with L2 cold, then by graphs with L2 hot" } };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        results old = { 0 }, new = { 0 };
        comparison c;
        set_header(&old);
        set_header(&new);
        add(&old, "add n=1", 1, 0);
        add(&new, "add n=1", 1, 0);
        cases[i].edit(&new);
        assert_fails(compare_results(&old, &new, 0.03, &c), CKL_INVALID, cases[i].why);
        comparison_free(&c);
        results_free(&old);
        results_free(&new);
    }
}

/* The command */

static char old_path[] = "/tmp/ckl_compare_XXXXXX", new_path[] = "/tmp/ckl_compare_XXXXXX";

static int compare(const char *option)
{
    char copy[64] = "";
    char *argv[] = { (char[]){ "compare" }, old_path, new_path, copy, NULL };
    strncpy(copy, option ? option : "", sizeof copy - 1);
    return cli_run(&cmd_compare, option ? 4 : 3, argv);
}

static void write_pair(double before, double after, bool gone)
{
    results old = { 0 }, new = { 0 };
    add(&old, "add n=1", before, 0);
    add(&new, "add n=1", after, 0.02);
    if (gone)
        add(&old, "add n=2", 1, 0);
    assert_ok(results_write_json(&old, old_path));
    assert_ok(results_write_json(&new, new_path));
    results_free(&old);
    results_free(&new);
}

TEST(command)
{
    close(mkstemp(old_path));
    close(mkstemp(new_path));
    write_pair(100, 100, false);
    assert_int_equal(compare(NULL), EXIT_PASSED);
    assert_int_equal(compare("--tolerance=1"), EXIT_PASSED); // ambiguous
    assert_int_equal(compare("--strict"), EXIT_PASSED);
    write_pair(100, 103, false);
    assert_int_equal(compare(NULL), EXIT_PASSED); // ambiguous
    assert_int_equal(compare("--strict"), EXIT_FAILED);
    assert_int_equal(compare("--tolerance=0.5"), EXIT_FAILED); // slower
    write_pair(100, 110, false);
    assert_int_equal(compare(NULL), EXIT_FAILED);
    assert_int_equal(compare("--tolerance=20"), EXIT_PASSED);
    write_pair(100, 100, true);
    assert_int_equal(compare(NULL), EXIT_PASSED);
    assert_int_equal(compare("--strict"), EXIT_FAILED);
    assert_int_equal(compare("--tolerance=0"), EXIT_USAGE);
    assert_int_equal(compare("--tolerance=x"), EXIT_USAGE);
    unlink(new_path);
    assert_int_equal(compare(NULL), EXIT_USAGE);
    unlink(old_path);
    assert_int_equal(cli_run(&cmd_compare, 2, (char *[]){ (char[]){ "compare" }, old_path, NULL }), EXIT_USAGE);
}

RUN_TESTS(NULL, NULL)
