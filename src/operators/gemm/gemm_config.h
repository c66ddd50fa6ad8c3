/* gemm_config.h - the fields of a problem, the compile-time choices of GEMM's kernels, and their parameters. */
#pragma once

#include "base/fields.h"
#include "cutekernellib/operators/gemm.h"
#include "plan/plan.h"
#include "skeletons/prefetch.h"

/* What a problem and an epilogue both say, in the runs that both have. */
#define GEMM_MATH(X, owner)                                                                 \
    X(owner, choice, math, "f32", "f32 tf32 f32x3", "what the products of f32 are made of") \
    X(owner, choice, accumulation, "fast", "fast accurate",                                 \
      "of 8-bit floats: by tensor cores, or every 128 of K in f32")                         \
    X(owner, choice, layout, "nt", "nt nn tn tt", "A is [M,K] or, with t, [K,M]; B is [K,N] or, with t, [N,K]")

#define GEMM_ACTIVATION(X, owner)                                                                            \
    X(owner, choice, activation, "identity", "identity relu gelu gelu_erf silu drelu dgelu dgelu_erf dsilu", \
      "applied last")                                                                                        \
    X(owner, bool, gated, "0", "0 1", "B has 2n columns: the last n of A*B multiply the activation of the others")

#define GEMM_BIAS_AND_SCALES(X, owner)                                                                              \
    X(owner, bool, bias, "0", "0 1", "adds a bias to every column, or row")                                         \
    X(owner, choice, bias_along, "n", "n m", "what the bias has a number for: columns or rows of D")                \
    X(owner, choice, scale_a, "none", "none tensor row block", "numbers in device memory that scale A")             \
    X(owner, choice, scale_b, "none", "none tensor row block square", "the same of B, whose rows are columns of D") \
    X(owner, bool, scale_d, "0", "0 1", "a number in device memory scales D")                                       \
    X(owner, bool, device_scalars, "0", "0 1", "alpha and beta lie in device memory")                               \
    X(owner, bool, preactivation, "0", "0 1", "also writes X, what the activation takes")

#define GEMM_BESIDE(X, owner)                                                                           \
    X(owner, bool, weighted, "0", "0 1", "numbers in device memory multiply the rows of D, last")       \
    X(owner, bool, pointers, "0", "0 1", "matrices of the batch lie where arrays in device memory say") \
    X(owner, bool, host_offsets, "0", "0 1", "offsets of groups lie on the host")                       \
    X(owner, choice, bias_gradient, "none", "none columns rows a b", "sums beside D: along D, or of A or B over K")

#define GEMM_AMAX(X, owner) \
    X(owner, bool, amax, "0", "0 1", "the largest |D| before its scale goes to device memory: of d=e4m3 and e5m2")

#define GEMM_CUSTOM(X, owner) \
    X(owner, quoted, epilogue, "none", "?", "a custom epilogue by its name: relu2, tril, or one that was added")

