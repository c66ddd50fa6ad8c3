/* cmd_fuzz.c - ckl fuzz: random kernels on several devices, whose memory must be the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/math.h"
#include "cli/cli.h"
#include "cli/fuzz_workers.h"
#include "lab/cores.h"

enum { WORKERS_MAX = 128 };
static const double MINUTES_MAX = 1e5;

static const char *count, *seed, *device, *kind, *program, *minutes, *folder, *workers, *shorten;
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

static ckl_status read_kind(int *out)
{
    for (*out = 0; kind && fuzz_kind_names[*out]; ++*out)
        if (strcmp(kind, fuzz_kind_names[*out]) == 0)
            return CKL_OK;
    *out = FUZZ_KINDS_ALL;
    if (!kind || strcmp(kind, "all") == 0)
        return CKL_OK;
    FAIL(CKL_INVALID, "--kind=%s is none of all, arithmetic, control, shared, matrix and async", kind);
}

static ckl_status read_request(fuzz_request *r)
{
    int64_t number = 1, processes = cores_available();
    double duration = 0;
    *r = (fuzz_request){ .device = device, .folder = folder, .count = 10000, .shorten_max = 16 };
    TRY(cli_integer("--seed", seed, 0, INT64_MAX, &number));
    TRY(cli_integer("--count", count, 1, INT64_MAX, &r->count));
    TRY(cli_integer("--shorten", shorten, 0, INT64_MAX, &r->shorten_max));
    TRY(cli_integer("--workers", workers, 1, INT64_MAX, &processes));
    TRY(cli_integer("--program", program, 0, INT64_MAX, &r->first));
    TRY(cli_number("--minutes", minutes, 0, MINUTES_MAX, &duration));
    TRY(read_kind(&r->set.kind));
    r->set.seed = (uint64_t)number;
    r->seconds_max = duration * 60;
    r->count = program ? 1 : r->count;
    r->workers = (int)min_i64(min_i64(processes, WORKERS_MAX), ceil_div(r->count, FUZZ_BATCH));
    return CKL_OK;
}

static int command(int argc, char **argv)
{
    (void)argc, (void)argv;
    fuzz_request request;
    fuzz_sums sums = { 0 };
    ckl_status status = read_request(&request);
    if (status != CKL_OK)
        return cli_exit(status);
    if (folder)
        mkdir(folder, 0777); // may be there already
    status = fuzz_run(&request, &sums);
    int64_t all = 0;
    for (int i = 0; i < FUZZ_KIND_COUNT; i++) {
        if (sums.programs[i])
            printf("%-10s %" PRId64 "\n", fuzz_kind_names[i], sums.programs[i]);
        all += sums.programs[i];
    }
    if (status != CKL_OK)
        return cli_exit(status);
    if (sums.alone)
        printf("skipped: comparing %" PRId64 " programs, whose target %s does not take\n", sums.alone, device);
    printf("%" PRId64 " programs, %" PRId64 " differences\n", all, sums.differences);
    return sums.differences ? EXIT_FAILED : EXIT_PASSED;
}

CLI_COMMAND(fuzz, "[options]", "random kernels on several devices, compared bit for bit",
            "Executes random kernels on the emulator and on another device and compares everything that they leave in\n"
            "memory, bit by bit. A program that differs is made as short as possible and printed, with the line that\n"
            "repeats it. The last line is 'N programs, N differences'.");
