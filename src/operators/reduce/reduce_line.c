/* reduce_line.c - the problem lines of reduce, which list sizes, axes and strides. */
#include <string.h>

#include "base/shape.h"
#include "operators/reduce/reduce_config.h"
#include "operators/reduce/reduce_lab.h"

static const field fields[] = {
    REDUCE_OP(FIELD_NESTED, (reduce_problem, desc))                                                        //
    FIELD_ROW(reduce_problem, quoted, shape, "4096", "", "sizes of x, outermost axis first: 8192x32768")   //
    FIELD_ROW(reduce_problem, quoted, axes, "", "", "reduced axes: 1 or 0,2; all if not given")            //
    REDUCE_DESC(FIELD_NESTED, (reduce_problem, desc))                                                      //
    FIELD_ROW(reduce_problem, quoted, stride, "", "", "elements between neighbours of each axis: 40000x1") //
    FIELD_ROW(reduce_problem, float, offset, "0", "", "added to random x, to show cancellation")           //
};

static ckl_status prepare(void *problem)
{
    reduce_problem *p = problem;
    ckl_reduce_desc *d = &p->desc;
    sizes shape, axes = { 0 };
    TRY(sizes_parse("reduce", "shape", p->shape, CKL_REDUCE_RANK_MAX, &shape));
    d->rank = shape.rank;
    memcpy(d->shape, shape.of, sizeof d->shape);
    TRY(list_parse("reduce", "stride", p->stride, d->rank, d->stride));
    if (*p->axes)
        TRY(sizes_parse("reduce", "axes", p->axes, CKL_REDUCE_RANK_MAX, &axes));
    for (int i = 0; i < axes.rank; i++) {
        if (axes.of[i] < 0 || axes.of[i] >= d->rank)
            FAIL(CKL_INVALID, "reduce: axes=%s: axis %" PRId64 " is out of range for rank %d", p->axes, axes.of[i],
                 d->rank);
        d->axes |= 1u << axes.of[i];
    }
    return CKL_OK;
}

OPERATOR_LINE(reduce, reduce_problem, prepare);
