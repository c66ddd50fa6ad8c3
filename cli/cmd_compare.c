/* cmd_compare.c - ckl compare: two files of ckl bench, case by case. */
#include <stdio.h>
#include <stdlib.h>

#include "base/math.h"
#include "bench/comparison.h"
#include "cli/cli.h"

static const double TOLERANCE_DEFAULT = 3, TOLERANCE_MIN = 0.001; // percent

static const char *tolerance, *strict;
static const cli_option options[] = {
    { "--tolerance", "PERCENT", &tolerance, "a change that does not count, above 0 to 100; 3 if not given" },
    { "--strict", NULL, &strict, "cases that are ambiguous or gone fail, too" },
};

static ckl_status compare(const char *old_path, const char *new_path, comparison *c, results *old, results *new)
{
    double percent = TOLERANCE_DEFAULT;
    TRY(cli_number("--tolerance", tolerance, TOLERANCE_MIN, 100, &percent));
    TRY(results_read_json(old_path, old));
    TRY(results_read_json(new_path, new));
    return compare_results(old, new, percent / 100, c);
}

static int command(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "ckl compare: give the old and the new file; see 'ckl help compare'\n");
        return EXIT_USAGE;
    }
    comparison c = { 0 };
    results old = { 0 }, new = { 0 };
    ckl_status status = compare(argv[1], argv[2], &c, &old, &new);
    if (status == CKL_OK)
        comparison_report(&c);
    const int *count = c.count;
    bool failed =
        count[VERDICT_SLOWER] || count[VERDICT_FAILED] || (strict && (count[VERDICT_AMBIGUOUS] || count[VERDICT_GONE]));
    comparison_free(&c);
    results_free(&old);
    results_free(&new);
    return status != CKL_OK ? cli_exit(status) : failed ? EXIT_FAILED : EXIT_PASSED;
}

CLI_COMMAND(
    compare, "OLD.json NEW.json [options]",
    "two files of bench: what became faster, what slower; a gate for regressions",
    "Compares two files that `ckl bench --json` wrote on one machine by one method: every case is the same,\n"
    "faster, slower or ambiguous by the intervals of both medians; or new, gone, failed. Cases that are the same\n"
    "are counted, not listed. Fails if a case is slower or failed.");
