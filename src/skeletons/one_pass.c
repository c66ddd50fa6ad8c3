/* one_pass.c - how the CTAs of a strip meet: a counter of who has come and gone, and a word for each that gave up. */
#include "skeletons/one_pass.h"

#include "skeletons/first_thread.h"

/*
 * The counter of a strip: CTAs that have arrived, plus those that have left, and in the upper half those that gave up
 * before the last one arrived. That one then waits for the words by which they say who they are: they have begun, and
 * it will not be long.
 */
enum { GAVE_UP = 1 << 16 };

/* At the counter, before a CTA gives up: some 0.7 us each, where a strip takes 5 to 10 us. */
enum { LOOKS = 48 };

static val counter_of(const one_pass *t)
{
    return counter_at(t->counters, t->strip);
}

static val word_of(const one_pass *t, val chunk)
{
    return counter_at(t->counters, add(t->strips, add(mul(t->strip, t->chunks), chunk)));
}

one_pass one_pass_of_cta(val counters, val strips, val chunks)
{
    return (one_pass){ .counters = counters,
                       .strips = strips,
                       .chunks = chunks,
                       .strip = div(cta_x(), chunks),
                       .chunk = rem(cta_x(), chunks),
                       .loads = imm_as(U32, 0),
                       .patience = 1 };
}

/* Counts the chunks that have been loaded. */
static val loads_of(const one_pass *t)
{
    return counter_at(t->counters, add(t->strips, mul(t->strips, t->chunks)));
}

void one_pass_load_in_turn(const one_pass *t, val ahead)
{
    const val loaded = variable(U32, imm_as(U32, 0)), looks = variable(U32, imm_as(U32, LOOKS));
    IF(logical_and(is_first_thread(), gt(cta_x(), ahead))) {
        const val wanted = sub(cta_x(), ahead);
        FOREVER {
            assign(loaded, load_acquire(U32, loads_of(t)));
            assign(looks, sub(looks, imm_as(U32, 1)));
            BREAK_IF(logical_or(ge(loaded, wanted), eq(looks, imm_as(U32, 0))));
        }
    }
    cta_sync();
}

void one_pass_loaded(one_pass *t)
{
    const val before = variable(U32, imm_as(U32, 0));
    IF(is_first_thread())
        assign(before, atomic_add(loads_of(t), imm_as(U32, 1)));
    t->loads = before;
}

/* The last one clears the counter: nobody waits any more. Not when it counts: the answer takes its time. */
static void clear_loads(const one_pass *t)
{
    IF(logical_and(is_first_thread(), eq(t->loads, sub(grid_x(), imm_as(U32, 1)))))
        clear_counter(loads_of(t));
}

/* In a value of the counter. */
static val came_and_went(val counter)
{
    return bit_and(counter, imm_as(U32, GAVE_UP - 1));
}

/* The counter when this CTA arrives. */
static val arrive(const one_pass *t)
{
    const val before = variable(U32, imm_as(U32, 0));
    cta_sync();
    IF(is_first_thread())
        assign(before, atomic_add_acq_rel(counter_of(t), imm_as(U32, 1)));
    return from_first_thread("arrived", before);
}

/* Until all have arrived. False: this CTA has given up. */
static val wait(const one_pass *t)
{
    const val all = variable(U32, imm_as(U32, 0)), looks = variable(U32, imm_as(U32, (int64_t)LOOKS * t->patience));
    IF(is_first_thread()) {
        FOREVER {
            assign(all, load_acquire(U32, counter_of(t)));
            assign(looks, sub(looks, imm_as(U32, 1)));
            BREAK_IF(logical_or(ge(came_and_went(all), t->chunks), eq(looks, imm_as(U32, 0))));
        }
        IF(lt(came_and_went(all), t->chunks)) {
            assign(all, atomic_add_acq_rel(counter_of(t), imm_as(U32, GAVE_UP)));
            IF(lt(came_and_went(all), t->chunks))
                (void)atomic_add_release(word_of(t, t->chunk), imm_as(U32, 1));
        }
    }
    return ge(came_and_went(from_first_thread("all", all)), t->chunks);
}

/* One more chunk is no longer waited for: the counter before, in thread 0. The last one clears it. */
static val leave(const one_pass *t)
{
    const val before = variable(U32, imm_as(U32, 0));
    IF(is_first_thread())
        assign(before, atomic_add(counter_of(t), imm_as(U32, 1)));
    return before;
}

static void clear_after(const one_pass *t, val before)
{
    const val others = sub(add(t->chunks, t->chunks), imm_as(U32, 1));
    IF(logical_and(is_first_thread(), eq(came_and_went(before), others)))
        clear_counter(counter_of(t));
}

/* Has the CTA of this chunk given up? */
static val takes(const one_pass *t, val chunk)
{
    const val word = variable(U32, imm_as(U32, 0));
    cta_sync();
    IF(is_first_thread()) {
        assign(word, load_acquire(U32, word_of(t, chunk)));
        IF(ne(word, imm_as(U32, 0)))
            clear_counter(word_of(t, chunk));
    }
    return ne(from_first_thread("word", word), imm_as(U32, 0));
}

static void take_others(const one_pass *t, val count, void (*write_other)(void *user, val chunk), void *user)
{
    const val left = variable(U32, count), chunk = variable(U32, imm_as(U32, 0)), one = imm_as(U32, 1);
    FOREVER {
        BREAK_IF(eq(left, imm_as(U32, 0)));
        IF(takes(t, chunk)) {
            write_other(user, chunk);
            clear_after(t, leave(t));
            assign(left, sub(left, one));
        }
        assign(chunk, select(eq(add(chunk, one), t->chunks), imm_as(U32, 0), add(chunk, one)));
    }
}

void one_pass_meet(const one_pass *t, void (*write)(void *user), void (*write_other)(void *user, val chunk), void *user)
{
    clear_loads(t);
    const val before = arrive(t), last = eq(came_and_went(before), sub(t->chunks, imm_as(U32, 1)));
    const val writes = variable(IR_PRED, yes());
    IF(logical_not(last))
        assign(writes, wait(t));
    IF(writes) {
        const val left = leave(t);
        write(user);
        clear_after(t, left);
    }
    IF(last)
        take_others(t, shift_right(before, imm_as(U32, 16)), write_other, user);
}
