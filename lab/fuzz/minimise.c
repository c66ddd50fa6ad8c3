/*
 * minimise.c - the shortest kernel that still shows a symptom. What is tried: without a run of instructions, halves
 * first; without an IF or LOOP around what it holds; with results that are constants; with smaller constants. The
 * symptom says whether what is left is sound: the emulator finds missing barriers and unwritten registers. What ends a
 * loop stays in it, for an endless one would run to its budget, again and again.
 */
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "ir/build.h"
#include "lab/fuzz/fuzz.h"

enum { DEPTH_MAX = 256, ROUNDS_MAX = 4, TRIES_MAX = 2000 }; // some 30 s where every try is compiled

/* A kernel that is being shortened; operand lists stay those of the original unless they are changed. */
typedef struct search {
    ir_kernel *kernel;
    fuzz_fails *fails;
    void *user;
    int tries;
} search;

static bool still_fails(search *s, const ir_kernel *kernel)
{
    return s->tries++ < TRIES_MAX && s->fails(s->user, kernel);
}

/* Links blocks again after instructions went; false: they do not nest. */
static bool link_blocks(ir_kernel *k)
{
    int open[DEPTH_MAX], depth = 0;
    for (int i = 0; i < k->inst_count; i++) {
        ir_inst *inst = &k->insts[i];
        bool ends = inst->op == IR_ELSE || inst->op == IR_END_IF || inst->op == IR_END_LOOP;
        if (ends) {
            if (!depth)
                return false;
            int begin = open[--depth];
            ir_op op = k->insts[begin].op;
            if ((inst->op == IR_END_LOOP) != (op == IR_LOOP) || (inst->op == IR_ELSE && op != IR_IF))
                return false;
            inst->match = op == IR_ELSE ? k->insts[begin].match : begin; // an ELSE leads to its IF until END_IF
            k->insts[begin].match = i;
        }
        if (inst->op == IR_IF || inst->op == IR_ELSE || inst->op == IR_LOOP) {
            if (depth == DEPTH_MAX)
                return false;
            open[depth++] = i;
        }
    }
    return depth == 0;
}

/* BREAK leads to the end of the innermost loop; false: there is none. */
static bool link_breaks(ir_kernel *k)
{
    int loops[DEPTH_MAX], depth = 0;
    for (int i = 0; i < k->inst_count; i++) {
        if (k->insts[i].op == IR_LOOP)
            loops[depth++] = i;
        else if (k->insts[i].op == IR_END_LOOP)
            depth--;
        else if (k->insts[i].op == IR_BREAK && depth)
            k->insts[i].match = k->insts[loops[depth - 1]].match;
        else if (k->insts[i].op == IR_BREAK)
            return false;
    }
    return true;
}

/* Keeps the marked instructions if that is sound and still fails. */
static bool try_without(search *s, const bool *drop)
{
    ir_kernel *k = s->kernel, shorter = *k;
    shorter.insts = heap_alloc((size_t)k->inst_count + 1, sizeof *shorter.insts);
    shorter.inst_count = 0;
    for (int i = 0; i < k->inst_count; i++)
        if (!drop[i])
            shorter.insts[shorter.inst_count++] = k->insts[i];
    bool better = shorter.inst_count < k->inst_count && link_blocks(&shorter) && link_breaks(&shorter) &&
                  still_fails(s, &shorter);
    if (better) {
        memcpy(k->insts, shorter.insts, (size_t)shorter.inst_count * sizeof *shorter.insts);
        k->inst_count = shorter.inst_count;
    }
    heap_free(shorter.insts);
    return better;
}

/* What goes with the first instruction of a block. */
typedef enum block_range {
    WHOLE_BLOCK,
    AROUND_BLOCK, // its first and last instruction, of two sides the second one too
    FIRST_SIDE,   // and what is around
} block_range;

static void mark_range(bool *drop, int first, int last)
{
    for (int i = first; i <= last; i++)
        drop[i] = true;
}

