/*
 * gemm_weights.c - few rows of 16-bit floats times weights of 8 or 4 bits; for every GPU from sm_80 on.
 *
 * A CTA computes D^T = B * A^T for some rows of B, which its warps share out along K in tiles of 128. Every lane copies what it
 * multiplies itself, so that copies need no barrier: along K a lane has a quarter of a tile, which is another order of the sums
 * than that of memory, and the same for both operands. Integers become floats exactly; scales meet the sums of a tile in f32.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    LANES = 32,
    SLOT = 16,      // bytes of a copy
    ATOM_ROWS = 16, // of mma.sync
    ATOM_COLUMNS = 8,
    STEPS = 8,   // of 16 elements in a K tile
    SLOTS_A = 4, // of a lane: a quarter of a row of a K tile
    WORDS_A = SLOTS_A * SLOT / 4,
};

typedef struct weights_kernel {
    const gemm_weights_config *cfg;
    gemm_values p;
    bool nibbles;
    int lines_B, lines_A; // of a lane, 8 apart
    int slots_B;          // of a line
    val lane_line, lane_part;
    val first_B, first_A; // rows of B and A of this CTA
    val tiles;            // along K
    val ring;             // this lane's first slot
    tiled_mma mma;
} weights_kernel;

static int slots_of_B(const gemm_weights_config *c)
{
    return c->epilogue.b == CKL_U8 ? 1 : 2;
}

static int slots_of_stage(const gemm_weights_config *c)
{
    return c->rows / 8 * slots_of_B(c) + c->columns / 8 * SLOTS_A;
}

int64_t gemm_weights_smem(const gemm_weights_config *c)
{
    const int64_t ring = (int64_t)c->stages * slots_of_stage(c) * c->warps * LANES * SLOT;
    return ring + (int64_t)c->warps * c->rows * c->columns * 4;
}

/* Loads */

static val slot_address(const weights_kernel *k, val stage, int slot)
{
    const int apart = k->cfg->warps * LANES * SLOT;
    return add(k->ring, add(mul(stage, imm(slots_of_stage(k->cfg) * apart)), imm(slot * apart)));
}

/* 16 bytes of a row from byte `first` on; nothing but zeros beyond the ends. */
static void copy_slot(const weights_kernel *k, val stage, int slot, val matrix, val row, val rows, val pitch, val first,
                      val length)
{
    val inside = logical_and(lt(row, rows), lt(first, length));
    val from = add(mul(min(row, sub(rows, imm64(1))), pitch), select(inside, first, imm64(0)));
    cp_async(slot_address(k, stage, slot), add(matrix, convert(U64, from)), SLOT,
             select(inside, imm_as(U32, SLOT), imm_as(U32, 0)));
}

/* Starts the copies of a K tile. */
static void load_tile(const weights_kernel *k, val tile, val stage)
{
    const gemm_values *p = &k->p;
    val length_B = k->nibbles ? div(p->k, imm(2)) : p->k, length_A = mul(p->k, imm(2));
    val quarter = add(mul(convert(I64, tile), imm(4)), convert(I64, k->lane_part)); // of K tiles
    int slot = 0;
    for (int i = 0; i < k->lines_B; i++)
        for (int s = 0; s < k->slots_B; s++)
            copy_slot(k, stage, slot++, p->b, add(k->first_B, imm(8 * i)), p->n, p->ldb,
                      add(mul(quarter, imm(k->slots_B * SLOT)), imm(s * SLOT)), length_B);
    for (int i = 0; i < k->lines_A; i++)
        for (int s = 0; s < SLOTS_A; s++)
            copy_slot(k, stage, slot++, p->a, add(k->first_A, imm(8 * i)), p->m, mul(p->lda, imm(2)),
                      add(mul(quarter, imm(SLOTS_A * SLOT)), imm(s * SLOT)), length_A);
    cp_async_commit();
}

/* This lane's scales of a K tile: of its rows of B. */
static void load_scales(const weights_kernel *k, val tile, tensor rScales)
{
    const gemm_values *p = &k->p;
    tensor gScales = gmem_tensor(p->scale_b, k->cfg->epilogue.ab, make_layout(dynamic(p->n), leaf(1)));
    val start = mul(convert(I64, min(tile, sub(k->tiles, imm(1)))), p->n);
    for (int i = 0; i < k->lines_B; i++)
        set(rScales, i, at_f32(gScales, add(start, min(add(k->first_B, imm(8 * i)), sub(p->n, imm64(1))))));
}

