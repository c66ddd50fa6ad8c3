/*
 * verify_convergence.c - do the threads that must execute an instruction together diverge at a predicate?
 *
 * For every register the analysis tells whether its value is the same in all lanes of a warp, and in all threads of a
 * warpgroup:
 *
 *   UNIFORM     constants, parameters, CTA indices and what is computed from them; votes and reductions within the warp
 *   DIVERGENT   certainly different: the lane, the thread, ELECT, the warp within a warpgroup; and comparisons of these
 *               with constants that do not fall between warps (warpgroups). tid < 64 is uniform in a warp but not in a
 *               warpgroup; at tid < 40 and lane == 0 a warp diverges
 *   UNSURE      everything else that depends on those, also loads from such addresses: the emulator sees what happens.
 *               So is a register that several instructions write, one of them under a predicate that is not UNIFORM
 *
 * The fault: a converged instruction under an IF, or in a LOOP after a BREAK, whose predicate is DIVERGENT for its
 * group.
 */
#include "ir/build.h"
#include "ir/rules.h"
#include "ir/verify.h"

enum { WARP_LANES = 32, GROUP_WARPS = 4 };

typedef enum agreement { UNIFORM, UNSURE, DIVERGENT } agreement;

/*
 * What is known of a value. A unit says that it numbers threads or warps: the value, or its low bits, grow by `unit`
 * from one warp to the next (32: tid, 1: the warp).
 */
typedef struct spread {
    bool known;
    agreement warp, group;
    int64_t unit; // 0: no such number
} spread;

typedef struct block {
    int begin;
    spread outside; // of the predicates around it
} block;

typedef struct analysis {
    const ir_kernel *kernel;
    arena memory;
    spread *regs;
    int *writers;  // per register: instructions that write it
    spread *exits; // per LOOP instruction: of its BREAKs
    block blocks[BLOCKS_MAX];
    int depth;
    spread inside; // of the predicates around the current instruction
    bool changed;
} analysis;

static const spread uniform = { .known = true, .warp = UNIFORM, .group = UNIFORM };
static const spread unsure = { .known = true, .warp = UNSURE, .group = UNSURE };
static const spread divergent = { .known = true, .warp = DIVERGENT, .group = DIVERGENT };

static agreement worse(agreement a, agreement b)
{
    return a > b ? a : b;
}

/* A value computed from two others; it numbers nothing any more. */
static spread join(spread a, spread b)
{
    return (spread){ .known = true, .warp = worse(a.warp, b.warp), .group = worse(a.group, b.group) };
}

static bool is_same(spread a, spread b)
{
    return a.warp == b.warp && a.group == b.group && a.unit == b.unit;
}

/* What is computed from x may lose the differences of x. */
static spread blur(spread x)
{
    x.warp = x.warp == UNIFORM ? UNIFORM : UNSURE;
    x.group = x.group == UNIFORM ? UNIFORM : UNSURE;
    x.unit = 0;
    return x;
}

static spread spread_of(const analysis *a, val v)
{
    if (ir_is_constant(v) || !a->regs[v.reg].known)
        return uniform;
    return a->regs[v.reg];
}

static spread join_sources(const analysis *a, const ir_inst *inst)
{
    spread all = uniform;
    for (int i = 0; i < inst->in_count; i++)
        all = join(all, spread_of(a, inst->in[i]));
    return all;
}

/* Numbers of threads and warps */

static spread numbered(int64_t unit)
{
    return (spread){ .known = true, .warp = unit > 1 ? DIVERGENT : UNIFORM, .group = DIVERGENT, .unit = unit };
}

/* x / by, by > 0. Remainders of powers of two are masks already. */
static spread divide(spread x, int64_t by)
{
    if (x.unit % by == 0)
        return numbered(x.unit / by);
    return by % (x.unit * GROUP_WARPS) == 0 ? uniform : unsure;
}

/* The number with its bits above mask cleared: what is left still differs from lane to lane, or from warp to warp. */
static spread mask(spread x, int64_t bits)
{
    return is_power_of_two(bits + 1) ? x : blur(x);
}

