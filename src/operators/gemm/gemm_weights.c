/*
 * gemm_weights.c - few rows of 16-bit floats times weights of 8 or 4 bits; for every GPU from sm_80 on.
 *
 * A CTA computes D^T = B * A^T for some rows of B. Its warps take tiles of 128 along K in turn, each with its own ring,
 * so copies need no barrier beyond the warp's. Every lane copies the weights that it multiplies, 16 contiguous bytes
 * along K at a time, so K is summed in another order than that of memory, the same for A. Integers become floats
 * exactly; scales are applied to the sums of a tile in f32.
 */
#include "operators/gemm/gemm_weights.h"

enum { ATOMS_MAX = 8 }; // of a CTA's rows

/*
 * The sums of a K tile, or of all: of subnormal weights in units of 2^-24 and of 2^-20; and that of the offset by which
 * such weights are raised, in units of 2^-24.
 */
typedef struct weights_sums {
    tensor partial[2][ATOMS_MAX]; // (MMA,1,MMA_N) of each atom of rows
    tensor raised;                // (MMA,1,MMA_N)
} weights_sums;

static int slots_of_B(const gemm_weights_config *c)
{
    return c->epilogue.b == CKL_U8 ? 1 : 2;
}

/* Bytes of a warp's stage: slots of B; rows of A; pairs of scales, the first of which may hold one scale. */
int gemm_weights_bytes_B(const gemm_weights_config *c)
{
    return c->rows / 8 * slots_of_B(c) * LANES * SLOT;
}

/* Scales that rows have in a K tile. */
int gemm_weights_blocks(const gemm_weights_config *c)
{
    return c->epilogue.scale_b == CKL_GEMM_SCALE_BLOCK ? GEMM_BLOCK / gemm_block_k(&c->epilogue) : 0;
}

static int bytes_of_stage(const gemm_weights_config *c)
{
    return gemm_weights_bytes_B(c) + c->columns * ROW_A + (c->box ? 0 : gemm_weights_copied_bytes(c));
}

int64_t gemm_weights_smem(const gemm_weights_config *c)
{
    const int64_t group = c->grouped ? round_up(4 * (c->warps + 2), 16) : 0; // in which that of a tile is found
    return (int64_t)c->stages * c->warps * bytes_of_stage(c) + (c->box ? gemm_weights_boxes_bytes(c) : 0) + group;
}

/* Loads */

val gemm_weights_stage(const weights_kernel *k, val stage)
{
    return add(k->ring, mul(stage, imm(bytes_of_stage(k->cfg))));
}

val gemm_weights_scales(const weights_kernel *k, val tile, int block)
{
    val of_K = add(mul(tile, imm(gemm_weights_blocks(k->cfg))), imm(block));
    val index = add(mul(convert(I64, of_K), k->p.n), k->block_B);
    return add(k->p.scale_b, convert(U64, mul(index, imm(2))));
}

/* Starts the copies of a K tile, if there is one. */
static void load_tile(const weights_kernel *k, val tile, val stage)
{
    if (k->cfg->box)
        gemm_weights_load_boxes(k, tile, stage);
    else
        gemm_weights_load_copies(k, tile, stage);
}

/* Reads this lane's scales of a block, for its rows of B. */
static void read_scales(const weights_kernel *k, val tile, val stage, int block, tensor rScales)
{
    val first =
        k->cfg->box ? gemm_weights_boxed_scales(k, stage, block) : gemm_weights_copied_scales(k, tile, stage, block);
    tensor sScales =
        smem_view(add(first, mul(k->lane_line, imm(2))), k->cfg->epilogue.ab, make_layout(leaf(k->lines_B), leaf(8)));
    for (int i = 0; i < k->lines_B; i++)
        set(rScales, i, at_f32(sScales, i));
}

/* Products */

static val word_at(tensor rWords, int i)
{
    return bitcast(U32, at(rWords, i));
}

/* 16 bytes as words. */
static void read_slot(val address, tensor rWords, int slot)
{
    copy(smem_view(address, I32, compact(leaf(SLOT / 4))), slice(rWords, _, slot), SLOT);
}

/*
 * Does each half of a K tile have its own scale, with 4-bit integers of both in one slot? Lanes then take half a slot
 * of each.
 */
static bool takes_halves(const weights_kernel *k)
{
    return k->nibbles && gemm_weights_blocks(k->cfg) > 1;
}

