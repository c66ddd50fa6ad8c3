/* tma.h - what a tensor map means: its encoding on the emulated device, its box in memory, the swizzles. */
#pragma once

#include "device/device.h"

/*
 * Where a byte of a swizzled tile lies: 16-byte chunks are exchanged within a span of 0 (none), 32, 64 or 128 bytes.
 * Address bits 4, 4-5 or 4-6 are xored with as many bits from bit 7 on. Its own inverse.
 */
uint32_t swizzle_address(uint32_t address, int span);

/* Checks a tensor map and writes it in the emulator's own encoding, which only tma_decode() reads. */
ckl_status tma_encode(const tensor_map_desc *desc, tensor_map *map);

/* Reads the 128 bytes of a tensor map at any alignment; false if tma_encode() did not write them. */
bool tma_decode(const void *map128, tensor_map_desc *desc);

/* Bytes of the box: what a load completes on its mbarrier, out-of-bounds elements included. */
int64_t tma_box_bytes(const tensor_map_desc *desc);

/* Contiguous bytes of a box. global is NULL where the box is out of bounds: a load fills zeros, a store skips it. */
typedef void tma_run(void *user, uint32_t shared_offset, unsigned char *global, uint32_t bytes);

/* Is the place at coordinates one of those of an im2col map, or behind them all? */
bool tma_is_place(const tensor_map_desc *desc, const int32_t *coordinates);

/*
 * Hands the box at coordinates (elements, innermost first; may be negative or past the end) to `run`, row by row in
 * order of shared memory; a row that crosses a bound of dimension 0 is split there. shared_offset counts bytes from the
 * start of the box before swizzling: rows are dense, or a whole swizzle span apart. In im2col mode coordinates are the
 * first place, and behind them the offsets.
 */
void tma_walk(const tensor_map_desc *desc, const int32_t *coordinates, tma_run *run, void *user);

/*
 * The map as a store sees it: TMA writes whole 16-byte chunks, so a row whose length is not a multiple of 16 bytes is
 * written up to 15 bytes past its end. NOTE: seen on an H200 (driver 580): f16 rows of 1, 2, 3, 9, 10, 17, 31 and 33
 * elements.
 */
tensor_map_desc tma_as_stored(const tensor_map_desc *desc);
