"""torch.ops.cutekernellib: the operators with schemas, fake kernels for shapes, and gradients by the library's own kernels.

Each operator has one implementation for tensors of a GPU, on torch's current stream, and of the host, on the emulated GPU.
"""

import torch

from .. import _problems
from .._library import operators, warn_of_emulator

_library = torch.library.Library("cutekernellib", "DEF")
_run = {name: operator.run for name, operator in operators.items()}
_attention = operators["attention"].taking("q k v mask o lse")
_linear = operators["gemm"].taking("a b bias d")
direct = {}  # the functions by name, for calls that nothing but the GPU has to see
differentiable = {}  # the same as functions of autograd alone, for calls that no trace has to see


def _operator(schema, fake, backward=None, setup=None):
    """Registers the function that follows: fake gives its outputs' shapes, backward its gradients."""

    def register(function):
        name = schema.partition("(")[0]
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, function, "CUDA")
        _library.impl(name, lambda *args: warn_of_emulator() or function(*args), "CPU")
        torch.library.register_fake(f"cutekernellib::{name}", fake, lib=_library)
        direct[name] = function
        if backward:
            torch.library.register_autograd(f"cutekernellib::{name}", backward, setup_context=setup, lib=_library)
            methods = {"forward": function, "setup_context": setup, "backward": backward}
            methods = {key: staticmethod(value) for key, value in methods.items()}
            differentiable[name] = type(name, (torch.autograd.Function,), methods).apply
        return function

    return register


def _ops():
    return torch.ops.cutekernellib


def _like(x, dtype=None):
    """Memory without gaps for a tensor of this shape, and no strides to look at."""
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _rows(x):
    return x.numel() // x.shape[-1] if x.shape[-1] else 0


# softmax


def _softmax_setup(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.options = inputs[1:]


def _softmax_gradient(ctx, dy):
    return _ops().softmax_backward(dy, *ctx.saved_tensors, *ctx.options), None, None, None


@_operator(
    "softmax(Tensor x, int dim, bool log=False, float scale=1.0) -> Tensor",
    lambda x, dim, log=False, scale=1.0: _like(x),
    _softmax_gradient,
    _softmax_setup,
)
def softmax(x, dim, log=False, scale=1.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    _run["softmax"](_problems.softmax(x.shape or (1,), x.dtype, dim, log, scale), x, None, y)
    return y


@_operator(
    "softmax_backward(Tensor dy, Tensor y, int dim, bool log=False, float scale=1.0) -> Tensor",
    lambda dy, y, dim, log=False, scale=1.0: _like(y),
)
def softmax_backward(dy, y, dim, log=False, scale=1.0):
    dy, y = dy.contiguous(), y.contiguous()
    dx = torch.empty_like(y)
    _run["softmax"](_problems.softmax(y.shape or (1,), y.dtype, dim, log, scale, True), None, None, y, dy, dx)
    return dx


# Norms of rows


def _statistics(x):
    return torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)


def _norm_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1], *output[1:])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.has_bias = len(inputs) == 4 and inputs[2] is not None


def _layer_norm_gradient(ctx, dy, _mean, _rstd):
    if dy is None:
        return None, None, None, None
    x, weight, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = _ops().layer_norm_backward(dy, x, weight, mean, rstd)
    return dx, dweight if weight is not None else None, dbias if ctx.has_bias else None, None


def _rms_norm_gradient(ctx, dy, _rstd):
    if dy is None:
        return None, None, None
    x, weight, rstd = ctx.saved_tensors
    dx, dweight = _ops().rms_norm_backward(dy, x, weight, rstd)
    return dx, dweight if weight is not None else None, None


def _norm(name, x, weight, bias, eps, mean, rstd):
    x = x.contiguous()
    y = torch.empty_like(x)
    if bias is None and weight is not None and name == "layernorm":
        bias = torch.zeros_like(weight)
    desc = _problems.norm(name, _rows(x), x.shape[-1], x.dtype, eps, weight is not None)
    _run[name](desc, x, None, weight, bias, None, None, y, None, None, None, None, mean, rstd)
    return y


def _norm_backward(name, dy, x, weight, mean, rstd):
    dy, x = dy.contiguous(), x.contiguous()
    dx, dweight = torch.empty_like(x), torch.empty_like(weight) if weight is not None else None
    dbias = torch.empty_like(weight) if weight is not None and mean is not None else None
    desc = _problems.norm(name, _rows(x), x.shape[-1], x.dtype, 0, weight is not None, False, True)
    _run[name](desc, x, None, weight, None, dy, None, None, None, dx, dweight, dbias, mean, rstd)
    nothing = x.new_empty(0)
    return dx, nothing if dweight is None else dweight, nothing if dbias is None else dbias


