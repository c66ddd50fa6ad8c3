/* tune_crew.c - starting workers, waiting for the first answer or the first that is late, replacing those that end. */
#include "bench/tune_crew.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "lab/clock.h"

static const double OPEN_SECONDS = 300; // to open the device, fill the operands and compute the references

/* Until the channel can be read; false after so many seconds. */
static bool wait_for(int channel, double seconds)
{
    struct pollfd wanted = { .fd = channel, .events = POLLIN };
    return poll(&wanted, 1, (int)(1e3 * seconds)) > 0;
}

/* Receives the runner's hello; fails if it ends or is late. */
static ckl_status hear(tune_crew *crew, double seconds, tune_hello *hello)
{
    tune_member *m = &crew->members[TUNE_RUNNER];
    bool said = wait_for(m->process.channel, seconds) && worker_receive(m->process.channel, hello, sizeof *hello);
    if (said && hello->status == CKL_OK)
        return CKL_OK;
    text how = { 0 };
    worker_end(&m->process, &how);
    ckl_status status = said ? status_fail(hello->status, "%s", hello->sentence)
                             : status_fail(CKL_DEVICE_FAULT, "tune: opening the problem: %s", text_data(&how));
    text_free(&how);
    return status;
}

/* Waits until it has the device; the problem may still be opening. */
static ckl_status start_runner(tune_crew *crew)
{
    tune_member *m = &crew->members[TUNE_RUNNER];
    tune_hello hello;
    *m = (tune_member){ .trial = -1, .opening = true };
    TRY(worker_start(tune_serve_trials, &crew->work, &m->process));
    TRY(hear(crew, OPEN_SECONDS, &hello));
    m->deadline = clock_seconds() + OPEN_SECONDS;
    crew->device = hello.device;
    memcpy(crew->driver, hello.driver, sizeof crew->driver);
    return CKL_OK;
}

static ckl_status end_opening(tune_crew *crew, bool late)
{
    tune_hello hello;
    TRY(hear(crew, late ? 0 : OPEN_SECONDS, &hello));
    crew->members[TUNE_RUNNER].opening = false;
    return CKL_OK;
}

static ckl_status start(tune_crew *crew, int member)
{
    if (member == TUNE_RUNNER)
        return start_runner(crew);
    crew->members[member] = (tune_member){ .trial = -1 };
    return worker_start(tune_serve_preparing, &crew->work, &crew->members[member].process);
}

ckl_status tune_crew_open(const test_case *c, const tune_options *options, tune_crew *crew)
{
    *crew = (tune_crew){ .work = { .c = c, .options = options } };
    crew->work.device = &crew->device;
    int workers = (int)min_i64(max_i64(options->workers, 1), TUNE_WORKERS_MAX);
    for (; crew->count < 1 + workers; crew->count++)
        TRY(start(crew, crew->count));
    return CKL_OK;
}

void tune_crew_close(tune_crew *crew)
{
    for (int i = 0; i < COUNT_OF(crew->members); i++)
        worker_end(&crew->members[i].process, NULL);
}

int tune_crew_idle(const tune_crew *crew, bool runner)
{
    for (int i = runner ? TUNE_RUNNER : 1; i < (runner ? 1 : crew->count); i++)
        if (crew->members[i].trial < 0 && !crew->members[i].opening)
            return i;
    return -1;
}

void tune_crew_ask(tune_crew *crew, int member, int trial, const tune_request *request)
{
    tune_member *m = &crew->members[member];
    m->trial = trial;
    m->begin = clock_seconds();
    m->deadline = m->begin + crew->work.options->wall_seconds * (request->job == JOB_FINAL ? 1 + request->count : 1);
    worker_send(m->process.channel, request, sizeof *request); // if it has gone, waiting finds that
}

/* The member that answers or has ended; else the one that is late; -1: nobody works. */
static int next(const tune_crew *crew, bool *late)
{
    struct pollfd wanted[1 + TUNE_WORKERS_MAX];
    int members[1 + TUNE_WORKERS_MAX], count = 0, soonest = -1;
    for (int i = 0; i < crew->count; i++) {
        if (crew->members[i].trial < 0 && !crew->members[i].opening)
            continue;
        members[count] = i;
        wanted[count++] = (struct pollfd){ .fd = crew->members[i].process.channel, .events = POLLIN };
        if (soonest < 0 || crew->members[i].deadline < crew->members[soonest].deadline)
            soonest = i;
    }
    *late = false;
    if (!count)
        return -1;
    double left = crew->members[soonest].deadline - clock_seconds();
    poll(wanted, (nfds_t)count, left > 0 ? (int)(1e3 * left) + 1 : 0);
    for (int i = 0; i < count; i++)
        if (wanted[i].revents)
            return members[i];
    *late = true;
    return soonest;
}

/* Answers for a member that is late or has ended. */
static void speak_for(tune_crew *crew, int member, bool late, tune_reply *reply)
{
    text how = { 0 };
    *reply = (tune_reply){ 0 };
    if (late)
        text_printf(&how, "killed after %.3g s", clock_seconds() - crew->members[member].begin);
    worker_end(&crew->members[member].process, late ? NULL : &how);
    tune_refuse(reply, late ? TUNE_HUNG : TUNE_CRASHED, text_data(&how));
    text_free(&how);
}

ckl_status tune_crew_wait(tune_crew *crew, int *trial, bool *runner, tune_reply *reply, double *seconds)
{
    bool late;
    int member = next(crew, &late);
    *trial = member < 0 ? TUNE_NOBODY : TUNE_OPENED;
    if (member < 0)
        return CKL_OK;
    tune_member *m = &crew->members[member];
    if (m->opening)
        return end_opening(crew, late);
    bool said = !late && worker_receive(m->process.channel, reply, sizeof *reply);
    *trial = m->trial;
    *runner = member == TUNE_RUNNER;
    *seconds = clock_seconds() - m->begin;
    m->trial = -1;
    if (!said)
        speak_for(crew, member, late, reply);
    else if (reply->outcome == TUNE_FAULTY)
        worker_end(&m->process, NULL);
    return m->process.pid ? CKL_OK : start(crew, member);
}
