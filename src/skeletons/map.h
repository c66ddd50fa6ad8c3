/*
 * map.h - kernels that compute y = f(x0, x1, ...) element by element over strided tensors: add and elementwise.
 *
 * The host simplifies the shape, chooses and lists the parameters; the kernel takes one tile a CTA in the order of the
 * output's memory: `steps` vectors a thread, all loaded before the first is computed, neighbouring threads side by
 * side. What is constant along the innermost dimension is loaded as one element. f appends instructions.
 *
 * Where rows end inside a vector, but the output and the large inputs have no gaps, vectors run on across the ends of
 * rows (`flat`); the other inputs are loaded element by element. Inputs contiguous along another dimension than the
 * output (`crossed`: map_crossed.c) are loaded along that one into a tile in shared memory and read along the output's.
 * Rows of floats that start anywhere are taken one by one (`row_threads`: map_rows.c).
 */
#pragma once

#include "base/dtype.h"
#include "base/fields.h"
#include "base/math.h"
#include "cute/divisor.h"
#include "cutekernellib/device.h"
#include "ir/build.h"
#include "ir/params.h"

enum { MAP_INPUTS_MAX = 4, MAP_OPERANDS_MAX = MAP_INPUTS_MAX + 1, MAP_RANK_MAX = 5 };

/* Sizes and strides in elements, outermost first; operands are the inputs, then the output. Scalars have strides 0. */
typedef struct map_shape {
    int rank, operands;
    int64_t size[MAP_RANK_MAX];
    int64_t stride[MAP_OPERANDS_MAX][MAP_RANK_MAX];
    int64_t count; // elements; set by map_simplify()
} map_shape;

/*
 * The same elements in as few dimensions as possible: ordered by the output's strides, those of one element dropped,
 * neighbours merged where every operand runs through both evenly. Without elements only count is meaningful.
 */
void map_simplify(map_shape *s);

/*
 * What is chosen for a problem, as operators have it in their configs. Masks have a bit per operand; bit 0 is the first
 * input.
 */
#define MAP_CONFIG(X, owner)                                                                                          \
    X(owner, int, rank, "1", "", "dimensions of the simplified shape")                                                \
    X(owner, int, constant, "0", "", "mask of operands that are constant along the innermost one")                    \
    X(owner, int, strided, "0", "", "mask of operands with gaps along it")                                            \
    X(owner, int, crossed, "0", "", "mask of inputs that are contiguous along another one: tiles in shared memory")   \
    X(owner, int, cross, "0", "", "number of that dimension")                                                         \
    X(owner, int, cross_rows, "0", "0 16 32 64", "elements of a tile along it; 0: no input is crossed")               \
    X(owner, bool, ragged, "0", "0 1",                                                                                \
      "crossed: rows of the others begin anywhere, all alike; vectors between boundaries")                            \
    X(owner, bool, pairs, "0", "0 1", "of crossed inputs of 16 bits two elements along it are loaded at once")        \
    X(owner, int, flat, "0", "",                                                                                      \
      "mask of operands without gaps, whose vectors cross the ends of rows; 0: vectors lie in rows")                  \
    X(owner, int, row_threads, "0", "0 16 32 128 256",                                                                \
      "threads that share a row that starts anywhere; 0: elements are numbered across rows")                          \
    X(owner, int, cut, "0", "", "mask of inputs whose vectors are cut out of two: rows out of phase with the output") \
    X(owner, bool, wide, "0", "", "element numbers are 2^31 or more")                                                 \
    X(owner, int, threads, "256", "128 256 512 1024", "threads of a CTA")                                             \
    X(owner, int, vec, "4", "1 2 4 8 16", "elements that a thread takes side by side")                                \
    X(owner, int, steps, "4", "1 2 4 8", "vectors of a thread; a CTA takes one tile of them")                         \
    X(owner, int, ctas_per_sm, "0", "0 2 3 4 5 6 8", "CTAs that must fit an SM: bounds registers; 0: any")            \
    X(owner, bool, prefetch, "0", "0 1", "ask L2 for the inputs while the kernel before may still run")               \
    X(owner, quoted, expr, "", "?", "the function, where an operator has many")                                       \
    X(owner, ckl_dtype, in0, "default", "", "types of the inputs; default: there is none")                            \
    X(owner, ckl_dtype, in1, "default", "", "")                                                                       \
    X(owner, ckl_dtype, in2, "default", "", "")                                                                       \
    X(owner, ckl_dtype, in3, "default", "", "")                                                                       \
    X(owner, ckl_dtype, out, "default", "", "type of the output")                                                     \
    X(owner, ckl_dtype, compute, "f32", "f32 i32", "type of values")                                                  \
    X(owner, int, scalars, "0", "", "mask of inputs that are numbers")