/* Marks an instruction, and what it would leave open. */
static void mark(const ir_kernel *k, bool *drop, int i, block_range range)
{
    const ir_inst *inst = &k->insts[i];
    drop[i] = true;
    if (inst->op != IR_IF && inst->op != IR_LOOP)
        return;
    int middle = inst->match, last = k->insts[middle].op == IR_ELSE ? k->insts[middle].match : middle;
    if (range == WHOLE_BLOCK)
        mark_range(drop, i, last);
    else if (range == FIRST_SIDE)
        mark_range(drop, i, middle);
    else
        mark_range(drop, middle, last);
    drop[last] = true;
    for (int j = i; j < last; j++)
        drop[j] |= inst->op == IR_LOOP && k->insts[j].op == IR_BREAK;
}

static bool stands_alone(ir_op op)
{
    return op != IR_ELSE && op != IR_END_IF && op != IR_END_LOOP;
}

/* Marks instructions from `first` on that write what marked ones read; true: there were some. */
static bool mark_writers(const ir_kernel *k, int first, int last, bool *marked, bool *read)
{
    bool more = false;
    for (int i = first; i < last; i++) {
        const ir_inst *inst = &k->insts[i];
        if (marked[i] || !inst->out_count || !read[inst->out[0].reg])
            continue;
        marked[i] = more = true;
        for (int j = 0; j < inst->in_count; j++)
            if (!ir_is_constant(inst->in[j]))
                read[inst->in[j].reg] = true;
    }
    return more;
}

/* Marks what ends loops: the first BREAK of each, and what computes its predicate inside of the loop. */
static bool *find_ends(const ir_kernel *k)
{
    bool *ends = heap_alloc((size_t)k->inst_count + 1, sizeof *ends),
         *read = heap_alloc((size_t)k->reg_count + 1, sizeof *read);
    for (int loop = 0; loop < k->inst_count; loop++) {
        int last = k->insts[loop].match, at = loop;
        if (k->insts[loop].op != IR_LOOP)
            continue;
        while (at < last && k->insts[at].op != IR_BREAK)
            at++;
        if (at == last)
            continue;
        ends[at] = true;
        memset(read, 0, (size_t)k->reg_count + 1);
        if (!ir_is_constant(k->insts[at].in[0]))
            read[k->insts[at].in[0].reg] = true;
        while (mark_writers(k, loop, last, ends, read)) {
        }
    }
    heap_free(read);
    return ends;
}

/* Drops runs of `size` instructions, from the end, where results are not needed any more. */
static bool drop_runs(search *s, int size, block_range range)
{
    bool better = false;
    bool *drop = heap_alloc((size_t)s->kernel->inst_count + 1, sizeof *drop);
    for (int end = s->kernel->inst_count; end > 0; end -= size) {
        end = (int)min_i64(end, s->kernel->inst_count);
        memset(drop, 0, (size_t)s->kernel->inst_count);
        bool *ends = find_ends(s->kernel);
        for (int i = (int)max_i64(end - size, 0); i < end; i++)
            if (stands_alone(s->kernel->insts[i].op) && !ends[i])
                mark(s->kernel, drop, i, range);
        heap_free(ends);
        better |= try_without(s, drop);
    }
    heap_free(drop);
    return better;
}

/* Operands */

static val *copy_operands(ir_kernel *k, const ir_inst *inst)
{
    val *copy = arena_alloc(&k->memory, (size_t)inst->in_count + 1, sizeof *copy);
    memcpy(copy, inst->in, (size_t)inst->in_count * sizeof *copy);
    return copy;
}

static val simple_constant(ir_type type, int i)
{
    bool is_float = ir_type_is_float(type) && !ir_type_is_pair(type);
    return is_float ? ir_float(type, i) : ir_int(type, i);
}

/* Tries an operand as another value. */
static bool try_operand(search *s, ir_inst *inst, int i, val v)
{
    val *before = inst->in;
    inst->in = copy_operands(s->kernel, inst);
    inst->in[i] = v;
    if (still_fails(s, s->kernel))
        return true;
    inst->in = before;
    return false;
}

