/*
 * reduce_columns.c - rows that lie across memory: neighbouring threads reduce neighbouring columns, so loads are full
 * lines.
 *
 * A CTA owns lanes * vec columns; its threads / lanes layers of threads share their elements, `steps` vectors of each
 * in flight, and are merged by shuffles and in shared memory. The elements of long columns are split over several CTAs
 * as well.
 *
 * Ragged columns (kernel 1) start anywhere in a vector of memory, elsewhere in each line. A thread still loads whole
 * vectors: its lines are a multiple of vec apart, so all its vectors have the same shift from its lane's columns, and
 * it reduces the columns that they hold. Columns of different shifts meet only when the states of a CTA are merged. The
 * last lane's columns are the next CTA's.
 */
#include "operators/reduce/reduce_columns.h"

enum { WARP = 32 };

int reduce_columns_layers(const reduce_columns_config *cfg)
{
    return cfg->threads / cfg->lanes;
}

int reduce_columns_groups(const reduce_columns_config *cfg)
{
    return cfg->threads / (int)max_i64(cfg->lanes, WARP);
}

val reduce_columns_group(const reduce_columns_config *cfg, int mode)
{
    return thread_at(thread(), mode, (int)max_i64(cfg->lanes, WARP), reduce_columns_groups(cfg));
}

bool reduce_columns_ragged(const reduce_columns_config *cfg)
{
    const int groups = reduce_columns_groups(cfg);
    return cfg->kind.reduced == 1 && cfg->vec > 1 && cfg->lanes > 1 && groups > 0 && groups % cfg->vec == 0;
}

int reduce_columns_ctas_per_sm(const reduce_columns_config *cfg, bool ragged)
{
    enum { THREADS_WITH_GUARDS = 768 };
    const bool many = dtype_bytes(cfg->kind.dtype) == 2 || !dtype_is_float(cfg->kind.dtype); // registers
    const bool dear = ragged && many && reduce_state_words(&cfg->kind, cfg->compensated) > 1;
    const int most = REDUCE_THREADS_WANTED / cfg->threads;
    return dear ? (int)min_i64(most, THREADS_WITH_GUARDS / cfg->threads) : most;
}

int reduce_columns_width(const reduce_columns_config *cfg, bool ragged)
{
    return (cfg->lanes - ragged) * cfg->vec;
}

static int tile_elements(const reduce_columns_config *cfg)
{
    return reduce_columns_layers(cfg) * cfg->steps;
}

/*
 * Lanes and layers to threads. Several layers of ragged columns in a warp are a multiple of vec lines apart, so
 * shuffles merge the same columns.
 */
static layout threads_of(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    if (!k->ragged)
        return compact(shape(cfg->lanes, reduce_columns_layers(cfg)));
    const int of_group = (int)max_i64(cfg->lanes, WARP);
    return make_layout(shape(cfg->lanes, shape(reduce_columns_groups(cfg), of_group / cfg->lanes)),
                       stride(1, stride(of_group, cfg->lanes)));
}

/* The coordinates of (COLUMNS,TILE) that a thread takes, as ((VEC,1),1,STEPS). */
static tensor coordinates_of_thread(const columns_kernel *k, val first)
{
    const reduce_columns_config *cfg = k->cfg;
    tiled_copy each =
        make_tiled_copy(universal_copy(CKL_U8, cfg->vec), CKL_U8, threads_of(k), // coordinates have no type
                        compact(shape(cfg->vec, 1)));
    tensor cTile = identity_tensor(shape(cfg->lanes * cfg->vec, tile_elements(cfg))); // (COLUMNS,TILE)
    return coordinates_from(partition_S(&each, cTile, thread()), 0, first);
}

static val element_address(const columns_kernel *k, val column)
{
    layout stretches = reduce_modes(k->cfg->kind.kept - 1, k->p.kept_extent, k->p.kept_stride);
    return gmem_address(k->p.x, k->cfg->kind.dtype, add(crd2idx(dynamic(k->stretch), stretches), column));
}

val reduce_columns_shift(const columns_kernel *k, val group)
{
    val lines = mul(convert(I64, group), k->p.reduced_stride[0]);
    return bit_and(add(k->begin, lines), imm64(k->cfg->vec - 1));
}

