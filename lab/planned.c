/* planned.c - a table of device functions that note what is loaded and launched. */
#include "lab/planned.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/heap.h"
#include "base/math.h"
#include "device/device.h"
#include "lab/accepted.h"

/* A loaded kernel: the emulator's, and what is known of its parameters. */
typedef struct noted_kernel {
    device_kernel *emulated;
    char name[128], made_of[256];
    int param_count;
    size_t param_bytes[IR_PARAMS_MAX];
} noted_kernel;

/* A device that plans and does not run: the emulator loads, counts resident clusters and encodes tensor maps. */
typedef struct noting_device {
    ckl_device base;
    ckl_device *emulator;
    text launches; // of the plan at hand, one line each
} noting_device;

/* Is it a pair of which one half is a constant? */
static bool is_half_constant(const ir_kernel *kernel, val pair)
{
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        if (inst->op == IR_PACK && inst->out[0].reg == pair.reg &&
            (inst->in[0].reg == IR_CONSTANT) != (inst->in[1].reg == IR_CONSTANT))
            return true;
    }
    return false;
}

/*
 * Where PTX multiplies a pair of which one half is a known negative number, ptxas 13.0 loses a sign. No operator may
 * depend on that.
 */
static ckl_status check_pairs(const ir_kernel *kernel)
{
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        bool computes = inst->op >= IR_ADD && inst->op <= IR_ABS && ir_type_is_pair(inst->type);
        for (int s = 0; computes && s < inst->in_count; s++)
            if (is_half_constant(kernel, inst->in[s]))
                FAIL(CKL_INTERNAL, "%s: %s of %s of which one half is constant, which ptxas may get wrong",
                     kernel->name, ir_op_text(inst->op), ir_type_text(inst->type));
    }
    return CKL_OK;
}

static ckl_status note_contents(const ir_kernel *kernel, noted_kernel *noted)
{
    int counts[IR_CLASS_COUNT] = { 0 };
    TRY(check_pairs(kernel));
    for (int i = 0; i < kernel->inst_count; i++)
        counts[ir_op_class(kernel->insts[i].op)]++;
    text ptx = { 0 };
    TRY(ir_print_ptx(kernel, &ptx));
    int length =
        snprintf(noted->made_of, sizeof noted->made_of, "%d threads, cluster %d, %d per sm, smem %" PRId64 ", code",
                 kernel->threads, kernel->cluster, kernel->ctas_per_sm, kernel->smem_bytes);
    for (int i = 0; i < IR_CLASS_COUNT; i++)
        length += snprintf(noted->made_of + length, sizeof noted->made_of - (size_t)length, " %d", counts[i]);
    snprintf(noted->made_of + length, sizeof noted->made_of - (size_t)length, " #%08x",
             (unsigned)accepted_digest(text_data(&ptx)));
    text_free(&ptx);
    return CKL_OK;
}

static ckl_device *emulator_of(const ckl_device *d)
{
    return ((const noting_device *)d)->emulator;
}

static ckl_status load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    noted_kernel *noted = heap_alloc(1, sizeof *noted);
    snprintf(noted->name, sizeof noted->name, "%s", kernel->name);
    ckl_status status = note_contents(kernel, noted);
    if (status != CKL_OK) {
        heap_free(noted);
        return status;
    }
    noted->param_count = kernel->param_count;
    for (int i = 0; i < kernel->param_count; i++)
        noted->param_bytes[i] =
            kernel->params[i].tensor_map ? sizeof(tensor_map) : (size_t)ir_type_bytes(kernel->params[i].type);
    *loaded = (device_kernel *)noted;
    return emulator_of(d)->ops->load(emulator_of(d), kernel, &noted->emulated);
}

static void unload(ckl_device *d, device_kernel *kernel)
{
    emulator_of(d)->ops->unload(emulator_of(d), ((noted_kernel *)kernel)->emulated);
    heap_free(kernel);
}

static ckl_status clusters_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    return emulator_of(d)->ops->clusters_resident(emulator_of(d), ((const noted_kernel *)kernel)->emulated, count);
}

static ckl_status encode_tensor_map(const ckl_device *d, const tensor_map_desc *desc, tensor_map *map)
{
    return emulator_of(d)->ops->encode_tensor_map(emulator_of(d), desc, map);
}

