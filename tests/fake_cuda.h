/*
 * fake_cuda.h - a libcuda.so.1 of two GPUs that are none: host memory, kernels that do nothing, the driver's rules of
 * contexts and of stream capture, and calls that fail when told to. fake_cuda_load() before a device is opened makes
 * the library find it instead of the real one.
 *
 * It counts what it has given out and not got back. Any thread.
 */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda_driver.h"

enum { FAKE_GPUS = 2 };

enum {
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_INVALID_IMAGE = 200,
    FAKE_INVALID_PTX = 218,
    FAKE_OTHER_CONTEXT = 400,       // a stream or a function of another context than the current one
    FAKE_LAUNCH_FAILED = 719,       // the context is lost: every later call fails like this one
    FAKE_CAPTURE_UNSUPPORTED = 900, // a call that a capture does not allow, and which invalidates it
    FAKE_CAPTURE_INVALIDATED = 901,
    FAKE_CAPTURE_IMPLICIT = 906 // the default stream, while a stream that waits for it is captured
};

typedef struct fake_cuda {
    void (*reset)(void);                           // no failure, no lost context, counts of calls from 0
    void (*fail_call)(int call, cu_result result); // the call of that number, from 1, counted since reset()
    void (*fail_named)(const char *function, cu_result result); // every call of it
    void (*slow_down)(int compile_us);                          // every compilation takes so long
    int (*calls)(void);
    int (*live)(void);           // memory, modules, streams, events, graphs and contexts
    int (*launches)(void);       // since reset(), those of graphs when they are launched
    int (*launches_on)(int gpu); // since reset(), those that are captured, too
    int (*early)(void);          // since reset(), launches that may start before the kernel before has ended
    int (*compiles)(void);       // of PTX since reset(), by loading or by linking it
    int (*most_compiling)(void); // at once
} fake_cuda;

/*
 * Loads it, which makes it the library of that name in this process; its functions' table. NULL: it is not there. Its
 * cubins are kept nowhere unless the test has named a folder.
 */
static inline const fake_cuda *fake_cuda_load(void)
{
    setenv("CKL_CACHE", "off", 0);
    void *library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "the fake driver is not there: %s\n", FAKE_CUDA);
    return library ? dlsym(library, "fake_cuda_functions") : NULL;
}
