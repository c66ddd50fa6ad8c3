/* cmd_report.c - ckl report: files of ckl bench as a page with charts, or as Markdown. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "bench/report.h"
#include "cli/cli.h"
#include "lab/file.h"

static const char *const PAGE_DEFAULT = "report.html";

static const char *page, *markdown;
static const cli_option options[] = {
    { "--out", "FILE", &page, "write the page there; report.html if not given" },
    { "--markdown", NULL, &markdown, "print the tables as Markdown; the page is written only where --out names it" },
};

/* A slip of the hand would replace results. */
static ckl_status check_page(const char *path)
{
    size_t length = strlen(path);
    if (length >= 5 && strcmp(path + length - 5, ".json") == 0)
        FAIL(CKL_INVALID, "report: --out=%s is a name for results, not for a page", path);
    return CKL_OK;
}

static ckl_status write_page(const report *r, const char *path)
{
    text out = { 0 };
    report_print_page(r, &out);
    ckl_status status = file_write("report", path, &out);
    text_free(&out);
    return status;
}

static void print_markdown(const report *r)
{
    text out = { 0 };
    report_print_markdown(r, &out);
    fputs(text_data(&out), stdout);
    text_free(&out);
}

static ckl_status make(int count, char **paths)
{
    const char *path = page ? page : PAGE_DEFAULT;
    report r = { 0 };
    TRY(check_page(path));
    ckl_status status = report_read(paths, count, &r);
    if (status == CKL_OK && (page || !markdown))
        status = write_page(&r, path);
    if (status == CKL_OK && markdown)
        print_markdown(&r);
    else if (status == CKL_OK)
        printf("%s: %d problems of %d suites\n", path, r.problem_count, r.suite_count);
    report_free(&r);
    return status;
}

static int command(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "ckl report: give files or folders of results; see 'ckl help report'\n");
        return EXIT_USAGE;
    }
    return cli_exit(make(argc - 1, argv + 1));
}

CLI_COMMAND(
    report, "FILE.json|FOLDER ... [options]",
    "files of bench as a page with summary, charts and all rows, or as Markdown",
    "Makes one page of HTML of what `ckl bench --json` wrote: summary, charts of ratios and of the roofline, the\n"
    "worst problems, all rows. It needs no other file and no network. Results of different GPUs, drivers or\n"
    "methods stand apart, and every mean is of one file.\n"
    "Example: ckl report bench/results bench/results/sample --out report.html");
