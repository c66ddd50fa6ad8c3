/* conv_mma.c - products of tiles in shared memory: by mma.sync, or of f32 as it is by multiply-adds of each thread. */
#include "operators/conv/conv_mma.h"

enum { QUAD = 4 }; // elements of a vector of f32

static int extent(tensor t, int mode)
{
    return (int)static_size(layout_mode(t.layout, mode));
}

static bool is_true_f32(const conv_form *form)
{
    return form->dtype == CKL_F32 && form->math == CKL_GEMM_F32;
}

/*
 * Swizzled for ldmatrix; of true f32 rows are a quad longer, so that 8 threads with a quad of a row each meet no bank
 * twice.
 */
tensor conv_operand_tiles(const conv_form *form, const char *name, int rows, int bytes, int stages)
{
    const int depth = bytes / (int)ckl_dtype_bytes(form->dtype), pitch = depth + (is_true_f32(form) ? QUAD : 0);
    layout ring = make_layout(shape(rows, depth, stages), stride(pitch, 1, rows * pitch));
    if (!is_true_f32(form))
        ring = with_swizzle(tma_tile_layout(form->dtype, rows, depth, bytes).sw, ring);
    return smem_tensor(name, form->dtype, ring, 1024);
}

tiled_mma conv_mma(const conv_form *form)
{
    return is_true_f32(form) ? make_tiled_mma("UniversalFMA", 8, 16) : make_tiled_mma(mma_sync_atom(form->dtype), 2, 2);
}

/* A quad of K at a time, which a thread loads of each of its rows. */
static void multiply_alone(const tiled_mma *mma, tensor sA, tensor sB, tensor acc)
{
    const int m = extent(sA, 0), n = extent(sB, 0);
    UNROLL(k, extent(sA, 1) / QUAD) {
        tensor tCsA = partition_A(mma, local_tile(sA, shape(m, QUAD), coord(0, k)), thread()); // (MMA,MMA_M,QUAD)
        tensor tCsB = partition_B(mma, local_tile(sB, shape(n, QUAD), coord(0, k)), thread()); // (MMA,MMA_N,QUAD)
        tensor rA = fragment_like(tCsA, F32), rB = fragment_like(tCsB, F32);
        copy(tCsA, rA, QUAD * 4);
        copy(tCsB, rB, QUAD * 4);
        gemm(mma, rA, rB, acc, yes());
    }
}

void conv_multiply(const tiled_mma *mma, tensor sA, tensor sB, val stage, tensor acc)
{
    if (mma->atom.threads == 1) {
        multiply_alone(mma, slice(sA, _, _, stage), slice(sB, _, _, stage), acc);
        return;
    }
    const bool words = sA.dtype == CKL_I8;
    tensor rA = (words ? fragment_A_words : fragment_A)(mma, extent(sA, 0), extent(sA, 1)); // (MMA,MMA_M,MMA_K)
    tensor rB = (words ? fragment_B_words : fragment_B)(mma, extent(sB, 0), extent(sB, 1)); // (MMA,MMA_N,MMA_K)
    ldmatrix_A(mma, slice(sA, _, _, stage), thread(), rA);
    ldmatrix_B(mma, slice(sB, _, _, stage), thread(), rB);
    gemm(mma, rA, rB, acc, yes());
}
