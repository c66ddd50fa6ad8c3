/* row_cost.h - the splits that rows may have, and what a kernel that holds rows in registers costs with one. */
#pragma once

#include "skeletons/memory_cost.h"
#include "skeletons/row.h"

/*
 * Split number i for rows of `cols` elements, whose widest vectors have `vec`: every number of threads, CTAs and rows a
 * CTA, in whole vectors and, where these are narrow, as ragged rows. Not all are legal. False after the last.
 */
bool row_split_candidate(int64_t cols, ckl_dtype dtype, int vec, int i, row_split *s);

/* Is it among those whose cost was found right to a tenth: few elements a thread, and not by very many accesses? */
bool row_split_is_trusted(const row_split *s, ckl_dtype dtype);

/* Rows that are read once and written once, in one tile of a split or in several. */
typedef struct row_work {
    memory_kernel of;
    int64_t rows, cols;
    ckl_dtype dtype;
    int inputs, outputs; // tensors of rows
    int vectors;         // tensors of one row, which all rows read
    int ctas_per_sm;     // that the kernel was compiled for; 0: any
    int64_t smem_bytes;  // of a CTA
    double again;        // what reading the inputs once more, from L2, costs of reading them; 0: they are read once
    double tile_cycles;  // that a CTA waits for each tile beyond the first
} row_work;

plan_cost row_cost(const row_work *w, const row_split *s, const ckl_device_info *device);
