/* groupnorm_choice.c - which slices a problem gets: bench/notes/groupnorm.md. */
#include "operators/groupnorm/groupnorm_choice.h"

#include <math.h>

#include "base/status.h"
#include "skeletons/residency.h"

enum {
    PIXEL_BYTES = GROUPNORM_LINE_BYTES, // of nhwc that a bundle reads side by side
    PIXEL_BYTES_BACKWARD = 64,          // x and dy
    PIXEL_BYTES_WHOLE = 1024,           // of slices that are read again: one stretch of memory
    PIXEL_BYTES_MIN = 32,               // a sector
    BUNDLE_MAX = 64,
    BUNDLE_MAX_WHOLE = 288,  // threads that three CTAs have registers for
    FOLDED_MAX = 352,        // 75x333x24x432 f16 711 us by single elements, 531 folded; 32x483x32x147 bf16 178, 261
    PLANES_BYTES = 12 << 10, // of nchw that are worth a CTA
    CLUSTER_MAX = 8,
    SLICE_BYTES = 113 << 10, // two CTAs an SM: one loads while the other adds up and writes
    SPREAD_BYTES = 32 << 10, // smaller slices are not shared out further, even if SMs are idle
    THREADS_MAX = 512,
    THREADS_KEEPING_MAX = 256, // of a CTA that keeps vectors in registers, too
    THREADS_KEEPING_MIN = 128,
    THREADS_CLUSTER_MIN = 160, // 32x256x56x56 f32 59.3 us by 128, 55.5 by 192
    SPLIT_THREADS = 1024,      // of an SM, backward: 64 registers each; of 16 bits 80
    SPLIT_THREADS_HALF = 768,
    AGAIN_BYTES = 75 << 10, // of a slice that is read again: few CTAs, each of which begins, is counted and waits
    ENTRIES_OF_LANE = 12,   // held: as they are 0.84 of the time of early ones where a lane has six, 1.13 where 25
    RAGGED_BYTES = 4,       // wider vectors are taken whole
    RAGGED_VECTORS = 6      // of a channel that are worth its ends
};

static int64_t pixel_bytes(const ckl_groupnorm_desc *d)
{
    return max_i64(1, d->c / d->groups) * groupnorm_element_bytes(d);
}

/* Of nhwc, elements of the widest vectors that divide the channels. */
static int64_t widest_vector(const ckl_groupnorm_desc *d)
{
    return min_i64(GROUPNORM_VECTOR_BYTES / groupnorm_element_bytes(d), power_of_two_in(d->c));
}

/*
 * Of nhwc, the fewest neighbouring groups that divide all and fill so many bytes of a pixel, or the most there may be;
 * some more where their pixels are vectors of `vec` elements.
 */
static int bundle_for(const ckl_groupnorm_desc *d, int64_t wanted, int64_t vec)
{
    const int64_t channels = d->c / d->groups;
    int best = 1;
    for (int bundle = 2; d->layout == CKL_IMAGE_NHWC && bundle <= BUNDLE_MAX; bundle++) {
        const bool fills = best * pixel_bytes(d) >= wanted;
        const bool whole = bundle * channels % vec == 0 && bundle * channels <= BUNDLE_MAX_WHOLE * vec;
        if (fills && best * channels % vec == 0)
            break;
        if (d->groups % bundle == 0 && (whole || !fills))
            best = bundle;
    }
    return best;
}

/*
 * The same by whole vectors; where those are fewer, or narrower, bundles of which the last one of an image may have
 * fewer groups.
 */
static int cut_bundle_for(const ckl_groupnorm_desc *d, int64_t wanted)
{
    const int even = bundle_for(d, wanted, 1);
    const int64_t channels = d->c / d->groups, vec = widest_vector(d);
    int64_t bundle = ceil_div(wanted, pixel_bytes(d));
    while (bundle * channels % vec)
        bundle++;
    const bool fits = even * pixel_bytes(d) >= wanted && even <= 2 * bundle && even * channels % vec == 0;
    return d->layout == CKL_IMAGE_NCHW || fits || bundle > min_i64(BUNDLE_MAX, d->groups) ? even : (int)bundle;
}

