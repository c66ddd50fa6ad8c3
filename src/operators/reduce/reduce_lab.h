/* reduce_lab.h - the reference of reduce; problems begin with the desc. */
#ifndef CKL_REDUCE_LAB_H
#define CKL_REDUCE_LAB_H

#include "operators/operators.h"

void reduce_reference(const void *problem, void *const *host, reference_slice out);

#endif
