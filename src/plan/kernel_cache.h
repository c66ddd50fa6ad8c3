/* kernel_cache.h - loaded kernels, shared by all plans of one implementation and config on a device. */
#pragma once

#include "plan/plan.h"

typedef struct kernel_set kernel_set;

/*
 * Gets the kernels of a config, loading them on first use; `key` is the text of operator, implementation and config.
 * Any number of threads: one builds and the others wait for it, or get NULL if they do not wait. Give the set back with
 * kernel_cache_release(); one that is not given back stays until the device is closed.
 */
ckl_status kernel_cache_get(ckl_device *device, const operator_info *op, const implementation *impl, const void *config,
                            const char *key, bool wait, kernel_set **set);
void kernel_cache_release(kernel_set *set);

/* PLAN_KERNELS_MAX of them, in launch order. */
const plan_kernel *kernel_cache_kernels(const kernel_set *set);

/* What is loaded on a device, in use or not. */
typedef struct kernel_cache_sums {
    int sets, kernels;
    double seconds; // of describing, compiling and loading them, of all threads together
} kernel_cache_sums;
kernel_cache_sums kernel_cache_count(const ckl_device *device);

/* Unloads every set of the device; no plan may use them any more. */
void kernel_cache_forget(ckl_device *device);
