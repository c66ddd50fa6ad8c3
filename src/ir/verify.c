/*
 * verify.c - static checks of a whole kernel. In this order:
 *
 *   frame          threads, cluster and name; allocations in shared memory are aligned, inside smem_bytes and apart
 *   nesting        IF, ELSE, END_IF and LOOP, END_LOOP pair up as [match] says; BREAK stands in a LOOP
 *   instructions   operand counts and types, attributes, alignment, the target (verify_inst.c)
 *   grid_wait      comes before all accesses to global memory, if at all
 *   registers      written before read on every path; WGMMA registers left alone (verify_registers.c)
 *   convergence    (verify_convergence.c)
 */
#include "ir/verify.h"

#include <ctype.h>
#include <stdio.h>

enum { THREADS_MAX = 1024, CLUSTER_MAX = 16 };

ckl_status verify_fail(const ir_kernel *kernel, const ir_inst *inst, const char *format, ...)
{
    char fault[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault, sizeof fault, format, arguments);
    va_end(arguments);
    FAIL(CKL_INTERNAL, "kernel %s: %s:%d: %s: %s", kernel->name, inst->file ? inst->file : "", inst->line,
         ir_op_text(inst->op), fault);
}

/* Frame */

static bool is_identifier(const char *name)
{
    if (!name || (!isalpha((unsigned char)*name) && *name != '_'))
        return false;
    while (isalnum((unsigned char)*name) || *name == '_')
        name++;
    return *name == '\0';
}

static ckl_status check_launch(const ir_kernel *kernel)
{
    if (!is_identifier(kernel->name))
        FAIL(CKL_INTERNAL, "kernel %s: the name is not an identifier", kernel->name ? kernel->name : "without a name");
    if (kernel->threads < 32 || kernel->threads > THREADS_MAX || kernel->threads % 32)
        FAIL(CKL_INTERNAL, "kernel %s: threads=%d is not a multiple of 32 in 32..%d", kernel->name, kernel->threads,
             THREADS_MAX);
    if (kernel->cluster < 1 || kernel->cluster > CLUSTER_MAX)
        FAIL(CKL_INTERNAL, "kernel %s: cluster=%d is not in 1..%d", kernel->name, kernel->cluster, CLUSTER_MAX);
    if (kernel->cluster > 1 && kernel->target == IR_SM80)
        FAIL(CKL_INTERNAL, "kernel %s: cluster=%d needs sm_90", kernel->name, kernel->cluster);
    return CKL_OK;
}

static ckl_status check_apart(const ir_kernel *kernel, int i, int j)
{
    const ir_smem *a = &kernel->smem[i], *b = &kernel->smem[j];
    bool overlap = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
    if (overlap)
        FAIL(CKL_INTERNAL, "kernel %s: shared memory %s at %" PRId64 " overlaps %s at %" PRId64, kernel->name, b->name,
             b->offset, a->name, a->offset);
    return CKL_OK;
}

static ckl_status check_smem(const ir_kernel *kernel)
{
    for (int i = 0; i < kernel->smem_count; i++) {
        const ir_smem *smem = &kernel->smem[i];
        if (!is_power_of_two(smem->align) || smem->offset % smem->align)
            FAIL(CKL_INTERNAL, "kernel %s: shared memory %s at %" PRId64 " is not aligned to %" PRId64, kernel->name,
                 smem->name, smem->offset, smem->align);
        if (smem->offset < 0 || smem->bytes < 0 || smem->offset + smem->bytes > kernel->smem_bytes)
            FAIL(CKL_INTERNAL, "kernel %s: shared memory %s ends at %" PRId64 ", beyond the kernel's %" PRId64,
                 kernel->name, smem->name, smem->offset + smem->bytes, kernel->smem_bytes);
        for (int j = 0; j < i; j++)
            TRY(check_apart(kernel, j, i));
    }
    return CKL_OK;
}

/* Nesting */

typedef struct nesting {
    int blocks[BLOCKS_MAX]; // IF, ELSE and LOOP instructions that are open
    int count;
} nesting;

static ckl_status open_block(const ir_kernel *kernel, nesting *open, int index)
{
    if (open->count == BLOCKS_MAX)
        FAULT(kernel, &kernel->insts[index], "nested more than %d deep", BLOCKS_MAX);
    open->blocks[open->count++] = index;
    return CKL_OK;
}

