/* unit_report.c - what results come to in a report, what stands apart, and that no words of a file become HTML. */
#define _GNU_SOURCE // nftw, for temporary_folder.h
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "unit.h"
#include "base/math.h"
#include "bench/report.h"
#include "cli/cli.h"
#include "temporary_folder.h"

static temporary_folder folder;

static int make_folder(void **state)
{
    return temporary_folder_make(&folder);
}

static int remove_folder(void **state)
{
    return temporary_folder_remove(&folder);
}

/* A path in the folder; valid until the eighth next one. */
static char *path_of(const char *name)
{
    static char paths[8][PATH_MAX + 64];
    static int used;
    char *path = paths[used++ % COUNT_OF(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", folder.path, name);
    return path;
}

/* Results by hand */

static results measured_on(const char *gpu, const char *protocol)
{
    results r = { .header = { .copy_gbs = 4000, .read_gbs = 4500, .matrix_tflops = 700, .launch_us = 0.5 } };
    result_set(r.header.gpu, gpu);
    result_set(r.header.driver, "580");
    result_set(r.header.protocol, protocol);
    result_set(r.header.date, "2026-11-28T15:00:00Z");
    return r;
}

static result_row *add(results *r, const char *line, double median, double of_limit)
{
    result_row *row = results_add(r);
    result_set(row->line, line);
    result_set(row->config, "gemm sm90 tile_m=128 stages=4");
    result_set(row->limit, "memory");
    row->median_us = median;
    row->half_width = 0.01;
    row->of_limit = of_limit;
    row->flops = 1e9;
    row->bytes = 1e6;
    row->tflops = median > 0 ? row->flops / median / 1e6 : 0;
    return row;
}

static result_peer *add_peer(result_row *row, const char *name, const char *role, double ratio)
{
    result_peer *p = &row->peers[row->peer_count++];
    *p = (result_peer){ .median_us = ratio * row->median_us, .ratio = ratio };
    result_set(p->name, name);
    result_set(p->role, role);
    return p;
}

static void write_results(results *r, const char *name)
{
    assert_ok(results_write_json(r, path_of(name)));
    results_free(r);
}

static void read_report(report *r, const char *first, const char *second)
{
    char *paths[] = { path_of(first), second ? path_of(second) : NULL };
    assert_ok(report_read(paths, second ? 2 : 1, r));
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-5 * expected))
        fail_msg("%g is not %g", value, expected);
}

/* Four timed rows, two of them with peers that count; one that failed. */
static void write_suite(const char *name)
{
    results r = measured_on("GPU", "one process");
    result_row *row = add(&r, "gemm m=1", 10, 0.5);
    add_peer(row, "torch", "best", 4); // another peer is faster
    add_peer(row, "cublaslt", "best", 0.5);
    add_peer(row, "cublaslt", "first", 0.75);
    add_peer(row, "cublaslt", "close", 0.6);
    add_peer(row, "torch", "first", 4);
    row = add(&r, "gemm m=2", 20, 0.8);
    add_peer(row, "torch", "best", 2);
    add_peer(row, "torch", "first", 2);
    row = add(&r, "gemm m=3", 30, 1.2);
    row->beyond_limit = true;
    result_set(add_peer(row, "torch", "best", 0)->fault, "wrong result");
    row = add(&r, "gemm m=4", 40, 0.2);
    result_set(row->note, "torch: it is not asked");
    row = add(&r, "gemm m=5", 0, 0);
    result_set(row->fault, "y[0] is 3, expected 4");
    write_results(&r, name);
}

/* What they come to */

TEST(means)
{
    report r;
    write_suite("gemm.json");
    read_report(&r, "gemm.json", NULL);
    assert_int_equal(r.setup_count, 1);
    assert_int_equal(r.problem_count, 5);
    const report_suite *s = &r.suites[0];
    assert_string_equal(s->name, "gemm");
    assert_true(s->count == 5 && s->failed == 1 && s->peerless == 2 && s->doubtful == 1);
    assert_int_equal(s->best.n, 2);
    assert_near(s->best.mean, 1); // of 0.5 and 2
    assert_near(s->best.low, 0.575);
    assert_near(s->best.least, 0.5);
    assert_near(s->first.mean, sqrt(1.5)); // of 0.75 and 2
    assert_int_equal(s->of_limit.n, 4);
    assert_near(s->of_limit.mean, pow(0.5 * 0.8 * 1.2 * 0.2, 0.25));
    assert_near(s->of_limit.least, 0.2);
    report_free(&r);
}

