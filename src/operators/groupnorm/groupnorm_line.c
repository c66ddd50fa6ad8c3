/* groupnorm_line.c - the problem lines of group norm. */
#include "operators/groupnorm/groupnorm_config.h"
#include "operators/norm_lab.h"

static const field fields[] = { GROUPNORM_DESC(FIELD_NESTED, (norm_problem, images)) //
                                NORM_PROBLEM(FIELD_ROW, norm_problem) };

OPERATOR_LINE(groupnorm, norm_problem, NULL);
