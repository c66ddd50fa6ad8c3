/* cli.h - what the commands of ckl share: usage tables, options, exit statuses, messages. */
#pragma once

#include "base/math.h"
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

typedef struct cli_command {
    const char *name, *arguments; // "run", "LINE [options]"
    const char *summary;          // for the list of commands
    const char *help;             // paragraphs
    const cli_option *options;
    int option_count;
    int (*run)(int argc, char **argv); // gets argv without options; the exit status
} cli_command;

/* A command of its file's options[] and command(): CLI_COMMAND(run, "LINE [options]", "one problem", "Help."). */
#define CLI_COMMAND(name, arguments, summary, help) \
    const cli_command cmd_##name = { #name, arguments, summary, help, options, COUNT_OF(options), command }

/* Runs a command, argv[0] being its name; its exit status. Prints its help if --help is among the options. */
int cli_run(const cli_command *command, int argc, char **argv);

/* All commands, in the order of the list that `ckl --help` prints. */
#define COMMANDS(X) \
    X(info)         \
    X(run)          \
    X(verify)       \
    X(fuzz)         \
    X(bench)        \
    X(profile)      \
    X(sample)       \
    X(tune)         \
    X(soak)         \
    X(compare)      \
    X(report)       \
    X(layout)       \
    X(warm)         \
    X(explain)

#define X(name) extern const cli_command cmd_##name;
COMMANDS(X)
#undef X

/* The number of an option, from low to high; without the option *value stays. Integers may be sums: 2^20+3. */
ckl_status cli_number(const char *option, const char *given, double low, double high, double *value);
ckl_status cli_integer(const char *option, const char *given, int64_t low, int64_t high, int64_t *value);

/*
 * Calls each() with the problem line that stands behind argv[0], or with those of a suite's file, until one fails.
 * Words of the line with spaces, whose quotes the shell has removed, are quoted again.
 */
ckl_status cli_lines(int argc, char **argv, const char *suite, ckl_status (*each)(const char *line, void *user),
                     void *user);

/* The exit status for a status; cli_exit() also prints the sentence of a failure to stderr. */
int cli_exit_of(ckl_status status);
int cli_exit(ckl_status status);
