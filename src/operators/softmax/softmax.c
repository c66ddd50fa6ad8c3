/* softmax.c - softmax and its gradient: validation, choice of kernel, launch, problem lines (a shape and an axis become rows). */
#include "cutekernellib/operators/softmax.h"

#include "base/shape.h"
#include "operators/operators.h"
#include "operators/softmax/softmax_config.h"
#include "skeletons/row_cost.h"
#include "skeletons/one_pass.h"
#include "skeletons/two_pass.h"

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

enum { CLUSTER_PORTABLE = 8, CTAS_MAX = INT32_MAX };

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

/* Rows along memory */

enum {
    ROW_FORWARD = 32,            // elements of a thread: each takes an f32 register
    ROW_BACKWARD = 16,           // registers of a thread for y, and as many for dy
    ROW_BACKWARD_ELEMENTS = 32,  // at most
    ROW_ELEMENTS = 16 << 10,     // of 512 threads: longer rows leave room for one CTA on an SM
    ROW_ELEMENTS_HALF = 8 << 10, // of 16 bits, backward: the same
    LONG_THREADS = 512,
    ROW_LONG_MASKED = 4 << 10, // elements of a ragged row; of longer ones the mask takes half of the registers
    ROW_BOUNDED_THREADS = 256, // logarithms keep scores beside exponentials: unbounded, ptxas takes 75 registers,
    ROW_THREADS_OF_SM = 1024,  // with which only one CTA of 512 threads fits an SM
};

/* Do rows start or end off 16-byte boundaries? */
static bool is_ragged(const ckl_softmax_desc *d)
{
    return softmax_vec_of(d) != row_vec_full(d->dtype);
}

/*
 * Registers of a thread for a row. The mask of a ragged row is cut out of vectors of its own: 7665x7665 bf16 took 106
 * registers and 107.1 us by 256 threads, 40 and 97.9 by 512 (bench/notes/norm.md).
 */
static int row_registers(const ckl_softmax_desc *d)
{
    const int forward = ROW_FORWARD * (int)ckl_dtype_bytes(d->dtype) / (int)sizeof(float);
    if (d->mask != CKL_SOFTMAX_MASK_NONE && is_ragged(d) && d->n > ROW_LONG_MASKED && d->n <= ROW_ELEMENTS)
        return forward / 2;
    return d->direction == CKL_DIRECTION_FORWARD ? forward : ROW_BACKWARD;
}

/* Do ragged rows of all tensors lie in phase? */
static bool in_phase(const ckl_softmax_desc *d)
{
    return row_in_phase(d->dtype, d->outer, d->ldx, d->ldy);
}

static ckl_status check_last_axis(const char *what, const ckl_softmax_desc *d)
{
    if (d->inner != 1)
        FAIL(CKL_UNSUPPORTED, "%s: inner=%" PRId64 ", the axis is not the last one", what, d->inner);
    return softmax_check_length(what, d);
}

static ckl_status choose_row(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_last_axis("softmax row", d));
    const bool half_gradients = d->direction == CKL_DIRECTION_BACKWARD && ckl_dtype_bytes(d->dtype) == 2;
    if (d->n > (half_gradients ? ROW_ELEMENTS_HALF : ROW_ELEMENTS) && device->has_tma &&
        d->mask == CKL_SOFTMAX_MASK_NONE && (!is_ragged(d) || in_phase(d)))
        FAIL(CKL_UNSUPPORTED, "softmax row: rows of n=%" PRId64 " are faster if they flow", d->n);
    if (!(is_ragged(d) && row_split_choose_ragged(d->n, d->dtype, row_registers(d), 1, &c->split)) &&
        !row_split_choose(d->n, softmax_vec_of(d), d->dtype, row_registers(d), 1, &c->split))
        FAIL(CKL_UNSUPPORTED, "softmax row: rows of n=%" PRId64 " do not fit the registers of one CTA", d->n);
    row_split_widen(&c->split, d->outer, d->n, d->dtype, device);
    if (d->direction == CKL_DIRECTION_BACKWARD && c->split.vec * c->split.steps > ROW_BACKWARD_ELEMENTS)
        FAIL(CKL_UNSUPPORTED, "softmax row: y and dy of n=%" PRId64 " do not fit the registers", d->n);
    c->form = softmax_form_of(d);
    if (d->log && d->direction == CKL_DIRECTION_FORWARD && d->mask == CKL_SOFTMAX_MASK_NONE &&
        c->split.threads >= ROW_BOUNDED_THREADS)
        c->form.ctas_per_sm = ROW_THREADS_OF_SM / c->split.threads;
    return CKL_OK;
}

