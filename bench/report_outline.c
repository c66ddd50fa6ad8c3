/* report_outline.c - what a report has, from top to bottom: the columns of its tables, and the words between them. */
#include <stddef.h>

#include "base/math.h"
#include "bench/report.h"

#define COLUMN(owner, member, kind, group, title)            \
    {                                                        \
        group, title, REPORT_##kind, offsetof(owner, member) \
    }
#define SPREAD(member, kind, group)                                                                               \
    COLUMN(report_suite, member.mean, kind, group, "mean"), COLUMN(report_suite, member.low, kind, group, "5 %"), \
        COLUMN(report_suite, member.least, kind, group, "least")

static const report_column run_columns[] = {
    COLUMN(report_run, date, WORDS, "", "run"),
    COLUMN(report_run, commit, WORDS, "", "commit"),
    COLUMN(report_run, suite_count, COUNT, "", "suites"),
    COLUMN(report_run, copy_gbs, RATE, "GB/s", "copy"),
    COLUMN(report_run, read_gbs, RATE, "GB/s", "read"),
    COLUMN(report_run, write_gbs, RATE, "GB/s", "write"),
    COLUMN(report_run, matrix_tflops, RATE, "TFLOP/s", "16 bits"),
    COLUMN(report_run, matrix8_tflops, RATE, "TFLOP/s", "8 bits"),
    COLUMN(report_run, launch_us, TIME, "empty kernel", "us"),
    COLUMN(report_run, remarks, WORDS, "", "remarks"),
};
static const report_column suite_columns[] = {
    COLUMN(report_suite, name, WORDS, "", "suite"),
    COLUMN(report_suite, count, COUNT, "", "problems"),
    SPREAD(best, RATIO, "ratio to the best peer"),
    SPREAD(first, RATIO, "to its first choice"),
    SPREAD(of_limit, SHARE, "of the limit"),
    COLUMN(report_suite, failed, COUNT, "problems", "failed"),
    COLUMN(report_suite, peerless, COUNT, "problems", "no peer"),
    COLUMN(report_suite, doubtful, COUNT, "problems", "doubtful"),
};
static const report_column problem_columns[] = {
    COLUMN(report_problem, line, CODE, "", "problem"),
    COLUMN(report_problem, best, RATIO, "", "best"),
    COLUMN(report_problem, first, RATIO, "", "first"),
    COLUMN(report_problem, of_limit, SHARE, "", "of limit"),
    COLUMN(report_problem, limit, WORDS, "", "bound by"),
    COLUMN(report_problem, median_us, TIME, "", "median us"),
    COLUMN(report_problem, half_width, SHARE, "", "±"),
    COLUMN(report_problem, peers.data, WORDS, "", "ratio to each peer"),
    COLUMN(report_problem, config, CONFIG, "", "config"),
    COLUMN(report_problem, remarks.data, WORDS, "", "remarks"),
};
static const report_column worst_columns[] = {
    COLUMN(report_problem, line, CODE, "", "problem"),        COLUMN(report_problem, best, RATIO, "", "best"),
    COLUMN(report_problem, of_limit, SHARE, "", "of limit"),  COLUMN(report_problem, limit, WORDS, "", "bound by"),
    COLUMN(report_problem, median_us, TIME, "", "median us"), COLUMN(report_problem, suite, WORDS, "", "suite"),
};

#define TABLE(title, list, first, number)                                                               \
    &(report_table)                                                                                     \
    {                                                                                                   \
        .name = title, .columns = list, .column_count = COUNT_OF(list), .rows = first, .count = number, \
        .stride = sizeof *(first)                                                                       \
    }

static const char *const INTRODUCTION =
    "A ratio is the peer's time by ours: above 1 we are faster. The best is the fastest that was measured of all peers "
    "and their variants; the first choice is what a peer takes without a search. The limit is the least time that the "
    "hardware allows, by rates measured in the same run. Times are medians; ± is half of the interval that holds the "
    "median in 95 of 100 cases, 100 % where samples were too few. Means are geometric, of one file each; 5 % is the "
    "5th percentile.";

const char *report_cell(const report_column *c, const void *row, text *number)
{
    static const struct {
        const char *format;
        double factor;
    } forms[] = { [REPORT_RATE] = { "%.0f", 1 },
                  [REPORT_TIME] = { "%.2f", 1 },
                  [REPORT_RATIO] = { "%.3f", 1 },
                  [REPORT_SHARE] = { "%.1f %%", 100 } };
    const void *member = (const char *)row + c->offset;
    if (c->kind < REPORT_COUNT)
        return *(const char *const *)member ? *(const char *const *)member : "";
    text_clear(number);
    if (c->kind == REPORT_COUNT)
        text_printf(number, "%d", *(const int *)member);
    else if (!(*(const double *)member > 0))
        text_printf(number, "-");
    else
        text_printf(number, forms[c->kind].format, *(const double *)member * forms[c->kind].factor);
    return text_data(number);
}

/* Nothing is left out in silence. */
static void print_counts(const report_setup *s, text *out)
{
    int failed = 0, peerless = 0, doubtful = 0;
    for (const report_suite *suite = s->suites; suite < s->suites + s->suite_count; suite++) {
        failed += suite->failed;
        peerless += suite->peerless;
        doubtful += suite->doubtful;
    }
    text_printf(out, "%d problems. Failed: %d. Without a peer: %d. Doubtful: %d. Their remarks say why.",
                s->problem_count, failed, peerless, doubtful);
}

static void walk_setup(const report_setup *s, const report_writer *w, text *out)
{
    text words = { 0 };
    text_printf(&words, "%s, driver %s", s->header->gpu, s->header->driver);
    w->heading(out, 2, "", text_data(&words));
    w->paragraph(out, s->header->protocol);
    w->table(out, TABLE("Runs, and the limits measured in each", run_columns, s->runs, s->run_count));
    text_clear(&words);
    print_counts(s, &words);
    w->heading(out, 3, "", "Summary");
    w->paragraph(out, text_data(&words));
    w->table(out, TABLE("Suites", suite_columns, s->suites, s->suite_count));
    if (w->charts)
        w->charts(out, s);
    w->heading(out, 3, "", "Worst problems");
    w->table(out, TABLE("By ratio to the best peer", worst_columns, s->worst_ratios, s->worst_ratio_count));
    w->table(out, TABLE("By share of the limit", worst_columns, s->worst_shares, s->worst_share_count));
    for (const report_suite *suite = s->suites; suite < s->suites + s->suite_count; suite++) {
        report_table rows = *TABLE("", problem_columns, suite->problems, suite->count);
        rows.is_target = true;
        w->heading(out, 3, suite->anchor, suite->name);
        w->table(out, &rows);
    }
    text_free(&words);
}

void report_walk(const report *r, const report_writer *w, text *out)
{
    text words = { 0 };
    w->heading(out, 1, "", "Benchmark report");
    w->paragraph(out, INTRODUCTION);
    if (r->setup_count > 1) {
        text_printf(&words,
                    "Here are %d setups, of different GPUs, drivers or methods. They stand apart: times and ratios of "
                    "one say nothing about those of another.",
                    r->setup_count);
        w->paragraph(out, text_data(&words));
    }
    for (int i = 0; i < r->setup_count; i++)
        walk_setup(&r->setups[i], w, out);
    text_free(&words);
}
