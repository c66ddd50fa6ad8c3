/*
 * layout.h - CuTe's layout algebra: functions from coordinates to indices, by shape and stride.
 *
 * The algebra is that of NVIDIA's CuTe (CUTLASS, "02_layout_algebra"): the same names, the same results as functions of
 * the index. Coordinates run with the first mode fastest. Operations that CuTe leaves undefined end in ir_fail() with a
 * sentence that names the operation and the layouts; the result is then some harmless layout.
 *
 * Integers may be dynamic where nothing is said. "Static" operations end in ir_fail() for a dynamic layout.
 */
#pragma once

#include "cute/int_tuple.h"

/*
 * Sw<B,M,S>: xors B bits of an index, from bit M+S up, into the bits from M up; with S < 0 the bits from M up into
 * those from M-S up. B == 0 is the identity. 0 <= B <= |S|, 0 <= M.
 */
typedef struct swizzle {
    int bits, base, shift;
} swizzle;

/*
 * A layout; index = swizzle(crd2idx(coord, shape, stride)). Plain layouts have no swizzle. Operations that change
 * coordinates alone (modes, slices, composition, divides), and products, keep the swizzle of their first layout.
 */
typedef struct layout {
    int_tuple shape, stride;
    swizzle sw;
} layout;

enum { LAYOUT_MODES_MAX = INT_TUPLE_RANK_MAX }; // leaves of a layout, too, wherever it is flattened

/* Construction */
layout make_layout(int_tuple shape, int_tuple stride); // congruent, or ir_fail()
layout compact(int_tuple shape);                       // first mode fastest (LayoutLeft)
layout compact_right(int_tuple shape);                 // last mode fastest (LayoutRight)
layout layouts_of(int count, const layout *modes);     // concatenation: one mode per layout
layout layout_mode(layout a, int i);
layout layout_modes(layout a, int begin, int end); // modes begin..end-1
layout with_swizzle(swizzle sw, layout a);         // Sw o a
layout without_swizzle(layout a);
layout group_modes(layout a, int begin, int end); // modes begin..end-1 become one
layout flatten(layout a);

/* Queries. The val forms may be dynamic; the static_ forms want static layouts and ir_fail() otherwise. */
int rank(layout a);
int depth(layout a);
val size(layout a);
int64_t static_size(layout a);
int64_t cosize(layout a); // 1 + the largest index before the swizzle; static
bool layout_is_static(layout a);
bool has_swizzle(layout a);

/* Evaluation */
val crd2idx(int_tuple coord, layout a); // coord: an integer, or congruent to the shape or to its top modes
int64_t static_crd2idx(int_tuple coord, layout a);
int64_t index_at(layout a, int64_t i); // static layout at linear coordinate i, swizzle applied
int_tuple idx2crd(val i, layout a);    // coordinate of linear index i in the shape
val swizzle_apply(swizzle sw, val index);
int64_t swizzle_period(swizzle sw); // a multiple of it may be added before or after the swizzle

/* Slicing: coord has WILDCARD leaves where a mode stays. */
layout slice_layout(int_tuple coord, layout a); // the modes that stay, one mode each; 1:0 if none does
val slice_offset(int_tuple coord, layout a);    // the index of the fixed ones, before the swizzle

/* Simplification. Dynamic modes merge where strides are known to match (the same register). */
layout coalesce(layout a);

/*
 * a o b: the layout of b's shape with index a(b(coord)). b's indices must lie in a's domain, and each mode of b must
 * step evenly through the modes of a. Dynamic: a's modes that b reaches, but the last, must be static; b may be dynamic
 * where a is of a single mode. By mode: one layout per leading top mode of a; further modes of a stay as they are.
 */
layout composition(layout a, layout b);
layout composition_by_mode(layout a, int count, const layout *b);

/* Static a, injective: the ordered layout of what a's indices leave out below cosize_of_hi. */
layout complement(layout a, int64_t cosize_of_hi);
layout complement_within(layout a, val cosize_of_hi); // the same, of a dynamic cosize

/* Inverses. right: a(r(i)) == i, for as many i as static modes allow. left: l(a(i)) == i, for an injective static a. */
layout right_inverse(layout a);
layout left_inverse(layout a);

/*
 * The vector: longest run on which a and b agree; r with a(r(i)) == b(r(i)) == i up to a common offset. Static, may be
 * 1:0.
 */
layout max_common_layout(layout a, layout b);

/*
 * Divides: a into tiles and the rest. logical (tile,rest), zipped the same in two modes, tiled (tile,rest...), flat
 * (tile...,rest...). The tile must be static, and must divide a static layout.
 */
layout logical_divide(layout a, layout tile);
layout zipped_divide(layout a, layout tile);
layout tiled_divide(layout a, layout tile);
layout flat_divide(layout a, layout tile);

/*
 * Divides by a tile per leading top mode, as for local_tile: zipped ((tile...),(rest...,other modes...)). Modes may be
 * dynamic, and a tile need not divide its mode: the rest is rounded up and the last tile reaches past the end.
 */
layout logical_divide_by_mode(layout a, int count, const layout *tiler);
layout zipped_divide_by_mode(layout a, int count, const layout *tiler);
layout tiled_divide_by_mode(layout a, int count, const layout *tiler);
layout flat_divide_by_mode(layout a, int count, const layout *tiler);

/* Products: a repeated in the arrangement b. Static. blocked and raked join the modes of a and b pairwise. */
layout logical_product(layout a, layout b);
layout zipped_product(layout a, layout b);
layout tiled_product(layout a, layout b);
layout flat_product(layout a, layout b);
layout blocked_product(layout a, layout b);
layout raked_product(layout a, layout b);
layout tile_to_shape(layout block, int_tuple shape); // repeats block, first mode first, to cover the shape exactly

/* The same memory in elements of new_bits instead of old_bits. */
layout recast_layout(layout a, int old_bits, int new_bits);

/* "(4,(2,2)):(1,(4,8))", a swizzled one as "Sw<3,4,3>o(8,8):(8,1)". */
void layout_print(layout a, text *out);
const char *layout_text(layout a); // the same, in the memory of the description

/* Reads a layout without swizzle; a shape alone is compact. *end is where it stopped. False: ir_fail() says why. */
bool layout_parse(const char *string, const char **end, layout *out);
