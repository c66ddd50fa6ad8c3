/*
 * gemm_fma.c - f32 products without tensor cores: tiles by cp.async, a block of D in each thread's registers.
 *
 * For each element of K the rows of A and of B^T are contiguous in shared memory, so a thread loads four at once and
 * multiplies each by each. A K-major operand is transposed by its copies, an element each. The speed depends on the
 * share of FMAs among the instructions, and on conflicts of register banks: bench/notes/gemm.md counts both.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum { QUAD = GEMM_FMA_QUAD, LANES_M = GEMM_FMA_LANES_M, LANES_N = GEMM_FMA_LANES_N, BYTES = 4 };

/*
 * The rows of a matrix that a tile has, of `count` in all; of a gated B the tile's upper half is of the last columns.
 */
typedef struct tile_rows {
    val first, count;         // i64
    int half;                 // 0: not gated
    const gemm_values *lists; // NULL, or the product whose rows of A a list takes
} tile_rows;

/* This thread's copies of an operand's tiles along K, and its partition to multiply. */
typedef struct operand {
    tensor sX;                 // (ROWS,BK,STAGES)
    tensor tCsX;               // ((QUAD,QUADS),BK,STAGES)
    int vec;                   // elements of a copy
    int copies;                // of a stage
    int k_step;                // elements of K between them; 0: all are of the same
    val k;                     // i32: of the first copy, in its tile
    val from[GEMM_FMA_COPIES]; // u64: bytes from `at`
    val to, stage_bytes;       // in shared memory: the first copy of stage 0
    int to_step;               // bytes between copies there
    val valid;                 // u32: bytes of a copy that lie in the matrix
    val at;                    // u64 variable: the K tile that is loaded next
    val advance;               // u64: bytes to the one after
} operand;

static int threads_m(const gemm_fma_config *cfg)
{
    return cfg->tile_m / cfg->block_m;
}

int gemm_fma_threads(const gemm_fma_config *cfg)
{
    return threads_m(cfg) * (cfg->tile_n / cfg->block_n);
}

/* This thread's place among those of the tile. A warp is 4 x 8 threads. */
static val place_m(const gemm_fma_config *cfg)
{
    return add(mul(rem(warp(), imm(threads_m(cfg) / LANES_M)), imm(LANES_M)), thread_at(lane(), 1, LANES_N, LANES_M));
}

static val place_n(const gemm_fma_config *cfg)
{
    return add(mul(div(warp(), imm(threads_m(cfg) / LANES_M)), imm(LANES_N)), thread_at(lane(), 0, LANES_N, LANES_M));
}

/* Row r of a tile among those of its half, if gated; then among the matrix's, whose last one stands for later ones. */
static val row_of_half(const tile_rows *t, val r)
{
    val row = t->half ? select(ge(r, imm(t->half)), sub(r, imm(t->half)), r) : r;
    return add(t->first, convert(I64, row));
}

static val matrix_row(const tile_rows *t, val r)
{
    val row = min(row_of_half(t, r), sub(t->count, imm64(1)));
    if (t->lists)
        return gemm_row_of_A((gemm_epilogue){ .gather = true }, t->lists, row);
    return t->half ? add(row, select(ge(r, imm(t->half)), t->count, imm64(0))) : row;
}

static val bytes_of(val elements)
{
    return convert(U64, mul(elements, imm64(BYTES)));
}

/* K-major: neighbours copy neighbours along K, each thread the same element of every K tile. */
static void divide_k_major(const gemm_fma_config *cfg, operand *x, const tile_rows *t, int rows, val ld)
{
    const int at_once = gemm_fma_threads(cfg) / cfg->depth;
    val k = thread_at(thread(), 0, cfg->depth, at_once), row = thread_at(thread(), 1, cfg->depth, at_once);
    x->vec = 1;
    x->copies = rows / at_once;
    x->k = convert(I32, k);
    for (int i = 0; i < x->copies; i++) {
        val start = mul(matrix_row(t, add(row, imm(i * at_once))), ld);
        x->from[i] = bytes_of(add(start, convert(I64, k)));
    }
    x->to = tensor_address(x->sX, coord(row, k, 0));
    x->to_step = BYTES * at_once;
    x->valid = imm_as(U32, BYTES);
    x->advance = imm_as(U64, BYTES * cfg->depth);
}

