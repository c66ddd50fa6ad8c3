/* ptx_lines.h - instructions printed one by one, as lines of IR and PTX; included once. */
#pragma once

#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "ir/build.h"
#include "ir/ptx_rows.h"
#include "ir/rules.h"
#include "ir/verify.h"
#include "ir_blocks.h"

static text golden;                // all lines, made by this run
static text last_body;             // PTX of the last instruction for sm_90a
static text modules[IR_SM90A + 1]; // the same of all instructions, by target
static bool listed = true;         // else the next ones are for ptxas alone

/* The rows that were printed, by op and place in its list. */
enum { ROWS_MAX = 64 };
static bool printed[IR_OP_COUNT][ROWS_MAX];

/* One instruction in a kernel of its own */

static val a, b, c, d; // its operands

static val reg(ir_type type)
{
    return ir_reg(type);
}

/* Makes operands a, b .. of some types; in the arguments of a call C would leave their order open. */
static void make(int count, const ir_type *types)
{
    val *const all[] = { &a, &b, &c, &d };
    for (int i = 0; i < count; i++)
        *all[i] = reg(types[i]);
}
#define MAKE(...) make(COUNT_OF(((const ir_type[]){ __VA_ARGS__ })), (const ir_type[]){ __VA_ARGS__ })

static void begin(ir_target target)
{
    ir_describe_begin("golden", target);
    ir_current()->threads = 256;
    ir_current()->cluster = target == IR_SM80 ? 1 : 2;
    ir_current()->smem_bytes = 1024;
}

/* The statements of a kernel: without the declarations of registers. */
static void append_body(const char *ptx, text *body)
{
    const char *at = strstr(ptx, "{\n") + 2, *end = strstr(at, "\tret;");
    while (at < end) {
        size_t length = strcspn(at, "\n") + 1;
        if (strncmp(at, "\t.reg", 5) != 0)
            text_append(body, at, length);
        at += length;
    }
}

static void append_last_line(const char *ir, text *out)
{
    size_t length = strlen(ir) - 1;
    while (length && ir[length - 1] != '\n')
        length--;
    text_printf(out, "%s", ir + length + strspn(ir + length, " "));
}

/* Appends the kernel's last instruction to the file, unless sm_80 prints the same. */
static void append_line(const ir_kernel *kernel)
{
    text ir = { 0 }, ptx = { 0 }, body = { 0 };
    const ir_inst *inst = &kernel->insts[kernel->inst_count - 1];
    bool sm80 = kernel->target == IR_SM80;
    assert_ok(ir_print_ptx(kernel, &ptx));
    printed[inst->op][ptx_find_row(kernel, inst) - ptx_rows(inst->op)] = true;
    ir_print(kernel, &ir);
    append_body(ptx.data, &body);
    if (inst->op != IR_PARAM) // which names a parameter of its own kernel
        text_printf(&modules[kernel->target], "{\n%s}\n", text_data(&body));
    if (listed && (!sm80 || strcmp(text_data(&body), text_data(&last_body)) != 0)) {
        text_printf(&golden, "%s", sm80 ? "sm_80: " : "");
        append_last_line(ir.data, &golden);
        text_printf(&golden, "%s", text_data(&body));
    }
    text_clear(&last_body);
    text_printf(&last_body, "%s", text_data(&body));
    text_free(&ir);
    text_free(&ptx);
    text_free(&body);
}

/* Ends the kernel. sm_80 may not have its instruction. */
static void finish(void)
{
    ir_kernel *kernel = NULL;
    assert_ok(ir_describe_end(&kernel));
    const ir_inst *inst = &kernel->insts[kernel->inst_count - 1];
    bool exists = verify_inst(kernel, inst) == CKL_OK && ptx_find_row(kernel, inst);
    if (exists)
        append_line(kernel);
    else if (kernel->target == IR_SM90A)
        fail_msg("%s of %s from %s: %s", ir_op_text(inst->op), ir_type_text(inst->type), ir_type_text(inst->from),
                 ckl_error());
    ir_kernel_free(kernel);
}

/* Describes one instruction, for both targets. */
#define LINE(...)          \
    do {                   \
        begin(IR_SM90A);   \
        (void)__VA_ARGS__; \
        finish();          \
        begin(IR_SM80);    \
        (void)__VA_ARGS__; \
        finish();          \
    } while (0)

static ir_inst *emit(ir_inst inst, int out_count, const val *out, int in_count, const val *in)
{
    return ir_emit(inst, out_count, out, in_count, in);
}
