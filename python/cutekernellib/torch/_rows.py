"""Softmax and cross-entropy."""

import torch

from .. import _problems
from .._shapes import expect
from ._registry import dense, like, operator, run

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
    dy, y = dense(dy, y)
    dx = torch.empty_like(y)
    run.softmax(_problems.softmax(y.shape or (1,), y.dtype, dim, log, scale, True), None, None, y, dy, dx)
    return dx


# Cross-entropy


def _losses(x, weight, mean, smoothing):
    """Loss, log-sum-exps, and the sums that there are: of what the mean is over, and of the weights of all classes."""
    f32, sums = {"dtype": torch.float32, "device": x.device}, mean + (weight is not None and smoothing != 0)
    return torch.empty(() if mean else x.shape[:1], **f32), torch.empty(x.shape[:1], **f32), torch.empty(sums, **f32)


def _cross_entropy_setup(ctx, inputs, output):
    x, target, weight, *ctx.options = inputs
    ctx.save_for_backward(x, target, weight, output[1], output[2])


def _cross_entropy_gradient(ops, ctx, dloss):
    return ops.cross_entropy_backward(dloss, *ctx.saved_tensors, *ctx.options), *[None] * 5


def _cross_entropy_problem(x, target, weight, sums, ignore_index, mean, smoothing, backward):
    """The problem, its count and the sum of its weights."""
    options = (x.dtype, target.dtype, "mean" if mean else "none", ignore_index, weight is not None, smoothing, backward)
    weight_sum = sums[-1:] if weight is not None and smoothing else None
    return _problems.crossentropy(*x.shape, *options), sums if mean else None, weight_sum


@operator(
    "cross_entropy(Tensor x, Tensor target, Tensor? weight=None, int ignore_index=-100, bool mean=True, float smoothing=0.0)"
    " -> (Tensor, Tensor, Tensor)",
    lambda x, target, weight=None, ignore_index=-100, mean=True, smoothing=0.0: _losses(x, weight, mean, smoothing),
    _cross_entropy_gradient,
    _cross_entropy_setup,
)
def cross_entropy(x, target, weight=None, ignore_index=-100, mean=True, smoothing=0.0):
    expect("cross_entropy", "x[rows,classes] target~[rows] weight[classes]", x, target, weight)
    x, target, weight = dense(x, target, weight)
    loss, lse, sums = _losses(x, weight, mean, smoothing)
    desc, count, weight_sum = _cross_entropy_problem(x, target, weight, sums, ignore_index, mean, smoothing, False)
    run.crossentropy(desc, x, target, loss, lse, count, None, None, weight, weight_sum)
    return loss, lse, sums


@operator(
    "cross_entropy_backward(Tensor dloss, Tensor x, Tensor target, Tensor? weight, Tensor lse, Tensor sums, int ignore_index, bool mean,"
    " float smoothing) -> Tensor",
    lambda dloss, x, *_: like(x),
)
def cross_entropy_backward(dloss, x, target, weight, lse, sums, ignore_index, mean, smoothing):
    x, target, weight, dloss = dense(x, target, weight, dloss)
    dx = torch.empty_like(x)
    desc, count, weight_sum = _cross_entropy_problem(x, target, weight, sums, ignore_index, mean, smoothing, True)
    run.crossentropy(desc, x, target, None, lse, count, dloss, dx, weight, weight_sum)
    return dx
