/* warm_ahead.c - this program once more, with a pipe for its suite. */
#define _GNU_SOURCE // pipe2

#include "bench/warm_ahead.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_NICE = 10 };

/* In the new process: calls that are safe there alone. */
static void become_warm(int lines, const char *device_id, const char *threads)
{
    const char *const arguments[] = {
        "ckl", "warm", "--suite", "-", "--threads", threads, "--device", device_id, NULL
    };
    int nowhere = open("/dev/null", O_WRONLY);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpriority(PRIO_PROCESS, 0, WARM_NICE);
    dup2(lines, STDIN_FILENO);
    dup2(nowhere, STDOUT_FILENO); // what fails, the row says
    dup2(nowhere, STDERR_FILENO);
    execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
    _exit(1);
}

static void write_lines(const char *const *first, const bench_suites *work, int to)
{
    FILE *file = fdopen(to, "w");
    if (!file) {
        close(to);
        return;
    }
    for (; *first; first++)
        fprintf(file, "%s\n", *first);
    for (int i = 0; i < work->row_count; i++) {
        text line = { 0 };
        case_print(&work->rows[i].c, &line);
        fprintf(file, "%s\n", text_data(&line));
        text_free(&line);
    }
    fclose(file);
}

pid_t warm_ahead_start(const char *const *first, const bench_suites *work, const char *device_id, int threads)
{
    int ends[2];
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    pid_t process = fork();
    if (process == 0)
        become_warm(ends[0], device_id, count);
    close(ends[0]);
    if (process < 0) {
        close(ends[1]);
        return 0;
    }
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); // it may have ended
    write_lines(first, work, ends[1]);
    signal(SIGPIPE, before);
    return process;
}

void warm_ahead_end(pid_t process)
{
    if (!process)
        return;
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
}