TEST(rows)
{
    static const char *const peers[] = { "torch 4.000, cublaslt 0.500, cublaslt first 0.750", "torch 2.000", "", "",
                                         "" };
    static const char *const remarks[] = {
        "", "", "do not believe it: faster than the limit by more than 3 %; torch best does not count: wrong result",
        "torch: it is not asked", "not timed: y[0] is 3, expected 4"
    };
    report r;
    write_suite("gemm.json");
    read_report(&r, "gemm.json", NULL);
    for (int i = 0; i < COUNT_OF(peers); i++) {
        assert_string_equal(text_data(&r.problems[i].peers), peers[i]);
        assert_string_equal(text_data(&r.problems[i].remarks), remarks[i]);
    }
    const report_setup *s = &r.setups[0];
    assert_int_equal(s->worst_ratio_count, 2);
    assert_string_equal(s->worst_ratios[0].line, "gemm m=1");
    assert_int_equal(s->worst_share_count, 4);
    assert_string_equal(s->worst_shares[0].line, "gemm m=4");
    assert_string_equal(s->worst_shares[3].line, "gemm m=3");
    report_free(&r);
}

/* Of many rows in any order, the five least. */
TEST(worst)
{
    report r;
    results many = measured_on("GPU", "one process");
    for (int i = 0; i < 23; i++) {
        char line[32];
        snprintf(line, sizeof line, "add n=%d", i * 7 % 23);
        add_peer(add(&many, line, 10, 0.5), "torch", "best", 1 + i * 7 % 23);
    }
    write_results(&many, "many.json");
    read_report(&r, "many.json", NULL);
    assert_int_equal(r.setups[0].worst_ratio_count, REPORT_WORST_MAX);
    for (int i = 0; i < REPORT_WORST_MAX; i++)
        assert_near(r.setups[0].worst_ratios[i].best, i + 1);
    report_free(&r);
}

/* What stands apart */

static void write_row(const char *gpu, const char *protocol, const char *name, double ratio)
{
    results r = measured_on(gpu, protocol);
    add_peer(add(&r, "gemm m=1", 10, 0.5), "torch", "best", ratio);
    write_results(&r, name);
}

TEST(setups)
{
    report r;
    text out = { 0 };
    results later = measured_on("A", "cold");
    result_set(later.header.driver, "590");
    add_peer(add(&later, "gemm m=1", 10, 0.5), "torch", "best", 11);
    write_row("A", "cold", "1.json", 2);
    write_row("B", "cold", "2.json", 3);
    write_row("A", "hot", "3.json", 5);
    write_row("A", "cold", "4.json", 7);
    write_results(&later, "5.json");
    char *paths[] = { path_of("1.json"), path_of("2.json"), path_of("3.json"), path_of("4.json"), path_of("5.json") };
    assert_ok(report_read(paths, COUNT_OF(paths), &r));
    assert_int_equal(r.setup_count, 4);
    static const char *const names[] = { "1", "4", "2", "3", "5" };
    static const double means[] = { 2, 7, 3, 5, 11 };
    for (int i = 0; i < COUNT_OF(names); i++) {
        assert_string_equal(r.suites[i].name, names[i]);
        assert_near(r.suites[i].best.mean, means[i]);
    }
    assert_true(r.setups[0].suite_count == 2 && r.setups[0].run_count == 1 && r.setups[0].runs[0].suite_count == 2);
    assert_true(r.setups[0].worst_ratio_count == 2 && r.setups[1].worst_ratio_count == 1);
    report_print_markdown(&r, &out);
    assert_says(text_data(&out), "Here are 4 setups");
    assert_says(text_data(&out), "\n## B, driver 580\n");
    assert_says(text_data(&out), "\n## A, driver 590\n");
    text_free(&out);
    report_free(&r);
}

