/* mailbox.c - value i of sender s lies in slot i * senders + s: neighbouring lanes read neighbouring words. */
#include "cute/mailbox.h"

#include "cute/tensor.h"

enum { TURNS = 2, VALUE_BYTES = 4, MBARRIER_BYTES = 8 };

static int senders(const mailbox *m)
{
    return m->threads / 32 * m->cluster;
}

static int64_t turn_bytes(const mailbox *m)
{
    return (int64_t)m->count * senders(m) * VALUE_BYTES;
}

int64_t mailbox_bytes(int threads, int cluster, int count)
{
    mailbox m = { .threads = threads, .cluster = cluster, .count = count };
    int64_t slots = cluster == 1 ? cta_reduce_bytes(threads) : TURNS * turn_bytes(&m);
    return TURNS * MBARRIER_BYTES + slots;
}

mailbox make_mailbox(const char *name, int threads, int cluster, int count)
{
    mailbox m = { .threads = threads, .cluster = cluster, .count = count };
    int64_t bytes = mailbox_bytes(threads, cluster, count);
    m.barriers = ir_smem_alloc(name, bytes, 16);
    m.slots = m.barriers + TURNS * (int64_t)MBARRIER_BYTES;
    m.turn = cute_variable(IR_U32, ir_int(IR_U32, 0));
    return m;
}

void mailbox_init(const mailbox *m)
{
    for (int t = 0; t < TURNS && m->cluster > 1; t++)
        ir_mbarrier_init(ir_smem_address(m->barriers), t * (int64_t)MBARRIER_BYTES, 1);
}

static val u32(int64_t i)
{
    return ir_int(IR_U32, i);
}

/* Lane l of every warp sends to CTA l. */
static void send(const mailbox *m, const reduction *r, val slots, val barrier, const val *values)
{
    val lane = ir_sreg(IR_LANE), rank = m->cluster > 1 ? ir_sreg(IR_CLUSTER_RANK) : u32(0);
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_TID_X), u32(0)));
    ir_mbarrier_expect(barrier, 0, u32((int64_t)r->count * senders(m) * VALUE_BYTES));
    ir_end_if();
    ir_if(ir_compare(IR_LT, lane, u32(m->cluster)));
    val sender = ir_binary(IR_ADD, ir_binary(IR_MUL, rank, u32(m->threads / 32)), ir_sreg(IR_WARP));
    val slot = ir_mapa(ir_binary(IR_ADD, slots, ir_binary(IR_MUL, sender, u32(VALUE_BYTES))), lane);
    val guard = ir_mapa(barrier, lane);
    for (int i = 0; i < r->count; i++)
        ir_store_async(slot, (int64_t)i * senders(m) * VALUE_BYTES, guard, values[i]);
    ir_end_if();
}

/* The values of sender `lane` + first. */
static void read(const mailbox *m, const reduction *r, val slot, int first, val *values)
{
    for (int i = 0; i < r->count; i++)
        ir_load(IR_SHARED, IR_CACHE_DEFAULT, values[i].type, 1, slot, (i * senders(m) + first) * VALUE_BYTES,
                &values[i]);
}

static void combine_received(const mailbox *m, const reduction *r, val slots, val *values)
{
    int width = (int)min_i64(senders(m), 32);
    val lane = ir_binary(IR_REM, ir_sreg(IR_LANE), u32(width)), other[REDUCE_VALUES_MAX];
    val slot = ir_binary(IR_ADD, slots, ir_binary(IR_MUL, lane, u32(VALUE_BYTES)));
    read(m, r, slot, 0, values);
    for (int first = width; first < senders(m); first += width) {
        for (int i = 0; i < r->count; i++)
            other[i] = ir_reg(values[i].type);
        read(m, r, slot, first, other);
        r->combine(values, other, r->user);
    }
    warp_reduce(r, width, values);
}

void mailbox_reduce(const mailbox *m, const reduction *r, val *values)
{
    for (int i = 0; i < r->count; i++)
        if (r->count > m->count || ir_type_bytes(values[i].type) != VALUE_BYTES)
            ir_fail(CKL_INTERNAL, "mailbox_reduce: %d values are more than %d, or not of 32 bits", r->count, m->count);
    if (ir_failed())
        return;
    if (m->cluster == 1) { // addresses of a cluster exist in clusters only
        cta_reduce(r, m->threads, m->slots, values);
        return;
    }
    warp_reduce(r, 32, values);
    val odd = ir_binary(IR_AND, m->turn, u32(1));
    val slots = ir_binary(IR_ADD, ir_smem_address(m->slots), ir_binary(IR_MUL, odd, u32(turn_bytes(m))));
    val barrier = ir_binary(IR_ADD, ir_smem_address(m->barriers), ir_binary(IR_MUL, odd, u32(MBARRIER_BYTES)));
    val parity = ir_binary(IR_AND, ir_binary(IR_SHR, m->turn, u32(1)), u32(1));
    send(m, r, slots, barrier, values);
    ir_mbarrier_wait(barrier, 0, parity);
    combine_received(m, r, slots, values);
    ir_assign(m->turn, ir_binary(IR_ADD, m->turn, u32(1)));
}
