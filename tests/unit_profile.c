/*
 * unit_profile.c - ckl profile: what the emulator counts, against numbers by hand; what ncu prints, read and put into
 * words; and the command over a driver without a GPU and an ncu that prints a file.
 */
#define _GNU_SOURCE // nftw, for temporary_folder.h

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "unit.h"
#include "base/math.h"
#include "bench/ncu.h"
#include "bench/profile_json.h"
#include "capture.h"
#include "cli/cli.h"
#include "emulated_device.h"
#include "fake_cuda.h"
#include "lab/profile.h"
#include "lab/tool.h"
#include "temporary_folder.h"

/* The emulator */

static const implementation *launched;

static ckl_status launch_twice(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    TRY(launched->launch(plan, args, stream));
    return launched->launch(plan, args, stream);
}

static profile counted_of(const char *line, bool twice)
{
    test_case c;
    check k;
    profile p;
    const device_ops *before = device->ops;
    if (case_parse(line, &c) != CKL_OK || check_open(&c, device, NULL, &k) != CKL_OK)
        fail_msg("%s: %s", line, ckl_error());
    launched = k.plan->impl;
    implementation changed = *launched;
    changed.launch = launch_twice;
    k.plan->impl = twice ? &changed : launched;
    if (profile_run(&k, &p) != CKL_OK)
        fail_msg("%s: %s", line, ckl_error());
    assert_ptr_equal(device->ops, before);
    check_close(&k);
    case_clear(&c);
    return p;
}

static profile counted(const char *line)
{
    return counted_of(line, false);
}

/* 100 x 100 by four tiles of 64 x 64: all rows of A and of B are loaded twice, and whole tiles are multiplied. */
TEST(gemm)
{
    profile p = counted("gemm m=100 n=100 k=64 a=f16 impl=sm90 config='tile_m=64 tile_n=64'");
    const profiled_kernel *k = &p.kernels[0];
    text said = { 0 };
    assert_int_equal(p.kernel_count, 1);
    assert_string_equal(k->name, "gemm_sm90");
    assert_int_equal(k->grid[0] * k->grid[1] * k->grid[2], 4);
    assert_int_equal(k->threads, 256);
    assert_int_equal(k->count[COUNT_LAUNCHES], 1);
    assert_int_equal(k->count[COUNT_TENSOR_FLOPS], 4 * 2 * 64 * 64 * 64);
    assert_int_equal(profile_read_bytes(k), 2 * (100 + 100) * 64 * 2);
    assert_int_equal(profile_written_bytes(k), 100 * 100 * 2);
    assert_true(p.flops == 2 * 100 * 100 * 64 && p.bytes_read == 2 * 100 * 64 * 2 && p.bytes_written == 100 * 100 * 2);
    profile_print(&p, &said);
    assert_says(text_data(&said), "  read           51.2 kB, 2.00 times the problem's; 51.2 kB by TMA\n");
    assert_says(text_data(&said), "  tensor cores   2.1 MFLOP, 1.64 times the problem's\n");
    text_clear(&said);
    profile_say(&p, &said);
    assert_says(
        text_data(&said),
        "Moves 1.56 times the bytes that the problem has: 2.00 times what it reads, 1.00 times what it writes.");
    assert_says(text_data(&said),
                "No bank conflicts. Tensor cores multiply 1.64 times what is asked, with tile_m=64 tile_n=64.");
    assert_says(text_data(&said), "4 CTAs leave 128 of 132 SMs idle. The model predicts ");
    text_free(&said);
}

/* Every number once, four a lane: 32 lanes take 16 sectors. */
TEST(softmax)
{
    profile p = counted("softmax shape=32x1024");
    const int64_t *count = p.kernels[0].count;
    text said = { 0 };
    assert_int_equal(p.kernel_count, 1);
    assert_int_equal(count[COUNT_GLOBAL_READ_BYTES], 32 * 1024 * 4);
    assert_int_equal(count[COUNT_GLOBAL_WRITE_REQUESTS], 32 * 1024 / 4 / 32);
    assert_int_equal(count[COUNT_GLOBAL_WRITE_SECTORS], 32 * 1024 * 4 / 32);
    assert_int_equal(count[COUNT_TENSOR_FLOPS], 0);
    profile_print(&p, &said);
    assert_says(
        text_data(&said),
        "  written        131 kB, 1.00 times the problem's; 256 requests of 16.0 sectors, 32.0 bytes in each\n");
    profile_say(&p, &said);
    assert_says(text_data(&said), "Moves 1.00 times the bytes that the problem has. 16 CTAs leave");
    assert_omits(text_data(&said), "ensor cores");
    text_free(&said);
}