/* A folder stands for its files; suites are named by what their paths do not share. */
TEST(folders)
{
    report r;
    mkdir(path_of("all"), 0700);
    mkdir(path_of("all/sample"), 0700);
    write_row("A", "cold", "all/softmax.json", 1);
    write_row("A", "cold", "all/add.json", 1);
    write_row("A", "cold", "all/sample/add.json", 1);
    close(open(path_of("all/notes.txt"), O_CREAT | O_WRONLY, 0600));
    read_report(&r, "all", "all/sample/");
    assert_int_equal(r.suite_count, 3);
    assert_string_equal(r.suites[0].name, "add");
    assert_string_equal(r.suites[1].name, "softmax");
    assert_string_equal(r.suites[2].name, "sample/add");
    report_free(&r);
    mkdir(path_of("all/samples"), 0700); // shares letters with the folder beside it
    write_row("A", "cold", "all/samples/add.json", 1);
    read_report(&r, "all/sample", "all/samples");
    assert_string_equal(r.suites[0].name, "sample/add");
    assert_string_equal(r.suites[1].name, "samples/add");
    report_free(&r);
}

/* The page */

/* Every tag that is opened is closed in its order; "" or what is wrong. */
static const char *fault_of_page(const char *at)
{
    static char open_tags[64][16];
    int depth = 0;
    for (at = strstr(at, "<html"); (at = strchr(at, '<')); at++) {
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes, *end = strchr(at, '>');
        size_t length = strcspn(name, " >/\n");
        if (!end || !length || length >= sizeof open_tags[0] || strcspn(name, "<") < (size_t)(end - name))
            return at;
        if (closes && (depth == 0 || strncmp(open_tags[--depth], name, length) != 0 || open_tags[depth][length]))
            return at;
        if (!closes && end[-1] != '/') {
            if (depth == COUNT_OF(open_tags))
                return at;
            snprintf(open_tags[depth++], sizeof open_tags[0], "%.*s", (int)length, name);
        }
    }
    return depth ? "something stays open" : "";
}

static void print_page(const char *name, text *out)
{
    report r;
    read_report(&r, name, NULL);
    report_print_page(&r, out);
    report_free(&r);
}

TEST(page)
{
    text page = { 0 };
    write_suite("gemm.json");
    print_page("gemm.json", &page);
    assert_string_equal(fault_of_page(text_data(&page)), "");
    assert_says(text_data(&page), "<td class=\"number below\">0.500</td>");
    assert_says(text_data(&page), "<th scope=\"row\"><a href=\"#s1\">gemm</a></th>");
    assert_says(text_data(&page), "<th scope=\"row\"><a href=\"#s1-4\"><code>gemm m=4</code></a></th>"); // of the worst
    assert_says(text_data(&page), "<th scope=\"row\">2026-11-28T15:00:00Z</th>"); // leads nowhere
    assert_says(text_data(&page), "<tr id=\"s1-4\"><th scope=\"row\"><code>gemm m=4</code></th>");
    assert_says(text_data(&page),
                "<details><summary>gemm sm90</summary><code>gemm sm90 tile_m=128 stages=4</code></details>");
    assert_says(text_data(&page), "<p>5 problems. Failed: 1. Without a peer: 2. Doubtful: 1.");
    assert_says(text_data(&page), "not timed: y[0] is 3, expected 4");
    assert_says(text_data(&page), "were not timed: 1 problems");
    assert_says(text_data(&page), "<td class=\"number\">-</td>"); // the time of the one that failed
    assert_omits(text_data(&page), "http://");
    assert_omits(text_data(&page), "https://");
    assert_omits(text_data(&page), "src=");
    text_free(&page);
}

/* 1.0 is where a dot's ratio is 1; both ends of the axis are powers of two. */
TEST(chart)
{
    text page = { 0 };
    results r = measured_on("GPU", "one process");
    static const double ratios[] = { 1, 0.25, 4, 0.001, 1e6 };
    for (int i = 0; i < COUNT_OF(ratios); i++)
        add_peer(add(&r, "add n=1", 10, 0.5), "torch", "best", ratios[i]);
    write_results(&r, "chart.json");
    print_page("chart.json", &page);
    assert_string_equal(fault_of_page(text_data(&page)), "");
    assert_says(text_data(&page), "<line class=\"strong\" x1=\"43.14%\""); // 6 of 14 powers of two, within 2 to 98
    assert_says(text_data(&page), "<circle class=\"\" cx=\"43.14%\"");
    assert_says(text_data(&page), "<circle class=\"below\" cx=\"29.43%\"");
    assert_says(text_data(&page), "<circle class=\"\" cx=\"56.86%\"");
    assert_says(text_data(&page), "<circle class=\"below\" cx=\"2.00%\"");
    assert_says(text_data(&page), "<circle class=\"\" cx=\"98.00%\"");
    assert_says(text_data(&page), "ratio to torch 1000000.000");
    text_free(&page);
}

