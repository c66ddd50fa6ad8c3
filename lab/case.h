/* case.h - a case: a problem line under test, parsed. Suites are files of them. */
#pragma once

#include "lab/adapter.h"
#include "operators/line.h"

/* impl, config, fill, seed and misalign may be changed after parsing; strings must outlive the case. */
typedef struct test_case {
    const operator_test *test;
    void *problem;      // the operator's problem struct, prepared
    const char *fields; // its fields as they were given, those at their default left out
    line_keys keys;
    bool fill_given; // by the line; else verify goes through several
    arena memory;
} test_case;

/* Parses "gemm m=333 n=64 k=64 fill=hard". Clear it also after a failure. */
ckl_status case_parse(const char *line, test_case *out);
void case_clear(test_case *c);

/* Forces a config: line_config(). */
ckl_status case_config(test_case *c, const char *config);

/* The same problem with another config forced. `from` must outlive it. Clear it in any case. */
ckl_status case_copy(const test_case *from, const char *config, test_case *out);

/* Appends the line that repeats this case: paste it after `ckl run`. */
void case_print(const test_case *c, text *out);

/* Plans it on a device, as impl= and config= say. */
ckl_status case_plan(const test_case *c, ckl_device *device, ckl_plan **plan);

/* What is forced: line_force(). */
const char *case_force(const test_case *c, arena *memory);

/* Its desc; what it gets on a device, as impl= and config= say. In memory of the arena. */
void *case_desc(const test_case *c, arena *memory);
ckl_status case_choose(const test_case *c, const ckl_device_info *device, arena *memory, const implementation **impl,
                       void **config);

/* The operator of that name; CKL_INVALID with the nearest known name. */
ckl_status case_operator(const char *name, const operator_test **test);

/* Calls visit(line, user) for each line of a suite file, - is stdin, but empty ones and comments; until one fails. */
ckl_status suite_read(const char *path, ckl_status (*visit)(const char *line, void *user), void *user);
