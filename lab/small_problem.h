/* small_problem.h - a problem like another one, small enough for the emulator, that takes the same config. */
#ifndef CKL_LAB_SMALL_PROBLEM_H
#define CKL_LAB_SMALL_PROBLEM_H

#include "lab/case.h"

/*
 * Halves the sizes in the case's line, the largest first, as long as a plan on the device would still take the config; what is
 * left over of 64 stays, so that alignments and tails do. The small case, its config forced, is the caller's to clear. False if
 * it cannot be made small; it may be the same problem if that is small already.
 */
bool small_problem(const test_case *c, const ckl_device_info *device, const char *config, test_case *small);

#endif
