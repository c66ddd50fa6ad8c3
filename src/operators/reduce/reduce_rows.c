/*
 * reduce_rows.c - rows whose elements lie side by side: a few lanes a row, a CTA a row, or several CTAs a row.
 *
 * A row is a sequence of tiles of lanes * vec * steps elements; the threads of a row take a tile together, each `steps`
 * vectors that are all in flight at once. Where rows are not aligned to vectors (part 1), tiles start at the 16-byte
 * boundary before the row, and only its first and last vectors are taken element by element.
 */
#include "operators/reduce/reduce_kernel.h"

enum { WARP = 32, BULK_ALIGNMENT = 16 };

/* Who this thread is, and which row it works on. */
typedef struct place {
    val row;         // i64, of an existing row
    val is_present;  // whether it is this thread's own: the last CTA may have lanes to spare
    val lane;        // u32, among the threads of the row in this CTA
    val part, parts; // i64, of the row's CTAs: which one this is, how many there are
} place;

typedef struct rows_kernel {
    const reduce_rows_config *cfg;
    const reducer *r;
    int part;
    reduce_arguments a;
    place p;
    val row_start; // address of the row's first element
    val pivot;
    val counter, arrival; // where rows have several CTAs: the row's counter, and how many came before this one
    val *state;
} rows_kernel;

/* A piece of a row that lies in one stretch, counted in elements from the boundary before it. */
typedef struct segment {
    val address;   // of element 0: the boundary
    val head, end; // i64: where the row's elements begin and end
    val first;     // i64: index in the row of what would be element 0
} segment;

static bool by_cta(const reduce_rows_config *cfg)
{
    return cfg->lanes == cfg->threads;
}

static int64_t tile_elements(const reduce_rows_config *cfg)
{
    return (int64_t)cfg->lanes * cfg->vec * cfg->steps;
}

/* Rows that start anywhere within a vector. */
static bool is_ragged(const rows_kernel *k)
{
    return k->part == 1 && k->cfg->vec > 1;
}

/* first: the first row of this CTA, where it has several at once. */
static place find_place(const reduce_rows_config *cfg, val rows, val first)
{
    val ctas = imm_as(U32, cfg->split * cfg->cluster), cta = cta_x(); // of a row; one of the two is 1
    if (by_cta(cfg))
        return (place){ .row = convert(I64, div(cta, ctas)),
                        .is_present = yes(),
                        .lane = thread(),
                        .part = convert(I64, rem(cta, ctas)),
                        .parts = convert(I64, ctas) };
    val row = add(first, convert(I64, div(thread(), imm(cfg->lanes))));
    val last = sub(rows, imm(1));
    return (place){ .row = min(row, last),
                    .is_present = lt(row, rows),
                    .lane = rem(thread(), imm(cfg->lanes)),
                    .part = imm64(0),
                    .parts = imm64(1) };
}

/* Segment number index of the row: one for each coordinate of the outer reduced modes. */
static segment find_segment(const rows_kernel *k, val index)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(k->cfg->dtype), inner = k->a.reduced_count - 1;
    val extent = k->a.reduced[inner].extent;
    segment s = { .address = k->row_start, .head = imm64(0), .end = extent, .first = mul(index, extent) };
    if (inner > 0) {
        reduce_arguments outer = k->a;
        outer.reduced_count--;
        s.address = reduce_address(s.address, reduce_element_offset(&outer, index), k->cfg->dtype);
    }
    if (!is_ragged(k))
        return s;
    val past = bit_and(s.address, imm_as(U64, k->cfg->vec * bytes - 1));
    s.head = convert(I64, div(past, imm((int)bytes)));
    s.end = add(extent, s.head);
    s.first = sub(s.first, s.head);
    s.address = sub(s.address, past);
    return s;
}

/* The vectors of this thread from element `mine` of a segment on: (VEC,STEPS). */
static tensor vectors_at(const rows_kernel *k, const segment *s, val mine)
{
    const reduce_rows_config *cfg = k->cfg;
    layout a = make_layout(shape(cfg->vec, cfg->steps), stride(1, (int64_t)cfg->vec * cfg->lanes));
    return with_cache(gmem_tensor(reduce_address(s->address, mine, cfg->dtype), cfg->dtype, a), IR_CACHE_READONLY);
}