/* M- or N-major: neighbours copy neighbouring vectors of rows. */
static void divide_m_major(const gemm_fma_config *cfg, operand *x, const tile_rows *t, int rows, val ld)
{
    const int across = rows / x->vec;
    val k = thread_at(thread(), 1, across, gemm_fma_threads(cfg) / across),
        row = mul(thread_at(thread(), 0, across, gemm_fma_threads(cfg) / across), imm(x->vec));
    val left = min(sub(t->count, row_of_half(t, row)), imm64(x->vec)); // of the vector, in the matrix
    val start = select(gt(left, imm64(0)), matrix_row(t, row), imm64(0));
    x->k_step = gemm_fma_threads(cfg) / across;
    x->copies = cfg->depth / x->k_step;
    x->k = convert(I32, k);
    for (int i = 0; i < x->copies; i++)
        x->from[i] = bytes_of(add(mul(convert(I64, add(k, imm(i * x->k_step))), ld), start));
    x->to = tensor_address(x->sX, coord(row, k, 0));
    x->to_step = BYTES * x->k_step * (rows + QUAD);
    x->valid = convert(U32, mul(max(left, imm64(0)), imm64(BYTES)));
    x->advance = bytes_of(mul(ld, imm64(cfg->depth)));
}

/* Rows in shared memory have a quad of padding, so that transposing copies have no bank conflicts. */
static operand describe_operand(const gemm_fma_config *cfg, char name, const gemm_values *p, tile_rows t)
{
    const bool is_a = name == 'a';
    const int rows = is_a ? cfg->tile_m : cfg->tile_n, pitch = rows + QUAD,
              threads = is_a ? threads_m(cfg) : cfg->tile_n / cfg->block_n, block = is_a ? cfg->block_m : cfg->block_n;
    operand x = { .vec = cfg->vec };
    layout ring = make_layout(shape(rows, cfg->depth, cfg->stages), stride(1, pitch, pitch * cfg->depth));
    x.sX = smem_tensor(is_a ? "A" : "B", F32, ring, 16);
    x.tCsX = tensor_with_layout(x.sX, make_layout(shape(shape(QUAD, block / QUAD), cfg->depth, cfg->stages),
                                                  stride(stride(1, QUAD * threads), pitch, pitch * cfg->depth)));
    x.tCsX.address = tensor_address(x.sX, coord(mul(is_a ? place_m(cfg) : place_n(cfg), imm(QUAD)), 0, 0));
    x.stage_bytes = imm(BYTES * pitch * cfg->depth);
    (gemm_k_major(cfg->epilogue.layout, name) ? divide_k_major : divide_m_major)(cfg, &x, &t, rows,
                                                                                 is_a ? p->lda : p->ldb);
    x.at = variable(U64, is_a ? p->a : p->b);
    return x;
}

/* Starts the copies of the next K tile; `left` elements of K are left, and those beyond are 0. */
static void load_tile(operand *x, val left, val stage)
{
    val to = add(x->to, mul(stage, x->stage_bytes)), valid = imm_as(U32, 0);
    UNROLL(i, x->copies) {
        if (i == 0 || x->k_step)
            valid = select(lt(add(x->k, imm_as(I32, i * x->k_step)), left), x->valid, imm_as(U32, 0));
        cp_async(add(to, imm(i * x->to_step)), add(x->at, x->from[i]), BYTES * x->vec, valid);
    }
    assign(x->at, add(x->at, x->advance));
}

/* The factors of a thread at one element of K; the next ones are loaded meanwhile. */
typedef struct fragments {
    tensor rA, rB; // ((QUAD,QUADS))
} fragments;

static fragments describe_fragments(const gemm_fma_config *cfg)
{
    return (fragments){ fragment(F32, compact(shape(shape(QUAD, cfg->block_m / QUAD)))),
                        fragment(F32, compact(shape(shape(QUAD, cfg->block_n / QUAD)))) };
}

static void load_fragments(const fragments *f, const operand *A, const operand *B, int k, val stage)
{
    copy(slice(A->tCsX, _, k, stage), f->rA, QUAD * BYTES);
    copy(slice(B->tCsX, _, k, stage), f->rB, QUAD * BYTES);
}

/*
 * Along the longer side of the block, to and fro in the shorter one: each FMA shares an operand with the one before,
 * which then needs no bank. bench/notes/gemm.md has other orders.
 */
