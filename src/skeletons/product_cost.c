/* product_cost.c - steps of as many tiles as an SM holds share its rate; the last turn is as long as the others. */
#include "skeletons/product_cost.h"

#include <math.h>

plan_cost product_cost(const product_work *w, const ckl_device_info *device)
{
    static const double LAUNCH = 1.2, BYTES = 4.2e6, CLOCK = 0.9; // us; bytes a us; of the highest clock, under load
    const double of_sm = ceil(w->tiles / device->sm_count), at_once = fmin(w->ctas, of_sm);
    const double multiply = at_once * w->multiply_adds / w->rate;
    const double turn = w->steps * fmax(multiply, w->step_cycles) + w->tile_cycles;
    const double us = ceil(of_sm / at_once) * turn / (CLOCK * device->clock_mhz);
    const double memory = w->bytes / (w->bytes_per_us > 0 ? w->bytes_per_us : BYTES);
    return (plan_cost){ LAUNCH + w->us + fmax(us, memory), memory > us                 ? "memory"
                                                           : multiply > w->step_cycles ? "multiply-adds"
                                                                                       : "latency" };
}
