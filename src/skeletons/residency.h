/* residency.h - how many CTAs an SM is to hold, and a cluster may have, by which the compiler bounds registers. */
#pragma once

#include "base/math.h"
#include "cutekernellib/device.h"

/* CTAs for which an SM has shared memory, and 56 registers a thread: with fewer, kernels spill. At least 1. */
static inline int residency_ctas_per_sm(const ckl_device_info *device, int threads, int64_t smem_bytes)
{
    enum { RESERVED_BYTES = 1 << 10, REGISTERS_MIN = 56 }; // RESERVED_BYTES of shared memory for each CTA
    int64_t by_memory = device->smem_per_sm_bytes / (smem_bytes + RESERVED_BYTES);
    int64_t by_registers = device->registers_per_sm / (REGISTERS_MIN * (int64_t)threads);
    return (int)max_i64(1, min_i64(by_memory, by_registers));
}

/* CTAs of the largest cluster that every device with clusters runs; 1 on others. */
static inline int residency_cluster_max(const ckl_device_info *device)
{
    enum { CLUSTER_PORTABLE = 8 };
    return device->has_tma ? CLUSTER_PORTABLE : 1;
}
