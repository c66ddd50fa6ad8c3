/* attention_backward_walk.c - the rows that a CTA of attention's gradients owns, and the blocks it goes through. */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

/* What rows see, as if they were queries: key j is seen by the queries from j - last to j - first. */
static void find_sequence(backward_kernel *k)
{
    const sequence s = attention_sequence_of(&k->form, &k->p, k->batch);
    k->s = s;
    k->seen = k->form;
    if (k->of_keys) {
        const val zero = imm_as(I32, 0);
        k->s = (sequence){ s.kv, s.q, sub(zero, s.last), sub(zero, s.first), s.kv_at, s.q_at };
        k->seen.left = k->form.right;
        k->seen.right = k->form.left;
    }
    k->grid = (tile_grid){ &k->seen, &k->p, ROWS, k->block };
}

/* The range of blocks that some of the CTA's rows see; empty where first = end, as for rows past the last one. */
static void find_blocks(backward_kernel *k)
{
    const sequence *s = &k->s;
    const int block = k->block, rows = k->cfg->consumers * ROWS;
    val row = convert(I32, k->row), begin = imm_as(I32, 0), end = convert(I32, s->kv);
    if (k->seen.left)
        begin = max(add(row, s->first), begin);
    if (k->seen.right)
        end = min(add(add(row, imm(rows)), s->last), end);
    k->first = div(convert(U32, begin), imm(block));
    if (k->form.ragged)
        end = select(lt(k->row, s->q), end, imm_as(I32, 0));
    k->end = max(div(add(convert(U32, max(end, imm_as(I32, 0))), imm(block - 1)), imm(block)), k->first);
}

/* The longest rows first where they differ, in heads whose Y fits L2. */
void attention_backward_find_place(backward_kernel *k)
{
    const attention_values *p = &k->p;
    const int rows = k->cfg->consumers * ROWS;
    val kv_heads = div(p->heads, p->group), all = k->of_keys ? div(p->all_heads, p->group) : p->all_heads;
    val section = k->of_keys ? max(div(p->section, p->group), imm_as(U32, 1)) : p->section, number = cta_x();
    val tiles = div(add(k->of_keys ? p->kv : p->q, imm(rows - 1)), imm(rows)), of_section = mul(tiles, section);
    val first = mul(div(number, of_section), section), r = rem(number, of_section);
    val heads = min(section, sub(all, first)), m = div(r, heads), head = add(first, rem(r, heads));
    if (k->form.right && !k->of_keys)
        m = sub(sub(tiles, imm(1)), m);
    k->row = mul(m, imm(rows));
    k->head = rem(head, k->of_keys ? kv_heads : p->heads);
    k->batch = div(head, k->of_keys ? kv_heads : p->heads);
    k->heads = k->of_keys ? p->group : imm_as(U32, 1);
    find_sequence(k);
    find_blocks(k);
}

val attention_backward_row_of(const backward_kernel *k, const backward_consumer *c)
{
    return add(k->row, mul(c->index, imm(ROWS)));
}

tile_rows attention_backward_rows_of(const backward_kernel *k, const backward_consumer *c)
{
    return (tile_rows){ &k->grid, &k->s, &c->scores_mma, attention_backward_row_of(k, c), warpgroup_thread(), ROWS };
}

val attention_backward_head_of(const backward_kernel *k, val i)
{
    return k->of_keys ? add(mul(k->head, k->p.group), i) : div(k->head, k->p.group);
}

tile_box attention_backward_box_of_x(const backward_kernel *k, val row)
{
    const tile_place at = { k->head, k->batch };
    return attention_box_of(k->form.ragged, k->s.q_at, k->s.q, row, &at);
}

tile_box attention_backward_box_of_y(const backward_kernel *k, const backward_walk *w)
{
    const tile_place at = { attention_backward_head_of(k, w->head), k->batch };
    return attention_box_of(k->form.ragged, k->s.kv_at, k->s.kv, mul(w->block, imm(k->block)), &at);
}

