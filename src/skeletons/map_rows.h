/* map_rows.h - element-wise kernels over rows that start anywhere: see map_rows.c. */
#pragma once

#include "skeletons/map.h"
#include "skeletons/row.h"

/* Sets row_threads where the problem has such rows and it pays; else leaves the config alone. */
void map_rows_choose(map_kernel *k, const map_shape *s, const ckl_device_info *device);

/* May k's config have its row_threads and cut? */
ckl_status map_rows_admit(const char *what, const map_kernel *k, const map_shape *s, const ckl_device_info *device);

/* CTAs along rows, and tiles along one row. */
int64_t map_rows_ctas(const map_kernel *k, const map_shape *s);
int64_t map_rows_tiles(const map_kernel *k, const map_shape *s);

/* Do the operands that are not cut lie in phase with the output? */
bool map_rows_in_phase(const map_kernel *k, const void *const *pointers);

void map_rows_describe(const map_kernel *k, map_function *f, void *user);
