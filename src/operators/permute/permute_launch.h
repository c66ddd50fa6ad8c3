/* permute_launch.h - what the plans of the kernels share: checks with sentences, parameters, launches. */
#ifndef CKL_PERMUTE_LAUNCH_H
#define CKL_PERMUTE_LAUNCH_H

#include "operators/permute/permute_config.h"
#include "operators/permute/permute_plans.h"

/* Parameters of a launch in the order in which the kernel names them, and their values. */
typedef struct parameters {
    int count;
    const void *list[IR_PARAMS_MAX];
    int64_t value[IR_PARAMS_MAX];
} parameters;

void pass(parameters *p, int64_t value);
void pass_map(parameters *p, const tensor_map *map);
void pass_sizes(parameters *p, const matrix_modes *m);                           // those of place_by_coordinates()
void pass_place(parameters *p, const permutation *q, const permute_pointers *a); // those of place_by_address()

ckl_status launch_kernel(const ckl_plan *plan, int part, int64_t ctas, const parameters *p, ckl_stream stream);

/* Launches a kernel that finds its place by address. */
ckl_status launch_by_address(const ckl_plan *plan, int part, const void *args, int tile_r, int tile_c,
                             ckl_stream stream);

bool is_aligned(const void *pointer, int bytes);

/* Tiles of all matrices. */
int64_t tiles_of(const matrix_modes *m, int tile_r, int tile_c);

/* Does the problem leave the choice of the kernel to us, and would tiles be well filled? */
ckl_status check_worth(const permutation *p, const char *who);

/* Is there a matrix, as the config says, of numbers that fit? */
ckl_status check_matrix(const permutation *p, const char *who, int bytes, int outer, int tile_r, int tile_c);

/* Kernels that want neighbours of a row of x, and of y, side by side. */
ckl_status check_contiguous(const permutation *p, const char *who);

ckl_status check_threads(const permutation *p, const char *who, int threads, int multiple,
                         const ckl_device_info *device);
ckl_status check_smem(const permutation *p, const char *who, int64_t need, const ckl_device_info *device);

#endif
