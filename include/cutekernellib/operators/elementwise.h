/* elementwise.h - y[i] = expression of x0[i], x1[i], ...: a chain of operations over tensors of any strides, fused */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

enum { CKL_ELEMENTWISE_INPUTS_MAX = 4, CKL_ELEMENTWISE_RANK_MAX = 5, CKL_ELEMENTWISE_EXPR_MAX = 192 };

/* A tensor of the expression, or with `scalar` a number that every call passes by value. */
typedef struct ckl_elementwise_operand {
    ckl_dtype dtype; // f32 f16 bf16 i32 u8 bool; 0 means f32 for an input and the first input's for the output
    int64_t stride[CKL_ELEMENTWISE_RANK_MAX]; // elements between neighbours of a dimension; 0: broadcast along it
    bool scalar;                              // inputs only: an f32; dtype and stride are not used
} ckl_elementwise_operand;

/*
 * The expression is made of names, numbers, parentheses, the operators + - * / and ^ (power; binds before a minus
 * sign, to the right), and functions:
 *     neg abs relu sigmoid silu tanh erf exp log sqrt rsqrt cast      of one operand; cast(x) is x
 *     gelu gelu_tanh    x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), Hendrycks and Gimpel, arXiv:1606.08415
 *     gelu_erf          x/2 * (1 + erf(x / sqrt 2))
 *     add sub mul div max min pow      of two
 * A name is an operand: in[i] is the i-th name in the order in which the expression first mentions them.
 *
 * Values are f32 and the result is rounded once, to the type of y; x*y + z rounds once as well. Where inputs, y and
 * all numbers are integers and only neg abs relu cast add sub mul max min occur, values are i32 and wrap. To integers a
 * float is truncated; what does not fit saturates and NaN gives 0. To bool, anything but 0 is true. max, min and relu
 * keep NaN; silu and gelu of -inf are -0; pow is C's.
 *
 * Relative error of a function's f32 value: + - * / sqrt abs neg relu max min 2^-24; exp log tanh erf rsqrt 2^-21.5;
 * sigmoid 2^-21; silu 2^-20; gelu (1 + x^2) 2^-20; pow 2^-22 (1 + |y log2 x|). gelu_erf as the last function of a
 * 16-bit result has 2^-15. Results below 2^-119 may be 0 after any but the first group.
 */
typedef struct ckl_elementwise_desc {
    char expr[CKL_ELEMENTWISE_EXPR_MAX];     // "gelu(a*x+b)"
    int rank;                                // at most 5; 0 is a single element
    int64_t shape[CKL_ELEMENTWISE_RANK_MAX]; // outermost first; a size of 0 is a problem without work
    ckl_elementwise_operand in[CKL_ELEMENTWISE_INPUTS_MAX];
    ckl_elementwise_operand out; // its elements must not share memory
} ckl_elementwise_desc;

/*
 * The memory of one call: device pointers, aligned to the element; of a scalar a float on the host, read during the
 * call. out may be an input of the same strides and element size; it must not overlap one otherwise.
 */
typedef struct ckl_elementwise_args {
    const void *in[CKL_ELEMENTWISE_INPUTS_MAX];
    void *out;
} ckl_elementwise_args;

/*
 * Chooses and compiles a kernel, once. Release it with ckl_plan_free(). A fault in the expression is CKL_INVALID, and
 * the sentence says at which character.
 */
CKL_MUST_USE CKL_API ckl_status ckl_elementwise_plan(ckl_device *device, const ckl_elementwise_desc *desc,
                                                     ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_elementwise_run(const ckl_plan *plan, const ckl_elementwise_args *args,
                                                    ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_elementwise(ckl_device *device, const ckl_elementwise_desc *desc,
                                                const ckl_elementwise_args *args, ckl_stream stream);

CKL_END_DECLS
