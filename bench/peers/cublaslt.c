/*
 * cublaslt.c - gemm by NVIDIA's cuBLASLt, with its fused epilogues: the algorithms that its heuristic names, and all
 * others.
 *
 * cuBLASLt's matrices are column-major. Our D [M,N] by rows is D^T [N,M] by columns, and D^T = B A^T: its first operand
 * is our B (of nt columns of length K, transposed), its second is our A. The bias runs along the rows of D^T: our
 * columns.
 */
#include <pthread.h>

#include "base/heap.h"
#include "base/math.h"
#include "bench/peers/cublaslt_library.h"
#include "bench/peers/peers.h"
#include "operators/gemm/gemm_config.h"
#include "operators/gemm/gemm_epilogues.h"
#include "operators/gemm/gemm_lab.h"
#include "cutekernellib/operators/gemm.h"

enum { A, B, C, BIAS, D }; // order of the operands

enum { HEURISTICS_MAX = 32 };

static const size_t WORKSPACE_BYTES = 32 << 20; // what cuBLAS itself takes on Hopper

struct peer_problem {
    const gemm_problem *gemm;
    ckl_device *device;
    lt_desc desc;
    lt_layout a, b, c, d;                  // in cuBLASLt's order: a is our B
    lt_heuristic found[PEER_VARIANTS_MAX]; // the heuristic's own, then all others
    int found_count, named_count;          // named by the heuristic
    void *workspace;
};

static lt_handle handle; // opened once, for the process

static ckl_status verdict(lt_status result, const char *call)
{
    if (result)
        FAIL(result == LT_NOT_SUPPORTED ? CKL_UNSUPPORTED : CKL_DEVICE_FAULT, "cublaslt: %s: status %d", call, result);
    return CKL_OK;
}

#define CALL(function, ...) TRY(verdict(lt.function(__VA_ARGS__), #function))

static ckl_status find_once(void)
{
    TRY(lt_load());
    if (!handle)
        CALL(cublasLtCreate, &handle);
    return CKL_OK;
}

static ckl_status find(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    ckl_status status = find_once();
    pthread_mutex_unlock(&lock);
    return status;
}

/* The library's number of a type, plus 1; 0: not asked for. */
static const int type_numbers[CKL_DTYPE_COUNT] = {
    [CKL_F32] = LT_R_32F + 1,      [CKL_F16] = LT_R_16F + 1, [CKL_BF16] = LT_R_16BF + 1, [CKL_E4M3] = LT_R_8F_E4M3 + 1,
    [CKL_E5M2] = LT_R_8F_E5M2 + 1, [CKL_I8] = LT_R_8I + 1,   [CKL_I32] = LT_R_32I + 1
};

static int type_of(ckl_dtype dtype)
{
    return type_numbers[dtype] - 1;
}

static ckl_status check_types(const ckl_gemm_desc *g)
{
    const ckl_dtype all[] = { g->a, g->b, g->d };
    for (int i = 0; i < COUNT_OF(all); i++)
        if (!type_numbers[all[i]])
            FAIL(CKL_UNSUPPORTED, "cublaslt: it is not asked for products with %s", ckl_dtype_name(all[i]));
    if (g->a == CKL_I8 && g->d != CKL_I32)
        FAIL(CKL_UNSUPPORTED, "cublaslt: it is not asked for products with i8 in %s", ckl_dtype_name(g->d));
    return CKL_OK;
}

static int compute_of(const ckl_gemm_desc *g)
{
    return g->a == CKL_I8 ? LT_COMPUTE_32I : g->math == CKL_GEMM_TF32 ? LT_COMPUTE_TF32 : LT_COMPUTE_32F;
}

/* The type of alpha and beta: integer where D is. */
static int scale_of(const ckl_gemm_desc *g)
{
    return g->d == CKL_I32 ? LT_R_32I : LT_R_32F;
}

/* 8-bit floats are summed as our kernels do it. */
static ckl_status set_accumulation(const ckl_gemm_desc *g, lt_desc desc)
{
    const int8_t fast = g->accumulation == CKL_GEMM_FAST;
    if (g->a == CKL_E4M3 || g->a == CKL_E5M2)
        CALL(cublasLtMatmulDescSetAttribute, desc, LT_DESC_FAST_SUMS, &fast, sizeof fast);
    return CKL_OK;
}

static ckl_status set(lt_desc desc, int attribute, int32_t value)
{
    return verdict(lt.cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), "an attribute");
}

