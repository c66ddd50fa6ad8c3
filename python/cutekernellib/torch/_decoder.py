"""A layer of a decoder such as Llama's as one operator: RMS norm, rotated attention, RMS norm, gated MLP, and both residual sums.

h = x + o(attention(rotated q, rotated k, v)) of q, k, v = projections of norm1(x); y = h + down(silu(gate(n)) * up(n)), n = norm2(h).
The same kernels as those of its parts; what is saved is the caller's thread, which calls one function, and autograd, which has one node.
"""

import torch

from .._shapes import expect
from ._attention import attention, attention_backward
from ._elements import rotate, silu_mul, silu_mul_backward
from ._norms import norm_of_rows, norm_of_rows_backward
from ._products import data_gradient, forward, linear_like, weight_gradient
from ._registry import dense, like, operator, row_count, without_gradient

_WEIGHTS = "norm1 q k v o norm2 gate up down".split()
_KEPT = "normed1 rstd1 q_rotated k_rotated v_heads attended lse h normed2 rstd2 gated upped hidden".split()
_TENSORS = ", ".join("Tensor " + name for name in _WEIGHTS)
_OPTIONS = "int head_dim, float scale, float eps1, float eps2"


def rows_of(x):
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def statistics_of(rows):
    return rows.new_empty(rows.shape[0], dtype=torch.float32)


def _heads(rows, x, head_dim):
    """[B,H,S,D] of rows of heads side by side; the memory stays."""
    return rows.view(*x.shape[:2], rows.shape[1] // head_dim, head_dim).transpose(1, 2)


def _joined(x):
    """Rows of heads side by side of [B,H,S,D], as they lie in memory."""
    b, heads, s, d = x.shape
    return x.transpose(1, 2).reshape(b * s, heads * d)


def _attended(normed, x, q, k, v, cos, sin, head_dim, scale):
    """q and k rotated, v, what attention makes of them, and the log-sum-exp."""
    q, k, v = (_heads(forward(normed, weight, None, False), x, head_dim) for weight in (q, k, v))
    q, k = rotate(q, k, cos, sin)
    return q, k, v, *attention(q, k, v, None, None, True, scale, 0, 0, 0.0)


_PATTERN = "x[B,S,C] norm1[C] q[Q,C] k[K,C] v[K,C] o[C,Q] norm2[C] gate[I,C] up[I,C] down[C,I]"


def _expect(head_dim, x, norm1, q, k, *others):
    expect("decoder_layer", _PATTERN, x, norm1, q, k, *others)
    if q.shape[0] % head_dim or k.shape[0] % head_dim:
        raise ValueError(f"decoder_layer: {q.shape[0]} and {k.shape[0]} columns of q and k are not whole heads of {head_dim}")


def _shapes(x, norm1, q, k, v, o, norm2, gate, up, down, cos, sin, head_dim, *options):
    """Memory for y and what is kept."""
    rows = x.new_empty((row_count(x), x.shape[-1]))
    queries, keys, values = (_heads(linear_like(rows, weight, False), x, head_dim) for weight in (q, k, v))
    lse = x.new_empty(queries.shape[:-1], dtype=torch.float32)
    inner = [linear_like(rows, up, False) for _ in range(3)]
    attended = torch.empty_like(queries)
    normed1, rstd1, h, normed2, rstd2 = like(rows), statistics_of(rows), like(rows), like(rows), statistics_of(rows)
    return like(x), normed1, rstd1, queries, keys, values, attended, lse, h, normed2, rstd2, *inner


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:12], *output[1:])
    ctx.head_dim, ctx.scale = inputs[12:14]


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:10]
    gradients = ops.decoder_layer_backward(dy, *ctx.saved_tensors, ctx.head_dim, ctx.scale, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), *(None,) * 6


@operator(
    f"decoder_layer(Tensor x, {_TENSORS}, Tensor cos, Tensor sin, {_OPTIONS}) -> (Tensor{', Tensor' * len(_KEPT)})",
    _shapes,
    _gradient,
    _setup,
)
def decoder_layer(x, norm1, q, k, v, o, norm2, gate, up, down, cos, sin, head_dim, scale, eps1, eps2):
    _expect(head_dim, x, norm1, q, k, v, o, norm2, gate, up, down)
    x, q, k, v, o, gate, up, down = dense(x, q, k, v, o, gate, up, down)
    rows = rows_of(x)
    rstd1, rstd2 = statistics_of(rows), statistics_of(rows)
    normed1, _ = norm_of_rows("rmsnorm", rows, None, norm1, None, eps1, None, rstd1)
    *heads, attended, lse = _attended(normed1, x, q, k, v, cos, sin, head_dim, scale)
    projected = forward(_joined(attended), o, None, False)
    normed2, h = norm_of_rows("rmsnorm", projected, rows, norm2, None, eps2, None, rstd2)
    gated, upped = forward(normed2, gate, None, False), forward(normed2, up, None, False)
    hidden = silu_mul(gated, upped)
    y = forward(hidden, down, None, False, residual=h).view(x.shape)
    return y, normed1, rstd1, *heads, attended, lse, h, normed2, rstd2, gated, upped, hidden


