/* gemm_plan.h - what the host sides of GEMM's implementations share. */
#pragma once

#include "base/math.h"
#include "operators/gemm/gemm_sm90_config.h"
#include "skeletons/product_cost.h"

extern const implementation gemm_weights_implementation, gemm_splitk_implementation, gemm_sm90_implementation,
    gemm_pitched_implementation, gemm_f32x3_implementation, gemm_gemv_implementation, gemm_outer_implementation,
    gemm_unaligned_implementation, gemm_fma_implementation, gemm_tma_mma_implementation, gemm_tiled_implementation,
    gemm_naive_implementation;

/* Steps of the ladder, docs/gemm-ladder.md: by name alone. */
extern const implementation gemm_blocked_implementation, gemm_mma_implementation, gemm_wgmma_implementation,
    gemm_tma_implementation, gemm_specialised_implementation;

/* Configs (gemm_plan.c) */

/* config.grouped of kernels that address memory themselves. */
int gemm_grouped_of(const ckl_gemm_desc *d);

/*
 * Do all rows, and matrices of a batch, start at multiples of `bytes` if the first does? operands: those of A and B, of
 * 16 bytes. results: those of D, and of C and X where there are any.
 */
bool gemm_rows_aligned(const ckl_gemm_desc *d, char matrix, int bytes);
bool gemm_operands_aligned(const ckl_gemm_desc *d);
bool gemm_results_aligned(const ckl_gemm_desc *d, int bytes);

/* The longest vector, of 16 bytes at most, along K in which A and B can be read where they are K-major, in elements. */
int gemm_vector_of(const ckl_gemm_desc *d);

/*
 * Checks of a config of implementation `who`. epilogue: does it compute this problem: the same types, the same
 * epilogue? same_types: refuses integers beside floats, which tensor cores do not take. in_order: refuses lists of rows
 * and arrays of pointers. plain: all three.
 */
ckl_status gemm_check_epilogue(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have);
ckl_status gemm_check_same_types(const char *who, const ckl_gemm_desc *d);
ckl_status gemm_check_in_order(const char *who, const ckl_gemm_desc *d);
ckl_status gemm_check_plain(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have);
ckl_status gemm_check_grouped(const char *who, const ckl_gemm_desc *d, int grouped);
ckl_status gemm_check_mma_tile(const char *who, int tile_m, int tile_n); // of four warps
ckl_status gemm_check_smem(const char *who, const ckl_device_info *device, int stages, int64_t bytes);
ckl_status gemm_check_tiles(const char *who, int64_t tiles);

/* Tiles of rows x cols of D of all products; of groups the most possible, as each may end inside a tile. */
int64_t gemm_tiles(const ckl_gemm_desc *d, int64_t rows, int64_t cols);

/* K tiles of 128 bytes. */
static inline int64_t gemm_k_tiles(const ckl_gemm_desc *d)
{
    return ceil_div(d->k, gemm_tile_k(d->a));
}

/* Rows of D, or of a group as they are on average. */
static inline int64_t gemm_rows_of_group(const ckl_gemm_desc *d)
{
    return gemm_groups_of_m(d) ? ceil_div(d->m, d->groups) : d->m;
}

/* Of all products, but for the second half of gated ones. */
double gemm_multiply_adds(const ckl_gemm_desc *d);

/* Of matrix 'a' ... 'x', without gaps between rows; and of A, B, C and D, each once. */
double gemm_matrix_bytes(const ckl_gemm_desc *d, char name);
double gemm_least_bytes(const ckl_gemm_desc *d);

/* The cost of work of which all but the bytes is said: A, B, C and D, each once. */
plan_cost gemm_product_cost(const ckl_gemm_desc *d, const ckl_device_info *device, product_work work);

/*
 * Checks of a call's pointers, for kernels that read vectors of so many bytes: of A and B where they are K-major, or
 * where they are not, as a field of the config says; of C and D.
 */
ckl_status gemm_check_operand_vectors(const char *who, const ckl_gemm_desc *d, const ckl_gemm_args *x, bool k_major,
                                      const char *vector, int bytes);
ckl_status gemm_check_result_vectors(const char *who, const ckl_gemm_args *x, int bytes);

