/* two_pass.c - the order of sums and outputs, and the counters by which CTAs wait for each other. */
#include "skeletons/two_pass.h"

#include "skeletons/first_thread.h"

static val counter_of(const two_pass *t, val strip)
{
    return add(t->counters, convert(U64, mul(add(strip, imm(1)), imm(COUNTER_BYTES))));
}

/* Numbers up to lag are sums, then sums and outputs take turns, the last ones are outputs. */
two_pass_item two_pass_draw(const two_pass *t)
{
    const val items = mul(t->strips, t->chunks), all = add(items, items);
    const val ticket = variable(U32, imm(0));
    IF(is_first_thread()) {
        assign(ticket, atomic_add(t->counters, imm_as(U32, 1)));
        IF(eq(ticket, sub(all, imm(1))))
            clear_counter(t->counters);
    }
    const val drawn = from_first_thread("ticket", ticket), turn = sub(drawn, t->lag);
    const val half = shift_right(turn, imm(1)), rest = bit_and(turn, imm(1));
    const val first = lt(drawn, t->lag), odd = eq(rest, imm(1));
    const val last = ge(drawn, sub(all, t->lag));
    const val paired = select(odd, half, add(t->lag, half));
    const val item = select(first, drawn, select(last, sub(drawn, items), paired));
    const val writes = logical_or(last, logical_and(odd, logical_not(first)));
    const val chunk = div(item, t->abreast); // number among the chunks of all strips side by side
    const val strips = mul(div(chunk, t->chunks), t->abreast);
    const val strip = add(strips, rem(item, t->abreast));
    return (two_pass_item){ .writes = writes, .strip = strip, .chunk = rem(chunk, t->chunks) };
}

val two_pass_leave(const two_pass *t, const two_pass_item *item)
{
    const val before = variable(U32, imm(0));
    cta_sync();
    IF(is_first_thread())
        assign(before, atomic_add_acq_rel(counter_of(t, item->strip), imm_as(U32, 1)));
    return eq(from_first_thread("arrived", before), sub(t->chunks, imm(1)));
}

void two_pass_merged(const two_pass *t, const two_pass_item *item)
{
    cta_sync();
    IF(is_first_thread())
        (void)atomic_add_release(counter_of(t, item->strip), imm_as(U32, 1));
}

void two_pass_wait(const two_pass *t, two_pass_item *item)
{
    const val counter = counter_of(t, item->strip);
    item->left = variable(U32, imm(0));
    IF(is_first_thread())
        FOREVER
            BREAK_IF(gt(load_acquire(U32, counter), t->chunks));
    cta_sync();
    IF(is_first_thread())
        assign(item->left, atomic_add(counter, imm_as(U32, 1)));
}

void two_pass_end(const two_pass *t, const two_pass_item *item)
{
    const val twice = add(t->chunks, t->chunks);
    IF(logical_and(is_first_thread(), eq(item->left, twice)))
        clear_counter(counter_of(t, item->strip));
}
