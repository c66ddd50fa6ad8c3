"""Attention with every option of the operator, its gradients, and attention of new tokens against a cache."""

import functools

import torch

from .. import _problems
from .._library import operators
from .._shapes import expect
from . import _by_torch
from ._registry import dense, has_kernel, operator

_attention = operators["attention"].taking("q k v mask sinks o lse")
_attention_backward = operators["attention"].taking("q k v mask sinks o lse dout dq dk dv dsinks dmask")
_attention_ragged = operators["attention"].taking("q k v sinks starts_q starts_kv o lse")
_attention_ragged_backward = operators["attention"].taking("q k v sinks starts_q starts_kv o lse dout dq dk dv dsinks")
_attention_decode = operators["attention_decode"].taking("q k v lengths table sinks o k_new v_new k_into v_into")

_OPTIONS = "bool causal, float scale, int left, int right, float softcap"


def _outputs(q, v):
    o = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
    return o, torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)


def _by_rows(x):
    """Its rows may lie anywhere; nothing is broadcast."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


def _mask_of(mask, q, k):
    """The mask for all heads and queries, its kind and strides."""
    if mask is None:
        return None, None, None
    try:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    except RuntimeError:
        shape = [*q.shape[:3], k.shape[2]]
        raise ValueError(f"attention: mask{list(mask.shape)} is not one of {shape}, broadcast") from None
    mask = mask if mask.stride(-1) == 1 else mask.contiguous()
    return mask, "bool" if mask.dtype == torch.bool else "add", mask.stride()


def _setup(ctx, inputs, output):
    q, k, v, mask, sinks, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, mask, sinks, *output)


def _gradient(ops, ctx, do):
    saved, (of_mask, of_sinks) = ctx.saved_tensors, ctx.needs_input_grad[3:5]  # a checkpoint gives them once
    dq, dk, dv, dsinks, dmask = ops.attention_backward(do, *saved, *ctx.options, of_mask)
    mask = saved[3]
    return dq, dk, dv, dmask.sum_to_size(mask.shape) if of_mask else None, dsinks if of_sinks else None, *(None,) * 5


@operator(
    f"attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? sinks, {_OPTIONS}) -> (Tensor, Tensor)",
    lambda q, k, v, mask, sinks, causal, scale, left, right, softcap: _outputs(_by_rows(q), v),
    _gradient,
    _setup,
)
def attention(q, k, v, mask, sinks, causal, scale, left, right, softcap):
    expect("attention", "q[B,H,Q,D] k[B,G,K,D] v[B,G,K,E] sinks~[H]", q, k, v, sinks)
    q, k, v = _by_rows(q), _by_rows(k), _by_rows(v)
    o, lse = _outputs(q, v)
    mask, kind, mask_strides = _mask_of(mask, q, k)
    strides = (q.stride(), k.stride(), v.stride(), o.stride())
    options = (causal, scale, left, right, softcap, sinks is not None)
    desc = _problems.attention(q.shape, k.shape, v.shape, strides, q.dtype, *options, kind, mask_strides, True)
    _attention(desc, q, k, v, mask, *dense(sinks), o, lse)
    return o, lse


def _gradient_like(x):
    """Memory of the same strides, with the gaps where x is a part of a joint projection: nothing has to be copied."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _gradients_like(q, k, v, sinks, of_mask=False):
    """Memory for those of q, k, v, the sinks and the mask; without elements where there is none."""
    dsinks = q.new_empty(0) if sinks is None else torch.empty_like(sinks)
    dmask = q.new_empty((*q.shape[:3], k.shape[2]) if of_mask else 0)
    return *map(_gradient_like, (q, k, v)), dsinks, dmask


