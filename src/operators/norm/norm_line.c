/* norm_line.c - the problem lines of layer norm and RMS norm. */
#include "operators/norm/norm_config.h"
#include "operators/norm_lab.h"

static const field fields[] = { NORM_DESC(FIELD_NESTED, (norm_problem, rows)) NORM_PROBLEM(FIELD_ROW, norm_problem) };

OPERATOR_LINE(layernorm, norm_problem, NULL);
OPERATOR_LINE(rmsnorm, norm_problem, NULL);
