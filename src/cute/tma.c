/* tma.c - boxes by the tensor memory accelerator. */
#include "cute/tma.h"

enum { SPAN_MAX = 128, TILES_ALIGN = 1024 }; // bytes of the widest swizzle; eight rows of it

/* Sw<b,4,3> in bytes, as TMA and wgmma swizzle: 16-byte chunks within a span are xored by the row in a group of 8. */
static swizzle swizzle_of(ckl_dtype dtype, int span)
{
    if (span == 0)
        return (swizzle){ 0, 0, 0 };
    if (span < 16 || span > SPAN_MAX || !is_power_of_two(span)) {
        ir_fail("TMA box: there is no swizzle of %d bytes", span);
        return (swizzle){ 0, 0, 0 };
    }
    int unit = log2_i64((int64_t)ckl_dtype_bytes(dtype)); // the layout counts elements, the swizzle bytes
    return (swizzle){ log2_i64(span / 16), 4 - unit, 3 };
}

layout tma_tile_layout(ckl_dtype dtype, int rows, int cols, int swizzle_bytes)
{
    const int pitch = swizzle_bytes ? swizzle_bytes / (int)ckl_dtype_bytes(dtype) : cols;
    layout plain = make_layout(shape(rows, cols), stride(pitch, 1));
    return swizzle_bytes ? with_swizzle(swizzle_of(dtype, swizzle_bytes), plain) : plain;
}

tensor tma_tiles(const char *name, ckl_dtype dtype, int rows, int cols, int count, int count_outer)
{
    const int span = cols * (int)ckl_dtype_bytes(dtype);
    const int64_t elements = (int64_t)rows * cols;
    layout plain = make_layout(shape(rows, cols, count, count_outer), stride(cols, 1, elements, elements * count));
    return smem_tensor(name, dtype, with_swizzle(swizzle_of(dtype, span > SPAN_MAX ? 0 : span), plain), TILES_ALIGN);
}

tensor tma_ring(const char *name, ckl_dtype dtype, int rows, int cols, int stages)
{
    return tensor_slice(tma_tiles(name, dtype, rows, cols, stages, 1), coord(WILDCARD, WILDCARD, WILDCARD, 0));
}

tma_copy make_tma(val map, ckl_dtype dtype, int rank, int rows, int cols, int swizzle_bytes)
{
    int64_t row_bytes = cols * (int64_t)ckl_dtype_bytes(dtype);
    if (swizzle_bytes && row_bytes > swizzle_bytes)
        ir_fail("TMA box: rows of %" PRId64 " bytes are longer than the %d-byte swizzle", row_bytes, swizzle_bytes);
    if (rows > 256 || cols > 256)
        ir_fail("TMA box: %dx%d, more than 256 elements along a dimension", rows, cols);
    if (rank < 2 || rank > IR_TENSOR_MAP_RANK_MAX)
        ir_fail("TMA box: rank=%d is not in 2..%d", rank, IR_TENSOR_MAP_RANK_MAX);
    return make_tma_box(map, dtype, rank, (const int[]){ cols, rows, 1, 1, 1 }, NULL, swizzle_bytes);
}

tma_copy make_tma_box(val map, ckl_dtype dtype, int rank, const int *box, const int *step, int swizzle_bytes)
{
    ir_tensor_map wanted = { .dtype = dtype, .rank = rank, .swizzle_bytes = swizzle_bytes };
    tma_copy tma = { map, dtype, rank, 1, box[0], swizzle_bytes, false };
    for (int i = 0; i < IR_TENSOR_MAP_RANK_MAX; i++) {
        wanted.box[i] = i < rank ? box[i] : 1;
        wanted.step[i] = step && i < rank && step[i] > 1 ? step[i] : 0;
        tma.rows *= i ? wanted.box[i] : 1;
    }
    ir_tensor_map_set(map, wanted);
    return tma;
}

tma_copy make_tma_im2col(val map, ckl_dtype dtype, int rank, int pixels, int channels, const int *step,
                         int swizzle_bytes)
{
    ir_tensor_map wanted = { .dtype = dtype,
                             .rank = rank,
                             .swizzle_bytes = swizzle_bytes,
                             .im2col = true,
                             .box = { channels, pixels, 1, 1, 1 } };
    if (rank < 3 || rank > IR_TENSOR_MAP_RANK_MAX)
        ir_fail("TMA im2col: rank=%d is not in 3..%d", rank, IR_TENSOR_MAP_RANK_MAX);
    for (int i = 1; i < rank - 1 && !ir_failed(); i++)
        wanted.step[i] = step[i] > 1 ? step[i] : 0;
    ir_tensor_map_set(map, wanted);
    return (tma_copy){ map, dtype, rank, pixels, channels, swizzle_bytes, true };
}

