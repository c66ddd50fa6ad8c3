"""A block of a transformer as one operator: norm, attention of a joint projection, norm, two layers, and both residual sums.

h = x + proj(attention(qkv(norm1(x)))), y = h + down(activation(up(norm2(h)))). The same kernels as those of its parts; what is saved
is the caller's thread, which calls one function (_sequence.py), and autograd, which has one node and one tensor of what is kept.
"""

import functools
import types

import torch

from .. import _problems
from .._shapes import expect
from ._attention import packed_gradients, packed_problem
from ._products import gemm_problem
from ._registry import dense, has_kernel, like, operator, without_gradient
from ._sequence import Memory, Sequence, padded, run_sequence

_WEIGHTS = (
    "Tensor norm1, Tensor norm1_bias, Tensor qkv, Tensor? qkv_bias, Tensor proj, Tensor? proj_bias,"
    " Tensor norm2, Tensor norm2_bias, Tensor up, Tensor? up_bias, Tensor down, Tensor? down_bias"
)
_NAMES = "norm1 norm1_bias qkv qkv_bias proj proj_bias norm2 norm2_bias up up_bias down down_bias"
_OPTIONS = "int heads, bool causal, float scale, float eps1, float eps2, str activation, bool turned"

_PATTERN = "x[B,S,C] norm1[C] norm1_bias[C] {qkv} qkv_bias[J] {proj} proj_bias[C] norm2[C] norm2_bias[C] {up} up_bias[I] {down} down_bias[C]"
_PATTERNS = (
    _PATTERN.format(qkv="qkv[J,C]", proj="proj[C,O]", up="up[I,C]", down="down[C,I]"),
    _PATTERN.format(qkv="qkv[C,J]", proj="proj[O,C]", up="up[C,I]", down="down[I,C]"),
)


class _Sizes:
    """Rows, and columns of x, q k and v together, what attention gives, and the layer between."""

    def __init__(self, x, qkv, proj, up, turned):
        self.batch, self.tokens, self.c = x
        self.rows = self.batch * self.tokens
        self.joint, self.o, self.inner = qkv[turned], proj[not turned], up[turned]

    def kept(self, heads, itemsize, memory):
        """Places of what the forward pass leaves to the gradient."""
        columns = {"normed1": self.c, "joint": self.joint, "o": self.o, "h": self.c, "normed2": self.c}
        columns |= {"before": self.inner, "hidden": self.inner}
        floats = {"mean1": 1, "rstd1": 1, "mean2": 1, "rstd2": 1, "lse": heads}
        places = {name: memory(self.rows * n, itemsize) for name, n in columns.items()}
        return types.SimpleNamespace(**places, **{name: memory(self.rows * n, 4) for name, n in floats.items()})

    def alone(self, itemsize, memory):
        """Places in the forward pass without a gradient, which share memory where one comes behind the other."""
        normed = memory(self.rows * max(self.c, self.o), itemsize)
        joint = (memory.name, memory.bytes)
        h, hidden = memory(self.rows * self.c, itemsize), memory(self.rows * self.inner, itemsize)
        memory.bytes = max(memory.bytes, joint[1] + padded(self.rows * self.joint, itemsize))
        none = dict.fromkeys("mean1 rstd1 mean2 rstd2 lse before".split())
        return types.SimpleNamespace(normed1=normed, o=normed, normed2=normed, joint=joint, h=h, hidden=hidden, **none)


def _thirds(place, head_columns, itemsize):
    """Places of q, k and v in rows where they lie side by side."""
    return [(place[0], place[1] + i * head_columns * itemsize) for i in range(3)]


