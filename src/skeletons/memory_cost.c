/* memory_cost.c - a kernel's time is that of the longest of its tasks. */
#include "skeletons/memory_cost.h"

#include <math.h>

#include "base/math.h"
#include "skeletons/memory_fit.h"

enum {
    WARP = 32,
    SCHEDULERS = 4,
    THREADS_PER_SM = 2048,
    CTAS_PER_SM = 32,
    REGISTERS_MIN = 32,
    REGISTERS_MAX = 255,
    POWER = 4 // of a smooth maximum: tasks that overlap cost a little more than the longest
};

/* CTAs that an SM holds at once. */
static int64_t resident_ctas(const memory_work *w, const ckl_device_info *device)
{
    const int most = w->ctas_per_sm ? device->registers_per_sm / w->threads / w->ctas_per_sm : REGISTERS_MAX;
    const int64_t registers = min_i64(max_i64(REGISTERS_MIN, (int64_t)fit.registers + w->registers), most);
    int64_t resident = min_i64(CTAS_PER_SM, THREADS_PER_SM / w->threads);
    resident = min_i64(resident, device->registers_per_sm / max_i64(registers * w->threads, 1));
    if (w->smem_bytes)
        resident = min_i64(resident, device->smem_per_sm_bytes / w->smem_bytes);
    return max_i64(resident, 1);
}

double memory_lines(double access_bytes, double run_bytes)
{
    enum { LINE = 128 };
    return WARP * access_bytes / fmin(LINE, run_bytes);
}

static double times(double factor)
{
    return factor > 0 ? factor : 1;
}

plan_cost memory_cost(const memory_work *w, const ckl_device_info *device)
{
    const double of_sm = (double)w->ctas / (double)max_i64(min_i64(device->sm_count, w->ctas), 1);
    const double turns = fmax(1, of_sm / (double)resident_ctas(w, device)), warps = (double)w->threads / WARP;
    const double wait =
        fmax(0, fit.latency + (w->meets ? fit.barrier : 0) + w->wait_cycles + w->of.wait_cycles + fit.warp * warps);
    const double instructions = fit.element * w->elements * times(w->of.elements), cycles_per_us = device->clock_mhz;
    const struct {
        const char *bound;
        double us;
    } terms[] = { { "memory", w->bytes * times(w->of.bytes) / fit.memory_bytes },
                  { "latency", (turns * wait + instructions) / cycles_per_us },
                  { "accesses", of_sm * warps * w->lines * times(w->of.lines) * fit.line / cycles_per_us },
                  { "instructions", of_sm * warps * instructions / SCHEDULERS / cycles_per_us },
                  { "starts of CTAs", of_sm * fit.cta / cycles_per_us } };
    int longest = 0;
    double sum = 0;
    for (int i = 0; i < COUNT_OF(terms); i++) {
        longest = terms[i].us > terms[longest].us ? i : longest;
        sum += pow(terms[i].us, POWER);
    }
    return (plan_cost){ fit.launch_us + w->of.us + pow(sum, 1.0 / POWER), terms[longest].bound };
}
