/* report_page.c - a report as a page of HTML: one file, which reads without its script, on a phone and on paper. */
#include <limits.h>
#include <string.h>

#include "bench/report.h"

enum { LONG = 24 }; // letters of a cell from which on it may take several lines

static const char STYLE[] =
    ":root { color-scheme: light dark; --ink: #1c2430; --dim: #657080; --line: #dfe3e8; --page: #fff; --soft: "
    "#f5f7f9;\n"
    "  --bad: #c2410c; --blue: #2b6ca3; --green: #2f855a; --brown: #a16207 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #dde3ea; --dim: #8f9bab; --line: #2c3542; --page: #12171e; --soft: #1a212a;\n"
    "    --bad: #f0804a; --blue: #6db0e8; --green: #68c08e; --brown: #d7a640 } }\n"
    "body { margin: 0 auto; padding: 1.5rem 4vw 4rem; max-width: 84rem; background: var(--page); color: var(--ink);\n"
    "  font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100% }\n"
    "h2 { margin: 2.6rem 0 .4rem; padding-top: 1rem; border-top: 2px solid }\n"
    "h3 { margin: 2.2rem 0 .4rem; overflow-wrap: anywhere }\n"
    "p, figcaption { max-width: 46rem; margin: .4rem 0 1rem; color: var(--dim) }\n"
    ".wide { overflow-x: auto; margin: .6rem 0 1.4rem }\n"
    "table { border-collapse: collapse; font-size: .87em }\n"
    "caption { text-align: left; font-weight: 600 }\n"
    "th, td { padding: .32rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);\n"
    "  font-weight: 500; white-space: nowrap }\n"
    "thead th { color: var(--dim) }\n"
    "thead th[colspan] { text-align: center }\n"
    "tbody th { position: sticky; left: 0; background: var(--page) }\n"
    "tbody tr:hover > *, tr:target > * { background: var(--soft) }\n"
    "tr:target > * { box-shadow: inset 0 2px var(--blue), inset 0 -2px var(--blue) }\n"
    ".number { text-align: right }\n"
    ".words { color: var(--dim) }\n"
    ".long { min-width: 12rem; white-space: normal; overflow-wrap: anywhere }\n"
    ".below { color: var(--bad); font-weight: 600 }\n"
    "code { font-family: ui-monospace, Menlo, Consolas, monospace; white-space: normal; overflow-wrap: anywhere }\n"
    "th code { display: block; min-width: 14rem; max-width: 28rem }\n"
    "details code { display: block; width: 22rem }\n"
    "a { color: inherit; text-decoration-color: var(--dim); text-underline-offset: .2em }\n"
    "button { all: unset; cursor: pointer }\n"
    "button:focus-visible { outline: 2px solid var(--blue) }\n"
    "[aria-sort=ascending] button::after { content: ' \\2191' }\n"
    "[aria-sort=descending] button::after { content: ' \\2193' }\n"
    "figure { margin: 1.4rem 0 2rem; max-width: 60rem }\n"
    "svg { display: block; width: 100%; overflow: visible; font-size: 12px }\n"
    "text { fill: var(--dim); paint-order: stroke; stroke: var(--page); stroke-width: 3 } .name { fill: var(--ink); "
    "font-weight: 600 }\n"
    "line { stroke: var(--line) } .strong { stroke: var(--ink); stroke-width: 1.5 }\n"
    ".mean { stroke: var(--ink); stroke-width: 2.5 }\n"
    "circle { fill: var(--blue); fill-opacity: .5; stroke: var(--page); stroke-width: .5 }\n"
    "circle:hover { fill-opacity: 1; stroke: var(--ink); stroke-width: 1.5 }\n"
    "circle.below { fill: var(--bad) } circle.memory { fill: var(--green) } circle.launch { fill: var(--brown) }\n"
    "b.matrix { color: var(--blue) } b.memory { color: var(--green) } b.launch { color: var(--brown) }\n"
    "@media (max-width: 40rem) { body { font-size: 14px } th:has(code) { position: static } }\n"
    "@media print { body { max-width: none; padding: 0; font-size: 7.5pt } .wide { overflow: visible }\n"
    "  h2, h3 { break-after: avoid } tr, figure { break-inside: avoid } tbody th { position: static } }\n";

/* A header becomes a button that sorts its table: numbers by value, words by letters, cells without either last. */
static const char SCRIPT[] =
    "const key = cell => { const n = parseFloat(cell.textContent); return isNaN(n) ? cell.textContent : n; };\n"
    "const none = cell => ['', '-'].includes(cell.textContent);\n"
    "const order = (a, b) => typeof a == 'number' ? a - b : String(a).localeCompare(b);\n"
    "for (const head of document.querySelectorAll('.sorts thead th')) {\n"
    "  const button = document.createElement('button');\n"
    "  button.append(...head.childNodes);\n"
    "  head.append(button);\n"
    "  button.onclick = () => {\n"
    "    const up = head.ariaSort != 'ascending', body = head.closest('table').tBodies[0], i = head.cellIndex;\n"
    "    for (const other of head.parentNode.cells) other.ariaSort = null;\n"
    "    head.ariaSort = up ? 'ascending' : 'descending';\n"
    "    body.append(...[...body.rows].sort((a, b) => none(a.cells[i]) - none(b.cells[i]) ||\n"
    "      (up ? 1 : -1) * order(key(a.cells[i]), key(b.cells[i]))));\n"
    "  };\n"
    "}\n";

