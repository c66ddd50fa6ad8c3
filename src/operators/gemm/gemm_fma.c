/*
 * gemm_fma.c - f32 products without tensor cores: tiles by cp.async, a block of D in each thread's registers.
 *
 * For each element of K the rows of A and of B^T are contiguous in shared memory, so a thread loads four at once and
 * multiplies each by each. A K-major operand is transposed on its way through registers. The speed depends on the share
 * of FMAs among the instructions, and on conflicts of register banks: bench/notes/gemm.md counts both.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_fma.h"

/* The factors of a thread at one element of K; the next ones are loaded meanwhile. */
typedef struct fragments {
    tensor rA, rB; // ((QUAD,QUADS))
} fragments;

static void load_fragments(const fragments *f, const gemm_fma_operand x[2], int k, val stage)
{
    copy(slice(x[0].tCsX, _, k, stage), f->rA, QUAD * BYTES);
    copy(slice(x[1].tCsX, _, k, stage), f->rB, QUAD * BYTES);
}

/*
 * The order of a thread's multiply-adds: along rows or columns of its block, one by one or in squares of four, to and
 * fro or always forth. A neighbour in it shares an operand, which then needs no bank. The orders that ptxas makes the
 * fewest conflicts of: bench/notes/gemm.md has others.
 */
typedef struct fma_order {
    bool by_rows, back;
    int side; // of a square
} fma_order;

static fma_order order_of(const gemm_fma_config *cfg)
{
    enum { QUADS_OF_THREE = 12 };
    if (cfg->block_m == QUADS_OF_THREE)
        return (fma_order){ .side = 2 };
    if (cfg->block_n == QUADS_OF_THREE)
        return (fma_order){ .by_rows = true, .back = true, .side = 1 };
    if (gemm_fma_is_tight(cfg))
        return (fma_order){ .back = true, .side = 2 };
    return (fma_order){ .by_rows = cfg->block_m >= cfg->block_n, .back = true, .side = 1 };
}

static void multiply(const gemm_fma_config *cfg, const fragments *f, tensor acc)
{
    const fma_order order = order_of(cfg);
    const int side = order.side, outer = order.by_rows ? cfg->block_m : cfg->block_n,
              inner = order.by_rows ? cfg->block_n : cfg->block_m;
    for (int o = 0; o < outer; o += side)
        for (int step = 0; step < inner; step += side)
            for (int corner = 0; corner < side * side; corner++) {
                const int n = order.back && o / side % 2 ? inner - side - step : step;
                const int i = (order.by_rows ? o : n) + (corner == 1 || corner == 2);
                const int j = (order.by_rows ? n : o) + (corner >= 2);
                set(acc, coord(i, j), fma(at(f->rA, i), at(f->rB, j), at(acc, i, j)));
            }
}

/*
 * acc += A tile * B tile. The first factors of the next tile are loaded while the last ones are multiplied, after a
 * wait for what arrives; by then no warp reads the tile before.
 */
static void multiply_tile(const gemm_fma_config *cfg, const gemm_fma_operand x[2], const gemm_fma_tile *t,
                          fragments f[2], tensor acc)
{
    for (int e = 0; e < cfg->depth; e++) {
        if (e == cfg->depth - 1) {
            cp_async_wait(cfg->stages - 2);
            cta_sync();
            assign(t->free, t->ready);
            assign(t->ready, gemm_fma_stage_after(cfg, t->ready));
            assign(t->left, sub(t->left, imm_as(I32, gemm_fma_step(cfg))));
        }
        load_fragments(&f[(e + 1) % 2], x, (e + 1) % cfg->depth, t->ready);
        gemm_fma_continue_tiles(cfg, x, t, e);
        multiply(cfg, &f[e % 2], acc);
    }
}

/* The first steps, in which whole tiles are loaded, the third after the one that is multiplied. */
static val steps_inside(const gemm_fma_config *cfg, val k)
{
    enum { AHEAD = 3 };
    return convert(U32, sub(max(div(k, imm64(gemm_fma_step(cfg))), imm64(AHEAD)), imm64(AHEAD)));
}

