/* layout_core.h - what the files of the layout algebra share: flat layouts and their sentences. */
#pragma once

#include "cute/layout.h"

/* A layout of depth 1 under construction. */
typedef struct flat_layout {
    int count;
    val shape[LAYOUT_MODES_MAX], stride[LAYOUT_MODES_MAX];
} flat_layout;

flat_layout flat_of(layout a);        // its leaves in order
flat_layout flat_coalesced(layout a); // at least one mode; those of size 1 are gone, unless it is the only one
void flat_add(flat_layout *f, val shape, val stride);
layout flat_unwrap(const flat_layout *f); // a single mode becomes a leaf, none becomes 1:0

/* a o b as composition(), but b may step past the end of a. NULL, or why there is none. */
const char *compose(layout a, layout b, layout *out);

/* ir_fail() with "op: A why" or "op: A, B why", and 1:0. */
layout no_layout(const char *op, const char *why, int count, const layout *arguments);
