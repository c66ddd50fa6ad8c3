"""Modules with other forward functions: each looks at its input and calls its class's own where it is not taken."""

import copy
import copyreg
import functools
import inspect
import operator
import sys

import torch

import cutekernellib.torch as _torch

from ._attention import has_gradient
from ._functions import counting_model
from ._taken import FLOATS, multiplies, takes


_LIBRARIES = ("torch.nn.modules.", "timm.", "transformers.")


_names: dict = {}  # of classes


def _kind(module):
    """The name of its class, replaced or not, if that is of a library known here: others of the name may do something else."""
    return _name_of(type(module))


@torch.compiler.assume_constant_result  # a trace need not look inside
def _name_of(cls):
    name = _names.get(cls)
    if name is None:
        name = _names[cls] = cls.__name__.removeprefix("Ckl") if cls.__module__.startswith(_LIBRARIES) else ""
    return name


def _layer_norm(self, x):
    if takes(x, self.weight, self.bias) and (self.bias is None or self.weight is not None):
        return _torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
    return self.ckl_forward(x)


def _rms_norm(self, x):
    if takes(x, self.weight):
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        return _torch.rms_norm(x, getattr(self, "normalized_shape", x.shape[-1:]), self.weight, eps)
    return self.ckl_forward(x)


def _group_norm(self, x):
    if takes(x, self.weight, self.bias):
        return _torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
    return self.ckl_forward(x)


def _gelu(self, x):
    return _torch.gelu(x, getattr(self, "approximate", "none")) if takes(x) else self.ckl_forward(x)


def _gelu_tanh(self, x):
    return _torch.gelu(x, "tanh") if takes(x) else self.ckl_forward(x)


def _silu(self, x):
    return _torch.silu(x) if takes(x) and not getattr(self, "inplace", False) else self.ckl_forward(x)


def _gated_mlp(self, x, residual=None):
    gate, up, down = self.gate_proj, self.up_proj, self.down_proj
    if multiplies(x, gate.weight, None) and gate.bias is up.bias is down.bias is None:
        return _torch.gated_mlp(x, gate.weight, up.weight, down.weight, residual=residual)
    g, u = gate(x), up(x)
    y = down(_torch.silu_mul(g, u) if takes(g, u) else self.act_fn(g) * u)
    return y if residual is None else residual + y


class _Whole:
    """What was found out about a block that is taken as one operator. Each call asks only whether it still holds."""

    def __init__(self, block, parameters, options):
        """parameters: (module, name) of each; options: of the operator."""
        modules, self.block = list(block.modules()), block
        children = [(m._modules, name, child) for m in modules for name, child in m._modules.items()]
        self.owners, self.names, self.children = zip(*children)
        hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
        self.hooks = [getattr(m, name) for m in modules[1:] for name in hooks]
        self.dropouts = [m for m in modules if _kind(m) == "Dropout"]
        self.parameters, self.keys = zip(*[(module._parameters, name) for module, name in parameters])
        self.options = options

    def holds(self):
        """Are there the same modules, which would be called for nothing but their forward?"""
        return all(map(operator.is_, map(operator.getitem, self.owners, self.names), self.children)) and not any(self.hooks)

    def tensors(self, dtype):
        """The parameters, where all are of this type and nothing is dropped; None otherwise."""
        for m in self.dropouts:
            if m.training and m.p:
                return None
        tensors = list(map(operator.getitem, self.parameters, self.keys))
        for p in tensors:
            if p is not None and (p.dtype is not dtype or type(p) is not torch.nn.Parameter):
                return None
        return tensors


def _whole(block, look):
    """What look(block) finds out about it, which is None where its operator does not take it; kept in the block while it holds."""
    if torch.compiler.is_compiling():
        found = look(block)
        return found if found and found.holds() else None
    found = vars(block).get("ckl_whole")
    if found is None or found.block is not block or not found.holds():  # a copy has the record of the original
        found = vars(block)["ckl_whole"] = look(block)
    return found if found and found.holds() else None


def _weights_and_biases(*modules):
    return [(m, name) for m in modules for name in ("weight", "bias")]


_DECODER_IGNORES = {
    "position_ids",
    "cache_position",
    "use_cache",
}  # what its attention looks at with neither a cache nor a mask


