/* reduce_view.c - merging the axes of a reduction. */
#include "operators/reduce/reduce_view.h"

#include "base/math.h"

/* Appends a mode, or merges it with the one before where both step evenly. */
static void append(reduce_mode mode, reduce_mode *modes, int *count)
{
    reduce_mode *last = modes + *count - 1;
    if (mode.extent == 1)
        return;
    if (*count > 0 && last->stride == mode.stride * mode.extent)
        *last = (reduce_mode){ last->extent * mode.extent, mode.stride };
    else
        modes[(*count)++] = mode;
}

/* Sums do not mind the order: from far to near finds more neighbours, and the contiguous mode comes last. */
static void sort_by_stride(reduce_mode *modes, int count)
{
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && modes[j - 1].stride < modes[j].stride; j--) {
            reduce_mode nearer = modes[j - 1];
            modes[j - 1] = modes[j];
            modes[j] = nearer;
        }
}

reduce_view reduce_view_of(const ckl_reduce_desc *d)
{
    reduce_view v = { .rows = 1, .count = 1 };
    reduce_mode reduced[CKL_REDUCE_RANK_MAX];
    int reduced_axes = 0;
    for (int a = 0; a < d->rank; a++) {
        reduce_mode mode = { d->shape[a], d->stride[a] };
        if (d->axes >> a & 1) {
            reduced[reduced_axes++] = mode;
            v.count *= mode.extent;
        } else {
            append(mode, v.kept, &v.kept_count);
            v.rows *= mode.extent;
        }
    }
    if (!reduce_is_arg((int)d->op))
        sort_by_stride(reduced, reduced_axes);
    for (int i = 0; i < reduced_axes; i++)
        append(reduced[i], v.reduced, &v.reduced_count);
    if (v.reduced_count == 0)
        v.reduced[v.reduced_count++] = (reduce_mode){ 1, 1 };
    return v;
}
