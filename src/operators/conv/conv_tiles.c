/* conv_tiles.c - what the Hopper kernels of convolution describe alike: tiles of shared memory, wgmma, tile counts. */
#include <stdio.h>

#include "cute/kernel.h"
#include "operators/conv/conv_sm90.h"

tiled_mma conv_mma_of(ckl_dtype dtype, int n)
{
    static const char *const atoms[CKL_DTYPE_COUNT] = { [CKL_F32] = "x8_F32TF32TF32_SS_TN",
                                                        [CKL_F16] = "x16_F32F16F16_SS",
                                                        [CKL_BF16] = "x16_F32BF16BF16_SS",
                                                        [CKL_I8] = "x32_S32S8S8_SS_TN" };
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%d%s", n, atoms[dtype]);
    return make_tiled_mma(atom, 1, 1);
}

tensor conv_spans(const char *name, ckl_dtype dtype, int rows, int spans, int stages, tensor *sSpans)
{
    enum { SPAN = CONV_SM90_SPAN };
    const int box = rows * SPAN;
    const swizzle sw = tma_tile_layout(dtype, rows, SPAN, 2 * SPAN).sw;
    layout boxes = make_layout(shape(rows, SPAN, spans, stages), stride(SPAN, 1, box, box * spans));
    layout read = make_layout(shape(shape(SPAN, spans), rows, stages), stride(stride(1, box), SPAN, box * spans));
    *sSpans = smem_tensor(name, dtype, with_swizzle(sw, boxes), 1024);
    return tensor_with_layout(*sSpans, with_swizzle(sw, read));
}