TEST(escapes)
{
    static const char evil[] = "<script>alert('&\"|`')</script>\n\x01|`*_[a](b)";
    report r;
    text page = { 0 }, markdown = { 0 };
    results made = measured_on(evil, evil);
    result_set(made.header.date, evil);
    result_set(made.header.commit, evil);
    result_row *row = add(&made, evil, 10, 0.5);
    result_set(row->config, evil);
    result_set(row->limit, evil);
    result_set(row->note, evil);
    result_set(row->clock_reasons, evil);
    add_peer(row, evil, "best", 2);
    result_set(add_peer(row, evil, evil, 2)->fault, evil);
    write_results(&made, "<b>&.json");
    read_report(&r, "<b>&.json", NULL);
    report_print_page(&r, &page);
    report_print_markdown(&r, &markdown);
    assert_string_equal(fault_of_page(text_data(&page)), "");
    assert_omits(text_data(&page), "<script>alert");
    assert_omits(text_data(&page), "<b>&");
    assert_omits(text_data(&page), "class=\"&lt;");
    assert_null(strchr(text_data(&page), '\x01'));
    assert_says(text_data(&page), "<code>&lt;script&gt;alert('&amp;&quot;|`')&lt;/script&gt;  |`*_[a](b)</code>");
    assert_says(text_data(&markdown), "\\<script\\>alert('\\&\"\\|\\`')\\</script\\>  \\|\\`\\*\\_\\[a\\](b)");
    assert_says(text_data(&markdown), "`<script>alert('&\"\\|'')</script>  \\|'*_[a](b)`"); // code
    text_free(&page);
    text_free(&markdown);
    report_free(&r);
}

/* Rows of every kind and none at all, limits that nobody measured. */
TEST(empty)
{
    text page = { 0 };
    results none = { 0 };
    result_set(none.header.gpu, "GPU");
    write_results(&none, "none.json");
    print_page("none.json", &page);
    assert_string_equal(fault_of_page(text_data(&page)), "");
    assert_says(text_data(&page), "<p>0 problems.");
    assert_says(text_data(&page), "no peer");
    assert_omits(text_data(&page), "nan");
    assert_omits(text_data(&page), "inf");
    text_clear(&page);
    results bare = { .header.matrix_tflops = 700 }; // but no bandwidth: no roof
    result_set(bare.header.gpu, "GPU");
    *results_add(&bare) = (result_row){ .median_us = 1, .flops = 1, .bytes = 1, .tflops = 1e-6 };
    *results_add(&bare) = (result_row){ .median_us = 1, .flops = 1, .tflops = 1e-6 };
    *results_add(&bare) = (result_row){ .median_us = 1, .bytes = 1, .tflops = 1e-6 };
    results_add(&bare);
    write_results(&bare, "bare.json");
    print_page("bare.json", &page);
    assert_string_equal(fault_of_page(text_data(&page)), "");
    assert_says(text_data(&page), "not timed: no reason is given");
    assert_says(text_data(&page), "were not timed: 3 problems");
    assert_omits(text_data(&page), "matrix units</title>");
    assert_omits(text_data(&page), "nan");
    assert_omits(text_data(&page), "inf");
    text_free(&page);
}

/* A text that is cut stays UTF-8. */
TEST(cut)
{
    text page = { 0 };
    char words[sizeof(result_text) + 8] = "";
    for (size_t i = 0; i + 2 < sizeof words; i += 2)
        memcpy(words + i, "\xC2\xB5", 3);
    results r = measured_on("GPU", "one process");
    result_set(add(&r, "add n=1", 10, 0.5)->note, words);
    assert_int_equal(strlen(r.rows[0].note), sizeof(result_text) - 2);
    write_results(&r, "cut.json");
    print_page("cut.json", &page);
    assert_says(text_data(&page), "\xC2\xB5\xC2\xB5</td>");
    text_free(&page);
}

