"""accelerate(): modules of a model, and functions of torch.nn.functional, replaced by ours where they take the problem."""

import collections
import functools
import sys

import torch
import torch.nn.functional as F

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_host = False  # are tensors of the host taken, too?


def _ours():
    from cutekernellib import torch as ours

    return ours


def _takes(x, *others):
    """Are these tensors on a GPU, of one type that the operators have?"""
    return (x.is_cuda or _host) and x.dtype in _FLOATS and all(o is None or o.dtype == x.dtype for o in others)


# Modules: the class of a module becomes a subclass of its own with another forward().


def _layer_norm(self, x):
    if _takes(x, self.weight, self.bias) and (self.bias is None or self.weight is not None):
        return _ours().layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
    return self.ckl_forward(x)


def _rms_norm(self, x):
    if _takes(x, self.weight):
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        return _ours().rms_norm(x, (x.shape[-1],), self.weight, eps)
    return self.ckl_forward(x)


def _group_norm(self, x):
    if _takes(x, self.weight, self.bias) and self.affine:
        return _ours().group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
    return self.ckl_forward(x)


def _gelu(self, x):
    return _ours().gelu(x, getattr(self, "approximate", "none")) if _takes(x) else self.ckl_forward(x)


def _gelu_tanh(self, x):
    return _ours().gelu(x, "tanh") if _takes(x) else self.ckl_forward(x)


def _silu(self, x):
    return _ours().silu(x) if _takes(x) and not getattr(self, "inplace", False) else self.ckl_forward(x)


def _gated_mlp(self, x):
    gate, up = self.gate_proj(x), self.up_proj(x)
    return self.down_proj(_ours().silu_mul(gate, up) if _takes(gate, up) else self.act_fn(gate) * up)


def _decoder_layer(self, hidden_states, *args, **options):
    norm = self.post_attention_layernorm
    if args or not _takes(hidden_states, norm.weight):
        return self.ckl_forward(hidden_states, *args, **options)
    attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)
    normed, residual = _ours().add_rms_norm(attended, hidden_states, norm.weight, norm.variance_epsilon)
    return residual + self.mlp(normed)


def _softmax(self, x):
    return _ours().softmax(x, self.dim) if _takes(x) and self.dim is not None else self.ckl_forward(x)


def _is_silu(module):
    return type(module).__name__ in ("SiLU", "SiLUActivation", "CklSiLU", "CklSiLUActivation")


def _is_gated_mlp(module):
    names = {name for name, _ in module.named_children()}
    return names == {"gate_proj", "up_proj", "down_proj", "act_fn"} and _is_silu(module.act_fn)


# By the name of the class: torch's, and what models of others have in their place.
_FORWARDS = {
    "LayerNorm": _layer_norm,
    "RMSNorm": _rms_norm,
    "LlamaRMSNorm": _rms_norm,
    "MistralRMSNorm": _rms_norm,
    "Qwen2RMSNorm": _rms_norm,
    "Qwen3RMSNorm": _rms_norm,
    "LlamaDecoderLayer": _decoder_layer,
    "MistralDecoderLayer": _decoder_layer,
    "Qwen2DecoderLayer": _decoder_layer,
    "Qwen3DecoderLayer": _decoder_layer,
    "GroupNorm": _group_norm,
    "GELU": _gelu,
    "GELUActivation": _gelu,
    "NewGELUActivation": _gelu_tanh,
    "PytorchGELUTanh": _gelu_tanh,
    "GELUTanh": _gelu_tanh,
    "SiLU": _silu,
    "SiLUActivation": _silu,
    "Softmax": _softmax,
}

_NOT_TAKEN = {
    "BatchNorm2d": "there is no batch norm",
    "Conv2d": "convolutions are left to torch",
    "Conv1d": "convolutions are left to torch",
    "Embedding": "there is no lookup",
    "Linear": "products are left to torch, and their gradients with them",
    "MultiheadAttention": "it calls its parts by itself; scaled_dot_product_attention is replaced where it calls that",
    "Dropout": "there are no random numbers",
}


def _forward_of(module):
    return _gated_mlp if _is_gated_mlp(module) else _FORWARDS.get(type(module).__name__)


def _why_not(module):
    """The reason why a module with a forward that an operator might take keeps its own; None where it takes it."""
    if type(module).__name__ == "GroupNorm" and not module.affine:
        return "GroupNorm without weight and bias"
    if getattr(module, "weight", None) is not None and module.weight.dtype not in _FLOATS:
        return f"the weight is of {module.weight.dtype}"
    return None


@functools.lru_cache(None)
def _subclass(cls, forward):
    return type("Ckl" + cls.__name__, (cls,), {"forward": forward, "ckl_forward": cls.forward, "__module__": cls.__module__})


# Functions: torch's names, ours where they take the arguments.


