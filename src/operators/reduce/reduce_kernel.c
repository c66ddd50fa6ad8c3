/* reduce_kernel.c - what reduce's kernels share: the tensor x, single elements, results. */
#include "operators/reduce/reduce_kernel.h"

#include <stdio.h>

/* CuTe's first mode runs fastest. */
layout reduce_modes(int count, const val *extent, const val *stride)
{
    int_tuple shape_of[CKL_REDUCE_RANK_MAX], stride_of[CKL_REDUCE_RANK_MAX];
    if (count == 0)
        return make_layout(leaf(1), leaf(0));
    for (int i = 0; i < count; i++) {
        shape_of[i] = dynamic(extent[count - 1 - i]);
        stride_of[i] = dynamic(stride[count - 1 - i]);
    }
    return make_layout(tuple_of(count, shape_of), tuple_of(count, stride_of));
}

/*
 * NOTE: by gmem_address(), whose product is signed. With the unsigned one of a slice ptxas takes 2 to 4 registers more.
 */
tensor reduce_row(const reduce_kind *kind, const reduce_values *p, val row)
{
    val first = crd2idx(dynamic(row), reduce_modes(kind->kept, p->kept_extent, p->kept_stride));
    layout reduced = reduce_modes(kind->reduced, p->reduced_extent, p->reduced_stride);
    return with_cache(gmem_tensor(gmem_address(p->x, kind->dtype, first), kind->dtype, reduced), IR_CACHE_READONLY);
}

void reduce_begin(const reducer *r, val *state)
{
    val identity[REDUCE_VALUES_MAX];
    r->identity(r, identity);
    for (int i = 0; i < r->count; i++)
        state[i] = variable(r->types[i], identity[i]);
}

void reduce_states(const reducer *r, const char *name, layout places, tensor *sS)
{
    enum { NAME = 16 };
    for (int i = 0; i < r->count; i++) {
        char *full = describe_alloc(NAME, 1);
        snprintf(full, NAME, "%s%d", name, i);
        sS[i] = smem_tensor(full, r->types[i], places, 16);
    }
}

void reduce_set_state(const reducer *r, const tensor *sS, int_tuple place, const val *state)
{
    for (int i = 0; i < r->count; i++)
        tensor_set(sS[i], place, state[i]);
}

void reduce_get_state(const reducer *r, const tensor *sS, int_tuple place, val *state)
{
    for (int i = 0; i < r->count; i++)
        state[i] = tensor_at(sS[i], place);
}

reduction reduce_reduction(const reducer *r)
{
    if (r->known)
        return (reduction){ .count = r->count, .combine = r->known };
    return (reduction){ r->count, r->merge, (void *)r, r->over_lanes };
}

void reduce_count(const reducer *r, val count, reduce_batch *batch)
{
    if (!r->counts)
        return;
    batch->before = variable(F32, count);
    assign(count, add(count, immf(batch->size)));
    batch->share = rcp(count);
}

void reduce_wait(int overlap)
{
    if (overlap == REDUCE_OVERLAPS)
        launch_dependents();
    grid_wait();
    if (overlap == REDUCE_OVERLAPS_LATER)
        launch_dependents();
}

void reduce_accumulate(const reducer *r, reduce_batch *batch, val pivot, val *state)
{
    reduce_count(r, state[0], batch);
    r->accumulate(r, batch, pivot, state);
}

void reduce_accumulate_one(const reducer *r, val x, val index, val pivot, val *state)
{
    static const int64_t here = 0;
    reduce_accumulate(r, &(reduce_batch){ .x = &x, .size = 1, .first = index, .distance = &here }, pivot, state);
}

val reduce_load_pivot(const reducer *r, const reduce_values *p, tensor gRow)
{
    val pivot = imm_as(I32, 0);
    if (!r->pivot)
        return pivot;
    pivot = variable(r->input, imm(0));
    IF(lt(imm(0), p->count))
        assign(pivot, convert(r->input, at(gRow, 0)));
    return pivot;
}

void reduce_store(const reducer *r, const reduce_values *p, ckl_dtype output, val row, const val *state)
{
    tensor gY = gmem_tensor(p->y, output, make_layout(dynamic(p->rows), leaf(1))); // (ROWS)
    tensor_set(gY, coord(row), r->finish(r, state, p));
}
