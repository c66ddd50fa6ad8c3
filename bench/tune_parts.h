/* tune_parts.h - what the files of the tuner share: search space, evidence, and the workers' gates. */
#pragma once

#include "bench/tune.h"
#include "base/random.h"

enum { TUNE_CONFIG_BYTES = 640, TUNE_REASON_BYTES = 512 };

/* Search space (tune_space.c) */

/* A config that may be tried. Texts live in the space's memory. */
typedef struct tune_candidate {
    const char *config;  // "sm90 tile_m=128 ...": every field
    const char *changed; // fields that differ from the parent's, "" without one
    int parent;          // trial, or -1
    bool legal;
    const char *reason; // why not
} tune_candidate;

typedef struct tune_space {
    const operator_info *op;
    const ckl_device_info *device;
    const void *desc, *view; // view: what implementations take
    arena memory;
    uint64_t random;   // random.h
    const char **seen; // configs that were drawn
    int seen_count, seen_room;
    int64_t illegal;
} tune_space;

ckl_status tune_space_open(const test_case *c, const ckl_device_info *device, uint64_t seed, tune_space *space);
void tune_space_close(tune_space *space);

/* The first generation: the plan's choice, then what was given, legal or not. Returns how many, at most `most`. */
ckl_status tune_first(tune_space *space, const char *const *given, int most, tune_candidate *out, int *count);

/* A legal config that was not seen before: a parent's with one or two fields changed. False if none was found. */
bool tune_child(tune_space *space, const char *parent, int parent_trial, tune_candidate *out);

/* Evidence (tune_evidence.c) */

typedef struct tune_evidence {
    FILE *file; // NULL: none is kept
    tune_trial *known;
    int known_count;
} tune_evidence;

/*
 * Reads what a file knows of the line, and opens it for more. header: what is measured now, written if the file is new.
 * CKL_INVALID with file, line and member if the file is no evidence, or of another device, driver or method.
 */
ckl_status tune_evidence_open(const char *path, const tune_header *header, const char *line, tune_evidence *e);
void tune_evidence_close(tune_evidence *e);

/* A finished trial with the same config and digest; NULL if there is none. */
const tune_trial *tune_evidence_find(const tune_evidence *e, const char *config, const char *digest);
ckl_status tune_evidence_add(tune_evidence *e, const tune_trial *trial);

/* Workers (tune_prepare.c, tune_trial.c) */

typedef enum tune_job { JOB_DESCRIBE, JOB_BUILD, JOB_TRIAL, JOB_FINAL } tune_job;

typedef struct tune_request {
    tune_job job;
    int count; // of configs: more than one only in the final
    char config[TUNE_FINALISTS_MAX][TUNE_CONFIG_BYTES];
} tune_request;

typedef struct tune_reply {
    tune_outcome outcome; // TUNE_TIMED: passed
    char reason[TUNE_REASON_BYTES];
    uint64_t digest;
    bool graphs;
    summary time[TUNE_FINALISTS_MAX + 1]; // of the configs, then of the plan's choice
} tune_reply;

/*
 * What the process that runs candidates sends first: when it has opened the device, and again when the problem is
 * ready.
 */
typedef struct tune_hello {
    ckl_status status;
    char sentence[TUNE_REASON_BYTES];
    ckl_device_info device;
    char driver[64];
} tune_hello;

/* What a worker is forked with. */
typedef struct tune_work {
    const test_case *c;
    const tune_options *options;
    const ckl_device_info *device; // of the hello; NULL in the process that says it
} tune_work;

/* worker_start() takes these; user is a tune_work. */
void tune_serve_preparing(int channel, void *user);
void tune_serve_trials(int channel, void *user);

/* Says why a candidate did not pass; a failure of the thread if no reason is given. */
void tune_refuse(tune_reply *reply, tune_outcome outcome, const char *reason);