def _decoder_parts(self):
    """Causal attention of projections without bias between norms, a gated MLP, and nothing else?"""
    attn, mlp, norms = self.self_attn, self.mlp, (self.input_layernorm, self.post_attention_layernorm)
    plain = (
        set(attn._modules) == {"q_proj", "k_proj", "v_proj", "o_proj"}
        and _are_layers(attn, attn._modules)
        and attn.is_causal
        and attn.head_dim <= 256
        and attn.head_dim % 8 == 0
        and type(mlp).forward is _gated_mlp
    )
    if not plain:
        return None
    layers = [norms[0], attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj, norms[1], mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    if any(getattr(m, "bias", None) is not None for m in layers) or any(m.weight is None for m in layers):
        return None
    eps = [norm.variance_epsilon for norm in norms]
    return _Whole(self, [(m, "weight") for m in layers], (attn.head_dim, attn.scaling, *eps))


class _Projected:
    """A module of attention whose projections were made, and whose last one is left to others."""

    def __init__(self, attn, q, k, v):
        self.attn = attn
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = lambda x: q, lambda x: k, lambda x: v, lambda o: o

    def __getattr__(self, name):
        return getattr(self.attn, name)


def _around_attention(self, x, tensors, options, head_dim, eps1, eps2):
    """With a cache or a mask: what comes before attention and behind it, as one operator each."""
    cos, sin = options.pop("position_embeddings")
    norm1, q, k, v, o, norm2, gate, up, down = tensors
    q, k, v = _torch._decoder_head(x, norm1, q, k, v, cos, sin, head_dim, eps1)
    projected = _Projected(self.self_attn, q, k, v)
    attended, _ = type(self.self_attn).forward(projected, x, position_embeddings=(None, None), **options)
    return _torch._decoder_tail(attended, x, o, norm2, gate, up, down, eps2)


def _needs_gradient(x, tensors):
    return torch.is_grad_enabled() and (x.requires_grad or any([t is not None and t.requires_grad for t in tensors]))


def _has_gradient(attn, x):
    """Other GPUs than Hopper have none; there torch computes it, between parts of a block."""
    return has_gradient(attn.head_dim, x.dtype, x.device.index)


def _whole_decoder_layer(self, x, options):
    """The layer as one operator, or two around attention; None where they do not take it."""
    attn, tables = self.self_attn, options.get("position_embeddings")
    plain = attn.config._attn_implementation == "sdpa" and not (attn.training and attn.attention_dropout)
    if not (plain and tables and takes(x, *tables) and x.dtype != torch.float32):
        return None
    whole, (cos, sin) = _whole(self, _decoder_parts), tables
    tensors = whole and whole.tensors(x.dtype)
    if not tensors or not (x.dim() == cos.dim() == 3 and cos.shape[-1] == whole.options[0]) or cos.requires_grad:
        return None
    head_dim, scale, *eps = whole.options
    for name, value in options.items():
        if value is not None and name not in _DECODER_IGNORES and name != "position_embeddings":
            rotates = sys.modules[type(attn).__module__].apply_rotary_pos_emb
            if not hasattr(rotates, "ckl_original"):
                return None
            return _around_attention(self, x, tensors, options, head_dim, *eps)
    if not multiplies(x, tensors[6], None) or (_needs_gradient(x, tensors) and not _has_gradient(attn, x)):
        return None
    return _torch._decoder_layer(x, (*tensors, cos, sin), head_dim, scale, *eps)


def _decoder_layer(self, hidden_states, *args, **options):
    norm = self.post_attention_layernorm
    if args or not takes(hidden_states, norm.weight):
        return self.ckl_forward(hidden_states, *args, **options)
    y = _whole_decoder_layer(self, hidden_states, dict(options))
    if y is not None:
        return y
    attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)
    if attended.dtype != hidden_states.dtype:  # by autocast
        residual = hidden_states + attended
        return residual + self.mlp(norm(residual))
    normed, residual = _torch.add_rms_norm(attended, hidden_states, norm.weight, norm.variance_epsilon)
    return _add_mlp(self.mlp, normed, residual)


def _linear(self, x):
    return _torch.linear(x, self.weight, self.bias) if multiplies(x, self.weight, self.bias) else self.ckl_forward(x)


def _conv1d_of_transformers(self, x):
    if multiplies(x, self.weight, self.bias):
        return _torch.linear(x, self.weight, self.bias, turned=True)
    return self.ckl_forward(x)


def _conv2d(self, x):
    """Of any types but f32, whose products are tensor cores' in torch if so told."""
    if takes(x, self.weight, self.bias) and x.dtype != torch.float32 and x.dim() == 4:
        return _torch.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
    return self.ckl_forward(x)


