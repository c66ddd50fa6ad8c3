/*
 * atoms.h - the instructions of CuTe as data: one row each, under CuTe's names.
 *
 * A thread-value layout maps (thread,value) to an index of the tile that the instruction sees: MMA tiles are
 * column-major, (M,K), (N,K) and (M,N); copies count bits. The rows are those of CuTe's MMA_Traits and Copy_Traits.
 */
#pragma once

#include "cute/layout.h"

enum { ATOM_NAME_MAX = 48 };

typedef enum mma_source {
    MMA_REGISTERS,
    MMA_DESCRIPTOR, // a shared memory tile, described once for all threads
} mma_source;

/* c += a * b on one tile of m x n x k. */
typedef struct mma_atom {
    char name[ATOM_NAME_MAX];
    int m, n, k;
    int threads;
    ckl_dtype a, b, c; // element types; c is also that of the result
    mma_source a_from, b_from;
    ir_op op;
    const char *layouts[3]; // of A, B, C as text; N stands for n
} mma_atom;

typedef enum mma_operand { MMA_A, MMA_B, MMA_C } mma_operand;

bool mma_atom_find(const char *name, mma_atom *out);               // false: there is none, *out is untouched
mma_atom mma_atom_nearest(const char *name);                       // the one whose name differs least
layout mma_atom_layout(const mma_atom *atom, mma_operand operand); // (THR,VAL) -> (M,K), (N,K), (M,N)

typedef struct copy_atom {
    char name[ATOM_NAME_MAX];
    int threads;
    int bits; // that each thread gets or gives; 0: by the tile
    ir_op op;
    int n; // the op's [n]
    bool transpose;
    const char *source, *destination; // (THR,BIT) -> bit as text, N stands for bits; NULL: by the tile
} copy_atom;

bool copy_atom_find(const char *name, copy_atom *out);
layout copy_atom_layout_source(const copy_atom *atom); // the atom has one
layout copy_atom_layout_destination(const copy_atom *atom);

/* The names of all atoms in order, with * where numbers go; NULL after the last one. */
const char *atom_name(int i);
