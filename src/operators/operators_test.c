/* operators_test.c - the laboratory's list of operators, which stays out of the library. */
#include "operators/operators.h"

const operator_test *const operator_tests[] = {
#define X(op) &op##_test,
    OPERATORS(X)
#undef X
        NULL
};
