/* case.h - a case: a problem line under test, parsed. Suites are files of them. */
#ifndef CKL_LAB_CASE_H
#define CKL_LAB_CASE_H

#include "lab/adapter.h"

/* Keys that every operator's line may have, beside the operator's own. */
#define CASE_KEYS(X)                                                                               \
    X(case_keys, quoted, impl, "", "", "implementation to use; the plan chooses if not given")     \
    X(case_keys, quoted, config, "", "", "its config or part of it: config='sm90 tile_m=128'")     \
    X(case_keys, choice, fill, "uniform", "integers uniform normal hard", "how inputs are filled") \
    X(case_keys, int64_t, seed, "1", "", "of the random inputs")                                   \
    X(case_keys, int, misalign, "0", "", "elements by which every pointer is displaced")           \
    X(case_keys, int, stagger, "0", "", "elements by which each further pointer is displaced more")

typedef struct case_keys {
    CASE_KEYS(FIELD_MEMBER)
} case_keys;

extern const field_table case_key_table;

/* impl, config, fill, seed and misalign may be changed after parsing; strings must outlive the case. */
typedef struct test_case {
    const operator_test *test;
    void *problem;      // the operator's problem struct, prepared
    const char *fields; // its fields as they were given, those at their default left out
    case_keys keys;
    bool fill_given; // by the line; else verify goes through several
    arena memory;
} test_case;

/* Parses "gemm m=333 n=64 k=64 fill=hard". Clear it also after a failure. */
ckl_status case_parse(const char *line, test_case *out);
void case_clear(test_case *c);

/*
 * Forces a config: "gemm sm90 tile_m=128 stages=3", as plans print it, or without the operator's name; without the
 * implementation's it is of impl=. Sets impl and config, the latter without names.
 */
ckl_status case_config(test_case *c, const char *config);

/* Appends the line that repeats this case: paste it after `ckl run`. */
void case_print(const test_case *c, text *out);

/* Plans it on a device, as impl= and config= say. */
ckl_status case_plan(const test_case *c, ckl_device *device, ckl_plan **plan);

/* What plan_choose() and plan_build() take as force, in memory; NULL if the plan chooses. */
const char *case_force(const test_case *c, arena *memory);

/* The operator of that name; CKL_INVALID with the nearest known name. */
ckl_status case_operator(const char *name, const operator_test **test);

/* Calls visit(line, user) for each line of a suite file that is neither empty nor a comment; stops at a failure. */
ckl_status suite_read(const char *path, ckl_status (*visit)(const char *line, void *user), void *user);

#endif
