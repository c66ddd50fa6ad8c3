/* nvml.c - loads libnvidia-ml.so.1 on the first use. */
#include "device/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/math.h"
#include "device/cuda_driver.h"

typedef int nvml_result; // 0 is success
typedef struct nvmlDevice_st *nvml_device;

enum { NVML_CLOCK_SM = 1, NVML_TEMPERATURE_GPU = 0, NVML_POWER_INSTANT = 186, NVML_UNSIGNED = 1, BUS_ID_BYTES = 32 };

/* nvmlUtilization_t, in percent */
typedef struct nvml_utilization {
    unsigned gpu, memory;
} nvml_utilization;

/* nvmlFieldValue_t */
typedef struct nvml_field {
    unsigned field, scope;
    long long time_us, latency_us;
    int kind;
    nvml_result result;
    union {
        double real;
        unsigned narrow;
        unsigned long long wide;
    } value;
} nvml_field;

/* X(function, parameters) */
#define NVML_FUNCTIONS(X)                                                          \
    X(nvmlInit_v2, (void))                                                         \
    X(nvmlSystemGetDriverVersion, (char *version, unsigned bytes))                 \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, nvml_device *device)) \
    X(nvmlDeviceGetClockInfo, (nvml_device device, int clock, unsigned *mhz))      \
    X(nvmlDeviceGetPowerUsage, (nvml_device device, unsigned *milliwatts))         \
    X(nvmlDeviceGetTemperature, (nvml_device device, int sensor, unsigned *celsius))

/* What older drivers do not know. */
#define NVML_OPTIONAL(X)                                                                            \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, (nvml_device device, unsigned long long *reasons)) \
    X(nvmlDeviceGetFieldValues, (nvml_device device, int count, nvml_field *fields))                \
    X(nvmlDeviceGetUtilizationRates, (nvml_device device, nvml_utilization * rates))                \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (nvml_device device, unsigned *count, void *infos))

static struct {
    pthread_once_t once;
    bool ready;
#define X(function, parameters) nvml_result(*function) parameters;
    NVML_FUNCTIONS(X)
    NVML_OPTIONAL(X)
#undef X
} nvml = { .once = PTHREAD_ONCE_INIT };

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void load_once(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool complete = library != NULL;
#define X(function, parameters) complete = complete && find(library, #function, &nvml.function);
    NVML_FUNCTIONS(X)
#undef X
#define X(function, parameters) (void)(complete && find(library, #function, &nvml.function));
    NVML_OPTIONAL(X)
#undef X
    nvml.ready = complete && nvml.nvmlInit_v2() == 0;
}

/* CUDA and NVML number GPUs differently; the bus is what they agree on. */
static bool find_device(int ordinal, nvml_device *device)
{
    char bus_id[BUS_ID_BYTES];
    cu_device handle;
    return cuda_driver_load() == CKL_OK && cuda.cuDeviceGet(&handle, ordinal) == 0 &&
           cuda.cuDeviceGetPCIBusId(bus_id, sizeof bus_id, handle) == 0 &&
           nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, device) == 0;
}

const char *nvml_clock_reason(int bit)
{
    static const char *const reasons[] = {
        [1] = "clock setting",      [2] = "power cap",        [3] = "hardware slowdown",
        [4] = "synchronized boost", [5] = "thermal slowdown", [6] = "hardware thermal slowdown",
        [7] = "power brake",        [8] = "display clock"
    };
    return bit < COUNT_OF(reasons) ? reasons[bit] : NULL;
}

static double watts_now(nvml_device device, double otherwise)
{
    nvml_field power = { .field = NVML_POWER_INSTANT };
    if (!nvml.nvmlDeviceGetFieldValues || nvml.nvmlDeviceGetFieldValues(device, 1, &power) != 0 || power.result != 0 ||
        power.kind != NVML_UNSIGNED)
        return otherwise;
    return power.value.narrow / 1e3;
}

static uint64_t reasons_now(nvml_device device)
{
    unsigned long long reasons = 0;
    if (nvml.nvmlDeviceGetCurrentClocksThrottleReasons &&
        nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device, &reasons) != 0)
        reasons = 0;
    return reasons;
}

/* Without room for them it tells how many there are. */
static int processes_now(nvml_device device)
{
    unsigned count = 0;
    if (nvml.nvmlDeviceGetComputeRunningProcesses_v3)
        (void)nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL);
    return (int)count;
}

static int busy_now(nvml_device device)
{
    nvml_utilization rates;
    if (!nvml.nvmlDeviceGetUtilizationRates || nvml.nvmlDeviceGetUtilizationRates(device, &rates) != 0)
        return 0;
    return (int)rates.gpu;
}

bool nvml_sample(int device, nvml_reading *out)
{
    nvml_device handle;
    unsigned mhz, milliwatts, celsius;
    if (device < 0)
        return false;
    pthread_once(&nvml.once, load_once);
    if (!nvml.ready || !find_device(device, &handle) || nvml.nvmlDeviceGetClockInfo(handle, NVML_CLOCK_SM, &mhz) != 0 ||
        nvml.nvmlDeviceGetPowerUsage(handle, &milliwatts) != 0 ||
        nvml.nvmlDeviceGetTemperature(handle, NVML_TEMPERATURE_GPU, &celsius) != 0)
        return false;
    *out = (nvml_reading){
        (int)mhz,        watts_now(handle, milliwatts / 1e3), (int)celsius, reasons_now(handle), processes_now(handle),
        busy_now(handle)
    };
    return true;
}

bool nvml_driver_version(char *out, unsigned bytes)
{
    pthread_once(&nvml.once, load_once);
    return nvml.ready && nvml.nvmlSystemGetDriverVersion(out, bytes) == 0;
}
