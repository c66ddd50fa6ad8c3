"""Norms of rows, of sums of rows, and of groups of channels."""

import functools
import math

import torch

from .. import _problems
from .._shapes import check, expect
from ._registry import dense, image, image_like, is_channels_last, like, operator, run, without_gradient

# Norms of rows. Where there is a residual the norm is that of a sum, which is returned, too, and of both addends the gradient is one.


def _statistics(x):
    return torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)


_SAID = {"layernorm": "layer_norm", "rmsnorm": "rms_norm"}  # of operators: the functions' names
_run = vars(run)


@functools.lru_cache(8192)
def _problem(name, x, residual, weight, bias, eps):
    """Of shapes and types, which must fit: (shape, type) of each, or None."""
    check(_SAID[name], "x[*,N] residual[*,N] weight[N] bias[N]", x, residual, weight, bias)
    if weight is None and bias is not None:
        raise ValueError("layer_norm: a bias needs a weight")
    return _sized(name, *x, eps, weight is not None, residual is not None)


@functools.lru_cache(8192)
def _sized(name, shape, *rest):
    return _problems.norm(name, math.prod(shape[:-1]), shape[-1], *rest)


def _norm_of_rows(name, x, weight, bias, eps, residual=None, mean=None, rstd=None):
    """y, and x + residual if there is one."""
    desc = _problem(
        name,
        (x.shape, x.dtype),
        residual if residual is None else (residual.shape, residual.dtype),
        weight if weight is None else (weight.shape, weight.dtype),
        bias if bias is None else (bias.shape, bias.dtype),
        eps,
    )
    x, h = x.contiguous(), None
    y = torch.empty_like(x)
    if residual is not None:
        residual, h = residual.contiguous(), torch.empty_like(x)
    if weight is not None:
        weight = weight.contiguous()
        if bias is not None:
            bias = bias.contiguous()
        elif name == "layernorm":
            bias = torch.zeros_like(weight)
    _run[name](desc, x, residual, weight, bias, None, None, y, h, None, None, None, mean, rstd)
    return y, h


def _norm_of_rows_backward(name, dy, dsum, x, weight, mean, rstd):
    dy, dsum, x, weight = dense(dy, dsum, x, weight)
    dx, dweight = torch.empty_like(x), torch.empty_like(weight) if weight is not None else None
    dbias = torch.empty_like(weight) if weight is not None and name == "layernorm" else None
    desc = _sized(name, x.shape, x.dtype, 0, weight is not None, dsum is not None, True)
    _run[name](desc, x, None, weight, None, dy, dsum, None, None, dx, dweight, dbias, mean, rstd)
    wanted = (dweight, dbias) if name == "layernorm" else (dweight,)
    return dx, *(x.new_empty(0) if g is None else g for g in wanted)


def _parameter_like(x, weight):
    return x.new_empty(0) if weight is None else torch.empty_like(weight)


def _layer_norm_gradient(ops, ctx, dy):
    x, weight, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = ops.layer_norm_backward(dy, None, x, weight, mean, rstd)
    return dx, dweight if weight is not None else None, dbias if ctx.needs_input_grad[2] else None, None


def _norm_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2], *output[1:])


@operator(
    "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, weight, bias, eps: (like(x), _statistics(x), _statistics(x)),
    _layer_norm_gradient,
    _norm_setup,
)
def layer_norm(x, weight, bias, eps):
    mean, rstd = _statistics(x), _statistics(x)
    return _norm_of_rows("layernorm", x, weight, bias, eps, None, mean, rstd)[0], mean, rstd


without_gradient("layer_norm")(functools.partial(_norm_of_rows, "layernorm"))


@operator(
    "layer_norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor? weight, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)",
    lambda dy, dsum, x, weight, mean, rstd: (like(x), _parameter_like(x, weight), _parameter_like(x, weight)),
)
def layer_norm_backward(dy, dsum, x, weight, mean, rstd):
    return _norm_of_rows_backward("layernorm", dy, dsum, x, weight, mean, rstd)


