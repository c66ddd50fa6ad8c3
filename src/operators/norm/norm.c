/* norm.c - layer norm and RMS norm: validation, choice of kernels, launch. */
#include "cutekernellib/operators/norm.h"

#include "operators/norm/norm_config.h"
#include "operators/operators.h"
#include "plan/pieces.h"

enum {
    FORWARD_REGISTERS = 32, // of a row in a thread: few threads with many loads beat many with few, bench/notes/norm.md
    LONG_COLS = 8192,       // longer half rows take as many registers as f32 ones
    BACKWARD_BYTES = 32,    // of a thread and tensor of rows: each element needs two sums in f32 beside
    BACKWARD_ELEMENTS_MAX = 16,
    BACKWARD_THREADS_MAX = 512,
    BACKWARD_EARLY_MAX = 8, // elements for which there are registers to load the next row early
    /* longer rows flow through shared memory */
    FORWARD_ROW_BYTES_MAX = 32 << 10,
    FORWARD_STAGES = 4,
    BACKWARD_ROW_COLS_MAX = 1024,
    FLOW_THREADS = 256,
    FLOW_ELEMENTS = 16, // of a thread and row
    FLOW_SHORT_COLS = 16384,
    FLOW_CLUSTER_MAX = 16,
    FLOW_RING_BYTES = 200 << 10 // of an SM
};
enum {
    VECTOR_BYTES = 16,
    CTAS_MAX = INT32_MAX,
    COLS_MAX = INT32_MAX,
    CLUSTER_MAX = 8,
    TILED_THREADS = 512,
    TILED_ELEMENTS = 16
};

/* Validation */

static ckl_status check_desc(const char *op, ckl_norm_desc *d)
{
    if (d->direction != CKL_FORWARD && d->direction != CKL_BACKWARD)
        FAIL(CKL_INVALID, "%s: direction=%d is neither forward nor backward", op, (int)d->direction);
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "%s: dtype=%s is none of f32, f16, bf16", op, ckl_dtype_name(d->dtype));
    if (d->rows < 0)
        FAIL(CKL_INVALID, "%s: rows=%" PRId64 " is negative", op, d->rows);
    if (d->cols < 0)
        FAIL(CKL_INVALID, "%s: cols=%" PRId64 " is negative", op, d->cols);
    if (!(d->eps >= 0))
        FAIL(CKL_INVALID, "%s: eps=%g is negative or no number", op, (double)d->eps);
    if (d->eps == 0)
        d->eps = 1e-5f;
    const struct {
        const char *name;
        int64_t *ld;
    } pitches[] = { { "ld_in", &d->ld_in }, { "ld_out", &d->ld_out } };
    for (int i = 0; i < COUNT_OF(pitches); i++) {
        if (*pitches[i].ld == 0)
            *pitches[i].ld = d->cols;
        if (*pitches[i].ld < d->cols)
            FAIL(CKL_INVALID, "%s: %s=%" PRId64 " is smaller than cols=%" PRId64, op, pitches[i].name, *pitches[i].ld,
                 d->cols);
    }
    return CKL_OK;
}

enum { PIECES_MAX = 9 };

