/* decode.c - from the IR to steps: handlers looked up, operands turned into places, constants spread over lanes. */
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "device/emulator/machine.h"

enum { BANK_ALIGNMENT = 64, SETMAXNREG_STEP = 8, REGISTERS_MAX = 255 };

/* The handler of every op; ALU ops have alu, and memory ops one for each space. */
static handler *const handlers[IR_OP_COUNT] = {
    [IR_CONVERT] = run_convert,
    [IR_PACK] = run_pack,
    [IR_UNPACK] = run_unpack,
    [IR_SREG] = run_sreg,
    [IR_PARAM] = run_param,
    [IR_ATOM] = run_atomic,
    [IR_RED] = run_atomic,
    [IR_ST_ASYNC] = run_store_async,
    [IR_CP_ASYNC] = run_cp_async,
    [IR_CP_ASYNC_COMMIT] = run_cp_async_commit,
    [IR_CP_ASYNC_WAIT] = run_cp_async_wait,
    [IR_FENCE] = run_fence,
    [IR_FENCE_PROXY_ASYNC] = run_fence_proxy,
    [IR_FENCE_MBARRIER_INIT] = run_fence_init,
    [IR_BULK_LOAD] = run_bulk_load,
    [IR_BULK_STORE] = run_bulk_store,
    [IR_TMA_LOAD] = run_tma_load,
    [IR_TMA_STORE] = run_tma_store,
    [IR_BULK_COMMIT] = run_bulk_commit,
    [IR_BULK_WAIT] = run_bulk_wait,
    [IR_TMA_PREFETCH] = run_tma_prefetch,
    [IR_BULK_PREFETCH] = run_bulk_prefetch,
    [IR_PREFETCH] = run_prefetch,
    [IR_DISCARD] = run_discard,
    [IR_MBARRIER_INIT] = run_mbarrier_init,
    [IR_MBARRIER_ARRIVE] = run_mbarrier_arrive,
    [IR_MBARRIER_EXPECT] = run_mbarrier_expect,
    [IR_MBARRIER_WAIT] = run_mbarrier_wait,
    [IR_BAR_SYNC] = run_bar_sync,
    [IR_BAR_ARRIVE] = run_bar_arrive,
    [IR_CLUSTER_ARRIVE] = run_cluster_arrive,
    [IR_CLUSTER_WAIT] = run_cluster_wait,
    [IR_MAPA] = run_mapa,
    [IR_WARP_SYNC] = run_warp_sync,
    [IR_SHUFFLE] = run_shuffle,
    [IR_VOTE] = run_vote,
    [IR_REDUX] = run_redux,
    [IR_ELECT] = run_elect,
    [IR_LDMATRIX] = run_ldmatrix,
    [IR_STMATRIX] = run_stmatrix,
    [IR_MMA] = run_mma,
    [IR_WGMMA_FENCE] = run_wgmma_fence,
    [IR_WGMMA] = run_wgmma,
    [IR_WGMMA_RS] = run_wgmma,
    [IR_WGMMA_COMMIT] = run_wgmma_commit,
    [IR_WGMMA_WAIT] = run_wgmma_wait,
    [IR_SETMAXNREG] = run_setmaxnreg,
    [IR_IF] = run_if,
    [IR_ELSE] = run_else,
    [IR_END_IF] = run_end_if,
    [IR_LOOP] = run_loop,
    [IR_BREAK] = run_break,
    [IR_END_LOOP] = run_end_loop,
    [IR_EXIT] = run_exit,
    [IR_GRID_WAIT] = run_grid_wait,
    [IR_LAUNCH_DEPENDENTS] = run_launch_dependents,
};

typedef struct decoder {
    device_kernel *k;
    int32_t *offset_of; // of every register
    bool *is_matrix;    // registers that a WGMMA reads or writes
    size_t constant_capacity;
} decoder;

