"""Functions of arrays: NumPy's, which run on the emulated GPU, torch's, CuPy's, JAX's and those of any other DLPack library.

Every function returns new arrays of the kind of its first argument. Errors are ValueError (shapes, types), NotImplementedError
(no kernel takes the problem), MemoryError and RuntimeError, with the library's sentence.
"""

from __future__ import annotations

import importlib
import math
import operator
import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from . import _problems
from ._library import CPU, device_of, module, operators, tensors_of, warn_of_emulator
from ._shapes import expect


class Array(Protocol):
    """What every DLPack library's arrays have."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


A = TypeVar("A", bound=Array)  # of the first argument, and of results of as many modes

# Arrays


def _strides(x):
    """Elements between neighbours of each mode."""
    if hasattr(x, "stride"):
        return tuple(x.stride())
    if getattr(x, "strides", None) is not None:
        return tuple(bytes_ // x.dtype.itemsize for bytes_ in x.strides)
    return tuple(math.prod(x.shape[i + 1 :]) for i in range(len(x.shape)))


def _copied(x):
    """A copy without gaps in which the last mode is contiguous."""
    return x.contiguous() if hasattr(x, "contiguous") else x.copy()


def _readable(x):
    """The array itself, or a copy where a problem could not say how it lies, or DLPack not hand it over."""
    is_writeable = getattr(getattr(x, "flags", None), "writeable", True)  # NumPy's
    return x if is_writeable and min(_strides(x), default=0) >= 0 else _copied(x)


def _dense(x):
    """The array itself, or a copy without gaps, of which a problem says nothing."""
    x, expected = _readable(x), 1
    for size, stride in zip(reversed(x.shape), reversed(_strides(x))):
        if size != 1 and stride != expected:
            return _copied(x)
        expected *= size
    return x


def _taken(name, pattern, *arrays):
    """Arrays that fit the pattern, or None, without gaps."""
    expect(name, pattern, *arrays)
    return [x if x is None else _dense(x) for x in arrays]


def _library_of(x):
    """The module that makes arrays of this kind; a class of anybody's may be derived from its own."""
    names = [cls.__module__.partition(".")[0] for cls in type(x).__mro__]
    name = next((name for name in names if name in ("torch", "numpy", "cupy", "jax", "jaxlib")), names[0])
    return importlib.import_module("jax.numpy" if name.startswith("jax") else name)


def _empty(like, shape, dtype=None):
    library = _library_of(like)
    if isinstance(dtype, str):
        if dtype not in _problems.DTYPES or not hasattr(library, dtype):
            raise NotImplementedError(f"element type {dtype} is none of {library.__name__}'s")
        dtype = getattr(library, dtype)
    if library.__name__ == "torch":
        return library.empty(shape, dtype=dtype or like.dtype, device=like.device)
    return library.empty(shape, dtype=dtype or like.dtype)


def _run(name, desc, *args):
    arrays = [a for a in args if hasattr(a, "__dlpack_device__")]
    device = device_of(arrays[0])
    if any([getattr(a, "requires_grad", False) for a in arrays]) and sys.modules["torch"].is_grad_enabled():
        raise NotImplementedError(f"{name}: no gradient comes of arrays; cutekernellib.torch has it, or detach() the tensors")
    if device[0] == CPU:
        warn_of_emulator()
    waits = [a.block_until_ready() for a in arrays if hasattr(a, "block_until_ready")]  # JAX has streams of its own
    operators[name].run(desc, *args)
    if waits:
        module.ckl_synchronize(*device)


def _axis(x, axis):
    axis = operator.index(axis)
    if not -len(x.shape) <= axis < len(x.shape):
        raise IndexError(f"axis {axis} is out of range for an array of {len(x.shape)} modes")
    return axis % len(x.shape)


# Rows


def softmax(x: A, axis: int = -1, *, scale: float = 1.0) -> A:
    """softmax(scale * x) along an axis. x: f32, f16 or bf16, of any shape."""
    return _softmax(x, axis, scale, False)


def log_softmax(x: A, axis: int = -1, *, scale: float = 1.0) -> A:
    """log(softmax(scale * x)) along an axis. x: f32, f16 or bf16, of any shape."""
    return _softmax(x, axis, scale, True)


def _softmax(x, axis, scale, log):
    (x,) = _taken("softmax", "x[*]", x)
    y = _empty(x, x.shape)
    _run("softmax", _problems.softmax(tuple(x.shape), x.dtype, _axis(x, axis), log, scale), x, None, y)
    return y


def _norm(name, x, weight, bias, eps):
    x, weight, bias = _taken(name.replace("norm", "_norm"), "x[*,N] weight[N] bias[N]", x, weight, bias)
    y, cols = _empty(x, x.shape), x.shape[-1]
    if bias is None and weight is not None and name == "layernorm":
        bias = weight - weight
    desc = _problems.norm(name, math.prod(x.shape[:-1]), cols, x.dtype, eps, weight is not None)
    _run(name, desc, x, None, weight, bias, None, None, y)
    return y


