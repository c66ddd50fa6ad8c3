/* operators.h - the one list of operators, and what the laboratory (verify, bench, run) knows of each. */
#pragma once

#include "plan/plan.h"

#define OPERATORS(X)    \
    X(add)              \
    X(attention)        \
    X(attention_decode) \
    X(conv)             \
    X(crossentropy)     \
    X(elementwise)      \
    X(gemm)             \
    X(groupnorm)        \
    X(layernorm)        \
    X(permute)          \
    X(reduce)           \
    X(rmsnorm)          \
    X(rope)             \
    X(softmax)          \
    X(transpose)

#define X(op) extern const operator_info op##_operator;
OPERATORS(X)
#undef X

/*
 * Defines an operator's table and its three public functions: OPERATOR(add, add, "y = alpha*a + beta*b") for
 * ckl_add_plan(), ckl_add_run() and ckl_add() of ckl_add_desc and ckl_add_args. The file has defined desc_fields,
 * check(), tensors() and implementations; for OPERATOR_OF_VIEW() also view(), which fills a view_type from a desc. More
 * follows as .name = value.
 */
#define OPERATOR(op, types, ...) OPERATOR_WITH(op, types, OPERATOR_PARTS, .summary = __VA_ARGS__)
#define OPERATOR_OF_VIEW(op, types, view_type, ...) \
    OPERATOR_WITH(op, types, OPERATOR_PARTS, .view = view, .view_bytes = sizeof(view_type), .summary = __VA_ARGS__)
#define OPERATOR_PARTS \
    .desc = FIELD_TABLE(desc_fields), .check = check, .tensors = tensors, .implementations = implementations

