/* attention_tile.c - the order of tiles, the keys that rows see, tensors and masks in global memory. */
#include "operators/attention/attention_tile.h"

#include "cute/kernel.h"

sequence attention_sequence_of(const attention_form *form, const attention_values *p, val batch)
{
    if (!form->ragged)
        return (sequence){ .q = p->q, .kv = p->kv, .first = p->first, .last = p->last };
    const tensor gStarts[] = { gmem_vector(p->starts_q, I32, p->all_heads),
                               gmem_vector(p->starts_kv, I32, p->all_heads) }; // (BATCH+1)
    val next = add(batch, imm(1)), begin[2], count[2];
    for (int i = 0; i < 2; i++) {
        begin[i] = at(gStarts[i], batch);
        count[i] = sub(at(gStarts[i], next), begin[i]);
    }
    // first and last count from sequences of the longest lengths, whose ends are aligned, too
    val by = sub(sub(count[1], count[0]), sub(convert(I32, p->kv), convert(I32, p->q)));
    return (sequence){ .q = convert(U32, count[0]),
                       .kv = convert(U32, count[1]),
                       .first = add(p->first, by),
                       .last = add(p->last, by),
                       .q_at = convert(U32, begin[0]),
                       .kv_at = convert(U32, begin[1]) };
}

tile attention_tile_of(const tile_grid *g, val number)
{
    const attention_form *form = g->form;
    const attention_values *p = g->p;
    val of_section = mul(p->tiles_m, p->section);
    const val section = div(number, of_section), first = mul(section, p->section),
              r = sub(number, mul(section, of_section)); // a remainder by another division would take as long again
    const val heads = min(p->section, sub(p->all_heads, first)), index = div(r, heads);
    const val m = form->right ? sub(sub(p->tiles_m, imm(1)), index) : index;
    tile t = { .row = mul(m, imm(g->rows)), .head = add(first, sub(r, mul(index, heads))) };
    t.s = attention_sequence_of(form, p, form->ragged ? div(t.head, p->heads) : imm_as(U32, 0));
    val end = convert(I32, t.s.kv), row = convert(I32, t.row);
    if (form->right)
        end = min(add(add(row, imm(g->rows)), t.s.last), end);
    if (form->ragged) // nothing to do past the last query
        end = select(lt(t.row, t.s.q), end, imm_as(I32, 0));
    end = max(end, imm(1));
    t.end = div(add(convert(U32, end), imm(g->keys - 1)), imm(g->keys));
    t.first = imm_as(U32, 0);
    if (form->left)
        t.first = min(div(convert(U32, max(add(row, t.s.first), imm(0))), imm(g->keys)), sub(t.end, imm(1)));
    return t;
}

tile_place attention_place_of(const tile_grid *g, val head, bool of_keys)
{
    const val batch = div(head, g->p->heads), in_batch = sub(head, mul(batch, g->p->heads));
    return (tile_place){ of_keys ? div(in_batch, g->p->group) : in_batch, g->form->ragged ? imm_as(U32, 0) : batch };
}

val attention_sink_of(const tile_grid *g, val head)
{
    if (!g->form->sinks)
        return NO_SINK;
    tensor gSinks = gmem_vector(g->p->sinks, F32, g->p->heads); // (HEADS)
    return at(gSinks, attention_place_of(g, head, false).head);
}

/* Key `by` + the number of a query, i32. */
static val key_of(val query, val by)
{
    return add(convert(I32, query), by);
}

val attention_block_is_cut(const tile_rows *r, val block)
{
    const tile_grid *g = r->grid;
    val begin = convert(I32, mul(block, imm(g->keys))), end = add(begin, imm(g->keys));
    val cut = lt(convert(I32, r->s->kv), end);
    if (g->form->right)
        cut = logical_or(cut, lt(key_of(r->row, r->s->last), sub(end, imm(1))));
    if (g->form->left)
        cut = logical_or(cut, lt(begin, key_of(add(r->row, imm(r->rows - 1)), r->s->first)));
    return cut;
}

tensor attention_tile_coordinates(const tile_rows *r)
{
    return partition_C(r->mma, identity_tensor(shape(r->rows, r->grid->keys)), r->tid); // (MMA,MMA_M,MMA_N)
}