static ckl_status create_desc(const ckl_gemm_desc *g, lt_desc *desc)
{
    static const int32_t activations[] = { [CKL_ACTIVATION_IDENTITY] = 0,
                                           [CKL_ACTIVATION_RELU] = LT_EPILOGUE_RELU,
                                           [CKL_ACTIVATION_GELU] = LT_EPILOGUE_GELU };
    int32_t epilogue = activations[g->activation] | (g->bias ? LT_EPILOGUE_BIAS : 0);
    CALL(cublasLtMatmulDescCreate, desc, compute_of(g), scale_of(g));
    TRY(set_accumulation(g, *desc));
    TRY(set(*desc, LT_DESC_TRANSPOSE_A, gemm_k_major((choice)g->layout, 'b') ? LT_OP_TRANSPOSED : LT_OP_NORMAL));
    TRY(set(*desc, LT_DESC_TRANSPOSE_B, gemm_k_major((choice)g->layout, 'a') ? LT_OP_NORMAL : LT_OP_TRANSPOSED));
    TRY(set(*desc, LT_DESC_EPILOGUE, epilogue ? epilogue : LT_EPILOGUE_DEFAULT));
    return g->bias ? set(*desc, LT_DESC_BIAS_TYPE, type_of(g->d)) : CKL_OK;
}

/* A matrix of ours: its rows are columns there. */
static ckl_status create_layout(const ckl_gemm_desc *g, char name, lt_layout *layout)
{
    const int32_t count = (int32_t)g->batch;
    const gemm_matrix x = gemm_matrix_of(g, name);
    CALL(cublasLtMatrixLayoutCreate, layout, type_of(x.type), (uint64_t)x.cols, (uint64_t)x.rows, x.ld);
    CALL(cublasLtMatrixLayoutSetAttribute, *layout, LT_LAYOUT_BATCH_COUNT, &count, sizeof count);
    CALL(cublasLtMatrixLayoutSetAttribute, *layout, LT_LAYOUT_BATCH_STRIDE, &x.stride, sizeof x.stride);
    return CKL_OK;
}

static ckl_status create_layouts(peer_problem *p)
{
    const ckl_gemm_desc *g = &p->gemm->desc;
    TRY(create_layout(g, 'b', &p->a));
    TRY(create_layout(g, 'a', &p->b));
    TRY(create_layout(g, g->c ? 'c' : 'd', &p->c));
    return create_layout(g, 'd', &p->d);
}

/* In cuBLASLt's order. */
static void read_alignments(void *const *pointers, uint32_t bytes[4])
{
    void *const ordered[] = { pointers[B], pointers[A], pointers[C] ? pointers[C] : pointers[D], pointers[D] };
    for (int i = 0; i < COUNT_OF(ordered); i++)
        bytes[i] = (uint32_t)min_i64(power_of_two_in((int64_t)(uintptr_t)ordered[i]), 256);
}

/* Split sums are added in f32: like ours, the result is rounded to D once. */
static ckl_status prefer(lt_preference preference, void *const *pointers)
{
    uint32_t schemes = LT_REDUCTION_IN_PLACE | LT_REDUCTION_COMPUTE_TYPE;
    uint32_t bytes[4];
    read_alignments(pointers, bytes);
    CALL(cublasLtMatmulPreferenceSetAttribute, preference, LT_PREFER_WORKSPACE_BYTES, &WORKSPACE_BYTES,
         sizeof WORKSPACE_BYTES);
    CALL(cublasLtMatmulPreferenceSetAttribute, preference, LT_PREFER_REDUCTION_SCHEMES, &schemes, sizeof schemes);
    for (int i = 0; i < COUNT_OF(bytes); i++)
        CALL(cublasLtMatmulPreferenceSetAttribute, preference, LT_PREFER_ALIGNMENT_A + i, &bytes[i], sizeof bytes[i]);
    return CKL_OK;
}

static ckl_status set_bias(const peer_problem *p, const void *bias)
{
    if (p->gemm->desc.bias)
        CALL(cublasLtMatmulDescSetAttribute, p->desc, LT_DESC_BIAS_POINTER, &bias, sizeof bias);
    return CKL_OK;
}

/* In the library's order: the first is the fastest by its heuristic. */
static ckl_status ask(peer_problem *p, lt_preference preference)
{
    lt_heuristic answers[HEURISTICS_MAX];
    int returned = 0;
    CALL(cublasLtMatmulAlgoGetHeuristic, handle, p->desc, p->a, p->b, p->c, p->d, preference, HEURISTICS_MAX, answers,
         &returned);
    for (int i = 0; i < returned; i++)
        if (answers[i].state == 0)
            p->found[p->found_count++] = answers[i];
    if (p->found_count == 0)
        FAIL(CKL_UNSUPPORTED, "cublaslt: no algorithm for this problem");
    p->named_count = p->found_count;
    return CKL_OK;
}

/* Adds algorithms that its heuristic did not name. */
static void search(peer_problem *p, void *const *pointers)
{
    const ckl_gemm_desc *g = &p->gemm->desc;
    lt_product product = { .handle = handle,
                           .desc = p->desc,
                           .a = p->a,
                           .b = p->b,
                           .c = p->c,
                           .d = p->d,
                           .compute = compute_of(g),
                           .scale = scale_of(g),
                           .type_a = type_of(g->b),
                           .type_b = type_of(g->a),
                           .type_d = type_of(g->d),
                           .workspace_bytes = WORKSPACE_BYTES };
    size_t written;
    read_alignments(pointers, product.alignment);
    (void)lt.cublasLtMatmulAlgoConfigGetAttribute(&p->found[0].algo, LT_ALGO_ID, &product.first_id,
                                                  sizeof product.first_id, &written);
    p->found_count += lt_enumerate(&product, &p->found[p->found_count], PEER_VARIANTS_MAX - p->found_count);
}

