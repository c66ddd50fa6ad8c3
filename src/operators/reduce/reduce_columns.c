/*
 * reduce_columns.c - rows that lie across memory: neighbouring threads reduce neighbouring columns, so that loads are
 * full lines.
 *
 * A CTA owns lanes * vec columns; its threads / lanes layers of threads share their elements, `steps` vectors of each
 * in flight, and are merged by shuffles and in shared memory. The elements of long columns are split over several CTAs
 * as well.
 */
#include "operators/reduce/reduce_kernel.h"

enum { WARP = 32, STATES_AT_ONCE = 32 }; // registers that states of other CTAs are read into

typedef struct columns_kernel {
    const reduce_columns_config *cfg;
    const reducer *r;
    int kernel;
    reduce_values p;
    tensor cX;            // coordinates of this thread's elements in (COLUMNS,TILE): ((VEC,1),1,STEPS)
    val lane, layer;      // u32: this thread across and along
    val tile, rank;       // i64: which columns, and the number of this CTA among theirs
    val column, columns;  // i64: this thread's first column in its stretch, and how long that is
    val row;              // i64: the result of that column
    val start;            // address of the first element of that column
    val all_exist;        // all columns of this thread
    val next, step_bytes; // with one reduced mode: address of the thread's next vector, bytes to the one after
    val pivot[16];
    val state[16][REDUCE_VALUES_MAX]; // by column; of a reducer that counts, all share the count while they accumulate
} columns_kernel;

static int layers_of(const reduce_columns_config *cfg)
{
    return cfg->threads / cfg->lanes;
}

static int tile_elements(const reduce_columns_config *cfg)
{
    return layers_of(cfg) * cfg->steps;
}

/* Neighbouring lanes take neighbouring vectors, layers different elements of the columns; by accesses of so many elements. */
static tiled_copy vectors_of(const reduce_columns_config *cfg, ckl_dtype dtype, int elements)
{
    return make_tiled_copy(universal_copy(dtype, elements), dtype, compact(shape(cfg->lanes, layers_of(cfg))),
                           compact(shape(cfg->vec, 1)));
}

/* In kernel 1: between a vector of this thread's columns and registers, by those elements that exist; the others are 0. */
static void copy_existing(const columns_kernel *k, tensor from, tensor to)
{
    tiled_copy each = vectors_of(k->cfg, from.memory == RMEM ? to.dtype : from.dtype, 1);
    copy_if(&each, slice(k->cX, _, 0, 0), shape(k->columns, _), from, to, 0);
}

/* CTAs side by side read side by side: columns first, then CTAs of the same columns, then stretches. */
static void find_place(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int last = cfg->kind.kept - 1, width = cfg->lanes * cfg->vec;
    k->columns = k->p.kept_extent[last];
    val tiles = div(add(k->columns, imm(width - 1)), imm(width)), cta = convert(I64, cta_x());
    val stretch = div(cta, mul(tiles, imm(cfg->split))), tile = rem(cta, tiles);
    k->tile = add(mul(stretch, tiles), tile);
    k->rank = rem(div(cta, tiles), imm(cfg->split));
    k->lane = rem(thread(), imm(cfg->lanes));
    tiled_copy each = vectors_of(cfg, CKL_U8, cfg->vec); // which elements these are does not depend on their type
    tensor cTile = identity_tensor(shape(width, tile_elements(cfg))); // (COLUMNS,TILE)
    k->cX = coordinates_from(partition_S(&each, cTile, thread()), 0, mul(tile, imm(width)));
    k->column = coordinate(k->cX, 0, 0);
    k->layer = coordinate(k->cX, 1, 0);
    k->row = add(mul(stretch, k->columns), k->column);
    k->all_exist = ge(k->columns, add(k->column, imm(cfg->vec)));
    layout stretches = reduce_modes(last, k->p.kept_extent, k->p.kept_stride);
    k->start = reduce_address(k->p.x, add(crd2idx(dynamic(stretch), stretches), k->column), cfg->kind.dtype);
}

/* Loads the elements of this thread's columns at one address; in kernel 1, of those that exist. */
static void load_vector(const columns_kernel *k, val address, packed to)
{
    const reduce_columns_config *cfg = k->cfg;
    tensor gX = gmem_tensor(address, cfg->kind.dtype, compact(leaf(cfg->vec))); // (VEC)
    gX = with_cache(gX, IR_CACHE_READONLY);
    if (k->kernel == 0)
        packed_load(gX, cfg->vec * (int)ckl_dtype_bytes(cfg->kind.dtype), to);
    else
        copy_existing(k, gX, to.rWords);
}

