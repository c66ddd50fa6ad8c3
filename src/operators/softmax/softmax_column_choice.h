/* softmax_column_choice.h - what the choices of rows across memory share: in registers, and in chunks. */
#pragma once

#include "base/math.h"
#include "base/status.h"
#include "operators/softmax/softmax_config.h"
#include "skeletons/memory_cost.h"

enum {
    COLUMN_FORWARD = 32,  // elements of a thread: each takes an f32 register
    COLUMN_BACKWARD = 16, // of y and as many of dy
    LINE_BYTES = 128,     // of memory
    SHORT_LINES = 24,     // of columns that are a thread's each
};

static inline int64_t tensor_bytes(const ckl_softmax_desc *d)
{
    return product_i64(product_i64(d->outer, d->n), d->inner * dtype_bytes(d->dtype));
}

static inline bool is_half(const ckl_softmax_desc *d)
{
    return dtype_bytes(d->dtype) == 2;
}

static inline bool is_forward(const ckl_softmax_desc *d)
{
    return d->direction == CKL_DIRECTION_FORWARD;
}

static inline bool is_half_forward(const ckl_softmax_desc *d)
{
    return is_half(d) && is_forward(d);
}

/* Do strips have whole lines of memory, so that half of the columns are half a line? */
static inline bool has_lines(const column_split *s, ckl_dtype dtype)
{
    return column_split_columns(s) * dtype_bytes(dtype) >= LINE_BYTES;
}

ckl_status softmax_check_other_axis(const char *what, const ckl_softmax_desc *d);

/* CTAs that hold a column in registers: one, a cluster, or 0. */
int softmax_ctas_that_hold(const ckl_softmax_desc *d, const ckl_device_info *device, column_split *held);

/* Do columns that are read twice take whole vectors? */
bool softmax_has_long_vectors(const ckl_softmax_desc *d);

/* Of a strip. */
int64_t softmax_chunks_of(const ckl_softmax_desc *d, const softmax_column_config *c);

/*
 * Of work of which shared memory is said. again: what reading the inputs once more costs of reading them. Chunks cost
 * what columns of their own would.
 */
plan_cost softmax_columns_cost(const ckl_softmax_desc *d, const ckl_device_info *device, const softmax_column_config *c,
                               memory_work work, double again);

ckl_status softmax_admit_columns(const char *what, const ckl_softmax_desc *d, const ckl_device_info *device,
                                 const softmax_column_config *c);
