/*
 * unit_mma.c - two products in a row, O = (Q * K^T) * V, as attention computes them: the first one's accumulators are
 * the second one's A, and V is MN-major. Sums of small integers, equal to the host's.
 */
#include "emulated_device.h"
#include "unit_emulator.h"

#undef HERE
#include "base/dtype.h"
#include "cute/kernel.h"

enum { THREADS = 128, ROWS = 64, D = 64, CHUNK = 64, KEYS_MAX = 128, DV_MAX = 128, SPAN = 128, HALVES_MAX = 1 << 15 };

static struct {
    ckl_dtype dtype;
    int keys, dv; // of V: columns that are multiplied; it is stored in whole chunks
    bool wgmma;
} now;

static int chunks_of(int columns)
{
    return (columns + CHUNK - 1) / CHUNK;
}

/* (ROWS,CHUNK,CHUNKS) in shared memory, loaded from the rows of x that begin at `first`. */
static tensor load(const char *name, int rows, int columns, int64_t first)
{
    int chunks = chunks_of(columns), pitch = chunks * CHUNK;
    layout tile = tma_tile_layout(now.dtype, rows, CHUNK, SPAN);
    layout all = make_layout(shape(rows, CHUNK, chunks), stride(CHUNK, 1, rows * CHUNK));
    tensor sX = smem_tensor(name, now.dtype, with_swizzle(tile.sw, all), 1024);
    tensor gX = gmem_tensor(add(pointer("x"), imm64(2 * first)), now.dtype,
                            make_layout(shape(rows, CHUNK, chunks), stride(pitch, 1, CHUNK)));
    tiled_copy each =
        make_tiled_copy("UniversalCopy<128>", now.dtype, compact_right(shape(16, 8)), compact_right(shape(1, 8)));
    for (int c = 0; c < chunks; c++) {
        tensor tXgX = partition_S(&each, slice(gX, _, _, c), thread()), rX = fragment_like(tXgX, now.dtype);
        copy_tiled(&each, tXgX, rX);
        copy_tiled(&each, rX, partition_D(&each, slice(sX, _, _, c), thread()));
    }
    return sX;
}

/* V turned: (DV,KEYS). */
static tensor turned(tensor sV)
{
    int chunks = chunks_of(now.dv);
    layout t = make_layout(shape(shape(CHUNK, chunks), now.keys), stride(stride(1, now.keys * CHUNK), CHUNK));
    return tensor_with_layout(sV, with_swizzle(sV.layout.sw, t));
}

static tensor by_wgmma(tensor sQ, tensor sK, tensor sV, tiled_mma *pv)
{
    char name[ATOM_NAME_MAX];
    const char *types = now.dtype == F16 ? "F16F16" : "BF16BF16";
    snprintf(name, sizeof name, "SM90_64x%dx16_F32%s_SS", now.keys, types);
    tiled_mma qk = make_tiled_mma(name, 1, 1);
    snprintf(name, sizeof name, "SM90_64x%dx16_F32%s_RS", now.dv, types);
    *pv = make_tiled_mma(name, 1, 1);
    tensor scores = fragment_C(&qk, ROWS, now.keys), out = fragment_C(pv, ROWS, now.dv);
    tensor weights = fragment_A_words(pv, ROWS, now.keys);
    fence_proxy_async();
    cta_sync();
    mma_fence();
    gemm(&qk, descriptors_A(&qk, slice(sQ, _, _, 0)), descriptors_B(&qk, slice(sK, _, _, 0)), scores,
         ir_int(IR_PRED, 0));
    mma_commit();
    mma_wait(0);
    accumulators_to_A(scores, now.dtype, weights);
    mma_fence();
    gemm(pv, weights, descriptors_B(pv, turned(sV)), out, ir_int(IR_PRED, 0));
    mma_commit();
    mma_wait(0);
    return out;
}