/* The same with other names, where a file has two operators: OPERATOR_WITH(op, types, .summary = ..., .check = ...). */
#define OPERATOR_WITH(op, types, ...)                                                                         \
    static ckl_status op##_read_line(const problem_line *line, arena *memory, void *desc, const char **force) \
    {                                                                                                         \
        return operator_read(&op##_problem_line, line, memory, desc, force);                                  \
    }                                                                                                         \
    const operator_info op##_operator = { .name = #op,                                                        \
                                          .read = op##_read_line,                                             \
                                          .desc_bytes = sizeof(ckl_##types##_desc),                           \
                                          .args_bytes = sizeof(ckl_##types##_args),                           \
                                          __VA_ARGS__ };                                                      \
    ckl_status ckl_##op##_plan(ckl_device *device, const ckl_##types##_desc *desc, ckl_plan **plan)           \
    {                                                                                                         \
        return plan_build(device, &op##_operator, desc, NULL, plan);                                          \
    }                                                                                                         \
    ckl_status ckl_##op##_run(const ckl_plan *plan, const ckl_##types##_args *args, ckl_stream stream)        \
    {                                                                                                         \
        return plan_run(plan, &op##_operator, args, stream);                                                  \
    }                                                                                                         \
    ckl_status ckl_##op(ckl_device *device, const ckl_##types##_desc *desc, const ckl_##types##_args *args,   \
                        ckl_stream stream)                                                                    \
    {                                                                                                         \
        return plan_once(device, &op##_operator, desc, args, stream);                                         \
    }                                                                                                         \
    extern const operator_info op##_operator

enum { OPERANDS_MAX = PLAN_TENSORS_MAX, OPERAND_RANK_MAX = PLAN_RANK_MAX };

typedef enum operand_role { OPERAND_IN, OPERAND_OUT, OPERAND_IN_OUT } operand_role;

/* One tensor of a problem, as the test runner allocates, fills, poisons and compares it. */
typedef struct operand {
    const char *name; // "a"
    operand_role role;
    ckl_dtype dtype;  // CKL_DTYPE_DEFAULT: absent in this problem, pointer NULL
    ckl_dtype result; // of an in-out operand after the run, of as many bytes; CKL_DTYPE_DEFAULT: dtype
    int rank;
    int64_t shape[OPERAND_RANK_MAX];  // outermost first
    int64_t stride[OPERAND_RANK_MAX]; // elements; gaps between rows are padding that a kernel must not touch

    /* How inputs are filled. */
    bool ranged;          // low..high, hard ones too; else -1..1, and what is hard
    int64_t rising;       // integers: from 0 to this in steps of 0 to high; 0: they do not rise
    const int64_t *given; // integers of a vector: these; NULL: they are drawn
    bool distinct;        // indices: no two are equal, as far as the range has so many
    double low, high;     // integers: both are taken
    uint32_t along;       // modes along which sums run, a bit each: hard inputs go by such lines; 0: by elements
    double hard_max;      // the largest finite magnitude of hard inputs; 0: the type's own

    /* i64 alone: filled with addresses into operand number table_of - 1, from its first byte on, `table_step` apart. */
    int table_of;
    int64_t table_step;

    int64_t align; // alignment in bytes of its first element, whatever misalign= and stagger= say; 0: of the element

    /* What a call gets for an absent operand in place of NULL. */
    int in_place;      // the pointer of operand number in_place - 1
    const void *value; // a number on the host
} operand;

/* A tensor of any rank. Sums are taken to run along its rows, if it has more than one mode. */
static inline operand operand_tensor(const char *name, operand_role role, ckl_dtype dtype, int rank,
                                     const int64_t *shape, const int64_t *stride)
{
    operand o = { .name = name, .role = role, .dtype = dtype, .rank = rank };
    o.along = rank > 1 ? 1u << (rank - 1) : 0;
    for (int d = 0; d < rank; d++) {
        o.shape[d] = shape[d];
        o.stride[d] = stride[d];
    }
    return o;
}

/* A matrix of rows that start ld elements apart; a vector. */
static inline operand operand_matrix(const char *name, operand_role role, ckl_dtype dtype, int64_t rows, int64_t cols,
                                     int64_t ld)
{
    return operand_tensor(name, role, dtype, 2, (int64_t[]){ rows, cols }, (int64_t[]){ ld, 1 });
}

static inline operand operand_vector(const char *name, operand_role role, ckl_dtype dtype, int64_t elements)
{
    return operand_tensor(name, role, dtype, 1, &elements, (int64_t[]){ 1 });
}

/* The operand with sums along other modes. */
static inline operand operand_along(operand o, uint32_t modes)
{
    o.along = modes;
    return o;
}

/* A number of the call, which it reads on the host. */
static inline operand operand_number(const char *name, const float *value)
{
    return (operand){ .name = name, .value = value };
}

/* Operand number `out` has the memory of number `in`, in its own type after the run. */
static inline void operand_in_place(operand *all, int in, int out)
{
    all[in].role = OPERAND_IN_OUT;
    all[in].result = all[out].dtype;
    all[out].dtype = CKL_DTYPE_DEFAULT;
    all[out].in_place = in + 1;
}

/* The operand with random inputs in low..high. */
static inline operand operand_range(operand o, double low, double high)
{
    o.ranged = true;
    o.low = low;
    o.high = high;
    return o;
}

/* How inputs are filled. Integers are small enough that every sum is exact, so the result is compared bit for bit. */
typedef enum operand_fill { FILL_INTEGERS, FILL_UNIFORM, FILL_NORMAL, FILL_HARD } operand_fill;

/*
 * What the reference computes and where it writes: value[i] and the sum of the absolute values of the terms that made
 * it, for the bound. Of integer outputs the value is not yet truncated, and the magnitude is 0 where no float was
 * rounded on the way. A value of NaN with the magnitude REFERENCE_OPEN: the definition leaves the element open, and
 * anything is right. Of output number `output`, counted from 0: elements first .. first+count-1 of a row, where the
 * operator leaves its slices to the default.
 */
#define REFERENCE_OPEN (-INFINITY) // no sum of absolute values: a NaN of infinities that meet must be one
typedef struct reference_slice {
    double *value;
    double *magnitude;
    int output;
    int64_t slice;
    int64_t row, first, count;
} reference_slice;

typedef struct test_reject {
    const char *line; // without the operator's name
    ckl_status status;
    const char *sentence; // part of ckl_error()
} test_reject;

/*
 * What a problem line fills, "gemm m=4096 n=4096 k=4096 a=f16": a struct that begins with the desc. Then come lists of
 * which prepare() makes the desc, and what is the laboratory's: numbers of a call, ranges of inputs.
 */
typedef struct operator_line {
    const operator_info *op;
    size_t problem_bytes;
    field_table problem;
    ckl_status (*prepare)(void *problem); // makes the desc; it is checked then. NULL: it is made
} operator_line;

/*
 * Defines an operator's line: OPERATOR_LINE(permute, permute_problem, prepare). The file has defined fields, or those
 * named.
 */
#define OPERATOR_LINE(name, type, make) OPERATOR_LINE_WITH(name, type, fields, make)
#define OPERATOR_LINE_WITH(name, type, rows, make) \
    const operator_line name##_problem_line = {    \
        .op = &name##_operator,                    \
        .problem_bytes = sizeof(type),             \
        .problem = FIELD_TABLE(rows),              \
        .prepare = make,                           \
    }

#define X(op) extern const operator_line op##_problem_line;
OPERATORS(X)
#undef X

/* operator_info.read of these lines. */
ckl_status operator_read(const operator_line *of, const problem_line *line, arena *memory, void *desc,
                         const char **force);

/*
 * The laboratory's side of an operator. `problem` is the struct that a problem line fills. Outputs are numbered in the
 * order of the operands, absent ones included. What is NULL or 0 has the default stated.
 */
typedef struct operator_test {
    const operator_info *op;
    const operator_line *line;

    ckl_status (*prepare)(void *problem); // fills in what the reference wants beside a checked desc. NULL: nothing

    /*
     * Changes the operands, which are the operator's tensors, or lists others and returns their count. NULL: as they
     * are. A call's args are the operands' pointers in their order.
     */
    int (*operands)(const void *problem, operand *out);

    /*
     * Slices: parts of an output that can be computed alone; large problems check a sample. NULL: rows of the output's
     * innermost mode, or of mode `slice_mode` if not 0, and parts of them where `elements_alone` says that an element
     * does not need its row.
     */
    int slice_mode;
    bool elements_alone;
    int64_t (*slices)(const void *problem, int output);
    int64_t (*slice_elements)(const void *problem, int output); // element j of slice s is at index ...
    int64_t (*output_index)(const void *problem, int output, int64_t slice, int64_t j); // ... this, in elements
    void (*reference)(const void *problem, void *const *host, reference_slice out);

    double terms;                                    // length of the longest sum in one output element; 0: 1
    bool terms_along;                                // and as many as operand 0 has along its sums
    double (*terms_of)(const void *problem);         // the same where it depends on the problem otherwise
    double approximation;                            // relative error of approximate instructions used; 0: none
    double (*approximation_of)(const void *problem); // the same where it depends on the problem
    double flops_each; // useful operations for each element of the largest operand; 0: one for each output
    double (*flops)(const void *problem); // the same of one run where it depends on the problem
    double (*flops_of_data)(const void *problem, void *const *host); // or on inputs, too; NULL: it does not
    double (*reference_flops)(const void *problem); // what the reference takes for all outputs; NULL: as much
    double (*matrix_rate)(const void *problem);     // of tensor cores, to that of 16 bits; NULL: 1
    double (*bytes)(const void *problem); // compulsory traffic; NULL: every input read once, every output written once

    const char *const *cases;   // problem lines without the operator's name, NULL at the end; quick on the emulator
    const test_reject *rejects; // { NULL } at the end

    /* What users have, for `ckl sample`: lines with holes, each as likely, NULL at the end (lab/population.h). */
    const char *const *population;
} operator_test;

/*
 * Defines an operator's test: OPERATOR_TEST(add, .operands = operands, .reference = reference). The file has defined
 * cases, rejects and population.
 */
#define OPERATOR_TEST(name, ...) \
    OPERATOR_TEST_WITH(name, .cases = cases, .rejects = rejects, .population = population, __VA_ARGS__)

/* The same where a file has two, or lists lie apart. */
#define OPERATOR_TEST_WITH(name, ...) \
    const operator_test name##_test = { .op = &name##_operator, .line = &name##_problem_line, __VA_ARGS__ }

#define X(op) extern const operator_test op##_test;
OPERATORS(X)
#undef X

/* The operators in list order, NULL at the end. */
extern const operator_info *const operators[];
extern const operator_line *const operator_lines[];
extern const operator_test *const operator_tests[];
