/* verify_list.c - from problem lines to runs: every fill, several seeds, every implementation. */
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "cli/verify.h"

enum { SEEDS = 5 };
static const double SMALL_FLOPS = 1e5; // so small a problem takes milliseconds on the emulator
static const double SPARE_FLOPS = 1e6; // takes a second where each thread computes an element

static void *grow(void *array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 256;
    return heap_resize(array, (size_t)*capacity, size);
}

static void add_job(verify_list *list, verify_job job)
{
    list->jobs = grow(list->jobs, list->job_count, &list->job_capacity, sizeof job);
    list->jobs[list->job_count++] = job;
}

bool verify_wants_operator(const verify_request *request, const char *name)
{
    const char *const *names = request->operators;
    if (!names || !*names)
        return true;
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

bool verify_wants_impl(const verify_request *request, const char *name)
{
    return !request->impl || strcmp(name, request->impl) == 0;
}

bool verify_wants_line(const verify_request *request, int64_t number)
{
    return number % max_i64(1, request->shards) == request->shard;
}

/* "" stands for any name. */
static bool is_name(const char *name, const char *wanted)
{
    return !*wanted || strcmp(name, wanted) == 0;
}

/* One fill of a line by every implementation that is asked for, which share inputs and reference. */
static void add_fill(verify_list *list, const test_case *c, const verify_job *fill)
{
    for (const implementation *const *impl = c->test->op->implementations; *impl; impl++) {
        verify_job job = *fill;
        job.impl = *impl;
        if (is_name((*impl)->name, c->keys.impl) && verify_wants_impl(list->request, (*impl)->name))
            add_job(list, job);
    }
}

/*
 * The runs of a line: exact and repeated, hard, and random with several seeds. A line with fill= gets just that. Large
 * problems take most of the time, so a quick request runs only the exact fill of them: it finds any wrong element, and
 * small problems get the other fills.
 */
static void add_fills(verify_list *list, const char *line, const test_case *c)
{
    const verify_request *request = list->request;
    double flops = adapter_flops(c->test, c->problem);
    bool small = flops <= SMALL_FLOPS, all = small || request->full;
    int seeds_full = request->seeds ? request->seeds : small ? SEEDS : 1;
    int seeds = request->seeds || request->full ? seeds_full : 1;
    verify_job job = { .line = line, .seed = (int)c->keys.seed, .repeat = all };
    job.spare = !request->full && flops > SPARE_FLOPS;
    job.fill = FILL_INTEGERS;
    job.left = all ? seeds_full - seeds : 2 + seeds_full; // the repeated, the hard and the random ones
    if (c->fill_given) {
        job.fill = (operand_fill)c->keys.fill;
        job.left = !all;
    }
    add_fill(list, c, &job);
    if (c->fill_given || !all)
        return;
    job.repeat = false;
    job.left = 0;
    job.fill = FILL_HARD;
    add_fill(list, c, &job);
    job.fill = FILL_UNIFORM;
    for (int i = 0; i < seeds; i++, job.seed++)
        add_fill(list, c, &job);
}

static ckl_status add_line(const char *line, void *user)
{
    verify_list *list = user;
    test_case c;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK && verify_wants_operator(list->request, c.test->op->name) &&
        verify_wants_line(list->request, list->line_count++))
        add_fills(list, arena_text(&list->memory, line), &c);
    case_clear(&c);
    return status;
}

static ckl_status add_cases_of(const operator_test *test, verify_list *list)
{
    for (const char *const *line = test->cases; *line; line++) {
        text full = { 0 };
        text_printf(&full, "%s %s", test->op->name, *line);
        ckl_status status = add_line(text_data(&full), list);
        if (status != CKL_OK)
            status_fail(status, "case '%s': %s", text_data(&full), ckl_error());
        text_free(&full);
        TRY(status);
    }
    for (const test_reject *reject = test->rejects; reject && reject->line; reject++) {
        if (!verify_wants_line(list->request, list->line_count++))
            continue;
        list->rejects = grow(list->rejects, list->reject_count, &list->reject_capacity, sizeof *list->rejects);
        list->rejects[list->reject_count++] = (verify_reject){ test, reject };
    }
    return CKL_OK;
}

ckl_status verify_list_create(const verify_request *request, verify_list *list)
{
    *list = (verify_list){ .request = request };
    const operator_test *known;
    for (const char *const *name = request->operators; name && *name; name++)
        TRY(case_operator(*name, &known));
    if (request->suite)
        return suite_read(request->suite, add_line, list);
    for (const operator_test *const *test = operator_tests; *test; test++)
        if (verify_wants_operator(request, (*test)->op->name))
            TRY(add_cases_of(*test, list));
    return CKL_OK;
}

void verify_list_free(verify_list *list)
{
    heap_free(list->jobs);
    heap_free(list->rejects);
    arena_clear(&list->memory);
    *list = (verify_list){ 0 };
}
