/* row.c - rows over lanes, warps, CTAs and clusters. */
#include "skeletons/row.h"

#include "cute/vectors.h"

enum {
    CTA_THREADS = 64,      // of CTAs that hold several rows: few bytes a CTA, but SMs are filled evenly
    ROW_CTA_THREADS = 512, // of CTAs of a cluster
    REGISTERS_FACTOR = 2,  // a thread holds so many times the registers wanted before a row is too long
    REGISTERS_MAX = 128,   // of one tensor's part
    ACCESS_BYTES = 16
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
    return (int)ceil_div(vec * (int64_t)ckl_dtype_bytes(dtype), 4);
}

int row_split_registers(const row_split *s, ckl_dtype dtype)
{
    return s->steps * vector_registers(s->vec, dtype);
}

bool row_split_choose(int64_t cols, int vec, ckl_dtype dtype, int registers, int cluster_max, row_split *s)
{
    int64_t vectors = max_i64(1, ceil_div(cols, vec));
    int steps = (int)max_i64(1, registers / vector_registers(vec, dtype)), threads = 1, cluster = 1;
    while (threads < ROW_CTA_THREADS && (int64_t)threads * steps < vectors)
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

ckl_status row_split_admit(const char *what, const row_split *s, int64_t cols, ckl_dtype dtype,
                           const ckl_device_info *device)
{
    int64_t bytes = s->vec * (int64_t)ckl_dtype_bytes(dtype);
    if (!is_power_of_two(s->threads) || s->threads < 32 || s->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s: threads=%d is no power of two from 32 to %d", what, s->threads,
             device->threads_per_cta_max);
    if (!is_power_of_two(s->row_threads) || (s->row_threads > 32 && s->row_threads != s->threads))
        FAIL(CKL_INVALID, "%s: row_threads=%d is neither a power of two up to 32 nor threads=%d", what, s->row_threads,
             s->threads);
    if (s->cluster < 1 || s->cluster > 16 || (s->cluster > 1 && s->row_threads != s->threads))
        FAIL(CKL_INVALID, "%s: cluster=%d is not in 1..16, or shares rows of row_threads=%d of threads=%d", what,
             s->cluster, s->row_threads, s->threads);
    if (s->cluster > 1 && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: cluster=%d on a device without clusters", what, s->cluster);
    if (!is_power_of_two(s->vec) || bytes > ACCESS_BYTES)
        FAIL(CKL_INVALID, "%s: vec=%d is no power of two of at most %d bytes", what, s->vec, ACCESS_BYTES);
    if (s->steps < 1 || row_split_registers(s, dtype) > REGISTERS_MAX)
        FAIL(CKL_INVALID, "%s: steps=%d is less than 1 or takes more than %d registers", what, s->steps, REGISTERS_MAX);
    if (cols > row_split_cols(s) || (s->exact && cols != row_split_cols(s)))
        FAIL(CKL_INVALID, "%s: rows of %" PRId64 " elements, room for %" PRId64 "%s", what, cols, row_split_cols(s),
             s->exact ? ", which exact=true demands" : "");
    return CKL_OK;
}

row_split row_split_scalar(const row_split *s)
{
    row_split scalar = *s;
    scalar.steps *= scalar.vec;
    scalar.vec = 1;
    return scalar;
}

/* In the kernel */

static bool shared_by_lanes(const row_split *s)
{
    return s->row_threads <= 32 && s->row_threads < s->threads;
}

row_place row_here(const row_split *s, val rows, val cols)
{
    row_place p = { .exists = ir_int(IR_PRED, 1), .limit = ir_convert(IR_U32, cols) };
    val tid = ir_sreg(IR_TID_X), cta = ir_convert(CKL_I64, ir_sreg(IR_CTA_X));
    cute_launch_bounds(s->threads, 0);
    cute_cluster_size(s->cluster);
    if (shared_by_lanes(s)) {
        val here = ir_binary(IR_DIV, tid, ir_int(IR_U32, s->row_threads));
        p.row =
            ir_binary(IR_ADD, ir_binary(IR_MUL, cta, ir_int(CKL_I64, row_split_rows(s))), ir_convert(CKL_I64, here));
        p.exists = ir_compare(IR_LT, p.row, ir_convert(CKL_I64, rows));
        p.limit = ir_select(p.exists, p.limit, ir_int(IR_U32, 0));
        tid = ir_binary(IR_REM, tid, ir_int(IR_U32, s->row_threads));
    } else {
        p.row = ir_binary(IR_DIV, cta, ir_int(CKL_I64, s->cluster));
    }
    if (s->cluster > 1)
        tid = ir_binary(IR_ADD, tid, ir_binary(IR_MUL, ir_sreg(IR_CLUSTER_RANK), ir_int(IR_U32, s->threads)));
    p.first = ir_binary(IR_MUL, tid, ir_int(IR_U32, s->vec));
    return p;
}

row_place row_from(const row_place *p, val start)
{
    row_place later = *p;
    later.first = ir_binary(IR_ADD, p->first, ir_convert(IR_U32, start));
    return later;
}

/* Elements from one vector of a thread to its next. */
static int64_t stride_of(const row_split *s)
{
    return (int64_t)s->vec * s->row_threads * s->cluster;
}

static tensor part_from(const row_split *s, val pointer, val index, ckl_dtype dtype)
{
    val bytes = ir_binary(IR_MUL, ir_convert(IR_U64, index), ir_int(IR_U64, (int64_t)ckl_dtype_bytes(dtype)));
    layout part = make_layout(shape(s->vec, s->steps), stride(1, stride_of(s)));
    return gmem_tensor(ir_binary(IR_ADD, pointer, bytes), dtype, part);
}

tensor row_part(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype, val ld)
{
    val start = ir_binary(IR_MUL, p->row, ir_convert(CKL_I64, ld));
    return part_from(s, pointer, ir_binary(IR_ADD, start, ir_convert(CKL_I64, p->first)), dtype);
}

tensor row_vector(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype)
{
    return part_from(s, pointer, ir_convert(CKL_I64, p->first), dtype);
}

val row_inside(const row_split *s, const row_place *p, int step)
{
    if (s->exact)
        return p->exists;
    return ir_compare(IR_LT, ir_binary(IR_ADD, p->first, ir_int(IR_U32, step * stride_of(s))), p->limit);
}

/* Vector number `step` of this thread's part. */
static vector_at vector_of(const row_split *s, const row_place *p, tensor memory, int step)
{
    int64_t offset = step * stride_of(s) * (int64_t)ckl_dtype_bytes(memory.dtype);
    return (vector_at){ memory.address, offset, row_inside(s, p, step) };
}

void row_load(const row_split *s, const row_place *p, tensor from, tensor to, double fill)
{
    vector_at *at = ir_alloc((size_t)s->steps, sizeof *at);
    for (int step = 0; step < s->steps; step++)
        at[step] = vector_of(s, p, from, step);
    vectors_load(at, s->steps, s->vec, from, to.regs, fill);
}

void row_store_step(const row_split *s, const row_place *p, tensor from, tensor to, int step)
{
    vector_at at = vector_of(s, p, to, step);
    vector_store(&at, s->vec, from.regs + step * s->vec, to);
}

void row_store(const row_split *s, const row_place *p, tensor from, tensor to)
{
    for (int step = 0; step < s->steps; step++)
        row_store_step(s, p, from, to, step);
}

void row_reduce(const row_split *s, const reduction *r, val *values)
{
    if (s->row_threads <= 32 && s->cluster == 1) {
        warp_reduce(r, s->row_threads, values);
    } else {
        int64_t bytes = cta_reduce_bytes(s->threads);
        cta_reduce(r, s->threads, ir_smem_alloc("row_reduce", bytes, 16), values);
        if (s->cluster > 1)
            cluster_reduce(r, s->cluster, ir_smem_alloc("row_reduce_cluster", bytes, 16), values);
    }
}
