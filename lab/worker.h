/*
 * worker.h - processes that answer requests: a crash or hang costs one request, and is named.
 *
 * A worker is forked and runs a function with one end of a channel. The process that starts workers must not have used
 * OpenMP or opened a GPU before: neither survives a fork.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/text.h"

/* {0} is none. */
typedef struct worker_process {
    pid_t pid;
    int channel; // readable when there is an answer, or when the worker has ended
} worker_process;

/* serve(channel, user) runs in the new process, which ends when it returns or when this one ends. */
ckl_status worker_start(void (*serve)(int channel, void *user), void *user, worker_process *w);

/* Sends the whole message, from either end; false if the other end has gone. */
bool worker_send(int channel, const void *message, size_t bytes);
bool worker_receive(int channel, void *message, size_t bytes);

/*
 * Kills the worker if it still runs, and waits for its end. Appends how it ended by itself: "its process ended by
 * signal 11 (...)".
 */
void worker_end(worker_process *w, text *how);

/* Appends the same of a process that waitpid() told about. */
void worker_print_end(int status, text *how);
