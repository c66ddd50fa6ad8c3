/* gemm_repitch_plan.c - the host side of copies of A and B: how they lie in the workspace, and their launch. */
#include "operators/gemm/gemm_plan.h"

void gemm_place_copies(gemm_copies *copies)
{
    ckl_gemm_desc *to = &copies->to;
    int64_t *const ld[] = { &to->lda, &to->ldb }, *const stride[] = { &to->stride_a, &to->stride_b };
    for (int i = 0; i < 2; i++) {
        const gemm_matrix x = gemm_matrix_of(to, "ab"[i]);
        if (!copies->copied[i])
            continue;
        *ld[i] = round_up(x.cols, GEMM_PITCH_BYTES / (int64_t)ckl_dtype_bytes(x.type));
        *stride[i] = x.count > 1 || to->pointers ? x.rows * *ld[i] : 0;
    }
}

/* 0: there is no copy. */
static int64_t copy_bytes(const gemm_copies *copies, char matrix)
{
    const gemm_matrix x = gemm_matrix_of(&copies->to, matrix);
    return copies->copied[matrix == 'b'] ? x.count * x.rows * x.ld * (int64_t)ckl_dtype_bytes(x.type) : 0;
}

/* Where the copy of B begins: behind that of A. */
static int64_t bytes_before_B(const gemm_copies *copies)
{
    return round_up(copy_bytes(copies, 'a'), PLAN_WORKSPACE_ALIGNMENT);
}

int64_t gemm_copies_bytes(const gemm_copies *copies)
{
    return bytes_before_B(copies) + copy_bytes(copies, 'b');
}

ckl_gemm_args gemm_copied_args(const ckl_plan *plan, const gemm_copies *copies, const ckl_gemm_args *args)
{
    ckl_gemm_args x = *args;
    char *space = plan_workspace(plan, args->workspace);
    x.a = copy_bytes(copies, 'a') ? space : x.a;
    x.b = copy_bytes(copies, 'b') ? space + bytes_before_B(copies) : x.b;
    return x;
}

/* Sets copy i of a launch. */
static void describe_copy(const gemm_copies *copies, char matrix, const void *from, const void *to,
                          gemm_repitch_params *p, int i)
{
    const gemm_matrix x = gemm_matrix_of(&copies->from, matrix);
    p->from[i] = from;
    p->from_bytes[i] = copies->from.gather ? 0 : gemm_early_bytes(&copies->from, matrix);
    p->from_ld[i] = x.ld;
    p->from_stride[i] = x.stride;
    p->to[i] = to;
    p->to_ld[i] = gemm_matrix_of(&copies->to, matrix).ld;
    p->copy_rows[i] = matrix == 'a' && copies->from.gather ? copies->from.m : x.rows;
    p->copy_length[i] = x.cols;
    p->turned[i] = copies->turned[matrix == 'b'];
}

static int64_t ctas_of_copy(const gemm_copies *copies, char matrix, const gemm_repitch_params *p, int i)
{
    const gemm_matrix x = gemm_matrix_of(&copies->from, matrix);
    const bool split = copies->from.math == CKL_GEMM_F32X3; // each vector becomes two
    const int64_t vector = (split ? 2 : 1) * GEMM_REPITCH_BYTES / (int64_t)ckl_dtype_bytes(x.type);
    if (p->turned[i])
        return x.count * ceil_div(x.rows, GEMM_TURN_TILE) * ceil_div(x.cols, GEMM_TURN_TILE);
    return x.count *
           ceil_div(ceil_div(p->copy_rows[i], GEMM_REPITCH_ROWS) * (p->to_ld[i] / vector), GEMM_REPITCH_THREADS);
}

ckl_status gemm_launch_copies(const ckl_plan *plan, const gemm_copies *copies, const ckl_gemm_args *from,
                              const ckl_gemm_args *to, ckl_stream stream)
{
    gemm_repitch_params p = { .row_list = from->rows_a, .list_rows = copies->from.gather };
    const void *const sources[] = { from->a, from->b }, *const copied[] = { to->a, to->b };
    int64_t ctas = 0;
    for (int i = 0, count = 0; i < 2; i++) {
        const char matrix = "ab"[i];
        if (copy_bytes(copies, matrix) == 0)
            continue;
        describe_copy(copies, matrix, sources[i], copied[i], &p, count);
        p.second = (uint32_t)ctas;
        ctas += ctas_of_copy(copies, matrix, &p, count++);
        p.second = count == 1 ? (uint32_t)ctas : p.second;
    }
    return plan_launch(plan, 1, (plan_grid){ .x = ctas }, &p, stream);
}
