/* random_problem.h - problem lines drawn at random: the operators' cases with other sizes, types and choices. */
#pragma once

#include "lab/case.h"

/* How large a drawn problem may be. */
typedef struct random_problem_limits {
    double flops; // useful operations
    double bytes; // of all operands
} random_problem_limits;

/* Any of the lines, each as likely; NULL is at their end. */
const char *random_line(const char *const *lines, uint64_t *r);

bool random_problem_fits(const test_case *c, random_problem_limits limits);

/*
 * Appends a line that some implementation takes on the device: of one operator, or of any if `only` is NULL. The same
 * seed gives the same line. Where no change of a case suits, it is the case itself, which may exceed the limits. Any
 * thread.
 */
void random_problem(const operator_test *only, const ckl_device_info *device, uint64_t seed,
                    random_problem_limits limits, text *line);
