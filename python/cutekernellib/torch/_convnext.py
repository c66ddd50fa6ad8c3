"""ConvNeXt's block as one operator: x + gamma * down(activation(up(norm(conv(x))))), with a filter a channel, at every pixel.

The same kernels as those of its parts; what is saved is the caller's thread, which calls the library once (_sequence.py), and
autograd, which has one node and one tensor of what is kept. Images are rows of channels, one for each pixel.
"""

import functools
import types

import torch

from .. import _problems
from ._registry import dense, image, like, operator, without_gradient
from ._sequence import Memory, Sequence, run_sequence

_NAMES = "filter filter_bias norm norm_bias up up_bias down down_bias gamma".split()
_TENSORS = ", ".join("Tensor" + "?" * (n == "gamma" or n.endswith("_bias") and n != "norm_bias") + f" {n}" for n in _NAMES)


class _Sizes:
    def __init__(self, x, up, itemsize):
        (n, self.c, h, w), self.inner, self.itemsize = x, up[0], itemsize
        self.rows = n * h * w

    def kept(self, memory):
        """Places of what the forward pass leaves to the gradient."""
        at = types.SimpleNamespace(mean=memory(self.rows, 4), rstd=memory(self.rows, 4))
        at.convolved, at.normed = (memory(self.rows * self.c, self.itemsize) for _ in range(2))
        at.before, at.hidden = (memory(self.rows * self.inner, self.itemsize) for _ in range(2))
        at.scaled = memory(self.c * self.inner, self.itemsize)  # the weights times gamma
        at.scaled_bias = memory(self.c, self.itemsize)
        return at

    def alone(self, memory):
        """The same where there will be no gradient."""
        at = types.SimpleNamespace(mean=None, rstd=None, before=None)
        at.convolved, at.normed = (memory(self.rows * self.c, self.itemsize) for _ in range(2))
        at.hidden = memory(self.rows * self.inner, self.itemsize)
        at.scaled, at.scaled_bias = memory(self.c * self.inner, self.itemsize), memory(self.c, self.itemsize)
        return at


def _geometry(padding, channels):
    return (1, 1), tuple(padding), (1, 1), channels


@functools.lru_cache(1024)
def _forward(x, filter, up, down, dtype, padding, eps, activation, biases, scales, keeps):
    """The bytes of the sequence, and those of the memory that it wants."""
    s = _Sizes(x, up, dtype.itemsize)
    if (tuple(filter), tuple(up), tuple(down)) != ((s.c, 1, *(2 * p + 1 for p in padding)), (s.inner, s.c), (s.c, s.inner)):
        raise ValueError(
            f"conv_block: x{list(x)} filter{list(filter)} up{list(up)} down{list(down)} padding={padding} do not fit"
        )
    bias = {name: name for name, given in zip(("filter_bias", "up_bias", "down_bias"), biases) if given}
    steps, memory = Sequence(["x", *_NAMES, "y", "kept"], s.rows, dtype), Memory("kept")
    at = s.kept(memory) if keeps else s.alone(memory)
    conv = _problems.conv(x, filter, dtype, *_geometry(padding, s.c), True, biases[0])
    steps.add("conv", conv, x="x", w="filter", bias=bias.get("filter_bias"), y=at.convolved)
    steps.norm("layernorm", s.c, eps, x=at.convolved, gamma="norm", beta="norm_bias", y=at.normed, mean=at.mean, rstd=at.rstd)
    steps.product(at.normed, "up", at.hidden, s.inner, s.c, False, bias.get("up_bias"), activation, at.before)
    down, down_bias = "down", bias.get("down_bias")
    if scales:
        steps.scale("down", "gamma", at.scaled, s.c, s.inner)
        down = at.scaled
        if down_bias:
            steps.elements("a*b", s.c, at.scaled_bias, "down_bias", "gamma")
            down_bias = at.scaled_bias
    steps.product(at.hidden, down, "y", s.c, s.inner, False, down_bias, c="x")
    return bytes(steps), memory.bytes


def _run(x, filter, norm, norm_bias, up, down, gamma, biases, padding, eps, activation, keeps):
    x, filter = image(x, True), image(filter, True)
    tensors = norm, norm_bias, up, down, gamma, *biases
    norm, norm_bias, up, down, gamma, *biases = tensors = dense(*tensors)
    if any([t is not None and t.dtype is not x.dtype for t in tensors]):
        raise ValueError(f"conv_block: parameters are not all of {x.dtype}, as x is")
    options = tuple(padding), eps, activation, tuple([b is not None for b in biases]), gamma is not None, keeps
    code, size = _forward(x.shape, filter.shape, up.shape, down.shape, x.dtype, *options)
    filter_bias, up_bias, down_bias = biases
    y, kept = torch.empty_like(x), x.new_empty(size, dtype=torch.uint8)
    parameters = filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma
    run_sequence(code, x, *parameters, y, kept)
    return y, kept


def _like(x):
    return torch.empty_like(x, memory_format=torch.channels_last)


def _outputs(x, filter, filter_bias, norm, norm_bias, up, *options):
    memory = Memory("kept")
    _Sizes(x.shape, up.shape, x.dtype.itemsize).kept(memory)
    return _like(x), x.new_empty(memory.bytes, dtype=torch.uint8)


def _setup(ctx, inputs, output):
    x, filter, _, norm, _, up, _, down, down_bias, gamma, ctx.padding, _, ctx.activation = inputs
    ctx.save_for_backward(x, filter, norm, up, down, down_bias, gamma, output[1])


def _gradient(ops, ctx, dy):
    needs = ctx.needs_input_grad[:10]
    gradients = ops.conv_block_backward(dy, *ctx.saved_tensors, ctx.padding, ctx.activation, needs)
    return *(g if need else None for g, need in zip(gradients, needs)), None, None, None