/* Weights to floats */

static val pair_of(const weights_kernel *k, val bits)
{
    return bitcast(k->cfg->epilogue.ab == F16 ? IR_F16X2 : IR_BF16X2, bits);
}

/* A float in both halves of a pair. */
static val both(const weights_kernel *k, uint32_t f16, uint32_t bf16)
{
    uint32_t x = k->cfg->epilogue.ab == F16 ? f16 : bf16;
    return pair_of(k, imm_as(U32, (int64_t)(x << 16 | x)));
}

/*
 * Pair number i of four in a word of 4-bit integers: those 16 bits apart. In the low bits of 1024 or 128 they are added exactly;
 * bits 4 to 7 of 1024 are 16 times as much.
 */
static val pair_of_nibbles(const weights_kernel *k, val word, int i)
{
    if (k->cfg->epilogue.ab == BF16) {
        val bits = bit_and(i ? shift_right(word, imm(4 * i)) : word, imm_as(U32, 0x000f000f));
        return add(pair_of(k, bit_or(bits, imm_as(U32, 0x43004300))), both(k, 0, 0xc308)); // -136
    }
    const bool high = i % 2;
    val bits = bit_and(i > 1 ? shift_right(word, imm(8)) : word, imm_as(U32, high ? 0x00f000f0 : 0x000f000f));
    val raised = pair_of(k, bit_or(bits, imm_as(U32, 0x64006400)));
    return high ? fma(raised, both(k, 0x2c00, 0), both(k, 0xd480, 0))
                : add(raised, both(k, 0xe408, 0)); // 1/16, -72; -1032
}

/* Pair number i of two in a word of bytes, neighbours: in the low bits of 1024, or of bf16, which has no room, by halves of a byte. */
static val pair_of_bytes(const weights_kernel *k, val word, int i)
{
    val raised = bit_xor(word, imm_as(U32, 0x80808080)); // by 128
    if (k->cfg->epilogue.ab == F16)
        return add(pair_of(k, permute_bytes(raised, imm_as(U32, 0x64646464), imm_as(U32, i ? 0x5342 : 0x5140))),
                   both(k, 0xe480, 0)); // -1152
    val bytes = permute_bytes(raised, imm_as(U32, 0), imm_as(U32, i ? 0x4342 : 0x4140));
    val low = bit_or(bit_and(bytes, imm_as(U32, 0x000f000f)), imm_as(U32, 0x43004300));
    val high = bit_or(bit_and(shift_right(bytes, imm(4)), imm_as(U32, 0x000f000f)), imm_as(U32, 0x43004300));
    val upper = add(pair_of(k, high), both(k, 0, 0xc308));                           // -136
    return fma(upper, both(k, 0, 0x4180), add(pair_of(k, low), both(k, 0, 0xc300))); // 16, -128
}

/*
 * Pair number i of two in a word of e4m3, neighbours. Moved to where f16 and bf16 have exponent and fraction they are 2^8, or 2^120, times too
 * small, subnormals too; in place of NaN the whole exponent is set.
 */
static val pair_of_e4m3(const weights_kernel *k, val word, int i)
{
    const bool f16 = k->cfg->epilogue.ab == F16;
    val high =
        permute_bytes(word, imm_as(U32, 0), imm_as(U32, i ? 0x3424 : 0x1404)); // each in the upper half of 16 bits
    val magnitude = bit_and(high, imm_as(U32, 0x7f007f00)), sign = bit_and(high, imm_as(U32, 0x80008000));
    val nan = bit_and(add(magnitude, imm_as(U32, 0x01000100)), imm_as(U32, 0x80008000));
    val exponent = sub(nan, shift_right(nan, imm(f16 ? 1 : 4)));
    val small = bit_or(bit_or(shift_right(magnitude, imm(f16 ? 1 : 4)), exponent), sign);
    return mul(pair_of(k, small), both(k, 0x5c00, 0x7b80)); // 2^8, 2^120
}

/* Products */

