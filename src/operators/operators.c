/* operators.c - the list of operators. */
#include "operators/operators.h"

const operator_info *const operators[] = {
#define X(op) &op##_operator,
    OPERATORS(X)
#undef X
        NULL
};
