/* ptx.c - prints a kernel as PTX: its frame, its control flow, and an instruction at a time through its template. */
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "ir/build.h"
#include "ir/ptx_rows.h"
#include "ir/ptx_write.h"
#include "ir/rules.h"

enum { FILES_MAX = 64, PREDICATED_MAX = 6 };

typedef struct printer {
    const ir_kernel *kernel;
    text *out;
    ptx_writer writer;
    const char *files[FILES_MAX];
    int file_count;
    const char *file; // of the last .loc
    int line;
    unsigned char *writers; // instructions that write a register: 0, 1, or 2 for more
} printer;

/* Instructions */

static unsigned conditions(const ir_kernel *kernel, const ir_inst *inst)
{
    unsigned met = kernel->target == IR_SM80 ? PTX_SM80 : PTX_SM90;
    met |= inst->mode == 1 ? PTX_MODE : 0;
    met |= inst->n == 16 ? PTX_WIDE : 0;
    met |= inst->scope != IR_SCOPE_CTA ? PTX_CLUSTER : 0;
    met |= inst->order != IR_ORDER_DEFAULT ? PTX_STRONG : 0;
    if (inst->op == IR_PARAM && kernel->params[inst->n].tensor_map)
        met |= PTX_TENSOR_MAP;
    if (inst->op == IR_TMA_LOAD && !ir_is_int(inst->in[3], 0))
        met |= PTX_MULTICAST;
    return met;
}

const ptx_row *ptx_find_row(const ir_kernel *kernel, const ir_inst *inst)
{
    const ptx_row *row = ptx_rows(inst->op);
    unsigned met = conditions(kernel, inst);
    for (; row && row->text; row++)
        if ((!row->types || (row->types & TYPE_SET(inst->type))) &&
            (!row->from || (row->from & TYPE_SET(inst->from))) && (row->when & ~met) == 0)
            return row;
    return NULL;
}

static ckl_status print_plain(printer *p, int index, const char *guard)
{
    const ir_inst *inst = &p->kernel->insts[index];
    const ptx_row *row = ptx_find_row(p->kernel, inst);
    if (!row)
        FAIL(CKL_INTERNAL, "kernel %s: %s:%d: %s of %s from %s has no PTX for %s", p->kernel->name,
             inst->file ? inst->file : "", inst->line, ir_op_text(inst->op), ir_type_text(inst->type),
             ir_type_text(inst->from), ir_target_text(p->kernel->target));
    p->writer.inst = inst;
    p->writer.index = index;
    p->writer.guard = guard;
    ptx_write(&p->writer, row->text);
    return CKL_OK;
}

/* The C line of an instruction, where it changes. */
static void print_location(printer *p, const ir_inst *inst)
{
    if (inst->line <= 0 || (inst->line == p->line && inst->file == p->file))
        return;
    for (int i = 0; i < p->file_count; i++)
        if (strcmp(p->files[i], inst->file) == 0) {
            text_printf(p->out, "\t.loc %d %d 0\n", i + 1, inst->line);
            p->file = inst->file;
            p->line = inst->line;
            return;
        }
}

/* Control flow. Labels are named by the instruction that they stand at. */

static bool writes(const ir_inst *inst, int reg)
{
    for (int i = 0; i < inst->out_count; i++)
        if (inst->out[i].reg == reg)
            return true;
    return false;
}

/* Can each of its statements take a predicate? Not if its template branches. */
static bool takes_guard(const ir_kernel *kernel, const ir_inst *inst)
{
    const ptx_row *row = ptx_find_row(kernel, inst);
    return row && !strchr(row->text, '@') && ir_rule_of(inst->op)->group == GROUP_THREAD;
}

/* An IF without ELSE around a few simple instructions needs no branch. */
static bool is_predicated(const ir_kernel *kernel, int index)
{
    const ir_inst *inst = &kernel->insts[index];
    if (kernel->insts[inst->match].op != IR_END_IF || inst->match - index - 1 > PREDICATED_MAX)
        return false;
    for (int i = index + 1; i < inst->match; i++)
        if (!takes_guard(kernel, &kernel->insts[i]) || writes(&kernel->insts[i], inst->in[0].reg))
            return false;
    return true;
}

