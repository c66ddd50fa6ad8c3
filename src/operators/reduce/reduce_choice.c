/* reduce_choice.c - the implementations of reduce, in order of preference. */
#include "operators/reduce/reduce_plans.h"

const implementation *const reduce_implementations[] = { &reduce_columns_plans, &reduce_columns_sm80_plans,
                                                         &reduce_rows_plans,    &reduce_rows_sm80_plans,
                                                         &reduce_cluster_plans, &reduce_vectorized_plans,
                                                         &reduce_shuffle_plans, &reduce_improved_plans,
                                                         &reduce_naive_plans,   NULL };
