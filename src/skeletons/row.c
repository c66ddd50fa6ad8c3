/* row.c - rows over lanes, warps, CTAs and clusters. */
#include "skeletons/row.h"

#include "cute/kernel.h"
#include "plan/check.h"

enum {
    CTA_THREADS = 64,      // of CTAs that hold several rows: small ones fill SMs evenly
    ROW_CTA_THREADS = 512, // of CTAs of a cluster
    REGISTERS_FACTOR = 2,  // times the registers wanted, at which a row is too long
    REGISTERS_MAX = 128,   // of a thread for one tensor
    ACCESS_BYTES = 16,
    LINE_BYTES = 128,
    ROW_BARRIER = 2,                     // of a CTA's first row by several warps; the next one is its second row's
    ROWS_BY_WARPS_MAX = 16 - ROW_BARRIER // of a CTA
};

/* On the host */

int64_t row_split_cols(const row_split *s)
{
    return (int64_t)s->row_threads * s->cluster * s->vec * s->steps;
}

int64_t row_split_rows(const row_split *s)
{
    return s->threads / s->row_threads;
}

int64_t row_split_ctas(const row_split *s, int64_t rows)
{
    return ceil_div(rows, row_split_rows(s)) * s->cluster;
}

/* Registers of one vector. */
static int vector_registers(int vec, ckl_dtype dtype)
{
    return (int)ceil_div(vec * dtype_bytes(dtype), 4);
}

int64_t row_split_registers(const row_split *s, ckl_dtype dtype)
{
    return (int64_t)s->steps * vector_registers(s->vec, dtype);
}

int row_vec_full(ckl_dtype dtype)
{
    return ACCESS_BYTES / dtype_bytes(dtype);
}

int row_vec(ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ldx, int64_t ldy)
{
    int64_t vec = row_vec_full(dtype);
    while (cols % vec || (rows > 1 && (ldx % vec || ldy % vec)))
        vec /= 2;
    return (int)vec;
}

bool row_split_choose(int64_t cols, int vec, ckl_dtype dtype, int registers, int cluster_max, row_split *s)
{
    int64_t vectors = max_i64(1, ceil_div(cols, vec));
    int steps = (int)max_i64(1, registers / vector_registers(vec, dtype)), threads = 1, cluster = 1;
    while (threads < ROW_CTA_THREADS && (int64_t)threads * steps < vectors)
        threads *= 2;
    while (dtype == CKL_F32 && threads * vec * dtype_bytes(dtype) < LINE_BYTES && vectors % (2 * (int64_t)threads) == 0)
        threads *= 2;
    while (cluster < cluster_max && (int64_t)threads * cluster * steps < vectors)
        cluster *= 2;
    int64_t need = ceil_div(vectors, (int64_t)threads * cluster);
    if (need > (int64_t)REGISTERS_FACTOR * steps)
        return false;
    *s = (row_split){ .threads = threads <= 32 ? CTA_THREADS : threads,
                      .row_threads = threads,
                      .cluster = cluster,
                      .vec = vec,
                      .steps = (int)need };
    s->exact = row_split_cols(s) == cols;
    return true;
}

void row_split_finish(row_split *s, int64_t rows, int64_t cols, ckl_dtype dtype, int tensors,
                      const ckl_device_info *device)
{
    enum { WIDE_THREADS = 256, BYTES_MIN = 8 << 10, CTAS_AN_SM = 3, EARLY_BYTES_MAX = 1 << 20 };
    s->early = product_i64(rows, cols) <= EARLY_BYTES_MAX / (tensors * dtype_bytes(dtype));
    if (s->row_threads > 32 || row_split_rows(s) * cols * dtype_bytes(dtype) * tensors >= BYTES_MIN)
        return;
    row_split wide = *s;
    for (wide.threads = WIDE_THREADS; wide.threads > s->threads; wide.threads /= 2)
        if (row_split_ctas(&wide, rows) >= CTAS_AN_SM * (int64_t)device->sm_count)
            *s = wide;
}