static size_t append_constants(decoder *d, size_t bytes)
{
    device_kernel *k = d->k;
    while (k->constant_bytes + bytes > d->constant_capacity) {
        size_t larger = d->constant_capacity ? 2 * d->constant_capacity : 4096;
        k->constants = heap_resize(k->constants, larger, 1);
        d->constant_capacity = larger;
    }
    size_t at = k->constant_bytes;
    k->constant_bytes += (bytes + BANK_ALIGNMENT - 1) / BANK_ALIGNMENT * BANK_ALIGNMENT;
    return at;
}

/* One lane of a constant. */
static void constant_bits(val v, void *bits)
{
    bool is_float = v.type < (ir_type)CKL_DTYPE_COUNT && dtype_is_float(v.type);
    if (is_float)
        dtype_write(v.type, bits, 0, v.f);
    else
        memcpy(bits, &v.i, sizeof v.i);
}

static operand constant(decoder *d, val v)
{
    size_t bytes = (size_t)ir_type_bytes(v.type);
    unsigned char bits[LANE_BYTES_MAX] = { 0 };
    constant_bits(v, bits);
    size_t at = append_constants(d, bytes * LANES);
    for (size_t i = 0; i < LANES; i++)
        memcpy(d->k->constants + at + i * bytes, bits, bytes);
    return (operand){ (int32_t)at, BANK_CONSTANTS, (int16_t)bytes, IR_CONSTANT };
}

static operand place(decoder *d, val v)
{
    if (ir_is_constant(v))
        return constant(d, v);
    int bytes = ir_type_bytes(d->k->ir.reg_types[v.reg]);
    return (operand){ d->offset_of[v.reg], BANK_REGISTERS, (int16_t)bytes, v.reg };
}

/* At least three operands, so that arithmetic need not ask how many there are; the missing are constant 0. */
static operand *places(decoder *d, int count, const val *values)
{
    int room = count < 3 ? 3 : count;
    operand *list = arena_alloc(&d->k->memory, (size_t)room, sizeof *list);
    for (int i = 0; i < room; i++)
        list[i] = i < count ? place(d, values[i]) : (operand){ 0, BANK_CONSTANTS, LANE_BYTES_MAX, IR_CONSTANT };
    return list;
}

static handler *memory_handler(const ir_inst *inst)
{
    const bool loads = inst->op == IR_LD;
    if (inst->order)
        return loads ? run_load_strong : run_store_strong;
    if (inst->space == IR_GLOBAL)
        return loads ? run_load_global : run_store_global;
    return loads ? run_load_shared : run_store_shared;
}

static bool is_division(const ir_inst *inst)
{
    return (inst->op == IR_DIV || inst->op == IR_REM) && !ir_type_is_float(inst->type);
}

static ckl_status find_handler(const ir_inst *inst, step *s)
{
    bool memory = inst->op == IR_LD || inst->op == IR_ST;
    s->run = memory ? memory_handler(inst) : handlers[inst->op];
    if (inst->op == IR_CONVERT && !conversion_find(inst->type, inst->from, &s->convert))
        FAIL(CKL_INTERNAL, "%s:%d: the emulator has no conversion from %s to %s", inst->file, inst->line,
             ir_type_text(inst->from), ir_type_text(inst->type));
    if (s->run)
        return CKL_OK;
    s->run = is_division(inst) ? run_divide : run_alu;
    s->compute = alu_find(inst, s->out[0].bytes);
    if (!s->compute)
        FAIL(CKL_INTERNAL, "%s:%d: the emulator has no %s of %s", inst->file, inst->line, ir_op_text(inst->op),
             ir_type_text(inst->type));
    return CKL_OK;
}

/* Does an instruction write global memory atomically, or access it with an order? */
static bool is_strong(const ir_inst *inst)
{
    if (inst->op == IR_TMA_STORE)
        return inst->mode == 1;
    return inst->space == IR_GLOBAL && (inst->op == IR_ATOM || inst->op == IR_RED || inst->order);
}