@operator(
    f"conv_block(Tensor x, {_TENSORS}, int[] padding, float eps, str activation) -> (Tensor, Tensor)",
    _outputs,
    _gradient,
    _setup,
)
def conv_block(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma, padding, eps, activation):
    biases = filter_bias, up_bias, down_bias
    return _run(x, filter, norm, norm_bias, up, down, gamma, biases, padding, eps, activation, True)


@without_gradient("conv_block")
def _conv_block_alone(x, filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma, padding, eps, activation):
    biases = filter_bias, up_bias, down_bias
    return _run(x, filter, norm, norm_bias, up, down, gamma, biases, padding, eps, activation, False)[:1]


def _gradients_like(x, filter, norm, up, down, down_bias, gamma, needs):
    nothing = x.new_empty(0)
    return (
        _like(x),
        _like(filter) if needs[1] else nothing,
        x.new_empty(filter.shape[0] if needs[2] else 0),
        like(norm),
        like(norm),
        like(up),
        up.new_empty(up.shape[0] if needs[6] else 0),
        like(down),
        nothing if down_bias is None else like(down_bias),
        nothing if gamma is None else like(gamma),
    )


def _down_gradients(steps, s, at, memory, biased, scales):
    """Of the second layer and gamma, which is a factor of its weights and bias: its gradient is a sum over what both have."""
    if not scales:
        steps.weight_gradient("dy", at.hidden, "ddown", s.c, s.inner)
        if biased:
            steps.sum("dy", "ddown_bias", s.c)
        return
    f32, dtype = torch.float32, steps.dtype
    raw, raw_bias = memory(s.c * s.inner, s.itemsize), memory(s.c, s.itemsize)
    terms, sums = memory(s.c * s.inner, 4), memory(s.c, 4)
    steps.weight_gradient("dy", at.hidden, raw, s.c, s.inner)
    steps.elements("a*b", s.c * s.inner, terms, raw, "down", to=f32)
    steps.add("reduce", _problems.reduce("sum", (s.c, s.inner), (s.inner, 1), (1,), f32), x=terms, y=sums)
    steps.scale(raw, "gamma", "ddown", s.c, s.inner)
    if not biased:
        steps.elements("cast(a)", s.c, "dgamma", sums, dtypes=(f32,))
        return
    steps.sum("dy", raw_bias, s.c)
    steps.elements("a+b*c", s.c, "dgamma", sums, raw_bias, "down_bias", dtypes=(f32, dtype, dtype))
    steps.elements("a*b", s.c, "ddown_bias", raw_bias, "gamma")


@functools.lru_cache(1024)
def _backward(x, filter, up, dtype, padding, activation, needs, biased, scales):
    """The bytes of the sequence, and those of the memory that it wants."""
    s = _Sizes(x, up, dtype.itemsize)
    at, memory = s.kept(Memory("kept")), Memory("work")
    names = "dy x filter norm up down down_bias gamma kept dx".split()
    steps = Sequence([*names, *("d" + name for name in _NAMES), "work"], s.rows, dtype)
    first = memory.fork()
    _down_gradients(steps, s, at, first, biased, scales)
    dbefore, dnormed, dimage = (memory(s.rows * n, s.itemsize) for n in (s.inner, s.c, s.c))
    memory.join(first)
    steps.data_gradient("dy", at.scaled if scales else "down", dbefore, s.c, s.inner, False, "d" + activation, at.before)
    if needs[6]:
        steps.sum(dbefore, "dup_bias", s.inner)
    steps.weight_gradient(dbefore, at.normed, "dup", s.inner, s.c)
    steps.data_gradient(dbefore, "up", dnormed, s.inner, s.c)
    parts = {"dgamma": "dnorm", "dbeta": "dnorm_bias", "mean": at.mean, "rstd": at.rstd}
    steps.norm_gradient("layernorm", s.c, x=at.convolved, gamma="norm", dy=dnormed, dx=dimage, **parts)
    data, filters = (_problems.conv(x, filter, dtype, *_geometry(padding, s.c), True, direction=d) for d in ("data", "weight"))
    if needs[0]:
        steps.add("conv", data, w="filter", dy=dimage, dx="dx")
        steps.elements("a+b", s.rows * s.c, "dx", "dx", "dy")
    if needs[1]:
        steps.add("conv", filters, x="x", dy=dimage, dw="dfilter")
    if needs[2]:  # apart: the gradient of filters alone has a faster kernel
        steps.sum(dimage, "dfilter_bias", s.c)
    return bytes(steps), memory.bytes


@operator(
    "conv_block_backward(Tensor dy, Tensor x, Tensor filter, Tensor norm, Tensor up, Tensor down, Tensor? down_bias, Tensor? gamma,"
    f" Tensor kept, int[] padding, str activation, bool[] needs) -> (Tensor{', Tensor' * 9})",
    lambda dy, x, filter, norm, up, down, down_bias, gamma, *rest: _gradients_like(
        x, filter, norm, up, down, down_bias, gamma, rest[-1]
    ),
)
def conv_block_backward(dy, x, filter, norm, up, down, down_bias, gamma, kept, padding, activation, needs):
    dy, x, filter = image(dy, True), image(x, True), image(filter, True)
    options = tuple(padding), activation, tuple(needs), down_bias is not None, gamma is not None
    code, size = _backward(x.shape, filter.shape, up.shape, x.dtype, *options)
    gradients = _gradients_like(x, filter, norm, up, down, down_bias, gamma, needs)
    inputs = dy, x, filter, *dense(norm, up, down, down_bias, gamma), kept
    run_sequence(code, *inputs, *gradients, x.new_empty(size, dtype=torch.uint8))
    return gradients
