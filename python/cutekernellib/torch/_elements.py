"""Functions of elements, and rotary embeddings."""

import torch

from .. import _problems
from ._registry import like, operator, run


# Element by element. s in a gradient stands for the sigmoid that the function has.

_SIGMOID_OF_GELU = "sigmoid(1.5957691216*x+0.0713548163*x*x*x)"  # gelu_tanh(x) = x * s, d/dx of its argument below
_FUNCTIONS = {
    "gelu": ("gelu_erf(x)", "g*(0.5+0.5*erf(0.7071067812*x)+0.3989422804*x*exp(-0.5*x*x))"),
    "gelu_tanh": (
        "gelu(x)",
        "g*s*(1+x*(1-s)*(1.5957691216+0.2140644488*x*x))".replace("s*", _SIGMOID_OF_GELU + "*", 1).replace(
            "-s", "-" + _SIGMOID_OF_GELU
        ),
    ),
    "silu": ("silu(x)", "g*sigmoid(x)*(1+x*(1-sigmoid(x)))"),
    "silu_mul": ("silu(x)*y", "g*y*sigmoid(x)*(1+x*(1-sigmoid(x)))"),
}


def _elementwise(expr, *inputs):
    """Tensors of one shape, without gaps."""
    inputs = [x.contiguous() for x in inputs]
    out = torch.empty_like(inputs[0])
    shape = (out.numel(),)
    names = tuple((name, inputs[0].dtype) for name in "abcd"[: len(inputs)])
    desc = _problems.elementwise(expr, shape, names, ((1,),) * (len(inputs) + 1), out.dtype)
    run.elementwise(desc, *inputs, *(None,) * (4 - len(inputs)), out)
    return out


def _unary_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.function = inputs[1]


@operator(
    "unary(Tensor x, str function) -> Tensor",
    lambda x, function: like(x),
    lambda ops, ctx, dy: (ops.unary_backward(dy, *ctx.saved_tensors, ctx.function), None),
    _unary_setup,
)
def unary(x, function):
    return _elementwise(_FUNCTIONS[function][0], x)


@operator("unary_backward(Tensor dy, Tensor x, str function) -> Tensor", lambda dy, x, function: like(x))
def unary_backward(dy, x, function):
    return _elementwise(_FUNCTIONS[function][1], dy, x)


@operator(
    "silu_mul(Tensor x, Tensor y) -> Tensor",
    lambda x, y: like(x),
    lambda ops, ctx, dz: ops.silu_mul_backward(dz, *ctx.saved_tensors),
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
def silu_mul(x, y):
    return _elementwise(_FUNCTIONS["silu_mul"][0], x, y)


@operator("silu_mul_backward(Tensor dz, Tensor x, Tensor y) -> (Tensor, Tensor)", lambda dz, x, y: (like(x), like(y)))
def silu_mul_backward(dz, x, y):
    return _elementwise(_FUNCTIONS["silu_mul"][1], dz, y, x), _elementwise("g*silu(x)", dz, x)


# rope: of the gradient the angle is the negative one


def _rope_setup(ctx, inputs, output):
    _, _, positions, ctx.theta, ctx.style, ctx.inverse = inputs
    ctx.save_for_backward(positions)


def _rope_gradient(ops, ctx, dyq, dyk):
    dq, dk = ops.rope(dyq, dyk, *ctx.saved_tensors, ctx.theta, ctx.style, not ctx.inverse)
    return dq, dk, None, None, None, None


@operator(
    "rope(Tensor q, Tensor k, Tensor positions, float theta=10000.0, str style='half', bool inverse=False) -> (Tensor, Tensor)",
    lambda q, k, positions, theta=1e4, style="half", inverse=False: (like(q), like(k)),
    _rope_gradient,
    _rope_setup,
)
def rope(q, k, positions, theta=10000.0, style="half", inverse=False):
    q, k, positions = q.contiguous(), k.contiguous(), positions.contiguous()
    yq, yk = torch.empty_like(q), torch.empty_like(k)
    heads, k_heads, d = q.shape[-2], k.shape[-2], q.shape[-1]
    tokens = q.numel() // (heads * d)
    desc = _problems.rope(tokens, heads, k_heads, d, q.dtype, positions.dtype, theta, style, 0, inverse)
    run.rope(desc, q, k, positions, yq, yk)
    return yq, yk


# Rotation by tables, as transformers' models do it: of the gradient the matrix is the transposed one


def _strided(expr, inputs, out):
    """An expression whose operands have the inputs' order, of tensors with any strides."""
    inputs = [x.expand(out.shape) for x in inputs]
    names = tuple((name, x.dtype) for name, x in zip("abcd", inputs))
    strides = (*(x.stride() for x in inputs), out.stride())
    run.elementwise(_problems.elementwise(expr, out.shape, names, strides, out.dtype), *inputs, out)


@operator(
    "rotate(Tensor x, Tensor cos, Tensor sin, bool inverse=False) -> Tensor",
    lambda x, cos, sin, inverse=False: torch.empty_like(x),
    lambda ops, ctx, dy: (ops.rotate(dy, *ctx.saved_tensors, not ctx.inverse), None, None, None),
    lambda ctx, inputs, output: (ctx.save_for_backward(*inputs[1:3]), setattr(ctx, "inverse", inputs[3])),
)
def rotate(x, cos, sin, inverse=False):
    y = torch.empty_like(x)
    (a, b), (ya, yb), (cos_a, cos_b), (sin_a, sin_b) = (t.chunk(2, -1) for t in (x, y, cos, sin))
    signs = "+-" if inverse else "-+"
    _strided(f"a*c{signs[0]}b*s", (a, cos_a, b, sin_b if inverse else sin_a), ya)
    _strided(f"b*c{signs[1]}a*s", (b, cos_b, a, sin_a if inverse else sin_b), yb)
    return y
