/*
 * softmax_row.c - rows that lie along memory. `row`: a row is read once and stays in registers, of a few lanes up to a
 * cluster. `pipeline`: longer rows flow through shared memory of CTAs or clusters. `long`: a row of any length and
 * alignment is read twice, tile by tile; the second time mostly from L2. Rows that start anywhere are ragged (row.h):
 * vectors are those of the output, and inputs may lie out of phase with it.
 */
#include "operators/softmax/softmax_config.h"
#include "skeletons/prefetch.h"

typedef struct rows {
    const softmax_form *form;
    row_split split; // of a tile of a row
    bool in_phase;   // rows of inputs and outputs
    softmax_values p;
    val cols;        // u32
    row_place place; // of this thread in its row
    row_spans spans; // of the row
} rows;

static rows declare(const softmax_row_config *cfg, row_split split, int kernel)
{
    rows r = { .form = &cfg->form, .split = split, .in_phase = true, .p = params_of(softmax) };
    if (kernel == 0 || cfg->form.dtype != F32) // single elements of 32 bits would spill
        min_ctas_per_sm(cfg->form.ctas_per_sm);
    r.cols = convert(U32, r.p.n);
    val inputs[SOFTMAX_INPUTS_MAX];
    for (int i = 0; i < softmax_inputs(r.form); i++)
        inputs[i] = softmax_input(r.form, &r.p, i);
    prefetch_small_rows(inputs, softmax_inputs(r.form), r.p.outer, r.p.n, softmax_input_pitch(r.form, &r.p),
                        r.form->dtype);
    return r;
}

static rows begin(const softmax_row_config *cfg, int kernel)
{
    rows r = declare(cfg, kernel ? row_split_anywhere(&cfg->split, cfg->form.dtype) : cfg->split, kernel);
    const bool is_forward = softmax_is_forward(&cfg->form);
    r.in_phase = kernel == 0;
    r.place = row_here(&r.split, r.p.outer, r.cols);
    r.spans =
        row_spans_of(&r.split, &r.place, is_forward ? r.p.y : r.p.dx, r.form->dtype, is_forward ? r.p.ldy : r.p.ldx);
    return r;
}

/* This thread's partition of a span, or of a tile of it. */
static tensor partition(const rows *r, const row_span *span, val pointer, val ld)
{
    return row_of_matrix(&span->split, &span->place, pointer, r->form->dtype, ld); // (VEC,STEPS)
}

/* The mask of a tile, in f32; no tensor where there is none. Its rows have a pitch of their own. */
static tensor load_mask(const rows *r, const row_span *span, tensor rX)
{
    if (r->form->mask == CKL_SOFTMAX_MASK_NONE)
        return (tensor){ 0 };
    const ckl_dtype dtype = r->form->mask == CKL_SOFTMAX_MASK_BOOL ? CKL_U8 : r->form->dtype;
    tensor rM = fragment_like(rX, F32); // (VEC,STEPS)
    row_place masked = span->place;
    masked.row = rem(div(span->place.row, r->p.mask_repeat), r->p.mask_rows);
    tensor tXgM = row_of_matrix(&span->split, &masked, r->p.mask, dtype, r->cols); // (VEC,STEPS)
    row_load_cut(&span->split, &span->place, row_is_outer(masked.row, r->p.mask_rows), tXgM, rM, 0);
    return rM;
}

/* t = scale * x + mask of a tile of x; x itself in its own type where there is nothing to compute. */
static tensor scores_of(const rows *r, tensor rX, tensor rM)
{
    const softmax_form *form = r->form;
    if (!form->scaled && form->mask == CKL_SOFTMAX_MASK_NONE)
        return rX;
    tensor rT = fragment_like(rX, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rT.layout); i++) {
        val t = at_f32(rX, i);
        t = form->scaled ? mul(t, r->p.scale) : t;
        t = form->mask == CKL_SOFTMAX_MASK_ADD ? add(t, at(rM, i)) : t;
        set(rT, i, form->mask == CKL_SOFTMAX_MASK_BOOL ? select(ne(at(rM, i), immf(0)), t, immf(-INFINITY)) : t);
    }
    return rT;
}

/* Of a tile, past whose end are scores of -inf or zeros: (VEC,STEPS) each. */
static void load_inputs(const rows *r, const row_span *span, tensor *rX)
{
    const int inputs = softmax_inputs(r->form);
    tensor from[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < inputs; i++)
        from[i] = partition(r, span, softmax_input(r->form, &r->p, i), softmax_input_pitch(r->form, &r->p));
    for (int i = 0; i < inputs; i++)
        rX[i] = fragment_like(from[i], r->form->dtype);
    for (int i = 0; i < inputs; i++)
        (r->in_phase ? row_load : row_load_among)(&span->split, &span->place, from[i], rX[i], softmax_outside(r->form));
}

