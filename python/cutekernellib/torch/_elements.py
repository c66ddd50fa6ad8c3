"""Functions of elements, and rotary embeddings."""

import functools
import math

import torch

from .. import _problems
from .._shapes import expect
from ._registry import image_like, is_channels_last, like, operator, run

# Element by element. s in a gradient stands for the sigmoid that the function has.

_SIGMOID_OF_GELU = "sigmoid(1.5957691216*x+0.0713548163*x*x*x)"  # gelu_tanh(x) = x * s, d/dx of its argument below
FUNCTIONS = {
    "gelu": ("gelu_erf(x)", "g*(0.5+0.5*erf(0.7071067812*x)+0.3989422804*x*exp(-0.5*x*x))"),
    "gelu_tanh": (
        "gelu(x)",
        "g*s*(1+x*(1-s)*(1.5957691216+0.2140644488*x*x))".replace("s*", _SIGMOID_OF_GELU + "*", 1).replace(
            "-s", "-" + _SIGMOID_OF_GELU
        ),
    ),
    "relu": ("relu(x)", "g*min(1,relu(x)*1e38*1e38)"),  # of the least positive number, too
    "silu": ("silu(x)", "g*sigmoid(x)*(1+x*(1-sigmoid(x)))"),
    "silu_mul": ("silu(x)*y", "g*y*sigmoid(x)*(1+x*(1-sigmoid(x)))"),
}


@functools.lru_cache(8192)
def _problem(expr, shape, dtype, count):
    if not dtype.is_floating_point:
        raise ValueError(f"elementwise: {expr} is of floats, not of {dtype}")
    names = tuple((name, dtype) for name in "abcd"[:count])
    return _problems.elementwise(expr, (math.prod(shape),), names, ((1,),) * (count + 1), dtype)


def _elementwise(expr, *inputs):
    """Tensors of floats of one shape, in the order of the last one, as is the result."""
    x = inputs[-1]
    desc = _problem(expr, x.shape, x.dtype, len(inputs))
    if x.dim() == 4 and is_channels_last(x):
        inputs = [x.contiguous(memory_format=torch.channels_last) for x in inputs]
    else:
        inputs = [x.contiguous() for x in inputs]
    out = torch.empty_like(inputs[-1])
    run.elementwise(desc, *inputs, *_NONE[len(inputs) :], out)
    return out


_NONE = (None,) * 4  # operands that there are not


def _unary_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.function = inputs[1]


@operator(
    "unary(Tensor x, str function) -> Tensor",
    lambda x, function: image_like(x),
    lambda ops, ctx, dy: (ops.unary_backward(dy, *ctx.saved_tensors, ctx.function), None),
    _unary_setup,
)
def unary(x, function):
    return _elementwise(FUNCTIONS[function][0], x)


@operator("unary_backward(Tensor dy, Tensor x, str function) -> Tensor", lambda dy, x, function: image_like(x))
def unary_backward(dy, x, function):
    return _elementwise(FUNCTIONS[function][1], dy, x)


@operator(
    "silu_mul(Tensor x, Tensor y) -> Tensor",
    lambda x, y: image_like(y),
    lambda ops, ctx, dz: ops.silu_mul_backward(dz, *ctx.saved_tensors),
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
def silu_mul(x, y):
    expect("silu_mul", "x[*] y[*]", x, y)
    return _elementwise(FUNCTIONS["silu_mul"][0], x, y)


@operator(
    "silu_mul_backward(Tensor dz, Tensor x, Tensor y) -> (Tensor, Tensor)", lambda dz, x, y: (image_like(x), image_like(x))
)
def silu_mul_backward(dz, x, y):
    return _elementwise(FUNCTIONS["silu_mul"][1], dz, y, x), _elementwise("g*silu(x)", dz, x)


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
    results=2,
)
def rope(q, k, positions, theta=10000.0, style="half", inverse=False):
    expect("rope", "q[*,heads,D] k[*,k_heads,D]", q, k)
    q, k, positions = q.contiguous(), k.contiguous(), positions.contiguous()
    yq, yk = torch.empty_like(q), torch.empty_like(k)
    heads, k_heads, d = q.shape[-2], k.shape[-2], q.shape[-1]
    tokens = math.prod(q.shape[:-2])
    if positions.numel() != tokens:
        raise ValueError(f"rope: {positions.numel()} positions are not one for each of {tokens} tokens")
    desc = _problems.rope(tokens, heads, k_heads, d, q.dtype, positions.dtype, theta, style, 0, inverse)
    run.rope(desc, q, k, positions, yq, yk)
    return yq, yk


# Rotation by tables, as transformers' models do it: of the gradient the matrix is the transposed one


@functools.lru_cache(8192)
def rotation(shape, x, y, table_shape, tables, dtype, inverse):
    """The problems of both halves: shape and strides of x[B,H,S,D] and y, of tables [B,S,D] or [1,S,D], shared by heads."""
    half = (*shape[:3], shape[3] // 2)
    cos, sin = ((t[0] if table_shape[0] > 1 else 0, 0, *t[1:]) for t in tables)
    names = tuple((name, dtype) for name in "abcd")
    signs = "+-" if inverse else "-+"
    expressions = f"a*c{signs[0]}b*s", f"b*c{signs[1]}a*s"
    return [_problems.elementwise(e, half, names, (x, cos, x, sin, y), dtype) for e in expressions]


def _rotate(x, cos, sin, cos_b, sin_b, inverse):
    """Halves a and b of x: a * cos - b * sin in the first half, b * cos + a * sin in the second one."""
    y, half = torch.empty_like(x), x.shape[-1] // 2
    first, second = rotation(x.shape, x.stride(), y.stride(), cos.shape, (cos.stride(), sin.stride()), x.dtype, inverse)
    b = x.narrow(-1, half, half)
    run.elementwise(first, x, cos, b, sin_b if inverse else sin, y)
    run.elementwise(second, b, cos_b, x, sin if inverse else sin_b, y.narrow(-1, half, half))
    return y


def _rotate_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[2:4])
    ctx.inverse = inputs[4]


def _rotate_gradient(ops, ctx, dq, dk):
    return *ops.rotate(dq, dk, *ctx.saved_tensors, not ctx.inverse), None, None, None


@operator(
    "rotate(Tensor q, Tensor k, Tensor cos, Tensor sin, bool inverse=False) -> (Tensor, Tensor)",
    lambda q, k, cos, sin, inverse=False: (torch.empty_like(q), torch.empty_like(k)),
    _rotate_gradient,
    _rotate_setup,
    results=2,
)
def rotate(q, k, cos, sin, inverse=False):
    expect("apply_rotary_pos_emb", "q[B,H,S,D] k[B,G,S,D]", q, k)
    expect("apply_rotary_pos_emb", "q[B,H,S,D] cos[T,S,D] sin[T,S,D]", q, cos, sin)
    if cos.shape[0] not in (1, q.shape[0]):
        raise ValueError(f"apply_rotary_pos_emb: tables are for {cos.shape[0]} sequences, of which there are {q.shape[0]}")
    half = q.shape[-1] // 2
    cos_b, sin_b = cos.narrow(-1, half, half), sin.narrow(-1, half, half)
    return _rotate(q, cos, sin, cos_b, sin_b, inverse), _rotate(k, cos, sin, cos_b, sin_b, inverse)
