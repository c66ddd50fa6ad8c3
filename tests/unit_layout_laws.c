/* unit_layout_laws.c - the laws of the layout algebra, on random layouts. */
#include "unit.h"
#include "cute/layout.h"
#include "ir/build.h"

static uint64_t seed = 1;

static int64_t random_below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

static int_tuple random_shape(int nesting)
{
    static const int64_t extents[] = { 1, 2, 3, 4, 6, 8 };
    if (nesting == 0 || random_below(3) == 0)
        return leaf(extents[random_below(COUNT_OF(extents))]);
    int_tuple modes[3];
    int count = 1 + (int)random_below(3);
    for (int i = 0; i < count; i++)
        modes[i] = random_shape(nesting - 1);
    return tuple_of(count, modes);
}

enum { SIZE_MAX_TRIED = 4096 };

static int_tuple random_profile(void)
{
    int_tuple profile;
    do
        profile = random_shape(2);
    while (tuple_product(profile).i > SIZE_MAX_TRIED);
    return profile;
}

/* A layout whose flat modes are contiguous in random order: a bijection. */
static layout random_compact(void)
{
    int_tuple profile = random_profile(), flat = flatten_tuple(profile);
    int64_t strides[INT_TUPLE_RANK_MAX] = { 0 }, next = 1;
    int count = tuple_rank(flat);
    for (int left = count; left > 0; left--) {
        int mode = (int)random_below(count);
        while (strides[mode])
            mode = (mode + 1) % count;
        strides[mode] = next;
        next *= static_leaf(tuple_mode(flat, mode));
    }
    return make_layout(profile, unflatten_tuple(ints_of(count, strides), profile));
}

/* Any layout: strides at random, 0 among them. */
static layout random_layout(void)
{
    int_tuple profile = random_profile(), flat = flatten_tuple(profile);
    int64_t strides[INT_TUPLE_RANK_MAX];
    for (int i = 0; i < tuple_rank(flat); i++)
        strides[i] = random_below(20);
    return make_layout(profile, unflatten_tuple(ints_of(tuple_rank(flat), strides), profile));
}

enum { TRIALS = 1000, TRIALS_FULL = 4000 };

/* Runs a law on fresh random layouts. Trials that the algebra refuses count for nothing, but some must pass. */
static void repeat(const char *name, bool (*law)(void))
{
    const int trials = getenv("CKL_TEST_FULL") ? TRIALS_FULL : TRIALS;
    int held = 0;
    for (int trial = 0; trial < trials; trial++) {
        ir_describe_begin(NULL, IR_SM80);
        bool holds = law();
        bool refused = ir_failed();
        ckl_status status = ir_describe_end(NULL);
        assert_true(refused == (status != CKL_OK));
        if (!refused && !holds)
            fail_msg("%s: not on trial %d", name, trial);
        held += !refused;
    }
    assert_in_range(held, trials / 20, trials);
}

static bool coalesce_keeps_the_function(void)
{
    layout a = random_layout(), b = coalesce(a);
    bool same = static_size(a) == static_size(b) && depth(b) <= 1;
    for (int64_t i = 0; same && i < static_size(a); i++)
        same = index_at(a, i) == index_at(b, i);
    return same;
}

static bool composition_applies_one_after_the_other(void)
{
    layout a = random_layout(), b = random_layout(), c = composition(a, b);
    bool same = ir_failed() || (static_size(c) == static_size(b) && (is_leaf(b.shape) || rank(c) == rank(b)));
    for (int64_t i = 0; !ir_failed() && same && i < static_size(b); i++)
        same = index_at(c, i) == index_at(a, index_at(b, i));
    return same;
}

static bool complement_is_ordered_and_disjoint(void)
{
    layout a = random_compact(), b = composition(a, random_layout());
    layout c = complement(b, static_size(a));
    bool good = true;
    for (int64_t i = 1; !ir_failed() && good && i < static_size(c); i++) {
        good = index_at(c, i) > index_at(c, i - 1);
        for (int64_t j = 0; good && j < static_size(b); j++)
            good = index_at(c, i) != index_at(b, j);
    }
    return good;
}

static bool right_inverse_inverts(void)
{
    layout a = random_below(2) ? random_compact() : random_layout(), r = right_inverse(a);
    bool good = true;
    for (int64_t i = 0; good && i < static_size(r); i++)
        good = index_at(a, index_at(r, i)) == i;
    return good;
}

static bool left_inverse_inverts(void)
{
    layout a = random_below(2) ? random_compact() : random_layout(), l = left_inverse(a);
    bool good = true;
    for (int64_t i = 0; !ir_failed() && good && i < static_size(a); i++)
        good = index_at(l, index_at(a, i)) == i;
    return good;
}

static bool compact_layouts_have_full_inverses(void)
{
    layout a = random_compact();
    return static_size(right_inverse(a)) == static_size(a) && static_size(left_inverse(a)) == static_size(a);
}