static tensor load_scores(const rows *r, const row_span *span)
{
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    load_inputs(r, span, rX);
    return scores_of(r, rX[0], load_mask(r, span, rX[0]));
}

/* Of a tile of scores or their exponentials; the pair is that of the row. */
static void store_outputs(const rows *r, const row_span *span, softmax_output *output, tensor rT, const val *pair,
                          val factor)
{
    tensor tYgY = partition(r, span, r->p.y, r->p.ldy); // (VEC,STEPS)
    tensor rY = fragment_like(tYgY, F32);               // (VEC,STEPS)
    for (int step = 0, vec = span->split.vec; step < span->split.steps; step++) {
        for (int i = step * vec; i < (step + 1) * vec; i++)
            set(rY, i, output(r->form, at(rT, i), pair, factor));
        row_store_step(&span->split, &span->place, rY, tYgY, step);
    }
}

static void store_gradients(const rows *r, const row_span *span, tensor rY, tensor rDy, val sum)
{
    tensor tXgDx = partition(r, span, r->p.dx, r->p.ldx); // (VEC,STEPS)
    tensor rDx = fragment_like(tXgDx, F32);               // (VEC,STEPS)
    for (int step = 0, vec = span->split.vec; step < span->split.steps; step++) {
        for (int i = step * vec; i < (step + 1) * vec; i++)
            set(rDx, i, softmax_gradient(r->form, at(rY, i), at(rDy, i), sum, r->p.scale));
        row_store_step(&span->split, &span->place, rDx, tXgDx, step);
    }
}

/* Rows in registers */

static void forward(const rows *r)
{
    const row_spans *spans = &r->spans;
    val pair[ONLINE_VALUES], own[ROW_SPANS_MAX];
    tensor rT[ROW_SPANS_MAX], rE[ROW_SPANS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < spans->count; i++) {
        rT[i] = load_scores(r, &spans->of[i]);
        rE[i] = r->form->log ? (tensor){ .layout = rT[i].layout } : fragment_like(rT[i], F32);
    }
    cluster_meet(r->split.cluster);
    online_begin(pair);
    for (int i = 0; i < spans->count; i++)
        own[i] = online_add_keeping(pair, rT[i], rE[i]); // a logarithm keeps none
    row_reduce(&r->split, &online_reduction, pair);
    const val log_sum = r->form->log ? online_log_sum(pair) : immf(0);
    for (int i = 0; i < spans->count; i++)
        if (r->form->log)
            store_outputs(r, &spans->of[i], softmax_of_score, rT[i], pair, log_sum);
        else
            store_outputs(r, &spans->of[i], softmax_of_exponential, rE[i], pair, online_factor(pair, own[i]));
}