/* Loads vector number `step`. Elements that are not side by side are single, a stride apart. */
static void load_step(const rows_kernel *k, const segment *s, val mine, int step, tensor tXgX, packed to)
{
    const reduce_rows_config *cfg = k->cfg;
    tensor gX = slice(tXgX, _, step); // (VEC)
    if (cfg->strided) {
        val index = add(mine, imm(step * cfg->lanes));
        val distance = mul(index, k->a.reduced[k->a.reduced_count - 1].stride);
        gX = with_cache(gmem_tensor(reduce_address(s->address, distance, cfg->dtype), cfg->dtype, compact(leaf(1))),
                        IR_CACHE_READONLY); // (1)
    }
    packed_load(gX, cfg->vec * (int)ckl_dtype_bytes(cfg->dtype), to);
}

/* Takes `count` vectors out of registers, of which the first is number `step` of the tile. */
static void take_steps(const rows_kernel *k, val index, int step, int count, const packed *rX)
{
    const reduce_rows_config *cfg = k->cfg;
    int size = count * cfg->vec;
    val x[size];
    int64_t distance[size];
    for (int s = 0; s < count; s++) {
        tensor rStep = unpacked(rX[s], k->r->input); // (VEC)
        for (int e = 0; e < cfg->vec; e++)
            x[s * cfg->vec + e] = at(rStep, e);
    }
    for (int i = 0; i < size; i++)
        distance[i] = i % cfg->vec + (int64_t)(step + i / cfg->vec) * cfg->lanes * cfg->vec;
    reduce_batch batch = { .x = x, .size = size, .first = index, .distance = distance };
    reduce_take(k->r, &batch, k->pivot, k->state);
}

/* A vector of which only some elements belong to the row: the row's threads take one each, or a few. */
typedef struct partial {
    int count;
    val *index, *inside, *x;
} partial;

static partial load_partial(const rows_kernel *k, const segment *s, val base, val exists)
{
    const reduce_rows_config *cfg = k->cfg;
    int count = (int)ceil_div(cfg->vec, cfg->lanes);
    val *room = ir_alloc((size_t)(3 * count), sizeof *room);
    partial p = { count, room, room + count, room + 2 * count };
    for (int i = 0; i < count; i++) {
        val number = add(k->p.lane, imm(i * cfg->lanes));
        p.index[i] = add(base, convert(I64, number));
        val in_row = logical_and(ge(p.index[i], s->head), lt(p.index[i], s->end));
        p.inside[i] = logical_and(logical_and(exists, lt(number, imm(cfg->vec))), in_row);
        p.x[i] = variable(k->r->input, imm(0));
        val address = reduce_address(s->address, p.index[i], cfg->dtype);
        IF(p.inside[i])
            assign(p.x[i], reduce_load_one(k->r, address, cfg->dtype));
    }
    return p;
}

static void take_partial(const rows_kernel *k, const segment *s, const partial *p)
{
    static const int64_t here = 0;
    for (int i = 0; i < p->count; i++)
        IF(p->inside[i]) {
            reduce_batch one = { .x = &p->x[i], .size = 1, .first = add(s->first, p->index[i]), .distance = &here };
            reduce_take(k->r, &one, k->pivot, k->state);
        }
}

/* The segment's first vector, if a part of it is not the row's, and its last one, if they lie in the tile. */
static void load_partials(const rows_kernel *k, const segment *s, val tile, partial *head, partial *tail)
{
    int vec = k->cfg->vec;
    val last = mul(div(s->end, imm(vec)), imm(vec)), none = imm64(0);
    val begins = logical_and(eq(tile, none), logical_or(lt(none, s->head), lt(s->end, imm(vec))));
    val ends = logical_and(ge(last, tile), lt(last, add(tile, imm64(tile_elements(k->cfg)))));
    *head = load_partial(k, s, none, begins);
    *tail = load_partial(k, s, last, logical_and(ends, lt(none, last)));
}

/* A tile that reaches out of the segment: its vectors are guarded, all loads before the first use. */
static void take_edge(const rows_kernel *k, const segment *s, val tile, val mine)
{
    const reduce_rows_config *cfg = k->cfg;
    tensor tXgX = vectors_at(k, s, mine); // (VEC,STEPS)
    packed rX[cfg->steps];
    partial head = { 0 }, tail = { 0 };
    val whole[cfg->steps];
    for (int i = 0; i < cfg->steps; i++) {
        rX[i] = packed_registers(cfg->dtype, cfg->vec);
        fill(rX[i].rWords, convert(rX[i].rWords.dtype, imm(0)));
        val first = add(mine, imm(i * cfg->lanes * cfg->vec));
        whole[i] = logical_and(ge(first, s->head), ge(s->end, add(first, imm(cfg->vec))));
        IF(whole[i])
            load_step(k, s, mine, i, tXgX, rX[i]);
    }
    if (is_ragged(k))
        load_partials(k, s, tile, &head, &tail);
    take_partial(k, s, &head);
    for (int i = 0; i < cfg->steps; i++)
        IF(whole[i])
            take_steps(k, add(s->first, mine), i, 1, &rX[i]);
    take_partial(k, s, &tail);
}

