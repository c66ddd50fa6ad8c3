"""ConvNeXt's block as one operator: x + gamma * down(activation(up(norm(conv(x))))), with a filter a channel, at every pixel.

The same kernels as those of its parts. What they are asked for by shapes is looked up once a call, not once a kernel: a step is
bound by the caller's thread otherwise. Between the convolution and the sum all are rows of channels, one for each pixel.
"""

import functools
import types

import torch

from .. import _problems
from .._library import operators
from ._conv import conv2d, conv2d_backward
from ._conv import gradients_like as conv_gradients_like
from ._products import data_gradient, linear_like, plain_forward, rows_times, weight_gradient
from ._registry import dense, has_kernel, image, is_channels_last, like, operator, run, without_gradient

_conv = operators["conv"].taking("x w bias y")
_norm = operators["layernorm"].taking("x gamma beta y mean rstd")
_norm_backward = operators["layernorm"].taking("x gamma dy dx dgamma dbeta mean rstd")
_up = operators["gemm"].taking("a b bias d x")
_hidden_gradient = operators["gemm"].taking("a b d x")

_WEIGHTS = (
    "Tensor filter, Tensor? filter_bias, Tensor norm, Tensor norm_bias, Tensor up, Tensor? up_bias, Tensor down, Tensor? down_bias,"
    " Tensor? gamma"
)
_KEPT = "image mean rstd normed before hidden scaled".split()


def _pixels(x):
    """Rows of channels."""
    return x.permute(0, 2, 3, 1).flatten(0, 2)


def _as_image(rows, x):
    n, c, h, w = x.shape
    return rows.view(n, h, w, c).permute(0, 3, 1, 2)


@functools.lru_cache(8192)
def _forward_problems(x, filter, up, down, dtype, device, last, padding, eps, activation, biases, keeps):
    """Problems of the forward pass, by shapes; conv: None where no kernel takes it but the slow one that follows the definition."""
    (n, c, h, w), inner = x, up[0]
    if (tuple(filter), tuple(up), tuple(down)) != ((c, 1, *(2 * p + 1 for p in padding)), (inner, c), (c, inner)):
        raise ValueError(
            f"conv_block: x{list(x)} filter{list(filter)} up{list(up)} down{list(down)} padding={padding} do not fit"
        )
    conv = _problems.conv(x, filter, dtype, (1, 1), padding, (1, 1), c, last, biases[0])
    return types.SimpleNamespace(
        conv=conv if has_kernel("conv", conv, device) else None,
        norm=_problems.norm("layernorm", n * h * w, c, dtype, eps, True),
        up=_problems.gemm(n * h * w, inner, c, dtype, biases[1], activation, layout="nt", preactivation=keeps, c=False),
    )


@functools.lru_cache(8192)
def _gradient_problems(rows, c, inner, dtype, activation):
    def sums(columns):
        return _problems.reduce("sum", (rows, columns), (columns, 1), (0,), dtype)

    return types.SimpleNamespace(
        hidden=_problems.gemm(rows, inner, c, dtype, False, "d" + activation, layout="nn"),
        norm=_problems.norm("layernorm", rows, c, dtype, 0, True, False, True),
        up_sums=sums(inner),
        sums=sums(c),
    )


def _activated(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, padding, eps, activation, keeps):
    """(convolution, mean, rstd, its norm, what the activation takes, hidden), None for what only the gradient takes."""
    last = is_channels_last(x)
    shapes, biases = (x.shape, filter.shape, up.shape, down.shape), (filter_bias is not None, up_bias is not None)
    problems = _forward_problems(*shapes, x.dtype, x.device, last, tuple(padding), eps, activation, biases, keeps)
    if problems.conv:
        x = image(x, last)
        convolved = torch.empty_like(x)
        _conv(problems.conv, x, image(filter, last), *dense(filter_bias), convolved)
    else:
        convolved = conv2d(x, filter, filter_bias, (1, 1), padding, (1, 1), filter.shape[0])
    rows = _pixels(convolved)
    mean = torch.empty(rows.shape[0], dtype=torch.float32, device=x.device) if keeps else None
    rstd = torch.empty_like(mean) if keeps else None
    normed = torch.empty_like(rows)
    _norm(problems.norm, rows, norm, norm_bias, normed, mean, rstd)
    hidden = rows.new_empty((rows.shape[0], up.shape[0]))
    before = torch.empty_like(hidden) if keeps else None
    _up(problems.up, normed, up, *dense(up_bias), hidden, before)
    return rows, mean, rstd, normed, before, hidden


def _summed(x, hidden, down, down_bias, gamma):
    """The block's result, and the weights times gamma."""
    scaled = down if gamma is None else rows_times(down, gamma)
    bias = down_bias if gamma is None or down_bias is None else down_bias * gamma
    return _as_image(plain_forward(hidden, scaled, bias, False, _pixels(x).contiguous()), x), scaled


