/*
 * permute_gather.c - any strides: each thread finds where its elements of y come from. Elements are numbered in the order of y's
 * memory, so neighbouring threads write neighbours; all loads of a thread start before the first store. Where the innermost
 * mode is contiguous in x and in y, an element is a vector of up to 16 bytes of it.
 */
#include "operators/permute/transpose_tile.h"

enum { STEPS_MAX = 16 };

/*
 * Element number `index` in x and in y. An element of 16 bytes is four words. Coordinates are computed by hand: a layout's would
 * be divisions by sizes that are known at run time alone, and the kernel 40 % more instructions.
 */
static void find_element(const permute_gather_values *p, int rank, int bytes, val index, tensor *gX, tensor *gY)
{
    val x = p->x, y = p->y;
    for (int i = rank - 1; i >= 0; i--) {
        val at_mode = index;
        if (i > 0) {
            val quotient = transpose_quotient(index, p->factor[i], p->shift[i]);
            at_mode = sub(index, mul(quotient, p->size[i]));
            index = quotient;
        }
        at_mode = convert(I64, at_mode);
        x = add(x, convert(U64, mul(at_mode, p->stride_x[i])));
        y = add(y, convert(U64, mul(at_mode, p->stride_y[i])));
    }
    ckl_dtype type = transpose_type(bytes == 16 ? 4 : bytes);
    layout words = compact(leaf(bytes == 16 ? 4 : 1));
    *gX = gmem_tensor(x, type, words);
    *gY = gmem_tensor(y, type, words);
}

void permute_gather(const void *config, int kernel)
{
    const permute_gather_config *cfg = config;
    launch_bounds(cfg->threads, 0);
    permute_gather_values p = params_of(permute_gather);
    int bytes = kernel == 0 ? cfg->bytes : cfg->element;
    tensor cY = coordinates_from(identity_tensor(leaf(cfg->threads * cfg->steps)), 0,
                                 mul(cta_x(), imm(cfg->threads * cfg->steps)));
    cY = local_partition(cY, compact(leaf(cfg->threads)), thread()); // (STEPS)
    val inside[STEPS_MAX];
    tensor gX[STEPS_MAX], gY[STEPS_MAX], rX[STEPS_MAX]; // (WORDS)
    for (int s = 0; s < cfg->steps; s++) {
        val index = coordinate(cY, 0, s);
        inside[s] = lt(index, p.count);
        find_element(&p, cfg->rank, bytes, index, &gX[s], &gY[s]);
        rX[s] = fragment_like(gX[s], gX[s].dtype);
        fill(rX[s], imm_as(rX[s].regs[0].type, 0));
    }
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            copy(gX[s], rX[s], bytes);
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            copy(rX[s], gY[s], bytes);
}