/* Kernel 1 loads elements one by one and does not pack them. */
static packed vector_registers(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    if (k->kernel == 0)
        return packed_registers(cfg->kind.dtype, cfg->vec);
    return (packed){ fragment(cfg->kind.dtype, compact(leaf(cfg->vec))), cfg->kind.dtype, cfg->vec };
}

/* The addresses of the tile's vectors of this thread; index is that of the first in its column. */
static void find_addresses(const columns_kernel *k, val index, val *address)
{
    const reduce_columns_config *cfg = k->cfg;
    layout reduced = reduce_modes(cfg->kind.reduced, k->p.reduced_extent, k->p.reduced_stride);
    for (int s = 0; s < cfg->steps; s++) {
        if (cfg->kind.reduced == 1) {
            address[s] = s ? add(address[s - 1], k->step_bytes) : k->next;
            continue;
        }
        val distance = crd2idx(dynamic(add(index, imm(s * layers_of(cfg)))), reduced);
        address[s] = reduce_address(k->start, distance, cfg->kind.dtype);
    }
}

static void load_pivots(columns_kernel *k)
{
    if (!k->r->pivot)
        return;
    packed rX = vector_registers(k);
    fill(rX.rWords, convert(rX.rWords.dtype, imm(0)));
    IF(lt(imm(0), k->p.count))
        load_vector(k, k->start, rX);
    tensor rPivot = unpacked(rX, k->r->input); // (VEC)
    for (int c = 0; c < k->cfg->vec; c++)
        k->pivot[c] = at(rPivot, c);
}

/* Accumulates `count` vectors, of which the first is number `step` of the tile; index is that of vector 0 in its column. */
static void accumulate_steps(columns_kernel *k, val index, int step, int count, const packed *rX)
{
    const reduce_columns_config *cfg = k->cfg;
    val column[count];
    tensor rStep[count]; // (VEC)
    int64_t distance[count];
    reduce_batch batch = { .x = column, .size = count, .first = index, .distance = distance };
    for (int s = 0; s < count; s++) {
        rStep[s] = unpacked(rX[s], k->r->input);
        distance[s] = (int64_t)(step + s) * layers_of(cfg);
    }
    reduce_count(k->r, k->state[0][0], &batch);
    for (int c = 0; c < cfg->vec; c++) {
        for (int s = 0; s < count; s++)
            column[s] = at(rStep[s], c);
        k->r->accumulate(k->r, &batch, k->pivot[c], k->state[c]);
    }
}

/* One vector after the other: where the columns end within a tile, and in kernel 1. */
static void edge_tile(columns_kernel *k, val index, const val *address)
{
    packed rX = vector_registers(k);
    for (int s = 0; s < k->cfg->steps; s++)
        IF(lt(add(index, imm(s * layers_of(k->cfg))), k->p.count)) {
            load_vector(k, address[s], rX);
            accumulate_steps(k, index, s, 1, &rX);
        }
}

/* All vectors loaded before the first is used. */
static void full_tile(columns_kernel *k, val index, const val *address)
{
    packed rX[k->cfg->steps];
    for (int s = 0; s < k->cfg->steps; s++) {
        rX[s] = vector_registers(k);
        load_vector(k, address[s], rX[s]);
    }
    accumulate_steps(k, index, 0, k->cfg->steps, rX);
}

static void accumulate_columns(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int tile = tile_elements(cfg);
    val count = k->p.count, address[cfg->steps], begin = mul(k->rank, imm(tile));
    val mine = convert(I64, k->layer), bytes = imm64((int64_t)ckl_dtype_bytes(cfg->kind.dtype));
    val stride = mul(k->p.reduced_stride[0], bytes);
    k->next = variable(U64, add(k->start, convert(U64, mul(add(begin, mine), stride))));
    k->step_bytes = convert(U64, mul(stride, imm(layers_of(cfg))));
    val to_next_tile = convert(U64, mul(stride, imm(tile * cfg->split)));
    LOOP_FROM(first, begin, count, imm(tile * cfg->split)) {
        val index = add(first, mine);
        find_addresses(k, index, address);
        if (k->kernel == 1) { // elements are loaded one by one, each guarded: many at once do not fit the registers
            edge_tile(k, index, address);
        } else {
            IF(ge(count, add(first, imm(tile))))
                full_tile(k, index, address);
            ELSE edge_tile(k, index, address);
        }
        assign(k->next, add(k->next, to_next_tile));
    }
}

