/* problem.h - problem lines: "gemm m=4096 n=4096 k=64 a=f16  # comment" split into an operator and key=value pairs. */
#pragma once

#include "base/arena.h"
#include "base/status.h"

typedef struct problem_pair {
    const char *key, *value;
} problem_pair;

typedef struct problem_line {
    const char *op; // NULL: an empty line or a comment
    problem_pair *pairs;
    int count;
} problem_line;

/* Can a value be written without quotes? */
bool problem_is_word(const char *value);

/* Splits a line; strings live in the arena. A value may be quoted in '' or "" to hold spaces, or hold balanced (). */
ckl_status problem_split(arena *memory, const char *line, problem_line *out);
