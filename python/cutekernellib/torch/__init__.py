"""Functions for torch tensors with torch's names and arguments, their gradients, and accelerate() for whole models.

Tensors of a GPU are computed on torch's current stream, tensors of the host on the emulated GPU. Everything may be compiled by
torch.compile and captured in CUDA graphs; torch.ops.cutekernellib has the operators below. What no kernel takes is
NotImplementedError, a mistake ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch as _torch
from torch import Tensor

from .._functions import _axis, _operands_of
from .._shapes import typed as _typed
from . import (  # noqa: F401, they register the operators
    _attention,
    _blocks,
    _conv,
    _elements,
    _norms,
    _registry,
    _rows,
    _tensors,
)
from ._accelerate import Report, accelerate

__all__ = [
    "Report",
    "accelerate",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "apply_rotary_pos_emb",
    "attention",
    "attention_decode",
    "attention_packed",
    "attention_ragged",
    "conv2d",
    "cross_entropy",
    "elementwise",
    "gated_mlp",
    "gelu",
    "group_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "mlp",
    "permute",
    "reduce",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "silu",
    "silu_mul",
    "softmax",
    "transpose",
]


_EPS = _torch.finfo(_torch.float32).eps


def _norm(run, x, normalized_shape, parameters, eps):
    """A norm of the last modes of x, which have this shape, as one mode."""
    eps = _EPS if eps is None else eps
    if normalized_shape == x.shape[-1:]:
        return run(x, *parameters, eps)[0]
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if shape != x.shape[-len(shape) :]:
        raise ValueError(f"norm: normalized_shape {shape} is not the end of the shape {tuple(x.shape)}")
    parameters = [p if p is None else p.reshape(-1) for p in parameters]
    return run(x.flatten(-len(shape)), *parameters, eps)[0].view(x.shape)


def softmax(x: Tensor, dim: int, *, scale: float = 1.0) -> Tensor:
    """softmax(scale * x) along dim. f32, f16, bf16."""
    return _registry.way("softmax", x)(x, dim, False, scale)


def log_softmax(x: Tensor, dim: int, *, scale: float = 1.0) -> Tensor:
    """log(softmax(scale * x)) along dim. f32, f16, bf16."""
    return _registry.way("softmax", x)(x, dim, True, scale)


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.layer_norm. All tensors of one type, f32, f16 or bf16."""
    return _norm(_registry.way("layer_norm", x, weight, bias), x, normalized_shape, (weight, bias), eps)


def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """torch.nn.functional.rms_norm; eps: not given, as there the distance from 1 to the next f32, whatever the type."""
    return _norm(_registry.way("rms_norm", x, weight), x, normalized_shape, (weight,), eps)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """layer_norm(x + residual) along the last mode, and x + residual, in one kernel."""
    return _registry.way("add_layer_norm", x, residual, weight, bias)(x, residual, weight, bias, eps)[:2]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """rms_norm(x + residual) along the last mode, and x + residual, in one kernel."""
    return _registry.way("add_rms_norm", x, residual, weight)(x, residual, weight, eps)[:2]


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """torch.nn.functional.group_norm of x[N,C,...], dense or of channels last, with weight[C] and bias[C], both or neither."""
    if num_groups < 1:
        raise ValueError(f"group_norm: num_groups={num_groups} is less than 1")
    return _registry.way("group_norm", x, weight, bias)(x, num_groups, weight, bias, eps)[0]


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """torch.nn.functional.cross_entropy of logits and class numbers; the loss is f32. reduction: mean, sum or none.

    Logits are [rows, classes], as they lie, [classes], or [N, classes, ...], which are copied. weight[classes] has their type and no
    gradient.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"cross_entropy: reduction={reduction} is none of mean, sum, none")
    if weight is not None and weight.requires_grad:
        raise NotImplementedError("cross_entropy: weight has no gradient; detach() it")
    shape = target.shape
    if x.dim() != 2:
        if x.dim() == 0 or shape != x.shape[:1] * (x.dim() > 1) + x.shape[2:]:
            raise ValueError(f"cross_entropy: x{list(x.shape)} target{list(shape)} do not fit x[N,classes,*] target[N,*]")
        x, target = x.movedim(1, -1).flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0), target.flatten()
    loss = _registry.way("cross_entropy", x, weight)(x, target, weight, ignore_index, reduction == "mean", label_smoothing)[0]
    return loss if reduction == "mean" else loss.sum() if reduction == "sum" else loss.view(shape)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """torch.nn.functional.gelu; approximate: none or tanh."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate} is none of none, tanh")
    return _unary(x, "gelu" if approximate == "none" else "gelu_tanh")


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return _unary(x, "silu")


def _unary(x, function):
    return _registry.way("unary", x)(x, function)


