/*
 * conv_halves.c - the two CTAs of a cluster exchange halves of their sums through distributed shared memory.
 *
 * A thread sends its sums of the other CTA's columns to the same thread there, by asynchronous stores that complete on
 * a barrier, and adds what it receives to its own. A sum of two is the same in either order, so every run gives the
 * same bits.
 *
 *   arrived   1 arrival and the bytes from the other CTA; the consumer waits
 *   taken     1 arrival by the other CTA, when it has read what it received: then the next tile's may be sent
 */
#include "operators/conv/conv_halves.h"

#include "cute/kernel.h"

enum { WARPGROUP = 128, ROWS = 64, BARRIERS = 2 };

/* Sums of a consumer, f32. */
static int64_t bytes_of(int columns)
{
    return (int64_t)ROWS * columns * 4;
}

int64_t conv_halves_bytes(int consumers, int columns)
{
    return consumers * (bytes_of(columns) + 8 * BARRIERS);
}

conv_halves conv_halves_memory(int consumers, int columns)
{
    const int pairs = ROWS * columns / WARPGROUP / 2, all = 2 * WARPGROUP * pairs;
    layout sums = make_layout(shape(2, WARPGROUP, pairs, consumers), stride(1, 2, 2 * WARPGROUP, all));
    return (conv_halves){ .consumers = consumers,
                          .columns = columns,
                          .sSums = smem_tensor("other half", F32, sums, 16),
                          .arrived = smem_alloc("half arrived", 8 * (int64_t)consumers, 8),
                          .taken = smem_alloc("half taken", 8 * (int64_t)consumers, 8) };
}

void conv_halves_init(const conv_halves *h)
{
    for (int b = 0; b < h->consumers; b++) {
        mbarrier_init(smem_address(h->arrived + 8 * b), 1);
        mbarrier_init(smem_address(h->taken + 8 * b), 1);
    }
}

static val barrier_of(const conv_halves_role *c, int64_t barriers)
{
    return add(smem_address(barriers), mul(c->index, imm(8)));
}

static val other_cta(void)
{
    return bit_xor(cluster_rank(), imm(1));
}

void conv_halves_sum(const conv_halves *h, const conv_halves_role *c, tensor acc)
{
    tensor low = accumulator_columns(acc, 0, h->columns), high = accumulator_columns(acc, h->columns, h->columns);
    tensor sSums = slice(h->sSums, _, c->tid, _, c->index); // (2,PAIRS)
    const val arrived = barrier_of(c, h->arrived), taken = barrier_of(c, h->taken);
    const val is_first = eq(cluster_rank(), imm(0)), leader = eq(c->tid, imm(0));
    const val to = mapa(tensor_address(sSums, coord(0, 0)), other_cta()), signal = mapa(arrived, other_cta());
    IF(leader)
        mbarrier_expect(arrived, imm((int)bytes_of(h->columns)));
    mbarrier_wait(taken, bit_xor(c->parity, imm(1)));
    for (int i = 0; i < static_size(low.layout) && describing(); i += 2) {
        const val x = select(is_first, at(high, i), at(low, i)), y = select(is_first, at(high, i + 1), at(low, i + 1));
        store_async(to, index_at(sSums.layout, i) * 4, signal, pack(U64, bitcast(U32, x), bitcast(U32, y)));
    }
    mbarrier_wait(arrived, c->parity);
    for (int i = 0; i < static_size(low.layout) && describing(); i += 2) {
        tensor rPair = fragment(F32, compact(leaf(2)));
        copy(slice(sSums, _, imm(i / 2)), rPair, 8);
        for (int e = 0; e < 2; e++)
            set(low, i + e, add(select(is_first, at(low, i + e), at(high, i + e)), at(rPair, e)));
    }
    named_sync(c->barrier, WARPGROUP);
    IF(leader)
        mbarrier_arrive_at(mapa(taken, other_cta()));
    assign(c->parity, bit_xor(c->parity, imm(1)));
}

void conv_halves_leave(const conv_halves *h, const conv_halves_role *c)
{
    mbarrier_wait(barrier_of(c, h->taken), bit_xor(c->parity, imm(1)));
}
