/*
 * fuzz_tuned.c - any text as a line of the tuned store, of each operator: it is refused with a sentence, or it is an entry whose
 * desc prints as one of the same meaning, and whose config the H200 takes or declines.
 */
#include "base/problem.h"
#include "fuzz_h200.h"
#include "fuzz_text.h"
#include "operators/operators.h"
#include "plan/cache.h"
#include "plan/desc.h"
#include "plan/tuned.h"

/* Prints the desc and reads it again. */
static void print_and_parse(const operator_info *op, const tuned_entry *entry, arena *memory)
{
    problem_line split;
    text printed = { 0 };
    void *again = arena_alloc(memory, 1, op->desc_bytes), *key = arena_alloc(memory, 1, op->desc_bytes);
    plan_desc_print(op, entry->desc, &printed);
    fuzz_demand(problem_split(memory, text_data(&printed), &split) == CKL_OK, "a printed desc is no line");
    for (int i = 0; i < split.count; i++)
        fuzz_demand(plan_desc_set(op, split.pairs[i].key, split.pairs[i].value, again) == CKL_OK, text_data(&printed));
    plan_desc_key(op, again, key);
    fuzz_demand(memcmp(key, entry->key, op->desc_bytes) == 0, "a printed desc is another one");
    text_free(&printed);
}

void fuzz_one(const char *line)
{
    arena memory = { 0 };
    problem_line split;
    const implementation *impl;
    void *config;
    if (fuzz_said(problem_split(&memory, line, &split)) && split.op)
        for (const operator_info *const *op = operators; *op; op++) {
            tuned_entry entry = { 0 };
            if (strcmp((*op)->name, split.op) != 0 || !fuzz_said(tuned_parse(*op, &split, &memory, &entry)))
                continue;
            print_and_parse(*op, &entry, &memory);
            fuzz_said(plan_choose(&h200, *op, entry.desc, entry.force, &memory, &impl, &config, NULL));
        }
    arena_clear(&memory);
}