#define GEMM_DESC(X, owner)                                                                                       \
    X(owner, int64_t, m, "256", "", "rows of A and D")                                                            \
    X(owner, int64_t, n, "256", "", "columns of D")                                                               \
    X(owner, int64_t, k, "256", "", "length of the sums")                                                         \
    X(owner, ckl_dtype, a, "f16", "f16 bf16 f32 e4m3 e5m2 i8", "type of A")                                       \
    X(owner, ckl_dtype, b, "", "f16 bf16 f32 e4m3 e5m2 i8 u8",                                                    \
      "type of B; default: that of A; u8: pairs of 4-bit integers")                                               \
    X(owner, ckl_dtype, d, "", "f16 bf16 f32 i32 e4m3 e5m2",                                                      \
      "type of C, D and bias; default: that of A, bf16 of 8 bits")                                                \
    GEMM_MATH(X, owner)                                                                                           \
    X(owner, int64_t, lda, "0", "", "elements between rows; 0: dense")                                            \
    X(owner, int64_t, ldb, "0", "", "elements between rows; 0: dense")                                            \
    X(owner, int64_t, ldc, "0", "", "elements between rows; 0: dense")                                            \
    X(owner, int64_t, ldd, "0", "", "elements between rows; 0: dense")                                            \
    GEMM_ACTIVATION(X, owner)                                                                                     \
    GEMM_BIAS_AND_SCALES(X, owner)                                                                                \
    X(owner, int64_t, ldx, "0", "", "elements between rows; 0: dense")                                            \
    X(owner, int64_t, batch, "1", "", "products, each of its own A, B, C and D")                                  \
    X(owner, int64_t, stride_a, "0", "", "elements between matrices; 0: one after the other")                     \
    X(owner, int64_t, stride_b, "0", "", "elements between matrices; 0: one after the other")                     \
    X(owner, int64_t, stride_c, "0", "", "elements between matrices; 0: one after the other")                     \
    X(owner, int64_t, stride_d, "0", "", "elements between matrices; 0: one after the other")                     \
    X(owner, int64_t, stride_x, "0", "", "elements between matrices; 0: one after the other")                     \
    X(owner, int64_t, groups, "0", "", "matrices B, to which offsets in device memory deal out the rows; 0: one") \
    X(owner, bool, batch_invariant, "0", "0 1", "rows of D have the same bits whatever m is")                     \
    X(owner, choice, groups_of, "m", "m k", "what is dealt out: rows, to several B, or the sums, to several D")   \
    X(owner, int64_t, gather, "0", "", "rows of A, of which a list in device memory takes m; 0: all in turn")     \
    X(owner, int64_t, scatter, "0", "", "rows of D, to m of which a list brings the results; 0: all in turn")     \
    GEMM_BESIDE(X, owner)                                                                                         \
    X(owner, int64_t, block_k, "128", "", "numbers of K that share a scale of a block: 128, or 64 of weights")    \
    GEMM_AMAX(X, owner)                                                                                           \
    GEMM_CUSTOM(X, owner)

/* What every kernel computes: types, and what follows the products. */
#define GEMM_EPILOGUE(X, owner)                                                              \
    X(owner, ckl_dtype, ab, "f16", "f16 bf16 f32 e4m3 e5m2 i8", "type of A")                 \
    X(owner, ckl_dtype, b, "f16", "f16 bf16 f32 e4m3 e5m2 i8 u8", "type of B")               \
    GEMM_MATH(X, owner)                                                                      \
    X(owner, ckl_dtype, d, "f16", "f16 bf16 f32 i32 e4m3 e5m2", "type of D, C and the bias") \
    X(owner, bool, c, "0", "0 1", "adds beta * C")                                           \
    GEMM_BIAS_AND_SCALES(X, owner)                                                           \
    GEMM_ACTIVATION(X, owner)                                                                \
    X(owner, bool, gather, "0", "0 1", "rows of A are those of a list")                      \
    X(owner, bool, scatter, "0", "0 1", "rows of D are those of a list")                     \
    GEMM_BESIDE(X, owner)                                                                    \
    X(owner, bool, half_blocks, "0", "0 1", "scales of blocks are of 64 of K, not of 128")   \
    GEMM_AMAX(X, owner)                                                                      \
    GEMM_CUSTOM(X, owner)

typedef struct gemm_epilogue {
    GEMM_EPILOGUE(FIELD_MEMBER, )
} gemm_epilogue;

/* A config: what is computed, and a kernel's own choices. And the table of its fields. */
#define GEMM_CONFIG(type, FIELDS) \
    typedef struct type {         \
        gemm_epilogue epilogue;   \
        FIELDS(FIELD_MEMBER, )    \
    } type
#define GEMM_FIELDS(type, FIELDS)                                             \
    {                                                                         \
        GEMM_EPILOGUE(FIELD_NESTED, (type, epilogue)) FIELDS(FIELD_ROW, type) \
    }

gemm_epilogue gemm_epilogue_of(const ckl_gemm_desc *desc);

/* The type of D, or its default. */
ckl_dtype gemm_result_type(const ckl_gemm_desc *desc);

/* Backward activations read X. */
static inline bool gemm_is_backward(choice activation)
{
    return activation >= CKL_ACTIVATION_DRELU;
}

