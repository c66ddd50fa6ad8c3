/*
 * cub.c - reductions by NVIDIA's CUB: what bench/peers/cub_reduce.cu compiles to, opened at run time.
 *
 * CUB reduces a whole tensor, or rows that follow each other without gaps. Its maximum and minimum do not keep NaN, so
 * they are raced on inputs without any.
 */
#include "base/heap.h"
#include "base/math.h"
#include "bench/peers/peers.h"
#include "operators/reduce/reduce_config.h"

static const size_t WORKSPACE_ALIGNMENT = 256;

/* The library's functions, and its numbers of operations and types. */
static struct {
    int (*version)(void);
    int (*workspace)(int op, int dtype, int64_t n, int64_t segments, size_t *bytes);
    int (*reduce)(int op, int dtype, const void *in, void *out, int64_t n, int64_t segments, void *workspace,
                  size_t bytes, void *stream);
} cub;

static const peer_function functions[] = { { "ckl_cub_version", 0 },
                                           { "ckl_cub_reduce_workspace", sizeof(void *) },
                                           { "ckl_cub_reduce", 2 * sizeof(void *) } };

static const peer_library library = {
    .name = "CUB peer",
    .needed = "what scripts/build-peers makes now",
    .variable = "CKL_CUB_PEER",
    .places = { "@/libckl_cub_peer.so", "build/libckl_cub_peer.so" },
    .advice = "scripts/build-peers makes build/libckl_cub_peer.so where nvcc is; CKL_CUB_PEER may name it",
    .functions = functions,
    .count = COUNT_OF(functions),
};

static ckl_status find(void)
{
    return peer_open(&library, &cub);
}

static const int op_numbers[] = { [CKL_REDUCE_SUM] = 1, [CKL_REDUCE_MAX] = 2, [CKL_REDUCE_MIN] = 3 }; // plus 1; 0: none
static const int dtype_numbers[] = { [CKL_F32] = 0, [CKL_F16] = 1, [CKL_BF16] = 2, [CKL_I32] = 3, [CKL_I64] = 4 };

struct peer_problem {
    ckl_device *device;
    int op, dtype;
    int64_t n, segments;
    void *workspace;
    size_t bytes;
};

/* Rows of n elements, one after another. */
static bool is_dense(const reduce_view *v)
{
    reduce_mode inner = v->reduced[0];
    bool contiguous = v->kind.reduced == 1 && inner.stride == 1;
    return contiguous && (v->kind.kept == 0 || (v->kind.kept == 1 && v->kept[0].stride == inner.extent));
}

static ckl_status prepare(const test_case *c, ckl_device *device, void *const *pointers, peer_problem **out)
{
    const ckl_reduce_desc *d = c->problem;
    reduce_view v = reduce_view_of(d);
    (void)pointers;
    if (d->fold || (int)d->op >= COUNT_OF(op_numbers) || op_numbers[d->op] == 0)
        FAIL(CKL_UNSUPPORTED, "cub: it is asked for sum, max and min only");
    if (d->output != d->dtype || !is_dense(&v) || v.rows == 0 || v.count == 0)
        FAIL(CKL_UNSUPPORTED, "cub: it reduces whole tensors and dense rows to their own type");
    peer_problem *p = heap_alloc(1, sizeof *p);
    *p = (peer_problem){ .device = device,
                         .op = op_numbers[d->op] - 1,
                         .dtype = dtype_numbers[d->dtype],
                         .n = v.count,
                         .segments = v.rows };
    int error = cub.workspace(p->op, p->dtype, p->n, p->segments, &p->bytes);
    ckl_status status = error ? CKL_DEVICE_FAULT : ckl_malloc(device, p->bytes + WORKSPACE_ALIGNMENT, &p->workspace);
    if (status == CKL_OK)
        *out = p;
    else
        heap_free(p);
    if (error)
        FAIL(CKL_DEVICE_FAULT, "cub: asking for its workspace: CUDA error %d", error);
    return status;
}

static void release(peer_problem *p)
{
    ckl_free(p->device, p->workspace);
    heap_free(p);
}

static int variants(const peer_problem *p)
{
    (void)p;
    return 1;
}

static void describe(const peer_problem *p, int variant, text *out)
{
    (void)variant;
    text_printf(out, "cub %d %s", cub.version(), p->segments == 1 ? "DeviceReduce" : "DeviceSegmentedReduce");
}

static ckl_status run(const peer_problem *p, int variant, void *const *pointers, ckl_stream stream)
{
    (void)variant;
    int error =
        cub.reduce(p->op, p->dtype, pointers[0], pointers[1], p->n, p->segments, p->workspace, p->bytes, stream);
    if (error)
        FAIL(CKL_DEVICE_FAULT, "cub: CUDA error %d", error);
    return CKL_OK;
}

const peer cub_peer = PEER("cub", "reduce");
