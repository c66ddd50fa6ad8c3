/*
 * conv_roles.h - the frame of the Hopper kernels of convolution: barriers, a producer's warpgroup, consumers and their
 * mainloop.
 */
#pragma once

#include "cute/mma.h"
#include "cute/pipeline.h"
#include "cute/staging.h"
#include "cute/tma.h"
#include "operators/conv/conv_config.h"

enum { CONV_WARPGROUP = 128 };

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
    const conv_values *p;             // the kernel's parameters
    const val *beside; // if given, a predicate: the launch before is waited for at the end, not at the start
    const void *of;
} conv_roles;

/* Describes a kernel from its barriers on. */
void conv_run_roles(const conv_roles *roles);

/* wgmma of 64 rows by n columns. */
tiled_mma conv_mma_of(ckl_dtype dtype, int n);

/*
 * A ring of boxes of `rows` by some spans of columns of 16-bit elements: as wgmma reads them, (COLUMNS,ROWS,STAGES),
 * and in *sSpans as TMA writes them, (ROWS,SPAN,SPANS,STAGES).
 */
tensor conv_spans(const char *name, ckl_dtype dtype, int rows, int spans, int stages, tensor *sSpans);

/* What all consumers have: 64 rows of sums, which go through staging buffers. */
typedef struct conv_consumer {
    val index, tid;
    staged_store staged; // its first thread issues its TMA, and releases stages
    tiled_mma mma;
    tensor acc; // (MMA,MMA_M,MMA_N)
    tensor sY;  // (ROWS,COLS,BUFFERS)
} conv_consumer;

/* This warpgroup's, without sums. */
conv_consumer conv_consumer_of(tiled_mma mma);

/* Makes its sums, those of products by `all`; sY: the staging buffers of all consumers. */
void conv_begin_sums(conv_consumer *consumer, const tiled_mma *all, ckl_dtype type, tensor sY);

/* Waits for the staging buffer of box `number` of `count` of a tile. */
void conv_wait_staging(const conv_consumer *consumer, int number, int count);

/* Writes a box of sums to a staging buffer, rY as thread `tid` has those of `mma`. */
void conv_write_staging(const tiled_mma *mma, tensor rY, tensor sY, val tid);

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
