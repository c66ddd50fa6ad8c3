/* unit_device.c - the public functions of devices, data sheets of the emulated ones, and the emulator's settings. */
#include "unit_emulator.h"

#include "cutekernellib/device.h"

TEST(best_device)
{
    ckl_device *best = NULL, *gpu = NULL;
    bool has_gpu = ckl_device_open("cuda", &gpu) == CKL_OK;
    assert_ok(ckl_device_open(NULL, &best));
    const ckl_device_info *info = ckl_device_properties(best);
    assert_string_equal(info->id, has_gpu ? ckl_device_properties(gpu)->id : "emulator:h200");
    assert_string_equal(ckl_error(), ""); // a machine without a GPU is no error
    ckl_device_close(best);
    ckl_device_close(gpu);
    ckl_device_close(NULL);
}

TEST(names)
{
    static const char *const ids[][2] = {
        { "emulator", "emulator:h200" },      { "emulator:", "emulator:h200" },
        { "emulator:h100", "emulator:h100" }, { "emulator:a100", "emulator:a100" },
        { "emulator:b200", "emulator:b200" }, { "emulator:l4", "emulator:l4" },
        { "emulator:a10", "emulator:a10" },
    };
    for (int i = 0; i < COUNT_OF(ids); i++) {
        ckl_device *d = NULL;
        assert_ok(ckl_device_open(ids[i][0], &d));
        assert_string_equal(ckl_device_properties(d)->id, ids[i][1]);
        ckl_device_close(d);
    }
    static const char *const wrong[] = { "", "emulators", "emulator-l4", "emulator:l40", "emulato", "cuda1" };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        ckl_device *d = NULL;
        assert_int_equal(ckl_device_open(wrong[i], &d), CKL_INVALID);
        assert_null(d);
    }
    assert_int_equal(ckl_device_open("emulator", NULL), CKL_INVALID);
}

/* NVIDIA's data sheets: SMs, MHz, bytes; CTAs that an SM holds at once. */
TEST(data_sheets)
{
    const int64_t gib = 1 << 30, mib = 1 << 20;
    const struct {
        ckl_device_info info;
        int ctas, threads; // of an SM
    } sheets[] = {
        { { "emulator:h200", "emulated NVIDIA H200", true, 90, 132, 1980, 1024, 65536, 141 * gib, 60 * mib, 233472,
            232448, true, true },
          32,
          2048 },
        { { "emulator:h100", "emulated NVIDIA H100", true, 90, 132, 1980, 1024, 65536, 80 * gib, 50 * mib, 233472,
            232448, true, true },
          32,
          2048 },
        { { "emulator:b200", "emulated NVIDIA B200", true, 100, 148, 1965, 1024, 65536, 180 * gib, 126 * mib, 233472,
            232448, true, false },
          32,
          2048 },
        { { "emulator:a100", "emulated NVIDIA A100", true, 80, 108, 1410, 1024, 65536, 80 * gib, 40 * mib, 167936,
            166912, false, false },
          32,
          2048 },
        { { "emulator:a10", "emulated NVIDIA A10", true, 86, 72, 1695, 1024, 65536, 24 * gib, 6 * mib, 102400, 101376,
            false, false },
          16,
          1536 },
        { { "emulator:l4", "emulated NVIDIA L4", true, 89, 58, 2040, 1024, 65536, 24 * gib, 48 * mib, 102400, 101376,
            false, false },
          24,
          1536 },
    };
    for (int i = 0; i < COUNT_OF(sheets); i++) {
        ckl_device *d = NULL;
        const ckl_device_info *wanted = &sheets[i].info, *is;
        assert_ok(ckl_device_open(wanted->id, &d));
        is = ckl_device_properties(d);
        assert_string_equal(is->id, wanted->id);
        assert_string_equal(is->name, wanted->name);
        assert_true(is->emulated && is->has_tma == wanted->has_tma && is->has_wgmma == wanted->has_wgmma);
        assert_memory_equal(&is->compute_capability, &wanted->compute_capability,
                            offsetof(ckl_device_info, has_tma) - offsetof(ckl_device_info, compute_capability));
        assert_int_equal(((emulator *)d)->ctas_per_sm_max, sheets[i].ctas);
        assert_int_equal(((emulator *)d)->threads_per_sm, sheets[i].threads);
        ckl_device_close(d);
    }
}

