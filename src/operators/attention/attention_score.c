/* attention_score.c - custom scores in kernels: calls of their functions, and ways past the blocks that they skip. */
#include "operators/attention/attention_score.h"

#include "cute/kernel.h"
#include "cute/values.h"

/* What functions may call */

enum { READS_MAX = 128 };

/* The score whose function this thread calls; what it has read since sharing began, by address. */
static _Thread_local const ckl_attention_score *calling;
static _Thread_local struct {
    bool shares;
    int count;
    val address[READS_MAX], value[READS_MAX];
} reads;

void attention_custom_share_begin(void)
{
    share_begin();
    reads.shares = true;
    reads.count = 0;
}

void attention_custom_share_end(void)
{
    share_end();
    values_forget();
    reads.shares = false;
}

/* The element at an address. Inputs do not change, so a second read through the same register needs no load. */
static val read_once(val address, ckl_dtype dtype)
{
    for (int i = 0; i < reads.count && reads.shares; i++)
        if (reads.address[i].reg == address.reg)
            return reads.value[i];
    val value = at(gmem_tensor(address, dtype, compact(leaf(1))), 0);
    if (reads.shares && reads.count < READS_MAX) {
        reads.address[reads.count] = address;
        reads.value[reads.count++] = value;
    }
    return value;
}

/* A parameter of the kernel: it has declared all of them before it calls a function. */
static val parameter(ir_type type, const char *name)
{
    return scalar_param(type, name);
}

ckl_val ckl_attention_heads(void)
{
    return convert(I32, parameter(U32, "heads"));
}

ckl_val ckl_attention_slope_one(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    (void)s, (void)batch, (void)head, (void)i, (void)j, (void)user;
    return immf(1);
}

ckl_val ckl_attention_read(int which, ckl_val batch, ckl_val column)
{
    static const char *const
        sizes[] = { [CKL_ATTENTION_HEADS] = "heads", [CKL_ATTENTION_QUERIES] = "q", [CKL_ATTENTION_KEYS] = "kv" },
        *const pointers[CKL_ATTENTION_INPUTS] = { "inputs_0", "inputs_1" };
    if (!calling || which < 0 || which >= CKL_ATTENTION_INPUTS || !calling->inputs[which].dtype) {
        describe_fail("attention_read: a score has no input %d", which);
        return imm_as(I32, 0);
    }
    const ckl_attention_input *input = &calling->inputs[which];
    val width = input->columns == CKL_ATTENTION_ONE ? imm_as(U32, 1) : parameter(U32, sizes[input->columns]);
    val at = min(convert(U32, column), sub(width, imm(1)));
    layout all = make_layout(shape(parameter(U32, "all_heads"), width), stride(convert(I64, width), 1));
    tensor gInput = gmem_tensor(parameter(U64, pointers[which]), input->dtype, all);
    return read_once(tensor_address(gInput, coord(convert(U32, batch), at)), input->dtype);
}

/* Calls */

custom_score attention_custom_score_of(const attention_form *form, const attention_values *p, val head)
{
    custom_score c = { .how = attention_score_find(form->score) };
    if (!c.how)
        return c;
    c.batch = convert(I32, div(head, p->heads));
    c.head = convert(I32, rem(head, p->heads));
    c.unit = p->score_unit;
    return c;
}

static val call(const custom_score *c, ckl_attention_function function, val x, val i, val j)
{
    calling = c->how;
    val natural = mul(x, c->unit);
    val result = function(natural, c->batch, c->head, i, j, c->how->user);
    calling = NULL;
    return coerce(F32, result);
}

val attention_custom_value(const custom_score *c, val x, val i, val j)
{
    return call(c, c->how->score, x, i, j);
}

val attention_custom_slope(const custom_score *c, val x, val i, val j)
{
    return call(c, c->how->slope, x, i, j);
}

