/* attention_decode_naive.c - one thread computes one row of O: the definition on the GPU, for any sizes and strides. */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_place.h"

enum { COLUMNS = 32 }; // of O that a thread holds at once

/* A thread's row. */
typedef struct decode_row {
    const attention_decode_form *form;
    const attention_decode_values *p;
    val batch, head, token, kv_head; // i64
    tensor gQ, gO;                   // (D), (DV)
    // of its head of K and V
    tensor gCache[ATTENTION_TENSORS]; // (BATCHES or PAGES,KV,D or DV)
    tensor gNew[ATTENTION_TENSORS];   // (TOKENS,D or DV)
    val scale[ATTENTION_TENSORS];     // where the cache has such
    val old;                          // keys before the new ones, perhaps less than 0
    val first, end;                   // keys that it sees
    val max, sum;                     // of the scores; of 2^(exponent * (score - max))
    val lost;                         // what rounding added to the sum
} decode_row;

/* (BATCHES,TOKENS,D) of a head of one of the tensors. */
static tensor of_head(const attention_decode_values *p, const attention_decode_form *form, int which, val head)
{
    const decode_place place = { .form = *form, .p = *p };
    tensor gX = attention_decode_tensor_of(&place, which, p->x[which]); // (BATCHES,HEADS,TOKENS,D)
    if (form->cache == CKL_E4M3 && (which == ATTENTION_K || which == ATTENTION_V))
        gX.dtype = CKL_U8;
    return slice(gX, _, head, _, _);
}

static decode_row row_at(const attention_decode_form *form, const attention_decode_values *p, val row)
{
    decode_row r = { .form = form, .p = p, .token = rem(row, imm64(form->tokens)) };
    val every = div(row, imm64(form->tokens)), heads = mul(convert(I64, p->kv_heads), imm64(form->group));
    r.head = rem(every, heads);
    r.batch = div(every, heads);
    r.kv_head = div(r.head, imm64(form->group));
    r.gQ = slice(of_head(p, form, ATTENTION_Q, r.head), r.batch, r.token, _);
    r.gO = slice(of_head(p, form, ATTENTION_O, r.head), r.batch, r.token, _);
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++) {
        const int of_new = which == ATTENTION_K ? DECODE_K_NEW : DECODE_V_NEW;
        r.gCache[which] = of_head(p, form, which, r.kv_head);
        if (form->append)
            r.gNew[which] = slice(of_head(p, form, of_new, r.kv_head), r.batch, _, _);
        if (form->cache == CKL_E4M3)
            r.scale[which] = at(gmem_vector(p->scales[which], F32, p->kv_heads), r.kv_head); // (HEADS)
    }
    tensor gLengths = gmem_vector(p->lengths, I32, p->batch); // (BATCH)
    val length = max(min(convert(I64, at(gLengths, r.batch)), convert(I64, p->kv)), imm64(0));
    r.old = sub(length, imm64(form->tokens));
    r.end = add(add(r.old, imm64(1)), r.token);
    r.first = form->left ? max(sub(r.end, convert(I64, p->left)), imm64(0)) : imm64(0);
    r.max = variable(F32, immf(ATTENTION_FLOOR));
    r.sum = variable(F32, immf(0));
    r.lost = variable(F32, immf(0));
    return r;
}

/* The place of key j: its page or sequence, and its number there. */
static void place_of(const decode_row *r, val j, val *of, val *key)
{
    if (!r->form->page) {
        *of = r->batch;
        *key = j;
        return;
    }
    tensor gTable = attention_decode_table_of(r->p); // (PAGES,BATCH)
    *of = convert(I64, at(gTable, div(j, imm64(r->form->page)), r->batch));
    *key = rem(j, imm64(r->form->page));
}

/* An element of K or V that is appended, as the cache will have it: of 8 bits as a u8. */
static val new_element(const decode_row *r, int which, val token, val column)
{
    val x = at(r->gNew[which], token, column);
    if (r->form->cache != CKL_E4M3)
        return x;
    return convert(IR_U16, attention_e4m3_of_f32(div(convert(F32, x), r->scale[which])));
}

static val stored_element(const decode_row *r, int which, val j, val column)
{
    val of, key;
    place_of(r, j, &of, &key);
    return at(r->gCache[which], of, key, column);
}

static val number_of(const decode_row *r, val stored)
{
    return r->form->cache == CKL_E4M3 ? attention_f32_of_e4m3(stored) : convert(F32, stored);
}

