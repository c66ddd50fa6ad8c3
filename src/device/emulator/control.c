/* control.c - structured control flow on lane masks, and the arithmetic instructions around it. */
#include <string.h>

#include "device/emulator/machine.h"

/* Control */

/* The END_IF or END_LOOP of a block. */
static int end_of(const warp *w, const ir_inst *begin)
{
    const ir_inst *partner = w->cluster->kernel->steps[begin->match].inst;
    return partner->op == IR_ELSE ? partner->match : begin->match;
}

/*
 * Goes on after lanes have left. If some are still active, at the next instruction; else at the end of the innermost
 * block that has lanes; if no block has any, the warp is done.
 */
static outcome proceed(warp *w)
{
    while (!w->active && w->depth) {
        frame *f = &w->stack[w->depth - 1];
        const ir_inst *begin = w->cluster->kernel->steps[f->step].inst;
        if (begin->op != IR_LOOP && f->otherwise) { // at the ELSE, which runs the other lanes
            w->pc = begin->match;
            return JUMPED;
        }
        w->active = f->rejoin;
        w->pc = end_of(w, begin) + 1;
        w->depth--;
        if (w->active)
            return JUMPED;
    }
    if (!w->active) {
        w->done = true;
        return JUMPED;
    }
    return ADVANCE;
}

static void push(warp *w, const step *s, lane_mask otherwise, lane_mask rejoin)
{
    w->stack[w->depth++] = (frame){ .step = s->index, .otherwise = otherwise, .rejoin = rejoin };
}

outcome run_if(warp *w, const step *s)
{
    lane_mask yes = mask_of(lanes_of(w, s->in[0])) & w->active, no = w->active & ~yes;
    bool has_else = w->cluster->kernel->steps[s->inst->match].inst->op == IR_ELSE;
    push(w, s, has_else ? no : 0, w->active);
    w->active = yes;
    if (yes)
        return ADVANCE;
    if (has_else) {
        w->pc = s->inst->match; // the ELSE, which takes its lanes from the frame
        return JUMPED;
    }
    return proceed(w);
}

outcome run_else(warp *w, const step *s)
{
    frame *f = &w->stack[w->depth - 1];
    f->step = s->index; // so that its match is the END_IF
    w->active = f->otherwise;
    f->otherwise = 0;
    return proceed(w);
}

outcome run_end_if(warp *w, const step *s)
{
    (void)s;
    w->active = w->stack[--w->depth].rejoin;
    return proceed(w);
}

outcome run_loop(warp *w, const step *s)
{
    push(w, s, 0, w->active);
    return ADVANCE;
}

outcome run_end_loop(warp *w, const step *s)
{
    w->pc = s->inst->match + 1;
    return JUMPED;
}

/* Takes lanes out of every block inside the loop they leave; they stay in the loop's frame and rejoin at its end. */
outcome run_break(warp *w, const step *s)
{
    lane_mask leave = mask_of(lanes_of(w, s->in[0])) & w->active;
    if (!leave)
        return ADVANCE;
    w->active &= ~leave;
    int loop = w->cluster->kernel->steps[s->inst->match].inst->match;
    for (int i = w->depth - 1; w->stack[i].step != loop; i--)
        w->stack[i].rejoin &= ~leave;
    return proceed(w);
}

outcome run_exit(warp *w, const step *s)
{
    (void)s;
    w->exited |= w->active;
    for (int i = 0; i < w->depth; i++) {
        w->stack[i].rejoin &= ~w->active;
        w->stack[i].otherwise &= ~w->active;
    }
    w->active = 0;
    return proceed(w);
}

/* Arithmetic */

outcome run_alu(warp *w, const step *s)
{
    const void *x = lanes_of(w, s->in[0]), *y = lanes_of(w, s->in[1]), *z = lanes_of(w, s->in[2]);
    if (w->active == ALL_LANES) {
        s->compute(lanes_of(w, s->out[0]), x, y, z);
        return ADVANCE;
    }
    result aside;
    s->compute(aside.lanes, x, y, z);
    lanes_blend(lanes_of(w, s->out[0]), aside.lanes, w->active, s->out[0].bytes);
    return ADVANCE;
}

/* DIV and REM of integers. */
outcome run_divide(warp *w, const step *s)
{
    const unsigned char *y = lanes_of(w, s->in[1]);
    size_t bytes = (size_t)s->in[1].bytes;
    static const unsigned char zero[LANE_BYTES_MAX];
    EACH_ACTIVE(i, w->active)
        if (memcmp(y + (size_t)i * bytes, zero, bytes) == 0)
            return fault(w, s, i, "division by zero", "the divisor is 0");
    return run_alu(w, s);
}

