/*
 * unit_faults.c - faults below the library: memory of the host that runs out at each allocation in turn, and a driver
 * each of whose calls fails in turn. Every failure is a status with a sentence, leaks nothing, and the next attempt
 * works.
 *
 * The program is linked with its own malloc(), calloc(), realloc(), aligned_alloc(), strdup() and free() around those
 * of the system, for the library's calls and its own; those of other libraries are not seen.
 */
#define _GNU_SOURCE // nftw, for temporary_folder.h

#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "cutekernellib/cutekernellib.h"
#include "device/device.h"
#include "device/nvml.h"
#include "fake_cuda.h"
#include "temporary_folder.h"

/* Allocations */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *string);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *string);
void __wrap_free(void *memory);

static int allocations, fail_at, live_blocks; // fail_at 0: never

static bool runs_out(void)
{
    return __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED) == fail_at;
}

static void *counted(void *memory)
{
    __atomic_fetch_add(&live_blocks, memory != NULL, __ATOMIC_RELAXED);
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return runs_out() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return runs_out() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    if (runs_out())
        return NULL;
    return memory ? __real_realloc(memory, bytes) : counted(__real_malloc(bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return runs_out() ? NULL : counted(__real_aligned_alloc(alignment, bytes));
}

char *__wrap_strdup(const char *string)
{
    return runs_out() ? NULL : counted(__real_strdup(string));
}

void __wrap_free(void *memory)
{
    __atomic_fetch_sub(&live_blocks, memory != NULL, __ATOMIC_RELAXED);
    __real_free(memory);
}

static void fail_allocation(int number)
{
    allocations = 0;
    fail_at = number;
}

enum { WORKS_ONE_IN = 8 }; // failures, after which the same is seen to work: to save time

/* What is tried under faults: from opening a device to closing it. */

static const char *device_id;

/* Two operators, one with a workspace and several kernels; planned, run, and run by the one-call form. */
static ckl_status run_operators(ckl_device *device, void *memory, ckl_stream stream)
{
    enum { ROWS = 2, COLS = 9000 };
    float *x = memory, *y = x + ROWS * COLS;
    ckl_reduce_desc sum = {
        .dtype = CKL_F32, .op = CKL_REDUCE_SUM, .rank = 2, .shape = { ROWS, COLS }, .axes = 1 << 1
    };
    ckl_reduce_args sum_args = { .x = x, .y = y };
    ckl_gemm_desc gemm = { .m = 64, .n = 64, .k = 64, .a = CKL_F16 };
    ckl_gemm_args gemm_args = { .a = x, .b = x + 4096, .d = y };
    ckl_plan *plan = NULL;
    ckl_status status = ckl_reduce_plan(device, &sum, &plan);
    if (status == CKL_OK)
        status = ckl_reduce_run(plan, &sum_args, stream);
    if (status == CKL_OK)
        status = ckl_stream_synchronize(device, stream);
    ckl_plan_free(plan);
    if (status == CKL_OK)
        status = ckl_reduce(device, &sum, &sum_args, stream);
    if (status == CKL_OK)
        status = ckl_gemm(device, &gemm, &gemm_args, stream);
    return status;
}

static ckl_status use_memory(ckl_device *device)
{
    static unsigned char host[1 << 17];
    ckl_stream stream = NULL;
    void *memory = NULL;
    ckl_status status = ckl_stream_create(device, &stream);
    if (status == CKL_OK)
        status = ckl_malloc(device, sizeof host, &memory);
    if (status == CKL_OK)
        status = ckl_copy_in(device, memory, host, sizeof host, stream);
    if (status == CKL_OK)
        status = run_operators(device, memory, stream);
    if (status == CKL_OK)
        status = ckl_copy_out(device, host, memory, sizeof host, stream);
    ckl_free(device, memory);
    ckl_stream_destroy(device, stream);
    return status;
}

static ckl_status use_device(void)
{
    ckl_device *device = NULL;
    ckl_status status = ckl_device_open(device_id, &device);
    if (status == CKL_OK)
        status = use_memory(device);
    ckl_device_close(device);
    return status;
}

static void assert_works(void)
{
    ckl_status status = use_device();
    assert_ok(status);
}

static const fake_cuda *fake;

/* A failure in its words, nothing kept, and the next attempt works. */
static void assert_clean_failure(ckl_status status, int number, int blocks)
{
    if (status == CKL_INVALID || status == CKL_INTERNAL || !*ckl_error())
        fail_msg("fault %d: %s \"%s\"", number, ckl_status_name(status), ckl_error());
    if (live_blocks != blocks || (fake && fake->live()))
        fail_msg("fault %d: %d blocks and %d objects of the driver are left; %s", number, live_blocks - blocks,
                 fake ? fake->live() : 0, ckl_error());
}

/* Each allocation in turn, or one in five of them, until so many succeed that none fails. */
static void check_allocations(void)
{
    const int step = getenv("CKL_TEST_FULL") ? 1 : 5;
    assert_works();
    int blocks = live_blocks, failures = 0;
    for (int number = 1;; number += step) {
        fail_allocation(number);
        ckl_status status = use_device();
        bool reached = allocations >= number;
        fail_allocation(0);
        if (status == CKL_OK && !reached)
            break;
        if (status == CKL_OK)
            continue; // a plan that is not kept for lack of memory is still run
        failures++;
        assert_int_equal(status, CKL_NO_MEMORY);
        assert_clean_failure(status, number, blocks);
    }
    assert_true(failures > 10);
    assert_works();
    assert_int_equal(live_blocks, blocks);
}

/* A driver is loaded once in a process: each of these is tried in a child. */
static int child_of(const char *function, const char *words)
{
    if (function)
        fake->fail_named(function, 100);
    ckl_device *device = NULL;
    ckl_status status = ckl_device_open("cuda", &device);
    bool refused = status == CKL_DEVICE_FAULT && strstr(ckl_error(), words) && !device;
    status = ckl_device_open("cuda", &device); // and again, in the same words
    refused &= status == CKL_DEVICE_FAULT && strstr(ckl_error(), words) && !device;
    if (!refused)
        fprintf(stderr, "status %d: %s\n", (int)status, ckl_error());
    bool other = ckl_device_open(NULL, &device) == CKL_OK && ckl_device_properties(device)->emulated;
    ckl_device_close(device);
    return refused && other ? 0 : 1;
}

static void assert_refused(const char *function, const char *words)
{
    pid_t child = fork();
    if (child == 0)
        _exit(child_of(function, words));
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Runs first: the driver is not loaded yet. */
TEST(driver_refuses)
{
    assert_refused("cuInit", "finds no usable GPU: cuInit: CUDA_ERROR_OF_SOME_KIND");
    assert_refused("cuDeviceGetCount", "cuDeviceGetCount");
}

TEST(allocations_cuda)
{
    device_id = "cuda";
    check_allocations();
}

TEST(allocations_emulator)
{
    device_id = "emulator:h200";
    check_allocations();
}

/* Each call of the driver in turn. A lost context is for ever, but here a reset revives it. */
static void check_calls(cu_result result, const char *words)
{
    device_id = "cuda";
    assert_works();
    int blocks = live_blocks, calls;
    fake->reset();
    assert_works();
    calls = fake->calls();
    assert_true(calls > 30);
    for (int number = 1; number <= calls; number++) {
        fake->reset();
        fake->fail_call(number, result);
        ckl_status status = use_device();
        fake->reset();
        if (status != CKL_OK && !strstr(ckl_error(), words) && !strstr(ckl_error(), "cuDeviceGetCount"))
            fail_msg("call %d: \"%s\" has no \"%s\"", number, ckl_error(), words);
        if (status != CKL_OK)
            assert_clean_failure(status, number, blocks);
        assert_int_equal(fake->live(), 0);
        assert_int_equal(live_blocks, blocks);
        if (number % WORKS_ONE_IN == 0 || number == calls)
            assert_works();
    }
}

TEST(calls_fail)
{
    check_calls(500, "CUDA_ERROR_OF_SOME_KIND");
}

/* The same where cubins are kept: a failure costs at most the entry. */
TEST(with_cache)
{
    temporary_folder folder;
    assert_int_equal(temporary_folder_make(&folder), 0);
    setenv("CKL_CACHE", folder.path, 1);
    device_id = "cuda";
    check_allocations();
    check_calls(500, "CUDA_ERROR_OF_SOME_KIND");
    setenv("CKL_CACHE", "off", 1);
    assert_int_equal(temporary_folder_remove(&folder), 0);
}

TEST(device_memory_runs_out)
{
    check_calls(FAKE_OUT_OF_MEMORY, "");
}

TEST(context_lost)
{
    check_calls(FAKE_LAUNCH_FAILED, "");
}

TEST(launch_fails)
{
    device_id = "cuda";
    fake->reset();
    fake->fail_named("cuLaunchKernelEx", FAKE_LAUNCH_FAILED);
    assert_fails(use_device(), CKL_DEVICE_FAULT, "kernel reduce_");
    assert_says(ckl_error(), "the context is lost, this process cannot use the GPU any more");
    fake->reset();
    assert_works();
}

/* What the driver's compiler refuses is our bug, and no fault of the GPU: a suite of `ckl bench` goes on behind it. */
TEST(ptx_is_refused)
{
    device_id = "cuda";
    fake->reset();
    fake->fail_named("cuLibraryGetModule", FAKE_INVALID_PTX);
    assert_fails(use_device(), CKL_INTERNAL, "kernel ");
    fake->reset();
    assert_works();
}

/* Capture of a stream that waits for the default one, in the mode that forbids most: the driver's default. */
TEST(planning_in_capture)
{
    enum { GLOBAL = 0 };
    ckl_device *device = NULL;
    ckl_stream stream = NULL;
    void *memory = NULL;
    cu_graph graph = NULL;
    fake->reset();
    assert_ok(ckl_device_open("cuda", &device));
    assert_int_equal(cuda.cuStreamCreate(&stream, 0), 0);
    assert_ok(ckl_malloc(device, 1 << 19, &memory));

    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, GLOBAL), 0);
    if (run_operators(device, memory, NULL) == CKL_OK) // the default stream cannot be used now, and is refused
        fail_msg("the default stream was used");
    assert_fails(ckl_stream_synchronize(device, stream), CKL_INVALID, "the stream is being captured");
    cuda.cuStreamEndCapture(stream, &graph);

    assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, GLOBAL), 0);
    ckl_gemm_desc gemm = { .m = 128, .n = 64, .k = 64, .a = CKL_F16 };
    ckl_gemm_args args = { .a = memory, .b = memory, .d = (char *)memory + (1 << 18) };
    ckl_reduce_desc sum = { .dtype = CKL_F32, .op = CKL_REDUCE_SUM, .rank = 1, .shape = { 60000 }, .axes = 1 << 0 };
    ckl_reduce_args sum_args = { .x = memory, .y = (char *)memory + (1 << 18) };
    if (ckl_gemm(device, &gemm, &args, stream) || ckl_reduce(device, &sum, &sum_args, stream))
        fail_msg("%s", ckl_error());
    void *late = NULL;
    assert_ok(ckl_malloc(device, 64, &late));
    ckl_free(device, late);
    assert_int_equal(ckl_copy_in(device, memory, &gemm, sizeof gemm, stream), CKL_INVALID);
    assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), 0);
    assert_non_null(graph);
    assert_int_equal(fake->launches(), 0);

    cuda.cuGraphDestroy(graph);
    ckl_free(device, memory);
    ckl_stream_destroy(device, stream);
    ckl_device_close(device);
    assert_int_equal(fake->live(), 0);
}

