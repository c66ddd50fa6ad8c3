/* layout_divide.c - divides (a layout into tiles) and products (a layout repeated). */
#include "cute/layout_core.h"

/* Divides */

/* Whether tiles, an injective layout, visits each coordinate of a once; true if that depends on run-time values. */
static bool cover(layout tiles, layout a)
{
    if (!is_static(a.shape) || !layout_is_static(tiles))
        return true;
    int64_t count = static_size(a);
    return static_size(tiles) == count && cosize(tiles) == count;
}

/* (tile,rest) of one layout by one tile. With `past_end`, the last tile may reach past the end of a. */
static layout divide(layout a, layout tile, bool past_end)
{
    layout both[] = { a, tile }, result;
    if (!layout_is_static(tile) || has_swizzle(tile))
        return no_layout("logical_divide", "need a static tile without swizzle", 2, both);
    layout tiles = layouts_of(2, (layout[]){ tile, complement_within(tile, size(a)) });
    if (!past_end && !cover(tiles, a))
        return no_layout("logical_divide", "do not divide: the tile does not cover the layout evenly", 2, both);
    const char *why = ir_failed() ? "have no tiles" : compose(a, tiles, &result);
    return why ? no_layout("logical_divide", why, 2, both) : result;
}

/* A zipped layout with the modes of its second mode spread out, and of the first one where that is wanted. */
static layout spread(layout zipped, bool both)
{
    layout modes[2 * LAYOUT_MODES_MAX], tile = layout_mode(zipped, 0), rest = layout_mode(zipped, 1);
    int count = 0;
    for (int i = 0; i < (both ? rank(tile) : 1); i++)
        modes[count++] = both ? layout_mode(tile, i) : tile;
    for (int i = 0; i < rank(rest); i++)
        modes[count++] = layout_mode(rest, i);
    return layouts_of(count, modes);
}

layout logical_divide(layout a, layout tile)
{
    layout result = divide(a, tile, false);
    return ir_failed() ? layouts_of(2, (layout[]){ result, result }) : result;
}

layout zipped_divide(layout a, layout tile)
{
    return logical_divide(a, tile);
}

layout tiled_divide(layout a, layout tile)
{
    return spread(zipped_divide(a, tile), false);
}

layout flat_divide(layout a, layout tile)
{
    return spread(zipped_divide(a, tile), true);
}

layout logical_divide_by_mode(layout a, int count, const layout *tiler)
{
    layout modes[LAYOUT_MODES_MAX];
    if (count > rank(a))
        return no_layout("logical_divide", "has fewer modes than there are tiles", 1, &a);
    for (int i = 0; i < rank(a); i++)
        modes[i] = i < count ? divide(layout_mode(a, i), tiler[i], true) : layout_mode(a, i);
    return layouts_of(rank(a), modes);
}

layout zipped_divide_by_mode(layout a, int count, const layout *tiler)
{
    layout divided = logical_divide_by_mode(a, count, tiler);
    layout tiles[LAYOUT_MODES_MAX], rests[LAYOUT_MODES_MAX];
    if (ir_failed())
        return layouts_of(2, (layout[]){ divided, divided });
    for (int i = 0; i < count; i++)
        tiles[i] = layout_mode(layout_mode(divided, i), 0);
    for (int i = 0; i < rank(a); i++)
        rests[i] = i < count ? layout_mode(layout_mode(divided, i), 1) : layout_mode(divided, i);
    return layouts_of(2, (layout[]){ layouts_of(count, tiles), layouts_of(rank(a), rests) });
}

layout tiled_divide_by_mode(layout a, int count, const layout *tiler)
{
    return spread(zipped_divide_by_mode(a, count, tiler), false);
}

layout flat_divide_by_mode(layout a, int count, const layout *tiler)
{
    return spread(zipped_divide_by_mode(a, count, tiler), true);
}

/* Products */

/* (block,repetitions): b's arrangement of a, in the gaps and after the end of a. */
layout logical_product(layout a, layout b)
{
    layout both[] = { a, b }, repeated = a;
    const char *why = NULL;
    if (!layout_is_static(a) || !layout_is_static(b) || has_swizzle(b)) {
        why = "need to be static, the second without swizzle";
    } else {
        val reach = int_mul(size(a), ir_int(CKL_I64, cosize(b)));
        why = compose(complement_within(without_swizzle(a), reach), b, &repeated);
    }
    if (why)
        repeated = no_layout("logical_product", why, 2, both);
    return layouts_of(2, (layout[]){ a, repeated });
}

layout zipped_product(layout a, layout b)
{
    return logical_product(a, b);
}

layout tiled_product(layout a, layout b)
{
    return spread(zipped_product(a, b), false);
}

layout flat_product(layout a, layout b)
{
    return spread(zipped_product(a, b), true);
}

/* With modes 1:0 up to the given rank. */
static layout padded(layout a, int to_rank)
{
    while (rank(a) < to_rank) {
        a.shape = append_mode(a.shape, leaf(1));
        a.stride = append_mode(a.stride, leaf(0));
    }
    return a;
}

/* The product with mode i of block and of repetitions joined, blocks outside or inside. */
static layout ranked_product(layout a, layout b, bool raked)
{
    int modes_count = (int)max_i64(rank(a), rank(b));
    layout product = logical_product(padded(a, modes_count), padded(b, modes_count));
    layout fast = layout_mode(product, raked ? 1 : 0), slow = layout_mode(product, raked ? 0 : 1);
    layout modes[LAYOUT_MODES_MAX];
    if (ir_failed())
        return product;
    for (int i = 0; i < modes_count; i++)
        modes[i] = layouts_of(2, (layout[]){ layout_mode(fast, i), layout_mode(slow, i) });
    return layouts_of(modes_count, modes);
}

layout blocked_product(layout a, layout b)
{
    return ranked_product(a, b, false);
}

layout raked_product(layout a, layout b)
{
    return ranked_product(a, b, true);
}

layout tile_to_shape(layout block, int_tuple shape)
{
    int_tuple repeats[INT_TUPLE_RANK_MAX];
    int count = tuple_rank(shape);
    if (!layout_is_static(block) || !is_static(shape) || rank(block) > count)
        return no_layout("tile_to_shape", "needs to be static, of no more modes than the shape", 1, &block);
    block = padded(block, count);
    for (int i = 0; i < count; i++) {
        val extent = tuple_product(tuple_mode(shape, i)), tile = size(layout_mode(block, i));
        if (!ir_is_int(int_mod(extent, tile), 0))
            return no_layout("tile_to_shape", "does not divide the shape", 1, &block);
        repeats[i] = dynamic(int_div(extent, tile));
    }
    return blocked_product(block, compact(tuple_of(count, repeats)));
}