/* Merging: all states of a CTA come to its layer 0 */

/* Groups of threads with states of the same columns, once the lanes of a warp that share columns have agreed. */
static int groups_of(const reduce_columns_config *cfg)
{
    return cfg->threads / (int)max_i64(cfg->lanes, WARP);
}

/* A slot for every thread that gives its states away: in each round half of the groups, so one less than all. */
static void make_slots(const columns_kernel *k, tensor *sS)
{
    static const char *const names[REDUCE_VALUES_MAX] = { "states0", "states1", "states2", "states3",
                                                          "states4", "states5", "states6", "states7" };
    int slots = (groups_of(k->cfg) - 1) * k->cfg->lanes;
    for (int i = 0; i < k->r->count; i++)
        sS[i] = smem_tensor(names[i], k->r->types[i], compact(shape(max_i64(slots, 1), k->cfg->vec)), 16);
}

/* In each round the upper half of the groups gives its states to the lower half, through slots of the round's own. */
static void merge_layers(columns_kernel *k, const tensor *sS)
{
    const reduce_columns_config *cfg = k->cfg;
    const reduction all = reduce_reduction(k->r);
    for (int c = 0; c < cfg->vec && cfg->lanes < WARP; c++)
        warp_reduce_across(&all, cfg->lanes, k->state[c]);
    val group = div(thread(), imm((int)max_i64(cfg->lanes, WARP)));
    val is_first = lt(lane(), imm(cfg->lanes)); // of the lanes with the same states
    for (int half = groups_of(cfg) / 2, first = 0; half > 0; first += half, half /= 2) {
        val slot = add(mul(add(rem(group, imm(half)), imm(first)), imm(cfg->lanes)), k->lane);
        val gives = logical_and(ge(group, imm(half)), lt(group, imm(2 * half)));
        IF(logical_and(gives, is_first))
            for (int c = 0; c < cfg->vec; c++)
                for (int i = 0; i < k->r->count; i++)
                    tensor_set(sS[i], coord(slot, c), k->state[c][i]);
        cta_sync();
        IF(lt(group, imm(half)))
            for (int c = 0; c < cfg->vec; c++) {
                val other[REDUCE_VALUES_MAX];
                for (int i = 0; i < k->r->count; i++)
                    other[i] = at(sS[i], slot, c);
                k->r->merge(k->state[c], other, (void *)k->r);
            }
    }
}

/* And all states of a column to the last of its CTAs */

/* Where CTA number `rank` of the columns leaves the states of this thread's lane: (VEC) of every value. */
static void find_states(const columns_kernel *k, val rank, tensor *gS)
{
    const reduce_columns_config *cfg = k->cfg;
    int64_t width = (int64_t)cfg->lanes * cfg->vec, bytes = 0;
    for (int i = 0; i < k->r->count; i++)
        bytes += width * ir_type_bytes(k->r->types[i]);
    val number = add(mul(k->tile, imm(cfg->split)), rank);
    val address = add(k->p.states, convert(U64, mul(number, imm64(bytes))));
    for (int i = 0; i < k->r->count; i++) {
        int64_t size = ir_type_bytes(k->r->types[i]);
        val mine = mul(k->lane, imm((int)(cfg->vec * size)));
        gS[i] = gmem_tensor(add(address, convert(U64, mine)), k->r->types[i], compact(leaf(cfg->vec))); // (VEC)
        address = add(address, imm_as(U64, width * size));
    }
}

static int states_alignment(const columns_kernel *k, int value)
{
    return (int)min_i64(16, (int64_t)k->cfg->vec * ir_type_bytes(k->r->types[value]));
}

static void store_states(const columns_kernel *k)
{
    tensor gS[REDUCE_VALUES_MAX]; // (VEC)
    find_states(k, k->rank, gS);
    for (int i = 0; i < k->r->count; i++) {
        tensor rS = fragment(k->r->types[i], compact(leaf(k->cfg->vec))); // (VEC)
        for (int c = 0; c < k->cfg->vec; c++)
            set(rS, c, k->state[c][i]);
        copy(rS, gS[i], states_alignment(k, i));
    }
}

/* The states of one CTA, or those of no elements where there is no such CTA. */
static void load_states(const columns_kernel *k, val rank, tensor *rS)
{
    tensor gS[REDUCE_VALUES_MAX]; // (VEC)
    val identity[REDUCE_VALUES_MAX];
    k->r->identity(k->r, identity);
    find_states(k, rank, gS);
    for (int i = 0; i < k->r->count; i++) {
        rS[i] = fragment(k->r->types[i], compact(leaf(k->cfg->vec))); // (VEC)
        fill(rS[i], identity[i]);
    }
    IF(lt(rank, imm(k->cfg->split)))
        for (int i = 0; i < k->r->count; i++)
            copy(gS[i], rS[i], states_alignment(k, i));
}

