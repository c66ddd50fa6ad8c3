/* comparison.h - two files of results of the same machine and method: what became faster, what slower. */
#pragma once

#include "bench/results.h"

/*
 * The change of a case is the new median / the old one, and lies with about 95 % in an interval that is as wide as the
 * intervals of both medians together. The tolerance says what change counts.
 */
typedef enum verdict {
    VERDICT_SAME,      // the whole interval is within the tolerance
    VERDICT_FASTER,    // the whole interval is below the tolerance
    VERDICT_SLOWER,    // the whole interval is above the tolerance
    VERDICT_AMBIGUOUS, // the interval reaches across an end of the tolerance, or others used the GPU: measure again
    VERDICT_NEW,       // not in the old results, or failed there
    VERDICT_GONE,      // not in the new results
    VERDICT_FAILED,    // wrong or not run in the new results
    VERDICT_COUNT
} verdict;

extern const char *const verdict_names[VERDICT_COUNT];

typedef struct comparison_row {
    const char *line; // in the results compared
    verdict verdict;
    double old_us, new_us;
    double change;     // new / old
    double half_width; // of its interval, relative
} comparison_row;

typedef struct comparison {
    comparison_row *rows; // the new results' order, then those that are gone
    int row_count;
    int count[VERDICT_COUNT];
    double mean;       // geometric mean of the changes of the cases that both have
    double peers_mean; // the same of the peers' medians, whose code did not change: how far the machine moved; 0: none
} comparison;

/*
 * Compares cases by their lines. tolerance is relative, above 0: 0.03 ignores changes up to 3 %.
 * CKL_INVALID and a sentence where GPU, protocol, or a case's method or L2 differ. Both results outlive the comparison.
 * Free it in any case.
 */
ckl_status compare_results(const results *old, const results *new, double tolerance, comparison *out);
void comparison_free(comparison *c);

/* For people: what is not the same, one line each, and a summary. */
void comparison_report(const comparison *c);
