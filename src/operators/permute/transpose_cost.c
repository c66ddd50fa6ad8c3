/*
 * transpose_cost.c - what the kernels that transpose matrices cost: sectors of both sides, and tiles by how full they
 * are.
 */
#include <math.h>

#include "base/math.h"
#include "operators/permute/permute_config.h"
#include "skeletons/memory_cost.h"

enum { SECTOR_BYTES = 32, LINE_BYTES = 128, BANKS = 32, REGISTERS = 20 };

enum { FROM_L2 = 1000 }; // cycles that a tile of sm90 or narrow which was prefetched comes earlier

/* Cycles that a CTA of sm80 or narrow waits for its tile, beside those of a kernel that streams and reduces. */
static double tile_wait(double tile_bytes, double no_reduction)
{
    const double CYCLES_A_BYTE = 0.3;
    return CYCLES_A_BYTE * tile_bytes - no_reduction;
}

/* Tiles as CTAs take them. */
typedef struct tiling {
    int rows, cols, threads;
    int64_t smem_bytes;
    double rate;     // cost of a byte of memory; 1 in a kernel that streams
    double wait;     // cycles that a CTA waits beside those of every kernel
    double of_bytes; // work of 16 bytes of a tile, in elements of a kernel that streams
    double of_tile;  // and of a thread beside that of its bytes
    bool cut_x;      // runs of x are cut at tiles only, not at sectors; of y likewise
    bool cut_y;
    int turns; // of shared memory for the word of each thread, all of its elements together
} tiling;

int permute_bank_turns(const int64_t places[PERMUTE_WARP])
{
    int asked[BANKS] = { 0 }, most = 1;
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        const int64_t word = places[lane] / 4;
        bool known = false;
        for (int other = 0; other < lane; other++)
            known |= places[other] / 4 == word;
        if (!known)
            most = (int)max_i64(most, ++asked[word % BANKS]);
    }
    return most;
}

static double matrices_of(const permute_matrix *m)
{
    double matrices = 1;
    for (int i = 0; i < m->outer_count; i++)
        matrices *= (double)m->outer[i].size;
    return matrices;
}

/* Bytes of the sectors that runs touch. Those without gaps are one run; a cut inside a sector touches it twice. */
static double sector_bytes(int64_t runs, int64_t run, int64_t pitch, int64_t cuts, double more)
{
    const bool anywhere = pitch % SECTOR_BYTES != 0 && (pitch != run || cuts > 1);
    return (double)runs * ((double)run + (anywhere ? more * SECTOR_BYTES * (double)cuts : 0));
}

static plan_cost tiles_cost(const permutation *p, const tiling *t, const ckl_device_info *device)
{
    const permute_matrix *m = &p->matrix;
    const int64_t down = ceil_div(m->rows, t->rows), wide = ceil_div(m->cols, t->cols);
    const double matrices = matrices_of(m), tile_bytes = (double)t->rows * t->cols * p->bytes;
    static const double read = 0.5, written = 1.5; // more sectors for each cut: those that are written are read, too
    const double x = sector_bytes(m->rows, m->cols * p->bytes, m->ldx * p->bytes, t->cut_x ? wide : 1, read);
    const double y = sector_bytes(m->cols, m->rows * p->bytes, m->ldy * p->bytes, t->cut_y ? down : 1, written);
    const memory_work work = {
        .of = PERMUTE_KERNEL,
        .bytes = t->rate * matrices * (x + y),
        .ctas = (int64_t)(matrices * (double)(down * wide)),
        .threads = t->threads,
        .registers = REGISTERS,
        .smem_bytes = t->smem_bytes,
        .wait_cycles = t->wait,
        .lines = tile_bytes / t->threads * (2.0 * PERMUTE_WARP / LINE_BYTES + t->turns / 4.0),
        .elements = t->of_tile + tile_bytes / 16 / t->threads * t->of_bytes,
        .meets = true,
    };
    return memory_cost(&work, device);
}

/* Each thread of a warp writes a sector of its own. */
plan_cost transpose_naive_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_naive_config *c = config;
    const tiling t = { .rows = c->threads / TRANSPOSE_NAIVE_COLS,
                       .cols = TRANSPOSE_NAIVE_COLS,
                       .threads = c->threads,
                       .rate = 3.5,
                       .of_bytes = 100 };
    return tiles_cost(p, &t, device);
}

