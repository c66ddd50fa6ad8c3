/* cli.h - what the commands of ckl share: usage tables, options, exit statuses, messages. */
#pragma once

#include "base/text.h"
#include "cutekernellib/device.h"

/* Exit statuses, the same for every command; CLI_EXIT_HELP describes them. */
enum {
    EXIT_PASSED = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_UNSUPPORTED = 3,
    EXIT_DEVICE = 4,
    EXIT_MEMORY = 5,
    CLI_GO_ON = -1
};

#define CLI_EXIT_HELP                                                                                             \
    "Exit status: 0 all right, 1 a check failed, 2 wrong usage or invalid input, 3 no kernel takes it, 4 device " \
    "fault, 5 out of memory."

typedef struct cli_option {
    const char *name;     // "--device"
    const char *argument; // "D", or NULL for a flag
    const char **value;   // receives the argument; a flag receives its own name
    const char *help;
} cli_option;

typedef struct cli_usage {
    const char *name, *arguments; // "run", "LINE [options]"
    const char *help;             // paragraphs
    const cli_option *options;
    int option_count;
} cli_usage;

/*
 * Takes the options out of argv, leaving the other words behind argv[0]. CLI_GO_ON, or the exit status where the
 * command is done: --help was asked for, or the usage is wrong (printed).
 */
int cli_parse(const cli_usage *usage, int *argc, char **argv);

/* The number that an option was given, from low to high; without one *value stays. Integers may be sums of powers: 2^20+3. */
ckl_status cli_number(const char *option, const char *given, double low, double high, double *value);
ckl_status cli_integer(const char *option, const char *given, int64_t low, int64_t high, int64_t *value);

/* Joins the words of a problem line; those with spaces, whose quotes the shell has removed, are quoted again. */
void cli_join(int argc, char **argv, text *line);

/* Calls each() with the problem line that stands behind argv[0], or with those of a suite's file, until one fails. */
ckl_status cli_lines(int argc, char **argv, const char *suite, ckl_status (*each)(const char *line, void *user),
                     void *user);

/* Prints ckl_error() to stderr; the exit status for a status. */
int cli_fail(ckl_status status);
int cli_exit_of(ckl_status status);

/* Commands; argv[0] is the command's name. */
int cmd_info(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_sample(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_layout(int argc, char **argv);
int cmd_soak(int argc, char **argv);
int cmd_fuzz(int argc, char **argv);
int cmd_warm(int argc, char **argv);
