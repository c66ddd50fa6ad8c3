/* gemm_ref.c - the definition of gemm: one row of D in double. */
#include "operators/gemm/gemm_lab.h"

#include <math.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "cutekernellib/operators/gemm.h"

enum { A, B, C, BIAS }; // order of the operands

static double activate(choice activation, double x)
{
    if (activation == CKL_ACTIVATION_RELU)
        return isnan(x) ? x : fmax(x, 0);
    if (activation == CKL_ACTIVATION_GELU)
        return x == -INFINITY ? -0.0 : x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}

/* How much an error of the sum can grow: GELU's slope is at most 1.13. */
static double slope(choice activation)
{
    return activation == CKL_ACTIVATION_GELU ? 1.13 : 1;
}

static void products(const gemm_problem *p, const double *row, const void *b, int64_t j, double *sum, double *magnitude)
{
    double s = 0, t = 0;
    for (int64_t l = 0; l < p->k; l++) {
        double product = row[l] * dtype_read(p->b, b, j * p->ldb + l);
        s += product;
        t += fabs(product);
    }
    *sum = s;
    *magnitude = t;
}

void gemm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const gemm_problem *p = problem;
    (void)output;
    double *row = malloc((size_t)(p->k + 1) * sizeof *row);
    if (!row)
        abort();
    for (int64_t l = 0; l < p->k; l++)
        row[l] = dtype_read(p->a, host[A], slice * p->lda + l);
    for (int64_t j = 0; j < p->n; j++) {
        double sum, magnitude;
        products(p, row, host[B], j, &sum, &magnitude);
        sum *= p->alpha;
        magnitude *= fabs((double)p->alpha);
        double added = p->c && p->beta != 0 ? p->beta * dtype_read(p->d, host[C], slice * p->ldc + j) : 0;
        double bias = p->bias ? dtype_read(p->d, host[BIAS], j) : 0;
        out.value[j] = activate(p->activation, sum + added + bias);
        out.magnitude[j] = slope(p->activation) * (magnitude + fabs(added) + fabs(bias));
    }
    free(row);
}
