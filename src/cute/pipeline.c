/* pipeline.c - rings of stages: two mbarriers of 8 bytes per stage. */
#include "cute/pipeline.h"

pipeline make_pipeline(const char *name, int stages, int full_arrivals, int empty_arrivals)
{
    int64_t full = ir_smem_alloc(name, 2 * (int64_t)stages * IR_MBARRIER_BYTES, IR_MBARRIER_BYTES);
    int64_t empty = full + (int64_t)stages * IR_MBARRIER_BYTES;
    ir_add_ring(name, full, empty, stages);
    return (pipeline){ stages, full_arrivals, empty_arrivals, full, empty };
}

void pipeline_init(const pipeline *p)
{
    val base = ir_smem_address(0);
    for (int s = 0; s < p->stages; s++) {
        ir_mbarrier_init(base, p->full + s * IR_MBARRIER_BYTES, p->full_arrivals);
        ir_mbarrier_init(base, p->empty + s * IR_MBARRIER_BYTES, p->empty_arrivals);
    }
}

static pipeline_state state_at(const pipeline *p, int parity)
{
    val zero = ir_u32(0);
    return (pipeline_state){ cute_variable(IR_U32, zero), cute_variable(IR_U32, ir_u32(parity)), p->stages };
}

pipeline_state producer_state(const pipeline *p)
{
    return state_at(p, 1);
}

pipeline_state consumer_state(const pipeline *p)
{
    return state_at(p, 0);
}

void pipeline_advance(pipeline_state *s)
{
    val next = ir_binary(IR_ADD, s->stage, ir_u32(1));
    val wraps = ir_compare(IR_EQ, next, ir_u32(s->stages));
    ir_assign(s->stage, ir_select(wraps, ir_u32(0), next));
    ir_assign(s->parity, ir_select(wraps, ir_binary(IR_XOR, s->parity, ir_u32(1)), s->parity));
}

void pipeline_advance_by(pipeline_state *s, val steps)
{
    val stages = ir_u32(s->stages);
    val position = ir_binary(IR_ADD, s->stage, steps);
    val rounds = ir_binary(IR_DIV, position, stages);
    ir_assign(s->stage, ir_binary(IR_REM, position, stages));
    ir_assign(s->parity, ir_binary(IR_XOR, s->parity, ir_binary(IR_AND, rounds, ir_u32(1))));
}

/* The shared address of the barrier of a stage, from `first` on. */
static val barrier_of(val first, val stage)
{
    return ir_binary(IR_ADD, first, ir_binary(IR_MUL, stage, ir_u32(IR_MBARRIER_BYTES)));
}

void pipeline_wait_empty(const pipeline *p, const pipeline_state *s)
{
    ir_mbarrier_wait(barrier_of(ir_smem_address(p->empty), s->stage), 0, s->parity);
}

void pipeline_wait_full(const pipeline *p, const pipeline_state *s)
{
    ir_mbarrier_wait(pipeline_full_barrier(p, s), 0, s->parity);
}

void pipeline_expect(const pipeline *p, const pipeline_state *s, val bytes)
{
    ir_mbarrier_expect(pipeline_full_barrier(p, s), 0, bytes);
}

void pipeline_arrive(const pipeline *p, const pipeline_state *s)
{
    ir_mbarrier_arrive(IR_SHARED, pipeline_full_barrier(p, s), 0);
}

val pipeline_full_barrier(const pipeline *p, const pipeline_state *s)
{
    return barrier_of(ir_smem_address(p->full), s->stage);
}

void pipeline_release(const pipeline *p, val stage)
{
    ir_mbarrier_arrive(IR_SHARED, barrier_of(ir_smem_address(p->empty), stage), 0);
}

void pipeline_release_at(const pipeline *p, val stage, val empty_of_peer)
{
    (void)p;
    ir_mbarrier_arrive(IR_SHARED_CLUSTER, barrier_of(empty_of_peer, stage), 0);
}

val pipeline_peer(const pipeline *p, val rank)
{
    return ir_mapa(ir_smem_address(p->empty), rank);
}
