/* gemm_operands_ref.c - the operands of a gemm problem: their values, and those to which arrays of pointers point. */
#include "base/dtype.h"
#include "base/math.h"
#include "operators/gemm/gemm_ref.h"

/* What arrays of pointers point to: operands after those of the call. */
static const struct {
    int array, matrix;
    const char *name;
} pointed[] = {
    { A, MATRIX_A, "a" }, { B, MATRIX_B, "b" }, { C, MATRIX_C, "c" }, { D, MATRIX_D, "d" }, { X, MATRIX_X, "x" }
};

static gemm_matrix pointed_matrix(const ckl_gemm_desc *d, int i)
{
    gemm_matrix x = gemm_matrix_of(d, *pointed[i].name);
    x.stride = x.rows * x.ld;
    return x;
}

static void add_pointed(const ckl_gemm_desc *d, operand *all)
{
    for (int i = 0; i < COUNT_OF(pointed); i++) {
        operand *array = &all[pointed[i].array];
        const gemm_matrix x = pointed_matrix(d, i);
        const bool written = pointed[i].array == D || (pointed[i].array == X && d->preactivation);
        all[pointed[i].matrix] = operand_tensor(
            pointed[i].name, written ? OPERAND_OUT : OPERAND_IN, array->dtype ? x.type : CKL_DTYPE_DEFAULT, 3,
            (int64_t[]){ x.count, x.rows, x.cols }, (int64_t[]){ x.stride, x.ld, 1 });
        all[pointed[i].matrix].hard_max = array->hard_max;
        all[pointed[i].matrix].align = 16;
        array->table_of = pointed[i].matrix + 1;
        array->table_step = x.stride * (int64_t)ckl_dtype_bytes(x.type);
    }
}

void gemm_follow_pointers(ckl_gemm_desc *d, void **host)
{
    int64_t *const strides[] = { &d->stride_a, &d->stride_b, &d->stride_c, &d->stride_d, &d->stride_x };
    for (int i = 0; i < COUNT_OF(pointed); i++) {
        host[pointed[i].array] = host[pointed[i].matrix];
        *strides[i] = pointed_matrix(d, i).stride;
    }
}

/* Where the host has the offsets the call gets the numbers themselves. */
static void give_host_offsets(const gemm_problem *p, operand *offsets)
{
    if (p->desc.host_offsets)
        *offsets = (operand){ .name = offsets->name, .value = p->host_offsets };
}

/* An element is a slice of its own: it needs all of a column of D. */
static operand elements_apart(const operand *sums)
{
    const int64_t count = sums->rank > 1 ? sums->shape[0] * sums->shape[1] : sums->shape[0];
    return operand_tensor(sums->name, OPERAND_OUT, sums->dtype, 2, (int64_t[]){ count, 1 }, (int64_t[]){ 1, 1 });
}

/* Sums of products stay within f32, before alpha and beta, and so do products of two of them. */
int gemm_operands(const void *problem, operand *all)
{
    const gemm_problem *p = problem;
    all[A].hard_max = all[B].hard_max = p->desc.gated ? 0x1p25 : 0x1p50; // G * U as well
    all[C].hard_max = all[BIAS].hard_max = p->desc.gated ? 0x1p50 : 0x1p120;
    for (int i = SCALE_A; i <= DEVICE_BETA; i++)
        all[i].hard_max = 4;
    const int64_t dealt = gemm_groups_of_k(&p->desc) ? p->desc.k : p->desc.m;
    all[OFFSETS] = operand_range(all[OFFSETS], 0, (double)dealt);
    all[OFFSETS].rising = dealt;
    all[OFFSETS].given = *p->sizes ? p->offsets : NULL;
    give_host_offsets(p, &all[OFFSETS]);
    all[ROW_WEIGHTS].hard_max = 4;
    if (p->desc.bias_gradient)
        all[BIAS_GRADIENT] = elements_apart(&all[BIAS_GRADIENT]);
    all[AMAX] = operand_range(all[AMAX], 0, 4);
    all[AMAX].role = p->desc.amax ? OPERAND_IN_OUT : OPERAND_IN;
    all[ROWS_A] = operand_range(all[ROWS_A], 0, (double)p->desc.gather - 1);
    all[ROWS_D] = operand_range(all[ROWS_D], 0, (double)p->desc.scatter - 1);
    all[ROWS_D].distinct = true;
    if (p->desc.scatter > p->desc.m) { // some rows stay as they are
        all[D].role = OPERAND_IN_OUT;
        all[X].role = p->desc.preactivation ? OPERAND_IN_OUT : OPERAND_IN;
    }
    if (!p->desc.device_scalars) {
        all[ALPHA] = operand_number("alpha", &p->alpha);
        all[BETA] = operand_number("beta", &p->beta);
    }
    if (!p->desc.pointers)
        return WORKSPACE;
    add_pointed(&p->desc, all);
    return OPERANDS;
}
