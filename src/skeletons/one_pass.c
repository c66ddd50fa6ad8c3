/* one_pass.c - how the CTAs of a strip meet: a counter of those that have arrived, and a word for each that waits. */
#include "skeletons/one_pass.h"

#include "skeletons/first_thread.h"

/*
 * The word of a chunk: its CTA adds LEFT when it gives up, the one that merges adds PUBLISHED. Who comes second learns from it what the
 * first one did, and leaves 0.
 */
enum { LEFT = 1, PUBLISHED = 2 };

/* At its word, before a CTA gives up: some 0.7 us each, where a strip takes 5 to 10 us. */
enum { LOOKS = 64 };

static val word_of(const one_pass *t, val chunk)
{
    return counter_at(t->counters, add(t->strips, add(mul(t->strip, t->chunks), chunk)));
}

one_pass one_pass_of_cta(val counters, val strips, val chunks, int threads)
{
    return (one_pass){ .counters = counters,
                       .strips = strips,
                       .chunks = chunks,
                       .strip = div(cta_x(), chunks),
                       .chunk = rem(cta_x(), chunks),
                       .sLeft = smem_tensor("left", U32, compact(leaf(threads)), COUNTER_BYTES) };
}

/* Is this the last CTA of its strip? */
static val arrive(const one_pass *t)
{
    const val before = variable(U32, imm(0)), counter = counter_at(t->counters, t->strip);
    const val others = sub(t->chunks, imm(1));
    cta_sync();
    IF(is_first_thread()) {
        assign(before, atomic_add_acq_rel(counter, imm_as(U32, 1)));
        IF(eq(before, others))
            clear_counter(counter);
    }
    return eq(from_first_thread("arrived", before), others);
}

/* Thread n tells chunk n. */
static void publish(const one_pass *t)
{
    const val left = variable(U32, imm(0)), chunk = convert(U32, thread()), word = word_of(t, chunk);
    cta_sync();
    IF(logical_and(lt(chunk, t->chunks), ne(chunk, t->chunk))) {
        assign(left, bit_and(atomic_add_acq_rel(word, imm_as(U32, PUBLISHED)), imm_as(U32, LEFT)));
        IF(eq(left, imm_as(U32, LEFT)))
            clear_counter(word);
    }
    set(t->sLeft, thread(), left);
    cta_sync();
}

/* False: this CTA gave up. */
static val wait(const one_pass *t)
{
    const val word = word_of(t, t->chunk), none = imm_as(U32, 0);
    const val seen = variable(U32, none), looks = variable(U32, imm_as(U32, LOOKS));
    IF(is_first_thread()) {
        FOREVER {
            assign(seen, load_acquire(U32, word));
            assign(looks, sub(looks, imm_as(U32, 1)));
            BREAK_IF(logical_or(ne(seen, none), eq(looks, none)));
        }
        IF(eq(seen, none))
            assign(seen, atomic_add_acq_rel(word, imm_as(U32, LEFT)));
        IF(ne(seen, none))
            clear_counter(word);
    }
    return ne(from_first_thread("published", seen), none);
}

void one_pass_meet(const one_pass *t, const one_pass_kernel *kernel, void *user)
{
    const val writes = variable(IR_PRED, yes()), last = arrive(t);
    IF(last) {
        kernel->merge(user);
        publish(t);
    }
    ELSE assign(writes, wait(t));
    IF(writes)
        kernel->write(user);
    IF(last)
        LOOP(chunk, t->chunks)
            IF(eq(at(t->sLeft, chunk), imm_as(U32, LEFT)))
                kernel->write_other(user, chunk);
}
