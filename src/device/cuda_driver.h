/*
 * cuda_driver.h - the part of the CUDA driver API that we call, declared here so that building needs no CUDA headers.
 * The library libcuda.so.1 is loaded at run time.
 */
#pragma once

#include "base/status.h"

typedef int cu_result; // 0 is success
typedef int cu_device;
typedef uint64_t cu_pointer;
typedef struct CUctx_st *cu_context;
typedef struct CUlib_st *cu_library;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUlinkState_st *cu_link;
typedef void *cu_stream, *cu_event, *cu_graph, *cu_graph_exec;

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_INVALID_PTX = 218,

    CU_ATTRIBUTE_THREADS_PER_CTA = 1,
    CU_ATTRIBUTE_CLOCK_KHZ = 13,
    CU_ATTRIBUTE_SM_COUNT = 16,
    CU_ATTRIBUTE_L2_BYTES = 38,
    CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
    CU_ATTRIBUTE_SMEM_PER_SM = 81,
    CU_ATTRIBUTE_REGISTERS_PER_SM = 82,
    CU_ATTRIBUTE_SMEM_PER_CTA_OPTIN = 97,

    CU_FUNCTION_SMEM_BYTES_MAX = 8,
    CU_FUNCTION_SMEM_CARVEOUT = 9, // percent
    CU_FUNCTION_LARGE_CLUSTERS = 14,

    CU_JIT_ERROR_LOG = 5,
    CU_JIT_ERROR_LOG_BYTES = 6,
    CU_JIT_LINE_INFO = 13,
    CU_JIT_INPUT_PTX = 1,

    CU_LAUNCH_CLUSTER = 4,
    CU_LAUNCH_OVERLAP_PROLOGUE = 6,

    CU_STREAM_NON_BLOCKING = 1,
    CU_CAPTURE_RELAXED = 2,
};

typedef struct cu_launch_attribute {
    int id;
    int padding;
    union {
        unsigned dims[3];
        int flag;
        char bytes[64];
    } value;
} cu_launch_attribute;

typedef struct cu_launch_config {
    unsigned grid[3], block[3];
    unsigned smem_bytes;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned attribute_count;
} cu_launch_config;

/* X(function, parameters); every one returns a cu_result. */
#define CUDA_FUNCTIONS(X)                                                                                              \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDriverGetVersion, (int *version))                                                                              \
    X(cuGetErrorName, (cu_result result, const char **name))                                                           \
    X(cuGetErrorString, (cu_result result, const char **sentence))                                                     \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (cu_device * device, int ordinal))                                                                  \
    X(cuDeviceGetName, (char *name, int bytes, cu_device device))                                                      \
    X(cuDeviceGetAttribute, (int *value, int attribute, cu_device device))                                             \
    X(cuDeviceGetPCIBusId, (char *id, int bytes, cu_device device))                                                    \
    X(cuDeviceTotalMem_v2, (size_t * bytes, cu_device device))                                                         \
    X(cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                                              \
    X(cuDevicePrimaryCtxRelease_v2, (cu_device device))                                                                \
    X(cuCtxGetCurrent, (cu_context * context))                                                                         \
    X(cuCtxSetCurrent, (cu_context context))                                                                           \
    X(cuMemAlloc_v2, (cu_pointer * memory, size_t bytes))                                                              \
    X(cuMemFree_v2, (cu_pointer memory))                                                                               \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * all_bytes))                                                      \
    X(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))                                              \
    X(cuMemHostUnregister, (void *memory))                                                                             \
    X(cuMemcpyHtoDAsync_v2, (cu_pointer to, const void *from, size_t bytes, cu_stream stream))                         \
    X(cuMemcpyDtoHAsync_v2, (void *to, cu_pointer from, size_t bytes, cu_stream stream))                               \
    X(cuMemcpyDtoDAsync_v2, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))                          \
    X(cuMemsetD8Async, (cu_pointer to, unsigned char byte, size_t bytes, cu_stream stream))                            \
    X(cuStreamCreate, (cu_stream * stream, unsigned flags))                                                            \
    X(cuStreamDestroy_v2, (cu_stream stream))                                                                          \
    X(cuStreamSynchronize, (cu_stream stream))                                                                         \
    X(cuStreamQuery, (cu_stream stream))                                                                               \
    X(cuLibraryLoadData, (cu_library * library, const void *code, int *jit_options, void **jit_values,                 \
                          unsigned jit_count, int *options, void **values, unsigned count))                            \
    X(cuLibraryGetModule, (cu_module * module, cu_library library))                                                    \
    X(cuLibraryUnload, (cu_library library))                                                                           \
    X(cuModuleLoadData, (cu_module * module, const void *image))                                                       \
    X(cuLinkCreate_v2, (unsigned count, int *options, void **values, cu_link *linking))                                \
    X(cuLinkAddData_v2, (cu_link linking, int type, void *data, size_t bytes, const char *name, unsigned count,        \
                         int *options, void **values))                                                                 \
    X(cuLinkComplete, (cu_link linking, void **cubin, size_t *bytes))                                                  \
    X(cuLinkDestroy, (cu_link linking))                                                                                \
    X(cuModuleUnload, (cu_module module))                                                                              \
    X(cuModuleGetFunction, (cu_function * function, cu_module module, const char *name))                               \
    X(cuFuncSetAttribute, (cu_function function, int attribute, int value))                                            \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *count, cu_function function, int threads, size_t smem_bytes)) \
    X(cuOccupancyMaxActiveClusters, (int *count, cu_function function, const cu_launch_config *config))                \
    X(cuLaunchKernelEx, (const cu_launch_config *config, cu_function function, void **params, void **extra))           \
    X(cuTensorMapEncodeTiled,                                                                                          \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,              \
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2_promotion, int fill))           \
    X(cuTensorMapEncodeIm2col,                                                                                         \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,              \
       const int *lower, const int *upper, uint32_t channels, uint32_t pixels, const uint32_t *steps, int interleave,  \
       int swizzle, int l2_promotion, int fill))                                                                       \
    X(cuEventCreate, (cu_event * event, unsigned flags))                                                               \
    X(cuEventDestroy_v2, (cu_event event))                                                                             \
    X(cuEventRecord, (cu_event event, cu_stream stream))                                                               \
    X(cuEventSynchronize, (cu_event event))                                                                            \
    X(cuEventElapsedTime, (float *ms, cu_event begin, cu_event end))                                                   \
    X(cuStreamBeginCapture_v2, (cu_stream stream, int mode))                                                           \
    X(cuStreamIsCapturing, (cu_stream stream, int *status))                                                            \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                                                  \
    X(cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                                                        \
    X(cuGraphInstantiateWithFlags, (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                   \
    X(cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                                                           \
    X(cuGraphDestroy, (cu_graph graph))                                                                                \
    X(cuGraphExecDestroy, (cu_graph_exec exec))

typedef struct cuda_driver {
#define X(function, parameters) cu_result(*function) parameters;
    CUDA_FUNCTIONS(X)
#undef X
} cuda_driver;

/* The functions; all NULL until cuda_driver_load() has succeeded, never changed after. */
extern cuda_driver cuda;

/* Which driver it is, as its version and the name of its library: "13000 libcuda.so.580.95.05". Once it is loaded. */
enum { CUDA_DRIVER_TEXT_BYTES = 128 };
const char *cuda_driver_text(void);

/* Loads and initialises the driver, once; later calls repeat the first answer. Any thread. */
ckl_status cuda_driver_load(void);
