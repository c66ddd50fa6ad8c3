/*
 * attention_sm90_producer.c - a warp brings Q, and blocks of K and V in the order of their use, by TMA. Its lanes walk
 * together, and one of them gives the orders.
 */
#include "operators/attention/attention_sm90.h"

/* Of a thread, by the number of consumers. */
static const int PRODUCER_REGISTERS[] = { [1] = 24, [2] = 24, [3] = 32 };

walk attention_sm90_walk(void)
{
    val turn = variable(U32, imm(0));
    return (walk){ turn, variable(U32, cta_x()) };
}

tile attention_sm90_tile_of(const sm90_kernel *k, val number)
{
    if (!k->cfg->parts)
        return attention_tile_of(&k->grid, number);
    const val whole = k->whole, part = sub(max(number, whole), whole), of = imm(k->cfg->consumers);
    tile t = attention_tile_of(&k->grid, select(lt(number, whole), number, add(whole, div(part, of))));
    t.row = add(t.row, mul(rem(part, of), imm(ROWS)));
    return t;
}

/* NOTE: ptxas serialises wgmma in loops that it cannot prove uniform. */
void attention_sm90_next_tile(const sm90_kernel *k, walk *w, bool fetches)
{
    if (k->cfg->draw) {
        if (fetches)
            IF(elect())
                scheduler_fetch(&k->scheduler, w->turn);
        assign(w->number, shuffle(scheduler_next(&k->scheduler, w->turn), imm(0)));
    } else
        assign(w->number, add(cta_x(), mul(w->turn, grid_x())));
    assign(w->turn, add(w->turn, imm(1)));
}

/* A tile and where its K and V, and its Q, are: found once, since a division takes one thread a hundred cycles. */
typedef struct tile_source {
    const tile *t;
    tile_place keys, queries;
} tile_source;

/* A block of K or V into the ring's next slot. */
static void load_block(const sm90_kernel *k, pipeline_state *ring, const tile_source *from, int which, val block)
{
    const bool is_k = which == ATTENTION_K;
    const sequence *s = &from->t->s;
    const columns c = is_k ? k->d : k->dv;
    const tile_box at =
        attention_box_of(k->form->ragged, s->kv_at, s->kv, mul(block, imm(k->cfg->tile_n)), &from->keys);
    pipeline_wait_empty(&k->ring, ring);
    IF(elect()) {
        pipeline_expect(&k->ring, ring, imm((int)attention_columns_bytes(c, k->cfg->tile_n)));
        attention_load_chunks(is_k ? &k->tmaK : &k->tmaV, slice(is_k ? k->sK : k->sV, _, _, _, ring->stage), &at,
                              pipeline_full_barrier(&k->ring, ring));
    }
    pipeline_advance(ring);
}

static void load_queries(const sm90_kernel *k, const pipeline_state *q, const tile_source *from)
{
    const sequence *s = &from->t->s;
    for (int w = 0; w < k->cfg->consumers; w++) {
        const val row = add(from->t->row, imm(w * ROWS));
        const tile_box at = attention_box_of(k->form->ragged, s->q_at, s->q, row, &from->queries);
        const pipeline_state stage = { add(q->stage, imm(w)), q->parity, q->stages };
        pipeline_wait_empty(&k->q, &stage);
        IF(elect()) {
            pipeline_expect(&k->q, &stage, imm((int)attention_columns_bytes(k->d, ROWS)));
            attention_load_chunks(&k->tmaQ, slice(k->sQ, _, _, _, stage.stage), &at,
                                  pipeline_full_barrier(&k->q, &stage));
        }
    }
}

static void load_tile(const sm90_kernel *k, pipeline_state *ring, const pipeline_state *q, const tile *t)
{
    custom_score custom = attention_custom_score_of(k->form, &k->p, t->head);
    key_walk w = attention_key_walk_begin(&custom, &k->grid, t);
    tile_source from = { .t = t, .queries = attention_place_of(&k->grid, t->head, false) };
    from.keys = (tile_place){ div(from.queries.head, k->p.group), from.queries.batch };
    load_block(k, ring, &from, ATTENTION_K, w.block);
    load_queries(k, q, &from);
    if (!k->cfg->single)
        FOREVER {
            attention_key_walk_look(&w);
            BREAK_IF(attention_key_walk_is_last(&w));
            load_block(k, ring, &from, ATTENTION_K, attention_key_walk_next(&w));
            load_block(k, ring, &from, ATTENTION_V, w.block);
            attention_key_walk_advance(&w);
        }
    load_block(k, ring, &from, ATTENTION_V, w.block);
}

void attention_sm90_produce(const sm90_kernel *k)
{
    if (k->cfg->consumers > 1 || k->cfg->ctas > 1)
        warpgroup_reg_dealloc(PRODUCER_REGISTERS[k->cfg->consumers]);
    IF(eq(warp(), imm(0))) {
        pipeline_state ring = producer_state(&k->ring), q = producer_state(&k->q);
        if (k->cfg->queries == 1)
            q.stage = imm_as(U32, 0);
        walk w = attention_sm90_walk();
        FOREVER {
            attention_sm90_next_tile(k, &w, true);
            BREAK_IF(ge(w.number, k->tiles));
            tile t = attention_sm90_tile_of(k, w.number);
            load_tile(k, &ring, &q, &t);
            attention_sm90_advance_queries(k, &q);
        }
    }
}
