/* fake_cuda.c - the functions of the fake driver; built as a library of the driver's name. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { CAPTURE_GLOBAL = 0, STREAMS_MAX = 64, CONTEXT = 0x1000 }; // the first GPU's context

typedef struct fake_stream {
    bool used, blocking, capturing, invalid;
    cu_context context;
    int mode;
    pthread_t by;
    int launches; // captured
} fake_stream;

typedef struct fake_graph {
    int launches;
} fake_graph;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int calls, live, launches, early, compiles;
    int launches_on[FAKE_GPUS];
    int compile_us, compiling, most_compiling;
    int fail_call;
    cu_result fail_result, lost;
    const char *fail_name;
    fake_stream streams[STREAMS_MAX]; // 0 is the default one
} fake;

static _Thread_local int thread_mode = CAPTURE_GLOBAL;
static _Thread_local cu_context current;

/* What a call begins with: counted, made to fail, or refused because the context is lost. Holds the lock. */
static cu_result enter(const char *function)
{
    fake.calls++;
    cu_result result = fake.lost;
    if (fake.calls == fake.fail_call || (fake.fail_name && strcmp(fake.fail_name, function) == 0))
        result = fake.fail_result;
    if (result == FAKE_LAUNCH_FAILED)
        fake.lost = result;
    return result;
}