void row_split_halve(int64_t cols, int threads_min, int steps_max, row_split *s)
{
    enum { THREADS_ALONE = 512 };
    const int64_t vectors = s->ragged ? cols / s->vec : ceil_div(cols, s->vec);
    row_split half = *s;
    half.row_threads = s->row_threads / 2;
    half.threads = half.row_threads <= 32 ? CTA_THREADS : half.row_threads;
    half.steps = (int)ceil_div(vectors, max_i64(1, half.row_threads));
    half.exact = !s->ragged && row_split_cols(&half) == cols;
    const bool alone = s->row_threads == THREADS_ALONE, fewer = row_split_cols(&half) < row_split_cols(s);
    if (s->cluster == 1 && half.row_threads >= threads_min && half.steps <= steps_max && (fewer || alone))
        *s = half;
}

/* The fewest threads of a row that have at most one element of its ends each. */
static int64_t threads_for_ends(int vec)
{
    return 2 * vec;
}

bool row_split_choose_ragged(int64_t cols, ckl_dtype dtype, int registers, int cluster_max, row_split *s)
{
    enum { VECTORS_MIN = 4 };
    const int vec = row_vec_full(dtype);
    const int64_t vectors = cols / vec, threads = threads_for_ends(vec);
    if (vectors < VECTORS_MIN || !row_split_choose(vectors * vec, vec, dtype, registers, cluster_max, s))
        return false;
    if (s->row_threads < threads) {
        s->steps = (int)ceil_div(vectors, threads);
        s->row_threads = (int)threads;
    }
    s->exact = false;
    s->ragged = true;
    return true;
}

