/* crossentropy.c - cross-entropy and its gradient: validation, choice of kernel, launch. */
#include "cutekernellib/operators/crossentropy.h"

#include "operators/crossentropy/crossentropy_config.h"
#include "operators/operators.h"
#include "plan/check.h"

/* Validation */

/* Is there nothing to write? The mean of no rows is NaN. */
static bool is_empty(const ckl_crossentropy_desc *d)
{
    return d->rows == 0 && !(d->direction == CKL_DIRECTION_FORWARD && d->reduction == CKL_LOSS_MEAN);
}

static ckl_status check_kind(const ckl_crossentropy_desc *d)
{
    TRY(PLAN_CHECK_DTYPE("crossentropy", "dtype", d->dtype, CKL_F32, CKL_F16, CKL_BF16));
    TRY(PLAN_CHECK_DTYPE("crossentropy", "target", d->target, CKL_I64, CKL_I32));
    if (d->direction != CKL_DIRECTION_FORWARD && d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_INVALID, "crossentropy: direction=%d is neither CKL_DIRECTION_FORWARD nor CKL_DIRECTION_BACKWARD",
             (int)d->direction);
    if (d->reduction != CKL_LOSS_NONE && d->reduction != CKL_LOSS_MEAN)
        FAIL(CKL_INVALID, "crossentropy: reduction=%d is neither CKL_LOSS_NONE nor CKL_LOSS_MEAN", (int)d->reduction);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_crossentropy_desc *d = desc;
    d->target = d->target == CKL_DTYPE_DEFAULT ? CKL_I64 : d->target;
    TRY(check_kind(d));
    TRY(plan_check_size("crossentropy", "rows", d->rows));
    if (d->cols < 0 || (d->cols == 0 && d->rows > 0))
        FAIL(CKL_INVALID, "crossentropy: cols=%" PRId64 " is less than 1", d->cols);
    TRY(plan_check_pitch("crossentropy", "ldx", &d->ldx, "cols", d->cols));
    if (d->direction == CKL_DIRECTION_BACKWARD)
        return plan_check_pitch("crossentropy", "lddx", &d->lddx, "cols", d->cols);
    if (d->lddx)
        FAIL(CKL_INVALID, "crossentropy: lddx=%" PRId64 " is not part of a forward problem", d->lddx);
    return CKL_OK;
}

/* The first LOGITS of them are read or written in vectors. */
enum { LOGITS = 2, TENSORS = 7 };

static void tensors_of(const ckl_crossentropy_desc *d, const ckl_crossentropy_args *a, plan_tensor t[TENSORS])
{
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD, is_mean = d->reduction == CKL_LOSS_MEAN;
    const int64_t rows = d->rows, losses = is_empty(d) ? 0 : is_mean ? 1 : rows, counts = is_mean ? losses : 0;
    const char *not_forward = is_forward ? "a forward problem" : NULL;
    t[0] = plan_matrix("x", a->x, d->dtype, rows, d->cols, d->ldx);
    t[1] = plan_absent(plan_output(plan_matrix("dx", a->dx, d->dtype, rows, d->cols, d->lddx)), not_forward);
    t[2] = plan_matrix("target", a->target, d->target, 1, rows, 0);
    t[3] = plan_matrix("lse", a->lse, CKL_F32, 1, rows, 0);
    t[4] = plan_absent(plan_matrix("count", a->count, CKL_F32, 1, counts, 0), is_mean ? NULL : "losses without mean");
    t[5] = plan_absent(plan_matrix("dloss", a->dloss, CKL_F32, 1, losses, 0), not_forward);
    t[6] = plan_absent(plan_output(plan_matrix("loss", a->loss, CKL_F32, 1, losses, 0)),
                       is_forward ? NULL : "a backward problem");
    t[3].output = t[4].output = is_forward;
}

static ckl_status check_args(const void *desc, const void *args)
{
    plan_tensor tensors[TENSORS];
    tensors_of(desc, args, tensors);
    return plan_check_tensors("crossentropy", tensors, TENSORS);
}

/* Choice */

enum {
    CTAS_MAX = INT32_MAX,
    TILES_MAX = 65535, // of a row, backward: CTAs along y
    ELEMENTS = 32,     // of a thread in a tile
    TILE_THREADS = 512,
    CLUSTER_PORTABLE = 8,
};

static int vec_of(const ckl_crossentropy_desc *d)
{
    return row_vec(d->dtype, d->rows, d->cols, d->ldx, d->lddx);
}

