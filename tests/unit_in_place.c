/*
 * unit_in_place.c - outputs in place of inputs. Every row kernel, at every length that changes how it holds a row, must
 * give the same bits in place as apart: in the usual order of warps, and where some warps run ahead and copies arrive
 * at once.
 */
#include "unit.h"
#include "lab/check.h"
#include "emulated_device.h"

enum { PLACES_MAX = 2 };

/* A problem, and which outputs take the place of which inputs. */
typedef struct in_place {
    const char *line;
    const char *places[PLACES_MAX][2]; // output, input
} in_place;

/* Rings of less than two rows, for short ones. */
#define RING "config='threads=32 row_threads=32 cluster=2 vec=4 steps=2 stages=3 residence=ring exact=0"

static const in_place problems[] = {
    { "elementwise expr=gelu(a*x+b) shape=3001", { { "y", "x" } } },
    { "rope tokens=20 heads=5 k_heads=2 head_dim=96 rotary_dim=64", { { "yq", "q" }, { "yk", "k" } } },
    { "softmax shape=9x1000", { { "y", "x" } } },
    { "softmax shape=5x20000 dtype=bf16", { { "y", "x" } } },
    { "softmax shape=9x1000 impl=pipeline " RING "'", { { "y", "x" } } },
    { "softmax shape=3x40001", { { "y", "x" } } },
    { "softmax shape=300x24 axis=0", { { "y", "x" } } },
    { "softmax shape=16x64x64 axis=1 dtype=bf16 impl=column_held config='dtype=bf16 threads=64 lanes=8 vec=8 steps=1 "
      "tiles=2'",
      { { "y", "x" } } },
    { "softmax shape=3x301x77 axis=1 dtype=bf16 direction=backward fill=integers impl=column_held config='dtype=bf16 "
      "direction=backward threads=128 lanes=16 vec=8 steps=2 tiles=3 ragged=1'", // by another kernel: sums are exact
      { { "dx", "y" } } },
    { "softmax shape=3x301x77 axis=1 direction=backward fill=integers impl=column config='direction=backward "
      "threads=256 lanes=16 cluster=4 vec=1 steps=5'",
      { { "dx", "dy" } } },
    { "softmax shape=9x1000 direction=backward", { { "dx", "dy" } } },
    { "softmax shape=5x20000 direction=backward", { { "dx", "y" } } },
    { "softmax shape=9x1000 direction=backward impl=pipeline " RING "'", { { "dx", "dy" } } },
    { "layernorm rows=9 cols=1000 residual=1", { { "sum", "residual" }, { "y", "x" } } },
    { "layernorm rows=5 cols=20000 residual=1", { { "sum", "residual" }, { "y", "x" } } },
    { "layernorm rows=5 cols=20000 residual=1", { { "sum", "x" }, { "y", "residual" } } },
    { "layernorm rows=9 cols=1000 impl=forward " RING "'", { { "y", "x" } } },
    { "layernorm rows=9 cols=1000 residual=1 impl=forward " RING " residual=1'",
      { { "sum", "x" }, { "y", "residual" } } },
    { "layernorm rows=20 cols=8192 residual=1 impl=forward config='threads=32 row_threads=32 cluster=16 vec=4 steps=2 "
      "stages=24 residence=ring lookahead=1 residual=1'",
      { { "sum", "residual" }, { "y", "x" } } },
    { "rmsnorm rows=2 cols=300 residual=1 impl=forward config='threads=128 row_threads=128 steps=1 tiled=1'",
      { { "sum", "residual" } } },
    { "layernorm rows=2 cols=3000 residual=1 impl=forward config='threads=512 row_threads=512 steps=1 tiled=1'",
      { { "sum", "x" }, { "y", "residual" } } },
    { "rmsnorm rows=1 cols=400001 residual=1", { { "sum", "residual" }, { "y", "x" } } },
    { "layernorm rows=9 cols=1000 direction=backward", { { "dx", "dy" } } },
    { "layernorm rows=40 cols=3000 direction=backward residual=1", { { "dx", "dsum" } } },
    { "layernorm rows=2 cols=140000 direction=backward", { { "dx", "x" } } },
    { "rmsnorm rows=5 cols=20000 dtype=bf16 direction=backward", { { "dx", "dy" } } },
    { "groupnorm n=2 c=32 h=9 w=9 groups=4", { { "y", "x" } } },
    { "groupnorm n=2 c=32 h=9 w=9 groups=4 layout=nhwc direction=backward", { { "dx", "dy" } } },
    { "groupnorm n=2 c=32 h=16 w=16 groups=8 impl=forward_split config='threads=64 column_threads=16 steps=1'",
      { { "y", "x" } } },
    { "groupnorm n=2 c=32 h=16 w=16 groups=8 direction=backward impl=backward_split config='threads=64 "
      "column_threads=16 steps=1'",
      { { "dx", "x" } } },
    { "groupnorm n=2 c=32 h=16 w=16 groups=8 direction=backward impl=backward_held config='channels=4 threads=64 "
      "column_threads=16 steps=1'",
      { { "dx", "dy" } } },
    { "conv n=3 c=32 h=9 w=7 k=136 pad=1 residual=1 bias=1 activation=relu", { { "y", "residual" } } },
    { "conv n=3 c=16 h=9 w=7 k=24 pad=1 residual=1 layout=nchw", { { "y", "residual" } } },
    { "conv n=2 c=3 h=5 w=5 k=5 residual=1 dtype=f32", { { "y", "residual" } } },
    { "crossentropy rows=8 cols=1000 direction=backward", { { "dx", "x" } } },
    { "softmax shape=9x77", { { "y", "x" } } },
    { "softmax shape=9x1001 dtype=f16 misalign=1", { { "y", "x" } } },
    { "softmax shape=9x1001 direction=backward", { { "dx", "dy" } } },
    { "softmax shape=5x20001 dtype=bf16", { { "y", "x" } } },
    { "softmax shape=5x20001 direction=backward misalign=1", { { "dx", "y" } } },
    { "layernorm rows=9 cols=1001 residual=1", { { "sum", "residual" }, { "y", "x" } } },
    { "layernorm rows=5 cols=20001 residual=1", { { "sum", "x" }, { "y", "residual" } } },
    { "crossentropy rows=8 cols=1001 direction=backward", { { "dx", "x" } } },
};

