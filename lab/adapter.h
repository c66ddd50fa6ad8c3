/* adapter.h - what an operator_test says of a problem, with the defaults of what it leaves out. */
#pragma once

#include "operators/operators.h"

ckl_status adapter_prepare(const operator_test *t, void *problem);
int adapter_operands(const operator_test *t, const void *problem, operand out[OPERANDS_MAX]); // their count
void adapter_desc(const operator_test *t, const void *problem, void *desc);

/* Sets the pointer of operand `i` if it has the memory of another, set before, or is a number on the host. */
void adapter_pointer(const operand *o, int i, void *pointers[OPERANDS_MAX]);
ckl_status adapter_run(const operator_test *t, const ckl_plan *plan, void *const pointers[OPERANDS_MAX],
                       ckl_stream stream);

double adapter_terms(const operator_test *t, const void *problem);         // at least 1
double adapter_approximation(const operator_test *t, const void *problem); // 0: none
double adapter_flops(const operator_test *t, const void *problem);
double adapter_bytes(const operator_test *t, const void *problem);
double adapter_bytes_written(const operator_test *t, const void *problem); // every element of an output once

/* How an output is cut into slices. */
typedef struct slicing {
    const operator_test *test;
    const void *problem;
    int output;
    int64_t count;
    int64_t elements_max; // of a slice
    operand info;         // of the output, for the default
    int mode;             // of the output, along which rows run, for the default
    int64_t per_row;      // slices of a row; 0: the operator cuts by itself
} slicing;

slicing slicing_of(const operator_test *t, const void *problem, int output);

/* The slice as the reference takes it, with room for its results. */
reference_slice slicing_at(const slicing *s, int64_t slice, double *value, double *magnitude);

/* Where element j of a slice lies in the output, in elements. */
int64_t slicing_index(const slicing *s, int64_t slice, int64_t j);