/* Adding a multiple of a warpgroup keeps the steps of a number. */
static spread shift(spread x, int64_t by)
{
    return by % (x.unit * GROUP_WARPS) == 0 ? x : blur(x);
}

static spread compute_number(const ir_inst *inst, spread x, int64_t c)
{
    switch (inst->op) {
    case IR_SHR:
        return c < 32 ? divide(x, (int64_t)1 << c) : uniform;
    case IR_DIV:
        return c > 0 ? divide(x, c) : blur(x);
    case IR_AND:
        return mask(x, c);
    case IR_ADD:
    case IR_SUB:
        return shift(x, c);
    default:
        return blur(x);
    }
}

/* The value at which the comparison changes; false: it is one for equality. */
static bool bound_of(const ir_inst *inst, bool constant_first, int64_t c, int64_t *bound)
{
    bool after = inst->mode == IR_LE || inst->mode == IR_GT; // x <= c, x > c
    if (constant_first)
        after = inst->mode == IR_LT || inst->mode == IR_GE; // c < x, c >= x
    *bound = c + after;
    return inst->mode != IR_EQ && inst->mode != IR_NE;
}

static spread compare_number(const analysis *a, const ir_inst *inst, spread x, bool constant_first, int64_t c)
{
    int64_t bound, end = ceil_div(a->kernel->threads, WARP_LANES) * x.unit; // numbers are below end
    if (!bound_of(inst, constant_first, c, &bound))
        return c < 0 || c >= end ? uniform : (spread){ true, x.unit > 1 ? DIVERGENT : UNIFORM, DIVERGENT, 0 };
    if (bound <= 0 || bound >= end || bound % (x.unit * GROUP_WARPS) == 0)
        return uniform;
    return (spread){ true, bound % x.unit ? DIVERGENT : UNIFORM, DIVERGENT, 0 };
}

/* Instructions */

static spread compute_sreg(const ir_inst *inst)
{
    switch (inst->mode) {
    case IR_TID_X:
    case IR_LANE:
        return numbered(WARP_LANES);
    case IR_WARP:
        return numbered(1);
    default:
        return uniform;
    }
}

static spread compute_arithmetic(const analysis *a, const ir_inst *inst)
{
    bool two = inst->in_count == 2;
    bool constant_first = two && ir_is_constant(inst->in[0]), constant_last = two && ir_is_constant(inst->in[1]);
    spread x = inst->in_count ? spread_of(a, inst->in[constant_first]) : uniform;
    if (constant_first == constant_last || !x.unit || ir_type_is_float(inst->type))
        return blur(join_sources(a, inst));
    int64_t c = inst->in[constant_last].i;
    if (inst->op == IR_COMPARE)
        return compare_number(a, inst, x, constant_first, c);
    return constant_first ? blur(x) : compute_number(inst, x, c);
}

static spread compute(const analysis *a, const ir_inst *inst)
{
    switch (inst->op) {
    case IR_SREG:
        return compute_sreg(inst);
    case IR_ELECT:
        return divergent;
    case IR_MOV:
    case IR_CONVERT:
        return spread_of(a, inst->in[0]);
    case IR_AND:
    case IR_OR:
    case IR_XOR:
    case IR_NOT:
        return inst->type == IR_PRED ? join_sources(a, inst) : compute_arithmetic(a, inst);
    case IR_VOTE:
    case IR_REDUX:
        return join_sources(a, inst).group == UNIFORM ? uniform : unsure;
    case IR_LD:
        return inst->order ? unsure : compute_arithmetic(a, inst);
    case IR_ATOM:
    case IR_LDMATRIX:
    case IR_MMA:
    case IR_WGMMA:
    case IR_WGMMA_RS:
        return unsure;
    default:
        return compute_arithmetic(a, inst);
    }
}

/*
 * A register with one writer holds the value of that instruction. A register with several also tells which of them ran,
 * so it depends on the predicates around them. If their values are of different kinds, nothing sure is left.
 */