/* Does a vector stay in a column (nchw), or in a bundle; and in its group, where a thread has several columns? */
static bool vector_fits(const ckl_groupnorm_desc *d, const groupnorm_config *c)
{
    if (d->layout == CKL_IMAGE_NCHW)
        return d->h * d->w % c->vec == 0;
    bool in_group = c->channels % c->vec == 0 || c->channels * c->bundle / c->vec <= BUNDLE_MAX_WHOLE;
    return d->c % c->vec == 0 && c->channels * c->bundle % c->vec == 0 && in_group;
}

/* Shared memory of a CTA of which an SM has groupnorm_held_ctas(). */
static int64_t held_bytes(const groupnorm_search *s, const groupnorm_config *c)
{
    enum { RESERVED_BYTES = 1 << 10 };
    return s->device->smem_per_sm_bytes / groupnorm_held_ctas(s, c) - RESERVED_BYTES;
}

/*
 * Slices of a cluster; registers hold a part of them where that makes room for a third CTA of an SM. Not of gradients
 * by CTAs that meet nobody: 32x256x56x56 f16 46.9 us, 48.1.
 */
static bool share_cluster(const groupnorm_search *s, int parts, int64_t budget, groupnorm_config *c)
{
    const groupnorm_search keeping = { s->d, s->device, s->slicing, THREADS_KEEPING_MAX, THREADS_CLUSTER_MIN,
                                       true, false };
    groupnorm_config other = *c;
    if (!groupnorm_share_slices(s, c->cluster, parts, budget, c))
        return false;
    const int64_t wanted = held_bytes(s, c);
    const bool meets = s->d->direction == CKL_DIRECTION_FORWARD || c->cluster > 1;
    if (meets && groupnorm_shared_bytes(s->d, s->slicing, c) > wanted && c->vec > 1 &&
        groupnorm_bundles(s->d, c) * c->cluster > (GROUPNORM_HELD_CTAS - 1) * s->device->sm_count &&
        groupnorm_share_slices(&keeping, c->cluster, parts, wanted, &other))
        *c = other;
    return true;
}

/* The fewest CTAs whose slices fit the budget; more where SMs would be idle. */
static bool choose_cluster(const groupnorm_search *s, int64_t budget, groupnorm_config *c)
{
    const int cluster_max = residency_cluster_max(s->device);
    bool found = false;
    groupnorm_config best = *c;
    for (c->cluster = 1; c->cluster <= cluster_max; c->cluster *= 2) {
        bool idle = found && groupnorm_bundles(s->d, c) * best.cluster < s->device->sm_count &&
                    groupnorm_slice_bytes(&best) > SPREAD_BYTES;
        const bool nchw = s->d->layout == CKL_IMAGE_NCHW && c->bundle == 1;
        const int parts = nchw ? (int)min_i64(c->cluster, power_of_two_in(c->channels)) : 1;
        if ((!found || idle) && share_cluster(s, parts, budget, c)) {
            best = *c;
            found = true;
        }
    }
    *c = best;
    return found;
}

/* The largest slices: forward in shared memory, three CTAs an SM; backward they stream (bench/notes/groupnorm.md). */
static bool choose_slice(groupnorm_search *s, groupnorm_config *c)
{
    enum { THREADS = 256 };
    const bool forward = s->d->direction == CKL_DIRECTION_FORWARD;
    const int64_t units = max_i64(1, groupnorm_units(s->d, c)), most = s->device->smem_per_cta_bytes;
    const int64_t wanted = min_i64(AGAIN_BYTES, s->device->smem_per_cta_bytes);
    const int64_t fewest = max_i64(1, c->bundle * pixel_bytes(s->d) * s->d->h * s->d->w / wanted);
    s->threads_max = (int)max_i64(THREADS, groupnorm_threads_min(s, c));
    for (int64_t slices = fewest; slices < 2 * units * c->channels; slices += max_i64(1, slices / 8)) {
        groupnorm_config tried = *c;
        if (!groupnorm_share_slices(s, slices, groupnorm_parts_of(s, slices, c), forward ? wanted : most, &tried))
            continue;
        *c = tried;
        if (forward || groupnorm_slice_bytes(c) <= wanted || slices >= units * c->parts)
            return true;
    }
    return false;
}

