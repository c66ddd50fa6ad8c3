/*
 * gemm_tiled.c - tiles in shared memory for every GPU from sm_80 on: cp.async keeps a few K tiles on their way while four warps
 * multiply the oldest. Elements at addresses that are too narrow for cp.async come through registers, one tile on its way.
 *
 * A matrix that is not K-major is turned on its way, element by element.
 *
 * Tensor cores (mma.sync) multiply all types but f32, which is multiplied as it is, a block of tile_m/8 x tile_n/16 of D by each
 * thread. Four vectors of 16 bytes along K make a stage; a block of 16 x 8 takes 24 loads of a vector for 512 multiplications.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum { FMA_M = 8, FMA_N = 16, FMA_VECTOR = 4, FMA_ROWS = 2 }; // threads; elements of a load; rows of A at once

/* This thread's partitions of the copies of a matrix's tiles along K. */
typedef struct operand_copy {
    tiled_copy copy;
    tensor rX;         // (1,ROWS,1), without cp.async: a tile on its way
    int_tuple limits;  // of the matrix: what lies outside becomes 0
    tensor tXgX, tXcX; // (VECTORS,ROWS,1,K_TILES)
    tensor tXsX;       // (VECTORS,ROWS,1,STAGES)
} operand_copy;

/* The tiles of A or B along K that this CTA multiplies; of a gated B the upper half is of the last columns. */
typedef struct operand_tiles {
    operand_copy copies[2];
    int count;
    tensor sX;       // (ROWS,BK,STAGES)
    int rows, depth; // of a tile
} operand_tiles;

static bool is_fma(const gemm_tiled_config *cfg)
{
    return cfg->epilogue.ab == F32 && cfg->epilogue.math == CKL_GEMM_F32;
}

static int depth_of(const gemm_tiled_config *cfg)
{
    return GEMM_TILED_BYTES / (int)ckl_dtype_bytes(cfg->epilogue.ab);
}

static tiled_mma mma_of(const gemm_tiled_config *cfg)
{
    static const char *const atoms[] = {
        [CKL_F16] = "SM80_16x8x16_F32F16F16F32_TN",
        [CKL_BF16] = "SM80_16x8x16_F32BF16BF16F32_TN",
        [CKL_F32] = "SM80_16x8x8_F32TF32TF32F32_TN",
        [CKL_I8] = "SM80_16x8x32_S32S8S8S32_TN",
    };
    return is_fma(cfg) ? make_tiled_mma("UniversalFMA", FMA_M, FMA_N) : make_tiled_mma(atoms[cfg->epilogue.ab], 2, 2);
}

/* This thread among those of the MMA. With f32 neighbours have neighbouring columns of D: they store whole sectors. */
static val mma_thread(const gemm_tiled_config *cfg)
{
    val along_m = div(thread(), imm(FMA_N)), along_n = rem(thread(), imm(FMA_N));
    return is_fma(cfg) ? add(along_m, mul(along_n, imm(FMA_M))) : thread();
}

/*
 * No bank conflicts: rows of 64 bytes are swizzled for ldmatrix. Those of f32 are 80 bytes apart instead, so that all that a
 * thread reads lies at constant distances.
 */
static tensor smem_ring(const gemm_tiled_config *cfg, const char *name, int rows)
{
    ckl_dtype dtype = cfg->epilogue.ab;
    int depth = depth_of(cfg), pitch = depth + (is_fma(cfg) ? GEMM_TILED_PAD / (int)ckl_dtype_bytes(dtype) : 0);
    swizzle sw = is_fma(cfg) ? (swizzle){ 0 } : tma_tile_layout(dtype, rows, depth, GEMM_TILED_BYTES).sw;
    layout ring = make_layout(shape(rows, depth, cfg->stages), stride(pitch, 1, (int64_t)rows * pitch));
    return smem_tensor(name, dtype, with_swizzle(sw, ring), 1024);
}

/* What copies `vec` elements from global memory. */
static const char *atom_of(ckl_dtype dtype, int vec)
{
    switch (vec * (int)ckl_dtype_bytes(dtype)) {
    case 16:
        return "SM80_CP_ASYNC_CACHEGLOBAL<128>";
    case 8:
        return "SM80_CP_ASYNC_CACHEALWAYS<64>";
    case 4:
        return "SM80_CP_ASYNC_CACHEALWAYS<32>";
    default:
        return universal_copy(dtype, vec);
    }
}

