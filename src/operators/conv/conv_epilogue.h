/* conv_epilogue.h - bias, residual and activation of one element. */
#ifndef CKL_CONV_EPILOGUE_H
#define CKL_CONV_EPILOGUE_H

#include "ir/build.h"
#include "operators/conv/conv_config.h"

/* Stores activation(sum + bias + residual) as element `index`, i64, of the output at `to`; channel: of all groups. */
void conv_store(const conv_form *form, const conv_values *p, val to, val index, val channel, val sum);

#endif