/* Every layer merges the states of some CTAs, several of which it loads before it uses the first. */
static void merge_received(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int layers = layers_of(cfg), at_once = (int)max_i64(1, STATES_AT_ONCE / (cfg->vec * k->r->count));
    at_once = (int)min_i64(at_once, ceil_div(cfg->split, layers));
    val identity[REDUCE_VALUES_MAX], other[REDUCE_VALUES_MAX];
    tensor rS[at_once][REDUCE_VALUES_MAX]; // (VEC)
    k->r->identity(k->r, identity);
    for (int c = 0; c < cfg->vec; c++)
        for (int i = 0; i < k->r->count; i++)
            assign(k->state[c][i], identity[i]);
    LOOP_FROM(rank, convert(I64, k->layer), imm64(cfg->split), imm(layers * at_once)) {
        for (int u = 0; u < at_once; u++)
            load_states(k, add(rank, imm(u * layers)), rS[u]);
        for (int u = 0; u < at_once; u++)
            for (int c = 0; c < cfg->vec; c++) {
                for (int i = 0; i < k->r->count; i++)
                    other[i] = at(rS[u][i], c);
                k->r->merge(k->state[c], other, (void *)k->r);
            }
    }
}

static val merge_ctas(columns_kernel *k, const tensor *sS)
{
    IF(eq(k->layer, imm(0)))
        store_states(k);
    val is_last = reduce_last_to_finish(add(k->p.counters, convert(U64, mul(k->tile, imm(4)))), k->cfg->split);
    IF(is_last) {
        merge_received(k);
        merge_layers(k, sS);
    }
    return is_last;
}

static void store_columns(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    val first = k->r->finish(k->r, k->state[0], &k->p);
    tensor rY = fragment(first.type, compact(leaf(cfg->vec)));
    tensor gY = gmem_tensor(reduce_address(k->p.y, k->row, cfg->kind.output), cfg->kind.output, rY.layout); // (VEC)
    for (int c = 0; c < cfg->vec; c++)
        set(rY, c, c == 0 ? first : k->r->finish(k->r, k->state[c], &k->p));
    int bytes = (int)ckl_dtype_bytes(cfg->kind.output);
    if (k->kernel == 1)
        copy_existing(k, rY, gY);
    else IF(k->all_exist)
        copy(rY, gY, (int)min_i64(16, cfg->vec * bytes));
}

/* All columns of a thread share one count while they accumulate; merged they have one each. */
static void begin_states(columns_kernel *k)
{
    for (int c = 0; c < k->cfg->vec; c++) {
        reduce_begin(k->r, k->state[c]);
        if (k->r->counts)
            k->state[c][0] = k->state[0][0];
    }
}

static void separate_counts(columns_kernel *k)
{
    for (int c = 1; c < k->cfg->vec && k->r->counts; c++)
        k->state[c][0] = variable(F32, k->state[0][0]);
}

void reduce_columns_with(const reduce_columns_config *cfg, const reducer *r, int kernel)
{
    launch_bounds(cfg->threads, kernel == 0 ? cfg->ctas_per_sm : 0); // single elements take more registers
    columns_kernel k = { .cfg = cfg, .r = r, .kernel = kernel };
    k.p = params_of(reduce);
    find_place(&k);
    if (cfg->overlap)
        launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before, where the target knows how
    begin_states(&k);
    IF(kernel == 0 ? k.all_exist : yes()) { // in kernel 0 all columns of a thread exist, or none
        load_pivots(&k);
        accumulate_columns(&k);
    }
    separate_counts(&k);
    tensor sS[REDUCE_VALUES_MAX]; // (SLOTS,VEC)
    make_slots(&k, sS);
    merge_layers(&k, sS);
    val is_mine = eq(k.layer, imm(0));
    if (cfg->split > 1)
        is_mine = logical_and(is_mine, merge_ctas(&k, sS));
    IF(is_mine)
        store_columns(&k);
}

void reduce_columns(const void *config, int kernel)
{
    const reduce_columns_config *cfg = config;
    reducer r = reducer_of(&cfg->kind, cfg->compensated);
    reduce_columns_with(cfg, &r, kernel);
}
