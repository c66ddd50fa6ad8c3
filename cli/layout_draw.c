/* layout_draw.c - CuTe's print_layout and print_latex, the latter as SVG. */
#include "cli/layout_draw.h"

#include <stdio.h>
#include <string.h>

/* Grids */

static grid_cell *new_cells(const char *what, int64_t rows, int64_t cols, int64_t grids)
{
    if (rows > GRID_CELLS_MAX / cols / grids) {
        ir_fail("%s: %" PRId64 " x %" PRId64 " x %" PRId64 " cells are more than the %d of a drawing", what, rows, cols,
                grids, GRID_CELLS_MAX);
        return NULL;
    }
    return ir_alloc((size_t)(rows * cols), sizeof(grid_cell));
}

/* Grid number `page` of a layout of two modes or more. */
static bool fill_page(layout a, int64_t page, int64_t pages, grid *out)
{
    int64_t rows = static_size(layout_mode(a, 0)), cols = static_size(layout_mode(a, 1));
    grid_cell *cells = new_cells("layout", rows, cols, pages);
    if (!cells)
        return false;
    *out = (grid){ .rows = rows, .cols = cols, .cells = cells };
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t row = i / cols, col = i % cols;
        cells[i] = (grid_cell){ .filled = true, .index = index_at(a, row + rows * (col + cols * page)) };
    }
    return true;
}

static void title_page(layout a, int64_t page, char title[], size_t bytes)
{
    text t = { 0 };
    int_tuple where = idx2crd(ir_int(CKL_I64, page), layout_modes(a, 2, rank(a)));
    text_printf(&t, "(_,_");
    for (int i = 0; i < tuple_rank(where); i++)
        text_printf(&t, ",%s", tuple_text(tuple_mode(where, i)));
    snprintf(title, bytes, "%s)", t.data);
    text_free(&t);
}

int64_t layout_grids(layout a, grid **out)
{
    if (rank(a) == 1)
        a = layouts_of(2, (layout[]){ make_layout(leaf(1), leaf(0)), a });
    int64_t pages = rank(a) > 2 ? static_size(layout_modes(a, 2, rank(a))) : 1;
    if (ir_failed() || !new_cells("layout", pages, 1, 1))
        return 0;
    *out = ir_alloc((size_t)pages, sizeof **out);
    for (int64_t page = 0; page < pages; page++) {
        if (!fill_page(a, page, pages, &(*out)[page]))
            return 0;
        if (rank(a) > 2)
            title_page(a, page, (*out)[page].title, sizeof(*out)[page].title);
    }
    return pages;
}

grid thread_value_grid(const char *title, layout thread_value, int64_t rows, int64_t cols, bool row_major)
{
    grid g = { .rows = rows, .cols = cols, .thread_values = true };
    snprintf(g.title, sizeof g.title, "%s", title);
    g.cells = new_cells(title, rows, cols, 1);
    int64_t threads = static_size(layout_mode(thread_value, 0)), count = static_size(thread_value);
    for (int64_t i = 0; i < count && g.cells; i++) {
        int64_t thread = i % threads, value = i / threads, index = index_at(thread_value, i);
        int64_t at = row_major ? index : index % rows * cols + index / rows;
        if (at >= 0 && at < rows * cols && !g.cells[at].filled)
            g.cells[at] = (grid_cell){ .filled = true, .index = thread, .value = value };
    }
    return g;
}

/* Text */

static void label_cell(const grid *g, const grid_cell *cell, char label[48])
{
    if (!cell->filled)
        label[0] = '\0';
    else if (g->thread_values)
        snprintf(label, 48, "T%" PRId64 " V%" PRId64, cell->index, cell->value);
    else
        snprintf(label, 48, "%" PRId64, cell->index);
}

static int label_width(const grid *g)
{
    char label[48];
    int width = snprintf(label, sizeof label, "%" PRId64, g->cols - 1);
    for (int64_t i = 0; i < g->rows * g->cols; i++) {
        label_cell(g, &g->cells[i], label);
        width = (int)max_i64(width, (int64_t)strlen(label));
    }
    return width;
}

static void print_rule(const grid *g, int margin, int width, text *out)
{
    text_printf(out, "%*s", margin, "");
    for (int64_t col = 0; col < g->cols; col++)
        text_printf(out, "+%.*s", width + 2, "--------------------------------------------------");
    text_printf(out, "+\n");
}

static void print_grid(const grid *g, text *out)
{
    char label[48];
    int width = label_width(g), margin = snprintf(label, sizeof label, "%" PRId64, g->rows - 1) + 1;
    if (g->title[0])
        text_printf(out, "%s\n", g->title);
    text_printf(out, "%*s", margin, "");
    for (int64_t col = 0; col < g->cols; col++)
        text_printf(out, "  %*" PRId64 " ", width, col);
    text_printf(out, "\n");
    for (int64_t row = 0; row < g->rows; row++) {
        print_rule(g, margin, width, out);
        text_printf(out, "%*" PRId64 " ", margin - 1, row);
        for (int64_t col = 0; col < g->cols; col++) {
            label_cell(g, &g->cells[row * g->cols + col], label);
            text_printf(out, "| %*s ", width, label);
        }
        text_printf(out, "|\n");
    }
    print_rule(g, margin, width, out);
}

void grids_print(int64_t count, const grid *grids, text *out)
{
    for (int64_t i = 0; i < count; i++)
        print_grid(&grids[i], out);
}

/* SVG */

enum { CELL = 40, MARGIN = 44, TITLE = 28 }; // pixels

