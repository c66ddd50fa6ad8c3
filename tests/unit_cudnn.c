/* unit_cudnn.c - what the peer asks cuDNN for: every configuration once, each direction's tensors at their pointers. */
#include <dlfcn.h>

#include "unit.h"
#include "bench/peers/peers.h"

enum { X, W, DY, BIAS, RESIDUAL, SCALE, Y, DX, DW, OPERANDS }; // order of the operands

static void *fake;
static ckl_device *device;
static char memory[OPERANDS][64];

static int open_fake(void **state)
{
    fake = dlopen(FAKE_CUDNN, RTLD_NOW | RTLD_LOCAL);
    setenv("CKL_CUDNN", FAKE_CUDNN, 1);
    return !fake || cudnn_peer.find() != CKL_OK || ckl_device_open("emulator:h200", &device) != CKL_OK;
}

static int close_fake(void **state)
{
    ckl_device_close(device);
    return 0;
}

static int descriptors_alive(void)
{
    int (*alive)(void);
    *(void **)&alive = dlsym(fake, "fake_cudnn_alive");
    return alive();
}

static void assert_pointer(int64_t id, int number)
{
    void *(*pointer)(int64_t id);
    *(void **)&pointer = dlsym(fake, "fake_cudnn_pointer");
    assert_ptr_equal(pointer(id), memory[number]);
}

static ckl_status prepare(const char *line, test_case *c, peer_problem **p)
{
    void *pointers[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        pointers[i] = memory[i];
    assert_ok(case_parse(line, c));
    return cudnn_peer.prepare(c, device, pointers, p);
}

/* Those of the heuristics in their order, engine 0 of mode B no second time, then engine 1 without its knob. */
TEST(every_configuration)
{
    static const char *const expected[] = { "cudnn 9 by=a engine=1 knob2=7", "cudnn 9 by=a engine=0",
                                            "cudnn 9 by=fallback engine=2", "cudnn 9 by=engines engine=1" };
    test_case c;
    peer_problem *p;
    assert_ok(prepare("conv n=2 c=8 h=8 w=8 k=8 pad=1", &c, &p));
    assert_int_equal(cudnn_peer.variants(p), 4);
    for (int i = 0; i < 4; i++) {
        text config = { 0 };
        cudnn_peer.describe(p, i, &config);
        assert_string_equal(text_data(&config), expected[i]);
        text_free(&config);
    }
    cudnn_peer.release(p);
    assert_int_equal(descriptors_alive(), 0);
    case_clear(&c);
}

TEST(directions)
{
    static const struct {
        const char *line;
        int x, w, y;
    } directions[] = { { "conv n=2 c=8 h=8 w=8 k=8 pad=1", X, W, Y },
                       { "conv n=2 c=8 h=8 w=8 k=8 pad=1 direction=data layout=nchw", DX, W, DY },
                       { "conv n=2 c=8 d=4 h=8 w=8 k=8 t=3 pad=1 direction=weight out=f32", X, DW, DY } };
    void *pointers[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        pointers[i] = memory[i];
    for (size_t i = 0; i < sizeof directions / sizeof *directions; i++) {
        test_case c;
        peer_problem *p;
        assert_ok(prepare(directions[i].line, &c, &p));
        assert_ok(cudnn_peer.run(p, 3, pointers, NULL));
        assert_pointer(1, directions[i].x);
        assert_pointer(2, directions[i].w);
        assert_pointer(3, directions[i].y);
        cudnn_peer.release(p);
        assert_int_equal(descriptors_alive(), 0);
        case_clear(&c);
    }
}

TEST(what_is_fused)
{
    test_case c;
    peer_problem *p = NULL;
    assert_fails(prepare("conv n=2 c=8 h=8 w=8 k=8 pad=1 bias=1", &c, &p), CKL_UNSUPPORTED, "the convolution alone");
    case_clear(&c);
}

RUN_TESTS(open_fake, close_fake)