outcome run_convert(warp *w, const step *s)
{
    result aside;
    conversion_run(&s->convert, result_begin(w, s->out[0], &aside), lanes_of(w, s->in[0]));
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

static uint32_t narrow(ir_type pair, float x)
{
    return pair == IR_F16X2 ? f16_narrow(x) : bf16_narrow(x);
}

outcome run_pack(warp *w, const step *s)
{
    result aside;
    const void *lo = lanes_of(w, s->in[0]), *hi = lanes_of(w, s->in[1]);
    lane_u64 *wide = result_begin(w, s->out[0], &aside);
    lane_u32 *pair = (lane_u32 *)wide;
    if (s->out[0].bytes == 8) {
        EACH_LANE(i)
            wide[i] = ((const lane_u32 *)lo)[i] | (uint64_t)((const lane_u32 *)hi)[i] << 32;
    } else if (s->inst->from == CKL_F32) {
        EACH_LANE(i)
            pair[i] = narrow(s->inst->type, ((const lane_f32 *)lo)[i]) |
                      narrow(s->inst->type, ((const lane_f32 *)hi)[i]) << 16;
    } else {
        EACH_LANE(i)
            pair[i] = ((const lane_u16 *)lo)[i] | (uint32_t)((const lane_u16 *)hi)[i] << 16;
    }
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

/* The lower half of a pair. */
static inline float widen(ir_type pair, uint32_t bits)
{
    return pair == IR_BF16X2 ? bf16_widen((uint16_t)bits) : f16_widen((uint16_t)bits);
}

/* lo may be the register that x was in, so x is read whole first. */
outcome run_unpack(warp *w, const step *s)
{
    result x, lo, hi;
    memcpy(x.lanes, lanes_of(w, s->in[0]), (size_t)s->in[0].bytes * LANES);
    if (s->in[0].bytes == 8) {
        EACH_LANE(i)
            ((lane_u32 *)lo.lanes)[i] = (uint32_t)((lane_u64 *)x.lanes)[i];
        EACH_LANE(i)
            ((lane_u32 *)hi.lanes)[i] = (uint32_t)(((lane_u64 *)x.lanes)[i] >> 32);
    } else if (s->inst->type == CKL_F32) {
        EACH_LANE(i)
            ((lane_f32 *)lo.lanes)[i] = widen(s->inst->from, ((lane_u32 *)x.lanes)[i]);
        EACH_LANE(i)
            ((lane_f32 *)hi.lanes)[i] = widen(s->inst->from, ((lane_u32 *)x.lanes)[i] >> 16);
    } else {
        EACH_LANE(i)
            ((lane_u16 *)lo.lanes)[i] = (uint16_t)((lane_u32 *)x.lanes)[i];
        EACH_LANE(i)
            ((lane_u16 *)hi.lanes)[i] = (uint16_t)(((lane_u32 *)x.lanes)[i] >> 16);
    }
    lanes_blend(lanes_of(w, s->out[0]), lo.lanes, w->active, s->out[0].bytes);
    lanes_blend(lanes_of(w, s->out[1]), hi.lanes, w->active, s->out[1].bytes);
    return ADVANCE;
}

static uint32_t special(const warp *w, ir_sreg_kind which)
{
    const cta *c = w->cta;
    switch (which) {
    case IR_WARP:
        return (uint32_t)w->index;
    case IR_CTA_X:
    case IR_CTA_Y:
    case IR_CTA_Z:
        return (uint32_t)c->at[which - IR_CTA_X];
    case IR_GRID_X:
    case IR_GRID_Y:
    case IR_GRID_Z:
        return (uint32_t)w->cluster->launch->grid[which - IR_GRID_X];
    case IR_CLUSTER_RANK:
        return (uint32_t)c->rank;
    case IR_SMEM_BASE:
        return SHARED_BASE;
    default: // TID_X and LANE, to which the lane is added
        return which == IR_TID_X ? (uint32_t)w->index * LANES : 0;
    }
}

outcome run_sreg(warp *w, const step *s)
{
    result aside;
    ir_sreg_kind which = (ir_sreg_kind)s->inst->mode;
    uint32_t value = special(w, which), per_lane = which == IR_TID_X || which == IR_LANE;
    lane_u32 *d = result_begin(w, s->out[0], &aside);
    EACH_LANE(i)
        d[i] = value + per_lane * (uint32_t)i;
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

outcome run_param(warp *w, const step *s)
{
    result aside;
    unsigned char *d = result_begin(w, s->out[0], &aside);
    size_t bytes = (size_t)s->out[0].bytes;
    for (size_t i = 0; i < LANES; i++)
        memcpy(d + i * bytes, &w->cluster->launch->scalar[s->inst->n], bytes);
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}