/* What fits at once is bounded by shared memory (each CTA takes 1 KB more than it asks for), by threads and by CTAs. */
static int64_t smem_wanted;

static void describe_smem(void)
{
    if (smem_wanted)
        ir_smem_alloc("bytes", smem_wanted, 16);
}

static int resident(ckl_device *d, int threads, int cluster, int64_t smem)
{
    device_kernel *loaded = NULL;
    int count = -1;
    smem_wanted = smem;
    test_kernel k = { describe_smem, d->info.has_tma ? IR_SM90A : IR_SM80, .threads = threads, .cluster = cluster };
    assert_ok(test_load(d, k, &loaded));
    assert_ok(d->ops->clusters_resident(d, loaded, &count));
    d->ops->unload(d, loaded);
    return count;
}

TEST(resident_clusters)
{
    ckl_device *h200 = NULL, *l4 = NULL;
    assert_ok(ckl_device_open("emulator:h200", &h200));
    assert_ok(ckl_device_open("emulator:l4", &l4));
    assert_int_equal(resident(h200, 32, 1, 0), 132 * 32);
    assert_int_equal(resident(h200, 1024, 1, 0), 132 * 2);
    assert_int_equal(resident(h200, 96, 1, 0), 132 * 21);
    assert_int_equal(resident(h200, 32, 1, 232448), 132);
    assert_int_equal(resident(h200, 32, 1, 233472 / 2 - 1024), 132 * 2);
    assert_int_equal(resident(h200, 32, 1, 233472 / 2 - 1023), 132);
    assert_int_equal(resident(h200, 1024, 16, 0), 132 / 16 * 2);
    assert_int_equal(resident(l4, 32, 1, 0), 58 * 24);
    assert_int_equal(resident(l4, 1024, 1, 0), 58);
    ckl_device_close(h200);
    ckl_device_close(l4);
}

TEST(memory)
{
    ckl_device *d = NULL;
    ckl_stream stream = NULL;
    void *memory = &d;
    unsigned char out[4] = { 1, 2, 3, 4 }, in[4] = { 0 };
    assert_ok(ckl_device_open("emulator", &d));
    assert_ok(ckl_malloc(d, 0, &memory));
    assert_null(memory);
    ckl_free(d, NULL);
    assert_ok(ckl_malloc(d, 4, &memory));
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 256, 0);
    assert_ok(ckl_copy_in(d, memory, out, 4, NULL));
    assert_ok(ckl_copy_out(d, in, memory, 4, NULL));
    assert_memory_equal(in, out, 4);
    assert_int_equal(ckl_copy_in(d, memory, out, 5, NULL), CKL_INVALID);
    assert_ok(ckl_copy_in(d, NULL, NULL, 0, NULL)); // nothing to do, nowhere
    assert_ok(ckl_copy_out(d, NULL, NULL, 0, NULL));
    assert_ok(ckl_stream_create(d, &stream));
    assert_ok(ckl_stream_synchronize(d, stream));
    ckl_stream_destroy(d, stream);
    ckl_stream_destroy(d, NULL);
    ckl_free(d, memory);
    assert_int_equal(ckl_copy_in(d, memory, out, 4, NULL), CKL_INVALID);
    ckl_device_close(d);
}