/* Small inputs are asked for once, a share by each CTA along x: not again by those along y. */
TEST(inputs_asked_ahead)
{
    static const struct {
        const char *line;
        int64_t requests;
    } of[] = {
        { "elementwise expr=x-y shape=3x9001 dtype=f16 strides=9009x1,9009x1", 2 * 3 }, // 5 tiles a row
        { "softmax shape=32x1024", 16 },
        { "crossentropy rows=64 cols=1024 direction=backward", 32 },
        { "gemm m=40 n=70 k=64 a=f32 impl=fma config='tile_m=32 tile_n=64'", 2 * 4 },
        { "gemm m=1 n=1000 k=1024 a=f32", 250 + 128 }, // shares of B, and of A, whose row has 128 of 32 bytes
        { "gemm m=1 n=2000 k=1024 a=f32", 0 },         // 8 MB
    };
    for (int i = 0; i < COUNT_OF(of); i++) {
        profile p = counted(of[i].line);
        assert_int_equal(p.kernels[0].count[COUNT_TMA], of[i].requests);
    }
}

/* Rows of a tile lie 36 words apart, so 32 lanes that go down a column meet in 8 banks: 4 wavefronts instead of one. */
TEST(conflicts)
{
    profile p = counted("transpose rows=64 cols=64 dtype=f32 impl=sm80");
    const profiled_kernel *k = &p.kernels[0];
    text said = { 0 };
    assert_int_equal(k->count[COUNT_SHARED_WAVEFRONTS], 4 * 64 * 64 / 32);
    assert_int_equal(k->count[COUNT_BANK_CONFLICTS], 3 * 64 * 64 / 32);
    assert_int_equal(k->line_count, 1);
    assert_int_equal(k->lines[0].value, 3 * 64 * 64 / 32);
    profile_say(&p, &said);
    assert_says(text_data(&said), "75 % of shared-memory wavefronts are conflicts, all at transpose_sm80.c:");
    json_t *numbers = profile_to_json(&p), *kernel = json_array_get(json_object_get(numbers, "kernels"), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kernel, "counters"), "bank conflicts")), 384);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kernel, "bank_conflicts"), k->lines[0].where)),
                     384);
    json_decref(numbers);
    text_free(&said);
    p = counted("transpose rows=64 cols=64 dtype=f32 impl=sm80 config='lanes=8'"); // groups a word apart
    assert_int_equal(p.kernels[0].count[COUNT_BANK_CONFLICTS], 0);
    assert_int_equal(p.kernels[0].count[COUNT_SHARED_WAVEFRONTS], 64 * 64 / 32);
}

/* Two kernels on equal grids: one splits A and B, the other multiplies three times. Without elements there is none. */
TEST(kernels)
{
    profile p = counted("gemm m=100 n=100 k=128 a=f32 math=f32x3");
    text said = { 0 };
    assert_int_equal(p.kernel_count, 2);
    assert_int_equal(p.kernels[0].grid[0], p.kernels[1].grid[0]);
    assert_string_equal(p.kernels[0].name, "gemm_f32x3_1");
    assert_string_equal(p.kernels[1].name, "gemm_f32x3_0");
    assert_int_equal(p.kernels[0].count[COUNT_TENSOR_FLOPS], 0);
    assert_int_equal(p.kernels[1].count[COUNT_TENSOR_FLOPS], 3 * 2 * 128 * 128 * 128);
    assert_int_equal(profile_written_bytes(&p.kernels[1]), 128 * 128 * 4); // the last tiles end with D, over others
    profile_say(&p, &said);
    assert_says(text_data(&said), "; gemm_f32x3_0 moves ");
    text_clear(&said);
    p = counted("transpose rows=0 cols=5");
    assert_int_equal(p.kernel_count, 0);
    profile_say(&p, &said);
    assert_string_equal(text_data(&said), "Launches no kernel.");
    text_free(&said);
}

