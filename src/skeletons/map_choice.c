/* map_choice.c - the configs that element-wise problems get and may have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/check.h"
#include "skeletons/map_launch.h"
#include "skeletons/map_rows.h"
#include "skeletons/prefetch.h"

enum { VECTOR_BYTES = 16, THREADS_MIN = 128, STEPS_MAX = 16, STEPS_CHOSEN_MAX = 8, THREADS_RESIDENT_MAX = 1536 };

/* The types of a kernel, as its config has them. */
static void set_types(const map_kernel *k, map_config *c)
{
    ckl_dtype *const in[MAP_INPUTS_MAX] = { &c->in0, &c->in1, &c->in2, &c->in3 };
    c->scalars = 0;
    for (int i = 0; i < MAP_INPUTS_MAX; i++) {
        *in[i] = i < k->inputs ? k->dtype[i] : CKL_DTYPE_DEFAULT;
        c->scalars |= (i < k->inputs && k->scalar[i]) << i;
    }
    c->out = k->dtype[k->inputs];
    c->compute = k->compute;
}

static int64_t inner_stride(const map_shape *s, int operand)
{
    return s->stride[operand][s->rank - 1];
}

static bool lies_side_by_side(const map_shape *s, int operand, int vec)
{
    if (inner_stride(s, operand) != 1)
        return inner_stride(s, operand) == 0 || vec == 1;
    for (int d = 0; d < s->rank - 1; d++)
        if (s->stride[operand][d] % vec)
            return false;
    return true;
}

/*
 * Of crossed problems: do rows of the others, longer than two vectors, all begin where the output's do between two
 * boundaries?
 */
static bool begins_alike(const map_shape *s, const map_config *c, int vec)
{
    enum { WORD_BYTES = 4 }; // which a vector of any type fills
    const int inner = s->rank - 1, out = s->operands - 1;
    bool alike = c->crossed && !c->strided && vec >= WORD_BYTES && s->size[inner] >= 2 * vec;
    for (int k = 0; k < out; k++)
        for (int d = 0; d < inner && alike && inner_stride(s, k) == 1; d++)
            alike = alike && (s->stride[k][d] - s->stride[out][d]) % vec == 0;
    return alike;
}

/* Does every vector lie in one row and start at a multiple of its size? */
static bool suits(const map_shape *s, const map_config *c, int vec)
{
    if (c->ragged)
        return begins_alike(s, c, vec);
    if (c->flat)
        return s->size[s->rank - 1] >= vec;
    if (s->rank > 1 && s->size[s->rank - 1] % vec)
        return false;
    for (int k = 0; k < s->operands; k++)
        if (!(c->crossed >> k & 1) && !lies_side_by_side(s, k, vec))
            return false;
    return true;
}

enum { CROSSED_MIN = 16 }; // elements on both sides of a tile that is worth it

/* Along which dimension, other than the innermost, is an operand contiguous? -1: none that is worth a tile. */
static int crossing(const map_shape *s, int operand)
{
    const int inner = s->rank - 1;
    for (int d = 0; d < inner && s->size[inner] >= CROSSED_MIN; d++)
        if (s->stride[operand][d] == 1 && s->size[d] >= CROSSED_MIN)
            return d;
    return -1;
}

/*
 * The masks of operands by their stride along the innermost dimension: 0, or neither 0 nor 1. Of the latter, inputs
 * contiguous along the same other dimension are crossed.
 */
static void describe_strides(const map_shape *s, map_config *c)
{
    c->rank = s->rank;
    c->constant = c->strided = c->crossed = c->cross = c->cross_rows = 0;
    for (int k = 0; k < s->operands; k++) {
        const bool gaps = inner_stride(s, k) != 0 && inner_stride(s, k) != 1;
        const int d = gaps && k < s->operands - 1 ? crossing(s, k) : -1;
        const bool is_crossed = d >= 0 && (!c->crossed || d == c->cross);
        c->constant |= (inner_stride(s, k) == 0) << k;
        c->strided |= (gaps && !is_crossed) << k;
        c->crossed |= is_crossed << k;
        c->cross = is_crossed ? d : c->cross;
    }
    if (c->crossed)
        c->cross_rows = (int)min_i64(MAP_CROSS_TILE, max_i64(CROSSED_MIN, power_of_two_ceil(s->size[c->cross])));
}

