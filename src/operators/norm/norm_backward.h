/* norm_backward.h - what the kernels of the norms' gradients share. */
#ifndef CKL_NORM_BACKWARD_H
#define CKL_NORM_BACKWARD_H

#include "operators/norm/norm_config.h"

/* The parameters, in the order of the launch. */
typedef struct norm_operands {
    val rows, cols, ld_in, ld_out, reciprocal; // reciprocal of cols
    val x, dy, dsum, gamma, mean, rstd, dx, partial, groups, dgamma, dbeta;
} norm_operands;

norm_operands norm_declare(void);

/* The mean or rstd of a row. */
val norm_statistic(val address, val number);

/* Describes the kernel that adds up columns: partial sums of groups or, where partial is NULL, the products of all rows. */
void norm_columns(const norm_config *cfg, bool centred);

#endif
