/*
 * unit_fuzzed.c - what random programs leave in memory on the emulated H200, as digests: its arithmetic, conversions,
 * shuffles, tensor cores and copies. A GPU leaves the same, bit for bit (docs/status.md). After a change of what the
 * programs are, `build/unit_fuzzed --update` writes tests/data/fuzzed.txt anew, and `ckl fuzz` goes to the GPU again.
 */
#include "unit_emulator.h"

#include "base/hash.h"
#include "golden.h"
#include "lab/fuzz/fuzz.h"

#define FUZZED_FILE TESTDATA "/fuzzed.txt"

enum { PROGRAMS = 16 * FUZZ_BATCH * FUZZ_KIND_COUNT };

static ckl_device *device;

/* "arithmetic 0: 1a2b3c4d ..." for the programs of a batch */
static void print_batch(int first, text *out)
{
    fuzz_batch batch;
    assert_ok(fuzz_describe((fuzz_set){ 11, FUZZ_KINDS_ALL }, first, FUZZ_BATCH, &batch));
    unsigned char *memory = malloc((size_t)(batch.slice_bytes * batch.count));
    fuzz_fill(&batch, memory);
    assert_ok(fuzz_execute(device, &batch, batch.kernel, memory));
    text_printf(out, "%s %d:", fuzz_kind_names[batch.kind], first);
    for (int i = 0; i < batch.count; i++)
        text_printf(out, " %08x",
                    (unsigned)hash_bytes(HASH_START, memory + i * batch.slice_bytes, (size_t)batch.slice_bytes));
    text_append(out, "\n", 1);
    fuzz_batch_free(&batch);
    free(memory);
}

static void print_all(text *out)
{
    device = test_open("threads=1 budget=100000");
    for (int first = 0; first < PROGRAMS; first += FUZZ_BATCH)
        print_batch(first, out);
    device->ops->close(device);
}

GOLDEN_MAIN(FUZZED_FILE, print_all)
