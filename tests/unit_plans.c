/*
 * unit_plans.c - what the problems of tests/data/plans.txt get on the devices of the tables: which kernel with which
 * config, its launches, and what its kernels are made of. It pins the choices that make kernels fast, which no wrong
 * result betrays.
 *
 * The file has a problem a line, indented below it what was planned on the H200, and on the L4 if that differs. Two
 * digests stand there: of a kernel's PTX without its comments, and of the values that a launch passes. After an
 * intended change, or with a new problem line in the file, `build/unit_plans --update` writes it anew: the diff shows
 * what changed. Of the operators' cases tests/data/cases.txt has digests of the same.
 */
#include "unit.h"
#include "base/math.h"
#include "device/device.h"
#include "golden.h"
#include "ir/build.h"
#include "lab/planned.h"
#include "planned_devices.h"
#include "plan/plan.h"

#define PLANS_FILE TESTDATA "/plans.txt"
#define CASES_FILE TESTDATA "/cases.txt"

/* On one line, whatever the sentence has. */
static void print_sentence(ckl_status status, text *out)
{
    text_printf(out, "%s,", ckl_status_name(status));
    for (const char *at = ckl_error(); *at; at += strspn(at, "\n")) {
        size_t length = strcspn(at, "\n");
        text_printf(out, " %.*s", (int)length, at);
        at += length;
    }
    text_append(out, "\n", 1);
}

/* What a kernel needs was asked before a config was admitted. */
static void check_admission(ckl_status status, const char *line)
{
    if (status != CKL_OK && strstr(ckl_error(), " bytes too many;"))
        fail_msg("%s: %s", line, ckl_error());
}

/* What a device makes of the line, "gemm sm90 ..." and its launches, or why none. */
static void plan_on(ckl_device *device, const char *line, text *out)
{
    test_case c;
    ckl_plan *plan = NULL;
    text launches = { 0 };
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = planned_launches(device, &c, &plan, &launches);
    check_admission(status, line);
    if (status == CKL_OK)
        text_printf(out, "%s, workspace %" PRId64 "\n%s", plan->text, plan->workspace_bytes,
                    launches.length ? text_data(&launches) : "    nothing is launched\n");
    else
        print_sentence(status, out);
    ckl_plan_free(plan);
    text_free(&launches);
    case_clear(&c);
}

/* On every device; one that does as the one before is left out. Forced configs are for the first alone. */
static void plan_line(const char *line, text *out)
{
    text before = { 0 };
    int count = strstr(line, "config=") ? 1 : COUNT_OF(ids);
    for (int i = 0; i < count; i++) {
        text planned = { 0 };
        plan_on(devices[i], line, &planned);
        if (strcmp(text_data(&planned), text_data(&before)) != 0)
            text_printf(out, "  %s: %s", strchr(ids[i], ':') + 1, text_data(&planned));
        text_free(&before);
        before = planned;
    }
    text_free(&before);
}

static void plan_all(text *now)
{
    golden_answer(PLANS_FILE, plan_line, now);
}

static void digest_case(const char *line, text *out)
{
    test_case c;
    assert_ok(case_parse(line, &c));
    text_printf(out, "%s:", line);
    for (int i = 0; i < COUNT_OF(ids); i++) {
        uint64_t hash;
        const ckl_status status = planned_digest(devices[i], &c, &hash);
        check_admission(status, line);
        if (status == CKL_OK)
            text_printf(out, " #%08x", (unsigned)hash);
        else
            text_printf(out, " %s", ckl_status_name(status));
    }
    text_append(out, "\n", 1);
    case_clear(&c);
}

/* Whether a quick run lets the line stand, if it is a case still. */
static bool digest_stands(const char *line, int number, const char *was)
{
    const size_t length = strlen(line);
    return !golden_asks_all && number % GOLDEN_ONE_IN && strncmp(was, line, length) == 0 && was[length] == ':';
}

static void digest_cases(text *now)
{
    text file = { 0 };
    read_text(CASES_FILE, &file);
    const char *was = text_data(&file);
    int number = 0;
    for (const operator_test *const *test = operator_tests; *test; test++)
        for (const char *const *line = (*test)->cases; *line; line++, number++) {
            char whole[512];
            int length = (int)strcspn(*line, "#");
            while (length && (*line)[length - 1] == ' ')
                length--;
            snprintf(whole, sizeof whole, "%s %.*s", (*test)->op->name, length, *line);
            const size_t end = strcspn(was, "\n");
            if (digest_stands(whole, number, was))
                text_printf(now, "%.*s\n", (int)end, was);
            else
                digest_case(whole, now);
            was += end + (was[end] != '\0');
        }
    text_free(&file);
}

TEST(plans)
{
    golden_check(PLANS_FILE, plan_all);
}

TEST(cases)
{
    golden_check(CASES_FILE, digest_cases);
}

/* A config that an implementation has come to refuse tests nothing. */
TEST(every_case_runs)
{
    text file = { 0 };
    read_text(CASES_FILE, &file);
    for (const char *line = text_data(&file); *line; line += strcspn(line, "\n") + 1) {
        const int length = (int)strcspn(line, "\n");
        const char *answers = strstr(line, ": ");
        if (!answers || answers[2] != '#')
            fail_msg("%.*s: the H200 has a kernel for every case", length, line);
        const char *invalid = strstr(line, " invalid");
        if (invalid && invalid < line + length)
            fail_msg("%.*s: a device that lacks what a config wants says CKL_UNSUPPORTED", length, line);
    }
    text_free(&file);
}

/* One that squares a pair of which one half is a constant is not loaded; all of plans.txt are. */
TEST(no_kernel_computes_with_half_constants)
{
    ir_kernel *kernel;
    device_kernel *loaded;
    ir_describe_begin("squares", IR_SM90A);
    val pair = ir_pack(IR_F16X2, ir_convert(CKL_F16, ir_sreg(IR_TID_X)), ir_float(CKL_F16, -1));
    ir_binary(IR_MUL, pair, pair);
    assert_ok(ir_describe_end(&kernel));
    assert_fails(devices[0]->ops->load(devices[0], kernel, &loaded), CKL_INTERNAL,
                 "squares: mul of f16x2 of which one half is constant, which ptxas may get wrong");
    ir_kernel_free(kernel);
}

int main(int argc, char **argv)
{
    if (golden_update_wanted(argc, argv))
        return open_devices(NULL) || !golden_update(PLANS_FILE, plan_all) || !golden_update(CASES_FILE, digest_cases) ||
               close_devices(NULL);
    return run_enlisted(open_devices, close_devices);
}
