/*
 * groupnorm_kernels.h - the kernels of group norm, of both directions: when a slice is loaded, added up, merged with
 * others, and written.
 */
#pragma once

#include "operators/groupnorm/groupnorm_slice.h"

/* The first member of a direction's own struct. */
typedef struct groupnorm_kernel {
    groupnorm_slice s;
    groupnorm_view w;
    const struct groupnorm_direction *does;
    groupnorm_staging slices;         // in shared memory; of none, where they are read again when outputs are written
    one_pass *meeting;                // of slices that are held until all of their bundle are known; else NULL
    tensor sGroups;                   // (WORDS,BUNDLE): what is known of a group when all is
    tensor sScales;                   // (GROUPNORM_SCALES,CHANNELS) of the slice, where channels have them
    tensor rScales[GROUPNORM_SCALES]; // (1) or (VEC) of the column that is written
} groupnorm_kernel;

/* What a direction does with the slice of this CTA. */
typedef struct groupnorm_direction {
    int words, group_words;             // of an entry; known of a group in the end
    int at_once;                        // entries that a lane loads at once
    void (*begin)(void *kernel);        // reserves shared memory
    void (*load_weights)(void *kernel); // before it is there
    void (*add_up)(void *kernel);
    groupnorm_state (*found)(const void *kernel); // what the lane's group has in the slice
    groupnorm_state (*merge)(const groupnorm_slice *s, const groupnorm_state *of_lane, int n);
    void (*publish)(const void *kernel, groupnorm_state all);  // by the lanes of each group to the CTA
    void (*save)(const void *kernel, val saves);               // if not NULL: by them to the caller, where `saves`
    void (*find_scales)(void *kernel, val channel, val group); // of a channel, when all is known of its group
    void (*begin_column)(void *kernel, val column);            // finds scales where there are none of channels
    groupnorm_vector_pass *load_vector, *write_vector;
} groupnorm_direction;

/*
 * Has every thread one column at most, of one group? Its weights are loaded before the passes, unless merging wants the
 * registers.
 */
bool groupnorm_has_column(const groupnorm_kernel *k);

void groupnorm_describe(groupnorm_kernel *k, const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors);
