/* unit_device.c - the public functions of devices, the data sheets of the emulated ones, and the settings of the emulator. */
#include "unit_emulator.h"

#include "cutekernellib/device.h"

static void test_best_device(void **state)
{
    (void)state;
    ckl_device *best = NULL, *gpu = NULL;
    bool has_gpu = ckl_device_open("cuda", &gpu) == CKL_OK;
    assert_int_equal(ckl_device_open(NULL, &best), CKL_OK);
    const ckl_device_info *info = ckl_device_properties(best);
    assert_string_equal(info->id, has_gpu ? ckl_device_properties(gpu)->id : "emulator:h200");
    assert_string_equal(ckl_error(), ""); // a machine without a GPU is no error
    ckl_device_close(best);
    ckl_device_close(gpu);
    ckl_device_close(NULL);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const ids[][2] = {
        { "emulator", "emulator:h200" },      { "emulator:", "emulator:h200" }, { "emulator:h100", "emulator:h100" },
        { "emulator:a100", "emulator:a100" }, { "emulator:l4", "emulator:l4" },
    };
    for (int i = 0; i < COUNT_OF(ids); i++) {
        ckl_device *d = NULL;
        assert_int_equal(ckl_device_open(ids[i][0], &d), CKL_OK);
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
static void test_data_sheets(void **state)
{
    (void)state;
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
        { { "emulator:a100", "emulated NVIDIA A100", true, 80, 108, 1410, 1024, 65536, 80 * gib, 40 * mib, 167936,
            166912, false, false },
          32,
          2048 },
        { { "emulator:l4", "emulated NVIDIA L4", true, 89, 58, 2040, 1024, 65536, 24 * gib, 48 * mib, 102400, 101376,
            false, false },
          24,
          1536 },
    };
    for (int i = 0; i < COUNT_OF(sheets); i++) {
        ckl_device *d = NULL;
        const ckl_device_info *wanted = &sheets[i].info, *is;
        assert_int_equal(ckl_device_open(wanted->id, &d), CKL_OK);
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
    if (test_load(d, k, &loaded) != CKL_OK)
        fail_msg("%s", ckl_error());
    assert_int_equal(d->ops->clusters_resident(d, loaded, &count), CKL_OK);
    d->ops->unload(d, loaded);
    return count;
}

static void test_resident_clusters(void **state)
{
    (void)state;
    ckl_device *h200 = NULL, *l4 = NULL;
    assert_int_equal(ckl_device_open("emulator:h200", &h200), CKL_OK);
    assert_int_equal(ckl_device_open("emulator:l4", &l4), CKL_OK);
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

static void test_memory(void **state)
{
    (void)state;
    ckl_device *d = NULL;
    ckl_stream stream = NULL;
    void *memory = &d;
    unsigned char out[4] = { 1, 2, 3, 4 }, in[4] = { 0 };
    assert_int_equal(ckl_device_open("emulator", &d), CKL_OK);
    assert_int_equal(ckl_malloc(d, 0, &memory), CKL_OK);
    assert_null(memory);
    ckl_free(d, NULL);
    assert_int_equal(ckl_malloc(d, 4, &memory), CKL_OK);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 256, 0);
    assert_int_equal(ckl_copy_in(d, memory, out, 4, NULL), CKL_OK);
    assert_int_equal(ckl_copy_out(d, in, memory, 4, NULL), CKL_OK);
    assert_memory_equal(in, out, 4);
    assert_int_equal(ckl_copy_in(d, memory, out, 5, NULL), CKL_INVALID);
    assert_int_equal(ckl_copy_in(d, NULL, NULL, 0, NULL), CKL_OK); // nothing to do, nowhere
    assert_int_equal(ckl_copy_out(d, NULL, NULL, 0, NULL), CKL_OK);
    assert_int_equal(ckl_stream_create(d, &stream), CKL_OK);
    assert_int_equal(ckl_stream_synchronize(d, stream), CKL_OK);
    ckl_stream_destroy(d, stream);
    ckl_stream_destroy(d, NULL);
    ckl_free(d, memory);
    assert_int_equal(ckl_copy_in(d, memory, out, 4, NULL), CKL_INVALID);
    ckl_device_close(d);
}

/* Settings of the emulator: each key alone, and the words that are refused. */
static void test_settings(void **state)
{
    (void)state;
    emulator_options o = emulator_options_default();
    assert_true(o.seed == 1 && o.schedule == SCHEDULE_ROUNDS && o.completion == COMPLETION_LAZY &&
                o.budget == 100000000 && o.threads == 0);
    assert_int_equal(emulator_options_parse("", &o), CKL_OK);
    assert_int_equal(emulator_options_parse(" seed=0   threads=3 ", &o), CKL_OK);
    assert_true(o.seed == 0 && o.threads == 3 && o.budget == 100000000);
    assert_int_equal(emulator_options_parse("schedule=random completion=eager budget=7", &o), CKL_OK);
    assert_true(o.schedule == SCHEDULE_RANDOM && o.completion == COMPLETION_EAGER && o.budget == 7);
    assert_int_equal(emulator_options_parse("schedule=rounds completion=random", &o), CKL_OK);
    assert_true(o.schedule == SCHEDULE_ROUNDS && o.completion == COMPLETION_RANDOM);
    assert_int_equal(emulator_options_parse("completion=lazy", &o), CKL_OK);
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
    assert_int_equal(emulator_options_parse(line, &o), CKL_OK);
    line[511] = ' ';
    line[512] = '\0';
    assert_int_equal(emulator_options_parse(line, &o), CKL_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_device),       cmocka_unit_test(test_names),  cmocka_unit_test(test_data_sheets),
        cmocka_unit_test(test_resident_clusters), cmocka_unit_test(test_memory), cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
