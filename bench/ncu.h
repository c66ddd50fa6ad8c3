/* ncu.h - what NVIDIA's Nsight Compute measures of the kernels of one problem, and what follows from it. */
#pragma once

#include "lab/case.h"

/* X(ID, key in files, metric on ncu's page of details, our unit, how many of it are one of ncu's): of a launch. */
#define NCU_METRICS(X)                                                              \
    X(DURATION, "duration_us", "Duration", "us", 1e-3)                              \
    X(DRAM, "dram_percent", "DRAM Throughput", "%", 1)                              \
    X(L2, "l2_percent", "L2 Cache Throughput", "%", 1)                              \
    X(L1, "l1_percent", "L1/TEX Cache Throughput", "%", 1)                          \
    X(SM, "sm_percent", "Compute (SM) Throughput", "%", 1)                          \
    X(CTAS, "ctas", "Grid Size", "CTAs", 1)                                         \
    X(THREADS, "threads", "Block Size", "threads", 1)                               \
    X(REGISTERS, "registers", "Registers Per Thread", "", 1)                        \
    X(SMEM, "smem_bytes", "Dynamic Shared Memory Per Block", "bytes", 1)            \
    X(OCCUPANCY, "occupancy_percent", "Achieved Occupancy", "%", 1)                 \
    X(OCCUPANCY_MAX, "occupancy_possible_percent", "Theoretical Occupancy", "%", 1) \
    X(WAVES, "waves", "Waves Per SM", "", 1)                                        \
    X(SMS, "sms", "# SMs", "", 1)

typedef enum ncu_metric {
#define X(id, key, name, unit, scale) NCU_##id,
    NCU_METRICS(X)
#undef X
        NCU_METRIC_COUNT
} ncu_metric;

enum { NCU_TEXT_BYTES = 128, NCU_KERNELS_MAX = 16 };

/* What ncu's rules say of a kernel: a share, and of what. */
typedef struct ncu_finding {
    char what[NCU_TEXT_BYTES]; // "" if it says none
    double percent;
} ncu_finding;

/* Launches of one kernel on one grid: their duration is the sum, the rest is of the first. */
typedef struct ncu_kernel {
    char name[NCU_TEXT_BYTES];
    int launches;
    double value[NCU_METRIC_COUNT]; // NAN: ncu does not say
    ncu_finding pipe;               // the busiest of the SM, "FMA" or "Tensor"
    ncu_finding stall;              // what warps wait for most, and its share of their time
} ncu_kernel;

typedef struct ncu_report {
    ncu_kernel kernels[NCU_KERNELS_MAX];
    int count;
} ncu_report;

typedef struct ncu_metric_info {
    const char *key, *name, *unit;
    double scale;
} ncu_metric_info;

extern const ncu_metric_info ncu_metrics[NCU_METRIC_COUNT];

/* The path of ncu: what CKL_NCU names, on PATH or in the usual places; NULL if there is none. */
const char *ncu_tool(void);

/*
 * Measures `ckl run` of the case on a CUDA device, which this process should not hold: the launches of one warm run,
 * with a cold L2. CKL_UNSUPPORTED with a remedy where there is no ncu, or the driver lets it count nothing.
 */
ckl_status ncu_profile(const test_case *c, const ckl_device_info *info, ncu_report *out);

/* Reads what ncu printed by --csv --page details, with what the program printed before it. */
ckl_status ncu_read(const char *output, ncu_report *out);

/* Appends the figures of every kernel; and a paragraph that says what bounds the longest. */
void ncu_print(const ncu_report *r, text *out);
void ncu_say(const ncu_report *r, text *out);
