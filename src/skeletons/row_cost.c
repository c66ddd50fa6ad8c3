/* row_cost.c - rows in registers: what a split makes of them in bytes, CTAs, registers, accesses and reductions. */
#include "skeletons/row_cost.h"

#include <math.h>

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

/*
 * On an H200, where a candidate promised a tenth less time than the rules' choice: of 75 problems 67 are within these
 * bounds but the first; 64 of them were faster, three up to 4 % slower; of the other eight seven were slower, by up to
 * 1.47. Single elements: 119552x3 in bf16 by four threads a row took 1.9 of the time of one (bench/notes/measuring.md).
 * Long rows by those of 16 bits: RMS norm of 512x22709 f16 27.1 us, 18.1 by vectors.
 */
bool row_split_is_trusted(const row_split *s, ckl_dtype dtype)
{
    enum { ELEMENTS_MIN = 2, ELEMENTS_MAX = 80, STEPS_MAX = 48, CTA_ELEMENTS_MAX = 32 << 10, WARP = 32, WORD = 4 };
    const int64_t elements = (int64_t)s->vec * s->steps; // of any length, as candidates are
    const bool narrow = s->row_threads > WARP && s->vec * dtype_bytes(dtype) < WORD;
    return !narrow && elements >= ELEMENTS_MIN && elements <= ELEMENTS_MAX && s->steps <= STEPS_MAX &&
           elements * s->threads <= CTA_ELEMENTS_MAX;
}

/*
 * Sectors that are moved, of those that rows have. Where f32 rows begin within a sector, short runs of lanes share
 * their ends with the next ones, which come some accesses later: 65536x60 takes 15.8, 11.1 and 8.8 us by runs of 32, 64
 * and 128 bytes. Rows of few accesses do not show it, nor do those of 16 bits.
 */
static double sectors(const row_work *w, const row_split *s)
{
    enum { SECTOR = 32, LINE = 128, ACCESS = 16, FEW_STEPS = 3 };
    const int64_t element = dtype_bytes(w->dtype), run = max_i64(SECTOR, s->row_threads * s->vec * element);
    const bool begin_within = w->dtype == CKL_F32 && s->vec * element == ACCESS && w->cols * element % SECTOR != 0;
    return begin_within && w->outputs && s->steps > FEW_STEPS && run < LINE ? 1 + 0.5 * SECTOR / (double)run : 1;
}

plan_cost row_cost(const row_work *w, const row_split *s, const ckl_device_info *device)
{
    enum { REGISTERS_MAX = 255 };
    const int64_t element = dtype_bytes(w->dtype);
    const int held = s->vec * s->steps + s->ragged, packed = (int)ceil_div(held * element, 4);
    const int accesses = (w->inputs + w->outputs) * (s->steps + s->ragged) + w->vectors * s->steps;
    const int registers = held + packed * (w->inputs - (element == 4));
    const double tiles = (double)max_i64(1, ceil_div(w->cols - (s->ragged ? w->cols % s->vec : 0), row_split_cols(s)));
    const double elements = tiles * held * w->inputs, spilled = fmax(0, fit.registers + registers - REGISTERS_MAX);
    const double wait = fit.row_wait + (s->row_threads > 32 ? fit.row_barrier : 0) + fit.cluster * (s->cluster - 1) +
                        fit.serial * elements + fit.spill * spilled + w->tile_cycles * (tiles - 1);
    const memory_work work = {
        .of = w->of,
        .bytes =
            sectors(w, s) * (double)w->rows * (double)(w->cols * element) * (w->inputs * (1 + w->again) + w->outputs),
        .ctas = row_split_ctas(s, w->rows),
        .threads = s->threads,
        .registers = registers,
        .ctas_per_sm = w->ctas_per_sm,
        .smem_bytes = w->smem_bytes,
        .wait_cycles = w->smem_bytes ? 0 : wait, // else a ring hides it
        .lines =
            tiles * accesses * memory_lines((double)(s->vec * element), (double)(s->row_threads * s->vec * element)),
        .elements = elements,
    };
    return memory_cost(&work, device);
}
