/* report.c - files of results, put together by what is comparable, and summed up. */
#include "bench/report.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"

/* Files */

static bool is_json(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".json") == 0;
}

static ckl_status add_file(report *r, const char *path)
{
    r->suites = heap_resize(r->suites, (size_t)r->suite_count + 1, sizeof *r->suites);
    report_suite *s = &r->suites[r->suite_count];
    *s = (report_suite){ .path = heap_text(path), .place = r->suite_count++ };
    TRY(results_read_json(path, &s->results));
    if (!*s->results.header.gpu)
        FAIL(CKL_INVALID, "report: %s does not say on which GPU it was measured", path);
    return CKL_OK;
}

static int is_json_entry(const struct dirent *entry)
{
    return is_json(entry->d_name);
}

static ckl_status add_folder(report *r, const char *path, struct dirent *const *entries, int count)
{
    ckl_status status = CKL_OK;
    text file = { 0 };
    if (count == 0)
        FAIL(CKL_INVALID, "report: the folder %s has no file .json", path);
    for (int i = 0; i < count && status == CKL_OK; i++) {
        text_clear(&file);
        text_printf(&file, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", entries[i]->d_name);
        status = add_file(r, text_data(&file));
    }
    text_free(&file);
    return status;
}

static ckl_status add_path(report *r, const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, is_json_entry, alphasort);
    if (count < 0) // it is no folder
        return add_file(r, path);
    ckl_status status = add_folder(r, path, entries, count);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return status;
}

/* The length of the folders that all paths begin with. */
static size_t common_folder(const report *r)
{
    const char *first = r->suites[0].path, *slash = strrchr(first, '/');
    size_t length = slash ? (size_t)(slash + 1 - first) : 0;
    for (int i = 1; i < r->suite_count; i++)
        while (strncmp(r->suites[i].path, first, length) != 0)
            do // leave the last folder out
                length--;
            while (length && first[length - 1] != '/');
    return length;
}

/* Problems */

static bool is_timed(const result_row *row)
{
    return row->median_us > 0;
}

static void remark(text *out, const char *what, const char *words)
{
    if (*words)
        text_printf(out, "%s%s%s", out->length ? "; " : "", what, words);
}

static void print_remarks(const result_row *row, text *out)
{
    remark(out,
           is_timed(row) ? "fault: " : "not timed: ", *row->fault || is_timed(row) ? row->fault : "no reason is given");
    remark(out, "do not believe it: ", row->beyond_limit ? "faster than the limit by more than 3 %" : "");
    remark(out, "do not believe it: ", row->shared ? "another process came to the GPU" : "");
    remark(out, "the clock was kept down: ", row->clock_reasons);
    for (const result_peer *p = row->peers; p < row->peers + row->peer_count; p++)
        if (*p->fault) {
            remark(out, p->name, " ");
            text_printf(out, "%s does not count: %s", p->role, p->fault);
        }
    remark(out, "", row->note);
}

/* Is a first choice the best, too? */
static bool is_repeated(const result_row *row, const result_peer *first)
{
    for (const result_peer *p = row->peers; p < row->peers + row->peer_count; p++)
        if (p != first && strcmp(p->role, "best") == 0 && strcmp(p->name, first->name) == 0 && p->ratio == first->ratio)
            return true;
    return false;
}

/* "torch 1.023, torch first 1.100": variants between the two are left out. */
static void print_peers(const result_row *row, text *out)
{
    for (const result_peer *p = row->peers; p < row->peers + row->peer_count; p++) {
        bool best = strcmp(p->role, "best") == 0, first = strcmp(p->role, "first") == 0 && !is_repeated(row, p);
        if ((best || first) && p->median_us > 0 && !*p->fault)
            text_printf(out, "%s%s %s%.3f", out->length ? ", " : "", p->name, first ? "first " : "", p->ratio);
    }
}

static double ratio_to(const result_row *row, const char *role)
{
    const result_peer *p = is_timed(row) ? result_find_peer(row, role) : NULL;
    return p ? p->ratio : 0;
}

static void add_problem(report *r, const report_suite *s, const result_row *row)
{
    report_problem *p = &r->problems[r->problem_count++];
    *p = (report_problem){ .row = row,
                           .suite = s->name,
                           .line = row->line,
                           .config = row->config,
                           .limit = row->limit,
                           .median_us = row->median_us,
                           .half_width = is_timed(row) ? row->half_width : 0,
                           .of_limit = is_timed(row) ? row->of_limit : 0,
                           .best = ratio_to(row, "best"),
                           .first = ratio_to(row, "first") };
    snprintf(p->anchor, sizeof p->anchor, "%.12s-%d", s->anchor, (int)(row - s->results.rows) + 1);
    print_peers(row, &p->peers);
    print_remarks(row, &p->remarks);
}

static double number_of(const report_problem *p, size_t offset)
{
    return *(const double *)((const char *)p + offset);
}

/* Of one number of a suite's problems, where it is known. */
static spread spread_of_number(const report_suite *s, size_t offset)
{
    double *values = heap_alloc((size_t)s->count + 1, sizeof *values);
    int count = 0;
    for (int i = 0; i < s->count; i++)
        if (number_of(&s->problems[i], offset) > 0)
            values[count++] = number_of(&s->problems[i], offset);
    spread all = spread_of(values, count);
    heap_free(values);
    return all;
}

