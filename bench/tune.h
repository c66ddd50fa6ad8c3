/*
 * tune.h - a search for the config that is fastest on one problem: candidates go through gates, the survivors are timed
 * against what the plan takes today, generation after generation.
 *
 * The first generation is the plan's own choice, configs that the caller gives, the cheapest of the cost model, other
 * implementations' choices and neighbours of the plan's choice; the later ones are children of the best: a copy with
 * one or two fields changed. Which candidates come is a function of the seed and of the times so far. A candidate
 * passes these gates in this order:
 *
 *     the implementation takes it; it is described and verified; its kernels are not those of an earlier candidate;
 *     ptxas, where there is one, assembles it without spills; it is right on the emulator, on a small problem of the
 *     kind; the driver compiles it; it is right on the device with three seeds and fills, over poisoned outputs; it is
 *     timed, interleaved with the plan's choice
 *
 * All of that happens in worker processes (lab/worker.h): several prepare candidates, one runs them on the device. One
 * that takes longer than the wall limit, or ends, costs its candidate alone. At last the fastest are raced until their
 * medians are sure, and one wins if its interval lies below that of the plan's choice.
 */
#pragma once

#include "bench/measure.h"
#include "bench/results.h"

#define TUNE_SCHEMA "cutekernellib.tune"
enum { TUNE_VERSION = 1, TUNE_GIVEN_MAX = 256 };

/* What became of a candidate: its name in the evidence, and a sentence for the summary. */
#define TUNE_OUTCOMES(X)                                                                \
    X(TIMED, "timed")                                                                   \
    X(FINAL, "final") /* timed once more, among the best */                             \
    X(SLOW, "slow")   /* by a first look: not timed */                                  \
    X(ILLEGAL, "illegal")                                                               \
    X(DUPLICATE, "duplicate") /* of an earlier one: the same kernels, launched alike */ \
    X(NOT_DESCRIBED, "not described")                                                   \
    X(NOT_ASSEMBLED, "not assembled") /* or with spills */                              \
    X(WRONG_EMULATED, "wrong on the emulator")                                          \
    X(NOT_COMPILED, "not compiled")                                                     \
    X(WRONG, "wrong")                                                                   \
    X(FAULTY, "faulty") /* the device reports a fault */                                \
    X(HUNG, "hung")     /* killed at the wall limit */                                  \
    X(CRASHED, "crashed")

typedef enum tune_outcome {
#define X(name, words) TUNE_##name,
    TUNE_OUTCOMES(X)
#undef X
        TUNE_OUTCOME_COUNT
} tune_outcome;

extern const char *const tune_outcome_names[TUNE_OUTCOME_COUNT];

/*
 * The first line of a file of evidence. What was measured elsewhere or otherwise is not continued: gpu, driver and
 * method must agree.
 */
#define TUNE_HEADER(X)                                 \
    X(tune_header, text, gpu)                          \
    X(tune_header, text, driver)                       \
    X(tune_header, text, method) /* of taking times */ \
    X(tune_header, text, date)                         \
    X(tune_header, text, ckl_version)                  \
    X(tune_header, text, commit)

/* Every further line: one trial. Times are 0 where none was taken. */
#define TUNE_TRIAL(X)                                                                 \
    X(tune_trial, text, line)   /* the problem */                                     \
    X(tune_trial, count, seed)  /* of the search */                                   \
    X(tune_trial, count, trial) /* its number; a final has that of the candidate */   \
    X(tune_trial, count, generation)                                                  \
    X(tune_trial, count, parent) /* trial that it is a child of, or -1 */             \
    X(tune_trial, text, changed) /* fields that differ from the parent's */           \
    X(tune_trial, text, config)  /* "sm90 tile_m=128 ..." */                          \
    X(tune_trial, text, digest)  /* of its kernels and launches */                    \
    X(tune_trial, text, outcome)                                                      \
    X(tune_trial, text, reason)                                                       \
    X(tune_trial, text, timing) /* "graphs" or "events" */                            \
    RESULT_TIME(X, tune_trial)                                                        \
    X(tune_trial, real, choice_us) /* median of the plan's choice in the same race */ \
    X(tune_trial, real, seconds)   /* that the device was busy with it */

typedef struct tune_header {
    TUNE_HEADER(RESULT_MEMBER)
} tune_header;

typedef struct tune_trial {
    TUNE_TRIAL(RESULT_MEMBER)
} tune_trial;

extern const result_table tune_header_table, tune_trial_table;

/* How far a search is. */
typedef struct tune_progress {
    int done, candidates;
    double seconds;
    const char *best; // config, NULL before the first time
    double best_us, choice_us;
} tune_progress;

typedef struct tune_options {
    const char *device_id;             // as ckl_device_open() takes it
    uint64_t seed;                     //
    int candidates, generations;       // at most so many are tried, in so many generations after the first
    double seconds;                    // from the device's first candidate on: none is begun later. 0: no limit
    double wall_seconds;               // of one step of one candidate
    int workers;                       // processes that prepare
    const char *given[TUNE_GIVEN_MAX]; // configs to begin with, NULL at the end
    const char *evidence;              // a file that is continued or made; NULL: none
    const char *commit;
    void (*progress)(const tune_progress *p); // after each candidate; NULL: nobody looks

    /* What tests replace: opening the device, and taking times without a clock. NULL: ckl_device_open(), measure(). */
    ckl_status (*open)(const char *id, ckl_device **device);
    ckl_status (*measure)(const rotation *memory, ckl_stream stream, const measure_limits *limits,
                          contestant *contestants, int count, conditions *out);
} tune_options;

enum { TUNE_FINALISTS_MAX = 6 };

typedef struct tune_result {
    ckl_device_info device;
    int count[TUNE_OUTCOME_COUNT];         // candidates by outcome, without those reused
    int reused;                            // known from the evidence
    int64_t illegal;                       // children that no implementation took, drawn again
    char choice[640];                      // the plan's choice
    tune_trial finals[TUNE_FINALISTS_MAX]; // the fastest first; choice_us: of the same race
    int final_count;
    bool won;                        // finals[0] is faster than the plan's choice beyond doubt
    char dead_fields[256];           // that changed no kernel whenever they were changed alone; "" if there is none
    double seconds, opening_seconds; // in all; of them before the device's first candidate
} tune_result;

/*
 * Searches. A result without finals is CKL_OK: nothing could be timed. Fails where the case or the device cannot be
 * used, or the evidence is of something else.
 */
ckl_status tune_run(const test_case *c, const tune_options *options, tune_result *result);

/*
 * Writes the winner as a line of the tuned store (plan/tuned.h) into a file, in place of that problem's line if there
 * is one. The file is replaced as a whole; a folder that is missing is made, for this user alone.
 */
ckl_status tune_keep(const test_case *c, const tune_result *result, const char *path);
