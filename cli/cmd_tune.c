/* cmd_tune.c - ckl tune: the search for a problem's fastest config, its evidence, and the winner in the tuned store. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/heap.h"
#include "base/math.h"
#include "bench/tune.h"
#include "cli/cli.h"
#include "lab/case.h"
#include "lab/cores.h"
#include "plan/tuned.h"

#ifndef CKL_COMMIT
#define CKL_COMMIT ""
#endif

static const char *device_id, *suite, *candidates, *generations, *seconds, *wall, *seed, *workers, *configs, *evidence,
    *store_path, *no_store;
static const cli_option options[] = {
    { "--suite", "FILE", &suite, "problem lines to tune one after the other, instead of LINE" },
    { "--device", "D", &device_id, "cuda, cuda:1; the best present if not given" },
    { "--candidates", "N", &candidates, "configs to try (200)" },
    { "--generations", "N", &generations, "of children of the best, after the first one (4)" },
    { "--seconds", "S", &seconds, "from the first candidate on; none begins later. No limit if not given" },
    { "--wall", "S", &wall, "kill a candidate whose preparation or run takes longer (20)" },
    { "--seed", "S", &seed, "of the search: the same one and the same times, the same candidates (1)" },
    { "--workers", "N", &workers, "processes that prepare candidates (one for each core but two)" },
    { "--configs", "FILE", &configs, "configs to begin with, a line each as plans print them" },
    { "--evidence", "FILE", &evidence, "a JSON line for each trial; a search that was stopped goes on from it" },
    { "--store", "FILE", &store_path, "where the winner is kept (tuned.txt in the user's cache folder)" },
    { "--no-store", NULL, &no_store, "keep the winner nowhere" },
};

/* Arguments */

typedef struct tuning {
    tune_options options;
    const char *lines[1024];
    int line_count;
    arena memory;
    char path[TUNED_PATH_BYTES]; // of the store; "": the winner is not kept
    ckl_status status;           // the first failure of a line
} tuning;

static ckl_status add_line(const char *line, void *user)
{
    tuning *t = user;
    if (t->line_count == COUNT_OF(t->lines))
        FAIL(CKL_INVALID, "tune: more than %d problems", COUNT_OF(t->lines));
    t->lines[t->line_count++] = arena_text(&t->memory, line);
    return CKL_OK;
}

static ckl_status add_config(const char *line, void *user)
{
    tuning *t = user;
    int count = 0;
    while (t->options.given[count])
        count++;
    if (count == TUNE_GIVEN_MAX - 1)
        FAIL(CKL_INVALID, "tune: more than %d configs", TUNE_GIVEN_MAX - 1);
    t->options.given[count] = arena_text(&t->memory, line);
    return CKL_OK;
}

static ckl_status read_options(tuning *t)
{
    tune_options *o = &t->options;
    int64_t tried = 200, generation = 4, worker = max_i64(cores_available() - 2, 1), number = 1;
    TRY(cli_integer("--candidates", candidates, 1, 100000, &tried));
    TRY(cli_integer("--generations", generations, 0, 1000, &generation));
    TRY(cli_integer("--workers", workers, 1, 64, &worker));
    TRY(cli_integer("--seed", seed, 0, INT32_MAX, &number));
    *o = (tune_options){ .device_id = device_id,
                         .evidence = evidence,
                         .commit = CKL_COMMIT,
                         .candidates = (int)tried,
                         .generations = (int)generation,
                         .workers = (int)worker,
                         .seed = (uint64_t)number,
                         .wall_seconds = 20 };
    TRY(cli_number("--seconds", seconds, 0, 1e6, &o->seconds));
    TRY(cli_number("--wall", wall, 0.1, 1e6, &o->wall_seconds));
    return configs ? suite_read(configs, add_config, t) : CKL_OK;
}

/* Where the winner goes, known before an hour of searching. */
static ckl_status find_store(tuning *t)
{
    if (no_store)
        return CKL_OK;
    if (store_path && strlen(store_path) >= sizeof t->path)
        FAIL(CKL_INVALID, "tune: --store=%s is too long", store_path);
    if (store_path)
        snprintf(t->path, sizeof t->path, "%s", store_path);
    else if (!tuned_user_path(t->path))
        FAIL(CKL_INVALID, "tune: HOME is not set: say --store FILE or --no-store");
    return CKL_OK;
}

