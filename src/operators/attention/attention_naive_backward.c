/*
 * attention_naive_backward.c - the gradients by their definition, for any sizes and strides: a thread computes a row of
 * dQ; by the second kernel a row of dK and dV; by the third the gradient of a head's sink.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_naive.h"

enum { COLUMNS = 64 }; // of a gradient that a thread holds at once

/* dO * O of a query. */
static val delta_of(const naive_problem *g, val batch, val head, val i)
{
    return attention_naive_dot(slice(g->gGradient[ATTENTION_O], batch, head, i, _),
                               slice(g->gX[ATTENTION_O], batch, head, i, _), g->form->dv);
}

/* A query and a key: their weight, and its gradient before the soft cap and after it, where the mask is. */
typedef struct pair {
    val weight, slope, of_mask;
} pair;

/* NOTE: the head is found for each pair, as ptxas spills what it keeps of it (316 bytes). */
static pair pair_of(const naive_problem *g, val batch, val head, val i, val j)
{
    const naive_head h = attention_naive_head_of(g, batch, head);
    const naive_score s = attention_naive_score(g, &h, i, j);
    val bend = h.custom.how ? attention_custom_slope(&h.custom, s.masked, convert(I32, i), convert(I32, j)) : immf(1);
    val lse = at(g->gLse, batch, head, i);
    val weight = exp2(fma(s.score, g->p.exponent, mul(lse, immf(-M_LOG2E))));
    weight = select(eq(lse, immf(-INFINITY)), immf(0), weight);
    val of_value = attention_naive_dot(slice(g->gGradient[ATTENTION_O], batch, head, i, _),
                                       slice(g->gX[ATTENTION_V], batch, h.kv_head, j, _), g->form->dv);
    val slope = mul(mul(weight, bend), sub(of_value, delta_of(g, batch, head, i)));
    return (pair){ weight, g->form->softcap ? mul(slope, fma(neg(s.capped), s.capped, immf(1))) : slope, slope };
}

/* Columns first .. first+count-1 of a row of a gradient. */
static void store(tensor gRow, ckl_dtype dtype, int first, tensor rX, const val *factor)
{
    for (int c = 0; c < static_size(rX.layout); c++)
        set(gRow, first + c, convert(dtype, factor ? mul(at(rX, c), *factor) : at(rX, c)));
}

/* Stores the gradient of the mask at a key; 0 for keys that the query does not see. */
static void store_of_mask(const naive_problem *g, val batch, val head, val i, val j, val x)
{
    val all = convert(U32, add(mul(batch, g->heads), head));
    set(attention_mask_gradient_of(g->form, &g->p, all), coord(i, j), convert(g->form->dtype, x));
}

/* A row of dQ. */
static void of_query(const naive_problem *g, val batch, val head, val i)
{
    const naive_keys keys = attention_naive_keys_of(g, i);
    tensor gK = slice(g->gX[ATTENTION_K], batch, div(head, convert(I64, g->p.group)), _, _); // (KV,D)
    if (g->form->dmask)
        LOOP_FROM(j, imm64(0), g->kv, imm64(1))
            store_of_mask(g, batch, head, i, j, immf(0));
    for (int c0 = 0; c0 < g->form->d; c0 += COLUMNS) {
        tensor rX = fragment(F32, compact(leaf((int)min_i64(COLUMNS, g->form->d - c0)))); // (COLUMNS)
        fill(rX, immf(0));
        LOOP_FROM(j, keys.first, keys.end, imm64(1)) {
            pair x = pair_of(g, batch, head, i, j);
            if (g->form->dmask && c0 == 0)
                store_of_mask(g, batch, head, i, j, x.of_mask);
            for (int c = 0; c < static_size(rX.layout); c++)
                set(rX, c, fma(x.slope, at_f32(gK, j, c0 + c), at(rX, c)));
        }
        store(slice(g->gGradient[ATTENTION_Q], batch, head, i, _), g->form->dtype, c0, rX, &g->p.scale);
    }
}

/* Columns of dK or dV: sums over the queries that see a key, for each head of its group. */
static void sum_over_queries(const naive_problem *g, val batch, val kv_head, val j, bool of_keys, tensor rX, int c0)
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
                val y = at_f32(of_keys ? g->gX[ATTENTION_Q] : g->gGradient[ATTENTION_O], batch, head, i, c0 + c);
                set(rX, c, fma(of_keys ? x.slope : x.weight, y, at(rX, c)));
            }
        }
    }
}

/* A row of dK and dV. */
static void of_key(const naive_problem *g, val batch, val kv_head, val j)
{
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        int d = of_keys ? g->form->d : g->form->dv;
        tensor gRow = slice(g->gGradient[of_keys ? ATTENTION_K : ATTENTION_V], batch, kv_head, j, _); // (D)
        for (int c0 = 0; c0 < d; c0 += COLUMNS) {
            tensor rX = fragment(F32, compact(leaf((int)min_i64(COLUMNS, d - c0)))); // (COLUMNS)
            sum_over_queries(g, batch, kv_head, j, of_keys, rX, c0);
            store(gRow, g->form->dtype, c0, rX, of_keys ? &g->p.scale : NULL);
        }
    }
}

/* The gradient of the sink of a head. */
static void of_sink(const naive_problem *g, val head)
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
            assign(sum, fma(neg(weight), delta_of(g, batch, head, i), sum));
        }
    }
    set(gDsinks, head, sum);
}

void attention_naive_backward(const void *config, int kernel)
{
    enum { OF_QUERIES, OF_KEYS, OF_SINKS };
    const naive_problem g = attention_naive_begin(config);
    val heads = convert(I64, g.p.all_heads);
    const val rows[] = { mul(heads, g.q), mul(div(heads, convert(I64, g.p.group)), g.kv), g.heads };
    IF(lt(g.row, rows[kernel]))
        if (kernel == OF_SINKS)
            of_sink(&g, g.row);
        else
            attention_naive_at(&g, kernel == OF_KEYS, kernel == OF_KEYS ? of_key : of_query);
}