/* Instructions whose operands may be constants: not accumulators, addresses, predicates of blocks. */
static bool takes_constants(const ir_inst *inst)
{
    return inst->op <= IR_COS || inst->op == IR_ST || inst->op == IR_RED || inst->op == IR_ATOM;
}

/* What a register was computed from, if that has its type: tried in its place. */
static bool skip_writer(search *s, int index, int operand)
{
    val v = s->kernel->insts[index].in[operand];
    for (int i = index - 1; i >= 0; i--) {
        const ir_inst *writer = &s->kernel->insts[i];
        if (writer->out_count != 1 || writer->out[0].reg != v.reg)
            continue;
        for (int j = 0; j < writer->in_count; j++)
            if (!ir_is_constant(writer->in[j]) && writer->in[j].type == v.type && writer->in[j].reg != v.reg &&
                try_operand(s, &s->kernel->insts[index], operand, writer->in[j]))
                return true;
        return false;
    }
    return false;
}

static bool is_simple(val v)
{
    return ir_is_constant(v) &&
           (ir_type_is_float(v.type) && !ir_type_is_pair(v.type) ? v.f == 0 || v.f == 1 : v.i == 0 || v.i == 1);
}

/* How many of the first operands say where an instruction reads, writes or waits; of a wgmma, its descriptors. */
static int place_operands(const ir_inst *inst)
{
    ir_class class = ir_op_class(inst->op);
    if (inst->op == IR_LD || inst->op == IR_ST || inst->op == IR_ATOM || inst->op == IR_RED || inst->op == IR_STMATRIX)
        return 1;
    if (inst->op == IR_WGMMA || inst->op == IR_WGMMA_RS)
        return inst->op == IR_WGMMA ? 2 : 5; // after the four registers of A
    return class == IR_MEMORY || class == IR_TMA || class == IR_SYNC ? inst->in_count : 0;
}

/*
 * Marks the registers that addresses are made of. They stay as they are: if threads that stored side by side came to
 * store to one place, which of them is last would be a difference of its own.
 */
static bool *find_places(const ir_kernel *k)
{
    bool *place = heap_alloc((size_t)k->reg_count + 1, sizeof *place), more = true;
    while (more) {
        more = false;
        for (int i = 0; i < k->inst_count; i++) {
            const ir_inst *inst = &k->insts[i];
            bool makes = inst->out_count && place[inst->out[0].reg] && inst->op <= IR_PARAM;
            for (int j = 0; j < (makes ? inst->in_count : place_operands(inst)); j++) {
                if (ir_is_constant(inst->in[j]) || place[inst->in[j].reg])
                    continue;
                place[inst->in[j].reg] = more = true;
            }
        }
    }
    return place;
}

/* Operands become 0 or 1, or an earlier register. */
static bool simplify_operands(search *s)
{
    bool better = false, *place = find_places(s->kernel), *ends = find_ends(s->kernel);
    for (int i = 0; i < s->kernel->inst_count; i++) {
        ir_inst *inst = &s->kernel->insts[i];
        bool stays = ends[i] || (inst->out_count && place[inst->out[0].reg]);
        for (int j = place_operands(inst); j < inst->in_count && !stays; j++) {
            val v = inst->in[j];
            bool done = is_simple(v);
            for (int with = 0; with < 2 && !done && takes_constants(inst); with++)
                better |= done = try_operand(s, inst, j, simple_constant(v.type, with));
            while (!done && !ir_is_constant(inst->in[j]) && skip_writer(s, i, j))
                better = true;
        }
    }
    heap_free(place);
    heap_free(ends);
    return better;
}

void fuzz_minimise(ir_kernel *kernel, fuzz_fails *fails, void *user)
{
    search s = { kernel, fails, user, 0 };
    bool better = true;
    for (int round = 0; round < ROUNDS_MAX && better; round++) {
        better = false;
        for (int size = kernel->inst_count / 2; size >= 1; size /= 2)
            better |= drop_runs(&s, size, WHOLE_BLOCK);
        better |= drop_runs(&s, 1, AROUND_BLOCK);
        better |= drop_runs(&s, 1, FIRST_SIDE);
        better |= simplify_operands(&s);
    }
}