def silu_mul(x: Tensor, y: Tensor) -> Tensor:
    """silu(x) * y, the middle of a gated MLP, in one kernel."""
    return _registry.way("silu_mul", x, y)(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "identity", turned: bool = False) -> Tensor:
    """activation(x @ weight.T + bias): identity, relu, gelu (tanh form), gelu_erf or silu, in one kernel. turned: x @ weight."""
    return _registry.way("linear", x, weight, bias)(x, weight, bias, activation, turned)[0]


def mlp(
    x: Tensor,
    up: Tensor,
    up_bias: Tensor | None,
    down: Tensor,
    down_bias: Tensor | None,
    activation: str = "gelu_erf",
    *,
    residual: Tensor | None = None,
    turned: bool = False,
) -> Tensor:
    """linear(linear(x, up, up_bias, activation), down, down_bias) + residual; activation: gelu, gelu_erf or silu."""
    run = _registry.way("mlp", x, up, up_bias, down, down_bias, residual)
    return run(x, up, up_bias, down, down_bias, residual, activation, turned)[0]


def gated_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, *, residual: Tensor | None = None) -> Tensor:
    """linear(silu_mul(linear(x, gate), linear(x, up)), down) + residual, without biases."""
    return _registry.way("gated_mlp", x, gate, up, down, residual)(x, gate, up, down, residual)[0]


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """torch.nn.functional.conv2d of x[N,C,H,W], dense or of channels last, as y will be; padding: numbers of zeros, or valid."""
    padding = 0 if padding == "valid" else padding
    if isinstance(padding, str):
        raise NotImplementedError(f"conv2d: padding={padding} is no number of zeros and not valid")
    sizes = [[n, n] if isinstance(n, int) else list(n) for n in (stride, padding, dilation)]
    if any(len(pair) != 2 for pair in sizes):
        raise ValueError(f"conv2d: stride, padding and dilation {sizes} are not one or two numbers each")
    if min(sizes[0] + sizes[2]) < 1:
        raise ValueError(f"conv2d: strides {sizes[0]} and dilations {sizes[2]} begin at 1")
    return _registry.way("conv2d", x, weight, bias)(x, weight, bias, *sizes, groups)


def rope(q: Tensor, k: Tensor, positions: Tensor, *, theta: float = 10000.0, style: str = "half") -> tuple[Tensor, Tensor]:
    """Rotary embedding of q[..., heads, D] and k[..., heads, D], a position (i32 or i64) for each token; a pair."""
    return _registry.way("rope", q, k)(q, k, positions, theta, style, False)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """The function of that name of transformers' Llama: halves of heads rotated by tables of cosines and sines. A pair.

    q[B,H,S,D], k[B,G,S,D] with unsqueeze_dim 1, or [B,S,H,D] with 2; tables [B,S,D] or [1,S,D], which get no gradient.
    """
    if unsqueeze_dim not in (1, 2):
        raise ValueError(f"apply_rotary_pos_emb: unsqueeze_dim={unsqueeze_dim} is none of 1, 2")
    if (q.dim(), cos.dim()) != (4, 3):
        raise ValueError(f"apply_rotary_pos_emb: q has {q.dim()} modes and the tables {cos.dim()}, not 4 and 3")
    if unsqueeze_dim == 2:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    q, k = _registry.way("rotate", q, k)(q, k, cos, sin, False)
    return (q.transpose(1, 2), k.transpose(1, 2)) if unsqueeze_dim == 2 else (q, k)


