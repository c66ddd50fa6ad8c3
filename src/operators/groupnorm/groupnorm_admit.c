/* groupnorm_admit.c - which configs a problem may have. */
#include "base/math.h"
#include "base/status.h"
#include "operators/groupnorm/groupnorm_config.h"

enum { SLICES_MAX = 1 << 20, CHANNELS_OF_LANE_MAX = 32 };

bool groupnorm_may_be_ragged(const ckl_groupnorm_desc *d, const groupnorm_config *c)
{
    return d->layout == CKL_IMAGE_NCHW && c->vec * dtype_bytes(c->dtype) == GROUPNORM_VECTOR_BYTES &&
           d->h * d->w <= INT32_MAX / 4;
}

static ckl_status admit_threads(const char *what, const ckl_device_info *device, groupnorm_slicing slicing,
                                const groupnorm_config *c)
{
    TRY(plan_check_threads(what, c->threads, device));
    if (!is_power_of_two(c->vec) || c->vec * dtype_bytes(c->dtype) > GROUPNORM_VECTOR_BYTES)
        FAIL(CKL_INVALID, "%s: vec=%d is no power of two of at most %d bytes", what, c->vec, GROUPNORM_VECTOR_BYTES);
    if (!is_power_of_two(c->cluster) || c->cluster > 16 || (slicing != GROUPNORM_CLUSTER && c->cluster > 1))
        FAIL(CKL_INVALID, "%s: cluster=%d is no power of two up to %d", what, c->cluster,
             slicing != GROUPNORM_CLUSTER ? 1 : 16);
    if (c->steps < 1 || c->ctas_per_sm < 0)
        FAIL(CKL_INVALID, "%s: steps=%d is less than 1, or ctas_per_sm=%d less than 0", what, c->steps, c->ctas_per_sm);
    if (c->loading < 0 || (c->loading && slicing != GROUPNORM_HELD))
        FAIL(CKL_INVALID, "%s: loading=%d is for slices that are held", what, c->loading);
    if (c->alone && (slicing != GROUPNORM_HELD || c->vec * dtype_bytes(c->dtype) < GROUPNORM_VECTOR_BYTES))
        FAIL(CKL_INVALID, "%s: alone=1 is for held slices of vectors of %d bytes", what, GROUPNORM_VECTOR_BYTES);
    if (c->early && (slicing == GROUPNORM_CLUSTER || c->parts > 1 || c->ragged))
        FAIL(CKL_INVALID, "%s: early=%d is for slices of whole vectors of all channels that meet in memory", what,
             c->early);
    return CKL_OK;
}

