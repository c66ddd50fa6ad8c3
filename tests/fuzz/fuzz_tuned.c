/*
 * fuzz_tuned.c - any text as a line of the tuned store: it is refused with a sentence, or it is an entry whose config
 * the H200 takes or declines.
 */
#include "fuzz_device.h"
#include "fuzz_text.h"
#include "operators/operators.h"
#include "plan/tuned.h"

void fuzz_one(const char *line)
{
    arena memory = { 0 };
    problem_line split;
    const implementation *impl;
    void *config;
    if (fuzz_said(problem_split(&memory, line, &split)) && split.op)
        for (const operator_info *const *op = operators; *op; op++) {
            tuned_entry entry = { 0 };
            if (strcmp((*op)->name, split.op) == 0 && fuzz_said(tuned_parse(*op, &split, &memory, &entry)))
                fuzz_said(plan_choose(&h200, *op, entry.desc, entry.force, &memory, &impl, &config));
        }
    arena_clear(&memory);
}
