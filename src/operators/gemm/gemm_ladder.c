/*
 * gemm_ladder.c - steps of the ladder (docs/gemm-ladder.md) that no plan chooses: A and B are K-major; a CTA has one
 * tile of D, and stores it from registers.
 *
 *   blocked     tiles in shared memory, multiply-adds of a 4 x 4 block by each thread
 *   wgmma       tensor cores that read shared memory themselves; the ring is filled by cp.async
 *   tma         the same, filled by one thread
 */
#include <stdio.h>

#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

/* This CTA's tile: first row and column of D. */
static void find_tile(const gemm_values *p, int tile, val *row, val *col)
{
    val columns = convert(U32, div_up(p->n, tile));
    *row = mul(div(cta_x(), columns), imm(tile));
    *col = mul(rem(cta_x(), columns), imm(tile));
}

/* blocked */

enum { TILE = GEMM_BLOCKED_TILE, DEPTH = 16, SIDE = 16, EACH = TILE / SIDE, THREADS = SIDE * SIDE };

/* A tile of A or B as f32; zeros past the ends. */
static void load_block(const gemm_values *p, ckl_dtype type, val matrix, val rows, val ld, val row, val first,
                       tensor sX)
{
    tensor gX = gmem_tensor(matrix, type, make_layout(shape(rows, p->k), stride(ld, 1)));
    for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
        val r = add(thread_at(thread(), 1, DEPTH, THREADS / DEPTH), imm(i * (THREADS / DEPTH))),
            l = thread_at(thread(), 0, DEPTH, THREADS / DEPTH);
        val at_row = convert(I64, add(row, r)), at_l = convert(I64, add(first, l)), x = variable(F32, immf(0));
        IF(logical_and(lt(at_row, rows), lt(at_l, p->k)))
            assign(x, at_f32(gX, at_row, at_l));
        set(sX, coord(r, l), x);
    }
}

static void multiply_block(tensor sA, tensor sB, val first_row, val first_col, tensor acc)
{
    for (int l = 0; l < DEPTH; l++) {
        val a[EACH], b[EACH];
        for (int i = 0; i < EACH; i++) {
            a[i] = at(sA, add(first_row, imm(i * SIDE)), l);
            b[i] = at(sB, add(first_col, imm(i * SIDE)), l);
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                set(acc, coord(i, j), fma(a[i], b[j], at(acc, i, j)));
    }
}

void gemm_blocked(const void *config, int kernel)
{
    const gemm_epilogue e = ((const gemm_rung_config *)config)->epilogue;
    (void)kernel;
    launch_bounds(THREADS, 0);
    const gemm_values p = params_of(gemm);
    const layout padded = make_layout(shape(TILE, DEPTH), stride(DEPTH + 1, 1)); // neighbouring rows in other banks
    tensor sA = smem_tensor("A", F32, padded, 16), sB = smem_tensor("B", F32, padded, 16); // (TILE,DEPTH)
    tensor acc = fragment(F32, compact(shape(EACH, EACH)));
    val row, col, first_row = thread_at(thread(), 1, SIDE, THREADS / SIDE),
                  first_col = thread_at(thread(), 0, SIDE, THREADS / SIDE);
    find_tile(&p, TILE, &row, &col);
    fill(acc, immf(0));
    LOOP_FROM(first, imm(0), convert(U32, p.k), imm(DEPTH)) {
        load_block(&p, e.ab, p.a, p.m, p.lda, row, first, sA);
        load_block(&p, e.ab, p.b, p.n, p.ldb, col, first, sB);
        cta_sync();
        multiply_block(sA, sB, first_row, first_col, acc);
        cta_sync();
    }
    tensor cD = coordinates_from(coordinates_from(identity_tensor(shape(TILE, TILE)), 0, row), 1, col);
    gemm_store_accumulators(e, &p, acc, local_partition(cD, compact_right(shape(SIDE, SIDE)), thread())); // (EACH,EACH)
}

/* wgmma, tma */

enum { SIDES = GEMM_RUNG_TILE, WARPGROUPS = 2, ROWS = SIDES / WARPGROUPS, RUNG_THREADS = 128 * WARPGROUPS };

/* An operand's tiles along K, and the ring that they go through. */
typedef struct rung_operand {
    tensor sX; // (TILE,BK,STAGES)
    tma_copy tma;
    val first; // row of the matrix
    tiled_copy copy;
    tensor tXgX, tXcX, tXsX; // (VECTORS,ROWS,1,K_TILES), (VECTORS,ROWS,1,STAGES)
    int_tuple limits;
} rung_operand;

typedef struct rung_kernel {
    gemm_epilogue e;
    gemm_values p;
    bool tma;
    int depth, stages;
    rung_operand A, B;
    pipeline ring; // of tma
    val k_tiles;
} rung_kernel;

/* A thread's copies of all K tiles, 16 bytes each. */
static void describe_copies(const rung_kernel *k, rung_operand *x, tensor gX)
{
    const int vec = 16 / (int)ckl_dtype_bytes(k->e.ab), across = k->depth / vec;
    const int_tuple tiler = shape(SIDES, k->depth);
    val tile = div(x->first, imm(SIDES));
    x->limits = gX.layout.shape;
    x->copy = make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<128>", k->e.ab,
                              compact_right(shape(RUNG_THREADS / across, across)), compact(shape(1, vec)));
    x->tXgX = partition_S(&x->copy, local_tile(gX, tiler, coord(tile, _)), thread());
    x->tXcX = partition_S(&x->copy, local_tile(identity_tensor(x->limits), tiler, coord(tile, _)), thread());
    x->tXsX = partition_D(&x->copy, x->sX, thread());
}

