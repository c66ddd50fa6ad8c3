/* tool.c - a child process whose words come through a pipe. */
#define _GNU_SOURCE // pipe2

#include "lab/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool find_on_path(const char *name, char found[TOOL_PATH_BYTES])
{
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at; at += *at == ':') {
        int length = (int)strcspn(at, ":");
        snprintf(found, TOOL_PATH_BYTES, "%.*s/%s", length, at, name);
        if (access(found, X_OK) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool find_by_pattern(const char *pattern, char found[TOOL_PATH_BYTES])
{
    glob_t matches;
    bool any = glob(pattern, 0, NULL, &matches) == 0;
    if (any)
        snprintf(found, TOOL_PATH_BYTES, "%s", matches.gl_pathv[matches.gl_pathc - 1]);
    globfree(&matches);
    return any && access(found, X_OK) == 0;
}

bool tool_find(const char *name, const char *const *patterns, char found[TOOL_PATH_BYTES])
{
    bool any = find_on_path(name, found);
    for (int i = 0; !any && patterns[i]; i++)
        any = find_by_pattern(patterns[i], found);
    if (!any)
        *found = '\0';
    return any;
}

/* In the new process. */
static void become(char *const *argv, int output, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        execv(argv[0], argv);
    _exit(127);
}

static void read_all(int file, text *out)
{
    char buffer[4096];
    for (ssize_t bytes; (bytes = read(file, buffer, sizeof buffer)) > 0 || (bytes < 0 && errno == EINTR);)
        text_append(out, buffer, bytes > 0 ? (size_t)bytes : 0);
}

ckl_status tool_run(char *const *argv, text *output, int *exit_status)
{
    int channel[2];
    if (pipe2(channel, O_CLOEXEC)) // or another child would keep the writing end open
        FAIL(CKL_INTERNAL, "%s: no pipe: %s", argv[0], strerror(errno));
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        become(argv, channel[1], parent);
    close(channel[1]);
    if (child > 0)
        read_all(channel[0], output);
    close(channel[0]);
    if (child < 0)
        FAIL(CKL_INTERNAL, "%s: no process: %s", argv[0], strerror(errno));
    waitpid(child, exit_status, 0);
    return CKL_OK;
}
