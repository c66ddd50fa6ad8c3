/* attention_naive.c - one thread computes one row of O: the definition on the GPU, for any sizes and strides. */
#include "cute/kernel.h"
#include "operators/attention/attention_score.h"
#include "operators/attention/attention_tile.h"

enum { COLUMNS = 32 }; // of O that a thread holds at once

/* A thread's row. */
typedef struct row_of_o {
    tensor gQ, gO;   // (D), (DV)
    tensor gK, gV;   // (KV,D), (KV,DV) of its head
    score_mask mask; // (KV)
    tensor gLse;     // (1)
    val first, end;  // keys that it sees
    custom_score custom;
    val query;    // i32
    val max, sum; // of the scores; of 2^(exponent * (score - max))
} row_of_o;

static row_of_o row_at(const attention_form *form, const attention_values *p, val row)
{
    val q = convert(I64, p->q), i = rem(row, q), every = div(row, q);
    val head = rem(every, convert(I64, p->heads)), batch = div(every, convert(I64, p->heads)), kv = convert(I64, p->kv);
    val kv_head = div(head, convert(I64, p->group)), from = imm64(0);
    sequence s = attention_sequence_of(form, p, batch);
    val first = add(i, convert(I64, s.first)), last = add(i, convert(I64, s.last)), queries = q;
    tensor gK = slice(attention_tensor_of(form, p, ATTENTION_K, p->x), batch, kv_head, _, _);
    tensor gV = slice(attention_tensor_of(form, p, ATTENTION_V, p->x), batch, kv_head, _, _);
    if (form->ragged) {
        IF(ge(i, convert(I64, s.q)))
            exit_thread();
        gK = slice(attention_tensor_of(form, p, ATTENTION_K, p->x), 0, kv_head, _, _);
        gV = slice(attention_tensor_of(form, p, ATTENTION_V, p->x), 0, kv_head, _, _);
        gK.address = tensor_address(gK, coord(s.kv_at, 0));
        gV.address = tensor_address(gV, coord(s.kv_at, 0));
        kv = convert(I64, s.kv);
        i = add(i, convert(I64, s.q_at));
        batch = from;
        queries = convert(I64, p->q_total);
    }
    layout logarithms = make_layout(shape(p->all_heads, p->heads, queries),
                                    stride(mul(convert(I64, p->heads), queries), queries, 1)); // (BATCH,HEADS,Q)
    return (row_of_o){
        .gQ = slice(attention_tensor_of(form, p, ATTENTION_Q, p->x), batch, head, i, _),
        .gO = slice(attention_tensor_of(form, p, ATTENTION_O, p->x), batch, head, i, _),
        .gK = gK,
        .gV = gV,
        .gLse = gmem_tensor(tensor_address(gmem_tensor(p->lse, F32, logarithms), coord(batch, head, i)), F32,
                            compact(leaf(1))),
        .mask = { slice(attention_mask_of(form, p), batch, head, i, _), p->unit },
        .custom = attention_custom_score_of(form, p, convert(U32, every)),
        .query = convert(I32, rem(row, q)),
        .first = form->left ? max(first, imm64(0)) : imm64(0),
        .end = form->right ? min(max(add(last, imm64(1)), imm64(0)), kv) : kv,
        .max = variable(F32, immf(ATTENTION_FLOOR)),
        .sum = variable(F32, immf(0)),
    };
}

static val score(const attention_form *form, const attention_values *p, const row_of_o *r, val j)
{
    val sum = variable(F32, immf(0));
    LOOP(l, imm(form->d))
        assign(sum, fma(at_f32(r->gQ, l), at_f32(r->gK, j, l), sum));
    val x = form->softcap ? tanh_f32(mul(sum, p->factor)) : sum;
    if (form->mask)
        x = attention_masked_score(&r->mask, x, at(r->mask.gM, j));
    return r->custom.how ? attention_custom_value(&r->custom, x, r->query, convert(I32, j)) : x;
}

static val power(const attention_values *p, val difference)
{
    return exp2(mul(difference, p->exponent));
}

/* The maximum of the scores and the sum of their exponentials, in one pass. */
static void find_sum(const attention_form *form, const attention_values *p, const row_of_o *r)
{
    LOOP_FROM(j, r->first, r->end, imm64(1)) {
        val s = score(form, p, r, j), larger = max(r->max, s);
        assign(r->sum, fma(r->sum, power(p, sub(r->max, larger)), power(p, sub(s, larger))));
        assign(r->max, larger);
    }
}

/* Adds the head's sink, as the score of one more key, to max and sum. */
static void add_sink(const attention_values *p, const row_of_o *r, val head)
{
    tensor gSinks = gmem_vector(p->sinks, F32, p->heads); // (HEADS)
    val sink = div(mul(at(gSinks, head), immf(M_LOG2E)), p->exponent), larger = max(r->max, sink);
    assign(r->sum, fma(r->sum, power(p, sub(r->max, larger)), power(p, sub(sink, larger))));
    assign(r->max, larger);
}

/* Columns first .. first+count-1 of O. */
static void weigh_values(const attention_form *form, const attention_values *p, const row_of_o *r, int first, int count)
{
    tensor rO = fragment(F32, compact(leaf(count))); // (COUNT)
    fill(rO, immf(0));
    LOOP_FROM(j, r->first, r->end, imm64(1)) {
        val weight = power(p, sub(score(form, p, r, j), r->max));
        for (int c = 0; c < count; c++)
            set(rO, c, fma(weight, at_f32(r->gV, j, first + c), at(rO, c)));
    }
    val inverse = select(eq(r->sum, immf(0)), immf(0), div(immf(1), r->sum));
    for (int c = 0; c < count; c++)
        set(r->gO, first + c, convert(form->dtype, mul(at(rO, c), inverse)));
}

void attention_naive(const void *config, int kernel)
{
    const attention_naive_config *cfg = config;
    const attention_form *form = &cfg->form;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
    attention_values p = params_of(attention);
    grid_wait();
    launch_dependents();
    val row = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    val rows = mul(convert(I64, p.all_heads), convert(I64, p.q));
    IF(lt(row, rows)) {
        row_of_o r = row_at(form, &p, row);
        find_sum(form, &p, &r);
        if (form->sinks)
            add_sink(&p, &r, rem(div(row, convert(I64, p.q)), convert(I64, p.heads)));
        for (int first = 0; first < form->dv; first += COLUMNS)
            weigh_values(form, &p, &r, first, form->dv - first < COLUMNS ? form->dv - first : COLUMNS);
        if (form->lse) {
            val logarithm = fma(r.max, mul(p.exponent, immf(M_LN2)), log_f32(r.sum));
            set(r.gLse, 0, select(eq(r.sum, immf(0)), immf(-INFINITY), logarithm));
        }
    }
}
