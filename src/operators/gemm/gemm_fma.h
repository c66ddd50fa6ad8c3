/* gemm_fma.h - the config of the kernel that multiplies f32 without tensor cores. */
#ifndef CKL_GEMM_FMA_H
#define CKL_GEMM_FMA_H

#include "operators/gemm/gemm_repitch.h"

#define GEMM_FMA_CONFIG(X, owner)                                                              \
    X(owner, int, tile_m, "128", "32 64 128 256", "rows of D of a CTA")                        \
    X(owner, int, tile_n, "128", "32 64 128 256", "columns of D of a CTA")                     \
    X(owner, int, block_m, "16", "4 8 16", "rows of D of a thread")                            \
    X(owner, int, block_n, "8", "4 8 16", "columns of D of a thread")                          \
    X(owner, int, depth, "8", "4 8 16", "elements of K in a stage")                            \
    X(owner, int, stages, "4", "3 4 5 6", "K tiles in shared memory")                          \
    X(owner, int, vec, "1", "1 2 4", "elements of a copy of an operand that is not K-major")   \
    X(owner, bool, whole, "0", "0 1", "rows of C, D and X are whole 16 bytes long, and apart") \
    X(owner, int, grouped, "0", "0 1 2", GEMM_GROUPED_HELP)                                    \
    X(owner, int, ctas, "2", "1 2 3 4 6 8", "CTAs that an SM holds at once, which limits registers")

GEMM_CONFIG(gemm_fma_config, GEMM_FMA_CONFIG);

/* Threads of a CTA, a block of D each. */
int gemm_fma_threads(const gemm_fma_config *config);

enum {
    GEMM_FMA_QUAD = 4,    // elements of a load from shared memory, and the padding of rows there
    GEMM_FMA_LANES_M = 4, // threads of a warp along M
    GEMM_FMA_LANES_N = 8,
    GEMM_FMA_COPIES = 32, // of an operand, by a thread, a stage: their addresses stay in registers
};

void gemm_fma(const void *config, int kernel);

/* turned: fma after a kernel that transposes K-major operands, of a whole batch, into the workspace */

#define GEMM_TURNED_PARAMS(X, owner) GEMM_REPITCH_PARAMS(X, owner) GEMM_PARAMS(X, owner)

KERNEL_PARAMS(gemm_turned, GEMM_TURNED_PARAMS);

/* Smaller problems lose more by copies than they gain. */
#define GEMM_TURNED_FLOPS 8e9

#endif
