/* reduce_plan.h - what the implementations of reduce share when they choose, check and launch. */
#ifndef CKL_REDUCE_PLAN_H
#define CKL_REDUCE_PLAN_H

#include "operators/reduce/reduce_config.h"

enum {
    REDUCE_ACCESS_BYTES = 16,
    REDUCE_CTAS_MAX = INT32_MAX,  // of a launch
    REDUCE_THREADS_WANTED = 1024, // of an SM: with 4 vectors each in flight, 64 KB
    REDUCE_OVERLAP_BYTES =
        32 << 20, // of an x that is read in less time than CTAs that come early cost: they crowd some SMs
};

int reduce_bytes_of(ckl_dtype dtype);

/* The reduced mode whose elements lie nearest to each other. */
reduce_mode reduce_inner_of(const reduce_view *v);

/* The smallest power of two that is not below x. */
int64_t reduce_power_of_two_from(int64_t x);

bool reduce_is_aligned(const void *pointer, int64_t bytes);

/* Do all modes step by multiples of vec? */
bool reduce_strides_divide(const reduce_mode *modes, int count, int vec);

/* Checks of a config; `who` is the implementation. */
ckl_status reduce_check_kind(const char *who, const reduce_view *v, const reduce_kind *have);
ckl_status reduce_check_threads(const char *who, int threads, const ckl_device_info *device);
ckl_status reduce_check_vectors(const char *who, int vec, int steps, ckl_dtype dtype);

/* Should a sum be compensated, if a thread adds so many blocks in turn? */
bool reduce_compensates(const reduce_kind *k, int64_t blocks_in_turn);

/* Workspace: a counter for each group of CTAs, then `bytes` for each CTA of a group. */
int64_t reduce_workspace_for(int64_t groups, int64_t split, int64_t bytes);

reduce_params reduce_params_for(const ckl_plan *plan, const ckl_reduce_args *args, int64_t groups);

#endif
