/*
 * verify_registers.c - what is known of every register along the control flow.
 *
 * Assigned: a register may be read where it has been written on every path. A register that was written under IF p is
 * also known inside a later IF p, as long as p has not been written again; nothing more is tried.
 *
 * WGMMA: its accumulators, and the registers of A, belong to the tensor core from it to the WGMMA_WAIT that retires its
 * group. Until then only another WGMMA may name them: as the same accumulators in the same order, or as A again. Other
 * instructions' accesses before a WGMMA must be ordered by a WGMMA_FENCE between them.
 *
 * The instructions are walked in order. A branch works on a copy of the state and END_IF merges what both sides know; a
 * loop is walked again with the state of its end merged into that of its start until this changes nothing.
 */
#include <string.h>

#include "ir/build.h"
#include "ir/verify.h"

enum { AGE_MAX = 255, NOBODY = -1 };

typedef struct reg_state {
    bool assigned;
    bool touched;      // by an ordinary instruction since the last WGMMA_FENCE
    bool accumulates;  // in flight as an accumulator, not as A
    unsigned char age; // 0: not in flight; 1: in the open group; k: in the group closed k - 1 commits ago
    int owner;         // the WGMMA in flight
    int guard;         // assigned only where this predicate was true, or NOBODY
    int guard_version; // of the predicate's value then
} reg_state;

typedef struct state {
    bool reachable;
    reg_state *regs;
} state;

/* An open IF, ELSE or LOOP. */
typedef struct block {
    int begin;
    state before; // IF: at its start; ELSE: at the end of the first side; LOOP: at its start, in any iteration
    state exits;  // LOOP: at its BREAKs
} block;

typedef struct walk {
    const ir_kernel *kernel;
    arena memory;
    state now;
    block blocks[BLOCKS_MAX]; // their states are allocated once per depth
    int depth;
    int *versions; // of every predicate's value
    int version;
} walk;

/* States */

static size_t state_bytes(const walk *w)
{
    return (size_t)w->kernel->reg_count * sizeof(reg_state);
}

static void copy_state(walk *w, state *to, const state *from)
{
    if (!to->regs)
        to->regs = arena_alloc(&w->memory, (size_t)w->kernel->reg_count, sizeof(reg_state));
    to->reachable = from->reachable;
    if (state_bytes(w))
        memcpy(to->regs, from->regs, state_bytes(w));
}

/* What is certain of a register that comes from either of two paths; the younger WGMMA counts. */
static reg_state merge_reg(reg_state a, reg_state b)
{
    reg_state merged = a.age == 0 || (b.age != 0 && b.age < a.age) ? b : a;
    merged.assigned = a.assigned && b.assigned;
    merged.touched = a.touched || b.touched;
    bool same_guard = a.guard == b.guard && a.guard_version == b.guard_version;
    merged.guard = same_guard ? a.guard : NOBODY;
    merged.guard_version = a.guard_version;
    return merged;
}

static bool same_reg(const reg_state *a, const reg_state *b)
{
    return a->assigned == b->assigned && a->touched == b->touched && a->age == b->age && a->guard == b->guard;
}

/* Merges another path into a state; true if this changed it. */
static bool merge_state(walk *w, state *into, const state *other)
{
    if (!other->reachable)
        return false;
    if (!into->reachable) {
        copy_state(w, into, other);
        return true;
    }
    bool changed = false;
    for (int i = 0; i < w->kernel->reg_count; i++) {
        if (memcmp(&into->regs[i], &other->regs[i], sizeof(reg_state)) == 0)
            continue; // most are
        reg_state merged = merge_reg(into->regs[i], other->regs[i]);
        changed |= !same_reg(&merged, &into->regs[i]);
        into->regs[i] = merged;
    }
    return changed;
}

/* Accesses */

static bool is_wgmma(const ir_inst *inst)
{
    return inst->op == IR_WGMMA || inst->op == IR_WGMMA_RS;
}

/* Is source i one of the accumulators of a WGMMA? They are the last. */
static bool is_accumulator(const ir_inst *inst, int i)
{
    return is_wgmma(inst) && i >= inst->in_count - inst->out_count;
}

static bool is_register_a(const ir_inst *inst, int i)
{
    return inst->op == IR_WGMMA_RS && i < 4;
}

static bool same_accumulators(const ir_inst *a, const ir_inst *b)
{
    if (a->out_count != b->out_count)
        return false;
    for (int i = 0; i < a->out_count; i++)
        if (a->out[i].reg != b->out[i].reg)
            return false;
    return true;
}

static ckl_status check_in_flight(const walk *w, const ir_inst *inst, int reg, bool as_accumulator, bool as_a)
{
    const reg_state *r = &w->now.regs[reg];
    if (r->age == 0)
        return CKL_OK;
    const ir_inst *owner = &w->kernel->insts[r->owner];
    if (r->accumulates ? as_accumulator && same_accumulators(inst, owner) : as_a)
        return CKL_OK;
    FAULT(w->kernel, inst, "register %d belongs to the %s of line %d until a wgmma_wait", reg, ir_op_text(owner->op),
          owner->line);
}

