/*
 * gemm_weights_plan.c - the host side of products with weights of 8 or 4 bits. Tiles follow a model of their time:
 * warps compute, each at its own pace, while memory brings the next K tiles. Its numbers are fitted to what an H200
 * took (bench/notes/gemm.md).
 */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum {
    ROWS_LEAST = 16,
    ROWS_MOST = 128,
    ROWS_MOST_COPIED = 64, // by cp.async, for which a lane has an address for each
    ATOM_COLUMNS = 8,
    LANES = 32,
    SYSTEM_BYTES = 1024, // of shared memory, of each CTA
};

/* How many warps share out K, and the K tiles on their way to each. */
static const struct {
    int warps, stages;
} rings[] = { { 4, 2 }, { 6, 2 }, { 8, 3 }, { 8, 2 }, { 12, 2 }, { 16, 2 } };

static int64_t ctas_of(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    return gemm_tiles(d, c->columns, c->rows);
}

/* Instructions of a warp for a K tile, as the SASS has them. */
static double instructions(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    const bool f16 = d->a == CKL_F16, nibbles = d->b == CKL_U8;
    const int conversion = nibbles ? (f16 ? 40 : 56) : d->b == CKL_I8 ? 80 : f16 ? 32 : 128; // of 16 rows
    const int columns = c->columns / 8, sums = nibbles && f16 ? 8 : 4;
    const int blocks = d->scale_b == CKL_GEMM_SCALE_BLOCK ? GEMM_BLOCK / gemm_block_k(&c->epilogue) : 0;
    const int copies = c->box ? 60 : 140;
    return c->rows / 16 * (conversion + columns * (8 + sums * blocks) + 4) + 32 * columns + copies;
}

/* Registers of a thread, more or less. */
static int registers(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    const int sums = c->rows * c->columns / 32, addresses = c->box ? 0 : c->rows / 2;
    return 62 + addresses + (d->scale_b == CKL_GEMM_SCALE_BLOCK ? 5 * sums / 2 : 3 * sums / 2);
}

/* CTAs that an SM holds at once. */
static int64_t resident(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_weights_config *c)
{
    const int64_t by_memory = device->smem_per_sm_bytes / (gemm_weights_smem(c) + SYSTEM_BYTES);
    const int64_t by_registers = device->registers_per_sm / (registers(d, c) * c->warps * LANES);
    return max_i64(min_i64(by_memory, by_registers), 1);
}

/*
 * Where there is room some SM gets as many CTAs as it holds, though others have fewer, for launches overlap: 256 CTAs
 * of 1x28672x8192 take 31.3 us where an SM holds two, 40.4 where it holds three.
 */
static plan_cost cost_weights(const void *desc, const ckl_device_info *device, const void *config)
{
    const double ALONE = 0.305, TOGETHER = 0.58; // instructions a cycle, of one warp and of a scheduler
    const double CYCLES_PER_US = 1750, MEMORY_BYTES_PER_US = 4.27e6, SM_BYTES_PER_US = 108e3, LAUNCH_US = 1.85;
    const double TURN_US = 2; // of a CTA that nothing overlaps
    const ckl_gemm_desc *d = desc;
    const gemm_weights_config *c = config;
    const double row_bytes = (double)d->k * (d->b == CKL_U8 ? 0.5 : 1), rows_of_A = (double)min_i64(d->m, c->columns);
    const int64_t ctas = ctas_of(d, c), each = resident(d, device, c);
    const double turns = (double)ceil_div(ctas, each * device->sm_count);
    const double tiles = (double)ceil_div(ceil_div(d->k, GEMM_BLOCK), c->warps);
    const double cycles = instructions(d, c) * fmax(1 / ALONE, (double)(c->warps * each) / (4 * TOGETHER));
    const double compute_us = turns * tiles * cycles / CYCLES_PER_US;
    const double matrices = d->groups ? (double)min_i64(d->groups, d->m) : 1;
    const double memory_us = matrices * (double)d->n * row_bytes / MEMORY_BYTES_PER_US;
    const double sm_us = turns * (double)each * (c->rows * row_bytes + rows_of_A * 2 * (double)d->k) / SM_BYTES_PER_US;
    const double alone_us = each == 1 ? (turns - 1) * TURN_US : 0;
    return (plan_cost){ LAUNCH_US + alone_us + cbrt(pow(compute_us, 3) + pow(memory_us, 3) + pow(sm_us, 3)),
                        memory_us > compute_us ? "memory" : "instructions" };
}

/* The tile that takes the least time; all else of the config is known. */
static void choose_tile(const ckl_gemm_desc *d, const ckl_device_info *device, gemm_weights_config *c)
{
    gemm_weights_config best = *c, x = *c;
    double least = INFINITY;
    for (x.rows = ROWS_LEAST; x.rows <= (c->box ? ROWS_MOST : ROWS_MOST_COPIED); x.rows += 16)
        for (int i = 0; i < COUNT_OF(rings); i++) {
            x.warps = rings[i].warps;
            x.stages = rings[i].stages;
            if (gemm_weights_smem(&x) > device->smem_per_cta_bytes ||
                registers(d, &x) * x.warps * LANES > device->registers_per_sm)
                continue;
            const double us = cost_weights(d, device, &x).us;
            best = us < least ? x : best;
            least = fmin(us, least);
        }
    *c = best;
}

