"""Operators of tensors of any modes: add, elementwise, permute, transpose and reduce."""

import torch

from .. import _functions, _problems
from . import _by_torch
from ._registry import like, operator, run

# a and b


def _add_setup(ctx, inputs, output):
    ctx.factors = inputs[2:]


def _add_gradient(ops, ctx, dy):
    da, db = (dy * factor if factor != 1 else dy for factor in ctx.factors)
    return da, db, None, None


@operator(
    "add(Tensor a, Tensor b, float alpha=1.0, float beta=1.0) -> Tensor",
    lambda a, b, alpha=1.0, beta=1.0: like(a),
    _add_gradient,
    _add_setup,
)
def add(a, b, alpha=1.0, beta=1.0):
    return _functions.add(a, b, alpha=alpha, beta=beta)


# Expressions, whose tensors come in the order in which they appear


def _elementwise_setup(ctx, inputs, output):
    expr, tensors, names, numbers, number_names = inputs
    ctx.save_for_backward(*tensors)
    ctx.function = _by_torch.expression(expr, output.dtype, names, dict(zip(number_names, numbers)))
    ctx.others = [None if x else [] for x in inputs[2:]]  # an empty list has a list of gradients


def _elementwise_gradient(ops, ctx, dy):
    return None, list(_by_torch.gradients(ctx.function, dy, *ctx.saved_tensors)), *ctx.others


@operator(
    "elementwise(str expr, Tensor[] tensors, str[] names, float[] numbers, str[] number_names) -> Tensor",
    lambda expr, tensors, names, numbers, number_names: tensors[0].new_empty(
        torch.broadcast_shapes(*(x.shape for x in tensors))
    ),
    _elementwise_gradient,
    _elementwise_setup,
)
def elementwise(expr, tensors, names, numbers, number_names):
    return _functions.elementwise(expr, **dict(zip(names, tensors)), **dict(zip(number_names, numbers)))


# permute, whose gradient is permuted back


def _permute_setup(ctx, inputs, output):
    ctx.back = [inputs[1].index(i) for i in range(len(inputs[1]))]


@operator(
    "permute(Tensor x, int[] order) -> Tensor",
    lambda x, order: x.new_empty([x.shape[i] for i in order]),
    lambda ops, ctx, dy: (ops.permute(dy, ctx.back), None),
    _permute_setup,
)
def permute(x, order):
    return _functions.permute(x, tuple(order))


# transpose of the last two modes


@operator(
    "transpose(Tensor x) -> Tensor",
    lambda x: like(x.mT),
    lambda ops, ctx, dy: ops.transpose(dy),
    lambda ctx, inputs, output: None,
)
def transpose(x):
    return _functions.transpose(x)


# reduce, with gradients of sums and means of its own


def _reduced(x, op, axes):
    """Memory for the result: no axes are all."""
    axes = {axis % x.dim() for axis in axes} or range(x.dim())
    name = _functions._reduced_dtype(_problems.reduce(op, (2,), (1,), (0,), x.dtype))
    return x.new_empty([n for i, n in enumerate(x.shape) if i not in axes], dtype=getattr(torch, name))


def sum_of_rows(x):
    """Of a dense matrix: the gradient of a bias."""
    out = x.new_empty(x.shape[1])
    run.reduce(_problems.reduce("sum", x.shape, x.stride(), (0,), x.dtype), x, out)
    return out


def _reduce_setup(ctx, inputs, output):
    x, ctx.op, axes, ctx.correction = inputs
    ctx.axes, ctx.shape = sorted({axis % x.dim() for axis in axes} or range(x.dim())), x.shape
    if ctx.op not in ("sum", "mean"):
        ctx.save_for_backward(x)


def _reduce_gradient(ops, ctx, dy):
    if ctx.op not in ("sum", "mean"):
        function = _by_torch.reduction(ctx.op, ctx.axes, ctx.correction)
        return *_by_torch.gradients(function, dy, *ctx.saved_tensors), None, None, None
    count = 1
    for axis in ctx.axes:
        dy, count = dy.unsqueeze(axis), count * ctx.shape[axis]
    return (dy / count if ctx.op == "mean" else dy).expand(ctx.shape), None, None, None


@operator(
    "reduce(Tensor x, str op='sum', int[] axes=[], int correction=0) -> Tensor",
    lambda x, op="sum", axes=(), correction=0: _reduced(x, op, axes),
    _reduce_gradient,
    _reduce_setup,
)
def reduce(x, op="sum", axes=(), correction=0):
    return _functions.reduce(x, op, tuple(axes) or None, correction=correction)
