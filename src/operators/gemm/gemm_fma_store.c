/*
 * gemm_fma_store.c - the end of an f32 product without tensor cores: rows of C and X are loaded, elements of D finished
 * and stored, by whole quads or, where rows begin anywhere, by neighbours of a warp.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_fma.h"

/*
 * The sums of a row of the lanes' blocks, by which they change hands where rows of D are no whole quads: then a warp
 * stores 32 neighbours of a row at once. Lanes store and load in banks of their own.
 */
static tensor handed_sums(const gemm_fma_config *cfg)
{
    enum { PITCH = LANES + LANES / QUAD };
    const int quads = cfg->block_n / QUAD, lanes_n = LANES / cfg->lanes_m, warps = gemm_fma_group_threads(cfg) / LANES;
    return smem_tensor("sums", F32,
                       make_layout(shape(QUAD, lanes_n, cfg->lanes_m, quads, warps),
                                   stride(PITCH, 1, lanes_n, QUAD * PITCH, QUAD * PITCH * quads)),
                       16); // (QUAD,LANES_N,LANES_M,QUADS,WARPS)
}

/* Of the four elements that a lane stores of a quad of all lanes, which are in rows of `across` columns: number q. */
typedef struct handed_place {
    val m, column;     // lane along M, and column among those of the quad
    int rows, columns; // from the place of number 0: lanes along M, columns
} handed_place;

static handed_place handed_place_of(const gemm_fma_config *cfg, int q)
{
    const int across = QUAD * LANES / cfg->lanes_m; // columns
    handed_place at = { .rows = q * LANES / across, .columns = q * LANES % across };
    at.m = add(div(lane(), imm(across)), imm(at.rows));
    at.column = add(rem(lane(), imm(across)), imm(at.columns));
    return at;
}

/*
 * Where this thread's elements of its block's rows lie in D: quads of its own, or, of rows that are no whole quads,
 * those that lanes have handed around.
 */
typedef struct block_place {
    val row, col, left; // the first row and column, i64; columns of the matrix from there on, i32
    int span_m, span_n; // rows and columns between quads
    int columns;        // in D
    tensor sSums;       // for lanes that hand them around
} block_place;

static block_place place_of(const gemm_fma_config *cfg, const gemm_values *p, val row, val col)
{
    enum { MOST = 1 << 20 };
    block_place b = { .span_m = QUAD * gemm_fma_threads_m(cfg),
                      .span_n = QUAD * (cfg->tile_n / cfg->block_n),
                      .columns = cfg->epilogue.gated ? cfg->block_n / 2 : cfg->block_n };
    val m = gemm_fma_place_m(cfg), n = mul(gemm_fma_place_n(cfg), imm(QUAD));
    if (!cfg->whole) {
        const handed_place first = handed_place_of(cfg, 0);
        b.sSums = handed_sums(cfg);
        m = add(sub(m, gemm_fma_lane_m(cfg)), first.m);
        n = add(sub(n, mul(gemm_fma_lane_n(cfg), imm(QUAD))), first.column);
    }
    b.row = add(row, convert(I64, mul(m, imm(QUAD))));
    b.col = add(col, convert(I64, n));
    b.left = convert(I32, min(sub(p->n, b.col), imm64(MOST)));
    return b;
}

/* Columns and rows from the thread's first to its element j of a row. */
static int columns_to(const gemm_fma_config *cfg, const block_place *b, int j)
{
    return j / QUAD * b->span_n + (cfg->whole ? j % QUAD : handed_place_of(cfg, j % QUAD).columns);
}

static int rows_to(const gemm_fma_config *cfg, int j)
{
    return cfg->whole ? 0 : QUAD * handed_place_of(cfg, j % QUAD).rows;
}

/* The rows of D that a thread finishes at once: the first of them, and how many. */
typedef struct some_rows {
    val first; // i64
    int count;
} some_rows;

/* Those of C or X, all on their way at once: (VEC,VECTORS,ROWS); 0 beyond the matrix, or where none are wanted. */
static tensor load_rows(const gemm_fma_config *cfg, const gemm_values *p, val address, val ld, val wanted,
                        const block_place *b, some_rows rows)
{
    const int vec = cfg->whole ? QUAD : 1, vectors = b->columns / vec;
    tensor rX = fragment(F32, compact(shape(vec, vectors, rows.count)));
    vector_at at[GEMM_FMA_BLOCK_MAX];
    for (int v = 0; v < vectors * rows.count; v++) {
        const int distance = columns_to(cfg, b, v % vectors * vec);
        val row = add(rows.first, imm64(v / vectors + rows_to(cfg, v % vectors * vec)));
        val row_D = gemm_row_of_D(cfg->epilogue, p, min(row, sub(p->m, imm64(1))));
        at[v] = (vector_at){ .address = gmem_address(address, F32, add(mul(row_D, ld), b->col)),
                             .offset = BYTES * distance,
                             .guard = logical_and(logical_and(lt(row, p->m), gt(b->left, imm(distance))), wanted) };
    }
    vectors_load(at, vectors * rows.count, vec, gmem_tensor(address, F32, compact(leaf(1))), rX.regs, 0);
    return rX;
}