@_operator(
    "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, weight, bias, eps: (_like(x), _statistics(x), _statistics(x)),
    _layer_norm_gradient,
    _norm_setup,
)
def layer_norm(x, weight, bias, eps):
    mean, rstd = _statistics(x), _statistics(x)
    return _norm("layernorm", x, weight, bias, eps, mean, rstd), mean, rstd


@_operator(
    "rms_norm(Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor)",
    lambda x, weight, eps: (_like(x), _statistics(x)),
    _rms_norm_gradient,
    _norm_setup,
)
def rms_norm(x, weight, eps):
    rstd = _statistics(x)
    return _norm("rmsnorm", x, weight, None, eps, None, rstd), rstd


def _parameter_like(x, weight):
    return x.new_empty(0) if weight is None else torch.empty_like(weight)


@_operator(
    "layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)",
    lambda dy, x, weight, mean, rstd: (_like(x), _parameter_like(x, weight), _parameter_like(x, weight)),
)
def layer_norm_backward(dy, x, weight, mean, rstd):
    return _norm_backward("layernorm", dy, x, weight, mean, rstd)


@_operator(
    "rms_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor rstd) -> (Tensor, Tensor)",
    lambda dy, x, weight, rstd: (_like(x), _parameter_like(x, weight)),
)
def rms_norm_backward(dy, x, weight, rstd):
    return _norm_backward("rmsnorm", dy, x, weight, None, rstd)[:2]


# RMS norm of a sum: y, the sum and the statistics; of both addends the gradient is one


def _add_rms_norm_setup(ctx, inputs, output):
    ctx.save_for_backward(output[1], inputs[2], output[2])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])


def _add_rms_norm_gradient(ctx, dy, dsum, _rstd):
    h, weight, rstd = ctx.saved_tensors
    if dy is None:
        return dsum, dsum, None, None
    dx, dweight = _ops().add_rms_norm_backward(dy, dsum, h, weight, rstd)
    return dx, dx, dweight, None


@_operator(
    "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, residual, weight, eps: (_like(x), _like(x), _statistics(x)),
    _add_rms_norm_gradient,
    _add_rms_norm_setup,
)
def add_rms_norm(x, residual, weight, eps):
    x, residual = x.contiguous(), residual.contiguous()
    y, h, rstd = torch.empty_like(x), torch.empty_like(x), _statistics(x)
    desc = _problems.norm("rmsnorm", _rows(x), x.shape[-1], x.dtype, eps, True, True)
    _run["rmsnorm"](desc, x, residual, weight, None, None, None, y, h, None, None, None, None, rstd)
    return y, h, rstd


@_operator(
    "add_rms_norm_backward(Tensor dy, Tensor? dsum, Tensor h, Tensor weight, Tensor rstd) -> (Tensor, Tensor)",
    lambda dy, dsum, h, weight, rstd: (_like(h), torch.empty_like(weight)),
)
def add_rms_norm_backward(dy, dsum, h, weight, rstd):
    dy, dsum = dy.contiguous(), dsum if dsum is None else dsum.contiguous()
    dx, dweight = torch.empty_like(h), torch.empty_like(weight)
    desc = _problems.norm("rmsnorm", _rows(h), h.shape[-1], h.dtype, 0, True, dsum is not None, True)
    _run["rmsnorm"](desc, h, None, weight, None, dy, dsum, None, None, dx, dweight, None, None, rstd)
    return dx, dweight


# Group norm


def _is_channels_last(x):
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def _image(x, channels_last):
    return x.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def _image_like(x):
    last = _is_channels_last(x)
    return torch.empty_like(x, memory_format=torch.channels_last if last else torch.contiguous_format)


def _group_statistics(x, groups):
    return torch.empty((x.shape[0], groups), dtype=torch.float32, device=x.device)


def _group_norm_setup(ctx, inputs, output):
    x, groups, weight, bias, _ = inputs
    ctx.save_for_backward(x, weight, output[1], output[2])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.groups = groups


def _group_norm_gradient(ctx, dy, _mean, _rstd):
    if dy is None:
        return None, None, None, None, None
    x, weight, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = _ops().group_norm_backward(dy, x, ctx.groups, weight, mean, rstd)
    return dx, None, dweight, dbias, None