static void take_tile(const rows_kernel *k, const segment *s, val mine)
{
    const reduce_rows_config *cfg = k->cfg;
    tensor tXgX = vectors_at(k, s, mine); // (VEC,STEPS)
    packed rX[cfg->steps];
    for (int i = 0; i < cfg->steps; i++) {
        rX[i] = packed_registers(cfg->dtype, cfg->vec);
        load_step(k, s, mine, i, tXgX, rX[i]);
    }
    take_steps(k, add(s->first, mine), 0, cfg->steps, rX);
}

/* Every part of the row takes each parts-th tile. */
static void take_row(const rows_kernel *k)
{
    const reduce_rows_config *cfg = k->cfg;
    int64_t tile = tile_elements(cfg), slack = is_ragged(k) ? cfg->vec - 1 : 0;
    val inner = k->a.reduced[k->a.reduced_count - 1].extent, tiles_inner, tiles, mine_in_tile;
    tiles_inner = div(add(inner, imm64(tile - 1 + slack)), imm64(tile));
    tiles = k->a.reduced_count == 1 ? tiles_inner : variable(I64, imm(0));
    if (k->a.reduced_count > 1)
        IF(lt(imm(0), k->a.row.count))
            assign(tiles, mul(tiles_inner, div(k->a.row.count, inner)));
    mine_in_tile = convert(I64, mul(k->p.lane, imm(cfg->vec)));
    segment only = find_segment(k, imm64(0));
    LOOP_FROM(t, k->p.part, tiles, k->p.parts)
    {
        segment s = only;
        val tile_of_segment = t;
        if (k->a.reduced_count > 1) {
            val index = div(t, tiles_inner);
            s = find_segment(k, index);
            tile_of_segment = sub(t, mul(index, tiles_inner));
        }
        val first = mul(tile_of_segment, imm64(tile)), mine = add(first, mine_in_tile);
        IF(logical_and(ge(first, s.head), ge(s.end, add(first, imm64(tile)))))
            take_tile(k, &s, mine);
        ELSE take_edge(k, &s, first, mine);
    }
}

/* Every thread of the last CTA receives its share of the parts and merges them in their order. */
static void merge_shares(const rows_kernel *k, const reduce_slots *slots)
{
    const reduce_rows_config *cfg = k->cfg;
    int count = (int)min_i64(REDUCE_RECEIVE_MAX, ceil_div(cfg->split, cfg->threads));
    val start[REDUCE_VALUES_MAX], part[REDUCE_RECEIVE_MAX], states[REDUCE_RECEIVE_MAX][REDUCE_VALUES_MAX];
    k->r->start(k->r, start);
    for (int i = 0; i < k->r->count; i++)
        assign(k->state[i], start[i]);
    LOOP_FROM(t, convert(I64, thread()), imm64(cfg->split), imm(count * cfg->threads))
    {
        for (int u = 0; u < count; u++)
            part[u] = add(t, imm(u * cfg->threads));
        reduce_receive(slots, part, count, states);
        for (int u = 0; u < count; u++)
            k->r->merge(k->state, states[u], (void *)k->r);
    }
}

static reduce_slots slots_of(const rows_kernel *k)
{
    int64_t words = (int64_t)reduce_state_words(k->r) * k->cfg->split;
    return (reduce_slots){ .r = k->r,
                           .address = add(k->a.partials, convert(U64, mul(k->p.row, imm64(8 * words)))),
                           .places = k->cfg->split };
}

/* The last CTA of a row to have started merges the states of all. A warp is enough for few of them. */
static val merge_parts(const rows_kernel *k, int64_t scratch)
{
    const reduce_rows_config *cfg = k->cfg;
    const reduction all = reduce_reduction(k->r);
    reduce_slots slots = slots_of(k);
    bool one_warp = cfg->split <= WARP;
    IF(eq(thread(), imm(0)))
        reduce_leave(&slots, k->p.part, k->state);
    val is_last = reduce_is_last(k->counter, k->arrival, cfg->split), is_mine = variable(I32, imm(0));
    if (!one_warp)
        is_last = reduce_told_to_cta(is_last);
    IF(one_warp ? eq(warp(), imm(0)) : yes()) {
        if (one_warp)
            is_last = vote_any(ne(is_last, imm(0)));
        IF(is_last) {
            assign(is_mine, imm(1));
            merge_shares(k, &slots);
            if (one_warp)
                warp_reduce(&all, WARP, k->state);
            else
                cta_reduce(&all, cfg->threads, scratch, k->state);
        }
    }
    return ne(is_mine, imm(0));
}

