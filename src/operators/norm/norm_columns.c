/*
 * norm_columns.c - sums of columns for the gradients of gamma and beta: some lanes of a warp take neighbouring columns, the
 * workers of a CTA (which are warps, or parts of warps) every so many-th row or group, and their sums are added in order.
 */
#include "cute/kernel.h"
#include "operators/norm/norm_backward.h"

enum { UNROLLED = 4, VEC_MAX = 4 }; // rows or groups of a worker whose loads are under way together; columns of a lane

norm_operands norm_declare(void)
{
    norm_operands o;
    o.rows = param(I64, "rows");
    o.cols = param(U32, "cols");
    o.ld_in = param(I64, "ld_in");
    o.ld_out = param(I64, "ld_out");
    o.reciprocal = param(F32, "reciprocal");
    o.x = pointer("x");
    o.dy = pointer("dy");
    o.dsum = pointer("dsum");
    o.gamma = pointer("gamma");
    o.mean = pointer("mean");
    o.rstd = pointer("rstd");
    o.dx = pointer("dx");
    o.partial = pointer("partial"); // (GROUPS,KINDS,COLS) f32: sums of columns over the rows of one CTA or cluster
    o.groups = param(I64, "groups");
    o.dgamma = pointer("dgamma");
    o.dbeta = pointer("dbeta");
    return o;
}

val norm_statistic(val address, val number)
{
    return at(gmem_tensor(add(address, mul(convert(U64, number), imm(4))), F32, compact(leaf(1))), 0);
}

/* This thread's columns and what they have added up to. */
typedef struct columns {
    const norm_config *cfg;
    norm_operands o;
    int kinds; // 2: of dgamma and dbeta
    int vec, warps;
    int lanes, per_warp;  // side by side; workers of a warp, which are neighbouring lanes
    bool aligned;         // rows of x and dy to `vec` elements
    val first;            // column
    val sum[2 * VEC_MAX]; // [kind][column]
} columns;

/* A lane's columns of row i of a matrix of the dtype. */
static tensor load_row(const columns *c, val address, val i)
{
    ckl_dtype dtype = c->cfg->dtype;
    val index = add(mul(i, c->o.ld_in), convert(I64, c->first));
    val from = add(address, mul(convert(U64, index), imm((int)ckl_dtype_bytes(dtype))));
    tensor gRow = gmem_tensor(from, dtype, compact(leaf(c->vec))), rRow = fragment_like(gRow, dtype); // (VEC)
    copy(gRow, rRow, (int)ckl_dtype_bytes(dtype) * (c->aligned ? c->vec : 1));
    return rRow;
}

static void add_products(const columns *c, val i)
{
    tensor rX = load_row(c, c->o.x, i), rDy = load_row(c, c->o.dy, i); // (VEC)
    val rstd = norm_statistic(c->o.rstd, i), mean = c->kinds == 2 ? norm_statistic(c->o.mean, i) : immf(0);
    for (int v = 0; v < c->vec; v++) {
        val x = convert(F32, at(rX, v)), dy = convert(F32, at(rDy, v));
        val n = mul(c->kinds == 2 ? sub(x, mean) : x, rstd);
        assign(c->sum[v], fma(dy, n, c->sum[v]));
        if (c->kinds == 2)
            assign(c->sum[c->vec + v], add(c->sum[c->vec + v], dy));
    }
}

static void add_partial(const columns *c, val i)
{
    for (int kind = 0; kind < c->kinds; kind++) {
        val row = add(mul(i, imm(c->kinds)), imm(kind));
        val index = add(mul(row, convert(I64, c->o.cols)), convert(I64, c->first));
        tensor gPart = gmem_tensor(add(c->o.partial, mul(convert(U64, index), imm(4))), F32, compact(leaf(c->vec)));
        tensor rPart = fragment_like(gPart, F32); // (VEC)
        copy(gPart, rPart, 4 * c->vec);
        for (int v = 0; v < c->vec; v++)
            assign(c->sum[kind * c->vec + v], add(c->sum[kind * c->vec + v], at(rPart, v)));
    }
}

/* Every so many-th of `count` rows or groups. */
static void add_all(const columns *c, val count, void (*add_one)(const columns *c, val i))
{
    const int workers = c->warps * c->per_warp;
    val worker = add(mul(warp(), imm(c->per_warp)), rem(lane(), imm(c->per_warp)));
    val next = variable(I64, convert(I64, worker));
    LOOP_FROM(i, next, sub(count, imm((UNROLLED - 1) * workers)), imm(UNROLLED * workers))
    {
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
    ckl_dtype dtype = c->cfg->dtype;
    val column = add(c->first, imm(v)), address = kind == 0 ? c->o.dgamma : c->o.dbeta;
    val to = add(address, mul(convert(U64, column), imm((int)ckl_dtype_bytes(dtype))));
    set(gmem_tensor(to, dtype, compact(leaf(1))), 0, convert(dtype, total));
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
    columns c = { .cfg = cfg, .o = norm_declare(), .kinds = centred ? 2 : 1 };
    c.vec = norm_column_vec(cfg);
    c.warps = cfg->column_threads / 32;
    c.lanes = cfg->column_lanes;
    c.per_warp = 32 / c.lanes;
    launch_bounds(cfg->column_threads, 0);
    c.first = mul(add(mul(cta_x(), imm(c.lanes)), div(lane(), imm(c.per_warp))), imm(c.vec));
    for (int s = 0; s < c.kinds * c.vec; s++)
        c.sum[s] = variable(F32, immf(0));
    if (cfg->stages) {
        ir_current()->target = IR_SM90A;
        grid_wait(); // for the partial sums; the start of this kernel overlaps the end of the one that leaves them
    }
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