/* Is there an X, written or read? */
static inline bool gemm_has_x(const ckl_gemm_desc *d)
{
    return d->preactivation || gemm_is_backward((choice)d->activation);
}

/* The same of what a kernel computes. */
static inline bool gemm_uses_x(const gemm_epilogue *e)
{
    return e->preactivation || gemm_is_backward(e->activation);
}

/* Does an epilogue read a matrix: C, or X? */
static inline bool gemm_reads_matrix(const gemm_epilogue *e)
{
    return e->c || gemm_is_backward(e->activation);
}

/* Is K contiguous in matrix 'a' or 'b'? */
static inline bool gemm_k_major(choice lie, char matrix)
{
    return lie == CKL_GEMM_NT || lie == (matrix == 'a' ? CKL_GEMM_NN : CKL_GEMM_TT);
}

static inline bool gemm_is_k_major(const ckl_gemm_desc *d, char matrix)
{
    return gemm_k_major((choice)d->layout, matrix);
}

static inline bool gemm_is_f8(ckl_dtype dtype)
{
    return dtype == CKL_E4M3 || dtype == CKL_E5M2;
}

/* The type of a bias: 8 bits are too few. */
static inline ckl_dtype gemm_bias_type(ckl_dtype d)
{
    return gemm_is_f8(d) ? CKL_BF16 : d;
}

/* The type of matrix 'a' or 'b'. */
static inline ckl_dtype gemm_type_of(const gemm_epilogue *e, char matrix)
{
    return matrix == 'b' ? e->b : e->ab;
}

/* Is B of integers of 8 or 4 bits, or e4m3, and A of 16-bit floats? */
static inline bool gemm_has_weights(const ckl_gemm_desc *d)
{
    return (d->a == CKL_F16 || d->a == CKL_BF16) && (d->b == CKL_I8 || d->b == CKL_U8 || d->b == CKL_E4M3);
}

/* The type of scales of blocks. */
static inline ckl_dtype gemm_scale_type(ckl_dtype a)
{
    return gemm_is_f8(a) ? CKL_F32 : a;
}

enum { GEMM_NIBBLE_ZERO = 8 }; // the offset of 4-bit integers

/* Elements of K that share a scale of a block; weights may have the smaller one. */
enum { GEMM_BLOCK = 128, GEMM_BLOCK_LEAST = 64 };
static inline int gemm_block_k(const gemm_epilogue *e)
{
    return e->half_blocks ? GEMM_BLOCK_LEAST : GEMM_BLOCK;
}

/* Are there scales of blocks? */
static inline bool gemm_has_block_scales(choice scale)
{
    return scale == CKL_GEMM_SCALE_BLOCK || scale == CKL_GEMM_SCALE_SQUARE;
}

/* How matrix 'a', 'b', 'c', 'd' or 'x' lies in memory; of a batch `count`, `stride` apart. */
typedef struct gemm_matrix {
    ckl_dtype type;
    int64_t rows, cols, ld, stride, count;
} gemm_matrix;

gemm_matrix gemm_matrix_of(const ckl_gemm_desc *desc, char name);

/* Are rows divided into groups, or K? */
static inline bool gemm_groups_of_m(const ckl_gemm_desc *d)
{
    return d->groups && d->groups_of == CKL_GEMM_GROUPS_OF_M;
}

static inline bool gemm_groups_of_k(const ckl_gemm_desc *d)
{
    return d->groups && d->groups_of == CKL_GEMM_GROUPS_OF_K;
}

/* Each may have a bias and a scale. Gated, the last n multiply the others. */
static inline int64_t gemm_columns_of_B(const ckl_gemm_desc *d)
{
    return d->gated ? 2 * d->n : d->n;
}

/* Products, each with a D: of a batch, or of groups of K. */
static inline int64_t gemm_products(const ckl_gemm_desc *d)
{
    return gemm_groups_of_k(d) ? d->groups : d->batch;
}

enum { GEMM_HOST_GROUPS_MAX = 1024 }; // whose offsets the host may have