/*
 * As many CTAs an SM as have room, or as there are. Single elements leave registers for more: 64x1947x51x3 bf16 NHWC of
 * single channels 50.3 us by two CTAs of 448 threads, 43.1 by three, 45.6 by four, of 32 registers a thread.
 */
static int ctas_per_sm(const groupnorm_search *s, const groupnorm_config *c)
{
    enum { REGISTERS_SINGLE = 40 };
    const int64_t bytes = groupnorm_shared_bytes(s->d, s->slicing, c);
    int64_t room = residency_ctas_per_sm(s->device, c->threads, bytes);
    if (c->vec == 1 && s->slicing == GROUPNORM_CLUSTER && s->d->direction == CKL_DIRECTION_FORWARD)
        room = max_i64(room, min_i64(residency_ctas_per_sm(s->device, GROUPNORM_THREADS_MIN, bytes),
                                     s->device->registers_per_sm / (REGISTERS_SINGLE * c->threads)));
    if (s->slicing == GROUPNORM_SPLIT && s->d->direction == CKL_DIRECTION_BACKWARD)
        room = min_i64(room, (s->d->dtype == CKL_F32 ? SPLIT_THREADS : SPLIT_THREADS_HALF) / c->threads);
    if (s->slicing == GROUPNORM_HELD)
        room = min_i64(room, groupnorm_held_ctas(s, c));
    int64_t ctas = groupnorm_bundles(s->d, c) * groupnorm_slices(s->d, c, s->slicing);
    return (int)max_i64(1, min_i64(room, ceil_div(ctas, s->device->sm_count)));
}

/* The widest vector; of channels that begin anywhere, if they are worth their ends. */
static void fit_vector(const groupnorm_search *s, groupnorm_config *c)
{
    const ckl_groupnorm_desc *d = s->d;
    const int widest = GROUPNORM_VECTOR_BYTES / (int)groupnorm_element_bytes(d);
    const int64_t whole = max_i64(1, power_of_two_in(d->h * d->w));
    for (c->vec = widest;; c->vec /= 2) {
        c->ragged = whole * groupnorm_element_bytes(d) <= RAGGED_BYTES && d->h * d->w >= RAGGED_VECTORS * c->vec &&
                    groupnorm_may_be_ragged(d, c);
        if (c->ragged || vector_fits(d, c))
            return;
    }
}

static void set_bundle(const groupnorm_search *s, int bundle, groupnorm_config *c)
{
    c->bundle = bundle;
    c->cut_short = s->d->groups % bundle > 0;
    fit_vector(s, c);
}

/* Of nchw, small groups that make a CTA worth its start, and leave some CTAs for each SM; a few of tiny ones. */
static void join_planes(const groupnorm_search *s, groupnorm_config *c)
{
    enum { CTAS_OF_SM = 8, CTAS_OF_SM_TINY = 2, TINY_BYTES = 2 << 10 };
    const ckl_groupnorm_desc *d = s->d;
    const int inputs = 1 + (d->direction == CKL_DIRECTION_BACKWARD);
    const int64_t bytes = inputs * pixel_bytes(d) * d->h * d->w;
    const int64_t column_threads = min_i64(groupnorm_side_by_side(s, c), groupnorm_units(d, c));
    if (d->layout != CKL_IMAGE_NCHW || bytes == 0)
        return;
    while (2 * c->bundle <= min_i64(BUNDLE_MAX, d->groups) && 2 * c->bundle * bytes <= PLANES_BYTES &&
           2 * c->bundle * c->channels * column_threads <= THREADS_MAX &&
           d->n * d->groups / (2 * c->bundle) >=
               (2 * c->bundle * bytes <= TINY_BYTES ? CTAS_OF_SM_TINY : CTAS_OF_SM) * (int64_t)s->device->sm_count)
        c->bundle *= 2;
    c->cut_short = d->groups % c->bundle > 0;
}

