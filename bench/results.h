/*
 * results.h - the results of a benchmark, in JSON and CSV: every struct is one list of members, from which struct,
 * writers and reader derive.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

#define RESULTS_SCHEMA "cutekernellib.bench"
enum { RESULTS_VERSION = 1, RESULT_PEERS_MAX = 10 };

typedef char result_text[640];
typedef double result_real;
typedef int64_t result_count;
typedef bool result_flag;

typedef enum result_kind { RESULT_text, RESULT_real, RESULT_count, RESULT_flag } result_kind;

typedef struct result_member {
    const char *name;
    result_kind kind;
    size_t offset;
} result_member;

typedef struct result_table {
    const result_member *rows;
    int count;
} result_table;

#define RESULT_MEMBER(owner, kind, name) result_##kind name;
#define RESULT_ROW(owner, kind, name)    { #name, RESULT_##kind, offsetof(owner, name) },

/* The run as a whole. Rates are 0 where they were not measured. */
#define RESULT_HEADER(X)                                                                   \
    X(result_header, text, gpu)                                                            \
    X(result_header, text, driver)                                                         \
    X(result_header, count, sm_count)                                                      \
    X(result_header, count, clock_max_mhz)                                                 \
    X(result_header, count, l2_bytes)                                                      \
    X(result_header, text, date) /* UTC, ISO 8601 */                                       \
    X(result_header, text, ckl_version)                                                    \
    X(result_header, text, commit)         /* "" if unknown */                             \
    X(result_header, text, protocol)       /* how times were taken */                      \
    X(result_header, real, copy_gbs)       /* measured, read and written */                \
    X(result_header, real, read_gbs)       /* measured, reading alone */                   \
    X(result_header, real, write_gbs)      /* measured, writing alone */                   \
    X(result_header, real, launch_us)      /* an empty kernel in a graph */                \
    X(result_header, real, matrix_tflops)  /* measured */                                  \
    X(result_header, text, matrix_source)  /* who reached it */                            \
    X(result_header, real, matrix8_tflops) /* of 8-bit operands */                         \
    X(result_header, text, matrix8_source)                                                 \
    X(result_header, real, limits_s)      /* that measuring these took */                  \
    X(result_header, count, busy_percent) /* of the GPU, by others, at the start */        \
    X(result_header, count, processes)    /* on the GPU when the rows began; 0: unknown */ \
    X(result_header, count, threads)      /* of the host, that check results */

/* Times are microseconds of one run. */
#define RESULT_TIME(X, owner)                                                \
    X(owner, real, median_us)                                                \
    X(owner, real, p20_us)                                                   \
    X(owner, real, p80_us)                                                   \
    X(owner, real, half_width) /* of the median's 95 % interval, relative */ \
    X(owner, count, samples)                                                 \
    X(owner, real, event_us) /* by graphs: the median by events */           \
    X(owner, real, chain_us) /* by graphs: each launch waits for the one before */

#define RESULT_PEER(X)                                                                                 \
    X(result_peer, text, name)                                                                         \
    X(result_peer, text, role) /* "best": the fastest measured, "first": without searching; "close" */ \
    X(result_peer, text, config)                                                                       \
    X(result_peer, count, tried) /* variants timed to find the best */                                 \
    RESULT_TIME(X, result_peer)                                                                        \
    X(result_peer, real, ratio) /* its time / ours: above 1 we are faster */                           \
    X(result_peer, text, fault) /* of its result; then it was not timed */

