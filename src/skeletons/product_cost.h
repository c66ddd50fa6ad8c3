/* product_cost.h - the cost of a kernel whose CTAs multiply tiles in steps, without wgmma: an SM's steps, or memory. */
#pragma once

#include "plan/plan.h"

/* A launch. */
typedef struct product_work {
    double tiles;         // CTAs, or what each takes in its turn
    int ctas;             // that an SM holds at once
    double steps;         // of a tile, one after the other
    double multiply_adds; // of a step
    double rate;          // of multiply-adds of an SM in a cycle, at best
    double step_cycles;   // that no step is shorter than
    double tile_cycles;   // before the first step of a tile and behind the last
    double bytes;         // of device memory,
    double bytes_per_us;  // and its rate; 0: as of a copy
    double us;            // beside a launch: further kernels
} product_work;

/* The cost of whole turns of tiles, or of the bytes: the longer of both. */
plan_cost product_cost(const product_work *w, const ckl_device_info *device);
