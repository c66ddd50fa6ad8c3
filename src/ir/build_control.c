/* build_control.c - control flow of the kernel: IF, ELSE, LOOP and BREAK, and the stack of open blocks. */
#include "ir/build_core.h"

static void open_block(int inst)
{
    if (build.block_count == BUILD_BLOCKS_MAX)
        ir_fail("control flow is nested more than %d deep", BUILD_BLOCKS_MAX);
    else if (!ir_failed())
        build.blocks[build.block_count++] = inst;
}

/* Closes the innermost block, which must begin with one of two ops; returns its index, or -1. */
static int close_block(ir_op begin, ir_op or_begin, ir_op end)
{
    if (ir_failed())
        return -1;
    int open = build.block_count ? build.blocks[build.block_count - 1] : -1;
    if (open < 0 || (build.kernel->insts[open].op != begin && build.kernel->insts[open].op != or_begin)) {
        ir_fail("%s without its %s", ir_op_text(end), ir_op_text(begin));
        return -1;
    }
    build.block_count--;
    return open;
}

void ir_block_left(void)
{
    if (ir_failed() || !build.block_count)
        return;
    const ir_inst *open = &build.kernel->insts[build.blocks[build.block_count - 1]];
    ir_at(open->file, open->line);
    ir_fail("C's break, return or goto leaves the %s while it is described; BREAK_IF() leaves a loop of the kernel",
            ir_op_text(open->op));
}

void build_check_closed(void)
{
    if (!build.block_count || ir_failed())
        return;
    const ir_inst *open = &build.kernel->insts[build.blocks[build.block_count - 1]];
    ir_at(open->file, open->line);
    ir_fail("%s has no end", ir_op_text(open->op));
}

/* The predicate in a register: a constant is moved into one. */
static val predicate(val p)
{
    p = ir_coerce(IR_PRED, p);
    return ir_is_constant(p) ? build_value((ir_inst){ .op = IR_MOV, .type = IR_PRED }, IR_PRED, 1, &p) : p;
}

void ir_if(val p)
{
    p = predicate(p);
    build_effect((ir_inst){ .op = IR_IF, .type = IR_PRED }, 1, &p);
    open_block(build.kernel->inst_count - 1);
}

void ir_else(void)
{
    int open = close_block(IR_IF, IR_IF, IR_ELSE);
    if (open < 0)
        return;
    build_effect((ir_inst){ .op = IR_ELSE }, 0, NULL);
    build.kernel->insts[open].match = build.kernel->inst_count - 1;
    build.kernel->insts[build.kernel->inst_count - 1].match = open; // until END_IF: the IF
    open_block(build.kernel->inst_count - 1);
}

void ir_end_if(void)
{
    int open = close_block(IR_IF, IR_ELSE, IR_END_IF);
    if (open < 0)
        return;
    ir_inst *end = ir_emit((ir_inst){ .op = IR_END_IF }, 0, NULL, 0, NULL);
    ir_inst *insts = build.kernel->insts;
    end->match = insts[open].op == IR_ELSE ? insts[open].match : open;
    insts[open].match = build.kernel->inst_count - 1;
}

void ir_reopen_else(void)
{
    ir_kernel *k = build.kernel;
    if (ir_failed())
        return;
    int last = k->inst_count - 1;
    if (last < 0 || k->insts[last].op != IR_END_IF || k->insts[k->insts[last].match].match != last) {
        ir_fail("else does not follow an if");
        return;
    }
    k->inst_count = last;
    open_block(k->insts[last].match);
    ir_else();
}

void ir_loop(void)
{
    build_effect((ir_inst){ .op = IR_LOOP }, 0, NULL);
    open_block(build.kernel->inst_count - 1);
}

void ir_break(val p)
{
    p = predicate(p);
    build_effect((ir_inst){ .op = IR_BREAK, .type = IR_PRED, .match = -1 }, 1, &p);
    bool inside = false;
    for (int i = 0; i < build.block_count; i++)
        inside |= build.kernel->insts[build.blocks[i]].op == IR_LOOP;
    if (!inside)
        ir_fail("break outside a loop");
}

void ir_end_loop(void)
{
    int open = close_block(IR_LOOP, IR_LOOP, IR_END_LOOP);
    if (open < 0)
        return;
    build_effect((ir_inst){ .op = IR_END_LOOP, .match = open }, 0, NULL);
    int end = build.kernel->inst_count - 1;
    build.kernel->insts[open].match = end;
    for (int i = open; i < end; i++)
        if (build.kernel->insts[i].op == IR_BREAK && build.kernel->insts[i].match < 0)
            build.kernel->insts[i].match = end;
}