/* Of 16 bits, crossed, and all pairs of neighbours begin at an even number? */
static bool has_pairs(const map_kernel *k, const map_shape *s)
{
    const map_config *c = &k->config;
    bool even = c->crossed && s->size[c->cross] % 2 == 0, any = false;
    for (int i = 0; i < k->inputs; i++) {
        if (!(c->crossed >> i & 1) || dtype_bytes(k->dtype[i]) != 2)
            continue;
        any = true;
        for (int d = 0; d < s->rank; d++)
            even = even && (d == c->cross || s->stride[i][d] % 2 == 0);
    }
    return any && even;
}

/* Does an operand lie as its elements are numbered? */
static bool is_flat(const map_shape *s, int operand)
{
    int64_t stride = 1;
    for (int d = s->rank - 1; d >= 0; stride *= s->size[d--])
        if (s->stride[operand][d] != stride)
            return false;
    return true;
}

/* The operands whose vectors may cross the ends of rows. 0: the output's may not, or rows are shorter than a vector. */
static int flat_operands(const map_kernel *k, const map_shape *s, int vec)
{
    int mask = 0;
    for (int i = 0; i < s->operands; i++)
        if (i == k->inputs || !k->scalar[i])
            mask |= is_flat(s, i) << i;
    return s->rank > 1 && !k->config.crossed && mask >> k->inputs && s->size[s->rank - 1] >= vec ? mask : 0;
}

/* Are the others so small that L1 and L2 hold them? They are loaded by single elements. */
static bool pays_flat(const map_kernel *k, const map_shape *s, int flat)
{
    enum { SMALLER = 8 };
    for (int i = 0; i < k->inputs; i++) {
        int64_t elements = 1;
        for (int d = 0; d < s->rank; d++)
            elements *= s->stride[i][d] ? s->size[d] : 1;
        if (!k->scalar[i] && !(flat >> i & 1) && elements * SMALLER > s->count)
            return false;
    }
    return flat != 0;
}

static bool is_wide(const map_kernel *k, const map_shape *s)
{
    return s->rank > 1 && s->count > INT32_MAX - map_tile(k);
}

static int64_t widest_bytes(const map_kernel *k)
{
    int64_t bytes = 1;
    for (int i = 0; i <= k->inputs; i++)
        if (i == k->inputs || !k->scalar[i])
            bytes = max_i64(bytes, dtype_bytes(k->dtype[i]));
    return bytes;
}

/*
 * Chains of functions take as many registers as they get (sigmoid(abs(2x+1)) 101: two CTAs fit an SM). For one or two
 * inputs 64 are enough, but for three and more vectors of a row, which a thread holds twice while they are cut.
 */
enum { BOUNDED_INPUTS_MAX = 2, BOUNDED_STEPS_MAX = 2, THREADS_PER_SM = 1024, THREADS_PER_SM_MAX = 2048 };

/*
 * NOTE: of a few tiles of crossed operands. x+y of 197x69 f32 takes 5.8, 4.0 and 3.2 us by 128, 256 and 512 threads on
 * an H200, 49x155 f16 5.3, 3.8 and 3.1; 1024 are as fast as 512.
 */
enum { CROSSED_FEW_THREADS = 512 };

/* Of more, lower ones are there at once: x+y of 1024x689 bf16 takes 4.4 us in 176 of 64 rows, 3.2 in 704 of 16. */
enum { CROSSED_CTAS_OF_SM = 3 };

/* Threads that share out a tile of crossed operands: a vector each, and of pairs two rows by two columns. */
static int crossed_threads_max(const map_config *c)
{
    enum { ELEMENTS_OF_PAIRS = 4 };
    return c->cross_rows * MAP_CROSS_TILE / (int)max_i64(c->vec, c->pairs ? ELEMENTS_OF_PAIRS : 1);
}

/* Are the vectors of an operand shorter than others'? Constants aside. */
static bool has_short_vectors(const map_kernel *k)
{
    bool is_short = false;
    for (int i = 0; i <= k->inputs; i++)
        if (i == k->inputs || !(k->scalar[i] || k->config.constant >> i & 1))
            is_short |= dtype_bytes(k->dtype[i]) < widest_bytes(k);
    return is_short;
}

