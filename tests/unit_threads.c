/*
 * unit_threads.c - eight threads on one device, the emulator and a driver without a GPU: plans of the same and of other
 * descs, one plan run by all, the one-call form, failures; and on two GPUs of such a driver in turn. `make test-full`
 * runs it under ThreadSanitizer.
 */
#include <pthread.h>

#include "unit.h"
#include "base/math.h"
#include "cutekernellib/cutekernellib.h"
#include "device/cuda_driver.h"
#include "fake_cuda.h"

enum { THREADS = 8, ROUNDS = 6, N = 300, COLS = 9000 };

/* What all threads share, and what each has. */
typedef struct crowd {
    ckl_device *device;
    bool computes; // the fake driver does not
    ckl_plan *plan;
    pthread_barrier_t start;
    struct crowd *gpus; // each with its device and plan; NULL: one for all
} crowd;

typedef struct member {
    crowd *all;
    int index;
    ckl_stream stream;
    float *memory;   // of the device
    char fault[512]; // "": none
} member;

static void note(member *m, ckl_status status, const char *what)
{
    if (status != CKL_OK && !*m->fault)
        snprintf(m->fault, sizeof m->fault, "thread %d, %s: %.300s", m->index, what, ckl_error());
}

static void demand(member *m, bool good, const char *what)
{
    if (!good && !*m->fault)
        snprintf(m->fault, sizeof m->fault, "thread %d, %s", m->index, what);
}

/* x[i] = the thread's number + 1, behind it room for y. */
static void write_input(member *m)
{
    static _Thread_local float x[COLS];
    for (int i = 0; i < COLS; i++)
        x[i] = (float)(m->index + 1);
    note(m, ckl_copy_in(m->all->device, m->memory, x, sizeof x, m->stream), "copy in");
}

static void expect_first(member *m, float wanted, const char *what)
{
    float got = 0;
    note(m, ckl_copy_out(m->all->device, &got, m->memory + COLS, sizeof got, m->stream), what);
    demand(m, !m->all->computes || got == wanted, what);
}

/* The same desc in every thread, or one of the thread's own. */
static void plan_and_run(member *m, int64_t n)
{
    const float two = 2;
    ckl_add_desc desc = { .n = n, .dtype = CKL_F32 };
    ckl_add_args args = { .a = m->memory, .b = m->memory, .y = m->memory + COLS, .alpha = &two };
    ckl_plan *plan = NULL;
    note(m, ckl_add_plan(m->all->device, &desc, &plan), "plan");
    if (plan)
        note(m, ckl_add_run(plan, &args, m->stream), "run");
    expect_first(m, 3 * (float)(m->index + 1), "sum of a plan");
    ckl_plan_free(plan);
}

static void run_shared(member *m)
{
    ckl_add_args args = { .a = m->memory, .b = m->memory, .y = m->memory + COLS };
    note(m, ckl_add_run(m->all->plan, &args, m->stream), "run of the shared plan");
    expect_first(m, 2 * (float)(m->index + 1), "sum of the shared plan");
}

/* With a workspace: plans of the cache are per stream. */
static void run_once(member *m, int64_t n)
{
    ckl_reduce_desc desc = { .op = CKL_REDUCE_SUM, .dtype = CKL_F32, .rank = 1, .shape = { n } };
    ckl_reduce_args args = { .x = m->memory, .y = m->memory + COLS };
    note(m, ckl_reduce(m->all->device, &desc, &args, m->stream), "one call");
    expect_first(m, (float)n * (float)(m->index + 1), "sum of one call");
}

/* Each thread reads its own failure, whatever the others do. */
static void fail_once(member *m)
{
    char wanted[64];
    ckl_plan *plan = NULL;
    ckl_add_desc desc = { .n = -1 - m->index, .dtype = CKL_F32 };
    snprintf(wanted, sizeof wanted, "n=%d is negative", -1 - m->index);
    demand(m, ckl_add_plan(m->all->device, &desc, &plan) == CKL_INVALID && !plan, "a negative size is taken");
    demand(m, strstr(ckl_error(), wanted) != NULL, "the sentence is another thread's");
}

static void begin(member *m)
{
    note(m, ckl_stream_create(m->all->device, &m->stream), "stream");
    note(m, ckl_malloc(m->all->device, (COLS + COLS) * sizeof(float), (void **)&m->memory), "memory");
    write_input(m);
}

static void end(member *m)
{
    ckl_free(m->all->device, m->memory);
    ckl_stream_destroy(m->all->device, m->stream);
}

static void work_once(member *m, int round)
{
    plan_and_run(m, N + round);
    plan_and_run(m, N + ROUNDS + m->index);
    run_shared(m);
    run_once(m, COLS);
    run_once(m, N + m->index);
    fail_once(m);
}