static void assign(analysis *a, int reg, spread value)
{
    spread *r = &a->regs[reg], before = *r;
    if (a->writers[reg] > 1 && a->inside.group != UNIFORM)
        value = blur(join(value, a->inside));
    if (before.known && !is_same(before, value))
        value = blur(join(before, value));
    a->changed |= !before.known || !is_same(before, value);
    *r = value;
}

/* Control flow */

static void open_block(analysis *a, int index, spread predicate)
{
    a->blocks[a->depth++] = (block){ .begin = index, .outside = a->inside };
    a->inside = join(a->inside, predicate);
}

static void note_break(analysis *a, const ir_inst *inst)
{
    spread *exits = &a->exits[a->kernel->insts[inst->match].match];
    spread all = join(*exits, join(a->inside, spread_of(a, inst->in[0])));
    a->changed |= !is_same(all, *exits);
    *exits = all;
}

static void visit(analysis *a, int index)
{
    const ir_inst *inst = &a->kernel->insts[index];
    if (inst->op == IR_IF)
        open_block(a, index, spread_of(a, inst->in[0]));
    else if (inst->op == IR_LOOP)
        open_block(a, index, a->exits[index]);
    else if (inst->op == IR_END_IF || inst->op == IR_END_LOOP)
        a->inside = a->blocks[--a->depth].outside;
    else if (inst->op == IR_BREAK)
        note_break(a, inst);
    for (int i = 0; i < inst->out_count; i++)
        assign(a, inst->out[i].reg, compute(a, inst));
}

static agreement agreement_of(spread x, ir_group group)
{
    return group == GROUP_WARP ? x.warp : group == GROUP_WARPGROUP ? x.group : UNIFORM;
}

/* Names the predicate at which the instruction's group diverges. */
static ckl_status fail_divergent(const analysis *a, const ir_inst *inst, ir_group group)
{
    const ir_inst *branch = inst;
    for (int i = a->depth - 1; i >= 0; i--) {
        const ir_inst *begin = &a->kernel->insts[a->blocks[i].begin];
        spread s = begin->op == IR_LOOP ? a->exits[a->blocks[i].begin] : spread_of(a, begin->in[0]);
        if (agreement_of(s, group) == DIVERGENT)
            branch = begin;
    }
    FAULT(a->kernel, inst, "wants a converged %s, but its %s diverge at the %s of line %d",
          group == GROUP_WARP ? "warp" : "warpgroup", group == GROUP_WARP ? "lanes" : "threads", ir_op_text(branch->op),
          branch->line);
}

static ckl_status check_all(analysis *a)
{
    for (int i = 0; i < a->kernel->inst_count; i++) {
        const ir_inst *inst = &a->kernel->insts[i];
        ir_group group = ir_rule_of(inst->op)->group;
        visit(a, i);
        if (agreement_of(a->inside, group) == DIVERGENT)
            return fail_divergent(a, inst, group);
    }
    return CKL_OK;
}

static void start(analysis *a)
{
    const ir_kernel *kernel = a->kernel;
    a->regs = arena_alloc(&a->memory, (size_t)kernel->reg_count, sizeof *a->regs);
    a->writers = arena_alloc(&a->memory, (size_t)kernel->reg_count, sizeof *a->writers);
    a->exits = arena_alloc(&a->memory, (size_t)kernel->inst_count, sizeof *a->exits);
    for (int i = 0; i < kernel->inst_count; i++) {
        a->exits[i] = uniform;
        for (int j = 0; j < kernel->insts[i].out_count; j++)
            a->writers[kernel->insts[i].out[j].reg]++;
    }
}

ckl_status verify_convergence(const ir_kernel *kernel)
{
    analysis a = { .kernel = kernel, .inside = uniform, .changed = true };
    start(&a);
    while (a.changed) { // to an end: what is known of a value only gets less
        a.changed = false;
        for (int i = 0; i < kernel->inst_count; i++)
            visit(&a, i);
    }
    ckl_status status = check_all(&a);
    arena_clear(&a.memory);
    return status;
}
