/* attention_naive.c - one thread computes one row of O: the definition on the GPU, for any sizes and strides. */
#include "operators/attention/attention_naive.h"

#include "cute/kernel.h"

enum { COLUMNS = 32 }; // of O that a thread holds at once

/* What gradients have, too */

naive_problem attention_naive_begin(const attention_naive_config *cfg)
{
    const attention_form *form = &cfg->form;
    launch_bounds(cfg->threads, 0);
    naive_problem g = { .form = form, .p = params_of(attention) };
    const attention_values *p = &g.p;
    g.q = convert(I64, p->q);
    g.kv = convert(I64, p->kv);
    g.heads = convert(I64, p->heads);
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        g.gX[i] = attention_tensor_of(form, p, i, p->x);
        g.gGradient[i] = attention_tensor_of(form, p, i, p->grad);
    }
    g.mask = (score_mask){ attention_mask_of(form, p), p->unit };
    val rows = form->ragged ? convert(I64, p->q_total) : g.q;
    g.gLse =
        gmem_tensor(p->lse, F32, make_layout(shape(p->all_heads, p->heads, rows), stride(mul(g.heads, rows), rows, 1)));
    grid_wait();
    launch_dependents();
    g.row = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    return g;
}

/* The problem of one sequence, as if it were the only batch. */
static naive_problem of_sequence(const naive_problem *all, val number)
{
    naive_problem g = *all;
    const sequence s = attention_sequence_of(g.form, &g.p, number);
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const val begin = i == ATTENTION_K || i == ATTENTION_V ? s.kv_at : s.q_at;
        g.gX[i].address = tensor_address(g.gX[i], coord(0, 0, begin, 0));
        g.gGradient[i].address = tensor_address(g.gGradient[i], coord(0, 0, begin, 0));
    }
    g.gLse.address = tensor_address(g.gLse, coord(0, 0, s.q_at));
    g.q = convert(I64, s.q);
    g.kv = convert(I64, s.kv);
    g.p.first = s.first;
    g.p.last = s.last;
    g.sequence = number;
    return g;
}

void attention_naive_at(const naive_problem *all, bool is_key, naive_of_token *of_token)
{
    val tokens = is_key ? all->kv : all->q, token = rem(all->row, tokens), every = div(all->row, tokens);
    val heads = is_key ? div(all->heads, convert(I64, all->p.group)) : all->heads;
    val head = rem(every, heads), batch = div(every, heads);
    if (!all->form->ragged) {
        of_token(all, batch, head, token);
        return;
    }
    const naive_problem g = of_sequence(all, batch);
    IF(lt(token, is_key ? g.kv : g.q))
        of_token(&g, imm64(0), head, token);
}

naive_keys attention_naive_keys_of(const naive_problem *g, val query)
{
    val zero = imm64(0), first = add(query, convert(I64, g->p.first)), last = add(query, convert(I64, g->p.last));
    return (naive_keys){ g->form->left ? max(first, zero) : zero,
                         g->form->right ? min(max(add(last, imm64(1)), zero), g->kv) : g->kv };
}

val attention_naive_dot(tensor gX, tensor gY, int count)
{
    val sum = variable(F32, immf(0));
    LOOP(l, imm(count))
        assign(sum, fma(at_f32(gX, l), at_f32(gY, l), sum));
    return sum;
}

naive_head attention_naive_head_of(const naive_problem *g, val batch, val head)
{
    const val of_all = add(mul(g->form->ragged ? g->sequence : batch, g->heads), head);
    return (naive_head){ batch, head, div(head, convert(I64, g->p.group)),
                         attention_custom_score_of(g->form, &g->p, convert(U32, of_all)) };
}

naive_score attention_naive_score(const naive_problem *g, const naive_head *h, val i, val j)
{
    const attention_form *form = g->form;
    naive_score s = { .capped = attention_naive_dot(slice(g->gX[ATTENTION_Q], h->batch, h->head, i, _),
                                                    slice(g->gX[ATTENTION_K], h->batch, h->kv_head, j, _), form->d) };
    if (form->softcap)
        s.capped = tanh_f32(mul(s.capped, g->p.factor));
    s.score = s.masked = s.capped;
    if (form->mask)
        s.score = s.masked = attention_masked_score(&g->mask, s.capped, at(g->mask.gM, h->batch, h->head, i, j));
    if (h->custom.how)
        s.score = attention_custom_value(&h->custom, s.masked, convert(I32, i), convert(I32, j));
    return s;
}

/* A row of O */

typedef struct row_of_o {
    naive_head of;
    val query;
    naive_keys keys; // that it sees
    val max, sum;    // of the scores; of 2^(exponent * (score - max))
} row_of_o;

static val score(const naive_problem *g, const row_of_o *r, val j)
{
    return attention_naive_score(g, &r->of, r->query, j).score;
}

static val power(const naive_problem *g, val difference)
{
    return exp2(mul(difference, g->p.exponent));
}

static void add_score(const naive_problem *g, const row_of_o *r, val s)
{
    val larger = max(r->max, s);
    assign(r->sum, fma(r->sum, power(g, sub(r->max, larger)), power(g, sub(s, larger))));
    assign(r->max, larger);
}

/* Columns first .. first+count-1 of O. */
static void weigh_values(const naive_problem *g, const row_of_o *r, int first, int count)
{
    tensor rO = fragment(F32, compact(leaf(count))),
           gO = slice(g->gX[ATTENTION_O], r->of.batch, r->of.head, r->query, _);
    tensor gV = slice(g->gX[ATTENTION_V], r->of.batch, r->of.kv_head, _, _); // (KV,DV)
    fill(rO, immf(0));
    LOOP_FROM(j, r->keys.first, r->keys.end, imm64(1)) {
        val weight = power(g, sub(score(g, r, j), r->max));
        for (int c = 0; c < count; c++)
            set(rO, c, fma(weight, at_f32(gV, j, first + c), at(rO, c)));
    }
    val inverse = select(eq(r->sum, immf(0)), immf(0), div(immf(1), r->sum));
    for (int c = 0; c < count; c++)
        set(gO, first + c, convert(g->form->dtype, mul(at(rO, c), inverse)));
}

static void of_query(const naive_problem *g, val batch, val head, val i)
{
    const attention_form *form = g->form;
    const row_of_o r = { .of = attention_naive_head_of(g, batch, head),
                         .query = i,
                         .keys = attention_naive_keys_of(g, i),
                         .max = variable(F32, immf(ATTENTION_FLOOR)),
                         .sum = variable(F32, immf(0)) };
    LOOP_FROM(j, r.keys.first, r.keys.end, imm64(1))
        add_score(g, &r, score(g, &r, j));
    if (form->sinks) // the score of one more key
        add_score(g, &r, div(mul(at(gmem_vector(g->p.sinks, F32, g->heads), head), immf(M_LOG2E)), g->p.exponent));
    for (int first = 0; first < form->dv; first += COLUMNS)
        weigh_values(g, &r, first, form->dv - first < COLUMNS ? form->dv - first : COLUMNS);
    if (form->lse) {
        val logarithm = fma(r.max, mul(g->p.exponent, immf(M_LN2)), log_f32(r.sum));
        set(g->gLse, coord(batch, head, i), select(eq(r.sum, immf(0)), immf(-INFINITY), logarithm));
    }
}

void attention_naive(const void *config, int kernel)
{
    (void)kernel;
    const naive_problem g = attention_naive_begin(config);
    IF(lt(g.row, mul(convert(I64, g.p.all_heads), g.q)))
        attention_naive_at(&g, false, of_query);
}
