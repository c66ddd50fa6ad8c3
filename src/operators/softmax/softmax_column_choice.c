/*
 * softmax_column_choice.c - the configs of rows across memory that stay in registers, and what all choices of columns
 * share; bench/notes/memory-bound.md has the measurements.
 */
#include "operators/softmax/softmax_column_choice.h"

#include "skeletons/residency.h"

enum { CTAS_MAX = INT32_MAX, COLUMN_THREADS_FULL = 512 };

ckl_status softmax_check_other_axis(const char *what, const ckl_softmax_desc *d)
{
    if (d->inner == 1)
        FAIL(CKL_UNSUPPORTED, "%s: the axis is the last one", what);
    if (d->mask != CKL_SOFTMAX_MASK_NONE)
        FAIL(CKL_UNSUPPORTED, "%s: masks are for the last axis", what);
    return softmax_check_length(what, d);
}

/*
 * Forward, where registers let only two CTAs of 256 threads into an SM, or one of 512: half the columns of 16 bits in
 * CTAs of half the threads. Three of 256 threads fit, or four with few elements each, so that one loads while another
 * waits. Clusters of eight of 512 threads: 4096x1024 bf16 10.9 us so, 17.3 whole.
 */
static void halve_columns(const ckl_softmax_desc *d, softmax_column_config *c)
{
    enum { THREADS_OF_SM = 1024, ELEMENTS = 40 }; // that 64 registers hold
    column_split *s = &c->split;
    const bool full = s->threads == COLUMN_THREADS_FULL;
    if (!is_half_forward(d) || s->vec <= 2 || s->threads / 64 < s->cluster)
        return;
    if (s->cluster > 1 ? !full : 2 * s->threads < COLUMN_THREADS_FULL || !has_lines(s, d->dtype))
        return;
    s->vec /= 2;
    s->threads /= 2;
    s->steps *= 2;
    s->exact = column_split_lines(s) == d->n && d->inner % column_split_columns(s) == 0;
    const int threads = s->vec * s->steps <= ELEMENTS ? THREADS_OF_SM : THREADS_OF_SM * 3 / 4;
    c->form.ctas_per_sm = threads / s->threads;
}

/*
 * Forward, f32: are two CTAs of 512 threads an SM, by 64 registers, faster than one? Not where they spill, nor where
 * each CTA has an SM to itself.
 */
static bool wants_two_ctas(const ckl_softmax_desc *d, const ckl_device_info *device, const column_split *s)
{
    enum { VECTORS = 8 };
    const bool many = s->cluster == 1 && column_split_ctas(s, d->outer, d->inner) > device->sm_count;
    return s->threads == COLUMN_THREADS_FULL && is_forward(d) && (s->exact || many) && s->steps <= VECTORS &&
           !is_half(d);
}

/*
 * Columns of few lines: each is in the registers of one thread, as wide as leaves a thread BYTES, and no thread waits
 * for another. Warps still read whole lines of memory. 16 bits are bound to 80 registers, gradients to 128, below which
 * they spill; without a bound addresses take twice as many.
 */
static bool choose_short(const ckl_softmax_desc *d, softmax_column_config *c)
{
    enum { BYTES = 96, LANES_MIN = 32, LANES_MAX = 128, THREADS = 768, THREADS_BACKWARD = 512 };
    column_split *s = &c->split;
    if (d->n < 1 || d->n > SHORT_LINES)
        return false;
    *s = (column_split){ .cluster = 1, .vec = softmax_vec_of(d), .steps = (int)d->n, .lanes = LANES_MIN };
    while (s->vec > 1 && s->vec * d->n * dtype_bytes(d->dtype) > BYTES)
        s->vec /= 2;
    if (d->inner < column_split_columns(s))
        return false;
    while (s->lanes < LANES_MAX && column_split_columns(s) < d->inner)
        s->lanes *= 2;
    s->threads = s->lanes;
    s->exact = d->inner % column_split_columns(s) == 0;
    if (is_half(d) && s->vec > 1)
        c->form.ctas_per_sm = (is_forward(d) ? THREADS : THREADS_BACKWARD) / s->threads;
    return true;
}

int softmax_ctas_that_hold(const ckl_softmax_desc *d, const ckl_device_info *device, column_split *held)
{
    const int elements = is_forward(d) ? COLUMN_FORWARD : COLUMN_BACKWARD;
    if (column_split_choose(d->n, d->inner, softmax_vec_of(d), d->dtype, elements, 1, held))
        return 1;
    const int cluster = residency_cluster_max(device);
    return column_split_choose(d->n, d->inner, softmax_vec_of(d), d->dtype, elements, cluster, held) ? held->cluster
                                                                                                     : 0;
}

/*
 * A cluster only where the registers of one CTA do not hold the columns; not of single elements of 16 bits, if it is of
 * eight CTAs, or clusters come in turns: 3x2048x1071 f16 23.7 us by clusters of four, read twice 17.2; gradients of
 * 2048x2557 bf16 27.2 by eight, 16.7.
 */
