/* gemm_ref.h - the operands of gemm, as its definition (gemm_ref.c) and their maker (gemm_operands_ref.c) know them. */
#pragma once

#include "operators/gemm/gemm_config.h"
#include "operators/gemm/gemm_lab.h"

enum {
    A,
    B,
    C,
    BIAS,
    D,
    SCALE_A,
    SCALE_B,
    SCALE_D,
    DEVICE_ALPHA,
    DEVICE_BETA,
    X,
    OFFSETS,
    ROWS_A,
    ROWS_D,
    ROW_WEIGHTS,
    AMAX,
    BIAS_GRADIENT,
    ALPHA,
    BETA,
    WORKSPACE,
    MATRIX_A,
    MATRIX_B,
    MATRIX_C,
    MATRIX_D,
    MATRIX_X,
    OPERANDS
};

/* Outputs after D, one of them. */
enum { OUTPUT_X = 1, OUTPUT_AMAX = 1, OUTPUT_BIAS_GRADIENT = 1 };

/* Makes of a problem of arrays of pointers, and its operands, those of a batch. */
void gemm_follow_pointers(ckl_gemm_desc *desc, void **host);

/*
 * An activation, the derivative that a backward one multiplies by, and how much either can make an error of the sum
 * grow: slopes of GELU and SiLU are at most 1.13 (gemm_activation_ref.c).
 */
double gemm_activate(ckl_activation activation, double x);
double gemm_activation_derivative(ckl_activation activation, double x);
double gemm_activation_slope(choice activation);
