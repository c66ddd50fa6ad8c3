/*
 * conv_roles.h - the frame of the Hopper kernels of convolution: barriers, a producer's warpgroup, consumers and their
 * mainloop.
 */
#pragma once

#include "cute/pipeline.h"
#include "cute/tma.h"

/* What a kernel does in its roles; `of` is the kernel's. Functions that are NULL do nothing. */
typedef struct conv_roles {
    int consumers;                    // warpgroups behind the producer's
    const tma_copy *maps[3];          // those that are prefetched
    const pipeline *ring;             // of boxes
    void (*barriers)(const void *of); // one thread makes those beside the ring
    void (*prepare)(const void *of);  // all threads, before the first barrier
    void (*load)(const void *of);     // one thread
    void (*assist)(const void *of);   // the producer's warpgroup beside it
    void (*consume)(const void *of);  // the consumers
    const val *beside; // if given, a predicate: the launch before is waited for at the end, not at the start
    const void *of;
} conv_roles;

/* Describes a kernel from its barriers on. */
void conv_run_roles(const conv_roles *roles);

/* A consumer's products of a stage, which the mainloop commits; not_first: a predicate, false where sums begin. */
typedef struct conv_products {
    const pipeline *ring;
    val releases; // predicate: this thread releases stages
    void (*multiply)(const void *kernel, const void *role, val stage, val not_first);
    const void *kernel, *role;
} conv_products;

/*
 * Goes through the stages of a tile; each is released once the wgmmas of the next are issued. Those of the last one,
 * which it gives, are under way: what comes before conv_mainloop_end() is done meanwhile.
 */
val conv_mainloop_begin(const conv_products *products, val k_tiles, pipeline_state *stage);
void conv_mainloop_end(const conv_products *products, val last);
