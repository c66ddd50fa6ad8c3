/* conv_skinny.h - filters of one pixel, few channels on a side: what kernel and host side derive from a config. */
#pragma once

#include "operators/conv/conv_config.h"

enum {
    SKINNY_THREADS = 256,
    SKINNY_CTAS = 2, // of an SM, which limits registers
    SKINNY_LANES = 32,
    SKINNY_FEW_MAX = 16,
    SKINNY_RUNS_MAX = 16,
    SKINNY_KEPT_MAX = 64, // filters or sums of a thread
    SKINNY_AHEAD_MAX = 8,
    SKINNY_SLICES_MAX = 1024
};

#define CONV_SKINNY_CONFIG(X, owner)                                                     \
    X(owner, int, few, "1", "", "channels of the narrow side")                           \
    X(owner, bool, wide_x, "1", "0 1", "x or dx is the wide side, else y or dy")         \
    X(owner, int, vec, "8", "1 2 4 8", "wide channels of a load")                        \
    X(owner, int, vec_few, "1", "1 2 4 8", "few channels of a load")                     \
    X(owner, int, vec_w, "1", "1 2 4 8", "few filters, of neighbours, of a load")        \
    X(owner, int, runs, "1", "1 2 4 8", "vectors of a thread")                           \
    X(owner, int, lanes, "8", "", "threads beside each other, which share a pixel")      \
    X(owner, int, ahead, "4", "1 2 4 8", "pixels of a thread whose loads are under way") \
    X(owner, int, slices, "1", "", "of the pixels, summed apart first")

CONV_CONFIG(conv_skinny_config, CONV_SKINNY_CONFIG);

/* Is the narrow side a sum over the wide one? Lanes of one warp add it. */
static inline bool skinny_sums_wide(const conv_skinny_config *c)
{
    return c->form.direction != CKL_CONV_WEIGHT && c->wide_x == (c->form.direction == CKL_CONV_FORWARD);
}

/* Pixels beside each other in a CTA. */
static inline int skinny_groups(const conv_skinny_config *c)
{
    return skinny_sums_wide(c) ? SKINNY_THREADS / SKINNY_LANES * (SKINNY_LANES / c->lanes) : SKINNY_THREADS / c->lanes;
}

/* Elements of filters of a load. */
static inline int skinny_filter_vector(const conv_skinny_config *c)
{
    return c->wide_x ? c->vec : c->vec_w;
}

/* Wide channels of a CTA. */
static inline int skinny_width(const conv_skinny_config *c)
{
    return c->lanes * c->vec * c->runs;
}

static inline int skinny_wide_side(const conv_skinny_config *c)
{
    return c->wide_x ? CONV_X : CONV_Y;
}

static inline int skinny_few_side(const conv_skinny_config *c)
{
    return c->wide_x ? CONV_Y : CONV_X;
}

void conv_skinny(const void *config, int kernel);