void attention_mask_block(const tile_rows *r, val block, tensor scores)
{
    tensor cS = attention_tile_coordinates(r);
    const tile_grid *g = r->grid;
    val first = add(convert(I32, mul(block, imm(g->keys))), convert(I32, coordinate(cS, 1, 0)));
    val last = sub(sub(convert(I32, r->s->kv), imm(1)), first), begins[ONLINE_ROWS_MAX], ends[ONLINE_ROWS_MAX];
    for (int i = 0; i < attention_online_row_count(scores); i++) {
        val query = add(r->row, coordinate(cS, 0, attention_online_row_value(scores, i)));
        ends[i] = g->form->right ? min(last, sub(key_of(query, r->s->last), first)) : last;
        begins[i] = sub(key_of(query, r->s->first), first);
    }
    attention_mask_scores(scores, coordinate_distances(cS, 1), g->form->left ? begins : NULL, ends);
}

void attention_mask_rows(const tile_rows *r, tensor scores)
{
    tensor cS = attention_tile_coordinates(r);
    val exists[ONLINE_ROWS_MAX];
    for (int i = 0; i < attention_online_row_count(scores); i++)
        exists[i] = lt(add(r->row, coordinate(cS, 0, attention_online_row_value(scores, i))), r->s->q);
    UNROLL(i, static_size(scores.layout)) {
        val x = at(scores, i);
        assign(x, select(exists[attention_online_row_of(scores, i)], x, immf(-INFINITY)));
    }
}

tensor attention_tensor_of(const attention_form *form, const attention_values *p, int which, const val *pointers)
{
    bool of_kv = which == ATTENTION_K || which == ATTENTION_V;
    int d = which == ATTENTION_Q || which == ATTENTION_K ? form->d : form->dv;
    int_tuple sizes = shape(p->all_heads, of_kv ? div(p->heads, p->group) : p->heads, of_kv ? p->kv : p->q, d);
    return gmem_tensor(pointers[which], form->dtype,
                       make_layout(sizes, stride(p->ld_batch[which], p->ld_head[which], p->ld[which], 1)));
}

tensor attention_mask_of(const attention_form *form, const attention_values *p)
{
    layout all =
        make_layout(shape(p->all_heads, p->heads, p->q, p->kv), stride(p->ldmask_batch, p->ldmask_head, p->ldmask, 1));
    return gmem_tensor(p->mask, form->mask == CKL_ATTENTION_MASK_BOOL ? CKL_BOOL : form->dtype, all);
}

score_mask attention_score_mask_of(const tile_grid *g, val head)
{
    const tile_place at = attention_place_of(g, head, false);
    return (score_mask){ slice(attention_mask_of(g->form, g->p), at.batch, at.head, _, _), g->p->unit };
}

tensor attention_mask_gradient_of(const attention_form *form, const attention_values *p, val head)
{
    val kv = convert(I64, p->kv);
    layout all = make_layout(shape(p->q, p->kv, p->all_heads), stride(kv, 1, mul(kv, convert(I64, p->q))));
    return slice(gmem_tensor(p->dmask, form->dtype, all), _, _, head); // (Q,KV)
}

val attention_masked_score(const score_mask *mask, val x, val by)
{
    if (mask->gM.dtype == CKL_BOOL)
        return select(eq(convert(U32, by), imm(0)), immf(-INFINITY), x);
    return fma(convert(F32, by), mask->unit, x);
}

tensor attention_logarithms_of(const attention_form *form, const attention_values *p)
{
    val queries = form->ragged ? p->q_total : p->q;
    return gmem_tensor(p->lse, F32, make_layout(shape(queries, p->all_heads), stride(1, convert(I64, queries))));
}

void attention_store_logarithms(const tile_rows *r, const online_rows *rows, val head)
{
    tensor cS = attention_tile_coordinates(r), gLse = attention_logarithms_of(r->grid->form, r->grid->p);
    const bool ragged = r->grid->form->ragged;
    if (ragged)
        head = rem(head, r->grid->p->heads);
    for (int i = 0; i < rows->count; i++) {
        val row = add(r->row, coordinate(cS, 0, attention_online_row_value(cS, i)));
        IF(logical_and(eq(thread_at(lane(), 0, 4, 8), imm(0)), lt(row, r->s->q)))
            set(gLse, coord(ragged ? add(row, r->s->q_at) : row, head),
                attention_logarithm(rows->max[i], rows->sum[i]));
    }
}