/* Does an instruction other than WGMMA use registers of one? */
static bool touches_matrix(const decoder *d, const ir_inst *inst)
{
    bool touches = false;
    for (int i = 0; i < inst->out_count; i++)
        touches |= d->is_matrix[inst->out[i].reg];
    for (int i = 0; i < inst->in_count; i++)
        touches |= !ir_is_constant(inst->in[i]) && d->is_matrix[inst->in[i].reg];
    return touches && inst->op != IR_WGMMA && inst->op != IR_WGMMA_RS;
}

static ckl_status decode(decoder *d, int index)
{
    const ir_inst *inst = &d->k->ir.insts[index];
    step *s = &d->k->steps[index];
    *s = (step){ .inst = inst, .index = index };
    if (is_strong(inst)) {
        d->k->ordered = true;
        s->poll = d->k->poll_count++;
    }
    s->out = places(d, inst->out_count, inst->out);
    s->in = places(d, inst->in_count, inst->in);
    TRY(find_handler(inst, s));
    if (touches_matrix(d, inst)) {
        s->guarded = s->run;
        s->run = run_guarded;
    }
    return CKL_OK;
}

/* Copies the kernel, because the caller may free its own. Neighbouring instructions share the name of their file. */
static void copy_kernel(device_kernel *k, const ir_kernel *from)
{
    arena *m = &k->memory;
    k->ir = *from;
    k->ir.memory = (arena){ 0 };
    k->ir.name = arena_text(m, from->name);
    k->ir.note = arena_text(m, from->note ? from->note : "");
    k->ir.insts = arena_alloc(m, (size_t)from->inst_count + 1, sizeof *from->insts);
    const char *file = NULL, *copied = "";
    for (int i = 0; i < from->inst_count; i++) {
        ir_inst *inst = &k->ir.insts[i];
        *inst = from->insts[i];
        if (inst->file != file && inst->file)
            copied = arena_text(m, inst->file);
        file = inst->file;
        inst->file = copied;
        inst->out = memcpy(arena_alloc(m, (size_t)inst->out_count, sizeof(val)), inst->out ? inst->out : &(val){ 0 },
                           (size_t)inst->out_count * sizeof(val));
        inst->in = memcpy(arena_alloc(m, (size_t)inst->in_count, sizeof(val)), inst->in ? inst->in : &(val){ 0 },
                          (size_t)inst->in_count * sizeof(val));
    }
    int last = from->inst_count ? k->ir.insts[from->inst_count - 1].line : 0;
    k->ir.insts[from->inst_count] = (ir_inst){ .op = IR_EXIT, .file = copied, .line = last };
    k->ir.reg_types =
        memcpy(arena_alloc(m, (size_t)from->reg_count + 1, sizeof(ir_type)),
               from->reg_types ? from->reg_types : &(ir_type){ 0 }, (size_t)from->reg_count * sizeof(ir_type));
    k->ir.params = arena_alloc(m, (size_t)from->param_count, sizeof *from->params);
    for (int i = 0; i < from->param_count; i++) {
        k->ir.params[i] = from->params[i];
        k->ir.params[i].name = arena_text(m, from->params[i].name);
    }
    k->ir.smem = arena_alloc(m, (size_t)from->smem_count, sizeof *from->smem);
    for (int i = 0; i < from->smem_count; i++) {
        k->ir.smem[i] = from->smem[i];
        k->ir.smem[i].name = arena_text(m, from->smem[i].name);
    }
    k->ir.rings = arena_alloc(m, (size_t)from->ring_count, sizeof *from->rings);
    for (int i = 0; i < from->ring_count; i++) {
        k->ir.rings[i] = from->rings[i];
        k->ir.rings[i].name = arena_text(m, from->rings[i].name);
    }
}

