/*
 * gemm_sm90_split.c - K split over the CTAs of a cluster, which add their partials through distributed shared memory.
 *
 * The columns of a tile are cut into slices, one for each CTA that finishes some. A thread sends its partials of a
 * slice to the same thread of the CTA that finishes it, by asynchronous stores that complete on a barrier there. That
 * thread adds them to its own, those of the next rank first, so every run gives the same bits. Each consumer has its
 * own memory and barriers.
 *
 *   partials arrived   1 arrival, and the bytes of all other CTAs; its consumer waits
 *   partials free      an arrival of each CTA that finishes, when it has read what came: then the next tile's may be
 *                      sent
 */
#include "operators/gemm/gemm_sm90.h"

static val barrier_of(const consumer_role *c, int64_t barriers)
{
    return add(smem_address(barriers), mul(c->index, imm(8)));
}

/* The CTA that has slice `number` of the K of this CTA's tile. */
static val cta_of(const sm90_kernel *k, val number)
{
    int sharers = k->size.sharers;
    return sharers == 1 ? number : add(mul(number, imm(sharers)), rem(cluster_rank(), imm(sharers)));
}

static val finishes(const sm90_kernel *k)
{
    return lt(k->rank_k, imm(k->size.finishers));
}

void gemm_sm90_parts_init(const sm90_kernel *k)
{
    for (int b = 0; k->cfg->split > 1 && b < k->cfg->consumers; b++) {
        mbarrier_init(smem_address(k->partials_arrived + 8 * b), 1);
        mbarrier_init(smem_address(k->partials_free + 8 * b), k->size.finishers);
    }
}

/*
 * Sends the partials of slice s to the CTA that finishes it, where they lie by how many ranks this CTA comes behind it.
 */
static void send_slice(const sm90_kernel *k, const consumer_role *c, int s)
{
    const int split = k->cfg->split;
    val behind = rem(add(k->rank_k, imm(split - s)), imm(split));                    // 1..split-1
    tensor sums = accumulator_columns(c->acc, s * k->size.columns, k->size.columns); // (MMA,MMA_M,1)
    tensor sPartial = slice(c->sPartials, _, c->tid, _, sub(behind, imm(1)));        // (2,PAIRS)
    val cta = cta_of(k, imm_as(U32, s)), to = mapa(tensor_address(sPartial, coord(0, 0)), cta);
    val arrived = mapa(barrier_of(c, k->partials_arrived), cta);
    for (int i = 0; i < static_size(sums.layout) && describing(); i += 2) {
        val pair = pack(U64, bitcast(U32, at(sums, i)), bitcast(U32, at(sums, i + 1)));
        store_async(to, index_at(sPartial.layout, i) * 4, arrived, pair);
    }
}

/* This CTA's own partials of its slice, in the accumulators of the first one. */
static tensor own_partials(const sm90_kernel *k, const consumer_role *c)
{
    tensor sums = accumulator_columns(c->acc, 0, k->size.columns); // (MMA,MMA_M,1)
    for (int s = 1; s < k->size.finishers; s++) {
        tensor own = accumulator_columns(c->acc, s * k->size.columns, k->size.columns); // (MMA,MMA_M,1)
        val mine = eq(k->rank_k, imm(s));
        for (int i = 0; i < static_size(sums.layout); i++)
            set(sums, i, select(mine, at(own, i), at(sums, i)));
    }
    return sums;
}

/* Adds the partials of the other CTAs to this one's. */
static void add_partials(const sm90_kernel *k, const consumer_role *c, tensor sums)
{
    UNROLL(partial, k->cfg->split - 1) {
        tensor sPartial = slice(c->sPartials, _, c->tid, _, partial); // (2,PAIRS)
        tensor rPartial = fragment_like(sPartial, F32);               // (2,PAIRS)
        copy(sPartial, rPartial, 8);
        for (int i = 0; i < static_size(sums.layout); i++)
            set(sums, i, add(at(sums, i), at(rPartial, i)));
    }
}

void gemm_sm90_add_split(const sm90_kernel *k, const consumer_role *c)
{
    val arrived = barrier_of(c, k->partials_arrived), free_again = barrier_of(c, k->partials_free);
    IF(logical_and(c->first_thread, finishes(k)))
        mbarrier_expect(arrived, imm((int)((k->cfg->split - 1) * k->size.partial_bytes)));
    mbarrier_wait(free_again, bit_xor(c->partials_parity, imm(1)));
    for (int s = 0; s < k->size.finishers; s++)
        IF(ne(k->rank_k, imm(s)))
            send_slice(k, c, s);
    IF(finishes(k)) {
        tensor sums = own_partials(k, c); // (MMA,MMA_M,1)
        mbarrier_wait(arrived, c->partials_parity);
        add_partials(k, c, sums);
        named_sync(c->barrier, WARPGROUP);
        IF(lt(c->tid, imm(k->cfg->split)))
            mbarrier_arrive_at(mapa(free_again, cta_of(k, c->tid)));
    }
    assign(c->partials_parity, bit_xor(c->partials_parity, imm(1)));
}

/* Peers signal this CTA until the last partials that it sent have been read. */
void gemm_sm90_parts_leave(const sm90_kernel *k, const consumer_role *c)
{
    if (k->cfg->split > 1)
        mbarrier_wait(barrier_of(c, k->partials_free), bit_xor(c->partials_parity, imm(1)));
}
