/*
 * gemm_gemv.c - a few rows of A or B times all rows of the other: memory speed without tensor cores, from sm_80 on.
 *
 * Threads of a CTA stand in groups. A group has some rows of the long operand and takes K in turn, a vector
 * a thread; sums are f32.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_epilogue.h"

enum { ROWS_MAX = 8 };

/* Rows of an operand: `first` and every `step` from there; past the end the last one is read again. */
typedef struct gemv_rows {
    int count;
    val address[ROWS_MAX];
} gemv_rows;

typedef struct gemv_kernel {
    const gemm_gemv_config *cfg;
    gemm_values p;
    int groups, parts; // of threads; of the sums of a group, one of each warp
    val first, column; // of the long operand's rows, and of the other's
    gemv_rows many, few;
} gemv_kernel;

/*
 * CTAs that an SM shall hold, 0 for any number: without a loop registers are for sums, addresses and a vector. Seven
 * have no more than eight.
 */
static int ctas_of(const gemm_gemv_config *c)
{
    enum { MOST = 2048 / GEMM_GEMV_THREADS, OTHERS = 16, REGISTERS = 65536 / GEMM_GEMV_THREADS };
    const int fit = REGISTERS / (c->rows * c->few + 2 * (c->rows + c->few) + c->vec + OTHERS);
    if (c->steps != 1)
        return 0;
    return fit >= MOST ? MOST : fit == MOST - 1 ? MOST - 2 : fit;
}

static gemv_rows rows_of(const gemv_kernel *k, char matrix, int count, val first, int step)
{
    const bool is_a = matrix == 'a';
    gemv_rows r = { .count = count };
    for (int i = 0; i < count; i++) {
        val row = min(add(first, imm(i * step)), sub(is_a ? k->p.m : k->p.n, imm64(1)));
        val element = mul(row, is_a ? k->p.lda : k->p.ldb);
        r.address[i] = gmem_address(is_a ? k->p.a : k->p.b, k->cfg->epilogue.ab, element);
    }
    return r;
}

/* A vector of each row, zeros where there is none: (VEC,ROWS). */
static tensor load_rows(const gemv_kernel *k, const gemv_rows *rows, val vector, val inside)
{
    const ckl_dtype type = k->cfg->epilogue.ab;
    tensor r = fragment(type, compact(shape(k->cfg->vec, rows->count)));
    val offset = convert(U64, mul(convert(I64, vector), imm(gemm_gemv_bytes(k->cfg))));
    vector_at at[ROWS_MAX];
    for (int i = 0; i < rows->count; i++)
        at[i] = (vector_at){ .address = add(rows->address[i], offset), .guard = inside };
    vectors_load(at, rows->count, k->cfg->vec, gmem_tensor(rows->address[0], type, compact(leaf(1))), r.regs, 0);
    return r;
}

/* sums += the products of some vectors of K, `width` apart and all on their way at once: (MANY,FEW). */
static void multiply_vectors(const gemv_kernel *k, val first, int count, val vectors, tensor sums)
{
    tensor rMany[GEMM_GEMV_STEPS_MAX], rFew[GEMM_GEMV_STEPS_MAX];
    for (int s = 0; s < count; s++) {
        val vector = add(first, imm(s * k->cfg->width)), inside = k->cfg->steps ? lt(vector, vectors) : yes();
        rMany[s] = load_rows(k, &k->many, vector, inside);
        rFew[s] = load_rows(k, &k->few, vector, inside);
    }
    for (int s = 0; s < count; s++)
        for (int j = 0; j < k->few.count; j++)
            for (int i = 0; i < k->many.count; i++)
                for (int e = 0; e < k->cfg->vec; e++)
                    set(sums, coord(i, j), fma(at_f32(rMany[s], e, i), at_f32(rFew[s], e, j), at(sums, i, j)));
}

/* This thread's vectors of K. Few of them need no loop, which ptxas would unroll: few such CTAs fit an SM. */
static void multiply(const gemv_kernel *k, tensor sums)
{
    val vectors = convert(U32, div(k->p.k, imm(k->cfg->vec))), first = thread_at(thread(), 0, k->cfg->width, k->groups);
    if (k->cfg->steps)
        multiply_vectors(k, first, k->cfg->steps, vectors, sums);
    else
        LOOP_FROM(vector, first, vectors, imm(k->cfg->width))
            multiply_vectors(k, vector, 1, vectors, sums);
}