/*
 * Of nhwc with channels that are no whole vectors, the fewest pixels that are: the bundle is all groups. False: there
 * are no such vectors, or the columns of all groups are too many for a CTA.
 */
static bool fold_pixels(const groupnorm_search *s, groupnorm_config *c)
{
    const ckl_groupnorm_desc *d = s->d;
    const int whole = (int)min_i64(power_of_two_in(d->c), GROUPNORM_VECTOR_BYTES);
    if (d->layout == CKL_IMAGE_NCHW || d->groups > FOLDED_MAX)
        return false;
    groupnorm_config folded = *c;
    folded.bundle = (int)d->groups;
    folded.cut_short = false;
    for (folded.vec = GROUPNORM_VECTOR_BYTES / (int)groupnorm_element_bytes(d); folded.vec > whole; folded.vec /= 2) {
        folded.fold = folded.vec / whole;
        const bool fits = d->groups == 1 || groupnorm_threads_min(s, &folded) <= THREADS_MAX;
        if (d->h * d->w % folded.fold || !fits)
            continue;
        *c = folded;
        return true;
    }
    return false;
}

static int64_t entries_of_lane(const groupnorm_search *s, const groupnorm_config *c)
{
    return ceil_div(groupnorm_slices(s->d, c, s->slicing), groupnorm_lanes_of_group(c));
}

/*
 * Where entries of slices are more than the lanes of a group have at once: how many become one early, so that about as
 * many are left.
 */
static int early_slices(const groupnorm_search *s, const groupnorm_config *c)
{
    enum { AT_ONCE = 4, ALONE = 8 };
    const int lanes = groupnorm_lanes_of_group(c);
    const int64_t slices = groupnorm_slices(s->d, c, s->slicing);
    if (c->parts > 1 || c->ragged || entries_of_lane(s, c) <= AT_ONCE)
        return 0;
    return (int)max_i64(lanes > 1 ? AT_ONCE * lanes : ALONE, round_up((int64_t)sqrt((double)slices), lanes));
}

/*
 * Bundles of nhwc are pixels, so that L2 looks up lines, not sectors: gradients of 8x64x415x415 f16 332 us by 32 bytes
 * of a pixel, 240 by 64, 223 by all 128.
 */
static bool choose_slices(groupnorm_search *s, groupnorm_config *c)
{
    const ckl_groupnorm_desc *d = s->d;
    if (!fold_pixels(s, c)) {
        const bool whole = d->c * groupnorm_element_bytes(d) <= PIXEL_BYTES_WHOLE && d->groups <= BUNDLE_MAX_WHOLE;
        const int bundle =
            whole && d->layout == CKL_IMAGE_NHWC ? (int)d->groups : bundle_for(d, PIXEL_BYTES, widest_vector(d));
        set_bundle(s, bundle, c);
    }
    const bool chosen = choose_slice(s, c);
    c->early = chosen ? early_slices(s, c) : 0;
    return chosen;
}

/*
 * Narrower bundles where the slices of wide ones leave an SM to one CTA, or SMs idle; a CTA alone where all slices do.
 * Folded pixels are all of an image: where that leaves SMs idle they are rather split.
 */