static bool candidate_row(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    (void)device;
    c->form = softmax_form_of(d);
    return row_split_candidate(d->n, d->dtype, softmax_vec_of(d), i, &c->split);
}

static bool is_trusted_row(const void *config)
{
    return row_split_is_trusted(&((const softmax_row_config *)config)->split);
}

static row_work work_of(const ckl_softmax_desc *d, const softmax_row_config *c)
{
    return (row_work){ .rows = d->outer,
                       .cols = d->n,
                       .dtype = d->dtype,
                       .inputs = softmax_pipeline_inputs(&c->form),
                       .outputs = 1,
                       .ctas_per_sm = c->form.ctas_per_sm };
}

static plan_cost cost_row(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    const row_work work = work_of(desc, c);
    return row_cost(&work, &c->split, device);
}

/* Rows are read twice, the second time from L2. */
static plan_cost cost_long(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    row_work work = work_of(desc, c);
    work.again = 0.6;
    work.tile_cycles = 600;
    return row_cost(&work, &c->split, device);
}

static plan_cost cost_pipeline(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    row_work work = work_of(desc, c);
    work.of = (memory_kernel){ .us = 3.7, .wait_cycles = -1900 };
    work.smem_bytes = device->smem_per_sm_bytes / max_i64(1, c->form.ctas_per_sm);
    work.again = c->flow.residence == (choice)ROW_RELOADED ? 0.6 : 0;
    return row_cost(&work, &c->split, device);
}

/* As many CTAs a row as keep their registers busy. */
static ckl_status choose_long(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_last_axis("softmax long", d));
    const int vec = row_vec_full(d->dtype), registers = 16 / (int)sizeof(float);
    c->form = softmax_form_of(d);
    c->split = (row_split){ .threads = LONG_THREADS,
                            .row_threads = LONG_THREADS,
                            .cluster = device->has_tma ? CLUSTER_PORTABLE : 1,
                            .vec = vec,
                            .steps = (int)max_i64(1, row_registers(d) / registers),
                            .ragged = is_ragged(d) };
    while (c->split.cluster > 1 && row_split_cols(&c->split) / 2 >= d->n)
        c->split.cluster /= 2;
    return CKL_OK;
}

/* Each ragged row that flows must have a vector, and lie in phase with what is written. */
static ckl_status check_ragged(const char *what, const ckl_softmax_desc *d, bool ragged)
{
    if (ragged && d->n < 2 * row_vec_full(d->dtype))
        FAIL(CKL_UNSUPPORTED, "%s: n=%" PRId64 " may be less than a vector between 16-byte boundaries", what, d->n);
    if (ragged && !in_phase(d))
        FAIL(CKL_UNSUPPORTED,
             "%s: ldx=%" PRId64 " ldy=%" PRId64 ", rows of x and y lie differently to 16-byte boundaries", what, d->ldx,
             d->ldy);
    return CKL_OK;
}

static ckl_status choose_pipeline(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_last_axis("softmax pipeline", d));
    TRY(check_ragged("softmax pipeline", d, is_ragged(d)));
    c->form = softmax_form_of(d);
    const int inputs = softmax_pipeline_inputs(&c->form);
    row_pipeline_split split = row_pipeline_choose(d->n, is_ragged(d), d->dtype, inputs, device);
    row_pipeline_config(&split, &c->split, &c->flow);
    c->form.ctas_per_sm = row_pipeline_ctas_per_sm(&split, d->dtype, inputs, SOFTMAX_PIPELINE_VALUES, device);
    return row_pipeline_admit("softmax pipeline", &split, d->n, d->dtype, inputs, SOFTMAX_PIPELINE_VALUES, device);
}

static ckl_status admit_rows(const char *what, bool is_long, const ckl_softmax_desc *d, const ckl_device_info *device,
                             const softmax_row_config *c)
{
    TRY(check_last_axis(what, d));
    int64_t cols = is_long ? min_i64(d->n, row_split_cols(&c->split)) : d->n;
    TRY(row_split_admit(what, &c->split, cols, c->form.dtype, device));
    TRY(softmax_admit_form(what, d, &c->form, c->split.vec, c->split.ragged));
    if (is_long && c->split.exact)
        FAIL(CKL_INVALID, "%s: exact=1 is for rows in registers", what);
    if (d->outer > CTAS_MAX / c->split.cluster * row_split_rows(&c->split))
        FAIL(CKL_UNSUPPORTED, "%s: outer=%" PRId64 " takes more than %d CTAs", what, d->outer, CTAS_MAX);
    return CKL_OK;
}

