/*
 * gemm_groups.c - the group of a tile where offsets divide rows into groups, for kernels whose CTAs have a tile each:
 * each thread counts the tiles of one group at a time.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

/* Tiles of group g; 0 beyond the last group. */
static val tiles_of(const gemm_values *all, val g, int rows_of_tile)
{
    val there = min(g, sub(all->groups, imm(1)));
    val rows = convert(I32, sub(gemm_first_row(all, add(there, imm(1))), gemm_first_row(all, there)));
    val tiles = div_up(rows, rows_of_tile);
    return select(lt(g, all->groups), tiles, imm_as(I32, 0));
}

val gemm_find_group(const gemm_values *all, int threads, int rows_of_tile, val *tile)
{
    const int warps = threads / LANES;
    tensor sTotals = smem_tensor("tiles of warps", I32, compact(leaf(warps)), 4);
    tensor sFound = smem_tensor("group", I32, compact(leaf(2)), 4); // and the tile in it
    val before = variable(I32, imm_as(I32, 0)), wanted = convert(I32, *tile);
    IF(eq(thread(), imm(0))) {
        set(sFound, 0, convert(I32, all->groups));
        set(sFound, 1, imm_as(I32, 0));
    }
    LOOP_FROM(chunk, imm(0), all->groups, imm(threads)) {
        val g = add(chunk, thread()), tiles = tiles_of(all, g, rows_of_tile), sum = warp_scan(tiles), end = sum;
        IF(eq(lane(), imm(LANES - 1)))
            set(sTotals, warp(), sum);
        cta_sync();
        val next = before;
        for (int w = 0; w < warps; w++) {
            val total = at(sTotals, w);
            end = add(end, select(gt(warp(), imm(w)), total, imm_as(I32, 0)));
            next = add(next, total);
        }
        val start = sub(add(before, end), tiles);
        IF(logical_and(ge(wanted, start), lt(wanted, add(start, tiles)))) {
            set(sFound, 0, convert(I32, g));
            set(sFound, 1, sub(wanted, start));
        }
        assign(before, next);
        cta_sync();
    }
    *tile = convert(U32, at(sFound, 1));
    return convert(U32, at(sFound, 0));
}
