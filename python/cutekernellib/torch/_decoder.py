"""A layer of a decoder such as Llama's as one operator: RMS norm, rotated attention, RMS norm, gated MLP, and both residual sums.

h = x + o(attention(rotated q, rotated k, v)) of q, k, v = projections of norm1(x); y = h + down(silu(gate(n)) * up(n)), n = norm2(h).
The same kernels as those of its parts; what is saved is the caller's thread, which calls the library once (_sequence.py), and
autograd, which has one node and one tensor of what is kept.
"""

import functools
import types

import torch

from .. import _problems
from .._shapes import expect
from ._elements import FUNCTIONS, rotation
from ._registry import dense, like, operator, without_gradient
from ._sequence import Memory, Sequence, behind, run_sequence

_WEIGHTS = "norm1 q k v o norm2 gate up down".split()
_TENSORS = ", ".join("Tensor " + name for name in _WEIGHTS)
_OPTIONS = "int head_dim, float scale, float eps1, float eps2"
_PATTERN = "x[B,S,C] norm1[C] q[Q,C] k[K,C] v[K,C] o[C,Q] norm2[C] gate[I,C] up[I,C] down[C,I]"


class _Sizes:
    """Rows; columns of x, of the projections q, k and v, and of the MLP between."""

    def __init__(self, x, q, k, up, head_dim, itemsize):
        self.batch, self.tokens, self.c = x
        self.rows, self.head_dim, self.itemsize = self.batch * self.tokens, head_dim, itemsize
        self.q, self.k, self.inner = q[0], k[0], up[0]

    def kept(self, memory):
        """Places of what the forward pass leaves to the gradient."""
        columns = {"normed1": self.c, "q": self.q, "k": self.k, "v": self.k, "attended": self.q, "h": self.c, "normed2": self.c}
        columns |= {"gated": max(self.inner, self.q), "upped": max(self.inner, self.k), "hidden": self.inner}
        floats = {"rstd1": 1, "rstd2": 1, "lse": self.q // self.head_dim}
        places = {name: memory(self.rows * n, self.itemsize) for name, n in columns.items()}
        places |= {"straight_q": places["gated"], "straight_k": places["upped"]}  # before they are rotated
        return types.SimpleNamespace(**places, **{name: memory(self.rows * n, 4) for name, n in floats.items()})

    def alone(self, memory):
        """Places where there will be no gradient; what comes later lies where something was before."""
        normed, later = memory(self.rows * max(self.c, self.q), self.itemsize), memory.fork()
        columns = {"q": self.q, "k": self.k, "v": self.k, "straight_q": self.q, "straight_k": self.k}
        places = {name: memory(self.rows * n, self.itemsize) for name, n in columns.items()}
        columns = {"h": self.c, "gated": self.inner, "upped": self.inner, "hidden": self.inner}
        places |= {name: later(self.rows * n, self.itemsize) for name, n in columns.items()}
        memory.join(later)
        none = dict.fromkeys("rstd1 rstd2 lse".split())
        return types.SimpleNamespace(**places, **none, normed1=normed, attended=normed, normed2=normed)

    def heads(self, columns):
        """Shape and strides of heads [B,H,S,D] side by side in rows of so many columns."""
        shape = self.batch, columns // self.head_dim, self.tokens, self.head_dim
        return shape, (self.tokens * columns, self.head_dim, columns, 1)

    def attention(self):
        """Shapes and strides of q, k, v and o."""
        return tuple(zip(*map(self.heads, (self.q, self.k, self.k, self.q))))


def _rotate(steps, s, x, y, columns, tables, inverse):
    """Halves of heads by tables of cosines and sines."""
    shape, strides = s.heads(columns)
    half, table_shape, *table_strides = s.head_dim // 2, *tables
    first, second = rotation(shape, strides, strides, table_shape, tuple(table_strides), steps.dtype, inverse)
    (a, b), (ya, yb) = ((place, behind(place, half, s.itemsize)) for place in (x, y))
    (cos_a, sin_a), (cos_b, sin_b) = (((t, i * half * s.itemsize) for t in ("cos", "sin")) for i in (0, 1))
    steps.add("elementwise", first, in0=a, in1=cos_a, in2=b, in3=sin_b if inverse else sin_a, out=ya)
    steps.add("elementwise", second, in0=b, in1=cos_b, in2=a, in3=sin_a if inverse else sin_b, out=yb)


def _project(steps, s, at, tables, eps):
    """Queries and keys, rotated, and values of the first norm."""
    steps.norm("rmsnorm", s.c, eps, gamma="norm1", x="x", y=at.normed1, rstd=at.rstd1)
    for name, place, n in zip("qkv", (at.straight_q, at.straight_k, at.v), (s.q, s.k, s.k)):
        steps.product(at.normed1, name, place, n, s.c)
    _rotate(steps, s, at.straight_q, at.q, s.q, tables, False)
    _rotate(steps, s, at.straight_k, at.k, s.k, tables, False)


def _finish(steps, s, at, eps):
    """What comes behind attention."""
    steps.product(at.attended, "o", "y", s.c, s.q)
    steps.norm("rmsnorm", s.c, eps, gamma="norm2", x="y", residual="x", y=at.normed2, sum=at.h, rstd=at.rstd2)
    steps.product(at.normed2, "gate", at.gated, s.inner, s.c)
    steps.product(at.normed2, "up", at.upped, s.inner, s.c)
    steps.elements(FUNCTIONS["silu_mul"][0], s.rows * s.inner, at.hidden, at.gated, at.upped)
    steps.product(at.hidden, "down", "y", s.c, s.inner, c=at.h)


def _expect(pattern, head_dim, dtype, shapes, tables=None):
    expect("decoder_layer", pattern, *(types.SimpleNamespace(shape=x, dtype=dtype) for x in shapes))
    if tables:
        (x, _, q, k, *_), (table, *_) = shapes, tables
        if q[0] % head_dim or k[0] % head_dim:
            raise ValueError(f"decoder_layer: {q[0]} and {k[0]} columns of q and k are not whole heads of {head_dim}")
        if len(table) != 3 or table[0] not in (1, x[0]) or table[1:] != (x[1], head_dim):
            raise ValueError(f"decoder_layer: tables{list(table)} are not [1 or B,S,{head_dim}] of x{list(x)}")


@functools.lru_cache(1024)
def _forward(shapes, tables, dtype, keeps, head_dim, scale, eps1, eps2):
    """The bytes of the sequence, and those of the memory that it wants. tables: their shape, strides of cosines and of sines."""
    _expect(_PATTERN, head_dim, dtype, shapes, tables)
    x, _, q, k, _, _, _, _, up, _ = shapes
    s = _Sizes(x, q, k, up, head_dim, dtype.itemsize)
    steps, memory = Sequence(["x", *_WEIGHTS, "cos", "sin", "y", "kept"], s.rows, dtype), Memory("kept")
    at = s.kept(memory) if keeps else s.alone(memory)
    _project(steps, s, at, tables, eps1)
    shapes, strides = s.attention()
    desc = _problems.attention(*shapes[:3], strides, dtype, True, scale, lse=keeps)
    steps.add("attention", desc, q=at.q, k=at.k, v=at.v, o=at.attended, lse=at.lse)
    _finish(steps, s, at, eps2)
    return bytes(steps), memory.bytes


def _run(tensors, options, keeps):
    tensors = x, *_, cos, sin = dense(*tensors)
    shapes, tables = tuple([t.shape for t in tensors[:10]]), (cos.shape, cos.stride(), sin.stride())
    code, size = _forward(shapes, tables, x.dtype, keeps, *options)
    y, kept = torch.empty_like(x), x.new_empty(size, dtype=torch.uint8)
    run_sequence(code, *tensors, y, kept)
    return y, kept


def _outputs(x, norm1, q, k, v, o, norm2, gate, up, down, cos, sin, head_dim, *options):
    """Memory for y and what is kept."""
    memory = Memory("kept")
    _Sizes(x.shape, q.shape, k.shape, up.shape, head_dim, x.dtype.itemsize).kept(memory)
    return like(x), x.new_empty(memory.bytes, dtype=torch.uint8)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:12], output[1])
    ctx.head_dim, ctx.scale = inputs[12:14]


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:10]
    gradients = ops.decoder_layer_backward(dy, *ctx.saved_tensors, ctx.head_dim, ctx.scale, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), *(None,) * 6