static bool choose_bundles(const groupnorm_search *s, groupnorm_config *c)
{
    const bool folded = fold_pixels(s, c);
    const int64_t most = s->device->smem_per_cta_bytes, budgets[] = { min_i64(SLICE_BYTES, most), most };
    const bool forward = s->d->direction == CKL_DIRECTION_FORWARD;
    const int64_t widest = folded ? PIXEL_BYTES_MIN : forward ? PIXEL_BYTES : PIXEL_BYTES_BACKWARD;
    for (int i = 0; i < COUNT_OF(budgets); i++)
        for (int64_t wanted = widest; wanted >= PIXEL_BYTES_MIN; wanted /= 2) {
            if (!folded) {
                set_bundle(s, cut_bundle_for(s->d, wanted), c);
                join_planes(s, c);
            }
            const int64_t ctas = choose_cluster(s, budgets[i], c) ? groupnorm_bundles(s->d, c) * c->cluster : 0;
            const bool last = wanted == PIXEL_BYTES_MIN && (!folded || groupnorm_slice_bytes(c) <= SPREAD_BYTES);
            if (ctas >= s->device->sm_count || (ctas && last))
                return true;
        }
    return false;
}

/*
 * Bundles of nhwc that read lines: all groups of pixels of less than two. Groups of no whole vectors are taken
 * together, too.
 */
static void take_lines(const groupnorm_search *s, groupnorm_config *c)
{
    const bool whole = s->d->layout == CKL_IMAGE_NHWC && s->d->c * groupnorm_element_bytes(s->d) < 2 * PIXEL_BYTES;
    set_bundle(s, whole ? (int)s->d->groups : cut_bundle_for(s->d, PIXEL_BYTES), c);
}

/*
 * As few slices of a bundle as there may be, but a CTA for each SM, and as many as run if they have some bytes: each of
 * them merges what all of its bundle have found. Forward, of nhwc, where registers hold a fourth of a slice and there
 * are more CTAs than run at once, as many as fill the last turn: 4x2384x8x384 f16 of single channels 41.4 us by 608
 * CTAs, 38.6 by 760. True: there are no others, or those of two bundles run at once.
 */
static bool fit_held(const groupnorm_search *s, groupnorm_config *c)
{
    enum { TRIES = 24, AT_ONCE = 2, IN_REGISTERS = 4 };
    enum { BYTES_WORTH = 40 << 10 }; // 1x512x128x56 bf16 of single channels 9.0 us by 184 CTAs, 11.2 by 360
    const bool forward = s->d->direction == CKL_DIRECTION_FORWARD, nhwc = s->d->layout == CKL_IMAGE_NHWC;
    const int64_t sms = s->device->sm_count, resident = groupnorm_held_ctas(s, c) * sms;
    const int64_t bundles = max_i64(1, groupnorm_bundles(s->d, c)), most = resident / AT_ONCE;
    const int64_t bytes = (forward ? 1 : 2) * c->bundle * pixel_bytes(s->d) * s->d->h * s->d->w;
    const int64_t worth = ceil_div(max_i64(sms, bytes * bundles / BYTES_WORTH), bundles);
    int64_t slices = max_i64(ceil_div(bytes, 3 * held_bytes(s, c) / 2), min_i64(resident / bundles, worth));
    bool found = false;
    for (int i = 0; i < TRIES && !found; i++, slices += max_i64(1, slices / 16))
        found = groupnorm_share_slices(s, slices, groupnorm_parts_of(s, slices, c), held_bytes(s, c), c);
    if (!found)
        return false;
    slices = groupnorm_slices(s->d, c, GROUPNORM_HELD);
    c->loading = bundles * slices > resident ? (int)sms * 3 / 4 : 0;
    const int64_t full = min_i64(ceil_div(bundles * slices, resident) * resident / bundles, most);
    groupnorm_config even = *c;
    if (forward && nhwc && c->loading && IN_REGISTERS * c->kept >= c->steps && full > slices &&
        groupnorm_share_slices(s, full, 1, held_bytes(s, c), &even))
        *c = even;
    return !c->loading || groupnorm_slices(s->d, c, GROUPNORM_HELD) <= most;
}

/*
 * Slices of which two bundles run at once: what neither shared memory nor registers of a CTA have room for is read
 * again, up to half of it. Gradients of 1x384x512x512 f16 239 us by 216 slices, of which nothing is, 211 by 192.
 */