TEST(markdown)
{
    report r;
    text out = { 0 };
    write_suite("gemm.json");
    read_report(&r, "gemm.json", NULL);
    report_print_markdown(&r, &out);
    assert_says(text_data(&out), "\n| gemm | 5 | 1.000 | 0.575 | 0.500 | 1.225 |");
    assert_says(text_data(&out), " | 1 | 2 | 1 |\n"); // failed, without a peer, doubtful
    assert_says(text_data(&out),
                "\n| `gemm m=1` | 0.500 | 0.750 | 50.0 % | memory | 10.00 | 1.0 % | torch 4.000, cublaslt 0.500, "
                "cublaslt first 0.750 | `gemm sm90 tile_m=128 stages=4` |  |\n");
    assert_says(text_data(&out), "\n| `gemm m=5` | - | - | - | memory | - | - |");
    text_free(&out);
    report_free(&r);
}

/* The command */

static int run(const char *first, const char *second, const char *third)
{
    char words[3][PATH_MAX + 64];
    char *argv[5] = { (char[]){ "report" }, NULL };
    const char *given[] = { first, second, third };
    int argc = 1;
    for (; argc <= 3 && given[argc - 1]; argc++)
        argv[argc] = strcpy(words[argc - 1], given[argc - 1]);
    return cli_run(&cmd_report, argc, argv);
}

TEST(command)
{
    char out[PATH_MAX + 64];
    snprintf(out, sizeof out, "--out=%s", path_of("page.html"));
    write_suite("gemm.json");
    assert_int_equal(run(path_of("gemm.json"), out, NULL), EXIT_PASSED);
    assert_int_equal(access(path_of("page.html"), F_OK), 0);
    assert_int_not_equal(access(path_of("page.html.new"), F_OK), 0);
    assert_int_equal(run("--out=x.html", NULL, NULL), EXIT_USAGE); // no file
}

/* A sentence each, and nothing is written. */
TEST(bad_files)
{
    static const struct {
        const char *name, *words, *why;
    } files[] = { { "absent.json", NULL, "results: unable to open" },
                  { "cut.json", "{ \"schema\": ", "cut.json:1: " },
                  { "other.json", "[1, 2]", "other.json is not a file of ckl bench" },
                  { "later.json", "{\"schema\": \"cutekernellib.bench\", \"version\": 9}", "is of version 9" },
                  { "bare.json", "{\"schema\": \"cutekernellib.bench\", \"version\": 1}",
                    "does not say on which GPU" } };
    char out[PATH_MAX + 64], bad[PATH_MAX + 64];
    unlink(path_of("page.html"));
    snprintf(out, sizeof out, "--out=%s", path_of("page.html"));
    write_suite("gemm.json");
    for (int i = 0; i < COUNT_OF(files); i++) {
        unlink(path_of(files[i].name));
        if (files[i].words)
            write_words(path_of(files[i].name), "w", files[i].words);
        assert_fails(run(path_of("gemm.json"), path_of(files[i].name), out), EXIT_USAGE, files[i].why);
        assert_int_not_equal(access(path_of("page.html"), F_OK), 0);
    }
    mkdir(path_of("empty"), 0700);
    assert_int_equal(run(path_of("empty"), out, NULL), EXIT_USAGE);
    assert_says(ckl_error(), "has no file .json");
    snprintf(bad, sizeof bad, "--out=%s", path_of("gemm.json"));
    assert_int_equal(run(path_of("gemm.json"), bad, NULL), EXIT_USAGE);
    assert_says(ckl_error(), "is a name for results");
    snprintf(bad, sizeof bad, "--out=%s", path_of("nowhere/page.html"));
    assert_int_equal(run(path_of("gemm.json"), bad, NULL), EXIT_USAGE);
    assert_says(ckl_error(), "cannot be written: No such file");
    mkdir(path_of("page.html"), 0700); // the rename fails
    assert_int_equal(run(path_of("gemm.json"), out, NULL), EXIT_USAGE);
    assert_int_not_equal(access(path_of("page.html.new"), F_OK), 0);
}

RUN_TESTS(make_folder, remove_folder)
