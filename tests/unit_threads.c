/*
 * unit_threads.c - eight threads on one device, the emulator and a driver without a GPU: plans of the same and of other descs,
 * one plan run by all, the one-call form, failures. `make test-full` runs it under ThreadSanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/math.h"
#include "cutekernellib/cutekernellib.h"
#include "fake_cuda.h"

enum { THREADS = 8, ROUNDS = 6, N = 300, COLS = 9000 };

/* What all threads share, and what each has. */
typedef struct crowd {
    ckl_device *device;
    bool computes; // the fake driver does not
    ckl_plan *plan;
    pthread_barrier_t start;
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

static void *work(void *argument)
{
    member *m = argument;
    crowd *all = m->all;
    note(m, ckl_stream_create(all->device, &m->stream), "stream");
    note(m, ckl_malloc(all->device, (COLS + COLS) * sizeof(float), (void **)&m->memory), "memory");
    pthread_barrier_wait(&all->start);
    write_input(m);
    for (int round = 0; round < ROUNDS && !*m->fault; round++) {
        plan_and_run(m, N + round);
        plan_and_run(m, N + ROUNDS + m->index);
        run_shared(m);
        run_once(m, COLS);
        run_once(m, N + m->index);
        fail_once(m);
    }
    ckl_free(all->device, m->memory);
    ckl_stream_destroy(all->device, m->stream);
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

static void share_device(const char *id, bool computes)
{
    crowd all = { .computes = computes };
    ckl_add_desc desc = { .n = N, .dtype = CKL_F32 };
    assert_int_equal(ckl_device_open(id, &all.device), CKL_OK);
    assert_int_equal(ckl_add_plan(all.device, &desc, &all.plan), CKL_OK);
    gather(&all, work);
    ckl_plan_free(all.plan);
    ckl_device_close(all.device);
}

/* Each thread with a device of its own: caches are the process's, and closing one device must not touch another's plans. */
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

static void test_emulator(void **state)
{
    (void)state;
    share_device("emulator:h200", true);
}

static void test_devices(void **state)
{
    (void)state;
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

static void test_driver(void **state)
{
    (void)state;
    const fake_cuda *fake = fake_cuda_load();
    assert_non_null(fake);
    gather(&(crowd){ .device = NULL }, open_cuda);
    share_device("cuda", false);
    assert_int_equal(fake->live(), 0);
    assert_true(fake->launches() > THREADS * ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emulator),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
