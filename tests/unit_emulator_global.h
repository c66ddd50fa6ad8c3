/* unit_emulator_global.h - planting faults among CTAs: flags in global memory, and grids of several CTAs. */
#pragma once

#include "unit_emulator_faults.h"

enum { FLAG = TILE_BYTES, COUNTER = FLAG + 64, CTAS = 4, SMEM_OF_ONE_PER_SM = 200000, SMS = 6 };

static inline val cta(void)
{
    return ir_sreg(IR_CTA_X);
}

static inline val is_cta(int i)
{
    return ir_compare(IR_EQ, cta(), u32(i));
}

static inline void only_thread(int i)
{
    ir_if(ir_compare(IR_EQ, tid(), u32(i)));
}

static inline val at_offset(val base, int64_t offset)
{
    return ir_binary(IR_ADD, base, ir_int(IR_U64, offset));
}

static inline val load_flag(ir_order order, val flag)
{
    if (order)
        return ir_load_strong(order, IR_SCOPE_GPU, IR_U32, flag, 0);
    return test_load_value(IR_GLOBAL, IR_U32, flag, 0);
}

static inline void store_flag(ir_order order, val flag, val x)
{
    if (order)
        ir_store_strong(order, IR_SCOPE_GPU, IR_U32, flag, 0, x);
    else
        test_store_value(IR_GLOBAL, IR_U32, flag, 0, x);
}

static inline void wait_for(ir_order order, val flag, val wanted)
{
    FOREVER {
        HERE;
        ir_break(ir_compare(IR_EQ, load_flag(order, flag), wanted));
    }
}

typedef struct global_case {
    fault_case fault;
    int grid, more; // CTAs, and those that the planted fault wants beside them
} global_case;

static inline ckl_status run(bench *b, const global_case *c, bool plant, int64_t grid)
{
    planted = plant;
    blamed = 0;
    b->gpu->info.sm_count = SMS; // a small device is as many times faster
    test_kernel k = { c->fault.describe, IR_SM90A, .threads = c->fault.threads, .cluster = c->fault.cluster,
                      .grid = grid };
    return test_run(b->gpu, k, (void *[]){ &b->memory, &b->fresh, &b->map });
}

static inline void test_global(void **state)
{
    const global_case *c = *state;
    for (int i = 0; i < COUNT_OF(all_settings); i++) {
        bench b = bench_open(all_settings[i]);
        if (run(&b, c, true, c->grid + c->more) != CKL_DEVICE_FAULT)
            fail_msg("[%s] planted: nothing was found", all_settings[i]);
        check_report(&c->fault, all_settings[i]);
        if (getenv("VERBOSE") && i == 0)
            print_message("%s\n", ckl_error());
        b.gpu->ops->close(b.gpu);
        b = bench_open(all_settings[i]);
        if (run(&b, c, false, c->grid) != CKL_OK)
            fail_msg("[%s] corrected: %s", all_settings[i], ckl_error());
        b.gpu->ops->close(b.gpu);
    }
}

/* Runs the tests of the file, and every case as one of its own. */
static inline int run_global(const global_case *cases, int count)
{
    for (int i = 0; i < count; i++) {
        char name[TEST_NAME_MAX];
        snprintf(name, sizeof name, "case %d", i);
        enlist(name, test_global, NULL, NULL, &cases[i]);
    }
    return run_enlisted(NULL, NULL);
}
