/*
 * attention_naive_backward.c - the gradients by their definition, for any sizes and strides: a thread computes a row of
 * dQ; by the second kernel a row of dK and dV; by the third the gradient of a head's sink.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_score.h"

enum { COLUMNS = 64 }; // of a gradient that a thread holds at once

/* Everything that a thread knows. Tensors: (BATCH,HEADS,TOKENS,D). */
typedef struct gradients {
    const attention_form *form;
    attention_values p;
    val q, kv, heads; // i64
    tensor gQ, gK, gV, gO, gDout, gDq, gDk, gDv;
    score_mask mask; // (BATCH,HEADS,Q,KV)
    tensor gLse;     // (BATCH,HEADS,Q)
    val sequence;    // its number, if ragged: the tensors are those of it, of one batch
} gradients;

static gradients describe(const attention_form *form)
{
    gradients g = { .form = form, .p = params_of(attention) };
    const attention_values *p = &g.p;
    g.q = convert(I64, p->q);
    g.kv = convert(I64, p->kv);
    g.heads = convert(I64, p->heads);
    g.gQ = attention_tensor_of(form, p, ATTENTION_Q, p->x);
    g.gK = attention_tensor_of(form, p, ATTENTION_K, p->x);
    g.gV = attention_tensor_of(form, p, ATTENTION_V, p->x);
    g.gO = attention_tensor_of(form, p, ATTENTION_O, p->x);
    g.gDq = attention_tensor_of(form, p, ATTENTION_Q, p->grad);
    g.gDk = attention_tensor_of(form, p, ATTENTION_K, p->grad);
    g.gDv = attention_tensor_of(form, p, ATTENTION_V, p->grad);
    g.gDout = attention_tensor_of(form, p, ATTENTION_O, p->grad);
    g.mask = (score_mask){ attention_mask_of(form, p), p->unit };
    val rows = form->ragged ? convert(I64, p->q_total) : g.q;
    g.gLse =
        gmem_tensor(p->lse, F32, make_layout(shape(p->all_heads, p->heads, rows), stride(mul(g.heads, rows), rows, 1)));
    return g;
}

/* A tensor from a token on. */
static tensor from_token(tensor g, val token, bool has_columns)
{
    g.address = has_columns ? tensor_address(g, coord(0, 0, token, 0)) : tensor_address(g, coord(0, 0, token));
    return g;
}

/* The same of a sequence, as if it were the only batch. */
static gradients of_sequence(const gradients *all, val number)
{
    gradients g = *all;
    const struct sequence s = attention_sequence_of(g.form, &g.p, number);
    tensor *const of_queries[] = { &g.gQ, &g.gO, &g.gDout, &g.gDq }, *const of_keys[] = { &g.gK, &g.gV, &g.gDk,
                                                                                          &g.gDv };
    for (int i = 0; i < COUNT_OF(of_queries); i++) {
        *of_queries[i] = from_token(*of_queries[i], s.q_at, true);
        *of_keys[i] = from_token(*of_keys[i], s.kv_at, true);
    }
    g.gLse = from_token(g.gLse, s.q_at, false);
    g.q = convert(I64, s.q);
    g.kv = convert(I64, s.kv);
    g.p.first = s.first;
    g.p.last = s.last;
    g.sequence = number;
    return g;
}

/* The sum of the products of two vectors. */
static val dot(tensor gX, tensor gY, int count)
{
    val sum = variable(F32, immf(0));
    LOOP(l, imm(count))
        assign(sum, fma(at_f32(gX, l), at_f32(gY, l), sum));
    return sum;
}

/* A query and a key: their weight, and its gradient before the soft cap and after it, where the mask is. */
typedef struct pair {
    val weight, slope, of_mask;
} pair;

