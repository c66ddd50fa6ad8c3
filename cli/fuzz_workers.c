/* fuzz_workers.c - worker processes take batch after batch; the parent counts, and replaces those that end too soon. */
#include "cli/fuzz_workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/math.h"
#include "device/emulator/emulator.h"
#include "lab/clock.h"
#include "lab/file.h"
#include "lab/worker.h"

enum {
    DEVICES_MAX = 8,
    WORKERS_MAX = 256,
    PROGRESS_SECONDS = 10,
    LOST = 1,
    CANNOT_OPEN = 2,
    PAUSE_US = 20000,
    BUDGET = 100000,
    BATCH_SECONDS_MAX = 120
};

/* Memory that all processes share. */
typedef struct shared_state {
    int64_t next; // batch
    fuzz_sums sums;
    int64_t shortened;       // findings
    int64_t at[WORKERS_MAX]; // the program that a worker is at, or the first of its batch; -1: none
    char sentence[512];      // why a device cannot be opened
} shared_state;

/* Programs to be run one by one. */
typedef struct program_range {
    int64_t first, end;
} program_range;

typedef struct crew {
    const fuzz_request *request;
    shared_state *shared;
    pid_t pids[WORKERS_MAX];
    double begin;
} crew;

/* Devices of a worker */

typedef struct emulator_row {
    const char *model, *label;
    emulator_schedule schedule;
    emulator_completion completion;
} emulator_row;

static const emulator_row emulators[] = {
    { "h200", "emulator:h200", SCHEDULE_ROUNDS, COMPLETION_LAZY },
    { "h200", "emulator:h200 eager", SCHEDULE_ROUNDS, COMPLETION_EAGER },
    { "h200", "emulator:h200 random", SCHEDULE_RANDOM, COMPLETION_RANDOM },
    { "a100", "emulator:a100", SCHEDULE_RANDOM, COMPLETION_LAZY },
    { "l4", "emulator:l4", SCHEDULE_RANDOM, COMPLETION_EAGER },
};

static ckl_status open_emulator(const emulator_row *row, ckl_device **device)
{
    emulator_options options = emulator_options_default();
    options.schedule = row->schedule;
    options.completion = row->completion;
    options.threads = 1;
    options.budget = BUDGET;
    TRY(emulator_open_with(row->model, &options, device));
    snprintf((*device)->info.id, sizeof(*device)->info.id, "%s", row->label);
    return CKL_OK;
}

/* The emulated H200 first; then the device that was asked for, or the emulator's other schedules and models. */
static ckl_status open_devices(const char *id, ckl_device **devices, int *count)
{
    *count = 0;
    for (int i = 0; i < (id ? 1 : COUNT_OF(emulators)); i++, ++*count)
        TRY(open_emulator(&emulators[i], &devices[*count]));
    if (id)
        TRY(ckl_device_open(id, &devices[(*count)++]));
    return CKL_OK;
}

/* Findings */

static void write_file(const fuzz_request *r, const fuzz_finding *finding, const text *words)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/program-%" PRIu64 "-%" PRId64 ".txt", r->folder, r->set.seed, finding->program);
    if (file_write("ckl fuzz", path, words) != CKL_OK)
        fprintf(stderr, "%s\n", ckl_error());
}

static void report(void *user, const fuzz_finding *finding)
{
    const fuzz_request *r = ((const crew *)user)->request;
    text words = { 0 };
    text_printf(&words, "program %" PRId64 " (%s) on %s: %s\n%s", finding->program,
                fuzz_kind_names[fuzz_kind_of(r->set, finding->program)], finding->device, text_data(&finding->what),
                text_data(&finding->ir));
    text_printf(&words, "repeat: ckl fuzz --seed %" PRIu64 " --program %" PRId64, r->set.seed, finding->program);
    if (r->set.kind != FUZZ_KINDS_ALL)
        text_printf(&words, " --kind %s", fuzz_kind_names[r->set.kind]);
    text_printf(&words, "%s%s\n\n", r->device ? " --device " : "", r->device ? r->device : "");
    fwrite(words.data, 1, words.length, stdout);
    fflush(stdout);
    if (r->folder)
        write_file(r, finding, &words);
    text_free(&words);
}

static bool may_shorten(void *user)
{
    const crew *c = user;
    return __atomic_fetch_add(&c->shared->shortened, 1, __ATOMIC_RELAXED) < c->request->shorten_max;
}

/* A worker */

static double seconds_since(double begin)
{
    return clock_seconds() - begin;
}

static bool is_compared(fuzz_devices devices, ir_target target)
{
    bool compared = false;
    for (int i = 1; i < devices.count; i++)
        compared |= fuzz_takes(devices.all[i], target);
    return compared;
}

/* Checks programs and adds them to the sums; false: a device is lost, and a batch was not checked. */
static bool check(crew *c, int worker, fuzz_devices devices, int64_t first, int count)
{
    const fuzz_request *r = c->request;
    fuzz_sums *sums = &c->shared->sums;
    c->shared->at[worker] = first;
    alarm(BATCH_SECONDS_MAX); // a kernel that never ends ends the process
    int found = fuzz_check(devices, r->set, first, count, &(fuzz_listener){ report, may_shorten, c });
    alarm(0);
    if (found == FUZZ_LOST)
        return false;
    c->shared->at[worker] = -1;
    __atomic_fetch_add(&sums->programs[fuzz_kind_of(r->set, first)], count, __ATOMIC_RELAXED);
    __atomic_fetch_add(&sums->differences, found, __ATOMIC_RELAXED);
    if (!is_compared(devices, fuzz_target_of(r->set, first)))
        __atomic_fetch_add(&sums->alone, count, __ATOMIC_RELAXED);
    return true;
}