/* config.grouped of kernels that address memory themselves. */
enum { GEMM_GROUPED_M = 1, GEMM_GROUPED_K = 2 };
#define GEMM_GROUPED_HELP "1: rows are dealt out to several B by their offsets; 2: K is, to several D"

/* What epilogues of all kernels take. */
#define GEMM_EPILOGUE_PARAMS(X, owner) \
    X(owner, pointer, bias)            \
    X(owner, f32, alpha)               \
    X(owner, f32, beta)                \
    X(owner, pointer, device_alpha)    \
    X(owner, pointer, device_beta)     \
    X(owner, pointer, scale_a)         \
    X(owner, pointer, scale_b)         \
    X(owner, pointer, scale_d)         \
    X(owner, pointer, x)               \
    X(owner, i64, ldx)                 \
    X(owner, i64, x_batch)             \
    X(owner, pointer, rows_a)          \
    X(owner, pointer, rows_d)          \
    X(owner, pointer, row_weights)     \
    X(owner, pointer, amax)

/* Tiles that slices of K share, and `alone`, of `fma`. */
#define GEMM_SLICES_PARAMS(X, owner)                                                 \
    X(owner, u32, whole)     /* tiles before them, of a CTA each */                  \
    X(owner, u32, alone)     /* 1: the next launch begins when this one has ended */ \
    X(owner, u32, slices)    /* of each tile */                                      \
    X(owner, i64, slice_k)   /* elements of K of a slice but for the last */         \
    X(owner, pointer, parts) /* sums of the slices, a block of D each */

/* Parameters of the kernels that address memory themselves, and A and B of those that load these by TMA. */
#define GEMM_PARAMS(X, owner)    \
    X(owner, tensor, A)          \
    X(owner, tensor, B)          \
    X(owner, i64, m)             \
    X(owner, i64, n)             \
    X(owner, i64, k)             \
    X(owner, pointer, a)         \
    X(owner, i64, lda)           \
    X(owner, i64, a_batch)       \
    X(owner, pointer, b)         \
    X(owner, i64, ldb)           \
    X(owner, i64, b_batch)       \
    X(owner, pointer, c)         \
    X(owner, i64, ldc)           \
    X(owner, i64, c_batch)       \
    X(owner, pointer, d)         \
    X(owner, i64, ldd)           \
    X(owner, i64, d_batch)       \
    X(owner, i64, batch)         \
    X(owner, pointer, offsets)   \
    X(owner, u32, groups)        \
    GEMM_SLICES_PARAMS(X, owner) \
    EARLY_PARAMS(X, owner, 2)    \
    GEMM_EPILOGUE_PARAMS(X, owner)

KERNEL_PARAMS(gemm, GEMM_PARAMS);

enum {
    TMA_ALIGNMENT = 16,
    GEMM_TILE_BYTES = 128, // of a row of A or B in one stage of TMA: the widest swizzle
};

/* Elements of K of one such stage. */
static inline int gemm_tile_k(ckl_dtype ab)
{
    return GEMM_TILE_BYTES / (int)ckl_dtype_bytes(ab);
}

/* naive */

#define GEMM_NAIVE_CONFIG(X, owner)                                                     \
    X(owner, int, threads, "256", "128 256", "threads of a CTA, one element of D each") \
    X(owner, int, grouped, "0", "0 1 2", GEMM_GROUPED_HELP)

GEMM_CONFIG(gemm_naive_config, GEMM_NAIVE_CONFIG);

void gemm_naive(const void *config, int kernel);

/* tiled */

#define GEMM_TILED_CONFIG(X, owner)                                                                       \
    X(owner, int, tile_m, "128", "64 128", "rows of D of a CTA")                                          \
    X(owner, int, tile_n, "128", "64 128", "columns of D of a CTA")                                       \
    X(owner, int, stages, "3", "2 3 4", "K tiles of 64 bytes in shared memory")                           \
    X(owner, int, vec, "8", "1 2 4 8 16", "elements of a copy: rows of A and B start at multiples of it") \
    X(owner, int, grouped, "0", "0 1 2", GEMM_GROUPED_HELP)

GEMM_CONFIG(gemm_tiled_config, GEMM_TILED_CONFIG);