@_operator(
    "group_norm(Tensor x, int groups, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, groups, weight, bias, eps: (_image_like(x), _group_statistics(x, groups), _group_statistics(x, groups)),
    _group_norm_gradient,
    _group_norm_setup,
)
def group_norm(x, groups, weight, bias, eps):
    last = _is_channels_last(x)
    x = _image(x, last)
    y, mean, rstd = torch.empty_like(x), _group_statistics(x, groups), _group_statistics(x, groups)
    desc = _problems.groupnorm(x.shape, groups, x.dtype, eps, True, last)
    _run["groupnorm"](desc, x, None, weight, bias, y, None, None, None, mean, rstd)
    return y, mean, rstd


@_operator(
    "group_norm_backward(Tensor dy, Tensor x, int groups, Tensor weight, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)",
    lambda dy, x, groups, weight, mean, rstd: (_image_like(x), torch.empty_like(weight), torch.empty_like(weight)),
)
def group_norm_backward(dy, x, groups, weight, mean, rstd):
    last = _is_channels_last(x)
    x, dy = _image(x, last), _image(dy, last)
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    desc = _problems.groupnorm(x.shape, groups, x.dtype, 0, True, last, True)
    _run["groupnorm"](desc, x, dy, weight, None, None, dx, dweight, dbias, mean, rstd)
    return dx, dweight, dbias


# Cross-entropy


def _losses(x, mean):
    f32 = dict(dtype=torch.float32, device=x.device)
    return torch.empty(() if mean else x.shape[:1], **f32), torch.empty(x.shape[:1], **f32), torch.empty((), **f32)


def _cross_entropy_setup(ctx, inputs, output):
    x, target, ctx.ignore_index, ctx.mean = inputs
    ctx.save_for_backward(x, target, output[1], output[2])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1], output[2])


def _cross_entropy_gradient(ctx, dloss, _lse, _count):
    if dloss is None:
        return None, None, None, None
    x, target, lse, count = ctx.saved_tensors
    return _ops().cross_entropy_backward(dloss, x, target, lse, count, ctx.ignore_index, ctx.mean), None, None, None


@_operator(
    "cross_entropy(Tensor x, Tensor target, int ignore_index=-100, bool mean=True) -> (Tensor, Tensor, Tensor)",
    lambda x, target, ignore_index=-100, mean=True: _losses(x, mean),
    _cross_entropy_gradient,
    _cross_entropy_setup,
)
def cross_entropy(x, target, ignore_index=-100, mean=True):
    x, target = x.contiguous(), target.contiguous()
    loss, lse, count = _losses(x, mean)
    reduction = "mean" if mean else "none"
    desc = _problems.crossentropy(*x.shape, x.dtype, target.dtype, reduction, ignore_index)
    _run["crossentropy"](desc, x, target, loss, lse, count if mean else None)
    return loss, lse, count


@_operator(
    "cross_entropy_backward(Tensor dloss, Tensor x, Tensor target, Tensor lse, Tensor count, int ignore_index, bool mean) -> Tensor",
    lambda dloss, x, target, lse, count, ignore_index, mean: _like(x),
)
def cross_entropy_backward(dloss, x, target, lse, count, ignore_index, mean):
    x, target, dloss = x.contiguous(), target.contiguous(), dloss.contiguous()
    dx = torch.empty_like(x)
    reduction = "mean" if mean else "none"
    desc = _problems.crossentropy(*x.shape, x.dtype, target.dtype, reduction, ignore_index, True)
    _run["crossentropy"](desc, x, target, None, lse, count if mean else None, dloss, dx)
    return dx


# Element by element. s in a gradient stands for the sigmoid that the function has.

_SIGMOID_OF_GELU = "sigmoid(1.5957691216*x+0.0713548163*x*x*x)"  # gelu_tanh(x) = x * s, d/dx of its argument below
_FUNCTIONS = {
    "gelu": ("gelu_erf(x)", "g*(0.5+0.5*erf(0.7071067812*x)+0.3989422804*x*exp(-0.5*x*x))"),
    "gelu_tanh": (
        "gelu(x)",
        "g*s*(1+x*(1-s)*(1.5957691216+0.2140644488*x*x))".replace("s*", _SIGMOID_OF_GELU + "*", 1).replace(
            "-s", "-" + _SIGMOID_OF_GELU
        ),
    ),
    "silu": ("silu(x)", "g*sigmoid(x)*(1+x*(1-sigmoid(x)))"),
    "silu_mul": ("silu(x)*y", "g*y*sigmoid(x)*(1+x*(1-sigmoid(x)))"),
}