/* A line's slots as words. */
static tensor words_of(const weights_kernel *k, val stage, int first_slot, int slots)
{
    tensor rWords = fragment(I32, compact(shape(SLOT / 4, slots)));
    for (int s = 0; s < slots; s++)
        copy(smem_view(slot_address(k, stage, first_slot + s), I32, compact(leaf(SLOT / 4))), slice(rWords, _, s),
             SLOT);
    return rWords;
}

static val word_at(tensor rWords, int i)
{
    return bitcast(U32, at(rWords, i));
}

/* Pair number i of two that a lane has in a step: of a row of B. */
static val weights_at(const weights_kernel *k, tensor rWords, int step, int i)
{
    if (k->nibbles)
        return bitcast(U32, pair_of_nibbles(k, word_at(rWords, step / 2), step % 2 * 2 + i));
    return bitcast(U32, (k->cfg->epilogue.b == CKL_E4M3 ? pair_of_e4m3 : pair_of_bytes)(k, word_at(rWords, step), i));
}

/* The same of a row of A: what is multiplied by these, which 4-bit integers of a word have in another order. */
static val values_at(const weights_kernel *k, tensor rWords, int step, int i)
{
    if (!k->nibbles)
        return word_at(rWords, 2 * step + i);
    const int word = step / 2 * 4 + step % 2;
    return permute_bytes(word_at(rWords, word), word_at(rWords, word + 2), imm_as(U32, i ? 0x7632 : 0x5410));
}

static void multiply_tile(const weights_kernel *k, val stage, tensor acc)
{
    tensor rB[8], rA[2];
    for (int i = 0; i < k->lines_B; i++)
        rB[i] = words_of(k, stage, i * k->slots_B, k->slots_B);
    for (int i = 0; i < k->lines_A; i++)
        rA[i] = words_of(k, stage, k->lines_B * k->slots_B + i * SLOTS_A, SLOTS_A);
    for (int step = 0; step < STEPS && !ir_failed(); step++) {
        tensor tA = fragment_A_words(&k->mma, k->cfg->rows, ATOM_ROWS);    // (WORDS,MMA_M,1)
        tensor tB = fragment_B_words(&k->mma, k->cfg->columns, ATOM_ROWS); // (WORDS,MMA_N,1)
        for (int i = 0; i < 2 * k->lines_B; i++)
            set(tA, coord(i % 4, i / 4, 0), weights_at(k, rB[i / 4 * 2 + i % 2], step, i / 2 % 2));
        for (int i = 0; i < 2 * k->lines_A; i++)
            set(tB, coord(i % 2, i / 2, 0), values_at(k, rA[i / 2], step, i % 2));
        gemm(&k->mma, tA, tB, acc, yes());
    }
}

/* acc += part, scaled by rows of B: an atom's first two accumulators are of one row, the others of that 8 further. */
static void add_scaled(tensor part, tensor rScales, tensor acc)
{
    const int rows = (int)static_size(layout_mode(acc.layout, 1)), cols = (int)static_size(layout_mode(acc.layout, 2));
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < rows; m++)
            for (int n = 0; n < cols; n++)
                set(acc, coord(i, m, n),
                    fma(at(part, coord(i, m, n)), at(rScales, 2 * m + i / 2), at(acc, coord(i, m, n))));
}

/* The K tiles of this warp. */
static void mainloop(const weights_kernel *k, tensor acc)
{
    const int stages = k->cfg->stages, warps = k->cfg->warps;
    const bool scaled = k->cfg->epilogue.scale_b == CKL_GEMM_SCALE_BLOCK;
    tensor part = acc, rScales = { 0 }, rNext = { 0 };
    for (int s = 0; s < stages - 1; s++)
        load_tile(k, add(warp(), imm(s * warps)), imm(s));
    if (scaled) {
        part = fragment_C(&k->mma, k->cfg->rows, k->cfg->columns);
        rScales = fragment(F32, compact(leaf(k->lines_B)));
        rNext = fragment(F32, compact(leaf(k->lines_B)));
        load_scales(k, warp(), rNext);
    }
    val ready = variable(U32, imm(0)), free = variable(U32, imm(stages - 1));
    LOOP_FROM(tile, warp(), k->tiles, imm(warps)) {
        cp_async_wait(stages - 2);
        if (scaled) {
            copy(rNext, rScales, 4);
            load_scales(k, add(tile, imm(warps)), rNext);
            fill(part, immf(0));
        }
        load_tile(k, add(tile, imm((stages - 1) * warps)), free);
        multiply_tile(k, ready, part);
        if (scaled)
            add_scaled(part, rScales, acc);
        assign(free, ready);
        assign(ready, select(eq(ready, imm(stages - 1)), imm(0), add(ready, imm(1))));
    }
    cp_async_wait(0);
}