static int index_of(const check *k, const char *name)
{
    for (int i = 0; i < k->images.count; i++)
        if (k->images.each[i].info.name && strcmp(k->images.each[i].info.name, name) == 0)
            return i;
    fail_msg("%s has no %s", k->c->test->op->name, name);
    return -1;
}

static size_t bytes_of(const operand_image *o)
{
    return (size_t)o->span * ckl_dtype_bytes(o->info.dtype);
}

/* The outputs apart, then in place: device memory of the emulator is host memory. */
static void compare(check *k, const in_place *p)
{
    void *apart[PLACES_MAX];
    int count = 0;
    for (; count < PLACES_MAX && p->places[count][0]; count++) {
        int out = index_of(k, p->places[count][0]);
        apart[count] = malloc(bytes_of(&k->images.each[out]));
        assert_non_null(apart[count]);
        memcpy(apart[count], k->set.pointer[out], bytes_of(&k->images.each[out]));
        k->set.pointer[out] = k->set.pointer[index_of(k, p->places[count][1])];
    }
    if (check_enqueue(k) != CKL_OK || ckl_stream_synchronize(device, k->stream) != CKL_OK)
        fail_msg("%s: %s", p->line, ckl_error());
    for (int i = 0; i < count; i++) {
        int out = index_of(k, p->places[i][0]);
        if (memcmp(apart[i], k->set.pointer[out], bytes_of(&k->images.each[out])))
            fail_msg("%s: %s in place of %s differs", p->line, p->places[i][0], p->places[i][1]);
        free(apart[i]);
    }
}

static void test_in_place(void **state)
{
    const in_place *p = *state;
    test_case c;
    check k;
    check_result result;
    assert_ok(case_parse(p->line, &c));
    if (check_open(&c, device, NULL, &k) != CKL_OK || check_run(&k, &result) != CKL_OK || !result.passed)
        fail_msg("%s: %s", p->line, *result.fault ? result.fault : ckl_error());
    compare(&k, p);
    check_close(&k);
    case_clear(&c);
}

static int open_device_of_haste(void **state)
{
    setenv("CKL_EMULATOR", "schedule=random completion=eager seed=1", 1);
    return open_device(state);
}

/* Every problem in both orders takes seconds: a quick run has every other one in each. */
static int run_group(int first, CMFixtureFunction open)
{
    const bool full = getenv("CKL_TEST_FULL") != NULL;
    enlisted_count = 0;
    for (int i = full ? 0 : first; i < COUNT_OF(problems); i += full ? 1 : 2)
        enlist(problems[i].line, test_in_place, NULL, NULL, &problems[i]);
    return run_enlisted(open, close_device);
}

int main(void)
{
    return run_group(0, open_device) + run_group(1, open_device_of_haste);
}
