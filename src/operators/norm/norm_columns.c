/*
 * norm_columns.c - sums of columns for the gradients of gamma and beta: some lanes of a warp take neighbouring columns. The
 * workers of a CTA, which are warps or groups of lanes, share out the rows, and their sums are added in order.
 */
#include "cute/kernel.h"
#include "operators/norm/norm_config.h"

enum { UNROLLED = 4, VEC_MAX = 4 }; // rows of a worker whose loads are under way together; columns of a lane

/* This thread's columns and what they have added up to. */
typedef struct columns {
    const norm_config *cfg;
    norm_backward_values o;
    int kinds; // 2: of dgamma and dbeta
    int vec, warps;
    int lanes, per_warp;  // side by side; workers of a warp, which are neighbouring lanes
    bool aligned;         // rows of x and dy to `vec` elements
    val vector, first;    // of columns; its first one
    val sum[2 * VEC_MAX]; // [kind][column]
} columns;

/* This thread's vector in line `line` of a matrix. */
static tensor load_vector(const columns *c, tensor gX, val line, bool aligned)
{
    tensor gVector = slice(local_tile(gX, shape(c->vec, 1), coord(c->vector, line)), _, 0); // (VEC)
    tensor rVector = fragment_like(gVector, gX.dtype);                                      // (VEC)
    copy(gVector, rVector, (int)ckl_dtype_bytes(gX.dtype) * (aligned ? c->vec : 1));
    return rVector;
}

static tensor matrix(const columns *c, val pointer, ckl_dtype dtype, val lines, val ld)
{
    return gmem_tensor(pointer, dtype, make_layout(shape(c->o.cols, lines), coord(1, ld))); // (COLS,LINES)
}

static val statistic(const columns *c, val pointer, val row)
{
    return at(gmem_tensor(pointer, F32, compact(dynamic(c->o.rows))), row);
}

static void add_products(const columns *c, val row)
{
    tensor rX = load_vector(c, matrix(c, c->o.x, c->cfg->dtype, c->o.rows, c->o.ldx), row, c->aligned);   // (VEC)
    tensor rDy = load_vector(c, matrix(c, c->o.dy, c->cfg->dtype, c->o.rows, c->o.ldx), row, c->aligned); // (VEC)
    val rstd = statistic(c, c->o.rstd, row), mean = c->kinds == 2 ? statistic(c, c->o.mean, row) : immf(0);
    for (int v = 0; v < c->vec; v++) {
        val x = convert(F32, at(rX, v)), dy = convert(F32, at(rDy, v));
        val n = mul(c->kinds == 2 ? sub(x, mean) : x, rstd);
        assign(c->sum[v], fma(dy, n, c->sum[v]));
        if (c->kinds == 2)
            assign(c->sum[c->vec + v], add(c->sum[c->vec + v], dy));
    }
}

static void add_partial(const columns *c, val group)
{
    val lines = mul(c->o.groups, imm(c->kinds));
    tensor gPartial = matrix(c, c->o.partial, F32, lines, convert(I64, c->o.cols)); // (COLS,LINES)
    for (int kind = 0; kind < c->kinds; kind++) {
        tensor rPartial = load_vector(c, gPartial, add(mul(group, imm(c->kinds)), imm(kind)), true); // (VEC)
        for (int v = 0; v < c->vec; v++)
            assign(c->sum[kind * c->vec + v], add(c->sum[kind * c->vec + v], at(rPartial, v)));
    }
}

/* The rows, or groups of partial sums, of this worker. */
static void add_all(const columns *c, val count, void (*add_one)(const columns *c, val line))
{
    const int workers = c->warps * c->per_warp;
    val worker = add(mul(warp(), imm(c->per_warp)), rem(lane(), imm(c->per_warp)));
    val next = variable(I64, convert(I64, worker));
    LOOP_FROM(i, next, sub(count, imm((UNROLLED - 1) * workers)), imm(UNROLLED * workers)) {
        for (int u = 0; u < UNROLLED; u++)
            add_one(c, add(i, imm(u * workers)));
        assign(next, add(i, imm(UNROLLED * workers)));
    }
    LOOP_FROM(left, next, count, imm(workers))
        add_one(c, left);
}

/* The products of all rows, by vectors where x and dy are aligned to them. */
static void add_all_products(columns *c)
{
    int bytes = c->vec * (int)ckl_dtype_bytes(c->cfg->dtype);
    val odd = bit_and(bit_or(c->o.x, c->o.dy), imm_as(U64, bytes - 1));
    IF(eq(odd, imm(0))) {
        c->aligned = true;
        add_all(c, c->o.rows, add_products);
    }
    ELSE
    {
        c->aligned = false;
        add_all(c, c->o.rows, add_products);
    }
}

static void write_column(const columns *c, int kind, int v, val total)
{
    const ckl_dtype dtype = c->cfg->dtype;
    tensor gSum = gmem_tensor(kind == 0 ? c->o.dgamma : c->o.dbeta, dtype, compact(dynamic(c->o.cols))); // (COLS)
    set(gSum, add(c->first, imm(v)), convert(dtype, total));
}

/* Adds up the workers' sums, in order. */
static void finish(columns *c)
{
    int sums = c->kinds * c->vec;
    const reduction all = reduce_sums(sums);
    warp_reduce(&all, c->per_warp, c->sum);
    val place = div(lane(), imm(c->per_warp));
    tensor sSums = smem_tensor("sums", F32, compact(shape(c->lanes, c->warps, sums)), 16); // (LANES,WARPS,SUMS)
    for (int s = 0; s < sums; s++)
        set(sSums, coord(place, warp(), s), c->sum[s]);
    cta_sync();
    val is_first = logical_and(eq(warp(), imm(0)), eq(rem(lane(), imm(c->per_warp)), imm(0)));
    IF(logical_and(is_first, lt(c->first, c->o.cols)))
        for (int s = 0; s < sums; s++) {
            val total = at(sSums, place, 0, s);
            for (int w = 1; w < c->warps; w++)
                total = add(total, at(sSums, place, w, s));
            write_column(c, s / c->vec, s % c->vec, total);
        }
}

void norm_columns(const norm_config *cfg, bool centred)
{
    columns c = { .cfg = cfg, .o = params_of(norm_backward), .kinds = centred ? 2 : 1 };
    c.vec = norm_column_vec(cfg);
    c.warps = cfg->column_threads / 32;
    c.lanes = cfg->column_lanes;
    c.per_warp = 32 / c.lanes;
    launch_bounds(cfg->column_threads, 0);
    c.vector = add(mul(cta_x(), imm(c.lanes)), div(lane(), imm(c.per_warp)));
    c.first = mul(c.vector, imm(c.vec));
    for (int s = 0; s < c.kinds * c.vec; s++)
        c.sum[s] = variable(F32, immf(0));
    if (cfg->flow.stages)
        grid_wait(); // for the partial sums; the start of this kernel overlaps the end of the one that leaves them
    IF(lt(c.first, c.o.cols)) {
        IF(eq(c.o.partial, imm(0))) {
            add_all_products(&c);
        }
        ELSE
        {
            add_all(&c, c.o.groups, add_partial);
        }
    }
    finish(&c);
}