def layer_norm(x: A, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5) -> A:
    """(x - mean) / sqrt(variance + eps) * weight + bias along the last axis, whose length weight and bias have."""
    if weight is None and bias is not None:
        raise ValueError("layer_norm: a bias needs a weight")
    return _norm("layernorm", x, weight, bias, eps)


def rms_norm(x: A, weight: Array | None = None, eps: float = 1e-5) -> A:
    """x / sqrt(mean of x^2 + eps) * weight along the last axis."""
    return _norm("rmsnorm", x, weight, None, eps)


def group_norm(x: A, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5) -> A:
    """Norm of groups of channels of x[N,C,...], scaled by weight[C] and shifted by bias[C], both or neither."""
    x, weight, bias = _taken("group_norm", "x[N,C,*] weight[C] bias[C]", x, weight, bias)
    if (weight is None) != (bias is None):
        raise ValueError("group_norm: weight and bias come together")
    y = _empty(x, x.shape)
    desc = _problems.groupnorm(tuple(x.shape), groups, x.dtype, eps, weight is not None)
    _run("groupnorm", desc, x, None, weight, bias, y)
    return y


def cross_entropy(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Loss of logits x[rows, classes] and class numbers target[rows], i64 or i32; f32: one number (mean or sum), or with none [rows].

    weight[classes], of x's type, is that of each class: the mean is over the weights of the targets. label_smoothing: the share of a
    loss, 0 to 1, that is of all classes.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"cross_entropy: reduction={reduction} is none of mean, sum, none")
    if reduction == "sum":
        each = cross_entropy(x, target, weight, reduction="none", ignore_index=ignore_index, label_smoothing=label_smoothing)
        return each.sum()
    x, target, weight = _taken("cross_entropy", "x[rows,classes] target~[rows] weight[classes]", x, target, weight)
    rows, cols = x.shape
    loss, lse = _empty(x, (1,) if reduction == "mean" else (rows,), "float32"), _empty(x, (rows,), "float32")
    count = _empty(x, (1,), "float32") if reduction == "mean" else None
    weight_sum = None if weight is None or not label_smoothing else _empty(x, (1,), "float32")
    is_weighted = weight is not None
    desc = _problems.crossentropy(rows, cols, x.dtype, target.dtype, reduction, ignore_index, is_weighted, label_smoothing)
    _run("crossentropy", desc, x, target, loss, lse, count, None, None, weight, weight_sum)
    return loss.reshape(()) if reduction == "mean" else loss


# Elements


_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\s*\()")


def _broadcast(shapes):
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    shape = tuple(max(sizes) if min(sizes) else 0 for sizes in zip(*aligned))
    for s in aligned:
        if any(size not in (1, whole) for size, whole in zip(s, shape)):
            raise ValueError(f"elementwise: shapes {', '.join(map(str, shapes))} do not broadcast")
    return shape


def _broadcast_strides(x, rank):
    strides = tuple(0 if size == 1 else stride for size, stride in zip(x.shape, _strides(x)))
    return (0,) * (rank - len(strides)) + strides


def _operands_of(expr, given):
    """Their names in the order of an expression, of which those that are given must be all."""
    names = list(dict.fromkeys(_NAMES.findall(expr)))
    if set(names) != set(given):
        raise ValueError(f"elementwise: {expr} has the operands {', '.join(names)}, given are {', '.join(given)}")
    return names


def elementwise(expr: str, *, dtype: str | None = None, **operands: Any) -> Any:
    """An expression over up to four arrays and numbers by name, in one kernel: ``elementwise("gelu(a*x+b)", a=2.0, x=x, b=b)``.

    Arrays are broadcast and may have any strides. Operators + - * / ^, functions neg abs relu sigmoid silu tanh erf exp log sqrt
    rsqrt cast gelu gelu_erf add sub mul div max min pow. dtype: of the result; not given: that of the first array.
    """
    names = _operands_of(expr, operands)
    operands = {name: _readable(x) if hasattr(x, "shape") else x for name, x in operands.items()}
    arrays = [operands[n] for n in names if hasattr(operands[n], "shape")]
    if not arrays:
        raise ValueError("elementwise: there is no array among the operands")
    shape = _broadcast([tuple(x.shape) for x in arrays])
    y = _empty(arrays[0], shape, dtype)
    values, dtypes, strides = [], [], []
    for name in names:
        x = operands[name]
        is_array = hasattr(x, "shape")
        values.append(x.reshape((1,)) if is_array and len(x.shape) == 0 else x)
        dtypes.append((name, x.dtype if is_array else None))
        strides.append(_broadcast_strides(values[-1], max(len(shape), 1)) if is_array else None)
    strides.append(_strides(y) if shape else (1,))
    desc = _problems.elementwise(expr, shape, tuple(dtypes), tuple(strides), y.dtype)
    _run("elementwise", desc, *values, *(None,) * (4 - len(values)), y if shape else y.reshape((1,)))
    return y


