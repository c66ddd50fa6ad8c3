/*
 * gemm_shallow.c - products of few K of 16-bit floats, in rows that begin anywhere: writing D is most of the work. For
 * every GPU from sm_80 on.
 *
 * A CTA copies all of K of its rows of A and B at once, as the aligned 16-byte chunks that hold them; zeros arrive
 * beyond the end of K. A lane makes each word of a row from the two that hold it. Rows of B are dealt out to the
 * columns of mma.sync so that a lane gets neighbouring columns of D, a vector: it goes from registers to memory as it
 * is.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    THREADS = GEMM_SHALLOW_WARPS * LANES,
    CHUNK = 16,      // bytes of a copy
    LINE = 8,        // rows of an 8x8 matrix: each four lanes have one
    ATOM_M = 16,     // rows of D of mma.sync
    STEP_BYTES = 32, // of K
    LANE_ROWS_MAX = 2 * GEMM_SHALLOW_ATOMS_MAX,
    VECTORS_MAX = 2 * LANE_ROWS_MAX,
};

/* The rows of A or B of a CTA. */
typedef struct shallow_rows {
    int count;
    val pitch; // i64: bytes between rows
    val start; // address of the first one
    val there; // u32: how many of them exist
    val at;    // where they are in shared memory
} shallow_rows;

/* What a lane has of D: some columns of each of its rows, which are 8 apart. */
typedef struct shallow_place {
    int rows;
    val there[LANE_ROWS_MAX];               // is the row in D?
    val row[LANE_ROWS_MAX], col;            // i64: the row, or the last one; the lane's first column
    val left;                               // i32: columns from there on
    val c[LANE_ROWS_MAX], d[LANE_ROWS_MAX]; // addresses of the first column
} shallow_place;

typedef struct shallow_kernel {
    const gemm_shallow_config *cfg;
    gemm_values p;
    gemm_scalars scalars;
    tiled_mma mma;
    shallow_rows A, B;
    val row_A, row_B; // u32: this warp's first among the rows of the CTA
    shallow_place place;
} shallow_kernel;

/* Chunks of a row: one more than K has, as it may begin inside one. */
static int chunks_of_row(const gemm_shallow_config *c)
{
    return c->steps * STEP_BYTES / CHUNK + 1;
}

int64_t gemm_shallow_smem(const gemm_shallow_config *c)
{
    return (int64_t)(c->tile_m + c->tile_n) * chunks_of_row(c) * CHUNK;
}

/* Neighbouring columns of D that a lane gets: a vector, or the two of an atom. */
static int run_of_lane(const gemm_shallow_config *c)
{
    return c->vec > 2 ? c->vec : 2;
}

int gemm_shallow_columns(const gemm_shallow_config *c)
{
    return 4 * run_of_lane(c);
}

static int rows_of_warp(const gemm_shallow_config *c)
{
    return c->tile_m * c->warps_n / GEMM_SHALLOW_WARPS;
}

static shallow_rows rows_of(const gemm_values *p, char matrix, val first, int count, val at)
{
    const bool is_a = matrix == 'a';
    shallow_rows x = { .count = count, .at = at };
    x.pitch = mul(is_a ? p->lda : p->ldb, imm(2));
    x.start = add(is_a ? p->a : p->b, convert(U64, mul(first, x.pitch)));
    x.there = convert(U32, min(sub(is_a ? p->m : p->n, first), imm64(count)));
    return x;
}

/* Bytes before a row in its first chunk. */
static val phase_of(const shallow_rows *x, val row)
{
    val start = add(convert(U32, x->start), mul(row, convert(U32, x->pitch)));
    return bit_and(start, imm_as(U32, CHUNK - 1));
}

/* Copies all rows; those beyond the matrix are zeros. Neighbouring threads copy neighbouring chunks. */
static void load_rows(const gemm_shallow_config *c, const shallow_rows *x, val k)
{
    const int chunks = chunks_of_row(c);
    LOOP_FROM(number, thread(), imm(x->count * chunks), imm(THREADS)) {
        val row = div(number, imm(chunks)), offset = mul(rem(number, imm(chunks)), imm(CHUNK));
        val start = add(x->start, convert(U64, mul(convert(I64, row), x->pitch)));
        val end = add(mul(convert(U32, k), imm(2)), phase_of(x, row));
        val left = sub(min(max(end, offset), add(offset, imm(CHUNK))), offset);
        val from = add(bit_and(start, imm_as(U64, -CHUNK)), convert(U64, offset));
        cp_async(add(x->at, mul(number, imm(CHUNK))), from, CHUNK, select(lt(row, x->there), left, imm_as(U32, 0)));
    }
}