/*
 * Vectors of a thread. One is fastest for one input, while CTAs need not start faster than about one a nanosecond: relu
 * of 2^28 bf16 takes 255 us, with two or four vectors 261. Where types differ, a vector of one is half of the other's:
 * a cast of 2^28 f32 to bf16 takes 375.0 us with one, 369.3 with two. Several inputs take two if CTAs come in waves
 * (2975088 bf16 added take 6.36 us with two, 5.25 with one), and so do elements of what is constant along rows
 * that vectors cross: x*s+b of 128x109x25x25 f32, s and b of the channels, 19.2 us with one and 18.4 with two.
 */
static int steps_for(const map_kernel *k)
{
    int loads = 0;
    for (int i = 0; i < k->inputs; i++)
        loads += k->config.flat || !(k->config.constant >> i & 1);
    return loads == 0 ? 4 : loads == 1 && !has_short_vectors(k) ? 1 : 2;
}

/*
 * The longest vectors that lie in rows, or cross their ends, or begin at boundaries of crossed rows. `few`: each CTA
 * has a tile at once.
 */
static void choose_vectors(map_kernel *k, const map_shape *s, bool few)
{
    map_config *c = &k->config;
    const int flat = flat_operands(k, s, c->vec);
    if (!suits(s, c, c->vec) && pays_flat(k, s, flat))
        c->flat = flat;
    c->ragged = !suits(s, c, c->vec) && begins_alike(s, c, c->vec) && !few;
    while (!suits(s, c, c->vec))
        c->vec /= 2;
}

/* Vectors of a thread and threads of a CTA: fewer where CTAs would be few. */
static void choose_tile(map_kernel *k, const map_shape *s, bool few, const ckl_device_info *device)
{
    map_config *c = &k->config;
    const int64_t sms = device->sm_count, vec_full = VECTOR_BYTES / widest_bytes(k);
    const bool whole = !c->crossed && c->vec == vec_full;
    c->steps = (int)min_i64(STEPS_CHOSEN_MAX, steps_for(k) * vec_full / c->vec);
    while (c->steps > 1 && s->count < sms * (whole ? THREADS_PER_SM_MAX / c->threads : 2) * map_tile(k))
        c->steps /= 2;
    while (c->threads > THREADS_MIN && s->count < sms * map_tile(k))
        c->threads /= 2;
    if (few) {
        c->threads = CROSSED_FEW_THREADS;
        c->steps = 1;
    }
    while (c->crossed && c->cross_rows > CROSSED_MIN && map_ctas(k, s) < (few ? 1 : CROSSED_CTAS_OF_SM) * sms)
        c->cross_rows /= 2;
    if (c->crossed)
        c->threads = (int)min_i64(c->threads, crossed_threads_max(c));
}

/* Do memory's bytes from the first element of each input to its last come while a launch begins? */
static bool is_prefetched(const map_kernel *k, const map_shape *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < k->inputs; i++) {
        int64_t reach = 1;
        for (int d = 0; d < s->rank; d++)
            reach = sum_i64(reach, product_i64(s->size[d] - 1, llabs(s->stride[i][d])));
        bytes = sum_i64(bytes, k->scalar[i] ? 0 : product_i64(reach, dtype_bytes(k->dtype[i])));
    }
    return bytes <= PREFETCHED_BYTES;
}

ckl_status map_choose_config(const void *problem, const ckl_device_info *device, void *config)
{
    const map_problem *p = problem;
    const map_shape *s = &p->shape;
    map_kernel k = map_kernel_by(p, config);
    map_config *c = &k.config;
    set_types(&k, c);
    describe_strides(s, c);
    c->expr = p->kernel.config.expr;
    c->vec = VECTOR_BYTES / (int)widest_bytes(&k);
    c->pairs = has_pairs(&k, s);
    const bool few = c->crossed && map_ctas(&k, s) <= device->sm_count; // tiles, whose threads share them out
    choose_vectors(&k, s, few);
    choose_tile(&k, s, few, device);
    map_rows_choose(&k, s, device);
    c->prefetch = is_prefetched(&k, s);
    const bool small = s->rank == 1 && c->prefetch, holds_many = c->row_threads && c->steps > BOUNDED_STEPS_MAX;
    c->ctas_per_sm = k.inputs <= BOUNDED_INPUTS_MAX && !small && !holds_many ? THREADS_PER_SM / c->threads : 0;
    c->wide = is_wide(&k, s);
    *(map_config *)config = *c;
    return CKL_OK;
}

