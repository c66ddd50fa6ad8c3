/* gemm.h - D = activation(alpha * A * B + beta * C + bias), matrix multiplication with a fused epilogue. */
#pragma once

#include "../plan.h"
#include "../tensor.h"
#include "gemm_epilogue.h"

CKL_BEGIN_DECLS

typedef enum ckl_activation {
    CKL_ACTIVATION_IDENTITY,
    CKL_ACTIVATION_RELU,
    CKL_ACTIVATION_GELU, // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), Hendrycks and Gimpel, arXiv:1606.08415
    CKL_ACTIVATION_GELU_ERF, // x/2 * (1 + erf(x / sqrt 2))
    CKL_ACTIVATION_SILU,     // x / (1 + exp(-x))

    /* Backward: the gradient g becomes g times the activation's derivative at x, the matrix that came before it. */
    CKL_ACTIVATION_DRELU,
    CKL_ACTIVATION_DGELU,
    CKL_ACTIVATION_DGELU_ERF,
    CKL_ACTIVATION_DSILU,
} ckl_activation;

/* What the products of an f32 A and B are made of. */
typedef enum ckl_gemm_math {
    CKL_GEMM_F32,  // the operands as they are
    CKL_GEMM_TF32, // the operands without the low 13 bits of their fractions: tensor cores
    /*
     * Three products of tf32: an operand is the nearest tf32 and a rest, and only the rests' own product is left out.
     * Within 2^-20 of each product; where there are infinities the result may be NaN.
     */
    CKL_GEMM_F32X3,
} ckl_gemm_math;

/* How Hopper's tensor cores sum products of 8-bit floats. */
typedef enum ckl_gemm_accumulation {
    CKL_GEMM_FAST, // by themselves: 32 at a time, each cut to 13 bits below the largest of them and of the sum so far
    CKL_GEMM_ACCURATE, // so over 128 of K, and these sums in f32
} ckl_gemm_accumulation;

/* How many numbers of f32 in device memory scale A or B. */
typedef enum ckl_gemm_scale {
    CKL_GEMM_SCALE_NONE,
    CKL_GEMM_SCALE_TENSOR, // one
    CKL_GEMM_SCALE_ROW,    // one for each row of A, or column of B: [M] or [N]

    /*
     * Of 8-bit floats, for every 128 of K, of which there are KB = ceil(k/128); both operands have such, and sums are
     * accurate. Of weights, for every block_k of K:
     */
    CKL_GEMM_SCALE_BLOCK,  // one for each row of A, or column of B: [KB,M] or [KB,N]
    CKL_GEMM_SCALE_SQUARE, // one for each 128 columns of B: [ceil(n/128),KB]
} ckl_gemm_scale;

typedef enum ckl_gemm_side {
    CKL_GEMM_ALONG_N, // a number for each column of D: [N]
    CKL_GEMM_ALONG_M, // a number for each row of D: [M]
} ckl_gemm_side;

/* What offsets in device memory deal out to groups. */
typedef enum ckl_gemm_deal {
    CKL_GEMM_GROUPS_OF_M, // rows of A, C, D and X, to several B
    CKL_GEMM_GROUPS_OF_K, // terms of the sums, to several D: each is the product of columns and rows of K of its own
} ckl_gemm_deal;

/* Which sums come out beside D: the gradient of a bias, of D's type, or BF16 of 8 bits. */
typedef enum ckl_gemm_sums {
    CKL_GEMM_SUMS_NONE,
    CKL_GEMM_SUMS_OF_COLUMNS, // of D as it is stored: [N], of all of a batch; [groups,N], those of each group of rows
    CKL_GEMM_SUMS_OF_ROWS,    // of D: [M], of all of a batch
    CKL_GEMM_SUMS_OF_A,       // over K: [M]. Where A, or B, is the gradient of an output and D that of the weights
    CKL_GEMM_SUMS_OF_B,       // over K: [N]; not of gated pairs
} ckl_gemm_sums;

/*
 * How A and B lie, by rows: the first letter is A's, n for [M,K] and t for [K,M]; the second is B's, n for [K,N] and t
 * for [N,K].
 */
typedef enum ckl_gemm_layout {
    CKL_GEMM_NT, // both K-major: K is contiguous
    CKL_GEMM_NN, // A K-major, B N-major
    CKL_GEMM_TN, // A M-major, B N-major
    CKL_GEMM_TT, // A M-major, B K-major
} ckl_gemm_layout;

/*
 *     G = alpha * scale_a * scale_b * A*B + beta * C + bias
 *     D = scale_d * activation(G), of a backward activation scale_d * G * activation'(X)
 *
 * Rows of a matrix are ld elements apart. Sums are f32, of i8 i32; D is rounded once, at the end.
 */