/* More allocations than the list first has room for, released in another order; used is what is left. */
TEST(many_allocations)
{
    enum { COUNT = 200 };
    ckl_device *d = NULL;
    unsigned char *all[COUNT], byte = 7, read[COUNT + 1];
    size_t used = 0, sum = 0;
    assert_ok(ckl_device_open("emulator", &d));
    for (size_t i = 0; i < COUNT; i++) {
        assert_ok(ckl_malloc(d, i + 1, (void **)&all[i]));
        assert_ok(d->ops->fill(d, all[i], (unsigned char)i, i + 1, NULL));
        sum += i + 1;
    }
    assert_ok(d->ops->memory_used(d, &used));
    assert_int_equal(used, sum);
    for (size_t i = 0; i < COUNT; i++) {
        assert_ok(ckl_copy_out(d, read, all[i], i + 1, NULL));
        assert_true(read[0] == i && read[i] == i);
        assert_ok(ckl_copy_out(d, read, all[i] + i, 1, NULL));
        assert_int_equal(ckl_copy_out(d, read, all[i] + i + 1, 1, NULL), CKL_INVALID);
        assert_int_equal(ckl_copy_in(d, all[i] - 1, &byte, 1, NULL), CKL_INVALID);
    }
    for (size_t i = 0; i < COUNT; i++) {
        size_t at = i * 7 % COUNT;
        ckl_free(d, all[at] + (at > 0)); // nothing begins there
        assert_int_equal(ckl_copy_out(d, read, all[at] + at, 1, NULL), at ? CKL_OK : CKL_INVALID);
        ckl_free(d, all[at]);
        assert_int_equal(ckl_copy_out(d, read, all[at], 1, NULL), CKL_INVALID);
        sum -= at + 1;
        assert_ok(d->ops->memory_used(d, &used));
        assert_int_equal(used, sum);
    }
    ckl_device_close(d);
}

/* A memory of 1000 bytes, full and no fuller; where an address lies that is in none of it. */
TEST(memory_space)
{
    memory_space m;
    void *first = NULL, *second = NULL, *third = &m;
    char why[160];
    memory_init(&m, 1000);
    assert_null(memory_explain(&m, 4096, 1, why, sizeof why));
    assert_string_equal(why, "there is no allocation");
    assert_ok(memory_alloc(&m, 0, &third));
    assert_null(third);
    assert_ok(memory_alloc(&m, 400, &first));
    assert_fails(memory_alloc(&m, 601, &second), CKL_NO_MEMORY,
                 "device memory: 601 bytes do not fit, 400 of 1000 are in use");
    uintptr_t base = (uintptr_t)first;
    for (int i = 0; i < 400; i++)
        assert_int_equal(((unsigned char *)first)[i], 0xff); // poison
    assert_ptr_equal(memory_explain(&m, base + 396, 8, why, sizeof why), memory_find(&m, base, 400));
    assert_says(why, "4 bytes past the end of the allocation of 400 bytes at 0x");
    assert_ptr_equal(memory_explain(&m, base - 12, 4, why, sizeof why), memory_find(&m, base, 400));
    assert_says(why, "12 bytes before the allocation of 400 bytes at 0x");
    assert_ok(memory_alloc(&m, 600, &second));
    assert_int_equal(memory_alloc(&m, 1, &third), CKL_NO_MEMORY);
    memory_release(&m, first);
    assert_ok(memory_alloc(&m, 400, &third));
    memory_clear(&m);
}

/* What was written is known by bytes, and copied with them. */
TEST(written)
{
    ckl_device *d = NULL;
    unsigned char host[64] = { 0 }, *from = NULL, *to = NULL;
    assert_ok(ckl_device_open("emulator", &d));
    memory_space *m = &((emulator *)d)->memory;
    assert_ok(ckl_malloc(d, 64, (void **)&from));
    assert_ok(ckl_malloc(d, 64, (void **)&to));
    allocation *a = memory_find(m, (uintptr_t)from, 64), *b = memory_find(m, (uintptr_t)to, 64);
    assert_false(memory_is_written(a, a->base, 1));
    assert_ok(ckl_copy_in(d, from + 8, host, 16, NULL));
    assert_true(memory_is_written(a, a->base + 8, 16));
    assert_false(memory_is_written(a, a->base + 7, 2));
    assert_false(memory_is_written(a, a->base + 23, 2));
    assert_ok(d->ops->fill(d, to, 3, 64, NULL));
    assert_true(b->all_written && memory_is_written(b, b->base, 64));
    assert_ok(d->ops->copy(d, to + 32, from + 4, 16, NULL));
    assert_true(memory_is_written(b, b->base, 32) && memory_is_written(b, b->base + 48, 16));
    assert_true(memory_is_written(b, b->base + 36, 12));
    assert_false(memory_is_written(b, b->base + 35, 1));
    assert_int_equal(to[36], 0);
    assert_int_equal(to[31], 3);
    assert_ok(d->ops->copy(d, to, from + 8, 17, NULL));
    assert_false(memory_is_written(b, b->base, 17));
    assert_int_equal(d->ops->copy(d, to + 60, from, 5, NULL), CKL_INVALID);
    assert_int_equal(d->ops->copy(d, to, from + 60, 5, NULL), CKL_INVALID);
    assert_ok(d->ops->copy(d, NULL, NULL, 0, NULL));
    ckl_device_close(d);
}

