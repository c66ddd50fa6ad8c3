/* cmd_profile.c - ckl profile: what the kernels of a problem do, and what stands out. */
#include <stdio.h>

#include "base/math.h"
#include "bench/profile_json.h"
#include "bench/results_json.h"
#include "cli/cli.h"

static const char *device_id, *config, *json_path;
static const cli_option options[] = {
    { "--device", "D", &device_id, "cuda, cuda:1, emulator:h200, emulator:l4; the best present if not given" },
    { "--config", "TEXT", &config, "what to run: an implementation, and fields of its config" },
    { "--json", "FILE", &json_path, "write the numbers, all of them, as JSON" },
};

static ckl_status count(const test_case *c, ckl_device *device, text *figures, text *words, json_t **numbers)
{
    check k;
    profile p;
    ckl_status status = check_open(c, device, NULL, &k);
    if (status == CKL_OK) {
        text_printf(figures, "plan    %s\n", ckl_plan_text(k.plan));
        status = profile_run(&k, &p);
    }
    if (status == CKL_OK) {
        profile_print(&p, figures);
        profile_say(&p, words);
        *numbers = profile_to_json(&p);
    }
    check_close(&k);
    return status;
}

static ckl_status measure(const test_case *c, const ckl_device_info *info, text *figures, text *words, json_t **numbers)
{
    ncu_report r;
    TRY(ncu_profile(c, info, &r));
    ncu_print(&r, figures);
    ncu_say(&r, words);
    *numbers = ncu_to_json(&r);
    return CKL_OK;
}

/* The device is closed before a child measures on it. */
static ckl_status profile_case(const test_case *c, text *figures, text *words, json_t **numbers)
{
    ckl_device *device;
    TRY(ckl_device_open(device_id, &device));
    ckl_device_info info = *ckl_device_properties(device);
    text_printf(figures, "device  %s (%s)\n", info.id, info.name);
    ckl_status status = info.emulated ? count(c, device, figures, words, numbers) : CKL_OK;
    ckl_device_close(device);
    return info.emulated ? status : measure(c, &info, figures, words, numbers);
}

static ckl_status profile_line(const char *line, void *user)
{
    (void)user;
    test_case c;
    text figures = { 0 }, words = { 0 }, repeat = { 0 };
    json_t *numbers = NULL;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK && config)
        status = case_config(&c, config);
    if (status == CKL_OK)
        status = profile_case(&c, &figures, &words, &numbers);
    if (status == CKL_OK)
        printf("%s\n%s\n", text_data(&figures), text_data(&words));
    if (status == CKL_OK && json_path) {
        case_print(&c, &repeat);
        json_object_set_new(numbers, "line", json_string(text_data(&repeat)));
        json_object_set_new(numbers, "says", json_string(text_data(&words)));
        status = json_write(numbers, json_path);
    }
    json_decref(numbers);
    text_free(&figures);
    text_free(&words);
    text_free(&repeat);
    case_clear(&c);
    return status;
}

static int command(int argc, char **argv)
{
    return cli_exit(cli_lines(argc, argv, NULL, profile_line, NULL));
}

CLI_COMMAND(
    profile, "LINE [options]", "what a problem's kernels do: counted by the emulator, or measured by Nsight Compute",
    "Runs one problem and says of each of its kernels what it does, then what stands out. An emulated GPU counts:\n"
    "instructions, bytes beside those that the problem has, sectors, bank conflicts and their lines, tensor FLOP,\n"
    "barrier waits; it has no time. On a GPU NVIDIA's ncu (Nsight Compute) measures: time, how busy each unit is,\n"
    "occupancy, what warps wait for. CKL_NCU names an ncu that is not in the usual places.\n"
    "Example: ckl profile gemm m=333 n=100 k=64 a=f16 --device emulator:h200");