@operator(
    "attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? sinks, Tensor o, Tensor lse,"
    f" {_OPTIONS}, bool of_mask=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, q, k, v, mask, sinks, o, lse, causal, scale, left, right, softcap, of_mask=False: _gradients_like(
        *map(_by_rows, (q, k, v)), sinks, of_mask
    ),
)
def attention_backward(do, q, k, v, mask, sinks, o, lse, causal, scale, left, right, softcap, of_mask=False):
    q, k, v = _by_rows(q), _by_rows(k), _by_rows(v)
    gradients = _gradients_like(q, k, v, sinks, of_mask)
    _write_gradients(gradients, do, q, k, v, mask, sinks, o, lse, causal, scale, left, right, softcap)
    return gradients


def _strided_like(x, like):
    """x itself, or copied to memory of the strides of `like`."""
    if x.stride() == like.stride():
        return x
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(x)


def _written(gradient):
    """The operator's argument for it: None where there is none."""
    return gradient if gradient is not None and gradient.numel() else None


def _write_gradients(gradients, do, q, k, v, mask, sinks, o, lse, causal, scale, left, right, softcap):
    """Into memory of the strides of q, k and v."""
    dq, dk, dv, dsinks, dmask = gradients
    do, dsinks, dmask = _strided_like(do, o), _written(dsinks), _written(dmask)
    mask, kind, mask_strides = _mask_of(mask, q, k)
    strides = (q.stride(), k.stride(), v.stride(), o.stride())
    options = (causal, scale, left, right, softcap, sinks is not None)
    desc = _problems.attention(
        q.shape, k.shape, v.shape, strides, q.dtype, *options, kind, mask_strides, False, True, dmask is not None
    )
    plain = sinks is None and dmask is None and not (left or right or softcap)
    if plain and not has_kernel("attention", desc, q.device):  # with a window, a cap or sinks torch has none, either
        for gradient, by_torch in zip((dq, dk, dv), _backward_by_torch(do, q, k, v, mask, o, lse, causal, scale)):
            gradient.copy_(by_torch)
    else:
        _attention_backward(desc, q, k, v, mask, *dense(sinks), o, lse, do, dq, dk, dv, dsinks, dmask)


def _backward_by_torch(do, q, k, v, mask, o, lse, causal, scale):
    """The gradient of flash attention from our output and log-sum-exp, or where that does not take them of torch's own forward."""
    if mask is None and q.shape[-1] == v.shape[-1]:
        nothing = torch.zeros((), dtype=torch.uint64, device=q.device)
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            do, q, k, v, o, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, nothing, nothing, scale=scale
        )
    options = dict(attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    sdpa = torch._C._nn.scaled_dot_product_attention  # accelerate() replaces that of torch.nn.functional
    return _by_torch.gradients(lambda *inputs: sdpa(*inputs, **options), do, q, k, v)


_has_gradient: dict = {}  # by size of head, type, GPU


@torch.compiler.assume_constant_result  # a trace need not look inside
def has_gradient(*key):
    """Has attention a kernel for its gradient: of heads of this size, of a type, on the GPU of this number?"""
    if key not in _has_gradient:
        (d, dtype, gpu), strides = key, (128 * key[0], 128 * key[0], key[0], 1)
        desc = _problems.attention(*((1, 1, 128, d),) * 3, (strides,) * 4, dtype, True, None, backward=True)
        _has_gradient[key] = has_kernel("attention", desc, torch.device("cpu" if gpu is None else f"cuda:{gpu}"))
    return _has_gradient[key]


# Of one tensor that a joint projection gives, [B,S,3,H,D]: so is its gradient


def _parts(x):
    """q, k and v of it."""
    return tuple(part.transpose(1, 2) for part in x.unbind(2))


def _packed_outputs(qkv):
    b, s, _, h, d = qkv.shape
    return qkv.new_empty((b, s, h, d)), torch.empty((b, h, s), dtype=torch.float32, device=qkv.device)


@functools.lru_cache(8192)
def _packed_problem(qkv, dtype, causal, scale, backward):
    b, s, _, h, d = qkv
    shape, strides = (b, h, s, d), (3 * s * h * d, d, 3 * h * d, 1)
    strides = (*(strides,) * 3, (s * h * d, d, h * d, 1))
    return _problems.attention(*(shape,) * 3, strides, dtype, causal, scale, lse=not backward, backward=backward)


def _packed_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], *output)
    ctx.options = inputs[1:]


