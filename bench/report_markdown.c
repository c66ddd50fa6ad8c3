/* report_markdown.c - a report as Markdown. */
#include <string.h>

#include "bench/report.h"

/* Each of these means something to Markdown; a line's end would end a row. In code only a bar and a backtick do. */
static void escape(const char *words, bool code, text *out)
{
    for (; *words; words++)
        if ((unsigned char)*words < ' ')
            text_append(out, " ", 1);
        else if (code && *words == '`')
            text_append(out, "'", 1);
        else
            text_printf(out, "%s%c", strchr(code ? "|" : "\\`*_[]<>|#&~", *words) ? "\\" : "", *words);
}

static void heading(text *out, int level, const char *anchor, const char *words)
{
    (void)anchor;
    text_printf(out, "%s%.*s ", out->length ? "\n" : "", level, "###");
    escape(words, false, out);
    text_printf(out, "\n");
}

static void paragraph(text *out, const char *words)
{
    text_printf(out, "\n");
    escape(words, false, out);
    text_printf(out, "\n");
}

static void print_cell(const report_column *c, const char *words, text *out)
{
    bool code = (c->kind == REPORT_CODE || c->kind == REPORT_CONFIG) && *words;
    text_printf(out, "%s", code ? " `" : " ");
    escape(words, code, out);
    text_printf(out, "%s |", code ? "`" : "");
}

static void table(text *out, const report_table *t)
{
    text number = { 0 };
    if (*t->name)
        paragraph(out, t->name);
    text_printf(out, "\n|");
    for (const report_column *c = t->columns; c < t->columns + t->column_count; c++)
        text_printf(out, " %s%s%s |", c->group, *c->group ? ", " : "", c->title);
    text_printf(out, "\n|");
    for (const report_column *c = t->columns; c < t->columns + t->column_count; c++)
        text_printf(out, c->kind < REPORT_COUNT ? "---|" : "---:|");
    for (int i = 0; i < t->count; i++) {
        const void *row = (const char *)t->rows + (size_t)i * t->stride;
        text_printf(out, "\n|");
        for (const report_column *c = t->columns; c < t->columns + t->column_count; c++)
            print_cell(c, report_cell(c, row, &number), out);
    }
    text_printf(out, "\n");
    text_free(&number);
}

void report_print_markdown(const report *r, text *out)
{
    static const report_writer markdown = { heading, paragraph, table, NULL };
    report_walk(r, &markdown, out);
}
