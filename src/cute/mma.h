/*
 * mma.h - tiled matrix multiply-accumulate: an atom (one instruction) repeated over the warps or warpgroups of a CTA.
 *
 * Partitions are computed from the atom's thread-value layouts (atoms.h) by layout algebra. Shapes: (MMA,MMA_M,MMA_N).
 */
#ifndef CKL_CUTE_MMA_H
#define CKL_CUTE_MMA_H

#include "cute/atoms.h"
#include "cute/tensor.h"

/* The atom, and how many copies of it lie side by side along M and N, each by its own group of the atom's threads. */
typedef struct tiled_mma {
    mma_atom atom;
    int atoms_m, atoms_n;
} tiled_mma;

tiled_mma make_tiled_mma(const char *atom, int atoms_m, int atoms_n); // unknown names: ir_fail()
int tiled_mma_threads(const tiled_mma *mma);

/* The accumulators of one thread for a tile of m x n: f32 registers. */
tensor fragment_C(const tiled_mma *mma, int m, int n); // (MMA,MMA_M,MMA_N)

/* This thread's part of a (M,N) tensor, in the order of its accumulators. tid: index among the MMA's threads. */
tensor partition_C(const tiled_mma *mma, tensor t, val tid); // (MMA,MMA_M,MMA_N)

/* wgmma operands in shared memory: (M or N, K[, STAGES]) as descriptors (MMA_M,MMA_K[,STAGES]) of the atoms of a group. */
tensor descriptors_A(const tiled_mma *mma, tensor sA, val tid);
tensor descriptors_B(const tiled_mma *mma, tensor sB);

/*
 * acc += A * B over all of MMA_K; accumulate (a predicate) false: acc = A * B.
 * wgmma: asynchronous, between mma_fence() and mma_commit(). mma.sync: A and B are fragments.
 */
void gemm_ss(const tiled_mma *mma, tensor tCrA, tensor tCrB, tensor acc, val accumulate);

/* mma.sync: the fragments of a warp loaded by ldmatrix from a (M or N, K) tile of shared memory. */
tensor fragment_A(const tiled_mma *mma, int m, int k); // (MMA,MMA_M,MMA_K) of u32 pairs
tensor fragment_B(const tiled_mma *mma, int n, int k);
void ldmatrix_A(const tiled_mma *mma, tensor sA, val tid, tensor rA);
void ldmatrix_B(const tiled_mma *mma, tensor sB, val tid, tensor rB);
void gemm_rr(const tiled_mma *mma, tensor rA, tensor rB, tensor acc);

/*
 * Stores 16-bit accumulator values by stmatrix. rD: (MMA,MMA_M,MMA_N) registers of F16 or BF16 pairs' elements in f32, converted
 * here; sD: the (M,N) tile of this thread's warpgroup in shared memory.
 */
void stmatrix_C(const tiled_mma *mma, tensor rD, tensor sD, val tid);

/* What the wgmma atoms need round them. */
void mma_fence(void);
void mma_commit(void);
void mma_wait(int pending);

#endif
