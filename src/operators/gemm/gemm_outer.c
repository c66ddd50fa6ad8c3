/*
 * gemm_outer.c - outer products, and sums of up to eight of them: writing D is all of the work. For
 * every GPU from sm_80 on.
 *
 * A warp has some rows of D, each lane some vectors of their columns, so that its accesses to C and D are contiguous.
 * All loads are under way together; the products need no tensor cores.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    VECTOR_MAX = 8,
    VECTORS_MAX = GEMM_OUTER_ROWS_MAX * GEMM_OUTER_RUNS_MAX,
    FACTORS_MAX = 2 * GEMM_OUTER_RUNS_MAX // rows of A or B of a thread
};

typedef struct outer_kernel {
    const gemm_outer_config *cfg;
    gemm_values p;
    gemm_scalars scalars;
    val row, col;             // i64: the warp's first row, the lane's first column
    val rows_left, cols_left; // i32: rows and columns of D from there on, as left_from() says
} outer_kernel;

/* Elements from a lane's first column to column e of a run of vectors. */
static int distance_of(const gemm_outer_config *c, int run, int e)
{
    return run * LANES * c->vec + e;
}

/* Of `all` rows or columns those from `first` on, in 32 bits: at least what a thread has, where there are as many. */
static val left_from(val first, val all)
{
    return convert(I32, max(min(sub(all, first), imm64(INT16_MAX)), imm64(0)));
}

/* Where the lane's columns of its rows of C or D begin. */
static void rows_of(const outer_kernel *k, val start, val ld, val rows[])
{
    const ckl_dtype type = k->cfg->epilogue.d;
    val pitch = convert(U64, mul(ld, imm64((int64_t)ckl_dtype_bytes(type))));
    rows[0] = gmem_address(start, type, add(mul(k->row, ld), k->col));
    for (int r = 1; r < k->cfg->rows; r++)
        rows[r] = add(rows[r - 1], pitch);
}

/* The lane's vector of row r of C or D. */
static vector_at vector_of(const outer_kernel *k, const val rows[], int r, int run)
{
    const int distance = distance_of(k->cfg, run, 0);
    return (vector_at){ .address = rows[r],
                        .offset = distance * (int)ckl_dtype_bytes(k->cfg->epilogue.d),
                        .guard = logical_and(gt(k->rows_left, imm(r)), gt(k->cols_left, imm(distance))) };
}

/* The memory of C and D, of which only the type matters here. */
static tensor memory_of(const outer_kernel *k, val address)
{
    return gmem_tensor(address, k->cfg->epilogue.d, compact(leaf(1)));
}

/* (VEC,RUNS,ROWS); zeros where beta is 0. */
static tensor load_C(const outer_kernel *k)
{
    const gemm_outer_config *c = k->cfg;
    tensor rC = fragment(F32, compact(shape(c->vec, c->runs, c->rows)));
    vector_at vectors[VECTORS_MAX];
    val rows[GEMM_OUTER_ROWS_MAX];
    rows_of(k, k->p.c, k->p.ldc, rows);
    fill(rC, immf(0));
    for (int i = 0; i < c->runs * c->rows; i++) {
        vectors[i] = vector_of(k, rows, i / c->runs, i % c->runs);
        vectors[i].guard = logical_and(vectors[i].guard, ne(k->scalars.beta, immf(0)));
    }
    vectors_load(vectors, c->runs * c->rows, c->vec, memory_of(k, k->p.c), rC.regs, 0);
    return rC;
}

