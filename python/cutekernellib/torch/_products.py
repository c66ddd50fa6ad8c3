"""Products with weights: a linear layer with its activation, and two of them with an activation between.

Weights are [out, in] as torch.nn.Linear has them or, where `turned`, [in, out] as transformers' Conv1D does. What the gradient of an
activation wants, its argument, is written by the product before it, and that gradient is made by the product behind it. Products with
nothing to fuse are torch's where rows are whole 16 bytes, but for those of whole blocks (_sequence.py): bench/notes/python.md.
"""

import functools

import torch

from .. import _problems
from .._library import operators
from .._shapes import expect
from ._elements import silu_mul, silu_mul_backward
from ._registry import dense, like, operator, row_count, without_gradient
from ._tensors import sum_of_rows

_gemm = operators["gemm"].taking("a b c bias d x beta")
_linear = torch._C._nn.linear


@functools.lru_cache(8192)
def gemm_problem(m, n, k, dtype, layout, bias, activation, keeps, residual):
    return _problems.gemm(m, n, k, dtype, bias, activation, layout=layout, preactivation=keeps, c=residual)


def _product(m, n, k, a, b, d, layout, bias=None, activation="identity", x=None, residual=None):
    """d[m,n] = activation(a * b + residual + bias), where x, if any, gets what the activation takes, or has it."""
    keeps = x is not None and activation[0] != "d"
    desc = gemm_problem(m, n, k, a.dtype, layout, bias is not None, activation, keeps, residual is not None)
    _gemm(desc, a, b, residual, *dense(bias), d, x, None if residual is None else 1.0)
    return d


def _is_torchs(weight):
    rows, cols = weight.shape
    return rows % 8 == cols % 8 == 0 and weight.element_size() == 2


def _matrix(x):
    return x if x.dim() == 2 else x.view(-1, x.shape[-1])


def _sizes(weight, turned):
    """Numbers in and out."""
    return weight.shape if turned else weight.shape[::-1]


def forward(x, weight, bias, turned, activation="identity", keep=None, residual=None):
    k, n = _sizes(weight, turned)
    y = x.new_empty((*x.shape[:-1], n))
    layout = "nn" if turned else "nt"
    return _product(row_count(x), n, k, x, weight, y, layout, bias, activation, keep, residual)


def plain_forward(x, weight, bias, turned, residual=None):
    """Without an activation."""
    if not _is_torchs(weight) or (residual is not None and bias is not None):
        return forward(x, weight, bias, turned, residual=residual)
    if residual is None and not turned:
        return _linear(x, weight, bias)
    right, added = weight if turned else weight.t(), bias if residual is None else _matrix(residual)
    y = torch.mm(_matrix(x), right) if added is None else torch.addmm(added, _matrix(x), right)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[1])


def data_gradient(dy, weight, turned, derivative="identity", x=None):
    """The gradient of a layer's input, by the derivative at x of an activation before the layer."""
    if derivative == "identity" and _is_torchs(weight):
        dx = torch.mm(_matrix(dy), weight.t() if turned else weight)
        return dx if dy.dim() == 2 else dx.view(*dy.shape[:-1], dx.shape[1])
    k, n = _sizes(weight, turned)
    dx = dy.new_empty((*dy.shape[:-1], k))
    return _product(row_count(dy), k, n, dy, weight, dx, "nt" if turned else "nn", None, derivative, x)


def weight_gradient(dy, x, weight, turned):
    left, right = (x, dy) if turned else (dy, x)
    if _is_torchs(weight):
        return torch.mm(_matrix(left).t(), _matrix(right))
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format)
    return _product(*weight.shape, row_count(x), left, right, dweight, "tn")


def bias_gradient(dy):
    return sum_of_rows(_matrix(dy))


# linear


def _linear_setup(ctx, inputs, output):
    x, weight, _, ctx.activation, ctx.turned = inputs
    y, before = output
    kept = {"identity": None, "relu": y}.get(ctx.activation, before)
    ctx.save_for_backward(x, weight, kept)


