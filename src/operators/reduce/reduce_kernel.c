/* reduce_kernel.c - what reduce's kernels share: parameters, addresses, single elements, results. */
#include "operators/reduce/reduce_kernel.h"

static const char *const kept_extents[] = { "kept_extent0", "kept_extent1", "kept_extent2", "kept_extent3",
                                            "kept_extent4" };
static const char *const kept_strides[] = { "kept_stride0", "kept_stride1", "kept_stride2", "kept_stride3",
                                            "kept_stride4" };
static const char *const reduced_extents[] = { "reduced_extent0", "reduced_extent1", "reduced_extent2",
                                               "reduced_extent3", "reduced_extent4" };
static const char *const reduced_strides[] = { "reduced_stride0", "reduced_stride1", "reduced_stride2",
                                               "reduced_stride3", "reduced_stride4" };

reduce_arguments reduce_declare_arguments(int kept, int reduced)
{
    reduce_arguments a = { .kept_count = kept, .reduced_count = reduced };
    a.x = pointer("x");
    a.y = pointer("y");
    a.counters = pointer("counters");
    a.partials = pointer("partials");
    a.rows = param(I64, "rows");
    a.row.count = param(I64, "count");
    a.row.divisor = param(F32, "divisor");
    for (int i = 0; i < kept; i++) {
        a.kept[i].extent = param(I64, kept_extents[i]);
        a.kept[i].stride = param(I64, kept_strides[i]);
    }
    for (int i = 0; i < reduced; i++) {
        a.reduced[i].extent = param(I64, reduced_extents[i]);
        a.reduced[i].stride = param(I64, reduced_strides[i]);
    }
    return a;
}

val reduce_row_offset(const reduce_arguments *a, val row)
{
    val offset = imm64(0);
    for (int i = a->kept_count - 1; i > 0; i--) {
        offset = add(offset, mul(rem(row, a->kept[i].extent), a->kept[i].stride));
        row = div(row, a->kept[i].extent);
    }
    return a->kept_count ? add(offset, mul(row, a->kept[0].stride)) : offset;
}

val reduce_element_offset(const reduce_arguments *a, val index)
{
    val offset = imm64(0);
    for (int i = a->reduced_count - 1; i > 0; i--) {
        offset = add(offset, mul(rem(index, a->reduced[i].extent), a->reduced[i].stride));
        index = div(index, a->reduced[i].extent);
    }
    return add(offset, mul(index, a->reduced[0].stride));
}

val reduce_address(val a, val elements, ckl_dtype dtype)
{
    return add(a, convert(U64, mul(elements, imm((int)ckl_dtype_bytes(dtype)))));
}

void reduce_begin(const reducer *r, val *state)
{
    val start[REDUCE_VALUES_MAX];
    r->start(r, start);
    for (int i = 0; i < r->count; i++)
        state[i] = variable(r->types[i], start[i]);
}

reduction reduce_reduction(const reducer *r)
{
    return r->ready ? (reduction){ r->count, r->ready, NULL } : (reduction){ r->count, r->merge, (void *)r };
}

void reduce_count(const reducer *r, val count, reduce_batch *batch)
{
    if (!r->counts)
        return;
    batch->before = variable(F32, count);
    assign(count, add(count, immf(batch->size)));
    batch->share = rcp(count);
}

void reduce_take(const reducer *r, reduce_batch *batch, val pivot, val *state)
{
    reduce_count(r, state[0], batch);
    r->take(r, batch, pivot, state);
}

val reduce_load_one(const reducer *r, val address, ckl_dtype dtype)
{
    tensor gX = with_cache(gmem_tensor(address, dtype, compact(leaf(1))), IR_CACHE_READONLY); // (1)
    return convert(r->input, at(gX, 0));
}

void reduce_take_one(const reducer *r, val address, ckl_dtype dtype, val index, val pivot, val *state)
{
    static const int64_t here = 0;
    val x = reduce_load_one(r, address, dtype);
    reduce_take(r, &(reduce_batch){ .x = &x, .size = 1, .first = index, .distance = &here }, pivot, state);
}

val reduce_load_pivot(const reducer *r, const reduce_arguments *a, val address, ckl_dtype dtype)
{
    val pivot = imm_as(I32, 0);
    if (!r->pivot)
        return pivot;
    pivot = variable(r->input, imm(0));
    IF(lt(imm(0), a->row.count))
        assign(pivot, reduce_load_one(r, address, dtype));
    return pivot;
}

void reduce_store(const reducer *r, const reduce_arguments *a, ckl_dtype output, val row, const val *state)
{
    val result = r->finish(r, state, &a->row);
    tensor gY = gmem_tensor(reduce_address(a->y, row, output), output, compact(leaf(1))); // (1)
    set(gY, 0, result);
}
