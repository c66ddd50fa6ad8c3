/* softmax_line.c - the problem lines of softmax: a shape and an axis become rows. */
#include "base/shape.h"
#include "operators/operators.h"
#include "operators/softmax/softmax_config.h"

typedef struct softmax_problem {
    ckl_softmax_desc desc;
    quoted shape;
    int64_t axis;
} softmax_problem;

static const field fields[] = {
    FIELD_ROW(softmax_problem, quoted, shape, "256x1024", "", "sizes, outermost first")                  //
    FIELD_ROW(softmax_problem, int64_t, axis, "-1", "", "along which sums run; negative: from the last") //
    SOFTMAX_DESC(FIELD_NESTED, (softmax_problem, desc))                                                  //
};

static ckl_status prepare(void *problem)
{
    softmax_problem *p = problem;
    sizes shape;
    int axis;
    TRY(shape_parse("softmax", p->shape, &shape));
    TRY(shape_axis("softmax", &shape, p->axis, &axis));
    p->desc.outer = shape_elements(&shape, 0, axis);
    p->desc.n = shape.of[axis];
    p->desc.inner = shape_elements(&shape, axis + 1, shape.rank);
    if (p->desc.inner == 0) // no rows at all
        p->desc.outer = 0;
    return CKL_OK;
}

OPERATOR_LINE(softmax, softmax_problem, prepare);
