/*
 * population.h - problem lines drawn from what users have: an operator's population is a list of lines with holes.
 *
 *     "rows={tokens} cols={c:hidden} ldx={c}+{0|0|8} dtype={f32|bf16}"
 *
 * A hole is one of several equally likely words, or a size of a kind, which a letter before it names for later holes.
 */
#pragma once

#include "lab/random_problem.h"

/* Which lines are drawn. */
typedef struct population_sample {
    uint64_t seed;
    random_problem_limits limits;
    const char *given; // "a=f32 layout=tn", keys that all lines have, whatever is drawn; NULL: none
} population_sample;

extern const random_problem_limits population_limits; // usual ones: a gemm of some 10 ms, 1 GiB

/*
 * Appends line number `number` of the sample, as case_print() writes it: a legal problem within the limits. Its memory
 * is equally likely between any two powers of two below the limit, down to 2^-15 of it, where the population has such
 * problems. The same on every machine. CKL_INVALID and a sentence if hardly any problem is such. Any thread.
 */
ckl_status population_line(const operator_test *test, population_sample sample, int64_t number, text *line);
