/* gemm_plan.c - what the host sides of GEMM's implementations share: configs, checks, tiles, costs and launches. */
#include "operators/gemm/gemm_plan.h"

/* Configs */

gemm_epilogue gemm_epilogue_of(const ckl_gemm_desc *d)
{
#define OF_DESC(owner, kind, name, value, range, help) .name = (kind)d->name,
    return (gemm_epilogue){ .ab = d->a,
                            .b = d->b,
                            .d = d->d,
                            .c = d->c != CKL_DTYPE_DEFAULT,
                            .gather = d->gather > 0,
                            .scatter = d->scatter > 0,
                            .half_blocks = d->block_k == GEMM_BLOCK_LEAST,
                            GEMM_MATH(OF_DESC, ) GEMM_BIAS_AND_SCALES(OF_DESC, ) GEMM_ACTIVATION(OF_DESC, )
                                GEMM_BESIDE(OF_DESC, ) GEMM_AMAX(OF_DESC, ) GEMM_CUSTOM(OF_DESC, ) };
#undef OF_DESC
}

int gemm_grouped_of(const ckl_gemm_desc *d)
{
    return gemm_groups_of_k(d) ? GEMM_GROUPED_K : gemm_groups_of_m(d) ? GEMM_GROUPED_M : 0;
}

bool gemm_rows_aligned(const ckl_gemm_desc *d, char matrix, int bytes)
{
    const gemm_matrix x = gemm_matrix_of(d, matrix);
    int64_t size = (int64_t)ckl_dtype_bytes(x.type);
    return (x.rows <= 1 || x.ld * size % bytes == 0) && (x.count == 1 || x.stride * size % bytes == 0);
}

bool gemm_operands_aligned(const ckl_gemm_desc *d)
{
    return gemm_rows_aligned(d, 'a', TMA_ALIGNMENT) && gemm_rows_aligned(d, 'b', TMA_ALIGNMENT);
}

bool gemm_results_aligned(const ckl_gemm_desc *d, int bytes)
{
    return gemm_rows_aligned(d, 'd', bytes) && (!d->c || gemm_rows_aligned(d, 'c', bytes)) &&
           (!gemm_has_x(d) || gemm_rows_aligned(d, 'x', bytes));
}

int gemm_vector_of(const ckl_gemm_desc *d)
{
    int bytes = TMA_ALIGNMENT;
    for (const char *x = "ab"; *x; x++)
        while (gemm_is_k_major(d, *x) && !gemm_rows_aligned(d, *x, bytes))
            bytes /= 2;
    if (gemm_groups_of_k(d) && d->layout != CKL_GEMM_TN) // groups begin anywhere in rows
        return 1;
    return bytes / (int)ckl_dtype_bytes(d->a);
}

/* Checks of configs */

ckl_status gemm_check_epilogue(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have)
{
    static const field fields[] = { GEMM_EPILOGUE(FIELD_ROW, gemm_epilogue) };
    const gemm_epilogue want = gemm_epilogue_of(d);
    const field *other = fields_difference((field_table)FIELD_TABLE(fields), have, &want);
    if (other)
        FAIL(CKL_INVALID, "gemm %s: the config's %s is not the problem's", who, other->name);
    return CKL_OK;
}

ckl_status gemm_check_grouped(const char *who, const ckl_gemm_desc *d, int grouped)
{
    if (grouped != gemm_grouped_of(d))
        FAIL(CKL_INVALID, "gemm %s: grouped=%d with groups=%" PRId64, who, grouped, d->groups);
    return CKL_OK;
}

ckl_status gemm_check_same_types(const char *who, const ckl_gemm_desc *d)
{
    if (gemm_has_weights(d))
        FAIL(CKL_UNSUPPORTED, "gemm %s: b=%s is not multiplied by a=%s", who, ckl_dtype_name(d->b),
             ckl_dtype_name(d->a));
    return CKL_OK;
}

ckl_status gemm_check_in_order(const char *who, const ckl_gemm_desc *d)
{
    if (d->gather || d->scatter)
        FAIL(CKL_UNSUPPORTED, "gemm %s: rows of A and D lie in order, gather=%" PRId64 " and scatter=%" PRId64, who,
             d->gather, d->scatter);
    if (d->pointers)
        FAIL(CKL_UNSUPPORTED, "gemm %s: matrices of a batch lie a stride apart, not where pointers say", who);
    return CKL_OK;
}

ckl_status gemm_check_plain(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have)
{
    TRY(gemm_check_epilogue(who, d, have));
    TRY(gemm_check_same_types(who, d));
    return gemm_check_in_order(who, d);
}

ckl_status gemm_check_mma_tile(const char *who, int tile_m, int tile_n)
{
    if (tile_m % 32 || tile_n % 32 || tile_m < 32 || tile_n < 32 || (int64_t)tile_m * tile_n > 128 * 128)
        FAIL(CKL_INVALID, "gemm %s: tile %dx%d must be multiples of 32, at most 128x128", who, tile_m, tile_n);
    return CKL_OK;
}

ckl_status gemm_check_smem(const char *who, const ckl_device_info *device, int stages, int64_t bytes)
{
    if (bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "gemm %s: %d stages need %" PRId64 " bytes of shared memory, %s has %" PRId64, who,
             stages, bytes, device->id, (int64_t)device->smem_per_cta_bytes);
    return CKL_OK;
}