def add(a: A, b: Array, *, alpha: float = 1.0, beta: float = 1.0) -> A:
    """alpha * a + beta * b of two arrays of one shape."""
    a, b = _taken("add", "a[*] b[*]", a, b)
    y = _empty(a, a.shape)
    _run("add", _problems.add(math.prod(a.shape), a.dtype), a, b, y, alpha, beta)
    return y


def reduce(x: Array, op: str = "sum", axis: int | Sequence[int] | None = None, *, correction: int = 0) -> Any:
    """sum max min prod mean var std argmax argmin any all norm1 norm2 or logsumexp over an axis, several, or all (None)."""
    expect("reduce", "x[*]", x)
    x = _readable(x)
    axes = () if axis is None else tuple(_axis(x, a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) < len(axes):
        raise ValueError(f"reduce: axis {axis} names an axis twice")
    left = [size for i, size in enumerate(x.shape) if axes and i not in axes]
    desc = _problems.reduce(op, tuple(x.shape), _strides(x), axes, x.dtype, correction)
    y = _empty(x, tuple(left), _reduced_dtype(desc))
    _run("reduce", desc, x, y.reshape((1,)) if not left else y)
    return y


def _reduced_dtype(desc):
    name = tensors_of("reduce", desc)[1]["dtype"]
    return next(full for full, short in _problems.DTYPES.items() if short == name)


# Matrices and images


def linear(x: A, weight: Array, bias: Array | None = None, activation: str = "identity") -> A:
    """activation(x @ weight.T + bias): x[..., K], weight[N, K], bias[N] of f16, bf16 or f32; activation identity, relu, gelu
    (the tanh form), gelu_erf or silu."""
    x, weight, bias = _taken("linear", "x[*,K] weight[N,K] bias[N]", x, weight, bias)
    y = _empty(x, (*x.shape[:-1], weight.shape[0]))
    desc = _problems.gemm(math.prod(x.shape[:-1]), *weight.shape, x.dtype, bias is not None, activation)
    _run("gemm", desc, *operators["gemm"].in_order((), {"a": x, "b": weight, "bias": bias, "d": y}))
    return y


def attention(q: A, k: Array, v: Array, *, causal: bool = False, scale: float | None = None) -> A:
    """softmax(scale * q @ k.T) @ v: q[B,H,Q,D], k[B,G,K,D], v[B,G,K,E] of f16 or bf16; G divides H. causal: the last query sees
    all keys. scale: not given, 1/sqrt(D)."""
    q, k, v = _taken("attention", "q[B,H,Q,D] k[B,G,K,D] v[B,G,K,E]", q, k, v)
    o = _empty(q, (*q.shape[:3], v.shape[3]))
    strides = tuple(map(_strides, (q, k, v, o)))
    desc = _problems.attention(tuple(q.shape), tuple(k.shape), tuple(v.shape), strides, q.dtype, causal, scale)
    _run("attention", desc, *operators["attention"].in_order((), {"q": q, "k": k, "v": v, "o": o}))
    return o


def rope(q: A, k: A | None, positions: Array, *, theta: float = 10000.0, style: str = "half") -> tuple[A, A | None]:
    """Rotary embedding of q[tokens, heads, D] and k[tokens, heads, D] or None, by positions[tokens] of i32 or i64; a pair."""
    q, k, positions = _taken("rope", "q[tokens,heads,D] k[tokens,k_heads,D] positions~[tokens]", q, k, positions)
    yq, yk = _empty(q, q.shape), k if k is None else _empty(k, k.shape)
    desc = _problems.rope(*q.shape[:2], 0 if k is None else k.shape[1], q.shape[2], q.dtype, positions.dtype, theta, style)
    _run("rope", desc, q, k, positions, yq, yk)
    return yq, yk


def permute(x: A, order: Sequence[int]) -> A:
    """x with its modes in another order, as a dense array. Elements of any type."""
    expect("permute", "x[*]", x)
    if sorted(order) != list(range(len(x.shape))):
        raise ValueError(f"permute: {order} is no order of {len(x.shape)} modes")
    x = _dense(x) if 0 in _strides(x) else _readable(x)  # broadcast, where a line's 0 is the stride of a dense tensor
    y = _empty(x, tuple(x.shape[i] for i in order))
    _run("permute", _problems.permute(tuple(x.shape), _strides(x), tuple(order), x.dtype), x, y)
    return y


def transpose(x: A) -> A:
    """x[..., R, C] with its last two modes exchanged, as a dense array[..., C, R]. Elements of any type; a matrix of any strides."""
    expect("transpose", "x[*]", x)
    if len(x.shape) < 2:
        raise ValueError(f"transpose: the shape {tuple(x.shape)} has no two modes")
    x = _dense(x) if len(x.shape) > 2 or 0 in _strides(x) else _readable(x)
    *batch, rows, cols = x.shape
    y = _empty(x, (*batch, cols, rows))
    _run("transpose", _problems.transpose(math.prod(batch), rows, cols, *_strides(x)[-2:], x.dtype), x, y)
    return y
