/*
 * reduce_rows.c - rows whose elements lie side by side: a few threads a row, a CTA a row, or several CTAs a row.
 *
 * A row is a sequence of tiles of row_threads * vec * steps elements. The threads of a row load a tile together, each
 * `steps` vectors that are all in flight at once. Rows of several stretches of memory, segments, have tiles of their
 * own in each; where segments are short, the threads take several at once. Where rows are not aligned to vectors
 * (kernel 1), tiles consist of the vectors between the first and the last boundary of the row, and the elements at its
 * ends are loaded one by one.
 */
#include "operators/reduce/reduce_kernel.h"

enum { WARP = 32, BULK_ALIGNMENT = 16 };

/* Who this thread is, and which row it works on. */
typedef struct place {
    val row;        // i64, of an existing row
    val is_present; // is it this thread's own? The last CTA may have lanes to spare
    val lane;       // u32, among the threads of the row in this CTA
    val along;      // u32, among those of its segment
    val beside;     // i64, of the segments side by side
    val rank, ctas; // i64, of the row's CTAs: the number of this one, how many there are
} place;

typedef struct rows_kernel {
    const reduce_rows_config *cfg;
    const reducer *r;
    int kernel;
    reduce_values p;
    place here;
    tensor gRow; // (REDUCED...)
    val pivot;
    val counter, arrival; // where rows have several CTAs: the row's counter, and how many came before this one
    val *state;
} rows_kernel;

/* A segment of a row lies in one stretch of memory; it is counted in elements from its first boundary. */
typedef struct segment {
    val address;    // of element 0: the boundary
    val end;        // i64: where tiles end
    val first;      // i64: index in the row of element 0
    val head, ends; // i64, of a ragged row: how many elements lie before element 0, and at both ends together
} segment;

static bool by_cta(const reduce_rows_config *cfg)
{
    return cfg->row_threads == cfg->threads;
}

/* Threads that share a segment. */
static int lanes_of(const reduce_rows_config *cfg)
{
    return cfg->row_threads / cfg->segments;
}

/* A tile of a segment: neighbouring threads have neighbouring vectors. */
static layout tile_layout(const reduce_rows_config *cfg)
{
    return compact(shape(cfg->vec, lanes_of(cfg), cfg->steps)); // (VEC,LANES,STEPS)
}

/* A thread's partition of it, from its first element on. */
static layout partition_layout(const reduce_rows_config *cfg)
{
    return slice_layout(coord(_, 0, _), tile_layout(cfg)); // (VEC,STEPS)
}

static int64_t tile_elements(const reduce_rows_config *cfg)
{
    return static_size(tile_layout(cfg));
}

/* Rows that start anywhere within a vector. */
static bool is_ragged(const rows_kernel *k)
{
    return k->kernel == 1 && k->cfg->vec > 1;
}

/* The thread's place among the segments side by side. */
static place in_segments(const reduce_rows_config *cfg, place p)
{
    p.along = cfg->segments > 1 ? rem(p.lane, imm(lanes_of(cfg))) : p.lane;
    p.beside = cfg->segments > 1 ? convert(I64, div(p.lane, imm(lanes_of(cfg)))) : imm64(0);
    return p;
}

static place find_place(const reduce_rows_config *cfg, val rows)
{
    val ctas = imm_as(U32, cfg->split), cta = cta_x(); // of a row
    if (by_cta(cfg))
        return (place){ .row = convert(I64, div(cta, ctas)),
                        .is_present = yes(),
                        .lane = thread(),
                        .rank = convert(I64, rem(cta, ctas)),
                        .ctas = convert(I64, ctas) };
    const int at_once = cfg->threads / cfg->row_threads;
    val first = mul(convert(I64, cta), imm64(at_once)), last = sub(rows, imm(1));
    val row = add(first, convert(I64, thread_at(thread(), 1, cfg->row_threads, at_once)));
    return (place){ .row = min(row, last),
                    .is_present = lt(row, rows),
                    .lane = thread_at(thread(), 0, cfg->row_threads, at_once),
                    .rank = imm64(0),
                    .ctas = imm64(1) };
}

/* Segment number index of the row: one for each coordinate of the outer reduced modes. */
static segment find_segment(const rows_kernel *k, val index)
{
    int64_t bytes = dtype_bytes(k->cfg->kind.dtype), inner = k->cfg->kind.reduced - 1;
    val extent = k->p.reduced_extent[inner];
    segment s = { .address = k->gRow.address, .end = extent, .first = mul(index, extent) };
    if (inner > 0) {
        layout outer = reduce_modes((int)inner, k->p.reduced_extent, k->p.reduced_stride);
        s.address = gmem_address(s.address, k->cfg->kind.dtype, crd2idx(dynamic(index), outer));
    }
    if (!is_ragged(k))
        return s;
    val to_boundary = bit_and(sub(imm_as(U64, 0), s.address), imm_as(U64, k->cfg->vec * bytes - 1));
    s.head = min(convert(I64, div(to_boundary, imm((int)bytes))), extent);
    s.end = bit_and(sub(extent, s.head), imm64(-k->cfg->vec));
    s.ends = sub(extent, s.end);
    s.first = add(s.first, s.head);
    s.address = gmem_address(s.address, k->cfg->kind.dtype, s.head);
    return s;
}

