"""Functions for torch tensors with torch's names and arguments, their gradients, and accelerate() for whole models.

Tensors of a GPU are computed on torch's current stream, tensors of the host on the emulated GPU. Everything may be compiled by
torch.compile and captured in CUDA graphs; torch.ops.cutekernellib has the operators below. What no kernel takes is
NotImplementedError, a mistake ValueError.
"""

from __future__ import annotations

import math

import torch as _torch
from torch import Tensor

from . import _ops
from ._accelerate import Report, accelerate

__all__ = [
    "Report",
    "accelerate",
    "add_rms_norm",
    "apply_rotary_pos_emb",
    "cross_entropy",
    "gelu",
    "group_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "silu",
    "silu_mul",
    "softmax",
]

_registered = _torch.ops.cutekernellib
_is_compiling = _torch.compiler.is_compiling
_is_transforming = _torch._C._are_functorch_transforms_active


_PLAIN = (_torch.Tensor, _torch.nn.Parameter)


def _way(name, *tensors):
    """How a call goes: straight to the library, through autograd, or where anything else wants to see it, through the dispatcher."""
    if _is_compiling() or _is_transforming() or _torch._C._len_torch_dispatch_stack():
        return getattr(_registered, name)
    needs_gradient = False
    for x in tensors:
        if x is None:
            continue
        if not x.is_cuda or type(x) not in _PLAIN:
            return getattr(_registered, name)
        needs_gradient |= x.requires_grad
    return _ops.differentiable[name] if needs_gradient and _torch.is_grad_enabled() else _ops.direct[name]


def _one_shape(name, x, normalized_shape):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if shape != tuple(x.shape[-len(shape) :]):
        raise ValueError(f"{name}: normalized_shape {shape} is not the end of the shape {tuple(x.shape)}")
    return x if len(shape) == 1 else x.flatten(-len(shape))


def softmax(x: Tensor, dim: int, *, scale: float = 1.0) -> Tensor:
    """softmax(scale * x) along dim. f32, f16, bf16."""
    return _way("softmax", x)(x, dim, False, scale)


def log_softmax(x: Tensor, dim: int, *, scale: float = 1.0) -> Tensor:
    """log(softmax(scale * x)) along dim. f32, f16, bf16."""
    return _way("softmax", x)(x, dim, True, scale)


def layer_norm(
    x: Tensor, normalized_shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """torch.nn.functional.layer_norm. All tensors of one type, f32, f16 or bf16."""
    flat = _one_shape("layer_norm", x, normalized_shape)
    weight, bias = (p if p is None else p.reshape(-1) for p in (weight, bias))
    run = _way("layer_norm", flat, weight, bias)
    if run is _ops.layer_norm:  # nobody needs mean and rstd
        y = _ops._norm("layernorm", flat, weight, bias, eps, None, None)
    else:
        y = run(flat, weight, bias, eps)[0]
    return y if y.shape == x.shape else y.view(x.shape)


def rms_norm(x: Tensor, normalized_shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """torch.nn.functional.rms_norm; eps: not given, the distance from 1 to the next number of the type."""
    flat = _one_shape("rms_norm", x, normalized_shape)
    weight = weight if weight is None else weight.reshape(-1)
    eps = _torch.finfo(x.dtype).eps if eps is None else eps
    run = _way("rms_norm", flat, weight)
    if run is _ops.rms_norm:
        y = _ops._norm("rmsnorm", flat, weight, None, eps, None, None)
    else:
        y = run(flat, weight, eps)[0]
    return y if y.shape == x.shape else y.view(x.shape)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """rms_norm(x + residual) along the last mode, and x + residual, in one kernel."""
    return _way("add_rms_norm", x, residual, weight)(x, residual, weight, eps)[:2]


def group_norm(x: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """torch.nn.functional.group_norm of x[N,C,...], dense or of channels last, with weight[C] and bias[C]."""
    return _way("group_norm", x, weight, bias)(x, num_groups, weight, bias, eps)[0]


def cross_entropy(x: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """torch.nn.functional.cross_entropy of logits[rows, classes] and class numbers; the loss is f32. reduction: mean or none."""
    if reduction not in ("mean", "none"):
        raise NotImplementedError(f"cross_entropy: reduction={reduction} is none of mean, none")
    return _way("cross_entropy", x)(x, target, ignore_index, reduction == "mean")[0]


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """torch.nn.functional.gelu; approximate: none or tanh."""
    return _unary(x, "gelu" if approximate == "none" else "gelu_tanh")


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return _unary(x, "silu")


def _unary(x, function):
    return _way("unary", x)(x, function)


def silu_mul(x: Tensor, y: Tensor) -> Tensor:
    """silu(x) * y, the middle of a gated MLP, in one kernel."""
    return _way("silu_mul", x, y)(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "identity") -> Tensor:
    """activation(x @ weight.T + bias): identity, relu or gelu (tanh form), in one kernel. The gradient's products are torch's."""
    return _way("linear", x, weight, bias)(x, weight, bias, activation)


def rope(q: Tensor, k: Tensor, positions: Tensor, *, theta: float = 10000.0, style: str = "half") -> tuple[Tensor, Tensor]:
    """Rotary embedding of q[..., heads, D] and k[..., heads, D], a position (i32 or i64) for each token; a pair."""
    return _way("rope", q, k)(q, k, positions, theta, style, False)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """The function of that name of transformers' Llama: halves of heads rotated by tables of cosines and sines. A pair.

    The tables get no gradient.
    """
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    rotate = _way("rotate", q, k)
    return rotate(q, cos, sin, False), rotate(k, cos, sin, False)


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
    """torch.nn.functional.scaled_dot_product_attention of f16 or bf16 tensors [B,H,S,D]. The gradient is torch's."""
    if dropout_p:
        raise NotImplementedError("scaled_dot_product_attention: there is no dropout")
    if query.dim() != 4 or (query.shape[1] != key.shape[1] and not enable_gqa):
        raise NotImplementedError(
            "scaled_dot_product_attention: tensors are [B,H,S,D], with enable_gqa of fewer heads in k and v"
        )
    if is_causal and query.shape[2] != key.shape[2]:
        raise NotImplementedError("scaled_dot_product_attention: is_causal of different lengths aligns the first query and key")
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    return _way("attention", query, key, value, attn_mask)(query, key, value, attn_mask, is_causal, scale)[0]
