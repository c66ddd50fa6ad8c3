/* groupnorm_moments.h - what some values of a group are known by, forward: how it is merged, and told to others. */
#ifndef CKL_GROUPNORM_MOMENTS_H
#define CKL_GROUPNORM_MOMENTS_H

#include "operators/groupnorm/groupnorm_slice.h"

/* So many values, and as an entry: a pivot, their mean above it, the sum of the squares of their differences from the mean. */
enum { MOMENTS_PIVOT, MOMENTS_MEAN, MOMENTS_SQUARES };

typedef struct moments {
    val count, of[GROUPNORM_ENTRY]; // f32
} moments;

enum {
    MOMENTS_PIVOT_VALUES = 3, // of which a pivot is the median
    MOMENTS_OF_LANE_MAX = 32, // that a lane merges with those of others of its group
    MOMENTS_AT_ONCE = 8,      // entries loaded by a lane
    MOMENTS_AT_ONCE_HELD = 4  // where all that are held want registers meanwhile
};

/* Of the sums of `count` values above their pivot, and of their squares. */
moments moments_of_sums(val count, val pivot, val sum, val squares);

/* What the lanes of a group have, `n` of them each: every lane gets the result. */
moments moments_merge(const groupnorm_slice *s, const moments *m, int n);

/* In shared memory, (GROUPNORM_ENTRY,PLACES); reading where `inside`, else of no values. */
void moments_set(tensor sMoments, val place, const moments *m);
moments moments_at(val inside, val count, tensor sMoments, val place);

/* How many elements of a group are in `slices` slices that follow each other, entry `number` of such: f32. */
val moments_elements(const groupnorm_slice *s, val number, int slices);

/* The lane's entries in n blocks, up to MOMENTS_AT_ONCE, of no values where there is none; all of the lane's group, merged some at once. */
void moments_load(const groupnorm_slice *s, const groupnorm_entries *e, val block, int n, moments *m);
moments moments_of_entries(const groupnorm_slice *s, const groupnorm_entries *e, int at_once);

#endif
