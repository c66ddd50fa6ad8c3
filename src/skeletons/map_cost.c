/* map_cost.c - configs of element-wise kernels to consider, and what one costs. */
#include "skeletons/memory_cost.h"

#include "skeletons/map_launch.h"

bool map_candidate(const void *problem, const ckl_device_info *device, int i, void *config)
{
    static const int threads[] = { 128, 256, 512 }, steps[] = { 1, 2, 4, 8 };
    map_config *c = config;
    if (i >= COUNT_OF(threads) * COUNT_OF(steps) || map_choose_config(problem, device, c) != CKL_OK)
        return false;
    c->threads = threads[i % COUNT_OF(threads)];
    c->steps = steps[i / COUNT_OF(threads)];
    c->row_threads = c->row_threads > 32 ? c->threads : c->row_threads;
    c->ctas_per_sm = 0;
    return true;
}

/* Bytes of one operand: what is repeated comes from the caches. */
static double bytes_of(const map_shape *s, int operand, ckl_dtype dtype)
{
    double bytes = dtype_bytes(dtype);
    for (int d = 0; d < s->rank; d++)
        bytes *= s->stride[operand][d] ? (double)s->size[d] : 1;
    return bytes;
}

/* Lines of 128 bytes that a warp touches for `elements` of each of its threads. */
static double lines_of(int64_t stride, int elements, ckl_dtype dtype)
{
    enum { WARP = 32, LINE = 128 };
    double between = (double)(stride < 0 ? -stride : stride) * dtype_bytes(dtype);
    return stride == 0 ? 1 : WARP * elements * (between < LINE ? between / LINE : 1);
}

plan_cost map_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    const map_problem *p = problem;
    const map_kernel k = map_kernel_of(config);
    const map_shape s = p->shape;
    const int held = k.config.vec * k.config.steps;
    static const memory_kernel by_vectors = { .us = -0.3, .wait_cycles = -700, .bytes = 0.96 },
                               by_rows = { .us = 0.6, .wait_cycles = -1800, .bytes = 0.8, .lines = 5 },
                               crossing = { .us = 0.4, .wait_cycles = 1500, .bytes = 0.9, .lines = 0.15 };
    memory_work work = { .of = k.config.crossed       ? crossing
                               : k.config.row_threads ? by_rows
                                                      : by_vectors,
                         .ctas = ceil_div(s.count, map_tile(&k)),
                         .threads = k.config.threads,
                         .registers = held * (k.inputs + 1),
                         .ctas_per_sm = k.config.ctas_per_sm,
                         .elements = held };
    for (int i = 0; i <= k.inputs; i++)
        if (i == k.inputs || !k.scalar[i]) {
            work.bytes += bytes_of(&s, i, k.dtype[i]);
            work.lines += lines_of(s.stride[i][s.rank - 1], held, k.dtype[i]);
        }
    return memory_cost(&work, device);
}
