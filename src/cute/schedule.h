/* schedule.h - the order in which persistent CTAs take the tiles of a matrix. */
#pragma once

#include "cute/tensor.h"

/* Tiles of M x N in bands of `group` rows of tiles: column by column inside a band, so that L2 serves both operands. */
typedef struct tile_schedule {
    val tiles_m, tiles_n, count; // u32; of clusters, not CTAs
    int group;
} tile_schedule;

tile_schedule make_tile_schedule(val m, val n, int tile_m, int tile_n, int group);

/* Tile number -> its row and column of tiles. */
void tile_at(const tile_schedule *s, val tile, val *row, val *column);