/* (DEPTH,COUNT): the warp's rows of A, or those of B for the lane's columns; of rows beyond the matrix the last one. */
static tensor load_factors(const outer_kernel *k, char matrix)
{
    const gemm_outer_config *c = k->cfg;
    const ckl_dtype type = c->epilogue.ab;
    const bool is_a = matrix == 'a';
    const int count = is_a ? c->rows : c->vec * c->runs, vectors = c->depth / c->vec_k;
    const int bytes = (int)ckl_dtype_bytes(type);
    val start = is_a ? k->p.a : k->p.b, ld = is_a ? k->p.lda : k->p.ldb;
    val last = sub(is_a ? k->p.m : k->p.n, imm64(1)), pitch = mul(ld, imm64(bytes));
    val first = min(is_a ? k->row : k->col, last);
    val base = gmem_address(start, type, mul(first, ld)), left = left_from(first, last);
    tensor r = fragment(F32, compact(shape(c->depth, count)));
    vector_at at[FACTORS_MAX * GEMM_OUTER_DEPTH_MAX];
    for (int i = 0; i < count; i++) {
        const int distance = is_a ? i : distance_of(c, i / c->vec, i % c->vec);
        val row = add(base, convert(U64, mul(convert(I64, min(imm(distance), left)), pitch)));
        for (int v = 0; v < vectors; v++)
            at[i * vectors + v] = (vector_at){ .address = row, .offset = v * c->vec_k * bytes, .guard = yes() };
    }
    vectors_load(at, count * vectors, c->vec_k, gmem_tensor(start, type, compact(leaf(1))), r.regs, 0);
    return r;
}

static void store_vector(const outer_kernel *k, const val rows[], int r, int run, tensor rA, tensor rB, tensor rC)
{
    const gemm_outer_config *c = k->cfg;
    val out[VECTOR_MAX], row = min(add(k->row, imm64(r)), sub(k->p.m, imm64(1)));
    for (int e = 0; e < c->vec; e++) {
        gemm_element in = { .product = mul(at(rA, 0, r), at(rB, 0, run * c->vec + e)), .inside = yes() };
        for (int l = 1; l < c->depth; l++)
            in.product = fma(at(rA, l, r), at(rB, l, run * c->vec + e), in.product);
        if (c->epilogue.c)
            in.c = at(rC, e, run, r);
        val col = min(add(k->col, imm64(distance_of(c, run, e))), sub(k->p.n, imm64(1)));
        out[e] = gemm_finish_at(c->epilogue, k->scalars, &k->p, row, col, in).d;
    }
    const vector_at to = vector_of(k, rows, r, run);
    vector_store(&to, c->vec, out, memory_of(k, k->p.d));
}

void gemm_outer(const void *config, int kernel)
{
    const gemm_outer_config *c = config;
    (void)kernel;
    launch_bounds(GEMM_OUTER_WARPS * LANES, 0);
    const gemm_values all = params_of(gemm);
    const int tile_m = GEMM_OUTER_WARPS * c->rows, tile_n = LANES * c->vec * c->runs;
    val along_n = convert(U32, div_up(all.n, tile_n));
    val along_m = convert(U32, div_up(all.m, tile_m));
    val rest = div(cta_x(), along_n);
    prefetch_early(32, all.early, all.early_bytes, 2);
    grid_wait();
    launch_dependents();
    outer_kernel k = { .cfg = c, .p = gemm_product_of(c->epilogue, 0, &all, div(rest, along_m)) };
    k.row = add(mul(convert(I64, rem(rest, along_m)), imm(tile_m)), convert(I64, mul(warp(), imm(c->rows))));
    k.col = add(mul(convert(I64, rem(cta_x(), along_n)), imm(tile_n)), convert(I64, mul(lane(), imm(c->vec))));
    k.rows_left = left_from(k.row, k.p.m);
    k.cols_left = left_from(k.col, k.p.n);
    k.scalars = gemm_load_scalars(c->epilogue, GEMM_SCALAR_SOURCES(&k.p));
    tensor rC = c->epilogue.c ? load_C(&k) : (tensor){ 0 };
    tensor rA = load_factors(&k, 'a'), rB = load_factors(&k, 'b');
    val rows[GEMM_OUTER_ROWS_MAX];
    rows_of(&k, k.p.d, k.p.ldd, rows);
    for (int i = 0; i < c->runs * c->rows && describing(); i++)
        store_vector(&k, rows, i / c->runs, i % c->runs, rA, rB, rC);
}
