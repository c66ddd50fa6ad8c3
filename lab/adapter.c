/* adapter.c - defaults that follow from the table of operands. */
#include "lab/adapter.h"

#include <math.h>
#include <string.h>

#include "base/math.h"
#include "operators/line.h"

enum { SLICE_ELEMENTS = 4096 }; // of a long row whose elements can be computed alone

ckl_status adapter_prepare(const operator_test *t, void *problem)
{
    TRY(line_prepare(t->line, problem));
    return t->prepare ? t->prepare(problem) : CKL_OK;
}

/* As the operator lists them; a tensor that may be NULL is included. */
static int list_operands(const operator_info *op, const void *desc, operand *out)
{
    plan_tensor tensors[PLAN_TENSORS_MAX];
    int count = op->tensors ? op->tensors(desc, tensors) : 0;
    for (int i = 0; i < count; i++) {
        const plan_tensor *t = &tensors[i];
        ckl_dtype dtype = t->absent ? CKL_DTYPE_DEFAULT : t->dtype;
        out[i] = operand_tensor(t->name, t->output ? OPERAND_OUT : OPERAND_IN, dtype, t->rank, t->shape, t->stride);
    }
    return count;
}

/* Elements of one operand; 0 if it is absent. */
static double elements_of(const operand *o)
{
    double elements = o->dtype != CKL_DTYPE_DEFAULT;
    for (int d = 0; d < o->rank; d++)
        elements *= (double)o->shape[d];
    return elements;
}

/* Where no output has elements the inputs do not matter, whatever their sizes: all are absent. */
static void drop_operands_of_nothing(operand *all, int count)
{
    for (int i = 0; i < count; i++)
        if (all[i].role != OPERAND_IN && elements_of(&all[i]) > 0)
            return;
    for (int i = 0; i < count; i++)
        all[i].dtype = CKL_DTYPE_DEFAULT;
}

int adapter_operands(const operator_test *t, const void *problem, operand out[OPERANDS_MAX])
{
    memset(out, 0, OPERANDS_MAX * sizeof *out); // absent where operands() leaves them alone
    int listed = list_operands(t->op, problem, out), stated = t->operands ? t->operands(problem, out) : 0;
    int count = stated ? stated : listed;
    drop_operands_of_nothing(out, count);
    return count;
}

void adapter_desc(const operator_test *t, const void *problem, void *desc)
{
    memcpy(desc, problem, t->op->desc_bytes);
}

void adapter_pointer(const operand *o, int i, void *pointers[OPERANDS_MAX])
{
    if (o->in_place)
        pointers[i] = pointers[o->in_place - 1];
    if (o->value)
        memcpy(&pointers[i], &o->value, sizeof pointers[i]); // args are read as their own type, in which it is const
}

ckl_status adapter_run(const operator_test *t, const ckl_plan *plan, void *const pointers[OPERANDS_MAX],
                       ckl_stream stream)
{
    enum { OTHERS_MAX = 3 };                          // a workspace: NULL
    void *args[OPERANDS_MAX + OTHERS_MAX] = { NULL }; // more than any struct of args
    memcpy(args, pointers, OPERANDS_MAX * sizeof *args);
    return plan_run(plan, t->op, args, stream);
}

/* Elements of operand 0 along its sums, whether it is there or not. */
static double elements_along(const operator_test *t, const void *problem)
{
    operand all[OPERANDS_MAX];
    double elements = 1;
    adapter_operands(t, problem, all);
    for (int d = 0; d < all[0].rank; d++)
        elements *= all[0].along >> d & 1 ? (double)all[0].shape[d] : 1;
    return elements;
}

double adapter_terms(const operator_test *t, const void *problem)
{
    double terms = t->terms_of ? t->terms_of(problem) : t->terms;
    return fmax(terms + (t->terms_along ? elements_along(t, problem) : 0), 1);
}

double adapter_approximation(const operator_test *t, const void *problem)
{
    return t->approximation_of ? t->approximation_of(problem) : t->approximation;
}

double adapter_flops(const operator_test *t, const void *problem)
{
    operand all[OPERANDS_MAX];
    double outputs = 0, largest = 0;
    if (t->flops)
        return t->flops(problem);
    int count = adapter_operands(t, problem, all);
    for (int i = 0; i < count; i++) {
        outputs += all[i].role == OPERAND_IN ? 0 : elements_of(&all[i]);
        largest = fmax(largest, elements_of(&all[i]));
    }
    return t->flops_each > 0 ? t->flops_each * largest : outputs;
}

double adapter_bytes(const operator_test *t, const void *problem)
{
    operand all[OPERANDS_MAX];
    double sum = 0;
    if (t->bytes)
        return t->bytes(problem);
    int count = adapter_operands(t, problem, all);
    for (int i = 0; i < count; i++)
        sum += elements_of(&all[i]) * (double)ckl_dtype_bytes(all[i].dtype) * (all[i].role == OPERAND_IN_OUT ? 2 : 1);
    return sum;
}

double adapter_bytes_written(const operator_test *t, const void *problem)
{
    operand all[OPERANDS_MAX];
    double sum = 0;
    for (int i = 0, count = adapter_operands(t, problem, all); i < count; i++)
        if (all[i].role != OPERAND_IN)
            sum += elements_of(&all[i]) * (double)ckl_dtype_bytes(all[i].dtype);
    return sum;
}

/* Slices */

/* Output number `output` among the operands. */
static operand output_of(const operator_test *t, const void *problem, int output)
{
    operand all[OPERANDS_MAX];
    int count = adapter_operands(t, problem, all);
    for (int i = 0; i < count; i++)
        if (all[i].role != OPERAND_IN && output-- == 0)
            return all[i];
    return (operand){ 0 };
}

slicing slicing_of(const operator_test *t, const void *problem, int output)
{
    slicing s = { .test = t, .problem = problem, .output = output };
    if (t->slices) {
        s.count = t->slices(problem, output);
        s.elements_max = t->slice_elements(problem, output);
        return s;
    }
    s.info = output_of(t, problem, output);
    s.mode = t->slice_mode ? t->slice_mode : s.info.rank - 1;
    int64_t columns = s.info.rank ? s.info.shape[s.mode] : 0;
    s.elements_max = t->elements_alone ? min_i64(columns, SLICE_ELEMENTS) : columns;
    s.per_row = columns ? ceil_div(columns, s.elements_max) : 1;
    s.count = columns ? s.per_row : 0;
    for (int d = 0; d < s.info.rank; d++)
        s.count *= d == s.mode ? 1 : s.info.shape[d];
    return s;
}

reference_slice slicing_at(const slicing *s, int64_t slice, double *value, double *magnitude)
{
    if (!s->per_row)
        return (reference_slice){ value, magnitude, s->output, slice, slice, 0, s->elements_max };
    int64_t first = slice % s->per_row * s->elements_max, columns = s->info.shape[s->mode];
    return (reference_slice){
        value, magnitude, s->output, slice, slice / s->per_row, first, min_i64(s->elements_max, columns - first)
    };
}

int64_t slicing_index(const slicing *s, int64_t slice, int64_t j)
{
    if (!s->per_row)
        return s->test->output_index(s->problem, s->output, slice, j);
    int64_t row = slice / s->per_row, index = (slice % s->per_row * s->elements_max + j) * s->info.stride[s->mode];
    for (int d = s->info.rank - 1; d >= 0; d--) {
        if (d == s->mode)
            continue;
        index += row % s->info.shape[d] * s->info.stride[d];
        row /= s->info.shape[d];
    }
    return index;
}
