/* permutation.c - simplification: sort, join, and see the matrix in it. */
#include "operators/permute/permutation.h"

#include "base/math.h"
#include "plan/check.h"

static const int64_t EXTENT_MAX = INT64_C(1) << 56; // elements: more than any memory, and sums of 64 bits are safe

/* Outermost of y first: the larger the stride, the further out. */
static void insert_sorted(permutation *p, mode m)
{
    int i = p->rank++;
    for (; i > 0 && p->modes[i - 1].y < m.y; i--)
        p->modes[i] = p->modes[i - 1];
    p->modes[i] = m;
}

/* Elements from the first to past the last, at most EXTENT_MAX + 1. */
static int64_t extent(const permutation *p, bool of_x)
{
    int64_t past = 1;
    for (int i = 0; i < p->rank; i++) {
        mode m = p->modes[i];
        past = min_i64(past + min_i64(saturated_product(m.size - 1, of_x ? m.x : m.y), EXTENT_MAX), EXTENT_MAX + 1);
    }
    return past;
}

static ckl_status check_extents(const permutation *p)
{
    if (extent(p, true) > EXTENT_MAX || extent(p, false) > EXTENT_MAX)
        FAIL(CKL_INVALID, "%s: x or y spans more than 2^56 elements", p->op);
    return CKL_OK;
}

static ckl_status check_distinct(const permutation *p)
{
    int64_t extent = 1; // elements of y that the modes inside span
    for (int i = p->rank - 1; i >= 0; i--) {
        mode m = p->modes[i];
        if (m.y < extent)
            FAIL(CKL_INVALID,
                 "%s: y has a stride of %" PRId64 " elements round parts of %" PRId64 ": elements share memory", p->op,
                 m.y, extent);
        extent += (m.size - 1) * m.y;
    }
    return CKL_OK;
}

static bool is_one_mode(mode outer, mode inner)
{
    return outer.x == inner.x * inner.size && outer.y == inner.y * inner.size;
}

static void join_neighbours(permutation *p)
{
    int kept = 0;
    for (int i = 1; i < p->rank; i++) {
        mode *outer = &p->modes[kept], inner = p->modes[i];
        if (is_one_mode(*outer, inner))
            *outer = (mode){ outer->size * inner.size, inner.x, inner.y };
        else
            p->modes[++kept] = inner;
    }
    p->rank = p->rank ? kept + 1 : 0;
}

ckl_status permutation_simplify(permutation *p, int rank, const mode *modes)
{
    p->rank = 0;
    for (int i = 0; i < rank; i++) {
        p->empty |= modes[i].size == 0;
        if (modes[i].size > 1)
            insert_sorted(p, modes[i]);
    }
    if (p->empty)
        return CKL_OK;
    TRY(check_extents(p));
    TRY(check_distinct(p));
    join_neighbours(p);
    return CKL_OK;
}

/* The mode that is contiguous in x, or in y; -1: there is none. */
static int contiguous_mode(const permutation *p, bool in_x)
{
    for (int i = 0; i < p->rank; i++)
        if ((in_x ? p->modes[i].x : p->modes[i].y) == 1 && p->modes[i].size > 1)
            return i;
    return -1;
}

void permutation_find_matrix(permutation *p)
{
    int in_x = contiguous_mode(p, true), in_y = contiguous_mode(p, false);
    p->has_matrix = !p->empty && in_x >= 0 && in_y >= 0 && in_x != in_y;
    if (!p->has_matrix)
        return;
    mode row = p->modes[in_y], column = p->modes[in_x];
    p->matrix = (matrix_modes){
        .rows = row.size, .cols = column.size, .ldx = row.x, .incx = column.x, .ldy = column.y, .incy = row.y
    };
    for (int i = p->rank - 1; i >= 0; i--)
        if (i != in_x && i != in_y)
            p->matrix.outer[p->matrix.outer_count++] = p->modes[i];
}

permutation permutation_widened(const permutation *p, int factor)
{
    permutation wide = *p;
    wide.bytes *= factor;
    for (int i = 0; i < p->rank - 1; i++) {
        wide.modes[i].x /= factor;
        wide.modes[i].y /= factor;
    }
    if (p->rank)
        wide.modes[p->rank - 1].size /= factor;
    return wide;
}

bool permutation_block(permutation *p, int block)
{
    int in_x = contiguous_mode(p, true), in_y = contiguous_mode(p, false);
    if (in_x < 0 || in_y < 0 || in_x == in_y || p->modes[in_x].size % block || p->modes[in_y].size % block)
        return false;
    mode *x = &p->modes[in_x], *y = &p->modes[in_y];
    p->modes[p->rank++] = (mode){ block, 1, x->y };
    p->modes[p->rank++] = (mode){ block, y->x, 1 };
    *x = (mode){ x->size / block, block, x->y * block };
    *y = (mode){ y->size / block, y->x * block, block };
    return true;
}

int64_t permutation_elements(const permutation *p)
{
    int64_t count = p->empty ? 0 : 1;
    for (int i = 0; i < p->rank; i++)
        count *= p->modes[i].size;
    return count;
}

ckl_status permutation_check_args(const void *desc, const void *args)
{
    const permutation *p = desc;
    const permute_pointers *a = args;
    if (p->empty)
        return CKL_OK;
    const plan_tensor pieces[] = {
        { .name = "x", .pointer = a->x, .bytes = extent(p, true) * p->bytes, .align = p->bytes },
        { .name = "y", .pointer = a->y, .bytes = extent(p, false) * p->bytes, .align = p->bytes, .output = true },
    };
    return plan_check_tensors(p->op, pieces, COUNT_OF(pieces));
}
