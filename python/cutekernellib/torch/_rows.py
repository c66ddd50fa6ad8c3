"""Softmax and cross-entropy."""

import torch

from .. import _problems
from .._shapes import expect
from ._registry import like, operator, run

# softmax


def _softmax_setup(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.options = inputs[1:]


def _softmax_gradient(ops, ctx, dy):
    return ops.softmax_backward(dy, *ctx.saved_tensors, *ctx.options), None, None, None


@operator(
    "softmax(Tensor x, int dim, bool log=False, float scale=1.0) -> Tensor",
    lambda x, dim, log=False, scale=1.0: like(x),
    _softmax_gradient,
    _softmax_setup,
)
def softmax(x, dim, log=False, scale=1.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    run.softmax(_problems.softmax(x.shape or (1,), x.dtype, dim, log, scale), x, None, y)
    return y


@operator(
    "softmax_backward(Tensor dy, Tensor y, int dim, bool log=False, float scale=1.0) -> Tensor",
    lambda dy, y, dim, log=False, scale=1.0: like(y),
)
def softmax_backward(dy, y, dim, log=False, scale=1.0):
    dy, y = dy.contiguous(), y.contiguous()
    dx = torch.empty_like(y)
    run.softmax(_problems.softmax(y.shape or (1,), y.dtype, dim, log, scale, True), None, None, y, dy, dx)
    return dx


# Cross-entropy


def _losses(x, mean):
    f32 = {"dtype": torch.float32, "device": x.device}
    return torch.empty(() if mean else x.shape[:1], **f32), torch.empty(x.shape[:1], **f32), torch.empty((), **f32)


def _cross_entropy_setup(ctx, inputs, output):
    x, target, ctx.ignore_index, ctx.mean = inputs
    ctx.save_for_backward(x, target, output[1], output[2])


def _cross_entropy_gradient(ops, ctx, dloss):
    x, target, lse, count = ctx.saved_tensors
    return ops.cross_entropy_backward(dloss, x, target, lse, count, ctx.ignore_index, ctx.mean), None, None, None


@operator(
    "cross_entropy(Tensor x, Tensor target, int ignore_index=-100, bool mean=True) -> (Tensor, Tensor, Tensor)",
    lambda x, target, ignore_index=-100, mean=True: _losses(x, mean),
    _cross_entropy_gradient,
    _cross_entropy_setup,
)
def cross_entropy(x, target, ignore_index=-100, mean=True):
    expect("cross_entropy", "x[rows,classes] target[rows]", x, target)
    x, target = x.contiguous(), target.contiguous()
    loss, lse, count = _losses(x, mean)
    reduction = "mean" if mean else "none"
    desc = _problems.crossentropy(*x.shape, x.dtype, target.dtype, reduction, ignore_index)
    run.crossentropy(desc, x, target, loss, lse, count if mean else None)
    return loss, lse, count


@operator(
    "cross_entropy_backward(Tensor dloss, Tensor x, Tensor target, Tensor lse, Tensor count, int ignore_index, bool mean) -> Tensor",
    lambda dloss, x, target, lse, count, ignore_index, mean: like(x),
)
def cross_entropy_backward(dloss, x, target, lse, count, ignore_index, mean):
    x, target, dloss = x.contiguous(), target.contiguous(), dloss.contiguous()
    dx = torch.empty_like(x)
    reduction = "mean" if mean else "none"
    desc = _problems.crossentropy(*x.shape, x.dtype, target.dtype, reduction, ignore_index, True)
    run.crossentropy(desc, x, target, None, lse, count if mean else None, dloss, dx)
    return dx
