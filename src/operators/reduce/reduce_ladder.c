/*
 * reduce_ladder.c - the same reduction four times, each step faster than the one before; docs/reduce-ladder.md tells
 * why.
 *
 *     naive       one thread a row
 *     improved    one CTA a row, neighbouring threads load neighbouring elements; a tree in shared memory
 *     shuffle     the same; warps merge by shuffles, shared memory holds one state a warp
 *     vectorized  the same; 16 bytes a load
 */
#include "operators/reduce/reduce_kernel.h"

/* What the kernels have in common. */
typedef struct ladder_kernel {
    const reduce_ladder_config *cfg;
    reducer r;
    reduce_values p;
    val row, pivot; // i64; the row's first element
    tensor gRow;    // (REDUCED...)
    val state[REDUCE_VALUES_MAX];
} ladder_kernel;

static ladder_kernel begin(const reduce_ladder_config *cfg)
{
    launch_bounds(cfg->threads, 0);
    return (ladder_kernel){ .cfg = cfg, .r = reducer_of(&cfg->kind, false), .p = params_of(reduce) };
}

static void begin_row(ladder_kernel *k, val row)
{
    k->row = row;
    k->gRow = reduce_row(&k->cfg->kind, &k->p, row);
    k->pivot = reduce_load_pivot(&k->r, &k->p, k->gRow);
    reduce_begin(&k->r, k->state);
}

static ladder_kernel begin_cta(const reduce_ladder_config *cfg)
{
    ladder_kernel k = begin(cfg);
    begin_row(&k, convert(I64, cta_x()));
    return k;
}

static void accumulate_one(ladder_kernel *k, val index)
{
    reduce_accumulate_one(&k->r, convert(k->r.input, at(k->gRow, index)), index, k->pivot, k->state);
}

/* Thread t accumulates elements first + t, first + t + threads ... */
static void accumulate_elements(ladder_kernel *k, val first)
{
    LOOP_FROM(i, add(first, convert(I64, thread())), k->p.count, imm(k->cfg->threads))
        accumulate_one(k, i);
}

/* In each round the lower half of the threads takes over what the upper half has: (THREADS) of every value. */
static void merge_by_tree(ladder_kernel *k)
{
    tensor sS[REDUCE_VALUES_MAX]; // (THREADS)
    reduce_states(&k->r, "tree", compact(leaf(k->cfg->threads)), sS);
    reduce_set_state(&k->r, sS, coord(thread()), k->state);
    for (int half = k->cfg->threads / 2; half > 0; half /= 2) {
        cta_sync();
        IF(lt(thread(), imm(half))) {
            val other[REDUCE_VALUES_MAX];
            reduce_get_state(&k->r, sS, coord(add(thread(), imm(half))), other);
            k->r.merge(k->state, other, &k->r);
            reduce_set_state(&k->r, sS, coord(thread()), k->state);
        }
    }
}

static void merge_by_shuffles(ladder_kernel *k)
{
    reduction all = reduce_reduction(&k->r);
    cta_reduce(&all, k->cfg->threads, smem_alloc("states", cta_reduce_bytes(k->cfg->threads), 16), k->state);
}

static void store_by_first(const ladder_kernel *k)
{
    IF(eq(thread(), imm(0)))
        reduce_store(&k->r, &k->p, k->cfg->kind.output, k->row, k->state);
}

/* Vectors of the row; how many elements they cover. */
static val accumulate_vectors(ladder_kernel *k)
{
    ckl_dtype dtype = k->cfg->kind.dtype;
    int vec = 16 / dtype_bytes(dtype);
    val vectors = div(k->p.count, imm(vec));
    int64_t distance[vec];
    for (int e = 0; e < vec; e++)
        distance[e] = e;
    LOOP_FROM(v, convert(I64, thread()), vectors, imm(k->cfg->threads)) {
        val first = mul(v, imm(vec));
        tensor gX = local_tile(tensor_with_layout(k->gRow, make_layout(dynamic(k->p.count), leaf(1))), leaf(vec),
                               dynamic(v));                    // (VEC)
        tensor rX = unpacked(load_packed(gX, 16), k->r.input); // (VEC)
        reduce_batch batch = { .x = rX.regs, .size = vec, .first = first, .distance = distance };
        reduce_accumulate(&k->r, &batch, k->pivot, k->state);
    }
    return mul(vectors, imm(vec));
}

void reduce_naive(const void *config, int kernel)
{
    (void)kernel;
    const reduce_ladder_config *cfg = config;
    ladder_kernel k = begin(cfg);
    val row = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    IF(lt(row, k.p.rows)) {
        begin_row(&k, row);
        LOOP_FROM(i, imm64(0), k.p.count, imm(1))
            accumulate_one(&k, i);
        reduce_store(&k.r, &k.p, cfg->kind.output, row, k.state);
    }
}

void reduce_improved(const void *config, int kernel)
{
    (void)kernel;
    ladder_kernel k = begin_cta(config);
    accumulate_elements(&k, imm64(0));
    merge_by_tree(&k);
    store_by_first(&k);
}

void reduce_shuffle(const void *config, int kernel)
{
    (void)kernel;
    ladder_kernel k = begin_cta(config);
    accumulate_elements(&k, imm64(0));
    merge_by_shuffles(&k);
    store_by_first(&k);
}

/* Kernel 1, of rows that are not aligned to vectors, loads single elements. */
void reduce_vectorized(const void *config, int kernel)
{
    ladder_kernel k = begin_cta(config);
    accumulate_elements(&k, kernel == 0 ? accumulate_vectors(&k) : imm64(0));
    merge_by_shuffles(&k);
    store_by_first(&k);
}
