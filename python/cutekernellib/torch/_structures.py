"""What modules of other libraries are made of: the classes known here, and the parts of blocks that are taken as one operator."""

import inspect
import operator

import torch

_LIBRARIES = ("torch.nn.modules.", "timm.", "transformers.")
_names: dict = {}  # of classes


def kind(module):
    """The name of its class, replaced or not, if that is of a library known here: others of the name may do something else."""
    return _name_of(type(module))


@torch.compiler.assume_constant_result  # a trace need not look inside
def _name_of(cls):
    name = _names.get(cls)
    if name is None:
        name = _names[cls] = cls.__name__.removeprefix("Ckl") if cls.__module__.startswith(_LIBRARIES) else ""
    return name


def has(module, name, *children):
    """Is it of a class of this name with these children at least?"""
    return kind(module) == name and set(children) <= set(module._modules)


# Layers and MLPs

TURNED = {"Linear": False, "Conv1D": True}  # are the weights?
ACTIVATIONS = {
    "GELU": "gelu_erf",
    "GELUActivation": "gelu_erf",
    "NewGELUActivation": "gelu",
    "PytorchGELUTanh": "gelu",
    "GELUTanh": "gelu",
    "SiLU": "silu",
    "SiLUActivation": "silu",
}


def activation_of(module):
    return "gelu" if getattr(module, "approximate", "none") == "tanh" else ACTIVATIONS.get(kind(module))


def is_idle(module):
    """Does it give back what it gets?"""
    return kind(module) == "Identity" or (kind(module) == "Dropout" and (module.p == 0 or not module.training))


def _may_be_idle(*modules):
    return all(kind(m) in ("Identity", "Dropout") for m in modules)


def are_layers(module, names):
    return all(kind(module._modules[name]) == "Linear" for name in names)


def has_zeros_around(conv):
    return conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def is_gated_mlp(module):
    layers = {"gate_proj", "up_proj", "down_proj"}
    return set(module._modules) == {*layers, "act_fn"} and activation_of(module.act_fn) == "silu" and are_layers(module, layers)


def parts_of_mlp(module):
    """(up, activation, down, what comes between or after) of two layers of a kind, or None.

    The second has as many inputs as the first has outputs: where it has half as many there is a gate.
    """
    children = module._modules
    for up, down, others in (("fc1", "fc2", ("drop1", "norm", "drop2")), ("c_fc", "c_proj", ("dropout",))):
        if set(children) == {up, "act", down, *others}:
            up, act, down = children[up], children["act"], children[down]
            turned = TURNED.get(kind(up))
            if turned is None or kind(down) != kind(up) or not activation_of(act):
                return None
            fits = up.weight.shape[turned] == down.weight.shape[not turned]
            return (up, act, down, [children[name] for name in others]) if fits else None
    return None


def is_patch_embed(module):
    proj = module._modules.get("proj")
    return has(module, "PatchEmbed", "norm") and kind(proj) == "Conv2d" and proj.kernel_size == proj.stride


def makes_mask(module):
    """Is it a model of transformers that makes the causal mask, of positions that it counts where it is given none?"""
    forward = inspect.unwrap(type(module).forward)
    return "create_causal_mask" in getattr(getattr(forward, "__code__", None), "co_names", ()) and (
        list(inspect.signature(forward).parameters)[:2] == ["self", "input_ids"]
    )


# Blocks


class Whole:
    """What was found out about a block that is taken as one operator. Each call asks only whether it still holds."""

    def __init__(self, block, parameters=(), options=()):
        """parameters: (module, name) of each, none where the operator does not take the block; options: of the operator."""
        modules, self.block = list(block.modules()), block
        children = [(m._modules, name, child) for m in modules for name, child in m._modules.items()]
        self.owners, self.names, self.children = zip(*children)
        hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
        self.hooks = [getattr(m, name) for m in modules[1:] for name in hooks]
        self.dropouts = [m for m in modules if kind(m) == "Dropout"]
        self.parameters, self.keys = [module._parameters for module, _ in parameters], [name for _, name in parameters]
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