@operator(
    "attention_packed(Tensor qkv, bool causal, float scale) -> (Tensor, Tensor)",
    lambda qkv, causal, scale: _packed_outputs(qkv),
    lambda ops, ctx, do: (ops.attention_packed_backward(do, *ctx.saved_tensors, *ctx.options), None, None),
    _packed_setup,
)
def attention_packed(qkv, causal, scale):
    expect("attention_packed", "qkv[B,S,3,H,D]", qkv)
    qkv = qkv.contiguous()
    o, lse = _packed_outputs(qkv)
    q, k, v = qkv.unbind(2)
    _attention(_packed_problem(qkv.shape, qkv.dtype, causal, scale, False), q, k, v, None, None, o, lse)
    return o, lse


@operator(
    "attention_packed_backward(Tensor do, Tensor qkv, Tensor o, Tensor lse, bool causal, float scale) -> Tensor",
    lambda do, qkv, o, lse, causal, scale: torch.empty_like(qkv, memory_format=torch.contiguous_format),
)
def attention_packed_backward(do, qkv, o, lse, causal, scale):
    qkv = qkv.contiguous()
    dqkv = torch.empty_like(qkv)
    desc = _packed_problem(qkv.shape, qkv.dtype, causal, scale, True)
    if has_kernel("attention", desc, qkv.device):
        parts = *qkv.unbind(2), None, None, o, lse, do.contiguous(), *dqkv.unbind(2)
        _attention_backward(desc, *parts, None, None)
        return dqkv
    do, o = do.transpose(1, 2), o.transpose(1, 2)
    _write_gradients((*_parts(dqkv), None, None), do, *_parts(qkv), None, None, o, lse, causal, scale, 0, 0, 0.0)
    return dqkv


# Sequences of any lengths, one behind the other


def _ragged_problem(q, k, v, o, starts, longest, causal, scale, left, right, softcap, sinks, backward):
    strides = (q.stride(), k.stride(), v.stride(), o.stride())
    options = (causal, scale, left, right, softcap, sinks is not None, backward)
    return _problems.attention_ragged(starts.shape[0] - 1, longest, q.shape, k.shape, v.shape, strides, q.dtype, *options)


def _ragged_setup(ctx, inputs, output):
    q, k, v, starts_q, starts_kv, sinks, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, starts_q, starts_kv, sinks, *output)


def _ragged_gradient(ops, ctx, do):
    *gradients, dsinks = ops.attention_ragged_backward(do, *ctx.saved_tensors, *ctx.options)
    return *gradients, None, None, dsinks if ctx.needs_input_grad[5] else None, *(None,) * 7


_RAGGED = "Tensor q, Tensor k, Tensor v, Tensor starts_q, Tensor starts_kv, Tensor? sinks"


@operator(
    f"attention_ragged({_RAGGED}, int longest_q, int longest_kv, {_OPTIONS}) -> (Tensor, Tensor)",
    lambda q, k, v, *rest: _outputs(_by_rows(q), v),
    _ragged_gradient,
    _ragged_setup,
)
def attention_ragged(q, k, v, starts_q, starts_kv, sinks, longest_q, longest_kv, *options):
    inputs = "q[H,tokens,D] k[G,keys,D] v[G,keys,E] starts_q~[sequences+1] starts_kv~[sequences+1] sinks~[H]"
    expect("attention_ragged", inputs, q, k, v, starts_q, starts_kv, sinks)
    q, k, v = _by_rows(q), _by_rows(k), _by_rows(v)
    o, lse = _outputs(q, v)
    desc = _ragged_problem(q, k, v, o, starts_q, (longest_q, longest_kv), *options, sinks, False)
    _attention_ragged(desc, q, k, v, *dense(sinks, starts_q, starts_kv), o, lse)
    return o, lse