static ckl_status make_ready(peer_problem *p, void *const *pointers)
{
    lt_preference preference;
    TRY(create_desc(&p->gemm->desc, &p->desc));
    TRY(create_layouts(p));
    TRY(set_bias(p, pointers[BIAS]));
    TRY(ckl_malloc(p->device, WORKSPACE_BYTES, &p->workspace));
    CALL(cublasLtMatmulPreferenceCreate, &preference);
    ckl_status status = prefer(preference, pointers);
    if (status == CKL_OK)
        status = ask(p, preference);
    if (status == CKL_OK)
        search(p, pointers);
    (void)lt.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static void release(peer_problem *p)
{
    lt_layout layouts[] = { p->a, p->b, p->c, p->d };
    for (int i = 0; i < COUNT_OF(layouts); i++)
        if (layouts[i])
            (void)lt.cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->desc)
        (void)lt.cublasLtMatmulDescDestroy(p->desc);
    ckl_free(p->device, p->workspace);
    heap_free(p);
}

static ckl_status prepare(const test_case *c, ckl_device *device, void *const *pointers, peer_problem **out)
{
    const gemm_problem *g = c->problem;
    if (g->desc.m == 0 || g->desc.n == 0 || g->desc.k == 0)
        FAIL(CKL_UNSUPPORTED, "cublaslt: an empty matrix is not its problem");
    const ckl_gemm_desc *d = &g->desc;
    if (d->groups || gemm_has_weights(d) || gemm_has_block_scales((choice)d->scale_b))
        FAIL(CKL_UNSUPPORTED, "cublaslt: groups of rows, weights of integers and scales of blocks are not asked of it");
    if (d->pointers || d->gather || d->scatter || d->bias_gradient)
        FAIL(CKL_UNSUPPORTED, "cublaslt: arrays of pointers, lists of rows and sums beside D are not asked of it");
    if (d->activation > CKL_ACTIVATION_GELU || d->bias_along || d->scale_a || d->scale_b || d->scale_d ||
        d->device_scalars || d->preactivation || d->gated || d->weighted || d->amax || gemm_epilogue_find(d->epilogue))
        FAIL(CKL_UNSUPPORTED, "cublaslt: this epilogue is not asked of it");
    TRY(check_types(&g->desc));
    peer_problem *p = heap_alloc(1, sizeof *p);
    p->gemm = g;
    p->device = device;
    ckl_status status = make_ready(p, pointers);
    if (status == CKL_OK)
        *out = p;
    else
        release(p);
    return status;
}

static int variants(const peer_problem *p)
{
    return p->found_count;
}

static void describe(const peer_problem *p, int variant, text *out)
{
    static const struct {
        const char *name;
        int attribute;
        size_t bytes;
    } parts[] = { { "algo", LT_ALGO_ID, 4 },
                  { "tile", LT_ALGO_TILE, 4 },
                  { "stages", LT_ALGO_STAGES, 4 },
                  { "split_k", LT_ALGO_SPLIT_K, 4 },
                  { "cluster", LT_ALGO_CLUSTER, 2 } };
    bool named = variant < p->named_count;
    text_printf(out, "cublaslt %zu %s=%d", lt.cublasLtGetVersion(), named ? "heuristic" : "found",
                named ? variant : variant - p->named_count);
    for (int i = 0; i < COUNT_OF(parts); i++) {
        uint32_t value = 0; // little-endian: two bytes of it are a smaller number
        size_t written;
        if (lt.cublasLtMatmulAlgoConfigGetAttribute(&p->found[variant].algo, parts[i].attribute, &value, parts[i].bytes,
                                                    &written) == 0)
            text_printf(out, " %s=%u", parts[i].name, value);
    }
}

static ckl_status run(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream)
{
    const gemm_problem *g = p->gemm;
    const float zero = 0;
    const int32_t one = 1;
    const bool integers = g->desc.d == CKL_I32;
    const void *alpha = integers ? (const void *)&one : &g->alpha, *beta = g->c ? &g->beta : &zero;
    const void *c = g->c ? pointers[C] : pointers[D];
    TRY(set_bias(p, pointers[BIAS]));
    CALL(cublasLtMatmul, handle, p->desc, alpha, pointers[B], p->a, pointers[A], p->b, beta, c, p->c, pointers[D], p->d,
         &p->found[variant].algo, p->workspace, WORKSPACE_BYTES, stream);
    return CKL_OK;
}

const peer cublaslt_peer = PEER("cublaslt", "gemm");
