/*
 * wgmma.c - matrix instructions of a warpgroup: issued warp by warp, executed when all four have issued, never before.
 *
 * The warps do not meet at a WGMMA: each goes on at once. The accumulators are off limits until WGMMA_WAIT.
 */
#include <pthread.h>
#include <string.h>

#include "base/heap.h"
#include "device/emulator/machine.h"
#include "device/emulator/matrix.h"

enum {
    WGMMA_M = 64,
    WGMMA_N_MAX = 256,
    GROUP_THREADS = WARPS_PER_GROUP * LANES,
    A_HALVES = 8,
    A_M_MAJOR = 1,
    B_N_MAJOR = 2
};

/* Fragment layouts, asked for once. */
static struct {
    uint8_t row, column;
} d_place[GROUP_THREADS][WGMMA_N_MAX / 2], a_place[GROUP_THREADS][A_HALVES];

static void fill_places(void)
{
    int row, column;
    for (int t = 0; t < GROUP_THREADS; t++) {
        for (int i = 0; i < WGMMA_N_MAX / 2; i++) {
            matrix_wgmma_d(t, i, &row, &column);
            d_place[t][i].row = (uint8_t)row;
            d_place[t][i].column = (uint8_t)column;
        }
        for (int i = 0; i < A_HALVES; i++) {
            matrix_wgmma_a(t, i, &row, &column);
            a_place[t][i].row = (uint8_t)row;
            a_place[t][i].column = (uint8_t)column;
        }
    }
}

/* Registers in flight */

static bool is_in_flight(const warp *w, operand o)
{
    return o.reg != IR_CONSTANT && w->in_flight[o.reg] > w->wgmma_waited;
}

static outcome fault_in_flight(warp *w, const step *s, const char *what)
{
    return fault(w, s, -1, "register in use by wgmma",
                 "a register is %s while a wgmma that uses it is under way; wgmma_wait must come first", what);
}

outcome run_guarded(warp *w, const step *s)
{
    for (int i = 0; i < s->inst->in_count; i++)
        if (is_in_flight(w, s->in[i]))
            return fault_in_flight(w, s, "read");
    for (int i = 0; i < s->inst->out_count; i++) {
        if (is_in_flight(w, s->out[i]))
            return fault_in_flight(w, s, "written");
        w->unfenced[s->out[i].reg] = w->any_unfenced = true;
    }
    return s->guarded(w, s);
}

static bool group_converges(warp *w, const step *s)
{
    if (!warp_converges(w, s))
        return false;
    if (w->index / WARPS_PER_GROUP < w->cluster->kernel->warps / WARPS_PER_GROUP && !w->exited)
        return true;
    return fault(w, s, -1, "divergence at a converged instruction", "%s wants the four whole warps of a warpgroup",
                 ir_op_text(s->inst->op));
}

outcome run_wgmma_fence(warp *w, const step *s)
{
    if (!group_converges(w, s))
        return FAULTED;
    w->wgmma_fenced = true;
    if (w->any_unfenced)
        memset(w->unfenced, 0, (size_t)w->cluster->kernel->ir.reg_count * sizeof *w->unfenced);
    w->any_unfenced = false;
    return ADVANCE;
}

/* Issue */

static int a_registers(const step *s)
{
    return s->inst->op == IR_WGMMA_RS ? 4 : 0;
}

/* The operands after A: B's descriptor and scale_d. */
static const operand *after_a(const step *s)
{
    return s->in + (a_registers(s) ? a_registers(s) : 1);
}

static bool check_fenced(warp *w, const step *s)
{
    bool fenced = w->wgmma_fenced;
    for (int i = 0; i < s->inst->out_count; i++)
        fenced &= !w->unfenced[s->out[i].reg];
    for (int i = 0; i < a_registers(s); i++)
        fenced &= s->in[i].reg == IR_CONSTANT || !w->unfenced[s->in[i].reg];
    if (!fenced)
        fault(w, s, -1, "missing wgmma_fence", "registers of this wgmma were written and no wgmma_fence followed");
    return fenced;
}

static void mark_in_flight(warp *w, const step *s)
{
    for (int i = 0; i < s->inst->out_count; i++)
        w->in_flight[s->out[i].reg] = w->wgmma_groups + 1;
    for (int i = 0; i < a_registers(s); i++)
        if (s->in[i].reg != IR_CONSTANT)
            w->in_flight[s->in[i].reg] = w->wgmma_groups + 1;
}

static bool is_uniform(warp *w, const step *s, operand o)
{
    const unsigned char *x = lanes_of(w, o);
    size_t bytes = (size_t)o.bytes;
    if (memcmp(x, x + bytes, bytes * (LANES - 1)) == 0)
        return true;
    return fault(w, s, -1, "divergence at a converged instruction",
                 "an operand of wgmma differs between the lanes of the warp");
}

