/*
 * int_tuple.h - integer tuples, nested: the shapes, strides and coordinates of CuTe.
 *
 * A tuple is an immutable tree in the memory of the description under way (ir_alloc), so it is passed by pointer and
 * never freed. Leaves are IR values: constants are static integers and fold; registers are dynamic ones, and arithmetic
 * on them appends instructions to the current kernel.
 */
#pragma once

#include "ir/build.h"

typedef const struct int_tuple_node *int_tuple;

struct int_tuple_node {
    int rank; // INT_TUPLE_LEAF: a single integer
    val leaf;
    int_tuple modes[]; // rank of them
};

enum { INT_TUPLE_LEAF = -1, INT_TUPLE_RANK_MAX = 64 };

/* Construction. tuple(a, b, c) makes a tuple of tuples; integers enter as leaf(4) or dynamic(v). */
int_tuple leaf(int64_t i);
int_tuple dynamic(val v);
int_tuple tuple_of(int rank, const int_tuple *modes);
int_tuple ints_of(int rank, const int64_t *values);
#define tuple(...) \
    tuple_of((int)(sizeof((int_tuple[]){ __VA_ARGS__ }) / sizeof(int_tuple)), (int_tuple[]){ __VA_ARGS__ })
#define ints(...) /* a tuple of static leaves */ \
    ints_of((int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ })

/* Structure. A leaf has rank 1 and depth 0, and is its own mode 0. */
bool is_leaf(int_tuple t);
int tuple_rank(int_tuple t);
int tuple_depth(int_tuple t);
int_tuple tuple_mode(int_tuple t, int i);
bool is_static(int_tuple t);              // every leaf is constant
int64_t static_leaf(int_tuple t);         // of a static leaf
bool congruent(int_tuple a, int_tuple b); // same nesting
int_tuple flatten_tuple(int_tuple t);     // rank-n tuple of leaves, at most INT_TUPLE_RANK_MAX of them
int_tuple unflatten_tuple(int_tuple flat, int_tuple profile);
int_tuple append_mode(int_tuple t, int_tuple mode); // a leaf first becomes a tuple of one
int_tuple take_modes(int_tuple t, int begin, int end);

/*
 * Arithmetic on leaves. Static operands fold, and a result beyond 64 bits is ir_fail()'s. Dynamic ones are emitted in
 * the wider type of the two. Division and remainder are of x >= 0 by y > 0; by a power of two they are a shift and a
 * mask.
 */
val int_add(val x, val y);
val int_mul(val x, val y);
val int_div(val x, val y);
val int_mod(val x, val y);
val int_ceil_div(val x, val y);
bool int_same(val x, val y); // known to be equal: the same constant or the same register
val tuple_product(int_tuple t);

/* (2,(3,4)) into text, without spaces; dynamic leaves as ?, WILDCARD as _. */
void tuple_print(int_tuple t, text *out);
const char *tuple_text(int_tuple t); // the same, in the memory of the description

/* The leaf of a coordinate that stands for a whole mode. */
extern const int_tuple WILDCARD;