/* Launches of one kernel are one entry. */
TEST(launches)
{
    profile p = counted_of("transpose rows=64 cols=64 dtype=f32 impl=sm80", true);
    text said = { 0 };
    assert_int_equal(p.kernel_count, 1);
    assert_int_equal(p.kernels[0].count[COUNT_LAUNCHES], 2);
    assert_int_equal(p.kernels[0].count[COUNT_SHARED_WAVEFRONTS], 2 * 512);
    assert_int_equal(p.kernels[0].line_count, 1);
    assert_int_equal(p.kernels[0].lines[0].value, 2 * 384);
    profile_print(&p, &said);
    assert_says(text_data(&said), "kernel transpose_sm80, 2 launches\n");
    text_free(&said);
}

/* Two kernels, made up: what is worth a sentence, and where it lies. */
TEST(words)
{
    profile p = { .sm_count = 4, .bytes_read = 3000, .bytes_written = 1000, .kernel_count = 2 };
    text said = { 0 };
    for (int i = 0; i < 2; i++)
        p.kernels[i] = (profiled_kernel){ .name = "small", .grid = { 2, 2, 1 } };
    strcpy(p.kernels[1].name, "large");
    int64_t *count = p.kernels[1].count;
    count[COUNT_GLOBAL_READ_BYTES] = 2100;
    count[COUNT_GLOBAL_READ_SECTORS] = 131; // 16 bytes of each
    count[COUNT_TMA_STORE_BYTES] = 900;
    p.kernels[0].count[COUNT_GLOBAL_WRITE_BYTES] = 100;
    p.kernels[0].count[COUNT_GLOBAL_WRITE_SECTORS] = 100; // one byte of each, and too few to matter
    p.kernels[0].count[COUNT_GLOBAL_READ_BYTES] = 900;
    p.kernels[0].count[COUNT_GLOBAL_READ_SECTORS] = 57;
    count[COUNT_SHARED_WAVEFRONTS] = 1000;
    count[COUNT_BANK_CONFLICTS] = 310;
    p.kernels[1].lines[0] = (device_counter){ .value = 200, .where = "src/a/tile.c:7" };
    p.kernels[1].line_count = 1;
    profile_say(&p, &said);
    assert_string_equal(text_data(&said),
                        "Moves 1.00 times the bytes that the problem has; large moves 75 % of them. Of the "
                        "sectors read, requests use 16 of 32 bytes. 31 % of shared-memory wavefronts are "
                        "conflicts, most at tile.c:7.");
    count[COUNT_BANK_CONFLICTS] = 30;
    p.kernels[1].lines[0].value = 30;
    p.kernels[1].grid[0] = 1;
    text_clear(&said);
    profile_say(&p, &said);
    assert_says(text_data(&said), " 3 % of shared-memory wavefronts are conflicts. 2 CTAs leave 2 of 4 SMs idle.");
    text_free(&said);
}

/* ncu's report */

/* The sample with one text in place of another; "": as it is. */
static text sample_with(const char *old, const char *new)
{
    text file = { 0 }, sample = { 0 };
    assert_true(read_text(TESTDATA "/ncu.csv", &file));
    const char *rest = text_data(&file);
    for (const char *at; *old && (at = strstr(rest, old)); rest = at + strlen(old))
        text_printf(&sample, "%.*s%s", (int)(at - rest), rest, new);
    assert_true(!*old || sample.length);
    text_printf(&sample, "%s", rest);
    text_free(&file);
    return sample;
}

static ncu_report report_with(const char *old, const char *new)
{
    ncu_report r;
    text sample = sample_with(old, new);
    assert_ok(ncu_read(text_data(&sample), &r));
    text_free(&sample);
    return r;
}

