/* permute_launch.c - checks, parameters, launches. */
#include "operators/permute/permute_launch.h"

enum {
    CTAS_MAX = INT32_MAX,
    SIDE_BYTES_MIN = 32, // of both sides of a matrix: below, tiles would be mostly empty
};

static int64_t matrices_of(const matrix_modes *m)
{
    int64_t count = 1;
    for (int i = 0; i < m->outer_count; i++)
        count *= m->outer[i].size;
    return count;
}

int64_t tiles_of(const matrix_modes *m, int tile_r, int tile_c)
{
    return ceil_div(m->rows, tile_r) * ceil_div(m->cols, tile_c) * matrices_of(m);
}

ckl_status check_worth(const permutation *p, const char *who)
{
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s %s: tile=%d asks for the kernel tiled", p->op, who, p->tile);
    if (p->has_matrix && min_i64(p->matrix.rows, p->matrix.cols) * p->bytes < SIDE_BYTES_MIN)
        FAIL(CKL_UNSUPPORTED, "%s %s: matrices of %" PRId64 "x%" PRId64 " would leave most of a tile empty", p->op, who,
             p->matrix.rows, p->matrix.cols);
    return CKL_OK;
}

ckl_status check_matrix(const permutation *p, const char *who, int bytes, int outer, int tile_r, int tile_c)
{
    if (!p->has_matrix)
        FAIL(CKL_UNSUPPORTED, "%s %s: there are not two modes, one contiguous in x and the other in y", p->op, who);
    if (bytes != p->bytes || outer != p->matrix.outer_count)
        FAIL(CKL_INVALID, "%s %s: bytes=%d outer=%d are not the problem's %d and %d", p->op, who, bytes, outer,
             p->bytes, p->matrix.outer_count);
    if (p->matrix.rows > INT32_MAX || p->matrix.cols > INT32_MAX || tiles_of(&p->matrix, tile_r, tile_c) > CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s %s: %" PRId64 "x%" PRId64 " is beyond 32-bit numbers of rows, columns and tiles",
             p->op, who, p->matrix.rows, p->matrix.cols);
    return CKL_OK;
}

ckl_status check_contiguous(const permutation *p, const char *who)
{
    if (p->matrix.incx != 1 || p->matrix.incy != 1)
        FAIL(CKL_UNSUPPORTED, "%s %s: incx=%" PRId64 " incy=%" PRId64 " are not both 1", p->op, who, p->matrix.incx,
             p->matrix.incy);
    return CKL_OK;
}

ckl_status check_threads(const permutation *p, const char *who, int threads, int multiple,
                         const ckl_device_info *device)
{
    if (threads < multiple || threads % multiple || threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s %s: threads=%d must be a multiple of %d up to %d", p->op, who, threads, multiple,
             device->threads_per_cta_max);
    return CKL_OK;
}

ckl_status check_smem(const permutation *p, const char *who, int64_t need, const ckl_device_info *device)
{
    if (need > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s %s: the tile needs %" PRId64 " bytes of shared memory, %s has %" PRId64, p->op, who,
             need, device->id, device->smem_per_cta_bytes);
    return CKL_OK;
}

void pass(parameters *p, int64_t value)
{
    p->value[p->count] = value; // of a u32, the low half: hosts are little-endian, as GPUs are
    p->list[p->count] = &p->value[p->count];
    p->count++;
}

void pass_map(parameters *p, const tensor_map *map)
{
    p->list[p->count++] = map;
}

void pass_sizes(parameters *p, const matrix_modes *m)
{
    pass(p, m->rows);
    pass(p, m->cols);
    for (int i = 0; i < m->outer_count; i++)
        pass(p, m->outer[i].size);
}

void pass_place(parameters *p, const permutation *q, const permute_pointers *a)
{
    const matrix_modes *m = &q->matrix;
    pass_sizes(p, m);
    pass(p, (int64_t)(intptr_t)a->x);
    pass(p, m->ldx * q->bytes);
    pass(p, m->incx * q->bytes);
    pass(p, (int64_t)(intptr_t)a->y);
    pass(p, m->ldy * q->bytes);
    pass(p, m->incy * q->bytes);
    for (int i = 0; i < m->outer_count; i++) {
        pass(p, m->outer[i].x * q->bytes);
        pass(p, m->outer[i].y * q->bytes);
    }
}

ckl_status launch_kernel(const ckl_plan *plan, int part, int64_t ctas, const parameters *p, ckl_stream stream)
{
    device_launch l = { .grid = { ctas, 1, 1 }, .params = (void *const *)p->list };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

ckl_status launch_by_address(const ckl_plan *plan, int part, const void *args, int tile_r, int tile_c,
                             ckl_stream stream)
{
    const permutation *p = plan->desc;
    if (p->empty)
        return CKL_OK;
    parameters values = { 0 };
    pass_place(&values, p, args);
    return launch_kernel(plan, part, tiles_of(&p->matrix, tile_r, tile_c), &values, stream);
}

bool is_aligned(const void *pointer, int bytes)
{
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}
