/* plan_time.h - the time that a user waits before the first run, and that every run costs. */
#pragma once

#include "lab/check.h"

typedef struct plan_time {
    double choose_ms, describe_ms, print_ms; // ours: choice, description with its checks, PTX
    double load_ms;                          // the driver's compiler, or the cache of cubins
    double first_ms;                         // a whole new plan, as a user sees it
    double second_us;                        // the same once more
    double run_us;                           // host time of one run
} plan_time;

/*
 * Measures on a device; nothing of the case may have been planned on it before in this process. For the driver's time
 * to be that of compiling, CUDA_CACHE_DISABLE=1 and CKL_CACHE=off must have been in the environment when the device was
 * opened. An emulated device runs nothing: second_us and run_us stay 0.
 */
ckl_status plan_time_measure(const test_case *c, ckl_device *device, plan_time *out);

/*
 * Host time of planning a problem again, and of one run, on an open check that has run. Long runs are fewer, where
 * kernel_us is known (0: unknown).
 */
ckl_status plan_time_again(const check *k, double kernel_us, double *plan_us, double *run_us);
