/*
 * gemm_bias_gradient.c - the gradient of a bias: sums of D, A or B along rows or columns, after the kernels that make
 * D.
 *
 * Columns: a lane has a vector of a line; warps, and slices of the lines, take lines in turn. Rows: a CTA each. Sums
 * are f32, and their order follows from the launch alone.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"
#include "operators/gemm/gemm_steps.h"

enum {
    WARPS = GEMM_SUMS_THREADS / LANES,
    VEC_MAX = GEMM_SUMS_VECTOR_BYTES / 2,
    UNROLLED = 4 // lines of a warp whose loads are in flight together
};

typedef struct sums_kernel {
    gemm_sums_values p;
    ckl_dtype type, to;
    int vec;        // elements of a lane in a line
    bool vectors;   // these are contiguous, one access
    val first, end; // lines: of this CTA's group
    val column;     // i64, the first of this CTA
    val sums[VEC_MAX];
} sums_kernel;

int gemm_summed_columns(ckl_dtype type)
{
    return LANES * GEMM_SUMS_VECTOR_BYTES / (int)ckl_dtype_bytes(type);
}

static val bytes_of(const sums_kernel *k, val elements)
{
    return convert(U64, mul(elements, imm((int)ckl_dtype_bytes(k->type))));
}

/* Do all lines begin at multiples of 16 bytes, and end there? */
static val are_vectors(const sums_kernel *k)
{
    val apart = bit_or(bytes_of(k, bit_or(k->p.ld, k->p.length)), bytes_of(k, k->p.stride));
    return eq(bit_and(bit_or(k->p.from, apart), imm_as(U64, GEMM_SUMS_VECTOR_BYTES - 1)), imm_as(U64, 0));
}

/* The address of element `column` of a line; columns count over the whole batch. */
static val address_of(const sums_kernel *k, val line, val column)
{
    val number = convert(U32, line), product = div(number, k->p.lines);
    val row = convert(I64, sub(number, mul(product, k->p.lines)));
    val elements = add(mul(convert(I64, product), k->p.stride), add(mul(row, k->p.ld), column));
    return add(k->p.from, bytes_of(k, elements));
}

/* The column of this lane's element i, among its CTA's. */
static val place_of(const sums_kernel *k, int i)
{
    return k->vectors ? add(mul(lane(), imm(k->vec)), imm(i)) : add(lane(), imm(i * LANES));
}

/* This lane's elements of a line; 0 beyond its end. */
static tensor load_line(const sums_kernel *k, val line)
{
    tensor rX = fragment(k->type, compact(leaf(k->vec)));
    fill(rX, convert(k->type, immf(0)));
    if (k->vectors) {
        val column = add(k->column, convert(I64, place_of(k, 0)));
        IF(lt(column, k->p.length))
            copy(gmem_tensor(address_of(k, line, column), k->type, compact(leaf(k->vec))), rX, GEMM_SUMS_VECTOR_BYTES);
        return rX;
    }
    for (int i = 0; i < k->vec; i++) {
        val column = add(k->column, convert(I64, place_of(k, i)));
        IF(lt(column, k->p.length))
            set(rX, i, at(gmem_tensor(address_of(k, line, column), k->type, compact(leaf(1))), 0));
    }
    return rX;
}

static void add_lines(const sums_kernel *k, val line, val step, int count)
{
    tensor rX[UNROLLED];
    for (int u = 0; u < count; u++)
        rX[u] = load_line(k, add(line, mul(step, imm(u))));
    for (int u = 0; u < count; u++)
        for (int i = 0; i < k->vec; i++)
            assign(k->sums[i], add(k->sums[i], at_f32(rX[u], i)));
}

/* Sums the lines of this warp, into shared memory. */
static void sum_lines(const sums_kernel *k, tensor sSums)
{
    val step = convert(I64, mul(k->p.slices, imm(WARPS)));
    val next = variable(I64, add(k->first, convert(I64, add(mul(cta_y(), imm(WARPS)), warp()))));
    LOOP_FROM(line, next, sub(k->end, mul(step, imm(UNROLLED - 1))), mul(step, imm(UNROLLED))) {
        add_lines(k, line, step, UNROLLED);
        assign(next, add(line, mul(step, imm(UNROLLED))));
    }
    LOOP_FROM(left, next, k->end, step)
        add_lines(k, left, step, 1);
    for (int i = 0; i < k->vec; i++)
        set(sSums, coord(place_of(k, i), warp()), k->sums[i]);
}

static val sum_of_warps(tensor sSums, val column)
{
    val total = at(sSums, column, 0);
    for (int w = 1; w < WARPS; w++)
        total = add(total, at(sSums, column, w));
    return total;
}