static pair pair_of(const gradients *g, val batch, val head, val i, val j)
{
    const attention_form *form = g->form;
    val kv_head = div(head, convert(I64, g->p.group));
    val raw = dot(slice(g->gQ, batch, head, i, _), slice(g->gK, batch, kv_head, j, _), form->d);
    val capped = form->softcap ? tanh_f32(mul(raw, g->p.factor)) : raw, score = capped;
    if (form->mask)
        score = attention_masked_score(&g->mask, capped, at(g->mask.gM, batch, head, i, j));
    custom_score custom = attention_custom_score_of(
        form, &g->p, convert(U32, add(mul(form->ragged ? g->sequence : batch, g->heads), head)));
    val query = convert(I32, i), key = convert(I32, j), bend = immf(1);
    if (custom.how) {
        bend = attention_custom_slope(&custom, score, query, key);
        score = attention_custom_value(&custom, score, query, key);
    }
    val lse = at(g->gLse, batch, head, i);
    val weight = exp2(fma(score, g->p.exponent, mul(lse, immf(-M_LOG2E))));
    weight = select(eq(lse, immf(-INFINITY)), immf(0), weight);
    tensor gDout = slice(g->gDout, batch, head, i, _);
    val of_values = dot(gDout, slice(g->gV, batch, kv_head, j, _), form->dv);
    val slope = mul(mul(weight, bend), sub(of_values, dot(gDout, slice(g->gO, batch, head, i, _), form->dv)));
    return (pair){ weight, form->softcap ? mul(slope, fma(neg(capped), capped, immf(1))) : slope, slope };
}

/* Columns first .. first+count-1 of a row of a gradient. */
static void store(tensor gRow, ckl_dtype dtype, int first, tensor rX, const val *factor)
{
    for (int c = 0; c < static_size(rX.layout); c++)
        set(gRow, first + c, convert(dtype, factor ? mul(at(rX, c), *factor) : at(rX, c)));
}

static int columns_from(int first, int d)
{
    return d - first < COLUMNS ? d - first : COLUMNS;
}

/* Stores the gradient of the mask at a key; 0 for keys that the query does not see. */
static void store_of_mask(const gradients *g, val batch, val head, val i, val j, val x)
{
    val all = convert(U32, add(mul(batch, g->heads), head));
    set(attention_mask_gradient_of(g->form, &g->p, all), coord(i, j), convert(g->form->dtype, x));
}

/* A row of dQ. */
static void of_query(const gradients *g, val batch, val head, val i)
{
    val kv_head = div(head, convert(I64, g->p.group)), zero = imm64(0);
    val first = g->form->left ? max(add(i, convert(I64, g->p.first)), zero) : zero;
    val end = g->form->right ? min(max(add(add(i, convert(I64, g->p.last)), imm64(1)), zero), g->kv) : g->kv;
    if (g->form->dmask)
        LOOP_FROM(j, zero, g->kv, imm64(1))
            store_of_mask(g, batch, head, i, j, immf(0));
    for (int c0 = 0; c0 < g->form->d; c0 += COLUMNS) {
        tensor rX = fragment(F32, compact(leaf(columns_from(c0, g->form->d)))); // (COLUMNS)
        fill(rX, immf(0));
        LOOP_FROM(j, first, end, imm64(1)) {
            pair x = pair_of(g, batch, head, i, j);
            if (g->form->dmask && c0 == 0)
                store_of_mask(g, batch, head, i, j, x.of_mask);
            for (int c = 0; c < static_size(rX.layout); c++)
                set(rX, c, fma(x.slope, at_f32(g->gK, batch, kv_head, j, c0 + c), at(rX, c)));
        }
        store(slice(g->gDq, batch, head, i, _), g->form->dtype, c0, rX, &g->p.scale);
    }
}