/* CTAs side by side read side by side: columns first, then CTAs of the same columns, then stretches. */
static void find_place(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int last = cfg->kind.kept - 1, width = reduce_columns_width(cfg, k->ragged);
    k->columns = k->p.kept_extent[last];
    val tiles = div(add(k->columns, imm(width - 1)), imm(width)), cta = convert(I64, cta_x());
    val tile = rem(cta, tiles), first = mul(tile, imm(width));
    k->stretch = div(cta, mul(tiles, imm(cfg->split)));
    k->tile = add(mul(k->stretch, tiles), tile);
    k->rank = rem(div(cta, tiles), imm(cfg->split));
    k->lane = thread_at(thread(), 0, cfg->lanes, cfg->threads / cfg->lanes);
    tensor cX = coordinates_of_thread(k, first);
    k->owned = k->column = coordinate(cX, 0, 0);
    k->layer = coordinate(cX, 1, 0);
    k->limit = k->columns;
    if (k->ragged) {
        val address = element_address(k, first);
        k->begin = convert(I64, div(address, imm(dtype_bytes(cfg->kind.dtype))));
        k->column = sub(k->owned, reduce_columns_shift(k, reduce_columns_group(cfg, 1)));
        k->limit = min(k->columns, add(first, imm(width)));
    }
    k->start = element_address(k, k->column);
}

/*
 * Which of this thread's columns exist: those from `first` to before `end`. Of ragged ones some may lie before the
 * stretch.
 */
static void find_existing(columns_kernel *k)
{
    const val vec = imm64(k->cfg->vec), none = imm64(0);
    k->end = convert(I32, min(max(sub(k->columns, k->column), none), vec));
    k->first = convert(I32, min(max(sub(none, k->column), none), vec));
}

static val exists(const columns_kernel *k, int c)
{
    val below = lt(imm(c), k->end);
    return k->ragged ? logical_and(ge(imm(c), k->first), below) : below;
}

static val all_exist(const columns_kernel *k)
{
    val below = eq(k->end, imm(k->cfg->vec));
    return k->ragged ? logical_and(eq(k->first, imm(0)), below) : below;
}

static tensor vector_at_address(const columns_kernel *k, val address)
{
    tensor gX = gmem_tensor(address, k->cfg->kind.dtype, compact(leaf(k->cfg->vec))); // (VEC)
    return with_cache(gX, IR_CACHE_READONLY);
}

/* Are elements loaded one by one, as some may not exist? */
static bool guards_elements(const columns_kernel *k)
{
    return k->kernel == 1 && !k->ragged;
}

static int vector_bytes(const columns_kernel *k)
{
    return k->cfg->vec * dtype_bytes(k->cfg->kind.dtype);
}

static packed load_whole(const columns_kernel *k, val address)
{
    return load_packed(vector_at_address(k, address), vector_bytes(k));
}

/* Loads the elements of this thread's columns that exist, one by one. */
static void load_each(const columns_kernel *k, val address, tensor rX)
{
    tensor gX = vector_at_address(k, address); // (VEC)
    for (int c = 0; c < k->cfg->vec; c++)
        IF(exists(k, c))
            set(rX, c, convert(k->r->input, at(gX, c)));
}

/* Loads the elements of this thread's columns at one address; in kernel 1, of those that exist, the others are 0. */
static tensor load_existing(const columns_kernel *k, val address)
{
    if (k->kernel == 0)
        return unpacked(load_whole(k, address), k->r->input);
    tensor rX = fragment(k->r->input, compact(leaf(k->cfg->vec))); // (VEC)
    fill(rX, convert(k->r->input, imm(0)));
    if (k->ragged) {
        IF(all_exist(k))
            copy(unpacked(load_whole(k, address), k->r->input), rX, 0);
        ELSE load_each(k, address, rX);
    } else {
        load_each(k, address, rX);
    }
    return rX;
}

static val address_of_line(const columns_kernel *k, val index)
{
    layout reduced = reduce_modes(k->cfg->kind.reduced, k->p.reduced_extent, k->p.reduced_stride);
    return gmem_address(k->start, k->cfg->kind.dtype, crd2idx(dynamic(index), reduced));
}