static int list_pieces(const ckl_norm_desc *d, const ckl_norm_args *x, bool centred, plan_piece *out)
{
    const int64_t element = (int64_t)ckl_dtype_bytes(d->dtype), statistics = d->rows * 4;
    const bool any = d->rows > 0 && d->cols > 0;
    const int64_t in = any ? ((d->rows - 1) * d->ld_in + d->cols) * element : 0;
    const int64_t to = any ? ((d->rows - 1) * d->ld_out + d->cols) * element : 0;
    const int64_t residual_in = d->residual ? in : 0, residual_out = d->residual ? to : 0;
    const int64_t gamma = d->affine ? d->cols * element : 0, beta = centred ? gamma : 0;
    const plan_piece forward[] = {
        { "x", x->x, in, element, false, d->ld_in },
        { "residual", x->residual, residual_in, element, false, d->ld_in },
        { "gamma", x->gamma, any ? gamma : 0, element, false, 0 },
        { "beta", x->beta, any ? beta : 0, element, false, 0 },
        { "y", x->y, to, element, true, d->ld_out },
        { "sum", x->sum, residual_out, element, true, d->ld_out },
        { "mean", x->mean, centred && x->mean ? statistics : 0, 4, true, 0 },
        { "rstd", x->rstd, x->rstd ? statistics : 0, 4, true, 0 },
    };
    const plan_piece backward[] = {
        { "x", x->x, in, element, false, d->ld_in },
        { "dy", x->dy, in, element, false, d->ld_in },
        { "dsum", x->dsum, residual_in, element, false, d->ld_in },
        { "gamma", x->gamma, any ? gamma : 0, element, false, 0 },
        { "mean", x->mean, centred && any ? statistics : 0, 4, false, 0 },
        { "rstd", x->rstd, any ? statistics : 0, 4, false, 0 },
        { "dx", x->dx, to, element, true, d->ld_out },
        { "dgamma", x->dgamma, gamma, element, true, 0 },
        { "dbeta", x->dbeta, beta, element, true, 0 },
    };
    const plan_piece *list = d->direction == CKL_FORWARD ? forward : backward;
    const int count = d->direction == CKL_FORWARD ? COUNT_OF(forward) : COUNT_OF(backward);
    for (int i = 0; i < count; i++)
        out[i] = list[i];
    return count;
}

static ckl_status check_pieces(const char *op, const ckl_norm_desc *d, const ckl_norm_args *args, bool centred)
{
    plan_piece p[PIECES_MAX];
    return plan_check_pieces(op, p, list_pieces(d, args, centred, p));
}

/* Choice */

static bool divides_rows(const ckl_norm_desc *d, int vec)
{
    return d->cols % vec == 0 && (d->rows <= 1 || (d->ld_in % vec == 0 && d->ld_out % vec == 0));
}

static int widest_vector(const ckl_norm_desc *d)
{
    int vec = VECTOR_BYTES / (int)ckl_dtype_bytes(d->dtype);
    while (!divides_rows(d, vec))
        vec /= 2;
    return vec;
}

static void take_split(const row_split *s, norm_config *c)
{
    c->threads = s->threads;
    c->row_threads = s->row_threads;
    c->cluster = s->cluster;
    c->vec = s->vec;
    c->steps = s->steps;
    c->whole = s->whole;
}

/* Rows that no registers hold: whole CTAs, as many for a row as it takes to keep the device busy. */
static row_split tiled_split(const ckl_norm_desc *d, const ckl_device_info *device, int vec)
{
    row_split s = { TILED_THREADS, TILED_THREADS, 1, vec, TILED_ELEMENTS / vec, false };
    while (device->has_tma && s.cluster < CLUSTER_MAX && d->rows * s.cluster < device->sm_count)
        s.cluster *= 2;
    return s;
}

static void take_problem(const ckl_norm_desc *d, norm_config *c)
{
    c->dtype = d->dtype;
    c->affine = d->affine;
    c->residual = d->residual;
}

/* Rows that flow: long ones that are whole vectors of 16 bytes. */
static bool may_flow(const ckl_norm_desc *d, const ckl_device_info *device, int64_t bytes_min)
{
    int64_t element = (int64_t)ckl_dtype_bytes(d->dtype);
    return device->has_tma && widest_vector(d) * element == VECTOR_BYTES && d->cols * element > bytes_min;
}

static void take_stream(const stream_split *s, norm_config *c)
{
    take_split(&s->piece, c);
    c->cluster = s->cluster;
    c->stages = s->stages;
    c->hold = (choice)s->hold;
    c->pieces = s->pieces;
}