@operator(
    f"decoder_layer(Tensor x, {_TENSORS}, Tensor cos, Tensor sin, {_OPTIONS}) -> (Tensor, Tensor)", _outputs, _gradient, _setup
)
def decoder_layer(*args):
    return _run(args[:12], args[12:], True)


@without_gradient("decoder_layer")
def _decoder_layer_alone(*args):
    return _run(args[:12], args[12:], False)[:1]


def _gradients_like(x, weights, needs):
    return like(x), *(like(w) if need else x.new_empty(0) for w, need in zip(weights, needs[1:]))


@functools.lru_cache(1024)
def _backward(shapes, tables, dtype, needs, head_dim, scale):
    """The bytes of the sequence, and those of the memory that it wants."""
    x, q, k, up = shapes
    s = _Sizes(x, q, k, up, head_dim, dtype.itemsize)
    at, memory, needed = s.kept(Memory("kept")), Memory("work"), dict(zip(["x", *_WEIGHTS], needs))
    names = ["dy", "x", *_WEIGHTS, "cos", "sin", "kept", "dx", *("d" + name for name in _WEIGHTS), "work"]
    steps = Sequence(names, s.rows, dtype)
    dh, total, later = *(memory(s.rows * s.c, s.itemsize) for _ in range(2)), memory.fork()
    dhidden, dgated, dupped = (memory(s.rows * s.inner, s.itemsize) for _ in range(3))
    dattended, dq, dq_straight = (later(s.rows * s.q, s.itemsize) for _ in range(3))
    dk, dv, dk_straight = (later(s.rows * s.k, s.itemsize) for _ in range(3))
    memory.join(later)

    def layer(name, dy, inputs, n, k):
        if needed[name]:
            steps.weight_gradient(dy, inputs, "d" + name, n, k)

    def norm(name, **arguments):
        steps.norm_gradient("rmsnorm", s.c, gamma=name, dgamma="d" + name if needed[name] else work_norm, **arguments)

    work_norm = memory(s.c, s.itemsize)  # of a weight without a gradient
    steps.data_gradient("dy", "down", dhidden, s.c, s.inner)
    count = s.rows * s.inner
    steps.elements(FUNCTIONS["silu_mul"][1], count, dgated, dhidden, at.upped, at.gated)
    steps.elements("g*silu(x)", count, dupped, dhidden, at.gated)
    layer("down", "dy", at.hidden, s.c, s.inner)
    layer("gate", dgated, at.normed2, s.inner, s.c)
    layer("up", dupped, at.normed2, s.inner, s.c)
    steps.data_gradient(dgated, "gate", total, s.inner, s.c)
    steps.data_gradient(dupped, "up", "dx", s.inner, s.c, c=total)  # dx is memory until the last step
    norm("norm2", x=at.h, dy="dx", dsum="dy", dx=dh, rstd=at.rstd2)
    layer("o", dh, at.attended, s.c, s.q)
    steps.data_gradient(dh, "o", dattended, s.c, s.q)
    shapes, strides = s.attention()
    desc = _problems.attention(*shapes[:3], strides, dtype, True, scale, backward=True)
    inputs = {"q": at.q, "k": at.k, "v": at.v, "o": at.attended, "lse": at.lse, "dout": dattended}
    steps.add("attention", desc, **inputs, dq=dq, dk=dk, dv=dv)
    _rotate(steps, s, dq, dq_straight, s.q, tables, True)
    _rotate(steps, s, dk, dk_straight, s.k, tables, True)
    for name, gradient, n in (("q", dq_straight, s.q), ("k", dk_straight, s.k), ("v", dv, s.k)):
        layer(name, gradient, at.normed1, n, s.c)
    steps.data_gradient(dq_straight, "q", total, s.q, s.c)
    steps.data_gradient(dk_straight, "k", "dx", s.k, s.c, c=total)
    steps.data_gradient(dv, "v", total, s.k, s.c, c="dx")
    norm("norm1", x="x", dy=total, dsum=dh, dx="dx", rstd=at.rstd1)
    return bytes(steps), memory.bytes


