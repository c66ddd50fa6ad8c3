/* attention_chunks.c - chunks of columns: layouts, boxes of TMA, products and stores. */
#include "operators/attention/attention_chunks.h"

#include <stdio.h>

#include "cute/kernel.h"

columns attention_columns_of(int d)
{
    int chunk = d <= 32 ? 32 : 64, used = (d + 15) / 16 * 16;
    return (columns){ chunk, (d + chunk - 1) / chunk, used, used % 64 == 0 ? 64 : used % 32 == 0 ? 32 : 16 };
}

int64_t attention_columns_bytes(columns c, int rows)
{
    return (int64_t)rows * c.chunk * c.chunks * 2;
}

layout attention_chunks_apart(ckl_dtype dtype, columns c, int rows, int count, int64_t next)
{
    swizzle sw = tma_tile_layout(dtype, rows, c.chunk, 2 * c.chunk).sw;
    return with_swizzle(sw,
                        make_layout(shape(rows, c.chunk, c.chunks, count), stride(c.chunk, 1, rows * c.chunk, next)));
}

layout attention_chunks_layout(ckl_dtype dtype, columns c, int rows, int count)
{
    return attention_chunks_apart(dtype, c, rows, count, attention_columns_bytes(c, rows) / 2);
}

tensor attention_chunks(const char *name, ckl_dtype dtype, columns c, int rows, int count)
{
    return smem_tensor(name, dtype, attention_chunks_layout(dtype, c, rows, count), 1024);
}

tensor attention_transposed_chunks(tensor sV, columns c)
{
    const int rows = (int)static_size(layout_mode(sV.layout, 0));
    const layout tiles = layout_mode(sV.layout, 3);
    layout turned = make_layout(shape(shape(c.chunk, c.chunks), rows, tiles.shape),
                                stride(stride(1, rows * c.chunk), c.chunk, tiles.stride));
    return tensor_with_layout(sV, with_swizzle(sV.layout.sw, turned));
}

tma_copy attention_make_tma(val map, const attention_form *form, columns c, int rows)
{
    return make_tma(map, form->dtype, form->ragged ? 5 : 4, rows, c.chunk, 2 * c.chunk);
}

tile_box attention_box_of(bool ragged, val begin, val tokens, val row, const tile_place *at)
{
    if (!ragged)
        return (tile_box){ row, { at->head, at->batch }, 2 };
    val window = imm_as(U32, ATTENTION_WINDOW);
    return (tile_box){ add(sub(window, tokens), row), { at->head, add(begin, tokens), window }, 3 };
}

void attention_load_chunks(const tma_copy *tma, tensor sTile, const tile_box *at, val barrier)
{
    UNROLL(c, static_size(layout_mode(sTile.layout, 2)))
        tma_load_of(tma, slice(sTile, _, _, c), at->row, imm(c * tma->cols), at->count, at->outer, barrier, imm(0));
}

tiled_mma attention_warpgroup_mma(ckl_dtype dtype, int n, const char *sources)
{
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%dx16_F32%s_%s", n, dtype == F16 ? "F16F16" : "BF16BF16", sources);
    return make_tiled_mma(atom, 1, 1);
}

tiled_mma attention_warps_mma(ckl_dtype dtype, int warps)
{
    return make_tiled_mma(mma_sync_atom(dtype), warps, 1);
}

score_operands attention_score_operands_of(const tiled_mma *mma, columns n, tensor sX, val index, tensor sY)
{
    score_operands of = { .n = n };
    for (int i = 0; i < n.chunks; i++) {
        of.tCrX[i] = descriptors_A(mma, slice(sX, _, _, i, index));
        of.tCrY[i] = descriptors_B(mma, slice(sY, _, _, i, _));
    }
    return of;
}

void attention_issue_scores(const tiled_mma *mma, const score_operands *of, val stage, tensor scores)
{
    for (int at = 0; at < of->n.used; at += STEP) {
        const int i = at / of->n.chunk, step = at % of->n.chunk / STEP;
        tensor tCrY = slice(of->tCrY[i], _, _, stage); // (1,MMA_K)
        gemm(mma, local_tile(of->tCrX[i], shape(1, 1), coord(0, step)), local_tile(tCrY, shape(1, 1), coord(0, step)),
             scores, imm_as(IR_PRED, at > 0));
    }
    mma_commit();
}

void attention_store_chunks(tensor acc, int first, tensor sTile, columns n)
{
    const int rows = (int)static_size(layout_mode(sTile.layout, 0));
    tiled_mma mma = attention_warpgroup_mma(sTile.dtype, n.subtile, "SS");
    for (int at = 0; at < n.used; at += n.subtile) {
        tensor some = slice(accumulator_columns(acc, first + at, n.subtile), _, 0, _);
        tensor sChunk = slice(sTile, _, _, at / n.chunk);
        stmatrix_C(&mma, some, local_tile(sChunk, shape(rows, n.subtile), coord(0, at % n.chunk / n.subtile)),
                   warpgroup_thread());
    }
}

void attention_multiply_values(const tiled_mma *mma, tensor weights, tensor sVt, columns dv, bool by_warp, tensor out)
{
    const int keys = (int)static_size(layout_mode(sVt.layout, 1)), subtile = dv.subtile,
              atoms_m = (int)static_size(layout_mode(out.layout, 1));
    tiled_copy transposed = make_tiled_copy_B("SM75_U16x8_LDSM_T", sVt.dtype, mma, subtile, STEP);
    for (int j = 0; j < keys / STEP; j++)
        for (int i = 0; i < dv.used / subtile; i++) {
            tensor sSubtile = local_tile(sVt, shape(subtile, STEP), coord(i, j)), rV = fragment_B(mma, subtile, STEP);
            copy_tiled(&transposed, partition_S(&transposed, sSubtile, by_warp ? lane() : thread()), rV);
            gemm(mma, local_tile(weights, shape(4, atoms_m, 1), coord(0, 0, j)), rV,
                 local_tile(out, shape(4, atoms_m, subtile / 8), coord(0, 0, i)), yes());
        }
}