@without_gradient("decoder_layer")
def _decoder_layer_alone(x, norm1, q, k, v, o, norm2, gate, up, down, cos, sin, head_dim, scale, eps1, eps2):
    _expect(head_dim, x, norm1, q, k, v, o, norm2, gate, up, down)
    x, q, k, v, o, gate, up, down = dense(x, q, k, v, o, gate, up, down)
    rows = rows_of(x)
    normed, _ = norm_of_rows("rmsnorm", rows, None, norm1, None, eps1, None, None)
    attended = _joined(_attended(normed, x, q, k, v, cos, sin, head_dim, scale)[3])
    projected = forward(attended, o, None, False)
    normed, h = norm_of_rows("rmsnorm", projected, rows, norm2, None, eps2, None, None)
    del attended, projected  # memory for what follows
    hidden = silu_mul(forward(normed, gate, None, False), forward(normed, up, None, False))
    return (forward(hidden, down, None, False, residual=h).view(x.shape),)


def _sum_of_data_gradients(gradients, weights):
    """Of the input that several layers share."""
    total = None
    for gradient, weight in zip(gradients, weights):
        total = data_gradient(gradient, weight, False, ours=True, residual=total)
    return total


@operator(
    f"decoder_layer_backward(Tensor dy, Tensor x, {_TENSORS}, Tensor cos, Tensor sin, {', '.join('Tensor ' + n for n in _KEPT)},"
    f" int head_dim, float scale, bool[] needs) -> (Tensor{', Tensor' * len(_WEIGHTS)})",
    lambda dy, x, *rest: (
        like(x),
        *(like(w) if need else x.new_empty(0) for w, need in zip(rest[: len(_WEIGHTS)], rest[-1][1:])),
    ),
)
def decoder_layer_backward(
    dy,
    x,
    norm1,
    q,
    k,
    v,
    o,
    norm2,
    gate,
    up,
    down,
    cos,
    sin,
    normed1,
    rstd1,
    q_rotated,
    k_rotated,
    v_heads,
    attended,
    lse,
    h,
    normed2,
    rstd2,
    gated,
    upped,
    hidden,
    head_dim,
    scale,
    needs,
):
    x, dy, q, k, v, o, gate, up, down = dense(x, dy, q, k, v, o, gate, up, down)
    needs = dict(zip(("x", *_WEIGHTS), needs))

    def layer(name, gradient, inputs, weight):
        """The gradient of a layer's weight."""
        return weight_gradient(gradient, inputs, weight, False, ours=True) if needs[name] else None

    dy_rows = rows_of(dy)
    dgated, dupped = silu_mul_backward(data_gradient(dy_rows, down, False, ours=True), gated, upped)
    ddown = layer("down", dy_rows, hidden, down)
    dgate, dup = layer("gate", dgated, normed2, gate), layer("up", dupped, normed2, up)
    dnormed = _sum_of_data_gradients((dgated, dupped), (gate, up))
    dh, dnorm2 = norm_of_rows_backward("rmsnorm", dnormed, dy_rows, h, norm2, None, rstd2)
    do = layer("o", dh, _joined(attended), o)
    dattended = _heads(data_gradient(dh, o, False, ours=True), x, head_dim)
    options = True, scale, 0, 0, 0.0
    dq, dk, dv, *_ = attention_backward(dattended, q_rotated, k_rotated, v_heads, None, None, attended, lse, *options)
    gradients = [_joined(g) for g in (*rotate(dq, dk, cos, sin, True), dv)]
    dweights = [layer(name, g, normed1, w) for name, g, w in zip("qkv", gradients, (q, k, v))]
    dx, dnorm1 = norm_of_rows_backward(
        "rmsnorm", _sum_of_data_gradients(gradients, (q, k, v)), dh, rows_of(x), norm1, None, rstd1
    )
    gradients = dx.view(x.shape), dnorm1, *dweights, do, dnorm2, dgate, dup, ddown
    return tuple([x.new_empty(0) if g is None else g for g in gradients])