ckl_status gemm_check_tiles(const char *who, int64_t tiles)
{
    if (tiles > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm %s: %" PRId64 " tiles are more than a launch has", who, tiles);
    return CKL_OK;
}

/* Tiles and costs */

int64_t gemm_tiles(const ckl_gemm_desc *d, int64_t rows, int64_t cols)
{
    const int64_t along_m =
        gemm_groups_of_m(d) ? d->m / rows + min_i64(d->m, d->groups) : gemm_products(d) * ceil_div(d->m, rows);
    return along_m * ceil_div(gemm_columns_of_B(d), cols);
}

double gemm_multiply_adds(const ckl_gemm_desc *d)
{
    return (double)d->batch * (double)d->m * (double)d->n * (double)d->k;
}

double gemm_matrix_bytes(const ckl_gemm_desc *d, char name)
{
    const gemm_matrix x = gemm_matrix_of(d, name);
    return (double)x.count * (double)x.rows * (double)x.cols * (double)ckl_dtype_bytes(x.type);
}

double gemm_least_bytes(const ckl_gemm_desc *d)
{
    return gemm_matrix_bytes(d, 'a') + gemm_matrix_bytes(d, 'b') + (d->c ? 2 : 1) * gemm_matrix_bytes(d, 'd');
}

plan_cost gemm_product_cost(const ckl_gemm_desc *d, const ckl_device_info *device, product_work work)
{
    work.bytes = gemm_least_bytes(d);
    return product_cost(&work, device);
}

/* Launches */

ckl_status gemm_check_operand_vectors(const char *who, const ckl_gemm_desc *d, const ckl_gemm_args *x, bool k_major,
                                      const char *vector, int bytes)
{
    const void *a = gemm_is_k_major(d, 'a') == k_major ? x->a : NULL;
    const void *b = gemm_is_k_major(d, 'b') == k_major ? x->b : NULL;
    if (!d->pointers && !PLAN_ALIGNED(bytes, a, b)) // those of pointers are aligned by contract
        FAIL(CKL_INVALID, "gemm %s: a=%p or b=%p is not aligned to %d bytes; config='%s=1' takes any alignment", who,
             x->a, x->b, bytes, vector);
    return CKL_OK;
}

ckl_status gemm_check_result_vectors(const char *who, const ckl_gemm_args *x, int bytes)
{
    if (!PLAN_ALIGNED(bytes, x->d, x->c))
        FAIL(CKL_INVALID, "gemm %s: c=%p or d=%p is not aligned to %d bytes; config='vec=1' takes any alignment", who,
             x->c, x->d, bytes);
    return CKL_OK;
}

static int64_t span_of(const gemm_matrix *x)
{
    const int64_t elements =
        sum_i64(product_i64(max_i64(x->count, 1) - 1, x->stride), product_i64(x->rows - 1, x->ld)) + x->cols;
    return x->rows && x->cols ? product_i64(elements, (int64_t)ckl_dtype_bytes(x->type)) : 0;
}

uint32_t gemm_early_bytes(const ckl_gemm_desc *d, char name)
{
    const int64_t BYTES_MAX = 6 << 20; // of both: 512x512x512 of bf16 3.0 us, 2.6; 1536x1536x1536, 9 MB, 12.0 and 12.6
    const gemm_matrix a = gemm_matrix_of(d, 'a'), b = gemm_matrix_of(d, 'b');
    const int64_t bytes_a = span_of(&a), bytes_b = span_of(&b);
    if (d->pointers || sum_i64(bytes_a, bytes_b) > BYTES_MAX)
        return 0;
    return (uint32_t)(name == 'a' ? bytes_a : bytes_b);
}

gemm_params gemm_params_of(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    const bool unread = d->pointers && d->k == 0; // A and B have no elements: kernels read some addresses, and use none
    return (gemm_params){ GEMM_PARAMS_OF_CALL(d, x),
                          GEMM_EARLY_OF_CALL(d, x),
                          .m = d->m,
                          .n = d->n,
                          .k = d->k,
                          .a = unread ? x->d : x->a,
                          .lda = d->lda,
                          .a_batch = d->stride_a,
                          .b = unread ? x->d : x->b,
                          .ldb = d->ldb,
                          .b_batch = d->stride_b,
                          .batch = gemm_products(d) };
}

ckl_status gemm_launch(const ckl_plan *plan, int64_t ctas, const void *args, ckl_stream stream)
{
    const gemm_params params = gemm_params_of(plan->desc, args);
    return plan_launch(plan, 0, (plan_grid){ .x = ctas }, &params, stream);
}

ckl_status gemm_launch_tma(const ckl_plan *plan, int64_t ctas, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    gemm_params params = gemm_params_of(plan->desc, x);
    if (!PLAN_ALIGNED(TMA_ALIGNMENT, x->a, x->b))
        FAIL(CKL_INVALID, "gemm %s: a=%p or b=%p is not aligned to 16 bytes", plan->impl->name, x->a, x->b);
    params.A = gemm_tensor_of(plan->desc, 'a', x->a);
    params.B = gemm_tensor_of(plan->desc, 'b', x->b);
    return plan_launch(plan, 0, (plan_grid){ .x = ctas }, &params, stream);
}