/* Defines a driver function around a body under the lock. */
#define FAKE(function, parameters, ...)      \
    EXPORT cu_result function parameters;    \
    EXPORT cu_result function parameters     \
    {                                        \
        pthread_mutex_lock(&lock);           \
        cu_result result = enter(#function); \
        if (!result)                         \
            __VA_ARGS__                      \
        pthread_mutex_unlock(&lock);         \
        return result;                       \
    }

/* The same for what gives back: it does so also when it fails. */
#define FAKE_RELEASE(function, parameters, ...) \
    EXPORT cu_result function parameters;       \
    EXPORT cu_result function parameters        \
    {                                           \
        pthread_mutex_lock(&lock);              \
        cu_result result = enter(#function);    \
        __VA_ARGS__                             \
        pthread_mutex_unlock(&lock);            \
        return result;                          \
    }

/* Streams and capture */

static fake_stream *stream_of(cu_stream s)
{
    return &fake.streams[(uintptr_t)s];
}

/* Calls that no capture but a relaxed one allows: they may wait for the device. */
static cu_result unsafe(void)
{
    cu_result result = 0;
    for (int i = 0; i < STREAMS_MAX && thread_mode == CAPTURE_GLOBAL; i++) {
        fake_stream *s = &fake.streams[i];
        bool own = pthread_equal(s->by, pthread_self()) && s->mode != CU_CAPTURE_RELAXED;
        if (s->capturing && (own || s->mode == CAPTURE_GLOBAL)) {
            s->invalid = true;
            result = FAKE_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* Work on a stream, which is its context's; the default one must not wait for one that is being captured. */
static cu_result use(cu_stream s)
{
    cu_result result = stream_of(s)->invalid ? FAKE_CAPTURE_INVALIDATED : 0;
    if (s ? stream_of(s)->context != current : !current)
        result = FAKE_OTHER_CONTEXT;
    for (int i = 1; i < STREAMS_MAX && !s; i++)
        if (fake.streams[i].capturing && fake.streams[i].blocking) {
            fake.streams[i].invalid = true;
            result = FAKE_CAPTURE_IMPLICIT;
        }
    return result;
}

static cu_result wait(cu_stream s)
{
    if (!stream_of(s)->capturing)
        return use(s);
    stream_of(s)->invalid = true;
    return FAKE_CAPTURE_UNSUPPORTED;
}

FAKE(cuStreamCreate, (cu_stream * stream, unsigned flags), {
    uintptr_t i = 1;
    while (i < STREAMS_MAX - 1 && fake.streams[i].used)
        i++;
    fake.streams[i] = (fake_stream){ .used = true, .blocking = !(flags & CU_STREAM_NON_BLOCKING), .context = current };
    *stream = (cu_stream)i;
    fake.live++;
})
FAKE_RELEASE(cuStreamDestroy_v2, (cu_stream stream), {
    *stream_of(stream) = (fake_stream){ 0 };
    fake.live--;
})
FAKE(cuStreamSynchronize, (cu_stream stream), {
    result = unsafe();
    if (!result)
        result = wait(stream);
})
FAKE(cuStreamQuery, (cu_stream stream), { result = wait(stream); })
FAKE(cuStreamBeginCapture_v2, (cu_stream stream, int mode), {
    fake_stream *s = stream_of(stream);
    *s = (fake_stream){ .used = true,
                        .blocking = s->blocking,
                        .context = s->context,
                        .capturing = true,
                        .mode = mode,
                        .by = pthread_self() };
})
FAKE(cuStreamIsCapturing, (cu_stream stream, int *status), {
    *status = stream_of(stream)->invalid ? 2 : stream_of(stream)->capturing; // invalidates nothing
})
FAKE(cuStreamEndCapture, (cu_stream stream, cu_graph *graph), {
    fake_stream *s = stream_of(stream);
    fake_graph *made = s->invalid ? NULL : malloc(sizeof *made);
    if (made) {
        made->launches = s->launches;
        fake.live++;
    } else
        result = FAKE_CAPTURE_INVALIDATED;
    *graph = made;
    s->capturing = s->invalid = false;
})
FAKE(cuGraphInstantiateWithFlags, (cu_graph_exec * exec, cu_graph graph, unsigned long long flags), {
    fake_graph *made = malloc(sizeof *made);
    *made = *(fake_graph *)graph;
    *exec = made;
    fake.live++;
})
FAKE(cuGraphLaunch, (cu_graph_exec exec, cu_stream stream), {
    result = use(stream);
    fake.launches += result ? 0 : ((fake_graph *)exec)->launches;
})
FAKE_RELEASE(cuGraphDestroy, (cu_graph graph), {
    fake.live -= graph != NULL;
    free(graph);
})
FAKE_RELEASE(cuGraphExecDestroy, (cu_graph_exec exec), {
    fake.live--;
    free(exec);
})

EXPORT cu_result cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return 0;
}

/* Memory */

FAKE(cuMemAlloc_v2, (cu_pointer * memory, size_t bytes), {
    result = unsafe();
    void *made = result ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!result && !made)
        result = FAKE_OUT_OF_MEMORY;
    fake.live += made != NULL;
    *memory = (uintptr_t)made;
})
FAKE_RELEASE(cuMemFree_v2, (cu_pointer memory), {
    result = result ? result : unsafe();
    fake.live--;
    free((void *)(uintptr_t)memory);
})
FAKE(cuMemGetInfo_v2, (size_t * free_bytes, size_t *all_bytes), {
    *free_bytes = (size_t)1 << 30;
    *all_bytes = (size_t)2 << 30;
})
FAKE(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), {})
FAKE(cuMemHostUnregister, (void *memory), { (void)memory; })
FAKE(cuMemcpyHtoDAsync_v2, (cu_pointer to, const void *from, size_t bytes, cu_stream stream), {
    result = use(stream);
    if (!result)
        memcpy((void *)(uintptr_t)to, from, bytes);
})
FAKE(cuMemcpyDtoHAsync_v2, (void *to, cu_pointer from, size_t bytes, cu_stream stream), {
    result = use(stream);
    if (!result)
        memcpy(to, (const void *)(uintptr_t)from, bytes);
})
FAKE(cuMemcpyDtoDAsync_v2, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream), {
    result = use(stream);
    if (!result)
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
})
FAKE(cuMemsetD8Async, (cu_pointer to, unsigned char byte, size_t bytes, cu_stream stream), {
    result = use(stream);
    if (!result)
        memset((void *)(uintptr_t)to, byte, bytes);
})

/* Devices and contexts */

FAKE(cuInit, (unsigned flags), { (void)flags; })
FAKE(cuDriverGetVersion, (int *version), { *version = 13000; })
FAKE(cuDeviceGetCount, (int *count), { *count = FAKE_GPUS; })
FAKE(cuDeviceGet, (cu_device * device, int ordinal), { *device = ordinal; })
FAKE(cuDeviceGetName, (char *name, int bytes, cu_device device), { strncpy(name, "a fake H200", (size_t)bytes); })
FAKE(cuDeviceGetPCIBusId, (char *id, int bytes, cu_device device),
     { snprintf(id, (size_t)bytes, "0000:%02x:00.0", device); })
FAKE(cuDeviceTotalMem_v2, (size_t * bytes, cu_device device), { *bytes = (size_t)2 << 30; })
FAKE(cuDeviceGetAttribute, (int *value, int attribute, cu_device device), {
    static const int values[256] = {
        [CU_ATTRIBUTE_THREADS_PER_CTA] = 1024,
        [CU_ATTRIBUTE_CLOCK_KHZ] = 1980000,
        [CU_ATTRIBUTE_SM_COUNT] = 132,
        [CU_ATTRIBUTE_L2_BYTES] = 60 << 20,
        [CU_ATTRIBUTE_CAPABILITY_MAJOR] = 9,
        [CU_ATTRIBUTE_CAPABILITY_MINOR] = 0,
        [CU_ATTRIBUTE_SMEM_PER_SM] = 233472,
        [CU_ATTRIBUTE_REGISTERS_PER_SM] = 65536,
        [CU_ATTRIBUTE_SMEM_PER_CTA_OPTIN] = 232448,
    };
    *value = values[attribute];
})
FAKE(cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device), {
    *context = (cu_context)(uintptr_t)(CONTEXT + device);
    fake.live++;
})
FAKE_RELEASE(cuDevicePrimaryCtxRelease_v2, (cu_device device), { fake.live--; })
FAKE(cuCtxGetCurrent, (cu_context * context), { *context = current; })
FAKE(cuCtxSetCurrent, (cu_context context), { current = context; })

