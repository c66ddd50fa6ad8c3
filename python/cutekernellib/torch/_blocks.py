"""A block of a transformer as one operator: norm, attention of a joint projection, norm, two layers, and both residual sums.

h = x + proj(attention(qkv(norm1(x)))), y = h + down(activation(up(norm2(h)))). The same kernels as those of its parts; what is saved
is the caller's thread, which calls the library once (_sequence.py), and autograd, which has one node and one tensor of what is kept.
"""

import functools
import types

import torch

from .. import _problems
from .._shapes import expect
from ._registry import dense, like, operator, without_gradient
from ._sequence import Memory, Sequence, behind, run_sequence

_NAMES = "norm1 norm1_bias qkv qkv_bias proj proj_bias norm2 norm2_bias up up_bias down down_bias".split()
_TENSORS = ", ".join("Tensor" + "?" * (n.endswith("_bias") and "norm" not in n) + f" {n}" for n in _NAMES)
_OPTIONS = "int heads, bool causal, float scale, float eps1, float eps2, str activation, bool turned"
_PATTERN = "x[B,S,C] norm1[C] norm1_bias[C] {qkv} qkv_bias[J] {proj} proj_bias[C] norm2[C] norm2_bias[C] {up} up_bias[I] {down} down_bias[C]"
_PATTERNS = (
    _PATTERN.format(qkv="qkv[J,C]", proj="proj[C,O]", up="up[I,C]", down="down[C,I]"),
    _PATTERN.format(qkv="qkv[C,J]", proj="proj[O,C]", up="up[C,I]", down="down[I,C]"),
)


class _Sizes:
    """Rows; columns of x, of q, k and v together, of what attention gives, and between the last layers."""

    def __init__(self, x, qkv, proj, up, turned, heads, itemsize):
        self.batch, self.tokens, self.c = x
        self.rows, self.heads, self.itemsize = self.batch * self.tokens, heads, itemsize
        self.joint, self.o, self.inner = qkv[turned], proj[not turned], up[turned]

    def kept(self, memory):
        """Places of what the forward pass leaves to the gradient."""
        columns = {"normed1": self.c, "joint": self.joint, "o": self.o, "h": self.c, "normed2": self.c}
        columns |= {"before": self.inner, "hidden": self.inner}
        floats = {"mean1": 1, "rstd1": 1, "mean2": 1, "rstd2": 1, "lse": self.heads}
        places = {name: memory(self.rows * n, self.itemsize) for name, n in columns.items()}
        return types.SimpleNamespace(**places, **{name: memory(self.rows * n, 4) for name, n in floats.items()})

    def alone(self, memory):
        """Places where there will be no gradient; what comes later lies where something was before."""
        normed, later = memory(self.rows * max(self.c, self.o), self.itemsize), memory.fork()
        joint = memory(self.rows * self.joint, self.itemsize)
        h, hidden = later(self.rows * self.c, self.itemsize), later(self.rows * self.inner, self.itemsize)
        memory.join(later)
        none = dict.fromkeys("mean1 rstd1 mean2 rstd2 lse before".split())
        return types.SimpleNamespace(normed1=normed, joint=joint, o=normed, h=h, normed2=normed, hidden=hidden, **none)

    def attention(self):
        """Shapes and strides of q, k, v and o; q, k and v lie side by side."""
        d = self.o // self.heads
        side_by_side, alone = ((self.tokens * n, d, n, 1) for n in (self.joint, self.o))
        return ((self.batch, self.heads, self.tokens, d),) * 4, (*(side_by_side,) * 3, alone)

    def thirds(self, joint, names):
        return {name: behind(joint, i * self.o, self.itemsize) for i, name in enumerate(names.split())}


@functools.lru_cache(1024)
def _forward(shapes, dtype, keeps, heads, causal, scale, eps1, eps2, activation, turned):
    """The bytes of the sequence, and those of the memory that it wants."""
    expect("block", _PATTERNS[turned], *(x if x is None else types.SimpleNamespace(shape=x, dtype=dtype) for x in shapes))
    x, _, _, qkv, qkv_bias, proj, proj_bias, _, _, up, up_bias, _, down_bias = shapes
    s = _Sizes(x, qkv, proj, up, turned, heads, dtype.itemsize)
    if s.joint != 3 * s.o or s.o % heads:
        raise ValueError(f"block: {s.joint} columns of qkv are not q, k and v of {heads} heads, of which proj has {s.o}")
    steps, memory = Sequence(["x", *_NAMES, "y", "kept"], s.rows, dtype), Memory("kept")
    at = s.kept(memory) if keeps else s.alone(memory)
    biases = dict(qkv=qkv_bias, proj=proj_bias, up=up_bias, down=down_bias)
    biases = {name: bias and name + "_bias" for name, bias in biases.items()}

    def norm(name, eps, **arguments):
        steps.norm("layernorm", s.c, eps, gamma=name, beta=name + "_bias", **arguments)

    def layer(name, a, d, n, k, **arguments):
        steps.product(a, name, d, n, k, turned, biases[name], **arguments)

    norm("norm1", eps1, x="x", y=at.normed1, mean=at.mean1, rstd=at.rstd1)
    layer("qkv", at.normed1, at.joint, s.joint, s.c)
    shapes, strides = s.attention()
    desc = _problems.attention(*shapes[:3], strides, dtype, causal, scale, lse=keeps)
    steps.add("attention", desc, **s.thirds(at.joint, "q k v"), o=at.o, lse=at.lse)
    layer("proj", at.o, "y", s.c, s.o)
    norm("norm2", eps2, x="y", residual="x", y=at.normed2, sum=at.h, mean=at.mean2, rstd=at.rstd2)
    layer("up", at.normed2, at.hidden, s.inner, s.c, activation=activation, x=at.before)
    layer("down", at.hidden, "y", s.c, s.inner, c=at.h)
    return bytes(steps), memory.bytes


