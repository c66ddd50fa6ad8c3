/*
 * gemm_weights_choice.c - tiles for weights that TMA brings, by a model of their time: warps compute, each at its own
 * pace, while memory brings the next K tiles. Its numbers are fitted to what an H200 took (bench/notes/gemm.md).
 */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum {
    ROWS_LEAST = 16,
    ROWS_MOST = 128,
    SYSTEM_BYTES = 1024, // of shared memory, of each CTA
};

/* How many warps share out K, and the K tiles on their way to each. */
static const struct {
    int warps, stages;
} rings[] = { { 4, 2 }, { 6, 2 }, { 8, 3 }, { 8, 2 }, { 12, 2 }, { 16, 2 } };

/* Instructions of a warp for a K tile, as the SASS has them. */
static double instructions(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    const bool f16 = d->a == CKL_F16, nibbles = d->b == CKL_U8;
    const int conversion = nibbles ? (f16 ? 40 : 56) : d->b == CKL_I8 ? 80 : f16 ? 32 : 128; // of 16 rows
    const int columns = c->columns / 8, sums = nibbles && f16 ? 8 : 4;
    const int blocks = d->scale_b == CKL_GEMM_SCALE_BLOCK ? GEMM_BLOCK / gemm_block_k(&c->epilogue) : 0;
    return c->rows / 16 * (conversion + columns * (8 + sums * blocks) + 4) + 32 * columns + 60;
}

/* Registers of a thread, more or less. */
static int registers(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    const int sums = c->rows * c->columns / 32;
    return 62 + (d->scale_b == CKL_GEMM_SCALE_BLOCK ? 5 * sums / 2 : 3 * sums / 2);
}

/* CTAs that an SM holds at once. */
static int64_t resident(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_weights_config *c)
{
    const int64_t by_memory = device->smem_per_sm_bytes / (gemm_weights_smem(c) + SYSTEM_BYTES);
    const int64_t by_registers = device->registers_per_sm / (registers(d, c) * c->warps * 32);
    return max_i64(min_i64(by_memory, by_registers), 1);
}

/*
 * Where there is room some SM gets as many CTAs as it holds, though others have fewer, for launches overlap: 256 CTAs
 * of 1x28672x8192 take 31.3 us where an SM holds two, 40.4 where it holds three.
 */
static double time_us(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_weights_config *c)
{
    const double ALONE = 0.305, TOGETHER = 0.58; // instructions a cycle, of one warp and of a scheduler
    const double CYCLES_PER_US = 1750, MEMORY_BYTES_PER_US = 4.27e6, SM_BYTES_PER_US = 108e3, LAUNCH_US = 1.85;
    const double TURN_US = 2; // of a CTA that nothing overlaps
    const double row_bytes = (double)d->k * (d->b == CKL_U8 ? 0.5 : 1), rows_of_A = (double)min_i64(d->m, c->columns);
    const int64_t ctas = gemm_tiles(d, c->columns, c->rows), each = resident(d, device, c);
    const double turns = (double)ceil_div(ctas, each * device->sm_count);
    const double tiles = (double)ceil_div(ceil_div(d->k, GEMM_BLOCK), c->warps);
    const double cycles = instructions(d, c) * fmax(1 / ALONE, (double)(c->warps * each) / (4 * TOGETHER));
    const double compute_us = turns * tiles * cycles / CYCLES_PER_US;
    const double memory_us = (double)d->n * row_bytes / MEMORY_BYTES_PER_US;
    const double sm_us = turns * (double)each * (c->rows * row_bytes + rows_of_A * 2 * (double)d->k) / SM_BYTES_PER_US;
    const double alone_us = each == 1 ? (turns - 1) * TURN_US : 0;
    return LAUNCH_US + alone_us + cbrt(pow(compute_us, 3) + pow(memory_us, 3) + pow(sm_us, 3));
}

void gemm_weights_choose_boxes(const ckl_gemm_desc *d, const ckl_device_info *device, gemm_weights_config *c)
{
    gemm_weights_config best = *c, x = *c;
    double least = INFINITY;
    for (x.rows = ROWS_LEAST; x.rows <= ROWS_MOST; x.rows += 16)
        for (int i = 0; i < COUNT_OF(rings); i++) {
            x.warps = rings[i].warps;
            x.stages = rings[i].stages;
            if (gemm_weights_smem(&x) > device->smem_per_cta_bytes)
                continue;
            const double us = time_us(d, device, &x);
            best = us < least ? x : best;
            least = fmin(us, least);
        }
    *c = best;
}
