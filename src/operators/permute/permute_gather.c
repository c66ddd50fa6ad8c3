/*
 * permute_gather.c - any strides: each thread finds where its elements of y come from. Elements are numbered as they lie in y,
 * so y is written side by side; all loads of a thread start before the first store. Where the innermost mode is contiguous on
 * both sides, "elements" are up to 16 bytes of it.
 */
#include "operators/permute/transpose_place.h"

enum { STEPS_MAX = 16 };

typedef struct kernel {
    const permute_gather_config *cfg;
    int bytes;                                                                  // of an element
    val count, x, y;                                                            // elements; addresses
    val size[SPLIT_MODES_MAX], factor[SPLIT_MODES_MAX], shift[SPLIT_MODES_MAX]; // u32; of mode 0 they are not used
    val stride_x[SPLIT_MODES_MAX], stride_y[SPLIT_MODES_MAX];                   // bytes, i64
} kernel;

static void declare_parameters(kernel *k)
{
    k->count = param(U32, "count");
    k->x = pointer("x");
    k->y = pointer("y");
    for (int i = 0; i < k->cfg->rank; i++) {
        k->size[i] = numbered_param(U32, "size", i);
        k->factor[i] = numbered_param(U32, "factor", i);
        k->shift[i] = numbered_param(U32, "shift", i);
        k->stride_x[i] = numbered_param(I64, "stride_x", i);
        k->stride_y[i] = numbered_param(I64, "stride_y", i);
    }
}

/* Element number `index` in x and in y. An element of 16 bytes is four words. */
static void find_element(const kernel *k, val index, tensor *gX, tensor *gY)
{
    val x = k->x, y = k->y;
    for (int i = k->cfg->rank - 1; i >= 0; i--) {
        val at_mode = index;
        if (i > 0) {
            val quotient = shift_right(add(mul_hi(index, k->factor[i]), index), k->shift[i]);
            at_mode = sub(index, mul(quotient, k->size[i]));
            index = quotient;
        }
        at_mode = convert(I64, at_mode);
        x = add(x, convert(U64, mul(at_mode, k->stride_x[i])));
        y = add(y, convert(U64, mul(at_mode, k->stride_y[i])));
    }
    ckl_dtype type = k->bytes == 1 ? CKL_U8 : k->bytes == 2 ? CKL_I16 : k->bytes == 8 ? CKL_I64 : CKL_I32;
    layout words = compact(leaf(k->bytes == 16 ? 4 : 1));
    *gX = gmem_tensor(x, type, words);
    *gY = gmem_tensor(y, type, words);
}

void permute_gather(const void *config, int part)
{
    const permute_gather_config *cfg = config;
    launch_bounds(cfg->threads, 0);
    kernel k = { .cfg = cfg, .bytes = part == 0 ? cfg->bytes : cfg->element };
    declare_parameters(&k);
    val first = add(mul(cta_x(), imm(cfg->threads * cfg->steps)), thread()), inside[STEPS_MAX];
    tensor gX[STEPS_MAX], gY[STEPS_MAX], rX[STEPS_MAX]; // (WORDS)
    for (int s = 0; s < cfg->steps; s++) {
        val index = add(first, imm(s * cfg->threads));
        inside[s] = lt(index, k.count);
        find_element(&k, index, &gX[s], &gY[s]);
        rX[s] = fragment_like(gX[s], gX[s].dtype);
        fill(rX[s], imm_as(rX[s].regs[0].type, 0));
    }
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            copy(gX[s], rX[s], k.bytes);
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            copy(rX[s], gY[s], k.bytes);
}
