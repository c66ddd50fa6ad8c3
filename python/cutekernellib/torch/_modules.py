"""Modules with other forward functions: each looks at its input and calls its class's own where it is not taken."""

import copy
import copyreg
import functools
import inspect
import sys

import torch

import cutekernellib.torch as _torch

from . import _registry, _structures
from ._attention import has_gradient
from ._functions import counting_model
from ._structures import TURNED, activation_of, has, is_idle, kind, parts_of_mlp, whole
from ._taken import FLOATS, fit, multiplies, takes

# Norms, activations and layers


def _layer_norm(self, x):
    try:
        weight, bias = self._parameters["weight"], self._parameters["bias"]  # as self.weight without its search
    except KeyError:  # they are made anew for every call
        weight, bias = self.weight, self.bias
    run = fit(x, weight, bias) and _registry.way("layer_norm", x, weight, bias, transformed=False)
    if run and self.normalized_shape == x.shape[-1:]:
        return run(x, weight, bias, self.eps)[0]
    return _torch._norm(run, x, self.normalized_shape, (weight, bias), self.eps) if run else self.ckl_forward(x)


def _rms_norm(self, x):
    weight, own = self.weight, vars(self)
    run = fit(x, weight) and _registry.way("rms_norm", x, weight, transformed=False)
    if not run:
        return self.ckl_forward(x)
    eps = own["variance_epsilon"] if "variance_epsilon" in own else self.eps
    return _torch._norm(run, x, own.get("normalized_shape", x.shape[-1:]), (weight,), eps)


def _group_norm(self, x):
    weight, bias = self.weight, self.bias
    run = fit(x, weight, bias) and _registry.way("group_norm", x, weight, bias, transformed=False)
    return run(x, self.num_groups, weight, bias, self.eps)[0] if run else self.ckl_forward(x)


def _activation(self, x):
    run = not vars(self).get("inplace") and fit(x) and _registry.way("unary", x, transformed=False)
    return run(x, _UNARY[activation_of(self)]) if run else self.ckl_forward(x)


_UNARY = {"gelu": "gelu_tanh", "gelu_erf": "gelu", "silu": "silu"}  # gemm's names, and those of elements


def _softmax(self, x):
    return _torch.softmax(x, self.dim) if takes(x) and self.dim is not None else self.ckl_forward(x)


def _linear(self, x):
    weight, bias = self.weight, self.bias
    if multiplies(x, weight, bias):
        return _torch.linear(x, weight, bias, turned=TURNED[kind(self)])
    return self.ckl_forward(x)


def _conv2d(self, x):
    """Of any types but f32, whose products are tensor cores' in torch if so told."""
    weight, bias = self.weight, self.bias
    if takes(x, weight, bias) and x.dtype != torch.float32 and x.dim() == 4:
        return _torch.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
    return self.ckl_forward(x)


def _patch_embed(self, x):
    """Windows that lie side by side are the rows of a matrix: the convolution is a product, and its result where the model wants it."""
    weight, bias = self.proj.weight, self.proj.bias
    fits = takes(x, weight, bias) and x.dtype != torch.float32 and not torch.is_autocast_enabled(x.device.type)
    if not (fits and self.flatten and not self.dynamic_img_pad and tuple(x.shape[2:]) == self.img_size):
        return self.ckl_forward(x)
    _, c, p, q = weight.shape
    n, h, w = x.shape[0], x.shape[2] // p, x.shape[3] // q
    windows = x[:, :, : h * p, : w * q].unflatten(3, (w, q)).unflatten(2, (h, p)).permute(0, 2, 4, 1, 3, 5)
    return self.norm(_torch.linear(windows.reshape(n, h * w, c * p * q), weight.flatten(1), bias))


# MLPs and blocks, as one operator where they are what its description says


def _gated_mlp(self, x):
    gate, up, down = self.gate_proj, self.up_proj, self.down_proj
    if multiplies(x, gate.weight, None) and gate.bias is up.bias is down.bias is None:
        return _torch.gated_mlp(x, gate.weight, up.weight, down.weight)
    g, u = gate(x), up(x)
    return down(_torch.silu_mul(g, u) if takes(g, u) else self.act_fn(g) * u)


def _mlp(self, x):
    up, act, down, others = parts_of_mlp(self)
    if multiplies(x, up.weight, up.bias) and all(map(is_idle, others)):
        return _torch.mlp(x, up.weight, up.bias, down.weight, down.bias, activation_of(act), turned=TURNED[kind(up)])
    return self.ckl_forward(x)


def _needs_gradient(x, tensors):
    return torch.is_grad_enabled() and (x.requires_grad or any([t is not None and t.requires_grad for t in tensors]))


def _attends(attn, x, tensors):
    """Attention's gradient, where it is needed: other GPUs than Hopper have none. There torch computes it, between parts of a block."""
    return not _needs_gradient(x, tensors) or has_gradient(attn.head_dim, x.dtype, x.device.index)