@operator(
    f"attention_ragged_backward(Tensor do, {_RAGGED}, Tensor o, Tensor lse, int longest_q, int longest_kv, {_OPTIONS})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    lambda do, q, k, v, starts_q, starts_kv, sinks, *rest: _gradients_like(*map(_by_rows, (q, k, v)), sinks)[:4],
)
def attention_ragged_backward(do, q, k, v, starts_q, starts_kv, sinks, o, lse, longest_q, longest_kv, *options):
    q, k, v = _by_rows(q), _by_rows(k), _by_rows(v)
    *gradients, dsinks, _ = _gradients_like(q, k, v, sinks)
    desc = _ragged_problem(q, k, v, o, starts_q, (longest_q, longest_kv), *options, sinks, True)
    inputs = q, k, v, *dense(sinks, starts_q, starts_kv), o, lse, _strided_like(do, o)
    _attention_ragged_backward(desc, *inputs, *gradients, _written(dsinks))
    return *gradients, dsinks


# New tokens against a cache


_lengths: dict = {}  # where all sequences have all keys, by stream: the layers of a model share them


def _all_of(batch, kv, device):
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.full((batch,), kv, dtype=torch.int32, device=device)
    key = (batch, kv, device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None)
    if key not in _lengths:
        if len(_lengths) == 64:
            _lengths.clear()
        _lengths[key] = torch.full((batch,), kv, dtype=torch.int32, device=device)
    return _lengths[key]


_DECODE = "Tensor? lengths, Tensor? table, Tensor? sinks, float scale, int left, float softcap, int dv"


def _decode_like(q, k, v, *rest):
    """Memory for the result. In a latent cache, without v, values are the first dv elements of keys."""
    return _outputs(_by_rows(q), k[..., : rest[-1]] if v is None else v)[0]


@operator(f"attention_decode(Tensor q, Tensor k, Tensor? v, {_DECODE}) -> Tensor", _decode_like)
def attention_decode(q, k, v, *rest):
    return _decode(q, _by_rows(k), v if v is None else _by_rows(v), None, None, *rest)


@operator(
    f"attention_decode_append(Tensor q, Tensor(a!) k, Tensor(b!)? v, Tensor k_new, Tensor? v_new, {_DECODE}) -> Tensor",
    _decode_like,
)
def attention_decode_append(q, k, v, k_new, v_new, *rest):
    """New keys and values are stored in the cache."""
    if any(x is not None and x.stride(-1) != 1 for x in (k, v)):
        raise ValueError("attention_decode: elements of a key or value of the cache are apart, where new ones would be stored")
    return _decode(q, k, v, _by_rows(k_new), v_new if v_new is None else _by_rows(v_new), *rest)


_DECODE_SHAPES = [
    f"q[B,H,T,D] k~[{cache},D] v~[{cache},E] lengths~[B] table~[B,M] sinks~[H] k_new~[B,G,T,D] v_new~[B,G,T,E]"
    for cache in ("B,G,K", "pages,G,page")
]


def _decode(q, k, v, k_new, v_new, lengths, table, sinks, scale, left, softcap, dv):
    expect("attention_decode", _DECODE_SHAPES[table is not None], q, k, v, lengths, table, sinks, k_new, v_new)
    q, o = _by_rows(q), _decode_like(q, k, v, dv)
    kv = k.shape[2] * (1 if table is None else table.shape[1])
    lengths = _all_of(q.shape[0], kv, q.device) if lengths is None else lengths
    strides, new_strides = (
        tuple(x if x is None else x.stride() for x in tensors) for tensors in ((q, k, v, o), (k_new, v_new))
    )
    pages = None if table is None else k.shape[0]
    options = (scale, left, softcap, sinks is not None, None if k_new is None else new_strides, v is None)
    desc = _problems.attention_decode(q.shape, k.shape[1:3], kv, o.shape[3], pages, strides, q.dtype, *options)
    into = (None, None) if k_new is None else (k, v)
    _attention_decode(desc, q, k, v, *dense(lengths, table, sinks), o, k_new, v_new, *into)
    return o