_LAYERS = {"Linear": False, "Conv1D": True}  # are the weights turned?
_ACTIVATIONS = {
    "GELU": "gelu_erf",
    "GELUActivation": "gelu_erf",
    "NewGELUActivation": "gelu",
    "PytorchGELUTanh": "gelu",
    "GELUTanh": "gelu",
    "SiLU": "silu",
    "SiLUActivation": "silu",
}


def _activation_of(module):
    return "gelu" if getattr(module, "approximate", "none") == "tanh" else _ACTIVATIONS.get(_kind(module))


def _is_idle(module):
    """Does it give back what it gets?"""
    return _kind(module) == "Identity" or (_kind(module) == "Dropout" and (module.p == 0 or not module.training))


def _parts_of_mlp(module):
    """(up, activation, down, what comes between or after) of a module of that structure, or None."""
    children = module._modules
    for up, down, others in (("fc1", "fc2", ("drop1", "norm", "drop2")), ("c_fc", "c_proj", ("dropout",))):
        if set(children) == {up, "act", down, *others}:
            return children[up], children["act"], children[down], [children[name] for name in others]
    return None


def _is_mlp(module):
    return _are_parts_of_mlp(_parts_of_mlp(module))


def _are_parts_of_mlp(parts):
    """Two layers of a kind, the second of as many inputs as the first has outputs: where it has half as many there is a gate."""
    up, act, down, _ = parts or [None] * 4
    turned = _LAYERS.get(_kind(up))
    if turned is None or _kind(down) != _kind(up) or not _activation_of(act):
        return False
    return up.weight.shape[turned] == down.weight.shape[not turned]


def _are_layers(module, names):
    return all(_kind(module._modules[name]) == "Linear" for name in names)


def _mlp(self, x, residual=None):
    up, act, down, others = _parts_of_mlp(self)
    if multiplies(x, up.weight, up.bias) and all(map(_is_idle, others)):
        activation, turned = _activation_of(act), _LAYERS[_kind(up)]
        return _torch.mlp(x, up.weight, up.bias, down.weight, down.bias, activation, residual=residual, turned=turned)
    y = self.ckl_forward(x)
    return y if residual is None else residual + y


def _add_mlp(mlp, x, residual):
    return mlp.forward(x, residual) if type(mlp).forward in (_mlp, _gated_mlp) else residual + mlp(x)


def _patch_embed(self, x):
    """Windows that lie side by side are the rows of a matrix: the convolution is a product, and its result where the model wants it."""
    weight, bias = self.proj.weight, self.proj.bias
    taken = takes(x, weight, bias) and x.dtype != torch.float32 and not torch.is_autocast_enabled(x.device.type)
    if not (taken and self.flatten and not self.dynamic_img_pad and tuple(x.shape[2:]) == self.img_size):
        return self.ckl_forward(x)
    k, c, p, q = weight.shape
    n, h, w = x.shape[0], x.shape[2] // p, x.shape[3] // q
    rows = (
        x[:, :, : h * p, : w * q]
        .unflatten(3, (w, q))
        .unflatten(2, (h, p))
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(n, h * w, c * p * q)
    )
    return self.norm(_torch.linear(rows, weight.flatten(1), bias))


_CONVNEXT_PARTS = "conv_dw norm mlp shortcut drop_path".split()


def _convnext_parts(self):
    conv, norm, mlp, shortcut, drop_path = [self._modules[name] for name in _CONVNEXT_PARTS]
    parts = _parts_of_mlp(mlp)
    if self.use_conv_mlp or not _is_depthwise(conv) or norm.bias is None or not _are_parts_of_mlp(parts):
        return None
    up, act, down, others = parts
    if _kind(shortcut) != "Identity" or not all(_kind(m) in ("Identity", "Dropout") for m in (drop_path, *others)):
        return None
    parameters = [*_weights_and_biases(conv, norm, up, down), (self, "gamma")]
    return _Whole(self, parameters, (*conv.padding, norm.eps, _activation_of(act)))


def _convnext_block(self, x):
    """One operator. What the block multiplies with gamma comes out of a product: gamma is put into the weights of that one."""
    whole = _whole(self, _convnext_parts)
    tensors = whole and whole.tensors(x.dtype)
    if tensors and multiplies(x, tensors[4], tensors[5], axis=1):
        return _torch._conv_block(x, tensors, *whole.options)
    return self.ckl_forward(x)


