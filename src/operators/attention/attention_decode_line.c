/* attention_decode_line.c - the problem lines of attention_decode. */
#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_lab.h"

static const field fields[] = {
    ATTENTION_DECODE_DESC(FIELD_NESTED, (attention_decode_problem, desc)) //
    FIELD_ROW(attention_decode_problem, int64_t, shortest, "-1", "-1..",
              "lengths are from here to kv; -1: all are kv") //
};

OPERATOR_LINE(attention_decode, attention_decode_problem, NULL);