/*
 * Elements of a segment from number `first` on: by address, because a segment of a ragged row starts at a boundary that
 * no coordinate of x names.
 */
static tensor elements_at(const rows_kernel *k, const segment *s, val first, layout a)
{
    ckl_dtype dtype = k->cfg->kind.dtype;
    return with_cache(gmem_tensor(gmem_address(s->address, dtype, first), dtype, a), IR_CACHE_READONLY);
}

/* Vector number `step` of a tile. Elements that are not side by side are single, a stride apart. */
static tensor vector_at(const rows_kernel *k, const segment *s, val mine, int step, tensor tXgX)
{
    const reduce_rows_config *cfg = k->cfg;
    if (!cfg->strided)
        return slice(tXgX, _, step); // (VEC)
    const val index = add(mine, imm(step * lanes_of(cfg)));
    const val distance = mul(index, k->p.reduced_stride[cfg->kind.reduced - 1]);
    return elements_at(k, s, distance, compact(leaf(1))); // (1)
}

/* Accumulates `count` vectors in registers, of which the first is number `step` of the tile. */
static void accumulate_steps(const rows_kernel *k, val index, int step, int count, const packed *rX)
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
        distance[i] = index_at(partition_layout(cfg), step * cfg->vec + i);
    reduce_batch batch = { .x = x, .size = size, .first = index, .distance = distance };
    reduce_accumulate(k->r, &batch, k->pivot, k->state);
}

/* The elements before the first boundary and after the last: the row's threads load one each, or a few. */
typedef struct row_ends {
    int count;
    val *index, *inside, *x; // index: from element 0 of the segment
} row_ends;

static row_ends load_ends(const rows_kernel *k, const segment *s, val wanted)
{
    const reduce_rows_config *cfg = k->cfg;
    int count = (int)ceil_div(2 * (cfg->vec - 1), lanes_of(cfg));
    val *room = describe_alloc((size_t)(3 * count), sizeof *room);
    row_ends p = { count, room, room + count, room + 2 * count };
    for (int i = 0; i < count; i++) {
        val number = convert(I64, add(k->here.along, imm(i * lanes_of(cfg)))), from_head = sub(number, s->head);
        p.index[i] = add(from_head, select(lt(from_head, imm64(0)), imm64(0), s->end));
        p.inside[i] = logical_and(wanted, lt(number, s->ends));
        p.x[i] = variable(k->r->input, imm(0));
        tensor gX = elements_at(k, s, p.index[i], compact(leaf(1))); // (1)
        IF(p.inside[i])
            assign(p.x[i], convert(k->r->input, at(gX, 0)));
    }
    return p;
}

static void accumulate_ends(const rows_kernel *k, const segment *s, const row_ends *e)
{
    for (int i = 0; i < e->count; i++)
        IF(e->inside[i])
            reduce_accumulate_one(k->r, e->x[i], add(s->first, e->index[i]), k->pivot, k->state);
}

/*
 * Do `count` elements from number `first` on lie inside the tiles? NOTE: the first comparison is always true, but
 * without it ptxas 13.0 takes 48 registers instead of 40 for var of bf16.
 */
static val is_inside(const segment *s, val first, int64_t count)
{
    return logical_and(ge(first, imm64(0)), ge(s->end, add(first, imm64(count))));
}

/*
 * A tile whose steps from `guarded` on may reach out of the segment: all loads before the first use; the steps before
 * are one batch.
 */
static void take_tile(const rows_kernel *k, const segment *s, val mine, int guarded)
{
    const reduce_rows_config *cfg = k->cfg;
    const int bytes = cfg->vec * dtype_bytes(cfg->kind.dtype);
    tensor tXgX = elements_at(k, s, mine, partition_layout(cfg)); // (VEC,STEPS)
    packed rX[cfg->steps];
    val inside[cfg->steps];
    for (int i = 0; i < cfg->steps; i++) {
        if (i >= guarded)
            inside[i] = is_inside(s, add(mine, imm(i * lanes_of(cfg) * cfg->vec)), cfg->vec);
        tensor gX = vector_at(k, s, mine, i, tXgX); // (VEC)
        rX[i] = i < guarded ? load_packed(gX, bytes) : load_packed_if(inside[i], gX, bytes);
    }
    if (guarded > 0)
        accumulate_steps(k, add(s->first, mine), 0, guarded, rX);
    for (int i = guarded; i < cfg->steps; i++)
        IF(inside[i])
            accumulate_steps(k, add(s->first, mine), i, 1, &rX[i]);
}