ckl_status row_split_admit(const char *what, const row_split *s, int64_t cols, ckl_dtype dtype,
                           const ckl_device_info *device)
{
    int64_t bytes = s->vec * dtype_bytes(dtype);
    TRY(plan_check_threads(what, s->threads, device));
    const bool lanes = is_power_of_two(s->row_threads) && s->row_threads <= 32;
    const bool warps = s->row_threads > 0 && s->row_threads % 32 == 0 && s->threads % s->row_threads == 0 &&
                       s->threads / s->row_threads <= ROWS_BY_WARPS_MAX;
    if (s->row_threads != s->threads && !lanes && !warps)
        FAIL(CKL_INVALID,
             "%s: row_threads=%d is neither a power of two up to 32 nor a multiple of 32 that divides threads=%d by %d "
             "at most",
             what, s->row_threads, s->threads, ROWS_BY_WARPS_MAX);
    if (s->cluster < 1 || s->cluster > 16 || (s->cluster > 1 && s->row_threads != s->threads))
        FAIL(CKL_INVALID, "%s: cluster=%d is not in 1..16, or shares rows of row_threads=%d of threads=%d", what,
             s->cluster, s->row_threads, s->threads);
    if (s->cluster > 1 && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: cluster=%d on a device without clusters", what, s->cluster);
    if (!is_power_of_two(s->vec) || bytes > ACCESS_BYTES)
        FAIL(CKL_INVALID, "%s: vec=%d is no power of two of at most %d bytes", what, s->vec, ACCESS_BYTES);
    if (s->ragged &&
        (bytes != ACCESS_BYTES || s->exact || (int64_t)s->row_threads * s->cluster < threads_for_ends(s->vec)))
        FAIL(CKL_INVALID,
             "%s: ragged=1 wants vectors of %d bytes, two elements of them for each of row_threads, and no exact", what,
             ACCESS_BYTES);
    if (s->steps < 1 || row_split_registers(s, dtype) > REGISTERS_MAX)
        FAIL(CKL_INVALID, "%s: steps=%d is less than 1 or takes more than %d registers", what, s->steps, REGISTERS_MAX);
    const int64_t in_vectors = s->ragged ? cols - cols % s->vec : cols;
    if (in_vectors > row_split_cols(s) || (s->exact && cols != row_split_cols(s)))
        FAIL(CKL_INVALID, "%s: rows of %" PRId64 " elements, room for %" PRId64 "%s", what, cols, row_split_cols(s),
             s->exact ? ", which exact=true demands" : "");
    return CKL_OK;
}

row_split row_split_scalar(const row_split *s)
{
    row_split scalar = *s;
    scalar.steps = scalar.steps * scalar.vec + scalar.ragged; // the ends of a ragged row
    scalar.vec = 1;
    scalar.ragged = false;
    return scalar;
}

row_split row_split_anywhere(const row_split *s, ckl_dtype dtype)
{
    if (s->vec != row_vec_full(dtype) || (int64_t)s->row_threads * s->cluster < threads_for_ends(s->vec))
        return row_split_scalar(s);
    row_split ragged = *s;
    ragged.exact = false;
    ragged.ragged = true;
    return ragged;
}

bool row_starts_in_phase(const void *address, const void *other)
{
    return ((uintptr_t)address - (uintptr_t)other) % ACCESS_BYTES == 0;
}

int64_t row_phase_period(ckl_dtype dtype, int64_t ld)
{
    int64_t period = 1;
    while (ld * period % row_vec_full(dtype))
        period *= 2;
    return period;
}

bool row_in_phase(ckl_dtype dtype, int64_t rows, int64_t ld, int64_t other_ld)
{
    return rows <= 1 || (ld - other_ld) % row_vec_full(dtype) == 0;
}

/* In the kernel */

/* Neighbouring threads take neighbouring vectors. */
static tiled_copy vectors_of(const row_split *s, ckl_dtype dtype)
{
    layout threads = compact(leaf(s->row_threads * s->cluster)), values = compact(leaf(s->vec));
    return make_tiled_copy(universal_copy(dtype, s->vec), dtype, threads, values);
}

tensor row_partition(const row_split *s, tensor row, val tid)
{
    tiled_copy each = vectors_of(s, CKL_U8); // coordinates have no type
    return partition_S(&each, row, tid);
}

row_place row_place_of(const row_split *s, val rows, val cols, val row, val tid)
{
    row_place p = { .row = row, .rows = convert(I64, rows), .cols = convert(U32, cols) };
    p.exists = yes();
    p.limit = p.cols;
    tensor cRow = slice(identity_tensor(shape(rows, row_split_cols(s))), row, _); // (COLS)
    p.cX = row_partition(s, cRow, tid);
    p.first = coordinate(p.cX, 1, 0);
    return p;
}

row_place row_place_in(const row_place *p, val row)
{
    row_place other = *p;
    val *first = describe_alloc(2, sizeof *first);
    first[0] = other.row = row;
    first[1] = p->first;
    other.cX.first = first;
    return other;
}

row_place row_place_at(const row_place *p, val row)
{
    row_place other = row_place_in(p, row);
    other.exists = lt(row, p->rows);
    other.limit = select(other.exists, p->cols, imm(0));
    return other;
}

row_place row_here(const row_split *s, val rows, val cols)
{
    val tid = thread(), cta = convert(I64, cta_x());
    launch_bounds(s->threads, 0);
    cluster_size(s->cluster);
    if (row_split_rows(s) == 1) {
        if (s->cluster > 1)
            tid = add(tid, mul(cluster_rank(), imm(s->threads)));
        return row_place_of(s, rows, cols, div(cta, imm(s->cluster)), tid);
    }
    int_tuple lanes = shape(s->row_threads, row_split_rows(s));
    int_tuple here = idx2crd(tid, compact(lanes)); // lane of the row, row of the CTA
    val row = add(mul(cta, imm(row_split_rows(s))), convert(I64, tuple_mode(here, 1)->leaf));
    row_place p = row_place_of(s, rows, cols, row, tuple_mode(here, 0)->leaf);
    return row_place_at(&p, row);
}

void row_wait(const row_split *s)
{
    if (s->early)
        launch_dependents();
    grid_wait();
    if (!s->early)
        launch_dependents();
}

row_place row_from(const row_place *p, val start)
{
    row_place later = *p;
    later.cX = coordinates_from(p->cX, 1, convert(U32, start));
    later.first = coordinate(later.cX, 1, 0);
    return later;
}

row_place row_steps(const row_place *p, int begin, int steps)
{
    row_place some = *p;
    layout each = layout_mode(p->cX.layout, 0), apart = layout_mode(p->cX.layout, 1);
    some.cX = slice(p->cX, _, begin);
    some.cX.layout = layouts_of(2, (layout[]){ each, make_layout(leaf(steps), apart.stride) });
    some.first = coordinate(some.cX, 1, 0);
    return some;
}

/* The thread's partition of row p->row of a matrix, or of a vector: a matrix with a pitch of 0. */
static tensor partition_of(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype, int_tuple ld)
{
    layout rows = make_layout(shape(p->rows, row_split_cols(s)), coord(ld, 1));
    val first[] = { p->row, p->first };
    tensor cX = p->cX;
    cX.first = first;
    return tensor_at_coordinates(gmem_tensor(pointer, dtype, rows), cX);
}

tensor row_of_matrix(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype, val ld)
{
    return partition_of(s, p, pointer, dtype, dynamic(convert(I64, ld)));
}

tensor row_vector(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype)
{
    return partition_of(s, p, pointer, dtype, leaf(0));
}

/* Limits of a row's coordinates: where rows fill their threads, only whether the row exists. */
static int_tuple limits_of(const row_split *s, const row_place *p)
{
    if (!s->exact)
        return shape(_, p->limit);
    return shape(is_imm(p->exists, 1) ? _ : dynamic(p->rows), _);
}

val row_inside(const row_split *s, const row_place *p, int step)
{
    return inside_limits(p->cX, limits_of(s, p), (int64_t)step * s->vec);
}

void row_load(const row_split *s, const row_place *p, tensor from, tensor to, double fill)
{
    tiled_copy each = vectors_of(s, from.dtype);
    copy_tiled_if(&each, p->cX, limits_of(s, p), from, to, fill);
}

tensor row_fetch(const row_split *s, const row_place *p, tensor from, double fill)
{
    tensor rX = fragment_like(from, from.dtype); // (VEC,STEPS)
    row_load(s, p, from, rX, fill);
    return rX;
}

static tensor step_of(tensor t, int step)
{
    return slice(t, _, step);
}

void row_store_step(const row_split *s, const row_place *p, tensor from, tensor to, int step)
{
    tiled_copy each = vectors_of(s, to.dtype);
    copy_tiled_if(&each, step_of(p->cX, step), limits_of(s, p), step_of(from, step), step_of(to, step), 0);
}

void row_store(const row_split *s, const row_place *p, tensor from, tensor to)
{
    tiled_copy each = vectors_of(s, to.dtype);
    copy_tiled_if(&each, p->cX, limits_of(s, p), from, to, 0);
}

void row_reduce(const row_split *s, const reduction *r, val *values)
{
    if (s->row_threads <= 32 && s->cluster == 1) {
        warp_reduce(r, s->row_threads, values);
    } else if (row_split_rows(s) > 1) {
        cta_reduce_groups(r, s->row_threads, ROW_BARRIER, smem_alloc("row_reduce", cta_reduce_bytes(s->threads), 16),
                          values);
    } else {
        int64_t bytes = cta_reduce_bytes(s->threads);
        cta_reduce(r, s->threads, smem_alloc("row_reduce", bytes, 16), values);
        if (s->cluster > 1)
            cluster_reduce(r, s->cluster, smem_alloc("row_reduce_cluster", bytes, 16), values);
    }
}
