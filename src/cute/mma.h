/*
 * mma.h - tiled matrix multiply-accumulate: an atom (one instruction) repeated over the warps or warpgroups of a CTA.
 *
 * Partitions are computed from the atom's thread-value layouts (atoms.h) by layout algebra, as CuTe's TiledMMA does.
 * `tid` is the thread's index among those of the tiled MMA. A is (M,K), B is (N,K), C is (M,N).
 */
#pragma once

#include "cute/atoms.h"
#include "cute/tensor.h"

/* The atom, and how many copies of it lie side by side along M and N, each computed by its own group of threads. */
typedef struct tiled_mma {
    mma_atom atom;
    int atoms_m, atoms_n;
} tiled_mma;

tiled_mma make_tiled_mma(const char *atom, int atoms_m, int atoms_n); // an unknown name: ir_fail()

/* The atom of mma.sync for K-major f16, bf16, i8 or f32 as tf32, 32 bytes of K at a time; sums of 32 bits. */
const char *mma_sync_atom(ckl_dtype factors);

/* This thread's elements of a tile in memory, or of its coordinates. */
tensor partition_A(const tiled_mma *mma, tensor t, val tid); // (MMA,MMA_M,MMA_K)
tensor partition_B(const tiled_mma *mma, tensor t, val tid); // (MMA,MMA_N,MMA_K)
tensor partition_C(const tiled_mma *mma, tensor t, val tid); // (MMA,MMA_M,MMA_N)

/* (THREAD,VALUE) -> linear coordinate of a tile of so many rows and columns; values in the order of the fragments. */
layout mma_thread_values(const tiled_mma *mma, mma_operand operand, int rows, int cols);

/* Registers of one thread, in the order of the partitions. */
tensor fragment_A(const tiled_mma *mma, int m, int k);
tensor fragment_B(const tiled_mma *mma, int n, int k);
tensor fragment_C(const tiled_mma *mma, int m, int n); // sums: f32, of integers i32

/* The accumulators of columns first..first+count-1, in groups of 8, of a tile that is one atom wide: (MMA,MMA_M,1). */
tensor accumulator_columns(tensor acc, int first, int count);

/*
 * Operands of mma.sync and wgmma as 32-bit words, (WORDS,MMA_M,MMA_K) of u32, in place of fragment_A() and
 * fragment_B(): narrow elements stay packed. Accumulators of (M,K) are in the order of A: accumulators_to_A() rounds
 * them, pair by pair.
 */
tensor fragment_A_words(const tiled_mma *mma, int m, int k);
tensor fragment_B_words(const tiled_mma *mma, int n, int k);
void accumulators_to_A(tensor acc, ckl_dtype dtype, tensor rA);

/*
 * wgmma: (M,K[,STAGES]) and (N,K[,STAGES]) shared tiles as descriptors, (MMA_M,MMA_K[,STAGES]). A tile is K-major, its
 * rows one swizzle span long, or MN-major: runs of one span along M or N for each element of K, equally far apart. Of
 * an MN-major tile less than a span longer than an atom, the atom takes the first elements.
 */
tensor descriptors_A(const tiled_mma *mma, tensor sA);
tensor descriptors_B(const tiled_mma *mma, tensor sB);

/*
 * acc += A * B over all of MMA_K; where accumulate (a predicate) is false, acc = A * B. wgmma takes descriptors, its RS
 * atoms A as a fragment, and is asynchronous, between mma_fence() and mma_wait() of kernel.h: fragments of A must stay
 * as they are until then. mma.sync takes fragments, and so does UniversalFMA, by which each thread multiplies alone.
 * mma.sync and UniversalFMA always accumulate.
 */
void gemm(const tiled_mma *mma, tensor tCrA, tensor tCrB, tensor acc, val accumulate);

/*
 * Tiles between shared memory and fragments, 8x8 matrices of 16 bits at a time, or as many bytes of wider and narrower
 * elements (ldmatrix, K-major). Fragments of f32 are converted. C, of 16-bit elements, may also lie by columns.
 */
void ldmatrix_A(const tiled_mma *mma, tensor sA, val tid, tensor rA);
void ldmatrix_B(const tiled_mma *mma, tensor sB, val tid, tensor rB);
void stmatrix_C(const tiled_mma *mma, tensor rC, tensor sC, val tid);
