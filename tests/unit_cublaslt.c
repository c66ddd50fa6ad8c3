/* unit_cublaslt.c - what the peer asks cuBLASLt for: the heuristic's algorithms, then all that take the problem. */
#include <dlfcn.h>

#include "unit.h"
#include "bench/peers/cublaslt_library.h"
#include "bench/peers/peers.h"

static void *fake;
static ckl_device *device;
static check k;
static test_case c;

static int open_problem(void **state)
{
    fake = dlopen(FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
    setenv("CKL_CUBLASLT", FAKE_CUBLASLT, 1);
    return !fake || cublaslt_peer.find() != CKL_OK || ckl_device_open("emulator:h200", &device) != CKL_OK ||
           case_parse("gemm m=64 n=64 k=64", &c) != CKL_OK || check_open(&c, device, NULL, &k) != CKL_OK;
}

static int close_problem(void **state)
{
    check_close(&k);
    case_clear(&c);
    ckl_device_close(device);
    return 0;
}

static peer_problem *prepare(int tiles)
{
    peer_problem *p;
    void (*set_tiles)(int);
    *(void **)&set_tiles = dlsym(fake, "fake_cublaslt_tiles");
    set_tiles(tiles);
    assert_ok(cublaslt_peer.prepare(&c, device, k.set.pointer, &p));
    return p;
}

static void assert_described(const peer_problem *p, int variant, const char *expected)
{
    text config = { 0 };
    cublaslt_peer.describe(p, variant, &config);
    assert_string_equal(text_data(&config), expected);
    text_free(&config);
}

/*
 * First the family that the heuristic named, which has no lists: six cluster shapes; then tile 1 in six, tile 2 in two,
 * tile 3 not at all. The one that asks for more alignment than the pointers have is left out.
 */
TEST(all_algorithms)
{
    peer_problem *p = prepare(3);
    assert_int_equal(cublaslt_peer.variants(p), 2 + 6 + 2 + 6);
    assert_described(p, 1, "cublaslt 1 heuristic=1 algo=2 tile=1 stages=0 cluster=0");
    assert_described(p, 2, "cublaslt 1 found=0 algo=2 tile=0 stages=0 cluster=0");
    assert_described(p, 7, "cublaslt 1 found=5 algo=2 tile=0 stages=0 cluster=6");
    assert_described(p, 8, "cublaslt 1 found=6 algo=1 tile=1 stages=0 cluster=0");
    assert_described(p, 15, "cublaslt 1 found=13 algo=1 tile=2 stages=0 cluster=2");
    const lt_algo *(*last)(void);
    *(void **)&last = dlsym(fake, "fake_cublaslt_last");
    assert_ok(cublaslt_peer.run(p, 15, k.set.pointer, NULL));
    assert_true(last()->data[0] == 1 && last()->data[1] == 2 && last()->data[3] == 2);
    cublaslt_peer.release(p);
}

/* Of more than there is room for, some of all. */
TEST(too_many)
{
    peer_problem *p = prepare(4000);
    int count = cublaslt_peer.variants(p), late = 0;
    assert_true(count > PEER_VARIANTS_MAX / 2 && count <= PEER_VARIANTS_MAX);
    for (int i = 2; i < count; i++) {
        text config = { 0 };
        cublaslt_peer.describe(p, i, &config);
        const char *tile = strstr(text_data(&config), "tile=");
        late += strtol(tile + 5, NULL, 10) > 2000;
        text_free(&config);
    }
    assert_true(late > count / 3 && late < count * 2 / 3);
    cublaslt_peer.release(p);
}

/* A type that the peer does not know must not be taken for another one: its elements may be larger. */
TEST(types)
{
    test_case of_integers, of_bytes;
    peer_problem *p = NULL;
    assert_ok(case_parse("gemm m=64 n=64 k=64 a=i8", &of_integers));
    assert_fails(cublaslt_peer.prepare(&of_integers, device, k.set.pointer, &p), CKL_UNSUPPORTED, "products with i8");
    assert_ok(case_parse("gemm m=64 n=64 k=64 a=e4m3", &of_bytes));
    assert_ok(cublaslt_peer.prepare(&of_bytes, device, k.set.pointer, &p));
    cublaslt_peer.release(p);
    case_clear(&of_integers);
    case_clear(&of_bytes);
}

RUN_TESTS(open_problem, close_problem)
