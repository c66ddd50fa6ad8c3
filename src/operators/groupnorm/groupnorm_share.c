/* groupnorm_share.c - which threads of a CTA hold what of a slice: bench/notes/groupnorm.md. */
#include <math.h>

#include "operators/groupnorm/groupnorm_choice.h"
#include "skeletons/residency.h"

enum {
    PLANES_OF_WARP = 8,
    HELD_CTAS_LIGHT = 4,    // of gradients in 16 bits: 5x2432x104x104 f16 261 us, 281 by three
    VECTORS_OF_THREAD = 12, // about 50 KiB for 256 threads: bench/notes/groupnorm.md
    VECTORS_OF_FEW = 4,     // where CTAs leave SMs idle, a thread is what takes long
    LINE_BYTES = GROUPNORM_LINE_BYTES,
    COLUMN_BYTES = 64 // of nchw that neighbouring threads read side by side
};

int groupnorm_threads_min(const groupnorm_search *s, const groupnorm_config *c)
{
    const int64_t columns = c->bundle > 1 ? groupnorm_columns(c) : 1;
    const int groups = s->d->layout == CKL_IMAGE_NCHW ? PLANES_OF_WARP : GROUPNORM_GROUPS_OF_WARP_MAX;
    return (int)max_i64(GROUPNORM_THREADS_MIN, 32 * max_i64(ceil_div(c->bundle, groups), ceil_div(columns, 32)));
}

int groupnorm_side_by_side(const groupnorm_search *s, const groupnorm_config *c)
{
    enum { SHORT_PLANE = 128 };
    const int bytes = c->vec * (int)groupnorm_element_bytes(s->d);
    const bool is_short = s->d->h * s->d->w * groupnorm_element_bytes(s->d) <= SHORT_PLANE;
    if (is_short && bytes < GROUPNORM_COPIED_BYTES)
        return 1;
    return (s->slicing == GROUPNORM_HELD ? LINE_BYTES : COLUMN_BYTES) / bytes;
}

int groupnorm_held_ctas(const groupnorm_search *s, const groupnorm_config *c)
{
    const bool light = s->d->direction == CKL_DIRECTION_BACKWARD && groupnorm_element_bytes(s->d) == 2 &&
                       !groupnorm_mixes(c) && s->d->layout == CKL_IMAGE_NHWC;
    return light ? HELD_CTAS_LIGHT : GROUPNORM_HELD_CTAS;
}

/* What a split over threads costs: the vectors for which there is room; more if it is far from the threads wanted. */
static double cost_of(const groupnorm_config *c, int64_t units, int64_t wanted)
{
    static const double of_column = 0.02, too_few = 1.1, too_many = 1.6; // from there on evenness counts less
    groupnorm_grid g = groupnorm_grid_of(c);
    double room = (double)(g.slots * ceil_div(units, g.column_threads)) * c->threads * (1 + of_column * g.slots);
    double ratio = (double)c->threads / (double)wanted;
    return room * fmax(1, fmax(ratio / too_many, 1 / ratio / too_few));
}

/*
 * The smallest divisor of n beyond d, which is one; n + 1 after the last. Those beyond the root are n over those before
 * it.
 */
static int next_divisor(int n, int d)
{
    if (d == n)
        return n + 1;
    int small = d + 1;
    for (; (int64_t)small * small <= n; small++)
        if (n % small == 0)
            return small;
    int factor = (n - 1) / d < small ? (n - 1) / d : small - 1;
    while (n % factor)
        factor--;
    return n / factor;
}

/* Have so many threads no registers beside them for a CTA more, for which there is shared memory, and slices? */
static bool keeps_others_out(const groupnorm_search *s, const groupnorm_config *c)
{
    const int64_t bytes = groupnorm_shared_bytes(s->d, s->slicing, c);
    const int fits = residency_ctas_per_sm(s->device, c->threads, bytes),
              room = residency_ctas_per_sm(s->device, 32, bytes);
    return fits < room &&
           groupnorm_bundles(s->d, c) * groupnorm_slices(s->d, c, s->slicing) > (int64_t)fits * s->device->sm_count;
}

/*
 * The fewest vectors of a thread of a held slice that stay in registers, so that the others fit the budget: as many as
 * there are registers for, beside 64 for sums and addresses where slices are held, 48 in clusters, more where those are
 * of each element. Registers are those of four warps at a time: of each CTA where slices are held, where 192 threads
 * lost.
 */
static void keep_vectors(const groupnorm_search *s, int64_t budget, groupnorm_config *c)
{
    enum { REGISTERS_MIXED = 8, REGISTERS_OF_FOUR = 24, MULTIPLE = 8, FOUR_WARPS = 128, WORDS = 4 };
    const bool held = s->slicing == GROUPNORM_HELD;
    const int inputs = 1 + (s->d->direction == CKL_DIRECTION_BACKWARD);
    const int64_t ctas = groupnorm_held_ctas(s, c);
    const int64_t threads = held ? ctas * round_up(c->threads, FOUR_WARPS) : round_up(ctas * c->threads, FOUR_WARPS);
    const int64_t registers = s->device->registers_per_sm / threads / MULTIPLE * MULTIPLE;
    const int used = (held ? 64 : 48) + (groupnorm_mixes(c) ? inputs * REGISTERS_MIXED : 0) +
                     (groupnorm_held_ctas(s, c) > GROUPNORM_HELD_CTAS ? REGISTERS_OF_FOUR : 0);
    const int64_t most = min_i64((registers - used) / (WORDS * inputs), c->steps - GROUPNORM_STAGED_MIN);
    c->kept = c->again = 0;
    if (s->keeps && groupnorm_grid_of(c).slots == 1 && c->vec * groupnorm_element_bytes(s->d) == GROUPNORM_VECTOR_BYTES)
        while (c->kept < min_i64(most, GROUPNORM_KEPT_MAX) && groupnorm_shared_bytes(s->d, s->slicing, c) > budget)
            c->kept++;
    const int room = s->again ? (int)min_i64(c->steps / 2, c->steps - c->kept - GROUPNORM_STAGED_MIN) : 0;
    while (c->again < room && groupnorm_shared_bytes(s->d, s->slicing, c) > budget)
        c->again++;
}