/* Of tiles that are not full, all steps but the last are inside for every thread where a row, or a segment, is one. */
static void partial_tile(const rows_kernel *k, const segment *s, val first, val mine)
{
    const reduce_rows_config *cfg = k->cfg;
    const bool is_long = by_cta(cfg) && cfg->segments == 1 && !cfg->one_tile; // few of its tiles are partial
    if (is_long || cfg->steps == 1) {
        take_tile(k, s, mine, 0);
        return;
    }
    IF(is_inside(s, first, tile_elements(cfg) - lanes_of(cfg) * cfg->vec))
        take_tile(k, s, mine, cfg->steps - 1);
    ELSE take_tile(k, s, mine, 0);
}

/* Tile number t of a segment, of which this thread has the element at place `mine` first. */
static void accumulate_tile(const rows_kernel *k, const segment *s, val t, val mine)
{
    const int64_t tile = tile_elements(k->cfg);
    val first = mul(t, imm64(tile));
    mine = add(first, mine);
    IF(is_inside(s, first, tile))
        take_tile(k, s, mine, k->cfg->steps);
    ELSE partial_tile(k, s, first, mine);
}

/* i64: tiles of a row, and of one of its segments or of those side by side; segments, where some are. */
typedef struct row_tiles {
    val all, of_segment, segments;
} row_tiles;

static row_tiles count_tiles(const rows_kernel *k)
{
    const reduce_rows_config *cfg = k->cfg;
    const int64_t tile = tile_elements(cfg);
    val inner = k->p.reduced_extent[cfg->kind.reduced - 1];
    row_tiles n = { .of_segment = div(add(inner, imm64(tile - 1)), imm64(tile)) };
    n.all = n.of_segment;
    if (cfg->kind.reduced == 1)
        return n;
    n.all = variable(I64, imm(0));
    if (cfg->segments > 1)
        n.segments = variable(I64, imm(0));
    IF(lt(imm(0), k->p.count)) {
        val segments = div(k->p.count, inner), in_turn = segments;
        if (cfg->segments > 1) {
            assign(n.segments, segments);
            in_turn = div(add(segments, imm64(cfg->segments - 1)), imm64(cfg->segments));
        }
        assign(n.all, mul(n.of_segment, in_turn));
    }
    return n;
}

/* Goes to the segment of tile number t of a row of several, whose ends come with its first tile: its number in it. */
static val go_to_segment(const rows_kernel *k, const row_tiles *n, val t, segment *s, row_ends *ends)
{
    const reduce_rows_config *cfg = k->cfg;
    val index = div(t, n->of_segment), own = index, exists = yes();
    if (cfg->segments > 1) {
        own = add(mul(index, imm64(cfg->segments)), k->here.beside);
        exists = lt(own, n->segments);
    }
    *s = find_segment(k, own);
    s->end = cfg->segments > 1 ? select(exists, s->end, imm64(0)) : s->end;
    val tile = sub(t, mul(index, n->of_segment));
    if (is_ragged(k))
        *ends = load_ends(k, s, logical_and(exists, eq(tile, imm64(0))));
    return tile;
}

/* The CTAs of a row take its tiles in turn; the first one also the ends of its segments. */
static void accumulate_row(const rows_kernel *k)
{
    const bool several = k->cfg->kind.reduced > 1;
    const row_tiles n = count_tiles(k);
    val mine = convert(I64, crd2idx(coord(0, k->here.along, 0), tile_layout(k->cfg)));
    segment s = find_segment(k, imm64(0));
    row_ends ends = { 0 };
    if (is_ragged(k) && !several)
        ends = load_ends(k, &s, eq(k->here.rank, imm64(0)));
    LOOP_FROM(t, k->here.rank, n.all, k->here.ctas) {
        accumulate_tile(k, &s, several ? go_to_segment(k, &n, t, &s, &ends) : t, mine);
        if (several)
            accumulate_ends(k, &s, &ends);
    }
    if (!several)
        accumulate_ends(k, &s, &ends);
}

/* Every thread of the last CTA receives the states of some CTAs and merges them in their order. */
static void merge_received(const rows_kernel *k, const reduce_slots *slots)
{
    const reduce_rows_config *cfg = k->cfg;
    int count = (int)min_i64(REDUCE_RECEIVE_MAX, ceil_div(cfg->split, cfg->threads));
    val identity[REDUCE_VALUES_MAX], ranks[REDUCE_RECEIVE_MAX], states[REDUCE_RECEIVE_MAX][REDUCE_VALUES_MAX];
    k->r->identity(k->r, identity);
    for (int i = 0; i < k->r->count; i++)
        assign(k->state[i], identity[i]);
    LOOP_FROM(t, convert(I64, thread()), imm64(cfg->split), imm(count * cfg->threads)) {
        for (int u = 0; u < count; u++)
            ranks[u] = add(t, imm(u * cfg->threads));
        reduce_receive(slots, ranks, count, states);
        for (int u = 0; u < count; u++)
            k->r->merge(k->state, states[u], (void *)k->r);
    }
}