/* This lane's words of a row, two of each step. */
static void read_row(const gemm_shallow_config *c, const shallow_rows *x, val row, val pairs[])
{
    val phase = phase_of(x, row);
    val even = eq(bit_and(phase, imm(2)), imm(0));
    val selector = select(even, imm_as(U32, 0x3210), imm_as(U32, 0x5432));
    val first = add(mul(row, imm(chunks_of_row(c) * CHUNK)), bit_and(phase, imm_as(U32, CHUNK - 4)));
    val address = add(add(x->at, first), mul(rem(lane(), imm(4)), imm(4)));
    tensor sWords = smem_view(address, U32, make_layout(shape(2, 2 * c->steps), stride(1, 4))); // (NEAR,WORDS)
    for (int w = 0; w < 2 * c->steps; w++)
        pairs[w] = permute_bytes(at(sWords, 0, w), at(sWords, 1, w), selector);
}

/* The words of A's rows of this warp: (WORDS,MMA_M,1) of each step. */
static void read_A(const shallow_kernel *k, tensor tA[])
{
    const gemm_shallow_config *c = k->cfg;
    val pairs[2 * GEMM_SHALLOW_STEPS_MAX];
    for (int s = 0; s < c->steps; s++)
        tA[s] = fragment_A_words(&k->mma, rows_of_warp(c), ATOM_M);
    UNROLL(line, rows_of_warp(c) / LINE) {
        read_row(c, &k->A, add(k->row_A, add(div(lane(), imm(4)), imm(line * LINE))), pairs);
        for (int w = 0; w < 2 * c->steps; w++)
            set(tA[w / 2], coord(line % 2 + 2 * (w % 2), line / 2, 0), pairs[w]);
    }
}

/* The same of the rows of B for some columns: line j of them has those that are two of a lane's run. */
static void read_B(const shallow_kernel *k, int first, tensor tB[])
{
    const gemm_shallow_config *c = k->cfg;
    const int run = run_of_lane(c);
    val pairs[2 * GEMM_SHALLOW_STEPS_MAX], line = div(lane(), imm(4));
    val row = add(k->row_B, add(mul(div(line, imm(2)), imm(run)), add(rem(line, imm(2)), imm(first))));
    for (int s = 0; s < c->steps; s++)
        tB[s] = fragment_B_words(&k->mma, LINE * run / 2, ATOM_M);
    UNROLL(j, run / 2) {
        read_row(c, &k->B, add(row, imm(2 * j)), pairs);
        for (int w = 0; w < 2 * c->steps; w++)
            set(tB[w / 2], coord(w % 2, j, 0), pairs[w]);
    }
}

/* Where this lane's first columns of C and D are, in the rows that it has. */
static shallow_place place_of(const shallow_kernel *k, val row, val col)
{
    const gemm_shallow_config *c = k->cfg;
    shallow_place x = { .rows = rows_of_warp(c) / LINE };
    x.col = add(col, convert(I64, mul(rem(lane(), imm(4)), imm(run_of_lane(c)))));
    x.left = convert(I32, max(min(sub(k->p.n, x.col), imm64(c->tile_n)), imm64(0)));
    for (int r = 0; r < x.rows; r++) {
        val at = add(row, convert(I64, add(div(lane(), imm(4)), imm(r * LINE))));
        x.there[r] = lt(at, k->p.m);
        x.row[r] = min(at, sub(k->p.m, imm64(1)));
        x.c[r] = gmem_address(k->p.c, c->epilogue.d, add(mul(at, k->p.ldc), x.col));
        x.d[r] = gmem_address(k->p.d, c->epilogue.d, add(mul(at, k->p.ldd), x.col));
    }
    return x;
}

/* The vector of row r that begins so many columns from the lane's first. */
static vector_at vector_of(const shallow_kernel *k, const val address[], int r, int columns)
{
    return (vector_at){ .address = address[r],
                        .offset = columns * (int)ckl_dtype_bytes(k->cfg->epilogue.d),
                        .guard = logical_and(k->place.there[r], gt(k->place.left, imm(columns))) };
}

/* The memory of C and D, of which only the type matters here. */
static tensor memory_of(const shallow_kernel *k, val address)
{
    return gmem_tensor(address, k->cfg->epilogue.d, compact(leaf(1)));
}

/* C of some columns, (RUN,ROWS); zeros where beta is 0. */
static tensor load_C(const shallow_kernel *k, int first)
{
    const int vec = k->cfg->vec, run = run_of_lane(k->cfg), count = k->place.rows * run / vec;
    tensor rC = fragment(F32, compact(shape(run, k->place.rows)));
    vector_at vectors[VECTORS_MAX];
    fill(rC, immf(0));
    for (int i = 0; i < count; i++) {
        vectors[i] = vector_of(k, k->place.c, i * vec / run, first + i * vec % run);
        vectors[i].guard = logical_and(vectors[i].guard, ne(k->scalars.beta, immf(0)));
    }
    vectors_load(vectors, count, vec, memory_of(k, k->p.c), rC.regs, 0);
    return rC;
}

