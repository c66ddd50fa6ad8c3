/*
 * reduce_ladder.c - the same reduction four times, each step faster than the one before; docs/reduce-ladder.md tells
 * why.
 *
 *     naive       one thread a row
 *     improved    one CTA a row, neighbouring threads take neighbouring elements; a tree in shared memory
 *     shuffle     the same; warps merge by shuffles, shared memory holds one state a warp
 *     vectorized  the same; 16 bytes a load
 */
#include "operators/reduce/reduce_kernel.h"

/* What the kernels with one CTA a row have in common. */
typedef struct ladder_kernel {
    const reduce_ladder_config *cfg;
    reducer r;
    reduce_arguments a;
    val row, start, pivot; // i64; address of the row's first element
    val state[REDUCE_VALUES_MAX];
} ladder_kernel;

static void begin(ladder_kernel *k, const reduce_ladder_config *cfg)
{
    launch_bounds(cfg->threads, 0);
    k->cfg = cfg;
    k->r = reducer_of(cfg->op, cfg->dtype, cfg->output, false);
    k->a = reduce_declare_arguments(cfg->kept, cfg->reduced);
    k->row = convert(I64, cta_x());
    k->start = reduce_address(k->a.x, reduce_row_offset(&k->a, k->row), cfg->dtype);
    k->pivot = reduce_load_pivot(&k->r, &k->a, k->start, cfg->dtype);
    reduce_begin(&k->r, k->state);
}

static void take_one(const ladder_kernel *k, val index)
{
    val address = reduce_address(k->start, reduce_element_offset(&k->a, index), k->cfg->dtype);
    reduce_take_one(&k->r, address, k->cfg->dtype, index, k->pivot, (val *)k->state);
}

/* Thread t takes elements first + t, first + t + threads ... */
static void take_elements(const ladder_kernel *k, val first)
{
    LOOP_FROM(i, add(first, convert(I64, thread())), k->a.row.count, imm(k->cfg->threads))
    take_one(k, i);
}

/* In each round the lower half of the threads takes over what the upper half has: (THREADS) of every value. */
static void merge_by_tree(ladder_kernel *k)
{
    static const char *const names[REDUCE_VALUES_MAX] = { "tree0", "tree1", "tree2", "tree3",
                                                          "tree4", "tree5", "tree6", "tree7" };
    tensor sS[REDUCE_VALUES_MAX]; // (THREADS)
    for (int i = 0; i < k->r.count; i++) {
        sS[i] = smem_tensor(names[i], k->r.types[i], compact(leaf(k->cfg->threads)), 16);
        tensor_set(sS[i], coord(thread()), k->state[i]);
    }
    for (int half = k->cfg->threads / 2; half > 0; half /= 2) {
        cta_sync();
        IF(lt(thread(), imm(half))) {
            val other[REDUCE_VALUES_MAX];
            for (int i = 0; i < k->r.count; i++)
                other[i] = at(sS[i], add(thread(), imm(half)));
            k->r.merge(k->state, other, &k->r);
            for (int i = 0; i < k->r.count; i++)
                tensor_set(sS[i], coord(thread()), k->state[i]);
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
        reduce_store(&k->r, &k->a, k->cfg->output, k->row, k->state);
}

/* The number of elements that whole vectors cover; the vectors are taken here. */
static val take_vectors(const ladder_kernel *k)
{
    const reduce_ladder_config *cfg = k->cfg;
    int vec = 16 / (int)ckl_dtype_bytes(cfg->dtype);
    val vectors = div(k->a.row.count, imm(vec));
    int64_t distance[vec];
    for (int e = 0; e < vec; e++)
        distance[e] = e;
    LOOP_FROM(v, convert(I64, thread()), vectors, imm(cfg->threads))
    {
        val first = mul(v, imm(vec));
        tensor gX = gmem_tensor(reduce_address(k->start, first, cfg->dtype), cfg->dtype, compact(leaf(vec))); // (VEC)
        tensor rX = unpacked(load_packed(with_cache(gX, IR_CACHE_READONLY), 16), k->r.input);                 // (VEC)
        reduce_batch batch = { .x = rX.regs, .size = vec, .first = first, .distance = distance };
        reduce_take(&k->r, &batch, k->pivot, (val *)k->state);
    }
    return mul(vectors, imm(vec));
}

void reduce_naive_with(const reduce_ladder_config *cfg, const reducer *r)
{
    ladder_kernel k = { .cfg = cfg, .r = *r };
    launch_bounds(cfg->threads, 0);
    k.a = reduce_declare_arguments(cfg->kept, cfg->reduced);
    k.row = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    IF(lt(k.row, k.a.rows)) {
        k.start = reduce_address(k.a.x, reduce_row_offset(&k.a, k.row), cfg->dtype);
        k.pivot = reduce_load_pivot(r, &k.a, k.start, cfg->dtype);
        reduce_begin(r, k.state);
        LOOP_FROM(i, imm64(0), k.a.row.count, imm(1))
        take_one(&k, i);
        reduce_store(r, &k.a, cfg->output, k.row, k.state);
    }
}

void reduce_naive(const void *config, int part)
{
    (void)part;
    const reduce_ladder_config *cfg = config;
    reducer r = reducer_of(cfg->op, cfg->dtype, cfg->output, false);
    reduce_naive_with(cfg, &r);
}

void reduce_improved(const void *config, int part)
{
    (void)part;
    ladder_kernel k;
    begin(&k, config);
    take_elements(&k, imm64(0));
    merge_by_tree(&k);
    store_by_first(&k);
}

void reduce_shuffle(const void *config, int part)
{
    (void)part;
    ladder_kernel k;
    begin(&k, config);
    take_elements(&k, imm64(0));
    merge_by_shuffles(&k);
    store_by_first(&k);
}

/* Part 1, of rows that are not aligned to vectors, takes single elements. */
void reduce_vectorized(const void *config, int part)
{
    ladder_kernel k;
    begin(&k, config);
    take_elements(&k, part == 0 ? take_vectors(&k) : imm64(0));
    merge_by_shuffles(&k);
    store_by_first(&k);
}
