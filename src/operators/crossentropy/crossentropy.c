/* crossentropy.c - cross-entropy and its gradient: validation, choice of kernel, launch. */
#include "cutekernellib/operators/crossentropy.h"

#include "operators/crossentropy/crossentropy_config.h"
#include "operators/operators.h"
#include "plan/check.h"

enum {
    VECTOR_BYTES = 16,
    CTAS_MAX = INT32_MAX,
    PIECES_MAX = 65535, // of a row, backward: CTAs along y
    ELEMENTS = 32,      // of a thread in a piece
    PIECE_THREADS = 512,
    CLUSTER_PORTABLE = 8,
};

/* Validation */

static bool is_empty(const ckl_crossentropy_desc *d)
{
    return d->rows == 0 && !(d->direction == CKL_DIRECTION_FORWARD && d->reduction == CKL_LOSS_MEAN);
}

static ckl_status check_pitch(const char *name, int64_t *ld, int64_t cols)
{
    if (*ld == 0)
        *ld = cols;
    if (*ld < cols)
        FAIL(CKL_INVALID, "crossentropy: %s=%" PRId64 " is smaller than cols=%" PRId64, name, *ld, cols);
    return CKL_OK;
}

static ckl_status check_types(ckl_crossentropy_desc *d)
{
    if (d->target == CKL_DTYPE_DEFAULT)
        d->target = CKL_I64;
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "crossentropy: dtype=%s is none of f32, f16, bf16", ckl_dtype_name(d->dtype));
    if (d->target != CKL_I64 && d->target != CKL_I32)
        FAIL(CKL_INVALID, "crossentropy: target=%s is neither i64 nor i32", ckl_dtype_name(d->target));
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
    TRY(check_types(d));
    if (d->rows < 0)
        FAIL(CKL_INVALID, "crossentropy: rows=%" PRId64 " is negative", d->rows);
    if (d->cols < 0 || (d->cols == 0 && d->rows > 0))
        FAIL(CKL_INVALID, "crossentropy: cols=%" PRId64 " is less than 1", d->cols);
    TRY(check_pitch("ldx", &d->ldx, d->cols));
    return check_pitch("lddx", &d->lddx, d->cols);
}

/* Bytes from the first to past the last logit; dx may be x where rows are equally far apart. */
static plan_tensor logits(const ckl_crossentropy_desc *d, const char *name, const void *pointer, int64_t ld)
{
    int64_t element = (int64_t)ckl_dtype_bytes(d->dtype), elements = d->rows ? (d->rows - 1) * ld + d->cols : 0;
    return (
        plan_tensor){ .name = name, .pointer = pointer, .bytes = elements * element, .align = element, .layout = ld };
}

static plan_tensor vector(const char *name, const void *pointer, int64_t count, ckl_dtype dtype)
{
    int64_t element = (int64_t)ckl_dtype_bytes(dtype);
    return (plan_tensor){ .name = name, .pointer = pointer, .bytes = count * element, .align = element };
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_crossentropy_desc *d = desc;
    const ckl_crossentropy_args *a = args;
    if (is_empty(d))
        return CKL_OK;
    bool forward = d->direction == CKL_DIRECTION_FORWARD, mean = d->reduction == CKL_LOSS_MEAN;
    plan_tensor pieces[] = { logits(d, "x", a->x, d->ldx),
                             vector("target", a->target, d->rows, d->target),
                             vector("lse", a->lse, d->rows, CKL_F32),
                             vector("count", a->count, mean, CKL_F32),
                             forward ? vector("loss", a->loss, mean ? 1 : d->rows, CKL_F32)
                                     : vector("dloss", a->dloss, mean ? 1 : d->rows, CKL_F32),
                             logits(d, "dx", a->dx, d->lddx) };
    for (int i = 2; i < COUNT_OF(pieces); i++)
        pieces[i].output = forward;
    pieces[5].output = !forward;
    return plan_check_tensors("crossentropy", pieces, COUNT_OF(pieces) - forward);
}

/* Choice */

static int vec_of(const ckl_crossentropy_desc *d)
{
    int64_t vec = VECTOR_BYTES / (int64_t)ckl_dtype_bytes(d->dtype);
    while (d->cols % vec || (d->rows > 1 && (d->ldx % vec || d->lddx % vec)))
        vec /= 2;
    return (int)vec;
}

/* Short rows in registers of a few threads; long ones in pieces of a CTA. */
static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    row_split split;
    (void)device;
    int vec = vec_of(d), registers = ELEMENTS * (int)ckl_dtype_bytes(d->dtype) / 4;
    if (!row_split_choose(d->cols, vec, d->dtype, registers, 1, &split))
        split = (row_split){ PIECE_THREADS, PIECE_THREADS, 1, vec, ELEMENTS / vec, false };
    c->dtype = d->dtype;
    c->target = d->target;
    c->direction = (choice)d->direction;
    c->reduction = (choice)d->reduction;
    c->threads = split.threads;
    c->row_threads = split.row_threads;
    c->vec = split.vec;
    c->steps = (int)min_i64(split.steps, max_i64(1, ELEMENTS / split.vec)); // the rest in further pieces
    return CKL_OK;
}

/* Few long rows: one CTA each would leave most of the device idle. */
static ckl_status choose_cluster(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    TRY(choose(desc, device, config));
    if (d->direction == CKL_DIRECTION_BACKWARD || c->row_threads < PIECE_THREADS)
        FAIL(CKL_UNSUPPORTED, "crossentropy cluster: the rows need no cluster");
    while (c->cluster < CLUSTER_PORTABLE && d->rows * c->cluster < 2 * device->sm_count)
        c->cluster *= 2;
    if (c->cluster == 1)
        FAIL(CKL_UNSUPPORTED, "crossentropy cluster: rows=%" PRId64 " fill the device by one CTA each", d->rows);
    return CKL_OK;
}

