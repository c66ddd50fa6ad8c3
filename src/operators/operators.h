/* operators.h - the one list of operators, and what the laboratory (verify, bench, run) knows of each. */
#ifndef CKL_OPERATORS_OPERATORS_H
#define CKL_OPERATORS_OPERATORS_H

#include "plan/plan.h"

#define OPERATORS(X) \
    X(add)           \
    X(crossentropy)  \
    X(elementwise)   \
    X(gemm)          \
    X(groupnorm)     \
    X(layernorm)     \
    X(permute)       \
    X(reduce)        \
    X(rmsnorm)       \
    X(softmax)       \
    X(transpose)

#define X(op) extern const operator_info op##_operator;
OPERATORS(X)
#undef X

enum { OPERANDS_MAX = 12, OPERAND_RANK_MAX = 5 };

typedef enum operand_role { OPERAND_IN, OPERAND_OUT, OPERAND_IN_OUT } operand_role;

/* One tensor of a problem, as the test runner allocates, fills, poisons and compares it. */
typedef struct operand {
    const char *name; // "a"
    operand_role role;
    ckl_dtype dtype; // CKL_DTYPE_DEFAULT: absent in this problem, pointer NULL
    int rank;
    int64_t shape[OPERAND_RANK_MAX];  // outermost first
    int64_t stride[OPERAND_RANK_MAX]; // elements; gaps between rows are padding that a kernel must not touch
    float low, high;                  // range of random inputs; both 0: -1..1
} operand;

/* How inputs are filled. Integers are small enough that every sum is exact, so the result is compared bit for bit. */
typedef enum operand_fill { FILL_INTEGERS, FILL_UNIFORM, FILL_NORMAL, FILL_HARD } operand_fill;

/* Where the reference writes: value[i] and the sum of the absolute values of the terms that made it, for the bound. */
typedef struct reference_slice {
    double *value;
    double *magnitude;
} reference_slice;

typedef struct test_reject {
    const char *line; // without the operator's name
    ckl_status status;
    const char *sentence; // part of ckl_error()
} test_reject;

/*
 * The laboratory's side of an operator. `problem` is the struct that a problem line fills: the desc and the scalars of a
 * call. Outputs are numbered in the order of the operands, absent ones included. Slices are parts of an output that can be
 * computed alone (rows of D): large problems check a sample.
 */
typedef struct operator_test {
    const operator_info *op;
    size_t problem_bytes;
    field_table problem;

    ckl_status (*prepare)(void *problem);               // derived fields (ld = 0 and so on)
    void (*desc)(const void *problem, void *desc);      // the desc of a problem
    int (*operands)(const void *problem, operand *out); // in a fixed order; returns their count
    ckl_status (*run)(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream);

    int64_t (*slices)(const void *problem, int output);
    int64_t (*slice_elements)(const void *problem, int output); // element j of slice s is at index ...
    int64_t (*output_index)(const void *problem, int output, int64_t slice, int64_t j); // ... this, in elements
    void (*reference)(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);
    double (*terms)(const void *problem);         // length of the longest sum in one output element
    double (*approximation)(const void *problem); // relative error of approximate instructions used; 0: none

    double (*flops)(const void *problem); // useful operations of one run
    double (*bytes)(const void *problem); // compulsory traffic: every input read once, output written once

    const char *const
        *cases; // problem lines without the operator's name, NULL at the end; quick enough for the emulator
    const test_reject *rejects; // { NULL } at the end
} operator_test;

#define X(op) extern const operator_test op##_test;
OPERATORS(X)
#undef X

/* The operators in list order, NULL at the end. */
extern const operator_info *const operators[];
extern const operator_test *const operator_tests[];

#endif