/* What is said */

static void show_progress(const tune_progress *p)
{
    fprintf(stderr, "\r\033[Ktrial %d of %d, %.0f s", p->done, p->candidates, p->seconds);
    if (p->best)
        fprintf(stderr, ", best %.2f us (the plan's %.2f) %.60s", p->best_us, p->choice_us, p->best);
}

static void report_counts(const tune_result *r)
{
    int tried = r->reused;
    for (int i = 0; i < TUNE_OUTCOME_COUNT; i++)
        tried += r->count[i];
    printf("tried %d in %.1f s, %.1f s of them before the first:", tried, r->seconds, r->opening_seconds);
    for (int i = 0; i < TUNE_OUTCOME_COUNT; i++)
        if (r->count[i])
            printf(" %d %s,", r->count[i], tune_outcome_names[i]);
    printf(" %d known; %" PRId64 " illegal ones drawn again\n", r->reused, r->illegal);
    if (*r->dead_fields)
        printf("changed nothing on this problem: %s\n", r->dead_fields);
}

static void report_finals(const tune_result *r)
{
    printf("%10s %9s  config\n", "median us", "");
    for (int i = 0; i < r->final_count; i++)
        printf("%10.2f %8.1f%%  %s\n", r->finals[i].median_us,
               100 * (r->finals[i].median_us / r->finals[i].choice_us - 1), r->finals[i].config);
    if (r->final_count)
        printf("%10.2f %9s  %s (the plan's)\n", r->finals[0].choice_us, "", r->choice);
}

static ckl_status keep(const tuning *t, const test_case *c, const tune_result *r)
{
    if (!r->won) {
        printf("nothing is faster than what the plan takes, beyond doubt\n");
        return CKL_OK;
    }
    if (!*t->path)
        return CKL_OK;
    TRY(tune_keep(c, r, t->path));
    tuned_forget(); // the next line's search begins with what this one has found
    printf("kept in %s\n", t->path);
    return CKL_OK;
}

static ckl_status tune_line(tuning *t, const char *line)
{
    test_case c;
    tune_result *result = heap_alloc(1, sizeof *result);
    printf("== %s\n", line);
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = tune_run(&c, &t->options, result);
    if (t->options.progress)
        fprintf(stderr, "\r\033[K");
    if (status == CKL_OK) {
        report_counts(result);
        report_finals(result);
        status = keep(t, &c, result);
    }
    case_clear(&c);
    heap_free(result);
    return status;
}

/* A line that fails is reported, and the next one comes unless there is no device. */
static ckl_status tune_lines(tuning *t)
{
    for (int i = 0; i < t->line_count; i++) {
        ckl_status status = tune_line(t, t->lines[i]);
        if (status == CKL_OK)
            continue;
        if (t->line_count == 1 || status == CKL_DEVICE_FAULT)
            return status;
        printf("failed: %s\n", ckl_error());
        t->status = t->status == CKL_OK ? status : t->status;
    }
    return CKL_OK;
}

static int command(int argc, char **argv)
{
    tuning *t = heap_alloc(1, sizeof *t);
    ckl_status status = read_options(t);
    if (isatty(STDERR_FILENO))
        t->options.progress = show_progress;
    if (status == CKL_OK)
        status = cli_lines(argc, argv, suite, add_line, t);
    if (status == CKL_OK)
        status = find_store(t);
    if (status == CKL_OK)
        status = tune_lines(t);
    int exit_status = status != CKL_OK ? cli_exit(status) : cli_exit_of(t->status);
    arena_clear(&t->memory);
    heap_free(t);
    return exit_status;
}

CLI_COMMAND(
    tune, "LINE | --suite FILE [options]",
    "searches a problem's fastest config, checked and timed, and keeps it for later plans",
    "Searches the config that is fastest on a problem and keeps it where every later plan of that problem finds\n"
    "it. Candidates are checked before they are timed: against the rules of the implementation, by the assembler,\n"
    "on the emulator, and on the device with three seeds. Times are taken interleaved with what the plan takes\n"
    "today; what is not faster beyond doubt is not kept.\n"
    "Example: ckl tune gemm m=1536 n=1536 k=1536 a=bf16");
