/*
 * cub_reduce.cu - reductions by NVIDIA's CUB, behind C functions: a small library of its own (scripts/build-peers),
 * because it alone needs nvcc. bench/peers/cub.c opens it and gives the numbers of `op` and `dtype` a meaning.
 *
 * Halves are added in f32, as ours: CUB takes the type of the operator's result for its accumulator, and so still loads
 * vectors of halves.
 */
#include <cstdint>
#include <limits>

#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

namespace
{

enum op { SUM, MAX, MIN };
enum dtype { F32, F16, BF16, I32, I64 };

template <typename T> struct accumulator {
    using type = T;
};
template <> struct accumulator<__half> {
    using type = float;
};
template <> struct accumulator<__nv_bfloat16> {
    using type = float;
};

template <typename A> struct plus {
    __device__ A operator()(A a, A b) const
    {
        return a + b;
    }
};

template <typename A> struct larger {
    __device__ A operator()(A a, A b) const
    {
        return a < b ? b : a;
    }
};

template <typename A> struct smaller {
    __device__ A operator()(A a, A b) const
    {
        return b < a ? b : a;
    }
};

/* Where segment i starts. */
struct start {
    int64_t n;
    __host__ __device__ int64_t operator()(int64_t i) const
    {
        return i * n;
    }
};

/* One call of CUB's: where, how much, on which stream. */
struct call {
    void *workspace;
    size_t *bytes;
    const void *in;
    void *out;
    int64_t n, segments;
    cudaStream_t stream;
};

template <typename T, typename Op> cudaError_t reduce_by(const call &c, Op op, typename accumulator<T>::type identity)
{
    const T *in = static_cast<const T *>(c.in);
    T *out = static_cast<T *>(c.out);
    if (c.segments == 1)
        return cub::DeviceReduce::Reduce(c.workspace, *c.bytes, in, out, c.n, op, identity, c.stream);
    auto begin = thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), start{ c.n });
    return cub::DeviceSegmentedReduce::Reduce(c.workspace, *c.bytes, in, out, c.segments, begin, begin + 1, op,
                                              identity, c.stream);
}

template <typename T> cudaError_t reduce(int what, const call &c)
{
    using A = typename accumulator<T>::type;
    using limits = std::numeric_limits<A>;
    switch (what) {
    case SUM:
        return reduce_by<T>(c, plus<A>{}, A(0));
    case MAX:
        return reduce_by<T>(c, larger<A>{}, limits::has_infinity ? -limits::infinity() : limits::lowest());
    case MIN:
        return reduce_by<T>(c, smaller<A>{}, limits::has_infinity ? limits::infinity() : limits::max());
    default:
        return cudaErrorNotSupported;
    }
}

cudaError_t dispatch(int what, int type, const call &c)
{
    switch (static_cast<dtype>(type)) {
    case F32:
        return reduce<float>(what, c);
    case F16:
        return reduce<__half>(what, c);
    case BF16:
        return reduce<__nv_bfloat16>(what, c);
    case I32:
        return reduce<int32_t>(what, c);
    case I64:
        return reduce<int64_t>(what, c);
    }
    return cudaErrorInvalidValue;
}

} // namespace

extern "C" {

/* CUB's version, e.g. 300001. */
__attribute__((visibility("default"))) int ckl_cub_version(void)
{
    return CUB_VERSION;
}

/* Bytes that ckl_cub_reduce() needs for the same arguments; 0 on success, else a cudaError_t. */
__attribute__((visibility("default"))) int ckl_cub_reduce_workspace(int op, int dtype, int64_t n, int64_t segments,
                                                                    size_t *bytes)
{
    *bytes = 0;
    return dispatch(op, dtype, call{ nullptr, bytes, nullptr, nullptr, n, segments, nullptr });
}

/* out[s] = op of in[s*n] ... in[s*n + n-1]; enqueues on a stream of the primary context. */
__attribute__((visibility("default"))) int ckl_cub_reduce(int op, int dtype, const void *in, void *out, int64_t n,
                                                          int64_t segments, void *workspace, size_t bytes, void *stream)
{
    return dispatch(op, dtype, call{ workspace, &bytes, in, out, n, segments, static_cast<cudaStream_t>(stream) });
}
}