/* print_latex's eight shades of threads, which serve for indices too. */
static const char *const shades[] = { "#afafff", "#afffaf", "#ffffaf", "#ffafaf",
                                      "#d2d2ff", "#d2ffd2", "#ffffd2", "#ffd2d2" };

static void svg_cell(const grid *g, int64_t row, int64_t col, int64_t top, text *out)
{
    const grid_cell *cell = &g->cells[row * g->cols + col];
    int64_t x = MARGIN + col * CELL, y = top + row * CELL;
    const char *shade = cell->filled ? shades[(cell->index % 8 + 8) % 8] : "#ffffff";
    text_printf(out, "<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", x, y, CELL,
                CELL, shade);
    if (!cell->filled)
        return;
    if (g->thread_values)
        text_printf(out,
                    "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\">T%" PRId64 "</text><text x=\"%" PRId64 "\" y=\"%" PRId64
                    "\">V%" PRId64 "</text>\n",
                    x + CELL / 2, y + 13, cell->index, x + CELL / 2, y + 28, cell->value);
    else
        text_printf(out, "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\">%" PRId64 "</text>\n", x + CELL / 2, y + CELL / 2,
                    cell->index);
}

static void svg_grid(const grid *g, int64_t top, text *out)
{
    if (g->title[0])
        text_printf(out, "<text class=\"h\" x=\"%d\" y=\"%" PRId64 "\">%s</text>\n", MARGIN, top - 34, g->title);
    for (int64_t row = 0; row < g->rows; row++)
        text_printf(out, "<text x=\"%d\" y=\"%" PRId64 "\">%" PRId64 "</text>\n", MARGIN / 2,
                    top + row * CELL + CELL / 2, row);
    for (int64_t col = 0; col < g->cols; col++)
        text_printf(out, "<text x=\"%" PRId64 "\" y=\"%" PRId64 "\">%" PRId64 "</text>\n",
                    MARGIN + col * CELL + CELL / 2, top - 12, col);
    for (int64_t i = 0; i < g->rows * g->cols; i++)
        svg_cell(g, i / g->cols, i % g->cols, top, out);
}

void grids_svg(int64_t count, const grid *grids, text *out)
{
    int64_t width = 0, height = 0;
    for (int64_t i = 0; i < count; i++) {
        width = max_i64(width, 2 * MARGIN + grids[i].cols * CELL);
        height += MARGIN + TITLE + grids[i].rows * CELL;
    }
    text_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId64 "\" height=\"%" PRId64
                "\" viewBox=\"0 0 %" PRId64 " %" PRId64 "\">\n"
                "<style>rect{stroke:#000;stroke-width:1}text{font:12px monospace;text-anchor:middle;"
                "dominant-baseline:middle}.h{font-size:14px;text-anchor:start}</style>\n"
                "<path fill=\"#fff\" d=\"M0 0h%" PRId64 "v%" PRId64 "H0z\"/>\n",
                width, height + MARGIN, width, height + MARGIN, width, height + MARGIN);
    int64_t top = MARGIN + TITLE;
    for (int64_t i = 0; i < count; i++) {
        svg_grid(&grids[i], top, out);
        top += MARGIN + TITLE + grids[i].rows * CELL;
    }
    text_printf(out, "</svg>\n");
}

/* Bank conflicts */

/* NOTE: shared memory serves accesses of 16 bytes by 8 threads at a time: 128 bytes, 16 from each group of 4 banks. */
enum { PHASE_THREADS = 8, CHUNK_BYTES = 16 };

/* How many different 16-byte chunks the most wanted bank group must serve one after the other. */
static int worst_group(const int64_t chunks[PHASE_THREADS])
{
    int worst = 0;
    for (int i = 0; i < PHASE_THREADS; i++) {
        int wanted = 1;
        for (int j = 0; j < i; j++)
            wanted += (chunks[j] - chunks[i]) % PHASE_THREADS == 0 && chunks[j] != chunks[i];
        worst = wanted > worst ? wanted : worst;
    }
    return worst;
}

void bank_conflicts_print(layout a, int element_bits, text *out)
{
    if (rank(a) < 2 || ir_failed())
        return;
    layout plain = without_swizzle(a);
    bool mode_0_contiguous = static_size(layout_mode(a, 0)) > 1 && index_at(layout_mode(plain, 0), 1) == 1;
    int across = mode_0_contiguous ? 1 : 0;
    int64_t lines = static_size(layout_mode(a, across)), vector = 8 * CHUNK_BYTES / element_bits;
    int64_t vectors = min_i64(static_size(layout_mode(a, 1 - across)) / vector, GRID_CELLS_MAX / PHASE_THREADS);
    if (lines < PHASE_THREADS || vectors < 1) {
        text_printf(out, "bank conflicts: fewer than 8 lines of 16 bytes, nothing to say\n");
        return;
    }
    int worst = 0;
    for (int64_t v = 0; v < vectors; v++) {
        int64_t chunks[PHASE_THREADS];
        for (int line = 0; line < PHASE_THREADS; line++) {
            int64_t at[] = { across ? v * vector : line, across ? line : v * vector };
            int_tuple coord = ints(at[0], at[1]);
            int64_t index = static_crd2idx(coord, layout_modes(a, 0, 2));
            chunks[line] = index * element_bits / (8 * CHUNK_BYTES);
        }
        worst = (int)max_i64(worst, worst_group(chunks));
    }
    text_printf(out,
                "bank conflicts: 8 threads reading 16 bytes (%" PRId64 " elements of %d bits) each across mode %d: ",
                vector, element_bits, across);
    text_printf(out, worst > 1 ? "%d-way conflict\n" : "none\n", worst);
}