/* Merges the states of all threads of the row; whoever returns true has the total. */
static val merge_row(const rows_kernel *k)
{
    const reduce_rows_config *cfg = k->cfg;
    const reduction all = reduce_reduction(k->r);
    val is_first = eq(k->p.lane, imm(0));
    if (!by_cta(cfg)) {
        warp_reduce(&all, cfg->lanes, k->state);
        return logical_and(is_first, k->p.is_present);
    }
    int64_t scratch = smem_alloc("states", cta_reduce_bytes(cfg->threads), 16);
    cta_reduce(&all, cfg->threads, scratch, k->state);
    if (cfg->split > 1)
        return logical_and(is_first, merge_parts(k, scratch));
    if (cfg->cluster > 1) {
        cluster_wait(); // all CTAs have started: see reduce_rows_with()
        cluster_reduce(&all, cfg->cluster, smem_alloc("peers", cta_reduce_bytes(cfg->threads), 16), k->state);
        return logical_and(is_first, eq(cluster_rank(), imm(0)));
    }
    return is_first;
}

/*
 * Asks for the first tile of a CTA while the kernel before may still run: L2 then has it, or soon will. Only of whole
 * vectors in one stretch.
 */
static void prefetch(const rows_kernel *k)
{
    const reduce_rows_config *cfg = k->cfg;
    int64_t bytes = (int64_t)ckl_dtype_bytes(cfg->dtype), tile = tile_elements(cfg);
    if (!cfg->prefetch || !by_cta(cfg) || cfg->strided || k->part == 1 || k->a.reduced_count > 1 ||
        cfg->vec * bytes < BULK_ALIGNMENT)
        return;
    val extent = k->a.reduced[0].extent;
    IF(lt(thread(), imm(cfg->prefetch))) {
        val number = add(k->p.part, mul(convert(I64, thread()), k->p.parts));
        val first = mul(number, imm64(tile)), here = min(sub(extent, first), imm64(tile));
        IF(lt(first, extent))
            bulk_prefetch(reduce_address(k->row_start, first, cfg->dtype), convert(U32, mul(here, imm((int)bytes))));
    }
}

/* Everything of one row, or of the rows that the CTA takes at once. */
static void work_on_row(rows_kernel *k)
{
    reduce_begin(k->r, k->state);
    k->pivot = reduce_load_pivot(k->r, &k->a, k->row_start, k->cfg->dtype);
    take_row(k);
    val has_total = merge_row(k);
    IF(has_total)
        reduce_store(k->r, &k->a, k->cfg->output, k->p.row, k->state);
}

static void place_at(rows_kernel *k, val first)
{
    k->p = find_place(k->cfg, k->a.rows, first);
    k->row_start = reduce_address(k->a.x, reduce_row_offset(&k->a, k->p.row), k->cfg->dtype);
}

void reduce_rows_with(const reduce_rows_config *cfg, const reducer *r, int part)
{
    val state[REDUCE_VALUES_MAX];
    launch_bounds(cfg->threads, cfg->ctas_per_sm);
    cluster_size(cfg->cluster);
    rows_kernel k = { .cfg = cfg, .r = r, .part = part, .state = state };
    k.a = reduce_declare_arguments(cfg->kept, cfg->reduced);
    val at_once = imm64(cfg->threads / cfg->lanes), first = mul(convert(I64, cta_x()), at_once);
    if (by_cta(cfg)) {
        place_at(&k, first);
        prefetch(&k);
    }
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before, where the target knows how
    if (cfg->split > 1) {
        k.counter = add(k.a.counters, convert(U64, mul(k.p.row, imm(4))));
        k.arrival = reduce_arrive(k.counter);
    }
    if (cfg->cluster > 1)
        cluster_arrive(); // this CTA has started: peers may write to its shared memory
    if (by_cta(cfg)) {
        work_on_row(&k);
        return;
    }
    LOOP_FROM(row, first, k.a.rows, mul(convert(I64, grid_x()), at_once))
    {
        place_at(&k, row);
        work_on_row(&k);
    }
}

void reduce_rows(const void *config, int part)
{
    const reduce_rows_config *cfg = config;
    reducer r = reducer_of(cfg->op, cfg->dtype, cfg->output, cfg->compensated);
    reduce_rows_with(cfg, &r, part);
}
