"""Norms of rows, of sums of rows, and of groups of channels."""

import functools
import math

import torch

from .. import _problems
from .._shapes import check, expect
from ._described import described
from ._registry import dense, image, image_like, is_channels_last, operator, run, without_gradient

# Norms of rows. Where there is a residual the norm is that of a sum, which is returned, too, and of both addends the gradient is one.


@described("x[*,N] weight?[N] bias?[N]", "float eps")
def layer_norm(tape, x, weight, bias, eps):
    return tape.layer_norm(x, weight, bias, eps)


@described("x[*,N] weight?[N]", "float eps")
def rms_norm(tape, x, weight, eps):
    return tape.rms_norm(x, weight, eps)


@described("x[*,N] residual[*,N] weight[N] bias?[N]", "float eps", count=2, instead={"x": 1, "residual": 1})
def add_layer_norm(tape, x, residual, weight, bias, eps):
    return tape.layer_norm(x, weight, bias, eps, residual)


@described("x[*,N] residual[*,N] weight[N]", "float eps", count=2, instead={"x": 1, "residual": 1})
def add_rms_norm(tape, x, residual, weight, eps):
    return tape.rms_norm(x, weight, eps, residual)


# Without a gradient they are an operator each, called without the detour of a sequence.

_SAID = {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}  # of operators: the functions' names
_run = vars(run)


@functools.lru_cache(8192)
def _problem(name, x, weight, bias, eps, residual):
    """Of shapes and types, which must fit: (shape, type) of each, or None."""
    check(_SAID[name], "x[*,N] residual[*,N] weight[N] bias[N]", x, residual, weight, bias)
    if weight is None and bias is not None:
        raise ValueError("layer_norm: a bias needs a weight")
    shape, dtype = x
    return _problems.norm(name, math.prod(shape[:-1]), shape[-1], dtype, eps, weight is not None, residual is not None)


def _norm(name, x, weight, bias, eps, residual=None):
    """y, and x + residual if there is one."""
    desc = _problem(
        name,
        (x.shape, x.dtype),
        weight if weight is None else (weight.shape, weight.dtype),
        bias if bias is None else (bias.shape, bias.dtype),
        eps,
        residual if residual is None else (residual.shape, residual.dtype),
    )
    x, total = x.contiguous(), None
    y = torch.empty_like(x)
    if residual is not None:
        residual, total = residual.contiguous(), torch.empty_like(x)
    if weight is not None:
        weight = weight.contiguous()
        if bias is not None:
            bias = bias.contiguous()
        elif name == "layernorm":
            bias = torch.zeros_like(weight)
    _run[name](desc, x, residual, weight, bias, None, None, y, total)
    return y, total


without_gradient("layer_norm", functools.partial(_norm, "layernorm"))
without_gradient("rms_norm", lambda x, weight, eps: _norm("rmsnorm", x, weight, None, eps))
without_gradient("add_layer_norm", lambda x, residual, *rest: _norm("layernorm", x, *rest, residual))
without_gradient("add_rms_norm", lambda x, residual, weight, eps: _norm("rmsnorm", x, weight, None, eps, residual))


# Group norm


def _group_statistics(x, groups):
    return torch.empty((x.shape[0], groups), dtype=torch.float32, device=x.device)


def _group_norm_setup(ctx, inputs, output):
    x, groups, weight, *_ = inputs
    ctx.save_for_backward(x, weight, output[1], output[2])
    ctx.groups = groups


def _group_norm_gradient(ops, ctx, dy):
    x, weight, mean, rstd = ctx.saved_tensors
    dx, *gradients = ops.group_norm_backward(dy, x, ctx.groups, weight, mean, rstd)
    return dx, None, *((None, None) if weight is None else gradients), None


@operator(
    "group_norm(Tensor x, int groups, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, groups, weight, bias, eps: (image_like(x), _group_statistics(x, groups), _group_statistics(x, groups)),
    _group_norm_gradient,
    _group_norm_setup,
)
def group_norm(x, groups, weight, bias, eps):
    expect("group_norm", "x[N,C,*] weight[C] bias[C]", x, weight, bias)
    if (weight is None) != (bias is None):
        raise ValueError("group_norm: weight and bias come together")
    last, (weight, bias) = is_channels_last(x), dense(weight, bias)
    x = image(x, last)
    y, mean, rstd = torch.empty_like(x), _group_statistics(x, groups), _group_statistics(x, groups)
    desc = _problems.groupnorm(x.shape, groups, x.dtype, eps, weight is not None, last)
    run.groupnorm(desc, x, None, weight, bias, y, None, None, None, mean, rstd)
    return y, mean, rstd


def _parameters_like(x, weight):
    return [x.new_empty(0 if weight is None else weight.shape) for _ in ("weight", "bias")]


@operator(
    "group_norm_backward(Tensor dy, Tensor x, int groups, Tensor? weight, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)",
    lambda dy, x, groups, weight, mean, rstd: (image_like(x), *_parameters_like(x, weight)),
)
def group_norm_backward(dy, x, groups, weight, mean, rstd):
    last, (weight,) = is_channels_last(x), dense(weight)
    x, dy = image(x, last), image(dy, last)
    dx, made = torch.empty_like(x), _parameters_like(x, weight)
    desc = _problems.groupnorm(x.shape, groups, x.dtype, 0, weight is not None, last, True)
    run.groupnorm(desc, x, dy, weight, None, None, dx, *((None, None) if weight is None else made), mean, rstd)
    return dx, *made
