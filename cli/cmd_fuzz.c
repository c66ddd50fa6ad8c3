/* cmd_fuzz.c - ckl fuzz: random kernels on several devices, whose memory must be the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/math.h"
#include "cli/cli.h"
#include "cli/fuzz_workers.h"

enum { WORKERS_MAX = 128 };
static const double SECONDS_MAX = 1e7;

static const char *count = "10000", *seed = "1", *device, *kind = "all", *program, *minutes = "0", *folder, *workers,
                  *shorten = "16";
static const cli_option options[] = {
    { "--count", "N", &count, "programs (10000)" },
    { "--seed", "S", &seed, "another seed, other programs (1)" },
    { "--device", "D", &device, "compare the emulator with this GPU; else schedules and models of the emulator" },
    { "--kind", "K", &kind, "arithmetic, control, shared, matrix, async, or all in turn" },
    { "--program", "I", &program, "this one program, as a finding says it" },
    { "--minutes", "M", &minutes, "begin nothing new after so many minutes; 0.5 is thirty seconds" },
    { "--shorten", "N", &shorten, "findings that are made short (16); later ones are printed whole" },
    { "--out", "FOLDER", &folder, "write every finding to a file of its own, too" },
    { "--workers", "N", &workers, "processes (one for each core)" },
};
static const cli_usage usage = {
    "fuzz", "[options]",
    "Executes random kernels on the emulator and on another device and compares everything that they leave in memory, "
    "bit\n"
    "by bit. A program that differs is made as short as possible and printed, with the line that repeats it.\n"
    "The last line is 'N programs, N differences'.",
    options, COUNT_OF(options)
};

/* An integer of at least `least`; false, with a message, if it is not. */
static bool read_number(const char *option, const char *word, int64_t least, int64_t *out)
{
    char *end;
    *out = strtoll(word, &end, 10);
    if (end != word && !*end && *out >= least)
        return true;
    fprintf(stderr, "ckl fuzz: %s=%s is no whole number of at least %" PRId64 "\n", option, word, least);
    return false;
}

static bool read_minutes(double *seconds)
{
    char *end;
    *seconds = strtod(minutes, &end) * 60;
    if (end != minutes && !*end && *seconds >= 0 && *seconds <= SECONDS_MAX)
        return true;
    fprintf(stderr, "ckl fuzz: --minutes=%s is no number of minutes\n", minutes);
    return false;
}

static bool read_kind(int *out)
{
    *out = FUZZ_KINDS_ALL;
    for (int i = 0; fuzz_kind_names[i]; i++)
        if (strcmp(kind, fuzz_kind_names[i]) == 0)
            *out = i;
    if (*out != FUZZ_KINDS_ALL || strcmp(kind, "all") == 0)
        return true;
    fprintf(stderr, "ckl fuzz: --kind=%s is none of all, arithmetic, control, shared, matrix and async\n", kind);
    return false;
}

static bool read_request(fuzz_request *r)
{
    int64_t number, cores = sysconf(_SC_NPROCESSORS_ONLN);
    *r = (fuzz_request){ .device = device, .folder = folder };
    if (!read_number("--seed", seed, 0, &number) || !read_number("--count", count, 1, &r->count) ||
        !read_kind(&r->set.kind))
        return false;
    r->set.seed = (uint64_t)number;
    if (!read_minutes(&r->seconds_max) || !read_number("--shorten", shorten, 0, &r->shorten_max) ||
        (workers && !read_number("--workers", workers, 1, &cores)))
        return false;
    if (program && !read_number("--program", program, 0, &r->first))
        return false;
    r->count = program ? 1 : r->count;
    r->workers = (int)min_i64(min_i64(cores, WORKERS_MAX), ceil_div(r->count, FUZZ_BATCH));
    return true;
}

int cmd_fuzz(int argc, char **argv)
{
    fuzz_request request;
    fuzz_sums sums = { 0 };
    int done = cli_parse(&usage, &argc, argv);
    if (done != CLI_GO_ON)
        return done;
    if (argc > 1 || !read_request(&request)) {
        if (argc > 1)
            fprintf(stderr, "ckl fuzz: %s is no option; see 'ckl help fuzz'\n", argv[1]);
        return EXIT_USAGE;
    }
    if (folder)
        mkdir(folder, 0777); // may be there already
    ckl_status status = fuzz_run(&request, &sums);
    int64_t all = 0;
    for (int i = 0; i < FUZZ_KIND_COUNT; i++) {
        if (sums.programs[i])
            printf("%-10s %" PRId64 "\n", fuzz_kind_names[i], sums.programs[i]);
        all += sums.programs[i];
    }
    if (status != CKL_OK)
        return cli_fail(status);
    if (sums.alone)
        printf("skipped: comparing %" PRId64 " programs, whose target %s does not take\n", sums.alone, device);
    printf("%" PRId64 " programs, %" PRId64 " differences\n", all, sums.differences);
    return sums.differences ? EXIT_FAILED : EXIT_PASSED;
}