def whole(block, look):
    """What look(block) finds out about it, which is None where its operator does not take it; kept in the block while it holds."""
    if torch.compiler.is_compiling():
        found = look(block)
        return found if found and found.holds() else None
    found = vars(block).get("ckl_whole")
    if found is None or found.block is not block or not found.holds():  # a copy has the record of the original
        found = vars(block)["ckl_whole"] = look(block) or Whole(block)
        if not found.holds():
            return None
    return found if found.parameters else None


def _weights_and_biases(*modules):
    return [(m, name) for m in modules for name in ("weight", "bias")]


CONVNEXT = "conv_dw norm mlp shortcut drop_path".split()


def convnext(block):
    conv, norm, mlp, shortcut, drop_path = [block._modules[name] for name in CONVNEXT]
    parts = parts_of_mlp(mlp)
    plain = kind(conv) == "Conv2d" and conv.stride == conv.dilation == (1, 1) and has_zeros_around(conv)
    is_depthwise = plain and conv.groups == conv.in_channels == conv.out_channels
    if block.use_conv_mlp or not is_depthwise or norm.bias is None or not parts:
        return None
    up, act, down, others = parts
    if kind(shortcut) != "Identity" or not _may_be_idle(drop_path, *others):
        return None
    parameters = [*_weights_and_biases(conv, norm, up, down), (block, "gamma")]
    return Whole(block, parameters, (*conv.padding, norm.eps, activation_of(act)))


def _transformer(block, norm1, qkv, proj, norm2, causal, scale):
    """norm, two layers, norm, two layers of the classes that the operator does what they do?"""
    parts = parts_of_mlp(block.mlp)
    if not parts:
        return None
    up, act, down, others = parts
    layers = norm1, qkv, proj, norm2, up, down
    layer, norm = kind(qkv), "LayerNorm"
    if [kind(m) for m in layers] != [norm, layer, layer, norm, layer, layer] or layer not in TURNED:
        return None
    if norm1.bias is None or norm2.bias is None or block.attn.head_dim > 256 or not _may_be_idle(*others):
        return None
    options = block.attn.num_heads, causal, scale, norm1.eps, norm2.eps, activation_of(act), TURNED[layer]
    return Whole(block, _weights_and_biases(*layers), options)


def vit(block):
    attn = block.attn
    known = has(attn, "Attention", "qkv", "q_norm", "k_norm", "attn_drop", "norm", "proj", "proj_drop")
    if not known or getattr(attn, "gate", "of another version") is not None:
        return None
    paths = block.ls1, block.drop_path1, block.ls2, block.drop_path2
    if not _may_be_idle(*paths, attn.q_norm, attn.k_norm, attn.attn_drop, attn.norm, attn.proj_drop):
        return None
    return _transformer(block, block.norm1, attn.qkv, attn.proj, block.norm2, False, attn.head_dim**-0.5)


def gpt2(block):
    attn = block.attn
    return _transformer(block, block.ln_1, attn.c_attn, attn.c_proj, block.ln_2, attn.is_causal, attn.scaling)


def decoder(layer):
    """Causal attention of projections without bias between norms, a gated MLP, and nothing else?"""
    attn, mlp, norms = layer.self_attn, layer.mlp, (layer.input_layernorm, layer.post_attention_layernorm)
    projections = "q_proj", "k_proj", "v_proj", "o_proj"
    if set(attn._modules) != set(projections) or not are_layers(attn, projections) or not is_gated_mlp(mlp):
        return None
    if not attn.is_causal or attn.head_dim > 256 or attn.head_dim % 8:
        return None
    q, k, v, o = (attn._modules[name] for name in projections)
    layers = norms[0], q, k, v, o, norms[1], mlp.gate_proj, mlp.up_proj, mlp.down_proj
    if any(getattr(m, "bias", None) is not None for m in layers) or any(m.weight is None for m in layers):
        return None
    eps = [norm.variance_epsilon for norm in norms]
    return Whole(layer, [(m, "weight") for m in layers], (attn.head_dim, attn.scaling, *eps))
