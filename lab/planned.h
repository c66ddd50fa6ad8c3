/*
 * planned.h - a device that plans and does not run: what a plan loads and launches becomes text. It stands for a GPU
 * that need not be present: an emulated one loads the kernels, counts resident clusters and encodes tensor maps. A
 * kernel that computes with pairs of 16-bit floats is CKL_INTERNAL.
 */
#pragma once

#include "lab/case.h"

/* A device like that one: plans choose as on it. Close it with planned_close(). */
ckl_status planned_open(const ckl_device_info *like, ckl_device **device);
void planned_close(ckl_device *device);

/*
 * Plans the case and runs it once. Appends a line for each launch: kernel, grid, threads, shared memory, instructions
 * by class, digests of the PTX without its comments and of the values passed; nothing if nothing is launched. Keeps the
 * plan, unless plan is NULL.
 */
ckl_status planned_launches(ckl_device *device, const test_case *c, ckl_plan **plan, text *out);

/* The same as one number: equal where the same kernels would be launched in the same way. */
ckl_status planned_digest(ckl_device *device, const test_case *c, uint64_t *digest);