/* Reads before writes */

/* The only instruction that writes a register; -1 if there are none or several. */
static int only_writer(const ir_kernel *kernel, int reg)
{
    int writer = -1;
    for (int i = 0; i < kernel->inst_count; i++)
        for (int j = 0; j < kernel->insts[i].out_count; j++) {
            if (kernel->insts[i].out[j].reg != reg)
                continue;
            if (writer >= 0)
                return -1;
            writer = i;
        }
    return writer;
}

/* The outermost IF, ELSE or LOOP that is open at one instruction and closed at a later one; NULL if there is none. */
static const ir_inst *block_left(const ir_kernel *kernel, int from, int to)
{
    for (int i = 0; i < from; i++) {
        const ir_inst *inst = &kernel->insts[i];
        bool begins = inst->op == IR_IF || inst->op == IR_ELSE || inst->op == IR_LOOP;
        if (begins && inst->match > from && inst->match < to)
            return inst;
    }
    return NULL;
}

/* A value made in a block does not exist after it: the block may not run, which C cannot know. */
static ckl_status fail_unwritten(const walk *w, const ir_inst *inst, int i)
{
    int reg = inst->in[i].reg, writer = only_writer(w->kernel, reg);
    const ir_inst *made = writer < 0 ? NULL : &w->kernel->insts[writer];
    const ir_inst *left = made ? block_left(w->kernel, writer, (int)(inst - w->kernel->insts)) : NULL;
    if (!left)
        FAULT(w->kernel, inst, "register %d of type %s is read before it is written%s", reg,
              ir_type_text(inst->in[i].type), w->now.regs[reg].guard == NOBODY ? "" : " on every path");
    bool value = made->op != IR_MOV; // else a variable
    FAULT(w->kernel, inst, "the %s made at %s:%d, inside the %s of line %d, is read after it: %s",
          ir_type_text(inst->in[i].type), made->file, made->line, ir_op_text(left->op), left->line,
          value ? "make it a variable() and assign() it there" : "it needs a value on every path");
}

/* Source i, a register, must be assigned and not in flight. */
static ckl_status check_source(const walk *w, const ir_inst *inst, int i)
{
    int reg = inst->in[i].reg;
    const reg_state *r = &w->now.regs[reg];
    bool accumulator = is_accumulator(inst, i), a = is_register_a(inst, i);
    bool old_value_counts = !accumulator || ir_is_int(inst->in[inst->in_count - inst->out_count - 1], 1);
    if (!r->assigned && old_value_counts)
        return fail_unwritten(w, inst, i);
    if ((accumulator || a) && r->touched)
        FAULT(w->kernel, inst, "register %d was used after the last wgmma_fence", reg);
    return check_in_flight(w, inst, reg, accumulator, a);
}

static void touch(walk *w, const ir_inst *inst)
{
    for (int i = 0; i < inst->in_count; i++)
        if (!ir_is_constant(inst->in[i]))
            w->now.regs[inst->in[i].reg].touched = true;
    for (int i = 0; i < inst->out_count; i++)
        w->now.regs[inst->out[i].reg].touched = true;
}

static void take(walk *w, int index, int reg, bool accumulates)
{
    reg_state *r = &w->now.regs[reg];
    r->age = 1;
    r->owner = index;
    r->accumulates = accumulates;
}

/* The registers of a WGMMA go to the tensor core. */
static void take_registers(walk *w, int index)
{
    const ir_inst *inst = &w->kernel->insts[index];
    for (int i = 0; i < inst->in_count; i++)
        if (is_register_a(inst, i) && !ir_is_constant(inst->in[i]))
            take(w, index, inst->in[i].reg, false);
    for (int i = 0; i < inst->out_count; i++)
        take(w, index, inst->out[i].reg, true);
}

static void commit(walk *w)
{
    for (int i = 0; i < w->kernel->reg_count; i++)
        if (w->now.regs[i].age > 0 && w->now.regs[i].age < AGE_MAX)
            w->now.regs[i].age++;
}

/* All but the n groups closed last are complete; the open group is not waited for. */
static void retire(walk *w, int n)
{
    for (int i = 0; i < w->kernel->reg_count; i++)
        if (w->now.regs[i].age >= n + 2)
            w->now.regs[i].age = 0;
}

static void clear_touched(walk *w)
{
    for (int i = 0; i < w->kernel->reg_count; i++)
        w->now.regs[i].touched = false;
}

