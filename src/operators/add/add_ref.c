/* add_ref.c - the definition of add, in double. */
#include "operators/add/add_lab.h"

#include <math.h>

#include "base/dtype.h"

void add_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const add_problem *p = problem;
    (void)output;
    int64_t in_a = add_slice_start(p, slice, p->lda), in_b = add_slice_start(p, slice, p->ldb);
    for (int64_t i = 0; i < p->slice; i++) {
        double a = p->alpha * dtype_read(p->dtype, host[0], in_a + i);
        double b = p->beta * dtype_read(p->dtype, host[1], in_b + i);
        out.value[i] = a + b;
        out.magnitude[i] = fabs(a) + fabs(b);
    }
}