def _run(name, tensors, *options):
    return _registry.way(name, *tensors)(*tensors, *options)


def _convnext_block(self, x):
    """What the block multiplies with gamma comes out of a product: gamma is put into the weights of that one."""
    found = whole(self, _structures.convnext)
    tensors = found and found.tensors(x.dtype)
    if tensors and multiplies(x, tensors[4], tensors[5], axis=1):
        return _run("conv_block", (x, *tensors), *found.options)[0]
    return self.ckl_forward(x)


def _vit_block(self, x, attn_mask=None, is_causal=False):
    found = (
        whole(self, _structures.vit)
        if attn_mask is None and not is_causal and getattr(self.attn, "fused_attn", False)
        else None
    )
    tensors = found and found.tensors(x.dtype)
    if tensors and x.dim() == 3 and multiplies(x, tensors[8], tensors[9]) and _attends(self.attn, x, tensors):
        return _run("block", (x, *tensors), *found.options)[0]
    return self.ckl_forward(x, attn_mask, is_causal)


_IGNORED = {"position_ids", "cache_position", "use_cache"}  # by attention of transformers with neither a cache nor a mask


def _is_alone(attn, options):
    """Does attention of transformers do what the operator does: all tokens at once, without a cache, a mask or dropout?"""
    for name, value in options.items():
        if value is not None and name not in _IGNORED:
            return False
    return attn.config._attn_implementation == "sdpa"


def _gpt2_block(
    self,
    hidden_states,
    cache=None,
    attention_mask=None,
    encoder_hidden_states=None,
    encoder_attention_mask=None,
    use_cache=False,
    *,
    past_key_values=None,
    **options,
):
    attn, x = self.attn, hidden_states
    cache = past_key_values if cache is None else cache  # two names of it, by the version of transformers
    found = whole(self, _structures.gpt2) if encoder_hidden_states is None and x.dim() == 3 else None
    tensors = found and found.tensors(x.dtype)
    if tensors and cache is attention_mask is None and _is_alone(attn, options):
        if multiplies(x, tensors[8], tensors[9]) and _attends(attn, x, tensors):
            return _run("block", (x, *tensors), *found.options)[0]
    if not tensors or x.dtype == torch.float32 or not takes(x):
        encoder = encoder_hidden_states, encoder_attention_mask
        return self.ckl_forward(x, cache, attention_mask, *encoder, use_cache, **options)
    attended, _ = attn(self.ln_1(x), cache, attention_mask, use_cache=use_cache, **options)
    return _run("block_tail", (attended, x, *tensors[6:]), *found.options[4:])[0]


class _Projected:
    """A module of attention whose projections were made, and whose last one is left to others."""

    def __init__(self, attn, q, k, v):
        self.attn = attn
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = lambda x: q, lambda x: k, lambda x: v, lambda o: o

    def __getattr__(self, name):
        return getattr(self.attn, name)


def _decoder_layer(self, hidden_states, *args, **options):
    x, attn, tables = hidden_states, self.self_attn, options.get("position_embeddings")
    found = whole(self, _structures.decoder) if tables and not args else None
    tensors = found and found.tensors(x.dtype)
    if not tensors or not _rotates(x, *tables, found.options[0]):
        return self.ckl_forward(x, *args, **options)
    head_dim, scale, *eps = found.options
    others = {name: value for name, value in options.items() if name != "position_embeddings"}
    if _is_alone(attn, others) and not (attn.training and attn.attention_dropout):
        if multiplies(x, tensors[6], None) and _attends(attn, x, tensors):
            return _run("decoder_layer", (x, *tensors, *tables), head_dim, scale, *eps)[0]
    if not takes(x) or not hasattr(sys.modules[type(attn).__module__].apply_rotary_pos_emb, "ckl_original"):
        return self.ckl_forward(x, **options)
    norm1, q, k, v, *behind = tensors
    projected = _Projected(attn, *_run("decoder_head", (x, norm1, q, k, v, *tables), head_dim, eps[0])[:3])
    attended, _ = type(attn).forward(projected, x, position_embeddings=(None, None), **others)
    return _run("decoder_tail", (attended, x, *behind), eps[1])[0]


def _rotates(x, cos, sin, head_dim):
    """Tables of whole heads and 16 bits, which get no gradient?"""
    if x.dtype == torch.float32 or not x.dtype == cos.dtype == sin.dtype or not x.dim() == cos.dim() == 3:
        return False
    return cos.shape[-1] == head_dim and not cos.requires_grad


# Which module gets which

