/*
 * warm_ahead.h - a process that compiles the kernels of all rows into the caches on disk while the first rows are
 * measured.
 *
 * Not threads of this process: a thread that loads a kernel holds the driver's locks and waits for the GPU, and what is
 * being timed would wait with it. The process ends with this one at the latest.
 */
#pragma once

#include <sys/types.h>

#include "bench/suites.h"

/*
 * Starts `ckl warm` of some lines (NULL at the end) and then all rows, on so many threads at a low priority; 0: it
 * cannot be started, and every row compiles for itself.
 */
pid_t warm_ahead_start(const char *const *first, const bench_suites *work, const char *device_id, int threads);

/* Ends it. 0 is allowed. */
void warm_ahead_end(pid_t process);