/* An element of key or value j, without its scale. */
static val element(const decode_row *r, int which, val j, val column)
{
    if (!r->form->append)
        return number_of(r, stored_element(r, which, j, column));
    val x = variable(F32, immf(0));
    IF(ge(j, r->old)) {
        assign(x, number_of(r, new_element(r, which, sub(j, r->old), column)));
    }
    ELSE
    {
        assign(x, number_of(r, stored_element(r, which, j, column)));
    }
    return x;
}

static val score(const decode_row *r, val j)
{
    val sum = variable(F32, immf(0));
    LOOP(l, imm(r->form->d))
        assign(sum, fma(at_f32(r->gQ, l), element(r, ATTENTION_K, j, l), sum));
    if (r->form->cache == CKL_E4M3)
        sum = mul(sum, r->scale[ATTENTION_K]);
    return r->form->softcap ? tanh_f32(mul(sum, r->p->factor)) : sum;
}

static val power(const decode_row *r, val difference)
{
    return exp2(mul(difference, r->p->exponent));
}

/* The sum is a compensated one, after W. Kahan: cache lengths have no limit. */
static void add_score(const decode_row *r, val s)
{
    val larger = max(r->max, s), factor = power(r, sub(r->max, larger)), before = mul(r->sum, factor);
    val weight = sub(power(r, sub(s, larger)), mul(r->lost, factor));
    assign(r->sum, add(before, weight));
    assign(r->lost, sub(sub(r->sum, before), weight));
    assign(r->max, larger);
}

/* Columns first .. first+count-1 of O. */
static void weigh_values(const decode_row *r, val first, int count)
{
    tensor rO = fragment(F32, compact(leaf(count))); // (COUNT)
    fill(rO, immf(0));
    LOOP_FROM(j, r->first, r->end, imm64(1)) {
        val weight = power(r, sub(score(r, j), r->max));
        for (int c = 0; c < count; c++)
            set(rO, c, fma(weight, element(r, ATTENTION_V, j, add(first, imm64(c))), at(rO, c)));
    }
    val inverse = select(eq(r->sum, immf(0)), immf(0), div(immf(1), r->sum));
    if (r->form->cache == CKL_E4M3)
        inverse = mul(inverse, r->scale[ATTENTION_V]);
    for (int c = 0; c < count; c++)
        set(r->gO, add(first, imm64(c)), convert(r->form->dtype, mul(at(rO, c), inverse)));
}

/* Writes the row's token to the cache, for the first head of each group. */
static void append_row(const decode_row *r)
{
    val key = add(r->old, r->token), of, at;
    IF(logical_and(eq(rem(r->head, imm64(r->form->group)), imm64(0)), ge(key, imm64(0)))) {
        place_of(r, key, &of, &at);
        for (int which = ATTENTION_K; which <= (r->form->latent ? ATTENTION_K : ATTENTION_V); which++) {
            tensor gInto = r->gCache[which];
            gInto.address = add(sub(gInto.address, r->p->x[which]), r->p->into[which]);
            LOOP(l, imm64(which == ATTENTION_K ? r->form->d : r->form->dv))
                set(gInto, coord(of, at, l), new_element(r, which, r->token, l));
        }
    }
}

void attention_decode_naive(const void *config, int kernel)
{
    const attention_decode_naive_config *cfg = config;
    const attention_decode_form *form = &cfg->form;
    const int whole = form->dv / COLUMNS * COLUMNS;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
    attention_decode_values p = params_of(attention_decode);
    grid_wait();
    launch_dependents();
    val row = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    val rows = mul(mul(convert(I64, p.batch), convert(I64, p.kv_heads)), imm64(form->group * form->tokens));
    IF(lt(row, rows)) {
        decode_row r = row_at(form, &p, row);
        if (form->append)
            append_row(&r);
        LOOP_FROM(j, r.first, r.end, imm64(1))
            add_score(&r, score(&r, j));
        if (form->sinks) {                                                                // the score of one more key
            tensor gSinks = gmem_vector(p.sinks, F32, mul(p.kv_heads, imm(form->group))); // (HEADS)
            add_score(&r, div(mul(at(gSinks, r.head), immf(M_LOG2E)), p.exponent));
        }
        if (whole)
            LOOP_FROM(first, imm64(0), imm64(whole), imm64(COLUMNS))
                weigh_values(&r, first, COLUMNS);
        if (whole < form->dv)
            weigh_values(&r, imm64(whole), form->dv - whole);
        if (form->lse) {
            tensor gLse = gmem_vector(p.lse, F32, rows); // (ROWS)
            val logarithm = fma(r.max, mul(p.exponent, immf(M_LN2)), log_f32(r.sum));
            set(gLse, row, select(eq(r.sum, immf(0)), immf(-INFINITY), logarithm));
        }
    }
}