TEST(ncu_read)
{
    ncu_report r = report_with("", "");
    const ncu_kernel *k = &r.kernels[1];
    assert_int_equal(r.count, 2);
    assert_string_equal(r.kernels[0].name, "layernorm_backward_2");
    assert_string_equal(r.kernels[0].pipe.what, "");
    assert_string_equal(k->name, "layernorm_backward_0");
    const double values[] = { 32.896, 35.78, 53.36, 24.04, 54.28, 2611, 32, 96, 0, 28.21, 31.25, 0.99, 132 };
    for (int i = 0; i < NCU_METRIC_COUNT; i++)
        if (k->value[i] != values[i])
            fail_msg("%s: %g, not %g", ncu_metrics[i].key, k->value[i], values[i]);
    assert_string_equal(k->pipe.what, "ALU");
    assert_true(k->pipe.percent == 38.7 && k->stall.percent == 40.4);
    assert_string_equal(k->stall.what,
                        "waiting for a scoreboard dependency on a L1TEX (local, global, surface, texture) operation");
    text said = { 0 };
    ncu_print(&r, &said);
    assert_says(text_data(&said), "kernel layernorm_backward_0\n  Duration                             32.896 us\n");
    assert_says(text_data(&said), "  Achieved Occupancy                    28.21 %\n");
    assert_says(text_data(&said), "  Busiest pipe                           38.7 % ALU\n");
    text_free(&said);
}

static void expect_said(const ncu_report *r, const char *words)
{
    text said = { 0 };
    ncu_say(r, &said);
    assert_says(text_data(&said), words);
    text_free(&said);
}

TEST(ncu_words)
{
    ncu_report r = report_with("", "");
    expect_said(
        &r,
        "layernorm_backward_0 takes 77 % of 42.88 us. It is bound by latency: what is busiest, the SMs' pipes, is at "
        "54 % of the peak. Its warps spend 40 % of their time waiting for a scoreboard");
    expect_said(&r, "Of the warps that an SM can hold 28 % are there.");
    r = report_with("\"35.78\"", "\"91.2\"");
    expect_said(&r, "It is bound by memory (91 % of the peak).");
    r.kernels[1].value[NCU_L2] = 88;
    expect_said(&r, "It is bound by memory (91 % of the peak) and L2 (88 % of the peak).");
    r = report_with("ALU is the highest-utilized pipeline (38.7%)",
                    "Tensor (FP) is the highest-utilized pipeline (83.0%)");
    expect_said(&r, "It is bound by tensor cores (83 % of the peak).");
    r = report_with("\"9,984\"", "\"1,009,984\"");
    expect_said(&r, "layernorm_backward_2 takes 97 % of 1042.88 us. It has too few CTAs: 14 for 132 SMs.");
    r = report_with("layernorm_backward_2", "layernorm_backward_0"); // another grid
    assert_int_equal(r.count, 2);
    expect_said(&(ncu_report){ 0 }, "Launches no kernel.");
}

#define COLUMNS "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Value\",\"Rule Name\",\"Rule Description\"\n"

/* Quotes and ends of lines inside fields, rows that are cut short, what is printed between, launches of one kernel. */
TEST(csv)
{
    ncu_report r;
    text said = { 0 };
    const char *rows =
        "ckl: \"ID\" of something\n" COLUMNS
        "\"0\",\"a\"\"b, c\nd\",\"Duration\",\"1,000.5\",\n==PROF== \"Disconnected\n"
        "\"0\",\"a\"\"b, c\nd\",\"Waves Per SM\",\"\",\"\",\"\"\r\n\"1\",\"a\"\"b, c\nd\",\"Duration\",7\n\"1\",\"cut";
    assert_ok(ncu_read(rows, &r));
    assert_int_equal(r.count, 2); // without a grid none is the same
    assert_string_equal(r.kernels[0].name, "a\"b, c\nd");
    assert_true(r.kernels[0].value[NCU_DURATION] == 1000.5 * 1e-3 && isnan(r.kernels[0].value[NCU_WAVES]));
    assert_true(r.kernels[1].value[NCU_DURATION] == 7 * 1e-3);
    text_printf(&said, "%s", COLUMNS);
    for (int i = 0; i < 3; i++)
        text_printf(&said, "\"%d\",\"k\",\"Duration\",\"5\"\n\"%d\",\"k\",\"Grid Size\",\"8\"\n", i, i);
    assert_ok(ncu_read(text_data(&said), &r));
    assert_int_equal(r.count, 1);
    assert_true(r.kernels[0].launches == 3 && r.kernels[0].value[NCU_DURATION] == 3 * 5 * 1e-3);
    assert_ok(ncu_read("PASSED\n", &r));
    assert_int_equal(r.count, 0);
    assert_int_equal(ncu_read("\"ID\",\"Kernel Name\"\n\"0\",\"k\"\n", &r), CKL_UNSUPPORTED);
    text_free(&said);
}