# By the name of the class (kind()): torch's, and what models of others have in their place.
_FORWARDS = {
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    "Softmax": _softmax,
    "Linear": _linear,
    "Conv1D": _linear,
    "Conv2d": _conv2d,
    "RMSNorm": _rms_norm,
    **{f"{model}RMSNorm": _rms_norm for model in ("Llama", "Mistral", "Qwen2", "Qwen3")},
    **{f"{model}DecoderLayer": _decoder_layer for model in ("Llama", "Mistral", "Qwen2", "Qwen3")},
    **dict.fromkeys(_structures.ACTIVATIONS, _activation),
}

NOT_TAKEN = {
    "BatchNorm2d": "there is no batch norm",
    "Conv1d": "convolutions are left to torch",
    "Embedding": "there is no lookup",
    "MultiheadAttention": "it calls its parts by itself; scaled_dot_product_attention is replaced where it calls that",
    "Dropout": "there are no random numbers",
    "GPT2Block": "it or its attention has other arguments than those known here",
}


def _is_gpt2_block(module):
    """Of the arguments that it has had since it returns a tensor, and an attention with the cache at the same place."""
    return has(module, "GPT2Block", "ln_1", "attn", "ln_2", "mlp") and (
        _names_of_arguments(module) == list(inspect.signature(_gpt2_block).parameters)[1:7]
        and _names_of_arguments(module.attn)[:3] == ["hidden_states", "cache", "attention_mask"]
    )


def _names_of_arguments(module):
    """Of its forward, without **kwargs; a cache was past_key_values in transformers before it was cache."""
    names = list(inspect.signature(type(module).forward).parameters)
    return ["cache" if name == "past_key_values" else name for name in names if name not in ("self", "kwargs")]


_STRUCTURES = (
    (_structures.is_gated_mlp, _gated_mlp),
    (parts_of_mlp, _mlp),
    (lambda m: has(m, "Block", "norm1", "attn", "ls1", "drop_path1", "norm2", "mlp", "ls2", "drop_path2"), _vit_block),
    (_is_gpt2_block, _gpt2_block),
    (_structures.makes_mask, counting_model),
    (_structures.is_patch_embed, _patch_embed),
    (lambda m: has(m, "ConvNeXtBlock", *_structures.CONVNEXT), _convnext_block),
)
# They take over what is inside of their modules.
WHOLE = {_gated_mlp, _mlp, _patch_embed, _vit_block, _gpt2_block, _decoder_layer, _convnext_block}


def forward_of(module):
    if hasattr(module, "ckl_forward"):
        return None  # another accelerate() did it
    for has_structure, forward in _STRUCTURES:
        if has_structure(module):
            return forward
    return _FORWARDS.get(kind(module))


def why_not(module, forward):
    """The reason why a module that an operator might take keeps its own forward; None where it takes it, or there is nothing to take."""
    name = type(module).__name__
    if not forward and name in _FORWARDS:
        return "a class of this name that is not torch's"
    if not forward:
        return None if name == "Dropout" and module.p == 0 else NOT_TAKEN.get(name)
    if name == "GroupNorm" and not module.affine:
        return "GroupNorm without weight and bias"
    if name == "Conv2d" and not _structures.has_zeros_around(module):
        return "only convolutions with numbers of zeros around are taken"
    if name in TURNED and all(n % 8 == 0 for n in module.weight.shape):
        return "products of rows of whole 16 bytes are left to torch where there is nothing to fuse"
    if getattr(module, "weight", None) is not None and module.weight.dtype not in FLOATS:
        return f"the weight is of {module.weight.dtype}"
    return None


# The classes that modules get


def _counted(forward):
    """A module's own forward, which counts its calls in eager mode."""

    @functools.wraps(forward)
    def passed_on(self, *args, **options):
        if not torch.compiler.is_compiling():
            self.ckl_passed_on = getattr(self, "ckl_passed_on", 0) + 1
        return forward(self, *args, **options)

    return passed_on


def _reduced(self, protocol):
    """Pickled as a module of its own class, which every process has."""
    _, _, state, *rest = super(type(self), self).__reduce_ex__(protocol)
    state = _without_whole(state) if isinstance(state, dict) else state
    return copyreg._reconstructor, (type(self).__base__, object, None), state, *rest


def _deep_copied(self, memo):
    """Copied as what it is."""
    copied = memo[id(self)] = object.__new__(type(self))
    vars(copied).update(copy.deepcopy(_without_whole(vars(self)), memo))
    return copied


def _without_whole(members):
    return {name: value for name, value in members.items() if name != "ckl_whole"}


@functools.lru_cache(None)
def subclass(cls, forward):
    """A whole model keeps its class's name, by which it is saved."""
    is_model = forward is counting_model
    name = cls.__name__ if is_model else "Ckl" + cls.__name__
    own = cls.forward if is_model else _counted(cls.forward)
    members = {
        "forward": forward,
        "ckl_forward": own,
        "__module__": cls.__module__,
        "__qualname__": name,
        "__reduce_ex__": _reduced,
    }
    return type(name, (cls,), members if hasattr(cls, "__deepcopy__") else members | {"__deepcopy__": _deep_copied})