/* alpha or beta of a call. */
static inline float gemm_factor(const float *given)
{
    return given ? *given : 1;
}

/* What all lists of parameters have but sizes, A and B, as initialisers of a struct. */
#define GEMM_PARAMS_OF_CALL(desc, x)                                                                                \
    .c = (x)->c, .ldc = (desc)->ldc, .c_batch = (desc)->stride_c, .d = (x)->d, .ldd = (desc)->ldd,                  \
    .d_batch = (desc)->stride_d, .offsets = (x)->offsets, .groups = (uint32_t)(desc)->groups, .bias = (x)->bias,    \
    .alpha = gemm_factor((x)->alpha), .beta = (desc)->c ? gemm_factor((x)->beta) : 0,                               \
    .device_alpha = (x)->device_alpha, .device_beta = (x)->device_beta, .scale_a = (x)->scale_a,                    \
    .scale_b = (x)->scale_b, .scale_d = (x)->scale_d, .x = (x)->x, .ldx = (desc)->ldx, .x_batch = (desc)->stride_x, \
    .rows_a = (x)->rows_a, .rows_d = (x)->rows_d, .row_weights = (x)->row_weights, .amax = (x)->amax

/*
 * Bytes of A or B, from the first element to the last, that come to L2 before their kernel may read them; 0 of large
 * ones, and of those that an array points to.
 */
uint32_t gemm_early_bytes(const ckl_gemm_desc *d, char name);

#define GEMM_EARLY_OF_CALL(desc, x) \
    .early = { (x)->a, (x)->b }, .early_bytes = { gemm_early_bytes(desc, 'a'), gemm_early_bytes(desc, 'b') }

/*
 * Parameters of the kernels that address memory themselves; the launch of one, and of one that loads A and B by TMA, if
 * aligned.
 */
gemm_params gemm_params_of(const ckl_gemm_desc *d, const ckl_gemm_args *x);
ckl_status gemm_launch(const ckl_plan *plan, int64_t ctas, const void *args, ckl_stream stream);
ckl_status gemm_launch_tma(const ckl_plan *plan, int64_t ctas, const void *args, ckl_stream stream);

/* Copies of A and B in the workspace (gemm_repitch_plan.c) */

typedef struct gemm_copies {
    ckl_gemm_desc from, to;    // the problem, and what is multiplied
    bool copied[2], turned[2]; // of A and of B: is there a copy, and is it transposed?
} gemm_copies;

/* Sets how the copies lie in `to`, of which all else is known. */
void gemm_place_copies(gemm_copies *copies);

int64_t gemm_copies_bytes(const gemm_copies *copies); // of the workspace

/* A call's args with A and B where their copies will be; and the launch that makes these, as kernel 1 of a plan. */
ckl_gemm_args gemm_copied_args(const ckl_plan *plan, const gemm_copies *copies, const ckl_gemm_args *args);
ckl_status gemm_launch_copies(const ckl_plan *plan, const gemm_copies *copies, const ckl_gemm_args *from,
                              const ckl_gemm_args *to, ckl_stream stream);

/* The Hopper kernel (gemm_sm90_plan.c) */

/* Members of an implementation that runs it, by itself or among others. */
#define GEMM_SM90_PARTS(called, config_type) \
    .name = #called, .config_bytes = sizeof(config_type), .params = &gemm_pitched_param_list, .target = IR_SM90A

/*
 * May a config of the Hopper kernel compute a problem here? And its launch, as kernel 0 of a plan, where TMA can load A
 * and B. Their rows have k elements: desc->k, or those of all slices of K.
 */
ckl_status gemm_sm90_admit(const void *desc, const ckl_device_info *device, const void *config);
ckl_status gemm_sm90_admit_unsplit(const void *desc, const ckl_device_info *device, const void *config); // no f32x3
ckl_status gemm_sm90_launch(const ckl_plan *plan, const gemm_sm90_config *config, const ckl_gemm_desc *desc, int64_t k,
                            const ckl_gemm_args *args, ckl_stream stream);

/* A matrix as TMA sees it. */
param_tensor gemm_tensor_of(const ckl_gemm_desc *d, char name, const void *pointer);
