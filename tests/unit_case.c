/*
 * unit_case.c - problem lines and lists of them: a config as plans print it goes back in by each way, and a quick list
 * of checks leaves out no case and counts what it leaves to a full one.
 */
#define _GNU_SOURCE // nftw, for temporary_folder.h

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "unit.h"
#include "cli/verify.h"
#include "lab/accepted.h"
#include "lab/file.h"
#include "emulated_device.h"
#include "temporary_folder.h"

/* What a case is planned as, without compiling it: "gemm sm90 tile_m=128 ...". */
static ckl_status choose(const test_case *c, text *plan)
{
    arena memory = { 0 };
    const operator_info *op = c->test->op;
    const implementation *impl;
    void *config;
    ckl_status status = case_choose(c, ckl_device_properties(device), &memory, &impl, &config);
    if (status == CKL_OK) {
        text_printf(plan, "%s %s ", op->name, impl->name);
        fields_print(impl->config, config, false, plan);
    }
    arena_clear(&memory);
    return status;
}

static void expect_plan(const char *line, const char *config, const char *wanted)
{
    test_case c;
    text plan = { 0 };
    if (case_parse(line, &c) != CKL_OK || (config && case_config(&c, config) != CKL_OK) || choose(&c, &plan) != CKL_OK)
        fail_msg("%s, config %s: %s", line, config ? config : "none", ckl_error());
    assert_string_equal(text_data(&plan), wanted);
    text_free(&plan);
    case_clear(&c);
}

/* The line without impl= and config=, and with what the plan printed: as config=, as an option or a file's line. */
static void check_round_trip(const char *line)
{
    test_case c;
    text plan = { 0 }, with = { 0 }, printed = { 0 };
    assert_ok(case_parse(line, &c));
    if (choose(&c, &plan) == CKL_OK) {
        c.keys.impl = c.keys.config = "";
        case_print(&c, &with);
        expect_plan(text_data(&with), text_data(&plan), text_data(&plan));
        expect_plan(text_data(&with), strchr(text_data(&plan), ' ') + 1, text_data(&plan)); // without the operator
        assert_ok(case_config(&c, text_data(&plan)));
        case_print(&c, &printed); // impl=... config='...'
        expect_plan(text_data(&printed), NULL, text_data(&plan));
        text_printf(&with, " config='%s'", text_data(&plan));
        expect_plan(text_data(&with), NULL, text_data(&plan));
    }
    text_free(&plan);
    text_free(&with);
    text_free(&printed);
    case_clear(&c);
}

TEST(configs_go_round)
{
    for (const operator_test *const *test = operator_tests; *test; test++)
        for (const char *const *line = (*test)->cases; *line; line++) {
            text whole = { 0 };
            text_printf(&whole, "%s %s", (*test)->op->name, *line);
            check_round_trip(text_data(&whole));
            text_free(&whole);
        }
}

static void expect_refused(const char *line, const char *sentence)
{
    test_case c;
    assert_fails(case_parse(line, &c), CKL_INVALID, sentence);
    case_clear(&c);
}

TEST(configs_refused)
{
    expect_refused("gemm config='tile_m=128'", "gemm: config='tile_m=128' needs an implementation before it, or impl=");
    expect_refused("gemm impl=tiled config='gemm sm90 tile_m=128'", "gemm: impl=tiled, but config= is one of sm90");
}

/* How far from its alignment a pointer may be, and one from the next. */
TEST(offsets)
{
    test_case c;
    assert_ok(case_parse("add misalign=4096 stagger=4096", &c));
    case_clear(&c);
    assert_ok(case_parse("add misalign=0 stagger=0", &c));
    case_clear(&c);
    expect_refused("add misalign=4097", "add: misalign=4097 is not 0..4096");
    expect_refused("add stagger=4097", "add: stagger=4097 is not 0..4096");
    expect_refused("add misalign=-1", "add: misalign=-1 is not 0..4096");
    expect_refused("add stagger=-1", "add: stagger=-1 is not 0..4096");
}

TEST(operator_refused)
{
    test_case c;
    assert_int_equal(case_parse("gemn m=8", &c), CKL_INVALID);
    assert_says(ckl_error(), "unknown operator 'gemn', did you mean 'gemm'? Known operators: add attention");
    case_clear(&c);
}

static int runs_of(const verify_list *list)
{
    int runs = 0;
    for (int i = 0; i < list->job_count; i++)
        runs += 1 + list->jobs[i].repeat;
    return runs;
}

/* Does a list have a run of this line by this implementation? The line's jobs begin at `first`. */
static bool has_run(const verify_list *list, int first, const verify_job *wanted)
{
    for (int i = first; i < list->job_count && strcmp(list->jobs[i].line, wanted->line) == 0; i++)
        if (list->jobs[i].impl == wanted->impl)
            return true;
    return false;
}

