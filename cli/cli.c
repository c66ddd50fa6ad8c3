/* cli.c - options by table, and the messages that all commands share. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "base/math.h"
#include "base/number.h"
#include "lab/case.h"

static void print_help(const cli_command *command)
{
    printf("usage: ckl %s %s\n\n%s\n", command->name, command->arguments, command->help);
    if (command->option_count)
        printf("\n");
    for (int i = 0; i < command->option_count; i++) {
        const cli_option *o = &command->options[i];
        char left[40];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %-20s %s\n", left, o->help);
    }
    printf("\n%s\n", CLI_EXIT_HELP);
}

static const cli_option *find_option(const cli_command *command, const char *word, size_t length)
{
    for (int i = 0; i < command->option_count; i++)
        if (strlen(command->options[i].name) == length && strncmp(command->options[i].name, word, length) == 0)
            return &command->options[i];
    return NULL;
}

static int unknown_option(const cli_command *command, const char *word)
{
    const char *names[32] = { 0 };
    int count = 0;
    for (; count < command->option_count && count < COUNT_OF(names); count++)
        names[count] = command->options[count].name;
    const char *near = nearest_word(word, names, count);
    fprintf(stderr, "ckl %s: unknown option %s%s%s%s see 'ckl help %s'\n", command->name, word,
            near ? ", did you mean " : ";", near ? near : "", near ? "?" : "", command->name);
    return EXIT_USAGE;
}

/* Takes one option at argv[i], "--name value" or "--name=value"; *i moves to its last word. */
static int take_option(const cli_command *command, int argc, char **argv, int *i)
{
    char *word = argv[*i];
    size_t length = strcspn(word, "=");
    const cli_option *o = find_option(command, word, length);
    if (!o)
        return unknown_option(command, word);
    if (!o->argument) {
        *o->value = o->name;
        return CLI_GO_ON;
    }
    if (word[length] == '=')
        *o->value = word + length + 1;
    else if (*i + 1 < argc)
        *o->value = argv[++*i];
    else {
        fprintf(stderr, "ckl %s: %s needs %s\n", command->name, o->name, o->argument);
        return EXIT_USAGE;
    }
    return CLI_GO_ON;
}

/* Leaves the words that are no options behind argv[0]. CLI_GO_ON, or the exit status where the command is done. */
static int take_options(const cli_command *command, int *argc, char **argv)
{
    int kept = 1;
    for (int i = 0; i < command->option_count; i++)
        *command->options[i].value = NULL;
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(command);
            return EXIT_PASSED;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        int done = take_option(command, *argc, argv, &i);
        if (done != CLI_GO_ON)
            return done;
    }
    *argc = kept;
    argv[kept] = NULL;
    return CLI_GO_ON;
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    int done = take_options(command, &argc, argv);
    bool takes_words = strcmp(command->arguments, "[options]") != 0 && *command->arguments;
    if (done == CLI_GO_ON && argc > 1 && !takes_words) {
        fprintf(stderr, "ckl %s: %s is no option; see 'ckl help %s'\n", command->name, argv[1], command->name);
        return EXIT_USAGE;
    }
    return done != CLI_GO_ON ? done : command->run(argc, argv);
}

ckl_status cli_number(const char *option, const char *given, double low, double high, double *value)
{
    char *end = NULL;
    const double number = given ? strtod(given, &end) : *value;
    if (given && (end == given || *end || !(number >= low && number <= high)))
        FAIL(CKL_INVALID, "%s=%s is not a number from %g to %g", option, given, low, high);
    *value = number;
    return CKL_OK;
}

ckl_status cli_integer(const char *option, const char *given, int64_t low, int64_t high, int64_t *value)
{
    const char *end = given;
    int64_t number = *value;
    if (given && (!number_integer(&end, &number) || *end || number < low || number > high))
        FAIL(CKL_INVALID, "%s=%s is not an integer from %" PRId64 " to %" PRId64, option, given, low, high);
    *value = number;
    return CKL_OK;
}

/* The words of a problem line. */
static void join(int argc, char **argv, text *line)
{
    if (argc == 1) { // a whole line in one word
        text_printf(line, "%s", argv[0]);
        return;
    }
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals && equals[1] && strchr(equals, ' ') && !strchr("'\"(", equals[1]))
            text_printf(line, "%.*s'%s' ", (int)(equals + 1 - argv[i]), argv[i], equals + 1);
        else
            text_printf(line, "%s ", argv[i]);
    }
}

ckl_status cli_lines(int argc, char **argv, const char *suite, ckl_status (*each)(const char *line, void *user),
                     void *user)
{
    if (suite && argc > 1)
        FAIL(CKL_INVALID, "%s: give either a problem LINE or --suite FILE", argv[0]);
    if (!suite && argc == 1)
        FAIL(CKL_INVALID, "%s: there is no problem LINE; see 'ckl help %s'", argv[0], argv[0]);
    if (suite)
        return suite_read(suite, each, user);
    text line = { 0 };
    join(argc - 1, argv + 1, &line);
    ckl_status status = each(text_data(&line), user);
    text_free(&line);
    return status;
}

int cli_exit_of(ckl_status status)
{
    static const int exits[] = {
        [CKL_OK] = EXIT_PASSED,        [CKL_INVALID] = EXIT_USAGE,       [CKL_UNSUPPORTED] = EXIT_UNSUPPORTED,
        [CKL_NO_MEMORY] = EXIT_MEMORY, [CKL_DEVICE_FAULT] = EXIT_DEVICE, [CKL_INTERNAL] = EXIT_FAILED
    };
    return exits[status];
}

int cli_exit(ckl_status status)
{
    if (status != CKL_OK)
        fprintf(stderr, "ckl: %s\n", ckl_error());
    return cli_exit_of(status);
}
