/* unit_emulator_cluster.c - the checker: faults between the CTAs of a cluster. */
#include "unit_emulator_faults.h"

FAULT(leaves_before_signal, 32, 2, "access to an exited CTA", "CTA rank 0")
{
    val bar = barrier("bar"), rank = ir_sreg(IR_CLUSTER_RANK);
    IF(ir_elect())
        init_barrier(bar);
    cluster_sync();
    IF(ir_compare(IR_EQ, rank, u32(1))) {
        IF(ir_elect())
            BLAMED(ir_mbarrier_arrive(IR_SHARED_CLUSTER, ir_mapa(bar, u32(0)), 0));
    }
    ELSE
    {
        if (!planted)
            ir_mbarrier_wait(bar, 0, u32(0));
    }
}

FAULT(signals_unfenced, 32, 2, "missing fence_mbarrier_init", "another CTA uses the mbarrier bar")
{
    val bar = barrier("bar"), peer = ir_binary(IR_XOR, ir_sreg(IR_CLUSTER_RANK), u32(1));
    IF(ir_elect()) {
        ir_mbarrier_init(bar, 0, 1);
        if (!planted)
            ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    }
    cluster_sync();
    IF(ir_elect())
        BLAMED(ir_mbarrier_arrive(IR_SHARED_CLUSTER, ir_mapa(bar, peer), 0));
    ir_mbarrier_wait(bar, 0, u32(0));
    cluster_sync();
}

FAULT(arrives_twice, 32, 2, "misused barrier", "cluster_arrive for the second time without cluster_wait")
{
    ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    BLAME;
    if (planted)
        ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    HERE;
    ir_plain(IR_CLUSTER_WAIT, 0, 0);
}

FAULT(waits_without_arrival, 32, 2, "misused barrier", "cluster_wait without cluster_arrive")
{
    if (!planted)
        ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    BLAMED(ir_plain(IR_CLUSTER_WAIT, 0, 0));
}

static void reads_exited(int reader)
{
    val x = tile("x", 128);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    cluster_sync();
    IF(ir_compare(IR_EQ, ir_sreg(IR_CLUSTER_RANK), u32(reader)))
        BLAMED(test_load_value(IR_SHARED_CLUSTER, IR_U32, add(ir_mapa(x, u32(1 - reader)), mul(tid(), 4)), 0));
    if (!planted)
        cluster_sync();
}

FAULT_CALL(reads_exited_peer, reads_exited(1), 32, 2, "access to an exited CTA", "CTA rank 0")
FAULT_CALL(first_reads_exited_peer, reads_exited(0), 32, 2, "access to an exited CTA", "CTA rank 1")

FAULT(reads_peer_too_early, 32, 2, "may not have started")
{
    val x = tile("x", 128);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    if (!planted)
        cluster_sync();
    BLAME;
    val peer = ir_mapa(x, ir_binary(IR_XOR, ir_sreg(IR_CLUSTER_RANK), u32(1)));
    test_load_value(IR_SHARED_CLUSTER, IR_U32, add(peer, mul(tid(), 4)), 0);
    HERE;
    cluster_sync();
}

/* Each CTA sends the other one a value; planted, the value is read before its mbarrier was waited for. */
FAULT(value_read_before_arrival, 32, 2, "read of ")
{
    val bar = barrier("bar"), slot = tile("slot", 4);
    val peer = ir_binary(IR_XOR, ir_sreg(IR_CLUSTER_RANK), u32(1));
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(4));
    }
    cluster_sync();
    IF(ir_elect())
        ir_store_async(ir_mapa(slot, peer), 0, ir_mapa(bar, peer), u32(7));
    if (!planted)
        ir_mbarrier_wait(bar, 0, u32(0));
    BLAMED(test_load_value(IR_SHARED, IR_U32, slot, 0));
    ir_mbarrier_wait(bar, 0, u32(0));
    cluster_sync();
}

/* The mbarrier of a value must be in the CTA that receives it. */
FAULT(value_guarded_elsewhere, 32, 2, "misused st_async", "its mbarrier is in rank")
{
    val bar = barrier("bar"), slot = tile("slot", 4);
    val rank = ir_sreg(IR_CLUSTER_RANK), peer = ir_binary(IR_XOR, rank, u32(1));
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(4));
    }
    cluster_sync();
    IF(ir_elect())
        BLAMED(ir_store_async(ir_mapa(slot, peer), 0, ir_mapa(bar, planted ? rank : peer), u32(7)));
    ir_mbarrier_wait(bar, 0, u32(0));
    cluster_sync();
}

RUN_TESTS(NULL, NULL)
