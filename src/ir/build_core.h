/* build_core.h - what the files of the builder share. */
#pragma once

#include "ir/build.h"

enum { BUILD_BLOCKS_MAX = 64 }; // open IFs and LOOPs

/* What this thread is describing. The kernel exists even when only static values are wanted: it owns the memory. */
typedef struct build_state {
    ir_kernel *kernel;
    bool static_only;
    char *sentence; // of the first error; NULL: there is none
    const char *file;
    int line;
    int blocks[BUILD_BLOCKS_MAX]; // indices of open IF, ELSE and LOOP instructions
    int block_count;
    int *maker;                // per register: the instruction that makes it, + 1. 0: of ir_reg(), its value may change
    struct build_share *share; // NULL: nothing is shared
} build_state;

extern _Thread_local build_state build;

/* Doubles an array of the kernel when it is full; the old one stays in the arena. */
void *build_grow(void *array, int count, int *capacity, size_t size);

/* Fails if an IF or LOOP is still open. */
void build_check_closed(void);

/* Appends an instruction with one result of its own, or with none. */
val build_value(ir_inst inst, ir_type type, int in_count, const val *in);
void build_effect(ir_inst inst, int in_count, const val *in);

/*
 * Where equal computations are shared (share.c): has the current block computed this already? If not, and *slot is not
 * NULL, the caller sets *slot to the number of instructions after this one. Control flow clears all.
 */
bool build_share_find(const ir_inst *inst, int in_count, const val *in, int **slot, val *out);
void build_share_forget(void);

/* Appends an integer division or remainder as cheaper instructions (divide.c); false: there are none. */
bool build_division(ir_op op, val x, val y, val *out);
