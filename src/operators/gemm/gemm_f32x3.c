/*
 * gemm_f32x3.c - splits each f32 into the nearest tf32 and the rest, for three products by tensor cores.
 *
 * It writes both, K-major: a K tile of the numbers and a K tile of their rests in turn, so the Hopper kernel finds them
 * in neighbouring stages. A CTA splits some rows of A or B along some of K; what is not K-major is transposed in shared
 * memory.
 */
#include "operators/gemm/gemm_f32x3.h"

#include "cute/kernel.h"

enum {
    THREADS = GEMM_F32X3_THREADS,
    ROWS = GEMM_F32X3_ROWS,
    DEPTH = GEMM_F32X3_DEPTH,
    RUN = GEMM_F32X3_RUN,
    VECTOR = 4,
    ACROSS = DEPTH / VECTOR,    // threads along K
    AT_ONCE = THREADS / ACROSS, // rows
    PASSES = ROWS / AT_ONCE,
    WARPS = THREADS / 32,
    TURNED = DEPTH / WARPS, // loads of a thread where the source is not K-major
};

/* The matrix that this CTA splits, and where it begins. */
typedef struct source {
    bool k_major;
    int vec;
    val from, ld, rows, length, to, to_ld;
    val row, depth; // i64
} source;

static val load_one(val address)
{
    return at(gmem_tensor(address, F32, compact(leaf(1))), 0);
}

/* Four elements of a row from k on; 0 beyond the matrix. */
static tensor load_vector(const source *s, val row, val k)
{
    tensor rX = fragment(F32, compact(leaf(VECTOR)));
    val start = gmem_address(s->from, F32, add(mul(row, s->ld), k)), inside = lt(row, s->rows);
    fill(rX, immf(0));
    val whole = logical_and(inside, le(add(k, imm64(VECTOR)), s->length));
    IF(whole)
        copy(gmem_tensor(start, F32, compact(leaf(VECTOR))), rX, 4 * s->vec);
    IF(logical_and(inside, logical_not(whole)))
        for (int i = 0; i < VECTOR; i++)
            IF(lt(add(k, imm64(i)), s->length))
                set(rX, i, load_one(add(start, imm_as(U64, 4 * i))));
    return rX;
}

/* The nearest tf32; infinities, and what rounding would make infinite, stay. */
static val nearest(val x)
{
    val bits = bitcast(U32, x), near = bit_and(add(bits, imm_as(U32, 0x1000)), imm_as(U32, 0xffffe000));
    val finite = lt(bit_and(bits, imm_as(U32, 0x7f800000)), imm_as(U32, 0x7f000000));
    return bitcast(F32, select(finite, near, bits));
}

/* An infinity has no rest; that of a number too large to round is what tensor cores truncate. */
static val rest_of(val x, val near)
{
    val cut = bitcast(F32, bit_and(bitcast(U32, near), imm_as(U32, 0xffffe000)));
    val infinite = eq(bit_and(bitcast(U32, x), imm_as(U32, 0x7fffffff)), imm_as(U32, 0x7f800000));
    return select(infinite, immf(0), nearest(sub(x, cut)));
}

static void store_both(const source *s, val row, val k, tensor rX)
{
    tensor rNear = fragment_like(rX, F32), rRest = fragment_like(rX, F32);
    for (int i = 0; i < VECTOR; i++) {
        set(rNear, i, nearest(at(rX, i)));
        set(rRest, i, rest_of(at(rX, i), at(rNear, i)));
    }
    val place = add(mul(div(k, imm64(RUN)), imm64(2 * RUN)), rem(k, imm64(RUN)));
    val to = gmem_address(s->to, F32, add(mul(row, s->to_ld), place));
    IF(logical_and(lt(row, s->rows), lt(place, s->to_ld))) {
        copy(rNear, gmem_tensor(to, F32, compact(leaf(VECTOR))), 16);
        copy(rRest, gmem_tensor(add(to, imm_as(U64, 4 * RUN)), F32, compact(leaf(VECTOR))), 16);
    }
}

