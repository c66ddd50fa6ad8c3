"""Functions in the place of torch's and transformers': ours where they take the arguments. Each has the original as its first."""

import threading

import torch

import cutekernellib.torch as _torch

from ._taken import takes

_GROUP = 16  # query heads of a key head, at most, in the models meant below


def _is_of_one_token(query, key, mask):
    """A single query; or a group of heads' that transformers has packed into one head, under a mask of one row."""
    queries = query.shape[-2]
    packed = mask is not None and mask.dim() > 1 and mask.shape[-2] == 1 and queries < key.shape[-2]
    return queries == 1 or packed and queries <= _GROUP


def _sdpa(original, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """A token against a cache is left to torch: with every one there is a key more, which would be a plan more."""
    taken = (
        takes(query, key, value)
        and query.dim() == 4
        and not _is_of_one_token(query, key, attn_mask)
        and query.dtype != torch.float32
        and not dropout_p
        and (query.shape[1] == key.shape[1] or enable_gqa)
        and query.shape[0] == key.shape[0]  # else they are broadcast
        and key.shape[:3] == value.shape[:3]
        and not (is_causal and query.shape[2] != key.shape[2])
        and query.shape[3] <= 256
        and (attn_mask is None or attn_mask.dtype in (torch.bool, query.dtype))
        and (attn_mask is None or attn_mask.shape[-1] == key.shape[2])
    )
    run = _torch.scaled_dot_product_attention if taken else original
    return run(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def _cross_entropy(
    original,
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    numbers = input.dim() == 2 and target.dtype in (torch.int64, torch.int32)
    plain = size_average is None and reduce is None and reduction in ("mean", "sum", "none") and 0 <= label_smoothing <= 1
    if numbers and plain and takes(input, weight) and not (weight is not None and weight.requires_grad):
        options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
        return _torch.cross_entropy(input, target, weight, **options)
    return original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)


def _softmax(original, input, dim=None, _stacklevel=3, dtype=None):
    if dim is not None and takes(input) and dtype in (None, input.dtype):
        return _torch.softmax(input, dim)
    return original(input, dim, _stacklevel, dtype)


def _log_softmax(original, input, dim=None, _stacklevel=3, dtype=None):
    if dim is not None and takes(input) and dtype in (None, input.dtype):
        return _torch.log_softmax(input, dim)
    return original(input, dim, _stacklevel, dtype)


def _layer_norm(original, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if takes(input, weight, bias) and (bias is None or weight is not None):
        return _torch.layer_norm(input, normalized_shape, weight, bias, eps)
    return original(input, normalized_shape, weight, bias, eps)


def _rms_norm(original, input, normalized_shape, weight=None, eps=None):
    return (_torch.rms_norm if takes(input, weight) else original)(input, normalized_shape, weight, eps)


def _group_norm(original, input, num_groups, weight=None, bias=None, eps=1e-5):
    taken = (weight is None) == (bias is None) and takes(input, weight, bias)
    return (_torch.group_norm if taken else original)(input, num_groups, weight, bias, eps)


def _gelu(original, input, *, approximate="none"):
    return _torch.gelu(input, approximate) if takes(input) else original(input, approximate=approximate)


def _silu(original, input, inplace=False):
    return _torch.silu(input) if takes(input) and not inplace else original(input, inplace)


FUNCTIONS = {
    "scaled_dot_product_attention": _sdpa,
    "cross_entropy": _cross_entropy,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "gelu": _gelu,
    "silu": _silu,
}


# Functions of the files that models come from.

_positions = threading.local()  # are_counted: the model that runs on this thread was given none, and counts tokens


def counting_model(self, *args, **options):
    """The forward of a model of transformers that makes its own mask."""
    if len(args) > 1 or options.get("position_ids") is not None or torch.compiler.is_compiling():
        return self.ckl_forward(*args, **options)
    _positions.are_counted = True
    try:
        return self.ckl_forward(*args, **options)
    finally:
        _positions.are_counted = False


_MASK = {"config", "inputs_embeds", "attention_mask", "position_ids"}
_CACHE = {"past_key_values", "cache"}  # its name, by the version of transformers


def causal_mask(original, *args, **options):
    """None, as scaled_dot_product_attention has a causal mask of its own, for one sequence of tokens that the model counted.

    The original looks at the positions, so the thread waits for the GPU, and in a CUDA graph it makes the mask.
    """
    counted = getattr(_positions, "are_counted", False) and not args and options.keys() - _CACHE == _MASK
    if counted and all(options.get(name) is None for name in ("attention_mask", *_CACHE)):
        config = options["config"]
        if config._attn_implementation == "sdpa" and getattr(config, "is_causal", True):
            return None
    return original(*args, **options)


def rotary(original, q, k, cos, sin, *args, unsqueeze_dim=1):
    if cos is None:  # they are rotated, by decoder_head
        return q, k
    taken = not args and unsqueeze_dim in (1, 2) and (q.dim(), cos.dim()) == (4, 3)
    if taken and cos.shape[-1] == q.shape[-1] and takes(q, k, cos, sin) and not cos.requires_grad:
        return _torch.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim)
    return original(q, k, cos, sin, *args, unsqueeze_dim=unsqueeze_dim)


def rotates_halves(function):
    """Does it do what ours does? Others of this name pair neighbours, or have other arguments."""
    q, cos, sin = torch.arange(8.0).view(1, 1, 2, 4), torch.arange(8.0).view(1, 2, 4) + 3, torch.arange(8.0).view(1, 2, 4) - 5
    try:
        got = function(q, q + 1, cos, sin)
    except Exception:  # of whatever it does with them
        return False
    wanted = tuple(x * cos + torch.cat((-x[..., 2:], x[..., :2]), -1) * sin for x in (q, q + 1))
    return all(torch.equal(g, w) for g, w in zip(got, wanted))
