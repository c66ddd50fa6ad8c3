/* cmd_sample.c - ckl sample: random problem lines like those of users. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/number.h"
#include "cli/cli.h"
#include "lab/population.h"

/* A gemm of some 10 ms. */
static const double FLOPS_MAX = 0x1p43;

static const char *count, *seed, *bytes;
static const cli_option options[] = {
    { "--count", "N", &count, "lines of each operator; 20 if not given" },
    { "--seed", "S", &seed, "of the draw; 1 if not given. A longer sample begins with a shorter one" },
    { "--bytes", "B", &bytes, "of memory that a problem may take; 2^30 if not given" },
};
static const cli_usage usage = {
    "sample", "[OPERATOR ...] [options]",
    "Prints random problems of the operators, of all if none is named, by what models and data have: 30 of 100 sizes "
    "are\n"
    "those of well-known models, 20 multiples of 1024, 20 of 128, 15 of 8, 15 odd, as likely in every power of two. "
    "Lines\n"
    "are legal, of at most 2^43 useful operations, and the same on every machine.\n"
    "Example: ckl sample softmax --count 200 --seed 7 | ckl bench --suite - --json softmax.json",
    options, COUNT_OF(options)
};

static ckl_status parse_count(const char *option, const char *given, int64_t low, int64_t *value)
{
    const char *end = given;
    if (!number_integer(&end, value) || *end || *value < low)
        FAIL(CKL_INVALID, "sample: %s=%s is not an integer from %" PRId64, option, given, low);
    return CKL_OK;
}

/* Draws again where a line was printed before; ends early if the population has hardly any more. */
static ckl_status print_sample(const operator_test *test, int64_t lines, int64_t drawn_by, random_problem_limits limits)
{
    enum { DRAWS_A_LINE = 100 };
    text printed = { 0 };
    ckl_status status = CKL_OK;
    text_printf(&printed, "\n");
    for (int64_t i = 0, left = lines; left > 0 && i < lines * DRAWS_A_LINE && status == CKL_OK; i++) {
        text line = { 0 };
        text_printf(&line, "\n");
        status = population_line(test, (uint64_t)drawn_by, i, limits, &line);
        text_printf(&line, "\n");
        if (status == CKL_OK && !strstr(text_data(&printed), text_data(&line))) {
            text_printf(&printed, "%s", text_data(&line) + 1);
            left--;
        }
        text_free(&line);
    }
    fputs(text_data(&printed) + 1, stdout);
    text_free(&printed);
    return status;
}

static ckl_status sample(int argc, char **argv)
{
    int64_t lines, drawn_by, memory;
    TRY(parse_count("--count", count ? count : "20", 0, &lines));
    TRY(parse_count("--seed", seed ? seed : "1", 0, &drawn_by));
    TRY(parse_count("--bytes", bytes ? bytes : "2^30", 1, &memory));
    const random_problem_limits limits = { .flops = FLOPS_MAX, .bytes = (double)memory };
    for (int i = 1; i < argc; i++) {
        const operator_test *test;
        TRY(case_operator(argv[i], &test));
        TRY(print_sample(test, lines, drawn_by, limits));
    }
    for (const operator_test *const *test = operator_tests; *test && argc == 1; test++)
        TRY(print_sample(*test, lines, drawn_by, limits));
    return CKL_OK;
}

int cmd_sample(int argc, char **argv)
{
    int done = cli_parse(&usage, &argc, argv);
    if (done != CLI_GO_ON)
        return done;
    ckl_status status = sample(argc, argv);
    return status == CKL_OK ? EXIT_PASSED : cli_fail(status);
}