/* A tile of a K-major matrix: all loads come before the first store. */
static void split_straight(const source *s)
{
    val k = add(s->depth, convert(I64, mul(thread_at(thread(), 0, ACROSS, THREADS / ACROSS), imm(VECTOR))));
    val row = add(s->row, convert(I64, thread_at(thread(), 1, ACROSS, THREADS / ACROSS)));
    tensor rX[PASSES];
    for (int i = 0; i < PASSES; i++)
        rX[i] = load_vector(s, add(row, imm64(i * AT_ONCE)), k);
    for (int i = 0; i < PASSES; i++)
        store_both(s, add(row, imm64(i * AT_ONCE)), k, rX[i]);
}

/* A tile of another matrix: neighbours load neighbouring rows. */
static void split_turned(const source *s, tensor sX)
{
    val along = thread_at(thread(), 0, ROWS, THREADS / ROWS), first = thread_at(thread(), 1, ROWS, THREADS / ROWS),
        row = add(s->row, convert(I64, along));
    val x[TURNED];
    for (int i = 0; i < TURNED; i++) {
        val k = add(s->depth, convert(I64, add(first, imm(i * WARPS))));
        val inside = logical_and(lt(row, s->rows), lt(k, s->length)), loaded = variable(F32, immf(0));
        IF(inside)
            assign(loaded, load_one(gmem_address(s->from, F32, add(mul(k, s->ld), row))));
        x[i] = loaded;
    }
    for (int i = 0; i < TURNED; i++)
        set(sX, coord(along, add(first, imm(i * WARPS))), x[i]);
    cta_sync();
    val k = mul(thread_at(thread(), 0, ACROSS, THREADS / ACROSS), imm(VECTOR)),
        start = thread_at(thread(), 1, ACROSS, THREADS / ACROSS);
    for (int i = 0; i < PASSES; i++) {
        val local = add(start, imm(i * AT_ONCE));
        tensor rX = fragment(F32, compact(leaf(VECTOR)));
        for (int e = 0; e < VECTOR; e++)
            set(rX, e, at(sX, local, add(k, imm(e))));
        store_both(s, add(s->row, convert(I64, local)), add(s->depth, convert(I64, k)), rX);
    }
}

static void split_matrix(const gemm_f32x3_config *cfg, const gemm_repitch_values *p, int i, val cta, tensor sX)
{
    source s = { .k_major = gemm_k_major(cfg->products.epilogue.layout, i == 0 ? 'a' : 'b'),
                 .vec = cfg->vec,
                 .ld = p->from_ld[i],
                 .rows = p->copy_rows[i],
                 .length = p->copy_length[i],
                 .to = p->to[i],
                 .to_ld = p->to_ld[i] };
    val k_tiles = convert(U32, div_up(s.length, DEPTH));
    val of_matrix = mul(k_tiles, convert(U32, div_up(s.rows, ROWS)));
    val matrix = convert(I64, div(cta, of_matrix)), tile = rem(cta, of_matrix);
    s.from = gmem_address(p->from[i], F32, mul(matrix, p->from_stride[i]));
    s.to = gmem_address(s.to, F32, mul(mul(matrix, s.rows), s.to_ld));
    s.row = convert(I64, mul(div(tile, k_tiles), imm(ROWS)));
    s.depth = convert(I64, mul(rem(tile, k_tiles), imm(DEPTH)));
    if (s.k_major)
        split_straight(&s);
    else
        split_turned(&s, sX);
}

static void split_operands(const gemm_f32x3_config *cfg)
{
    launch_bounds(THREADS, 0);
    gemm_repitch_values p = params_of(gemm_repitch);
    tensor sX = { 0 };
    if (cfg->products.epilogue.layout != CKL_GEMM_NT)                                             // rows a bank apart
        sX = smem_tensor("tile", F32, make_layout(shape(ROWS, DEPTH), stride(DEPTH + 1, 1)), 16); // (ROWS,DEPTH)
    grid_wait();
    launch_dependents();
    IF(lt(cta_x(), p.second)) {
        split_matrix(cfg, &p, 0, cta_x(), sX);
    }
    ELSE
    {
        split_matrix(cfg, &p, 1, sub(cta_x(), p.second), sX);
    }
}

void gemm_f32x3(const void *config, int kernel)
{
    const gemm_f32x3_config *cfg = config;
    if (kernel == 1) {
        split_operands(cfg);
        return;
    }
    gemm_sm90_config products = cfg->products;
    products.epilogue.layout = CKL_GEMM_NT;
    gemm_sm90(&products, 0);
}
