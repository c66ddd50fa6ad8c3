/*
 * reduce_last_cta.c - how the CTAs of a row send their states to the one of them that was the last to start.
 *
 * Fences and a count of those who are done would cost more than all the rest of a small reduction: three round trips to
 * L2, one after the other. Here who finishes the row is settled while the elements are on their way, and a state needs
 * no order: every 32 bits of it travel in one 64-bit exchange together with a mark, and whoever finds the mark has the
 * bits. Since all other CTAs have started by then, nobody waits for one that cannot run.
 *
 * That is for a state a CTA. A CTA of columns has hundreds of them: plain stores, two fences and a count at the end are
 * faster then (bench/notes/reduce.md).
 */
#include "operators/reduce/reduce_kernel.h"

enum { SLOT_BYTES = 8, WORDS_MAX = 2 * REDUCE_VALUES_MAX };

static int words_of(ir_type type)
{
    return ir_type_bytes(type) / 4;
}

static int words_of_state(const reducer *r)
{
    int words = 0;
    for (int i = 0; i < r->count; i++)
        words += words_of(r->types[i]);
    return words;
}

int reduce_state_words(const reduce_kind *kind, bool compensated)
{
    reducer r = reducer_of(kind, compensated);
    return words_of_state(&r);
}

reduce_slots reduce_slots_of(const reducer *r, val states, val row, int ctas)
{
    int64_t bytes = (int64_t)SLOT_BYTES * words_of_state(r) * ctas;
    return (reduce_slots){ .r = r, .address = add(states, convert(U64, mul(row, imm64(bytes)))), .ctas = ctas };
}

/* Slot of a word, (CTAS) of each: threads that receive from neighbouring CTAs read neighbouring slots. */
static val slot_of(const reduce_slots *s, int word, val rank)
{
    val first = add(s->address, convert(U64, mul(rank, imm(SLOT_BYTES))));
    return add(first, imm_as(U64, (int64_t)word * s->ctas * SLOT_BYTES));
}

static void split(const reducer *r, const val *state, val *words)
{
    for (int i = 0; i < r->count; i++) {
        if (words_of(r->types[i]) == 1)
            *words++ = bitcast(U32, state[i]);
        else {
            unpack(bitcast(U64, state[i]), U32, &words[0], &words[1]);
            words += 2;
        }
    }
}

static void join(const reducer *r, const val *words, val *state)
{
    for (int i = 0; i < r->count; i++) {
        bool single = words_of(r->types[i]) == 1;
        state[i] = bitcast(r->types[i], single ? words[0] : pack(U64, words[0], words[1]));
        words += single ? 1 : 2;
    }
}

val reduce_arrive(val counter)
{
    val before = variable(I32, imm(0));
    IF(eq(thread(), imm(0)))
        assign(before, atomic_add(counter, imm(1)));
    return before;
}

val reduce_is_last(val counter, val arrival, int ctas)
{
    tensor gCounter = gmem_tensor(counter, I32, compact(leaf(1))); // (1)
    val is_last = logical_and(eq(thread(), imm(0)), eq(arrival, imm(ctas - 1)));
    IF(is_last)
        set(gCounter, 0, imm(0));
    return select(is_last, imm(1), imm(0));
}

val reduce_broadcast(val known)
{
    tensor sKnown = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    IF(eq(thread(), imm(0)))
        set(sKnown, 0, known);
    cta_sync();
    return ne(at(sKnown, 0), imm(0));
}

void reduce_send(const reduce_slots *s, val rank, const val *state)
{
    val word[WORDS_MAX];
    split(s->r, state, word);
    for (int w = 0; w < words_of_state(s->r); w++) {
        val marked = pack(U64, word[w], imm_as(U32, 1));
        atomic_exchange(slot_of(s, w, rank), marked);
    }
}

/* The states that one thread receives at a time: all their words are asked for before the first is waited for. */
typedef struct incoming {
    int count, words; // states, and words of each
    val exists[REDUCE_RECEIVE_MAX];
    val word[REDUCE_RECEIVE_MAX][WORDS_MAX];
    val missing; // words
} incoming;

static incoming expect(const reduce_slots *s, const val *ranks, int count)
{
    incoming d = { .count = count, .words = words_of_state(s->r), .missing = variable(I32, imm(0)) };
    for (int u = 0; u < count; u++) {
        d.exists[u] = lt(ranks[u], imm(s->ctas));
        assign(d.missing, add(d.missing, select(d.exists[u], imm(d.words), imm(0))));
        for (int w = 0; w < d.words; w++)
            d.word[u][w] = variable(U32, imm(0));
    }
    return d;
}

/* Empties the slots. One that was emptied before gives zeros, which change nothing. */
static void ask(const reduce_slots *s, const val *ranks, incoming *d)
{
    val got[REDUCE_RECEIVE_MAX][WORDS_MAX], bits, mark, none = imm_as(U64, 0);
    for (int u = 0; u < d->count; u++)
        for (int w = 0; w < d->words; w++) {
            got[u][w] = variable(U64, none);
            IF(d->exists[u])
                assign(got[u][w], atomic_exchange(slot_of(s, w, ranks[u]), none));
        }
    for (int u = 0; u < d->count; u++)
        for (int w = 0; w < d->words; w++) {
            unpack(got[u][w], U32, &bits, &mark);
            assign(d->word[u][w], bit_or(d->word[u][w], bits));
            assign(d->missing, sub(d->missing, convert(I32, mark)));
        }
}

void reduce_receive(const reduce_slots *s, const val *ranks, int count, val states[][REDUCE_VALUES_MAX])
{
    incoming d = expect(s, ranks, count);
    FOREVER {
        ask(s, ranks, &d);
        BREAK_IF(eq(d.missing, imm(0)));
    }
    for (int u = 0; u < count; u++) {
        val identity[REDUCE_VALUES_MAX];
        s->r->identity(s->r, identity);
        join(s->r, d.word[u], states[u]);
        for (int i = 0; i < s->r->count; i++)
            states[u][i] = select(d.exists[u], states[u][i], identity[i]);
    }
}

val reduce_last_to_finish(val counter, int ctas)
{
    val is_last = variable(I32, imm(0));
    cta_sync(); // what the CTA wrote happens before ...
    IF(eq(thread(), imm(0)))
        fence_gpu(); // ... this fence of one thread, for all
    assign(is_last, reduce_is_last(counter, reduce_arrive(counter), ctas));
    IF(eq(thread(), imm(0)))
        fence_gpu(); // and the others' writes before what follows
    return reduce_broadcast(is_last);
}
