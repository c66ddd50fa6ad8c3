/* fuzz_device.h - the device that harnesses choose for. */
#pragma once

#include "cutekernellib/device.h"

static const ckl_device_info h200 = { .id = "fuzzed",
                                      .name = "NVIDIA H200",
                                      .compute_capability = 90,
                                      .sm_count = 132,
                                      .threads_per_cta_max = 1024,
                                      .registers_per_sm = 65536,
                                      .memory_bytes = (int64_t)141 << 30,
                                      .l2_bytes = 60 << 20,
                                      .smem_per_sm_bytes = 233472,
                                      .smem_per_cta_bytes = 232448,
                                      .has_tma = true,
                                      .has_wgmma = true };