block_scores attention_block_scores_of(const custom_score *c, const tile_rows *r, val block, tensor scores)
{
    tensor cS = attention_tile_coordinates(r); // (MMA,MMA_M,MMA_N)
    block_scores s = { .custom = c, .scores = scores, .distances = coordinate_distances(cS, 1) };
    s.first = convert(I32, add(mul(block, imm(r->grid->keys)), coordinate(cS, 1, 0)));
    for (int i = 0; i < attention_online_row_count(scores); i++)
        s.rows[i] = convert(I32, add(r->row, coordinate(cS, 0, attention_online_row_value(scores, i))));
    return s;
}

void attention_block_pair(const block_scores *s, int64_t i, val *query, val *key)
{
    const int distance = (int)index_at(s->distances, i);
    const val row = s->rows[attention_online_row_of(s->scores, i)], column = add(s->first, imm(distance));
    values_know(column, s->first, distance);
    *query = s->of_keys ? column : row;
    *key = s->of_keys ? row : column;
}

void attention_mask_block_scores(const block_scores *s, const score_mask *mask, val queries, val keys)
{
    const val last_query = sub(convert(I32, queries), imm(1)), last_key = sub(convert(I32, keys), imm(1));
    attention_custom_share_begin();
    UNROLL(i, static_size(s->scores.layout)) {
        val query, key, x = at(s->scores, i);
        attention_block_pair(s, i, &query, &key);
        assign(x, attention_masked_score(mask, x, at(mask->gM, min(query, last_query), min(key, last_key))));
    }
    attention_custom_share_end();
}

val attention_block_score(const void *of, val x, int64_t i)
{
    const block_scores *s = of;
    val query, key;
    attention_block_pair(s, i, &query, &key);
    return attention_custom_value(s->custom, x, query, key);
}

/* Scores some queries of a tile with a block of keys. */
static void score_all(const custom_score *c, const tile_rows *r, val block, tensor scores)
{
    const block_scores all = attention_block_scores_of(c, r, block, scores);
    attention_custom_share_begin();
    UNROLL(i, static_size(scores.layout)) {
        val x = at(scores, i);
        assign(x, attention_block_score(&all, x, i));
    }
    attention_custom_share_end();
}

/* The last one of a range, i32. */
static val last_of(const token_range *range)
{
    return convert(I32, min(add(range->first, imm(range->count - 1)), sub(range->tokens, imm(1))));
}

val attention_custom_block(const custom_score *c, const token_range *queries, const token_range *keys)
{
    const ckl_attention_block block = { .batch = c->batch,
                                        .head = c->head,
                                        .i_first = convert(I32, queries->first),
                                        .i_last = last_of(queries),
                                        .j_first = convert(I32, keys->first),
                                        .j_last = last_of(keys) };
    calling = c->how;
    val kind = c->how->block(&block, c->how->user);
    calling = NULL;
    return coerce(I32, kind);
}

void attention_custom_leave(const custom_score *c, tensor scores)
{
    UNROLL(i, static_size(scores.layout)) {
        val x = at(scores, i);
        assign(x, mul(x, c->unit));
    }
}

/* Blocks */

block_window attention_block_window_begin(void)
{
    return (block_window){ variable(U32, imm(0)), variable(U32, imm(0)) };
}

void attention_block_window_look(const block_window *w, val (*kind)(const void *of, val number), const void *of)
{
    val of_lane = kind(of, convert(I32, lane()));
    assign(w->seen, vote_ballot(ne(of_lane, imm(CKL_ATTENTION_SKIP))));
    assign(w->scored, vote_ballot(eq(of_lane, imm(CKL_ATTENTION_SCORE))));
}

val attention_block_window_take(const block_window *w, val *kind)
{
    val bit = bit_and(w->seen, sub(imm_as(U32, 0), w->seen)), is_scored = ne(bit_and(w->scored, bit), imm(0));
    *kind = select(is_scored, imm_as(I32, CKL_ATTENTION_SCORE), imm_as(I32, CKL_ATTENTION_PLAIN));
    *kind = select(ne(bit, imm(0)), *kind, imm_as(I32, CKL_ATTENTION_SKIP));
    assign(w->seen, bit_xor(w->seen, bit));
    return sub(shift_right(bitcast(I32, convert(F32, bit)), imm(23)), imm(127)); // the exponent of 2^number
}

