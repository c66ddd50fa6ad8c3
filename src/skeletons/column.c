/* column.c - columns over lanes, groups of lanes and clusters. */
#include "skeletons/column.h"

#include "cute/kernel.h"
#include "cute/vectors.h"

enum { LINE_BYTES = 128, THREADS_WANTED = 512, ACCESS_BYTES = 16, WORD = 4, ACCESS_WORDS = 4, REGISTERS_MAX = 128 };
enum { PARTIALS_MAX = 32 }; // of a column in a CTA
enum { RAGGED_LANES = 2 };  // of a line that load what neighbouring strips store

/* On the host */

int64_t column_split_room(const column_split *s)
{
    return (int64_t)s->lanes * s->vec;
}

int64_t column_split_columns(const column_split *s)
{
    return (int64_t)(s->lanes - (s->ragged ? RAGGED_LANES : 0)) * s->vec;
}

static int groups_of(const column_split *s)
{
    return s->threads / s->lanes;
}

int64_t column_split_lines(const column_split *s)
{
    return (int64_t)groups_of(s) * s->steps * s->cluster;
}

int64_t column_split_strips(const column_split *s, int64_t inner)
{
    return ceil_div(inner + (s->ragged ? s->vec - 1 : 0), column_split_columns(s));
}

int64_t column_split_ctas(const column_split *s, int64_t outer, int64_t inner)
{
    return outer * column_split_strips(s, inner) * s->cluster;
}

/* The split for lines of line_bytes. False: threads would need more than twice the steps wanted. */
static bool choose_for_lines(int64_t n, int64_t inner, int64_t line_bytes, int steps, int cluster_max, ckl_dtype dtype,
                             column_split *s)
{
    int64_t bytes = s->vec * dtype_bytes(dtype);
    s->lanes = s->cluster = 1;
    s->threads = 32;
    while (s->lanes < 32 && s->lanes * bytes < line_bytes && column_split_columns(s) < inner)
        s->lanes *= 2;
    while (s->lanes < 32 && column_split_columns(s) < inner && (int64_t)groups_of(s) * steps >= 2 * n)
        s->lanes *= 2; // short columns: rather more of them than threads without lines
    while (s->threads < THREADS_WANTED && (int64_t)groups_of(s) * steps < n)
        s->threads *= 2;
    while (s->cluster < cluster_max && (int64_t)groups_of(s) * steps * s->cluster < n)
        s->cluster *= 2;
    int64_t need = max_i64(1, ceil_div(n, (int64_t)groups_of(s) * s->cluster));
    s->steps = (int)min_i64(need, 2 * steps);
    s->exact = column_split_lines(s) == n && inner % column_split_columns(s) == 0;
    return need <= 2 * steps;
}

bool column_split_choose(int64_t n, int64_t inner, int vec, ckl_dtype dtype, int elements, int cluster_max,
                         column_split *s)
{
    *s = (column_split){ .vec = vec };
    int steps = (int)max_i64(1, elements / vec);
    return choose_for_lines(n, inner, LINE_BYTES, steps, cluster_max, dtype, s) ||
           choose_for_lines(n, inner, LINE_BYTES / 2, steps, cluster_max, dtype, s);
}