/* Bytes of the longest copies of which all rows have whole ones; of fewer than 4 each element is copied. */
static int piece_of(const ckl_gemm_desc *d)
{
    int piece = TMA_ALIGNMENT;
    while (piece >= 4 && (!gemm_rows_aligned(d, 'a', piece) || !gemm_rows_aligned(d, 'b', piece) ||
                          gemm_matrix_of(d, 'b').cols % piece))
        piece /= 2;
    return piece < 4 ? 1 : piece;
}

/* Do whole stages come by TMA, of one product? */
static bool has_boxes(const ckl_gemm_desc *d, const ckl_device_info *device, int piece)
{
    const bool whole_scales = d->scale_b != CKL_GEMM_SCALE_BLOCK || d->n % 8 == 0;
    return device->has_tma && piece == TMA_ALIGNMENT && !d->groups && !d->gather && !d->pointers && whole_scales;
}

/* The smallest box of rows of A that has all of a tile's. */
static int box_of(const ckl_gemm_desc *d, int columns)
{
    int box = 1;
    while (box < min_i64(d->m, columns))
        box *= 2;
    return box;
}

static ckl_status choose_weights(const void *desc, const ckl_device_info *device, void *config)
{
    ckl_gemm_desc seen = *(const ckl_gemm_desc *)desc;
    const ckl_gemm_desc *d = &seen;
    gemm_weights_config *c = config;
    if (seen.batch_invariant)
        seen.m = 2 * ATOM_COLUMNS; // for the order of sums is that of the tile
    c->epilogue = gemm_epilogue_of(d);
    c->columns = d->m <= ATOM_COLUMNS * max_i64(d->groups, 1) ? ATOM_COLUMNS : 2 * ATOM_COLUMNS;
    c->grouped = gemm_grouped_of(d);
    c->piece = piece_of(d);
    c->box = has_boxes(d, device, c->piece) ? box_of(d, c->columns) : 0;
    choose_tile(d, device, c);
    return CKL_OK;
}

/* Can TMA bring whole stages, and all rows of A there are? */
static ckl_status admit_boxes(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_weights_config *c)
{
    if (!device->has_tma)
        FAIL(CKL_UNSUPPORTED, "gemm weights: box=%d wants TMA, which %s does not have", c->box, device->id);
    if (!has_boxes(d, device, c->piece))
        FAIL(CKL_UNSUPPORTED, "gemm weights: box=%d is of one product, of whole rows, and n=%" PRId64 " scales a block",
             c->box, d->n);
    if (c->box > c->columns || c->box < min_i64(d->m, c->columns) || 256 % c->box)
        FAIL(CKL_INVALID, "gemm weights: box=%d are not the rows of A in %d columns of a tile: 1, 2, 4, 8 or 16",
             c->box, c->columns);
    return CKL_OK;
}

static ckl_status admit_weights(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_weights_config *c = config;
    TRY(gemm_check_epilogue("weights", d, &c->epilogue));
    if (!gemm_has_weights(d))
        FAIL(CKL_UNSUPPORTED, "gemm weights: b=%s is none of i8, u8, e4m3 beside an A of 16 bits",
             ckl_dtype_name(d->b));
    TRY(gemm_check_grouped("weights", d, c->grouped));
    if (c->piece != 1 && c->piece != 4 && c->piece != 8 && c->piece != TMA_ALIGNMENT)
        FAIL(CKL_INVALID, "gemm weights: piece=%d is not 1, 4, 8 or 16 bytes", c->piece);
    if (c->piece > piece_of(d))
        FAIL(CKL_UNSUPPORTED,
             "gemm weights: rows of A or B, or k=%" PRId64 ", are not whole copies of %d bytes: piece=%d", d->k,
             c->piece, piece_of(d));
    if (c->rows % ROWS_LEAST || c->rows < ROWS_LEAST || c->rows > (c->box ? ROWS_MOST : ROWS_MOST_COPIED) ||
        (c->columns != 8 && c->columns != 16))
        FAIL(CKL_INVALID, "gemm weights: %dx%d is not 16, 32, 48 or 64 rows of B by 8 or 16 of A", c->rows, c->columns);
    if (c->box)
        TRY(admit_boxes(d, device, c));
    if (c->warps < 1 || c->warps > 16 || c->stages < 2)
        FAIL(CKL_INVALID, "gemm weights: warps=%d is not in 1..16, or stages=%d less than 2", c->warps, c->stages);
    TRY(gemm_check_smem("weights", device, c->stages, gemm_weights_smem(c)));
    return gemm_check_tiles("weights", ctas_of(d, c));
}

static ckl_status launch_weights(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    const gemm_weights_config *c = plan->config;
    TRY(gemm_check_operand_vectors("weights", plan->desc, x, true, "piece", c->piece));
    if (c->box && c->epilogue.scale_b == CKL_GEMM_SCALE_BLOCK && !PLAN_ALIGNED(TMA_ALIGNMENT, x->scale_b))
        FAIL(CKL_INVALID, "gemm weights: scale_b=%p is not aligned to 16 bytes; config='box=0' takes any", x->scale_b);
    return (c->box ? gemm_launch_tma : gemm_launch)(plan, ctas_of(plan->desc, c), args, stream);
}

static const field weights_fields[] = GEMM_FIELDS(gemm_weights_config, GEMM_WEIGHTS_CONFIG);

const implementation gemm_weights_implementation = {
    IMPLEMENTATION_PARTS(gemm, weights),
    .cost = cost_weights,
    .summary = "few rows of 16 bits by weights of 8 or 4, by mma.sync; from sm_80 on",
    .params = &gemm_param_list,
};
