/* transpose_sm80.h - the kernel for any alignment, which sm90 launches, too, where pointers are not aligned. */
#pragma once

#include "operators/permute/transpose_tile.h"

#define TRANSPOSE_SM80_CONFIG(X, owner)                                              \
    TRANSPOSE_TILE_FIELDS(X, owner)                                                  \
    X(owner, int, align, "32", "4 16 32", "bytes: where windows of y begin and end") \
    X(owner, int, lanes, "32", "8 32", "of a warp along a row of y")

FIELD_STRUCT(transpose_sm80_config, TRANSPOSE_SM80_CONFIG);

void transpose_sm80(const void *config, int kernel);