/* The sums of all warps, in their order, and what follows. */
static void finish(const weights_kernel *k, tensor acc)
{
    const gemm_weights_config *cfg = k->cfg;
    const int threads = cfg->warps * LANES, each = cfg->rows * cfg->columns;
    tensor sSums =
        smem_tensor("sums", F32, compact(shape(cfg->rows, cfg->columns, cfg->warps)), 16); // (ROWS,COLS,WARPS)
    copy(acc, partition_C(&k->mma, slice(sSums, _, _, warp()), lane()), 4);
    cta_sync();
    const gemm_scalars scalars = gemm_load_scalars(cfg->epilogue, GEMM_SCALAR_SOURCES(&k->p));
    val row_B = sub(k->first_B, convert(I64, k->lane_line)), row_A = sub(k->first_A, convert(I64, k->lane_line));
    LOOP_FROM(e, thread(), imm(each), imm(threads)) {
        val row = rem(e, imm(cfg->rows)), col = div(e, imm(cfg->rows)), sum = at(sSums, row, col, 0);
        for (int w = 1; w < cfg->warps; w++)
            sum = add(sum, at(sSums, row, col, w));
        val i = add(row_A, convert(I64, col)), j = add(row_B, convert(I64, row));
        IF(logical_and(lt(i, k->p.m), lt(j, k->p.n)))
            gemm_store(cfg->epilogue, scalars, &k->p, i, j, sum, (val){ 0 });
    }
}

/* Block number `block` of rows of B by tile number `tile` of rows of A. */
static void compute_tile(const gemm_weights_config *cfg, const gemm_values *p, val block, val tile)
{
    const int slots = cfg->stages * slots_of_stage(cfg), threads = cfg->warps * LANES;
    weights_kernel k = { .cfg = cfg, .p = *p, .nibbles = cfg->epilogue.b == CKL_U8 };
    k.lines_B = cfg->rows / 8;
    k.lines_A = cfg->columns / 8;
    k.slots_B = slots_of_B(cfg);
    k.lane_line = div(lane(), imm(4));
    k.lane_part = rem(lane(), imm(4));
    k.first_B = add(mul(convert(I64, block), imm(cfg->rows)), convert(I64, k.lane_line));
    k.first_A = add(mul(convert(I64, tile), imm(cfg->columns)), convert(I64, k.lane_line));
    k.tiles = convert(U32, div(add(p->k, imm(GEMM_BLOCK - 1)), imm(GEMM_BLOCK)));
    k.ring = add(smem_address(smem_alloc("ring", (int64_t)slots * threads * SLOT, SLOT)), mul(thread(), imm(SLOT)));
    k.mma = make_tiled_mma(cfg->epilogue.ab == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN",
                           1, 1);
    tensor acc = fragment_C(&k.mma, cfg->rows, cfg->columns); // (MMA,MMA_M,MMA_N)
    fill(acc, immf(0));
    mainloop(&k, acc);
    finish(&k, acc);
}

void gemm_weights(const void *config, int kernel)
{
    const gemm_weights_config *cfg = config;
    const int threads = cfg->warps * LANES;
    (void)kernel;
    launch_bounds(threads, 0);
    const gemm_values all = params_of(gemm);
    val blocks = convert(U32, div(add(all.n, imm(cfg->rows - 1)), imm(cfg->rows))); // of rows of B
    val block = rem(cta_x(), blocks), tile = div(cta_x(), blocks);
    if (!cfg->grouped) {
        compute_tile(cfg, &all, block, tile);
        return;
    }
    val group = gemm_find_group(&all, threads, cfg->columns, &tile);
    IF(lt(group, all.groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, &all, group);
        compute_tile(cfg, &p, block, tile);
    }
}
