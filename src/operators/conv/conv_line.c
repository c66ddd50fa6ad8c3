/* conv_line.c - the problem lines of convolution. */
#include "operators/conv/conv_config.h"
#include "operators/operators.h"

static const field fields[] = {
    CONV_DESC(FIELD_NESTED, (conv_problem, desc))                                                     //
    FIELD_ROW(conv_problem, int64_t, stride, "0", "0..2^16", "along all modes; 0: as they are given") //
    FIELD_ROW(conv_problem, int64_t, dilation, "0", "0..2^16", "along all modes")                     //
    FIELD_ROW(conv_problem, int64_t, pad, "0", "0..2^16", "on all sides, of d if t is more than 1")   //
};

/* One number for all modes. */
static ckl_status prepare(void *problem)
{
    conv_problem *p = problem;
    ckl_conv_desc *d = &p->desc;
    if (p->stride)
        d->stride_h = d->stride_w = d->stride_d = p->stride;
    if (p->dilation)
        d->dilation_h = d->dilation_w = d->dilation_d = p->dilation;
    if (p->pad)
        d->pad_top = d->pad_bottom = d->pad_left = d->pad_right = p->pad;
    if (p->pad && d->t > 1)
        d->pad_front = d->pad_back = p->pad;
    return CKL_OK;
}

OPERATOR_LINE(conv, conv_problem, prepare);