/* acc = A * B over all of K. Phased operands have a loop of their own for the last steps, which load elements. */
static void mainloop(const gemm_fma_config *cfg, const gemm_fma_operand x[2], val k, tensor acc)
{
    gemm_fma_tile t = { variable(I32, convert(I32, k)), variable(U32, imm(0)), variable(U32, imm(cfg->stages - 1)),
                        cfg->phased };
    fragments f[2];
    for (int i = 0; i < 2; i++)
        f[i] = (fragments){ fragment(F32, compact(shape(shape(QUAD, cfg->block_m / QUAD)))),
                            fragment(F32, compact(shape(shape(QUAD, cfg->block_n / QUAD)))) };
    gemm_fma_begin_tiles(cfg, x, t.left);
    load_fragments(&f[0], x, 0, t.ready);
    val steps = convert(U32, div_up(k, gemm_fma_step(cfg))), inside = imm(0);
    if (cfg->phased) {
        inside = steps_inside(cfg, k);
        LOOP(kt, inside)
            multiply_tile(cfg, x, &t, f, acc);
        t.inside = false;
    }
    LOOP_FROM(kt, inside, steps, imm(1))
        multiply_tile(cfg, x, &t, f, acc);
    cp_async_wait(0);
}

/* The first group adds the others' sums to its own. */
static void add_groups(const gemm_fma_config *cfg, tensor acc)
{
    const int block = cfg->block_m * cfg->block_n, threads = gemm_fma_group_threads(cfg);
    tensor sSums = smem_tensor("groups", F32, compact(shape(threads, block, cfg->groups_k - 1)), 16);
    val thread = gemm_fma_thread(cfg), group = gemm_fma_group(cfg);
    IF(gt(group, imm(0)))
        for (int i = 0; i < block; i++)
            set(sSums, coord(thread, i, sub(group, imm(1))), at(acc, i));
    cta_sync();
    IF(eq(group, imm(0)))
        for (int g = 0; g < cfg->groups_k - 1; g++)
            for (int i = 0; i < block; i++)
                set(acc, i, add(at(acc, i), at(sSums, thread, i, g)));
}

/* A slice of the K of a tile; unset: it is not shared. */
typedef struct tile_slice {
    val tile, slice; // u32: number among those that are shared
    val shared;      // predicate: is this one of them?
} tile_slice;

/*
 * This thread's sums of a slice of a tile in the workspace: (BLOCK_M,BLOCK_N). They are stored one by one, since a
 * vector's would have neighbouring registers, whose banks meet those of the factors in nearly half of the FMAs.
 */
static tensor parts_of(const gemm_fma_config *cfg, const gemm_values *p, val tile, val slice)
{
    const int threads = gemm_fma_group_threads(cfg);
    val number = add(mul(convert(U64, tile), convert(U64, p->slices)), convert(U64, slice));
    val of_tile = mul(number, imm64((int64_t)BYTES * cfg->tile_m * cfg->tile_n));
    return gmem_tensor(add(p->parts, add(of_tile, convert(U64, mul(thread(), imm(BYTES))))), F32,
                       make_layout(shape(cfg->block_m, cfg->block_n), stride(threads, threads * cfg->block_m)));
}

/* One tile of D, or the sums of a slice of it. */
static void compute_tile(const gemm_fma_config *cfg, const gemm_values *p, val tile_row, val tile_col,
                         const tile_slice *slice)
{
    const int columns = gemm_fma_columns(cfg);
    val row = mul(convert(I64, tile_row), imm64(cfg->tile_m)), col = mul(convert(I64, tile_col), imm64(columns));
    const gemm_fma_operand x[2] = {
        gemm_fma_operand_of(cfg, 'a', p, (gemm_fma_rows){ row, p->m, 0, cfg->epilogue.gather ? p : NULL }),
        gemm_fma_operand_of(cfg, 'b', p, (gemm_fma_rows){ col, p->n, cfg->epilogue.gated ? columns : 0, NULL }),
    };
    tensor acc = fragment(F32, compact(shape(cfg->block_m, cfg->block_n))); // (BLOCK_M,BLOCK_N)
    fill(acc, immf(0));
    mainloop(cfg, x, p->k, acc);
    if (cfg->sliced)
        launch_dependents(); // sooner, those that add the slices would crowd some SMs
    if (cfg->groups_k > 1)
        add_groups(cfg, acc);
    IF(eq(gemm_fma_group(cfg), imm(0))) {
        if (cfg->sliced)
            IF(slice->shared)
                copy(acc, parts_of(cfg, p, slice->tile, slice->slice), BYTES);
        IF(cfg->sliced ? logical_not(slice->shared) : yes())
            gemm_fma_store_block(cfg, p, row, col, acc);
    }
}

/* The same where rows are in groups; there may be fewer tiles than CTAs. */
static void compute_tile_of_group(const gemm_fma_config *cfg, const gemm_values *all, val tile, val col)
{
    val group = gemm_find_group(all, gemm_fma_threads(cfg), cfg->tile_m, &tile);
    IF(lt(group, all->groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, all, group);
        compute_tile(cfg, &p, tile, col, NULL);
    }
}

