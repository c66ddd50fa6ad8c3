/* softmax_rows.c - which split a row gets, and the launches of the kernels of rows. */
#include "operators/softmax/softmax_config.h"

enum {
    VECTOR_BYTES = 16,
    CLUSTER_PORTABLE = 8,
    CTAS_MAX = INT32_MAX,
    FORWARD_ELEMENTS = 32, // of a thread: each takes an f32 register
    BACKWARD_ELEMENTS_MAX = 32,
    BACKWARD_REGISTERS = 16, // of a thread for y, and as many for dy
    LONG_THREADS = 512,
};

static void copy_form(const ckl_softmax_desc *d, softmax_row_config *c)
{
    c->dtype = d->dtype;
    c->direction = (choice)d->direction;
    c->log = d->log;
    c->scaled = d->scale != 1;
    c->mask = (choice)d->mask;
}

static int registers_wanted(const ckl_softmax_desc *d)
{
    int forward = FORWARD_ELEMENTS * (int)ckl_dtype_bytes(d->dtype) / (int)sizeof(float);
    return d->direction == CKL_DIRECTION_FORWARD ? forward : BACKWARD_REGISTERS;
}

/* Rows whose axis is the last one. */
static ckl_status check_axis(const char *name, const ckl_softmax_desc *d)
{
    if (d->inner != 1)
        FAIL(CKL_UNSUPPORTED, "softmax %s: inner=%" PRId64 ", the axis is not the last one", name, d->inner);
    if (d->n > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "softmax %s: n=%" PRId64 " is more than %d", name, d->n, INT32_MAX);
    return CKL_OK;
}

static void keep_split(const row_split *s, softmax_row_config *c)
{
    c->threads = s->threads;
    c->row_threads = s->row_threads;
    c->cluster = s->cluster;
    c->vec = s->vec;
    c->steps = s->steps;
    c->exact = s->exact;
}

static ckl_status choose_row(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    row_split split;
    (void)device;
    TRY(check_axis("row", d));
    if (!row_split_choose(d->n, softmax_vec(d), d->dtype, registers_wanted(d), 1, &split))
        FAIL(CKL_UNSUPPORTED, "softmax row: rows of n=%" PRId64 " do not fit the registers of one CTA", d->n);
    if (d->direction == CKL_DIRECTION_BACKWARD && split.vec * split.steps > BACKWARD_ELEMENTS_MAX)
        FAIL(CKL_UNSUPPORTED, "softmax row: y and dy of n=%" PRId64 " do not fit the registers", d->n);
    copy_form(d, config);
    keep_split(&split, config);
    return CKL_OK;
}

/* As many CTAs a row as keep their registers busy, if there are too few rows to fill the device. */
static ckl_status choose_pieces(const char *name, const ckl_softmax_desc *d, int cluster, void *config)
{
    TRY(check_axis(name, d));
    int vec = softmax_vec(d), registers = registers_wanted(d);
    row_split split = { .threads = LONG_THREADS, .row_threads = LONG_THREADS, .cluster = cluster, .vec = vec };
    int one = (int)ceil_div(vec * (int64_t)ckl_dtype_bytes(d->dtype), 4);
    split.steps = (int)max_i64(1, registers / one);
    while (split.cluster > 1 && row_split_cols(&split) / 2 >= d->n)
        split.cluster /= 2;
    copy_form(d, config);
    keep_split(&split, config);
    return CKL_OK;
}

static ckl_status choose_long(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    return choose_pieces("long", desc, 1, config);
}

static ckl_status choose_long_cluster(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    return choose_pieces("long_cluster", desc, CLUSTER_PORTABLE, config);
}

static ckl_status choose_stream(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_axis("pipeline", d));
    copy_form(d, c);
    int inputs = softmax_pipeline_inputs(c);
    row_pipeline_split split = row_pipeline_choose(d->n, d->dtype, inputs, device);
    keep_split(&split.chunk, c);
    c->cluster = split.cluster;
    c->stages = split.stages;
    c->residence = (choice)split.residence;
    c->lookahead = split.lookahead;
    c->ctas_per_sm = row_pipeline_ctas_per_sm(&split, d->dtype, inputs, SOFTMAX_PIPELINE_VALUES, device);
    return row_pipeline_admit("softmax pipeline", &split, d->n, d->dtype, inputs, SOFTMAX_PIPELINE_VALUES, device);
}