/* Every index of a appears equally often in the tiles, and the first mode is the tile of a. */
static bool divide_rearranges(void)
{
    layout a = random_compact(), tile = random_layout(), d = logical_divide(a, tile);
    if (ir_failed())
        return true;
    static bool seen[SIZE_MAX_TRIED];
    int64_t count = static_size(a);
    memset(seen, 0, sizeof seen);
    bool good = static_size(d) == count && rank(d) == 2 && count <= COUNT_OF(seen);
    for (int64_t i = 0; good && i < count; i++) {
        good = index_at(d, i) < count && !seen[index_at(d, i)];
        seen[index_at(d, i)] = true;
    }
    for (int64_t i = 0; good && i < static_size(tile); i++)
        good = index_at(d, i) == index_at(a, index_at(tile, i));
    return good;
}

/* The first mode is the block; the repetitions are disjoint. */
static bool product_repeats(void)
{
    layout a = random_compact(), b = random_compact(), p = logical_product(a, b);
    int64_t count = static_size(a) * static_size(b);
    if (ir_failed() || count > SIZE_MAX_TRIED)
        return true;
    static bool seen[SIZE_MAX_TRIED];
    memset(seen, 0, sizeof seen);
    bool good = static_size(p) == count && cosize(p) == count;
    for (int64_t i = 0; good && i < count; i++) {
        good = !seen[index_at(p, i)] && (i >= static_size(a) || index_at(p, i) == index_at(a, i));
        seen[index_at(p, i)] = true;
    }
    return good;
}

static bool ranked_products_permute_the_product(void)
{
    layout a = random_compact(), b = random_compact();
    layout blocked = blocked_product(a, b), raked = raked_product(a, b);
    int64_t modes = max_i64(rank(a), rank(b));
    return ir_failed() || (rank(blocked) == modes && rank(raked) == modes && cosize(blocked) == cosize(raked) &&
                           cosize(blocked) == static_size(a) * static_size(b));
}

static bool coordinates_come_back(void)
{
    layout a = random_layout();
    bool same = true;
    for (int64_t i = 0; same && i < static_size(a); i++)
        same = static_crd2idx(idx2crd(ir_int(CKL_I64, i), a), a) == index_at(a, i);
    return same;
}

static bool common_vector_is_common(void)
{
    layout a = random_compact(), b = random_layout(), v = max_common_layout(a, b);
    bool good = true;
    for (int64_t i = 0; good && i < static_size(v); i++)
        good = index_at(a, index_at(v, i)) == i && index_at(b, index_at(v, i)) == i;
    return good;
}

/* Larger elements are those that smaller ones lie in, smaller ones what larger ones are made of. Without modes 1:1. */
static bool recasts_are_the_same_memory(void)
{
    static const int factors[] = { 1, 2, 3, 4, 8 };
    layout a = coalesce(random_compact());
    int n = factors[random_below(COUNT_OF(factors))], bits = 1 + (int)random_below(8);
    bool grow = random_below(2);
    layout b = grow ? recast_layout(a, bits, bits * n) : recast_layout(a, bits * n, bits);
    static bool in_a[8 * SIZE_MAX_TRIED], in_b[8 * SIZE_MAX_TRIED];
    layout large = grow ? b : a, small = grow ? a : b;
    if (ir_failed())
        return true;
    memset(in_a, 0, sizeof in_a);
    memset(in_b, 0, sizeof in_b);
    for (int64_t i = 0; i < static_size(small); i++)
        for (int64_t k = 0; k < n; k++)
            in_a[grow ? index_at(small, i) / n * n + k : index_at(small, i)] = true;
    for (int64_t i = 0; i < static_size(large); i++)
        for (int64_t k = 0; k < n; k++)
            in_b[index_at(large, i) * n + k] = true;
    return memcmp(in_a, in_b, sizeof in_a) == 0 && rank(a) == rank(b);
}

TEST(laws)
{
    repeat("coalesce_keeps_the_function", coalesce_keeps_the_function);
    repeat("composition_applies_one_after_the_other", composition_applies_one_after_the_other);
    repeat("complement_is_ordered_and_disjoint", complement_is_ordered_and_disjoint);
    repeat("right_inverse_inverts", right_inverse_inverts);
    repeat("left_inverse_inverts", left_inverse_inverts);
    repeat("compact_layouts_have_full_inverses", compact_layouts_have_full_inverses);
    repeat("divide_rearranges", divide_rearranges);
    repeat("product_repeats", product_repeats);
    repeat("ranked_products_permute_the_product", ranked_products_permute_the_product);
    repeat("coordinates_come_back", coordinates_come_back);
    repeat("common_vector_is_common", common_vector_is_common);
    repeat("recasts_are_the_same_memory", recasts_are_the_same_memory);
}

RUN_TESTS(NULL, NULL)