static ckl_status admit_any(const char *what, const ckl_crossentropy_desc *d, const ckl_device_info *device,
                            const crossentropy_config *c)
{
    row_split split = crossentropy_split(c, CROSSENTROPY_VECTORS), scalar = row_split_scalar(&split);
    TRY(row_split_admit(what, &split, min_i64(d->cols, row_split_cols(&split)), c->dtype, device));
    if (c->dtype != d->dtype || c->target != d->target || c->direction != (choice)d->direction ||
        c->reduction != (choice)d->reduction)
        FAIL(CKL_INVALID, "%s: dtype, target, direction and reduction are those of the problem", what);
    if (vec_of(d) % c->vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the rows or the distances between them", what, c->vec);
    if (d->direction == CKL_DIRECTION_BACKWARD && c->cluster != 1)
        FAIL(CKL_INVALID, "%s: cluster=%d, backward has none", what, c->cluster);
    if (c->ctas_per_sm < 0 || c->ctas_per_sm > 32)
        FAIL(CKL_INVALID, "%s: ctas_per_sm=%d is not in 0..32", what, c->ctas_per_sm);
    if (d->rows > CTAS_MAX / c->cluster || d->cols > INT32_MAX || d->cols / row_split_cols(&scalar) >= PIECES_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more CTAs than a launch may have", what);
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const crossentropy_config *c = config;
    if (c->cluster != 1)
        FAIL(CKL_INVALID, "crossentropy row: cluster=%d, a cluster has an implementation of its own", c->cluster);
    return admit_any("crossentropy row", desc, device, c);
}

static ckl_status admit_cluster(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_any("crossentropy cluster", desc, device, config);
}

/* Launch */

static bool is_aligned(const ckl_crossentropy_desc *d, const ckl_crossentropy_args *a, int vec)
{
    uintptr_t any = (uintptr_t)a->x | (d->direction == CKL_DIRECTION_BACKWARD ? (uintptr_t)a->dx : 0);
    return any % ((uintptr_t)vec * ckl_dtype_bytes(d->dtype)) == 0;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const crossentropy_config *c = plan->config;
    const ckl_crossentropy_desc *d = plan->desc;
    const ckl_crossentropy_args *a = args;
    if (is_empty(d))
        return CKL_OK;
    int part = is_aligned(d, a, c->vec) ? CROSSENTROPY_VECTORS : CROSSENTROPY_ELEMENTS;
    row_split split = crossentropy_split(c, part);
    ckl_crossentropy_desc size = *d;
    /* in the order in which the kernel names them */
    void *params[] = { &size.rows,         &size.cols,         (void *)&a->x,    &size.ldx,
                       (void *)&a->target, &size.ignore_index, (void *)&a->loss, (void *)&a->lse,
                       (void *)&a->count,  (void *)&a->dloss,  (void *)&a->dx,   &size.lddx };
    int64_t pieces = d->direction == CKL_DIRECTION_BACKWARD ? ceil_div(d->cols, row_split_cols(&split)) : 1;
    device_launch rows = { .grid = { row_split_ctas(&split, d->rows), pieces, 1 }, .params = params };
    device_launch mean = { .grid = { 1, 1, 1 }, .params = params };
    if (d->rows > 0)
        TRY(plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &rows, stream));
    if (d->direction == CKL_DIRECTION_BACKWARD || d->reduction == CKL_LOSS_NONE)
        return CKL_OK;
    return plan->device->ops->launch(plan->device, plan->kernels[CROSSENTROPY_MEAN].loaded, &mean, stream);
}

static const field fields[] = { CROSSENTROPY_CONFIG(FIELD_ROW) };

static const implementation cluster = {
    .name = "cluster",
    .summary = "a row a cluster of CTAs, for few long rows; read once",
    .config_bytes = sizeof(crossentropy_config),
    .config = FIELD_TABLE(fields),
    .choose = choose_cluster,
    .admit = admit_cluster,
    .describe = crossentropy_rows,
    .kernels = CROSSENTROPY_KERNELS,
    .target = IR_SM90A,
    .launch = launch,
};

static const implementation row = {
    .name = "row",
    .summary = "a row some lanes, a warp or a CTA, piece by piece; read once",
    .config_bytes = sizeof(crossentropy_config),
    .config = FIELD_TABLE(fields),
    .choose = choose,
    .admit = admit,
    .describe = crossentropy_rows,
    .kernels = CROSSENTROPY_KERNELS,
    .target = IR_SM80,
    .launch = launch,
};

static const implementation *const implementations[] = { &cluster, &row, NULL };

PLAN_CLEAR_PADDING(clear_padding, ckl_crossentropy_desc)

const operator_info crossentropy_operator = {
    .name = "crossentropy",
    .summary = "cross-entropy of logits and class numbers, and its gradient",
    .desc_bytes = sizeof(ckl_crossentropy_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_crossentropy_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_crossentropy_plan(ckl_device *device, const ckl_crossentropy_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &crossentropy_operator, desc, NULL, plan);
}

ckl_status ckl_crossentropy_run(const ckl_plan *plan, const ckl_crossentropy_args *args, ckl_stream stream)
{
    return plan_run(plan, &crossentropy_operator, args, stream);
}

ckl_status ckl_crossentropy(ckl_device *device, const ckl_crossentropy_desc *desc, const ckl_crossentropy_args *args,
                            ckl_stream stream)
{
    return plan_once(device, &crossentropy_operator, desc, args, stream);
}
