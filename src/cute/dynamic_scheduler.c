/* dynamic_scheduler.c - a slot is a number of 4 bytes and an mbarrier that completes when the number has arrived. */
#include "cute/dynamic_scheduler.h"

enum { NUMBER_BYTES = 4 };

/* NOTE: ptxas divides by 6 with a reciprocal, some 250 cycles in front of each row. */
static int slots_for(int most)
{
    return (int)power_of_two_ceil(most);
}

int64_t scheduler_bytes(int most)
{
    return slots_for(most) * (int64_t)(NUMBER_BYTES + IR_MBARRIER_BYTES);
}

dynamic_scheduler make_dynamic_scheduler(const char *name, val counter, val count, val clusters, int cluster, int most)
{
    const int slots = slots_for(most);
    int64_t barriers = ir_smem_alloc(name, scheduler_bytes(most), IR_MBARRIER_BYTES);
    return (dynamic_scheduler){ counter, count, clusters, cluster, slots, barriers + slots * (int64_t)IR_MBARRIER_BYTES,
                                barriers };
}

void scheduler_init(const dynamic_scheduler *t)
{
    for (int s = 0; s < t->slots; s++)
        ir_mbarrier_init(ir_smem_address(t->barriers), s * (int64_t)IR_MBARRIER_BYTES, 1);
}

static val slot_of(const dynamic_scheduler *t, val fetch, int64_t first, int bytes)
{
    return ir_fma(ir_binary(IR_REM, fetch, ir_u32(t->slots)), ir_u32(bytes), ir_smem_address(first));
}

static val number_of(const dynamic_scheduler *t, val fetch)
{
    return slot_of(t, fetch, t->numbers, NUMBER_BYTES);
}

static val barrier_of(const dynamic_scheduler *t, val fetch)
{
    return slot_of(t, fetch, t->barriers, IR_MBARRIER_BYTES);
}

/*
 * Every cluster takes one number too many. The largest of these is known in advance; who gets it resets the counter to
 * 0.
 */
static val take(const dynamic_scheduler *t)
{
    val number = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, t->counter, 0, ir_u32(1)), zero = ir_u32(0);
    val last = ir_binary(IR_SUB, ir_binary(IR_ADD, t->count, t->clusters), ir_u32(1));
    ir_if(ir_compare(IR_EQ, number, last));
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, t->counter, 0, &zero);
    ir_end_if();
    return number;
}

void scheduler_fetch(const dynamic_scheduler *t, val fetch)
{
    val slot = number_of(t, fetch), barrier = barrier_of(t, fetch);
    if (t->cluster == 1) {
        val number = take(t);
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, slot, 0, &number);
        ir_mbarrier_arrive(IR_SHARED, barrier, 0);
        return;
    }
    ir_mbarrier_expect(barrier, 0, ir_u32(NUMBER_BYTES));
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_CLUSTER_RANK), ir_u32(0)));
    val number = take(t);
    for (int cta = 0; cta < t->cluster; cta++)
        ir_store_async(ir_mapa(slot, ir_u32(cta)), 0, ir_mapa(barrier, ir_u32(cta)), number);
    ir_end_if();
}

val scheduler_next(const dynamic_scheduler *t, val fetch)
{
    val number = ir_reg(IR_U32);
    ir_mbarrier_wait(barrier_of(t, fetch), 0, ir_binary(IR_AND, ir_binary(IR_DIV, fetch, ir_u32(t->slots)), ir_u32(1)));
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, number_of(t, fetch), 0, &number);
    return number;
}