/* A CTA's elements of D, neighbours along its rows. */
static int elements_of(const gemv_kernel *k)
{
    return k->groups * k->many.count * k->few.count;
}

/* The number of an element among them, by its rows of both operands. */
static val number_of(const gemv_kernel *k, val many, int few)
{
    const int rows = k->groups * k->many.count;
    return k->cfg->many_a ? add(mul(many, imm(k->few.count)), imm(few)) : add(many, imm(rows * few));
}

/* Adds over the lanes of a group in each warp, and shares the results, which are added in the order of warps. */
static tensor share_sums(const gemv_kernel *k, tensor sums)
{
    const int count = k->many.count * k->few.count, lanes = k->cfg->width / k->parts;
    tensor sSums = smem_tensor("sums", F32, compact(shape(elements_of(k), k->parts)), 16); // (ELEMENTS,PARTS)
    val part = thread_at(thread(), 1, lanes, k->parts, k->groups),
        group = thread_at(thread(), 2, lanes, k->parts, k->groups);
    for (int first = 0; first < count; first += REDUCE_VALUES_MAX) {
        const int some = count - first < REDUCE_VALUES_MAX ? count - first : REDUCE_VALUES_MAX;
        const reduction r = reduce_sums(some);
        val values[REDUCE_VALUES_MAX];
        for (int i = 0; i < some; i++)
            values[i] = variable(F32, at(sums, first + i));
        warp_reduce(&r, lanes, values);
        IF(eq(thread_at(thread(), 0, lanes, k->parts, k->groups), imm(0)))
            for (int i = 0; i < some; i++) {
                const int many = (first + i) % k->many.count, few = (first + i) / k->many.count;
                set(sSums, coord(number_of(k, add(group, imm(k->groups * many)), few), part), values[i]);
            }
    }
    cta_sync();
    return sSums;
}

/* Threads take elements of D in turn. */
static void finish(const gemv_kernel *k, tensor sSums)
{
    const gemm_epilogue e = k->cfg->epilogue;
    const gemm_scalars scalars = gemm_load_scalars(e, GEMM_SCALAR_SOURCES(&k->p));
    const int rows = k->groups * k->many.count, across = k->cfg->many_a ? k->few.count : rows;
    LOOP_FROM(element, thread(), imm(elements_of(k)), imm(GEMM_GEMV_THREADS)) {
        val sum = at(sSums, element, 0);
        for (int part = 1; part < k->parts; part++)
            sum = add(sum, at(sSums, element, part));
        val i = add(k->cfg->many_a ? k->first : k->column, convert(I64, div(element, imm(across))));
        val j = add(k->cfg->many_a ? k->column : k->first, convert(I64, rem(element, imm(across))));
        IF(logical_and(lt(i, k->p.m), lt(j, k->p.n)))
            gemm_store(e, scalars, &k->p, i, j, sum, (val){ 0 });
    }
}

void gemm_gemv(const void *config, int kernel)
{
    const gemm_gemv_config *cfg = config;
    (void)kernel;
    launch_bounds(GEMM_GEMV_THREADS, ctas_of(cfg));
    gemv_kernel k = { .cfg = cfg, .p = params_of(gemm) };
    k.groups = GEMM_GEMV_THREADS / cfg->width;
    k.parts = cfg->width > LANES ? cfg->width / LANES : 1;
    val blocks = convert(U32, div(add(cfg->many_a ? k.p.n : k.p.m, imm64(cfg->few - 1)), imm64(cfg->few)));
    k.first = mul(convert(I64, div(cta_x(), blocks)), imm(cfg->rows * k.groups));
    k.column =
        mul(convert(I64, rem(cta_x(), blocks)), imm(cfg->few)); // neighbours read the same rows of the long operand
    val group = convert(I64, thread_at(thread(), 1, cfg->width, k.groups));
    k.many = rows_of(&k, cfg->many_a ? 'a' : 'b', cfg->rows, add(k.first, group), k.groups);
    k.few = rows_of(&k, cfg->many_a ? 'b' : 'a', cfg->few, k.column, 1);
    tensor sums = fragment(F32, compact(shape(cfg->rows, cfg->few))); // (MANY,FEW)
    fill(sums, immf(0));
    prefetch_early(32, k.p.early, k.p.early_bytes, 2);
    grid_wait();
    launch_dependents();
    multiply(&k, sums);
    finish(&k, share_sums(&k, sums));
}
