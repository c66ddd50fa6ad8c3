/* two_pass.c - the order of sums and outputs, and the counters by which CTAs wait for each other. */
#include "skeletons/two_pass.h"

#include "cute/tiled_copy.h"

enum { COUNTER_BYTES = 4 };

static val number(int x)
{
    return ir_int(IR_U32, x);
}

static val is_first_thread(void)
{
    return ir_compare(IR_EQ, ir_sreg(IR_TID_X), number(0));
}

static val counter_of(const two_pass *t, val strip)
{
    const val index = ir_binary(IR_ADD, strip, number(1));
    return ir_binary(IR_ADD, t->counters, ir_convert(IR_U64, ir_binary(IR_MUL, index, number(COUNTER_BYTES))));
}

static void clear(val counter)
{
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, counter, 0, (val[]){ number(0) });
}

/* Counts, and gives the counter before. For thread 0. */
static val count(ir_order order, val counter)
{
    const val none = { 0 };
    return order == IR_ORDER_RELAXED ? ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, counter, 0, number(1), none)
                                     : ir_atomic_ordered(order, IR_SCOPE_GPU, IR_RED_ADD, counter, 0, number(1), none);
}

static void sync(void)
{
    ir_bar_sync(number(0), ir_current()->threads);
}

/* Broadcasts a u32 of thread 0 to the CTA. */
static val from_first_thread(const char *name, val known)
{
    const val slot = ir_smem_address(ir_smem_alloc(name, COUNTER_BYTES, COUNTER_BYTES)), all = ir_reg(IR_U32);
    ir_if(is_first_thread());
    ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, slot, 0, &known);
    ir_end_if();
    sync();
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, slot, 0, (val[]){ all });
    return all;
}

/* Numbers up to lag are sums, then sums and outputs take turns, the last ones are outputs. */
two_pass_item two_pass_draw(const two_pass *t)
{
    const val items = ir_binary(IR_MUL, t->strips, t->chunks), all = ir_binary(IR_ADD, items, items);
    const val ticket = cute_variable(IR_U32, number(0));
    ir_if(is_first_thread());
    ir_assign(ticket, count(IR_ORDER_RELAXED, t->counters));
    ir_if(ir_compare(IR_EQ, ticket, ir_binary(IR_SUB, all, number(1))));
    clear(t->counters);
    ir_end_if();
    ir_end_if();
    const val drawn = from_first_thread("ticket", ticket), turn = ir_binary(IR_SUB, drawn, t->lag);
    const val half = ir_binary(IR_SHR, turn, number(1)), rest = ir_binary(IR_AND, turn, number(1));
    const val first = ir_compare(IR_LT, drawn, t->lag), odd = ir_compare(IR_EQ, rest, number(1));
    const val last = ir_compare(IR_GE, drawn, ir_binary(IR_SUB, all, t->lag));
    const val paired = ir_select(odd, half, ir_binary(IR_ADD, t->lag, half));
    const val item = ir_select(first, drawn, ir_select(last, ir_binary(IR_SUB, drawn, items), paired));
    const val writes = ir_binary(IR_OR, last, ir_binary(IR_AND, odd, ir_unary(IR_NOT, first)));
    const val chunk = ir_binary(IR_DIV, item, t->abreast); // number among the chunks of all strips side by side
    const val strips = ir_binary(IR_MUL, ir_binary(IR_DIV, chunk, t->chunks), t->abreast);
    return (two_pass_item){ .writes = writes,
                            .strip = ir_binary(IR_ADD, strips, ir_binary(IR_REM, item, t->abreast)),
                            .chunk = ir_binary(IR_REM, chunk, t->chunks) };
}

val two_pass_leave(const two_pass *t, const two_pass_item *item)
{
    const val before = cute_variable(IR_U32, number(0));
    sync();
    ir_if(is_first_thread());
    ir_assign(before, count(IR_ORDER_ACQ_REL, counter_of(t, item->strip)));
    ir_end_if();
    return ir_compare(IR_EQ, from_first_thread("arrived", before), ir_binary(IR_SUB, t->chunks, number(1)));
}

void two_pass_merged(const two_pass *t, const two_pass_item *item)
{
    sync();
    ir_if(is_first_thread());
    count(IR_ORDER_RELEASE, counter_of(t, item->strip));
    ir_end_if();
}

void two_pass_wait(const two_pass *t, two_pass_item *item)
{
    const val counter = counter_of(t, item->strip);
    item->left = cute_variable(IR_U32, number(0));
    ir_if(is_first_thread());
    ir_loop();
    ir_break(ir_compare(IR_GT, ir_load_strong(IR_ORDER_ACQUIRE, IR_SCOPE_GPU, IR_U32, counter, 0), t->chunks));
    ir_end_loop();
    ir_end_if();
    sync();
    ir_if(is_first_thread());
    ir_assign(item->left, count(IR_ORDER_RELAXED, counter));
    ir_end_if();
}

void two_pass_end(const two_pass *t, const two_pass_item *item)
{
    const val twice = ir_binary(IR_ADD, t->chunks, t->chunks);
    ir_if(ir_binary(IR_AND, is_first_thread(), ir_compare(IR_EQ, item->left, twice)));
    clear(counter_of(t, item->strip));
    ir_end_if();
}