/* Neighbouring threads copy neighbours in memory. */
static layout copying_threads(bool k_major, int depth, int vec)
{
    int count = GEMM_TILED_THREADS;
    return k_major ? compact_right(shape(count * vec / depth, depth / vec)) : compact(shape(32, count / 32));
}

/* Copies of tile number `tile` of the rows of A or the columns of B, all along K, to a ring. */
static operand_copy describe_copy(const gemm_tiled_config *cfg, char name, tensor gX, tensor sX, val tile)
{
    ckl_dtype dtype = cfg->epilogue.ab;
    bool k_major = gemm_k_major(cfg->epilogue.layout, name);
    int vec = k_major ? cfg->vec : 1, depth = depth_of(cfg);
    operand_copy x = { .limits = gX.layout.shape };
    int_tuple tiler = shape(static_size(layout_mode(sX.layout, 0)), depth);
    tensor gTiles = local_tile(gX, tiler, coord(tile, _));                        // (ROWS,BK,K_TILES)
    tensor cTiles = local_tile(identity_tensor(x.limits), tiler, coord(tile, _)); // (ROWS,BK,K_TILES)
    x.copy = make_tiled_copy(atom_of(dtype, vec), dtype, copying_threads(k_major, depth, vec), compact(shape(1, vec)));
    x.tXgX = partition_S(&x.copy, gTiles, thread());
    x.tXcX = partition_S(&x.copy, cTiles, thread());
    x.tXsX = partition_D(&x.copy, sX, thread());
    if (x.copy.atom.op != IR_CP_ASYNC)
        x.rX = fragment_like(slice(x.tXsX, _, _, _, 0), dtype);
    return x;
}

/* A as (M,K), B as (N,K), from column `first` of B on. */
static tensor factor_tensor(const gemm_tiled_config *cfg, char name, const gemm_values *p, val first)
{
    const bool is_a = name == 'a', k_major = gemm_k_major(cfg->epilogue.layout, name);
    int_tuple sizes = is_a ? shape(p->m, p->k) : shape(p->n, p->k);
    val ld = is_a ? p->lda : p->ldb, skipped = k_major ? mul(first, ld) : first;
    val bytes = mul(skipped, imm((int)ckl_dtype_bytes(cfg->epilogue.ab)));
    return gmem_tensor(add(is_a ? p->a : p->b, convert(U64, bytes)), cfg->epilogue.ab,
                       make_layout(sizes, k_major ? stride(ld, 1) : stride(1, ld)));
}

static operand_tiles tiles_of(const gemm_tiled_config *cfg, char name, const gemm_values *p, int rows, val tile)
{
    operand_tiles x = { .rows = rows, .depth = depth_of(cfg), .count = name == 'b' && cfg->epilogue.gated ? 2 : 1 };
    x.sX = smem_ring(cfg, name == 'a' ? "A" : "B", rows);
    for (int i = 0; i < x.count; i++) {
        tensor sPart =
            x.count == 1 ? x.sX : local_tile(x.sX, shape(rows / 2, x.depth), coord(i, 0, _)); // (PART,BK,STAGES)
        tensor gX = factor_tensor(cfg, name, p, i == 0 ? imm64(0) : p->n);
        x.copies[i] = describe_copy(cfg, name, gX, sPart, tile);
    }
    return x;
}

/* Starts the copies of one K tile. */
static void load_tile(const operand_tiles *x, val k_tile, val stage)
{
    for (const operand_copy *c = x->copies; c < x->copies + x->count; c++) {
        bool async = c->copy.atom.op == IR_CP_ASYNC;
        copy_if(&c->copy, slice(c->tXcX, _, _, _, k_tile), c->limits, slice(c->tXgX, _, _, _, k_tile),
                async ? slice(c->tXsX, _, _, _, stage) : c->rX, 0);
    }
}

/* Ends them, where they went to registers. */
static void store_tile_of(const operand_tiles *x, val stage)
{
    for (const operand_copy *c = x->copies; c < x->copies + x->count; c++)
        if (c->copy.atom.op != IR_CP_ASYNC)
            copy_tiled(&c->copy, c->rX, slice(c->tXsX, _, _, _, stage));
}

static val stage_after(const gemm_tiled_config *cfg, val stage)
{
    return select(eq(stage, imm(cfg->stages - 1)), imm(0), add(stage, imm(1)));
}

