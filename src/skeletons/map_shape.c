/* map_shape.c - fewer dimensions of element-wise problems, and their launch. */
#include <string.h>

#include "skeletons/map_launch.h"
#include "skeletons/map_rows.h"

enum { VECTOR_BYTES = 16 };

static void move_dimension(map_shape *s, int to, int from)
{
    s->size[to] = s->size[from];
    for (int k = 0; k < s->operands; k++)
        s->stride[k][to] = s->stride[k][from];
}

static void swap_dimensions(map_shape *s, int a, int b)
{
    map_shape before = *s;
    s->size[a] = before.size[b];
    s->size[b] = before.size[a];
    for (int k = 0; k < s->operands; k++) {
        s->stride[k][a] = before.stride[k][b];
        s->stride[k][b] = before.stride[k][a];
    }
}

static void drop_single_elements(map_shape *s)
{
    int kept = 0;
    for (int d = 0; d < s->rank; d++)
        if (s->size[d] != 1)
            move_dimension(s, kept++, d);
    s->rank = kept;
}

/* Insertion sort by the output's strides, largest first; equal ones keep their order. */
static void order_by_output(map_shape *s)
{
    const int64_t *stride = s->stride[s->operands - 1];
    for (int d = 1; d < s->rank; d++)
        for (int at = d; at > 0 && stride[at - 1] < stride[at]; at--)
            swap_dimensions(s, at - 1, at);
}

/* Does dimension d + 1 end for every operand where the next element of dimension d begins? */
static bool is_mergeable(const map_shape *s, int d)
{
    for (int k = 0; k < s->operands; k++)
        if (s->stride[k][d] != product_i64(s->stride[k][d + 1], s->size[d + 1]))
            return false;
    return true;
}

static void merge_neighbours(map_shape *s)
{
    for (int d = s->rank - 2; d >= 0; d--) {
        if (!is_mergeable(s, d))
            continue;
        int64_t size = product_i64(s->size[d], s->size[d + 1]);
        for (int e = d; e + 1 < s->rank; e++)
            move_dimension(s, e, e + 1);
        s->size[d] = size;
        s->rank--;
    }
}

void map_simplify(map_shape *s)
{
    s->count = 1;
    for (int d = 0; d < s->rank; d++)
        s->count = product_i64(s->count, s->size[d]);
    drop_single_elements(s);
    order_by_output(s);
    merge_neighbours(s);
    if (s->rank > 0)
        return;
    s->rank = 1; // a single element: as good as contiguous
    s->size[0] = 1;
    for (int k = 0; k < s->operands; k++)
        s->stride[k][0] = 1;
}

/* Launch */

map_kernel map_kernel_of(const map_config *c)
{
    const ckl_dtype in[MAP_INPUTS_MAX] = { c->in0, c->in1, c->in2, c->in3 };
    map_kernel k = { .compute = c->compute, .config = *c };
    for (; k.inputs < MAP_INPUTS_MAX && in[k.inputs] != CKL_DTYPE_DEFAULT; k.inputs++) {
        k.dtype[k.inputs] = in[k.inputs];
        k.scalar[k.inputs] = c->scalars >> k.inputs & 1;
    }
    k.dtype[k.inputs] = c->out;
    return k;
}

int64_t map_tile(const map_kernel *k)
{
    return (int64_t)k->config.threads * k->config.vec * k->config.steps;
}

/* Tiles along the innermost dimension and the crossed operands' own, for each of the coordinates along the others. */
int64_t map_ctas(const map_kernel *k, const map_shape *s)
{
    if (!k->config.crossed)
        return ceil_div(s->count, map_tile(k));
    int64_t ctas = 1;
    for (int d = 0; d < s->rank; d++)
        ctas *= d == s->rank - 1       ? ceil_div(s->size[d] + map_margin(k), MAP_CROSS_TILE)
                : d == k->config.cross ? ceil_div(s->size[d], k->config.cross_rows)
                                       : s->size[d];
    return ctas;
}

int map_margin(const map_kernel *k)
{
    enum { SECTOR_BYTES = 32 };
    const int sector = SECTOR_BYTES / dtype_bytes(k->dtype[k->inputs]);
    return k->config.ragged ? (int)max_i64(sector, k->config.vec) : 0;
}

bool map_has_pairs(const map_kernel *k, int input)
{
    return k->config.pairs && k->config.crossed >> input & 1 && 2 * dtype_bytes(k->dtype[input]) == MAP_PAIR_BYTES;
}

bool map_aligned(const map_kernel *k, const void *const *pointers)
{
    const map_config *c = &k->config;
    const int others = c->flat ? ~c->flat : c->constant | c->strided | c->crossed;
    if (c->row_threads)
        return map_rows_in_phase(k, pointers);
    for (int i = 0; i <= k->inputs; i++) {
        uintptr_t bytes = (uintptr_t)min_i64(VECTOR_BYTES, k->config.vec * dtype_bytes(k->dtype[i]));
        if (!(others >> i & 1) && (uintptr_t)pointers[i] % bytes)
            return false;
        if (map_has_pairs(k, i) && (uintptr_t)pointers[i] % MAP_PAIR_BYTES)
            return false;
    }
    return true;
}

map_params map_params_of(const map_kernel *k, const map_shape *s, const void *const *pointers)
{
    map_params p = { .count = s->count };
    memcpy(p.size, s->size, sizeof p.size);
    memcpy(p.stride, s->stride, sizeof p.stride);
    for (int d = 1; d < s->rank && s->count > 0; d++) {
        const divisor by = divisor_of(s->size[d]);
        p.factor[d] = by.factor;
        p.shift[d] = by.shift;
    }
    for (int i = 0; i <= k->inputs; i++)
        if (i < k->inputs && k->scalar[i])
            p.scalar[i] = *(const float *)pointers[i];
        else
            p.pointer[i] = pointers[i];
    return p;
}

ckl_status map_launch(const ckl_plan *plan, const void *const *pointers, ckl_stream stream)
{
    const map_problem *p = plan->desc;
    const map_kernel k = map_kernel_by(p, plan->config);
    const map_params params = map_params_of(&k, &p->shape, pointers);
    const int kernel = map_aligned(&k, pointers) ? 0 : 1;
    plan_grid grid = { .x = map_ctas(&k, &p->shape) };
    if (k.config.row_threads && kernel == 0)
        grid = (plan_grid){ .x = map_rows_ctas(&k, &p->shape), .y = map_rows_tiles(&k, &p->shape) };
    return plan_launch(plan, kernel, grid, &params, stream);
}
