/*
 * fake_cublaslt.c - a library with the functions of cuBLASLt that the peer calls: algorithms that compute nothing. An
 * algo holds its id, tile, stages and cluster.
 */
#include <string.h>

#include "bench/peers/cublaslt_library.h"

#define EXPORT __attribute__((visibility("default")))

enum { INVALID = 7, TILES_MAX = 4096, MANY_TILES = 1, FEW_TILES = 2, DEMANDING = 3 }; // the last ones are ids

static int tiles = 3;
static lt_algo last;

EXPORT void fake_cublaslt_tiles(int count)
{
    tiles = count;
}

EXPORT const lt_algo *fake_cublaslt_last(void)
{
    return &last;
}

#define DO_NOTHING(function, ...)           \
    EXPORT lt_status function(__VA_ARGS__); \
    EXPORT lt_status function(__VA_ARGS__)  \
    {                                       \
        return 0;                           \
    }

DO_NOTHING(cublasLtCreate, lt_handle *handle)
DO_NOTHING(cublasLtMatmulDescCreate, lt_desc *desc, int compute_type, int scale_type)
DO_NOTHING(cublasLtMatmulDescDestroy, lt_desc desc)
DO_NOTHING(cublasLtMatmulDescSetAttribute, lt_desc desc, int attribute, const void *value, size_t bytes)
DO_NOTHING(cublasLtMatrixLayoutCreate, lt_layout *layout, int type, uint64_t rows, uint64_t columns, int64_t ld)
DO_NOTHING(cublasLtMatrixLayoutDestroy, lt_layout layout)
DO_NOTHING(cublasLtMatrixLayoutSetAttribute, lt_layout layout, int attribute, const void *value, size_t bytes)
DO_NOTHING(cublasLtMatmulPreferenceCreate, lt_preference *preference)
DO_NOTHING(cublasLtMatmulPreferenceDestroy, lt_preference preference)
DO_NOTHING(cublasLtMatmulPreferenceSetAttribute, lt_preference preference, int attribute, const void *value,
           size_t bytes)

EXPORT size_t cublasLtGetVersion(void)
{
    return 1;
}

/* Two: the second one is tile 1 of FEW_TILES. */
EXPORT lt_status cublasLtMatmulAlgoGetHeuristic(lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c,
                                                lt_layout d, lt_preference preference, int requested,
                                                lt_heuristic *results, int *returned)
{
    for (int i = 0; i < 2; i++)
        results[i] = (lt_heuristic){ .algo = { { FEW_TILES, (uint64_t)i } } };
    *returned = 2;
    return 0;
}

EXPORT lt_status cublasLtMatmulAlgoGetIds(lt_handle handle, int compute_type, int scale_type, int a, int b, int c,
                                          int d, int requested, int *ids, int *returned)
{
    for (int i = 0; i < 3; i++)
        ids[i] = MANY_TILES + i;
    *returned = 3;
    return 0;
}

EXPORT lt_status cublasLtMatmulAlgoInit(lt_handle handle, int compute_type, int scale_type, int a, int b, int c, int d,
                                        int id, lt_algo *algo)
{
    *algo = (lt_algo){ { (uint64_t)id } };
    return 0;
}

EXPORT lt_status cublasLtMatmulAlgoCapGetAttribute(const lt_algo *algo, int attribute, void *value, size_t bytes,
                                                   size_t *written)
{
    uint32_t list[TILES_MAX];
    int id = (int)algo->data[0], count = 1;
    list[0] = id == DEMANDING ? 1 << 20 : 16; // an alignment
    if (attribute == LT_CAP_TILES || attribute == LT_CAP_STAGES) {
        count = attribute == LT_CAP_STAGES || id != MANY_TILES ? 0 : tiles;
        for (int i = 0; i < count; i++)
            list[i] = (uint32_t)i + 1;
    }
    *written = (size_t)count * sizeof *list;
    if (bytes && bytes != *written)
        return INVALID;
    if (bytes)
        memcpy(value, list, bytes);
    return 0;
}

EXPORT lt_status cublasLtMatmulAlgoConfigSetAttribute(lt_algo *algo, int attribute, const void *value, size_t bytes)
{
    int place = attribute == LT_ALGO_TILE ? 1 : attribute == LT_ALGO_STAGES ? 2 : 3;
    algo->data[place] = 0;
    memcpy(&algo->data[place], value, bytes);
    return bytes == (attribute == LT_ALGO_CLUSTER ? 2 : 4) ? 0 : INVALID;
}

EXPORT lt_status cublasLtMatmulAlgoConfigGetAttribute(const lt_algo *algo, int attribute, void *value, size_t bytes,
                                                      size_t *written)
{
    static const int places[] = { [LT_ALGO_ID] = 0, [LT_ALGO_TILE] = 1, [LT_ALGO_STAGES] = 2, [LT_ALGO_CLUSTER] = 3 };
    if (attribute == LT_ALGO_SPLIT_K)
        return INVALID;
    memcpy(value, &algo->data[places[attribute]], bytes);
    return 0;
}

/* Tile 2 takes no cluster, tile 3 more workspace than there is. */
EXPORT lt_status cublasLtMatmulAlgoCheck(lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c,
                                         lt_layout d, const lt_algo *algo, lt_heuristic *result)
{
    if (algo->data[1] == 2 && algo->data[3] > LT_CLUSTER_1X1)
        return LT_NOT_SUPPORTED;
    result->workspace_bytes = algo->data[1] == 3 ? (size_t)1 << 40 : 0;
    return 0;
}

EXPORT lt_status cublasLtMatmul(lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_layout,
                                const void *b, lt_layout b_layout, const void *beta, const void *c, lt_layout c_layout,
                                void *d, lt_layout d_layout, const lt_algo *algo, void *workspace,
                                size_t workspace_bytes, void *stream)
{
    last = *algo;
    return 0;
}
