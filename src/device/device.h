/* device.h - what a device can do: one const table of functions, implemented by cuda.c and by emulator/. */
#pragma once

#include "base/status.h"
#include "cutekernellib/device.h"
#include "cutekernellib/tensor.h"
#include "ir/ir.h"

typedef struct device_kernel device_kernel; // a loaded kernel; each device has its own
typedef void *device_event;

/* A TMA tensor map as the hardware takes it, passed by value as a kernel parameter. */
typedef struct tensor_map {
    _Alignas(64) unsigned char bytes[IR_TENSOR_MAP_BYTES];
} tensor_map;

enum { TENSOR_MAP_RANK_MAX = IR_TENSOR_MAP_RANK_MAX };

/* A tiled view of global memory, dimensions innermost first. Values are those of the swizzle span in bytes. */
typedef enum tensor_map_swizzle {
    SWIZZLE_NONE = 0,
    SWIZZLE_32 = 32,
    SWIZZLE_64 = 64,
    SWIZZLE_128 = 128
} tensor_map_swizzle;

enum { TENSOR_MAP_PIXEL_MODES = TENSOR_MAP_RANK_MAX - 2 };

/*
 * In im2col mode modes are channels, columns, rows, slices and images, as many as rank says, and box is { channels,
 * pixels, 1, .. }: pixels whose places go, by `step`, from lower[] to size - 1 + upper[] along each mode, over the ends
 * of rows, slices and images; a load adds an offset to all of them. What is then outside of the tensor is zeros.
 */
typedef struct tensor_map_desc {
    void *address;                       // multiple of 16
    int64_t size[TENSOR_MAP_RANK_MAX];   // elements
    int64_t stride[TENSOR_MAP_RANK_MAX]; // bytes, multiples of 16; stride[0] is the element's size and is not read
    ckl_dtype dtype;
    tensor_map_swizzle swizzle;
    int16_t rank;
    int16_t box[TENSOR_MAP_RANK_MAX]; // elements, 1..256; box[0] bytes: a multiple of 16, at most the swizzle span
    int16_t l2_promotion;             // bytes that L2 fetches at a time: 64, 128, 256; 0: 256
    int16_t lower[TENSOR_MAP_PIXEL_MODES], upper[TENSOR_MAP_PIXEL_MODES];
    uint8_t step[TENSOR_MAP_RANK_MAX]; // elements of the tensor from one of the box to the next, 1..8; 0 means 1
    bool im2col;
} tensor_map_desc;

static inline int tensor_map_step(const tensor_map_desc *desc, int mode)
{
    return desc->step[mode] ? desc->step[mode] : 1;
}

/* One launch. Threads, cluster and shared memory are the kernel's; so is overlap with the launch before (GRID_WAIT). */
typedef struct device_launch {
    int64_t grid[3];     // CTAs
    void *const *params; // one pointer per ir_param, to its value
} device_launch;

/* What the emulator counted since the last reset; a table of names keeps it open (counters.c). */
enum { WHERE_BYTES = 96 };

typedef struct device_counter {
    const char *name; // "wgmma", "bank conflicts", "global bytes read" ...
    int64_t value;
    char where[WHERE_BYTES]; // C source line of the worst place, or ""
} device_counter;

typedef struct device_ops {
    void (*close)(ckl_device *d);
    ckl_status (*alloc)(ckl_device *d, size_t bytes, void **memory);
    void (*release)(ckl_device *d, void *memory);
    ckl_status (*copy_in)(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s);
    ckl_status (*copy_out)(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s);
    ckl_status (*copy)(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s); // device to device
    ckl_status (*fill)(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s);
    ckl_status (*memory_used)(ckl_device *d, size_t *bytes);      // of the device, by all that use it
    ckl_status (*pin)(ckl_device *d, void *memory, size_t bytes); // of the host, for faster copies. NULL: no need
    void (*unpin)(ckl_device *d, void *memory);                   // before it is freed; also what is not pinned
    ckl_status (*stream_create)(ckl_device *d, ckl_stream *s);
    void (*stream_destroy)(ckl_device *d, ckl_stream s);
    ckl_status (*synchronize)(ckl_device *d, ckl_stream s);
    ckl_status (*stream_idle)(ckl_device *d, ckl_stream s, bool *idle); // is its work done? NULL: it always is

    ckl_status (*load)(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded);
    void (*unload)(ckl_device *d, device_kernel *kernel);
    ckl_status (*clusters_resident)(ckl_device *d, const device_kernel *kernel,
                                    int *count); // at once on the whole device
    ckl_status (*encode_tensor_map)(const ckl_device *d, const tensor_map_desc *desc, tensor_map *map);
    ckl_status (*launch)(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s);

    /* Measuring; NULL where the device has no meaningful time (the emulator). */
    ckl_status (*event_create)(ckl_device *d, device_event *event);
    void (*event_destroy)(ckl_device *d, device_event event);
    ckl_status (*event_record)(ckl_device *d, device_event event, ckl_stream s);
    ckl_status (*event_elapsed_us)(ckl_device *d, device_event begin, device_event end, double *us); // waits for end
    ckl_status (*graph_begin)(ckl_device *d, ckl_stream s);
    ckl_status (*graph_end)(ckl_device *d, ckl_stream s, void **graph);
    ckl_status (*graph_launch)(ckl_device *d, void *graph, ckl_stream s);
    void (*graph_destroy)(ckl_device *d, void *graph);
    void (*allow_overlap)(ckl_device *d,
                          bool allowed); // may kernels launched from now on start early (GRID_WAIT)? At first: yes

    /* The emulator's: names for its reports, of an address and what follows it; and its counters. NULL elsewhere. */
    void (*name_memory)(ckl_device *d, const void *at, const char *name);
    int (*counters)(ckl_device *d, device_counter *out, int max);
    int (*conflicts)(ckl_device *d, device_counter *out, int max); // the source lines that have bank conflicts
    void (*counters_reset)(ckl_device *d);
} device_ops;

/* Every implementation's device struct starts with this. */
struct ckl_device {
    const device_ops *ops;
    ckl_device_info info;
};

/* Opens the implementation's device number or variant ("0", "h200"; "" is its default). */
ckl_status cuda_open(const char *which, ckl_device **device);
ckl_status emulator_open(const char *which, ckl_device **device);

/* Checks a tensor map against the rules of the hardware; used by both devices, so that both refuse the same. */
ckl_status tensor_map_check(const tensor_map_desc *desc);

/* "need 240000 bytes of shared memory, cuda:0 has 232448 per CTA", or CKL_OK. Also threads and cluster size. */
ckl_status device_check_limits(const ckl_device_info *info, const ir_kernel *kernel);
