/* softmax.c - softmax and its gradient: validation, launch, problem lines (a shape and an axis become rows). */
#include "cutekernellib/operators/softmax.h"

#include <math.h>

#include "base/shape.h"
#include "operators/operators.h"
#include "operators/softmax/softmax_config.h"
#include "skeletons/one_pass.h"

/* Validation */

/* A line of memory: its contiguous elements, and how many lines there are. */
static int64_t line_of(const ckl_softmax_desc *d)
{
    return d->inner == 1 ? d->n : d->inner;
}

static int64_t lines_of(const ckl_softmax_desc *d)
{
    return d->inner == 1 ? d->outer : d->outer * d->n;
}

static ckl_status check_mask(ckl_softmax_desc *d)
{
    if (d->mask == CKL_SOFTMAX_MASK_NONE && (d->mask_rows || d->mask_repeat))
        FAIL(CKL_INVALID,
             "softmax: mask_rows=%" PRId64 " mask_repeat=%" PRId64 " are not part of a problem without mask",
             d->mask_rows, d->mask_repeat);
    if (d->mask == CKL_SOFTMAX_MASK_NONE)
        return CKL_OK;
    if (d->direction == CKL_DIRECTION_BACKWARD)
        FAIL(CKL_INVALID, "softmax: the backward direction takes no mask, it follows from y");
    d->mask_rows = d->mask_rows ? d->mask_rows : max_i64(1, d->outer);
    d->mask_repeat = d->mask_repeat ? d->mask_repeat : 1;
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_softmax_desc *d = desc;
    const char *line = d->inner == 1 ? "n" : "inner";
    TRY(plan_check_pitch("softmax", "ldx", &d->ldx, line, line_of(d)));
    TRY(plan_check_pitch("softmax", "ldy", &d->ldy, line, line_of(d)));
    return check_mask(d);
}

/* Rows along memory, or across it. */
static plan_tensor rows_of(const ckl_softmax_desc *d, const char *name, int64_t ld)
{
    if (d->inner == 1)
        return plan_matrix(name, d->dtype, d->outer, d->n, ld);
    return (
        plan_tensor){ name, d->dtype, 3, { d->outer, d->n, d->inner }, { product_i64(d->n, ld), ld, 1 }, .place = 1 };
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_softmax_desc *d = desc;
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    const char *forward_only = is_forward ? NULL : "a backward problem";
    const char *backward_only = is_forward ? "a forward problem" : NULL;
    const char *masked_only = d->mask == CKL_SOFTMAX_MASK_NONE ? "a problem without mask" : NULL;
    const ckl_dtype mask = d->mask == CKL_SOFTMAX_MASK_BOOL ? CKL_BOOL : d->dtype;
    t[0] = plan_absent(rows_of(d, "x", d->ldx), forward_only);
    t[1] = plan_absent(plan_apart(plan_matrix("mask", mask, d->outer ? d->mask_rows : 0, d->n, d->n)),
                       plan_first(forward_only, masked_only));
    t[2] = rows_of(d, "y", d->ldy);
    t[2].output = is_forward;
    t[3] = plan_absent(rows_of(d, "dy", d->ldy), backward_only);
    t[4] = plan_absent(plan_output(rows_of(d, "dx", d->ldx)), backward_only);
    return 5;
}

/* Choice, the same for rows and columns */

softmax_form softmax_form_of(const ckl_softmax_desc *d)
{
    return (softmax_form){ .dtype = d->dtype,
                           .direction = (choice)d->direction,
                           .log = d->log,
                           .scaled = d->scale != 1,
                           .mask = (choice)d->mask };
}

int softmax_vec_of(const ckl_softmax_desc *d)
{
    return row_vec(d->dtype, lines_of(d), line_of(d), d->ldx, d->ldy);
}

