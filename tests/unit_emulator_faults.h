/*
 * unit_emulator_faults.h - planting faults: a small kernel that has one, and the same kernel without it.
 *
 * Each kernel runs under every schedule and completion. Planted, the report must name the fault and the line of C that
 * is to blame; corrected, the kernel must pass.
 */
#pragma once

#include "unit_emulator_short.h"

#define BLAMED_FILE (strrchr(__BASE_FILE__, '/') + 1)

enum {
    MEMORY_BYTES = 16384, // of "memory", initialised, and of "fresh", never written
    ROWS = 64,            // of the tile that "map" describes: f16, in rows of 128 bytes
    ROW_BYTES = 128,
    TILE_BYTES = ROWS * ROW_BYTES,
    SMEM_LIMIT = 232448,
    SMS = 6, // a small device is as many times faster
};

static bool planted;
static int blamed; // the line that the report must name

/* What is described from here on is to blame, or this alone. */
#define BLAME        (blamed = __LINE__, ir_at(__FILE__, __LINE__))
#define BLAMED(call) (BLAME, (call), ir_at(__FILE__, __LINE__ + 1))

typedef struct parameters {
    val memory, fresh, map;
} parameters;

static inline parameters declare(void)
{
    HERE;
    parameters p;
    p.memory = ir_scalar_param(IR_U64, "memory");
    p.fresh = ir_scalar_param(IR_U64, "fresh");
    p.map = ir_tensor_map_param("map");
    return p;
}

static inline val tid(void)
{
    return ir_sreg(IR_TID_X);
}

static inline val is_warp(int w)
{
    return ir_compare(IR_EQ, ir_sreg(IR_WARP), u32(w));
}

static inline val tile(const char *name, int64_t bytes)
{
    return ir_smem_address(ir_smem_alloc(name, bytes, 1024));
}

/* All threads fill a tile by ordinary stores. */
static inline void fill_tile(val address, int bytes, int threads)
{
    val zero[4] = { u32(0), u32(0), u32(0), u32(0) };
    for (int at = 0; at < bytes; at += threads * 16)
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, add(address, mul(tid(), 16)), at, zero);
}

/* Of a wgmma operand, K-major without a swizzle: 8x8 matrices beside and below each other. */
static inline val descriptor(val address)
{
    val units = ir_convert(IR_U64, ir_binary(IR_SHR, address, u32(4)));
    return ir_binary(IR_OR, units, ir_int(IR_U64, INT64_C(8) << 16 | INT64_C(16) << 32));
}

typedef struct fault_case {
    void (*describe)(parameters p);
    int threads, cluster;
    const char *words[3]; // of the report
    int grid, more;       // CTAs, and those that the planted fault wants beside them
} fault_case;

static const fault_case *described;

typedef struct bench {
    ckl_device *gpu;
    void *memory, *fresh;
    tensor_map map;
} bench;

static inline bench bench_open(const char *settings)
{
    static const unsigned char zeros[MEMORY_BYTES];
    bench b = { .gpu = test_open(settings) };
    b.gpu->info.sm_count = SMS;
    b.memory = test_upload(b.gpu, zeros, MEMORY_BYTES);
    b.fresh = test_upload(b.gpu, NULL, MEMORY_BYTES);
    tensor_map_desc desc = { .dtype = CKL_F16,
                             .rank = 2,
                             .address = b.memory,
                             .size = { ROW_BYTES / 2, ROWS },
                             .stride = { 2, ROW_BYTES },
                             .box = { ROW_BYTES / 2, ROWS },
                             .swizzle = SWIZZLE_128 };
    assert_ok(b.gpu->ops->encode_tensor_map(b.gpu, &desc, &b.map));
    return b;
}

static void describe_case(void)
{
    described->describe(declare());
}

static inline ckl_status bench_run(bench *b, const fault_case *c, bool plant)
{
    described = c;
    planted = plant;
    blamed = 0;
    test_kernel k = { describe_case, IR_SM90A, c->threads, c->cluster, c->grid + (plant ? c->more : 0) };
    return test_run(b->gpu, k, (void *[]){ &b->memory, &b->fresh, &b->map });
}

static inline void check_report(const fault_case *c, const char *settings)
{
    char line[64];
    snprintf(line, sizeof line, "%s:%d", BLAMED_FILE, blamed);
    for (int i = 0; i < 3 && c->words[i]; i++)
        if (!strstr(ckl_error(), c->words[i]))
            fail_msg("[%s] \"%s\" is not in: %s", settings, c->words[i], ckl_error());
    if (strstr(ckl_error(), "an unknown line")) // that of the other one
        fail_msg("[%s] %s", settings, ckl_error());
    if (blamed && !strstr(ckl_error(), line))
        fail_msg("[%s] %s is not in: %s", settings, line, ckl_error());
}

/* A test of a case: with the fault, and without it. */
static inline void test_fault(void **state)
{
    const fault_case *c = *state;
    for (int i = 0; i < COUNT_OF(all_settings); i++) {
        bench b = bench_open(all_settings[i]);
        ckl_status status = bench_run(&b, c, true);
        if (status != CKL_DEVICE_FAULT)
            fail_msg("[%s] planted: status %s", all_settings[i], ckl_status_name(status));
        check_report(c, all_settings[i]);
        if (getenv("VERBOSE") && i == 0)
            print_message("%s\n", ckl_error());
        b.gpu->ops->close(b.gpu);
        b = bench_open(all_settings[i]); // a fault may leave half a tile stored
        if (bench_run(&b, c, false) != CKL_OK)
            fail_msg("[%s] corrected: %s", all_settings[i], ckl_error());
        b.gpu->ops->close(b.gpu);
    }
}

/*
 * A case and its test: FAULT(name, threads, CTAs of a cluster, words of the report) { ... } describes the kernel, whose
 * parameters are p. GRID_FAULT has the case's grid and more before the words; of _CALL the kernel is a call.
 */
#define GRID_FAULT(name, threads, cluster, grid, more, ...)                                        \
    static void name(parameters p);                                                                \
    static const fault_case name##_case = { name, threads, cluster, { __VA_ARGS__ }, grid, more }; \
    __attribute__((constructor)) static void enlist_##name(void)                                   \
    {                                                                                              \
        enlist("fault: " #name, test_fault, NULL, NULL, &name##_case);                             \
    }                                                                                              \
    static void name(parameters p)
#define FAULT(name, threads, cluster, ...) GRID_FAULT(name, threads, cluster, cluster, 0, __VA_ARGS__)
#define GRID_FAULT_CALL(name, call, threads, cluster, grid, more, ...) \
    GRID_FAULT(name, threads, cluster, grid, more, __VA_ARGS__)        \
    {                                                                  \
        call;                                                          \
    }
#define FAULT_CALL(name, call, threads, cluster, ...) \
    GRID_FAULT_CALL(name, call, threads, cluster, cluster, 0, __VA_ARGS__)
