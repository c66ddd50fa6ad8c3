/* plan.h - a plan is a compiled choice of kernel for one problem on one device. */
#pragma once

#include "device.h"

CKL_BEGIN_DECLS

/* Of operators that have gradients: which of the two a plan computes. */
typedef enum ckl_direction { CKL_DIRECTION_FORWARD, CKL_DIRECTION_BACKWARD } ckl_direction;

/*
 * Made, and freed, at any time, also while streams are being captured: what planning needs is no part of a graph. A
 * captured run uses the plan's kernels and workspace: the plan must live as long as the graph.
 *
 * Immutable once made; any number of threads may run it at once. The one exception is a plan with workspace (below):
 * its runs that may overlap on the device, on several streams, need a workspace each. Runs that share one at the same
 * time may leave wrong results, or wait for each other for ever.
 */
typedef struct ckl_plan ckl_plan;

/* Frees a plan. Work already enqueued with it must have finished. NULL is allowed. */
CKL_API void ckl_plan_free(ckl_plan *plan);

/* One line: operator, implementation, config, as "gemm sm90 tile_m=128 tile_n=256 ...". Lives with the plan; or "". */
CKL_API const char *ckl_plan_text(const ckl_plan *plan);

/*
 * Bytes of device memory that a run needs beside its arguments: 0 for most plans. The args of other operators have a
 * `workspace`: the caller passes so many bytes, aligned to 256 and zeroed once before their first use. Every run leaves
 * them ready for the next run of the same plan. Different plans must not share a workspace, not even one after the
 * other, unless it is zeroed between. If `workspace` is NULL the run uses the plan's own, which serves one run at a
 * time: runs on one stream, or ordered by events. Of NULL: 0, and a sentence in ckl_error().
 */
CKL_API int64_t ckl_plan_workspace_bytes(const ckl_plan *plan);

/* Hears of a line that could not be prepared: its number from 0, and a sentence that lives during the call. */
typedef void (*ckl_warm_failure)(int line, ckl_status status, const char *sentence, void *user);

/*
 * Prepares the kernels of problems before the first call needs them: chooses, compiles and loads, on so many threads,
 * of which the caller's is one; 0: one for each processor that the process may use, at most 16. Plans of these
 * problems, and of others with the same kernels, are quick from then on: the kernels stay loaded until the device is
 * closed.
 *
 * A line is a problem as `ckl run` takes it, "gemm m=4096 n=4096 k=4096 a=f16": the operator, and the fields of its
 * desc by name; impl= and config= force a kernel. A line that fails does not keep the others from being prepared.
 * `failed`, if it is not NULL, hears of each in their order, in the caller's thread. Then the status is the first
 * one's, and ckl_error() counts them.
 */
CKL_MUST_USE CKL_API ckl_status ckl_warm(ckl_device *device, const char *const *lines, int count, int threads,
                                         ckl_warm_failure failed, void *user);

CKL_END_DECLS