static ckl_status choose_forward(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_norm_desc *d = desc;
    if (d->direction != CKL_FORWARD)
        FAIL(CKL_UNSUPPORTED, "norm forward: direction is backward");
    norm_config *c = config;
    row_split s;
    int vec = widest_vector(d), cluster_max = device->has_tma ? CLUSTER_MAX : 1;
    int wanted = d->dtype == CKL_F32 || d->cols > LONG_COLS ? FORWARD_REGISTERS : FORWARD_REGISTERS / 2;
    take_problem(d, c);
    if (may_flow(d, device, FORWARD_ROW_BYTES_MAX)) {
        stream_split flowing = stream_split_choose(d->cols, d->dtype, 1 + d->residual, FORWARD_STAGES);
        take_stream(&flowing, c);
        return CKL_OK;
    }
    c->tiled = !row_split_choose(d->cols, vec, d->dtype, wanted, cluster_max, &s) &&
               !row_split_choose(d->cols, vec, d->dtype, 2 * wanted, cluster_max, &s);
    if (c->tiled)
        s = tiled_split(d, device, vec);
    take_split(&s, c);
    return CKL_OK;
}

/* Whole CTAs for a row, be it one warp: then a thread's sums of columns are those of its CTA. False: too long. */
static bool choose_backward_split(int64_t cols, int vec, int elements, int cluster_max, row_split *s)
{
    const int64_t vectors = max_i64(1, ceil_div(cols, vec)), steps = max_i64(1, elements / vec);
    *s = (row_split){ .threads = 32, .cluster = 1, .vec = vec };
    while (s->threads < BACKWARD_THREADS_MAX && s->threads * steps < vectors)
        s->threads *= 2;
    while (s->cluster < cluster_max && s->threads * s->cluster * steps < vectors)
        s->cluster *= 2;
    s->row_threads = s->threads;
    s->steps = (int)ceil_div(vectors, (int64_t)s->threads * s->cluster);
    s->whole = row_split_cols(s) == cols;
    return s->steps <= steps;
}

/*
 * Rows that flow, with sums of columns in registers: 16 elements a thread, 32 of longer rows. Still longer ones flow without
 * sums, which then come from a second reading of x and dy.
 */
static stream_split choose_backward_stream(const ckl_norm_desc *d)
{
    const int vec = widest_vector(d), inputs = 2 + d->residual;
    const bool short_row = d->cols <= FLOW_SHORT_COLS, packed = ckl_dtype_bytes(d->dtype) == 2;
    const int elements = short_row ? FLOW_ELEMENTS : 2 * FLOW_ELEMENTS;
    stream_split s = { .piece = { FLOW_THREADS, FLOW_THREADS, 1, vec, elements / 8, false }, .cluster = 1 };
    while (s.cluster < FLOW_CLUSTER_MAX && (int64_t)FLOW_THREADS * s.cluster * elements < d->cols)
        s.cluster *= 2;
    if ((int64_t)FLOW_THREADS * s.cluster * elements < d->cols)
        return stream_split_choose(d->cols, d->dtype, inputs, FORWARD_STAGES);
    int64_t stage = row_split_cols(&s.piece) * inputs * (int64_t)ckl_dtype_bytes(d->dtype);
    s.pieces = (int)stream_pieces(&s, d->cols);
    s.piece.whole = row_split_cols(&s.piece) * s.cluster * s.pieces == d->cols;
    s.stages = (int)((short_row ? FLOW_RING_BYTES / 2 : FLOW_RING_BYTES) / stage);
    s.hold = packed || s.cluster == 1 ? STREAM_REGISTERS : STREAM_RING;
    return s;
}

static void choose_backward_flow(const ckl_norm_desc *d, norm_config *c)
{
    stream_split s = choose_backward_stream(d);
    take_stream(&s, c);
    c->early = s.pieces > 0 && s.hold == STREAM_RING;
    c->ctas_per_sm = s.pieces == 0 ? 0 : d->cols <= FLOW_SHORT_COLS ? 2 : 1;
    if (s.pieces > 0 && d->cols > FLOW_CLUSTER_MAX * FLOW_THREADS) // many CTAs with few partial sums each
        c->column_threads = d->cols <= FLOW_SHORT_COLS ? 256 : 128;
}

