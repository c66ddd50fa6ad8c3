/* verify_assemble.c - every kernel that the cases, the benchmark suites and a sample need, once through ptxas. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "lab/accepted.h"
#include "lab/assemble.h"
#include "lab/population.h"
#include "cli/verify.h"

/* Lines of each operator's sample; a full request takes the second. */
enum { SAMPLE_LINES = 25, SAMPLE_LINES_FULL = 250 };

typedef struct wanted_kernel {
    const operator_info *op;
    const implementation *impl;
    const void *config;
    const char *text; // implementation and config: what makes it the same kernel
    bool chosen;      // without force: it must not spill
    bool wanted;      // else it is left to a full request
    ckl_status status;
    char sentence[512];
    assembled result;
    bool asked; // ptxas; it has not accepted all of the code before
} wanted_kernel;

typedef struct kernels {
    const ckl_device_info *info;
    const verify_request *request;
    wanted_kernel *each;
    int count;
    accepted before, now;
    int64_t line_count; // of suites and samples
    arena memory;
} kernels;

static void add_kernel(kernels *k, const wanted_kernel *made)
{
    text line = { 0 };
    text_printf(&line, "%s %s ", made->op->name, made->impl->name);
    fields_print(made->impl->config, made->config, false, &line);
    for (int i = 0; i < k->count; i++)
        if (strcmp(k->each[i].text, text_data(&line)) == 0) {
            k->each[i].wanted |= made->wanted;
            k->each[i].chosen |= made->chosen;
            text_free(&line);
            return;
        }
    k->each = realloc(k->each, (size_t)(k->count + 1) * sizeof *k->each);
    if (!k->each)
        abort();
    k->each[k->count] = *made;
    k->each[k->count++].text = arena_text(&k->memory, text_data(&line));
    text_free(&line);
}

/*
 * The kernel of a line; with force NULL that of the implementation chosen, which is all a quick request wants unless
 * the line forces its config. Declines add nothing.
 */
static void add_line(kernels *k, const char *line, const char *force)
{
    test_case c;
    void *config;
    if (case_parse(line, &c) == CKL_OK && verify_wants_operator(k->request, c.test->op->name)) {
        const operator_info *op = c.test->op;
        wanted_kernel made = { .op = op, .wanted = k->request->full || (!force && !*c.keys.config) };
        made.chosen = !force && !*c.keys.config && !*c.keys.impl;
        void *desc = case_desc(&c, &k->memory);
        if (!force || *c.keys.config)
            force = case_force(&c, &k->memory);
        if (plan_choose(k->info, op, desc, force, &k->memory, &made.impl, &config) == CKL_OK &&
            plan_kernels(op, made.impl, config) > 0 && verify_wants_impl(k->request, made.impl->name)) {
            made.config = config;
            add_kernel(k, &made);
        }
    }
    case_clear(&c);
}

static ckl_status add_requested(const char *line, void *user)
{
    kernels *k = user;
    if (verify_wants_line(k->request, k->line_count++))
        add_line(k, line, NULL);
    return CKL_OK;
}

