/* sweep.h - many configs of one problem against each other and the peer, in one run. */
#pragma once

#include "bench/race.h"

/*
 * Plans and checks the case with every config of a file: a line each, as plans print it ("gemm sm90 tile_m=128
 * stages=4"), with # for comments. A line without names is for the case's impl=, or else for the implementation that
 * the plan takes. Prints refusals and wrong results, then the times of all others, the fastest first.
 */
ckl_status sweep_run(test_case *c, ckl_device *device, const race_options *options, const char *path);