/* Which tile, and which slice of it. */
static val take_slice(const gemm_values *all, tile_slice *t)
{
    val beyond = sub(cta_x(), all->whole);
    t->shared = ge(cta_x(), all->whole);
    t->tile = select(t->shared, div(beyond, all->slices), imm(0));
    t->slice = select(t->shared, rem(beyond, all->slices), imm(0));
    return select(t->shared, add(all->whole, t->tile), cta_x());
}

/* The part of K of a slice; the others' addresses and lengths stay. */
static void cut_K(const gemm_fma_config *cfg, const tile_slice *t, gemm_values *p)
{
    const ckl_gemm_layout lies = cfg->epilogue.layout;
    val first = mul(convert(I64, t->slice), p->slice_k);
    val apart_a = gemm_k_major(lies, 'a') ? imm64(1) : p->lda, apart_b = gemm_k_major(lies, 'b') ? imm64(1) : p->ldb;
    p->a = add(p->a, gemm_fma_bytes(mul(first, apart_a)));
    p->b = add(p->b, gemm_fma_bytes(mul(first, apart_b)));
    p->k = select(t->shared, min(p->slice_k, sub(p->k, first)), p->k);
}

/* The product that a tile is of, and where it lies there. */
static gemm_values find_tile(const gemm_fma_config *cfg, const gemm_values *all, val tile, val *row, val *col)
{
    enum { GROUP = 8 };
    const tile_schedule tiles = make_tile_schedule(all->m, all->n, cfg->tile_m, gemm_fma_columns(cfg), GROUP);
    tile_at(&tiles, rem(tile, tiles.count), row, col);
    return gemm_product_of(cfg->epilogue, cfg->grouped, all, div(tile, tiles.count));
}

/*
 * A CTA for each row of the blocks of a shared tile: adds the sums of all slices in their order, finishes and stores.
 */
static void add_slices(const gemm_fma_config *cfg, const gemm_values *all)
{
    enum { AT_ONCE = 32 }; // elements on their way
    const int n = cfg->block_n, at_once = AT_ONCE / n;
    val tile = div(cta_x(), imm(cfg->block_m)), i = rem(cta_x(), imm(cfg->block_m)), tile_row, tile_col;
    tensor acc = fragment(F32, compact(shape(1, n))); // (1,BLOCK_N)
    fill(acc, immf(0));
    LOOP_FROM(s, imm(0), all->slices, imm(at_once)) {
        tensor rPart[AT_ONCE / QUAD];
        for (int k = 0; k < at_once; k++) {
            rPart[k] = fragment_like(acc, F32);
            fill(rPart[k], immf(0));
            IF(lt(add(s, imm(k)), all->slices))
                copy(slice(parts_of(cfg, all, tile, add(s, imm(k))), i, _), rPart[k], BYTES);
        }
        for (int j = 0; j < n; j++)
            for (int k = 0; k < at_once; k++)
                set(acc, j, add(at(acc, j), at(rPart[k], j)));
    }
    const gemm_values p = find_tile(cfg, all, add(all->whole, tile), &tile_row, &tile_col);
    gemm_fma_store_row(cfg, &p, tile_row, tile_col, i, acc);
}

void gemm_fma(const void *config, int kernel)
{
    const gemm_fma_config *cfg = config;
    launch_bounds(kernel == 0 ? gemm_fma_threads(cfg) : gemm_fma_group_threads(cfg), kernel == 0 ? cfg->ctas : 0);
    gemm_values all = params_of(gemm);
    if (kernel == 0)
        prefetch_early(32, all.early, all.early_bytes, 2);
    grid_wait();
    if (!cfg->sliced)
        IF(eq(all.alone, imm(0)))
            launch_dependents();
    if (kernel == 1) {
        add_slices(cfg, &all);
        return;
    }
    if (cfg->grouped == GEMM_GROUPED_M) {
        val across = convert(U32, div_up(all.n, gemm_fma_columns(cfg)));
        compute_tile_of_group(cfg, &all, div(cta_x(), across), rem(cta_x(), across));
        return;
    }
    tile_slice slice;
    val tile = cfg->sliced ? take_slice(&all, &slice) : cta_x(), row, col;
    gemm_values p = find_tile(cfg, &all, tile, &row, &col);
    if (cfg->sliced)
        cut_K(cfg, &slice, &p);
    compute_tile(cfg, &p, row, col, &slice);
}
