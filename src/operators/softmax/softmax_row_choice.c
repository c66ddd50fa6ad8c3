/* softmax_row_choice.c - the configs that rows along memory get and may have; measured in bench/notes/norm.md. */
#include "base/math.h"
#include "base/status.h"
#include "operators/softmax/softmax_config.h"
#include "skeletons/residency.h"
#include "skeletons/row_cost.h"

enum {
    CTAS_MAX = INT32_MAX,
    ROW_FORWARD = 32,               // elements of a thread: each takes an f32 register
    ROW_BACKWARD = 16,              // registers of a thread for y, and as many for dy
    ROW_BACKWARD_ELEMENTS = 32,     // at most
    ROW_ELEMENTS = 16 << 10,        // of 512 threads: longer rows leave room for one CTA on an SM
    ROW_ELEMENTS_PACKED = 24 << 10, // of 16 bits, forward: 6144x24576 bf16 146.9 us, by a ring 154.4
    ROW_ELEMENTS_HALF = 8 << 10,    // of 16 bits, backward: the same
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
    const int forward = ROW_FORWARD * dtype_bytes(d->dtype) / (int)sizeof(float);
    if (d->mask != CKL_SOFTMAX_MASK_NONE && is_ragged(d) && d->n > ROW_LONG_MASKED && d->n <= ROW_ELEMENTS)
        return forward / 2;
    return d->direction == CKL_DIRECTION_FORWARD ? forward : ROW_BACKWARD;
}

bool softmax_in_phase(const ckl_softmax_desc *d)
{
    return row_in_phase(d->dtype, d->outer, d->ldx, d->ldy);
}

static ckl_status check_last_axis(const char *what, const ckl_softmax_desc *d)
{
    if (d->inner != 1)
        FAIL(CKL_UNSUPPORTED, "%s: inner=%" PRId64 ", the axis is not the last one", what, d->inner);
    return softmax_check_length(what, d);
}

ckl_status softmax_choose_row(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_last_axis("softmax row", d));
    const bool half = dtype_bytes(d->dtype) == 2, backward = d->direction == CKL_DIRECTION_BACKWARD;
    const int most = !half ? ROW_ELEMENTS : backward ? ROW_ELEMENTS_HALF : ROW_ELEMENTS_PACKED;
    if (d->n > most && device->has_tma && d->mask == CKL_SOFTMAX_MASK_NONE && (!is_ragged(d) || softmax_in_phase(d)))
        FAIL(CKL_UNSUPPORTED, "softmax row: rows of n=%" PRId64 " are faster if they flow", d->n);
    if (!(is_ragged(d) && row_split_choose_ragged(d->n, d->dtype, row_registers(d), 1, &c->split)) &&
        !row_split_choose(d->n, softmax_vec_of(d), d->dtype, row_registers(d), 1, &c->split))
        FAIL(CKL_UNSUPPORTED, "softmax row: rows of n=%" PRId64 " do not fit the registers of one CTA", d->n);
    row_split_finish(&c->split, d->outer, d->n, d->dtype, 2, device);
    if (d->direction == CKL_DIRECTION_FORWARD && !d->log && d->mask == CKL_SOFTMAX_MASK_NONE && !is_ragged(d))
        row_split_halve(d->n, ROW_BOUNDED_THREADS, ROW_STEPS_HALVED, &c->split);
    if (d->direction == CKL_DIRECTION_BACKWARD && c->split.vec * c->split.steps > ROW_BACKWARD_ELEMENTS)
        FAIL(CKL_UNSUPPORTED, "softmax row: y and dy of n=%" PRId64 " do not fit the registers", d->n);
    c->form = softmax_form_of(d);
    if ((d->log || (half && d->n > ROW_ELEMENTS && d->n <= ROW_ELEMENTS_PACKED)) && !backward &&
        d->mask == CKL_SOFTMAX_MASK_NONE && c->split.threads >= ROW_BOUNDED_THREADS)
        c->form.ctas_per_sm = ROW_THREADS_OF_SM / c->split.threads;
    return CKL_OK;
}