ckl_status column_split_admit(const char *what, const column_split *s, ckl_dtype dtype, const ckl_device_info *device)
{
    int64_t bytes = s->vec * dtype_bytes(dtype);
    if (!is_power_of_two(s->threads) || s->threads < 32 || s->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s: threads=%d is no power of two from 32 to %d", what, s->threads,
             device->threads_per_cta_max);
    if (!is_power_of_two(s->lanes) || s->lanes > s->threads)
        FAIL(CKL_INVALID, "%s: lanes=%d is no power of two up to threads=%d", what, s->lanes, s->threads);
    if (!is_power_of_two(s->cluster) || s->cluster > 16 || s->cluster > s->threads / 32)
        FAIL(CKL_INVALID, "%s: cluster=%d is no power of two up to 16 and to the warps of threads=%d", what, s->cluster,
             s->threads);
    if (s->cluster > 1 && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: cluster=%d on a device without clusters", what, s->cluster);
    if (!is_power_of_two(s->vec) || bytes > ACCESS_BYTES)
        FAIL(CKL_INVALID, "%s: vec=%d is no power of two of at most %d bytes", what, s->vec, ACCESS_BYTES);
    if (s->ragged && (s->vec < 2 || s->exact || s->lanes <= RAGGED_LANES || groups_of(s) % s->vec || groups_of(s) > 32))
        FAIL(CKL_INVALID,
             "%s: ragged=1 wants vectors, 4 lanes, a multiple of vec=%d groups of them up to 32, and no exact", what,
             s->vec);
    if (s->steps < 1 || ceil_div(s->steps * bytes, WORD) > REGISTERS_MAX)
        FAIL(CKL_INVALID, "%s: steps=%d is less than 1 or takes more than %d registers", what, s->steps, REGISTERS_MAX);
    return CKL_OK;
}

column_split column_split_scalar(const column_split *s)
{
    column_split scalar = *s;
    scalar.ragged = false;
    for (; scalar.vec > 1; scalar.vec /= 2)
        if (scalar.lanes < 32) { // neighbouring lanes: accesses stay side by side
            scalar.lanes *= 2;
            scalar.steps *= 2;
        }
    return scalar;
}

/* In the kernel */

/* Neighbouring lanes take neighbouring vectors of a line; each group of lanes takes lines of its own. */
static tiled_copy vectors_of(const column_split *s, ckl_dtype dtype)
{
    return make_tiled_copy(universal_copy(dtype, s->vec), dtype, compact(shape(s->lanes, groups_of(s))),
                           compact(shape(s->vec, 1)));
}

/* The number of this thread among those along a line. */
static val lane_of(const column_split *s)
{
    return thread_at(thread(), 0, s->lanes, groups_of(s));
}

/*
 * To the vectors of a ragged line. Lane 0 has the vector before the strip's first, the last lane one behind its last,
 * so that the sums of all columns are whole of which a vector of the strip has one.
 */
static void shift_to_vectors(const column_split *s, column_place *p, val n, val inner, val ld)
{
    const val line = add(mul(convert(U32, p->outer), convert(U32, n)), p->line); // modulo 2^32, a multiple of vec
    p->shift = add(bit_and(mul(line, convert(U32, ld)), imm(s->vec - 1)), imm(s->vec));
    const val back = convert(I64, p->shift);
    p->column = sub(p->column, back);
    p->inner = inner;
    p->cX = coordinates_from(p->cX, 0, sub(imm64(0), back));
    const val exists = logical_and(gt(p->column, imm64(-s->vec)), lt(p->column, inner));
    p->lines = select(exists, convert(U32, n), imm(0));
}

column_place column_in_strip(const column_split *s, val n, val inner, val ld, val strips, val strip_of_all)
{
    int64_t columns = column_split_columns(s), lines = (int64_t)groups_of(s) * s->steps;
    val strip = convert(I64, rem(strip_of_all, strips));
    tiled_copy each = vectors_of(s, CKL_U8); // coordinates have no type
    tensor cX = identity_tensor(shape(column_split_room(s), lines));
    cX = coordinates_from(partition_S(&each, cX, thread()), 0, mul(strip, imm(columns))); // ((VEC,1),1,STEPS)
    if (s->cluster > 1)
        cX = coordinates_from(cX, 1, mul(cluster_rank(), imm(lines)));
    column_place p = { .outer = convert(I64, div(strip_of_all, strips)), .cX = cX };
    p.column = coordinate(cX, 0, 0);
    p.line = coordinate(cX, 1, 0);
    const val exists = lt(p.column, inner);
    p.lines = select(exists, convert(U32, n), imm(0));
    if (s->ragged)
        shift_to_vectors(s, &p, n, inner, ld);
    return p;
}

val column_number(const column_split *s, const column_place *p, int e)
{
    const val first = add(mul(lane_of(s), imm(s->vec)), imm(e));
    return s->ragged ? bit_and(sub(first, p->shift), imm(column_split_room(s) - 1)) : first;
}

column_place column_here(const column_split *s, val n, val inner, val strips)
{
    launch_bounds(s->threads, 0);
    cluster_size(s->cluster);
    val first = div(cta_x(), imm(s->cluster));
    return column_in_strip(s, n, inner, imm64(0), strips, first);
}

column_place column_from(const column_place *p, val start)
{
    column_place later = *p;
    later.cX = coordinates_from(p->cX, 1, convert(U32, start));
    later.line = coordinate(later.cX, 1, 0);
    return later;
}

/* This thread's partition of the matrix p->outer of a tensor: ((VEC,1),1,STEPS). */
static tensor partition_of(const column_split *s, const column_place *p, const column_tensor *of)
{
    layout lines = make_layout(shape(column_split_room(s), of->n), stride(1, of->ld)); // (COLUMNS,LINES)
    val line = add(mul(p->outer, convert(I64, of->n)), convert(I64, p->line));
    val first[] = { p->column, line };
    tensor cX = p->cX;
    cX.first = first;
    return tensor_at_coordinates(gmem_tensor(of->pointer, of->dtype, lines), cX);
}

/* Predicates are for lines alone: a column that does not exist has none. */
static int_tuple limits_of(const column_split *s, const column_place *p)
{
    return s->exact ? NULL : shape(_, p->lines);
}

static void copy_lines(const column_split *s, const column_place *p, ckl_dtype dtype, tensor from, tensor to,
                       double fill)
{
    const tiled_copy each = vectors_of(s, dtype);
    copy_tiled_if(&each, p->cX, limits_of(s, p), from, to, fill);
}

/* Lines that begin anywhere: of a vector at their ends elements are stored */

/* Is element e of the thread's vectors in the line? */
static val element_inside(const column_place *p, int e)
{
    const val column = add(p->column, imm64(e));
    return logical_and(ge(column, imm64(0)), lt(column, p->inner));
}

/* The elements of a thread in a line, in the type of `to`. Pairs are rounded at four times the speed of one alone. */
static void round_elements(const column_split *s, tensor from, tensor to, int step, val *rounded)
{
    const words w = words_of(to.dtype, s->vec);
    val pairs[ACCESS_WORDS];
    for (int e = 0; e < s->vec; e++)
        rounded[e] = at(from, (int64_t)step * s->vec + e);
    words_pack(w, to.dtype, rounded, pairs);
    for (int e = 0; e < s->vec; e++)
        rounded[e] = unwritten(to.dtype);
    words_unpack(w, pairs, to.dtype, rounded);
}

static void store_elements(const column_split *s, const column_place *p, tensor from, tensor to)
{
    for (int step = 0; step < s->steps; step++)
        IF(inside_limits(p->cX, limits_of(s, p), (int64_t)step * s->vec)) {
            const val address = tensor_address(to, leaf((int64_t)step * s->vec));
            val rounded[ACCESS_BYTES];
            round_elements(s, from, to, step, rounded);
            for (int e = 0; e < s->vec; e++)
                IF(element_inside(p, e))
                    store_at(IR_GLOBAL, to.cache, to.dtype, 1, address, e * dtype_bytes(to.dtype), &rounded[e]);
        }
}

void column_load(const column_split *s, const column_place *p, const column_tensor *of, tensor to, double fill)
{
    copy_lines(s, p, of->dtype, partition_of(s, p, of), to, fill);
}

void column_store(const column_split *s, const column_place *p, tensor from, const column_tensor *of)
{
    const tensor to = partition_of(s, p, of);
    if (!s->ragged) {
        copy_lines(s, p, of->dtype, from, to, 0);
        return;
    }
    IF(lt(sub(lane_of(s), imm(1)), imm(s->lanes - RAGGED_LANES))) { // unsigned: neither the first nor the last
        IF(logical_or(lt(p->column, imm64(0)), gt(add(p->column, imm64(s->vec)), p->inner)))
            store_elements(s, p, from, to);
        ELSE copy_lines(s, p, of->dtype, from, to, 0);
    }
}

static int access_bytes(const column_split *s, ckl_dtype dtype)
{
    return s->vec * dtype_bytes(dtype);
}

int64_t column_slots_bytes(const column_split *s, ckl_dtype dtype)
{
    return (int64_t)s->threads * s->steps * access_bytes(s, dtype);
}

/* This thread's slots: neighbouring threads have neighbouring ones. */
static tensor slots_of(const column_split *s, ckl_dtype dtype, val address)
{
    layout lines = make_layout(leaf(s->steps), leaf((int64_t)s->threads * s->vec));
    val first = mul(thread(), imm(access_bytes(s, dtype)));
    return smem_view(add(address, first), dtype,
                     layouts_of(2, (layout[]){ compact(leaf(s->vec)), lines })); // (VEC,STEPS)
}

void column_stage(const column_split *s, const column_place *p, const column_tensor *of, val address)
{
    static const char *const atoms[] = { [4] = "SM80_CP_ASYNC_CACHEALWAYS<32>",
                                         [8] = "SM80_CP_ASYNC_CACHEALWAYS<64>",
                                         [16] = "SM80_CP_ASYNC_CACHEGLOBAL<128>" };
    tiled_copy each = make_tiled_copy(atoms[access_bytes(s, of->dtype)], of->dtype,
                                      compact(shape(s->lanes, groups_of(s))), compact(shape(s->vec, 1)));
    const tensor from = partition_of(s, p, of), to = slots_of(s, of->dtype, address);
    if (!s->ragged) {
        copy_tiled_if(&each, p->cX, limits_of(s, p), from, to, 0);
        return;
    }
    IF(le(add(p->column, imm64(s->vec)),
          p->inner)) // else copies end where lines do: so many bytes take six instructions
        copy_tiled_if(&each, p->cX, limits_of(s, p), from, to, 0);
    ELSE copy_tiled_if(&each, p->cX, shape(p->inner, p->lines), from, to, 0);
}

void column_load_staged(const column_split *s, const column_place *p, ckl_dtype dtype, val address, tensor to,
                        double fill)
{
    copy_lines(s, p, dtype, slots_of(s, dtype, address), to, fill);
}

typedef struct column_slots {
    val address;   // of shared memory: a slot of `count` words for each partial result of each column
    int64_t words; // from a partial result to the next one
    int count;
} column_slots;

/*
 * Words from the slots of a partial result to those of the next one: more by an access, so that lanes that read the
 * same column of several meet few bank conflicts.
 */
static int64_t slot_words(const column_split *s, int count)
{
    return column_split_room(s) * count + ACCESS_WORDS;
}

static column_slots make_slots(const column_split *s, const reduction *r, const char *name, int partials)
{
    const int64_t size = slot_words(s, r->count);
    return (column_slots){ smem_address(smem_alloc(name, partials * size * WORD, ACCESS_BYTES)), size, r->count };
}

static val slot_at(const column_slots *m, val partial, val column)
{
    val index = add(mul(partial, imm(m->words)), mul(column, imm(m->count)));
    return add(m->address, mul(index, imm(WORD)));
}

/* Of so many words side by side, which begin where as many of them might. */
static int words_at_once(int count)
{
    return (int)min_i64(ACCESS_WORDS, power_of_two_in(count));
}

static void write_words(ir_space space, val address, val *values, int count)
{
    const int width = words_at_once(count);
    for (int i = 0; i < count; i += width)
        store_at(space, IR_CACHE_DEFAULT, F32, width, address, (int64_t)i * WORD, &values[i]);
}

/* Into variables. */
static void read_words(ir_space space, val address, val *values, int count)
{
    const int width = words_at_once(count);
    for (int i = 0; i < count; i += width)
        load_at(space, IR_CACHE_DEFAULT, F32, width, address, (int64_t)i * WORD, &values[i]);
}

static void read_slot(const column_slots *m, val partial, val column, val *values)
{
    for (int i = 0; i < m->count; i++)
        values[i] = unwritten(F32);
    read_words(IR_SHARED, slot_at(m, partial, column), values, m->count);
}

/* The values of this thread's columns: side by side unless lines begin anywhere. */
static void move_values(const column_split *s, const column_place *p, const column_slots *m, val partial, val *values,
                        void (*move)(ir_space space, val address, val *values, int count))
{
    const int all = s->vec * m->count, width = s->ragged ? m->count : all;
    for (int i = 0; i < all; i += width)
        move(IR_SHARED, slot_at(m, partial, column_number(s, p, i / m->count)), values + i, width);
}

/*
 * Combines the partial results of every column: as many neighbouring lanes as there are threads for read some each and
 * reduce. Slot `to_partial` of `to` gets the result, in every CTA of the cluster if `ctas` is more than 1.
 */
static void combine_partials(const column_split *s, const reduction *r, const column_slots *from, int partials,
                             const column_slots *to, val to_partial, int ctas)
{
    const int64_t columns = column_split_room(s);
    const int lanes = (int)min_i64(partials, max_i64(1, s->threads / columns)), at_once = s->threads / lanes;
    val tid = thread(), partial = thread_at(tid, 0, lanes, at_once);
    for (int64_t first = 0; first < columns; first += at_once) {
        val column = add(thread_at(tid, 1, lanes, at_once), imm(first));
        val inside = lt(column, imm(columns)), values[REDUCE_VALUES_MAX], other[REDUCE_VALUES_MAX];
        column = select(inside, column, imm(0));
        read_slot(from, partial, column, values);
        for (int i = lanes; i < partials; i += lanes) {
            read_slot(from, add(partial, imm(i)), column, other);
            r->combine(values, other, r->user);
        }
        warp_reduce(r, lanes, values);
        for (int cta = 0; cta < ctas; cta += lanes) {
            const val rank = add(partial, imm(cta));
            IF(logical_and(inside, lt(rank, imm(ctas)))) {
                const val slot = slot_at(to, to_partial, column), place = ctas > 1 ? mapa(slot, rank) : slot;
                write_words(ctas > 1 ? IR_SHARED_CLUSTER : IR_SHARED, place, values, r->count);
            }
        }
    }
}

/*
 * Partial results of a column in a CTA: one of each warp; one of each group of lanes where those fill warps, or begin
 * differently.
 */
static bool has_partials_of_groups(const column_split *s)
{
    return s->ragged || s->lanes > 32;
}

static int partials_of(const column_split *s)
{
    return has_partials_of_groups(s) ? groups_of(s) : s->threads / 32;
}

static void write_partials(const column_split *s, const column_place *p, const reduction *r, const column_slots *m,
                           val *values)
{
    if (has_partials_of_groups(s)) {
        move_values(s, p, m, thread_at(thread(), 1, s->lanes, groups_of(s)), values, write_words);
        return;
    }
    for (int e = 0; e < s->vec; e++) // the lanes of a warp that share columns agree; one of them stores the result
        warp_reduce_across(r, s->lanes, values + e * r->count);
    IF(lt(lane(), imm(s->lanes)))
        move_values(s, p, m, warp(), values, write_words);
}

int64_t column_reduce_bytes(const column_split *s, int count)
{
    const int own = partials_of(s), partials = own == 1 ? 0 : own + 1 + (s->cluster > 1 ? s->cluster : 0);
    return partials * slot_words(s, count) * WORD;
}

void column_reduce(const column_split *s, const column_place *p, const reduction *r, val *values)
{
    const int partials = partials_of(s);
    if (!describing())
        return;
    if (partials == 1) {
        for (int e = 0; e < s->vec; e++)
            warp_reduce_across(r, s->lanes, values + e * r->count);
        return;
    }
    const column_slots own = make_slots(s, r, "column_warps", partials), result = make_slots(s, r, "column_result", 1);
    const column_slots by_cta = s->cluster > 1 ? make_slots(s, r, "column_ctas", s->cluster) : result;
    write_partials(s, p, r, &own, values);
    cta_sync();
    combine_partials(s, r, &own, partials, &by_cta, s->cluster > 1 ? cluster_rank() : imm(0), s->cluster);
    if (s->cluster > 1) {
        cluster_sync();
        combine_partials(s, r, &by_cta, s->cluster, &result, imm(0), 1);
    }
    cta_sync();
    move_values(s, p, &result, imm(0), values, read_words);
}

int64_t column_reduce_each_bytes(const column_split *s, int count)
{
    return partials_of(s) * slot_words(s, count) * WORD;
}

void column_reduce_each(const column_split *s, const column_place *p, const reduction *r, int64_t scratch, val *values,
                        void (*store)(void *user, val column, const val *values), void *user)
{
    if (!describing())
        return;
    const int64_t columns = column_split_room(s);
    const column_slots own = { smem_address(scratch), slot_words(s, r->count), r->count };
    write_partials(s, p, r, &own, values);
    cta_sync();
    for (int64_t first = 0; first < columns; first += s->threads) {
        const val column = add(thread(), imm(first));
        val values_of[PARTIALS_MAX][REDUCE_VALUES_MAX];
        IF(lt(column, imm(columns))) {
            for (int i = 0; i < partials_of(s); i++)
                read_slot(&own, imm(i), column, values_of[i]);
            for (int half = partials_of(s) / 2; half > 0; half /= 2) // a tree: short chains of dependent exponentials
                for (int i = 0; i < half; i++)
                    r->combine(values_of[i], values_of[i + half], r->user);
            store(user, column, values_of[0]);
        }
    }
}