static bool read_op(warp *w, const step *s, matrix_op *op)
{
    const operand *b = after_a(s), *scale = b + 1;
    if ((!a_registers(s) && !is_uniform(w, s, s->in[0])) || !is_uniform(w, s, *b) || !is_uniform(w, s, *scale))
        return false;
    *op = (matrix_op){ .s = s,
                       .a = a_registers(s) ? 0 : u64_of(w, s->in[0], 0),
                       .b = u64_of(w, *b, 0),
                       .accumulate = mask_of(lanes_of(w, *scale)) != 0,
                       .group = w->wgmma_groups,
                       .issued = 1 };
    return true;
}

static warpgroup *group_of(warp *w, const step *s)
{
    warpgroup *g = &w->cta->groups[w->index / WARPS_PER_GROUP];
    if (g->agent == NO_AGENT)
        g->agent = agent_new(
            w, s,
            (agent){ .kind = AGENT_WGMMA, .cta = w->cta->rank, .warp = w->index / WARPS_PER_GROUP * WARPS_PER_GROUP });
    return g->agent == NO_AGENT ? NULL : g;
}

static matrix_op *append(cluster *c, warpgroup *g, const matrix_op *op)
{
    if (g->count == g->capacity) {
        uint32_t larger = g->capacity ? 2 * g->capacity : 16;
        g->ops = heap_resize(g->ops, larger, sizeof *g->ops);
        g->capacity = larger;
    }
    matrix_op *added = &g->ops[g->count++];
    knowledge room = added->knows.seen ? added->knows : knowledge_new(c); // that of an operation that is done
    *added = *op;
    added->knows = room;
    return added;
}

/* This warp's share of an operation that another warp of the group issued first. */
static bool agree(warp *w, const step *s, matrix_op *op, const matrix_op *mine)
{
    if (op->s != mine->s || op->a != mine->a || op->b != mine->b || op->accumulate != mine->accumulate ||
        op->group != mine->group)
        return fault(
            w, s, -1, "divergence at a converged instruction",
            "the warps of the warpgroup issue different wgmmas: another is at %s:%d, or its operands or groups differ",
            op->s->inst->file, op->s->inst->line);
    op->issued++;
    knowledge_meet(w->cluster, &op->knows, &w->knows);
    return true;
}

typedef struct reader {
    const access *a;
    cta *c;
    bool ok;
} reader;

static void touch_chunk(void *user, uint32_t address, uint32_t bytes)
{
    reader *r = user;
    r->ok = r->ok && shared_touch(r->c, r->a, shared_offset(address), bytes);
}

typedef struct operands {
    uint16_t a[WGMMA_M][MATRIX_HALVES], b[WGMMA_N_MAX][MATRIX_HALVES];
} operands;

/* Reads the operands that lie in shared memory; r may be NULL. */
static bool gather(warp *w, const matrix_op *op, operands *o, reader *r)
{
    const ir_inst *inst = op->s->inst;
    const cta *c = w->cta;
    const matrix_window window = { c->shared, SHARED_BASE, (uint32_t)c->cluster->kernel->ir.smem_bytes,
                                   r ? touch_chunk : NULL, r };
    char why[128] = "";
    bool ok = inst->op == IR_WGMMA_RS || matrix_gather(op->a, inst->mode & A_M_MAJOR, WGMMA_M, &window, o->a[0], why);
    ok = ok && matrix_gather(op->b, (inst->mode & B_N_MAJOR) != 0, inst->n, &window, o->b[0], why);
    if (!ok)
        fault(w, op->s, -1, "bad matrix descriptor", "%s", why);
    return ok && (!r || r->ok);
}

/* The reads of shared memory are checked when the last warp has issued, by what all four know. */
static bool check_reads(warp *w, const warpgroup *g, const matrix_op *op)
{
    operands unused;
    access a = warp_access(w, op->s, -1, false);
    a.async = true;
    a.agent = g->agent;
    a.clock = op->group + 1;
    a.knows = &op->knows;
    return gather(w, op, &unused, &(reader){ &a, w->cta, true });
}

/* Execution */

static warp *warps_of_group(warp *w)
{
    return w->cta->warps + w->index / WARPS_PER_GROUP * WARPS_PER_GROUP;
}

static void read_a_registers(const warp *warps, const step *s, operands *o)
{
    for (int t = 0; t < GROUP_THREADS; t++)
        for (int i = 0; i < A_HALVES; i++)
            o->a[a_place[t][i].row][a_place[t][i].column] =
                (uint16_t)(u32_of(&warps[t / LANES], s->in[i / 2], t % LANES) >> i % 2 * 16);
}

