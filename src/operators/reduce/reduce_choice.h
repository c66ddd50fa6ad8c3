/* reduce_choice.h - the implementations of reduce, in order of preference. */
#ifndef CKL_REDUCE_CHOICE_H
#define CKL_REDUCE_CHOICE_H

#include "operators/reduce/reduce_config.h"
#include "operators/reduce/reduce_view.h"
#include "plan/plan.h"

extern const implementation *const reduce_implementations[];

#endif
