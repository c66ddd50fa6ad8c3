/* gemm_naive.c - one thread computes one element of D: the first rung of the ladder, for any type, size, alignment. */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

/* The address of element l of row i of A, or of column i of B. */
static val address_of(gemm_epilogue e, char matrix, const gemm_values *p, val i, val l)
{
    const bool is_a = matrix == 'a', k_major = gemm_k_major(e.layout, matrix);
    val row = k_major ? i : l, col = k_major ? l : i;
    if (is_a)
        row = gemm_row_of_A(e, p, row);
    if (matrix == 'b' && e.b == CKL_U8)
        col = div(col, imm(2));
    val element = add(mul(row, is_a ? p->lda : p->ldb), col);
    return gmem_address(is_a ? p->a : p->b, gemm_type_of(&e, matrix), element);
}

/* 4-bit integer l of the two in a byte, low bits first. */
static val nibble_of(val byte, val l)
{
    val shift = mul(bit_and(convert(U32, l), imm(1)), imm(4));
    val bits = bit_and(shift_right(convert(U32, byte), shift), imm(15));
    return convert(F32, sub(convert(I32, bits), imm_as(I32, GEMM_NIBBLE_ZERO)));
}

/* An element of A or B as a factor: tf32 without the low bits of its fraction, i8 as an integer. */
static val factor(gemm_epilogue e, char matrix, val address, val l)
{
    const ckl_dtype type = gemm_type_of(&e, matrix);
    const bool f8 = gemm_is_f8(type);
    val x = at(gmem_tensor(address, f8 ? CKL_U8 : type, compact(leaf(1))), 0);
    if (f8)
        return gemm_f32_of_f8(type, x);
    if (type == CKL_U8)
        return nibble_of(x, l);
    if (type == CKL_I8) {
        val whole = convert(I32, bitcast(CKL_I16, x)); // sign-extended, as it was loaded
        return e.ab == CKL_I8 ? whole : convert(F32, whole);
    }
    if (e.math == CKL_GEMM_TF32)
        return bitcast(F32, bit_and(bitcast(U32, x), imm_as(U32, 0xffffe000)));
    return convert(F32, x);
}

/* The group of row i: the last one that begins at or before it. */
static val group_of_row(const gemm_values *all, val i)
{
    val group = variable(U32, imm(0));
    LOOP_FROM(g, imm(1), all->groups, imm(1))
        assign(group, select(le(gemm_first_row(all, g), i), g, group));
    return group;
}

/* Element (i,j) of D; A has so many rows, p's may be fewer. */
static void compute_element(const gemm_naive_config *cfg, const gemm_values *p, val i, val j, val rows)
{
    const gemm_epilogue e = cfg->epilogue;
    ir_type sums = e.ab == CKL_I8 ? I32 : F32;
    val sum = variable(sums, convert(sums, imm(0))), up = variable(sums, convert(sums, imm(0)));
    const bool scaled = gemm_has_block_scales(e.scale_b);
    val partial = scaled ? variable(F32, immf(0)) : sum; // of a block of K
    LOOP(l, p->k) {
        val a = factor(e, 'a', address_of(e, 'a', p, i, l), l);
        val b = factor(e, 'b', address_of(e, 'b', p, j, l), l);
        if (scaled) {
            assign(partial, fma(a, b, partial));
            val next = add(l, imm_as(l.type, 1));
            IF(logical_or(eq(rem(next, imm(gemm_block_k(&e))), imm_as(l.type, 0)), eq(next, convert(l.type, p->k)))) {
                val block = div(l, imm(gemm_block_k(&e))), scale_a = gemm_block_scale(e, 'a', p, i, rows, block);
                val scale_b = gemm_block_scale(e, 'b', p, j, p->n, block);
                assign(sum, fma(partial, mul(scale_a, scale_b), sum));
                assign(partial, immf(0));
            }
        } else
            assign(sum, sums == F32 ? fma(a, b, sum) : add(mul(a, b), sum));
        if (e.gated) {
            b = factor(e, 'b', address_of(e, 'b', p, add(j, p->n), l), l);
            assign(up, sums == F32 ? fma(a, b, up) : add(mul(a, b), up));
        }
    }
    const gemm_scalars scalars = gemm_load_scalars(e, GEMM_SCALAR_SOURCES(p));
    gemm_store(e, scalars, p, i, j, sum, up);
    gemm_leave_amax(e, scalars, p->amax, false);
}

void gemm_naive(const void *config, int kernel)
{
    const gemm_naive_config *cfg = config;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
    gemm_values all = params_of(gemm);

    val element = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    val count = mul(all.m, all.n);
    IF(lt(element, mul(all.batch, count))) {
        if (cfg->grouped == GEMM_GROUPED_M) {
            val row = div(element, all.n), group = group_of_row(&all, row);
            const gemm_values p = gemm_group_of(cfg->epilogue, &all, group);
            val i = sub(row, gemm_first_row(&all, group));
            IF(logical_and(ge(i, imm64(0)), lt(i, p.m)))
                compute_element(cfg, &p, i, rem(element, all.n), all.m);
        } else {
            const gemm_values p = gemm_product_of(cfg->epilogue, cfg->grouped, &all, div(element, count));
            val within = rem(element, count), i = div(within, p.n), j = rem(within, p.n);
            compute_element(cfg, &p, i, j, all.m);
        }
    }
}