static void place_registers(decoder *d)
{
    device_kernel *k = d->k;
    d->offset_of = arena_alloc(&k->memory, (size_t)k->ir.reg_count, sizeof *d->offset_of);
    size_t at = 0;
    for (int i = 0; i < k->ir.reg_count; i++) {
        d->offset_of[i] = (int32_t)at;
        size_t bytes = (size_t)ir_type_bytes(k->ir.reg_types[i]) * LANES;
        at += (bytes + BANK_ALIGNMENT - 1) / BANK_ALIGNMENT * BANK_ALIGNMENT;
    }
    k->register_bytes = at + BANK_ALIGNMENT;
}

static void find_matrix_registers(decoder *d)
{
    const ir_kernel *ir = &d->k->ir;
    d->is_matrix = arena_alloc(&d->k->memory, (size_t)ir->reg_count, sizeof *d->is_matrix);
    for (int i = 0; i < ir->inst_count; i++) {
        const ir_inst *inst = &ir->insts[i];
        if (inst->op != IR_WGMMA && inst->op != IR_WGMMA_RS)
            continue;
        for (int j = 0; j < inst->out_count; j++)
            d->is_matrix[inst->out[j].reg] = true;
        for (int j = 0; j < 4 && inst->op == IR_WGMMA_RS; j++)
            if (!ir_is_constant(inst->in[j]))
                d->is_matrix[inst->in[j].reg] = true;
    }
}

static int depth_of(const ir_kernel *ir)
{
    int depth = 0, deepest = 0;
    for (int i = 0; i < ir->inst_count; i++) {
        ir_op op = ir->insts[i].op;
        depth += op == IR_IF || op == IR_LOOP ? 1 : op == IR_END_IF || op == IR_END_LOOP ? -1 : 0;
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

/* The registers that ptxas may give a thread if ctas_per_sm CTAs are to fit, in steps of 8. */
static int registers_per_thread(const ir_kernel *ir, int registers_per_sm)
{
    int ctas = ir->ctas_per_sm > 0 ? ir->ctas_per_sm : 1;
    int64_t share = registers_per_sm / ctas / ir->threads / SETMAXNREG_STEP * SETMAXNREG_STEP;
    return (int)min_i64(share, REGISTERS_MAX);
}

static ckl_status check_shape(const ir_kernel *kernel)
{
    if (kernel->threads < LANES || kernel->threads % LANES)
        FAIL(CKL_INTERNAL, "%s: threads=%d is no multiple of %d", kernel->name, kernel->threads, LANES);
    if (kernel->cluster < 1 || kernel->cluster > CLUSTER_MAX)
        FAIL(CKL_INTERNAL, "%s: cluster=%d is not in 1..%d", kernel->name, kernel->cluster, CLUSTER_MAX);
    return CKL_OK;
}

static ckl_status decode_all(decoder *d)
{
    device_kernel *k = d->k;
    place_registers(d);
    find_matrix_registers(d);
    append_constants(d, LANES_BYTES_MAX); // the zeros of missing operands
    k->step_count = k->ir.inst_count + 1;
    k->steps = arena_alloc(&k->memory, (size_t)k->step_count, sizeof *k->steps);
    for (int i = 0; i < k->step_count; i++)
        TRY(decode(d, i));
    return CKL_OK;
}

ckl_status kernel_load(ckl_device *device, const ir_kernel *kernel, device_kernel **loaded)
{
    TRY(check_shape(kernel));
    TRY(device_check_limits(&device->info, kernel));
    device_kernel *k = heap_alloc(1, sizeof *k);
    k->device = (emulator *)device;
    copy_kernel(k, kernel);
    k->depth_max = depth_of(&k->ir);
    k->warps = kernel->threads / LANES;
    k->registers = registers_per_thread(kernel, device->info.registers_per_sm);
    ckl_status status = decode_all(&(decoder){ .k = k });
    if (status == CKL_OK)
        *loaded = k;
    else
        kernel_unload(device, k);
    return status;
}

void kernel_unload(ckl_device *d, device_kernel *kernel)
{
    (void)d;
    if (!kernel)
        return;
    heap_free(kernel->constants);
    arena_clear(&kernel->memory);
    heap_free(kernel);
}
