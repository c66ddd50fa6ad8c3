/*
 * layout_reader.h - reads integers, tuples and layouts out of a longer text: the tables of atoms, the layout
 * calculator.
 *
 * Every function skips spaces first. A failure is false, and ir_fail() gets the position, counted from 1.
 */
#pragma once

#include "cute/layout.h"

enum { LITERAL_DEPTH_MAX = 32 };

typedef struct literal_reader {
    const char *start, *at;
    int depth; // of parentheses
} literal_reader;

bool read_char(literal_reader *r, char c); // skips c if it comes next; not finding it is no failure
bool read_int(literal_reader *r, int64_t *out);
bool read_tuple(literal_reader *r, int_tuple *out);
bool read_layout(literal_reader *r, layout *out); // without swizzle; a shape alone is compact
bool read_fail(const literal_reader *r, const char *format, ...) CKL_PRINTF(2, 3);
bool all_positive(int_tuple t);
