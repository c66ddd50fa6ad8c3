/* sweep.h - many plans of one problem against each other, in one run: configs of a file, or all implementations. */
#pragma once

#include "bench/race.h"

/*
 * Plans and checks the case with every config of a file: a line each, as plans print it ("gemm sm90 tile_m=128
 * stages=4"), with # for comments. A line without names is for the case's impl=, or else for the implementation that
 * the plan takes. Prints refusals and wrong results, then the times of all others, the fastest first.
 */
ckl_status sweep_run(test_case *c, ckl_device *device, const race_options *options, const char *path);

/*
 * Plans and checks the case with every implementation that takes it, from the last of the operator's list (the
 * simplest) to the first, adds a row for each to the results, whose header knows the limits, and prints a table: time,
 * rate, how much faster than the one before and than the first.
 */
ckl_status ladder_run(test_case *c, ckl_device *device, const race_options *options, results *out);
