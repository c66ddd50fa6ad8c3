/* suites.c - reading suites, and putting their rows in turn. */
#include "bench/suites.h"

#include <stdlib.h>
#include <string.h>

#include "base/heap.h"

/* What a line of a file is added to. */
typedef struct reader {
    bench_suites *out;
    const char *config;
    int group;
} reader;

static bench_suite *add_suite(bench_suites *b, const char *path, size_t length)
{
    b->suites = heap_resize(b->suites, (size_t)b->suite_count + 1, sizeof *b->suites);
    bench_suite *s = &b->suites[b->suite_count++];
    *s = (bench_suite){ .path = memcpy(heap_alloc(length + 1, 1), path, length) };
    return s;
}

/* To the last suite. */
static ckl_status add_row(const char *line, void *user)
{
    const reader *r = user;
    bench_suites *b = r->out;
    const int suite = b->suite_count - 1;
    b->rows = heap_resize(b->rows, (size_t)b->row_count + 1, sizeof *b->rows);
    bench_row *row = &b->rows[b->row_count++];
    *row = (bench_row){ .suite = suite, .number = b->suites[suite].case_count++, .group = r->group };
    TRY(case_parse(line, &row->c));
    return r->config ? case_config(&row->c, r->config) : CKL_OK;
}

static int in_turn(const void *a, const void *b)
{
    const bench_row *x = a, *y = b;
    if (x->group != y->group)
        return x->group - y->group;
    return x->number != y->number ? x->number - y->number : x->suite - y->suite;
}

ckl_status suites_read(const char *paths, const char *config, bench_suites *out)
{
    reader r = { out, config, 0 };
    for (const char *at = paths; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length == 0)
            r.group++;
        else
            TRY(suite_read(add_suite(out, at, length)->path, add_row, &r));
        at += length;
    }
    if (out->row_count)
        qsort(out->rows, (size_t)out->row_count, sizeof *out->rows, in_turn);
    return CKL_OK;
}

ckl_status suites_read_line(const char *line, const char *config, bench_suites *out)
{
    reader r = { out, config, 0 };
    add_suite(out, "line", strlen("line"));
    return add_row(line, &r);
}

void suites_free(bench_suites *s)
{
    for (int i = 0; i < s->row_count; i++)
        case_clear(&s->rows[i].c);
    for (int i = 0; i < s->suite_count; i++) {
        results_free(&s->suites[i].results);
        heap_free(s->suites[i].path);
    }
    heap_free(s->rows);
    heap_free(s->suites);
    *s = (bench_suites){ 0 };
}

bool suites_is_folder(const char *path)
{
    return *path && path[strlen(path) - 1] == '/';
}

void suites_name_output(const char *given, const char *suite, const char *extension, text *out)
{
    const char *slash = strrchr(suite, '/'), *stem = slash ? slash + 1 : suite;
    text_printf(out, "%s", given);
    if (suites_is_folder(given))
        text_printf(out, "%.*s.%s", (int)strcspn(stem, "."), stem, extension);
}
