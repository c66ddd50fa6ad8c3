/* softmax_columns.c - which split a strip of columns gets, and the launches of the kernels of columns. */
#include "skeletons/column.h"
#include "operators/softmax/softmax_config.h"

enum {
    CLUSTER_PORTABLE = 8,
    CTAS_MAX = INT32_MAX,
    ELEMENTS_FORWARD = 32,  // of a thread: each takes an f32 register
    ELEMENTS_BACKWARD = 16, // of y and as many of dy
    LONG_FORWARD = 8,       // of a piece, where addresses take registers too; up to twice as many
    LONG_BACKWARD = 4,
    LONG_LINES = 2048 // that a CTA of column_long may find work in
};

static void copy_form(const ckl_softmax_desc *d, softmax_column_config *c)
{
    c->dtype = d->dtype;
    c->direction = (choice)d->direction;
    c->log = d->log;
    c->scaled = d->scale != 1;
    c->mask = (choice)d->mask;
}

/* Rows whose axis is not the last one. */
static ckl_status check_axis(const char *name, const ckl_softmax_desc *d)
{
    if (d->inner == 1)
        FAIL(CKL_UNSUPPORTED, "softmax %s: the axis is the last one", name);
    if (d->mask != CKL_SOFTMAX_MASK_NONE)
        FAIL(CKL_UNSUPPORTED, "softmax %s: masks are for the last axis", name);
    if (d->n > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "softmax %s: n=%" PRId64 " is more than %d", name, d->n, INT32_MAX);
    return CKL_OK;
}

static void keep_split(const column_split *s, softmax_column_config *c)
{
    c->threads = s->threads;
    c->lanes = s->lanes;
    c->cluster = s->cluster;
    c->vec = s->vec;
    c->steps = s->steps;
    c->exact = s->exact;
}

static ckl_status choose_in_registers(const char *name, const ckl_softmax_desc *d, int cluster_max, void *config)
{
    column_split split;
    int elements = d->direction == CKL_DIRECTION_FORWARD ? ELEMENTS_FORWARD : ELEMENTS_BACKWARD;
    TRY(check_axis(name, d));
    if (!column_split_choose(d->n, d->inner, softmax_vec(d), d->dtype, elements, cluster_max, &split))
        FAIL(CKL_UNSUPPORTED, "softmax %s: columns of n=%" PRId64 " do not fit the registers of %d CTA%s", name, d->n,
             cluster_max, cluster_max > 1 ? "s" : "");
    if (cluster_max > 1 && split.cluster == 1)
        FAIL(CKL_UNSUPPORTED, "softmax %s: columns of n=%" PRId64 " need no cluster", name, d->n);
    copy_form(d, config);
    keep_split(&split, config);
    if (d->direction == CKL_DIRECTION_FORWARD && split.exact && split.threads == 512 && d->dtype == CKL_F32 &&
        split.steps <= 8)
        ((softmax_column_config *)config)->ctas_per_sm = 2; // 64 registers do, and two CTAs keep 128 KB in flight
    return CKL_OK;
}

static ckl_status choose_column(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    return choose_in_registers("column", desc, 1, config);
}

static ckl_status choose_column_cluster(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    return choose_in_registers("column_cluster", desc, CLUSTER_PORTABLE, config);
}

/* Pieces of so many lines as registers hold, and as many CTAs as find LONG_LINES each. */
static ckl_status choose_pieces(const char *name, const ckl_softmax_desc *d, int cluster_max, void *config)
{
    column_split split;
    int64_t lines = min_i64(d->n, LONG_LINES);
    int elements = d->direction == CKL_DIRECTION_FORWARD ? LONG_FORWARD : LONG_BACKWARD;
    TRY(check_axis(name, d));
    while (!column_split_choose(lines, d->inner, softmax_vec(d), d->dtype, elements, 1, &split))
        lines /= 2;
    while (2 * split.cluster <= min_i64(cluster_max, split.threads / 32) && d->n > (int64_t)LONG_LINES * split.cluster)
        split.cluster *= 2;
    split.exact = false;
    copy_form(d, config);
    keep_split(&split, config);
    return CKL_OK;
}

static ckl_status choose_column_long(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    return choose_pieces("column_long", desc, 1, config);
}

static ckl_status choose_column_long_cluster(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    return choose_pieces("column_long_cluster", desc, CLUSTER_PORTABLE, config);
}