def _sdpa(original, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    takes = (
        _takes(query, key, value)
        and query.dtype != torch.float32
        and query.dim() == 4
        and not dropout_p
        and (query.shape[1] == key.shape[1] or enable_gqa)
        and not (is_causal and query.shape[2] != key.shape[2])
        and query.shape[3] <= 256
        and (attn_mask is None or attn_mask.dtype in (torch.bool, query.dtype))
        and (attn_mask is None or attn_mask.shape[-1] == key.shape[2])
    )
    run = _ours().scaled_dot_product_attention if takes else original
    options = dict(attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return run(query, key, value, **options)


def _cross_entropy(original, input, target, *args, **options):
    plain = not args and set(options) <= {"ignore_index", "reduction"} and options.get("reduction", "mean") in ("mean", "none")
    if plain and _takes(input) and input.dim() == 2 and target.dtype in (torch.int64, torch.int32):
        return _ours().cross_entropy(input, target, **options)
    return original(input, target, *args, **options)


def _functional_softmax(original, input, dim=None, _stacklevel=3, dtype=None):
    if dim is not None and _takes(input) and dtype in (None, input.dtype):
        return _ours().softmax(input, dim)
    return original(input, dim, _stacklevel, dtype)


def _functional_log_softmax(original, input, dim=None, _stacklevel=3, dtype=None):
    if dim is not None and _takes(input) and dtype in (None, input.dtype):
        return _ours().log_softmax(input, dim)
    return original(input, dim, _stacklevel, dtype)


def _functional_layer_norm(original, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if _takes(input, weight, bias) and (bias is None or weight is not None):
        return _ours().layer_norm(input, normalized_shape, weight, bias, eps)
    return original(input, normalized_shape, weight, bias, eps)


_FUNCTIONS = {
    "scaled_dot_product_attention": _sdpa,
    "cross_entropy": _cross_entropy,
    "softmax": _functional_softmax,
    "log_softmax": _functional_log_softmax,
    "layer_norm": _functional_layer_norm,
}


# Functions of the files that models come from.


def _rotary(original, q, k, cos, sin, *args, unsqueeze_dim=1):
    if not args and _takes(q, k, cos, sin) and not cos.requires_grad:
        return _ours().apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim)
    return original(q, k, cos, sin, *args, unsqueeze_dim=unsqueeze_dim)


def _rotates_halves(function):
    """Does it do what ours does? Others of this name pair neighbours, or have other arguments."""
    q, cos, sin = torch.arange(8.0).view(1, 1, 2, 4), torch.arange(8.0).view(1, 2, 4) + 3, torch.arange(8.0).view(1, 2, 4) - 5
    try:
        got = function(q, q + 1, cos, sin)
    except Exception:  # of whatever it does with them
        return False
    wanted = tuple(x * cos + torch.cat((-x[..., 2:], x[..., :2]), -1) * sin for x in (q, q + 1))
    return all(torch.equal(g, w) for g, w in zip(got, wanted))


class Report:
    """What accelerate() did: `swapped` and `left` by name, and undo(). Printing it tells both."""

    def __init__(self):
        self.swapped = {}  # name of a module or function: its class
        self.left = {}  # name of a module: why
        self._undo = []

    def undo(self):
        """The model and torch's functions as they were."""
        while self._undo:
            self._undo.pop()()

    def __str__(self):
        swapped = collections.Counter(self.swapped.values())
        left = collections.Counter(self.left.values())
        lines = [f"swapped {sum(swapped.values())}:"] + [f"    {n:5} {what}" for what, n in swapped.most_common()]
        lines += [f"left {sum(left.values())}:"] + [f"    {n:5} {why}" for why, n in left.most_common()]
        return "\n".join(lines)


def _swap_module(report, name, module, forward):
    was = type(module)
    module.__class__ = _subclass(was, forward)
    report.swapped[name] = was.__name__
    report._undo.append(lambda: setattr(module, "__class__", was))


def _swap_function(report, file, name, replacement):
    original = getattr(file, name)
    if getattr(original, "ckl_original", None):
        return  # another model's accelerate() did it

    @functools.wraps(original)
    def replaced(*args, **options):
        return replacement(original, *args, **options)

    replaced.ckl_original = original
    setattr(file, name, replaced)
    report.swapped[f"{file.__name__}.{name}"] = f"{file.__name__}.{name}"
    report._undo.append(lambda: setattr(file, name, original))


def accelerate(model, *, functions=True, host=False, quiet=False):
    """Replaces modules of a model, in place, by ours where an operator takes them, and prints what it replaced and what not.

    Each replaced module looks at its input and calls its own forward() where it is not taken: another type, another device.
    Parameters, state_dict() and isinstance() stay as they are. functions: also those of torch.nn.functional that models call,
    such as scaled_dot_product_attention and cross_entropy, for the whole process. host: take tensors of the host, too, which run
    on the emulated GPU: for tests. Returns a Report; its undo() puts everything back.
    """
    global _host
    was_host, _host = _host, host
    report = Report()
    report._undo.append(lambda: globals().__setitem__("_host", was_host))
    for name, module in model.named_modules():
        forward, kind = _forward_of(module), type(module).__name__
        why = _why_not(module) if forward else _NOT_TAKEN.get(kind)
        if forward and not why:
            _swap_module(report, name, module, forward)
        elif why:
            report.left[name] = f"{kind}: {why}"
    for name, replacement in _FUNCTIONS.items() if functions else ():
        _swap_function(report, F, name, replacement)
    for file in {sys.modules[type(module).__module__] for module in model.modules()} if functions else ():
        if _rotates_halves(getattr(file, "apply_rotary_pos_emb", None)):
            _swap_function(report, file, "apply_rotary_pos_emb", _rotary)
    if not quiet:
        print(report)
    return report