/*
 * Arithmetic whose results nothing else writes, which may run where the predicate is false. Under a predicate ptxas
 * keeps what such a register held before, through all turns of a loop.
 */
static bool is_temporary(const printer *p, const ir_inst *inst)
{
    const bool computes = ir_op_class(inst->op) == IR_ALU && inst->op != IR_MAPA; // which wants a rank that exists
    return computes && inst->out_count == 1 && p->writers[inst->out[0].reg] == 1;
}

static ckl_status print_predicated(printer *p, int index)
{
    const ir_inst *insts = p->kernel->insts;
    char guard[32];
    snprintf(guard, sizeof guard, "@%%p%d ", insts[index].in[0].reg);
    for (int i = index + 1; i < insts[index].match; i++) {
        print_location(p, &insts[i]);
        TRY(print_plain(p, i, is_temporary(p, &insts[i]) ? "" : guard));
    }
    return CKL_OK;
}

static void print_if(text *out, const ir_inst *inst, int index)
{
    (void)index;
    text_printf(out, "\t@!%%p%d bra L%d;\n", inst->in[0].reg, inst->match);
}

static void print_break(text *out, const ir_inst *inst, int index)
{
    (void)index;
    text_printf(out, "\t@%%p%d bra L%d;\n", inst->in[0].reg, inst->match);
}

/* LOOP, END_IF */
static void print_label(text *out, const ir_inst *inst, int index)
{
    (void)inst;
    text_printf(out, "L%d:\n", index);
}

/* ELSE, END_LOOP */
static void print_branch_and_label(text *out, const ir_inst *inst, int index)
{
    text_printf(out, "\tbra L%d;\nL%d:\n", inst->match, index);
}

typedef void print_flow(text *out, const ir_inst *inst, int index);

static print_flow *const flow[IR_OP_COUNT] = {
    [IR_IF] = print_if,      [IR_ELSE] = print_branch_and_label, [IR_END_IF] = print_label,
    [IR_LOOP] = print_label, [IR_BREAK] = print_break,           [IR_END_LOOP] = print_branch_and_label,
};

static ckl_status print_insts(printer *p)
{
    const ir_inst *insts = p->kernel->insts;
    for (int i = 0; i < p->kernel->inst_count; i++) {
        print_location(p, &insts[i]);
        if (insts[i].op == IR_IF && is_predicated(p->kernel, i)) {
            TRY(print_predicated(p, i));
            i = insts[i].match;
        } else if (flow[insts[i].op]) {
            flow[insts[i].op](p->out, &insts[i], i);
        } else {
            TRY(print_plain(p, i, ""));
        }
    }
    return CKL_OK;
}

/* The frame */

static bool uses_warp(const ir_kernel *kernel)
{
    for (int i = 0; i < kernel->inst_count; i++)
        if (kernel->insts[i].op == IR_SREG && kernel->insts[i].mode == IR_WARP)
            return true;
    return false;
}

static bool uses_cache(const ir_kernel *kernel, ir_cache cache)
{
    for (int i = 0; i < kernel->inst_count; i++)
        if (kernel->insts[i].cache == cache)
            return true;
    return false;
}

/* Creates the L2 cache policies that the kernel's accesses use. */
static void print_policies(printer *p)
{
    static const char *const names[] = { [IR_CACHE_EVICT_FIRST] = "evict_first", [IR_CACHE_EVICT_LAST] = "evict_last" };
    for (int cache = IR_CACHE_EVICT_FIRST; cache <= IR_CACHE_EVICT_LAST; cache++)
        if (uses_cache(p->kernel, (ir_cache)cache))
            text_printf(p->out, "\t.reg .b64 %%%s;\n\tcreatepolicy.fractional.L2::%s.b64 %%%s, 1.0;\n", names[cache],
                        names[cache], names[cache]);
}

/* Where the offsets of im2col loads go, which are 16 bits wide. */
static void print_offsets(printer *p)
{
    for (int i = 0; i < p->kernel->inst_count; i++)
        if (p->kernel->insts[i].op == IR_TMA_LOAD && p->kernel->insts[i].mode == 1) {
            text_printf(p->out, "\t.reg .b16 %%o<%d>;\n", IR_TENSOR_MAP_RANK_MAX - 2);
            return;
        }
}

