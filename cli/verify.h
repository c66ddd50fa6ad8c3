/* verify.h - the list of checks that `ckl verify` goes through, and the sums that it keeps. */
#pragma once

#include "lab/case.h"

/* What to verify; from the command line. */
typedef struct verify_request {
    const char *const *operators; // names, NULL at the end; none: all
    const char *suite;            // file of lines instead of the operators' own cases, or NULL
    const char *impl;             // only this implementation, or NULL
    int seeds;                    // of random inputs; 0: one, and with `full` five of small problems
    int shard, shards;            // only lines shard, shard + shards, ...; shards 0: all lines
    bool full;                    // every fill of large problems, too, and their second run; every kernel assembled
    int slowest;                  // so many runs that took longest are printed at the end
    const char *accepted;         // file of code that ptxas is not asked about again (lab/accepted.h), or NULL
    bool update;                  // writes that file
} verify_request;

/* Does the request include the operator; the implementation? */
bool verify_wants_operator(const verify_request *request, const char *name);
bool verify_wants_impl(const verify_request *request, const char *name);

/* Is line `number` of those requested in the shard? */
bool verify_wants_line(const verify_request *request, int64_t number);

/* One run of one case: a line, how its inputs are filled, and by which implementation. */
typedef struct verify_job {
    const char *line;
    const implementation *impl;
    operand_fill fill;
    int seed;
    bool repeat;    // run twice and compare the bits
    bool spare;     // skipped on an emulator if an earlier implementation took the line
    int left;       // runs of this line and implementation that a full request would add
    double seconds; // of one core that it took, on the last device

    /* An earlier device's result: other devices must give the same bits, except by approximate instructions. */
    const char *earlier_device; // NULL: none did
    char *earlier_plan;
    uint64_t earlier_digest;
} verify_job;

/* A rejected line of an operator. */
typedef struct verify_reject {
    const operator_test *test;
    const test_reject *reject;
} verify_reject;

typedef struct verify_list {
    const verify_request *request; // outlives the list
    verify_job *jobs;
    int job_count, job_capacity;
    verify_reject *rejects;
    int reject_count, reject_capacity;
    int64_t line_count; // that were asked for, in any shard
    arena memory;
} verify_list;

/* Everything that is asked for. Free the list also after a failure. */
ckl_status verify_list_create(const verify_request *request, verify_list *list);
void verify_list_free(verify_list *list);

typedef struct verify_sums {
    int passed, failed, skipped, declined;
    int left; // to a full request: runs and kernels
} verify_sums;

/* Runs the list on a device; failures are printed as they come. False: the device is lost, the rest was skipped. */
bool verify_run(verify_list *list, ckl_device *device, verify_sums *sums);

/*
 * Assembles the kernels that the list, the operators' lines of bench/suites and a sample of their populations get on a
 * device, once each; prints a line for each. A full request takes a larger sample, and adds the kernels of every
 * implementation and config that the list forces. Fails with the file of accepted code.
 */
ckl_status verify_assemble(const verify_list *list, const ckl_device_info *info, verify_sums *sums);