static ckl_status admit_form(const char *what, const ckl_softmax_desc *d, const softmax_row_config *c)
{
    softmax_row_config wanted = *c;
    copy_form(d, &wanted);
    if (wanted.dtype != c->dtype || wanted.direction != c->direction || wanted.log != c->log ||
        (wanted.scaled && !c->scaled) || wanted.mask != c->mask)
        FAIL(CKL_INVALID, "%s: dtype, direction, log, scaled and mask are those of the problem", what);
    if (softmax_vec(d) % c->vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the rows or the distances between them", what, c->vec);
    if (c->ctas_per_sm < 0 || c->ctas_per_sm > 32)
        FAIL(CKL_INVALID, "%s: ctas_per_sm=%d is not in 0..32", what, c->ctas_per_sm);
    return CKL_OK;
}

static ckl_status admit(const char *what, bool long_rows, const ckl_softmax_desc *d, const ckl_device_info *device,
                        const softmax_row_config *c)
{
    row_split split = softmax_split(c, 0);
    TRY(check_axis(what + sizeof "softmax", d));
    TRY(row_split_admit(what, &split, long_rows ? min_i64(d->n, row_split_cols(&split)) : d->n, c->dtype, device));
    TRY(admit_form(what, d, c));
    if (long_rows && c->exact)
        FAIL(CKL_INVALID, "%s: exact=1 is for rows in registers", what);
    if (d->outer > CTAS_MAX / split.cluster * row_split_rows(&split))
        FAIL(CKL_UNSUPPORTED, "%s: outer=%" PRId64 " takes more than %d CTAs", what, d->outer, CTAS_MAX);
    return CKL_OK;
}

static ckl_status admit_row(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    if (c->cluster != 1)
        FAIL(CKL_INVALID, "softmax row: cluster=%d, a cluster has an implementation of its own", c->cluster);
    return admit("softmax row", false, desc, device, c);
}

static ckl_status admit_long(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    if (c->cluster != 1)
        FAIL(CKL_INVALID, "softmax long: cluster=%d, a cluster has an implementation of its own", c->cluster);
    return admit("softmax long", true, desc, device, c);
}

static ckl_status admit_long_cluster(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit("softmax long_cluster", true, desc, device, config);
}

static ckl_status admit_stream(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_softmax_desc *d = desc;
    const softmax_row_config *c = config;
    row_pipeline_split split = softmax_pipeline_split(c);
    TRY(check_axis("pipeline", d));
    TRY(row_pipeline_admit("softmax pipeline", &split, d->n, c->dtype, softmax_pipeline_inputs(c),
                           SOFTMAX_PIPELINE_VALUES, device));
    TRY(row_pipeline_dynamic_admit("softmax pipeline", &split, d->n));
    return admit_form("softmax pipeline", d, c);
}

/* The counter from which rows that flow are drawn. */
static int64_t workspace(const ckl_plan *plan)
{
    return ((const softmax_row_config *)plan->config)->stages ? (int64_t)sizeof(uint32_t) : 0;
}

/* CTAs of a launch: rows that flow are drawn by those that there is room for. */
static int64_t ctas_of(const ckl_plan *plan, const row_split *split, int part)
{
    const softmax_row_config *c = plan->config;
    int64_t rows = ((const ckl_softmax_desc *)plan->desc)->outer;
    if (!c->stages || part != 0)
        return row_split_ctas(split, rows);
    return min_i64(rows, plan->kernels[0].clusters_resident) * c->cluster;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_row_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const ckl_softmax_args *a = args;
    if (softmax_is_empty(d))
        return CKL_OK;
    int part = softmax_aligned(d, a, c->vec) ? 0 : 1;
    row_split split = softmax_split(c, part);
    float scale = d->scale;
    int64_t rows = d->outer, cols = d->n, ldx = d->ldx, ldy = d->ldy, mask_rows = d->mask_rows;
    int64_t mask_repeat = d->mask_repeat;
    void *counter = a->workspace ? a->workspace : plan->workspace;
    /* in the order in which the kernel names them */
    void *params[] = { &rows,          &cols,  (void *)&a->x,    &ldx,       (void *)&a->y, &ldy,    (void *)&a->dy,
                       (void *)&a->dx, &scale, (void *)&a->mask, &mask_rows, &mask_repeat,  &counter };
    device_launch l = { .grid = { ctas_of(plan, &split, part), 1, 1 }, .params = params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

static const field fields[] = { SOFTMAX_ROW_CONFIG(FIELD_ROW) };

#define ROW_IMPLEMENTATION(symbol, text, about, suffix, kernel, sm) \
    const implementation softmax_##symbol##_impl = {                \
        .name = text,                                               \
        .summary = about,                                           \
        .config_bytes = sizeof(softmax_row_config),                 \
        .config = FIELD_TABLE(fields),                              \
        .choose = choose_##suffix,                                  \
        .admit = admit_##suffix,                                    \
        .describe = kernel,                                         \
        .kernels = 2,                                               \
        .target = sm,                                               \
        .workspace_bytes = workspace,                               \
        .launch = launch,                                           \
    }

ROW_IMPLEMENTATION(row, "row", "a row in the registers of some lanes, a warp or a CTA; read once", row, softmax_row,
                   IR_SM80);
ROW_IMPLEMENTATION(pipeline, "pipeline",
                   "rows flow through shared memory ahead of the threads; CTAs or clusters draw them one by one",
                   stream, softmax_pipeline, IR_SM90A);
ROW_IMPLEMENTATION(long, "long", "a row of any length by one CTA; read twice, piece by piece", long, softmax_long,
                   IR_SM80);
ROW_IMPLEMENTATION(long_cluster, "long_cluster", "a row of any length by a cluster; read twice, piece by piece",
                   long_cluster, softmax_long, IR_SM90A);
