/* clock.h - the time of this machine, for what is measured on the host. */
#pragma once

/* Seconds of a monotonic clock. */
double clock_seconds(void);

/* Seconds since *since, which moves to now. */
double clock_lap(double *since);

/* Seconds of a core that this process has had, in all its threads. */
double clock_cpu_seconds(void);
