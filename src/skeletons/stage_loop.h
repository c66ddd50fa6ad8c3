/* stage_loop.h - the mainloop of kernels that copy tiles by cp.async into a ring of stages, ahead of their products. */
#pragma once

#include "ir/build.h"

/*
 * What a kernel does with a stage; `of` is the kernel's. For all threads of the CTA. `load` starts this thread's copies
 * of a tile, which may lie past the last one; `store` moves what came through registers to shared memory, NULL if
 * nothing does.
 */
typedef struct stage_work {
    int stages; // at least 2
    void (*load)(const void *of, val tile, val stage);
    void (*store)(const void *of, val stage);
    void (*multiply)(const void *of, val stage);
    const void *of;
} stage_work;

/* Loads, stores and multiplies tiles 0 to tiles - 1 (u32) in order. At the end no copy is in flight. */
void stage_loop(const stage_work *work, val tiles);
