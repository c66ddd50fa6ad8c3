/* rope_line.c - the problem lines of rope. */
#include "operators/operators.h"
#include "operators/rope/rope_desc.h"

static const field fields[] = {
    ROPE_DESC(FIELD_NESTED, (rope_problem, desc))                                    //
    FIELD_ROW(rope_problem, bool, inplace, "0", "0 1", "yq is q and yk is k")        //
    FIELD_ROW(rope_problem, float, position_min, "0", "", "the least position")      //
    FIELD_ROW(rope_problem, float, position_max, "4096", "", "the largest position") //
};

OPERATOR_LINE(rope, rope_problem, NULL);