_PARTS_OF_BLOCK = [["LayerNorm", kind, kind, "LayerNorm", kind, kind] for kind in ("Linear", "Conv1D")]


def _parts_of_block(block, norm1, qkv, proj, norm2, causal, scale):
    """norm, two layers, norm, two layers of the classes that the operator does what they do?"""
    mlp = _parts_of_mlp(block.mlp)
    if not _are_parts_of_mlp(mlp):
        return None
    up, act, down, others = mlp
    parts = norm1, qkv, proj, norm2, up, down
    if [_kind(m) for m in parts] not in _PARTS_OF_BLOCK or norm1.bias is None or norm2.bias is None:
        return None
    if not all(_kind(m) in ("Identity", "Dropout") for m in others):
        return None
    options = block.attn.num_heads, causal, scale, norm1.eps, norm2.eps, _activation_of(act), _LAYERS[_kind(qkv)]
    return _Whole(block, _weights_and_biases(*parts), options)


def _whole_block(self, x, look):
    """The block as one operator; None where that does not take it."""
    whole = _whole(self, look)
    tensors = whole and whole.tensors(x.dtype)
    if not tensors or x.dim() != 3 or not multiplies(x, tensors[8], tensors[9]):
        return None
    if _needs_gradient(x, tensors) and not _has_gradient(self.attn, x):
        return None
    return _torch._block(x, tensors, *whole.options)


def _add_layer_norm(norm, x, residual):
    """norm(x + residual) and the sum."""
    if x.dtype == residual.dtype:
        return _torch.add_layer_norm(x, residual, norm.weight, norm.bias, norm.eps)
    total = residual + x  # of two types, by autocast
    return norm(total), total


def _vit_parts(self):
    attn = self.attn
    if not _is_vit_attention(attn) or attn.gate is not None or attn.head_dim > 256:
        return None
    paths = [self.ls1, self.drop_path1, self.ls2, self.drop_path2]
    inside = [attn.q_norm, attn.k_norm, attn.attn_drop, attn.norm, attn.proj_drop]
    if not all(_kind(m) in ("Identity", "Dropout") for m in paths + inside):
        return None
    return _parts_of_block(self, self.norm1, attn.qkv, attn.proj, self.norm2, False, attn.head_dim**-0.5)


def _vit_block(self, x, attn_mask=None, is_causal=False):
    if attn_mask is None and not is_causal and getattr(self.attn, "fused_attn", False):
        y = _whole_block(self, x, _vit_parts)
        if y is not None:
            return y
    return self.ckl_forward(x, attn_mask, is_causal)


def _gpt2_parts(self):
    attn = self.attn
    if attn.head_dim > 256:
        return None
    return _parts_of_block(self, self.ln_1, attn.c_attn, attn.c_proj, self.ln_2, attn.is_causal, attn.scaling)


_GPT2_IGNORES = {"position_ids", "cache_position"}  # what its attention looks at with neither a cache nor a mask


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
    attn, norm, x = self.attn, self.ln_2, hidden_states
    cache = past_key_values if cache is None else cache  # two names of it, by the version of transformers
    if cache is attention_mask is encoder_hidden_states is None and options.keys() <= _GPT2_IGNORES:
        if attn.config._attn_implementation == "sdpa":
            y = _whole_block(self, x, _gpt2_parts)
            if y is not None:
                return y
    if encoder_hidden_states is not None or not takes(x, norm.weight, norm.bias):
        encoder = encoder_hidden_states, encoder_attention_mask
        return self.ckl_forward(x, cache, attention_mask, *encoder, use_cache, **options)
    attended, _ = attn(self.ln_1(x), cache, attention_mask, use_cache=use_cache, **options)
    normed, residual = _add_layer_norm(norm, attended, x)
    return _add_mlp(self.mlp, normed, residual)


def _softmax(self, x):
    return _torch.softmax(x, self.dim) if takes(x) and self.dim is not None else self.ckl_forward(x)


def _is_gated_mlp(module):
    layers = {"gate_proj", "up_proj", "down_proj"}
    return (
        set(module._modules) == {*layers, "act_fn"} and _activation_of(module.act_fn) == "silu" and _are_layers(module, layers)
    )


# By the name of the class (_kind): torch's, and what models of others have in their place.
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
    "Linear": _linear,
    "Conv1D": _conv1d_of_transformers,
    "Conv2d": _conv2d,
}

