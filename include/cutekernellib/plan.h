/* plan.h - a plan is a compiled choice of kernel for one problem on one device. */
#ifndef CUTEKERNELLIB_PLAN_H
#define CUTEKERNELLIB_PLAN_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of operators that have gradients: which of the two a plan computes. */
typedef enum ckl_direction { CKL_DIRECTION_FORWARD, CKL_DIRECTION_BACKWARD } ckl_direction;

/*
 * Made, and freed, at any time, also while streams are being captured: what planning needs is no part of a graph. A captured run
 * uses the plan's kernels and workspace: the plan must live as long as the graph.
 *
 * Immutable once made; any number of threads may run it at once. The one exception is a plan with workspace (below):
 * its runs that may overlap on the device, on several streams, need a workspace each.
 */
typedef struct ckl_plan ckl_plan;

/* Frees a plan. Work already enqueued with it must have finished. NULL is allowed. */
CKL_API void ckl_plan_free(ckl_plan *plan);

/* One line: operator, implementation and config, e.g. "gemm sm90 tile_m=128 tile_n=256 ...". Lives with the plan; "" for NULL. */
CKL_API const char *ckl_plan_text(const ckl_plan *plan);

/*
 * Bytes of device memory that a run needs beside its arguments: 0 for most plans. The args of other operators have a
 * `workspace`: the caller passes so many bytes, aligned to 256 and zeroed once before their first use. Every run leaves them
 * ready for the next run of the same plan. Different plans must not share a workspace, not even one after the other, unless
 * it is zeroed between. If `workspace` is NULL the run uses the plan's own, which serves one run at a time: runs on one
 * stream, or ordered by events. Of NULL: 0, and a sentence in ckl_error().
 */
CKL_API int64_t ckl_plan_workspace_bytes(const ckl_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