EXPORT cu_result cuGetErrorName(cu_result result, const char **name);
EXPORT cu_result cuGetErrorName(cu_result result, const char **name)
{
    *name = result == FAKE_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == FAKE_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                           : "CUDA_ERROR_OF_SOME_KIND";
    return 0;
}

EXPORT cu_result cuGetErrorString(cu_result result, const char **sentence);
EXPORT cu_result cuGetErrorString(cu_result result, const char **sentence)
{
    *sentence = "made to fail";
    return 0;
}

/* Kernels */

#define CUBIN "CUBIN of " // what a fake cubin begins with; then comes the PTX

/* A module is its text, in a context. */
typedef struct fake_module {
    cu_context context;
    char text[];
} fake_module;

static cu_result load(const char *text, cu_module *module)
{
    cu_result result = unsafe();
    fake_module *made = result ? NULL : malloc(sizeof *made + strlen(text) + 1);
    if (made) {
        made->context = current;
        strcpy(made->text, text);
        fake.live++;
    }
    *module = (cu_module)(void *)made;
    return result;
}

/* Takes time, outside of the lock. */
static void compile(void)
{
    fake.compiles++;
    fake.compiling++;
    fake.most_compiling = fake.compiling > fake.most_compiling ? fake.compiling : fake.most_compiling;
    pthread_mutex_unlock(&lock);
    usleep((unsigned)fake.compile_us);
    pthread_mutex_lock(&lock);
    fake.compiling--;
}

/* A library is its module. */
FAKE(cuLibraryLoadData,
     (cu_library * library, const void *code, int *jit_options, void **jit_values, unsigned jit_count, int *options,
      void **values, unsigned count),
     {
         compile();
         result = load(code, (cu_module *)library);
     })
FAKE(cuLibraryGetModule, (cu_module * module, cu_library library), { *module = (cu_module)(void *)library; })
FAKE_RELEASE(cuLibraryUnload, (cu_library library), {
    result = result ? result : unsafe();
    fake.live--;
    free(library);
})
FAKE(cuModuleLoadData, (cu_module * module, const void *image),
     { result = strncmp(image, CUBIN, strlen(CUBIN)) == 0 ? load(image, module) : FAKE_INVALID_IMAGE; })
FAKE(cuLinkCreate_v2, (unsigned count, int *options, void **values, cu_link *linking), {
    *linking = calloc(1, sizeof(char *));
    fake.live++;
})
FAKE(cuLinkAddData_v2,
     (cu_link linking, int type, void *data, size_t bytes, const char *name, unsigned count, int *options,
      void **values),
     {
         char *cubin = malloc(strlen(CUBIN) + bytes);
         strcpy(cubin, CUBIN);
         strcat(cubin, data);
         *(char **)linking = cubin;
         compile();
     })
FAKE(cuLinkComplete, (cu_link linking, void **cubin, size_t *bytes), {
    *cubin = *(char **)linking;
    *bytes = strlen(*cubin) + 1;
})
FAKE_RELEASE(cuLinkDestroy, (cu_link linking), {
    fake.live--;
    free(*(char **)linking);
    free(linking);
})
FAKE_RELEASE(cuModuleUnload, (cu_module module), {
    result = result ? result : unsafe();
    fake.live--;
    free(module);
})
FAKE(cuModuleGetFunction, (cu_function * function, cu_module module, const char *name), {
    result = strstr(((fake_module *)(void *)module)->text, name) ? 0 : 500;
    *function = (cu_function)(void *)module;
})
FAKE(cuFuncSetAttribute, (cu_function function, int attribute, int value), {})
FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *count, cu_function function, int threads, size_t smem_bytes),
     { *count = 1; })