static ckl_status launch(ckl_device *d, const device_kernel *kernel, const device_launch *l, ckl_stream s)
{
    (void)s;
    text *launches = &((noting_device *)d)->launches;
    const noted_kernel *noted = (const noted_kernel *)kernel;
    uint64_t hash = HASH_START;
    for (int i = 0; i < noted->param_count; i++)
        hash = hash_bytes(hash, l->params[i], noted->param_bytes[i]);
    text_printf(launches, "    %s: grid %" PRId64 "x%" PRId64 "x%" PRId64 ", %s, values #%08x\n", noted->name,
                l->grid[0], l->grid[1], l->grid[2], noted->made_of, (unsigned)hash);
    return CKL_OK;
}

enum { WORKSPACE = 16 }; // a place that later operands do not change: digests of calls have the address

/* Memory that nobody touches: each operand has 4 TiB of addresses. */
static void *address_at(int place)
{
    return (void *)((uintptr_t)(place + 1) << 42);
}

static void *address_of(int number)
{
    return address_at(number < WORKSPACE ? number : number + 1);
}

static ckl_status alloc(ckl_device *d, size_t bytes, void **memory)
{
    (void)d;
    (void)bytes;
    *memory = address_at(WORKSPACE);
    return CKL_OK;
}

static void release(ckl_device *d, void *memory)
{
    (void)d;
    (void)memory;
}

static ckl_status fill(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s)
{
    (void)d;
    (void)to;
    (void)byte;
    (void)bytes;
    (void)s;
    return CKL_OK;
}

static ckl_status stream_create(ckl_device *d, ckl_stream *s)
{
    *s = d;
    return CKL_OK;
}

static void stream_destroy(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
}

static ckl_status synchronize(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
    return CKL_OK;
}

static const device_ops ops = { .alloc = alloc,
                                .release = release,
                                .fill = fill,
                                .stream_create = stream_create,
                                .stream_destroy = stream_destroy,
                                .synchronize = synchronize,
                                .load = load,
                                .unload = unload,
                                .clusters_resident = clusters_resident,
                                .encode_tensor_map = encode_tensor_map,
                                .launch = launch };

static ckl_status run(const test_case *c, const ckl_plan *plan)
{
    operand infos[OPERANDS_MAX];
    void *pointers[OPERANDS_MAX] = { 0 };
    memset(infos, 0, sizeof infos);
    int count = adapter_operands(c->test, c->problem, infos);
    for (int i = 0; i < count; i++)
        if (infos[i].dtype != CKL_DTYPE_DEFAULT)
            pointers[i] = (char *)address_of(i) +
                          (size_t)(c->keys.misalign + i * c->keys.stagger) * ckl_dtype_bytes(infos[i].dtype);
    for (int i = 0; i < count; i++)
        adapter_pointer(&infos[i], i, pointers);
    return adapter_run(c->test, plan, pointers, NULL);
}

ckl_status planned_open(const ckl_device_info *like, ckl_device **device)
{
    noting_device *made = heap_alloc(1, sizeof *made);
    const char *id = like->emulated ? like->id : "emulator:h200"; // with room for whatever fits the device
    ckl_status status = ckl_device_open(id, &made->emulator);
    if (status != CKL_OK) {
        heap_free(made);
        return status;
    }
    made->base = (ckl_device){ &ops, *like };
    *device = &made->base;
    return CKL_OK;
}

void planned_close(ckl_device *device)
{
    if (!device)
        return;
    noting_device *d = (noting_device *)device;
    plan_forget_device(device);
    ckl_device_close(d->emulator);
    text_free(&d->launches);
    heap_free(d);
}

ckl_status planned_launches(ckl_device *device, const test_case *c, ckl_plan **plan, text *out)
{
    text *launches = &((noting_device *)device)->launches;
    ckl_plan *made = NULL;
    text_clear(launches);
    TRY(case_plan(c, device, &made));
    ckl_status status = run(c, made);
    if (status == CKL_OK)
        text_append(out, text_data(launches), launches->length);
    if (plan && status == CKL_OK)
        *plan = made;
    else
        ckl_plan_free(made);
    return status;
}

ckl_status planned_digest(ckl_device *device, const test_case *c, uint64_t *hash)
{
    text launches = { 0 };
    ckl_status status = planned_launches(device, c, NULL, &launches);
    *hash = hash_bytes(HASH_START, text_data(&launches), launches.length);
    text_free(&launches);
    return status;
}