@functools.lru_cache(8192)
def _forward(shapes, dtype, keeps, heads, causal, scale, eps1, eps2, activation, turned):
    """The bytes of the sequence, and those of the memory that it wants."""
    expect("block", _PATTERNS[turned], *(x if x is None else types.SimpleNamespace(shape=x, dtype=dtype) for x in shapes))
    x, _, _, qkv, qkv_bias, proj, proj_bias, _, _, up, up_bias, _, down_bias = shapes
    s = _Sizes(x, qkv, proj, up, turned)
    if s.joint != 3 * s.o or s.o % heads:
        raise ValueError(f"block: {s.joint} columns of qkv are not q, k and v of {heads} heads, of which proj has {s.o}")
    sequence, memory, layout = Sequence(f"x {_NAMES} y kept"), Memory("kept"), "nn" if turned else "nt"
    at = s.kept(heads, dtype.itemsize, memory) if keeps else s.alone(dtype.itemsize, memory)

    def product(a, k, b, n, bias, d, activation="identity", x=None, c=None):
        desc = gemm_problem(s.rows, n, k, dtype, layout, bias is not None, activation, x is not None, c is not None)
        bias = b + "_bias" if bias is not None else None
        sequence.add("gemm", desc, a=a, b=b, bias=bias, d=d, x=x, c=c, beta=None if c is None else 1.0)

    def norm(which, eps, x, residual, y, h, mean, rstd):
        desc = _problems.norm("layernorm", s.rows, s.c, dtype, eps, True, h is not None)
        parts = {"x": x, "residual": residual, "gamma": which, "beta": which + "_bias", "y": y, "sum": h}
        sequence.add("layernorm", desc, **parts, mean=mean, rstd=rstd)

    norm("norm1", eps1, "x", None, at.normed1, None, at.mean1, at.rstd1)
    product(at.normed1, s.c, "qkv", s.joint, qkv_bias, at.joint)
    q, k, v = _thirds(at.joint, s.o, dtype.itemsize)
    packed = packed_problem((s.batch, s.tokens, 3, heads, s.o // heads), dtype, causal, scale, False, keeps)
    sequence.add("attention", packed, q=q, k=k, v=v, o=at.o, lse=at.lse)
    product(at.o, s.o, "proj", s.c, proj_bias, "y")
    norm("norm2", eps2, "y", "x", at.normed2, at.h, at.mean2, at.rstd2)
    product(at.normed2, s.c, "up", s.inner, up_bias, at.hidden, activation, at.before)
    product(at.hidden, s.inner, "down", s.c, down_bias, "y", c=at.h)
    return bytes(sequence), memory.bytes


def _run(x, args, keeps):
    tensors = dense(x, *args[:12])
    x = tensors[0]
    code, size = _forward(tuple([t if t is None else t.shape for t in tensors]), x.dtype, keeps, *args[12:])
    y, kept = torch.empty_like(x), x.new_empty(size, dtype=torch.uint8)
    run_sequence(code, *tensors, y, kept)
    return y, kept


def _shapes(x, norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias, norm2, norm2_bias, up, up_bias, down, down_bias, *options):
    """Memory for y and what is kept."""
    memory = Memory("kept")
    _Sizes(x.shape, qkv.shape, proj.shape, up.shape, options[-1]).kept(options[0], x.dtype.itemsize, memory)
    return like(x), x.new_empty(memory.bytes, dtype=torch.uint8)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], *inputs[1:12:2], output[1])
    ctx.options = inputs[13:]


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:13]
    gradients = ops.block_backward(dy, *ctx.saved_tensors, *ctx.options, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), *(None,) * 7


@operator(f"block(Tensor x, {_WEIGHTS}, {_OPTIONS}) -> (Tensor, Tensor)", _shapes, _gradient, _setup)
def block(x, *args):
    return _run(x, args, True)


@without_gradient("block")
def _block_alone(x, *args):
    return _run(x, args, False)[:1]


def _gradients_like(x, norm1, qkv, proj, norm2, up, down, turned, needs):
    def layer(weight, i):
        bias = x.new_empty(weight.shape[1 if turned else 0] if needs[i + 1] else 0)
        return like(weight) if needs[i] else x.new_empty(0), bias

    norms = like(norm1), like(norm1), like(norm2), like(norm2)
    return like(x), *norms[:2], *layer(qkv, 3), *layer(proj, 5), *norms[2:], *layer(up, 9), *layer(down, 11)