/*
 * Are all groups, a CTA each, on the chip at once? Then what a thread does is what takes long, as where SMs are idle:
 * 16x73x128x24 f32 of single channels 13.0 us by twelve vectors of a thread, 10.5 by four. But not where that leaves a
 * last turn of CTAs nearly idle: 16x1280x16x16 bf16 8.4 us by four, 7.7 by eight.
 */
static bool runs_at_once(const groupnorm_search *s, int64_t vectors, const groupnorm_config *c)
{
    const ckl_groupnorm_desc *d = s->d;
    const int64_t bytes =
        (1 + (d->direction == CKL_DIRECTION_BACKWARD)) * d->n * d->c * d->h * d->w * groupnorm_element_bytes(d);
    const int threads = (int)max_i64(GROUPNORM_THREADS_MIN, min_i64(s->threads_max, vectors / VECTORS_OF_FEW));
    const int64_t ctas = groupnorm_bundles(d, c), sms = s->device->sm_count;
    const int64_t turn = sms * residency_ctas_per_sm(s->device, threads, 0);
    return c->bundle == 1 && c->cluster == 1 && c->vec * groupnorm_element_bytes(d) == GROUPNORM_VECTOR_BYTES &&
           bytes <= sms * s->device->smem_per_sm_bytes / 2 && (ctas <= turn || 3 * ctas >= 4 * turn);
}

/* Shares slices of `units` out over threads: evenly, and about as many vectors for each as loads are worth. */
static bool share_out(const groupnorm_search *s, int64_t units, int64_t budget, groupnorm_config *c)
{
    const bool nchw = s->d->layout == CKL_IMAGE_NCHW;
    const int threads_max = s->threads_max;
    const double KEPT_OUT = 1.15;
    const int64_t vectors = units * groupnorm_grid_of(c).columns;
    const bool forward = s->d->direction == CKL_DIRECTION_FORWARD;
    const double LESS = forward ? 0.9999 : 1; // of more threads, whose cost is the same but for rounding
    const int64_t slices = c->parts * ceil_div(groupnorm_units(s->d, c), max_i64(units, 1));
    const bool few = s->slicing == GROUPNORM_CLUSTER &&
                     (groupnorm_bundles(s->d, c) * c->cluster < s->device->sm_count || runs_at_once(s, vectors, c));
    const int64_t wanted = max_i64(1, min_i64(threads_max, vectors / (few ? VECTORS_OF_FEW : VECTORS_OF_THREAD)));
    groupnorm_config best = *c;
    double least = INFINITY;
    const int threads_min = (int)max_i64(s->threads_min, groupnorm_threads_min(s, c));
    for (c->threads = threads_min; c->threads <= threads_max; c->threads += 32)
        for (int column_threads = 1; column_threads <= (nchw ? c->threads : 1);
             column_threads = next_divisor(c->threads, column_threads)) {
            if (nchw && column_threads < groupnorm_side_by_side(s, c) && column_threads < units)
                continue;
            if (nchw && c->bundle > 1 && c->threads != column_threads * groupnorm_grid_of(c).columns)
                continue;
            c->column_threads = nchw ? column_threads : groupnorm_grid_of(c).column_threads;
            if (c->column_threads == 0 || (s->slicing == GROUPNORM_HELD && groupnorm_grid_of(c).slots > 1))
                continue; // what belongs to the next column would be loaded while all that are held wait
            c->steps = (int)max_i64(1, ceil_div(units, c->column_threads));
            keep_vectors(s, budget, c);
            const bool exact = !forward || !groupnorm_adds_too_many(c, slices);
            double cost = cost_of(c, units, wanted);
            if (cost >= LESS * least || !exact || groupnorm_shared_bytes(s->d, s->slicing, c) > budget)
                continue;
            if (keeps_others_out(s, c))
                cost *= KEPT_OUT;
            if (cost < LESS * least) {
                least = cost;
                best = *c;
            }
        }
    *c = best;
    return least < INFINITY;
}

int groupnorm_parts_of(const groupnorm_search *s, int64_t slices, const groupnorm_config *c)
{
    const int channels = c->channels;
    int most = 1;
    for (int parts = 1; s->d->layout == CKL_IMAGE_NCHW && c->bundle == 1 && parts <= channels;
         parts = next_divisor(channels, parts))
        if (parts * ceil_div(slices, parts) <= slices + max_i64(1, slices / 8))
            most = parts;
    return most;
}

bool groupnorm_share_slices(const groupnorm_search *s, int64_t slices, int parts, int64_t budget, groupnorm_config *c)
{
    const int64_t wanted = (s->slicing == GROUPNORM_HELD ? 2 : 1) * LINE_BYTES, units = groupnorm_units(s->d, c);
    c->parts = 1;
    const bool found = share_out(s, ceil_div(units, slices), budget, c);
    groupnorm_config other = *c;
    other.parts = parts;
    if ((found && c->column_threads * c->vec * groupnorm_element_bytes(s->d) >= wanted) || parts == 1 ||
        !share_out(s, ceil_div(units, ceil_div(slices, parts)), budget, &other))
        return found;
    *c = other;
    return true;
}
