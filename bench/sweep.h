/* sweep.h - many configs of one implementation against each other and the peer, in one run. */
#ifndef CKL_BENCH_SWEEP_H
#define CKL_BENCH_SWEEP_H

#include "bench/race.h"

/*
 * Plans and checks the case with every config of a file (a line each: "tile_m=128 stages=4", # for comments), with
 * impl= of the case or else the implementation that the plan takes. Prints what declines and what is wrong, then the times of
 * all others, the fastest first.
 */
ckl_status sweep_run(test_case *c, ckl_device *device, const race_options *options, const char *path);

#endif
