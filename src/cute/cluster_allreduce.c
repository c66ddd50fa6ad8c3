/* cluster_allreduce.c - word i * senders + s of a buffer is value i of warp s: neighbouring lanes read neighbours. */
#include "cute/cluster_allreduce.h"

#include "cute/tensor.h"

enum { BUFFERS = 4, VALUE_BYTES = 4 };

static int senders(const cluster_allreduce *m)
{
    return m->threads / 32 * m->cluster;
}

static int64_t buffer_bytes(const cluster_allreduce *m)
{
    return (int64_t)m->count * senders(m) * VALUE_BYTES;
}

int64_t cluster_allreduce_bytes(int threads, int cluster, int count)
{
    cluster_allreduce m = { .threads = threads, .cluster = cluster, .count = count };
    return BUFFERS * (IR_MBARRIER_BYTES + buffer_bytes(&m));
}

cluster_allreduce make_cluster_allreduce(const char *name, int threads, int cluster, int count)
{
    cluster_allreduce m = { .threads = threads, .cluster = cluster, .count = count };
    m.barriers = ir_smem_alloc(name, cluster_allreduce_bytes(threads, cluster, count), 16);
    m.buffers = m.barriers + BUFFERS * (int64_t)IR_MBARRIER_BYTES;
    m.begun = cute_variable(IR_U32, ir_u32(0));
    m.ended = cute_variable(IR_U32, ir_u32(0));
    return m;
}

/*
 * A phase of a barrier completes when one thread has announced the bytes of all senders and these bytes have arrived;
 * in a single CTA, when all warps have arrived.
 */
void cluster_allreduce_init(const cluster_allreduce *m)
{
    for (int t = 0; t < BUFFERS; t++)
        ir_mbarrier_init(ir_smem_address(m->barriers), t * (int64_t)IR_MBARRIER_BYTES, m->cluster > 1 ? 1 : senders(m));
}

/* The buffer of a reduction and its barrier. */
typedef struct buffer {
    val address, barrier, parity;
} buffer;

static buffer buffer_of(const cluster_allreduce *m, val number)
{
    val i = ir_binary(IR_AND, number, ir_u32(BUFFERS - 1));
    return (buffer){ ir_binary(IR_ADD, ir_smem_address(m->buffers), ir_binary(IR_MUL, i, ir_u32(buffer_bytes(m)))),
                     ir_binary(IR_ADD, ir_smem_address(m->barriers), ir_binary(IR_MUL, i, ir_u32(IR_MBARRIER_BYTES))),
                     ir_binary(IR_AND, ir_binary(IR_DIV, number, ir_u32(BUFFERS)), ir_u32(1)) };
}

/* Lane l of every warp sends to CTA l. */
static void send_to_cluster(const cluster_allreduce *m, const reduction *r, const buffer *to, const val *values)
{
    val lane = ir_sreg(IR_LANE);
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_TID_X), ir_u32(0)));
    ir_mbarrier_expect(to->barrier, 0, ir_u32((int64_t)r->count * senders(m) * VALUE_BYTES));
    ir_end_if();
    ir_if(ir_compare(IR_LT, lane, ir_u32(m->cluster)));
    val sender = ir_fma(ir_sreg(IR_CLUSTER_RANK), ir_u32(m->threads / 32), ir_sreg(IR_WARP));
    val slot = ir_mapa(ir_fma(sender, ir_u32(VALUE_BYTES), to->address), lane);
    val guard = ir_mapa(to->barrier, lane);
    for (int i = 0; i < r->count; i++)
        ir_store_async(slot, (int64_t)i * senders(m) * VALUE_BYTES, guard, values[i]);
    ir_end_if();
}

/* NOTE: outside a cluster st.async is an illegal instruction. */
static void send_to_cta(const cluster_allreduce *m, const reduction *r, const buffer *to, const val *values)
{
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_LANE), ir_u32(0)));
    val slot = ir_fma(ir_sreg(IR_WARP), ir_u32(VALUE_BYTES), to->address);
    for (int i = 0; i < r->count; i++)
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, values[i].type, 1, slot, (int64_t)i * senders(m) * VALUE_BYTES,
                 &values[i]);
    ir_mbarrier_arrive(IR_SHARED, to->barrier, 0);
    ir_end_if();
}

void cluster_allreduce_begin(const cluster_allreduce *m, const reduction *r, val *values)
{
    for (int i = 0; i < r->count; i++)
        if (r->count > m->count || ir_type_bytes(values[i].type) != VALUE_BYTES)
            ir_fail("cluster_allreduce_begin: %d values are more than %d, or not of 32 bits", r->count, m->count);
    if (ir_failed())
        return;
    warp_reduce(r, 32, values);
    const buffer to = buffer_of(m, m->begun);
    if (m->cluster > 1)
        send_to_cluster(m, r, &to, values);
    else
        send_to_cta(m, r, &to, values);
    ir_assign(m->begun, ir_binary(IR_ADD, m->begun, ir_u32(1)));
}

/* The values of warp number lane + first. */
static void read(const cluster_allreduce *m, const reduction *r, val slot, int first, val *values)
{
    for (int i = 0; i < r->count; i++)
        ir_load(IR_SHARED, IR_CACHE_DEFAULT, values[i].type, 1, slot, (i * senders(m) + first) * VALUE_BYTES,
                &values[i]);
}

void cluster_allreduce_end(const cluster_allreduce *m, const reduction *r, val *values)
{
    if (ir_failed())
        return;
    const buffer from = buffer_of(m, m->ended);
    const int width = (int)power_of_two_floor(min_i64(senders(m), 32));
    val lane = ir_binary(IR_REM, ir_sreg(IR_LANE), ir_u32(width)), other[REDUCE_VALUES_MAX];
    val slot = ir_fma(lane, ir_u32(VALUE_BYTES), from.address);
    ir_mbarrier_wait(from.barrier, 0, from.parity);
    read(m, r, slot, 0, values);
    for (int first = width; first < senders(m); first += width) {
        const bool some = senders(m) - first < width; // lanes have another one
        for (int i = 0; i < r->count; i++)
            other[i] = ir_reg(values[i].type);
        if (some)
            ir_if(ir_compare(IR_LT, lane, ir_u32(senders(m) - first)));
        read(m, r, slot, first, other);
        r->combine(values, other, r->user);
        if (some)
            ir_end_if();
    }
    warp_reduce(r, width, values);
    ir_assign(m->ended, ir_binary(IR_ADD, m->ended, ir_u32(1)));
}