static tensor by_mma_sync(tensor sQ, tensor sK, tensor sV, tiled_mma *mma)
{
    *mma = make_tiled_mma(now.dtype == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 4, 1);
    tensor rQ = fragment_A(mma, ROWS, D), rK = fragment_B(mma, now.keys, D), rV = fragment_B(mma, now.dv, now.keys);
    tensor scores = fragment_C(mma, ROWS, now.keys), out = fragment_C(mma, ROWS, now.dv);
    tensor weights = fragment_A_words(mma, ROWS, now.keys);
    tiled_copy transposed = make_tiled_copy_B("SM75_U16x8_LDSM_T", now.dtype, mma, now.dv, now.keys);
    cta_sync();
    ldmatrix_A(mma, slice(sQ, _, _, 0), thread(), rQ);
    ldmatrix_B(mma, slice(sK, _, _, 0), thread(), rK);
    copy_tiled(&transposed, partition_S(&transposed, turned(sV), thread()), rV);
    fill(scores, immf(0));
    fill(out, immf(0));
    gemm(mma, rQ, rK, scores, yes());
    accumulators_to_A(scores, now.dtype, weights);
    gemm(mma, weights, rV, out, yes());
    return out;
}

static void describe_products(void)
{
    tensor sQ = load("Q", ROWS, D, 0), sK = load("K", now.keys, D, ROWS * D);
    tensor sV = load("V", now.keys, now.dv, (int64_t)(ROWS + now.keys) * D);
    tiled_mma mma;
    tensor out = now.wgmma ? by_wgmma(sQ, sK, sV, &mma) : by_mma_sync(sQ, sK, sV, &mma);
    tensor gO = gmem_tensor(pointer("o"), F32, make_layout(shape(ROWS, now.dv), stride(now.dv, 1)));
    copy(out, partition_C(&mma, gO, thread()), 8);
}

static uint16_t x[HALVES_MAX];
static float o[ROWS * DV_MAX];
static int whole[HALVES_MAX];

static int at_host(int first, int pitch, int i, int j)
{
    return whole[first + i * pitch + j];
}

static void check_products(bool wgmma, ckl_dtype dtype, int keys, int dv)
{
    int first_v = (ROWS + keys) * D, pitch_v = chunks_of(dv) * CHUNK, count = first_v + keys * pitch_v;
    now.wgmma = wgmma, now.dtype = dtype, now.keys = keys, now.dv = dv;
    for (int i = 0; i < count; i++) {
        whole[i] = (int)((uint32_t)i * 2654435761u >> 20) % 3 - 1;
        x[i] = dtype == CKL_F16 ? f16_from_f32((float)whole[i]) : bf16_from_f32((float)whole[i]);
    }
    void *from = test_upload(device, x, sizeof x), *to = test_upload(device, NULL, sizeof o);
    test_kernel k = { describe_products, wgmma ? IR_SM90A : IR_SM80, .threads = THREADS };
    assert_ok(test_run(device, k, (void *[]){ &from, &to }));
    assert_ok(device->ops->copy_out(device, o, to, (size_t)(ROWS * dv) * 4, NULL));
    for (int i = 0; i < ROWS; i++) {
        int score[KEYS_MAX] = { 0 };
        for (int j = 0; j < keys; j++)
            for (int l = 0; l < D; l++)
                score[j] += at_host(0, D, i, l) * at_host(ROWS * D, D, j, l);
        for (int c = 0; c < dv; c++) {
            int sum = 0;
            for (int j = 0; j < keys; j++)
                sum += score[j] * at_host(first_v, pitch_v, j, c);
            if (o[i * dv + c] != (float)sum)
                fail_msg("%s, %d keys, dv=%d: row %d, column %d", wgmma ? "wgmma" : "mma.sync", keys, dv, i, c);
        }
    }
}

TEST(products)
{
    static const struct {
        int keys, dv;
    } sizes[] = { { 16, 64 }, { 64, 16 }, { 48, 80 }, { 128, 128 }, { 80, 72 } };
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        check_products(true, CKL_F16, sizes[i].keys, sizes[i].dv);
        check_products(true, CKL_BF16, sizes[i].keys, sizes[i].dv);
    }
    check_products(false, CKL_F16, 64, 64);
    check_products(false, CKL_BF16, 32, 128);
}

RUN_TESTS(open_device, close_device)