/* NVML tells the power of this moment beside that of the last second. */
TEST(readings)
{
    nvml_reading now = { 0 };
    assert_non_null(dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL)); // what the library finds by that name from now on
    fake->reset();
    assert_true(nvml_sample(0, &now));
    assert_true(now.clock_sm_mhz == 1500 && now.power_w == 650 && now.temperature_c == 50);
    assert_true(now.processes == 2 && now.busy_percent == 40);
    assert_string_equal(nvml_clock_reason(__builtin_ctzll(now.clock_reasons)), "power cap");
}

/* Benches forbid the overlap of launches for a while. */
TEST(overlap_is_allowed)
{
    ckl_device *device = NULL;
    void *memory = NULL;
    fake->reset();
    assert_ok(ckl_device_open("cuda", &device));
    assert_ok(ckl_malloc(device, 1 << 14, &memory));
    const ckl_add_desc add = { .n = 1024, .dtype = CKL_F32 };
    const ckl_add_args args = { .a = memory, .b = memory, .y = (char *)memory + (1 << 13) };
    static const bool allowed[] = { true, false, true };
    for (int i = 0, early = 0; i < COUNT_OF(allowed); i++) {
        device->ops->allow_overlap(device, allowed[i]);
        assert_ok(ckl_add(device, &add, &args, NULL));
        early += allowed[i];
        assert_int_equal(fake->launches(), i + 1);
        assert_int_equal(fake->early(), early);
    }
    ckl_free(device, memory);
    ckl_device_close(device);
}

int main(void)
{
    fake = fake_cuda_load();
    return fake ? run_enlisted(NULL, NULL) : 1;
}