/* Between the registers of the warpgroup and d, the 64 x n tile. */
static void move_accumulators(warp *warps, const step *s, float *d, bool write)
{
    int n = s->inst->n;
    for (int i = 0; i < n / 2; i++) {
        for (int t = 0; t < GROUP_THREADS; t += LANES) {
            lane_f32 *x = (lane_f32 *)lanes_of(&warps[t / LANES], s->out[i]);
            for (int lane = 0; lane < LANES; lane++) {
                float *element = &d[d_place[t + lane][i].row * n + d_place[t + lane][i].column];
                if (write)
                    x[lane] = *element;
                else
                    *element = x[lane];
            }
        }
    }
}

/* d holds the accumulators already if `held`, and keeps the results. */
static bool execute(warp *w, const matrix_op *op, float *d, bool held)
{
    operands o;
    const ir_inst *inst = op->s->inst;
    warp *warps = warps_of_group(w);
    if (!gather(w, op, &o, NULL))
        return false;
    if (inst->op == IR_WGMMA_RS)
        read_a_registers(warps, op->s, &o);
    if (op->accumulate && !held)
        move_accumulators(warps, op->s, d, false);
    matrix_types types = { (ckl_dtype)inst->from, (ckl_dtype)inst->from_b };
    int k = matrix_k(types);
    matrix_multiply(&(matrix_product){ w->cluster->kernel->device->core, types, WGMMA_M, inst->n, k }, o.a[0], o.b[0],
                    d, op->accumulate);
    w->cluster->count[COUNT_TENSOR_FLOPS] += 2LL * WGMMA_M * inst->n * k;
    return true;
}

static bool same_accumulators(const step *a, const step *b)
{
    bool same = a->inst->out_count == b->inst->out_count;
    for (int i = 0; same && i < a->inst->out_count; i++)
        same = a->out[i].reg == b->out[i].reg;
    return same;
}

/* Executes the first `count` operations and takes them out of the list. */
static bool execute_first(warp *w, warpgroup *g, uint32_t count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_places);
    float d[WGMMA_M * WGMMA_N_MAX];
    const step *held = NULL; // whose accumulators are in d and not yet in registers
    for (uint32_t i = 0; i < count; i++) {
        matrix_op op = g->ops[0];
        bool same = held && same_accumulators(held, op.s);
        if (held && !same)
            move_accumulators(warps_of_group(w), held, d, true);
        if (!execute(w, &op, d, same))
            return false;
        held = op.s;
        g->first++;
        g->count--;
        memmove(g->ops, g->ops + 1, g->count * sizeof op);
        g->ops[g->count] = op;
    }
    if (held)
        move_accumulators(warps_of_group(w), held, d, true);
    return true;
}

outcome run_wgmma(warp *w, const step *s)
{
    matrix_op mine;
    warpgroup *g = group_converges(w, s) ? group_of(w, s) : NULL;
    if (!g || !check_fenced(w, s) || !read_op(w, s, &mine))
        return FAULTED;
    uint32_t place = w->wgmma_issued - g->first;
    matrix_op *op = place < g->count ? &g->ops[place] : NULL;
    if (op ? !agree(w, s, op, &mine) : !(op = append(w->cluster, g, &mine)))
        return FAULTED;
    if (op->issued == 1)
        knowledge_copy(w->cluster, &op->knows, &w->knows);
    w->wgmma_issued++;
    w->wgmma_open = true;
    mark_in_flight(w, s);
    if (op->issued < WARPS_PER_GROUP)
        return ADVANCE;
    if (!check_reads(w, g, op))
        return FAULTED;
    bool eager = w->cluster->kernel->device->options.completion == COMPLETION_EAGER;
    return !eager || execute_first(w, g, 1) ? ADVANCE : FAULTED;
}

/* Waiting */

outcome run_wgmma_commit(warp *w, const step *s)
{
    if (!group_converges(w, s))
        return FAULTED;
    w->wgmma_groups++;
    w->wgmma_open = false;
    return ADVANCE;
}

outcome run_wgmma_wait(warp *w, const step *s)
{
    uint32_t pending = (uint32_t)s->inst->n;
    if (!group_converges(w, s))
        return FAULTED;
    if (w->wgmma_groups <= pending || !w->wgmma_issued)
        return ADVANCE;
    uint32_t groups = w->wgmma_groups - pending, count = 0;
    warpgroup *g = &w->cta->groups[w->index / WARPS_PER_GROUP];
    for (; count < g->count && g->ops[count].group < groups; count++)
        if (g->ops[count].issued < WARPS_PER_GROUP) {
            w->waits = WAIT_WGMMA;
            return BLOCKED;
        }
    if (!execute_first(w, g, count))
        return FAULTED;
    w->wgmma_waited = groups > w->wgmma_waited ? groups : w->wgmma_waited;
    w->knows.seen[g->agent] = w->wgmma_waited;
    w->knows.visible[g->agent] = w->wgmma_waited;
    return ADVANCE;
}