@operator(
    f"decoder_layer_backward(Tensor dy, Tensor x, {_TENSORS}, Tensor cos, Tensor sin, Tensor kept, int head_dim, float scale,"
    f" bool[] needs) -> (Tensor{', Tensor' * len(_WEIGHTS)})",
    lambda dy, x, *rest: _gradients_like(x, rest[: len(_WEIGHTS)], rest[-1]),
)
def decoder_layer_backward(*args):
    *tensors, kept, head_dim, scale, needs = args
    _, x, _, q, k, *_, up, _, cos, sin = tensors = dense(*tensors)
    shapes, tables = (x.shape, q.shape, k.shape, up.shape), (cos.shape, cos.stride(), sin.stride())
    code, size = _backward(shapes, tables, x.dtype, tuple(needs), head_dim, scale)
    gradients = _gradients_like(x, tensors[2:11], needs)
    run_sequence(code, *tensors, kept, *gradients, x.new_empty(size, dtype=torch.uint8))
    return gradients


# Around attention of a cache, which is the model's own


@functools.lru_cache(1024)
def _head(shapes, tables, dtype, head_dim, eps):
    _expect("x[B,S,C] norm1[C] q[Q,C] k[K,C] v[K,C]", head_dim, dtype, shapes, tables)
    x, _, q, k, _ = shapes
    s = _Sizes(x, q, k, (0,), head_dim, dtype.itemsize)
    steps, memory = Sequence("x norm1 q k v cos sin yq yk yv work".split(), s.rows, dtype), Memory("work")
    at = types.SimpleNamespace(q=("yq", 0), k=("yk", 0), v="yv", rstd1=None, normed1=memory(s.rows * s.c, s.itemsize))
    at.straight_q, at.straight_k = (memory(s.rows * n, s.itemsize) for n in (s.q, s.k))
    _project(steps, s, at, tables, eps)
    return bytes(steps), memory.bytes