#define RESULT_CASE(X)                                                                \
    X(result_row, text, line) /* repeats the row: ckl bench LINE */                   \
    X(result_row, text, op)                                                           \
    X(result_row, text, config)    /* of our plan */                                  \
    X(result_row, text, method)    /* "events" or "graphs" */                         \
    X(result_row, text, l2)        /* "cold" or "hot" */                              \
    X(result_row, count, sets)     /* of memory, taken in turn */                     \
    X(result_row, count, launches) /* of one sample */                                \
    RESULT_TIME(X, result_row)                                                        \
    X(result_row, count, input_bits) /* of an element of the first operand */         \
    X(result_row, real, flops)                                                        \
    X(result_row, real, matrix_rate)   /* of these types, to that of 16 bits; 0: 1 */ \
    X(result_row, real, bytes)         /* compulsory */                               \
    X(result_row, real, bytes_written) /* of them */                                  \
    X(result_row, real, tflops)                                                       \
    X(result_row, real, gbs)                                                          \
    X(result_row, real, limit_us)                                                     \
    X(result_row, text, limit)        /* "matrix", "memory" or "launch" */            \
    X(result_row, real, of_limit)     /* limit / time */                              \
    X(result_row, flag, beyond_limit) /* faster than can be: do not believe it */     \
    X(result_row, flag, shared)       /* others came to the GPU meanwhile */          \
    X(result_row, real, clock_mhz)                                                    \
    X(result_row, real, clock_min_mhz)                                                \
    X(result_row, real, clock_max_mhz)                                                \
    X(result_row, real, power_w)                                                      \
    X(result_row, real, temperature_c)                                                \
    X(result_row, count, processes)    /* that computed on the GPU; 0: unknown */     \
    X(result_row, text, clock_reasons) /* what kept the clock down, "" for nothing */ \
    X(result_row, real, wait_s)        /* what the row took: waiting for ahead.h */   \
    X(result_row, real, plan_s)        /* planning */                                 \
    X(result_row, real, data_s)        /* operands, their copies on the device */     \
    X(result_row, real, check_s)       /* our run and its comparison */               \
    X(result_row, real, peers_s)       /* preparing, choosing and checking peers */   \
    X(result_row, real, choosing_s)    /* of it: their fastest variants */            \
    X(result_row, real, timing_s)      /* measuring: the four below, and the host */  \
    X(result_row, real, prepare_s)     /* of it: estimates and graphs */              \
    X(result_row, real, warm_s)        /* until the clock was steady */               \
    X(result_row, real, sample_s)      /* sampling */                                 \
    X(result_row, real, again_s)       /* chains of launches, and events */           \
    X(result_row, real, second_plan_us)                                               \
    X(result_row, real, run_host_us) /* of the caller's thread, per call */           \
    X(result_row, count, slices)                                                      \
    X(result_row, count, slices_compared)                                             \
    X(result_row, real, error_of_bound) /* largest error / its bound */               \
    X(result_row, text, fault)          /* of our result; then nothing was timed */   \
    X(result_row, text, note)           /* why there is no peer */

typedef struct result_header {
    RESULT_HEADER(RESULT_MEMBER)
} result_header;

typedef struct result_peer {
    RESULT_PEER(RESULT_MEMBER)
} result_peer;

typedef struct result_row {
    RESULT_CASE(RESULT_MEMBER)
    result_peer peers[RESULT_PEERS_MAX];
    int peer_count;
} result_row;

typedef struct results {
    result_header header;
    result_row *rows;
    int row_count;
} results;

extern const result_table result_header_table, result_row_table, result_peer_table;

/* Copies a text, cut where it is too long. */
void result_set(char *to, const char *from);

/* Appends an empty row and returns it; valid until the next one. */
result_row *results_add(results *r);
void results_free(results *r);

/* The fastest peer of that role, or NULL if none was timed. */
const result_peer *result_find_peer(const result_row *row, const char *role);

/* If the program is stopped in between, the file is as it was before. */
ckl_status results_write_json(const results *r, const char *path);
ckl_status results_write_csv(const results *r, const char *path);

/* Reads what results_write_json() wrote; unknown members are left out, missing ones are 0. Free it in any case. */
ckl_status results_read_json(const char *path, results *out);

/* For people. */
void report_header(const result_header *h);
void report_row(const result_row *row);
void report_end(const results *r);
