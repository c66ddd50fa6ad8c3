/* gpu_state.h - the GPU while it worked: readings by NVML. */
#pragma once

#include "device/device.h"

/* All 0 where unknown. */
typedef struct gpu_state {
    int readings;
    double clock_mhz, clock_min_mhz, clock_max_mhz; // of the SMs: mean, lowest, highest
    double power_w, temperature_c;                  // mean, last
    uint64_t clock_reasons;                         // that kept the clock down at any reading: nvml_reading's bits
    int processes;                                  // that compute on it, at most at any reading
    double seconds;                                 // of the last reading
} gpu_state;

/* Reads again, unless it did within GPU_READING_SECONDS. */
void gpu_read(const ckl_device *device, gpu_state *state);

/* The clock of the SMs now; 0 if it cannot be known. held: something keeps it down, the row before perhaps. */
double gpu_clock_mhz(const ckl_device *device, bool *held);

#define GPU_READING_SECONDS 0.1