/* The command */

static temporary_folder folder;
static char said_path[PATH_MAX + 16], prints_path[PATH_MAX + 16], json_path[PATH_MAX + 16];
static text shown; // by the last command

static int make_folder(void **state)
{
    if (!fake_cuda_load() || temporary_folder_make(&folder))
        return -1;
    snprintf(said_path, sizeof said_path, "%s/said", folder.path);
    snprintf(prints_path, sizeof prints_path, "%s/prints", folder.path);
    snprintf(json_path, sizeof json_path, "%s/json", folder.path);
    setenv("CKL_NCU", TESTDATA "/../fake_ncu.sh", 1);
    setenv("FAKE_NCU_SAID", said_path, 1);
    setenv("FAKE_NCU_PRINTS", TESTDATA "/ncu.csv", 1);
    return 0;
}

static int remove_folder(void **state)
{
    text_free(&shown);
    return temporary_folder_remove(&folder);
}

/* Its exit status. */
static int run_command(const char *line, const char *on, const char *option)
{
    char words[3][PATH_MAX + 32];
    char *argv[] = { (char[]){ "profile" }, words[0], words[1], words[2], NULL };
    snprintf(words[0], sizeof words[0], "%s", line);
    snprintf(words[1], sizeof words[1], "--device=%s", on);
    snprintf(words[2], sizeof words[2], "%s", option);
    const capture output = capture_begin(stdout);
    int status = cli_run(&cmd_profile, *option ? 4 : 3, argv);
    text_clear(&shown);
    text_printf(&shown, "%s", capture_end(&output));
    return status;
}

/* Two launches a run: two runs are skipped, and the third is measured. */
TEST_BETWEEN(measured, make_folder, remove_folder)
{
    char option[PATH_MAX + 32];
    snprintf(option, sizeof option, "--json=%s", json_path);
    assert_int_equal(run_command("layernorm rows=480 cols=64 direction=backward dtype=bf16 seed=7", "cuda:0", option),
                     EXIT_PASSED);
    text said = { 0 };
    assert_true(read_text(said_path, &said));
    assert_says(
        text_data(&said),
        "--clock-control none --set full --launch-skip 4 --launch-count 2 --csv --print-units base --page details ");
    assert_says(text_data(&said),
                "unit_profile run layernorm rows=480 cols=64 dtype=bf16 direction=backward seed=7 --device cuda:0\n");
    assert_says(text_data(&shown), "kernel layernorm_backward_0\n  Duration                             32.896 us\n");
    assert_says(text_data(&shown), "\n\nlayernorm_backward_0 takes 77 % of 42.88 us.");
    json_t *document = json_load_file(json_path, 0, NULL);
    const json_t *kernel = json_array_get(json_object_get(document, "kernels"), 1);
    assert_true(json_real_value(json_object_get(kernel, "l2_percent")) == 53.36);
    assert_string_equal(json_string_value(json_object_get(json_object_get(kernel, "pipe"), "what")), "ALU");
    assert_non_null(json_object_get(document, "line"));
    json_decref(document);
    text_free(&said);
}

/* What the child says instead of a table, and what the command says then. */
static const struct {
    const char *prints;
    int exit_status;
    const char *sentence;
} refusals[] = {
    { "\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", EXIT_UNSUPPORTED,
      "NVreg_RestrictProfilingToAdminUsers=0" },
    { "==PROF== Connected\nckl: device: out of it\n==ERROR== The application returned an error code (5).\n",
      EXIT_DEVICE, "measured no kernel: ckl: device: out of it" },
    { "\n==ERROR== Unknown option\n", EXIT_DEVICE, "measured no kernel: ==ERROR== Unknown option" },
    { "", EXIT_DEVICE, "ended with status 0" },
};

