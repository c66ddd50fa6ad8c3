/* permute_line.c - the problem lines of permute, which list sizes, order and strides. */
#include <string.h>

#include "base/math.h"
#include "base/shape.h"
#include "cutekernellib/operators/permute.h"
#include "operators/operators.h"
#include "operators/permute/permute_config.h"

enum { RANK_MAX = CKL_PERMUTE_RANK_MAX };

/* The lists of a line, which prepare() reads into the desc. */
typedef struct permute_lists {
    quoted shape, order, stride_x, stride_y;
} permute_lists;

typedef struct permute_problem {
    ckl_permute_desc desc;
    permute_lists lists;
} permute_problem;

#define PERMUTE_LISTS(X, owner)                                                                       \
    X(owner, quoted, shape, "64x64", "", "of x, outermost mode first: 32x64x56x56")                   \
    X(owner, quoted, order, "", "", "modes of x in y's order: 0,2,3,1; not given: reversed")          \
    X(owner, quoted, stride_x, "", "", "elements, by modes of x: 4096,64,1; not given: without gaps") \
    X(owner, quoted, stride_y, "", "", "elements, by modes of y; not given: without gaps")

static const field fields[] = {
    PERMUTE_LISTS(FIELD_NESTED, (permute_problem, lists)) //
    PERMUTE_DESC(FIELD_NESTED, (permute_problem, desc))   //
};

static ckl_status prepare(void *problem)
{
    permute_problem *p = problem;
    ckl_permute_desc *d = &p->desc;
    int64_t order[RANK_MAX];
    sizes shape;
    TRY(sizes_parse("permute", "shape", p->lists.shape, RANK_MAX, &shape));
    d->rank = shape.rank;
    memcpy(d->shape, shape.of, sizeof d->shape);
    for (int i = 0; i < d->rank; i++)
        order[i] = d->rank - 1 - i;
    TRY(list_parse("permute", "order", p->lists.order, d->rank, order));
    for (int i = 0; i < d->rank; i++)
        d->order[i] = (int)max_i64(-1, min_i64(order[i], RANK_MAX));
    TRY(list_parse("permute", "stride_x", p->lists.stride_x, d->rank, d->stride_x));
    return list_parse("permute", "stride_y", p->lists.stride_y, d->rank, d->stride_y);
}

OPERATOR_LINE(permute, permute_problem, prepare);
