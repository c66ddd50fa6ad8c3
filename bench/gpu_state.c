/* gpu_state.c - means and extremes of NVML's readings. */
#include "bench/gpu_state.h"

#include <math.h>
#include <stdio.h>

#include "device/nvml.h"
#include "lab/clock.h"

/* Of a device called "cuda:N"; of others NVML knows nothing. */
static bool sample(const ckl_device *device, nvml_reading *now)
{
    int ordinal;
    return sscanf(device->info.id, "cuda:%d", &ordinal) == 1 && nvml_sample(ordinal, now);
}

void gpu_read(const ckl_device *device, gpu_state *g)
{
    nvml_reading now;
    double seconds = clock_seconds();
    if (seconds - g->seconds < GPU_READING_SECONDS || !sample(device, &now))
        return;
    double clock = now.clock_sm_mhz, n = ++g->readings;
    g->seconds = seconds;
    g->clock_mhz += (clock - g->clock_mhz) / n;
    g->clock_min_mhz = n > 1 ? fmin(g->clock_min_mhz, clock) : clock;
    g->clock_max_mhz = fmax(g->clock_max_mhz, clock);
    g->power_w += (now.power_w - g->power_w) / n;
    g->temperature_c = now.temperature_c;
    g->clock_reasons |= now.clock_reasons;
}

double gpu_clock_mhz(const ckl_device *device)
{
    nvml_reading now;
    return sample(device, &now) ? now.clock_sm_mhz : 0;
}
