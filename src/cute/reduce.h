/*
 * reduce.h - reductions over the registers of a thread, the lanes of a warp, the warps of a CTA and the CTAs of a
 * cluster.
 *
 * A thread's values are a small array of registers (a sum; a maximum and its index; count, mean and M2), combined by a
 * function that appends instructions. The order is fixed by thread numbers, so results are the same in every run. All
 * threads of the group must call together and all of them hold the result. Values are 32-bit or 64-bit.
 */
#pragma once

#include "cute/tensor.h"

enum { REDUCE_VALUES_MAX = 8 };

/* into = into combined with other; assigns the registers in `into`. Must be associative; the order of lanes is kept. */
typedef void reduce_combine(val *into, const val *other, void *user);

/*
 * Combines the values of all lanes whose numbers differ in bits from `low` to below `high`, both powers of two; all of
 * them hold the result.
 */
typedef void reduce_lanes(val *values, int low, int high, void *user);

typedef struct reduction {
    int count; // values of a thread, at most REDUCE_VALUES_MAX
    reduce_combine *combine;
    void *user;
    reduce_lanes *over_lanes; // cheaper than combine() for one bit after the other; NULL: there is nothing
} reduction;

/* Over a thread's own registers, in f32: of elements, or of products. Pairwise: the error grows with log2 of them. */
val fragment_sum(tensor rX);
val fragment_dot(tensor rX, tensor rY);

/* Over the lanes whose numbers differ in bits from `low` to below `high`, powers of two up to 32. values: variables. */
void lanes_reduce(const reduction *r, int low, int high, val *values);

/* Over groups of `width` neighbouring lanes, a power of two up to 32. values: variables. */
void warp_reduce(const reduction *r, int width, val *values);

/* Over the lanes whose numbers are equal modulo `inner`, a power of two up to 32. */
void warp_reduce_across(const reduction *r, int inner, val *values);

/* The sum of an integer over this lane and those before it in the warp. */
val warp_scan(val x);

/* Over the CTA: `threads` is a multiple of 32. scratch: shared memory of cta_reduce_bytes(), by ir_smem_alloc(). */
int64_t cta_reduce_bytes(int threads);
void cta_reduce(const reduction *r, int threads, int64_t scratch, val *values);

/*
 * Over each group of `threads` neighbouring threads of the CTA, a multiple of 32. Group g meets at named barrier
 * `barrier` + g. scratch: for all threads of the CTA.
 */
void cta_reduce_groups(const reduction *r, int threads, int barrier, int64_t scratch, val *values);

/* The same as cta_reduce(), where only the first warp needs the result. It may be called once with a scratch. */
void cta_reduce_to_warp(const reduction *r, int threads, int64_t scratch, val *values);

/* Call before a reduction over the CTAs of a cluster: all have started, so that their shared memory may be written. */
void cluster_meet(int cluster);

/* Over a cluster of `cluster` CTAs whose threads already agree (after cta_reduce()); as much scratch, but another. */
void cluster_reduce(const reduction *r, int cluster, int64_t scratch, val *values);

/*
 * Ready-made combinations: maximum and minimum of one value, which keep NaN; the sum of one value, or of each of
 * *(const int *)user values.
 */
void combine_sum(val *into, const val *other, void *user);
void combine_max(val *into, const val *other, void *user);
void combine_min(val *into, const val *other, void *user);

/* The sum of each of `count` values, at most REDUCE_VALUES_MAX. */
reduction reduce_sums(int count);
