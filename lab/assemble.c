/* assemble.c - running ptxas on one kernel and reading what it says. */
#define _GNU_SOURCE // mkstemps

#include "lab/assemble.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/tool.h"

/*
 * Stored and loaded: a few values that ptxas spills outside of loops are accepted. Ragged columns of `reduce` in bf16
 * spill 76 to 84 bytes with four CTAs an SM, and take 0.82 to 0.89 of the time with three, which have none.
 */
enum { SPILL_BYTES_MAX = 96 };

const char *assemble_tool(void)
{
    static char found[TOOL_PATH_BYTES];
    static const char *const usual[] = { "/usr/local/cuda/bin/ptxas", NULL };
    return *found || tool_find("ptxas", usual, found) ? found : NULL;
}

/* A temporary file with the PTX; its path replaces the template. */
static ckl_status write_file(const text *ptx, char path[TOOL_PATH_BYTES])
{
    const char *directory = getenv("TMPDIR");
    snprintf(path, TOOL_PATH_BYTES, "%s/ckl-XXXXXX.ptx", directory && *directory ? directory : "/tmp");
    int file = mkstemps(path, 4);
    if (file < 0)
        FAIL(CKL_INTERNAL, "ptxas: cannot make %s: %s", path, strerror(errno));
    size_t written = 0;
    while (written < ptx->length) {
        ssize_t bytes = write(file, ptx->data + written, ptx->length - written);
        if (bytes <= 0)
            break;
        written += (size_t)bytes;
    }
    close(file);
    if (written == ptx->length)
        return CKL_OK;
    unlink(path);
    FAIL(CKL_INTERNAL, "ptxas: cannot write %s: %s", path, strerror(errno));
}

/* The number before a phrase, e.g. 16 of "16 bytes stack frame"; 0 if the phrase is not there. */
static int number_before(const char *output, const char *phrase)
{
    const char *at = strstr(output, phrase);
    if (!at)
        return 0;
    while (at > output && strchr(" 0123456789", at[-1]))
        at--;
    return atoi(at);
}

/* The line of output that holds a phrase, without its end. */
static void copy_line(const char *output, const char *phrase, char *line, size_t bytes)
{
    const char *at = strstr(output, phrase);
    while (at > output && at[-1] != '\n')
        at--;
    snprintf(line, bytes, "%.*s", (int)strcspn(at, "\n"), at);
}

static void judge(const char *output, int exit_status, assembled *result)
{
    *result = (assembled){ .registers = number_before(output, " registers"),
                           .stack_bytes = number_before(output, " bytes stack frame"),
                           .spill_bytes = number_before(output, " bytes spill stores") +
                                          number_before(output, " bytes spill loads") };
    if (exit_status != 0)
        snprintf(result->complaint, sizeof result->complaint, "ptxas: %.480s", output);
    else if ((result->serialised =
                  strstr(output, "(C75") != NULL)) // C7508 to C7519: wgmma waits where the source does not
        copy_line(output, "(C75", result->complaint, sizeof result->complaint);
    else if ((result->spills = result->spill_bytes > SPILL_BYTES_MAX || (result->stack_bytes && !result->spill_bytes)))
        snprintf(result->complaint, sizeof result->complaint, "%d bytes of spills, %d bytes of stack frame",
                 result->spill_bytes, result->stack_bytes);
    result->good = !*result->complaint;
}

void assemble_release(char release[ASSEMBLE_RELEASE_BYTES])
{
    const char *tool = assemble_tool();
    text output = { 0 };
    int exit_status;
    *release = '\0';
    if (tool && tool_run((char *[]){ (char *)tool, "--version", NULL }, &output, &exit_status) == CKL_OK &&
        strstr(text_data(&output), "Build "))
        copy_line(text_data(&output), "Build ", release, ASSEMBLE_RELEASE_BYTES);
    text_free(&output);
}

ckl_status assemble_ptx(const text *ptx, const char *arch, assembled *result)
{
    const char *tool = assemble_tool();
    if (!tool)
        FAIL(CKL_UNSUPPORTED, "ptxas is not on PATH and not in /usr/local/cuda/bin");
    text output = { 0 };
    char path[TOOL_PATH_BYTES] = "";
    char *argv[] = { (char *)tool, "-v", "-arch", (char *)arch, path, "-o", "/dev/null", NULL };
    int exit_status = 0;
    ckl_status status = write_file(ptx, path);
    if (status == CKL_OK) {
        status = tool_run(argv, &output, &exit_status);
        unlink(path);
    }
    if (status == CKL_OK)
        judge(text_data(&output), exit_status, result);
    text_free(&output);
    return status;
}

ckl_status assemble_kernel(const ir_kernel *kernel, assembled *result)
{
    text ptx = { 0 };
    ckl_status status = ir_print_ptx(kernel, &ptx);
    if (status == CKL_OK)
        status = assemble_ptx(&ptx, ir_target_text(kernel->target), result);
    text_free(&ptx);
    return status;
}