custom_score attention_backward_custom_of(const backward_kernel *k, const backward_walk *w)
{
    val head = k->of_keys ? attention_backward_head_of(k, w->head) : k->head;
    return attention_custom_score_of(&k->form, &k->p, add(mul(k->batch, k->p.heads), head));
}

val attention_backward_is_over(const backward_kernel *k, const backward_walk *w)
{
    return ge(w->head, k->heads);
}

static void turn_over(const backward_kernel *k, backward_walk *w)
{
    const bool down = k->with_queries; // the last queries, which all keys see, come first
    val next = down ? sub(w->block, imm(1)) : add(w->block, imm(1));
    val turn = down ? eq(w->block, k->first) : eq(next, k->end);
    assign(w->head, add(w->head, select(turn, imm_as(U32, 1), imm_as(U32, 0))));
    assign(w->block, select(turn, down ? sub(k->end, imm(1)) : k->first, next));
}

/* A window of blocks of a step's head; blocks past the last one are skipped. */
typedef struct window_of {
    const backward_kernel *k;
    const backward_walk *w;
} window_of;

static val kind_of(const void *of, val number)
{
    const backward_kernel *k = ((const window_of *)of)->k;
    const backward_walk *w = ((const window_of *)of)->w;
    val n = add(w->base, convert(U32, number)), block = min(n, sub(k->end, imm(1)));
    const token_range of_x = { k->row, k->s.q, k->cfg->consumers * ROWS };
    const token_range of_y = { mul(block, imm(k->block)), k->s.kv, k->block };
    const custom_score custom = attention_backward_custom_of(k, w);
    val kind =
        k->of_keys ? attention_custom_block(&custom, &of_y, &of_x) : attention_custom_block(&custom, &of_x, &of_y);
    return select(lt(n, k->end), kind, imm_as(I32, CKL_ATTENTION_SKIP));
}

/* Moves to the next block that is not skipped. */
static void skip_blocks(const backward_kernel *k, backward_walk *w)
{
    FOREVER {
        BREAK_IF(logical_or(attention_backward_is_over(k, w), ne(w->window.seen, imm(0))));
        val next = add(w->base, imm(BLOCK_WINDOW)), turn = ge(next, k->end);
        assign(w->head, add(w->head, select(turn, imm_as(U32, 1), imm_as(U32, 0))));
        assign(w->base, select(turn, k->first, next));
        IF(logical_not(attention_backward_is_over(k, w)))
            attention_block_window_look(&w->window, kind_of, &(window_of){ k, w });
    }
    val kind, number = attention_block_window_take(&w->window, &kind);
    assign(w->kind, kind);
    assign(w->block, add(w->base, convert(U32, number)));
    val *const numbers[] = { &w->block, &w->head, &w->kind };
    for (int i = 0; i < COUNT_OF(numbers); i++) // ptxas is to see that they are equal in all lanes
        assign(*numbers[i], shuffle(*numbers[i], imm(0)));
}

backward_walk attention_backward_begin(const backward_kernel *k)
{
    val none = eq(k->first, k->end), head = select(none, k->heads, imm_as(U32, 0));
    backward_walk w = { .block = variable(U32, k->with_queries ? sub(k->end, imm(1)) : k->first),
                        .head = variable(U32, head) };
    if (attention_score_has_blocks(k->form.score)) {
        w.kind = variable(I32, imm(CKL_ATTENTION_SKIP));
        w.base = variable(U32, sub(k->first, imm(BLOCK_WINDOW)));
        w.window = attention_block_window_begin();
        skip_blocks(k, &w);
    }
    return w;
}

void attention_backward_advance(const backward_kernel *k, backward_walk *w)
{
    if (attention_score_has_blocks(k->form.score))
        skip_blocks(k, w);
    else
        turn_over(k, w);
}