@functools.lru_cache(8192)
def _backward(x, qkv, proj, up, dtype, device, heads, causal, scale, activation, turned, needs):
    """The bytes of the sequence before attention's gradient, of that, and of what comes behind; those of the memory; and the places of
    what attention's gradient is made of where no kernel of ours takes it. All in one where one does."""
    s, itemsize = _Sizes(x, qkv, proj, up, turned), dtype.itemsize
    at, memory = s.kept(heads, itemsize, Memory("kept")), Memory("work")
    dh = memory(s.rows * s.c, itemsize)
    do = (memory.name, memory.bytes)
    dbefore = memory(s.rows * s.inner, itemsize)
    behind = Memory("work", do[1])  # in the memory of dbefore, once it was used
    do, djoint = behind(s.rows * max(s.c, s.o), itemsize), behind(s.rows * s.joint, itemsize)
    names = f"dy x norm1 qkv proj norm2 up down kept dx {' '.join('d' + name for name in _NAMES.split())} work"
    sequence = Sequence(names)

    def data(a, n, b, k, d, derivative="identity", x=None):
        """The gradient of a layer's input."""
        desc = gemm_problem(s.rows, k, n, dtype, "nt" if turned else "nn", False, derivative, False, False)
        sequence.add("gemm", desc, a=a, b=b, d=d, x=x)

    def layer(gradient, n, inputs, k, name, i):
        """Gradients of a layer's weight and bias."""
        if needs[i]:
            (left, m), (right, n_) = ((inputs, k), (gradient, n)) if turned else ((gradient, n), (inputs, k))
            desc = gemm_problem(m, n_, s.rows, dtype, "tn", False, "identity", False, False)
            sequence.add("gemm", desc, a=left, b=right, d="d" + name)
        if needs[i + 1]:
            desc = _problems.reduce("sum", (s.rows, n), (n, 1), (0,), dtype)
            sequence.add("reduce", desc, x=gradient, y=f"d{name}_bias")

    def norm(which, dy, dsum, x, mean, rstd, dx):
        desc = _problems.norm("layernorm", s.rows, s.c, dtype, 0, True, True, True)
        parts = {"x": x, "gamma": which, "dy": dy, "dsum": dsum, "dx": dx, "mean": mean, "rstd": rstd}
        sequence.add("layernorm", desc, **parts, dgamma="d" + which, dbeta=f"d{which}_bias")

    data("dy", s.c, "down", s.inner, dbefore, "d" + activation, at.before)
    layer("dy", s.c, at.hidden, s.inner, "down", 11)
    layer(dbefore, s.inner, at.normed2, s.c, "up", 9)
    data(dbefore, s.inner, "up", s.c, "dx")  # which is there for now
    norm("norm2", "dx", "dy", at.h, at.mean2, at.rstd2, dh)
    layer(dh, s.c, at.o, s.o, "proj", 5)
    data(dh, s.c, "proj", s.o, do)
    shape = (s.batch, s.tokens, 3, heads, s.o // heads)
    desc = packed_problem(shape, dtype, causal, scale, True)
    before, is_ours = bytes(sequence), has_kernel("attention", desc, device)
    if is_ours:
        names = [f"{d}{letter}" for d in ("", "d") for letter in "qkv"]
        parts = zip(names, (*_thirds(at.joint, s.o, itemsize), *_thirds(djoint, s.o, itemsize)))
        sequence.add("attention", desc, **dict(parts), o=at.o, lse=at.lse, dout=do)
    else:
        sequence = Sequence(names)
    layer(djoint, s.joint, at.normed1, s.c, "qkv", 3)
    data(djoint, s.joint, "qkv", s.c, do)
    norm("norm1", do, dh, "x", at.mean1, at.rstd1, "dx")
    size = max(memory.bytes, behind.bytes)
    return (bytes(sequence), None, size) if is_ours else (before, (bytes(sequence), shape, at, do, djoint), size)


def _viewed(memory, place, shape, dtype):
    count = functools.reduce(lambda a, b: a * b, shape)
    return memory[place[1] : place[1] + count * dtype.itemsize].view(dtype).view(shape)


@operator(
    "block_backward(Tensor dy, Tensor x, Tensor norm1, Tensor qkv, Tensor proj, Tensor norm2, Tensor up, Tensor down, Tensor kept,"
    f" {_OPTIONS}, bool[] needs) -> (Tensor{', Tensor' * 12})",
    lambda dy, x, norm1, qkv, proj, norm2, up, down, *rest: _gradients_like(x, norm1, qkv, proj, norm2, up, down, *rest[-2:]),
)
def block_backward(dy, x, norm1, qkv, proj, norm2, up, down, kept, heads, causal, scale, eps1, eps2, activation, turned, needs):
    tensors = dense(dy, x, norm1, qkv, proj, norm2, up, down)
    options = heads, causal, scale, activation, turned
    code, rest, size = _backward(x.shape, qkv.shape, proj.shape, up.shape, x.dtype, x.device, *options, tuple(needs))
    gradients = _gradients_like(x, norm1, qkv, proj, norm2, up, down, turned, needs)
    work = x.new_empty(size, dtype=torch.uint8)
    run_sequence(code, *tensors, kept, *gradients, work)
    if rest:
        code, shape, at, do, djoint = rest
        rows = (shape[0], shape[1], *shape[3:])
        lse = _viewed(kept, at.lse, (shape[0], heads, shape[1]), torch.float32)
        packed, o = _viewed(kept, at.joint, shape, x.dtype), _viewed(kept, at.o, rows, x.dtype)
        packed_gradients(_viewed(work, do, rows, x.dtype), packed, o, lse, causal, scale, _viewed(work, djoint, shape, x.dtype))
        run_sequence(code, *tensors, kept, *gradients, work)
    return gradients
