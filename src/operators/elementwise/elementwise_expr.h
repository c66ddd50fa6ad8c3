/* elementwise_expr.h - expressions as trees: "gelu(a*x+b)" parsed. */
#pragma once

#include "base/status.h"
#include "cutekernellib/operators/elementwise.h"

/* Every function: its name, how many arguments, whether it has a form for integers. */
#define EXPR_FUNCTIONS(X)  \
    X(neg, 1, true)        \
    X(abs, 1, true)        \
    X(relu, 1, true)       \
    X(cast, 1, true)       \
    X(sigmoid, 1, false)   \
    X(silu, 1, false)      \
    X(gelu, 1, false)      \
    X(gelu_tanh, 1, false) \
    X(gelu_erf, 1, false)  \
    X(tanh, 1, false)      \
    X(erf, 1, false)       \
    X(exp, 1, false)       \
    X(log, 1, false)       \
    X(sqrt, 1, false)      \
    X(rsqrt, 1, false)     \
    X(add, 2, true)        \
    X(sub, 2, true)        \
    X(mul, 2, true)        \
    X(div, 2, false)       \
    X(max, 2, true)        \
    X(min, 2, true)        \
    X(pow, 2, false)

typedef enum expr_kind {
#define X(name, arguments, integers) EXPR_##name,
    EXPR_FUNCTIONS(X)
#undef X
        EXPR_FUNCTION_COUNT,
    EXPR_INPUT = EXPR_FUNCTION_COUNT,
    EXPR_NUMBER
} expr_kind;

enum { EXPR_NODES_MAX = CKL_ELEMENTWISE_EXPR_MAX, EXPR_NAME_MAX = 32 };

typedef struct expr_node {
    expr_kind kind;
    int argument[2]; // nodes, of functions
    int input;
    double number;
} expr_node;

/* Arguments stand before their function; the last node is the whole expression. */
typedef struct expr {
    expr_node nodes[EXPR_NODES_MAX];
    int count;
    char names[CKL_ELEMENTWISE_INPUTS_MAX][EXPR_NAME_MAX]; // of the inputs
    int inputs;
} expr;

/* CKL_INVALID with the position of the fault, counted from 1. */
ckl_status expr_parse(const char *source, expr *out);

/* Is a node the result, or a factor of it? Its relative error is one of the result then. */
bool expr_is_factor(const expr *e, int node);

/* Whether all functions and numbers have an integer form. */
bool expr_suits_integers(const expr *e);

/* elementwise_vector.c: describes kernel 0 of a map_config, for pointers aligned to vectors, or 1, for any. */
void elementwise_vector(const void *config, int kernel);
