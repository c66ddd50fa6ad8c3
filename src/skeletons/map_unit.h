/* map_unit.h - what the files of element-wise kernels share while they describe: operands, addresses, vectors. */
#pragma once

#include "cute/kernel.h"
#include "skeletons/map.h"

/* An operand while the kernel is described. */
typedef struct map_operand {
    val address; // of element 0; of a scalar its value
    val stride[MAP_RANK_MAX];
} map_operand;

/* Along the innermost dimension; CROSSED: contiguous along another one, FLAT: across the ends of rows. */
typedef enum map_access { CONTIGUOUS, CONSTANT, STRIDED, CROSSED, FLAT, SCALAR } map_access;

typedef struct map {
    const map_kernel *k;
    map_function *f;
    void *user;
    map_values p;
    ir_type index; // type of element numbers
    val count, size[MAP_RANK_MAX];
    map_operand operands[MAP_OPERANDS_MAX];
    struct crossing {                   // where operands are crossed; their addresses are those of the CTA's tile
        int64_t offset[MAP_INPUTS_MAX]; // of tiles in shared memory
        int margin;                     // their columns before the first of the output's; 0: rows begin at vectors
        val rows, columns, low;         // i32: elements up to the last of either dimension; the first column, 0 or less
        val phase, pitch; // u32, elements: where the output's first row begins, and what the next add to it
    } tile;
} map;

/* The vectors, one of each operand, that a thread takes at once. */
typedef struct map_unit {
    packed loaded[MAP_INPUTS_MAX];
    tensor rRows[MAP_INPUTS_MAX]; // (VEC) of operands whose rows a vector crosses
    tensor gY;                    // (VEC)
    val row, column;              // u32, in a tile of crossed operands
    val exists;                   // predicate, of such a tile
} map_unit;

map_access map_access_of(const map_kernel *k, int operand);

/* Bytes of an operand's element. */
int map_element_bytes(const map *m, int operand);

/* The address of an operand's element at these coordinates, and the vector from there on. */
val map_address_of(const map *m, int operand, const val *at);
tensor map_vector_of(const map *m, int operand, const val *at, int width);

/*
 * The vector from element `number` on, which is at these coordinates; of crossed ones whose rows begin anywhere, if it
 * exists. Crossed operands are read from the tile when it is finished: f is computed and stored.
 */
map_unit map_load_unit(const map *m, val number, const val *at, val exists, int width);
void map_finish_unit(const map *m, const map_unit *u, int width);

/* map_crossed.c: the tile of a CTA; elements of a row of it, from `column` on. */
void map_crossed_tile(map *m, int kernel);
packed map_read_crossed(const map *m, int operand, val row, val column, int width);