enum {
    GEMM_TILED_BYTES = 64,   // of a row of A or B in one stage
    GEMM_TILED_THREADS = 128 // 2 x 2 warps
};

void gemm_tiled(const void *config, int kernel);

/* fma */

#define GEMM_FMA_CONFIG(X, owner)                                                              \
    X(owner, int, tile_m, "128", "8 16 32 64 96 128 256", "rows of D of a CTA")                \
    X(owner, int, tile_n, "128", "8 16 32 64 96 128 256", "columns of D of a CTA")             \
    X(owner, int, block_m, "16", "4 8 12 16", "rows of D of a thread")                         \
    X(owner, int, block_n, "8", "4 8 12 16", "columns of D of a thread")                       \
    X(owner, int, lanes_m, "4", "2 4 8 16", "threads of a warp along M")                       \
    X(owner, int, depth, "8", "8 16 32", "elements of K in a stage")                           \
    X(owner, int, stages, "4", "2 3 4 5", "K tiles in shared memory")                          \
    X(owner, int, groups_k, "1", "1 2 4", "groups of threads that share out K tiles")          \
    X(owner, int, vec, "1", "1 2 4", "elements of a copy of an operand that is not K-major")   \
    X(owner, int, vec_k, "1", "1 4", "the same of one that is, which registers transpose")     \
    X(owner, bool, phased, "0", "0 1", "of quads of rows that begin or end inside them")       \
    X(owner, bool, whole, "0", "0 1", "rows of C, D and X are whole 16 bytes long, and apart") \
    X(owner, bool, sliced, "0", "0 1", "tiles that leave SMs without work share out K")        \
    X(owner, int, grouped, "0", "0 1 2", GEMM_GROUPED_HELP)                                    \
    X(owner, int, ctas, "2", "1 2 3 4 6 8", "CTAs that an SM holds at once, which limits registers")

GEMM_CONFIG(gemm_fma_config, GEMM_FMA_CONFIG);

/* Threads of a CTA, a block of D each. */
int gemm_fma_threads(const gemm_fma_config *config);

/* Do sums leave a thread few registers? */
bool gemm_fma_is_tight(const gemm_fma_config *config);

/* Elements of shared memory for a stage of so many rows of A or B. */
int gemm_fma_stage(const gemm_fma_config *config, int rows);

/* Elements of K of a step, a K tile of each group of threads. */
static inline int gemm_fma_step(const gemm_fma_config *config)
{
    return config->groups_k * config->depth;
}

enum {
    GEMM_FMA_QUAD = 4,        // elements of a load from shared memory, and the padding of rows there
    GEMM_FMA_COPIES = 32,     // of an operand, by a thread, a stage: their addresses stay in registers
    GEMM_FMA_BLOCK_MAX = 128, // elements of D of a thread, which stay there, too
};

void gemm_fma(const void *config, int kernel);

/* tma_mma */

#define GEMM_TMA_MMA_CONFIG(X, owner)                                                \
    X(owner, int, tile_m, "128", "64 128", "rows of D of a CTA")                     \
    X(owner, int, tile_n, "128", "64 128", "columns of D of a CTA")                  \
    X(owner, int, stages, "3", "2 3 4 5 6", "K tiles of 128 bytes in shared memory") \
    X(owner, int, ctas, "2", "1 2", "CTAs that an SM holds at once")                 \
    X(owner, bool, batched, "0", "0 1", "several products in one launch")

GEMM_CONFIG(gemm_tma_mma_config, GEMM_TMA_MMA_CONFIG);

void gemm_tma_mma(const void *config, int kernel);

/* blocked, wgmma, tma: steps of the ladder without choices */

#define GEMM_RUNG_CONFIG(X, owner) X(owner, int, stages, "4", "2 3 4", "K tiles in shared memory, of wgmma and tma")

GEMM_CONFIG(gemm_rung_config, GEMM_RUNG_CONFIG);

enum { GEMM_BLOCKED_TILE = 64, GEMM_RUNG_TILE = 128 };