/* The addresses of a full tile's vectors of this thread; index is that of the first in its column. */
static void find_addresses(columns_kernel *k, val index, val *address)
{
    const reduce_columns_config *cfg = k->cfg;
    for (int s = 0; s < cfg->steps; s++) {
        if (cfg->kind.reduced == 1)
            address[s] = s ? add(address[s - 1], k->step_bytes) : k->next;
        else
            address[s] = address_of_line(k, add(index, imm(s * reduce_columns_layers(cfg))));
    }
}

static void load_pivots(columns_kernel *k)
{
    if (!k->r->pivot)
        return;
    tensor rPivot = fragment(k->r->input, compact(leaf(k->cfg->vec))); // (VEC)
    fill(rPivot, convert(k->r->input, imm(0)));
    IF(lt(imm(0), k->p.count)) {
        if (k->kernel == 0)
            copy(load_existing(k, k->start), rPivot, 0);
        else
            load_each(k, k->start, rPivot);
    }
    for (int c = 0; c < k->cfg->vec; c++)
        k->pivot[c] = at(rPivot, c);
}

/*
 * Accumulates `count` vectors, of which the first is number `step` of the tile; index is that of vector 0 in its
 * column.
 */
static void accumulate_steps(columns_kernel *k, val index, int step, int count, const tensor *rX)
{
    const reduce_columns_config *cfg = k->cfg;
    val column[count];
    int64_t distance[count];
    reduce_batch batch = { .x = column, .size = count, .first = index, .distance = distance };
    for (int s = 0; s < count; s++)
        distance[s] = (int64_t)(step + s) * reduce_columns_layers(cfg);
    reduce_count(k->r, k->state[0][0], &batch);
    for (int c = 0; c < cfg->vec; c++) {
        for (int s = 0; s < count; s++)
            column[s] = at(rX[s], c);
        k->r->accumulate(k->r, &batch, k->pivot[c], k->state[c]);
    }
}

/* Loads `count` vectors from number `step` of the tile on, then accumulates those of lines before the end. */
static void edge_steps(columns_kernel *k, val index, int step, int count)
{
    packed loaded[count];
    val line[count];
    for (int s = 0; s < count; s++) {
        line[s] = add(index, imm((step + s) * reduce_columns_layers(k->cfg)));
        const val own = select(lt(line[s], k->p.count), line[s], index);
        if (!guards_elements(k))
            loaded[s] = load_whole(k, address_of_line(k, own));
    }
    for (int s = 0; s < count; s++)
        IF(lt(line[s], k->p.count)) {
            tensor rX = guards_elements(k) ? load_existing(k, address_of_line(k, line[s]))
                                           : unpacked(loaded[s], k->r->input); // (VEC)
            accumulate_steps(k, index, step + s, 1, &rX);
        }
}

/*
 * Where the columns end within a tile: in place of lines past the end the thread's first one is loaded again, so that
 * no load is guarded, and as many are under way as registers have room for. Elements that are guarded one by one come
 * line by line.
 */
static void edge_tile(columns_kernel *k, val index)
{
    enum { AT_ONCE = 16, SEVERAL_WORDS = 8, SEVERAL_MODES = 4 };
    const int steps = k->cfg->steps;
    const int most = k->cfg->kind.reduced > 1 ? SEVERAL_MODES : k->r->count > 1 ? SEVERAL_WORDS : AT_ONCE;
    IF(lt(index, k->p.count))
        for (int s = 0; s < steps; s += most)
            edge_steps(k, index, s, (int)min_i64(most, steps - s));
}

/* Are the vectors of a tile at the end loaded at the full tile's addresses, each under its own guard? */
static bool guards_vectors(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    return k->kernel == 0 && cfg->vec > 1 && cfg->steps > 1 && k->r->count == 1 && dtype_bytes(cfg->kind.dtype) <= 4;
}