def _linear_gradient(ops, ctx, dy):
    x, weight, kept = ctx.saved_tensors
    if ctx.activation == "relu":
        dy = torch.ops.aten.threshold_backward(dy, kept, 0)
    elif ctx.activation != "identity":
        dy = ops.unary_backward(dy, kept, _UNARY[ctx.activation])
    needs = ctx.needs_input_grad[:3]
    gradients = ops.linear_backward(dy, x, weight, ctx.turned, *needs)
    return *(g if need else None for g, need in zip(gradients, needs)), None, None


_UNARY = {"gelu": "gelu_tanh", "gelu_erf": "gelu", "silu": "silu"}  # gemm's names of activations, and those of elements


def linear_like(x, weight, turned):
    return x.new_empty((*x.shape[:-1], _sizes(weight, turned)[1]))


def _expect_layer(x, weight, bias, turned):
    expect("linear", "x[*,K] weight[K,N] bias[N]" if turned else "x[*,K] weight[N,K] bias[N]", x, weight, bias)


def _linear_outputs(x, weight, activation, turned):
    y = linear_like(x, weight, turned)
    return y, torch.empty_like(y) if activation in _UNARY else x.new_empty(0)


@operator(
    "linear(Tensor x, Tensor weight, Tensor? bias, str activation, bool turned) -> (Tensor, Tensor)",
    lambda x, weight, bias, activation, turned: _linear_outputs(x, weight, activation, turned),
    _linear_gradient,
    _linear_setup,
)
def linear(x, weight, bias, activation, turned):
    _expect_layer(x, weight, bias, turned)
    x, weight = dense(x, weight)
    before = x.new_empty((*x.shape[:-1], _sizes(weight, turned)[1])) if activation in _UNARY else None
    y = forward(x, weight, bias, turned, activation, before)
    return y, x.new_empty(0) if before is None else before


@without_gradient("linear")
def _linear_alone(x, weight, bias, activation, turned):
    _expect_layer(x, weight, bias, turned)
    return (forward(*dense(x, weight), bias, turned, activation),)


@operator(
    "linear_backward(Tensor dy, Tensor x, Tensor weight, bool turned, bool needs_dx, bool needs_dweight, bool needs_dbias)"
    " -> (Tensor, Tensor, Tensor)",
    lambda dy, x, weight, turned, needs_dx, needs_dweight, needs_dbias: (
        like(x) if needs_dx else x.new_empty(0),
        like(weight) if needs_dweight else x.new_empty(0),
        x.new_empty(dy.shape[-1:]) if needs_dbias else x.new_empty(0),
    ),
)
def linear_backward(dy, x, weight, turned, needs_dx, needs_dweight, needs_dbias):
    dy, x, weight = dense(dy, x, weight)
    dx = data_gradient(dy, weight, turned) if needs_dx else None
    dweight = weight_gradient(dy, x, weight, turned) if needs_dweight else None
    dbias = bias_gradient(dy) if needs_dbias else None
    return tuple(x.new_empty(0) if g is None else g for g in (dx, dweight, dbias))


# Two layers: down * activation(up * x + up_bias) + down_bias + residual


def _expect_layers(x, up, up_bias, down, down_bias, residual, turned):
    weights = "up[K,I] up_bias[I] down[I,N]" if turned else "up[I,K] up_bias[I] down[N,I]"
    inputs = x, up, up_bias, down, down_bias, residual
    expect("mlp", f"x[*,K] {weights} down_bias[N] residual[*,N]", *inputs)


def _mlp_setup(ctx, inputs, output):
    x, up, _, down, down_bias, _, ctx.activation, ctx.turned = inputs
    _, before, hidden = output
    ctx.save_for_backward(x, up, down, down_bias, before, hidden)


def _mlp_gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad
    gradients = ops.mlp_backward(dy, *ctx.saved_tensors, ctx.activation, ctx.turned, needs[2])
    return *(g if need else None for g, need in zip(gradients, needs)), dy if needs[5] else None, None, None


