/* groupnorm_moments.h - what some values of a group are known by, forward: how it is merged, and told to others. */
#pragma once

#include "operators/groupnorm/groupnorm_slice.h"

/*
 * So many values, and as an entry: a pivot, their mean above it, the sum of the squares of their differences from the
 * mean.
 */
enum { MOMENTS_PIVOT, MOMENTS_MEAN, MOMENTS_SQUARES };

enum {
    MOMENTS_PIVOT_VALUES = 3, // of which a pivot is the median
    MOMENTS_OF_LANE_MAX = 32  // that a lane merges with those of others of its group
};

/* Of the sums of `count` values above their pivot, and of their squares. */
groupnorm_state moments_of_sums(val count, val pivot, val sum, val squares);

/* What the lanes of a group have, `n` of them each: every lane gets the result. */
groupnorm_state moments_merge(const groupnorm_slice *s, const groupnorm_state *m, int n);

/* In shared memory, (GROUPNORM_ENTRY,PLACES). */
void moments_set(tensor sMoments, val place, const groupnorm_state *m);