/* The batches that nobody has taken. */
static int work_on_batches(crew *c, int worker, fuzz_devices devices)
{
    const fuzz_request *r = c->request;
    while (r->seconds_max == 0 || seconds_since(c->begin) < r->seconds_max) {
        int64_t done = __atomic_fetch_add(&c->shared->next, 1, __ATOMIC_RELAXED) * FUZZ_BATCH;
        if (done >= r->count)
            break;
        if (!check(c, worker, devices, r->first + done, (int)min_i64(FUZZ_BATCH, r->count - done)))
            return LOST;
    }
    return 0;
}

/* Programs one by one, to the end or to the one that costs the device. */
static int work_alone(crew *c, int worker, fuzz_devices devices, program_range range)
{
    for (int64_t program = range.first; program < range.end; program++) {
        check(c, worker, devices, program, 1);
        c->shared->at[worker] = program;
        if (fuzz_is_lost(devices.all[devices.count - 1]))
            return LOST;
    }
    return 0;
}

/* An empty range: batches. */
static int work(crew *c, int worker, program_range range)
{
    ckl_device *all[DEVICES_MAX];
    fuzz_devices devices = { .all = all };
    if (open_devices(c->request->device, all, &devices.count) != CKL_OK) {
        snprintf(c->shared->sentence, sizeof c->shared->sentence, "%s", ckl_error());
        return CANNOT_OPEN;
    }
    return range.end > range.first ? work_alone(c, worker, devices, range) : work_on_batches(c, worker, devices);
}

static pid_t start(crew *c, int worker, program_range range)
{
    fflush(stdout);
    c->shared->at[worker] = -1;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("CUDA_CACHE_DISABLE", "1", 1); // random kernels do not come again
        setenv("CKL_CACHE", "off", 1);
        _exit(work(c, worker, range));
    }
    return pid;
}

/* The parent */

static void report_crash(crew *c, int64_t program, int status)
{
    fuzz_finding finding = { .program = program, .device = "this program" };
    worker_print_end(status, &finding.what);
    report(c, &finding);
    text_free(&finding.what);
    c->shared->sums.differences++;
    c->shared->sums.programs[fuzz_kind_of(c->request->set, program)]++;
}

/*
 * A worker crashed or lost its device: the programs of its batch are run one by one, to name the culprit and check the
 * others. Each further crash needs a new process.
 */
static void check_one_by_one(crew *c, int worker, program_range range)
{
    while (range.first < range.end) {
        int status;
        pid_t pid = start(c, worker, range);
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
            return;
        int64_t at = c->shared->at[worker];
        if (at < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != LOST))
            return; // all were checked, or no device could be opened
        if (WIFSIGNALED(status))
            report_crash(c, at, status);
        range.first = at + 1;
    }
}

/* Takes over from a worker that has ended; true: another takes its place. */
static bool replace(crew *c, int worker, int status)
{
    bool early = WIFSIGNALED(status) || WEXITSTATUS(status) == LOST;
    int64_t first = c->shared->at[worker];
    if (early && first >= 0)
        check_one_by_one(c, worker,
                         (program_range){ first, min_i64(first + FUZZ_BATCH, c->request->first + c->request->count) });
    return early;
}

static int64_t programs_of(const fuzz_sums *sums)
{
    int64_t all = 0;
    for (int i = 0; i < FUZZ_KIND_COUNT; i++)
        all += sums->programs[i];
    return all;
}

static void wait_for_all(crew *c, int running)
{
    double told = clock_seconds();
    while (running > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        for (int i = 0; i < c->request->workers && pid > 0; i++) {
            if (c->pids[i] != pid)
                continue;
            c->pids[i] = replace(c, i, status) ? start(c, i, (program_range){ 0 }) : 0;
            running -= c->pids[i] <= 0;
        }
        if (pid == 0)
            usleep(PAUSE_US);
        if (seconds_since(told) < PROGRESS_SECONDS)
            continue;
        told = clock_seconds();
        fprintf(stderr, "%" PRId64 " programs, %" PRId64 " differences, %.0f s\n", programs_of(&c->shared->sums),
                c->shared->sums.differences, seconds_since(c->begin));
    }
}

ckl_status fuzz_run(const fuzz_request *request, fuzz_sums *sums)
{
    crew c = { .request = request, .begin = clock_seconds() };
    c.shared = mmap(NULL, sizeof *c.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c.shared == MAP_FAILED)
        FAIL(CKL_NO_MEMORY, "fuzz: no memory to share with the workers");
    int running = 0;
    if (request->count == 1)
        check_one_by_one(&c, 0, (program_range){ request->first, request->first + 1 });
    for (int i = 0; i < request->workers && request->count > 1; i++) {
        c.pids[i] = start(&c, i, (program_range){ 0 });
        running += c.pids[i] > 0;
    }
    wait_for_all(&c, running);
    *sums = c.shared->sums;
    ckl_status status = c.shared->sentence[0] ? status_fail(CKL_DEVICE_FAULT, "%s", c.shared->sentence) : CKL_OK;
    munmap(c.shared, sizeof *c.shared);
    return status;
}