void gemm_blocked(const void *config, int kernel);
void gemm_wgmma(const void *config, int kernel);
void gemm_tma(const void *config, int kernel);

/* gemv */

#define GEMM_GEMV_CONFIG(X, owner)                                                                 \
    X(owner, int, rows, "8", "2 4 8", "rows of the long operand of a group of threads")            \
    X(owner, int, few, "1", "1 2 3 4 6 8", "rows of the other one of a CTA")                       \
    X(owner, int, width, "256", "8 16 32 64 128 256", "threads of a group, which share out K")     \
    X(owner, int, vec, "4", "1 2 4 8", "elements of an access to A and B: rows are whole vectors") \
    X(owner, int, steps, "0", "0 1 2 3 4", "vectors of K of a thread, loaded at once; 0: a loop")  \
    X(owner, bool, many_a, "0", "0 1", "the long operand is A: D has few columns")

GEMM_CONFIG(gemm_gemv_config, GEMM_GEMV_CONFIG);

enum { GEMM_GEMV_THREADS = 256 /* of a CTA */, GEMM_GEMV_STEPS_MAX = 4 };

/* Bytes of an access to A or B. */
static inline int gemm_gemv_bytes(const gemm_gemv_config *c)
{
    return c->vec * (int)ckl_dtype_bytes(c->epilogue.ab);
}

void gemm_gemv(const void *config, int kernel);

/* unaligned */

#define GEMM_UNALIGNED_CONFIG(X, owner)                                       \
    X(owner, int, rows, "32", "16 32 64", "rows of B of a CTA: columns of D") \
    X(owner, int, columns, "32", "8 16 32", "rows of A of a CTA")             \
    X(owner, int, warps, "8", "2 4 8", "that share out K")                    \
    X(owner, int, stages, "2", "2 3 4", "K tiles of 64 elements for each warp in shared memory")

GEMM_CONFIG(gemm_unaligned_config, GEMM_UNALIGNED_CONFIG);

/* Bytes of shared memory that a CTA needs. */
int64_t gemm_unaligned_smem(const gemm_unaligned_config *config);

void gemm_unaligned(const void *config, int kernel);

/* outer */

#define GEMM_OUTER_CONFIG(X, owner)                                                              \
    X(owner, int, rows, "8", "1 2 4 8", "rows of D of a warp")                                   \
    X(owner, int, vec, "4", "1 2 4 8", "elements of an access to D: its rows are whole vectors") \
    X(owner, int, runs, "1", "1 2 4 8", "vectors of a thread in a row")                          \
    X(owner, int, depth, "1", "", "K")                                                           \
    X(owner, int, vec_k, "1", "1 2 4 8", "elements of an access to A and B: all of K is whole vectors")

GEMM_CONFIG(gemm_outer_config, GEMM_OUTER_CONFIG);

enum { GEMM_OUTER_WARPS = 4, GEMM_OUTER_ROWS_MAX = 8, GEMM_OUTER_RUNS_MAX = 8, GEMM_OUTER_DEPTH_MAX = 8 };

void gemm_outer(const void *config, int kernel);

/* weights */

#define GEMM_WEIGHTS_CONFIG(X, owner)                                                            \
    X(owner, int, rows, "64", "16 32 64 128", "columns of D of a CTA, which are rows of B")      \
    X(owner, int, columns, "8", "8 16", "rows of D of a CTA")                                    \
    X(owner, int, warps, "8", "4 8", "that share out K")                                         \
    X(owner, int, stages, "4", "2 3 4 6 8", "K tiles of 128 on their way to each warp")          \
    X(owner, int, piece, "16", "1 4 8 16", "bytes of a copy of A and B; 1: an element")          \
    X(owner, int, box, "0", "0 1 2 4 8 16", "rows of A in a box of TMA; 0: A and B by cp.async") \
    X(owner, int, grouped, "0", "0 1 2", GEMM_GROUPED_HELP)

GEMM_CONFIG(gemm_weights_config, GEMM_WEIGHTS_CONFIG);

/* Bytes of shared memory. */
int64_t gemm_weights_smem(const gemm_weights_config *config);

void gemm_weights(const void *config, int kernel);