def _elementwise(expr, *inputs):
    """Tensors of one shape, without gaps."""
    inputs = [x.contiguous() for x in inputs]
    out = torch.empty_like(inputs[0])
    shape = (out.numel(),)
    names = tuple((name, inputs[0].dtype) for name in "abcd"[: len(inputs)])
    desc = _problems.elementwise(expr, shape, names, ((1,),) * (len(inputs) + 1), out.dtype)
    _run["elementwise"](desc, *inputs, *(None,) * (4 - len(inputs)), out)
    return out


def _unary_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.function = inputs[1]


@_operator(
    "unary(Tensor x, str function) -> Tensor",
    lambda x, function: _like(x),
    lambda ctx, dy: (_ops().unary_backward(dy, *ctx.saved_tensors, ctx.function), None),
    _unary_setup,
)
def unary(x, function):
    return _elementwise(_FUNCTIONS[function][0], x)


@_operator("unary_backward(Tensor dy, Tensor x, str function) -> Tensor", lambda dy, x, function: _like(x))
def unary_backward(dy, x, function):
    return _elementwise(_FUNCTIONS[function][1], dy, x)


@_operator(
    "silu_mul(Tensor x, Tensor y) -> Tensor",
    lambda x, y: _like(x),
    lambda ctx, dz: _ops().silu_mul_backward(dz, *ctx.saved_tensors),
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
def silu_mul(x, y):
    return _elementwise(_FUNCTIONS["silu_mul"][0], x, y)


@_operator("silu_mul_backward(Tensor dz, Tensor x, Tensor y) -> (Tensor, Tensor)", lambda dz, x, y: (_like(x), _like(y)))
def silu_mul_backward(dz, x, y):
    return _elementwise(_FUNCTIONS["silu_mul"][1], dz, y, x), _elementwise("g*silu(x)", dz, x)


# rope: of the gradient the angle is the negative one


def _rope_setup(ctx, inputs, output):
    _, _, positions, ctx.theta, ctx.style, ctx.inverse = inputs
    ctx.save_for_backward(positions)


def _rope_gradient(ctx, dyq, dyk):
    dq, dk = _ops().rope(dyq, dyk, *ctx.saved_tensors, ctx.theta, ctx.style, not ctx.inverse)
    return dq, dk, None, None, None, None


@_operator(
    "rope(Tensor q, Tensor k, Tensor positions, float theta=10000.0, str style='half', bool inverse=False) -> (Tensor, Tensor)",
    lambda q, k, positions, theta=1e4, style="half", inverse=False: (_like(q), _like(k)),
    _rope_gradient,
    _rope_setup,
)
def rope(q, k, positions, theta=10000.0, style="half", inverse=False):
    q, k, positions = q.contiguous(), k.contiguous(), positions.contiguous()
    yq, yk = torch.empty_like(q), torch.empty_like(k)
    heads, k_heads, d = q.shape[-2], k.shape[-2], q.shape[-1]
    tokens = q.numel() // (heads * d)
    desc = _problems.rope(tokens, heads, k_heads, d, q.dtype, positions.dtype, theta, style, 0, inverse)
    _run["rope"](desc, q, k, positions, yq, yk)
    return yq, yk


# Rotation by tables, as transformers' models do it: of the gradient the matrix is the transposed one


def _strided(expr, inputs, out):
    """An expression whose operands have the inputs' order, of tensors with any strides."""
    inputs = [x.expand(out.shape) for x in inputs]
    names = tuple((name, x.dtype) for name, x in zip("abcd", inputs))
    strides = (*(x.stride() for x in inputs), out.stride())
    _run["elementwise"](_problems.elementwise(expr, out.shape, names, strides, out.dtype), *inputs, out)


@_operator(
    "rotate(Tensor x, Tensor cos, Tensor sin, bool inverse=False) -> Tensor",
    lambda x, cos, sin, inverse=False: torch.empty_like(x),
    lambda ctx, dy: (_ops().rotate(dy, *ctx.saved_tensors, not ctx.inverse), None, None, None),
    lambda ctx, inputs, output: (ctx.save_for_backward(*inputs[1:3]), setattr(ctx, "inverse", inputs[3])),
)
def rotate(x, cos, sin, inverse=False):
    y = torch.empty_like(x)
    (a, b), (ya, yb), (cos_a, cos_b), (sin_a, sin_b) = (t.chunk(2, -1) for t in (x, y, cos, sin))
    signs = "+-" if inverse else "-+"
    _strided(f"a*c{signs[0]}b*s", (a, cos_a, b, sin_b if inverse else sin_a), ya)
    _strided(f"b*c{signs[1]}a*s", (b, cos_b, a, sin_a if inverse else sin_b), yb)
    return y


# linear: the products of its gradient are torch's


def _linear_setup(ctx, inputs, output):
    x, weight, bias, ctx.activation = inputs
    ctx.has_bias = bias is not None
    keep = {"identity": (), "relu": (output,), "gelu": (bias,)}[ctx.activation]
    ctx.save_for_backward(x, weight, *keep)


def _linear_gradient(ctx, dy):
    x, weight, *kept = ctx.saved_tensors
    if ctx.activation == "relu":
        dy = dy * (kept[0] > 0)
    elif ctx.activation == "gelu":
        dy = _ops().unary_backward(dy, _ops().linear(x, weight, kept[0], "identity"), "gelu_tanh")
    rows = dy.reshape(-1, dy.shape[-1])
    dbias = rows.sum(0) if ctx.has_bias else None
    return dy @ weight, rows.t() @ x.reshape(-1, x.shape[-1]), dbias, None


def _linear_like(x, weight):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@_operator(
    "linear(Tensor x, Tensor weight, Tensor? bias=None, str activation='identity') -> Tensor",
    lambda x, weight, bias=None, activation="identity": _linear_like(x, weight),
    _linear_gradient,
    _linear_setup,
)
def linear(x, weight, bias=None, activation="identity"):
    x, weight = x.contiguous(), weight.contiguous()
    y = _linear_like(x, weight)
    desc = _problems.gemm(_rows(x), *weight.shape, x.dtype, bias is not None, activation)
    _linear(desc, x, weight, bias, y)
    return y


# Attention: the gradient is made by torch's flash attention from our output and log-sum-exp


def _attention_setup(ctx, inputs, output):
    q, k, v, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, *output)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])