static void add_suites(kernels *k)
{
    glob_t found;
    if (glob("bench/suites/*.txt", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (suite_read(found.gl_pathv[i], add_requested, k) != CKL_OK)
                printf("%s\n", ckl_error());
    globfree(&found);
}

/* Problems that nobody chose: the same ones every time, so that their code, too, is known from before. */
static ckl_status add_sample(kernels *k, const operator_test *test)
{
    const population_sample sample = { .seed = 1, .limits = population_limits };
    ckl_status status = CKL_OK;
    for (int i = 0; i < (k->request->full ? SAMPLE_LINES_FULL : SAMPLE_LINES) && status == CKL_OK; i++) {
        text line = { 0 };
        status = population_line(test, sample, i, &line);
        if (status == CKL_OK)
            status = add_requested(text_data(&line), k);
        text_free(&line);
    }
    return status;
}

static ckl_status add_samples(kernels *k)
{
    for (const operator_test *const *test = operator_tests; *test; test++)
        if (verify_wants_operator(k->request, (*test)->op->name))
            TRY(add_sample(k, *test));
    return CKL_OK;
}

/*
 * `stem` of 80 and 96 filters takes 0.88 of the time by three CTAs an SM, whose registers serialise wgmma
 * (bench/notes/conv.md).
 */
static bool may_serialise(const wanted_kernel *w)
{
    return strcmp(w->impl->name, "stem") == 0;
}

/* Asks ptxas, unless it has accepted this code before. */
static ckl_status assemble_code(kernels *k, const ir_kernel *kernel, wanted_kernel *w)
{
    text ptx = { 0 };
    ckl_status status = ir_print_ptx(kernel, &ptx);
    uint64_t digest = accepted_digest(text_data(&ptx));
    const accepted_code *before = accepted_find(&k->before, digest);
    w->asked |= !before;
    if (before)
        w->result = (assembled){ .good = true, .registers = before->registers };
    else if (status == CKL_OK)
        status = assemble_ptx(&ptx, ir_target_text(kernel->target), &w->result);
    text_free(&ptx);
    if (status == CKL_OK && w->result.good)
#pragma omp critical
        accepted_add(&k->now, digest, w->result.registers);
    w->result.good |= w->result.spills && !w->chosen; // forced configs are there to be run
    w->result.good |= w->result.serialised && may_serialise(w);
    return status;
}

static ckl_status assemble_kernels(kernels *k, wanted_kernel *w, ir_target target)
{
    for (int number = 0; number < plan_kernels(w->op, w->impl, w->config); number++) {
        ir_kernel *kernel;
        TRY(plan_describe(w->op, w->impl, w->config, number, target, &kernel));
        ckl_status status = assemble_code(k, kernel, w);
        ir_kernel_free(kernel);
        TRY(status);
        if (!w->result.good)
            return CKL_OK;
    }
    return CKL_OK;
}

static void print_kernel(const wanted_kernel *w, verify_sums *sums)
{
    bool good = w->status == CKL_OK && w->result.good;
    if (good && !w->asked) {
        sums->left++;
        return;
    }
    sums->passed += good;
    sums->failed += !good;
    if (good)
        printf("assembled %s: %d registers\n", w->text, w->result.registers);
    else
        printf("FAILED to assemble %s\n  %s\n", w->text, w->status == CKL_OK ? w->result.complaint : w->sentence);
}

static void add_list(kernels *k, const verify_list *list)
{
    for (int i = 0; i < list->job_count; i++) {
        add_line(k, list->jobs[i].line, NULL);
        add_line(k, list->jobs[i].line, list->jobs[i].impl->name);
    }
}

/* Forgets the kernels that are not wanted now; returns how many. */
static int keep_wanted(kernels *k)
{
    int all = k->count;
    k->count = 0;
    for (int i = 0; i < all; i++)
        if (k->each[i].wanted)
            k->each[k->count++] = k->each[i];
    return all - k->count;
}

/* Adds the code accepted now; entries of kernels not requested are kept. */
static ckl_status update_accepted(kernels *k)
{
    const verify_request *r = k->request;
    bool all = !r->suite && !r->impl && !(r->operators && *r->operators);
    for (int i = 0; i < k->before.count && !all; i++)
        accepted_add(&k->now, k->before.each[i].digest, k->before.each[i].registers);
    return accepted_write(r->accepted, &k->now);
}

static void assemble_all(kernels *k, verify_sums *sums)
{
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < k->count; i++) {
        k->each[i].status = assemble_kernels(k, &k->each[i], plan_target(k->info));
        snprintf(k->each[i].sentence, sizeof k->each[i].sentence, "%s", ckl_error()); // of this thread
    }
    for (int i = 0; i < k->count; i++)
        print_kernel(&k->each[i], sums);
}

ckl_status verify_assemble(const verify_list *list, const ckl_device_info *info, verify_sums *sums)
{
    const verify_request *request = list->request;
    kernels k = { .info = info, .request = request };
    ckl_status status = request->accepted ? accepted_read(request->accepted, &k.before) : CKL_OK;
    add_list(&k, list);
    if (!request->suite) {
        add_suites(&k);
        if (status == CKL_OK)
            status = add_samples(&k);
    }
    sums->left += keep_wanted(&k);
    if (!assemble_tool()) {
        printf("skipped: %d kernels were not assembled, ptxas is not installed\n", k.count);
        sums->skipped += k.count;
    } else {
        assemble_all(&k, sums);
        if (status == CKL_OK && request->update)
            status = update_accepted(&k);
    }
    accepted_free(&k.before);
    accepted_free(&k.now);
    free(k.each);
    arena_clear(&k.memory);
    return status;
}
