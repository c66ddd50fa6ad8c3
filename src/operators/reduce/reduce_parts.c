/*
 * reduce_parts.c - how the CTAs of a row hand their states to the last of them to arrive.
 *
 * A fence would cost more than all the rest of a small reduction. So a state goes without: every 32 bits of it travel in
 * one 64-bit exchange together with a mark, and whoever finds the mark has the bits. Counting the arrivals needs no order
 * then. It only settles who waits for the others, so that nobody waits for a CTA that has not started.
 */
#include "operators/reduce/reduce_kernel.h"

enum { SLOT_BYTES = 8, WORDS_MAX = 2 * REDUCE_VALUES_MAX, WARP = 32 };

static int words_of(ir_type type)
{
    return ir_type_bytes(type) / 4;
}

int reduce_state_words(const reducer *r)
{
    int words = 0;
    for (int i = 0; i < r->count; i++)
        words += words_of(r->types[i]);
    return words;
}

/* Slot of a word, (PARTS) of each: threads that take neighbouring parts read neighbouring slots. */
static val slot_of(const reduce_slots *s, int word, val part)
{
    val first = add(s->address, convert(U64, mul(part, imm(SLOT_BYTES))));
    return add(first, ir_int(U64, (int64_t)word * s->parts * SLOT_BYTES));
}

static void split(const reducer *r, const val *state, val *words)
{
    for (int i = 0; i < r->count; i++) {
        if (words_of(r->types[i]) == 1)
            *words++ = ir_bitcast(U32, state[i]);
        else {
            ir_unpack(ir_bitcast(U64, state[i]), U32, &words[0], &words[1]);
            words += 2;
        }
    }
}

static void join(const reducer *r, const val *words, val *state)
{
    for (int i = 0; i < r->count; i++) {
        bool single = words_of(r->types[i]) == 1;
        state[i] = ir_bitcast(r->types[i], single ? words[0] : pack(U64, words[0], words[1]));
        words += single ? 1 : 2;
    }
}

/* Thread 0 arrives; whether it was the last, as 1 or 0. */
static val arrive(val counter, int ctas)
{
    tensor gCounter = gmem_tensor(counter, I32, compact(leaf(1))); // (1)
    val before = ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, counter, 0, imm(1), imm(0));
    val is_last = eq(before, imm(ctas - 1));
    IF(is_last)
        set(gCounter, 0, imm(0));
    return select(is_last, imm(1), imm(0));
}

/* What thread 0 knows, to all threads of the CTA. */
static val told_to_cta(val known)
{
    tensor sKnown = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    IF(eq(thread(), imm(0)))
        set(sKnown, 0, known);
    cta_sync();
    return ne(at(sKnown, 0), imm(0));
}

val reduce_hand_over(const reduce_slots *s, val counter, val part, const val *state)
{
    val word[WORDS_MAX], is_last = variable(I32, imm(0));
    split(s->r, state, word);
    IF(eq(thread(), imm(0))) {
        for (int w = 0; w < reduce_state_words(s->r); w++) {
            val marked = pack(U64, word[w], ir_int(U32, 1));
            ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_EXCH, slot_of(s, w, part), 0, marked, marked);
        }
        assign(is_last, arrive(counter, s->parts));
    }
    if (s->parts > WARP)
        return told_to_cta(is_last);
    return ir_vote(IR_VOTE_ANY, ne(is_last, imm(0)));
}

/* The parts that one thread receives at a time: all their words are asked for before the first is waited for. */
typedef struct delivery {
    int count, words; // parts, and words of each
    val exists[REDUCE_PARTS_MAX];
    val word[REDUCE_PARTS_MAX][WORDS_MAX];
    val missing; // words
} delivery;

static delivery expect(const reduce_slots *s, const val *part, int count)
{
    delivery d = { .count = count, .words = reduce_state_words(s->r), .missing = variable(I32, imm(0)) };
    for (int u = 0; u < count; u++) {
        d.exists[u] = lt(part[u], imm(s->parts));
        assign(d.missing, add(d.missing, select(d.exists[u], imm(d.words), imm(0))));
        for (int w = 0; w < d.words; w++)
            d.word[u][w] = variable(U32, imm(0));
    }
    return d;
}

/* Empties the slots. One that was emptied before gives zeros, which change nothing. */
static void ask(const reduce_slots *s, const val *part, delivery *d)
{
    val got[REDUCE_PARTS_MAX][WORDS_MAX], bits, mark, none = ir_int(U64, 0);
    for (int u = 0; u < d->count; u++)
        for (int w = 0; w < d->words; w++) {
            got[u][w] = variable(U64, none);
            IF(d->exists[u])
                assign(got[u][w],
                       ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_EXCH, slot_of(s, w, part[u]), 0, none, none));
        }
    for (int u = 0; u < d->count; u++)
        for (int w = 0; w < d->words; w++) {
            ir_unpack(got[u][w], U32, &bits, &mark);
            assign(d->word[u][w], either(d->word[u][w], bits));
            assign(d->missing, sub(d->missing, convert(I32, mark)));
        }
}

void reduce_receive(const reduce_slots *s, const val *part, int count, val states[][REDUCE_VALUES_MAX])
{
    delivery d = expect(s, part, count);
    FOREVER {
        ask(s, part, &d);
        BREAK_IF(eq(d.missing, imm(0)));
    }
    for (int u = 0; u < count; u++) {
        val start[REDUCE_VALUES_MAX];
        s->r->start(s->r, start);
        join(s->r, d.word[u], states[u]);
        for (int i = 0; i < s->r->count; i++)
            states[u][i] = select(d.exists[u], states[u][i], start[i]);
    }
}

val reduce_last_to_arrive(val counter, int ctas)
{
    val is_last = variable(I32, imm(0));
    cta_sync(); // what the CTA wrote happens before ...
    IF(eq(thread(), imm(0))) {
        ir_fence(IR_SCOPE_GPU); // ... this fence of one thread, for all
        assign(is_last, arrive(counter, ctas));
        ir_fence(IR_SCOPE_GPU); // and the others' writes before what follows
    }
    return told_to_cta(is_last);
}