static tensor words_of_B(const weights_kernel *k, val at, int line)
{
    tensor rWords = fragment(I32, compact(shape(SLOT / 4, k->slots_B)));
    if (takes_halves(k)) {
        val first = add(add(at, imm(line * LANES * SLOT)),
                        add(mul(k->lane_line, imm(COPY)), mul(k->lane_quarter, imm(SLOT / 2))));
        tensor sHalves = smem_view(first, I32, make_layout(shape(SLOT / 8, 2), stride(1, COPY / 8))); // (WORDS,HALVES)
        copy(sHalves, tensor_with_layout(rWords, compact(shape(SLOT / 8, 2))), SLOT / 2);
        return rWords;
    }
    const int slots = k->slots_B, slot_bytes = LANES * SLOT;
    const bool whole = k->cfg->box && slots > 1; // rows of boxes; else those of each slot lie together
    val first = add(at, whole ? add(mul(k->lane_line, imm(COPY * slots)), mul(k->lane_quarter, imm(SLOT)))
                              : mul(lane(), imm(SLOT)));
    for (int s = 0; s < slots; s++)
        read_slot(add(first, imm(line * slots * slot_bytes + s * (whole ? COPY : slot_bytes))), rWords, s);
    return rWords;
}

static tensor words_of_A(const weights_kernel *k, val at, int line)
{
    tensor rWords = fragment(I32, compact(shape(SLOT / 4, SLOTS_A)));
    for (int s = 0; s < SLOTS_A; s++)
        read_slot(add(add(at, k->lane_A[s]), imm(line * 8 * (k->cfg->box ? ROW_A / 2 : ROW_A))), rWords, s);
    return rWords;
}

/* Pair i of two of a lane in a step, of a row of A: in the order of B's pairs, which 4-bit integers permute. */
static val values_at(const weights_kernel *k, tensor rWords, int step, int i)
{
    if (!k->nibbles)
        return word_at(rWords, 2 * step + i);
    const int word = step / 2 * 4 + i;
    return permute_bytes(word_at(rWords, word), word_at(rWords, word + 2), imm_as(U32, step % 2 ? 0x7632 : 0x5410));
}

/* raised -= 8 * A, as weights are stored as 0 to 15 for -8 to 7: an atom whose rows are all -8 * 2^-24. */
static void multiply_raised(const weights_kernel *k, tensor tB, tensor raised)
{
    tensor tA = fragment_A_words(&k->mma, ATOM_ROWS, ATOM_ROWS); // (WORDS,1,1)
    for (int i = 0; i < 4; i++)
        set(tA, coord(i, 0, 0), imm_as(U32, 0x80088008));
    gemm(&k->mma, tA, tB, raised, yes());
}

/* Reads the factors of a tile's weights for each step. */
static void read_A(const weights_kernel *k, val at, tensor tB[STEPS])
{
    tensor rA[2];
    for (int i = 0; i < k->lines_A; i++)
        rA[i] = words_of_A(k, at, i);
    UNROLL(step, STEPS) {
        tB[step] = fragment_B_words(&k->mma, k->cfg->columns, ATOM_ROWS); // (WORDS,MMA_N,1)
        for (int i = 0; i < 2 * k->lines_A; i++)
            set(tB[step], coord(i % 2, i / 2, 0), values_at(k, rA[i / 2], step, i % 2));
    }
}

/* Multiplies the steps first .. end-1 of a K tile by an atom of rows. */
static void multiply_steps(const weights_kernel *k, val at, int m, int first, int end, tensor tB[STEPS],
                           const weights_sums *sums)
{
    tensor rB[] = { words_of_B(k, at, 2 * m), words_of_B(k, at, 2 * m + 1) };
    for (int step = first; step < end && describing(); step++) {
        tensor tA = fragment_A_words(&k->mma, ATOM_ROWS, ATOM_ROWS); // (WORDS,1,1)
        for (int i = 0; i < 4; i++)
            set(tA, coord(i, 0, 0), gemm_weights_pair(k, rB[i % 2], step, i / 2));
        gemm(&k->mma, tA, tB[step], sums->partial[k->subnormal ? step % 2 : 0][m], yes());
    }
}

static weights_sums make_sums(const weights_kernel *k)
{
    weights_sums sums = { 0 };
    for (int h = 0; h <= k->subnormal; h++)
        for (int m = 0; m < k->cfg->rows / ATOM_ROWS; m++)
            sums.partial[h][m] = fragment_C(&k->mma, ATOM_ROWS, k->cfg->columns);
    if (k->subnormal)
        sums.raised = fragment_C(&k->mma, ATOM_ROWS, k->cfg->columns);
    return sums;
}

