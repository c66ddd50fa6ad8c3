/*
 * gemm_tiled.c - tiles in shared memory for every GPU from sm_80 on: cp.async keeps a few K tiles in flight while four
 * warps multiply the oldest. Where alignment is too small for cp.async, elements are loaded through registers, one tile
 * ahead.
 *
 * A matrix that is not K-major is transposed by its copies, element by element.
 *
 * Tensor cores (mma.sync) multiply 16-bit types, bytes, and f32 as tf32, in one product or in three. 8-bit floats are
 * converted to f16, which is exact.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"
#include "skeletons/stage_loop.h"

/* This thread's partitions of the copies of a matrix's tiles along K. */
typedef struct operand_copy {
    tiled_copy copy;
    tiled_copy store;  // to shared memory, of what is converted first
    ckl_dtype f8;      // the type to convert from; else CKL_DTYPE_DEFAULT
    tensor rX;         // (1,ROWS,1), without cp.async: the tile being loaded
    tensor rRows;      // (ROWS), of a list: bytes from A to each of the rows
    int_tuple limits;  // of the matrix: elements outside become 0
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

/* The type of the factors. */
static ckl_dtype factor_type(const gemm_tiled_config *cfg)
{
    return gemm_is_f8(cfg->epilogue.ab) ? CKL_F16 : cfg->epilogue.ab;
}

static int depth_of(const gemm_tiled_config *cfg)
{
    return GEMM_TILED_BYTES / (int)ckl_dtype_bytes(factor_type(cfg));
}

static tiled_mma mma_of(const gemm_tiled_config *cfg)
{
    return make_tiled_mma(mma_sync_atom(factor_type(cfg)), 2, 2);
}

/* The atom that copies `vec` elements from global memory. */
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
    ckl_dtype dtype = factor_type(cfg), type = gemm_type_of(&cfg->epilogue, name);
    bool k_major = gemm_k_major(cfg->epilogue.layout, name);
    int vec = k_major ? cfg->vec : 1, depth = depth_of(cfg);
    operand_copy x = { .limits = gX.layout.shape, .f8 = gemm_is_f8(type) ? type : CKL_DTYPE_DEFAULT };
    int_tuple tiler = shape(static_size(layout_mode(sX.layout, 0)), depth);
    tensor gTiles = local_tile(gX, tiler, coord(tile, _));                        // (ROWS,BK,K_TILES)
    tensor cTiles = local_tile(identity_tensor(x.limits), tiler, coord(tile, _)); // (ROWS,BK,K_TILES)
    const layout threads = copying_threads(k_major, depth, vec), values = compact(shape(1, vec));
    x.store = make_tiled_copy(x.f8 ? universal_copy(dtype, vec) : atom_of(dtype, vec), dtype, threads, values);
    x.copy = x.f8 ? make_tiled_copy(universal_copy(CKL_U8, vec), CKL_U8, threads, values) : x.store;
    x.tXgX = partition_S(&x.copy, gTiles, thread());
    x.tXcX = partition_S(&x.copy, cTiles, thread());
    x.tXsX = partition_D(&x.store, sX, thread());
    if (x.copy.atom.op != IR_CP_ASYNC)
        x.rX = fragment_like(slice(x.tXsX, _, _, _, 0), x.f8 ? CKL_U8 : dtype);
    return x;
}

/* Finds A's rows by a list: gX begins with one row for all, and rRows are the distances to each. */
static void find_rows(const gemm_tiled_config *cfg, const gemm_values *p, operand_copy *x)
{
    const int rows = (int)static_size(layout_mode(x->tXgX.layout, 1));
    x->rRows = fragment(I64, compact(leaf(rows)));
    for (int r = 0; r < rows; r++) {
        val row = convert(I64, coordinate(slice(x->tXcX, _, r, _, imm(0)), 0, 0));
        val listed = gemm_row_of_A(cfg->epilogue, p, min(row, sub(p->m, imm64(1))));
        set(x->rRows, r, mul(mul(listed, p->lda), imm((int)ckl_dtype_bytes(cfg->epilogue.ab))));
    }
}

/* A as (M,K), B as (N,K), from column `first` of B on. */
static tensor factor_tensor(const gemm_tiled_config *cfg, char name, const gemm_values *p, val first)
{
    const bool is_a = name == 'a', k_major = gemm_k_major(cfg->epilogue.layout, name);
    int_tuple sizes = is_a ? shape(p->m, p->k) : shape(p->n, p->k);
    val ld = is_a ? p->lda : p->ldb, skipped = k_major ? mul(first, ld) : first;
    const bool listed = is_a && cfg->epilogue.gather;
    return gmem_tensor(gmem_address(is_a ? p->a : p->b, cfg->epilogue.ab, skipped),
                       gemm_is_f8(cfg->epilogue.ab) ? CKL_U8 : cfg->epilogue.ab,
                       make_layout(sizes, listed    ? stride(0, 1)
                                          : k_major ? stride(ld, 1)
                                                    : stride(1, ld)));
}

