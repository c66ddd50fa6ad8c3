/*
 * reduce_columns.c - rows that lie across memory: neighbouring threads take neighbouring results, so that loads are
 * whole lines.
 *
 * A CTA owns lanes * vec columns; its threads / lanes layers of threads share their elements, `steps` vectors of each
 * in flight, and are merged in shared memory. The elements of long columns are split over several CTAs as well.
 */
#include "operators/reduce/reduce_kernel.h"

typedef struct columns_kernel {
    const reduce_columns_config *cfg;
    const reducer *r;
    int part;
    reduce_arguments a;
    val lane, layer;     // u32: this thread across and along
    val tile, cta_part;  // i64: which columns, and which part of their elements
    val column, columns; // i64: this thread's first column in its stretch, and how long that is
    val row;             // i64: the result of that column
    val start;           // address of the first element of that column
    val is_whole;        // all columns of this thread exist
    val pivot[16];
    val state[16][REDUCE_VALUES_MAX]; // by column
    reduce_words words;
} columns_kernel;

static int layers_of(const reduce_columns_config *cfg)
{
    return cfg->threads / cfg->lanes;
}

/* CTAs side by side read side by side: columns first, then parts, then stretches. */
static void find_place(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int last = k->a.kept_count - 1, width = cfg->lanes * cfg->vec;
    k->columns = k->a.kept[last].extent;
    val tiles = div(add(k->columns, imm(width - 1)), imm(width)), cta = convert(I64, cta_x());
    val stretch = div(cta, mul(tiles, imm(cfg->split))), tile = rem(cta, tiles);
    k->tile = add(mul(stretch, tiles), tile);
    k->cta_part = rem(div(cta, tiles), imm(cfg->split));
    k->lane = rem(thread(), imm(cfg->lanes));
    k->layer = div(thread(), imm(cfg->lanes));
    k->column = add(mul(tile, imm(width)), convert(I64, mul(k->lane, imm(cfg->vec))));
    k->row = add(mul(stretch, k->columns), k->column);
    k->is_whole = ge(k->columns, add(k->column, imm(cfg->vec)));
    reduce_arguments outer = k->a;
    outer.kept_count--;
    k->start = reduce_address(k->a.x, add(reduce_row_offset(&outer, stretch), k->column), cfg->dtype);
}

/* Loads the elements of this thread's columns at one address; of columns that do not exist, nothing. */
static void load_vector(const columns_kernel *k, val address, tensor rX)
{
    const reduce_columns_config *cfg = k->cfg;
    int bytes = (int)ckl_dtype_bytes(cfg->dtype);
    if (k->part == 0) {
        tensor gX = with_cache(gmem_tensor(address, k->words.memory, compact(leaf(k->words.count))),
                               IR_CACHE_READONLY); // (WORDS)
        IF(k->is_whole)
            copy(gX, rX, cfg->vec * bytes);
        return;
    }
    tensor gX = with_cache(gmem_tensor(address, cfg->dtype, compact(leaf(cfg->vec))), IR_CACHE_READONLY); // (VEC)
    copy_within(gX, rX, k->column, k->columns);
}

/* Part 1 loads elements one by one and does not pack them. */
static tensor vectors_of(const columns_kernel *k, int steps)
{
    return fragment(k->words.memory, compact(shape(k->words.count, steps))); // (WORDS,STEPS)
}

static val element_address(const columns_kernel *k, val index)
{
    return reduce_address(k->start, reduce_element_offset(&k->a, index), k->cfg->dtype);
}

static void load_pivots(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    if (!k->r->pivot)
        return;
    tensor rX = vectors_of(k, 1); // (WORDS,1)
    val x[16];
    fill(rX, convert(k->words.memory, imm(0)));
    IF(lt(imm(0), k->a.row.count))
        load_vector(k, k->start, slice(rX, _, 0));
    reduce_expand(&k->words, k->r->input, rX.regs, x);
    for (int c = 0; c < cfg->vec; c++)
        k->pivot[c] = x[c];
}

