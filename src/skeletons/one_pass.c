/* one_pass.c - how the CTAs of a strip meet: a counter of those that have arrived, and a word for each that waits. */
#include "skeletons/one_pass.h"

#include "cute/kernel.h"

/*
 * The word of a chunk: its CTA adds LEFT once it gives up, the one that merges adds PUBLISHED. Who comes second knows what the first
 * one has done, and leaves 0.
 */
enum { COUNTER_BYTES = 4, LEFT = 1, PUBLISHED = 2 };

/* Of some 0.7 us each. */
enum { LOOKS = 64 };

static val is_first_thread(void)
{
    return eq(thread(), imm(0));
}

static val counter_at(const one_pass *t, val number)
{
    return add(t->counters, mul(convert(U64, number), imm_as(U64, COUNTER_BYTES)));
}

static val word_of(const one_pass *t, val chunk)
{
    return counter_at(t, add(t->strips, add(mul(t->strip, t->chunks), chunk)));
}

static void clear(val counter)
{
    store_global(U32, counter, 0, imm_as(U32, 0));
}

/* Broadcasts a u32 of thread 0 to the CTA. */
static val from_first_thread(const char *name, val known)
{
    const val slot = smem_address(smem_alloc(name, COUNTER_BYTES, COUNTER_BYTES)), all = unwritten(U32);
    IF(is_first_thread())
        store_at(IR_SHARED, IR_CACHE_DEFAULT, U32, 1, slot, 0, &known);
    cta_sync();
    load_at(IR_SHARED, IR_CACHE_DEFAULT, U32, 1, slot, 0, (val[]){ all });
    return all;
}

tensor one_pass_smem(int threads)
{
    return smem_tensor("left", U32, compact(leaf(threads)), COUNTER_BYTES);
}

val one_pass_arrive(const one_pass *t)
{
    const val before = variable(U32, imm(0)), counter = counter_at(t, t->strip), others = sub(t->chunks, imm(1));
    cta_sync();
    IF(is_first_thread()) {
        assign(before, atomic_add_acq_rel(counter, imm_as(U32, 1)));
        IF(eq(before, others))
            clear(counter);
    }
    return eq(from_first_thread("arrived", before), others);
}

void one_pass_publish(const one_pass *t)
{
    const val left = variable(U32, imm(0)), chunk = convert(U32, thread()), word = word_of(t, chunk);
    cta_sync();
    IF(logical_and(lt(chunk, t->chunks), ne(chunk, t->chunk))) {
        assign(left, bit_and(atomic_add_acq_rel(word, imm_as(U32, PUBLISHED)), imm_as(U32, LEFT)));
        IF(eq(left, imm_as(U32, LEFT)))
            clear(word);
    }
    set(t->sLeft, thread(), left);
    cta_sync();
}

val one_pass_wait(const one_pass *t)
{
    const val word = word_of(t, t->chunk), seen = variable(U32, imm(0)), looks = variable(U32, imm(LOOKS));
    const val none = imm_as(U32, 0);
    IF(is_first_thread()) {
        FOREVER {
            assign(seen, load_acquire(U32, word));
            assign(looks, sub(looks, imm_as(U32, 1)));
            BREAK_IF(logical_or(ne(seen, none), eq(looks, none)));
        }
        IF(eq(seen, none))
            assign(seen, atomic_add_acq_rel(word, imm_as(U32, LEFT)));
        IF(ne(seen, none))
            clear(word);
    }
    return from_first_thread("published", shift_right(seen, imm_as(U32, 1)));
}

val one_pass_was_left(const one_pass *t, val chunk)
{
    return eq(at(t->sLeft, chunk), imm_as(U32, LEFT));
}