static void multiply(const gemm_fma_config *cfg, const fragments *f, tensor acc)
{
    const bool by_rows = cfg->block_m >= cfg->block_n;
    const int outer = by_rows ? cfg->block_m : cfg->block_n, inner = by_rows ? cfg->block_n : cfg->block_m;
    for (int o = 0; o < outer; o++)
        for (int step = 0; step < inner; step++) {
            int n = o % 2 ? inner - 1 - step : step, i = by_rows ? o : n, j = by_rows ? n : o;
            set(acc, coord(i, j), fma(at(f->rA, i), at(f->rB, j), at(acc, i, j)));
        }
}

static val stage_after(const gemm_fma_config *cfg, val stage)
{
    return select(eq(stage, imm(cfg->stages - 1)), imm(0), add(stage, imm(1)));
}

/*
 * acc = A tile * B tile over all of K. The first factors of a K tile are loaded while the last ones of the tile before
 * are multiplied, after a wait for its copies; by then no warp reads the tile before.
 */
static void mainloop(const gemm_fma_config *cfg, operand *A, operand *B, val k, tensor acc)
{
    val left = variable(I32, convert(I32, k)); // elements of K whose copies are not started
    val depth = imm_as(I32, cfg->depth), k_tiles = convert(U32, div_up(k, cfg->depth));
    val ready = variable(U32, imm(0)), free = variable(U32, imm(cfg->stages - 1)); // stages
    const fragments f[2] = { describe_fragments(cfg), describe_fragments(cfg) };
    for (int s = 0; s < cfg->stages - 1; s++) {
        load_tile(A, left, imm(s));
        load_tile(B, left, imm(s));
        cp_async_commit();
        assign(left, sub(left, depth));
    }
    cp_async_wait(cfg->stages - 2);
    cta_sync(); // tile 0 has arrived
    load_fragments(&f[0], A, B, 0, ready);
    LOOP(kt, k_tiles) {
        for (int e = 0; e < cfg->depth; e++) {
            if (e == cfg->depth - 1) {
                cp_async_wait(cfg->stages - 2);
                cta_sync();
                assign(free, ready);
                assign(ready, stage_after(cfg, ready));
            }
            load_fragments(&f[(e + 1) % 2], A, B, (e + 1) % cfg->depth, ready);
            if (e == 0)
                load_tile(A, left, free);
            if (e == 1) {
                load_tile(B, left, free);
                cp_async_commit();
                assign(left, sub(left, depth));
            }
            multiply(cfg, &f[e % 2], acc);
        }
    }
    cp_async_wait(0);
}

/* Four columns of a row of C, D or X. */
static tensor quad_at(val address, val ld, val row, val col)
{
    return gmem_tensor(add(address, bytes_of(add(mul(row, ld), col))), F32, compact(leaf(QUAD)));
}

static val load_vector(val address, val i)
{
    return at(gmem_tensor(add(address, bytes_of(i)), F32, compact(leaf(1))), 0);
}

/* Where rows of D are whole quads: finishes and stores one, of a gated product with that of the last columns. */
static void store_quad(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val row, val col, const val *products,
                       const val *ups)
{
    tensor rC = fragment(F32, compact(leaf(QUAD))), rX = fragment_like(rC, F32), rD = fragment_like(rC, F32);
    const val row_D = gemm_row_of_D(e, p, row);
    fill(rC, immf(0));
    if (e.c)
        IF(ne(s.beta, immf(0)))
            copy(quad_at(p->c, p->ldc, row_D, col), rC, QUAD * BYTES);
    if (gemm_is_backward(e.activation))
        copy(quad_at(p->x, p->ldx, row_D, col), rX, QUAD * BYTES);
    for (int i = 0; i < QUAD; i++) {
        val at_col = add(col, imm64(i));
        gemm_element in = { .product = products[i], .c = at(rC, i), .row = row, .col = at_col };
        if (e.gated)
            in.up = ups[i];
        if (e.gated && e.bias)
            in.bias_up = load_vector(p->bias, add(at_col, p->n));
        if (e.gated && e.scale_b == CKL_GEMM_SCALE_ROW)
            in.scale_up = load_vector(p->scale_b, add(at_col, p->n));
        if (e.bias)
            in.bias = load_vector(p->bias, e.bias_along == CKL_GEMM_ALONG_M ? row : at_col);
        if (e.scale_a == CKL_GEMM_SCALE_ROW)
            in.scale_a = load_vector(p->scale_a, row);
        if (e.scale_b == CKL_GEMM_SCALE_ROW)
            in.scale_b = load_vector(p->scale_b, at_col);
        if (e.weighted)
            in.weight = load_vector(p->row_weights, row);
        if (gemm_is_backward(e.activation))
            in.x = at(rX, i);
        const gemm_finished out = gemm_finish(e, s, in);
        set(rX, i, out.x);
        set(rD, i, out.d);
    }
    if (e.preactivation)
        copy(rX, quad_at(p->x, p->ldx, row_D, col), QUAD * BYTES);
    copy(rD, quad_at(p->d, p->ldd, row_D, col), QUAD * BYTES);
}