static ckl_status choose_split(const ckl_softmax_desc *d, const ckl_device_info *device, softmax_column_config *c)
{
    enum { BYTES_MIN_GRADIENTS = 4 << 20 };
    if (choose_short(d, c))
        return CKL_OK;
    const int ctas = softmax_ctas_that_hold(d, device, &c->split), most = residency_cluster_max(device);
    if (!ctas)
        FAIL(CKL_UNSUPPORTED, "softmax column: columns of n=%" PRId64 " do not fit the registers of %d CTA%s", d->n,
             most, most > 1 ? "s" : "");
    const bool turns = column_split_ctas(&c->split, d->outer, d->inner) > device->sm_count;
    const bool many = is_forward(d) || (tensor_bytes(d) >= BYTES_MIN_GRADIENTS && softmax_has_long_vectors(d));
    if (is_half(d) && many && c->split.vec == 1 && ctas > 1 && (ctas == most || turns))
        FAIL(CKL_UNSUPPORTED, "softmax column: single elements of n=%" PRId64 " are faster read twice", d->n);
    halve_columns(d, c);
    if (wants_two_ctas(d, device, &c->split))
        c->form.ctas_per_sm = 2;
    return CKL_OK;
}

/*
 * A few microseconds' work of many CTAs crowd some SMs if the next launch may come before the wait: 80x7168 bf16 takes
 * 3.33 us so and 2.10 else, 2304x384 4.59 and 3.77; little work waits longer else: 24x408, gradients, 1.28 and 1.44.
 */
static bool is_little(const ckl_softmax_desc *d, const softmax_column_config *c)
{
    enum { BYTES_MAX = 2000000 };
    const int64_t tensors = softmax_inputs(&c->form) + 1;
    return c->split.cluster == 1 && tensors * tensor_bytes(d) <= BYTES_MAX;
}

ckl_status softmax_choose_column(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_column_config *c = config;
    TRY(softmax_check_other_axis("softmax column", d));
    c->form = softmax_form_of(d);
    TRY(choose_split(d, device, c));
    c->early = is_little(d, c);
    return CKL_OK;
}

int64_t softmax_chunks_of(const ckl_softmax_desc *d, const softmax_column_config *c)
{
    return c->tiles ? ceil_div(d->n, softmax_chunk_lines(c)) : 1;
}

plan_cost softmax_columns_cost(const ckl_softmax_desc *d, const ckl_device_info *device, const softmax_column_config *c,
                               memory_work work, double again)
{
    enum { TURN = 600, CLUSTER = 1300 };
    const column_split *s = &c->split;
    const int64_t bytes = dtype_bytes(d->dtype), chunks = softmax_chunks_of(d, c),
                  lines = ceil_div(d->n, max_i64(1, chunks));
    const int inputs = softmax_inputs(&c->form), held = s->vec * s->steps;
    const bool dense = d->ldx == d->inner && column_split_columns(s) == d->inner; // strips lie in one piece
    const double run = dense ? LINE_BYTES : (double)(s->lanes * s->vec * bytes);
    const double tiles = ceil((double)lines * (again > 0 ? 1 + again : 1) / (double)column_split_lines(s));
    work.ctas = chunks * column_split_ctas(s, d->outer, d->inner);
    work.bytes = (double)d->outer * (double)(chunks * lines) * (double)(d->inner * bytes) * (inputs * (1 + again) + 1);
    work.threads = s->threads;
    work.registers += held * inputs;
    work.ctas_per_sm = c->form.ctas_per_sm;
    work.wait_cycles = TURN * (tiles - 1) + CLUSTER * (s->cluster - 1);
    work.lines = tiles * s->steps * (inputs + 1) * memory_lines((double)(s->vec * bytes), run);
    work.elements = tiles * held * inputs;
    work.meets = true;
    return memory_cost(&work, device);
}

plan_cost softmax_cost_column(const void *desc, const ckl_device_info *device, const void *config)
{
    const memory_work work = { .of = { .wait_cycles = -900, .bytes = 1.08, .lines = 2.5 } };
    return softmax_columns_cost(desc, device, config, work, 0);
}

ckl_status softmax_admit_columns(const char *what, const ckl_softmax_desc *d, const ckl_device_info *device,
                                 const softmax_column_config *c)
{
    TRY(softmax_check_other_axis(what, d));
    TRY(column_split_admit(what, &c->split, c->form.dtype, device));
    TRY(softmax_admit_form(what, d, &c->form, c->split.vec, c->split.ragged));
    if (c->split.ragged && (!c->tiles || c->kept))
        FAIL(CKL_INVALID, "%s: ragged=1 is for chunks with kept=0, which copy lines to shared memory", what);
    if (c->split.ragged && (d->ldx - d->ldy) % c->split.vec)
        FAIL(CKL_UNSUPPORTED, "%s: ragged=1, but lines of ldx=%" PRId64 " and ldy=%" PRId64 " begin differently", what,
             d->ldx, d->ldy);
    const column_split scalar = column_split_scalar(&c->split); // the smaller strips
    if (d->outer > CTAS_MAX / max_i64(1, softmax_chunks_of(d, c)) / column_split_ctas(&scalar, 1, d->inner))
        FAIL(CKL_UNSUPPORTED, "%s: the problem takes more than %d CTAs", what, CTAS_MAX);
    return CKL_OK;
}

ckl_status softmax_admit_column(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "softmax column";
    const ckl_softmax_desc *d = desc;
    const softmax_column_config *c = config;
    TRY(softmax_admit_columns(what, d, device, c));
    const int64_t lines = column_split_lines(&c->split), columns = column_split_columns(&c->split);
    if (d->n > lines)
        FAIL(CKL_INVALID, "%s: columns of %" PRId64 " elements, room for %" PRId64, what, d->n, lines);
    if (c->split.exact && (d->n != lines || d->inner % columns))
        FAIL(CKL_INVALID, "%s: exact=1 wants columns of %" PRId64 " elements and lines of whole %" PRId64, what, lines,
             columns);
    return CKL_OK;
}
