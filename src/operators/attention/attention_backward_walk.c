/* attention_backward_walk.c - the rows that a CTA of attention's gradients owns, and the blocks it goes through. */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

/* Tokens of X, which a CTA's rows are of, and of Y, which blocks are of. */
static val tokens_of_x(const backward_kernel *k)
{
    return k->of_keys ? k->p.kv : k->p.q;
}

static val tokens_of_y(const backward_kernel *k)
{
    return k->of_keys ? k->p.q : k->p.kv;
}

/* The range of blocks of Y that some of the CTA's rows see; empty where first = end. */
static void find_blocks(backward_kernel *k)
{
    const attention_values *p = &k->p;
    const int block = k->block, rows = k->cfg->consumers * ROWS;
    val row = convert(I32, k->row), last_row = add(row, imm(rows - 1)), tokens = convert(I32, tokens_of_y(k));
    val begin = imm_as(I32, 0), end = tokens;
    if (k->form.right && k->of_keys)
        begin = max(sub(row, p->last), begin);
    if (k->form.left && k->of_keys)
        end = min(add(sub(last_row, p->first), imm(1)), end);
    if (k->form.left && !k->of_keys)
        begin = max(add(row, p->first), begin);
    if (k->form.right && !k->of_keys)
        end = min(add(add(last_row, p->last), imm(1)), end);
    k->first = div(convert(U32, begin), imm(block));
    if (k->form.ragged)
        end = select(lt(k->row, tokens_of_x(k)), end, imm_as(I32, 0));
    k->end = max(div(add(convert(U32, max(end, imm_as(I32, 0))), imm(block - 1)), imm(block)), k->first);
}

/* Makes the sequence the problem: its lengths and its diagonal. Rows past its end have no blocks. */
static void enter_sequence(backward_kernel *k)
{
    attention_values *p = &k->p;
    const sequence s = attention_sequence_of(&k->form, p, k->batch);
    p->q = s.q;
    p->kv = s.kv;
    p->first = s.first;
    p->last = s.last;
    k->x_at = k->of_keys ? s.kv_at : s.q_at;
    k->y_at = k->of_keys ? s.q_at : s.kv_at;
}

/* The longest rows first where they differ, in heads whose Y fits L2. */
void attention_backward_find_place(backward_kernel *k)
{
    const attention_values *p = &k->p;
    const int rows = k->cfg->consumers * ROWS;
    val kv_heads = div(p->heads, p->group), all = k->of_keys ? div(p->all_heads, p->group) : p->all_heads;
    val section = k->of_keys ? max(div(p->section, p->group), imm_as(U32, 1)) : p->section, number = cta_x();
    val tiles = div(add(tokens_of_x(k), imm(rows - 1)), imm(rows)), of_section = mul(tiles, section);
    val first = mul(div(number, of_section), section), r = rem(number, of_section);
    val heads = min(section, sub(all, first)), m = div(r, heads), head = add(first, rem(r, heads));
    if (k->form.right && !k->of_keys)
        m = sub(sub(tiles, imm(1)), m);
    k->row = mul(m, imm(rows));
    k->head = rem(head, k->of_keys ? kv_heads : p->heads);
    k->batch = div(head, k->of_keys ? kv_heads : p->heads);
    k->heads = k->of_keys ? p->group : imm_as(U32, 1);
    if (k->form.ragged)
        enter_sequence(k);
    find_blocks(k);
}

val attention_backward_row_of(const backward_kernel *k, const backward_consumer *c)
{
    return add(k->row, mul(c->index, imm(ROWS)));
}

val attention_backward_head_of(const backward_kernel *k, val i)
{
    return k->of_keys ? add(mul(k->head, k->p.group), i) : div(k->head, k->p.group);
}

tile_box attention_backward_box_of_x(const backward_kernel *k, val row)
{
    const tile_place at = { k->head, k->batch };
    return attention_box_of(k->form.ragged, k->x_at, tokens_of_x(k), row, &at);
}

tile_box attention_backward_box_of_y(const backward_kernel *k, const backward_walk *w)
{
    const tile_place at = { attention_backward_head_of(k, w->head), k->batch };
    return attention_box_of(k->form.ragged, k->y_at, tokens_of_y(k), mul(w->block, imm(k->block)), &at);
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
    const token_range of_x = { k->row, tokens_of_x(k), k->cfg->consumers * ROWS };
    const token_range of_y = { mul(block, imm(k->block)), tokens_of_y(k), k->block };
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
