/*
 * layout_expr.h - the layout calculator: expressions such as "logical_divide((4,8):(1,4), 4:1)".
 *
 *     expression := function(expression, ...) | Sw<B,M,S>o expression | Sw<B,M,S> | <expression, ...> | literal
 *     literal    := shape:stride | shape
 *
 * A shape alone is a compact layout, or the coordinate, shape or number that a function asks for. <a,b> is a tiler: a
 * layout for each top mode. All integers are static.
 */
#pragma once

#include "cute/layout.h"

typedef enum layout_value_kind {
    VALUE_NUMBER,
    VALUE_LAYOUT,
    VALUE_SHAPE, // a literal without strides
    VALUE_TUPLE, // a coordinate
    VALUE_TILER,
    VALUE_SWIZZLE,
} layout_value_kind;

typedef struct layout_value {
    layout_value_kind kind;
    int_tuple tuple; // NUMBER, SHAPE, TUPLE
    layout layout;   // LAYOUT; the result of layout_evaluate() has it for a SHAPE too, the compact one
    layout *tiler;   // TILER: count of them
    int count;
    swizzle sw; // SWIZZLE
} layout_value;

/* Within a description. False: ir_fail() has the sentence, with the position of what could not be read. */
bool layout_evaluate(const char *expression, layout_value *out);

/* (4,(2,2)):(1,(4,8)), or a number, or a tuple. */
void layout_value_print(const layout_value *value, text *out);

/* The functions in order, one line of help each: name and help; false after the last one. */
bool layout_function(int i, const char **name, const char **help);
