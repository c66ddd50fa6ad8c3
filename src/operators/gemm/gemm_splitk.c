/*
 * gemm_splitk.c - K in slices: each is a product of the Hopper kernel, and a second kernel adds them.
 *
 * The slices are products of a batch, with f32 sums in the workspace. Here a thread adds a few columns of a row over
 * all slices, in order, so every run gives the same bits, and applies the epilogue.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"
#include "operators/gemm/gemm_epilogues.h"
#include "operators/gemm/gemm_splitk.h"

enum { COLUMNS = GEMM_SPLITK_COLUMNS };

/* The columns of a row of D that a thread makes. */
typedef struct sum_place {
    val row, first;  // i64
    tensor rSum, rC; // (COLUMNS) of f32
} sum_place;

/* A matrix of (M,N) from this place on. */
static tensor columns_at(val address, ckl_dtype dtype, val ld, const sum_place *at)
{
    val elements = add(mul(at->row, ld), at->first);
    return gmem_tensor(gmem_address(address, dtype, elements), dtype, compact(leaf(COLUMNS)));
}

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

static void add_slices(const gemm_sm90_values *p, sum_place *at)
{
    val bytes = convert(U64, mul(mul(convert(I64, p->m), p->lda), imm(4))); // of a slice
    val start = tensor_address(columns_at(p->a, F32, p->lda, at), coord(0));
    at->rSum = fragment(F32, compact(leaf(COLUMNS)));
    fill(at->rSum, immf(0));
    LOOP_FROM(s, imm(0), p->batch, imm(GEMM_SPLITK_AT_ONCE))
        add_some(p, s, add(start, mul(bytes, convert(U64, s))), bytes, at->rSum);
}

/* Do all columns exist, and are they one vector of C and D, or two of f32? */
static val is_whole(const gemm_sm90_values *p, const sum_place *at)
{
    return le(add(at->first, imm(COLUMNS)), convert(I64, p->n));
}

/* Loads C, from memory, before the slices, which come from L2. */
static void load_C(const gemm_splitk_config *cfg, const gemm_sm90_values *p, sum_place *at)
{
    const gemm_epilogue e = cfg->products.epilogue;
    at->rC = fragment(e.d, compact(leaf(COLUMNS)));
    fill(at->rC, convert(e.d, immf(0)));
    if (e.c && cfg->vec > 1)
        IF(logical_and(is_whole(p, at), ne(p->beta, immf(0))))
            copy(columns_at(p->c, e.d, p->ldc, at), at->rC, 16);
}

static void store_vector(gemm_epilogue e, const gemm_sm90_values *p, const sum_place *at)
{
    tensor rC = at->rC, rD = fragment(e.d, compact(leaf(COLUMNS)));
    tensor gBias = gmem_vector(p->bias, e.d, p->n); // (N)
    const bool placed = gemm_epilogue_find(e.epilogue);
    for (int i = 0; i < COLUMNS; i++) {
        val bias = e.bias ? at_f32(gBias, add(at->first, imm(i))) : immf(0);
        const gemm_element in = { .product = at(at->rSum, i),
                                  .c = at_f32(rC, i),
                                  .bias = bias,
                                  .row = at->row,
                                  .col = placed ? add(at->first, imm(i)) : imm(0) };
        set(rD, i, convert(e.d, gemm_finish(e, (gemm_scalars){ .alpha = p->alpha, .beta = p->beta }, in).d));
    }
    copy(rD, columns_at(p->d, e.d, p->ldd, at), 16);
}

static void store_elements(gemm_epilogue e, const gemm_sm90_values *p, const sum_place *at)
{
    const gemm_values all = { .m = convert(I64, p->m),
                              .n = convert(I64, p->n),
                              .c = p->c,
                              .ldc = p->ldc,
                              .d = p->d,
                              .ldd = p->ldd,
                              .bias = p->bias,
                              .alpha = p->alpha,
                              .beta = p->beta };
    for (int i = 0; i < COLUMNS; i++) {
        val col = add(at->first, imm(i));
        IF(lt(col, all.n))
            gemm_store(e, (gemm_scalars){ .alpha = p->alpha, .beta = p->beta }, &all, at->row, col, at(at->rSum, i),
                       (val){ 0 });
    }
}

static void finish_columns(const gemm_splitk_config *cfg, const gemm_sm90_values *p, const sum_place *at)
{
    gemm_epilogue e = cfg->products.epilogue;
    if (cfg->vec == 1) {
        store_elements(e, p, at);
        return;
    }
    IF(is_whole(p, at)) {
        store_vector(e, p, at);
    }
    ELSE
    {
        store_elements(e, p, at);
    }
}

static void add_products(const gemm_splitk_config *cfg)
{
    launch_bounds(GEMM_SPLITK_THREADS, 0);
    gemm_sm90_values p = params_of(gemm_sm90);
    val vectors = div_up(p.n, COLUMNS); // of a row
    val vector = add(mul(cta_x(), imm(GEMM_SPLITK_THREADS)), thread());
    val row = div(vector, vectors);
    sum_place at = { .row = convert(I64, row),
                     .first = convert(I64, mul(sub(vector, mul(row, vectors)), imm(COLUMNS))) };
    grid_wait();
    launch_dependents();
    IF(lt(row, p.m)) {
        load_C(cfg, &p, &at);
        add_slices(&p, &at);
        finish_columns(cfg, &p, &at);
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
