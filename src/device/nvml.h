/* nvml.h - clock, power and temperature of a GPU through libnvidia-ml.so.1, where it is present. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct nvml_reading {
    int clock_sm_mhz;
    double power_w; // at this moment, where the driver tells it; else of about the last second
    int temperature_c;
    uint64_t clock_reasons; // that keep the clock down, a bit each; 0 where the driver tells none
    int processes;          // that compute on it, this one among them; 0 where the driver tells none
    int busy_percent;       // of less than the last second in which a kernel ran; 0 where the driver does not tell
} nvml_reading;

/* The name of the reason of bit `bit`, "power cap"; NULL if it does not keep a busy GPU's clock down. */
const char *nvml_clock_reason(int bit);

/* Reads GPU number device of the CUDA driver; false, and *out untouched, if that cannot be known. Any thread. */
bool nvml_sample(int device, nvml_reading *out);

/* The driver's version, "580.95.05"; false, and *out untouched, if that cannot be known. Any thread. */
bool nvml_driver_version(char *out, unsigned bytes);