void report_escape(const char *words, text *out)
{
    static const char *const entities[UCHAR_MAX + 1] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"
    };
    for (; *words; words++) {
        const char *entity = entities[(unsigned char)*words];
        if (entity)
            text_printf(out, "%s", entity);
        else
            text_append(out, (unsigned char)*words < ' ' ? " " : words, 1);
    }
}

static void heading(text *out, int level, const char *anchor, const char *words)
{
    text_printf(out, "<h%d%s%s%s>", level, *anchor ? " id=\"" : "", anchor, *anchor ? "\"" : "");
    report_escape(words, out);
    text_printf(out, "</h%d>\n", level);
}

static void paragraph(text *out, const char *words)
{
    text_printf(out, "<p>");
    report_escape(words, out);
    text_printf(out, "</p>\n");
}

static bool is_number(const report_column *c)
{
    return c->kind >= REPORT_COUNT;
}

/* A head over the columns of each group; columns without one have an empty place there. */
static void print_groups(const report_table *t, text *out)
{
    text_printf(out, "<tr>");
    for (int i = 0, width; i < t->column_count; i += width) {
        const char *group = t->columns[i].group;
        for (width = 1; *group && i + width < t->column_count && strcmp(t->columns[i + width].group, group) == 0;)
            width++;
        text_printf(out, "<th colspan=\"%d\">%s</th>", width, group);
    }
    text_printf(out, "</tr>\n");
}

static void print_head(const report_table *t, text *out)
{
    bool grouped = false;
    for (const report_column *c = t->columns; c < t->columns + t->column_count; c++)
        grouped |= *c->group != '\0';
    text_printf(out, "<thead>");
    if (grouped)
        print_groups(t, out);
    text_printf(out, "<tr>");
    for (const report_column *c = t->columns; c < t->columns + t->column_count; c++)
        text_printf(out, "<th scope=\"col\"%s>%s</th>", is_number(c) ? " class=\"number\"" : "", c->title);
    text_printf(out, "</tr></thead>\n");
}

static void print_code(const char *code, text *out)
{
    text_printf(out, "<code>");
    report_escape(code, out);
    text_printf(out, "</code>");
}

/* Two words of a config, operator and implementation; all of it where they are opened. */
static void print_config(const char *config, text *out)
{
    const char *space = strchr(config, ' '), *end = space ? strchr(space + 1, ' ') : NULL;
    text first = { 0 };
    text_append(&first, config, end ? (size_t)(end - config) : strlen(config));
    text_printf(out, "<details><summary>");
    report_escape(text_data(&first), out);
    text_printf(out, "</summary>");
    print_code(config, out);
    text_printf(out, "</details>");
    text_free(&first);
}

static void print_words(const report_column *c, const char *words, text *out)
{
    if (c->kind == REPORT_CODE)
        print_code(words, out);
    else if (c->kind == REPORT_CONFIG && *words)
        print_config(words, out);
    else
        report_escape(words, out);
}

/* The first cell of a row names it, and links to where more is said of it. */
static void print_name(const report_table *t, const void *row, const char *words, text *out)
{
    const char *anchor = row;
    bool links = *anchor && !t->is_target;
    text_printf(out, "<th scope=\"row\">");
    if (links)
        text_printf(out, "<a href=\"#%s\">", anchor);
    print_words(t->columns, words, out);
    text_printf(out, "%s</th>", links ? "</a>" : "");
}

static const char *class_of(const report_column *c, const void *row, const char *words)
{
    if (!is_number(c))
        return c->kind == REPORT_WORDS && strlen(words) > LONG ? "words long" : "words";
    const double *ratio = c->kind == REPORT_RATIO ? (const double *)((const char *)row + c->offset) : NULL;
    return ratio && *ratio > 0 && *ratio < 1 ? "number below" : "number";
}

static void print_row(const report_table *t, const void *row, text *out)
{
    text number = { 0 };
    if (t->is_target)
        text_printf(out, "<tr id=\"%s\">", (const char *)row);
    else
        text_printf(out, "<tr>");
    print_name(t, row, report_cell(t->columns, row, &number), out);
    for (const report_column *c = t->columns + 1; c < t->columns + t->column_count; c++) {
        const char *words = report_cell(c, row, &number);
        text_printf(out, "<td class=\"%s\">", class_of(c, row, words));
        print_words(c, words, out);
        text_printf(out, "</td>");
    }
    text_printf(out, "</tr>\n");
    text_free(&number);
}

static void table(text *out, const report_table *t)
{
    text_printf(out, "<div class=\"wide\"><table%s>\n", t->is_target ? " class=\"sorts\"" : "");
    if (*t->name)
        text_printf(out, "<caption>%s</caption>\n", t->name);
    print_head(t, out);
    text_printf(out, "<tbody>\n");
    for (int i = 0; i < t->count; i++)
        print_row(t, (const char *)t->rows + (size_t)i * t->stride, out);
    text_printf(out, "</tbody></table></div>\n");
}

static void charts(text *out, const report_setup *s)
{
    report_chart_ratios(s, out);
    report_chart_roofline(s, out);
}

void report_print_page(const report *r, text *out)
{
    static const report_writer page = { heading, paragraph, table, charts };
    text_printf(out,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
                "script-src 'unsafe-inline'\"/>\n<title>Benchmark report");
    for (int i = 0; i < r->setup_count; i++) {
        text_printf(out, "%s", i ? "; " : ": ");
        report_escape(r->setups[i].header->gpu, out);
    }
    text_printf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", STYLE);
    report_walk(r, &page, out);
    text_printf(out, "<script>\n%s</script>\n</body>\n</html>\n", SCRIPT);
}