static rung_operand describe_operand(const rung_kernel *k, const char *name, tensor gX, val map, val first)
{
    const ckl_dtype ab = k->e.ab;
    rung_operand x = { .sX = tma_ring(name, ab, SIDES, k->depth, k->stages), .first = first };
    if (k->tma)
        x.tma = make_tma(map, ab, 2, SIDES, k->depth, GEMM_TILE_BYTES);
    else
        describe_copies(k, &x, gX);
    return x;
}

/* Starts loading K tile `tile`: every thread its share, or one thread all of it. */
static void load(const rung_kernel *k, val tile, val stage)
{
    const rung_operand *const both[] = { &k->A, &k->B };
    if (!k->tma) {
        for (int i = 0; i < 2; i++)
            copy_if(&both[i]->copy, slice(both[i]->tXcX, _, _, _, tile), both[i]->limits,
                    slice(both[i]->tXgX, _, _, _, tile), slice(both[i]->tXsX, _, _, _, stage), 0);
        cp_async_commit();
        return;
    }
    const pipeline_state at = { .stage = stage, .stages = k->stages };
    IF(logical_and(eq(thread(), imm(0)), lt(tile, k->k_tiles))) {
        pipeline_expect(&k->ring, &at, imm((int)(tma_bytes(&k->A.tma) + tma_bytes(&k->B.tma))));
        for (int i = 0; i < 2; i++)
            tma_load(&both[i]->tma, slice(both[i]->sX, _, _, stage), both[i]->first, mul(tile, imm(k->depth)),
                     pipeline_full_barrier(&k->ring, &at), imm(0));
    }
}

/* Waits until the oldest K tile has arrived, visible to wgmma, and all threads are done with the one before. */
static void wait_for(const rung_kernel *k, const pipeline_state *at)
{
    if (k->tma)
        pipeline_wait_full(&k->ring, at);
    else {
        cp_async_wait(k->stages - 2);
        fence_proxy_async();
    }
    cta_sync();
}

static tiled_mma mma_of(ckl_dtype ab)
{
    char atom[ATOM_NAME_MAX];
    const char *type = ab == CKL_F16 ? "F16" : "BF16";
    snprintf(atom, sizeof atom, "SM90_64x%dx16_F32%s%s_SS", SIDES, type, type);
    return make_tiled_mma(atom, 1, 1);
}

/* acc = A tile * B tile over all of K, for this warpgroup's rows. */
static void mainloop(const rung_kernel *k, const tiled_mma *mma, val group, tensor acc)
{
    tensor tCrA = descriptors_A(mma, local_tile(k->A.sX, shape(ROWS, k->depth), coord(group, 0, _)));
    tensor tCrB = descriptors_B(mma, k->B.sX);
    pipeline_state at = consumer_state(&k->ring);
    val free = variable(U32, imm(k->stages - 1)); // a stage
    fill(acc, immf(0));
    for (int s = 0; s < k->stages - 1; s++)
        load(k, imm(s), imm(s));
    LOOP(kt, k->k_tiles) {
        wait_for(k, &at);
        load(k, add(kt, imm(k->stages - 1)), free);
        mma_fence();
        gemm(mma, slice(tCrA, _, _, at.stage), slice(tCrB, _, _, at.stage), acc, yes());
        mma_commit();
        mma_wait(0);
        assign(free, at.stage);
        pipeline_advance(&at);
    }
    if (!k->tma)
        cp_async_wait(0);
}

static void store_tile(const rung_kernel *k, const tiled_mma *mma, val group, tensor acc)
{
    tensor cD = coordinates_from(identity_tensor(shape(ROWS, SIDES)), 0, add(k->A.first, mul(group, imm(ROWS))));
    tensor tCcD = partition_C(mma, coordinates_from(cD, 1, k->B.first), warpgroup_thread()); // (MMA,MMA_M,MMA_N)
    gemm_store_accumulators(k->e, &k->p, acc, tCcD);
}

static void describe_rung(const gemm_rung_config *cfg, bool tma)
{
    launch_bounds(RUNG_THREADS, 1);
    rung_kernel k = { .e = cfg->epilogue, .p = params_of(gemm), .tma = tma, .stages = cfg->stages };
    const gemm_values *p = &k.p;
    val row, col, group = warpgroup();
    k.depth = gemm_tile_k(k.e.ab);
    k.k_tiles = convert(U32, div_up(p->k, k.depth));
    k.ring = make_pipeline("ring", k.stages, 1, 1);
    find_tile(p, SIDES, &row, &col);
    k.A = describe_operand(&k, "A", gmem_tensor(p->a, k.e.ab, make_layout(shape(p->m, p->k), stride(p->lda, 1))), p->A,
                           row);
    k.B = describe_operand(&k, "B", gmem_tensor(p->b, k.e.ab, make_layout(shape(p->n, p->k), stride(p->ldb, 1))), p->B,
                           col);
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k.ring);
        fence_mbarrier_init();
    }
    cta_sync();
    const tiled_mma mma = mma_of(k.e.ab);
    tensor acc = fragment_C(&mma, ROWS, SIDES); // (MMA,MMA_M,MMA_N)
    mainloop(&k, &mma, group, acc);
    store_tile(&k, &mma, group, acc);
}

void gemm_wgmma(const void *config, int kernel)
{
    (void)kernel;
    describe_rung(config, false);
}

void gemm_tma(const void *config, int kernel)
{
    (void)kernel;
    describe_rung(config, true);
}
