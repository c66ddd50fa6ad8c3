/* crossentropy_line.c - the problem lines of cross-entropy. */
#include "operators/crossentropy/crossentropy_config.h"
#include "operators/operators.h"

static const field fields[] = {
    CROSSENTROPY_DESC(FIELD_NESTED, (crossentropy_problem, desc))                                                //
    FIELD_ROW(crossentropy_problem, int64_t, target_low, "0", "", "the smallest target; it need not be a class") //
};

OPERATOR_LINE(crossentropy, crossentropy_problem, NULL);
