/* reduce_ops.c - the built-in operation of a problem, and the type that its elements are taken in. */
#include "operators/reduce/reduce_ops.h"

static bool is_float(ckl_dtype dtype)
{
    return dtype == F32 || dtype == F16 || dtype == BF16;
}

/* Elements as they are taken: floats in f32; sums of integers in 64 bits, or in the output's. */
static ir_type input_of(int op, ckl_dtype dtype, ckl_dtype output)
{
    bool adds = op == CKL_REDUCE_SUM || op == CKL_REDUCE_PROD || op == CKL_REDUCE_MEAN || op == CKL_REDUCE_NORM1 ||
                op == CKL_REDUCE_VAR || op == CKL_REDUCE_STD;
    if (is_float(dtype))
        return F32;
    return adds ? (output == I32 ? I32 : I64) : dtype;
}

reducer reducer_of(int op, ckl_dtype dtype, ckl_dtype output, bool is_compensated)
{
    ir_type input = input_of(op, dtype, output);
    reduce_fold fold;
    if (reduce_fold_of(op, input, &fold)) {
        bool adds_floats = input == F32 && (op == CKL_REDUCE_SUM || op == CKL_REDUCE_MEAN || op == CKL_REDUCE_NORM1);
        return is_compensated && adds_floats ? reduce_compensated(&fold) : reducer_of_fold(&fold);
    }
    switch (op) {
    case CKL_REDUCE_NORM2:
        return reduce_norm;
    case CKL_REDUCE_LOGSUMEXP:
        return reduce_logsumexp;
    case CKL_REDUCE_ARGMAX:
    case CKL_REDUCE_ARGMIN:
        return reduce_position_of(input, op == CKL_REDUCE_ARGMAX);
    default:
        return reduce_variance_of(input, op == CKL_REDUCE_STD);
    }
}

int reduce_state_size(int op, ckl_dtype dtype, ckl_dtype output, bool is_compensated)
{
    reducer r = reducer_of(op, dtype, output, is_compensated);
    return reduce_state_words(&r);
}
