/*
 * attention_decode_place.c - the rows and keys of a CTA of attention_decode's kernels on tensor cores, and what the
 * rows see.
 */
#include "operators/attention/attention_decode_place.h"

#include "cute/kernel.h"

val attention_decode_number_at(const decode_place *place, tensor gNumbers, int_tuple where)
{
    return place->hints ? load_relaxed(I32, tensor_address(gNumbers, where)) : at(gNumbers, where);
}

/* Sets length, begin and splits; the first split that a row sees. */
static val measure(decode_place *at, int split)
{
    tensor gLengths = gmem_vector(at->p.lengths, I32, at->p.batch); // (BATCH)
    val length = max(attention_decode_number_at(at, gLengths, coord(at->batch)), imm_as(I32, 0));
    at->length = min(convert(U32, length), at->p.kv);
    at->begin = imm_as(U32, 0);
    if (at->form.left) {
        val first = sub(sub(convert(I32, at->length), imm(at->form.tokens - 1)), at->p.left);
        at->begin = convert(U32, max(first, imm_as(I32, 0)));
    }
    val first = div(at->begin, imm(split)), end = div(add(at->length, imm(split - 1)), imm(split));
    at->splits = max(sub(max(end, first), first), imm_as(U32, 1));
    return first;
}

/* Sets what follows from the sequence and the split. */
void attention_decode_find_keys(decode_place *at, int split)
{
    const val first = measure(at, split), start = mul(add(first, at->split), imm(split));
    at->from = max(start, mul(div(at->begin, imm(at->keys)), imm(at->keys)));
    at->to = min(add(start, imm(at->run * split)), at->length);
}

/* A group has rows in tiles. */
static void find_tiles(decode_place *at)
{
    at->rows_all = at->form.tokens * at->form.group;
    at->tiles = (at->rows_all + at->rows - 1) / at->rows;
}

/* The rest of a division, whose quotient takes the number's place: another division would take as long again. */
static val split_off(val *number, val count)
{
    const val quotient = div(*number, count), rest = sub(*number, mul(quotient, count));
    *number = quotient;
    return rest;
}

void attention_decode_find_cta(decode_place *at, val number)
{
    if (at->cluster > 1)
        at->split = mul(split_off(&number, imm(at->cluster)), imm(at->run));
    find_tiles(at);
    at->tile = split_off(&number, imm(at->tiles));
    at->kv_head = split_off(&number, at->p.kv_heads);
    if (at->cluster <= 1) {
        const val runs = at->run == 1 ? at->p.splits : div(add(at->p.splits, imm(at->run - 1)), imm(at->run));
        at->split = mul(split_off(&number, runs), imm(at->run));
    }
    at->batch = number;
}

/* Splits of sequence `batch`, of all heads; 0 where there is none. */
static val splits_of(decode_place at, int split, val batch)
{
    const val exists = lt(batch, at.p.batch);
    at.batch = min(batch, sub(at.p.batch, imm(1)));
    measure(&at, split);
    return select(exists, mul(at.splits, at.p.kv_heads), imm_as(U32, 0));
}

static val sum_of_lanes(val x)
{
    return shuffle(warp_scan(x), imm(LANES - 1));
}

/* The sequence and head that have split `number` of all, which is set. Every warp finds them by its lanes. */
static void find_split(decode_place *at, int split, val number)
{
    const val none = imm_as(U32, 0), batch = variable(U32, none), before = variable(U32, none),
              seen = variable(U32, none);
    LOOP_FROM(first, none, at->p.batch, imm(LANES)) {
        const val count = splits_of(*at, split, add(first, lane())), through = add(seen, warp_scan(count)),
                  is_before = le(through, number);
        assign(batch, add(batch, select(is_before, imm_as(U32, 1), none)));
        assign(before, add(before, select(is_before, count, none)));
        assign(seen, shuffle(through, imm(LANES - 1)));
    }
    at->batch = variable(U32, min(sum_of_lanes(batch), sub(at->p.batch, imm(1))));
    measure(at, split);
    const val rest = sub(number, sum_of_lanes(before));
    at->kv_head = variable(U32, div(rest, at->splits));
    at->split = variable(U32, rem(rest, at->splits));
}

static void go_to_next_split(decode_place *at)
{
    const val none = imm_as(U32, 0), split = add(at->split, imm(1)), is_last = eq(split, at->splits),
              head = select(is_last, add(at->kv_head, imm(1)), at->kv_head), is_last_head = eq(head, at->p.kv_heads);
    assign(at->split, select(is_last, none, split));
    assign(at->kv_head, select(is_last_head, none, head));
    assign(at->batch, select(is_last_head, add(at->batch, imm(1)), at->batch));
}

