/* profile.h - what the kernels of one run do, as the emulator counts it, beside what the problem asks for. */
#pragma once

#include "device/emulator/emulator.h"
#include "lab/check.h"

enum { PROFILE_KERNELS_MAX = 16, PROFILE_NAME_BYTES = 128 };

/* Launches of one kernel on one grid. */
typedef struct profiled_kernel {
    char name[PROFILE_NAME_BYTES];
    int64_t grid[3]; // CTAs
    int threads, cluster;
    int64_t smem_bytes;
    int64_t count[COUNTER_COUNT];
    device_counter lines[CONFLICT_LINES_MAX]; // with bank conflicts, the worst first
    int line_count;
} profiled_kernel;

typedef struct profile {
    int sm_count;
    double bytes_read, bytes_written, flops; // that the problem has
    plan_cost cost;                          // predicted; bound NULL: the implementation says none
    char tiles[PROFILE_NAME_BYTES];          // of the config: "tile_m=128 tile_n=64", or ""
    profiled_kernel kernels[PROFILE_KERNELS_MAX];
    int kernel_count;
} profile;

/* Runs a check that is open once, on an emulated device that nobody else uses, and counts. Results are not compared. */
ckl_status profile_run(check *k, profile *out);

/* Bytes that a kernel moves between global memory and its SMs. */
int64_t profile_read_bytes(const profiled_kernel *k);
int64_t profile_written_bytes(const profiled_kernel *k);

/* Appends the figures of every kernel; and a paragraph that says what stands out (profile_words.c). */
void profile_print(const profile *p, text *out);
void profile_say(const profile *p, text *out);