def add(a: Tensor, b: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """alpha * a + beta * b of two tensors of one shape."""
    return _registry.way("add", a, b)(a, b, alpha, beta)


def elementwise(expr: str, **operands: Tensor | float) -> Tensor:
    """An expression over up to four tensors and numbers by name, broadcast: ``elementwise("gelu(a*x+b)", a=2.0, x=x, b=b)``.

    The result has the type of the first tensor in the expression. Gradients are torch's. cutekernellib.elementwise has more.
    """
    tensors = {n: operands[n] for n in _operands_of(expr, operands) if isinstance(operands[n], Tensor)}
    numbers = {n: float(x) for n, x in operands.items() if n not in tensors}
    run = _registry.way("elementwise", *tensors.values())
    return run(expr, list(tensors.values()), list(tensors), list(numbers.values()), list(numbers))


def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    """torch.permute, as a dense tensor."""
    return _registry.way("permute", x)(x, [_axis(x, d) for d in dims])


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """torch.transpose, as a dense tensor; of the last two modes by the operator transpose."""
    modes, dim0, dim1 = list(range(x.dim())), _axis(x, dim0), _axis(x, dim1)
    modes[dim0], modes[dim1] = modes[dim1], modes[dim0]
    if modes[:-2] == list(range(x.dim() - 2)) and modes[-1] != x.dim() - 1:
        return _registry.way("transpose", x)(x)
    return permute(x, modes)


def reduce(x: Tensor, op: str = "sum", dim: int | Sequence[int] = (), *, correction: int = 0) -> Tensor:
    """sum max min prod mean var std argmax argmin any all norm1 norm2 or logsumexp over dim, an int or several, or all of them.

    Gradients of others than sums and means are torch's; argmax, argmin, any and all have none.
    """
    return _registry.way("reduce", x)(x, op, [dim] if isinstance(dim, int) else list(dim), correction)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention of f16 or bf16 tensors [B,H,S,D]."""
    if dropout_p:
        raise NotImplementedError("scaled_dot_product_attention: there is no dropout")
    if query.dim() != 4 or (query.shape[1] != key.shape[1] and not enable_gqa):
        raise NotImplementedError(
            "scaled_dot_product_attention: tensors are [B,H,S,D], with enable_gqa of fewer heads in k and v"
        )
    if is_causal and query.shape[2] != key.shape[2]:
        raise NotImplementedError("scaled_dot_product_attention: is_causal of different lengths aligns the first query and key")
    if query.shape[2] == 1 and attn_mask is None and not _needs_gradient(query, key, value):
        return attention_decode(query, key, value, scale=scale)
    return attention(query, key, value, mask=attn_mask, causal=is_causal, scale=scale)


def _scale(q):
    """What scores are multiplied with if nothing else is said."""
    return 1 / math.sqrt(max(q.shape[-1], 1))


def _needs_gradient(*tensors):
    return _torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (0, 0),
    softcap: float = 0.0,
) -> Tensor:
    """softmax(scale * q @ k.T) @ v of q[B,H,Q,D], k[B,G,K,D], v[B,G,K,E] of f16 or bf16; G divides H.

    The last query is aligned with the last key. causal: queries see no later key. window: a query sees so many keys up to its own
    and so many later ones; 0: all. softcap: scores become softcap * tanh(score / softcap). mask: added to the scores, or of bool:
    false hides. sinks: f32 [H], a score more for each head, without a value.
    """
    scale = _scale(q) if scale is None else scale
    run = _registry.way("attention", q, k, v, mask, sinks)
    return run(q, k, v, mask, sinks, causal, scale, *window, softcap)[0]


def attention_packed(qkv: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """attention() of qkv[B,S,3,H,D], the result of a joint projection; gives [B,S,H,D]."""
    scale = _scale(qkv) if scale is None else scale
    return _registry.way("attention_packed", qkv)(qkv, causal, scale)[0]


def attention_ragged(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    starts_kv: Tensor,
    longest_q: int,
    longest_kv: int,
    *,
    sinks: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (0, 0),
    softcap: float = 0.0,
) -> Tensor:
    """attention() of sequences that lie one behind the other: q[tokens,H,D], k and v[tokens,G,D].

    starts: i32 [sequences + 1], where each begins and the last ends; longest: at least the tokens of the longest.
    """
    scale = _scale(q) if scale is None else scale
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    run = _registry.way("attention_ragged", q, k, v, starts_q, starts_kv, sinks)
    o = run(q, k, v, starts_q, starts_kv, sinks, longest_q, longest_kv, causal, scale, *window, softcap)[0]
    return o.transpose(0, 1)


def attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    lengths: Tensor | None = None,
    table: Tensor | None = None,
    *,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    left: int = 0,
    softcap: float = 0.0,
    latent: int = 0,
) -> Tensor:
    """attention of 1 to 16 new tokens q[B,H,T,D], causal among themselves, against a cache k[B,G,K,D], v[B,G,K,E]. No gradient.

    lengths: i32 [B], the keys of each sequence, those of the new tokens included, which are the last; not given: all K. table: i32
    [B, pages of a sequence], where the cache is in pages: k[pages,G,keys of a page,D]. Lengths and table are read by the GPU: a
    CUDA graph of a step may be replayed while they change. k_new[B,G,T,D], v_new[B,G,T,E], with lengths: keys and values of the new
    tokens, which the call stores in the cache at their places; without them the cache has them already. latent: v and v_new are None,
    the values are so many first elements of the keys (multi-head latent attention).
    """
    if _needs_gradient(*(x for x in (q, k, v, k_new, v_new, sinks) if x is not None)):
        raise NotImplementedError("attention_decode: there is no gradient; call it under torch.no_grad(), or attention()")
    scale = _scale(q) if scale is None else scale
    if (v is None) != (latent > 0):
        raise ValueError("attention_decode: a latent cache, and no other, has no v")
    if latent > k.shape[-1]:
        raise ValueError(f"attention_decode: latent={latent} is more than the {k.shape[-1]} elements of a key")
    if (v_new is None) != (k_new is None or latent > 0) or (k_new is not None and lengths is None):
        raise ValueError(
            "attention_decode: k_new and v_new come together, k_new alone where the cache is latent, and with lengths"
        )
    options = lengths, table, sinks, scale, left, softcap, latent
    if k_new is None:
        return _registry.way("attention_decode", q, k, v, lengths, table, sinks)(q, k, v, *options)
    run = _registry.way("attention_decode_append", q, k, v, k_new, v_new, lengths, table, sinks)
    return run(q, k, v, k_new, v_new, *options)


for _name in set(__all__) - {"Report", "accelerate"}:
    globals()[_name] = _typed(globals()[_name])
