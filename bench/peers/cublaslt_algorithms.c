/* cublaslt_algorithms.c - all algorithms of cuBLASLt that take a product: its heuristic names few of them. */
#include "base/heap.h"
#include "base/math.h"
#include "base/random.h"
#include "bench/peers/cublaslt_library.h"

enum { IDS_MAX = 256, CHECKS_MAX = 6000, CLUSTERS = 1 + LT_CLUSTER_2X2 - LT_CLUSTER_1X1 + 1 };

/* An algorithm before it is configured: its combinations are tiles by stages by clusters. */
typedef struct family {
    lt_algo algo;
    uint32_t *tiles, *stages;
    int tile_count, stage_count;
} family;

/* One value, 0, where the algorithm lists none. */
static uint32_t *read_list(const lt_algo *algo, int capability, int *count)
{
    size_t bytes = 0, written;
    (void)lt.cublasLtMatmulAlgoCapGetAttribute(algo, capability, NULL, 0, &bytes);
    uint32_t *list = heap_alloc(bytes / sizeof *list + 1, sizeof *list);
    if (bytes && lt.cublasLtMatmulAlgoCapGetAttribute(algo, capability, list, bytes, &written) != 0)
        bytes = 0;
    *count = (int)max_i64(1, (int64_t)(bytes / sizeof *list));
    return list;
}

/* NOTE: cublasLtMatmulAlgoCheck() does not know the pointers. */
static bool suits_pointers(const lt_product *p, const lt_algo *algo)
{
    for (int i = 0; i < COUNT_OF(p->alignment); i++) {
        uint32_t least = 0;
        size_t written;
        if (lt.cublasLtMatmulAlgoCapGetAttribute(algo, LT_CAP_ALIGNMENT_A + i, &least, sizeof least, &written) == 0 &&
            least > p->alignment[i])
            return false;
    }
    return true;
}

static int read_families(const lt_product *p, family *families)
{
    int ids[IDS_MAX], returned = 0, count = 0;
    (void)lt.cublasLtMatmulAlgoGetIds(p->handle, p->compute, p->scale, p->type_a, p->type_b, p->type_d, p->type_d,
                                      IDS_MAX, ids, &returned);
    for (int i = 1; i < returned; i++)
        if (ids[i] == p->first_id) {
            ids[i] = ids[0];
            ids[0] = p->first_id;
        }
    for (int i = 0; i < returned; i++) {
        family *f = &families[count];
        if (lt.cublasLtMatmulAlgoInit(p->handle, p->compute, p->scale, p->type_a, p->type_b, p->type_d, p->type_d,
                                      ids[i], &f->algo) != 0 ||
            !suits_pointers(p, &f->algo))
            continue;
        f->tiles = read_list(&f->algo, LT_CAP_TILES, &f->tile_count);
        f->stages = read_list(&f->algo, LT_CAP_STAGES, &f->stage_count);
        count++;
    }
    return count;
}

/* Combination number `number` of a family, if the library takes it for the product. */
static bool configure(const lt_product *p, const family *f, int64_t number, lt_heuristic *result)
{
    int64_t cluster_number = number % CLUSTERS, stage = number / CLUSTERS % f->stage_count;
    const uint32_t *tile = &f->tiles[number / CLUSTERS / f->stage_count];
    uint16_t cluster = (uint16_t)(cluster_number ? LT_CLUSTER_1X1 + cluster_number - 1 : LT_CLUSTER_AUTO);
    lt_algo algo = f->algo;
    if (lt.cublasLtMatmulAlgoConfigSetAttribute(&algo, LT_ALGO_TILE, tile, sizeof *tile) != 0 ||
        lt.cublasLtMatmulAlgoConfigSetAttribute(&algo, LT_ALGO_STAGES, &f->stages[stage], sizeof *f->stages) != 0 ||
        lt.cublasLtMatmulAlgoConfigSetAttribute(&algo, LT_ALGO_CLUSTER, &cluster, sizeof cluster) != 0)
        return false;
    *result = (lt_heuristic){ 0 };
    if (lt.cublasLtMatmulAlgoCheck(p->handle, p->desc, p->a, p->b, p->c, p->d, &algo, result) != 0)
        return false;
    result->algo = algo;
    return result->state == 0 && result->workspace_bytes <= p->workspace_bytes;
}

/* Draws `most` of `all` at random: neighbours are much alike. */
static bool is_drawn(int64_t number, int64_t all, int64_t most)
{
    return (int64_t)(random_at(1, (uint64_t)number) >> 33) % max_i64(all, 1) < most;
}

/* A family's combination that is to be checked. */
typedef struct candidate {
    const family *family;
    int64_t number; // of the family's combinations
    bool valid;
} candidate;

/* At most CHECKS_MAX of all combinations. */
static int draw_candidates(const family *families, int count, candidate *drawn)
{
    int64_t all = 0, number = 0;
    int drawn_count = 0;
    for (int i = 0; i < count; i++)
        all += (int64_t)families[i].tile_count * families[i].stage_count * CLUSTERS;
    for (int i = 0; i < count; i++) {
        int64_t combinations = (int64_t)families[i].tile_count * families[i].stage_count * CLUSTERS;
        for (int64_t j = 0; j < combinations && drawn_count < CHECKS_MAX; j++)
            if (is_drawn(number++, all, CHECKS_MAX))
                drawn[drawn_count++] = (candidate){ &families[i], j, false };
    }
    return drawn_count;
}

/* Checks with all threads, as a check takes the library 0.1 ms; keeps what it takes, in order. */
static int check_candidates(const lt_product *p, candidate *drawn, int count, lt_heuristic *found)
{
    int found_count = 0;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < count; i++)
        drawn[i].valid = configure(p, drawn[i].family, drawn[i].number, &found[i]);
    for (int i = 0; i < count; i++)
        if (drawn[i].valid)
            found[found_count++] = found[i];
    return found_count;
}

int lt_enumerate(const lt_product *p, lt_heuristic *found, int max)
{
    static family families[IDS_MAX];
    int kept = 0, count = read_families(p, families);
    candidate *drawn = heap_alloc(CHECKS_MAX, sizeof *drawn);
    lt_heuristic *valid = heap_alloc(CHECKS_MAX, sizeof *valid);
    int valid_count = check_candidates(p, drawn, draw_candidates(families, count, drawn), valid);
    for (int i = 0; i < valid_count && kept < max; i++)
        if (is_drawn(i, valid_count, max))
            found[kept++] = valid[i];
    heap_free(valid);
    heap_free(drawn);
    for (int i = 0; i < count; i++) {
        heap_free(families[i].tiles);
        heap_free(families[i].stages);
    }
    return kept;
}
