/* suites.h - the rows of a run: the lines of several files in turn, and where their results go. */
#pragma once

#include "bench/results.h"
#include "lab/case.h"

/* A file of lines, or the line of a command. */
typedef struct bench_suite {
    char *path;
    int case_count;
    results results;
    double written; // when its results were, in seconds
} bench_suite;

/* A row to be measured: line number `number` of a suite. */
typedef struct bench_row {
    test_case c;
    int suite, number;
    int group; // of files
} bench_row;

typedef struct bench_suites {
    bench_suite *suites;
    int suite_count;
    bench_row *rows;
    int row_count;
} bench_suites;

/*
 * The lines of files, whose names are separated by commas; - is stdin. Lines of several files are taken in turn, so
 * that a run that stops has as much of each. Two commas separate groups of files: the lines of a group come after all
 * of the group before. config, if not NULL, is forced on all. Free them also after a failure.
 */
ckl_status suites_read(const char *paths, const char *config, bench_suites *out);

/* A single row. */
ckl_status suites_read_line(const char *line, const char *config, bench_suites *out);
void suites_free(bench_suites *s);

/* Does the path of an output end with a slash? */
bool suites_is_folder(const char *path);

/* Appends the file of a suite's results: "DIR/softmax.json" of suites/softmax.txt, or the one that was given. */
void suites_name_output(const char *given, const char *suite, const char *extension, text *out);
