/*
 * memory_cost.h - what a kernel that streams costs: the bytes it moves, how many of them are on their way at a time,
 * and the instructions that move them.
 */
#pragma once

#include "plan/plan.h"

/* What sets a kernel apart from those that the coefficients were fitted to; 0 in each member: nothing. */
typedef struct memory_kernel {
    double us;                     // beside a launch: further kernels, a first and a last turn that nothing overlaps
    double wait_cycles;            // more of a turn
    double bytes, elements, lines; // times those of the work
} memory_kernel;

/* A launch, as its memory, SMs and schedulers see it. */
typedef struct memory_work {
    memory_kernel of;
    double bytes; // of device memory, read and written by all CTAs
    int64_t ctas;
    int threads;        // of a CTA
    int registers;      // of a thread, beside those that every kernel needs
    int64_t smem_bytes; // of a CTA
    int ctas_per_sm;    // that the kernel was compiled for; 0: any
    double wait_cycles; // of a CTA between its loads and its stores, for other CTAs
    double lines;       // of 128 bytes that the accesses of a warp touch
    double elements;    // of a thread that are computed with
    bool meets;         // the threads of a CTA wait for each other
} memory_work;

/* Lines of 128 bytes that a warp touches when each thread accesses so many bytes, in runs so long. */
double memory_lines(double access_bytes, double run_bytes);

/*
 * A launch and the longest of five times: bytes at the rate of HBM; waves of CTAs that wait for loads and for other
 * threads; lines through L1; instructions; starts of CTAs. The coefficients are fitted to sweeps on an H200
 * (memory_fit.h).
 */
plan_cost memory_cost(const memory_work *w, const ckl_device_info *device);
