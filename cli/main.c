/* main.c - ckl, the laboratory: finds the command and calls it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "base/math.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/crash.h"
#include "cli/operator_help.h"
#include "lab/cores.h"
#include "operators/operators.h"

#define X(name) &cmd_##name,
static const cli_command *const commands[] = { COMMANDS(X) };
#undef X

static void print_help(void)
{
    printf("ckl %s - the laboratory of CuTeKernelLib\n\nusage: ckl COMMAND ...\n\n", ckl_version());
    for (int i = 0; i < COUNT_OF(commands); i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\nA problem is one line: 'gemm m=4096 n=4096 k=4096 a=f16'. `ckl help COMMAND` and `ckl help OPERATOR` say "
           "more.\nOperators:");
    for (const operator_info *const *op = operators; *op; op++)
        printf(" %s", (*op)->name);
    printf("\n%s\n", CLI_EXIT_HELP);
}

static const cli_command *find_command(const char *name)
{
    for (int i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

/* Names the nearest command; where help was asked for, the nearest of the operators too. An operator is no command. */
static int unknown(const char *name, bool help)
{
    const char *names[COUNT_OF(commands) + 64];
    int count = 0;
    for (const operator_info *const *op = operators; !help && *op; op++)
        if (strcmp((*op)->name, name) == 0) {
            fprintf(stderr, "ckl: '%s' is an operator; try 'ckl run %s' or 'ckl help %s'\n", name, name, name);
            return EXIT_USAGE;
        }
    for (; count < COUNT_OF(commands); count++)
        names[count] = commands[count]->name;
    for (const operator_info *const *op = operators; help && *op && count < COUNT_OF(names); op++)
        names[count++] = (*op)->name;
    const char *near = nearest_word(name, names, count);
    fprintf(stderr, "ckl: unknown command %s'%s'%s%s%s see 'ckl --help'\n", help ? "or operator " : "", name,
            near ? ", did you mean '" : ";", near ? near : "", near ? "'?" : "");
    return EXIT_USAGE;
}

/* One thread per core of the control group, which OpenMP does not know; OMP_NUM_THREADS goes first. */
static void limit_threads(void)
{
    if (!getenv("OMP_NUM_THREADS"))
        omp_set_num_threads(cores_available());
}

int main(int argc, char **argv)
{
    crash_report();
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); // results stay if a long run is cut short
    limit_threads();
    const char *word = argc > 1 ? argv[1] : "--help";
    bool help = strcmp(word, "help") == 0;
    if (strcmp(word, "--version") == 0) {
        printf("ckl %s\n", ckl_version());
        return EXIT_PASSED;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || (help && argc == 2)) {
        print_help();
        return argc > 1 ? EXIT_PASSED : EXIT_USAGE;
    }
    const cli_command *found = find_command(help ? argv[2] : word);
    if (!found && help && operator_help(argv[2]))
        return EXIT_PASSED;
    if (!found)
        return unknown(help ? argv[2] : word, help);
    if (help)
        return cli_run(found, 2, (char *[]){ argv[2], (char[]){ "--help" }, NULL });
    return cli_run(found, argc - 1, argv + 1);
}
