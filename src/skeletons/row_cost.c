/* row_cost.c - rows in registers: what a split makes of them in bytes, CTAs, registers, accesses and reductions. */
#include "skeletons/row_cost.h"

#include "skeletons/memory_fit.h"

/* Threads of a CTA, threads of a row, CTAs of a row. */
static const struct {
    int threads, row_threads, cluster;
} shapes[] = {
    { 64, 1, 1 },    { 128, 1, 1 },   { 256, 1, 1 },   { 64, 2, 1 },    { 128, 2, 1 },     { 256, 2, 1 },
    { 64, 4, 1 },    { 128, 4, 1 },   { 256, 4, 1 },   { 64, 8, 1 },    { 128, 8, 1 },     { 256, 8, 1 },
    { 64, 16, 1 },   { 128, 16, 1 },  { 256, 16, 1 },  { 64, 32, 1 },   { 128, 32, 1 },    { 256, 32, 1 },
    { 64, 64, 1 },   { 128, 128, 1 }, { 256, 256, 1 }, { 512, 512, 1 }, { 1024, 1024, 1 }, { 128, 128, 2 },
    { 256, 256, 2 }, { 512, 512, 2 }, { 256, 256, 4 }, { 512, 512, 4 }, { 256, 256, 8 },   { 512, 512, 8 },
};

bool row_split_candidate(int64_t cols, ckl_dtype dtype, int vec, int i, row_split *s)
{
    const int full = row_vec_full(dtype), count = COUNT_OF(shapes), ragged = i >= count;
    if (i >= count * (vec == full ? 1 : 2))
        return false;
    i %= count;
    *s = (row_split){ .threads = shapes[i].threads,
                      .row_threads = shapes[i].row_threads,
                      .cluster = shapes[i].cluster,
                      .vec = ragged ? full : vec,
                      .ragged = ragged };
    const int64_t held = ragged ? cols - cols % full : cols; // the rest are a ragged row's ends
    s->steps = (int)min_i64(ceil_div(max_i64(held, 1), (int64_t)s->row_threads * s->cluster * s->vec), INT32_MAX);
    s->exact = !ragged && row_split_cols(s) == cols;
    return true;
}

/* Lines of 128 bytes that a warp's access touches: those of each of its rows. */
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