/* The nearest numbers that tensor cores take, in place of a fragment's, and what they lack, which is as near. */
static tensor split_fragment(tensor rX)
{
    tensor rRest = fragment_like(rX, IR_U32);
    for (int i = 0; i < static_size(rX.layout); i++) {
        val x = at(rX, i), near = bit_and(add(x, imm_as(U32, 0x1000)), imm_as(U32, 0xffffe000));
        val finite = lt(bit_and(x, imm_as(U32, 0x7f800000)), imm_as(U32, 0x7f000000)); // rounding may not overflow
        val kept = select(finite, near, x), rest = sub(bitcast(F32, x), bitcast(F32, kept));
        val rounded = add(bitcast(U32, rest), imm_as(U32, 0x1000));
        set(rRest, i, select(finite, rounded, imm_as(U32, 0)));
        set(rX, i, kept);
    }
    return rRest;
}

/* acc += A * B of f32, all but the product of the rests; the smallest first. */
static void multiply_in_three(const tiled_mma *mma, tensor rA, tensor rB, tensor acc)
{
    for (int64_t k = 0; k < static_size(layout_mode(rA.layout, 2)); k++) {
        int_tuple step = shape(static_size(layout_mode(rA.layout, 0)), static_size(layout_mode(rA.layout, 1)), 1);
        int_tuple step_B = shape(static_size(layout_mode(rB.layout, 0)), static_size(layout_mode(rB.layout, 1)), 1);
        tensor rA_step = local_tile(rA, step, coord(0, 0, k)), rB_step = local_tile(rB, step_B, coord(0, 0, k));
        tensor rA_rest = split_fragment(rA_step), rB_rest = split_fragment(rB_step);
        gemm(mma, rA_rest, rB_step, acc, yes());
        gemm(mma, rA_step, rB_rest, acc, yes());
        gemm(mma, rA_step, rB_step, acc, yes());
    }
}

/* Multiplies one stage by tensor cores. */
static void multiply_mma(const gemm_tiled_config *cfg, const tiled_mma *mma, const operand_tiles *A,
                         const operand_tiles *B, val stage, tensor acc)
{
    tensor rA = fragment_A_words(mma, A->rows, A->depth); // (WORDS,MMA_M,MMA_K)
    tensor rB = fragment_B_words(mma, B->rows, B->depth); // (WORDS,MMA_N,MMA_K)
    ldmatrix_A(mma, slice(A->sX, _, _, stage), thread(), rA);
    ldmatrix_B(mma, slice(B->sX, _, _, stage), thread(), rB);
    if (cfg->epilogue.math == CKL_GEMM_F32X3)
        multiply_in_three(mma, rA, rB, acc);
    else
        gemm(mma, rA, rB, acc, yes());
}

/* Where fragments come from: two vectors of a stage's rows, or columns, of this thread, (1,MMA_M,2*VECTOR) and (1,MMA_N,2*VECTOR). */
typedef struct fma_vectors {
    tensor tCsA, tCsB;
} fma_vectors;

/*
 * What multiplications without tensor cores keep in registers: two rows of A at a time, for the time of which the next two are
 * loaded; and all columns of B, while those of the next vector come one after the other.
 */
typedef struct fma_fragments {
    tensor rA[2]; // (1,ROWS,VECTOR)
    tensor rB[2]; // (1,MMA_N,VECTOR)
    int blocks;   // of rows of A
    int cols;     // of B
} fma_fragments;

static tensor pair_of(tensor tCsX, val pair)
{
    int64_t rows = static_size(layout_mode(tCsX.layout, 1));
    return local_tile(tCsX, shape(1, rows, 2 * FMA_VECTOR), coord(0, 0, pair)); // (1,ROWS,2*VECTOR)
}

/* Pair number `pair` of the vectors of a stage. */
static fma_vectors vectors_of(const gemm_tiled_config *cfg, const tiled_mma *mma, const operand_tiles *A,
                              const operand_tiles *B, val stage, val pair)
{
    return (fma_vectors){ pair_of(partition_A(mma, slice(A->sX, _, _, stage), mma_thread(cfg)), pair),
                          pair_of(partition_B(mma, slice(B->sX, _, _, stage), mma_thread(cfg)), pair) };
}

static fma_fragments describe_fragments(const fma_vectors *s)
{
    int rows = (int)static_size(layout_mode(s->tCsA.layout, 1)),
        cols = (int)static_size(layout_mode(s->tCsB.layout, 1));
    fma_fragments f = { .blocks = rows / FMA_ROWS, .cols = cols };
    for (int i = 0; i < 2; i++) {
        f.rA[i] = fragment(F32, compact(shape(1, FMA_ROWS, FMA_VECTOR)));
        f.rB[i] = fragment(F32, compact(shape(1, cols, FMA_VECTOR)));
    }
    return f;
}