/* The first threads store a column's sum each, or a slice's; the CTA of the last slice adds all slices. */
static void store_columns(const sums_kernel *k, tensor sSums)
{
    const int columns = LANES * k->vec;
    val group = convert(I64, cta_z()), column = add(k->column, convert(I64, thread()));
    val mine = logical_and(lt(thread(), imm(columns)), lt(column, k->p.length));
    val all = mul(convert(I64, k->p.groups), k->p.length), out = add(mul(group, k->p.length), column);
    tensor gTo = gmem_vector(k->p.to, k->to, all);
    tensor gParts = gmem_tensor(k->p.parts, F32, make_layout(shape(all, k->p.slices), stride(1, all))); // (SUMS,SLICES)
    IF(eq(k->p.slices, imm(1))) {
        IF(mine)
            set(gTo, out, convert(k->to, sum_of_warps(sSums, thread())));
    }
    ELSE
    {
        IF(mine)
            set(gParts, coord(out, cta_y()), sum_of_warps(sSums, thread()));
        val number = add(mul(cta_z(), grid_x()), cta_x()),
            counter = add(k->p.counters, convert(U64, mul(number, imm(4))));
        IF(logical_and(gemm_last_to_come(counter, k->p.slices), mine)) {
            val total = variable(F32, immf(0));
            LOOP(s, k->p.slices)
                assign(total, add(total, at(gParts, coord(out, s))));
            set(gTo, out, convert(k->to, total));
        }
    }
}

/* x: block of columns; y: slice of the lines; z: group. */
static void sum_columns(sums_kernel *k)
{
    tensor sSums = smem_tensor("sums", F32, compact(shape(LANES * k->vec, WARPS)), 16); // (COLUMNS,WARPS)
    k->column = mul(convert(I64, cta_x()), imm(LANES * k->vec));
    for (int i = 0; i < k->vec; i++)
        k->sums[i] = variable(F32, immf(0));
    IF(are_vectors(k)) {
        k->vectors = true;
        sum_lines(k, sSums);
    }
    ELSE
    {
        k->vectors = false;
        sum_lines(k, sSums);
    }
    cta_sync();
    store_columns(k, sSums);
}

/* Sums a line of each matrix of the batch, by all threads. */
static void sum_line(const sums_kernel *k, int vec)
{
    const layout vector = compact(leaf(vec));
    val vectors = div_up(k->p.length, vec);
    LOOP(product, k->p.batch) {
        val line = add(mul(product, k->p.lines), cta_x());
        LOOP_FROM(v, convert(I64, thread()), vectors, imm(GEMM_SUMS_THREADS)) {
            tensor rX = fragment(k->type, vector);
            copy(gmem_tensor(address_of(k, line, mul(v, imm(vec))), k->type, vector), rX,
                 vec * (int)ckl_dtype_bytes(k->type));
            for (int i = 0; i < vec; i++)
                assign(k->sums[i], add(k->sums[i], at_f32(rX, i)));
        }
    }
}

/* x: row. */
static void sum_rows(sums_kernel *k)
{
    const reduction all = reduce_sums(1);
    for (int i = 0; i < k->vec; i++)
        k->sums[i] = variable(F32, immf(0));
    IF(are_vectors(k)) {
        sum_line(k, k->vec);
    }
    ELSE
    {
        sum_line(k, 1);
    }
    for (int i = 1; i < k->vec; i++)
        assign(k->sums[0], add(k->sums[0], k->sums[i]));
    cta_reduce(&all, GEMM_SUMS_THREADS, smem_alloc("sums", cta_reduce_bytes(GEMM_SUMS_THREADS), 16), k->sums);
    IF(eq(thread(), imm(0)))
        set(gmem_vector(k->p.to, k->to, k->p.lines), cta_x(), convert(k->to, k->sums[0]));
}

void gemm_bias_gradient(const void *config)
{
    const gemm_epilogue *e = config;
    const char matrix = gemm_summed_matrix(e->bias_gradient);
    launch_bounds(GEMM_SUMS_THREADS, 0);
    sums_kernel k = { .p = params_of(gemm_sums), .to = gemm_bias_type(e->d) };
    k.type = matrix == 'd' ? e->d : gemm_type_of(e, matrix);
    k.vec = gemm_summed_columns(k.type) / LANES;
    grid_wait();
    if (!gemm_sums_columns(e->bias_gradient, e->layout)) {
        sum_rows(&k);
        return;
    }
    k.first = variable(I64, imm64(0));
    k.end = variable(I64, convert(I64, mul(k.p.lines, k.p.batch)));
    tensor gOffsets = gmem_vector(k.p.offsets, I32, add(k.p.groups, imm(1)));
    IF(ne(k.p.offsets, imm_as(U64, 0))) {
        assign(k.first, convert(I64, at(gOffsets, cta_z())));
        assign(k.end, convert(I64, at(gOffsets, add(cta_z(), imm(1)))));
    }
    sum_columns(&k);
}