/* Takes the vectors `step` to `step + count - 1`; index is that of vector 0 in its column. */
static void take_steps(columns_kernel *k, val index, int step, int count, tensor rX)
{
    const reduce_columns_config *cfg = k->cfg;
    val x[count][cfg->vec], column[count];
    int64_t distance[count];
    for (int s = 0; s < count; s++) {
        reduce_expand(&k->words, k->r->input, slice(rX, _, step + s).regs, x[s]);
        distance[s] = (int64_t)(step + s) * layers_of(cfg);
    }
    for (int c = 0; c < cfg->vec; c++) {
        for (int s = 0; s < count; s++)
            column[s] = x[s][c];
        k->r->take(k->r, &(reduce_batch){ column, count, index, distance }, k->pivot[c], k->state[c]);
    }
}

/* One vector after the other: where the columns end within a tile, and of part 1. */
static void take_one_by_one(columns_kernel *k, val index, tensor rX)
{
    for (int s = 0; s < k->cfg->steps; s++) {
        val here = add(index, imm(s * layers_of(k->cfg)));
        IF(lt(here, k->a.row.count)) {
            load_vector(k, element_address(k, here), slice(rX, _, s));
            take_steps(k, index, s, 1, rX);
        }
    }
}

/* All vectors loaded before the first is used. */
static void take_together(columns_kernel *k, val index, tensor rX)
{
    for (int s = 0; s < k->cfg->steps; s++)
        load_vector(k, element_address(k, add(index, imm(s * layers_of(k->cfg)))), slice(rX, _, s));
    take_steps(k, index, 0, k->cfg->steps, rX);
}

static void take_columns(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int tile = layers_of(cfg) * cfg->steps;
    val count = k->a.row.count, mine = convert(I64, k->layer);
    tensor rX = vectors_of(k, cfg->steps); // (WORDS,STEPS)
    fill(rX, convert(k->words.memory, imm(0)));
    LOOP_FROM(first, mul(k->cta_part, imm(tile)), count, imm(tile * cfg->split))
    {
        val index = add(first, mine);
        if (k->part == 1) { // elements are loaded one by one, each guarded: many at once do not fit the registers
            take_one_by_one(k, index, rX);
        } else {
            IF(ge(count, add(first, imm(tile))))
                take_together(k, index, rX);
            ELSE take_one_by_one(k, index, rX);
        }
    }
}

/* Where the states of half of the layers wait: (THREADS/2,VEC) of each value. */
typedef struct waiting {
    tensor sS[REDUCE_VALUES_MAX];
} waiting;

static waiting make_waiting(const columns_kernel *k)
{
    static const char *const names[REDUCE_VALUES_MAX] = { "states0", "states1", "states2", "states3",
                                                          "states4", "states5", "states6", "states7" };
    waiting w;
    for (int i = 0; i < k->r->count; i++)
        w.sS[i] = smem_tensor(names[i], k->r->types[i], compact(shape(k->cfg->threads / 2, k->cfg->vec)), 16);
    return w;
}

/* The upper half of the layers hands its states to the lower half, until layer 0 has them all. */
static void merge_layers(columns_kernel *k, const waiting *w)
{
    const reduce_columns_config *cfg = k->cfg;
    for (int half = layers_of(cfg) / 2; half > 0; half /= 2) {
        val slot = add(mul(rem(k->layer, imm(half)), imm(cfg->lanes)), k->lane);
        IF(both(ge(k->layer, imm(half)), lt(k->layer, imm(2 * half))))
            for (int c = 0; c < cfg->vec; c++)
                for (int i = 0; i < k->r->count; i++)
                    tensor_set(w->sS[i], coord(slot, c), k->state[c][i]);
        cta_sync();
        IF(lt(k->layer, imm(half)))
            for (int c = 0; c < cfg->vec; c++) {
                val other[REDUCE_VALUES_MAX];
                for (int i = 0; i < k->r->count; i++)
                    other[i] = at(w->sS[i], slot, c);
                k->r->merge(k->state[c], other, (void *)k->r);
            }
        cta_sync(); // the slots may be written again
    }
}

