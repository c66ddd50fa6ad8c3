/* fuzz_workers.h - the programs of `ckl fuzz`, shared out to processes: a crash or a lost GPU costs one of them. */
#pragma once

#include "lab/fuzz/fuzz.h"

typedef struct fuzz_request {
    fuzz_set set;
    int64_t first, count; // programs; `first` begins a batch unless count is 1
    const char *device;   // to compare with the emulator; NULL: schedules and models of the emulator alone
    const char *folder;   // for a file of each finding, or NULL
    int workers;
    double seconds_max;  // no batch begins later; 0: no limit
    int64_t shorten_max; // findings that are made short; later ones are printed as they are
} fuzz_request;

typedef struct fuzz_sums {
    int64_t programs[FUZZ_KIND_COUNT]; // executed
    int64_t alone;                     // of them, only by the emulated H200: no other device takes their target
    int64_t differences;
} fuzz_sums;

/* Checks all programs, printing findings and progress as they come. */
ckl_status fuzz_run(const fuzz_request *request, fuzz_sums *sums);