static bool fit_again(const groupnorm_search *s, groupnorm_config *c)
{
    enum { BUNDLES = 2, TRIES = 4 };
    const int64_t threads = max_i64(THREADS_KEEPING_MIN, groupnorm_threads_min(s, c)), sms = s->device->sm_count;
    const groupnorm_search again = { s->d, s->device, s->slicing, (int)threads, (int)threads, true, true };
    const int64_t most = groupnorm_held_ctas(s, c) * sms / BUNDLES;
    const groupnorm_config bundle = *c;
    int64_t slices = most;
    for (int i = 0; i < TRIES; i++, slices -= slices / 16) {
        *c = bundle;
        const bool shared =
            groupnorm_share_slices(&again, slices, groupnorm_parts_of(s, slices, c), held_bytes(s, c), c);
        c->loading = groupnorm_bundles(s->d, c) > BUNDLES ? (int)sms * 3 / 4 : 0;
        if (shared && groupnorm_slices(s->d, c, GROUPNORM_HELD) <= most)
            return true;
    }
    return false;
}

/* Has a CTA entries to merge that are more than half of its slice? */
static bool merges_much(const groupnorm_search *s, const groupnorm_config *c)
{
    const int64_t slices = groupnorm_slices(s->d, c, s->slicing);
    return 2 * 4 * GROUPNORM_ENTRY * c->bundle * slices > groupnorm_slice_bytes(c);
}

/* Is there a config of CTAs, or of smaller clusters than that? */
static bool fits_cluster(const groupnorm_search *s, int cluster, const groupnorm_config *c)
{
    const groupnorm_search whole = { s->d, s->device, GROUPNORM_CLUSTER, THREADS_MAX, 0, false, false };
    groupnorm_config other = *c;
    return choose_bundles(&whole, &other) && other.cluster < cluster;
}

/*
 * Bundles of lines of pixels, or of folded pixels, and slices of them that are held. Where all run at once nothing
 * overlaps what few threads do, so there are more, unless entries would be merged early: 16x320x64x64 f16 34.8 us by
 * 128, 30.6 by 256.
 */
static bool hold_lines(const groupnorm_search *s, bool otherwise_split, groupnorm_config *c)
{
    const bool forward = s->d->direction == CKL_DIRECTION_FORWARD;
    const bool folds = forward || s->d->groups == 1 || otherwise_split; // sums of several groups take much room
    if (!folds || !fold_pixels(s, c))
        take_lines(s, c);
    const bool narrow = c->vec * groupnorm_element_bytes(s->d) < GROUPNORM_VECTOR_BYTES;
    if ((narrow && !otherwise_split) || groupnorm_threads_min(s, c) > THREADS_MAX)
        return false;
    const int64_t columns = c->layout == CKL_IMAGE_NHWC && otherwise_split ? groupnorm_columns(c) : 0;
    const int64_t wide_pixels = min_i64(THREADS_MAX, round_up(columns, 32)); // a thread has one column
    const int most = (int)max_i64(max_i64(THREADS_KEEPING_MAX, wide_pixels), groupnorm_threads_min(s, c));
    const groupnorm_search any = { s->d, s->device, s->slicing, most, THREADS_KEEPING_MIN, true, false },
                           many = { s->d, s->device, s->slicing, most, most, true, false };
    const groupnorm_config bundle = *c;
    if (!fit_held(&any, c)) {
        *c = bundle;
        return otherwise_split && fit_again(s, c);
    }
    groupnorm_config wide = bundle;
    if (forward && !c->loading && c->kept > 0 && fit_held(&many, &wide) && entries_of_lane(s, &wide) <= ENTRIES_OF_LANE)
        *c = wide;
    return true;
}

/*
 * Tensors of which all bundles are in shared memory at once, or some. They would be split otherwise, whatever their
 * size and vectors, or want clusters of 8; large ones of nhwc any clusters, of nchw forward those of 4. Bundles are of
 * whole lines or whole images. Where there are more CTAs than run at once they load in turn, three for four SMs.
 * bench/notes/groupnorm.md has the measurements.
 */