def _run(x, args, keeps):
    tensors = dense(x, *args[:12])
    code, size = _forward(tuple([t if t is None else t.shape for t in tensors]), x.dtype, keeps, *args[12:])
    y, kept = torch.empty_like(tensors[0]), x.new_empty(size, dtype=torch.uint8)
    run_sequence(code, *tensors, y, kept)
    return y, kept


def _outputs(x, norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias, norm2, norm2_bias, up, up_bias, down, down_bias, *options):
    """Memory for y and what is kept."""
    memory = Memory("kept")
    _Sizes(x.shape, qkv.shape, proj.shape, up.shape, options[-1], options[0], x.dtype.itemsize).kept(memory)
    return like(x), x.new_empty(memory.bytes, dtype=torch.uint8)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], *inputs[1:12:2], output[1])
    ctx.options = inputs[13:]


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:13]
    gradients = ops.block_backward(dy, *ctx.saved_tensors, *ctx.options, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), *(None,) * 7


@operator(f"block(Tensor x, {_TENSORS}, {_OPTIONS}) -> (Tensor, Tensor)", _outputs, _gradient, _setup)
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


@functools.lru_cache(1024)
def _backward(x, qkv, proj, up, dtype, needs, heads, causal, scale, activation, turned):
    """The bytes of the sequence, and those of the memory that it wants."""
    s = _Sizes(x, qkv, proj, up, turned, heads, dtype.itemsize)
    at, memory = s.kept(Memory("kept")), Memory("work")
    names = f"dy x norm1 qkv proj norm2 up down kept dx {' '.join('d' + name for name in _NAMES)} work"
    steps = Sequence(names.split(), s.rows, dtype)
    dh, later = memory(s.rows * s.c, s.itemsize), memory.fork()
    dbefore = memory(s.rows * s.inner, s.itemsize)
    do, djoint = later(s.rows * max(s.c, s.o), s.itemsize), later(s.rows * s.joint, s.itemsize)
    memory.join(later)

    def layer(name, dy, inputs, n, k):
        """Gradients of a layer's weight and bias."""
        i = 1 + _NAMES.index(name)
        if needs[i]:
            steps.weight_gradient(dy, inputs, "d" + name, n, k, turned)
        if needs[i + 1]:
            steps.sum(dy, f"d{name}_bias", n)

    def norm(name, **arguments):
        steps.norm_gradient("layernorm", s.c, gamma=name, dgamma="d" + name, dbeta=f"d{name}_bias", **arguments)

    steps.data_gradient("dy", "down", dbefore, s.c, s.inner, turned, "d" + activation, at.before)
    layer("down", "dy", at.hidden, s.c, s.inner)
    layer("up", dbefore, at.normed2, s.inner, s.c)
    steps.data_gradient(dbefore, "up", "dx", s.inner, s.c, turned)  # dx is memory until the last step
    norm("norm2", x=at.h, dy="dx", dsum="dy", dx=dh, mean=at.mean2, rstd=at.rstd2)
    layer("proj", dh, at.o, s.c, s.o)
    steps.data_gradient(dh, "proj", do, s.c, s.o, turned)
    shapes, strides = s.attention()
    desc = _problems.attention(*shapes[:3], strides, dtype, causal, scale, backward=True)
    places = s.thirds(at.joint, "q k v") | s.thirds(djoint, "dq dk dv")
    steps.add("attention", desc, **places, o=at.o, lse=at.lse, dout=do)
    layer("qkv", djoint, at.normed1, s.joint, s.c)
    steps.data_gradient(djoint, "qkv", do, s.joint, s.c, turned)
    norm("norm1", x="x", dy=do, dsum=dh, dx="dx", mean=at.mean1, rstd=at.rstd1)
    return bytes(steps), memory.bytes


@operator(
    "block_backward(Tensor dy, Tensor x, Tensor norm1, Tensor qkv, Tensor proj, Tensor norm2, Tensor up, Tensor down, Tensor kept,"
    f" {_OPTIONS}, bool[] needs) -> (Tensor{', Tensor' * 12})",
    lambda dy, x, norm1, qkv, proj, norm2, up, down, *rest: _gradients_like(x, norm1, qkv, proj, norm2, up, down, *rest[-2:]),
)
def block_backward(dy, x, norm1, qkv, proj, norm2, up, down, kept, heads, causal, scale, eps1, eps2, activation, turned, needs):
    shapes = x.shape, qkv.shape, proj.shape, up.shape
    code, size = _backward(*shapes, x.dtype, tuple(needs), heads, causal, scale, activation, turned)
    gradients = _gradients_like(x, norm1, qkv, proj, norm2, up, down, turned, needs)
    inputs = *dense(dy, x, norm1, qkv, proj, norm2, up, down), kept
    run_sequence(code, *inputs, *gradients, x.new_empty(size, dtype=torch.uint8))
    return gradients
