/*
 * gemm_sm90_groups.c - rows of D, or elements of K, divided into groups by offsets in device memory. Every CTA counts
 * the tiles of all groups of rows; a tile's group is then searched in shared memory. Groups of K are products of a
 * batch.
 */
#include "operators/gemm/gemm_sm90.h"

/* Rows of D of a cluster's tile. */
static int rows_of_tile(const sm90_kernel *k)
{
    return k->cfg->swap ? k->size.tile_n * k->cfg->cluster_n : k->cfg->tile_m * k->cfg->cluster_m;
}

/* One warp counts, 32 groups at a time. */
static void count_tiles(const sm90_kernel *k)
{
    val before = variable(I32, imm_as(I32, 0));
    LOOP_FROM(chunk, imm(0), k->p.groups, imm(LANES)) {
        val g = min(add(chunk, lane()), sub(k->p.groups, imm(1))); // the count of lanes past the end is not used
        val rows = sub(at(k->sFirst, add(g, imm(1))), at(k->sFirst, g));
        val tiles = div_up(rows, rows_of_tile(k));
        val sum = add(before, warp_scan(tiles));
        IF(lt(add(chunk, lane()), k->p.groups))
            set(k->sTiles, add(g, imm(1)), sum);
        assign(before, shuffle(sum, imm(LANES - 1)));
    }
    IF(eq(lane(), imm(0)))
        set(k->sTiles, 0, imm_as(I32, 0));
}

void gemm_sm90_scan_groups(sm90_kernel *k)
{
    val count = add(k->p.groups, imm(1));
    tensor gFirst = gmem_vector(k->p.offsets, I32, count); // (GROUPS+1)
    LOOP_FROM(g, thread(), count, imm(k->size.threads))
        set(k->sFirst, g, at(gFirst, g));
    cta_sync();
    IF(eq(warp(), imm(0)))
        count_tiles(k);
    cta_sync();
}

val gemm_sm90_group_rows(const sm90_kernel *k)
{
    return convert(U32, at(k->sTiles, k->p.groups));
}

/* The last group with at most `tile` tiles before it, which skips groups without tiles. */
val gemm_sm90_find_group(const sm90_kernel *k, val *tile)
{
    val group = variable(U32, imm(0)), count = variable(U32, k->p.groups), wanted = convert(I32, *tile);
    FOREVER {
        BREAK_IF(le(count, imm(1)));
        val half = shift_right(count, imm(1)), middle = add(group, half);
        assign(group, select(le(at(k->sTiles, middle), wanted), middle, group));
        assign(count, sub(count, half));
    }
    *tile = convert(U32, sub(wanted, at(k->sTiles, group)));
    return group;
}

void gemm_sm90_find_part_of_k(const sm90_kernel *k, tile_place *at)
{
    tensor gFirst = gmem_vector(k->p.offsets, I32, add(k->p.groups, imm(1))); // (GROUPS+1)
    at->k_first = convert(U32, at(gFirst, at->batch));
    at->k_count = sub(convert(U32, at(gFirst, add(at->batch, imm(1)))), at->k_first);
}

/* Clears rows of K from `first` on in an operand's stage, 16 bytes a thread. */
static void clear_rows(const sm90_kernel *k, tensor sX, int extent, val first)
{
    enum { VECTOR = 16 / 2 }; // of 16 bits
    const int across = extent / VECTOR, threads = k->cfg->consumers * WARPGROUP;
    tensor rZeros = fragment(I32, compact(leaf(4)));
    fill(rZeros, imm_as(I32, 0));
    val vectors = mul(sub(imm(k->size.tile_k), first), imm(across));
    LOOP_FROM(v, sub(thread(), imm(WARPGROUP)), vectors, imm(threads)) {
        val address = tensor_address(sX, coord(mul(rem(v, imm(across)), imm(VECTOR)), add(first, div(v, imm(across)))));
        copy(rZeros, smem_view(address, I32, compact(leaf(4))), 16);
    }
}

void gemm_sm90_clear_others(const sm90_kernel *k, const tile_place *at, val k_tile, val stage)
{
    val left = sub(at->k_count, mul(k_tile, imm(k->size.tile_k))); // in this K tile or after it
    IF(lt(left, imm(k->size.tile_k))) {
        clear_rows(k, slice(k->sA, _, _, stage), k->cfg->tile_m, left);
        clear_rows(k, slice(k->sB, _, _, stage), k->size.loaded_n, left);
        fence_proxy_async();
        named_sync(imm(BARRIER_CLEARED), k->cfg->consumers * WARPGROUP);
    }
}
