/*
 * gemm_shallow.c - products of few K of 16-bit floats, in rows that begin anywhere: writing D is most of the work. For
 * every GPU from sm_80 on.
 *
 * A CTA copies all of K of its rows of A and B at once, as the aligned 16-byte chunks that hold them; zeros arrive
 * beyond the end of K. A lane makes each word of a row from the two that hold it. Rows of B are dealt out to the
 * columns of mma.sync so that a lane gets neighbouring columns of D, a vector: it goes from registers to memory as it is.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    LANES = 32,
    THREADS = GEMM_SHALLOW_WARPS * LANES,
    CHUNK = 16,     // bytes of a copy
    LINE = 8,       // rows of an 8x8 matrix: each four lanes have one
    ATOM_M = 16,    // rows of D of mma.sync
    STEP_BYTES = 32 // of K
};

/* The rows of A or B of a CTA. */
typedef struct shallow_rows {
    int count;
    val pitch; // i64: bytes between rows
    val start; // address of the first one
    val there; // u32: how many of them exist
    val at;    // where they are in shared memory
} shallow_rows;

typedef struct shallow_kernel {
    const gemm_shallow_config *cfg;
    gemm_values p;
    gemm_scalars scalars;
    tiled_mma mma;
    shallow_rows A, B;
    val row, col;     // i64: where this warp's part of the tile begins in D
    val row_A, row_B; // u32: and among the rows of the CTA
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

/* The address of a row, and the bytes before it in its first chunk. */
static val start_of(const shallow_rows *x, val row)
{
    return add(x->start, convert(U64, mul(convert(I64, row), x->pitch)));
}

static val phase_of(val start)
{
    return bit_and(convert(U32, start), imm_as(U32, CHUNK - 1));
}

/* Copies all rows; those beyond the matrix are zeros. Neighbouring threads copy neighbouring chunks. */
static void load_rows(const gemm_shallow_config *c, const shallow_rows *x, val k)
{
    const int chunks = chunks_of_row(c);
    LOOP_FROM(number, thread(), imm(x->count * chunks), imm(THREADS)) {
        val row = div(number, imm(chunks)), offset = mul(rem(number, imm(chunks)), imm(CHUNK));
        val start = start_of(x, row), end = add(mul(convert(U32, k), imm(2)), phase_of(start));
        val left = sub(min(max(end, offset), add(offset, imm(CHUNK))), offset);
        val from = add(bit_and(start, imm_as(U64, -CHUNK)), convert(U64, offset));
        cp_async(add(x->at, mul(number, imm(CHUNK))), from, CHUNK, select(lt(row, x->there), left, imm_as(U32, 0)));
    }
}

/* This lane's words of a row, two of each step. */
static void read_row(const gemm_shallow_config *c, const shallow_rows *x, val row, val pairs[])
{
    val phase = phase_of(start_of(x, row));
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
    for (int line = 0; line < rows_of_warp(c) / LINE && !ir_failed(); line++) {
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
    for (int j = 0; j < run / 2 && !ir_failed(); j++) {
        read_row(c, &k->B, add(row, imm(2 * j)), pairs);
        for (int w = 0; w < 2 * c->steps; w++)
            set(tB[w / 2], coord(w % 2, j, 0), pairs[w]);
    }
}

/* The vectors of C or D that this lane has of some columns: those of each row, rows of 8 in turn. */
typedef struct shallow_vectors {
    int rows, count;                     // of the lane; vectors of a row
    val row[2 * GEMM_SHALLOW_ATOMS_MAX]; // i64
    val col;                             // i64, of the first
} shallow_vectors;

static shallow_vectors vectors_of(const shallow_kernel *k, int first)
{
    const int run = run_of_lane(k->cfg);
    shallow_vectors v = { .rows = rows_of_warp(k->cfg) / LINE, .count = run / k->cfg->vec };
    v.col = add(k->col, convert(I64, add(mul(rem(lane(), imm(4)), imm(run)), imm(first))));
    for (int i = 0; i < v.rows; i++)
        v.row[i] = add(k->row, convert(I64, add(div(lane(), imm(4)), imm(i * LINE))));
    return v;
}

/* Vector i of row r of a matrix of D's type. */
static vector_at vector_of(const shallow_kernel *k, const shallow_vectors *v, tensor gX, int r, int i)
{
    val col = add(v->col, imm(i * k->cfg->vec));
    return (vector_at){ .address = tensor_address(gX, coord(v->row[r], col)),
                        .guard = logical_and(lt(v->row[r], k->p.m), lt(col, k->p.n)) };
}

static tensor matrix_of(const shallow_kernel *k, val address, val ld)
{
    return gmem_tensor(address, k->cfg->epilogue.d, make_layout(shape(k->p.m, k->p.n), stride(ld, 1))); // (M,N)
}

/* C of some columns, (RUN,ROWS); zeros where beta is 0. */
static tensor load_C(const shallow_kernel *k, int first)
{
    const shallow_vectors v = vectors_of(k, first);
    const int vec = k->cfg->vec;
    tensor gC = matrix_of(k, k->p.c, k->p.ldc), rC = fragment(F32, compact(shape(run_of_lane(k->cfg), v.rows)));
    fill(rC, immf(0));
    vector_at vectors[2 * GEMM_SHALLOW_ATOMS_MAX * 2];
    for (int i = 0; i < v.rows * v.count; i++) {
        vectors[i] = vector_of(k, &v, gC, i / v.count, i % v.count);
        vectors[i].guard = logical_and(vectors[i].guard, ne(k->scalars.beta, immf(0)));
    }
    vectors_load(vectors, v.rows * v.count, vec, gC, rC.regs, 0);
    return rC;
}

/* Finishes the sums of some columns and stores them. */
static void store(const shallow_kernel *k, int first, tensor acc, tensor rC)
{
    const gemm_epilogue e = k->cfg->epilogue;
    const shallow_vectors v = vectors_of(k, first);
    const int vec = k->cfg->vec;
    tensor gD = matrix_of(k, k->p.d, k->p.ldd);
    for (int i = 0; i < v.rows * v.count && !ir_failed(); i++) {
        const int r = i / v.count, from = i % v.count * vec;
        vector_at to = vector_of(k, &v, gD, r, i % v.count);
        IF(to.guard) {
            val out[8];
            for (int x = 0; x < vec; x++) {
                const int c = from + x, atom = r / 2 + v.rows / 2 * (c / 2); // of (MMA_M,MMA_N)
                gemm_element in = { .product = at(acc, 4 * atom + 2 * (r % 2) + c % 2), .inside = yes() };
                if (e.c)
                    in.c = at(rC, c, r);
                out[x] = gemm_finish_at(e, k->scalars, &k->p, v.row[r], add(v.col, imm(c)), in).d;
            }
            to.guard = yes();
            vector_store(&to, vec, out, gD);
        }
    }
}

/* This warp's part of the tile, some columns at a time. */
static void multiply(const shallow_kernel *k, const tensor rC[])
{
    const gemm_shallow_config *c = k->cfg;
    const int columns = gemm_shallow_columns(c), parts = c->tile_n / c->warps_n / columns;
    tensor tA[GEMM_SHALLOW_STEPS_MAX], tB[GEMM_SHALLOW_STEPS_MAX];
    read_A(k, tA);
    for (int i = 0; i < parts && !ir_failed(); i++) {
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
    val along_n = convert(U32, div(add(all.n, imm(c->tile_n - 1)), imm(c->tile_n)));
    val along_m = convert(U32, div(add(all.m, imm(c->tile_m - 1)), imm(c->tile_m)));
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
    k.row = add(row, convert(I64, k.row_A));
    k.col = add(col, convert(I64, k.row_B));
    k.mma =
        make_tiled_mma(c->epilogue.ab == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 1, 1);
    load_rows(c, &k.A, k.p.k);
    load_rows(c, &k.B, k.p.k);
    cp_async_commit();
    k.scalars = gemm_load_scalars(c->epilogue, GEMM_SCALAR_SOURCES(&k.p));
    tensor rC[GEMM_SHALLOW_PARTS_MAX] = { 0 };
    for (int i = 0; i < parts && c->epilogue.c && !ir_failed(); i++)
        rC[i] = load_C(&k, i * columns);
    cp_async_wait(0);
    cta_sync();
    multiply(&k, rC);
}
