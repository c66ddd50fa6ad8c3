/* entrant.h - the entrants of a race on one problem, ours and peers, as contestants of measure(). */
#pragma once

#include "bench/measure.h"
#include "bench/peers/peers.h"

/* A plan of ours for a case. */
typedef struct own_entrant {
    const test_case *c;
    const ckl_plan *plan;
} own_entrant;

/* One variant of a peer. */
typedef struct peer_entrant {
    const peer *peer;
    const peer_problem *problem;
    int variant;
} peer_entrant;

/* The entrant must outlive the contestant. */
contestant own_contestant(const own_entrant *e);
contestant peer_contestant(const peer_entrant *e);

/* The variants of a peer that race. */
enum { PEER_FINALISTS = 3 };
typedef struct peer_finalists {
    int variants[PEER_FINALISTS + 1];
    int count;
    int tried, failed; // of all variants: those that ran, and those that cannot; ckl_error() says why the last cannot
} peer_finalists;

/*
 * The fastest of a brief race between variant 0 and the fastest of a glance at each. Glances end after 16 times a
 * race's sampling time, a second at most: then some variants were not looked at, but the first few always are. A
 * variant that its first launch shows to be far slower than the fastest so far is not launched again.
 */
ckl_status peer_choose_finalists(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                                 double seconds, peer_finalists *out);

/* Runs a peer once on the check's own memory and compares its result as ours is; check_untouched() is for the end. */
ckl_status peer_check(check *k, const peer_entrant *e, check_result *result);