/* So, where registers have room for all: 193 lines of 3x193x512 take 2.25 us, 2.71 by `edge_tile`. */
static void guarded_tile(columns_kernel *k, val index, const val *address)
{
    const int steps = k->cfg->steps;
    packed loaded[steps];
    val inside[steps];
    for (int s = 0; s < steps; s++) {
        inside[s] = lt(add(index, imm(s * reduce_columns_layers(k->cfg))), k->p.count);
        loaded[s] = load_packed_if(inside[s], vector_at_address(k, address[s]), vector_bytes(k));
    }
    for (int s = 0; s < steps; s++)
        IF(inside[s]) {
            tensor rX = unpacked(loaded[s], k->r->input); // (VEC)
            accumulate_steps(k, index, s, 1, &rX);
        }
}

/* All vectors loaded before the first is used. */
static void full_tile(columns_kernel *k, val index, const val *address)
{
    packed loaded[k->cfg->steps];
    tensor rX[k->cfg->steps]; // (VEC)
    for (int s = 0; s < k->cfg->steps; s++)
        loaded[s] = load_whole(k, address[s]);
    for (int s = 0; s < k->cfg->steps; s++)
        rX[s] = unpacked(loaded[s], k->r->input);
    accumulate_steps(k, index, 0, k->cfg->steps, rX);
}

/*
 * Lines at both ends of ragged columns that are not loaded by whole vectors, as those of this thread may reach out of x
 * there: as many as lines may be one element apart.
 */
static val guarded_lines(const columns_kernel *k)
{
    const reduce_values *p = &k->p;
    const int vec = k->cfg->vec;
    const val last = sub(p->count, imm(1)), lines = select(eq(p->reduced_stride[0], imm64(0)), p->count, imm64(vec));
    val end = mul(last, p->reduced_stride[0]); // the last element of x
    for (int i = 0; i < k->cfg->kind.kept; i++)
        end = add(end, mul(sub(p->kept_extent[i], imm(1)), p->kept_stride[i]));
    const val highest = gmem_address(p->x, k->cfg->kind.dtype, sub(end, imm(vec - 1)));
    const val reaches_out = logical_or(lt(k->start, p->x), gt(address_of_line(k, last), highest));
    return select(reaches_out, lines, imm64(0));
}

/*
 * Prefetches the first tile of a CTA to L2 while the kernel before may still run: a line for each thread; only of whole
 * vectors.
 */
static void prefetch(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    const int bytes = dtype_bytes(cfg->kind.dtype), lines = tile_elements(cfg), width = cfg->lanes * cfg->vec;
    if (!cfg->prefetch || k->kernel == 1 || cfg->kind.reduced > 1 || cfg->vec * bytes < 16 || lines > cfg->threads)
        return;
    val line = add(mul(k->rank, imm(lines)), convert(I64, thread()));
    val first = sub(k->column, convert(I64, mul(k->lane, imm(cfg->vec)))),
        here = min(sub(k->columns, first), imm(width));
    val address = gmem_address(element_address(k, first), cfg->kind.dtype, mul(line, k->p.reduced_stride[0]));
    IF(logical_and(lt(thread(), imm(lines)), lt(line, k->p.count)))
        bulk_prefetch(address, convert(U32, mul(here, imm(bytes))));
}

/* Starts at the vectors of the tile from `first` on; the distance in bytes from there to the CTA's next tile. */
static val go_to_tile(columns_kernel *k, val first)
{
    const int layers = reduce_columns_layers(k->cfg), tile = tile_elements(k->cfg);
    const val stride = mul(k->p.reduced_stride[0], imm64(dtype_bytes(k->cfg->kind.dtype)));
    k->next = variable(U64, address_of_line(k, add(first, convert(I64, k->layer))));
    k->step_bytes = convert(U64, mul(stride, imm(layers)));
    return convert(U64, mul(stride, imm(tile * k->cfg->split)));
}

/*
 * Full tiles, then the others line by line: the last one, or any where lines are guarded. These have a loop of their
 * own: registers do not hold what both need.
 */