static ckl_status launched(ckl_device *d, int cluster, int64_t x, int64_t y, int64_t z)
{
    device_kernel *loaded = NULL;
    smem_wanted = 0;
    test_kernel k = { describe_smem, IR_SM90A, .threads = 32, .cluster = cluster };
    assert_ok(test_load(d, k, &loaded));
    ckl_status status = d->ops->launch(d, loaded, &(device_launch){ .grid = { x, y, z } }, NULL);
    d->ops->unload(d, loaded);
    return status;
}

TEST(grids)
{
    ckl_device *d = NULL;
    assert_ok(ckl_device_open("emulator", &d));
    assert_ok(launched(d, 1, 1, 1, 1));
    assert_ok(launched(d, 1, 1, 65535, 1));
    assert_ok(launched(d, 1, 1, 1, 65535));
    assert_ok(launched(d, 4, 8, 1, 2));
    assert_fails(launched(d, 1, 0, 1, 1), CKL_INVALID, "test: grid[0]=0 is not in 1 to 2147483647");
    assert_int_equal(launched(d, 1, INT64_C(1) << 31, 1, 1), CKL_INVALID);
    assert_fails(launched(d, 1, 1, 65536, 1), CKL_INVALID, "test: grid[1]=65536 is not in 1 to 65535");
    assert_int_equal(launched(d, 1, 1, 1, 65536), CKL_INVALID);
    assert_int_equal(launched(d, 1, 1, 1, 0), CKL_INVALID);
    assert_fails(launched(d, 4, 6, 1, 1), CKL_INVALID, "test: grid[0]=6 is no multiple of the cluster of 4 CTAs");
    ckl_device_close(d);
}

/* Settings of the emulator: each key alone, and the words that are refused. */
TEST(settings)
{
    emulator_options o = emulator_options_default();
    assert_true(o.seed == 1 && o.schedule == SCHEDULE_ROUNDS && o.completion == COMPLETION_LAZY &&
                o.budget == 400000000 && o.threads == 0);
    assert_ok(emulator_options_parse("", &o));
    assert_ok(emulator_options_parse(" seed=0   threads=3 ", &o));
    assert_true(o.seed == 0 && o.threads == 3 && o.budget == 400000000);
    assert_ok(emulator_options_parse("schedule=random completion=eager budget=7", &o));
    assert_true(o.schedule == SCHEDULE_RANDOM && o.completion == COMPLETION_EAGER && o.budget == 7);
    assert_ok(emulator_options_parse("schedule=rounds completion=random", &o));
    assert_true(o.schedule == SCHEDULE_ROUNDS && o.completion == COMPLETION_RANDOM);
    assert_ok(emulator_options_parse("completion=lazy", &o));
    assert_int_equal(o.completion, COMPLETION_LAZY);
    static const char *const wrong[] = { "seed",      "seed=",           "seed=-1",
                                         "seed=x",    "seed=1x",         "threads=99999999999999999999",
                                         "schedule=", "completion=none", "schedule=randomly",
                                         "speed=1" };
    for (int i = 0; i < COUNT_OF(wrong); i++)
        assert_int_equal(emulator_options_parse(wrong[i], &o), CKL_INVALID);
    char line[600];
    memset(line, ' ', sizeof line);
    line[511] = '\0';
    assert_ok(emulator_options_parse(line, &o));
    line[511] = ' ';
    line[512] = '\0';
    assert_int_equal(emulator_options_parse(line, &o), CKL_INVALID);
}

RUN_TESTS(NULL, NULL)
