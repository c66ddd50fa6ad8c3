/* fake_nvml.c - a libnvidia-ml.so.1 whose GPU is under its power cap. */
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct fake_field { // nvmlFieldValue_t
    unsigned field, scope;
    long long time_us, latency_us;
    int kind, result;
    union {
        double real;
        unsigned whole;
    } value;
} fake_field;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned bytes);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
EXPORT int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz);
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
EXPORT int nvmlDeviceGetFieldValues(void *device, int count, fake_field *fields);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned bytes)
{
    strncpy(version, "1.2.3", bytes);
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    *device = (void *)bus_id;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz)
{
    *mhz = device && clock == 1 ? 1500 : 0;
    return 0;
}

/* Of the last second. */
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    *milliwatts = device ? 300000 : 0;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = device && sensor == 0 ? 50 : 0;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = device ? 1 << 2 : 0;
    return 0;
}

/* Of this moment: field 186 is an unsigned number of milliwatts. */
int nvmlDeviceGetFieldValues(void *device, int count, fake_field *fields)
{
    for (int i = 0; i < count; i++) {
        fields[i].result = device && fields[i].field == 186 && fields[i].scope == 0 ? 0 : 3;
        fields[i].kind = 1;
        fields[i].value.whole = 650000;
    }
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2])
{
    rates[0] = device ? 40 : 0;
    rates[1] = 7;
    return 0;
}

/* Two, for which there is no room. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos)
{
    enum { INSUFFICIENT_SIZE = 7 };
    *count = device ? 2 : 0;
    return INSUFFICIENT_SIZE;
}
