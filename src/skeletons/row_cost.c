/* row_cost.c - rows in registers: what a split makes of them in bytes, CTAs, registers, accesses and reductions. */
#include "skeletons/row_cost.h"

#include "skeletons/memory_fit.h"

bool row_split_candidate(int64_t cols, ckl_dtype dtype, int vec, int i, row_split *s)
{
    static const int row_threads[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 }, threads[] = { 64, 128, 256 },
                     clusters[] = { 1, 2, 4, 8 };
    const int full = row_vec_full(dtype);
    const int splits = COUNT_OF(row_threads) * COUNT_OF(threads) * COUNT_OF(clusters);
    if (i >= splits * (vec == full ? 1 : 2))
        return false;
    const bool ragged = i >= splits;
    i %= splits;
    *s = (row_split){ .row_threads = row_threads[i % COUNT_OF(row_threads)],
                      .cluster = clusters[i / COUNT_OF(row_threads) % COUNT_OF(clusters)],
                      .vec = ragged ? full : vec,
                      .ragged = ragged };
    const int number = i / COUNT_OF(row_threads) / COUNT_OF(clusters);
    s->threads = s->row_threads <= 32 ? threads[number] : number ? 0 : s->row_threads; // 0 is refused
    s->steps = (int)min_i64(ceil_div(max_i64(cols, 1), (int64_t)s->row_threads * s->cluster * s->vec), INT32_MAX);
    s->exact = !ragged && row_split_cols(s) == cols;
    return true;
}

/* Lines of 128 bytes that an access of a warp touches: of each row in it, what its threads take side by side. */
static double lines_of_access(const row_split *s, int64_t element)
{
    enum { LINE = 128, WARP = 32 };
    return (double)(WARP * s->vec * element) / (double)min_i64(LINE, s->row_threads * s->vec * element);
}

plan_cost row_cost(const row_work *w, const row_split *s, const ckl_device_info *device)
{
    const int64_t element = (int64_t)ckl_dtype_bytes(w->dtype);
    const int held = s->vec * s->steps + s->ragged, packed = (int)ceil_div(held * element, 4);
    const int accesses = (w->inputs + w->outputs) * (s->steps + s->ragged) + w->vectors * s->steps;
    const memory_work work = {
        .bytes = (double)w->rows * (double)(w->cols * element) * (w->inputs + w->outputs),
        .ctas = row_split_ctas(s, w->rows),
        .threads = s->threads,
        .registers = held + packed * (w->inputs - (element == 4)),
        .ctas_per_sm = w->ctas_per_sm,
        .wait_cycles = fit.cluster * (s->cluster - 1),
        .lines = accesses * lines_of_access(s, element),
        .elements = (double)held * w->inputs,
        .meets = s->row_threads > 32,
    };
    return memory_cost(&work, device);
}