def _attention_gradient(ctx, do, _lse):
    if do is None:
        return None, None, None, None, None, None
    return *_ops().attention_backward(do, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None, None


def _attention_outputs(q, v):
    o = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:3], v.shape[3]))
    return o, torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _by_rows(x):
    """Its rows may lie anywhere; nothing is broadcast."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


@_operator(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale) -> (Tensor, Tensor)",
    lambda q, k, v, mask, causal, scale: _attention_outputs(_by_rows(q), v),
    _attention_gradient,
    _attention_setup,
)
def attention(q, k, v, mask, causal, scale):
    q, k, v = _by_rows(q), _by_rows(k), _by_rows(v)
    o, lse = _attention_outputs(q, v)
    kind = strides = None
    if mask is not None:
        kind = "bool" if mask.dtype == torch.bool else "add"
        mask = mask.expand(*q.shape[:3], k.shape[2])
        mask = mask if mask.stride(-1) == 1 else mask.contiguous()
        strides = mask.stride()
    all_strides = (q.stride(), k.stride(), v.stride(), o.stride())
    desc = _problems.attention(q.shape, k.shape, v.shape, all_strides, q.dtype, causal, scale, kind, strides, True)
    _attention(desc, q, k, v, mask, o, lse)
    return o, lse


@_operator(
    "attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor o, Tensor lse, bool causal, float scale)"
    " -> (Tensor, Tensor, Tensor)",
    lambda do, q, k, v, mask, o, lse, causal, scale: (_like(q), _like(k), _like(v)),
)
def attention_backward(do, q, k, v, mask, o, lse, causal, scale):
    if q.is_cuda and mask is None and q.shape[-1] == v.shape[-1]:
        nothing = torch.zeros((), dtype=torch.uint64, device=q.device)
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            do, q, k, v, o, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, nothing, nothing, scale=scale
        )
    else:
        gradients = _attention_backward_by_torch(do, q, k, v, mask, causal, scale)
    return tuple(g.contiguous() for g in gradients)


def _attention_backward_by_torch(do, q, k, v, mask, causal, scale):
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        o = torch._C._nn.scaled_dot_product_attention(  # accelerate() replaces that of torch.nn.functional
            *inputs, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        return torch.autograd.grad(o, inputs, do)