static ckl_status admit_row(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_rows("softmax row", false, desc, device, config);
}

static ckl_status admit_long(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_rows("softmax long", true, desc, device, config);
}

static ckl_status admit_pipeline(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "softmax pipeline";
    const ckl_softmax_desc *d = desc;
    const softmax_row_config *c = config;
    row_pipeline_split split = row_pipeline_split_of(&c->split, &c->flow);
    TRY(check_last_axis(what, d));
    TRY(check_ragged(what, d, split.chunk.ragged));
    TRY(row_pipeline_admit(what, &split, d->n, c->form.dtype, softmax_pipeline_inputs(&c->form),
                           SOFTMAX_PIPELINE_VALUES, device));
    TRY(row_pipeline_dynamic_admit(what, &split, d->n));
    return softmax_admit_form(what, d, &c->form, c->split.vec, c->split.ragged);
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
    const int64_t bytes = vec * (int64_t)ckl_dtype_bytes(d->dtype),
                  mask_bytes = d->mask == CKL_SOFTMAX_MASK_BOOL ? vec : bytes;
    return PLAN_ALIGNED(bytes, a->x, a->y, a->dy, a->dx) && PLAN_ALIGNED(mask_bytes, a->mask) ? 0 : 1;
}

/* For ragged rows: 0 if those of all tensors but the mask lie in phase, else 1. */
static int kernel_for_ragged(const ckl_softmax_desc *d, const ckl_softmax_args *a)
{
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    const bool pointers = is_forward ? row_starts_in_phase(a->x, a->y)
                                     : row_starts_in_phase(a->y, a->dx) && row_starts_in_phase(a->dy, a->dx);
    return pointers && in_phase(d) ? 0 : 1;
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

static ckl_status launch_columns(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_column_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const int kernel = kernel_for(d, args, c->split.vec);
    const column_split split = kernel ? column_split_scalar(&c->split) : c->split;
    softmax_params params = params_for(d, args);
    params.strips = (uint32_t)column_split_strips(&split, d->inner);
    const plan_grid grid = { .x = column_split_ctas(&split, d->outer, d->inner) };
    return plan_launch(plan, kernel, grid, &params, stream);
}

/* Clusters that take the strips: as many as fit, but no more than needed to end at the same time. */
static ckl_status launch_column_pipelines(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_column_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const int64_t strips = column_split_strips(&c->split, d->inner), all = d->outer * strips;
    if (kernel_for(d, args, c->split.vec) != 0)
        return launch_columns(plan, args, stream);
    softmax_params params = params_for(d, args);
    params.strips = (uint32_t)strips;
    const plan_grid grid = { .x = even_workers(all, plan->kernels[0].clusters_resident) * c->split.cluster };
    return plan_launch(plan, 0, grid, &params, stream);
}

/* The workspace of column_chunks: a counter of items, one for each strip, then the states of all chunks and strips. */
typedef struct chunks_view {
    column_split split;
    int64_t strips, chunks, counters_bytes, states_bytes;
} chunks_view;

static chunks_view chunks_of(const ckl_softmax_desc *d, const softmax_column_config *c, int kernel)
{
    chunks_view v = { .split = kernel ? column_split_scalar(&c->split) : c->split };
    v.strips = column_split_strips(&v.split, d->inner);
    v.chunks = ceil_div(d->n, column_split_lines(&v.split));
    v.counters_bytes = round_up(two_pass_counter_bytes(d->outer * v.strips), PLAN_WORKSPACE_ALIGNMENT);
    const int64_t values = column_split_columns(&v.split) * softmax_state_values(&c->form);
    v.states_bytes = d->outer * v.strips * (v.chunks + 1) * values * (int64_t)sizeof(float);
    return v;
}

static int64_t chunks_workspace(const ckl_plan *plan)
{
    const chunks_view aligned = chunks_of(plan->desc, plan->config, 0), scalar = chunks_of(plan->desc, plan->config, 1);
    return max_i64(aligned.counters_bytes + aligned.states_bytes, scalar.counters_bytes + scalar.states_bytes);
}

static ckl_status launch_chunks(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_column_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const ckl_softmax_args *a = args;
    const int kernel = kernel_for(d, a, c->split.vec);
    const chunks_view v = chunks_of(d, c, kernel);
    const int64_t ahead = c->lag ? c->lag : plan->kernels[kernel].clusters_resident;
    char *workspace = plan_workspace(plan, a->workspace);
    softmax_params params = params_for(d, a);
    params.strips = (uint32_t)v.strips;
    params.chunks = (uint32_t)v.chunks;
    params.lag = two_pass_lag(d->outer * v.strips, 1, v.chunks, ahead);
    params.counter = workspace;
    params.states = workspace + v.counters_bytes;
    return plan_launch(plan, kernel, (plan_grid){ .x = two_pass_ctas(d->outer * v.strips, v.chunks) }, &params, stream);
}

/* The workspace of column_held: counters of strips and chunks, then the states of all. */
static chunks_view held_of(const ckl_softmax_desc *d, const softmax_column_config *c)
{
    chunks_view v = { .split = c->split };
    v.strips = column_split_strips(&v.split, d->inner);
    v.chunks = ceil_div(d->n, c->tiles * column_split_lines(&v.split));
    v.counters_bytes = round_up(one_pass_counter_bytes(d->outer * v.strips, v.chunks), PLAN_WORKSPACE_ALIGNMENT);
    const int64_t values = column_split_columns(&v.split) * softmax_state_values(&c->form);
    v.states_bytes = d->outer * v.strips * (v.chunks + 1) * values * (int64_t)sizeof(float);
    return v;
}

static int64_t held_workspace(const ckl_plan *plan)
{
    const chunks_view v = held_of(plan->desc, plan->config);
    return v.counters_bytes + v.states_bytes;
}

static ckl_status launch_held(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const softmax_column_config *c = plan->config;
    const ckl_softmax_desc *d = plan->desc;
    const ckl_softmax_args *a = args;
    if (kernel_for(d, a, c->split.vec) != 0)
        return launch_columns(plan, args, stream);
    const chunks_view v = held_of(d, c);
    char *workspace = plan_workspace(plan, a->workspace);
    softmax_params params = params_for(d, a);
    params.strips = (uint32_t)v.strips;
    params.chunks = (uint32_t)v.chunks;
    params.counter = workspace;
    params.states = workspace + v.counters_bytes;
    return plan_launch(plan, 0, (plan_grid){ .x = d->outer * v.strips * v.chunks }, &params, stream);
}

static const field desc_fields[] = { SOFTMAX_SIZES(FIELD_ROW, ckl_softmax_desc) //
                                     SOFTMAX_DESC(FIELD_ROW, ckl_softmax_desc) };

static const field row_fields[] = { SOFTMAX_FORM(FIELD_NESTED, (softmax_row_config, form)) //
                                    ROW_SPLIT(FIELD_NESTED, (softmax_row_config, split)) };

static const field pipeline_fields[] = { SOFTMAX_FORM(FIELD_NESTED, (softmax_row_config, form)) //
                                         ROW_SPLIT(FIELD_NESTED, (softmax_row_config, split))   //
                                         ROW_FLOW(FIELD_NESTED, (softmax_row_config, flow)) };

static const field column_fields[] = { SOFTMAX_FORM(FIELD_NESTED, (softmax_column_config, form)) //
                                       COLUMN_SPLIT(FIELD_NESTED, (softmax_column_config, split)) };

static const field column_pipeline_fields[] = { SOFTMAX_FORM(FIELD_NESTED, (softmax_column_config, form))  //
                                                COLUMN_SPLIT(FIELD_NESTED, (softmax_column_config, split)) //
                                                SOFTMAX_COLUMN_TILES(FIELD_ROW, softmax_column_config)     //
                                                SOFTMAX_COLUMN_DEPTH(FIELD_ROW, softmax_column_config) };

static const field column_chunks_fields[] = { SOFTMAX_FORM(FIELD_NESTED, (softmax_column_config, form))  //
                                              COLUMN_SPLIT(FIELD_NESTED, (softmax_column_config, split)) //
                                              SOFTMAX_COLUMN_LAG(FIELD_ROW, softmax_column_config) };

static const field column_held_fields[] = { SOFTMAX_FORM(FIELD_NESTED, (softmax_column_config, form))  //
                                            COLUMN_SPLIT(FIELD_NESTED, (softmax_column_config, split)) //
                                            SOFTMAX_COLUMN_TILES(FIELD_ROW, softmax_column_config) };

#define IMPLEMENTATION(symbol, about, family, ...)                                                             \
    static const implementation symbol##_implementation = { .name = #symbol,                                   \
                                                            .summary = about,                                  \
                                                            .config_bytes = sizeof(softmax_##family##_config), \
                                                            .describe = softmax_##symbol,                      \
                                                            .kernels = 2,                                      \
                                                            .params = &softmax_param_list,                     \
                                                            __VA_ARGS__ }

IMPLEMENTATION(row, "a row in the registers of some lanes, a warp or a CTA; read once", row, .choose = choose_row,
               .admit = admit_row, .launch = launch_rows, .config = FIELD_TABLE(row_fields), .candidate = candidate_row,
               .cost = cost_row, .is_trusted = is_trusted_row);
IMPLEMENTATION(pipeline, "rows flow through shared memory ahead of the threads; CTAs or clusters take them one by one",
               row, .choose = choose_pipeline, .cost = cost_pipeline, .admit = admit_pipeline, .launch = launch_rows,
               .config = FIELD_TABLE(pipeline_fields), .target = IR_SM90A, .workspace_bytes = pipeline_workspace);
IMPLEMENTATION(long, "a row of any length by a CTA or a cluster; read twice, tile by tile", row, .choose = choose_long,
               .cost = cost_long, .admit = admit_long, .launch = launch_rows, .config = FIELD_TABLE(row_fields));
IMPLEMENTATION(column_pipeline,
               "strips of columns in shared memory, one after the other; CTAs or clusters stay for them", column,
               .choose = softmax_choose_column_pipeline, .cost = softmax_cost_column_pipeline,
               .admit = softmax_admit_column_pipeline, .launch = launch_column_pipelines,
               .config = FIELD_TABLE(column_pipeline_fields), .target = IR_SM90A);
IMPLEMENTATION(column_chunks, "strips in chunks, a CTA for the sums of each and one for its outputs, while x is in L2",
               column, .choose = softmax_choose_column_chunks, .cost = softmax_cost_column_chunks,
               .admit = softmax_admit_column_chunks, .launch = launch_chunks,
               .config = FIELD_TABLE(column_chunks_fields), .workspace_bytes = chunks_workspace);
IMPLEMENTATION(column_held, "strips in chunks, each in the shared memory of a CTA until the sums of all are known",
               column, .choose = softmax_choose_column_held, .cost = softmax_cost_column_held,
               .admit = softmax_admit_column_held, .launch = launch_held, .config = FIELD_TABLE(column_held_fields),
               .workspace_bytes = held_workspace);
IMPLEMENTATION(column, "a strip of columns in the registers of a CTA or a cluster; read once", column,
               .choose = softmax_choose_column, .cost = softmax_cost_column, .admit = softmax_admit_column,
               .launch = launch_columns, .config = FIELD_TABLE(column_fields));
IMPLEMENTATION(column_long, "a strip of any length by a CTA or a cluster; read twice, tile by tile", column,
               .choose = softmax_choose_column_long, .cost = softmax_cost_column_long,
               .admit = softmax_admit_column_long, .launch = launch_columns, .config = FIELD_TABLE(column_fields));

static const implementation *const implementations[] = {
    &row_implementation,         &pipeline_implementation,      &long_implementation,
    &column_held_implementation, &column_chunks_implementation, &column_pipeline_implementation,
    &column_implementation,      &column_long_implementation,   NULL
};

OPERATOR(softmax, softmax, "y = exp(x) / sum exp(x) along an axis, its logarithm, and their gradients",
         .workspace = offsetof(ckl_softmax_args, workspace));

/* Problem lines */

typedef struct softmax_problem {
    ckl_softmax_desc desc;
    quoted shape;
    int64_t axis;
} softmax_problem;

static const field fields[] = {
    FIELD_ROW(softmax_problem, quoted, shape, "256x1024", "", "sizes, outermost first")                  //
    FIELD_ROW(softmax_problem, int64_t, axis, "-1", "", "along which sums run; negative: from the last") //
    SOFTMAX_DESC(FIELD_NESTED, (softmax_problem, desc))                                                  //
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
