/* gpu_state.c - means and extremes of NVML's readings. */
#include "bench/gpu_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/nvml.h"
#include "lab/clock.h"

/* NVML's number of the device "cuda:N"; -1 for others, which it does not know. */
static int ordinal_of(const ckl_device *device)
{
    static const char prefix[] = "cuda:";
    return strncmp(device->info.id, prefix, strlen(prefix)) == 0 ? atoi(device->info.id + strlen(prefix)) : -1;
}

void gpu_read(const ckl_device *device, gpu_state *g)
{
    nvml_reading now;
    double seconds = clock_seconds();
    if (seconds - g->seconds < GPU_READING_SECONDS || !nvml_sample(ordinal_of(device), &now))
        return;
    double clock = now.clock_sm_mhz, n = ++g->readings;
    g->seconds = seconds;
    g->clock_mhz += (clock - g->clock_mhz) / n;
    g->clock_min_mhz = n > 1 ? fmin(g->clock_min_mhz, clock) : clock;
    g->clock_max_mhz = fmax(g->clock_max_mhz, clock);
    g->power_w += (now.power_w - g->power_w) / n;
    g->temperature_c = now.temperature_c;
    g->clock_reasons |= now.clock_reasons;
    g->processes = now.processes > g->processes ? now.processes : g->processes;
}

double gpu_clock_mhz(const ckl_device *device, bool *held)
{
    nvml_reading now;
    *held = false;
    if (!nvml_sample(ordinal_of(device), &now))
        return 0;
    for (int bit = 0; bit < 64; bit++)
        *held |= (now.clock_reasons >> bit & 1) && nvml_clock_reason(bit);
    return now.clock_sm_mhz;
}