/* Columns of dK or dV: sums over the queries that see a key, for each head of its group. */
static void sum_over_queries(const gradients *g, val batch, val kv_head, val j, bool of_keys, tensor rX, int c0)
{
    val zero = imm64(0), group = convert(I64, g->p.group);
    val first = g->form->right ? min(max(sub(j, convert(I64, g->p.last)), zero), g->q) : zero;
    val end = g->form->left ? min(max(add(sub(j, convert(I64, g->p.first)), imm64(1)), zero), g->q) : g->q;
    fill(rX, immf(0));
    LOOP_FROM(of_group, zero, group, imm64(1)) {
        val head = add(mul(kv_head, group), of_group);
        LOOP_FROM(i, first, end, imm64(1)) {
            pair x = pair_of(g, batch, head, i, j);
            for (int c = 0; c < static_size(rX.layout); c++) {
                val y = at_f32(of_keys ? g->gQ : g->gDout, batch, head, i, c0 + c);
                set(rX, c, fma(of_keys ? x.slope : x.weight, y, at(rX, c)));
            }
        }
    }
}

/* A row of dK and dV. */
static void of_key(const gradients *g, val batch, val kv_head, val j)
{
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        int d = of_keys ? g->form->d : g->form->dv;
        tensor gRow = slice(of_keys ? g->gDk : g->gDv, batch, kv_head, j, _); // (D)
        for (int c0 = 0; c0 < d; c0 += COLUMNS) {
            tensor rX = fragment(F32, compact(leaf(columns_from(c0, d)))); // (COLUMNS)
            sum_over_queries(g, batch, kv_head, j, of_keys, rX, c0);
            store(gRow, g->form->dtype, c0, rX, of_keys ? &g->p.scale : NULL);
        }
    }
}

/* Row `row` of dQ, or of dK and dV, in all heads. */
static void of_token(const gradients *all, val row, bool is_key)
{
    void (*const gradients_of)(const gradients *g, val batch, val head, val token) = is_key ? of_key : of_query;
    val tokens = is_key ? all->kv : all->q, token = rem(row, tokens), every = div(row, tokens);
    val heads = is_key ? div(all->heads, convert(I64, all->p.group)) : all->heads;
    val head = rem(every, heads), batch = div(every, heads);
    if (!all->form->ragged) {
        gradients_of(all, batch, head, token);
        return;
    }
    const gradients g = of_sequence(all, batch);
    IF(lt(token, is_key ? g.kv : g.q))
        gradients_of(&g, imm64(0), head, token);
}

/* The gradient of the sink of a head. */
static void of_sink(const gradients *g, val head)
{
    tensor gSinks = gmem_vector(g->p.sinks, F32, g->heads),
           gDsinks = gmem_vector(g->p.dsinks, F32, g->heads); // (HEADS)
    val sum = variable(F32, immf(0)), sink = at(gSinks, head);
    val batches = div(convert(I64, g->p.all_heads), g->heads), queries = g->q;
    if (g->form->ragged) { // all sequences as one
        tensor gStarts = gmem_vector(g->p.starts_q, I32, add(batches, imm64(1)));
        queries = convert(I64, at(gStarts, batches));
        batches = imm64(1);
    }
    LOOP_FROM(batch, imm64(0), batches, imm64(1)) {
        LOOP_FROM(i, imm64(0), queries, imm64(1)) {
            val weight = exp2(mul(sub(sink, at(g->gLse, batch, head, i)), immf(M_LOG2E)));
            val delta = dot(slice(g->gDout, batch, head, i, _), slice(g->gO, batch, head, i, _), g->form->dv);
            assign(sum, fma(neg(weight), delta, sum));
        }
    }
    set(gDsinks, head, sum);
}

void attention_naive_backward(const void *config, int kernel)
{
    enum { OF_QUERIES, OF_KEYS, OF_SINKS };
    const attention_naive_config *cfg = config;
    launch_bounds(cfg->threads, 0);
    gradients g = describe(&cfg->form);
    grid_wait();
    launch_dependents();
    val row = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    val heads = convert(I64, g.p.all_heads);
    const val rows[] = { mul(heads, g.q), mul(div(heads, convert(I64, g.p.group)), g.kv), g.heads };
    IF(lt(row, rows[kernel]))
        if (kernel == OF_SINKS)
            of_sink(&g, row);
        else
            of_token(&g, row, kernel == OF_KEYS);
}
