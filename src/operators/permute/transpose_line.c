/* transpose_line.c - the problem lines of transpose. */
#include "cutekernellib/operators/transpose.h"
#include "operators/operators.h"
#include "operators/permute/permute_config.h"

static const field fields[] = { TRANSPOSE_DESC(FIELD_ROW, ckl_transpose_desc) };

OPERATOR_LINE(transpose, ckl_transpose_desc, NULL);
