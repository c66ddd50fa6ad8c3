/* conv_line.c - the problem lines of convolution. */
#include "operators/conv/conv_config.h"
#include "operators/operators.h"

static const field fields[] = {
    CONV_DESC(FIELD_NESTED, (conv_problem, desc)) //
    FIELD_ROW(conv_problem, int64_t, stride, "0", "?1..2^16",
              "of rows and columns, of volumes also slices; not given: each its own")        //
    FIELD_ROW(conv_problem, int64_t, dilation, "0", "?1..2^16", "the same of all dilations") //
    FIELD_ROW(conv_problem, int64_t, pad, "0", "0..2^16", "the same of all sides")           //
};

/* One number for all modes. */
static ckl_status prepare(void *problem)
{
    conv_problem *p = problem;
    ckl_conv_desc *d = &p->desc;
    const bool volume = d->d > 1 || d->t > 1;
    if (p->stride)
        d->stride_h = d->stride_w = p->stride;
    if (p->dilation)
        d->dilation_h = d->dilation_w = p->dilation;
    if (p->pad)
        d->pad_top = d->pad_bottom = d->pad_left = d->pad_right = p->pad;
    if (p->stride && volume)
        d->stride_d = p->stride;
    if (p->dilation && volume)
        d->dilation_d = p->dilation;
    if (p->pad && volume)
        d->pad_front = d->pad_back = p->pad;
    return CKL_OK;
}

OPERATOR_LINE(conv, conv_problem, prepare);
