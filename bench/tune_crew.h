/* tune_crew.h - the workers of a search: each has at most one request, with a wall limit. */
#pragma once

#include "bench/tune_parts.h"
#include "lab/worker.h"

enum { TUNE_WORKERS_MAX = 64, TUNE_RUNNER = 0 }; // member 0 runs candidates, the others prepare them

typedef struct tune_member {
    worker_process process;
    int trial;              // that it is at; -1: none
    bool opening;           // the runner, until the problem is on its device: it takes no request yet
    double begin, deadline; // seconds of the clock
} tune_member;

typedef struct tune_crew {
    tune_work work;
    ckl_device_info device;
    char driver[64];
    tune_member members[1 + TUNE_WORKERS_MAX];
    int count;
} tune_crew;

/*
 * Starts the process that runs candidates, waits until it has opened the device, and starts those that prepare. Close
 * it also after a failure.
 */
ckl_status tune_crew_open(const test_case *c, const tune_options *options, tune_crew *crew);
void tune_crew_close(tune_crew *crew);

/* In place of a trial: nobody works; the runner is ready for requests. */
enum { TUNE_NOBODY = -1, TUNE_OPENED = -2 };

/* A member of that kind with nothing to do; -1: there is none. */
int tune_crew_idle(const tune_crew *crew, bool runner);

void tune_crew_ask(tune_crew *crew, int member, int trial, const tune_request *request);

/*
 * Waits for the next answer: its trial, who answers, and the seconds. For a worker that hung or ended the outcome says
 * so, and it is replaced. *trial may be TUNE_NOBODY or TUNE_OPENED. Fails if the device or the problem cannot be
 * opened.
 */
ckl_status tune_crew_wait(tune_crew *crew, int *trial, bool *runner, tune_reply *reply, double *seconds);