@operator(
    "decoder_head(Tensor x, Tensor norm1, Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin, int head_dim, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    lambda x, norm1, q, k, v, *rest: tuple(x.new_empty((*x.shape[:2], w.shape[0])) for w in (q, k, v)),
)
def decoder_head(x, norm1, q, k, v, cos, sin, head_dim, eps):
    """Rotated q and k, and v, as rows of heads."""
    x, norm1, q, k, v, cos, sin = tensors = dense(x, norm1, q, k, v, cos, sin)
    shapes, tables = tuple([t.shape for t in tensors[:5]]), (cos.shape, cos.stride(), sin.stride())
    code, size = _head(shapes, tables, x.dtype, head_dim, eps)
    outputs = tuple([x.new_empty((*x.shape[:2], w.shape[0])) for w in (q, k, v)])
    run_sequence(code, *tensors, *outputs, x.new_empty(size, dtype=torch.uint8))
    return outputs


@functools.lru_cache(1024)
def _tail(shapes, dtype, eps):
    _expect("attended[B,S,Q] x[B,S,C] o[C,Q] norm2[C] gate[I,C] up[I,C] down[C,I]", 0, dtype, shapes)
    attended, x, _, _, _, up, _ = shapes
    s = _Sizes(x, attended[2:], (0,), up, 1, dtype.itemsize)
    steps, memory = Sequence("attended x o norm2 gate up down y work".split(), s.rows, dtype), Memory("work")
    at = types.SimpleNamespace(attended="attended", rstd2=None)
    for name, n in dict(normed2=s.c, h=s.c, gated=s.inner, upped=s.inner, hidden=s.inner).items():
        setattr(at, name, memory(s.rows * n, s.itemsize))
    _finish(steps, s, at, eps)
    return bytes(steps), memory.bytes


@operator(
    "decoder_tail(Tensor attended, Tensor x, Tensor o, Tensor norm2, Tensor gate, Tensor up, Tensor down, float eps) -> Tensor",
    lambda attended, x, *rest: like(x),
)
def decoder_tail(attended, x, o, norm2, gate, up, down, eps):
    """h = x + o(attended), and h + down(silu(gate(n)) * up(n)) of n = norm2(h)."""
    tensors = dense(attended, x, o, norm2, gate, up, down)
    code, size = _tail(tuple([t.shape for t in tensors]), x.dtype, eps)
    y = torch.empty_like(tensors[1])
    run_sequence(code, *tensors, y, x.new_empty(size, dtype=torch.uint8))
    return y
