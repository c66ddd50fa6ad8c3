/* verify_run.c - running the list on one device, with progress on a terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/heap.h"
#include "base/math.h"
#include "lab/check.h"
#include "cli/cli.h"
#include "cli/verify.h"
#include "lab/clock.h"

typedef enum outcome { PASSED, FAILED, DECLINED, LOST } outcome;

/* Progress and device of one pass over the list. */
typedef struct pass {
    ckl_device *device;
    const ckl_device_info *info;
    bool terminal;
    double begin;
    int done, count;

    /* The previous job: its inputs and reference serve the next implementation. */
    const verify_job *job; // NULL: there is none
    test_case c;
    check k;
} pass;

static void show_progress(const pass *p, const verify_sums *sums, const char *line)
{
    if (!p->terminal)
        return;
    double seconds = clock_seconds() - p->begin;
    double left = p->done ? seconds / p->done * (p->count - p->done) : 0;
    fprintf(stderr, "\r\033[K%s %d of %d, %d failed, %.0f s, about %.0f s left  %.50s", p->info->id, p->done, p->count,
            sums->failed, seconds, left, line);
}

static void clear_progress(const pass *p)
{
    if (p->terminal)
        fprintf(stderr, "\r\033[K");
}

static void print_failure(const pass *p, const test_case *c, const char *plan, const char *fault)
{
    text line = { 0 };
    case_print(c, &line);
    clear_progress(p);
    printf("FAILED %s\n  %s, %s\n  %s\n  repeat: ckl run \"%s\" --device %s\n", text_data(&line), p->info->id, plan,
           fault, text_data(&line), p->info->id);
    text_free(&line);
}

/* Does the implementation take the case? A decline is an answer, not a failure. */
static ckl_status ask(const pass *p, const test_case *c)
{
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ckl_status status = case_choose(c, p->info, &memory, &impl, &config);
    arena_clear(&memory);
    return status;
}

/* Compares with an earlier device's bits where the same plan ran there, and leaves this device's for the next. */
static void compare_devices(const pass *p, const check *k, verify_job *job, arena *memory, check_result *result)
{
    uint64_t digest = operand_images_digest(&k->images);
    const char *plan = ckl_plan_text(k->plan);
    bool comparable = job->earlier_device && strcmp(job->earlier_plan, plan) == 0 &&
                      adapter_approximation(k->c->test, k->c->problem) == 0;
    if (comparable && job->earlier_digest != digest) {
        result->passed = false;
        snprintf(result->fault, sizeof result->fault, "the result is right but not bit for bit that of %s",
                 job->earlier_device);
    }
    job->earlier_device = arena_text(memory, p->info->id);
    job->earlier_plan = arena_text(memory, plan);
    job->earlier_digest = digest;
}

static bool are_same_inputs(const verify_job *a, const verify_job *b)
{
    return a && a->line == b->line && a->fill == b->fill && a->seed == b->seed;
}

static void forget_inputs(pass *p)
{
    check_close(&p->k);
    case_clear(&p->c);
    p->job = NULL;
}

/* The job's case: the previous job's, with another implementation, if inputs are the same. */
static ckl_status take_case(pass *p, const verify_job *job)
{
    if (!are_same_inputs(p->job, job)) {
        forget_inputs(p);
        TRY(case_parse(job->line, &p->c));
        p->c.keys.fill = (choice)job->fill;
        p->c.keys.seed = job->seed;
        p->job = job;
    }
    p->c.keys.impl = job->impl->name;
    return CKL_OK;
}

static ckl_status open_check(pass *p)
{
    if (p->k.plan)
        return check_replan(&p->k);
    TRY(check_open(&p->c, p->device, NULL, &p->k));
    p->k.images.keep_references = true;
    return CKL_OK;
}

static outcome run_job(pass *p, verify_job *job, arena *memory)
{
    check *k = &p->k;
    check_result result = { 0 };
    ckl_status status = take_case(p, job);
    if (status == CKL_OK)
        status = ask(p, &p->c);
    if (status == CKL_UNSUPPORTED)
        return DECLINED;
    if (status == CKL_OK)
        status = open_check(p);
    if (status == CKL_OK)
        status = check_run(k, &result);
    if (status == CKL_OK && job->repeat && result.passed)
        status = check_run_again(k, &result);
    if (status == CKL_OK && result.passed)
        compare_devices(p, k, job, memory, &result);
    if (status == CKL_OK && result.passed)
        return PASSED;
    const char *plan = k->plan ? ckl_plan_text(k->plan) : "no plan";
    print_failure(p, &p->c, plan, status == CKL_OK ? result.fault : ckl_error());
    forget_inputs(p); // a stream that has failed is not used again
    return status == CKL_DEVICE_FAULT && !p->info->emulated ? LOST : FAILED; // a CUDA fault is for ever
}

