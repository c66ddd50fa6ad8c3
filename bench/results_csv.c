/* results_csv.c - one line a row; the members of the best and the first peer behind ours. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "bench/results.h"

static const char *const roles[] = { "best", "first" };

/* RFC 4180: quotes are doubled. */
static void write_text(const char *s, FILE *file)
{
    putc('"', file);
    for (; *s; s++) {
        if (*s == '"')
            putc('"', file);
        putc(*s, file);
    }
    putc('"', file);
}

static void write_members(const result_table *table, const void *object, FILE *file)
{
    for (int i = 0; i < table->count; i++) {
        const result_member *m = &table->rows[i];
        const char *at = (const char *)object + m->offset;
        if (m->kind == RESULT_text)
            write_text(at, file);
        else if (m->kind == RESULT_real)
            fprintf(file, "%.6g", *(const result_real *)at);
        else if (m->kind == RESULT_count)
            fprintf(file, "%" PRId64, *(const result_count *)at);
        else
            fprintf(file, "%d", *(const result_flag *)at);
        putc(',', file);
    }
}

static void write_names(const result_table *table, const char *prefix, FILE *file)
{
    for (int i = 0; i < table->count; i++)
        fprintf(file, "%s%s%s,", prefix, *prefix ? "_" : "", table->rows[i].name);
}

static void write_row(const result_row *row, FILE *file)
{
    static const result_peer none;
    write_members(&result_row_table, row, file);
    for (int i = 0; i < COUNT_OF(roles); i++) {
        const result_peer *p = result_find_peer(row, roles[i]);
        write_members(&result_peer_table, p ? p : &none, file);
    }
    fprintf(file, "%d\n", row->peer_count);
}

ckl_status results_write_csv(const results *r, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        FAIL(CKL_INVALID, "results: %s cannot be written: %s", path, strerror(errno));
    write_names(&result_row_table, "", file);
    for (int i = 0; i < COUNT_OF(roles); i++)
        write_names(&result_peer_table, roles[i], file);
    fprintf(file, "peers\n");
    for (int i = 0; i < r->row_count; i++)
        write_row(&r->rows[i], file);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        FAIL(CKL_INVALID, "results: %s cannot be written", path);
    return CKL_OK;
}
