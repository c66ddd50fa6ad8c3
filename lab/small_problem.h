/* small_problem.h - a problem like another one, small enough for the emulator, that takes the same config. */
#pragma once

#include "lab/case.h"

/*
 * Halves the sizes in the case's line, the largest first, while a plan on the device still takes the config. Remainders
 * by 64 stay, and with them alignments and tails. The caller clears the small case, whose config is forced. False if it
 * cannot be made small; it may be the same problem if that is small already.
 */
bool small_problem(const test_case *c, const ckl_device_info *device, const char *config, test_case *small);