/* Whether each line and implementation of the full list is in the quick one, and how many runs the full one adds. */
static int left_by(const verify_list *quick, const verify_list *full)
{
    int left = 0, line = 0;
    for (int i = 0; i < quick->job_count; i++)
        left += quick->jobs[i].left;
    for (int i = 0; i < full->job_count; i++) {
        while (line < quick->job_count && strcmp(quick->jobs[line].line, full->jobs[i].line) != 0)
            line++; // both are in the order of the cases
        assert_true(has_run(quick, line, &full->jobs[i]));
    }
    return left;
}

/* What is printed is read again as the same, whatever stands in it; what could not be is refused. */
TEST(text_goes_round)
{
    static const char *const values[] = { "plain", "two words", "a\ttab", "f(x", "f(x, y)", ")(", "a#b" };
    for (int i = 0; i < COUNT_OF(values); i++) {
        text line = { 0 }, printed = { 0 };
        test_case c, again;
        text_printf(&line, "add n=8 impl='%s'", values[i]);
        assert_ok(case_parse(text_data(&line), &c));
        case_print(&c, &printed);
        assert_ok(case_parse(text_data(&printed), &again));
        assert_string_equal(again.keys.impl, values[i]);
        case_clear(&c);
        case_clear(&again);
        text_free(&line);
        text_free(&printed);
    }
    test_case c;
    assert_ok(case_parse("add n=8 fill=hard seed=3", &c));
    assert_true(c.fill_given);
    case_clear(&c);
    assert_ok(case_parse("add n=8 seed=3", &c));
    assert_false(c.fill_given);
    case_clear(&c);
    assert_fails(case_parse("add n=8 impl=\"it's\"", &c), CKL_INVALID, "add: impl=it's is not text without quotes");
    case_clear(&c);
    assert_fails(case_parse("add n=8 config='vector fast vec=4'", &c), CKL_INVALID,
                 "add: config: 'fast' is not key=value");
    case_clear(&c);
    assert_fails_with(case_parse("add n=8 config='a)b(c ,e=1'", &c), CKL_INVALID, // else it prints as another line
                      "add: config: 'a)b(c' is no implementation's name");
    case_clear(&c);
    assert_ok(case_parse("add n=8 config='vector e=) f,g=1'", &c)); // the comma is no part of an expression
    assert_string_equal(c.keys.config, "e=) f g=1");
    case_clear(&c);
}

TEST(quick_list)
{
    verify_list quick, full;
    assert_ok(verify_list_create(&(verify_request){ .seeds = 0 }, &quick));
    assert_ok(verify_list_create(&(verify_request){ .full = true }, &full));
    assert_true(runs_of(&quick) < runs_of(&full));
    assert_int_equal(runs_of(&full) - runs_of(&quick), left_by(&quick, &full));
    assert_int_equal(left_by(&full, &full), 0);
    assert_int_equal(quick.reject_count, full.reject_count);
    verify_list_free(&quick);
    verify_list_free(&full);
}

/* What a quick request makes of one line on the emulator, by all implementations or by one. */
static verify_sums verify_line(const char *line, const char *impl)
{
    temporary_folder folder;
    char path[PATH_MAX + 16];
    assert_int_equal(temporary_folder_make(&folder), 0);
    snprintf(path, sizeof path, "%s/line.txt", folder.path);
    write_words(path, "w", line);
    const verify_request request = { .suite = path, .impl = impl };
    verify_list list;
    verify_sums sums = { 0 };
    assert_ok(verify_list_create(&request, &list));
    assert_true(verify_run(&list, device, &sums));
    verify_list_free(&list);
    temporary_folder_remove(&folder);
    return sums;
}

/* A large problem is for the first implementation that takes it, unless another one alone is asked for. */
TEST(large_is_for_one)
{
    enum { LEFT = 3 }; // of a large problem: the repeated, the hard and the random run
    verify_sums all = verify_line("gemm m=64 n=128 k=128", NULL), naive = verify_line("gemm m=64 n=128 k=128", "naive");
    verify_sums smaller = verify_line("gemm m=64 n=128 k=40", NULL);
    assert_int_equal(all.failed + naive.failed + smaller.failed, 0);
    assert_int_equal(all.passed, 1);
    assert_true(all.left > LEFT && all.left % (LEFT + 1) == LEFT); // all four runs of every other one
    assert_int_equal(naive.passed, 1);
    assert_true(smaller.passed > 1);
    assert_int_equal(smaller.left, LEFT * smaller.passed);
}

/* Whether some case of an operator has a field at one of its names; the line of a case that does not parse has none. */
static bool is_covered(const operator_test *test, const field *f, const char *name)
{
    bool covered = false;
    for (const char *const *line = test->cases; *line && !covered; line++) {
        test_case c;
        text whole = { 0 }, wanted = { 0 }, printed = { 0 };
        text_printf(&whole, "%s %s", test->op->name, *line);
        assert_ok(case_parse(text_data(&whole), &c));
        fields_print((field_table){ f, 1 }, c.problem, false, &printed);
        text_printf(&wanted, "%s=%s", f->name, name);
        covered = strcmp(text_data(&printed), text_data(&wanted)) == 0;
        text_free(&whole);
        text_free(&wanted);
        text_free(&printed);
        case_clear(&c);
    }
    return covered;
}

