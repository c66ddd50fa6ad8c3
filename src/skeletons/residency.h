/* residency.h - how many CTAs an SM shall hold: ptxas keeps to the registers that ir_kernel.ctas_per_sm leaves them. */
#ifndef CKL_SKELETONS_RESIDENCY_H
#define CKL_SKELETONS_RESIDENCY_H

#include "base/math.h"
#include "cutekernellib/device.h"

/* CTAs for which an SM has shared memory, and for each thread of them 56 registers: fewer spill. At least 1. */
static inline int residency_ctas_per_sm(const ckl_device_info *device, int threads, int64_t smem_bytes)
{
    enum { RESERVED_BYTES = 1 << 10, REGISTERS_MIN = 56 }; // the former of each CTA
    int64_t by_memory = device->smem_per_sm_bytes / (smem_bytes + RESERVED_BYTES);
    int64_t by_registers = device->registers_per_sm / (REGISTERS_MIN * (int64_t)threads);
    return (int)max_i64(1, min_i64(by_memory, by_registers));
}

#endif