static void accumulate_ragged(columns_kernel *k)
{
    const int tile = tile_elements(k->cfg), layers = reduce_columns_layers(k->cfg), stride = tile * k->cfg->split;
    const val begin = mul(k->rank, imm(tile)), mine = convert(I64, k->layer), guarded = guarded_lines(k);
    const val from = select(lt(begin, guarded), add(begin, imm(stride)), begin); // guarded lines are within a tile
    const val to = sub(k->p.count, add(guarded, imm(tile - 1))), first = variable(I64, from);
    const val to_next_tile = go_to_tile(k, from);
    val address[k->cfg->steps];
    FOREVER {
        BREAK_IF(ge(first, to));
        find_addresses(k, add(first, mine), address);
        full_tile(k, add(first, mine), address);
        assign(k->next, add(k->next, to_next_tile));
        assign(first, add(first, imm(stride)));
    }
    LOOP_FROM(other, select(eq(guarded, imm64(0)), first, begin), k->p.count, imm(stride))
        IF(logical_or(lt(other, from), ge(other, to))) {
            IF(eq(guarded, imm64(0)))
                edge_tile(k, add(other, mine));
            ELSE LOOP_FROM(line, add(other, mine), min(k->p.count, add(other, imm(tile))), imm(layers))
            {
                tensor rX = load_existing(k, address_of_line(k, line)); // (VEC)
                accumulate_steps(k, line, 0, 1, &rX);
            }
        }
}

static void accumulate_columns(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    const int tile = tile_elements(cfg);
    const val begin = mul(k->rank, imm(tile)), to_next_tile = go_to_tile(k, begin);
    val address[cfg->steps];
    LOOP_FROM(first, begin, k->p.count, imm(tile * cfg->split)) {
        val index = add(first, convert(I64, k->layer));
        if (guards_elements(k)) { // many at once do not fit the registers
            edge_tile(k, index);
        } else {
            find_addresses(k, index, address);
            IF(le(add(first, imm(tile)), k->p.count))
                full_tile(k, index, address);
            ELSE if (guards_vectors(k)) guarded_tile(k, index, address);
            else edge_tile(k, index);
        }
        assign(k->next, add(k->next, to_next_tile));
    }
}

static void store_columns(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    val first = k->r->finish(k->r, k->state[0], &k->p);
    tensor rY = fragment(first.type, compact(leaf(cfg->vec)));
    val row = add(mul(k->stretch, k->columns), k->owned);
    tensor gY = gmem_tensor(gmem_address(k->p.y, cfg->kind.output, row), cfg->kind.output, rY.layout); // (VEC)
    for (int c = 0; c < cfg->vec; c++)
        set(rY, c, c == 0 ? first : k->r->finish(k->r, k->state[c], &k->p));
    int bytes = dtype_bytes(cfg->kind.output);
    if (k->kernel == 0) {
        IF(all_exist(k))
            copy(rY, gY, (int)min_i64(16, cfg->vec * bytes));
        return;
    }
    for (int c = 0; c < cfg->vec; c++)
        IF(lt(add(k->owned, imm(c)), k->limit))
            set(gY, c, at(rY, c));
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

/* Has the thread any column? In kernel 0 all of a thread's exist, or none. */
static val has_columns(const columns_kernel *k)
{
    return k->kernel == 0 ? all_exist(k) : lt(k->column, k->limit);
}

void reduce_columns(const void *config, int kernel)
{
    const reduce_columns_config *cfg = config;
    const reducer r = reducer_of(&cfg->kind, cfg->compensated);
    columns_kernel k = { .cfg = cfg, .r = &r, .kernel = kernel };
    k.ragged = kernel == 1 && reduce_columns_ragged(cfg);
    launch_bounds(cfg->threads, kernel == 0 || k.ragged ? reduce_columns_ctas_per_sm(cfg, k.ragged)
                                                        : 0); // single elements take more registers
    k.p = params_of(reduce);
    find_place(&k);
    find_existing(&k);
    prefetch(&k);
    reduce_wait(cfg->overlap);
    begin_states(&k);
    IF(has_columns(&k)) {
        load_pivots(&k);
        if (k.ragged)
            accumulate_ragged(&k);
        else
            accumulate_columns(&k);
    }
    separate_counts(&k);
    val has_total = reduce_columns_merge(&k);
    IF(has_total)
        store_columns(&k);
}