static void collect_files(printer *p)
{
    const char *last = NULL;
    for (int i = 0; i < p->kernel->inst_count; i++) {
        const ir_inst *inst = &p->kernel->insts[i];
        if (inst->line <= 0 || inst->file == last)
            continue;
        last = inst->file;
        int known = 0;
        while (known < p->file_count && strcmp(p->files[known], last) != 0)
            known++;
        if (known == p->file_count && p->file_count < FILES_MAX)
            p->files[p->file_count++] = last;
    }
}

static void count_writers(printer *p)
{
    p->writers = heap_alloc((size_t)p->kernel->reg_count + 1, 1);
    for (int i = 0; i < p->kernel->inst_count; i++)
        for (int k = 0; k < p->kernel->insts[i].out_count; k++) {
            unsigned char *count = &p->writers[p->kernel->insts[i].out[k].reg];
            *count = *count ? 2 : 1;
        }
}

static void print_head(printer *p)
{
    const ir_kernel *kernel = p->kernel;
    static const char *const versions[] = { [IR_SM80] = "7.8", [IR_SM90] = "8.0", [IR_SM90A] = "8.3" }; // the lowest
    text_printf(p->out, "// %s: %s\n", kernel->name, kernel->note ? kernel->note : "");
    text_printf(p->out, ".version %s\n.target %s\n.address_size 64\n", versions[kernel->target],
                ir_target_text(kernel->target));
    for (int i = 0; i < p->file_count; i++)
        text_printf(p->out, ".file %d \"%s\"\n", i + 1, p->files[i]);
    text_printf(p->out, ".extern .shared .align 1024 .b8 smem[];\n\n");
}

/* Tensor maps are read in place, in the parameter memory. */
static void print_params(printer *p)
{
    for (int i = 0; i < p->kernel->param_count; i++) {
        const ir_param *param = &p->kernel->params[i];
        const char *comma = i ? "," : "";
        if (param->tensor_map)
            text_printf(p->out, "%s\n\t.param .align 64 .b8 param_%s[%d]", comma, param->name, IR_TENSOR_MAP_BYTES);
        else
            text_printf(p->out, "%s\n\t.param .%s param_%s", comma, ptx_memory_type(param->type), param->name);
    }
}

/*
 * .minnctapersm 1 promises nothing that .maxntid does not, but ptxas accepts setmaxnreg only beside it. A shuffle makes
 * the warp's number uniform: so ptxas knows that branches on it do not diverge.
 */
static void print_entry(printer *p)
{
    const ir_kernel *kernel = p->kernel;
    text_printf(p->out, ".visible .entry %s(", kernel->name);
    print_params(p);
    text_printf(p->out, ")\n.maxntid %d, 1, 1\n.minnctapersm %d\n{\n", kernel->threads,
                kernel->ctas_per_sm > 1 ? kernel->ctas_per_sm : 1);
    for (int kind = 0; kind < PTX_KIND_COUNT; kind++) {
        const char *type = ptx_kinds[kind].type, *letter = ptx_kinds[kind].letter;
        text_printf(p->out, "\t.reg .%s %%%s<%d>, %%c%s<%d>, %%t%s<%d>;\n", type, letter, kernel->reg_count + 1, letter,
                    PTX_CONSTANTS_MAX, letter, PTX_SCRATCH);
    }
    if (uses_warp(kernel))
        text_printf(p->out, "\t.reg .b32 %%uniform_warp;\n"
                            "\tmov.u32 %%tr0, %%tid.x;\n"
                            "\tshr.u32 %%tr0, %%tr0, 5;\n"
                            "\tshfl.sync.idx.b32 %%uniform_warp, %%tr0, 0, 31, 0xffffffff;\n");
    print_policies(p);
    print_offsets(p);
}

ckl_status ir_print_ptx(const ir_kernel *kernel, text *out)
{
    printer p = { .kernel = kernel, .out = out, .writer = { .kernel = kernel, .out = out } };
    collect_files(&p);
    count_writers(&p);
    print_head(&p);
    print_entry(&p);
    ckl_status status = print_insts(&p);
    text_printf(out, "\tret;\n}\n");
    heap_free(p.writers);
    text_free(&p.writer.body);
    return status;
}
