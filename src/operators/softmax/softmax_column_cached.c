/*
 * softmax_column_cached.c - strips of columns in chunks, which are read twice by one kernel: CTAs that add up chunks are
 * ahead of those that write outputs by little more than a strip, which L2 still holds.
 */
#include "operators/softmax/softmax_column.h"
#include "skeletons/first_thread.h"

/*
 * Of a strip: chunks that have been added up, and those whose CTAs have seen that all are. In the upper half, whether
 * the totals are there.
 */
enum { TOTALS_READY = 1 << 16 };

/* What the CTA of a ticket does. */
typedef struct work {
    val chunk;  // u32, of all strips
    val writes; // predicate: outputs; else sums
} work;

/*
 * Tickets are in the order in which CTAs begin, so who waits for earlier ones waits for CTAs that run. The first
 * `ahead` are for sums, then come sums and outputs in turn, and at last outputs.
 */
static work take_ticket(const columns *c, val ahead)
{
    const val ticket = variable(U32, imm_as(U32, 0)), one = imm_as(U32, 1), all = shift_right(grid_x(), one);
    IF(is_first_thread()) {
        assign(ticket, atomic_add(c->p.counter, one));
        IF(eq(ticket, sub(grid_x(), one)))
            clear_counter(c->p.counter);
    }
    const val number = from_first_thread("ticket", ticket), first = min(ahead, all), in_turn = sub(all, first);
    const val turn = sub(number, first), pair = shift_right(turn, one);
    const val only_sums = lt(number, first), only_outputs = ge(number, add(first, add(in_turn, in_turn)));
    const val is_odd = ne(bit_and(turn, one), imm_as(U32, 0));
    work w = { .writes = logical_and(logical_not(only_sums), logical_or(only_outputs, is_odd)) };
    w.chunk = select(only_sums, number,
                     select(only_outputs, sub(number, all), select(is_odd, pair, add(pair, first))));
    return w;
}

static val counter_of(const strip_states *s)
{
    return counter_at(s->c->p.counter, add(s->strip, imm_as(U32, 1))); // behind that of tickets
}

/* The CTA whose chunk is the strip's last to be added up merges the states of all. */
static void publish(strip_states *s, column_states *found)
{
    const columns *c = s->c;
    const val before = variable(U32, imm_as(U32, 0)), one = imm_as(U32, 1);
    strip_states_store(s, &c->place, found);
    cta_sync();
    IF(is_first_thread())
        assign(before, atomic_add_acq_rel(counter_of(s), one));
    IF(eq(from_first_thread("before", before), sub(c->p.chunks, one))) {
        strip_states_store_total(s);
        cta_sync();
        IF(is_first_thread())
            (void)atomic_add_release(counter_of(s), imm_as(U32, TOTALS_READY));
    }
}

/* The last CTA that has seen the totals of its strip clears the counter. */
static void wait_for_totals(const strip_states *s)
{
    const val chunks = s->c->p.chunks, seen = variable(U32, imm_as(U32, 0));
    IF(is_first_thread()) {
        FOREVER {
            assign(seen, load_acquire(U32, counter_of(s)));
            BREAK_IF(ge(seen, imm_as(U32, TOTALS_READY)));
        }
        assign(seen, atomic_add(counter_of(s), imm_as(U32, 1)));
        IF(eq(seen, add(add(chunks, chunks), imm_as(U32, TOTALS_READY - 1))))
            clear_counter(counter_of(s));
    }
    cta_sync();
}

void softmax_column_cached(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    if (kernel > 0) { // not for copies of whole vectors
        softmax_column_long(config, SOFTMAX_LONG_SCALAR + kernel - 1);
        return;
    }
    columns c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) };
    launch_bounds(c.split.threads, cfg->form.ctas_per_sm);
    strip_states s = strip_states_begin(&c);
    launch_dependents();
    grid_wait();
    const work w = take_ticket(&c, add(c.p.chunks, imm_as(U32, cfg->ahead)));
    s.strip = div(w.chunk, c.p.chunks);
    s.chunk = rem(w.chunk, c.p.chunks);
    c.place = place_in_chunk(&c, s.strip, s.chunk);
    const val slots = stage_first(&c);
    column_states found;
    IF(w.writes) {
        wait_for_totals(&s);
        found = strip_states_load_total(&s, &c.place, cfg->fold);
        over_staged_tiles(&c, slots, write_visit(&c), &found);
    }
    ELSE {
        begin_states(&c, c.split.vec, found.of);
        over_staged_tiles(&c, slots, sum_visit(&c), &found);
        publish(&s, &found);
    }
}