static bool choose_held(const groupnorm_search *s, groupnorm_config *c)
{
    enum { BYTES_MIN = 8 << 20, BYTES_MIN_LINES = 3 << 20, BYTES_LARGE = 24 << 20, CLUSTER_LARGE_PLANES = 4 };
    const ckl_groupnorm_desc *d = s->d;
    const bool nhwc = d->layout == CKL_IMAGE_NHWC, forward = d->direction == CKL_DIRECTION_FORWARD;
    const int64_t bytes = (forward ? 1 : 2) * d->n * d->c * d->h * d->w * groupnorm_element_bytes(d);
    const int cluster_large = nhwc ? 2 : forward ? CLUSTER_LARGE_PLANES : CLUSTER_MAX;
    const int cluster = bytes >= BYTES_LARGE ? cluster_large : CLUSTER_MAX;
    const bool small = bytes < (nhwc && forward ? BYTES_MIN_LINES : BYTES_MIN);
    const bool otherwise_split = !fits_cluster(s, 2 * CLUSTER_MAX, c);
    if (!s->device->has_tma || (!otherwise_split && (small || fits_cluster(s, cluster, c))))
        return false;
    if (!hold_lines(s, otherwise_split, c))
        return false;
    // what is beside a line is the next bundle's, which comes a strip later
    c->alone = nhwc && c->bundle < d->groups && c->vec * dtype_bytes(c->dtype) == GROUPNORM_VECTOR_BYTES;
    if (entries_of_lane(s, c) > ENTRIES_OF_LANE || merges_much(s, c))
        c->early = early_slices(s, c);
    return true;
}

/*
 * Do all CTAs run at once, forward, and read so little that what some of the next kernel save counts? 40x1x64x56 f32
 * 2.7 us, 2.1. Not of gradients, where the kernel that adds up dgamma and dbeta stands between.
 */
static bool pays_prefetch(const groupnorm_search *s, const groupnorm_config *c)
{
    enum { BYTES_MAX = 8 << 20 };
    const ckl_groupnorm_desc *d = s->d;
    const int64_t ctas = groupnorm_bundles(d, c) * groupnorm_slices(d, c, s->slicing);
    return s->device->has_tma && s->slicing != GROUPNORM_SPLIT && d->direction == CKL_DIRECTION_FORWARD &&
           d->n * d->c * d->h * d->w * groupnorm_element_bytes(d) <= BYTES_MAX &&
           ctas <= (int64_t)c->ctas_per_sm * s->device->sm_count;
}

ckl_status groupnorm_choose(const char *what, const ckl_groupnorm_desc *d, const ckl_device_info *device,
                            groupnorm_slicing slicing, groupnorm_config *c)
{
    const int64_t most = device->smem_per_cta_bytes;
    if (d->c / d->groups > INT32_MAX / BUNDLE_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more than %d channels of a group", what, INT32_MAX / BUNDLE_MAX);
    c->dtype = d->dtype;
    c->layout = (choice)d->layout;
    c->affine = d->affine;
    c->channels = (int)max_i64(1, d->c / d->groups);
    groupnorm_search s = { d, device, slicing, THREADS_MAX, 0, false, false };
    const bool chosen = slicing == GROUPNORM_CLUSTER ? choose_bundles(&s, c)
                        : slicing == GROUPNORM_SPLIT ? choose_slices(&s, c)
                                                     : choose_held(&s, c);
    if (!chosen && slicing == GROUPNORM_HELD)
        FAIL(CKL_UNSUPPORTED,
             "%s: chosen for large tensors whose bundles want clusters, of nchw %d CTAs, up to half of an H200", what,
             CLUSTER_MAX);
    if (!chosen)
        FAIL(CKL_UNSUPPORTED, "%s: %" PRId64 " bytes of shared memory of a CTA do not hold a %s", what, most,
             slicing != GROUPNORM_CLUSTER ? "slice of a bundle"
                                          : "bundle, shared by as many as there may be in a cluster");
    c->ctas_per_sm = ctas_per_sm(&s, c);
    c->prefetch = pays_prefetch(&s, c);
    return CKL_OK;
}
