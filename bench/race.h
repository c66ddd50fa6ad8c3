/* race.h - one row of a benchmark: our plan, checked, against every peer of the operator, checked as well. */
#pragma once

#include "bench/measure.h"
#include "bench/peers/peers.h"
#include "bench/results.h"

typedef struct race_options {
    ckl_stream stream; // of everything that is measured and compared: streams differ in how fast they launch kernels
    bool hot;          // one set of memory, which stays in L2 as far as it fits
    bool no_peer;      // ours alone
    const peer *only;  // this peer; NULL: all of the operator
    measure_limits limits;
} race_options;

/* Of an element of the first operand: the matrix units have a rate for 8 bits and one for more. */
int race_input_bits(const test_case *c);

/* Fills in what identifies a row. */
void race_describe(const test_case *c, const race_options *options, result_row *row);

/* Fills in how it was measured, ours, and the rates of that, for a row with its operations and bytes. */
void race_note(const rotation *memory, const conditions *seen, const contestant *ours, result_row *row);

/*
 * Fills in a row but its limit. The best of a peer is the fastest measured of its finalists. A wrong result of ours is
 * CKL_OK with row->fault and no times; the same for a peer. images: those of ahead.h, which are its own from now on;
 * NULL: it makes them.
 */
ckl_status race_run(const test_case *c, ckl_device *device, const race_options *options, operand_images *images,
                    result_row *row);

/* Runs the variants of every peer of a case once, without measuring: what they keep on disk serves later processes. */
ckl_status race_run_peers(const test_case *c, ckl_device *device, const race_options *options);
