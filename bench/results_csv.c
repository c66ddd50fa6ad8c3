/* results_csv.c - one line a row; the members of the best and the first peer behind ours. */
#include "base/math.h"
#include "base/text.h"
#include "bench/results.h"
#include "lab/file.h"

static const char *const roles[] = { "best", "first" };

/* RFC 4180: quotes are doubled. */
static void write_text(const char *s, text *out)
{
    text_append(out, "\"", 1);
    for (; *s; s++) {
        if (*s == '"')
            text_append(out, "\"", 1);
        text_append(out, s, 1);
    }
    text_append(out, "\"", 1);
}

static void write_members(const result_table *table, const void *object, text *out)
{
    for (int i = 0; i < table->count; i++) {
        const result_member *m = &table->rows[i];
        const char *at = (const char *)object + m->offset;
        if (m->kind == RESULT_text)
            write_text(at, out);
        else if (m->kind == RESULT_real)
            text_printf(out, "%.6g", *(const result_real *)at);
        else if (m->kind == RESULT_count)
            text_printf(out, "%" PRId64, *(const result_count *)at);
        else
            text_printf(out, "%d", *(const result_flag *)at);
        text_append(out, ",", 1);
    }
}

static void write_names(const result_table *table, const char *prefix, text *out)
{
    for (int i = 0; i < table->count; i++)
        text_printf(out, "%s%s%s,", prefix, *prefix ? "_" : "", table->rows[i].name);
}

static void write_row(const result_row *row, text *out)
{
    static const result_peer none;
    write_members(&result_row_table, row, out);
    for (int i = 0; i < COUNT_OF(roles); i++) {
        const result_peer *p = result_find_peer(row, roles[i]);
        write_members(&result_peer_table, p ? p : &none, out);
    }
    text_printf(out, "%d\n", row->peer_count);
}

ckl_status results_write_csv(const results *r, const char *path)
{
    text out = { 0 };
    write_names(&result_row_table, "", &out);
    for (int i = 0; i < COUNT_OF(roles); i++)
        write_names(&result_peer_table, roles[i], &out);
    text_printf(&out, "peers\n");
    for (int i = 0; i < r->row_count; i++)
        write_row(&r->rows[i], &out);
    ckl_status status = file_write("results", path, &out);
    text_free(&out);
    return status;
}