void attention_decode_for_share(decode_place *at, int split, int step, void (*each)(void *of), void *of)
{
    const val own = variable(U32, imm_as(U32, 0));
    LOOP_FROM(first, imm_as(U32, 0), at->p.batch, imm(LANES))
        assign(own, add(own, splits_of(*at, split, add(first, lane()))));
    find_tiles(at);
    val group = cta_x(); // of CTAs of all tiles
    at->tile = split_off(&group, imm(at->tiles));
    const val all = sum_of_lanes(own), shares = div(grid_x(), imm(at->tiles)),
              share = div(add(all, sub(shares, imm(1))), shares), begin = min(mul(group, share), all),
              end = min(add(begin, share), all);
    find_split(at, split, begin);
    at->done = variable(U32, imm(0));
    LOOP_FROM(number, begin, end, imm(1)) {
        attention_decode_find_keys(at, split);
        at->before = sub(number, begin);
        at->after = sub(end, number);
        const val keys = sub(max(at->to, at->from), at->from);
        at->steps =
            shuffle(div(add(keys, imm(step - 1)), imm(step)), imm(0)); // ptxas sees that lanes have equal numbers
        each(of);
        assign(at->done, add(at->done, at->steps));
        go_to_next_split(at);
    }
}

tensor attention_decode_table_of(const attention_decode_values *p)
{
    layout all = make_layout(shape(p->table_pages, p->batch), stride(1, convert(I64, p->table_pages)));
    return gmem_tensor(p->table, I32, all);
}

tensor attention_decode_tensor_of(const decode_place *place, int which, val pointer)
{
    const attention_decode_form *form = &place->form;
    const attention_decode_values *p = &place->p;
    const bool of_values = which == ATTENTION_V || which == ATTENTION_O || which == DECODE_V_NEW;
    layout all = make_layout(shape(p->batch, p->kv_heads, form->tokens, of_values ? form->dv : form->d),
                             stride(p->ld_batch[which], p->ld_head[which], p->ld[which], 1));
    return gmem_tensor(pointer, form->dtype, all);
}

tensor attention_decode_row_of(const decode_place *place, int which, val row)
{
    const int group = place->form.group;
    val head = add(mul(place->kv_head, imm(group)), rem(row, imm(group))), token = div(row, imm(group));
    return slice(attention_decode_tensor_of(place, which, place->p.x[which]), place->batch, head, token, _);
}

val attention_decode_sink_of(const decode_place *place, val row)
{
    if (!place->form.sinks)
        return NO_SINK;
    const val group = imm(place->form.group), head = add(mul(place->kv_head, group), rem(row, group));
    return at(gmem_vector(place->p.sinks, F32, mul(place->p.kv_heads, group)), head);
}

val attention_decode_is_cut(const decode_place *place, val start)
{
    const int hidden = place->form.tokens - 1; // new keys that the first token does not see
    val end = convert(I32, add(start, imm(place->keys))), seen = sub(convert(I32, place->length), imm(hidden));
    val cut = logical_or(lt(seen, end), lt(convert(I32, place->to), end));
    if (place->form.left) // the last token sees the fewest of the first keys
        cut = logical_or(cut, lt(start, add(place->begin, imm(hidden))));
    return cut;
}

void attention_decode_mask(const decode_place *place, val start, decode_rows rows, const tiled_mma *mma, val tid,
                           tensor scores)
{
    const attention_decode_form *form = &place->form;
    tensor cS = partition_C(mma, identity_tensor(shape(rows.count, place->keys)), tid); // (MMA,MMA_M,MMA_N)
    val begins[ONLINE_ROWS_MAX], ends[ONLINE_ROWS_MAX], first = convert(I32, add(start, coordinate(cS, 1, 0)));
    val last = sub(sub(convert(I32, place->to), imm(1)), first);
    for (int i = 0; i < attention_online_row_count(scores); i++) {
        val row = add(rows.first, coordinate(cS, 0, attention_online_row_value(scores, i)));
        val token = convert(I32, div(row, imm(form->group)));
        val own = sub(add(sub(convert(I32, place->length), imm(form->tokens)), token), first);
        ends[i] = min(last, own);
        begins[i] = form->left ? sub(add(own, imm(1)), place->p.left) : own;
    }
    attention_mask_scores(scores, coordinate_distances(cS, 1), form->left ? begins : NULL, ends);
}
