/*
 * unit_warm.c - kernels prepared by ckl_warm(): which are there afterwards, what is said of lines that fail, and by how
 * many threads. A driver without a GPU compiles them. `make test-full` runs it under ThreadSanitizer.
 */
#define _GNU_SOURCE // nftw, for temporary_folder.h

#include "unit.h"
#include "base/math.h"
#include "base/text.h"
#include "cutekernellib/cutekernellib.h"
#include "fake_cuda.h"
#include "plan/kernel_cache.h"
#include "temporary_folder.h"

static const fake_cuda *fake;
static ckl_device *device;

static int open_device(void **state)
{
    fake->reset();
    return ckl_device_open("cuda", &device) == CKL_OK ? 0 : -1;
}

static int close_device(void **state)
{
    ckl_device_close(device);
    return fake->live() == 0 ? 0 : -1;
}

static const char *const lines[] = { "gemm m=4096 n=4096 k=512 a=f16",
                                     "gemm m=1024 n=1024 k=512 a=bf16 bias=1",
                                     "add n=1000",
                                     "softmax shape=64x1000 dtype=bf16",
                                     "reduce shape=256x256 axes=1",
                                     "permute shape=4x64x10x12 order=0,2,3,1 dtype=f16",
                                     "layernorm rows=8 cols=1024",
                                     "elementwise expr=gelu(a*x+b) shape=64x64",
                                     "add n=1000 alpha=2",
                                     "transpose rows=0 cols=5 # nothing to do" };

static void expect_warm(int threads)
{
    assert_ok(ckl_warm(device, lines, COUNT_OF(lines), threads, NULL, NULL));
}

/* A plan of a warmed problem compiles nothing. */
TEST_BETWEEN(plans_are_ready, open_device, close_device)
{
    ckl_plan *plan = NULL;
    ckl_gemm_desc desc = { .m = 1024, .n = 1024, .k = 512, .a = CKL_BF16, .bias = true };
    expect_warm(1);
    int compiles = fake->compiles();
    assert_true(compiles >= 8);
    assert_ok(ckl_gemm_plan(device, &desc, &plan));
    ckl_plan_free(plan);
    expect_warm(3);
    assert_int_equal(fake->compiles(), compiles);
}

/* Every kernel that was compiled is counted, with the time that it took; warming again adds nothing. */
TEST_BETWEEN(kernels_are_counted, open_device, close_device)
{
    expect_warm(1);
    const kernel_cache_sums made = kernel_cache_count(device);
    assert_true(made.kernels > 0 && made.kernels <= fake->compiles() && made.sets <= made.kernels && made.seconds > 0);
    expect_warm(3);
    const kernel_cache_sums again = kernel_cache_count(device);
    assert_int_equal(again.sets, made.sets);
    assert_int_equal(again.kernels, made.kernels);
}

/* As many as one thread compiles, each once. */
TEST_BETWEEN(threads_share_the_work, open_device, close_device)
{
    const int counts[] = { 1, 2, 8, 0 };
    int compiles = 0;
    for (int i = 0; i < COUNT_OF(counts); i++) {
        close_device(NULL);
        open_device(NULL);
        expect_warm(counts[i]);
        compiles = i == 0 ? fake->compiles() : compiles;
        assert_int_equal(fake->compiles(), compiles);
    }
}

/* While a thread compiles the kernel of a line, the others go on to lines with other kernels. */
TEST_BETWEEN(threads_do_not_wait, open_device, close_device)
{
    static const char *const order[] = { "gemm a=f16",          "gemm a=f16 beta=2", "gemm a=f16 alpha=3",
                                         "gemm a=f16 seed=4",   "gemm a=bf16",       "gemm a=bf16 alpha=2",
                                         "gemm a=bf16 alpha=3", "gemm bias=1",       "gemm bias=1 alpha=2",
                                         "gemm activation=relu" };
    int delay = 100000;
    do { // on a busy host threads come late
        close_device(NULL);
        open_device(NULL);
        fake->slow_down(delay);
        assert_ok(ckl_warm(device, order, COUNT_OF(order), 4, NULL, NULL));
        delay *= 4;
    } while (fake->most_compiling() < 3 && delay <= 1600000);
    assert_in_range(fake->most_compiling(), 3, 4);
}

