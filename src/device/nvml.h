/* nvml.h - clock, power and temperature of a GPU through libnvidia-ml.so.1, where it is present. */
#ifndef CKL_DEVICE_NVML_H
#define CKL_DEVICE_NVML_H

#include <stdbool.h>

typedef struct nvml_reading {
    int clock_sm_mhz;
    double power_w;
    int temperature_c;
} nvml_reading;

/* Reads GPU number device of the CUDA driver; false, and *out untouched, if that cannot be known. Any thread. */
bool nvml_sample(int device, nvml_reading *out);

/* The driver's version, "580.95.05"; false, and *out untouched, if that cannot be known. Any thread. */
bool nvml_driver_version(char *out, unsigned bytes);

#endif
