/*
 * report.h - results of benchmarks for readers: what they come to, as a page of HTML with charts or as Markdown.
 *
 * All that is shown is tables: structs, and lists of their columns, which both writers walk through. A number that
 * there is not is 0, as in results.h.
 */
#pragma once

#include "base/text.h"
#include "bench/results.h"
#include "bench/statistics.h"

enum { REPORT_WORST_MAX = 5 }; // problems of a list of the worst

/* Every row of a table begins with the place that a link to it leads to, "" for none. */
typedef char report_anchor[32];

/* A row of results. */
typedef struct report_problem {
    report_anchor anchor;
    const result_row *row;
    const char *suite, *line, *config, *limit;
    text peers, remarks;
    double median_us, half_width, of_limit;
    double best, first; // ratios
} report_problem;

/* A file of results. Every number is of it alone. */
typedef struct report_suite {
    report_anchor anchor;
    int setup, place;
    char *path;
    const char *name; // of the path what not all files begin with
    results results;
    report_problem *problems;
    int count, failed, peerless, doubtful; // problems, and of them
    spread best, first, of_limit;
} report_suite;

/* A run of ckl bench, which may have measured several suites. */
typedef struct report_run {
    report_anchor anchor;
    const char *date, *commit, *remarks;
    int suite_count;
    double copy_gbs, read_gbs, write_gbs, launch_us, matrix_tflops, matrix8_tflops;
} report_run;

/* What was measured on one kind of GPU, with one driver, by one method: nothing else is comparable. */
typedef struct report_setup {
    const result_header *header; // of the first file
    report_suite *suites;
    int suite_count;
    report_problem *problems; // of all suites
    int problem_count;
    report_run *runs;
    int run_count;
    report_problem worst_ratios[REPORT_WORST_MAX], worst_shares[REPORT_WORST_MAX];
    int worst_ratio_count, worst_share_count;
} report_setup;

typedef struct report {
    report_suite *suites; // by setups
    int suite_count;
    report_problem *problems;
    int problem_count;
    report_setup *setups;
    int setup_count;
} report;

/* Reads files of ckl bench --json, and all *.json of folders. CKL_INVALID if one is none. Free it in any case. */
ckl_status report_read(char *const *paths, int count, report *out);
void report_free(report *r);

/* Appends a page that needs no other file, or Markdown. */
void report_print_page(const report *r, text *out);
void report_print_markdown(const report *r, text *out);

/* What the writers share */

typedef enum report_kind {
    REPORT_WORDS, // char *
    REPORT_CODE,
    REPORT_CONFIG, // long code, whose first two words say most
    REPORT_COUNT,  // int
    REPORT_RATE,   // double
    REPORT_TIME,
    REPORT_RATIO,
    REPORT_SHARE
} report_kind;

typedef struct report_column {
    const char *group, *title; // "of the limit", "mean"; a group may be ""
    report_kind kind;
    size_t offset;
} report_column;

typedef struct report_table {
    const char *name;
    const report_column *columns;
    int column_count;
    const void *rows;
    size_t stride;
    int count;
    bool is_target; // links lead to its rows; else from their first cells
} report_table;

typedef struct report_writer {
    void (*heading)(text *out, int level, const char *anchor, const char *words);
    void (*paragraph)(text *out, const char *words);
    void (*table)(text *out, const report_table *t);
    void (*charts)(text *out, const report_setup *s); // NULL: it has none
} report_writer;

/* The report from top to bottom. */
void report_walk(const report *r, const report_writer *w, text *out);

/* What a cell says, "-" of a number that there is not; number may hold it. */
const char *report_cell(const report_column *c, const void *row, text *number);

/* Appends words so that HTML shows them as they are. */
void report_escape(const char *words, text *out);

/* Figures in SVG: a dot for each problem, with its line on hover. */
void report_chart_ratios(const report_setup *s, text *out);
void report_chart_roofline(const report_setup *s, text *out);