/* A block of rows of vector number `vector`. */
static void load_rows(const fma_fragments *f, const fma_vectors *s, int vector, int block)
{
    copy(local_tile(s->tCsA, shape(1, FMA_ROWS, FMA_VECTOR), coord(0, block, vector)), f->rA[block % 2], 16);
}

/* The part of the columns of a vector that comes with a block. */
static void load_columns(const fma_fragments *f, const fma_vectors *s, int vector, int block)
{
    tensor rB = f->rB[vector % 2];
    for (int col = block * f->cols / f->blocks; col < (block + 1) * f->cols / f->blocks; col++)
        copy(local_tile(s->tCsB, shape(1, 1, FMA_VECTOR), coord(0, col, vector)),
             local_tile(rB, shape(1, 1, FMA_VECTOR), coord(0, col, 0)), 16);
}

/* Multiplies vector number `vector` of a pair, of which the first rows are here, and loads the next one, of this pair or another. */
static void multiply_vector(const tiled_mma *mma, const fma_fragments *f, const fma_vectors *s, int vector,
                            const fma_vectors *after, tensor acc)
{
    int next = 1 - vector;
    for (int block = 0; block < f->blocks; block++) {
        if (block + 1 < f->blocks)
            load_rows(f, s, vector, block + 1);
        else
            load_rows(f, after, next, 0);
        load_columns(f, after, next, block);
        gemm(mma, f->rA[block % 2], f->rB[vector], local_tile(acc, shape(1, FMA_ROWS, f->cols), coord(0, block, 0)),
             yes());
    }
}

/*
 * acc = A tile * B tile without tensor cores, two vectors of 16 bytes along K in turn: more would not fit the instruction caches.
 * The first vector of a stage is loaded while the last one before it is multiplied; so the copies are waited for one vector
 * early, a warp may still read the stage before, and three stages are the fewest.
 */
static void mainloop_fma(const gemm_tiled_config *cfg, const tiled_mma *mma, const operand_tiles *A,
                         const operand_tiles *B, val k_tiles, tensor acc)
{
    enum { PAIRS = GEMM_TILED_BYTES / (2 * FMA_VECTOR * 4) };
    val ready = variable(U32, imm(0)), free = variable(U32, imm(cfg->stages - 2)); // stages
    val pair = variable(U32, imm(0));
    cp_async_wait(cfg->stages - 3);
    cta_sync(); // the copies of stage 0 are here
    const fma_vectors first = vectors_of(cfg, mma, A, B, imm(0), imm(0));
    const fma_fragments f = describe_fragments(&first);
    load_rows(&f, &first, 0, 0);
    for (int block = 0; block < f.blocks; block++)
        load_columns(&f, &first, 0, block);
    LOOP(step, mul(k_tiles, imm(PAIRS))) {
        val last = eq(pair, imm(PAIRS - 1));
        const fma_vectors now = vectors_of(cfg, mma, A, B, ready, pair);
        IF(eq(pair, imm(0))) {
            val next = add(div(step, imm(PAIRS)), imm(cfg->stages - 2));
            load_tile(A, next, free);
            load_tile(B, next, free);
            cp_async_commit();
            assign(free, stage_after(cfg, free));
        }
        multiply_vector(mma, &f, &now, 0, &now, acc);
        IF(last) {
            cp_async_wait(cfg->stages - 3);
            cta_sync(); // the copies of the next stage are here, and all warps are done with the one before this
        }
        assign(ready, select(last, stage_after(cfg, ready), ready));
        assign(pair, select(last, imm(0), add(pair, imm(1))));
        const fma_vectors after = vectors_of(cfg, mma, A, B, ready, pair);
        multiply_vector(mma, &f, &now, 1, &after, acc);
    }
    cp_async_wait(0);
}

/* The same by tensor cores. */
static void mainloop_mma(const gemm_tiled_config *cfg, const tiled_mma *mma, const operand_tiles *A,
                         const operand_tiles *B, val k_tiles, tensor acc)
{
    val ready = variable(U32, imm(0)), free = variable(U32, imm(cfg->stages - 1)); // stages
    LOOP(kt, k_tiles) {
        cp_async_wait(cfg->stages - 2);
        cta_sync(); // all copies of `ready` are here, and all warps are done with the stage before it, which is `free`
        val next = add(kt, imm(cfg->stages - 1));
        load_tile(A, next, free);
        load_tile(B, next, free);
        cp_async_commit();
        multiply_mma(cfg, mma, A, B, ready, acc);
        store_tile_of(A, free);
        store_tile_of(B, free);
        assign(free, ready);
        assign(ready, stage_after(cfg, ready));
    }
    cp_async_wait(0);
}

