/* ncu_words.c - a report of ncu as people read it: the figures of each kernel, then what bounds the longest. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "bench/ncu.h"

/* Percent of its peak from which a unit is what bounds a kernel: of some, little more can be had. */
static const double BUSY = 75;

static void print_finding(const char *name, const ncu_finding *f, text *out)
{
    if (*f->what)
        text_printf(out, "  %-32s %10.6g %% %s\n", name, f->percent, f->what);
}

void ncu_print(const ncu_report *r, text *out)
{
    for (const ncu_kernel *k = r->kernels; k < r->kernels + r->count; k++) {
        text_printf(out, "kernel %s", k->name);
        text_printf(out, k->launches > 1 ? ", %d launches\n" : "\n", k->launches);
        for (int i = 0; i < NCU_METRIC_COUNT; i++)
            if (!isnan(k->value[i]))
                text_printf(out, "  %-32s %10.6g %s\n", ncu_metrics[i].name, k->value[i], ncu_metrics[i].unit);
        print_finding("Busiest pipe", &k->pipe, out);
        print_finding("Main stall", &k->stall, out);
    }
}

/* What bounds a kernel */

static const char *const UNITS[] = { "memory", "L2", "L1 and shared memory", "the SMs' pipes", "tensor cores" };

/* Percent of its peak; 0 where ncu does not say. Tensor cores are a pipe, of which it names the busiest alone. */
static double busy(const ncu_kernel *k, int unit)
{
    static const ncu_metric metrics[] = { NCU_DRAM, NCU_L2, NCU_L1, NCU_SM };
    if (unit == COUNT_OF(metrics))
        return strncmp(k->pipe.what, "Tensor", 6) == 0 ? k->pipe.percent : 0;
    return fmax(k->value[metrics[unit]], 0);
}

/* All units that are near their peak; false if there is none. */
static bool say_bound(const ncu_kernel *k, text *out)
{
    int count = 0;
    for (int i = 0; i < COUNT_OF(UNITS); i++)
        if (busy(k, i) >= BUSY)
            text_printf(out, "%s%s (%.0f %% of the peak)", count++ ? " and " : " It is bound by ", UNITS[i],
                        busy(k, i));
    text_printf(out, count ? "." : "");
    return count > 0;
}

static void say_latency(const ncu_kernel *k, text *out)
{
    int most = 0;
    for (int i = 1; i < COUNT_OF(UNITS); i++)
        most = busy(k, i) > busy(k, most) ? i : most;
    if (k->value[NCU_CTAS] < k->value[NCU_SMS])
        text_printf(out, " It has too few CTAs: %.0f for %.0f SMs.", k->value[NCU_CTAS], k->value[NCU_SMS]);
    else
        text_printf(out, " It is bound by latency: what is busiest, %s, is at %.0f %% of the peak.", UNITS[most],
                    busy(k, most));
    if (*k->stall.what)
        text_printf(out, " Its warps spend %.0f %% of their time %s.", k->stall.percent, k->stall.what);
    if (k->value[NCU_OCCUPANCY] > 0)
        text_printf(out, " Of the warps that an SM can hold %.0f %% are there.", k->value[NCU_OCCUPANCY]);
}

void ncu_say(const ncu_report *r, text *out)
{
    double sum = 0;
    const ncu_kernel *k = &r->kernels[0];
    if (!r->count) {
        text_printf(out, "Launches no kernel.");
        return;
    }
    for (int i = 0; i < r->count; i++) {
        sum += r->kernels[i].value[NCU_DURATION];
        if (r->kernels[i].value[NCU_DURATION] > k->value[NCU_DURATION])
            k = &r->kernels[i];
    }
    text_printf(out, "%s takes %.0f %% of %.2f us.", k->name, 100 * k->value[NCU_DURATION] / sum, sum);
    if (!say_bound(k, out))
        say_latency(k, out);
}
