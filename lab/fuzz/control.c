/*
 * control.c - branches and loops. Values made inside end with the block; what leaves it is assigned to variables that
 * exist before. A loop ends after at most LOOP_MAX rounds, each thread by itself where the count differs.
 */
#include "lab/fuzz/program.h"

#include "ir/rules.h"

enum { LOOP_MAX = 4 };

static const uint32_t variable_types = TYPE_SET(CKL_I32) | TYPE_SET(IR_U32) | TYPE_SET(CKL_F32) | TYPE_SET(IR_U64) |
                                       TYPE_SET(CKL_F16) | TYPE_SET(IR_BF16X2) | TYPE_SET(IR_PRED) | TYPE_SET(IR_U16);

val uniform_predicate(program *p)
{
    val word = ir_reg(IR_U32);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, p->base, choose(p, FUZZ_INPUT_BYTES / 4) * 4, &word);
    return ir_compare(IR_LT, ir_binary(IR_AND, word, ir_u32(15)), ir_u32(3 + choose(p, 10)));
}

static void declare(program *p)
{
    if (p->variable_count == VARIABLES_MAX || p->count == POOL_MAX)
        return;
    val v = ir_reg(choose_type(p, variable_types));
    ir_assign(v, pick_register(p, v.type));
    p->variables[p->variable_count++] = v;
    keep(p, v);
}

/* A predicate is assigned nothing that is known: one that a loop negates ptxas 13.0 may take for a constant. */
void do_variable(program *p)
{
    ir_at("variable", 1);
    if (p->variable_count < 2 || (p->depth == 0 && chance(p, 2))) {
        declare(p);
        return;
    }
    val v = p->variables[choose(p, p->variable_count)];
    ir_assign(v, v.type == IR_PRED ? load_input(p, v.type) : pick(p, v.type));
}

/* The statements of a block; what they made is forgotten. */
static void block(program *p)
{
    int count = p->count, variables = p->variable_count;
    p->depth++;
    do_statements(p, p->depth < DEPTH_MAX ? 1 + choose(p, 4) : 1);
    do_variable(p);
    p->depth--;
    p->count = count;
    p->variable_count = variables;
}

void do_if(program *p)
{
    if (p->depth >= DEPTH_MAX)
        return;
    ir_at("if", 1);
    bool converged = p->converged, uniform = chance(p, 3);
    declare(p);
    ir_if(uniform ? uniform_predicate(p) : pick_register(p, IR_PRED));
    p->converged = converged && uniform;
    block(p);
    if (chance(p, 2)) {
        ir_at("else", 1);
        ir_else();
        block(p);
    }
    ir_at("end_if", 1);
    ir_end_if();
    p->converged = converged;
}

/* BREAK for some threads, straight or under another condition. */
static void leave_early(program *p)
{
    ir_at("break", 1);
    bool nested = chance(p, 2);
    int count = p->count;
    if (nested)
        ir_if(pick_register(p, IR_PRED));
    ir_break(pick_register(p, IR_PRED));
    if (nested)
        ir_end_if();
    p->count = count;
}

void do_loop(program *p)
{
    if (p->depth >= DEPTH_MAX)
        return;
    ir_at("loop", 1);
    bool converged = p->converged, in_loop = p->in_loop, uniform = chance(p, 2);
    val round = ir_reg(IR_U32), rounds = ir_u32(1 + choose(p, LOOP_MAX));
    if (!uniform)
        rounds = ir_binary(IR_AND, pick_register(p, IR_U32), ir_u32(LOOP_MAX - 1));
    declare(p);
    ir_assign(round, ir_u32(0));
    p->converged = converged && uniform;
    p->in_loop = true;
    ir_loop();
    ir_break(ir_compare(IR_GE, round, rounds));
    block(p);
    if (!uniform && chance(p, 2))
        leave_early(p);
    ir_at("end_loop", 1);
    ir_assign(round, ir_binary(IR_ADD, round, ir_u32(1)));
    ir_end_loop();
    p->converged = converged;
    p->in_loop = in_loop;
}

/* Some threads end; nothing but stores follows. */
void do_exit(program *p)
{
    ir_at("exit", 1);
    ir_if(pick_register(p, IR_PRED));
    ir_plain(IR_EXIT, 0, 0);
    ir_end_if();
}
