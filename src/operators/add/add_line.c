/* add_line.c - the problem lines of add. */
#include "operators/add/add_config.h"
#include "operators/operators.h"

static const field fields[] = {
    ADD_DESC(FIELD_NESTED, (add_problem, desc))                  //
    FIELD_ROW(add_problem, float, alpha, "1", "", "factor of a") //
    FIELD_ROW(add_problem, float, beta, "1", "", "factor of b")  //
};

OPERATOR_LINE(add, add_problem, NULL);
