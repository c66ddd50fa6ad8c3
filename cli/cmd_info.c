/* cmd_info.c - ckl info: what is here, what is missing, and how to get it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/math.h"
#include "bench/ncu.h"
#include "lab/assemble.h"
#include "cli/cli.h"
#include "device/cubin_cache.h"

/* A library that is opened at run time. */
typedef struct library {
    const char *name, *purpose, *remedy;
    const char *sonames[3]; // newest first
} library;

static const library libraries[] = {
    { "CUDA driver", "runs kernels on a GPU", "install the NVIDIA driver", { "libcuda.so.1" } },
    { "NVML", "clocks, power, temperature", "comes with the NVIDIA driver", { "libnvidia-ml.so.1" } },
    { "cuBLASLt",
      "peer of gemm",
      "pip install nvidia-cublas, or the CUDA toolkit; its folder goes on LD_LIBRARY_PATH",
      { "libcublasLt.so.13", "libcublasLt.so.12" } },
    { "cuDNN",
      "peer of convolution and attention",
      "pip install nvidia-cudnn-cu13; its folder goes on LD_LIBRARY_PATH",
      { "libcudnn.so.9" } },
};

/* Never closed: some of these libraries start threads. */
static const char *find_library(const library *l)
{
    for (int i = 0; i < COUNT_OF(l->sonames) && l->sonames[i]; i++)
        if (dlopen(l->sonames[i], RTLD_LAZY | RTLD_LOCAL))
            return l->sonames[i];
    return NULL;
}

static void print_device(const ckl_device_info *info)
{
    printf("  %-14s %s: sm_%d, %d SMs at %d MHz, %.0f GiB, L2 %.0f MiB, %.0f KiB of shared memory per CTA%s%s\n",
           info->id, info->name, info->compute_capability, info->sm_count, info->clock_mhz,
           (double)info->memory_bytes / (1 << 30), (double)info->l2_bytes / (1 << 20),
           (double)info->smem_per_cta_bytes / 1024, info->has_tma ? ", TMA" : "", info->has_wgmma ? ", wgmma" : "");
}

static ckl_status show_device(const char *id)
{
    ckl_device *device;
    TRY(ckl_device_open(id, &device));
    print_device(ckl_device_properties(device));
    ckl_device_close(device);
    return CKL_OK;
}

static void show_devices(void)
{
    static const char *const emulated[] = { "emulator:h200", "emulator:h100", "emulator:b200",
                                            "emulator:a100", "emulator:a10",  "emulator:l4" };
    printf("devices\n");
    char id[32];
    for (int i = 0; i < 64; i++) {
        snprintf(id, sizeof id, "cuda:%d", i);
        if (show_device(id) == CKL_OK)
            continue;
        if (i == 0)
            printf("  %-14s none: %s\n", "cuda", ckl_error());
        break;
    }
    for (int i = 0; i < COUNT_OF(emulated); i++)
        if (show_device(emulated[i]) != CKL_OK)
            printf("  %-14s %s\n", emulated[i], ckl_error());
}

static void show_libraries(void)
{
    printf("libraries\n");
    for (int i = 0; i < COUNT_OF(libraries); i++) {
        const library *l = &libraries[i];
        const char *found = find_library(l);
        if (found)
            printf("  %-14s %s, %s\n", l->name, found, l->purpose);
        else
            printf("  %-14s missing (%s): %s\n", l->name, l->purpose, l->remedy);
    }
}

static void show_cache(void)
{
    cubin_cache *cache = NULL;
    printf("cache of compiled kernels\n");
    if (cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache) != CKL_OK) {
        printf("  %s\n", ckl_error());
        return;
    }
    cubin_cache_sums sums = cubin_cache_count(cache);
    printf("  %s: %" PRId64 " kernels, %.1f MiB of at most %.0f\n", cubin_cache_path(cache), sums.entries,
           (double)sums.bytes / 0x1p20, (double)CUBIN_CACHE_BYTES_MAX / 0x1p20);
    cubin_cache_close(cache);
}

static int command(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("ckl %s\n", ckl_version());
    show_devices();
    show_libraries();
    show_cache();
    const char *ptxas = assemble_tool(), *ncu = ncu_tool();
    printf("tools\n  %-14s %s\n", "ptxas",
           ptxas ? ptxas : "missing (checks registers and spills): install the CUDA toolkit");
    printf("  %-14s %s\n", "ncu", ncu ? ncu : "missing (ckl profile on a GPU): install NVIDIA Nsight Compute");
    return EXIT_PASSED;
}

const cli_command cmd_info = {
    "info",
    "",
    "devices, driver, peers and tools found; what is missing and how to get it",
    "Lists devices, the driver, peers to race against and tools; says how to get what is missing.",
    NULL,
    0,
    command
};