NOT_TAKEN = {
    "BatchNorm2d": "there is no batch norm",
    "Conv1d": "convolutions are left to torch",
    "Embedding": "there is no lookup",
    "MultiheadAttention": "it calls its parts by itself; scaled_dot_product_attention is replaced where it calls that",
    "Dropout": "there are no random numbers",
    "GPT2Block": "it or its attention has other arguments than those known here",
}


def _is_depthwise(module):
    """A filter for each channel, at every pixel."""
    plain = _kind(module) == "Conv2d" and module.stride == module.dilation == (1, 1)
    return plain and _has_zeros_around(module) and module.groups == module.in_channels == module.out_channels


def _has_zeros_around(module):
    return module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _has(module, kind, *children):
    """Is it of a class of this name with these children at least?"""
    return _kind(module) == kind and set(children) <= set(module._modules)


def _is_vit_block(module):
    return _has(module, "Block", "norm1", "attn", "ls1", "drop_path1", "norm2", "mlp", "ls2", "drop_path2")


def _is_vit_attention(module):
    return _has(module, "Attention", "qkv", "q_norm", "k_norm", "attn_drop", "norm", "proj", "proj_drop") and hasattr(
        module, "gate"
    )


def _is_gpt2_block(module):
    """Of the arguments that it has had since it returns a tensor, and an attention with the cache at the same place."""
    return _has(module, "GPT2Block", "ln_1", "attn", "ln_2", "mlp") and (
        _names_of_arguments(module) == list(inspect.signature(_gpt2_block).parameters)[1:7]
        and _names_of_arguments(module.attn)[:3] == ["hidden_states", "cache", "attention_mask"]
    )


def _names_of_arguments(module):
    """Of its forward, without **kwargs; a cache was past_key_values in transformers before it was cache."""
    names = list(inspect.signature(type(module).forward).parameters)
    return ["cache" if name == "past_key_values" else name for name in names if name not in ("self", "kwargs")]


def _is_patch_embed(module):
    proj = module._modules.get("proj")
    return _has(module, "PatchEmbed", "norm") and _kind(proj) == "Conv2d" and proj.kernel_size == proj.stride


def _is_convnext_block(module):
    return _has(module, "ConvNeXtBlock", *_CONVNEXT_PARTS)


def _makes_mask(module):
    """Is it a model of transformers that makes the causal mask, of positions that it counts where it is given none?"""
    forward = inspect.unwrap(type(module).forward)
    return "create_causal_mask" in getattr(getattr(forward, "__code__", None), "co_names", ()) and (
        list(inspect.signature(forward).parameters)[:2] == ["self", "input_ids"]
    )


_STRUCTURES = (
    (_is_gated_mlp, _gated_mlp),
    (_is_mlp, _mlp),
    (_is_vit_block, _vit_block),
    (_is_gpt2_block, _gpt2_block),
    (_makes_mask, counting_model),
    (_is_patch_embed, _patch_embed),
    (_is_convnext_block, _convnext_block),
)


WHOLE = (
    _gated_mlp,
    _mlp,
    _patch_embed,
    _vit_block,
    _gpt2_block,
    _convnext_block,
)  # they take over what is inside of their modules


def forward_of(module):
    if hasattr(module, "ckl_forward"):
        return None  # another accelerate() did it
    for has_structure, forward in _STRUCTURES:
        if has_structure(module):
            return forward
    return _FORWARDS.get(_kind(module))


def why_not(module, forward):
    """The reason why a module that an operator might take keeps its own forward; None where it takes it, or there is nothing to take."""
    kind = type(module).__name__
    if not forward and kind in _FORWARDS:
        return "a class of this name that is not torch's"
    if not forward:
        return None if kind == "Dropout" and module.p == 0 else NOT_TAKEN.get(kind)
    if kind == "GroupNorm" and not module.affine:
        return "GroupNorm without weight and bias"
    if kind == "Conv2d" and not _has_zeros_around(module):
        return "only convolutions with numbers of zeros around are taken"
    if kind in ("Linear", "Conv1D") and all(n % 8 == 0 for n in module.weight.shape):
        return "products of rows of whole 16 bytes are left to torch where there is nothing to fuse"
    if getattr(module, "weight", None) is not None and module.weight.dtype not in FLOATS:
        return f"the weight is of {module.weight.dtype}"
    return None


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