/* States of this thread's columns in global memory, by part: (VEC,SPLIT), 8 bytes each. */
static tensor partials_of(const columns_kernel *k, int value)
{
    const reduce_columns_config *cfg = k->cfg;
    ir_type type = k->r->types[value];
    int64_t width = 8 / ir_type_bytes(type), per_part = (int64_t)k->r->count * cfg->vec * cfg->lanes;
    val slot = add(mul(k->tile, ir_int(I64, cfg->split * per_part)),
                   add(convert(I64, k->lane), ir_int(I64, (int64_t)value * cfg->vec * cfg->lanes)));
    val address = add(k->a.partials, convert(U64, mul(slot, imm(8))));
    return gmem_tensor(address, type,
                       make_layout(shape(cfg->vec, cfg->split), stride(width * cfg->lanes, width * per_part)));
}

static val merge_parts(columns_kernel *k, const waiting *w)
{
    const reduce_columns_config *cfg = k->cfg;
    tensor gS[REDUCE_VALUES_MAX]; // (VEC,SPLIT)
    for (int i = 0; i < k->r->count; i++)
        gS[i] = partials_of(k, i);
    IF(eq(k->layer, imm(0)))
        for (int c = 0; c < cfg->vec; c++)
            for (int i = 0; i < k->r->count; i++)
                tensor_set(gS[i], coord(c, k->cta_part), k->state[c][i]);
    val is_last = reduce_last_to_arrive(add(k->a.counters, convert(U64, mul(k->tile, imm(4)))), cfg->split);
    IF(is_last) {
        val start[REDUCE_VALUES_MAX], other[REDUCE_VALUES_MAX];
        k->r->start(k->r, start);
        for (int c = 0; c < cfg->vec; c++)
            for (int i = 0; i < k->r->count; i++)
                assign(k->state[c][i], start[i]);
        LOOP_FROM(p, k->layer, imm(cfg->split), imm(layers_of(cfg)))
        for (int c = 0; c < cfg->vec; c++) {
            for (int i = 0; i < k->r->count; i++)
                other[i] = at(gS[i], c, p);
            k->r->merge(k->state[c], other, (void *)k->r);
        }
        merge_layers(k, w);
    }
    return is_last;
}

static void store_columns(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    val first = k->r->finish(k->r, k->state[0], &k->a.row);
    tensor rY = fragment(first.type, compact(leaf(cfg->vec)));
    tensor gY = gmem_tensor(reduce_address(k->a.y, k->row, cfg->output), cfg->output, rY.layout); // (VEC)
    for (int c = 0; c < cfg->vec; c++)
        set(rY, c, c == 0 ? first : k->r->finish(k->r, k->state[c], &k->a.row));
    int bytes = (int)ckl_dtype_bytes(cfg->output);
    if (k->part == 1)
        copy_within(rY, gY, k->column, k->columns);
    else IF(k->is_whole)
        copy(rY, gY, (int)min_i64(16, cfg->vec * bytes));
}

void reduce_columns_with(const reduce_columns_config *cfg, const reducer *r, int part)
{
    ir_current()->threads = cfg->threads;
    ir_current()->ctas_per_sm = cfg->ctas_per_sm;
    columns_kernel k = { .cfg = cfg, .r = r, .part = part };
    k.a = reduce_declare_arguments(cfg->kept, cfg->reduced);
    k.words = part == 0 ? reduce_words_of(cfg->dtype, cfg->vec) : (reduce_words){ cfg->dtype, cfg->dtype, cfg->vec };
    find_place(&k);
    load_pivots(&k);
    for (int c = 0; c < cfg->vec; c++)
        reduce_begin(r, k.state[c]);
    take_columns(&k);
    waiting w = make_waiting(&k);
    merge_layers(&k, &w);
    val is_mine = eq(k.layer, imm(0));
    if (cfg->split > 1)
        is_mine = both(is_mine, merge_parts(&k, &w));
    IF(is_mine)
        store_columns(&k);
}

void reduce_columns(const void *config, int part)
{
    const reduce_columns_config *cfg = config;
    reducer r = reducer_of(cfg->op, cfg->dtype, cfg->output, cfg->compensated);
    reduce_columns_with(cfg, &r, part);
}
