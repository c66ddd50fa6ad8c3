/* device.h - the GPU, or the emulated GPU, on which plans run; its memory and its streams. */
#pragma once

#include "base.h"

CKL_BEGIN_DECLS

/*
 * A device. Functions that take one may be called from any thread. NULL in place of a device or of memory that is
 * needed is CKL_INVALID; functions without a status then do nothing and leave the sentence in ckl_error().
 */
typedef struct ckl_device ckl_device;

/* A queue of work: a CUstream / cudaStream_t of the device's primary context. NULL is the default stream. */
typedef void *ckl_stream;

/* What a device is. Bytes unless the name says otherwise. */
typedef struct ckl_device_info {
    char id[32];   // what ckl_device_open() takes: "cuda:0", "emulator:h200"
    char name[64]; // "NVIDIA H200", "emulated NVIDIA H200"
    bool emulated;
    int compute_capability; // 90 for 9.0
    int sm_count;
    int clock_mhz;
    int threads_per_cta_max;
    int registers_per_sm;
    int64_t memory_bytes;
    int64_t l2_bytes;
    int64_t smem_per_sm_bytes;
    int64_t smem_per_cta_bytes; // dynamic shared memory of one CTA by opt-in
    bool has_tma;               // bulk tensor copies and clusters
    bool has_wgmma;             // warpgroup matrix instructions (sm_90a)
} ckl_device_info;

/*
 * Opens a device: "cuda", "cuda:1", "emulator", "emulator:h200" (or h100, b200, a100, a10, l4); NULL takes the best
 * present, which is "cuda:0" if the driver finds a GPU of sm_80 or later and else "emulator:h200". A CUDA device uses
 * the primary context, so its pointers and streams are those of the CUDA runtime and of the frameworks in this process.
 */
CKL_MUST_USE CKL_API ckl_status ckl_device_open(const char *id, ckl_device **device);

/* Closes a device. Plans made on it must be freed before. NULL is allowed. */
CKL_API void ckl_device_close(ckl_device *device);

/* Lives as long as the device; NULL for NULL. */
CKL_API const ckl_device_info *ckl_device_properties(const ckl_device *device);

/* Device memory, aligned to 256 bytes. Zero bytes give NULL. Release it with ckl_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_malloc(ckl_device *device, size_t bytes, void **memory);
CKL_API void ckl_free(ckl_device *device, void *memory);

/*
 * Copies between host and device memory, in the order of the stream; return when the host memory may be reused. A
 * stream that is being captured is CKL_INVALID, and its capture goes on.
 */
CKL_MUST_USE CKL_API ckl_status ckl_copy_in(ckl_device *device, void *to_device, const void *from_host, size_t bytes,
                                            ckl_stream stream);
CKL_MUST_USE CKL_API ckl_status ckl_copy_out(ckl_device *device, void *to_host, const void *from_device, size_t bytes,
                                             ckl_stream stream);

/* Streams, for programs that have none of their own. */
CKL_MUST_USE CKL_API ckl_status ckl_stream_create(ckl_device *device, ckl_stream *stream);
CKL_API void ckl_stream_destroy(ckl_device *device, ckl_stream stream);

/*
 * Waits for all work of the stream. Faults of kernels launched on it are reported here at the latest. A stream that is
 * being captured is CKL_INVALID.
 */
CKL_MUST_USE CKL_API ckl_status ckl_stream_synchronize(ckl_device *device, ckl_stream stream);

CKL_END_DECLS
