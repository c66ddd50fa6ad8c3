/* layout_draw.h - layouts as pictures: index grids and thread-value grids, as text and as SVG. */
#pragma once

#include "cute/layout.h"

enum { GRID_CELLS_MAX = 65536 }; // of one drawing: an accumulator of 64x256 fits four times

typedef struct grid_cell {
    bool filled;
    int64_t index; // or the thread
    int64_t value; // of a thread-value grid
} grid_cell;

/* Cells in row-major order, in the memory of the description under way. */
typedef struct grid {
    char title[96];
    int64_t rows, cols;
    bool thread_values;
    grid_cell *cells;
} grid;

/*
 * Index grids of a layout: mode 0 down, mode 1 across, one grid for each coordinate of the further modes; a single mode
 * is one row. Returns their count; 0: ir_fail() says why.
 */
int64_t layout_grids(layout a, grid **out);

/* The grid of rows x cols that (thread,value) pairs occupy by index, column-major or row-major. The first pair wins. */
grid thread_value_grid(const char *title, layout thread_value, int64_t rows, int64_t cols, bool row_major);

void grids_print(int64_t count, const grid *grids, text *out);
void grids_svg(int64_t count, const grid *grids, text *out);

/* One line on the bank conflicts of 8 threads that read 16 bytes each, side by side across the contiguous mode. */
void bank_conflicts_print(layout a, int element_bits, text *out);
