"""A block of a transformer as one operator: norm, attention of a joint projection, norm, two layers, and both residual sums.

h = x + proj(attention(qkv(norm1(x)))), y = h + down(activation(up(norm2(h)))). The same kernels as those of its parts; what is saved
is the caller's thread, which calls one function, and autograd, which has one node.
"""

import torch

from .._shapes import expect
from ._attention import attention_packed, attention_packed_backward
from ._norms import norm_of_rows, norm_of_rows_backward
from ._products import (
    bias_gradient,
    data_gradient,
    forward,
    linear_like,
    weight_gradient,
)
from ._registry import dense, like, operator, without_gradient

_WEIGHTS = (
    "Tensor norm1, Tensor norm1_bias, Tensor qkv, Tensor? qkv_bias, Tensor proj, Tensor? proj_bias,"
    " Tensor norm2, Tensor norm2_bias, Tensor up, Tensor? up_bias, Tensor down, Tensor? down_bias"
)
_OPTIONS = "int heads, bool causal, float scale, float eps1, float eps2, str activation, bool turned"
_KEPT = "normed1 mean1 rstd1 joint o lse h normed2 mean2 rstd2 before hidden".split()


def rows_of(x):
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def statistics_of(rows):
    return rows.new_empty(rows.shape[0], dtype=torch.float32)