/* Over all of K, behind the copies of the first stages. */
static void mainloop(const gemm_tiled_config *cfg, const tiled_mma *mma, const operand_tiles *A, const operand_tiles *B,
                     val k, tensor acc)
{
    val k_tiles = convert(U32, div(add(k, imm(A->depth - 1)), imm(A->depth)));
    int under_way = is_fma(cfg) ? cfg->stages - 2 : cfg->stages - 1;
    for (int s = 0; s < under_way; s++) {
        load_tile(A, imm(s), imm(s));
        load_tile(B, imm(s), imm(s));
        store_tile_of(A, imm(s));
        store_tile_of(B, imm(s));
        cp_async_commit();
    }
    (is_fma(cfg) ? mainloop_fma : mainloop_mma)(cfg, mma, A, B, k_tiles, acc);
}

/* Columns of D of a tile. */
static int columns_of(const gemm_tiled_config *cfg)
{
    return cfg->epilogue.gated ? cfg->tile_n / 2 : cfg->tile_n;
}

/* The D tile, element by element, from registers. */
static void store_tile(const gemm_tiled_config *cfg, const gemm_values *p, const tiled_mma *mma, val row, val col,
                       tensor acc)
{
    int columns = columns_of(cfg);
    tensor cD = local_tile(identity_tensor(shape(p->m, p->n)), shape(cfg->tile_m, columns), coord(row, col));
    tensor tCcD = partition_C(mma, cD, mma_thread(cfg)); // (MMA,MMA_M,MMA_N)
    gemm_scalars scalars = gemm_load_scalars(cfg->epilogue, GEMM_SCALAR_SOURCES(p));
    int count = (int)static_size(tCcD.layout); // gated: as many accumulators of the last columns follow
    for (int i = 0; i < count && !ir_failed(); i++) {
        val up = cfg->epilogue.gated ? at(acc, i + count) : (val){ 0 };
        val at_row = convert(I64, coordinate(tCcD, 0, i)), at_col = convert(I64, coordinate(tCcD, 1, i));
        IF(logical_and(lt(at_row, p->m), lt(at_col, p->n)))
            gemm_store(cfg->epilogue, scalars, p, at_row, at_col, at(acc, i), up);
    }
}

static val tiles_along(val extent, int tile)
{
    return convert(U32, div(add(extent, imm(tile - 1)), imm(tile)));
}

/* One tile of D. */
static void compute_tile(const gemm_tiled_config *cfg, const gemm_values *p, val row, val col)
{
    operand_tiles A = tiles_of(cfg, 'a', p, cfg->tile_m, row);
    operand_tiles B = tiles_of(cfg, 'b', p, cfg->tile_n, col);
    tiled_mma mma = mma_of(cfg);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, convert(acc.dtype, imm(0)));
    mainloop(cfg, &mma, &A, &B, p->k, acc);
    store_tile(cfg, p, &mma, row, col, acc);
}

/* The same where rows are dealt out to groups; there may be fewer tiles than CTAs. */
static void compute_tile_of_group(const gemm_tiled_config *cfg, const gemm_values *all, val tile, val col)
{
    val group = gemm_find_group(all, GEMM_TILED_THREADS, cfg->tile_m, &tile);
    IF(lt(group, all->groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, all, group);
        compute_tile(cfg, &p, tile, col);
    }
}

void gemm_tiled(const void *config, int kernel)
{
    const gemm_tiled_config *cfg = config;
    (void)kernel;
    launch_bounds(GEMM_TILED_THREADS, 0);
    gemm_values all = params_of(gemm);
    val columns = tiles_along(all.n, columns_of(cfg));
    if (cfg->grouped) {
        compute_tile_of_group(cfg, &all, div(cta_x(), columns), rem(cta_x(), columns));
        return;
    }
    val tiles = mul(columns, tiles_along(all.m, cfg->tile_m));
    gemm_values p = gemm_product_of(cfg->epilogue, &all, div(cta_x(), tiles));
    val row = div(rem(cta_x(), tiles), columns), col = rem(cta_x(), columns);
    compute_tile(cfg, &p, row, col);
}
