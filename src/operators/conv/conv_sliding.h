/* conv_sliding.h - filters of a channel by a window of sums: what the kernel and its host side derive from a config. */
#pragma once

#include "operators/conv/conv_config.h"

typedef conv_sliding_config sliding_config;

enum {
    SLIDING_THREADS = 128, // of a CTA that loads rows to registers
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

/* Threads of a CTA; those that work are the first. */
static inline int sliding_threads(const sliding_config *c)
{
    return c->lanes ? (int)round_up(c->lanes * c->wide, 32) : SLIDING_THREADS;
}

/* Of boxes, which are rows of x under a CTA: their columns, which begin at whole 128 bytes in shared memory. */
static inline int sliding_box(const sliding_config *c)
{
    return (int)round_up((c->wide * c->cols - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1, 8);
}

static inline int sliding_box_channels(const sliding_config *c)
{
    return c->lanes * c->vec;
}

/* Vectors of channels of a CTA that shares filters. */
static inline int sliding_vectors(const sliding_config *c)
{
    return c->lanes ? c->lanes : (int)min_i64(SLIDING_THREADS, c->channels / c->vec);
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

static inline int sliding_unit_bytes(const sliding_config *c)
{
    return c->vec * c->run * sliding_element(c);
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
        c.lanes = 0;
        c.ahead = 1;
    }
    return c;
}
