/* check.h - one case on one device: plan, memory, run, and comparison of the whole result with the reference. */
#pragma once

#include "lab/operands.h"

/* A case that is ready to run; {0} is none. */
typedef struct check {
    const test_case *c;
    ckl_device *device;
    ckl_stream stream; // not the default one
    bool owns_stream;
    ckl_plan *plan;
    double plan_seconds; // that planning took
    operand_images images;
    operand_set set;
} check;

typedef struct check_result {
    bool passed;
    int64_t slices, slices_compared; // large problems compare a sample: the first, the last and random ones between
    int64_t elements, elements_bad;  // compared, and out of bounds
    int64_t elements_open;           // of which the definition says nothing
    double error_max;                // largest |got - expected|
    double ratio_max;                // largest |got - expected| / bound; at most 1 if passed
    bool exact;                      // equality was demanded, not a bound
    char fault[1024];                // what is wrong; "" if passed
} check_result;

/*
 * Plans the case, makes its memory and fills it. The case must outlive the check; stream NULL: its own. Close it also
 * after a failure.
 */
ckl_status check_open(const test_case *c, ckl_device *device, ckl_stream stream, check *k);
void check_close(check *k);

/* The same with images that exist. The check takes them over, also after a failure, and leaves none behind. */
ckl_status check_open_on(const test_case *c, ckl_device *device, ckl_stream stream, operand_images *images, check *k);

/*
 * Plans again, after an implementation or config was written into the case, for the same memory and inputs. With
 * images.keep_references references are computed once.
 */
ckl_status check_replan(check *k);

/* Useful operations of one run, of these inputs where it depends on them. */
double check_flops(const check *k);

/* Enqueues one run on the check's memory. */
ckl_status check_enqueue(const check *k);

/* Writes all operands, runs once, waits, and compares. A wrong result is CKL_OK with result->passed false. */
ckl_status check_run(check *k, check_result *result);

/* The same without the check of inputs: check_untouched() does that at the end of several runs. */
ckl_status check_run_outputs(check *k, check_result *result);

/*
 * After check_run(), for another plan of the same problem: the same with the inputs in memory, whose contents are not
 * checked.
 */
ckl_status check_run_plan(check *k, const ckl_plan *plan, check_result *result);

/*
 * After check_run(): runs again over another poison, which is also in the plan's workspace wherever that is not zero.
 * The result must be the same bit for bit; of an order-dependent implementation it must be right again.
 */
ckl_status check_run_again(check *k, check_result *result);

/* Compares what operand_set_read() read, or its outputs alone; for callers that ran the case themselves. */
void check_compare(check *k, check_result *result);
void check_compare_outputs(check *k, check_result *result);

/* Reads the inputs back: no run since they were written may have changed them. */
ckl_status check_untouched(check *k, check_result *result);
