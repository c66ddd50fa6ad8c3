/* unit_emulator_overlap.c - the checker: launches that begin while those before them in their stream may still run. */
#include "unit_emulator.h"

enum { BYTES = 256, LAUNCHES_MAX = 3 };

/*
 * Launches of two warps, a letter for each thing that these do; a digit before it leaves it to the warp of that number:
 *   W  grid_wait               w, r  a word is stored, loaded           b  a barrier
 *   ?  that nobody comes to    x, y  byte 1 of a word is stored, loaded
 *   D  launch_dependents       z     byte 0 of a word is loaded         h  a hint: a relaxed load
 * In front: ~ a kernel for sm_80, > another stream, 2 two CTAs. A launch `-` is a copy.
 */
static const struct {
    const char *launches[LAUNCHES_MAX];
    const char *fault; // NULL: there is none
} cases[] = {
    { { "w", "Wr" }, NULL },
    { { "w", "r" }, NULL }, // it begins when the other one has ended
    { { "w", "?r" }, "read of memory+0 meets the write" },
    { { "w", "?h" }, NULL },
    { { "w", "?w" }, "write of memory+0 meets the write" },
    { { "r", "?w" }, "write of memory+0 meets the read" },
    { { "2r", "?w" }, "write of memory+0 meets the read" },
    { { "r", "?r" }, NULL },
    { { "x", "?y" }, "read of memory+1 meets the write" },
    { { "x", "?z" }, NULL },
    { { "z", "?x" }, NULL },
    { { "w", "~?r" }, NULL },
    { { "w", ">?r" }, NULL },
    { { "w", "-", "?r" }, NULL },
    { { "w", "?0W1r" }, "read of memory+128 meets the write" }, // the wait of another warp
    { { "w", "?0Wb1r" }, NULL },
    { { "w", "WD", "?r" }, NULL },
    { { "w", "W", "?r" }, NULL },
    { { "w", "?DW", "?r" }, "read of memory+0 meets the write" }, // the third begins before the second waits
    { { "w", "?DW", "Wr" }, NULL },
    { { "w", "?D", "Wr" }, "read of memory+0 meets the write" }, // the second has ended, perhaps before the first
    { { "r", "?Dw", "W" }, "write of memory+0 meets the read" },
};

static const char *described;

static void act(char letter, val word)
{
    HERE;
    switch (letter) {
    case '?':
    case 'W':
        ir_plain(IR_GRID_WAIT, 0, 0);
        break;
    case 'D':
        ir_plain(IR_LAUNCH_DEPENDENTS, 0, 0);
        break;
    case 'b':
        ir_bar_sync(ir_u32(0), 64);
        break;
    case 'w':
        test_store_value(IR_GLOBAL, IR_U32, word, 0, ir_u32(1));
        break;
    case 'r':
        test_load_value(IR_GLOBAL, IR_U32, word, 0);
        break;
    case 'h':
        ir_load_strong(IR_ORDER_RELAXED, IR_SCOPE_GPU, IR_U32, word, 0);
        break;
    case 'x':
        test_store_value(IR_GLOBAL, CKL_U8, word, 1, ir_int(CKL_U8, 1));
        break;
    case 'y':
    case 'z':
        test_load_value(IR_GLOBAL, CKL_U8, word, letter == 'y');
        break;
    default:
        break;
    }
}

static void describe(void)
{
    const val memory = pointer("memory"), word = test_element(memory, ir_sreg(IR_TID_X), 4);
    for (const char *at = described; *at; at++) {
        const int warp = *at == '?' ? 2 : *at == '0' || *at == '1' ? *at++ - '0' : -1; // there is no warp 2
        if (warp >= 0)
            ir_if(ir_compare(IR_EQ, ir_sreg(IR_WARP), ir_u32(warp)));
        act(*at, word);
        if (warp >= 0)
            ir_end_if();
    }
}

static ckl_status launch(ckl_device *gpu, const char *what, void *memory)
{
    static unsigned char bytes[BYTES];
    device_kernel *loaded = NULL;
    described = what;
    if (*what == '-')
        return gpu->ops->copy_out(gpu, bytes, memory, sizeof bytes, NULL);
    const test_kernel k = { describe, *what == '~' ? IR_SM80 : IR_SM90A, .threads = 64 };
    assert_ok(test_load(gpu, k, &loaded));
    const device_launch once = { .grid = { *what == '2' ? 2 : 1, 1, 1 }, .params = (void *[]){ &memory } };
    ckl_status status = gpu->ops->launch(gpu, loaded, &once, *what == '>' ? &described : NULL);
    gpu->ops->unload(gpu, loaded);
    return status;
}

TEST(launches)
{
    static const unsigned char zeros[BYTES];
    for (int i = 0; i < COUNT_OF(cases); i++) {
        ckl_device *gpu = test_open("");
        void *memory = test_upload(gpu, zeros, sizeof zeros);
        ckl_status status = CKL_OK;
        for (int j = 0; j < LAUNCHES_MAX && cases[i].launches[j] && status == CKL_OK; j++)
            status = launch(gpu, cases[i].launches[j], memory);
        const bool right =
            cases[i].fault ? status == CKL_DEVICE_FAULT && strstr(ckl_error(), cases[i].fault) : status == CKL_OK;
        if (!right)
            fail_msg("%s, %s: %s", cases[i].launches[0], cases[i].launches[1], status ? ckl_error() : "nothing found");
        gpu->ops->close(gpu);
    }
}

RUN_TESTS(NULL, NULL)
