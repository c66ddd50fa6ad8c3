/* unit_emulator.h - small kernels for the emulator's tests: described, loaded and launched in one call. */
#pragma once

#include "unit.h"
#include "device/emulator/emulator.h"
#include "ir/build.h"
#include "ir/params.h"

/* Before every instruction whose line a report shall name. */
#define HERE ir_at(__FILE__, __LINE__)

/* Parameters of a kernel without a list; operators have lists (ir/params.h). */
#define param(type, name) (HERE, ir_scalar_param(type, name))
#define pointer(name)     (HERE, ir_scalar_param(IR_U64, name))

/* A kernel that is one call. */
#define KERNEL(name, call) \
    static void name(void) \
    {                      \
        call;              \
    }

typedef struct test_kernel {
    void (*describe)(void);
    ir_target target;
    int threads, cluster;
    int64_t grid;
} test_kernel;

static inline ckl_device *test_open(const char *settings)
{
    emulator_options options = emulator_options_default();
    ckl_device *gpu = NULL;
    assert_ok(emulator_options_parse(settings, &options));
    assert_ok(emulator_open_with("h200", &options, &gpu));
    return gpu;
}

static inline ckl_status test_load(ckl_device *gpu, test_kernel k, device_kernel **loaded)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("test", k.target);
    ir_current()->threads = k.threads ? k.threads : 32;
    ir_current()->cluster = k.cluster ? k.cluster : 1;
    k.describe();
    ckl_status status = ir_describe_end(&kernel);
    if (status != CKL_OK)
        fail_msg("describing: %s", ckl_error());
    status = gpu->ops->load(gpu, kernel, loaded);
    ir_kernel_free(kernel);
    return status;
}

/* Runs a kernel on parameters that the caller lists in the kernel's order. */
static inline ckl_status test_run(ckl_device *gpu, test_kernel k, void *const *params)
{
    device_kernel *loaded = NULL;
    ckl_status status = test_load(gpu, k, &loaded);
    if (status != CKL_OK)
        return status;
    device_launch launch = { .grid = { k.grid ? k.grid : 1, 1, 1 }, .params = params };
    status = gpu->ops->launch(gpu, loaded, &launch, NULL);
    gpu->ops->unload(gpu, loaded);
    return status;
}

/* One pointer for each parameter of a list, in its order, into the host's struct. */
static inline void test_params(const param_list *list, const void *params, void **out)
{
    for (int i = 0; i < list->count; i++)
        for (int j = 0; j < list->rows[i].count; j++)
            *out++ = (char *)(uintptr_t)params + list->rows[i].offset + (size_t)j * param_bytes(list->rows[i].kind);
}

/* Device memory that holds a copy of the host's; closing the device frees it. */
static inline void *test_upload(ckl_device *gpu, const void *from, size_t bytes)
{
    void *memory = NULL;
    assert_ok(gpu->ops->alloc(gpu, bytes, &memory));
    if (from)
        assert_ok(gpu->ops->copy_in(gpu, memory, from, bytes, NULL));
    return memory;
}

/* base + bytes * index, as a global address */
static inline val test_element(val base, val index, int bytes)
{
    return ir_binary(IR_ADD, base, ir_binary(IR_MUL, ir_convert(IR_U64, index), ir_int(IR_U64, bytes)));
}

static inline val test_load_value(ir_space space, ir_type type, val address, int64_t offset)
{
    val out = ir_reg(type);
    ir_load(space, IR_CACHE_DEFAULT, type, 1, address, offset, &out);
    return out;
}

static inline void test_store_value(ir_space space, ir_type type, val address, int64_t offset, val x)
{
    ir_store(space, IR_CACHE_DEFAULT, type, 1, address, offset, &x);
}

static inline int64_t test_counter(ckl_device *gpu, const char *name, char where[96])
{
    device_counter all[64];
    int count = gpu->ops->counters(gpu, all, 64);
    for (int i = 0; i < count; i++)
        if (strcmp(all[i].name, name) == 0) {
            if (where)
                memcpy(where, all[i].where, sizeof all[i].where);
            return all[i].value;
        }
    fail_msg("no counter %s", name);
    return 0;
}