static ckl_status choose_backward(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_norm_desc *d = desc;
    norm_config *c = config;
    if (d->direction != CKL_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    take_problem(d, c);
    if (may_flow(d, device, BACKWARD_ROW_COLS_MAX * (int64_t)ckl_dtype_bytes(d->dtype))) {
        choose_backward_flow(d, c);
        return CKL_OK;
    }
    row_split s;
    int vec = widest_vector(d), cluster_max = device->has_tma ? CLUSTER_MAX : 1;
    int elements = BACKWARD_BYTES / (int)ckl_dtype_bytes(d->dtype);
    c->tiled = !choose_backward_split(d->cols, vec, elements, cluster_max, &s) &&
               !choose_backward_split(d->cols, vec, BACKWARD_ELEMENTS_MAX, cluster_max, &s);
    if (c->tiled)
        s = tiled_split(d, device, vec);
    take_split(&s, c);
    c->early = !c->tiled && s.vec * s.steps <= BACKWARD_EARLY_MAX;
    return CKL_OK;
}

static ckl_status admit_stream(const char *what, const ckl_norm_desc *d, const ckl_device_info *device,
                               const norm_config *c)
{
    stream_split s = norm_stream_split(c);
    if (!divides_rows(d, c->vec) || d->cols > COLS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: rows that flow must start at multiples of vec=%d and have %d columns or less", what, c->vec,
             COLS_MAX);
    const bool backward = d->direction == CKL_BACKWARD;
    if (c->early && !c->pieces)
        FAIL(CKL_INVALID, "%s: gamma and beta that are kept need pieces=", what);
    return stream_split_admit(what, &s, d->cols, d->dtype, 1 + backward + c->residual, NORM_STREAM_VALUES, device);
}

/* What both directions demand of a config. */
static ckl_status admit_split(const char *what, const ckl_norm_desc *d, const ckl_device_info *device,
                              const norm_config *c)
{
    row_split s = norm_split(c, true);
    if (c->dtype != d->dtype || c->affine != d->affine || c->residual != d->residual)
        FAIL(CKL_INVALID, "%s: dtype, affine and residual must be those of the problem", what);
    if (c->tiled && c->row_threads != c->threads)
        FAIL(CKL_INVALID, "%s: row_threads=%d of tiled rows must be threads=%d", what, c->row_threads, c->threads);
    if (c->turns < 0 || (c->turns > 0 && c->row_threads != c->threads))
        FAIL(CKL_INVALID, "%s: turns=%d is negative, or row_threads=%d is not threads=%d", what, c->turns,
             c->row_threads, c->threads);
    if (c->stages)
        return admit_stream(what, d, device, c);
    TRY(row_split_admit(what, &s, c->tiled ? min_i64(d->cols, row_split_cols(&s)) : d->cols, d->dtype, device));
    if (c->tiled && c->whole)
        FAIL(CKL_INVALID, "%s: whole rows are not tiled", what);
    if (!divides_rows(d, c->vec))
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide cols and the distances between rows", what, c->vec);
    if (d->cols > COLS_MAX || row_split_ctas(&s, d->rows) > CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more than %d columns or CTAs", what, CTAS_MAX);
    return CKL_OK;
}

static ckl_status admit_forward(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_norm_desc *d = desc;
    if (d->direction != CKL_FORWARD)
        FAIL(CKL_UNSUPPORTED, "norm forward: direction is backward");
    return admit_split("norm forward", d, device, config);
}

static ckl_status admit_backward(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_norm_desc *d = desc;
    const norm_config *c = config;
    if (c->column_threads < 32 || c->column_threads > 1024 || c->column_threads % 32)
        FAIL(CKL_INVALID, "norm backward: column_threads=%d is no multiple of 32 up to 1024", c->column_threads);
    if (d->direction != CKL_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    if (c->row_threads != c->threads)
        FAIL(CKL_INVALID, "norm backward: row_threads=%d is not threads=%d", c->row_threads, c->threads);
    return admit_split("norm backward", d, device, c);
}

/* Launch */

/* Kernel 0 if all tensors but the statistics, which are read one by one, are aligned to vectors; else 1. */
static int part_for(const ckl_norm_desc *d, const norm_config *c, const ckl_norm_args *args)
{
    ckl_norm_args elements = *args;
    elements.mean = elements.rstd = NULL;
    plan_piece p[PIECES_MAX];
    return plan_pieces_aligned(p, list_pieces(d, &elements, true, p), c->vec) ? 0 : 1;
}

/* CTAs of the kernel that walks over rows: a CTA or cluster for each row, or less that take rows in turn. */
static int64_t row_ctas(const ckl_plan *plan, int part)
{
    const ckl_norm_desc *d = plan->desc;
    const norm_config *c = plan->config;
    row_split s = norm_split(c, true);
    int64_t ctas = row_split_ctas(&s, d->rows), clusters = plan->kernels[0].clusters_resident;
    if (c->turns == 0 && d->direction == CKL_FORWARD && !(c->stages && part == 0))
        return ctas;
    if (c->turns > 0)
        clusters = (int64_t)plan->device->info.sm_count * c->turns / c->cluster;
    return min_i64(ctas, max_i64(1, clusters) * c->cluster);
}

static ckl_status launch_forward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_norm_desc *d = plan->desc;
    const ckl_norm_args *x = args;
    if (d->rows == 0)
        return CKL_OK;
    uint32_t cols = (uint32_t)d->cols;
    float reciprocal = 1 / (float)d->cols;
    /* in the order in which the kernel names them */
    const void *params[] = { &d->rows,     &cols,     &d->ld_in, &d->ld_out, &reciprocal, &d->eps,  &x->x,
                             &x->residual, &x->gamma, &x->beta,  &x->y,      &x->sum,     &x->mean, &x->rstd };
    int part = part_for(d, plan->config, x);
    device_launch l = { .grid = { row_ctas(plan, part), 1, 1 }, .params = (void *const *)params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

/* CTAs or clusters that walk over rows: as many partial sums of each column. */
static int64_t groups_of(const ckl_plan *plan)
{
    return row_ctas(plan, 0) / ((const norm_config *)plan->config)->cluster;
}

static int64_t workspace_backward(const ckl_plan *plan)
{
    const ckl_norm_desc *d = plan->desc;
    const norm_config *c = plan->config;
    return d->affine && norm_keeps_sums(c) ? groups_of(plan) * 2 * d->cols * (int64_t)sizeof(float) : 0;
}

/* Sums of columns that read x and dy go first, as dx may be in place of one of them. */
static ckl_status launch_backward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const device_ops *ops = plan->device->ops;
    const ckl_norm_desc *d = plan->desc;
    const norm_config *c = plan->config;
    const ckl_norm_args *x = args;
    uint32_t cols = (uint32_t)d->cols;
    float reciprocal = 1 / (float)d->cols;
    int64_t groups = groups_of(plan);
    int part = part_for(d, c, x);
    const bool direct = !norm_keeps_sums(c) || (c->stages && part == 1); // sums of columns from x and dy themselves
    const void *partial = direct ? NULL : x->workspace ? x->workspace : plan->workspace;
    /* in the order in which the kernels name them */
    const void *params[] = { &d->rows,  &cols,    &d->ld_in, &d->ld_out, &reciprocal, &x->x,   &x->dy,     &x->dsum,
                             &x->gamma, &x->mean, &x->rstd,  &x->dx,     &partial,    &groups, &x->dgamma, &x->dbeta };
    device_launch rows = { .grid = { row_ctas(plan, 0), 1, 1 }, .params = (void *const *)params };
    device_launch columns = { .grid = { ceil_div(d->cols, 32 * norm_column_vec(c)), 1, 1 }, .params = (void *const *)params };
    const bool sums = d->affine && d->cols > 0, work = d->rows > 0 && d->cols > 0;
    if (sums && direct)
        TRY(ops->launch(plan->device, plan->kernels[2 + part].loaded, &columns, stream));
    if (work)
        TRY(ops->launch(plan->device, plan->kernels[part].loaded, &rows, stream));
    if (sums && !direct)
        TRY(ops->launch(plan->device, plan->kernels[2 + part].loaded, &columns, stream));
    return CKL_OK;
}

/* The operators */

static const field norm_fields[] = { NORM_CONFIG(FIELD_ROW) };

/* Both operators have the same tables but for kernels and names. */
#define NORM_OPERATOR(op, is_centred, formula)                                                                       \
    static ckl_status op##_check(void *desc)                                                                         \
    {                                                                                                                \
        return check_desc(#op, desc);                                                                                \
    }                                                                                                                \
    static ckl_status op##_check_args(const void *desc, const void *args)                                            \
    {                                                                                                                \
        return check_pieces(#op, desc, args, is_centred);                                                            \
    }                                                                                                                \
    static const implementation op##_forward_implementation = {                                                      \
        .name = "forward",                                                                                           \
        .summary = "a row in the registers of some lanes, a CTA or a cluster; longer ones tile by tile",             \
        .config_bytes = sizeof(norm_config),                                                                         \
        .config = FIELD_TABLE(norm_fields),                                                                          \
        .choose = choose_forward,                                                                                    \
        .admit = admit_forward,                                                                                      \
        .describe = op##_forward,                                                                                    \
        .kernels = 2,                                                                                                \
        .target = IR_SM80,                                                                                           \
        .launch = launch_forward,                                                                                    \
    };                                                                                                               \
    static const implementation op##_backward_implementation = {                                                     \
        .name = "backward",                                                                                          \
        .summary = "CTAs or clusters take rows in turn and keep sums of columns; a second kernel adds these up",     \
        .config_bytes = sizeof(norm_config),                                                                         \
        .config = FIELD_TABLE(norm_fields),                                                                          \
        .choose = choose_backward,                                                                                   \
        .admit = admit_backward,                                                                                     \
        .describe = op##_backward,                                                                                   \
        .kernels = 4,                                                                                                \
        .target = IR_SM80,                                                                                           \
        .workspace_bytes = workspace_backward,                                                                       \
        .launch = launch_backward,                                                                                   \
    };                                                                                                               \
    static const implementation *const op##_implementations[] = { &op##_forward_implementation,                      \
                                                                  &op##_backward_implementation, NULL };             \
    const operator_info op##_operator = {                                                                            \
        .name = #op,                                                                                                 \
        .summary = formula,                                                                                          \
        .desc_bytes = sizeof(ckl_norm_desc),                                                                         \
        .args_bytes = sizeof(ckl_norm_args),                                                                         \
        .check = op##_check,                                                                                         \
        .check_args = op##_check_args,                                                                               \
        .implementations = op##_implementations,                                                                     \
    };                                                                                                               \
    ckl_status ckl_##op##_plan(ckl_device *device, const ckl_norm_desc *desc, ckl_plan **plan)                       \
    {                                                                                                                \
        return plan_build(device, &op##_operator, desc, NULL, plan);                                                 \
    }                                                                                                                \
    ckl_status ckl_##op##_run(const ckl_plan *plan, const ckl_norm_args *args, ckl_stream stream)                    \
    {                                                                                                                \
        return plan_run(plan, &op##_operator, args, stream);                                                         \
    }                                                                                                                \
    ckl_status ckl_##op(ckl_device *device, const ckl_norm_desc *desc, const ckl_norm_args *args, ckl_stream stream) \
    {                                                                                                                \
        return plan_once(device, &op##_operator, desc, args, stream);                                                \
    }

NORM_OPERATOR(layernorm, true, "y = (x - mean) / sqrt(variance + eps) * gamma + beta of rows, and its gradients")
NORM_OPERATOR(rmsnorm, false, "y = x / sqrt(mean of squares + eps) * gamma of rows, and its gradients")
