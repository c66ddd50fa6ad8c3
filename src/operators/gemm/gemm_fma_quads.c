/*
 * gemm_fma_quads.c - K-major operands of an f32 product: quads along K go through registers to shared memory, where
 * rows of a tile are contiguous.
 *
 * Rows that begin anywhere are read by aligned quads, each of which lies 0 to 3 elements ahead of the quad of its tile.
 * What a tile's last quads have too much is stored where the next tile begins. The elements before the first quads come
 * one by one, before all others.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_fma.h"

/* Neighbours load neighbours along K, each thread the same place of every K tile. Fewer loads than threads leave some idle. */
void gemm_fma_divide_quads(const gemm_fma_config *cfg, gemm_fma_operand *x, const gemm_fma_rows *t, int rows, val ld)
{
    const int across = cfg->depth / QUAD, at_once = gemm_fma_group_threads(cfg) / across;
    val thread = gemm_fma_thread(cfg), k = mul(thread_at(thread, 0, across, at_once), imm(QUAD)),
        row = thread_at(thread, 1, across, at_once);
    x->vec = QUAD;
    x->copies = rows > at_once ? rows / at_once : 1;
    x->mine = rows < at_once ? lt(row, imm(rows)) : yes();
    x->to = tensor_address(x->sX, coord(row, k, 0));
    k = add(k, mul(gemm_fma_group(cfg), imm(cfg->depth)));
    x->k = convert(I32, k);
    x->rX = fragment(F32, compact(shape(x->vec, x->copies)));
    x->even = (cfg->phased || gemm_fma_is_tight(cfg)) && !t->lists && !t->half;
    x->step = at_once;
    x->rows = convert(I32, min(sub(t->count, gemm_fma_row_of_half(t, row)), imm64(rows)));
    for (int i = 0; i < x->copies; i++) {
        val start = mul(gemm_fma_matrix_row(t, add(row, imm(i * at_once))), ld);
        x->from[i] = gemm_fma_bytes(i && x->even ? mul(ld, imm64(at_once)) : add(start, convert(I64, k)));
    }
    x->to_step = BYTES * at_once;
    x->advance = imm_as(U64, BYTES * gemm_fma_step(cfg));
}

void gemm_fma_align_quads(gemm_fma_operand *x)
{
    for (int i = 0; i < x->copies; i++) {
        if (i && x->even) { // whole quads of rows away
            x->ahead[i] = x->ahead[0];
            continue;
        }
        val start = convert(U32, add(x->at, x->from[i]));
        val bytes = bit_and(sub(imm_as(U32, 0), start), imm_as(U32, (QUAD - 1) * BYTES));
        x->ahead[i] = convert(I32, div(bytes, imm(BYTES)));
        x->from[i] = add(x->from[i], convert(U64, bytes));
    }
}

/* Does this thread copy the first elements of K? */
static val is_first(const gemm_fma_operand *x)
{
    return logical_and(x->mine, eq(x->k, imm_as(I32, 0)));
}

/* The guard of copy i, whose row the matrix may not have. */
static val guard_of(const gemm_fma_operand *x, int i, val inside)
{
    return i && x->even ? logical_and(inside, gt(x->rows, imm_as(I32, i * x->step))) : inside;
}

/* Aligned quads that may reach beyond their rows, by elements. */
static void load_elements(const gemm_fma_operand *x, const vector_at quads[], val left, tensor memory)
{
    vector_at elements[GEMM_FMA_COPIES * QUAD];
    for (int i = 0; i < x->copies * QUAD; i++) {
        val k = add(add(x->k, x->ahead[i / QUAD]), imm_as(I32, i % QUAD));
        elements[i] = (vector_at){ quads[i / QUAD].address, i % QUAD * BYTES,
                                   logical_and(quads[i / QUAD].guard, lt(k, left)) };
    }
    vectors_load(elements, x->copies * QUAD, 1, memory, x->rX.regs, 0);
}

/*
 * Where the elements of aligned quads belong that lie beyond the four of their tile, which begin at `to`: behind the
 * next gap or, those of the last quads, where the next tile begins: a stage on, or in the ring of the next group.
 */