TEST_BETWEEN(refusals, make_folder, remove_folder)
{
    setenv("FAKE_NCU_PRINTS", prints_path, 1);
    for (int i = 0; i < COUNT_OF(refusals); i++) {
        write_words(prints_path, "w", refusals[i].prints);
        assert_fails(run_command("add n=100", "cuda", ""), refusals[i].exit_status, refusals[i].sentence);
    }
    setenv("CKL_NCU", "/nowhere/ncu", 1);
    assert_int_equal(run_command("add n=100", "cuda", ""), EXIT_UNSUPPORTED);
    assert_says(ckl_error(), "install NVIDIA Nsight Compute");
    setenv("CKL_NCU", TESTDATA "/../fake_ncu.sh", 1);
    setenv("FAKE_NCU_PRINTS", TESTDATA "/ncu.csv", 1);
    assert_int_equal(run_command("add n=ten", "cuda", ""), EXIT_USAGE);
    unlink(said_path);
    assert_int_equal(run_command("add n=0", "cuda", ""), EXIT_PASSED);
    assert_int_equal(access(said_path, F_OK), -1); // no kernel: ncu was not asked
}

TEST_BETWEEN(counted, make_folder, remove_folder)
{
    assert_int_equal(run_command("transpose rows=64 cols=64 dtype=f32", "emulator:h200", "--config=sm80 lanes=32"),
                     EXIT_PASSED);
    assert_says(
        text_data(&shown),
        "kernel transpose_sm80\n  grid           2 x 1 x 1 CTAs of 256 threads, 9216 bytes of shared memory each\n");
    assert_says(text_data(&shown), "75 % of shared-memory wavefronts are conflicts");
    assert_int_equal(run_command("add n=100", "emulator:h200", "--json=/nowhere/file"), EXIT_USAGE);
    assert_int_equal(run_command("add n=100", "emulator:h200", "--config=nothing"), EXIT_USAGE);
}

/* A tool does not outlive who runs it: both hold the pipe open, and both are gone when it ends. */
TEST(child_ends)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t runner = fork();
    if (runner == 0) {
        char script[64], *argv[] = { (char[]){ "/bin/sh" }, (char[]){ "-c" }, script, NULL };
        text output = { 0 };
        int status;
        close(ends[0]);
        snprintf(script, sizeof script, "echo >&%d; exec sleep 100", ends[1]);
        _exit(tool_run(argv, &output, &status) != CKL_OK);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1); // it has begun
    kill(runner, SIGKILL);
    waitpid(runner, NULL, 0);
    struct pollfd ended = { .fd = ends[0] };
    assert_int_equal(poll(&ended, 1, 10000), 1);
    assert_true(ended.revents & POLLHUP);
    close(ends[0]);
}

/* On the path; else the last that a pattern names, as versions lie beside each other, and that can be run. */
TEST_BETWEEN(tools_are_found, make_folder, remove_folder)
{
    char found[TOOL_PATH_BYTES], pattern[PATH_MAX + 32], last[PATH_MAX + 32];
    snprintf(pattern, sizeof pattern, "%s/tool-*", folder.path);
    const char *const patterns[] = { "/no/such/folder/*", pattern, NULL };
    assert_true(tool_find("sh", patterns, found));
    assert_says(found, "/sh");
    assert_false(tool_find("no-such-tool", patterns, found));
    assert_string_equal(found, "");
    for (int version = 8; version <= 9; version++) {
        snprintf(last, sizeof last, "%s/tool-%d", folder.path, version);
        write_words(last, "w", "#!/bin/sh\n");
        assert_false(tool_find("no-such-tool", patterns, found)); // nobody may run it yet
        chmod(last, 0700);
        assert_true(tool_find("no-such-tool", patterns, found));
        assert_string_equal(found, last);
    }
}

RUN_TESTS(open_device, close_device)