ckl_status softmax_check_length(const char *what, const ckl_softmax_desc *d)
{
    if (d->n > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: n=%" PRId64 " is more than %d", what, d->n, INT32_MAX);
    return CKL_OK;
}

ckl_status softmax_admit_form(const char *what, const ckl_softmax_desc *d, const softmax_form *f, int vec, bool ragged)
{
    softmax_form wanted = softmax_form_of(d);
    if (wanted.dtype != f->dtype || wanted.direction != f->direction || wanted.log != f->log ||
        (wanted.scaled && !f->scaled) || wanted.mask != f->mask)
        FAIL(CKL_INVALID, "%s: dtype, direction, log, scaled and mask are those of the problem", what);
    if (!ragged && softmax_vec_of(d) % vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the lines or the distances between them", what, vec);
    if (f->ctas_per_sm < 0 || f->ctas_per_sm > 32)
        FAIL(CKL_INVALID, "%s: ctas_per_sm=%d is not in 0..32", what, f->ctas_per_sm);
    return CKL_OK;
}

double softmax_again(const ckl_softmax_desc *d, const ckl_device_info *device)
{
    const int inputs = d->direction == CKL_DIRECTION_FORWARD ? 1 : 2;
    const int64_t bytes = product_i64(product_i64(d->outer, d->n), d->inner * dtype_bytes(d->dtype) * inputs);
    return bytes > 0 ? fmax(0, 1 - (double)device->l2_bytes / 2 / (double)bytes) : 0;
}

/* Launch */

/* The counter from which the rows of a pipeline are taken. */
static int64_t pipeline_workspace(const ckl_plan *plan)
{
    (void)plan;
    return sizeof(uint32_t);
}

static softmax_params params_for(const ckl_softmax_desc *d, const ckl_softmax_args *a)
{
    return (softmax_params){ .outer = d->outer,
                             .n = d->n,
                             .inner = d->inner,
                             .x = a->x,
                             .ldx = d->ldx,
                             .y = a->y,
                             .ldy = d->ldy,
                             .dy = a->dy,
                             .dx = a->dx,
                             .scale = d->scale,
                             .mask = a->mask,
                             .mask_rows = d->mask_rows,
                             .mask_repeat = d->mask_repeat };
}

/* 0 if all tensors are aligned to whole vectors, else 1. */
static int kernel_for(const ckl_softmax_desc *d, const ckl_softmax_args *a, int vec)
{
    const int64_t bytes = vec * dtype_bytes(d->dtype), mask_bytes = d->mask == CKL_SOFTMAX_MASK_BOOL ? vec : bytes;
    return PLAN_ALIGNED(bytes, a->x, a->y, a->dy, a->dx) && PLAN_ALIGNED(mask_bytes, a->mask) ? 0 : 1;
}

/* For ragged rows: 0 if those of all tensors but the mask lie in phase, else 1. */
static int kernel_for_ragged(const ckl_softmax_desc *d, const ckl_softmax_args *a)
{
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    const bool pointers = is_forward ? row_starts_in_phase(a->x, a->y)
                                     : row_starts_in_phase(a->y, a->dx) && row_starts_in_phase(a->dy, a->dx);
    return pointers && softmax_in_phase(d) ? 0 : 1;
}

static ckl_status launch_rows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_row_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const ckl_softmax_args *a = args;
    const int kernel = c->split.ragged ? kernel_for_ragged(d, a) : kernel_for(d, a, c->split.vec);
    const bool flows = c->flow.stages && kernel == 0; // as many CTAs as fit take the rows
    const int64_t resident = min_i64(d->outer, plan->kernels[0].clusters_resident) * c->split.cluster;
    softmax_params params = params_for(d, a);
    params.counter = plan_workspace(plan, a->workspace);
    const plan_grid grid = { .x = flows ? resident : row_split_ctas(&c->split, d->outer) };
    return plan_launch(plan, kernel, grid, &params, stream);
}

/*
 * Vectors of ragged lines reach into columns of other CTAs, which may be written already where outputs take the place
 * of inputs.
 */
static int kernel_for_columns(const ckl_softmax_desc *d, const ckl_softmax_args *a, const column_split *s)
{
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    const bool in_place = is_forward ? a->y == a->x : a->dx == a->y || a->dx == a->dy;
    return s->ragged && in_place ? 1 : kernel_for(d, a, s->vec);
}

static ckl_status launch_columns(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_column_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const int kernel = kernel_for_columns(d, args, &c->split);
    const column_split split = kernel ? column_split_scalar(&c->split) : c->split;
    const int64_t strips = column_split_strips(&split, d->inner);
    softmax_params params = params_for(d, args);
    params.strips = (uint32_t)strips;
    return plan_launch(plan, kernel, (plan_grid){ .x = d->outer * strips * split.cluster }, &params, stream);
}

/* Strips of columns in chunks. The workspace: counters of CTAs that meet, then the states of all chunks. */
typedef struct chunks_view {
    int64_t chunks, counters_bytes, totals, bytes; // chunks: of a strip; totals: where states of columns are
} chunks_view;

static ckl_softmax_desc folded_of(const ckl_plan *plan)
{
    const softmax_column_config *c = plan->config;
    return softmax_folded(plan->desc, c->fold);
}

static chunks_view view_of(const ckl_plan *plan)
{
    const ckl_softmax_desc *whole = plan->desc, d = folded_of(plan);
    const softmax_column_config *c = plan->config;
    chunks_view v = { .chunks = ceil_div(d.n, softmax_chunk_lines(c)) };
    const int64_t all = d.outer * column_split_strips(&c->split, d.inner);
    const int64_t state_bytes = softmax_state_values(&c->form) * (int64_t)sizeof(float);
    v.counters_bytes = round_up(one_pass_counter_bytes(all, v.chunks), PLAN_WORKSPACE_ALIGNMENT);
    v.totals = v.counters_bytes + all * v.chunks * column_split_room(&c->split) * state_bytes;
    v.bytes = v.totals + whole->outer * whole->inner * state_bytes;
    return v;
}

static int64_t chunks_workspace(const ckl_plan *plan)
{
    return view_of(plan).bytes;
}

/* One kernel of vectors, or three; of single elements the last three: states of chunks, totals, outputs. */
static ckl_status launch_chunks(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_softmax_desc *whole = plan->desc, d = folded_of(plan);
    const softmax_column_config *c = plan->config;
    const ckl_softmax_args *a = args;
    const bool scalar = kernel_for_columns(&d, a, &c->split) != 0;
    const column_split split = scalar ? column_split_scalar(&c->split) : c->split;
    const int all = plan->impl->kernels, vectors = all - (SOFTMAX_LONG_KERNELS - SOFTMAX_LONG_SCALAR);
    const chunks_view v = view_of(plan);
    softmax_params params = params_for(&d, a);
    params.strips = (uint32_t)column_split_strips(&split, d.inner);
    params.chunks = (uint32_t)v.chunks;
    params.tiles = (uint32_t)((c->tiles + c->kept) * c->split.cluster);
    params.counter = plan_workspace(plan, a->workspace);
    params.states = (const char *)params.counter + v.counters_bytes;
    params.totals = (const char *)params.counter + v.totals;
    const int64_t merging = ceil_div(whole->inner, softmax_total_lanes(&split, c->fold));
    const int64_t ctas[] = { d.outer * params.strips * v.chunks, d.outer * merging,
                             d.outer * params.strips * v.chunks };
    const int first = scalar ? vectors : 0, count = scalar ? all - vectors : vectors;
    for (int i = 0; i < count; i++)
        TRY(plan_launch(plan, first + i, (plan_grid){ .x = ctas[i] }, &params, stream));
    return CKL_OK;
}

static const field desc_fields[] = { SOFTMAX_SIZES(FIELD_ROW, ckl_softmax_desc) //
                                     SOFTMAX_DESC(FIELD_ROW, ckl_softmax_desc) };

#define ROW_FIELDS                                         \
    SOFTMAX_FORM(FIELD_NESTED, (softmax_row_config, form)) \
    ROW_SPLIT(FIELD_NESTED, (softmax_row_config, split))
#define COLUMN_FIELDS                                         \
    SOFTMAX_FORM(FIELD_NESTED, (softmax_column_config, form)) \
    COLUMN_SPLIT(FIELD_NESTED, (softmax_column_config, split))
#define CHUNK_FIELDS COLUMN_FIELDS SOFTMAX_COLUMN_CHUNK(FIELD_ROW, softmax_column_config)

static const field row_fields[] = { ROW_FIELDS };
static const field pipeline_fields[] = { ROW_FIELDS ROW_FLOW(FIELD_NESTED, (softmax_row_config, flow)) };
static const field column_fields[] = { COLUMN_FIELDS SOFTMAX_COLUMN_WAIT(FIELD_ROW, softmax_column_config) };
static const field column_long_fields[] = { CHUNK_FIELDS };
static const field column_held_fields[] = { CHUNK_FIELDS SOFTMAX_COLUMN_HELD(FIELD_ROW, softmax_column_config) };

#define IMPLEMENTATION(symbol, about, family, fields, count, ...)                                              \
    static const implementation symbol##_implementation = { .name = #symbol,                                   \
                                                            .summary = about,                                  \
                                                            .config_bytes = sizeof(softmax_##family##_config), \
                                                            .config = FIELD_TABLE(fields),                     \
                                                            .choose = softmax_choose_##symbol,                 \
                                                            .cost = softmax_cost_##symbol,                     \
                                                            .admit = softmax_admit_##symbol,                   \
                                                            .describe = softmax_##symbol,                      \
                                                            .kernels = count,                                  \
                                                            .params = &softmax_param_list,                     \
                                                            .launch = __VA_ARGS__ }

IMPLEMENTATION(row, "a row in the registers of some lanes, a warp or a CTA; read once", row, row_fields, 2, launch_rows,
               .candidate = softmax_candidate_row, .is_trusted = softmax_is_trusted_row);
IMPLEMENTATION(column_long, "strips of any length in chunks; read twice, by a kernel for sums and one for outputs",
               column, column_long_fields, SOFTMAX_LONG_KERNELS, launch_chunks, .workspace_bytes = chunks_workspace);
IMPLEMENTATION(column_held, "strips in chunks, each in the shared memory of a CTA until the sums of all are known",
               column, column_held_fields, 4, launch_chunks, .workspace_bytes = chunks_workspace);
IMPLEMENTATION(pipeline, "rows flow through shared memory ahead of the threads; CTAs or clusters take them one by one",
               row, pipeline_fields, 2, launch_rows, .target = IR_SM90A, .workspace_bytes = pipeline_workspace,
               .rivals = { &column_long_implementation });
IMPLEMENTATION(long, "a row of any length by a CTA or a cluster; read twice, tile by tile", row, row_fields, 2,
               launch_rows, .rivals = { &column_held_implementation, &column_long_implementation });
IMPLEMENTATION(column, "a strip of columns in the registers of a CTA or a cluster; read once", column, column_fields, 2,
               launch_columns);

static const implementation *const implementations[] = { &row_implementation,
                                                         &pipeline_implementation,
                                                         &long_implementation,
                                                         &column_held_implementation,
                                                         &column_implementation,
                                                         &column_long_implementation,
                                                         NULL };

OPERATOR(softmax, softmax, "y = exp(x) / sum exp(x) along an axis, its logarithm, and their gradients",
         .workspace = offsetof(ckl_softmax_args, workspace));

/* Problem lines */

typedef struct softmax_problem {
    ckl_softmax_desc desc;
    quoted shape;
    int64_t axis;
} softmax_problem;

static const field fields[] = {
    FIELD_ROW(softmax_problem, quoted, shape, "256x1024", "", "sizes, outermost first") //
    FIELD_ROW(softmax_problem, int64_t, axis, "-1", "",
              "of the sums, -1 the last: the desc's outer, n, inner are before, along, behind") //
    SOFTMAX_DESC(FIELD_NESTED, (softmax_problem, desc))                                         //
};

static ckl_status prepare(void *problem)
{
    softmax_problem *p = problem;
    sizes shape;
    int axis;
    TRY(shape_parse("softmax", p->shape, &shape));
    TRY(shape_axis("softmax", &shape, p->axis, &axis));
    p->desc.outer = shape_elements(&shape, 0, axis);
    p->desc.n = shape.of[axis];
    p->desc.inner = shape_elements(&shape, axis + 1, shape.rank);
    if (p->desc.inner == 0) // no rows at all
        p->desc.outer = 0;
    return CKL_OK;
}

OPERATOR_LINE(softmax, softmax_problem, prepare);
