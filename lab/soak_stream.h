/* soak_stream.h - one stream of a soak: the problem that it has, and its rounds. */
#pragma once

#include "lab/check.h"
#include "lab/soak.h"

/* What a stream did since it was last asked. */
typedef struct soak_done {
    int64_t problems, refused, rounds, runs, graphs;
} soak_done;

typedef struct soak_stream {
    ckl_device *device;
    ckl_stream stream;
    bool broken; // takes no problem: it could not be made

    const char *stage; // what it is at, NULL: it has no problem; read by the thread that watches
    double since;      // when that began

    bool open; // has a problem
    int64_t number;
    char line[SOAK_LINE_BYTES], plan[SOAK_LINE_BYTES]; // plan: "" until there is one
    test_case c;
    check k;
    uint64_t random;
    uint64_t digest;    // of the first run
    double run_seconds; // that it took, beside what other streams do; 0 before
    int64_t rounds;     // left
    int64_t burst;      // runs of this round
    void *graph;        // of graph_runs runs, or NULL
    int64_t graph_runs;
    bool by_graph; // this round

    char fault[1024]; // "": none
    bool lost;        // with the device
    soak_done done;
} soak_stream;

/* What it is doing; NULL: it has no problem. Any thread may ask. */
const char *soak_stream_stage(const soak_stream *s);

/* How long its thread has been doing that; 0 where the thread is at another stream. Any thread may ask. */
double soak_stream_busy_seconds(const soak_stream *s);

/* A stream of the device. Close it also after a failure, which is in `fault`, as with all that follow. */
void soak_stream_open(soak_stream *s, ckl_device *device);
void soak_stream_close(soak_stream *s);

/* Draws problem number `number` and runs it once against the reference; open if that passed. */
void soak_stream_take(soak_stream *s, const soak_options *options, int64_t number);

/* Enqueues a round; waits for it and judges it. The last round closes the problem. */
void soak_stream_enqueue(soak_stream *s);
void soak_stream_settle(soak_stream *s);