/* This thread's block of D, from registers. Of a gated product the last quads are of the last columns. */
static void store_block(const gemm_fma_config *cfg, const gemm_values *p, val row, val col, tensor acc)
{
    const gemm_epilogue e = cfg->epilogue;
    const int columns = e.gated ? cfg->block_n / 2 : cfg->block_n, span_n = QUAD * (cfg->tile_n / cfg->block_n),
              span_m = QUAD * threads_m(cfg);
    gemm_scalars scalars = gemm_load_scalars(e, GEMM_SCALAR_SOURCES(p));
    row = add(row, convert(I64, mul(place_m(cfg), imm(QUAD))));
    col = add(col, convert(I64, mul(place_n(cfg), imm(QUAD))));
    for (int i = 0; i < cfg->block_m; i++)
        for (int j = 0; j < columns && describing(); j += QUAD) {
            val at_row = add(row, imm64(i / QUAD * span_m + i % QUAD)), at_col = add(col, imm64(j / QUAD * span_n));
            val products[QUAD], ups[QUAD] = { 0 };
            for (int q = 0; q < QUAD; q++) {
                products[q] = at(acc, i, j + q);
                if (e.gated)
                    ups[q] = at(acc, i, j + q + columns);
            }
            if (cfg->whole)
                IF(logical_and(lt(at_row, p->m), lt(at_col, p->n)))
                    store_quad(e, scalars, p, at_row, at_col, products, ups);
            for (int q = 0; q < QUAD && !cfg->whole; q++)
                IF(logical_and(lt(at_row, p->m), lt(add(at_col, imm64(q)), p->n)))
                    gemm_store(e, scalars, p, at_row, add(at_col, imm64(q)), products[q], ups[q]);
        }
}

/* Columns of D of a tile. */
static int columns_of(const gemm_fma_config *cfg)
{
    return cfg->epilogue.gated ? cfg->tile_n / 2 : cfg->tile_n;
}

/* One tile of D. */
static void compute_tile(const gemm_fma_config *cfg, const gemm_values *p, val tile_row, val tile_col)
{
    const int columns = columns_of(cfg);
    val row = mul(convert(I64, tile_row), imm64(cfg->tile_m)), col = mul(convert(I64, tile_col), imm64(columns));
    operand A = describe_operand(cfg, 'a', p, (tile_rows){ row, p->m, 0, cfg->epilogue.gather ? p : NULL });
    operand B = describe_operand(cfg, 'b', p, (tile_rows){ col, p->n, cfg->epilogue.gated ? columns : 0, NULL });
    tensor acc = fragment(F32, compact(shape(cfg->block_m, cfg->block_n))); // (BLOCK_M,BLOCK_N)
    fill(acc, immf(0));
    mainloop(cfg, &A, &B, p->k, acc);
    store_block(cfg, p, row, col, acc);
}

/* The same where rows are in groups; there may be fewer tiles than CTAs. */
static void compute_tile_of_group(const gemm_fma_config *cfg, const gemm_values *all, val tile, val col)
{
    val group = gemm_find_group(all, gemm_fma_threads(cfg), cfg->tile_m, &tile);
    IF(lt(group, all->groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, all, group);
        compute_tile(cfg, &p, tile, col);
    }
}

void gemm_fma(const void *config, int kernel)
{
    const gemm_fma_config *cfg = config;
    (void)kernel;
    enum { GROUP = 8 };
    launch_bounds(gemm_fma_threads(cfg), cfg->ctas);
    gemm_values all = params_of(gemm);
    tile_schedule tiles = make_tile_schedule(all.m, all.n, cfg->tile_m, columns_of(cfg), GROUP);
    if (cfg->grouped == GEMM_GROUPED_M) {
        compute_tile_of_group(cfg, &all, div(cta_x(), tiles.tiles_n), rem(cta_x(), tiles.tiles_n));
        return;
    }
    const gemm_values p = gemm_product_of(cfg->epilogue, cfg->grouped, &all, div(cta_x(), tiles.count));
    val row, col;
    tile_at(&tiles, rem(cta_x(), tiles.count), &row, &col);
    compute_tile(cfg, &p, row, col);
}