static operand_tiles tiles_of(const gemm_tiled_config *cfg, char name, const gemm_values *p, int rows, val tile)
{
    operand_tiles x = { .rows = rows, .depth = depth_of(cfg), .count = name == 'b' && cfg->epilogue.gated ? 2 : 1 };
    x.sX = tma_ring(name == 'a' ? "A" : "B", factor_type(cfg), rows, x.depth, cfg->stages); // swizzled for ldmatrix
    for (int i = 0; i < x.count; i++) {
        tensor sPart =
            x.count == 1 ? x.sX : local_tile(x.sX, shape(rows / 2, x.depth), coord(i, 0, _)); // (PART,BK,STAGES)
        tensor gX = factor_tensor(cfg, name, p, i == 0 ? imm64(0) : p->n);
        x.copies[i] = describe_copy(cfg, name, gX, sPart, tile);
        if (name == 'a' && cfg->epilogue.gather)
            find_rows(cfg, p, &x.copies[i]);
    }
    return x;
}

/* Starts the copies of one K tile, a row at a time. */
static void load_listed_rows(const operand_copy *c, val k_tile, val stage)
{
    const bool async = c->copy.atom.op == IR_CP_ASYNC;
    UNROLL(r, static_size(c->rRows.layout)) {
        tensor from = slice(c->tXgX, _, r, _, k_tile);
        from.address = add(from.address, convert(U64, at(c->rRows, r)));
        copy_if(&c->copy, slice(c->tXcX, _, r, _, k_tile), c->limits, from,
                async ? slice(c->tXsX, _, r, _, stage) : slice(c->rX, _, r, _), 0);
    }
}

/* Starts the copies of one K tile. */
static void load_tile(const operand_tiles *x, val k_tile, val stage)
{
    for (const operand_copy *c = x->copies; c < x->copies + x->count; c++) {
        if (c->rRows.regs) {
            load_listed_rows(c, k_tile, stage);
            continue;
        }
        bool async = c->copy.atom.op == IR_CP_ASYNC;
        copy_if(&c->copy, slice(c->tXcX, _, _, _, k_tile), c->limits, slice(c->tXgX, _, _, _, k_tile),
                async ? slice(c->tXsX, _, _, _, stage) : c->rX, 0);
    }
}

/* What was loaded into registers, as factors. */
static tensor converted(const operand_copy *c)
{
    if (!c->f8)
        return c->rX;
    tensor rFactors = fragment_like(c->rX, CKL_F16);
    UNROLL(i, static_size(c->rX.layout))
        set(rFactors, i, convert(CKL_F16, gemm_f32_of_f8(c->f8, at(c->rX, i))));
    return rFactors;
}

/* Ends the copies that went to registers. */
static void store_tile_of(const operand_tiles *x, val stage)
{
    for (const operand_copy *c = x->copies; c < x->copies + x->count; c++)
        if (c->copy.atom.op != IR_CP_ASYNC)
            copy_tiled(&c->store, converted(c), slice(c->tXsX, _, _, _, stage));
}

/* Rounds a fragment to the nearest numbers that tensor cores take, and returns the rests, rounded likewise. */
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

/* acc += A * B of f32, without the product of the rests; the smallest products first. */
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

/* The sums of a block of K, scaled before they are added. */
typedef struct block_sums {
    const gemm_values *p;
    val rows;   // i64, of A in all
    tensor sum; // (MMA,MMA_M,MMA_N)
    tensor cD;  // (MMA,MMA_M,MMA_N), where they lie in D
    val tiles;  // variable: K tiles that are multiplied
} block_sums;

/* The two operands of a tile of K, and their accumulators. */
typedef struct product {
    const gemm_tiled_config *cfg;
    const tiled_mma *mma;
    const operand_tiles *A, *B;
    tensor acc; // (MMA,MMA_M,MMA_N)
    const block_sums *blocks;
} product;

static void load_tiles(const void *of, val tile, val stage)
{
    const product *x = of;
    load_tile(x->A, tile, stage);
    load_tile(x->B, tile, stage);
}

static void store_stage(const void *of, val stage)
{
    const product *x = of;
    store_tile_of(x->A, stage);
    store_tile_of(x->B, stage);
}

/* acc += sums of the block to which the last K tile belongs, scaled. */
static void add_block(const product *x)
{
    const gemm_epilogue e = x->cfg->epilogue;
    const block_sums *b = x->blocks;
    val block = div(sub(b->tiles, imm(1)), imm(gemm_block_k(&e) / x->A->depth));
    UNROLL(i, static_size(x->acc.layout)) {
        val row = min(convert(I64, coordinate(b->cD, 0, i)), sub(b->p->m, imm64(1)));
        val col = min(convert(I64, coordinate(b->cD, 1, i)), sub(b->p->n, imm64(1)));
        val scale = mul(gemm_block_scale(e, 'a', b->p, row, b->rows, block),
                        gemm_block_scale(e, 'b', b->p, col, b->p->n, block));
        set(x->acc, i, fma(at(b->sum, i), scale, at(x->acc, i)));
    }
    fill(b->sum, immf(0));
}