/* The sums of row i of a block that this thread finishes. Those of the gated columns come last. */
static void take_sums(const gemm_fma_config *cfg, tensor sSums, tensor acc, int i, val sums[])
{
    for (int j = 0; cfg->whole && j < cfg->block_n; j++)
        sums[j] = at(acc, i, j);
    if (cfg->whole)
        return;
    val n = gemm_fma_lane_n(cfg), m = gemm_fma_lane_m(cfg);
    warp_sync();
    for (int j = 0; j < cfg->block_n; j++)
        set(sSums, coord(j % QUAD, n, m, j / QUAD, warp()), at(acc, i, j));
    warp_sync();
    for (int j = 0; j < cfg->block_n; j++) {
        const handed_place from = handed_place_of(cfg, j % QUAD);
        sums[j] = at(sSums, rem(from.column, imm(QUAD)), div(from.column, imm(QUAD)), from.m, j / QUAD, warp());
    }
}

static void store_vector(val address, val ld, val row, val col, int vec, const val elements[])
{
    const vector_at at = { .address = gmem_address(address, F32, add(mul(row, ld), col)), .guard = yes() };
    vector_store(&at, vec, elements, gmem_tensor(address, F32, compact(leaf(1))));
}

/* What a thread has of the rows that it finishes: C and X, where they are read, and the sums of one row. */
typedef struct row_sources {
    tensor rC, rX; // (VEC,VECTORS,ROWS)
    val sums[GEMM_FMA_BLOCK_MAX / QUAD];
} row_sources;

/* Element j of row r of these. */
static gemm_element element_of(const gemm_fma_config *cfg, const row_sources *from, int columns, int j, int r)
{
    const int vec = cfg->whole ? QUAD : 1;
    gemm_element in = { .product = from->sums[j], .inside = yes() };
    if (cfg->epilogue.c)
        in.c = at(from->rC, j % vec, j / vec, r);
    if (gemm_is_backward(cfg->epilogue.activation))
        in.x = at(from->rX, j % vec, j / vec, r);
    if (cfg->epilogue.gated)
        in.up = from->sums[j + columns];
    return in;
}

/* Finishes some rows of this thread's block, from row i on, and stores them. */
static void store_rows(const gemm_fma_config *cfg, const gemm_values *p, gemm_scalars s, const block_place *b,
                       some_rows rows, tensor acc, int i)
{
    const gemm_epilogue e = cfg->epilogue;
    const int vec = cfg->whole ? QUAD : 1;
    row_sources from = { 0 };
    if (e.c)
        from.rC = load_rows(cfg, p, p->c, p->ldc, ne(s.beta, immf(0)), b, rows);
    if (gemm_is_backward(e.activation))
        from.rX = load_rows(cfg, p, p->x, p->ldx, yes(), b, rows);
    for (int r = 0; r < rows.count && describing(); r++) {
        take_sums(cfg, b->sSums, acc, i + r, from.sums);
        for (int j = 0; j < b->columns; j += vec) {
            val row = add(rows.first, imm64(r + rows_to(cfg, j))), d[QUAD], x[QUAD];
            const int distance = columns_to(cfg, b, j);
            IF(logical_and(lt(row, p->m), gt(b->left, imm(distance)))) {
                val col = add(b->col, imm64(distance)), row_D = gemm_row_of_D(e, p, row);
                for (int q = 0; q < vec; q++) {
                    const gemm_element in = element_of(cfg, &from, b->columns, j + q, r);
                    const gemm_finished out = gemm_finish_at(e, s, p, row, add(col, imm64(q)), in);
                    d[q] = out.d;
                    x[q] = out.x;
                }
                if (e.preactivation)
                    store_vector(p->x, p->ldx, row_D, col, vec, x);
                store_vector(p->d, p->ldd, row_D, col, vec, d);
            }
        }
    }
}

/*
 * Rows of a block that a thread finishes at once: single elements of C and X have registers for their addresses, too.
 */
static int rows_at_once(const gemm_fma_config *cfg, int columns)
{
    const int room = cfg->whole ? 32 : 16; // of elements, where registers are few
    const int loads = columns * (cfg->epilogue.c + gemm_is_backward(cfg->epilogue.activation));
    if (!gemm_fma_is_tight(cfg) || loads * QUAD <= room)
        return QUAD;
    return loads < room ? room / loads : 1;
}

void gemm_fma_store_block(const gemm_fma_config *cfg, const gemm_values *p, val row, val col, tensor acc)
{
    const gemm_scalars scalars = gemm_load_scalars(cfg->epilogue, GEMM_SCALAR_SOURCES(p));
    const block_place b = place_of(cfg, p, row, col);
    const int at_once = rows_at_once(cfg, b.columns);
    for (int i = 0; i < cfg->block_m; i += at_once) {
        val first = add(b.row, imm64(i / QUAD * b.span_m + i % QUAD));
        store_rows(cfg, p, scalars, &b, (some_rows){ first, at_once }, acc, i);
    }
}

void gemm_fma_store_row(const gemm_fma_config *cfg, const gemm_values *p, val tile_row, val tile_col, val i, tensor acc)
{
    const gemm_scalars scalars = gemm_load_scalars(cfg->epilogue, GEMM_SCALAR_SOURCES(p));
    const block_place b = place_of(cfg, p, mul(convert(I64, tile_row), imm64(cfg->tile_m)),
                                   mul(convert(I64, tile_col), imm64(gemm_fma_columns(cfg))));
    val row = add(b.row, convert(I64, add(mul(div(i, imm(QUAD)), imm(b.span_m)), rem(i, imm(QUAD)))));
    store_rows(cfg, p, scalars, &b, (some_rows){ row, 1 }, acc, 0);
}