typedef struct ckl_gemm_desc {
    int64_t m, n, k; // any of them may be 0
    ckl_dtype a;     // CKL_F16, BF16, F32, E4M3, E5M2 or I8

    /*
     * 0 means a. E4M3 and E5M2 go together; beside an A of 16 bits B may be E4M3, or integers, CKL_I8, or CKL_U8, which
     * are two of 4 bits a byte, the first in its low bits, each raised by 8. Then a row has k/2 bytes, and scales of
     * blocks are of A's type.
     */
    ckl_dtype b;
    ckl_dtype c; // 0: there is no C and beta is not used; else the type of D

    /*
     * The type of a, or CKL_F32; of 8-bit types CKL_F16, BF16 or F32; of 8-bit floats also E4M3 and E5M2, of I8 I32. 0
     * means a, BF16 of 8 bits.
     */
    ckl_dtype d;
    ckl_gemm_math math;                 // of an f32 A and B; 0 means f32
    ckl_gemm_accumulation accumulation; // of 8-bit floats; 0 means fast
    ckl_gemm_layout layout;             // 0 means nt
    int64_t lda, ldb, ldc, ldd;         // 0 means dense: k or m, k or n, n, n; without C ldc is 0
    ckl_activation activation;          // 0 means none
    bool gated; // B has 2n columns, U is A times the last n of them: D = scale_d * activation(G) * U. G and U have
                // scales and biases alike: those of columns are [2N]
    bool bias;  // adds a number of D's type, BF16 of 8 bits, to every element of a column of D, or a row:
    ckl_gemm_side bias_along;        // 0 means along n
    ckl_gemm_scale scale_a, scale_b; // 0 means none
    bool scale_d;                    // by one number of f32 in device memory, as those before
    bool device_scalars;             // alpha and beta are read from device memory
    bool preactivation;              // X is written: G, in D's type. X is read by backward activations instead
    int64_t ldx;                     // 0 means dense: n; without X it is 0

    /* So many products, each of its own matrices, which lie `stride` elements apart; the bias is that of all. */
    int64_t batch;                                            // 0 means 1
    int64_t stride_a, stride_b, stride_c, stride_d, stride_x; // 0 means one matrix after the other: rows * ld

    /*
     * Not 0: so many matrices B, stride_b apart, and the rows of A, C, D and X are dealt out to them by offsets in
     * device memory, as the tokens of a mixture of experts are. Biases along n and scales of columns are [groups,N].
     * There is no batch.
     */
    int64_t groups;

    bool batch_invariant; // rows of D have the same bits whatever m is, and whatever else is in A: K is never split

    /*
     * What is dealt out, 0: rows. With CKL_GEMM_GROUPS_OF_K there are so many matrices C, D and X, stride_c, stride_d
     * and stride_x apart, and one A and one B; group g has the numbers offsets[g] to offsets[g+1] - 1 of K. One without
     * any has no products.
     */
    ckl_gemm_deal groups_of;

    int64_t gather;  // not 0: A has so many rows, K-major, and row i of the product is of its row rows_a[i]
    int64_t scatter; // not 0: C, D and X have so many rows, and row i of the product is row rows_d[i] of them
    bool weighted;   // row i of D is multiplied by row_weights[i], last of all

    /*
     * a, b, c, d and x are arrays in device memory of the addresses of the batch's matrices, multiples of 16 each.
     * Nothing checks them, nor that the matrices of D are apart. There are no strides, groups and lists.
     */
    bool pointers;

    bool host_offsets; // args.offsets lie on the host, read during the call, or its capture: at most 1024 groups

    /*
     * A kernel that runs behind the product adds them in f32, always in the same order. There is no X that is written,
     * no D of 8-bit floats, no pointers and lists; with sums over K no batch and groups, and operands of 16 bits or
     * f32.
     */
    ckl_gemm_sums bias_gradient; // 0 means none

    int64_t block_k; // numbers of K that share a scale of a block: 64, of weights alone, or 128. 0 means 128

    bool amax; // of a D of 8-bit floats: args.amax becomes the largest |D| before scale_d and weights, if that is more

    /*
     * A custom epilogue by its name (gemm_epilogue.h), last of all; NULL or "none": there is none. The text stays as it
     * is while plans are made of it. m and n are less than 2^31, and D is of floats.
     */
    const char *epilogue;
} ckl_gemm_desc;

/*
 * The memory of one call: device pointers, or arrays of such in device memory. d may be c if their pitches and strides
 * are the same.
 */
typedef struct ckl_gemm_args {
    const void *a, *b, *c, *bias; // c and bias: NULL where the desc has none
    void *d;
    const float *scale_a; // device; NULL where the desc has none, as those below
    const void *scale_b;  // f32, or of A's type
    const float *scale_d;
    const float *device_alpha, *device_beta; // device; NULL where the desc has none
    void *x;                                 // [M,N]: written or read; NULL where the desc has none
    const int32_t
        *offsets; // device, [groups+1], from 0 rising to m, or k: group g has rows offsets[g] to offsets[g+1] - 1,
                  // perhaps none. Nothing checks them, but of the host; NULL where the desc has no groups
    const int32_t
        *rows_a; // device, [M]: rows of A, in any order, as often as they come. NULL where the desc has no gather
    const int32_t *rows_d;    // device, [M]: rows of D, each at most once. NULL where the desc has no scatter
    const float *row_weights; // device, [M]; NULL where the desc has none
    float *amax;              // device, read and written, not negative; NULL where the desc has none
    void *bias_gradient;      // device, written; NULL where the desc has none
    const float *alpha;       // host, read during the call; NULL means 1. With device scalars it is NULL
    const float *beta;        // host, as alpha; NULL means 1 if the desc has C. At 0 the kernel does not read C
    void *workspace;          // ckl_plan_workspace_bytes(), the caller's; NULL: the plan's own, for one run at a time
} ckl_gemm_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_gemm_plan(ckl_device *device, const ckl_gemm_desc *desc, ckl_plan **plan);

/*
 * Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. Runs of one plan that
 * may overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0: that of large A and B in rows
 * that are no multiple of 16 bytes is not, nor that of 8-bit types and tf32 that are not K-major, of few rows and
 * columns and a large k, of f32x3, and of large f32.
 */
CKL_MUST_USE CKL_API ckl_status ckl_gemm_run(const ckl_plan *plan, const ckl_gemm_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_gemm(ckl_device *device, const ckl_gemm_desc *desc, const ckl_gemm_args *args,
                                         ckl_stream stream);

CKL_END_DECLS
