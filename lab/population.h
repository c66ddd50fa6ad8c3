/*
 * population.h - problem lines drawn from what users have: an operator's population is a list of lines with holes.
 *
 *     "rows={tokens} cols={c:hidden} ldx={c}+{0|0|8} dtype={f32|bf16}"
 *
 * A hole is one of several equally likely words, or a size of a kind, which a letter before it names for later holes.
 */
#ifndef CKL_LAB_POPULATION_H
#define CKL_LAB_POPULATION_H

#include "lab/random_problem.h"

/*
 * Appends the line number `number` of the sample with that seed, as case_print() writes it: a legal problem within the
 * limits. Its memory is equally likely between any two powers of two below the limit, down to 2^-15 of it, where the
 * population has such problems. The same on every machine. CKL_INTERNAL and a sentence if the population holds hardly
 * any such problem. Any thread.
 */
ckl_status population_line(const operator_test *test, uint64_t seed, int64_t number, random_problem_limits limits,
                           text *line);

#endif
