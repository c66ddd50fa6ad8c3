/*
 * gemm_splitk.c - K in slices: each is a product of the Hopper kernel, and a second kernel adds them.
 *
 * The slices are products of a batch, with f32 sums in the workspace. Here a thread adds a few columns of a row over
 * all slices, in order, so every run gives the same bits, and applies the epilogue.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"
#include "operators/gemm/gemm_splitk.h"

enum { COLUMNS = GEMM_SPLITK_COLUMNS };

/* The columns of a row of D that a thread makes, and its accesses to C and D. */
typedef struct sum_place {
    gemm_epilogue e;
    val row, first; // i64
    int vec;        // elements of an access
} sum_place;

/* Adds some slices from `first` on: all loads come before the first addition. */
static void add_some(const gemm_sm90_values *p, val first, val address, val bytes, tensor rSum)
{
    tensor rPart[GEMM_SPLITK_AT_ONCE];
    for (int s = 0; s < GEMM_SPLITK_AT_ONCE; s++) {
        rPart[s] = fragment(F32, compact(leaf(COLUMNS)));
        fill(rPart[s], immf(0));
        IF(lt(add(first, imm(s)), p->batch))
            copy(gmem_tensor(add(address, mul(bytes, imm(s))), F32, compact(leaf(COLUMNS))), rPart[s], 16);
    }
    for (int s = 0; s < GEMM_SPLITK_AT_ONCE; s++)
        for (int i = 0; i < COLUMNS; i++)
            set(rSum, i, add(at(rSum, i), at(rPart[s], i)));
}

/* (COLUMNS) */
static tensor add_slices(const gemm_sm90_values *p, const sum_place *at)
{
    val bytes = convert(U64, mul(mul(convert(I64, p->m), p->lda), imm(4))); // of a slice
    val start = gmem_address(p->a, F32, add(mul(at->row, p->lda), at->first));
    tensor rSum = fragment(F32, compact(leaf(COLUMNS)));
    fill(rSum, immf(0));
    LOOP_FROM(s, imm(0), p->batch, imm(GEMM_SPLITK_AT_ONCE))
        add_some(p, s, add(start, mul(bytes, convert(U64, s))), bytes, rSum);
    return rSum;
}

/* A vector of C or D from column j on. */
static tensor columns_at(const sum_place *at, val start, val ld, int j)
{
    val elements = add(add(mul(at->row, ld), at->first), imm64(j));
    return gmem_tensor(gmem_address(start, at->e.d, elements), at->e.d, compact(leaf(at->vec)));
}

static val exists(const gemm_sm90_values *p, const sum_place *at, int j)
{
    return lt(add(at->first, imm(j)), convert(I64, p->n));
}

/* C, from memory, before the slices, which come from L2; zeros where beta is 0. (COLUMNS) */
static tensor load_C(const gemm_sm90_values *p, const sum_place *at)
{
    tensor rC = fragment(at->e.d, compact(leaf(COLUMNS)));
    fill(rC, convert(at->e.d, immf(0)));
    for (int j = 0; at->e.c && j < COLUMNS; j += at->vec)
        IF(logical_and(exists(p, at, j), ne(p->beta, immf(0))))
            copy(columns_at(at, p->c, p->ldc, j), local_tile(rC, leaf(at->vec), coord(j / at->vec)), 16);
    return rC;
}

static void store_columns(const gemm_sm90_values *p, const sum_place *at, tensor rSum, tensor rC)
{
    const gemm_values all = { .m = convert(I64, p->m), .n = convert(I64, p->n), .bias = p->bias };
    const gemm_scalars scalars = { .alpha = p->alpha, .beta = p->beta };
    tensor rD = fragment(at->e.d, compact(leaf(COLUMNS)));
    for (int j = 0; j < COLUMNS; j++) {
        val col = min(add(at->first, imm(j)), sub(all.n, imm64(1)));
        const gemm_element in = { .product = at(rSum, j), .c = at_f32(rC, j) };
        set(rD, j, convert(at->e.d, gemm_finish_at(at->e, scalars, &all, at->row, col, in).d));
    }
    for (int j = 0; j < COLUMNS; j += at->vec)
        IF(exists(p, at, j))
            copy(local_tile(rD, leaf(at->vec), coord(j / at->vec)), columns_at(at, p->d, p->ldd, j), 16);
}

static void add_products(const gemm_splitk_config *cfg)
{
    launch_bounds(GEMM_SPLITK_THREADS, 0);
    gemm_sm90_values p = params_of(gemm_sm90);
    val vectors = div_up(p.n, COLUMNS); // of a row
    val vector = add(mul(cta_x(), imm(GEMM_SPLITK_THREADS)), thread());
    val row = div(vector, vectors);
    const sum_place at = { .e = cfg->products.epilogue,
                           .row = convert(I64, row),
                           .first = convert(I64, mul(sub(vector, mul(row, vectors)), imm(COLUMNS))),
                           .vec = gemm_splitk_vector(cfg) };
    grid_wait();
    launch_dependents();
    IF(lt(row, p.m)) {
        tensor rC = load_C(&p, &at), rSum = add_slices(&p, &at);
        store_columns(&p, &at, rSum, rC);
    }
}

void gemm_splitk(const void *config, int kernel)
{
    const gemm_splitk_config *cfg = config;
    if (kernel == 1) {
        add_products(cfg);
        return;
    }
    const gemm_sm90_config products = gemm_splitk_products(cfg);
    gemm_sm90(&products, 0);
}
