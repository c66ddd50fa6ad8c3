/* gemm_plan.h - what the host sides of GEMM's implementations share. */
#ifndef CKL_GEMM_PLAN_H
#define CKL_GEMM_PLAN_H

#include "operators/gemm/gemm_config.h"
#include "skeletons/product_cost.h"

extern const implementation gemm_weights_implementation, gemm_splitk_implementation, gemm_sm90_implementation,
    gemm_pitched_implementation, gemm_f32x3_implementation, gemm_gemv_implementation, gemm_turned_implementation,
    gemm_outer_implementation, gemm_shallow_implementation, gemm_unaligned_implementation, gemm_fma_implementation,
    gemm_tma_mma_implementation, gemm_tiled_implementation, gemm_naive_implementation;

/* Steps of the ladder, docs/gemm-ladder.md: by name alone. */
extern const implementation gemm_blocked_implementation, gemm_mma_implementation, gemm_wgmma_implementation,
    gemm_tma_implementation, gemm_specialised_implementation;

/*
 * May a config of the Hopper kernel compute a problem here? And its launch, as kernel 0 of a plan, where TMA can load A
 * and B. Their rows have k elements: desc->k, or those of all slices of K.
 */
ckl_status gemm_sm90_admit(const void *desc, const ckl_device_info *device, const void *config);
ckl_status gemm_sm90_launch(const ckl_plan *plan, const gemm_sm90_config *config, const ckl_gemm_desc *desc, int64_t k,
                            const ckl_gemm_args *args, ckl_stream stream);

/* A matrix as TMA sees it. */
param_tensor gemm_tensor_of(const ckl_gemm_desc *d, char name, const void *pointer);

/* The scalars of a call, as kernels take them. */
float gemm_alpha_of(const ckl_gemm_args *x);
float gemm_beta_of(const ckl_gemm_desc *d, const ckl_gemm_args *x);

/* Parameters of the kernels that address memory themselves. */
gemm_params gemm_params_of(const ckl_gemm_desc *d, const ckl_gemm_args *x);

/* Does a config compute this problem: the same types, the same epilogue? */
ckl_status gemm_check_epilogue(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have);

/* Is a config's `grouped` that of the problem? Of kernels that address memory themselves. */
ckl_status gemm_check_grouped(const char *who, const ckl_gemm_desc *d, int grouped);
int gemm_grouped_of(const ckl_gemm_desc *d);

/* Refuses lists of rows and arrays of pointers, which some kernels do not take. */
ckl_status gemm_check_in_order(const char *who, const ckl_gemm_desc *d);

/* Refuses integers beside floats, which tensor cores do not take. */
ckl_status gemm_check_same_types(const char *who, const ckl_gemm_desc *d);

/* Do all rows, and matrices of a batch, start at multiples of `bytes` if the first does? */
bool gemm_rows_aligned(const ckl_gemm_desc *d, char matrix, int bytes);

/* The longest vector, of 16 bytes at most, along K in which A and B can be read where they are K-major, in elements. */
int gemm_vector_of(const ckl_gemm_desc *d);

/* The cost of work of which all but the bytes is said: A, B, C and D, each once. */
plan_cost gemm_product_cost(const ckl_gemm_desc *d, const ckl_device_info *device, product_work work);

#endif
