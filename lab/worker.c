/* worker.c - a fork, a socket between both processes, and messages that are sent whole. */
#include "lab/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

ckl_status worker_start(void (*serve)(int channel, void *user), void *user, worker_process *w)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        FAIL(CKL_INTERNAL, "worker: no channel: %s", strerror(errno));
    fflush(NULL); // or what is not yet written would be written twice
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            serve(ends[1], user);
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        FAIL(CKL_INTERNAL, "worker: no process: %s", strerror(errno));
    }
    *w = (worker_process){ pid, ends[0] };
    return CKL_OK;
}

bool worker_send(int channel, const void *message, size_t bytes)
{
    const char *at = message;
    while (bytes) {
        ssize_t sent = send(channel, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

bool worker_receive(int channel, void *message, size_t bytes)
{
    char *at = message;
    while (bytes) {
        ssize_t got = recv(channel, at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

void worker_print_end(int status, text *how)
{
    if (WIFSIGNALED(status))
        text_printf(how, "its process ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        text_printf(how, "its process ended with status %d", WEXITSTATUS(status));
}

void worker_end(worker_process *w, text *how)
{
    int status = 0;
    if (!w->pid)
        return;
    close(w->channel);
    bool ended = how && waitpid(w->pid, &status, WNOHANG) == w->pid;
    if (!ended) {
        kill(w->pid, SIGKILL);
        waitpid(w->pid, &status, 0);
    }
    if (how)
        worker_print_end(status, how);
    *w = (worker_process){ 0 };
}
