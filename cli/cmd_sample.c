/* cmd_sample.c - ckl sample: random problem lines like those of users. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "cli/cli.h"
#include "lab/population.h"
#include "operators/line.h"

static const char *count, *seed, *bytes, *dtype;
static const cli_option options[] = {
    { "--count", "N", &count, "lines of each operator; 20 if not given" },
    { "--seed", "S", &seed, "of the draw; 1 if not given. A longer sample begins with a shorter one" },
    { "--bytes", "B", &bytes, "of memory that a problem may take; 2^30 if not given" },
    { "--dtype", "T", &dtype, "of all problems: dtype=T, of gemm a=T; tf32 is f32 with math=tf32" },
};

/* Draws again where a line was printed before; ends early if the population has hardly any more. */
static ckl_status print_sample(const operator_test *test, int64_t lines, population_sample sample)
{
    enum { DRAWS_A_LINE = 100 };
    text printed = { 0 };
    ckl_status status = CKL_OK;
    text_printf(&printed, "\n");
    for (int64_t i = 0, left = lines; left > 0 && i < lines * DRAWS_A_LINE && status == CKL_OK; i++) {
        text line = { 0 };
        text_printf(&line, "\n");
        status = population_line(test, sample, i, &line);
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

/* The key of an operator's type: gemm has a type for each of A, B and D, and those of B and D follow A's. */
static void append_dtype(const operator_test *test, text *given)
{
    const bool tf32 = strcmp(dtype, "tf32") == 0;
    const char *key = fields_find(test->line->problem, "dtype") ? "dtype" : "a";
    text_printf(given, " %s=%s%s", key, tf32 ? "f32" : dtype, tf32 ? " math=tf32" : "");
}

/* Words are the keys of all lines, up to one that is no key. */
static ckl_status print_operator(const operator_test *test, char **words, int64_t lines, population_sample sample)
{
    arena memory = { 0 };
    text given = { 0 }, line = { 0 };
    line_problem read;
    for (; *words && strchr(*words, '='); words++)
        text_printf(&given, " %s", *words);
    if (dtype)
        append_dtype(test, &given);
    text_printf(&line, "%s%s", test->op->name, text_data(&given));
    sample.given = text_data(&given);
    ckl_status status = line_read(&memory, text_data(&line), &read); // a sentence for a key that is not known
    if (status == CKL_OK)
        status = print_sample(test, lines, sample);
    text_free(&given);
    text_free(&line);
    arena_clear(&memory);
    return status;
}

static ckl_status draw(int argc, char **argv)
{
    int64_t lines = 20, drawn_by = 1, memory = (int64_t)population_limits.bytes;
    TRY(cli_integer("--count", count, 0, INT32_MAX, &lines));
    TRY(cli_integer("--seed", seed, 0, INT64_MAX, &drawn_by));
    TRY(cli_integer("--bytes", bytes, 1, INT64_MAX, &memory));
    const population_sample sample = { .seed = (uint64_t)drawn_by,
                                       .limits = { population_limits.flops, (double)memory } };
    const operator_test *named;
    for (int i = 1; i < argc;) {
        TRY(case_operator(argv[i++], &named));
        TRY(print_operator(named, argv + i, lines, sample));
        while (argv[i] && strchr(argv[i], '='))
            i++;
    }
    for (const operator_test *const *test = operator_tests; *test && argc == 1; test++)
        TRY(print_operator(*test, argv + 1, lines, sample));
    return CKL_OK;
}

static int command(int argc, char **argv)
{
    return cli_exit(draw(argc, argv));
}

CLI_COMMAND(
    sample, "[OPERATOR [KEY=VALUE ...] ...] [options]",
    "random problems of what users have, one line each; bench --suite - takes them",
    "Prints random problems of the operators, of all if none is named, by what models and data have: 30 of 100\n"
    "sizes are those of well-known models, 20 multiples of 1024, 20 of 128, 15 of 8, 15 odd, as likely in every\n"
    "power of two. Lines are legal, of at most 2^43 useful operations, and the same on every machine. Keys behind\n"
    "an operator are those of all its lines.\n"
    "Example: ckl sample softmax --count 200 --seed 7 | ckl bench --suite - --json softmax.json\n"
    "Example: ckl sample gemm layout=tn --dtype e4m3");