static ckl_status visit_plain(walk *w, int index)
{
    const ir_inst *inst = &w->kernel->insts[index];
    for (int i = 0; i < inst->in_count; i++)
        if (!ir_is_constant(inst->in[i]))
            TRY(check_source(w, inst, i));
    for (int i = 0; i < inst->out_count; i++)
        TRY(check_in_flight(w, inst, inst->out[i].reg, is_wgmma(inst), false));
    if (is_wgmma(inst))
        take_registers(w, index);
    else
        touch(w, inst);
    for (int i = 0; i < inst->out_count; i++) {
        w->now.regs[inst->out[i].reg].assigned = true;
        w->versions[inst->out[i].reg] = ++w->version;
    }
    if (inst->op == IR_WGMMA_FENCE)
        clear_touched(w);
    if (inst->op == IR_WGMMA_COMMIT)
        commit(w);
    if (inst->op == IR_WGMMA_WAIT)
        retire(w, inst->n);
    if (inst->op == IR_EXIT)
        w->now.reachable = false;
    return CKL_OK;
}

/* Blocks */

static block *push(walk *w, int begin)
{
    block *b = &w->blocks[w->depth++];
    b->begin = begin;
    copy_state(w, &b->before, &w->now);
    return b;
}

static block *top(walk *w)
{
    return &w->blocks[w->depth - 1];
}

/* Inside IF p, what an earlier IF p has written is assigned. */
static void enter_guard(walk *w, int predicate)
{
    for (int i = 0; i < w->kernel->reg_count; i++) {
        reg_state *r = &w->now.regs[i];
        if (r->guard == predicate && r->guard_version == w->versions[predicate])
            r->assigned = true;
    }
}

/* After IF p without ELSE: what only its body has written. */
static void note_guard(walk *w, const state *inside, int predicate, int version)
{
    for (int i = 0; i < w->kernel->reg_count; i++)
        if (!w->now.regs[i].assigned && inside->regs[i].assigned) {
            w->now.regs[i].guard = predicate;
            w->now.regs[i].guard_version = version;
        }
}

static void visit_if(walk *w, int index)
{
    push(w, index);
    enter_guard(w, w->kernel->insts[index].in[0].reg);
}

/* The second side starts where the first one did. */
static void visit_else(walk *w, int index)
{
    block *b = top(w);
    state first = w->now;
    w->now = b->before;
    b->before = first;
    b->begin = index;
}

static void visit_end_if(walk *w)
{
    block *b = top(w);
    const ir_inst *begin = &w->kernel->insts[b->begin];
    state inside = w->now;
    w->now = b->before;
    b->before = inside;
    bool guards = begin->op == IR_IF && inside.reachable && w->now.reachable;
    merge_state(w, &w->now, &inside);
    if (guards)
        note_guard(w, &inside, begin->in[0].reg, w->versions[begin->in[0].reg]);
    w->depth--;
}

static void visit_loop(walk *w, int index)
{
    push(w, index)->exits.reachable = false;
}

static void visit_break(walk *w)
{
    int loop = w->depth - 1;
    while (w->kernel->insts[w->blocks[loop].begin].op != IR_LOOP)
        loop--;
    merge_state(w, &w->blocks[loop].exits, &w->now);
}

/* Returns the instruction to go on with: the loop's first again, or this one. */
static int visit_end_loop(walk *w, int index)
{
    block *b = top(w);
    if (merge_state(w, &b->before, &w->now)) {
        copy_state(w, &w->now, &b->before);
        return b->begin;
    }
    if (b->exits.reachable)
        copy_state(w, &w->now, &b->exits);
    w->now.reachable = b->exits.reachable;
    w->depth--;
    return index;
}

static ckl_status visit(walk *w, int *index)
{
    const ir_inst *inst = &w->kernel->insts[*index];
    if (w->now.reachable)
        TRY(visit_plain(w, *index));
    if (inst->op == IR_IF)
        visit_if(w, *index);
    else if (inst->op == IR_ELSE)
        visit_else(w, *index);
    else if (inst->op == IR_END_IF)
        visit_end_if(w);
    else if (inst->op == IR_LOOP)
        visit_loop(w, *index);
    else if (inst->op == IR_BREAK)
        visit_break(w);
    else if (inst->op == IR_END_LOOP)
        *index = visit_end_loop(w, *index);
    return CKL_OK;
}

ckl_status verify_registers(const ir_kernel *kernel)
{
    walk w = { .kernel = kernel, .now.reachable = true };
    w.now.regs = arena_alloc(&w.memory, (size_t)kernel->reg_count, sizeof(reg_state));
    w.versions = arena_alloc(&w.memory, (size_t)kernel->reg_count, sizeof *w.versions);
    for (int i = 0; i < kernel->reg_count; i++)
        w.now.regs[i].guard = NOBODY;
    ckl_status status = CKL_OK;
    for (int i = 0; i < kernel->inst_count && status == CKL_OK; i++)
        status = visit(&w, &i);
    arena_clear(&w.memory);
    return status;
}
