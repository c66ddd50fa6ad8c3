/*
 * virtual_device.h - a device in host memory whose clock is counted, not real: work takes the time that it says, events
 * read that clock. Included once, by the test that needs it.
 */
#pragma once

#include "device/device.h"

typedef struct virtual_graph {
    double us;
} virtual_graph;

static double clock_us;
static bool capturing;
static double captured_us;
static int allocations, graphs, events;

static void take_us(double us)
{
    *(capturing ? &captured_us : &clock_us) += us;
}

static ckl_status virtual_alloc(ckl_device *d, size_t bytes, void **memory)
{
    *memory = calloc(1, bytes);
    allocations++;
    return CKL_OK;
}

static void virtual_release(ckl_device *d, void *memory)
{
    free(memory);
    allocations--;
}

static ckl_status virtual_copy(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    memcpy(to, from, bytes);
    take_us((double)bytes / 1e3);
    return CKL_OK;
}

static ckl_status virtual_fill(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s)
{
    memset(to, byte, bytes);
    return CKL_OK;
}

static ckl_status virtual_stream(ckl_device *d, ckl_stream *s)
{
    *s = d;
    return CKL_OK;
}

static void virtual_stream_destroy(ckl_device *d, ckl_stream s)
{
}

static ckl_status virtual_synchronize(ckl_device *d, ckl_stream s)
{
    assert_false(capturing);
    return CKL_OK;
}

static ckl_status virtual_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    *loaded = (device_kernel *)d;
    return CKL_OK;
}

static void virtual_unload(ckl_device *d, device_kernel *kernel)
{
}

static ckl_status virtual_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    *count = 1;
    return CKL_OK;
}

static ckl_status virtual_event_create(ckl_device *d, device_event *event)
{
    *event = calloc(1, sizeof(double));
    events++;
    return CKL_OK;
}

static void virtual_event_destroy(ckl_device *d, device_event event)
{
    free(event);
    events--;
}

static ckl_status virtual_event_record(ckl_device *d, device_event event, ckl_stream s)
{
    *(double *)event = clock_us;
    return CKL_OK;
}

static ckl_status virtual_event_elapsed(ckl_device *d, device_event begin, device_event end, double *us)
{
    *us = *(double *)end - *(double *)begin;
    return CKL_OK;
}

static ckl_status virtual_graph_begin(ckl_device *d, ckl_stream s)
{
    capturing = true;
    captured_us = 0;
    return CKL_OK;
}

static ckl_status virtual_graph_end(ckl_device *d, ckl_stream s, void **graph)
{
    virtual_graph *g = malloc(sizeof *g);
    g->us = captured_us;
    capturing = false;
    *graph = g;
    graphs++;
    return CKL_OK;
}

static ckl_status virtual_graph_launch(ckl_device *d, void *graph, ckl_stream s)
{
    take_us(((virtual_graph *)graph)->us);
    return CKL_OK;
}

static void virtual_graph_destroy(ckl_device *d, void *graph)
{
    free(graph);
    graphs--;
}

static bool overlap_forbidden;

static void virtual_allow_overlap(ckl_device *d, bool allowed)
{
    overlap_forbidden = !allowed;
}

static const device_ops virtual_ops = { .alloc = virtual_alloc,
                                        .release = virtual_release,
                                        .copy_in = virtual_copy,
                                        .copy_out = virtual_copy,
                                        .copy = virtual_copy,
                                        .fill = virtual_fill,
                                        .stream_create = virtual_stream,
                                        .stream_destroy = virtual_stream_destroy,
                                        .synchronize = virtual_synchronize,
                                        .load = virtual_load,
                                        .unload = virtual_unload,
                                        .clusters_resident = virtual_resident,
                                        .event_create = virtual_event_create,
                                        .event_destroy = virtual_event_destroy,
                                        .event_record = virtual_event_record,
                                        .event_elapsed_us = virtual_event_elapsed,
                                        .graph_begin = virtual_graph_begin,
                                        .graph_end = virtual_graph_end,
                                        .graph_launch = virtual_graph_launch,
                                        .graph_destroy = virtual_graph_destroy,
                                        .allow_overlap = virtual_allow_overlap };
static ckl_device device = {
    &virtual_ops,
    { .id = "none", .threads_per_cta_max = 1024, .compute_capability = 90, .memory_bytes = 1 << 24, .l2_bytes = 8192 }
};