/* Of few long rows, one CTA each would leave most of the device idle. Backward, CTAs share rows anyway. */
static int cluster_for(const ckl_crossentropy_desc *d, const row_split *s, const ckl_device_info *device)
{
    int cluster = 1;
    if (d->direction == CKL_DIRECTION_BACKWARD || s->row_threads < TILE_THREADS || !device->has_tma)
        return cluster;
    while (cluster < CLUSTER_PORTABLE && d->rows * cluster < 2 * device->sm_count)
        cluster *= 2;
    return cluster;
}

/* Short rows in registers of a few threads; long ones by tiles of a CTA. */
static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    const int vec = vec_of(d), registers = ELEMENTS * (int)ckl_dtype_bytes(d->dtype) / 4;
    if (!row_split_choose(d->cols, vec, d->dtype, registers, 1, &c->split))
        c->split = (row_split){ TILE_THREADS, TILE_THREADS, 1, vec, ELEMENTS / vec, false };
    c->split.steps = (int)min_i64(c->split.steps, max_i64(1, ELEMENTS / c->split.vec)); // the rest in further tiles
    c->split.cluster = cluster_for(d, &c->split, device);
    c->split.exact = false;
    c->dtype = d->dtype;
    c->target = d->target;
    c->direction = (choice)d->direction;
    c->reduction = (choice)d->reduction;
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "crossentropy row";
    const ckl_crossentropy_desc *d = desc;
    const crossentropy_config *c = config;
    const row_split *split = &c->split, scalar = row_split_scalar(split);
    if (d->direction == CKL_DIRECTION_BACKWARD && split->cluster != 1)
        FAIL(CKL_INVALID, "%s: cluster=%d, backward has none", what, split->cluster);
    TRY(row_split_admit(what, split, min_i64(d->cols, row_split_cols(split)), c->dtype, device));
    if (c->dtype != d->dtype || c->target != d->target || c->direction != (choice)d->direction ||
        c->reduction != (choice)d->reduction)
        FAIL(CKL_INVALID, "%s: dtype, target, direction and reduction are those of the problem", what);
    if (vec_of(d) % split->vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the rows or the distances between them", what, split->vec);
    if (split->exact)
        FAIL(CKL_INVALID, "%s: exact=1, but rows are taken tile by tile", what);
    if (c->ctas_per_sm < 0 || c->ctas_per_sm > 32)
        FAIL(CKL_INVALID, "%s: ctas_per_sm=%d is not in 0..32", what, c->ctas_per_sm);
    if (d->rows > CTAS_MAX / split->cluster || d->cols > INT32_MAX || d->cols / row_split_cols(&scalar) >= TILES_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more CTAs than a launch may have", what);
    return CKL_OK;
}

/* Launch */

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const crossentropy_config *c = plan->config;
    const ckl_crossentropy_desc *d = plan->desc;
    const ckl_crossentropy_args *a = args;
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    if (is_empty(d))
        return CKL_OK;
    plan_tensor tensors[TENSORS];
    tensors_of(d, a, tensors);
    const bool aligned = plan_tensors_aligned(tensors, LOGITS, c->split.vec);
    const crossentropy_params params = {
        .rows = d->rows,
        .cols = d->cols,
        .x = a->x,
        .ldx = d->ldx,
        .target = a->target,
        .loss = a->loss,
        .lse = a->lse,
        .count = a->count,
        .dloss = a->dloss,
        .dx = a->dx,
        .lddx = d->lddx,
        .ignore_index = d->ignore_index,
    };
    const plan_grid grid = { .x = row_split_ctas(&c->split, d->rows),
                             .y = is_forward ? 1 : ceil_div(d->cols, row_split_cols(&c->split)) };
    if (d->rows > 0)
        TRY(plan_launch(plan, aligned ? CROSSENTROPY_VECTORS : CROSSENTROPY_ELEMENTS, grid, &params, stream));
    if (!is_forward || d->reduction == CKL_LOSS_NONE)
        return CKL_OK;
    return plan_launch(plan, CROSSENTROPY_MEAN, (plan_grid){ .x = 1 }, &params, stream);
}

static const field config_fields[] = { CROSSENTROPY_CONFIG(FIELD_ROW, crossentropy_config) //
                                       ROW_SPLIT(FIELD_NESTED, (crossentropy_config, split)) };

static const implementation row = {
    .name = "row",
    .summary = "a row by some lanes, a warp, a CTA or a cluster, tile by tile; read once",
    .config_bytes = sizeof(crossentropy_config),
    .config = FIELD_TABLE(config_fields),
    .choose = choose,
    .admit = admit,
    .describe = crossentropy_describe,
    .kernels = CROSSENTROPY_KERNELS,
    .params = &crossentropy_param_list,
    .launch = launch,
};

static const implementation *const implementations[] = { &row, NULL };

OPERATOR(crossentropy, crossentropy, "cross-entropy of logits and class numbers, and its gradient");