def _rms_norm_gradient(ops, ctx, dy):
    x, weight, rstd = ctx.saved_tensors
    dx, dweight = ops.rms_norm_backward(dy, None, x, weight, rstd)
    return dx, dweight if weight is not None else None, None


@operator(
    "rms_norm(Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor)",
    lambda x, weight, eps: (like(x), _statistics(x)),
    _rms_norm_gradient,
    _norm_setup,
)
def rms_norm(x, weight, eps):
    rstd = _statistics(x)
    return _norm_of_rows("rmsnorm", x, weight, None, eps, rstd=rstd)[0], rstd


without_gradient("rms_norm")(lambda x, weight, eps: _norm_of_rows("rmsnorm", x, weight, None, eps))


@operator(
    "rms_norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor? weight, Tensor rstd) -> (Tensor, Tensor)",
    lambda dy, dsum, x, weight, rstd: (like(x), _parameter_like(x, weight)),
)
def rms_norm_backward(dy, dsum, x, weight, rstd):
    return _norm_of_rows_backward("rmsnorm", dy, dsum, x, weight, None, rstd)


def _add_norm_setup(ctx, inputs, output):
    ctx.save_for_backward(output[1], inputs[2], *output[2:])
    ctx.set_materialize_grads(False)


def _add_layer_norm_gradient(ops, ctx, dy, dsum):
    if dy is None:
        return dsum, dsum, None, None, None
    h, weight, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = ops.layer_norm_backward(dy, dsum, h, weight, mean, rstd)
    return dx, dx, dweight, dbias if ctx.needs_input_grad[3] else None, None


@operator(
    "add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda x, residual, weight, bias, eps: (like(x), like(x), _statistics(x), _statistics(x)),
    _add_layer_norm_gradient,
    _add_norm_setup,
    results=2,
)
def add_layer_norm(x, residual, weight, bias, eps):
    mean, rstd = _statistics(x), _statistics(x)
    return *_norm_of_rows("layernorm", x, weight, bias, eps, residual, mean, rstd), mean, rstd


@without_gradient("add_layer_norm")
def _add_layer_norm_alone(x, residual, weight, bias, eps):
    return _norm_of_rows("layernorm", x, weight, bias, eps, residual)


def _add_rms_norm_gradient(ops, ctx, dy, dsum):
    if dy is None:
        return dsum, dsum, None, None
    h, weight, rstd = ctx.saved_tensors
    dx, dweight = ops.rms_norm_backward(dy, dsum, h, weight, rstd)
    return dx, dx, dweight, None


@operator(
    "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, residual, weight, eps: (like(x), like(x), _statistics(x)),
    _add_rms_norm_gradient,
    _add_norm_setup,
    results=2,
)
def add_rms_norm(x, residual, weight, eps):
    rstd = _statistics(x)
    return *_norm_of_rows("rmsnorm", x, weight, None, eps, residual, rstd=rstd), rstd


@without_gradient("add_rms_norm")
def _add_rms_norm_alone(x, residual, weight, eps):
    return _norm_of_rows("rmsnorm", x, weight, None, eps, residual)


# Group norm


def _group_statistics(x, groups):
    return torch.empty((x.shape[0], groups), dtype=torch.float32, device=x.device)


def _group_norm_setup(ctx, inputs, output):
    x, groups, weight, bias, _ = inputs
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


@operator(
    "group_norm_backward(Tensor dy, Tensor x, int groups, Tensor? weight, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)",
    lambda dy, x, groups, weight, mean, rstd: (image_like(x), _parameter_like(x, weight), _parameter_like(x, weight)),
)
def group_norm_backward(dy, x, groups, weight, mean, rstd):
    last, (weight,) = is_channels_last(x), dense(weight)
    x, dy = image(x, last), image(dy, last)
    dx, gradients = torch.empty_like(x), [None if weight is None else torch.empty_like(weight) for _ in range(2)]
    desc = _problems.groupnorm(x.shape, groups, x.dtype, 0, weight is not None, last, True)
    run.groupnorm(desc, x, dy, weight, None, None, dx, *gradients, mean, rstd)
    return dx, *(x.new_empty(0) if g is None else g for g in gradients)