/* More kernels than unused ones are kept of: none leaves. */
TEST_BETWEEN(many_stay, open_device, close_device)
{
    enum { MANY = 100 };
    char texts[MANY][64];
    const char *many[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "elementwise expr=x+%d shape=64", i);
        many[i] = texts[i];
    }
    assert_ok(ckl_warm(device, many, MANY, 4, NULL, NULL));
    int compiles = fake->compiles();
    assert_true(compiles >= MANY);
    assert_ok(ckl_warm(device, many, MANY, 4, NULL, NULL));
    assert_int_equal(fake->compiles(), compiles);
}

static void note(int line, ckl_status status, const char *sentence, void *user)
{
    text_printf(user, "%d %s: %.60s\n", line, ckl_status_name(status), sentence);
}

TEST_BETWEEN(failures, open_device, close_device)
{
    static const char *const bad[] = {
        "add n=64",
        "gemm m=-1",
        "gmem m=5",
        "add n=64 color=blue",
        "",
        "add n=3",
        "gemm impl=no",
        "add n=(",
        "transpose impl=sm80 config='tile_c=48'",
        "add n=5",
    };
    text said = { 0 };
    assert_fails(ckl_warm(device, bad, COUNT_OF(bad), 3, note, &said), CKL_INVALID,
                 "warm: 7 of 10 lines failed, the first of them lines[1]: gemm: m=-1 is negative");
    assert_string_equal(text_data(&said), "1 invalid: gemm: m=-1 is negative\n"
                                          "2 invalid: unknown operator 'gmem', did you mean 'gemm'? Known operator\n"
                                          "3 invalid: add: unknown key 'color'. Known keys: n dtype rows lda ldb l\n"
                                          "4 invalid: problem line: there is none; an example is 'gemm m=512 n=512\n"
                                          "6 invalid: gemm: no implementation 'no'. There are: weights outer split\n"
                                          "7 invalid: problem line: a quote or parenthesis is not closed in 'n=('\n"
                                          "8 invalid: transpose sm80: tile_c=48 is not a power of two from 8 to 51\n");
    text_free(&said);
}

/* A driver that fails is said of every line, also of those that another thread's line shares its kernel with. */
TEST_BETWEEN(driver_fails, open_device, close_device)
{
    static const char *const same[] = { "add n=64", "add n=64", "add n=64", "add n=64" };
    text said = { 0 };
    fake->slow_down(100000);
    fake->fail_named("cuModuleGetFunction", 500);
    assert_int_equal(ckl_warm(device, same, COUNT_OF(same), 4, note, &said), CKL_DEVICE_FAULT);
    for (int i = 0; i < COUNT_OF(same); i++) {
        char start[32];
        snprintf(start, sizeof start, "%d device: add vector", i);
        assert_says(text_data(&said), start);
    }
    text_free(&said);
}

/* As docs/caching.md shows it. */

static void say(int line, ckl_status status, const char *sentence, void *user)
{
    fprintf(stderr, "line %d: %s: %s\n", line, ckl_status_name(status), sentence);
    *(int *)user += 1;
}

/* What a service will need. A line that fails does not keep the others from being prepared. */
static int prepare(ckl_device *gpu)
{
    static const char *const needed[] = {
        "gemm m=256 n=4096 k=4096 a=bf16 bias=1 activation=gelu",
        "softmax shape=32x128x128 dtype=bf16",
        "layernorm rows=256 cols=4096 dtype=bf16",
    };
    int failures = 0;
    ckl_status status = ckl_warm(gpu, needed, 3, 0, say, &failures); // on all processors
    return status == CKL_OK ? 0 : failures;
}

TEST_BETWEEN(example, open_device, close_device)
{
    assert_int_equal(prepare(device), 0);
    assert_true(fake->compiles() >= 3);
}

/* Another process finds what one has prepared, but for a gemm: linking would cost it its setmaxnreg. */
TEST_BETWEEN(kept_on_disk, open_device, close_device)
{
    temporary_folder folder;
    assert_int_equal(temporary_folder_make(&folder), 0);
    setenv("CKL_CACHE", folder.path, 1);
    for (int i = 0; i < 2; i++) {
        close_device(NULL);
        open_device(NULL);
        expect_warm(8);
        assert_true(i == 0 ? fake->compiles() >= 8 : fake->compiles() == 1);
    }
    setenv("CKL_CACHE", "off", 1);
    assert_int_equal(temporary_folder_remove(&folder), 0);
}

int main(void)
{
    fake = fake_cuda_load();
    return fake ? run_enlisted(NULL, NULL) : 1;
}