/* Runs a rejected line up to where it fails, and returns that status. */
static ckl_status try_line(ckl_device *device, const char *line)
{
    test_case c;
    check k = { 0 };
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = check_open(&c, device, NULL, &k);
    if (status == CKL_OK)
        status = check_enqueue(&k);
    check_close(&k);
    case_clear(&c);
    return status;
}

static outcome run_reject(const pass *p, const verify_reject *r)
{
    text line = { 0 };
    text_printf(&line, "%s %s", r->test->op->name, r->reject->line);
    status_clear();
    ckl_status status = try_line(p->device, text_data(&line));
    bool good = status == r->reject->status && strstr(ckl_error(), r->reject->sentence);
    // a device without all that kernels want may refuse them for its own lack, before the line's fault is reached
    bool declined = status == CKL_UNSUPPORTED && !p->info->has_wgmma;
    if (!good && !declined) {
        clear_progress(p);
        printf("FAILED to be rejected: %s\n  %s, status %s, wanted %s\n  says \"%s\"\n  wanted \"%s\"\n",
               text_data(&line), p->info->id, ckl_status_name(status), ckl_status_name(r->reject->status), ckl_error(),
               r->reject->sentence);
    }
    text_free(&line);
    return good ? PASSED : declined ? DECLINED : FAILED;
}

/* A line that every implementation declines was not checked: said and counted once, at its last job. */
static void note_untaken(const verify_list *list, int job, bool *taken, verify_sums *sums)
{
    const verify_job *now = &list->jobs[job];
    if (job + 1 < list->job_count && list->jobs[job + 1].line == now->line)
        return;
    if (!*taken) {
        sums->skipped++;
        printf("skipped: %s: every implementation declines\n", now->line);
    }
    *taken = false;
}

static void count(outcome result, verify_sums *sums)
{
    sums->passed += result == PASSED;
    sums->failed += result == FAILED || result == LOST;
    sums->declined += result == DECLINED;
}

/* Runs the job unless it is spare; `taken` is whether a job of its line ran before. */
static outcome run_or_leave(pass *p, verify_job *job, bool *taken, verify_list *list, verify_sums *sums)
{
    if (job->spare && *taken && p->info->emulated) {
        sums->left += 1 + job->left;
        return PASSED;
    }
    if (*taken && job->repeat && !list->request->full) { // a quick request repeats what takes the line first
        job->repeat = false;
        job->left++;
    }
    double begin = clock_cpu_seconds();
    outcome result = run_job(p, job, &list->memory);
    job->seconds = clock_cpu_seconds() - begin;
    count(result, sums);
    sums->left += result == DECLINED ? 0 : job->left;
    *taken |= result != DECLINED;
    return result;
}

static int by_seconds(const void *a, const void *b)
{
    double first = (*(verify_job *const *)a)->seconds, second = (*(verify_job *const *)b)->seconds;
    return (first < second) - (first > second);
}

static void print_slowest(const verify_list *list)
{
    static const char *const fills[] = {
        [FILL_UNIFORM] = "uniform", [FILL_INTEGERS] = "integers", [FILL_HARD] = "hard"
    };
    verify_job **sorted = heap_alloc((size_t)list->job_count, sizeof *sorted);
    for (int i = 0; i < list->job_count; i++)
        sorted[i] = &list->jobs[i];
    qsort(sorted, (size_t)list->job_count, sizeof *sorted, by_seconds);
    for (int i = 0; i < min_i64(list->request->slowest, list->job_count); i++)
        printf("%7.3f s: %s impl=%s fill=%s\n", sorted[i]->seconds, sorted[i]->line, sorted[i]->impl->name,
               fills[sorted[i]->fill]);
    heap_free(sorted);
}

bool verify_run(verify_list *list, ckl_device *device, verify_sums *sums)
{
    pass p = { .device = device,
               .info = ckl_device_properties(device),
               .terminal = isatty(STDERR_FILENO),
               .begin = clock_seconds(),
               .count = list->job_count + list->reject_count };
    outcome result = PASSED;
    bool taken = false;
    for (int i = 0; i < list->reject_count && result != LOST; i++, p.done++)
        count(result = run_reject(&p, &list->rejects[i]), sums);
    for (int i = 0; i < list->job_count && result != LOST; i++, p.done++) {
        show_progress(&p, sums, list->jobs[i].line);
        result = run_or_leave(&p, &list->jobs[i], &taken, list, sums);
        note_untaken(list, i, &taken, sums);
    }
    forget_inputs(&p);
    clear_progress(&p);
    sums->skipped += p.count - p.done;
    printf("%s: %d of %d done in %.1f s\n", p.info->id, p.done, p.count, clock_seconds() - p.begin);
    if (list->request->slowest > 0)
        print_slowest(list);
    return result != LOST;
}