bool softmax_candidate_row(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    c->form = softmax_form_of(d);
    if (!row_split_candidate(d->n, d->dtype, softmax_vec_of(d), i, &c->split))
        return false;
    row_split_finish(&c->split, d->outer, d->n, d->dtype, 2, device);
    return true;
}

bool softmax_is_trusted_row(const void *config)
{
    const softmax_row_config *c = config;
    return row_split_is_trusted(&c->split, c->form.dtype);
}

static row_work work_of(const ckl_softmax_desc *d, const softmax_row_config *c)
{
    return (row_work){ .rows = d->outer,
                       .cols = d->n,
                       .dtype = d->dtype,
                       .inputs = softmax_inputs(&c->form),
                       .outputs = 1,
                       .ctas_per_sm = c->form.ctas_per_sm };
}

plan_cost softmax_cost_row(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    const row_work work = work_of(desc, c);
    return row_cost(&work, &c->split, device);
}

plan_cost softmax_cost_long(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    row_work work = work_of(desc, c);
    work.again = softmax_again(desc, device);
    work.tile_cycles = 600;
    return row_cost(&work, &c->split, device);
}

plan_cost softmax_cost_pipeline(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_row_config *c = config;
    row_work work = work_of(desc, c);
    work.of = (memory_kernel){ .us = 3.7, .wait_cycles = -1900 };
    work.smem_bytes = device->smem_per_sm_bytes / max_i64(1, c->form.ctas_per_sm);
    return row_cost(&work, &c->split, device);
}

/* As many CTAs a row as keep their registers busy. */
ckl_status softmax_choose_long(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_last_axis("softmax long", d));
    const int vec = row_vec_full(d->dtype), registers = 16 / (int)sizeof(float);
    c->form = softmax_form_of(d);
    c->split = (row_split){ .threads = LONG_THREADS,
                            .row_threads = LONG_THREADS,
                            .cluster = residency_cluster_max(device),
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
    if (ragged && !softmax_in_phase(d))
        FAIL(CKL_UNSUPPORTED,
             "%s: ldx=%" PRId64 " ldy=%" PRId64 ", rows of x and y lie differently to 16-byte boundaries", what, d->ldx,
             d->ldy);
    return CKL_OK;
}

ckl_status softmax_choose_pipeline(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_row_config *c = config;
    TRY(check_last_axis("softmax pipeline", d));
    TRY(check_ragged("softmax pipeline", d, is_ragged(d)));
    c->form = softmax_form_of(d);
    const int inputs = softmax_inputs(&c->form);
    row_pipeline_split split;
    if (!row_pipeline_choose(d->outer, d->n, is_ragged(d), d->dtype, inputs, device, &split))
        FAIL(CKL_UNSUPPORTED, "softmax pipeline: rows of n=%" PRId64 " fit no ring", d->n);
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

ckl_status softmax_admit_row(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_rows("softmax row", false, desc, device, config);
}

ckl_status softmax_admit_long(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_rows("softmax long", true, desc, device, config);
}

ckl_status softmax_admit_pipeline(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "softmax pipeline";
    const ckl_softmax_desc *d = desc;
    const softmax_row_config *c = config;
    row_pipeline_split split = row_pipeline_split_of(&c->split, &c->flow);
    TRY(check_last_axis(what, d));
    TRY(check_ragged(what, d, split.chunk.ragged));
    TRY(row_pipeline_admit(what, &split, d->n, c->form.dtype, softmax_inputs(&c->form), SOFTMAX_PIPELINE_VALUES,
                           device));
    TRY(row_pipeline_dynamic_admit(what, &split, d->n));
    return softmax_admit_form(what, d, &c->form, c->split.vec, c->split.ragged);
}
