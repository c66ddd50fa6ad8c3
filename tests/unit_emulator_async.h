/* unit_emulator_async.h - what tests of asynchronous work share: completions and schedules, names, small numbers. */
#pragma once

#include "unit_emulator_short.h"
#include "device/emulator/tma.h"

static ckl_device *gpu;

static inline val i32(val x)
{
    return ir_convert(CKL_I32, x);
}

static inline val equals(val x, int64_t y)
{
    return ir_compare(IR_EQ, x, u32(y));
}

static inline void run_or_fail(test_kernel k, void *const *params)
{
    assert_ok(test_run(gpu, k, params));
}

static inline tensor_map map_2d(void *memory, int64_t columns, int64_t rows, int box_columns, int box_rows, int span)
{
    tensor_map map;
    tensor_map_desc desc = { .dtype = CKL_F16,
                             .rank = 2,
                             .address = memory,
                             .size = { columns, rows },
                             .stride = { 2, columns * 2 },
                             .box = { (int16_t)box_columns, (int16_t)box_rows },
                             .swizzle = (tensor_map_swizzle)span };
    assert_ok(gpu->ops->encode_tensor_map(gpu, &desc, &map));
    return map;
}

/* Small whole numbers in f16. */
static inline uint16_t small_number(uint32_t seed)
{
    static const uint16_t numbers[] = { 0x0000, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4200 };
    seed = (seed * 2654435761U) >> 16;
    return numbers[seed % 6];
}

static inline float value_of(uint16_t half)
{
    static const float values[] = { 0, 1, -1, 2, -2, 3 };
    for (uint32_t i = 0;; i++)
        if (half == (const uint16_t[]){ 0x0000, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4200 }[i])
            return values[i];
}

static inline void everywhere(void (*test)(void))
{
    for (int i = 0; i < COUNT_OF(all_settings); i++) {
        gpu = test_open(all_settings[i]);
        test();
        gpu->ops->close(gpu);
    }
}

/* A test that runs under all settings. */
#define TEST_EVERYWHERE(name)      \
    static void name##_once(void); \
    TEST(name)                     \
    {                              \
        everywhere(name##_once);   \
    }                              \
    static void name##_once(void)