static void *work(void *argument)
{
    member *m = argument;
    pthread_barrier_wait(&m->all->start);
    begin(m);
    for (int round = 0; round < ROUNDS && !*m->fault; round++)
        work_once(m, round);
    end(m);
    return NULL;
}

/* A thread takes the GPUs in turn, and keeps the context that it had before. */
static void *work_in_turn(void *argument)
{
    const cu_context before = (cu_context)(uintptr_t)1;
    cu_context now = NULL;
    member *m = argument, on[FAKE_GPUS];
    pthread_barrier_wait(&m->all->start);
    cuda.cuCtxSetCurrent(before);
    for (int i = 0; i < FAKE_GPUS; i++) {
        on[i] = (member){ .all = &m->all->gpus[i], .index = m->index };
        begin(&on[i]);
    }
    for (int round = 0; round < FAKE_GPUS * ROUNDS && !*m->fault; round++) {
        member *turn = &on[(round + m->index) % FAKE_GPUS];
        work_once(turn, round / FAKE_GPUS);
        cuda.cuCtxGetCurrent(&now);
        demand(turn, now == before, "the context is another one");
        strcpy(m->fault, turn->fault);
    }
    for (int i = 0; i < FAKE_GPUS; i++)
        end(&on[i]);
    cuda.cuCtxSetCurrent(NULL);
    return NULL;
}

static void gather(crowd *all, void *(*function)(void *))
{
    pthread_t threads[THREADS];
    member members[THREADS];
    pthread_barrier_init(&all->start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        members[i] = (member){ .all = all, .index = i };
        assert_int_equal(pthread_create(&threads[i], NULL, function, &members[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all->start);
    for (int i = 0; i < THREADS; i++)
        if (*members[i].fault)
            fail_msg("%s", members[i].fault);
}

static void open(const char *id, crowd *all)
{
    ckl_add_desc desc = { .n = N, .dtype = CKL_F32 };
    assert_ok(ckl_device_open(id, &all->device));
    assert_ok(ckl_add_plan(all->device, &desc, &all->plan));
}

static void leave(crowd *all)
{
    ckl_plan_free(all->plan);
    ckl_device_close(all->device);
}

static void share_device(const char *id, bool computes)
{
    crowd all = { .computes = computes };
    open(id, &all);
    gather(&all, work);
    leave(&all);
}

/* Each thread with a device of its own: caches are the process's, and closing one device leaves another's plans. */
static void *work_alone(void *argument)
{
    member *m = argument;
    crowd own = { .computes = true };
    crowd *all = m->all;
    pthread_barrier_wait(&all->start);
    for (int round = 0; round < 2 && !*m->fault; round++) {
        ckl_status status = ckl_device_open("emulator:h200", &own.device);
        note(m, status, "open");
        if (status != CKL_OK)
            return NULL;
        m->all = &own;
        note(m, ckl_malloc(own.device, (COLS + COLS) * sizeof(float), (void **)&m->memory), "memory");
        write_input(m);
        plan_and_run(m, N);
        run_once(m, COLS);
        ckl_free(own.device, m->memory);
        ckl_device_close(own.device);
    }
    return NULL;
}

TEST(emulator)
{
    share_device("emulator:h200", true);
}

TEST(devices)
{
    gather(&(crowd){ .device = NULL }, work_alone);
}

/* Also loads the driver for the first time, in eight threads at once. */
static void *open_cuda(void *argument)
{
    member *m = argument;
    ckl_device *device = NULL;
    pthread_barrier_wait(&m->all->start);
    note(m, ckl_device_open("cuda", &device), "open");
    ckl_device_close(device);
    return NULL;
}

TEST(driver)
{
    const fake_cuda *fake = fake_cuda_load();
    assert_non_null(fake);
    gather(&(crowd){ .device = NULL }, open_cuda);
    share_device("cuda", false);
    assert_int_equal(fake->live(), 0);
    assert_true(fake->launches() > THREADS * ROUNDS);
}

TEST(gpus)
{
    const fake_cuda *fake = fake_cuda_load();
    assert_non_null(fake);
    crowd gpus[FAKE_GPUS] = { { .computes = false } };
    open("cuda:0", &gpus[0]);
    open("cuda:1", &gpus[1]);
    fake->reset();
    gather(&(crowd){ .gpus = gpus }, work_in_turn);
    assert_true(fake->launches_on(0) > THREADS * ROUNDS);
    assert_int_equal(fake->launches_on(1), fake->launches_on(0));
    leave(&gpus[1]);
    leave(&gpus[0]);
    assert_int_equal(fake->live(), 0);
}

RUN_TESTS(NULL, NULL)
