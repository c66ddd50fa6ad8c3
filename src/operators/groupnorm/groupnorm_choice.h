/*
 * groupnorm_choice.h - what choosing shares: which slices a problem gets (groupnorm_choice.c), which threads hold them
 * (groupnorm_share.c).
 */
#pragma once

#include "base/math.h"
#include "operators/groupnorm/groupnorm_config.h"

enum {
    GROUPNORM_LINE_BYTES = 128, // of memory
    GROUPNORM_THREADS_MIN = 64, // of a CTA
    GROUPNORM_HELD_CTAS = 3     // of an SM
};

/* What choosing is about. */
typedef struct groupnorm_search {
    const ckl_groupnorm_desc *d;
    const ckl_device_info *device;
    groupnorm_slicing slicing;
    int threads_max, threads_min; // of a CTA
    bool keeps;                   // vectors in registers beside those in shared memory
    bool again;                   // up to half of a slice is read again, for which there is no room
} groupnorm_search;

static inline int64_t groupnorm_element_bytes(const ckl_groupnorm_desc *d)
{
    return dtype_bytes(d->dtype);
}

/* Every warp has some groups, and the columns of several groups lie side by side. */
int groupnorm_threads_min(const groupnorm_search *s, const groupnorm_config *c);

/* Threads of a column of nchw, if it has vectors for them; of short ones by elements, each a wait for memory, any. */
int groupnorm_side_by_side(const groupnorm_search *s, const groupnorm_config *c);

/* CTAs of an SM that hold slices, or keep parts of them in registers. */
int groupnorm_held_ctas(const groupnorm_search *s, const groupnorm_config *c);

/*
 * Among how many channels of nchw `slices` may be shared out: as many as divide those of a group, for an eighth more
 * slices at most.
 */
int groupnorm_parts_of(const groupnorm_search *s, int64_t slices, const groupnorm_config *c);

/*
 * Shares `slices` out among pixels, or among `parts` of the channels where threads side by side would read less than a
 * line of L2, or two where slices are held: gradients of 1x480x512x512 bf16 252 us by one, 231; or have too many
 * columns.
 */
bool groupnorm_share_slices(const groupnorm_search *s, int64_t slices, int parts, int64_t budget, groupnorm_config *c);