static void multiply_block(const product *x, tensor rA, tensor rB)
{
    const int tiles = gemm_block_k(&x->cfg->epilogue) / x->A->depth; // of a block
    gemm(x->mma, rA, rB, x->blocks->sum, yes());
    assign(x->blocks->tiles, add(x->blocks->tiles, imm(1)));
    IF(eq(rem(x->blocks->tiles, imm(tiles)), imm(0)))
        add_block(x);
}

/* Multiplies one stage by tensor cores. */
static void multiply_mma(const void *of, val stage)
{
    const product *x = of;
    tensor rA = fragment_A_words(x->mma, x->A->rows, x->A->depth); // (WORDS,MMA_M,MMA_K)
    tensor rB = fragment_B_words(x->mma, x->B->rows, x->B->depth); // (WORDS,MMA_N,MMA_K)
    ldmatrix_A(x->mma, slice(x->A->sX, _, _, stage), thread(), rA);
    ldmatrix_B(x->mma, slice(x->B->sX, _, _, stage), thread(), rB);
    if (x->blocks)
        multiply_block(x, rA, rB);
    else if (x->cfg->epilogue.math == CKL_GEMM_F32X3)
        multiply_in_three(x->mma, rA, rB, x->acc);
    else
        gemm(x->mma, rA, rB, x->acc, yes());
}

/* All of K in one stage, which is loaded, waited for and used in turn: a step of the ladder. */
static void multiply_in_turn(const product *x, val k_tiles)
{
    LOOP(kt, k_tiles) {
        load_tiles(x, kt, imm(0));
        store_stage(x, imm(0));
        cp_async_commit();
        cp_async_wait(0);
        cta_sync(); // the tiles have arrived
        multiply_mma(x, imm(0));
        cta_sync(); // and no longer needed
    }
}

/* Columns of D of a tile. */
static int columns_of(const gemm_tiled_config *cfg)
{
    return cfg->epilogue.gated ? cfg->tile_n / 2 : cfg->tile_n;
}

/* Where this thread's elements of a tile lie in D: (MMA,MMA_M,MMA_N). */
static tensor coordinates_of(const gemm_tiled_config *cfg, const gemm_values *p, const tiled_mma *mma, val row, val col)
{
    int columns = columns_of(cfg);
    tensor cD = local_tile(identity_tensor(shape(p->m, p->n)), shape(cfg->tile_m, columns), coord(row, col));
    return partition_C(mma, cD, thread());
}

/* One tile of D; A has so many rows, p's may be fewer. */
static void compute_tile(const gemm_tiled_config *cfg, const gemm_values *p, val row, val col, val rows)
{
    operand_tiles A = tiles_of(cfg, 'a', p, cfg->tile_m, row);
    operand_tiles B = tiles_of(cfg, 'b', p, cfg->tile_n, col);
    tiled_mma mma = mma_of(cfg);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, convert(acc.dtype, imm(0)));
    block_sums blocks = { .p = p, .rows = rows };
    product work = { cfg, &mma, &A, &B, acc, NULL };
    if (gemm_has_block_scales(cfg->epilogue.scale_b)) {
        blocks.sum = fragment_C(&mma, cfg->tile_m, cfg->tile_n);
        fill(blocks.sum, immf(0));
        blocks.cD = coordinates_of(cfg, p, &mma, row, col);
        blocks.tiles = variable(U32, imm(0));
        work.blocks = &blocks;
    }
    val k_tiles = convert(U32, div_up(p->k, A.depth));
    if (cfg->stages == 1)
        multiply_in_turn(&work, k_tiles);
    else
        stage_loop(&(stage_work){ cfg->stages, load_tiles, store_stage, multiply_mma, &work }, k_tiles);
    if (work.blocks)
        IF(ne(rem(blocks.tiles, imm(gemm_block_k(&cfg->epilogue) / A.depth)), imm(0)))
            add_block(&work); // the last block may be shorter
    gemm_store_accumulators(cfg->epilogue, p, acc, coordinates_of(cfg, p, &mma, row, col));
}

/* The same where rows are in groups; there may be fewer tiles than CTAs. */
static void compute_tile_of_group(const gemm_tiled_config *cfg, const gemm_values *all, val tile, val col)
{
    val group = gemm_find_group(all, GEMM_TILED_THREADS, cfg->tile_m, &tile);
    IF(lt(group, all->groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, all, group);
        compute_tile(cfg, &p, tile, col, all->m);
    }
}

void gemm_tiled(const void *config, int kernel)
{
    const gemm_tiled_config *cfg = config;
    (void)kernel;
    launch_bounds(GEMM_TILED_THREADS, 0);
    gemm_values all = params_of(gemm);
    val columns = convert(U32, div_up(all.n, columns_of(cfg)));
    if (cfg->grouped == GEMM_GROUPED_M) {
        compute_tile_of_group(cfg, &all, div(cta_x(), columns), rem(cta_x(), columns));
        return;
    }
    val tiles = mul(columns, convert(U32, div_up(all.m, cfg->tile_m)));
    gemm_values p = gemm_product_of(cfg->epilogue, cfg->grouped, &all, div(cta_x(), tiles));
    val row = div(rem(cta_x(), tiles), columns), col = rem(cta_x(), columns);
    compute_tile(cfg, &p, row, col, all.m);
}
