/* ladder.h - all implementations of an operator on one problem, each against the one before. */
#pragma once

#include "bench/race.h"

/*
 * Plans and checks the case with every implementation that takes it, from the last of the operator's list (the
 * simplest) to the first, races them in one run, adds a row for each to the results, whose header knows the limits, and
 * prints a table: time, rate, how much faster than the one before and than the first.
 */
ckl_status ladder_run(test_case *c, ckl_device *device, const race_options *options, results *out);
