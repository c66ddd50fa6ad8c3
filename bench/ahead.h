/*
 * ahead.h - threads that walk ahead over the rows of a run: they draw the operands of the next rows and compute the
 * references that results will be compared with, while the GPU is busy with a row before.
 *
 * They have a low priority and leave a core to the thread that enqueues what is timed. Rows that are ready but not
 * taken are bounded in bytes.
 */
#pragma once

#include "lab/operands.h"

typedef struct ahead ahead;

typedef struct ahead_options {
    const ckl_device_info *device;
    int cores;        // of all threads together, 0: of all but one that the process may use
    double bytes_max; // of images that wait; a row alone may have more. 0: a quarter of what is free, 8 GB at most
} ahead_options;

/* The case of row number i; NULL after the last one. It must not change until ahead_close(). */
typedef const test_case *(*ahead_case)(const void *rows, int i);

/* Begins with the first row. */
ahead *ahead_open(ahead_case of, const void *rows, const ahead_options *options);

/*
 * Waits for the next row and hands its images over, to be freed also after a failure; making them may fail, with a
 * sentence. Rows are taken in order, by one thread, none after the last. seconds: how long it waited.
 */
ckl_status ahead_take(ahead *a, operand_images *images, double *seconds);

/* Waits for the rows that threads have begun, and begins no more. NULL is allowed. */
void ahead_close(ahead *a);

/* The same with the caller's threads; images must be freed also after a failure. */
ckl_status ahead_make(const test_case *c, const ckl_device_info *device, operand_images *images);
