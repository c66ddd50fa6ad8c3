/* conv_lab.h - the operands of convolution, and its definition. */
#pragma once

#include "operators/conv/conv_config.h"
#include "operators/operators.h"

enum { X, W, DY, BIAS, RESIDUAL, SCALE, Y, DX, DW, DBIAS }; // operands

void conv_reference(const void *problem, void *const *host, reference_slice out);

extern const char *const conv_cases[];
extern const test_reject conv_rejects[];
