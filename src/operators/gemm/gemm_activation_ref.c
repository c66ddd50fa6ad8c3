/* gemm_activation_ref.c - activations and their derivatives in double. */
#include <math.h>

#include "operators/gemm/gemm_ref.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double normal_cdf(double x)
{
    return erfc(-x * 0.7071067811865476) / 2;
}

enum { FAR = 30 }; // beyond it activations are 0 or x, and their derivatives 0 or 1

double gemm_activate(ckl_activation activation, double x)
{
    double near = fmax(-FAR, x);
    switch (activation) {
    case CKL_ACTIVATION_RELU:
        return isnan(x) ? x : fmax(x, 0);
    case CKL_ACTIVATION_GELU:
        return x == -INFINITY ? -0.0 : x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case CKL_ACTIVATION_GELU_ERF:
        return isnan(x) ? x : x < near ? -0.0 : x * normal_cdf(near);
    case CKL_ACTIVATION_SILU:
        return x == -INFINITY ? -0.0 : x * sigmoid(x);
    default:
        return x;
    }
}

double gemm_activation_derivative(ckl_activation activation, double x)
{
    const double root = 0.7978845608028654, cube = 0.044715;
    if (isnan(x))
        return activation == CKL_ACTIVATION_DRELU ? 0 : x;
    double near = fmin(fmax(x, -FAR), FAR), s = sigmoid(near);
    switch (activation) {
    case CKL_ACTIVATION_DRELU:
        return x > 0;
    case CKL_ACTIVATION_DGELU:
        s = sigmoid(2 * root * (near + cube * near * near * near));
        return s + near * 2 * s * (1 - s) * root * (1 + 3 * cube * near * near);
    case CKL_ACTIVATION_DGELU_ERF:
        return normal_cdf(near) + near * exp(-near * near / 2) * 0.3989422804014327;
    default:
        return s * (1 + near * (1 - s));
    }
}

double gemm_activation_slope(choice activation)
{
    return activation == CKL_ACTIVATION_IDENTITY || activation == CKL_ACTIVATION_RELU ? 1 : 1.13;
}
