/* ncu.c - Nsight Compute over a child of ours. */
#include "bench/ncu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/planned.h"
#include "lab/tool.h"
#include "lab/worker.h"

enum { RUNS_SKIPPED = 2 }; // ckl run's two for the result: the third, and first timed one, is warm

const char *ncu_tool(void)
{
    static char found[TOOL_PATH_BYTES];
    static const char *const usual[] = { "/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", NULL };
    const char *named = getenv("CKL_NCU");
    if (named && *named)
        return access(named, X_OK) == 0 ? named : NULL;
    return tool_find("ncu", usual, found) ? found : NULL;
}

/* How many kernels one run launches, by a device like that one which launches none. */
static ckl_status count_launches(const test_case *c, const ckl_device_info *info, int *count)
{
    ckl_device *planned = NULL;
    text launches = { 0 };
    TRY(planned_open(info, &planned));
    ckl_status status = planned_launches(planned, c, NULL, &launches);
    *count = 0;
    for (const char *at = text_data(&launches); *at; at++)
        *count += *at == '\n';
    text_free(&launches);
    planned_close(planned);
    return status;
}

/* Why there is no report. */
static ckl_status explain(const char *output, int exit_status)
{
    const char *said = strstr(output, "\nckl: ");
    if (!said)
        said = strstr(output, "\n==ERROR==");
    if (strstr(output, "ERR_NVGPUCTRPERM"))
        FAIL(CKL_UNSUPPORTED,
             "profile: the driver lets only root read the GPU's counters (ERR_NVGPUCTRPERM): run this as root, "
             "or load its module with NVreg_RestrictProfilingToAdminUsers=0");
    if (said)
        FAIL(CKL_DEVICE_FAULT, "profile: ncu measured no kernel: %.*s", (int)strcspn(said + 1, "\n"), said + 1);
    text how = { 0 };
    worker_print_end(exit_status, &how);
    ckl_status status = status_fail(CKL_DEVICE_FAULT, "profile: ncu measured no kernel: %s", text_data(&how));
    text_free(&how);
    return status;
}

/* `ckl run` of the line on that device, from its third run on; what is printed is appended to output. */
static ckl_status run_under(const char *tool, const char *line, const char *device_id, int launches, text *output,
                            int *exit_status)
{
    char self[TOOL_PATH_BYTES] = "", skip[16], count[16];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        FAIL(CKL_INTERNAL, "profile: the path of this program is not known");
    snprintf(skip, sizeof skip, "%d", RUNS_SKIPPED * launches);
    snprintf(count, sizeof count, "%d", launches);
    const char *const argv[] = {
        tool,  "--clock-control", "none",          "--set", "full",   "--launch-skip", skip, "--launch-count",
        count, "--csv",           "--print-units", "base",  "--page", "details",       self, "run",
        line,  "--device",        device_id,       NULL
    };
    return tool_run((char *const *)argv, output, exit_status);
}

ckl_status ncu_profile(const test_case *c, const ckl_device_info *info, ncu_report *out)
{
    const char *tool = ncu_tool();
    int launches, exit_status = 0;
    *out = (ncu_report){ 0 };
    if (!tool)
        FAIL(CKL_UNSUPPORTED,
             "profile: ncu, which measures kernels on %s, is not on PATH nor in /usr/local/cuda*/bin or "
             "/opt/nvidia/nsight-compute/*: install NVIDIA Nsight Compute (package cuda-nsight-compute), or "
             "name it by CKL_NCU. `--device emulator:h200` counts without it",
             info->id);
    TRY(count_launches(c, info, &launches));
    if (!launches)
        return CKL_OK;
    text line = { 0 }, output = { 0 };
    case_print(c, &line);
    ckl_status status = run_under(tool, text_data(&line), info->id, launches, &output, &exit_status);
    if (status == CKL_OK)
        status = ncu_read(text_data(&output), out);
    if (status == CKL_OK && !out->count)
        status = explain(text_data(&output), exit_status);
    text_free(&line);
    text_free(&output);
    return status;
}
