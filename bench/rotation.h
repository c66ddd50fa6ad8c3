/* rotation.h - copies of a case's device memory, taken in turn so that every run finds the L2 cache cold. */
#pragma once

#include "lab/check.h"

/* Set 0 is the check's own memory; the others live in one pool. */
typedef struct rotation {
    ckl_device *device;
    operand_set *sets;
    int count;
    void *pool;
    void *scratch; // twice the L2 cache
    size_t scratch_bytes;
    bool flush; // overwrite scratch before a sample: the sets together are too small to evict each other from L2
} rotation;

/*
 * Copies set 0, which must hold the inputs, until all sets but one fill twice the L2 cache; at least two sets, within
 * 60 % of the device's memory. hot: set 0 only. Free it also after a failure.
 */
ckl_status rotation_create(const check *k, bool hot, rotation *r);
void rotation_free(rotation *r);