static bool has_kinds(const key_walk *w)
{
    return w->custom->how && w->custom->how->block;
}

/* The kind of block base - number of a tile; skipped where it is before the first one. */
static val kind_in_tile(const void *of, val number)
{
    const key_walk *w = of;
    const token_range queries = { w->t->row, w->t->s.q, w->grid->rows };
    val n = sub(w->base, number), first = convert(I32, w->t->first), block = convert(U32, max(n, first));
    const token_range keys = { mul(block, imm(w->grid->keys)), w->t->s.kv, w->grid->keys };
    return select(ge(n, first), attention_custom_block(w->custom, &queries, &keys), imm_as(I32, CKL_ATTENTION_SKIP));
}

/* The next block that is not skipped, i32; less than the first where there is none. */
static void seek(key_walk *w)
{
    val first = convert(I32, w->t->first), kind;
    FOREVER {
        BREAK_IF(logical_or(ne(w->window.seen, imm(0)), lt(sub(w->base, imm(BLOCK_WINDOW)), first)));
        assign(w->base, sub(w->base, imm(BLOCK_WINDOW)));
        attention_block_window_look(&w->window, kind_in_tile, w);
    }
    val some = ne(w->window.seen, imm(0)), number = attention_block_window_take(&w->window, &kind);
    w->next = shuffle(select(some, sub(w->base, number), sub(first, imm(1))), imm(0));
    w->next_kind = shuffle(kind, imm(0));
}

key_walk attention_key_walk_begin(const custom_score *c, const tile_grid *grid, const tile *t)
{
    key_walk w = { .custom = c, .grid = grid, .t = t };
    if (has_kinds(&w)) {
        w.base = variable(I32, convert(I32, add(t->end, imm(BLOCK_WINDOW - 1))));
        w.window = attention_block_window_begin();
        seek(&w);
        w.block = variable(U32, convert(U32, max(w.next, convert(I32, t->first))));
        w.kind = variable(I32, w.next_kind);
    } else
        w.block = variable(U32, sub(t->end, imm(1)));
    return w;
}

void attention_key_walk_look(key_walk *w)
{
    if (has_kinds(w))
        seek(w);
}

val attention_key_walk_is_last(const key_walk *w)
{
    return has_kinds(w) ? lt(w->next, convert(I32, w->t->first)) : eq(w->block, w->t->first);
}

val attention_key_walk_next(const key_walk *w)
{
    return has_kinds(w) ? convert(U32, w->next) : sub(w->block, imm(1));
}

void attention_key_walk_advance(const key_walk *w)
{
    assign(w->block, attention_key_walk_next(w));
    if (w->kind.type)
        assign(w->kind, w->next_kind);
}

/* The custom score of the walk's block, by its kind. */
static void score_block(const key_walk *w, const tile_rows *r, tensor scores)
{
    if (!has_kinds(w)) {
        score_all(w->custom, r, w->block, scores);
        return;
    }
    IF(eq(w->kind, imm(CKL_ATTENTION_SCORE)))
        score_all(w->custom, r, w->block, scores);
    IF(eq(w->kind, imm(CKL_ATTENTION_SKIP)))
        fill(scores, immf(-INFINITY));
    IF(eq(w->kind, imm(CKL_ATTENTION_PLAIN)))
        attention_custom_leave(w->custom, scores);
}

void attention_make_scores(const key_walk *w, const tile_rows *r, tensor scores)
{
    const attention_form *form = w->grid->form;
    if (form->softcap)
        attention_cap_scores(scores, w->grid->p->factor);
    if (form->mask) {
        const score_mask mask = attention_score_mask_of(w->grid, w->t->head);
        const block_scores all = attention_block_scores_of(w->custom, r, w->block, scores);
        attention_mask_block_scores(&all, &mask, r->s->q, r->s->kv);
    }
    if (w->custom->how)
        score_block(w, r, scores);
}