/* Closes the innermost block, whose op must be one of two and whose [match] must be this instruction. */
static ckl_status close_block(const ir_kernel *kernel, nesting *open, int index, ir_op begin, ir_op or_begin)
{
    const ir_inst *inst = &kernel->insts[index];
    const ir_inst *block = open->count ? &kernel->insts[open->blocks[open->count - 1]] : NULL;
    if (!block || (block->op != begin && block->op != or_begin))
        FAULT(kernel, inst, "does not close the innermost %s", ir_op_text(begin));
    if (block->match != index)
        FAULT(kernel, inst, "the %s of line %d is linked to another instruction", ir_op_text(block->op), block->line);
    open->count--;
    return CKL_OK;
}

static ckl_status check_break(const ir_kernel *kernel, const nesting *open, int index)
{
    for (int i = open->count - 1; i >= 0; i--)
        if (kernel->insts[open->blocks[i]].op == IR_LOOP) {
            if (kernel->insts[open->blocks[i]].match != kernel->insts[index].match)
                FAULT(kernel, &kernel->insts[index], "is linked to another loop than its own");
            return CKL_OK;
        }
    FAULT(kernel, &kernel->insts[index], "stands outside a loop");
}

static ckl_status check_block(const ir_kernel *kernel, nesting *open, int i)
{
    switch (kernel->insts[i].op) {
    case IR_IF:
    case IR_LOOP:
        return open_block(kernel, open, i);
    case IR_ELSE:
        TRY(close_block(kernel, open, i, IR_IF, IR_IF));
        return open_block(kernel, open, i);
    case IR_END_IF:
        return close_block(kernel, open, i, IR_IF, IR_ELSE);
    case IR_END_LOOP:
        return close_block(kernel, open, i, IR_LOOP, IR_LOOP);
    case IR_BREAK:
        return check_break(kernel, open, i);
    default:
        return CKL_OK;
    }
}

static ckl_status check_nesting(const ir_kernel *kernel)
{
    nesting open = { .count = 0 };
    for (int i = 0; i < kernel->inst_count; i++)
        TRY(check_block(kernel, &open, i));
    if (open.count)
        FAULT(kernel, &kernel->insts[open.blocks[open.count - 1]], "has no end");
    for (int i = 0; i < kernel->inst_count; i++)
        if (kernel->insts[i].op == IR_END_LOOP && kernel->insts[kernel->insts[i].match].match != i)
            FAULT(kernel, &kernel->insts[i], "is linked to another loop than its own");
    return CKL_OK;
}

/* The kernel before */

static bool uses_global_memory(const ir_inst *inst)
{
    switch (inst->op) {
    case IR_LD: // a relaxed one may read what is old: a hint
        return inst->space == IR_GLOBAL && inst->order != IR_ORDER_RELAXED;
    case IR_ST:
    case IR_ATOM:
    case IR_RED:
        return inst->space == IR_GLOBAL;
    case IR_CP_ASYNC:
    case IR_BULK_LOAD:
    case IR_BULK_STORE:
    case IR_TMA_LOAD:
    case IR_TMA_STORE:
        return true;
    default:
        return false;
    }
}

/* A kernel with GRID_WAIT begins while the one before still runs. */
static ckl_status check_grid_wait(const ir_kernel *kernel)
{
    const ir_inst *early = NULL;
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        if (!early && uses_global_memory(inst))
            early = inst;
        if (early && inst->op == IR_GRID_WAIT)
            FAULT(kernel, early, "comes before the grid_wait of line %d: the kernel before may still run", inst->line);
        if (inst->op == IR_GRID_WAIT)
            return CKL_OK;
    }
    return CKL_OK;
}

ckl_status ir_verify(const ir_kernel *kernel)
{
    TRY(check_launch(kernel));
    TRY(check_smem(kernel));
    TRY(check_nesting(kernel));
    for (int i = 0; i < kernel->inst_count; i++)
        TRY(verify_inst(kernel, &kernel->insts[i]));
    TRY(verify_registers(kernel));
    TRY(check_grid_wait(kernel));
    return verify_convergence(kernel);
}