/* Element (r,c) of what the lane has of some columns, with the epilogue applied. */
static val finish(const shallow_kernel *k, int first, int r, int c, tensor acc, tensor rC)
{
    const int atom = r / 2 + k->place.rows / 2 * (c / 2); // of (MMA_M,MMA_N)
    gemm_element in = { .product = at(acc, 4 * atom + 2 * (r % 2) + c % 2), .inside = yes() };
    if (k->cfg->epilogue.c)
        in.c = at(rC, c, r);
    val col = min(add(k->place.col, imm(first + c)), sub(k->p.n, imm64(1)));
    return gemm_finish_at(k->cfg->epilogue, k->scalars, &k->p, k->place.row[r], col, in).d;
}

static void store(const shallow_kernel *k, int first, tensor acc, tensor rC)
{
    const int vec = k->cfg->vec, run = run_of_lane(k->cfg);
    for (int r = 0; r < k->place.rows; r++)
        for (int from = 0; from < run && describing(); from += vec) {
            val out[CHUNK / 2];
            for (int e = 0; e < vec; e++)
                out[e] = finish(k, first, r, from + e, acc, rC);
            const vector_at to = vector_of(k, k->place.d, r, first + from);
            vector_store(&to, vec, out, memory_of(k, k->p.d));
        }
}

/* This warp's part of the tile, some columns at a time. */
static void multiply(const shallow_kernel *k, const tensor rC[])
{
    const gemm_shallow_config *c = k->cfg;
    const int columns = gemm_shallow_columns(c), parts = c->tile_n / c->warps_n / columns;
    tensor tA[GEMM_SHALLOW_STEPS_MAX], tB[GEMM_SHALLOW_STEPS_MAX];
    read_A(k, tA);
    UNROLL(i, parts) {
        tensor acc = fragment_C(&k->mma, rows_of_warp(c), columns); // (MMA,MMA_M,MMA_N)
        fill(acc, immf(0));
        read_B(k, i * columns, tB);
        for (int s = 0; s < c->steps; s++)
            gemm(&k->mma, tA[s], tB[s], acc, yes());
        store(k, i * columns, acc, rC[i]);
    }
}

void gemm_shallow(const void *config, int kernel)
{
    const gemm_shallow_config *c = config;
    const int columns = gemm_shallow_columns(c), parts = c->tile_n / c->warps_n / columns;
    (void)kernel;
    launch_bounds(THREADS, 0);
    const gemm_values all = params_of(gemm);
    val along_n = convert(U32, div_up(all.n, c->tile_n));
    val along_m = convert(U32, div_up(all.m, c->tile_m));
    val rest = div(cta_x(), along_n);
    val row = mul(convert(I64, rem(rest, along_m)), imm(c->tile_m));
    val col = mul(convert(I64, rem(cta_x(), along_n)), imm(c->tile_n));
    grid_wait();
    launch_dependents();
    shallow_kernel k = { .cfg = c, .p = gemm_product_of(c->epilogue, 0, &all, div(rest, along_m)) };
    val smem = smem_address(smem_alloc("rows", gemm_shallow_smem(c), CHUNK));
    k.A = rows_of(&k.p, 'a', row, c->tile_m, smem);
    k.B = rows_of(&k.p, 'b', col, c->tile_n, add(smem, imm(c->tile_m * chunks_of_row(c) * CHUNK)));
    k.row_A = mul(div(warp(), imm(c->warps_n)), imm(rows_of_warp(c)));
    k.row_B = mul(rem(warp(), imm(c->warps_n)), imm(c->tile_n / c->warps_n));
    k.place = place_of(&k, add(row, convert(I64, k.row_A)), add(col, convert(I64, k.row_B)));
    k.mma = make_tiled_mma(mma_sync_atom(c->epilogue.ab), 1, 1);
    load_rows(c, &k.A, k.p.k);
    load_rows(c, &k.B, k.p.k);
    cp_async_commit();
    k.scalars = gemm_load_scalars(c->epilogue, GEMM_SCALAR_SOURCES(&k.p));
    tensor rC[GEMM_SHALLOW_PARTS_MAX] = { 0 };
    for (int i = 0; i < parts && c->epilogue.c && describing(); i++)
        rC[i] = load_C(&k, i * columns);
    cp_async_wait(0);
    cta_sync();
    multiply(&k, rC);
}
