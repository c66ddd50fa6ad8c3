/* operators.c - the list of operators. */
#include "operators/operators.h"

const operator_info *const operators[] = {
#define X(op) &op##_operator,
    OPERATORS(X)
#undef X
        NULL
};

const operator_line *const operator_lines[] = {
#define X(op) &op##_problem_line,
    OPERATORS(X)
#undef X
        NULL
};
