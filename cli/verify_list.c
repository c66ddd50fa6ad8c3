/* verify_list.c - from problem lines to runs: every fill, several seeds, every implementation. */
#include <string.h>
#include <stdlib.h>

#include "cli/verify.h"

enum { SEEDS = 5 };
static const double SMALL_FLOPS = 1e6; // so small a problem takes milliseconds on the emulator

static void *grow(void *array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 256;
    void *larger = realloc(array, (size_t)*capacity * size);
    if (!larger)
        abort();
    return larger;
}

static void add_job(verify_list *list, verify_job job)
{
    list->jobs = grow(list->jobs, list->job_count, &list->job_capacity, sizeof job);
    list->jobs[list->job_count++] = job;
}

static bool is_wanted(const char *const *names, const char *name)
{
    if (!names || !*names)
        return true;
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* "" and NULL stand for any name. */
static bool is_name(const char *name, const char *wanted)
{
    return !wanted || !*wanted || strcmp(name, wanted) == 0;
}

/* The runs of one implementation: exact, hard, and random with several seeds; a line that states fill= gets just that. */
static void add_fills(verify_list *list, const char *line, const test_case *c, const implementation *impl, int seeds)
{
    static const operand_fill fills[] = { FILL_INTEGERS, FILL_HARD, FILL_UNIFORM };
    verify_job job = { .line = line, .impl = impl, .fill = (operand_fill)c->keys.fill, .repeat = true };
    job.seed = (int)c->keys.seed;
    if (c->fill_given) {
        add_job(list, job);
        return;
    }
    for (int i = 0; i < COUNT_OF(fills); i++) {
        job.fill = fills[i];
        for (int seed = 0; seed < (fills[i] == FILL_UNIFORM ? seeds : 1); seed++) {
            job.seed = (int)c->keys.seed + seed;
            job.repeat = i == 0;
            add_job(list, job);
        }
    }
}

typedef struct adding {
    const verify_request *request;
    verify_list *list;
} adding;

static ckl_status add_line(const char *line, void *user)
{
    const adding *a = user;
    test_case c;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK && is_wanted(a->request->operators, c.test->op->name)) {
        const char *kept = arena_text(&a->list->memory, line);
        int seeds = a->request->seeds ? a->request->seeds : adapter_flops(c.test, c.problem) <= SMALL_FLOPS ? SEEDS : 1;
        for (const implementation *const *impl = c.test->op->implementations; *impl; impl++)
            if (is_name((*impl)->name, c.keys.impl) && is_name((*impl)->name, a->request->impl))
                add_fills(a->list, kept, &c, *impl, seeds);
    }
    case_clear(&c);
    return status;
}

static ckl_status add_cases_of(const operator_test *test, adding *a)
{
    for (const char *const *line = test->cases; *line; line++) {
        text whole = { 0 };
        text_printf(&whole, "%s %s", test->op->name, *line);
        ckl_status status = add_line(text_data(&whole), a);
        if (status != CKL_OK)
            status_fail(status, "case '%s': %s", text_data(&whole), ckl_error());
        text_free(&whole);
        TRY(status);
    }
    verify_list *list = a->list;
    for (const test_reject *reject = test->rejects; reject && reject->line; reject++) {
        list->rejects = grow(list->rejects, list->reject_count, &list->reject_capacity, sizeof *list->rejects);
        list->rejects[list->reject_count++] = (verify_reject){ test, reject };
    }
    return CKL_OK;
}

ckl_status verify_list_create(const verify_request *request, verify_list *list)
{
    *list = (verify_list){ 0 };
    adding a = { request, list };
    const operator_test *known;
    for (const char *const *name = request->operators; name && *name; name++)
        TRY(case_operator(*name, &known));
    if (request->suite)
        return suite_read(request->suite, add_line, &a);
    for (const operator_test *const *test = operator_tests; *test; test++)
        if (is_wanted(request->operators, (*test)->op->name))
            TRY(add_cases_of(*test, &a));
    return CKL_OK;
}

void verify_list_free(verify_list *list)
{
    free(list->jobs);
    free(list->rejects);
    arena_clear(&list->memory);
    *list = (verify_list){ 0 };
}