plan_cost transpose_tiled_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_tiled_config *c = config;
    const tiling t = {
        .rows = c->tile, .cols = c->tile, .threads = c->tile * TRANSPOSE_TILED_ROWS, .rate = 1, .of_bytes = 70
    };
    return tiles_cost(p, &t, device);
}

plan_cost transpose_sm90_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { BYTES_A_CYCLE = 5, NO_REDUCTION = 1900 }; // of a tile: TMA moves all of it, inside the matrix or not
    static const double of_bytes[] = { [1] = 24, [2] = 16, [4] = 16, [8] = 16 };
    const transpose_sm90_config *c = config;
    const tiling t = { .rows = c->tile_r,
                       .cols = c->tile_c,
                       .threads = c->threads,
                       .smem_bytes = transpose_sm90_smem_bytes(c),
                       .rate = 0.94,
                       .wait = (double)c->tile_r * c->tile_c * c->bytes / BYTES_A_CYCLE - NO_REDUCTION -
                               (c->prefetch ? FROM_L2 : 0),
                       .of_bytes = of_bytes[c->bytes],
                       .cut_x = true,
                       .cut_y = true };
    return tiles_cost(problem, &t, device);
}

plan_cost transpose_sm80_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    // Instructions of a warp as the emulator counts them, within a tenth: 160 and 47 for each class of rows of y, of 16 bytes 162 to 48.
    static const double of_bytes[] = { [1] = 123, [2] = 72, [4] = 57, [8] = 36 }, OF_TILE = 120, OF_CLASS = 36;
    const double NO_REDUCTION = 2000;
    const transpose_sm80_config *c = config;
    const double idle =
        fmax(1, PERMUTE_WARP * transpose_word_bytes(c->bytes) / (double)(c->tile_r * c->bytes)); // lanes
    const int64_t classes = ceil_div(c->align / c->bytes, c->threads / c->lanes);                // of a warp
    const tiling t = { .rows = c->tile_r,
                       .cols = c->tile_c,
                       .threads = c->threads,
                       .smem_bytes = transpose_sm80_smem_bytes(c),
                       .rate = 1,
                       .wait = tile_wait((double)c->tile_r * c->tile_c * c->bytes, NO_REDUCTION),
                       .of_bytes = of_bytes[c->bytes] * idle,
                       .of_tile = OF_TILE + OF_CLASS * (double)classes,
                       .cut_x = true,
                       .cut_y = c->align < SECTOR_BYTES };
    return tiles_cost(problem, &t, device);
}

/* Accesses to shared memory for the words that a warp stores: of neighbouring rows, or of a few runs of x. */
static int narrow_turns(const permutation *p, const transpose_narrow_config *c)
{
    const int elements = transpose_word_bytes(c->bytes) / c->bytes;
    const int64_t run_bytes = transpose_narrow_smem_bytes(c) / c->tile_r; // of short rows of y
    int64_t places[PERMUTE_WARP];
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        const int64_t i = (int64_t)lane * elements;
        places[lane] =
            c->short_x ? i * p->matrix.cols * c->bytes : i % p->matrix.rows * run_bytes + i / p->matrix.rows * c->bytes;
    }
    return elements * permute_bank_turns(places);
}

plan_cost transpose_narrow_cost(const void *problem, const ckl_device_info *device, const void *config)
{
    const double NO_REDUCTION = 1250;
    static const double of_bytes[] = { [1] = 90, [2] = 70, [4] = 60, [8] = 30 };
    const transpose_narrow_config *c = config;
    const tiling t = { .rows = c->tile_r,
                       .cols = c->tile_c,
                       .threads = c->threads,
                       .smem_bytes = transpose_narrow_smem_bytes(c),
                       .rate = 0.93,
                       .wait = tile_wait((double)c->tile_r * c->tile_c * c->bytes, NO_REDUCTION) -
                               (c->prefetch ? FROM_L2 : 0),
                       .of_bytes = of_bytes[c->bytes],
                       .cut_x = !c->short_x,
                       .turns = narrow_turns(problem, c) / 2 };
    return tiles_cost(problem, &t, device);
}