FIELD_STRUCT(map_config, MAP_CONFIG);

/* What is known when a kernel is described. */
typedef struct map_kernel {
    int inputs;
    ckl_dtype dtype[MAP_OPERANDS_MAX]; // f32 f16 bf16 i32 u8 bool, in order of the operands
    bool scalar[MAP_INPUTS_MAX];       // an f32 that the host passes by value
    ckl_dtype compute;                 // the type of f's values: f32 or i32
    map_config config;
} map_kernel;

/* The kernel of a config, which has its types. */
map_kernel map_kernel_of(const map_config *config);

/* Elements of a tile: what one CTA computes. Of crossed operands it is `cross_rows` rows of MAP_CROSS_TILE elements. */
enum { MAP_CROSS_TILE = 64, MAP_PAIR_BYTES = 4 };
int64_t map_tile(const map_kernel *k);
int64_t map_ctas(const map_kernel *k, const map_shape *s);

/* Columns of crossed tiles before those of the output where rows begin anywhere: what a sector or a vector has. */
int map_margin(const map_kernel *k);

/* Is this crossed input loaded by pairs of elements? */
bool map_has_pairs(const map_kernel *k, int input);

/* May kernel 0 work at these pointers? Kernel 1 wants them aligned to the element only. */
bool map_aligned(const map_kernel *k, const void *const *pointers);

/* Of a launch: factor and shift divide by sizes (cute/divisor.h); strides of operand i from [i * MAP_RANK_MAX] on. */
#define MAP_PARAMS(X, owner)                       \
    X(owner, pointer, pointer, [MAP_OPERANDS_MAX]) \
    X(owner, f32, scalar, [MAP_INPUTS_MAX])        \
    X(owner, i64, count)                           \
    X(owner, i64, size, [MAP_RANK_MAX])            \
    X(owner, u32, factor, [MAP_RANK_MAX])          \
    X(owner, u32, shift, [MAP_RANK_MAX])           \
    X(owner, i64, stride, [MAP_OPERANDS_MAX * MAP_RANK_MAX])

KERNEL_PARAMS(map, MAP_PARAMS);

/*
 * The coordinates of number `n` along dimensions 0 to `last`, the last one fastest. u32, if they are below 2^31; i64
 * each.
 */
void map_coordinates(const map_values *p, int last, val n, val *at);

/* Asks L2 for the inputs, where the config says so. */
void map_prefetch(const map_kernel *k, const map_values *p);

/*
 * The parameters of a launch over a simplified shape. pointers: of the inputs, then the output; scalars are read from
 * theirs.
 */
map_params map_params_of(const map_kernel *k, const map_shape *s, const void *const *pointers);

/* f(inputs): appends the instructions for one element; values of the compute type, the result too. */
typedef val map_function(const val *inputs, void *user);

/*
 * Describes kernel 0, by vectors, or kernel 1: by vectors between the boundaries of operands that lie in phase, in one
 * stretch of memory, else by single elements.
 */
void map_describe(map_kernel k, int kernel, map_function *f, void *user);
