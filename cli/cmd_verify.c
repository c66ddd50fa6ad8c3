/* cmd_verify.c - ckl verify: every case, on every device present. */
#include <stdio.h>

#include "base/math.h"
#include "cli/cli.h"
#include "cli/verify.h"

static const char *device_id, *suite, *impl, *seeds, *shard, *slowest, *assemble, *full, *accepted, *update;
static const cli_option options[] = {
    { "--device", "D", &device_id, "one device; without it every device present: cuda and emulator" },
    { "--suite", "FILE", &suite, "lines of a file, - is standard input, instead of the operators' own cases" },
    { "--impl", "NAME", &impl, "only this implementation" },
    { "--full", NULL, &full, "all runs: 5 seeds, every fill of large problems too; all kernels assembled" },
    { "--seeds", "N", &seeds, "seeds of random inputs; else 1, with --full 5 for small problems" },
    { "--shard", "I/N", &shard, "every Nth line alone, from the Ith on: N processes or machines share the work" },
    { "--slowest", "N", &slowest, "at the end the N runs that took most seconds of a core, references included" },
    { "--assemble", NULL, &assemble, "also assemble the kernels of the cases, of bench/suites, and of a sample" },
    { "--accepted", "FILE", &accepted, "but not those whose code that ptxas has accepted before: a file of digests" },
    { "--update", NULL, &update, "write that file anew" },
};

static void verify_on(const char *id, verify_list *list, verify_sums *sums)
{
    ckl_device *device;
    if (ckl_device_open(id, &device) != CKL_OK) {
        printf("skipped: %d checks on %s, which cannot be opened: %s\n", list->job_count + list->reject_count, id,
               ckl_error());
        sums->skipped += list->job_count + list->reject_count;
        return;
    }
    if (assemble && verify_assemble(list, ckl_device_properties(device), sums) != CKL_OK) {
        printf("FAILED %s\n", ckl_error());
        sums->failed++;
    }
    if (!verify_run(list, device, sums))
        printf("skipped: the rest of the checks on %s, which is lost after a fault\n", id);
    ckl_device_close(device);
}

static ckl_status read_request(verify_request *r)
{
    int64_t seed_count = 0, shown = 0;
    if (shard && (sscanf(shard, "%d/%d", &r->shard, &r->shards) != 2 || r->shard < 1 || r->shard > r->shards))
        FAIL(CKL_INVALID, "--shard=%s is not I/N with 1 <= I <= N", shard);
    TRY(cli_integer("--seeds", seeds, 1, 1000, &seed_count));
    TRY(cli_integer("--slowest", slowest, 0, INT32_MAX, &shown));
    r->shard -= shard != NULL;
    r->seeds = (int)seed_count;
    r->slowest = (int)shown;
    r->suite = suite;
    r->impl = impl;
    r->full = full != NULL;
    r->accepted = accepted;
    r->update = update && accepted;
    return CKL_OK;
}

static int command(int argc, char **argv)
{
    (void)argc;
    verify_request request = { .operators = (const char *const *)argv + 1 };
    verify_list list = { 0 };
    ckl_status status = read_request(&request);
    if (status == CKL_OK)
        status = verify_list_create(&request, &list);
    if (status != CKL_OK) {
        verify_list_free(&list);
        return cli_exit(status);
    }
    verify_sums sums = { 0 };
    static const char *const every[] = { "cuda", "emulator" };
    if (device_id)
        verify_on(device_id, &list, &sums);
    else
        for (int i = 0; i < COUNT_OF(every); i++)
            verify_on(every[i], &list, &sums);
    verify_list_free(&list);
    printf("%d declined by an implementation, %d skipped, %d left to --full\n%d passed, %d failed\n", sums.declined,
           sums.skipped, sums.left, sums.passed, sums.failed);
    bool nothing = sums.passed + sums.failed == 0;
    return sums.failed ? EXIT_FAILED : nothing ? EXIT_UNSUPPORTED : EXIT_PASSED;
}

CLI_COMMAND(
    verify, "[OPERATOR ...] [options]", "every case of every operator through every implementation",
    "Runs every case of the operators through every implementation that takes it, with exact, hard and random\n"
    "inputs, and compares the whole result with the reference, and the bits with those of the device before where\n"
    "no approximate instruction is involved. What is left to --full is counted. The last line is 'N passed, N\n"
    "failed'.");
