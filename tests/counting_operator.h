/*
 * counting_operator.h - an operator of two implementations on a device that runs nothing and counts what is loaded,
 * chosen and launched. A program includes it once.
 */
#pragma once

#include <string.h>

#include "ir/build.h"
#include "plan/kernel_cache.h"
#include "plan/plan.h"

/* A device that counts what is loaded on it. */
static int loads, unloads, launches, ready_at_load; // ready: sets of kernels
static int resident = 1;                            // clusters that it has room for

static ckl_status count_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    assert_says(kernel->note, "op ");
    ready_at_load = kernel_cache_count(d).sets;
    loads++;
    *loaded = (device_kernel *)&loads;
    return CKL_OK;
}

static void count_unload(ckl_device *d, device_kernel *kernel)
{
    unloads++;
}

static ckl_status count_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    *count = resident;
    return CKL_OK;
}

static const device_ops counting_ops = { .load = count_load,
                                         .unload = count_unload,
                                         .clusters_resident = count_resident };
static ckl_device device = { &counting_ops,
                             { .id = "counter",
                               .compute_capability = 90,
                               .threads_per_cta_max = 1024,
                               .registers_per_sm = 65536,
                               .smem_per_cta_bytes = 1024 } };

/* An operator with two implementations: "first" wants n even, "second" takes any n up to 100; "third" needs wgmma. */
typedef struct op_desc {
    int64_t n;
    ckl_dtype dtype; // and padding behind it
} op_desc;

#define OP_CONFIG(X)                                \
    X(op_config, int, threads, "128", "64 128", "") \
    X(op_config, int, vector, "1", "1 2 4", "")

typedef struct op_config {
    OP_CONFIG(FIELD_MEMBER)
} op_config;

static const field op_fields[] = { OP_CONFIG(FIELD_ROW) };

static int choices;

static ckl_status choose_first(const void *desc, const ckl_device_info *info, void *config)
{
    choices++;
    const op_desc *d = desc;
    if (d->n % 2)
        FAIL(CKL_UNSUPPORTED, "op first: n=%" PRId64 " is odd", d->n);
    ((op_config *)config)->vector = 2;
    return CKL_OK;
}

static ckl_status choose_second(const void *desc, const ckl_device_info *info, void *config)
{
    if (((const op_desc *)desc)->n > 100)
        FAIL(CKL_UNSUPPORTED, "op second: n=%" PRId64 " is over 100", ((const op_desc *)desc)->n);
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *info, const void *config)
{
    const op_config *c = config;
    if (((const op_desc *)desc)->n % c->vector)
        FAIL(CKL_UNSUPPORTED, "op first: vector=%d does not divide n", c->vector);
    return CKL_OK;
}

static void describe(const void *config, int kernel)
{
    ir_current()->threads = ((const op_config *)config)->threads;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    launches++;
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    if (((op_desc *)desc)->n < 0)
        FAIL(CKL_INVALID, "op: n=%" PRId64 " is negative", ((op_desc *)desc)->n);
    return CKL_OK;
}

/* What implementations of it have in common; and the operator, of those of a list. */
#define OP_IMPLEMENTATION \
    .config_bytes = sizeof(op_config), .config = FIELD_TABLE(op_fields), .describe = describe, .launch = launch
#define OP_OF(list)                                                                                                \
    {                                                                                                              \
        .name = "op", .desc_bytes = sizeof(op_desc), .members = members, .check = check, .implementations = (list) \
    }

static const implementation first = { .name = "first", OP_IMPLEMENTATION, .choose = choose_first, .admit = admit };
static const implementation second = { .name = "second", OP_IMPLEMENTATION, .choose = choose_second };
static const implementation third = { .name = "third", .choose = choose_second, .target = IR_SM90A };
static const implementation *const implementations[] = { &third, &first, &second, NULL };
static const desc_member members[] = { DESC_MEMBER(op_desc, int64_t, n),
                                       DESC_MEMBER(op_desc, ckl_dtype, dtype),
                                       { 0 } };

static const operator_info op = OP_OF(implementations);

static ckl_plan *plan_of(int64_t n, const char *force)
{
    ckl_plan *plan = NULL;
    assert_ok(plan_build(&device, &op, &(op_desc){ .n = n }, force, &plan));
    return plan;
}
