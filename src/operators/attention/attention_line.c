/* attention_line.c - the problem lines of attention. */
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_lab.h"

static const field fields[] = {
    ATTENTION_DESC(FIELD_NESTED, (attention_problem, desc))                                                        //
    FIELD_ROW(attention_problem, float, q_factor, "1", "", "random q reach to here, which makes scores far apart") //
};

OPERATOR_LINE(attention, attention_problem, NULL);