def _attended(joint, x, heads, causal, scale):
    """o[rows,C] and the log-sum-exp of q, k and v side by side."""
    batch, tokens, _ = x.shape
    o, lse = attention_packed(joint.view(batch, tokens, 3, heads, joint.shape[1] // (3 * heads)), causal, scale)
    return o.view(joint.shape[0], joint.shape[1] // 3), lse


_PATTERN = "x[B,S,C] norm1[C] norm1_bias[C] {qkv} qkv_bias[J] {proj} proj_bias[C] norm2[C] norm2_bias[C] {up} up_bias[I] {down} down_bias[C]"
_PATTERNS = (
    _PATTERN.format(qkv="qkv[J,C]", proj="proj[C,O]", up="up[I,C]", down="down[C,I]"),
    _PATTERN.format(qkv="qkv[C,J]", proj="proj[O,C]", up="up[C,I]", down="down[I,C]"),
)


def _expect(x, *tensors, heads, turned):
    expect("block", _PATTERNS[turned], x, *tensors)
    columns, attended = tensors[2].shape[turned], tensors[4].shape[not turned]
    if columns != 3 * attended or attended % heads:
        raise ValueError(f"block: {columns} columns of qkv are not q, k and v of {heads} heads, of which proj has {attended}")


def _shapes(x, norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias, norm2, norm2_bias, up, up_bias, down, down_bias, *options):
    """Memory for y and what is kept."""
    heads, turned = options[0], options[-1]
    rows = x.new_empty((x.numel() // x.shape[-1], x.shape[-1]))
    joint, inner = linear_like(rows, qkv, turned), linear_like(rows, up, turned)
    o = rows.new_empty((rows.shape[0], joint.shape[1] // 3))
    lse = x.new_empty((x.shape[0], heads, x.shape[1]), dtype=torch.float32)
    means = [statistics_of(rows) for _ in range(4)]
    return like(x), like(rows), *means[:2], joint, o, lse, like(rows), like(rows), *means[2:], inner, like(inner)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], *inputs[1:12:2], *output[1:])
    ctx.options = inputs[13:]


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:13]
    gradients = ops.block_backward(dy, *ctx.saved_tensors, *ctx.options, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), *(None,) * 7


@operator(
    f"block(Tensor x, {_WEIGHTS}, {_OPTIONS}) -> (Tensor{', Tensor' * len(_KEPT)})",
    _shapes,
    _gradient,
    _setup,
)
def block(x, *args):
    weights, (heads, causal, scale, eps1, eps2, activation, turned) = args[:12], args[12:]
    _expect(x, *weights, heads=heads, turned=turned)
    norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias, norm2, norm2_bias, up, up_bias, down, down_bias = weights
    x, qkv, proj, up, down = dense(x, qkv, proj, up, down)
    rows = rows_of(x)
    mean1, rstd1, mean2, rstd2 = (statistics_of(rows) for _ in range(4))
    normed1, _ = norm_of_rows("layernorm", rows, None, norm1, norm1_bias, eps1, mean1, rstd1)
    joint = forward(normed1, qkv, qkv_bias, turned)
    o, lse = _attended(joint, x, heads, causal, scale)
    attended = forward(o, proj, proj_bias, turned)
    normed2, h = norm_of_rows("layernorm", attended, rows, norm2, norm2_bias, eps2, mean2, rstd2)
    before = linear_like(rows, up, turned)
    hidden = forward(normed2, up, up_bias, turned, activation, before)
    y = forward(hidden, down, down_bias, turned, residual=h).view(x.shape)
    return y, normed1, mean1, rstd1, joint, o, lse, h, normed2, mean2, rstd2, before, hidden


@without_gradient("block")
def _block_alone(x, *args):
    weights, (heads, causal, scale, eps1, eps2, activation, turned) = args[:12], args[12:]
    _expect(x, *weights, heads=heads, turned=turned)
    norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias, norm2, norm2_bias, up, up_bias, down, down_bias = weights
    x, qkv, proj, up, down = dense(x, qkv, proj, up, down)
    rows = rows_of(x)
    normed, _ = norm_of_rows("layernorm", rows, None, norm1, norm1_bias, eps1, None, None)
    joint = forward(normed, qkv, qkv_bias, turned)
    attended = forward(_attended(joint, x, heads, causal, scale)[0], proj, proj_bias, turned)
    normed, h = norm_of_rows("layernorm", attended, rows, norm2, norm2_bias, eps2, None, None)
    del joint, attended  # memory for what follows
    hidden = forward(normed, up, up_bias, turned, activation)
    return (forward(hidden, down, down_bias, turned, residual=h).view(x.shape),)


def _gradients_like(x, norm1, qkv, proj, norm2, up, down, turned, needs):
    def layer(weight, i):
        bias = x.new_empty(weight.shape[1 if turned else 0])
        return like(weight) if needs[i] else x.new_empty(0), bias if needs[i + 1] else x.new_empty(0)

    norms = like(norm1), like(norm1), like(norm2), like(norm2)
    return like(x), *norms[:2], *layer(qkv, 3), *layer(proj, 5), *norms[2:], *layer(up, 9), *layer(down, 11)


@operator(
    "block_backward(Tensor dy, Tensor x, Tensor norm1, Tensor qkv, Tensor proj, Tensor norm2, Tensor up, Tensor down,"
    f" {', '.join('Tensor ' + name for name in _KEPT)}, {_OPTIONS}, bool[] needs) -> (Tensor{', Tensor' * 12})",
    lambda dy, x, norm1, qkv, proj, norm2, up, down, *rest: _gradients_like(x, norm1, qkv, proj, norm2, up, down, *rest[-2:]),
)
def block_backward(
    dy,
    x,
    norm1,
    qkv,
    proj,
    norm2,
    up,
    down,
    normed1,
    mean1,
    rstd1,
    joint,
    o,
    lse,
    h,
    normed2,
    mean2,
    rstd2,
    before,
    hidden,
    heads,
    causal,
    scale,
    eps1,
    eps2,
    activation,
    turned,
    needs,
):
    x, dy, qkv, proj, up, down = dense(x, dy, qkv, proj, up, down)
    dy_rows = rows_of(dy)

    def layer(gradient, inputs, weight, i):
        """Gradients of a layer's weight and bias."""
        dweight = weight_gradient(gradient, inputs, weight, turned, ours=True) if needs[i] else None
        return dweight, bias_gradient(gradient) if needs[i + 1] else None

    dbefore = data_gradient(dy_rows, down, turned, "d" + activation, before)
    ddown = layer(dy_rows, hidden, down, 11)
    dup = layer(dbefore, normed2, up, 9)
    dnormed = data_gradient(dbefore, up, turned, ours=True)
    dh, *dnorm2 = norm_of_rows_backward("layernorm", dnormed, dy_rows, h, norm2, mean2, rstd2)
    dproj = layer(dh, o, proj, 5)
    batch, tokens, _ = x.shape
    shape = (batch, tokens, heads, o.shape[1] // heads)
    packed = joint.view(batch, tokens, 3, *shape[2:])
    do = data_gradient(dh, proj, turned, ours=True)
    djoint = attention_packed_backward(do.view(shape), packed, o.view(shape), lse, causal, scale).view(joint.shape)
    dqkv = layer(djoint, normed1, qkv, 3)
    dnormed = data_gradient(djoint, qkv, turned, ours=True)
    dx, *dnorm1 = norm_of_rows_backward("layernorm", dnormed, dh, rows_of(x), norm1, mean1, rstd1)
    gradients = (dx.view(x.shape), *dnorm1, *dqkv, *dproj, *dnorm2, *dup, *ddown)
    return tuple(x.new_empty(0) if g is None else g for g in gradients)