static void clear(const weights_kernel *k, const weights_sums *sums)
{
    for (int h = 0; h <= k->subnormal; h++)
        for (int m = 0; m < k->cfg->rows / ATOM_ROWS; m++)
            fill(sums->partial[h][m], immf(0));
    if (k->subnormal)
        fill(sums->raised, immf(0));
}

/* One sum, in units of 2^-24 if weights are subnormal. */
static val sum_at(const weights_kernel *k, const weights_sums *sums, int i, int m, int n)
{
    val x = at(sums->partial[0][m], coord(i, 0, n));
    return k->subnormal ? fma(at(sums->partial[1][m], coord(i, 0, n)), immf(1.0 / 16), x) : x;
}

/*
 * acc += sums of an atom, scaled by rows of B: an atom's first two accumulators are of one row, the others of the row 8
 * further on.
 */
static void add_scaled(const weights_kernel *k, const weights_sums *sums, int m, tensor rScales, tensor acc)
{
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < k->cfg->columns / 8; n++)
            set(acc, coord(i, m, n),
                fma(sum_at(k, sums, i, m, n), at(rScales, 2 * m + i / 2), at(acc, coord(i, m, n))));
}

/* A block of scales, or a K tile without: sums of scaled blocks begin with the offset's, and are added to acc. */
static void multiply_block(const weights_kernel *k, val tile, val stage, val at, int block, tensor tB[STEPS],
                           const weights_sums *sums, tensor acc)
{
    const int blocks = k->scaled ? gemm_weights_blocks(k->cfg) : 1, first = block * STEPS / blocks,
              end = (block + 1) * STEPS / blocks;
    tensor rScales = fragment(F32, compact(leaf(k->lines_B)));
    if (k->scaled) {
        read_scales(k, tile, stage, block, rScales);
        clear(k, sums);
    }
    for (int step = first; k->subnormal && step < end; step++)
        multiply_raised(k, tB[step], sums->raised);
    UNROLL(m, k->cfg->rows / ATOM_ROWS) {
        for (int i = 0; k->scaled && k->subnormal && i < static_size(sums->raised.layout); i++)
            set(sums->partial[0][m], i, at(sums->raised, i));
        multiply_steps(k, at, m, first, end, tB, sums);
        if (k->scaled)
            add_scaled(k, sums, m, rScales, acc);
    }
}

/* Waits for a stage's copies, and for all lanes to be done with the stage before. */
static void wait_stage(const weights_kernel *k, val stage, val parity)
{
    if (k->cfg->box) {
        gemm_weights_wait_boxes(k, stage, parity);
        return;
    }
    cp_async_wait(k->cfg->stages - 2);
    warp_sync();
}

/* The K tiles of this warp: scaled sums are added to acc; without scales all are summed in `sums`. */
static void mainloop(const weights_kernel *k, const weights_sums *sums, tensor acc)
{
    const int stages = k->cfg->stages, warps = k->cfg->warps, blocks = k->scaled ? gemm_weights_blocks(k->cfg) : 1;
    tensor tB[STEPS];
    for (int s = 0; s < stages - 1; s++)
        load_tile(k, add(warp(), imm(s * warps)), imm(s));
    val ready = variable(U32, imm(0)), free = variable(U32, imm(stages - 1)), parity = variable(U32, imm(0));
    LOOP_FROM(tile, warp(), k->tiles, imm(warps)) {
        wait_stage(k, ready, parity);
        load_tile(k, add(tile, imm((stages - 1) * warps)), free);
        val at = gemm_weights_stage(k, ready);
        read_A(k, at, tB);
        for (int block = 0; block < blocks; block++)
            multiply_block(k, tile, ready, at, block, tB, sums, acc);
        val last = eq(ready, imm(stages - 1));
        assign(free, ready);
        assign(parity, select(last, bit_xor(parity, imm(1)), parity));
        assign(ready, select(last, imm(0), add(ready, imm(1))));
    }
    if (!k->cfg->box)
        cp_async_wait(0);
}