static void sum_up(report *r, report_suite *s)
{
    snprintf(s->anchor, sizeof s->anchor, "s%d", s->place + 1);
    s->problems = r->problems + r->problem_count;
    s->count = s->results.row_count;
    for (const result_row *row = s->results.rows; row < s->results.rows + s->count; row++) {
        add_problem(r, s, row);
        s->failed += !is_timed(row) || *row->fault;
        s->peerless += is_timed(row) && !(ratio_to(row, "best") > 0);
        s->doubtful += row->beyond_limit || row->shared;
    }
    s->best = spread_of_number(s, offsetof(report_problem, best));
    s->first = spread_of_number(s, offsetof(report_problem, first));
    s->of_limit = spread_of_number(s, offsetof(report_problem, of_limit));
}

/* Setups */

/* As ckl compare has it. */
static bool is_same_setup(const result_header *a, const result_header *b)
{
    return strcmp(a->gpu, b->gpu) == 0 && strcmp(a->driver, b->driver) == 0 && strcmp(a->protocol, b->protocol) == 0;
}

static int by_setup(const void *a, const void *b)
{
    const report_suite *x = a, *y = b;
    return x->setup != y->setup ? x->setup - y->setup : x->place - y->place;
}

/* Names suites, and puts them in the order of their setups, of which each has the place of its first file. */
static void sort_suites(report *r)
{
    size_t common = common_folder(r);
    for (report_suite *s = r->suites; s < r->suites + r->suite_count; s++) {
        s->name = s->path + common;
        if (is_json(s->name))
            s->path[strlen(s->path) - 5] = '\0';
        while (!is_same_setup(&r->suites[s->setup].results.header, &s->results.header))
            s->setup++;
    }
    qsort(r->suites, (size_t)r->suite_count, sizeof *r->suites, by_setup);
}

static void count_run(report_setup *s, const result_header *h)
{
    const char *commit = *h->commit ? h->commit : "unknown";
    for (report_run *run = s->runs; run < s->runs + s->run_count; run++)
        if (strcmp(run->date, h->date) == 0 && strcmp(run->commit, commit) == 0) {
            run->suite_count++;
            return;
        }
    s->runs = heap_resize(s->runs, (size_t)s->run_count + 1, sizeof *s->runs);
    s->runs[s->run_count++] =
        (report_run){ .date = h->date,
                      .commit = commit,
                      .remarks = h->busy_percent > 0 ? "do not believe it: others used the GPU" : "",
                      .suite_count = 1,
                      .copy_gbs = h->copy_gbs,
                      .read_gbs = h->read_gbs,
                      .write_gbs = h->write_gbs,
                      .launch_us = h->launch_us,
                      .matrix_tflops = h->matrix_tflops,
                      .matrix8_tflops = h->matrix8_tflops };
}

/* Keeps the least by one number, the least first. */
static void note_worst(report_problem *worst, int *count, const report_problem *p, size_t offset)
{
    int place = *count;
    while (place && number_of(p, offset) < number_of(&worst[place - 1], offset))
        place--;
    if (place == REPORT_WORST_MAX || !(number_of(p, offset) > 0))
        return;
    *count += *count < REPORT_WORST_MAX;
    memmove(worst + place + 1, worst + place, (size_t)(*count - place - 1) * sizeof *worst);
    worst[place] = *p;
}

static void add_to_setup(report_setup *s, const report_suite *suite)
{
    s->suite_count++;
    s->problem_count += suite->count;
    count_run(s, &suite->results.header);
    for (const report_problem *p = suite->problems; p < suite->problems + suite->count; p++) {
        note_worst(s->worst_ratios, &s->worst_ratio_count, p, offsetof(report_problem, best));
        note_worst(s->worst_shares, &s->worst_share_count, p, offsetof(report_problem, of_limit));
    }
}

static void make_setups(report *r)
{
    size_t rows = 0;
    for (int i = 0; i < r->suite_count; i++)
        rows += (size_t)r->suites[i].results.row_count;
    r->problems = heap_alloc(rows + 1, sizeof *r->problems);
    r->setups = heap_alloc((size_t)r->suite_count, sizeof *r->setups);
    for (report_suite *s = r->suites; s < r->suites + r->suite_count; s++) {
        sum_up(r, s);
        if (s == r->suites || s->setup != s[-1].setup)
            r->setups[r->setup_count++] =
                (report_setup){ .header = &s->results.header, .suites = s, .problems = s->problems };
        add_to_setup(&r->setups[r->setup_count - 1], s);
    }
}

ckl_status report_read(char *const *paths, int count, report *out)
{
    *out = (report){ 0 };
    for (int i = 0; i < count; i++)
        TRY(add_path(out, paths[i]));
    sort_suites(out);
    make_setups(out);
    return CKL_OK;
}

void report_free(report *r)
{
    for (int i = 0; i < r->problem_count; i++) {
        text_free(&r->problems[i].peers);
        text_free(&r->problems[i].remarks);
    }
    for (int i = 0; i < r->suite_count; i++) {
        heap_free(r->suites[i].path);
        results_free(&r->suites[i].results);
    }
    for (int i = 0; i < r->setup_count; i++)
        heap_free(r->setups[i].runs);
    heap_free(r->problems);
    heap_free(r->setups);
    heap_free(r->suites);
    *r = (report){ 0 };
}