@operator(
    "mlp(Tensor x, Tensor up, Tensor? up_bias, Tensor down, Tensor? down_bias, Tensor? residual, str activation,"
    " bool turned) -> (Tensor, Tensor, Tensor)",
    lambda x, up, up_bias, down, down_bias, residual, activation, turned: (
        linear_like(x, down, turned),
        linear_like(x, up, turned),
        linear_like(x, up, turned),
    ),
    _mlp_gradient,
    _mlp_setup,
)
def mlp(x, up, up_bias, down, down_bias, residual, activation, turned):
    _expect_layers(x, up, up_bias, down, down_bias, residual, turned)
    x, up, down, residual = dense(x, up, down, residual)
    before = x.new_empty((*x.shape[:-1], _sizes(up, turned)[1]))
    hidden = forward(x, up, up_bias, turned, activation, before)
    return plain_forward(hidden, down, down_bias, turned, residual), before, hidden


@without_gradient("mlp")
def _mlp_alone(x, up, up_bias, down, down_bias, residual, activation, turned):
    _expect_layers(x, up, up_bias, down, down_bias, residual, turned)
    x, up, down, residual = dense(x, up, down, residual)
    hidden = forward(x, up, up_bias, turned, activation)
    return (plain_forward(hidden, down, down_bias, turned, residual),)


@operator(
    "mlp_backward(Tensor dy, Tensor x, Tensor up, Tensor down, Tensor? down_bias, Tensor before, Tensor hidden,"
    " str activation, bool turned, bool has_up_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda dy, x, up, down, down_bias, before, hidden, activation, turned, has_up_bias: (
        like(x),
        like(up),
        x.new_empty(before.shape[-1:] if has_up_bias else 0),
        like(down),
        x.new_empty(0) if down_bias is None else like(down_bias),
    ),
)
def mlp_backward(dy, x, up, down, down_bias, before, hidden, activation, turned, has_up_bias):
    dy, x, up, down = dense(dy, x, up, down)
    dbefore = data_gradient(dy, down, turned, "d" + activation, before)
    ddown, ddown_bias = weight_gradient(dy, hidden, down, turned), None if down_bias is None else bias_gradient(dy)
    dup_bias = bias_gradient(dbefore) if has_up_bias else None
    gradients = (
        data_gradient(dbefore, up, turned),
        weight_gradient(dbefore, x, up, turned),
        dup_bias,
        ddown,
        ddown_bias,
    )
    return tuple(x.new_empty(0) if g is None else g for g in gradients)


# A gated MLP: down * (silu(gate * x) * (up * x)) + residual


def _gated_mlp_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4], *output[1:])


def _gated_mlp_gradient(ops, ctx, dy):
    gradients = ops.gated_mlp_backward(dy, *ctx.saved_tensors)
    needs = ctx.needs_input_grad
    return *(g if need else None for g, need in zip(gradients, needs)), dy if needs[4] else None


@operator(
    "gated_mlp(Tensor x, Tensor gate, Tensor up, Tensor down, Tensor? residual) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda x, gate, up, down, residual: (linear_like(x, down, False), *(linear_like(x, up, False) for _ in range(3))),
    _gated_mlp_gradient,
    _gated_mlp_setup,
)
def gated_mlp(x, gate, up, down, residual):
    expect("gated_mlp", "x[*,K] gate[I,K] up[I,K] down[N,I] residual[*,N]", x, gate, up, down, residual)
    x, gate, up, down, residual = dense(x, gate, up, down, residual)
    g, u = plain_forward(x, gate, None, False), plain_forward(x, up, None, False)
    hidden = silu_mul(g, u)
    return plain_forward(hidden, down, None, False, residual), g, u, hidden


@operator(
    "gated_mlp_backward(Tensor dy, Tensor x, Tensor gate, Tensor up, Tensor down, Tensor g, Tensor u, Tensor hidden)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    lambda dy, x, gate, up, down, g, u, hidden: (like(x), like(gate), like(up), like(down)),
)
def gated_mlp_backward(dy, x, gate, up, down, g, u, hidden):
    dy, x, gate, up, down = dense(dy, x, gate, up, down)
    dg, du = silu_mul_backward(data_gradient(dy, down, False), g, u)
    dx = data_gradient(dg, gate, False)
    _matrix(dx).addmm_(_matrix(du), up)
    return (
        dx,
        weight_gradient(dg, x, gate, False),
        weight_gradient(du, x, up, False),
        weight_gradient(dy, hidden, down, False),
    )