static ckl_status admit_form(const char *what, const ckl_softmax_desc *d, const softmax_column_config *c)
{
    if (d->dtype != c->dtype || (choice)d->direction != c->direction || d->log != c->log ||
        (d->scale != 1 && !c->scaled) || c->mask != CKL_SOFTMAX_MASK_NONE)
        FAIL(CKL_INVALID, "%s: dtype, direction, log, scaled and mask are those of the problem", what);
    if (softmax_vec(d) % c->vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the lines or the distances between them", what, c->vec);
    if (c->ctas_per_sm < 0 || c->ctas_per_sm > 32)
        FAIL(CKL_INVALID, "%s: ctas_per_sm=%d is not in 0..32", what, c->ctas_per_sm);
    return CKL_OK;
}

static ckl_status admit(const char *what, bool is_long, const ckl_softmax_desc *d, const ckl_device_info *device,
                        const softmax_column_config *c)
{
    column_split split = softmax_column_split(c, 0);
    int64_t lines = column_split_lines(&split), columns = column_split_columns(&split);
    TRY(check_axis(what + sizeof "softmax", d));
    TRY(column_split_admit(what, &split, c->dtype, device));
    TRY(admit_form(what, d, c));
    if (!is_long && d->n > lines)
        FAIL(CKL_INVALID, "%s: columns of %" PRId64 " elements, room for %" PRId64, what, d->n, lines);
    if (c->exact && (is_long || d->n != lines || d->inner % columns))
        FAIL(CKL_INVALID, "%s: exact=1 wants columns of %" PRId64 " elements and lines of whole %" PRId64, what, lines,
             columns);
    split = softmax_column_split(c, 1); // the smaller strips
    if (d->outer > CTAS_MAX / column_split_ctas(&split, 1, d->inner))
        FAIL(CKL_UNSUPPORTED, "%s: the problem takes more than %d CTAs", what, CTAS_MAX);
    return CKL_OK;
}

static ckl_status check_no_cluster(const char *what, const softmax_column_config *c)
{
    if (c->cluster != 1)
        FAIL(CKL_INVALID, "%s: cluster=%d, a cluster has an implementation of its own", what, c->cluster);
    return CKL_OK;
}

static ckl_status admit_column(const void *desc, const ckl_device_info *device, const void *config)
{
    TRY(check_no_cluster("softmax column", config));
    return admit("softmax column", false, desc, device, config);
}

static ckl_status admit_column_cluster(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit("softmax column_cluster", false, desc, device, config);
}

static ckl_status admit_column_long(const void *desc, const ckl_device_info *device, const void *config)
{
    TRY(check_no_cluster("softmax column_long", config));
    return admit("softmax column_long", true, desc, device, config);
}

static ckl_status admit_column_long_cluster(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit("softmax column_long_cluster", true, desc, device, config);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_column_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const ckl_softmax_args *a = args;
    if (softmax_is_empty(d))
        return CKL_OK;
    int part = softmax_aligned(d, a, c->vec) ? 0 : 1;
    column_split split = softmax_column_split(c, part);
    int64_t n = d->n, inner = d->inner, ldx = d->ldx, ldy = d->ldy;
    uint32_t strips = (uint32_t)column_split_strips(&split, inner);
    float scale = d->scale;
    /* in the order in which the kernel names them */
    void *params[] = { &n,   &inner,         &strips,        (void *)&a->x, &ldx, (void *)&a->y,
                       &ldy, (void *)&a->dy, (void *)&a->dx, &scale };
    device_launch l = { .grid = { column_split_ctas(&split, d->outer, inner), 1, 1 }, .params = params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

static const field fields[] = { SOFTMAX_COLUMN_CONFIG(FIELD_ROW) };

#define COLUMN_IMPLEMENTATION(symbol, about, kernel, sm) \
    const implementation softmax_##symbol##_impl = {     \
        .name = #symbol,                                 \
        .summary = about,                                \
        .config_bytes = sizeof(softmax_column_config),   \
        .config = FIELD_TABLE(fields),                   \
        .choose = choose_##symbol,                       \
        .admit = admit_##symbol,                         \
        .describe = kernel,                              \
        .kernels = 2,                                    \
        .target = sm,                                    \
        .launch = launch,                                \
    }

COLUMN_IMPLEMENTATION(column, "a strip of columns in the registers of a CTA; read once", softmax_column, IR_SM80);
COLUMN_IMPLEMENTATION(column_cluster, "a strip of columns in the registers of a cluster; read once", softmax_column,
                      IR_SM90A);
COLUMN_IMPLEMENTATION(column_long, "a strip of any length by one CTA; read twice, piece by piece", softmax_column_long,
                      IR_SM80);
COLUMN_IMPLEMENTATION(column_long_cluster, "a strip of any length by a cluster; read twice, piece by piece",
                      softmax_column_long, IR_SM90A);
