/*
 * fuzz_problem_line.c - any text as a problem line: it is refused with a sentence, or it is a problem that prints as a
 * line of the same meaning and that every implementation takes or declines.
 */
#include "fuzz_device.h"
#include "fuzz_text.h"
#include "lab/case.h"

static void choose(const test_case *c)
{
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    fuzz_said(case_choose(c, &h200, &memory, &impl, &config));
    arena_clear(&memory);
}

static void print_and_parse(const test_case *c)
{
    text first = { 0 }, second = { 0 };
    test_case again;
    case_print(c, &first);
    fuzz_demand(case_parse(text_data(&first), &again) == CKL_OK, "a printed line is refused");
    case_print(&again, &second);
    fuzz_demand(strcmp(text_data(&first), text_data(&second)) == 0, "a printed line prints as another one");
    case_clear(&again);
    text_free(&first);
    text_free(&second);
}

void fuzz_one(const char *line)
{
    test_case c;
    if (fuzz_said(case_parse(line, &c))) {
        print_and_parse(&c);
        choose(&c);
    }
    case_clear(&c);
}