FAKE(cuOccupancyMaxActiveClusters, (int *count, cu_function function, const cu_launch_config *config), { *count = 16; })
FAKE(cuLaunchKernelEx, (const cu_launch_config *config, cu_function function, void **params, void **extra), {
    fake_module *loaded = (fake_module *)(void *)function;
    result = loaded->context == current ? use(config->stream) : FAKE_OTHER_CONTEXT;
    fake_stream *s = stream_of(config->stream);
    *(s->capturing ? &s->launches : &fake.launches) += result ? 0 : 1;
    fake.launches_on[((uintptr_t)current - CONTEXT) % FAKE_GPUS] += result ? 0 : 1;
    for (unsigned i = 0; i < config->attribute_count; i++)
        fake.early += config->attributes[i].id == CU_LAUNCH_OVERLAP_PROLOGUE;
})
FAKE(cuTensorMapEncodeTiled,
     (void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
      const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2_promotion, int fill),
     {
         (void)interleave, (void)swizzle, (void)l2_promotion, (void)fill;
         memset(map, 0, 128);
     })
FAKE(cuTensorMapEncodeIm2col,
     (void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
      const int *lower, const int *upper, uint32_t channels, uint32_t pixels, const uint32_t *steps, int interleave,
      int swizzle, int l2_promotion, int fill),
     {
         (void)channels, (void)pixels, (void)interleave, (void)swizzle, (void)l2_promotion, (void)fill;
         memset(map, 0, 128);
     })
FAKE(cuEventCreate, (cu_event * event, unsigned flags), {
    *event = malloc(1);
    fake.live++;
})
FAKE_RELEASE(cuEventDestroy_v2, (cu_event event), {
    fake.live--;
    free(event);
})
FAKE(cuEventRecord, (cu_event event, cu_stream stream), { result = use(stream); })
FAKE(cuEventSynchronize, (cu_event event), { (void)event; })
FAKE(cuEventElapsedTime, (float *ms, cu_event begin, cu_event end), { *ms = 1; })

/* Control */

static void reset(void)
{
    pthread_mutex_lock(&lock);
    fake.calls = fake.launches = fake.early = fake.compiles = fake.fail_call = 0;
    memset(fake.launches_on, 0, sizeof fake.launches_on);
    fake.lost = 0;
    fake.fail_name = NULL;
    fake.compile_us = fake.most_compiling = 0;
    pthread_mutex_unlock(&lock);
}

static void fail(int call, cu_result result)
{
    pthread_mutex_lock(&lock);
    fake.fail_call = call;
    fake.fail_result = result;
    pthread_mutex_unlock(&lock);
}

static void fail_named(const char *function, cu_result result)
{
    pthread_mutex_lock(&lock);
    fake.fail_name = function;
    fake.fail_result = result;
    pthread_mutex_unlock(&lock);
}

static void slow_down(int compile_us)
{
    pthread_mutex_lock(&lock);
    fake.compile_us = compile_us;
    pthread_mutex_unlock(&lock);
}

#define READER(field)                \
    static int read_##field(void)    \
    {                                \
        pthread_mutex_lock(&lock);   \
        int value = fake.field;      \
        pthread_mutex_unlock(&lock); \
        return value;                \
    }
READER(calls)
READER(live)
READER(launches)
READER(early)
READER(compiles)
READER(most_compiling)

EXPORT int fake_cuda_launches_on(int gpu); // by its name for tests in Python
EXPORT int fake_cuda_launches_on(int gpu)
{
    pthread_mutex_lock(&lock);
    int count = fake.launches_on[gpu];
    pthread_mutex_unlock(&lock);
    return count;
}

EXPORT const fake_cuda fake_cuda_functions;
EXPORT const fake_cuda fake_cuda_functions = { .reset = reset,
                                               .fail_call = fail,
                                               .fail_named = fail_named,
                                               .slow_down = slow_down,
                                               .calls = read_calls,
                                               .live = read_live,
                                               .launches = read_launches,
                                               .launches_on = fake_cuda_launches_on,
                                               .early = read_early,
                                               .compiles = read_compiles,
                                               .most_compiling = read_most_compiling };
