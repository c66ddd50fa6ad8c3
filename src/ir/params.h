/*
 * params.h - the parameters of a kernel as one list, which defines the kernel's values, the host's struct, and a table
 * by which the plan checks that both agree.
 *
 *     #define SCALE_PARAMS(X, owner) X(owner, pointer, x) X(owner, pointer, y) X(owner, i64, n) X(owner, f32, alpha)
 *     KERNEL_PARAMS(scale, SCALE_PARAMS)
 *
 * defines scale_params, which a launch fills (const void *x, int64_t n ...), scale_values, the same names as values of
 * the kernel, and scale_param_list. A kernel begins with
 *
 *     scale_values p = params_of(scale);       // cute/kernel.h
 *
 * and a launch is
 *
 *     plan_launch(plan, 0, (plan_grid){ .x = ctas }, &(scale_params){ .x = args->x, ... }, stream);
 *
 * Unused parameters are dropped. X(owner, i64, stride, [4]) makes an array.
 */
#pragma once

#include "ir/ir.h"

/* A tensor in global memory as TMA sees it: modes innermost first; the first is contiguous, its stride is not read. */
typedef struct param_tensor {
    const void *pointer;                       // NULL: not part of this launch
    int64_t size[IR_TENSOR_MAP_RANK_MAX];      // elements
    int64_t stride[IR_TENSOR_MAP_RANK_MAX];    // elements
    int l2_promotion;                          // bytes that L2 fetches at a time: 64, 128, 256; 0: 256
    int16_t lower[IR_TENSOR_MAP_RANK_MAX - 2]; // im2col: first position along each mode of pixels,
    int16_t upper[IR_TENSOR_MAP_RANK_MAX - 2]; // and the last one, from the last pixel
} param_tensor;

/* The kinds of parameters: their types on the host and in the kernel. */
typedef const void *param_pointer;
typedef int64_t param_i64;
typedef int32_t param_i32;
typedef uint32_t param_u32;
typedef float param_f32;

typedef enum param_kind { PARAM_pointer, PARAM_i64, PARAM_i32, PARAM_u32, PARAM_f32, PARAM_tensor } param_kind;

typedef struct param_row {
    const char *name;
    param_kind kind;
    size_t offset; // in the host's struct
    int count;     // of an array; else 1
} param_row;

typedef struct param_list {
    const param_row *rows;
    int count;
} param_list;

#define PARAM_MEMBER(owner, kind, name, ...) param_##kind name __VA_ARGS__;
#define PARAM_VALUE(owner, kind, name, ...)  val name __VA_ARGS__;
#define PARAM_ROW(owner, kind, name, ...) \
    { #name, PARAM_##kind, offsetof(owner, name), (int)(sizeof(((owner *)0)->name) / sizeof(param_##kind)) },

#define KERNEL_PARAMS(prefix, LIST)                                                      \
    typedef struct prefix##_params {                                                     \
        LIST(PARAM_MEMBER, )                                                             \
    } prefix##_params;                                                                   \
    typedef struct prefix##_values {                                                     \
        LIST(PARAM_VALUE, )                                                              \
    } prefix##_values;                                                                   \
    static const param_row prefix##_param_rows[] = { LIST(PARAM_ROW, prefix##_params) }; \
    static const param_list prefix##_param_list = { prefix##_param_rows, COUNT_OF(prefix##_param_rows) }

/* Declares all parameters of a list in the current kernel: the kernel's struct of values, as an array. */
val *ir_declare_params(const param_list *list);

/* The name of element `index` of a row, "stride_3"; into at most `size` characters. */
void param_name(const param_row *row, int index, char *name, size_t size);

/* The type of a parameter in the kernel; a tensor map is an address. */
ir_type param_type(param_kind kind);
size_t param_bytes(param_kind kind);

/* Removes the parameters that no instruction of a described kernel reads. */
void ir_drop_unused_params(ir_kernel *kernel);
