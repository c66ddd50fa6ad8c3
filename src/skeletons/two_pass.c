/* two_pass.c - the order of sums and outputs, and how CTAs tell each other. */
#include "skeletons/two_pass.h"

#include "cute/kernel.h"

static val number(int x)
{
    return imm_as(U32, x);
}

static val counter_of(const two_pass *t, val strip)
{
    return add(t->counters, convert(U64, mul(add(strip, number(1)), number(4))));
}

static void clear(val counter)
{
    set(gmem_tensor(counter, I32, compact(leaf(1))), 0, imm(0));
}

/* For the whole CTA: what thread 0 knows, u32. */
static val from_first_thread(const char *name, val known)
{
    tensor sKnown = smem_tensor(name, I32, compact(leaf(1)), 4); // (1)
    IF(eq(thread(), imm(0)))
        set(sKnown, 0, convert(I32, known));
    cta_sync();
    return convert(U32, at(sKnown, 0));
}

/* Numbers up to lag are sums, then sums and outputs take turns, the last ones are outputs. */
two_pass_item two_pass_draw(const two_pass *t)
{
    const val items = mul(t->strips, t->chunks), all = add(items, items), ticket = variable(U32, number(0));
    IF(eq(thread(), imm(0))) {
        assign(ticket, atomic_add(t->counters, number(1)));
        IF(eq(ticket, sub(all, number(1))))
            clear(t->counters);
    }
    const val drawn = from_first_thread("ticket", ticket), turn = sub(drawn, t->lag),
              half = shift_right(turn, number(1));
    const val first = lt(drawn, t->lag), last = ge(drawn, sub(all, t->lag)),
              odd = eq(bit_and(turn, number(1)), number(1));
    const val paired = select(odd, half, add(t->lag, half));
    const val item = select(first, drawn, select(last, sub(drawn, items), paired));
    const val writes = logical_or(last, logical_and(odd, logical_not(first)));
    const val turn_of = div(item, t->abreast), strips = mul(div(turn_of, t->chunks), t->abreast);
    return (two_pass_item){ .writes = writes, .strip = add(strips, rem(item, t->abreast)), .chunk = rem(turn_of, t->chunks) };
}

val two_pass_leave(const two_pass *t, const two_pass_item *item)
{
    const val before = variable(U32, number(0));
    cta_sync();
    IF(eq(thread(), imm(0)))
        assign(before, atomic_add_acq_rel(counter_of(t, item->strip), number(1)));
    return eq(from_first_thread("arrived", before), sub(t->chunks, number(1)));
}

void two_pass_merged(const two_pass *t, const two_pass_item *item)
{
    cta_sync();
    IF(eq(thread(), imm(0)))
        atomic_add_release(counter_of(t, item->strip), number(1));
}

void two_pass_wait(const two_pass *t, two_pass_item *item)
{
    const val counter = counter_of(t, item->strip), ready = add(t->chunks, number(1));
    item->left = variable(U32, number(0));
    IF(eq(thread(), imm(0)))
        FOREVER {
            BREAK_IF(ge(load_acquire(U32, counter), ready));
        }
    cta_sync();
    IF(eq(thread(), imm(0)))
        assign(item->left, sub(atomic_add(counter, number(1)), ready));
}

void two_pass_end(const two_pass *t, const two_pass_item *item)
{
    IF(logical_and(eq(thread(), imm(0)), eq(item->left, sub(t->chunks, number(1)))))
        clear(counter_of(t, item->strip));
}