/* The sums of this warp's K tiles. */
static tensor multiply(const weights_kernel *k)
{
    tensor acc = fragment_C(&k->mma, k->cfg->rows, k->cfg->columns); // (MMA,MMA_M,MMA_N)
    const weights_sums sums = make_sums(k);
    const float unit = gemm_weights_unit(k);
    if (k->scaled)
        fill(acc, immf(0));
    else
        clear(k, &sums);
    mainloop(k, &sums, acc);
    for (int i = 0; i < static_size(acc.layout); i++) {
        const int atoms = k->cfg->rows / ATOM_ROWS, n = i / 4 / atoms;
        val sum = at(acc, i);
        if (!k->scaled)
            sum = sum_at(k, &sums, i % 4, i / 4 % atoms, n);
        if (!k->scaled && k->subnormal)
            sum = add(sum, at(sums.raised, coord(i % 4, 0, n)));
        set(acc, i, unit == 1 ? sum : mul(sum, immf(unit)));
    }
    return acc;
}

/* Adds the sums of all warps, and applies the epilogue. */
static void finish(const weights_kernel *k, tensor acc)
{
    const gemm_weights_config *cfg = k->cfg;
    const int apart = cfg->stages * bytes_of_stage(cfg) / 4; // sums of warps: each takes its ring's place
    const gemm_warp_sums sums = { cfg->rows, cfg->columns, cfg->warps, k->rings, apart, k->block_A, k->block_B };
    tensor rC = gemm_load_block_C(cfg->epilogue, &k->p, &sums); // (ELEMENTS)
    warp_sync();
    gemm_add_warps(cfg->epilogue, &k->p, &k->mma, acc, rC, &sums);
}

val gemm_weights_vector_of_A(const weights_kernel *k, int slot)
{
    const int each = k->nibbles && !takes_halves(k) ? 4 : 2; // neighbours for a slot of B
    return add(mul(k->lane_quarter, imm(each)), imm(slot / each * 8 + slot % each));
}

/* Block `block` of rows of B by tile `tile` of rows of A. */
static void compute_tile(const gemm_weights_config *cfg, const gemm_values *p, val block, val tile)
{
    const int warp_bytes = cfg->stages * bytes_of_stage(cfg);
    weights_kernel k = { .cfg = cfg, .p = *p, .nibbles = cfg->epilogue.b == CKL_U8 };
    k.scaled = cfg->epilogue.scale_b == CKL_GEMM_SCALE_BLOCK;
    k.subnormal = k.nibbles && cfg->epilogue.ab == F16;
    k.lines_B = cfg->rows / 8;
    k.lines_A = cfg->columns / 8;
    k.slots_B = slots_of_B(cfg);
    k.block_B = mul(convert(I64, block), imm(cfg->rows));
    k.block_A = mul(convert(I64, tile), imm(cfg->columns));
    k.tiles = convert(U32, div_up(p->k, GEMM_BLOCK));
    k.blocks = k.tiles;
    if (cfg->epilogue.half_blocks)
        k.blocks = convert(U32, div_up(p->k, GEMM_BLOCK_LEAST));
    k.rings = smem_address(
        smem_alloc("rings", (int64_t)cfg->warps * warp_bytes, cfg->box ? 1024 : SLOT)); // 1024: of swizzles
    k.ring = add(k.rings, mul(warp(), imm(warp_bytes)));
    k.mma = make_tiled_mma(mma_sync_atom(cfg->epilogue.ab), 1, 1);
    k.lane_line = thread_at(lane(), 1, 4, 8);
    k.lane_quarter = thread_at(lane(), 0, 4, 8);
    (cfg->box ? gemm_weights_prepare_boxes : gemm_weights_prepare_copies)(&k);
    finish(&k, multiply(&k));
}

void gemm_weights(const void *config, int kernel)
{
    const gemm_weights_config *cfg = config;
    const int threads = cfg->warps * LANES;
    (void)kernel;
    launch_bounds(threads, 1);
    const gemm_values all = params_of(gemm);
    if (!cfg->box) // else behind what prepares shared memory
        grid_wait();
    launch_dependents();
    val blocks = convert(U32, div_up(all.n, cfg->rows)); // of rows of B
    val block = rem(cta_x(), blocks), tile = div(cta_x(), blocks);
    if (!cfg->grouped) {
        const gemm_values p = cfg->epilogue.pointers ? gemm_product_of(cfg->epilogue, 0, &all, imm(0)) : all;
        compute_tile(cfg, &p, block, tile);
        return;
    }
    val group = gemm_find_group(&all, threads, cfg->columns, &tile);
    IF(lt(group, all.groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, &all, group);
        compute_tile(cfg, &p, block, tile);
    }
}