int64_t tma_bytes(const tma_copy *tma)
{
    return (int64_t)tma->rows * tma->cols * (int64_t)ckl_dtype_bytes(tma->dtype);
}

/* Is the shared tile laid out as this TMA writes it? */
static void check_tile(const tma_copy *tma, tensor sTile)
{
    layout want = tma_tile_layout(tma->dtype, tma->rows, tma->cols, tma->swizzle_bytes), have = sTile.layout;
    bool same = !ir_failed() && layout_is_static(have) && static_size(have) == static_size(want);
    int64_t rows = tma->rows, columns = same ? tma->cols : 0, chunk = 16 / (int64_t)ckl_dtype_bytes(tma->dtype);
    for (int64_t i = 0; i < columns * rows && same; i++) // swizzles move 16-byte chunks: a column of each is enough
        same = i / rows % chunk != 0 || index_at(have, i) == index_at(want, i);
    if (!same && !ir_failed())
        ir_fail("TMA box of %dx%d: the shared tile is %s, the box needs %s", tma->rows, tma->cols, layout_text(have),
                layout_text(want));
}

enum { COORDINATES_MAX = IR_TENSOR_MAP_RANK_MAX };

/* Coordinates of the tile's box, innermost first, as the instructions take them; returns their count. */
static int box_of(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer,
                  val out[COORDINATES_MAX])
{
    val all[COORDINATES_MAX] = { col, row };
    check_tile(tma, sTile);
    if (2 + count != tma->rank) {
        ir_fail("TMA box: %d coordinates in a tensor of rank %d", 2 + count, tma->rank);
        return 0;
    }
    for (int i = 0; i < count; i++)
        all[2 + i] = outer[i];
    for (int i = 0; i < 2 + count; i++)
        out[i] = ir_bitcast(CKL_I32, ir_convert(IR_U32, all[i]));
    return 2 + count;
}

void tma_load_of(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer, val barrier,
                 val multicast_mask)
{
    val coordinates[COORDINATES_MAX];
    int n = box_of(tma, sTile, row, col, count, outer, coordinates);
    ir_tma_load(sTile.address, 0, tma->map, barrier, multicast_mask, n, coordinates);
}

void tma_load_im2col(const tma_copy *tma, tensor sTile, val channel, const val *place, const val *offsets, val barrier,
                     val multicast_mask)
{
    val coordinates[COORDINATES_MAX];
    if (!tma->im2col)
        ir_fail("TMA im2col: the copy is one of boxes");
    const int n = box_of(tma, sTile, place[0], channel, tma->rank - 2, place + 1, coordinates);
    ir_tma_load_im2col(sTile.address, 0, tma->map, barrier, multicast_mask, n, coordinates, offsets);
}

void tma_load(const tma_copy *tma, tensor sTile, val row, val col, val barrier, val multicast_mask)
{
    tma_load_of(tma, sTile, row, col, 0, NULL, barrier, multicast_mask);
}

static void store(ir_tma_store_kind how, const tma_copy *tma, tensor sTile, val row, val col, int count,
                  const val *outer)
{
    val coordinates[COORDINATES_MAX];
    int n = box_of(tma, sTile, row, col, count, outer, coordinates);
    ir_tma_store(how, tma->map, sTile.address, 0, n, coordinates);
}

void tma_store_of(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer)
{
    store(IR_TMA_WRITE, tma, sTile, row, col, count, outer);
}

void tma_store_same(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer)
{
    store(IR_TMA_WRITE_SAME, tma, sTile, row, col, count, outer);
}

void tma_store(const tma_copy *tma, tensor sTile, val row, val col)
{
    store(IR_TMA_WRITE, tma, sTile, row, col, 0, NULL);
}

void tma_add(const tma_copy *tma, tensor sTile, val row, val col)
{
    if (sTile.dtype != CKL_F32)
        ir_fail("tma_add: the tile is of %s, only f32 is added", ckl_dtype_name(sTile.dtype));
    store(IR_TMA_ADD, tma, sTile, row, col, 0, NULL);
}

void tma_store_commit(void)
{
    ir_plain(IR_BULK_COMMIT, 0, 0);
}

void tma_store_wait_read(int pending)
{
    ir_plain(IR_BULK_WAIT, pending, 1);
}

void tma_store_wait(int pending)
{
    ir_plain(IR_BULK_WAIT, pending, 0);
}

void tma_prefetch(const tma_copy *tma)
{
    ir_tma_prefetch(tma->map);
}
