/* conv_sliding.h - filters of a channel by a window of sums: what the kernel and its host side derive from a config. */
#pragma once

#include "operators/conv/conv_config.h"

typedef conv_sliding_config sliding_config;

enum {
    SLIDING_THREADS = 128,
    SLIDING_SPAN_MAX = 64, // columns of x under a thread
    SLIDING_TAPS_MAX = 72, // of a thread's channels in all, in registers
};

static inline int sliding_span_w(const sliding_config *c)
{
    return (c->cols - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
}

/* Rows of x under one of y, and rows of y that see a row of x. */
static inline int sliding_span_h(const sliding_config *c)
{
    return (c->rows - 1) * c->dilation_h + 1;
}

static inline int sliding_window(const sliding_config *c)
{
    return (int)ceil_div(sliding_span_h(c), c->step_h);
}

static inline int sliding_taps(const sliding_config *c)
{
    return c->rows * c->columns;
}

/* Elements from column to column of x. */
static inline int sliding_pixel(const sliding_config *c)
{
    return c->planes ? 1 : c->channels / c->filters;
}

/* Vectors of channels of a CTA. */
static inline int sliding_vectors(const sliding_config *c)
{
    return (int)min_i64(SLIDING_THREADS, c->channels / c->vec);
}

/*
 * A row of x under a thread is loaded in units of `run` columns. Some of the first one's may be seen by no tap, so that
 * units of planes are whole vectors.
 */
static inline int sliding_units(const sliding_config *c)
{
    return (int)ceil_div(c->skipped + sliding_span_w(c), c->run);
}

static inline int sliding_element(const sliding_config *c)
{
    return (int)ckl_dtype_bytes(c->form.dtype);
}

/* Bytes from the first unit that lies inside to another one. */
static inline int64_t sliding_far(const sliding_config *c, int unit)
{
    return (int64_t)(unit - c->left) * c->run * sliding_pixel(c) * sliding_element(c);
}

static inline int sliding_unit_bytes(const sliding_config *c)
{
    return c->vec * c->run * sliding_element(c);
}

/* Neighbours whose channels one copy takes. */
static inline int sliding_share(const sliding_config *c)
{
    return c->shared ? 16 / sliding_unit_bytes(c) : 1;
}

/* Copies of a thread for a row: each of a unit of all that share it. */
static inline int sliding_copies(const sliding_config *c)
{
    return (int)ceil_div(sliding_units(c), sliding_share(c));
}

/* Units of a row in shared memory. */
static inline int sliding_room(const sliding_config *c)
{
    return sliding_copies(c) * sliding_share(c);
}

/* Where rows of shared memory are under way: theirs, and the one that is multiplied. */
static inline int sliding_slots(const sliding_config *c)
{
    return c->ahead + 1;
}

/* The config of a kernel: 1 takes single elements and columns, for pointers that are aligned to no more. */
static inline sliding_config sliding_of_kernel(const void *config, int kernel)
{
    sliding_config c = *(const sliding_config *)config;
    if (kernel == 1) {
        c.vec = c.run = c.cols = c.ctas = 1;
        c.even = true;
        c.skipped = 0;
        c.left = c.right = sliding_units(&c); // any may be outside
        c.async = c.shared = false;
        c.ahead = 1;
    }
    return c;
}