static void backward(const rows *r)
{
    const row_spans *spans = &r->spans;
    tensor rX[ROW_SPANS_MAX][SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    for (int i = 0; i < spans->count; i++)
        load_inputs(r, &spans->of[i], rX[i]);
    cluster_meet(r->split.cluster);
    val sum = variable(F32, softmax_dot(r->form, rX[0][0], rX[0][1]));
    for (int i = 1; i < spans->count; i++)
        assign(sum, add(sum, softmax_dot(r->form, rX[i][0], rX[i][1])));
    row_reduce(&r->split, softmax_reduction(r->form), &sum);
    for (int i = 0; i < spans->count; i++)
        store_gradients(r, &spans->of[i], rX[i][0], rX[i][1], sum);
}

void softmax_row(const void *config, int kernel)
{
    rows r = begin(config, kernel);
    row_wait(&r.split);
    if (softmax_is_forward(r.form))
        forward(&r);
    else
        backward(&r);
}

/* Rows in two passes, tile by tile */

/* What the first pass over a row finds and the second one needs. */
typedef struct found {
    const rows *r;
    val pair[ONLINE_VALUES], factor; // forward
    val sum;                         // backward
} found;

static val *state_of(found *f)
{
    return softmax_is_forward(f->r->form) ? f->pair : &f->sum;
}

static void add_scores(const row_span *span, int chunk, const tensor *rX, void *user)
{
    found *f = user;
    (void)chunk;
    online_add(f->pair, scores_of(f->r, rX[0], load_mask(f->r, span, rX[0])));
}

static void write_outputs(const row_span *span, int chunk, const tensor *rX, void *user)
{
    found *f = user;
    (void)chunk;
    tensor rT = scores_of(f->r, rX[0], load_mask(f->r, span, rX[0])); // (VEC,STEPS)
    store_outputs(f->r, span, softmax_of_score, rT, f->pair, f->factor);
}

static void add_products(const row_span *span, int chunk, const tensor *rX, void *user)
{
    found *f = user;
    (void)span, (void)chunk;
    assign(f->sum, add(f->sum, softmax_dot(f->r->form, rX[0], rX[1])));
}

static void write_gradients(const row_span *span, int chunk, const tensor *rX, void *user)
{
    found *f = user;
    (void)chunk;
    store_gradients(f->r, span, rX[0], rX[1], f->sum);
}

static row_visit *sum_visit(const found *f)
{
    return softmax_is_forward(f->r->form) ? add_scores : add_products;
}

static row_visit *write_visit(const found *f)
{
    return softmax_is_forward(f->r->form) ? write_outputs : write_gradients;
}

/* Of a state that is the row's. */
static void find_factor(found *f)
{
    if (softmax_is_forward(f->r->form))
        f->factor = softmax_factor(f->r->form, f->pair);
}

/* Rows that are read twice */

static void visit_tile(found *f, const row_span *tile, row_visit *visit)
{
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    load_inputs(f->r, tile, rX);
    visit(tile, 0, rX, f);
}

/* The tiles of the row's first span, then the ends of a ragged row. */
static void over_tiles(found *f, row_visit *visit)
{
    const rows *r = f->r;
    LOOP_FROM(start, imm(0), r->cols, imm((int)row_split_cols(&r->split))) {
        row_span tile = { r->split, row_from(&r->spans.of[0].place, start) };
        visit_tile(f, &tile, visit);
    }
    if (r->spans.count > 1)
        visit_tile(f, &r->spans.of[1], visit);
}

void softmax_long(const void *config, int kernel)
{
    rows r = begin(config, kernel);
    found f = { .r = &r };
    grid_wait(); // no launch_dependents(): early CTAs of the next kernel would crowd some SMs
    cluster_meet(r.split.cluster);
    softmax_begin(r.form, state_of(&f));
    over_tiles(&f, sum_visit(&f));
    row_reduce(&r.split, softmax_reduction(r.form), state_of(&f));
    find_factor(&f);
    over_tiles(&f, write_visit(&f));
}

/* Rows that flow through shared memory */

static void first_pass(row_pipeline *s, val row, void *user)
{
    found *f = user;
    if (softmax_is_forward(f->r->form))
        online_clear(f->pair);
    else
        assign(f->sum, immf(0));
    row_pipeline_first_pass(s, row, sum_visit(f), f);
    row_pipeline_reduce_begin(s, softmax_reduction(f->r->form), state_of(f));
}

static void second_pass(row_pipeline *s, val row, void *user)
{
    found *f = user;
    row_pipeline_reduce_end(s, softmax_reduction(f->r->form), state_of(f));
    find_factor(f);
    row_pipeline_second_pass(s, row, write_visit(f), f);
}

void softmax_pipeline(const void *config, int kernel)
{
    const softmax_row_config *cfg = config;
    if (kernel == 1) { // memory that bulk copies cannot read
        softmax_long(config, kernel);
        return;
    }
    row_pipeline_split split = row_pipeline_split_of(&cfg->split, &cfg->flow);
    rows r = declare(cfg, split.chunk, 0);
    const val pitch = softmax_input_pitch(r.form, &r.p);
    const row_pipeline_matrix x = { softmax_input(r.form, &r.p, 0), pitch };
    const row_pipeline_matrices matrices = { .dtype = cfg->form.dtype,
                                             .rows = r.p.outer,
                                             .cols = r.cols,
                                             .input_count = softmax_inputs(&cfg->form),
                                             .inputs = { x, { softmax_input(r.form, &r.p, 1), pitch } },
                                             .output = x }; // in phase
    row_pipeline s = row_pipeline_begin(&split, &matrices, SOFTMAX_PIPELINE_VALUES, r.p.counter);
    s.fill = softmax_outside(r.form);
    found f = { .r = &r, .sum = variable(F32, immf(0)) };
    online_begin(f.pair);
    row_pipeline_run(&s, &(row_passes){ first_pass, NULL, second_pass }, &f);
    row_pipeline_end(&s);
}