static val beyond_quad(const gemm_fma_config *cfg, const gemm_fma_operand *x, val to, val stage)
{
    const int last_group = cfg->groups_k - 1, gap = BYTES * gemm_fma_gap(cfg),
              tile = cfg->depth * x->k_pitch + cfg->depth / QUAD * gap;
    val next = add(x->to, mul(gemm_fma_stage_after(cfg, stage), x->stage_bytes));
    if (last_group) {
        val ring = mul(x->stage_bytes, imm(cfg->stages));
        next = select(eq(gemm_fma_group(cfg), imm(last_group)), sub(next, mul(ring, imm(last_group))), add(to, ring));
    }
    val is_last = eq(rem(x->k, imm_as(I32, cfg->depth)), imm_as(I32, cfg->depth - QUAD));
    return add(select(is_last, sub(next, imm(tile)), to), imm(gap));
}

tensor gemm_fma_load_before(const gemm_fma_operand *x, val left)
{
    tensor rX = fragment(F32, compact(shape(QUAD, x->copies)));
    vector_at from[GEMM_FMA_COPIES * QUAD] = { 0 };
    val row = x->at;
    for (int i = 0; i < x->copies; i++) {
        row = add(x->even ? row : x->at, x->from[i]);
        val first = sub(row, convert(U64, mul(x->ahead[i], imm_as(I32, BYTES))));
        val count = select(is_first(x), min(x->ahead[i], left), imm_as(I32, 0));
        for (int k = 0; k < QUAD; k++)
            from[i * QUAD + k] = (vector_at){ first, k * BYTES, guard_of(x, i, lt(imm_as(I32, k), count)) };
    }
    vectors_load(from, x->copies * QUAD, 1, gmem_tensor(x->at, F32, compact(leaf(1))), rX.regs, 0);
    return rX;
}

void gemm_fma_store_before(const gemm_fma_operand *x, tensor rX)
{
    for (int i = 0; i < x->copies * QUAD; i++)
        IF(logical_and(is_first(x), lt(imm_as(I32, i % QUAD), x->ahead[i / QUAD])))
            store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, 1, x->to, i / QUAD * x->to_step + i % QUAD * x->k_pitch,
                     (val[]){ at(rX, i) });
}

void gemm_fma_load_quads(const gemm_fma_config *cfg, const gemm_fma_operand *x, val left, bool inside)
{
    if (!x->rX.regs)
        return;
    vector_at from[GEMM_FMA_COPIES] = { 0 };
    for (int i = 0; i < x->copies; i++) {
        val there = inside || cfg->phased ? x->mine : logical_and(x->mine, lt(x->k, left));
        from[i].guard = guard_of(x, i, there);
        from[i].address = add(i && x->even ? from[i - 1].address : x->at, x->from[i]);
    }
    const tensor memory = gmem_tensor(x->at, F32, compact(leaf(1)));
    if (inside || !cfg->phased)
        vectors_load(from, x->copies, QUAD, memory, x->rX.regs, 0);
    else
        load_elements(x, from, left, memory);
    warp_sync(); // ptxas, which does not see that stores of the next step wait for them, would let them begin late
    assign(x->at, add(x->at, x->advance));
}

void gemm_fma_store_quads(const gemm_fma_config *cfg, const gemm_fma_operand *x, val stage)
{
    if (!x->rX.regs)
        return;
    val to = add(x->to, mul(stage, x->stage_bytes)), quad = to, beyond = to;
    IF(x->mine)
        for (int i = 0; i < x->copies; i++) {
            if (cfg->phased && (i == 0 || !x->even)) {
                val ahead = mul(convert(U32, x->ahead[i]), imm(x->k_pitch));
                quad = add(to, ahead);
                beyond = add(beyond_quad(cfg, x, to, stage), ahead);
            }
            for (int k = 0; k < x->vec; k++) {
                val address = cfg->phased && k ? select(ge(x->ahead[i], imm_as(I32, QUAD - k)), beyond, quad) : quad;
                store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, 1, address, i * x->to_step + k * x->k_pitch,
                         (val[]){ at(x->rX, k, i) });
            }
        }
}

