/* transpose_cost.c - what the kernels that transpose matrices cost: sectors of both sides, tiles and how full they are. */
#include "base/math.h"
#include "operators/permute/permute_config.h"
#include "skeletons/memory_cost.h"

enum { SECTOR_BYTES = 32, LINE_BYTES = 128, WARP = 32, REGISTERS = 20 };

/* Tiles as CTAs take them. */
typedef struct tiling {
    int rows, cols, threads;
    int64_t smem_bytes;
    double of_bytes; // elements of a kernel that streams which are as much work as 16 bytes of a tile
    bool cut_x;      // runs of x are cut at tiles only, not at sectors; of y likewise
    bool cut_y;
} tiling;

static double matrices_of(const permute_matrix *m)
{
    double matrices = 1;
    for (int i = 0; i < m->outer_count; i++)
        matrices *= (double)m->outer[i].size;
    return matrices;
}

/* Bytes of the sectors that runs touch. Those without gaps are one run; a part that does not begin with a sector shares two. */
static double sector_bytes(int64_t runs, int64_t run, int64_t pitch, int64_t parts, double of_part)
{
    const bool anywhere = pitch % SECTOR_BYTES != 0 && (pitch != run || parts > 1);
    return (double)runs * ((double)run + (anywhere ? of_part * SECTOR_BYTES * (double)parts : 0));
}

static plan_cost tiles_cost(const permutation *p, const tiling *t, const ckl_device_info *device)
{
    const permute_matrix *m = &p->matrix;
    const int64_t down = ceil_div(m->rows, t->rows), wide = ceil_div(m->cols, t->cols);
    const double matrices = matrices_of(m), tile_bytes = (double)t->rows * t->cols * p->bytes;
    static const double read = 0.5, written = 1.5; // more sectors a part: those that are written are read, too
    const double x = sector_bytes(m->rows, m->cols * p->bytes, m->ldx * p->bytes, t->cut_x ? wide : 1, read);
    const double y = sector_bytes(m->cols, m->rows * p->bytes, m->ldy * p->bytes, t->cut_y ? down : 1, written);
    const memory_work work = {
        .bytes = matrices * (x + y),
        .ctas = (int64_t)(matrices * (double)(down * wide)),
        .threads = t->threads,
        .registers = REGISTERS,
        .smem_bytes = t->smem_bytes,
        .lines = 2 * tile_bytes / t->threads * WARP / LINE_BYTES,
        .elements = tile_bytes / 16 / t->threads * t->of_bytes,
        .meets = true,
    };
    return memory_cost(&work, device);
}

plan_cost transpose_sm90_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { OF_BYTES = 16 };
    const transpose_sm90_config *c = config;
    const tiling t = { c->tile_r, c->tile_c, c->threads, transpose_sm90_smem_bytes(c), OF_BYTES, true, true };
    return tiles_cost(problem, &t, device);
}

plan_cost transpose_sm80_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    static const double of_bytes[] = { [1] = 60, [2] = 50, [4] = 40, [8] = 20 };
    const transpose_sm80_config *c = config;
    const tiling t = { .rows = c->tile_r,
                       .cols = c->tile_c,
                       .threads = c->threads,
                       .smem_bytes = transpose_sm80_smem_bytes(c),
                       .of_bytes = of_bytes[c->bytes],
                       .cut_x = true,
                       .cut_y = c->align < SECTOR_BYTES };
    return tiles_cost(problem, &t, device);
}

plan_cost transpose_narrow_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    static const double of_bytes[] = { [1] = 90, [2] = 70, [4] = 60, [8] = 30 };
    const transpose_narrow_config *c = config;
    const tiling t = { .rows = c->tile_r,
                       .cols = c->tile_c,
                       .threads = c->threads,
                       .smem_bytes = transpose_narrow_smem_bytes(c),
                       .of_bytes = of_bytes[c->bytes],
                       .cut_x = !c->short_x };
    return tiles_cost(problem, &t, device);
}
