/* clock.c - the time of this machine. */
#include "lab/clock.h"

#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double clock_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double clock_lap(double *since)
{
    const double now = clock_seconds(), seconds = now - *since;
    *since = now;
    return seconds;
}

double clock_cpu_seconds(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}
