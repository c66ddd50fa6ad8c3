"""Convolution of images and its gradients."""

import functools

import torch

from .. import _problems
from .._library import operators
from .._shapes import expect
from ._registry import dense, has_kernel, image, image_like, is_channels_last, operator
from ._tensors import sum_of_rows

_forward = operators["conv"].taking("x w bias y")
_data = operators["conv"].taking("w dy dx")
_weight = operators["conv"].taking("x dy dw dbias")
_by_torch = torch.ops.aten.convolution_backward.default  # without a search for the overload


def _output(x, weight, stride, padding, dilation):
    """Memory for y, in the order of x."""
    sizes = ((x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    return image_like(x, (x.shape[0], weight.shape[0], *sizes))


def _setup(ctx, inputs, output):
    x, weight, _, *ctx.options = inputs
    ctx.save_for_backward(x, weight)


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:3]
    gradients = ops.conv2d_backward(dy, *ctx.saved_tensors, *ctx.options, *needs)
    return *(g if need else None for g, need in zip(gradients, needs)), None, None, None, None


@operator(
    "conv2d(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups) -> Tensor",
    lambda x, weight, bias, stride, padding, dilation, groups: _output(x, weight, stride, padding, dilation),
    _gradient,
    _setup,
)
def conv2d(x, weight, bias, stride, padding, dilation, groups):
    """By torch what no kernel of ours takes but the slow one that follows the definition."""
    expect("conv2d", "x[N,C,H,W] weight[K,I,R,S] bias[K]", x, weight, bias)
    if x.shape[1] != groups * weight.shape[1]:
        raise ValueError(f"conv2d: x has {x.shape[1]} channels, weight {weight.shape[1]} for each of {groups} groups")
    last = is_channels_last(x)
    x, weight = image(x, last), image(weight, last)
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups, last)
    desc = _problems.conv(x.shape, weight.shape, x.dtype, *geometry, bias is not None)
    if not has_kernel("conv", desc, x.device):
        return image(torch.convolution(x, weight, bias, stride, padding, dilation, False, (0, 0), groups), last)
    y = _output(x, weight, stride, padding, dilation)
    _forward(desc, x, weight, *dense(bias), y)
    return y


@functools.lru_cache(8192)
def _gradient_problems(x, weight, dtype, geometry, device, bias):
    """Those of data and weights, None where no kernel takes one but the slow one that follows the definition."""
    problems = (
        _problems.conv(x, weight, dtype, *geometry, direction="data"),
        _problems.conv(x, weight, dtype, *geometry, bias, direction="weight"),
    )
    return tuple(p if has_kernel("conv", p, device) else None for p in problems)


def gradients_like(x, weight, needs_dx, needs_dweight, needs_dbias):
    return (
        image_like(x, x.shape) if needs_dx else x.new_empty(0),
        image_like(x, weight.shape) if needs_dweight else x.new_empty(0),
        x.new_empty(weight.shape[:1]) if needs_dbias else x.new_empty(0),
    )


@operator(
    "conv2d_backward(Tensor dy, Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation, int groups,"
    " bool needs_dx, bool needs_dweight, bool needs_dbias) -> (Tensor, Tensor, Tensor)",
    lambda dy, x, weight, stride, padding, dilation, groups, *needs: gradients_like(x, weight, *needs),
)
def conv2d_backward(dy, x, weight, stride, padding, dilation, groups, needs_dx, needs_dweight, needs_dbias):
    """By torch what no kernel of ours takes."""
    last = is_channels_last(x)
    dy, x, weight = image(dy, last), image(x, last), image(weight, last)
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups, last)
    data, weights = _gradient_problems(x.shape, weight.shape, x.dtype, geometry, x.device, needs_dbias)
    ours = (needs_dx and data is not None, needs_dweight and weights is not None)
    sums = needs_dbias and last and not ours[1]
    torchs = [needs_dx and not ours[0], needs_dweight and not ours[1], needs_dbias and not (ours[1] or sums)]
    gradients = [None, None, None]
    if any(torchs):
        options = (stride, padding, dilation, False, [0, 0], groups, torchs)
        gradients = list(_by_torch(dy, x, weight, weight.shape[:1], *options))
    if ours[0]:
        gradients[0] = torch.empty_like(x)
        _data(data, weight, dy, gradients[0])
    if ours[1]:
        gradients[1:] = torch.empty_like(weight), x.new_empty(weight.shape[:1]) if needs_dbias else None
        _weight(weights, x, dy, *gradients[1:])
    if sums:
        gradients[2] = sum_of_rows(dy.permute(0, 2, 3, 1).flatten(0, 2))
    return tuple(x.new_empty(0) if g is None else g for g in gradients)