def _shapes(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma, *options):
    rows = like(_pixels(x))
    mean = rows.new_empty(rows.shape[0], dtype=torch.float32)
    inner = linear_like(rows, up, False)
    scaled = x.new_empty(0) if gamma is None else like(down)
    return _as_image(rows, x), like(rows), mean, like(mean), like(rows), inner, like(inner), scaled


def _setup(ctx, inputs, output):
    x, filter, _, norm, _, up, _, down, down_bias, gamma, ctx.padding, _, ctx.activation = inputs
    ctx.save_for_backward(x, filter, norm, up, down, down_bias, gamma, *output[1:])


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:10]
    gradients = ops.conv_block_backward(dy, *ctx.saved_tensors, ctx.padding, ctx.activation, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), None, None, None


@operator(
    f"conv_block(Tensor x, {_WEIGHTS}, int[] padding, float eps, str activation) -> (Tensor{', Tensor' * len(_KEPT)})",
    _shapes,
    _gradient,
    _setup,
)
def conv_block(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma, padding, eps, activation):
    norm, norm_bias, up, down = dense(norm, norm_bias, up, down)
    kept = _activated(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, padding, eps, activation, True)
    y, scaled = _summed(x, kept[-1], down, down_bias, gamma)
    return y, *kept, x.new_empty(0) if gamma is None else scaled


@without_gradient("conv_block")
def _conv_block_alone(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma, padding, eps, activation):
    norm, norm_bias, up, down = dense(norm, norm_bias, up, down)
    *_, hidden = _activated(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, padding, eps, activation, False)
    return (_summed(x, hidden, down, down_bias, gamma)[0],)


def _gradients_like(x, filter, norm, up, down, down_bias, gamma, needs):
    nothing = x.new_empty(0)
    dx, dfilter, dbias = conv_gradients_like(x, filter, *needs[:3])
    layers = (
        like(up),
        up.new_empty(up.shape[0] if needs[6] else 0),
        like(down),
        nothing if down_bias is None else like(down_bias),
    )
    return dx, dfilter, dbias, like(norm), like(norm), *layers, nothing if gamma is None else like(gamma)


def _sum(problem, rows):
    out = rows.new_empty(rows.shape[1])
    run.reduce(problem, rows, out)
    return out


def _down_gradients(dy, hidden, down, down_bias, gamma, sums):
    """Of the second layer and gamma, which is a factor of its weights and bias."""
    ddown, dbias, dgamma = weight_gradient(dy, hidden, down, False, ours=True), None, None
    if down_bias is not None:
        dbias = _sum(sums, dy)
    if gamma is not None:
        dgamma = torch.linalg.vecdot(ddown, down)
        ddown = rows_times(ddown, gamma)
        if down_bias is not None:
            dgamma.addcmul_(dbias, down_bias)
            dbias *= gamma
    return ddown, dbias, dgamma


@operator(
    "conv_block_backward(Tensor dy, Tensor x, Tensor filter, Tensor norm, Tensor up, Tensor down, Tensor? down_bias, Tensor? gamma,"
    f" {', '.join('Tensor ' + name for name in _KEPT)}, int[] padding, str activation, bool[] needs)"
    f" -> (Tensor{', Tensor' * 9})",
    lambda dy, x, filter, norm, up, down, down_bias, gamma, *rest: _gradients_like(
        x, filter, norm, up, down, down_bias, gamma, rest[-1]
    ),
)
def conv_block_backward(
    dy,
    x,
    filter,
    norm,
    up,
    down,
    down_bias,
    gamma,
    convolved,
    mean,
    rstd,
    normed,
    before,
    hidden,
    scaled,
    padding,
    activation,
    needs,
):
    norm, up, down, rows = dense(norm, up, down, _pixels(dy))
    problems = _gradient_problems(*rows.shape, up.shape[0], dy.dtype, activation)
    dbefore = torch.empty_like(before)
    _hidden_gradient(problems.hidden, rows, down if gamma is None else scaled, dbefore, before)
    ddown, ddown_bias, dgamma = _down_gradients(rows, hidden, down, down_bias, gamma, problems.sums)
    dup_bias = _sum(problems.up_sums, dbefore) if needs[6] else None
    dup, dnormed = weight_gradient(dbefore, normed, up, False, ours=True), data_gradient(dbefore, up, False, ours=True)
    dimage, dnorm, dnorm_bias = torch.empty_like(rows), torch.empty_like(norm), torch.empty_like(norm)
    _norm_backward(problems.norm, convolved, norm, dnormed, dimage, dnorm, dnorm_bias, mean, rstd)
    options = (1, 1), padding, (1, 1), filter.shape[0]
    dx, dfilter, _ = conv2d_backward(_as_image(dimage, x), x, filter, *options, needs[0], needs[1], False)
    dfilter_bias = _sum(problems.sums, dimage) if needs[2] else None  # apart: the gradient of filters alone has a faster kernel
    if needs[0]:
        dx += dy
    gradients = dx, dfilter, dfilter_bias, dnorm, dnorm_bias, dup, dup_bias, ddown, ddown_bias, dgamma
    return tuple([x.new_empty(0) if g is None else g for g in gradients])
