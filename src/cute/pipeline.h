/*
 * pipeline.h - a ring of stages in shared memory between a producer (TMA) and consumers, guarded by pairs of mbarriers.
 *
 * full[s] completes when the producer's bytes of stage s have arrived, empty[s] when every consumer has released it.
 * Phases: a barrier's k-th completion has parity (k-1)&1. A consumer starts at parity 0; a producer at parity 1, which
 * a fresh barrier counts as completed already: every stage starts empty.
 */
#pragma once

#include "cute/tensor.h"

typedef struct pipeline {
    int stages;
    int full_arrivals, empty_arrivals;
    int64_t full, empty; // byte offsets of the barriers in shared memory
} pipeline;

/* Where one role stands in the ring. */
typedef struct pipeline_state {
    val stage, parity; // u32 variables
    int stages;
} pipeline_state;

/* Allocates the barriers. full_arrivals: producers of a stage; empty_arrivals: releases that free one. */
pipeline make_pipeline(const char *name, int stages, int full_arrivals, int empty_arrivals);

/* One thread initialises; fence_mbarrier_init() and a CTA or cluster barrier must follow. */
void pipeline_init(const pipeline *p);

pipeline_state producer_state(const pipeline *p);
pipeline_state consumer_state(const pipeline *p);
void pipeline_advance(pipeline_state *s);
void pipeline_advance_by(pipeline_state *s, val steps);

void pipeline_wait_empty(const pipeline *p, const pipeline_state *s);        // producer
void pipeline_expect(const pipeline *p, const pipeline_state *s, val bytes); // producer: arrives and expects bytes
void pipeline_arrive(const pipeline *p, const pipeline_state *s); // producer that stores: its stores have been made
val pipeline_full_barrier(const pipeline *p, const pipeline_state *s);     // for tma_load()
void pipeline_wait_full(const pipeline *p, const pipeline_state *s);       // consumer
void pipeline_release(const pipeline *p, val stage);                       // consumer: one arrival in this CTA
void pipeline_release_at(const pipeline *p, val stage, val empty_of_peer); // ... in a peer; see pipeline_peer()
val pipeline_peer(const pipeline *p, val rank);                            // the empty barriers of CTA `rank`