static ckl_status admit_layout(const char *what, const ckl_groupnorm_desc *d, groupnorm_slicing slicing,
                               const groupnorm_config *c)
{
    const bool nchw = d->layout == CKL_IMAGE_NCHW;
    const int bundle_max = c->threads / 32 * GROUPNORM_GROUPS_OF_WARP_MAX;
    if (c->bundle < 1 || c->bundle > bundle_max)
        FAIL(CKL_INVALID, "%s: bundle=%d is not in 1..%d, the groups of its warps", what, c->bundle, bundle_max);
    if (c->cut_short && slicing == GROUPNORM_SPLIT)
        FAIL(CKL_INVALID, "%s: cut_short=1 is for slices that are kept", what);
    if ((d->groups % c->bundle > 0) != c->cut_short || c->bundle > d->groups)
        FAIL(CKL_INVALID, "%s: bundle=%d does not divide groups=%" PRId64 ", or does with cut_short=1", what, c->bundle,
             d->groups);
    if (c->fold != 1 &&
        (nchw || c->fold < 1 || c->fold > GROUPNORM_VECTOR_BYTES || c->bundle != d->groups || d->h * d->w % c->fold))
        FAIL(CKL_INVALID, "%s: fold=%d is for whole pixels of nhwc, and divides their number", what, c->fold);
    if (c->parts < 1 || c->channels % c->parts || (c->parts > 1 && (!nchw || c->bundle > 1)) ||
        (slicing == GROUPNORM_CLUSTER && c->cluster % c->parts))
        FAIL(CKL_INVALID, "%s: parts=%d do not divide the channels of a group of nchw, or the cluster", what, c->parts);
    if (c->ragged && !groupnorm_may_be_ragged(d, c))
        FAIL(CKL_INVALID, "%s: ragged=1 is for vectors of 16 bytes of nchw", what);
    if (nchw ? !c->ragged && d->h * d->w % c->vec
             : d->c * c->fold % c->vec || c->channels * c->bundle * c->fold % c->vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide %s", what, c->vec,
             nchw ? "h*w" : "the channels of an image and a bundle");
    if (nchw && (c->column_threads < 1 || c->threads % c->column_threads))
        FAIL(CKL_INVALID, "%s: column_threads=%d does not divide threads=%d", what, c->column_threads, c->threads);
    if (nchw && c->bundle > 1 && c->threads != c->column_threads * groupnorm_grid_of(c).columns)
        FAIL(CKL_INVALID, "%s: threads=%d are not those of the channels of bundle=%d", what, c->threads, c->bundle);
    groupnorm_grid g = groupnorm_grid_of(c);
    if (c->column_threads != g.column_threads || c->column_threads < 1)
        FAIL(CKL_INVALID, "%s: column_threads=%d is not %d, the threads of a vector of channels", what,
             c->column_threads, g.column_threads);
    if (!nchw && c->bundle > 1 && g.columns > c->threads)
        FAIL(CKL_UNSUPPORTED, "%s: vectors of a pixel of bundle=%d are more than threads=%d", what, c->bundle,
             c->threads);
    if (d->direction == CKL_DIRECTION_FORWARD && groupnorm_mixes(c) &&
        c->channels > CHANNELS_OF_LANE_MAX * groupnorm_lanes_of_group(c))
        FAIL(CKL_UNSUPPORTED, "%s: channels=%d of a group are more than its lanes merge", what, c->channels);
    if (c->again < 0 || (c->again && (slicing != GROUPNORM_HELD || groupnorm_staged_steps(c) < GROUPNORM_STAGED_MIN)))
        FAIL(CKL_INVALID, "%s: again=%d is for held slices, all but %d vectors of a thread", what, c->again,
             GROUPNORM_STAGED_MIN);
    const bool keeps = slicing != GROUPNORM_SPLIT && g.slots == 1 &&
                       groupnorm_staged_steps(c) >= GROUPNORM_STAGED_MIN &&
                       c->vec * dtype_bytes(c->dtype) == GROUPNORM_VECTOR_BYTES;
    if (c->kept < 0 || c->kept > GROUPNORM_KEPT_MAX || (c->kept && !keeps))
        FAIL(CKL_INVALID, "%s: kept=%d is for slices read once by vectors of 16 bytes, all but %d of a thread", what,
             c->kept, GROUPNORM_STAGED_MIN);
    if (c->early < 0 || c->early % groupnorm_lanes_of_group(c))
        FAIL(CKL_INVALID, "%s: early=%d is no multiple of %d, the lanes of a group", what, c->early,
             groupnorm_lanes_of_group(c));
    return CKL_OK;
}

ckl_status groupnorm_admit(const char *what, const ckl_groupnorm_desc *d, const ckl_device_info *device,
                           groupnorm_slicing slicing, const groupnorm_config *c)
{
    if (c->cluster > 1 && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: cluster=%d on a device without clusters", what, c->cluster);
    if (c->dtype != d->dtype || c->layout != (choice)d->layout || c->affine != d->affine ||
        c->channels != max_i64(1, d->c / d->groups))
        FAIL(CKL_INVALID, "%s: dtype, layout, affine and channels must be those of the problem", what);
    if (c->prefetch && (slicing == GROUPNORM_SPLIT || d->direction == CKL_DIRECTION_BACKWARD))
        FAIL(CKL_INVALID, "%s: prefetch=1 is for slices that are read once, forward", what);
    TRY(admit_threads(what, device, slicing, c));
    TRY(admit_layout(what, d, slicing, c));
    const int64_t slices = groupnorm_slices(d, c, slicing), units = groupnorm_units(d, c);
    if (groupnorm_ranges(d, c, slicing) * groupnorm_slice_units(c) < units)
        FAIL(CKL_INVALID, "%s: steps=%d of cluster=%d hold %" PRId64 " of %" PRId64 " units of a channel", what,
             c->steps, c->cluster, groupnorm_ranges(d, c, slicing) * groupnorm_slice_units(c), units);
    if (slicing == GROUPNORM_HELD && slices > ONE_PASS_CHUNKS_MAX)
        FAIL(CKL_INVALID, "%s: %" PRId64 " slices of a bundle are more than %d", what, slices, ONE_PASS_CHUNKS_MAX);
    if (groupnorm_shared_bytes(d, slicing, c) > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s: steps=%d take %" PRId64 " bytes of shared memory of %" PRId64, what, c->steps,
             groupnorm_shared_bytes(d, slicing, c), device->smem_per_cta_bytes);
    if (units > INT32_MAX / 2 || slices > SLICES_MAX || groupnorm_bundles(d, c) * slices > INT32_MAX / 2)
        FAIL(CKL_UNSUPPORTED, "%s: more than %d pixels of an image, or CTAs", what, INT32_MAX / 2);
    if (d->direction == CKL_DIRECTION_FORWARD && groupnorm_adds_too_many(c, slices))
        FAIL(CKL_UNSUPPORTED, "%s: each of threads=%d adds up more values of a group than leave its statistics exact",
             what, c->threads);
    return CKL_OK;
}