/* Does the config have the problem's function and types? */
static bool is_of(const map_problem *p, const map_config *config)
{
    const map_kernel *a = &p->kernel, b = map_kernel_of(config);
    bool same = a->inputs == b.inputs && a->compute == b.compute && strcmp(a->config.expr, config->expr) == 0;
    for (int i = 0; i <= a->inputs && same; i++)
        same = a->dtype[i] == b.dtype[i] && (i == a->inputs || a->scalar[i] == b.scalar[i]);
    return same;
}

ckl_status map_admit_config(const void *problem, const ckl_device_info *device, const void *config)
{
    const map_problem *p = problem;
    const map_shape *s = &p->shape;
    const map_config *c = config;
    const map_kernel k = map_kernel_by(p, c);
    char what[64];
    snprintf(what, sizeof what, "%s vector", p->op);
    if (!is_of(p, c))
        FAIL(CKL_INVALID, "%s: expr and types of the config are not those of the problem", what);
    map_config right;
    describe_strides(s, &right);
    if (c->rank != right.rank || c->constant != right.constant || c->strided != right.strided ||
        c->crossed != right.crossed || c->cross != right.cross)
        FAIL(CKL_INVALID,
             "%s: rank=%d constant=%d strided=%d crossed=%d cross=%d are not those of the problem: %d %d %d %d %d",
             what, c->rank, c->constant, c->strided, c->crossed, c->cross, right.rank, right.constant, right.strided,
             right.crossed, right.cross);
    if (c->flat && c->flat != flat_operands(&k, s, c->vec))
        FAIL(CKL_INVALID, "%s: flat=%d are not the operands without gaps, or vec=%d is longer than a row", what,
             c->flat, c->vec);
    if (c->ragged && !begins_alike(s, c, c->vec))
        FAIL(CKL_INVALID, "%s: ragged=1, but nothing is crossed or rows do not begin alike", what);
    if (!c->crossed != !c->cross_rows ||
        (c->crossed &&
         (c->cross_rows < CROSSED_MIN || c->cross_rows > MAP_CROSS_TILE || !is_power_of_two(c->cross_rows))))
        FAIL(CKL_INVALID, "%s: cross_rows=%d is no power of two from %d to %d, or nothing is crossed", what,
             c->cross_rows, CROSSED_MIN, MAP_CROSS_TILE);
    if (c->crossed && (c->threads % MAP_CROSS_TILE || c->threads > crossed_threads_max(c)))
        FAIL(CKL_INVALID, "%s: threads=%d vec=%d do not share out the tiles of crossed operands", what, c->threads,
             c->vec);
    if (c->pairs && !has_pairs(&k, s))
        FAIL(CKL_INVALID,
             "%s: pairs=1, but no crossed input of 16 bits has an even number of elements along it and even strides",
             what);
    if (c->vec < 1 || !is_power_of_two(c->vec) || c->vec > VECTOR_BYTES)
        FAIL(CKL_INVALID, "%s: vec=%d must be a power of two up to %d", what, c->vec, VECTOR_BYTES);
    if (c->row_threads)
        TRY(map_rows_admit(what, &k, s, device));
    if (!c->row_threads && !suits(s, c, c->vec))
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the rows and the distances between them", what, c->vec);
    TRY(plan_check_threads(what, c->threads, device));
    if (c->steps < 1 || c->steps > STEPS_MAX)
        FAIL(CKL_INVALID, "%s: steps=%d is not in 1..%d", what, c->steps, STEPS_MAX);
    if (c->ctas_per_sm < 0 || (int64_t)c->ctas_per_sm * c->threads > THREADS_RESIDENT_MAX)
        FAIL(CKL_INVALID, "%s: ctas_per_sm=%d of %d threads are not 0..%d threads", what, c->ctas_per_sm, c->threads,
             THREADS_RESIDENT_MAX);
    if (!c->wide && is_wide(&k, s))
        FAIL(CKL_INVALID, "%s: wide=0 cannot number %" PRId64 " elements", what, s->count);
    if (map_ctas(&k, s) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more than %d tiles", what, INT32_MAX);
    return CKL_OK;
}
