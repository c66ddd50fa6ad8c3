/* attention_backward_weights.c - attention's gradients: products become scores, scores weights, slopes gradients. */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

tensor attention_backward_all_stats(const attention_values *p, val rows)
{
    layout all = make_layout(shape(rows, STATS, p->all_heads), stride(1, rows, mul(rows, imm64(STATS))));
    return gmem_tensor(p->stats, F32, all);
}

tensor attention_backward_stats_of(const backward_kernel *k, val head)
{
    val all = add(mul(k->batch, k->p.heads), head);
    return slice(attention_backward_all_stats(&k->p, convert(I64, k->p.stats_rows)), _, _, all);
}

bool attention_backward_has_bends(const backward_kernel *k)
{
    return k->with[QK] && (k->form.softcap || attention_score_bends(k->form.score));
}

/*
 * Hides what rows do not see. Queries past the last one have no weights anyway. Keys past the last one are rows that
 * nobody stores, but they must not reach dQ.
 */
static void hide(const backward_kernel *k, backward_consumer *c, val block)
{
    const tile_rows rows = attention_backward_rows_of(k, c);
    if (!k->of_keys || k->seen.left || k->seen.right)
        IF(attention_block_is_cut(&rows, block))
            attention_mask_block(&rows, block, c->scores);
    if (k->with_queries)
        IF(lt(k->s.q, add(rows.row, imm(ROWS))))
            attention_mask_rows(&rows, c->scores);
}

/* Value i of a thread's scores is in this one of its columns: pairs of them come row by row. */
static int64_t column_of(int64_t i)
{
    return i / 4 * 2 + i % 2;
}

backward_stats attention_backward_find_stats(const backward_kernel *k, const backward_consumer *c, val stage, int which)
{
    backward_stats s = { .of_columns = k->of_keys };
    const val *of_row = which ? c->delta : c->offset;
    tensor sStats = slice(k->sStats, _, which, stage); // (BN)
    for (int i = 0; i < 2 && !k->of_keys; i++)
        s.of[i] = of_row[i];
    UNROLL(i, k->of_keys ? static_size(c->scores.layout) : 0)
        if (attention_online_row_of(c->scores, i) == 0)
            s.of[column_of(i)] =
                at(sStats, add(coordinate(c->cS, 1, 0), imm(index_at(coordinate_distances(c->cS, 1), i))));
    return s;
}

/* The stat for value i. */
static val stat_of(const backward_stats *s, const backward_consumer *c, int64_t i)
{
    return s->of[s->of_columns ? column_of(i) : attention_online_row_of(c->scores, i)];
}

void attention_backward_load_row_stats(const backward_kernel *k, backward_consumer *c)
{
    tensor gStats = attention_backward_stats_of(k, k->head); // (ROWS_OF_STATS,STATS)
    for (int i = 0; i < 2; i++) {
        val row = add(attention_backward_row_of(k, c), coordinate(c->cS, 0, attention_online_row_value(c->scores, i)));
        row = min(row, sub(k->p.stats_rows, imm(1)));
        c->offset[i] = at(gStats, row, 0);
        c->delta[i] = at(gStats, row, 1);
    }
}

/* Applies the soft cap and the custom score to the scores; bends become the derivatives. */
static void cap(const backward_kernel *k, backward_consumer *c)
{
    attention_cap_scores(c->scores, k->p.factor);
    UNROLL(i, attention_backward_has_bends(k) ? static_size(c->scores.layout) : 0) {
        val x = at(c->scores, i);
        set(c->bends, i, fma(neg(x), x, immf(1)));
    }
}

static block_scores pairs_of(const backward_kernel *k, const backward_consumer *c, const backward_walk *w)
{
    const tile_rows rows = attention_backward_rows_of(k, c);
    block_scores pairs = attention_block_scores_of(NULL, &rows, w->block, c->scores);
    pairs.of_keys = k->of_keys;
    return pairs;
}

static void mask_pairs(const backward_kernel *k, backward_consumer *c, const backward_walk *w)
{
    const block_scores all = pairs_of(k, c, w);
    const val head = k->of_keys ? attention_backward_head_of(k, w->head) : k->head;
    const score_mask mask = attention_score_mask_of(&k->grid, add(mul(k->batch, k->p.heads), head));
    attention_mask_block_scores(&all, &mask, k->p.q, k->p.kv);
}

static void score_pairs(const backward_kernel *k, backward_consumer *c, const backward_walk *w)
{
    const custom_score custom = attention_backward_custom_of(k, w);
    const block_scores all = pairs_of(k, c, w);
    attention_custom_share_begin();
    UNROLL(i, static_size(c->scores.layout)) {
        val x = at(c->scores, i), query, key;
        attention_block_pair(&all, i, &query, &key);
        if (k->with[QK] && attention_score_bends(k->form.score)) {
            val bend = attention_custom_slope(&custom, x, query, key);
            set(c->bends, i, k->form.softcap ? mul(bend, at(c->bends, i)) : bend);
        }
        assign(x, attention_custom_value(&custom, x, query, key));
    }
    attention_custom_share_end();
}

/* Applies the custom score. Where it leaves a block as it is, the derivative is 1. */
static void score_block(const backward_kernel *k, backward_consumer *c, const backward_walk *w)
{
    if (k->form.softcap)
        cap(k, c);
    else if (attention_backward_has_bends(k))
        fill(c->bends, immf(1));
    if (k->form.mask)
        mask_pairs(k, c, w);
    if (attention_score_has_blocks(k->form.score)) {
        const custom_score custom = attention_backward_custom_of(k, w);
        IF(eq(w->kind, imm(CKL_ATTENTION_PLAIN)))
            attention_custom_leave(&custom, c->scores);
        IF(eq(w->kind, imm(CKL_ATTENTION_SCORE)))
            score_pairs(k, c, w);
    }
    if (attention_backward_custom_of(k, w).how && !attention_score_has_blocks(k->form.score))
        score_pairs(k, c, w);
}

void attention_backward_weigh(const backward_kernel *k, backward_consumer *c, const backward_stats *offset,
                              const backward_walk *w)
{
    score_block(k, c, w);
    hide(k, c, w->block);
    UNROLL(i, static_size(c->scores.layout)) {
        val x = at(c->scores, i);
        assign(x, exp2_ftz(fma(x, k->p.exponent, stat_of(offset, c, i))));
        if (attention_backward_has_bends(k))
            set(c->bends, i, mul(at(c->bends, i), x));
    }
}

void attention_backward_differentiate(backward_consumer *c, const backward_stats *delta)
{
    UNROLL(i, static_size(c->slopes.layout)) {
        val x = at(c->slopes, i);
        assign(x, mul(at(c->bends, i), sub(x, stat_of(delta, c, i))));
    }
}

void attention_backward_store_mask_gradient(const backward_kernel *k, const backward_consumer *c,
                                            const backward_walk *w, const backward_stats *delta)
{
    const block_scores all = pairs_of(k, c, w);
    tensor gDmask = attention_mask_gradient_of(&k->form, &k->p, add(mul(k->batch, k->p.heads), k->head)); // (Q,KV)
    UNROLL(i, static_size(c->slopes.layout)) {
        val query, key;
        attention_block_pair(&all, i, &query, &key);
        val x = mul(at(k->form.softcap ? c->scores : c->bends, i), sub(at(c->slopes, i), stat_of(delta, c, i)));
        IF(logical_and(lt(query, convert(I32, k->p.q)), lt(key, convert(I32, k->p.kv))))
            set(gDmask, coord(query, key), convert(k->form.dtype, x));
    }
}