/* Every type, layout, operation, direction, ... that a line can name stands in a case. */
TEST(every_choice_has_a_case)
{
    int missing = 0;
    for (const operator_test *const *test = operator_tests; *test; test++)
        for (int i = 0; i < (*test)->line->problem.count; i++) {
            const field *f = &(*test)->line->problem.rows[i];
            if (f->kind != FIELD_choice && f->kind != FIELD_ckl_dtype && f->kind != FIELD_bool)
                continue;
            char names[256], *rest = names;
            snprintf(names, sizeof names, "%s", field_range(f));
            for (char *name; (name = strtok_r(rest, " ", &rest));)
                if (!is_covered(*test, f, name)) {
                    print_error("no case of %s has %s=%s\n", (*test)->op->name, f->name, name);
                    missing++;
                }
        }
    assert_int_equal(missing, 0);
}

/* A ptxas of that release, which takes everything. */
static void install_tool(const char *release)
{
    char script[256];
    snprintf(script, sizeof script,
             "#!/bin/sh\n[ $1 = --version ] && echo Build %s && exit\necho ptxas info: Used 40 registers\n", release);
    write_words("ptxas", "w", script);
    assert_int_equal(chmod("ptxas", 0700), 0);
}

/* The kernels of two lines that ptxas is asked about, and those that are left. */
static void expect_assembled(bool update, int asked, int left)
{
    verify_list list;
    verify_sums sums = { 0 };
    const verify_request request = { .suite = "lines", .accepted = "accepted", .update = update };
    assert_ok(verify_list_create(&request, &list));
    assert_ok(verify_assemble(&list, ckl_device_properties(device), &sums));
    assert_int_equal(sums.passed, asked);
    assert_int_equal(sums.left, left);
    verify_list_free(&list);
}

static void assemble_two_lines(void)
{
    accepted known;
    write_words("lines", "w", "add n=8 dtype=f32\nadd n=8 dtype=f16\n");
    install_tool("one");
    expect_assembled(true, 2, 0);
    expect_assembled(false, 0, 2);
    assert_ok(accepted_read("accepted", &known));
    assert_int_equal(known.count, 4); // of aligned pointers and of others
    assert_int_equal(known.each[1].registers, 40);
    known.each[1].digest--;
    assert_ok(accepted_write("accepted", &known));
    expect_assembled(false, 1, 1);
    accepted_free(&known);
    install_tool("two");
    expect_assembled(false, 2, 0);
}

/* Comments and lines of C make no other code. */
TEST(digest_of_code)
{
    const uint64_t digest = accepted_digest("\tadd.u32 %r1, %r2, 1;\n\tret;\n");
    assert_true(accepted_digest("\tadd.u32 %r1, %r2, 1;// a.c:7\n.file 1 \"a.c\"\n\t.loc 1 7 0\n\tret;\n") == digest);
    assert_true(accepted_digest("\tadd.u32 %r1, %r2, 2;\n\tret;\n") != digest);
    assert_true(accepted_digest("\tadd.u32 %r1, %r2, 1;\n") != digest);
}

/* A file is another one afterwards, a pipe is written to, a folder is neither. */
TEST(file_write)
{
    temporary_folder folder;
    char path[PATH_MAX + 16], words[16] = "";
    text content = { 0 };
    struct stat s;
    text_printf(&content, "new");
    assert_int_equal(temporary_folder_make(&folder), 0);
    assert_int_equal(file_write("test", folder.path, &content), CKL_INVALID);
    snprintf(path, sizeof path, "%s/file", folder.path);
    write_words(path, "w", "as it was");
    assert_ok(file_write("test", path, &content));
    assert_string_equal(read_words(path, words), "new");
    snprintf(path, sizeof path, "%s/pipe", folder.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDWR | O_NONBLOCK);
    assert_ok(file_write("test", path, &content));
    assert_int_equal(read(reader, words, sizeof words), 3);
    close(reader);
    assert_true(stat(path, &s) == 0 && S_ISFIFO(s.st_mode));
    text_free(&content);
    assert_int_equal(temporary_folder_remove(&folder), 0);
}

/*
 * ptxas is asked about code that it has not accepted before: all at first, then none, what is not in the file, all by
 * another release.
 */
TEST(accepted_code)
{
    temporary_folder folder;
    char *here = getcwd(NULL, 0), *old = strdup(getenv("PATH"));
    assert_int_equal(temporary_folder_make(&folder), 0);
    assert_int_equal(chdir(folder.path), 0);
    setenv("PATH", folder.path, 1);
    assemble_two_lines();
    setenv("PATH", old, 1);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(temporary_folder_remove(&folder), 0);
    free(here);
    free(old);
}

RUN_TESTS(open_device, close_device)
