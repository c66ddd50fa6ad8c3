/* matrix.h - the emulated tensor core: its arithmetic bit for bit, its fragments, its operands in shared memory. */
#pragma once

#include "cutekernellib/tensor.h"

/* An operand of one instruction, raw: rows of 32 bytes along K, as 16 halves, whatever their type. */
enum { MATRIX_BYTES = 32, MATRIX_HALVES = MATRIX_BYTES / 2 };

/* How the tensor cores of an architecture add. */
typedef struct tensor_core {
    int bytes;            // of a row whose products are added at once, a divisor of MATRIX_BYTES
    int fraction_bits;    // kept of a term below the common exponent
    int fraction_bits_f8; // the same of 8-bit floats, and of their sums
} tensor_core;

extern const tensor_core TENSOR_CORE_AMPERE; // A100, L4 (Ada): the products of an instruction in two halves
extern const tensor_core TENSOR_CORE_HOPPER;

/* The types of A and B. f32 counts as tf32. */
typedef struct matrix_types {
    ckl_dtype a, b;
} matrix_types;

/* A product of m x k and k x n elements on a tensor core. */
typedef struct matrix_product {
    const tensor_core *core;
    matrix_types types;
    int m, n, k;
} matrix_product;

/* k of one instruction. */
int matrix_k(matrix_types types);

/*
 * d[m][n] (+)= a[m][k] x b[n][k]^T, all dense and row-major; a and b are raw, d is f32, or i32 for integers. Without
 * `accumulate` the old d is taken as zero. k elements are whole rows of MATRIX_BYTES, of which each is one instruction.
 *
 * Integers wrap. The arithmetic of floats in mma.sync and wgmma is after the model of MMA-Sim (arXiv 2511.10909,
 * validated there against Ampere, Ada and Hopper; here against an H200 alone). tf32 is f32 without its low 13 bits. The
 * products of core->bytes of a row and the accumulator are added in fixed point, and that sum is the accumulator of
 * what follows:
 *   exponent of a product   the sum of its operands' exponents, not normalised: 1.5 x 1.5 = 2.25 has exponent 0.
 *                           Subnormal operands count with the smallest exponent of their type
 *   common exponent         the largest of all terms that are not zero, the accumulator's too, but at least -133.
 *                           NOTE: seen on an H200: of 524288 bf16 sums, 41 that end subnormal tell a floor of -133 from
 *                           none, and it gives all of them; -132 or -134 does not. 0 times 2^127 beside products of
 *                           2^-132 cuts nothing
 *   terms                   exact, then cut to `fraction_bits` below the common exponent (towards zero)
 *   sum                     exact, then rounded to f32 towards zero, that of 8-bit floats to fraction_bits_f8 bits of
 *                           fraction; from 2^128 on infinity. Subnormals are kept
 * A zero sum is +0. Infinities act as in IEEE 754, and every NaN comes out as 0x7fffffff.
 */
void matrix_multiply(const matrix_product *p, const void *a, const void *b, void *d, bool accumulate);

/* Shared memory of a CTA: byte 0 of it, and the shared addresses base .. base + bytes. */
typedef struct matrix_window {
    const unsigned char *shared;
    uint32_t base, bytes;
    void (*touch)(void *user, uint32_t address,
                  uint32_t bytes); // told of every 16-byte chunk that is read; may be NULL
    void *user;
} matrix_window;

/*
 * Reads one operand of a wgmma, out[rows][MATRIX_HALVES], through its shared-memory descriptor. rows (m or n) is a
 * multiple of 8. False and a sentence in `why` if the descriptor is malformed or leads out of the window; out is then
 * undefined.
 *
 * The descriptor (PTX ISA, "Matrix Descriptor Format"), offsets and addresses in units of 16 bytes:
 *   bits 0-13 start address, 16-29 leading byte offset (LBO), 32-45 stride byte offset (SBO), 49-51 base offset,
 *   62-63 swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
 * The layouts that it stands for (CUTLASS, mma_traits_sm90_gmma.hpp), in bytes, S the span of the swizzle, k < 16
 * counting halves; wider and narrower types lie as the halves of the same bytes do, and are K-major:
 *   K-major,  none   (row % 8) * 16 + (row / 8) * SBO + (k / 8) * LBO + (k % 8) * 2
 *   K-major,  S      (row % 8) * S  + (row / 8) * SBO + k * 2                                      LBO is not read
 *   MN-major, none   (row % 8) * 2 + (row / 8) * SBO + (k % 8) * 16 + (k / 8) * LBO
 *   MN-major, S      (row % (S/2)) * 2 + (row / (S/2)) * LBO + (k % 8) * S + (k / 8) * SBO
 * The swizzle acts on the absolute address (swizzle_address() in tma.h): a start address may lie inside a swizzle atom.
 */
bool matrix_gather(uint64_t descriptor, bool mn_major, int rows, const matrix_window *window, uint16_t *out,
                   char why[128]);

/*
 * Fragment layouts (PTX ISA, figures of wgmma m64nNk16 and mma m16n8k16): where half i of a thread lies in the raw
 * operand, and number i in the results. Halves are counted in register order, the lower one of a register first. Wider
 * and narrower types lie as the halves of the same bytes do.
 */
void matrix_wgmma_d(int thread, int i, int *row, int *column); // thread 0..127, i < n/2: 32 bits of the 64 x n tile
void matrix_wgmma_a(int thread, int i, int *row, int *column); // thread 0..127, i < 8: of 64 rows
void matrix_mma_a(int lane, int i, int *row, int *column);     // i < 8: of 16 rows
void matrix_mma_b(int lane, int i, int *row, int *column);     // i < 4: of 8 rows, which are n
void matrix_mma_d(int lane, int i, int *row, int *column);     // i < 4: 32 bits of the 16 x 8 tile
