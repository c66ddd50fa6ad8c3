/* elementwise_lab.h - elementwise as problem lines know it. */
#pragma once

#include "cutekernellib/operators/elementwise.h"
#include "operators/elementwise/elementwise_expr.h"
#include "operators/operators.h"

/* Lists name the inputs in the expression's order, separated by commas; an empty or absent item is the default. */
#define ELEMENTWISE_PROBLEM(X)                                                                                \
    X(elementwise_problem, quoted, expr, "x", "", "the expression: gelu(a*x+b)")                              \
    X(elementwise_problem, quoted, shape, "4096", "", "sizes: 8192x4096")                                     \
    X(elementwise_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16 i32 u8 bool", "type of inputs and output")  \
    X(elementwise_problem, quoted, in, "", "", "types of the inputs: f32,bf16; default dtype")                \
    X(elementwise_problem, ckl_dtype, out, "default", "f32 f16 bf16 i32 u8 bool", "type of y; default dtype") \
    X(elementwise_problem, quoted, shapes, "", "", "shapes of inputs that are broadcast: 8192x1,4096")        \
    X(elementwise_problem, quoted, strides, "", "", "strides of inputs, then of y: 1x8192,4096x1")            \
    X(elementwise_problem, quoted, scalars, "", "", "operands that are numbers: a=0.5,b=-2")                  \
    X(elementwise_problem, int, inplace, "0", "", "y is that input, counted from 1; 0: its own memory")

typedef struct elementwise_problem {
    ckl_elementwise_desc desc; // made of the fields, as are expression and scalar
    ELEMENTWISE_PROBLEM(FIELD_MEMBER)
    expr expression;
    float scalar[CKL_ELEMENTWISE_INPUTS_MAX];
} elementwise_problem;

void elementwise_reference(const void *problem, void *const *host, reference_slice out);

/* The largest error of the functions that occur, relative to the magnitude that the reference states. */
double elementwise_approximation(const void *problem);
