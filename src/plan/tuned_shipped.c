/*
 * tuned_shipped.c - the lines of the tuned store that are built in; scripts/ship_tuned.sh writes this file from those that
 * `ckl tune` has written.
 */
#include "plan/tuned.h"

// clang-format off
const char *const tuned_shipped[] = {
    NULL
};
