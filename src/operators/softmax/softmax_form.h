/* softmax_form.h - what the kernels of softmax compute of an element, the same along memory and across it. */
#ifndef CKL_SOFTMAX_FORM_H
#define CKL_SOFTMAX_FORM_H

#include "cute/kernel.h"
#include "operators/softmax/softmax_config.h"
#include "skeletons/online.h"

static const reduction softmax_sum = { .count = 1, .combine = combine_sum };

/* y is t - max - factor for log-softmax, and factor times the exponential e of t - max for softmax. */
static inline val softmax_factor(const softmax_form *f, const val pair[ONLINE_VALUES])
{
    return f->log ? online_log_sum(pair) : online_scale(pair);
}

static inline val softmax_output(const softmax_form *f, val t_or_e, const val pair[ONLINE_VALUES], val factor)
{
    val x = convert(F32, t_or_e);
    return f->log ? sub(sub(x, pair[ONLINE_MAX]), factor) : mul(x, factor);
}

/* What a thread's elements add to the sum of the gradient: y * dy, or dy for log-softmax. */
static inline val softmax_dot(const softmax_form *f, tensor rY, tensor rDy)
{
    return f->log ? fragment_sum(rDy) : fragment_dot(rY, rDy);
}

static inline val softmax_gradient(const softmax_form *f, val y, val dy, val sum, val scale)
{
    val y32 = convert(F32, y), dy32 = convert(F32, dy);
    val d = f->log ? fma(online_exp(y32, immf(0)), mul(sum, immf(-1)), dy32) : mul(y32, sub(dy32, sum));
    return f->scaled ? mul(d, scale) : d;
}

/* A CTA may write to the shared memory of its peers once all of them have started. */
static inline void softmax_meet_peers(int cluster)
{
    if (cluster > 1)
        cluster_sync();
}

#endif