/* The last CTA of a row to have started merges the states of all. A warp is enough for few of them. */
static val merge_ctas(const rows_kernel *k, int64_t scratch)
{
    const reduce_rows_config *cfg = k->cfg;
    const reduction all = reduce_reduction(k->r);
    reduce_slots slots = reduce_slots_of(k->r, k->p.states, k->here.row, cfg->split);
    bool one_warp = cfg->split <= WARP;
    IF(eq(thread(), imm(0)))
        reduce_send(&slots, k->here.rank, k->state);
    val is_last = reduce_is_last(k->counter, k->arrival, cfg->split), is_mine = variable(I32, imm(0));
    if (!one_warp)
        is_last = reduce_broadcast(is_last);
    IF(one_warp ? eq(warp(), imm(0)) : yes()) {
        if (one_warp)
            is_last = vote_any(ne(is_last, imm(0)));
        IF(is_last) {
            assign(is_mine, imm(1));
            merge_received(k, &slots);
            if (one_warp)
                warp_reduce(&all, WARP, k->state);
            else
                cta_reduce(&all, cfg->threads, scratch, k->state);
        }
    }
    return ne(is_mine, imm(0));
}

/* Merges the states of all threads of the row; where it returns true, this thread has the total. */
static val merge_row(const rows_kernel *k)
{
    const reduce_rows_config *cfg = k->cfg;
    const reduction all = reduce_reduction(k->r);
    val is_first = eq(k->here.lane, imm(0));
    if (!by_cta(cfg)) {
        warp_reduce(&all, cfg->row_threads, k->state);
        return logical_and(is_first, k->here.is_present);
    }
    int64_t scratch = smem_alloc("states", cta_reduce_bytes(cfg->threads), 16);
    cta_reduce_to_warp(&all, cfg->threads, scratch, k->state);
    return cfg->split > 1 ? logical_and(is_first, merge_ctas(k, scratch)) : is_first;
}

/*
 * Prefetches the first tile of a CTA to L2 while the kernel before may still run; only of vectors in one stretch, and
 * whole chunks of them.
 */
static void prefetch(const rows_kernel *k)
{
    const reduce_rows_config *cfg = k->cfg;
    const int64_t bytes = dtype_bytes(cfg->kind.dtype), tile = tile_elements(cfg);
    if (!cfg->prefetch || !by_cta(cfg) || cfg->strided || cfg->kind.reduced > 1 || cfg->vec * bytes < BULK_ALIGNMENT)
        return;
    const val first = mul(k->here.rank, imm64(tile)), after = min(k->p.reduced_extent[0], add(first, imm64(tile)));
    const val begin = gmem_address(k->gRow.address, cfg->kind.dtype, first);
    const val end = gmem_address(k->gRow.address, cfg->kind.dtype, after);
    const val from = bit_and(add(begin, imm(BULK_ALIGNMENT - 1)), imm_as(U64, -BULK_ALIGNMENT));
    const val to = bit_and(end, imm_as(U64, -BULK_ALIGNMENT));
    IF(logical_and(eq(thread(), imm(0)), lt(from, to)))
        bulk_prefetch(from, convert(U32, sub(to, from)));
}

void reduce_rows(const void *config, int kernel)
{
    const reduce_rows_config *cfg = config;
    const reducer r = reducer_of(&cfg->kind, cfg->compensated);
    val state[REDUCE_VALUES_MAX];
    launch_bounds(cfg->threads, cfg->ctas_per_sm);
    rows_kernel k = { .cfg = cfg, .r = &r, .kernel = kernel, .state = state };
    k.p = params_of(reduce);
    k.here = in_segments(cfg, find_place(cfg, k.p.rows));
    k.gRow = reduce_row(&cfg->kind, &k.p, k.here.row);
    prefetch(&k);
    reduce_wait(cfg->overlap);
    if (cfg->split > 1) {
        k.counter = add(k.p.counters, convert(U64, mul(k.here.row, imm(4))));
        k.arrival = reduce_arrive(k.counter);
    }
    reduce_begin(&r, state);
    k.pivot = reduce_load_pivot(&r, &k.p, k.gRow);
    accumulate_row(&k);
    val has_total = merge_row(&k);
    IF(has_total)
        reduce_store(&r, &k.p, cfg->kind.output, k.here.row, state);
}
