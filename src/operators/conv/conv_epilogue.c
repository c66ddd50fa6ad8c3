/* conv_epilogue.c - what happens to one sum on its way to the output; the same in all kernels. */
#include "operators/conv/conv_epilogue.h"

#include "cute/kernel.h"
#include "skeletons/activation.h"

/* Elements from an address on. */
static tensor vector_at(val address, ckl_dtype dtype)
{
    return gmem_tensor(address, dtype, make_layout(dynamic(imm64(1)), leaf(1)));
}

void conv_store(const conv_form *form, const conv_values *p, val to, val index, val channel, val sum)
{
    if (form->scale)
        sum = mul(sum, at_f32(vector_at(p->scale, F32), channel));
    if (form->direction == CKL_CONV_FORWARD && form->bias)
        sum = add(sum, at_f32(vector_at(p->bias, form->out), channel));
    if (form->residual)
        sum = add(sum, at_f32(vector_at(p->residual, form->out), index));
    set(vector_at(to, form->out), index, activation_f32(form->activation, sum));
}
