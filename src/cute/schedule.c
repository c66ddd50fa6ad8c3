/* schedule.c - tile numbers to tile coordinates. */
#include "cute/schedule.h"

static val tiles_of(val extent, int tile)
{
    return ir_convert(
        IR_U32, ir_binary(IR_DIV, ir_binary(IR_ADD, extent, ir_int(extent.type, tile - 1)), ir_int(extent.type, tile)));
}

tile_schedule make_tile_schedule(val m, val n, int tile_m, int tile_n, int group)
{
    val tiles_m = tiles_of(m, tile_m), tiles_n = tiles_of(n, tile_n);
    return (tile_schedule){ tiles_m, tiles_n, ir_binary(IR_MUL, tiles_m, tiles_n), group };
}

void tile_at(const tile_schedule *s, val tile, val *row, val *column)
{
    val group = ir_u32(s->group);
    val band_tiles = ir_binary(IR_MUL, s->tiles_n, group);
    val band = ir_binary(IR_DIV, tile, band_tiles);
    val first_row = ir_binary(IR_MUL, band, group);
    val rows = ir_binary(IR_MIN, ir_binary(IR_SUB, s->tiles_m, first_row), group); // the last band may be thinner
    val in_band = ir_binary(IR_SUB, tile, ir_binary(IR_MUL, band, band_tiles));
    *row = ir_binary(IR_ADD, first_row, ir_binary(IR_REM, in_band, rows));
    *column = ir_binary(IR_DIV, in_band, rows);
}
