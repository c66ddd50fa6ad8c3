/*
 * attention_sm90_weights.c - the products of a block become the weights of its values.
 *
 * Rows may keep the maxima of their first blocks (config.old); the sums of a block tell whether those still serve, and
 * where they do not, its products are made again. What is rare stands behind one branch.
 */
#include "operators/attention/attention_sm90.h"

tile_rows attention_sm90_rows_of(const sm90_kernel *k, const consumer_role *c, const tile *t)
{
    return (tile_rows){ &k->grid, &t->s, &c->qk, add(t->row, mul(c->index, imm(ROWS))), warpgroup_thread(), ROWS };
}

static void make_scores(const sm90_kernel *k, consumer_role *c, const key_walk *w)
{
    const tile_rows rows = attention_sm90_rows_of(k, c, w->t);
    attention_make_scores(w, &rows, c->scores);
}

/*
 * Do products become scores only in the softmax? So they do where all blocks have a cap and nothing else, or with old
 * maxima a custom score.
 */
static bool scores_late(const sm90_kernel *k, const consumer_role *c)
{
    const ckl_attention_score *how = c->custom.how;
    return k->form->softcap ? !how && !k->form->mask : k->cfg->old && how && !how->block;
}

/*
 * Does it depend on the block how its scores become weights? Where products become scores late, or maxima are old, it
 * may have to be scored, and its maxima found, first: where a mask cuts it, or, with old maxima, rows are new or the
 * cap does not fit the exponents.
 */
static bool may_be_exact(const sm90_kernel *k, const consumer_role *c)
{
    return k->cfg->old || scores_late(k, c);
}

/* Must this block be exact? */
void attention_sm90_look_ahead(const sm90_kernel *k, consumer_role *c, const key_walk *w)
{
    if (!may_be_exact(k, c))
        return;
    const tile_rows rows = attention_sm90_rows_of(k, c, w->t);
    val exact = k->cfg->old ? attention_online_rows_are_new(&c->rows) : no();
    if (k->form->right || k->form->left)
        exact = logical_or(exact, attention_block_is_cut(&rows, w->block));
    if (k->cfg->old && scores_late(k, c) && k->form->softcap) {
        exact = logical_or(exact, logical_not(attention_cap_is_short(&c->rows)));
        attention_cap_limits(&c->rows, c->limit);
    }
    assign(c->exact, select(exact, imm_as(U32, 1), imm_as(U32, 0)));
}

static void mask_scores(const sm90_kernel *k, consumer_role *c, const key_walk *w)
{
    const tile_rows rows = attention_sm90_rows_of(k, c, w->t);
    if (k->form->right || k->form->left)
        IF(attention_block_is_cut(&rows, w->block))
            attention_mask_block(&rows, w->block, c->scores);
}

/*
 * Computes the products of a block again, element by element from shared memory: they were too large for the old
 * maxima.
 */
static void score_again(const sm90_kernel *k, consumer_role *c, val slot)
{
    tensor cS = partition_C(&c->qk, identity_tensor(shape(ROWS, k->cfg->tile_n)), warpgroup_thread()); // (MMA,1,1)
    layout distances = coordinate_distances(cS, 1);
    fill(c->scores, immf(0));
    for (int i = 0; i < k->d.chunks; i++) {
        const int left = k->d.used - i * k->d.chunk, width = left < k->d.chunk ? left : k->d.chunk;
        tensor sQ = slice(k->sQ, _, _, i, c->q.stage), sK = slice(k->sK, _, _, i, slot); // (ROWS,CHUNK), (BN,CHUNK)
        LOOP(l, imm(width)) {
            val q[ONLINE_ROWS_MAX];
            for (int r = 0; r < c->rows.count; r++)
                q[r] = at_f32(sQ, coordinate(cS, 0, attention_online_row_value(cS, r)), l);
            UNROLL(e, static_size(c->scores.layout)) {
                val x = at(c->scores, e), key = add(coordinate(cS, 1, 0), imm(index_at(distances, e)));
                assign(x, fma(q[attention_online_row_of(c->scores, e)], at_f32(sK, key, l), x));
            }
        }
    }
    fence_proxy_async(); // before TMA overwrites the block
}

/* What is left to do with products before they become weights by old maxima. */
static raw_scores raw_of(const sm90_kernel *k, consumer_role *c, const key_walk *w, block_scores *custom)
{
    if (!scores_late(k, c))
        return (raw_scores){ .cap = NULL };
    if (k->form->softcap)
        return (raw_scores){ .cap = k->p.cap, .limit = c->limit };
    const tile_rows rows = attention_sm90_rows_of(k, c, w->t);
    *custom = attention_block_scores_of(&c->custom, &rows, w->block, c->scores);
    return (raw_scores){ .score = attention_block_score, .of = custom };
}

/* Weights by their own maxima. */
static void weigh_exactly(const sm90_kernel *k, consumer_role *c)
{
    attention_online_softmax(&c->rows, c->scores, NULL);
    if (k->cfg->old)
        assign(c->lowered, imm(1));
}

/* Weights by old maxima; where these fail, scores are made again for new ones. */
static void weigh_by_old(const sm90_kernel *k, consumer_role *c, const key_walk *w, val slot)
{
    block_scores custom;
    const raw_scores raw = raw_of(k, c, w, &custom);
    val sum[ONLINE_ROWS_MAX];
    if (raw.score)
        attention_custom_share_begin();
    const val fits = attention_online_softmax_by_old(&c->rows, c->scores, &raw, sum);
    if (raw.score)
        attention_custom_share_end();
    assign(c->lowered, imm(0));
    IF(logical_not(fits)) {
        assign(c->lowered, imm(1));
        IF(attention_online_rows_lower(&c->rows, c->scores, &raw, sum)) {
            score_again(k, c, slot);
            make_scores(k, c, w);
            weigh_exactly(k, c);
        }
    }
    UNROLL(r, c->rows.count)
        assign(c->rows.sum[r], add(c->rows.sum[r], sum[r]));
}

void attention_sm90_weigh_first(const sm90_kernel *k, consumer_role *c, const key_walk *w)
{
    const tile_rows rows = attention_sm90_rows_of(k, c, w->t);
    attention_online_rows_reset(&c->rows);
    make_scores(k, c, w);
    attention_mask_block(&rows, w->block, c->scores); // a tile's last block of keys may reach past the last key
    attention_online_softmax(&c->rows, c->scores, NULL);
}

/* By old maxima where it may be so, else by their own, or with the cap in the exponents. */
void attention_sm90_weigh(const sm90_kernel *k, consumer_role *c, const key_walk *w, val slot)
{
    if (!scores_late(k, c))
        make_scores(k, c, w);
    if (!may_be_exact(k, c)) {
        mask_scores(k, c, w);
        weigh_exactly(k, c);
        return;
    }
    IF(ne(c->exact, imm(0))) {
        if (scores_late(k, c))
            make_scores(k, c, w);
        mask_scores(k, c, w);
        weigh_exactly(k, c);
    }
    ELSE
    {
        if (k->cfg->old)
            weigh_by_old(k, c, w, slot);
        else
            attention_online_softmax(&c->rows, c->scores, k->p.cap);
    }
}
