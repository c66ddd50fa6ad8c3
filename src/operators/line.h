/* line.h - problem lines: "gemm m=333 n=64 k=64 a=f16 impl=tiled" becomes an operator's problem. */
#pragma once

#include "operators/operators.h"

/* Keys that every operator's line may have, beside the operator's own. */
#define LINE_KEYS(X)                                                                               \
    X(line_keys, quoted, impl, "", "", "implementation to use; the plan chooses if not given")     \
    X(line_keys, quoted, config, "", "", "its config or part of it: config='sm90 tile_m=128'")     \
    X(line_keys, choice, fill, "uniform", "integers uniform normal hard", "how inputs are filled") \
    X(line_keys, int64_t, seed, "1", "", "of the random inputs")                                   \
    X(line_keys, int, misalign, "0", "", "elements by which every pointer is displaced")           \
    X(line_keys, int, stagger, "0", "", "elements by which each further pointer is displaced more")

typedef struct line_keys {
    LINE_KEYS(FIELD_MEMBER)
} line_keys;

extern const field_table line_key_table;

/* A line as it was read: nothing is filled in or checked. */
typedef struct line_problem {
    const operator_line *of;
    void *problem; // begins with the desc
    line_keys keys;
    bool fill_given;
} line_problem;

/* The lines of an operator by its name; CKL_INVALID with the nearest known one. */
ckl_status line_operator(const char *name, const operator_line **of);

/* Reads a line; strings live in the arena. CKL_INVALID with a sentence: operator, key, value. */
ckl_status line_read(arena *memory, const char *line, line_problem *out);

/* Makes the desc of what was read, and checks it. */
ckl_status line_prepare(const operator_line *of, void *problem);

/*
 * Forces a config: "gemm sm90 tile_m=128 stages=3", as plans print it, or without the operator's name; without the
 * implementation's it is of impl=. Sets impl and config, the latter without names.
 */
ckl_status line_config(arena *memory, const char *op, const char *config, line_keys *keys);

/* What plan_choose() and plan_build() take as force, in the arena; NULL if the plan chooses. */
const char *line_force(const line_keys *keys, arena *memory);
