/*
 * layout.h - CuTe's layout algebra: functions from coordinates to indices, by shape and stride.
 *
 * The algebra is that of NVIDIA's CuTe (CUTLASS, "02_layout_algebra"): the same names, the same results as functions of the
 * index. Coordinates run with the first mode fastest. Operations that CuTe leaves undefined end in ir_fail() with a sentence
 * that names the operation and the layouts; the result is then some harmless layout.
 */
#ifndef CKL_CUTE_LAYOUT_H
#define CKL_CUTE_LAYOUT_H

#include "cute/int_tuple.h"

/* Sw<B,M,S>: xors B bits of an index, from bit M+S up (S >= 0), into the bits from M up. B == 0 is the identity. */
typedef struct swizzle {
    int bits, base, shift;
} swizzle;

/* A layout; index = swizzle(offset + crd2idx(coord, shape, stride)). Plain layouts have no swizzle and offset 0. */
typedef struct layout {
    int_tuple shape, stride;
    swizzle sw;
} layout;

enum { LAYOUT_MODES_MAX = 64 };

/* Construction */
layout make_layout(int_tuple shape, int_tuple stride);    // congruent, or ir_fail()
layout compact(int_tuple shape);                          // first mode fastest (LayoutLeft)
layout compact_right(int_tuple shape);                    // last mode fastest (LayoutRight)
layout compact_ordered(int_tuple shape, int_tuple order); // modes become contiguous in increasing order
layout layouts_of(int count, const layout *modes);        // concatenation: one mode per layout
layout layout_mode(layout a, int i);
layout layout_modes(layout a, int begin, int end); // modes begin..end-1
layout with_swizzle(swizzle sw, layout a);         // Sw o a
layout group_modes(layout a, int begin, int end);  // modes begin..end-1 become one
layout flatten(layout a);

/* Queries. The val forms may be dynamic; the static_ forms want static layouts and ir_fail() otherwise. */
int rank(layout a);
int depth(layout a);
val size(layout a);
int64_t static_size(layout a);
int64_t cosize(layout a); // 1 + the largest index; static
bool layout_is_static(layout a);

/* Evaluation */
val crd2idx(int_tuple coord, layout a); // coord: an integer, or congruent to the shape or to its top modes
int64_t static_crd2idx(int_tuple coord, layout a);
int64_t index_at(layout a, int64_t i); // static layout at linear coordinate i, swizzle applied
int_tuple idx2crd(val i, layout a);    // coordinate of linear index i in the shape
uint64_t swizzle_apply(swizzle sw, uint64_t index);
val swizzle_apply_val(swizzle sw, val index);

/* Slicing: coord has WILDCARD leaves where a mode stays. */
extern const int_tuple WILDCARD;
layout slice_layout(int_tuple coord, layout a); // the modes that stay
val slice_offset(int_tuple coord, layout a);    // the index of the fixed ones

/* Algebra */
layout coalesce(layout a);
layout coalesce_modes(layout a); // each top mode by itself
layout composition(layout a, layout b);
layout composition_by_mode(layout a, int count, const layout *b);
layout complement(layout a, int64_t cosize_of_hi);
layout right_inverse(layout a);
layout left_inverse(layout a);
layout logical_divide(layout a, layout tile);
layout zipped_divide(layout a, layout tile);
layout tiled_divide(layout a, layout tile);
layout flat_divide(layout a, layout tile);
layout logical_divide_by_mode(layout a, int count, const layout *tiler); // a tile per top mode, as for local_tile
layout zipped_divide_by_mode(layout a, int count, const layout *tiler);  // ((tile...),(rest...)); sizes may be dynamic
layout tiled_divide_by_mode(layout a, int count, const layout *tiler);
layout flat_divide_by_mode(layout a, int count, const layout *tiler);
layout logical_product(layout a, layout b);
layout zipped_product(layout a, layout b);
layout tiled_product(layout a, layout b);
layout flat_product(layout a, layout b);
layout blocked_product(layout a, layout b);
layout raked_product(layout a, layout b);
layout tile_to_shape(layout block, int_tuple shape);
layout recast_layout(layout a, int old_bits, int new_bits);
layout max_common_layout(layout a, layout b); // the vector: longest run on which a and b agree

/* "(4,(2,2)):(1,(4,8))", a swizzled one as "Sw<3,4,3>o(8,8):(8,1)"; the calculator's format. */
void layout_print(layout a, text *out);

/* Parses a literal "shape:stride" or "shape". */
bool layout_parse(const char *string, const char **end, layout *out); // false: not a literal; says why by ir_fail()

#endif
